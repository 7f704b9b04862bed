// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the rdma tool shows. */
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

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

/* Between two ends on one host FPDUs are as long as many segments, unless that is switched off. */
TEST(Stats, LongFpdusOnOneHost) {
    PolicyOverride by_tcp(config().dev, "same_host", "off");
    constexpr size_t kLength = 65536;
    for (const Route &route : {veth4(), veth6()})
        for (const bool large : {true, false}) {
            SCOPED_TRACE(testing::Message() << route.connect_addr << (large ? " large" : " small"));
            ParameterOverride parameter("large_fpdus", large ? "1" : "0");
            Pair pair({}, route);
            Region from(pair.c().pd(), kLength),
                to(pair.s().pd(), kLength, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
            const auto write = [&](uint64_t round) {
                fill(from.at(0), kLength, round);
                pair.c().write(round, {from.all()}, to.addr(), to.rkey());
                expect_success(pair.c().scq(), round, IBV_WC_RDMA_WRITE);
                EXPECT_TRUE(eventually([&] { return memcmp(from.at(0), to.at(0), kLength) == 0; }));
            };
            /* TCP's packets are short in the beginning */
            for (uint64_t round = 0; round < 20; round++)
                write(round);
            uint64_t least = kLength;
            for (uint64_t round = 0; round < 4; round++) {
                const uint64_t before = counters(config().dev).at("tx_fpdu");
                write(100 + round);
                least = std::min(least, counters(config().dev).at("tx_fpdu") - before);
            }
            if (large)
                EXPECT_LE(least, 10U);
            else
                EXPECT_GE(least, kLength / 1448);
        }
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

/* Terminates of either direction are counted, and by reason. */
TEST(Stats, TerminatesAreCounted) {
    auto ours = counters(config().dev), theirs = counters(config().peer_dev);
    {
        Pair pair;
        pair.c().send(1, {}); // nothing posted to receive it
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    }
    auto grown = [](const std::string &dev, std::map<std::string, uint64_t> &before) {
        std::vector<std::string> names;
        for (auto &[name, value] : counters(dev))
            if (name.starts_with("terminate_"))
                for (uint64_t i = before[name]; i < value; i++)
                    names.push_back(name);
        return names;
    };
    using Names = std::vector<std::string>;
    EXPECT_EQ(grown(config().dev, ours),
              (Names{"terminate_for_ddp_no_buffer", "terminate_received"}));
    EXPECT_EQ(grown(config().peer_dev, theirs),
              (Names{"terminate_for_ddp_no_buffer", "terminate_sent"}));
}

/* A counter of chosen QPs counts what these do, from the bind on, and keeps it. */
TEST(Stats, CountersOfSingleQps) {
    const std::string link = config().dev + "/1";
    auto shown = [&] {
        std::map<std::string, uint64_t> values;
        std::istringstream words(must_shell("rdma statistic qp show link " + link));
        std::string name, value;
        while (words >> name && name != "lqpn")
            if (name == "tx_requests" || name == "tx_fpdu" || name == "cntn") {
                words >> value;
                values[name] = std::stoull(value);
            }
        return values;
    };
    Pair first, second, other;
    expect_works(first, 1);
    must_shell(fmt::format("rdma statistic qp bind link {} lqpn {}", link, first.c().qp()->qp_num));
    auto values = shown();
    EXPECT_EQ(values["tx_requests"], 0U) << "what was before does not count";
    uint64_t number = values["cntn"];
    ASSERT_NE(number, 0U);
    must_shell(fmt::format("rdma statistic qp bind link {} lqpn {} cntn {}", link,
                           second.c().qp()->qp_num, number));
    expect_works(other, 2);
    EXPECT_EQ(shown()["tx_requests"], 0U) << "another QP";
    for (uint64_t i = 0; i < 3; i++)
        expect_works(first, 10 + i);
    uint64_t of_first = shown()["tx_requests"];
    EXPECT_GE(of_first, 3U);
    EXPECT_GE(shown()["tx_fpdu"], 3U);
    expect_works(second, 20);
    EXPECT_GT(shown()["tx_requests"], of_first);

    must_shell(fmt::format("rdma statistic qp unbind link {} cntn {} lqpn {}", link, number,
                           first.c().qp()->qp_num));
    uint64_t before = shown()["tx_requests"];
    EXPECT_GT(before, of_first) << "what the first one did is not forgotten";
    expect_works(first, 30);
    EXPECT_EQ(shown()["tx_requests"], before);
    must_shell(fmt::format("rdma statistic qp unbind link {} cntn {}", link, number));
    EXPECT_EQ(must_shell("rdma statistic qp show link " + link), "");
}

/* What a QP does counts once for the port, bound to a counter or not, now and later. */
TEST(Stats, CountersOfSingleQpsAndThePort) {
    const std::string link = config().dev + "/1";
    Pair pair;
    auto before = counters(config().dev);
    uint64_t sent = 0;
    auto once = [&](const char *when) {
        SCOPED_TRACE(when);
        for (unsigned i = 0; i < 10; i++) {
            pair.s().recv(++sent, {});
            pair.c().send(sent, {});
            expect_success(pair.c().scq(), sent, IBV_WC_SEND);
            expect_success(pair.s().rcq(), sent, IBV_WC_RECV, 0);
        }
        auto now = counters(config().dev);
        EXPECT_EQ(now["tx_requests"] - before["tx_requests"], sent);
        for (auto &[name, value] : now) {
            if (name.starts_with("terminate_") || name.starts_with("connect")) {
                EXPECT_EQ(value, before[name]) << name;
            }
        }
    };
    once("free");
    must_shell(fmt::format("rdma statistic qp bind link {} lqpn {}", link, pair.c().qp()->qp_num));
    once("bound");
    once("bound still");
    std::istringstream words(must_shell("rdma statistic qp show link " + link));
    std::string word, number;
    while (words >> word && word != "cntn")
        ;
    ASSERT_TRUE(words >> number);
    must_shell(fmt::format("rdma statistic qp unbind link {} cntn {}", link, number));
    once("unbound");
    must_shell(fmt::format("rdma statistic qp bind link {} lqpn {}", link, pair.c().qp()->qp_num));
    once("bound to another");
}

/* What monitoring reads of each port: the same, in words of four octets */
TEST(Stats, PortCounters) {
    const std::string base = fmt::format("/sys/class/infiniband/{}/ports/1/", config().dev);
    auto value = [&](const std::string &name) {
        std::ifstream file(base + name);
        uint64_t number = 0;
        EXPECT_TRUE(file >> number) << name;
        return number;
    };
    const std::pair<const char *, const char *> same[] = {
        {"port_xmit_packets", "tx_fpdu"},
        {"port_rcv_packets", "rx_fpdu"},
        {"port_xmit_data", "tx_bytes"},
        {"port_rcv_data", "rx_bytes"},
    };
    Pair pair;
    uint64_t packets = value("counters/port_xmit_packets");
    must_shell(fmt::format("rdma statistic qp bind link {}/1 lqpn {}", config().dev,
                           pair.c().qp()->qp_num));
    for (uint64_t i = 0; i < 20; i++)
        expect_works(pair, i);
    EXPECT_GE(value("counters/port_xmit_packets"), packets + 20);
    EXPECT_EQ(value("counters/unicast_xmit_packets"), value("counters/port_xmit_packets"));
    EXPECT_EQ(value("counters/multicast_rcv_packets"), 0U);
    /* sysfs keeps the others for 10 ms */
    usleep(20000);
    for (auto &[pma, own] : same) {
        uint64_t octets = std::string(own).ends_with("bytes") ? 4 : 1;
        EXPECT_EQ(value(std::string("counters/") + pma),
                  value(std::string("hw_counters/") + own) / octets)
            << pma;
    }
    EXPECT_EQ(value("counters/port_rcv_errors"), value("hw_counters/rx_crc_errors") +
                                                     value("hw_counters/rx_marker_errors") +
                                                     value("hw_counters/rx_protocol_errors"));
    EXPECT_EQ(value("counters/port_xmit_wait"), value("hw_counters/tx_stalls"));
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
    mrs = must_shell("rdma -dd resource show mr dev " + config().dev);
    EXPECT_NE(mrs.find("drv_kind user drv_valid 1"), std::string::npos) << mrs;
    qps = must_shell("rdma -dd resource show qp link " + config().dev + "/1");
    EXPECT_NE(qps.find("drv_peer " + config().peer_addr4 + ":"), std::string::npos) << qps;
    EXPECT_NE(qps.find("drv_mpa_rev 2 drv_crc 1"), std::string::npos) << qps;
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
