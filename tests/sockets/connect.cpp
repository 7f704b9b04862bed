// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * From socket() to a connection, or to the error that says why there is none
 */
#include <cerrno>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Connect);

TEST_P(Connect, TypesAndProtocols) {
    const Kind &kind = GetParam();
    Fd fd = make();
    EXPECT_EQ(option(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    EXPECT_EQ(option(fd, SOL_SOCKET, SO_DOMAIN), kind.address);
    EXPECT_EQ(option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
    EXPECT_EQ(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
    EXPECT_EQ(ERRNO_OF(::socket(kind.family, SOCK_STREAM, IPPROTO_UDP)), EPROTONOSUPPORT);
}

TEST_P(Connect, Fresh) {
    Fd fd = make();
    Address a = name_of(fd);
    EXPECT_EQ(a.port(), 0);
    EXPECT_EQ(ERRNO_OF(::getpeername(fd.get(), a.get(), &a.len)), ENOTCONN);
    char c = 0;
    EXPECT_EQ(ERRNO_OF(::recv(fd.get(), &c, 1, MSG_DONTWAIT)), ENOTCONN);
    EXPECT_EQ(ERRNO_OF(::send(fd.get(), &c, 1, MSG_DONTWAIT)), EPIPE);
    EXPECT_EQ(ERRNO_OF(::accept(fd.get(), nullptr, nullptr)), EINVAL);
    EXPECT_EQ(events(fd, POLLIN | POLLOUT), POLLOUT | POLLHUP);
    EXPECT_EQ(ERRNO_OF(::shutdown(fd.get(), SHUT_RDWR)), ENOTCONN);
    EXPECT_EQ(events(fd, POLLIN | POLLOUT), POLLIN | POLLOUT | POLLHUP);
}

TEST_P(Connect, BindTwice) {
    Fd fd = make();
    Address a = loopback();
    ASSERT_EQ(::bind(fd.get(), a.get(), a.len), 0);
    EXPECT_NE(name_of(fd).port(), 0);
    EXPECT_EQ(ERRNO_OF(::bind(fd.get(), a.get(), a.len)), EINVAL);
    a = name_of(fd);
    Fd other = make();
    EXPECT_EQ(ERRNO_OF(::bind(other.get(), a.get(), a.len)), EADDRINUSE);
}

TEST_P(Connect, ListenTwice) {
    Fd fd = listener();
    EXPECT_EQ(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
    EXPECT_EQ(::listen(fd.get(), 3), 0);
    Address a = name_of(fd);
    int on = 1;
    Fd other = make();
    ASSERT_EQ(::setsockopt(other.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    EXPECT_EQ(ERRNO_OF(::bind(other.get(), a.get(), a.len)), EADDRINUSE);
    EXPECT_EQ(ERRNO_OF(::connect(fd.get(), a.get(), a.len)), EISCONN);
}

TEST_P(Connect, Names) {
    Fd l = listener();
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    Address from;
    from.len = sizeof(from.storage);
    Fd there(::accept(l.get(), from.get(), &from.len));
    ASSERT_TRUE(there);
    EXPECT_EQ(peer_of(here), a);
    EXPECT_EQ(name_of(there), a);
    EXPECT_EQ(name_of(here), from);
    EXPECT_EQ(peer_of(there), from);
    EXPECT_EQ(option(there, SOL_SOCKET, SO_ACCEPTCONN), 0);
    EXPECT_EQ(option(there, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
}

TEST_P(Connect, FromABoundPort) {
    Fd l = listener();
    Address a = name_of(l);
    Fd here = make();
    Address own = loopback();
    ASSERT_EQ(::bind(here.get(), own.get(), own.len), 0);
    own = name_of(here);
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    EXPECT_EQ(name_of(here), own);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(peer_of(there), own);
    EXPECT_EQ(ERRNO_OF(::bind(here.get(), own.get(), own.len)), EINVAL);
}

TEST_P(Connect, Twice) {
    Fd l = listener();
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EISCONN);
    EXPECT_EQ(ERRNO_OF(::listen(here.get(), 1)), EINVAL);
}

TEST_P(Connect, Refused) {
    Address a;
    {
        Fd l = listener();
        a = name_of(l);
    }
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ECONNREFUSED);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
    /* the same socket may try again */
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ECONNREFUSED);
    Fd l = listener();
    a = name_of(l);
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), 0);
}

TEST_P(Connect, RefusedNonBlocking) {
    Address a;
    {
        Fd l = listener();
        a = name_of(l);
    }
    Fd here = make(SOCK_NONBLOCK);
    ASSERT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EINPROGRESS);
    /* TCP has the error before it is closed */
    ASSERT_TRUE(eventually([&] { return (events(here, POLLOUT) & POLLHUP) != 0; }));
    EXPECT_EQ(events(here, POLLIN | POLLOUT), POLLIN | POLLOUT | POLLERR | POLLHUP);
    EXPECT_EQ(name_of(here).storage.ss_family, GetParam().address);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
}

TEST_P(Connect, NonBlocking) {
    Fd l = listener();
    Address a = name_of(l);
    Fd here = make(SOCK_NONBLOCK);
    ASSERT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EINPROGRESS);
    ASSERT_TRUE(eventually([&] { return (events(here, POLLOUT) & POLLOUT) != 0; }));
    EXPECT_EQ(events(here, POLLIN | POLLOUT), POLLOUT);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), 0);
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EISCONN);
}

