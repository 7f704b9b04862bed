// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: events, arming, sizes, overflow, sharing. */
#include <cerrno>
#include <chrono>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

const QpOptions kWithEvents{.events = true};

/* A zero-length message to the server; its completion stays in the CQ. */
void message(Pair &pair, uint64_t id, unsigned flags = 0) {
    pair.s().recv(id, {});
    pair.c().send(id, {}, IBV_SEND_SIGNALED | flags);
    expect_success(pair.c().scq(), id, IBV_WC_SEND);
}

TEST(CqEvents, NoneUnlessArmed) {
    Pair pair(kWithEvents, veth4());
    message(pair, 1);
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 0);
    EXPECT_TRUE(no_cq_event(pair.s().completions()));
}

TEST(CqEvents, OnePerArming) {
    Pair pair(kWithEvents, veth4());
    for (uint64_t i = 0; i < 20; i++) {
        ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 0), 0);
        message(pair, 2 * i);
        EXPECT_EQ(next_cq_event(pair.s().completions()), pair.s().rcq());
        message(pair, 2 * i + 1);
        expect_success(pair.s().rcq(), 2 * i, IBV_WC_RECV, 0);
        expect_success(pair.s().rcq(), 2 * i + 1, IBV_WC_RECV, 0);
    }
    EXPECT_TRUE(no_cq_event(pair.s().completions()));
}

/* ibv_req_notify_cq(3): the event is for a completion added after the call. */
TEST(CqEvents, ArmedTwiceGivesOne) {
    Pair pair(kWithEvents, veth4());
    ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 0), 0);
    message(pair, 1);
    next_cq_event(pair.s().completions());
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 0);
    EXPECT_TRUE(no_cq_event(pair.s().completions()));
}

TEST(CqEvents, SolicitedOnly) {
    Pair pair(kWithEvents, veth4());
    ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 1), 0);
    message(pair, 1);
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 0);
    EXPECT_TRUE(no_cq_event(pair.s().completions()));
    message(pair, 2, IBV_SEND_SOLICITED);
    EXPECT_EQ(next_cq_event(pair.s().completions()), pair.s().rcq());
    expect_success(pair.s().rcq(), 2, IBV_WC_RECV, 0);
}

/* A request for any completion outranks one for solicited ones. */
TEST(CqEvents, AnyOutranksSolicited) {
    Pair pair(kWithEvents, veth4());
    ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 1), 0);
    message(pair, 1);
    next_cq_event(pair.s().completions());
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, 0);
}

/* Failed completions count as solicited. */
TEST(CqEvents, ErrorWakesSolicited) {
    Pair pair(kWithEvents, veth4());
    pair.s().recv(1, {});
    ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 1), 0);
    pair.drop_client();
    EXPECT_EQ(next_cq_event(pair.s().completions()), pair.s().rcq());
    expect_wc(pair.s().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
}

TEST(CqEvents, SendSide) {
    Pair pair(kWithEvents, veth4());
    Region local(pair.c().pd(), 4096);
    Region remote(pair.s().pd(), 4096);
    for (uint64_t i = 0; i < 10; i++) {
        ASSERT_EQ(ibv_req_notify_cq(pair.c().scq(), 0), 0);
        if (i % 2 == 0)
            pair.c().read(i, {local.all()}, remote.addr(), remote.rkey());
        else
            pair.c().write(i, {local.all()}, remote.addr(), remote.rkey());
        EXPECT_EQ(next_cq_event(pair.c().completions()), pair.c().scq());
        next_wc(pair.c().scq());
    }
}

