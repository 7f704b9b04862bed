// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * FPDUs between two ends in one kernel that go past TCP.  The whole suite runs that way, too
 * (near.sh).
 */
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* Counters of both ends, summed. */
struct Sums {
    Sums() {
        for (const std::string &device : std::set{config().dev, config().peer_dev}) {
            auto c = counters(device);
            past += c.at("tx_past_tcp");
            all += c.at("tx_fpdu");
            received += c.at("rx_fpdu");
        }
    }
    uint64_t past = 0;
    uint64_t all = 0;
    uint64_t received = 0;
};

/* The policy of both devices. */
struct Both {
    explicit Both(const std::string &value)
        : one(config().dev, "same_host", value), other(config().peer_dev, "same_host", value) {}
    PolicyOverride one, other;
};

/* One end writes to and reads from the other, one request at a time, and verifies the octets. */
struct Traffic {
    explicit Traffic(const Route &route, size_t octets = 300000)
        : length(octets), pair({}, route), from(pair.c().pd(), length),
          to(pair.s().pd(), length, kRemote) {}
    void write(uint64_t seed) {
        fill(from.at(0), length, seed);
        pair.c().write(seed, {from.all()}, to.addr(), to.rkey());
        expect_success(pair.c().scq(), seed, IBV_WC_RDMA_WRITE);
        EXPECT_TRUE(eventually([&] { return memcmp(from.at(0), to.at(0), length) == 0; }));
    }
    void read(uint64_t seed) {
        fill(to.at(0), length, seed);
        pair.c().read(seed, {from.all()}, to.addr(), to.rkey());
        expect_success(pair.c().scq(), seed, IBV_WC_RDMA_READ, static_cast<int64_t>(length));
        EXPECT_EQ(memcmp(from.at(0), to.at(0), length), 0);
    }
    size_t length;
    Pair pair;
    Region from, to;
};

/* The policy's words, of one device alone; a number is none. */
TEST(Near, PolicyValues) {
    const std::string other = policy(config().peer_dev, "same_host");
    PolicyOverride restored(config().dev, "same_host", "off");
    for (const std::string value : {"all", "namespace", "off"}) {
        EXPECT_EQ(set_policy(config().dev, "same_host", value + "\n"), 0) << value;
        EXPECT_EQ(policy(config().dev, "same_host"), value);
        EXPECT_EQ(policy(config().peer_dev, "same_host"), other);
    }
    for (const char *nonsense : {"maybe", "1", "on", "al", "namespaces", "off on"})
        EXPECT_EQ(set_policy(config().dev, "same_host", nonsense), EINVAL) << nonsense;
}

/* Once both ends have heard each other nothing goes by TCP. */
TEST(Near, GoesPastTcp) {
    Both policy("all");
    for (const Route &route : {veth4(), veth6()}) {
        SCOPED_TRACE(route.connect_addr);
        Traffic traffic(route);
        traffic.write(1);
        traffic.read(2);
        EXPECT_TRUE(eventually([&] {
            const Sums before;
            traffic.write(3);
            traffic.read(4);
            const Sums after;
            return after.past - before.past == after.all - before.all;
        }));
        const Sums before;
        for (uint64_t seed = 10; seed < 30; seed += 2) {
            traffic.write(seed);
            traffic.read(seed + 1);
        }
        const Sums after;
        EXPECT_GE(after.past - before.past, 20U);
        EXPECT_EQ(after.past - before.past, after.all - before.all);
        EXPECT_EQ(after.received - before.received, after.all - before.all);
    }
}

/* Responses of several bursts.  inspect.sh looks at who sends them. */
TEST(Near, LongReads) {
    Both policy("all");
    Traffic traffic(veth4(), 4 << 20);
    traffic.read(1);
    const Sums before;
    for (uint64_t seed = 2; seed < 22; seed++)
        traffic.read(seed);
    const Sums after;
    /* a machine that has other things to do may keep it from that now and then */
    EXPECT_GE((after.past - before.past) * 4, (after.all - before.all) * 3);
}

/* How many FPDUs of a new connection go past TCP. */
uint64_t past_of(const Route &route) {
    const Sums before;
    Traffic traffic(route);
    for (uint64_t seed = 1; seed < 20; seed++)
        traffic.write(seed);
    return Sums().past - before.past;
}

/* Two namespaces may have a packet filter between them, which nobody goes round unasked. */
TEST(Near, NotBetweenNamespaces) {
    for (const std::string value : {"off", "namespace"}) {
        SCOPED_TRACE(value);
        Both policy(value);
        EXPECT_EQ(past_of(veth4()), 0U);
    }
}

/* Both have to allow it. */
TEST(Near, OneEndCanRefuse) {
    PolicyOverride one(config().dev, "same_host", "all");
    PolicyOverride other(config().peer_dev, "same_host", "off");
    EXPECT_EQ(past_of(veth4()), 0U);
}

