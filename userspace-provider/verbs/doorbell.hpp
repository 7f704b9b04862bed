// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The one way from a QP's rings into the kernel: a POST_SEND command without
// work requests, prepared once and sent with a single write().
#ifndef SOFTWARP_VERBS_DOORBELL_HPP
#define SOFTWARP_VERBS_DOORBELL_HPP

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace softwarp {

class Doorbell {
  public:
    Doorbell() = default;
    ~Doorbell() = default;
    // The kernel is given the address of a member.
    Doorbell(const Doorbell &) = delete;
    Doorbell &operator=(const Doorbell &) = delete;

    void prepare(std::uint32_t qp_handle) noexcept;

    // Returns 0 or a positive errno: EIO when the device is gone, else what
    // the kernel module says.  As long as the kernel has no memory for the call
    // it is repeated.  Thread safe.
    [[nodiscard]] int ring(ibv_qp &qp) noexcept;

  private:
    [[nodiscard]] int call(ibv_qp &qp) noexcept;

    static constexpr std::size_t bytes = sizeof(ib_uverbs_cmd_hdr) + sizeof(ib_uverbs_post_send);

    alignas(8) std::array<std::byte, bytes> command_{};
    ib_uverbs_post_send_resp response_{}; // written by the kernel, never read
};

} // namespace softwarp

#endif // SOFTWARP_VERBS_DOORBELL_HPP
