// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Shared receive queues: many QPs on one, its events, and its end. */
#include <cerrno>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

constexpr size_t kSlot = 16 * 1024;

/* What the servers of several connections have in common. */
struct Shared {
    explicit Shared(uint32_t wr, uint32_t limit = 0)
        : context(cm_context(config().peer_dev)), pd(alloc_pd(context)),
          cq(create_cq(context, 4096)), srq(create_srq(pd.get(), wr, 2, limit)),
          memory(pd.get(), wr * kSlot) {
        memory.buffer.set(0);
    }
    ~Shared() { forget_async(srq.get()); }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;

    std::unique_ptr<Pair> connect() {
        PairOptions options;
        options.server.recv_wr = 0;
        options.server.pd = pd.get();
        options.server.recv_cq = cq.get();
        options.server.srq = srq.get();
        return std::make_unique<Pair>(options);
    }
    /* The request with number i has slot i of the memory, in two pieces. */
    void post(uint64_t i) {
        ASSERT_EQ(
            post_srq_recv(srq.get(), i,
                          {memory.sge(i * kSlot, 100), memory.sge(i * kSlot + 100, kSlot - 100)}),
            0);
    }
    ibv_srq_attr query() const {
        ibv_srq_attr attr{};
        EXPECT_EQ(ibv_query_srq(srq.get(), &attr), 0);
        return attr;
    }

    ibv_context *context;
    Pd pd;
    Cq cq;
    Srq srq;
    Region memory;
};

TEST(Srq, AttributesAndLimits) {
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
    EXPECT_GE(device.max_srq, 1024);
    EXPECT_GE(device.max_srq_wr, 4096);
    EXPECT_GE(device.max_srq_sge, 32);

    ibv_srq_init_attr init{};
    init.attr = {100, 3, 7};
    Srq srq(ibv_create_srq(pd.get(), &init));
    ASSERT_NE(srq, nullptr);
    EXPECT_GE(init.attr.max_wr, 100U);
    EXPECT_GE(init.attr.max_sge, 3U);
    ibv_srq_attr attr{};
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    EXPECT_EQ(attr.max_wr, init.attr.max_wr);
    EXPECT_EQ(attr.max_sge, init.attr.max_sge);
    EXPECT_EQ(attr.srq_limit, 7U);

    attr.srq_limit = 50;
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    EXPECT_EQ(attr.srq_limit, 50U);
    attr.srq_limit = attr.max_wr + 1;
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), EINVAL);
    attr.max_wr *= 2;
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);

    auto error_of = [&](ibv_srq_attr wanted) {
        ibv_srq_init_attr bad{};
        bad.attr = wanted;
        errno = 0;
        Srq none(ibv_create_srq(pd.get(), &bad));
        return none ? 0 : errno;
    };
    EXPECT_EQ(error_of({0, 1, 0}), EINVAL);
    EXPECT_EQ(error_of({static_cast<uint32_t>(device.max_srq_wr) + 1, 1, 0}), EINVAL);
    EXPECT_EQ(error_of({8, static_cast<uint32_t>(device.max_srq_sge) + 1, 0}), EINVAL);
    EXPECT_EQ(error_of({8, 1, 9}), EINVAL);
    EXPECT_EQ(error_of({8, static_cast<uint32_t>(device.max_srq_sge), 8}), 0);
}

TEST(Srq, FullAndBadRequests) {
    Shared shared(8);
    ibv_srq_attr attr = shared.query();
    SgList too_many(attr.max_sge + 1, shared.memory.sge(0, 1));
    EXPECT_EQ(post_srq_recv(shared.srq.get(), 0, too_many), EINVAL);
    std::vector<ibv_recv_wr> list(attr.max_wr + 1);
    for (size_t i = 0; i < list.size(); i++) {
        list[i].wr_id = i;
        list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
    }
    ibv_recv_wr *bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(shared.srq.get(), list.data(), &bad), ENOMEM);
    EXPECT_EQ(bad, &list.back());

    /* Places become free one by one, in order. */
    auto pair = shared.connect();
    for (uint64_t i = 0; i < 3 * attr.max_wr; i++) {
        pair->c().send(i, {});
        expect_success(shared.cq.get(), i, IBV_WC_RECV, 0);
        expect_success(pair->c().scq(), i, IBV_WC_SEND);
        ASSERT_EQ(post_srq_recv(shared.srq.get(), i + attr.max_wr, {}), 0);
        EXPECT_EQ(post_srq_recv(shared.srq.get(), 99, {}), ENOMEM);
    }
}

