// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Octets out of band: what programs see of them, and what SDP sockets say on the
 * wire; draft-pinkerton-iwarp-sdp-01 section 9.5.3.
 */
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>

#include <linux/sockios.h>

#include "peer.hpp"

namespace softwarp::sockets {

SUITE(Urgent);

static bool say(const Fd &fd, const std::string &text, int flags = 0) {
    return ::send(fd.get(), text.data(), text.size(), flags) == static_cast<ssize_t>(text.size());
}

/* As many octets as there are, but for what one call does not read */
static std::string read_once(const Fd &fd, size_t size = 100, int flags = 0) {
    std::string got(size, 0);
    ssize_t ret = ::recv(fd.get(), got.data(), size, flags);
    got.resize(ret > 0 ? static_cast<size_t>(ret) : 0);
    return got;
}

static bool marked(const Fd &fd) {
    int n = -1;
    EXPECT_EQ(::ioctl(fd.get(), SIOCATMARK, &n), 0);
    return n != 0;
}

static int waiting(const Fd &fd) {
    int n = -1;
    EXPECT_EQ(::ioctl(fd.get(), FIONREAD, &n), 0);
    return n;
}

static bool comes(const Fd &fd) {
    return (events(fd, POLLPRI, 10000) & POLLPRI) != 0;
}

/* The octet, or -errno */
static int take(const Fd &fd, int flags = 0) {
    uint8_t octet = 0;
    ssize_t ret = ::recv(fd.get(), &octet, 1, MSG_OOB | flags);
    return ret == 1 ? octet : ret == 0 ? 0 : -errno;
}

static void set_inline(const Fd &fd, bool on = true) {
    int value = on;
    ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_OOBINLINE, &value, sizeof(value)), 0);
}

/* SIGURG of a descriptor, counted */
class Signals {
  public:
    explicit Signals(const Fd &fd) {
        count = 0;
        struct sigaction act = {};
        act.sa_handler = [](int) { count++; };
        EXPECT_EQ(::sigaction(SIGURG, &act, &before_), 0);
        EXPECT_EQ(::fcntl(fd.get(), F_SETOWN, ::getpid()), 0);
    }
    ~Signals() { ::sigaction(SIGURG, &before_, nullptr); }

    static inline std::atomic<int> count;

  private:
    struct sigaction before_ = {};
};

TEST_P(Urgent, Octet) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "abc"));
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there), '!');
    EXPECT_EQ(events(p.there, POLLPRI), 0);
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_FALSE(marked(p.there));
    ASSERT_TRUE(say(p.here, "def"));
    EXPECT_EQ(read_once(p.there), "abc");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(read_once(p.there), "def");
    EXPECT_FALSE(marked(p.there));
}

TEST_P(Urgent, NoneThere) {
    Pair p = connected();
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_FALSE(marked(p.there));
    ASSERT_TRUE(say(p.here, "abc"));
    ASSERT_EQ(events(p.there, POLLIN | POLLPRI, 10000), POLLIN);
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_FALSE(marked(p.there));
}

TEST_P(Urgent, OfALongerMessage) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "abc!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(read_once(p.there), "abc");
    EXPECT_EQ(take(p.there), '!');
}

TEST_P(Urgent, LastOfMuch) {
    Pair p = connected();
    std::vector<uint8_t> octets = pattern(300000);
    std::thread sends([&] { EXPECT_TRUE(send_all(p.here, octets, MSG_OOB)); });
    std::vector<uint8_t> got = receive(p.there, octets.size() - 1);
    sends.join();
    ASSERT_TRUE(comes(p.there));
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(take(p.there), octets.back());
    octets.pop_back();
    EXPECT_EQ(got, octets);
}

