// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Calls that wait, those that do not, for how long, and what ends them before
 */
#include <cerrno>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Waiting);
/* For long, to a listener that is stuck, which is one of TCP's */
SUITE_OF(Connecting, local_kinds());

/*
 * The errno of a call that waits for some time, by a thread of its own: this one may
 * have something to do for a ring of io_uring that is gone, and that ends a wait.
 */
template<typename Function>
static int timed(Function function) {
    return Call(function).error();
}

/* SO_RCVTIMEO and SO_SNDTIMEO -------------------------------------------------------- */

TEST_P(Waiting, TimeoutsAreTold) {
    Fd fd = make();
    for (int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {
        timeval tv{1, 0};
        socklen_t len = sizeof(tv);
        ASSERT_EQ(::getsockopt(fd.get(), SOL_SOCKET, name, &tv, &len), 0);
        EXPECT_EQ(tv.tv_sec + tv.tv_usec, 0);
        set_timeout(fd, name, 2500);
        ASSERT_EQ(::getsockopt(fd.get(), SOL_SOCKET, name, &tv, &len), 0);
        EXPECT_EQ(tv.tv_sec, 2);
        EXPECT_EQ(tv.tv_usec, 500000);
        tv = {0, 1000000};
        EXPECT_EQ(ERRNO_OF(::setsockopt(fd.get(), SOL_SOCKET, name, &tv, sizeof(tv))), EDOM);
        EXPECT_EQ(ERRNO_OF(::setsockopt(fd.get(), SOL_SOCKET, name, &tv, 4)), EINVAL);
    }
}

TEST_P(Waiting, ReceiveWaitsThatLong) {
    Pair p = connected();
    set_timeout(p.here, SO_RCVTIMEO, 120);
    Stopwatch watch;
    char c;
    EXPECT_EQ(timed([&] { return ::recv(p.here.get(), &c, 1, 0); }), EAGAIN);
    EXPECT_GE(watch.ms(), 100);
    EXPECT_EQ(timed([&] { return ::read(p.here.get(), &c, 1); }), EAGAIN);
    /* it is no error of the connection */
    EXPECT_EQ(option(p.here, SOL_SOCKET, SO_ERROR), 0);
    ASSERT_TRUE(send_all(p.there, pattern(1)));
    EXPECT_EQ(receive(p.here, 1), pattern(1));
}

TEST_P(Waiting, AcceptWaitsThatLong) {
    Fd l = listener();
    set_timeout(l, SO_RCVTIMEO, 120);
    Stopwatch watch;
    EXPECT_EQ(timed([&] { return ::accept(l.get(), nullptr, nullptr); }), EAGAIN);
    EXPECT_GE(watch.ms(), 100);
    Fd here = dial(name_of(l));
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_TRUE(there);
}

/* What writers that wait for room have to send is sent, too, when signals take them away. */
TEST_P(Waiting, InterruptedWritersLeaveNothing) {
    take_signal(SIGUSR1);
    Pair p = connected();
    std::vector<uint8_t> much(16 << 20, 'x');
    auto write = [&] { return ::send(p.here.get(), much.data(), much.size(), 0); };
    for (int round = 0; round < 6; round++) {
        Call one(write), two(write);
        EXPECT_TRUE(eventually([&] { return one.sleeps() && two.sleeps(); }));
        size_t read = receive(p.there, 300000).size();
        EXPECT_EQ(read, 300000U);
        one.interrupt(SIGUSR1);
        two.interrupt(SIGUSR1);
        size_t sent = 0;
        for (Call *call : {&one, &two}) {
            if (call->ret() > 0)
                sent += static_cast<size_t>(call->ret());
            else
                EXPECT_EQ(call->error(), EINTR);
        }
        EXPECT_GE(sent, read);
        set_timeout(p.there, SO_RCVTIMEO, 20000);
        EXPECT_EQ(receive(p.there, sent - read).size(), sent - read);
    }
}

TEST_P(Waiting, SendWaitsThatLong) {
    Pair p = connected();
    size_t full = fill(p.here);
    set_nonblocking(p.here, false);
    set_timeout(p.here, SO_SNDTIMEO, 120);
    std::vector<uint8_t> much(8 << 20);
    Stopwatch watch;
    ssize_t ret = ::send(p.here.get(), much.data(), much.size(), 0);
    EXPECT_GE(watch.ms(), 100);
    /* with nothing to be said for it, or some of it sent */
    if (ret < 0)
        EXPECT_EQ(errno, EAGAIN);
    else
        EXPECT_LT(static_cast<size_t>(ret), much.size());
    EXPECT_EQ(receive(p.there, full), repeated(full));
}

/* Some were sent when the time is over: how many is what it returns. */
TEST_P(Waiting, SendTellsHowFarItCame) {
    Pair p = connected();
    set_timeout(p.here, SO_SNDTIMEO, 120);
    std::vector<uint8_t> much = repeated(14 << 20);
    ssize_t ret = ::send(p.here.get(), much.data(), much.size(), 0);
    ASSERT_GT(ret, 0);
    ASSERT_LT(static_cast<size_t>(ret), much.size());
    p.here.reset();
    much.resize(static_cast<size_t>(ret));
    EXPECT_TRUE(receive(p.there, much.size() + 1) == much);
}

TEST_P(Waiting, ReceiveOfAllTellsHowFarItCame) {
    Pair p = connected();
    set_timeout(p.there, SO_RCVTIMEO, 120);
    ASSERT_TRUE(send_all(p.here, pattern(70)));
    std::vector<uint8_t> got(100);
    EXPECT_EQ(::recv(p.there.get(), got.data(), 100, MSG_WAITALL), 70);
    EXPECT_EQ(timed([&] { return ::recv(p.there.get(), got.data(), 100, MSG_WAITALL); }), EAGAIN);
}

TEST_P(Waiting, TimeIsUpBeforeLowWater) {
    Pair p = connected();
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_RCVLOWAT, 50), 0);
    set_timeout(p.there, SO_RCVTIMEO, 120);
    ASSERT_TRUE(send_all(p.here, pattern(20)));
    std::vector<uint8_t> got(100);
    Stopwatch watch;
    EXPECT_EQ(::recv(p.there.get(), got.data(), 100, 0), 20);
    EXPECT_GE(watch.ms(), 100);
}