TEST_P(Connect, BadAddresses) {
    Fd fd = make();
    Address a = loopback(1);
    EXPECT_EQ(ERRNO_OF(::connect(fd.get(), a.get(), 1)), EINVAL);
    EXPECT_EQ(ERRNO_OF(::connect(fd.get(), a.get(), 8)), EINVAL);
    a.storage.ss_family = AF_UNIX;
    EXPECT_EQ(ERRNO_OF(::connect(fd.get(), a.get(), a.len)), EAFNOSUPPORT);
    EXPECT_EQ(ERRNO_OF(::bind(fd.get(), a.get(), a.len)), EAFNOSUPPORT);
}

TEST_P(Connect, AcceptNonBlocking) {
    Fd l = listener(8, SOCK_NONBLOCK);
    EXPECT_EQ(ERRNO_OF(::accept(l.get(), nullptr, nullptr)), EAGAIN);
    EXPECT_EQ(events(l, POLLIN | POLLOUT), 0);
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    EXPECT_EQ(events(l, POLLIN | POLLOUT, 10000), POLLIN);
    Fd there(::accept4(l.get(), nullptr, nullptr, SOCK_NONBLOCK));
    ASSERT_TRUE(there);
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(there.get(), &c, 1, 0)), EAGAIN);
    EXPECT_EQ(events(l, POLLIN), 0);
}

TEST_P(Connect, AcceptWaits) {
    Fd l = listener();
    Address a = name_of(l);
    Fd there;
    std::thread waits([&] { there = Fd(::accept(l.get(), nullptr, nullptr)); });
    usleep(20000);
    Fd here = make();
    EXPECT_EQ(::connect(here.get(), a.get(), a.len), 0);
    waits.join();
    EXPECT_TRUE(there);
}

TEST_P(Connect, AcceptTimesOut) {
    Fd l = listener();
    timeval tv{0, 50000};
    ASSERT_EQ(::setsockopt(l.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
    EXPECT_EQ(ERRNO_OF(::accept(l.get(), nullptr, nullptr)), EAGAIN);
}

TEST_P(Connect, Many) {
    Fd l = listener(64);
    Address a = name_of(l);
    std::vector<Fd> here, there;
    for (int i = 0; i < 32; i++) {
        here.push_back(make());
        ASSERT_EQ(::connect(here.back().get(), a.get(), a.len), 0);
    }
    for (int i = 0; i < 32; i++)
        there.emplace_back(::accept(l.get(), nullptr, nullptr));
    for (int i = 0; i < 32; i++) {
        ASSERT_TRUE(there[i]);
        ASSERT_TRUE(send_all(here[i], pattern(100, static_cast<uint8_t>(i))));
    }
    for (const Fd &fd : there) {
        std::vector<uint8_t> got = receive(fd, 100);
        ASSERT_EQ(got.size(), 100U);
        EXPECT_EQ(got, pattern(100, got[0]));
    }
}

TEST_P(Connect, MoreThanTheBacklog) {
    Fd l = listener(0);
    Address a = name_of(l);
    std::vector<Fd> here, there;
    for (int i = 0; i < 5; i++) {
        here.push_back(make(SOCK_NONBLOCK));
        ASSERT_EQ(ERRNO_OF(::connect(here.back().get(), a.get(), a.len)), EINPROGRESS);
    }
    usleep(300000);
    /* those that had no room come when there is some; TCP's with a cookie when they say something
     */
    Call accepting([&] {
        while (there.size() < here.size())
            there.emplace_back(::accept(l.get(), nullptr, nullptr));
        return 0;
    });
    for (Fd &fd : here) {
        EXPECT_TRUE(eventually([&] { return (events(fd, POLLOUT) & POLLOUT) != 0; }));
        EXPECT_EQ(option(fd, SOL_SOCKET, SO_ERROR), 0);
        EXPECT_TRUE(send_all(fd, pattern(10)));
    }
    EXPECT_EQ(accepting.ret(), 0);
    for (Fd &fd : there)
        EXPECT_EQ(receive(fd, 10), pattern(10));
}

TEST_P(Connect, ListenerCloses) {
    Fd l = listener();
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    l.reset();
    /* nobody will ever accept it */
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(here.get(), &c, 1, 0)), ECONNRESET);
}

TEST_P(Connect, ListenerShutDown) {
    Fd l = listener();
    Fd there;
    int err = 0;
    std::thread waits([&] { err = ERRNO_OF(::accept(l.get(), nullptr, nullptr)); });
    usleep(20000);
    EXPECT_EQ(::shutdown(l.get(), SHUT_RD), 0);
    waits.join();
    EXPECT_EQ(err, EINVAL);
    EXPECT_EQ(option(l, SOL_SOCKET, SO_ACCEPTCONN), 0);
    EXPECT_EQ(events(l, POLLIN) & POLLHUP, POLLHUP);
    EXPECT_EQ(::listen(l.get(), 8), 0);
    Address a = name_of(l);
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), 0);
    there = Fd(::accept(l.get(), nullptr, nullptr));
    EXPECT_TRUE(there);
}