/* More than there is room for: the last octet that was taken is the one. */
TEST_P(Urgent, LastOfAPart) {
    Pair p = connected();
    set_nonblocking(p.here);
    std::vector<uint8_t> octets = pattern(20 << 20);
    ssize_t sent = ::send(p.here.get(), octets.data(), octets.size(), MSG_OOB);
    ASSERT_GT(sent, 1);
    ASSERT_LT(sent, static_cast<ssize_t>(octets.size()));
    std::vector<uint8_t> got = receive(p.there, static_cast<size_t>(sent) - 1);
    ASSERT_EQ(got.size(), static_cast<size_t>(sent) - 1);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), octets.begin()));
    ASSERT_TRUE(comes(p.there));
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(take(p.there), octets[static_cast<size_t>(sent) - 1]);
}

TEST_P(Urgent, Flags) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    char c = 0;
    iovec in{&c, 1};
    msghdr msg{};
    msg.msg_iov = &in;
    msg.msg_iovlen = 1;
    EXPECT_EQ(::recvmsg(p.there.get(), &msg, MSG_OOB), 1);
    EXPECT_EQ(c, '!');
    EXPECT_EQ(msg.msg_flags & (MSG_OOB | MSG_TRUNC), MSG_OOB);
}

TEST_P(Urgent, Peek) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "ab!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there, MSG_PEEK), '!');
    EXPECT_EQ(take(p.there, MSG_PEEK | MSG_DONTWAIT), '!');
    EXPECT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there), '!');
    EXPECT_EQ(take(p.there, MSG_PEEK), -EINVAL);
}

TEST_P(Urgent, ForNoOctets) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    char c = 'x';
    iovec in{&c, 0};
    msghdr msg{};
    msg.msg_iov = &in;
    msg.msg_iovlen = 1;
    EXPECT_EQ(::recvmsg(p.there.get(), &msg, MSG_OOB), 0);
    EXPECT_EQ(msg.msg_flags & (MSG_OOB | MSG_TRUNC), MSG_OOB | MSG_TRUNC);
    EXPECT_EQ(take(p.there), -EINVAL);
}

TEST_P(Urgent, Truncated) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    char c = 'x';
    EXPECT_EQ(::recv(p.there.get(), &c, 1, MSG_OOB | MSG_TRUNC), 1);
    EXPECT_EQ(c, 'x');
    EXPECT_EQ(take(p.there), -EINVAL);
}

TEST_P(Urgent, BadMemory) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    void *nowhere = reinterpret_cast<void *>(8);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), nowhere, 1, MSG_OOB)), EFAULT);
    EXPECT_EQ(take(p.there), -EINVAL);
}

TEST_P(Urgent, SendsNothing) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "a"));
    EXPECT_EQ(::send(p.here.get(), "!", 0, MSG_OOB), 0);
    ASSERT_TRUE(say(p.here, "b"));
    ASSERT_TRUE(eventually([&] { return waiting(p.there) == 2; }));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), POLLIN);
    EXPECT_EQ(read_once(p.there), "ab");
}

TEST_P(Urgent, Inline) {
    Pair p = connected();
    set_inline(p.there);
    ASSERT_TRUE(say(p.here, "abc"));
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(say(p.here, "def"));
    ASSERT_TRUE(eventually([&] { return waiting(p.there) == 7; }));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), POLLIN | POLLPRI);
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_EQ(read_once(p.there), "abc");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), POLLIN | POLLPRI);
    std::string rest = read_once(p.there);
    while (rest.size() < 4)
        rest += read_once(p.there);
    EXPECT_EQ(rest, "!def");
    EXPECT_FALSE(marked(p.there));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), 0);
}

/* One alone is input, when it belongs to the stream. */
TEST_P(Urgent, InlineAlone) {
    Pair p = connected();
    set_inline(p.there);
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), POLLIN | POLLPRI);
    EXPECT_EQ(waiting(p.there), 1);
    EXPECT_TRUE(marked(p.there));
    ASSERT_TRUE(say(p.here, "?", MSG_OOB));
    ASSERT_TRUE(eventually([&] { return waiting(p.there) == 2; }));
    EXPECT_EQ(read_once(p.there), "!");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(read_once(p.there), "?");
}

