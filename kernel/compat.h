/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels 6.1, 6.12 and 7.x, and nothing else.  Stable
 * kernels carry backports, so what can be probed is probed: Kbuild greps the
 * headers of the kernel built against and defines SWP_HAVE_*.
 */
#ifndef SWP_COMPAT_H
#define SWP_COMPAT_H

#ifdef SWP_HAVE_LINUX_UNALIGNED
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#ifndef SWP_HAVE_WQ_PERCPU
#define WQ_PERCPU 0
#endif

#ifndef timer_container_of
#define timer_container_of(var, callback_timer, timer_fieldname) \
	from_timer(var, callback_timer, timer_fieldname)
#endif

/* struct sockaddr_unsized took the place of struct sockaddr in 6.19. */
#ifdef SWP_HAVE_SOCKADDR_UNSIZED
#define swp_sockaddr_arg(p) ((struct sockaddr_unsized *)(p))
#else
#define swp_sockaddr_arg(p) ((struct sockaddr *)(p))
#endif

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

static inline struct ib_umem *swp_umem_get(struct ib_device *dev, u64 addr,
					   u64 len, int access)
{
#ifdef SWP_HAVE_UMEM_GET_VA
	return ib_umem_get_va(dev, addr, len, access);
#else
	return ib_umem_get(dev, addr, len, access);
#endif
}

/* Keeps udev from renaming what an administrator named. */
static inline void swp_mark_named_by_user(struct ib_device *dev)
{
#ifdef SWP_HAVE_MARK_NAMED
	ib_mark_name_assigned_by_user(dev);
#endif
}

/* Make a kernel socket hold its network namespace. */
#ifdef SWP_HAVE_SK_NET_REFCNT_UPGRADE
#define swp_sk_hold_net(sk) sk_net_refcnt_upgrade(sk)
#else
static inline void swp_sk_hold_net(struct sock *sk)
{
	struct net *net = sock_net(sk);

	sk->sk_net_refcnt = 1;
	get_net_track(net, &sk->ns_tracker, GFP_KERNEL);
	sock_inuse_add(net, 1);
}
#endif

/*
 * The page fragment of the current task must not be used by a socket that
 * sends in softirq context; since 6.2 that has a switch, before it followed
 * from sk_allocation.
 */
static inline void swp_sk_no_task_frag(struct sock *sk)
{
#ifdef SWP_HAVE_SK_USE_TASK_FRAG
	sk->sk_use_task_frag = false;
#endif
}

#endif /* SWP_COMPAT_H */
