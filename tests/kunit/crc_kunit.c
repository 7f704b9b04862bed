// SPDX-License-Identifier: GPL-2.0
/*
 * CRC32c (MPA-07, RFC 5044 section 4.4): by each way, with and without copying, it
 * is what the polynomial says.
 */
#include <kunit/test.h>
#include <linux/slab.h>

#include "crc_source.h"
#include "softwarp/crc.h"

#define LEN	4096
#define ROOM	(LEN + 16)

static u32 bitwise(u32 crc, const u8 *p, size_t len)
{
	int bit;

	while (len--) {
		crc ^= *p++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
	}
	return crc;
}

struct buffers {
	u8 src[ROOM], dst[ROOM];
	u32 want[LEN + 1];	/* CRC of so many octets from the beginning */
};

static struct buffers *fresh(struct kunit *test, size_t off)
{
	struct buffers *b = kunit_kzalloc(test, sizeof(*b), GFP_KERNEL);
	u32 i, state = 1;

	KUNIT_ASSERT_NOT_NULL(test, b);
	for (i = 0; i < ROOM; i++) {
		state = state * 1664525 + 1013904223;
		b->src[i] = state >> 24;
	}
	b->want[0] = ~0U;
	for (i = 0; i < LEN; i++)
		b->want[i + 1] = bitwise(b->want[i], b->src + off + i, 1);
	return b;
}

/* From where in memory does not matter, nor how long it is. */
static void any_length(struct kunit *test)
{
	unsigned int way;
	size_t off, len;

	swp_crc_init();
	for (off = 0; off < 8; off += 3) {
		struct buffers *b = fresh(test, off);

		for (way = CRC_WAY_FIRST; way <= CRC_WAY_LAST; way++) {
			if (!crc_way_there(way))
				continue;
			for (len = 0; len <= LEN; len += len < 1700 ? 1 : 61) {
				u32 crc = crc_by(way, ~0U, NULL, b->src + off, len);

				KUNIT_ASSERT_EQ(test, crc, b->want[len]);
			}
		}
		for (len = 0; len <= LEN; len += 7)
			KUNIT_ASSERT_EQ(test, swp_crc32c(~0U, b->src + off, len),
					b->want[len]);
	}
}

static void copies(struct kunit *test)
{
	struct buffers *b = fresh(test, 1);
	unsigned int way;
	size_t len, to;

	swp_crc_init();
	for (way = CRC_WAY_FIRST; way <= CRC_WAY_LAST; way++) {
		if (!crc_way_there(way))
			continue;
		for (len = 0; len <= LEN; len += 13) {
			u32 crc;

			to = len % 5;
			memset(b->dst, 0xa5, ROOM);
			crc = crc_by(way, ~0U, b->dst + to, b->src + 1, len);
			KUNIT_ASSERT_EQ(test, crc, b->want[len]);
			KUNIT_ASSERT_MEMEQ(test, b->dst + to, b->src + 1, len);
			KUNIT_ASSERT_EQ(test, b->dst[to + len], 0xa5);
			KUNIT_ASSERT_TRUE(test, !to || b->dst[to - 1] == 0xa5);
		}
	}
	memset(b->dst, 0, ROOM);
	KUNIT_EXPECT_EQ(test, swp_crc32c_copy(~0U, b->dst, b->src + 1, LEN),
			b->want[LEN]);
	KUNIT_EXPECT_MEMEQ(test, b->dst, b->src + 1, LEN);
}

/* In two parts, at each place */
static void splits(struct kunit *test)
{
	struct buffers *b = fresh(test, 0);
	unsigned int way;
	size_t at;

	for (way = CRC_WAY_FIRST; way <= CRC_WAY_LAST; way++) {
		if (!crc_way_there(way))
			continue;
		for (at = 0; at <= LEN; at += 5) {
			u32 crc = crc_by(way, ~0U, NULL, b->src, at);

			crc = crc_by(way, crc, NULL, b->src + at, LEN - at);
			KUNIT_ASSERT_EQ(test, crc, b->want[LEN]);
		}
	}
}

static struct kunit_case cases[] = {
	KUNIT_CASE(any_length),
	KUNIT_CASE(copies),
	KUNIT_CASE(splits),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_crc",
	.test_cases = cases,
};

kunit_test_suite(suite);
