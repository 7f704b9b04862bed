// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The rings' arithmetic and layout on plain memory.  Byte offsets and counters
// in the expectations are worked out by hand from kernel/uapi/softwarp_abi.h.
#include "ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace {

using namespace softwarp;

// Offsets from the beginning of a ring.
constexpr std::size_t prod_at = 0;
constexpr std::size_t cons_at = 64;
constexpr std::size_t kick_at = 128;
constexpr std::size_t arm_at = 192;
constexpr std::size_t data_at = 256;

// A ring as the kernel would hand it out, exactly as large as it says, so that
// the sanitizer sees every step beyond it.
class RingMemory {
  public:
    RingMemory(std::uint32_t entries, std::uint32_t stride)
        : bytes_{data_at + std::size_t{entries} * stride}, stride_{stride},
          memory_{static_cast<std::byte *>(std::aligned_alloc(64, (bytes_ + 63) / 64 * 64))} {
        std::memset(memory_.get(), 0, bytes_);
    }

    void *base() { return memory_.get(); }

    template<class T>
    [[nodiscard]] T get(std::size_t at) const {
        T value;
        std::memcpy(&value, memory_.get() + at, sizeof(value));
        return value;
    }
    template<class T>
    void set(std::size_t at, T value) {
        std::memcpy(memory_.get() + at, &value, sizeof(value));
    }
    template<class T>
    [[nodiscard]] T entry(std::uint32_t slot, std::size_t at) const {
        return get<T>(data_at + std::size_t{slot} * stride_ + at);
    }
    [[nodiscard]] const std::byte *entry_bytes(std::uint32_t slot, std::size_t at) const {
        return memory_.get() + data_at + std::size_t{slot} * stride_ + at;
    }

    [[nodiscard]] std::uint32_t prod() const { return get<std::uint32_t>(prod_at); }
    [[nodiscard]] std::uint32_t cons() const { return get<std::uint32_t>(cons_at); }
    [[nodiscard]] std::uint32_t arm() const { return get<std::uint32_t>(arm_at); }

  private:
    struct Free {
        void operator()(std::byte *p) const { std::free(p); }
    };
    std::size_t bytes_;
    std::uint32_t stride_;
    std::unique_ptr<std::byte, Free> memory_;
};

std::uint64_t address(const void *p) {
    return reinterpret_cast<std::uintptr_t>(p);
}

ibv_send_wr send_wr(std::uint64_t id, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    return wr;
}

ibv_recv_wr recv_wr(std::uint64_t id) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    return wr;
}

// Links the requests of an array to a list.
template<class Wr, std::size_t n>
Wr *chain(std::array<Wr, n> &list) {
    for (std::size_t i = 0; i + 1 < n; ++i)
        list[i].next = &list[i + 1];
    list[n - 1].next = nullptr;
    return list.data();
}

// Arithmetic ------------------------------------------------------------------

TEST(Arithmetic, UsedCountsAcrossTheWrap) {
    EXPECT_EQ(ring_used(0, 0), 0U);
    EXPECT_EQ(ring_used(5, 2), 3U);
    EXPECT_EQ(ring_used(0, 0xffffffffU), 1U);
    EXPECT_EQ(ring_used(3, 0xfffffffeU), 5U);
}

TEST(Arithmetic, FullAtEntriesAndBeyond) {
    EXPECT_FALSE(ring_is_full(7, 0, 8));
    EXPECT_TRUE(ring_is_full(8, 0, 8));
    EXPECT_FALSE(ring_is_full(2, 0xfffffffbU, 8)); // 7 used
    EXPECT_TRUE(ring_is_full(3, 0xfffffffbU, 8));  // 8 used
    EXPECT_TRUE(ring_is_full(0, 0, 0));            // no queue
    EXPECT_TRUE(ring_is_full(0, 1, 8));            // a counter that lies
}

TEST(Arithmetic, GenerationOfIndex) {
    EXPECT_EQ(cqe_generation(0, 3), 1);
    EXPECT_EQ(cqe_generation(7, 3), 1);
    EXPECT_EQ(cqe_generation(8, 3), 2);
    EXPECT_EQ(cqe_generation(0xfffe * 8U, 3), 0xffff);
    EXPECT_EQ(cqe_generation(0xffff * 8U, 3), 0); // 65536 does not fit 16 bits
    EXPECT_EQ(cqe_generation(0x10000 * 8U, 3), 1);
    EXPECT_EQ(cqe_generation(0xffffffffU, 3), 0); // 0x1fffffff + 1
    EXPECT_EQ(cqe_generation(0xffffffffU, 0), 0);
    EXPECT_EQ(cqe_generation(41, 0), 42);
}

TEST(Arithmetic, SaneRings) {
    EXPECT_TRUE(ring_is_sane(SWP_RING_DATA_OFF + 16 * 64, 16, 64, 64));
    EXPECT_TRUE(ring_is_sane(8192, 16, 64, 64));
    EXPECT_FALSE(ring_is_sane(SWP_RING_DATA_OFF + 16 * 64 - 1, 16, 64, 64)) << "too short";
    EXPECT_FALSE(ring_is_sane(1 << 20, 12, 64, 64)) << "no power of two";
    EXPECT_FALSE(ring_is_sane(8192, 0, 64, 64));
    EXPECT_FALSE(ring_is_sane(1 << 20, 16, 48, 64)) << "entries overlap";
    EXPECT_FALSE(ring_is_sane(1 << 20, 16, 72, 64)) << "entries off their alignment";
    EXPECT_FALSE(ring_is_sane(0xffffffffU, 1U << 31, 64, 64));
    EXPECT_FALSE(ring_is_sane(4096, 1U << 30, 64, 64)) << "product beyond 32 bits";
}

