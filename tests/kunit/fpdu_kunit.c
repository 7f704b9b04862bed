// SPDX-License-Identifier: GPL-2.0
/*
 * FPDU lengths (RFC 5044 section 4.1) and the choice of segment sizes that keeps
 * FPDUs on TCP's cuts.
 */
#include <kunit/test.h>

#include "proto/fpdu.h"
#include "proto/rdmap.h"

/* MPA-03: pads 0, 3, 2, 1 for ULPDUs of 14 to 17 octets */
static void pads(struct kunit *test)
{
	static const struct { u32 ulpdu, pad, fpdu; } c[] = {
		{ 14, 0, 20 }, { 15, 3, 24 }, { 16, 2, 24 }, { 17, 1, 24 },
		{ 18, 0, 24 }, { 0, 2, 8 }, { 46, 0, 52 },
		{ 65534, 0, 65540 }, { 65535, 3, 65544 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(c); i++) {
		KUNIT_EXPECT_EQ(test, c[i].pad, swp_fpdu_pad(c[i].ulpdu));
		KUNIT_EXPECT_EQ(test, c[i].fpdu, swp_fpdu_len(c[i].ulpdu));
	}
	KUNIT_EXPECT_EQ(test, SWP_FPDU_MAX, (int)swp_fpdu_len(SWP_ULPDU_MAX));
}

/* MPA-18 without markers: EMSS - (6 + EMSS mod 4) */
static void largest_ulpdu(struct kunit *test)
{
	static const struct { u32 emss, mulpdu; } c[] = {
		{ 1460, 1454 }, { 1448, 1442 }, { 8960, 8954 }, { 1447, 1438 },
		{ 65483, 65474 }, { 65540, 65534 }, { 70000, 65534 },
		{ 8, 2 }, { 7, 0 }, { 0, 0 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(c); i++)
		KUNIT_EXPECT_EQ_MSG(test, c[i].mulpdu, swp_ulpdu_fit(c[i].emss),
				    "EMSS %u", c[i].emss);
}

/*
 * Cuts messages of many lengths for many segment sizes, one after the other,
 * and checks what the receiver and TCP rely on: every octet is sent once, an
 * FPDU never crosses a cut, and one that is not the last of its message ends
 * exactly on a cut.
 */
static void cuts(struct kunit *test)
{
	static const u32 mss_list[] = { 536, 1208, 1428, 1448, 8948, 65480 };
	static const u32 lens[] = { 0, 1, 7, 8, 64, 127, 128, 129, 1000, 1424,
				    1425, 1428, 1432, 4096, 65536, 100001 };
	int i, j, k;

	for (i = 0; i < ARRAY_SIZE(mss_list); i++) {
		u32 mss = mss_list[i], pos = 0;

		for (k = 0; k < 2; k++) {
			u32 hdr = k ? SWP_UNTAGGED_LEN : SWP_TAGGED_LEN;

			for (j = 0; j < ARRAY_SIZE(lens); j++) {
				u32 left = lens[j], payload, fpdu;

				do {
					if (!swp_cut(mss, pos, hdr, left,
						     &payload)) {
						KUNIT_ASSERT_NE(test, 0U, pos);
						pos = 0;
						continue;
					}
					KUNIT_ASSERT_LE(test, payload, left);
					fpdu = swp_fpdu_len(hdr + payload);
					KUNIT_EXPECT_LE(test, pos + fpdu, mss);
					left -= payload;
					pos += fpdu;
					if (left)
						KUNIT_EXPECT_EQ(test, mss, pos);
					pos %= mss;
					/* a zero-length message is one FPDU */
					if (!payload)
						break;
				} while (left);
				KUNIT_EXPECT_EQ(test, 0U, left);
			}
		}
	}
}

/* An absurdly small EMSS still makes progress. */
static void tiny_mss(struct kunit *test)
{
	u32 payload;

	KUNIT_EXPECT_TRUE(test, swp_cut(16, 0, SWP_UNTAGGED_LEN, 1000,
					&payload));
	KUNIT_EXPECT_EQ(test, SWP_MIN_FILL, (int)payload);
	KUNIT_EXPECT_TRUE(test, swp_cut(16, 0, SWP_UNTAGGED_LEN, 5, &payload));
	KUNIT_EXPECT_EQ(test, 5U, payload);
}

static struct kunit_case fpdu_cases[] = {
	KUNIT_CASE(pads),
	KUNIT_CASE(largest_ulpdu),
	KUNIT_CASE(cuts),
	KUNIT_CASE(tiny_mss),
	{}
};

static struct kunit_suite fpdu_suite = {
	.name = "softwarp_fpdu",
	.test_cases = fpdu_cases,
};

kunit_test_suite(fpdu_suite);

MODULE_DESCRIPTION("KUnit suite of softwarp's FPDU arithmetic");
MODULE_LICENSE("GPL");
