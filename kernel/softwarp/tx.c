// SPDX-License-Identifier: GPL-2.0
/*
 * The transmit engine: takes requests from the send queue and read responses
 * from the inbound read queue, cuts them into FPDUs, and gives TCP in one call
 * as many of them as make one full GSO packet.
 *
 * It runs with the socket lock held, in the context that has work for it: the
 * poster's system call, the softirq that received an ACK or a Read Request, or
 * a work item.  While it runs, posters need not ring the doorbell.
 *
 * Alignment (RFC 5044 section 5): TCP cuts a GSO packet every MSS octets from
 * its start.  So the engine determines where in an skb its batch starts, and
 * chooses DDP segment sizes so that FPDUs begin at those cuts; see swp_cut().
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/skbuff.h>

#include "crc.h"
#include "frags.h"
#include "reads.h"
#include "trace.h"
#include "proto/mpa.h"

/* Most SGEs of a request that is sent by reference */
#define SWP_ZCOPY_SGE	4

/*
 * Budget charged per message in addition to its octets: a small message, or a
 * request that sends nothing, is work, too.
 */
#define SWP_TX_MSG_COST	256
/*
 * The same past TCP, where octets are copied so fast that a request takes as long
 * as some 2,000 of them, and each SGE as some 900.
 */
#define SWP_NEAR_MSG_COST	2048
#define SWP_NEAR_SGE_COST	1024
/* Octets of an FPDU that may be no answer, but give credit for more */
#define SWP_TX_CREDIT	64

/* Batch building ---------------------------------------------------------- */

/* Keep a page of the current batch until TCP has its own reference. */
static bool hold_page(struct swp_tx *tx, struct page *page)
{
	struct page **hold = tx->batch->hold;

	if (tx->nhold && hold[tx->nhold - 1] == page)
		return true;
	if (WARN_ON_ONCE(tx->nhold == SWP_TX_HOLD))
		return false;
	get_page(page);
	hold[tx->nhold++] = page;
	return true;
}

static void drop_holds(struct swp_tx *tx)
{
	while (tx->nhold)
		put_page(tx->batch->hold[--tx->nhold]);
}

/* Adds [off, off + len) of @page, which may be the head of a compound page. */
static bool add_bvec(struct swp_tx *tx, struct page *page, u32 off, u32 len)
{
	struct bio_vec *bv = &tx->batch->bv[tx->nbv];
	u32 first, last;

	page += off >> PAGE_SHIFT;
	off &= ~PAGE_MASK;
	if (tx->nbv) {
		bv--;
		first = bv->bv_offset + bv->bv_len;
		if (bv->bv_page + (first >> PAGE_SHIFT) == page &&
		    (first & ~PAGE_MASK) == off) {
			last = (first + len - 1) >> PAGE_SHIFT;
			tx->pieces += last - ((first - 1) >> PAGE_SHIFT);
			bv->bv_len += len;
			goto added;
		}
		bv++;
	}
	if (tx->nbv == SWP_TX_BVECS)
		return false;
	tx->nbv++;
	bvec_set_page(bv, page, len, off);
	tx->pieces += ((off + len - 1) >> PAGE_SHIFT) + 1;
added:
	tx->bytes += len;
	return true;
}

/*
 * The engines copy into pages that belong to the CPU.  A QP has one only while
 * its engine runs; otherwise each idle QP would keep 32 KiB.
 */
static SWP_DEFINE_FRAGS(filled);

/*
 * Have room in the engine's page.  If it is full, hold_page() has a reference to
 * it, too.
 */
static bool refill_frag(struct page_frag *f)
{
	return swp_frags_room(&filled, f, 1) ||
	       skb_page_frag_refill(1, f, GFP_ATOMIC);
}

/* One that no engine of this CPU uses at present, or NULL */
struct spare_batch {
	local_lock_t lock;
	struct swp_tx_batch *batch;
};

static DEFINE_PER_CPU(struct spare_batch, spare) = {
	.lock = INIT_LOCAL_LOCK(lock)
};

static struct swp_tx_batch *swap_spare(struct swp_tx_batch *batch)
{
	local_bh_disable();
	local_lock_nested_bh(&spare.lock);
	swap(*this_cpu_ptr(&spare.batch), batch);
	local_unlock_nested_bh(&spare.lock);
	local_bh_enable();
	return batch;
}

/* Any context but hard interrupts.  False: there is no memory. */
static bool take_batch(struct swp_tx *tx)
{
	tx->batch = swap_spare(NULL);
	if (!tx->batch)
		tx->batch = kmalloc(sizeof(*tx->batch),
				    GFP_ATOMIC | __GFP_NOWARN);
	return tx->batch;
}

static void give_batch(struct swp_tx *tx)
{
	kfree(swap_spare(tx->batch));
	tx->batch = NULL;
}

void swp_tx_exit(void)
{
	int cpu;

	swp_frags_free(&filled);
	for_each_possible_cpu(cpu)
		kfree(per_cpu(spare, cpu).batch);
}

/* Copies @src into the engine's own pages and adds these to the batch. */
static bool add_octets(struct swp_qp *qp, const void *src, u32 len, bool crc)
{
	struct swp_tx *tx = &qp->tx;
	struct page_frag *f = &tx->frag;

	crc = crc && tx->with_crc;
	if (!f->page)
		swp_frags_take(&filled, f);
	while (len) {
		void *dst;
		u32 n;

		if (!refill_frag(f))
			return false;
		n = min(len, f->size - f->offset);
		if (!hold_page(tx, f->page) ||
		    !add_bvec(tx, f->page, f->offset, n))
			return false;
		dst = page_address(f->page) + f->offset;
		if (crc)
			tx->crc = swp_crc32c_copy(tx->crc, dst, src, n);
		else
			memcpy(dst, src, n);
		f->offset += n;
		src += n;
		len -= n;
	}
	return true;
}

static bool add_marker(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	u16 ptr = swp_fpduptr(tx->stream, tx->head);
	const u8 marker[SWP_MARKER_LEN] = { 0, 0, ptr >> 8, ptr };

	tx->stream += SWP_MARKER_LEN;
	return add_octets(qp, marker, SWP_MARKER_LEN, true);
}

/* The same, with a marker before each octet where one is due. */
static noinline bool add_marked(struct swp_qp *qp, const void *src, u32 len,
				bool crc)
{
	struct swp_tx *tx = &qp->tx;

	while (len) {
		u32 n = swp_marker_gap(tx->stream);

		if (!n) {
			if (!add_marker(qp))
				return false;
			continue;
		}
		n = min(n, len);
		if (!add_octets(qp, src, n, crc))
			return false;
		tx->stream += n;
		src += n;
		len -= n;
	}
	return true;
}

/* Octets of an FPDU */
static bool add_copy(struct swp_qp *qp, const void *src, u32 len, bool crc)
{
	if (unlikely(qp->sp.tx_markers))
		return add_marked(qp, src, len, crc);
	return add_octets(qp, src, len, crc);
}

/*
 * Have a region stay as it is until the batch has gone past TCP.  False: the batch
 * has as many as it can have, and goes first.
 */
static bool hold_region(struct swp_tx *tx, struct swp_mr *mr)
{
	struct swp_mr **regions = tx->batch->regions;
	u32 i;

	for (i = 0; i < tx->nregions; i++)
		if (regions[i] == mr)
			return true;
	if (tx->nregions == SWP_NEAR_REGIONS)
		return false;
	swp_mr_get_again(mr);
	regions[tx->nregions++] = mr;
	return true;
}