TEST_P(Urgent, InlineLater) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "ab!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(waiting(p.there), 2);
    set_inline(p.there);
    EXPECT_EQ(waiting(p.there), 3);
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_EQ(read_once(p.there), "ab");
    set_inline(p.there, false);
    EXPECT_EQ(take(p.there, MSG_PEEK), '!');
    set_inline(p.there);
    EXPECT_EQ(read_once(p.there), "!");
}

TEST_P(Urgent, SkippedUnread) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "abc!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    ASSERT_TRUE(say(p.here, "def"));
    EXPECT_EQ(read_once(p.there), "abc");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(read_once(p.there), "def");
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_EQ(events(p.there, POLLPRI), 0);
}

/* Who reads at the mark, and finds nothing behind it, has passed it all the same. */
TEST_P(Urgent, SkippedForNothing) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_FALSE(marked(p.there));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), 0);
}

TEST_P(Urgent, SecondBehindOthers) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "a1", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there, MSG_PEEK), '1');
    ASSERT_TRUE(say(p.here, "b2", MSG_OOB));
    ASSERT_TRUE(eventually([&] { return take(p.there, MSG_PEEK) == '2'; }));
    EXPECT_EQ(waiting(p.there), 3);
    EXPECT_EQ(read_once(p.there), "a1b");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(take(p.there), '2');
}

/* At the first one's mark it is none of the stream's, taken or not. */
TEST_P(Urgent, SecondAtTheMark) {
    Pair p = connected();
    for (bool taken : {false, true}) {
        ASSERT_TRUE(say(p.here, "1", MSG_OOB));
        ASSERT_TRUE(eventually([&] { return take(p.there, MSG_PEEK) == '1'; }));
        if (taken) {
            EXPECT_EQ(take(p.there), '1');
        }
        ASSERT_TRUE(say(p.here, "x2", MSG_OOB));
        ASSERT_TRUE(eventually([&] { return take(p.there, MSG_PEEK) == '2'; }));
        EXPECT_EQ(waiting(p.there), 1);
        EXPECT_EQ(read_once(p.there), "x");
        EXPECT_EQ(take(p.there), '2');
        EXPECT_TRUE(marked(p.there));
        ASSERT_TRUE(say(p.here, "y"));
        EXPECT_EQ(read_once(p.there), "y");
    }
}

/* A program may take them and never read. */
TEST_P(Urgent, ManyAlone) {
    Pair p = connected();
    for (int i = 0; i < 200; i++) {
        std::string c(1, static_cast<char>('A' + i % 26));
        ASSERT_TRUE(say(p.here, c, MSG_OOB));
        ASSERT_TRUE(comes(p.there)) << i;
        ASSERT_EQ(take(p.there), c[0]) << i;
    }
    EXPECT_EQ(waiting(p.there), 0);
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), 0);
    ASSERT_TRUE(say(p.here, "z"));
    EXPECT_EQ(read_once(p.there), "z");
}

TEST_P(Urgent, Queued) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "abcd"));
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(say(p.here, "ef"));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(waiting(p.there), 4);
    EXPECT_EQ(read_once(p.there, 3), "abc");
    EXPECT_EQ(waiting(p.there), 1);
    EXPECT_EQ(read_once(p.there), "d");
    EXPECT_EQ(waiting(p.there), 0);
    EXPECT_EQ(read_once(p.there, 1), "e");
    EXPECT_EQ(waiting(p.there), 1);
}

TEST_P(Urgent, NoInput) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), POLLPRI);
    EXPECT_EQ(take(p.there), '!');
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI), 0);
    ASSERT_TRUE(say(p.here, "a"));
    EXPECT_EQ(events(p.there, POLLIN | POLLPRI, 10000), POLLIN);
    EXPECT_EQ(read_once(p.there), "a");
}

