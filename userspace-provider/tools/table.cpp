// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "table.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <tuple>

namespace softwarp::tools {
namespace {

using preload::Endpoint;

constexpr std::string_view blanks = " \t\r";

// Cuts the part before @separator off; the separator goes, too.
std::string_view cut(std::string_view &text, char separator) {
    const std::size_t end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return part;
}

// Names of devices are an administrator's, and go to terminals.
std::string printable(std::string_view word) {
    std::string text{word};
    for (char &c : text) {
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f')
            c = '?';
    }
    return text;
}

std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> words;
    while (true) {
        line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
        if (line.empty())
            return words;
        const std::size_t end = std::min(line.find_first_of(blanks), line.size());
        words.push_back(printable(line.substr(0, end)));
        line.remove_prefix(end);
    }
}

std::string word_in(const Table::Row &row, const char *column) {
    const auto found = row.find(column);
    return found == row.end() || found->second == "-" ? "" : found->second;
}

std::uint64_t number_in(const Table::Row &row, const char *column) {
    return number_of(word_in(row, column)).value_or(0);
}

template<std::size_t count>
std::string missing_in(const Table &table, const char *file,
                       const std::array<const char *, count> &columns) {
    for (const char *column : columns) {
        if (!table.has(column))
            return std::string{file} + " has no column " + column +
                   ": the module is not of this program's version";
    }
    return {};
}

Socket socket_of(const Table::Row &row) {
    return {.local = word_in(row, "local"),
            .remote = word_in(row, "remote"),
            .state = word_in(row, "state"),
            .mode = word_in(row, "mode"),
            .device = word_in(row, "device"),
            .policy = word_in(row, "policy"),
            .service = word_in(row, "service"),
            .why = word_in(row, "why"),
            .rx_queue = number_in(row, "rx_queue"),
            .tx_queue = number_in(row, "tx_queue"),
            .own_credits = number_in(row, "own"),
            .peer_credits = number_in(row, "peer"),
            .buffers = number_in(row, "bufs"),
            .buffer_size = number_in(row, "size"),
            .rx_bcopy = number_in(row, "rx_bcopy"),
            .tx_bcopy = number_in(row, "tx_bcopy"),
            .rx_zcopy = number_in(row, "rx_zcopy"),
            .tx_zcopy = number_in(row, "tx_zcopy"),
            .uid = number_in(row, "uid"),
            .inode = number_in(row, "inode")};
}

Answer answer_of(const Table::Row &row) {
    return {.service = word_in(row, "service"),
            .local = word_in(row, "local"),
            .answer = word_in(row, "answer"),
            .sdp = word_in(row, "sdp"),
            .expires_ms = number_in(row, "expires_ms")};
}

template<class Value, class Make>
Parsed<Value> parse(const Table &table, const std::string &error, Make make) {
    Parsed<Value> parsed{.values = {}, .incomplete = table.incomplete(), .error = error};
    if (!parsed.error.empty())
        return parsed;
    for (const Table::Row &row : table.rows())
        parsed.values.push_back(make(row));
    return parsed;
}

// The octets that have come or gone since; from 0 if the number is another one's.
double per_second(std::uint64_t before, std::uint64_t after, double seconds) {
    const std::uint64_t gained = after >= before ? after - before : after;
    return seconds > 0 ? static_cast<double>(gained) / seconds : 0;
}

bool is_same_host(const Endpoint &one, const Endpoint &other) {
    return one.v6 == other.v6 && one.address == other.address;
}

std::uint64_t received_by(const Socket &socket) {
    return socket.rx_bcopy + socket.rx_zcopy;
}

std::uint64_t sent_by(const Socket &socket) {
    return socket.tx_bcopy + socket.tx_zcopy;
}

} // namespace

Table::Table(std::string_view text) {
    columns_ = words_of(cut(text, '\n'));
    while (!text.empty()) {
        std::vector<std::string> words = words_of(cut(text, '\n'));
        if (words.size() < columns_.size()) {
            incomplete_ += words.empty() ? 0 : 1;
            continue;
        }
        Row row;
        for (std::size_t i = 0; i < columns_.size(); ++i)
            row[columns_[i]] = std::move(words[i]);
        rows_.push_back(std::move(row));
    }
}

bool Table::has(const std::string &column) const {
    return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
}

Socket::Kind Socket::kind() const noexcept {
    if (state == "by-tcp")
        return Kind::tcp;
    if (state == "listen")
        return Kind::listener;
    return state == "idle" || state == "asking" || state == "down" ? Kind::other : Kind::sdp;
}

bool Socket::is_connected() const noexcept {
    return kind() == Kind::sdp && !mode.empty();
}

const char *name_of(Socket::Kind kind) noexcept {
    switch (kind) {
    case Socket::Kind::sdp: return "sdp";
    case Socket::Kind::tcp: return "tcp";
    case Socket::Kind::listener: return "listener";
    case Socket::Kind::other: break;
    }
    return "none";
}

