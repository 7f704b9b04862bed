// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Every octet of every operation, in every size and alignment that matters. */
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

enum class Op { Send, SendSolicited, Write, Read };

const char *op_name(Op op) {
    switch (op) {
    case Op::Send: return "send";
    case Op::SendSolicited: return "solicited send";
    case Op::Write: return "write";
    case Op::Read: return "read";
    }
    return "?";
}

constexpr size_t kGuard = 64;
constexpr uint8_t kCanary = 0xa5;
constexpr uint8_t kOther = 0x5a;

/* Cuts a window into so many pieces, of uneven length, all of them used. */
SgList pieces(const Region &region, size_t offset, size_t length, size_t count) {
    if (count <= 1)
        return {region.sge(offset, length)};
    SgList list;
    size_t done = 0;
    Random random(length * 131 + count);
    for (size_t i = 0; i < count; i++) {
        size_t left = length - done;
        size_t part =
            i + 1 == count ? left : std::min<uint64_t>(left, random.below(2 * length / count + 1));
        list.push_back(region.sge(offset + done, part));
        done += part;
    }
    return list;
}

/*
 * A connection with memory at both ends, and one verified transfer at a time
 * over it.  Data always flow from the region `from` to the region `to`; for a
 * read the requester is the end with `to`.
 */
class Transfer {
  public:
    Transfer(size_t size, const QpOptions &options = {}, const Route &route = veth4())
        : pair(options, route), from(pair.c().pd(), size), to(pair.s().pd(), size),
          note_c(pair.c().pd(), 64), note_s(pair.s().pd(), 64) {}

    /* Reads need the data's source at the responder: run them backwards. */
    void run(Op op, size_t length, size_t from_at, size_t to_at, size_t from_sges = 1,
             size_t to_sges = 1, unsigned flags = 0) {
        SCOPED_TRACE(fmt::format("{} of {} octets, {:#x} to {:#x}, {} and {} SGEs", op_name(op),
                                 length, from_at, to_at, from_sges, to_sges));
        seed_++;
        fill(from.at(from_at), length, seed_);
        size_t guard = std::min(kGuard, to_at);
        size_t behind = std::min(kGuard, to.buffer.size() - to_at - length);
        std::fill_n(to.at(to_at - guard), guard + length + behind, kCanary);
        /* So that a target left alone cannot look right by chance. */
        std::fill_n(to.at(to_at), length, kOther);

        SgList source =
            length == 0 && from_sges == 0 ? SgList{} : pieces(from, from_at, length, from_sges);
        SgList sink = length == 0 && to_sges == 0 ? SgList{} : pieces(to, to_at, length, to_sges);
        Endpoint &c = pair.c();
        Endpoint &s = pair.s();
        switch (op) {
        case Op::Send:
        case Op::SendSolicited:
            s.recv(seed_, sink);
            c.send(seed_ | kMark, source,
                   IBV_SEND_SIGNALED | flags | (op == Op::SendSolicited ? IBV_SEND_SOLICITED : 0));
            expect_success(s.rcq(), seed_, IBV_WC_RECV, static_cast<int64_t>(length));
            expect_success(c.scq(), seed_ | kMark, IBV_WC_SEND);
            break;
        case Op::Write:
            /* Only a later message tells the other side of a write. */
            s.recv(seed_, {});
            c.write(seed_ | kMark, source, to.addr(to_at), to.rkey(), IBV_SEND_SIGNALED | flags);
            c.send(seed_, {}, 0);
            expect_success(s.rcq(), seed_, IBV_WC_RECV, 0);
            expect_success(c.scq(), seed_ | kMark, IBV_WC_RDMA_WRITE);
            break;
        case Op::Read:
            s.read(seed_ | kMark, sink, from.addr(from_at), from.rkey(), IBV_SEND_SIGNALED | flags);
            expect_success(s.scq(), seed_ | kMark, IBV_WC_RDMA_READ, static_cast<int64_t>(length));
            break;
        }
        expect_pattern(to.at(to_at), length, seed_, 0, "data");
        expect_value(to.at(to_at - guard), guard, kCanary, "before the target");
        expect_value(to.at(to_at + length), behind, kCanary, "behind the target");
    }

    Pair pair;
    Region from;
    Region to;
    Region note_c;
    Region note_s;

  private:
    static constexpr uint64_t kMark = uint64_t{1} << 63;
    uint64_t seed_ = 0;
};

class Data : public testing::TestWithParam<Op> {};

INSTANTIATE_TEST_SUITE_P(Each, Data,
                         testing::Values(Op::Send, Op::SendSolicited, Op::Write, Op::Read),
                         [](const testing::TestParamInfo<Op> &info) -> std::string {
                             switch (info.param) {
                             case Op::Send: return "Send";
                             case Op::SendSolicited: return "SendSolicited";
                             case Op::Write: return "Write";
                             case Op::Read: return "Read";
                             }
                             return "";
                         });

TEST_P(Data, SmallLengths) {
    Transfer t(64 * 1024);
    for (size_t length = 0; length <= full_or_quick<size_t>(260, 70); length++)
        t.run(GetParam(), length, 4096 + length % 7, 4096 + length % 5);
}

