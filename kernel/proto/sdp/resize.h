/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ChRcvBuf and ChRcvBufAck: an end asks the other one for larger or smaller
 * receive buffers; draft-pinkerton-iwarp-sdp-01 section 10.6.
 *
 * Asked for less, an end sends no larger messages from that moment on; for more,
 * it waits for the answer.  Where both ask at once, the connecting peer answers
 * and its own request is void; the accepting one ignores that (section 10.6.1).
 */
#ifndef SDP_PROTO_RESIZE_H
#define SDP_PROTO_RESIZE_H

#include "wire.h"

struct sdp_resize {
	bool connector;
	/* the peer's buffers */
	__u32 peer;		/* no message of ours is larger */
	__u32 old;		/* before we asked */
	__u32 asked;		/* for; 0: no request is open */
	bool due;		/* and it is not sent yet */
	bool voided;		/* our last request, by one of the peer's */
	bool no_more;		/* larger ones were denied */
	bool no_less;
	/* our own */
	__u32 own;		/* octets, as the peer knows */
	__u32 wish;		/* of the peer; 0: none, or answered */
	__u32 answer;		/* 0: none yet */
	__u64 when;		/* messages to come in before it is sent */
};

enum sdp_resize_fault {
	SDP_RESIZE_OK,
	SDP_RESIZE_TWICE,	/* a second request before the answer */
	SDP_RESIZE_NEVER,	/* an answer without a request */
	SDP_RESIZE_SIZE,	/* an answer that goes the wrong way */
};

void sdp_resize_init(struct sdp_resize *r, bool connector, __u32 peer, __u32 own);

/*
 * Ask for buffers of that size.  False: not now, or never again in this direction;
 * also if they have it, or if it is less than a message needs.
 */
bool sdp_resize_ask(struct sdp_resize *r, __u32 size);

/* The request goes out now.  Returns its DesSz. */
__u32 sdp_resize_asked(struct sdp_resize *r);

/* ChRcvBufAck came in. */
enum sdp_resize_fault sdp_resize_take_ack(struct sdp_resize *r, __u32 size);

/*
 * ChRcvBuf came in.  *@act: we are to choose a size and to call
 * sdp_resize_answer(); the wish is in @wish.
 */
enum sdp_resize_fault sdp_resize_take(struct sdp_resize *r, __u32 size, bool *act);

/*
 * sdp_resize_answer - buffers posted from now on have that size
 * @size: made to fit the rules: no less than the wish where it is for less, no
 *	  less than now where it is for more
 * @posted: buffers over the life of the connection; with larger ones the answer
 *	    waits for so many messages, because until then some are smaller
 * Returns the size that holds.
 */
__u32 sdp_resize_answer(struct sdp_resize *r, __u32 size, __u64 posted);

/* Is the answer due, with so many messages received?  Then sent goes with it. */
bool sdp_resize_ack_due(const struct sdp_resize *r, __u64 received);
__u32 sdp_resize_acked(struct sdp_resize *r);

#endif /* SDP_PROTO_RESIZE_H */
