/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of a device, read by `rdma statistic show`: per CPU for rare events,
 * in the QP for those of the data path (swp_qp_stat_add()).
 * SWP_STATS lists them once: enumerator suffix and the name users see.
 */
#ifndef SWP_STATS_H
#define SWP_STATS_H

#include <linux/percpu.h>
#include <linux/types.h>

#define SWP_STATS(X)						\
	X(TX_FPDU,		"tx_fpdu")			\
	X(TX_BYTES,		"tx_bytes")			\
	X(TX_CALLS,		"tx_socket_calls")		\
	X(TX_STALLS,		"tx_stalls")			\
	X(RX_FPDU,		"rx_fpdu")			\
	X(RX_BYTES,		"rx_bytes")			\
	X(RX_SPLIT,		"rx_split_fpdu")		\
	X(RX_CRC_ERR,		"rx_crc_errors")		\
	X(RX_PROTO_ERR,		"rx_protocol_errors")		\
	X(TERM_SENT,		"terminate_sent")		\
	X(TERM_RCVD,		"terminate_received")		\
	X(DOORBELLS,		"doorbells")			\
	X(TX_POLLS,		"tx_polls_started")		\
	X(WQE_INVALID,		"invalid_wqe")			\
	X(CQ_OVERFLOW,		"cq_overflow")			\
	X(CONN_ACTIVE,		"connect_active")		\
	X(CONN_PASSIVE,		"connect_passive")		\
	X(CONN_FAILED,		"connect_failed")		\
	X(MPA_BAD,		"mpa_bad_frame")		\
	X(MPA_TIMEOUT,		"mpa_timeout")			\
	X(MPA_REJECTED,		"mpa_rejected")			\
	X(PENDING_DROP,		"pending_limit_drop")		\
	X(LIMIT_HIT,		"object_limit_hit")

enum swp_stat {
#define SWP_STAT_ENUM(id, name) SWP_STAT_##id,
	SWP_STATS(SWP_STAT_ENUM)
#undef SWP_STAT_ENUM
	SWP_STAT_COUNT
};

struct swp_stats {
	u64 v[SWP_STAT_COUNT];
};

/* Any context; a torn read on 32-bit machines is tolerated, it is a counter. */
#define swp_stat_add(dev, id, n) \
	this_cpu_add((dev)->stats->v[SWP_STAT_##id], (n))
#define swp_stat_inc(dev, id)	swp_stat_add(dev, id, 1)

#endif /* SWP_STATS_H */
