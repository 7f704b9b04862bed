// SPDX-License-Identifier: GPL-2.0
/*
 * The port mapper's two ends; draft-pinkerton-iwarp-sdp-01 section 7.  Comments
 * carry requirement ids.
 */
#include <kunit/test.h>

#include "proto/sdp/answer.h"
#include "proto/sdp/query.h"

static const struct sdp_pm_msg service = {
	.type = SDP_PM_REQ, .version = 4, .ap_port = 80, .cp_port = 40000,
	.handle = 0x1122334455667788ULL,
	.cp_addr = { 10, 0, 0, 1 }, .ap_addr = { 10, 0, 0, 2 },
};

static const struct sdp_pm_service mapped = {
	.port = 7000, .addr = { 10, 0, 0, 3 }, .time = 40,
};

/* PM-25, PM-26, PM-36, PM-37, PM-45, PM-50, PM-52 */
static void accepted(struct kunit *test)
{
	struct sdp_pm_msg reply, want;
	struct sdp_query q;

	sdp_query_ask(&q, &service, 50, 2, 1000);
	KUNIT_EXPECT_MEMEQ(test, &service, &q.request, sizeof(service));
	KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&q.request, &mapped, &reply));
	want = service;
	want.type = SDP_PM_ACCEPT;
	want.time = 40;
	want.ap_port = 7000;
	want.ap_addr[3] = 3;
	KUNIT_EXPECT_MEMEQ(test, &want, &reply, sizeof(want));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_ACK, sdp_query_take(&q, &reply));
	want.type = SDP_PM_ACK;
	want.time = 0;
	KUNIT_EXPECT_MEMEQ(test, &want, &q.answer, sizeof(want));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_SDP, (int)q.state);
	/* a duplicate, or a change of mind: the first one holds */
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_take(&q, &reply));
	reply.type = SDP_PM_DENY;
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_take(&q, &reply));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_timer(&q, 99999));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_unreachable(&q));
	/* the same request again, when the service has gone */
	KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&q.request, NULL, &reply));
	KUNIT_EXPECT_EQ(test, SDP_PM_DENY, (int)reply.type);
	/* PM-46, PM-53: nothing answers an answer */
	want.type = SDP_PM_ACK;
	KUNIT_EXPECT_FALSE(test, sdp_pm_answer(&want, &mapped, &reply));
	want.type = SDP_PM_ACCEPT;
	KUNIT_EXPECT_FALSE(test, sdp_pm_answer(&want, &mapped, &reply));
	want.type = SDP_PM_DENY;
	KUNIT_EXPECT_FALSE(test, sdp_pm_answer(&want, &mapped, &reply));
}

/* PM-15, PM-28, PM-29 */
static void denied(struct kunit *test)
{
	struct sdp_pm_msg reply, want = service;
	struct sdp_query q;

	sdp_query_ask(&q, &service, 50, 2, 1000);
	want.time = 77;
	KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&want, NULL, &reply));
	want.type = SDP_PM_DENY;
	/* PM-27 */
	want.time = 0;
	KUNIT_EXPECT_MEMEQ(test, &want, &reply, sizeof(want));
	/* PM-27, PM-15: nor is it looked at there, and nor is ApPort */
	reply.time = 77;
	reply.ap_port = 0;
	KUNIT_EXPECT_EQ(test, SDP_QUERY_DENIED, sdp_query_take(&q, &reply));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_TCP, (int)q.state);
	reply.type = SDP_PM_ACCEPT;
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_take(&q, &reply));
	sdp_query_ask(&q, &service, 50, 2, 1000);
	KUNIT_EXPECT_EQ(test, SDP_QUERY_DENIED, sdp_query_unreachable(&q));
}

/*
 * PM-35, PM-36, PM-48, PM-50, PM-52 to PM-55: nothing is kept, so what is answered
 * follows from the request and the service alone, whatever came before
 */
static void nothing_kept(struct kunit *test)
{
	struct sdp_pm_msg first, reply, other = service, ack;
	int i;

	KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&service, &mapped, &first));
	for (i = 0; i < 100; i++) {
		/* another transaction of the same four, and its end */
		other.handle++;
		KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&other, &mapped, &reply));
		KUNIT_EXPECT_EQ(test, other.handle, reply.handle);
		KUNIT_EXPECT_EQ(test, 7000, (int)reply.ap_port);
		ack = reply;
		ack.type = SDP_PM_ACK;
		KUNIT_EXPECT_FALSE(test, sdp_pm_answer(&ack, &mapped, &reply));
		/* the service goes, and comes back */
		KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&service, NULL, &reply));
		KUNIT_EXPECT_EQ(test, SDP_PM_DENY, (int)reply.type);
		KUNIT_ASSERT_TRUE(test, sdp_pm_answer(&service, &mapped, &reply));
		KUNIT_EXPECT_MEMEQ(test, &first, &reply, sizeof(first));
	}
}

