/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The verbs that ib_core calls; listed by the file that implements them.
 */
#ifndef SWP_VERBS_H
#define SWP_VERBS_H

#include "softwarp.h"

/* verbs.c */
extern const struct ib_device_ops swp_dev_ops;

/* policy.c */
extern const struct attribute_group swp_policy_group;

/* mem.c */
int swp_mmap(struct ib_ucontext *ctx, struct vm_area_struct *vma);
void swp_mmap_free(struct rdma_user_mmap_entry *e);
struct ib_mr *swp_get_dma_mr(struct ib_pd *pd, int access);
struct ib_mr *swp_rereg_user_mr(struct ib_mr *mr, int flags, u64 start,
				u64 length, u64 iova, int access,
				struct ib_pd *pd, struct ib_udata *udata);
int swp_dereg_mr(struct ib_mr *mr, struct ib_udata *udata);
struct ib_mr *swp_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_sg);
int swp_alloc_mw(struct ib_mw *mw, struct ib_udata *udata);
int swp_dealloc_mw(struct ib_mw *mw);
/* A QP of the PD is about to be made; it is gone.  Process context. */
void swp_pd_add_qp(struct ib_pd *pd);
void swp_pd_del_qp(struct ib_pd *pd);
int swp_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		  unsigned int *off);

/* cq.c */
int swp_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
int swp_poll_cq(struct ib_cq *cq, int num, struct ib_wc *wc);
int swp_modify_cq(struct ib_cq *cq, u16 count, u16 period);
int swp_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags);

/* srq.c */
int swp_create_srq(struct ib_srq *srq, struct ib_srq_init_attr *attr,
		   struct ib_udata *udata);
int swp_destroy_srq(struct ib_srq *srq, struct ib_udata *udata);
int swp_modify_srq(struct ib_srq *srq, struct ib_srq_attr *attr,
		   enum ib_srq_attr_mask mask, struct ib_udata *udata);
int swp_query_srq(struct ib_srq *srq, struct ib_srq_attr *attr);
int swp_post_srq_recv(struct ib_srq *srq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);

/* stats.c */
struct rdma_hw_stats *swp_alloc_port_stats(struct ib_device *ibdev, u32 port);
struct rdma_hw_stats *swp_alloc_qp_stats(void);
int swp_get_port_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		       u32 port, int index);

/* counter.c */
int swp_counter_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *swp_counter_alloc_stats(struct rdma_counter *counter);
int swp_counter_update_stats(struct rdma_counter *counter);

/* restrack.c */
int swp_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int swp_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int swp_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);

/* device.c */
int swp_device_register(void);
void swp_device_unregister(void);
void swp_dealloc_driver(struct ib_device *ibdev);

#endif /* SWP_VERBS_H */
