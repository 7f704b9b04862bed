// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Bad use: each with the status, errno or event that the verbs promise. */
#include <rdma/ib_user_verbs.h>
#include <softwarp_abi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "lib/rings.hpp"

using namespace softwarp::e2e;

namespace {

constexpr size_t kSize = 64 * 1024;
constexpr uint8_t kCanary = 0xa5;

const std::initializer_list<ibv_event_type> kPeerTerminated = {IBV_EVENT_QP_FATAL};
const std::initializer_list<ibv_event_type> kAccessViolated = {IBV_EVENT_QP_ACCESS_ERR};
const std::initializer_list<ibv_event_type> kRequestBad = {IBV_EVENT_QP_REQ_ERR,
                                                           IBV_EVENT_QP_FATAL};

/*
 * The vendor error names what the peer's Terminate said (softwarp_abi.h); the
 * numbers are those of RFC 5040 s. 4.8.
 */
void expect_remote_reason(const ibv_wc &wc, unsigned layer, unsigned type, unsigned code) {
    if (config().link_type != "softwarp")
        return;
    EXPECT_EQ(wc.vendor_err, SWP_VENDOR_ERR(layer, type, code) | SWP_VENDOR_ERR_REMOTE)
        << wc_text(wc);
}

/* Ways to name memory that one may not use. */
enum class Fault {
    UnknownKey,
    WrongKeyByte,
    DeadKey,
    OtherPd,
    BeforeStart,
    BeyondEnd,
    FarBeyond,
    Wraps,
    NoRight,
};

const Fault kFaults[] = {Fault::UnknownKey, Fault::WrongKeyByte, Fault::DeadKey,
                         Fault::OtherPd,    Fault::BeforeStart,  Fault::BeyondEnd,
                         Fault::FarBeyond,  Fault::Wraps,        Fault::NoRight};

std::string fault_name(const testing::TestParamInfo<Fault> &info) {
    switch (info.param) {
    case Fault::UnknownKey: return "UnknownKey";
    case Fault::WrongKeyByte: return "WrongKeyByte";
    case Fault::DeadKey: return "DeadKey";
    case Fault::OtherPd: return "OtherPd";
    case Fault::BeforeStart: return "BeforeStart";
    case Fault::BeyondEnd: return "BeyondEnd";
    case Fault::FarBeyond: return "FarBeyond";
    case Fault::Wraps: return "Wraps";
    case Fault::NoRight: return "NoRight";
    }
    return "";
}

/* Memory of an endpoint and a faulty way to name 4000 octets of it. */
struct FaultyMemory {
    /* weak: access flags that lack the right in question */
    FaultyMemory(const Endpoint &end, Fault fault, int weak)
        : buffer(4 * kSize), other_pd(alloc_pd(end.context())) {
        buffer.set(kCanary);
        ibv_pd *pd = fault == Fault::OtherPd ? other_pd.get() : end.pd();
        int access = fault == Fault::NoRight ? weak : kAll;
        mr = register_memory(pd, buffer.at(kSize), kSize, access);
        addr = buffer.addr(kSize);
        key = mr->rkey;
        switch (fault) {
        case Fault::UnknownKey: key ^= 0x5a5a5a00; break;
        case Fault::WrongKeyByte: key ^= 0x01; break;
        case Fault::DeadKey: mr.reset(); break;
        case Fault::BeforeStart: addr -= 1; break;
        case Fault::BeyondEnd: addr += kSize - 3999; break;
        case Fault::FarBeyond: addr += uint64_t{1} << 40; break;
        case Fault::Wraps: addr = ~uint64_t{0} - 1000; break;
        case Fault::OtherPd:
        case Fault::NoRight: break;
        }
    }

    ibv_sge sge() const { return {addr, 4000, key}; }
    void expect_untouched() const { expect_value(buffer.data(), buffer.size(), kCanary, "memory"); }

    /* Segments within bounds may have been placed before the one that was not. */
    void expect_placed_within_bounds(Fault fault) const {
        if (fault != Fault::BeyondEnd)
            return expect_untouched();
        expect_value(buffer.at(0), 2 * kSize - 3999, kCanary, "before the target");
        expect_value(buffer.at(2 * kSize), 2 * kSize, kCanary, "behind the region");
    }

    Buffer buffer;
    Pd other_pd;
    Mr mr;
    uint64_t addr;
    uint32_t key;
};

/* RDMAP codes of a Remote Protection Error (RFC 5040 s. 4.8) */
unsigned protection_code(Fault fault) {
    switch (fault) {
    case Fault::UnknownKey:
    case Fault::WrongKeyByte:
    case Fault::DeadKey: return 0x00;
    case Fault::BeforeStart:
    case Fault::BeyondEnd:
    case Fault::FarBeyond: return 0x01;
    case Fault::NoRight: return 0x02;
    case Fault::OtherPd: return 0x03;
    case Fault::Wraps: return 0x04;
    }
    return 0xff;
}

/* Whatever is posted now is accepted and flushed, in order, on both queues. */
void expect_flushes(Endpoint &end) {
    expect_qp_state(end.qp(), IBV_QPS_ERR);
    ibv_sge anything{0x1000, 16, 0};
    end.recv(901, {anything});
    end.recv(902, {});
    end.send(911, {anything});
    end.write(912, {anything}, 0, 0, 0); // unsignalled: flushed all the same
    end.read(913, {anything}, 0, 0);
    expect_wc(end.rcq(), 901, IBV_WC_WR_FLUSH_ERR);
    expect_wc(end.rcq(), 902, IBV_WC_WR_FLUSH_ERR);
    expect_wc(end.scq(), 911, IBV_WC_WR_FLUSH_ERR);
    expect_wc(end.scq(), 912, IBV_WC_WR_FLUSH_ERR);
    expect_wc(end.scq(), 913, IBV_WC_WR_FLUSH_ERR);
}

/* Both ends lost the connection and know it. */
void expect_torn_down(Pair &pair) {
    pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_flushes(pair.c());
    expect_flushes(pair.s());
}

/* Local memory --------------------------------------------------------------- */

class LocalFault : public testing::TestWithParam<Fault> {
  protected:
    Pair pair;
    Region good{pair.c().pd(), kSize};
    Region target{pair.s().pd(), kSize};

