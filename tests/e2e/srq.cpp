// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Shared receive queues: many QPs on one, its events, and its end. */
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <set>
#include <thread>

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
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR << 2), EOPNOTSUPP);

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

/* Resizing ------------------------------------------------------------------------- */

int resize(const Shared &shared, uint32_t max_wr) {
    ibv_srq_attr attr{};
    attr.max_wr = max_wr;
    return ibv_modify_srq(shared.srq.get(), &attr, IBV_SRQ_MAX_WR);
}

int post_empty(const Shared &shared, uint64_t id) {
    return post_srq_recv(shared.srq.get(), id, {});
}

/* Zero-length messages, which take the requests from this number on. */
void take(Shared &shared, Pair &pair, uint64_t id, uint64_t count = 1) {
    for (uint64_t done = 0; done < count;) {
        uint64_t some = std::min<uint64_t>(16, count - done);
        for (uint64_t i = 0; i < some; i++)
            pair.c().send(i, {});
        for (uint64_t i = 0; i < some; i++) {
            expect_success(shared.cq.get(), id + done + i, IBV_WC_RECV, 0);
            expect_success(pair.c().scq(), i, IBV_WC_SEND);
        }
        done += some;
    }
}

/* Threads that go on until they are told to stop, which is at the latest when a test ends. */
struct Threads {
    ~Threads() { end(); }
    void end() {
        stop = true;
        for (std::thread &thread : all)
            thread.join();
        all.clear();
    }
    std::atomic<bool> stop{false};
    std::vector<std::thread> all;
};

/* The size that it says is the size that it has, whatever it had before. */
TEST(ResizeSrq, HoldsWhatItSays) {
    Shared shared(8);
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(shared.context, &device), 0);
    EXPECT_NE(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0U);
    auto pair = shared.connect();
    auto most = static_cast<uint32_t>(device.max_srq_wr);
    for (uint32_t wanted : {1000U, 1U, 7U, 64U, full_or_quick(most, most / 8), 100U}) {
        SCOPED_TRACE(wanted);
        ASSERT_EQ(resize(shared, wanted), 0);
        uint32_t entries = shared.query().max_wr;
        EXPECT_GE(entries, wanted);
        for (uint64_t i = 0; i < entries; i++)
            ASSERT_EQ(post_empty(shared, i), 0) << i;
        EXPECT_EQ(post_empty(shared, 99), ENOMEM);
        take(shared, *pair, 0, entries);
        ASSERT_FALSE(testing::Test::HasFailure());
    }
}

/* What is refused changes nothing, not even the part that would do. */
TEST(ResizeSrq, BadSizes) {
    Shared shared(16, 10);
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(shared.context, &device), 0);
    ibv_srq_attr before = shared.query();
    auto modify = [&](uint32_t max_wr, uint32_t limit) {
        ibv_srq_attr attr{};
        attr.max_wr = max_wr;
        attr.srq_limit = limit;
        return ibv_modify_srq(shared.srq.get(), &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT);
    };
    EXPECT_EQ(resize(shared, 0), EINVAL);
    EXPECT_EQ(resize(shared, static_cast<uint32_t>(device.max_srq_wr) + 1), EINVAL);
    EXPECT_EQ(resize(shared, ~0U), EINVAL);
    EXPECT_EQ(resize(shared, 8), EINVAL) << "less than the limit";
    EXPECT_EQ(modify(0, 5), EINVAL);
    EXPECT_EQ(modify(64, 65), EINVAL);
    for (uint64_t i = 0; i < 12; i++)
        ASSERT_EQ(post_empty(shared, i), 0);
    EXPECT_EQ(modify(8, 5), EINVAL) << "less than what waits";
    ibv_srq_attr after = shared.query();
    EXPECT_EQ(after.max_wr, before.max_wr);
    EXPECT_EQ(after.srq_limit, 10U);

    auto pair = shared.connect();
    take(shared, *pair, 0, 4);
    expect_srq_event(shared.srq.get(), IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(modify(8, 5), 0) << "as much as waits";
    after = shared.query();
    EXPECT_EQ(after.max_wr, 8U);
    EXPECT_EQ(after.srq_limit, 5U);
    EXPECT_EQ(post_empty(shared, 99), ENOMEM);
    take(shared, *pair, 4, 8);
}

