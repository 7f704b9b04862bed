// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: one ring of receive requests for any number of QPs.  A
 * QP takes the next request when a Send for it begins.
 */
#include <linux/slab.h>

#include "device.h"
#include "rx.h"
#include "srq.h"

static void srq_event(struct swp_srq *srq, enum ib_event_type type)
{
	struct ib_event ev = {
		.device = srq->base.device,
		.event = type,
		.element.srq = &srq->base,
	};

	if (srq->base.event_handler)
		srq->base.event_handler(&ev, srq->base.srq_context);
}

bool swp_srq_posted(struct swp_srq *srq)
{
	bool posted;

	/* the lock keeps the ring from being replaced */
	spin_lock_bh(&srq->lock);
	posted = READ_ONCE(swp_ring_ctrl(&srq->ring)->prod) != srq->cons;
	spin_unlock_bh(&srq->lock);
	return posted;
}

int swp_srq_take(struct swp_srq *srq, struct swp_rx *rx)
{
	bool low = false, broken = false;
	u32 left = 0;
	int ret;

	spin_lock_bh(&srq->lock);
	ret = swp_rqe_fetch(rx, &srq->ring, srq->cons, srq->max_sge, &left);
	if (rx->in_msg) {
		srq->cons++;
		/* pairs with the poster's acquire load of cons */
		smp_store_release(&swp_ring_ctrl(&srq->ring)->cons, srq->cons);
		low = srq->limit && left < srq->limit;
		if (low)
			srq->limit = 0;
	} else if (ret == -EINVAL && !srq->broken) {
		/* prod is invalid, and stays so */
		srq->broken = true;
		broken = true;
	}
	spin_unlock_bh(&srq->lock);
	if (low)
		srq_event(srq, IB_EVENT_SRQ_LIMIT_REACHED);
	if (broken)
		srq_event(srq, IB_EVENT_SRQ_ERR);
	return ret;
}

static u32 rqe_stride(u32 max_sge)
{
	return sizeof(struct swp_rqe) + max_sge * sizeof(struct swp_sge);
}

int swp_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		   struct ib_udata *udata)
{
	struct swp_device *dev = to_swp_dev(ibsrq->device);
	struct swp_srq *srq = to_swp_srq(ibsrq);
	struct swp_create_srq_resp resp = {};
	struct swp_ucontext *uctx = NULL;
	int ret;

	if (attr->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!attr->attr.max_wr || attr->attr.max_wr > swp_params.max_srq_wr ||
	    attr->attr.max_sge > SWP_MAX_SGE ||
	    attr->attr.srq_limit > attr->attr.max_wr)
		return -EINVAL;
	if (udata) {
		if (udata->outlen < sizeof(resp))
			return -EINVAL;
		uctx = rdma_udata_to_drv_context(udata, struct swp_ucontext,
						 base);
	}
	ret = swp_count(dev, SWP_LIMIT_SRQ, udata, &srq->owner);
	if (ret)
		return ret;
	srq->dev = dev;
	srq->max_sge = max(attr->attr.max_sge, 1U);
	srq->limit = attr->attr.srq_limit;
	spin_lock_init(&srq->lock);
	mutex_init(&srq->resize_mutex);
	spin_lock_init(&srq->post_lock);
	ret = swp_ring_alloc(&srq->ring, attr->attr.max_wr,
			     rqe_stride(srq->max_sge), uctx);
	if (ret)
		goto err_count;
	attr->attr.max_wr = srq->ring.entries;
	attr->attr.max_sge = srq->max_sge;
	if (udata) {
		resp.ring_key = swp_ring_key(&srq->ring);
		resp.ring_bytes = srq->ring.bytes;
		resp.entries = srq->ring.entries;
		resp.stride = srq->ring.stride;
		ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
		if (ret)
			goto err_ring;
	}
	return 0;

err_ring:
	swp_ring_free(&srq->ring);
err_count:
	swp_uncount(dev, SWP_LIMIT_SRQ, srq->owner);
	return ret;
}

/* The core makes sure that no QP uses it any more. */
int swp_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);

	swp_ring_free(&srq->ring);
	swp_uncount(srq->dev, SWP_LIMIT_SRQ, srq->owner);
	return 0;
}

/*
 * Allocates a ring to replace that of the queue, and describes it to the
 * program: the command has no response, so write this where the program wants
 * it.
 */
static int alloc_other(struct swp_srq *srq, u32 max_wr, struct ib_udata *udata,
		       struct swp_ring *ring)
{
	struct swp_modify_srq_resp resp = {};
	struct swp_modify_srq_req req = {};
	struct swp_ucontext *uctx = NULL;
	int ret;

	if (!max_wr || max_wr > swp_params.max_srq_wr)
		return -EINVAL;
	if (udata) {
		/* an old provider would post to the old ring for ever */
		if (udata->inlen < sizeof(req))
			return -EOPNOTSUPP;
		ret = ib_copy_from_udata(&req, udata, sizeof(req));
		if (ret)
			return ret;
		uctx = rdma_udata_to_drv_context(udata, struct swp_ucontext,
						 base);
	}
	ret = swp_ring_alloc(ring, max_wr, rqe_stride(srq->max_sge), uctx);
	if (ret || !udata)
		return ret;
	resp.ring_key = swp_ring_key(ring);
	resp.ring_bytes = ring->bytes;
	resp.entries = ring->entries;
	/* do this first: a swap of the rings cannot be undone */
	if (copy_to_user(u64_to_user_ptr(req.resp_addr), &resp, sizeof(resp))) {
		swp_ring_free(ring);
		return -EFAULT;
	}
	return 0;
}

