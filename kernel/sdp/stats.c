// SPDX-License-Identifier: GPL-2.0
/*
 * Counters, see stats.h.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "netns.h"
#include "stats.h"

#define NAME	"softwarp_sdp_stat"

static const char *const names[SDP_STAT_FELL_BACK] = {
	[SDP_STAT_CONNECTED] = "connected",
	[SDP_STAT_ACCEPTED] = "accepted",
	[SDP_STAT_RESUMED] = "resumed",
	[SDP_STAT_BAD_HELLO] = "bad_hello",
	[SDP_STAT_BAD_HELLO_ACK] = "bad_hello_ack",
	[SDP_STAT_SETUP_TIMEOUTS] = "setup_timeouts",
	[SDP_STAT_NO_DEVICE] = "no_device",
	[SDP_STAT_SILENT_DROPPED] = "silent_dropped",
	[SDP_STAT_STUCK_DROPPED] = "stuck_dropped",
	[SDP_STAT_FULL_REFUSED] = "full_refused",
	[SDP_STAT_CM_UNHEARD] = "cm_unheard",
	[SDP_STAT_MESSAGES_RECEIVED] = "messages_received",
	[SDP_STAT_MESSAGES_SENT] = "messages_sent",
	[SDP_STAT_OCTETS_RECEIVED] = "octets_received",
	[SDP_STAT_OCTETS_SENT] = "octets_sent",
	[SDP_STAT_UPDATES_RECEIVED] = "updates_received",
	[SDP_STAT_UPDATES_SENT] = "updates_sent",
	[SDP_STAT_ABORTS_RECEIVED] = "aborts_received",
	[SDP_STAT_ABORTS_SENT] = "aborts_sent",
	[SDP_STAT_RESETS] = "resets",
	[SDP_STAT_CLOSE_TIMEOUTS] = "close_timeouts",
	[SDP_STAT_ORPHAN_TIMEOUTS] = "orphan_timeouts",
	[SDP_STAT_SPIN_HIT] = "spin_hit",
	[SDP_STAT_SPIN_MISSED] = "spin_missed",
	[SDP_STAT_ORPHANS_DROPPED] = "orphans_dropped",
	[SDP_STAT_PM_ACCEPTS_SENT] = "pm_accepts_sent",
	[SDP_STAT_PM_DENIES_SENT] = "pm_denies_sent",
	[SDP_STAT_PM_ACKS_RECEIVED] = "pm_acks_received",
	[SDP_STAT_PM_MALFORMED] = "pm_malformed",
	[SDP_STAT_PM_FLOODED] = "pm_flooded",
	[SDP_STAT_PM_REQUESTS_SENT] = "pm_requests_sent",
	[SDP_STAT_PM_ACCEPTED] = "pm_accepted",
	[SDP_STAT_PM_DENIED] = "pm_denied",
	[SDP_STAT_PM_UNREACHABLE] = "pm_unreachable",
	[SDP_STAT_PM_SILENT] = "pm_silent",
	[SDP_STAT_PM_CACHED] = "pm_cached",
	[SDP_STAT_PM_STALE] = "pm_stale",
};

static const char *const reasons[SDP_REASONS] = {
	[SDP_INFO_REASON_POLICY] = "policy",
	[SDP_INFO_REASON_PEER] = "peer",
	[SDP_INFO_REASON_NO_DEVICE] = "no_device",
	[SDP_INFO_REASON_NO_ANSWER] = "no_answer",
	[SDP_INFO_REASON_DENIED] = "denied",
	[SDP_INFO_REASON_REFUSED] = "refused",
	[SDP_INFO_REASON_SETUP] = "setup",
};

static const char *const faults[SDP_FAULTS] = {
	[SDP_FAULT_MALFORMED] = "malformed",
	[SDP_FAULT_MSEQ] = "mseq",
	[SDP_FAULT_ACK] = "ack",
	[SDP_FAULT_OVERRUN] = "overrun",
	[SDP_FAULT_SIZE] = "size",
	[SDP_FAULT_UNEXPECTED] = "unexpected",
	[SDP_FAULT_MODE] = "mode",
	[SDP_FAULT_ADVERTS] = "adverts",
	[SDP_FAULT_PAYLOAD] = "payload",
	[SDP_FAULT_UNFINISHED] = "unfinished",
	[SDP_FAULT_RESIZE] = "resize",
	[SDP_FAULT_INVALIDATE] = "invalidate",
};

const char *sdp_fault_name(enum sdp_fault fault)
{
	return fault < SDP_FAULTS ? faults[fault] : NULL;
}

const char *sdp_reason_name(u8 reason)
{
	return reason < SDP_REASONS ? reasons[reason] : NULL;
}

/* Counting ---------------------------------------------------------------------- */