static void drop_regions(struct swp_tx *tx)
{
	while (tx->nregions)
		swp_mr_put(tx->batch->regions[--tx->nregions]);
}

static bool add_payload_mr(struct swp_qp *qp, struct swp_mr *mr, u64 addr,
			   u32 len)
{
	struct swp_tx *tx = &qp->tx;
	/* a window's reference must not be kept, see invalidate() */
	bool refs = tx->refs && mr->kind == SWP_MR_USER;

	if (refs && tx->near && !hold_region(tx, mr))
		return false;
	while (len) {
		struct page *page;
		u32 off, n = len;

		page = swp_mr_page(mr, addr, &off, &n);
		if (refs) {
			if (tx->with_crc)
				tx->crc = swp_crc32c(tx->crc,
						     page_address(page) + off,
						     n);
			if ((!tx->near && !hold_page(tx, page)) ||
			    !add_bvec(tx, page, off, n))
				return false;
		} else if (!add_copy(qp, page_address(page) + off, n, true)) {
			return false;
		}
		addr += n;
		len -= n;
	}
	return true;
}

/* Messages ---------------------------------------------------------------- */

static struct swp_sge *tx_sge(struct swp_tx *tx)
{
	return (struct swp_sge *)(tx->sqe + 1);
}

static void local_error(struct swp_qp *qp, u8 status)
{
	struct swp_slot *s = &qp->slots[(qp->sq_tx - 1) & qp->sq.mask];

	swp_qp_assert_owned(qp);
	if (qp->tx.kind != SWP_TX_RRESP) {
		s->status = status;
		s->vendor_err = swp_fault_vendor_err(SWP_FAULT_RDMAP_LOCAL);
	}
	qp->tx.kind = SWP_TX_NONE;
	swp_qp_fail(qp, SWP_FAULT_RDMAP_LOCAL, NULL, 0, 0, NULL);
}

static bool is_atomic(u8 op)
{
	return op == SWP_OP_FETCH_ADD || op == SWP_OP_CMP_SWAP;
}

/* Does the peer answer it?  Until then it is in the outbound read queue. */
static bool is_read(u8 op)
{
	return op == SWP_OP_READ || op == SWP_OP_READ_INV || is_atomic(op);
}

/* RFC 7306, allowed by the device's policy: MPA does not negotiate it */
static bool is_extension(u8 op)
{
	return is_atomic(op) || op == SWP_OP_WRITE_IMM || op == SWP_OP_SEND_IMM;
}

/*
 * Copies one SQE from memory that its owner can change at any time, then checks
 * the copy.  Returns 0, or the completion status with which it fails.
 */
static int fetch_sqe(struct swp_qp *qp, u32 idx)
{
	const void *src = swp_ring_slot(&qp->sq, idx);
	struct swp_tx *tx = &qp->tx;
	struct swp_sge *sge = tx_sge(tx);
	struct swp_sqe *e = tx->sqe;
	u64 total = 0;
	u32 i;

	memcpy(e, src, sizeof(*e));
	barrier();	/* check and use only the copy */
	if (e->flags & ~(SWP_WQE_SIGNALED | SWP_WQE_SOLICITED |
			 SWP_WQE_INLINE | SWP_WQE_FENCE))
		return IB_WC_LOC_QP_OP_ERR;
	if (qp->user && e->opcode > SWP_OP_USER_MAX)
		return IB_WC_LOC_QP_OP_ERR;
	if (is_extension(e->opcode) && !(qp->sp.accept & SWP_ACCEPT_EXT))
		return IB_WC_LOC_QP_OP_ERR;
	if (e->flags & SWP_WQE_INLINE) {
		if (is_read(e->opcode) || e->num_sge ||
		    e->inline_len > qp->max_inline)
			return IB_WC_LOC_QP_OP_ERR;
		memcpy(sge, src + sizeof(*e), e->inline_len);
		tx->len = e->inline_len;
		return 0;
	}
	if (e->num_sge > qp->max_send_sge)
		return IB_WC_LOC_QP_OP_ERR;
	if (e->opcode == SWP_OP_BIND_MW || e->opcode == SWP_OP_LOCAL_INV) {
		if (e->num_sge)
			return IB_WC_LOC_QP_OP_ERR;
		memcpy(sge, src + sizeof(*e), sizeof(struct swp_bind));
		barrier();	/* as above */
		tx->len = 0;
		return 0;
	}
	if (is_atomic(e->opcode)) {
		if (e->num_sge != 1)
			return IB_WC_LOC_QP_OP_ERR;
		memcpy(sge, src + sizeof(*e),
		       sizeof(*sge) + sizeof(struct swp_operands));
		barrier();	/* as above */
		if (sge->length != sizeof(u64))
			return IB_WC_LOC_LEN_ERR;
		tx->len = sizeof(u64);
		return 0;
	}
	memcpy(sge, src + sizeof(*e), e->num_sge * sizeof(*sge));
	barrier();
	for (i = 0; i < e->num_sge; i++)
		total += sge[i].length;
	if (total > SWP_MAX_MSG || (total && e->opcode == SWP_OP_SEND_IMM))
		return IB_WC_LOC_LEN_ERR;
	tx->len = total;
	return 0;
}

/* Checks all SGEs of a read, or of a message of several FPDUs, in advance. */
static bool sges_ok(struct swp_qp *qp, int access)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_sge *sge = tx_sge(tx);
	struct swp_mr *mr;
	u32 i;

	for (i = 0; i < tx->sqe->num_sge; i++) {
		if (!sge[i].length)
			continue;
		mr = swp_sge_get(qp, &sge[i], 0, sge[i].length, access);
		if (IS_ERR(mr))
			return false;
		swp_sge_put(qp, mr);
	}
	return true;
}

static void atomic_request(struct swp_tx *tx, u32 id)
{
	const struct swp_operands *ops =
		(struct swp_operands *)(tx_sge(tx) + 1);
	bool cas = tx->sqe->opcode == SWP_OP_CMP_SWAP;
	struct swp_atomic a = {
		.op = cas ? SWP_ATOMIC_CMP_SWAP : SWP_ATOMIC_FETCH_ADD,
		.id = id,
		.stag = tx->sqe->rkey,
		.to = tx->sqe->remote_addr,
		.data = ops->data,
		/* CmpSwap: exchange all bits; FetchAdd: one field of 64 bits */
		.mask = cas ? ~0ULL : 0,
		.compare = ops->compare,
		.compare_mask = ~0ULL,
	};

	swp_untagged_encode(tx->ctrl, SWP_RDMAP_ATOMIC_REQ, true, 0,
			    SWP_QN_READ_REQ, tx->rreq_msn++, 0);
	swp_atomic_encode(tx->ctrl + SWP_UNTAGGED_LEN, &a);
	tx->ctrl_len = SWP_UNTAGGED_LEN + SWP_ATOMIC_REQ_LEN;
}

