// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Being told: poll, epoll, signals
 */
#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Ready);

TEST_P(Ready, Connected) {
    Pair p = connected();
    EXPECT_EQ(events(p.here, POLLIN | POLLOUT | POLLPRI | POLLRDHUP), POLLOUT);
    EXPECT_EQ(events(p.there, POLLIN | POLLOUT | POLLPRI | POLLRDHUP), POLLOUT);
}

TEST_P(Ready, Readable) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    receive(p.there, 1);
    EXPECT_EQ(events(p.there, POLLIN), 0);
}

TEST_P(Ready, PeerHalfClosed) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    EXPECT_EQ(events(p.there, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
    EXPECT_EQ(events(p.here, POLLIN | POLLOUT | POLLRDHUP), POLLOUT);
}

TEST_P(Ready, BothClosed) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    ASSERT_EQ(::shutdown(p.there.get(), SHUT_WR), 0);
    EXPECT_TRUE(eventually([&] {
        return events(p.there, POLLIN | POLLOUT | POLLRDHUP) ==
               (POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
    }));
    EXPECT_TRUE(eventually([&] {
        return events(p.here, POLLIN | POLLOUT | POLLRDHUP) ==
               (POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
    }));
}

TEST_P(Ready, EpollBeforeConnect) {
    Fd l = listener();
    Address a = name_of(l);
    Fd here = make(SOCK_NONBLOCK);
    Epoll e(here, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    EXPECT_EQ(e.wait(0), EPOLLOUT | EPOLLHUP);
    ASSERT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EINPROGRESS);
    EXPECT_EQ(e.wait(10000), static_cast<uint32_t>(EPOLLOUT));
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(there, pattern(1)));
    EXPECT_EQ(e.wait(10000), static_cast<uint32_t>(EPOLLIN | EPOLLOUT));
    there.reset();
    EXPECT_EQ(e.wait(10000), static_cast<uint32_t>(EPOLLIN | EPOLLOUT | EPOLLRDHUP));
}

TEST_P(Ready, EdgePerArrival) {
    Pair p = connected();
    Epoll e(p.there, EPOLLIN | EPOLLET);
    EXPECT_EQ(e.wait(0), 0U);
    for (int i = 0; i < 3; i++) {
        ASSERT_TRUE(send_all(p.here, pattern(1)));
        /* the first octet is still there */
        EXPECT_EQ(e.wait(10000), static_cast<uint32_t>(EPOLLIN));
        EXPECT_EQ(e.wait(0), 0U);
    }
}

TEST_P(Ready, EdgeOfRoom) {
    Pair p = connected();
    set_nonblocking(p.here);
    std::vector<uint8_t> block = pattern(16384);
    size_t sent = 0;
    Epoll e(p.here, EPOLLOUT | EPOLLET);
    EXPECT_EQ(e.wait(0), static_cast<uint32_t>(EPOLLOUT));
    for (;;) {
        ssize_t ret = ::send(p.here.get(), block.data(), block.size(), 0);
        if (ret > 0)
            sent += static_cast<size_t>(ret);
        else if (e.wait(100) == 0)
            break;
    }
    size_t got = 0;
    std::thread reads([&] { got = receive(p.there, sent).size(); });
    EXPECT_EQ(e.wait(20000), static_cast<uint32_t>(EPOLLOUT));
    reads.join();
    EXPECT_EQ(got, sent);
}

TEST_P(Ready, Listener) {
    Fd l = listener();
    Epoll e(l, EPOLLIN | EPOLLET);
    EXPECT_EQ(e.wait(0), 0U);
    Address a = name_of(l);
    Fd one = make(), two = make();
    ASSERT_EQ(::connect(one.get(), a.get(), a.len), 0);
    EXPECT_EQ(e.wait(10000), static_cast<uint32_t>(EPOLLIN));
    ASSERT_EQ(::connect(two.get(), a.get(), a.len), 0);
    EXPECT_EQ(e.wait(10000), static_cast<uint32_t>(EPOLLIN));
}

TEST_P(Ready, WakesReader) {
    Pair p = connected();
    for (int i = 0; i < 50; i++) {
        char c = 0;
        std::thread reads([&] { EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 1); });
        if (i % 2 == 0)
            usleep(1000);
        EXPECT_EQ(::send(p.here.get(), "z", 1, 0), 1);
        reads.join();
        EXPECT_EQ(c, 'z');
    }
}

static std::atomic<int> ios;

TEST_P(Ready, SignalOfInput) {
    Pair p = connected();
    ios = 0;
    struct sigaction act = {};
    act.sa_handler = [](int) { ios++; };
    ASSERT_EQ(::sigaction(SIGIO, &act, nullptr), 0);
    ASSERT_EQ(::fcntl(p.there.get(), F_SETOWN, ::getpid()), 0);
    ASSERT_EQ(::fcntl(p.there.get(), F_SETFL, ::fcntl(p.there.get(), F_GETFL) | O_ASYNC), 0);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_TRUE(eventually([] { return ios > 0; }));
    std::signal(SIGIO, SIG_IGN);
}

TEST_P(Ready, Interrupted) {
    Pair p = connected();
    struct sigaction act = {};
    act.sa_handler = [](int) {};
    ASSERT_EQ(::sigaction(SIGUSR1, &act, nullptr), 0);
    std::atomic<int> err = 0;
    pthread_t self = ::pthread_self();
    std::atomic<bool> done = false;
    std::thread kills([&] {
        while (!done) {
            usleep(10000);
            ::pthread_kill(self, SIGUSR1);
        }
    });
    char c;
    err = ERRNO_OF(::recv(p.there.get(), &c, 1, 0));
    done = true;
    kills.join();
    EXPECT_EQ(err, EINTR);
}

TEST_P(Ready, LowWaterOfSmallOnes) {
    Pair p = connected();
    int low = 50, on = 1;
    ASSERT_EQ(::setsockopt(p.there.get(), SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)), 0);
    ASSERT_EQ(::setsockopt(p.here.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(::send(p.here.get(), "x", 1, 0), 1);
        usleep(1000);
    }
    /* however they came, the program must be told to read them */
    EXPECT_EQ(events(p.there, POLLIN, 20000), POLLIN);
    EXPECT_EQ(receive(p.there, 100).size(), 100U);
}

} // namespace softwarp::sockets
