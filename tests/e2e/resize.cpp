// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* ibv_resize_cq(3): what waits in a CQ is neither lost nor out of order, nor any event. */
#include <atomic>
#include <cerrno>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"

using namespace softwarp::e2e;

namespace {

/* A zero-length message to the server; its completion stays in the CQ. */
void message(Pair &pair, uint64_t id) {
    pair.s().recv(id, {});
    pair.c().send(id, {});
    expect_success(pair.c().scq(), id, IBV_WC_SEND);
}

/* All of them have come when a last one, which is seen on the other side, has. */
void settle(Pair &pair) {
    Region word(pair.c().pd(), 8), there(pair.s().pd(), 8);
    pair.c().read(99, {word.all()}, there.addr(), there.rkey());
    expect_success(pair.c().scq(), 99, IBV_WC_RDMA_READ);
}

TEST(ResizeCq, Empty) {
    Pair pair;
    ibv_cq *cq = pair.s().rcq();
    for (int entries : {1000, 1, 7, 64, 65536, 100}) {
        ASSERT_EQ(ibv_resize_cq(cq, entries), 0) << entries;
        EXPECT_GE(cq->cqe, entries);
        message(pair, 5);
        expect_success(cq, 5, IBV_WC_RECV, 0);
    }
}

TEST(ResizeCq, BadSizes) {
    Pair pair;
    ibv_cq *cq = pair.s().rcq();
    int before = cq->cqe;
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(pair.s().context(), &attr), 0);
    EXPECT_EQ(ibv_resize_cq(cq, 0), EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, -1), EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, attr.max_cqe + 1), EINVAL);
    EXPECT_EQ(cq->cqe, before);
    expect_works(pair);
}

/* Completions that wait go along, in order, wherever in the ring they are. */
TEST(ResizeCq, WithCompletionsWaiting) {
    for (int entries : {16, 200}) {
        SCOPED_TRACE(entries);
        Pair pair;
        ibv_cq *cq = pair.s().rcq();
        uint64_t next = 0, seen = 0;
        for (unsigned round = 0; round < 30; round++) {
            SCOPED_TRACE(round);
            for (unsigned i = 0; i < 7; i++)
                message(pair, next++);
            settle(pair);
            for (unsigned i = 0; i < round % 5; i++)
                expect_success(cq, seen++, IBV_WC_RECV, 0);
            ASSERT_EQ(ibv_resize_cq(cq, round % 2 == 0 ? entries : 16 + 5 * entries), 0);
            while (seen < next)
                expect_success(cq, seen++, IBV_WC_RECV, 0);
            ASSERT_FALSE(try_wc(cq));
        }
    }
}

TEST(ResizeCq, TooSmallForWhatWaits) {
    Pair pair;
    ibv_cq *cq = pair.s().rcq();
    for (uint64_t i = 0; i < 20; i++)
        message(pair, i);
    settle(pair);
    int before = cq->cqe;
    EXPECT_EQ(ibv_resize_cq(cq, 4), EBUSY);
    EXPECT_EQ(cq->cqe, before) << "unchanged";
    message(pair, 20);
    for (uint64_t i = 0; i < 19; i++)
        expect_success(cq, i, IBV_WC_RECV, 0);
    settle(pair);
    EXPECT_EQ(ibv_resize_cq(cq, 2), 0) << "two are left";
    for (uint64_t i = 19; i < 21; i++)
        expect_success(cq, i, IBV_WC_RECV, 0);
    expect_works(pair);
}

/* The new size is what overflows. */
TEST(ResizeCq, LargerHoldsMore) {
    QpOptions options;
    options.recv_wr = 300;
    options.recv_cqe = 4;
    Pair pair(options, veth4());
    ibv_cq *cq = pair.s().rcq();
    ASSERT_EQ(ibv_resize_cq(cq, 256), 0);
    int entries = cq->cqe;
    for (int i = 0; i < entries; i++)
        message(pair, static_cast<uint64_t>(i));
    settle(pair);
    for (int i = 0; i < entries; i++)
        expect_success(cq, static_cast<uint64_t>(i), IBV_WC_RECV, 0);
    expect_works(pair);
}

