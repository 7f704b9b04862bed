// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "rules.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

namespace softwarp::preload {
namespace {

constexpr std::string_view blanks = " \t\r\v\f";
constexpr unsigned v4_bits = 32;
constexpr unsigned v6_bits = 128;
// Of an IPv4 address in its IPv6 form: the bits before it.
constexpr unsigned mapped_bits = v6_bits - v4_bits;

struct Word {
    std::string_view text;
    std::size_t column = 0; // from 1
};

// A part of a word, with its own column.
Word part_of(const Word &word, std::size_t begin, std::size_t count = std::string_view::npos) {
    return {word.text.substr(begin, count), word.column + begin};
}

// A decimal number without sign, from @least to @most.
std::optional<unsigned> number_of(std::string_view text, unsigned least, unsigned most) noexcept {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
        return std::nullopt;
    return value;
}

bool is_mapped(const std::array<std::uint8_t, 16> &address) noexcept {
    in6_addr v6{};
    std::memcpy(&v6, address.data(), sizeof(v6));
    return IN6_IS_ADDR_V4MAPPED(&v6);
}

// The IPv4 address in an IPv6 one, to the front.
void unmap(std::array<std::uint8_t, 16> &address) noexcept {
    std::rotate(address.begin(), address.begin() + mapped_bits / 8, address.end());
    std::fill(address.begin() + v4_bits / 8, address.end(), std::uint8_t{0});
}

// What is wrong with an address, or nothing.
std::optional<std::string> parse_address(std::string_view text, Network &network) {
    const std::string whole{text};
    network.any = false;
    network.v6 = whole.find(':') != std::string::npos;
    const int family = network.v6 ? AF_INET6 : AF_INET;
    if (inet_pton(family, whole.c_str(), network.address.data()) != 1)
        return "\"" + whole + "\" is not an address; write *, an IPv4 or an IPv6 address";
    network.prefix = network.v6 ? v6_bits : v4_bits;
    return std::nullopt;
}

std::optional<std::string> parse_prefix(std::string_view text, Network &network) {
    const unsigned most = network.v6 ? v6_bits : v4_bits;
    const std::optional<unsigned> bits = number_of(text, 0, most);
    if (!bits)
        return "\"" + std::string{text} + "\" is not a length of a prefix; write 0 to " +
               std::to_string(most);
    network.prefix = *bits;
    return std::nullopt;
}

// A rule about ::ffff:a.b.c.d is one about a.b.c.d, because sockets are compared so.
void normalize(Network &network) noexcept {
    if (network.v6 && network.prefix >= mapped_bits && is_mapped(network.address)) {
        unmap(network.address);
        network.v6 = false;
        network.prefix -= mapped_bits;
    }
}

struct Trouble {
    std::size_t column = 0;
    std::string sentence;
};

std::optional<Trouble> parse_network(const Word &word, Network &network) {
    if (word.text == "*")
        return std::nullopt;
    Word address = word;
    std::optional<Word> prefix;
    // [ADDRESS], [ADDRESS]/PREFIX, [ADDRESS/PREFIX], or all that without brackets
    if (word.text.starts_with('[')) {
        const std::size_t end = word.text.find(']');
        if (end == std::string_view::npos)
            return Trouble{word.column, "the bracket [ is not closed"};
        address = part_of(word, 1, end - 1);
        if (end + 1 < word.text.size()) {
            if (word.text[end + 1] != '/')
                return Trouble{word.column + end + 1, "only / and a prefix may follow the ]"};
            prefix = part_of(word, end + 2);
        }
    }
    const std::size_t slash = address.text.find('/');
    if (slash != std::string_view::npos) {
        if (prefix)
            return Trouble{prefix->column, "there is a prefix already"};
        prefix = part_of(address, slash + 1);
        address = part_of(address, 0, slash);
    }
    if (std::optional<std::string> wrong = parse_address(address.text, network))
        return Trouble{address.column, std::move(*wrong)};
    if (prefix) {
        if (std::optional<std::string> wrong = parse_prefix(prefix->text, network))
            return Trouble{prefix->column, std::move(*wrong)};
    }
    normalize(network);
    return std::nullopt;
}

std::optional<Trouble> parse_ports(const Word &word, Ports &ports) {
    if (word.text == "*")
        return std::nullopt;
    const std::size_t dash = word.text.find('-');
    const Word first = part_of(word, 0, dash);
    const Word last = dash == std::string_view::npos ? first : part_of(word, dash + 1);
    for (const Word &port : {first, last}) {
        if (!number_of(port.text, 1, UINT16_MAX))
            return Trouble{port.column, "\"" + std::string{port.text} +
                                            "\" is not a port; write *, N or N-M, with numbers "
                                            "from 1 to 65535"};
    }
    ports = {.any = false,
             .first = static_cast<std::uint16_t>(*number_of(first.text, 1, UINT16_MAX)),
             .last = static_cast<std::uint16_t>(*number_of(last.text, 1, UINT16_MAX))};
    if (ports.first > ports.last)
        return Trouble{word.column, "the range of ports " + std::string{word.text} +
                                        " is empty: its first port is greater than its last"};
    return std::nullopt;
}

// ADDRESS[/PREFIX]:PORTS; the ports are behind the last colon.
std::optional<Trouble> parse_place(const Word &word, Network &network, Ports &ports) {
    const std::size_t colon = word.text.rfind(':');
    if (colon == std::string_view::npos || word.text.back() == ']')
        return Trouble{word.column, "\"" + std::string{word.text} +
                                        "\" has no port; write ADDRESS:PORT, or *:* for all"};
    if (std::optional<Trouble> wrong = parse_network(part_of(word, 0, colon), network))
        return wrong;
    return parse_ports(part_of(word, colon + 1), ports);
}

} // namespace

// One statement: its words, and the first error in it
class Rules::Line {
  public:
    Line(std::string_view text, std::string file, std::size_t number, std::size_t column)
        : file_{std::move(file)}, number_{number} {
        text = text.substr(0, text.find('#'));
        std::size_t at = text.find_first_not_of(blanks);
        end_ = column + text.size();
        while (at != std::string_view::npos) {
            const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
            words_.push_back({text.substr(at, end - at), column + at});
            end_ = column + end;
            at = text.find_first_not_of(blanks, end);
        }
    }

