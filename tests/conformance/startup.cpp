// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Immediate and delayed start-up by consumers in the kernel: each test is one of
 * startup/startup.c, which fails to load when something is wrong.
 */
#include <cstdlib>

#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

void load(const std::string &test) {
    const char *module = getenv("SOFTWARP_STARTUP");
    ASSERT_NE(module, nullptr) << "SOFTWARP_STARTUP has to name startup.ko";
    ShellResult result =
        shell(fmt::format("insmod {} netdev=lo test={} && rmmod startup", module, test));
    EXPECT_EQ(result.status, 0) << result.output << shell("dmesg | tail -n 5").output;
}

/* Both ends have streamed; whoever connected initiates. */
TEST(Startup, AfterStreamingData) {
    REQ("MPA-31", "MPA-39", "MPA-43", "MPA2-09", "MPA2-16");
    load("delayed");
}

TEST(Startup, AcceptingEndInitiates) {
    REQ("MPA-32", "MPA-39");
    load("reversed");
}

/* Octets of the Request came with streaming data and were read by the consumer. */
TEST(Startup, OctetsReadBefore) {
    REQ("MPA-40", "MPA-57", "MPA-58");
    load("overread_some");
    load("overread_all");
}

TEST(Startup, Rejection) {
    REQ("MPA-27", "MPA-43", "MPA-51");
    load("rejected");
}

TEST(Startup, Garbage) {
    REQ("MPA-37", "MPA-58");
    load("garbage");
    load("still_streaming");
}

TEST(Startup, OctetsBehindTheRequest) {
    REQ("MPA-42");
    load("extra");
}

TEST(Startup, BothInitiate) {
    REQ("MPA-36");
    load("both_initiate");
}

TEST(Startup, EndsThatGoAway) {
    load("peer_gone");
    load("qp_gone");
}

TEST(Startup, Silence) {
    REQ("MPA-38");
    ParameterOverride patience("handshake_ms", "1000");
    load("silence");
}

TEST(Startup, Nonsense) {
    load("nonsense");
}

/* What a consumer asks before it starts anything */
TEST(Startup, Capabilities) {
    load("capabilities");
}

/* Handlers of completions are called at once, and what they post is sent. */
TEST(Startup, Prompt) {
    load("prompt");
}

} // namespace
