// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Ends, in any order: who still has what, and which error comes when
 */
#include <cerrno>

#include <poll.h>
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(End);

static constexpr short kAll = POLLIN | POLLOUT | POLLRDHUP;

static int send_one(const Fd &fd) {
    return ERRNO_OF(::send(fd.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
}

/* An octet's worth: 1, 0 at the end, or minus the errno */
static int receive_one(const Fd &fd) {
    char c;
    ssize_t ret = ::recv(fd.get(), &c, 1, MSG_DONTWAIT);
    return ret < 0 ? -errno : static_cast<int>(ret);
}

static bool there_are(const Fd &fd, int octets) {
    return eventually([&] {
        int n = 0;
        return ::ioctl(fd.get(), SIOCINQ, &n) == 0 && n == octets;
    });
}

/* shutdown() ----------------------------------------------------------------------------- */

TEST_P(End, NothingMoreIsSaid) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(send_one(p.here), EPIPE);
    EXPECT_EQ(receive_one(p.here), -EAGAIN);
    EXPECT_EQ(events(p.here, kAll), POLLOUT);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    EXPECT_EQ(receive_one(p.there), 0);
    EXPECT_EQ(send_one(p.there), 0);
    EXPECT_TRUE(eventually([&] { return receive_one(p.here) == 1; }));
}

TEST_P(End, NothingMoreIsHeard) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.there, pattern(1)));
    ASSERT_EQ(events(p.here, POLLIN, 10000), POLLIN);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_RD), 0);
    /* but what is there */
    EXPECT_EQ(receive_one(p.here), 1);
    EXPECT_EQ(receive_one(p.here), 0);
    EXPECT_EQ(events(p.here, kAll), kAll);
    EXPECT_EQ(send_one(p.here), 0);
    /* and the other end does not know */
    EXPECT_TRUE(eventually([&] { return receive_one(p.there) == 1; }));
    EXPECT_EQ(send_one(p.there), 0);
    EXPECT_EQ(events(p.there, kAll), POLLOUT);
}

TEST_P(End, Both) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_RDWR), 0);
    EXPECT_EQ(send_one(p.here), EPIPE);
    EXPECT_EQ(receive_one(p.here), 0);
    EXPECT_EQ(events(p.here, kAll), kAll | POLLHUP);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    EXPECT_EQ(events(p.there, kAll), kAll);
    EXPECT_EQ(receive_one(p.there), 0);
}

TEST_P(End, OneAfterTheOther) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_RD), 0);
    EXPECT_EQ(events(p.here, kAll), kAll);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(events(p.here, kAll), kAll | POLLHUP);
    EXPECT_EQ(send_one(p.here), EPIPE);
    EXPECT_EQ(receive_one(p.here), 0);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
}

/* shutdown() of a connection that has ended, and of what never was one */
TEST_P(End, ShutdownOfNothing) {
    Pair p = connected();
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    ASSERT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    ASSERT_EQ(::shutdown(p.there.get(), SHUT_WR), 0);
    /* each learns of it in its own time */
    for (const Fd *fd : {&p.here, &p.there})
        EXPECT_TRUE(
            eventually([&] { return ERRNO_OF(::shutdown(fd->get(), SHUT_RDWR)) == ENOTCONN; }));
    Fd fd = make();
    for (int how : {SHUT_RD, SHUT_WR, SHUT_RDWR})
        EXPECT_EQ(ERRNO_OF(::shutdown(fd.get(), how)), ENOTCONN);
    for (int how : {-1, 3})
        EXPECT_EQ(ERRNO_OF(::shutdown(fd.get(), how)), EINVAL);
}

TEST_P(End, ShutdownOfAListenersSending) {
    Fd l = listener();
    EXPECT_EQ(::shutdown(l.get(), SHUT_WR), 0);
    EXPECT_EQ(option(l, SOL_SOCKET, SO_ACCEPTCONN), 1);
    dial(name_of(l));
    EXPECT_EQ(errno, 0);
    EXPECT_TRUE(Fd(::accept(l.get(), nullptr, nullptr)));
}