Parsed<Socket> sockets_in(std::string_view text) {
    const Table table{text};
    return parse<Socket>(
        table, missing_in(table, "/proc/net/softwarp_sdp", std::array{"local", "remote", "state"}),
        socket_of);
}

Parsed<Answer> answers_in(std::string_view text) {
    const Table table{text};
    return parse<Answer>(
        table, missing_in(table, "/proc/net/softwarp_sdp_pm", std::array{"service", "answer"}),
        answer_of);
}

Counters counters_in(std::string_view text) {
    Counters counters;
    while (!text.empty()) {
        const std::vector<std::string> words = words_of(cut(text, '\n'));
        const auto value = words.size() >= 2 ? number_of(words[1]) : std::nullopt;
        if (value)
            counters.emplace_back(words[0], *value);
    }
    return counters;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
    std::uint64_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end)
        return std::nullopt;
    return value;
}

std::optional<Endpoint> place_of(const std::string &text) {
    std::string address = text;
    std::uint64_t port = 0;
    const std::size_t colon = text.rfind(':');
    const bool bracketed = text.starts_with('[');
    // of an IPv6 address without brackets no colon is the port's
    const bool has_port = bracketed ? colon != std::string::npos && text[colon - 1] == ']'
                                    : colon != std::string::npos && text.find(':') == colon;
    if (has_port) {
        const auto number = number_of(std::string_view{text}.substr(colon + 1));
        if (!number || *number > UINT16_MAX)
            return std::nullopt;
        port = *number;
        address.resize(colon);
    }
    if (bracketed) {
        if (!address.ends_with(']'))
            return std::nullopt;
        address = address.substr(1, address.size() - 2);
    }
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    if (!bracketed && inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1)
        return Endpoint::of(reinterpret_cast<const sockaddr *>(&v4), sizeof(v4));
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1)
        return Endpoint::of(reinterpret_cast<const sockaddr *>(&v6), sizeof(v6));
    return std::nullopt;
}

const Answer *answer_for(const std::vector<Answer> &answers, const Endpoint &to) {
    const Answer *host = nullptr;
    for (const Answer &answer : answers) {
        const std::optional<Endpoint> service = place_of(answer.service);
        if (!service || !is_same_host(*service, to))
            continue;
        if (service->port != 0 && service->port == to.port)
            return &answer;
        if (service->port == 0 && host == nullptr)
            host = &answer;
    }
    return host;
}

With with_peer(const Socket &socket, const Endpoint &peer, const std::vector<Answer> &answers) {
    const std::optional<Endpoint> remote = place_of(socket.remote);
    if (!remote || remote->port == 0)
        return With::none;
    const bool same_host = is_same_host(*remote, peer);
    if (same_host && (peer.port == 0 || peer.port == remote->port))
        return With::yes;
    if (const std::optional<Endpoint> known = place_of(socket.service))
        return known->port == peer.port && is_same_host(*known, peer) ? With::yes : With::none;
    if (socket.kind() != Socket::Kind::sdp || peer.port == 0)
        return With::none;
    // The answer may name another address.
    for (const Answer &answer : answers) {
        const std::optional<Endpoint> service = place_of(answer.service);
        const std::optional<Endpoint> sdp = place_of(answer.sdp);
        if (service && sdp && service->port == peer.port && is_same_host(*service, peer) &&
            is_same_host(*sdp, *remote) && sdp->port == remote->port)
            return With::yes;
    }
    return same_host && socket.policy != "sdp" ? With::maybe : With::none;
}

std::vector<CounterRate> rates_of(const Counters &before, const Counters &after, double seconds) {
    const std::map<std::string, std::uint64_t> old{before.begin(), before.end()};
    std::vector<CounterRate> rates;
    for (const auto &[name, value] : after) {
        const auto found = old.find(name);
        const std::uint64_t was = found == old.end() ? 0 : found->second;
        if (value != was)
            rates.push_back({name, per_second(was, value, seconds)});
    }
    return rates;
}

std::vector<SocketRate> rates_of(const std::vector<Socket> &before,
                                 const std::vector<Socket> &after, double seconds) {
    // A connection that its program has closed has no inode, but still its ends.
    using Key = std::tuple<std::string, std::string>;
    std::map<Key, const Socket *> old;
    for (const Socket &socket : before)
        old[{socket.local, socket.remote}] = &socket;
    std::vector<SocketRate> rates;
    for (const Socket &socket : after) {
        const auto found = old.find({socket.local, socket.remote});
        const Socket was = found == old.end() ? Socket{} : *found->second;
        if (received_by(socket) == received_by(was) && sent_by(socket) == sent_by(was))
            continue;
        rates.push_back({socket, per_second(received_by(was), received_by(socket), seconds),
                         per_second(sent_by(was), sent_by(socket), seconds)});
    }
    return rates;
}

} // namespace softwarp::tools
