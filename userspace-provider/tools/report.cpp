// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace softwarp::tools {
namespace {

using Json = nlohmann::ordered_json;
using Line = std::vector<std::string>;

constexpr std::string_view reason_prefix = "tcp_";
constexpr std::string_view fault_prefix = "fault_";
constexpr int indentation = 2;

std::string or_dash(const std::string &word) {
    return word.empty() ? "-" : word;
}

// Lines in columns, each as wide as its widest word; words are to the left, numbers, the
// columns from @numbers to before @words, to the right.
std::string columns(const std::vector<Line> &lines, std::size_t numbers, std::size_t words) {
    std::vector<std::size_t> widths;
    for (const Line &line : lines) {
        widths.resize(std::max(widths.size(), line.size()));
        for (std::size_t i = 0; i < line.size(); ++i)
            widths[i] = std::max(widths[i], line[i].size());
    }
    std::string text;
    for (const Line &line : lines) {
        std::string row;
        for (std::size_t i = 0; i < line.size(); ++i)
            row += i >= numbers && i < words ? fmt::format("{:>{}}  ", line[i], widths[i])
                                             : fmt::format("{:<{}}  ", line[i], widths[i]);
        row.resize(row.find_last_not_of(' ') + 1);
        text += row + "\n";
    }
    return text;
}

std::size_t count(const std::vector<Socket> &sockets, Socket::Kind kind) {
    return static_cast<std::size_t>(std::count_if(
        sockets.begin(), sockets.end(), [&](const Socket &one) { return one.kind() == kind; }));
}

std::string text_of_sockets(const Snapshot &snapshot) {
    const std::vector<Socket> &sockets = snapshot.sockets;
    if (sockets.empty())
        return "sockets: none of SDP is open\n";
    std::string text =
        fmt::format("sockets: {} by SDP, {} by TCP, {} listening, {} not connected\n",
                    count(sockets, Socket::Kind::sdp), count(sockets, Socket::Kind::tcp),
                    count(sockets, Socket::Kind::listener), count(sockets, Socket::Kind::other));
    std::vector<Line> lines{{"local", "remote", "state", "mode", "rx_queue", "tx_queue", "own",
                             "peer", "bufs", "size", "rx", "tx", "uid", "inode", "device", "policy",
                             "service", "why"}};
    for (const Socket &one : sockets)
        lines.push_back({or_dash(one.local), or_dash(one.remote), or_dash(one.state),
                         or_dash(one.mode), std::to_string(one.rx_queue),
                         std::to_string(one.tx_queue), std::to_string(one.own_credits),
                         std::to_string(one.peer_credits), std::to_string(one.buffers),
                         std::to_string(one.buffer_size),
                         std::to_string(one.rx_bcopy + one.rx_zcopy),
                         std::to_string(one.tx_bcopy + one.tx_zcopy), std::to_string(one.uid),
                         std::to_string(one.inode), or_dash(one.device), or_dash(one.policy),
                         or_dash(one.service), or_dash(one.why)});
    return text + columns(lines, 4, 14);
}

// Counters with a prefix, without it; those that are 0, too.
Counters with_prefix(const Counters &counters, std::string_view prefix) {
    Counters found;
    for (const auto &[name, value] : counters) {
        if (name.starts_with(prefix))
            found.emplace_back(name.substr(prefix.size()), value);
    }
    return found;
}

std::string text_of_reasons(const Snapshot &snapshot) {
    std::vector<Line> lines;
    for (const auto &[name, value] : with_prefix(snapshot.counters, reason_prefix)) {
        if (value > 0)
            lines.push_back({"  " + name, std::to_string(value), because(name)});
    }
    if (lines.empty())
        return "TCP in place of SDP: never so far\n";
    return "TCP in place of SDP, so far, because\n" + columns(lines, 1, 2);
}

std::string text_of_faults(const Snapshot &snapshot) {
    std::vector<Line> lines;
    for (const auto &[name, value] : with_prefix(snapshot.counters, fault_prefix)) {
        if (value > 0)
            lines.push_back({"  " + name, std::to_string(value)});
    }
    return lines.empty() ? "" : "peers that broke the protocol\n" + columns(lines, 1, 2);
}

std::string text_of_cache(const Snapshot &snapshot) {
    if (!snapshot.answers)
        return fmt::format("answers of port mappers: {}\n", snapshot.no_answers);
    if (snapshot.answers->empty())
        return "answers of port mappers: none is remembered\n";
    std::vector<Line> lines{{"  service", "local", "answer", "sdp", "expires_ms"}};
    for (const Answer &one : *snapshot.answers)
        lines.push_back({"  " + one.service, or_dash(one.local), one.answer, or_dash(one.sdp),
                         std::to_string(one.expires_ms)});
    return fmt::format("answers of port mappers: {}\n", snapshot.answers->size()) +
           columns(lines, 4, 5);
}

template<class Values>
std::string text_of_values(const char *title, const Values &values) {
    std::vector<Line> lines;
    lines.reserve(values.size());
    for (const auto &[name, value] : values)
        lines.push_back({"  " + name, std::to_string(value)});
    return fmt::format("{}\n", title) + columns(lines, 1, 2);
}

Json word(const std::string &text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json json_of(const Socket &one) {
    return {{"local", one.local},
            {"remote", one.remote},
            {"kind", name_of(one.kind())},
            {"state", one.state},
            {"mode", word(one.mode)},
            {"rx_queue", one.rx_queue},
            {"tx_queue", one.tx_queue},
            {"own_credits", one.own_credits},
            {"peer_credits", one.peer_credits},
            {"buffers", one.buffers},
            {"buffer_size", one.buffer_size},
            {"rx_bcopy", one.rx_bcopy},
            {"tx_bcopy", one.tx_bcopy},
            {"rx_zcopy", one.rx_zcopy},
            {"tx_zcopy", one.tx_zcopy},
            {"uid", one.uid},
            {"inode", one.inode},
            {"device", word(one.device)},
            {"policy", word(one.policy)},
            {"service", word(one.service)},
            {"why", word(one.why)}};
}

Json json_of(const Answer &one) {
    return {{"service", one.service},
            {"local", one.local},
            {"answer", one.answer},
            {"sdp", word(one.sdp)},
            {"expires_ms", one.expires_ms}};
}

template<class Values>
Json object_of(const Values &values) {
    Json object = Json::object();
    for (const auto &[name, value] : values)
        object[name] = value;
    return object;
}

template<class Values>
Json array_of(const Values &values) {
    Json array = Json::array();
    for (const auto &value : values)
        array.push_back(json_of(value));
    return array;
}

// What is not UTF-8 in a device's name becomes a replacement character.
std::string dump(const Json &json, int indent = -1) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Counters that a report with these sections is about.
bool is_wanted(const std::string &name, const Sections &sections) {
    if (name.starts_with(reason_prefix))
        return sections.reasons || sections.counters;
    if (name.starts_with(fault_prefix))
        return sections.faults || sections.counters;
    return sections.counters;
}

std::vector<CounterRate> wanted_rates(const Snapshot &before, const Snapshot &after, double seconds,
                                      const Sections &sections) {
    std::vector<CounterRate> rates = rates_of(before.counters, after.counters, seconds);
    std::erase_if(rates, [&](const CounterRate &rate) { return !is_wanted(rate.name, sections); });
    return rates;
}

std::vector<SocketRate> wanted_socket_rates(const Snapshot &before, const Snapshot &after,
                                            double seconds, const Sections &sections) {
    if (!sections.sockets)
        return {};
    return rates_of(before.sockets, after.sockets, seconds);
}

} // namespace

std::string text_of(const Snapshot &snapshot, const Sections &sections) {
    std::string text;
    if (sections.sockets)
        text += text_of_sockets(snapshot);
    if (sections.reasons)
        text += text_of_reasons(snapshot);
    if (sections.faults)
        text += text_of_faults(snapshot);
    if (sections.cache)
        text += text_of_cache(snapshot);
    if (sections.counters)
        text += text_of_values("counters", snapshot.counters);
    if (sections.settings)
        text += text_of_values("net.softwarp_sdp", snapshot.settings);
    return text;
}

std::string json_of(const Snapshot &snapshot, const Sections &sections) {
    Json json = Json::object();
    if (sections.sockets)
        json["sockets"] = array_of(snapshot.sockets);
    if (sections.reasons)
        json["reasons"] = object_of(with_prefix(snapshot.counters, reason_prefix));
    if (sections.faults)
        json["faults"] = object_of(with_prefix(snapshot.counters, fault_prefix));
    if (sections.cache)
        json["cache"] = snapshot.answers ? array_of(*snapshot.answers) : Json(nullptr);
    if (sections.counters)
        json["counters"] = object_of(snapshot.counters);
    if (sections.settings)
        json["settings"] = object_of(snapshot.settings);
    return dump(json, indentation);
}

std::string text_of_changes(const Snapshot &before, const Snapshot &after, double seconds,
                            const Sections &sections) {
    std::vector<Line> lines;
    for (const SocketRate &rate : wanted_socket_rates(before, after, seconds, sections))
        lines.push_back({"  " + rate.now.local, rate.now.remote, "received",
                         octets(rate.received) + "/s", "sent", octets(rate.sent) + "/s",
                         fmt::format("queues {} {}", rate.now.rx_queue, rate.now.tx_queue)});
    std::vector<Line> counted;
    for (const CounterRate &rate : wanted_rates(before, after, seconds, sections))
        counted.push_back({"  " + rate.name, fmt::format("{:.1f}/s", rate.per_second)});
    const std::string text = columns(lines, 7, 7) + columns(counted, 1, 2);
    return fmt::format("in {:.1f} s{}\n", seconds, text.empty() ? ": no change" : "") + text;
}

std::string json_of_changes(const Snapshot &before, const Snapshot &after, double seconds,
                            const Sections &sections) {
    Json sockets = Json::array();
    for (const SocketRate &rate : wanted_socket_rates(before, after, seconds, sections))
        sockets.push_back({{"local", rate.now.local},
                           {"remote", rate.now.remote},
                           {"inode", rate.now.inode},
                           {"received_per_second", rate.received},
                           {"sent_per_second", rate.sent},
                           {"rx_queue", rate.now.rx_queue},
                           {"tx_queue", rate.now.tx_queue}});
    Json counters = Json::object();
    for (const CounterRate &rate : wanted_rates(before, after, seconds, sections))
        counters[rate.name] = rate.per_second;
    return dump({{"seconds", seconds}, {"sockets", sockets}, {"counters_per_second", counters}});
}

std::string json_of(const Verdict &verdict) {
    return dump({{"transport", verdict.transport},
                 {"reason", word(verdict.reason)},
                 {"sentences", verdict.sentences},
                 {"sockets", array_of(verdict.sockets)}},
                indentation);
}

std::string headline(const Socket &socket) {
    const std::string ends = fmt::format("{} - {}", or_dash(socket.local), or_dash(socket.remote));
    switch (socket.kind()) {
    case Socket::Kind::tcp: {
        const std::string reason = because(socket.why);
        return fmt::format("{}: TCP, because {}.", ends,
                           reason.empty() ? "of " + or_dash(socket.why) : reason);
    }
    case Socket::Kind::listener: return fmt::format("{}: listens.", or_dash(socket.local));
    case Socket::Kind::other:
        return fmt::format("{}: {}.", ends,
                           socket.state == "asking"
                               ? "the peer's port mapper is being asked for an SDP port"
                               : "not connected");
    case Socket::Kind::sdp: break;
    }
    return fmt::format("{}: SDP over {}, {}{}.", ends, or_dash(socket.device), socket.state,
                       socket.why.empty() ? "" : ", ended by " + socket.why);
}

} // namespace softwarp::tools
