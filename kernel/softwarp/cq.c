// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: rings that the kernel fills and their owner empties: a
 * program through its mapping, without a system call, or a kernel consumer
 * through poll_cq.
 */
#include <linux/ktime.h>

#include "cq.h"
#include "device.h"
#include "qp.h"
#include "trace.h"

/*
 * A kernel consumer that polls by itself may do so in hard interrupts.  But the
 * core polls its CQs in softirq or in a work item, and programs do not enter
 * the kernel to poll.  For these do not disable interrupts, which is expensive
 * on some machines.
 */
static bool no_interrupts(const struct swp_cq *cq)
{
	return cq->ring.entry || cq->prompt || swp_cq_is_cores(cq);
}

static unsigned long cq_lock(struct swp_cq *cq) __acquires(&cq->lock)
{
	unsigned long flags = 0;

	if (no_interrupts(cq))
		spin_lock_bh(&cq->lock);
	else
		spin_lock_irqsave(&cq->lock, flags);
	return flags;
}

static void cq_unlock(struct swp_cq *cq, unsigned long flags)
	__releases(&cq->lock)
{
	if (no_interrupts(cq))
		spin_unlock_bh(&cq->lock);
	else
		spin_unlock_irqrestore(&cq->lock, flags);
}

/*
 * Disarms the CQ to raise the event now.  cq->lock held.  Returns bits for
 * swp_cq_notify().
 */
static int fire(struct swp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	cq->held = 0;
	if (cq->ring.entry)
		WRITE_ONCE(swp_ring_ctrl(&cq->ring)->arm, SWP_ARM_NONE);
	else
		cq->arm = SWP_ARM_NONE;
	return SWP_CQ_NOTIFY;
}

/*
 * Raises the event of a completion now or, with moderation, together with
 * others.  The CQ stays armed until then: the program may poll and arm again
 * meanwhile.  Completions that it has polled still count, so no event is lost.
 * cq->lock held.
 */
static int hold_or_fire(struct swp_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	if (!cq->mod_count || ++cq->held >= cq->mod_count)
		return fire(cq);
	/* restarts the timer, which may still run for an earlier event */
	if (cq->held == 1)
		hrtimer_start(&cq->mod_timer,
			      ns_to_ktime(cq->mod_period * NSEC_PER_USEC),
			      HRTIMER_MODE_REL_SOFT);
	return 0;
}

static enum hrtimer_restart mod_expired(struct hrtimer *t)
{
	struct swp_cq *cq = container_of(t, struct swp_cq, mod_timer);
	unsigned long flags;
	int bits = 0;

	flags = cq_lock(cq);
	if (cq->held)
		bits = fire(cq);
	cq_unlock(cq, flags);
	swp_cq_notify(cq, bits);
	return HRTIMER_NORESTART;
}

/* As with other devices, a period or a count of 0 means no moderation. */
int swp_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct swp_cq *cq = to_swp_cq(ibcq);
	unsigned long flags;
	int bits = 0;

	flags = cq_lock(cq);
	cq->mod_count = period ? count : 0;
	cq->mod_period = period;
	if (cq->held)
		bits = fire(cq);
	cq_unlock(cq, flags);
	swp_cq_notify(cq, bits);
	return 0;
}

/*
 * A kernel consumer destroys its QPs, then stops what its handler has started,
 * then destroys the CQ.  So no event may follow the destruction of the QPs,
 * which calls this.
 */
void swp_cq_settle(struct swp_cq *cq)
{
	unsigned long flags;
	int bits = 0;

	hrtimer_cancel(&cq->mod_timer);
	flags = cq_lock(cq);
	if (cq->held)
		bits = fire(cq);
	cq_unlock(cq, flags);
	swp_cq_notify(cq, bits);
}

/*
 * swp_cq_push - append a completion.
 * Any context.  Returns bits for swp_cq_notify(), to be called without any lock
 * that a completion handler may need.
 */