TEST_P(Data, ZeroLengthWithAndWithoutSges) {
    Transfer t(64 * 1024);
    for (int i = 0; i < 3; i++) {
        t.run(GetParam(), 0, 100, 100, 0, 0);
        t.run(GetParam(), 0, 100, 100, 1, 1);
        t.run(GetParam(), 0, 100, 100, 3, 1);
        t.run(GetParam(), 5, 100, 100);
    }
}

/* Lengths around multiples of what fits into a TCP segment, on both sides. */
TEST_P(Data, LengthsAroundTheSegmentSize) {
    Transfer t(1 << 20);
    std::vector<size_t> around;
    for (size_t multiple : {1, 2, 3, 4, 7, 11, 44, 45, 46})
        for (size_t payload : {1424, 1428, 1430, 1434, 1448, 1460})
            around.push_back(multiple * payload);
    for (size_t power = 9; power <= 18; power++)
        around.push_back(size_t{1} << power);
    int width = full_or_quick(3, 1);
    for (size_t middle : around)
        for (int off = -width; off <= width; off++)
            t.run(GetParam(), middle + static_cast<size_t>(off), 8192 + middle % 64,
                  12288 + middle % 31);
}

TEST_P(Data, EveryAlignment) {
    Transfer t(64 * 1024);
    size_t step = full_or_quick<size_t>(1, 3);
    for (size_t from = 0; from < 16; from += step)
        for (size_t to = 0; to < 16; to += step)
            t.run(GetParam(), 3001 + from + 2 * to, 4096 + from, 8192 - 8 + to);
}

TEST_P(Data, PageCrossing) {
    Transfer t(256 * 1024);
    for (size_t before : {1, 2, 3, 7, 64, 4095})
        for (size_t after : {1, 2, 5, 63, 4096, 4097, 20000}) {
            t.run(GetParam(), before + after, 3 * 4096 - before, 5 * 4096 - before);
            t.run(GetParam(), before + after, 3 * 4096, 5 * 4096 - before);
            t.run(GetParam(), before + after, 3 * 4096 - before, 5 * 4096);
        }
}

/* The target touches both ends of its registration. */
TEST_P(Data, WholeRegion) {
    for (size_t size : {1, 4096, 4097, 65536, 100001}) {
        Transfer t(size);
        t.run(GetParam(), size, 0, 0);
    }
}

TEST_P(Data, ManySges) {
    QpOptions options{.send_wr = 32, .recv_wr = 32, .send_sge = 32, .recv_sge = 32};
    Transfer t(1 << 20, options);
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(t.pair.c().context(), &attr), 0);
    size_t from_limit = GetParam() == Op::Read ? 1 : 32;
    size_t to_limit = GetParam() == Op::Read    ? static_cast<size_t>(attr.max_sge_rd)
                      : GetParam() == Op::Write ? 1
                                                : 32;
    if (GetParam() == Op::Read) {
        /* Sinks of several SGEs are part of the device's promise. */
        ASSERT_GE(to_limit, 2U);
    }
    for (size_t length : {32, 33, 1000, 1448, 4096, 10007, 65536, 300001})
        for (size_t sges : {1, 2, 3, 4, 5, 16, 31, 32})
            t.run(GetParam(), length, 4096 + sges, 8192 + length % 13, std::min(sges, from_limit),
                  std::min(sges, to_limit));
}

/* Zero-length SGEs between others, octet-sized SGEs, SGEs of different MRs. */
TEST_P(Data, OddSgLists) {
    QpOptions options{.send_sge = 32, .recv_sge = 32};
    Transfer t(64 * 1024, options);
    Endpoint &requester = GetParam() == Op::Read ? t.pair.s() : t.pair.c();
    const Region &local = GetParam() == Op::Read ? t.to : t.from;
    const Region &remote = GetParam() == Op::Read ? t.from : t.to;
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(requester.context(), &attr), 0);
    size_t limit = GetParam() == Op::Read ? static_cast<size_t>(attr.max_sge_rd) : 32;

    /* 5, 0, 1, 0, 7, 1, 1, 2000 octets, from the local region's odd places */
    SgList list{local.sge(11, 5),  local.sge(100, 0), local.sge(201, 1), local.sge(0, 0),
                local.sge(303, 7), local.sge(399, 1), local.sge(400, 1), local.sge(4001, 2000)};
    list.resize(std::min(list.size(), limit));
    size_t length = 0;
    for (const ibv_sge &sge : list) {
        if (GetParam() != Op::Read)
            fill(reinterpret_cast<void *>(sge.addr), sge.length, 7, length);
        length += sge.length;
    }
    if (GetParam() == Op::Read) {
        t.to.buffer.set(0);
        fill(t.from.at(77), length, 7);
        requester.read(1, list, remote.addr(77), remote.rkey());
        expect_success(requester.scq(), 1, IBV_WC_RDMA_READ, static_cast<int64_t>(length));
        size_t done = 0;
        for (const ibv_sge &sge : list) {
            expect_pattern(reinterpret_cast<void *>(sge.addr), sge.length, 7, done);
            done += sge.length;
        }
        return;
    }
    t.to.buffer.set(0);
    if (GetParam() == Op::Write) {
        t.pair.s().recv(1, {});
        requester.write(2, list, remote.addr(77), remote.rkey());
        requester.send(3, {});
        expect_success(t.pair.s().rcq(), 1, IBV_WC_RECV, 0);
        expect_success(requester.scq(), 2, IBV_WC_RDMA_WRITE);
    } else {
        t.pair.s().recv(1, {remote.sge(77, 5), remote.sge(500, 0), remote.sge(82, 8000)});
        requester.send(2, list);
        expect_success(t.pair.s().rcq(), 1, IBV_WC_RECV, static_cast<int64_t>(length));
        expect_success(requester.scq(), 2, IBV_WC_SEND);
    }
    expect_pattern(t.to.at(77), length, 7);
    expect_value(t.to.at(77 + length), 100, 0, "behind the target");
}

