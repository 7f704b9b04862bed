// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who is told, of what, and how often: poll and epoll in their modes, signals, and
 * several threads at one socket
 */
#include <algorithm>
#include <cerrno>
#include <list>
#include <numeric>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>

#include <linux/sockios.h>
#include <netinet/tcp.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Wakes);

static constexpr uint32_t kIn = EPOLLIN, kOut = EPOLLOUT, kHup = EPOLLHUP, kErr = EPOLLERR,
                          kRdHup = EPOLLRDHUP;

/* poll() and select() ---------------------------------------------------------------- */

TEST_P(Wakes, Select) {
    Pair p = connected();
    auto select = [&](const Fd &fd) {
        fd_set in, out, except;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_ZERO(&except);
        for (fd_set *set : {&in, &out, &except})
            FD_SET(fd.get(), set);
        timeval none{0, 0};
        EXPECT_GE(::select(fd.get() + 1, &in, &out, &except, &none), 0);
        return std::string(FD_ISSET(fd.get(), &in) ? "r" : "") +
               (FD_ISSET(fd.get(), &out) ? "w" : "") + (FD_ISSET(fd.get(), &except) ? "e" : "");
    };
    EXPECT_EQ(select(p.here), "w");
    ASSERT_TRUE(send_all(p.there, pattern(1)));
    EXPECT_TRUE(eventually([&] { return select(p.here) == "rw"; }));
    receive(p.here, 1);
    fill(p.here);
    EXPECT_EQ(select(p.here), "");
    Fd l = listener();
    EXPECT_EQ(select(l), "");
    Fd here = dial(name_of(l));
    EXPECT_TRUE(eventually([&] { return select(l) == "r"; }));
    EXPECT_EQ(select(make()), "rw");
    p.there.reset();
    EXPECT_TRUE(eventually([&] { return select(p.here) == "rw"; }));
}

TEST_P(Wakes, PollIsWoken) {
    Pair p = connected();
    Call polls([&] { return events(p.there, POLLIN, 20000); });
    ASSERT_TRUE(polls.sleeps());
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(polls.ret(), POLLIN);
    Call ends([&] { return events(p.there, POLLRDHUP, 20000); });
    ASSERT_TRUE(ends.sleeps());
    p.here.reset();
    EXPECT_EQ(ends.ret(), POLLRDHUP);
}

TEST_P(Wakes, PollOfAReset) {
    Pair p = connected();
    /* these two need not be asked for */
    Call polls([&] { return events(p.there, 0, 20000); });
    ASSERT_TRUE(polls.sleeps());
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_EQ(polls.ret(), POLLERR | POLLHUP);
}

TEST_P(Wakes, PollOfOnesOwnShutdown) {
    Pair p = connected();
    Call polls([&] { return events(p.here, POLLIN, 20000); });
    ASSERT_TRUE(polls.sleeps());
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_RD), 0);
    EXPECT_EQ(polls.ret(), POLLIN);
    Fd l = listener();
    Call listens([&] { return events(l, POLLIN, 20000); });
    ASSERT_TRUE(listens.sleeps());
    ASSERT_EQ(::shutdown(l.get(), SHUT_RD), 0);
    EXPECT_NE(listens.ret() & POLLHUP, 0);
}

TEST_P(Wakes, PollForRoom) {
    Pair p = connected();
    size_t full = fill(p.here);
    Call polls([&] { return events(p.here, POLLOUT, 20000); });
    ASSERT_TRUE(polls.sleeps());
    EXPECT_EQ(receive(p.there, full), repeated(full));
    EXPECT_EQ(polls.ret(), POLLOUT);
}

TEST_P(Wakes, PollOfManyByOneThread) {
    std::vector<Pair> pairs;
    std::vector<pollfd> polls;
    for (int i = 0; i < 20; i++) {
        pairs.push_back(connected());
        polls.push_back({pairs.back().there.get(), POLLIN, 0});
    }
    for (size_t i : {7U, 0U, 19U}) {
        Call call([&] { return ::poll(polls.data(), polls.size(), 20000); });
        ASSERT_TRUE(call.sleeps());
        ASSERT_TRUE(send_all(pairs[i].here, pattern(1)));
        EXPECT_EQ(call.ret(), 1);
        EXPECT_EQ(polls[i].revents, POLLIN);
        receive(pairs[i].there, 1);
    }
}

