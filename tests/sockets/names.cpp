// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Addresses and ports: who may have which, and who is reached by them
 */
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "kinds.hpp"

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

namespace softwarp::sockets {

SUITE_OF(Names, local_kinds());
SUITE_OF(Names4, local_kinds(AF_INET));
SUITE_OF(Names6, local_kinds(AF_INET6));

static constexpr uid_t kNobody = 65534;

static bool become_nobody() {
    return ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

static std::pair<int, int> ephemeral() {
    std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
    int low = 0, high = 0;
    file >> low >> high;
    return {low, high};
}

/* Binding --------------------------------------------------------------------------- */

TEST_P(Names, Wildcard) {
    Fd l = listener_at(any());
    Address a = name_of(l);
    EXPECT_NE(a.port(), 0);
    EXPECT_EQ(a, any(a.port()));
    Fd here = dial(loopback(a.port()));
    ASSERT_EQ(errno, 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(name_of(there), loopback(a.port()));
    EXPECT_EQ(peer_of(here), loopback(a.port()));
}

/* Who listens everywhere is reached there, too, and from there. */
TEST_P(Names, AnotherAddressOfThisMachine) {
    Fd l = listener_at(any());
    Address a = another_address(name_of(l).port());
    Fd here = dial(a);
    ASSERT_EQ(errno, 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(name_of(there), a);
    EXPECT_EQ(peer_of(here), a);
    EXPECT_EQ(name_of(here), another_address(name_of(here).port()));
    ASSERT_TRUE(send_all(here, pattern(100)));
    EXPECT_EQ(receive(there, 100), pattern(100));
}

TEST_P(Names, ListenerOfOneAddress) {
    Fd l = listener_at(another_address());
    dial(loopback(name_of(l).port()));
    EXPECT_EQ(errno, ECONNREFUSED);
    dial(name_of(l));
    EXPECT_EQ(errno, 0);
}

TEST_P(Names, PortZeroIsAnother) {
    std::set<uint16_t> ports;
    std::vector<Fd> bound;
    auto [low, high] = ephemeral();
    for (int i = 0; i < 20; i++) {
        bound.push_back(make());
        ASSERT_EQ(bind_to(bound.back(), loopback()), 0);
        uint16_t port = name_of(bound.back()).port();
        EXPECT_GE(port, low);
        EXPECT_LE(port, high);
        ports.insert(port);
    }
    EXPECT_EQ(ports.size(), bound.size());
}

TEST_P(Names, ConnectBinds) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    ASSERT_EQ(errno, 0);
    auto [low, high] = ephemeral();
    EXPECT_GE(name_of(here).port(), low);
    EXPECT_LE(name_of(here).port(), high);
    EXPECT_EQ(name_of(here), loopback(name_of(here).port()));
}

TEST_P(Names, ListenBinds) {
    Fd l = make();
    ASSERT_EQ(::listen(l.get(), 1), 0);
    EXPECT_NE(name_of(l).port(), 0);
    EXPECT_EQ(name_of(l), any(name_of(l).port()));
    dial(loopback(name_of(l).port()));
    EXPECT_EQ(errno, 0);
}

TEST_P(Names, NotOfThisMachine) {
    Fd fd = make();
    bool v6 = GetParam().address == AF_INET6;
    Address a = address(v6 ? "2001:db8::1" : "192.0.2.1");
    EXPECT_EQ(bind_to(fd, a), EADDRNOTAVAIL);
    EXPECT_EQ(name_of(fd), any());
    ASSERT_EQ(v6 ? set(fd, IPPROTO_IPV6, IPV6_FREEBIND, 1) : set(fd, IPPROTO_IP, IP_FREEBIND, 1),
              0);
    EXPECT_EQ(bind_to(fd, a), 0);
    EXPECT_EQ(::listen(fd.get(), 1), 0);
    a.set_port(name_of(fd).port());
    EXPECT_EQ(name_of(fd), a);
    Fd other = make();
    ASSERT_EQ(v6 ? set(other, IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
                 : set(other, IPPROTO_IP, IP_TRANSPARENT, 1),
              0);
    a.set_port(0);
    EXPECT_EQ(bind_to(other, a), 0);
}

/* A proxy's client: the address of somebody else, to whom an answer comes on this machine */
TEST_P(Names4, FromAForeignAddress) {
    Fd l = listener_at(any());
    Fd here = make();
    ASSERT_EQ(set(here, IPPROTO_IP, IP_TRANSPARENT, 1), 0);
    ASSERT_EQ(bind_to(here, address("192.0.2.1")), 0);
    uint16_t port = name_of(here).port();
    set_nonblocking(here);
    /* nobody routes the answer back, so it goes on and on */
    EXPECT_EQ(connect_to(here, loopback(name_of(l).port())), EINPROGRESS);
    EXPECT_EQ(name_of(here), address("192.0.2.1", port));
}

TEST_P(Names, BadAddresses) {
    Fd fd = make();
    Address a = loopback();
    EXPECT_EQ(ERRNO_OF(::bind(fd.get(), a.get(), 0)), EINVAL);
    EXPECT_EQ(ERRNO_OF(::bind(fd.get(), a.get(), 7)), EINVAL);
    EXPECT_EQ(ERRNO_OF(::bind(fd.get(), nullptr, a.len)), EFAULT);
    EXPECT_EQ(ERRNO_OF(::connect(fd.get(), nullptr, a.len)), EFAULT);
    EXPECT_EQ(ERRNO_OF(::bind(fd.get(), a.get(), sizeof(a.storage) + 1)), EINVAL);
    Address other = address(GetParam().address == AF_INET6 ? "127.0.0.1" : "::1", 5);
    int err = bind_to(fd, other);
    EXPECT_TRUE(err == EAFNOSUPPORT || err == EINVAL) << err;
    EXPECT_NE(connect_to(fd, other), 0);
    EXPECT_EQ(name_of(fd), any());
}

TEST_P(Names4, FamilyThatWasForgotten) {
    Address a = any();
    a.storage.ss_family = AF_UNSPEC;
    Fd fd = make(), other = make();
    EXPECT_EQ(bind_to(fd, a), 0);
    EXPECT_NE(name_of(fd).port(), 0);
    a = loopback();
    a.storage.ss_family = AF_UNSPEC;
    EXPECT_EQ(bind_to(other, a), EAFNOSUPPORT);
}

TEST_P(Names, ManyAddressesOnePort) {
    Fd a = make(), b = make();
    ASSERT_EQ(bind_to(a, loopback()), 0);
    uint16_t port = name_of(a).port();
    EXPECT_EQ(bind_to(b, another_address(port)), 0);
    ASSERT_EQ(::listen(a.get(), 1), 0);
    ASSERT_EQ(::listen(b.get(), 1), 0);
    Fd here = dial(another_address(port));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(events(b, POLLIN, 10000), POLLIN);
    EXPECT_EQ(events(a, POLLIN), 0);
}

TEST_P(Names, WildcardBesideOneAddress) {
    Fd first = make(), second = make();
    ASSERT_EQ(bind_to(first, any()), 0);
    Address a = loopback(name_of(first).port());
    EXPECT_EQ(bind_to(second, a), EADDRINUSE);
    ASSERT_EQ(set(first, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    ASSERT_EQ(set(second, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    EXPECT_EQ(bind_to(second, a), 0);
    /* but only one of them listens */
    EXPECT_EQ(::listen(first.get(), 1), 0);
    EXPECT_EQ(ERRNO_OF(::listen(second.get(), 1)), EADDRINUSE);
}

TEST_P(Names, ReuseAddr) {
    for (int row = 0; row < 8; row++) {
        bool one = row & 1, two = row & 2, listens = row & 4;
        Fd first = make(), second = make();
        ASSERT_EQ(set(first, SOL_SOCKET, SO_REUSEADDR, one), 0);
        ASSERT_EQ(set(second, SOL_SOCKET, SO_REUSEADDR, two), 0);
        ASSERT_EQ(bind_to(first, loopback()), 0);
        if (listens) {
            ASSERT_EQ(::listen(first.get(), 1), 0);
        }
        EXPECT_EQ(bind_to(second, name_of(first)), one && two && !listens ? 0 : EADDRINUSE) << row;
    }
}

/* A server that is started again, while those are there that the first one has served */
TEST_P(Names, ServerStartsAgain) {
    for (bool reuse : {false, true}) {
        Fd l = make();
        ASSERT_EQ(set(l, SOL_SOCKET, SO_REUSEADDR, reuse), 0);
        ASSERT_EQ(bind_to(l, loopback()), 0);
        ASSERT_EQ(::listen(l.get(), 1), 0);
        Address a = name_of(l);
        Fd here = dial(a);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        l.reset();
        Fd again = make();
        ASSERT_EQ(set(again, SOL_SOCKET, SO_REUSEADDR, reuse), 0);
        EXPECT_EQ(bind_to(again, a), reuse || is_elsewhere() ? 0 : EADDRINUSE);
        if (!reuse)
            continue;
        EXPECT_EQ(::listen(again.get(), 1), 0);
        Fd next = dial(a);
        EXPECT_EQ(errno, 0);
        Fd accepted(::accept(again.get(), nullptr, nullptr));
        ASSERT_TRUE(send_all(here, pattern(10, 1)));
        ASSERT_TRUE(send_all(next, pattern(10, 2)));
        EXPECT_EQ(receive(there, 10), pattern(10, 1));
        EXPECT_EQ(receive(accepted, 10), pattern(10, 2));
    }
}

/* ... and when these have left, but TCP waits for what may be on its way */
TEST_P(Names, ServerStartsAfterTheLast) {
    Fd l = make();
    ASSERT_EQ(set(l, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    Address a = name_of(l);
    char c;
    for (bool server_first : {false, true}) {
        Fd here = dial(a);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        Fd &first = server_first ? there : here, &second = server_first ? here : there;
        first.reset();
        EXPECT_EQ(::recv(second.get(), &c, 1, 0), 0);
        second.reset();
    }
    l.reset();
    Fd again = make();
    ASSERT_EQ(set(again, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    EXPECT_EQ(bind_to(again, a), 0);
    EXPECT_EQ(::listen(again.get(), 1), 0);
    dial(a);
    EXPECT_EQ(errno, 0);
}

TEST_P(Names, ReusePortNeedsBoth) {
    Fd first = make(), second = make(), third = make();
    ASSERT_EQ(set(first, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    ASSERT_EQ(bind_to(first, loopback()), 0);
    EXPECT_EQ(bind_to(second, name_of(first)), EADDRINUSE);
    ASSERT_EQ(set(third, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    EXPECT_EQ(bind_to(third, name_of(first)), 0);
    EXPECT_EQ(option(third, SOL_SOCKET, SO_REUSEPORT), 1);
}

TEST_P(Names, ReusePortIsOneUsers) {
    Fd first = make();
    ASSERT_EQ(set(first, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    ASSERT_EQ(bind_to(first, loopback()), 0);
    Address a = name_of(first);
    EXPECT_EQ(in_child([&] {
                  if (!become_nobody())
                      return 255;
                  Fd fd = make();
                  return set(fd, SOL_SOCKET, SO_REUSEPORT, 1) == 0 ? bind_to(fd, a) : 255;
              }),
              EADDRINUSE);
}

TEST_P(Names, ReusePortShares) {
    std::vector<Fd> group;
    Address a = loopback();
    for (int i = 0; i < 3; i++) {
        group.push_back(make());
        ASSERT_EQ(set(group[i], SOL_SOCKET, SO_REUSEPORT, 1), 0);
        ASSERT_EQ(bind_to(group[i], a), 0);
        ASSERT_EQ(::listen(group[i].get(), 64), 0);
        a = name_of(group[0]);
    }
    /* each has some, and nobody's is lost */
    std::vector<Fd> here;
    for (int i = 0; i < 48; i++) {
        here.push_back(dial(a));
        ASSERT_EQ(errno, 0);
    }
    int all = 0;
    EXPECT_TRUE(eventually([&] {
        for (const Fd &l : group) {
            set_nonblocking(l);
            while (Fd(::accept(l.get(), nullptr, nullptr)))
                all++;
        }
        return all == 48;
    })) << all;
}

TEST_P(Names, ReusePortMemberLeaves) {
    Fd one = make(), two = make();
    ASSERT_EQ(set(one, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    ASSERT_EQ(set(two, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    ASSERT_EQ(bind_to(one, loopback()), 0);
    Address a = name_of(one);
    ASSERT_EQ(bind_to(two, a), 0);
    ASSERT_EQ(::listen(one.get(), 32), 0);
    ASSERT_EQ(::listen(two.get(), 32), 0);
    one.reset();
    for (int i = 0; i < 16; i++) {
        dial(a);
        ASSERT_EQ(errno, 0);
        Fd there(::accept(two.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
    }
}

/* Ports of connections ------------------------------------------------------------------ */

TEST_P(Names, PortOfAConnectionIsTaken) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    Fd fd = make();
    EXPECT_EQ(bind_to(fd, name_of(here)), EADDRINUSE);
}

/* One port of ours, connections to two others, but not to one of them twice */
TEST_P(Names, OnePortTwoPeers) {
    Fd one = listener(), two = listener();
    Fd a = make(), b = make(), c = make();
    for (Fd *fd : {&a, &b, &c})
        ASSERT_EQ(set(*fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    ASSERT_EQ(bind_to(a, loopback()), 0);
    Address own = name_of(a);
    ASSERT_EQ(bind_to(b, own), 0);
    ASSERT_EQ(bind_to(c, own), 0);
    EXPECT_EQ(connect_to(a, name_of(one)), 0);
    EXPECT_EQ(connect_to(b, name_of(two)), 0);
    EXPECT_EQ(connect_to(c, name_of(one)), is_elsewhere() ? 0 : EADDRNOTAVAIL);
    EXPECT_EQ(name_of(a), own);
    EXPECT_EQ(name_of(b), own);
    EXPECT_EQ(peer_of(b), name_of(two));
}

/* Many connections of one address: the port is chosen when the other end is known. */
TEST_P(Names4, AddressWithoutAPort) {
    Fd l = listener();
    Fd here = make();
    ASSERT_EQ(set(here, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1), 0);
    ASSERT_EQ(bind_to(here, address("127.0.0.2")), 0);
    EXPECT_EQ(name_of(here), address("127.0.0.2", 0));
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    EXPECT_NE(name_of(here).port(), 0);
    EXPECT_EQ(name_of(here), address("127.0.0.2", name_of(here).port()));
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(peer_of(there), name_of(here));
}

TEST_P(Names6, AddressWithoutAPort) {
    Fd l = listener_at(any());
    Fd here = make();
    ASSERT_EQ(set(here, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1), 0);
    ASSERT_EQ(bind_to(here, another_address()), 0);
    EXPECT_EQ(name_of(here).port(), 0);
    ASSERT_EQ(connect_to(here, loopback(name_of(l).port())), 0);
    EXPECT_NE(name_of(here).port(), 0);
    EXPECT_EQ(name_of(here), another_address(name_of(here).port()));
}

/* From another address of this machine than the one that routing would choose */
TEST_P(Names, FromAnAddress) {
    Fd l = listener_at(any());
    Fd here = make();
    ASSERT_EQ(bind_to(here, another_address()), 0);
    Address own = name_of(here);
    ASSERT_EQ(connect_to(here, loopback(name_of(l).port())), 0);
    EXPECT_EQ(name_of(here), own);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(peer_of(there), own);
}

TEST_P(Names, RangeOfPorts) {
    Fd l = listener();
    Fd plain(::socket(AF_INET, SOCK_STREAM, 0));
    uint32_t range = 47000 | (47009U << 16);
    Fd bound = make(), here = make();
    int err = set(plain, IPPROTO_IP, IP_LOCAL_PORT_RANGE, static_cast<int>(range));
    for (Fd *fd : {&bound, &here})
        EXPECT_EQ(set(*fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, static_cast<int>(range)), err);
    /* of kernels before 6.3 */
    if (err != 0) {
        EXPECT_EQ(err, ENOPROTOOPT);
        return;
    }
    ASSERT_EQ(bind_to(bound, loopback()), 0);
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    for (const Fd *fd : {&bound, &here}) {
        EXPECT_GE(name_of(*fd).port(), 47000);
        EXPECT_LE(name_of(*fd).port(), 47009);
    }
}

/* Privileges ---------------------------------------------------------------------------- */

TEST_P(Names, LowPortsAreRoots) {
    auto bind_as_nobody = [&](uint16_t port) {
        return in_child([&] {
            Fd fd = make();
            return become_nobody() ? bind_to(fd, loopback(port)) : 255;
        });
    };
    EXPECT_EQ(bind_as_nobody(1023), EACCES);
    EXPECT_EQ(bind_as_nobody(1), EACCES);
    EXPECT_EQ(bind_as_nobody(1024), 0);
    Fd fd = make();
    EXPECT_EQ(bind_to(fd, loopback(1023)), 0);
}

/* One of root's ports, which others may have used a moment ago */
static Address bind_low(const Fd &fd, Address a) {
    for (uint16_t port = 1000; port > 700; port--) {
        a.set_port(port);
        if (bind_to(fd, a) == 0)
            break;
    }
    EXPECT_EQ(name_of(fd), a);
    return a;
}

/* A daemon that had its port as root, and does the rest as somebody else */
TEST_P(Names, LowPortOfWhoWasRoot) {
    Fd l = listener(), here = make();
    Address a = name_of(l), own = bind_low(here, loopback());
    ASSERT_EQ(in_child([&] { return become_nobody() ? connect_to(here, a) : 255; }), 0);
    Address from;
    from.len = sizeof(from.storage);
    Fd there(::accept(l.get(), from.get(), &from.len));
    EXPECT_EQ(from, own);
}

TEST_P(Names, LowPortServerThatWasRoot) {
    Fd l = make();
    Address a = bind_low(l, loopback());
    ASSERT_EQ(in_child([&] {
                  if (!become_nobody() || ::listen(l.get(), 1) != 0)
                      return 255;
                  Fd here = dial(a);
                  return errno;
              }),
              0);
    EXPECT_EQ(events(l, POLLIN, 10000), POLLIN);
}

TEST_P(Names, OptionsThatAreRoots) {
    EXPECT_EQ(in_child([&] {
                  Fd fd = make();
                  if (!become_nobody())
                      return 1;
                  if (set(fd, SOL_SOCKET, SO_MARK, 3) != EPERM)
                      return 2;
                  if (set(fd, SOL_SOCKET, SO_PRIORITY, 7) != EPERM)
                      return 3;
                  if (set(fd, SOL_SOCKET, SO_RCVBUFFORCE, 1 << 20) != EPERM)
                      return 4;
                  if (set(fd, IPPROTO_IP, IP_TRANSPARENT, 1) != EPERM)
                      return 5;
                  return set(fd, SOL_SOCKET, SO_PRIORITY, 6) == 0 ? 0 : 6;
              }),
              0);
}

/* Devices --------------------------------------------------------------------------------- */

static int bind_to_device(const Fd &fd, const std::string &name) {
    return ERRNO_OF(::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, name.c_str(),
                                 static_cast<socklen_t>(name.size())));
}

static std::string device_of(const Fd &fd) {
    char name[IFNAMSIZ] = "";
    socklen_t len = sizeof(name);
    EXPECT_EQ(::getsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, name, &len), 0);
    return name;
}

TEST_P(Names, Device) {
    Fd l = make();
    EXPECT_EQ(bind_to_device(l, "nosuch"), ENODEV);
    ASSERT_EQ(bind_to_device(l, "lo"), 0);
    EXPECT_EQ(device_of(l), "lo");
    ASSERT_EQ(bind_to(l, any()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    Fd here = make();
    ASSERT_EQ(bind_to_device(here, "lo"), 0);
    ASSERT_EQ(connect_to(here, loopback(name_of(l).port())), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(device_of(there), "lo");
    EXPECT_EQ(option(there, SOL_SOCKET, SO_BINDTOIFINDEX),
              static_cast<int>(::if_nametoindex("lo")));
    EXPECT_EQ(bind_to_device(here, ""), 0);
    EXPECT_EQ(device_of(here), "");
}

TEST_P(Names, OtherDevice) {
    Fd l = make();
    ASSERT_EQ(bind_to_device(l, "net0"), 0);
    ASSERT_EQ(bind_to(l, any()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    dial(loopback(name_of(l).port()));
    EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_P(Names, OnePortTwoDevices) {
    Fd one = make(), two = make(), three = make();
    ASSERT_EQ(bind_to_device(one, "lo"), 0);
    ASSERT_EQ(bind_to_device(two, "net0"), 0);
    ASSERT_EQ(bind_to(one, any()), 0);
    Address a = name_of(one);
    EXPECT_EQ(bind_to(two, a), 0);
    EXPECT_EQ(bind_to(three, a), EADDRINUSE);
    ASSERT_EQ(::listen(one.get(), 1), 0);
    ASSERT_EQ(::listen(two.get(), 1), 0);
    dial(loopback(a.port()));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(events(one, POLLIN, 10000), POLLIN);
    EXPECT_EQ(events(two, POLLIN), 0);
}

/* IPv4 over sockets of IPv6 --------------------------------------------------------------- */

TEST_P(Names6, ClientOfIpv4) {
    Fd l = listener_at(any());
    uint16_t port = name_of(l).port();
    Fd here = dial(address("127.0.0.1", port));
    ASSERT_EQ(errno, 0);
    Address from;
    from.len = sizeof(from.storage);
    Fd there(::accept(l.get(), from.get(), &from.len));
    ASSERT_TRUE(there);
    EXPECT_EQ(peer_of(here), address("127.0.0.1", port));
    EXPECT_EQ(name_of(there), address("::ffff:127.0.0.1", port));
    EXPECT_EQ(from, address("::ffff:127.0.0.1", name_of(here).port()));
    EXPECT_EQ(option(there, SOL_SOCKET, SO_DOMAIN), AF_INET6);
    ASSERT_TRUE(send_all(here, pattern(5000)));
    EXPECT_EQ(receive(there, 5000), pattern(5000));
    ASSERT_TRUE(send_all(there, pattern(5000, 1)));
    EXPECT_EQ(receive(here, 5000), pattern(5000, 1));
}

TEST_P(Names6, ServerOfIpv4) {
    Fd l = listener_at(address("127.0.0.1"));
    uint16_t port = name_of(l).port();
    Fd here = dial(address("::ffff:127.0.0.1", port));
    ASSERT_EQ(errno, 0);
    EXPECT_EQ(peer_of(here), address("::ffff:127.0.0.1", port));
    EXPECT_EQ(name_of(here), address("::ffff:127.0.0.1", name_of(here).port()));
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(peer_of(there), address("127.0.0.1", name_of(here).port()));
    ASSERT_TRUE(send_all(there, pattern(5000)));
    EXPECT_EQ(receive(here, 5000), pattern(5000));
}

TEST_P(Names6, BothEndsAreMapped) {
    Fd l = listener_at(address("::ffff:127.0.0.1"));
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(bind_to(here, address("::ffff:127.0.0.2")), 0);
    ASSERT_EQ(connect_to(here, a), 0);
    EXPECT_EQ(name_of(here), address("::ffff:127.0.0.2", name_of(here).port()));
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(peer_of(there), name_of(here));
    EXPECT_EQ(name_of(there), a);
}

TEST_P(Names6, OnlyIpv6) {
    Fd l;
    uint16_t port = 0;
    /* one that nothing of a test before has with IPv4, either */
    ASSERT_TRUE(eventually([&] {
        l = make();
        EXPECT_EQ(set(l, IPPROTO_IPV6, IPV6_V6ONLY, 1), 0);
        EXPECT_EQ(bind_to(l, any()), 0);
        port = name_of(l).port();
        Fd probe(::socket(AF_INET, SOCK_STREAM, 0));
        return bind_to(probe, address("0.0.0.0", port)) == 0;
    }));
    ASSERT_EQ(::listen(l.get(), 4), 0);
    EXPECT_EQ(set(l, IPPROTO_IPV6, IPV6_V6ONLY, 0), EINVAL);
    dial(address("127.0.0.1", port));
    EXPECT_EQ(errno, ECONNREFUSED);
    /* the port of IPv4 is another */
    Fd other = listener_at(address("0.0.0.0", port));
    dial(address("127.0.0.1", port));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(events(other, POLLIN, 10000), POLLIN);
    EXPECT_EQ(events(l, POLLIN), 0);
    Fd here = dial(loopback(port));
    EXPECT_EQ(errno, 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(option(there, IPPROTO_IPV6, IPV6_V6ONLY), 1);
}

TEST_P(Names6, OnlyIpv6Connects) {
    Fd l = listener_at(address("127.0.0.1"));
    Fd here = make();
    ASSERT_EQ(set(here, IPPROTO_IPV6, IPV6_V6ONLY, 1), 0);
    EXPECT_EQ(connect_to(here, address("::ffff:127.0.0.1", name_of(l).port())), ENETUNREACH);
    EXPECT_EQ(bind_to(here, address("::ffff:127.0.0.1")), EINVAL);
}

TEST_P(Names6, BothAreOnePort) {
    Fd l = listener_at(any());
    Fd other = make_for(AF_INET), more = make_for(AF_INET);
    EXPECT_EQ(bind_to(other, address("0.0.0.0", name_of(l).port())), EADDRINUSE);
    EXPECT_EQ(bind_to(more, address("127.0.0.1", name_of(l).port())), EADDRINUSE);
}

TEST_P(Names6, LinkLocalNeedsADevice) {
    Fd fd = make();
    Address a = address("fe80::1", 5);
    EXPECT_EQ(bind_to(fd, a), EINVAL);
    EXPECT_EQ(connect_to(fd, a), EINVAL);
}

/* Connecting ------------------------------------------------------------------------------- */

TEST_P(Names, NoAddressIsThisMachine) {
    Fd l = listener();
    Fd here = dial(any(name_of(l).port()));
    ASSERT_EQ(errno, 0);
    EXPECT_EQ(peer_of(here), name_of(l));
    EXPECT_EQ(name_of(here), loopback(name_of(here).port()));
}

TEST_P(Names, PortZeroIsNobodys) {
    dial(loopback(0));
    EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_P(Names4, NoStreamsToMany) {
    dial(address("255.255.255.255", 5));
    EXPECT_EQ(errno, ENETUNREACH);
    dial(address("224.0.0.1", 5));
    EXPECT_EQ(errno, ENETUNREACH);
}

/* An attempt that has failed leaves the port that was bound */
TEST_P(Names, PortSurvivesAFailure) {
    Fd l = listener(), here = make();
    Address own;
    {
        Fd fd = make();
        ASSERT_EQ(bind_to(fd, loopback()), 0);
        own = name_of(fd);
    }
    ASSERT_EQ(bind_to(here, own), 0);
    EXPECT_EQ(connect_to(here, loopback(1)), ECONNREFUSED);
    EXPECT_EQ(name_of(here), own);
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    EXPECT_EQ(name_of(here), own);
}

/* Names themselves --------------------------------------------------------------------------- */

TEST_P(Names, ShortRoomForAName) {
    Pair p = connected();
    Address whole = name_of(p.here), part;
    part.len = 4;
    std::memset(&part.storage, 0x55, sizeof(part.storage));
    ASSERT_EQ(::getsockname(p.here.get(), part.get(), &part.len), 0);
    EXPECT_EQ(part.len, whole.len);
    EXPECT_EQ(std::memcmp(&part.storage, &whole.storage, 4), 0);
    EXPECT_EQ(reinterpret_cast<uint8_t *>(&part.storage)[4], 0x55);
    part.len = static_cast<socklen_t>(-1);
    EXPECT_EQ(ERRNO_OF(::getpeername(p.here.get(), part.get(), &part.len)), EINVAL);
    part.len = sizeof(part.storage);
    EXPECT_EQ(ERRNO_OF(::getpeername(p.here.get(), reinterpret_cast<sockaddr *>(8), &part.len)),
              EFAULT);
}

TEST_P(Names, NamesBehindTheEnd) {
    Pair p = connected();
    Address a = name_of(p.here), b = name_of(p.there);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    ASSERT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    /* it is connected as long as one side talks */
    EXPECT_EQ(peer_of(p.there), a);
    EXPECT_EQ(peer_of(p.here), b);
    p.there.reset();
    char c;
    EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 0);
    Address none;
    none.len = sizeof(none.storage);
    EXPECT_TRUE(eventually(
        [&] { return ERRNO_OF(::getpeername(p.here.get(), none.get(), &none.len)) == ENOTCONN; }));
    EXPECT_EQ(name_of(p.here), a);
}

TEST_P(Names, OptionsOfTheListener) {
    Fd l = make();
    static const struct {
        int level, name, value, found;
    } rows[] = {
        /* but this one */
        {SOL_SOCKET, SO_PRIORITY, 5, 0},
        {SOL_SOCKET, SO_MARK, 77, 77},
        {SOL_SOCKET, SO_SNDBUF, 40000, 80000},
        {SOL_SOCKET, SO_RCVBUF, 50000, 100000},
        {SOL_SOCKET, SO_OOBINLINE, 1, 1},
        {SOL_SOCKET, SO_REUSEADDR, 1, 1},
        {SOL_SOCKET, SO_REUSEPORT, 1, 1},
        {SOL_SOCKET, SO_DONTROUTE, 1, 1},
        {SOL_SOCKET, SO_MAX_PACING_RATE, 1 << 29, 1 << 29},
        {SOL_SOCKET, SO_BUSY_POLL, 40, 40},
        {SOL_SOCKET, SO_RCVLOWAT, 3, 3},
        {IPPROTO_IP, IP_TTL, 42, 42},
        {IPPROTO_TCP, TCP_NODELAY, 1, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 55, 55},
        {IPPROTO_TCP, TCP_KEEPINTVL, 44, 44},
        {IPPROTO_TCP, TCP_KEEPCNT, 3, 3},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 12345, 12345},
        {IPPROTO_TCP, TCP_SYNCNT, 4, 4},
        {IPPROTO_TCP, TCP_LINGER2, 20, 20},
        {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 70000, 70000},
    };
    for (auto &row : rows)
        ASSERT_EQ(set(l, row.level, row.name, row.value), 0) << row.level << " " << row.name;
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    Fd here = dial(name_of(l));
    ASSERT_EQ(errno, 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    for (auto &row : rows)
        EXPECT_EQ(option(there, row.level, row.name), row.found) << row.level << " " << row.name;
}

TEST_P(Names6, OptionsOfTheListener) {
    Fd l = make();
    ASSERT_EQ(set(l, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33), 0);
    ASSERT_EQ(set(l, IPPROTO_IPV6, IPV6_TCLASS, 0x48), 0);
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    Fd here = dial(name_of(l));
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(option(there, IPPROTO_IPV6, IPV6_UNICAST_HOPS), 33);
    EXPECT_EQ(option(there, IPPROTO_IPV6, IPV6_TCLASS), 0x48);
}

/* What one asks for before connect(), and gets back afterwards */
TEST_P(Names, OptionsOfTheConnector) {
    Fd l = listener(), here = make();
    ASSERT_EQ(set(here, IPPROTO_IP, IP_TOS, 0x28), 0);
    ASSERT_EQ(set(here, SOL_SOCKET, SO_PRIORITY, 4), 0);
    ASSERT_EQ(set(here, SOL_SOCKET, SO_RCVBUF, 30000), 0);
    ASSERT_EQ(set(here, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_PRIORITY), 4);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_RCVBUF), 60000);
    EXPECT_EQ(option(here, IPPROTO_IP, IP_TOS), 0x28);
    EXPECT_EQ(option(here, IPPROTO_TCP, TCP_NODELAY), 1);
}

} // namespace softwarp::sockets