/* PM-21, PM-27: whatever is left in what is asked with */
static void request(struct kunit *test)
{
	struct sdp_pm_msg asked = service;
	struct sdp_query q;

	asked.type = SDP_PM_DENY;
	asked.time = 77;
	sdp_query_ask(&q, &asked, 50, 2, 1000);
	KUNIT_EXPECT_MEMEQ(test, &service, &q.request, sizeof(service));
}

/* PM-22, PM-37, PM-46: answers to others */
static void foreign(struct kunit *test)
{
	struct sdp_pm_msg reply;
	struct sdp_query q;
	int i;

	sdp_query_ask(&q, &service, 50, 2, 1000);
	for (i = 0; i < 7; i++) {
		sdp_pm_answer(&service, &mapped, &reply);
		switch (i) {
		case 0:
			reply.handle++;
			break;
		case 1:
			reply.cp_port++;
			break;
		case 2:
			reply.cp_addr[3]++;
			break;
		case 3:
			reply.version = 6;
			break;
		case 4:
			reply.type = SDP_PM_REQ;
			break;
		case 5:
			reply.type = SDP_PM_ACK;
			break;
		default:
			reply.ap_port = 0;
			break;
		}
		KUNIT_EXPECT_EQ_MSG(test, SDP_QUERY_NOTHING,
				    sdp_query_take(&q, &reply), "case %d", i);
		KUNIT_EXPECT_EQ(test, SDP_QUERY_WAIT, (int)q.state);
	}
}

/* PM-39, PM-40, PM-43: again, later and later, and then by TCP */
static void silence(struct kunit *test)
{
	struct sdp_pm_msg first;
	struct sdp_query q;

	sdp_query_ask(&q, &service, 50, 3, 1000);
	first = q.request;
	KUNIT_EXPECT_EQ(test, 1050ULL, q.when);
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_timer(&q, 1049));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_SEND, sdp_query_timer(&q, 1050));
	KUNIT_EXPECT_EQ(test, 1150ULL, q.when);
	KUNIT_EXPECT_EQ(test, SDP_QUERY_SEND, sdp_query_timer(&q, 1150));
	KUNIT_EXPECT_MEMEQ(test, &first, &q.request, sizeof(first));
	KUNIT_EXPECT_EQ(test, 1350ULL, q.when);
	KUNIT_EXPECT_EQ(test, SDP_QUERY_SILENT, sdp_query_timer(&q, 1350));
	KUNIT_EXPECT_EQ(test, SDP_QUERY_NOTHING, sdp_query_timer(&q, 2000));
}

static struct sdp_pm_cache cache_of(struct kunit *test)
{
	struct sdp_pm_cache c = { .sets = 2 };

	c.entries = kunit_kcalloc(test, 2 * SDP_PM_WAYS, sizeof(*c.entries),
				  GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, c.entries);
	return c;
}

/* PM-08 to PM-11, PM-61, and that a host without SDP is asked once a minute */
static void cache(struct kunit *test)
{
	struct sdp_pm_cache c = cache_of(test);
	struct sdp_pm_msg answer = service, other = service;
	const struct sdp_pm_entry *e;

	answer.ap_port = 7000;
	answer.ap_addr[3] = 3;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &service, 5, 0));
	/* for once */
	sdp_pm_cache_keep(&c, &service, 5, &answer, 0, 0, 100);
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &service, 5, 100));
	/* a second */
	sdp_pm_cache_keep(&c, &service, 5, &answer, 4, 0, 100);
	e = sdp_pm_cache_find(&c, &service, 5, 1099);
	KUNIT_ASSERT_NOT_NULL(test, e);
	KUNIT_EXPECT_TRUE(test, e->sdp);
	KUNIT_EXPECT_EQ(test, 7000, (int)e->port);
	KUNIT_EXPECT_EQ(test, 3, (int)e->addr[3]);
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &service, 5, 1100));
	/* for ever */
	sdp_pm_cache_keep(&c, &service, 5, &answer, 255, 0, 100);
	KUNIT_EXPECT_NOT_NULL(test, sdp_pm_cache_find(&c, &service, 5, ~0ULL - 1));
	/* another service, another address of ours, another family */
	other.ap_port++;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &other, 5, 100));
	other = service;
	other.cp_addr[0]++;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &other, 5, 100));
	other = service;
	other.ap_addr[0]++;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &other, 5, 100));
	other = service;
	other.version = 6;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &other, 5, 100));
	/* the port and the handle are another matter each time */
	other = service;
	other.cp_port++;
	other.handle++;
	KUNIT_EXPECT_NOT_NULL(test, sdp_pm_cache_find(&c, &other, 5, 100));
	/* it is not to be had by SDP any more */
	sdp_pm_cache_keep(&c, &service, 5, NULL, 0, 60000, 200);
	e = sdp_pm_cache_find(&c, &service, 5, 60199);
	KUNIT_ASSERT_NOT_NULL(test, e);
	KUNIT_EXPECT_FALSE(test, e->sdp);
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &service, 5, 60200));
	/* PM-44 */
	sdp_pm_cache_keep(&c, &service, 5, &answer, 255, 0, 100);
	sdp_pm_cache_drop(&c, &service, 5);
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_find(&c, &service, 5, 100));
}

