/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How much of a peer's payload is under way at a time?
 *
 * A peer that lacks credit is either faster than we are, which more buffers do not
 * change, or far away: then its credit is used up before an update reaches it.  As
 * with TCP's window, what it sends during one round trip tells.  Pure.
 */
#ifndef SDP_PROTO_FLOW_H
#define SDP_PROTO_FLOW_H

#include "../base.h"

struct sdp_flow {
	__u64 octets;		/* received when the peer last asked for credit ... */
	__u64 us;		/* ... at this time; 0: it never did */
};

/*
 * sdp_flow_asked - the peer asks for credit
 * @octets: received over the life of the connection
 * @us: now
 * @rtt: us that a round trip takes when nothing delays it; 0: not known
 * @room: octets, less than 4 GiB
 * Whether since the last time at least @room octets per round trip have come; if
 * that is not known, no.
 */
static inline bool sdp_flow_asked(struct sdp_flow *f, __u64 octets, __u64 us,
				  __u32 rtt, __u32 room)
{
	__u64 more = octets - f->octets;
	__u64 passed = us - f->us;
	bool first = !f->us;

	f->octets = octets;
	f->us = us;
	/* a peer that asks so rarely has enough; and products stay below 1 << 64 */
	if (first || more >> 32 || passed >> 32)
		return false;
	return rtt && more && more * rtt >= (passed ? passed : 1) * room;
}

#endif /* SDP_PROTO_FLOW_H */