TEST(Arithmetic, EntrySizes) {
    EXPECT_EQ(sqe_bytes(0, 0), 64U) << "room for one SGE and the operands of an atomic";
    EXPECT_EQ(sqe_bytes(2, 0), 64U);
    EXPECT_EQ(sqe_bytes(3, 0), 80U);
    EXPECT_EQ(sqe_bytes(32, 512), 544U); // both 512
    EXPECT_EQ(sqe_bytes(2, 64), 96U);
    EXPECT_EQ(rqe_bytes(0), 16U);
    EXPECT_EQ(rqe_bytes(32), 528U);
}

// Send queue --------------------------------------------------------------------

constexpr std::uint32_t max_sge = 32;
constexpr std::uint32_t max_inline = 512;
constexpr std::uint32_t sq_stride = 576; // 32 + 512, rounded up to 64

class Sq : public testing::Test {
  protected:
    static constexpr std::uint32_t entries = 4;

    SendQueue queue(bool signal_all = false) {
        return {WorkRing{memory.base(), entries, sq_stride}, max_sge, max_inline, signal_all};
    }

    RingMemory memory{entries, sq_stride};
    ibv_send_wr *bad = nullptr;
};

TEST_F(Sq, WriteFillsTheEntry) {
    SendQueue sq = queue();
    std::array<ibv_sge, 2> sg{{{.addr = 0x1122334455667788, .length = 100, .lkey = 0xabcd00},
                               {.addr = 0x99, .length = 7, .lkey = 0x1200}}};
    ibv_send_wr wr = send_wr(0xdeadbeefcafe, IBV_WR_RDMA_WRITE);
    wr.sg_list = sg.data();
    wr.num_sge = 2;
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED;
    wr.wr.rdma.remote_addr = 0x8877665544332211;
    wr.wr.rdma.rkey = 0x55aa00;

    const PostResult result = sq.post(&wr, &bad);
    EXPECT_EQ(result.error, 0);
    EXPECT_FALSE(result.doorbell);
    EXPECT_EQ(memory.prod(), 1U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 0xdeadbeefcafeU);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 8), 0) << "SWP_OP_WRITE";
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 9), 1 | 8) << "signaled, fence; solicited is for sends";
    EXPECT_EQ(memory.entry<std::uint16_t>(0, 10), 2);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 12), 0U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 16), 0x8877665544332211U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 24), 0x55aa00U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 28), 0U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 32), 0x1122334455667788U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 40), 0xabcd00U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 44), 100U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 48), 0x99U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 56), 0x1200U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 60), 7U);
}

TEST_F(Sq, OpcodesAndTheirFields) {
    SendQueue sq = queue();
    std::array<ibv_send_wr, 3> list{send_wr(1, IBV_WR_RDMA_READ), send_wr(2, IBV_WR_SEND),
                                    send_wr(3, IBV_WR_SEND_WITH_INV)};
    list[0].wr.rdma = {.remote_addr = 77, .rkey = 88};
    list[1].send_flags = IBV_SEND_SOLICITED;
    list[2].send_flags = IBV_SEND_SOLICITED | IBV_SEND_SIGNALED;
    list[2].invalidate_rkey = 0x4242;
    ASSERT_EQ(sq.post(chain(list), &bad).error, 0);
    EXPECT_EQ(memory.prod(), 3U);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 8), 1) << "SWP_OP_READ";
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 9), 0);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 16), 77U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 24), 88U);
    EXPECT_EQ(memory.entry<std::uint8_t>(1, 8), 2) << "SWP_OP_SEND";
    EXPECT_EQ(memory.entry<std::uint8_t>(1, 9), 2) << "solicited";
    EXPECT_EQ(memory.entry<std::uint32_t>(1, 28), 0U);
    EXPECT_EQ(memory.entry<std::uint8_t>(2, 8), 3) << "SWP_OP_SEND_INV";
    EXPECT_EQ(memory.entry<std::uint8_t>(2, 9), 3);
    EXPECT_EQ(memory.entry<std::uint32_t>(2, 28), 0x4242U);
}

