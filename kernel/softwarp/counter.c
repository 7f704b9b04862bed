// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of selected QPs, `rdma statistic qp bind link DEV/1 lqpn N`: the sum
 * of what QPs have counted while bound to one, including QPs that are gone.
 */
#include <linux/slab.h>

#include "counter.h"
#include "qp.h"

/* The index is rdma_counter.id.  The core's counter lock protects all of it. */
struct swp_counter {
	struct swp_qp_stats gone;	/* of QPs that are not bound any more */
};

/* Adds to @sum what a QP has counted since it was bound. */
static void add_qp(const struct swp_qp *qp, u64 *sum)
{
	int i;

	for (i = 0; i < SWP_STAT_QP_COUNT; i++)
		sum[i] += READ_ONCE(qp->stats.v[i]) - qp->bound->v[i];
}

int swp_counter_bind(struct rdma_counter *counter, struct ib_qp *ibqp)
{
	struct swp_device *dev = to_swp_dev(ibqp->device);
	struct swp_qp *qp = to_swp_qp(ibqp);
	struct swp_counter *c = NULL;
	struct swp_qp_stats *bound;
	int i, ret;

	bound = kmalloc(sizeof(*bound), GFP_KERNEL);
	if (!bound)
		return -ENOMEM;
	for (i = 0; i < SWP_STAT_QP_COUNT; i++)
		bound->v[i] = READ_ONCE(qp->stats.v[i]);
	if (!counter->id) {
		c = kzalloc(sizeof(*c), GFP_KERNEL);
		if (!c) {
			ret = -ENOMEM;
			goto err;
		}
		ret = xa_alloc(&dev->counters, &counter->id, c,
			       XA_LIMIT(1, INT_MAX), GFP_KERNEL);
		if (ret)
			goto err;
	}
	xa_lock_bh(&dev->qps);
	qp->bound = bound;
	qp->counter_id = counter->id;
	xa_unlock_bh(&dev->qps);
	ibqp->counter = counter;
	return 0;

err:
	kfree(c);
	kfree(bound);
	return ret;
}

int swp_counter_unbind(struct ib_qp *ibqp)
{
	struct swp_device *dev = to_swp_dev(ibqp->device);
	struct swp_qp *qp = to_swp_qp(ibqp);
	struct swp_counter *c = xa_load(&dev->counters, qp->counter_id);
	struct swp_qp_stats *bound = qp->bound;

	if (!bound)
		return 0;
	xa_lock_bh(&dev->qps);
	if (c) {
		add_qp(qp, c->gone.v);
		add_qp(qp, dev->apart.v);
	}
	qp->counter_id = 0;
	qp->bound = NULL;
	xa_unlock_bh(&dev->qps);
	kfree(bound);
	ibqp->counter = NULL;
	return 0;
}

int swp_counter_dealloc(struct rdma_counter *counter)
{
	struct swp_device *dev = to_swp_dev(counter->device);

	kfree(xa_erase(&dev->counters, counter->id));
	return 0;
}

struct rdma_hw_stats *swp_counter_alloc_stats(struct rdma_counter *counter)
{
	return swp_alloc_qp_stats();
}

int swp_counter_update_stats(struct rdma_counter *counter)
{
	struct swp_device *dev = to_swp_dev(counter->device);
	struct swp_counter *c = xa_load(&dev->counters, counter->id);
	struct swp_qp *qp;
	unsigned long idx;

	if (!c)
		return -EINVAL;
	memcpy(counter->stats->value, c->gone.v, sizeof(c->gone.v));
	xa_lock_bh(&dev->qps);
	xa_for_each(&dev->qps, idx, qp)
		if (qp->counter_id == counter->id)
			add_qp(qp, counter->stats->value);
	xa_unlock_bh(&dev->qps);
	return 0;
}
