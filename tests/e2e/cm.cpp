// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Connections: how they come about, fail to, and end. */
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

std::vector<uint8_t> octets(size_t length, uint64_t seed) {
    std::vector<uint8_t> data(length);
    fill(data.data(), length, seed);
    return data;
}

/*
 * librdmacm pads nothing on iWARP, but the connection manager below may hand up
 * more than was sent; what was sent is the beginning.
 */
void expect_private_data(const CmEvent &event, const std::vector<uint8_t> &sent) {
    EXPECT_EQ(event.private_data, sent);
}

/* The client's half of a Pair. */
std::unique_ptr<Endpoint> connecting(EventChannel &channel, uint16_t port,
                                     const QpOptions &options = {}, const Route &route = veth4()) {
    CmId id = resolve(channel, route.connect_ns, route.connect_addr, port);
    auto end = std::make_unique<Endpoint>(channel, std::move(id), options);
    start_connect(*end);
    return end;
}

/* The client's connection; if there is none, says what the client was told instead. */
Stream accepted(Acceptor &listener, EventChannel &channel, const Endpoint &client) {
    try {
        return listener.accept();
    } catch (const Failure &failure) {
        auto told = channel.try_next(client.id(), Deadline(milliseconds(0)));
        fail(fmt::format("{}; the client: {}", failure.what(),
                         told ? cm_event_text(*told) : "no event"));
    }
}

/* Takes the next request of the listener and accepts it. */
std::unique_ptr<Endpoint> accepting(Listener &listener, const QpOptions &options = {}) {
    CmEvent request = listener.channel().expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    auto end = std::make_unique<Endpoint>(listener.channel(), CmId(request.id), options);
    accept(*end);
    return end;
}

TEST(Cm, PrivateData) {
    /* rdma_cm carries up to 255 octets on iWARP, its length field is one. */
    for (size_t length : {0, 1, 2, 3, 4, 7, 56, 148, 196, 250, 251, 252, 253, 254, 255}) {
        SCOPED_TRACE(length);
        PairOptions options;
        options.client.private_data = octets(length, 1);
        options.server.private_data = octets(255 - length, 2);
        Pair pair(options);
        expect_private_data(pair.request, options.client.private_data);
        expect_private_data(pair.reply, options.server.private_data);
    }
}

TEST(Cm, DepthsAreNegotiated) {
    PairOptions options;
    options.client.ird = 5;
    options.client.ord = 9;
    options.server.ird = 9;
    options.server.ord = 5;
    Pair pair(options);
    /* What one side initiates the other responds to. */
    EXPECT_EQ(pair.request.responder_resources, 9);
    EXPECT_EQ(pair.request.initiator_depth, 5);
    expect_works(pair);
}

TEST(Cm, Addresses) {
    Pair pair;
    Address local{}, remote{};
    std::memcpy(&local, rdma_get_local_addr(pair.s().id()), sizeof(local.v4));
    std::memcpy(&remote, rdma_get_peer_addr(pair.s().id()), sizeof(remote.v4));
    EXPECT_EQ(local.v4.sin_addr.s_addr, address(config().peer_addr4, 0).v4.sin_addr.s_addr);
    EXPECT_EQ(remote.v4.sin_addr.s_addr, address(config().addr4, 0).v4.sin_addr.s_addr);
    EXPECT_EQ(rdma_get_dst_port(pair.s().id()), rdma_get_src_port(pair.c().id()));
    EXPECT_EQ(std::string(ibv_get_device_name(pair.c().context()->device)), config().dev);
    EXPECT_EQ(std::string(ibv_get_device_name(pair.s().context()->device)), config().peer_dev);
}

TEST(Cm, Reject) {
    for (size_t length : {0, 1, 100, 255}) {
        SCOPED_TRACE(length);
        EventChannel client_channel, server_channel;
        Listener listener(server_channel, config().peer_ns, config().peer_addr4);
        auto client = connecting(client_channel, listener.port());
        CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        CmId id(request.id);
        std::vector<uint8_t> reason = octets(length, 3);
        ASSERT_EQ(rdma_reject(id.get(), reason.data(), static_cast<uint8_t>(length)), 0);
        CmEvent rejected = client->expect(RDMA_CM_EVENT_REJECTED);
        EXPECT_EQ(rejected.status, -ECONNREFUSED);
        expect_private_data(rejected, reason);
    }
}

TEST(Cm, NobodyListens) {
    for (const Route &route : {veth4(), veth6(), loop4()}) {
        SCOPED_TRACE(route.connect_addr);
        EventChannel channel;
        /* A port that was free a moment ago. */
        uint16_t port = Listener(channel, route.listen_ns, route.listen_addr).port();
        auto client = connecting(channel, port, QpOptions{}, route);
        CmEvent event = client->expect(RDMA_CM_EVENT_REJECTED);
        EXPECT_EQ(event.status, -ECONNREFUSED);
    }
}