TEST_F(Sq, Immediate) {
    SendQueue sq = queue();
    ibv_sge sg{.addr = 5, .length = 6, .lkey = 7};
    std::array<ibv_send_wr, 3> list{send_wr(1, IBV_WR_RDMA_WRITE_WITH_IMM),
                                    send_wr(2, IBV_WR_SEND_WITH_IMM),
                                    send_wr(3, IBV_WR_SEND_WITH_IMM)};
    list[0].send_flags = IBV_SEND_SOLICITED;
    list[0].imm_data = 0x04030201;
    list[0].wr.rdma = {.remote_addr = 77, .rkey = 88};
    list[0].sg_list = &sg;
    list[0].num_sge = 1;
    list[1].imm_data = 0x14131211;
    list[2].sg_list = &sg;
    list[2].num_sge = 1;
    EXPECT_EQ(sq.post(chain(list), &bad).error, EOPNOTSUPP) << "data with it";
    EXPECT_EQ(bad, &list[2]);
    EXPECT_EQ(memory.prod(), 2U);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 8), 8) << "SWP_OP_WRITE_IMM";
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 9), 2) << "solicited";
    EXPECT_EQ(memory.entry<std::uint16_t>(0, 10), 1);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 16), 77U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 24), 88U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 28), 0x04030201U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 32), 5U);
    EXPECT_EQ(memory.entry<std::uint8_t>(1, 8), 9) << "SWP_OP_SEND_IMM";
    EXPECT_EQ(memory.entry<std::uint32_t>(1, 28), 0x14131211U);
    sg.length = 0;
    list[2].send_flags = IBV_SEND_INLINE;
    EXPECT_EQ(sq.post(&list[2], &bad).error, 0) << "empty pieces are no data";
    EXPECT_EQ(memory.entry<std::uint16_t>(2, 10), 0);
    EXPECT_EQ(memory.entry<std::uint8_t>(2, 9), 0);
    list[2].num_sge = -1;
    EXPECT_EQ(sq.post(&list[2], &bad).error, EINVAL);
}

TEST_F(Sq, Atomics) {
    SendQueue sq = queue();
    std::array<ibv_sge, 2> sg{{{.addr = 5, .length = 8, .lkey = 7}, {}}};
    std::array<ibv_send_wr, 2> list{send_wr(1, IBV_WR_ATOMIC_CMP_AND_SWP),
                                    send_wr(2, IBV_WR_ATOMIC_FETCH_AND_ADD)};
    for (ibv_send_wr &wr : list) {
        wr.wr.atomic = {.remote_addr = 0x1000, .compare_add = 33, .swap = 44, .rkey = 0x99};
        wr.sg_list = sg.data();
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    }
    ASSERT_EQ(sq.post(chain(list), &bad).error, 0);
    for (const std::uint32_t slot : {0U, 1U}) {
        EXPECT_EQ(memory.entry<std::uint8_t>(slot, 8), slot == 0 ? 7 : 6);
        EXPECT_EQ(memory.entry<std::uint8_t>(slot, 9), 1);
        EXPECT_EQ(memory.entry<std::uint16_t>(slot, 10), 1);
        EXPECT_EQ(memory.entry<std::uint64_t>(slot, 16), 0x1000U);
        EXPECT_EQ(memory.entry<std::uint32_t>(slot, 24), 0x99U);
        EXPECT_EQ(memory.entry<std::uint64_t>(slot, 32), 5U);
        EXPECT_EQ(memory.entry<std::uint32_t>(slot, 44), 8U);
        EXPECT_EQ(memory.entry<std::uint64_t>(slot, 48), slot == 0 ? 44U : 33U);
        EXPECT_EQ(memory.entry<std::uint64_t>(slot, 56), slot == 0 ? 33U : 0U);
    }
    ibv_send_wr wr = list[1];
    wr.num_sge = 2;
    EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_INLINE;
    EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
    EXPECT_EQ(memory.prod(), 2U);
}

TEST_F(Sq, LocalInvalidate) {
    SendQueue sq = queue();
    ibv_send_wr wr = send_wr(1, IBV_WR_LOCAL_INV);
    wr.invalidate_rkey = 0x4242;
    wr.num_sge = 7; // of no meaning
    wr.send_flags = IBV_SEND_FENCE;
    ASSERT_EQ(sq.post(&wr, &bad).error, 0);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 8), 4) << "SWP_OP_LOCAL_INV";
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 9), 8);
    EXPECT_EQ(memory.entry<std::uint16_t>(0, 10), 0);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 28), 0x4242U);
}

TEST_F(Sq, Bind) {
    SendQueue sq = queue();
    ibv_mr mr{};
    mr.lkey = 0x77;
    ibv_mw mw{};
    mw.rkey = 0x12345678;
    mw.type = IBV_MW_TYPE_2;
    ibv_send_wr wr = send_wr(1, IBV_WR_BIND_MW);
    const auto reset = [&] {
        wr.bind_mw.mw = &mw;
        wr.bind_mw.rkey = 0x12345600;
        wr.bind_mw.bind_info = {
            .mr = &mr, .addr = 0x2000, .length = 16, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
    };
    reset();
    ASSERT_EQ(sq.post(&wr, &bad).error, 0);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 8), 5) << "SWP_OP_BIND_MW";
    EXPECT_EQ(memory.entry<std::uint16_t>(0, 10), 0);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 24), 0x12345600U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 32), 0x2000U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 40), 16U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 48), 0x77U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 52), 4U);

    const auto refused = [&](auto &&change) {
        reset();
        change();
        EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
    };
    refused([&] { wr.bind_mw.rkey = 0x12345778; }); // another window's index
    refused([&] { wr.bind_mw.bind_info.mr = nullptr; });
    refused([&] { wr.bind_mw.bind_info.length = 0; });
    refused([&] { wr.bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_LOCAL_WRITE; });
    refused([&] { mw.type = IBV_MW_TYPE_1; });
    EXPECT_EQ(memory.prod(), 1U);

    ibv_mw_bind unbind{};
    unbind.wr_id = 3;
    EXPECT_EQ(sq.bind(mw, 0x12345679, unbind).error, 0);
    EXPECT_EQ(memory.entry<std::uint32_t>(1, 24), 0x12345679U);
    EXPECT_EQ(memory.entry<std::uint64_t>(1, 40), 0U);
    unbind.send_flags = IBV_SEND_IP_CSUM;
    EXPECT_EQ(sq.bind(mw, 0x12345679, unbind).error, EINVAL);
}

