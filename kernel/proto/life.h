/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What has become of a queue pair as the owner of a stream.
 *
 * It gets one stream at most.  Whoever starts it works for a while without any
 * lock, and another process may end the QP at the same time, so both look at
 * this one word, under the QP's lock, at the moments named here.  This file is
 * pure; the module runs it, KUnit walks it and tests/model/life.pml has the model
 * checker run it in all interleavings of two start-ups, a change to the error
 * state, the destruction, and what sockets and workers do besides.
 *
 * The states:
 *
 *   FREE      it may get a stream
 *   STARTING  swp_qp_start() gets ready for one; nobody else may
 *   STARTED   it has one, or had
 *   GOING     it is being destroyed, whatever was before
 */
#ifndef SWP_PROTO_LIFE_H
#define SWP_PROTO_LIFE_H

#include "base.h"

enum swp_life {
	SWP_LIFE_FREE,
	SWP_LIFE_STARTING,
	SWP_LIFE_STARTED,
	SWP_LIFE_GOING,
	SWP_LIFE_COUNT,
	SWP_LIFE_REFUSED = SWP_LIFE_COUNT
};

enum swp_life_step {
	SWP_STEP_START,		/* a start-up begins */
	SWP_STEP_ATTACH,	/* its last step: with the socket lock held, too */
	SWP_STEP_UNDO,		/* or it has failed, and another may follow */
	SWP_STEP_GO,		/* the QP is destroyed: its first step */
	SWP_STEP_COUNT
};

/*
 * swp_life_after - the state behind a step
 * @idle: the QP was not moved to the error state by its consumer
 * Returns SWP_LIFE_REFUSED for a step that may not be taken; nothing changes then.
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
		},
		[SWP_LIFE_STARTING] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_STARTED,
			[SWP_STEP_UNDO] = SWP_LIFE_FREE,
			[SWP_STEP_GO] = SWP_LIFE_GOING,
		},
		[SWP_LIFE_STARTED] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_REFUSED,
			[SWP_STEP_UNDO] = SWP_LIFE_REFUSED,
			[SWP_STEP_GO] = SWP_LIFE_GOING,
		},
		[SWP_LIFE_GOING] = {
			[SWP_STEP_START] = SWP_LIFE_REFUSED,
			[SWP_STEP_ATTACH] = SWP_LIFE_REFUSED,
			[SWP_STEP_UNDO] = SWP_LIFE_REFUSED,
			[SWP_STEP_GO] = SWP_LIFE_REFUSED,
		},
	};

	if (step == SWP_STEP_ATTACH && !idle)
		return SWP_LIFE_REFUSED;
	return (enum swp_life)table[life][step];
}

#endif /* SWP_PROTO_LIFE_H */