    void run(SendWr bad) {
        pair.s().recv(50, {target.all()});
        pair.s().recv(51, {target.all()});
        bad.wr_id = 2;
        pair.c().post(SendWr::write(1, {good.all()}, target.addr(), target.rkey()));
        pair.c().post(bad);
        pair.c().post(SendWr::send(3, {good.all()}, 0));
        pair.c().post(SendWr::write(4, {good.all()}, target.addr(), target.rkey()));
        expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
        expect_wc(pair.c().scq(), 2, IBV_WC_LOC_PROT_ERR);
        expect_wc(pair.c().scq(), 3, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.c().scq(), 4, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.s().rcq(), 50, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.s().rcq(), 51, IBV_WC_WR_FLUSH_ERR);
        expect_torn_down(pair);
    }
};

INSTANTIATE_TEST_SUITE_P(Each, LocalFault, testing::ValuesIn(kFaults), fault_name);

TEST_P(LocalFault, OfASend) {
    if (GetParam() == Fault::NoRight) {
        /* No right is needed to read one's own memory: it works. */
        FaultyMemory memory(pair.c(), GetParam(), 0);
        pair.s().recv(1, {target.all()});
        pair.c().send(2, {memory.sge()});
        expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 4000);
        return;
    }
    FaultyMemory memory(pair.c(), GetParam(), 0);
    run(SendWr::send(0, {memory.sge()}));
}

TEST_P(LocalFault, OfAWrite) {
    if (GetParam() == Fault::NoRight) {
        FaultyMemory memory(pair.c(), GetParam(), 0);
        pair.c().write(2, {memory.sge()}, target.addr(), target.rkey());
        expect_success(pair.c().scq(), 2, IBV_WC_RDMA_WRITE);
        return;
    }
    FaultyMemory memory(pair.c(), GetParam(), 0);
    run(SendWr::write(0, {memory.sge()}, target.addr(), target.rkey()));
}

/* The sink of a read needs local write. */
TEST_P(LocalFault, OfARead) {
    FaultyMemory memory(pair.c(), GetParam(), IBV_ACCESS_REMOTE_READ);
    run(SendWr::read(0, {memory.sge()}, target.addr(), target.rkey()));
    memory.expect_untouched();
}

/* The bad SGE is not the first one. */
TEST_P(LocalFault, InTheSecondSgeOfAReceive) {
    FaultyMemory memory(pair.s(), GetParam(), IBV_ACCESS_REMOTE_READ);
    pair.s().recv(50, {target.sge(0, 10), memory.sge()});
    pair.c().send(1, {good.sge(0, 4010)});
    expect_wc(pair.s().rcq(), 50, IBV_WC_LOC_PROT_ERR);
    expect_success(pair.c().scq(), 1, IBV_WC_SEND);
    expect_torn_down(pair);
    memory.expect_placed_within_bounds(GetParam());
}

TEST_P(LocalFault, InTheSecondSge) {
    if (GetParam() == Fault::NoRight)
        return; // as in OfASend: no fault
    FaultyMemory memory(pair.c(), GetParam(), 0);
    run(SendWr::send(0, {good.sge(0, 10), memory.sge()}));
}

TEST_P(LocalFault, OfAReceive) {
    FaultyMemory memory(pair.s(), GetParam(), IBV_ACCESS_REMOTE_READ);
    pair.s().recv(50, {target.all()});
    pair.s().recv(51, {memory.sge()});
    pair.s().recv(52, {target.all()});
    pair.c().send(1, {good.sge(0, 100)});
    pair.c().send(2, {good.sge(0, 4000)});
    expect_success(pair.s().rcq(), 50, IBV_WC_RECV, 100);
    expect_wc(pair.s().rcq(), 51, IBV_WC_LOC_PROT_ERR);
    expect_wc(pair.s().rcq(), 52, IBV_WC_WR_FLUSH_ERR);
    /* The sender's work was done when its data were on their way. */
    expect_success(pair.c().scq(), 1, IBV_WC_SEND);
    expect_success(pair.c().scq(), 2, IBV_WC_SEND);
    expect_qp_event(pair.c().qp(), kPeerTerminated);
    expect_torn_down(pair);
    memory.expect_placed_within_bounds(GetParam());
}

/* Remote memory -------------------------------------------------------------- */

class RemoteFault : public testing::TestWithParam<Fault> {
  protected:
    Pair pair;
    Region local{pair.c().pd(), kSize};
};

INSTANTIATE_TEST_SUITE_P(Each, RemoteFault, testing::ValuesIn(kFaults), fault_name);