TEST_P(Data, LargeMessages) {
    const auto kLarge = full_or_quick<size_t>(64 << 20, 16 << 20);
    Transfer t(kLarge + 8192);
    t.run(GetParam(), kLarge, 0, 0);
    t.run(GetParam(), (4 << 20) + 3, 4093, 1);
    t.run(GetParam(), (1 << 20) - 1, 1, 4095);
}

/* Inline data are taken from the caller's memory at once, registered or not. */
TEST(Inline, EveryLength) {
    QpOptions options{.send_sge = 4, .inline_data = 512};
    Pair pair(options, veth4());
    Endpoint &c = pair.c();
    Endpoint &s = pair.s();
    Region to(s.pd(), 4096);

    for (size_t length = 0; length <= 512; length += full_or_quick<size_t>(1, 7)) {
        SCOPED_TRACE(length);
        for (bool write : {false, true}) {
            uint8_t stack[512];
            fill(stack, length, length + (write ? 1000 : 0));
            to.buffer.set(kCanary);
            /* An lkey is not looked at. */
            ibv_sge sge{reinterpret_cast<uintptr_t>(stack), static_cast<uint32_t>(length),
                        0xdeadbeef};
            constexpr unsigned kFlags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
            if (write) {
                s.recv(length, {});
                c.write(1, {sge}, to.addr(33), to.rkey(), kFlags);
                c.send(2, {}, 0);
            } else {
                s.recv(length, {to.sge(33, 4000)});
                c.send(1, {sge}, kFlags);
            }
            /* The caller may reuse its memory when the call returns. */
            std::fill_n(stack, sizeof(stack), kOther);
            expect_success(s.rcq(), length, IBV_WC_RECV, static_cast<int64_t>(write ? 0 : length));
            expect_success(c.scq(), 1, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
            expect_pattern(to.at(33), length, length + (write ? 1000 : 0));
            expect_value(to.at(33 + length), 64, kCanary, "behind the target");
            expect_value(to.at(0), 33, kCanary, "before the target");
        }
    }
}

TEST(Inline, GathersSges) {
    QpOptions options{.send_sge = 4, .inline_data = 512};
    Pair pair(options, veth4());
    Region to(pair.s().pd(), 4096);
    uint8_t source[512];
    fill(source, sizeof(source), 3);
    SgList list{{reinterpret_cast<uintptr_t>(source), 1, 0},
                {reinterpret_cast<uintptr_t>(source + 1), 300, 0},
                {reinterpret_cast<uintptr_t>(source + 301), 0, 0},
                {reinterpret_cast<uintptr_t>(source + 301), 211, 0}};
    pair.s().recv(1, {to.all()});
    pair.c().send(2, list, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 512);
    expect_success(pair.c().scq(), 2, IBV_WC_SEND);
    expect_pattern(to.at(0), 512, 3);
}

/* The rest of a longer receive buffer stays as it was. */
TEST(Recv, ShorterMessageThanBuffer) {
    Pair pair;
    Region from(pair.c().pd(), 8192);
    Region to(pair.s().pd(), 8192);
    fill(from.at(0), 8192, 5);
    to.buffer.set(kCanary);
    pair.s().recv(1, {to.sge(0, 100), to.sge(4096, 3000)});
    pair.c().send(2, {from.sge(0, 1500)});
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 1500);
    expect_pattern(to.at(0), 100, 5);
    expect_value(to.at(100), 3996, kCanary);
    expect_pattern(to.at(4096), 1400, 5, 100);
    expect_value(to.at(4096 + 1400), 8192 - 4096 - 1400, kCanary);
}

/* Registrations that do not begin or end at a page. */
TEST(Memory, SubRange) {
    Pair pair;
    Buffer at_client(64 * 1024), at_server(64 * 1024);
    for (size_t offset : {1, 4095, 4096, 5000})
        for (size_t length : {1, 100, 4096, 9001}) {
            SCOPED_TRACE(fmt::format("{} + {}", offset, length));
            at_server.set(kCanary);
            fill(at_client.at(offset), length, offset + length);
            Mr from = register_memory(pair.c().pd(), at_client.at(offset), length);
            Mr to = register_memory(pair.s().pd(), at_server.at(offset), length);
            ibv_sge sge{at_client.addr(offset), static_cast<uint32_t>(length), from->lkey};
            pair.c().write(1, {sge}, at_server.addr(offset), to->rkey);
            expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
            /* The read behind it returns what the write left. */
            std::fill_n(at_client.at(offset), length, kOther);
            pair.c().read(2, {sge}, at_server.addr(offset), to->rkey);
            expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, static_cast<int64_t>(length));
            expect_pattern(at_server.at(offset), length, offset + length, 0, "written");
            expect_pattern(at_client.at(offset), length, offset + length, 0, "read back");
            expect_value(at_server.at(0), offset, kCanary, "before the region");
            expect_value(at_server.at(offset + length), 64, kCanary, "behind the region");
        }
}

