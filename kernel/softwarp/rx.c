// SPDX-License-Identifier: GPL-2.0
/*
 * The receive engine: checks the CRC of an FPDU that rx_stream.c has found, and
 * copies its payload once, from the socket's buffers into registered memory.
 * It runs in the context in which TCP delivers: softirq, or a process that
 * releases the socket lock.
 */
#include <linux/mm.h>

#include "crc.h"
#include "reads.h"
#include "skbcur.h"
#include "trace.h"
#include "proto/mpa.h"

/* The current FPDU; a Terminate may need its headers */
struct rx_fpdu {
	struct swp_cur payload;
	u8 hdr[SWP_MAX_HDR];	/* with the header of a Read Request */
	u32 hdr_avail;		/* octets of hdr that are valid */
	u32 ulpdu;
	struct swp_seg seg;
};

static int reject(struct swp_qp *qp, const struct rx_fpdu *f,
		  enum swp_fault fault)
{
	bool rreq = swp_fault_headers(fault) == SWP_HDR_RREQ &&
		    f->seg.opcode == SWP_RDMAP_READ_REQ &&
		    f->hdr_avail >= SWP_MAX_HDR;

	swp_qp_assert_owned(qp);
	swp_qp_stat_inc(qp, RX_PROTO_ERR);
	if (!f->seg.hdr_len || f->hdr_avail < f->seg.hdr_len)
		swp_qp_fail(qp, fault, NULL, 0, 0, NULL);
	else
		swp_qp_fail(qp, fault, f->hdr, f->seg.hdr_len, f->ulpdu,
			    rreq ? f->hdr + SWP_UNTAGGED_LEN : NULL);
	return -EPROTO;
}

static bool rqe_posted(const struct swp_qp *qp)
{
	/* not a final check, take_rqe() does that */
	if (qp->srq)
		return swp_srq_posted(qp->srq);
	return qp->rq.entries &&
	       READ_ONCE(swp_ring_ctrl(&qp->rq)->prod) != qp->rq_cons;
}

/* Is a response of this kind the next one due? */
static bool awaits(const struct swp_qp *qp, bool atomic)
{
	return qp->oread_cons != qp->oread_prod &&
	       swp_oread(qp, qp->oread_cons)->atomic == atomic;
}

/*
 * RFC 5041 section 7 for untagged segments: are MSN and MO right, and is there
 * a buffer?  DDP checks this before RDMAP looks at its own control octet.
 */
static int ddp_untagged(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	struct swp_rx *rx = &qp->rx;
	bool buffer;
	enum swp_fault fault;
	u32 mo = 0;

	swp_qp_assert_owned(qp);
	switch (s->qn) {
	case SWP_QN_SEND:
		buffer = rx->in_msg || rqe_posted(qp);
		mo = rx->in_msg ? rx->mo : 0;
		break;
	case SWP_QN_READ_REQ:
		buffer = qp->iread_prod - qp->iread_cons < qp->sp.ird;
		break;
	case SWP_QN_ATOMIC_RESP:
		buffer = awaits(qp, true);
		break;
	default:
		buffer = true;	/* every stream has one for a Terminate */
		break;
	}
	if (s->msn != rx->msn[s->qn])
		fault = SWP_FAULT_DDP_MSN;
	else if (!buffer)
		fault = SWP_FAULT_DDP_NO_BUFFER;
	else if (s->mo != mo)
		fault = SWP_FAULT_DDP_MO;
	else
		return 0;
	return reject(qp, f, fault);
}

/* The consumer's own memory is not valid: RFC 5041 section 7.2 */
static int local_catastrophe(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	swp_qp_fail(qp, SWP_FAULT_DDP_LOCAL, NULL, 0, 0, NULL);
	return -EFAULT;
}

static void place(struct swp_mr *mr, u64 addr, struct swp_cur *c, u32 len)
{
	while (len) {
		struct page *page;
		u32 off, n = len;

		page = swp_mr_page(mr, addr, &off, &n);
		swp_cur_copy(c, page_address(page) + off, n);
		addr += n;
		len -= n;
	}
}

