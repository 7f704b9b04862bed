// SPDX-License-Identifier: GPL-2.0
/*
 * Port counters, as `rdma statistic show link` and sysfs hw_counters show them.
 */
#include <rdma/ib_verbs.h>

#include "qp.h"
#include "verbs.h"

static const struct rdma_stat_desc swp_stat_descs[] = {
	[SWP_STAT_TX_FPDU]		= { .name = "tx_fpdu" },
	[SWP_STAT_TX_BYTES]		= { .name = "tx_bytes" },
	[SWP_STAT_TX_REQUESTS]		= { .name = "tx_requests" },
	[SWP_STAT_TX_CALLS]		= { .name = "tx_socket_calls" },
	[SWP_STAT_TX_STALLS]		= { .name = "tx_stalls" },
	[SWP_STAT_RX_FPDU]		= { .name = "rx_fpdu" },
	[SWP_STAT_RX_BYTES]		= { .name = "rx_bytes" },
	[SWP_STAT_RX_SPLIT]		= { .name = "rx_split_fpdu" },
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
	[SWP_STAT_LIMIT_HIT]		= { .name = "object_limit_hit" },
	[SWP_STAT_TERM_FOR + 0]	= { .name = "terminate_for_rdmap_local" },
	[SWP_STAT_TERM_FOR + 1]	= { .name = "terminate_for_rdmap_invalid_stag" },
	[SWP_STAT_TERM_FOR + 2]	= { .name = "terminate_for_rdmap_bounds" },
	[SWP_STAT_TERM_FOR + 3]	= { .name = "terminate_for_rdmap_access" },
	[SWP_STAT_TERM_FOR + 4]	= { .name = "terminate_for_rdmap_stag_not_associated" },
	[SWP_STAT_TERM_FOR + 5]	= { .name = "terminate_for_rdmap_to_wrap" },
	[SWP_STAT_TERM_FOR + 6]	= { .name = "terminate_for_rdmap_stag_not_invalidated" },
	[SWP_STAT_TERM_FOR + 7]	= { .name = "terminate_for_rdmap_protection_other" },
	[SWP_STAT_TERM_FOR + 8]	= { .name = "terminate_for_rdmap_version" },
	[SWP_STAT_TERM_FOR + 9]	= { .name = "terminate_for_rdmap_opcode" },
	[SWP_STAT_TERM_FOR + 10]	= { .name = "terminate_for_rdmap_stream" },
	[SWP_STAT_TERM_FOR + 11]	= { .name = "terminate_for_rdmap_global" },
	[SWP_STAT_TERM_FOR + 12]	= { .name = "terminate_for_rdmap_operation_stag" },
	[SWP_STAT_TERM_FOR + 13]	= { .name = "terminate_for_rdmap_operation_other" },
	[SWP_STAT_TERM_FOR + 14]	= { .name = "terminate_for_ddp_local" },
	[SWP_STAT_TERM_FOR + 15]	= { .name = "terminate_for_ddp_invalid_stag" },
	[SWP_STAT_TERM_FOR + 16]	= { .name = "terminate_for_ddp_bounds" },
	[SWP_STAT_TERM_FOR + 17]	= { .name = "terminate_for_ddp_stag_not_associated" },
	[SWP_STAT_TERM_FOR + 18]	= { .name = "terminate_for_ddp_to_wrap" },
	[SWP_STAT_TERM_FOR + 19]	= { .name = "terminate_for_ddp_tagged_version" },
	[SWP_STAT_TERM_FOR + 20]	= { .name = "terminate_for_ddp_qn" },
	[SWP_STAT_TERM_FOR + 21]	= { .name = "terminate_for_ddp_no_buffer" },
	[SWP_STAT_TERM_FOR + 22]	= { .name = "terminate_for_ddp_msn" },
	[SWP_STAT_TERM_FOR + 23]	= { .name = "terminate_for_ddp_mo" },
	[SWP_STAT_TERM_FOR + 24]	= { .name = "terminate_for_ddp_too_long" },
	[SWP_STAT_TERM_FOR + 25]	= { .name = "terminate_for_ddp_untagged_version" },
	[SWP_STAT_TERM_FOR + 26]	= { .name = "terminate_for_mpa_closed" },
	[SWP_STAT_TERM_FOR + 27]	= { .name = "terminate_for_mpa_crc" },
	[SWP_STAT_TERM_FOR + 28]	= { .name = "terminate_for_mpa_marker" },
	[SWP_STAT_TERM_FOR + 29]	= { .name = "terminate_for_mpa_frame" },
	[SWP_STAT_TERM_FOR + 30]	= { .name = "terminate_for_mpa_local" },
	[SWP_STAT_TERM_FOR + 31]	= { .name = "terminate_for_mpa_ird" },
	[SWP_STAT_TERM_FOR + 32]	= { .name = "terminate_for_mpa_rtr" },
	[SWP_STAT_TERM_FOR + 33]	= { .name = "terminate_for_mpa_other" },
	[SWP_STAT_TERM_FOR + 34]	= { .name = "terminate_for_unknown" },
};

