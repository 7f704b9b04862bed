// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What the kernel shows of SDP below /proc/net, as values.  Pure: text in, values out.
// Columns are found by their names, so a newer kernel may have further ones.
#ifndef SOFTWARP_TOOLS_TABLE_HPP
#define SOFTWARP_TOOLS_TABLE_HPP

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/rules.hpp"

namespace softwarp::tools {

// A text whose first line names its columns.
class Table {
  public:
    using Row = std::map<std::string, std::string>;

    explicit Table(std::string_view text);

    [[nodiscard]] bool has(const std::string &column) const;
    [[nodiscard]] const std::vector<Row> &rows() const noexcept { return rows_; }
    // Lines with fewer words than there are columns; they are left out.
    [[nodiscard]] std::size_t incomplete() const noexcept { return incomplete_; }

  private:
    std::vector<std::string> columns_;
    std::vector<Row> rows_;
    std::size_t incomplete_ = 0;
};

// A line of softwarp_sdp; words and numbers are the kernel's, and empty for its "-".
struct Socket {
    std::string local;
    std::string remote;
    std::string state;
    std::string mode;
    std::string device;
    std::string policy;  // or empty: an older module
    std::string service; // the server's end as programs know it, if SDP has another port there
    std::string why;
    std::uint64_t rx_queue = 0;
    std::uint64_t tx_queue = 0;
    std::uint64_t own_credits = 0;
    std::uint64_t peer_credits = 0;
    std::uint64_t buffers = 0;
    std::uint64_t buffer_size = 0;
    std::uint64_t rx_bcopy = 0;
    std::uint64_t tx_bcopy = 0;
    std::uint64_t rx_zcopy = 0;
    std::uint64_t tx_zcopy = 0;
    std::uint64_t uid = 0;
    std::uint64_t inode = 0;
    enum class Kind { sdp, tcp, listener, other };

    [[nodiscard]] Kind kind() const noexcept;
    // Whether octets are exchanged, or the ends of a stream, by SDP.
    [[nodiscard]] bool is_connected() const noexcept;
};

[[nodiscard]] const char *name_of(Socket::Kind kind) noexcept;

// A line of softwarp_sdp_pm: what a peer's port mapper has answered.
struct Answer {
    std::string service; // port 0: all services of the host
    std::string local;   // our address, port 0
    std::string answer;  // "sdp", "denied", "silent"
    std::string sdp;     // where it is to be had by SDP, or empty
    std::uint64_t expires_ms = 0;
};

template<class Value>
struct Parsed {
    std::vector<Value> values;
    std::size_t incomplete = 0; // lines that were left out
    std::string error;          // a sentence, if this is no such table
};

[[nodiscard]] Parsed<Socket> sockets_in(std::string_view text);
[[nodiscard]] Parsed<Answer> answers_in(std::string_view text);

// Lines of softwarp_sdp_stat, in their order; others are left out.
using Counters = std::vector<std::pair<std::string, std::uint64_t>>;
[[nodiscard]] Counters counters_in(std::string_view text);

// A decimal number and nothing else.
[[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view text);

// An address with or without a port, in brackets or not; without one the port is 0.
[[nodiscard]] std::optional<preload::Endpoint> place_of(const std::string &text);

// The first answer that connections to @to would use, if there is one.
[[nodiscard]] const Answer *answer_for(const std::vector<Answer> &answers,
                                       const preload::Endpoint &to);

// Which connections are with a peer.  By SDP they have the SDP port that its port mapper
// has given, and not that of the service.
enum class With {
    none,
    maybe, // by SDP with this host, perhaps with another service
    yes,
};
[[nodiscard]] With with_peer(const Socket &socket, const preload::Endpoint &peer,
                             const std::vector<Answer> &answers);

// What has changed between two readings, per second -----------------------------------

struct CounterRate {
    std::string name;
    double per_second = 0;
};

struct SocketRate {
    Socket now;
    double received = 0; // octets
    double sent = 0;
};

// A counter that has gone down, because the module was loaded again, counts from 0.
[[nodiscard]] std::vector<CounterRate> rates_of(const Counters &before, const Counters &after,
                                                double seconds);
// Those of whose octets some have moved; a new one counts from 0.
[[nodiscard]] std::vector<SocketRate> rates_of(const std::vector<Socket> &before,
                                               const std::vector<Socket> &after, double seconds);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_TABLE_HPP