static bool start_read(struct swp_qp *qp, struct swp_slot *s)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_oread *o = swp_oread(qp, qp->oread_prod);
	struct swp_sge *sge = tx_sge(tx);
	struct swp_rreq r;

	swp_qp_assert_owned(qp);
	if (!sges_ok(qp, IB_ACCESS_LOCAL_WRITE))
		return false;
	o->atomic = is_atomic(tx->sqe->opcode);
	o->slot = qp->sq_tx - 1;
	o->size = tx->len;
	o->done = 0;
	o->inv = tx->sqe->opcode == SWP_OP_READ_INV;
	o->inv_stag = tx->sqe->imm_inv;
	o->num_sge = tx->sqe->num_sge;
	o->sge_i = 0;
	o->sge_off = 0;
	memcpy(swp_oread_sge(o), sge, o->num_sge * sizeof(*sge));
	/*
	 * The response is placed by this record, whatever STag it carries.  So
	 * a sink may have many SGEs and needs no remote right: the STag on the
	 * wire is that of the first SGE, and is only compared.
	 */
	o->sink_stag = o->num_sge ? sge[0].lkey : 0;
	o->sink_to = o->num_sge ? sge[0].addr : 0;
	qp->oread_prod++;
	s->state = SWP_SLOT_WAIT_RESP;
	tx->kind = SWP_TX_CTRL;
	if (o->atomic) {
		atomic_request(tx, o->slot);
		return true;
	}

	r.sink_stag = o->sink_stag;
	r.sink_to = o->sink_to;
	r.size = o->size;
	r.src_stag = tx->sqe->rkey;
	r.src_to = tx->sqe->remote_addr;
	swp_untagged_encode(tx->ctrl, SWP_RDMAP_READ_REQ, true, 0,
			    SWP_QN_READ_REQ, tx->rreq_msn++, 0);
	swp_rreq_encode(tx->ctrl + SWP_UNTAGGED_LEN, &r);
	tx->ctrl_len = SWP_UNTAGGED_LEN + SWP_READ_REQ_LEN;
	return true;
}

/* Makes the current message an Immediate Data one, RFC 7306 section 6. */
static void immediate(struct swp_tx *tx)
{
	u8 *data = (u8 *)tx_sge(tx);

	/* the verbs have four octets of it */
	memset(data, 0, SWP_IMM_LEN);
	memcpy(data, &tx->sqe->imm_inv, sizeof(tx->sqe->imm_inv));
	if (tx->sqe->opcode == SWP_OP_SEND_IMM)
		data[SWP_IMM_LEN - 1] = SWP_IMM_ALONE;
	tx->opcode = tx->sqe->flags & SWP_WQE_SOLICITED ? SWP_RDMAP_IMM_SE :
							 SWP_RDMAP_IMM;
	tx->hdr_len = SWP_UNTAGGED_LEN;
	tx->stag = 0;
	tx->msn = tx->send_msn++;
	tx->imm_next = false;
	tx->inlined = true;
	tx->by_ref = false;
	tx->len = SWP_IMM_LEN;
	tx->off = 0;
}

static u8 send_opcode(const struct swp_sqe *e)
{
	bool se = e->flags & SWP_WQE_SOLICITED;

	if (e->opcode == SWP_OP_SEND_INV)
		return se ? SWP_RDMAP_SEND_SE_INV : SWP_RDMAP_SEND_INV;
	return se ? SWP_RDMAP_SEND_SE : SWP_RDMAP_SEND;
}

/* Runs a request that only changes an STag.  Returns a completion status. */
static int run_local(struct swp_qp *qp)
{
	const struct swp_sqe *e = qp->tx.sqe;

	swp_qp_assert_owned(qp);
	switch (e->opcode) {
	case SWP_OP_REG_MR:
		return swp_mr_fast_reg(qp, e->rkey, e->remote_addr) ?
		       IB_WC_MW_BIND_ERR : 0;
	case SWP_OP_LOCAL_INV:
		return swp_mr_local_inv(qp, e->imm_inv) ?
		       IB_WC_LOC_QP_OP_ERR : 0;
	case SWP_OP_BIND_MW:
		return swp_mw_bind(qp, e->rkey,
				   (struct swp_bind *)tx_sge(&qp->tx)) ?
		       IB_WC_MW_BIND_ERR : 0;
	default:
		swp_qp_stat_inc(qp, WQE_INVALID);
		return IB_WC_LOC_QP_OP_ERR;
	}
}

static void local_done(struct swp_qp *qp, struct swp_slot *s)
{
	swp_qp_assert_owned(qp);
	qp->tx.kind = SWP_TX_NONE;
	s->state = SWP_SLOT_DONE;
	/* batch_done() must not see this slot after its reuse */
	if (qp->sq_acked == qp->sq_tx - 1)
		qp->sq_acked++;
	swp_sq_complete(qp);
}

/*
 * Are there requests that the engine has not taken?
 * @prod: set to the ring's prod; a program can store any value there
 */
static bool sq_posted(const struct swp_qp *qp, u32 *prod)
{
	if (!qp->sq.entries)
		return false;
	/* pairs with the poster's release of prod */
	*prod = smp_load_acquire(&swp_ring_ctrl(&qp->sq)->prod);
	return *prod != qp->sq_tx;
}

/*
 * Must the request at the head of the queue wait for the peer?  Not a final
 * check: the program may change the request before it is copied.
 */
static bool must_wait(struct swp_qp *qp)
{
	const struct swp_sqe *e = swp_ring_slot(&qp->sq, qp->sq_tx);
	u8 op = READ_ONCE(e->opcode);
	u8 flags = READ_ONCE(e->flags);

	if ((flags & SWP_WQE_FENCE) && qp->oread_prod != qp->oread_cons)
		return true;
	/* with an ORD of 0 a read would wait for ever: start_sqe() fails it */
	return is_read(op) && qp->sp.ord &&
	       !swp_oread_room(qp, READ_ONCE(e->num_sge));
}

/*
 * Makes the request at the head of the queue the current message, with a slot
 * for its completion.  Returns 0, or the completion status with which it fails.
 */
static int take_sqe(struct swp_qp *qp, struct swp_slot **slot)
{
	struct swp_tx *tx = &qp->tx;
	int status = fetch_sqe(qp, qp->sq_tx);
	struct swp_slot *s = &qp->slots[qp->sq_tx & qp->sq.mask];

	*s = (struct swp_slot){
		.wr_id = tx->sqe->wr_id,
		.byte_len = tx->len,
		/* an invalid opcode has no completion opcode */
		.opcode = status ? SWP_OP_SEND : tx->sqe->opcode,
		.flags = tx->sqe->flags,
	};
	*slot = s;
	qp->sq_tx++;
	swp_qp_stat_inc(qp, TX_REQUESTS);
	trace_swp_wqe(qp->qpn, s->wr_id, s->opcode, s->flags, s->byte_len);
	tx->kind = SWP_TX_SQE;
	tx->off = 0;
	tx->sge_i = 0;
	tx->sge_off = 0;
	tx->inlined = tx->sqe->flags & SWP_WQE_INLINE;
	tx->num_sge = tx->sqe->num_sge;
	tx->by_ref = false;
	tx->imm_next = false;
	if (status)
		swp_qp_stat_inc(qp, WQE_INVALID);
	return status;
}