    [[nodiscard]] std::size_t left() const noexcept { return words_.size() - next_; }
    // The next word; an empty one at the end of the statement.
    [[nodiscard]] Word peek() const { return left() != 0 ? words_[next_] : Word{{}, end_}; }
    Word take() {
        Word word = peek();
        if (left() != 0)
            ++next_;
        return word;
    }
    void fail(std::size_t column, std::string sentence) {
        if (!error_)
            error_ = Error{file_, number_, column, std::move(sentence)};
    }
    // Fails with what is there instead of @expected.
    void fail_at(const Word &word, const std::string &expected) {
        if (word.text.empty())
            fail(word.column, "the statement ends where " + expected + " is expected");
        else
            fail(word.column, "\"" + std::string{word.text} + "\" is not " + expected);
    }
    [[nodiscard]] const std::optional<Error> &error() const noexcept { return error_; }
    [[nodiscard]] std::string where() const { return file_ + ":" + std::to_string(number_); }
    [[nodiscard]] std::string text() const {
        std::string text;
        for (const Word &word : words_)
            text += (text.empty() ? "" : " ") + std::string{word.text};
        return text;
    }

  private:
    std::string file_;
    std::size_t number_;
    std::vector<Word> words_;
    std::size_t next_ = 0;
    std::size_t end_;
    std::optional<Error> error_;
};

const char *name_of(Policy policy) noexcept {
    switch (policy) {
    case Policy::sdp: return "sdp";
    case Policy::automatic: return "auto";
    case Policy::tcp: break;
    }
    return "tcp";
}

std::optional<Policy> policy_of(std::string_view name) noexcept {
    for (const Policy policy : {Policy::sdp, Policy::automatic, Policy::tcp}) {
        if (name == name_of(policy))
            return policy;
    }
    return std::nullopt;
}

std::optional<Endpoint> Endpoint::of(const sockaddr *address, socklen_t length) noexcept {
    sa_family_t family = AF_UNSPEC;
    if (address == nullptr || length < sizeof(family))
        return std::nullopt;
    std::memcpy(&family, address, sizeof(family));
    Endpoint endpoint;
    if (family == AF_INET && length >= sizeof(sockaddr_in)) {
        sockaddr_in v4{};
        std::memcpy(&v4, address, sizeof(v4));
        endpoint.port = ntohs(v4.sin_port);
        std::memcpy(endpoint.address.data(), &v4.sin_addr, sizeof(v4.sin_addr));
        return endpoint;
    }
    // The kernel takes an IPv6 address without its scope.
    constexpr socklen_t least = offsetof(sockaddr_in6, sin6_scope_id);
    if (family == AF_INET6 && length >= least) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, address, std::min<std::size_t>(length, sizeof(v6)));
        endpoint.v6 = true;
        endpoint.port = ntohs(v6.sin6_port);
        std::memcpy(endpoint.address.data(), &v6.sin6_addr, sizeof(v6.sin6_addr));
        if (is_mapped(endpoint.address)) {
            unmap(endpoint.address);
            endpoint.v6 = false;
        }
        return endpoint;
    }
    return std::nullopt;
}

