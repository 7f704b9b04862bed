/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who sends what waits in a link's queue, when there is credit for it.
 *
 * Sending costs copies and checksums.  In softirq that would be at the expense of
 * whoever is there: most often the program that reads at the other end of a connection
 * within this machine, and has just given credit.  So what is large is left to the
 * program that writes, if it sleeps for room, or to the work item.
 *
 * Nothing is lost by that: who sleeps has said so under the link's lock, looks for
 * @due before it sleeps, and sends what there is when it wakes, for whatever reason.
 * If it does not come to that before a timer ends, the work item does.
 * Pure; tests/model/push.pml has the model checker run it in all interleavings.
 */
#ifndef SDP_PROTO_PUSH_H
#define SDP_PROTO_PUSH_H

#include "../base.h"

/* So much payload is large. */
#define SDP_PUSH_LARGE	(64U << 10)

enum sdp_push {
	SDP_PUSH_HERE,		/* who asks does it */
	SDP_PUSH_WAKE,		/* a process that sleeps in send(), to be woken */
	SDP_PUSH_WOKEN,		/* such a one, which was woken for that */
	SDP_PUSH_WORK,		/* the work item, to be queued */
};

/*
 * sdp_push_by - @softirq asks for it, or a process
 * @pushers: processes that sleep until there is room
 * @due: one of them was woken to send, and has not run yet
 */
static inline enum sdp_push sdp_push_by(bool softirq, __u64 octets,
					__u32 pushers, bool due)
{
	if (!softirq || octets <= SDP_PUSH_LARGE)
		return SDP_PUSH_HERE;
	if (!pushers)
		return SDP_PUSH_WORK;
	return due ? SDP_PUSH_WOKEN : SDP_PUSH_WAKE;
}

#endif /* SDP_PROTO_PUSH_H */