void sdp_count_more(const struct net *net, u32 stat, u32 more)
{
	this_cpu_add(sdp_net(net)->stats->count[stat], more);
}

/*
 * For counters of messages, which are updated with softirqs off and never in
 * interrupts, so no update can be interrupted by another one.
 */
static void count_here(const struct net *net, u32 stat, u32 more)
{
	__this_cpu_add(sdp_net(net)->stats->count[stat], more);
}

static bool is_update(const struct sdp_msg *msg)
{
	return msg->mid == SDP_MID_DATA && !msg->payload;
}

void sdp_count_received(const struct net *net, const struct sdp_msg *msg)
{
	count_here(net, SDP_STAT_MESSAGES_RECEIVED, 1);
	count_here(net, SDP_STAT_OCTETS_RECEIVED, msg->payload);
	if (is_update(msg))
		count_here(net, SDP_STAT_UPDATES_RECEIVED, 1);
	if (msg->mid == SDP_MID_ABORT_CONN)
		count_here(net, SDP_STAT_ABORTS_RECEIVED, 1);
}

void sdp_count_sent(const struct net *net, const struct sdp_msg *msg)
{
	count_here(net, SDP_STAT_MESSAGES_SENT, 1);
	count_here(net, SDP_STAT_OCTETS_SENT, msg->payload);
	if (is_update(msg))
		count_here(net, SDP_STAT_UPDATES_SENT, 1);
	if (msg->mid == SDP_MID_ABORT_CONN)
		count_here(net, SDP_STAT_ABORTS_SENT, 1);
}

/* /proc -------------------------------------------------------------------- */

static u64 sum(const struct net *net, u32 stat)
{
	u64 total = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		total += per_cpu_ptr(sdp_net(net)->stats, cpu)->count[stat];
	return total;
}

static int show(struct seq_file *m, void *v)
{
	const struct net *net = m->private;
	u32 i;

	for (i = 0; i < SDP_STAT_FELL_BACK; i++)
		seq_printf(m, "%s %llu\n", names[i], sum(net, i));
	for (i = SDP_INFO_REASON_NONE + 1; i < SDP_REASONS; i++)
		seq_printf(m, "tcp_%s %llu\n", reasons[i],
			   sum(net, SDP_STAT_FELL_BACK + i));
	for (i = SDP_FAULT_NONE + 1; i < SDP_FAULTS; i++)
		seq_printf(m, "fault_%s %llu\n", faults[i],
			   sum(net, SDP_STAT_FAULTS + i));
	return 0;
}

int sdp_stats_init(struct net *net)
{
	struct sdp_net *sn = sdp_net(net);

	sn->stats = alloc_percpu(struct sdp_stats);
	if (!sn->stats)
		return -ENOMEM;
	if (!proc_create_net_single(NAME, 0444, net->proc_net, show, NULL)) {
		free_percpu(sn->stats);
		return -ENOMEM;
	}
	return 0;
}

void sdp_stats_exit(struct net *net)
{
	remove_proc_entry(NAME, net->proc_net);
	free_percpu(sdp_net(net)->stats);
}
