/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MPA start-up: the Request and Reply frames (RFC 5044 section 7.1, RFC 6581
 * sections 6 and 9) and what the two ends agree upon by them.  Pure code.
 */
#ifndef SWP_PROTO_MPA_H
#define SWP_PROTO_MPA_H

#include "base.h"

#define SWP_MPA_KEY_LEN		16
#define SWP_MPA_HDR_LEN		20	/* key, flags, revision, PD_Length */
#define SWP_MPA_PD_MAX		512	/* PD_Length, RFC 5044 section 7.1.1 */
#define SWP_MPA_ENH_LEN		4	/* enhanced data, RFC 6581 section 9 */
#define SWP_MPA_FRAME_MAX	(SWP_MPA_HDR_LEN + SWP_MPA_PD_MAX)

/*
 * The RDMA Consortium's, RFC 5044 appendix C: markers and CRC both ways, and
 * version 00b of DDP and RDMAP.
 */
#define SWP_MPA_REV_RDMAC	0
#define SWP_MPA_REV_MIN		1	/* RFC 5044 */
#define SWP_MPA_REV_MAX		2	/* RFC 6581 */

/* IRD or ORD: "do not negotiate, the ULP does", RFC 6581 section 9.1 */
#define SWP_MPA_DEPTH_NONE	0x3fff

enum swp_mpa_kind {
	SWP_MPA_REQUEST,
	SWP_MPA_REPLY,
};

/* Octet 16 of a frame */
enum swp_mpa_flags {
	SWP_MPA_F_MARKERS	= 0x80,	/* M: markers wanted in what I receive */
	SWP_MPA_F_CRC		= 0x40,	/* C: CRC wanted */
	SWP_MPA_F_REJECT	= 0x20,	/* R: Reply only */
	SWP_MPA_F_ENHANCED	= 0x10,	/* S: enhanced data, revision 2 on */
};

/* Ready-to-receive indications: first FPDU of a peer-to-peer initiator */
enum swp_mpa_rtr {
	SWP_RTR_SEND	= 1 << 0,	/* B: zero-length Send */
	SWP_RTR_WRITE	= 1 << 1,	/* C: zero-length RDMA Write */
	SWP_RTR_READ	= 1 << 2,	/* D: zero-length RDMA Read Request */
};

/* A Request or Reply frame; host byte order. */
struct swp_mpa_frame {
	__u8 rev;
	bool markers;
	bool crc;
	bool reject;		/* Reply */
	bool enhanced;		/* the fields up to ord count */
	bool p2p;		/* A: peer-to-peer, an RTR follows the Reply */
	__u8 rtr;		/* enum swp_mpa_rtr; 0 unless p2p */
	__u16 ird;		/* 14 bits */
	__u16 ord;
	const __u8 *pd;		/* the ULP's private data */
	__u16 pd_len;		/* without the enhanced data */
};

/* What this end wants and is able to do. */
struct swp_mpa_local {
	__u16 ird;		/* inbound reads the ULP asks for */
	__u16 ord;		/* outbound reads the ULP asks for */
	__u16 max_ird;		/* what could be granted, < SWP_MPA_DEPTH_NONE */
	__u8 rtr;		/* kinds this end can send or take, not 0 */
	bool p2p;		/* initiator: peer-to-peer wanted */
	bool crc;
	bool markers;		/* wanted in what this end receives */
};

/* What both ends agreed upon. */
struct swp_mpa_result {
	bool crc;
	bool tx_markers;	/* to be put into what this end sends */
	bool rx_markers;	/* to be expected in what it receives */
	/*
	 * Initiator: the one kind to send; responder: those that may come; 0:
	 * client-server.
	 */
	__u8 rtr;
	__u16 ird;		/* reads the peer may have outstanding */
	__u16 ord;		/* reads this end may have outstanding */
};

enum swp_mpa_verdict {
	SWP_MPA_AGREED,
	SWP_MPA_REJECTED,	/* Reply with R=1 */
	SWP_MPA_INVALID,	/* Reply does not answer the Request */
	SWP_MPA_NO_IRD,		/* Terminate: SWP_FAULT_MPA_IRD */
	SWP_MPA_NO_RTR,		/* Terminate: SWP_FAULT_MPA_RTR */
};

/* Octets of a whole frame */
static inline __u32 swp_mpa_frame_len(const struct swp_mpa_frame *f)
{
	return SWP_MPA_HDR_LEN + (f->enhanced ? SWP_MPA_ENH_LEN : 0) +
	       f->pd_len;
}

/* Octets of the ULP's private data that a frame of this format has room for */
static inline __u16 swp_mpa_pd_room(const struct swp_mpa_frame *f)
{
	return SWP_MPA_PD_MAX - (f->enhanced ? SWP_MPA_ENH_LEN : 0);
}

/*
 * swp_mpa_decode - take in a frame piece by piece.
 * @kind: what it has to be
 * @min_rev, @max_rev: lowest and highest revision this end takes
 * @buf, @len: what arrived so far, from the first octet of the frame
 * @f: result when 0 is returned; f->pd points into @buf
 * @need: octets, from the first one on, to read up to before the next call when
 *        -EAGAIN is returned; size of the frame when 0 is.  Never reaches
 *        beyond the frame: what follows belongs to the FPDU stream.
 *
 * Returns 0, -EAGAIN, or what makes the frame invalid, as soon as it is known:
 * -EBADMSG wrong key, -EPROTONOSUPPORT revision, -EMSGSIZE PD_Length over 512,
 * -EPROTO enhanced flag without room for the enhanced data, or revision 0
 * without markers or CRC.
 */
int swp_mpa_decode(enum swp_mpa_kind kind, __u8 min_rev, __u8 max_rev,
		   const __u8 *buf, size_t len, struct swp_mpa_frame *f,
		   size_t *need);

/*
 * swp_mpa_encode - write a frame into @buf of SWP_MPA_FRAME_MAX octets.
 * Returns its length, or -EMSGSIZE when the private data do not fit.
 */
int swp_mpa_encode(enum swp_mpa_kind kind, const struct swp_mpa_frame *f,
		   __u8 *buf);

/*
 * swp_mpa_request - fill in a Request of revision @rev at most; private data
 * are left to the caller.  When nothing is wanted that needs the enhanced
 * format, neither peer-to-peer nor reads in any direction, it is one of
 * revision 1 (RFC 6581 section 10).
 */
void swp_mpa_request(const struct swp_mpa_local *l, __u8 rev,
		     struct swp_mpa_frame *req);

/*
 * swp_mpa_respond - the responder's part, when the ULP accepts.
 * @rep: the Reply without private data
 */
void swp_mpa_respond(const struct swp_mpa_local *l,
		     const struct swp_mpa_frame *req, struct swp_mpa_frame *rep,
		     struct swp_mpa_result *res);

/*
 * swp_mpa_refuse - fill in a Reply with R=1; private data are the caller's.
 * Depths and RTR kinds of an enhanced one are those of an acceptance, so that
 * it names no need that the ULP did not state.
 */
void swp_mpa_refuse(const struct swp_mpa_local *l,
		    const struct swp_mpa_frame *req, struct swp_mpa_frame *rep);

/*
 * swp_mpa_conclude - the initiator's part; @res holds for SWP_MPA_AGREED, and
 * for the verdicts that ask for a Terminate as far as its FPDU needs it.
 */
enum swp_mpa_verdict swp_mpa_conclude(const struct swp_mpa_local *l,
				      const struct swp_mpa_frame *req,
				      const struct swp_mpa_frame *rep,
				      struct swp_mpa_result *res);

#endif /* SWP_PROTO_MPA_H */