static_assert(ARRAY_SIZE(swp_stat_descs) == SWP_STAT_COUNT);

/*
 * RFC 5040 Figure 9, RFC 5041 section 8, RFC 5044 section 8, in the order of the
 * counters; the last is all else.
 */
static const struct swp_term reasons[] = {
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_LOCAL, 0 },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_INVALID_STAG },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_BOUNDS },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_ACCESS },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_NOT_ASSOC },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_TO_WRAP },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_CANT_INVALIDATE },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RO_UNSPECIFIED },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_OP, SWP_RO_VERSION },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_OP, SWP_RO_OPCODE },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_OP, SWP_RO_STREAM },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_OP, 0x08 },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_OP, SWP_RO_CANT_INVALIDATE },
	{ SWP_LAYER_RDMAP, SWP_RDMAP_ET_OP, SWP_RO_UNSPECIFIED },
	{ SWP_LAYER_DDP, SWP_DDP_ET_LOCAL, 0 },
	{ SWP_LAYER_DDP, SWP_DDP_ET_TAGGED, SWP_DT_INVALID_STAG },
	{ SWP_LAYER_DDP, SWP_DDP_ET_TAGGED, SWP_DT_BOUNDS },
	{ SWP_LAYER_DDP, SWP_DDP_ET_TAGGED, SWP_DT_NOT_ASSOC },
	{ SWP_LAYER_DDP, SWP_DDP_ET_TAGGED, SWP_DT_TO_WRAP },
	{ SWP_LAYER_DDP, SWP_DDP_ET_TAGGED, SWP_DT_VERSION },
	{ SWP_LAYER_DDP, SWP_DDP_ET_UNTAGGED, SWP_DU_QN },
	{ SWP_LAYER_DDP, SWP_DDP_ET_UNTAGGED, SWP_DU_NO_BUFFER },
	{ SWP_LAYER_DDP, SWP_DDP_ET_UNTAGGED, SWP_DU_MSN_RANGE },
	{ SWP_LAYER_DDP, SWP_DDP_ET_UNTAGGED, SWP_DU_MO },
	{ SWP_LAYER_DDP, SWP_DDP_ET_UNTAGGED, SWP_DU_TOO_LONG },
	{ SWP_LAYER_DDP, SWP_DDP_ET_UNTAGGED, SWP_DU_VERSION },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, SWP_MPA_CLOSED },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, SWP_MPA_CRC },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, SWP_MPA_MARKER },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, 0x04 },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, 0x05 },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, 0x06 },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, 0x07 },
	{ SWP_LAYER_LLP, SWP_LLP_ET_MPA, 0xff },
	{ 0xf, 0xf, 0xff },
};

static_assert(ARRAY_SIZE(reasons) == SWP_TERM_REASONS);

void swp_stat_terminate(struct swp_device *dev, bool sent, u8 layer, u8 etype,
			u8 code)
{
	int i;

	for (i = 0; i < SWP_TERM_REASONS - 1; i++)
		if (reasons[i].layer == layer &&
		    reasons[i].etype == etype &&
		    reasons[i].code == code)
			break;
	this_cpu_inc(dev->stats->v[sent ? SWP_STAT_TERM_SENT :
					  SWP_STAT_TERM_RCVD]);
	this_cpu_inc(dev->stats->v[SWP_STAT_TERM_FOR + i]);
}

struct rdma_hw_stats *swp_alloc_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(swp_stat_descs, SWP_STAT_COUNT,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/* Only what QPs count */
struct rdma_hw_stats *swp_alloc_qp_stats(void)
{
	return rdma_alloc_hw_stats_struct(swp_stat_descs, SWP_STAT_QP_COUNT,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int swp_get_port_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		       u32 port, int index)
{
	struct swp_device *dev = to_swp_dev(ibdev);
	struct swp_qp *qp;
	unsigned long idx;
	int cpu, i;

	if (!port)
		return -EOPNOTSUPP;
	for (i = 0; i < SWP_STAT_COUNT; i++) {
		u64 sum = 0;

		for_each_possible_cpu(cpu)
			sum += per_cpu_ptr(dev->stats, cpu)->v[i];
		stats->value[i] = sum;
	}
	xa_lock_bh(&dev->qps);
	xa_for_each(&dev->qps, idx, qp)
		for (i = 0; i < SWP_STAT_QP_COUNT; i++)
			stats->value[i] += READ_ONCE(qp->stats.v[i]);
	xa_unlock_bh(&dev->qps);
	return SWP_STAT_COUNT;
}
