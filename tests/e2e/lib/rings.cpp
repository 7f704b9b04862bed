// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/rings.hpp"

#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>

namespace softwarp::e2e {

std::set<Mapping> device_mappings() {
    std::set<Mapping> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("uverbs") == std::string::npos)
            continue;
        uint64_t start = std::stoull(line, nullptr, 16);
        uint64_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
        found.insert({reinterpret_cast<uint8_t *>(start), static_cast<size_t>(end - start)});
    }
    return found;
}

void ring_doorbell(ibv_qp *qp) {
    struct {
        ib_uverbs_cmd_hdr header;
        ib_uverbs_post_send body;
    } command{};
    ib_uverbs_post_send_resp response{};
    command.header.command = IB_USER_VERBS_CMD_POST_SEND;
    command.header.in_words = sizeof(command) / 4;
    command.header.out_words = sizeof(response) / 4;
    command.body.response = reinterpret_cast<uintptr_t>(&response);
    command.body.qp_handle = qp->handle;
    command.body.wqe_size = sizeof(ib_uverbs_send_wr);
    ssize_t written = write(qp->context->cmd_fd, &command, sizeof(command));
    (void)written;
}

SendRing::SendRing(const Endpoint &end) : entries_(end.cap().max_send_wr) {
    constexpr uint64_t kFirst = 0x5e4d0f1a57c0ffeeULL;
    const uint8_t *found[2] = {};

    for (uint64_t i = 0; i < 2; i++) {
        int error = post_send(end.qp(), SendWr::write(kFirst + i, {}, 0, 0, 0));
        require(error == 0, "two empty Writes are posted");
    }
    for (const Mapping &ring : device_mappings())
        for (size_t at = SWP_RING_DATA_OFF; at + sizeof(swp_sqe) <= ring.size; at += 64) {
            uint64_t id = reinterpret_cast<const swp_sqe *>(ring.start + at)->wr_id;
            if (id - kFirst > 1)
                continue;
            found[id - kFirst] = ring.start + at;
            ctrl_ = reinterpret_cast<swp_ring_ctrl *>(ring.start);
        }
    require(found[0] != nullptr && found[1] > found[0], "found the send ring");
    data_ = reinterpret_cast<uint8_t *>(ctrl_) + SWP_RING_DATA_OFF;
    stride_ = static_cast<uint32_t>(found[1] - found[0]);
}

void SendRing::fill(const swp_sqe &sqe, const void *tail, size_t length, uint32_t modulus,
                    uint32_t remainder) const {
    for (uint32_t i = remainder; i < entries_; i += modulus) {
        uint8_t *slot = data_ + size_t{i} * stride_;
        std::memcpy(slot, &sqe, sizeof(sqe));
        if (length != 0)
            std::memcpy(slot + sizeof(sqe), tail, length);
    }
}

uint32_t SendRing::post_all() const {
    std::atomic_ref prod(ctrl_->prod);
    uint32_t to = std::atomic_ref(ctrl_->cons).load(std::memory_order_acquire) + entries_;
    return to - prod.exchange(to);
}

} // namespace softwarp::e2e