TEST_P(End, NoConnectAfterShutdown) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    ASSERT_EQ(::shutdown(here.get(), SHUT_RDWR), 0);
    EXPECT_EQ(connect_to(here, name_of(l)), EISCONN);
}

TEST_P(End, ZeroOctetsBehindTheEnd) {
    Pair p = connected();
    char c = 0;
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(ERRNO_OF(::send(p.here.get(), &c, 0, MSG_NOSIGNAL)), EPIPE);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    EXPECT_EQ(::recv(p.there.get(), &c, 0, 0), 0);
    EXPECT_EQ(::send(p.there.get(), &c, 0, MSG_NOSIGNAL), 0);
}

/* What was said before the end comes before it. */
TEST_P(End, AllBeforeTheEnd) {
    for (int how : {SHUT_WR, SHUT_RDWR}) {
        Pair p = connected();
        std::vector<uint8_t> octets = pattern(300000), got;
        Call reads([&] {
            got = receive(p.there, octets.size() + 1);
            return 0;
        });
        ASSERT_TRUE(send_all(p.here, octets));
        ASSERT_EQ(::shutdown(p.here.get(), how), 0);
        reads.ret();
        EXPECT_TRUE(got == octets);
    }
}

TEST_P(End, QueuedAtClose) {
    Pair p = connected();
    size_t full = fill(p.here);
    p.here.reset();
    usleep(20000);
    EXPECT_TRUE(receive(p.there, full + 1) == repeated(full));
    EXPECT_EQ(receive_one(p.there), 0);
}

TEST_P(End, QueuedAtExit) {
    Pair p = connected();
    std::vector<uint8_t> octets = pattern(60000);
    EXPECT_EQ(in_child([&] { return send_all(p.here, octets) ? 0 : 1; }), 0);
    p.here.reset();
    EXPECT_EQ(receive(p.there, 60001), octets);
}

/* Held back for more octets, which do not come any more */
TEST_P(End, HeldBackAtClose) {
    for (bool half : {true, false}) {
        Pair p = connected();
        ASSERT_EQ(::send(p.here.get(), pattern(50).data(), 50, MSG_MORE), 50);
        Stopwatch watch;
        if (half)
            ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
        else
            p.here.reset();
        EXPECT_EQ(receive(p.there, 51), pattern(50));
    }
}

/* Resets ---------------------------------------------------------------------------------- */

TEST_P(End, DataBeforeAReset) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_TRUE(there_are(p.there, 100));
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return (events(p.there, 0) & POLLERR) != 0; }));
    EXPECT_EQ(events(p.there, kAll), kAll | POLLERR | POLLHUP);
    EXPECT_EQ(receive(p.there, 100), pattern(100));
    EXPECT_EQ(receive_one(p.there), -ECONNRESET);
    EXPECT_EQ(receive_one(p.there), 0);
}

/* Who sends first gets the error first, and only once. */
TEST_P(End, SendAfterAReset) {
    Pair p = connected();
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return (events(p.there, 0) & POLLERR) != 0; }));
    EXPECT_EQ(send_one(p.there), ECONNRESET);
    EXPECT_EQ(send_one(p.there), EPIPE);
    EXPECT_EQ(receive_one(p.there), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), 0);
}

/* The error of a reset is not SIGPIPE's, the next one is. */
TEST_P(End, SignalAfterAReset) {
    Pair p = connected();
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return (events(p.there, 0) & POLLERR) != 0; }));
    EXPECT_EQ(in_child([&] {
                  std::signal(SIGPIPE, SIG_DFL);
                  return ERRNO_OF(::send(p.there.get(), "x", 1, 0));
              }),
              ECONNRESET);
    EXPECT_EQ(in_child([&] {
                  std::signal(SIGPIPE, SIG_DFL);
                  ::send(p.there.get(), "x", 1, MSG_NOSIGNAL);
                  return static_cast<int>(::write(p.there.get(), "x", 1));
              }),
              -SIGPIPE);
}

/* A peer that has said its last word, and then gets one from us */
TEST_P(End, WordForOneThatIsGone) {
    Pair p = connected();
    p.here.reset();
    ASSERT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    EXPECT_EQ(send_one(p.there), 0);
    EXPECT_TRUE(eventually([&] { return (events(p.there, 0) & POLLERR) != 0; }));
    /* its end was read, or is to be: not an error of reading */
    EXPECT_EQ(receive_one(p.there), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), EPIPE);
    EXPECT_EQ(send_one(p.there), EPIPE);
}

