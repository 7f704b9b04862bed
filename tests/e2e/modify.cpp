// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs that ibv_modify_qp() connects, without rdma_cm: the order in which
 * the ends arrive, what must fit, who else may come, the way back to RESET, and
 * the ends of everything while a queue pair waits.
 */
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "lib/children.hpp"
#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "lib/pattern.hpp"

namespace softwarp::e2e {
namespace {

constexpr int kEverything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/* Where an end is: a device, and an address of it; "" is the first GID. */
struct Place {
    std::string device;
    std::string ns;
    std::string address;
};

Place here4() {
    return {config().dev, "", config().addr4};
}
Place there4() {
    return {config().peer_dev, config().peer_ns, config().peer_addr4};
}
Place here6() {
    return {config().dev, "", config().addr6};
}
Place there6() {
    return {config().peer_dev, config().peer_ns, config().peer_addr6};
}

struct End {
    explicit End(Place where, uint32_t first_psn = 0x123456, uint32_t srq_wr = 0)
        : place(std::move(where)), context(open_device(place.device)), pd(alloc_pd(context.get())),
          scq(create_cq(context.get(), 256)), rcq(create_cq(context.get(), 256)), psn(first_psn) {
        if (srq_wr != 0)
            srq = create_srq(pd.get(), srq_wr);
        ibv_qp_init_attr attr{};
        attr.send_cq = scq.get();
        attr.recv_cq = rcq.get();
        attr.srq = srq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {64, 64, 2, 2, 0};
        qp.reset(ibv_create_qp(pd.get(), &attr));
        require(qp != nullptr, "ibv_create_qp");
        if (place.address.empty())
            require(ibv_query_gid(context.get(), 1, 0, &gid) == 0, "ibv_query_gid");
        else
            find_gid();
    }
    void find_gid() {
        require(eventually([&] { return gid_index(context.get(), place.address) > 0; }),
                "a GID of " + place.address);
        index = gid_index(context.get(), place.address);
        gid = gid_of(place.address);
    }
    /* A process may use addresses of its own namespace only. */
    int modify(ibv_qp_attr attr, int mask) const {
        int result = -1;
        in_namespace(place.ns, [&] { result = ibv_modify_qp(qp.get(), &attr, mask); });
        return result;
    }
    int state(ibv_qp_state to) const {
        ibv_qp_attr attr{};
        attr.qp_state = to;
        return modify(attr, IBV_QP_STATE);
    }
    int init(int access = kEverything) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = static_cast<unsigned>(access);
        return modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    ibv_qp_attr rtr_attr(const End &peer) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer.qp->qp_num;
        attr.rq_psn = peer.psn;
        attr.max_dest_rd_atomic = 4;
        attr.min_rnr_timer = 12;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = peer.gid;
        attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
        attr.ah_attr.grh.hop_limit = 64;
        return attr;
    }
    static constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER;
    int rtr(const End &peer) const { return modify(rtr_attr(peer), kRtrMask); }
    /* 4.096 us * 2^timeout, retries + 1 times */
    int rts(uint8_t timeout = 0) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = psn;
        attr.timeout = timeout;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 4;
        return modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    void up(const End &peer) const {
        ASSERT_EQ(init(), 0);
        ASSERT_EQ(rtr(peer), 0);
        ASSERT_EQ(rts(), 0);
    }
    bool is_smaller_than(const End &peer) const {
        const int order = memcmp(&gid, &peer.gid, sizeof(gid));
        return order < 0 || (order == 0 && qp->qp_num < peer.qp->qp_num);
    }

