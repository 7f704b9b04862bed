// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Control groups of version 2.  Functions throw std::runtime_error with a sentence.
#ifndef SOFTWARP_TOOLS_CGROUP_HPP
#define SOFTWARP_TOOLS_CGROUP_HPP

#include <cstdint>
#include <string>
#include <string_view>

namespace softwarp::tools {

struct Cgroup {
    std::string path; // of its directory
    std::uint64_t id = 0;
};

// The mount point in the text of /proc/self/mountinfo; empty if there is none.
[[nodiscard]] std::string cgroup_mount_in(std::string_view mountinfo);

// The path below the mount point in the text of /proc/self/cgroup; empty if there is none.
[[nodiscard]] std::string cgroup_path_in(std::string_view text);

// The one that a path names: a directory, or a path as /proc/PID/cgroup has it.
[[nodiscard]] Cgroup find_cgroup(const std::string &name);
// The one of all processes
[[nodiscard]] Cgroup root_cgroup();
// The one of this process
[[nodiscard]] Cgroup own_cgroup();

// The directory; empty if the cgroup was removed.
[[nodiscard]] std::string path_of_cgroup(std::uint64_t id);

// A new cgroup below another one, with a name that begins so
[[nodiscard]] Cgroup make_cgroup(const Cgroup &parent, const std::string &name);
// Moves this process.
void enter_cgroup(const Cgroup &cgroup);
// Waits until no process is in a cgroup or below it, and removes it.
void remove_cgroup_when_empty(const Cgroup &cgroup);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_CGROUP_HPP
