// SPDX-License-Identifier: GPL-2.0
/*
 * The TCP socket below a stream: a process that owns it while much arrives, and reads
 * that when it releases it, leaves the peer a window to go on with.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/in.h>
#include <linux/rtnetlink.h>
#include <net/tcp.h>

#include "compat.h"
#include "softwarp/llp.h"

/* Many windows of octets: one grows to 6 MiB */
#define MUCH		(64 * 1024 * 1024)
/* TCP asks for a window that is not opened after 200 ms or more */
#define LONG_MS		190
#define ROUNDS		4

struct ends {
	struct socket *listens;
	struct socket *sender;
	struct swp_llp *llp;	/* of the receiver */
	u64 got;
};

static int count(read_descriptor_t *desc, struct sk_buff *skb, unsigned int off,
		 size_t len)
{
	struct ends *e = desc->arg.data;

	WRITE_ONCE(e->got, e->got + len);
	return len;
}

static void data_ready(struct swp_llp *llp)
{
	read_descriptor_t desc = { .arg.data = llp->owner, .count = 1 };

	tcp_read_sock(llp->sk, &desc, count);
}

static void nothing(struct swp_llp *llp)
{
}

static const struct swp_llp_ops ops = {
	.data_ready = data_ready,
	.write_space = nothing,
	.state_change = nothing,
};

static struct socket *make_socket(struct kunit *test)
{
	struct socket *sock;

	KUNIT_ASSERT_EQ(test, 0, sock_create_kern(&init_net, AF_INET, SOCK_STREAM,
						  IPPROTO_TCP, &sock));
	return sock;
}

static void connect_ends(struct kunit *test, struct ends *e)
{
	struct sockaddr_storage at = {};
	struct sockaddr_in *in = (struct sockaddr_in *)&at;
	struct socket *receiver;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	e->listens = make_socket(test);
	KUNIT_ASSERT_EQ(test, 0, kernel_bind(e->listens, swp_sockaddr_arg(&at),
					     sizeof(*in)));
	KUNIT_ASSERT_EQ(test, 0, kernel_listen(e->listens, 1));
	in->sin_port = inet_sk(e->listens->sk)->inet_sport;
	e->sender = make_socket(test);
	KUNIT_ASSERT_EQ(test, 0, kernel_connect(e->sender, swp_sockaddr_arg(&at),
						sizeof(*in), 0));
	KUNIT_ASSERT_EQ(test, 0, kernel_accept(e->listens, &receiver, 0));
	e->llp = swp_llp_create(receiver);
	KUNIT_ASSERT_FALSE(test, IS_ERR(e->llp));
	swp_llp_set_owner(e->llp, &ops, e);

	lock_sock(e->sender->sk);
	e->sender->sk->sk_sndbuf = 2 * MUCH;
	e->sender->sk->sk_userlocks |= SOCK_SNDBUF_LOCK;
	release_sock(e->sender->sk);
}

static void say(struct kunit *test, struct ends *e, u32 octets)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	const u32 part = 65536;
	struct kvec iov;
	void *buf;

	buf = kunit_kzalloc(test, part, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	for (; octets; octets -= part) {
		iov = (struct kvec){ .iov_base = buf, .iov_len = part };
		KUNIT_ASSERT_EQ(test, (int)part,
				kernel_sendmsg(e->sender, &msg, &iov, 1, part));
	}
	kunit_kfree(test, buf);
}

/* The longest time without any of them until so many octets have arrived, ms */
static u64 longest_gap(struct kunit *test, struct ends *e, u64 octets)
{
	u64 since = ktime_get_ns(), longest = 0, before = 0, now, got;

	do {
		usleep_range(500, 1000);
		now = ktime_get_ns();
		got = READ_ONCE(e->got);
		longest = max(longest, now - since);
		if (got != before)
			since = now;
		before = got;
	} while (got < octets && longest < 10 * NSEC_PER_SEC);
	KUNIT_ASSERT_EQ(test, octets, got);
	return div_u64(longest, NSEC_PER_MSEC);
}

static void window_after_release(struct kunit *test)
{
	struct ends *e = kunit_kzalloc(test, sizeof(*e), GFP_KERNEL);
	u64 gap, least = U64_MAX;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, e);
	connect_ends(test, e);
	/* TCP's window grows with what is read */
	say(test, e, MUCH);
	longest_gap(test, e, MUCH);
	/* others may have the processor for as long, but hardly each time */
	for (i = 2; i < 2 + ROUNDS; i++) {
		/* the other one is locked meanwhile */
		lock_sock_nested(e->llp->sk, SINGLE_DEPTH_NESTING);
		/* a window of it waits for us, and the rest is ready to follow */
		say(test, e, MUCH);
		swp_llp_release(e->llp);
		gap = longest_gap(test, e, (u64)i * MUCH);
		least = min(least, gap);
	}
	KUNIT_EXPECT_LT(test, least, (u64)LONG_MS);
	swp_llp_put(e->llp);
	sock_release(e->sender);
	sock_release(e->listens);
}

static int suite_init(struct kunit_suite *suite)
{
	int ret;

	rtnl_lock();
	ret = dev_change_flags(init_net.loopback_dev,
			       init_net.loopback_dev->flags | IFF_UP, NULL);
	rtnl_unlock();
	return ret ?: swp_llp_init();
}

static void suite_exit(struct kunit_suite *suite)
{
	swp_llp_exit();
}

static struct kunit_case cases[] = {
	KUNIT_CASE(window_after_release),
	{}
};

static struct kunit_suite suite = {
	.name = "llp",
	.suite_init = suite_init,
	.suite_exit = suite_exit,
	.test_cases = cases,
};

kunit_test_suite(suite);
