// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Ends: shutdown, close, resets, and who learns of them
 */
#include <cerrno>
#include <csignal>
#include <fstream>
#include <list>
#include <sstream>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "kinds.hpp"
#include "seen.hpp"

namespace softwarp::sockets {

namespace {

/* RSTs that TCP has sent for a connection or in answer to a packet, in this namespace */
long resets_sent() {
    std::ifstream file("/proc/net/snmp");
    std::string names, values;
    while (std::getline(file, names) && std::getline(file, values)) {
        if (names.rfind("Tcp:", 0) != 0)
            continue;
        std::istringstream name(names), value(values);
        std::string label, number;
        while (name >> label && value >> number)
            if (label == "OutRsts")
                return std::stol(number);
    }
    ADD_FAILURE() << "/proc/net/snmp has no OutRsts";
    return 0;
}

} // namespace

SUITE(Close);

TEST_P(Close, EndOfStream) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(70000)));
    p.here.reset();
    EXPECT_EQ(receive(p.there, 100000), pattern(70000));
    char c;
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), 0);
}

TEST_P(Close, HalfClosedGoesOn) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    char c;
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    ASSERT_TRUE(send_all(p.there, pattern(50000)));
    EXPECT_EQ(receive(p.here, 50000), pattern(50000));
    EXPECT_EQ(ERRNO_OF(::send(p.here.get(), &c, 1, 0)), EPIPE);
    p.there.reset();
    EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 0);
}

TEST_P(Close, ShutdownTwice) {
    Pair p = connected();
    EXPECT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(::shutdown(p.here.get(), SHUT_RD), 0);
    EXPECT_EQ(ERRNO_OF(::shutdown(p.here.get(), 7)), EINVAL);
}

TEST_P(Close, ShutdownOfReading) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_RD), 0);
    char c;
    EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 0);
    EXPECT_EQ(events(p.here, POLLIN | POLLRDHUP | POLLOUT), POLLIN | POLLRDHUP | POLLOUT);
    /* it is local: the peer goes on, and what comes can be read */
    ASSERT_TRUE(send_all(p.there, pattern(10)));
    EXPECT_TRUE(eventually([&] { return ::recv(p.here.get(), &c, 1, MSG_DONTWAIT) == 1; }));
}

TEST_P(Close, Pipe) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGPIPE, SIG_DFL);
        ::send(p.here.get(), "x", 1, MSG_NOSIGNAL);
        ::send(p.here.get(), "x", 1, 0);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGPIPE);
}

TEST_P(Close, UnreadIsAReset) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.there, pattern(10)));
    ASSERT_EQ(events(p.here, POLLIN, 10000), POLLIN);
    p.here.reset();
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, 0)), ECONNRESET);
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    EXPECT_EQ(ERRNO_OF(::send(p.there.get(), &c, 1, 0)), EPIPE);
    EXPECT_EQ(events(p.there, POLLIN | POLLOUT | POLLRDHUP),
              POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
}

TEST_P(Close, LingerZeroIsAReset) {
    Pair p = connected();
    linger lg{1, 0};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
    p.here.reset();
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, 0)), ECONNRESET);
}

/* A peer on the same machine may count on it, as with TCP. */
TEST_P(Close, ResetHasLeftWhenCloseReturns) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    const linger lg{1, 0};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
    const long before = resets_sent();
    p.here.reset();
    /* RoCE has none; there it is an event of the CM */
    if (std::string(GetParam().name).rfind("roce", 0) != 0) {
        EXPECT_GT(resets_sent(), before);
    }
    EXPECT_EQ(receive(p.there, 100), pattern(100));
}

TEST_P(Close, ResetWakesReader) {
    Pair p = connected();
    linger lg{1, 0};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
    int err = 0;
    std::thread reads([&] {
        char c;
        err = ERRNO_OF(::recv(p.there.get(), &c, 1, 0));
    });
    usleep(20000);
    p.here.reset();
    reads.join();
    EXPECT_EQ(err, ECONNRESET);
}

TEST_P(Close, ResetIsAnError) {
    Pair p = connected();
    linger lg{1, 0};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return (events(p.there, POLLIN) & POLLERR) != 0; }));
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), ECONNRESET);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), 0);
    Address a;
    a.len = sizeof(a.storage);
    EXPECT_EQ(ERRNO_OF(::getpeername(p.there.get(), a.get(), &a.len)), ENOTCONN);
}

TEST_P(Close, ToOneThatHasClosed) {
    Pair p = connected();
    p.here.reset();
    char c;
    ASSERT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    /* the first one finds out */
    EXPECT_EQ(::send(p.there.get(), "x", 1, 0), 1);
    EXPECT_TRUE(eventually([&] { return ERRNO_OF(::send(p.there.get(), "x", 1, 0)) != 0; }));
    EXPECT_EQ(ERRNO_OF(::send(p.there.get(), "x", 1, 0)), EPIPE);
}