TEST(ResizeCq, SmallerOverflowsEarlier) {
    Pair pair;
    ibv_cq *cq = pair.s().rcq();
    ASSERT_EQ(ibv_resize_cq(cq, 4), 0);
    int entries = cq->cqe;
    for (int i = 0; i <= entries; i++)
        message(pair, static_cast<uint64_t>(i));
    expect_cq_event(cq, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(ibv_resize_cq(cq, 100), EBUSY) << "it is lost already";
    forget_async(cq);
}

/* An arming goes along, too. */
TEST(ResizeCq, StaysArmed) {
    QpOptions options;
    options.events = true;
    Pair pair(options, veth4());
    ibv_cq *cq = pair.s().rcq();
    for (unsigned round = 0; round < 10; round++) {
        ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
        ASSERT_EQ(ibv_resize_cq(cq, round % 2 == 0 ? 200 : 10), 0);
        message(pair, round);
        EXPECT_EQ(next_cq_event(pair.s().completions()), cq);
        expect_success(cq, round, IBV_WC_RECV, 0);
        ASSERT_EQ(ibv_resize_cq(cq, 50), 0);
        message(pair, round);
        EXPECT_TRUE(no_cq_event(pair.s().completions(), milliseconds(10))) << "not armed";
        expect_success(cq, round, IBV_WC_RECV, 0);
    }
}

/* Who looks at it meanwhile sees the one ring or the other. */
TEST(ResizeCq, WhileItIsLookedAt) {
    Pair pair;
    ibv_cq *cq = pair.s().rcq();
    std::atomic<bool> done{false};
    std::thread looker([&] {
        for (int i = 0; i < full_or_quick(40, 15); i++)
            EXPECT_NE(shell("rdma -dd resource show cq dev " + config().peer_dev)
                          .output.find("drv_entries"),
                      std::string::npos);
        done = true;
    });
    for (unsigned round = 0; !done; round++)
        EXPECT_EQ(ibv_resize_cq(cq, round % 2 == 0 ? 4000 : 10), 0);
    looker.join();
    message(pair, 7);
    expect_success(cq, 7, IBV_WC_RECV, 0);
}

/* A QP's completions go with it, also those that have moved. */
TEST(ResizeCq, ThenTheQpGoes) {
    ibv_context *shared = cm_context(config().peer_dev);
    Cq cq = create_cq(shared, 100);
    PairOptions options;
    options.server.recv_cq = cq.get();
    Pair stays(options);
    {
        Pair goes(options);
        for (uint64_t i = 0; i < 5; i++) {
            message(goes, 100 + i);
            message(stays, i);
        }
        settle(goes);
        settle(stays);
        ASSERT_EQ(ibv_resize_cq(cq.get(), 1000), 0);
    }
    for (uint64_t i = 0; i < 5; i++)
        expect_success(cq.get(), i, IBV_WC_RECV, 0);
    EXPECT_FALSE(try_wc(cq.get()));
}

/* Polled by one thread, resized by another, filled all the while. */
TEST(ResizeCq, UnderLoad) {
    const uint64_t kMessages = full_or_quick<uint64_t>(20000, 3000);
    QpOptions options;
    options.recv_wr = 64;
    Pair pair(options, veth4());
    ibv_cq *cq = pair.s().rcq();
    std::atomic<bool> stop{false};
    std::atomic<unsigned> resized{0};
    std::thread resizer([&] {
        for (unsigned i = 0; !stop.load(); i++) {
            int error = ibv_resize_cq(cq, i % 2 == 0 ? 128 : 1000);
            if (error == 0)
                resized++;
            else
                EXPECT_EQ(error, EBUSY);
            std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
    });
    uint64_t posted = 0, sent = 0, completed = 0, received = 0;
    /* a fast machine is through with them before the other thread has had its turns */
    auto more = [&] { return posted < kMessages || resized <= 3; };
    Deadline deadline(milliseconds(60000));
    while ((more() || received < posted) && !deadline.passed()) {
        while (more() && posted - received < 60)
            pair.s().recv(posted++, {});
        while (sent < posted && sent - completed < 60)
            pair.c().send(sent++, {});
        ibv_wc wc[8];
        int got = ibv_poll_cq(pair.c().scq(), 8, wc);
        completed += static_cast<uint64_t>(got);
        got = ibv_poll_cq(cq, 8, wc);
        for (int i = 0; i < got; i++) {
            EXPECT_EQ(wc[i].status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc[i].wr_id, received) << "in order, each once";
            received++;
        }
        if (testing::Test::HasFailure())
            break;
    }
    stop = true;
    resizer.join();
    EXPECT_EQ(received, posted);
    EXPECT_GT(resized.load(), 3U);
}

/* Arm, poll, sleep, while another thread resizes: no event is lost. */
TEST(ResizeCq, AsleepUnderLoad) {
    const uint64_t kMessages = full_or_quick<uint64_t>(1500, 300);
    QpOptions options;
    options.events = true;
    Pair pair(options, veth4());
    ibv_cq *cq = pair.s().rcq();
    std::atomic<bool> stop{false};
    std::thread resizer([&] {
        for (unsigned i = 0; !stop.load(); i++) {
            EXPECT_EQ(ibv_resize_cq(cq, i % 2 == 0 ? 128 : 1000), 0);
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    try {
        for (uint64_t i = 0; i < kMessages && !testing::Test::HasFailure(); i++) {
            pair.s().recv(i, {});
            pair.c().send(i, {});
            expect_success(pair.c().scq(), i, IBV_WC_SEND);
            std::optional<ibv_wc> wc;
            while (!(wc = try_wc(cq))) {
                EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
                if ((wc = try_wc(cq)))
                    break;
                next_cq_event(pair.s().completions());
            }
            EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc->wr_id, i);
        }
    } catch (...) {
        stop = true;
        resizer.join();
        throw;
    }
    stop = true;
    resizer.join();
}

} // namespace
