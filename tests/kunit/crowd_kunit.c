// SPDX-License-Identifier: GPL-2.0
/* How many streams send at present: each once, and none for longer than it does. */
#include <kunit/test.h>

#include "softwarp/crowd.h"

#define STREAMS	5

static void alone(struct kunit *test)
{
	struct swp_crowd crowd = {};
	unsigned long mark = 0, now;

	for (now = 1000; now < 1010; now++) {
		KUNIT_EXPECT_EQ(test, 1U, swp_crowd_count(&crowd, now, &mark));
		KUNIT_EXPECT_EQ(test, 1U, swp_crowd_count(&crowd, now, &mark));
	}
}

static void together(struct kunit *test)
{
	struct swp_crowd crowd = {};
	unsigned long marks[STREAMS] = {}, now;
	u32 i, turn;

	/* the first period does not know of those that come later */
	for (i = 0; i < STREAMS; i++)
		KUNIT_EXPECT_EQ(test, i + 1, swp_crowd_count(&crowd, 7, &marks[i]));
	/* the next ones do, from the first stream on, however often each sends */
	for (now = 8; now < 12; now++)
		for (turn = 0; turn < 3; turn++)
			for (i = 0; i < STREAMS; i++)
				KUNIT_EXPECT_EQ(test, (u32)STREAMS,
						swp_crowd_count(&crowd, now, &marks[i]));
	/* one goes on: the others count until the end of the next period */
	KUNIT_EXPECT_EQ(test, (u32)STREAMS, swp_crowd_count(&crowd, 12, &marks[0]));
	KUNIT_EXPECT_EQ(test, 1U, swp_crowd_count(&crowd, 13, &marks[0]));
}

/* Nobody sent for a while: what was before that is over. */
static void after_a_pause(struct kunit *test)
{
	struct swp_crowd crowd = {};
	unsigned long marks[STREAMS] = {};
	u32 i;

	for (i = 0; i < STREAMS; i++)
		swp_crowd_count(&crowd, 20, &marks[i]);
	KUNIT_EXPECT_EQ(test, 1U, swp_crowd_count(&crowd, 22, &marks[0]));
	KUNIT_EXPECT_EQ(test, 2U, swp_crowd_count(&crowd, 22, &marks[1]));
}

/* One that was interrupted comes with the period before: that one is over. */
static void late(struct kunit *test)
{
	struct swp_crowd crowd = {};
	unsigned long marks[3] = {};

	swp_crowd_count(&crowd, 30, &marks[0]);
	swp_crowd_count(&crowd, 31, &marks[0]);
	swp_crowd_count(&crowd, 31, &marks[1]);
	KUNIT_EXPECT_EQ(test, 3U, swp_crowd_count(&crowd, 30, &marks[2]));
	KUNIT_EXPECT_EQ(test, 3U, swp_crowd_count(&crowd, 31, &marks[0]));
	KUNIT_EXPECT_EQ(test, 3U, swp_crowd_count(&crowd, 32, &marks[0]));
}

/* Numbers of periods wrap around. */
static void wraps(struct kunit *test)
{
	struct swp_crowd crowd = { .period = ULONG_MAX - 1 };
	unsigned long marks[2] = {};

	swp_crowd_count(&crowd, ULONG_MAX, &marks[0]);
	swp_crowd_count(&crowd, ULONG_MAX, &marks[1]);
	KUNIT_EXPECT_EQ(test, 2U, swp_crowd_count(&crowd, 0, &marks[0]));
	KUNIT_EXPECT_EQ(test, 1U, swp_crowd_count(&crowd, 1, &marks[0]));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(alone),
	KUNIT_CASE(together),
	KUNIT_CASE(after_a_pause),
	KUNIT_CASE(late),
	KUNIT_CASE(wraps),
	{}
};

static struct kunit_suite suite = {
	.name = "crowd",
	.test_cases = cases,
};

kunit_test_suite(suite);
