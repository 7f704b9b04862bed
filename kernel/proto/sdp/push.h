/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which context sends the octets queued on a link once there is credit.
 *
 * Sending costs copies and checksums.  In softirq the interrupted process pays
 * for them: most often, on a connection within one host, the program that reads
 * at the other end and has just given credit.  So softirq leaves a large amount
 * to the program that writes, if it sleeps for room, or to a work item on the
 * processor on which that program sends.
 *
 * No octets get stuck: a process that sleeps is counted under the link's lock,
 * checks @due before it sleeps, and sends when it wakes, whatever woke it.  If
 * it does not get to run before a timer expires, the work item sends.  Pure;
 * the model checker runs it in all interleavings (tests/model/push.pml).
 */
#ifndef SDP_PROTO_PUSH_H
#define SDP_PROTO_PUSH_H

#include "../base.h"

/* More payload than this is a large amount. */
#define SDP_PUSH_LARGE	(64U << 10)

enum sdp_push {
	SDP_PUSH_HERE,		/* the caller */
	SDP_PUSH_WAKE,		/* a process that sleeps in send(): wake it */
	SDP_PUSH_WOKEN,		/* such a process, already woken to send */
	SDP_PUSH_WORK,		/* a work item: queue it */
};

/*
 * sdp_push_by - which context sends
 * @softirq: the caller is in softirq
 * @octets: queued
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
