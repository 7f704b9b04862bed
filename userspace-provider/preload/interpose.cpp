// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The symbols that the preload library exports, and its one object.  The program's
// calls of these names come here first; hooks.cpp decides.
#include <sys/socket.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "aside.hpp"
#include "config.hpp"
#include "hooks.hpp"
#include "log.hpp"
#include "real.hpp"

namespace softwarp::preload {
namespace {

// Made once and never freed: threads and exit handlers may call until the very end.
constinit std::atomic<const Hooks *> instance{nullptr};

const Hooks *make() noexcept {
    const Aside aside;
    const Hooks *found = nullptr;
    try {
        // A program with more rights than its user must not be led by the user's variables.
        Loaded loaded = load(::secure_getenv, program_invocation_short_name);
        const Log log{loaded.config.rules.log(), loaded.config.program};
        auto fresh = std::make_unique<const Hooks>(real, std::move(loaded.config), log);
        // Two threads may come here at once; a lock would be one that fork() can leave locked.
        if (instance.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) {
            found = fresh.release();
            for (const Error &error : loaded.errors)
                log.say(level_error, "%s", error.text().c_str());
            if (!loaded.errors.empty())
                log.say(level_error, "because of this, all sockets of this program use TCP");
        }
    } catch (...) {
        // Without memory this call uses TCP.  The next one tries again.
        found = nullptr;
    }
    return found;
}

const Hooks *hooks() noexcept {
    // pairs with the release in make()
    const Hooks *found = instance.load(std::memory_order_acquire);
    return found != nullptr ? found : make();
}

// Before main(), so that nothing of this is left to do in a child of vfork() or in a
// program that has given up its rights.
[[gnu::constructor]] void load_early() noexcept {
    resolve_all();
    hooks();
}

} // namespace
} // namespace softwarp::preload

using softwarp::preload::Hooks;
using softwarp::preload::hooks;
using softwarp::preload::real;

#define SOFTWARP_EXPORT extern "C" __attribute__((visibility("default")))

SOFTWARP_EXPORT int socket(int domain, int type, int protocol) noexcept {
    const Hooks *mine = hooks();
    return mine != nullptr ? mine->socket(domain, type, protocol)
                           : real.socket(domain, type, protocol);
}

SOFTWARP_EXPORT int bind(int fd, const sockaddr *addr, socklen_t len) noexcept {
    const Hooks *mine = hooks();
    return mine != nullptr ? mine->bind(fd, addr, len) : real.bind(fd, addr, len);
}

// Not noexcept: a thread that waits here may be cancelled, which unwinds like an exception.
SOFTWARP_EXPORT int connect(int fd, const sockaddr *addr, socklen_t len) {
    const Hooks *mine = hooks();
    return mine != nullptr ? mine->connect(fd, addr, len) : real.connect(fd, addr, len);
}

SOFTWARP_EXPORT int listen(int fd, int n) noexcept {
    const Hooks *mine = hooks();
    return mine != nullptr ? mine->listen(fd, n) : real.listen(fd, n);
}

SOFTWARP_EXPORT int getsockopt(int fd, int level, int optname, void *optval,
                               socklen_t *optlen) noexcept {
    const Hooks *mine = hooks();
    return mine != nullptr ? mine->getsockopt(fd, level, optname, optval, optlen)
                           : real.getsockopt(fd, level, optname, optval, optlen);
}

#ifdef __x86_64__

// Calls of syscall() that are ours, by the numbers below.
extern "C" __attribute__((visibility("hidden"))) long softwarp_syscall(long number, long first,
                                                                       long second, long third) {
    const int fd = static_cast<int>(first);
    switch (number) {
    case SYS_socket: return socket(fd, static_cast<int>(second), static_cast<int>(third));
    case SYS_listen: return listen(fd, static_cast<int>(second));
    case SYS_bind:
        // NOLINTNEXTLINE(performance-no-int-to-ptr): arguments of system calls are numbers
        return bind(fd, reinterpret_cast<const sockaddr *>(second), static_cast<socklen_t>(third));
    default:
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        return connect(fd, reinterpret_cast<const sockaddr *>(second),
                       static_cast<socklen_t>(third));
    }
}

extern "C" __attribute__((visibility("hidden"))) void softwarp_resolve() noexcept {
    softwarp::preload::resolve_all();
}

static_assert(SYS_socket == 41 && SYS_connect == 42 && SYS_bind == 49 && SYS_listen == 50);

// All other calls jump to libc with every register and the stack as they came: there may
// be six arguments or none, and some of these calls return twice, or on another stack.
asm(R"(
	.pushsection .text
	.globl	syscall
	.type	syscall, @function
syscall:
	.cfi_startproc
	endbr64
	cmpq	$41, %rdi
	je	1f
	cmpq	$42, %rdi
	je	1f
	cmpq	$49, %rdi
	je	1f
	cmpq	$50, %rdi
	je	1f
	movq	softwarp_real_syscall(%rip), %rax
	testq	%rax, %rax
	je	2f
	jmpq	*%rax
1:	jmp	softwarp_syscall
	# before our constructor has run
2:	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	pushq	%rcx
	.cfi_adjust_cfa_offset 8
	pushq	%r8
	.cfi_adjust_cfa_offset 8
	pushq	%r9
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	softwarp_resolve
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r9
	.cfi_adjust_cfa_offset -8
	popq	%r8
	.cfi_adjust_cfa_offset -8
	popq	%rcx
	.cfi_adjust_cfa_offset -8
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	jmpq	*softwarp_real_syscall(%rip)
	.cfi_endproc
	.size	syscall, . - syscall
	.popsection
)");

#endif