/* Remote and local addresses count from the iova, not from the memory. */
TEST(Memory, Iova) {
    Pair pair;
    constexpr size_t kSize = 40000;
    Buffer at_client(64 * 1024), at_server(64 * 1024);
    for (uint64_t iova :
         {uint64_t{0}, uint64_t{0x100000000abc}, uint64_t{4096}, uint64_t{0xfffffffffff00000}}) {
        SCOPED_TRACE(iova);
        /* Offset within the page as in the iova, as ibv_reg_mr(3) wants it. */
        size_t offset = iova % 4096;
        Mr to(ibv_reg_mr_iova(pair.s().pd(), at_server.at(offset), kSize, iova, kAll));
        require(to != nullptr, "ibv_reg_mr_iova");
        Mr from(ibv_reg_mr_iova(pair.c().pd(), at_client.at(offset), kSize, iova, kAll));
        require(from != nullptr, "ibv_reg_mr_iova");
        at_server.set(kCanary);
        fill(at_client.at(offset), kSize, iova + 1);

        ibv_sge sge{iova + 11, 30000, from->lkey};
        pair.c().write(1, {sge}, iova + 777, to->rkey);
        expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
        ibv_sge back{iova, 100, from->lkey};
        pair.c().read(2, {back}, iova + 777, to->rkey);
        expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, 100);
        expect_pattern(at_server.at(offset + 777), 30000, iova + 1, 11, "written");
        expect_value(at_server.at(0), offset + 777, kCanary, "before");
        expect_value(at_server.at(offset + 30777), 1000, kCanary, "behind");
        expect_pattern(at_client.at(offset), 100, iova + 1, 11, "read back");
    }
}

TEST(Memory, ZeroBased) {
    Pair pair;
    Buffer at_server(32768);
    Region from(pair.c().pd(), 32768);
    fill(from.at(0), 32768, 9);
    at_server.set(kCanary);
    /* An unaligned start: the region's address 0 is the memory's 4099. */
    Mr to(ibv_reg_mr(pair.s().pd(), at_server.at(4099), 20000, kAll | IBV_ACCESS_ZERO_BASED));
    require(to != nullptr, "ibv_reg_mr");
    pair.c().write(1, {from.sge(0, 19995)}, 5, to->rkey);
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
    pair.c().read(2, {from.sge(0, 1)}, 0, to->rkey);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, 1);
    EXPECT_EQ(*from.at(0), kCanary);
    expect_pattern(at_server.at(4104), 19995, 9);
    expect_value(at_server.at(0), 4104, kCanary);
    expect_value(at_server.at(4099 + 20000), 100, kCanary);
}

/* Two registrations of the same memory with different rights. */
TEST(Memory, Aliases) {
    Pair pair;
    Region from(pair.c().pd(), 4096);
    Buffer memory(4096);
    Mr writable = register_memory(pair.s().pd(), memory.data(), 4096, kRemoteWrite);
    Mr readable = register_memory(pair.s().pd(), memory.data(), 4096, kRemoteRead);
    fill(from.at(0), 4096, 2);
    pair.c().write(1, {from.sge(0, 2048)}, memory.addr(), writable->rkey);
    pair.c().read(2, {from.sge(2048, 2048)}, memory.addr(), readable->rkey);
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ);
    expect_pattern(from.at(2048), 2048, 2);
}

/* Ordering ---------------------------------------------------------------- */

TEST(Order, WriteIsVisibleWhenTheSendBehindItArrives) {
    constexpr size_t kSize = 1 << 20;
    Pair pair;
    Region from(pair.c().pd(), kSize);
    Region to(pair.s().pd(), kSize);
    for (uint64_t round = 1; round <= full_or_quick<uint64_t>(40, 8); round++) {
        fill(from.at(0), kSize, round);
        pair.s().recv(round, {});
        pair.c().write(0, {from.all()}, to.addr(), to.rkey(), 0);
        pair.c().send(round, {});
        expect_success(pair.s().rcq(), round, IBV_WC_RECV, 0);
        expect_pattern(to.at(0), kSize, round);
        expect_success(pair.c().scq(), round, IBV_WC_SEND);
    }
}