/* Arm, poll, sleep: no completion may slip between. */
TEST(CqEvents, PingPongAsleep) {
    Pair pair(kWithEvents, veth4());
    auto wait = [](Endpoint &end, uint64_t id) {
        for (;;) {
            if (std::optional<ibv_wc> wc = try_wc(end.rcq())) {
                ASSERT_EQ(wc->status, IBV_WC_SUCCESS);
                ASSERT_EQ(wc->wr_id, id);
                return;
            }
            ASSERT_EQ(ibv_req_notify_cq(end.rcq(), 0), 0);
            if (std::optional<ibv_wc> wc = try_wc(end.rcq())) {
                ASSERT_EQ(wc->status, IBV_WC_SUCCESS);
                ASSERT_EQ(wc->wr_id, id);
                return;
            }
            next_cq_event(end.completions());
        }
    };
    for (uint64_t i = 0; i < full_or_quick<uint64_t>(2000, 200); i++) {
        SCOPED_TRACE(i);
        pair.c().recv(i, {});
        pair.s().recv(i, {});
        pair.c().send(i, {});
        wait(pair.s(), i);
        pair.s().send(i, {});
        wait(pair.c(), i);
        expect_success(pair.c().scq(), i, IBV_WC_SEND);
        expect_success(pair.s().scq(), i, IBV_WC_SEND);
        if (HasFatalFailure())
            return;
    }
}

TEST(CqEvents, EveryVector) {
    Context context = open_device(config().dev);
    int vectors = context->num_comp_vectors;
    for (int vector = 0; vector < vectors; vector++) {
        QpOptions options = kWithEvents;
        options.vector = vector;
        Pair pair(options, veth4());
        ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 0), 0);
        message(pair, 1);
        EXPECT_EQ(next_cq_event(pair.s().completions()), pair.s().rcq());
    }
}

/* Moderation ------------------------------------------------------------------------ */

int moderate(ibv_cq *cq, uint16_t count, uint16_t period_us) {
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {count, period_us};
    return ibv_modify_cq(cq, &attr);
}

constexpr uint16_t kLong = 65535; /* us, the most that there is */

double since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(CqModeration, IsAnnounced) {
    Context context = open_device(config().dev);
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
    EXPECT_EQ(attr.cq_mod_caps.max_cq_count, 65535);
    EXPECT_EQ(attr.cq_mod_caps.max_cq_period, 65535);
    Cq cq = create_cq(context.get(), 4);
    EXPECT_EQ(moderate(cq.get(), 65535, 65535), 0);
    ibv_modify_cq_attr bad{};
    EXPECT_EQ(ibv_modify_cq(cq.get(), &bad), EINVAL) << "nothing to modify";
    bad.attr_mask = IBV_CQ_ATTR_RESERVED;
    EXPECT_EQ(ibv_modify_cq(cq.get(), &bad), EINVAL);
}

/* The event comes when the period is over, and not before. */
TEST(CqModeration, PeriodEnds) {
    Pair pair(kWithEvents, veth4());
    ibv_cq *cq = pair.s().rcq();
    ASSERT_EQ(moderate(cq, 1000, kLong), 0);
    for (uint64_t i = 0; i < 3; i++) {
        ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
        auto begin = std::chrono::steady_clock::now();
        message(pair, i);
        EXPECT_EQ(next_cq_event(pair.s().completions()), cq);
        EXPECT_GE(since(begin), 0.065);
        expect_success(cq, i, IBV_WC_RECV, 0);
    }
    EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(100))) << "not armed";
}

/* As many as asked for raise it at once, one event for all of them. */
TEST(CqModeration, CountIsReached) {
    Pair pair(kWithEvents, veth4());
    ibv_cq *cq = pair.s().rcq();
    ASSERT_EQ(moderate(cq, 4, kLong), 0);
    unsigned early = 0;
    for (unsigned round = 0; round < 10; round++) {
        ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
        auto begin = std::chrono::steady_clock::now();
        for (uint64_t i = 0; i < 4; i++)
            message(pair, i);
        EXPECT_EQ(next_cq_event(pair.s().completions()), cq);
        early += since(begin) < 0.065;
        for (uint64_t i = 0; i < 4; i++)
            expect_success(cq, i, IBV_WC_RECV, 0);
    }
    EXPECT_GT(early, 0U) << "never before the period ended";
    EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(100)));
}