/* A QP on one has no receive queue of its own. */
TEST(Srq, QpTakesNoReceives) {
    Shared shared(4);
    auto pair = shared.connect();
    ibv_qp *qp = pair->s().qp();
    EXPECT_EQ(qp->srq, shared.srq.get());
    EXPECT_EQ(post_recv(qp, 1, {}), EINVAL);
    EXPECT_EQ(pair->s().cap().max_recv_wr, 0U);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
    EXPECT_EQ(init.srq, shared.srq.get());
    EXPECT_EQ(ibv_destroy_srq(shared.srq.get()), EBUSY) << "as long as a QP uses it";
}

/* Each message is whole, in its connection's order, in the slot that its completion names. */
TEST(Srq, ManyQps) {
    const unsigned kQps = 12;
    const uint64_t kEach = full_or_quick<uint64_t>(200, 40);
    const uint64_t kSlots = 32;
    Shared shared(kSlots);
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<std::unique_ptr<Region>> sources;
    std::map<uint32_t, unsigned> by_number;
    for (unsigned q = 0; q < kQps; q++) {
        pairs.push_back(shared.connect());
        sources.push_back(std::make_unique<Region>(pairs[q]->c().pd(), 4 * kSlot));
        by_number[pairs[q]->s().qp()->qp_num] = q;
    }
    ASSERT_EQ(by_number.size(), kQps);
    for (uint64_t i = 0; i < kSlots; i++)
        shared.post(i);

    auto seed = [](unsigned q, uint64_t n) { return 1000 * q + n; };
    auto length = [](unsigned q, uint64_t n) { return (q * 977 + n * 331) % kSlot; };
    std::vector<uint64_t> sent(kQps), received(kQps);
    Random random(7);
    uint64_t credits = kSlots, total = 0;
    while (total < kQps * kEach) {
        /* As many as there are slots, over connections in no order. */
        unsigned q = static_cast<unsigned>(random.below(kQps));
        if (credits > 0 && sent[q] < kEach && sent[q] - received[q] < 4) {
            uint64_t n = sent[q]++;
            size_t at = n % 4 * kSlot;
            fill(sources[q]->at(at), length(q, n), seed(q, n));
            pairs[q]->c().send(n, {sources[q]->sge(at, length(q, n))});
            credits--;
            continue;
        }
        std::optional<ibv_wc> wc = try_wc(shared.cq.get());
        if (!wc && credits == 0)
            wc = next_wc(shared.cq.get());
        if (!wc)
            continue;
        ASSERT_EQ(wc->status, IBV_WC_SUCCESS) << wc_text(*wc);
        ASSERT_EQ(wc->opcode, IBV_WC_RECV);
        ASSERT_EQ(by_number.count(wc->qp_num), 1U);
        unsigned from = by_number[wc->qp_num];
        uint64_t n = received[from]++;
        ASSERT_EQ(wc->byte_len, length(from, n)) << "message " << n << " of " << from;
        expect_pattern(shared.memory.at(wc->wr_id * kSlot), wc->byte_len, seed(from, n), 0,
                       fmt::format("message {} of {}", n, from));
        ASSERT_FALSE(testing::Test::HasFailure());
        expect_success(pairs[from]->c().scq(), n, IBV_WC_SEND);
        shared.post(wc->wr_id);
        credits++;
        total++;
    }
    expect_quiet(shared.cq.get());
    sources.clear();
}

