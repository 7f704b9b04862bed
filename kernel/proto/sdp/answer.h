/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The port mapper's responder; draft-pinkerton-iwarp-sdp-01 sections 7.4,
 * 7.5.2, 15.2.1.
 *
 * The responder keeps no state for a request.  A service has its SDP port for
 * as long as it listens, so there is nothing to reserve, to time out or to
 * free: an answer describes the present, a repeated request gets another
 * answer, and a PMAck is ignored.  A client that connects too late gets a reset
 * and uses the Conventional Address (section 7.5.1).
 *
 * The rate of answers is limited, per source and in total.
 */
#ifndef SDP_PROTO_ANSWER_H
#define SDP_PROTO_ANSWER_H

#include "portmap.h"

/* Where a service is reached by SDP */
struct sdp_pm_service {
	__u16 port;
	__u8 addr[16];		/* as in struct sdp_pm_msg */
	__u8 time;		/* PmTime: how long the client may keep it */
};

/*
 * sdp_pm_answer - build the reply to a datagram; the caller sends it to the
 * datagram's source, from the address that the datagram was sent to
 * @service: NULL if there is none that a client could use
 * False: no reply.
 */
bool sdp_pm_answer(const struct sdp_pm_msg *msg,
		   const struct sdp_pm_service *service,
		   struct sdp_pm_msg *reply);

/* Sources with the same hash, modulo this, share a bucket. */
#define SDP_PM_BUCKETS	256

/* Answers in one burst, and per second */
struct sdp_pm_rate {
	__u32 burst;
	__u32 per_second;
};

struct sdp_pm_bucket {
	__u64 when;		/* time of the last update, ms */
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
 * May a request be processed?  If so, it is counted.
 * @hash: keyed hash of the source's address
 * @now: milliseconds, never less than before
 */
bool sdp_pm_guard_pass(struct sdp_pm_guard *g, __u32 hash, __u64 now);

#endif /* SDP_PROTO_ANSWER_H */
