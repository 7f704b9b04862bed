// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that are filled again: only those to which nobody else has a reference,
 * and none is lost.
 */
#include <kunit/test.h>
#include <linux/preempt.h>

#include "frags.h"

static SWP_DEFINE_FRAGS(frags);

/* The pages that a CPU of this machine keeps at most */
static u32 most(void)
{
	return swp_frags_limit((u64)totalram_pages() << PAGE_SHIFT);
}

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

/* Fill some pages, and have the ring keep them. */
static void fill_ring(struct kunit *test, struct page **held, u32 pages)
{
	struct page_frag f = {};
	u32 i;

	for (i = 0; i < pages; i++) {
		fresh(test, &f, get_order(SWP_FRAG_SIZE));
		held[i] = fill(&f);
		KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 1));
		KUNIT_EXPECT_NULL(test, f.page);
		KUNIT_EXPECT_EQ(test, 2, page_ref_count(held[i]));
	}
}

static void free_pages_come_back(struct kunit *test)
{
	struct page *held[SWP_FRAGS_MAX];
	struct page_frag f = {};
	u32 i;

	migrate_disable();
	fill_ring(test, held, most());
	for (i = 0; i < most(); i++)
		put_page(held[i]);
	for (i = 0; i < most(); i++) {
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
	for (i = 0; i < most() - 1; i++)
		put_page(held[i]);
	swp_frags_free(&frags);
	migrate_enable();
}

/* A page that may be in flight for long does not keep others from being found. */
static void held_pages_stay_away(struct kunit *test)
{
	struct page *held[SWP_FRAGS_MAX];
	struct page_frag f = {};
	u32 i;

	migrate_disable();
	fill_ring(test, held, most());
	for (i = 0; i < most(); i++) {
		struct page *page;

		fresh(test, &f, get_order(SWP_FRAG_SIZE));
		page = fill(&f);
		KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 1));
		KUNIT_EXPECT_NULL(test, f.page);
		/* the ring has let the oldest go, to have room for it */
		KUNIT_EXPECT_EQ(test, 1, page_ref_count(held[i]));
		put_page(held[i]);
		held[i] = page;
	}
	for (i = 0; i < most(); i++)
		put_page(held[i]);
	swp_frags_free(&frags);
	migrate_enable();
}

/* A page in flight does not hide the next one, nor do two if there is no memory. */
static void a_held_page_is_passed_over(struct kunit *test)
{
	struct page *held[3];
	struct page_frag f = {};

	migrate_disable();
	fill_ring(test, held, 3);
	put_page(held[1]);
	put_page(held[2]);
	KUNIT_EXPECT_TRUE(test, swp_frags_room(&frags, &f, 1));
	KUNIT_EXPECT_PTR_EQ(test, held[1], f.page);
	KUNIT_EXPECT_EQ(test, 1, page_ref_count(held[0]));
	KUNIT_EXPECT_EQ(test, 1U, this_cpu_ptr(&frags)->pages);
	put_page(f.page);
	put_page(held[0]);
	swp_frags_free(&frags);
	/* two in a row: who has nothing to fill finds what is behind them in the end */
	f.page = NULL;
	fill_ring(test, held, 3);
	put_page(held[2]);
	KUNIT_EXPECT_FALSE(test, swp_frags_room(&frags, &f, 1));
	KUNIT_EXPECT_TRUE(test, swp_frags_room(&frags, &f, 1));
	KUNIT_EXPECT_PTR_EQ(test, held[2], f.page);
	put_page(f.page);
	put_page(held[0]);
	put_page(held[1]);
	swp_frags_free(&frags);
	migrate_enable();
}

/* The ring has as many pages as are in flight, not as many as once were. */
static void spare_pages_are_freed(struct kunit *test)
{
	struct page *held[SWP_FRAGS_MIN], *before;
	struct page_frag f;
	u32 i;

	migrate_disable();
	fill_ring(test, held, SWP_FRAGS_MIN);
	for (i = 0; i < SWP_FRAGS_MIN; i++)
		put_page(held[i]);
	fresh(test, &f, get_order(SWP_FRAG_SIZE));
	for (i = 0; i < SWP_FRAGS_MIN * SWP_FRAGS_SPARE; i++) {
		before = fill(&f);
		KUNIT_ASSERT_TRUE(test, swp_frags_room(&frags, &f, 1));
		if (i == SWP_FRAGS_SPARE - 2)
			KUNIT_EXPECT_EQ(test, (u32)SWP_FRAGS_MIN,
					this_cpu_ptr(&frags)->pages);
		if (i == SWP_FRAGS_SPARE - 1)
			KUNIT_EXPECT_EQ(test, (u32)SWP_FRAGS_MIN - 1,
					this_cpu_ptr(&frags)->pages);
		put_page(before);
	}
	/* the one that is in flight while the other is filled */
	KUNIT_EXPECT_EQ(test, 1U, this_cpu_ptr(&frags)->pages);
	put_page(f.page);
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

/* Neither so few pages that they are of no use, nor more than there is room for */
static void memory_limits_a_ring(struct kunit *test)
{
	u64 page = (u64)SWP_FRAGS_SHARE * SWP_FRAG_SIZE * num_possible_cpus();

	KUNIT_EXPECT_EQ(test, (u32)SWP_FRAGS_MIN, swp_frags_limit(0));
	KUNIT_EXPECT_EQ(test, (u32)SWP_FRAGS_MIN,
			swp_frags_limit(page * SWP_FRAGS_MIN));
	KUNIT_EXPECT_EQ(test, 40U, swp_frags_limit(page * 41 - 1));
	KUNIT_EXPECT_EQ(test, 41U, swp_frags_limit(page * 41));
	KUNIT_EXPECT_EQ(test, (u32)SWP_FRAGS_MAX, swp_frags_limit(U64_MAX));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(free_pages_come_back),
	KUNIT_CASE(held_pages_stay_away),
	KUNIT_CASE(a_held_page_is_passed_over),
	KUNIT_CASE(spare_pages_are_freed),
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
