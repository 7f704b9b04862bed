// SPDX-License-Identifier: GPL-2.0
/*
 * Do one bad thing on loading, to prove that the harness notices:
 * insmod provoke.ko kind=warn|oob|leak|atomic|locks|shift|oops
 * Only the harness's own test loads it; and that of SDP's module with kind=protocol,
 * which does no harm and stays.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <net/protocol.h>
#include <net/sock.h>

static char *kind = "none";
module_param(kind, charp, 0444);
MODULE_PARM_DESC(kind, "what to do wrong");

/* A parameter, or the compiler sees the mistakes and acts on them. */
static unsigned int count = 16;
module_param(count, uint, 0444);
MODULE_PARM_DESC(count, "size of the buffer that is overrun; 16 is right");

static DEFINE_SPINLOCK(spin);
static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

static void out_of_bounds(void)
{
	char *bytes = kmalloc(16, GFP_KERNEL);

	if (!bytes)
		return;
	bytes[count] = 1;
	kfree(bytes);
}

static noinline void leak(void)
{
	int i;

	/* Several: a stale register or stack slot may still point to the last. */
	for (i = 0; i < 8; i++)
		kmalloc(count * 100, GFP_KERNEL);
}

static void sleep_in_atomic(void)
{
	spin_lock(&spin);
	msleep(20);
	spin_unlock(&spin);
}

static void invert_locks(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static void shift_too_far(void)
{
	pr_info("provoke: shifted to %d\n", 1 << (count + 24));
}

static void oops(void)
{
	WRITE_ONCE(*(int *)(unsigned long)(count - 16), 1);
}

/* Not a mistake: somebody else has SDP's number of a protocol of AF_INET. */
static struct inet_protosw taken = {
	.type = SOCK_STREAM,
	.protocol = 257,
	.flags = INET_PROTOSW_ICSK,
};

static int take_protocol(void)
{
	struct socket *sock;
	int ret;

	ret = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &sock);
	if (ret)
		return ret;
	taken.prot = sock->sk->sk_prot;
	taken.ops = sock->ops;
	sock_release(sock);
	inet_register_protosw(&taken);
	return 0;
}

static int __init provoke_init(void)
{
	if (!strcmp(kind, "protocol"))
		return take_protocol();
	if (!strcmp(kind, "warn"))
		WARN(1, "provoked\n");
	else if (!strcmp(kind, "oob"))
		out_of_bounds();
	else if (!strcmp(kind, "leak"))
		leak();
	else if (!strcmp(kind, "atomic"))
		sleep_in_atomic();
	else if (!strcmp(kind, "locks"))
		invert_locks();
	else if (!strcmp(kind, "shift"))
		shift_too_far();
	else if (!strcmp(kind, "oops"))
		oops();
	else
		return -EINVAL;
	/* Done, and nothing is to stay. */
	return -ENODEV;
}

static void __exit provoke_exit(void)
{
	inet_unregister_protosw(&taken);
}

module_init(provoke_init);
module_exit(provoke_exit);
MODULE_DESCRIPTION("Mistakes made on purpose, for the test of the test harness");
MODULE_LICENSE("GPL");
