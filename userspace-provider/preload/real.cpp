// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "real.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

void *softwarp_real_syscall = nullptr;

namespace softwarp::preload {
namespace {

// One entry point.  Two threads may both look it up; they find the same.
template<class Function>
class Entry {
  public:
    explicit constexpr Entry(const char *name) noexcept : name_{name} {}

    Function *resolve() noexcept {
        Function *found = found_.load(std::memory_order_relaxed);
        if (found == nullptr) {
            const int saved = errno;
            found = reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name_));
            errno = saved;
            found_.store(found, std::memory_order_relaxed);
        }
        return found;
    }

    // Not noexcept: a thread in connect() may be cancelled, which unwinds.
    template<class... Args>
    int call(Args... args) {
        Function *found = resolve();
        if (found == nullptr) {
            errno = ENOSYS;
            return -1;
        }
        return found(args...);
    }

  private:
    const char *name_;
    std::atomic<Function *> found_{nullptr};
};

constinit Entry<int(int, int, int)> socket_entry{"socket"};
constinit Entry<int(int, const sockaddr *, socklen_t)> bind_entry{"bind"};
constinit Entry<int(int, const sockaddr *, socklen_t)> connect_entry{"connect"};
constinit Entry<int(int, int)> listen_entry{"listen"};
constinit Entry<int(int, int, int, void *, socklen_t *)> getsockopt_entry{"getsockopt"};

} // namespace

const Libc real{
    .socket = [](int domain, int type,
                 int protocol) { return socket_entry.call(domain, type, protocol); },
    .bind = [](int fd, const sockaddr *address,
               socklen_t length) { return bind_entry.call(fd, address, length); },
    .connect = [](int fd, const sockaddr *address,
                  socklen_t length) { return connect_entry.call(fd, address, length); },
    .listen = [](int fd, int backlog) { return listen_entry.call(fd, backlog); },
    .getsockopt =
        [](int fd, int level, int name, void *value, socklen_t *length) {
            return getsockopt_entry.call(fd, level, name, value, length);
        },
    // These are not taken over.
    .setsockopt = ::setsockopt,
    .getsockname = ::getsockname,
    .getpeername = ::getpeername,
    .close = ::close,
};

void resolve_all() noexcept {
    socket_entry.resolve();
    bind_entry.resolve();
    connect_entry.resolve();
    listen_entry.resolve();
    getsockopt_entry.resolve();
    if (softwarp_real_syscall == nullptr)
        softwarp_real_syscall = dlsym(RTLD_NEXT, "syscall");
}

} // namespace softwarp::preload
