// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What an administrator sets in /sys/class/infiniband/DEVICE/mpa/, and what it does. */
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

struct Attribute {
    std::string name;
    std::string preset;
    std::vector<std::string> values;
};

const std::vector<Attribute> kAttributes{
    {"crc", "prefer", {"off", "prefer", "require"}},
    {"markers", "off", {"off", "on"}},
    {"revision", "2", {"1", "2"}},
    {"fallback", "on", {"off", "on"}},
    {"p2p", "on", {"off", "on"}},
    {"rtr", "send write read", {"send", "write", "read", "send read", "send write read"}},
    {"rdmac", "off", {"off", "on"}},
    {"extensions", "on", {"off", "on"}},
};

/* The client is the device here, the server a socket in "peer". */
struct RawServer {
    RawServer() : listener(config().peer_ns, config().peer_addr4) {
        CmId id = resolve(channel, "", config().peer_addr4, listener.port());
        client = std::make_unique<Endpoint>(channel, std::move(id), QpOptions{});
        start_connect(*client);
    }
    Stream accept() { return listener.accept(); }

    Acceptor listener;
    EventChannel channel;
    std::unique_ptr<Endpoint> client;
};

/* The server is the device in "peer", the client a socket. */
struct RawInitiator {
    explicit RawInitiator(const Bytes &request_frame)
        : listener(channel, config().peer_ns, config().peer_addr4),
          raw("", config().peer_addr4, listener.port()) {
        raw.say(request_frame);
    }
    void accept_it() {
        CmEvent request = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        end = std::make_unique<Endpoint>(channel, CmId(request.id), QpOptions{});
        accept(*end);
        end->expect(RDMA_CM_EVENT_ESTABLISHED);
    }

    EventChannel channel;
    Listener listener;
    Stream raw;
    std::unique_ptr<Endpoint> end;
};

TEST(Policy, Values) {
    for (const Attribute &a : kAttributes) {
        SCOPED_TRACE(a.name);
        EXPECT_EQ(policy(config().dev, a.name), a.preset);
        for (const std::string &value : a.values) {
            EXPECT_EQ(set_policy(config().dev, a.name, value), 0) << value;
            EXPECT_EQ(policy(config().dev, a.name), value);
            EXPECT_EQ(set_policy(config().dev, a.name, value + "\n"), 0) << value;
            /* Of this device alone. */
            EXPECT_EQ(policy(config().peer_dev, a.name), a.preset);
        }
        for (const char *nonsense : {"", "\n", "maybe", "3", "0", "-1", "sendwrite", "offon", "of",
                                     "send,writ", "on off", "prefer require"}) {
            EXPECT_EQ(set_policy(config().dev, a.name, nonsense), *nonsense == 0 ? 0 : EINVAL)
                << nonsense;
            EXPECT_EQ(policy(config().dev, a.name), a.values.back()) << nonsense;
        }
        EXPECT_EQ(set_policy(config().dev, a.name, a.preset), 0);
    }
}

/* Module parameters are what a new device begins with. */
TEST(Policy, DefaultsComeFromTheModule) {
    ParameterOverride crc("mpa_crc", "0");
    ParameterOverride revision("mpa_rev", "1");
    ParameterOverride rtr("mpa_rtr", "4");
    ParameterOverride extensions("mpa_extensions", "0");
    must_shell("ip link add swpol type dummy");
    ASSERT_EQ(link_add("swpol", "swpol").status, 0);
    EXPECT_EQ(policy("swpol", "crc"), "off");
    EXPECT_EQ(policy("swpol", "revision"), "1");
    EXPECT_EQ(policy("swpol", "rtr"), "read");
    EXPECT_EQ(policy("swpol", "extensions"), "off");
    EXPECT_EQ(policy("swpol", "p2p"), "on");
    EXPECT_EQ(policy(config().dev, "crc"), "prefer");
    must_shell("rdma link delete swpol && ip link del swpol");
}