/* Requests that wait go along, in order and with their memory, wherever in the ring they are. */
TEST(ResizeSrq, WithRequestsWaiting) {
    const uint64_t kSlots = 64;
    Shared shared(kSlots);
    auto pair = shared.connect();
    Region from(pair->c().pd(), kSlot);
    uint64_t next = 0, taken = 0;
    for (unsigned round = 0; round < full_or_quick(60U, 20U); round++) {
        SCOPED_TRACE(round);
        /* the ring has 16 entries in every other round */
        while (next - taken < 13)
            shared.post(next++ % kSlots);
        ASSERT_EQ(resize(shared, round % 2 == 0 ? 200 : 16), 0);
        for (uint64_t i = 0; i < 3 + round % 9; i++, taken++) {
            fill(from.at(0), 1000, taken);
            pair->c().send(taken, {from.sge(0, 1000)});
            expect_success(shared.cq.get(), taken % kSlots, IBV_WC_RECV, 1000);
            expect_pattern(shared.memory.at(taken % kSlots * kSlot), 1000, taken);
            expect_success(pair->c().scq(), taken, IBV_WC_SEND);
        }
        ASSERT_FALSE(testing::Test::HasFailure());
    }
}

/* An armed limit goes along, and counts what waits in the new ring. */
TEST(ResizeSrq, StaysArmed) {
    Shared shared(8, 3);
    auto pair = shared.connect();
    auto is_ours = [&](const AsyncEvent &e) { return e.element == shared.srq.get(); };
    for (uint64_t i = 0; i < 8; i++)
        ASSERT_EQ(post_empty(shared, i), 0);
    ASSERT_EQ(resize(shared, 100), 0);
    EXPECT_EQ(shared.query().srq_limit, 3U);
    take(shared, *pair, 0, 5);
    ASSERT_EQ(resize(shared, 4), 0);
    EXPECT_FALSE(wait_async(shared.context, is_ours, Deadline(milliseconds(30))));
    take(shared, *pair, 5);
    expect_srq_event(shared.srq.get(), IBV_EVENT_SRQ_LIMIT_REACHED);
    ASSERT_EQ(resize(shared, 50), 0);
    take(shared, *pair, 6);
    EXPECT_FALSE(wait_async(shared.context, is_ours, Deadline(milliseconds(30)))) << "once";
}

/*
 * Many QPs receive while another thread resizes: no request is lost or taken twice,
 * each QP's messages are whole and in order.
 */