/* What does not qualify does not count. */
TEST(CqModeration, SolicitedOnly) {
    Pair pair(kWithEvents, veth4());
    ibv_cq *cq = pair.s().rcq();
    ASSERT_EQ(moderate(cq, 2, kLong), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq, 1), 0);
    for (uint64_t i = 0; i < 3; i++)
        message(pair, i);
    EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(100)));
    message(pair, 3, IBV_SEND_SOLICITED);
    EXPECT_EQ(next_cq_event(pair.s().completions()), cq);
    EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(100)));
}

/* A completion that was polled before its event has one nevertheless. */
TEST(CqModeration, PolledMeanwhile) {
    Pair pair(kWithEvents, veth4());
    ibv_cq *cq = pair.s().rcq();
    ASSERT_EQ(moderate(cq, 100, kLong), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    message(pair, 1);
    expect_success(cq, 1, IBV_WC_RECV, 0);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    EXPECT_EQ(next_cq_event(pair.s().completions()), cq);
    EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(100))) << "armed twice, one event";
}

/* Other settings, another ring, or the end of the QP do not lose what is held back. */
TEST(CqModeration, ChangedMeanwhile) {
    ibv_context *context = cm_context(config().peer_dev);
    CompChannel channel = create_channel(context);
    Cq cq = create_cq(context, 64, channel.get());
    PairOptions options;
    options.server.recv_cq = cq.get();
    auto pair = std::make_unique<Pair>(options);
    for (auto [count, period] :
         {std::pair<uint16_t, uint16_t>{0, kLong}, {7, 0}, {0, 0}, {1, 10}}) {
        ASSERT_EQ(moderate(cq.get(), 100, kLong), 0);
        ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
        message(*pair, 1);
        ASSERT_EQ(moderate(cq.get(), count, period), 0);
        EXPECT_EQ(next_cq_event(channel.get()), cq.get());
        expect_success(cq.get(), 1, IBV_WC_RECV, 0);
        ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
        message(*pair, 2);
        EXPECT_EQ(next_cq_event(channel.get()), cq.get()) << "off";
        expect_success(cq.get(), 2, IBV_WC_RECV, 0);
    }
    ASSERT_EQ(moderate(cq.get(), 100, kLong), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    message(*pair, 3);
    ASSERT_EQ(ibv_resize_cq(cq.get(), 500), 0);
    EXPECT_EQ(next_cq_event(channel.get()), cq.get());
    expect_success(cq.get(), 3, IBV_WC_RECV, 0);

    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    message(*pair, 4);
    pair.reset();
    EXPECT_EQ(next_cq_event(channel.get()), cq.get());
}

/* The timer goes with the CQ. */
TEST(CqModeration, GoesWhileHolding) {
    for (unsigned round = 0; round < full_or_quick(60U, 20U); round++) {
        Pair pair(kWithEvents, veth4());
        auto period = static_cast<uint16_t>(1 + round * 50);
        ASSERT_EQ(moderate(pair.s().rcq(), 100, period), 0);
        ASSERT_EQ(moderate(pair.c().scq(), 100, period), 0);
        ASSERT_EQ(ibv_req_notify_cq(pair.s().rcq(), 0), 0);
        ASSERT_EQ(ibv_req_notify_cq(pair.c().scq(), 0), 0);
        pair.s().recv(1, {});
        pair.c().send(1, {});
    }
}

/* Arm, poll, sleep: each message is seen, however few events there are. */
TEST(CqModeration, AsleepUnderLoad) {
    const uint64_t kMessages = full_or_quick<uint64_t>(3000, 500);
    for (auto [count, period] : {std::pair<uint16_t, uint16_t>{8, 200}, {3, 20}, {64, 2000}}) {
        SCOPED_TRACE(count);
        Pair pair(kWithEvents, veth4());
        ibv_cq *cq = pair.s().rcq();
        ASSERT_EQ(moderate(cq, count, period), 0);
        uint64_t posted = 0, sent = 0, completed = 0, received = 0;
        unsigned events = 0;
        auto take = [&] {
            bool any = false;
            for (std::optional<ibv_wc> wc; (wc = try_wc(cq)); any = true) {
                EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
                EXPECT_EQ(wc->wr_id, received++);
            }
            return any;
        };
        while (received < kMessages && !HasFailure()) {
            while (posted < kMessages && posted - received < 32)
                pair.s().recv(posted++, {});
            while (try_wc(pair.c().scq()))
                completed++;
            while (sent < posted && sent - completed < 32)
                pair.c().send(sent++, {});
            if (take() || sent == received)
                continue;
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
            if (take())
                continue;
            next_cq_event(pair.s().completions());
            events++;
        }
        EXPECT_EQ(received, kMessages);
        fmt::print("{} messages, {} waits\n", received, events);
    }
}

TEST(Cq, PollTakesAsManyAsAsked) {
    Pair pair;
    ibv_wc wc[16];
    EXPECT_EQ(ibv_poll_cq(pair.s().rcq(), 16, wc), 0);
    for (uint64_t i = 0; i < 10; i++)
        message(pair, i);
    /* The last message arrived: so did the others. */
    ASSERT_TRUE(eventually([&] { return ibv_poll_cq(pair.s().rcq(), 1, wc) == 1; }));
    EXPECT_EQ(wc[0].wr_id, 0U);
    EXPECT_EQ(ibv_poll_cq(pair.s().rcq(), 0, wc), 0);
    unsigned next = 1;
    ASSERT_TRUE(eventually([&] {
        int got = ibv_poll_cq(pair.s().rcq(), 4, wc);
        EXPECT_LE(got, 4);
        for (int i = 0; i < got; i++)
            EXPECT_EQ(wc[i].wr_id, next++);
        return next == 10;
    }));
    EXPECT_EQ(ibv_poll_cq(pair.s().rcq(), 16, wc), 0);
}

TEST(Cq, GoesRoundManyTimes) {
    PairOptions options;
    options.server.recv_wr = 4;
    options.server.recv_cqe = 4;
    options.client.send_wr = 4;
    options.client.send_cqe = 4;
    Pair pair(options);
    for (uint64_t i = 0; i < full_or_quick<uint64_t>(1000, 200); i++) {
        message(pair, i);
        expect_success(pair.s().rcq(), i, IBV_WC_RECV, 0);
    }
}

/* A CQ that is exactly full has not overflown. */
TEST(Cq, ExactlyFull) {
    PairOptions options;
    options.server.recv_cqe = 8;
    options.server.recv_wr = 256;
    options.client.send_wr = 256;
    Pair pair(options);
    auto entries = static_cast<uint64_t>(pair.s().rcq()->cqe);
    ASSERT_LE(entries, 256U);
    for (uint64_t i = 0; i < entries; i++)
        message(pair, i);
    /* A round trip on the same stream: all receives have completed. */
    Region local(pair.c().pd(), 8), remote(pair.s().pd(), 8);
    pair.c().read(999, {local.all()}, remote.addr(), remote.rkey());
    expect_success(pair.c().scq(), 999, IBV_WC_RDMA_READ);
    for (uint64_t i = 0; i < entries; i++)
        expect_success(pair.s().rcq(), i, IBV_WC_RECV, 0);
    EXPECT_FALSE(wait_async(
                     pair.s().context(),
                     [&](const AsyncEvent &e) { return e.element == pair.s().rcq(); },
                     Deadline(milliseconds(50)))
                     .has_value());
    expect_works(pair);
}

/* One more than fits: IBV_EVENT_CQ_ERR (ibv_poll_cq(3)), and only here. */
TEST(Cq, OverflowOfReceives) {
    Pair bystander;
    {
        PairOptions options;
        options.server.recv_cqe = 8;
        options.server.recv_wr = 512;
        options.client.send_wr = 512;
        Pair pair(options);
        auto entries = static_cast<uint64_t>(pair.s().rcq()->cqe);
        ASSERT_LT(entries, 500U);
        for (uint64_t i = 0; i <= entries; i++)
            pair.s().recv(i, {});
        for (uint64_t i = 0; i <= entries; i++)
            pair.c().send(i, {}, 0);
        expect_cq_event(pair.s().rcq(), IBV_EVENT_CQ_ERR);
    }
    expect_works(bystander);
}

TEST(Cq, OverflowOfSends) {
    Pair bystander;
    {
        PairOptions options;
        options.client.send_cqe = 8;
        options.client.send_wr = 512;
        Pair pair(options);
        auto entries = static_cast<uint64_t>(pair.c().scq()->cqe);
        ASSERT_LT(entries, 500U);
        Region local(pair.c().pd(), 8), remote(pair.s().pd(), 8);
        for (uint64_t i = 0; i <= entries; i++)
            pair.c().write(i, {local.all()}, remote.addr(), remote.rkey());
        expect_cq_event(pair.c().scq(), IBV_EVENT_CQ_ERR);
    }
    expect_works(bystander);
}

/* One CQ for both queues of several QPs; qp_num tells them apart. */
TEST(Cq, Shared) {
    constexpr uint64_t kQps = 8;
    EventChannel channel;
    /* An id bound to the address finds the context that all QPs will use. */
    CmId finder = create_id(channel);
    Address here = address(config().addr4, 0);
    require(rdma_bind_addr(finder.get(), &here.generic) == 0, "rdma_bind_addr");
    Cq cq = create_cq(finder->verbs, 1000);

    std::vector<std::unique_ptr<Pair>> pairs;
    std::map<uint32_t, uint64_t> index_of;
    for (uint64_t i = 0; i < kQps; i++) {
        PairOptions options;
        options.client.send_cq = options.client.recv_cq = cq.get();
        pairs.push_back(std::make_unique<Pair>(options));
        index_of[pairs.back()->c().qp()->qp_num] = i;
    }
    ASSERT_EQ(index_of.size(), kQps) << "QP numbers are not unique";
    for (uint64_t round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < kQps; i++) {
            pairs[i]->c().recv(1000 + i, {});
            pairs[i]->s().recv(i, {});
            pairs[i]->c().send(i, {});
            pairs[i]->s().send(i, {});
        }
        std::map<uint64_t, int> seen;
        for (uint64_t i = 0; i < 2 * kQps; i++) {
            ibv_wc wc = next_wc(cq.get());
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
            ASSERT_TRUE(index_of.contains(wc.qp_num));
            EXPECT_EQ(wc.wr_id % 1000, index_of[wc.qp_num]);
            EXPECT_EQ(wc.opcode, wc.wr_id >= 1000 ? IBV_WC_RECV : IBV_WC_SEND);
            seen[wc.wr_id]++;
        }
        EXPECT_EQ(seen.size(), 2 * kQps);
        for (auto &pair : pairs) {
            next_wc(pair->s().scq());
            next_wc(pair->s().rcq());
        }
    }
    /* Before the CQ. */
    pairs.clear();
}

/* Completions of a destroyed QP never show up later under another's name. */
TEST(Cq, OutlivesItsQp) {
    EventChannel channel;
    CmId finder = create_id(channel);
    Address here = address(config().addr4, 0);
    require(rdma_bind_addr(finder.get(), &here.generic) == 0, "rdma_bind_addr");
    Cq cq = create_cq(finder->verbs, 256);
    for (int i = 0; i < 5; i++) {
        PairOptions options;
        options.client.send_cq = options.client.recv_cq = cq.get();
        Pair pair(options);
        for (uint64_t id = 0; id < 10; id++)
            pair.c().recv(id, {});
        pair.drop_server();
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
        uint32_t number = pair.c().qp()->qp_num;
        for (uint64_t id = 0; id < 10; id++)
            EXPECT_EQ(expect_wc(cq.get(), id, IBV_WC_WR_FLUSH_ERR).qp_num, number);
        pair.drop_client();
        expect_quiet(cq.get(), milliseconds(10));
    }
}

} // namespace