int swp_cq_push(struct swp_cq *cq, struct swp_cqe *cqe)
{
	struct swp_ring_ctrl *ctrl;
	unsigned long flags;
	struct swp_cqe *dst;
	u32 arm, cons;
	int bits = 0;

	trace_swp_cqe(cq->id, cqe->qp_num, cqe->wr_id, cqe->opcode, cqe->status,
		      cqe->byte_len, cqe->vendor_err);
	flags = cq_lock(cq);
	ctrl = swp_ring_ctrl(&cq->ring);
	/* pairs with the poller's release of cons: it has read the slot */
	cons = cq->ring.entry ? smp_load_acquire(&ctrl->cons) : cq->cons;
	/* a wrong cons of a hostile owner counts as an overflow */
	if (cq->overflow || cq->prod - cons >= cq->ring.entries) {
		if (!cq->overflow) {
			cq->overflow = true;
			bits |= SWP_CQ_OVERFLOW;
		}
		goto out;
	}
	dst = swp_ring_slot(&cq->ring, cq->prod);
	if (cq->timestamps)
		cqe->timestamp = ktime_get_ns();
	/*
	 * Store gen last: until then the slot keeps the generation of the lap
	 * before.  Any other value, even 0, is valid in some lap.
	 */
	memcpy(dst, cqe, offsetof(struct swp_cqe, gen));
	dst->timestamp = cqe->timestamp;
	memcpy(dst->reserved2, cqe->reserved2, sizeof(dst->reserved2));
	/* pairs with the poller's acquire load of gen */
	smp_store_release(&dst->gen, (u16)(cq->prod / cq->ring.entries + 1));
	cq->prod++;

	/* pairs with the provider's barrier between arming and polling */
	smp_mb();
	arm = cq->ring.entry ? READ_ONCE(ctrl->arm) : cq->arm;
	if (arm == SWP_ARM_NEXT ||
	    (arm == SWP_ARM_SOLICITED &&
	     ((cqe->flags & SWP_CQE_SOLICITED) || cqe->status)))
		bits |= hold_or_fire(cq);
out:
	cq_unlock(cq, flags);
	return bits;
}

void swp_cq_notify(struct swp_cq *cq, int bits)
{
	struct ib_event ev;

	if ((bits & SWP_CQ_NOTIFY) && cq->base.comp_handler) {
		/* a softirq raised by it runs here, not in ksoftirqd */
		bool process = !cq->ring.entry && !irqs_disabled();

		if (process)
			local_bh_disable();
		cq->base.comp_handler(&cq->base, cq->base.cq_context);
		if (process)
			local_bh_enable();
	}
	if (bits & SWP_CQ_OVERFLOW) {
		swp_stat_inc(to_swp_dev(cq->base.device), CQ_OVERFLOW);
		if (cq->base.event_handler) {
			ev.device = cq->base.device;
			ev.event = IB_EVENT_CQ_ERR;
			ev.element.cq = &cq->base;
			cq->base.event_handler(&ev, cq->base.cq_context);
		}
	}
}

static enum ib_wc_opcode wc_opcode(u8 op)
{
	switch (op) {
	case SWP_OP_WRITE:
	case SWP_OP_WRITE_IMM:
		return IB_WC_RDMA_WRITE;
	case SWP_OP_READ:
	case SWP_OP_READ_INV:
		return IB_WC_RDMA_READ;
	case SWP_OP_RECV:
		return IB_WC_RECV;
	case SWP_OP_RECV_IMM:
		return IB_WC_RECV_RDMA_WITH_IMM;
	case SWP_OP_FETCH_ADD:
		return IB_WC_FETCH_ADD;
	case SWP_OP_CMP_SWAP:
		return IB_WC_COMP_SWAP;
	case SWP_OP_REG_MR:
		return IB_WC_REG_MR;
	case SWP_OP_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	default:
		return IB_WC_SEND;
	}
}