    Place place;
    Context context;
    Pd pd;
    Cq scq;
    Cq rcq;
    Srq srq;
    Qp qp;
    int index = 0;
    ibv_gid gid{};
    uint32_t psn;
};

/* A message each way, a Write and a Read. */
void expect_carries(const End &a, const End &b, uint64_t seed = 1) {
    constexpr size_t kLength = 5000;
    const auto send = [&](const End &from, const End &to, uint64_t id) {
        Region source(from.pd.get(), kLength), sink(to.pd.get(), kLength);
        fill(source.at(0), kLength, seed + id);
        ASSERT_EQ(to.srq ? post_srq_recv(to.srq.get(), id, {sink.all()})
                         : post_recv(to.qp.get(), id, {sink.all()}),
                  0);
        ASSERT_EQ(post_send(from.qp.get(), SendWr::send(id, {source.all()})), 0);
        expect_success(from.scq.get(), id, IBV_WC_SEND);
        expect_success(to.rcq.get(), id, IBV_WC_RECV, kLength);
        EXPECT_EQ(memcmp(source.at(0), sink.at(0), kLength), 0);
    };
    send(a, b, 1);
    send(b, a, 2);
    Region mine(a.pd.get(), kLength), theirs(b.pd.get(), kLength, kEverything);
    fill(mine.at(0), kLength, seed + 3);
    ASSERT_EQ(post_send(a.qp.get(), SendWr::write(3, {mine.all()}, theirs.addr(), theirs.rkey())),
              0);
    expect_success(a.scq.get(), 3, IBV_WC_RDMA_WRITE);
    memset(mine.at(0), 0, kLength);
    ASSERT_EQ(post_send(a.qp.get(), SendWr::read(4, {mine.all()}, theirs.addr(), theirs.rkey())),
              0);
    expect_success(a.scq.get(), 4, IBV_WC_RDMA_READ);
    EXPECT_EQ(memcmp(mine.at(0), theirs.at(0), kLength), 0);
}

void expect_pair_works(const Place &one, const Place &two) {
    End a(one, 0x111111), b(two, 0x222222);
    a.up(b);
    b.up(a);
    expect_carries(a, b);
}

/* Sockets that listen on the port of queue pairs, in a namespace */
bool listens(const std::string &ns) {
    const std::string port = module_parameter("qp_port");
    return !must_shell((ns.empty() ? "" : "ip netns exec " + ns + " ") +
                       "ss -Hltn sport = :" + port)
                .empty();
}

uint64_t counter(const std::string &device, const std::string &name) {
    return counters(device).at(name);
}

/* Names and numbers ---------------------------------------------------------- */

TEST(Modify, TableHasTheAddresses) {
    Context context = open_device(config().dev);
    ibv_gid first{};
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &first), 0);
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), config().addr4) > 0; }));
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), config().addr6) > 0; }));
    const int before = gid_index(context.get(), config().addr4);
    const std::string netdev = netdev_of(config().dev);
    must_shell("ip addr add 10.79.0.1/24 dev " + netdev);
    must_shell("ip addr add fd79::1/64 nodad dev " + netdev);
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), "10.79.0.1") > 0; }));
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), "fd79::1") > 0; }));
    must_shell("ip addr del 10.79.0.1/24 dev " + netdev);
    must_shell("ip addr del fd79::1/64 dev " + netdev);
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), "10.79.0.1") < 0; }));
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), "fd79::1") < 0; }));
    /* others keep their places */
    EXPECT_EQ(gid_index(context.get(), config().addr4), before);
    ibv_gid again{};
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &again), 0);
    EXPECT_EQ(memcmp(&first, &again, sizeof(first)), 0);
}

/* More addresses than places: the table is full, and nothing else happens. */
TEST(Modify, TableIsBounded) {
    Context context = open_device(config().dev);
    const std::string netdev = netdev_of(config().dev);
    const auto all = [&](const char *what) {
        return "seq 50 | sed 's|.*|addr " + std::string(what) + " 10.78.0.&/32 dev " + netdev +
               "|' | ip -batch -";
    };
    must_shell(all("add"));
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), "10.78.0.5") > 0; }));
    EXPECT_GT(gid_index(context.get(), config().addr4), 0);
    must_shell(all("del"));
    EXPECT_TRUE(eventually([&] { return gid_index(context.get(), "10.78.0.5") < 0; }));
    expect_pair_works(here4(), there4());
}

TEST(Modify, QueryReturnsWhatWasSet) {
    End a(here4()), b(there4(), 0x654321);
    a.up(b);
    b.up(a);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(a.qp.get(), &attr, IBV_QP_STATE | IBV_QP_AV, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.dest_qp_num, b.qp->qp_num);
    EXPECT_EQ(attr.rq_psn, b.psn);
    EXPECT_EQ(attr.sq_psn, a.psn);
    EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(attr.max_rd_atomic, 4);
    EXPECT_EQ(attr.max_dest_rd_atomic, 4);
    EXPECT_EQ(attr.min_rnr_timer, 12);
    EXPECT_EQ(attr.retry_cnt, 7);
    EXPECT_EQ(attr.rnr_retry, 7);
    EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned>(kEverything));
    EXPECT_EQ(attr.ah_attr.is_global, 1);
    EXPECT_EQ(attr.ah_attr.grh.sgid_index, a.index);
    EXPECT_EQ(memcmp(&attr.ah_attr.grh.dgid, &b.gid, sizeof(b.gid)), 0);
    /* every user of the machine may see this, but not the numbers that keep strangers out */
    std::string shown = must_shell("rdma -dd resource show qp link " + config().dev + "/1 lqpn " +
                                   std::to_string(a.qp->qp_num));
    EXPECT_NE(shown.find("sq-psn 0 "), std::string::npos) << shown;
    EXPECT_EQ(shown.find(std::to_string(a.psn)), std::string::npos) << shown;
    EXPECT_EQ(shown.find(std::to_string(b.psn)), std::string::npos) << shown;
}

/* The calling thread without one of its rights */
class Without {
  public:
    explicit Without(int capability) {
        require(::syscall(SYS_capget, &header_, before_.data()) == 0, "capget");
        auto less = before_;
        less.at(CAP_TO_INDEX(capability)).effective &= ~CAP_TO_MASK(capability);
        require(::syscall(SYS_capset, &header_, less.data()) == 0, "capset");
    }
    ~Without() { EXPECT_EQ(::syscall(SYS_capset, &header_, before_.data()), 0); }
    Without(const Without &) = delete;
    Without &operator=(const Without &) = delete;