/* What our initiator asks for (RFC 6581 s. 9.2). */
TEST(Policy, Request) {
    PolicyOverride rtr(config().dev, "rtr", "send,read");
    {
        RawServer server;
        Bytes request = server.accept().hear(24);
        EXPECT_EQ(request[16], kMpaCrc | kMpaEnhanced);
        EXPECT_EQ(request[17], 2);
        EXPECT_EQ(get16(request, 20) & 0xc000, 0xc000);
        EXPECT_EQ(get16(request, 22) & 0xc000, 0x4000);
    }
    PolicyOverride crc(config().dev, "crc", "off");
    PolicyOverride p2p(config().dev, "p2p", "off");
    {
        RawServer server;
        Bytes request = server.accept().hear(24);
        EXPECT_EQ(request[16], kMpaEnhanced);
        EXPECT_EQ(get16(request, 20) & 0xc000, 0);
        EXPECT_EQ(get16(request, 22) & 0xc000, 0);
    }
    PolicyOverride revision(config().dev, "revision", "1");
    {
        RawServer server;
        Bytes request = server.accept().hear(20);
        EXPECT_EQ(request[16], 0);
        EXPECT_EQ(request[17], 1);
    }
}

/* Without fallback a peer that hangs up on revision 2 is left alone. */
TEST(Policy, NoFallback) {
    PolicyOverride fallback(config().dev, "fallback", "off");
    RawServer server;
    server.accept().hear(24);
    CmEvent event = server.client->expect(RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.status, -ECONNRESET);
}

/* A responder of revision 1 alone closes on a Request of revision 2. */
TEST(Policy, Revision1Only) {
    PolicyOverride revision(config().peer_dev, "revision", "1");
    RawInitiator peer(mpa_frame(false, kMpaCrc | kMpaEnhanced, 2, {0, 1, 0, 1}));
    EXPECT_TRUE(peer.raw.closed_by_peer());
    /* Our own initiator then falls back. */
    expect_route_works();
}

TEST(Policy, CrcRequired) {
    PolicyOverride crc(config().peer_dev, "crc", "require");
    RawInitiator peer(mpa_frame(false, 0, 1));
    Bytes reply = peer.raw.hear_mpa();
    EXPECT_EQ(reply[16] & kMpaReject, kMpaReject);
    EXPECT_TRUE(peer.raw.closed_by_peer());
    expect_route_works();
}

TEST(Policy, CrcOffOnBothEnds) {
    PolicyOverride client(config().dev, "crc", "off");
    PolicyOverride server(config().peer_dev, "crc", "off");
    Pair pair;
    expect_works(pair);
    EXPECT_NE(must_shell("rdma resource show qp link " + config().dev + "/1 -dd").find("drv_crc 0"),
              std::string::npos);
}

/* Markers in each direction by itself, and in both. */
TEST(Policy, Markers) {
    for (const char *at_client : {"off", "on"}) {
        for (const char *at_server : {"off", "on"}) {
            SCOPED_TRACE(fmt::format("client {}, server {}", at_client, at_server));
            PolicyOverride client(config().dev, "markers", at_client);
            PolicyOverride server(config().peer_dev, "markers", at_server);
            Pair pair;
            std::string text = must_shell("rdma resource show qp link " + config().dev + "/1 -dd");
            bool tx = std::string(at_server) == "on", rx = std::string(at_client) == "on";
            EXPECT_NE(text.find(fmt::format("drv_tx_markers {:d}", tx)), std::string::npos) << text;
            EXPECT_NE(text.find(fmt::format("drv_rx_markers {:d}", rx)), std::string::npos) << text;
            expect_works(pair);

            constexpr size_t kLength = 300'001;
            Region from(pair.c().pd(), kLength), to(pair.s().pd(), kLength);
            Region back(pair.c().pd(), kLength);
            fill(from.at(0), kLength, 31);
            pair.c().write(1, {from.all()}, to.addr(), to.rkey());
            pair.c().read(2, {back.all()}, to.addr(), to.rkey());
            expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
            expect_success(pair.c().scq(), 2, IBV_WC_RDMA_READ, kLength);
            expect_pattern(to.at(0), kLength, 31);
            expect_pattern(back.at(0), kLength, 31);
            /* Every length near the places where a marker can stand. */
            for (size_t length = 450; length < 560; length++) {
                pair.s().recv(length, {to.all()});
                pair.c().send(length, {from.sge(length, length)});
                expect_success(pair.s().rcq(), length, IBV_WC_RECV, static_cast<int64_t>(length));
                expect_success(pair.c().scq(), length, IBV_WC_SEND);
                expect_pattern(to.at(0), length, 31, length);
            }
            pair.c().disconnect();
            pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
        }
    }
}

