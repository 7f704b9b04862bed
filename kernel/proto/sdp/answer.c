// SPDX-License-Identifier: GPL-2.0
/*
 * The port mapper's responder, see answer.h.
 */
#include "answer.h"

bool sdp_pm_answer(const struct sdp_pm_msg *msg,
		   const struct sdp_pm_service *service,
		   struct sdp_pm_msg *reply)
{
	if (msg->type != SDP_PM_REQ)
		return false;
	*reply = *msg;
	reply->type = service ? SDP_PM_ACCEPT : SDP_PM_DENY;
	reply->time = service ? service->time : 0;
	if (service) {
		reply->ap_port = service->port;
		memcpy(reply->ap_addr, service->addr, sizeof(reply->ap_addr));
	}
	return true;
}

void sdp_pm_guard_init(struct sdp_pm_guard *g, struct sdp_pm_rate source,
		       struct sdp_pm_rate all)
{
	*g = (struct sdp_pm_guard){ .source = source, .all = all };
}

/* Is there room for one more answer?  What was spent comes back with time. */
static bool room(struct sdp_pm_bucket *b, struct sdp_pm_rate rate, __u64 now)
{
	__u64 passed = now - b->when;
	__u64 most = 1000ULL * rate.burst;

	b->when = now;
	/* a minute empties the bucket, so the product cannot overflow */
	if (passed >= 60000 || passed * rate.per_second >= b->spent)
		b->spent = 0;
	else
		b->spent -= passed * rate.per_second;
	return b->spent + 1000 <= most;
}

bool sdp_pm_guard_pass(struct sdp_pm_guard *g, __u32 hash, __u64 now)
{
	struct sdp_pm_bucket *b = &g->sources[hash % SDP_PM_BUCKETS];

	/* a source over its own limit uses up nothing of the total */
	if (!room(b, g->source, now) || !room(&g->total, g->all, now))
		return false;
	b->spent += 1000;
	g->total.spent += 1000;
	return true;
}