TEST_F(Sq, SignalAll) {
    SendQueue sq = queue(true);
    ibv_send_wr wr = send_wr(1);
    ASSERT_EQ(sq.post(&wr, &bad).error, 0);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 9), 1);
}

TEST_F(Sq, EveryNumberOfSges) {
    std::array<ibv_sge, max_sge + 1> sg{};
    for (std::uint32_t i = 0; i < sg.size(); ++i)
        sg[i] = {.addr = 1000 + i, .length = 10 + i, .lkey = 500 + i};
    for (std::uint32_t n = 0; n <= max_sge; ++n) {
        RingMemory own{1, sq_stride};
        SendQueue sq{WorkRing{own.base(), 1, sq_stride}, max_sge, max_inline, false};
        ibv_send_wr wr = send_wr(n);
        wr.sg_list = n == 0 ? nullptr : sg.data();
        wr.num_sge = static_cast<int>(n);
        ASSERT_EQ(sq.post(&wr, &bad).error, 0) << n;
        EXPECT_EQ(own.entry<std::uint16_t>(0, 10), n);
        for (std::uint32_t i = 0; i < n; ++i) {
            EXPECT_EQ(own.entry<std::uint64_t>(0, 32 + i * 16), 1000 + i);
            EXPECT_EQ(own.entry<std::uint32_t>(0, 40 + i * 16), 500 + i);
            EXPECT_EQ(own.entry<std::uint32_t>(0, 44 + i * 16), 10 + i);
        }
    }
    SendQueue sq = queue();
    ibv_send_wr wr = send_wr(1);
    wr.sg_list = sg.data();
    wr.num_sge = 33;
    EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
    EXPECT_EQ(bad, &wr);
    wr.num_sge = -1;
    EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
    EXPECT_EQ(memory.prod(), 0U);
}

TEST_F(Sq, InlineSizes) {
    std::vector<unsigned char> data(513);
    std::iota(data.begin(), data.end(), static_cast<unsigned char>(1));
    for (const std::uint32_t length : {0U, 1U, 511U, 512U}) {
        RingMemory own{1, sq_stride};
        SendQueue sq{WorkRing{own.base(), 1, sq_stride}, max_sge, max_inline, false};
        ibv_sge sg{.addr = address(data.data()), .length = length, .lkey = 99};
        ibv_send_wr wr = send_wr(length);
        wr.sg_list = &sg;
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_INLINE;
        ASSERT_EQ(sq.post(&wr, &bad).error, 0) << length;
        EXPECT_EQ(own.entry<std::uint8_t>(0, 9), 4) << "inline";
        EXPECT_EQ(own.entry<std::uint16_t>(0, 10), 0) << "no SGEs";
        EXPECT_EQ(own.entry<std::uint32_t>(0, 12), length);
        EXPECT_EQ(std::memcmp(own.entry_bytes(0, 32), data.data(), length), 0);
        EXPECT_EQ(own.entry<std::uint8_t>(0, 32 + length), 0) << "nothing beyond";
    }
    SendQueue sq = queue();
    ibv_sge sg{.addr = address(data.data()), .length = 513, .lkey = 0};
    ibv_send_wr wr = send_wr(1);
    wr.sg_list = &sg;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_INLINE;
    EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
    EXPECT_EQ(bad, &wr);
    EXPECT_EQ(memory.prod(), 0U);
}

TEST_F(Sq, InlineGathersAndSkipsEmptyPieces) {
    SendQueue sq = queue();
    const std::array<char, 3> first{'a', 'b', 'c'};
    const std::array<char, 2> last{'y', 'z'};
    std::array<ibv_sge, 3> sg{{{.addr = address(first.data()), .length = 3, .lkey = 0},
                               {.addr = 0, .length = 0, .lkey = 0},
                               {.addr = address(last.data()), .length = 2, .lkey = 0}}};
    ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE);
    wr.sg_list = sg.data();
    wr.num_sge = 3;
    wr.send_flags = IBV_SEND_INLINE;
    ASSERT_EQ(sq.post(&wr, &bad).error, 0);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 12), 5U);
    EXPECT_EQ(std::memcmp(memory.entry_bytes(0, 32), "abcyz", 5), 0);
}

TEST_F(Sq, InlineLengthsDoNotWrapTheirSum) {
    SendQueue sq = queue();
    std::array<ibv_sge, 2> sg{
        {{.addr = 0, .length = 0xffffffffU, .lkey = 0}, {.addr = 0, .length = 2, .lkey = 0}}};
    ibv_send_wr wr = send_wr(1);
    wr.sg_list = sg.data();
    wr.num_sge = 2;
    wr.send_flags = IBV_SEND_INLINE;
    EXPECT_EQ(sq.post(&wr, &bad).error, EINVAL);
}

