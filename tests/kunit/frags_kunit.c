// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that are filled again: only those to which nobody else has a reference,
 * and none is lost.
 */
#include <kunit/test.h>
#include <linux/preempt.h>

#include "frags.h"

/* The least, which every machine has */
#define RING SWP_FRAGS_MIN

static SWP_DEFINE_FRAGS(frags, RING);

/* Give @f a page of its own, as a sender does whom the ring does not help. */
static void fresh(struct kunit *test, struct page_frag *f, unsigned int order)
{
	f->page = alloc_pages(GFP_KERNEL | __GFP_COMP, order);
	KUNIT_ASSERT_NOT_NULL(test, f->page);
	f->offset = 0;
	f->size = PAGE_SIZE << order;
}

/* TCP has a reference to all of the page. */
static struct page *fill(struct page_frag *f)
{
	f->offset = f->size;
	get_page(f->page);
	return f->page;
}

/* Fill as many pages as the ring has, and have it keep them. */
static void fill_ring(struct kunit *test, struct page **held)
{
	struct page_frag f = {};
	int i;

	for (i = 0; i < RING; i++) {
		fresh(test, &f, get_order(SWP_FRAG_SIZE));
		held[i] = fill(&f);
		KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 1));
		KUNIT_EXPECT_NULL(test, f.page);
		KUNIT_EXPECT_EQ(test, 2, page_ref_count(held[i]));
	}
}

static void free_pages_come_back(struct kunit *test)
{
	struct page *held[RING];
	struct page_frag f = {};
	int i;

	migrate_disable();
	fill_ring(test, held);
	for (i = 0; i < RING; i++)
		put_page(held[i]);
	for (i = 0; i < RING; i++) {
		KUNIT_EXPECT_TRUE(test, swp_frags_room(&frags, &f, 1));
		KUNIT_EXPECT_PTR_EQ(test, held[i], f.page);
		KUNIT_EXPECT_EQ(test, 0U, f.offset);
		KUNIT_EXPECT_EQ(test, (u32)SWP_FRAG_SIZE, (u32)f.size);
		KUNIT_EXPECT_EQ(test, 1, page_ref_count(f.page));
		/* the next call takes over the reference */
		f.offset = f.size;
		get_page(f.page);
	}
	put_page(f.page);
	put_page(f.page);
	for (i = 0; i < RING - 1; i++)
		put_page(held[i]);
	swp_frags_free(&frags);
	migrate_enable();
}

static void held_pages_stay_away(struct kunit *test)
{
	struct page *held[RING];
	struct page_frag f = {};
	int i;

	migrate_disable();
	fill_ring(test, held);
	for (i = 0; i < RING; i++) {
		KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 1));
		KUNIT_EXPECT_NULL(test, f.page);
		/* and the ring has let it go */
		KUNIT_EXPECT_EQ(test, 1, page_ref_count(held[i]));
		put_page(held[i]);
	}
	swp_frags_free(&frags);
	migrate_enable();
}

static void room_is_used_first(struct kunit *test)
{
	struct page_frag f;
	struct page *page;

	migrate_disable();
	fresh(test, &f, get_order(SWP_FRAG_SIZE));
	page = f.page;
	get_page(page);
	f.offset = f.size - 32;
	KUNIT_EXPECT_TRUE(test, swp_frags_room(&frags, &f, 32));
	KUNIT_EXPECT_EQ(test, f.size - 32, f.offset);
	/* one octet more than there is */
	KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 33));
	KUNIT_EXPECT_NULL(test, f.page);
	KUNIT_EXPECT_EQ(test, 2, page_ref_count(page));
	swp_frags_free(&frags);
	KUNIT_EXPECT_EQ(test, 1, page_ref_count(page));
	/* nobody has a reference any more: it is free from its beginning */
	f = (struct page_frag){ .page = page, .offset = SWP_FRAG_SIZE,
				.size = SWP_FRAG_SIZE };
	KUNIT_EXPECT_TRUE(test, swp_frags_room(&frags, &f, 32));
	KUNIT_EXPECT_PTR_EQ(test, page, f.page);
	KUNIT_EXPECT_EQ(test, 0U, f.offset);
	put_page(page);
	migrate_enable();
}

static void small_pages_are_not_kept(struct kunit *test)
{
	struct page_frag f;
	struct page *page;

	if (PAGE_SIZE >= SWP_FRAG_SIZE)
		kunit_skip(test, "no page is small here");
	migrate_disable();
	fresh(test, &f, 0);
	page = fill(&f);
	KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 1));
	KUNIT_EXPECT_NULL(test, f.page);
	KUNIT_EXPECT_EQ(test, 1, page_ref_count(page));
	put_page(page);
	swp_frags_free(&frags);
	migrate_enable();
}

static void one_page_is_passed_on(struct kunit *test)
{
	struct page_frag one, other, f = {};
	struct page *page;

	migrate_disable();
	fresh(test, &one, get_order(SWP_FRAG_SIZE));
	fresh(test, &other, get_order(SWP_FRAG_SIZE));
	one.offset = 100;
	page = one.page;
	swp_frags_give(&frags, &one);
	KUNIT_EXPECT_NULL(test, one.page);
	/* there is one already, so this is freed */
	get_page(other.page);
	f = other;
	swp_frags_give(&frags, &f);
	KUNIT_EXPECT_NULL(test, f.page);
	KUNIT_EXPECT_EQ(test, 1, page_ref_count(other.page));
	put_page(other.page);
	swp_frags_take(&frags, &f);
	KUNIT_EXPECT_PTR_EQ(test, page, f.page);
	KUNIT_EXPECT_EQ(test, 100U, f.offset);
	swp_frags_take(&frags, &other);
	KUNIT_EXPECT_NULL(test, other.page);
	/* the last one is freed with the ring */
	get_page(page);
	swp_frags_give(&frags, &f);
	swp_frags_free(&frags);
	KUNIT_EXPECT_EQ(test, 1, page_ref_count(page));
	put_page(page);
	migrate_enable();
}

/* No more than was asked for, than there is room for, or than the memory allows */
static void memory_limits_a_ring(struct kunit *test)
{
	u64 share = div_u64((u64)totalram_pages() << PAGE_SHIFT, SWP_FRAGS_SHARE);
	u32 most = swp_frags_limit(SWP_FRAGS_MAX);

	KUNIT_EXPECT_EQ(test, 1U, swp_frags_limit(1));
	KUNIT_EXPECT_EQ(test, (u32)SWP_FRAGS_MIN, swp_frags_limit(SWP_FRAGS_MIN));
	KUNIT_EXPECT_GE(test, most, (u32)SWP_FRAGS_MIN);
	KUNIT_EXPECT_LE(test, most, (u32)SWP_FRAGS_MAX);
	KUNIT_EXPECT_EQ(test, most, swp_frags_limit(U32_MAX));
	if (most > SWP_FRAGS_MIN)
		KUNIT_EXPECT_LE(test, (u64)most * SWP_FRAG_SIZE * num_possible_cpus(),
				share);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(free_pages_come_back),
	KUNIT_CASE(held_pages_stay_away),
	KUNIT_CASE(room_is_used_first),
	KUNIT_CASE(small_pages_are_not_kept),
	KUNIT_CASE(one_page_is_passed_on),
	KUNIT_CASE(memory_limits_a_ring),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_frags",
	.test_cases = cases,
};

kunit_test_suite(suite);