TEST_P(Urgent, Select) {
    Pair p = connected();
    timeval tv{10, 0};
    fd_set in, except;
    FD_ZERO(&in);
    FD_ZERO(&except);
    FD_SET(p.there.get(), &in);
    FD_SET(p.there.get(), &except);
    std::thread sends([&] {
        usleep(20000);
        EXPECT_TRUE(say(p.here, "!", MSG_OOB));
    });
    EXPECT_EQ(::select(p.there.get() + 1, &in, nullptr, &except, &tv), 1);
    sends.join();
    EXPECT_FALSE(FD_ISSET(p.there.get(), &in));
    EXPECT_TRUE(FD_ISSET(p.there.get(), &except));
}

TEST_P(Urgent, Edge) {
    Pair p = connected();
    Fd ep(::epoll_create1(0));
    epoll_event ev{};
    ev.events = EPOLLPRI | EPOLLET;
    ASSERT_EQ(::epoll_ctl(ep.get(), EPOLL_CTL_ADD, p.there.get(), &ev), 0);
    EXPECT_EQ(::epoll_wait(ep.get(), &ev, 1, 0), 0);
    for (int i = 0; i < 5; i++) {
        ASSERT_TRUE(say(p.here, "!", MSG_OOB));
        ASSERT_EQ(::epoll_wait(ep.get(), &ev, 1, 10000), 1) << i;
        EXPECT_EQ(ev.events, static_cast<uint32_t>(EPOLLPRI));
        /* once, taken or not */
        while (::epoll_wait(ep.get(), &ev, 1, 20) == 1)
            EXPECT_EQ(ev.events, static_cast<uint32_t>(EPOLLPRI));
        if (i % 2 == 0) {
            EXPECT_EQ(take(p.there), '!');
        }
    }
    /* ordinary ones are none of these */
    EXPECT_EQ(take(p.there), -EINVAL);
    ASSERT_TRUE(say(p.here, "a"));
    EXPECT_EQ(::epoll_wait(ep.get(), &ev, 1, 100), 0);
}

TEST_P(Urgent, Signal) {
    Pair p = connected();
    Signals signals(p.there);
    ASSERT_TRUE(say(p.here, "a"));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    EXPECT_EQ(Signals::count, 0);
    for (int i = 1; i <= 5; i++) {
        ASSERT_TRUE(say(p.here, "!", MSG_OOB));
        ASSERT_TRUE(eventually([&] { return Signals::count >= i; }));
        ASSERT_TRUE(comes(p.there));
        EXPECT_EQ(take(p.there), '!');
        EXPECT_EQ(Signals::count, i);
    }
}

/* Without an owner nobody is signalled. */
TEST_P(Urgent, NobodysSignal) {
    Pair p = connected();
    {
        Signals signals(p.there);
        ASSERT_EQ(::fcntl(p.there.get(), F_SETOWN, 0), 0);
        ASSERT_TRUE(say(p.here, "!", MSG_OOB));
        ASSERT_TRUE(comes(p.there));
        EXPECT_EQ(Signals::count, 0);
    }
    EXPECT_EQ(take(p.there), '!');
}

TEST_P(Urgent, WaitAllStops) {
    Pair p = connected();
    std::thread sends([&] {
        EXPECT_TRUE(say(p.here, "abc"));
        usleep(20000);
        EXPECT_TRUE(say(p.here, "d!", MSG_OOB));
        EXPECT_TRUE(say(p.here, "efg"));
    });
    std::string got = read_once(p.there, 7, MSG_WAITALL);
    sends.join();
    EXPECT_EQ(got, "abcd");
    EXPECT_EQ(read_once(p.there, 3, MSG_WAITALL), "efg");
}

TEST_P(Urgent, PeekAtTheStream) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "abc!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    ASSERT_TRUE(say(p.here, "def"));
    EXPECT_EQ(read_once(p.there, 100, MSG_PEEK), "abc");
    EXPECT_EQ(read_once(p.there, 2, MSG_PEEK), "ab");
    EXPECT_EQ(read_once(p.there), "abc");
    /* it looks behind the mark, and passes nothing */
    EXPECT_EQ(read_once(p.there, 3, MSG_PEEK | MSG_WAITALL), "def");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(take(p.there), '!');
    EXPECT_EQ(read_once(p.there), "def");
}

