// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* ibv_wr_*(3) and the extended CQ: the same work by function calls. */
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

constexpr size_t kSize = 64 * 1024;
constexpr uint64_t kOperations = 0x3ff; // writes to Send with Invalidate

QpOptions extended_options() {
    QpOptions options;
    options.inline_data = 128;
    options.operations = kOperations;
    return options;
}

class Wr : public testing::Test {
  protected:
    Wr() {
        if (qpx == nullptr)
            fail("no extended QP");
    }
    void begin(uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
        qpx->wr_id = id;
        qpx->wr_flags = flags;
    }

    Pair pair{extended_options(), veth4()};
    ibv_qp_ex *qpx{pair.c().qpx()};
    Region local{pair.c().pd(), kSize};
    Region remote{pair.s().pd(), kSize, kAll | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND};
};

TEST(ExtendedQp, OnlyWhenAskedFor) {
    Pair pair;
    EXPECT_EQ(pair.c().qpx(), nullptr);
}

TEST(ExtendedQp, RefusesWhatThereIsNot) {
    ibv_context *context = cm_context(config().dev);
    Pd pd = alloc_pd(context);
    Cq cq = create_cq(context, 16);
    auto error_of = [&](uint64_t operations, uint32_t comp_mask, uint32_t create_flags) {
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq.get();
        attr.cap = {4, 4, 1, 1, 0};
        attr.qp_type = IBV_QPT_RC;
        attr.pd = pd.get();
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | comp_mask;
        attr.create_flags = create_flags;
        attr.send_ops_flags = operations;
        errno = 0;
        Qp qp(ibv_create_qp_ex(context, &attr));
        return qp ? 0 : errno;
    };
    EXPECT_EQ(error_of(kOperations, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0), 0);
    EXPECT_EQ(error_of(0, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0), 0);
    EXPECT_EQ(error_of(IBV_QP_EX_WITH_TSO, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0), EOPNOTSUPP);
    EXPECT_EQ(error_of(IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0),
              EOPNOTSUPP);
    EXPECT_EQ(error_of(uint64_t{1} << 40, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0), EOPNOTSUPP);
    EXPECT_EQ(error_of(0, IBV_QP_INIT_ATTR_CREATE_FLAGS, 0), 0);
    EXPECT_EQ(error_of(0, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_CREATE_SCATTER_FCS), EOPNOTSUPP);
    EXPECT_EQ(error_of(0, IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0), EOPNOTSUPP);
}

TEST_F(Wr, WriteAndRead) {
    fill(local.at(0), 20000, 1);
    ibv_wr_start(qpx);
    begin(1, 0);
    ibv_wr_rdma_write(qpx, remote.rkey(), remote.addr(100));
    ibv_wr_set_sge(qpx, local.lkey(), local.addr(0), 20000);
    begin(2);
    ibv_wr_rdma_read(qpx, remote.rkey(), remote.addr(100));
    ibv_sge pieces[] = {local.sge(30000, 7000), local.sge(40000, 13000)};
    ibv_wr_set_sge_list(qpx, 2, pieces);
    ASSERT_EQ(ibv_wr_complete(qpx), 0);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, 20000);
    expect_pattern(remote.at(100), 20000, 1);
    expect_pattern(local.at(30000), 7000, 1);
    expect_pattern(local.at(40000), 13000, 1, 7000);
    expect_quiet(pair.c().scq());
}