/* Each kind of RTR between two of our ends: the server speaks first. */
TEST(Policy, EveryRtrKind) {
    for (const char *kind : {"send", "write", "read"}) {
        SCOPED_TRACE(kind);
        PolicyOverride rtr(config().dev, "rtr", kind);
        EventChannel client_channel, server_channel;
        Listener listener(server_channel, config().peer_ns, config().peer_addr4);
        /* Not even with ORD 0, where a Read RTR has no place of its own. */
        for (uint8_t depth : {16, 0}) {
            QpOptions options{.ird = depth, .ord = depth};
            CmId id = resolve(client_channel, "", config().peer_addr4, listener.port());
            Endpoint client(client_channel, std::move(id), options);
            Region to(client.pd(), 4096);
            client.recv(1, {to.all()});
            start_connect(client);
            CmEvent request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
            Endpoint server(server_channel, CmId(request.id), options);
            Region from(server.pd(), 4096);
            fill(from.at(0), 4096, 5);
            server.recv(2, {from.all()});
            accept(server);
            server.expect(RDMA_CM_EVENT_ESTABLISHED);
            server.send(3, {from.all()});
            expect_success(client.rcq(), 1, IBV_WC_RECV, 4096);
            expect_success(server.scq(), 3, IBV_WC_SEND);
            expect_pattern(to.at(0), 4096, 5);
            client.expect(RDMA_CM_EVENT_ESTABLISHED);
            /* The receive posted first gets the first message of the program, not the RTR. */
            client.send(4, {to.sge(0, 100)});
            expect_success(server.rcq(), 2, IBV_WC_RECV, 100);
            expect_success(client.scq(), 4, IBV_WC_SEND);
        }
    }
}

/* RTR kinds on the wire, ours as initiator: MPA2-32, MPA2-36. */
TEST(Policy, RtrOnTheWire) {
    struct Kind {
        Bytes enhanced;
        Bytes ulpdu;
    };
    Bytes none(28);
    Bytes read = Untagged{.rdmap = 0x40 | kOpReadRequest, .qn = 1, .payload = none}.bytes();
    for (const Kind &kind :
         {Kind{{0xc0, 1, 0, 1}, Untagged{}.bytes()}, Kind{{0x80, 1, 0x80, 1}, Tagged{}.bytes()},
          Kind{{0x80, 1, 0x40, 1}, read}}) {
        RawServer server;
        Stream raw = server.accept();
        raw.hear(24);
        server.client->send(1, {});
        raw.say(mpa_frame(true, kMpaCrc | kMpaEnhanced, 2, kind.enhanced));
        Fpdu rtr = raw.hear_fpdu();
        EXPECT_TRUE(rtr.crc_good);
        ASSERT_EQ(rtr.ulpdu.size(), kind.ulpdu.size());
        EXPECT_EQ(rtr.ulpdu[0], kind.ulpdu[0]);
        EXPECT_EQ(rtr.ulpdu[1], kind.ulpdu[1]);
        Fpdu next = raw.hear_fpdu();
        bool send = kind.enhanced[0] == 0xc0;
        EXPECT_EQ(next.ulpdu, Untagged{.msn = send ? 2U : 1U}.bytes());
        server.client->expect(RDMA_CM_EVENT_ESTABLISHED);
        /* One completion: that of the program's own request. */
        expect_success(server.client->scq(), 1, IBV_WC_SEND);
        raw.shut_down();
        server.client->expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

/* A zero-length Send is no RTR where none was agreed upon: it takes a receive. */
TEST(Policy, PlainZeroLengthSend) {
    for (const Bytes &enhanced : {Bytes{0, 1, 0, 1}, Bytes{0x80, 1, 0x80, 1}}) {
        RawInitiator peer(mpa_frame(false, kMpaCrc | kMpaEnhanced, 2, enhanced));
        peer.accept_it();
        peer.raw.hear_mpa();
        peer.end->recv(1, {});
        peer.raw.say(fpdu(Untagged{}.bytes()));
        expect_success(peer.end->rcq(), 1, IBV_WC_RECV, 0);
    }
}

} // namespace
