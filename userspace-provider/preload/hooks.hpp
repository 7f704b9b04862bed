// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What the calls do that interpose.cpp takes over: socket() makes an SDP socket in
// place of a TCP one, and bind(), connect() and listen() set its policy by the rules.
//
// Nothing is kept about descriptors.  The kernel knows what a socket is, so this
// survives fork, exec, dup, descriptors that are passed on and those that are closed
// behind our back; on any other descriptor setting the policy fails and changes nothing.
#ifndef SOFTWARP_PRELOAD_HOOKS_HPP
#define SOFTWARP_PRELOAD_HOOKS_HPP

#include <sys/socket.h>

#include <atomic>
#include <cstdint>

#include "config.hpp"
#include "log.hpp"
#include "real.hpp"
#include "rules.hpp"

namespace softwarp::preload {

class Hooks {
  public:
    Hooks(const Libc &libc, Config config, Log log);

    // Like the calls of the same name, errno included.
    int socket(int domain, int type, int protocol) const noexcept;
    int bind(int fd, const sockaddr *address, socklen_t length) const noexcept;
    // May be left by the cancellation of its thread.
    int connect(int fd, const sockaddr *address, socklen_t length) const;
    int listen(int fd, int backlog) const noexcept;
    int getsockopt(int fd, int level, int name, void *value, socklen_t *length) const noexcept;

    [[nodiscard]] const Config &config() const noexcept { return config_; }

  private:
    struct Choice {
        Policy policy;
        const Rule *rule; // null: the default
    };

    [[nodiscard]] Choice choose(Role role, const Endpoint &endpoint) const noexcept;
    // Whether the socket is SDP's and takes the policy.
    bool set_policy(int fd, Policy policy) const noexcept;
    bool apply(int fd, const Choice &choice, Role role, const Endpoint &endpoint) const noexcept;
    int listen_by_tcp(int fd, int backlog, const Endpoint &endpoint) const noexcept;
    [[nodiscard]] bool is_plain_tcp(int fd) const noexcept;
    void say_connected(int fd, const Endpoint &peer) const noexcept;
    void note_no_sdp(int error) const noexcept;

    const Libc &libc_;
    Config config_;
    Log log_;
    bool enabled_; // whether any socket of the program may use SDP
    // The kernel has refused SDP; in seconds, when to ask again, and whether that was said.
    mutable std::atomic<std::int64_t> retry_at_{0};
    mutable std::atomic_flag said_no_sdp_;
};

} // namespace softwarp::preload

#endif // SOFTWARP_PRELOAD_HOOKS_HPP