TEST_P(End, ReadInPartIsAReset) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.there, pattern(10)));
    ASSERT_TRUE(there_are(p.here, 10));
    EXPECT_EQ(receive_one(p.here), 1);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return receive_one(p.there) == -ECONNRESET; }));
}

TEST_P(End, PeekedAtIsUnread) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.there, pattern(10)));
    ASSERT_TRUE(there_are(p.here, 10));
    char all[10];
    EXPECT_EQ(::recv(p.here.get(), all, 10, MSG_PEEK), 10);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return receive_one(p.there) == -ECONNRESET; }));
}

TEST_P(End, AllReadIsNone) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.there, pattern(10000)));
    EXPECT_EQ(receive(p.here, 10000), pattern(10000));
    p.here.reset();
    char c;
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_ERROR), 0);
}

/* The octets that come when nobody can read them any more */
TEST_P(End, TooLateIsAReset) {
    Pair p = connected();
    p.here.reset();
    usleep(10000);
    EXPECT_TRUE(eventually([&] { return send_one(p.there) == EPIPE; }));
}

TEST_P(End, ResetOfAWriter) {
    Pair p = connected();
    fill(p.here);
    set_nonblocking(p.here, false);
    Call call([&] { return ::send(p.here.get(), "x", 1, MSG_NOSIGNAL); });
    ASSERT_TRUE(call.sleeps());
    p.there.reset();
    EXPECT_EQ(call.error(), ECONNRESET);
}

TEST_P(End, OfTheConnectionOfAWriter) {
    Pair p = connected();
    fill(p.here);
    set_nonblocking(p.here, false);
    Call call([&] { return ::send(p.here.get(), "x", 1, MSG_NOSIGNAL); });
    ASSERT_TRUE(call.sleeps());
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(call.error(), EPIPE);
}

TEST_P(End, UnspecWakesAll) {
    Pair p = connected();
    fill(p.here);
    set_nonblocking(p.here, false);
    Call sends([&] { return ::send(p.here.get(), "x", 1, MSG_NOSIGNAL); });
    Call reads([&] {
        char c;
        return ::recv(p.here.get(), &c, 1, 0);
    });
    ASSERT_TRUE(sends.sleeps());
    ASSERT_TRUE(reads.sleeps());
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    ASSERT_EQ(::connect(p.here.get(), &none, sizeof(none)), 0);
    EXPECT_LT(sends.ret(), 0);
    EXPECT_LE(reads.ret(), 0);
    EXPECT_NE(sends.error(), EINTR);
    EXPECT_TRUE(eventually([&] { return events(p.there, 0) == (POLLERR | POLLHUP); }));
}

/* close() ----------------------------------------------------------------------------------- */

TEST_P(End, LingersForThatLong) {
    Pair p = connected();
    fill(p.here);
    set_linger(p.here, 1);
    Stopwatch watch;
    p.here.reset();
    EXPECT_GE(watch.ms(), 950);
    EXPECT_LT(watch.ms(), 15000);
}

TEST_P(End, LingersNoLongerThanNeeded) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(1000)));
    set_linger(p.here, 100);
    Stopwatch watch;
    p.here.reset();
    EXPECT_LT(watch.ms(), 20000);
    EXPECT_EQ(receive(p.there, 1001), pattern(1000));
}

TEST_P(End, LingersUntilAllIsRead) {
    Pair p = connected();
    size_t full = fill(p.here);
    set_linger(p.here, 100);
    Call closes([&] { return p.here.reset(), 0; });
    ASSERT_TRUE(closes.sleeps());
    EXPECT_TRUE(receive(p.there, full + 1) == repeated(full));
    EXPECT_EQ(closes.ret(), 0);
}

TEST_P(End, ExitDoesNotLinger) {
    Pair p = connected();
    fill(p.here);
    set_linger(p.here, 100);
    pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    /* the child has the last descriptor when we are through with ours */
    Fd other(::dup(p.here.get()));
    p.here = Fd();
    other.reset();
    Stopwatch watch;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_LT(watch.ms(), 20000);
}

