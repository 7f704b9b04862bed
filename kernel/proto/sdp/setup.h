/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hello and HelloAck: what each end offers, and what it accepts from the other;
 * draft-pinkerton-iwarp-sdp-01 sections 6.2 and 8.1.1.
 */
#ifndef SDP_PROTO_SETUP_H
#define SDP_PROTO_SETUP_H

#include "wire.h"

/* What an end offers */
struct sdp_offer {
	__u32 posted;		/* receive buffers; credit.h has the minimum */
	__u32 rcv_size;		/* octets of each receive buffer */
	__u32 want_size;	/* size wanted of the peer's; connector only */
	__u16 max_adverts;	/* advertisements that it can hold, > 0 */
	__u16 ird;		/* depths of the device, > 0 */
	__u16 ord;
};

/* The result of the exchange */
struct sdp_terms {
	__u16 bufs;		/* initial credit from the peer */
	__u16 max_adverts;	/* advertisements that the peer can hold */
	__u32 rcv_size;		/* octets of each of the peer's buffers */
	__u32 want_size;	/* size that it wants of ours; 0: none */
	__u16 ird;		/* our depths, lowered to what the peer can use */
	__u16 ord;
	__u8 minor;		/* the version that both follow */
};

/* Why this end refuses a set-up */
enum sdp_refusal {
	SDP_ACCEPTABLE,
	SDP_NO_HELLO,		/* another message, or malformed */
	SDP_NO_VERSION,		/* unknown major version */
	SDP_NO_ADVERTS,		/* MaxAdverts is 0 */
	SDP_NO_DEPTH,		/* LocIRD or LocORD is 0 */
	SDP_NO_BUFS,		/* fewer than three */
	SDP_NO_SIZE,		/* less than 37 octets, or more than 2^31 */
	SDP_REFUSALS
};

/* Both fill in the whole message. */
void sdp_hello_make(const struct sdp_offer *own, struct sdp_msg *msg);
/* @own: with the depths that sdp_hello_check() returned in its terms */
void sdp_hello_ack_make(const struct sdp_offer *own, struct sdp_msg *msg);

/*
 * Check the other end's message.  SDP_ACCEPTABLE: @terms is filled in.  Ignores
 * sequence numbers, flags and reserved fields.  A different minor version is no
 * reason to refuse: both ends follow the lower one (section 8.1.1).
 */
enum sdp_refusal sdp_hello_check(const struct sdp_offer *own,
				 const struct sdp_msg *msg,
				 struct sdp_terms *terms);
enum sdp_refusal sdp_hello_ack_check(const struct sdp_offer *own,
				     const struct sdp_msg *msg,
				     struct sdp_terms *terms);

#endif /* SDP_PROTO_SETUP_H */
