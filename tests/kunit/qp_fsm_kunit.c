// SPDX-License-Identifier: GPL-2.0
/*
 * The states of a queue pair, cell by cell and by rules that hold for all cells.
 */
#include <kunit/test.h>

#include "proto/qp_fsm.h"

/*
 * Where each event leads from each state: R reset, I init, r RTR, w wait, l left,
 * t RTR with a stream, T RTS, P parting, C closing, X terminate, E error, -
 * nowhere.
 */
static const char letters[] = "RIrwltTPCXE-";

static const struct {
	const char *desc;
	enum swp_qp_input event;
	const char *to;		/* from each state, in this order */
} cells[] = {
	{ "modify to RESET", SWP_QP_TO_RESET, "RRRRRRRRRRR" },
	{ "modify to INIT", SWP_QP_TO_INIT, "II---------" },
	{ "modify to RTR", SWP_QP_TO_RTR, "-I----T----" },
	{ "modify to RTR, with an address", SWP_QP_TO_PAIR, "-r---------" },
	{ "modify to RTS", SWP_QP_TO_RTS, "-IwwlTTP---" },
	{ "modify to SQD", SWP_QP_TO_SQD, "-----CCC---" },
	{ "modify to ERR", SWP_QP_TO_ERR, "-----EEEE--" },
	{ "modify to ERR, without a stream", SWP_QP_TO_ERR_IDLE, "EEEEE-----E" },
	{ "the stream starts", SWP_QP_STARTED, "TTtT-------" },
	{ "the peer does not come", SWP_QP_ALONE, "--EEE------" },
	{ "RFC 5044 section 7.3: FIN between messages", SWP_QP_PEER_FIN, "-----CCPC--" },
	{ "the same, without a connection manager", SWP_QP_PEER_LEAVES, "-----PP----" },
	{ "RFC 5040 section 7.1: a fault", SWP_QP_FAULT, "-----XXXX--" },
	{ "our Terminate is sent", SWP_QP_SAID, "---------E-" },
	{ "RFC 5040 section 5.4: a Terminate comes", SWP_QP_TOLD, "-----EEEE--" },
	{ "TCP has closed", SWP_QP_CLOSED, "-----EElEEE" },
	{ "TCP has failed", SWP_QP_LOST, "-----EEEEEE" },
};

static void every_cell(struct kunit *test)
{
	int i, from;

	KUNIT_EXPECT_EQ(test, SWP_QP_INPUTS, (int)ARRAY_SIZE(cells));
	for (i = 0; i < ARRAY_SIZE(cells); i++) {
		KUNIT_EXPECT_EQ(test, i, (int)cells[i].event);
		for (from = 0; from < SWP_QP_STATES; from++)
			KUNIT_EXPECT_EQ_MSG(test, cells[i].to[from],
					    letters[swp_qp_next(from, i).state],
					    "%s, from %c", cells[i].desc,
					    letters[from]);
	}
}

/* What holds whatever the table says */
static void rules(struct kunit *test)
{
	int from, event;

	for (from = 0; from < SWP_QP_STATES; from++) {
		for (event = 0; event < SWP_QP_INPUTS; event++) {
			struct swp_qp_next n = swp_qp_next(from, event);
			int told = hweight16(n.actions & (SWP_DO_REASON |
						       SWP_DO_FATAL));

			if (n.state == SWP_QP_NO) {
				KUNIT_EXPECT_EQ(test, 0, (int)n.actions);
				continue;
			}
			/* a stream that failed never works again */
			if (from >= SWP_QP_TERMINATE && event != SWP_QP_TO_RESET)
				KUNIT_EXPECT_GE(test, (int)n.state, from);
			/* requests are flushed when ERROR is entered */
			if (n.state == SWP_QP_ERROR && from != SWP_QP_ERROR)
				KUNIT_EXPECT_TRUE(test, n.actions & SWP_DO_FLUSH);
			if (n.actions & SWP_DO_FLUSH)
				KUNIT_EXPECT_EQ(test, SWP_QP_ERROR,
						(int)n.state);
			/* one event at most tells of one end */
			KUNIT_EXPECT_LE(test, told, 1);
			if (told)
				KUNIT_EXPECT_NE(test, SWP_QP_ERROR, from);
			/* no state waits for a peer without a limit */
			if ((n.state == SWP_QP_CLOSING ||
			     n.state == SWP_QP_PARTING ||
			     n.state == SWP_QP_TERMINATE) && swp_qp_is_up(from))
				KUNIT_EXPECT_TRUE(test, n.actions & SWP_DO_LINGER);
			/* whoever needs the stream no more says so, or lets go */
			if (n.state == SWP_QP_ERROR && from >= SWP_QP_RTR_UP &&
			    from != SWP_QP_ERROR)
				KUNIT_EXPECT_TRUE(test, n.actions &
						  (SWP_DO_SHUT |
						   SWP_DO_SHUT_ONCE |
						   SWP_DO_LET_GO));
			/* what is half built is not sent behind the end */
			if (n.actions & SWP_DO_LET_GO)
				KUNIT_EXPECT_TRUE(test, n.actions & SWP_DO_DROP);
		}
	}
}

/*
 * From every state that has a stream its loss ends in ERROR, stream let go; or,
 * in order, in LEFT.
 */
static void ends(struct kunit *test)
{
	int from, event;

	for (from = SWP_QP_RTR_UP; from < SWP_QP_STATES; from++) {
		for (event = SWP_QP_CLOSED; event <= SWP_QP_LOST; event++) {
			struct swp_qp_next n = swp_qp_next(from, event);

			if (from == SWP_QP_PARTING && event == SWP_QP_CLOSED)
				KUNIT_EXPECT_EQ(test, SWP_QP_LEFT,
						(int)n.state);
			else
				KUNIT_EXPECT_EQ(test, SWP_QP_ERROR,
						(int)n.state);
			KUNIT_EXPECT_TRUE(test, n.actions & SWP_DO_LET_GO);
		}
	}
}

static struct kunit_case cases[] = {
	KUNIT_CASE(every_cell),
	KUNIT_CASE(rules),
	KUNIT_CASE(ends),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_qp_fsm",
	.test_cases = cases,
};

kunit_test_suite(suite);