TEST_P(End, LastDescriptor) {
    Pair p = connected();
    Fd other(::dup(p.here.get()));
    p.here.reset();
    ASSERT_TRUE(send_all(other, pattern(10)));
    EXPECT_EQ(receive(p.there, 10), pattern(10));
    EXPECT_EQ(events(p.there, POLLIN | POLLRDHUP), 0);
    other.reset();
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
}

TEST_P(End, LastProcess) {
    Pair p = connected();
    int gate[2];
    ASSERT_EQ(::pipe(gate), 0);
    Fd wait(gate[0]), go(gate[1]);
    pid_t child = ::fork();
    if (child == 0) {
        char c;
        go.reset();
        ::read(wait.get(), &c, 1) == 0 && send_all(p.here, pattern(10));
        ::_exit(0);
    }
    p.here.reset();
    EXPECT_EQ(events(p.there, POLLIN | POLLRDHUP, 50), 0);
    go.reset();
    EXPECT_EQ(receive(p.there, 11), pattern(10));
    ::waitpid(child, nullptr, 0);
}

/* It is the connection that is shut down, not a descriptor. */
TEST_P(End, ShutdownByAnotherProcess) {
    Pair p = connected();
    EXPECT_EQ(in_child([&] { return ERRNO_OF(::shutdown(p.here.get(), SHUT_RDWR)); }), 0);
    EXPECT_EQ(send_one(p.here), EPIPE);
    EXPECT_EQ(receive_one(p.here), 0);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
}

/* A thread that sleeps in a call has the socket until it comes back. */
TEST_P(End, CloseBesideAReader) {
    Pair p = connected();
    int fd = p.here.get();
    char c = 0;
    Call call([&] { return ::recv(fd, &c, 1, 0); });
    ASSERT_TRUE(call.sleeps());
    p.here.reset();
    EXPECT_EQ(events(p.there, POLLIN | POLLRDHUP, 50), 0);
    ASSERT_TRUE(call.sleeps());
    EXPECT_EQ(::send(p.there.get(), "y", 1, 0), 1);
    EXPECT_EQ(call.ret(), 1);
    EXPECT_EQ(c, 'y');
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
}

TEST_P(End, CloseBesideAnAcceptor) {
    Fd l = listener();
    Address a = name_of(l);
    int fd = l.get();
    Call call([&] { return ::accept(fd, nullptr, nullptr); });
    ASSERT_TRUE(call.sleeps());
    l.reset();
    Fd here = dial(a);
    EXPECT_EQ(errno, 0);
    Fd there(static_cast<int>(call.ret()));
    ASSERT_TRUE(there);
    dial(a);
    EXPECT_EQ(errno, ECONNREFUSED);
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

TEST_P(End, CloseBesideAWriter) {
    Pair p = connected();
    size_t full = fill(p.here);
    set_nonblocking(p.here, false);
    int fd = p.here.get();
    std::vector<uint8_t> all = repeated(full + 100000);
    Call call([&] { return ::send(fd, all.data() + full, 100000, MSG_NOSIGNAL); });
    ASSERT_TRUE(call.sleeps());
    p.here.reset();
    EXPECT_TRUE(receive(p.there, all.size() + 1) == all);
    EXPECT_EQ(call.ret(), 100000);
}

TEST_P(End, Simultaneous) {
    for (int i = 0; i < 30; i++) {
        Pair p = connected();
        ASSERT_TRUE(send_all(p.here, pattern(10)));
        EXPECT_EQ(receive(p.there, 10), pattern(10));
        Call other([&] { return p.there.reset(), 0; });
        p.here.reset();
        EXPECT_EQ(other.ret(), 0);
    }
}

/* Processes that are killed ------------------------------------------------------------------ */

/* A child that has one end alone, and runs the function */
template<typename Function>
static pid_t child_with(Pair &p, Function function) {
    pid_t child = ::fork();
    if (child == 0) {
        p.there.reset();
        function(p.here);
        ::pause();
        ::_exit(0);
    }
    p.here.reset();
    return child;
}

static void kill_it(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

TEST_P(End, KilledWithUnreadOctets) {
    Pair p = connected();
    pid_t child = child_with(p, [](const Fd &) {});
    ASSERT_TRUE(send_all(p.there, pattern(100)));
    int n = -1;
    EXPECT_TRUE(eventually([&] { return ::ioctl(p.there.get(), SIOCOUTQ, &n) == 0 && n == 0; }));
    kill_it(child);
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, 0)), ECONNRESET);
}

