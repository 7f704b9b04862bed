// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Sentences on a connection: what it uses, why, what holds it up, and what to do.  Pure:
// numbers and words of the kernel in, sentences out.
#ifndef SOFTWARP_TOOLS_WHY_HPP
#define SOFTWARP_TOOLS_WHY_HPP

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "network.hpp"
#include "preload/rules.hpp"
#include "table.hpp"

namespace softwarp::tools {

using Sentences = std::vector<std::string>;

// What this host knows of the way to a peer at this moment.
struct Surroundings {
    std::optional<preload::Endpoint> peer; // port 0: any
    std::optional<Route> route;            // if there is a peer
    std::optional<RdmaDevice> device;      // on the route
    std::vector<RdmaDevice> devices;       // all of the namespace
    // Answers of port mappers; nothing if they may not be read.
    std::optional<std::vector<Answer>> answers;
    // net.softwarp_sdp, by name
    std::map<std::string, std::uint64_t> settings;
};

// One reading of a connection.  From a descriptor there is more to be had.
struct Reading {
    Socket socket;
    struct Own {
        std::uint64_t send_buffer = 0; // SO_SNDBUF; 0: the program has not set it
        std::uint64_t receive_buffer = 0;
        std::optional<std::uint64_t> retransmissions; // TCP's, so far
    };
    std::optional<Own> own;
};

// The kernel's word for a reason, such as "no_device", from enum sdp_info_reason; empty
// for none.
[[nodiscard]] const char *reason_word(unsigned reason) noexcept;
// Its state as in softwarp_sdp, from enum sdp_info_state.
[[nodiscard]] const char *state_word(unsigned state) noexcept;
[[nodiscard]] const char *mode_word(unsigned mode) noexcept;
[[nodiscard]] const char *fault_word(unsigned fault) noexcept;

// What follows "TCP, because", for a word in softwarp_sdp; empty if there is no such reason.
[[nodiscard]] std::string because(const std::string &reason);

// What to do about a connection that uses TCP for this reason.
[[nodiscard]] Sentences remedy(const std::string &reason, const Surroundings &around);

// What an entry of the port mapper's cache means for the next connection.
[[nodiscard]] std::string sentence_on(const Answer &answer);

// What a new connection of a program with this policy would use, and why.
struct Forecast {
    enum class Way { sdp, asked, tcp, fails };

    Way way = Way::asked;
    Sentences sentences;
};
[[nodiscard]] const char *name_of(Forecast::Way way) noexcept;
[[nodiscard]] Forecast forecast(preload::Policy policy, const Surroundings &around);

// What holds a connection up, from two readings; only what they show.
[[nodiscard]] Sentences what_slows(const Reading &before, const Reading &after, double seconds,
                                   const Surroundings &around);

// "1.2 MB", "17 octets"
[[nodiscard]] std::string octets(double count);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_WHY_HPP