TEST_P(RemoteFault, OfARead) {
    FaultyMemory memory(pair.s(), GetParam(), kRemoteWrite);
    local.buffer.set(0x11);
    pair.s().recv(50, {});
    pair.c().recv(60, {});
    pair.c().read(1, {local.sge(0, 4000)}, memory.addr, memory.key);
    pair.c().read(2, {local.sge(0, 4000)}, memory.buffer.addr(kSize), memory.key, 0);
    ibv_wc wc = expect_wc(pair.c().scq(), 1, IBV_WC_REM_ACCESS_ERR);
    expect_remote_reason(wc, 0, 1, protection_code(GetParam()));
    expect_wc(pair.c().scq(), 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.s().rcq(), 50, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(pair.s().qp(), kAccessViolated);
    expect_qp_event(pair.c().qp(), kPeerTerminated);
    expect_torn_down(pair);
    expect_value(local.at(0), kSize, 0x11, "sink of the read");
}

TEST_P(RemoteFault, OfAWrite) {
    FaultyMemory memory(pair.s(), GetParam(), kRemoteRead);
    fill(local.at(0), kSize, 1);
    pair.s().recv(50, {});
    pair.c().recv(60, {});
    pair.c().write(1, {local.sge(0, 4000)}, memory.addr, memory.key);
    /* Complete when handed to TCP: the error comes back as a Terminate. */
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
    expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.s().rcq(), 50, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(pair.s().qp(), kAccessViolated);
    expect_qp_event(pair.c().qp(), kPeerTerminated);
    expect_torn_down(pair);
    memory.expect_placed_within_bounds(GetParam());
}

/* RFC 5040 s. 5.2.1: only a length other than zero makes the STag matter. */
TEST(RemoteAccess, ZeroLengthNeedsNoKey) {
    Pair pair;
    pair.c().write(1, {}, 0, 0);
    pair.c().read(2, {}, 0x1234, 0x5678);
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, 0);
    expect_works(pair);
}

/*
 * Among good reads the bad one gets the blame.  Those before it have delivered or
 * are flushed: the Terminate may overtake their data.
 */
TEST(RemoteAccess, TheBadReadIsBlamed) {
    Pair pair;
    Region local(pair.c().pd(), kSize);
    Region remote(pair.s().pd(), kSize);
    fill(remote.at(0), kSize, 4);
    std::vector<SendWr> list;
    for (uint64_t i = 0; i < 4; i++)
        list.push_back(
            SendWr::read(i, {local.sge(i * 8192, 8192)}, remote.addr(i * 8192), remote.rkey()));
    list.push_back(
        SendWr::read(4, {local.sge(4 * 8192, 8192)}, remote.addr(kSize - 8191), remote.rkey()));
    list.push_back(SendWr::read(5, {local.sge(5 * 8192, 8192)}, remote.addr(0), remote.rkey()));
    ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
    uint64_t delivered = expect_done_then_flushed(pair.c().scq(), 4);
    expect_pattern(local.at(0), delivered * 8192, 4);
    expect_wc(pair.c().scq(), 4, IBV_WC_REM_ACCESS_ERR);
    expect_wc(pair.c().scq(), 5, IBV_WC_WR_FLUSH_ERR);
    expect_torn_down(pair);
}

/* Writes that TCP has taken wait for the Read in front of them, and share its fate. */
TEST(RemoteAccess, NoSuccessBehindABadRead) {
    Pair pair;
    Region local(pair.c().pd(), 4096);
    Region remote(pair.s().pd(), 4096);
    std::vector<SendWr> list;
    list.push_back(SendWr::read(0, {local.sge(0, 8)}, remote.addr(), remote.rkey() ^ 0x5500));
    for (uint64_t i = 1; i < 4; i++)
        list.push_back(SendWr::write(i, {local.sge(8, 8)}, remote.addr(), remote.rkey()));
    ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
    expect_wc(pair.c().scq(), 0, IBV_WC_REM_ACCESS_ERR);
    for (uint64_t i = 1; i < 4; i++)
        expect_wc(pair.c().scq(), i, IBV_WC_WR_FLUSH_ERR);
    expect_torn_down(pair);
}

/* The region goes while the peer reads from it or writes to it. */
TEST(RemoteAccess, DeregisteredInUse) {
    const size_t kLarge = full_or_quick<size_t>(8 << 20, 1 << 20);
    for (unsigned round = 0; round < full_or_quick(12U, 4U); round++) {
        bool write = round % 2 == 0;
        SCOPED_TRACE(fmt::format("{} {}", round, write ? "write" : "read"));
        Pair pair;
        Region local(pair.c().pd(), kLarge);
        Buffer memory(kLarge);
        Mr mr = register_memory(pair.s().pd(), memory.data(), kLarge);
        for (uint64_t i = 0; i < 4; i++)
            if (write)
                pair.c().write(i, {local.all()}, memory.addr(), mr->rkey);
            else
                pair.c().read(i, {local.all()}, memory.addr(), mr->rkey);
        std::this_thread::sleep_for(std::chrono::microseconds(700 * round));
        mr.reset();
        /* Nothing may be placed after ibv_dereg_mr returned. */
        if (write)
            memory.set(kCanary);
        pair.c().recv(77, {});
        bool failed = false;
        for (uint64_t i = 0; i < 4; i++) {
            ibv_wc wc = next_wc(pair.c().scq());
            EXPECT_EQ(wc.wr_id, i);
            if (wc.status == IBV_WC_SUCCESS) {
                EXPECT_FALSE(failed) << "success behind a failure";
                continue;
            }
            /* A write fails by itself only if its Terminate finds it unfinished. */
            bool blamed = wc.status == IBV_WC_REM_ACCESS_ERR && !failed;
            EXPECT_TRUE(blamed || (wc.status == IBV_WC_WR_FLUSH_ERR && (write || failed)))
                << wc_text(wc);
            failed = true;
        }
        if (!failed) {
            /* All done in time, or as a write not heard of yet. */
            pair.c().write(9, {local.sge(0, 8)}, memory.addr(), 0x42424242);
        }
        expect_wc(pair.c().rcq(), 77, IBV_WC_WR_FLUSH_ERR);
        if (write)
            expect_value(memory.data(), kLarge, kCanary, "deregistered memory");
    }
}

/* Receives ------------------------------------------------------------------- */

TEST(Receive, NonePosted) {
    Pair pair;
    Region from(pair.c().pd(), 4096);
    pair.c().recv(60, {});
    pair.c().send(1, {from.all()});
    expect_success(pair.c().scq(), 1, IBV_WC_SEND);
    expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(pair.c().qp(), kPeerTerminated);
    expect_qp_event(pair.s().qp(), kRequestBad);
    expect_torn_down(pair);
}