/* Sets the header fields of a Write or of a message of the Send family. */
static void start_data(struct swp_tx *tx, struct swp_slot *s)
{
	switch (tx->sqe->opcode) {
	case SWP_OP_WRITE:
	case SWP_OP_WRITE_IMM:
		tx->imm_next = tx->sqe->opcode == SWP_OP_WRITE_IMM;
		tx->opcode = SWP_RDMAP_WRITE;
		tx->hdr_len = SWP_TAGGED_LEN;
		tx->stag = tx->sqe->rkey;
		tx->to = tx->sqe->remote_addr;
		s->wire_id = tx->stag;
		break;
	case SWP_OP_SEND_IMM:
		immediate(tx);
		s->wire_id = tx->msn;
		break;
	default:
		tx->opcode = send_opcode(tx->sqe);
		tx->hdr_len = SWP_UNTAGGED_LEN;
		tx->stag = tx->sqe->opcode == SWP_OP_SEND_INV ?
			   tx->sqe->imm_inv : 0;
		tx->msn = tx->send_msn++;
		s->wire_id = tx->msn;
		break;
	}
}

/*
 * Only pages of user memory can be sent by reference, and an skb has few page
 * fragments: copy a message of many SGEs, and all with markers in between.
 */
static bool goes_by_ref(const struct swp_qp *qp)
{
	const struct swp_tx *tx = &qp->tx;

	return !tx->inlined && qp->user && swp_params.zcopy_min &&
	       !qp->sp.tx_markers && tx->len >= swp_params.zcopy_min &&
	       tx->num_sge <= SWP_ZCOPY_SGE;
}

/*
 * May the current message take more than one FPDU?  Then all of it is checked
 * before the first one is sent.
 */
static bool may_be_cut(const struct swp_qp *qp)
{
	const struct swp_tx *tx = &qp->tx;
	u32 room = swp_fpdu_span(tx->unit, tx->pos, tx->room) - tx->pos;
	u32 fit = swp_ulpdu_fit(room);

	/* markers take some of it */
	return unlikely(qp->sp.tx_markers) || fit < tx->hdr_len ||
	       tx->len > fit - tx->hdr_len;
}

/* Starts the current message.  Returns 0, or a completion status: it failed. */
static int start_sqe(struct swp_qp *qp, struct swp_slot *s)
{
	struct swp_tx *tx = &qp->tx;
	int status;

	switch (tx->sqe->opcode) {
	case SWP_OP_WRITE:
	case SWP_OP_WRITE_IMM:
	case SWP_OP_SEND:
	case SWP_OP_SEND_INV:
	case SWP_OP_SEND_IMM:
		start_data(tx, s);
		if (!tx->inlined && may_be_cut(qp) && !sges_ok(qp, 0))
			return IB_WC_LOC_PROT_ERR;
		tx->by_ref = goes_by_ref(qp);
		s->by_ref = tx->by_ref;
		return 0;
	case SWP_OP_READ:
	case SWP_OP_READ_INV:
	case SWP_OP_FETCH_ADD:
	case SWP_OP_CMP_SWAP:
		/*
		 * The opcode may have changed between must_wait() and the
		 * copy, and with an ORD of 0 there is no room.
		 */
		if (!swp_oread_room(qp, tx->sqe->num_sge))
			return IB_WC_LOC_QP_OP_ERR;
		return start_read(qp, s) ? 0 : IB_WC_LOC_PROT_ERR;
	default:
		status = run_local(qp);
		if (!status) {
			local_done(qp, s);
			tx->local = true;
		}
		return status;
	}
}

/*
 * Takes the next request from the SQ.  False: there is no message to send.
 * Either no request is posted, or it must wait for the peer (tx->held), or it
 * sends nothing and is done (tx->local): then try the next one.
 */
static bool next_sqe(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_slot *s;
	int status;
	u32 prod;

	swp_qp_assert_owned(qp);
	if (!sq_posted(qp, &prod))
		return false;
	/* the engine sees what is posted from now on before it stops */
	if (tx->turn == SWP_TURN_POSTER)
		swp_tx_set_turn(qp, SWP_TURN_ENGINE);
	if (prod - qp->sq_done > qp->sq.entries) {
		swp_qp_stat_inc(qp, WQE_INVALID);
		swp_qp_fail(qp, SWP_FAULT_RDMAP_LOCAL, NULL, 0, 0, NULL);
		return false;
	}
	if (must_wait(qp)) {
		tx->held = true;
		return false;
	}
	status = take_sqe(qp, &s);
	if (!status)
		status = start_sqe(qp, s);
	if (status) {
		local_error(qp, status);
		return false;
	}
	return !tx->local;
}

/* The response to the peer's oldest request failed. */
static void rresp_error(struct swp_qp *qp, int err)
{
	const struct swp_iread *q = swp_iread(qp, qp->iread_cons);
	u8 ddp[SWP_UNTAGGED_LEN], rreq[SWP_READ_REQ_LEN];
	struct swp_rreq w = q->read;

	swp_qp_assert_owned(qp);
	/* RFC 5040 section 4.8: return the rest of the request */
	w.sink_to += qp->tx.off;
	w.src_to += qp->tx.off;
	w.size -= qp->tx.off;
	swp_rreq_encode(rreq, &w);
	swp_untagged_encode(ddp, q->is_atomic ? SWP_RDMAP_ATOMIC_REQ :
						SWP_RDMAP_READ_REQ,
			    true, 0, SWP_QN_READ_REQ,
			    qp->rx.msn[SWP_QN_READ_REQ] -
			    (qp->iread_prod - qp->iread_cons), 0);
	if (qp->sp.accept & SWP_ACCEPT_RDMAC)
		swp_seg_make_rdmac(ddp);
	qp->tx.kind = SWP_TX_NONE;
	swp_qp_fail(qp, swp_fault_source(err), ddp, sizeof(ddp),
		    SWP_UNTAGGED_LEN +
		    (q->is_atomic ? SWP_ATOMIC_REQ_LEN : SWP_READ_REQ_LEN),
		    q->is_atomic ? NULL : rreq);
}

/*
 * Executes an atomic only when its response is due, so that all requests of the
 * peer take effect in the order of their arrival.
 */
static bool atomic_response(struct swp_qp *qp, const struct swp_atomic *a)
{
	struct swp_tx *tx = &qp->tx;
	u64 old;
	int ret;

	swp_qp_assert_owned(qp);
	ret = swp_mr_atomic(qp, a, &old);
	if (ret) {
		tx->off = 0;
		rresp_error(qp, ret);
		return false;
	}
	swp_untagged_encode(tx->ctrl, SWP_RDMAP_ATOMIC_RESP, true, 0,
			    SWP_QN_ATOMIC_RESP, tx->atomic_msn++, 0);
	swp_atomic_resp_encode(tx->ctrl + SWP_UNTAGGED_LEN, a->id, old);
	tx->kind = SWP_TX_CTRL;
	tx->ctrl_len = SWP_UNTAGGED_LEN + SWP_ATOMIC_RESP_LEN;
	qp->iread_cons++;
	return true;
}

static bool next_rresp(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	const struct swp_rreq *r;
	const struct swp_iread *q;

	swp_qp_assert_owned(qp);
	if (qp->iread_cons == qp->iread_prod)
		return false;
	q = swp_iread(qp, qp->iread_cons);
	if (q->is_atomic)
		return atomic_response(qp, &q->atomic);
	r = &q->read;
	tx->kind = SWP_TX_RRESP;
	tx->opcode = SWP_RDMAP_READ_RESP;
	tx->hdr_len = SWP_TAGGED_LEN;
	tx->inlined = false;
	tx->by_ref = false;
	tx->len = r->size;
	tx->off = 0;
	tx->stag = r->sink_stag;
	tx->to = r->sink_to;
	return true;
}

