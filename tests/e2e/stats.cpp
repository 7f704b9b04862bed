// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the rdma tool shows. */
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/network.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

TEST(Stats, CountersGrowWithTraffic) {
    auto before = counters(config().dev);
    ASSERT_FALSE(before.empty()) << "rdma statistic shows no counters";
    Pair pair;
    for (uint64_t i = 0; i < 20; i++)
        expect_works(pair, i);
    auto after = counters(config().dev);
    ASSERT_EQ(after.size(), before.size());
    unsigned grown = 0;
    for (auto &[name, value] : after) {
        EXPECT_GE(value, before[name]) << name;
        if (value > before[name])
            grown++;
    }
    EXPECT_GE(grown, 2U) << "sent and received, at least";
}

/* Garbage on a listening port leaves a trace. */
TEST(Stats, BadRequestsAreCounted) {
    auto before = counters(config().peer_dev);
    EventChannel channel;
    Listener listener(channel, config().peer_ns, config().peer_addr4);
    Stream raw("", config().peer_addr4, listener.port());
    Bytes garbage(100, 0x55);
    raw.say(garbage);
    ASSERT_TRUE(raw.closed_by_peer());
    auto after = counters(config().peer_dev);
    unsigned grown = 0;
    for (auto &[name, value] : after)
        if (value > before[name])
            grown++;
    EXPECT_GE(grown, 1U) << "no counter tells of a bad MPA request";
}

/* Terminates of either direction are counted. */
TEST(Stats, TerminatesAreCounted) {
    auto before = counters(config().dev);
    {
        Pair pair;
        pair.c().send(1, {}); // nothing posted to receive it
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    }
    auto after = counters(config().dev);
    bool found = false;
    for (auto &[name, value] : after)
        if (name.find("term") != std::string::npos && value > before[name])
            found = true;
    EXPECT_TRUE(found) << "no counter of Terminates grew";
}

TEST(Stats, ResourcesShow) {
    Pair pair;
    Region region(pair.c().pd(), 4096);
    std::string qps = must_shell("rdma resource show qp link " + config().dev + "/1");
    EXPECT_NE(qps.find(fmt::format("lqpn {} ", pair.c().qp()->qp_num)), std::string::npos) << qps;
    EXPECT_NE(qps.find("type RC state RTS"), std::string::npos) << qps;
    EXPECT_NE(qps.find(fmt::format("pid {}", getpid())), std::string::npos) << qps;

    std::string cqs = must_shell("rdma resource show cq dev " + config().dev);
    EXPECT_NE(cqs.find("cqe "), std::string::npos) << cqs;
    std::string mrs = must_shell("rdma resource show mr dev " + config().dev);
    EXPECT_NE(mrs.find("mrlen 4096"), std::string::npos) << mrs;
    std::string ids = must_shell("rdma resource show cm_id link " + config().dev + "/1");
    EXPECT_NE(ids.find("state CONNECT"), std::string::npos) << ids;
}

TEST(Stats, LinkShows) {
    std::string text = must_shell("rdma link show " + config().dev + "/1");
    EXPECT_NE(text.find("state ACTIVE physical_state LINK_UP"), std::string::npos) << text;
    EXPECT_NE(text.find("netdev "), std::string::npos) << text;
    text = must_shell("rdma -d dev show " + config().dev);
    EXPECT_NE(text.find("node_type rnic"), std::string::npos) << text;
}

} // namespace
