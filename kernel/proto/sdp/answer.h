/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The port mapper's responder; draft-pinkerton-iwarp-sdp-01 sections 7.4, 7.5.2,
 * 15.2.1.
 *
 * It keeps nothing of a request.  A service that has an SDP port has it for as
 * long as it listens, so there is nothing to reserve, to time out or to free: an
 * answer says what is so now, a repeated request is answered again, and a PMAck
 * says nothing new.  A client that comes too late meets a reset and takes the
 * Conventional Address (section 7.5.1).
 *
 * What is bounded is the rate of answers, for each source and in all.
 */
#ifndef SDP_PROTO_ANSWER_H
#define SDP_PROTO_ANSWER_H

#include "portmap.h"

/* Where a service is to be had by SDP */
struct sdp_pm_service {
	__u16 port;
	__u8 addr[16];		/* as in struct sdp_pm_msg */
	__u8 time;		/* PmTime: how long the client may keep it */
};

/*
 * sdp_pm_answer - what to reply, to the sender of the datagram and from the
 * address that it was sent to
 * @service: NULL if there is none that a client could use
 * False: nothing.
 */
bool sdp_pm_answer(const struct sdp_pm_msg *msg,
		   const struct sdp_pm_service *service,
		   struct sdp_pm_msg *reply);

/* Sources share a bucket where their hashes agree. */
#define SDP_PM_BUCKETS	256

/* Answers at once and per second */
struct sdp_pm_rate {
	__u32 burst;
	__u32 per_second;
};

struct sdp_pm_bucket {
	__u64 when;		/* ms, of the last look */
	__u64 spent;		/* thousandths of an answer */
};

struct sdp_pm_guard {
	struct sdp_pm_rate source;
	struct sdp_pm_rate all;
	struct sdp_pm_bucket total;
	struct sdp_pm_bucket sources[SDP_PM_BUCKETS];
};

void sdp_pm_guard_init(struct sdp_pm_guard *g, struct sdp_pm_rate source,
		       struct sdp_pm_rate all);

/*
 * May a request be looked at?
 * @hash: of the source's address, with a secret in it
 * @now: milliseconds, never less than before
 */
bool sdp_pm_guard_pass(struct sdp_pm_guard *g, __u32 hash, __u64 now);

#endif /* SDP_PROTO_ANSWER_H */