TEST(Receive, OneTooFew) {
    Pair pair;
    pair.s().recv(50, {});
    pair.s().recv(51, {});
    for (uint64_t i = 0; i < 3; i++)
        pair.c().send(i, {});
    expect_success(pair.s().rcq(), 50, IBV_WC_RECV, 0);
    expect_success(pair.s().rcq(), 51, IBV_WC_RECV, 0);
    for (uint64_t i = 0; i < 3; i++)
        expect_success(pair.c().scq(), i, IBV_WC_SEND);
    expect_torn_down(pair);
}

TEST(Receive, BufferTooSmall) {
    for (size_t excess : {1, 5000}) {
        SCOPED_TRACE(excess);
        Pair pair;
        Region from(pair.c().pd(), kSize);
        Region to(pair.s().pd(), kSize);
        fill(from.at(0), kSize, 3);
        to.buffer.set(kCanary);
        pair.s().recv(50, {to.sge(100, 3000), to.sge(20000, 1000)});
        pair.s().recv(51, {to.sge(0, 10)});
        pair.c().send(1, {from.sge(0, 4000 + excess)});
        expect_wc(pair.s().rcq(), 50, IBV_WC_LOC_LEN_ERR);
        expect_wc(pair.s().rcq(), 51, IBV_WC_WR_FLUSH_ERR);
        expect_success(pair.c().scq(), 1, IBV_WC_SEND);
        expect_qp_event(pair.c().qp(), kPeerTerminated);
        expect_torn_down(pair);
        expect_value(to.at(0), 100, kCanary, "before the first SGE");
        expect_value(to.at(3100), 16900, kCanary, "between the SGEs");
        expect_value(to.at(21000), kSize - 21000, kCanary, "behind the last SGE");
    }
}

TEST(Receive, EmptyBufferForData) {
    Pair pair;
    Region from(pair.c().pd(), 16);
    pair.s().recv(50, {});
    pair.c().send(1, {from.all()});
    expect_wc(pair.s().rcq(), 50, IBV_WC_LOC_LEN_ERR);
    expect_success(pair.c().scq(), 1, IBV_WC_SEND);
    expect_torn_down(pair);
}

/* Posting --------------------------------------------------------------------- */

TEST(Posting, TooManySges) {
    Pair pair(QpOptions{.send_sge = 2, .recv_sge = 2}, veth4());
    Region memory(pair.c().pd(), 4096);
    SgList list(pair.c().cap().max_send_sge + 1, memory.sge(0, 1));
    EXPECT_EQ(post_send(pair.c().qp(), SendWr::send(1, list)), EINVAL);
    EXPECT_EQ(post_send(pair.c().qp(), SendWr::write(1, list, 0, 0)), EINVAL);
    SgList receive(pair.c().cap().max_recv_sge + 1, memory.sge(0, 1));
    EXPECT_EQ(post_recv(pair.c().qp(), 1, receive), EINVAL);
    expect_works(pair);
}

TEST(Posting, TooMuchInline) {
    Pair pair(QpOptions{.inline_data = 64}, veth4());
    std::vector<uint8_t> data(pair.c().cap().max_inline_data + 1);
    ibv_sge sge{reinterpret_cast<uintptr_t>(data.data()), static_cast<uint32_t>(data.size()), 0};
    EXPECT_EQ(post_send(pair.c().qp(), SendWr::send(1, {sge}, IBV_SEND_INLINE)), EINVAL);
    /* The sum counts, and it may not wrap. */
    ibv_sge half{sge.addr, 0x80000000U, 0};
    EXPECT_EQ(post_send(pair.c().qp(), SendWr::send(1, {half, half, sge}, IBV_SEND_INLINE)),
              EINVAL);
    expect_works(pair);
}

/* iWARP has no inline reads, immediate data or atomics (RFC 5040). */
TEST(Posting, UnsupportedOperations) {
    Pair pair(QpOptions{.inline_data = 64}, veth4());
    Region memory(pair.c().pd(), 4096);
    for (ibv_wr_opcode opcode :
         {IBV_WR_TSO, IBV_WR_DRIVER1, IBV_WR_ATOMIC_WRITE, static_cast<ibv_wr_opcode>(1000)}) {
        SendWr wr = SendWr::send(1, {memory.sge(0, 8)});
        wr.opcode = opcode;
        int error = post_send(pair.c().qp(), wr);
        EXPECT_TRUE(error == EINVAL || error == EOPNOTSUPP)
            << opcode << " gave " << errno_name(error);
    }
    EXPECT_EQ(post_send(pair.c().qp(), SendWr::read(1, {memory.sge(0, 8)}, 0, 0, IBV_SEND_INLINE)),
              EINVAL);
    expect_works(pair);
}

/* ibv_post_send(3): processing stops at the first failure, named by bad_wr. */
TEST(Posting, ListStopsAtTheBadOne) {
    Pair pair(QpOptions{.send_sge = 1}, veth4());
    Region from(pair.c().pd(), 4096);
    Region to(pair.s().pd(), 4096);
    fill(from.at(0), 4096, 1);
    SgList too_many(pair.c().cap().max_send_sge + 1, from.sge(0, 1));
    std::vector<SendWr> list{SendWr::write(1, {from.sge(0, 100)}, to.addr(0), to.rkey()),
                             SendWr::write(2, {from.sge(100, 100)}, to.addr(100), to.rkey()),
                             SendWr::send(3, too_many),
                             SendWr::write(4, {from.sge(0, 100)}, to.addr(300), to.rkey())};
    size_t bad = 99;
    EXPECT_EQ(post_send_list(pair.c().qp(), list, &bad), EINVAL);
    EXPECT_EQ(bad, 2U);
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_WRITE);
    expect_works(pair);
    expect_pattern(to.at(0), 200, 1);
    expect_value(to.at(200), 200, 0);
    expect_quiet(pair.c().scq());
}