Route within() {
    return {"", config().addr4, "", config().addr4, ""};
}

/* Within one namespace it is what devices do unless told otherwise. */
TEST(Near, WithinANamespace) {
    PolicyOverride one_namespace(config().dev, "same_host", "namespace");
    EXPECT_GT(past_of(within()), 0U);
}

/* Writes that look like tokens, and are none, break nothing. */
TEST(Near, WritesWithoutOctets) {
    Both policy("all");
    Traffic traffic(veth4());
    for (uint64_t i = 1; i <= 50; i++) {
        traffic.pair.c().write(i, {}, i << 32, static_cast<uint32_t>(i));
        expect_success(traffic.pair.c().scq(), i, IBV_WC_RDMA_WRITE);
    }
    traffic.write(100);
    traffic.read(101);
}

/* What a peer may not do fails as it does by TCP: with the same completions, and one Terminate. */
TEST(Near, SameErrors) {
    struct Seen {
        ibv_wc_status status;
        uint32_t vendor;
        ibv_wc_status receive;
        uint64_t terminates;
        bool operator==(const Seen &) const = default;
    };
    enum class Fault { WriteKey, ReadKey, ReadBounds, NoReceive, LongSend };
    const auto provoke = [](Fault fault, const std::string &value) {
        Both policy(value);
        const uint64_t before = counters(config().peer_dev).at("terminate_sent");
        const Sums sums;
        Traffic traffic(veth4(), 4096);
        for (uint64_t seed = 1; seed < 5; seed++) {
            traffic.write(seed);
            traffic.read(seed + 50);
        }
        EXPECT_EQ(Sums().past > sums.past, value == "all");
        Endpoint &c = traffic.pair.c(), &s = traffic.pair.s();
        switch (fault) {
        case Fault::WriteKey:
            c.write(9, {traffic.from.all()}, traffic.to.addr(), ~traffic.to.rkey());
            break;
        case Fault::ReadKey:
            c.read(9, {traffic.from.all()}, traffic.to.addr(), ~traffic.to.rkey());
            break;
        case Fault::ReadBounds:
            c.read(9, {traffic.from.all()}, traffic.to.addr() + 1, traffic.to.rkey());
            break;
        case Fault::NoReceive: c.send(9, {traffic.from.all()}); break;
        case Fault::LongSend:
            s.recv(8, {traffic.to.sge(0, 16)});
            c.send(9, {traffic.from.all()});
            break;
        }
        c.expect(RDMA_CM_EVENT_DISCONNECTED);
        /* a request that only sends may be complete before the peer refuses it */
        ibv_wc wc = next_wc(c.scq());
        EXPECT_EQ(wc.wr_id, 9U);
        const bool sends = fault != Fault::ReadKey && fault != Fault::ReadBounds;
        const bool received = fault == Fault::LongSend;
        return Seen{sends ? IBV_WC_SUCCESS : wc.status, sends ? 0 : wc.vendor_err,
                    received ? next_wc(s.rcq()).status : IBV_WC_SUCCESS,
                    counters(config().peer_dev).at("terminate_sent") - before};
    };
    for (Fault fault :
         {Fault::WriteKey, Fault::ReadKey, Fault::ReadBounds, Fault::NoReceive, Fault::LongSend}) {
        SCOPED_TRACE(static_cast<int>(fault));
        const Seen by_tcp = provoke(fault, "off"), past_tcp = provoke(fault, "all");
        EXPECT_EQ(by_tcp.terminates, 1U);
        EXPECT_TRUE(by_tcp == past_tcp)
            << past_tcp.status << ' ' << past_tcp.vendor << ' ' << past_tcp.terminates;
    }
}

