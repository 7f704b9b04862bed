// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What sdp_stat prints, as text and as JSON.  Pure: values in, text out.
#ifndef SOFTWARP_TOOLS_REPORT_HPP
#define SOFTWARP_TOOLS_REPORT_HPP

#include <string>
#include <vector>

#include "observe.hpp"
#include "table.hpp"
#include "why.hpp"

namespace softwarp::tools {

// The parts of a report, in their order.
struct Sections {
    bool sockets = false;
    bool reasons = false;
    bool faults = false;
    bool cache = false;
    bool counters = false;
    bool settings = false;
};

[[nodiscard]] std::string text_of(const Snapshot &snapshot, const Sections &sections);
// One object on one line, or indented.
[[nodiscard]] std::string json_of(const Snapshot &snapshot, const Sections &sections);

// What has changed between two snapshots.
[[nodiscard]] std::string text_of_changes(const Snapshot &before, const Snapshot &after,
                                          double seconds, const Sections &sections);
[[nodiscard]] std::string json_of_changes(const Snapshot &before, const Snapshot &after,
                                          double seconds, const Sections &sections);

// The answer of sdp_stat why.
struct Verdict {
    // "sdp", "tcp", "mixed"; "none" if there is none yet; of a connection that there is not
    // "asked" if the peer decides, and "fails"
    std::string transport;
    std::string reason; // why it is TCP, or empty
    Sentences sentences;
    std::vector<Socket> sockets; // that it is about

    [[nodiscard]] bool is_bad() const {
        return transport == "tcp" || transport == "mixed" || transport == "fails";
    }
};
[[nodiscard]] std::string json_of(const Verdict &verdict);

// "10.0.0.1:4000 - 10.0.0.2:80: SDP over sw0, open"
[[nodiscard]] std::string headline(const Socket &socket);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_REPORT_HPP