static void ctrl_fpdu(struct swp_tx *tx, u32 len)
{
	tx->kind = SWP_TX_CTRL;
	tx->ctrl_len = len;
}

/* RFC 6581 section 5: send the ready-to-receive indication first. */
static void next_rtr(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_rreq r = { .sink_stag = 1, .src_stag = 1 };
	struct swp_oread *o;
	u8 kind = tx->rtr;

	swp_qp_assert_owned(qp);
	tx->rtr = 0;
	switch (kind) {
	case SWP_RTR_SEND:
		swp_untagged_encode(tx->ctrl, SWP_RDMAP_SEND, true, 0,
				    SWP_QN_SEND, tx->send_msn++, 0);
		ctrl_fpdu(tx, SWP_UNTAGGED_LEN);
		break;
	case SWP_RTR_READ:
		o = swp_oread(qp, qp->oread_prod);
		memset(o, 0, offsetof(struct swp_oread, one));
		o->slot = U32_MAX;
		o->sink_stag = 1;
		qp->oread_prod++;
		swp_untagged_encode(tx->ctrl, SWP_RDMAP_READ_REQ, true, 0,
				    SWP_QN_READ_REQ, tx->rreq_msn++, 0);
		swp_rreq_encode(tx->ctrl + SWP_UNTAGGED_LEN, &r);
		ctrl_fpdu(tx, SWP_UNTAGGED_LEN + SWP_READ_REQ_LEN);
		break;
	default:
		/* any STag is legal; some hardware treats 0 specially */
		swp_tagged_encode(tx->ctrl, SWP_RDMAP_WRITE, true, 1, 0);
		ctrl_fpdu(tx, SWP_TAGGED_LEN);
		break;
	}
}

/* The Write without octets that proves where this end is, see near.h */
static void next_token(struct swp_qp *qp)
{
	const struct swp_near *near = &qp->llp->near;
	struct swp_tx *tx = &qp->tx;

	tx->token = true;
	swp_tagged_encode(tx->ctrl, SWP_RDMAP_WRITE, true, near->stag, near->to);
	ctrl_fpdu(tx, SWP_TAGGED_LEN);
}

/* Chooses what to send next.  False: nothing can be sent now. */
static bool next_msg(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;

	swp_qp_assert_owned(qp);
	if (tx->term_sent)
		return false;
	if (tx->term_pending) {
		swp_untagged_encode(tx->ctrl, SWP_RDMAP_TERMINATE, true, 0,
				    SWP_QN_TERMINATE, 1, 0);
		memcpy(tx->ctrl + SWP_UNTAGGED_LEN, qp->term_buf, qp->term_len);
		ctrl_fpdu(tx, SWP_UNTAGGED_LEN + qp->term_len);
		tx->term_pending = false;
		tx->term_sent = true;
		tx->has_term = true;
		swp_stat_terminate(qp->dev, true, qp->fault);
		return true;
	}
	if ((!swp_qp_is_up(qp->state) && !swp_qp_closes(qp->state)) ||
	    tx->fenced || tx->shut) {
		tx->held = true;
		return false;
	}
	if (tx->rtr) {
		next_rtr(qp);
		return true;
	}
	if (unlikely(!tx->token) && swp_near_has_peer(&qp->llp->near)) {
		next_token(qp);
		return true;
	}
	/* alternate, so that a busy peer starves neither queue */
	tx->resp_turn ^= 1;
	if (tx->resp_turn)
		return next_rresp(qp) || next_sqe(qp);
	/* a response may follow a request that sent nothing */
	return next_sqe(qp) || next_rresp(qp);
}

/* Adds the payload of an FPDU.  < 0: roll back what was added. */
static int add_payload(struct swp_qp *qp, u32 n)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_mr *mr;
	int ret;

	swp_qp_assert_owned(qp);
	if (!n)
		return 0;
	if (tx->inlined)
		return add_copy(qp, (u8 *)tx_sge(tx) + tx->off, n, true) ?
		       0 : -ENOMEM;

	if (tx->kind == SWP_TX_RRESP) {
		const struct swp_rreq *r =
			&swp_iread(qp, qp->iread_cons)->read;

		mr = swp_mr_get(qp->dev, r->src_stag);
		if (!mr)
			return -ENOENT;
		ret = swp_mr_check(mr, qp, r->src_to + tx->off, n,
				   IB_ACCESS_REMOTE_READ);
		if (!ret && !add_payload_mr(qp, mr, r->src_to + tx->off, n))
			ret = -ENOMEM;
		swp_mr_put(mr);
		return ret;
	}

	while (n) {
		struct swp_sge *sge = &tx_sge(tx)[tx->sge_i];
		u32 part = min(n, sge->length - tx->sge_off);

		/* more than the message has: never, but it would not end */
		if (WARN_ON_ONCE(!part && tx->sge_i + 1 >= tx->num_sge))
			return -EFAULT;
		if (part) {
			mr = swp_sge_get(qp, sge, tx->sge_off, part, 0);
			if (IS_ERR(mr))
				return -EFAULT;
			ret = add_payload_mr(qp, mr, sge->addr + tx->sge_off,
					     part);
			swp_sge_put(qp, mr);
			if (!ret)
				return -ENOMEM;
		}
		tx->sge_off += part;
		n -= part;
		if (tx->sge_off == sge->length && tx->sge_i < tx->num_sge - 1) {
			tx->sge_i++;
			tx->sge_off = 0;
		}
	}
	return 0;
}

struct tx_mark {
	u32 nbv, last_len, bytes, pieces, nhold, sge_off, stream;
	u16 sge_i;
};

static void mark(struct swp_tx *tx, struct tx_mark *m)
{
	m->nbv = tx->nbv;
	m->last_len = tx->nbv ? tx->batch->bv[tx->nbv - 1].bv_len : 0;
	m->bytes = tx->bytes;
	m->pieces = tx->pieces;
	m->nhold = tx->nhold;
	m->sge_i = tx->sge_i;
	m->sge_off = tx->sge_off;
	m->stream = tx->stream;
}

/* Removes an unfinished FPDU from the batch. */
static void rollback(struct swp_tx *tx, const struct tx_mark *m)
{
	tx->nbv = m->nbv;
	if (m->nbv)
		tx->batch->bv[m->nbv - 1].bv_len = m->last_len;
	tx->bytes = m->bytes;
	tx->pieces = m->pieces;
	while (tx->nhold > m->nhold)
		put_page(tx->batch->hold[--tx->nhold]);
	tx->sge_i = m->sge_i;
	tx->sge_off = m->sge_off;
	tx->stream = m->stream;
}

/* Octets from which it pays to refer to pages, in place of one more copy */
#define SWP_NEAR_REF	1024

static bool goes_near_by_ref(const struct swp_tx *tx, u32 payload)
{
	return payload >= SWP_NEAR_REF && !tx->inlined &&
	       (tx->kind == SWP_TX_RRESP || tx->num_sge <= SWP_ZCOPY_SGE);
}

/* The FPDU being built */
struct tx_fpdu {
	u32 hdr_len;		/* DDP and RDMAP headers */
	u32 payload;
	u32 ulpdu;
	u32 len;		/* on the wire, markers included */
};

/*
 * Chooses the next FPDU of the current message.  False: it does not fit into
 * the batch; tx->eor says whether it has to start a new skb.
 */