/*
 * Places @len octets into a scatter list and advances the position (*i, *off).
 * -ERANGE: the list is too short; -EFAULT: an SGE is not allowed.
 */
static int place_sges(struct swp_qp *qp, const struct swp_sge *sge, u32 num,
		      u16 *i, u32 *off, struct swp_cur *c, u32 len)
{
	while (len) {
		struct swp_mr *mr;
		u32 n;

		while (*i < num && *off == sge[*i].length) {
			(*i)++;
			*off = 0;
		}
		if (*i >= num)
			return -ERANGE;
		n = min(len, sge[*i].length - *off);
		mr = swp_sge_get(qp, &sge[*i], *off, n, IB_ACCESS_LOCAL_WRITE);
		if (IS_ERR(mr))
			return -EFAULT;
		place(mr, sge[*i].addr + *off, c, n);
		swp_sge_put(qp, mr);
		*off += n;
		len -= n;
	}
	return 0;
}

/* RDMA Write ---------------------------------------------------------------*/

/*
 * Programs wait for a Write by polling its last octet or word, and expect that
 * everything before is in place, as it is with hardware.  memcpy() may be a
 * string instruction, whose stores can be in any order.  So store the end
 * separately: up to eight octets, as the alignment allows.
 */
static void place_end(struct swp_mr *mr, u64 addr, struct swp_cur *c, u32 len)
{
	u32 off, n = 1, size;
	struct page *page;
	void *dst;
	union {
		u64 v64;
		u32 v32;
		u16 v16;
		u8 v8;
	} v;

	page = swp_mr_page(mr, addr + len - 1, &off, &n);
	size = min_t(u32, 1U << __ffs(off + 1), sizeof(v));
	while (size > len)
		size /= 2;
	place(mr, addr, c, len - size);
	swp_cur_copy(c, &v, size);
	/* pairs with the program's barrier between end and rest */
	smp_wmb();
	dst = page_address(page) + off + 1 - size;
	switch (size) {
	case 8:
		WRITE_ONCE(*(u64 *)dst, v.v64);
		break;
	case 4:
		WRITE_ONCE(*(u32 *)dst, v.v32);
		break;
	case 2:
		WRITE_ONCE(*(u16 *)dst, v.v16);
		break;
	default:
		WRITE_ONCE(*(u8 *)dst, v.v8);
		break;
	}
}

static int rx_write(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	struct swp_mr *mr;
	int ret;

	swp_qp_assert_owned(qp);
	if (!qp->rx.in_write)
		qp->rx.write_len = 0;
	qp->rx.write_len += s->payload;
	qp->rx.in_write = !s->last;
	qp->rx.after_write = s->last;
	if (!s->payload) {
		/* RFC 5041 section 5.2: not validated */
		if (swp_near_has_peer(&qp->llp->near))
			swp_near_hear(qp->llp, s->stag, s->to);
		return 0;
	}
	mr = swp_mr_get(qp->dev, s->stag);
	if (!mr)
		return reject(qp, f, SWP_FAULT_DDP_INVALID_STAG);
	ret = swp_mr_check(mr, qp, s->to, s->payload,
			   IB_ACCESS_REMOTE_WRITE);
	if (!ret && s->last)
		place_end(mr, s->to, &f->payload, s->payload);
	else if (!ret)
		place(mr, s->to, &f->payload, s->payload);
	swp_mr_put(mr);

	return ret ? reject(qp, f, swp_fault_tagged(ret)) : 0;
}

/* Send family --------------------------------------------------------------*/

