// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The kernel's switch: programs in its hook for the protocols of sockets, which make SDP
// sockets of the TCP sockets of control groups.  They are pinned, so they outlive the
// caller.  Functions throw std::runtime_error with a sentence.
#ifndef SOFTWARP_TOOLS_SWITCH_HPP
#define SOFTWARP_TOOLS_SWITCH_HPP

#include <cstdint>
#include <vector>

#include "cgroup.hpp"

namespace softwarp::tools {

struct SwitchedCgroup {
    Cgroup cgroup;
    std::uint64_t sockets = 0;
};

struct SwitchState {
    bool on = false;
    std::vector<SwitchedCgroup> cgroups;
};

// Returns if the kernel has the hook; anybody may ask, and does so before switch_on().
void need_hook();
void switch_on(const Cgroup &cgroup);
// For one; the last one takes the programs with it.  Whether it was on.
bool switch_off(const Cgroup &cgroup);
// For all, with the programs
void switch_off();
[[nodiscard]] SwitchState switch_state();

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_SWITCH_HPP
