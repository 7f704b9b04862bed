// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Where a process finds its rules: the environment and files.  sdp_run reads the same
// before it starts a program.
#ifndef SOFTWARP_PRELOAD_CONFIG_HPP
#define SOFTWARP_PRELOAD_CONFIG_HPP

#include <functional>
#include <string>
#include <vector>

#include "rules.hpp"

namespace softwarp::preload {

// Rules; ; ends one as the end of a line does.  They come before those of files.
constexpr const char *rules_variable = "SDP_RULES";
// The file to read in place of the user's and the host's; empty: none.
constexpr const char *file_variable = "LIBSDP_CONFIG_FILE";
// What sockets use that no rule takes: auto, sdp or tcp.
constexpr const char *policy_variable = "SDP_POLICY";
// What follows "log" in a statement; it counts more than those in files.
constexpr const char *log_variable = "SDP_LOG";

// Of the user, below $XDG_CONFIG_HOME or ~/.config; of the host; and where libsdp
// had it, for hosts without the one before.
constexpr const char *user_file = "softwarp/sdp.conf";
constexpr const char *host_file = "/etc/softwarp/sdp.conf";
constexpr const char *old_host_file = "/etc/libsdp.conf";

// What holds for a process.
struct Config {
    Rules rules;
    Policy policy = Policy::automatic; // of sockets that no rule takes
    bool broken = false;               // rules have errors: everything stays on TCP
    std::string program;
};

struct Loaded {
    Config config;
    std::vector<Error> errors;
    std::vector<std::string> files; // that were read
};

// @variable is getenv(), or secure_getenv().
[[nodiscard]] Loaded load(const std::function<const char *(const char *)> &variable,
                          const std::string &program);

} // namespace softwarp::preload

#endif // SOFTWARP_PRELOAD_CONFIG_HPP
