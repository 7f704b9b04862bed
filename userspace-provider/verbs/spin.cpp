// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "spin.hpp"

#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softwarp {

void Spin::call(ibv_cq &cq) noexcept {
    ib_uverbs_poll_cq_resp response{};
    const ib_uverbs_cmd_hdr header{
        .command = IB_USER_VERBS_CMD_POLL_CQ,
        .in_words = (sizeof(ib_uverbs_cmd_hdr) + sizeof(ib_uverbs_poll_cq)) / 4,
        .out_words = sizeof(response) / 4,
    };
    ib_uverbs_poll_cq core{};
    core.response = reinterpret_cast<std::uintptr_t>(&response);
    core.cq_handle = cq.handle;
    core.ne = 1;
    alignas(8) std::array<std::byte, sizeof(header) + sizeof(core)> command;
    std::memcpy(command.data(), &header, sizeof(header));
    std::memcpy(command.data() + sizeof(header), &core, sizeof(core));
    const ssize_t written = write(cq.context->cmd_fd, command.data(), command.size());
    // The device is gone, or the program has other credentials than it had when it
    // opened the device: say no more that it is here.
    if (written < 0 && (errno == EIO || errno == EACCES))
        use(nullptr);
}

} // namespace softwarp