/* Takes the next receive request of the QP, see swp_rqe_fetch(). */
static int take_rqe(struct swp_qp *qp)
{
	u32 left;
	int ret;

	swp_qp_assert_owned(qp);
	if (qp->srq)
		return swp_srq_take(qp->srq, &qp->rx);
	if (!qp->rq.entries)
		return -ENOBUFS;
	spin_lock_bh(&qp->lock);
	ret = swp_rqe_fetch(&qp->rx, &qp->rq, qp->rq_cons, qp->max_recv_sge,
			    &left);
	if (qp->rx.in_msg) {
		qp->rq_cons++;
		/* pairs with the poster's acquire load of cons */
		smp_store_release(&swp_ring_ctrl(&qp->rq)->cons, qp->rq_cons);
	}
	spin_unlock_bh(&qp->lock);
	return ret;
}

/*
 * The handler may post and poll.  The transmit engine sends what it posts after
 * all received octets are handled, see swp_qp_posted().
 */
static void notify(struct swp_qp *qp, struct swp_cqe *cqe)
{
	struct swp_rx *rx = &qp->rx;
	int bits = swp_cq_push(qp->rcq, cqe);

	swp_qp_assert_owned(qp);
	if (!bits)
		return;
	local_bh_disable();
	WRITE_ONCE(rx->notifies, smp_processor_id());
	swp_cq_notify(qp->rcq, bits);
	WRITE_ONCE(rx->notifies, -1);
	local_bh_enable();
}

static void complete_recv(struct swp_qp *qp, u8 status, u32 len, u8 opcode,
			  u32 inv_stag)
{
	struct swp_cqe cqe = {
		.wr_id = qp->rx.wr_id,
		.byte_len = len,
		.qp_num = qp->qpn,
		.vendor_err = status ? qp->vendor_err : 0,
		.opcode = SWP_OP_RECV,
		.status = status,
	};

	swp_qp_assert_owned(qp);
	if (opcode == SWP_RDMAP_SEND_SE || opcode == SWP_RDMAP_SEND_SE_INV)
		cqe.flags |= SWP_CQE_SOLICITED;
	if (opcode == SWP_RDMAP_SEND_INV || opcode == SWP_RDMAP_SEND_SE_INV) {
		cqe.flags |= SWP_CQE_WITH_INV;
		cqe.imm_inv = inv_stag;
	}
	qp->rx.in_msg = false;
	notify(qp, &cqe);
}

/* Fails the receive in progress with a status of its own, then the stream. */
static int fail_recv(struct swp_qp *qp, const struct rx_fpdu *f, u8 status,
		     enum swp_fault fault)
{
	int ret;

	swp_qp_assert_owned(qp);
	ret = fault == SWP_FAULT_DDP_LOCAL ? local_catastrophe(qp) :
					     reject(qp, f, fault);
	complete_recv(qp, status, 0, SWP_RDMAP_SEND, 0);
	return ret;
}

static int rx_send(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	struct swp_rx *rx = &qp->rx;
	int ret;

	swp_qp_assert_owned(qp);
	if (!rx->in_msg) {
		ret = take_rqe(qp);
		if (ret == -ENOBUFS)
			return reject(qp, f, SWP_FAULT_DDP_NO_BUFFER);
		if (ret)
			return rx->in_msg ?
			       fail_recv(qp, f, IB_WC_LOC_QP_OP_ERR,
					 SWP_FAULT_DDP_LOCAL) :
			       local_catastrophe(qp);
		rx->mo = 0;
		rx->opcode = s->opcode;
	} else if (s->opcode != rx->opcode) {
		return reject(qp, f, SWP_FAULT_RDMAP_OPCODE);
	}
	/* RFC 5041 section 7.1: check before placing anything */
	if (s->payload > rx->space - rx->mo)
		return fail_recv(qp, f, IB_WC_LOC_LEN_ERR,
				 SWP_FAULT_DDP_TOO_LONG);

	ret = place_sges(qp, rx->sge, rx->num_sge, &rx->sge_i, &rx->sge_off,
			 &f->payload, s->payload);
	if (ret)
		return fail_recv(qp, f, IB_WC_LOC_PROT_ERR,
				 SWP_FAULT_DDP_LOCAL);
	rx->mo += s->payload;
	if (!s->last)
		return 0;

	if (s->opcode == SWP_RDMAP_SEND_INV ||
	    s->opcode == SWP_RDMAP_SEND_SE_INV) {
		ret = swp_mr_remote_inv(qp, s->stag);
		if (ret) {
			/* RFC 5040 Figure 9 has this code in both tables */
			ret = reject(qp, f, ret == -EPERM ?
				     SWP_FAULT_RDMAP_CANT_INVALIDATE :
				     SWP_FAULT_RDMAP_OP_STAG);
			complete_recv(qp, IB_WC_LOC_ACCESS_ERR, 0, SWP_RDMAP_SEND,
				      0);
			return ret;
		}
	}
	rx->msn[SWP_QN_SEND]++;
	complete_recv(qp, IB_WC_SUCCESS, rx->mo, s->opcode, s->stag);
	return 0;
}

