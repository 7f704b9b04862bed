// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The language of libsdp.conf: which sockets of which programs use SDP, TCP, or
// SDP where the peer has it.  Pure: text in, decisions out.
//
//     use sdp|tcp|both server|listen|client|connect [PROGRAM] ADDRESS[/PREFIX]:PORTS
//     log [destination stderr|syslog|file NAME] [min-level 1-9]
#ifndef SOFTWARP_PRELOAD_RULES_HPP
#define SOFTWARP_PRELOAD_RULES_HPP

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace softwarp::preload {

// The kernel's policies, enum sdp_info_policy.  In rules automatic is "both".
enum class Policy { sdp, automatic, tcp };

enum class Role { server, client };

// "auto", "sdp" or "tcp", as options and messages name policies.
[[nodiscard]] const char *name_of(Policy policy) noexcept;
[[nodiscard]] std::optional<Policy> policy_of(std::string_view name) noexcept;

// An address and a port.  An IPv4 address in its IPv6 form counts as IPv4.
struct Endpoint {
    bool v6 = false;
    std::array<std::uint8_t, 16> address{}; // IPv4: the first four octets
    std::uint16_t port = 0;

    // Nothing if it is not a whole address of AF_INET or AF_INET6.
    [[nodiscard]] static std::optional<Endpoint> of(const sockaddr *address,
                                                    socklen_t length) noexcept;
};

constexpr std::size_t endpoint_text = 64;
// "10.0.0.1:80" or "[fd00::1]:80"
[[nodiscard]] std::array<char, endpoint_text> text_of(const Endpoint &endpoint) noexcept;

struct Network {
    bool any = true;
    bool v6 = false;
    std::array<std::uint8_t, 16> address{};
    unsigned prefix = 0;

    [[nodiscard]] bool has(const Endpoint &endpoint) const noexcept;
};

// `any` also matches a port that is not known yet, 0.
struct Ports {
    bool any = true;
    std::uint16_t first = 0;
    std::uint16_t last = 0;

    [[nodiscard]] bool has(std::uint16_t port) const noexcept;
};

struct Rule {
    Policy policy = Policy::automatic;
    Role role = Role::client;
    std::string program = "*";
    Network network;
    Ports ports;
    std::string where; // FILE:LINE
    std::string text;  // as it was written
};

struct LogSettings {
    enum class Destination { standard_error, system, file };

    Destination destination = Destination::standard_error;
    std::string file;
    int min_level = 9;
};

struct Error {
    std::string file;
    std::size_t line = 0; // from 1; 0: the file as a whole
    std::size_t column = 0;
    std::string sentence;

    // FILE:LINE:COLUMN: sentence
    [[nodiscard]] std::string text() const;
};

// Whether a name matches a pattern in which * stands for any characters and ?
// for one.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name) noexcept;

class Rules {
  public:
    // Adds the statements of a text, behind those that are there.  Returns the
    // errors, at most one for each statement; a statement with an error adds nothing.
    // With @separator a character ends a statement as the end of a line does.
    std::vector<Error> add(std::string_view text, const std::string &name, char separator = '\n');
    // Adds what may follow the word "log" in a statement.
    std::vector<Error> add_log(std::string_view text, const std::string &name);

    // The first rule that matches; null if none does.
    [[nodiscard]] const Rule *find(Role role, std::string_view program,
                                   const Endpoint &endpoint) const noexcept;
    // Whether a socket of the program can end with another policy than TCP, if
    // @otherwise is the policy of sockets without a rule.
    [[nodiscard]] bool may_use_sdp(std::string_view program, Policy otherwise) const noexcept;

    [[nodiscard]] const std::vector<Rule> &rules() const noexcept { return rules_; }
    [[nodiscard]] const LogSettings &log() const noexcept { return log_; }

  private:
    class Line;

    void statement(Line &line);
    void use(Line &line);
    void log_settings(Line &line);
    [[nodiscard]] bool may_use_sdp(Role role, std::string_view program,
                                   Policy otherwise) const noexcept;

    std::vector<Rule> rules_;
    LogSettings log_;
};

// "ADDRESS:PORT" with a literal address, as rules write it; for sdp_run --check.
[[nodiscard]] std::optional<Endpoint> endpoint_of(const std::string &text);

} // namespace softwarp::preload

#endif // SOFTWARP_PRELOAD_RULES_HPP
