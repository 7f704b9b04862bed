/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many messages each end may send: sequence numbers, acknowledgements and
 * buffer credits.  draft-pinkerton-iwarp-sdp-01 sections 6.1.3 to 6.1.6, 10.1
 * to 10.5.
 *
 * MSeqAck of 0 means both "nothing received yet" and "message 0 received".  As
 * the sender we read it as the first until the peer has acknowledged more.  As
 * the receiver we keep two buffers in reserve, in case the peer reads it as the
 * second.
 */
#ifndef SDP_PROTO_CREDIT_H
#define SDP_PROTO_CREDIT_H

#include "wire.h"

/* Fewest buffers that an end may begin with, sections 10 and 10.3 */
#define SDP_BUFS_MIN	3
/* Posted buffers that we do not advertise until the peer's message 2 is here */
#define SDP_BUFS_SPARE	2
/* Most buffers posted at a time, section 6.1.3 */
#define SDP_BUFS_MAX	65535

/* All counts are totals of the connection's life and do not wrap. */
struct sdp_credits {
	/* our messages */
	__u64 sent;		/* also the MSeq of the next one */
	__u64 acked;		/* of those, received by the peer */
	__u64 limit;		/* messages that the peer has buffers for */
	bool clear;		/* the peer has sent an MSeqAck above 0 */
	/* the peer's messages */
	__u64 received;
	__u64 posted;		/* our buffers */
	__u64 told;		/* of those, advertised to the peer */
	__u64 reach;		/* messages that the peer thinks it may send */
	__u64 spare;		/* posted buffers that we do not advertise */
	__u8 extra;		/* messages in @received that have no MSeq */
	bool held;		/* MSeqAck stays at @hold */
	__u32 hold;
};

/* What is wrong with the numbers of a message */
enum sdp_credit_fault {
	SDP_CREDIT_OK,
	SDP_CREDIT_MSEQ,	/* MSeq is not the next one */
	SDP_CREDIT_ACK,		/* MSeqAck of an unsent message, or decreased */
	SDP_CREDIT_OVERRUN,	/* more messages than buffers */
};

/*
 * sdp_credits_init - both Hello and HelloAck have been exchanged
 * @connector: we have sent the Hello; HelloAck used one of our buffers
 * @posted: buffers posted before that, at least SDP_BUFS_MIN + SDP_BUFS_SPARE
 * @peer_bufs: Bufs of the peer's Hello or HelloAck
 */
void sdp_credits_init(struct sdp_credits *c, bool connector, __u32 posted,
		      __u16 peer_bufs);

/* Bufs for a Hello or HelloAck when @posted buffers are posted */
__u16 sdp_credits_first(__u32 posted);

/* Messages that we may send now; section 10.2 */
__u64 sdp_credits_left(const struct sdp_credits *c);

/* Would a message sent now give the peer more credit? */
bool sdp_credits_gives(const struct sdp_credits *c);

/*
 * May this message be sent?  The last credit is for messages that give credit,
 * the last but one for messages without payload; section 10.5.
 */
bool sdp_credits_allow(const struct sdp_credits *c, bool payload);

/*
 * Is it unknown whether the peer has received message 0?  Until it acknowledges
 * message 1 its MSeqAck is 0 either way, so it may have one more buffer for us
 * than we count.
 */
bool sdp_credits_unclear(const struct sdp_credits *c);

/*
 * There is payload, but credit only for an empty message: shall we send one to
 * get credit?  A peer need not advertise new buffers until it sees us at one
 * credit, so we use up the credit down to that.
 * @again: such a message was sent some time ago without effect.  Then count the
 *	   credit as the peer may do, that is with message 0 received
 */
bool sdp_credits_ask(const struct sdp_credits *c, bool again);

/*
 * Is a message due that only updates the credit?  The peer has run out of
 * buffers, or nearly so, and we have new ones; sections 10.4 and 10.5.  An
 * update does not cause another one in return: at least two messages of the
 * peer must have arrived since the last one.
 * @flows: more payload follows soon and carries the update, so a peer that has
 *	    buffers left can wait for that
 */
bool sdp_credits_due(const struct sdp_credits *c, bool flows);

/* @count more buffers were posted. */
void sdp_credits_post(struct sdp_credits *c, __u32 count);

/* How many more buffers may be posted now; SDP_BUFS_MAX is the limit */
__u32 sdp_credits_room(const struct sdp_credits *c);

/*
 * Fill in Bufs, MSeq and MSeqAck of a message.  The caller must send the
 * messages in the order of these calls.
 */
void sdp_credits_stamp(struct sdp_credits *c, struct sdp_msg *msg);

/* A message has arrived. */
enum sdp_credit_fault sdp_credits_take(struct sdp_credits *c,
				       const struct sdp_msg *msg);

/*
 * Do not acknowledge the last message taken, a SrcAvailCancel, nor any after
 * it, until sdp_credits_release(); section 9.5.4.
 */
void sdp_credits_hold(struct sdp_credits *c);
void sdp_credits_release(struct sdp_credits *c);

#endif /* SDP_PROTO_CREDIT_H */