/* RFC 7306 section 6: it uses a receive, but places nothing in its buffer. */
static int rx_imm(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	struct swp_rx *rx = &qp->rx;
	u8 data[SWP_IMM_LEN];
	struct swp_cqe cqe;
	u32 imm;
	bool alone;
	int ret;

	swp_qp_assert_owned(qp);
	if (rx->in_msg || rx->in_write)
		return reject(qp, f, SWP_FAULT_RDMAP_OPCODE);
	if (!s->last || s->payload != SWP_IMM_LEN)
		return reject(qp, f, SWP_FAULT_RDMAP_UNSPECIFIED);
	ret = take_rqe(qp);
	if (ret == -ENOBUFS)
		return reject(qp, f, SWP_FAULT_DDP_NO_BUFFER);
	if (ret)
		return rx->in_msg ? fail_recv(qp, f, IB_WC_LOC_QP_OP_ERR,
					 SWP_FAULT_DDP_LOCAL) :
				    local_catastrophe(qp);
	swp_cur_copy(&f->payload, data, sizeof(data));
	memcpy(&imm, data, sizeof(imm));
	alone = data[SWP_IMM_LEN - 1] == SWP_IMM_ALONE;
	rx->msn[SWP_QN_SEND]++;
	rx->in_msg = false;
	cqe = (struct swp_cqe){
		.wr_id = rx->wr_id,
		.byte_len = rx->after_write && !alone ? rx->write_len : 0,
		.qp_num = qp->qpn,
		.opcode = alone ? SWP_OP_RECV : SWP_OP_RECV_IMM,
		.flags = SWP_CQE_WITH_IMM |
			 (s->opcode == SWP_RDMAP_IMM_SE ? SWP_CQE_SOLICITED : 0),
		.imm_inv = imm,
	};
	rx->after_write = false;
	notify(qp, &cqe);
	return 0;
}

/* RDMA Read ----------------------------------------------------------------*/

/* The consumer's memory for a response is not valid. */
static int fail_request(struct swp_qp *qp, struct swp_slot *slot)
{
	int ret;

	swp_qp_assert_owned(qp);
	slot->status = IB_WC_LOC_PROT_ERR;
	ret = local_catastrophe(qp);
	slot->vendor_err = qp->vendor_err;
	return ret;
}

/* Octets from which it pays to move the answer to a read to another CPU */
#define SWP_RX_BIG_READ	(32 * 1024)
/* Read Requests that are left to a program that spins, after one that did not wait ... */
#define SWP_RX_READS	32
/* ... for the answer to the one before; and one at times, to see.  Ticks. */
#define SWP_RX_TRY	(HZ / 8)

/*
 * A program that reads one piece after the other gets it soonest where the request
 * arrives.  One that has several requests on the way gains by two processors.  But if
 * softirq answers each of them within the call that posts it, both look the same here.
 */
