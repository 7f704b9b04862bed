// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#ifndef SOFTWARP_COMMON_PAUSE_HPP
#define SOFTWARP_COMMON_PAUSE_HPP

namespace softwarp {

// For loops that wait for another processor: leaves this one's means to the
// thread beside it for some dozen cycles.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

} // namespace softwarp

#endif // SOFTWARP_COMMON_PAUSE_HPP