TEST_F(Wr, Sends) {
    Mw mw = alloc_mw(pair.s().pd(), IBV_MW_TYPE_2);
    SendWr bind =
        SendWr::bind_mw(1, mw.get(), remote.mr.get(), remote.addr(), 100, IBV_ACCESS_REMOTE_READ);
    pair.s().post(bind);
    expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);

    fill(local.at(0), 5000, 2);
    for (uint64_t i = 0; i < 6; i++)
        pair.s().recv(i, {remote.sge(i * 8192, 8192)});
    ibv_wr_start(qpx);
    begin(1);
    ibv_wr_send(qpx);
    ibv_wr_set_sge(qpx, local.lkey(), local.addr(0), 5000);
    begin(2);
    ibv_wr_send_imm(qpx, htonl(0xabcdef01));
    begin(3);
    ibv_wr_send_inv(qpx, bind.rkey);
    ibv_wr_set_inline_data(qpx, local.at(0), 100);
    begin(4);
    ibv_wr_send(qpx);
    ibv_data_buf buffers[] = {{local.at(0), 60}, {nullptr, 0}, {local.at(60), 68}};
    ibv_wr_set_inline_data_list(qpx, 3, buffers);
    begin(5);
    ibv_wr_rdma_write_imm(qpx, remote.rkey(), remote.addr(60000), htonl(77));
    ibv_wr_set_sge(qpx, local.lkey(), local.addr(0), 300);
    begin(6);
    ibv_wr_send(qpx); // without data
    ASSERT_EQ(ibv_wr_complete(qpx), 0);
    /* Inline data was taken then. */
    std::memset(local.at(0), 0, 5);
    fill(local.at(0), 5, 2);

    ibv_cq *rcq = pair.s().rcq();
    expect_success(rcq, 0, IBV_WC_RECV, 5000);
    ibv_wc wc = expect_success(rcq, 1, IBV_WC_RECV, 0);
    EXPECT_EQ(ntohl(wc.imm_data), 0xabcdef01U);
    wc = expect_success(rcq, 2, IBV_WC_RECV, 100);
    EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
    EXPECT_EQ(wc.invalidated_rkey, bind.rkey);
    expect_success(rcq, 3, IBV_WC_RECV, 128);
    wc = expect_success(rcq, 4, IBV_WC_RECV_RDMA_WITH_IMM, 300);
    EXPECT_EQ(ntohl(wc.imm_data), 77U);
    expect_success(rcq, 5, IBV_WC_RECV, 0);
    for (uint64_t i = 1; i < 7; i++)
        next_wc(pair.c().scq());
    expect_pattern(remote.at(0), 5000, 2);
    expect_pattern(remote.at(2 * 8192), 100, 2);
    expect_pattern(remote.at(3 * 8192), 128, 2);
    expect_pattern(remote.at(60000), 300, 2);
}

TEST_F(Wr, Atomics) {
    auto *word = reinterpret_cast<uint64_t *>(remote.at(8));
    auto *answers = reinterpret_cast<uint64_t *>(local.at(0));
    *word = 100;
    ibv_wr_start(qpx);
    begin(1);
    ibv_wr_atomic_fetch_add(qpx, remote.rkey(), remote.addr(8), 11);
    ibv_wr_set_sge(qpx, local.lkey(), local.addr(0), 8);
    begin(2);
    ibv_wr_atomic_cmp_swp(qpx, remote.rkey(), remote.addr(8), 111, 999);
    ibv_wr_set_sge(qpx, local.lkey(), local.addr(8), 8);
    ASSERT_EQ(ibv_wr_complete(qpx), 0);
    expect_success(pair.c().scq(), 1, IBV_WC_FETCH_ADD, 8);
    expect_success(pair.c().scq(), 2, IBV_WC_COMP_SWAP, 8);
    EXPECT_EQ(answers[0], 100U);
    EXPECT_EQ(answers[1], 111U);
    EXPECT_EQ(*word, 999U);
}

TEST_F(Wr, BindAndInvalidate) {
    ibv_qp_ex *server = pair.s().qpx();
    ASSERT_NE(server, nullptr);
    Mw mw = alloc_mw(pair.s().pd(), IBV_MW_TYPE_2);
    ibv_mw_bind_info info{remote.mr.get(), remote.addr(1000), 500, IBV_ACCESS_REMOTE_READ};
    uint32_t key = ibv_inc_rkey(mw->rkey);
    fill(remote.at(0), kSize, 4);
    ibv_wr_start(server);
    server->wr_id = 1;
    server->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(server, mw.get(), key, &info);
    ASSERT_EQ(ibv_wr_complete(server), 0);
    expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);
    pair.c().read(2, {local.sge(0, 500)}, remote.addr(1000), key);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, 500);
    expect_pattern(local.at(0), 500, 4, 1000);
    ibv_wr_start(server);
    server->wr_id = 3;
    ibv_wr_local_inv(server, key);
    ASSERT_EQ(ibv_wr_complete(server), 0);
    expect_success(pair.s().scq(), 3, IBV_WC_LOCAL_INV);
    pair.c().read(4, {local.sge(0, 500)}, remote.addr(1000), key);
    expect_wc(pair.c().scq(), 4, IBV_WC_REM_ACCESS_ERR);
}