TEST(Posting, ReceiveQueueFull) {
    Pair pair(QpOptions{.recv_wr = 5}, veth4());
    uint32_t limit = pair.s().cap().max_recv_wr;
    for (uint32_t i = 0; i < limit; i++)
        ASSERT_EQ(post_recv(pair.s().qp(), i, {}), 0) << i;
    EXPECT_EQ(post_recv(pair.s().qp(), limit, {}), ENOMEM);
    /* One consumed: there is room for one again. */
    pair.c().send(1, {});
    expect_success(pair.s().rcq(), 0, IBV_WC_RECV, 0);
    EXPECT_EQ(post_recv(pair.s().qp(), limit, {}), 0);
    EXPECT_EQ(post_recv(pair.s().qp(), limit, {}), ENOMEM);
}

/* Error state ------------------------------------------------------------------ */

TEST(ErrorState, ByModify) {
    Pair pair;
    Region local(pair.c().pd(), kSize);
    for (uint64_t i = 0; i < 5; i++)
        pair.c().recv(i, {local.all()});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(pair.c().qp(), &attr, IBV_QP_STATE), 0);
    for (uint64_t i = 0; i < 5; i++)
        expect_wc(pair.c().rcq(), i, IBV_WC_WR_FLUSH_ERR);
    expect_torn_down(pair);
}

/* Signalled or not, everything behind the failure is flushed once, in order. */
TEST(ErrorState, FlushIsCompleteAndOrdered) {
    constexpr uint64_t kCount = 50;
    Pair pair(QpOptions{.send_wr = 64, .recv_wr = 64}, veth4());
    Region local(pair.c().pd(), kSize);
    for (uint64_t i = 0; i < kCount; i++)
        pair.c().recv(i, {local.all()});
    std::vector<SendWr> list{SendWr::send(1000, {{local.addr(), 10, 0x99999999}})};
    for (uint64_t i = 0; i < kCount; i++) {
        SendWr wr = i % 3 == 0   ? SendWr::send(i, {local.all()})
                    : i % 3 == 1 ? SendWr::write(i, {local.all()}, local.addr(), 1)
                                 : SendWr::read(i, {local.all()}, local.addr(), 1);
        wr.flags = i % 2 == 0 ? IBV_SEND_SIGNALED : 0;
        list.push_back(wr);
    }
    ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
    expect_wc(pair.c().scq(), 1000, IBV_WC_LOC_PROT_ERR);
    for (uint64_t i = 0; i < kCount; i++)
        expect_wc(pair.c().scq(), i, IBV_WC_WR_FLUSH_ERR);
    for (uint64_t i = 0; i < kCount; i++)
        expect_wc(pair.c().rcq(), i, IBV_WC_WR_FLUSH_ERR);
    expect_quiet(pair.c().scq());
    expect_quiet(pair.c().rcq());
    expect_torn_down(pair);
}

/* One QP's error leaves the others of the device alone. */
TEST(ErrorState, StaysWithItsQp) {
    Pair bystander;
    {
        Pair pair;
        Region local(pair.c().pd(), 64);
        pair.c().read(1, {local.all()}, 0, 0x12345678);
        expect_wc(pair.c().scq(), 1, IBV_WC_REM_ACCESS_ERR);
    }
    expect_works(bystander);
}

/* Destruction in flight ---------------------------------------------------------- */

enum class InFlight { Sends, Writes, Reads, PeerReads, PeerWrites };

class DestroyInFlight : public testing::TestWithParam<InFlight> {};

INSTANTIATE_TEST_SUITE_P(Each, DestroyInFlight,
                         testing::Values(InFlight::Sends, InFlight::Writes, InFlight::Reads,
                                         InFlight::PeerReads, InFlight::PeerWrites),
                         [](const testing::TestParamInfo<InFlight> &info) -> std::string {
                             switch (info.param) {
                             case InFlight::Sends: return "Sends";
                             case InFlight::Writes: return "Writes";
                             case InFlight::Reads: return "Reads";
                             case InFlight::PeerReads: return "PeerReads";
                             case InFlight::PeerWrites: return "PeerWrites";
                             }
                             return "";
                         });

