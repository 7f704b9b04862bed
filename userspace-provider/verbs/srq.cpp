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

// Maps a ring that the kernel has made for the queue, in place of the one that
// it has.  Returns 0 or a positive errno.
int map_ring(Srq &srq, std::uint64_t key, std::uint32_t bytes, std::uint32_t entries) noexcept {
    if (!ring_is_sane(bytes, entries, srq.stride, rqe_bytes(srq.max_sge))) {
        complain("softwarp: the kernel module describes an impossible shared receive queue "
                 "(%u x %u in %u bytes); install module and provider of the same release\n",
                 entries, srq.stride, bytes);
        return EPROTO;
    }
    const int error = srq.memory.map(srq.base.context->cmd_fd, key, bytes);
    if (error != 0)
        return error;
    srq.queue = RecvQueue{WorkRing{srq.memory.data(), entries, srq.stride}, srq.max_sge};
    return 0;
}

void set_moving(Srq &srq, bool moving) noexcept {
    const std::lock_guard guard{srq.lock};
    srq.moving = moving;
}

// The kernel takes what waits along into a new ring, and looks at the old one no
// more.  Should the new one not be to be mapped, whoever posts tries again.
int resize(Srq &srq, ibv_srq_attr &attr, int attr_mask) noexcept {
    swp_modify_srq_resp kernel{};
    Request<ib_uverbs_modify_srq, swp_modify_srq_req> request{
        swp_modify_srq_req{.resp_addr = reinterpret_cast<std::uintptr_t>(&kernel)}};
    const std::lock_guard resizing{srq.resize_mutex};
    const bool behind = srq.moving; // since an earlier one
    set_moving(srq, true);
    const int error =
        abi::ibv_cmd_modify_srq(&srq.base, &attr, attr_mask, request.data(), request.size());
    if (error != 0) {
        set_moving(srq, behind);
        return error;
    }
    srq.next = {.key = kernel.ring_key, .bytes = kernel.ring_bytes, .entries = kernel.entries};
    return move_to_next(srq);
}

} // namespace

int move_to_next(Srq &srq) noexcept {
    const int error = map_ring(srq, srq.next.key, srq.next.bytes, srq.next.entries);
    if (error == 0)
        set_moving(srq, false);
    return error;
}

ibv_srq *create_srq(ibv_pd *pd, ibv_srq_init_attr *attr) noexcept {
    std::unique_ptr<Srq> srq{new (std::nothrow) Srq};
    if (!srq) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_create_srq> request;
    Response<ib_uverbs_create_srq_resp, swp_create_srq_resp> response;
    int error = abi::ibv_cmd_create_srq(pd, &srq->base, attr, request.data(), request.size(),
                                        response.data(), response.size());
    if (error == 0) {
        const swp_create_srq_resp kernel = response.tail();
        srq->stride = kernel.stride;
        srq->max_sge = attr->attr.max_sge;
        error = map_ring(*srq, kernel.ring_key, kernel.ring_bytes, kernel.entries);
        if (error != 0)
            abi::ibv_cmd_destroy_srq(&srq->base);
    }
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return &srq.release()->base;
}

int modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int attr_mask) noexcept {
    if ((attr_mask & IBV_SRQ_MAX_WR) != 0)
        return resize(*to_srq(srq), *attr, attr_mask);
    Request<ib_uverbs_modify_srq> request;
    return abi::ibv_cmd_modify_srq(srq, attr, attr_mask, request.data(), request.size());
}

int query_srq(ibv_srq *srq, ibv_srq_attr *attr) noexcept {
    Request<ib_uverbs_query_srq> request;
    return abi::ibv_cmd_query_srq(srq, attr, request.data(), request.size());
}

int destroy_srq(ibv_srq *srq) noexcept {
    const int error = destroy(abi::ibv_cmd_destroy_srq, srq);
    if (error == 0)
        delete to_srq(srq);
    return error;
}

int post_srq_recv(ibv_srq *ibsrq, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept {
    Srq &srq = *to_srq(ibsrq);
    int error = acquire(srq, srq.lock);
    if (error != 0) {
        *bad_wr = wr;
        return error;
    }
    error = srq.queue.post(wr, bad_wr).error;
    srq.lock.unlock();
    return error;
}

} // namespace softwarp
