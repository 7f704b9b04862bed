// SPDX-License-Identifier: GPL-2.0
/*
 * Who looks at a send queue next: every cell of the table, by what has to hold
 * for it rather than by its value.  The interleavings are tests/model's.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "proto/turn.h"

static const enum swp_turn all_turns[] = {
	SWP_TURN_NOBODY, SWP_TURN_POSTER, SWP_TURN_POLLER, SWP_TURN_PEER,
	SWP_TURN_TCP, SWP_TURN_WORK, SWP_TURN_LATER, SWP_TURN_HOLDER,
	SWP_TURN_ENGINE,
};

/* As the file says: a duty has somebody who is sure to come. */
static void check(struct kunit *test, enum swp_stop stop, enum swp_actor actor,
		  bool out, bool poller)
{
	enum swp_turn turn = swp_turn_after(stop, actor, out, poller);

	if (stop == SWP_STOP_DEAD) {
		KUNIT_EXPECT_EQ(test, turn, SWP_TURN_NOBODY);
		return;
	}
	/* a stream that lives is somebody's duty, and nobody's who only passes */
	KUNIT_EXPECT_NE(test, turn, SWP_TURN_NOBODY);
	KUNIT_EXPECT_NE(test, turn, SWP_TURN_ENGINE);
	if (actor == SWP_ACTOR_STRANGER)
		KUNIT_EXPECT_EQ(test, turn, SWP_TURN_WORK);
	switch (turn) {
	case SWP_TURN_HOLDER:
		KUNIT_EXPECT_EQ(test, actor, SWP_ACTOR_HOLDER);
		break;
	case SWP_TURN_TCP:
		KUNIT_EXPECT_TRUE(test, out);
		break;
	case SWP_TURN_POLLER:
		KUNIT_EXPECT_TRUE(test, poller);
		fallthrough;
	case SWP_TURN_POSTER:
		KUNIT_EXPECT_EQ(test, stop, SWP_STOP_EMPTY);
		break;
	case SWP_TURN_PEER:
		KUNIT_EXPECT_EQ(test, stop, SWP_STOP_HELD);
		break;
	default:
		break;
	}
	/* asking again at once for what was just refused is no progress */
	if (actor != SWP_ACTOR_STRANGER && stop == SWP_STOP_MEMORY)
		KUNIT_EXPECT_EQ(test, turn, SWP_TURN_LATER);
}

static void every_stop(struct kunit *test)
{
	int stop, actor, more;

	for (stop = 0; stop < SWP_STOP_COUNT; stop++)
		for (actor = 0; actor < SWP_ACTOR_COUNT; actor++)
			for (more = 0; more < 4; more++)
				check(test, stop, actor, more & 1, more & 2);
}

/* Kick is set for posters alone: for nobody else does a doorbell have to come. */
static void kick(struct kunit *test)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(all_turns); i++)
		KUNIT_EXPECT_EQ(test, swp_turn_kick(all_turns[i]),
				all_turns[i] == SWP_TURN_POSTER);
	KUNIT_EXPECT_EQ(test, ARRAY_SIZE(all_turns), SWP_TURN_COUNT);
}

/* What is waited for makes the engine run when it comes. */
static void news(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, swp_turn_runs(SWP_TURN_TCP, SWP_NEWS_ACKED,
					      false));
	KUNIT_EXPECT_TRUE(test, swp_turn_runs(SWP_TURN_PEER, SWP_NEWS_DATA,
					      false));
	/* responses wait for nobody's posting */
	KUNIT_EXPECT_TRUE(test, swp_turn_runs(SWP_TURN_POSTER, SWP_NEWS_DATA,
					      true));
	KUNIT_EXPECT_TRUE(test, swp_turn_runs(SWP_TURN_POLLER, SWP_NEWS_DATA,
					      true));
	KUNIT_EXPECT_TRUE(test, swp_turn_runs(SWP_TURN_PEER, SWP_NEWS_ACKED,
					      true));
	/* who has nothing posted is left alone, and so is who waits for memory */
	KUNIT_EXPECT_FALSE(test, swp_turn_runs(SWP_TURN_POSTER, SWP_NEWS_ACKED,
					       false));
	KUNIT_EXPECT_FALSE(test, swp_turn_runs(SWP_TURN_LATER, SWP_NEWS_ACKED,
					       true));
	KUNIT_EXPECT_FALSE(test, swp_turn_runs(SWP_TURN_NOBODY, SWP_NEWS_DATA,
					       true));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(every_stop),
	KUNIT_CASE(kick),
	KUNIT_CASE(news),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_turn",
	.test_cases = cases,
};

kunit_test_suite(suite);
