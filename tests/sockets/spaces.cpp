// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Network namespaces: a socket is of the one in which it was made.
 */
#include <cerrno>

#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE_OF(Spaces, local_kinds());

/* The function's result, by a thread in a namespace of its own that has loopback */
template<typename Function>
static long elsewhere(Function function) {
    return Call([&] {
               Fd fd;
               ifreq req{"lo", {}};
               if (::unshare(CLONE_NEWNET) != 0)
                   return -1000L;
               fd = Fd(::socket(AF_INET, SOCK_DGRAM, 0));
               req.ifr_flags = IFF_UP;
               if (::ioctl(fd.get(), SIOCSIFFLAGS, &req) != 0)
                   return -1001L;
               return static_cast<long>(function());
           })
        .ret();
}

TEST_P(Spaces, NobodyIsReachedFromAnother) {
    Fd l = listener();
    Address a = name_of(l);
    EXPECT_EQ(elsewhere([&] {
                  Fd here = dial(a);
                  return errno;
              }),
              ECONNREFUSED);
    EXPECT_EQ(events(l, POLLIN), 0);
}

TEST_P(Spaces, SocketOfAnother) {
    Fd l = listener(), here = make();
    Address a = name_of(l);
    EXPECT_EQ(elsewhere([&] { return connect_to(here, a); }), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(here, pattern(1000)));
    EXPECT_EQ(receive(there, 1000), pattern(1000));
}

TEST_P(Spaces, ListenerOfAnother) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    Fd there(static_cast<int>(elsewhere([&] { return ::accept(l.get(), nullptr, nullptr); })));
    ASSERT_TRUE(there);
    EXPECT_EQ(peer_of(there), name_of(here));
    ASSERT_TRUE(send_all(there, pattern(1000)));
    EXPECT_EQ(receive(here, 1000), pattern(1000));
}

TEST_P(Spaces, PortsOfAnother) {
    Fd l = listener();
    Address a = name_of(l);
    EXPECT_EQ(elsewhere([&] {
                  Fd other = make();
                  return bind_to(other, a);
              }),
              0);
}

/* It was made there, and nobody lives there any more. */
TEST_P(Spaces, LastOfANamespace) {
    Fd fd(static_cast<int>(elsewhere([&] { return make().release(); })));
    ASSERT_TRUE(fd);
    Fd l = listener();
    ASSERT_EQ(bind_to(fd, name_of(l)), 0);
    ASSERT_EQ(::listen(fd.get(), 1), 0);
    Fd here = dial(name_of(fd));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(events(l, POLLIN, 10000), POLLIN);
    EXPECT_EQ(events(fd, POLLIN), 0);
}

} // namespace softwarp::sockets
