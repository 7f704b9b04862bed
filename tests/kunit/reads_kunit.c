// SPDX-License-Identifier: GPL-2.0
/*
 * The queues of reads in progress: what was put into them comes back, in order
 * and unharmed, while their rings grow and their indices wrap.
 */
#include <kunit/test.h>
#include <linux/log2.h>

#include "softwarp/reads.h"

#define PARTS	3

/* What start-up may agree upon, beside powers of two as well as at them */
static const u16 limits[] = { 1, 3, 4, 5, 8, 9, 20, 128 };

/* Where indices begin: the wrap comes while rings are small, or large */
static const u32 starts[] = { 0, -3U, -9U, -70U };

static struct swp_qp *make_qp(struct kunit *test, u16 limit, u32 start)
{
	struct swp_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, qp);
	qp->sp.ird = limit;
	qp->sp.ord = limit;
	qp->max_send_sge = PARTS;
	qp->iread_prod = start;
	qp->iread_cons = start;
	qp->oread_prod = start;
	qp->oread_cons = start;
	KUNIT_ASSERT_EQ(test, 0, swp_reads_init(qp, limit, limit));
	return qp;
}

/* A ring has to be a power of two: its free running indices wrap at one. */
static void check_size(struct kunit *test, u32 size, u32 used, u16 limit)
{
	KUNIT_ASSERT_TRUE(test, is_power_of_2(size));
	KUNIT_ASSERT_GE(test, size, used);
	/* and has no more places than the limit needs */
	KUNIT_ASSERT_LE(test, size, max_t(u32, 4, roundup_pow_of_two(limit)));
}

/* Each entry holds its own number: none has the place of another. */
static void check_inbound(struct kunit *test, const struct swp_qp *qp, u16 limit)
{
	u32 i;

	check_size(test, qp->iread_size, qp->iread_prod - qp->iread_cons, limit);
	for (i = qp->iread_cons; i != qp->iread_prod; i++)
		KUNIT_ASSERT_EQ(test, i, swp_iread(qp, i)->read.size);
}

static void walk_inbound(struct kunit *test, u16 limit, u32 start)
{
	struct swp_qp *qp = make_qp(test, limit, start);
	u32 round, most;

	for (round = 0; round < 6; round++) {
		/* the rings grow by and by, and while they are in use */
		most = max(1U, limit * min(round + 1, 4U) / 4);
		while (qp->iread_prod - qp->iread_cons < most) {
			KUNIT_ASSERT_TRUE(test, swp_iread_room(qp));
			swp_iread(qp, qp->iread_prod)->read.size = qp->iread_prod;
			qp->iread_prod++;
		}
		check_inbound(test, qp, limit);
		while (qp->iread_prod - qp->iread_cons > round % 3)
			qp->iread_cons++;
		check_inbound(test, qp, limit);
	}
	swp_reads_free(qp);
}

static void check_outbound(struct kunit *test, const struct swp_qp *qp, u16 limit)
{
	u32 i, part;

	check_size(test, qp->oread_size, qp->oread_prod - qp->oread_cons, limit);
	for (i = qp->oread_cons; i != qp->oread_prod; i++) {
		struct swp_oread *o = swp_oread(qp, i);

		KUNIT_ASSERT_EQ(test, i, o->size);
		for (part = 0; part < o->num_sge; part++)
			KUNIT_ASSERT_EQ(test, i + part,
					swp_oread_sge(o)[part].length);
	}
}

static void push_outbound(struct kunit *test, struct swp_qp *qp)
{
	struct swp_oread *o;
	u32 i = qp->oread_prod, part;
	/* lists with and without memory of their own */
	u16 parts = i % (PARTS + 1);

	KUNIT_ASSERT_TRUE(test, swp_oread_room(qp, parts));
	o = swp_oread(qp, i);
	o->size = i;
	o->num_sge = parts;
	for (part = 0; part < parts; part++)
		swp_oread_sge(o)[part].length = i + part;
	qp->oread_prod++;
}

static void walk_outbound(struct kunit *test, u16 limit, u32 start)
{
	struct swp_qp *qp = make_qp(test, limit, start);
	u32 round, most;

	for (round = 0; round < 6; round++) {
		most = max(1U, limit * min(round + 1, 4U) / 4);
		while (qp->oread_prod - qp->oread_cons < most)
			push_outbound(test, qp);
		check_outbound(test, qp, limit);
		if (most == limit) {
			/* it waits for a response, not for memory */
			KUNIT_ASSERT_FALSE(test, swp_oread_room(qp, 1));
			KUNIT_ASSERT_FALSE(test, qp->tx.no_mem);
		}
		while (qp->oread_prod - qp->oread_cons > round % 3)
			swp_oread_done(qp);
		check_outbound(test, qp, limit);
	}
	/* what is still out at the end of a stream */
	swp_reads_free(qp);
}

static void inbound(struct kunit *test)
{
	int i, j;

	for (i = 0; i < ARRAY_SIZE(limits); i++)
		for (j = 0; j < ARRAY_SIZE(starts); j++)
			walk_inbound(test, limits[i], starts[j]);
}

static void outbound(struct kunit *test)
{
	int i, j;

	for (i = 0; i < ARRAY_SIZE(limits); i++)
		for (j = 0; j < ARRAY_SIZE(starts); j++)
			walk_outbound(test, limits[i], starts[j]);
}

/* Streams without reads have no rings. */
static void none(struct kunit *test)
{
	struct swp_qp *qp = make_qp(test, 0, 0);

	KUNIT_EXPECT_NULL(test, qp->iread);
	KUNIT_EXPECT_NULL(test, qp->oread);
	KUNIT_EXPECT_FALSE(test, swp_oread_room(qp, 1));
	KUNIT_EXPECT_FALSE(test, qp->tx.no_mem);
	swp_reads_free(qp);
}

static struct kunit_case reads_cases[] = {
	KUNIT_CASE(inbound),
	KUNIT_CASE(outbound),
	KUNIT_CASE(none),
	{}
};

static struct kunit_suite reads_suite = {
	.name = "softwarp_reads",
	.test_cases = reads_cases,
};

kunit_test_suite(reads_suite);
