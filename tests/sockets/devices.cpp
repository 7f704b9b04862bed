// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Over devices that are not softwarp's: which one is taken, and that they come and go.
 * As root, with SOFTWARP_SOCKETS_FOREIGN=1, where rxe0 is over net0; the suite Both with
 * softwarp.ko.
 */
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <poll.h>

#include <arpa/inet.h>

#include "kinds.hpp"
#include "seen.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

static std::vector<Kind> foreign_kinds() {
    std::vector<Kind> kinds;
    for (const Kind &kind : all_kinds()) {
        if (kind.host)
            kinds.push_back(kind);
    }
    return kinds;
}

static bool delete_device(const std::string &name) {
    return run("rdma link delete " + name);
}

static bool have_device(const std::string &name, const char *type, const char *netdev) {
    return run("rdma link show " + name + "/1 > /dev/null 2>&1 || rdma link add " + name +
               " type " + type + " netdev " + netdev);
}

class Devices : public Sockets {
  protected:
    static bool have_rxe() { return have_device("rxe0", "rxe", "net0"); }
    void TearDown() override { EXPECT_TRUE(have_rxe()); }

    bool is_ipv6() const { return std::string(GetParam().name) == "roce6"; }
    Address address(const std::string &text, uint16_t port) const {
        Address a = loopback(port);
        EXPECT_EQ(inet_pton(GetParam().address, text.c_str(), address_of(a)), 1);
        return a;
    }
    /* On all addresses */
    Fd wildcard() const {
        Fd fd = make();
        Address a = loopback();
        std::memset(address_of(a), 0, GetParam().address == AF_INET6 ? 16 : 4);
        EXPECT_EQ(::bind(fd.get(), a.get(), a.len), 0) << std::strerror(errno);
        EXPECT_EQ(::listen(fd.get(), 8), 0) << std::strerror(errno);
        return fd;
    }
    /* Connected within a few seconds, with the other end from that listener */
    Pair through(const Fd &listener, const Address &a) const {
        Pair pair;
        EXPECT_TRUE(eventually([&] {
            pair.here = make();
            return ::connect(pair.here.get(), a.get(), a.len) == 0;
        })) << std::strerror(errno);
        EXPECT_NE(events(listener, POLLIN, 10000), 0);
        pair.there = Fd(::accept(listener.get(), nullptr, nullptr));
        EXPECT_TRUE(pair.there) << std::strerror(errno);
        return pair;
    }

  private:
    static void *address_of(Address &a) {
        if (a.storage.ss_family == AF_INET6)
            return &reinterpret_cast<sockaddr_in6 *>(&a.storage)->sin6_addr;
        return &reinterpret_cast<sockaddr_in *>(&a.storage)->sin_addr;
    }
};

class Both : public Devices {};

INSTANTIATE_TEST_SUITE_P(All, Devices, testing::ValuesIn(foreign_kinds()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(All, Both, testing::ValuesIn(foreign_kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Devices);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Both);

static void expect_works(const Pair &pair, const char *device) {
    EXPECT_STREQ(info(pair.here).device, device);
    EXPECT_STREQ(info(pair.there).device, device);
    std::vector<uint8_t> octets = pattern(100000, 7);
    std::thread sends([&] { EXPECT_TRUE(send_all(pair.here, octets)); });
    EXPECT_EQ(receive(pair.there, octets.size()), octets);
    sends.join();
    ASSERT_TRUE(send_all(pair.there, pattern(3000)));
    EXPECT_EQ(receive(pair.here, 3000), pattern(3000));
}

TEST_P(Devices, Told) {
    Pair pair = connected();
    expect_works(pair, "rxe0");
    for (const Fd *fd : {&pair.here, &pair.there}) {
        EXPECT_EQ(info(*fd).layout, SDP_INFO_LAYOUT_IB);
        EXPECT_EQ(info(*fd).state, SDP_INFO_OPEN);
    }
}

/* None has to ask again while the listener has places. */
TEST_P(Devices, ManyAtOnce) {
    constexpr size_t kClients = 24;
    Fd l = listener(64);
    Address a = name_of(l);
    uint64_t before = counters()["full_refused"];
    std::vector<Fd> clients;
    for (size_t i = 0; i < kClients; i++) {
        clients.push_back(make());
        set_nonblocking(clients.back());
        EXPECT_EQ(ERRNO_OF(::connect(clients.back().get(), a.get(), a.len)), EINPROGRESS);
    }
    for (const Fd &client : clients) {
        EXPECT_EQ(events(client, POLLOUT, 10000), POLLOUT);
        EXPECT_EQ(option(client, SOL_SOCKET, SO_ERROR), 0);
        EXPECT_TRUE(Fd(::accept(l.get(), nullptr, nullptr)));
    }
    EXPECT_EQ(counters()["full_refused"], before);
}

TEST_P(Devices, WildcardListener) {
    Fd l = wildcard();
    expect_works(through(l, loopback(name_of(l).port())), "rxe0");
}

TEST_P(Devices, NoneOnTheWay) {
    ASSERT_TRUE(delete_device("rxe0"));
    Fd l = wildcard();
    Address a = loopback(name_of(l).port());
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ENETUNREACH);
    /* the listener hears of one that comes, and the same socket may try again */
    ASSERT_TRUE(have_rxe());
    ASSERT_TRUE(eventually([&] { return ::connect(here.get(), a.get(), a.len) == 0; }))
        << std::strerror(errno);
    EXPECT_NE(events(l, POLLIN, 10000), 0);
    Pair pair{std::move(here), Fd(::accept(l.get(), nullptr, nullptr))};
    expect_works(pair, "rxe0");
}

TEST_P(Devices, NotOverLoopback) {
    Fd l = wildcard();
    Address a = address(is_ipv6()                        ? "::1"
                        : GetParam().address == AF_INET6 ? "::ffff:127.0.0.1"
                                                         : "127.0.0.1",
                        name_of(l).port());
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ENETUNREACH);
}

