// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A program that looks for completions without end is asked to do what the processor on
 * which packets arrive would do for its streams; what it says to that is not trusted.
 */
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/children.hpp"
#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr size_t kLength = 256 * 1024;

uint64_t by_reader(const std::string &device) {
    return counters(device).at("rx_by_reader");
}

/* All octets go by TCP. */
struct ByTcp {
    PolicyOverride one{config().dev, "same_host", "off"};
    PolicyOverride other{config().peer_dev, "same_host", "off"};
};

/* A connection to a process on the other host, which knows this end's memory. */
struct Far {
    explicit Far(const std::string &mode)
        : child({"peer", mode, config().peer_ns, config().peer_addr4}),
          id(resolve(channel, "", config().peer_addr4,
                     static_cast<uint16_t>(std::stoul(child.line())))),
          end(channel, std::move(id), QpOptions{}), here(end.pd(), kLength, kRemote) {
        PeerMemory ours{here.addr(), here.rkey(), kLength};
        rdma_conn_param param = end.conn_param();
        param.private_data = &ours;
        param.private_data_len = sizeof(ours);
        require(rdma_connect(end.id(), &param) == 0, "rdma_connect");
        CmEvent event = end.expect(RDMA_CM_EVENT_ESTABLISHED);
        require(event.private_data.size() >= sizeof(there), "the peer tells its memory");
        std::memcpy(&there, event.private_data.data(), sizeof(there));
    }
    Child child;
    EventChannel channel;
    CmId id;
    Endpoint end;
    Region here;
    PeerMemory there{};
};

/*
 * Octets of a peer are left to a program that looks for completions.  That one is another
 * process, since the kernel takes no calls from one whose credentials have changed.
 */
TEST(Spin, WhoLooksForCompletionsReceives) {
    ByTcp policy;
    /* the worker that watches a stream of posts would take the processor */
    const ParameterOverride nobody("tx_poll_us", "0");
    /* an emulated processor takes long for an answer */
    const ParameterOverride patient("spin_wait_us", "1000");
    /* a program that spins beside the sender is not asked, and has no time to answer */
    OneProcessor here;
    auto there = std::make_unique<OneProcessor>(true);
    Far far("spinner");
    there.reset();
    EXPECT_EQ(far.child.line(), "ready");
    const uint64_t before = by_reader(config().peer_dev);
    auto passed = [&] { return by_reader(config().peer_dev) - before; };
    EXPECT_TRUE(eventually(
        [&] {
            for (int i = 0; i < 16; i++)
                far.end.write(1, {far.here.all()}, far.there.addr, far.there.rkey);
            for (int i = 0; i < 16; i++)
                expect_success(far.end.scq(), 1, IBV_WC_RDMA_WRITE);
            return passed() >= 5;
        },
        Deadline(milliseconds(20000))))
        << passed();
}

/* Nor is anybody asked if the administrator does not want it. */
TEST(Spin, CanBeSwitchedOff) {
    ByTcp policy;
    const ParameterOverride off("spin_wait_us", "0");
    const uint64_t before = by_reader(config().peer_dev);
    Far far("liar");
    EXPECT_EQ(far.child.line(), "ready");
    for (int i = 0; i < 50; i++) {
        far.end.write(1, {far.here.all()}, far.there.addr, far.there.rkey);
        expect_success(far.end.scq(), 1, IBV_WC_RDMA_WRITE);
    }
    EXPECT_EQ(by_reader(config().peer_dev), before);
}

/* The same octets, whoever has placed them. */
TEST(Spin, OctetsAreThoseThatWereSent) {
    ByTcp policy;
    Pair pair({}, veth4());
    Region from(pair.c().pd(), kLength, kRemote), to(pair.s().pd(), kLength, kRemote);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fill(from.at(0), kLength, seed);
        pair.c().write(seed, {from.all()}, to.addr(), to.rkey());
        expect_success(pair.c().scq(), seed, IBV_WC_RDMA_WRITE);
        ASSERT_TRUE(eventually([&] {
            ibv_wc wc;
            for (int i = 0; i < 1000; i++)
                EXPECT_EQ(ibv_poll_cq(pair.s().rcq(), 1, &wc), 0);
            return std::memcmp(from.at(0), to.at(0), kLength) == 0;
        })) << seed;
        fill(to.at(0), kLength, ~seed);
        pair.c().read(seed, {from.all()}, to.addr(), to.rkey());
        expect_success(pair.c().scq(), seed, IBV_WC_RDMA_READ, static_cast<int64_t>(kLength));
        ASSERT_EQ(std::memcmp(from.at(0), to.at(0), kLength), 0) << seed;
    }
}

/* A program says without end that it is here, and does nothing. */
TEST(Spin, WhoNeverComesIsNotWaitedFor) {
    ByTcp policy;
    const uint64_t before = by_reader(config().peer_dev);
    Far far("liar");
    EXPECT_EQ(far.child.line(), "ready");
    int round = 0;
    auto lied_to = [&] { return by_reader(config().peer_dev) - before; };
    /* a read comes after all that was written before it */
    EXPECT_TRUE(eventually(
        [&] {
            round++;
            fill(far.here.at(0), kLength, static_cast<uint64_t>(round));
            far.end.write(1, {far.here.all()}, far.there.addr, far.there.rkey);
            expect_success(far.end.scq(), 1, IBV_WC_RDMA_WRITE);
            fill(far.here.at(0), kLength, 0);
            far.end.read(2, {far.here.all()}, far.there.addr, far.there.rkey);
            expect_success(far.end.scq(), 2, IBV_WC_RDMA_READ, static_cast<int64_t>(kLength));
            std::vector<uint8_t> sent(kLength);
            fill(sent.data(), kLength, static_cast<uint64_t>(round));
            EXPECT_EQ(std::memcmp(far.here.at(0), sent.data(), kLength), 0) << round;
            return lied_to() >= 3;
        },
        Deadline(milliseconds(30000))))
        << lied_to() << " of 3 in " << round << " rounds";
    /* it ends with work that it has not done */
    for (int i = 0; i < 8; i++)
        far.end.write(3, {far.here.all()}, far.there.addr, far.there.rkey);
    far.child.signal(SIGKILL);
    EXPECT_TRUE(far.child.wait());
}

} // namespace
