// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "hooks.hpp"

#include <netinet/in.h>
#include <softwarp_sdp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "aside.hpp"
#include "kernel.hpp"

namespace softwarp::preload {
namespace {

// Without the module each attempt makes the kernel start modprobe: seconds until the next.
constexpr std::int64_t retry_after = 10;

std::int64_t now() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec;
}

bool is_tcp_socket(int domain, int type, int protocol) noexcept {
    constexpr int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    return (domain == AF_INET || domain == AF_INET6) && (type & ~flags) == SOCK_STREAM &&
           (protocol == 0 || protocol == IPPROTO_TCP);
}

const char *uses(Policy policy) noexcept {
    switch (policy) {
    case Policy::sdp: return "SDP only";
    case Policy::automatic: return "SDP and TCP";
    case Policy::tcp: break;
    }
    return "TCP only";
}

const char *word_of(Role role) noexcept {
    return role == Role::client ? "connect to" : "listen on";
}

// Whether a program's pointer can be read; the kernel says EFAULT where we would crash.
// It looks at the set of signals before it refuses how to change the mask.
bool is_readable(const void *pointer, std::size_t bytes) noexcept {
    constexpr int no_such_way = -1;
    constexpr std::size_t set = 8; // the kernel's size of a set
    const auto *first = static_cast<const char *>(pointer);
    const auto readable = [](const char *at) {
        return ::syscall(SYS_rt_sigprocmask, no_such_way, at, nullptr, set) == 0 || errno != EFAULT;
    };
    return bytes >= set && readable(first) && readable(first + bytes - set);
}

// The address that a program hands to bind() or connect(), if rules are about such.
std::optional<Endpoint> address_of(const sockaddr *address, socklen_t length) noexcept {
    constexpr socklen_t most = sizeof(sockaddr_in6);
    const Aside aside;
    if (address == nullptr || !is_readable(address, std::min(length, most)))
        return std::nullopt;
    return Endpoint::of(address, length);
}

// What getsockname() or getpeername() says.
std::optional<Endpoint> name_by(int (*call)(int, sockaddr *, socklen_t *), int fd) noexcept {
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    if (call(fd, reinterpret_cast<sockaddr *>(&name), &length) != 0)
        return std::nullopt;
    return Endpoint::of(reinterpret_cast<const sockaddr *>(&name), length);
}

const char *error_name(int error) noexcept {
    const char *name = strerrorname_np(error);
    return name != nullptr ? name : "an unknown error";
}

} // namespace

Hooks::Hooks(const Libc &libc, Config config, Log log)
    : libc_{libc}, config_{std::move(config)}, log_{std::move(log)},
      enabled_{!config_.broken && config_.rules.may_use_sdp(config_.program, config_.policy)} {}

Hooks::Choice Hooks::choose(Role role, const Endpoint &endpoint) const noexcept {
    const Rule *rule = config_.rules.find(role, config_.program, endpoint);
    return {rule != nullptr ? rule->policy : config_.policy, rule};
}

bool Hooks::set_policy(int fd, Policy policy) const noexcept {
    const int value = number_of(policy);
    return libc_.setsockopt(fd, SOL_SDP, SDP_POLICY, &value, sizeof(value)) == 0;
}

bool Hooks::is_plain_tcp(int fd) const noexcept {
    int type = 0;
    int protocol = 0;
    socklen_t length = sizeof(type);
    if (libc_.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM)
        return false;
    length = sizeof(protocol);
    return libc_.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
           protocol == IPPROTO_TCP;
}

bool Hooks::apply(int fd, const Choice &choice, Role role,
                  const Endpoint &endpoint) const noexcept {
    const char *what = word_of(role);
    if (!set_policy(fd, choice.policy)) {
        // EINVAL: connected or listening already, and the program's call will say so.
        if (errno == ENOPROTOOPT && choice.policy == Policy::sdp && is_plain_tcp(fd))
            log_.say(level_error,
                     "%s %s: %s says SDP, but the socket was made for TCP, which it uses", what,
                     text_of(endpoint).data(),
                     choice.rule != nullptr ? choice.rule->where.c_str() : "the default policy");
        return false;
    }
    if (choice.rule != nullptr)
        log_.say(level_match, "%s %s: rule %s, \"%s\"", what, text_of(endpoint).data(),
                 choice.rule->where.c_str(), choice.rule->text.c_str());
    else
        log_.say(level_no_match, "%s %s: no rule, policy %s", what, text_of(endpoint).data(),
                 name_of(choice.policy));
    return true;
}

void Hooks::note_no_sdp(int error) const noexcept {
    if (error == EPROTONOSUPPORT)
        retry_at_.store(now() + retry_after, std::memory_order_relaxed);
    // Once: without the module every socket of the program comes here.
    if (said_no_sdp_.test_and_set(std::memory_order_relaxed))
        return;
    if (error == EPROTONOSUPPORT)
        log_.say(level_warning, "the kernel module softwarp_sdp is not loaded: using TCP");
    else
        log_.say(level_warning, "no SDP socket, %s: using TCP", error_name(error));
}