/* What ends first makes room; the other sets are left alone. */
static void cache_full(struct kunit *test)
{
	struct sdp_pm_cache c = cache_of(test);
	struct sdp_pm_msg asked = service;
	int i;

	sdp_pm_cache_keep(&c, &asked, 1, NULL, 0, 10, 0);
	for (i = 0; i < SDP_PM_WAYS + 2; i++) {
		asked.ap_port = i;
		sdp_pm_cache_keep(&c, &asked, 4, NULL, 0, 1000 + i, 0);
	}
	for (i = 0; i < SDP_PM_WAYS + 2; i++) {
		asked.ap_port = i;
		KUNIT_EXPECT_EQ_MSG(test, i >= 2,
				    !!sdp_pm_cache_find(&c, &asked, 4, 0),
				    "entry %d", i);
	}
	KUNIT_EXPECT_NOT_NULL(test, sdp_pm_cache_find(&c, &service, 1, 0));
}

/* Each valid entry once, in steps of any size; expired and empty ones never */
static void cache_walk(struct kunit *test)
{
	struct sdp_pm_cache c = cache_of(test);
	const u32 end = 2 * SDP_PM_WAYS;
	struct sdp_pm_msg asked = service;
	const struct sdp_pm_entry *e;
	u32 at, most;
	int i, found;

	at = 0;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_next(&c, &at, ~0U, 0));
	KUNIT_EXPECT_EQ(test, end, at);
	/* even ports until 10, odd ones until 20, in both sets */
	for (i = 0; i < 6; i++) {
		asked.ap_port = 100 + i;
		sdp_pm_cache_keep(&c, &asked, i / 3, NULL, 0,
				  i % 2 ? 20 : 10, 0);
	}
	for (most = 1; most <= end + 1; most++) {
		u32 seen = 0;

		for (at = 0, found = 0; at < end;) {
			u32 from = at;

			e = sdp_pm_cache_next(&c, &at, most, 10);
			KUNIT_ASSERT_LE(test, at - from, most);
			if (!e)
				continue;
			KUNIT_EXPECT_PTR_EQ(test, &c.entries[at], e);
			seen |= 1U << (e->ap_port - 100);
			found++;
			at++;
		}
		KUNIT_EXPECT_EQ(test, 3, found);
		KUNIT_EXPECT_EQ(test, 0x2aU, seen);
	}
	/* beyond the end, as after a change of the size */
	at = end + 1;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_next(&c, &at, ~0U, 0));
	at = 0;
	KUNIT_EXPECT_NULL(test, sdp_pm_cache_next(&c, &at, 0, 0));
	KUNIT_EXPECT_EQ(test, 0U, at);
}

/* PM-57: so many at once, so many per second, and one source leaves room */
static void flood(struct kunit *test)
{
	struct sdp_pm_rate source = { .burst = 3, .per_second = 2 };
	struct sdp_pm_rate all = { .burst = 5, .per_second = 4 };
	struct sdp_pm_guard *g = kunit_kzalloc(test, sizeof(*g), GFP_KERNEL);
	int i, passed = 0;

	KUNIT_ASSERT_NOT_NULL(test, g);
	sdp_pm_guard_init(g, source, all);
	for (i = 0; i < 100; i++)
		passed += sdp_pm_guard_pass(g, 7, 5000);
	KUNIT_EXPECT_EQ(test, 3, passed);
	for (i = 0; i < 100; i++)
		passed += sdp_pm_guard_pass(g, 8 + i, 5000);
	KUNIT_EXPECT_EQ(test, 5, passed);
	KUNIT_EXPECT_FALSE(test, sdp_pm_guard_pass(g, 7, 5499));
	KUNIT_EXPECT_TRUE(test, sdp_pm_guard_pass(g, 7, 5500));
	KUNIT_EXPECT_FALSE(test, sdp_pm_guard_pass(g, 7, 5999));
	/* for long enough: all of it, and no more */
	for (i = 0, passed = 0; i < 100; i++)
		passed += sdp_pm_guard_pass(g, 7, 10000000);
	KUNIT_EXPECT_EQ(test, 3, passed);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(accepted),
	KUNIT_CASE(denied),
	KUNIT_CASE(nothing_kept),
	KUNIT_CASE(request),
	KUNIT_CASE(foreign),
	KUNIT_CASE(silence),
	KUNIT_CASE(cache),
	KUNIT_CASE(cache_full),
	KUNIT_CASE(cache_walk),
	KUNIT_CASE(flood),
	{}
};

static struct kunit_suite suite = {
	.name = "sdp_pm",
	.test_cases = cases,
};

kunit_test_suite(suite);
