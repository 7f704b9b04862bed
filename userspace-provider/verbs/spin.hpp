// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What a program does that finds its completion queues empty again and again: the
// kernel may have it receive, and send, in place of the processor on which packets
// arrive.  See struct swp_spin_page.
#ifndef SOFTWARP_VERBS_SPIN_HPP
#define SOFTWARP_VERBS_SPIN_HPP

#include <infiniband/verbs.h>

#include <atomic>

#include "common/mapping.hpp"
#include "common/pause.hpp"
#include "softwarp_abi.h"

namespace softwarp {

// Thread safe, from the first wanted() on.
class Spin {
  public:
    // Maps the page.  A context without one is none the worse for it.
    void map(int cmd_fd, const swp_uctx_resp &kernel) noexcept {
        if (kernel.spin_bytes >= sizeof(swp_spin_page) &&
            memory_.map(cmd_fd, kernel.spin_key, kernel.spin_bytes) == 0)
            use(static_cast<swp_spin_page *>(memory_.data()));
    }
    void use(swp_spin_page *page) noexcept { page_.store(page, std::memory_order_relaxed); }

    // Is there work?  Then call() does it.  Who says to the kernel that it is here
    // waits a moment for what that has.
    [[nodiscard]] bool wanted() const noexcept {
        swp_spin_page *page = page_.load(std::memory_order_relaxed);
        if (page == nullptr)
            return false;
        const std::atomic_ref<__u32> ask{page->ask};
        const std::atomic_ref<__u32> work{page->work};
        if (ask.load(std::memory_order_relaxed) != 0) [[unlikely]] {
            ask.store(0, std::memory_order_relaxed);
            for (int i = 0; i < patience && work.load(std::memory_order_relaxed) == 0; ++i)
                pause();
        }
        return work.load(std::memory_order_relaxed) != 0;
    }

    void call(ibv_cq &cq) noexcept;

  private:
    // Longer than the kernel takes, which is some hundred nanoseconds.
#if defined(__x86_64__) || defined(__i386__)
    static constexpr int patience = 64;
#else
    static constexpr int patience = 1024;
#endif

    Mapping memory_;
    std::atomic<swp_spin_page *> page_{nullptr};
};

} // namespace softwarp

#endif // SOFTWARP_VERBS_SPIN_HPP