TEST_P(Close, ShutdownWakesReader) {
    Pair p = connected();
    ssize_t ret = -1;
    std::thread reads([&] {
        char c;
        ret = ::recv(p.here.get(), &c, 1, 0);
    });
    usleep(20000);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_RDWR), 0);
    reads.join();
    EXPECT_EQ(ret, 0);
}

TEST_P(Close, Killed) {
    Fd l = listener();
    Address a = name_of(l);
    pid_t child = ::fork();
    if (child == 0) {
        Fd here = make();
        if (::connect(here.get(), a.get(), a.len) == 0)
            send_all(here, pattern(100000));
        ::pause();
        ::_exit(0);
    }
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    EXPECT_EQ(receive(there, 100000), pattern(100000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    char c;
    EXPECT_EQ(::recv(there.get(), &c, 1, 0), 0);
}

TEST_P(Close, InheritedDescriptor) {
    Pair p = connected();
    pid_t child = ::fork();
    if (child == 0) {
        send_all(p.here, pattern(1000));
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(receive(p.there, 1000), pattern(1000));
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(receive(p.there, 10), pattern(10));
}

TEST_P(Close, Lingers) {
    Pair p = connected();
    linger lg{1, 20};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
    std::vector<uint8_t> got;
    std::thread reads([&] { got = receive(p.there, 200000); });
    ASSERT_TRUE(send_all(p.here, pattern(200000)));
    p.here.reset();
    reads.join();
    EXPECT_EQ(got, pattern(200000));
}

TEST_P(Close, WhileConnecting) {
    Fd l = listener(64);
    Address a = name_of(l);
    for (int i = 0; i < 20; i++) {
        Fd here = make(SOCK_NONBLOCK);
        ASSERT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EINPROGRESS);
        usleep(static_cast<useconds_t>(i) * 100);
    }
    /* the listener is as good as before */
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
}

TEST_P(Close, PortIsFreeAgain) {
    Address a;
    {
        Fd l = listener();
        a = name_of(l);
    }
    Fd l = make();
    EXPECT_EQ(ERRNO_OF(::bind(l.get(), a.get(), a.len)), 0);
    EXPECT_EQ(ERRNO_OF(::listen(l.get(), 1)), 0);
}

TEST_P(Close, Crossing) {
    for (int i = 0; i < 50; i++) {
        Pair p = connected();
        ssize_t there = -1;
        std::thread other([&] {
            ::shutdown(p.there.get(), SHUT_WR);
            char c;
            there = ::recv(p.there.get(), &c, 1, 0);
            if (there < 0)
                there = -errno;
        });
        ::shutdown(p.here.get(), SHUT_WR);
        char c;
        EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 0) << errno;
        other.join();
        EXPECT_EQ(there, 0);
    }
}

/* Who looks all the time does not see the end before what was sent last. */
TEST_P(Close, OctetsComeBeforeTheEnd) {
    for (int i = 0; i < 60; i++) {
        Pair p = connected();
        std::thread other([&] {
            EXPECT_EQ(::send(p.there.get(), "x", 1, 0), 1);
            p.there.reset();
        });
        char c = 0;
        ssize_t ret;
        do
            ret = ::recv(p.here.get(), &c, 1, MSG_DONTWAIT);
        while (ret < 0 && errno == EAGAIN);
        EXPECT_EQ(ret, 1);
        EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 0);
        other.join();
    }
}

/*
 * The end of a connection is told to the peer, which waits for it.  With rdma_cm all of a
 * short connection can be over before its own messages have arrived.
 */
TEST_P(Close, ShortOnesLeaveAtOnce) {
    Fd l = listener(64);
    std::string port = ":" + std::to_string(name_of(l).port()) + " ";
    Counters before = counters();
    std::list<Call> clients;
    constexpr int kThreads = 6, kEach = 20;
    for (int i = 0; i < kThreads; i++)
        clients.emplace_back([&] {
            for (int j = 0; j < kEach; j++) {
                Fd here = dial(name_of(l));
                if (!here || ::send(here.get(), "x", 1, 0) != 1)
                    return errno;
            }
            return 0;
        });
    for (int i = 0; i < kThreads * kEach; i++) {
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        EXPECT_EQ(receive(there, 2).size(), 1U);
    }
    for (Call &client : clients)
        EXPECT_EQ(client.ret(), 0);
    EXPECT_TRUE(eventually([&] {
        std::ifstream file("/proc/net/softwarp_sdp");
        std::string line;
        while (std::getline(file, line))
            if (line.find(port) != std::string::npos && line.find(" listen ") == std::string::npos)
                return false;
        return true;
    }));
    for (const char *name : {"close_timeouts", "orphan_timeouts"})
        EXPECT_EQ(counters()[name], before.at(name)) << name;
}

} // namespace softwarp::sockets
