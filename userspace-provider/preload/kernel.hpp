// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Values of kernel/uapi/softwarp_sdp.h, from and into our words.
#ifndef SOFTWARP_PRELOAD_KERNEL_HPP
#define SOFTWARP_PRELOAD_KERNEL_HPP

#include "rules.hpp"

namespace softwarp::preload {

// enum sdp_info_policy
[[nodiscard]] int number_of(Policy policy) noexcept;
// Why a connection uses TCP, enum sdp_info_reason: what follows "because".
[[nodiscard]] const char *sentence_of(unsigned reason) noexcept;

} // namespace softwarp::preload

#endif // SOFTWARP_PRELOAD_KERNEL_HPP