TEST(Cm, NobodyAtTheAddress) {
    EventChannel channel;
    CmId id = create_id(channel);
    Address to = address("10.77.0.99", 4000);
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, &to.generic, 500), 0);
    channel.expect(id.get(), RDMA_CM_EVENT_ADDR_ERROR);
}

/* A SYN that nobody answers: connect returns at once, others are not delayed. */
TEST(Cm, UnansweredSyn) {
    std::string netdev = netdev_of(config().dev);
    must_shell("ip neigh replace 10.77.0.98 lladdr 02:00:00:00:00:98 dev " + netdev +
               " nud permanent");
    {
        EventChannel channel;
        CmId id = resolve(channel, "", "10.77.0.98", 4000);
        Endpoint client(channel, std::move(id), {});
        auto before = std::chrono::steady_clock::now();
        start_connect(client);
        auto took = std::chrono::steady_clock::now() - before;
        EXPECT_LT(took, milliseconds(500) * config().scale) << "rdma_connect blocks";

        before = std::chrono::steady_clock::now();
        expect_route_works();
        took = std::chrono::steady_clock::now() - before;
        EXPECT_LT(took, milliseconds(2000) * config().scale) << "another connect was delayed";

        before = std::chrono::steady_clock::now();
        /* The end of scope destroys the id in the middle of the connect. */
    }
    must_shell("ip neigh del 10.77.0.98 dev " + netdev);
}