TEST_P(Wakes, SignalEndsPoll) {
    Pair p = connected();
    take_signal(SIGUSR1, true);
    pollfd poll{p.here.get(), POLLIN, 0};
    Call call([&] { return ::poll(&poll, 1, 20000); });
    ASSERT_TRUE(call.sleeps());
    call.interrupt(SIGUSR1);
    EXPECT_EQ(call.error(), EINTR);
}

TEST_P(Wakes, LowWaterAndTheEnd) {
    Pair p = connected();
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_RCVLOWAT, 1000), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_RCVLOWAT), 1000);
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(events(p.there, POLLIN, 60), 0);
    /* fewer than that, but no more will come */
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    char room[100];
    EXPECT_EQ(::recv(p.there.get(), room, 100, 0), 10);
}

TEST_P(Wakes, LowWaterOfACall) {
    Pair p = connected();
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_RCVLOWAT, 50), 0);
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    std::vector<uint8_t> room(200);
    Call call([&] { return ::recv(p.there.get(), room.data(), 200, 0); });
    ASSERT_TRUE(call.sleeps());
    ASSERT_TRUE(send_all(p.here, pattern(49)));
    usleep(30000);
    ASSERT_TRUE(call.sleeps());
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(call.ret(), 50);
    /* it is the least of both */
    ASSERT_TRUE(send_all(p.here, pattern(20)));
    EXPECT_EQ(receive(p.there, 20).size(), 20U);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), room.data(), 200, MSG_DONTWAIT)), EAGAIN);
}

TEST_P(Wakes, LowWaterChanges) {
    Pair p = connected();
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_RCVLOWAT, 100), 0);
    ASSERT_TRUE(send_all(p.here, pattern(60)));
    EXPECT_EQ(events(p.there, POLLIN, 60), 0);
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_RCVLOWAT, 50), 0);
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    EXPECT_EQ(set(p.there, SOL_SOCKET, SO_RCVLOWAT, 0), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_RCVLOWAT), 1);
    EXPECT_EQ(set(p.there, SOL_SOCKET, SO_SNDLOWAT, 5), ENOPROTOOPT);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_SNDLOWAT), 1);
}

/* epoll ---------------------------------------------------------------------------------- */

TEST_P(Wakes, LevelIsToldAgain) {
    Pair p = connected();
    Epoll e(p.there, EPOLLIN);
    ASSERT_TRUE(send_all(p.here, pattern(2)));
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(e.wait(10000), kIn);
    receive(p.there, 1);
    EXPECT_EQ(e.wait(0), kIn);
    receive(p.there, 1);
    EXPECT_EQ(e.wait(0), 0U);
}

TEST_P(Wakes, EdgeIsToldOnce) {
    Pair p = connected();
    Epoll e(p.there, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    EXPECT_EQ(e.wait(0), kOut);
    EXPECT_EQ(e.wait(20), 0U);
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    EXPECT_EQ(e.wait(10000), kIn | kOut);
    /* reading a part of it is no event */
    receive(p.there, 50);
    EXPECT_EQ(e.wait(20), 0U);
    receive(p.there, 50);
    EXPECT_EQ(e.wait(20), 0U);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(e.wait(10000), kIn | kOut | kRdHup);
    EXPECT_EQ(e.wait(20), 0U);
}

TEST_P(Wakes, WhatIsSentIsNoEdge) {
    Pair p = connected();
    Epoll e(p.here, EPOLLIN | EPOLLOUT | EPOLLET);
    EXPECT_EQ(e.wait(0), kOut);
    /* room was never short, so none appears */
    for (size_t size : {1U, 100U, 1000U, 8000U}) {
        ASSERT_TRUE(send_all(p.here, pattern(size)));
        EXPECT_EQ(e.wait(20), 0U) << size;
    }
}

TEST_P(Wakes, EdgeOfAReset) {
    Pair p = connected();
    Epoll e(p.there, EPOLLIN | EPOLLRDHUP | EPOLLET);
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_EQ(e.wait(10000), kIn | kRdHup | kErr | kHup);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), ECONNRESET);
    EXPECT_EQ(e.wait(20), 0U);
}