/* Reading goes on across the place of one that was taken before. */
TEST_P(Urgent, TakenBefore) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "abc!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there), '!');
    ASSERT_TRUE(say(p.here, "def"));
    EXPECT_EQ(read_once(p.there, 2), "ab");
    EXPECT_FALSE(marked(p.there));
    EXPECT_EQ(read_once(p.there), "c");
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(take(p.there), -EINVAL);
    EXPECT_EQ(read_once(p.there), "def");
}

TEST_P(Urgent, BothWays) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "a1", MSG_OOB));
    ASSERT_TRUE(say(p.there, "b2", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    ASSERT_TRUE(comes(p.here));
    EXPECT_EQ(take(p.there), '1');
    EXPECT_EQ(take(p.here), '2');
    EXPECT_EQ(read_once(p.there), "a");
    EXPECT_EQ(read_once(p.here), "b");
}

TEST_P(Urgent, BeforeAccept) {
    Fd l = listener();
    Address a = name_of(l);
    for (bool in : {false, true}) {
        set_inline(l, in);
        Fd here = make();
        ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
        ASSERT_TRUE(say(here, "1", MSG_OOB));
        ASSERT_TRUE(say(here, "2", MSG_OOB));
        usleep(50000);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        ASSERT_TRUE(comes(there));
        if (in) {
            ASSERT_TRUE(eventually([&] { return waiting(there) == 2; }));
            EXPECT_EQ(read_once(there), "1");
            EXPECT_EQ(read_once(there), "2");
        } else {
            ASSERT_TRUE(eventually([&] { return take(there, MSG_PEEK) == '2'; }));
            EXPECT_EQ(waiting(there), 0);
            EXPECT_EQ(take(there), '2');
        }
    }
}

TEST_P(Urgent, AfterShutdown) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "a!", MSG_OOB));
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(ERRNO_OF(::send(p.here.get(), "?", 1, MSG_OOB | MSG_NOSIGNAL)), EPIPE);
    ASSERT_NE(events(p.there, POLLRDHUP, 10000) & POLLRDHUP, 0);
    EXPECT_NE(events(p.there, POLLPRI) & POLLPRI, 0);
    EXPECT_EQ(take(p.there, MSG_PEEK), '!');
    EXPECT_EQ(read_once(p.there), "a");
    EXPECT_EQ(take(p.there), '!');
    char c;
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    EXPECT_EQ(take(p.there), -EINVAL);
}

TEST_P(Urgent, ReaderShutDown) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.there.get(), SHUT_RD), 0);
    EXPECT_EQ(take(p.there), -EINVAL);
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there), '!');
}

TEST_P(Urgent, AfterReset) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    linger now{1, 0};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    p.here.reset();
    ASSERT_NE(events(p.there, POLLRDHUP, 10000) & POLLERR, 0);
    EXPECT_EQ(take(p.there), -ENOTCONN);
}

/* Its octet is unread, whoever took it, and TCP resets for that. */
TEST_P(Urgent, ClosedAtTheMark) {
    Pair p = connected();
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    EXPECT_EQ(take(p.there), '!');
    p.there.reset();
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.here.get(), &c, 1, 0)), ECONNRESET);
}