static bool cut_fpdu(struct swp_qp *qp, struct tx_fpdu *f)
{
	struct swp_tx *tx = &qp->tx;
	bool markers = qp->sp.tx_markers;
	u32 left, need;

	f->hdr_len = tx->kind == SWP_TX_CTRL ? tx->ctrl_len : tx->hdr_len;
	left = tx->kind == SWP_TX_CTRL ? 0 : tx->len - tx->off;
	if (unlikely(markers) ?
	    !swp_cut_marked(tx->mss, tx->pos, tx->stream, f->hdr_len, left,
			    &f->payload) :
	    !swp_cut(swp_fpdu_span(tx->unit, tx->pos, tx->room), tx->pos,
		     f->hdr_len, left, &f->payload)) {
		tx->eor = true;
		return false;
	}
	f->ulpdu = f->hdr_len + f->payload;
	f->len = swp_fpdu_len(f->ulpdu);
	if (unlikely(markers)) {
		f->len = swp_marked_len(tx->stream, f->len);
		tx->head = swp_fpdu_head(tx->stream);
	}
	tx->refs = tx->by_ref || (tx->near && goes_near_by_ref(tx, f->payload));
	/* most page fragments: the payload's, and our own around them */
	need = tx->refs ? (f->payload >> PAGE_SHIFT) + 2 + 2 + tx->num_sge :
			  (f->len >> PAGE_SHIFT) + 2;
	if (tx->pieces + need > tx->max_pieces &&
	    (tx->nbv || tx->max_pieces < SWP_TX_PIECES)) {
		tx->eor = true;
		return false;
	}
	if (tx->nbv && f->len > tx->room) {
		/* TCP counts segments from the start of an skb */
		tx->eor = tx->pos != 0;
		return false;
	}
	return true;
}

/* Adds ULPDU_Length and headers. */
static bool add_header(struct swp_qp *qp, const struct tx_fpdu *f, bool last)
{
	struct swp_tx *tx = &qp->tx;
	u8 hdr[SWP_MPA_LEN + SWP_UNTAGGED_LEN + SWP_TERM_MAX];

	hdr[0] = f->ulpdu >> 8;
	hdr[1] = f->ulpdu & 0xff;
	if (tx->kind == SWP_TX_CTRL)
		memcpy(hdr + SWP_MPA_LEN, tx->ctrl, tx->ctrl_len);
	else if (tx->hdr_len == SWP_TAGGED_LEN)
		swp_tagged_encode(hdr + SWP_MPA_LEN, tx->opcode, last, tx->stag,
				  tx->to + tx->off);
	else
		swp_untagged_encode(hdr + SWP_MPA_LEN, tx->opcode, last,
				    tx->stag, SWP_QN_SEND, tx->msn, tx->off);
	/* revision 0 always has markers, RFC 5044 appendix C */
	if (unlikely(qp->sp.tx_markers) && (qp->sp.accept & SWP_ACCEPT_RDMAC))
		swp_seg_make_rdmac(hdr + SWP_MPA_LEN);
	return add_copy(qp, hdr, SWP_MPA_LEN + f->hdr_len, true);
}

/* Adds pad and CRC. */
static bool add_trailer(struct swp_qp *qp, u32 ulpdu)
{
	struct swp_tx *tx = &qp->tx;
	u32 pad = swp_fpdu_pad(ulpdu);
	u8 trail[8] = {};
	__le32 c;

	if (unlikely(qp->sp.tx_markers)) {
		/* the CRC covers a marker between pad and CRC, too */
		if (!add_copy(qp, trail, pad, true) ||
		    (!swp_marker_gap(tx->stream) && !add_marker(qp)))
			return false;
		pad = 0;
	}
	if (tx->with_crc) {
		tx->crc = swp_crc32c(tx->crc, trail, pad);
		c = cpu_to_le32(~tx->crc);
		memcpy(trail + pad, &c, sizeof(c));
	}
	return add_copy(qp, trail, pad + SWP_MPA_CRC_LEN, false);
}

/* Accounts for an FPDU that is complete in the batch. */
static void fpdu_added(struct swp_qp *qp, const struct tx_fpdu *f, bool last)
{
	struct swp_tx *tx = &qp->tx;

	tx->fpdus++;
	tx->off += f->payload;
	tx->room = tx->room > f->len ? tx->room - f->len : 0;
	tx->pos = (tx->pos + f->len) % tx->unit;
	if (!last)
		return;
	if (tx->kind == SWP_TX_RRESP)
		qp->iread_cons++;
	if (tx->kind == SWP_TX_SQE && tx->imm_next)
		immediate(tx);
	else
		tx->kind = SWP_TX_NONE;
}

/*
 * Adds one FPDU of the current message.
 * Returns 1 when added, 0 when the batch is full, < 0 on error.
 */
static int add_fpdu(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	struct tx_fpdu f;
	struct tx_mark m;
	bool last;
	int ret;

	swp_qp_assert_owned(qp);
	if (!cut_fpdu(qp, &f))
		return 0;
	if (!tx->batch && !take_batch(tx))
		return -ENOMEM;
	mark(tx, &m);
	tx->crc = ~0;
	last = tx->kind == SWP_TX_CTRL || tx->off + f.payload == tx->len;
	ret = add_header(qp, &f, last) ? 0 : -ENOMEM;
	if (!ret && tx->kind != SWP_TX_CTRL)
		ret = add_payload(qp, f.payload);
	if (!ret && !add_trailer(qp, f.ulpdu))
		ret = -ENOMEM;
	if (ret) {
		rollback(tx, &m);
		return ret;
	}
	fpdu_added(qp, &f, last);
	return 1;
}

/* Octets up to which FPDUs may span segments, or 0 */
static u32 largest_fpdu(const struct swp_qp *qp)
{
	enum swp_large large = READ_ONCE(swp_params.large_fpdus);

	if (unlikely(qp->sp.tx_markers) || large == SWP_LARGE_NEVER)
		return 0;
	return large == SWP_LARGE_ALWAYS || READ_ONCE(qp->llp->near.here) ?
	       SWP_LARGE_FPDU : 0;
}

/*
 * May the next batch go past TCP?  The other end has heard our token, and has read
 * all that went by TCP; it can take a request, with which a batch ends.
 */
static bool goes_near(const struct swp_qp *qp)
{
	const struct swp_llp *llp = qp->llp;
	struct swp_qp *to = llp->near.qp;

	return to && READ_ONCE(to->llp->near.heard) &&
	       swp_llp_all_read(llp, to->llp) &&
	       !swp_rx_unfinished(&to->rx) && !to->rx.running &&
	       swp_iread_room(to);
}

/* Starts a batch that TCP adds to its unsent tail skb, or to a new skb; or a near one. */
static void start_batch(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_llp_tail tail;

	swp_qp_assert_owned(qp);
	tx->with_crc = qp->sp.crc && !tx->near;
	if (tx->near)
		tail = (struct swp_llp_tail) {
			.mss = SWP_EMSS_MAX,
			.room = 2 * SWP_EMSS_MAX,
			.pieces = SWP_TX_HOLD - 4,
		};
	else
		swp_llp_tail(qp->llp, &tail);
	tx->no_mem = false;
	tx->nbv = 0;
	tx->bytes = 0;
	tx->pieces = 0;
	tx->fpdus = 0;
	tx->eor = false;
	tx->has_term = false;
	tx->mss = tail.mss;
	tx->unit = swp_fpdu_unit(tail.mss, tail.len + tail.room,
				 largest_fpdu(qp));
	tx->pos = tail.len % tx->unit;
	tx->room = tail.room;
	tx->max_pieces = tx->near ? tail.pieces :
			 min_t(u32, tail.pieces, SWP_TX_PIECES);
}