static void note_read(struct swp_qp *qp, u32 size)
{
	struct swp_rx *rx = &qp->rx;

	swp_qp_assert_owned(qp);
	if (size < SWP_RX_BIG_READ) {
		rx->big_reads = 0;
	} else if (qp->iread_prod != qp->iread_cons ||
		   (swp_llp_is_locked(qp->llp) && !rx->serving)) {
		rx->big_reads = SWP_RX_READS;
	} else if (rx->big_reads) {
		rx->big_reads--;
	} else if ((s32)((u32)jiffies - rx->read_try) >= 0) {
		rx->big_reads = 1;
		rx->read_try = (u32)jiffies + SWP_RX_TRY;
	}
}

static int rx_read_req(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	struct swp_rx *rx = &qp->rx;
	struct swp_rreq r;
	struct swp_mr *mr;
	int ret;

	swp_qp_assert_owned(qp);
	if (s->payload > SWP_READ_REQ_LEN || (!s->last && s->payload))
		return reject(qp, f, SWP_FAULT_DDP_TOO_LONG);
	if (s->payload < SWP_READ_REQ_LEN)
		return reject(qp, f, SWP_FAULT_RDMAP_UNSPECIFIED);
	swp_rreq_decode(f->hdr + SWP_UNTAGGED_LEN, &r);
	if (r.size) {
		mr = swp_mr_get(qp->dev, r.src_stag);
		if (!mr)
			return reject(qp, f, SWP_FAULT_RDMAP_INVALID_STAG);
		ret = swp_mr_check(mr, qp, r.src_to, r.size,
				   IB_ACCESS_REMOTE_READ);
		swp_mr_put(mr);
		if (ret)
			return reject(qp, f, swp_fault_source(ret));
	}
	rx->msn[SWP_QN_READ_REQ]++;
	note_read(qp, r.size);
	*swp_iread(qp, qp->iread_prod) = (struct swp_iread){
		.read = r,
	};
	qp->iread_prod++;
	return 0;
}

/* Atomics, RFC 7306 section 5 ----------------------------------------------*/

static int rx_atomic_req(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	u8 buf[SWP_ATOMIC_REQ_LEN];
	struct swp_atomic a;
	struct swp_mr *mr;
	int ret;

	swp_qp_assert_owned(qp);
	if (s->payload > sizeof(buf) || (!s->last && s->payload))
		return reject(qp, f, SWP_FAULT_DDP_TOO_LONG);
	if (s->payload < sizeof(buf))
		return reject(qp, f, SWP_FAULT_RDMAP_UNSPECIFIED);
	swp_cur_copy(&f->payload, buf, sizeof(buf));
	if (swp_atomic_decode(buf, &a))
		return reject(qp, f, SWP_FAULT_RDMAP_OPCODE);
	mr = swp_mr_get(qp->dev, a.stag);
	if (!mr)
		return reject(qp, f, SWP_FAULT_RDMAP_INVALID_STAG);
	ret = swp_mr_check_atomic(mr, qp, a.to);
	swp_mr_put(mr);
	if (ret)
		return reject(qp, f, swp_fault_source(ret));
	qp->rx.msn[SWP_QN_READ_REQ]++;
	*swp_iread(qp, qp->iread_prod) = (struct swp_iread){
		.is_atomic = true,
		.atomic = a,
	};
	qp->iread_prod++;
	return 0;
}

