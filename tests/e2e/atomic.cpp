// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Atomic operations (RFC 7306): results, atomicity against peers and the host, refusals. */
#include <softwarp_abi.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

constexpr int kAtomic = kAll | IBV_ACCESS_REMOTE_ATOMIC;
constexpr size_t kSize = 64 * 1024;

uint64_t &word(const Region &region, size_t index) {
    return *reinterpret_cast<uint64_t *>(region.at(8 * index));
}

void expect_lost(Pair &pair) {
    pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_state(pair.c().qp(), IBV_QPS_ERR);
    expect_qp_state(pair.s().qp(), IBV_QPS_ERR);
}

class Atomic : public testing::Test {
  protected:
    uint64_t fetch_add(size_t index, uint64_t add) {
        pair.c().post(SendWr::fetch_add(1, answer(0), remote.addr(8 * index), remote.rkey(), add));
        expect_success(pair.c().scq(), 1, IBV_WC_FETCH_ADD, 8);
        return word(local, 0);
    }
    uint64_t cmp_swap(size_t index, uint64_t compare, uint64_t swap) {
        pair.c().post(
            SendWr::cmp_swap(1, answer(0), remote.addr(8 * index), remote.rkey(), compare, swap));
        expect_success(pair.c().scq(), 1, IBV_WC_COMP_SWAP, 8);
        return word(local, 0);
    }
    ibv_sge answer(size_t index) const { return local.sge(8 * index, 8); }

    Pair pair;
    Region local{pair.c().pd(), kSize};
    Region remote{pair.s().pd(), kSize, kAtomic};
};

TEST_F(Atomic, DeviceSaysSo) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(pair.c().context(), &attr), 0);
    EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_GLOB);
}

TEST_F(Atomic, FetchAdd) {
    remote.buffer.set(0xa5);
    word(remote, 5) = 1000;
    EXPECT_EQ(fetch_add(5, 1), 1000U);
    EXPECT_EQ(word(remote, 5), 1001U);
    EXPECT_EQ(fetch_add(5, 0), 1001U);
    EXPECT_EQ(fetch_add(5, ~uint64_t{0}), 1001U);
    EXPECT_EQ(word(remote, 5), 1000U) << "minus one";
    word(remote, 5) = ~uint64_t{0} - 1;
    EXPECT_EQ(fetch_add(5, 3), ~uint64_t{0} - 1);
    EXPECT_EQ(word(remote, 5), 1U) << "all 64 bits, and around";
    word(remote, 5) = 0xffffffff;
    EXPECT_EQ(fetch_add(5, 1), 0xffffffffU);
    EXPECT_EQ(word(remote, 5), 0x100000000U) << "carry over the middle";
    word(remote, 5) = 0x0102030405060708;
    EXPECT_EQ(fetch_add(5, 0x1010101010101010), 0x0102030405060708U) << "host byte order";
    EXPECT_EQ(word(remote, 5), 0x1112131415161718U);
    expect_value(remote.at(0), 40, 0xa5, "before the word");
    expect_value(remote.at(48), kSize - 48, 0xa5, "behind the word");
}

TEST_F(Atomic, CmpSwap) {
    remote.buffer.set(0xa5);
    word(remote, 0) = 0x0102030405060708;
    EXPECT_EQ(cmp_swap(0, 0x0102030405060709, 7), 0x0102030405060708U);
    EXPECT_EQ(word(remote, 0), 0x0102030405060708U) << "not equal";
    EXPECT_EQ(cmp_swap(0, 0x8102030405060708, 7), 0x0102030405060708U);
    EXPECT_EQ(word(remote, 0), 0x0102030405060708U) << "not equal at the top";
    EXPECT_EQ(cmp_swap(0, 0x0102030405060708, 0xfedcba9876543210), 0x0102030405060708U);
    EXPECT_EQ(word(remote, 0), 0xfedcba9876543210U);
    EXPECT_EQ(cmp_swap(0, 0xfedcba9876543210, 0), 0xfedcba9876543210U);
    EXPECT_EQ(word(remote, 0), 0U);
    expect_value(remote.at(8), kSize - 8, 0xa5, "behind the word");
}