/* The peer has no room: it hears of one that cannot come yet. */
TEST_P(Urgent, ToldOf) {
    Fd l = listener();
    Address a = name_of(l);
    int small = 4608;
    ASSERT_EQ(::setsockopt(l.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    Fd here = make();
    ASSERT_EQ(::setsockopt(here.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    Signals signals(there);
    set_nonblocking(here);
    std::vector<uint8_t> block = pattern(1000);
    size_t sent = 0;
    for (int quiet = 0; quiet < 20;) {
        ssize_t ret = ::send(here.get(), block.data(), block.size(), 0);
        if (ret > 0)
            sent += static_cast<size_t>(ret);
        else
            quiet++, usleep(5000);
    }
    int more = 100000;
    ASSERT_EQ(::setsockopt(here.get(), SOL_SOCKET, SO_SNDBUF, &more, sizeof(more)), 0);
    ASSERT_TRUE(say(here, "!", MSG_OOB));
    ASSERT_TRUE(eventually([&] { return Signals::count > 0; }));
    EXPECT_EQ(take(there), -EAGAIN);
    EXPECT_EQ(events(there, POLLPRI), 0);
    EXPECT_FALSE(marked(there));
    EXPECT_EQ(receive(there, sent).size(), sent);
    ASSERT_TRUE(comes(there));
    EXPECT_EQ(take(there), '!');
    EXPECT_TRUE(marked(there));
    EXPECT_EQ(Signals::count, 1);
}

/* splice() takes what is before it; what comes behind stays in its order. */
TEST_P(Urgent, Splice) {
    Pair p = connected();
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    Fd out(ends[0]), in(ends[1]);
    ASSERT_TRUE(say(p.here, "abc!", MSG_OOB));
    ASSERT_TRUE(comes(p.there));
    ASSERT_TRUE(say(p.here, "def"));
    EXPECT_EQ(::splice(p.there.get(), nullptr, in.get(), nullptr, 100, 0), 3);
    EXPECT_EQ(read_once(p.there), "def");
    char got[4] = "";
    EXPECT_EQ(::read(out.get(), got, 3), 3);
    EXPECT_STREQ(got, "abc");
}

TEST_P(Urgent, Sendfile) {
    Pair p = connected();
    char path[] = "/tmp/softwarp-sockets-XXXXXX";
    Fd file(::mkstemp(path));
    ASSERT_TRUE(file);
    ::unlink(path);
    std::vector<uint8_t> octets = pattern(5000);
    ASSERT_EQ(::write(file.get(), octets.data(), octets.size()), 5000);
    off_t off = 0;
    ASSERT_EQ(::sendfile(p.here.get(), file.get(), &off, 5000), 5000);
    ASSERT_TRUE(say(p.here, "!", MSG_OOB));
    off = 0;
    ASSERT_EQ(::sendfile(p.here.get(), file.get(), &off, 5000), 5000);
    EXPECT_EQ(receive(p.there, 5000), octets);
    ASSERT_TRUE(comes(p.there));
    EXPECT_TRUE(marked(p.there));
    EXPECT_EQ(receive(p.there, 5000), octets);
}

/* Positions hold while both ends are busy. */
TEST_P(Urgent, Amid) {
    Pair p = connected();
    set_inline(p.there);
    std::vector<uint8_t> octets = pattern(2000000);
    std::thread sends([&] {
        for (size_t i = 0; i < octets.size(); i += 20000) {
            std::vector<uint8_t> part(octets.begin() + static_cast<long>(i),
                                      octets.begin() + static_cast<long>(i + 20000));
            EXPECT_TRUE(send_all(p.here, part, i % 60000 == 0 ? MSG_OOB : 0));
        }
    });
    std::vector<uint8_t> got;
    while (got.size() < octets.size()) {
        std::vector<uint8_t> part(30000);
        ssize_t ret = ::recv(p.there.get(), part.data(), part.size(), 0);
        ASSERT_GT(ret, 0);
        got.insert(got.end(), part.begin(), part.begin() + ret);
        if (marked(p.there)) {
            EXPECT_EQ(got.size() % 60000, 19999U);
        }
    }
    sends.join();
    EXPECT_EQ(got, octets);
}

/* On the wire ------------------------------------------------------------------ */

class OutOfBand : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, OutOfBand, testing::ValuesIn(sdp_kinds()), name_of_kind);

using wire::Bytes;

static constexpr uint8_t kBoth = kSdpOobPend | kSdpOobPres;

static SdpMessage flagged(uint8_t flags) {
    SdpMessage msg = message(kSdpData);
    msg.flags = flags;
    return msg;
}

static Bytes bytes(const std::string &text) {
    return {text.begin(), text.end()};
}

/* SDP-09, SDP-10, SDP-138, SDP-139: with what goes before, and told of with it */
TEST_P(OutOfBand, OneMessage) {
    Talk talk = accepted();
    ASSERT_TRUE(say(talk.app, "abc!", MSG_OOB));
    Heard h = talk.peer->hear_other();
    EXPECT_EQ(h.msg.mid, kSdpData);
    EXPECT_EQ(h.msg.flags, kBoth);
    EXPECT_EQ(h.payload(), bytes("abc!"));
    EXPECT_EQ(h.opcode, wire::kOpSendSolicited);
    ASSERT_TRUE(say(talk.app, "def"));
    h = talk.peer->hear_other();
    EXPECT_EQ(h.msg.flags, 0);
    EXPECT_EQ(h.payload(), bytes("def"));
    EXPECT_EQ(h.opcode, wire::kOpSend);
}

/* SDP-139, SDP-140, SDP-226: behind much that waits, neither too early nor later than it must */
TEST_P(OutOfBand, BehindMuch) {
    SdpMessage hello = good_hello();
    hello.bufs = 4;
    Talk talk = accepted(hello);
    Peer &peer = *talk.peer;
    std::vector<uint8_t> octets = pattern(250000);
    ASSERT_TRUE(send_all(talk.app, octets));
    ASSERT_TRUE(say(talk.app, "!", MSG_OOB));
    ASSERT_TRUE(say(talk.app, "behind"));
    SdpMessage more = message(kSdpData);
    more.bufs = 200;
    peer.say(more);
    size_t got = 0, pend = 0;
    int pends = 0;
    while (got < octets.size() + 1) {
        Heard h = peer.hear();
        if (h.msg.mid == kSdpChRcvBuf)
            continue;
        if (h.msg.flags & kSdpOobPend) {
            pends++;
            pend = got;
        }
        got += h.msg.payload;
        EXPECT_EQ((h.msg.flags & kSdpOobPres) != 0, got == octets.size() + 1) << got;
    }
    EXPECT_EQ(pends, 1);
    EXPECT_LE(octets.size() + 1 - pend, 65535U);
    /* as soon as it may, but for what fits into no message */
    EXPECT_GE(octets.size() + 1 - pend, 65535U - 4096);
    EXPECT_EQ(peer.hear_other().payload(), bytes("behind"));
}

/* SDP-11, SDP-141: without credit for payload the news goes alone, once */
TEST_P(OutOfBand, NoCredit) {
    SdpMessage hello = good_hello();
    hello.bufs = 3;
    Talk talk = accepted(hello);
    Peer &peer = *talk.peer;
    ASSERT_TRUE(say(talk.app, "ab!", MSG_OOB));
    Heard h = peer.hear();
    EXPECT_EQ(h.msg.flags, kSdpOobPend);
    EXPECT_EQ(h.msg.payload, 0U);
    SdpMessage more = message(kSdpData);
    more.bufs = 10;
    peer.say(more);
    h = peer.hear_other();
    EXPECT_EQ(h.msg.flags, kSdpOobPres);
    EXPECT_EQ(h.payload(), bytes("ab!"));
}

/* SDP-139: one that was not told of when the next one came is an ordinary octet */
TEST_P(OutOfBand, Replaced) {
    SdpMessage hello = good_hello();
    hello.bufs = 4;
    Talk talk = accepted(hello);
    Peer &peer = *talk.peer;
    std::vector<uint8_t> octets = pattern(100000);
    ASSERT_TRUE(send_all(talk.app, octets, MSG_OOB));
    ASSERT_TRUE(say(talk.app, "!", MSG_OOB));
    SdpMessage more = message(kSdpData);
    more.bufs = 200;
    peer.say(more);
    int pends = 0;
    for (size_t got = 0; got < octets.size() + 1;) {
        Heard h = peer.hear();
        got += h.msg.payload;
        pends += (h.msg.flags & kSdpOobPend) != 0;
        EXPECT_EQ((h.msg.flags & kSdpOobPres) != 0, got == octets.size() + 1) << got;
    }
    EXPECT_EQ(pends, 1);
}

/* SDP-142: the program is told by OOB_PEND, in whatever message that is */
TEST_P(OutOfBand, Told) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    Signals signals(talk.app);
    SdpMessage pend = src_avail(20);
    pend.flags = kSdpOobPend;
    peer.say(pend, pattern(10));
    ASSERT_TRUE(eventually([] { return Signals::count == 1; }));
    EXPECT_EQ(take(talk.app), -EAGAIN);
    EXPECT_EQ(events(talk.app, POLLPRI), 0);
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpSendSm);
    peer.say(flagged(kSdpOobPres), pattern(10, 7));
    ASSERT_TRUE(comes(talk.app));
    EXPECT_EQ(take(talk.app), pattern(10, 7)[9]);
    EXPECT_EQ(receive(talk.app, 19).size(), 19U);
    EXPECT_TRUE(marked(talk.app));
    EXPECT_EQ(Signals::count, 1);
}

/* What no socket of ours does: told twice and coming once, coming untold, two on their way */
TEST_P(OutOfBand, Untidy) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    Signals signals(talk.app);
    peer.say(flagged(kSdpOobPend));
    peer.say(flagged(kSdpOobPend), bytes("a"));
    peer.say(flagged(kBoth), bytes("b1"));
    ASSERT_TRUE(comes(talk.app));
    EXPECT_EQ(take(talk.app), '1');
    EXPECT_EQ(Signals::count, 1);
    peer.say(flagged(kSdpOobPres), bytes("c2"));
    ASSERT_TRUE(comes(talk.app));
    EXPECT_EQ(take(talk.app), '2');
    EXPECT_EQ(Signals::count, 2);
    peer.say(flagged(kSdpOobPend));
    peer.say(flagged(kSdpOobPend));
    peer.say(flagged(kSdpOobPres), bytes("3"));
    peer.say(flagged(kSdpOobPres), bytes("4"));
    ASSERT_TRUE(eventually([&] { return take(talk.app, MSG_PEEK) == '4'; }));
    EXPECT_EQ(Signals::count, 4);
    EXPECT_EQ(receive(talk.app, 6), bytes("ab1c23"));
    EXPECT_TRUE(marked(talk.app));
}

