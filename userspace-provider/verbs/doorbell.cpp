// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "doorbell.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "abi.hpp"

namespace softwarp {

void Doorbell::prepare(std::uint32_t qp_handle) noexcept {
    const ib_uverbs_cmd_hdr header{
        .command = IB_USER_VERBS_CMD_POST_SEND,
        .in_words = bytes / 4,
        .out_words = sizeof(response_) / 4,
    };
    ib_uverbs_post_send core{};
    core.response = reinterpret_cast<std::uintptr_t>(&response_);
    core.qp_handle = qp_handle;
    core.wqe_size = sizeof(ib_uverbs_send_wr);
    std::memcpy(command_.data(), &header, sizeof(header));
    std::memcpy(command_.data() + sizeof(header), &core, sizeof(core));
}

int Doorbell::call(ibv_qp &qp) noexcept {
    for (;;) {
        const ssize_t n = write(qp.context->cmd_fd, command_.data(), bytes);
        if (n == static_cast<ssize_t>(bytes))
            return 0;
        if (n >= 0)
            return EIO;
        if (errno == EINTR)
            continue;
        // The kernel takes no write() from a process that changed its
        // credentials after opening the device; the library's ioctl it takes.
        if (errno == EACCES) {
            ibv_send_wr *bad = nullptr;
            return abi::ibv_cmd_post_send(&qp, nullptr, &bad);
        }
        return errno;
    }
}

int Doorbell::ring(ibv_qp &qp) noexcept {
    constexpr long longest = 8'000'000;
    timespec pause{.tv_sec = 0, .tv_nsec = 1000};
    for (;;) {
        // The requests are in the ring and cannot be taken back, and nobody else
        // may be about to look at it: so the call has to come through.  EFAULT is
        // a page of the command that the kernel had no memory to bring in.
        const int error = call(qp);
        if (error != ENOMEM && error != EFAULT)
            return error;
        nanosleep(&pause, nullptr);
        pause.tv_nsec = std::min(2 * pause.tv_nsec, longest);
    }
}

} // namespace softwarp
