// SPDX-License-Identifier: GPL-2.0
/*
 * Port counters, as `rdma statistic show link` and sysfs hw_counters show them.
 */
#include <rdma/ib_verbs.h>

#include "qp.h"
#include "verbs.h"

static const struct rdma_stat_desc swp_stat_descs[] = {
#define SWP_STAT_DESC(id, text) [SWP_STAT_##id] = { .name = text },
	SWP_STATS(SWP_STAT_DESC)
#undef SWP_STAT_DESC
};

struct rdma_hw_stats *swp_alloc_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(swp_stat_descs, SWP_STAT_COUNT,
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
		for (i = 0; i < SWP_STAT_COUNT; i++)
			stats->value[i] += READ_ONCE(qp->stats.v[i]);
	xa_unlock_bh(&dev->qps);
	return SWP_STAT_COUNT;
}