TEST_P(Connect, Unspec) {
    Pair p = connected();
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    EXPECT_EQ(ERRNO_OF(::connect(p.here.get(), &none, sizeof(none))), 0);
    Address a;
    a.len = sizeof(a.storage);
    EXPECT_EQ(ERRNO_OF(::getpeername(p.here.get(), a.get(), &a.len)), ENOTCONN);
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, 0)), ECONNRESET);
    Fd l = listener();
    a = name_of(l);
    EXPECT_EQ(ERRNO_OF(::connect(p.here.get(), a.get(), a.len)), 0);
}

TEST_P(Connect, OptionsAreInherited) {
    Fd l = listener();
    int on = 1, low = 5;
    timeval tv{7, 0};
    linger lg{1, 9};
    ASSERT_EQ(::setsockopt(l.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)), 0);
    ASSERT_EQ(::setsockopt(l.get(), SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)), 0);
    ASSERT_EQ(::setsockopt(l.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
    ASSERT_EQ(::setsockopt(l.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(option(there, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(there, SOL_SOCKET, SO_RCVLOWAT), 5);
    socklen_t len = sizeof(tv);
    tv = {};
    ASSERT_EQ(::getsockopt(there.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, &len), 0);
    EXPECT_EQ(tv.tv_sec, 7);
    len = sizeof(lg);
    lg = {};
    ASSERT_EQ(::getsockopt(there.get(), SOL_SOCKET, SO_LINGER, &lg, &len), 0);
    EXPECT_EQ(lg.l_linger, 9);
}

/* One that goes nowhere: the queue is full, and nobody takes anything from it. */
static void nowhere(const Fd &l, std::vector<Fd> &fill, int protocol) {
    Address a = name_of(l);
    /* TCP has room for more */
    for (int i = 0; i < (protocol ? 1 : 3); i++) {
        fill.emplace_back(::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK, protocol));
        ::connect(fill.back().get(), a.get(), a.len);
    }
    usleep(200000);
}

TEST_P(Connect, ShutdownEndsAll) {
    /* TCP's, which does not answer a Hello, where Hello comes by TCP */
    int protocol = GetParam().host ? GetParam().protocol : 0;
    Fd l(::socket(GetParam().address, SOCK_STREAM, protocol));
    Address a = loopback();
    ASSERT_EQ(::bind(l.get(), a.get(), a.len), 0);
    ASSERT_EQ(::listen(l.get(), 0), 0);
    a = name_of(l);
    std::vector<Fd> fill;
    nowhere(l, fill, protocol);
    Fd here = make(SOCK_NONBLOCK);
    ASSERT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), EINPROGRESS);
    set_nonblocking(here, false);
    std::vector<uint8_t> octets = pattern(100);
    int sent = 0, got = 0;
    std::thread sends([&] { sent = ERRNO_OF(::send(here.get(), octets.data(), 100, 0)); });
    std::thread reads([&] {
        char c;
        got = ERRNO_OF(::recv(here.get(), &c, 1, 0));
    });
    usleep(100000);
    EXPECT_EQ(::shutdown(here.get(), SHUT_RDWR), 0);
    sends.join();
    reads.join();
    /* who comes first learns of the reset, with TCP */
    EXPECT_NE(sent, 0);
    EXPECT_NE(got, 0);
    /* and the socket can be used again */
    Fd other = listener();
    a = name_of(other);
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), 0);
    EXPECT_TRUE(send_all(here, octets));
}

TEST_P(Connect, UnspecOfAListener) {
    Fd l = listener(), was = listener();
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    EXPECT_EQ(ERRNO_OF(::connect(was.get(), &none, sizeof(none))), 0);
    EXPECT_EQ(ERRNO_OF(::accept(was.get(), nullptr, nullptr)), EINVAL);
    Address a = name_of(l);
    ASSERT_EQ(ERRNO_OF(::connect(was.get(), a.get(), a.len)), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(events(was, POLLIN | POLLOUT), POLLOUT);
    ASSERT_TRUE(send_all(there, pattern(10)));
    EXPECT_EQ(receive(was, 10), pattern(10));
}

TEST_P(Connect, ListenersThatGo) {
    for (int i = 0; i < 40; i++) {
        Fd l = listener();
        Address a = name_of(l);
        std::vector<Fd> here;
        for (int j = 0; j < 8; j++) {
            here.push_back(make(SOCK_NONBLOCK));
            ASSERT_EQ(ERRNO_OF(::connect(here.back().get(), a.get(), a.len)), EINPROGRESS);
        }
        usleep(static_cast<useconds_t>(i % 7) * 1000);
    }
}

} // namespace softwarp::sockets