/* With an error nothing of the list is posted, and the QP goes on. */
TEST_F(Wr, ErrorsAndAbort) {
    auto some = [&] {
        begin(1);
        ibv_wr_rdma_write(qpx, remote.rkey(), remote.addr());
        ibv_wr_set_sge(qpx, local.lkey(), local.addr(), 10);
    };
    local.buffer.set(0xff);
    ibv_wr_start(qpx);
    some();
    ibv_wr_send(qpx);
    ibv_wr_set_inline_data(qpx, local.at(0), pair.c().cap().max_inline_data + 1);
    some();
    EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
    ibv_wr_start(qpx);
    some();
    begin(2);
    ibv_wr_send_imm(qpx, 1);
    ibv_wr_set_sge(qpx, local.lkey(), local.addr(), 1);
    EXPECT_EQ(ibv_wr_complete(qpx), EOPNOTSUPP);
    ibv_wr_start(qpx);
    for (uint32_t i = 0; i <= pair.c().cap().max_send_wr; i++)
        some();
    EXPECT_EQ(ibv_wr_complete(qpx), ENOMEM);
    ibv_wr_start(qpx);
    some();
    ibv_wr_abort(qpx);
    expect_works(pair);
    expect_value(remote.at(0), kSize, 0);
    ibv_wr_start(qpx);
    for (uint32_t i = 0; i < pair.c().cap().max_send_wr; i++)
        some();
    EXPECT_EQ(ibv_wr_complete(qpx), 0) << "the whole queue is free";
    for (uint32_t i = 0; i < pair.c().cap().max_send_wr; i++)
        expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
}

/* Both ways of posting, one after the other, on one QP. */
TEST_F(Wr, MixedWithPostSend) {
    for (uint64_t i = 0; i < 200; i++) {
        pair.s().recv(i, {});
        if (i % 2 == 0) {
            ibv_wr_start(qpx);
            begin(i);
            ibv_wr_send(qpx);
            ASSERT_EQ(ibv_wr_complete(qpx), 0);
        } else {
            pair.c().send(i, {});
        }
        expect_success(pair.s().rcq(), i, IBV_WC_RECV, 0);
        expect_success(pair.c().scq(), i, IBV_WC_SEND);
    }
}

TEST_F(Wr, FlushedInError) {
    pair.s().disconnect();
    pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_state(pair.c().qp(), IBV_QPS_ERR);
    ibv_wr_start(qpx);
    begin(8);
    ibv_wr_rdma_read(qpx, 0, 0);
    ibv_wr_set_sge(qpx, 0, 0, 10);
    ASSERT_EQ(ibv_wr_complete(qpx), 0);
    expect_wc(pair.c().scq(), 8, IBV_WC_WR_FLUSH_ERR);
}

/* Completion queues ----------------------------------------------------------- */

struct CqExDestroyer {
    void operator()(ibv_cq_ex *cq) const {
        report_destroy(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
    }
};
using CqEx = std::unique_ptr<ibv_cq_ex, CqExDestroyer>;

constexpr uint64_t kWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} + IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;

CqEx create_cq_ex(ibv_context *context, uint32_t entries, uint64_t flags = kWcFlags) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = entries;
    attr.wc_flags = flags;
    return CqEx(ibv_create_cq_ex(context, &attr));
}

/* The server's receive CQ is an extended one. */
class PollEx : public testing::Test {
  protected:
    static std::unique_ptr<Pair> connect(ibv_cq_ex *cq) {
        if (cq == nullptr)
            fail("ibv_create_cq_ex");
        PairOptions options;
        options.server.recv_cq = ibv_cq_ex_to_cq(cq);
        return std::make_unique<Pair>(options);
    }
    /* Waits until there is something to poll; then the CQ is locked. */
    void start() {
        ibv_poll_cq_attr attr{};
        int error = ENOENT;
        ASSERT_TRUE(
            eventually([&] { return (error = ibv_start_poll(cq.get(), &attr)) != ENOENT; }));
        ASSERT_EQ(error, 0);
    }
    void message(uint64_t id, size_t length = 0) {
        Region from(pair->c().pd(), 4096);
        pair->s().recv(id, {to.all()});
        pair->c().send(id, {from.sge(0, length)});
        expect_success(pair->c().scq(), id, IBV_WC_SEND);
    }

