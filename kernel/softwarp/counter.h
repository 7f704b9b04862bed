/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters to which QPs are bound.
 */
#ifndef SWP_COUNTER_H
#define SWP_COUNTER_H

struct ib_qp;
struct rdma_counter;
struct rdma_hw_stats;

int swp_counter_bind(struct rdma_counter *counter, struct ib_qp *qp);
int swp_counter_unbind(struct ib_qp *qp);
int swp_counter_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *swp_counter_alloc_stats(struct rdma_counter *counter);
int swp_counter_update_stats(struct rdma_counter *counter);

#endif /* SWP_COUNTER_H */
