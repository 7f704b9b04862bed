// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Immediate data (RFC 7306 s. 6), with a Write and alone. */
#include <arpa/inet.h>

#include <cerrno>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

constexpr size_t kSize = 256 * 1024;

void expect_imm(const ibv_wc &wc, uint32_t imm) {
    EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_IMM}) << wc_text(wc);
    EXPECT_EQ(ntohl(wc.imm_data), imm) << wc_text(wc);
}

class Immediate : public testing::Test {
  protected:
    Pair pair{QpOptions{.inline_data = 64, .events = true}, veth4()};
    Region local{pair.c().pd(), kSize};
    Region remote{pair.s().pd(), kSize};
};

TEST_F(Immediate, WithAWriteOfAnyLength) {
    for (size_t length :
         {size_t{0}, size_t{1}, size_t{8}, size_t{1447}, size_t{4096}, size_t{65536}, kSize}) {
        SCOPED_TRACE(length);
        fill(local.at(0), kSize, length);
        remote.buffer.set(0xa5);
        pair.s().recv(7, {});
        pair.c().post(SendWr::write_imm(3, {local.sge(0, length)}, remote.addr(), remote.rkey(),
                                        0x01020304 + static_cast<uint32_t>(length)));
        expect_success(pair.c().scq(), 3, IBV_WC_RDMA_WRITE);
        ibv_wc wc = expect_success(pair.s().rcq(), 7, IBV_WC_RECV_RDMA_WITH_IMM,
                                   static_cast<int64_t>(length));
        EXPECT_EQ(wc.qp_num, pair.s().qp()->qp_num);
        expect_imm(wc, 0x01020304 + static_cast<uint32_t>(length));
        /* What the completion announces is there. */
        expect_pattern(remote.at(0), length, length);
        expect_value(remote.at(length), kSize - length, 0xa5, "behind the data");
    }
}

/* The octets go as they are, not as a number of the host's. */
TEST_F(Immediate, Octets) {
    for (uint32_t imm : {0U, 1U, 0x80000000U, 0xffffffffU, 0x00ff00ffU}) {
        pair.s().recv(7, {});
        pair.c().post(SendWr::send_imm(3, imm));
        expect_imm(expect_success(pair.s().rcq(), 7, IBV_WC_RECV, 0), imm);
        expect_success(pair.c().scq(), 3, IBV_WC_SEND);
    }
}

/* A receive is spent, its buffer is not touched. */
TEST_F(Immediate, BufferStaysAsItIs) {
    Region buffer(pair.s().pd(), 4096);
    buffer.buffer.set(0x77);
    fill(local.at(0), 100, 1);
    pair.s().recv(7, {buffer.all()});
    pair.s().recv(8, {buffer.all()});
    pair.c().post(SendWr::write_imm(3, {local.sge(0, 100)}, remote.addr(), remote.rkey(), 1));
    pair.c().post(SendWr::send_imm(4, 2));
    expect_imm(expect_success(pair.s().rcq(), 7, IBV_WC_RECV_RDMA_WITH_IMM, 100), 1);
    expect_imm(expect_success(pair.s().rcq(), 8, IBV_WC_RECV, 0), 2);
    expect_value(buffer.at(0), 4096, 0x77);
}

TEST_F(Immediate, Gathered) {
    fill(local.at(0), kSize, 1);
    pair.s().recv(7, {});
    pair.c().post(
        SendWr::write_imm(3, {local.sge(0, 1000), local.sge(1000, 70001), local.sge(71001, 3)},
                          remote.addr(100), remote.rkey(), 9));
    expect_imm(expect_success(pair.s().rcq(), 7, IBV_WC_RECV_RDMA_WITH_IMM, 71004), 9);
    expect_pattern(remote.at(100), 71004, 1);
    expect_success(pair.c().scq(), 3, IBV_WC_RDMA_WRITE);
}

