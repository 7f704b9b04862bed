/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels 6.1, 6.12 and 7.x, and nothing else.  Stable
 * kernels carry backports, so what can be probed is probed: Kbuild greps the
 * headers of the kernel built against and defines SWP_HAVE_*.
 */
#ifndef SWP_COMPAT_H
#define SWP_COMPAT_H

#include <linux/version.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#ifndef WQ_PERCPU
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

#endif /* SWP_COMPAT_H */