TEST_P(Wakes, OneShot) {
    Pair p = connected();
    Epoll e(p.there, EPOLLIN | EPOLLONESHOT);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(e.wait(10000), kIn);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(e.wait(20), 0U);
    epoll_event again{};
    again.events = EPOLLIN | EPOLLONESHOT;
    for (int i = 0; i < 2; i++) {
        /* what is there already is told */
        ASSERT_EQ(::epoll_ctl(e.ep.get(), EPOLL_CTL_MOD, p.there.get(), &again), 0);
        EXPECT_EQ(e.wait(10000), kIn);
        EXPECT_EQ(e.wait(0), 0U);
    }
}

TEST_P(Wakes, EdgeAgainByChange) {
    Pair p = connected();
    Epoll e(p.there, EPOLLIN | EPOLLET);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(e.wait(10000), kIn);
    EXPECT_EQ(e.wait(0), 0U);
    epoll_event both{};
    both.events = EPOLLIN | EPOLLOUT | EPOLLET;
    ASSERT_EQ(::epoll_ctl(e.ep.get(), EPOLL_CTL_MOD, p.there.get(), &both), 0);
    EXPECT_EQ(e.wait(0), kIn | kOut);
    EXPECT_EQ(e.wait(0), 0U);
}

TEST_P(Wakes, WatchedBeforeListen) {
    Fd l = make();
    Epoll e(l, EPOLLIN | EPOLLET);
    EXPECT_EQ(e.wait(0), kHup);
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 4), 0);
    EXPECT_EQ(e.wait(0), 0U);
    Fd here = dial(name_of(l));
    EXPECT_EQ(e.wait(10000), kIn);
    EXPECT_TRUE(Fd(::accept(l.get(), nullptr, nullptr)));
    EXPECT_EQ(e.wait(20), 0U);
    here = dial(name_of(l));
    EXPECT_EQ(e.wait(10000), kIn);
}

