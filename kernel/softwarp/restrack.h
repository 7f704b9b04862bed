/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Details of `rdma resource show` in addition to the core's columns.
 */
#ifndef SWP_RESTRACK_H
#define SWP_RESTRACK_H

#include <rdma/ib_verbs.h>

int swp_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int swp_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int swp_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);

#endif /* SWP_RESTRACK_H */