TEST_F(Sq, RefusedRequests) {
    SendQueue sq = queue();
    struct Case {
        ibv_wr_opcode opcode;
        unsigned flags;
        int error;
    };
    constexpr std::array cases{
        Case{IBV_WR_ATOMIC_CMP_AND_SWP, 0, EINVAL}, // no place for the answer
        Case{IBV_WR_ATOMIC_FETCH_AND_ADD, 0, EINVAL},
        Case{IBV_WR_BIND_MW, 0, EINVAL}, // no window
        Case{IBV_WR_LOCAL_INV, 1U << 20, EINVAL},
        Case{IBV_WR_TSO, 0, EOPNOTSUPP},
        Case{IBV_WR_ATOMIC_WRITE, 0, EOPNOTSUPP},
        Case{IBV_WR_DRIVER1, 0, EINVAL},
        Case{static_cast<ibv_wr_opcode>(13), 0, EINVAL},
        Case{IBV_WR_RDMA_READ, IBV_SEND_INLINE, EINVAL},
        Case{IBV_WR_SEND, IBV_SEND_IP_CSUM, EINVAL},
        Case{IBV_WR_SEND, 1U << 20, EINVAL},
    };
    for (const Case &c : cases) {
        ibv_send_wr wr = send_wr(1, c.opcode);
        wr.send_flags = c.flags;
        bad = nullptr;
        EXPECT_EQ(sq.post(&wr, &bad).error, c.error) << c.opcode << " " << c.flags;
        EXPECT_EQ(bad, &wr);
    }
    EXPECT_EQ(memory.prod(), 0U);
}

TEST_F(Sq, ErrorInTheMiddlePostsWhatPrecedes) {
    SendQueue sq = queue();
    memory.set<std::uint32_t>(kick_at, 1);
    std::array<ibv_send_wr, 3> list{send_wr(1), send_wr(2), send_wr(3)};
    list[1].opcode = IBV_WR_TSO;
    const PostResult result = sq.post(chain(list), &bad);
    EXPECT_EQ(result.error, EOPNOTSUPP);
    EXPECT_TRUE(result.doorbell) << "the first request has to go out";
    EXPECT_EQ(bad, &list[1]);
    EXPECT_EQ(memory.prod(), 1U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 1U);
    EXPECT_EQ(memory.entry<std::uint64_t>(1, 0), 0U);
}

TEST_F(Sq, FullThenFreed) {
    SendQueue sq = queue();
    std::array<ibv_send_wr, 6> list{send_wr(10), send_wr(11), send_wr(12),
                                    send_wr(13), send_wr(14), send_wr(15)};
    EXPECT_EQ(sq.post(chain(list), &bad).error, ENOMEM);
    EXPECT_EQ(bad, &list[4]);
    EXPECT_EQ(memory.prod(), 4U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 10U) << "not overwritten";

    memory.set<std::uint32_t>(cons_at, 1);
    EXPECT_EQ(sq.post(bad, &bad).error, ENOMEM) << "one slot for two";
    EXPECT_EQ(bad, &list[5]);
    EXPECT_EQ(memory.prod(), 5U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 14U);
    EXPECT_EQ(memory.entry<std::uint64_t>(1, 0), 11U);

    memory.set<std::uint32_t>(cons_at, 5);
    EXPECT_EQ(sq.post(bad, &bad).error, 0);
    EXPECT_EQ(memory.prod(), 6U);
}

TEST_F(Sq, CountersWrap) {
    memory.set<std::uint32_t>(prod_at, 0xfffffffeU);
    memory.set<std::uint32_t>(cons_at, 0xfffffffeU);
    SendQueue sq = queue();
    std::array<ibv_send_wr, 5> list{send_wr(1), send_wr(2), send_wr(3), send_wr(4), send_wr(5)};
    EXPECT_EQ(sq.post(chain(list), &bad).error, ENOMEM);
    EXPECT_EQ(bad, &list[4]);
    EXPECT_EQ(memory.prod(), 2U);
    // 0xfffffffe & 3 = 2, then 3, 0, 1
    EXPECT_EQ(memory.entry<std::uint64_t>(2, 0), 1U);
    EXPECT_EQ(memory.entry<std::uint64_t>(3, 0), 2U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 3U);
    EXPECT_EQ(memory.entry<std::uint64_t>(1, 0), 4U);
    memory.set<std::uint32_t>(cons_at, 0);
    EXPECT_EQ(sq.post(bad, &bad).error, 0);
    EXPECT_EQ(memory.prod(), 3U);
    EXPECT_EQ(memory.entry<std::uint64_t>(2, 0), 5U);
}

TEST_F(Sq, KickAsksForTheDoorbellOnlyWhenSomethingWasPosted) {
    SendQueue sq = queue();
    memory.set<std::uint32_t>(kick_at, 1);
    EXPECT_FALSE(sq.post(nullptr, &bad).doorbell) << "empty list";
    ibv_send_wr broken = send_wr(1, IBV_WR_TSO);
    EXPECT_FALSE(sq.post(&broken, &bad).doorbell);
    ibv_send_wr wr = send_wr(2);
    EXPECT_TRUE(sq.post(&wr, &bad).doorbell);
    memory.set<std::uint32_t>(kick_at, 0);
    EXPECT_FALSE(sq.post(&wr, &bad).doorbell);
}

TEST_F(Sq, ReloadStartsFromTheRing) {
    SendQueue sq = queue();
    ibv_send_wr wr = send_wr(1);
    ASSERT_EQ(sq.post(&wr, &bad).error, 0);
    memory.set<std::uint32_t>(prod_at, 0);
    memory.set<std::uint32_t>(cons_at, 0);
    sq.reload();
    wr.wr_id = 2;
    ASSERT_EQ(sq.post(&wr, &bad).error, 0);
    EXPECT_EQ(memory.prod(), 1U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 2U);
}

