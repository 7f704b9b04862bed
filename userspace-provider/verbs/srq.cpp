// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Shared receive queues.  Posting works on the mapped ring alone: requests that
// wait in it are no QP's, so no error state asks for a doorbell.
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

#include "command.hpp"
#include "complain.hpp"
#include "objects.hpp"
#include "provider.hpp"

namespace softwarp {

namespace {

// Returns 0 or a positive errno.
int map_ring(Srq &srq, int cmd_fd, const swp_create_srq_resp &kernel,
             std::uint32_t max_sge) noexcept {
    if (!ring_is_sane(kernel.ring_bytes, kernel.entries, kernel.stride, rqe_bytes(max_sge))) {
        complain("softwarp: the kernel module describes an impossible shared receive queue "
                 "(%u x %u in %u bytes); install module and provider of the same release\n",
                 kernel.entries, kernel.stride, kernel.ring_bytes);
        return EPROTO;
    }
    const int error = srq.memory.map(cmd_fd, kernel.ring_key, kernel.ring_bytes);
    if (error != 0)
        return error;
    srq.queue = RecvQueue{WorkRing{srq.memory.data(), kernel.entries, kernel.stride}, max_sge};
    return 0;
}

} // namespace

ibv_srq *create_srq(ibv_pd *pd, ibv_srq_init_attr *attr) noexcept {
    std::unique_ptr<Srq> srq{new (std::nothrow) Srq};
    if (!srq) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_create_srq> request;
    Response<ib_uverbs_create_srq_resp, swp_create_srq_resp> response;
    int error = abi34::ibv_cmd_create_srq(pd, &srq->base, attr, request.data(), request.size(),
                                          response.data(), response.size());
    if (error == 0) {
        error = map_ring(*srq, pd->context->cmd_fd, response.tail(), attr->attr.max_sge);
        if (error != 0)
            abi34::ibv_cmd_destroy_srq(&srq->base);
    }
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return &srq.release()->base;
}

int modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int attr_mask) noexcept {
    Request<ib_uverbs_modify_srq> request;
    return abi34::ibv_cmd_modify_srq(srq, attr, attr_mask, request.data(), request.size());
}

int query_srq(ibv_srq *srq, ibv_srq_attr *attr) noexcept {
    Request<ib_uverbs_query_srq> request;
    return abi34::ibv_cmd_query_srq(srq, attr, request.data(), request.size());
}

int destroy_srq(ibv_srq *srq) noexcept {
    const int error = abi34::ibv_cmd_destroy_srq(srq);
    if (error == 0)
        delete to_srq(srq);
    return error;
}

int post_srq_recv(ibv_srq *ibsrq, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept {
    Srq &srq = *to_srq(ibsrq);
    const std::lock_guard guard{srq.lock};
    return srq.queue.post(wr, bad_wr).error;
}

} // namespace softwarp