/* Only the eight octets of the answer change. */
TEST_F(Atomic, AnswerGoesWhereItShould) {
    local.buffer.set(0x5a);
    word(remote, 0) = 42;
    /* At any address: it is the peer's word that has to be aligned. */
    ibv_sge odd{local.addr(101), 8, local.lkey()};
    pair.c().post(SendWr::fetch_add(1, odd, remote.addr(), remote.rkey(), 1));
    expect_success(pair.c().scq(), 1, IBV_WC_FETCH_ADD, 8);
    uint64_t got = 0;
    std::memcpy(&got, local.at(101), 8);
    EXPECT_EQ(got, 42U);
    expect_value(local.at(0), 101, 0x5a);
    expect_value(local.at(109), kSize - 109, 0x5a);
    /* Across two pages of the region. */
    ibv_sge across{local.addr(4092), 8, local.lkey()};
    pair.c().post(SendWr::fetch_add(2, across, remote.addr(), remote.rkey(), 1));
    expect_success(pair.c().scq(), 2, IBV_WC_FETCH_ADD, 8);
    std::memcpy(&got, local.at(4092), 8);
    EXPECT_EQ(got, 43U);
}

TEST_F(Atomic, LastWordOfARegion) {
    word(remote, kSize / 8 - 1) = 5;
    EXPECT_EQ(fetch_add(kSize / 8 - 1, 1), 5U);
    pair.c().post(SendWr::fetch_add(3, answer(0), remote.addr(kSize), remote.rkey(), 1));
    expect_wc(pair.c().scq(), 3, IBV_WC_REM_ACCESS_ERR);
    expect_lost(pair);
}

TEST_F(Atomic, ZeroBasedRegion) {
    Region zero(pair.s().pd(), 4096, kAtomic | IBV_ACCESS_ZERO_BASED);
    word(zero, 2) = 9;
    pair.c().post(SendWr::fetch_add(1, answer(0), 16, zero.rkey(), 1));
    expect_success(pair.c().scq(), 1, IBV_WC_FETCH_ADD, 8);
    EXPECT_EQ(word(local, 0), 9U);
    EXPECT_EQ(word(zero, 2), 10U);
}

/* More than may be outstanding, among reads, writes and sends: all in order. */
TEST_F(Atomic, PipelinedWithEverythingElse) {
    const uint64_t kRounds = full_or_quick<uint64_t>(100, 20);
    for (uint64_t round = 0; round < kRounds; round++) {
        word(remote, 0) = round;
        word(local, 100) = round * 1000;
        local.buffer.set(0);
        word(local, 100) = round * 1000;
        pair.s().recv(99, {});
        std::vector<SendWr> list{
            SendWr::write(0, {answer(100)}, remote.addr(0), remote.rkey(), 0),
            SendWr::fetch_add(1, answer(1), remote.addr(0), remote.rkey(), 1, 0),
            SendWr::fetch_add(2, answer(2), remote.addr(0), remote.rkey(), 10, 0),
            SendWr::read(3, {answer(3)}, remote.addr(0), remote.rkey(), 0),
            SendWr::cmp_swap(4, answer(4), remote.addr(0), remote.rkey(), round * 1000 + 11, 77, 0),
            SendWr::read(5, {answer(5)}, remote.addr(0), remote.rkey(), 0)};
        for (uint64_t i = 0; i < 30; i++)
            list.push_back(
                SendWr::fetch_add(6 + i, answer(6 + i), remote.addr(8), remote.rkey(), 1, 0));
        list.push_back(SendWr::send(50, {}));
        word(remote, 1) = 0;
        ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
        expect_success(pair.c().scq(), 50, IBV_WC_SEND);
        expect_success(pair.s().rcq(), 99, IBV_WC_RECV, 0);
        EXPECT_EQ(word(local, 1), round * 1000);
        EXPECT_EQ(word(local, 2), round * 1000 + 1);
        EXPECT_EQ(word(local, 3), round * 1000 + 11);
        EXPECT_EQ(word(local, 4), round * 1000 + 11);
        EXPECT_EQ(word(local, 5), 77U);
        for (uint64_t i = 0; i < 30; i++)
            EXPECT_EQ(word(local, 6 + i), i);
        EXPECT_EQ(word(remote, 1), 30U);
        ASSERT_FALSE(HasFailure());
    }
}

