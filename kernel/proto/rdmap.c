// SPDX-License-Identifier: GPL-2.0
/*
 * DDP and RDMAP headers: encode, decode, check.  Pure code; called by the two
 * engines and by the unit tests.
 */
#include "rdmap.h"

#ifndef __CHECKER__	/* sparse does not know the pragma */
static_assert(sizeof(struct swp_ddp_tagged) == SWP_TAGGED_LEN,
	      "RFC 5041 section 4.2");
static_assert(sizeof(struct swp_ddp_untagged) == SWP_UNTAGGED_LEN,
	      "RFC 5041 section 4.3");
static_assert(sizeof(struct swp_read_req) == SWP_READ_REQ_LEN,
	      "RFC 5040 section 4.4");
static_assert(sizeof(struct swp_atomic_req_wire) == SWP_ATOMIC_REQ_LEN,
	      "RFC 7306 section 5.2.1");
static_assert(sizeof(struct swp_atomic_resp_wire) == SWP_ATOMIC_RESP_LEN,
	      "RFC 7306 section 5.2.2");
#endif

/* The queue number of a message, RFC 5040 Figure 4; -1: tagged or unknown */
static int opcode_qn(__u8 opcode)
{
	switch (opcode) {
	case SWP_RDMAP_SEND:
	case SWP_RDMAP_SEND_INV:
	case SWP_RDMAP_SEND_SE:
	case SWP_RDMAP_SEND_SE_INV:
	case SWP_RDMAP_IMM:
	case SWP_RDMAP_IMM_SE:
		return SWP_QN_SEND;
	case SWP_RDMAP_READ_REQ:
	case SWP_RDMAP_ATOMIC_REQ:
		return SWP_QN_READ_REQ;
	case SWP_RDMAP_TERMINATE:
		return SWP_QN_TERMINATE;
	case SWP_RDMAP_ATOMIC_RESP:
		return SWP_QN_ATOMIC_RESP;
	default:
		return -1;
	}
}

/* The RDMA Consortium used version 00b, both for DDP and for RDMAP. */
static bool ddp_version_ok(__u8 ctrl, bool rdmac)
{
	return (ctrl & SWP_DDP_DV_MASK) == (rdmac ? 0 : SWP_DDP_DV);
}

static bool rdmap_version_ok(__u8 ctrl, bool rdmac)
{
	return (ctrl & SWP_RDMAP_RV_MASK) == (rdmac ? 0 : SWP_RDMAP_RV);
}

void swp_seg_make_rdmac(__u8 *buf)
{
	buf[0] = (__u8)(buf[0] & ~SWP_DDP_DV_MASK);
	buf[1] = (__u8)(buf[1] & ~SWP_RDMAP_RV_MASK);
}

static void fill_tagged(const __u8 *buf, struct swp_seg *seg)
{
	struct swp_ddp_tagged h;

	memcpy(&h, buf, sizeof(h));
	seg->hdr_len = SWP_TAGGED_LEN;
	seg->stag = be32_to_cpu(h.stag);
	seg->to = be64_to_cpu(h.to);
	seg->qn = 0;
	seg->msn = 0;
	seg->mo = 0;
}

static void fill_untagged(const __u8 *buf, struct swp_seg *seg)
{
	struct swp_ddp_untagged h;

	memcpy(&h, buf, sizeof(h));
	seg->hdr_len = SWP_UNTAGGED_LEN;
	seg->stag = be32_to_cpu(h.inv_stag);
	seg->to = 0;
	seg->qn = be32_to_cpu(h.qn);
	seg->msn = be32_to_cpu(h.msn);
	seg->mo = be32_to_cpu(h.mo);
}

/* Decode the header, unchecked.  False: @len octets are too few for it. */
static bool fill_seg(const __u8 *buf, __u32 len, struct swp_seg *seg)
{
	memset(seg, 0, sizeof(*seg));
	if (len < 2)
		return false;
	seg->tagged = buf[0] & SWP_DDP_TAGGED;
	seg->last = buf[0] & SWP_DDP_LAST;
	seg->opcode = buf[1] & SWP_RDMAP_OP_MASK;
	if (len < (seg->tagged ? SWP_TAGGED_LEN : SWP_UNTAGGED_LEN))
		return false;
	if (seg->tagged)
		fill_tagged(buf, seg);
	else
		fill_untagged(buf, seg);
	seg->payload = len - seg->hdr_len;
	return true;
}

