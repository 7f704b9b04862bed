/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The life of a queue pair with respect to its stream.
 *
 * A QP gets at most one stream until it is reset.  A start-up runs for a while
 * without any lock, and another process may reset or destroy the QP meanwhile.
 * So all of them check and change this one word, under the QP's lock, at the
 * steps named here.  This file is pure: the module runs it, KUnit checks every
 * cell, and the model checker runs it (tests/model/life.pml) in all
 * interleavings of two start-ups, a change to the error state, the destruction,
 * and the work of sockets and workers.
 *
 * The states:
 *
 *   FREE      the QP may get a stream
 *   STARTING  swp_qp_start() prepares one; a second start-up is refused
 *   STARTED   the QP has a stream, or had one
 *   RESTING   the QP is being reset; afterwards it is as new
 *   GOING     the QP is being destroyed, whatever the state was before
 */
#ifndef SWP_PROTO_LIFE_H
#define SWP_PROTO_LIFE_H

#include "base.h"

enum swp_life {
	SWP_LIFE_FREE,
	SWP_LIFE_STARTING,
	SWP_LIFE_STARTED,
	SWP_LIFE_RESTING,
	SWP_LIFE_GOING,
	SWP_LIFE_COUNT,
	SWP_LIFE_REFUSED = SWP_LIFE_COUNT
};

enum swp_life_step {
	SWP_STEP_START,		/* a start-up begins */
	SWP_STEP_ATTACH,	/* its last step; socket lock held, too */
	SWP_STEP_UNDO,		/* it has failed; another one may follow */
	SWP_STEP_GO,		/* the first step of the QP's destruction */
	SWP_STEP_REST,		/* the first step of its reset */
	SWP_STEP_RENEW,		/* the last one: nothing of its past is left */
	SWP_STEP_COUNT
};

/*
 * swp_life_after - the state after a step
 * @idle: the consumer has not moved the QP to the error state
 * Returns SWP_LIFE_REFUSED if the step is not allowed; the state stays then.
 */
static inline enum swp_life swp_life_after(enum swp_life life,
					   enum swp_life_step step, bool idle)
{
	static const __u8 table[SWP_LIFE_COUNT][SWP_STEP_COUNT] = {
		[SWP_LIFE_FREE] = {
			[SWP_STEP_START] = SWP_LIFE_STARTING,
			[SWP_STEP_ATTACH] = SWP_LIFE_REFUSED,
			[SWP_STEP_UNDO] = SWP_LIFE_REFUSED,
			[SWP_STEP_GO] = SWP_LIFE_GOING,
			[SWP_STEP_REST] = SWP_LIFE_RESTING,
			[SWP_STEP_RENEW] = SWP_LIFE_REFUSED,
		},
		[SWP_LIFE_STARTING] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_STARTED,
			[SWP_STEP_UNDO] = SWP_LIFE_FREE,
			[SWP_STEP_GO] = SWP_LIFE_GOING,
			[SWP_STEP_REST] = SWP_LIFE_RESTING,
			[SWP_STEP_RENEW] = SWP_LIFE_REFUSED,
		},
		[SWP_LIFE_STARTED] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_REFUSED,
			[SWP_STEP_UNDO] = SWP_LIFE_REFUSED,
			[SWP_STEP_GO] = SWP_LIFE_GOING,
			[SWP_STEP_REST] = SWP_LIFE_RESTING,
			[SWP_STEP_RENEW] = SWP_LIFE_REFUSED,
		},
		[SWP_LIFE_RESTING] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_REFUSED,
			[SWP_STEP_UNDO] = SWP_LIFE_REFUSED,
			[SWP_STEP_GO] = SWP_LIFE_GOING,
			[SWP_STEP_REST] = SWP_LIFE_REFUSED,
			[SWP_STEP_RENEW] = SWP_LIFE_FREE,
		},
		[SWP_LIFE_GOING] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_REFUSED,
			[SWP_STEP_UNDO] = SWP_LIFE_REFUSED,
			[SWP_STEP_GO] = SWP_LIFE_REFUSED,
			[SWP_STEP_REST] = SWP_LIFE_REFUSED,
			[SWP_STEP_RENEW] = SWP_LIFE_REFUSED,
		},
	};

	if (step == SWP_STEP_ATTACH && !idle)
		return SWP_LIFE_REFUSED;
	return (enum swp_life)table[life][step];
}

#endif /* SWP_PROTO_LIFE_H */