  private:
    __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

/* Ordinary users use a port that they could not have for themselves. */
TEST(Modify, PortBelow1024) {
    ParameterOverride port("qp_port", "794");
    End a(here4(), 1), b(there4(), 2);
    {
        Without none(CAP_NET_BIND_SERVICE);
        a.up(b);
        b.up(a);
    }
    expect_carries(a, b);
}

/* Nobody waits where no peer comes any more. */
TEST(Modify, PortChanges) {
    End a(here4(), 1), b(there4(), 2), c(here4(), 3), d(there4(), 4);
    b.up(a);
    {
        ParameterOverride other("qp_port", "4795");
        ASSERT_EQ(d.init(), 0);
        EXPECT_EQ(d.rtr(c), EADDRINUSE);
    }
    ASSERT_EQ(d.rtr(c), 0);
    a.up(b);
    expect_carries(a, b);
}

/* Both orders ------------------------------------------------------------------ */

TEST(Modify, EitherEndFirst) {
    for (const bool v6 : {false, true}) {
        for (const bool first : {false, true}) {
            for (const unsigned pause_ms : {0U, 300U}) {
                End a(v6 ? here6() : here4(), 1), b(v6 ? there6() : there4(), 0xffffff);
                const End &early = first ? a : b, &late = first ? b : a;
                early.up(late);
                usleep(pause_ms * 1000);
                late.up(early);
                expect_carries(a, b);
            }
        }
    }
    EXPECT_TRUE(eventually([] { return !listens("") && !listens(config().peer_ns); }));
}

/* A queue pair that only receives need not be in RTS. */
TEST(Modify, ReceiverInRtr) {
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        Region source(a.pd.get(), 100), sink(b.pd.get(), 100);
        fill(source.at(0), 100, 3);
        ASSERT_EQ(b.init(), 0);
        ASSERT_EQ(post_recv(b.qp.get(), 1, {sink.all()}), 0);
        ASSERT_EQ(b.rtr(a), 0);
        a.up(b);
        ASSERT_EQ(post_send(a.qp.get(), SendWr::send(2, {source.all()})), 0);
        expect_success(a.scq.get(), 2, IBV_WC_SEND);
        expect_success(b.rcq.get(), 1, IBV_WC_RECV, 100);
        EXPECT_EQ(memcmp(source.at(0), sink.at(0), 100), 0);
        expect_qp_state(b.qp.get(), IBV_QPS_RTR);
        ASSERT_EQ(b.rts(), 0);
        expect_carries(a, b);
    }
}

/* Nothing is sent before one PSN can be compared, and then at once. */
TEST(Modify, BothInRtr) {
    End a(here4(), 7), b(there4(), 8);
    for (const End *end : {&a, &b})
        ASSERT_EQ(end->init(), 0);
    ASSERT_EQ(a.rtr(b), 0);
    ASSERT_EQ(b.rtr(a), 0);
    usleep(500000);
    expect_qp_state(a.qp.get(), IBV_QPS_RTR);
    ASSERT_EQ(b.rts(), 0);
    ASSERT_EQ(a.rts(), 0);
    expect_carries(a, b);
}

TEST(Modify, PostedRequestsWait) {
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        Region source(a.pd.get(), 4096), sink(b.pd.get(), 4096 * 10);
        fill(source.at(0), 4096, 3);
        a.up(b);
        for (uint64_t id = 0; id < 10; id++)
            ASSERT_EQ(post_send(a.qp.get(), SendWr::send(id, {source.all()})), 0);
        expect_quiet(a.scq.get(), milliseconds(200));
        ASSERT_EQ(b.init(), 0);
        for (uint64_t id = 0; id < 10; id++)
            ASSERT_EQ(post_recv(b.qp.get(), id, {sink.sge(id * 4096, 4096)}), 0);
        ASSERT_EQ(b.rtr(a), 0);
        ASSERT_EQ(b.rts(), 0);
        for (uint64_t id = 0; id < 10; id++) {
            expect_success(a.scq.get(), id, IBV_WC_SEND);
            expect_success(b.rcq.get(), id, IBV_WC_RECV, 4096);
            EXPECT_EQ(memcmp(source.at(0), sink.at(id * 4096), 4096), 0);
        }
    }
}

TEST(Modify, OneDevice) {
    expect_pair_works(here4(), here4());
    expect_pair_works(here6(), here6());
    expect_pair_works({config().lo_dev, "", "127.0.0.1"}, {config().lo_dev, "", "127.0.0.1"});
    expect_pair_works({config().lo_dev, "", "::1"}, {config().lo_dev, "", "::1"});
}

/* The first GID: the link-local address that belongs to it, or the device itself */
TEST(Modify, FirstGid) {
    expect_pair_works({config().lo_dev, "", ""}, {config().lo_dev, "", ""});
    expect_pair_works({config().dev, "", ""}, {config().dev, "", ""});
    expect_pair_works({config().dev, "", ""}, {config().peer_dev, config().peer_ns, ""});
}