TEST_P(Wakes, WatchedWhileItIsRefused) {
    Fd here = make(SOCK_NONBLOCK);
    Epoll e(here, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    EXPECT_EQ(e.wait(0), kOut | kHup);
    ASSERT_EQ(connect_to(here, loopback(1)), EINPROGRESS);
    EXPECT_EQ(e.wait(10000), kIn | kOut | kRdHup | kErr | kHup);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

TEST_P(Wakes, WatchedByADuplicate) {
    Pair p = connected();
    Fd other(::dup(p.there.get()));
    Epoll e(p.there, EPOLLIN);
    p.there.reset();
    /* the file is open, and so it is watched */
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(e.wait(10000), kIn);
    other.reset();
    EXPECT_EQ(e.wait(0), 0U);
}

TEST_P(Wakes, WatchedByTwo) {
    Pair p = connected();
    Epoll level(p.there, EPOLLIN), edge(p.there, EPOLLIN | EPOLLET);
    Epoll outer(level.ep, EPOLLIN);
    EXPECT_EQ(outer.wait(0), 0U);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(outer.wait(10000), kIn);
    EXPECT_EQ(edge.wait(10000), kIn);
    EXPECT_EQ(level.wait(10000), kIn);
    EXPECT_EQ(edge.wait(0), 0U);
}

/* Of servers that share a listener, one is woken for a connection. */
TEST_P(Wakes, ExclusiveListeners) {
    Fd l = listener();
    std::list<Epoll> epolls;
    std::list<Call> calls;
    for (int i = 0; i < 4; i++) {
        Epoll &e = epolls.emplace_back(l, EPOLLIN | EPOLLEXCLUSIVE);
        calls.emplace_back([&e] { return e.wait(20000); });
        ASSERT_TRUE(calls.back().sleeps());
    }
    auto woken = [&] {
        return std::count_if(calls.begin(), calls.end(), [](Call &call) { return call.done(); });
    };
    Fd one = dial(name_of(l));
    EXPECT_TRUE(eventually([&] { return woken() >= 1; }));
    usleep(50000);
    EXPECT_LT(woken(), 4);
    while (woken() < 4) {
        /* nobody is forgotten */
        auto before = woken();
        Fd more = dial(name_of(l));
        ASSERT_EQ(errno, 0);
        ASSERT_TRUE(eventually([&] { return woken() > before; }));
    }
    for (Call &call : calls)
        EXPECT_EQ(call.ret(), kIn);
}

TEST_P(Wakes, SharedListeners) {
    Fd l = listener();
    std::list<Epoll> epolls;
    std::list<Call> calls;
    for (int i = 0; i < 4; i++) {
        Epoll &e = epolls.emplace_back(l, EPOLLIN);
        calls.emplace_back([&e] { return e.wait(20000); });
        ASSERT_TRUE(calls.back().sleeps());
    }
    Fd one = dial(name_of(l));
    for (Call &call : calls)
        EXPECT_EQ(call.ret(), kIn);
}

/* Signals -------------------------------------------------------------------------------- */

/* SIGRTMIN+1 comes for a descriptor, with what there is; to this thread */
class Announced {
  public:
    explicit Announced(const Fd &fd) : fd_(fd.get()) {
        sigemptyset(&signals_);
        sigaddset(&signals_, number());
        sigaddset(&signals_, SIGIO);
        EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, &signals_, nullptr), 0);
        /* those that come too late do no harm */
        std::signal(number(), SIG_IGN);
        std::signal(SIGIO, SIG_IGN);
        f_owner_ex owner{F_OWNER_TID, ::gettid()};
        EXPECT_EQ(::fcntl(fd_, F_SETOWN_EX, &owner), 0);
        EXPECT_EQ(::fcntl(fd_, F_SETSIG, number()), 0);
        EXPECT_EQ(::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_ASYNC | O_NONBLOCK), 0);
    }
    ~Announced() {
        ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_ASYNC);
        while (next(0) >= 0)
            ;
        ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    }
    /* The next one's events, or -1 */
    long next(int ms) {
        siginfo_t info{};
        timespec time{ms / 1000, ms % 1000 * 1000000L};
        if (::sigtimedwait(&signals_, &info, &time) < 0)
            return -1;
        EXPECT_EQ(info.si_fd, fd_);
        return info.si_band;
    }
    /* One of the next ones has all of these. */
    bool tells(long wanted) {
        for (long band = next(10000); band >= 0; band = next(10000))
            if ((band & wanted) == wanted)
                return true;
        return false;
    }

  private:
    static int number() { return SIGRTMIN + 1; }

    int fd_;
    sigset_t signals_;
};

TEST_P(Wakes, SignalTellsWhat) {
    Pair p = connected();
    Announced signals(p.there);
    EXPECT_EQ(signals.next(0), -1);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_TRUE(signals.tells(POLLIN | POLLRDNORM));
    receive(p.there, 1);
    EXPECT_EQ(signals.next(20), -1);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_TRUE(signals.tells(POLLIN));
}

TEST_P(Wakes, SignalOfTheEnd) {
    Pair p = connected();
    Announced signals(p.there);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_TRUE(signals.tells(POLLIN));
}

TEST_P(Wakes, SignalOfAReset) {
    Pair p = connected();
    Announced signals(p.there);
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_GE(signals.next(10000), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), ECONNRESET);
}

TEST_P(Wakes, SignalOfRoom) {
    Pair p = connected();
    size_t full = fill(p.here);
    Announced signals(p.here);
    EXPECT_EQ(ERRNO_OF(::send(p.here.get(), "x", 1, 0)), EAGAIN);
    EXPECT_EQ(receive(p.there, full).size(), full);
    EXPECT_TRUE(signals.tells(POLLOUT));
}

TEST_P(Wakes, SignalOfConnections) {
    Fd l = listener();
    Announced signals(l);
    for (int i = 0; i < 2; i++) {
        Fd here = dial(name_of(l));
        EXPECT_TRUE(signals.tells(POLLIN));
    }
}

