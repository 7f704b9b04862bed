// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Peers that do not keep to the rules of set-up, played octet by octet over TCP.
 * SDP kinds only: there is nothing to compare with.
 */
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <set>
#include <string>
#include <thread>

#include "peer.hpp"

namespace softwarp::sockets {

class Wire : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Wire, testing::ValuesIn(sdp_kinds()), name_of_kind);

/* The stream ends, one way or the other, and nothing comes before that. */
static void expect_end(const Fd &fd, const std::string &what) {
    char c;
    ssize_t ret = ::recv(fd.get(), &c, 1, 0);
    EXPECT_TRUE(ret == 0 || (ret < 0 && errno == ECONNRESET))
        << what << ": " << ret << " " << std::strerror(errno);
}

/* SDP-69, SDP-70: a Hello that cannot be accepted is answered by closing. */
TEST_P(Wire, BadHellos) {
    struct Row {
        const char *what;
        void (*change)(SdpMessage &);
    };
    static const Row rows[] = {
        {"HelloAck", [](SdpMessage &m) { m.mid = kSdpHelloAck; }},
        {"Data", [](SdpMessage &m) { m = {}, m.mid = kSdpData, m.bufs = 5, m.payload = 16; }},
        {"version", [](SdpMessage &m) { m.hello.major = 2; }},
        {"MaxAdverts", [](SdpMessage &m) { m.hello.max_adverts = 0; }},
        {"LocIRD", [](SdpMessage &m) { m.hello.ird = 0; }},
        {"LocORD", [](SdpMessage &m) { m.hello.ord = 0; }},
        {"Bufs", [](SdpMessage &m) { m.bufs = 2; }},
        {"size too small", [](SdpMessage &m) { m.hello.rcv_size = kSdpSizeMin - 1; }},
        {"size too large", [](SdpMessage &m) { m.hello.rcv_size = 0x80000001; }},
    };
    Fd l = listener();
    for (const Row &row : rows) {
        SdpMessage msg = good_hello();
        row.change(msg);
        std::vector<uint8_t> octets = encode(msg);
        octets.resize(kSdpHelloLen, 0);
        Fd fd = tcp_to(l);
        ASSERT_TRUE(send_all(fd, octets)) << row.what;
        expect_end(fd, row.what);
    }
    works(l);
}

TEST_P(Wire, Garbage) {
    Fd l = listener();
    for (uint8_t seed = 0; seed < 20; seed++) {
        Fd fd = tcp_to(l);
        ASSERT_TRUE(send_all(fd, pattern(100, seed)));
        expect_end(fd, std::to_string(seed));
    }
    works(l);
}

/* SDP-80 */
TEST_P(Wire, HalfAHello) {
    Fd l = listener();
    std::vector<uint8_t> octets = encode(good_hello());
    for (size_t size = 0; size < octets.size(); size++) {
        Fd fd = tcp_to(l);
        ASSERT_TRUE(send_all(
            fd, std::vector<uint8_t>(octets.begin(), octets.begin() + static_cast<long>(size))));
        ASSERT_EQ(::shutdown(fd.get(), SHUT_WR), 0);
        expect_end(fd, std::to_string(size));
    }
    works(l);
}

/* Both layouts, in pieces; the answer is the Request of MPA. */
TEST_P(Wire, GoodHelloThenNothing) {
    Fd l = listener();
    for (SdpLayout layout : {kLayoutDraft, kLayoutIb}) {
        std::vector<uint8_t> octets = encode(good_hello(), layout);
        Fd fd = tcp_to(l);
        for (uint8_t octet : octets) {
            ASSERT_TRUE(send_all(fd, {octet}));
            usleep(500);
        }
        std::vector<uint8_t> request = receive(fd, 20);
        ASSERT_EQ(request.size(), 20U);
        EXPECT_EQ(std::string(request.begin(), request.begin() + 16), "MPA ID Req Frame");
    }
    works(l);
}