    CqEx cq{create_cq_ex(cm_context(config().peer_dev), 100)};
    std::unique_ptr<Pair> pair{connect(cq.get())};
    Region to{pair->s().pd(), 4096};
};

uint64_t monotonic() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

TEST(CqEx, RefusesWhatThereIsNot) {
    Context context = open_device(config().dev);
    for (uint64_t flag : {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO,
                          IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK}) {
        errno = 0;
        EXPECT_EQ(create_cq_ex(context.get(), 10, flag), nullptr) << flag;
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 10;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    EXPECT_EQ(CqEx(ibv_create_cq_ex(context.get(), &attr)), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    CqEx single(ibv_create_cq_ex(context.get(), &attr));
    EXPECT_NE(single, nullptr);
    EXPECT_EQ(create_cq_ex(context.get(), 0), nullptr);
    EXPECT_EQ(create_cq_ex(context.get(), 1U << 30), nullptr);
}

TEST_F(PollEx, FieldsOfEachKind) {
    ibv_poll_cq_attr attr{};
    EXPECT_EQ(ibv_start_poll(cq.get(), &attr), ENOENT);
    attr.comp_mask = 1;
    EXPECT_EQ(ibv_start_poll(cq.get(), &attr), EINVAL);

    Region from(pair->c().pd(), 4096);
    for (uint64_t i = 0; i < 3; i++)
        pair->s().recv(i, {to.all()});
    pair->c().send(1, {from.sge(0, 123)});
    pair->c().post(SendWr::write_imm(2, {from.sge(0, 77)}, to.addr(), to.rkey(), 0x01020304));
    pair->c().post(SendWr::send_imm(3, 0x05060708));
    for (uint64_t i = 1; i < 4; i++)
        next_wc(pair->c().scq());

    uint64_t id = 0;
    uint32_t qp_num = pair->s().qp()->qp_num;
    auto look = [&](ibv_wc_opcode opcode, uint32_t length, unsigned flags) {
        EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
        EXPECT_EQ(cq->wr_id, id++);
        EXPECT_EQ(ibv_wc_read_opcode(cq.get()), opcode);
        EXPECT_EQ(ibv_wc_read_byte_len(cq.get()), length);
        EXPECT_EQ(ibv_wc_read_wc_flags(cq.get()), flags);
        EXPECT_EQ(ibv_wc_read_qp_num(cq.get()), qp_num);
        EXPECT_EQ(ibv_wc_read_vendor_err(cq.get()), 0U);
        EXPECT_EQ(ibv_wc_read_src_qp(cq.get()), 0U);
        EXPECT_EQ(ibv_wc_read_slid(cq.get()), 0U);
        EXPECT_EQ(ibv_wc_read_sl(cq.get()), 0U);
        EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq.get()), 0U);
    };
    /* They may come in one go or one by one. */
    auto next = [&] {
        if (ibv_next_poll(cq.get()) == 0)
            return;
        ibv_end_poll(cq.get());
        start();
    };
    start();
    look(IBV_WC_RECV, 123, 0);
    next();
    look(IBV_WC_RECV_RDMA_WITH_IMM, 77, IBV_WC_WITH_IMM);
    EXPECT_EQ(ntohl(ibv_wc_read_imm_data(cq.get())), 0x01020304U);
    next();
    look(IBV_WC_RECV, 0, IBV_WC_WITH_IMM);
    EXPECT_EQ(ntohl(ibv_wc_read_imm_data(cq.get())), 0x05060708U);
    EXPECT_EQ(ibv_next_poll(cq.get()), ENOENT);
    ibv_end_poll(cq.get());
}

