// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* ibv_rereg_mr(3): another PD, other rights, other memory. */
#include <sys/mman.h>

#include <cerrno>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

constexpr size_t kSize = 64 * 1024;

class Rereg : public testing::Test {
  protected:
    void expect_read(uint64_t addr, size_t length, uint32_t rkey, uint64_t seed) {
        local.buffer.set(0);
        pair.c().read(1, {local.sge(0, length)}, addr, rkey);
        expect_success(pair.c().scq(), 1, IBV_WC_RDMA_READ, static_cast<int64_t>(length));
        expect_pattern(local.at(0), length, seed);
    }
    void expect_read_refused(uint64_t addr, uint32_t rkey) {
        pair.c().read(1, {local.sge(0, 100)}, addr, rkey);
        expect_wc(pair.c().scq(), 1, IBV_WC_REM_ACCESS_ERR);
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
        pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
    }

    Pair pair;
    Region local{pair.c().pd(), kSize};
    Region remote{pair.s().pd(), kSize};
};

TEST_F(Rereg, Access) {
    Region shut(pair.s().pd(), kSize, IBV_ACCESS_LOCAL_WRITE);
    fill(shut.at(0), kSize, 1);
    ibv_mr *mr = shut.mr.get();
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll), 0);
    EXPECT_EQ(mr->addr, shut.buffer.data());
    EXPECT_EQ(mr->length, kSize);
    expect_read(shut.addr(), 5000, mr->rkey, 1);
}

TEST_F(Rereg, AccessTakenAway) {
    ibv_mr *mr = remote.mr.get();
    ASSERT_EQ(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
        0);
    expect_read_refused(remote.addr(), mr->rkey);
}

/* Whoever has the old key has nothing. */
TEST_F(Rereg, OldKeyIsDead) {
    ibv_mr *mr = remote.mr.get();
    uint32_t before = mr->rkey;
    fill(remote.at(0), kSize, 3);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll), 0);
    ASSERT_NE(mr->rkey, before);
    expect_read(remote.addr(), 1000, mr->rkey, 3);
    expect_read_refused(remote.addr(), before);
}

TEST_F(Rereg, Translation) {
    Buffer other(2 * kSize);
    fill(other.at(0), 2 * kSize, 5);
    ibv_mr *mr = remote.mr.get();
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.at(4096), kSize, 0),
              0);
    EXPECT_EQ(mr->addr, other.at(4096));
    EXPECT_EQ(mr->length, kSize);
    local.buffer.set(0);
    pair.c().read(1, {local.all()}, other.addr(4096), mr->rkey);
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_READ, kSize);
    expect_pattern(local.at(0), kSize, 5, 4096);
    expect_read_refused(remote.addr(), mr->rkey);
}

/* The old memory is free to go. */
TEST_F(Rereg, TranslationLetsTheOldMemoryGo) {
    auto first = std::make_unique<Buffer>(kSize);
    Buffer second(kSize);
    fill(second.at(0), kSize, 8);
    Mr mr = register_memory(pair.s().pd(), first->data(), kSize);
    ASSERT_EQ(
        ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), kSize, 0),
        0);
    first.reset();
    expect_read(second.addr(), kSize, mr->rkey, 8);
}

TEST_F(Rereg, ProtectionDomain) {
    Pd foreign = alloc_pd(pair.s().context());
    Region there(foreign.get(), kSize);
    fill(there.at(0), kSize, 2);
    ibv_mr *mr = there.mr.get();
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pair.s().pd(), nullptr, 0, 0), 0);
    EXPECT_EQ(mr->pd, pair.s().pd());
    expect_read(there.addr(), kSize, mr->rkey, 2);
    foreign.reset(); // nothing holds it any more
    Pd other = alloc_pd(pair.s().context());
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other.get(), nullptr, 0, 0), 0);
    expect_read_refused(there.addr(), mr->rkey);
    there.mr.reset();
}