/* Who watches the last octet of a Write finds all of it, as many programs expect. */
TEST(Order, TheEndOfAWriteIsSeenLast) {
    constexpr size_t kSize = 16384;
    const uint64_t kRounds = full_or_quick<uint64_t>(1000, 200);
    Pair pair;
    Region from(pair.c().pd(), kSize), to(pair.s().pd(), kSize);
    /* nobody else on the processor that watches */
    const ParameterOverride quiet("tx_poll_us", "0");
    const OneProcessor here;
    for (auto [offset, length] : {std::pair<size_t, size_t>{0, 8},
                                  {3, 9},
                                  {0, 100},
                                  {5, 1000},
                                  {0, 1024},
                                  {4000, 4096},
                                  {0, kSize}}) {
        SCOPED_TRACE(fmt::format("{} octets at {}", length, offset));
        to.buffer.set(0);
        /* Each octet of a Write is the number of its round. */
        std::atomic<uint64_t> seen{0}, torn{0};
        std::thread watcher([&, where = to.at(offset), length = length] {
            const OneProcessor other(true);
            Deadline deadline(milliseconds(30000));
            for (uint64_t round = 1; round <= kRounds; round++) {
                auto value = static_cast<uint8_t>(round);
                while (__atomic_load_n(where + length - 1, __ATOMIC_ACQUIRE) != value &&
                       round <= kRounds)
                    if (deadline.passed())
                        round = kRounds + 1;
                if (round <= kRounds && mismatch_value(where, length, value) != length)
                    torn++;
                seen = round;
                seen.notify_one();
            }
        });
        uint64_t round = 0;
        while (seen == round && round < kRounds) {
            from.buffer.set(static_cast<uint8_t>(++round));
            pair.c().write(round, {from.sge(0, length)}, to.addr(offset), to.rkey());
            /* asleep, so that the processor is the network's */
            seen.wait(round - 1);
            expect_success(pair.c().scq(), round, IBV_WC_RDMA_WRITE);
        }
        watcher.join();
        EXPECT_EQ(seen, kRounds);
        EXPECT_EQ(torn, 0U);
    }
}

TEST(Order, ReadReturnsWhatTheWriteBeforeItWrote) {
    Pair pair;
    Region from(pair.c().pd(), 64 * 1024);
    Region back(pair.c().pd(), 64 * 1024);
    Region to(pair.s().pd(), 64 * 1024);
    for (uint64_t round = 1; round <= full_or_quick<uint64_t>(100, 20); round++) {
        size_t length = 1 + splitmix(round) % from.buffer.size();
        fill(from.at(0), length, round);
        pair.c().write(round, {from.sge(0, length)}, to.addr(), to.rkey());
        pair.c().read(round + 1000, {back.sge(0, length)}, to.addr(), to.rkey());
        expect_success(pair.c().scq(), round, IBV_WC_RDMA_WRITE);
        expect_success(pair.c().scq(), round + 1000, IBV_WC_RDMA_READ,
                       static_cast<int64_t>(length));
        expect_pattern(back.at(0), length, round);
    }
}

/* A fenced send does not start before the read whose sink it sends. */
TEST(Order, FenceWaitsForReads) {
    constexpr size_t kSize = 512 * 1024;
    Pair pair;
    Region local(pair.c().pd(), kSize);
    Region remote(pair.s().pd(), 2 * kSize);
    for (uint64_t round = 1; round <= full_or_quick<uint64_t>(20, 5); round++) {
        local.buffer.set(kOther);
        fill(remote.at(0), kSize, round);
        std::fill_n(remote.at(kSize), kSize, kCanary);
        pair.s().recv(1, {remote.sge(kSize, kSize)});
        pair.c().read(2, {local.all()}, remote.addr(), remote.rkey());
        pair.c().send(3, {local.all()}, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
        expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ);
        expect_success(pair.c().scq(), 3, IBV_WC_SEND);
        expect_success(pair.s().rcq(), 1, IBV_WC_RECV, kSize);
        expect_pattern(remote.at(kSize), kSize, round);
    }
}

/* Completions come in the order of the posts, whatever finishes first. */
TEST(Order, CompletionsInPostingOrder) {
    constexpr unsigned kRounds = 60;
    QpOptions options{.send_wr = kRounds * 3, .recv_wr = kRounds};
    Pair pair(options, veth4());
    Region local(pair.c().pd(), 1 << 16);
    Region remote(pair.s().pd(), 1 << 16);
    for (unsigned i = 0; i < kRounds; i++)
        pair.s().recv(i, {remote.sge(i * 8, 8)});
    std::vector<SendWr> list;
    for (unsigned i = 0; i < kRounds; i++) {
        list.push_back(
            SendWr::read(3 * i, {local.sge(0, 20000)}, remote.addr(4096), remote.rkey()));
        list.push_back(SendWr::send(3 * i + 1, {local.sge(40000, 8)}));
        list.push_back(
            SendWr::write(3 * i + 2, {local.sge(50000, 100)}, remote.addr(60000), remote.rkey()));
    }
    size_t bad = 0;
    ASSERT_EQ(post_send_list(pair.c().qp(), list, &bad), 0) << bad;
    for (const SendWr &wr : list)
        expect_success(pair.c().scq(), wr.wr_id, wr.wc_opcode());
    for (unsigned i = 0; i < kRounds; i++)
        expect_success(pair.s().rcq(), i, IBV_WC_RECV, 8);
}

