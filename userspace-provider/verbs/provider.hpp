// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The functions behind the library's slots, by implementing file.  Constructors
// of objects return null with errno set; those returning int return 0 or a
// positive errno, poll_cq() a count or a negative errno.
#ifndef SOFTWARP_VERBS_PROVIDER_HPP
#define SOFTWARP_VERBS_PROVIDER_HPP

#include "abi34.hpp"

namespace softwarp {

// context.cpp
abi34::VerbsDevice *alloc_device(abi34::VerbsSysfsDev *sysfs) noexcept;
void uninit_device(abi34::VerbsDevice *device) noexcept;
abi34::VerbsContext *alloc_context(ibv_device *device, int cmd_fd, void *private_data) noexcept;
void free_context(ibv_context *context) noexcept;
int query_device_ex(ibv_context *context, const ibv_query_device_ex_input *input,
                    ibv_device_attr_ex *attr, std::size_t attr_size) noexcept;
int query_port(ibv_context *context, std::uint8_t port, ibv_port_attr *attr) noexcept;
void async_event(ibv_context *context, ibv_async_event *event) noexcept;

// pd.cpp
ibv_pd *alloc_pd(ibv_context *context) noexcept;
int dealloc_pd(ibv_pd *pd) noexcept;

// mr.cpp
ibv_mr *reg_mr(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t hca_va,
               int access) noexcept;
int dereg_mr(abi34::VerbsMr *mr) noexcept;

// cq.cpp
ibv_cq *create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel,
                  int comp_vector) noexcept;
int poll_cq(ibv_cq *cq, int max, ibv_wc *wc) noexcept;
int req_notify_cq(ibv_cq *cq, int solicited_only) noexcept;
int destroy_cq(ibv_cq *cq) noexcept;

// qp.cpp
ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) noexcept;
int query_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, ibv_qp_init_attr *init_attr) noexcept;
int modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask) noexcept;
int destroy_qp(ibv_qp *qp) noexcept;
int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) noexcept;
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept;

} // namespace softwarp

#endif // SOFTWARP_VERBS_PROVIDER_HPP