TEST(Modify, ManyAtOnce) {
    const unsigned count = full_or_quick(64, 16);
    std::vector<std::unique_ptr<End>> a, b;
    for (unsigned i = 0; i < count; i++) {
        a.push_back(std::make_unique<End>(here4(), i));
        b.push_back(std::make_unique<End>(there4(), i + 1000));
    }
    for (unsigned i = 0; i < count; i++)
        a[i]->up(*b[i]);
    for (unsigned i = count; i-- > 0;)
        b[i]->up(*a[i]);
    for (unsigned i = 0; i < count; i++)
        expect_carries(*a[i], *b[i], i);
}

TEST(Modify, SharedReceiveQueue) {
    End a(here4(), 1), b(there4(), 2, 16);
    a.up(b);
    b.up(a);
    expect_carries(a, b);
}

/* What must fit ------------------------------------------------------------------ */

TEST(Modify, WrongPsn) {
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        const uint64_t before =
            counter(config().dev, "pair_mismatch") + counter(config().peer_dev, "pair_mismatch");
        b.up(a);
        /* b sends from this one on, and a expects another */
        b.psn++;
        ASSERT_EQ(a.init(), 0);
        ASSERT_EQ(a.rtr(b), 0);
        /* the smaller end learns at once */
        const End &active = a.is_smaller_than(b) ? a : b;
        expect_qp_event(active.qp.get(), {IBV_EVENT_QP_FATAL});
        expect_qp_state(active.qp.get(), IBV_QPS_ERR);
        EXPECT_GT(counter(config().dev, "pair_mismatch") +
                      counter(config().peer_dev, "pair_mismatch"),
                  before);
        /* the other one waits for the right peer */
        const End &passive = a.is_smaller_than(b) ? b : a;
        expect_qp_state(passive.qp.get(), swapped ? IBV_QPS_RTR : IBV_QPS_RTS);
        if (&passive == &b)
            b.psn--;
        ASSERT_EQ(active.state(IBV_QPS_RESET), 0);
        active.up(passive);
        if (&passive == &a) {
            ASSERT_EQ(a.rts(), 0);
        }
        expect_carries(a, b);
    }
}

/* The stream is there before this end says its PSN. */
TEST(Modify, WrongPsnAtRts) {
    End a(here4(), 7), b(there4(), 8);
    ASSERT_EQ(b.init(), 0);
    ASSERT_EQ(b.rtr(a), 0);
    a.up(b);
    const std::string states = "rdma -dd resource show qp";
    ASSERT_TRUE(eventually([&] { return must_shell(states).find("rtr_up") != std::string::npos; }));
    b.psn++;
    EXPECT_EQ(b.rts(), EINVAL);
    b.psn--;
    EXPECT_EQ(b.rts(), 0);
    expect_carries(a, b);
}

/* The peer waits for another queue pair: that one may still come. */
TEST(Modify, WrongQpn) {
    End a(here4(), 7), b(there4(), 8), other(here4(), 7);
    b.up(other);
    a.up(b);
    usleep(500000);
    Region source(a.pd.get(), 64);
    expect_qp_state(a.qp.get(), IBV_QPS_RTS);
    other.up(b);
    expect_carries(other, b);
    /* a request does not wait for ever */
    ASSERT_EQ(post_send(a.qp.get(), SendWr::send(1, {source.all()})), 0);
    ASSERT_EQ(a.state(IBV_QPS_ERR), 0);
    expect_wc(a.scq.get(), 1, IBV_WC_WR_FLUSH_ERR);
}

TEST(Modify, NobodyComes) {
    ParameterOverride limit("qp_setup_ms", "700");
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        a.up(b);
        expect_qp_event(a.qp.get(), {IBV_EVENT_QP_FATAL});
        expect_qp_state(a.qp.get(), IBV_QPS_ERR);
    }
    EXPECT_TRUE(eventually([] { return !listens("") && !listens(config().peer_ns); }));
}

/* As with InfiniBand: the request fails after the retries, the others are flushed. */
TEST(Modify, RetriesAreExceeded) {
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        Region source(a.pd.get(), 64), sink(a.pd.get(), 64);
        ASSERT_EQ(a.init(), 0);
        ASSERT_EQ(post_recv(a.qp.get(), 9, {sink.all()}), 0);
        ASSERT_EQ(a.rtr(b), 0);
        ASSERT_EQ(a.rts(14), 0);
        for (uint64_t id = 1; id < 4; id++)
            ASSERT_EQ(post_send(a.qp.get(), SendWr::send(id, {source.all()})), 0);
        expect_wc(a.scq.get(), 1, IBV_WC_RETRY_EXC_ERR);
        expect_wc(a.scq.get(), 2, IBV_WC_WR_FLUSH_ERR);
        expect_wc(a.scq.get(), 3, IBV_WC_WR_FLUSH_ERR);
        expect_wc(a.rcq.get(), 9, IBV_WC_WR_FLUSH_ERR);
        expect_qp_state(a.qp.get(), IBV_QPS_ERR);
        /* and the queue pair can be used again */
        ASSERT_EQ(a.state(IBV_QPS_RESET), 0);
        a.up(b);
        b.up(a);
        expect_carries(a, b);
    }
}