TEST(SqWithoutEntries, IsFull) {
    SendQueue sq;
    ibv_send_wr *bad = nullptr;
    ibv_send_wr wr = send_wr(1);
    const PostResult result = sq.post(&wr, &bad);
    EXPECT_EQ(result.error, ENOMEM);
    EXPECT_FALSE(result.doorbell);
    EXPECT_EQ(bad, &wr);
    EXPECT_EQ(sq.post(nullptr, &bad).error, 0);
    sq.reload();
}

// The consumer checks that it never sees an entry before its contents.
TEST(SqThreads, EntriesArriveInOrderAndWhole) {
    constexpr std::uint32_t entries = 8;
    constexpr std::uint64_t total = 20000;
    RingMemory memory{entries, 64};
    std::uint64_t broken = 0;

    std::thread consumer{[&] {
        auto *ctrl = static_cast<swp_ring_ctrl *>(memory.base());
        std::uint32_t cons = 0;
        while (cons < total) {
            const std::uint32_t prod =
                std::atomic_ref<__u32>{ctrl->prod}.load(std::memory_order_acquire);
            if (prod == cons) {
                std::this_thread::yield();
                continue;
            }
            if (memory.entry<std::uint64_t>(cons & (entries - 1), 0) != cons ||
                memory.entry<std::uint64_t>(cons & (entries - 1), 16) != ~std::uint64_t{cons})
                ++broken;
            ++cons;
            std::atomic_ref<__u32>{ctrl->cons}.store(cons, std::memory_order_release);
        }
    }};
    SendQueue sq{WorkRing{memory.base(), entries, 64}, 2, 32, false};
    ibv_send_wr *bad = nullptr;
    for (std::uint64_t i = 0; i < total;) {
        ibv_send_wr wr = send_wr(i, IBV_WR_RDMA_WRITE);
        wr.wr.rdma.remote_addr = ~i;
        if (sq.post(&wr, &bad).error == 0)
            ++i;
        else
            std::this_thread::yield();
    }
    consumer.join();
    EXPECT_EQ(broken, 0U);
}

// Receive queue -----------------------------------------------------------------

TEST(Rq, FillsTheEntry) {
    RingMemory memory{2, 64};
    RecvQueue rq{WorkRing{memory.base(), 2, 64}, 3};
    ibv_recv_wr *bad = nullptr;
    std::array<ibv_sge, 4> sg{{{.addr = 1, .length = 2, .lkey = 3},
                               {.addr = 4, .length = 5, .lkey = 6},
                               {.addr = 7, .length = 8, .lkey = 9},
                               {}}};
    ibv_recv_wr wr = recv_wr(0x0102030405060708);
    wr.sg_list = sg.data();
    wr.num_sge = 3;
    const PostResult result = rq.post(&wr, &bad);
    EXPECT_EQ(result.error, 0);
    EXPECT_FALSE(result.doorbell);
    EXPECT_EQ(memory.prod(), 1U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 0x0102030405060708U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 8), 3U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 12), 0U);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 48), 7U);
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 56), 9U) << "lkey";
    EXPECT_EQ(memory.entry<std::uint32_t>(0, 60), 8U) << "length";

    wr.num_sge = 4;
    EXPECT_EQ(rq.post(&wr, &bad).error, EINVAL);
    EXPECT_EQ(bad, &wr);
    wr.num_sge = -1;
    EXPECT_EQ(rq.post(&wr, &bad).error, EINVAL);
    EXPECT_EQ(memory.prod(), 1U);
}

TEST(Rq, FullListAndKick) {
    RingMemory memory{2, 16};
    RecvQueue rq{WorkRing{memory.base(), 2, 16}, 0};
    ibv_recv_wr *bad = nullptr;
    memory.set<std::uint32_t>(kick_at, 1);
    std::array<ibv_recv_wr, 3> list{recv_wr(1), recv_wr(2), recv_wr(3)};
    const PostResult result = rq.post(chain(list), &bad);
    EXPECT_EQ(result.error, ENOMEM);
    EXPECT_TRUE(result.doorbell);
    EXPECT_EQ(bad, &list[2]);
    EXPECT_EQ(memory.prod(), 2U);
    EXPECT_FALSE(rq.post(bad, &bad).doorbell) << "nothing new";
    memory.set<std::uint32_t>(cons_at, 2);
    EXPECT_EQ(rq.post(bad, &bad).error, 0);
    EXPECT_EQ(memory.entry<std::uint64_t>(0, 0), 3U);
}

TEST(Rq, WithoutEntriesIsFull) {
    RecvQueue rq;
    ibv_recv_wr *bad = nullptr;
    ibv_recv_wr wr = recv_wr(1);
    EXPECT_EQ(rq.post(&wr, &bad).error, ENOMEM);
    EXPECT_EQ(bad, &wr);
}

// Completion queue --------------------------------------------------------------

class Cq : public testing::Test {
  protected:
    static constexpr std::uint32_t entries = 4;
    static constexpr unsigned shift = 2;

