/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MPA start-up: the Request and Reply frames (RFC 5044 section 7.1, RFC 6581
 * sections 6 and 9) and what the two ends negotiate with them.  Pure code.
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
 * Revision of the RDMA Consortium, RFC 5044 appendix C: markers and CRC in both
 * directions, and version 00b of DDP and RDMAP.
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
	SWP_MPA_F_MARKERS	= 0x80,	/* M: sender wants to receive markers */
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
	bool reject;		/* Reply only */
	bool enhanced;		/* p2p, rtr, ird and ord are valid */
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
	__u16 max_ird;		/* most it can grant, < SWP_MPA_DEPTH_NONE */
	__u8 rtr;		/* kinds this end can send or receive, not 0 */
	bool p2p;		/* initiator: peer-to-peer wanted */
	bool crc;
	bool markers;		/* this end wants to receive markers */
};

/* What both ends have negotiated. */
struct swp_mpa_result {
	bool crc;
	bool tx_markers;	/* this end sends markers */
	bool rx_markers;	/* this end receives markers */
	/*
	 * Initiator: the one kind to send; responder: the kinds that may come;
	 * 0: client-server.
	 */
	__u8 rtr;
	__u16 ird;		/* reads the peer may have outstanding */
	__u16 ord;		/* reads this end may have outstanding */
};

enum swp_mpa_verdict {
	SWP_MPA_AGREED,
	SWP_MPA_REJECTED,	/* Reply with R=1 */
	SWP_MPA_INVALID,	/* Reply does not answer the Request */
	SWP_MPA_NO_IRD,		/* send a Terminate: SWP_FAULT_MPA_IRD */
	SWP_MPA_NO_RTR,		/* send a Terminate: SWP_FAULT_MPA_RTR */
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
 * swp_mpa_decode - decode a frame that arrives in pieces.
 * @kind: the expected kind
 * @min_rev, @max_rev: lowest and highest revision that this end accepts
 * @buf, @len: the octets so far, from the first one of the frame
 * @f: result if 0 is returned; f->pd points into @buf
 * @need: if -EAGAIN is returned, octets of the frame that must be in @buf for
 *        the next call; if 0 is returned, octets of the whole frame.  It never
 *        goes beyond the frame: what follows belongs to the FPDU stream.
 *
 * Returns 0, -EAGAIN, or an error as soon as the frame is known to be invalid:
 * -EBADMSG wrong key, -EPROTONOSUPPORT revision, -EMSGSIZE PD_Length over 512,
 * -EPROTO enhanced flag without room for the enhanced data, or revision 0
 * without markers or CRC.
 */
int swp_mpa_decode(enum swp_mpa_kind kind, __u8 min_rev, __u8 max_rev,
		   const __u8 *buf, size_t len, struct swp_mpa_frame *f,
		   size_t *need);

/*
 * swp_mpa_encode - write a frame into @buf of SWP_MPA_FRAME_MAX octets.
 * Returns its length, or -EMSGSIZE if the private data do not fit.
 */
int swp_mpa_encode(enum swp_mpa_kind kind, const struct swp_mpa_frame *f,
		   __u8 *buf);

/*
 * swp_mpa_request - fill in a Request of revision @rev at most; the caller adds
 * the private data.  The Request has revision 1 if this end wants neither
 * peer-to-peer nor reads in any direction, and so does not need the enhanced
 * format (RFC 6581 section 10).
 */
void swp_mpa_request(const struct swp_mpa_local *l, __u8 rev,
		     struct swp_mpa_frame *req);

/*
 * swp_mpa_respond - build the responder's Reply when the ULP accepts.
 * @rep: the Reply without private data
 */
void swp_mpa_respond(const struct swp_mpa_local *l,
		     const struct swp_mpa_frame *req, struct swp_mpa_frame *rep,
		     struct swp_mpa_result *res);

/*
 * swp_mpa_refuse - fill in a Reply with R=1; the caller adds the private data.
 * An enhanced rejection has the depths and RTR kinds of an acceptance, so that
 * it requires nothing of the peer that the ULP did not ask for.
 */
void swp_mpa_refuse(const struct swp_mpa_local *l,
		    const struct swp_mpa_frame *req, struct swp_mpa_frame *rep);

/*
 * swp_mpa_conclude - the initiator evaluates the Reply.  @res is valid for
 * SWP_MPA_AGREED; for the verdicts that ask for a Terminate it has what the
 * Terminate's FPDU needs (CRC, markers).
 */
enum swp_mpa_verdict swp_mpa_conclude(const struct swp_mpa_local *l,
				      const struct swp_mpa_frame *req,
				      const struct swp_mpa_frame *rep,
				      struct swp_mpa_result *res);

#endif /* SWP_PROTO_MPA_H */
