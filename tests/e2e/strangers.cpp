// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What another user of the machine, or a peer, must not be able to do. */
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/children.hpp"
#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

/* A QP of this process, root's, that is connected to nothing. */
struct OwnQp {
    explicit OwnQp(const std::string &device)
        : context(open_device(device)), pd(alloc_pd(context.get())),
          cq(create_cq(context.get(), 16)) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {8, 8, 1, 1, 0};
        qp.reset(ibv_create_qp(pd.get(), &attr));
        require(qp != nullptr, "ibv_create_qp");
    }
    std::string number() const { return std::to_string(qp->qp_num); }

    Context context;
    Pd pd;
    Cq cq;
    Qp qp;
};

milliseconds took(const std::function<void()> &what) {
    auto before = std::chrono::steady_clock::now();
    what();
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - before);
}

/* Number, as errno, of what the child's attempt brought; 0 for success. */
int outcome(Child &child) {
    return std::stoi(child.line());
}

TEST(Strangers, ConnectNoQpOfOthers) {
    Acceptor silent(config().peer_ns, config().peer_addr4);
    OwnQp mine(config().dev);
    Child stranger(
        {"connect", "65534", config().peer_addr4, std::to_string(silent.port()), mine.number()});
    EXPECT_EQ(outcome(stranger), EINVAL);
    EXPECT_LT(took([&] { mine.qp.reset(); }), milliseconds(2000) * config().scale)
        << "destroying a QP waits for a stranger";
}

TEST(Strangers, AcceptWithNoQpOfOthers) {
    OwnQp mine(config().dev);
    Child stranger({"accept", "65534", config().addr4, mine.number()});
    uint16_t port = static_cast<uint16_t>(std::stoi(stranger.line()));
    Stream peer(config().peer_ns, config().addr4, port);
    peer.say(MpaFrame::enhanced_request({.ird = 4, .ord = 4}).bytes());
    EXPECT_EQ(outcome(stranger), EINVAL);
    EXPECT_LT(took([&] { mine.qp.reset(); }), milliseconds(2000) * config().scale);
}

/* Another process of the same user may: programs leave connecting to helpers. */
TEST(Strangers, ProcessesOfOneUserShare) {
    Acceptor silent(config().peer_ns, config().peer_addr4);
    OwnQp mine(config().dev);
    Child helper(
        {"connect", "0", config().peer_addr4, std::to_string(silent.port()), mine.number()});
    EXPECT_EQ(outcome(helper), 0);
    /* The one connect there is has the QP to itself ... */
    Child second(
        {"connect", "0", config().peer_addr4, std::to_string(silent.port()), mine.number()});
    EXPECT_EQ(outcome(second), EISCONN);
    /* ... but does not keep it. */
    EXPECT_LT(took([&] { mine.qp.reset(); }), milliseconds(2000) * config().scale);
}

/* A connect to a QP that is connected fails, and is nobody's to wait for. */
TEST(Strangers, ConnectedQpIsTaken) {
    Acceptor silent(config().peer_ns, config().peer_addr4);
    Pair pair;
    for (const char *user : {"65534", "0"}) {
        SCOPED_TRACE(user);
        Child stranger({"connect", user, config().peer_addr4, std::to_string(silent.port()),
                        std::to_string(pair.c().qp()->qp_num)});
        EXPECT_EQ(outcome(stranger), *user == '0' ? EISCONN : EINVAL);
    }
    expect_works(pair);
    EXPECT_LT(took([&] { pair.c().destroy_qp(); }), milliseconds(2000) * config().scale);
}

/*
 * iw_cm drops the requests that it has not come to when their listener goes.
 * Nobody can answer those, and they must not stay for as long as the device.
 */
TEST(Strangers, RequestsOfDeadListenersEnd) {
    ParameterOverride patience("handshake_ms", "1000");
    const uint64_t before = counters(config().peer_dev)["connections_now"];
    const Bytes request = MpaFrame::enhanced_request({.ird = 4, .ord = 4}).bytes();
    std::vector<Stream> peers;
    for (int i = 0; i < 12; i++) {
        EventChannel channel;
        Listener listener(channel, config().peer_ns, config().peer_addr4, 64);
        for (int n = 0; n < 24; n++) {
            peers.emplace_back("", config().peer_addr4, listener.port());
            peers.back().say(request);
        }
    }
    /* All of them stay connected as far as they can. */
    EXPECT_TRUE(eventually([&] {
        return counters(config().peer_dev)["connections_now"] == before;
    })) << counters(config().peer_dev)["connections_now"]
        << " instead of " << before;
}

/* One source alone does not keep others out. */
TEST(Strangers, OneSourceDoesNotTakeAll) {
    ParameterOverride all("max_pending", "32"), share("max_pending_source", "4");
    const std::string netdev = netdev_of(config().dev);
    const std::string other = "10.77.0.78";
    must_shell("ip addr add " + other + "/24 dev " + netdev);
    {
        EventChannel server_channel, client_channel;
        Listener listener(server_channel, config().peer_ns, config().peer_addr4, 16);
        const uint64_t before = counters(config().peer_dev)["pending_limit_drop"];
        std::vector<Stream> silent;
        for (int i = 0; i < 40; i++) {
            try {
                silent.emplace_back("", config().peer_addr4, listener.port());
            } catch (const Failure &) {
                /* reset at once */
            }
        }
        EXPECT_TRUE(eventually([&] {
            return counters(config().peer_dev)["pending_limit_drop"] == before + 40 - 16;
        })) << counters(config().peer_dev)["pending_limit_drop"] - before;

        CmId id = resolve(client_channel, "", config().peer_addr4, listener.port(), other);
        Endpoint client(client_channel, std::move(id), {});
        start_connect(client);
        CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        Endpoint server(server_channel, CmId(request.id), {});
        accept(server);
        client.expect(RDMA_CM_EVENT_ESTABLISHED);
    }
    must_shell("ip addr del " + other + "/24 dev " + netdev);
}

/* Two devices listen on one socket; one comes and goes while connections come in for it. */
TEST(Strangers, DeviceGoesUnderASharedListener) {
    TwoHosts hosts;
    in_namespace(hosts.ns_b, [&] {
        require(link_add("e2e_shared_lo", "lo", hosts.ns_b).status == 0, "rdma link add");
    });
    EventChannel channel;
    Listener listener(channel, hosts.ns_b, "0.0.0.0", 64);
    std::atomic<bool> over{false};
    std::thread flood([&] {
        in_namespace(hosts.ns_a, [&] {
            Address to = address(hosts.addr_b, listener.port());
            while (!over) {
                Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
                connect(fd.get(), &to.generic, sizeof(to.v4));
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        });
    });
    for (int i = 0; i < full_or_quick(10, 4); i++) {
        EXPECT_EQ(link_delete(hosts.dev_b).status, 0);
        EXPECT_EQ(link_add(hosts.dev_b, hosts.netdev_b, hosts.ns_b).status, 0);
    }
    over = true;
    flood.join();
    expect_route_works({hosts.ns_b, "0.0.0.0", hosts.ns_a, hosts.addr_b, ""});
    EXPECT_EQ(link_delete("e2e_shared_lo").status, 0);
}

} // namespace