/* One at a time and many, with as few outstanding reads as there can be. */
TEST(AtomicDepth, OneOutstanding) {
    PairOptions options;
    options.client.ord = options.client.ird = options.server.ord = options.server.ird = 1;
    Pair pair(options);
    Region local(pair.c().pd(), 4096);
    Region remote(pair.s().pd(), 4096, kAtomic);
    std::vector<SendWr> list;
    for (uint64_t i = 0; i < 60; i++)
        list.push_back(
            i % 3 == 2
                ? SendWr::read(i, {local.sge(8 * i, 8)}, remote.addr(), remote.rkey())
                : SendWr::fetch_add(i, local.sge(8 * i, 8), remote.addr(), remote.rkey(), 1));
    ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
    uint64_t value = 0;
    for (uint64_t i = 0; i < list.size(); i++) {
        expect_success(pair.c().scq(), i, list[i].wc_opcode(), 8);
        EXPECT_EQ(word(local, i), value);
        value += i % 3 != 2;
    }
}

/* IBV_ATOMIC_GLOB: against other QPs, both ways, and the processors of the host. */
TEST(Atomicity, SumIsExact) {
    const unsigned kQps = 4;
    const uint64_t kEach = full_or_quick<uint64_t>(4000, 600);
    Pd pd = alloc_pd(cm_context(config().peer_dev));
    Region remote(pd.get(), 4096, kAtomic);
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<std::unique_ptr<Region>> answers;
    for (unsigned q = 0; q < kQps; q++) {
        PairOptions options;
        options.server.pd = pd.get();
        options.client.send_wr = 32;
        pairs.push_back(std::make_unique<Pair>(options));
        answers.push_back(std::make_unique<Region>(pairs[q]->c().pd(), 4096));
    }
    std::atomic_ref<uint64_t> shared(word(remote, 3));
    std::atomic<bool> stop{false};
    uint64_t by_host = 0;
    std::thread host([&] {
        while (!stop.load()) {
            shared.fetch_add(1000003);
            by_host++;
            if (by_host % 64 == 0)
                std::this_thread::yield();
        }
    });
    std::vector<uint64_t> posted(kQps), done(kQps), last(kQps);
    for (uint64_t total = 0; total < kQps * kEach;) {
        for (unsigned q = 0; q < kQps; q++) {
            while (posted[q] < kEach && posted[q] - done[q] < 16) {
                pairs[q]->c().post(SendWr::fetch_add(posted[q],
                                                     answers[q]->sge(posted[q] % 16 * 8, 8),
                                                     remote.addr(24), remote.rkey(), 2 * q + 1));
                posted[q]++;
            }
            while (std::optional<ibv_wc> wc = try_wc(pairs[q]->c().scq())) {
                if (wc->status != IBV_WC_SUCCESS) {
                    stop = true;
                    host.join();
                    FAIL() << wc_text(*wc);
                }
                uint64_t old = word(*answers[q], wc->wr_id % 16);
                EXPECT_TRUE(done[q] == 0 || old > last[q]) << "never the same twice";
                last[q] = old;
                done[q]++;
                total++;
            }
        }
    }
    stop = true;
    host.join();
    uint64_t expected = by_host * 1000003;
    for (unsigned q = 0; q < kQps; q++)
        expected += kEach * (2 * q + 1);
    EXPECT_EQ(shared.load(), expected) << by_host << " additions by the host";
    EXPECT_GT(by_host, 0U);
}

