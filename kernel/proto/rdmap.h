/* SPDX-License-Identifier: GPL-2.0 */
/*
 * DDP segment headers (RFC 5041 section 4) with the RDMAP octet and the RDMAP
 * headers that follow them (RFC 5040 section 4).  Pure code.
 */
#ifndef SWP_PROTO_RDMAP_H
#define SWP_PROTO_RDMAP_H

#include "base.h"
#include "terminate.h"

/* DDP control octet, RFC 5041 section 4.1 */
enum swp_ddp_ctrl {
	SWP_DDP_TAGGED	= 0x80,
	SWP_DDP_LAST	= 0x40,
	SWP_DDP_DV_MASK	= 0x03,
	SWP_DDP_DV	= 0x01,
};

/* RDMAP control octet, RFC 5040 section 4.1 */
enum swp_rdmap_ctrl {
	SWP_RDMAP_RV_MASK	= 0xc0,
	SWP_RDMAP_RV		= 0x40,
	SWP_RDMAP_OP_MASK	= 0x0f,
};

enum swp_rdmap_opcode {
	SWP_RDMAP_WRITE		= 0x0,
	SWP_RDMAP_READ_REQ	= 0x1,
	SWP_RDMAP_READ_RESP	= 0x2,
	SWP_RDMAP_SEND		= 0x3,
	SWP_RDMAP_SEND_INV	= 0x4,
	SWP_RDMAP_SEND_SE	= 0x5,
	SWP_RDMAP_SEND_SE_INV	= 0x6,
	SWP_RDMAP_TERMINATE	= 0x7,
	/* RFC 7306 section 4.1 */
	SWP_RDMAP_IMM		= 0x8,
	SWP_RDMAP_IMM_SE	= 0x9,
	SWP_RDMAP_ATOMIC_REQ	= 0xa,
	SWP_RDMAP_ATOMIC_RESP	= 0xb,
};

enum swp_ddp_qn {
	SWP_QN_SEND		= 0,
	SWP_QN_READ_REQ		= 1,
	SWP_QN_TERMINATE	= 2,
	SWP_QN_ATOMIC_RESP	= 3,	/* RFC 7306 */
	SWP_QN_COUNT,
};

/* RFC 7306 section 5.2.1 */
enum swp_atomic_op {
	SWP_ATOMIC_FETCH_ADD	= 0x0,
	SWP_ATOMIC_CMP_SWAP	= 0x2,
};

/* How a stream differs from plain RFC 5040; or-ed together */
enum swp_accept {
	/*
	 * Version 00b of DDP and RDMAP, the RDMA Consortium's, instead of 01b.
	 * RFC 5041 section 4.1: all segments, both ways, have one version.
	 */
	SWP_ACCEPT_RDMAC	= 1,
	SWP_ACCEPT_EXT		= 2,	/* the operations of RFC 7306 */
};

/* wire layout: no holes, no alignment; the pragma works in every build */
#pragma pack(push, 1)

struct swp_ddp_tagged {
	__u8 ctrl;
	__u8 rdmap;
	__be32 stag;
	__be64 to;
};

struct swp_ddp_untagged {
	__u8 ctrl;
	__u8 rdmap;
	__be32 inv_stag;
	__be32 qn;
	__be32 msn;
	__be32 mo;
};

struct swp_read_req {
	__be32 sink_stag;
	__be64 sink_to;
	__be32 size;
	__be32 src_stag;
	__be64 src_to;
};

/* RFC 7306 section 5.2.1 */
struct swp_atomic_req_wire {
	__be32 op;		/* 28 bits reserved, enum swp_atomic_op */
	__be32 id;
	__be32 stag;
	__be64 to;
	__be64 data;
	__be64 mask;
	__be64 compare;
	__be64 compare_mask;
};

/* RFC 7306 section 5.2.2 */
struct swp_atomic_resp_wire {
	__be32 id;
	__be64 value;
};

#pragma pack(pop)

#define SWP_TAGGED_LEN		14
#define SWP_UNTAGGED_LEN	18
#define SWP_READ_REQ_LEN	28
#define SWP_ATOMIC_REQ_LEN	52
#define SWP_ATOMIC_RESP_LEN	12
#define SWP_IMM_LEN		8
/*
 * The first four of the eight octets are the immediate data of the verbs.  The
 * others are zero, except that the last one has this value in immediate data
 * without a Write: the receiver must not pair them with an earlier Write.
 */
#define SWP_IMM_ALONE		1
/* headers of a Read Request */
#define SWP_MAX_HDR		(SWP_UNTAGGED_LEN + SWP_READ_REQ_LEN)
/* control, segment length, untagged header, Read Request header */
#define SWP_TERM_MAX		(4 + 2 + SWP_UNTAGGED_LEN + SWP_READ_REQ_LEN)

/* HdrCt bits of the third octet */
enum swp_term_hdrct {
	SWP_TERM_M	= 0x80,
	SWP_TERM_D	= 0x40,
	SWP_TERM_R	= 0x20,
};