/*
 * Makes the next message the current one, and charges *@left for it: a program
 * that posts as fast as the engine takes requests, or a peer with many reads of
 * no octets, must not keep the engine running.  False: there is no message, or
 * the budget is used up.
 */
static bool take_msg(struct swp_qp *qp, int *left)
{
	struct swp_tx *tx = &qp->tx;
	int cost = tx->near ? SWP_NEAR_MSG_COST : SWP_TX_MSG_COST;
	bool found;

	swp_qp_assert_owned(qp);
	do {
		if (*left <= 0)
			return false;
		*left -= cost;
		tx->held = false;
		tx->local = false;
		found = next_msg(qp);
	} while (!found && tx->local);
	if (!found)
		*left += cost;
	else if (tx->near && tx->kind != SWP_TX_RRESP)
		*left -= tx->num_sge * SWP_NEAR_SGE_COST;
	return found;
}

/*
 * Returns 1: there is a batch to send; 0: there is nothing to send; -ENOMEM.
 * @left: budget, octets; send_some() charges those of the batch
 */
static int build_batch(struct swp_qp *qp, int *left)
{
	struct swp_tx *tx = &qp->tx;
	int ret = 0;
	bool ctrl;

	swp_qp_assert_owned(qp);
	start_batch(qp);
	while (tx->room) {
		if (tx->kind == SWP_TX_NONE && !take_msg(qp, left))
			break;
		ctrl = tx->kind == SWP_TX_CTRL;
		ret = add_fpdu(qp);
		if (ret == 0 && !tx->nbv) {
			/* the tail skb is full: continue in a new one */
			swp_llp_end_tail(qp->llp);
			start_batch(qp);
			continue;
		}
		if (ret <= 0 || (tx->near && ctrl))
			break;
	}
	if (ret < 0 && ret != -ENOMEM) {
		if (tx->kind == SWP_TX_RRESP)
			rresp_error(qp, ret);
		else
			local_error(qp, IB_WC_LOC_PROT_ERR);
	}
	if (!tx->nbv) {
		drop_regions(tx);
		return ret == -ENOMEM || tx->no_mem ? -ENOMEM : 0;
	}
	tx->batch_tx = qp->sq_tx;
	tx->pending = true;
	iov_iter_bvec(&tx->batch->it, ITER_SOURCE, tx->batch->bv, tx->nbv,
		      tx->bytes);
	return 1;
}

/* Sending ----------------------------------------------------------------- */

/* TCP has taken a batch: complete its requests, now or on their ACK. */
static void batch_done(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	u32 i, end = tx->batch_tx;

	swp_qp_assert_owned(qp);
	tx->pending = false;
	drop_holds(tx);
	swp_qp_stat_add(qp, TX_FPDU, tx->fpdus);
	swp_qp_stat_add(qp, TX_BYTES, tx->bytes);
	if (tx->bytes > tx->fpdus * SWP_TX_CREDIT)
		qp->rx.unanswered = 0;
	/* the last request may need more batches */
	if (tx->kind == SWP_TX_SQE)
		end--;
	for (i = qp->sq_acked; i != end; i++) {
		struct swp_slot *s = &qp->slots[i & qp->sq.mask];

		if (s->state != SWP_SLOT_ACTIVE)
			continue;
		if (s->by_ref && !tx->near) {
			s->state = SWP_SLOT_WAIT_ACK;
			s->end_seq = swp_llp_end_seq(qp->llp);
			qp->ack_waiting++;
		} else {
			s->state = SWP_SLOT_DONE;
		}
	}
	qp->sq_acked = end;
	if (qp->ack_waiting)
		swp_llp_want_space(qp->llp);
	swp_sq_complete(qp);
}

/*
 * swp_tx_acked - the peer's TCP has acknowledged octets: complete the requests
 * that were sent by reference and are acknowledged whole.
 */
void swp_tx_acked(struct swp_qp *qp)
{
	u32 i;

	swp_qp_assert_owned(qp);
	if (!qp->ack_waiting)
		return;
	for (i = qp->sq_done; i != qp->sq_acked && qp->ack_waiting; i++) {
		struct swp_slot *s = &qp->slots[i & qp->sq.mask];

		if (s->state != SWP_SLOT_WAIT_ACK)
			continue;
		if (!swp_llp_is_acked(qp->llp, s->end_seq))
			break;
		s->state = SWP_SLOT_DONE;
		qp->ack_waiting--;
	}
	if (qp->ack_waiting)
		swp_llp_want_space(qp->llp);
	swp_sq_complete(qp);
}

/*
 * swp_tx_cut - a Terminate is due.  It is the next message (RFC 5040 section
 * 7.1), so the rest of the current message goes before it.  But drop a long
 * rest: send the Terminate while the peer still receives.
 */
void swp_tx_cut(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_slot *s;

	swp_qp_assert_owned(qp);
	if (tx->kind != SWP_TX_SQE && tx->kind != SWP_TX_RRESP)
		return;
	if (tx->len - tx->off <= SWP_TX_BURST)
		return;
	if (tx->kind == SWP_TX_SQE) {
		s = &qp->slots[(qp->sq_tx - 1) & qp->sq.mask];
		s->status = IB_WC_WR_FLUSH_ERR;
		s->vendor_err = qp->vendor_err;
	}
	tx->kind = SWP_TX_NONE;
}

/* Drops what is built but not sent, at the end of the stream. */
void swp_tx_release(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;

	swp_qp_assert_owned(qp);
	tx->pending = false;
	tx->kind = SWP_TX_NONE;
	drop_holds(tx);
	/* else the engine, which uses it, gives it back */
	if (tx->batch && !tx->running)
		give_batch(tx);
}

/* Everything is sent: send FIN if wanted, or end a failed stream. */
static void tx_idle(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;

	swp_qp_assert_owned(qp);
	if (qp->state == SWP_QP_TERMINATE && !tx->term_pending) {
		swp_qp_terminated(qp);
		return;
	}
	if (!tx->fin_wanted || tx->shut || !swp_qp_closes(qp->state))
		return;
	/* outstanding reads keep the stream open, too */
	if (qp->sq.entries &&
	    (qp->sq_tx != READ_ONCE(swp_ring_ctrl(&qp->sq)->prod) ||
	     qp->oread_prod != qp->oread_cons))
		return;
	if (qp->iread_prod != qp->iread_cons)
		return;
	/* LEFT completes nothing: wait until TCP has given the pages back */
	if (qp->state == SWP_QP_PARTING && qp->ack_waiting)
		return;
	tx->shut = true;
	swp_qp_close_later(qp, SWP_QPF_SHUTDOWN);
}

bool swp_tx_owes(const struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	return qp->tx.turn == SWP_TURN_WORK && qp->tx.kind != SWP_TX_SQE &&
	       qp->iread_prod != qp->iread_cons;
}