TEST_P(DestroyInFlight, Qp) {
    const size_t kLarge = full_or_quick<size_t>(1 << 20, 128 << 10);
    constexpr uint64_t kCount = 16;
    for (unsigned round = 0; round < full_or_quick(10U, 4U); round++) {
        SCOPED_TRACE(round);
        Pair pair;
        Region mine(pair.c().pd(), kLarge);
        Region theirs(pair.s().pd(), kLarge);
        Endpoint &active = GetParam() == InFlight::PeerReads || GetParam() == InFlight::PeerWrites
                               ? pair.s()
                               : pair.c();
        Region &local = &active == &pair.c() ? mine : theirs;
        Region &remote = &active == &pair.c() ? theirs : mine;
        for (uint64_t i = 0; i < kCount; i++) {
            switch (GetParam()) {
            case InFlight::Sends:
                pair.s().recv(i, {theirs.all()});
                active.send(i, {local.all()});
                break;
            case InFlight::Writes:
            case InFlight::PeerWrites:
                active.write(i, {local.all()}, remote.addr(), remote.rkey());
                break;
            case InFlight::Reads:
            case InFlight::PeerReads:
                active.read(i, {local.all()}, remote.addr(), remote.rkey());
                break;
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(splitmix(round) % 3000));
        /* The client's QP and memory go, whatever is going on. */
        pair.c().destroy_qp();
        mine.mr.reset();
        mine.buffer.set(kCanary);

        pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
        if (&active == &pair.s())
            expect_done_then_flushed(pair.s().scq(), kCount);
        else if (GetParam() == InFlight::Sends)
            expect_done_then_flushed(pair.s().rcq(), kCount);
        expect_flushes(pair.s());
        expect_value(mine.at(0), kLarge, kCanary, "memory after its deregistration");
    }
    expect_route_works();
}

/* Hostile queue memory -------------------------------------------------------------- */

/*
 * The rings of a new connection's QPs and CQs.  The mappings that are new with
 * it belong to it.
 */
struct ExposedPair {
    ExposedPair()
        : before(device_mappings()),
          pair(std::make_unique<Pair>(QpOptions{.inline_data = 64}, own4())) {
        std::set<Mapping> after = device_mappings();
        std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                            std::back_inserter(rings));
        require(!rings.empty(), "found the rings in /proc/self/maps");
    }

    /* SQEs as the driver will read them: garbage with a plausible header. */
    void scribble(Random &random) {
        for (const Mapping &ring : rings) {
            if (random.below(3) == 0)
                continue;
            size_t from = random.below(4) == 0 ? 0 : SWP_RING_DATA_OFF;
            for (size_t at = from; at + 8 <= ring.size; at += 8)
                if (random.below(2) == 0) {
                    uint64_t value = random.next();
                    std::memcpy(ring.start + at, &value, 8);
                }
            /* What gets past the first look, whichever of these are send queues. */
            for (size_t at = SWP_RING_DATA_OFF; at + 128 <= ring.size; at += 64)
                if (random.below(2) == 0) {
                    auto *sqe = reinterpret_cast<swp_sqe *>(ring.start + at);
                    sqe->opcode = static_cast<uint8_t>(random.below(SWP_OP_USER_MAX + 1));
                    sqe->flags = static_cast<uint8_t>(random.below(16));
                    sqe->num_sge = static_cast<uint16_t>(random.below(3));
                    sqe->inline_len = static_cast<uint32_t>(random.below(65));
                    auto *sge = reinterpret_cast<swp_sge *>(sqe + 1);
                    sge->length = static_cast<uint32_t>(random.below(17));
                }
            /* Producer index: near or anywhere. */
            if (random.below(2) == 0) {
                auto *ctrl = reinterpret_cast<swp_ring_ctrl *>(ring.start);
                ctrl->prod = random.below(2) == 0
                                 ? ctrl->prod + static_cast<uint32_t>(random.below(9))
                                 : static_cast<uint32_t>(random.next());
                ctrl->cons = static_cast<uint32_t>(random.next());
            }
        }
    }

    std::set<Mapping> before;
    std::unique_ptr<Pair> pair;
    std::vector<Mapping> rings;
};

void poke(Endpoint &end) {
    ring_doorbell(end.qp());
    /* The library reads the rings too: what it answers does not matter. */
    ibv_wc wc[4];
    ibv_poll_cq(end.scq(), 4, wc);
    ibv_poll_cq(end.rcq(), 4, wc);
}

/*
 * Whatever stands in a ring, the machine lives and the device works.  The
 * harness looks at the kernel's log.
 */
TEST(HostileRings, RandomGarbage) {
    for (uint64_t seed = 0; seed < full_or_quick<uint64_t>(60, 15); seed++) {
        Random random(seed);
        ExposedPair exposed;
        for (int round = 0; round < 4; round++) {
            exposed.scribble(random);
            poke(exposed.pair->c());
            poke(exposed.pair->s());
        }
    }
    expect_route_works(own4());
    expect_route_works();
}

/*
 * Requests that the library would never post, one at a time in a valid ring.
 * Each must end in a failed completion and the error state; none may be taken
 * for a request of the kernel's own.
 */
TEST(HostileRings, RequestsThatOnlyTheKernelMayPost) {
    struct Case {
        const char *what;
        void (*spoil)(swp_sqe *);
        ibv_wc_status status = IBV_WC_LOC_QP_OP_ERR;
    };
    const Case cases[] = {
        {"REG_MR", [](swp_sqe *sqe) { sqe->opcode = SWP_OP_REG_MR; }},
        {"READ_INV", [](swp_sqe *sqe) { sqe->opcode = SWP_OP_READ_INV; }},
        {"LOCAL_INV of nothing",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_LOCAL_INV;
             sqe->imm_inv = 0x41414141;
         }},
        {"LOCAL_INV with SGEs",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_LOCAL_INV;
             sqe->num_sge = 1;
         }},
        {"BIND_MW of nothing", [](swp_sqe *sqe) { sqe->opcode = SWP_OP_BIND_MW; },
         IBV_WC_MW_BIND_ERR},
        {"BIND_MW with SGEs",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_BIND_MW;
             sqe->num_sge = 2;
         }},
        {"FETCH_ADD without an SGE",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_FETCH_ADD;
             sqe->num_sge = 0;
         }},
        {"CMP_SWAP with two",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_CMP_SWAP;
             sqe->num_sge = 2;
         }},
        {"CMP_SWAP inline",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_CMP_SWAP;
             sqe->flags |= SWP_WQE_INLINE;
             sqe->num_sge = 0;
             sqe->inline_len = 8;
         }},
        {"FETCH_ADD of a gigabyte",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_FETCH_ADD;
             sqe->num_sge = 1;
         },
         IBV_WC_LOC_LEN_ERR},
        {"SEND_IMM with data",
         [](swp_sqe *sqe) {
             sqe->opcode = SWP_OP_SEND_IMM;
             sqe->num_sge = 1;
         },
         IBV_WC_LOC_LEN_ERR},
        {"RECV", [](swp_sqe *sqe) { sqe->opcode = SWP_OP_RECV; }},
        {"opcode 255", [](swp_sqe *sqe) { sqe->opcode = 255; }},
        {"num_sge 65535", [](swp_sqe *sqe) { sqe->num_sge = 0xffff; }},
        {"num_sge beyond the QP's", [](swp_sqe *sqe) { sqe->num_sge = 33; }},
        {"inline_len 4 GiB",
         [](swp_sqe *sqe) {
             sqe->flags |= SWP_WQE_INLINE;
             sqe->num_sge = 0;
             sqe->inline_len = ~0U;
         }},
        {"inline_len beyond the QP's",
         [](swp_sqe *sqe) {
             sqe->flags |= SWP_WQE_INLINE;
             sqe->num_sge = 0;
             sqe->inline_len = 100000;
         }},
    };
    for (const Case &c : cases) {
        SCOPED_TRACE(c.what);
        ExposedPair exposed;
        Endpoint &end = exposed.pair->c();
        Region memory(end.pd(), 4096);

        /* Two good requests, unsignalled, show where the slots are. */
        constexpr uint64_t kMark = 0x7d3a11c5e6f70800;
        for (uint64_t i = 0; i < 2; i++)
            end.write(kMark + i, {}, 0x1234, 0x5678, 0);
        swp_ring_ctrl *ctrl = nullptr;
        uint8_t *slots[2] = {};
        for (const Mapping &ring : exposed.rings)
            for (size_t at = SWP_RING_DATA_OFF; at + sizeof(swp_sqe) <= ring.size; at += 64) {
                const auto *sqe = reinterpret_cast<swp_sqe *>(ring.start + at);
                if (sqe->rkey != 0x5678 || (sqe->wr_id & ~uint64_t{1}) != kMark)
                    continue;
                ctrl = reinterpret_cast<swp_ring_ctrl *>(ring.start);
                slots[sqe->wr_id & 1] = ring.start + at;
            }
        ASSERT_NE(ctrl, nullptr) << "no send queue with these requests";
        ASSERT_TRUE(slots[0] != nullptr && slots[1] > slots[0]);
        ASSERT_EQ(ctrl->prod, 2U);

        uint8_t *third = slots[1] + (slots[1] - slots[0]);
        auto *sqe = reinterpret_cast<swp_sqe *>(third);
        std::memcpy(third, slots[1], sizeof(*sqe));
        /* Whatever follows the header would be SGEs or inline data. */
        std::fill_n(third + sizeof(*sqe), 64 - sizeof(*sqe), 0x41);
        sqe->wr_id = 77;
        sqe->flags = SWP_WQE_SIGNALED;
        c.spoil(sqe);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        std::atomic_ref(ctrl->prod).store(3);
        ring_doorbell(end.qp());

        expect_wc(end.scq(), 77, c.status);
        expect_qp_state(end.qp(), IBV_QPS_ERR);
        exposed.pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
    }
    expect_route_works();
}

