// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who looks at a send queue next, seen from outside: whatever else goes on, a
 * request that was posted is sent.  And what becomes of a queue pair that is
 * given a stream at the moment of its end.
 */
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

milliseconds enough() {
    return milliseconds(full_or_quick(2000, 500));
}

/*
 * Two threads post to one QP, one small Write at a time, so that pollers come
 * and go.  A request that nobody looks at would end it: the deadline of next_wc.
 */
TEST(Turn, TwoPostersOnOneQueue) {
    constexpr unsigned kWindow = 16;
    Pair pair({.send_wr = 2 * kWindow, .inline_data = 64}, veth4());
    Region from(pair.c().pd(), 64), to(pair.s().pd(), 64);
    std::atomic<unsigned> out{0};
    std::atomic<bool> over{false};
    std::atomic<uint64_t> posted{0};
    auto poster = [&](unsigned pause) {
        while (!over) {
            if (out.fetch_add(1) >= 2 * kWindow) {
                out--;
                std::this_thread::yield();
                continue;
            }
            pair.c().write(posted++, {from.sge(0, 8)}, to.addr(), to.rkey());
            /* now and then long enough for a poller to give up */
            if (posted % 64 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(pause));
        }
    };
    std::thread one(poster, 70), two(poster, 130);
    uint64_t done = 0;
    auto end = std::chrono::steady_clock::now() + enough();
    bool stuck = false;
    while (!stuck && (!over || done < posted)) {
        if (std::chrono::steady_clock::now() > end && !over) {
            over = true;
            one.join();
            two.join();
            continue;
        }
        if (out == 0)
            continue;
        try {
            EXPECT_EQ(next_wc(pair.c().scq()).status, IBV_WC_SUCCESS);
            done++;
            out--;
        } catch (const Failure &) {
            stuck = true;
        }
    }
    if (!over) {
        over = true;
        one.join();
        two.join();
    }
    EXPECT_FALSE(stuck) << "after " << done << " of " << posted;
    EXPECT_EQ(done, posted);
}

/* Who lists QPs takes the lock of their sockets; the streams go on. */
TEST(Turn, OthersMayListTheQueuePairs) {
    constexpr size_t kSize = 256 * 1024;
    constexpr unsigned kWindow = 8;
    Pair pair({.send_wr = kWindow}, veth4());
    Region to(pair.c().pd(), kSize * kWindow), from(pair.s().pd(), kSize);
    std::atomic<bool> over{false};
    std::atomic<int> lists{0};
    std::thread lister([&] {
        while (!over) {
            shell(fmt::format("for i in $(seq {}); do rdma -dd resource show qp; done",
                              full_or_quick(8, 2)));
            lists++;
        }
    });
    uint64_t posted = 0, done = 0;
    auto end = std::chrono::steady_clock::now() + enough();
    try {
        while (!HasFailure() && (lists < 2 || std::chrono::steady_clock::now() < end)) {
            for (; posted - done < kWindow; posted++)
                pair.c().read(posted, {to.sge(posted % kWindow * kSize, kSize)}, from.addr(),
                              from.rkey());
            expect_success(pair.c().scq(), done, IBV_WC_RDMA_READ);
            done++;
        }
    } catch (const Failure &failure) {
        ADD_FAILURE() << "after " << done << " reads: " << failure.what();
    }
    over = true;
    lister.join();
    EXPECT_GT(done, 0U);
}

/* Parts that begin anywhere take a page more each; that has to fit into a batch. */
TEST(Turn, UnalignedPartsByReference) {
    const ParameterOverride by_reference("zcopy_min", "1");
    constexpr size_t kPart = 32 * 1024 + 3;
    Pair pair({.send_wr = 4, .send_sge = 4}, loop4());
    Region from(pair.c().pd(), 4 * (kPart + 4096)), to(pair.s().pd(), 4 * kPart);
    fill(from.at(0), from.buffer.size(), 9);
    SgList parts;
    for (size_t i = 0; i < 4; i++)
        parts.push_back(from.sge(i * (kPart + 4096) + 4093, kPart));
    for (uint64_t id = 0; id < 20; id++) {
        pair.c().write(id, parts, to.addr(), to.rkey());
        expect_success(pair.c().scq(), id, IBV_WC_RDMA_WRITE);
    }
    for (size_t i = 0; i < 4; i++)
        EXPECT_EQ(memcmp(to.at(i * kPart), from.at(i * (kPart + 4096) + 4093), kPart), 0) << i;
}

/* A queue pair that is no id's, so that nothing keeps from destroying it at any time */
struct FreeQp {
    explicit FreeQp(ibv_context *context)
        : pd(ibv_alloc_pd(context)), cq(ibv_create_cq(context, 16, nullptr, nullptr, 0)) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {8, 8, 1, 1, 0};
        qp.reset(ibv_create_qp(pd.get(), &attr));
        require(qp != nullptr, "ibv_create_qp");
    }
    rdma_conn_param param() const {
        rdma_conn_param p{};
        p.qp_num = qp->qp_num;
        p.responder_resources = p.initiator_depth = 4;
        return p;
    }
    /* Destroys it, or moves it to the error state, after that long. */
    void end_after(unsigned microseconds, bool destroy) {
        auto when = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
        while (std::chrono::steady_clock::now() < when)
            std::this_thread::yield();
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        if (destroy)
            qp.reset();
        else
            EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
    }

    Pd pd;
    Cq cq;
    Qp qp;
};

/*
 * rdma_accept() and rdma_connect() give a queue pair its stream while another
 * thread ends it.  Which is first does not matter; that it ends does.
 */
TEST(Turn, StartRacesTheEnd) {
    const unsigned rounds = full_or_quick(300, 40);
    for (unsigned round = 0; round < rounds; round++) {
        EventChannel server_channel, client_channel;
        Listener listener(server_channel, config().peer_ns, config().peer_addr4);
        CmId id = resolve(client_channel, "", config().peer_addr4, listener.port());
        FreeQp active(id->verbs);
        rdma_conn_param param = active.param();
        ASSERT_EQ(rdma_connect(id.get(), &param), 0);
        CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        CmId answer(request.id);
        FreeQp passive(answer->verbs);
        rdma_conn_param reply = passive.param();
        std::thread end([&] {
            passive.end_after(round % 50 * 4, round % 3);
            active.end_after(round % 7 * 4, round % 2);
        });
        /* may fail: there may be no such QP any more */
        rdma_accept(answer.get(), &reply);
        end.join();
        passive.qp.reset();
        active.qp.reset();
        server_channel.forget(answer.get());
    }
    expect_route_works();
}

} // namespace
