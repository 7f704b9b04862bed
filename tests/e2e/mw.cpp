// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory windows of both types: what they let in, and when they stop to. */
#include <cerrno>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

constexpr size_t kSize = 64 * 1024;
constexpr size_t kAt = 10000;     // of the window in the region, on no page border
constexpr size_t kLength = 20000; // of the window
constexpr uint8_t kCanary = 0xa5;
constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

/* The server's region, which peers may not use but through a window. */
class Windows : public testing::TestWithParam<ibv_mw_type> {
  protected:
    Windows() { memory.buffer.set(kCanary); }

    /* Binds through the server's QP; returns the completion. */
    ibv_wc bind(ibv_mw *window, uint64_t addr, uint64_t length, unsigned access) {
        post_bind(window, memory.mr.get(), addr, length, access);
        return next_wc(pair.s().scq());
    }
    void post_bind(ibv_mw *window, ibv_mr *mr, uint64_t addr, uint64_t length, unsigned access) {
        if (window->type == IBV_MW_TYPE_1) {
            ASSERT_EQ(bind_mw(pair.s().qp(), 77, window, mr, addr, length, access), 0);
        } else {
            SendWr wr = SendWr::bind_mw(77, window, mr, addr, length, access);
            pair.s().post(wr);
            window->rkey = wr.rkey;
        }
    }
    void expect_bound(unsigned access = kReadWrite, uint64_t addr_offset = kAt) {
        ibv_wc wc = bind(mw.get(), memory.addr(addr_offset), kLength, access);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
        EXPECT_EQ(wc.wr_id, 77U);
        EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    }
    void expect_write_works(uint64_t to, size_t length, uint64_t seed, uint32_t rkey) {
        fill(local.at(0), length, seed);
        pair.c().write(1, {local.sge(0, length)}, to, rkey);
        expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
        /* A Send behind it says that it is placed. */
        pair.s().recv(2, {});
        pair.c().send(2, {});
        expect_success(pair.c().scq(), 2, IBV_WC_SEND);
        expect_success(pair.s().rcq(), 2, IBV_WC_RECV);
    }
    void expect_read_works(uint64_t from, size_t length, uint32_t rkey) {
        local.buffer.set(0);
        pair.c().read(3, {local.sge(0, length)}, from, rkey);
        expect_success(pair.c().scq(), 3, IBV_WC_RDMA_READ, static_cast<int64_t>(length));
    }
    /* Refused, and the end of the connection. */
    void expect_read_refused(uint64_t from, size_t length, uint32_t rkey) {
        local.buffer.set(0x11);
        pair.c().read(3, {local.sge(0, length)}, from, rkey);
        expect_wc(pair.c().scq(), 3, IBV_WC_REM_ACCESS_ERR);
        expect_value(local.at(0), kSize, 0x11, "sink of the read");
        expect_lost();
    }
    void expect_write_refused(uint64_t to, size_t length, uint32_t rkey) {
        local.buffer.set(0x22);
        pair.c().recv(60, {});
        pair.c().write(3, {local.sge(0, length)}, to, rkey);
        next_wc(pair.c().scq());
        expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
        expect_value(memory.at(0), kSize, kCanary, "memory");
        expect_lost();
    }
    void expect_lost() {
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
        pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
        expect_qp_state(pair.s().qp(), IBV_QPS_ERR);
        expect_qp_state(pair.c().qp(), IBV_QPS_ERR);
    }
    uint64_t window(size_t offset = 0) const { return memory.addr(kAt + offset); }

