// SPDX-License-Identifier: GPL-2.0
/*
 * The rows of faults against the tables of the RFCs, and against each other.
 * Case names carry the requirement ids.
 */
#include <kunit/test.h>

#include "proto/terminate.h"

/* The codes of each layer and type, as the RFCs list them */
struct type {
	const char *desc;
	u8 layer, etype;
	u16 codes[10];	/* up to END */
	enum swp_fault_event event;
	enum swp_fault_blame blame;
};

#define END	0x100

static const struct type types[] = {
	{ "RFC 5040 Figure 9: RDMAP, local catastrophic error", 0, 0,
	  { 0, END }, SWP_EVENT_FATAL, SWP_BLAME_OPERATION },
	{ "RFC 5040 Figure 9: RDMAP, remote protection error", 0, 1,
	  { 0, 1, 2, 3, 4, 9, 0xff, END }, SWP_EVENT_ACCESS,
	  SWP_BLAME_ACCESS },
	{ "RFC 5040 Figure 9: RDMAP, remote operation error", 0, 2,
	  { 5, 6, 7, 8, 9, 0xff, END }, SWP_EVENT_REQUEST,
	  SWP_BLAME_OPERATION },
	{ "RFC 5041 section 8.2: DDP, local catastrophic", 1, 0,
	  { 0, END }, SWP_EVENT_FATAL, SWP_BLAME_OPERATION },
	{ "RFC 5041 section 8.2: DDP, tagged buffer", 1, 1,
	  { 0, 1, 2, 3, 4, END }, SWP_EVENT_ACCESS, SWP_BLAME_ACCESS },
	{ "RFC 5041 section 8.2: DDP, untagged buffer", 1, 2,
	  { 1, 2, 3, 4, 5, 6, END }, SWP_EVENT_REQUEST, SWP_BLAME_REQUEST },
	{ "RFC 5044 section 8, RFC 6581 section 8: MPA", 2, 0,
	  { 1, 2, 3, 4, 5, 6, 7, 0xff, END }, SWP_EVENT_FATAL,
	  SWP_BLAME_OPERATION },
};

static const struct type *type_of(u8 layer, u8 etype)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].layer == layer && types[i].etype == etype)
			return &types[i];
	return NULL;
}

static bool listed(const struct type *type, u8 code)
{
	const u16 *c;

	if (!type)
		return false;
	for (c = type->codes; *c != END; c++)
		if (*c == code)
			return true;
	return false;
}

/* Every Terminate that can come: the listed ones have a row, no other has */
static void every_terminate(struct kunit *test)
{
	const struct type *type;
	int seen = 0, i;
	u32 what;

	for (what = 0; what < 0x10000; what++) {
		const struct swp_term t = { what >> 12, what >> 8 & 0xf, what };
		enum swp_fault fault = swp_fault_of(&t);
		struct swp_term back = swp_fault_term(fault);

		type = type_of(t.layer, t.etype);
		KUNIT_EXPECT_EQ_MSG(test, type ? type->blame : SWP_BLAME_OPERATION,
				    swp_fault_blame(&t), "0x%04x", what);
		if (!listed(type, t.code)) {
			KUNIT_EXPECT_EQ_MSG(test, SWP_FAULT_UNKNOWN, fault,
					    "0x%04x", what);
			continue;
		}
		seen++;
		KUNIT_EXPECT_EQ_MSG(test, t.layer, back.layer, "0x%04x", what);
		KUNIT_EXPECT_EQ_MSG(test, t.etype, back.etype, "0x%04x", what);
		KUNIT_EXPECT_EQ_MSG(test, t.code, back.code, "0x%04x", what);
		KUNIT_EXPECT_EQ_MSG(test, type->event, swp_fault_event(fault),
				    "%s", type->desc);
	}
	/* no row that no Terminate finds */
	KUNIT_EXPECT_EQ(test, SWP_FAULT_UNKNOWN - 1, seen);
	for (i = 0; i < ARRAY_SIZE(types); i++)
		KUNIT_EXPECT_PTR_EQ(test, &types[i],
				    type_of(types[i].layer, types[i].etype));
}

/*
 * RFC 5040 section 4.8: the DDP header goes with errors of a segment, that of a
 * Read Request with those of its data source; MPA's and local ones have none.
 */
static void headers(struct kunit *test)
{
	int i;

	for (i = SWP_FAULT_NONE + 1; i < SWP_FAULT_UNKNOWN; i++) {
		struct swp_term t = swp_fault_term(i);
		enum swp_fault_headers want = SWP_HDR_DDP;

		if (t.etype == 0)
			want = SWP_HDR_NONE;
		else if (t.layer == 0 && t.etype == 1)
			want = SWP_HDR_RREQ;
		KUNIT_EXPECT_EQ_MSG(test, want, swp_fault_headers(i), "row %d", i);
	}
}

/* DDP-20, RDMAP-73: what a region refuses, in the codes of the layer that tells */
static void refusals(struct kunit *test)
{
	static const struct {
		int err;
		u8 tagged, etype, source;
	} cases[] = {
		{ -ENOENT, 0, 1, 0 },
		{ -EACCES, 0, 1, 2 },	/* DDP has no code for a missing right */
		{ -EPERM, 2, 1, 3 },
		{ -ERANGE, 1, 1, 1 },
		{ -EOVERFLOW, 3, 1, 4 },
		{ -EINVAL, 0, 2, 7 },	/* RFC 7306 section 8.2 */
	};
	struct swp_term t;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		t = swp_fault_term(swp_fault_tagged(cases[i].err));
		KUNIT_EXPECT_EQ(test, 1, (int)t.layer);
		KUNIT_EXPECT_EQ(test, 1, (int)t.etype);
		KUNIT_EXPECT_EQ_MSG(test, cases[i].tagged, t.code, "%d",
				    cases[i].err);
		t = swp_fault_term(swp_fault_source(cases[i].err));
		KUNIT_EXPECT_EQ(test, 0, (int)t.layer);
		KUNIT_EXPECT_EQ(test, cases[i].etype, t.etype);
		KUNIT_EXPECT_EQ_MSG(test, cases[i].source, t.code, "%d",
				    cases[i].err);
	}
}

/* The end that found nothing wrong was told by its peer: a fatal event. */
static void none(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, SWP_EVENT_FATAL, swp_fault_event(SWP_FAULT_NONE));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(every_terminate),
	KUNIT_CASE(headers),
	KUNIT_CASE(refusals),
	KUNIT_CASE(none),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_terminate",
	.test_cases = cases,
};

kunit_test_suite(suite);