/* A counter kept by compare and swap: as many successes as its value says. */
TEST(Atomicity, CompareAndSwapLosesNothing) {
    const unsigned kQps = 3;
    const uint64_t kEach = full_or_quick<uint64_t>(300, 60);
    Pd pd = alloc_pd(cm_context(config().peer_dev));
    Region remote(pd.get(), 4096, kAtomic);
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<std::unique_ptr<Region>> answers;
    for (unsigned q = 0; q < kQps; q++) {
        PairOptions options;
        options.server.pd = pd.get();
        pairs.push_back(std::make_unique<Pair>(options));
        answers.push_back(std::make_unique<Region>(pairs[q]->c().pd(), 4096));
    }
    std::atomic_ref<uint64_t> shared(word(remote, 0));
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> wins{0};
    uint64_t by_host = 0;
    /* No oftener than a peer wins: one that is slower than the host never would. */
    std::thread host([&] {
        while (!stop.load()) {
            uint64_t seen = shared.load();
            if (by_host < wins.load() && shared.compare_exchange_strong(seen, seen + 1))
                by_host++;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    std::vector<uint64_t> guess(kQps), won(kQps);
    auto post = [&](unsigned q) {
        pairs[q]->c().post(SendWr::cmp_swap(q, answers[q]->sge(0, 8), remote.addr(), remote.rkey(),
                                            guess[q], guess[q] + 1));
    };
    for (unsigned q = 0; q < kQps; q++)
        post(q);
    unsigned running = kQps;
    bool failed = false;
    while (running > 0 && !failed) {
        for (unsigned q = 0; q < kQps; q++) {
            std::optional<ibv_wc> wc = try_wc(pairs[q]->c().scq());
            if (!wc)
                continue;
            failed |= wc->status != IBV_WC_SUCCESS;
            uint64_t old = word(*answers[q], 0);
            if (old == guess[q]) {
                won[q]++;
                wins++;
            }
            guess[q] = old == guess[q] ? old + 1 : old;
            if (won[q] < kEach)
                post(q);
            else
                running--;
        }
    }
    stop = true;
    host.join();
    EXPECT_FALSE(failed);
    EXPECT_EQ(shared.load(), kQps * kEach + by_host);
}

/* Refusals -------------------------------------------------------------------- */

/* Each way to name a word wrongly: nothing changes, the connection ends. */
struct BadTarget {
    const char *name;
    size_t offset;
    uint32_t key_xor;
    int access;
    ibv_wc_status status;
    unsigned type, code; // RDMAP's, as RFC 5040 s. 4.8 and RFC 7306 s. 8.2 number them
};

const BadTarget kBadTargets[] = {
    {"OffByOne", 1, 0, kAtomic, IBV_WC_REM_OP_ERR, 2, 0x07},
    {"OffByFour", 4, 0, kAtomic, IBV_WC_REM_OP_ERR, 2, 0x07},
    {"UnknownKey", 0, 0x5a5a5a00, kAtomic, IBV_WC_REM_ACCESS_ERR, 1, 0x00},
    {"WrongKeyByte", 0, 1, kAtomic, IBV_WC_REM_ACCESS_ERR, 1, 0x00},
    {"Beyond", 4096, 0, kAtomic, IBV_WC_REM_ACCESS_ERR, 1, 0x01},
    {"Before", ~size_t{0} - 7, 0, kAtomic, IBV_WC_REM_ACCESS_ERR, 1, 0x01},
    {"NoRight", 0, 0, kAll, IBV_WC_REM_ACCESS_ERR, 1, 0x02},
};

class AtomicRefused : public testing::TestWithParam<BadTarget> {};
INSTANTIATE_TEST_SUITE_P(Each, AtomicRefused, testing::ValuesIn(kBadTargets),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(AtomicRefused, WithTheReason) {
    const BadTarget &bad = GetParam();
    for (bool swap : {false, true}) {
        SCOPED_TRACE(swap);
        Pair pair;
        Region local(pair.c().pd(), 4096);
        Region remote(pair.s().pd(), 4096, bad.access);
        Region good(pair.s().pd(), 4096, kAtomic);
        local.buffer.set(0x11);
        uint64_t addr = remote.addr() + bad.offset;
        uint32_t key = remote.rkey() ^ bad.key_xor;
        pair.c().post(SendWr::fetch_add(1, local.sge(0, 8), good.addr(), good.rkey(), 1));
        pair.c().post(swap ? SendWr::cmp_swap(2, local.sge(8, 8), addr, key, 0, 1)
                           : SendWr::fetch_add(2, local.sge(8, 8), addr, key, 1));
        pair.c().post(SendWr::fetch_add(3, local.sge(16, 8), good.addr(), good.rkey(), 1));
        ibv_wc first = next_wc(pair.c().scq());
        EXPECT_EQ(first.wr_id, 1U);
        EXPECT_TRUE(first.status == IBV_WC_SUCCESS || first.status == IBV_WC_WR_FLUSH_ERR);
        ibv_wc wc = expect_wc(pair.c().scq(), 2, bad.status);
        EXPECT_EQ(wc.vendor_err, SWP_VENDOR_ERR(0, bad.type, bad.code) | SWP_VENDOR_ERR_REMOTE)
            << wc_text(wc);
        expect_wc(pair.c().scq(), 3, IBV_WC_WR_FLUSH_ERR);
        expect_lost(pair);
        expect_value(remote.at(0), 4096, 0, "target");
        expect_value(local.at(8), 4096 - 8, 0x11, "answers");
    }
}

/* An aligned tagged offset may stand for memory that is not. */
TEST(AtomicMisaligned, BehindAnAlignedOffset) {
    Pair pair;
    Region local(pair.c().pd(), 4096);
    Buffer buffer(8192);
    Mr mr = register_memory(pair.s().pd(), buffer.at(4), 4096, kAtomic | IBV_ACCESS_ZERO_BASED);
    pair.c().post(SendWr::fetch_add(1, local.sge(0, 8), 0, mr->rkey, 1));
    ibv_wc wc = expect_wc(pair.c().scq(), 1, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(wc.vendor_err, SWP_VENDOR_ERR(0, 2, 0x07) | SWP_VENDOR_ERR_REMOTE);
    expect_lost(pair);
    expect_value(buffer.at(0), 8192, 0);
}

/* And the other way round it is the memory that counts. */
TEST(AtomicMisaligned, AlignedMemoryBehindAnOddOffset) {
    Pair pair;
    Region local(pair.c().pd(), 4096);
    local.buffer.set(0x11);
    Buffer buffer(8192);
    Mr mr = register_memory(pair.s().pd(), buffer.at(4), 4096, kAtomic | IBV_ACCESS_ZERO_BASED);
    pair.c().post(SendWr::fetch_add(1, local.sge(0, 8), 4, mr->rkey, 1));
    expect_success(pair.c().scq(), 1, IBV_WC_FETCH_ADD);
    expect_value(local.at(0), 8, 0);
    uint64_t word = 0;
    memcpy(&word, buffer.at(8), sizeof(word));
    EXPECT_EQ(word, 1U);
    expect_value(buffer.at(0), 8, 0);
    expect_value(buffer.at(16), 8192 - 16, 0);
}

TEST_F(Atomic, RegionOfAnotherPd) {
    Pd foreign = alloc_pd(pair.s().context());
    Region there(foreign.get(), 4096, kAtomic);
    pair.c().post(SendWr::fetch_add(1, answer(0), there.addr(), there.rkey(), 1));
    ibv_wc wc = expect_wc(pair.c().scq(), 1, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(wc.vendor_err, SWP_VENDOR_ERR(0, 1, 0x03) | SWP_VENDOR_ERR_REMOTE);
    expect_lost(pair);
    expect_value(there.at(0), 4096, 0);
}

/* A region deregistered between the request and its turn cannot be told from one never there. */
TEST_F(Atomic, LocalFaults) {
    ibv_qp *qp = pair.c().qp();
    SendWr two = SendWr::fetch_add(1, answer(0), remote.addr(), remote.rkey(), 1);
    two.sg.push_back(answer(1));
    EXPECT_EQ(post_send(qp, two), EINVAL);
    SendWr none = two;
    none.sg.clear();
    EXPECT_EQ(post_send(qp, none), EINVAL);
    SendWr inlined =
        SendWr::cmp_swap(1, answer(0), remote.addr(), remote.rkey(), 0, 1, IBV_SEND_INLINE);
    EXPECT_EQ(post_send(qp, inlined), EINVAL);
    EXPECT_EQ(fetch_add(0, 1), 0U) << "unharmed";
}

TEST_F(Atomic, AnswerOfTheWrongLength) {
    for (uint32_t length : {0U, 4U, 7U, 9U, 16U}) {
        SCOPED_TRACE(length);
        Pair own;
        Region from(own.c().pd(), 4096);
        Region to(own.s().pd(), 4096, kAtomic);
        own.c().post(SendWr::fetch_add(1, from.sge(0, length), to.addr(), to.rkey(), 1));
        expect_wc(own.c().scq(), 1, IBV_WC_LOC_LEN_ERR);
        expect_lost(own);
        expect_value(to.at(0), 4096, 0);
    }
}

TEST_F(Atomic, AnswerIntoMemoryThatMayNotBeWritten) {
    Region fixed(pair.c().pd(), 4096, IBV_ACCESS_REMOTE_READ);
    pair.c().post(SendWr::fetch_add(1, fixed.sge(0, 8), remote.addr(), remote.rkey(), 1));
    expect_wc(pair.c().scq(), 1, IBV_WC_LOC_PROT_ERR);
    expect_lost(pair);
    EXPECT_EQ(word(remote, 0), 0U);
    expect_value(fixed.at(0), 4096, 0);
}

/* Windows, too, can give the right away. */
TEST_F(Atomic, ThroughAWindow) {
    Region region(pair.s().pd(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    Mw mw = alloc_mw(pair.s().pd(), IBV_MW_TYPE_2);
    SendWr wr = SendWr::bind_mw(1, mw.get(), region.mr.get(), region.addr(64), 64,
                                IBV_ACCESS_REMOTE_ATOMIC);
    pair.s().post(wr);
    expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);
    word(region, 8) = 6;
    pair.c().post(SendWr::fetch_add(1, answer(0), region.addr(64), wr.rkey, 4));
    expect_success(pair.c().scq(), 1, IBV_WC_FETCH_ADD, 8);
    EXPECT_EQ(word(local, 0), 6U);
    EXPECT_EQ(word(region, 8), 10U);
    pair.c().post(SendWr::fetch_add(2, answer(0), region.addr(128), wr.rkey, 4));
    expect_wc(pair.c().scq(), 2, IBV_WC_REM_ACCESS_ERR);
    expect_lost(pair);
}

/* The client's QP goes while its atomics are under way: each is done, or not, never in part. */
TEST(AtomicTeardown, QpGoesWithRequestsUnderWay) {
    for (unsigned round = 0; round < full_or_quick(12U, 4U); round++) {
        SCOPED_TRACE(round);
        Pair pair;
        Region local(pair.c().pd(), 4096);
        Region remote(pair.s().pd(), 4096, kAtomic);
        for (uint64_t i = 0; i < 48; i++)
            pair.c().post(SendWr::fetch_add(i, local.sge(8 * i, 8), remote.addr(), remote.rkey(),
                                            uint64_t{0x0101010101010101}));
        if (round % 2 == 0)
            pair.c().destroy_qp();
        else
            pair.s().destroy_qp();
        std::this_thread::sleep_for(milliseconds(3));
        uint64_t value = std::atomic_ref<uint64_t>(word(remote, 0)).load();
        EXPECT_EQ(value % 0x0101010101010101, 0U) << fmt::format("{:#x}", value);
        EXPECT_LE(value / 0x0101010101010101, 48U);
    }
}

/* Switched off --------------------------------------------------------------- */

TEST(ExtensionsOff, DeviceSaysSo) {
    PolicyOverride off(config().dev, "extensions", "off");
    Context context = open_device(config().dev);
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
    EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_NONE);
}

const auto kOperations = {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
                          IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

SendWr extension(ibv_wr_opcode opcode, const Region &local, const Region &remote) {
    switch (opcode) {
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return SendWr::fetch_add(1, local.sge(0, 8), remote.addr(), remote.rkey(), 1);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return SendWr::cmp_swap(1, local.sge(0, 8), remote.addr(), remote.rkey(), 0, 1);
    case IBV_WR_SEND_WITH_IMM: return SendWr::send_imm(1, 5);
    default: return SendWr::write_imm(1, {}, remote.addr(), remote.rkey(), 5);
    }
}

/* Who has them not sends none: the request fails here. */
TEST(ExtensionsOff, HereNothingIsSent) {
    PolicyOverride off(config().dev, "extensions", "off");
    for (ibv_wr_opcode opcode : kOperations) {
        SCOPED_TRACE(opcode);
        Pair pair;
        Region local(pair.c().pd(), 4096), remote(pair.s().pd(), 4096, kAtomic);
        expect_works(pair);
        pair.s().recv(9, {});
        pair.c().post(extension(opcode, local, remote));
        expect_wc(pair.c().scq(), 1, IBV_WC_LOC_QP_OP_ERR);
        expect_wc(pair.s().rcq(), 9, IBV_WC_WR_FLUSH_ERR);
        expect_lost(pair);
        expect_value(remote.at(0), 4096, 0);
    }
}

/* A peer that has them not refuses them; what both have works. */
TEST(ExtensionsOff, ThereItIsRefused) {
    PolicyOverride off(config().peer_dev, "extensions", "off");
    for (ibv_wr_opcode opcode : kOperations) {
        SCOPED_TRACE(opcode);
        Pair pair;
        Region local(pair.c().pd(), 4096), remote(pair.s().pd(), 4096, kAtomic);
        expect_works(pair);
        pair.s().recv(9, {});
        pair.c().recv(60, {});
        pair.c().post(extension(opcode, local, remote));
        ibv_wc wc = next_wc(pair.c().scq());
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            EXPECT_EQ(wc.status, IBV_WC_REM_OP_ERR) << wc_text(wc);
        } else {
            EXPECT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_OP_ERR)
                << wc_text(wc); // complete when handed to TCP
        }
        expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.s().rcq(), 9, IBV_WC_WR_FLUSH_ERR);
        expect_lost(pair);
        expect_value(remote.at(0), 4096, 0);
    }
}

} // namespace