std::array<char, endpoint_text> text_of(const Endpoint &endpoint) noexcept {
    std::array<char, INET6_ADDRSTRLEN> address{};
    std::array<char, endpoint_text> text{};
    inet_ntop(endpoint.v6 ? AF_INET6 : AF_INET, endpoint.address.data(), address.data(),
              address.size());
    std::snprintf(text.data(), text.size(), endpoint.v6 ? "[%s]:%u" : "%s:%u", address.data(),
                  static_cast<unsigned>(endpoint.port));
    return text;
}

bool Network::has(const Endpoint &endpoint) const noexcept {
    if (any)
        return true;
    if (v6 != endpoint.v6)
        return false;
    const std::size_t whole = prefix / 8;
    if (!std::equal(address.begin(), address.begin() + static_cast<std::ptrdiff_t>(whole),
                    endpoint.address.begin()))
        return false;
    const unsigned rest = prefix % 8;
    return rest == 0 || ((address[whole] ^ endpoint.address[whole]) >> (8 - rest)) == 0;
}

bool Ports::has(std::uint16_t port) const noexcept {
    return any || (port >= first && port <= last);
}

std::string Error::text() const {
    const std::string place =
        line != 0 ? ":" + std::to_string(line) + ":" + std::to_string(column) : "";
    return file + place + ": " + sentence;
}