TEST_P(Wire, GoodHelloThenGarbage) {
    Fd l = listener();
    Fd fd = tcp_to(l);
    ASSERT_TRUE(send_all(fd, encode(good_hello())));
    std::vector<uint8_t> request = receive(fd, 20);
    ASSERT_EQ(request.size(), 20U);
    /* with the depths of RFC 6581 behind it */
    receive(fd, static_cast<size_t>(request[18] << 8 | request[19]));
    ASSERT_TRUE(send_all(fd, pattern(200)));
    expect_end(fd, "garbage");
    /* a message before HelloAck would have been one, too: nothing is there to be accepted */
    set_nonblocking(l);
    EXPECT_EQ(ERRNO_OF(::accept(l.get(), nullptr, nullptr)), EAGAIN);
    set_nonblocking(l, false);
    works(l);
}

/* Those who say nothing have nobody's place, however many they are. */
TEST_P(Wire, ManySilent) {
    Fd l = listener(300);
    std::vector<Fd> silent;
    for (int i = 0; i < 300; i++) {
        silent.push_back(tcp_to(l));
        ASSERT_TRUE(send_all(silent.back(), std::vector<uint8_t>(i % 3)));
    }
    auto begin = std::chrono::steady_clock::now();
    works(l);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    /* the oldest of them had to go */
    expect_end(silent.front(), "first");
    set_nonblocking(silent.back());
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(silent.back().get(), &c, 1, 0)), EAGAIN);
}

/* Those who get stuck later have theirs only until others come. */
TEST_P(Wire, ManyStuck) {
    Fd l = listener(2);
    std::vector<Fd> stuck;
    for (int i = 0; i < 3; i++) {
        stuck.push_back(tcp_to(l));
        ASSERT_TRUE(send_all(stuck.back(), encode(good_hello())));
        ASSERT_EQ(receive(stuck.back(), 20).size(), 20U);
    }
    auto begin = std::chrono::steady_clock::now();
    works(l);
    auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GT(took, std::chrono::milliseconds(500));
    EXPECT_LT(took, std::chrono::seconds(6));
}

/* A program that does not accept has as many as its backlog says; others come behind them. */
TEST_P(Wire, NoMoreThanTheBacklog) {
    Fd l = listener(2);
    Address a = name_of(l);
    std::vector<Fd> here;
    for (int i = 0; i < 5; i++) {
        here.push_back(make());
        set_nonblocking(here.back());
        ASSERT_EQ(ERRNO_OF(::connect(here.back().get(), a.get(), a.len)), EINPROGRESS);
        if (i < 3) {
            ASSERT_TRUE(eventually([&] { return events(here.back(), POLLOUT) == POLLOUT; }));
        }
    }
    usleep(300000);
    EXPECT_EQ(events(here[3], POLLOUT), 0);
    EXPECT_EQ(events(here[4], POLLOUT), 0);
    std::set<uint16_t> first, others;
    for (int i = 0; i < 5; i++) {
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        (i < 3 ? first : others).insert(peer_of(there).port());
    }
    for (int i = 0; i < 5; i++)
        EXPECT_TRUE((i < 3 ? first : others).contains(name_of(here[i]).port())) << i;
}

TEST_P(Wire, ServerCloses) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    std::thread server([&] { Fd fd(::accept(l.get(), nullptr, nullptr)); });
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ECONNRESET);
    server.join();
}

TEST_P(Wire, ServerSpeaksNoMpa) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    std::vector<uint8_t> hello;
    std::thread server([&] {
        Fd fd(::accept(l.get(), nullptr, nullptr));
        hello = receive(fd, kSdpHelloLen);
        send_all(fd, pattern(300));
        receive(fd, 1);
    });
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ECONNRESET);
    server.join();
    ASSERT_EQ(hello.size(), kSdpHelloLen);
    EXPECT_EQ(wire::layout_of_hello(hello), kLayoutDraft);
    EXPECT_GE(SdpMessage::parse(hello, kLayoutDraft).bufs, kSdpBufsMin);
}

/* A set-up does not wait for ever. */
TEST_P(Wire, ServerSaysNothing) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    Fd here = make();
    auto begin = TickClock::now();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), a.get(), a.len)), ETIMEDOUT);
    EXPECT_GE(TickClock::now() - begin, std::chrono::seconds(5));
}

} // namespace softwarp::sockets