TEST_P(Wakes, SignalOfBeingConnected) {
    Fd l = listener();
    Fd here = make(SOCK_NONBLOCK);
    Announced signals(here);
    ASSERT_EQ(connect_to(here, name_of(l)), EINPROGRESS);
    EXPECT_TRUE(signals.tells(POLLOUT));
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
}

TEST_P(Wakes, SignalOfARefusal) {
    Fd here = make(SOCK_NONBLOCK);
    Announced signals(here);
    ASSERT_EQ(connect_to(here, loopback(1)), EINPROGRESS);
    EXPECT_GE(signals.next(10000), 0);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

/* Several threads at one socket ------------------------------------------------------------ */

TEST_P(Wakes, OneOfManyReaders) {
    Pair p = connected();
    std::list<Call> readers;
    auto done = [&] {
        return std::count_if(readers.begin(), readers.end(), [](Call &r) { return r.done(); });
    };
    for (int i = 0; i < 5; i++) {
        readers.emplace_back([&] {
            char c;
            return ::recv(p.there.get(), &c, 1, 0);
        });
        ASSERT_TRUE(readers.back().sleeps());
    }
    for (int i = 1; i <= 3; i++) {
        ASSERT_TRUE(send_all(p.here, pattern(1)));
        EXPECT_TRUE(eventually([&] { return done() == i; }));
    }
    usleep(20000);
    EXPECT_EQ(done(), 3);
    /* the end is for all of them */
    p.here.reset();
    long sum = 0;
    for (Call &reader : readers)
        sum += reader.ret();
    EXPECT_EQ(sum, 3);
}

TEST_P(Wakes, OneOfManyAcceptors) {
    Fd l = listener();
    std::list<Call> acceptors;
    auto done = [&] {
        return std::count_if(acceptors.begin(), acceptors.end(),
                             [](Call &call) { return call.done(); });
    };
    for (int i = 0; i < 5; i++) {
        acceptors.emplace_back([&] { return ::accept(l.get(), nullptr, nullptr); });
        ASSERT_TRUE(acceptors.back().sleeps());
    }
    std::vector<Fd> all;
    for (int i = 1; i <= 3; i++) {
        all.push_back(dial(name_of(l)));
        EXPECT_TRUE(eventually([&] { return done() == i; }));
    }
    usleep(20000);
    EXPECT_EQ(done(), 3);
    ASSERT_EQ(::shutdown(l.get(), SHUT_RD), 0);
    int accepted = 0;
    for (Call &call : acceptors) {
        if (call.ret() >= 0) {
            accepted++;
            all.emplace_back(static_cast<int>(call.ret()));
        } else {
            EXPECT_EQ(call.error(), EINVAL);
        }
    }
    EXPECT_EQ(accepted, 3);
}

/* A herd of clients, and several who serve them */
TEST_P(Wakes, HerdOfClients) {
    Fd l = listener(64);
    std::atomic<int> served = 0;
    constexpr int kClients = 60;
    std::list<Call> servers, clients;
    for (int i = 0; i < 4; i++) {
        servers.emplace_back([&] {
            for (;;) {
                Fd there(::accept(l.get(), nullptr, nullptr));
                if (!there)
                    return 0;
                uint8_t c = 0;
                if (::recv(there.get(), &c, 1, 0) == 1 && ::send(there.get(), &c, 1, 0) == 1)
                    served++;
            }
        });
    }
    for (int i = 0; i < 6; i++) {
        clients.emplace_back([&, i] {
            for (int j = 0; j < kClients / 6; j++) {
                Fd here = dial(name_of(l));
                if (!here)
                    return errno;
                uint8_t c = static_cast<uint8_t>(i * 10 + j), answer = 0;
                if (::send(here.get(), &c, 1, 0) != 1)
                    return errno;
                ssize_t got = ::recv(here.get(), &answer, 1, 0);
                if (got < 0)
                    return errno;
                if (got != 1 || answer != c)
                    return -1;
            }
            return 0;
        });
    }
    for (Call &client : clients)
        EXPECT_EQ(client.ret(), 0);
    EXPECT_TRUE(eventually([&] { return served == kClients; }));
    ASSERT_EQ(::shutdown(l.get(), SHUT_RD), 0);
    for (Call &server : servers)
        server.ret();
}

/* Records of several threads are whole, as long as there is room for them. */
TEST_P(Wakes, RecordsOfManyWriters) {
    Pair p = connected();
    std::list<Call> writers;
    for (uint8_t i = 1; i <= 6; i++) {
        writers.emplace_back([&, i] {
            std::vector<uint8_t> record(31, i);
            for (int j = 0; j < 60; j++)
                if (::send(p.here.get(), record.data(), record.size(), 0) != 31)
                    return -1;
            return 0;
        });
    }
    std::vector<uint8_t> all = receive(p.there, size_t{6} * 60 * 31);
    int count[7] = {};
    for (size_t i = 0; i < all.size(); i += 31) {
        ASSERT_GE(all[i], 1);
        ASSERT_LE(all[i], 6);
        count[all[i]]++;
        for (size_t k = 1; k < 31; k++)
            ASSERT_EQ(all[i + k], all[i]) << "torn at " << i;
    }
    for (uint8_t i = 1; i <= 6; i++)
        EXPECT_EQ(count[i], 60);
    for (Call &writer : writers)
        EXPECT_EQ(writer.ret(), 0);
}

/* However many write and read at once, no octet is lost, and none comes twice. */
TEST_P(Wakes, ManyWritersManyReaders) {
    Pair p = connected();
    constexpr size_t kEach = 400000;
    std::atomic<uint64_t> sums[2] = {}, octets = 0;
    std::list<Call> threads;
    for (unsigned i = 0; i < 3; i++) {
        threads.emplace_back([&, i] {
            std::vector<uint8_t> all = pattern(kEach, static_cast<uint8_t>(i * 50));
            sums[0] += std::accumulate(all.begin(), all.end(), uint64_t{0});
            for (size_t at = 0; at < kEach; at += 10000)
                if (!send_all(p.here, {all.begin() + static_cast<long>(at),
                                       all.begin() + static_cast<long>(at + 10000)}))
                    return -1;
            return 0;
        });
        threads.emplace_back([&] {
            std::vector<uint8_t> room(7001);
            ssize_t ret;
            while ((ret = ::recv(p.there.get(), room.data(), room.size(), 0)) > 0) {
                octets += static_cast<uint64_t>(ret);
                sums[1] += std::accumulate(room.begin(), room.begin() + ret, uint64_t{0});
            }
            return static_cast<int>(ret);
        });
    }
    EXPECT_TRUE(eventually([&] { return octets == 3 * kEach; })) << octets;
    p.here.reset();
    for (Call &thread : threads)
        EXPECT_EQ(thread.ret(), 0);
    EXPECT_EQ(octets, 3 * kEach);
    EXPECT_EQ(sums[0], sums[1]);
}

/* Processes share it as threads do. */
TEST_P(Wakes, ReadersInManyProcesses) {
    Pair p = connected();
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    Fd out(ends[0]), in(ends[1]);
    std::vector<pid_t> children;
    for (int i = 0; i < 3; i++) {
        pid_t child = ::fork();
        if (child == 0) {
            p.here.reset();
            int sum = 0;
            uint8_t room[100];
            ssize_t ret;
            while ((ret = ::recv(p.there.get(), room, sizeof(room), 0)) > 0)
                sum += std::accumulate(room, room + ret, 0);
            ::_exit(::write(in.get(), &sum, sizeof(sum)) == sizeof(sum) ? 0 : 1);
        }
        children.push_back(child);
    }
    std::vector<uint8_t> octets = pattern(20000);
    ASSERT_TRUE(send_all(p.here, octets));
    p.here.reset();
    int all = 0;
    for (pid_t child : children) {
        int status = -1, sum = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        ASSERT_EQ(::read(out.get(), &sum, sizeof(sum)), static_cast<ssize_t>(sizeof(sum)));
        all += sum;
    }
    EXPECT_EQ(all, std::accumulate(octets.begin(), octets.end(), 0));
}

} // namespace softwarp::sockets