TEST(Modify, RefusedCalls) {
    End a(here4(), 7), b(there4(), 8);
    ibv_qp_attr attr = a.rtr_attr(b);
    EXPECT_EQ(a.modify(attr, End::kRtrMask), 0) << "a new queue pair is in INIT";
    EXPECT_EQ(a.modify(attr, End::kRtrMask), EINVAL) << "RTR again";
    EXPECT_EQ(a.init(), EINVAL) << "RTR to INIT";
    ASSERT_EQ(a.state(IBV_QPS_RESET), 0);
    EXPECT_EQ(a.modify(attr, End::kRtrMask), EINVAL) << "RESET to RTR";
    ASSERT_EQ(a.init(), 0);
    for (const int missing : {IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN})
        EXPECT_EQ(a.modify(attr, End::kRtrMask & ~missing), EINVAL);
    attr.ah_attr.is_global = 0;
    EXPECT_EQ(a.modify(attr, End::kRtrMask), EINVAL) << "no GID";
    attr = a.rtr_attr(b);
    attr.ah_attr.grh.sgid_index = 31;
    EXPECT_NE(a.modify(attr, End::kRtrMask), 0) << "an empty place";
    attr = a.rtr_attr(b);
    attr.ah_attr.grh.dgid = gid_of(config().peer_addr6);
    EXPECT_EQ(a.modify(attr, End::kRtrMask), EAFNOSUPPORT) << "IPv4 to IPv6";
    attr.ah_attr.grh.dgid = gid_of("224.0.0.1");
    EXPECT_EQ(a.modify(attr, End::kRtrMask), EADDRNOTAVAIL) << "multicast";
    EXPECT_EQ(a.rtr(a), EOPNOTSUPP) << "to itself";
    attr = a.rtr_attr(b);
    in_namespace(config().peer_ns,
                 [&] { EXPECT_EQ(ibv_modify_qp(a.qp.get(), &attr, End::kRtrMask), EPERM); });
    /* RTS needs the PSN, and a queue pair that rdma_cm connects has none */
    EXPECT_EQ(a.rts(), EINVAL);
    EXPECT_EQ(a.rtr(b), 0);
    EXPECT_EQ(a.state(IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(a.rts(), 0);
}

TEST(Modify, SwitchedOff) {
    ParameterOverride off("qp_port", "0");
    End a(here4(), 7), b(there4(), 8);
    ASSERT_EQ(a.init(), 0);
    EXPECT_EQ(a.rtr(b), EOPNOTSUPP);
    expect_route_works();
}

/* A listener of TCP alone on the port of queue pairs */
Fd listen_on_port() {
    Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_port = htons(static_cast<uint16_t>(std::stoi(module_parameter("qp_port"))));
    require(bind(fd.get(), reinterpret_cast<sockaddr *>(&addr), sizeof(addr)) == 0 &&
                listen(fd.get(), 1) == 0,
            "bind");
    return fd;
}

TEST(Modify, PortIsTaken) {
    End a(here4(), 7), b(there4(), 8);
    const End &passive = a.is_smaller_than(b) ? b : a;
    const End &active = a.is_smaller_than(b) ? a : b;
    ASSERT_EQ(passive.init(), 0);
    in_namespace(passive.place.ns, [&] {
        const Fd taken = listen_on_port();
        EXPECT_EQ(passive.rtr(active), EADDRINUSE);
    });
    /* it is still in INIT */
    ASSERT_EQ(passive.rtr(active), 0);
    ASSERT_EQ(passive.rts(), 0);
    active.up(passive);
    expect_carries(a, b);
}

/* Rights -------------------------------------------------------------------------- */

TEST(Modify, RightsOfTheQueuePair) {
    struct Case {
        int right;
        ibv_wr_opcode opcode;
    };
    for (const Case &c : {Case{IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE},
                          Case{IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ},
                          Case{IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD}}) {
        for (const bool granted : {true, false}) {
            End a(here4(), 7), b(there4(), 8);
            Region mine(a.pd.get(), 64), theirs(b.pd.get(), 64, kEverything);
            fill(theirs.at(0), 64, 5);
            const std::vector<uint8_t> before(theirs.at(0), theirs.at(0) + 64);
            ASSERT_EQ(b.init(granted ? c.right : kEverything & ~c.right), 0);
            ASSERT_EQ(b.rtr(a), 0);
            ASSERT_EQ(b.rts(), 0);
            a.up(b);
            SendWr wr = SendWr::fetch_add(1, mine.sge(0, 8), theirs.addr(), theirs.rkey(), 1);
            wr.opcode = c.opcode;
            ASSERT_EQ(post_send(a.qp.get(), wr), 0);
            if (granted) {
                expect_success(a.scq.get(), 1, wr.wc_opcode());
                continue;
            }
            const ibv_wc wc = next_wc(a.scq.get());
            /* a Write is complete when TCP has it */
            if (c.opcode != IBV_WR_RDMA_WRITE) {
                EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR) << wc_text(wc);
            }
            expect_qp_event(b.qp.get(), {IBV_EVENT_QP_ACCESS_ERR});
            EXPECT_EQ(memcmp(before.data(), theirs.at(0), 64), 0);
        }
    }
}

/* Strangers ------------------------------------------------------------------------ */

/* A connection to the port of queue pairs; -1: it was reset at once */
int connect_to(const Place &to, const std::string &from = "") {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    if (!from.empty()) {
        inet_pton(AF_INET, from.c_str(), &addr.sin_addr);
        require(bind(fd, reinterpret_cast<sockaddr *>(&addr), sizeof(addr)) == 0, "bind");
    }
    inet_pton(AF_INET, to.address.c_str(), &addr.sin_addr);
    addr.sin_port = htons(static_cast<uint16_t>(std::stoi(module_parameter("qp_port"))));
    if (connect(fd, reinterpret_cast<sockaddr *>(&addr), sizeof(addr)) == 0)
        return fd;
    require(errno == ECONNRESET, "connect");
    close(fd);
    return -1;
}

void put32(std::vector<uint8_t> &to, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
        to.push_back(static_cast<uint8_t>(value >> shift));
}

/* The Request that an end would send, RFC 6581 and Documentation/wire-formats.md */
std::vector<uint8_t> request_of(const End &self, const End &peer) {
    std::vector<uint8_t> frame;
    for (const char c : std::string("MPA ID Req Frame"))
        frame.push_back(static_cast<uint8_t>(c));
    /* CRC and enhanced, revision 2, length; then A, B, C, D and the depths */
    for (const int octet : {0x50, 2, 0, 60, 0xc0, 4, 0xc0, 4})
        frame.push_back(static_cast<uint8_t>(octet));
    for (const char c : std::string("swQP\1\1\0\0", 8))
        frame.push_back(static_cast<uint8_t>(c));
    frame.insert(frame.end(), self.gid.raw, self.gid.raw + 16);
    frame.insert(frame.end(), peer.gid.raw, peer.gid.raw + 16);
    for (const uint32_t word : {self.qp->qp_num, peer.qp->qp_num, peer.psn, self.psn})
        put32(frame, word);
    return frame;
}

/* What the other end answers: its octets until it closes. */
std::vector<uint8_t> answer(int fd, const std::vector<uint8_t> &said) {
    std::vector<uint8_t> heard;
    std::array<uint8_t, 256> piece;
    timeval limit{.tv_sec = static_cast<time_t>(10 * config().scale), .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    require(write(fd, said.data(), said.size()) == static_cast<ssize_t>(said.size()), "write");
    for (;;) {
        const ssize_t n = read(fd, piece.data(), piece.size());
        if (n <= 0) {
            require(n == 0 || errno == ECONNRESET, "the end of a stranger's connection");
            return heard;
        }
        heard.insert(heard.end(), piece.begin(), piece.begin() + n);
    }
}

TEST(Modify, Strangers) {
    End a(here4(), 7), b(there4(), 8);
    /* the one with the larger GID, which listens, is b in the usual topology */
    ASSERT_TRUE(a.is_smaller_than(b));
    b.up(a);
    const std::vector<uint8_t> right = request_of(a, b);
    const auto refused = [&](const std::vector<uint8_t> &said, int reason,
                             const std::string &from = "") {
        Fd fd(connect_to(b.place, from));
        const std::vector<uint8_t> heard = answer(fd.get(), said);
        if (reason == 0) {
            EXPECT_TRUE(heard.empty());
            return;
        }
        /* a Reply with R, and nothing that is not the stranger's own */
        ASSERT_EQ(heard.size(), 80U);
        EXPECT_NE(heard[16] & 0x20, 0);
        EXPECT_EQ(heard[29], 3);
        EXPECT_EQ(heard[30], reason);
        for (size_t i = 31; i < heard.size(); i++)
            EXPECT_EQ(heard[i], 0);
    };
    const uint64_t bad = counter(config().peer_dev, "pair_bad_message");
    const uint64_t absent = counter(config().peer_dev, "pair_no_such_qp");
    const uint64_t mismatch = counter(config().peer_dev, "pair_mismatch");
    refused(std::vector<uint8_t>(100, 'x'), 0);
    for (const size_t at : {24U, 28U, 29U, 31U, 64U}) {
        std::vector<uint8_t> said = right;
        said[at] ^= 0x80;
        refused(said, 0);
    }
    EXPECT_EQ(counter(config().peer_dev, "pair_bad_message"), bad + 5);
    /* QP numbers and PSNs that nobody has, or that are not the peer's */
    for (const size_t at : {67U, 71U}) {
        std::vector<uint8_t> said = right;
        said[at] ^= 1;
        refused(said, 1);
    }
    EXPECT_EQ(counter(config().peer_dev, "pair_no_such_qp"), absent + 2);
    for (const size_t at : {75U, 79U}) {
        std::vector<uint8_t> said = right;
        said[at] ^= 1;
        refused(said, 2);
    }
    /* GIDs that are not the addresses of the connection */
    for (const size_t at : {47U, 63U}) {
        std::vector<uint8_t> said = right;
        said[at] ^= 4;
        refused(said, 1);
    }
    const std::string netdev = netdev_of(config().dev);
    must_shell("ip addr add 10.77.0.9/24 dev " + netdev);
    refused(right, 1, "10.77.0.9");
    must_shell("ip addr del 10.77.0.9/24 dev " + netdev);
    EXPECT_EQ(counter(config().peer_dev, "pair_mismatch"), mismatch + 5);
    /* the queue pair has noticed nothing */
    expect_qp_state(b.qp.get(), IBV_QPS_RTS);
    a.up(b);
    expect_carries(a, b);
    /* and takes no second stream: the socket is closed, or refuses */
    EXPECT_TRUE(eventually([] { return !listens(config().peer_ns); }));
}

/* Silent connections hold nobody else up, and are bounded. */
TEST(Modify, SilentStrangers) {
    ParameterOverride most("max_pending", "20");
    ParameterOverride share("max_pending_source", "5");
    End a(here4(), 7), b(there4(), 8);
    b.up(a);
    std::vector<Fd> silent;
    const uint64_t before = counter(config().peer_dev, "pending_limit_drop");
    for (int i = 0; i < 40; i++)
        silent.emplace_back(connect_to(b.place));
    EXPECT_TRUE(eventually(
        [&] { return counter(config().peer_dev, "pending_limit_drop") >= before + 20; }));
    silent.clear();
    a.up(b);
    expect_carries(a, b);
}

/* A peer at the port that is not softwarp */
TEST(Modify, PeerSpeaksSomethingElse) {
    End a(here4(), 7), b(there4(), 8);
    ASSERT_TRUE(a.is_smaller_than(b));
    Fd listener;
    in_namespace(b.place.ns, [&] { listener = listen_on_port(); });
    a.up(b);
    Fd taken(::accept(listener.get(), nullptr, nullptr));
    const std::string reply = "HTTP/1.1 400 Bad Request\r\n\r\n";
    require(write(taken.get(), reply.data(), reply.size()) > 0, "write");
    expect_qp_event(a.qp.get(), {IBV_EVENT_QP_FATAL});
    expect_qp_state(a.qp.get(), IBV_QPS_ERR);
}

/* Back to RESET, and the end -------------------------------------------------------- */

TEST(Modify, ResetAndAgain) {
    End a(here4(), 7), b(there4(), 8);
    for (unsigned round = 0; round < full_or_quick(50U, 10U); round++) {
        a.psn = round;
        b.psn = round + 77;
        a.up(b);
        b.up(a);
        expect_carries(a, b, round);
        /* one end by itself, the other after the error that this brings; or at once */
        ASSERT_EQ(a.state(IBV_QPS_RESET), 0);
        if (round % 2) {
            usleep(20000);
        }
        ASSERT_EQ(b.state(IBV_QPS_RESET), 0);
        expect_qp_state(a.qp.get(), IBV_QPS_RESET);
        Region memory(a.pd.get(), 64);
        EXPECT_NE(post_send(a.qp.get(), SendWr::send(1, {memory.all()})), 0);
    }
}

/*
 * As with InfiniBand: an end that only receives does not notice that its peer has
 * gone; a request does.
 */
TEST(Modify, PeerLeaves) {
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        Region memory(a.pd.get(), 64);
        a.up(b);
        b.up(a);
        expect_carries(a, b);
        ASSERT_EQ(post_recv(a.qp.get(), 9, {memory.all()}), 0);
        b.qp.reset();
        expect_quiet(a.rcq.get(), milliseconds(300));
        expect_qp_state(a.qp.get(), IBV_QPS_RTS);
        ASSERT_EQ(post_send(a.qp.get(), SendWr::send(1, {memory.all()})), 0);
        ASSERT_EQ(post_send(a.qp.get(), SendWr::send(2, {memory.all()})), 0);
        expect_wc(a.scq.get(), 1, IBV_WC_RETRY_EXC_ERR);
        expect_wc(a.scq.get(), 2, IBV_WC_WR_FLUSH_ERR);
        expect_wc(a.rcq.get(), 9, IBV_WC_WR_FLUSH_ERR);
        expect_qp_state(a.qp.get(), IBV_QPS_ERR);
        EXPECT_FALSE(wait_async(
            a.context.get(), [](const AsyncEvent &) { return true; }, Deadline(milliseconds(50))));
    }
}

/* Requests that are posted or under way are dropped without a completion. */
TEST(Modify, ResetDropsRequests) {
    End a(here4(), 7), b(there4(), 8);
    Region memory(a.pd.get(), 1 << 20);
    for (unsigned round = 0; round < 8; round++) {
        ASSERT_EQ(a.init(), 0);
        for (uint64_t id = 0; id < 20; id++)
            ASSERT_EQ(post_recv(a.qp.get(), id, {memory.all()}), 0);
        ASSERT_EQ(a.rtr(b), 0);
        ASSERT_EQ(a.rts(), 0);
        if (round % 2)
            b.up(a);
        Region theirs(b.pd.get(), 1 << 20);
        for (uint64_t id = 0; id < 20; id++)
            ASSERT_EQ(post_send(a.qp.get(), round % 2 ? SendWr::write(id, {memory.all()},
                                                                      theirs.addr(), theirs.rkey())
                                                      : SendWr::send(id, {memory.all()})),
                      0);
        ASSERT_EQ(a.state(IBV_QPS_RESET), 0);
        while (try_wc(a.scq.get()))
            ;
        expect_quiet(a.scq.get());
        expect_quiet(a.rcq.get());
        ASSERT_EQ(b.state(IBV_QPS_RESET), 0);
        while (try_wc(b.rcq.get()))
            ;
    }
    a.up(b);
    b.up(a);
    expect_carries(a, b);
}

/* A queue pair that rdma_cm has connected, too */
TEST(Modify, ResetAfterRdmaCm) {
    Pair pair;
    expect_works(pair);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(pair.c().qp(), &attr, IBV_QP_STATE), 0);
    pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_state(pair.c().qp(), IBV_QPS_RESET);
}

