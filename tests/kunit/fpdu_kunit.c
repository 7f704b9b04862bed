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

/* What fits an EMSS without markers: EMSS - (6 + EMSS mod 4) */
static void largest_ulpdu(struct kunit *test)
{
	static const struct { u32 emss, mulpdu; } c[] = {
		{ 1460, 1454 }, { 1448, 1442 }, { 8960, 8954 }, { 1447, 1438 },
		/* MPA-50: no more than that, however large the EMSS */
		{ 64772, 64766 }, { 64776, 64768 }, { 65483, 64768 },
		{ 65540, 64768 }, { 70000, 64768 }, { U32_MAX, 64768 },
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
	static const u32 mss_list[] = { 536, 1208, 1428, 1448, 8948, 64776,
					65480 };
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
					/* MPA-50: the EMSS may be larger */
					KUNIT_EXPECT_LE(test, hdr + payload,
							64768U);
					if (left && hdr + payload != 64768)
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

/* MPA-19: an absurdly small EMSS still makes progress. */
static void tiny_mss(struct kunit *test)
{
	u32 payload;

	KUNIT_EXPECT_TRUE(test, swp_cut(16, 0, SWP_UNTAGGED_LEN, 1000,
					&payload));
	KUNIT_EXPECT_EQ(test, 128 - SWP_UNTAGGED_LEN, (int)payload);
	KUNIT_EXPECT_TRUE(test, swp_cut(132, 0, SWP_UNTAGGED_LEN, 1000,
					&payload));
	KUNIT_EXPECT_EQ(test, 128 - SWP_UNTAGGED_LEN, (int)payload);
	KUNIT_EXPECT_TRUE(test, swp_cut(136, 0, SWP_UNTAGGED_LEN, 1000,
					&payload));
	KUNIT_EXPECT_EQ(test, 130 - SWP_UNTAGGED_LEN, (int)payload);
	KUNIT_EXPECT_TRUE(test, swp_cut(16, 0, SWP_UNTAGGED_LEN, 5, &payload));
	KUNIT_EXPECT_EQ(test, 5U, payload);
	KUNIT_EXPECT_TRUE(test, swp_cut_marked(16, 0, 8, SWP_UNTAGGED_LEN, 1000,
					       &payload));
	KUNIT_EXPECT_EQ(test, 128 - SWP_UNTAGGED_LEN, (int)payload);
}

/* Markers ------------------------------------------------------------------ */

/* MPA-13, word by word: content is written, at each 512th position a marker */
static u32 slow_len(u32 pos, u32 n)
{
	u32 at = pos;

	for (; n; n -= 4) {
		if (at % 512 == 0)
			at += 4;
		at += 4;
	}
	return at - pos;
}

static void marked_lengths(struct kunit *test)
{
	/* of the wire format's own examples: content, position, markers */
	static const struct { u32 n, pos, markers; } c[] = {
		{ 24, 0, 1 }, { 24, 488, 0 }, { 24, 500, 1 }, { 508, 0, 1 },
		{ 512, 0, 2 }, { 512, 4, 1 }, { 1452, 0, 3 },
		/* a marker right behind the FPDU is the next one's */
		{ 508, 4, 0 }, { 512, 512, 2 }, { 1016, 0, 2 },
		/* positions wrap */
		{ 24, 0xfffffff0, 1 }, { 16, 0xfffffff0, 0 },
	};
	u32 pos, n, fit;
	int i;

	for (i = 0; i < ARRAY_SIZE(c); i++)
		KUNIT_EXPECT_EQ_MSG(test, c[i].n + 4 * c[i].markers,
				    swp_marked_len(c[i].pos, c[i].n),
				    "%u octets at %u", c[i].n, c[i].pos);
	for (pos = 0; pos < 1024; pos += 20) {
		for (n = 8; n < 1100; n += 4)
			if (swp_marked_len(pos, n) != slow_len(pos, n))
				KUNIT_FAIL(test, "%u octets at %u: %u", n, pos,
					   swp_marked_len(pos, n));
		/* the largest content that fits, and no more than that */
		for (n = 8; n < 1100; n += 4) {
			fit = swp_marked_fit(pos, n);
			if (slow_len(pos, fit) > n ||
			    slow_len(pos, fit + 4) <= n)
				KUNIT_FAIL(test, "%u octets of room at %u: %u",
					   n, pos, fit);
		}
	}
}

/* MPA-14, MPA-15 */
static void marker_pointers(struct kunit *test)
{
	/* an FPDU that begins at a marker: that one, then every 512 octets */
	u32 head = swp_fpdu_head(1024);

	KUNIT_EXPECT_EQ(test, 1028U, head);
	KUNIT_EXPECT_EQ(test, 0, (int)swp_fpduptr(1024, head));
	KUNIT_EXPECT_EQ(test, 508, (int)swp_fpduptr(1536, head));
	KUNIT_EXPECT_EQ(test, 1020, (int)swp_fpduptr(2048, head));
	/* one that begins behind it: earlier markers count as octets */
	head = swp_fpdu_head(1036);
	KUNIT_EXPECT_EQ(test, 1036U, head);
	KUNIT_EXPECT_EQ(test, 500, (int)swp_fpduptr(1536, head));
	KUNIT_EXPECT_EQ(test, 1012, (int)swp_fpduptr(2048, head));
	/* four octets before it */
	head = swp_fpdu_head(508);
	KUNIT_EXPECT_EQ(test, 508U, head);
	KUNIT_EXPECT_EQ(test, 4, (int)swp_fpduptr(512, head));
	/* across the wrap */
	head = swp_fpdu_head(0xfffffff0);
	KUNIT_EXPECT_EQ(test, 16, (int)swp_fpduptr(0, head));
	KUNIT_EXPECT_EQ(test, 0U, swp_marker_gap(0));
	KUNIT_EXPECT_EQ(test, 508U, swp_marker_gap(4));
	KUNIT_EXPECT_EQ(test, 4U, swp_marker_gap(508));
}

/* Behind a start-up frame whose length is no multiple of 4 */
static void marked_odd(struct kunit *test)
{
	u32 pos, payload;

	for (pos = 1; pos < 160; pos++) {
		if (!swp_cut_marked(160, pos, 0, SWP_UNTAGGED_LEN, 5, &payload))
			continue;
		KUNIT_EXPECT_EQ(test, 5U, payload);
		KUNIT_EXPECT_LE(test, pos + swp_marked_len(0, 32), 160U);
	}
	KUNIT_EXPECT_FALSE(test, swp_cut_marked(160, 157, 0, SWP_UNTAGGED_LEN,
						5, &payload));
}

static void unit(struct kunit *test)
{
	static const struct { u32 mss, room, most, unit; } c[] = {
		/* not allowed, or no use */
		{ 1448, 63712, 0, 1448 }, { 1448, 63712, 1448, 1448 },
		{ 1448, 63712, 2895, 1448 }, { 1448, 0, 15000, 1448 },
		{ 8948, 62636, 15000, 8948 }, { 64768, 64768, 15000, 64768 },
		/* as many as fit, into the packet, too */
		{ 1448, 63712, 2896, 2896 }, { 1448, 63712, 15000, 14480 },
		{ 1448, 2896, 15000, 2896 }, { 1448, 4343, 15000, 2896 },
		{ 64, 65535, 15000, 14976 }, { 1448, 63712, U32_MAX, 63712 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(c); i++)
		KUNIT_EXPECT_EQ_MSG(test, c[i].unit,
				    swp_fpdu_unit(c[i].mss, c[i].room,
						  c[i].most),
				    "%u of %u, %u", c[i].mss, c[i].room,
				    c[i].most);
}

/*
 * A long message fills packets of so many segments: each FPDU begins where a
 * segment does, none spans two packets, and there are no more than needed.
 */
static void large_fpdus(struct kunit *test)
{
	static const u32 segments[] = { 1, 2, 9, 10, 15, 22, 44, 45 };
	const u32 mss = 1448;
	int i, packet;

	for (i = 0; i < ARRAY_SIZE(segments); i++) {
		u32 total = segments[i] * mss, left = 1 << 20;
		u32 unit = swp_fpdu_unit(mss, total, SWP_LARGE_FPDU);

		for (packet = 0; packet < 3; packet++) {
			u32 room = total, fpdus = 0;

			while (room) {
				u32 pos = (total - room) % unit, payload, len;
				u32 span = swp_fpdu_span(unit, pos, room);

				KUNIT_EXPECT_EQ(test, 0U, pos % mss);
				KUNIT_ASSERT_TRUE(test,
						  swp_cut(span, pos,
							  SWP_TAGGED_LEN, left,
							  &payload));
				len = swp_fpdu_len(SWP_TAGGED_LEN + payload);
				KUNIT_ASSERT_LE(test, len, room);
				room -= len;
				left -= payload;
				fpdus++;
			}
			KUNIT_EXPECT_EQ(test, DIV_ROUND_UP(total, unit), fpdus);
		}
	}
}

/* A packet that is nearly full: what fits goes there, and the rest does not. */
static void last_unit(struct kunit *test)
{
	u32 payload, span = swp_fpdu_span(14480, 1448, 1448);

	KUNIT_EXPECT_EQ(test, 2896U, span);
	KUNIT_EXPECT_TRUE(test, swp_cut(span, 1448, SWP_TAGGED_LEN, 100000,
					&payload));
	KUNIT_EXPECT_EQ(test, 1448U, swp_fpdu_len(SWP_TAGGED_LEN + payload));
	span = swp_fpdu_span(14480, 1448, 100);
	KUNIT_EXPECT_FALSE(test, swp_cut(span, 1448, SWP_TAGGED_LEN, 100000,
					 &payload));
	KUNIT_EXPECT_TRUE(test, swp_cut(span, 1448, SWP_TAGGED_LEN, 64,
					&payload));
	KUNIT_EXPECT_EQ(test, 64U, payload);
	KUNIT_EXPECT_EQ(test, 14480U, swp_fpdu_span(14480, 0, 14480));
	KUNIT_EXPECT_EQ(test, 14480U, swp_fpdu_span(14480, 1448, 63712));
	KUNIT_EXPECT_EQ(test, U32_MAX, swp_fpdu_span(U32_MAX, 4, U32_MAX));
}

/* MPA-18 */
static void mulpdu(struct kunit *test)
{
	static const struct { u32 emss, plain, marked; } c[] = {
		{ 1460, 1454, 1442 }, { 8960, 8954, 8882 }, { 1448, 1442, 1430 },
		{ 1447, 1438, 1426 }, { 536, 530, 522 }, { 512, 506, 502 },
		{ 10, 2, 0 }, { 6, 0, 0 }, { 0, 0, 0 },
		/* MPA-50 */
		{ 64776, 64768, 64262 }, { 65480, 64768, 64768 },
		{ 70000, 64768, 64768 }, { U32_MAX, 64768, 64768 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(c); i++) {
		KUNIT_EXPECT_EQ_MSG(test, c[i].plain,
				    swp_mulpdu(c[i].emss, false), "EMSS %u",
				    c[i].emss);
		KUNIT_EXPECT_EQ_MSG(test, c[i].marked,
				    swp_mulpdu(c[i].emss, true), "EMSS %u",
				    c[i].emss);
	}
}

/*
 * MPA-18, MPA-20 with markers: no ULPDU above MULPDU, no FPDU across a cut, and
 * but for the last of a message none that leaves room for much more.
 */
static void marked_cuts(struct kunit *test)
{
	static const u32 mss_list[] = { 536, 1208, 1428, 1448, 8948, 64776,
					65480 };
	static const u32 lens[] = { 0, 1, 7, 64, 127, 128, 129, 474, 475, 482,
				    483, 1000, 1410, 1425, 4096, 65536, 100001 };
	u32 pos = 0, stream = 0;
	int i, j, k;

	for (k = 0; k < 6; k++) {
		for (i = 0; i < ARRAY_SIZE(mss_list); i++) {
			u32 mss = mss_list[i], hdr, left, payload, fpdu;

			hdr = k % 2 ? SWP_UNTAGGED_LEN : SWP_TAGGED_LEN;
			pos = 0;
			for (j = 0; j < ARRAY_SIZE(lens); j++) {
				left = lens[j] + 4 * k;
				do {
					if (!swp_cut_marked(mss, pos, stream,
							    hdr, left,
							    &payload)) {
						KUNIT_ASSERT_NE(test, 0U, pos);
						pos = 0;
						continue;
					}
					KUNIT_ASSERT_LE(test, payload, left);
					KUNIT_EXPECT_LE(test, hdr + payload,
							swp_mulpdu(mss, true));
					fpdu = swp_fpdu_len(hdr + payload);
					fpdu = slow_len(stream, fpdu);
					KUNIT_EXPECT_LE(test, pos + fpdu, mss);
					left -= payload;
					pos += fpdu;
					stream += fpdu;
					if (left && hdr + payload != 64768)
						KUNIT_EXPECT_LE(test, mss - pos,
								8U);
					pos %= mss;
					if (!payload)
						break;
				} while (left);
				KUNIT_EXPECT_EQ(test, 0U, left);
			}
		}
	}
}

/*
 * RDMAP-15, MPA-50: what a peer may ask to read, up to the last octet that fits
 * its field.  A header on top of it must not come out as a short message.
 */
static void huge_messages(struct kunit *test)
{
	static const u32 mss_list[] = { 16, 128, 536, 1448, 8948, 64776, 65480 };
	static const u32 hdrs[] = { SWP_TAGGED_LEN, SWP_UNTAGGED_LEN,
				    SWP_MAX_HDR };
	static const u32 lens[] = { 0x7fffffff, 0x80000000, 0xffff0000,
				    0xffffffd0 };
	u32 payload, marked, left, fpdu;
	int i, j, k;

	for (i = 0; i < ARRAY_SIZE(mss_list); i++) {
		u32 mss = mss_list[i];

		for (j = 0; j < ARRAY_SIZE(hdrs); j++) {
			for (k = 0; k < ARRAY_SIZE(lens) + 48; k++) {
				left = k < ARRAY_SIZE(lens) ? lens[k] :
					0U - 1 - (k - ARRAY_SIZE(lens));
				KUNIT_ASSERT_TRUE(test,
						  swp_cut(mss, 0, hdrs[j], left,
							  &payload));
				KUNIT_ASSERT_TRUE(test,
						  swp_cut_marked(mss, 0, 4,
								 hdrs[j], left,
								 &marked));
				KUNIT_EXPECT_NE(test, 0U, payload);
				KUNIT_EXPECT_NE(test, 0U, marked);
				fpdu = swp_fpdu_len(hdrs[j] + payload);
				KUNIT_ASSERT_LE_MSG(test, fpdu, max(mss, 136U),
						    "%u left", left);
				KUNIT_ASSERT_LE_MSG(test, marked, payload,
						    "%u left", left);
			}
		}
	}
}

static struct kunit_case fpdu_cases[] = {
	KUNIT_CASE(pads),
	KUNIT_CASE(largest_ulpdu),
	KUNIT_CASE(cuts),
	KUNIT_CASE(tiny_mss),
	KUNIT_CASE(marked_lengths),
	KUNIT_CASE(marker_pointers),
	KUNIT_CASE(mulpdu),
	KUNIT_CASE(marked_odd),
	KUNIT_CASE(unit),
	KUNIT_CASE(large_fpdus),
	KUNIT_CASE(last_unit),
	KUNIT_CASE(marked_cuts),
	KUNIT_CASE(huge_messages),
	{}
};

static struct kunit_suite fpdu_suite = {
	.name = "softwarp_fpdu",
	.test_cases = fpdu_cases,
};

kunit_test_suite(fpdu_suite);