/* Kernel consumers only; programs read the ring themselves. */
int swp_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct swp_cq *cq = to_swp_cq(ibcq);
	const struct swp_cqe *cqe;
	unsigned long flags;
	struct swp_qp *qp;
	int n = 0;

	if (cq->spinner) {
		swp_spinner_serve(cq->spinner);
		return 0;
	}
	flags = cq_lock(cq);
	while (n < num && cq->cons != cq->prod) {
		cqe = swp_ring_slot(&cq->ring, cq->cons);
		cq->cons++;
		/* drop completions of a QP that has been destroyed */
		qp = xa_load(&to_swp_dev(ibcq->device)->qps, cqe->qp_num);
		if (!qp)
			continue;
		memset(wc, 0, sizeof(*wc));
		wc->wr_id = cqe->wr_id;
		wc->status = cqe->status;
		wc->opcode = wc_opcode(cqe->opcode);
		wc->vendor_err = cqe->vendor_err;
		wc->byte_len = cqe->byte_len;
		wc->qp = &qp->base;
		wc->port_num = 1;
		if (cqe->flags & SWP_CQE_WITH_INV) {
			wc->wc_flags |= IB_WC_WITH_INVALIDATE;
			wc->ex.invalidate_rkey = cqe->imm_inv;
		}
		if (cqe->flags & SWP_CQE_WITH_IMM) {
			wc->wc_flags |= IB_WC_WITH_IMM;
			wc->ex.imm_data = (__force __be32)cqe->imm_inv;
		}
		wc++;
		n++;
	}
	cq_unlock(cq, flags);
	return n;
}

int swp_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct swp_cq *cq = to_swp_cq(ibcq);
	unsigned long irq;
	u32 arm = SWP_ARM_NEXT;
	int ret = 0;

	if ((flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED)
		arm = SWP_ARM_SOLICITED;
	irq = cq_lock(cq);
	if (cq->ring.entry)
		WRITE_ONCE(swp_ring_ctrl(&cq->ring)->arm, arm);
	else
		cq->arm = max(cq->arm, arm);
	if ((flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->cons != cq->prod)
		ret = 1;
	cq_unlock(cq, irq);
	return ret;
}

int swp_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		  struct ib_udata *udata)
{
	struct swp_device *dev = to_swp_dev(ibcq->device);
	struct swp_cq *cq = to_swp_cq(ibcq);
	struct swp_ucontext *uctx = NULL;
	struct swp_create_cq_resp resp = {};
	int ret;

	if (attr->flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > swp_params.max_cqe)
		return -EINVAL;
	if (attr->comp_vector >= ibcq->device->num_comp_vectors)
		return -EINVAL;
	if (udata) {
		if (udata->outlen < sizeof(resp))
			return -EINVAL;
		uctx = rdma_udata_to_drv_context(udata, struct swp_ucontext,
						 base);
		cq->spinner = &uctx->spinner;
	}
	ret = swp_count(dev, SWP_LIMIT_CQ, udata, &cq->owner);
	if (ret)
		return ret;
	spin_lock_init(&cq->lock);
	mutex_init(&cq->resize_mutex);
	swp_hrtimer_setup_soft(&cq->mod_timer, mod_expired);
	cq->id = atomic_inc_return(&dev->next_cq_id);
	cq->timestamps = attr->flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	ret = swp_ring_alloc(&cq->ring, attr->cqe, sizeof(struct swp_cqe), uctx);
	if (ret)
		goto err_count;
	/*
	 * Grant exactly the entries of the ring: a program that fills its CQ
	 * completely must not overflow it; with one more completion it must.
	 */
	cq->base.cqe = cq->ring.entries;
	if (udata) {
		resp.ring_key = swp_ring_key(&cq->ring);
		resp.ring_bytes = cq->ring.bytes;
		resp.entries = cq->ring.entries;
		resp.cq_id = cq->id;
		ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
		if (ret)
			goto err_ring;
	}
	return 0;

err_ring:
	swp_ring_free(&cq->ring);
err_count:
	swp_uncount(dev, SWP_LIMIT_CQ, cq->owner);
	return ret;
}