/* RQEs copied at a time with the locks held */
#define SWP_MOVE_RQES	64

/* Waiting requests keep their indices, so that both sides can continue. */
static void copy_rqes(const struct swp_srq *srq, struct swp_ring *to, u32 from,
		      u32 end)
{
	const struct swp_rqe *src;
	u32 num_sge;

	for (; from != end; from++) {
		src = swp_ring_slot(&srq->ring, from);
		num_sge = min(READ_ONCE(src->num_sge), srq->max_sge);
		memcpy(swp_ring_slot(to, from), src,
		       sizeof(*src) + num_sge * sizeof(struct swp_sge));
	}
}

/*
 * Copies the waiting requests that are not yet copied, [*from, prod), if these
 * are few, and swaps the rings.  srq->lock held; with a kernel consumer
 * post_lock, too.
 * Returns 0; -EINVAL: the new ring is too small for the waiting requests, or
 * prod is invalid; -EAGAIN: there are many, from *from on.
 */
static int try_move(struct swp_srq *srq, struct swp_ring *to, u32 *from,
		    u32 prod)
{
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(to);
	u32 num = prod - srq->cons;

	lockdep_assert_held(&srq->lock);
	if (srq->broken || num > srq->ring.entries || num > to->entries)
		return -EINVAL;
	/* skip requests that QPs have taken meanwhile */
	if ((s32)(srq->cons - *from) > 0)
		*from = srq->cons;
	if (prod - *from > SWP_MOVE_RQES)
		return -EAGAIN;
	copy_rqes(srq, to, *from, prod);
	ctrl->cons = srq->cons;
	/* pairs with the engine's acquire load of prod */
	smp_store_release(&ctrl->prod, prod);
	swap(srq->ring, *to);
	return 0;
}

static u32 posted(const struct swp_srq *srq)
{
	/* pairs with the poster's release of prod */
	return smp_load_acquire(&swp_ring_ctrl(&srq->ring)->prod);
}

/* As try_move(); a kernel consumer may post meanwhile, a program must not. */
static int change(struct swp_srq *srq, const struct ib_srq_attr *attr,
		  enum ib_srq_attr_mask mask, struct swp_ring *ring, u32 *from,
		  u32 prod)
{
	u32 limit = mask & IB_SRQ_LIMIT ? attr->srq_limit : srq->limit;
	int ret = 0;

	lockdep_assert_held(&srq->lock);
	if (limit > (ring->entries ? ring->entries : srq->ring.entries))
		return -EINVAL;
	if (ring->entries)
		ret = try_move(srq, ring, from,
			       srq->base.uobject ? prod : posted(srq));
	if (!ret)
		srq->limit = limit;
	return ret;
}

static int change_locked(struct swp_srq *srq, const struct ib_srq_attr *attr,
			 enum ib_srq_attr_mask mask, struct swp_ring *ring,
			 u32 *from, u32 prod)
{
	unsigned long flags;
	int ret;

	spin_lock_bh(&srq->lock);
	if (srq->base.uobject) {
		/* without post_lock: only this program posts */
		ret = change(srq, attr, mask, ring, from, prod);
	} else {
		spin_lock_irqsave(&srq->post_lock, flags);
		ret = change(srq, attr, mask, ring, from, prod);
		spin_unlock_irqrestore(&srq->post_lock, flags);
	}
	spin_unlock_bh(&srq->lock);
	return ret;
}

/*
 * Copies most of the waiting requests without the locks, in slices.  Reads a
 * program's prod only once; swp_rqe_fetch() checks the requests later.
 * resize_mutex held.
 */
static int resize(struct swp_srq *srq, const struct ib_srq_attr *attr,
		  enum ib_srq_attr_mask mask, struct swp_ring *ring)
{
	u32 prod = posted(srq), from = READ_ONCE(srq->cons), end, n;
	int ret;

	lockdep_assert_held(&srq->resize_mutex);
	for (;;) {
		ret = change_locked(srq, attr, mask, ring, &from, prod);
		if (ret != -EAGAIN)
			return ret;
		end = srq->base.uobject ? prod : posted(srq);
		while (from != end) {
			n = min_t(u32, end - from, 16 * SWP_MOVE_RQES);
			copy_rqes(srq, ring, from, from + n);
			from += n;
			cond_resched();
		}
	}
}

int swp_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		   enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);
	struct swp_ring ring = {};
	int ret;

	if (mask & ~(IB_SRQ_LIMIT | IB_SRQ_MAX_WR))
		return -EOPNOTSUPP;
	if (!(mask & IB_SRQ_MAX_WR))
		return change_locked(srq, attr, mask, &ring, NULL, 0);
	ret = alloc_other(srq, attr->max_wr, udata, &ring);
	if (ret)
		return ret;
	mutex_lock(&srq->resize_mutex);
	ret = resize(srq, attr, mask, &ring);
	mutex_unlock(&srq->resize_mutex);
	/* the ring that is not in use */
	swp_ring_free(&ring);
	return ret;
}

int swp_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);

	spin_lock_bh(&srq->lock);
	attr->max_wr = srq->ring.entries;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = srq->limit;
	spin_unlock_bh(&srq->lock);
	return 0;
}

int swp_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);
	unsigned long flags;
	int ret;

	if (ibsrq->uobject) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&srq->post_lock, flags);
	ret = swp_rqe_post(&srq->ring, srq->max_sge, wr, bad);
	spin_unlock_irqrestore(&srq->post_lock, flags);
	return ret;
}