/* Both ends come up while another thread ends one of them, in every way. */
TEST(Modify, EndsWhileItConnects) {
    for (unsigned round = 0; round < full_or_quick(300U, 60U); round++) {
        End a(here4(), 7), b(there4(), 8);
        ASSERT_EQ(a.init(), 0);
        ASSERT_EQ(b.init(), 0);
        ASSERT_EQ(a.rtr(b), 0);
        ASSERT_EQ(a.rts(), 0);
        /* with a's number, asked for while a has one */
        const ibv_qp_attr to_a = b.rtr_attr(a);
        std::thread end([&] {
            usleep(round % 60 * 20);
            End &victim = round % 2 ? a : b;
            if (round % 3 == 0)
                EXPECT_EQ(victim.state(IBV_QPS_ERR), 0);
            else if (round % 3 == 1)
                EXPECT_EQ(victim.state(IBV_QPS_RESET), 0);
            else if (&victim == &a)
                victim.qp.reset();
        });
        /* may fail: it may be in another state by now */
        b.modify(to_a, End::kRtrMask);
        b.rts();
        end.join();
    }
    expect_pair_works(here4(), there4());
}

TEST(Modify, DestroyedWhileItWaits) {
    for (const bool swapped : {false, true}) {
        End a(swapped ? there4() : here4(), 7), b(swapped ? here4() : there4(), 8);
        a.up(b);
        usleep(20000);
        a.qp.reset();
    }
    EXPECT_TRUE(eventually([] { return !listens("") && !listens(config().peer_ns); }));
}