static int rx_atomic_resp(struct swp_qp *qp, struct rx_fpdu *f)
{
	struct swp_oread *o = swp_oread(qp, qp->oread_cons);
	const struct swp_seg *s = &f->seg;
	u8 buf[SWP_ATOMIC_RESP_LEN];
	struct swp_slot *slot;
	struct swp_cur flat;
	u64 old;
	u32 id;

	swp_qp_assert_owned(qp);
	if (s->payload > sizeof(buf) || (!s->last && s->payload))
		return reject(qp, f, SWP_FAULT_DDP_TOO_LONG);
	if (s->payload < sizeof(buf))
		return reject(qp, f, SWP_FAULT_RDMAP_UNSPECIFIED);
	swp_cur_copy(&f->payload, buf, sizeof(buf));
	swp_atomic_resp_decode(buf, &id, &old);
	if (id != o->slot)
		return reject(qp, f, SWP_FAULT_RDMAP_OPCODE);
	slot = &qp->slots[o->slot & qp->sq.mask];
	swp_cur_flat(&flat, (u8 *)&old, sizeof(old));
	if (place_sges(qp, swp_oread_sge(o), o->num_sge, &o->sge_i, &o->sge_off,
		       &flat, sizeof(old)))
		return fail_request(qp, slot);
	qp->rx.msn[SWP_QN_ATOMIC_RESP]++;
	swp_oread_done(qp);
	slot->state = SWP_SLOT_DONE;
	swp_sq_complete(qp);
	return 0;
}

static int rx_read_resp(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	struct swp_slot *slot;
	struct swp_oread *o;
	int ret;

	swp_qp_assert_owned(qp);
	if (!awaits(qp, false))
		return reject(qp, f, SWP_FAULT_RDMAP_OPCODE);
	o = swp_oread(qp, qp->oread_cons);
	/* RFC 5040 section 5.2.2 allows these checks, which are cheap */
	if (s->payload && s->stag != o->sink_stag)
		return reject(qp, f, SWP_FAULT_DDP_INVALID_STAG);
	if (s->payload > o->size - o->done ||
	    (s->payload && s->to != o->sink_to + o->done) ||
	    (s->last && s->payload != o->size - o->done))
		return reject(qp, f, SWP_FAULT_DDP_BOUNDS);
	ret = place_sges(qp, swp_oread_sge(o), o->num_sge, &o->sge_i, &o->sge_off,
			 &f->payload, s->payload);
	o->done += s->payload;
	if (!ret && s->last && o->inv)
		ret = swp_mr_local_inv(qp, o->inv_stag);
	if (ret)
		return fail_request(qp, &qp->slots[o->slot & qp->sq.mask]);
	if (!s->last)
		return 0;
	swp_oread_done(qp);
	if (o->slot != U32_MAX) {
		slot = &qp->slots[o->slot & qp->sq.mask];
		slot->state = SWP_SLOT_DONE;
		swp_sq_complete(qp);
	}
	return 0;
}

/* Terminate ----------------------------------------------------------------*/

/* The slot of the read with this MSN; U32_MAX if it is not outstanding */
static u32 read_of_msn(const struct swp_qp *qp, u32 msn)
{
	u32 n = qp->oread_prod - qp->oread_cons;
	u32 first = qp->tx.rreq_msn - n;

	if (msn - first >= n)
		return U32_MAX;
	return swp_oread(qp, qp->oread_cons + (msn - first))->slot;
}

/*
 * The request that the peer's Terminate refers to, or the oldest incomplete one
 * if the Terminate has no headers.  U32_MAX: it is complete, or not found.
 */
static u32 blamed(const struct swp_qp *qp, const struct swp_seg *seg,
		  bool read)
{
	const struct swp_slot *s;
	bool write, is_write;
	u32 i;

	if (seg && (seg->opcode == SWP_RDMAP_READ_REQ ||
		    seg->opcode == SWP_RDMAP_ATOMIC_REQ))
		return read_of_msn(qp, seg->msn);
	if (!seg && read && qp->oread_cons != qp->oread_prod)
		return swp_oread(qp, qp->oread_cons)->slot;
	write = seg && seg->opcode == SWP_RDMAP_WRITE;
	for (i = qp->sq_done; i != qp->sq_tx; i++) {
		s = &qp->slots[i & qp->sq.mask];
		if (s->state == SWP_SLOT_DONE)
			continue;
		if (!seg)
			return i;
		is_write = s->opcode == SWP_OP_WRITE ||
			   s->opcode == SWP_OP_WRITE_IMM;
		if (s->state == SWP_SLOT_WAIT_RESP || write != is_write)
			continue;
		if (s->wire_id == (write ? seg->stag : seg->msn))
			return i;
	}
	return U32_MAX;
}

