// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a QP: every cell of the table, by what has to hold for it rather
 * than by its value.  The interleavings are tests/model's.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "proto/life.h"

static void check(struct kunit *test, enum swp_life life,
		  enum swp_life_step step, bool idle)
{
	enum swp_life next = swp_life_after(life, step, idle);

	/* what goes never comes back, and goes once */
	if (life == SWP_LIFE_GOING) {
		KUNIT_EXPECT_EQ(test, next, SWP_LIFE_REFUSED);
		return;
	}
	/* whatever was before, a QP can be destroyed */
	if (step == SWP_STEP_GO) {
		KUNIT_EXPECT_EQ(test, next, SWP_LIFE_GOING);
		return;
	}
	KUNIT_EXPECT_NE(test, next, SWP_LIFE_GOING);
	/* a reset is over before anything else begins, and begins anywhere */
	KUNIT_EXPECT_EQ(test, next == SWP_LIFE_RESTING,
			life != SWP_LIFE_RESTING && step == SWP_STEP_REST);
	if (life == SWP_LIFE_RESTING)
		KUNIT_EXPECT_EQ(test, next, step == SWP_STEP_RENEW ?
				SWP_LIFE_FREE : SWP_LIFE_REFUSED);
	/* one stream, until it is reset; and one start-up at a time */
	if (life == SWP_LIFE_STARTED && step != SWP_STEP_REST)
		KUNIT_EXPECT_EQ(test, next, SWP_LIFE_REFUSED);
	KUNIT_EXPECT_EQ(test, next == SWP_LIFE_STARTING,
			life == SWP_LIFE_FREE && step == SWP_STEP_START);
	/* by the start-up that began, and not in the error state */
	KUNIT_EXPECT_EQ(test, next == SWP_LIFE_STARTED,
			life == SWP_LIFE_STARTING &&
			step == SWP_STEP_ATTACH && idle);
	KUNIT_EXPECT_EQ(test, next == SWP_LIFE_FREE,
			(life == SWP_LIFE_STARTING && step == SWP_STEP_UNDO) ||
			(life == SWP_LIFE_RESTING && step == SWP_STEP_RENEW));
}

static void every_step(struct kunit *test)
{
	int life, step, idle;

	for (life = 0; life < SWP_LIFE_COUNT; life++)
		for (step = 0; step < SWP_STEP_COUNT; step++)
			for (idle = 0; idle < 2; idle++)
				check(test, life, step, idle);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(every_step),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_life",
	.test_cases = cases,
};

kunit_test_suite(suite);
