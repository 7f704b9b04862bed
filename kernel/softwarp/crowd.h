/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many streams send at present: those that did so in this period, or in the last
 * one.  One writer of each stream's mark at a time, any number of streams.
 */
#ifndef SWP_CROWD_H
#define SWP_CROWD_H

#include <linux/atomic.h>
#include <linux/minmax.h>

struct swp_crowd {
	unsigned long period;
	atomic_t streams;	/* that have sent in it */
	unsigned int before;	/* that sent in the one before it */
};

/*
 * swp_crowd_count - note that a stream sends now
 * @now: the present period by its number, or the one before it: the caller may be late
 * @mark: the period in which that stream was counted last
 *
 * Returns how many streams send, this one among them.  Any context, no lock: where a
 * period begins, two CPUs can miss each other's streams, for that period.
 */
static inline unsigned int swp_crowd_count(struct swp_crowd *c, unsigned long now,
					   unsigned long *mark)
{
	unsigned long was = READ_ONCE(c->period);
	unsigned int count;

	if ((long)(now - was) > 0 && try_cmpxchg(&c->period, &was, now)) {
		count = atomic_xchg(&c->streams, 0);
		WRITE_ONCE(c->before, was + 1 == now ? count : 0);
	}
	if (*mark != now) {
		*mark = now;
		atomic_inc(&c->streams);
	}
	/* the change of a period may have taken this stream's count away just now */
	count = max_t(unsigned int, atomic_read(&c->streams), READ_ONCE(c->before));
	return max(count, 1U);
}

#endif /* SWP_CROWD_H */