/* A server that accepts the TCP connection and never answers the request. */
TEST(Cm, SilentServer) {
    /* Else the test would last as long as the driver's patience. */
    ParameterOverride patience("reply_ms", "1500");
    Acceptor listener(config().peer_ns, config().peer_addr4);
    EventChannel channel;
    auto client = connecting(channel, listener.port());
    Stream raw = listener.accept();
    Bytes request = raw.hear(kMpaHeader);
    EXPECT_EQ(std::string(request.begin(), request.begin() + 16), "MPA ID Req Frame");
    CmEvent event = client->expect(RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_EQ(event.status, -ETIMEDOUT);
    EXPECT_TRUE(raw.closed_by_peer());
    expect_route_works();
}

/* A server that answers with what is no MPA reply. */
TEST(Cm, GarbageReply) {
    Bytes wrong_key = mpa_frame(false, kMpaCrc, 1);
    Bytes long_data = mpa_frame(true, kMpaCrc, 1);
    long_data[18] = 0xff;
    long_data[19] = 0xff;
    Bytes http{'H', 'T', 'T', 'P', '/', '1', '.', '1', ' ', '4', '0', '0',  ' ',
               'B', 'a', 'd', ' ', 'R', 'e', 'q', 'u', 'e', 's', 't', '\r', '\n'};
    Bytes revision = mpa_frame(true, kMpaCrc, 77);
    for (const Bytes &reply : {wrong_key, long_data, http, revision}) {
        Acceptor listener(config().peer_ns, config().peer_addr4);
        EventChannel channel;
        auto client = connecting(channel, listener.port());
        Stream raw = listener.accept();
        raw.hear(kMpaHeader);
        raw.say(reply);
        std::optional<CmEvent> event = channel.try_next(client->id(), Deadline());
        ASSERT_TRUE(event.has_value()) << "no event";
        EXPECT_TRUE(event->type == RDMA_CM_EVENT_CONNECT_ERROR ||
                    event->type == RDMA_CM_EVENT_REJECTED)
            << cm_event_text(*event);
        EXPECT_LT(event->status, 0);
        EXPECT_TRUE(raw.closed_by_peer());
    }
    expect_route_works();
}

/* A server that closes or resets instead of an answer. */
TEST(Cm, HangupInsteadOfReply) {
    for (bool reset : {false, true}) {
        SCOPED_TRACE(reset);
        Acceptor listener(config().peer_ns, config().peer_addr4);
        EventChannel channel;
        auto client = connecting(channel, listener.port());
        /* Once more with revision 1, and no more than that. */
        for (uint8_t revision : {2, 1}) {
            Stream raw = accepted(listener, channel, *client);
            EXPECT_EQ(raw.hear(kMpaHeader)[17], revision);
            if (reset)
                raw.reset();
        }
        CmEvent event = client->expect(RDMA_CM_EVENT_REJECTED);
        EXPECT_EQ(event.status, -ECONNRESET);
    }
}

/* RFC 6581 section 10: a peer of revision 1 hangs up on an enhanced request. */
TEST(Cm, FallsBackToRevision1) {
    Acceptor listener(config().peer_ns, config().peer_addr4);
    EventChannel channel;
    auto client = connecting(channel, listener.port());
    accepted(listener, channel, *client).hear(kMpaHeader);
    Stream raw = accepted(listener, channel, *client);
    Bytes request = raw.hear(kMpaHeader);
    EXPECT_EQ(request[16] & kMpaEnhanced, 0);
    EXPECT_EQ(request[17], 1);
    raw.say(mpa_frame(true, kMpaCrc, 1, {'h', 'i'}));
    CmEvent event = client->expect(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(event.private_data, (std::vector<uint8_t>{'h', 'i'}));
    raw.shut_down();
    client->expect(RDMA_CM_EVENT_DISCONNECTED);
}

/*
 * ... after reading all of it, so that it ends its stream by a FIN.  The end of
 * ours is not acknowledged yet when the second attempt begins.
 */
TEST(Cm, FallsBackAfterAFin) {
    std::string out = "ip netns exec " + config().peer_ns + " tc qdisc ";
    std::string netdev = netdev_of(config().peer_dev, config().peer_ns);
    must_shell(out + "add dev " + netdev + " root netem delay 30ms");
    struct Clean {
        std::string command;
        ~Clean() { shell(command); }
    } clean{out + "del dev " + netdev + " root"};
    Acceptor listener(config().peer_ns, config().peer_addr4);
    EventChannel channel;
    auto client = connecting(channel, listener.port());
    EXPECT_EQ(accepted(listener, channel, *client).hear_mpa()[17], 2);
    Stream raw = accepted(listener, channel, *client);
    EXPECT_EQ(raw.hear_mpa()[17], 1);
    raw.say(mpa_frame(true, kMpaCrc, 1));
    client->expect(RDMA_CM_EVENT_ESTABLISHED);
    raw.shut_down();
    client->expect(RDMA_CM_EVENT_DISCONNECTED);
}

/* Not MPA at all: the application sees nothing, the stream is closed. */
TEST(Cm, GarbageRequests) {
    EventChannel server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4);

    Bytes random(300);
    fill(random.data(), random.size(), 99);
    Bytes reply_key = mpa_frame(true, kMpaCrc, 1);
    Bytes revision0 = mpa_frame(false, kMpaCrc, 0);
    Bytes revision = mpa_frame(false, kMpaCrc, 99);
    Bytes too_long = mpa_frame(false, kMpaCrc, 1);
    too_long[18] = 2; // 513 octets of private data
    too_long[19] = 1;
    Bytes short_enhanced = mpa_frame(false, kMpaCrc | kMpaEnhanced, 2, {1, 2, 3});
    Bytes extra = mpa_frame(false, kMpaCrc, 1);
    Bytes http{'G', 'E', 'T', ' ', '/',  ' ',  'H',  'T',  'T',  'P',
               '/', '1', '.', '1', '\r', '\n', '\r', '\n', '\r', '\n'};
    unsigned number = 0;
    for (const Bytes &request :
         {random, reply_key, revision0, revision, too_long, short_enhanced, http}) {
        SCOPED_TRACE(number++);
        Stream raw("", config().peer_addr4, listener.port());
        raw.say(request);
        EXPECT_TRUE(raw.closed_by_peer());
    }
    /* Half a request, then the end or a reset. */
    for (bool reset : {false, true}) {
        Stream raw("", config().peer_addr4, listener.port());
        raw.say(std::span(extra).first(11));
        if (reset) {
            raw.reset();
        } else {
            raw.shut_down();
            EXPECT_TRUE(raw.closed_by_peer());
        }
    }
    EXPECT_FALSE(server_channel.try_next(listener.id(), Deadline(milliseconds(50))).has_value())
        << "the application heard of garbage";

    EventChannel client_channel;
    auto client = connecting(client_channel, listener.port());
    auto server = accepting(listener);
    client->expect(RDMA_CM_EVENT_ESTABLISHED);
}

/* Peers that connect and say nothing delay nobody and are dropped in time. */
TEST(Cm, SilentClients) {
    ParameterOverride patience("handshake_ms", "2000");
    EventChannel client_channel, server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4, 64);
    std::vector<Stream> silent;
    for (int i = 0; i < 20; i++)
        silent.emplace_back("", config().peer_addr4, listener.port());
    /* And one that speaks very slowly. */
    Stream slow("", config().peer_addr4, listener.port());
    Bytes request = mpa_frame(false, kMpaCrc, 1);
    slow.say(std::span(request).first(1));

    auto before = std::chrono::steady_clock::now();
    auto client = connecting(client_channel, listener.port());
    auto server = accepting(listener);
    client->expect(RDMA_CM_EVENT_ESTABLISHED);
    auto took = std::chrono::steady_clock::now() - before;
    EXPECT_LT(took, milliseconds(1000) * config().scale) << "silent peers delay a connect";

    for (Stream &raw : silent)
        EXPECT_TRUE(raw.closed_by_peer());
    EXPECT_TRUE(slow.closed_by_peer());
}