TEST_P(Devices, AddressComesLater) {
    Fd l = wildcard();
    std::string text = is_ipv6() ? "fd78::1" : "10.78.0.1";
    std::string mapped = GetParam().address == AF_INET6 && !is_ipv6() ? "::ffff:" : "";
    ASSERT_TRUE(run("ip address add " + text + (is_ipv6() ? "/128 nodad" : "/32") + " dev net0"));
    Address a = address(mapped + text, name_of(l).port());
    {
        Pair pair = through(l, a);
        EXPECT_EQ(peer_of(pair.here), a);
        EXPECT_EQ(name_of(pair.there), a);
        expect_works(pair, "rxe0");
    }
    EXPECT_TRUE(run("ip address del " + text + (is_ipv6() ? "/128" : "/32") + " dev net0"));
}

/* Octets of one direction, until there is an error, which is returned */
static int pour(const Fd &fd) {
    std::vector<uint8_t> octets = pattern(50000);
    for (;;) {
        if (!send_all(fd, octets))
            return errno;
    }
}

static int drink(const Fd &fd, size_t &total) {
    const std::vector<uint8_t> octets = pattern(50000);
    std::vector<uint8_t> got(70000);
    for (;;) {
        ssize_t ret = ::recv(fd.get(), got.data(), got.size(), 0);
        if (ret <= 0)
            return ret ? errno : 0;
        for (ssize_t i = 0; i < ret; i++, total++) {
            if (got[static_cast<size_t>(i)] != octets[total % octets.size()]) {
                ADD_FAILURE() << "octet " << total;
                return 0;
            }
        }
    }
}

TEST_P(Devices, DeletedUnderLoad) {
    Fd l = wildcard();
    Address a = loopback(name_of(l).port());
    std::vector<Pair> pairs;
    for (int i = 0; i < 4; i++)
        pairs.push_back(through(l, a));
    std::vector<std::thread> threads;
    std::atomic<int> lost = 0;
    std::vector<size_t> totals(pairs.size());
    for (size_t i = 0; i < pairs.size(); i++) {
        threads.emplace_back([&, i] { lost += pour(pairs[i].here) != 0; });
        /* an end of the stream would say that all has come */
        threads.emplace_back([&, i] { lost += drink(pairs[i].there, totals[i]) != 0; });
    }
    /* some that are being made */
    std::atomic<bool> over = false;
    threads.emplace_back([&] {
        while (!over) {
            Fd fd = make(SOCK_NONBLOCK);
            ::connect(fd.get(), a.get(), a.len);
            usleep(3000);
        }
    });
    usleep(500000);
    EXPECT_TRUE(delete_device("rxe0"));
    over = true;
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(static_cast<size_t>(lost), 2 * pairs.size());
    for (size_t total : totals)
        EXPECT_GT(total, 0U);
    pairs.clear();
    /* those that were never accepted */
    set_nonblocking(l);
    while (Fd(::accept(l.get(), nullptr, nullptr)))
        ;
    set_nonblocking(l, false);
    ASSERT_TRUE(have_rxe());
    expect_works(through(l, a), "rxe0");
}

TEST_P(Devices, ComesAndGoesBesideListeners) {
    for (int i = 0; i < 5; i++) {
        std::thread goes([&] { EXPECT_TRUE(delete_device("rxe0") && have_rxe()); });
        for (int j = 0; j < 20; j++) {
            Fd l = wildcard(), here = make(SOCK_NONBLOCK);
            Address a = loopback(name_of(l).port());
            ::connect(here.get(), a.get(), a.len);
            usleep(static_cast<useconds_t>(j % 5) * 1000);
        }
        goes.join();
    }
    expect_works(connected(), "rxe0");
}

TEST_P(Both, SoftwarpsFirst) {
    Fd l = wildcard();
    Address a = loopback(name_of(l).port());
    ASSERT_TRUE(have_device("sw0", "softwarp", "net0"));
    expect_works(through(l, a), "sw0");
    ASSERT_TRUE(delete_device("sw0"));
    expect_works(through(l, a), "rxe0");
}

/* Packets within the host go over lo, whatever the address. */
TEST_P(Both, OneListener) {
    Fd l = wildcard();
    Address a = loopback(name_of(l).port());
    Pair by_rxe = through(l, a);
    ASSERT_TRUE(have_device("swlo", "softwarp", "lo"));
    Pair by_softwarp = through(l, a);
    expect_works(by_softwarp, "swlo");
    expect_works(by_rxe, "rxe0");
    EXPECT_TRUE(delete_device("swlo"));
    expect_works(by_rxe, "rxe0");
}

} // namespace softwarp::sockets
