/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of a device, for `rdma statistic show`: per CPU for rare events, in
 * the QP for those of the data path (swp_qp_stat_add()).
 */
#ifndef SWP_STATS_H
#define SWP_STATS_H

#include <linux/percpu.h>
#include <linux/types.h>

#include "proto/terminate.h"

/* The names that users see are in stats.c. */
enum swp_stat {
	/* counted in the QP */
	SWP_STAT_TX_FPDU,
	SWP_STAT_TX_BYTES,
	SWP_STAT_TX_REQUESTS,	/* taken from send queues */
	SWP_STAT_TX_CALLS,	/* calls to TCP */
	SWP_STAT_TX_STALLS,	/* TCP was full */
	SWP_STAT_TX_NEAR,	/* FPDUs that went past TCP */
	SWP_STAT_RX_FPDU,
	SWP_STAT_RX_BYTES,
	SWP_STAT_RX_SPLIT,	/* FPDUs that span skbs */
	SWP_STAT_RX_MOVED,	/* moves to the consumer's CPU */
	SWP_STAT_RX_READ,	/* times that its process was to receive */
	SWP_STAT_RX_OOO,	/* segments received out of order */
	SWP_STAT_RX_CRC_ERR,
	SWP_STAT_RX_MARKER_ERR,
	SWP_STAT_RX_PROTO_ERR,
	SWP_STAT_DOORBELLS,
	SWP_STAT_TX_POLLS,	/* times a worker began to poll an SQ */
	SWP_STAT_WQE_INVALID,	/* malformed requests */
	SWP_STAT_QP_COUNT,
	/* counted in the device */
	SWP_STAT_TERM_SENT = SWP_STAT_QP_COUNT,
	SWP_STAT_TERM_RCVD,
	SWP_STAT_CQ_OVERFLOW,
	SWP_STAT_CONN_ACTIVE,
	SWP_STAT_CONN_PASSIVE,
	SWP_STAT_CONN_FAILED,
	SWP_STAT_CONN_NOW,	/* present ones, including start-up and end */
	SWP_STAT_MPA_BAD,	/* malformed start-up frames */
	SWP_STAT_MPA_PD_LONG,	/* more private data than the ULP accepts */
	SWP_STAT_MPA_TIMEOUT,
	SWP_STAT_MPA_REJECTED,
	SWP_STAT_PENDING_DROP,	/* handshakes dropped: limit, or no memory */
	/* QPs that ibv_modify_qp() connects */
	SWP_STAT_PAIR_UP,	/* streams that came up, at either end */
	SWP_STAT_PAIR_RETRY,	/* attempts repeated, the peer not being there */
	SWP_STAT_PAIR_ABSENT,	/* Requests refused: no QP waits for them */
	SWP_STAT_PAIR_MISMATCH,	/* wrong PSN, or an address not of the GID */
	SWP_STAT_PAIR_BAD,	/* no message of ours in the private data */
	SWP_STAT_PAIR_FAILED,	/* QPs moved to the error state */
	SWP_STAT_LIMIT_HIT,	/* objects refused, see the module parameters */
	/* by fault, sent or received: netlink messages are short */
	SWP_STAT_TERM_FOR,
	SWP_STAT_COUNT = SWP_STAT_TERM_FOR + SWP_FAULT_COUNT - 1
};

/* Not for SWP_FAULT_NONE */
#define swp_stat_term_for(fault)	(SWP_STAT_TERM_FOR + (fault) - 1)

struct swp_stats {
	u64 v[SWP_STAT_COUNT];
};

struct swp_qp_stats {
	u64 v[SWP_STAT_QP_COUNT];
};

struct ib_device;
struct rdma_hw_stats;
struct swp_device;

/* Call it before adding any device. */
void swp_stats_init(void);

/* Count a Terminate that was sent or received.  Any context. */
void swp_stat_terminate(struct swp_device *dev, bool sent,
			enum swp_fault fault);

/* Any context.  Torn reads on 32-bit machines are tolerated for counters. */
#define swp_stat_add(dev, id, n) \
	this_cpu_add((dev)->stats->v[SWP_STAT_##id], (n))
#define swp_stat_inc(dev, id)	swp_stat_add(dev, id, 1)

/* All that a device has counted since its creation: SWP_STAT_COUNT values */
void swp_port_sums(struct swp_device *dev, u64 *sum);

/* Verbs */
struct rdma_hw_stats *swp_alloc_port_stats(struct ib_device *ibdev, u32 port);
struct rdma_hw_stats *swp_alloc_qp_stats(void);
int swp_get_port_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		       u32 port, int index);

#endif /* SWP_STATS_H */
