// SPDX-License-Identifier: GPL-2.0
/* Copies of payload, by string instructions and without: the octets, and no others. */
#include <kunit/test.h>
#include <linux/init.h>

/* called by a test, too */
#undef __init
#define __init

#include "softwarp/copy.c"

/* Octets around a copy that have to stay as they are */
#define AROUND	64
#define MOST	(2 * SWP_COPY_STRING + AROUND)

static void copies_all(struct kunit *test, u8 *to, const u8 *from)
{
	static const u32 lens[] = {
		0, 1, 8, 63, SWP_COPY_STRING - 1, SWP_COPY_STRING,
		SWP_COPY_STRING + 1, 2 * SWP_COPY_STRING + 7,
	};
	u32 i, j, off, len, wrong = 0;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		for (off = 0; off < 16; off++) {
			len = lens[i];
			memset(to, 0, MOST + 2 * AROUND);
			swp_copy(to + AROUND + off, from + 15 - off, len);
			wrong += !!memcmp(to + AROUND + off, from + 15 - off, len);
			for (j = 0; j < AROUND + off; j++)
				wrong += to[j];
			for (j = AROUND + off + len; j < MOST + 2 * AROUND; j++)
				wrong += to[j];
		}
	}
	KUNIT_EXPECT_EQ(test, 0U, wrong);
}

/* @to behind @from by some octets, but for whole pages, and before it */
static void copies_near(struct kunit *test, u8 *to, const u8 *from)
{
	u32 i, j, len, wrong = 0, clashes = 0;
	unsigned long off;
	u8 *at;

	for (i = 0; i < 2 * AROUND; i++) {
		memset(to, 0, MOST + SZ_4K + 3 * AROUND);
		off = (unsigned long)from - (unsigned long)to - AROUND;
		off += i < AROUND ? i : SZ_4K - 2 * AROUND + i;
		at = to + AROUND + (off & (SZ_4K - 1));
		len = MOST - i;
		clashes += swp_copy_clashes(at, from);
		swp_copy(at, from, len);
		wrong += !!memcmp(at, from, len);
		for (j = 1; j <= AROUND; j++)
			wrong += at[-(int)j];
		for (j = 0; j < AROUND; j++)
			wrong += at[len + j];
	}
	KUNIT_EXPECT_EQ(test, 0U, wrong);
	KUNIT_EXPECT_EQ(test, IS_ENABLED(CONFIG_X86_64) && !IS_ENABLED(CONFIG_KMSAN) ? 15U : 0U,
			clashes);
}

static void copies(struct kunit *test)
{
	u8 *to = kunit_kzalloc(test, MOST + SZ_4K + 3 * AROUND, GFP_KERNEL);
	u8 *from = kunit_kzalloc(test, MOST, GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, to);
	KUNIT_ASSERT_NOT_NULL(test, from);
	for (i = 0; i < MOST; i++)
		from[i] = i * 7 + (i >> 8) + 1 ?: 1;
	static_branch_disable(&swp_copy_by_string);
	copies_all(test, to, from);
	static_branch_enable(&swp_copy_by_string);
	copies_all(test, to, from);
	static_branch_disable(&swp_copy_by_string);
	swp_copy_init();
	copies_all(test, to, from);
	copies_near(test, to, from);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(copies),
	{}
};

static struct kunit_suite suite = {
	.name = "copy",
	.test_cases = cases,
};

kunit_test_suite(suite);
