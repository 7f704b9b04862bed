// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The lock of the data path: held for some hundred nanoseconds, and never across
// a system call of ours.  A program that polls or posts step by step decides for
// how long.  Usable with std::lock_guard.
#ifndef SOFTWARP_COMMON_SPINLOCK_HPP
#define SOFTWARP_COMMON_SPINLOCK_HPP

#include <sched.h>

#include <atomic>

#include "pause.hpp"

namespace softwarp {

class Spinlock {
  public:
    void lock() noexcept {
        while (taken_.exchange(true, std::memory_order_acquire))
            wait();
    }

    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

  private:
    // With one CPU the holder only runs on when the waiter gives way, so
    // spinning is bounded.
    void wait() const noexcept {
        for (int spin = 0; taken_.load(std::memory_order_relaxed); ++spin) {
            if (spin < 1000)
                pause();
            else
                sched_yield();
        }
    }

    std::atomic<bool> taken_{false};
};

} // namespace softwarp

#endif // SOFTWARP_COMMON_SPINLOCK_HPP