/* Set the status of the request that the peer's Terminate refers to. */
static void blame(struct swp_qp *qp, const struct swp_term *t,
		  const struct swp_seg *seg, bool read)
{
	static const u8 status[] = {
		[SWP_BLAME_OPERATION] = IB_WC_REM_OP_ERR,
		[SWP_BLAME_ACCESS] = IB_WC_REM_ACCESS_ERR,
		[SWP_BLAME_REQUEST] = IB_WC_REM_INV_REQ_ERR,
	};
	struct swp_slot *s;
	u32 i;

	swp_qp_assert_owned(qp);
	if (!qp->sq.entries)
		return;
	/* RDMAP reports protection errors at the data source of reads */
	if (t->layer == SWP_LAYER_RDMAP && t->etype == SWP_RDMAP_ET_PROT)
		read = true;
	i = blamed(qp, seg, read);
	if (i == U32_MAX)
		return;
	s = &qp->slots[i & qp->sq.mask];
	if (s->status)
		return;
	s->status = status[swp_fault_blame(t)];
	s->vendor_err = swp_vendor_err(t) | SWP_VENDOR_ERR_REMOTE;
}

static int rx_terminate(struct swp_qp *qp, struct rx_fpdu *f)
{
	const struct swp_seg *s = &f->seg;
	u8 buf[SWP_TERM_MAX];
	u32 len = min_t(u32, s->payload, sizeof(buf));
	struct swp_seg culprit;
	const u8 *rreq;
	struct swp_term t;
	u32 msn;

	swp_qp_assert_owned(qp);
	swp_cur_copy(&f->payload, buf, len);
	/* RFC 5040 section 5.4: handle an invalid one like other errors */
	if (!s->last || swp_term_decode(buf, len, &t, &msn, &rreq))
		return reject(qp, f, SWP_FAULT_RDMAP_UNSPECIFIED);
	swp_stat_terminate(qp->dev, false, swp_fault_of(&t));
	ibdev_dbg(&qp->dev->base, "qp %u: peer sent Terminate %u/%u/0x%02x\n",
		  qp->qpn, t.layer, t.etype, t.code);
	blame(qp, &t, swp_term_culprit(buf, len, &culprit) ? &culprit : NULL,
	      rreq);
	swp_qp_peer_terminated(qp, &t);
	return -ECONNRESET;
}

/* One FPDU -----------------------------------------------------------------*/

static bool crc_ok(struct swp_cur c, u32 covered)
{
	u32 crc = ~0, n;
	__le32 want;

	while (covered) {
		const u8 *p = swp_cur_peek(&c, covered, &n);

		crc = swp_crc32c(crc, p, n);
		swp_cur_skip(&c, n);
		covered -= n;
	}
	swp_cur_copy(&c, &want, sizeof(want));
	return le32_to_cpu(want) == ~crc;
}

/*
 * A zero-length Send is the only RTR that the ULP could notice.  It consumes an
 * MSN, but by RFC 6581 section 4.4.2 no receive, and has no completion.
 */
static bool is_rtr_send(const struct swp_qp *qp, const struct swp_seg *s)
{
	return (qp->sp.rtr & SWP_RTR_SEND) && s->opcode == SWP_RDMAP_SEND &&
	       s->last && !s->payload && s->msn == 1 && !s->mo;
}

int swp_rx_mpa_error(struct swp_qp *qp, enum swp_fault fault)
{
	swp_qp_assert_owned(qp);
	if (fault == SWP_FAULT_MPA_CRC)
		swp_qp_stat_inc(qp, RX_CRC_ERR);
	else
		swp_qp_stat_inc(qp, RX_MARKER_ERR);
	swp_qp_fail(qp, fault, NULL, 0, 0, NULL);
	return -EPROTO;
}