    // The kernel's part: the CQE with @index, gen last.
    void complete(std::uint32_t index, swp_cqe cqe) {
        cqe.gen = static_cast<std::uint16_t>(index / entries + 1);
        memory.set(data_at + std::size_t{index % entries} * 64, cqe);
    }
    void complete(std::uint32_t index, std::uint32_t qp_num = 1) {
        swp_cqe cqe{};
        cqe.wr_id = index;
        cqe.opcode = SWP_OP_SEND;
        cqe.qp_num = qp_num;
        complete(index, cqe);
    }

    RingMemory memory{entries, 64};
    std::array<ibv_wc, 8> wc{};
};

TEST_F(Cq, EmptyFromTheStart) {
    CompletionRing cq{memory.base(), entries};
    EXPECT_EQ(cq.poll(8, wc.data()), 0);
    EXPECT_EQ(memory.cons(), 0U);
}

TEST_F(Cq, FieldsAndOpcodes) {
    struct Case {
        std::uint8_t opcode;
        std::uint8_t flags;
        ibv_wc_opcode expected;
        unsigned expected_flags;
    };
    constexpr std::array cases{
        Case{0, 0, IBV_WC_RDMA_WRITE, 0},
        Case{1, 0, IBV_WC_RDMA_READ, 0},
        Case{2, 0, IBV_WC_SEND, 0},
        Case{3, 0, IBV_WC_SEND, 0},
        Case{4, 0, IBV_WC_LOCAL_INV, 0},
        Case{5, 0, IBV_WC_BIND_MW, 0},
        Case{6, 0, IBV_WC_FETCH_ADD, 0},
        Case{7, 0, IBV_WC_COMP_SWAP, 0},
        Case{8, 0, IBV_WC_RDMA_WRITE, 0},
        Case{9, 0, IBV_WC_SEND, 0},
        Case{16, 1, IBV_WC_RECV, 0},
        Case{16, 2, IBV_WC_RECV, IBV_WC_WITH_INV},
        Case{16, 4, IBV_WC_RECV, IBV_WC_WITH_IMM},
        Case{17, 5, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM},
    };
    for (const Case &c : cases) {
        CompletionRing cq{memory.base(), entries};
        swp_cqe cqe{};
        cqe.wr_id = 0x1020304050607080;
        cqe.byte_len = 4711;
        cqe.imm_inv = 0xbeef00;
        cqe.qp_num = 17;
        cqe.opcode = c.opcode;
        cqe.flags = c.flags;
        complete(memory.cons(), cqe);
        std::memset(wc.data(), 0xff, sizeof(wc[0]));
        ASSERT_EQ(cq.poll(1, wc.data()), 1);
        EXPECT_EQ(wc[0].wr_id, 0x1020304050607080U);
        EXPECT_EQ(wc[0].status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc[0].opcode, c.expected);
        EXPECT_EQ(wc[0].byte_len, 4711U);
        EXPECT_EQ(wc[0].qp_num, 17U);
        EXPECT_EQ(wc[0].vendor_err, 0U);
        EXPECT_EQ(wc[0].wc_flags, c.expected_flags);
        if (c.expected_flags != 0) {
            EXPECT_EQ(wc[0].invalidated_rkey, 0xbeef00U);
        }
    }
}