/* Stamped when they came, in the unit of the device's clock, which can be read. */
TEST_F(PollEx, Timestamps) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(pair->s().context(), nullptr, &attr), 0);
    EXPECT_EQ(attr.completion_timestamp_mask, ~uint64_t{0});
    EXPECT_EQ(attr.hca_core_clock, 1000000U) << "kHz";
    uint64_t last = 0;
    for (uint64_t i = 0; i < 20; i++) {
        ibv_values_ex clock{};
        clock.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        uint64_t before = monotonic();
        ASSERT_EQ(ibv_query_rt_values_ex(pair->s().context(), &clock), 0);
        EXPECT_EQ(clock.comp_mask, unsigned{IBV_VALUES_MASK_RAW_CLOCK});
        EXPECT_EQ(clock.raw_clock.tv_sec, 0);
        EXPECT_GE(static_cast<uint64_t>(clock.raw_clock.tv_nsec), before);
        message(i, 10);
        start();
        uint64_t stamp = ibv_wc_read_completion_ts(cq.get());
        ibv_end_poll(cq.get());
        EXPECT_GE(stamp, static_cast<uint64_t>(clock.raw_clock.tv_nsec));
        EXPECT_LE(stamp, monotonic());
        EXPECT_GE(stamp, last);
        last = stamp;
    }
}

/* More than the ring holds, in one go of next_poll. */
TEST_F(PollEx, ManyInOneGo) {
    const uint64_t kCount = 3 * static_cast<uint64_t>(cq->cqe);
    uint64_t seen = 0;
    message(seen);
    start();
    for (;;) {
        EXPECT_EQ(cq->wr_id, seen);
        EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
        if (++seen == kCount)
            break;
        message(seen);
        ASSERT_TRUE(eventually([&] { return ibv_next_poll(cq.get()) == 0; })) << seen;
    }
    ibv_end_poll(cq.get());
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(cq.get()), 1, &wc), 0);
    expect_qp_state(pair->s().qp(), IBV_QPS_RTS);
}

TEST_F(PollEx, MixedWithPollCq) {
    for (uint64_t i = 0; i < 300; i++) {
        message(i, i);
        if (i % 3 == 0) {
            start();
            EXPECT_EQ(cq->wr_id, i);
            EXPECT_EQ(ibv_wc_read_byte_len(cq.get()), i);
            ibv_end_poll(cq.get());
        } else {
            expect_success(ibv_cq_ex_to_cq(cq.get()), i, IBV_WC_RECV, static_cast<int64_t>(i));
        }
    }
}

TEST_F(PollEx, Failures) {
    pair->s().recv(5, {});
    pair->c().disconnect();
    start();
    EXPECT_EQ(cq->wr_id, 5U);
    EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
    ibv_end_poll(cq.get());
}

TEST_F(PollEx, Resized) {
    for (uint64_t i = 0; i < 30; i++)
        message(i);
    ASSERT_TRUE(eventually([&] { return ibv_resize_cq(ibv_cq_ex_to_cq(cq.get()), 500) == 0; }));
    for (uint64_t i = 0; i < 30; i++) {
        start();
        EXPECT_EQ(cq->wr_id, i);
        EXPECT_NE(ibv_wc_read_completion_ts(cq.get()), 0U);
        ibv_end_poll(cq.get());
    }
}

/* Without the flag nothing is stamped; the plain CQ stays as it was. */
TEST(CqEx, EventsAsWithAnyOther) {
    ibv_context *context = cm_context(config().peer_dev);
    CompChannel channel = create_channel(context);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 10;
    attr.channel = channel.get();
    attr.cq_context = &attr;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    CqEx cq(ibv_create_cq_ex(context, &attr));
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(cq->cq_context, &attr);
    PairOptions options;
    options.server.recv_cq = ibv_cq_ex_to_cq(cq.get());
    Pair pair(options);
    for (uint64_t i = 0; i < 5; i++) {
        ASSERT_EQ(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq.get()), 0), 0);
        pair.s().recv(i, {});
        pair.c().send(i, {});
        EXPECT_EQ(next_cq_event(channel.get()), ibv_cq_ex_to_cq(cq.get()));
        expect_success(ibv_cq_ex_to_cq(cq.get()), i, IBV_WC_RECV, 0);
    }
    pair.drop_server();
}

/* Domains ---------------------------------------------------------------------------- */

