// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * TCP_DEFER_ACCEPT: a connection is there for accept() when its first octets are
 */
#include <cerrno>

#include <netinet/tcp.h>
#include <poll.h>

#include "kinds.hpp"

namespace softwarp::sockets {

class Defer : public Sockets {
  protected:
    Fd patient(int seconds) const {
        Fd l = make();
        EXPECT_EQ(set(l, SOL_TCP, TCP_DEFER_ACCEPT, seconds), 0);
        EXPECT_EQ(bind_to(l, loopback()), 0);
        EXPECT_EQ(::listen(l.get(), 8), 0);
        set_nonblocking(l);
        return l;
    }
    static Fd accepted(const Fd &l) { return Fd(::accept(l.get(), nullptr, nullptr)); }
};
INSTANTIATE_TEST_SUITE_P(All, Defer, testing::ValuesIn(all_kinds()), name_of_kind);

TEST_P(Defer, UntilOctetsCome) {
    Fd l = patient(20);
    EXPECT_GE(option(l, SOL_TCP, TCP_DEFER_ACCEPT), 20);
    Fd here = dial(name_of(l)), silent = dial(name_of(l));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(events(l, POLLIN, 300), 0);
    EXPECT_FALSE(accepted(l));
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_TRUE(send_all(here, pattern(10)));
    ASSERT_EQ(events(l, POLLIN, 10000), POLLIN);
    Fd there = accepted(l);
    ASSERT_TRUE(there);
    EXPECT_EQ(peer_of(there), name_of(here));
    EXPECT_EQ(receive(there, 10), pattern(10));
    EXPECT_FALSE(accepted(l));
    ASSERT_TRUE(send_all(there, pattern(10)));
    EXPECT_EQ(receive(here, 10), pattern(10));
}

/* A call that sleeps is woken then. */
TEST_P(Defer, ACallSleeps) {
    Fd l = patient(20);
    set_nonblocking(l, false);
    Call call([&] { return ::accept(l.get(), nullptr, nullptr); });
    Fd here = dial(name_of(l));
    usleep(100000);
    EXPECT_TRUE(call.sleeps());
    ASSERT_TRUE(send_all(here, pattern(10)));
    Fd there(static_cast<int>(call.ret()));
    ASSERT_TRUE(there);
    EXPECT_EQ(receive(there, 10), pattern(10));
}

TEST_P(Defer, UntilTheTimeIsOver) {
    Fd l = patient(1);
    Stopwatch watch;
    Fd here = dial(name_of(l));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(events(l, POLLIN, 300), 0);
    ASSERT_EQ(events(l, POLLIN, 20000), POLLIN);
    EXPECT_GE(watch.ms(), 900);
    Fd there = accepted(l);
    ASSERT_TRUE(there);
    ASSERT_TRUE(send_all(there, pattern(10)));
    EXPECT_EQ(receive(here, 10), pattern(10));
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

/* The end of a stream is something to read, too. */
TEST_P(Defer, UntilTheEnd) {
    Fd l = patient(20);
    Fd here = dial(name_of(l));
    EXPECT_EQ(events(l, POLLIN, 100), 0);
    ASSERT_EQ(::shutdown(here.get(), SHUT_WR), 0);
    ASSERT_EQ(events(l, POLLIN, 10000), POLLIN);
    Fd there = accepted(l);
    ASSERT_TRUE(there);
    EXPECT_TRUE(receive(there, 1).empty());
    ASSERT_TRUE(send_all(there, pattern(10)));
    EXPECT_EQ(receive(here, 10), pattern(10));
}

/* One that is reset meanwhile never was. */
TEST_P(Defer, Reset) {
    Fd l = patient(20);
    Fd here = dial(name_of(l));
    EXPECT_EQ(events(l, POLLIN, 100), 0);
    set_linger(here, 0);
    here.reset();
    EXPECT_EQ(events(l, POLLIN, 300), 0);
    EXPECT_FALSE(accepted(l));
}

/* The listener goes, and those that wait with it. */
TEST_P(Defer, ListenerEnds) {
    Fd l = patient(20);
    Fd here = dial(name_of(l));
    EXPECT_EQ(events(l, POLLIN, 100), 0);
    l.reset();
    /* TCP's peer knows when it has sent something */
    char c = 1;
    int error = ERRNO_OF(::send(here.get(), &c, 1, MSG_NOSIGNAL));
    if (error == 0)
        error = ERRNO_OF(::recv(here.get(), &c, 1, 0));
    EXPECT_EQ(error, ECONNRESET);
}

} // namespace softwarp::sockets
