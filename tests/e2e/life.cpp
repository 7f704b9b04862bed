// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The end of things in use: processes, devices, netdevs, namespaces, the module. */
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/children.hpp"
#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

/* Killed processes ----------------------------------------------------------- */

class KillPeer : public testing::TestWithParam<const char *> {};

INSTANTIATE_TEST_SUITE_P(That, KillPeer, testing::Values("sink", "writer", "reader", "sender"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string("Is") + info.param;
                         });

/*
 * The peer process dies by SIGKILL in the middle of transfers.  The survivor
 * sees the disconnect and every request flushed, and the device works on.
 */
TEST_P(KillPeer, MidTransfer) {
    constexpr size_t kMessage = 256 * 1024;
    constexpr uint64_t kDepth = 32;
    std::string mode = GetParam();
    uint64_t qps = resource_count(config().peer_dev, "qp");

    for (unsigned round = 0; round < full_or_quick(3U, 2U); round++) {
        SCOPED_TRACE(round);
        Child peer({"peer", mode, config().peer_ns, config().peer_addr4});
        uint16_t port = static_cast<uint16_t>(std::stoi(peer.line()));

        EventChannel channel;
        CmId id = resolve(channel, "", config().peer_addr4, port);
        Endpoint end(channel, std::move(id), QpOptions{.send_wr = 64, .recv_wr = 1024});
        Region memory(end.pd(), kMessage);
        uint64_t receives = mode == "sender" ? 1024 : 4;
        for (uint64_t i = 0; i < receives; i++)
            end.recv(i, {memory.all()});
        PeerMemory ours{memory.addr(), memory.rkey(), kMessage};
        rdma_conn_param param = end.conn_param();
        param.private_data = &ours;
        param.private_data_len = sizeof(ours);
        ASSERT_EQ(rdma_connect(end.id(), &param), 0);
        CmEvent established = end.expect(RDMA_CM_EVENT_ESTABLISHED);
        PeerMemory theirs{};
        ASSERT_GE(established.private_data.size(), sizeof(theirs));
        std::memcpy(&theirs, established.private_data.data(), sizeof(theirs));
        ASSERT_EQ(peer.line(), "ready");

        uint64_t next = 0, done = 0;
        auto post = [&] {
            if (mode != "sink")
                return;
            while (next - done < kDepth) {
                if (next % 3 == 0)
                    end.write(next, {memory.all()}, theirs.addr, theirs.rkey);
                else if (next % 3 == 1)
                    end.read(next, {memory.all()}, theirs.addr, theirs.rkey);
                else
                    end.write(next, {memory.sge(1, 5)}, theirs.addr, theirs.rkey);
                next++;
            }
        };
        /* Keep the wire busy for a moment, then pull the plug. */
        Deadline busy(milliseconds(20 + 7 * round));
        while (!busy.passed()) {
            post();
            if (std::optional<ibv_wc> wc = try_wc(end.scq())) {
                ASSERT_EQ(wc->status, IBV_WC_SUCCESS) << wc_text(*wc);
                ASSERT_EQ(wc->wr_id, done++);
            }
        }
        peer.signal(SIGKILL);

        end.expect(RDMA_CM_EVENT_DISCONNECTED, Deadline(milliseconds(5000)));
        bool flushed = false, blamed = false;
        while (done < next) {
            ibv_wc wc = next_wc(end.scq());
            EXPECT_EQ(wc.wr_id, done++);
            /*
             * The kernel takes the dead process's memory away before its QP, and the Terminate
             * names one request.  Reads before it that had no answer yet are flushed.
             */
            EXPECT_TRUE(wc.status == IBV_WC_WR_FLUSH_ERR ||
                        (wc.status == IBV_WC_SUCCESS && !flushed) ||
                        (wc.status == IBV_WC_REM_ACCESS_ERR && !blamed))
                << wc_text(wc);
            flushed = flushed || wc.status != IBV_WC_SUCCESS;
            blamed = blamed || wc.status == IBV_WC_REM_ACCESS_ERR;
        }
        flushed = false;
        for (uint64_t i = 0; i < receives; i++) {
            ibv_wc wc = next_wc(end.rcq());
            EXPECT_EQ(wc.wr_id, i);
            EXPECT_TRUE(wc.status == IBV_WC_WR_FLUSH_ERR ||
                        (wc.status == IBV_WC_SUCCESS && !flushed && mode == "sender"))
                << wc_text(wc);
            flushed = flushed || wc.status != IBV_WC_SUCCESS;
        }
        EXPECT_TRUE(peer.wait()) << "the killed process does not go away";
    }
    EXPECT_TRUE(eventually([&] { return resource_count(config().peer_dev, "qp") == qps; }))
        << "QPs of dead processes are left";
    expect_route_works();
}

