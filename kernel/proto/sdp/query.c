// SPDX-License-Identifier: GPL-2.0
/*
 * The port mapper's client, see query.h.
 */
#include "query.h"

void sdp_query_ask(struct sdp_query *q, const struct sdp_pm_msg *service,
		   __u32 wait, __u8 tries, __u64 now)
{
	*q = (struct sdp_query){
		.state = SDP_QUERY_WAIT,
		.tries = tries ? (__u8)(tries - 1) : 0,
		.wait = wait,
		.when = now + wait,
		.request = *service,
	};
	q->request.type = SDP_PM_REQ;
	q->request.time = 0;
}

static enum sdp_query_action deny(struct sdp_query *q,
				  enum sdp_query_action action)
{
	if (q->state != SDP_QUERY_WAIT)
		return SDP_QUERY_NOTHING;
	q->state = SDP_QUERY_TCP;
	return action;
}

enum sdp_query_action sdp_query_timer(struct sdp_query *q, __u64 now)
{
	if (q->state != SDP_QUERY_WAIT || now < q->when)
		return SDP_QUERY_NOTHING;
	if (!q->tries)
		return deny(q, SDP_QUERY_SILENT);
	q->tries--;
	q->wait *= 2;
	q->when = now + q->wait;
	return SDP_QUERY_SEND;
}

/* These three fields and the IP version identify our request (section 7.5). */
static bool ours(const struct sdp_query *q, const struct sdp_pm_msg *msg)
{
	return msg->handle == q->request.handle &&
	       msg->cp_port == q->request.cp_port &&
	       msg->version == q->request.version &&
	       !memcmp(msg->cp_addr, q->request.cp_addr, sizeof(msg->cp_addr));
}

enum sdp_query_action sdp_query_take(struct sdp_query *q,
				     const struct sdp_pm_msg *msg)
{
	if (q->state != SDP_QUERY_WAIT || !ours(q, msg))
		return SDP_QUERY_NOTHING;
	if (msg->type == SDP_PM_DENY)
		return deny(q, SDP_QUERY_DENIED);
	/* ignore an answer with port 0: nobody can connect to it */
	if (msg->type != SDP_PM_ACCEPT || !msg->ap_port)
		return SDP_QUERY_NOTHING;
	q->state = SDP_QUERY_SDP;
	q->answer = *msg;
	q->answer.type = SDP_PM_ACK;
	q->answer.time = 0;
	return SDP_QUERY_ACK;
}

enum sdp_query_action sdp_query_unreachable(struct sdp_query *q)
{
	return deny(q, SDP_QUERY_DENIED);
}

static struct sdp_pm_entry *set_of(const struct sdp_pm_cache *c, __u32 hash)
{
	return &c->entries[(hash & (c->sets - 1)) * SDP_PM_WAYS];
}

static bool same(const struct sdp_pm_entry *e, const struct sdp_pm_msg *asked)
{
	return e->version == asked->version && e->ap_port == asked->ap_port &&
	       !memcmp(e->ap_addr, asked->ap_addr, sizeof(e->ap_addr)) &&
	       !memcmp(e->cp_addr, asked->cp_addr, sizeof(e->cp_addr));
}

const struct sdp_pm_entry *sdp_pm_cache_find(const struct sdp_pm_cache *c,
					     const struct sdp_pm_msg *asked,
					     __u32 hash, __u64 now)
{
	struct sdp_pm_entry *e = set_of(c, hash);
	int i;

	for (i = 0; i < SDP_PM_WAYS; i++, e++)
		if (e->version && now < e->until && same(e, asked))
			return e;
	return NULL;
}

const struct sdp_pm_entry *sdp_pm_cache_next(const struct sdp_pm_cache *c,
					     __u32 *at, __u32 most, __u64 now)
{
	const struct sdp_pm_entry *e;

	for (; most && *at < c->sets * SDP_PM_WAYS; most--, (*at)++) {
		e = &c->entries[*at];
		if (e->version && now < e->until)
			return e;
	}
	return NULL;
}

void sdp_pm_cache_drop(struct sdp_pm_cache *c, const struct sdp_pm_msg *asked,
		       __u32 hash)
{
	struct sdp_pm_entry *e = set_of(c, hash);
	int i;

	for (i = 0; i < SDP_PM_WAYS; i++, e++)
		if (same(e, asked))
			*e = (struct sdp_pm_entry){};
}

/* The place for a new entry: an empty one, or the one that expires first */
static struct sdp_pm_entry *place(struct sdp_pm_cache *c, __u32 hash)
{
	struct sdp_pm_entry *e = set_of(c, hash);
	struct sdp_pm_entry *best = e;
	int i;

	for (i = 0; i < SDP_PM_WAYS; i++, e++) {
		if (!e->version)
			return e;
		if (e->until < best->until)
			best = e;
	}
	return best;
}

void sdp_pm_cache_keep(struct sdp_pm_cache *c, const struct sdp_pm_msg *asked,
		       __u32 hash, const struct sdp_pm_msg *answer, __u8 time,
		       __u64 ms, __u64 now)
{
	__u64 life = answer ? sdp_pm_time_ms(time) : ms;
	struct sdp_pm_entry *e;

	sdp_pm_cache_drop(c, asked, hash);
	if (!life)
		return;
	e = place(c, hash);
	*e = (struct sdp_pm_entry){
		.version = asked->version,
		.sdp = !!answer,
		.port = answer ? answer->ap_port : 0,
		.ap_port = asked->ap_port,
		.until = life < ~0ULL - now ? now + life : ~0ULL,
	};
	memcpy(e->ap_addr, asked->ap_addr, sizeof(e->ap_addr));
	memcpy(e->cp_addr, asked->cp_addr, sizeof(e->cp_addr));
	if (answer)
		memcpy(e->addr, answer->ap_addr, sizeof(e->addr));
}