/* One shared receive queue of two connections, whose ring the program spoils. */
struct ExposedSrq {
    ExposedSrq() : before(device_mappings()), srq(create_srq(pd.get(), 16, 1)) {
        for (const Mapping &ring : device_mappings())
            if (!before.count(ring))
                ctrl = reinterpret_cast<swp_ring_ctrl *>(ring.start);
        require(ctrl != nullptr, "found the ring in /proc/self/maps");
        PairOptions options;
        options.server.pd = pd.get();
        options.server.srq = srq.get();
        for (auto &pair : pairs)
            pair = std::make_unique<Pair>(options);
    }
    ~ExposedSrq() { forget_async(srq.get()); }
    swp_rqe *first() const {
        return reinterpret_cast<swp_rqe *>(reinterpret_cast<uint8_t *>(ctrl) + SWP_RING_DATA_OFF);
    }

    Pd pd{alloc_pd(cm_context(config().peer_dev))};
    std::set<Mapping> before;
    Srq srq;
    swp_ring_ctrl *ctrl = nullptr;
    std::unique_ptr<Pair> pairs[2];
};

TEST(HostileRings, SharedRequestOfTooManySges) {
    ExposedSrq exposed;
    ASSERT_EQ(post_srq_recv(exposed.srq.get(), 8, {}), 0);
    exposed.first()->num_sge = ~0U;
    ASSERT_EQ(post_srq_recv(exposed.srq.get(), 9, {}), 0);
    exposed.pairs[0]->c().send(1, {});
    expect_wc(exposed.pairs[0]->s().rcq(), 8, IBV_WC_LOC_QP_OP_ERR);
    exposed.pairs[0]->s().expect(RDMA_CM_EVENT_DISCONNECTED);
    /* The next request is the next QP's. */
    exposed.pairs[1]->c().send(1, {});
    expect_success(exposed.pairs[1]->s().rcq(), 9, IBV_WC_RECV, 0);
}

/* A count that cannot be ends the queue, with one event, and what uses it. */
TEST(HostileRings, SharedQueueOfTooManyRequests) {
    ExposedSrq exposed;
    std::atomic_ref(exposed.ctrl->prod).store(100000);
    for (auto &pair : exposed.pairs) {
        pair->c().send(1, {});
        pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
        expect_qp_state(pair->s().qp(), IBV_QPS_ERR);
    }
    expect_srq_event(exposed.srq.get(), IBV_EVENT_SRQ_ERR);
    ibv_srq *srq = exposed.srq.get();
    EXPECT_FALSE(wait_async(
        srq->context, [&](const AsyncEvent &e) { return e.element == srq; },
        Deadline(milliseconds(30))));
    expect_route_works();
}

/*
 * Resizes without the library, which would not let anybody post meanwhile.  Returns 0
 * or errno.  @words: how much of the request's own part is sent.
 */
int resize_by_hand(const ibv_srq *srq, uint32_t max_wr, void *response, unsigned words = 2) {
    ib_uverbs_cmd_hdr header{};
    ib_uverbs_modify_srq body{};
    swp_modify_srq_req request{};
    std::array<std::byte, sizeof(header) + sizeof(body) + sizeof(request)> command;
    size_t length = sizeof(header) + sizeof(body) + 4 * words;
    header.command = IB_USER_VERBS_CMD_MODIFY_SRQ;
    header.in_words = static_cast<uint16_t>(length / 4);
    body.srq_handle = srq->handle;
    body.attr_mask = IBV_SRQ_MAX_WR;
    body.max_wr = max_wr;
    request.resp_addr = reinterpret_cast<uintptr_t>(response);
    std::memcpy(command.data(), &header, sizeof(header));
    std::memcpy(command.data() + sizeof(header), &body, sizeof(body));
    std::memcpy(command.data() + sizeof(header) + sizeof(body), &request, sizeof(request));
    ssize_t written = write(srq->context->cmd_fd, command.data(), length);
    return written == static_cast<ssize_t>(length) ? 0 : errno;
}