TEST_F(Cq, FailedCompletion) {
    CompletionRing cq{memory.base(), entries};
    swp_cqe cqe{};
    cqe.opcode = SWP_OP_WRITE;
    cqe.status = 10; // IBV_WC_REM_ACCESS_ERR
    cqe.vendor_err = 0xc0000102;
    complete(0, cqe);
    cqe.opcode = 99;
    cqe.status = 0;
    complete(1, cqe);
    cqe.status = 2; // IBV_WC_LOC_QP_OP_ERR
    cqe.opcode = 255;
    complete(2, cqe);
    ASSERT_EQ(cq.poll(3, wc.data()), 3);
    EXPECT_EQ(wc[0].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(wc[0].vendor_err, 0xc0000102U);
    EXPECT_EQ(wc[1].status, IBV_WC_GENERAL_ERR) << "an opcode nobody posted";
    EXPECT_EQ(wc[2].status, IBV_WC_LOC_QP_OP_ERR) << "the kernel's own refusal of it";
}

TEST_F(Cq, BatchesAndCons) {
    CompletionRing cq{memory.base(), entries};
    for (std::uint32_t i = 0; i < 3; ++i)
        complete(i);
    EXPECT_EQ(cq.poll(0, nullptr), 0);
    EXPECT_EQ(cq.poll(2, wc.data()), 2);
    EXPECT_EQ(memory.cons(), 2U);
    EXPECT_EQ(wc[1].wr_id, 1U);
    EXPECT_EQ(cq.poll(8, wc.data()), 1);
    EXPECT_EQ(wc[0].wr_id, 2U);
    EXPECT_EQ(memory.cons(), 3U);
    EXPECT_EQ(cq.poll(8, wc.data()), 0);
    for (std::uint32_t i = 3; i < 7; ++i)
        complete(i);
    EXPECT_EQ(cq.poll(8, wc.data()), 4) << "a full ring, and no lap beyond it";
    EXPECT_EQ(wc[3].wr_id, 6U);
    EXPECT_EQ(memory.cons(), 7U);
}

TEST_F(Cq, TakenOneByOne) {
    CompletionRing cq{memory.base(), entries};
    EXPECT_EQ(cq.take(), nullptr);
    for (std::uint32_t i = 0; i < 3; ++i)
        complete(i, 7 + i);
    cq.purge(8);
    const swp_cqe *cqe = cq.take();
    ASSERT_NE(cqe, nullptr);
    EXPECT_EQ(cqe->wr_id, 0U);
    EXPECT_EQ(memory.cons(), 0U) << "kept until it is released";
    cqe = cq.take();
    ASSERT_NE(cqe, nullptr);
    EXPECT_EQ(cqe->wr_id, 2U) << "the one between was purged";
    EXPECT_EQ(cq.take(), nullptr);
    cq.release();
    EXPECT_EQ(memory.cons(), 3U);

    // Taken without end, places are given back all the same, but not the last.
    for (std::uint32_t i = 3; i < 30; ++i) {
        complete(i);
        cqe = cq.take();
        ASSERT_NE(cqe, nullptr);
        EXPECT_EQ(cqe->wr_id, i);
        EXPECT_LE(memory.cons(), i);
        EXPECT_GE(memory.cons(), i + 1 - entries / 2);
    }
    cq.release();
    EXPECT_EQ(memory.cons(), 30U);
    complete(30);
    EXPECT_EQ(cq.poll(8, wc.data()), 1);
}

TEST_F(Cq, GenerationAndCounterWrap) {
    // entries = 4: generation 65535 ends at index 4 * 65535 - 1 = 262139.
    memory.set<std::uint32_t>(cons_at, 262138);
    CompletionRing cq{memory.base(), entries};
    EXPECT_EQ(cq.poll(8, wc.data()), 0);
    complete(262138);
    complete(262139);
    EXPECT_EQ(memory.entry<std::uint16_t>(3, 30), 0xffff);
    complete(262140);
    EXPECT_EQ(memory.entry<std::uint16_t>(0, 30), 0);
    complete(262141);
    EXPECT_EQ(cq.poll(8, wc.data()), 4);
    EXPECT_EQ(wc[3].wr_id, 262141U);
    complete(262142);
    complete(262143);
    complete(262144);
    EXPECT_EQ(memory.entry<std::uint16_t>(0, 30), 1);
    EXPECT_EQ(cq.poll(8, wc.data()), 3);

    RingMemory &m = memory;
    m.set<std::uint32_t>(cons_at, 0xfffffffeU);
    CompletionRing late{m.base(), entries};
    complete(0xfffffffeU);
    complete(0xffffffffU);
    EXPECT_EQ(m.entry<std::uint16_t>(3, 30), 0) << "0x3fffffff + 1";
    complete(0);
    EXPECT_EQ(late.poll(8, wc.data()), 3);
    EXPECT_EQ(m.cons(), 1U);
}

TEST_F(Cq, PurgeHidesOneQp) {
    CompletionRing cq{memory.base(), entries};
    complete(0, 7);
    complete(1, 8);
    complete(2, 7);
    cq.purge(7);
    EXPECT_EQ(memory.cons(), 0U);
    complete(3, 7); // a later owner of the number
    ASSERT_EQ(cq.poll(8, wc.data()), 2);
    EXPECT_EQ(wc[0].wr_id, 1U);
    EXPECT_EQ(wc[1].wr_id, 3U);
    EXPECT_EQ(memory.cons(), 4U);
}

TEST_F(Cq, PurgeOfAFullRingEnds) {
    CompletionRing cq{memory.base(), entries};
    for (std::uint32_t i = 0; i < entries; ++i)
        complete(i, 7);
    cq.purge(7);
    EXPECT_EQ(cq.poll(8, wc.data()), 0);
    EXPECT_EQ(memory.cons(), 4U) << "the slots are free again";
}

TEST_F(Cq, PolledSlotsAreNotPurged) {
    CompletionRing cq{memory.base(), entries};
    complete(0, 7);
    ASSERT_EQ(cq.poll(1, wc.data()), 1);
    cq.purge(7);
    EXPECT_EQ(memory.entry<std::uint8_t>(0, 25), IBV_WC_SUCCESS);
}

TEST_F(Cq, Arm) {
    CompletionRing cq{memory.base(), entries};
    cq.arm(true);
    EXPECT_EQ(memory.arm(), 1U) << "solicited";
    cq.arm(false);
    EXPECT_EQ(memory.arm(), 2U) << "any: the stronger request";
    cq.arm(true);
    EXPECT_EQ(memory.arm(), 2U) << "not weakened";
    memory.set<std::uint32_t>(arm_at, 0); // the event was delivered
    cq.arm(true);
    EXPECT_EQ(memory.arm(), 1U);
    memory.set<std::uint32_t>(arm_at, 0);
    cq.arm(false);
    EXPECT_EQ(memory.arm(), 2U);
}

TEST_F(Cq, OneEntry) {
    RingMemory one{1, 64};
    CompletionRing cq{one.base(), 1};
    swp_cqe cqe{};
    cqe.opcode = SWP_OP_RECV;
    cqe.gen = 1;
    one.set(data_at, cqe);
    EXPECT_EQ(cq.poll(8, wc.data()), 1);
    cqe.gen = 2;
    one.set(data_at, cqe);
    EXPECT_EQ(cq.poll(8, wc.data()), 1);
    EXPECT_EQ(one.cons(), 2U);
}

} // namespace
