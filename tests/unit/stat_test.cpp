// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What sdp_stat reads from the kernel's lines, and the sentences that it makes of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/observe.hpp"
#include "tools/report.hpp"
#include "tools/table.hpp"
#include "tools/why.hpp"

namespace {

using namespace softwarp;
using namespace softwarp::tools;
using nlohmann::json;
using preload::Policy;

// As the module prints them, with columns that came later, and less space between.
constexpr const char *socket_lines =
    "local remote state mode rx_queue tx_queue own peer bufs size rx_bcopy tx_bcopy rx_zcopy "
    "tx_zcopy uid inode device policy service why later\n"
    "10.0.0.1:40000 10.0.0.2:80 open combined 10 20 3 4 6 4096 1000 2000 5 6 1000 77 sw0 sdp - - "
    "x\n"
    "[fd00::1]:40001 [fd00::2]:80 by-tcp - 0 0 0 0 0 0 0 0 0 0 0 78 - auto - no_device x\n"
    "0.0.0.0:80 0.0.0.0:0 listen - 1 128 0 0 0 0 0 0 0 0 0 79 - auto - sdp-port=4711 x\n"
    "127.0.0.1:81 0.0.0.0:0 idle - 0 0 0 0 0 0 0 0 0 0 0 80 - tcp - - x\n";

constexpr const char *answer_lines = "service local answer sdp expires_ms\n"
                                     "10.0.0.2:80 10.0.0.1:0 sdp 10.0.0.2:4711 1500\n"
                                     "10.0.0.2:81 10.0.0.1:0 denied - 2000\n"
                                     "10.0.0.3:0 10.0.0.1:0 silent - 59999\n";

Socket open_socket() {
    return sockets_in(socket_lines).values.at(0);
}

std::string joined(const Sentences &sentences) {
    std::string text;
    for (const std::string &sentence : sentences)
        text += sentence + "\n";
    return text;
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// The way to 10.0.0.2:80 by net0 with softwarp's sw0
Surroundings around_peer(const char *peer = "10.0.0.2:80") {
    Surroundings around;
    around.peer = place_of(peer);
    around.route = Route{.error = 0, .netdev = "net0", .loopback = false, .source = {}};
    around.device = RdmaDevice{"sw0", {"net0"}, true};
    around.devices = {*around.device};
    around.answers = std::vector<Answer>{};
    return around;
}

Snapshot snapshot_of(const char *sockets, const char *counters) {
    Snapshot snapshot;
    snapshot.sockets = sockets_in(sockets).values;
    snapshot.counters = counters_in(counters);
    snapshot.answers = answers_in(answer_lines).values;
    snapshot.settings = {{"policy", 1}};
    return snapshot;
}

constexpr Sections everything{.sockets = true,
                              .reasons = true,
                              .faults = true,
                              .cache = true,
                              .counters = true,
                              .settings = true};

} // namespace

// Tables ------------------------------------------------------------------------------------

TEST(StatTable, SocketsByTheNamesOfColumns) {
    const auto parsed = sockets_in(socket_lines);
    ASSERT_EQ(parsed.values.size(), 4U);
    EXPECT_EQ(parsed.error, "");
    EXPECT_EQ(parsed.incomplete, 0U);
    const Socket &first = parsed.values[0];
    EXPECT_EQ(first.local, "10.0.0.1:40000");
    EXPECT_EQ(first.remote, "10.0.0.2:80");
    EXPECT_EQ(first.state, "open");
    EXPECT_EQ(first.mode, "combined");
    EXPECT_EQ(first.rx_queue, 10U);
    EXPECT_EQ(first.tx_queue, 20U);
    EXPECT_EQ(first.own_credits, 3U);
    EXPECT_EQ(first.peer_credits, 4U);
    EXPECT_EQ(first.buffers, 6U);
    EXPECT_EQ(first.buffer_size, 4096U);
    EXPECT_EQ(first.rx_bcopy, 1000U);
    EXPECT_EQ(first.tx_bcopy, 2000U);
    EXPECT_EQ(first.rx_zcopy, 5U);
    EXPECT_EQ(first.tx_zcopy, 6U);
    EXPECT_EQ(first.uid, 1000U);
    EXPECT_EQ(first.inode, 77U);
    EXPECT_EQ(first.device, "sw0");
    EXPECT_EQ(first.policy, "sdp");
    EXPECT_EQ(first.service, "");
    EXPECT_EQ(first.why, "");
    EXPECT_TRUE(first.is_connected());
    EXPECT_EQ(first.kind(), Socket::Kind::sdp);
    EXPECT_EQ(parsed.values[1].kind(), Socket::Kind::tcp);
    EXPECT_EQ(parsed.values[1].why, "no_device");
    EXPECT_EQ(parsed.values[2].kind(), Socket::Kind::listener);
    EXPECT_EQ(parsed.values[3].kind(), Socket::Kind::other);
}

TEST(StatTable, ColumnsInAnotherOrderAndFewer) {
    const auto parsed = sockets_in("state  remote local\nopen a b\n\nopen c\n");
    ASSERT_EQ(parsed.values.size(), 1U);
    EXPECT_EQ(parsed.values[0].local, "b");
    EXPECT_EQ(parsed.values[0].remote, "a");
    EXPECT_EQ(parsed.values[0].tx_queue, 0U);
    EXPECT_EQ(parsed.incomplete, 1U); // the empty line does not count
}

TEST(StatTable, WhatIsNoSuchTableIsAnError) {
    for (const char *text : {"", "\n", "local remote\n1 2\n", "no\0thing"}) {
        const auto parsed = sockets_in(text);
        EXPECT_TRUE(has(parsed.error, "softwarp_sdp has no column ")) << text;
        EXPECT_TRUE(parsed.values.empty());
    }
    EXPECT_TRUE(has(answers_in("service\n").error, "softwarp_sdp_pm has no column answer"));
}

TEST(StatTable, NumbersThatAreNone) {
    const auto parsed = sockets_in("local remote state rx_queue tx_queue own\n"
                                   "a b open -1 99999999999999999999 7x\n");
    ASSERT_EQ(parsed.values.size(), 1U);
    EXPECT_EQ(parsed.values[0].rx_queue, 0U);
    EXPECT_EQ(parsed.values[0].tx_queue, 0U);
    EXPECT_EQ(parsed.values[0].own_credits, 0U);
    EXPECT_EQ(number_of("18446744073709551615"), UINT64_MAX);
    EXPECT_FALSE(number_of("18446744073709551616"));
    EXPECT_FALSE(number_of(""));
    EXPECT_FALSE(number_of(" 1"));
}

TEST(StatTable, NothingControlsATerminal) {
    const auto parsed = sockets_in("local remote state device\na b open sw\033[31m\n");
    ASSERT_EQ(parsed.values.size(), 1U);
    EXPECT_EQ(parsed.values[0].device, "sw?[31m");
}

TEST(StatTable, Counters) {
    const Counters counters = counters_in("connected 3\nodd\ntcp_policy 5 later\nx y\nlast 1");
    ASSERT_EQ(counters.size(), 3U);
    EXPECT_EQ(counters[0].first, "connected");
    EXPECT_EQ(counters[0].second, 3U);
    EXPECT_EQ(counters[1].second, 5U);
    EXPECT_EQ(counters[2].first, "last");
}

TEST(StatTable, Answers) {
    const auto parsed = answers_in(answer_lines);
    ASSERT_EQ(parsed.values.size(), 3U);
    EXPECT_EQ(parsed.values[0].sdp, "10.0.0.2:4711");
    EXPECT_EQ(parsed.values[0].expires_ms, 1500U);
    EXPECT_EQ(parsed.values[1].sdp, "");
    const auto found = [&](const char *to) {
        const Answer *answer = answer_for(parsed.values, place_of(to).value());
        return answer != nullptr ? answer->answer : "";
    };
    EXPECT_EQ(found("10.0.0.2:80"), "sdp");
    EXPECT_EQ(found("10.0.0.2:81"), "denied");
    EXPECT_EQ(found("10.0.0.2:82"), "");
    EXPECT_EQ(found("10.0.0.2"), "");
    EXPECT_EQ(found("10.0.0.3:82"), "silent");
    EXPECT_EQ(found("10.0.0.3"), "silent");
    EXPECT_EQ(found("[fd00::2]:80"), "");
}

TEST(StatTable, PlacesWithAndWithoutPorts) {
    const auto text = [](const char *place) {
        const auto endpoint = place_of(place);
        return endpoint ? std::string{preload::text_of(*endpoint).data()} : "none";
    };
    EXPECT_EQ(text("10.0.0.1"), "10.0.0.1:0");
    EXPECT_EQ(text("10.0.0.1:80"), "10.0.0.1:80");
    EXPECT_EQ(text("fd00::1"), "[fd00::1]:0");
    EXPECT_EQ(text("[fd00::1]"), "[fd00::1]:0");
    EXPECT_EQ(text("[fd00::1]:65535"), "[fd00::1]:65535");
    // as the kernel shows IPv4 peers of IPv6 sockets
    EXPECT_EQ(text("[::ffff:10.0.0.1]:80"), "10.0.0.1:80");
    for (const char *bad : {"", ":", "[", "]", "[:", "[]", "[]:1", "10.0.0.1:", "10.0.0.1:65536",
                            "10.0.0.1:x", "10.0.0.1:-1", "[10.0.0.1]:80", "[fd00::1]80", "[fd00::1",
                            "fd00::1]:80", "host", "host:80", "10.0.0", "1:2:3"})
        EXPECT_EQ(text(bad), "none") << bad;
}

TEST(StatTable, ConnectionsWithAPeer) {
    const std::vector<Answer> answers = answers_in(answer_lines).values;
    Socket socket = open_socket();
    socket.policy.clear(); // an older module
    const auto with = [&](const char *remote, const char *peer) {
        socket.remote = remote;
        return with_peer(socket, place_of(peer).value(), answers);
    };
    EXPECT_EQ(with("10.0.0.2:80", "10.0.0.2:80"), With::yes);
    EXPECT_EQ(with("10.0.0.2:80", "10.0.0.2"), With::yes);
    EXPECT_EQ(with("[::ffff:10.0.0.2]:80", "10.0.0.2:80"), With::yes);
    EXPECT_EQ(with("10.0.0.3:80", "10.0.0.2:80"), With::none);
    EXPECT_EQ(with("10.0.0.3:80", "10.0.0.2"), With::none);
    EXPECT_EQ(with("10.0.0.2:0", "10.0.0.2"), With::none);
    EXPECT_EQ(with("", "10.0.0.2"), With::none);
    // the SDP port that the cache has for the service, and another one
    EXPECT_EQ(with("10.0.0.2:4711", "10.0.0.2:80"), With::yes);
    EXPECT_EQ(with("10.0.0.2:4711", "10.0.0.2:81"), With::maybe);
    EXPECT_EQ(with("10.0.0.2:4712", "10.0.0.2:80"), With::maybe);
    // the module says which service it is, or that there is no other port
    socket.service = "10.0.0.4:80";
    EXPECT_EQ(with("10.0.0.2:4711", "10.0.0.4:80"), With::yes);
    EXPECT_EQ(with("10.0.0.2:4711", "10.0.0.2:80"), With::none);
    // a client's connection to a service of ours
    socket.service = "10.0.0.1:80";
    EXPECT_EQ(with("10.0.0.2:40000", "10.0.0.2:80"), With::none);
    EXPECT_EQ(with("10.0.0.2:40000", "10.0.0.2"), With::yes);
    socket.service.clear();
    socket.policy = "sdp";
    EXPECT_EQ(with("10.0.0.2:4712", "10.0.0.2:80"), With::none);
    socket.policy = "auto";
    EXPECT_EQ(with("10.0.0.2:4712", "10.0.0.2:80"), With::maybe);
    // by TCP the port is the service's
    socket.state = "by-tcp";
    EXPECT_EQ(with("10.0.0.2:4711", "10.0.0.2:80"), With::none);
}

TEST(StatTable, RatesOfWhatHasChanged) {
    const auto counters =
        rates_of(counters_in("a 1\nb 5\nc 9\n"), counters_in("a 1\nb 9\nc 4\nd 2\n"), 2);
    ASSERT_EQ(counters.size(), 3U);
    EXPECT_EQ(counters[0].name, "b");
    EXPECT_DOUBLE_EQ(counters[0].per_second, 2);
    EXPECT_DOUBLE_EQ(counters[1].per_second, 2); // loaded again meanwhile
    EXPECT_DOUBLE_EQ(counters[2].per_second, 1);

    std::vector<Socket> before = sockets_in(socket_lines).values;
    std::vector<Socket> after = before;
    after[0].rx_bcopy += 100;
    after[0].tx_zcopy += 50;
    after.push_back(before[0]);
    after.back().local = "10.0.0.1:40009";
    const auto sockets = rates_of(before, after, 0.5);
    ASSERT_EQ(sockets.size(), 2U);
    EXPECT_DOUBLE_EQ(sockets[0].received, 200);
    EXPECT_DOUBLE_EQ(sockets[0].sent, 100);
    EXPECT_DOUBLE_EQ(sockets[1].received, 2 * 1005);
    EXPECT_TRUE(rates_of(before, before, 1).empty());
}

// Reports -----------------------------------------------------------------------------------

TEST(StatReport, Text) {
    const Snapshot snapshot =
        snapshot_of(socket_lines, "connected 1\ntcp_policy 0\ntcp_no_device 2\nfault_mseq 3\n");
    const std::string text = text_of(snapshot, everything);
    EXPECT_TRUE(has(text, "sockets: 1 by SDP, 1 by TCP, 1 listening, 1 not connected\n")) << text;
    EXPECT_TRUE(has(text, "  no_device  2  there is no RDMA device on the route\n")) << text;
    EXPECT_FALSE(has(text, "  policy  0  the")) << text;
    EXPECT_TRUE(has(text, "  mseq  3\n")) << text;
    EXPECT_TRUE(has(text, "answers of port mappers: 3\n")) << text;
    EXPECT_TRUE(has(text, "net.softwarp_sdp\n  policy  1\n")) << text;
    EXPECT_TRUE(has(text, "sdp-port=4711\n")) << text;
}

TEST(StatReport, EmptyAndForbidden) {
    Snapshot snapshot = snapshot_of("local remote state\n", "tcp_policy 0\nfault_mseq 0\n");
    snapshot.answers = std::vector<Answer>{};
    const Sections sections{.sockets = true, .reasons = true, .faults = true, .cache = true};
    EXPECT_EQ(text_of(snapshot, sections), "sockets: none of SDP is open\n"
                                           "TCP in place of SDP: never so far\n"
                                           "answers of port mappers: none is remembered\n");
    snapshot.answers.reset();
    snapshot.no_answers = "only root may";
    EXPECT_TRUE(has(text_of(snapshot, sections), "answers of port mappers: only root may\n"));
}

TEST(StatReport, Json) {
    const Snapshot snapshot =
        snapshot_of(socket_lines, "connected 1\ntcp_policy 0\ntcp_no_device 2\nfault_mseq 3\n");
    const json object = json::parse(json_of(snapshot, everything));
    EXPECT_EQ(object.size(), 6U);
    EXPECT_EQ(object["sockets"].size(), 4U);
    EXPECT_EQ(object["sockets"][0]["kind"], "sdp");
    EXPECT_EQ(object["sockets"][0]["peer_credits"], 4);
    EXPECT_TRUE(object["sockets"][0]["why"].is_null());
    EXPECT_EQ(object["sockets"][1]["why"], "no_device");
    EXPECT_EQ(object["reasons"], json({{"policy", 0}, {"no_device", 2}}));
    EXPECT_EQ(object["faults"], json({{"mseq", 3}}));
    EXPECT_EQ(object["cache"].size(), 3U);
    EXPECT_EQ(object["cache"][0]["sdp"], "10.0.0.2:4711");
    EXPECT_EQ(object["counters"]["connected"], 1);
    EXPECT_EQ(object["settings"], json({{"policy", 1}}));
    // of one section, and what may not be read
    Snapshot forbidden = snapshot;
    forbidden.answers.reset();
    EXPECT_EQ(json::parse(json_of(forbidden, Sections{.cache = true})), json({{"cache", nullptr}}));
    // a name that is not UTF-8
    forbidden.sockets[0].device = "sw\xff";
    EXPECT_TRUE(json::accept(json_of(forbidden, everything)));
}

TEST(StatReport, Changes) {
    const Snapshot before = snapshot_of(socket_lines, "connected 1\ntcp_policy 0\n");
    Snapshot after = before;
    after.sockets[0].rx_bcopy += 3000000;
    after.counters[1].second += 4;
    const std::string text = text_of_changes(before, after, 2, everything);
    EXPECT_TRUE(has(text, "in 2.0 s\n")) << text;
    EXPECT_TRUE(has(text, "10.0.0.1:40000  10.0.0.2:80  received  1.5 MB/s  sent  0 octets/s"))
        << text;
    EXPECT_TRUE(has(text, "  tcp_policy  2.0/s\n")) << text;
    EXPECT_EQ(text_of_changes(before, before, 2, everything), "in 2.0 s: no change\n");
    EXPECT_EQ(text_of_changes(before, after, 2, Sections{.cache = true}), "in 2.0 s: no change\n");
    const std::string line = json_of_changes(before, after, 2, everything);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const json object = json::parse(line);
    EXPECT_EQ(object["seconds"], 2.0);
    EXPECT_EQ(object["sockets"][0]["received_per_second"], 1500000.0);
    EXPECT_EQ(object["counters_per_second"], json({{"tcp_policy", 2.0}}));
}

TEST(StatReport, Headlines) {
    const std::vector<Socket> sockets = sockets_in(socket_lines).values;
    EXPECT_EQ(headline(sockets[0]), "10.0.0.1:40000 - 10.0.0.2:80: SDP over sw0, open.");
    EXPECT_EQ(headline(sockets[1]), "[fd00::1]:40001 - [fd00::2]:80: TCP, because there is no RDMA "
                                    "device on the route.");
    EXPECT_EQ(headline(sockets[2]), "0.0.0.0:80: listens.");
    EXPECT_EQ(headline(sockets[3]), "127.0.0.1:81 - 0.0.0.0:0: not connected.");
    Socket odd = sockets[1];
    odd.why = "of_tomorrow";
    EXPECT_TRUE(has(headline(odd), "TCP, because of of_tomorrow."));
}

TEST(StatReport, Octets) {
    EXPECT_EQ(octets(0), "0 octets");
    EXPECT_EQ(octets(999), "999 octets");
    EXPECT_EQ(octets(1000), "1.0 kB");
    EXPECT_EQ(octets(999949), "999.9 kB");
    EXPECT_EQ(octets(999990), "1.0 MB");
    EXPECT_EQ(octets(5e15), "5000.0 TB");
}

// Why ---------------------------------------------------------------------------------------

TEST(StatWhy, WordsOfTheKernel) {
    for (unsigned i = 1; i < 8; ++i)
        EXPECT_EQ(because(reason_word(i)).find("newer"), std::string::npos) << i;
    EXPECT_EQ(because("no_device"), "there is no RDMA device on the route");
    EXPECT_EQ(because("peer"), "the peer has connected by TCP");
    EXPECT_EQ(because(""), "");
    EXPECT_EQ(because("?"), "");
    EXPECT_STREQ(reason_word(0), "");
    EXPECT_STREQ(reason_word(8), "?");
    EXPECT_STREQ(state_word(6), "open");
    EXPECT_STREQ(state_word(17), "moving");
    EXPECT_STREQ(state_word(18), "?");
    EXPECT_STREQ(mode_word(255), "");
    EXPECT_STREQ(mode_word(1), "combined");
    EXPECT_STREQ(fault_word(12), "invalidate");
    EXPECT_STREQ(fault_word(13), "?");
}

TEST(StatWhy, NoDevice) {
    Surroundings around = around_peer();
    EXPECT_TRUE(has(joined(remedy("no_device", around)), "By now sw0 is on the route"));
    around.device.reset();
    // sw0 exists elsewhere
    EXPECT_TRUE(
        has(joined(remedy("no_device", around)), "rdma link add sw1 type softwarp netdev net0"));
    around.device = RdmaDevice{"rxe0", {"net0"}, false};
    EXPECT_TRUE(has(joined(remedy("no_device", around)), "rxe0 over net0 is not softwarp's"));
    around.route->error = ENETUNREACH;
    EXPECT_TRUE(has(joined(remedy("no_device", around)), "There is no route to 10.0.0.2:80"));
    around.route.reset();
    EXPECT_TRUE(has(joined(remedy("no_device", around)), "ip route get"));
}

TEST(StatWhy, WhatTheCacheSays) {
    Surroundings around = around_peer("10.0.0.2:81");
    around.answers = answers_in(answer_lines).values;
    const std::string text = joined(remedy("denied", around));
    EXPECT_TRUE(has(text, "10.0.0.2:81 has a port mapper, but no SDP port")) << text;
    EXPECT_TRUE(has(text, "remembers for 2.0 s more that 10.0.0.2:81 has no SDP")) << text;
    around.peer = place_of("10.0.0.3:81");
    EXPECT_TRUE(has(joined(remedy("no_answer", around)),
                    "remembers for 59.9 s more that 10.0.0.3 has no port mapper"));
    around.answers.reset();
    EXPECT_TRUE(has(joined(remedy("no_answer", around)), "as root"));
    around.settings["pm_port"] = 4000;
    EXPECT_TRUE(has(joined(remedy("no_answer", around)), "UDP port 4000"));
}

TEST(StatWhy, PolicyAndPeer) {
    Surroundings around = around_peer();
    EXPECT_TRUE(has(joined(remedy("policy", around)), "TCP_MD5SIG"));
    EXPECT_FALSE(has(joined(remedy("policy", around)), "net.softwarp_sdp.policy"));
    around.settings["policy"] = 2;
    EXPECT_TRUE(has(joined(remedy("policy", around)), "net.softwarp_sdp.policy is 2"));
    EXPECT_TRUE(has(joined(remedy("peer", around)), "The client at 10.0.0.2:80 decides"));
    EXPECT_FALSE(remedy("refused", around).empty());
    EXPECT_FALSE(remedy("setup", around).empty());
    EXPECT_TRUE(remedy("of_tomorrow", around).empty());
}

TEST(StatWhy, TheNextConnection) {
    using Way = Forecast::Way;
    Surroundings around = around_peer();
    EXPECT_EQ(forecast(Policy::tcp, around).way, Way::tcp);
    Forecast next = forecast(Policy::automatic, around);
    EXPECT_EQ(next.way, Way::asked);
    EXPECT_TRUE(has(joined(next.sentences), "asks 10.0.0.2:80 whether it has SDP"));
    around.answers = answers_in(answer_lines).values;
    next = forecast(Policy::automatic, around);
    EXPECT_EQ(next.way, Way::sdp);
    EXPECT_TRUE(has(joined(next.sentences), "uses SDP over sw0 on the route by net0"));
    EXPECT_TRUE(has(joined(next.sentences), "by SDP at 10.0.0.2:4711"));
    around.peer = place_of("10.0.0.2:81");
    next = forecast(Policy::automatic, around);
    EXPECT_EQ(next.way, Way::tcp);
    EXPECT_TRUE(has(joined(next.sentences), "because the peer has no SDP port for this service"));
    // with nothing but SDP nobody is asked
    EXPECT_EQ(forecast(Policy::sdp, around).way, Way::sdp);
    around.device = RdmaDevice{"rxe0", {"net0"}, false};
    EXPECT_EQ(forecast(Policy::automatic, around).way, Way::tcp);
    EXPECT_EQ(forecast(Policy::sdp, around).way, Way::sdp);
    around.device.reset();
    next = forecast(Policy::sdp, around);
    EXPECT_EQ(next.way, Way::fails);
    EXPECT_TRUE(has(joined(next.sentences), "fails, because the policy is sdp"));
    EXPECT_EQ(forecast(Policy::automatic, around).way, Way::tcp);
    around.route->error = ENETUNREACH;
    for (const Policy policy : {Policy::automatic, Policy::sdp, Policy::tcp})
        EXPECT_EQ(forecast(policy, around).way, Way::fails);
    EXPECT_STREQ(tools::name_of(Way::fails), "fails");
}

// Two readings of one connection, and what is said of them
class StatSlow : public ::testing::Test {
  protected:
    StatSlow() {
        before.socket = open_socket();
        before.socket.rx_queue = 0;
        before.socket.tx_queue = 0;
        after = before;
    }
    std::string said() { return joined(what_slows(before, after, 1, around)); }