/* A decoded segment header; host byte order. */
struct swp_seg {
	bool tagged;
	bool last;
	__u8 opcode;		/* enum swp_rdmap_opcode */
	__u8 hdr_len;		/* 14 or 18 */
	__u32 stag;		/* tagged: STag; untagged: Invalidate STag */
	__u64 to;		/* tagged */
	__u32 qn;		/* untagged, and the two below */
	__u32 msn;
	__u32 mo;
	__u32 payload;		/* octets after the DDP header */
};

/* The fields of a Read Request; host byte order. */
struct swp_rreq {
	__u32 sink_stag;
	__u64 sink_to;
	__u32 size;
	__u32 src_stag;
	__u64 src_to;
};

/* An Atomic Request; host byte order. */
struct swp_atomic {
	__u8 op;		/* enum swp_atomic_op */
	__u32 id;
	__u32 stag;
	__u64 to;
	__u64 data;		/* to add, or to store */
	__u64 mask;		/* highest bits of fields, or bits to store */
	__u64 compare;		/* CMP_SWAP only */
	__u64 compare_mask;	/* CMP_SWAP only */
};

/*
 * swp_seg_decode - check and decode the headers of one ULPDU.
 * @buf: the first octets of the ULPDU, min(@ulpdu_len, 18) of them readable
 * @ulpdu_len: octets of the whole ULPDU, from the MPA length field
 * @accept: enum swp_accept, or-ed together
 * @seg: the header; hdr_len is 0 if the ULPDU is too short for one, else all
 *     fields are valid, whatever is returned
 *
 * Returns SWP_FAULT_NONE, or the fault.  Order of checks as in RFC 5040 section
 * 7.2: DDP fields (version, queue number), then the opcode and what depends on
 * it, then the RDMAP version.  The caller checks sequence numbers and buffers.
 * Those are DDP's, so for an untagged segment a fault in them takes precedence
 * over a fault of layer RDMAP that this function returns.
 */
enum swp_fault swp_seg_decode(const __u8 *buf, __u32 ulpdu_len,
			      unsigned int accept, struct swp_seg *seg);

/* Write a tagged header: 14 octets. */
void swp_tagged_encode(__u8 *buf, __u8 opcode, bool last, __u32 stag, __u64 to);
/* Write an untagged header: 18 octets. */
void swp_untagged_encode(__u8 *buf, __u8 opcode, bool last, __u32 inv_stag,
			 __u32 qn, __u32 msn, __u32 mo);

/* Change an encoded header to the versions of the RDMA Consortium. */
void swp_seg_make_rdmac(__u8 *buf);

/* The 28 octets of a Read Request header, RFC 5040 section 4.4 */
void swp_rreq_decode(const __u8 *buf, struct swp_rreq *r);
void swp_rreq_encode(__u8 *buf, const struct swp_rreq *r);

/*
 * The 52 octets after the DDP header of an Atomic Request.  Decoding returns
 * -EPROTO if the operation is unknown.
 */
void swp_atomic_encode(__u8 *buf, const struct swp_atomic *a);
int swp_atomic_decode(const __u8 *buf, struct swp_atomic *a);
/* The new value of the memory, RFC 7306 section 5.1 */
__u64 swp_atomic_result(const struct swp_atomic *a, __u64 old);
/* The 12 octets of an Atomic Response */
void swp_atomic_resp_encode(__u8 *buf, __u32 id, __u64 value);
void swp_atomic_resp_decode(const __u8 *buf, __u32 *id, __u64 *value);

/*
 * swp_term_encode - build the payload of a Terminate, after its DDP header.
 * @buf: room for SWP_TERM_MAX octets
 * @ddp: the failed segment's DDP header as received, or NULL
 * @ddp_len: 14 or 18
 * @seg_len: ULPDU_Length of the failed segment
 * @rreq: the failed Read Request's 28 octets, or NULL
 *
 * Returns octets written.  RFC 5040 section 4.8: M and D go together.
 */
__u32 swp_term_encode(__u8 *buf, const struct swp_term *t, const __u8 *ddp,
		      __u32 ddp_len, __u16 seg_len, const __u8 *rreq);

/*
 * swp_term_decode - decode the payload of a Terminate.
 * @len: octets after the DDP header
 * @msn: set to the MSN of the untagged segment inside, 0 if there is none
 * @rreq: set to the Read Request header inside, or NULL if there is none
 *
 * Returns 0, or -EPROTO if it is shorter than its control field.
 */
int swp_term_decode(const __u8 *buf, __u32 len, struct swp_term *t, __u32 *msn,
		    const __u8 **rreq);

/*
 * Decode the DDP header inside a Terminate's payload, unchecked: the segment
 * that the peer complains about.  False: there is none.
 */
bool swp_term_culprit(const __u8 *buf, __u32 len, struct swp_seg *seg);

#endif /* SWP_PROTO_RDMAP_H */
