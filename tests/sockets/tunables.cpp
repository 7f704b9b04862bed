// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * net.softwarp_sdp: what can be set in a network namespace, and what comes of it
 */
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>

#include "peer.hpp"
#include "seen.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

class Tunables : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Tunables, testing::ValuesIn(sdp_kinds()), name_of_kind);

using Clock = TickClock;
using std::chrono::milliseconds;

struct Bounds {
    const char *name;
    int least, most, at_first;
};
static const Bounds kBounds[] = {
    {"setup_timeout_ms", 100, 300000, 10000},
    {"grace_ms", 10, 300000, 10000},
    {"orphan_timeout_ms", 100, 600000, 60000},
    {"place_time_ms", 10, 300000, 2000},
    {"silent_max", 1, 65536, 256},
    {"orphans_max", 0, 1 << 20, 4096},
    {"rx_size_max", 4096, 135168, 135168},
    {"spin_us", 0, 10000, 1000},
    {"layout", SDP_INFO_LAYOUT_DRAFT, SDP_INFO_LAYOUT_IB, SDP_INFO_LAYOUT_DRAFT},
    {"policy", SDP_INFO_POLICY_SDP, SDP_INFO_POLICY_TCP, SDP_INFO_POLICY_SDP},
    {"pm_port", 1, 65535, 3935},
    {"pm_time", 0, 254, 120},
    {"pm_wait_ms", 3, 60000, 200},
    {"pm_silent_ms", 1, 3600000, 60000},
    {"pm_denied_ms", 1, 3600000, 5000},
    {"pm_cache", 64, 65536, 1024},
    {"pm_source_rate", 1, 100000, 64},
    {"pm_rate", 1, 100000, 4096},
};

/* What does harm, or has no sense, is refused and changes nothing. */
TEST_P(Tunables, ValuesHaveBounds) {
    for (const Bounds &b : kBounds) {
        SCOPED_TRACE(b.name);
        std::string before = read_value(b.name);
        EXPECT_EQ(before, std::to_string(b.at_first));
        for (int good : {b.least, b.most})
            Tuned tuned(b.name, good);
        for (const std::string &wrong :
             {std::to_string(b.least - 1), std::to_string(b.most + 1), std::string("-2147483648"),
              std::string("2147483647"), std::string("99999999999"), std::string("x")})
            EXPECT_EQ(write_value(b.name, wrong), EINVAL) << wrong;
        EXPECT_EQ(read_value(b.name), before);
        struct stat st = {};
        ASSERT_EQ(::stat(path_of(b.name).c_str(), &st), 0);
        EXPECT_EQ(st.st_mode & 07777, 0644U);
    }
}

/* In a thread of its own with a network namespace of its own */
template<typename Function>
static void elsewhere(Function function) {
    bool moved = false;
    std::thread other([&] {
        moved = ::unshare(CLONE_NEWNET) == 0;
        if (moved)
            function();
    });
    other.join();
    EXPECT_TRUE(moved);
}

TEST_P(Tunables, NamespacesAreSeparate) {
    Tuned tuned("grace_ms", 777);
    elsewhere([] {
        /* it begins with what holds in the first one */
        EXPECT_EQ(read_value("grace_ms"), "777");
        EXPECT_EQ(write_value("grace_ms", "888"), 0);
        EXPECT_EQ(read_value("grace_ms"), "888");
        elsewhere([] { EXPECT_EQ(read_value("grace_ms"), "777"); });
    });
    EXPECT_EQ(read_value("grace_ms"), "777");
}

/* By memory that is held for longer, or more of it, others lose. */
TEST_P(Tunables, FirstNamespaceIsTheBound) {
    for (const char *name : {"orphan_timeout_ms", "silent_max", "rx_size_max"}) {
        SCOPED_TRACE(name);
        std::string before = read_value(name);
        std::string more = std::to_string(std::stoi(before) + 1);
        elsewhere([&] {
            EXPECT_EQ(write_value(name, more), EINVAL);
            EXPECT_EQ(write_value(name, "5000"), std::stoi(before) < 5000 ? EINVAL : 0);
            EXPECT_EQ(write_value(name, before), 0);
        });
        EXPECT_EQ(read_value(name), before);
    }
    elsewhere([] { EXPECT_EQ(write_value("place_time_ms", "30000"), 0); });
}

static milliseconds since(Clock::time_point begin) {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

/* Longer than was set, and much less than without */
static void expect_took(Clock::time_point begin, int ms) {
    EXPECT_GE(since(begin), milliseconds(ms));
    EXPECT_LT(since(begin), milliseconds(ms + 1500));
}

TEST_P(Tunables, SetupTimeout) {
    Tuned tuned("setup_timeout_ms", 400);
    Counters before = counters();
    Fd l = tcp_listener();
    Address a = name_of(l);
    Fd app = make();
    Clock::time_point begin = Clock::now();
    EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), ETIMEDOUT);
    expect_took(begin, 400);
    /* and of who connects to us and says nothing */
    Fd listens = listener();
    Fd silent = tcp_to(listens);
    begin = Clock::now();
    char c;
    EXPECT_LE(::recv(silent.get(), &c, 1, 0), 0);
    EXPECT_LT(since(begin), milliseconds(2000));
    expect_more(before, "setup_timeouts", 2);
}