TEST_P(Waiting, TimeoutOfTheListenerIsTheChilds) {
    Fd l = listener();
    set_timeout(l, SO_RCVTIMEO, 60);
    set_timeout(l, SO_SNDTIMEO, 60);
    Fd here = dial(name_of(l));
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    char c;
    EXPECT_EQ(timed([&] { return ::recv(there.get(), &c, 1, 0); }), EAGAIN);
    fill(there);
    set_nonblocking(there, false);
    EXPECT_EQ(timed([&] { return ::send(there.get(), &c, 1, 0); }), EAGAIN);
}

/* Not waiting --------------------------------------------------------------------------- */

TEST_P(Waiting, FlagOfOneCall) {
    Pair p = connected();
    char c = 0;
    EXPECT_EQ(ERRNO_OF(::recv(p.here.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
    EXPECT_EQ(::fcntl(p.here.get(), F_GETFL) & O_NONBLOCK, 0);
    fill(p.here);
    set_nonblocking(p.here, false);
    EXPECT_EQ(ERRNO_OF(::send(p.here.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
}

TEST_P(Waiting, FlagOfTheFile) {
    Pair p = connected();
    int on = 1;
    ASSERT_EQ(::ioctl(p.here.get(), FIONBIO, &on), 0);
    EXPECT_NE(::fcntl(p.here.get(), F_GETFL) & O_NONBLOCK, 0);
    /* another descriptor of the same file has it, too */
    Fd other(::dup(p.here.get()));
    char c;
    EXPECT_EQ(ERRNO_OF(::read(other.get(), &c, 1)), EAGAIN);
    set_nonblocking(other, false);
    set_timeout(p.here, SO_RCVTIMEO, 60);
    Stopwatch watch;
    EXPECT_EQ(ERRNO_OF(::read(p.here.get(), &c, 1)), EAGAIN);
    EXPECT_GE(watch.ms(), 50);
}

TEST_P(Waiting, AcceptedFlags) {
    Fd l = listener(8, SOCK_NONBLOCK | SOCK_CLOEXEC);
    std::vector<Fd> here;
    for (int i = 0; i < 3; i++)
        here.push_back(dial(name_of(l)));
    auto accept = [&](int flags) {
        EXPECT_EQ(events(l, POLLIN, 10000), POLLIN);
        return Fd(::accept4(l.get(), nullptr, nullptr, flags));
    };
    auto flags_of = [](const Fd &fd) {
        return std::pair(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK,
                         ::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
    };
    /* those of the listener are its own */
    EXPECT_EQ(flags_of(accept(0)), std::pair(0, 0));
    EXPECT_EQ(flags_of(accept(SOCK_NONBLOCK)), std::pair(O_NONBLOCK, 0));
    EXPECT_EQ(ERRNO_OF(::accept4(l.get(), nullptr, nullptr, 1)), EINVAL);
    EXPECT_EQ(flags_of(accept(SOCK_CLOEXEC)), std::pair(0, FD_CLOEXEC));
}

TEST_P(Waiting, AsMuchAsThereIsRoomFor) {
    Pair p = connected();
    std::vector<uint8_t> much = repeated(14 << 20);
    set_nonblocking(p.here);
    ssize_t ret = ::send(p.here.get(), much.data(), much.size(), 0);
    ASSERT_GT(ret, 0);
    ASSERT_LT(static_cast<size_t>(ret), much.size());
    much.resize(static_cast<size_t>(ret));
    EXPECT_TRUE(receive(p.there, much.size()) == much);
    EXPECT_EQ(events(p.there, POLLIN), 0);
}

/* Connecting ------------------------------------------------------------------------------ */

/* To a port where nobody answers: TCP's queue there is full. */
class Stuck {
  public:
    explicit Stuck(const Address &a) : l_(::socket(a.storage.ss_family, SOCK_STREAM, 0)) {
        EXPECT_EQ(bind_to(l_, a), 0);
        EXPECT_EQ(::listen(l_.get(), 0), 0);
        /* one has the place, and the next one never comes through */
        for (int i = 0; i < 3; i++) {
            ahead_.emplace_back(::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
            connect_to(ahead_.back(), where());
            events(ahead_.back(), POLLOUT, i == 0 ? 10000 : 60);
        }
    }
    Address where() const { return name_of(l_); }

  private:
    Fd l_;
    std::vector<Fd> ahead_;
};

TEST_P(Connecting, OnTheWay) {
    Stuck stuck(loopback());
    Fd here = dial(stuck.where(), SOCK_NONBLOCK);
    ASSERT_EQ(errno, EINPROGRESS);
    EXPECT_EQ(connect_to(here, stuck.where()), EALREADY);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
    EXPECT_EQ(events(here, POLLIN | POLLOUT | POLLRDHUP), 0);
    char c = 0;
    EXPECT_EQ(ERRNO_OF(::send(here.get(), &c, 1, MSG_NOSIGNAL)), EAGAIN);
    EXPECT_EQ(ERRNO_OF(::send(here.get(), &c, 0, MSG_NOSIGNAL)), EAGAIN);
    EXPECT_EQ(ERRNO_OF(::recv(here.get(), &c, 1, 0)), EAGAIN);
    Address a;
    a.len = sizeof(a.storage);
    EXPECT_EQ(ERRNO_OF(::getpeername(here.get(), a.get(), &a.len)), ENOTCONN);
    EXPECT_NE(name_of(here).port(), 0);
    EXPECT_EQ(ERRNO_OF(::listen(here.get(), 1)), EINVAL);
    EXPECT_EQ(bind_to(here, loopback()), EINVAL);
    EXPECT_EQ(ERRNO_OF(::accept(here.get(), nullptr, nullptr)), EINVAL);
}

TEST_P(Connecting, ConnectWaitsThatLong) {
    Stuck stuck(loopback());
    Fd here = make();
    set_timeout(here, SO_SNDTIMEO, 120);
    Stopwatch watch;
    EXPECT_EQ(connect_to(here, stuck.where()), EINPROGRESS);
    EXPECT_GE(watch.ms(), 100);
    /* it goes on */
    EXPECT_EQ(connect_to(here, stuck.where()), EALREADY);
    EXPECT_GE(watch.ms(), 200);
    /* and is given up by that */
    EXPECT_EQ(::shutdown(here.get(), SHUT_RDWR), 0);
    Fd l = listener();
    EXPECT_EQ(connect_to(here, name_of(l)), 0);
}

TEST_P(Connecting, ConnectIsInterrupted) {
    Stuck stuck(loopback());
    for (bool restart : {false, true}) {
        take_signal(SIGUSR1, restart);
        Fd here = make();
        Call call([&] { return ::connect(here.get(), stuck.where().get(), stuck.where().len); });
        ASSERT_TRUE(call.sleeps());
        call.interrupt(SIGUSR1);
        if (restart) {
            /* it goes on by itself, until something else ends it */
            usleep(50000);
            EXPECT_TRUE(call.sleeps());
            ASSERT_EQ(::shutdown(here.get(), SHUT_RDWR), 0);
            EXPECT_NE(call.error(), EINTR);
            EXPECT_NE(call.error(), 0);
            continue;
        }
        EXPECT_EQ(call.error(), EINTR);
        set_nonblocking(here);
        EXPECT_EQ(connect_to(here, stuck.where()), EALREADY);
        EXPECT_EQ(events(here, POLLIN | POLLOUT), 0);
    }
}

TEST_P(Waiting, BlockingConnectOfOneOnTheWay) {
    Fd l = listener();
    for (int i = 0; i < 10; i++) {
        Fd here = dial(name_of(l), SOCK_NONBLOCK);
        ASSERT_EQ(errno, EINPROGRESS);
        set_nonblocking(here, false);
        int err = connect_to(here, name_of(l));
        EXPECT_EQ(err, 0);
        EXPECT_EQ(connect_to(here, name_of(l)), EISCONN);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
    }
}

/* A program that sends at once: that waits for the connection. */
TEST_P(Waiting, SendOfOneOnTheWay) {
    Fd l = listener();
    for (int i = 0; i < 10; i++) {
        Fd here = dial(name_of(l), SOCK_NONBLOCK);
        ASSERT_EQ(errno, EINPROGRESS);
        set_nonblocking(here, false);
        EXPECT_TRUE(send_all(here, pattern(100)));
        Fd there(::accept(l.get(), nullptr, nullptr));
        EXPECT_EQ(receive(there, 100), pattern(100));
    }
}

TEST_P(Waiting, ReceiveOfOneOnTheWay) {
    Fd l = listener();
    Fd here = dial(name_of(l), SOCK_NONBLOCK);
    ASSERT_EQ(errno, EINPROGRESS);
    set_nonblocking(here, false);
    Call call([&] {
        char c;
        return ::recv(here.get(), &c, 1, 0);
    });
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(there, pattern(1)));
    EXPECT_EQ(call.ret(), 1);
}

/* The error of an attempt is told once, to who asks first. */
TEST_P(Waiting, RefusalIsToldOnce) {
    auto refused = [&] {
        Fd here = dial(loopback(1), SOCK_NONBLOCK);
        EXPECT_EQ(errno, EINPROGRESS);
        EXPECT_TRUE(eventually([&] { return (events(here, POLLOUT) & POLLHUP) != 0; }));
        return here;
    };
    char c = 0;
    Fd here = refused();
    EXPECT_EQ(ERRNO_OF(::recv(here.get(), &c, 1, 0)), ECONNREFUSED);
    EXPECT_EQ(::recv(here.get(), &c, 1, 0), 0);
    EXPECT_EQ(events(here, POLLOUT) & POLLERR, 0);
    here = refused();
    EXPECT_EQ(ERRNO_OF(::send(here.get(), &c, 1, 0)), ECONNREFUSED);
    EXPECT_EQ(ERRNO_OF(::send(here.get(), &c, 1, 0)), EPIPE);
    here = refused();
    EXPECT_EQ(connect_to(here, loopback(1)), ECONNREFUSED);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
    here = refused();
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    EXPECT_EQ(connect_to(here, loopback(1)), ECONNABORTED);
}

TEST_P(Waiting, AnotherAttempt) {
    Fd l = listener();
    Fd here = dial(loopback(1), SOCK_NONBLOCK);
    EXPECT_TRUE(eventually([&] { return (events(here, POLLOUT) & POLLHUP) != 0; }));
    EXPECT_EQ(connect_to(here, loopback(1)), ECONNREFUSED);
    ASSERT_EQ(connect_to(here, name_of(l)), EINPROGRESS);
    EXPECT_TRUE(eventually([&] { return events(here, POLLOUT) == POLLOUT; }));
    EXPECT_EQ(connect_to(here, name_of(l)), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

/* Signals ----------------------------------------------------------------------------------- */

static long receive_one(const Fd &fd) {
    char c;
    return ::recv(fd.get(), &c, 1, 0);
}

TEST_P(Waiting, ReceiveIsRestarted) {
    Pair p = connected();
    take_signal(SIGUSR1, true);
    Call call([&] { return receive_one(p.here); });
    for (int i = 0; i < 3; i++) {
        ASSERT_TRUE(call.sleeps());
        call.interrupt(SIGUSR1);
        usleep(10000);
    }
    EXPECT_TRUE(call.sleeps());
    ASSERT_TRUE(send_all(p.there, pattern(1)));
    EXPECT_EQ(call.ret(), 1);
}

/* With a time, a restart would make it longer. */
TEST_P(Waiting, TimedReceiveIsNotRestarted) {
    Pair p = connected();
    take_signal(SIGUSR1, true);
    set_timeout(p.here, SO_RCVTIMEO, 100000);
    Call call([&] { return receive_one(p.here); });
    ASSERT_TRUE(call.sleeps());
    call.interrupt(SIGUSR1);
    EXPECT_EQ(call.error(), EINTR);
}

TEST_P(Waiting, AcceptAndSignals) {
    Fd l = listener();
    take_signal(SIGUSR1);
    {
        Call call([&] { return ::accept(l.get(), nullptr, nullptr); });
        ASSERT_TRUE(call.sleeps());
        call.interrupt(SIGUSR1);
        EXPECT_EQ(call.error(), EINTR);
    }
    take_signal(SIGUSR1, true);
    Call call([&] { return ::accept(l.get(), nullptr, nullptr); });
    ASSERT_TRUE(call.sleeps());
    call.interrupt(SIGUSR1);
    usleep(10000);
    ASSERT_TRUE(call.sleeps());
    Fd here = dial(name_of(l));
    Fd there(static_cast<int>(call.ret()));
    EXPECT_TRUE(there);
    set_timeout(l, SO_RCVTIMEO, 100000);
    Call timed([&] { return ::accept(l.get(), nullptr, nullptr); });
    ASSERT_TRUE(timed.sleeps());
    timed.interrupt(SIGUSR1);
    EXPECT_EQ(timed.error(), EINTR);
}

TEST_P(Waiting, SendAndSignals) {
    Pair p = connected();
    fill(p.here);
    set_nonblocking(p.here, false);
    take_signal(SIGUSR1);
    auto send_one = [&] { return ::send(p.here.get(), "x", 1, 0); };
    {
        Call call(send_one);
        ASSERT_TRUE(call.sleeps());
        call.interrupt(SIGUSR1);
        EXPECT_EQ(call.error(), EINTR);
    }
    take_signal(SIGUSR1, true);
    {
        Call call(send_one);
        ASSERT_TRUE(call.sleeps());
        call.interrupt(SIGUSR1);
        usleep(10000);
        ASSERT_TRUE(call.sleeps());
        set_nonblocking(p.there);
        std::vector<uint8_t> got(65536);
        EXPECT_TRUE(eventually([&] {
            while (::recv(p.there.get(), got.data(), got.size(), 0) > 0)
                ;
            return call.done();
        }));
        EXPECT_EQ(call.ret(), 1);
    }
}

/* Part of it is said already: that is what it returns. */
TEST_P(Waiting, SignalInTheMiddleOfSending) {
    Pair p = connected();
    take_signal(SIGUSR1, true);
    std::vector<uint8_t> much = repeated(14 << 20);
    Call call([&] { return ::send(p.here.get(), much.data(), much.size(), 0); });
    usleep(50000);
    ASSERT_TRUE(call.sleeps());
    call.interrupt(SIGUSR1);
    long sent = call.ret();
    ASSERT_GT(sent, 0);
    ASSERT_LT(static_cast<size_t>(sent), much.size());
    p.here.reset();
    much.resize(static_cast<size_t>(sent));
    EXPECT_TRUE(receive(p.there, much.size() + 1) == much);
}

TEST_P(Waiting, SignalInTheMiddleOfReceiving) {
    Pair p = connected();
    take_signal(SIGUSR1, true);
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    std::vector<uint8_t> got(200);
    Call call([&] { return ::recv(p.there.get(), got.data(), got.size(), MSG_WAITALL); });
    ASSERT_TRUE(call.sleeps());
    call.interrupt(SIGUSR1);
    EXPECT_EQ(call.ret(), 100);
    got.resize(100);
    EXPECT_EQ(got, pattern(100));
}

TEST_P(Connecting, KilledInEachCall) {
    Pair p = connected(), q = connected();
    Fd l = listener();
    fill(q.here);
    set_nonblocking(q.here, false);
    Stuck stuck(loopback());
    for (int which = 0; which < 4; which++) {
        pid_t child = ::fork();
        if (child == 0) {
            char c = 0;
            if (which == 0)
                ::recv(p.here.get(), &c, 1, 0);
            else if (which == 1)
                ::send(q.here.get(), &c, 1, 0);
            else if (which == 2)
                ::accept(l.get(), nullptr, nullptr);
            else
                dial(stuck.where());
            ::_exit(1);
        }
        usleep(20000);
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFSIGNALED(status)) << which;
    }
    /* they are as they were for others */
    ASSERT_TRUE(send_all(p.there, pattern(10)));
    EXPECT_EQ(receive(p.here, 10), pattern(10));
}

/* Interval timers go on while a stream is read: no octet is lost by that. */
TEST_P(Waiting, StormOfSignals) {
    Pair p = connected();
    take_signal(SIGUSR1, true);
    std::vector<uint8_t> octets = pattern(2000000), got;
    std::atomic<bool> done = false;
    Call sends([&] { return send_all(p.here, octets) ? 0 : -1; });
    Call reads([&] {
        got = receive(p.there, octets.size());
        return 0;
    });
    std::thread storm([&] {
        while (!done) {
            sends.interrupt(SIGUSR1);
            reads.interrupt(SIGUSR1);
            usleep(200);
        }
    });
    EXPECT_TRUE(eventually([&] { return sends.done() && reads.done(); }));
    done = true;
    storm.join();
    EXPECT_EQ(sends.ret(), 0);
    EXPECT_TRUE(got == octets);
}

} // namespace softwarp::sockets