enum swp_fault swp_seg_decode(const __u8 *buf, __u32 ulpdu_len,
			      unsigned int accept, struct swp_seg *seg)
{
	bool rdmac = accept & SWP_ACCEPT_RDMAC;
	bool ext = accept & SWP_ACCEPT_EXT;
	bool tagged_op;

	if (!fill_seg(buf, ulpdu_len, seg))
		return SWP_FAULT_DDP_LOCAL;
	if (!ddp_version_ok(buf[0], rdmac))
		return seg->tagged ? SWP_FAULT_DDP_TAGGED_VERSION :
				     SWP_FAULT_DDP_UNTAGGED_VERSION;
	if (seg->qn > (ext ? SWP_QN_ATOMIC_RESP : SWP_QN_TERMINATE))
		return SWP_FAULT_DDP_QN;

	/* RFC 5040 Figure 4: opcode, T bit and queue number must agree */
	tagged_op = seg->opcode == SWP_RDMAP_WRITE ||
		    seg->opcode == SWP_RDMAP_READ_RESP;
	if (seg->opcode > (ext ? SWP_RDMAP_ATOMIC_RESP : SWP_RDMAP_TERMINATE) ||
	    tagged_op != seg->tagged ||
	    (!seg->tagged && opcode_qn(seg->opcode) != (int)seg->qn))
		return SWP_FAULT_RDMAP_OPCODE;
	if (!rdmap_version_ok(buf[1], rdmac))
		return SWP_FAULT_RDMAP_VERSION;
	return SWP_FAULT_NONE;
}

void swp_tagged_encode(__u8 *buf, __u8 opcode, bool last, __u32 stag, __u64 to)
{
	struct swp_ddp_tagged h = {
		.ctrl = SWP_DDP_TAGGED | SWP_DDP_DV | (last ? SWP_DDP_LAST : 0),
		.rdmap = SWP_RDMAP_RV | opcode,
		.stag = cpu_to_be32(stag),
		.to = cpu_to_be64(to),
	};

	memcpy(buf, &h, sizeof(h));
}

void swp_untagged_encode(__u8 *buf, __u8 opcode, bool last, __u32 inv_stag,
			 __u32 qn, __u32 msn, __u32 mo)
{
	struct swp_ddp_untagged h = {
		.ctrl = SWP_DDP_DV | (last ? SWP_DDP_LAST : 0),
		.rdmap = SWP_RDMAP_RV | opcode,
		.inv_stag = cpu_to_be32(inv_stag),
		.qn = cpu_to_be32(qn),
		.msn = cpu_to_be32(msn),
		.mo = cpu_to_be32(mo),
	};

	memcpy(buf, &h, sizeof(h));
}

void swp_rreq_decode(const __u8 *buf, struct swp_rreq *r)
{
	struct swp_read_req w;

	memcpy(&w, buf, sizeof(w));
	r->sink_stag = be32_to_cpu(w.sink_stag);
	r->sink_to = be64_to_cpu(w.sink_to);
	r->size = be32_to_cpu(w.size);
	r->src_stag = be32_to_cpu(w.src_stag);
	r->src_to = be64_to_cpu(w.src_to);
}

void swp_rreq_encode(__u8 *buf, const struct swp_rreq *r)
{
	struct swp_read_req w = {
		.sink_stag = cpu_to_be32(r->sink_stag),
		.sink_to = cpu_to_be64(r->sink_to),
		.size = cpu_to_be32(r->size),
		.src_stag = cpu_to_be32(r->src_stag),
		.src_to = cpu_to_be64(r->src_to),
	};

	memcpy(buf, &w, sizeof(w));
}

void swp_atomic_encode(__u8 *buf, const struct swp_atomic *a)
{
	bool cas = a->op == SWP_ATOMIC_CMP_SWAP;
	struct swp_atomic_req_wire w = {
		.op = cpu_to_be32(a->op),
		.id = cpu_to_be32(a->id),
		.stag = cpu_to_be32(a->stag),
		.to = cpu_to_be64(a->to),
		.data = cpu_to_be64(a->data),
		.mask = cpu_to_be64(a->mask),
		.compare = cpu_to_be64(cas ? a->compare : 0),
		.compare_mask = cpu_to_be64(cas ? a->compare_mask : ~0ULL),
	};

	memcpy(buf, &w, sizeof(w));
}