/* A provider that could not follow is refused, and nothing changes then. */
TEST(HostileRings, ResizedWithoutPlaceForTheAnswer) {
    ExposedSrq exposed;
    ibv_srq *srq = exposed.srq.get();
    swp_modify_srq_resp response{};
    EXPECT_EQ(resize_by_hand(srq, 100, &response, 0), EOPNOTSUPP);
    EXPECT_EQ(resize_by_hand(srq, 100, &response, 1), EOPNOTSUPP);
    EXPECT_EQ(resize_by_hand(srq, 100, nullptr), EFAULT);
    EXPECT_EQ(resize_by_hand(srq, 100, reinterpret_cast<void *>(0xffff888000000000)), EFAULT);
    Buffer unreadable(4096, PROT_READ);
    EXPECT_EQ(resize_by_hand(srq, 100, unreadable.data()), EFAULT);
    ibv_srq_attr attr{};
    ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
    EXPECT_EQ(attr.max_wr, 16U);
    for (uint64_t i = 0; i < 4; i++) {
        ASSERT_EQ(post_srq_recv(srq, i, {}), 0);
        exposed.pairs[i % 2]->c().send(i, {});
        expect_success(exposed.pairs[i % 2]->s().rcq(), i, IBV_WC_RECV, 0);
    }
}

/* More requests than the ring has room for is nothing that could be moved. */
TEST(HostileRings, ResizedWithTooManyRequests) {
    ExposedSrq exposed;
    for (uint32_t prod : {17U, 1000U, 0x80000000U, ~0U}) {
        std::atomic_ref(exposed.ctrl->prod).store(prod);
        for (uint32_t max_wr : {1U, 16U, 32768U}) {
            swp_modify_srq_resp response{};
            EXPECT_EQ(resize_by_hand(exposed.srq.get(), max_wr, &response), EINVAL);
        }
    }
    std::atomic_ref(exposed.ctrl->prod).store(0);
    ASSERT_EQ(post_srq_recv(exposed.srq.get(), 8, {}), 0);
    exposed.pairs[0]->c().send(1, {});
    expect_success(exposed.pairs[0]->s().rcq(), 8, IBV_WC_RECV, 0);
}

/*
 * Threads resize one queue at the same time, others write nonsense into each ring
 * that it ever had or is about to get, and messages come in.
 */
TEST(HostileRings, ResizedWhileSpoiled) {
    constexpr size_t kKept = 6;
    for (uint64_t seed = 0; seed < full_or_quick<uint64_t>(25, 6); seed++) {
        SCOPED_TRACE(seed);
        ExposedSrq exposed;
        const ibv_srq *srq = exposed.srq.get();
        std::atomic<bool> stop{false};
        std::array<swp_modify_srq_resp, 2> responses{};
        std::vector<std::thread> threads;
        for (uint64_t r = 0; r < responses.size(); r++)
            threads.emplace_back([&, r] {
                Random random(2 * seed + r);
                for (unsigned i = 0; !stop && i < 400; i++)
                    resize_by_hand(srq, 1 + static_cast<uint32_t>(random.below(100)),
                                   &responses[r]);
            });
        threads.emplace_back([&] {
            Random random(seed + 1000);
            std::deque<Mapping> rings;
            std::set<uint64_t> known;
            while (!stop) {
                for (swp_modify_srq_resp &response : responses) {
                    uint64_t key = std::atomic_ref(response.ring_key).load();
                    if (!known.insert(key).second)
                        continue;
                    void *at = mmap(nullptr, 4096 * 2, PROT_READ | PROT_WRITE, MAP_SHARED,
                                    srq->context->cmd_fd, static_cast<off_t>(key));
                    if (at == MAP_FAILED)
                        continue; /* gone, or of another size */
                    rings.push_back({static_cast<uint8_t *>(at), 4096 * 2});
                    if (rings.size() > kKept) {
                        munmap(rings.front().start, rings.front().size);
                        rings.pop_front();
                    }
                }
                for (const Mapping &ring : rings) {
                    auto *ctrl = reinterpret_cast<swp_ring_ctrl *>(ring.start);
                    /* mostly what passes the first look */
                    uint32_t prod = ctrl->cons + static_cast<uint32_t>(random.below(20));
                    if (random.below(50) == 0)
                        prod = static_cast<uint32_t>(random.next());
                    std::atomic_ref(ctrl->prod).store(prod);
                    if (random.below(8) == 0)
                        ctrl->cons = static_cast<uint32_t>(random.next());
                    for (size_t at = SWP_RING_DATA_OFF; at + 32 <= ring.size; at += 32) {
                        auto *rqe = reinterpret_cast<swp_rqe *>(ring.start + at);
                        rqe->num_sge = random.below(4) == 0
                                           ? static_cast<uint32_t>(random.next())
                                           : static_cast<uint32_t>(random.below(2));
                        rqe->wr_id = random.next();
                    }
                }
            }
            for (const Mapping &ring : rings)
                munmap(ring.start, ring.size);
        });
        /* They fail sooner or later; what they complete with does not matter. */
        for (unsigned i = 0; i < 200; i++)
            for (auto &pair : exposed.pairs) {
                ibv_send_wr wr{}, *bad = nullptr;
                wr.opcode = IBV_WR_SEND;
                wr.send_flags = IBV_SEND_SIGNALED;
                (void)ibv_post_send(pair->c().qp(), &wr, &bad);
                try_wc(pair->c().scq());
                try_wc(pair->s().rcq());
            }
        stop = true;
        for (std::thread &thread : threads)
            thread.join();
    }
    expect_route_works();
}

} // namespace