TEST_F(Immediate, Inlined) {
    fill(local.at(0), 64, 5);
    pair.s().recv(7, {});
    SendWr wr = SendWr::write_imm(3, {local.sge(0, 64)}, remote.addr(), remote.rkey(), 0xcafe,
                                  IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    pair.c().post(wr);
    expect_imm(expect_success(pair.s().rcq(), 7, IBV_WC_RECV_RDMA_WITH_IMM, 64), 0xcafe);
    expect_pattern(remote.at(0), 64, 5);
}

/* The device has no Send with data and immediate data: the post says so. */
TEST_F(Immediate, NoneWithTheDataOfASend) {
    SendWr wr = SendWr::send_imm(3, 1);
    wr.sg = {local.sge(0, 1)};
    EXPECT_EQ(post_send(pair.c().qp(), wr), EOPNOTSUPP);
    wr.flags |= IBV_SEND_INLINE;
    EXPECT_EQ(post_send(pair.c().qp(), wr), EOPNOTSUPP);
    wr.flags = IBV_SEND_SIGNALED;
    wr.sg = {local.sge(0, 0)};
    pair.s().recv(7, {});
    EXPECT_EQ(post_send(pair.c().qp(), wr), 0) << "no data in it";
    expect_imm(expect_success(pair.s().rcq(), 7, IBV_WC_RECV, 0), 1);
}

TEST_F(Immediate, SolicitedEvent) {
    ibv_cq *rcq = pair.s().rcq();
    auto run = [&](SendWr wr, bool event) {
        ASSERT_EQ(ibv_req_notify_cq(rcq, 1), 0);
        pair.s().recv(7, {});
        pair.c().post(wr);
        next_wc(pair.c().scq());
        ibv_wc wc = next_wc(rcq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        if (event)
            EXPECT_EQ(next_cq_event(pair.s().completions()), rcq);
        else
            EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(20)));
    };
    unsigned solicited = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    run(SendWr::send_imm(1, 5), false);
    run(SendWr::write_imm(1, {local.sge(0, 10)}, remote.addr(), remote.rkey(), 5), false);
    run(SendWr::send_imm(1, 5, solicited), true);
    run(SendWr::write_imm(1, {local.sge(0, 10)}, remote.addr(), remote.rkey(), 5, solicited), true);
    run(SendWr::write_imm(1, {}, 0, 0, 5, solicited), true);
}

/* Between Sends and plain Writes each completion is that of its own message. */
TEST_F(Immediate, InOrderWithOthers) {
    Region buffer(pair.s().pd(), 64 * 1024);
    const uint64_t kRounds = full_or_quick<uint64_t>(50, 15);
    for (uint64_t round = 0; round < kRounds; round++) {
        SCOPED_TRACE(round);
        fill(local.at(0), kSize, round);
        for (uint64_t i = 0; i < 5; i++)
            pair.s().recv(i, {buffer.sge(i * 8192, 8192)});
        std::vector<SendWr> list{
            SendWr::write(0, {local.sge(0, 3000)}, remote.addr(0), remote.rkey(), 0),
            SendWr::write_imm(1, {local.sge(3000, 20000)}, remote.addr(3000), remote.rkey(), 11, 0),
            SendWr::send(2, {local.sge(0, 5000)}, 0),
            SendWr::send_imm(3, 12, 0),
            SendWr::write(4, {local.sge(23000, 7)}, remote.addr(23000), remote.rkey(), 0),
            SendWr::send(5, {local.sge(0, 10)}, 0),
            SendWr::write_imm(6, {}, 0, 0, 13)};
        ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
        ibv_cq *rcq = pair.s().rcq();
        expect_imm(expect_success(rcq, 0, IBV_WC_RECV_RDMA_WITH_IMM, 20000), 11);
        ibv_wc wc = expect_success(rcq, 1, IBV_WC_RECV, 5000);
        EXPECT_EQ(wc.wc_flags, 0U);
        expect_pattern(buffer.at(8192), 5000, round);
        expect_imm(expect_success(rcq, 2, IBV_WC_RECV, 0), 12);
        expect_success(rcq, 3, IBV_WC_RECV, 10);
        expect_imm(expect_success(rcq, 4, IBV_WC_RECV_RDMA_WITH_IMM, 0), 13);
        expect_pattern(remote.at(0), 23007, round);
        expect_success(pair.c().scq(), 6, IBV_WC_RDMA_WRITE);
        expect_quiet(pair.c().scq(), milliseconds(1));
        ASSERT_FALSE(HasFailure());
    }
}