    Pair pair;
    Region local{pair.c().pd(), kSize};
    Region memory{pair.s().pd(), kSize, kBindable};
    Mw mw{alloc_mw(pair.s().pd(), GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Type, Windows, testing::Values(IBV_MW_TYPE_1, IBV_MW_TYPE_2),
                         [](const auto &info) { return std::to_string(info.param); });

TEST_P(Windows, LetsInWhatIsInIt) {
    uint32_t index = mw->rkey >> 8;
    expect_bound();
    EXPECT_EQ(mw->rkey >> 8, index) << "the key alone changes";
    expect_write_works(window(), kLength, 1, mw->rkey);
    expect_pattern(memory.at(kAt), kLength, 1);
    expect_value(memory.at(0), kAt, kCanary, "before the window");
    expect_value(memory.at(kAt + kLength), kSize - kAt - kLength, kCanary, "behind the window");
    expect_read_works(window(), kLength, mw->rkey);
    expect_pattern(local.at(0), kLength, 1);
    expect_write_works(window(kLength - 1), 1, 7, mw->rkey);
    expect_pattern(memory.at(kAt + kLength - 1), 1, 7);
}

TEST_P(Windows, ZeroBased) {
    ibv_wc wc = bind(mw.get(), window(), kLength, kReadWrite | IBV_ACCESS_ZERO_BASED);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    expect_write_works(0, kLength, 1, mw->rkey);
    expect_pattern(memory.at(kAt), kLength, 1);
    expect_read_works(1000, 5000, mw->rkey);
    expect_pattern(local.at(0), 5000, 1, 1000);
    expect_read_refused(kLength - 1, 2, mw->rkey);
}

TEST_P(Windows, KeepsOutWhatIsBefore) {
    expect_bound();
    expect_write_refused(window() - 1, 10, mw->rkey);
}

TEST_P(Windows, KeepsOutWhatIsBehind) {
    expect_bound();
    expect_read_refused(window(1), kLength, mw->rkey);
}

TEST_P(Windows, WrapsNotAround) {
    expect_bound();
    expect_read_refused(~uint64_t{0} - 10, 4000, mw->rkey);
}

TEST_P(Windows, ReadOnly) {
    expect_bound(IBV_ACCESS_REMOTE_READ);
    expect_read_works(window(), kLength, mw->rkey);
    expect_value(local.at(0), kLength, kCanary);
    expect_write_refused(window(), 10, mw->rkey);
}

TEST_P(Windows, WriteOnly) {
    expect_bound(IBV_ACCESS_REMOTE_WRITE);
    expect_write_works(window(), 10, 1, mw->rkey);
    expect_read_refused(window(), 10, mw->rkey);
}

/* Not even through its own region's key. */
TEST_P(Windows, RegionItselfStaysShut) {
    expect_bound();
    expect_read_refused(window(), 10, memory.rkey());
}

TEST_P(Windows, NotBoundYet) {
    expect_read_refused(window(), 10, mw->rkey);
}

TEST_P(Windows, OldKey) {
    uint32_t before = mw->rkey;
    expect_bound();
    expect_read_refused(window(), 10, before);
}

/* A window's key is for peers: its owner has the region's. */
TEST_P(Windows, NoLocalKey) {
    expect_bound();
    Region at_client(pair.c().pd(), kSize);
    pair.s().send(5, {{window(), 10, mw->rkey}});
    expect_wc(pair.s().scq(), 5, IBV_WC_LOC_PROT_ERR);
    expect_lost();
}

/* A region with windows stays; without them it goes. */
TEST_P(Windows, DeregisterWhileBound) {
    expect_bound();
    ibv_mr *mr = memory.mr.get();
    EXPECT_EQ(ibv_dereg_mr(mr), EBUSY);
    expect_read_works(window(), kLength, mw->rkey);
    EXPECT_EQ(ibv_dereg_mr(mr), EBUSY);
    mw.reset();
    memory.mr.reset();
}

/* As it cannot be deregistered while a window is bound to it. */
TEST_P(Windows, PeerDoesNotInvalidateTheRegionBelow) {
    Region shared(pair.s().pd(), kSize, kBindable | IBV_ACCESS_REMOTE_READ);
    post_bind(mw.get(), shared.mr.get(), shared.addr(kAt), kLength, kReadWrite);
    expect_success(pair.s().scq(), 77, IBV_WC_BIND_MW);
    pair.s().recv(4, {});
    pair.c().post(SendWr::send_inv(4, {}, shared.rkey()));
    EXPECT_NE(next_wc(pair.s().rcq()).status, IBV_WC_SUCCESS);
    expect_lost();
    PairOptions options;
    options.server.pd = pair.s().pd();
    Pair polite(options);
    Region there(polite.c().pd(), kSize);
    polite.c().read(5, {there.sge(0, 100)}, shared.addr(0), shared.rkey());
    expect_success(polite.c().scq(), 5, IBV_WC_RDMA_READ, 100);
    mw.reset(); // before what it is bound to
}

/* Once it is gone, it can. */
TEST_P(Windows, PeerInvalidatesTheRegionThatWasBelow) {
    Region shared(pair.s().pd(), kSize, kBindable | IBV_ACCESS_REMOTE_READ);
    post_bind(mw.get(), shared.mr.get(), shared.addr(kAt), kLength, kReadWrite);
    expect_success(pair.s().scq(), 77, IBV_WC_BIND_MW);
    expect_read_works(shared.addr(0), 100, shared.rkey());
    mw.reset();
    pair.s().recv(5, {});
    pair.c().post(SendWr::send_inv(5, {}, shared.rkey()));
    expect_success(pair.s().rcq(), 5, IBV_WC_RECV, 0);
    expect_success(pair.c().scq(), 5, IBV_WC_SEND);
    expect_read_refused(shared.addr(0), 100, shared.rkey());
}

TEST_P(Windows, DeallocateWhileBound) {
    expect_bound();
    uint32_t rkey = mw->rkey;
    expect_read_works(window(), kLength, rkey);
    mw.reset();
    expect_read_refused(window(), 10, rkey);
}

/* Many windows of one region, each with its own part. */
TEST_P(Windows, Many) {
    const size_t kPart = 1000;
    std::vector<Mw> windows;
    for (size_t i = 0; i < 32; i++) {
        windows.push_back(alloc_mw(pair.s().pd(), GetParam()));
        ASSERT_EQ(bind(windows[i].get(), memory.addr(i * kPart), kPart, kReadWrite).status,
                  IBV_WC_SUCCESS);
    }
    for (size_t i = 0; i < windows.size(); i++) {
        fill(local.at(i * kPart), kPart, i);
        pair.c().write(i, {local.sge(i * kPart, kPart)}, memory.addr(i * kPart), windows[i]->rkey);
    }
    for (size_t i = 0; i < windows.size(); i++)
        expect_success(pair.c().scq(), i, IBV_WC_RDMA_WRITE);
    expect_read_works(memory.addr(0), kPart, windows[0]->rkey);
    for (size_t i = 0; i < windows.size(); i++)
        expect_pattern(memory.at(i * kPart), kPart, i);
    expect_read_refused(memory.addr(kPart), 10, windows[0]->rkey);
}

/* What the region does not allow, no window gives away. */
TEST_P(Windows, BindBeyondTheRegion) {
    EXPECT_EQ(bind(mw.get(), memory.addr(kSize - 10), 11, kReadWrite).status, IBV_WC_MW_BIND_ERR);
    expect_lost();
}

TEST_P(Windows, BindToUnknownRegion) {
    ibv_mr wrong = *memory.mr;
    wrong.lkey ^= 0x5a5a5a00;
    post_bind(mw.get(), &wrong, window(), 10, kReadWrite);
    expect_wc(pair.s().scq(), 77, IBV_WC_MW_BIND_ERR);
    expect_lost();
}

TEST_P(Windows, BindWithoutTheRight) {
    Region shut(pair.s().pd(), kSize, kAll);
    post_bind(mw.get(), shut.mr.get(), shut.addr(), 10, IBV_ACCESS_REMOTE_READ);
    expect_wc(pair.s().scq(), 77, IBV_WC_MW_BIND_ERR);
    expect_lost();
}

/* Remote write needs the region's local write. */
TEST_P(Windows, WritableNeedsLocalWrite) {
    Region fixed(pair.s().pd(), kSize, IBV_ACCESS_MW_BIND);
    post_bind(mw.get(), fixed.mr.get(), fixed.addr(), 10, IBV_ACCESS_REMOTE_READ);
    expect_success(pair.s().scq(), 77, IBV_WC_BIND_MW);
    expect_read_works(fixed.addr(), 10, mw->rkey);
    Mw other = alloc_mw(pair.s().pd(), GetParam());
    post_bind(other.get(), fixed.mr.get(), fixed.addr(), 10, IBV_ACCESS_REMOTE_WRITE);
    expect_wc(pair.s().scq(), 77, IBV_WC_MW_BIND_ERR);
    expect_lost();
    mw.reset(); // before its region
}

TEST_P(Windows, RegionOfAnotherPd) {
    Pd foreign = alloc_pd(pair.s().context());
    Region there(foreign.get(), kSize, kBindable);
    if (GetParam() == IBV_MW_TYPE_1) {
        /* libibverbs sees that itself. */
        EXPECT_EQ(bind_mw(pair.s().qp(), 1, mw.get(), there.mr.get(), there.addr(), 10, kReadWrite),
                  EPERM);
        return;
    }
    post_bind(mw.get(), there.mr.get(), there.addr(), 10, kReadWrite);
    expect_wc(pair.s().scq(), 77, IBV_WC_MW_BIND_ERR);
    expect_lost();
}

TEST_P(Windows, WindowOfAnotherPd) {
    Pd foreign = alloc_pd(pair.s().context());
    Mw there = alloc_mw(foreign.get(), GetParam());
    Region memory_there(foreign.get(), kSize, kBindable);
    post_bind(there.get(), memory_there.mr.get(), memory_there.addr(), 10, kReadWrite);
    expect_wc(pair.s().scq(), 77, IBV_WC_MW_BIND_ERR);
    expect_lost();
}

TEST_P(Windows, RefusedAtThePost) {
    ibv_qp *qp = pair.s().qp();
    ibv_mr *mr = memory.mr.get();
    uint32_t before = mw->rkey;
    for (unsigned access :
         {unsigned{IBV_ACCESS_LOCAL_WRITE}, unsigned{IBV_ACCESS_MW_BIND}, 1U << 12}) {
        int error = GetParam() == IBV_MW_TYPE_1
                        ? bind_mw(qp, 1, mw.get(), mr, window(), 10, access)
                        : post_send(qp, SendWr::bind_mw(1, mw.get(), mr, window(), 10, access));
        EXPECT_EQ(error, EINVAL) << access;
    }
    if (GetParam() == IBV_MW_TYPE_1) {
        EXPECT_EQ(post_send(qp, SendWr::bind_mw(1, mw.get(), mr, window(), 10, kReadWrite)),
                  EINVAL);
        EXPECT_EQ(bind_mw(qp, 1, mw.get(), nullptr, window(), 10, kReadWrite), EINVAL);
    } else {
        EXPECT_EQ(bind_mw(qp, 1, mw.get(), mr, window(), 10, kReadWrite), EINVAL);
        EXPECT_EQ(post_send(qp, SendWr::bind_mw(1, mw.get(), mr, window(), 0, kReadWrite)), EINVAL);
        SendWr other_index = SendWr::bind_mw(1, mw.get(), mr, window(), 10, kReadWrite);
        other_index.rkey ^= 0x100;
        EXPECT_EQ(post_send(qp, other_index), EINVAL);
    }
    EXPECT_EQ(mw->rkey, before);
    expect_works(pair);
}

/* As many as there may be regions, and no two with the same index. */
TEST_P(Windows, AllocationLimits) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(pair.s().context(), &attr), 0);
    EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0U);
    EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0U);
    EXPECT_GE(attr.max_mw, 1024);
    std::vector<Mw> windows;
    for (unsigned i = 0; i < 500; i++)
        windows.push_back(alloc_mw(pair.s().pd(), GetParam()));
    std::set<uint32_t> keys;
    for (const Mw &w : windows)
        keys.insert(w->rkey >> 8);
    EXPECT_EQ(keys.size(), windows.size());
}

