// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The functions behind the library's slots, by implementing file.  Constructors
// of objects return null with errno set; those returning int return 0 or a
// positive errno, poll_cq() a count or a negative errno.
#ifndef SOFTWARP_VERBS_PROVIDER_HPP
#define SOFTWARP_VERBS_PROVIDER_HPP

#include "abi.hpp"

namespace softwarp {

// context.cpp
abi::VerbsDevice *alloc_device(abi::VerbsSysfsDev *sysfs) noexcept;
void uninit_device(abi::VerbsDevice *device) noexcept;
abi::VerbsContext *alloc_context(ibv_device *device, int cmd_fd, void *private_data) noexcept;
void free_context(ibv_context *context) noexcept;
int query_device_ex(ibv_context *context, const ibv_query_device_ex_input *input,
                    ibv_device_attr_ex *attr, std::size_t attr_size) noexcept;
int query_rt_values(ibv_context *context, ibv_values_ex *values) noexcept;
int query_port(ibv_context *context, std::uint8_t port, ibv_port_attr *attr) noexcept;
void async_event(ibv_context *context, ibv_async_event *event) noexcept;

// pd.cpp
ibv_pd *alloc_pd(ibv_context *context) noexcept;
ibv_pd *alloc_parent_domain(ibv_context *context, ibv_parent_domain_init_attr *attr) noexcept;
int dealloc_pd(ibv_pd *pd) noexcept;
ibv_td *alloc_td(ibv_context *context, ibv_td_init_attr *attr) noexcept;
int dealloc_td(ibv_td *td) noexcept;

// mr.cpp
ibv_mr *reg_mr(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t hca_va,
               int access) noexcept;
int rereg_mr(abi::VerbsMr *mr, int flags, ibv_pd *pd, void *addr, std::size_t length,
             int access) noexcept;
int dereg_mr(abi::VerbsMr *mr) noexcept;

// mw.cpp
ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type) noexcept;
int dealloc_mw(ibv_mw *mw) noexcept;

// cq.cpp
ibv_cq *create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel,
                  int comp_vector) noexcept;
ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr) noexcept;
int modify_cq(ibv_cq *cq, ibv_modify_cq_attr *attr) noexcept;
int resize_cq(ibv_cq *cq, int cqe) noexcept;
int poll_cq(ibv_cq *cq, int max, ibv_wc *wc) noexcept;
int req_notify_cq(ibv_cq *cq, int solicited_only) noexcept;
int destroy_cq(ibv_cq *cq) noexcept;

// srq.cpp
ibv_srq *create_srq(ibv_pd *pd, ibv_srq_init_attr *attr) noexcept;
int modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int attr_mask) noexcept;
int query_srq(ibv_srq *srq, ibv_srq_attr *attr) noexcept;
int destroy_srq(ibv_srq *srq) noexcept;
int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept;

// qp.cpp
ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) noexcept;
ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr) noexcept;
int query_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, ibv_qp_init_attr *init_attr) noexcept;
int modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask) noexcept;
int destroy_qp(ibv_qp *qp) noexcept;
int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) noexcept;
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept;
int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) noexcept;

// wr.cpp
// What the ibv_wr_*() functions can post.
inline constexpr std::uint64_t wr_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
    IBV_QP_EX_WITH_SEND_WITH_INV;
// Gives the QP the functions for @operations, a subset of those.
void set_wr_functions(ibv_qp_ex &qp, std::uint64_t operations) noexcept;

} // namespace softwarp

#endif // SOFTWARP_VERBS_PROVIDER_HPP
