// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A test that hangs would say nothing before the guest is stopped, so that nobody would
 * know which it was.  After SOCKETS_TEST_LIMIT seconds, 300 if it is not set, this tells
 * the test's name and where in the kernel each of its threads is, and ends the program.
 */
#include <array>
#include <csignal>
#include <cstdlib>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace softwarp::sockets {

namespace {

std::string running;

void say(const std::string &text) {
    [[maybe_unused]] ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
}

void tell(const std::string &path) {
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    std::array<char, 4096> text{};
    ssize_t n = ::read(fd, text.data(), text.size());
    ::close(fd);
    if (n > 0)
        say(path + ":\n" + std::string(text.data(), static_cast<size_t>(n)) + "\n");
}

/* What a handler must not call does not matter any more: the program ends here, or hangs on. */
void give_up(int /*signal*/) {
    // if this hangs, too
    sigset_t alarms;
    ::sigemptyset(&alarms);
    ::sigaddset(&alarms, SIGALRM);
    std::signal(SIGALRM, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
    ::alarm(10);
    say("\nsoftwarp-sockets: " + running + " takes too long; its threads:\n");
    DIR *tasks = ::opendir("/proc/self/task");
    while (const dirent *task = tasks ? ::readdir(tasks) : nullptr) {
        if (task->d_name[0] == '.')
            continue;
        for (const char *file : {"comm", "syscall", "stack"})
            tell(std::string("/proc/self/task/") + task->d_name + "/" + file);
    }
    tell("/proc/net/softwarp_sdp");
    ::_exit(1);
}

class Stuck : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo &test) override {
        const char *limit = std::getenv("SOCKETS_TEST_LIMIT");
        running = std::string(test.test_suite_name()) + "." + test.name();
        std::signal(SIGALRM, give_up);
        ::alarm(limit ? static_cast<unsigned>(std::strtoul(limit, nullptr, 10)) : 300);
    }
    void OnTestEnd(const testing::TestInfo & /*test*/) override { ::alarm(0); }
};

[[maybe_unused]] const bool listens = [] {
    testing::UnitTest::GetInstance()->listeners().Append(new Stuck);
    return true;
}();

} // namespace

} // namespace softwarp::sockets