bool matches(std::string_view pattern, std::string_view name) noexcept {
    std::size_t p = 0;
    std::size_t n = 0;
    // Behind the last *, and the part of the name that it stands for ends there.
    std::size_t star = std::string_view::npos;
    std::size_t taken = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = ++p;
            taken = n;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
            ++p;
            ++n;
        } else if (star != std::string_view::npos) {
            p = star;
            n = ++taken;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<Error> Rules::add(std::string_view text, const std::string &name, char separator) {
    std::vector<Error> errors;
    std::size_t number = 1;
    std::size_t column = 1;
    while (!text.empty()) {
        const std::array<char, 2> ends{'\n', separator};
        const std::size_t end =
            std::min(text.find_first_of({ends.data(), ends.size()}), text.size());
        Line line{text.substr(0, end), name, number, column};
        statement(line);
        if (line.error())
            errors.push_back(*line.error());
        if (end == text.size())
            break;
        column = text[end] == '\n' ? 1 : column + end + 1;
        number += text[end] == '\n' ? 1 : 0;
        text.remove_prefix(end + 1);
    }
    return errors;
}

std::vector<Error> Rules::add_log(std::string_view text, const std::string &name) {
    Line line{text, name, 1, 1};
    log_settings(line);
    if (line.error())
        return {*line.error()};
    return {};
}

void Rules::statement(Line &line) {
    if (line.left() == 0)
        return;
    const Word word = line.take();
    if (word.text == "use")
        use(line);
    else if (word.text == "log")
        log_settings(line);
    else
        line.fail_at(word, R"(a statement; write "use" or "log")");
}

void Rules::use(Line &line) {
    Rule rule;
    const Word family = line.take();
    if (family.text == "sdp")
        rule.policy = Policy::sdp;
    else if (family.text == "tcp")
        rule.policy = Policy::tcp;
    else if (family.text != "both")
        return line.fail_at(family, "a family: sdp, tcp or both");
    const Word role = line.take();
    if (role.text == "server" || role.text == "listen")
        rule.role = Role::server;
    else if (role.text != "client" && role.text != "connect")
        return line.fail_at(role, "a role: server (or listen), client (or connect)");
    // Without a program the rule is for all of them.
    if (line.left() > 1)
        rule.program = line.take().text;
    const Word place = line.take();
    if (place.text.empty())
        return line.fail_at(place, "ADDRESS:PORT");
    if (std::optional<Trouble> wrong = parse_place(place, rule.network, rule.ports))
        return line.fail(wrong->column, std::move(wrong->sentence));
    if (line.left() != 0)
        return line.fail(line.peek().column, "nothing may follow ADDRESS:PORT");
    rule.where = line.where();
    rule.text = line.text();
    rules_.push_back(std::move(rule));
}

void Rules::log_settings(Line &line) {
    LogSettings settings = log_;
    if (line.left() == 0)
        return line.fail_at(line.peek(), R"("destination" or "min-level")");
    while (line.left() != 0) {
        const Word word = line.take();
        if (word.text == "destination") {
            const Word where = line.take();
            if (where.text == "stderr") {
                settings.destination = LogSettings::Destination::standard_error;
            } else if (where.text == "syslog") {
                settings.destination = LogSettings::Destination::system;
            } else if (where.text == "file") {
                const Word name = line.take();
                if (name.text.empty())
                    return line.fail_at(name, "the name of a file");
                settings.destination = LogSettings::Destination::file;
                settings.file = name.text;
            } else {
                return line.fail_at(where, "a destination: stderr, syslog or file NAME");
            }
        } else if (word.text == "min-level") {
            const Word level = line.take();
            const std::optional<unsigned> value = number_of(level.text, 1, 9);
            if (!value)
                return line.fail_at(level, "a level, 1 to 9");
            settings.min_level = static_cast<int>(*value);
        } else {
            return line.fail_at(word, R"("destination" or "min-level")");
        }
    }
    log_ = std::move(settings);
}

const Rule *Rules::find(Role role, std::string_view program,
                        const Endpoint &endpoint) const noexcept {
    for (const Rule &rule : rules_) {
        if (rule.role == role && matches(rule.program, program) && rule.network.has(endpoint) &&
            rule.ports.has(endpoint.port))
            return &rule;
    }
    return nullptr;
}

bool Rules::may_use_sdp(Role role, std::string_view program, Policy otherwise) const noexcept {
    for (const Rule &rule : rules_) {
        if (rule.role != role || !matches(rule.program, program))
            continue;
        if (rule.policy != Policy::tcp)
            return true;
        // No later rule, and no default, can be reached.
        if (rule.network.any && rule.ports.any)
            return false;
    }
    return otherwise != Policy::tcp;
}

bool Rules::may_use_sdp(std::string_view program, Policy otherwise) const noexcept {
    return may_use_sdp(Role::server, program, otherwise) ||
           may_use_sdp(Role::client, program, otherwise);
}

std::optional<Endpoint> endpoint_of(const std::string &text) {
    Network network;
    Ports ports;
    if (text.empty() || parse_place({text, 1}, network, ports) || network.any || ports.any ||
        ports.first != ports.last || network.prefix != (network.v6 ? v6_bits : v4_bits))
        return std::nullopt;
    return Endpoint{network.v6, network.address, ports.first};
}

} // namespace softwarp::preload