int swp_atomic_decode(const __u8 *buf, struct swp_atomic *a)
{
	struct swp_atomic_req_wire w;

	memcpy(&w, buf, sizeof(w));
	a->op = be32_to_cpu(w.op) & 0xf;
	a->id = be32_to_cpu(w.id);
	a->stag = be32_to_cpu(w.stag);
	a->to = be64_to_cpu(w.to);
	a->data = be64_to_cpu(w.data);
	a->mask = be64_to_cpu(w.mask);
	a->compare = be64_to_cpu(w.compare);
	a->compare_mask = be64_to_cpu(w.compare_mask);
	return a->op == SWP_ATOMIC_FETCH_ADD || a->op == SWP_ATOMIC_CMP_SWAP ?
	       0 : -EPROTO;
}

/*
 * Masked addition (RFC 7306 section 5.1): a bit set in @ends is the highest bit
 * of a field, and a carry out of it is dropped.
 */
static __u64 add_in_parts(__u64 a, __u64 b, __u64 ends)
{
	/* with these bits clear no carry can leave its field */
	__u64 sum = (a & ~ends) + (b & ~ends);

	return sum ^ ((a ^ b) & ends);
}

__u64 swp_atomic_result(const struct swp_atomic *a, __u64 old)
{
	if (a->op == SWP_ATOMIC_FETCH_ADD)
		return add_in_parts(old, a->data, a->mask);
	if ((a->compare ^ old) & a->compare_mask)
		return old;
	return (old & ~a->mask) | (a->data & a->mask);
}

void swp_atomic_resp_encode(__u8 *buf, __u32 id, __u64 value)
{
	struct swp_atomic_resp_wire w = {
		.id = cpu_to_be32(id),
		.value = cpu_to_be64(value),
	};

	memcpy(buf, &w, sizeof(w));
}

void swp_atomic_resp_decode(const __u8 *buf, __u32 *id, __u64 *value)
{
	struct swp_atomic_resp_wire w;

	memcpy(&w, buf, sizeof(w));
	*id = be32_to_cpu(w.id);
	*value = be64_to_cpu(w.value);
}

__u32 swp_term_encode(__u8 *buf, const struct swp_term *t, const __u8 *ddp,
		      __u32 ddp_len, __u16 seg_len, const __u8 *rreq)
{
	__u32 n = 4;

	buf[0] = (t->layer << 4) | (t->etype & 0xf);
	buf[1] = t->code;
	buf[2] = 0;
	buf[3] = 0;
	if (!ddp)
		return n;
	buf[2] = SWP_TERM_M | SWP_TERM_D;
	buf[4] = seg_len >> 8;
	buf[5] = seg_len & 0xff;
	memcpy(buf + 6, ddp, ddp_len);
	n = 6 + ddp_len;
	if (rreq) {
		buf[2] |= SWP_TERM_R;
		memcpy(buf + n, rreq, SWP_READ_REQ_LEN);
		n += SWP_READ_REQ_LEN;
	}
	return n;
}

int swp_term_decode(const __u8 *buf, __u32 len, struct swp_term *t, __u32 *msn,
		    const __u8 **rreq)
{
	struct swp_seg seg;
	__u32 off = 4;

	*msn = 0;
	*rreq = NULL;
	if (len < 4)
		return -EPROTO;
	t->layer = buf[0] >> 4;
	t->etype = buf[0] & 0xf;
	t->code = buf[1];
	/* headers only help to find the request: ignore missing ones */
	if (buf[2] & (SWP_TERM_M | SWP_TERM_D))
		off += 2;
	if (buf[2] & SWP_TERM_D) {
		if (len <= off)
			return 0;
		if (buf[off] & SWP_DDP_TAGGED) {
			off += SWP_TAGGED_LEN;
		} else {
			if (swp_term_culprit(buf, len, &seg))
				*msn = seg.msn;
			off += SWP_UNTAGGED_LEN;
		}
	}
	if ((buf[2] & SWP_TERM_R) && len >= off + SWP_READ_REQ_LEN)
		*rreq = buf + off;
	return 0;
}

bool swp_term_culprit(const __u8 *buf, __u32 len, struct swp_seg *seg)
{
	return len > 6 && (buf[2] & SWP_TERM_D) &&
	       fill_seg(buf + 6, len - 6, seg);
}
