// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What sdp_stat reads from the kernel: the files of the network namespace, and a descriptor
// of another process.
#ifndef SOFTWARP_TOOLS_OBSERVE_HPP
#define SOFTWARP_TOOLS_OBSERVE_HPP

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.hpp"
#include "table.hpp"
#include "why.hpp"

namespace softwarp::tools {

struct Contents {
    std::string text;
    int error = 0; // an errno
};

// The whole of a file that the kernel makes.
[[nodiscard]] Contents read_whole(const std::string &path);

struct Snapshot {
    std::vector<Socket> sockets;
    Counters counters;
    std::optional<std::vector<Answer>> answers; // nothing: they may not be read
    std::string no_answers;                     // why not
    std::map<std::string, std::uint64_t> settings;
    std::string error; // a sentence; then the rest is not there
    bool loaded = true;
};

// Of the caller's network namespace.
[[nodiscard]] Snapshot take_snapshot();

// A copy of a descriptor of another process; an error is a sentence.
struct Copied {
    Fd fd;
    std::string error;
};
[[nodiscard]] Copied copy_descriptor(pid_t pid, int number);

// What a descriptor is: an SDP socket with its reading, or a sentence on what it is.
struct Described {
    std::optional<Reading> reading;
    unsigned transport = 0; // enum sdp_info_transport
    unsigned policy = 0;    // enum sdp_info_policy
    bool plain_tcp = false; // made without SDP
    std::string sentence;   // unless there is a reading
    std::string error;      // it is not a stream socket of TCP, or of another namespace
};
[[nodiscard]] Described describe_descriptor(const Fd &fd);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_OBSERVE_HPP
