/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Is a process to watch for octets for a while before it sleeps for them?
 *
 * To sleep and to be woken on another processor takes several microseconds, in a
 * virtual machine many more.  So a process that waits in recv() watches first, but
 * only if its last waits were short: at most SDP_SPIN_WAKES times as long as it
 * takes to be woken, which is measured, since otherwise there is little to save.
 * One that watched in vain needs twice as many short waits before it does so
 * again.  Pure.
 */
#ifndef SDP_PROTO_SPIN_H
#define SDP_PROTO_SPIN_H

#include "../base.h"

/* Most short waits in a row that are asked for */
#define SDP_SPIN_NEED_MAX	64
/* Wake-ups that a short wait takes at most */
#define SDP_SPIN_WAKES		10

struct sdp_spin {
	__u32 wake;		/* ns from a wake-up to its effect, on average; or 0 */
	__u8 seen;		/* short waits in a row, up to those needed */
	__u8 doubled;		/* 1 << this many are needed */
};

static inline bool sdp_spin_due(const struct sdp_spin *s)
{
	return s->seen >> s->doubled;
}

/* The longest of short waits, in ns; @most: the user's limit, less than 1 s */
static inline __u32 sdp_spin_limit(const struct sdp_spin *s, __u32 most)
{
	return s->wake < most / SDP_SPIN_WAKES ? s->wake * SDP_SPIN_WAKES : most;
}

/* A wake-up took @ns.  One that took very long says more of others than of itself. */
static inline void sdp_spin_woken(struct sdp_spin *s, __u64 ns, __u32 most)
{
	__u32 wake = ns < most / SDP_SPIN_WAKES ? ns : most / SDP_SPIN_WAKES;

	s->wake = s->wake ? s->wake - s->wake / 4 + wake / 4 : wake;
}

/* What it waited for has come while it watched. */
static inline void sdp_spin_hit(struct sdp_spin *s)
{
	s->doubled = 0;
	s->seen = 1;
}

/* It has slept.  @spun: after it had watched; @brief: a short wait, in all */
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
