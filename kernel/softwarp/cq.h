/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completion queues.
 */
#ifndef SWP_CQ_H
#define SWP_CQ_H

#include <linux/hrtimer.h>
#include <rdma/ib_verbs.h>

#include "ring.h"

struct swp_owner;

struct swp_cq {
	struct ib_cq base;
	struct swp_owner *owner;
	struct mutex resize_mutex;	/* outside lock: serialises resizing */
	struct swp_ring ring;
	u32 id;
	spinlock_t lock;	/* protects all below; innermost, cq_lock() */
	u32 prod;
	u32 cons;		/* kernel consumers; user: in the ring */
	u32 arm;		/* kernel consumers: enum swp_arm */
	bool overflow;
	bool timestamps;	/* in each completion; constant */
	struct swp_spinner *spinner;	/* of the program, or NULL */
	bool prompt;		/* see startup.h; constant once it is used */
	/* moderation: one event per this many completions ... */
	u16 mod_count;		/* 0: no moderation */
	u16 mod_period;		/* ... or this time, us, after the first one */
	u16 held;		/* completions since the timer started */
	struct hrtimer mod_timer;
};

#define to_swp_cq(x)	container_of(x, struct swp_cq, base)

/*
 * Did ib_alloc_cq() create it, and does the core poll it, in softirq or in a
 * work item?  Check wc, too: ib_create_cq() leaves poll_ctx 0, which means
 * softirq.
 */
static inline bool swp_cq_is_cores(const struct swp_cq *cq)
{
	return cq->base.wc && cq->base.poll_ctx != IB_POLL_DIRECT;
}

/* The engines: any context */
enum { SWP_CQ_NOTIFY = 1, SWP_CQ_OVERFLOW = 2 };
int swp_cq_push(struct swp_cq *cq, struct swp_cqe *cqe);
void swp_cq_notify(struct swp_cq *cq, int bits);
/* Stops the timer, raises the event that moderation holds back.  May sleep. */
void swp_cq_settle(struct swp_cq *cq);

/* Verbs */
int swp_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		  struct ib_udata *udata);
int swp_resize_cq(struct ib_cq *cq, unsigned int cqe, struct ib_udata *udata);
int swp_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
int swp_poll_cq(struct ib_cq *cq, int num, struct ib_wc *wc);
int swp_modify_cq(struct ib_cq *cq, u16 count, u16 period);
int swp_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags);

#endif /* SWP_CQ_H */
