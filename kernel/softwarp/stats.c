// SPDX-License-Identifier: GPL-2.0
/*
 * Port counters, as `rdma statistic show link` and sysfs hw_counters show them.
 */
#include <rdma/ib_verbs.h>

#include "qp.h"
#include "stats.h"

/* swp_stats_init() adds the counters of faults, with the faults' names. */
static struct rdma_stat_desc descs[SWP_STAT_COUNT] __ro_after_init = {
	[SWP_STAT_TX_FPDU]		= { .name = "tx_fpdu" },
	[SWP_STAT_TX_BYTES]		= { .name = "tx_bytes" },
	[SWP_STAT_TX_REQUESTS]		= { .name = "tx_requests" },
	[SWP_STAT_TX_CALLS]		= { .name = "tx_socket_calls" },
	[SWP_STAT_TX_STALLS]		= { .name = "tx_stalls" },
	[SWP_STAT_TX_NEAR]		= { .name = "tx_past_tcp" },
	[SWP_STAT_RX_FPDU]		= { .name = "rx_fpdu" },
	[SWP_STAT_RX_BYTES]		= { .name = "rx_bytes" },
	[SWP_STAT_RX_SPLIT]		= { .name = "rx_split_fpdu" },
	[SWP_STAT_RX_MOVED]		= { .name = "rx_moved" },
	[SWP_STAT_RX_READ]		= { .name = "rx_by_reader" },
	[SWP_STAT_RX_OOO]		= { .name = "rx_out_of_order" },
	[SWP_STAT_RX_CRC_ERR]		= { .name = "rx_crc_errors" },
	[SWP_STAT_RX_MARKER_ERR]	= { .name = "rx_marker_errors" },
	[SWP_STAT_RX_PROTO_ERR]		= { .name = "rx_protocol_errors" },
	[SWP_STAT_DOORBELLS]		= { .name = "doorbells" },
	[SWP_STAT_TX_POLLS]		= { .name = "tx_polls_started" },
	[SWP_STAT_WQE_INVALID]		= { .name = "invalid_wqe" },
	[SWP_STAT_TERM_SENT]		= { .name = "terminate_sent" },
	[SWP_STAT_TERM_RCVD]		= { .name = "terminate_received" },
	[SWP_STAT_CQ_OVERFLOW]		= { .name = "cq_overflow" },
	[SWP_STAT_CONN_ACTIVE]		= { .name = "connect_active" },
	[SWP_STAT_CONN_PASSIVE]		= { .name = "connect_passive" },
	[SWP_STAT_CONN_FAILED]		= { .name = "connect_failed" },
	[SWP_STAT_CONN_NOW]		= { .name = "connections_now" },
	[SWP_STAT_MPA_BAD]		= { .name = "mpa_bad_frame" },
	[SWP_STAT_MPA_PD_LONG]		= { .name = "mpa_long_private_data" },
	[SWP_STAT_MPA_TIMEOUT]		= { .name = "mpa_timeout" },
	[SWP_STAT_MPA_REJECTED]		= { .name = "mpa_rejected" },
	[SWP_STAT_PENDING_DROP]		= { .name = "pending_limit_drop" },
	[SWP_STAT_PAIR_UP]		= { .name = "pair_established" },
	[SWP_STAT_PAIR_RETRY]		= { .name = "pair_retries" },
	[SWP_STAT_PAIR_ABSENT]		= { .name = "pair_no_such_qp" },
	[SWP_STAT_PAIR_MISMATCH]	= { .name = "pair_mismatch" },
	[SWP_STAT_PAIR_BAD]		= { .name = "pair_bad_message" },
	[SWP_STAT_PAIR_FAILED]		= { .name = "pair_failed" },
	[SWP_STAT_LIMIT_HIT]		= { .name = "object_limit_hit" },
};

void __init swp_stats_init(void)
{
	int i;

	for (i = SWP_FAULT_NONE + 1; i < SWP_FAULT_COUNT; i++)
		descs[swp_stat_term_for(i)].name = swp_fault_name(i);
}

void swp_stat_terminate(struct swp_device *dev, bool sent,
			enum swp_fault fault)
{
	this_cpu_inc(dev->stats->v[sent ? SWP_STAT_TERM_SENT :
					  SWP_STAT_TERM_RCVD]);
	this_cpu_inc(dev->stats->v[swp_stat_term_for(fault)]);
}

struct rdma_hw_stats *swp_alloc_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(descs, SWP_STAT_COUNT,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/*
 * For counters to which QPs are bound.  The core adds them to those of the port
 * by index, so the numbers must be equal; disable those that QPs do not count.
 */
struct rdma_hw_stats *swp_alloc_qp_stats(void)
{
	struct rdma_hw_stats *stats;

	stats = rdma_alloc_hw_stats_struct(descs, SWP_STAT_COUNT,
					   RDMA_HW_STATS_DEFAULT_LIFESPAN);
	if (stats)
		bitmap_set(stats->is_disabled, SWP_STAT_QP_COUNT,
			   SWP_STAT_COUNT - SWP_STAT_QP_COUNT);
	return stats;
}

/*
 * For a QP that is bound to a counter, add only its values at the binding: the
 * core adds those of the counter, while it exists and after its end.
 */
static void add_qp(const struct swp_qp *qp, u64 *sum)
{
	const struct swp_qp_stats *s = qp->bound ?: &qp->stats;
	int i;

	for (i = 0; i < SWP_STAT_QP_COUNT; i++)
		sum[i] += READ_ONCE(s->v[i]);
}

/* All except what existing QPs have counted */
static void sum_up(const struct swp_device *dev, u64 *sum)
{
	int cpu, i;

	for (i = 0; i < SWP_STAT_COUNT; i++) {
		sum[i] = 0;
		for_each_possible_cpu(cpu)
			sum[i] += per_cpu_ptr(dev->stats, cpu)->v[i];
	}
}

void swp_port_sums(struct swp_device *dev, u64 *sum)
{
	struct swp_qp *qp;
	unsigned long idx;
	int i;

	sum_up(dev, sum);
	xa_lock_bh(&dev->qps);
	xa_for_each(&dev->qps, idx, qp)
		for (i = 0; i < SWP_STAT_QP_COUNT; i++)
			sum[i] += READ_ONCE(qp->stats.v[i]);
	xa_unlock_bh(&dev->qps);
}

int swp_get_port_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		       u32 port, int index)
{
	struct swp_device *dev = to_swp_dev(ibdev);
	struct swp_qp *qp;
	unsigned long idx;
	int i;

	if (!port)
		return -EOPNOTSUPP;
	sum_up(dev, stats->value);
	xa_lock_bh(&dev->qps);
	for (i = 0; i < SWP_STAT_QP_COUNT; i++)
		stats->value[i] -= dev->apart.v[i];
	xa_for_each(&dev->qps, idx, qp)
		add_qp(qp, stats->value);
	xa_unlock_bh(&dev->qps);
	return SWP_STAT_COUNT;
}
