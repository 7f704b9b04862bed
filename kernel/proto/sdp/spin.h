/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Is a process to watch for octets for a while before it sleeps for them?
 *
 * To sleep and to be woken on another processor takes several microseconds on
 * both, often more than the wait itself.  So a process that waits in recv()
 * watches first, but only if its last waits were shorter than the limit.  One that
 * watched in vain needs twice as many short waits before it does so again.  Pure.
 */
#ifndef SDP_PROTO_SPIN_H
#define SDP_PROTO_SPIN_H

#include "../base.h"

/* Most short waits in a row that are asked for */
#define SDP_SPIN_NEED_MAX	64

struct sdp_spin {
	__u8 seen;		/* short waits in a row, up to those needed */
	__u8 doubled;		/* 1 << this many are needed */
};

static inline bool sdp_spin_due(const struct sdp_spin *s)
{
	return s->seen >> s->doubled;
}

/* What it waited for has come while it watched. */
static inline void sdp_spin_hit(struct sdp_spin *s)
{
	s->doubled = 0;
	s->seen = 1;
}

/* It has slept.  @spun: after it had watched; @brief: less than the limit in all */
static inline void sdp_spin_slept(struct sdp_spin *s, bool spun, bool brief)
{
	if (spun && 1 << s->doubled < SDP_SPIN_NEED_MAX)
		s->doubled++;
	if (spun || !brief)
		s->seen = 0;
	else if (!sdp_spin_due(s))
		s->seen++;
}

#endif /* SDP_PROTO_SPIN_H */
