/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of a network namespace, in /proc/net/softwarp_sdp_stat.
 */
#ifndef SDP_STATS_H
#define SDP_STATS_H

#include <linux/percpu.h>
#include <net/net_namespace.h>

#include "proto/sdp/conn.h"
#include "uapi/softwarp_sdp.h"

/* Number of values of enum sdp_info_reason */
#define SDP_REASONS	(SDP_INFO_REASON_PEER + 1)

enum sdp_stat {
	/* set-up */
	SDP_STAT_CONNECTED,
	SDP_STAT_ACCEPTED,
	SDP_STAT_RESUMED,
	SDP_STAT_BAD_HELLO,
	SDP_STAT_BAD_HELLO_ACK,
	SDP_STAT_SETUP_TIMEOUTS,
	SDP_STAT_NO_DEVICE,
	SDP_STAT_SILENT_DROPPED,
	SDP_STAT_STUCK_DROPPED,
	SDP_STAT_FULL_REFUSED,
	SDP_STAT_CM_UNHEARD,
	/* messages */
	SDP_STAT_MESSAGES_RECEIVED,
	SDP_STAT_MESSAGES_SENT,
	SDP_STAT_OCTETS_RECEIVED,
	SDP_STAT_OCTETS_SENT,
	SDP_STAT_UPDATES_RECEIVED,
	SDP_STAT_UPDATES_SENT,
	/* ends of connections */
	SDP_STAT_ABORTS_RECEIVED,
	SDP_STAT_ABORTS_SENT,
	SDP_STAT_RESETS,
	SDP_STAT_CLOSE_TIMEOUTS,
	SDP_STAT_ORPHAN_TIMEOUTS,
	SDP_STAT_SPIN_HIT,
	SDP_STAT_SPIN_MISSED,
	SDP_STAT_ORPHANS_DROPPED,
	/* port mapper: requests of peers, and results of ours */
	SDP_STAT_PM_ACCEPTS_SENT,
	SDP_STAT_PM_DENIES_SENT,
	SDP_STAT_PM_ACKS_RECEIVED,
	SDP_STAT_PM_MALFORMED,
	SDP_STAT_PM_FLOODED,
	SDP_STAT_PM_REQUESTS_SENT,
	SDP_STAT_PM_ACCEPTED,
	SDP_STAT_PM_DENIED,
	SDP_STAT_PM_UNREACHABLE,
	SDP_STAT_PM_SILENT,
	SDP_STAT_PM_CACHED,
	SDP_STAT_PM_STALE,
	/* sockets that are TCP's, by enum sdp_info_reason */
	SDP_STAT_FELL_BACK,
	SDP_STAT_FELL_BACK_END = SDP_STAT_FELL_BACK + SDP_REASONS - 1,
	/* violations by peers, by enum sdp_fault */
	SDP_STAT_FAULTS,
	SDP_STATS = SDP_STAT_FAULTS + SDP_FAULTS
};

struct sdp_stats {
	u64 count[SDP_STATS];
};

/* Any context */
void sdp_count_more(const struct net *net, u32 stat, u32 more);
static inline void sdp_count(const struct net *net, u32 stat)
{
	sdp_count_more(net, stat, 1);
}

static inline void sdp_count_fault(const struct net *net, enum sdp_fault fault)
{
	sdp_count_more(net, SDP_STAT_FAULTS + fault, 1);
}

/* Count a message received or sent; softirqs off */
void sdp_count_received(const struct net *net, const struct sdp_msg *msg);
void sdp_count_sent(const struct net *net, const struct sdp_msg *msg);

static inline void sdp_count_reason(const struct net *net, u8 reason)
{
	sdp_count_more(net, SDP_STAT_FELL_BACK + reason, 1);
}

/* One word, NULL for none */
const char *sdp_fault_name(enum sdp_fault fault);
const char *sdp_reason_name(u8 reason);

int sdp_stats_init(struct net *net);
void sdp_stats_exit(struct net *net);

#endif /* SDP_STATS_H */
