/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Is a process to watch for octets for a while before it sleeps for them?
 *
 * To sleep and to be woken on another processor takes several microseconds, in a
 * virtual machine many more.  So a process that waits in recv() watches first, but
 * only if its last waits were short: at most SDP_SPIN_WAKES times as long as it
 * takes to be woken, which is measured, since otherwise there is little to save.
 * One that watched in vain needs twice as many short waits before it does so
 * again, until it has been right more often.  Pure.
 */
#ifndef SDP_PROTO_SPIN_H
#define SDP_PROTO_SPIN_H

#include "../base.h"

/* Most short waits in a row that are asked for */
#define SDP_SPIN_NEED_MAX	64
/* Wake-ups that a short wait takes at most */
#define SDP_SPIN_WAKES		24
/* Successes that make up for one failure */
#define SDP_SPIN_PRICE		8
/* Successes after which it sleeps once, to measure */
#define SDP_SPIN_RUN		128

struct sdp_spin {
	__u32 wake;		/* ns from a wake-up to its effect; or 0 */
	__u8 seen;		/* short waits in a row, up to those needed */
	__u8 doubled;		/* 1 << this many are needed */
	__u8 hits;		/* successes since a failure was made up for */
	__u8 run;		/* successes since it slept */
};

/* The first short wait of a connection does not show that there are more. */
static inline void sdp_spin_init(struct sdp_spin *s)
{
	*s = (struct sdp_spin){ .doubled = 1 };
}

static inline bool sdp_spin_due(const struct sdp_spin *s)
{
	return s->seen >> s->doubled && s->run < SDP_SPIN_RUN;
}

/* The longest of short waits, in ns; @most: the user's limit, less than 1 s */
static inline __u32 sdp_spin_limit(const struct sdp_spin *s, __u32 most)
{
	return s->wake < most / SDP_SPIN_WAKES ? s->wake * SDP_SPIN_WAKES : most;
}

/*
 * A wake-up took @ns.  Short ones count more: what makes one long are often other
 * threads, and idle states that are too deep.
 */
static inline void sdp_spin_woken(struct sdp_spin *s, __u64 ns, __u32 most)
{
	__u32 wake = ns < most / SDP_SPIN_WAKES ? ns : most / SDP_SPIN_WAKES;

	if (!s->wake)
		s->wake = wake;
	else if (wake < s->wake)
		s->wake -= (s->wake - wake) / 4;
	else
		s->wake += (wake - s->wake) / 16;
}

/* What it waited for has come while it watched. */
static inline void sdp_spin_hit(struct sdp_spin *s)
{
	if (s->run < SDP_SPIN_RUN)
		s->run++;
	if (++s->hits < SDP_SPIN_PRICE)
		return;
	s->hits = 0;
	if (s->doubled) {
		s->doubled--;
		s->seen = 1 << s->doubled;
	}
}

/* It has slept.  @spun: after it had watched; @brief: a short wait, in all */
static inline void sdp_spin_slept(struct sdp_spin *s, bool spun, bool brief)
{
	s->run = 0;
	if (spun) {
		s->hits = 0;
		if (1 << s->doubled < SDP_SPIN_NEED_MAX)
			s->doubled++;
	}
	if (spun || !brief)
		s->seen = 0;
	else if (!sdp_spin_due(s))
		s->seen++;
}

/* A watch, which goes on until octets have come or its time is over */
struct sdp_watch {
	__u64 until;		/* ns of the clock; or 0: none has begun */
};

/* Begin it, or go on with it. */
static inline void sdp_watch(struct sdp_watch *w, __u64 now, __u64 ns)
{
	if (!w->until)
		w->until = now + ns;
}

#endif /* SDP_PROTO_SPIN_H */
