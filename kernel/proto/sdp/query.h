/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The port mapper's client: one request, and a cache of the answers;
 * draft-pinkerton-iwarp-sdp-01 sections 7.3.1.4, 7.4, 7.5.1.
 *
 *   ask -> WAIT --PMAccept--> SDP (PMAck is sent; connect there from CpPort)
 *            |  `--PMDeny, or no answer--> TCP (the Conventional Address)
 *            `--time: the same PMReq again
 *
 * The first answer counts.  The cache also remembers a host that does not
 * answer at all, so that the next connect() does not wait.
 */
#ifndef SDP_PROTO_QUERY_H
#define SDP_PROTO_QUERY_H

#include "portmap.h"

enum sdp_query_state {
	SDP_QUERY_WAIT,
	SDP_QUERY_SDP,
	SDP_QUERY_TCP,
};

/* What the caller has to do now */
enum sdp_query_action {
	SDP_QUERY_NOTHING,
	SDP_QUERY_SEND,		/* send @request, the first time or again */
	SDP_QUERY_ACK,		/* send @answer as it is, and connect by SDP */
	SDP_QUERY_DENIED,	/* connect by TCP: there is no SDP */
	SDP_QUERY_SILENT,	/* connect by TCP: nobody has answered */
};

struct sdp_query {
	__u8 state;		/* enum sdp_query_state */
	__u8 tries;		/* requests still to be sent */
	__u32 wait;		/* ms until the next request; doubles */
	__u64 when;		/* time to call sdp_query_timer(), ms */
	struct sdp_pm_msg request;
	struct sdp_pm_msg answer;	/* the PMAck */
};

/*
 * sdp_query_ask - begin a query; the caller then sends @q->request
 * @service: ap_addr, ap_port, cp_addr, cp_port and handle as in the draft;
 *	     the caller keeps (handle, cp_addr, cp_port) unique (section 7.5.1)
 * @wait: ms to wait for an answer to the first request
 * @tries: requests in all
 * @now: ms
 */
void sdp_query_ask(struct sdp_query *q, const struct sdp_pm_msg *service,
		   __u32 wait, __u8 tries, __u64 now);

/* To be called at the time @q->when. */
enum sdp_query_action sdp_query_timer(struct sdp_query *q, __u64 now);

/* A datagram has arrived, for this or another query. */
enum sdp_query_action sdp_query_take(struct sdp_query *q,
				     const struct sdp_pm_msg *msg);

/* An ICMP message says that nobody listens; same as PMDeny. */
enum sdp_query_action sdp_query_unreachable(struct sdp_query *q);

/* An answer in the cache; addresses and ports are as in struct sdp_pm_msg */
struct sdp_pm_entry {
	__u8 version;		/* 4, 6; 0: empty */
	bool sdp;		/* SDP is at @port and @addr; false: no SDP */
	__u16 port;
	__u16 ap_port;		/* key: with ap_addr the service, and cp_addr */
	__u8 addr[16];
	__u8 ap_addr[16];
	__u8 cp_addr[16];
	__u64 until;		/* expiry, ms */
};

/* Entries per hash value; the one that expires first is replaced. */
#define SDP_PM_WAYS	4

struct sdp_pm_cache {
	struct sdp_pm_entry *entries;	/* the caller provides them, zeroed */
	__u32 sets;			/* SDP_PM_WAYS entries each; a power of 2 */
};

/*
 * @asked: the PMReq, or the one that would be sent
 * @hash: keyed hash of its service and its local address
 */
const struct sdp_pm_entry *sdp_pm_cache_find(const struct sdp_pm_cache *c,
					     const struct sdp_pm_msg *asked,
					     __u32 hash, __u64 now);

/*
 * Keep an answer.
 * @answer: the PMAck; it is kept for @time, the PmTime of the PMAccept.  NULL:
 *	    the service has no SDP port; that is kept for @ms
 */
void sdp_pm_cache_keep(struct sdp_pm_cache *c, const struct sdp_pm_msg *asked,
		       __u32 hash, const struct sdp_pm_msg *answer, __u8 time,
		       __u64 ms, __u64 now);

/*
 * sdp_pm_cache_next - find the next valid entry
 * @at: index to begin with; on return that of the entry, or where to continue
 * @most: entries to look at
 * NULL: there is none among these; none at all if @at is SDP_PM_WAYS * @c->sets.
 */
const struct sdp_pm_entry *sdp_pm_cache_next(const struct sdp_pm_cache *c,
					     __u32 *at, __u32 most, __u64 now);

/* Forget an answer that was wrong: the port it names has sent a reset. */
void sdp_pm_cache_drop(struct sdp_pm_cache *c, const struct sdp_pm_msg *asked,
		       __u32 hash);

#endif /* SDP_PROTO_QUERY_H */