TEST(Cm, EveryRoute) {
    for (const Route &route : {veth4(), veth6(), back4(), own4(), own6(), loop4(), loop6()}) {
        SCOPED_TRACE(route.listen_addr);
        expect_route_works(route);
    }
}

TEST(Cm, WildcardListeners) {
    std::string peer_ns = config().peer_ns;
    const Route routes[] = {
        {peer_ns, "0.0.0.0", "", config().peer_addr4, ""},
        {peer_ns, "::", "", config().peer_addr6, ""},
        /* An IPv4 client at a listener on :: */
        {peer_ns, "::", "", config().peer_addr4, ""},
        {"", "0.0.0.0", "", "127.0.0.1", ""},
        {"", "0.0.0.0", "", config().addr4, ""},
        {"", "::", "", "127.0.0.1", ""},
        {"", "::", "", "::1", ""},
        {"", "::", "", config().addr6, ""},
        {"", "0.0.0.0", peer_ns, config().addr4, ""},
    };
    for (const Route &route : routes) {
        SCOPED_TRACE(route.listen_addr + " from " + route.connect_addr);
        expect_route_works(route);
    }
}

/* Between two addresses of one host. */
TEST(Cm, TwoAddressesOfOneHost) {
    Route route = own4();
    route.source_addr = "127.0.0.1";
    must_shell("ip addr add 10.77.0.77/24 dev " + netdev_of(config().dev));
    expect_route_works({"", "10.77.0.77", "", "10.77.0.77", config().addr4});
    expect_route_works({"", config().addr4, "", config().addr4, "10.77.0.77"});
    must_shell("ip addr del 10.77.0.77/24 dev " + netdev_of(config().dev));
}

/* Only IPv6: an IPv4 client finds nobody, and the port is free for IPv4. */
TEST(Cm, AfOnly) {
    EventChannel channel;
    CmId six = create_id(channel, config().peer_ns);
    int on = 1;
    ASSERT_EQ(rdma_set_option(six.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)),
              0);
    Address any6 = address("::", 0);
    ASSERT_EQ(rdma_bind_addr(six.get(), &any6.generic), 0);
    ASSERT_EQ(rdma_listen(six.get(), 4), 0);
    uint16_t port = ntohs(rdma_get_src_port(six.get()));

    EventChannel client_channel;
    {
        auto refused = connecting(client_channel, port);
        refused->expect(RDMA_CM_EVENT_REJECTED);
    }
    Listener four(channel, config().peer_ns, "0.0.0.0", 4, port);
    auto client4 = connecting(client_channel, port);
    auto server4 = accepting(four);
    client4->expect(RDMA_CM_EVENT_ESTABLISHED);

    auto client6 = connecting(client_channel, port, QpOptions{}, veth6());
    CmEvent request = channel.expect(six.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    Endpoint server6(channel, CmId(request.id), {});
    accept(server6);
    client6->expect(RDMA_CM_EVENT_ESTABLISHED);
}

TEST(Cm, PortTaken) {
    EventChannel channel;
    Listener first(channel, config().peer_ns, config().peer_addr4);
    CmId second = create_id(channel, config().peer_ns);
    Address where = address(config().peer_addr4, first.port());
    EXPECT_EQ(rdma_bind_addr(second.get(), &where.generic), -1);
    EXPECT_EQ(errno, EADDRINUSE);

    /* Taken by a TCP socket: the device's own listener finds out. */
    Acceptor tcp(config().peer_ns, config().peer_addr4);
    CmId third = create_id(channel, config().peer_ns);
    where = address(config().peer_addr4, tcp.port());
    ASSERT_EQ(rdma_bind_addr(third.get(), &where.generic), 0);
    EXPECT_EQ(rdma_listen(third.get(), 1), -1);
    EXPECT_EQ(errno, EADDRINUSE);
}