/* Both ends send at the same time, while others look at the sockets: all arrives, in order. */
TEST(Near, BothWays) {
    Both policy("all");
    const uint32_t count = full_or_quick(10000U, 2000U);
    constexpr size_t kOctets = 3000;
    constexpr uint32_t kDepth = 32;
    QpOptions options;
    options.send_wr = options.recv_wr = 2 * kDepth;
    Pair pair(options, veth4());
    std::atomic<bool> stop = false;
    std::thread looker([&] {
        while (!stop)
            shell("rdma -dd resource show qp > /dev/null; ss -tin > /dev/null");
    });
    /* Each message begins with its number, and is of another length. */
    Region in_c(pair.c().pd(), kDepth * kOctets), in_s(pair.s().pd(), kDepth * kOctets);
    for (uint32_t i = 0; i < kDepth; i++) {
        pair.c().recv(i, {in_c.sge(i * kOctets, kOctets)});
        pair.s().recv(i, {in_s.sge(i * kOctets, kOctets)});
    }
    const auto run = [&](Endpoint &end, Region &in) {
        Region out(end.pd(), kDepth * kOctets);
        uint32_t sent = 0, done = 0, got = 0;
        const Deadline deadline(milliseconds(60000));
        while ((done < count || got < count) && !deadline.passed()) {
            /* at most half of the peer's receives, which it posts again at once */
            if (sent < count && sent - done < kDepth / 2 && sent < got + kDepth / 2) {
                const size_t at = sent % kDepth * kOctets, length = 4 + sent % (kOctets - 3);
                memcpy(out.at(at), &sent, sizeof(sent));
                std::fill_n(out.at(at) + 4, length - 4, static_cast<uint8_t>(sent));
                end.send(sent, {out.sge(at, length)});
                sent++;
            }
            ibv_wc wc;
            if (ibv_poll_cq(end.scq(), 1, &wc) == 1) {
                ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
                ASSERT_EQ(wc.wr_id, done++);
            }
            if (ibv_poll_cq(end.rcq(), 1, &wc) == 1) {
                ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
                const size_t at = wc.wr_id * kOctets;
                uint32_t number = 0;
                memcpy(&number, in.at(at), sizeof(number));
                ASSERT_EQ(number, got);
                ASSERT_EQ(wc.byte_len, 4 + got % (kOctets - 3));
                for (size_t i = 4; i < wc.byte_len; i++)
                    ASSERT_EQ(in.at(at)[i], static_cast<uint8_t>(got));
                end.recv(wc.wr_id, {in.sge(at, kOctets)});
                got++;
            }
        }
        EXPECT_EQ(done, count);
        EXPECT_EQ(got, count);
    };
    std::thread other([&] { run(pair.s(), in_s); });
    run(pair.c(), in_c);
    other.join();
    stop = true;
    looker.join();
}

/* Reads and writes of any length from both ends, by several pairs: each completes in its turn and
 * without delay. */
TEST(Near, NoneWaits) {
    Both policy("all");
    const Deadline end(milliseconds(full_or_quick(5000, 2000)));
    const auto run = [&](Endpoint &own, const Region &mine, const Region &theirs, uint64_t seed) {
        Random random(seed);
        uint64_t posted = 0, done = 0;
        while (!end.passed()) {
            for (uint64_t n = 1 + random.below(20); n; n--, posted++) {
                const size_t length = random.below(random.below(3) ? 5000 : 500000),
                             at = random.below(500000);
                if (random.below(3))
                    own.write(posted, {mine.sge(at, length)}, theirs.addr(at), theirs.rkey());
                else
                    own.read(
                        posted, {mine.sge(at, length)}, theirs.addr(at), theirs.rkey(),
                        IBV_SEND_SIGNALED |
                            (random.below(3) != 0 ? 0U : static_cast<unsigned>(IBV_SEND_FENCE)));
            }
            for (; done < posted; done++)
                expect_wc(own.scq(), done, IBV_WC_SUCCESS);
            if (!random.below(50))
                std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
        }
    };
    std::vector<std::thread> threads;
    for (uint8_t i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            QpOptions options;
            options.ird = options.ord = static_cast<uint8_t>(1 + i);
            Pair pair(options, i % 2 ? within() : veth4());
            Region c(pair.c().pd(), 1 << 20, kRemote), s(pair.s().pd(), 1 << 20, kRemote);
            std::thread other([&] { run(pair.s(), s, c, 2 * i); });
            run(pair.c(), c, s, 2 * i + 1);
            other.join();
        });
    for (std::thread &thread : threads)
        thread.join();
}

/* A stream that has much to send at its end is not taken for dead because TCP has nothing to do. */
TEST(Near, LongEnd) {
    Both policy("all");
    constexpr size_t kLength = 64 << 20;
    const double seconds = full_or_quick(33, 1);
    QpOptions options;
    options.send_wr = 16384;
    Pair pair(options, veth4());
    Region from(pair.c().pd(), kLength), to(pair.s().pd(), kLength, kRemote);
    const auto begin = std::chrono::steady_clock::now();
    const auto passed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    uint64_t count = 0;
    for (; count < 8; count++) {
        pair.c().write(count, {from.all()}, to.addr(), to.rkey());
        expect_success(pair.c().scq(), count, IBV_WC_RDMA_WRITE);
    }
    const uint64_t all =
        std::min<uint64_t>(16000, 8 + static_cast<uint64_t>(8 * seconds / passed()));
    for (uint64_t i = count; i < all; i++)
        pair.c().write(i, {from.all()}, to.addr(), to.rkey());
    rdma_disconnect(pair.c().id());
    for (; count < all; count++)
        expect_wc(pair.c().scq(), count, IBV_WC_SUCCESS);
}

} // namespace