/* CQEs copied at a time with the lock held and softirqs off */
#define SWP_MOVE_CQES	64

/* The program must not poll or arm meanwhile; if it does, it reads garbage. */
static void copy_cqes(const struct swp_cq *cq, struct swp_ring *to, u32 cons,
		      u32 from, u32 num)
{
	struct swp_cqe *dst;
	u32 i;

	lockdep_assert_held(&cq->resize_mutex);
	for (i = from; i != num; i++) {
		dst = swp_ring_slot(to, i);
		memcpy(dst, swp_ring_slot(&cq->ring, cons + i), sizeof(*dst));
		dst->gen = 1;
	}
}

/*
 * Copies the waiting CQEs from number @from on, if these are few, and swaps the
 * rings.  cq->lock held.
 * Returns 0; -EBUSY: the new ring is too small for the waiting CQEs, or the CQ
 * has overflowed; else the number of waiting CQEs.
 */
static int try_move(struct swp_cq *cq, struct swp_ring *to, u32 cons, u32 from)
{
	u32 num = cq->prod - cons;

	lockdep_assert_held(&cq->lock);
	if (cq->overflow || num > cq->ring.entries || num > to->entries)
		return -EBUSY;
	if (num - from > SWP_MOVE_CQES)
		return num;
	copy_cqes(cq, to, cons, from, num);
	swp_ring_ctrl(to)->arm = READ_ONCE(swp_ring_ctrl(&cq->ring)->arm);
	cq->prod = num;
	swap(cq->ring, *to);
	cq->base.cqe = cq->ring.entries;
	return 0;
}

/*
 * There may be millions of CQEs, so copy most of them without the lock; new
 * ones follow behind them.  They cannot be more than the ring holds, as nothing
 * is consumed.  resize_mutex held.
 */
static int move_cqes(struct swp_cq *cq, struct swp_ring *to)
{
	u32 cons = READ_ONCE(swp_ring_ctrl(&cq->ring)->cons);
	u32 n, copied = 0;
	int ret;

	lockdep_assert_held(&cq->resize_mutex);
	for (;;) {
		spin_lock_bh(&cq->lock);
		ret = try_move(cq, to, cons, copied);
		spin_unlock_bh(&cq->lock);
		if (ret <= 0)
			return ret;
		while (copied != ret) {
			n = min_t(u32, ret - copied, 16 * SWP_MOVE_CQES);
			copy_cqes(cq, to, cons, copied, copied + n);
			copied += n;
			cond_resched();
		}
	}
}

int swp_resize_cq(struct ib_cq *ibcq, unsigned int cqe, struct ib_udata *udata)
{
	struct swp_cq *cq = to_swp_cq(ibcq);
	struct swp_resize_cq_resp resp = {};
	struct swp_ucontext *uctx;
	struct swp_ring ring;
	int ret;

	if (!udata || !cq->ring.entry)
		return -EOPNOTSUPP;
	if (!cqe || cqe > swp_params.max_cqe || udata->outlen < sizeof(resp))
		return -EINVAL;
	uctx = rdma_udata_to_drv_context(udata, struct swp_ucontext, base);
	ret = swp_ring_alloc(&ring, cqe, sizeof(struct swp_cqe), uctx);
	if (ret)
		return ret;
	resp.ring_key = swp_ring_key(&ring);
	resp.ring_bytes = ring.bytes;
	resp.entries = ring.entries;
	/* do this first: a swap of the rings cannot be undone */
	ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (!ret) {
		mutex_lock(&cq->resize_mutex);
		ret = move_cqes(cq, &ring);
		mutex_unlock(&cq->resize_mutex);
	}
	swp_ring_free(&ring);
	return ret;
}

int swp_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct swp_cq *cq = to_swp_cq(ibcq);

	hrtimer_cancel(&cq->mod_timer);
	swp_ring_free(&cq->ring);
	swp_uncount(to_swp_dev(ibcq->device), SWP_LIMIT_CQ, cq->owner);
	return 0;
}