TEST(ResizeSrq, UnderLoad) {
    const unsigned kQps = 6;
    const uint64_t kMessages = full_or_quick<uint64_t>(8000, 1200);
    const uint64_t kSlots = 60, kEach = 8; /* messages of a QP on their way */
    Shared shared(kSlots);
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<std::unique_ptr<Region>> sources;
    std::map<uint32_t, unsigned> by_number;
    for (unsigned q = 0; q < kQps; q++) {
        pairs.push_back(shared.connect());
        sources.push_back(std::make_unique<Region>(pairs[q]->c().pd(), kEach * kSlot));
        by_number[pairs[q]->s().qp()->qp_num] = q;
    }
    std::atomic<unsigned> resized{0}, refused{0};
    Threads threads;
    threads.all.emplace_back([&] {
        for (unsigned i = 0; !threads.stop; i++) {
            int error = resize(shared, std::array{64U, 16U, 1000U, 32U}[i % 4]);
            if (error == 0)
                resized++;
            else
                refused++;
            EXPECT_TRUE(error == 0 || error == EINVAL) << error;
            std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
    });
    auto length = [](unsigned q, uint64_t n) { return (q * 977 + n * 331) % 3000; };
    std::deque<uint64_t> idle; /* slots */
    for (uint64_t i = 0; i < kSlots; i++)
        idle.push_back(i);
    std::map<uint64_t, uint64_t> waiting; /* request to slot */
    std::vector<uint64_t> sent(kQps), received(kQps), last(kQps);
    uint64_t posted = 0, used = 0, total = 0;
    Random random(5);
    Deadline deadline(milliseconds(60000));
    auto receive = [&](const ibv_wc &wc) {
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
        ASSERT_EQ(by_number.count(wc.qp_num), 1U);
        ASSERT_EQ(waiting.count(wc.wr_id), 1U) << "request " << wc.wr_id << " is not waiting";
        unsigned q = by_number[wc.qp_num];
        uint64_t n = received[q]++, slot = waiting[wc.wr_id];
        EXPECT_TRUE(n == 0 || wc.wr_id > last[q]) << "requests are taken in order";
        last[q] = wc.wr_id;
        ASSERT_EQ(wc.byte_len, length(q, n)) << "message " << n << " of " << q;
        expect_pattern(shared.memory.at(slot * kSlot), wc.byte_len, 1000 * q + n);
        expect_success(pairs[q]->c().scq(), n, IBV_WC_SEND);
        waiting.erase(wc.wr_id);
        idle.push_back(slot);
        total++;
    };
    auto send = [&](unsigned q) {
        for (; used < posted && sent[q] - received[q] < kEach; used++) {
            uint64_t n = sent[q]++;
            size_t at = n % kEach * kSlot;
            fill(sources[q]->at(at), length(q, n), 1000 * q + n);
            pairs[q]->c().send(n, {sources[q]->sge(at, length(q, n))});
        }
    };
    while ((total < kMessages || resized < 8) && !deadline.passed() && !HasFailure()) {
        /* few for a while, that it can shrink; a smaller ring takes fewer anyhow */
        uint64_t most = std::array{kSlots, uint64_t{12}, uint64_t{30}}[total / 100 % 3];
        while (waiting.size() < most) {
            uint64_t slot = idle.front();
            int error =
                post_srq_recv(shared.srq.get(), posted, {shared.memory.sge(slot * kSlot, 3000)});
            if (error == ENOMEM)
                break;
            ASSERT_EQ(error, 0);
            waiting[posted++] = slot;
            idle.pop_front();
        }
        send(static_cast<unsigned>(random.below(kQps)));
        while (std::optional<ibv_wc> wc = try_wc(shared.cq.get()))
            receive(*wc);
    }
    /* Those that are left are there, each once. */
    while (!waiting.empty() && !HasFailure()) {
        for (unsigned q = 0; q < kQps; q++)
            send(q);
        receive(next_wc(shared.cq.get()));
    }
    threads.end();
    EXPECT_GE(total, kMessages);
    EXPECT_GE(resized.load(), 8U);
    EXPECT_TRUE(waiting.empty());
    expect_quiet(shared.cq.get());
    fmt::print("{} messages, resized {} times, refused {} times\n", total, resized.load(),
               refused.load());
    sources.clear();
}

/* Threads post, and another one resizes; each request is there once. */
TEST(ResizeSrq, WhileThreadsPost) {
    const uint64_t kThreads = 3, kEach = full_or_quick<uint64_t>(800, 300);
    Shared shared(16);
    auto pair = shared.connect();
    Threads threads;
    threads.all.emplace_back([&] {
        for (unsigned i = 0; !threads.stop; i++) {
            int error = resize(shared, i % 2 == 0 ? 1000 : 20);
            EXPECT_TRUE(error == 0 || error == EINVAL) << error;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    std::atomic<uint64_t> posted{0};
    for (uint64_t t = 0; t < kThreads; t++)
        threads.all.emplace_back([&, t] {
            for (uint64_t i = 0; i < kEach && !threads.stop;) {
                int error = post_empty(shared, t * kEach + i);
                if (error == 0) {
                    i++;
                    posted++;
                } else if (error == ENOMEM) {
                    std::this_thread::yield();
                } else {
                    ADD_FAILURE() << error;
                    return;
                }
            }
        });
    std::vector<uint64_t> next(kThreads);
    uint64_t sent = 0, received = 0;
    while (received < kThreads * kEach && !HasFailure()) {
        while (sent < posted && sent - received < 16)
            pair->c().send(sent++, {});
        if (received == sent) {
            std::this_thread::yield();
            continue;
        }
        ibv_wc wc = next_wc(shared.cq.get());
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
        ASSERT_EQ(wc.wr_id % kEach, next[wc.wr_id / kEach]++) << "in order, each once";
        expect_success(pair->c().scq(), received++, IBV_WC_SEND);
    }
    threads.end();
    EXPECT_EQ(received, kThreads * kEach);
    expect_quiet(shared.cq.get());
}

} // namespace