/* A Write by chance in front of it is not its own. */
TEST_F(Immediate, AloneBehindAWrite) {
    pair.s().recv(7, {});
    std::vector<SendWr> list{
        SendWr::write(1, {local.sge(0, 1000)}, remote.addr(), remote.rkey(), 0),
        SendWr::send_imm(2, 0x11223344)};
    ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
    expect_imm(expect_success(pair.s().rcq(), 7, IBV_WC_RECV, 0), 0x11223344);
    expect_success(pair.c().scq(), 2, IBV_WC_SEND);
}

TEST_F(Immediate, ManyAtOnce) {
    const uint64_t kCount = full_or_quick<uint64_t>(2000, 300);
    uint64_t posted = 0, sent = 0, received = 0;
    for (uint64_t i = 0; i < 32; i++)
        pair.s().recv(i, {});
    while (received < kCount) {
        while (posted < kCount && posted - received < 32 && posted - sent < 32) {
            size_t at = posted % 32 * 4096;
            fill(local.at(at), 4096, posted);
            pair.c().post(SendWr::write_imm(posted, {local.sge(at, 4096)}, remote.addr(at),
                                            remote.rkey(), static_cast<uint32_t>(posted)));
            posted++;
        }
        if (std::optional<ibv_wc> wc = try_wc(pair.c().scq())) {
            ASSERT_EQ(wc->status, IBV_WC_SUCCESS);
            ASSERT_EQ(wc->wr_id, sent++);
        }
        std::optional<ibv_wc> wc = try_wc(pair.s().rcq());
        if (!wc)
            continue;
        ASSERT_EQ(wc->status, IBV_WC_SUCCESS) << wc_text(*wc);
        ASSERT_EQ(ntohl(wc->imm_data), static_cast<uint32_t>(received));
        ASSERT_EQ(mismatch(remote.at(received % 32 * 4096), 4096, received), 4096U);
        received++;
        pair.s().recv(received + 31, {});
    }
}

TEST_F(Immediate, NothingToReceiveItWith) {
    pair.c().recv(60, {});
    pair.c().post(SendWr::send_imm(1, 5));
    expect_success(pair.c().scq(), 1, IBV_WC_SEND);
    expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(pair.c().qp(), {IBV_EVENT_QP_FATAL});
    pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
}

/* Where the Write may not go, its immediate data does not arrive. */
TEST_F(Immediate, BehindARefusedWrite) {
    pair.s().recv(9, {});
    pair.c().recv(60, {});
    pair.c().post(SendWr::write_imm(1, {local.sge(0, 100)}, remote.addr(), remote.rkey() ^ 1, 5));
    next_wc(pair.c().scq());
    expect_wc(pair.c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.s().rcq(), 9, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(pair.s().qp(), {IBV_EVENT_QP_ACCESS_ERR});
}

/* Behind the reads that a fence waits for. */
TEST_F(Immediate, Fenced) {
    Region into(pair.c().pd(), kSize);
    for (uint64_t round = 0; round < full_or_quick<uint64_t>(50, 10); round++) {
        SCOPED_TRACE(round);
        fill(remote.at(0), kSize, round);
        into.buffer.set(0);
        pair.s().recv(9, {});
        std::vector<SendWr> list;
        for (uint64_t i = 0; i < 8; i++)
            list.push_back(SendWr::read(i, {into.sge(i * 30000, 30000)}, remote.addr(i * 30000),
                                        remote.rkey(), 0));
        /* The peer may change its memory as soon as it has this. */
        list.push_back(SendWr::send_imm(8, 1, IBV_SEND_SIGNALED | IBV_SEND_FENCE));
        ASSERT_EQ(post_send_list(pair.c().qp(), list), 0);
        expect_success(pair.s().rcq(), 9, IBV_WC_RECV, 0);
        expect_pattern(into.at(0), 240000, round);
        remote.buffer.set(0xee);
        expect_success(pair.c().scq(), 8, IBV_WC_SEND);
    }
}

} // namespace
