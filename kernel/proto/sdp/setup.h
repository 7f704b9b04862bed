/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hello and HelloAck: what each end says of itself, and what it takes from the
 * other; draft-pinkerton-iwarp-sdp-01 sections 6.2 and 8.1.1.
 */
#ifndef SDP_PROTO_SETUP_H
#define SDP_PROTO_SETUP_H

#include "wire.h"

/* What an end offers */
struct sdp_offer {
	__u32 posted;		/* receive buffers; see credit.h for the least */
	__u32 rcv_size;		/* of each of them */
	__u32 want_size;	/* that the peer's should have; connector only */
	__u16 max_adverts;	/* that it keeps in mind, > 0 */
	__u16 ird;		/* depths of the device, > 0 */
	__u16 ord;
};

/* What has come of it */
struct sdp_terms {
	__u16 bufs;		/* initial credit that the peer gives */
	__u16 max_adverts;	/* that the peer keeps in mind */
	__u32 rcv_size;		/* of the peer's buffers */
	__u32 want_size;	/* that it would like ours to have; 0: no wish */
	__u16 ird;		/* our depths, lowered to what the peer can use */
	__u16 ord;
	__u8 minor;		/* the version that both follow */
};

/* Why a set-up ends here */
enum sdp_refusal {
	SDP_ACCEPTABLE,
	SDP_NO_HELLO,		/* another message, or malformed */
	SDP_NO_VERSION,		/* major */
	SDP_NO_ADVERTS,		/* MaxAdverts 0 */
	SDP_NO_DEPTH,		/* LocIRD or LocORD 0 */
	SDP_NO_BUFS,		/* less than three */
	SDP_NO_SIZE,		/* less than 37 octets, or more than 2^31 */
	SDP_REFUSALS
};

/* Both fill in the whole message. */
void sdp_hello_make(const struct sdp_offer *own, struct sdp_msg *msg);
/* @own: with the depths that sdp_hello_check() has left */
void sdp_hello_ack_make(const struct sdp_offer *own, struct sdp_msg *msg);

/*
 * Check what the other end says.  SDP_ACCEPTABLE: @terms is filled in.  Sequence
 * numbers, flags and what is reserved are not looked at, and a minor version is
 * no reason to refuse; the lower one holds (section 8.1.1).
 */
enum sdp_refusal sdp_hello_check(const struct sdp_offer *own,
				 const struct sdp_msg *msg,
				 struct sdp_terms *terms);
enum sdp_refusal sdp_hello_ack_check(const struct sdp_offer *own,
				     const struct sdp_msg *msg,
				     struct sdp_terms *terms);

#endif /* SDP_PROTO_SETUP_H */