int Hooks::socket(int domain, int type, int protocol) const noexcept {
    if (!enabled_ || !is_tcp_socket(domain, type, protocol) ||
        now() < retry_at_.load(std::memory_order_relaxed))
        return libc_.socket(domain, type, protocol);
    {
        const Aside aside;
        const int fd = libc_.socket(domain, type, IPPROTO_SDP);
        // Until a rule holds: for programs that connect by other means than connect().
        if (fd >= 0 && set_policy(fd, config_.policy)) {
            log_.say(level_call, "socket(%d, %#x, %d) = %d, SDP", domain,
                     static_cast<unsigned>(type), protocol, fd);
            return fd;
        }
        note_no_sdp(errno);
        if (fd >= 0)
            libc_.close(fd);
    }
    return libc_.socket(domain, type, protocol);
}

int Hooks::bind(int fd, const sockaddr *address, socklen_t length) const noexcept {
    const std::optional<Endpoint> endpoint = enabled_ ? address_of(address, length) : std::nullopt;
    // listen() does the same; this is for programs that listen by other means.
    if (endpoint) {
        const Aside aside;
        set_policy(fd, choose(Role::server, *endpoint).policy);
    }
    return libc_.bind(fd, address, length);
}

void Hooks::say_connected(int fd, const Endpoint &peer) const noexcept {
    sdp_info info{};
    socklen_t length = sizeof(info);
    if (libc_.getsockopt(fd, SOL_SDP, SDP_INFO, &info, &length) != 0)
        return;
    if (info.transport == SDP_INFO_TRANSPORT_SDP)
        log_.say(level_use, "connected with %s: SDP over %.*s", text_of(peer).data(),
                 static_cast<int>(sizeof(info.device)), info.device);
    else if (info.transport == SDP_INFO_TRANSPORT_TCP)
        log_.say(level_use, "connected with %s: TCP, because %s", text_of(peer).data(),
                 sentence_of(info.reason));
}

int Hooks::connect(int fd, const sockaddr *address, socklen_t length) const {
    const std::optional<Endpoint> endpoint = enabled_ ? address_of(address, length) : std::nullopt;
    if (!endpoint)
        return libc_.connect(fd, address, length);
    bool ours = false;
    {
        const Aside aside;
        ours = apply(fd, choose(Role::client, *endpoint), Role::client, *endpoint);
    }
    const int result = libc_.connect(fd, address, length);
    if (ours && log_.wants(level_use)) {
        const Aside aside;
        if (result == 0)
            say_connected(fd, *endpoint);
        else
            log_.say(aside.error() == EINPROGRESS ? level_call : level_use, "connect to %s: %s",
                     text_of(*endpoint).data(), error_name(aside.error()));
    }
    return result;
}

int Hooks::listen(int fd, int backlog) const noexcept {
    std::optional<Endpoint> endpoint;
    Choice choice{config_.policy, nullptr};
    bool ours = false;
    if (enabled_) {
        const Aside aside;
        endpoint = name_by(libc_.getsockname, fd);
        if (endpoint) {
            choice = choose(Role::server, *endpoint);
            ours = apply(fd, choice, Role::server, *endpoint);
        }
    }
    const int result = libc_.listen(fd, backlog);
    if (!ours)
        return result;
    if (result != 0 && choice.policy == Policy::automatic)
        return listen_by_tcp(fd, backlog, *endpoint);
    if (result == 0)
        log_.say(level_use, "listen on %s: %s", text_of(*endpoint).data(), uses(choice.policy));
    return result;
}

// What SDP needs besides TCP may be missing, memory or a second port.
int Hooks::listen_by_tcp(int fd, int backlog, const Endpoint &endpoint) const noexcept {
    const int error = errno;
    {
        const Aside aside;
        set_policy(fd, Policy::tcp);
    }
    const int result = libc_.listen(fd, backlog);
    if (result == 0)
        log_.say(level_warning, "listen on %s: TCP only, because SDP failed with %s",
                 text_of(endpoint).data(), error_name(error));
    return result;
}

int Hooks::getsockopt(int fd, int level, int name, void *value, socklen_t *length) const noexcept {
    const int result = libc_.getsockopt(fd, level, name, value, length);
    // Programs that do not wait in connect() ask so what has become of it.
    if (result == 0 && level == SOL_SOCKET && name == SO_ERROR && enabled_ &&
        log_.wants(level_use) && *length == sizeof(int)) {
        int error = 0;
        std::memcpy(&error, value, sizeof(error));
        const Aside aside;
        const std::optional<Endpoint> peer = name_by(libc_.getpeername, fd);
        if (error == 0 && peer)
            say_connected(fd, *peer);
    }
    return result;
}

} // namespace softwarp::preload