/* Both have said DisConn, and the peer does not close TCP. */
TEST_P(Tunables, Grace) {
    Tuned tuned("grace_ms", 300);
    Talk talk = accepted();
    ASSERT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    Clock::time_point begin = Clock::now();
    talk.peer->say(message(kSdpDisConn));
    EXPECT_TRUE(talk.peer->stream.closed_by_peer());
    expect_took(begin, 300);
}

/* The peer gives no credit, and the program has closed. */
TEST_P(Tunables, OrphanTimeout) {
    Tuned tuned("orphan_timeout_ms", 300);
    Counters before = counters();
    SdpMessage hello = good_hello();
    hello.bufs = 3;
    Talk talk = accepted(hello);
    ASSERT_TRUE(send_all(talk.app, pattern(1000)));
    Clock::time_point begin = Clock::now();
    talk.app.reset();
    expect_more(before, "orphan_timeouts", 1);
    expect_took(begin, 300);
}

/* A Hello, and then nothing: its place is another's soon. */
TEST_P(Tunables, PlaceTime) {
    Tuned tuned("place_time_ms", 100);
    Counters before = counters();
    Fd l = listener(0);
    Fd stuck = tcp_to(l);
    ASSERT_TRUE(send_all(stuck, encode(good_hello())));
    /* MPA's request says that it has a place */
    char c;
    ASSERT_EQ(::recv(stuck.get(), &c, 1, 0), 1);
    Clock::time_point begin = Clock::now();
    works(l);
    EXPECT_LT(since(begin), milliseconds(1900));
    expect_more(before, "stuck_dropped", 1);
}

TEST_P(Tunables, SilentMax) {
    Tuned tuned("silent_max", 2);
    Counters before = counters();
    Fd l = listener();
    Fd first = tcp_to(l), second = tcp_to(l);
    usleep(100000);
    expect_more(before, "silent_dropped", 0);
    Fd third = tcp_to(l);
    char c;
    EXPECT_LE(::recv(first.get(), &c, 1, 0), 0);
    expect_more(before, "silent_dropped", 1);
    EXPECT_EQ(ERRNO_OF(::recv(second.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
    EXPECT_EQ(ERRNO_OF(::recv(third.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
    /* both of them when there is room for one less */
    Tuned less("silent_max", 1);
    Fd fourth = tcp_to(l);
    expect_more(before, "silent_dropped", 3);
    EXPECT_EQ(ERRNO_OF(::recv(fourth.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
}

/* Much in one direction; buffers grow from one recv() to the next */
static uint32_t size_after(Pair &pair) {
    std::vector<uint8_t> part = pattern(20000);
    std::thread sender([&] {
        for (int i = 0; i < 200; i++)
            EXPECT_TRUE(send_all(pair.here, part));
    });
    for (int i = 0; i < 200; i++)
        EXPECT_EQ(receive(pair.there, part.size()), part);
    sender.join();
    sdp_info found{};
    socklen_t len = sizeof(found);
    EXPECT_EQ(::getsockopt(pair.there.get(), SOL_SDP, SDP_INFO, &found, &len), 0);
    return found.own_size;
}

TEST_P(Tunables, LargestBuffer) {
    Pair pair = connected();
    EXPECT_EQ(size_after(pair), 135168U);
    Tuned tuned("rx_size_max", 10000);
    Pair other = connected();
    /* rounded down, since buffers are pages */
    EXPECT_EQ(size_after(other), 8192U);
}

/* A call that waits for much gets it in large messages, too, and not when the next call begins. */
TEST_P(Tunables, BuffersGrowWithinACall) {
    Pair pair = connected();
    std::vector<uint8_t> got(6 << 20);
    uint64_t before = counters()["messages_received"];
    Call sends([&] { return send_all(pair.here, pattern(got.size())) ? 0 : -1; });
    EXPECT_EQ(::recv(pair.there.get(), got.data(), got.size(), MSG_WAITALL),
              static_cast<ssize_t>(got.size()));
    EXPECT_TRUE(got == pattern(got.size()));
    EXPECT_EQ(sends.ret(), 0);
    /* 1,548 of 4 KiB each, with as many updates */
    EXPECT_LT(counters()["messages_received"] - before, 1000U);
}

TEST_P(Tunables, Layout) {
    Fd before = make();
    Tuned tuned("layout", SDP_INFO_LAYOUT_IB);
    Fd fd = make();
    EXPECT_EQ(option(fd, SOL_SDP, SDP_LAYOUT), SDP_INFO_LAYOUT_IB);
    EXPECT_EQ(option(before, SOL_SDP, SDP_LAYOUT), SDP_INFO_LAYOUT_DRAFT);
    Pair pair = connected();
    EXPECT_EQ(option(pair.there, SOL_SDP, SDP_LAYOUT), SDP_INFO_LAYOUT_IB);
    ASSERT_TRUE(send_all(pair.here, pattern(100)));
    EXPECT_EQ(receive(pair.there, 100), pattern(100));
}

} // namespace softwarp::sockets