/* rdma_cm knows no ports of TCP: one that it chose may have a connection to this very peer. */
TEST(Cm, SourcePortHasAConnection) {
    for (const auto &[route, own] :
         {std::pair(veth4(), config().addr4), std::pair(veth6(), config().addr6)}) {
        SCOPED_TRACE(own);
        EventChannel client_channel, server_channel;
        Listener listener(server_channel, route.listen_ns, route.listen_addr);
        Stream tcp(route.connect_ns, route.connect_addr, listener.port());
        const int on = 1;
        ASSERT_EQ(setsockopt(tcp.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
        sockaddr_in6 name{};
        socklen_t size = sizeof(name);
        ASSERT_EQ(getsockname(tcp.fd(), reinterpret_cast<sockaddr *>(&name), &size), 0);
        const uint16_t taken = ntohs(name.sin6_port); // where sockaddr_in has it, too

        CmId id = resolve(client_channel, route.connect_ns, route.connect_addr, listener.port(),
                          own, taken);
        EXPECT_EQ(ntohs(rdma_get_src_port(id.get())), taken);
        Endpoint client(client_channel, std::move(id), {});
        start_connect(client);
        auto server = accepting(listener);
        client.expect(RDMA_CM_EVENT_ESTABLISHED);
        EXPECT_NE(ntohs(rdma_get_dst_port(server->id())), taken);
        tcp.shut_down();
    }
}

/* A port is free again when its listener and connections are gone. */
TEST(Cm, PortIsFreeAgain) {
    EventChannel channel, client_channel;
    uint16_t port = 0;
    for (int i = 0; i < 10; i++) {
        Listener listener(channel, config().peer_ns, config().peer_addr4, 4, port);
        port = listener.port();
        auto client = connecting(client_channel, port);
        auto server = accepting(listener);
        client->expect(RDMA_CM_EVENT_ESTABLISHED);
        server->expect(RDMA_CM_EVENT_ESTABLISHED);
        /* The server closes first: its port would be in TIME_WAIT. */
        server->disconnect();
        client->expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

TEST(Cm, TwoServers) {
    EventChannel channel_a, channel_b, client_channel;
    Listener a(channel_a, config().peer_ns, config().peer_addr4);
    Listener b(channel_b, config().peer_ns, config().peer_addr4);
    for (int i = 0; i < 5; i++) {
        QpOptions to_a, to_b;
        to_a.private_data = {'a'};
        to_b.private_data = {'b'};
        auto client_b = connecting(client_channel, b.port(), to_b);
        auto client_a = connecting(client_channel, a.port(), to_a);
        CmEvent at_a = channel_a.expect(a.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        CmEvent at_b = channel_b.expect(b.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        EXPECT_EQ(at_a.private_data, to_a.private_data);
        EXPECT_EQ(at_b.private_data, to_b.private_data);
        Endpoint server_a(channel_a, CmId(at_a.id), {});
        Endpoint server_b(channel_b, CmId(at_b.id), {});
        accept(server_a);
        accept(server_b);
        client_a->expect(RDMA_CM_EVENT_ESTABLISHED);
        client_b->expect(RDMA_CM_EVENT_ESTABLISHED);
    }
}

/* Hundreds at once: all arrive, all work, all end. */
TEST(Cm, HundredsAtOnce) {
    const unsigned count = full_or_quick(300U, 150U);
    /* The first client waits until this thread has made and accepted all the QPs. */
    std::optional<ParameterOverride> patience;
    if (config().scale > 1)
        patience.emplace(
            "handshake_ms",
            fmt::format("{}", static_cast<unsigned>(std::stoul(module_parameter("handshake_ms")) *
                                                    config().scale)));
    QpOptions options{.send_wr = 4, .recv_wr = 4, .send_sge = 1, .recv_sge = 1};
    EventChannel client_channel, server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4,
                      static_cast<int>(count));

    std::vector<CmId> ids;
    Address to = address(config().peer_addr4, listener.port());
    for (unsigned i = 0; i < count; i++) {
        ids.push_back(create_id(client_channel));
        ASSERT_EQ(rdma_resolve_addr(ids.back().get(), nullptr, &to.generic, resolve_ms()), 0);
    }
    std::vector<std::unique_ptr<Endpoint>> clients, servers;
    for (unsigned i = 0; i < count; i++) {
        client_channel.expect(ids[i].get(), RDMA_CM_EVENT_ADDR_RESOLVED);
        ASSERT_EQ(rdma_resolve_route(ids[i].get(), resolve_ms()), 0);
        client_channel.expect(ids[i].get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
        options.private_data = {static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)};
        clients.push_back(std::make_unique<Endpoint>(client_channel, std::move(ids[i]), options));
    }
    for (auto &client : clients)
        start_connect(*client);

    std::vector<unsigned> index_of;
    for (unsigned i = 0; i < count; i++) {
        CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        ASSERT_EQ(request.private_data.size(), 2U);
        index_of.push_back(request.private_data[0] | request.private_data[1] << 8);
        options.private_data = request.private_data;
        servers.push_back(std::make_unique<Endpoint>(server_channel, CmId(request.id), options));
        accept(*servers.back());
    }
    for (unsigned i = 0; i < count; i++) {
        CmEvent reply = clients[i]->expect(RDMA_CM_EVENT_ESTABLISHED);
        ASSERT_EQ(reply.private_data.size(), 2U);
        EXPECT_EQ(static_cast<unsigned>(reply.private_data[0] | reply.private_data[1] << 8), i);
    }
    for (auto &server : servers)
        server->expect(RDMA_CM_EVENT_ESTABLISHED);

    /* A message of its own over each, all before any is looked at. */
    std::vector<std::unique_ptr<Region>> from, into;
    for (unsigned i = 0; i < count; i++) {
        into.push_back(std::make_unique<Region>(servers[i]->pd(), 256));
        servers[i]->recv(i, {into[i]->all()});
    }
    for (unsigned i = 0; i < count; i++) {
        from.push_back(std::make_unique<Region>(clients[i]->pd(), 256));
        fill(from[i]->at(0), 256, i);
        clients[i]->send(i, {from[i]->all()});
    }
    for (unsigned i = 0; i < count; i++) {
        expect_success(clients[i]->scq(), i, IBV_WC_SEND);
        expect_success(servers[i]->rcq(), i, IBV_WC_RECV, 256);
        expect_pattern(into[i]->at(0), 256, index_of[i], 0, fmt::format("message {}", i));
    }
    for (auto &client : clients)
        client->disconnect();
    for (auto &server : servers)
        server->expect(RDMA_CM_EVENT_DISCONNECTED);
    for (auto &server : servers)
        server->disconnect();
    for (auto &client : clients)
        client->expect(RDMA_CM_EVENT_DISCONNECTED);
    from.clear();
    into.clear();
}

/* Requests come in the order of the connects, replies in that of the accepts (perftest -q). */
TEST(Cm, EventsComeInOrder) {
    constexpr unsigned count = 32;
    /* so that packets cannot overtake each other */
    const OneProcessor one;
    QpOptions options{.send_wr = 1, .recv_wr = 1, .send_sge = 1, .recv_sge = 1};
    for (unsigned round = 0; round < full_or_quick(20U, 5U); round++) {
        SCOPED_TRACE(round);
        EventChannel client_channel, server_channel;
        Listener listener(server_channel, config().peer_ns, config().peer_addr4,
                          static_cast<int>(count));
        std::vector<std::unique_ptr<Endpoint>> clients, servers;
        for (unsigned i = 0; i < count; i++) {
            options.private_data = {static_cast<uint8_t>(i)};
            clients.push_back(std::make_unique<Endpoint>(
                client_channel, resolve(client_channel, "", config().peer_addr4, listener.port()),
                options));
        }
        for (auto &client : clients)
            start_connect(*client);
        for (unsigned i = 0; i < count; i++) {
            CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
            EXPECT_EQ(request.private_data, (std::vector<uint8_t>{static_cast<uint8_t>(i)}));
            servers.push_back(
                std::make_unique<Endpoint>(server_channel, CmId(request.id), options));
        }
        for (auto &server : servers)
            accept(*server);
        for (auto &client : clients)
            EXPECT_EQ(client_channel.expect(nullptr, RDMA_CM_EVENT_ESTABLISHED).id, client->id());
    }
}

TEST(Cm, OneAfterTheOther) {
    EventChannel client_channel, server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4);
    uint64_t qps = resource_count(config().dev, "qp");
    for (unsigned i = 0; i < full_or_quick(200U, 40U); i++) {
        SCOPED_TRACE(i);
        auto client = connecting(client_channel, listener.port());
        auto server = accepting(listener);
        client->expect(RDMA_CM_EVENT_ESTABLISHED);
        server->expect(RDMA_CM_EVENT_ESTABLISHED);
        server->recv(i, {});
        client->send(i, {});
        expect_success(server->rcq(), i, IBV_WC_RECV, 0);
        Endpoint &first = i % 2 == 0 ? *client : *server;
        Endpoint &second = i % 2 == 0 ? *server : *client;
        first.disconnect();
        second.expect(RDMA_CM_EVENT_DISCONNECTED);
        second.disconnect();
        first.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
    EXPECT_EQ(resource_count(config().dev, "qp"), qps);
}

/* Queues of size zero --------------------------------------------------------- */

TEST(Cm, ReceiveOnlyQp) {
    PairOptions options;
    options.server.send_wr = 0;
    options.server.send_sge = 0;
    options.client.recv_wr = 0;
    options.client.recv_sge = 0;
    Pair pair(options);
    Region from(pair.c().pd(), 10000);
    Region to(pair.s().pd(), 10000);
    for (uint64_t i = 0; i < 20; i++) {
        fill(from.at(0), 10000, i);
        pair.s().recv(i, {to.all()});
        pair.c().send(i, {from.all()});
        expect_success(pair.s().rcq(), i, IBV_WC_RECV, 10000);
        expect_success(pair.c().scq(), i, IBV_WC_SEND);
        expect_pattern(to.at(0), 10000, i);
    }
    /* It still answers reads and takes writes. */
    pair.c().write(1, {from.all()}, to.addr(), to.rkey());
    pair.c().read(2, {from.all()}, to.addr(), to.rkey());
    expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, 10000);
    EXPECT_EQ(post_send(pair.s().qp(), SendWr::send(1, {})), ENOMEM);
    EXPECT_EQ(post_recv(pair.c().qp(), 1, {}), ENOMEM);
    pair.c().disconnect();
    pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
}

/* The other way round: the accepting side has no receive queue. */
TEST(Cm, SendOnlyServer) {
    PairOptions options;
    options.client.send_wr = 0;
    options.client.send_sge = 0;
    options.server.recv_wr = 0;
    options.server.recv_sge = 0;
    Pair pair(options);
    Region from(pair.s().pd(), 10000);
    Region to(pair.c().pd(), 10000);
    for (uint64_t i = 0; i < 20; i++) {
        fill(from.at(0), 10000, i);
        pair.c().recv(i, {to.all()});
        pair.s().send(i, {from.all()});
        expect_success(pair.c().rcq(), i, IBV_WC_RECV, 10000);
        expect_success(pair.s().scq(), i, IBV_WC_SEND);
        expect_pattern(to.at(0), 10000, i);
    }
}

/* The accepting side may speak first as soon as it is established. */
TEST(Cm, ServerSpeaksFirst) {
    EventChannel client_channel, server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4);
    for (uint64_t i = 0; i < 10; i++) {
        CmId id = resolve(client_channel, "", config().peer_addr4, listener.port());
        Endpoint client(client_channel, std::move(id), {});
        Region to(client.pd(), 5000);
        client.recv(i, {to.all()});
        start_connect(client);
        auto server = accepting(listener);
        Region from(server->pd(), 5000);
        fill(from.at(0), 5000, i);
        server->expect(RDMA_CM_EVENT_ESTABLISHED);
        server->send(i, {from.all()});
        expect_success(client.rcq(), i, IBV_WC_RECV, 5000);
        expect_success(server->scq(), i, IBV_WC_SEND);
        expect_pattern(to.at(0), 5000, i);
        client.expect(RDMA_CM_EVENT_ESTABLISHED);
    }
}

/* Receives posted between accept and establishment see the first message. */
TEST(Cm, ReceivesPostedBeforeAccept) {
    EventChannel client_channel, server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4);
    auto client = connecting(client_channel, listener.port());
    CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    Endpoint server(server_channel, CmId(request.id), {});
    Region to(server.pd(), 100);
    server.recv(1, {to.all()});
    accept(server);
    client->expect(RDMA_CM_EVENT_ESTABLISHED);
    Region from(client->pd(), 100);
    fill(from.at(0), 100, 1);
    client->send(1, {from.all()});
    expect_success(server.rcq(), 1, IBV_WC_RECV, 100);
    expect_pattern(to.at(0), 100, 1);
}

/* Ends ------------------------------------------------------------------------- */

/* A graceful close comes behind everything that was posted before it. */
TEST(Cm, DisconnectDeliversWhatIsQueued) {
    constexpr unsigned kCount = 64;
    size_t size = full_or_quick<size_t>(64, 16) * 1024;
    for (bool by_server : {false, true}) {
        SCOPED_TRACE(by_server ? "server" : "client");
        Pair pair(QpOptions{.send_wr = kCount, .recv_wr = kCount}, veth4());
        Endpoint &sender = by_server ? pair.s() : pair.c();
        Endpoint &receiver = by_server ? pair.c() : pair.s();
        Region from(sender.pd(), kCount * size);
        Region to(receiver.pd(), kCount * size);
        fill(from.at(0), kCount * size, 11);
        for (unsigned i = 0; i < kCount; i++)
            receiver.recv(i, {to.sge(i * size, size)});
        for (unsigned i = 0; i < kCount; i++)
            sender.send(i, {from.sge(i * size, size)});
        sender.disconnect();
        for (unsigned i = 0; i < kCount; i++)
            expect_success(receiver.rcq(), i, IBV_WC_RECV, static_cast<int64_t>(size));
        expect_pattern(to.at(0), kCount * size, 11);
        receiver.expect(RDMA_CM_EVENT_DISCONNECTED);
        for (unsigned i = 0; i < kCount; i++)
            expect_success(sender.scq(), i, IBV_WC_SEND);
        receiver.disconnect();
        sender.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

TEST(Cm, DisconnectFlushesReceives) {
    Pair pair;
    for (uint64_t i = 0; i < 5; i++) {
        pair.c().recv(i, {});
        pair.s().recv(i, {});
    }
    pair.c().disconnect();
    pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
    pair.s().disconnect();
    pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    for (uint64_t i = 0; i < 5; i++) {
        expect_wc(pair.c().rcq(), i, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.s().rcq(), i, IBV_WC_WR_FLUSH_ERR);
    }
}

TEST(Cm, BothDisconnectAtOnce) {
    for (int i = 0; i < 20; i++) {
        SCOPED_TRACE(i);
        Pair pair;
        pair.c().recv(1, {});
        pair.s().recv(1, {});
        std::thread other([&] { rdma_disconnect(pair.s().id()); });
        int result = rdma_disconnect(pair.c().id());
        int error = errno;
        other.join();
        EXPECT_EQ(result, 0) << errno_name(error);
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
        pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
        expect_wc(pair.c().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.s().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        /* Once each. */
        EXPECT_FALSE(pair.client_channel.try_next(nullptr, Deadline(milliseconds(2))));
        EXPECT_FALSE(pair.server_channel.try_next(nullptr, Deadline(milliseconds(2))));
    }
}

TEST(Cm, IdDestroyedWhileConnected) {
    for (int i = 0; i < 10; i++) {
        Pair pair;
        pair.s().recv(1, {});
        if (i % 2 == 0)
            pair.c().destroy_qp();
        pair.drop_client();
        pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
        expect_wc(pair.s().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    }
}

TEST(Cm, IdDestroyedWhileConnecting) {
    EventChannel server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4, 64);
    for (unsigned i = 0; i < 20; i++) {
        EventChannel client_channel;
        auto client = connecting(client_channel, listener.port());
        std::this_thread::sleep_for(std::chrono::microseconds(splitmix(i) % 2000));
        client.reset();
        /* If the request arrived, to accept it must not succeed for long. */
        auto request = server_channel.try_next(listener.id(), Deadline(milliseconds(20)));
        if (!request)
            continue;
        Endpoint server(server_channel, CmId(request->id), {});
        rdma_conn_param param = server.conn_param();
        if (rdma_accept(server.id(), &param) != 0)
            continue;
        auto event = server_channel.try_next(server.id(), Deadline());
        ASSERT_TRUE(event.has_value()) << "no event after accepting a dead connection";
        if (event->type == RDMA_CM_EVENT_ESTABLISHED)
            server.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
    expect_route_works();
}

/* Requests that were never answered are refused when the listener goes. */
TEST(Cm, ListenerDestroyedWithPendingRequests) {
    EventChannel client_channel;
    std::vector<std::unique_ptr<Endpoint>> clients;
    {
        EventChannel server_channel;
        Listener listener(server_channel, config().peer_ns, config().peer_addr4, 32);
        for (int i = 0; i < 16; i++)
            clients.push_back(connecting(client_channel, listener.port()));
        /* Half of them known to the application, none answered. */
        std::vector<CmId> requests;
        for (int i = 0; i < 8; i++)
            requests.emplace_back(
                server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
        listener.close();
    }
    for (auto &client : clients)
        client->expect(RDMA_CM_EVENT_REJECTED);
    expect_route_works();
}

TEST(Cm, ListenersComeAndGo) {
    for (int i = 0; i < 50; i++) {
        EventChannel channel;
        Listener a(channel, config().peer_ns, config().peer_addr4);
        Listener b(channel, "", "0.0.0.0");
        Listener c(channel, "", "::");
    }
    expect_route_works();
}

/* More than the application takes: the rest waits or is refused, none is lost. */
TEST(Cm, BacklogOfOne) {
    EventChannel client_channel, server_channel;
    Listener listener(server_channel, config().peer_ns, config().peer_addr4, 1);
    constexpr int kCount = 10;
    std::vector<std::unique_ptr<Endpoint>> clients, servers;
    for (int i = 0; i < kCount; i++)
        clients.push_back(connecting(client_channel, listener.port()));
    int accepted = 0, refused = 0;
    EXPECT_TRUE(eventually([&] {
        if (auto request = server_channel.try_next(listener.id(), Deadline(milliseconds(1)))) {
            servers.push_back(
                std::make_unique<Endpoint>(server_channel, CmId(request->id), QpOptions{}));
            accept(*servers.back());
        }
        if (auto event = client_channel.try_next(nullptr, Deadline(milliseconds(1)))) {
            if (event->type == RDMA_CM_EVENT_ESTABLISHED)
                accepted++;
            else
                refused++;
        }
        return accepted + refused == kCount;
    }));
    EXPECT_GE(accepted, 1);
    expect_route_works();
}

} // namespace
