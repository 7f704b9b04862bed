// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The C library's own entry points behind the names that interpose.cpp takes
// over, and the calls that the hooks make themselves.  Each name is resolved once;
// after that a call takes no lock, so that a child of fork() cannot hang.
#ifndef SOFTWARP_PRELOAD_REAL_HPP
#define SOFTWARP_PRELOAD_REAL_HPP

#include <sys/socket.h>

namespace softwarp::preload {

// A table, so that unit tests can put a fake in its place.
struct Libc {
    int (*socket)(int domain, int type, int protocol);
    int (*bind)(int fd, const sockaddr *address, socklen_t length);
    int (*connect)(int fd, const sockaddr *address, socklen_t length);
    int (*listen)(int fd, int backlog);
    int (*getsockopt)(int fd, int level, int name, void *value, socklen_t *length);
    int (*setsockopt)(int fd, int level, int name, const void *value, socklen_t length);
    int (*getsockname)(int fd, sockaddr *address, socklen_t *length);
    int (*getpeername)(int fd, sockaddr *address, socklen_t *length);
    int (*close)(int fd);
};

// The next definitions in the order of search: libc's, or another preload library's.
extern const Libc real;

// Resolves all of them; what is called earlier resolves itself.
void resolve_all() noexcept;

} // namespace softwarp::preload

// syscall() has any number of arguments, so interpose.cpp jumps to it with the
// registers as they came.  Null until resolve_all().
extern "C" __attribute__((visibility("hidden"))) void *softwarp_real_syscall;

#endif // SOFTWARP_PRELOAD_REAL_HPP