TEST(Order, UnsignalledRequestsCompleteSilently) {
    constexpr unsigned kEvery = 16;
    Pair pair;
    Region local(pair.c().pd(), 4096);
    Region remote(pair.s().pd(), 4096);
    for (uint64_t i = 0; i < full_or_quick<uint64_t>(1000, 200); i++) {
        bool signalled = i % kEvery == kEvery - 1;
        SendWr wr = i % 3 == 0   ? SendWr::write(i, {local.all()}, remote.addr(), remote.rkey())
                    : i % 3 == 1 ? SendWr::read(i, {local.all()}, remote.addr(), remote.rkey())
                                 : SendWr::write(i, {}, remote.addr(), remote.rkey());
        wr.flags = signalled ? IBV_SEND_SIGNALED : 0;
        pair.c().post(wr);
        if (signalled)
            expect_success(pair.c().scq(), i, wr.wc_opcode());
    }
    expect_quiet(pair.c().scq());
}

TEST(Order, SqSigAllSignalsEverything) {
    Pair pair(QpOptions{.sq_sig_all = true}, veth4());
    Region local(pair.c().pd(), 4096);
    Region remote(pair.s().pd(), 4096);
    for (uint64_t i = 0; i < 10; i++)
        pair.c().write(i, {local.all()}, remote.addr(), remote.rkey(), 0);
    for (uint64_t i = 0; i < 10; i++)
        expect_success(pair.c().scq(), i, IBV_WC_RDMA_WRITE);
}

/* More reads than ORD (or the peer's IRD) wait their turn. */
TEST(Order, ReadsBeyondOrd) {
    constexpr unsigned kReads = 64;
    for (auto [ord, ird] : {std::pair<uint8_t, uint8_t>(1, 1), {2, 16}, {16, 1}, {16, 16}}) {
        SCOPED_TRACE(fmt::format("ord {} ird {}", ord, ird));
        PairOptions options;
        options.client.send_wr = kReads;
        options.client.ord = ord;
        options.server.ird = ird;
        /* rdma_cm lets the two sides agree: the accept names less. */
        options.server.ord = options.client.ird = 4;
        Pair pair(options);
        Region local(pair.c().pd(), kReads * 4096);
        Region remote(pair.s().pd(), kReads * 4096);
        fill(remote.at(0), remote.buffer.size(), ord);
        std::vector<SendWr> list;
        for (unsigned i = 0; i < kReads; i++)
            list.push_back(
                SendWr::read(i, {local.sge(i * 4096, 4096)}, remote.addr(i * 4096), remote.rkey()));
        ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
        for (unsigned i = 0; i < kReads; i++)
            expect_success(pair.c().scq(), i, IBV_WC_RDMA_READ, 4096);
        expect_pattern(local.at(0), local.buffer.size(), ord);
    }
}

/* Both queues go round many times, full. */
TEST(Queues, WrapAround) {
    QpOptions options{.send_wr = 7, .recv_wr = 5};
    Pair pair(options, veth4());
    Region from(pair.c().pd(), 64 * 64);
    Region to(pair.s().pd(), 64 * 64);
    unsigned rounds = full_or_quick(3000U, 500U);
    unsigned posted = 0, sent = 0;

    for (unsigned done = 0; done < rounds;) {
        while (posted < rounds && posted < done + 5) {
            pair.s().recv(posted, {to.sge(posted % 64 * 64, 64)});
            posted++;
        }
        while (sent < posted) {
            fill(from.at(sent % 64 * 64), 64, sent);
            pair.c().send(sent, {from.sge(sent % 64 * 64, 64)});
            sent++;
        }
        expect_success(pair.s().rcq(), done, IBV_WC_RECV, 64);
        expect_success(pair.c().scq(), done, IBV_WC_SEND);
        expect_pattern(to.at(done % 64 * 64), 64, done);
        done++;
    }
}

/* Concurrency ------------------------------------------------------------- */

/* Everything in both directions of one QP at once. */
TEST(Concurrent, BothDirections) {
    constexpr size_t kSize = 256 * 1024;
    constexpr unsigned kEach = 8;
    Pair pair;
    Region c(pair.c().pd(), 4 * kSize);
    Region s(pair.s().pd(), 4 * kSize);
    struct Side {
        Endpoint &end;
        Region &mine;
        Region &theirs;
        uint64_t seed;
    };
    for (uint64_t round = 0; round < full_or_quick<uint64_t>(10, 3); round++) {
        Side sides[2] = {{pair.c(), c, s, 10 * round + 1}, {pair.s(), s, c, 10 * round + 5}};
        /* 0: source of sends and writes and of the peer's reads; 1: receives;
         * 2: the peer's writes; 3: sink of reads */
        for (Side &side : sides) {
            side.mine.buffer.set(kOther);
            fill(side.mine.at(0), kSize, side.seed);
        }
        constexpr size_t kPart = kSize / kEach;
        for (unsigned i = 0; i < kEach; i++)
            for (Side &side : sides)
                side.end.recv(i, {side.mine.sge(kSize + i * kPart, kPart)});
        for (unsigned i = 0; i < kEach; i++)
            for (Side &side : sides) {
                ibv_sge part = side.mine.sge(i * kPart, kPart);
                side.end.write(3 * i, {part}, side.theirs.addr(2 * kSize + i * kPart),
                               side.theirs.rkey());
                side.end.read(3 * i + 1, {side.mine.sge(3 * kSize + i * kPart, kPart)},
                              side.theirs.addr(i * kPart), side.theirs.rkey());
                side.end.send(3 * i + 2, {part});
            }
        for (unsigned i = 0; i < kEach; i++)
            for (Side &side : sides) {
                expect_success(side.end.scq(), 3 * i, IBV_WC_RDMA_WRITE);
                expect_success(side.end.scq(), 3 * i + 1, IBV_WC_RDMA_READ, kPart);
                expect_success(side.end.scq(), 3 * i + 2, IBV_WC_SEND);
                expect_success(side.end.rcq(), i, IBV_WC_RECV, kPart);
            }
        for (int i = 0; i < 2; i++) {
            uint64_t other = sides[1 - i].seed;
            expect_pattern(sides[i].mine.at(kSize), kSize, other, 0, "received");
            expect_pattern(sides[i].mine.at(2 * kSize), kSize, other, 0, "written");
            expect_pattern(sides[i].mine.at(3 * kSize), kSize, other, 0, "read");
        }
    }
}

