// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Completion queues.  Polling and arming work on the mapped ring alone.
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
int map_ring(Cq &cq, int cmd_fd, const swp_create_cq_resp &kernel) noexcept {
    if (!ring_is_sane(kernel.ring_bytes, kernel.entries, sizeof(swp_cqe), sizeof(swp_cqe))) {
        complain("softwarp: the kernel module describes an impossible completion queue "
                 "(%u entries in %u bytes); install module and provider of the same release\n",
                 kernel.entries, kernel.ring_bytes);
        return EPROTO;
    }
    const int error = cq.memory.map(cmd_fd, kernel.ring_key, kernel.ring_bytes);
    if (error != 0)
        return error;
    cq.ring = CompletionRing{cq.memory.data(), kernel.entries};
    return 0;
}

} // namespace

ibv_cq *create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel,
                  int comp_vector) noexcept {
    std::unique_ptr<Cq> cq{new (std::nothrow) Cq};
    if (!cq) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_create_cq> request;
    Response<ib_uverbs_create_cq_resp, swp_create_cq_resp> response;
    int error =
        abi34::ibv_cmd_create_cq(context, cqe, channel, comp_vector, &cq->base.cq, request.data(),
                                 request.size(), response.data(), response.size());
    if (error == 0) {
        error = map_ring(*cq, context->cmd_fd, response.tail());
        if (error != 0)
            abi34::ibv_cmd_destroy_cq(&cq->base.cq);
    }
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return &cq.release()->base.cq;
}

int poll_cq(ibv_cq *ibcq, int max, ibv_wc *wc) noexcept {
    Cq &cq = *to_cq(ibcq);
    if (max < 0)
        return -EINVAL;
    const std::lock_guard guard{cq.lock};
    return cq.ring.poll(max, wc);
}

int req_notify_cq(ibv_cq *cq, int solicited_only) noexcept {
    to_cq(cq)->ring.arm(solicited_only != 0);
    return 0;
}

int destroy_cq(ibv_cq *ibcq) noexcept {
    const int error = abi34::ibv_cmd_destroy_cq(ibcq);
    if (error == 0)
        delete to_cq(ibcq);
    return error;
}

} // namespace softwarp