/* A stopped process's device still answers: its memory is served by the kernel. */
TEST(StoppedPeer, StillServesItsMemory) {
    Child peer({"peer", "sink", config().peer_ns, config().peer_addr4});
    uint16_t port = static_cast<uint16_t>(std::stoi(peer.line()));
    EventChannel channel;
    CmId id = resolve(channel, "", config().peer_addr4, port);
    Endpoint end(channel, std::move(id), {});
    start_connect(end);
    CmEvent established = end.expect(RDMA_CM_EVENT_ESTABLISHED);
    PeerMemory theirs{};
    std::memcpy(&theirs, established.private_data.data(), sizeof(theirs));
    ASSERT_EQ(peer.line(), "ready");
    peer.signal(SIGSTOP);
    Region memory(end.pd(), 8192);
    fill(memory.at(0), 4096, 5);
    end.write(1, {memory.sge(0, 4096)}, theirs.addr, theirs.rkey);
    end.read(2, {memory.sge(4096, 4096)}, theirs.addr, theirs.rkey);
    expect_success(end.scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(end.scq(), 2, IBV_WC_RDMA_READ, 4096);
    expect_pattern(memory.at(4096), 4096, 5);
    peer.signal(SIGKILL);
    end.expect(RDMA_CM_EVENT_DISCONNECTED, Deadline(milliseconds(5000)));
}

/* Devices that go away in use -------------------------------------------------- */

/* A busy connection on hosts of its own, and a context that holds every object. */
struct BusyHosts {
    explicit BusyHosts(bool busy = true)
        : pair(QpOptions{.send_wr = 64}, hosts.route()), context(open_device(hosts.dev_a)),
          pd(alloc_pd(context.get())), region(pd.get(), 4096), cq(create_cq(context.get(), 16)),
          from(pair.c().pd(), kSize), to(pair.s().pd(), kSize) {
        expect_works(pair);
        for (uint64_t i = 0; i < 4; i++) {
            pair.c().recv(i, {});
            pair.s().recv(i, {});
        }
        if (!busy)
            return;
        /*
         * Reads by both sides: posting them takes no time, and answering them
         * takes longer than the test will wait.
         */
        for (uint64_t i = 0; i < 32; i++) {
            pair.c().read(i, {from.all()}, to.addr(), to.rkey());
            pair.s().read(i, {to.all()}, from.addr(), from.rkey());
        }
    }

    const size_t kSize = full_or_quick<size_t>(4 << 20, 256 << 10);
    DeviceGone excuse;
    TwoHosts hosts;
    Pair pair;
    Context context;
    Pd pd;
    Region region;
    Cq cq;
    Region from;
    Region to;
};

bool device_vanishes(const std::string &name) {
    return eventually([&] { return !device_exists(name); });
}

/* The side that lives on: flush and disconnect. */
void expect_survivor(Endpoint &end) {
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    for (uint64_t i = 0; i < 4; i++)
        expect_wc(end.rcq(), i, IBV_WC_WR_FLUSH_ERR);
    expect_qp_state(end.qp(), IBV_QPS_ERR);
}

/* The id learns that its device goes, perhaps behind the disconnect. */
void expect_removal(Endpoint &end) {
    for (;;) {
        std::optional<CmEvent> event = end.channel().try_next(end.id(), Deadline());
        if (!event)
            fail("no RDMA_CM_EVENT_DEVICE_REMOVAL");
        if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
            return;
        EXPECT_EQ(event->type, RDMA_CM_EVENT_DISCONNECTED) << cm_event_text(*event);
    }
}

TEST(LinkDelete, InUse) {
    for (int round = 0; round < full_or_quick(3, 1); round++) {
        SCOPED_TRACE(round);
        BusyHosts busy;
        std::this_thread::sleep_for(milliseconds(3 * round));
        ShellResult deleted = link_delete(busy.hosts.dev_a);
        EXPECT_EQ(deleted.status, 0) << deleted.output;
        EXPECT_TRUE(device_vanishes(busy.hosts.dev_a));
        expect_context_event(busy.context.get(), IBV_EVENT_DEVICE_FATAL);
        expect_removal(busy.pair.c());
        expect_survivor(busy.pair.s());

        /* The context answers, with an error. */
        ibv_port_attr port{};
        EXPECT_EQ(ibv_query_port(busy.context.get(), 1, &port), EIO);
        errno = 0;
        EXPECT_EQ(ibv_alloc_pd(busy.context.get()), nullptr);
        EXPECT_EQ(errno, EIO);
        /* The mapped rings may still be touched: no signal comes of it. */
        post_recv(busy.pair.c().qp(), 9, {});
        post_send(busy.pair.c().qp(), SendWr::send(9, {}));
        ibv_wc wc{};
        ibv_poll_cq(busy.pair.c().scq(), 1, &wc);
    }
    expect_route_works();
}

/* The same name and netdev can be used again while old contexts are open. */
TEST(LinkDelete, AndAddAgain) {
    BusyHosts busy(false);
    ASSERT_EQ(link_delete(busy.hosts.dev_a).status, 0);
    ASSERT_TRUE(device_vanishes(busy.hosts.dev_a));
    ShellResult added = link_add(busy.hosts.dev_a, busy.hosts.netdev_a, busy.hosts.ns_a);
    ASSERT_EQ(added.status, 0) << added.output;
    Context again = open_device(busy.hosts.dev_a);
    Pd pd = alloc_pd(again.get());
    Region region(pd.get(), 4096);
}

/* With listeners, requests and handshakes pending. */
TEST(LinkDelete, WithConnectionsPending) {
    DeviceGone excuse;
    TwoHosts hosts;
    EventChannel client_channel, server_channel;
    Listener on_address(server_channel, hosts.ns_b, hosts.addr_b, 32);
    Listener on_any(server_channel, hosts.ns_b, "0.0.0.0", 32);
    std::vector<std::unique_ptr<Endpoint>> clients;
    for (int i = 0; i < 8; i++) {
        CmId id = resolve(client_channel, hosts.ns_a, hosts.addr_b,
                          i % 2 == 0 ? on_address.port() : on_any.port());
        clients.push_back(std::make_unique<Endpoint>(client_channel, std::move(id), QpOptions{}));
        start_connect(*clients.back());
    }
    server_channel.expect(on_address.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    ShellResult deleted = link_delete(hosts.dev_b);
    EXPECT_EQ(deleted.status, 0) << deleted.output;
    EXPECT_TRUE(device_vanishes(hosts.dev_b));
    for (auto &client : clients) {
        auto event = client_channel.try_next(client->id(), Deadline());
        ASSERT_TRUE(event.has_value()) << "a client was left without an answer";
        EXPECT_TRUE(event->type == RDMA_CM_EVENT_REJECTED ||
                    event->type == RDMA_CM_EVENT_UNREACHABLE ||
                    event->type == RDMA_CM_EVENT_CONNECT_ERROR)
            << cm_event_text(*event);
    }
}

/* By a process that holds objects and does not react at all. */
TEST(LinkDelete, WhileAnotherProcessHoldsObjects) {
    TwoHosts hosts;
    Child holder({"holder", hosts.dev_a});
    ASSERT_EQ(holder.line(), "ready");
    holder.signal(SIGSTOP);
    ShellResult deleted = link_delete(hosts.dev_a);
    EXPECT_EQ(deleted.status, 0) << deleted.output;
    EXPECT_TRUE(device_vanishes(hosts.dev_a));
    holder.signal(SIGKILL);
    EXPECT_TRUE(holder.wait());
}

TEST(Netdev, RemovedUnderLoad) {
    for (int round = 0; round < full_or_quick(3, 1); round++) {
        BusyHosts busy;
        /* Both ends of a veth go at once, and both devices. */
        must_shell(fmt::format("ip -n {} link del {}", busy.hosts.ns_a, busy.hosts.netdev_a));
        EXPECT_TRUE(device_vanishes(busy.hosts.dev_a));
        EXPECT_TRUE(device_vanishes(busy.hosts.dev_b));
        expect_context_event(busy.context.get(), IBV_EVENT_DEVICE_FATAL);
    }
    expect_route_works();
}

/* Users of the device take leave while it can still be done: the peer hears of it at once. */
TEST(Netdev, RemovedBelowAConnection) {
    TwoHosts hosts;
    const std::string lone = "e2elone", addr = "10.99.2.1";
    must_shell(
        fmt::format("ip -n {0} link add {1} type dummy && ip -n {0} addr add {2}/32 dev {1} && "
                    "ip -n {0} link set {1} up && ip -n {3} route add {2} via {4}",
                    hosts.ns_a, lone, addr, hosts.ns_b, hosts.addr_a));
    ShellResult added = link_add(lone, lone, hosts.ns_a);
    ASSERT_EQ(added.status, 0) << added.output;
    Pair pair(QpOptions{}, {hosts.ns_a, addr, hosts.ns_b, addr, ""});
    EXPECT_EQ(std::string(ibv_get_device_name(pair.s().context()->device)), lone);
    expect_works(pair);
    pair.c().recv(1, {});
    must_shell(fmt::format("ip -n {} link del {}", hosts.ns_a, lone));
    pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_wc(pair.c().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    expect_removal(pair.s());
    EXPECT_TRUE(device_vanishes(lone));
    expect_route_works(hosts.route());
}

/*
 * Who is slow to leave, here in the midst of a connect, may keep a netdev from going for a while;
 * not many of them one after the other, with RTNL held all the time.
 */
TEST(Netdev, ManyRemovedThoughUsersStay) {
    constexpr int kNetdevs = 8;
    DeviceGone excuse;
    TwoHosts hosts;
    Acceptor silent(hosts.ns_b, hosts.addr_b);
    std::vector<Stream> peers;
    EventChannel channel;
    std::vector<std::unique_ptr<Endpoint>> users;
    for (int i = 0; i < kNetdevs; i++) {
        const std::string name = fmt::format("e2emany{}", i), addr = fmt::format("10.99.3.{}", i);
        must_shell(fmt::format(
            "ip -n {0} link add {1} group 77 type dummy && ip -n {0} addr add {2}/32 dev {1} && "
            "ip -n {0} link set {1} up && ip -n {3} route add {2} via {4}",
            hosts.ns_a, name, addr, hosts.ns_b, hosts.addr_a));
        ShellResult added = link_add(name, name, hosts.ns_a);
        ASSERT_EQ(added.status, 0) << added.output;
        users.push_back(std::make_unique<Endpoint>(
            channel, resolve(channel, hosts.ns_a, hosts.addr_b, silent.port(), addr), QpOptions{}));
        EXPECT_EQ(std::string(ibv_get_device_name(users.back()->context()->device)), name);
        start_connect(*users.back());
        peers.push_back(silent.accept());
        peers.back().hear_mpa();
    }
    auto before = std::chrono::steady_clock::now();
    must_shell(fmt::format("ip -n {} link del group 77", hosts.ns_a));
    auto took = std::chrono::steady_clock::now() - before;
    /* one after the other each would take two seconds */
    EXPECT_LT(took, milliseconds(2000) * kNetdevs / 2);
    for (int i = 0; i < kNetdevs; i++)
        EXPECT_TRUE(device_vanishes(fmt::format("e2emany{}", i)));
    expect_route_works(hosts.route());
}

TEST(Netdev, DownAndUp) {
    TwoHosts hosts;
    Context context = open_device(hosts.dev_a);
    ibv_port_attr port{};
    auto state_is = [&](ibv_port_state state) {
        return eventually(
            [&] { return ibv_query_port(context.get(), 1, &port) == 0 && port.state == state; });
    };
    EXPECT_TRUE(state_is(IBV_PORT_ACTIVE));
    forget_async_context(context.get());

    must_shell(fmt::format("ip -n {} link set {} down", hosts.ns_a, hosts.netdev_a));
    expect_context_event(context.get(), IBV_EVENT_PORT_ERR);
    EXPECT_TRUE(state_is(IBV_PORT_DOWN)) << port.state;

    must_shell(fmt::format("ip -n {} link set {} up", hosts.ns_a, hosts.netdev_a));
    expect_context_event(context.get(), IBV_EVENT_PORT_ACTIVE);
    EXPECT_TRUE(state_is(IBV_PORT_ACTIVE)) << port.state;
    expect_route_works(hosts.route());
    forget_async_context(context.get());
}

TEST(Netdev, Renamed) {
    TwoHosts hosts;
    std::string renamed = hosts.netdev_a + "x";
    must_shell(fmt::format("ip -n {0} link set {1} down && ip -n {0} link set {1} name {2} && "
                           "ip -n {0} link set {2} up",
                           hosts.ns_a, hosts.netdev_a, renamed));
    EXPECT_EQ(netdev_of(hosts.dev_a, hosts.ns_a), renamed);
    expect_route_works(hosts.route());
    /* The name that it had is free for another, which gets a device of its own. */
    must_shell(
        fmt::format("ip -n {0} link add {1} type veth peer name {1}p && ip -n {0} link set {1} up",
                    hosts.ns_a, hosts.netdev_a));
    ShellResult added = link_add(hosts.dev_a + "2", hosts.netdev_a, hosts.ns_a);
    EXPECT_EQ(added.status, 0) << added.output;
    EXPECT_EQ(link_delete(hosts.dev_a + "2").status, 0);
}

/* The port goes by it, the node keeps its name. */
TEST(Netdev, NewHardwareAddress) {
    TwoHosts hosts;
    Context context = open_device(hosts.dev_a);
    ibv_device_attr old{}, now{};
    ASSERT_EQ(ibv_query_device(context.get(), &old), 0);
    must_shell(
        fmt::format("ip -n {0} link set {1} down && "
                    "ip -n {0} link set {1} address 02:11:22:33:44:55 && ip -n {0} link set {1} up",
                    hosts.ns_a, hosts.netdev_a));
    expect_route_works(hosts.route());

    constexpr std::array<uint8_t, 16> kOfAddress = {0xfe, 0x80, 0,    0,    0,    0,    0,    0,
                                                    0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
    constexpr std::array<uint8_t, 16> kAddress = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
    const auto &expected = kernel_before(6, 6) ? kAddress : kOfAddress;
    union ibv_gid gid = {};
    EXPECT_TRUE(eventually([&] {
        return ibv_query_gid(context.get(), 1, 0, &gid) == 0 &&
               std::memcmp(gid.raw, expected.data(), sizeof(gid)) == 0;
    })) << "the GID ends with "
        << std::hex << be64toh(gid.global.interface_id);
    ASSERT_EQ(ibv_query_device(context.get(), &now), 0);
    EXPECT_EQ(now.node_guid, old.node_guid);
    EXPECT_EQ(now.sys_image_guid, old.node_guid);
}

TEST(Netdev, NewAddress) {
    TwoHosts hosts;
    must_shell(fmt::format(
        "ip -n {} addr add 10.99.1.2/24 dev {} && ip -n {} addr add 10.99.1.1/24 dev {}",
        hosts.ns_b, hosts.netdev_b, hosts.ns_a, hosts.netdev_a));
    Route route = hosts.route();
    route.listen_addr = route.connect_addr = "10.99.1.2";
    expect_route_works(route);
}

/* Namespaces ------------------------------------------------------------------- */

bool namespace_dies(const std::string &ns) {
    ShellResult result = shell("ip netns del " + ns);
    return result.status == 0;
}

/*
 * As with sockets: the namespace loses its name at once and lives until the last
 * id and connection in it is gone, which is the core's doing (an rdma_cm_id holds
 * its namespace).  Then nothing of the driver may keep it.
 */
TEST(NetworkNamespace, DeletedWithConnectionsInIt) {
    for (bool busy : {false, true}) {
        SCOPED_TRACE(busy);
        DeviceGone excuse;
        TwoHosts hosts;
        Context context = open_device(hosts.dev_a);
        {
            Pair pair(QpOptions{.send_wr = 64}, hosts.route());
            EventChannel channel;
            Listener listener(channel, hosts.ns_a, "0.0.0.0");
            expect_works(pair);
            ASSERT_TRUE(namespace_dies(hosts.ns_a));
            expect_works(pair);
            Region from(pair.c().pd(), 1 << 20);
            Region to(pair.s().pd(), 1 << 20);
            for (uint64_t i = 0; busy && i < 32; i++) {
                pair.c().write(i, {from.all()}, to.addr(), to.rkey());
                pair.s().write(i, {to.all()}, from.addr(), from.rkey());
            }
        }
        /* The veth dies with the namespace, and so do both devices. */
        EXPECT_TRUE(device_vanishes(hosts.dev_a)) << "the namespace is kept alive";
        EXPECT_TRUE(device_vanishes(hosts.dev_b));
        expect_context_event(context.get(), IBV_EVENT_DEVICE_FATAL);
    }
    expect_route_works();
}

/* A namespace with nothing but lo, which has the device e2elo. */
class LoneNamespace {
  public:
    LoneNamespace() {
        /* The own address makes sure that no other device is meant. */
        must_shell("ip netns add " + ns + " && ip -n " + ns + " link set lo up && ip -n " + ns +
                   " addr add " + addr + "/32 dev lo");
        ShellResult added = link_add(dev, "lo", ns);
        if (added.status != 0) {
            shell("ip netns del " + ns);
            fail(added.output);
        }
    }
    ~LoneNamespace() {
        shell("ip netns del " + ns);
        device_vanishes(dev);
    }
    LoneNamespace(const LoneNamespace &) = delete;
    LoneNamespace &operator=(const LoneNamespace &) = delete;

    /* An address that no other netdev has. */
    void set_hardware_address() const {
        must_shell("ip -n " + ns + " link set lo address 02:00:00:00:00:66");
    }
    Route route() const { return {ns, addr, ns, addr, ""}; }

    const std::string ns = "e2elo", dev = "e2elo", addr = "10.66.0.1";
};

/* Before Linux 6.6 rdma_cm finds a device by its hardware address, and that of lo is zero. */
TEST(Loopback, HardwareAddressIsNeededByOldKernels) {
    LoneNamespace lone;
    if (kernel_before(6, 6)) {
        EventChannel channel;
        CmId id = create_id(channel, lone.ns);
        Address wanted = address(lone.addr, 0);
        EXPECT_EQ(rdma_bind_addr(id.get(), &wanted.generic), -1);
        EXPECT_EQ(errno, ENODEV);
    } else {
        expect_route_works(lone.route());
    }
    /* The core takes notice of the new GID in its own time. */
    lone.set_hardware_address();
    EXPECT_TRUE(eventually([&] {
        EventChannel channel;
        CmId id = create_id(channel, lone.ns);
        Address wanted = address(lone.addr, 0);
        return rdma_bind_addr(id.get(), &wanted.generic) == 0;
    }));
    expect_route_works(lone.route());
}

/* A namespace that only its loopback holds together, listeners included. */
TEST(NetworkNamespace, DeletedWithLoopbackConnections) {
    DeviceGone excuse;
    LoneNamespace lone;
    lone.set_hardware_address();
    {
        Pair pair(QpOptions{}, lone.route());
        EXPECT_EQ(std::string(ibv_get_device_name(pair.c().context()->device)), lone.dev);
        EventChannel channel;
        Listener listener(channel, lone.ns, lone.addr);
        expect_works(pair);
        ASSERT_TRUE(namespace_dies(lone.ns));
        expect_works(pair);
        pair.c().recv(1, {});
    }
    EXPECT_TRUE(device_vanishes(lone.dev)) << "the namespace is kept alive";
    expect_route_works();
}

/* The process that has the connections is killed in the middle of transfers. */
TEST(NetworkNamespace, DiesWithItsProcess) {
    DeviceGone excuse;
    for (const char *mode :
         full_or_quick<std::vector<const char *>>({"sink", "writer", "reader"}, {"writer"})) {
        SCOPED_TRACE(mode);
        TwoHosts hosts;
        Child peer({"peer", mode, hosts.ns_b, hosts.addr_b});
        uint16_t port = static_cast<uint16_t>(std::stoi(peer.line()));
        EventChannel channel;
        Endpoint end(channel, resolve(channel, hosts.ns_a, hosts.addr_b, port), {});
        Region memory(end.pd(), 1 << 20);
        PeerMemory ours{memory.addr(), memory.rkey(), 1 << 20};
        rdma_conn_param param = end.conn_param();
        param.private_data = &ours;
        param.private_data_len = sizeof(ours);
        ASSERT_EQ(rdma_connect(end.id(), &param), 0);
        end.expect(RDMA_CM_EVENT_ESTABLISHED);
        ASSERT_EQ(peer.line(), "ready");
        end.recv(1, {});

        must_shell("ip netns del " + hosts.ns_b);
        peer.signal(SIGKILL);
        EXPECT_TRUE(peer.wait());
        /* The veth dies with the namespace, and so do both devices. */
        EXPECT_TRUE(device_vanishes(hosts.dev_b)) << "the namespace is kept alive";
        EXPECT_TRUE(device_vanishes(hosts.dev_a));
        expect_removal(end);
    }
    expect_route_works();
}

/* Both ends and a listener in a namespace, over its loopback. */
TEST(NetworkNamespace, DiesWithItsProcessOnLoopback) {
    LoneNamespace lone;
    lone.set_hardware_address();
    Child pair({"pair", lone.ns, lone.addr, lone.dev});
    EXPECT_EQ(pair.line(), "ready");
    must_shell("ip netns del " + lone.ns);
    pair.signal(SIGKILL);
    EXPECT_TRUE(pair.wait());
    EXPECT_TRUE(device_vanishes(lone.dev)) << "the namespace is kept alive";
    expect_route_works();
}

/* Sockets live in the netdev's namespace, whoever uses the device. */
TEST(NetworkNamespace, NetdevMovesBetweenNamespaces) {
    TwoHosts hosts;
    /* The netdev leaves: as for its own namespace it is gone, with its device. */
    must_shell(fmt::format("ip netns add e2emove && ip -n {} link set {} netns e2emove", hosts.ns_a,
                           hosts.netdev_a));
    EXPECT_TRUE(eventually([&] {
        return !device_exists(hosts.dev_a) ||
               shell(fmt::format("ip netns exec e2emove rdma link show {}/1", hosts.dev_a))
                       .output.find(hosts.netdev_a) != std::string::npos;
    })) << "the device neither went nor followed";
    must_shell("ip netns del e2emove");
    EXPECT_TRUE(device_vanishes(hosts.dev_a));
}

/* "rdma link add" with bad input -------------------------------------------------- */

TEST(LinkAdd, SecondDeviceOnANetdev) {
    TwoHosts hosts;
    ShellResult result = link_add("e2esecond", hosts.netdev_a, hosts.ns_a);
    EXPECT_NE(result.status, 0);
    EXPECT_NE(result.output.find("File exists"), std::string::npos) << result.output;
    EXPECT_FALSE(device_exists("e2esecond"));
    expect_route_works(hosts.route());
}

TEST(LinkAdd, NameTaken) {
    TwoHosts hosts;
    must_shell(fmt::format("ip -n {} link add e2edummy type veth peer name e2edummyp", hosts.ns_a));
    ShellResult result = link_add(hosts.dev_a, "e2edummy", hosts.ns_a);
    EXPECT_GT(result.status, 0) << result.output;
    EXPECT_FALSE(result.output.empty());
    expect_route_works(hosts.route());
}

TEST(LinkAdd, UnknownNetdev) {
    ShellResult result = link_add("e2enone", "nosuchdev");
    EXPECT_NE(result.status, 0);
    EXPECT_FALSE(device_exists("e2enone"));
}

TEST(LinkAdd, BadNames) {
    TwoHosts hosts;
    must_shell(fmt::format("ip -n {} link add e2edummy type veth peer name e2edummyp", hosts.ns_a));
    for (const std::string &name : {std::string(100, 'x'), std::string("a/b"), std::string("..")}) {
        ShellResult result = link_add(name, "e2edummy", hosts.ns_a);
        EXPECT_GT(result.status, 0) << name << ": " << result.output;
        EXPECT_FALSE(result.output.empty());
        if (result.status == 0)
            link_delete(name);
    }
    /* Nothing of the attempts is left on the netdev. */
    ShellResult result = link_add("e2egood", "e2edummy", hosts.ns_a);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_EQ(link_delete("e2egood").status, 0);
}

TEST(LinkAdd, ManyTimes) {
    TwoHosts hosts;
    for (int i = 0; i < full_or_quick(12, 6); i++) {
        ASSERT_EQ(link_delete(hosts.dev_a).status, 0) << i;
        ASSERT_EQ(link_add(hosts.dev_a, hosts.netdev_a, hosts.ns_a).status, 0) << i;
    }
    expect_route_works(hosts.route());
}

/* The module, last of all ------------------------------------------------------------ */

/*
 * Run only when asked for (main.cpp): nothing works after it.  Live contexts do not hold the
 * module, since the device can be taken from them.
 */
TEST(ZUnload, WithDevicesInUse) {
    DeviceGone excuse;
    Pair pair;
    expect_works(pair);
    pair.c().recv(1, {});
    ShellResult unloaded = shell("rmmod softwarp");
    EXPECT_EQ(unloaded.status, 0) << unloaded.output;
    EXPECT_FALSE(device_exists(config().dev));
    EXPECT_FALSE(device_exists(config().peer_dev));
}

} // namespace