TEST(Srq, LimitEventOnce) {
    Shared shared(16, 4);
    auto pair = shared.connect();
    auto is_ours = [&](const AsyncEvent &e) { return e.element == shared.srq.get(); };
    auto take = [&](uint64_t count) {
        for (uint64_t i = 0; i < count; i++) {
            pair->c().send(i, {});
            next_wc(shared.cq.get());
            expect_success(pair->c().scq(), i, IBV_WC_SEND);
        }
    };
    for (uint64_t i = 0; i < 8; i++)
        shared.post(i);
    take(4);
    EXPECT_FALSE(wait_async(shared.context, is_ours, Deadline(milliseconds(30))))
        << "four are left, not fewer";
    EXPECT_EQ(shared.query().srq_limit, 4U);
    take(1);
    expect_srq_event(shared.srq.get(), IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(shared.query().srq_limit, 0U) << "disarmed";
    take(2);
    EXPECT_FALSE(wait_async(shared.context, is_ours, Deadline(milliseconds(30)))) << "once";

    /* Armed anew, and enough posted, it comes again. */
    for (uint64_t i = 0; i < 8; i++)
        shared.post(i);
    ibv_srq_attr attr{};
    attr.srq_limit = 9;
    ASSERT_EQ(ibv_modify_srq(shared.srq.get(), &attr, IBV_SRQ_LIMIT), 0);
    take(1);
    expect_srq_event(shared.srq.get(), IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_FALSE(wait_async(shared.context, is_ours, Deadline(milliseconds(30))));
}

/* Nothing posted is the sender's fault, and costs that connection alone. */
TEST(Srq, EmptyQueue) {
    Shared shared(4);
    auto pair = shared.connect();
    auto other = shared.connect();
    pair->c().recv(60, {});
    pair->c().send(1, {});
    expect_success(pair->c().scq(), 1, IBV_WC_SEND);
    expect_wc(pair->c().rcq(), 60, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(pair->c().qp(), {IBV_EVENT_QP_FATAL});
    pair->c().expect(RDMA_CM_EVENT_DISCONNECTED);
    pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_state(pair->s().qp(), IBV_QPS_ERR);

    shared.post(2);
    other->c().send(7, {});
    expect_success(shared.cq.get(), 2, IBV_WC_RECV, 0);
    expect_success(other->c().scq(), 7, IBV_WC_SEND);
}

/* RFC 5040 s. 5.3: a message too long for the request that it got. */
TEST(Srq, MessageTooLong) {
    Shared shared(4);
    auto pair = shared.connect();
    Region from(pair->c().pd(), kSlot);
    ASSERT_EQ(post_srq_recv(shared.srq.get(), 9, {shared.memory.sge(0, 10)}), 0);
    pair->c().send(1, {from.sge(0, 11)});
    ibv_wc wc = expect_wc(shared.cq.get(), 9, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(wc.qp_num, pair->s().qp()->qp_num);
    expect_success(pair->c().scq(), 1, IBV_WC_SEND);
    pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
}

TEST(Srq, LastWqeEvent) {
    Shared shared(8);
    auto pair = shared.connect();
    auto other = shared.connect();
    for (uint64_t i = 0; i < 4; i++)
        shared.post(i);
    ibv_qp *qp = pair->s().qp();
    pair->c().disconnect();
    pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_event(qp, {IBV_EVENT_QP_LAST_WQE_REACHED});
    expect_quiet(shared.cq.get());
    /* Once, whatever happens to the QP then. */
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    EXPECT_FALSE(wait_async(
        shared.context, [&](const AsyncEvent &e) { return e.element == qp; },
        Deadline(milliseconds(30))));

    /* What is posted is still there for others. */
    for (uint64_t i = 0; i < 4; i++) {
        other->c().send(i, {});
        expect_success(shared.cq.get(), i, IBV_WC_RECV, 0);
        expect_success(other->c().scq(), i, IBV_WC_SEND);
    }
}

/* A message under way when the connection ends takes its request along, with a flush. */
TEST(Srq, CutInTheMiddleOfAMessage) {
    const size_t kLong = 8 << 20;
    Shared shared(4);
    auto pair = shared.connect();
    Region from(pair->c().pd(), kLong);
    Region to(shared.pd.get(), kLong);
    auto other = shared.connect();
    fill(from.at(0), kLong, 1);
    ASSERT_EQ(post_srq_recv(shared.srq.get(), 1, {to.all()}), 0);
    ASSERT_EQ(post_srq_recv(shared.srq.get(), 2, {to.all()}), 0);
    pair->c().send(1, {from.all()});
    /* Its first octets are there. */
    ASSERT_TRUE(eventually([&] { return *static_cast<volatile uint8_t *>(to.at(1)) != 0; }));
    pair->c().destroy_qp();
    ibv_wc wc = next_wc(shared.cq.get());
    EXPECT_EQ(wc.wr_id, 1U);
    EXPECT_TRUE(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_SUCCESS) << wc_text(wc);
    pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
    other->c().send(5, {});
    expect_success(shared.cq.get(), 2, IBV_WC_RECV, 0);
}

/*
 * Destroyed under load, a QP takes along what it has taken, and leaves the queue in
 * order for the others.  All messages are the same, as nobody knows which requests
 * are gone.
 */
TEST(Srq, QpsComeAndGo) {
    const uint64_t kSlots = 64;
    Shared shared(kSlots);
    auto stays = shared.connect();
    Region from(stays->c().pd(), kSlot);
    fill(from.at(0), kSlot, 3);
    uint64_t next = 0;
    auto post_all = [&] {
        for (;; next++) {
            uint64_t slot = next % kSlots;
            int error =
                post_srq_recv(shared.srq.get(), slot, {shared.memory.sge(slot * kSlot, kSlot)});
            if (error == ENOMEM)
                return;
            ASSERT_EQ(error, 0);
        }
    };
    for (unsigned round = 0; round < full_or_quick(20U, 6U); round++) {
        SCOPED_TRACE(round);
        post_all();
        auto goes = shared.connect();
        Region source(goes->c().pd(), kSlot);
        fill(source.at(0), kSlot, 3);
        for (uint64_t i = 0; i < 16; i++)
            goes->c().send(i, {source.all()});
        stays->c().send(round, {from.all()});
        if (round % 2 == 0)
            goes->s().destroy_qp();
        else
            goes->c().destroy_qp();
        for (bool got = false; !got;) {
            ibv_wc wc = next_wc(shared.cq.get());
            got = wc.qp_num == stays->s().qp()->qp_num;
            if (wc.status != IBV_WC_SUCCESS) {
                ASSERT_FALSE(got) << wc_text(wc);
                continue;
            }
            ASSERT_EQ(wc.byte_len, kSlot);
            expect_pattern(shared.memory.at(wc.wr_id * kSlot), kSlot, 3);
        }
        expect_success(stays->c().scq(), round, IBV_WC_SEND);
        goes->s().destroy_qp();
        while (try_wc(shared.cq.get()))
            ;
        ASSERT_FALSE(testing::Test::HasFailure());
    }
}

/* A receive that nobody may use is its owner's mistake, found when it is used. */
TEST(Srq, RequestOfAnotherPd) {
    Shared shared(4);
    auto pair = shared.connect();
    Pd foreign = alloc_pd(shared.context);
    Region memory(foreign.get(), 4096);
    Region from(pair->c().pd(), 4096);
    ASSERT_EQ(post_srq_recv(shared.srq.get(), 3, {memory.all()}), 0);
    pair->c().send(1, {from.sge(0, 100)});
    expect_wc(shared.cq.get(), 3, IBV_WC_LOC_PROT_ERR);
    pair->s().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_value(memory.at(0), 4096, 0);
}

} // namespace
