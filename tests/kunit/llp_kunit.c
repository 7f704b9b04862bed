// SPDX-License-Identifier: GPL-2.0
/*
 * The TCP socket below a stream: a process that owns it while much arrives, and reads
 * that when it releases it, leaves the peer a window to go on with; and somebody who
 * wants the sockets of both ends does not wait again and again for one that is late.
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
#define ROUNDS		4
/* More than how often an owner can be late before that makes no difference */
#define LATES		20
/* late_until has this unit, in ns; and the longest time for which it is in the future */
#define LATE_UNIT	1024
#define LATE_MOST	(12 * NSEC_PER_MSEC)

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

static void disconnect_ends(struct ends *e)
{
	swp_llp_put(e->llp);
	sock_release(e->sender);
	sock_release(e->listens);
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

/*
 * Does each end wait for the other one, until the sender asks after 200 ms or more?
 * It has octets left, none on their way, and no window for them, and knows all that
 * the receiver has told; that has read everything, and is not going to tell more.
 */
static bool is_stuck(const struct ends *e)
{
	struct sock *in = e->llp->sk, *out = e->sender->sk;
	const struct tcp_sock *receiver = tcp_sk(in), *sender = tcp_sk(out);
	bool stuck;

	spin_lock_bh(&in->sk_lock.slock);
	spin_lock_nested(&out->sk_lock.slock, SINGLE_DEPTH_NESTING);
	stuck = !sock_owned_by_user_nocheck(in) &&
		!sock_owned_by_user_nocheck(out) && tcp_send_head(out) &&
		!sender->packets_out &&
		tcp_wnd_end(sender) - sender->snd_nxt < sender->mss_cache &&
		tcp_wnd_end(sender) == receiver->rcv_wup + receiver->rcv_wnd &&
		skb_queue_empty(&in->sk_receive_queue) &&
		!(inet_csk(in)->icsk_ack.pending & ICSK_ACK_TIMER);
	spin_unlock(&out->sk_lock.slock);
	spin_unlock_bh(&in->sk_lock.slock);
	return stuck;
}

/* Waits until so many octets have arrived.  How often both ends were stuck meanwhile */
static u32 hear(struct kunit *test, struct ends *e, u64 octets)
{
	u64 until = ktime_get_ns() + 60 * NSEC_PER_SEC;
	u32 stuck = 0;

	while (READ_ONCE(e->got) < octets && ktime_get_ns() < until) {
		usleep_range(500, 1000);
		stuck += is_stuck(e);
	}
	KUNIT_ASSERT_EQ(test, octets, READ_ONCE(e->got));
	return stuck;
}

static void window_after_release(struct kunit *test)
{
	struct ends *e = kunit_kzalloc(test, sizeof(*e), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, e);
	connect_ends(test, e);
	/* TCP's window grows with what is read */
	say(test, e, MUCH);
	KUNIT_EXPECT_EQ(test, 0U, hear(test, e, MUCH));
	for (i = 2; i < 2 + ROUNDS; i++) {
		/* the other one is locked meanwhile */
		lock_sock_nested(e->llp->sk, SINGLE_DEPTH_NESTING);
		/* a window of it waits for us, and the rest is ready to follow */
		say(test, e, MUCH);
		swp_llp_release(e->llp);
		KUNIT_EXPECT_EQ(test, 0U, hear(test, e, (u64)i * MUCH));
	}
	disconnect_ends(e);
}

/* Tries to have both sockets, until it has, or had to wait in vain once more. */
static bool have_both(struct swp_llp *a, struct swp_llp *b)
{
	u64 until = ktime_get_ns() + 60 * NSEC_PER_SEC;
	u32 late_until = a->near.late_until;

	/* without patience it looks, and does not wait; also if others want this CPU */
	while (a->near.late_until == late_until && ktime_get_ns() < until) {
		if (swp_llp_trylock_both(a, b)) {
			swp_llp_unlock_both(a, b);
			return true;
		}
		cond_resched();
	}
	return false;
}

/*
 * Does it wait, although it has been in vain before: with late_until @ns from now?  Or
 * look, and come back at once.
 */
static bool waits(struct swp_llp *a, struct swp_llp *b, s64 ns)
{
	u64 begin, until = ktime_get_ns() + 60 * NSEC_PER_SEC;
	u32 late_until;
	bool waited;

	do {
		begin = ktime_get_ns();
		late_until = (begin + ns) / LATE_UNIT;
		a->near.late_until = late_until;
		swp_llp_trylock_both(a, b);
		waited = a->near.late_until != late_until;
		cond_resched();
		/* not if others had this CPU: it ends early then, or the time has come */
	} while ((ns > 0 ? waited && ktime_get_ns() - begin >= ns : !waited) &&
		 ktime_get_ns() < until);
	return waited;
}

static void late_owner(struct kunit *test)
{
	const s64 wraps = 1LL << 32, minutes = 60 * NSEC_PER_SEC;
	struct ends *e = kunit_kcalloc(test, 2, sizeof(*e), GFP_KERNEL);
	struct swp_llp *a, *b;
	u32 before, i;

	KUNIT_ASSERT_NOT_NULL(test, e);
	for (i = 0; i < 2; i++)
		connect_ends(test, &e[i]);
	a = e[0].llp;
	b = e[1].llp;
	KUNIT_EXPECT_TRUE(test, have_both(a, b));
	lock_sock(b->sk);
	for (i = 0; i < LATES; i++) {
		before = a->near.lates;
		KUNIT_EXPECT_FALSE(test, have_both(a, b));
		/* each time it has waited is counted, as long as that makes it rarer */
		KUNIT_EXPECT_GE(test, a->near.lates, (u8)before);
	}
	before = a->near.lates;
	KUNIT_EXPECT_GT(test, before, 1U);
	KUNIT_EXPECT_LT(test, before, LATES);
	KUNIT_EXPECT_FALSE(test, waits(a, b, LATE_MOST));
	KUNIT_EXPECT_TRUE(test, waits(a, b, -LATE_UNIT));
	/* more and less than half of what fits ago */
	KUNIT_EXPECT_TRUE(test, waits(a, b, -30 * minutes));
	KUNIT_EXPECT_TRUE(test, waits(a, b, -wraps * LATE_UNIT * 5 / 8));
	release_sock(b->sk);
	KUNIT_EXPECT_TRUE(test, have_both(a, b));
	KUNIT_EXPECT_EQ(test, 0, a->near.lates);
	for (i = 0; i < 2; i++)
		disconnect_ends(&e[i]);
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
	KUNIT_CASE(late_owner),
	{}
};

static struct kunit_suite suite = {
	.name = "llp",
	.suite_init = suite_init,
	.suite_exit = suite_exit,
	.test_cases = cases,
};

kunit_test_suite(suite);