TEST(Modify, DeviceIsDeletedWhileItWaits) {
    for (const bool swapped : {false, true}) {
        TwoHosts hosts;
        DeviceGone gone;
        const Place in_a{hosts.dev_a, hosts.ns_a, hosts.addr_a};
        const Place in_b{hosts.dev_b, hosts.ns_b, hosts.addr_b};
        End a(swapped ? in_b : in_a, 7), b(swapped ? in_a : in_b, 8);
        End c(in_a, 9), d(in_b, 10);
        c.up(d);
        d.up(c);
        expect_carries(c, d);
        a.up(b);
        usleep(20000);
        EXPECT_EQ(link_delete(a.place.device).status, 0);
        expect_context_event(a.context.get(), IBV_EVENT_DEVICE_FATAL);
    }
}

TEST(Modify, NetdevGoesWhileItWaits) {
    for (const bool swapped : {false, true}) {
        TwoHosts hosts;
        DeviceGone gone;
        const Place in_a{hosts.dev_a, hosts.ns_a, hosts.addr_a};
        const Place in_b{hosts.dev_b, hosts.ns_b, hosts.addr_b};
        End a(swapped ? in_b : in_a, 7), b(swapped ? in_a : in_b, 8);
        a.up(b);
        usleep(20000);
        must_shell("ip -n " + hosts.ns_a + " link del " + hosts.netdev_a);
        expect_context_event(a.context.get(), IBV_EVENT_DEVICE_FATAL);
        expect_context_event(b.context.get(), IBV_EVENT_DEVICE_FATAL);
    }
}

TEST(Modify, KilledWhileItWaits) {
    const uint64_t before =
        resource_count(config().dev, "qp") + resource_count(config().peer_dev, "qp");
    for (const Place &place : {here4(), there4()}) {
        const Place &other = place.ns.empty() ? there4() : here4();
        Child child({"waiter", place.device, place.ns, place.address, other.address});
        ASSERT_EQ(child.line(), "ready");
        child.signal(SIGKILL);
        ASSERT_TRUE(child.wait());
    }
    EXPECT_TRUE(eventually([&] {
        return resource_count(config().dev, "qp") + resource_count(config().peer_dev, "qp") ==
               before;
    }));
    EXPECT_TRUE(eventually([] { return !listens("") && !listens(config().peer_ns); }));
}

} // namespace
} // namespace softwarp::e2e
