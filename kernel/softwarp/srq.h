/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared receive queues.
 */
#ifndef SWP_SRQ_H
#define SWP_SRQ_H

#include <rdma/ib_verbs.h>

#include "ring.h"

struct swp_device;
struct swp_owner;

struct swp_srq {
	struct ib_srq base;
	struct swp_device *dev;
	struct swp_owner *owner;
	struct mutex resize_mutex;	/* outside lock: serialises resizing */
	u32 max_sge;
	spinlock_t lock;	/* protects all below; inside socket lock */
	struct swp_ring ring;	/* kernel consumer: post_lock, too */
	u32 cons;
	u32 limit;		/* event if fewer are left; 0: none */
	bool broken;		/* IB_EVENT_SRQ_ERR was raised */
	spinlock_t post_lock;	/* kernel posters; irq safe, inside lock */
};

#define to_swp_srq(x)	container_of(x, struct swp_srq, base)

/* Is there a request?  Another QP may take it.  Softirq or process context. */
bool swp_srq_posted(struct swp_srq *srq);
/* Takes the next request, as swp_rqe_fetch().  Socket lock held. */
int swp_srq_take(struct swp_srq *srq, struct swp_rx *rx);

/* Verbs */
int swp_create_srq(struct ib_srq *srq, struct ib_srq_init_attr *attr,
		   struct ib_udata *udata);
int swp_destroy_srq(struct ib_srq *srq, struct ib_udata *udata);
int swp_modify_srq(struct ib_srq *srq, struct ib_srq_attr *attr,
		   enum ib_srq_attr_mask mask, struct ib_udata *udata);
int swp_query_srq(struct ib_srq *srq, struct ib_srq_attr *attr);
int swp_post_srq_recv(struct ib_srq *srq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);

#endif /* SWP_SRQ_H */