/* Type 1 ---------------------------------------------------------------------- */

class Type1 : public Windows {};
INSTANTIATE_TEST_SUITE_P(Type, Type1, testing::Values(IBV_MW_TYPE_1),
                         [](const auto &info) { return std::to_string(info.param); });

/* Bound anew it moves; its former key is gone. */
TEST_P(Type1, Rebinds) {
    for (unsigned round = 0; round < 300; round++) { // more than there are keys
        size_t at = round * 100;
        ibv_wc wc = bind(mw.get(), memory.addr(at), 100, kReadWrite);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << round;
        if (round % 50 == 0) {
            expect_write_works(memory.addr(at), 100, round, mw->rkey);
            expect_pattern(memory.at(at), 100, round);
        }
    }
    uint32_t before = mw->rkey;
    ASSERT_EQ(bind(mw.get(), memory.addr(0), 100, kReadWrite).status, IBV_WC_SUCCESS);
    expect_read_refused(memory.addr(0), 10, before);
}

TEST_P(Type1, UnbindsWithLengthZero) {
    expect_bound();
    EXPECT_EQ(ibv_dereg_mr(memory.mr.get()), EBUSY);
    ASSERT_EQ(bind_mw(pair.s().qp(), 5, mw.get(), nullptr, 0, 0, 0), 0);
    expect_success(pair.s().scq(), 5, IBV_WC_BIND_MW);
    uint32_t rkey = mw->rkey;
    memory.mr.reset();
    expect_read_refused(window(), 10, rkey);
}