/*
 * One QP of many: posts random operations within its queue, and checks each
 * when it is done.
 */
class Mixer {
  public:
    Mixer(uint64_t seed, const Route &route)
        : random_(seed), pair_(QpOptions{.send_wr = kDepth * 2, .recv_wr = kDepth * 2}, route),
          c_(pair_.c().pd(), kDepth * kSlot), s_(pair_.s().pd(), kDepth * kSlot) {}

    void post(unsigned count) {
        while (count-- > 0 && in_flight_.size() < kDepth) {
            Item item{
                next_id_++, static_cast<Op>(random_.below(4)),
                static_cast<size_t>(random_.below(random_.below(8) == 0 ? kSlot - 128 : 3000)),
                static_cast<size_t>(random_.below(64)), static_cast<size_t>(random_.below(64))};
            size_t slot = item.id % kDepth * kSlot;
            bool read = item.op == Op::Read;
            Region &from = read ? s_ : c_;
            Region &to = read ? c_ : s_;
            fill(from.at(slot + item.from_at), item.length, item.id);
            std::fill_n(to.at(slot + item.to_at), item.length, kOther);
            ibv_sge local = read ? to.sge(slot + item.to_at, item.length)
                                 : from.sge(slot + item.from_at, item.length);
            Endpoint &c = pair_.c();
            switch (item.op) {
            case Op::Send:
            case Op::SendSolicited:
                pair_.s().recv(item.id, {to.sge(slot + item.to_at, item.length)});
                c.send(item.id, {local});
                break;
            case Op::Write:
                pair_.s().recv(item.id, {});
                c.write(item.id, {local}, to.addr(slot + item.to_at), to.rkey(), 0);
                c.send(item.id, {});
                break;
            case Op::Read:
                c.read(item.id, {local}, from.addr(slot + item.from_at), from.rkey());
                break;
            }
            in_flight_.push_back(item);
        }
    }

    /* Takes what has completed; the number of items finished. */
    unsigned reap() {
        unsigned finished = 0;
        while (!in_flight_.empty()) {
            Item &item = in_flight_.front();
            bool read = item.op == Op::Read;
            if (!item.sent)
                item.sent = take(pair_.c().scq(), item.id);
            if (!read && !item.received)
                item.received = take(pair_.s().rcq(), item.id);
            if (!item.sent || (!read && !item.received))
                break;
            const Region &to = read ? c_ : s_;
            expect_pattern(to.at(item.id % kDepth * kSlot + item.to_at), item.length, item.id, 0,
                           op_name(item.op));
            in_flight_.pop_front();
            finished++;
        }
        return finished;
    }

    bool idle() const { return in_flight_.empty(); }

  private:
    static constexpr size_t kSlot = 32 * 1024;
    static constexpr unsigned kDepth = 8;

    struct Item {
        uint64_t id;
        Op op;
        size_t length;
        size_t from_at;
        size_t to_at;
        bool sent = false;
        bool received = false;
    };

    static bool take(ibv_cq *cq, uint64_t id) {
        std::optional<ibv_wc> wc = try_wc(cq);
        if (!wc)
            return false;
        if (wc->status != IBV_WC_SUCCESS || wc->wr_id != id)
            fail(fmt::format("{} instead of {:#x}", wc_text(*wc), id));
        return true;
    }

    Random random_;
    Pair pair_;
    Region c_;
    Region s_;
    std::deque<Item> in_flight_;
    uint64_t next_id_ = 1;
};

void run_mixers(unsigned count, unsigned operations, const std::vector<Route> &routes) {
    std::vector<std::unique_ptr<Mixer>> mixers;
    for (unsigned i = 0; i < count; i++)
        mixers.push_back(std::make_unique<Mixer>(i + 1, routes[i % routes.size()]));
    uint64_t posted_limit = uint64_t{operations} * count;
    uint64_t finished = 0, rounds = 0;
    Deadline progress;
    while (finished < posted_limit) {
        unsigned now = 0;
        for (auto &mixer : mixers) {
            if (rounds % 2 == 0)
                mixer->post(4);
            now += mixer->reap();
        }
        rounds++;
        finished += now;
        if (now != 0)
            progress = Deadline();
        if (progress.passed())
            fail(fmt::format("stuck after {} operations", finished));
    }
    Deadline end;
    for (auto &mixer : mixers)
        while (!mixer->idle()) {
            mixer->reap();
            if (end.passed())
                fail("stuck at the end");
        }
}

