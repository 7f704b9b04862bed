/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who may send how many messages: sequence numbers, acknowledgements and buffer
 * credits.  draft-pinkerton-iwarp-sdp-01 sections 6.1.3 to 6.1.6, 10.1 to 10.5.
 *
 * MSeqAck of 0 says "nothing yet" as well as "message 0".  As the sender we take
 * it for the first until the peer has acknowledged more; as the receiver we keep
 * two buffers back, for a peer that takes it for the second.
 */
#ifndef SDP_PROTO_CREDIT_H
#define SDP_PROTO_CREDIT_H

#include "wire.h"

/* The least that an end may begin with, sections 10 and 10.3 */
#define SDP_BUFS_MIN	3
/* Buffers that are posted and not told of until the peer's message 2 is here */
#define SDP_BUFS_SPARE	2
/* At a time, section 6.1.3 */
#define SDP_BUFS_MAX	65535

/* Totals are over the life of the connection and do not wrap. */
struct sdp_credits {
	/* our messages */
	__u64 sent;		/* the next one has MSeq of that value */
	__u64 acked;		/* the peer has received so many of them */
	__u64 limit;		/* and has buffers for so many */
	bool clear;		/* MSeqAck was more than 0 once */
	/* the peer's messages */
	__u64 received;
	__u64 posted;		/* our buffers */
	__u64 told;		/* the peer has been told of so many of them */
	__u64 reach;		/* so many messages it may send, as it reckons */
	__u64 spare;		/* so many it is not told of */
	__u8 extra;		/* messages in @received that have no MSeq */
	bool held;		/* MSeqAck stays at @hold */
	__u32 hold;
};

/* What is wrong with the numbers of a message */
enum sdp_credit_fault {
	SDP_CREDIT_OK,
	SDP_CREDIT_MSEQ,	/* not the next one */
	SDP_CREDIT_ACK,		/* of what was not sent, or less than before */
	SDP_CREDIT_OVERRUN,	/* more messages than buffers */
};

/*
 * sdp_credits_init - both Hello and HelloAck have been exchanged
 * @connector: we have sent the Hello; HelloAck used one of our buffers
 * @posted: buffers that were posted before that; >= SDP_BUFS_MIN + SDP_BUFS_SPARE
 * @peer_bufs: of the peer's Hello or HelloAck
 */
void sdp_credits_init(struct sdp_credits *c, bool connector, __u32 posted,
		      __u16 peer_bufs);

/* Bufs for a Hello or HelloAck, of so many posted buffers */
__u16 sdp_credits_first(__u32 posted);

/* Messages that we may send now; section 10.2 */
__u64 sdp_credits_left(const struct sdp_credits *c);

/* Would a message sent now tell the peer of more buffers? */
bool sdp_credits_gives(const struct sdp_credits *c);

/*
 * May this message be sent?  The last credit is for messages that give some, the
 * last but one for those without payload; section 10.5.
 */
bool sdp_credits_allow(const struct sdp_credits *c, bool payload);

/*
 * The peer may have one buffer more than we reckon: it has taken in message 0, and
 * the MSeqAck that it has said cannot tell, before message 1 has come, too.
 */
bool sdp_credits_unclear(const struct sdp_credits *c);

/*
 * There is payload, and credit for an empty message only.  A peer need not tell
 * of new buffers before it sees us down to one credit, so we go there.
 * @again: that was some time ago, and nothing has come: as far as there is credit
 *	   in the eyes of the peer, message 0 taken for received
 */
bool sdp_credits_ask(const struct sdp_credits *c, bool again);

/*
 * The peer waits for buffers, or nearly so, and we have some: an update is due
 * although there is nothing to say; sections 10.4 and 10.5.  Of an update comes
 * no other: it takes two messages at least that the peer has sent.
 * @flows: more payload follows soon and carries the update, so a peer that has
 *	    buffers left can wait for that
 */
bool sdp_credits_due(const struct sdp_credits *c, bool flows);

/* So many more buffers were posted. */
void sdp_credits_post(struct sdp_credits *c, __u32 count);

/* Room for more, SDP_BUFS_MAX at a time */
__u32 sdp_credits_room(const struct sdp_credits *c);

/* Fill in Bufs, MSeq and MSeqAck of a message, which is then sent in this order. */
void sdp_credits_stamp(struct sdp_credits *c, struct sdp_msg *msg);

/* A message came in. */
enum sdp_credit_fault sdp_credits_take(struct sdp_credits *c,
				       const struct sdp_msg *msg);

/*
 * The message taken last, a SrcAvailCancel, is not acknowledged for now, nor any
 * after it; section 9.5.4.
 */
void sdp_credits_hold(struct sdp_credits *c);
void sdp_credits_release(struct sdp_credits *c);

#endif /* SDP_PROTO_CREDIT_H */