/* Set the turn, see proto/turn.h.  Socket lock held, or no stream started. */
void swp_tx_set_turn(struct swp_qp *qp, enum swp_turn turn)
{
	struct swp_tx *tx = &qp->tx;
	bool kick = swp_turn_kick(turn);

	swp_qp_assert_owned(qp);
	WRITE_ONCE(tx->turn, turn);
	/* after the end of a stream flush_sq() sets kick; swp_qp_posted() clears it */
	if (turn != SWP_TURN_NOBODY && qp->sq.entries &&
	    (kick != tx->kick || (kick && !qp->user))) {
		tx->kick = kick;
		WRITE_ONCE(swp_ring_ctrl(&qp->sq)->kick, kick);
	}
	switch (turn) {
	case SWP_TURN_TCP:
		swp_llp_want_space(qp->llp);
		break;
	case SWP_TURN_WORK:
		/* at once, it would fight that process for the sockets */
		if (tx->shared && swp_tx_owes(qp))
			swp_qp_kick_soon(qp);
		else
			swp_qp_kick(qp);
		break;
	case SWP_TURN_LATER:
		swp_qp_kick_later(qp);
		break;
	default:
		break;
	}
}

/* Does something besides the send queue wait to be sent? */
static bool tx_due(const struct swp_qp *qp)
{
	const struct swp_tx *tx = &qp->tx;

	return qp->iread_prod != qp->iread_cons || tx->term_pending ||
	       tx->rtr || qp->state == SWP_QP_TERMINATE ||
	       (tx->fin_wanted && !tx->shut);
}

/* A socket callback: run the engine if it may have something to do. */
void swp_tx_news(struct swp_qp *qp, enum swp_news news)
{
	swp_qp_assert_owned(qp);
	if (swp_turn_runs(qp->tx.turn, news, tx_due(qp)))
		swp_tx_run(qp);
}

static enum swp_actor tx_actor(const struct swp_tx *tx,
			       const struct swp_llp *llp)
{
	if (tx->by_hand)
		return tx->leaving ? SWP_ACTOR_LEAVING : SWP_ACTOR_HOLDER;
	if (!swp_llp_is_locked(llp))
		return SWP_ACTOR_SOFTIRQ;
	/* only this process itself can have stored current there */
	if (READ_ONCE(tx->holder) != current)
		return SWP_ACTOR_STRANGER;
	return tx->leaving ? SWP_ACTOR_LEAVING : SWP_ACTOR_HOLDER;
}

/* Hands a batch to the other end's receive engine. */
static void push_near(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	struct swp_qp *to = qp->llp->near.qp;

	swp_qp_assert_owned(qp);
	trace_swp_tx_batch(qp->qpn, tx->fpdus, tx->bytes, tx->bytes);
	swp_qp_stat_add(qp, TX_NEAR, tx->fpdus);
	swp_rx_near(to, tx->batch->bv, tx->nbv, tx->bytes);
	drop_regions(tx);
	if (qp->backoff)
		WRITE_ONCE(qp->backoff, 0);
	to->llp->near.news = true;
	batch_done(qp);
}

static bool has_space(struct swp_llp *llp)
{
	return swp_llp_has_space(llp) &&
	       (!READ_ONCE(llp->near.here) || swp_near_has_share(llp));
}

/* Sends until there is a reason to stop.  @left: budget, octets */
static enum swp_stop send_some(struct swp_qp *qp, int *left)
{
	struct swp_tx *tx = &qp->tx;
	int ret;

	swp_qp_assert_owned(qp);
	while (*left > 0) {
		/* LEFT: a late doorbell must not take back what qp_step() asked for */
		if (qp->state == SWP_QP_ERROR || qp->state == SWP_QP_LEFT)
			return SWP_STOP_DEAD;
		if (!tx->pending) {
			tx->near = goes_near(qp);
			if (!tx->near && !has_space(qp->llp)) {
				swp_qp_stat_inc(qp, TX_STALLS);
				return SWP_STOP_FULL;
			}
			ret = build_batch(qp, left);
			if (ret < 0)
				return SWP_STOP_MEMORY;
			/* build_batch() found an error: send the Terminate */
			if (!ret && tx->term_pending)
				continue;
			if (!ret && *left > 0) {
				tx_idle(qp);
				if (qp->state == SWP_QP_ERROR)
					return SWP_STOP_DEAD;
				return tx->held ? SWP_STOP_HELD :
						  SWP_STOP_EMPTY;
			}
			if (!ret)
				break;
		}
		if (tx->near) {
			*left -= tx->bytes;
			push_near(qp);
			continue;
		}
		swp_qp_stat_inc(qp, TX_CALLS);
		ret = swp_tcp_push(qp->llp->sk, &tx->batch->it, tx->eor);
		trace_swp_tx_batch(qp->qpn, tx->fpdus, tx->bytes, ret);
		if (ret == -EAGAIN || ret == 0) {
			swp_qp_stat_inc(qp, TX_STALLS);
			return SWP_STOP_FULL;
		}
		if (ret < 0) {
			swp_qp_dead(qp, ret);
			return SWP_STOP_DEAD;
		}
		if (qp->backoff)
			WRITE_ONCE(qp->backoff, 0);
		*left -= ret;
		if (!iov_iter_count(&tx->batch->it))
			batch_done(qp);
	}
	return SWP_STOP_BURST;
}

/*
 * Runs the engine within the caller's budget, then sets the next turn.  A
 * process that releases the lock processes the backlog, with ACKs that make
 * room for more, and could send a whole stream from there: so all of that
 * counts as part of its burst.
 */
void swp_tx_run(struct swp_qp *qp)
{
	struct swp_tx *tx = &qp->tx;
	enum swp_actor actor;
	enum swp_stop stop;
	enum swp_turn turn;
	int burst, *left;
	u32 prod;

	swp_qp_assert_owned(qp);
	if (tx->running || !qp->llp)
		return;
	actor = tx_actor(tx, qp->llp);
	burst = actor == SWP_ACTOR_SOFTIRQ ? SWP_TX_BURST : 0;
	left = actor == SWP_ACTOR_SOFTIRQ || actor == SWP_ACTOR_STRANGER ?
	       &burst : &tx->left;
	/* the process with both ends' sockets has one budget for both */
	if (qp->llp->near.qp && !tx->by_hand)
		left = &qp->llp->near.qp->tx.left;
	tx->running = true;
	for (;;) {
		stop = send_some(qp, left);
		/* if TCP is full, it sends its unsent octets by itself */
		turn = swp_turn_after(stop, actor,
				      swp_llp_calls(qp->llp,
						    stop == SWP_STOP_FULL),
				      tx->poller);
		swp_tx_set_turn(qp, turn);
		if (turn != SWP_TURN_POSTER)
			break;
		/* pairs with the poster's barrier between prod and kick */
		smp_mb();
		if (!sq_posted(qp, &prod))
			break;
	}
	swp_frags_give(&filled, &tx->frag);
	if (tx->batch && !tx->pending)
		give_batch(tx);
	tx->running = false;
}

/* Answers to answers: after so many, workers go on */
#define SWP_NEAR_TURNS	8

void swp_tx_settle(struct swp_qp *qp)
{
	struct swp_qp *to = qp->llp->near.qp;
	int i;

	swp_qp_assert_owned(qp);
	for (i = 0; i < SWP_NEAR_TURNS && to->llp->near.news; i++) {
		to->llp->near.news = false;
		swp_tx_news(to, SWP_NEWS_DATA);
		swap(qp, to);
	}
	if (to->llp->near.news) {
		to->llp->near.news = false;
		swp_qp_kick(to);
	}
}