TEST_P(End, KilledWhileItSends) {
    Pair p = connected();
    pid_t child = child_with(p, [](const Fd &fd) {
        for (;;)
            send_all(fd, pattern(8191));
    });
    std::vector<uint8_t> got = receive(p.there, 100000);
    kill_it(child);
    std::vector<uint8_t> rest = receive(p.there, 20 << 20);
    got.insert(got.end(), rest.begin(), rest.end());
    EXPECT_TRUE(got == repeated(got.size()));
    EXPECT_EQ(receive_one(p.there), 0);
}

TEST_P(End, KilledServer) {
    Fd l = listener();
    Address a = name_of(l);
    pid_t child = ::fork();
    if (child == 0) {
        Fd there(::accept(l.get(), nullptr, nullptr));
        ::pause();
        ::_exit(0);
    }
    l.reset();
    Fd here = dial(a), waits = dial(a);
    ASSERT_TRUE(here);
    kill_it(child);
    char c;
    int err = ERRNO_OF(::recv(waits.get(), &c, 1, 0));
    EXPECT_EQ(err, ECONNRESET);
    ssize_t ret = ::recv(here.get(), &c, 1, 0);
    EXPECT_TRUE(ret == 0 || errno == ECONNRESET);
    dial(a);
    EXPECT_EQ(errno, ECONNREFUSED);
}

/* Not accepted yet ----------------------------------------------------------------------------- */

TEST_P(End, SaidBeforeItWasAccepted) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    ASSERT_TRUE(send_all(here, pattern(5000)));
    here.reset();
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    EXPECT_EQ(receive(there, 5001), pattern(5000));
}

TEST_P(End, GoneBeforeItWasAccepted) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    Address a = name_of(here);
    here.reset();
    usleep(20000);
    Address from;
    from.len = sizeof(from.storage);
    Fd there(::accept(l.get(), from.get(), &from.len));
    ASSERT_TRUE(there);
    EXPECT_EQ(from, a);
    char c;
    EXPECT_EQ(::recv(there.get(), &c, 1, 0), 0);
}

TEST_P(End, ResetBeforeItWasAccepted) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    ASSERT_EQ(events(l, POLLIN, 10000), POLLIN);
    ASSERT_TRUE(send_all(here, pattern(10)));
    set_linger(here, 0);
    here.reset();
    usleep(20000);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    std::vector<uint8_t> got = receive(there, 11);
    EXPECT_LE(got.size(), 10U);
    EXPECT_EQ(option(there, SOL_SOCKET, SO_ERROR), 0);
    EXPECT_EQ(send_one(there), EPIPE);
}

TEST_P(End, AcceptedOnesStay) {
    Fd l = listener();
    Fd here = dial(name_of(l)), waits = dial(name_of(l));
    Fd there(::accept(l.get(), nullptr, nullptr));
    l.reset();
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(waits.get(), &c, 1, 0)), ECONNRESET);
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

/* Again and again, with everything that there is to be forgotten */
TEST_P(End, ManyLives) {
    Fd l = listener(64);
    char c;
    for (int i = 0; i < 60; i++) {
        Fd here = dial(name_of(l));
        ASSERT_EQ(errno, 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        if (i % 3 == 0)
            set_linger(here, 0);
        if (i % 2 == 0) {
            ASSERT_TRUE(send_all(there, pattern(100)));
        }
        if (i % 5 == 0) {
            ASSERT_EQ(::shutdown(there.get(), SHUT_WR), 0);
        }
        here.reset();
        ssize_t ret = ::recv(there.get(), &c, 1, 0);
        EXPECT_TRUE(ret == 0 || errno == ECONNRESET);
    }
}

} // namespace softwarp::sockets