    Reading before, after;
    Surroundings around = around_peer();
};

TEST_F(StatSlow, NothingWaits) {
    EXPECT_TRUE(has(said(), "Nothing waits at this end"));
    // once is no proof
    after.socket.rx_queue = 5;
    EXPECT_TRUE(has(said(), "Nothing waits at this end"));
}

TEST_F(StatSlow, OurProgramDoesNotRead) {
    before.socket.rx_queue = after.socket.rx_queue = 900;
    EXPECT_TRUE(has(said(), "has read nothing for 1.0 s; 900 octets wait"));
    EXPECT_FALSE(has(said(), "the peer cannot send until the program reads"));
    before.socket.own_credits = after.socket.own_credits = 2;
    EXPECT_TRUE(has(said(), "Of the 6 receive buffers of this end only 2 are free"));
    // what has arrived meanwhile has not been read
    after.socket.rx_bcopy += 50;
    after.socket.rx_queue += 50;
    EXPECT_TRUE(has(said(), "has read nothing"));
    after.socket.rx_bcopy += 1;
    EXPECT_TRUE(has(said(), "reads behind"));
    // more in the queue than has arrived is the kernel's error, not ours
    before.socket.rx_bcopy = 0;
    EXPECT_TRUE(has(said(), "reads behind"));
}

TEST_F(StatSlow, ThePeerDoesNotRead) {
    before.socket.tx_queue = after.socket.tx_queue = 70000;
    before.socket.peer_credits = after.socket.peer_credits = 2;
    EXPECT_TRUE(has(said(), "The program at the peer does not read"));
    after.socket.tx_bcopy += 1;
    EXPECT_TRUE(has(said(), "its program sets the pace"));
    after.socket.peer_credits = 3;
    EXPECT_FALSE(has(said(), "its program sets the pace"));
    EXPECT_TRUE(has(said(), "the peer has buffers (3 credits)"));
}

TEST_F(StatSlow, PacketsAreLost) {
    before.socket.tx_queue = after.socket.tx_queue = 70000;
    before.own = Reading::Own{.send_buffer = 0, .receive_buffer = 0, .retransmissions = 4};
    after.own = before.own;
    EXPECT_FALSE(has(said(), "retransmitted"));
    after.own->retransmissions = 7;
    EXPECT_TRUE(has(said(), "has retransmitted 3 segments"));
}

TEST_F(StatSlow, BuffersThatWereSet) {
    before.socket.tx_queue = after.socket.tx_queue = 4000;
    before.own = Reading::Own{.send_buffer = 4608, .receive_buffer = 0, .retransmissions = {}};
    after.own = before.own;
    EXPECT_TRUE(has(said(), "limited its send buffer to 4.6 kB (SO_SNDBUF), and that is full"));
    after.own->send_buffer = 100000;
    EXPECT_FALSE(has(said(), "SO_SNDBUF"));
    after.own->receive_buffer = 16384;
    EXPECT_FALSE(has(said(), "SO_RCVBUF")); // nothing is received
    after.socket.rx_bcopy += 5;
    EXPECT_TRUE(has(said(), "the program has set SO_RCVBUF to 16.4 kB"));
    after.own.reset();
    EXPECT_FALSE(has(said(), "rx_size_max"));
    around.settings["rx_size_max"] = 4096;
    EXPECT_TRUE(has(said(), "net.softwarp_sdp.rx_size_max allows"));
}

TEST_F(StatSlow, OfTcpOnlyItsQueues) {
    before.socket = after.socket = sockets_in(socket_lines).values.at(1);
    EXPECT_EQ(said(), "");
    before.socket.rx_queue = after.socket.rx_queue = 7;
    before.socket.tx_queue = after.socket.tx_queue = 9;
    EXPECT_TRUE(has(said(), "7 octets wait for the program here"));
    EXPECT_TRUE(has(said(), "9 octets wait to be sent"));
    before.socket = after.socket = sockets_in(socket_lines).values.at(2);
    EXPECT_EQ(said(), "");
}

// Descriptors -------------------------------------------------------------------------------

TEST(StatDescriptor, PlainTcp) {
    const Fd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const Copied copied = copy_descriptor(getpid(), fd.get());
    ASSERT_TRUE(copied.fd) << copied.error;
    const Described found = describe_descriptor(copied.fd);
    EXPECT_EQ(found.error, "");
    EXPECT_TRUE(found.plain_tcp);
    EXPECT_FALSE(found.reading);
    EXPECT_TRUE(has(found.sentence, "sdp_run"));
}

TEST(StatDescriptor, OthersAreNamed) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const Fd one{ends[0]};
    const Fd two{ends[1]};
    EXPECT_EQ(describe_descriptor(one).error, "it is not a socket");
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
        const Fd local{socket(AF_UNIX, type | SOCK_CLOEXEC, 0)};
        EXPECT_EQ(describe_descriptor(local).error, "it is a socket, but not one of TCP or SDP");
    }
    const Fd datagrams{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    EXPECT_EQ(describe_descriptor(datagrams).error, "it is a socket, but not one of TCP or SDP");
}

TEST(StatDescriptor, NoneThere) {
    EXPECT_TRUE(has(copy_descriptor(getpid(), 999999).error, "has no descriptor 999999"));
    // beyond pid_max
    EXPECT_TRUE(has(copy_descriptor(0x7ffffffe, 0).error, "there is no process 2147483646"));
    EXPECT_TRUE(has(copy_descriptor(-1, 0).error, "there is no process -1"));
}

TEST(StatFile, AsAWhole) {
    EXPECT_EQ(read_whole("/proc/self/comm").text, "stat_test\n");
    EXPECT_EQ(read_whole("/proc/self/none").error, ENOENT);
    EXPECT_EQ(read_whole("/proc/self").error, EISDIR);
}
