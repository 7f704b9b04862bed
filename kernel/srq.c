// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: one ring of receive requests for any number of QPs,
 * each of which takes the next one when a Send for it begins.
 */
#include <linux/slab.h>

#include "qp.h"
#include "verbs.h"

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

int swp_srq_take(struct swp_srq *srq, struct swp_rx *rx)
{
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(&srq->ring);
	bool low = false, broken = false;
	u32 left = 0;
	int ret;

	spin_lock_bh(&srq->lock);
	ret = swp_rqe_fetch(rx, &srq->ring, srq->cons, srq->max_sge, &left);
	if (rx->in_msg) {
		srq->cons++;
		/* pairs with the poster's acquire load of cons */
		smp_store_release(&ctrl->cons, srq->cons);
		low = srq->limit && left < srq->limit;
		if (low)
			srq->limit = 0;
	} else if (ret == -EINVAL && !srq->broken) {
		/* the count of what was posted is nonsense, for good */
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

int swp_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		   struct ib_udata *udata)
{
	struct swp_device *dev = to_swp_dev(ibsrq->device);
	struct swp_srq *srq = to_swp_srq(ibsrq);
	struct swp_create_srq_resp resp = {};
	struct swp_ucontext *uctx = NULL;
	u32 stride;
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
	if (atomic_inc_return(&dev->num_srq) > swp_params.max_srq) {
		swp_stat_inc(dev, LIMIT_HIT);
		ret = -ENOMEM;
		goto err_count;
	}
	srq->dev = dev;
	srq->max_sge = max(attr->attr.max_sge, 1U);
	srq->limit = attr->attr.srq_limit;
	spin_lock_init(&srq->lock);
	spin_lock_init(&srq->post_lock);
	stride = sizeof(struct swp_rqe) + srq->max_sge * sizeof(struct swp_sge);
	ret = swp_ring_alloc(&srq->ring, attr->attr.max_wr, stride, uctx);
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
	atomic_dec(&dev->num_srq);
	return ret;
}

/* The core has seen to it that no QP uses it any more. */
int swp_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);

	swp_ring_free(&srq->ring);
	atomic_dec(&srq->dev->num_srq);
	return 0;
}

int swp_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		   enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);
	int ret = 0;

	if (mask & ~IB_SRQ_LIMIT)
		return -EOPNOTSUPP;
	if (!(mask & IB_SRQ_LIMIT))
		return 0;
	spin_lock_bh(&srq->lock);
	if (attr->srq_limit > srq->ring.entries)
		ret = -EINVAL;
	else
		srq->limit = attr->srq_limit;
	spin_unlock_bh(&srq->lock);
	return ret;
}

int swp_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);

	attr->max_wr = srq->ring.entries;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = READ_ONCE(srq->limit);
	return 0;
}

int swp_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	struct swp_srq *srq = to_swp_srq(ibsrq);
	unsigned long flags;
	int ret;

	if (srq->ring.entry) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&srq->post_lock, flags);
	ret = swp_rqe_post(&srq->ring, srq->max_sge, wr, bad);
	spin_unlock_irqrestore(&srq->post_lock, flags);
	return ret;
}