TEST(Concurrent, ManyQps) {
    run_mixers(32, full_or_quick(150, 20), {veth4()});
}

TEST(Concurrent, ManyQpsOnAllRoutes) {
    run_mixers(16, full_or_quick(100, 15), {veth4(), veth6(), back4(), own4(), own6(), loop4()});
}

/* A QP that moves little is not starved by one that moves much. */
TEST(Concurrent, SmallBesideLarge) {
    constexpr size_t kSize = 1 << 20;
    Pair bulk(QpOptions{.send_wr = 16}, veth4());
    Pair small;
    Region from(bulk.c().pd(), kSize), to(bulk.s().pd(), kSize);
    std::atomic<bool> stop = false;
    std::exception_ptr error;
    uint64_t written = 0;

    /* Posting may itself transmit: the bulk has a thread of its own. */
    std::thread driver([&] {
        try {
            unsigned outstanding = 0;
            while (!stop || outstanding > 0) {
                while (!stop && outstanding < 4) {
                    bulk.c().write(0, {from.all()}, to.addr(), to.rkey());
                    outstanding++;
                }
                expect_success(bulk.c().scq(), 0, IBV_WC_RDMA_WRITE);
                outstanding--;
                written++;
            }
        } catch (...) {
            error = std::current_exception();
        }
    });
    unsigned rounds = full_or_quick(200, 40);
    try {
        for (uint64_t i = 0; i < rounds; i++) {
            /* Each within the deadline of expect_success. */
            small.s().recv(i, {});
            small.c().send(i, {});
            expect_success(small.s().rcq(), i, IBV_WC_RECV, 0);
            expect_success(small.c().scq(), i, IBV_WC_SEND);
        }
    } catch (...) {
        if (!error)
            error = std::current_exception();
    }
    stop = true;
    driver.join();
    if (error)
        std::rethrow_exception(error);
    EXPECT_GT(written, 0U);
}

/* Routes ------------------------------------------------------------------ */

TEST(Routes, Veth6) {
    Transfer t(1 << 18, QpOptions{}, veth6());
    for (Op op : {Op::Send, Op::Write, Op::Read})
        for (size_t length : {0, 1, 1408, 1428, 5000, 200001})
            t.run(op, length, 3, 5);
}

TEST(Routes, FromThePeer) {
    Transfer t(1 << 18, QpOptions{}, back4());
    for (Op op : {Op::Send, Op::Write, Op::Read})
        for (size_t length : {0, 1, 1428, 5000, 200001})
            t.run(op, length, 3, 5);
}

/* The segment size of lo is some 64 KB: other cuts than on a veth. */
TEST(Routes, Loopback) {
    for (const Route &route : {own4(), own6(), loop4(), loop6()}) {
        SCOPED_TRACE(route.listen_addr);
        Transfer t(1 << 20, QpOptions{}, route);
        for (Op op : {Op::Send, Op::Write, Op::Read})
            for (size_t length : {0, 1, 5000, 65000, 65483, 65484, 65536, 200001, 1000000})
                t.run(op, length, 3, 5);
    }
}

/* The segment size follows the netdev. */
TEST(Routes, SmallAndLargeMtu) {
    for (int mtu : full_or_quick<std::vector<int>>({576, 1280, 4000, 9000}, {576, 9000})) {
        SCOPED_TRACE(mtu);
        TwoHosts hosts;
        must_shell(fmt::format("ip -n {} link set {} mtu {}", hosts.ns_a, hosts.netdev_a, mtu));
        must_shell(fmt::format("ip -n {} link set {} mtu {}", hosts.ns_b, hosts.netdev_b, mtu));
        Transfer t(1 << 20, QpOptions{}, hosts.route());
        for (Op op : {Op::Send, Op::Write, Op::Read})
            for (size_t length : {0, 1, 500, 524, 3000, 8948, 100003, 1000000})
                t.run(op, length, 3, 5);
    }
}

TEST(Routes, MtuChangesUnderLoad) {
    TwoHosts hosts;
    Transfer t(1 << 20, QpOptions{}, hosts.route());
    for (int mtu :
         full_or_quick<std::vector<int>>({1500, 9000, 1400, 700, 1500, 576, 3000}, {9000, 700})) {
        SCOPED_TRACE(mtu);
        for (auto &[ns, netdev] :
             {std::pair(hosts.ns_a, hosts.netdev_a), std::pair(hosts.ns_b, hosts.netdev_b)})
            must_shell(fmt::format("ip -n {} link set {} mtu {}", ns, netdev, mtu));
        for (Op op : {Op::Send, Op::Write, Op::Read})
            for (size_t length : {1, 1400, 50001, 1000000})
                t.run(op, length, 7, 9);
    }
}

} // namespace
