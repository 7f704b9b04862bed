// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/system.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace softwarp::e2e {

namespace {

std::string env_or(const char *name, const char *otherwise) {
    const char *value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

bool env_flag(const char *name) {
    return env_or(name, "0") != "0";
}

} // namespace

const Config &config() {
    static const Config instance{
        .dev = env_or("SOFTWARP_E2E_DEV", "sw0"),
        .peer_dev = env_or("SOFTWARP_E2E_PEER_DEV", "sw1"),
        .lo_dev = env_or("SOFTWARP_E2E_LO_DEV", "swlo"),
        .addr4 = env_or("SOFTWARP_E2E_ADDR4", "10.77.0.1"),
        .addr6 = env_or("SOFTWARP_E2E_ADDR6", "fd77::1"),
        .peer_addr4 = env_or("SOFTWARP_E2E_PEER_ADDR4", "10.77.0.2"),
        .peer_addr6 = env_or("SOFTWARP_E2E_PEER_ADDR6", "fd77::2"),
        .peer_ns = env_or("SOFTWARP_E2E_PEER_NS", "peer"),
        .link_type = env_or("SOFTWARP_E2E_TYPE", "softwarp"),
        .scale = std::stod(env_or("SOFTWARP_E2E_SCALE", "1")),
        .quick = env_flag("SOFTWARP_E2E_QUICK"),
        .unload = env_flag("SOFTWARP_E2E_UNLOAD"),
    };
    return instance;
}

bool kernel_before(unsigned major, unsigned minor) {
    utsname name{};
    unsigned has_major = 0, has_minor = 0;
    require(uname(&name) == 0 && std::sscanf(name.release, "%u.%u", &has_major, &has_minor) == 2,
            "uname");
    return std::pair(has_major, has_minor) < std::pair(major, minor);
}

bool threads_take_turns() {
    /* no other kernel has this file, and the harness replaces what /proc/cpuinfo says */
    return access("/proc/exitcode", F_OK) == 0;
}

void fail(std::string_view what, std::source_location where) {
    std::string_view file = where.file_name();
    file = file.substr(file.rfind('/') + 1);
    throw Failure(fmt::format("{} ({}:{})", what, file, where.line()));
}

void require(bool holds, std::string_view what, std::source_location where) {
    if (holds)
        return;
    int error = errno;
    fail(fmt::format("{}: {}", what, errno_name(error)), where);
}

std::string errno_name(int error) {
    const char *name = strerrorname_np(error);
    return fmt::format("{} ({})", name != nullptr ? name : "?", error);
}

Deadline::Deadline(milliseconds limit)
    : end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<milliseconds>(limit * config().scale)) {}

bool Deadline::passed() const {
    return std::chrono::steady_clock::now() >= end_;
}

int Deadline::left_ms() const {
    auto left = std::chrono::duration_cast<milliseconds>(end_ - std::chrono::steady_clock::now());
    return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

bool eventually(const std::function<bool()> &holds, Deadline deadline) {
    for (;;) {
        bool last = deadline.passed();
        if (holds())
            return true;
        if (last)
            return false;
        std::this_thread::sleep_for(milliseconds(5));
    }
}

ShellResult shell(const std::string &command, Deadline deadline) {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    Fd output(ends[0]);
    Fd input(ends[1]);

    pid_t pid = fork();
    require(pid >= 0, "fork");
    if (pid == 0) {
        setpgid(0, 0);
        int null = open("/dev/null", O_RDONLY);
        dup2(null, STDIN_FILENO);
        dup2(input.get(), STDOUT_FILENO);
        dup2(input.get(), STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
        _exit(127);
    }
    input.reset();

    ShellResult result{};
    char chunk[4096];
    for (;;) {
        pollfd waiting{output.get(), POLLIN, 0};
        int ready = poll(&waiting, 1, deadline.left_ms());
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            /* Not waited for: it may be stuck in the kernel. */
            result.status = -1;
            result.output += "[command hung]";
            return result;
        }
        ssize_t got = read(output.get(), chunk, sizeof(chunk));
        if (got <= 0)
            break;
        result.output.append(chunk, static_cast<size_t>(got));
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

std::string must_shell(const std::string &command, std::source_location where) {
    ShellResult result = shell(command);
    if (result.status != 0)
        fail(fmt::format("'{}' gave {}: {}", command, result.status, result.output), where);
    return result.output;
}

void enter_namespace(const std::string &ns) {
    if (ns.empty())
        return;
    std::string path = "/run/netns/" + ns;
    Fd handle(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    require(handle.get() >= 0, "open " + path);
    require(setns(handle.get(), CLONE_NEWNET) == 0, "setns " + path);
}

void in_namespace(const std::string &ns, const std::function<void()> &fn) {
    if (ns.empty()) {
        fn();
        return;
    }
    std::exception_ptr error;
    std::thread inside([&] {
        try {
            enter_namespace(ns);
            fn();
        } catch (...) {
            error = std::current_exception();
        }
    });
    inside.join();
    if (error)
        std::rethrow_exception(error);
}

OneProcessor::OneProcessor(bool another) {
    require(sched_getaffinity(0, sizeof(before_), &before_) == 0, "sched_getaffinity");
    auto at = static_cast<size_t>(sched_getcpu());
    /* which the thread need not be allowed to use so far */
    if (another)
        at = (at + 1) % static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    require(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
}

OneProcessor::~OneProcessor() {
    sched_setaffinity(0, sizeof(before_), &before_);
}

Fd &Fd::operator=(Fd &&other) noexcept {
    if (this != &other) {
        reset();
        fd_ = other.release();
    }
    return *this;
}

Fd::~Fd() {
    reset();
}

int Fd::release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
}

void Fd::reset() {
    if (fd_ >= 0)
        close(fd_);
    fd_ = -1;
}

} // namespace softwarp::e2e