/* It belongs to the PD: other QPs of that have it as well. */
TEST_P(Type1, ServesAllQpsOfThePd) {
    PairOptions options;
    options.server.pd = pair.s().pd();
    Pair other(options);
    Region there(other.c().pd(), kSize);
    expect_bound();
    fill(there.at(0), 100, 9);
    other.c().write(1, {there.sge(0, 100)}, window(), mw->rkey);
    other.c().read(2, {there.sge(1000, 100)}, window(), mw->rkey);
    expect_success(other.c().scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(other.c().scq(), 2, IBV_WC_RDMA_READ, 100);
    expect_pattern(there.at(1000), 100, 9);
    expect_pattern(memory.at(kAt), 100, 9);
}

/* Whoever binds it last has it; at the same time on two processors, too. */
TEST_P(Type1, BoundByTwoQpsAtOnce) {
    const unsigned kRounds = full_or_quick(100U, 25U);
    const uint64_t kBinds = 60;
    PairOptions options;
    options.server.pd = pair.s().pd();
    Pair other(options);
    Region there(other.c().pd(), kSize);
    /* They gather behind the fence and then run in one go. */
    auto bind_often = [&](Endpoint &end, const Region &peer, size_t at) {
        Region sink(end.pd(), kSize);
        ibv_mw copy = *mw; // the keys are each thread's own
        for (unsigned round = 0; round < kRounds; round++) {
            end.read(0, {sink.all()}, peer.addr(), peer.rkey(), 0);
            for (uint64_t i = 0; i < kBinds; i++)
                ASSERT_EQ(bind_mw(end.qp(), i, &copy, memory.mr.get(), memory.addr(at), 100,
                                  kReadWrite, IBV_SEND_SIGNALED | IBV_SEND_FENCE),
                          0);
            for (uint64_t i = 0; i < kBinds; i++)
                ASSERT_EQ(next_wc(end.scq()).status, IBV_WC_SUCCESS);
        }
    };
    std::thread second([&] { bind_often(other.s(), there, 1000); });
    bind_often(pair.s(), local, 2000);
    second.join();
    expect_bound();
    expect_write_works(window(), 100, 1, mw->rkey);
    expect_pattern(memory.at(kAt), 100, 1);
}

/* Gone while it is bound again and again, and written through: nothing holds the region then. */
TEST_P(Type1, DeallocatedUnderLoad) {
    for (unsigned round = 0; round < full_or_quick(20U, 6U); round++) {
        SCOPED_TRACE(round);
        Pair binder;
        PairOptions options;
        options.server.pd = binder.s().pd();
        Pair writer(options);
        Region from(writer.c().pd(), kSize);
        Region to(binder.s().pd(), kSize, kBindable);
        Mw window = alloc_mw(binder.s().pd(), IBV_MW_TYPE_1);
        ASSERT_EQ(
            bind_mw(binder.s().qp(), 0, window.get(), to.mr.get(), to.addr(), kSize, kReadWrite),
            0);
        expect_success(binder.s().scq(), 0, IBV_WC_BIND_MW);
        ibv_mw copy = *window;
        for (uint64_t i = 0; i < 20; i++)
            writer.c().write(i, {from.all()}, to.addr(), window->rkey);
        /* The same key each time, so that the writes go on. */
        for (uint64_t i = 0; i < 40; i++) {
            copy.rkey = (window->rkey & ~0xffU) | ((window->rkey - 1) & 0xff);
            ASSERT_EQ(bind_mw(binder.s().qp(), i, &copy, to.mr.get(), to.addr(), kSize, kReadWrite),
                      0);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
        window.reset();
        to.mr.reset();
        to.buffer.set(kCanary);
        for (uint64_t i = 0; i < 20; i++)
            next_wc(writer.c().scq());
        for (uint64_t i = 0; i < 40; i++)
            next_wc(binder.s().scq());
        expect_value(to.at(0), kSize, kCanary, "memory");
    }
}

/* A Send with Invalidate is not for it (RFC 5040 speaks of what was bound for the stream). */
TEST_P(Type1, NotInvalidatedByThePeer) {
    expect_bound();
    pair.s().recv(4, {});
    pair.c().post(SendWr::send_inv(4, {}, mw->rkey));
    expect_success(pair.c().scq(), 4, IBV_WC_SEND);
    ibv_wc wc = next_wc(pair.s().rcq());
    EXPECT_NE(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    expect_lost();
}

TEST_P(Type1, NotInvalidatedLocally) {
    expect_bound();
    pair.s().post(SendWr::local_inv(4, mw->rkey));
    expect_wc(pair.s().scq(), 4, IBV_WC_LOC_QP_OP_ERR);
    expect_lost();
}

/* Type 2 ---------------------------------------------------------------------- */

class Type2 : public Windows {};
INSTANTIATE_TEST_SUITE_P(Type, Type2, testing::Values(IBV_MW_TYPE_2),
                         [](const auto &info) { return std::to_string(info.param); });

TEST_P(Type2, KeyIsTheConsumers) {
    SendWr wr = SendWr::bind_mw(1, mw.get(), memory.mr.get(), window(), kLength, kReadWrite);
    wr.rkey = (mw->rkey & ~0xffU) | 0x5a;
    pair.s().post(wr);
    expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);
    expect_write_works(window(), 100, 1, wr.rkey);
    expect_pattern(memory.at(kAt), 100, 1);
}

TEST_P(Type2, NoSecondBindWhileValid) {
    expect_bound();
    EXPECT_EQ(bind(mw.get(), memory.addr(0), 10, kReadWrite).status, IBV_WC_MW_BIND_ERR);
    expect_lost();
}

TEST_P(Type2, LocalInvalidate) {
    for (unsigned round = 0; round < 3; round++) {
        expect_bound(kReadWrite, round * 1000);
        expect_write_works(memory.addr(round * 1000), 500, round, mw->rkey);
        expect_pattern(memory.at(round * 1000), 500, round);
        pair.s().post(SendWr::local_inv(4, mw->rkey));
        expect_success(pair.s().scq(), 4, IBV_WC_LOCAL_INV);
    }
    memory.mr.reset(); // no window holds it any more
    expect_read_refused(memory.addr(2000), 10, mw->rkey);
}

TEST_P(Type2, LocalInvalidateTwice) {
    expect_bound();
    pair.s().post(SendWr::local_inv(4, mw->rkey));
    pair.s().post(SendWr::local_inv(5, mw->rkey));
    pair.s().post(SendWr::send(6, {}));
    expect_success(pair.s().scq(), 4, IBV_WC_LOCAL_INV);
    expect_wc(pair.s().scq(), 5, IBV_WC_LOC_QP_OP_ERR);
    expect_wc(pair.s().scq(), 6, IBV_WC_WR_FLUSH_ERR);
    expect_lost();
}

TEST_P(Type2, SendWithInvalidate) {
    for (unsigned round = 0; round < 3; round++) {
        expect_bound();
        expect_write_works(window(), 500, round, mw->rkey);
        pair.s().recv(4, {});
        pair.c().post(SendWr::send_inv(4, {}, mw->rkey));
        expect_success(pair.c().scq(), 4, IBV_WC_SEND);
        ibv_wc wc = expect_success(pair.s().rcq(), 4, IBV_WC_RECV, 0);
        EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
        EXPECT_EQ(wc.invalidated_rkey, mw->rkey);
    }
    memory.mr.reset();
    expect_read_refused(window(), 10, mw->rkey);
}

/* Bound through one QP, it is no other's. */
TEST_P(Type2, AnotherQpIsRefused) {
    PairOptions options;
    options.server.pd = pair.s().pd();
    Pair other(options);
    Region there(other.c().pd(), kSize);
    expect_bound();
    other.c().read(2, {there.sge(0, 100)}, window(), mw->rkey);
    expect_wc(other.c().scq(), 2, IBV_WC_REM_ACCESS_ERR);
    expect_value(there.at(0), kSize, 0);
    expect_read_works(window(), 100, mw->rkey);
}

TEST_P(Type2, AnotherQpDoesNotInvalidate) {
    PairOptions options;
    options.server.pd = pair.s().pd();
    Pair by_peer(options), locally(options);
    expect_bound();
    by_peer.s().recv(4, {});
    by_peer.c().post(SendWr::send_inv(4, {}, mw->rkey));
    EXPECT_NE(next_wc(by_peer.s().rcq()).status, IBV_WC_SUCCESS);
    locally.s().post(SendWr::local_inv(5, mw->rkey));
    expect_wc(locally.s().scq(), 5, IBV_WC_LOC_QP_OP_ERR);
    expect_read_works(window(), 100, mw->rkey);
}

/* An ordinary region is not to be invalidated by a work request. */
TEST_P(Type2, RegionIsNotInvalidatedLocally) {
    pair.s().post(SendWr::local_inv(5, memory.rkey()));
    expect_wc(pair.s().scq(), 5, IBV_WC_LOC_QP_OP_ERR);
    expect_lost();
}

/* Bind, use and invalidate, all posted at once: each in its order. */
TEST_P(Type2, InOrderWithSends) {
    pair.c().recv(1, {local.sge(0, 16)});
    pair.c().recv(2, {local.sge(16, 16)});
    Region note(pair.s().pd(), 4096);
    SendWr wr = SendWr::bind_mw(1, mw.get(), memory.mr.get(), window(), kLength, kReadWrite, 0);
    std::vector<SendWr> list{wr, SendWr::send(2, {note.sge(0, 8)}, 0),
                             SendWr::local_inv(3, wr.rkey, 0), SendWr::send(4, {note.sge(0, 8)})};
    ASSERT_EQ(post_send_list(pair.s().qp(), list), 0);
    expect_success(pair.s().scq(), 4, IBV_WC_SEND);
    expect_success(pair.c().rcq(), 1, IBV_WC_RECV, 8);
    expect_success(pair.c().rcq(), 2, IBV_WC_RECV, 8);
    expect_quiet(pair.s().scq());
    expect_read_refused(window(), 10, wr.rkey);
}

/*
 * The fence: what the read brings is there before the window is closed behind it.
 * The client reads through its peer's window and then tells it to close it.
 */
TEST_P(Type2, FencedInvalidateBehindReads) {
    for (unsigned round = 0; round < full_or_quick(50U, 10U); round++) {
        SCOPED_TRACE(round);
        expect_bound();
        fill(memory.at(kAt), kLength, round);
        local.buffer.set(0);
        pair.s().recv(9, {});
        std::vector<SendWr> list;
        for (uint64_t i = 0; i < 8; i++)
            list.push_back(
                SendWr::read(i, {local.sge(i * 2000, 2000)}, window(i * 2000), mw->rkey, 0));
        list.push_back(SendWr::send_inv(8, {}, mw->rkey, IBV_SEND_SIGNALED | IBV_SEND_FENCE));
        ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
        expect_success(pair.c().scq(), 8, IBV_WC_SEND);
        ibv_wc wc = expect_success(pair.s().rcq(), 9, IBV_WC_RECV, 0);
        EXPECT_EQ(wc.invalidated_rkey, mw->rkey);
        expect_pattern(local.at(0), 16000, round);
    }
}

/* Another QP wants it while its own one gives it up. */
TEST_P(Type2, InvalidatedWhileAnotherQpBinds) {
    for (unsigned round = 0; round < full_or_quick(30U, 10U); round++) {
        SCOPED_TRACE(round);
        Pair owner;
        PairOptions options;
        options.server.pd = owner.s().pd();
        Pair other(options);
        Region to(owner.s().pd(), kSize, kBindable);
        Mw window = alloc_mw(owner.s().pd(), IBV_MW_TYPE_2);
        SendWr wr = SendWr::bind_mw(1, window.get(), to.mr.get(), to.addr(), kSize, kReadWrite);
        owner.s().post(wr);
        expect_success(owner.s().scq(), 1, IBV_WC_BIND_MW);
        std::thread second([&] { other.s().post(wr); });
        owner.s().post(SendWr::local_inv(2, wr.rkey));
        second.join();
        expect_success(owner.s().scq(), 2, IBV_WC_LOCAL_INV);
        /* Before that it was taken, after it, it is the other's. */
        ibv_wc wc = next_wc(other.s().scq());
        EXPECT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_MW_BIND_ERR) << wc_text(wc);
        window.reset();
    }
}

/* Invalidated while the peer writes: after the completion nothing is placed any more. */
TEST_P(Type2, InvalidatedUnderLoad) {
    for (unsigned round = 0; round < full_or_quick(10U, 3U); round++) {
        SCOPED_TRACE(round);
        Pair own;
        Region from(own.c().pd(), kSize);
        Region to(own.s().pd(), kSize, kBindable);
        Mw window = alloc_mw(own.s().pd(), IBV_MW_TYPE_2);
        SendWr wr = SendWr::bind_mw(1, window.get(), to.mr.get(), to.addr(), kSize, kReadWrite);
        own.s().post(wr);
        expect_success(own.s().scq(), 1, IBV_WC_BIND_MW);
        for (uint64_t i = 0; i < 40; i++)
            own.c().write(i, {from.all()}, to.addr(), wr.rkey);
        std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
        own.s().post(SendWr::local_inv(2, wr.rkey));
        ibv_wc wc = next_wc(own.s().scq());
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
        to.buffer.set(kCanary);
        for (uint64_t i = 0; i < 40; i++)
            next_wc(own.c().scq());
        std::this_thread::sleep_for(milliseconds(5));
        expect_value(to.at(0), kSize, kCanary, "memory");
    }
}

} // namespace