/* Without end, and nothing comes: behind what the draft allows it is forgotten. */
TEST_P(OutOfBand, Forgotten) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    Signals signals(talk.app);
    Bytes part = pattern(2000);
    for (int i = 0; i < 300; i++) {
        peer.say(flagged(i < 200 ? kSdpOobPend : 0), part);
        ASSERT_EQ(receive(talk.app, part.size()), part);
        /* 32 of them are less than 65,535 octets, the first of which was told of */
        EXPECT_EQ(take(talk.app), i < 199 + 32 ? -EAGAIN : -EINVAL) << i;
    }
    EXPECT_EQ(Signals::count, 1);
    EXPECT_FALSE(marked(talk.app));
    peer.say(flagged(kBoth), bytes("!"));
    ASSERT_TRUE(comes(talk.app));
    EXPECT_EQ(take(talk.app), '!');
}

/* SDP-09: there is no octet that could be the one */
TEST_P(OutOfBand, WithoutPayload) {
    Talk talk = accepted();
    talk.peer->say(flagged(kBoth));
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
}

/* Each makes room for the next, though the program never reads. */
TEST_P(OutOfBand, WithoutReading) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    int64_t left = talk.first.bufs;
    for (int i = 0; i < 100; i++) {
        while (left < 3) {
            Heard h = peer.hear();
            left = int64_t{h.msg.bufs} - (peer.said - 1 - h.msg.mseq_ack);
        }
        uint8_t octet = static_cast<uint8_t>(i);
        peer.say(flagged(kBoth), Bytes{octet});
        left--;
        ASSERT_TRUE(eventually([&] { return take(talk.app, MSG_PEEK) == octet; })) << i;
    }
    EXPECT_EQ(waiting(talk.app), 0);
}

} // namespace softwarp::sockets