int swp_rx_ulpdu(struct swp_qp *qp, struct swp_cur c, u32 ulpdu)
{
	struct rx_fpdu f = { .ulpdu = ulpdu };
	enum swp_fault bad;
	struct swp_cur hc;
	bool first;
	int ret;

	swp_qp_assert_owned(qp);
	first = qp->tx.fenced;
	/* RFC 5044 section 7.1.2: the initiator's first valid FPDU */
	if (unlikely(first))
		qp->tx.fenced = false;
	swp_cur_skip(&c, SWP_MPA_LEN);
	hc = c;
	f.hdr_avail = min_t(u32, ulpdu, SWP_UNTAGGED_LEN);
	swp_cur_copy(&hc, f.hdr, f.hdr_avail);
	bad = swp_seg_decode(f.hdr, ulpdu, qp->sp.accept, &f.seg);
	trace_swp_rx_fpdu(qp->qpn, f.seg.opcode, f.seg.last, f.seg.payload);
	if (unlikely(first) && !bad && is_rtr_send(qp, &f.seg)) {
		qp->rx.msn[SWP_QN_SEND]++;
		return 0;
	}
	if (!f.seg.tagged &&
	    (!bad || swp_fault_term(bad).layer == SWP_LAYER_RDMAP)) {
		ret = ddp_untagged(qp, &f);
		if (ret)
			return ret;
	}
	if (unlikely(bad))
		return reject(qp, &f, bad);
	if (f.seg.opcode == SWP_RDMAP_READ_REQ && ulpdu >= SWP_MAX_HDR) {
		swp_cur_copy(&hc, f.hdr + f.hdr_avail, SWP_READ_REQ_LEN);
		f.hdr_avail = SWP_MAX_HDR;
	}
	swp_cur_skip(&c, f.seg.hdr_len);
	f.payload = c;
	qp->tx.streak = 0;

	/*
	 * DDP does not mix the segments of different messages (RFC 5041 section
	 * 5.3): once a Send has begun, only its own segments may follow.  The
	 * MSN check catches those of another Send.
	 */
	if (qp->rx.in_msg && (f.seg.tagged || f.seg.qn == SWP_QN_READ_REQ ||
			      f.seg.qn == SWP_QN_ATOMIC_RESP))
		return reject(qp, &f, SWP_FAULT_RDMAP_OPCODE);

	/* what note_read() has noticed holds until the peer does something else */
	if (f.seg.opcode != SWP_RDMAP_READ_REQ &&
	    f.seg.opcode != SWP_RDMAP_READ_RESP)
		qp->rx.big_reads = 0;
	switch (f.seg.opcode) {
	case SWP_RDMAP_WRITE:
		return rx_write(qp, &f);
	case SWP_RDMAP_READ_REQ:
		return rx_read_req(qp, &f);
	case SWP_RDMAP_READ_RESP:
		return rx_read_resp(qp, &f);
	case SWP_RDMAP_TERMINATE:
		return rx_terminate(qp, &f);
	case SWP_RDMAP_ATOMIC_REQ:
		return rx_atomic_req(qp, &f);
	case SWP_RDMAP_ATOMIC_RESP:
		return rx_atomic_resp(qp, &f);
	case SWP_RDMAP_IMM:
	case SWP_RDMAP_IMM_SE:
		return rx_imm(qp, &f);
	default:
		qp->rx.after_write = false;
		return rx_send(qp, &f);
	}
}

int swp_rx_fpdu(struct swp_qp *qp, struct swp_cur c, u32 ulpdu)
{
	swp_qp_assert_owned(qp);
	swp_qp_stat_inc(qp, RX_FPDU);
	swp_qp_stat_add(qp, RX_BYTES, ulpdu);
	if (qp->sp.crc && !crc_ok(c, SWP_MPA_LEN + ulpdu + swp_fpdu_pad(ulpdu)))
		return swp_rx_mpa_error(qp, SWP_FAULT_MPA_CRC);
	return swp_rx_ulpdu(qp, c, ulpdu);
}