TEST_F(Rereg, AllAtOnce) {
    Pd foreign = alloc_pd(pair.s().context());
    Region there(foreign.get(), 4096, IBV_ACCESS_LOCAL_WRITE);
    Buffer memory(kSize);
    fill(memory.at(0), kSize, 4);
    ibv_mr *mr = there.mr.get();
    ASSERT_EQ(ibv_rereg_mr(mr,
                           IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS |
                               IBV_REREG_MR_CHANGE_TRANSLATION,
                           pair.s().pd(), memory.data(), kSize, kRemoteRead),
              0);
    expect_read(memory.addr(), kSize, mr->rkey, 4);
    there.mr.reset();
}

/* What fails leaves the region as it was. */
TEST_F(Rereg, FailuresChangeNothing) {
    ibv_mr *mr = remote.mr.get();
    fill(remote.at(0), kSize, 6);
    void *nowhere = mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(nowhere, MAP_FAILED);
    munmap(nowhere, kSize);
    EXPECT_NE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nowhere, kSize, 0), 0);
    EXPECT_NE(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
        0)
        << "remote write without local write";
    EXPECT_NE(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_ON_DEMAND), 0);
    EXPECT_NE(ibv_rereg_mr(mr, 1 << 7, nullptr, nullptr, 0, 0), 0);
    expect_read(remote.addr(), kSize, mr->rkey, 6);
}

TEST_F(Rereg, NotWhileAWindowIsBound) {
    Region bindable(pair.s().pd(), kSize, kAll | IBV_ACCESS_MW_BIND);
    fill(bindable.at(0), kSize, 7);
    Mw mw = alloc_mw(pair.s().pd(), IBV_MW_TYPE_1);
    ASSERT_EQ(bind_mw(pair.s().qp(), 1, mw.get(), bindable.mr.get(), bindable.addr(), 1000,
                      IBV_ACCESS_REMOTE_READ),
              0);
    expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);
    EXPECT_NE(ibv_rereg_mr(bindable.mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           kAll | IBV_ACCESS_MW_BIND),
              0);
    EXPECT_EQ(errno, EBUSY);
    expect_read(bindable.addr(), 1000, mw->rkey, 7);
    mw.reset();
    EXPECT_EQ(ibv_rereg_mr(bindable.mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           kAll | IBV_ACCESS_MW_BIND),
              0);
    expect_read(bindable.addr(), 1000, bindable.mr->rkey, 7);
}

/* A window can be bound to what has become of it. */
TEST_F(Rereg, WindowsAfterwards) {
    ibv_mr *mr = remote.mr.get();
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           kAll | IBV_ACCESS_MW_BIND),
              0);
    /* A failed attempt takes nothing away. */
    EXPECT_NE(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
        0);
    fill(remote.at(0), kSize, 7);
    Mw mw = alloc_mw(pair.s().pd(), IBV_MW_TYPE_1);
    ASSERT_EQ(bind_mw(pair.s().qp(), 1, mw.get(), mr, remote.addr(), 1000, IBV_ACCESS_REMOTE_READ),
              0);
    expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);
    expect_read(remote.addr(), 1000, mw->rkey, 7);
}

/* The peer reads and writes while the region becomes another: never what it may not. */
TEST_F(Rereg, UnderLoad) {
    for (unsigned round = 0; round < full_or_quick(10U, 4U); round++) {
        SCOPED_TRACE(round);
        Pair own;
        Region from(own.c().pd(), kSize);
        Buffer first(kSize), second(kSize);
        Mr mr = register_memory(own.s().pd(), first.data(), kSize);
        uint32_t before = mr->rkey;
        from.buffer.set(0x33);
        for (uint64_t i = 0; i < 40; i++)
            own.c().write(i, {from.all()}, first.addr(), before);
        std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
        ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(),
                               kSize, 0),
                  0);
        /* Nothing is placed through the old key from here on. */
        first.set(0x44);
        for (uint64_t i = 0; i < 40; i++)
            next_wc(own.c().scq());
        std::this_thread::sleep_for(milliseconds(5));
        expect_value(first.at(0), kSize, 0x44, "old memory");
        expect_value(second.at(0), kSize, 0, "new memory");
    }
}

} // namespace
