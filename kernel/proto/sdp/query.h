/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The port mapper's client: one question, and a cache of what was answered;
 * draft-pinkerton-iwarp-sdp-01 sections 7.3.1.4, 7.4, 7.5.1.
 *
 *   ask -> WAIT --PMAccept--> SDP (PMAck is sent; connect there from CpPort)
 *            |  `--PMDeny, or no answer--> TCP (the Conventional Address)
 *            `--time: the same PMReq again
 *
 * The first answer counts.  Of a host that does not answer at all the cache keeps
 * that, too, so that the next connect does not wait.
 */
#ifndef SDP_PROTO_QUERY_H
#define SDP_PROTO_QUERY_H

#include "portmap.h"

enum sdp_query_state {
	SDP_QUERY_WAIT,
	SDP_QUERY_SDP,
	SDP_QUERY_TCP,
};

/* What is to be done now */
enum sdp_query_action {
	SDP_QUERY_NOTHING,
	SDP_QUERY_SEND,		/* @request, again or for the first time */
	SDP_QUERY_ACK,		/* send @answer as it is, and connect by SDP */
	SDP_QUERY_DENIED,	/* connect by TCP */
	SDP_QUERY_SILENT,	/* the same, and nobody has answered */
};

struct sdp_query {
	__u8 state;		/* enum sdp_query_state */
	__u8 tries;		/* that are left */
	__u32 wait;		/* ms until the next one; doubles */
	__u64 when;		/* to call sdp_query_timer() */
	struct sdp_pm_msg request;
	struct sdp_pm_msg answer;	/* the PMAck */
};

/*
 * sdp_query_ask - a question is to be sent: @q->request
 * @service: ap_addr, ap_port, cp_addr, cp_port and handle as the draft has them;
 *	     the caller keeps (handle, cp_addr, cp_port) unique (section 7.5.1)
 * @wait: ms for the first answer
 * @tries: requests in all
 * @now: ms
 */
void sdp_query_ask(struct sdp_query *q, const struct sdp_pm_msg *service,
		   __u32 wait, __u8 tries, __u64 now);

/* The time that @q->when names has come. */
enum sdp_query_action sdp_query_timer(struct sdp_query *q, __u64 now);

/* A datagram came in, for this or another question. */
enum sdp_query_action sdp_query_take(struct sdp_query *q,
				     const struct sdp_pm_msg *msg);

/* ICMP says that nobody listens: a PMDeny. */
enum sdp_query_action sdp_query_unreachable(struct sdp_query *q);

/* One answer in the cache, as struct sdp_pm_msg has addresses and ports */
struct sdp_pm_entry {
	__u8 version;		/* 4, 6; 0: empty */
	bool sdp;		/* at @port and @addr; else not by SDP */
	__u16 port;
	__u16 ap_port;		/* the service and the local address asked for */
	__u8 addr[16];
	__u8 ap_addr[16];
	__u8 cp_addr[16];
	__u64 until;		/* ms */
};

/* Entries of one hash value; the one that ends first makes room. */
#define SDP_PM_WAYS	4

struct sdp_pm_cache {
	struct sdp_pm_entry *entries;	/* of the caller, zeroed to begin with */
	__u32 sets;			/* SDP_PM_WAYS entries each; a power of 2 */
};

/*
 * @asked: a PMReq, or what it would be
 * @hash: of its service and its local address, with a secret in it
 */
const struct sdp_pm_entry *sdp_pm_cache_find(const struct sdp_pm_cache *c,
					     const struct sdp_pm_msg *asked,
					     __u32 hash, __u64 now);

/*
 * Keep an answer.
 * @answer: the PMAck, with the PmTime of the PMAccept; NULL: it is not to be had by
 *	    SDP, for @ms
 */
void sdp_pm_cache_keep(struct sdp_pm_cache *c, const struct sdp_pm_msg *asked,
		       __u32 hash, const struct sdp_pm_msg *answer, __u8 time,
		       __u64 ms, __u64 now);

/* The answer was wrong: a reset came from there. */
void sdp_pm_cache_drop(struct sdp_pm_cache *c, const struct sdp_pm_msg *asked,
		       __u32 hash);

#endif /* SDP_PROTO_QUERY_H */
