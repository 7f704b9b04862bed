/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ChRcvBuf and ChRcvBufAck: an end asks the other one for larger or smaller
 * receive buffers; draft-pinkerton-iwarp-sdp-01 section 10.6.
 *
 * An end that asks for smaller buffers sends no larger messages from that
 * moment on; an end that asks for larger ones waits for the answer.  If both
 * ask at once, the connecting peer answers and its own request is void; the
 * accepting peer ignores the other's request (section 10.6.1).
 */
#ifndef SDP_PROTO_RESIZE_H
#define SDP_PROTO_RESIZE_H

#include "wire.h"

struct sdp_resize {
	bool connector;
	/* the peer's buffers */
	__u32 peer;		/* limit for our messages, octets */
	__u32 old;		/* @peer before our request */
	__u32 asked;		/* size requested; 0: no request is open */
	bool due;		/* the request is not sent yet */
	bool voided;		/* the peer's request voided our last one */
	bool no_more;		/* a request for larger ones was denied */
	bool no_less;		/* a request for smaller ones was denied */
	/* our own buffers */
	__u32 own;		/* octets, as the peer knows */
	__u32 wish;		/* the peer's request; 0: none, or answered */
	__u32 answer;		/* size to answer with; 0: none yet */
	__u64 when;		/* send it after so many received messages */
};

enum sdp_resize_fault {
	SDP_RESIZE_OK,
	SDP_RESIZE_TWICE,	/* a second request before the answer */
	SDP_RESIZE_NEVER,	/* an answer without a request */
	SDP_RESIZE_SIZE,	/* an answer out of range, or the wrong way */
};

void sdp_resize_init(struct sdp_resize *r, bool connector, __u32 peer, __u32 own);

/*
 * Ask the peer for buffers of @size.  False: a request is open, the peer has
 * denied one in this direction, its buffers have that size already, or no
 * message fits such a buffer.
 */
bool sdp_resize_ask(struct sdp_resize *r, __u32 size);

/* The request is sent now.  Returns its DesSz. */
__u32 sdp_resize_asked(struct sdp_resize *r);

/* ChRcvBufAck has arrived. */
enum sdp_resize_fault sdp_resize_take_ack(struct sdp_resize *r, __u32 size);

/*
 * ChRcvBuf has arrived.  If *@act the caller has to choose a size and to call
 * sdp_resize_answer(); r->wish has the size that the peer asks for.
 */
enum sdp_resize_fault sdp_resize_take(struct sdp_resize *r, __u32 size, bool *act);

/*
 * sdp_resize_answer - choose the size of the buffers posted from now on
 * @size: adjusted to the rules: for smaller buffers, between the wish and the
 *	  present size; for larger ones, no less than the present size
 * @posted: buffers posted over the life of the connection.  An answer with a
 *	    larger size waits until so many messages have arrived: before that
 *	    some buffers are smaller
 * Returns the adjusted size.
 */
__u32 sdp_resize_answer(struct sdp_resize *r, __u32 size, __u64 posted);

/* Is the answer due after @received messages?  Call _acked() as it is sent. */
bool sdp_resize_ack_due(const struct sdp_resize *r, __u64 received);
__u32 sdp_resize_acked(struct sdp_resize *r);

#endif /* SDP_PROTO_RESIZE_H */