/* A thread domain and a parent domain of a PD with it, on the server's side. */
struct Domains {
    Domains() {
        ibv_td_init_attr td_attr{};
        td = ibv_alloc_td(context, &td_attr);
        require(td != nullptr, "ibv_alloc_td");
        parent = alloc_parent();
        require(parent != nullptr, "ibv_alloc_parent_domain");
    }
    ~Domains() {
        parent.reset();
        if (td != nullptr) {
            EXPECT_EQ(ibv_dealloc_td(td), 0);
        }
    }
    Domains(const Domains &) = delete;
    Domains &operator=(const Domains &) = delete;
    Pd alloc_parent() const {
        ibv_parent_domain_init_attr attr{};
        attr.pd = pd.get();
        attr.td = td;
        return Pd(ibv_alloc_parent_domain(context, &attr));
    }

    ibv_context *context = cm_context(config().peer_dev);
    Pd pd = alloc_pd(context);
    ibv_td *td = nullptr;
    Pd parent;
};

/* Regions of the PD are those of the parent domain, and the other way round. */
TEST(ParentDomain, IsItsPd) {
    Domains domains;
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD | IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    attr.parent_domain = domains.parent.get();
    CqEx cq(ibv_create_cq_ex(domains.context, &attr));
    ASSERT_NE(cq, nullptr);
    Srq srq = create_srq(domains.parent.get(), 16, 1);
    for (ibv_pd *of_qp : {domains.parent.get(), domains.pd.get()})
        for (ibv_pd *of_region : {domains.pd.get(), domains.parent.get()}) {
            PairOptions options;
            options.server.pd = of_qp;
            options.server.srq = srq.get();
            options.server.recv_cq = ibv_cq_ex_to_cq(cq.get());
            Pair pair(options);
            Region from(pair.c().pd(), 4096), to(of_region, 4096);
            Mw window(ibv_alloc_mw(of_qp, IBV_MW_TYPE_1));
            EXPECT_NE(window, nullptr);
            fill(from.at(0), 4096, 3);
            ASSERT_EQ(post_srq_recv(srq.get(), 7, {to.sge(0, 1000)}), 0);
            pair.c().send(1, {from.sge(0, 1000)});
            expect_success(ibv_cq_ex_to_cq(cq.get()), 7, IBV_WC_RECV, 1000);
            expect_success(pair.c().scq(), 1, IBV_WC_SEND);
            pair.c().write(2, {from.sge(1000, 3096)}, to.addr(1000), to.rkey());
            expect_success(pair.c().scq(), 2, IBV_WC_RDMA_WRITE);
            expect_pattern(to.at(0), 4096, 3);
        }
}

/* What is in use stays. */
TEST(ParentDomain, KeepsItsParts) {
    Domains domains;
    Pd other = domains.alloc_parent();
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(domains.pd.get()), EBUSY);
    EXPECT_EQ(ibv_dealloc_td(domains.td), EBUSY);
    other.reset();
    EXPECT_EQ(ibv_dealloc_td(domains.td), EBUSY) << "of the first one";
    domains.parent.reset();
    EXPECT_EQ(ibv_dealloc_td(domains.td), 0);
    domains.td = nullptr;
    Region still(domains.pd.get(), 4096);
}

TEST(ParentDomain, RefusesWhatThereIsNot) {
    Domains domains;
    Context another = open_device(config().dev);
    auto error_of = [&](ibv_context *context, ibv_pd *pd, uint32_t comp_mask) {
        ibv_parent_domain_init_attr attr{};
        attr.pd = pd;
        attr.comp_mask = comp_mask;
        errno = 0;
        Pd parent(ibv_alloc_parent_domain(context, &attr));
        return parent ? 0 : errno;
    };
    EXPECT_EQ(error_of(domains.context, domains.pd.get(), 0), 0) << "without a thread domain";
    EXPECT_EQ(error_of(domains.context, nullptr, 0), EINVAL);
    EXPECT_EQ(error_of(another.get(), domains.pd.get(), 0), EINVAL);
    EXPECT_EQ(error_of(domains.context, domains.pd.get(), IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT),
              0);
    EXPECT_EQ(error_of(domains.context, domains.pd.get(), IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS),
              EOPNOTSUPP);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    for (ibv_pd *pd : {static_cast<ibv_pd *>(nullptr), domains.pd.get()}) {
        attr.parent_domain = pd;
        errno = 0;
        EXPECT_EQ(CqEx(ibv_create_cq_ex(domains.context, &attr)), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

} // namespace
