// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the device says on the wire, octet by octet, and what it makes of a peer
 * that breaks the rules.  The peer is a plain TCP socket in the initial
 * namespace, the device that of the namespace "peer".
 */
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

/* A responder QP in full operation with a raw initiator. */
struct RawClient {
    explicit RawClient(uint8_t flags = kMpaCrc, uint8_t revision = 1, const Bytes &data = {},
                       const QpOptions &options = {.send_wr = 256})
        : listener(channel, config().peer_ns, config().peer_addr4),
          raw("", config().peer_addr4, listener.port()) {
        raw.say(mpa_frame(false, flags, revision, data));
        request = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        end = std::make_unique<Endpoint>(channel, CmId(request.id), options);
        accept(*end);
        reply = raw.hear_mpa();
        end->expect(RDMA_CM_EVENT_ESTABLISHED);
    }

    /* The first FPDU is the initiator's: nothing may come before it. */
    void open() { raw.say(fpdu(Tagged{}.bytes())); }

    EventChannel channel;
    Listener listener;
    Stream raw;
    CmEvent request{};
    std::unique_ptr<Endpoint> end;
    Bytes reply;
};

TEST(WireMpa, ReplyOfRevision1) {
    RawClient client(kMpaCrc, 1, {'a', 'b', 'c'});
    EXPECT_EQ(client.request.private_data, (Bytes{'a', 'b', 'c'}));
    EXPECT_EQ(std::string(client.reply.begin(), client.reply.begin() + 16), "MPA ID Rep Frame");
    EXPECT_EQ(client.reply[16], kMpaCrc); // no markers, no reject
    EXPECT_EQ(client.reply[17], 1);
    EXPECT_EQ(get16(client.reply, 18), 0);
}

TEST(WireMpa, ReplyOfRevision2) {
    /* IRD 3, ORD 4, client-server */
    RawClient client(kMpaCrc | kMpaEnhanced, 2, {0, 3, 0, 4, 'x', 'y'});
    EXPECT_EQ(client.request.private_data, (Bytes{'x', 'y'}));
    /* What the peer initiates is what this end has to respond to. */
    EXPECT_EQ(client.request.responder_resources, 4);
    EXPECT_EQ(client.request.initiator_depth, 3);
    EXPECT_EQ(client.reply[16] & (kMpaReject | kMpaMarkers), 0);
    EXPECT_EQ(client.reply[16] & kMpaEnhanced, kMpaEnhanced);
    EXPECT_EQ(client.reply[17], 2);
    ASSERT_EQ(get16(client.reply, 18), 4);
    EXPECT_EQ(get16(client.reply, 20) & 0x8000, 0) << "nobody asked for peer-to-peer";
    EXPECT_GE(get16(client.reply, 20) & 0x3fff, 4) << "IRD of the reply";
    EXPECT_LE(get16(client.reply, 22) & 0x3fff, 3) << "ORD of the reply";
}

/* Reserved bits of a request are not checked (RFC 5044 s. 7.1.1). */
TEST(WireMpa, ReservedBitsAreIgnored) {
    RawClient client(kMpaCrc | 0x0f, 1);
    EXPECT_EQ(client.reply[16], kMpaCrc);
    EXPECT_EQ(client.reply[17], 1);
}

/* The request in pieces, each in a segment of its own. */
TEST(WireMpa, RequestOctetByOctet) {
    EventChannel channel;
    Listener listener(channel, config().peer_ns, config().peer_addr4);
    Stream raw("", config().peer_addr4, listener.port());
    Bytes request = mpa_frame(false, kMpaCrc, 1, {1, 2, 3, 4, 5});
    for (size_t i = 0; i < request.size(); i++) {
        raw.say(std::span(request).subspan(i, 1));
        std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    CmEvent event = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(event.private_data, (Bytes{1, 2, 3, 4, 5}));
    ASSERT_EQ(rdma_reject(event.id, "no", 2), 0);
    Bytes reply = raw.hear_mpa();
    EXPECT_EQ(reply[16] & kMpaReject, kMpaReject);
    EXPECT_EQ(Bytes(reply.begin() + 20, reply.end()), (Bytes{'n', 'o'}));
    EXPECT_TRUE(raw.closed_by_peer());
    rdma_destroy_id(event.id);
}

/* RFC 5044 s. 7.1.2: the responder is silent until the first FPDU came. */
TEST(WireMpa, ResponderWaitsForTheFirstFpdu) {
    RawClient client;
    client.end->send(1, {});
    EXPECT_TRUE(client.raw.silent(milliseconds(100))) << "spoke before the initiator";
    client.open();
    Fpdu first = client.raw.hear_fpdu();
    EXPECT_EQ(first.ulpdu, Untagged{}.bytes());
    expect_success(client.end->scq(), 1, IBV_WC_SEND);
}

/* Vector of RFC 5044's CRC over a zero-length Send (spec: MPA-05). */
TEST(WireData, ZeroLengthSend) {
    RawClient client;
    client.open();
    client.end->send(1, {});
    Bytes unit = client.raw.hear(24);
    const Bytes expected{0x00, 0x12, 0x41, 0x43, 0, 0, 0, 0, 0,    0,    0,    0,
                         0,    0,    0,    0x01, 0, 0, 0, 0, 0x58, 0x7b, 0xe8, 0xc4};
    EXPECT_EQ(unit, expected);
}

/* Pad octets are zero even behind other data in the same buffers. */
TEST(WireData, PadOctetsAreZero) {
    RawClient client;
    client.open();
    Region from(client.end->pd(), 4096);
    memset(from.at(0), 0xff, 4096);
    uint32_t msn = 1;
    for (int round = 0; round < 3; round++)
        for (size_t length : {1000, 1, 2, 3, 4, 5, 6, 7, 13, 1001, 1002, 1003}) {
            SCOPED_TRACE(length);
            bool write = round == 1;
            if (write)
                client.end->write(length, {from.sge(0, length)}, 0x1000, 0x77);
            else
                client.end->send(length, {from.sge(0, length)});
            Fpdu unit = client.raw.hear_fpdu();
            EXPECT_TRUE(unit.crc_good);
            for (uint8_t octet : unit.pad)
                EXPECT_EQ(octet, 0);
            Bytes payload(length, 0xff);
            if (write) {
                Tagged expected{.stag = 0x77, .to = 0x1000, .payload = payload};
                EXPECT_EQ(unit.ulpdu, expected.bytes());
            } else {
                Untagged expected{.msn = msn++, .payload = payload};
                EXPECT_EQ(unit.ulpdu, expected.bytes());
            }
            expect_success(client.end->scq(), length, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
        }
}

/* A message of many segments: headers, offsets, last bits, CRCs, every octet. */
TEST(WireData, Segmentation) {
    constexpr size_t kLength = 100001;
    RawClient client;
    client.open();
    Region from(client.end->pd(), kLength);
    fill(from.at(0), kLength, 21);
    client.end->send(1, {from.sge(0, 33333), from.sge(33333, kLength - 33333)},
                     IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    client.end->write(2, {from.all()}, 0xfffffff0, 0xabcd);

    size_t done = 0;
    while (done < kLength) {
        Fpdu unit = client.raw.hear_fpdu();
        ASSERT_TRUE(unit.crc_good);
        ASSERT_GT(unit.ulpdu.size(), 18U);
        size_t payload = unit.ulpdu.size() - 18;
        bool last = done + payload == kLength;
        EXPECT_EQ(unit.ulpdu[0], last ? 0x41 : 0x01);
        EXPECT_EQ(unit.ulpdu[1], 0x40 | kOpSendSolicited);
        EXPECT_EQ(get32(unit.ulpdu, 6), 0U);    // QN
        EXPECT_EQ(get32(unit.ulpdu, 10), 1U);   // MSN
        EXPECT_EQ(get32(unit.ulpdu, 14), done); // MO
        EXPECT_EQ(mismatch(unit.ulpdu.data() + 18, payload, 21, done), payload);
        done += payload;
    }
    EXPECT_EQ(done, kLength);
    for (done = 0; done < kLength;) {
        Fpdu unit = client.raw.hear_fpdu();
        ASSERT_TRUE(unit.crc_good);
        ASSERT_GT(unit.ulpdu.size(), 14U);
        size_t payload = unit.ulpdu.size() - 14;
        EXPECT_EQ(unit.ulpdu[0], done + payload == kLength ? 0xc1 : 0x81);
        EXPECT_EQ(unit.ulpdu[1], 0x40 | kOpWrite);
        EXPECT_EQ(get32(unit.ulpdu, 2), 0xabcdU);
        EXPECT_EQ(get64(unit.ulpdu, 6), uint64_t{0xfffffff0} + done); // past 32 bits
        EXPECT_EQ(mismatch(unit.ulpdu.data() + 14, payload, 21, done), payload);
        done += payload;
    }
    expect_success(client.end->scq(), 1, IBV_WC_SEND);
    expect_success(client.end->scq(), 2, IBV_WC_RDMA_WRITE);
}

/* FPDUs cut anywhere by TCP, one octet at a time or many in one segment. */
TEST(WireData, ReceivesAnyCut) {
    RawClient client;
    Region to(client.end->pd(), 64 * 1024);
    Bytes stream;
    std::vector<size_t> lengths{0, 1, 2, 3, 7, 100, 1400};
    uint32_t msn = 1;
    for (size_t length : lengths) {
        Bytes payload(length);
        fill(payload.data(), length, msn);
        Bytes unit = fpdu(Untagged{.msn = msn, .payload = payload}.bytes());
        stream.insert(stream.end(), unit.begin(), unit.end());
        client.end->recv(msn, {to.sge(msn * 4096, 4096)});
        msn++;
    }
    /* Unevenly, but the first hundreds of octets singly. */
    size_t at = 0;
    while (at < stream.size()) {
        size_t piece = at < 300 ? 1 : std::min<size_t>(stream.size() - at, 1 + at % 91);
        client.raw.say(std::span(stream).subspan(at, piece));
        at += piece;
        if (at < 300)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (uint32_t i = 1; i < msn; i++) {
        expect_success(client.end->rcq(), i, IBV_WC_RECV, static_cast<int64_t>(lengths[i - 1]));
        expect_pattern(to.at(i * 4096), lengths[i - 1], i);
    }
}

/* Non-zero pad octets with a good CRC are accepted (spec: MPA-03). */
TEST(WireData, PadOctetsAreNotChecked) {
    RawClient client;
    Region to(client.end->pd(), 64);
    client.end->recv(1, {to.all()});
    Bytes unit = fpdu(Untagged{.payload = {9, 8, 7}}.bytes());
    unit.resize(unit.size() - 4);
    unit.back() = 0xee;
    uint32_t crc = crc32c(unit);
    for (int i = 0; i < 4; i++)
        unit.push_back(static_cast<uint8_t>(crc >> (8 * i)));
    client.raw.say(unit);
    expect_success(client.end->rcq(), 1, IBV_WC_RECV, 3);
}

/* A read answered on the wire. */
TEST(WireData, ReadResponse) {
    RawClient client;
    Region source(client.end->pd(), 5000);
    fill(source.at(0), 5000, 4);
    Bytes header;
    put32(header, 0x1111);         // SinkSTag
    put64(header, 0x2222333344);   // SinkTO
    put32(header, 4001);           // RDMARDSZ
    put32(header, source.rkey());  // SrcSTag
    put64(header, source.addr(7)); // SrcTO
    client.raw.say(
        fpdu(Untagged{.rdmap = 0x40 | kOpReadRequest, .qn = 1, .payload = header}.bytes()));
    size_t done = 0;
    while (done < 4001) {
        Fpdu unit = client.raw.hear_fpdu();
        ASSERT_TRUE(unit.crc_good);
        size_t payload = unit.ulpdu.size() - 14;
        EXPECT_EQ(unit.ulpdu[0], done + payload == 4001 ? 0xc1 : 0x81);
        EXPECT_EQ(unit.ulpdu[1], 0x40 | kOpReadResponse);
        EXPECT_EQ(get32(unit.ulpdu, 2), 0x1111U);
        EXPECT_EQ(get64(unit.ulpdu, 6), 0x2222333344U + done);
        EXPECT_EQ(mismatch(unit.ulpdu.data() + 14, payload, 4, 7 + done), payload);
        done += payload;
    }
    EXPECT_EQ(done, 4001U);
}

/* Sends wait for the peer's window; a full queue says so; nothing is lost. */
TEST(WireData, SendQueueFull) {
    constexpr size_t kLength = 256 * 1024;
    RawClient client(kMpaCrc, 1, {}, QpOptions{.send_wr = 64});
    client.open();
    Region from(client.end->pd(), kLength);
    fill(from.at(0), kLength, 2);
    uint32_t limit = client.end->cap().max_send_wr;
    /* The peer reads nothing: at most some megabytes fit into TCP's buffers. */
    uint64_t posted = 0;
    int error = 0;
    while (posted < 10 * limit) {
        error = post_send(client.end->qp(), SendWr::send(posted, {from.all()}));
        if (error != 0)
            break;
        posted++;
    }
    EXPECT_EQ(error, ENOMEM) << posted;
    EXPECT_GE(posted, limit);
    size_t done = 0;
    uint64_t message = 0;
    while (message < posted) {
        Fpdu unit = client.raw.hear_fpdu();
        ASSERT_TRUE(unit.crc_good);
        size_t payload = unit.ulpdu.size() - 18;
        ASSERT_EQ(get32(unit.ulpdu, 10), message + 1);
        ASSERT_EQ(get32(unit.ulpdu, 14), done);
        ASSERT_EQ(mismatch(unit.ulpdu.data() + 18, payload, 2, done), payload);
        done += payload;
        if ((unit.ulpdu[0] & 0x40) != 0) {
            ASSERT_EQ(done, kLength);
            done = 0;
            message++;
        }
    }
    for (uint64_t i = 0; i < posted; i++)
        expect_success(client.end->scq(), i, IBV_WC_SEND);
}

/* Errors of the peer ---------------------------------------------------------- */

/*
 * The device answers with a Terminate that has this layer, type and code, then
 * closes; its queues are flushed and the application hears of it.
 */
void expect_terminate(RawClient &client, unsigned layer, unsigned type, unsigned code) {
    Fpdu unit = client.raw.hear_fpdu();
    EXPECT_TRUE(unit.crc_good);
    ASSERT_GE(unit.ulpdu.size(), 22U);
    EXPECT_EQ(unit.ulpdu[0], 0x41);
    EXPECT_EQ(unit.ulpdu[1], 0x40 | kOpTerminate);
    EXPECT_EQ(get32(unit.ulpdu, 6), 2U);  // QN
    EXPECT_EQ(get32(unit.ulpdu, 10), 1U); // MSN
    EXPECT_EQ(get32(unit.ulpdu, 14), 0U); // MO
    EXPECT_EQ(unit.ulpdu[18], layer << 4 | type);
    EXPECT_EQ(unit.ulpdu[19], code);
    EXPECT_TRUE(client.raw.closed_by_peer());
    client.raw.shut_down();
    client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_state(client.end->qp(), IBV_QPS_ERR);
}

TEST(WireError, BadCrc) {
    RawClient client;
    client.open();
    Region to(client.end->pd(), 64);
    client.end->recv(1, {to.all()});
    Bytes unit = fpdu(Untagged{.payload = {1, 2, 3, 4}}.bytes());
    unit[22] ^= 1;
    client.raw.say(unit);
    /* A good one behind it is not looked at. */
    client.raw.say(fpdu(Untagged{.payload = {1, 2, 3, 4}}.bytes()));
    expect_terminate(client, 2, 0, 0x02);
    expect_wc(client.end->rcq(), 1, IBV_WC_WR_FLUSH_ERR);
}

struct BadSegment {
    const char *name;
    Bytes ulpdu;
    unsigned layer, type, code;
};

void PrintTo(const BadSegment &bad, std::ostream *to) {
    *to << bad.name;
}

class WireErrorOf : public testing::TestWithParam<BadSegment> {};

INSTANTIATE_TEST_SUITE_P(
    Each, WireErrorOf,
    testing::Values(
        BadSegment{"TaggedDdpVersion", Tagged{.ddp = 0xc2}.bytes(), 1, 1, 0x04},
        BadSegment{"UntaggedDdpVersion", Untagged{.ddp = 0x40}.bytes(), 1, 2, 0x06},
        BadSegment{"QueueNumber", Untagged{.qn = 4}.bytes(), 1, 2, 0x01},
        BadSegment{"RdmapVersion", Untagged{.rdmap = 0xc0 | kOpSend}.bytes(), 0, 2, 0x05},
        BadSegment{"Opcode", Untagged{.rdmap = 0x40 | 0x0f}.bytes(), 0, 2, 0x06},
        BadSegment{"UnsolicitedReadResponse",
                   Tagged{.rdmap = 0x40 | kOpReadResponse, .stag = 1, .payload = {1}}.bytes(), 0, 2,
                   0x06},
        BadSegment{"MessageNumberTooHigh", Untagged{.msn = 100000}.bytes(), 1, 2, 0x03},
        BadSegment{"MessageOffset", Untagged{.mo = 8, .payload = {1}}.bytes(), 1, 2, 0x04},
        BadSegment{"MessageTooLong", Untagged{.payload = Bytes(65)}.bytes(), 1, 2, 0x05},
        BadSegment{"WriteToNoStag", Tagged{.stag = 0x12345600, .payload = {1}}.bytes(), 1, 1,
                   0x00}),
    [](const testing::TestParamInfo<BadSegment> &info) { return std::string(info.param.name); });

TEST_P(WireErrorOf, Terminates) {
    const BadSegment &bad = GetParam();
    RawClient client;
    client.open();
    Region to(client.end->pd(), 64);
    client.end->recv(1, {to.all()});
    client.end->recv(2, {to.all()});
    client.raw.say(fpdu(bad.ulpdu));
    expect_terminate(client, bad.layer, bad.type, bad.code);
}

TEST(WireError, SendWithoutReceive) {
    RawClient client;
    client.raw.say(fpdu(Untagged{.payload = {1}}.bytes()));
    expect_terminate(client, 1, 2, 0x02);
}

/* More reads than the IRD of the reply allows (spec: 1/2/0x02). */
TEST(WireError, TooManyReads) {
    QpOptions options;
    options.ird = 2;
    options.ord = 2;
    /* IRD 2, ORD 2 on the raw side, too. */
    RawClient client(kMpaCrc | kMpaEnhanced, 2, {0, 2, 0, 2}, options);
    size_t size = 4 << 20;
    Region source(client.end->pd(), size);
    unsigned ird = get16(client.reply, 20) & 0x3fff;
    ASSERT_EQ(ird, 2U);
    Bytes all;
    for (uint32_t i = 0; i < 16; i++) {
        Bytes header;
        put32(header, 0x1111);
        put64(header, 0);
        put32(header, static_cast<uint32_t>(size));
        put32(header, source.rkey());
        put64(header, source.addr());
        Bytes unit =
            fpdu(Untagged{.rdmap = 0x40 | kOpReadRequest, .qn = 1, .msn = i + 1, .payload = header}
                     .bytes());
        all.insert(all.end(), unit.begin(), unit.end());
    }
    client.raw.say(all);
    /* Some of the answers may come first. */
    for (;;) {
        Fpdu unit = client.raw.hear_fpdu();
        ASSERT_TRUE(unit.crc_good);
        if (unit.ulpdu[1] != (0x40 | kOpTerminate))
            continue;
        EXPECT_EQ(unit.ulpdu[18], 0x12);
        EXPECT_EQ(unit.ulpdu[19], 0x02);
        break;
    }
    EXPECT_TRUE(client.raw.closed_by_peer());
    client.raw.shut_down();
    client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
}

/* FIN between FPDUs is a close, in the middle of one it is not; neither hangs. */
TEST(WireError, FinAnywhere) {
    for (size_t said : {0, 1, 2, 10, 27}) {
        SCOPED_TRACE(said);
        RawClient client;
        client.open();
        Region to(client.end->pd(), 64);
        client.end->recv(1, {to.all()});
        Bytes unit = fpdu(Untagged{.payload = {1, 2, 3, 4}}.bytes());
        client.raw.say(std::span(unit).first(said));
        client.raw.shut_down();
        client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
        /* Needed after a close only; a broken stream has no more to end. */
        rdma_disconnect(client.end->id());
        EXPECT_TRUE(client.raw.closed_by_peer());
        expect_wc(client.end->rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    }
}

TEST(WireError, Reset) {
    RawClient client;
    client.open();
    client.end->recv(1, {});
    client.raw.reset();
    client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_wc(client.end->rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    expect_qp_event(client.end->qp(), {IBV_EVENT_QP_FATAL});
}

/* A peer that stops reading and goes: sends in the queue are flushed. */
TEST(WireError, ResetWithFullQueue) {
    RawClient client(kMpaCrc, 1, {}, QpOptions{.send_wr = 64});
    client.open();
    Region from(client.end->pd(), 256 * 1024);
    uint64_t posted = 0;
    while (post_send(client.end->qp(), SendWr::send(posted, {from.all()})) == 0)
        posted++;
    client.raw.reset();
    client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_LT(expect_done_then_flushed(client.end->scq(), posted), posted);
}

/* A Terminate from the peer ends the QP with an event. */
TEST(WireError, TerminateReceived) {
    RawClient client;
    client.open();
    client.end->recv(1, {});
    /* RDMAP, Remote Operation Error, unspecified; no headers */
    client.raw.say(fpdu(
        Untagged{.rdmap = 0x40 | kOpTerminate, .qn = 2, .payload = {0x02, 0xff, 0, 0}}.bytes()));
    EXPECT_TRUE(client.raw.closed_by_peer());
    client.raw.shut_down();
    client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_qp_event(client.end->qp(), {IBV_EVENT_QP_FATAL});
    expect_wc(client.end->rcq(), 1, IBV_WC_WR_FLUSH_ERR);
}

/* Random octets in place of FPDUs: the QP ends, the device does not. */
TEST(WireError, Noise) {
    for (uint64_t seed = 0; seed < full_or_quick<uint64_t>(40, 10); seed++) {
        SCOPED_TRACE(seed);
        RawClient client;
        Region to(client.end->pd(), 4096);
        for (uint64_t i = 0; i < 4; i++)
            client.end->recv(i, {to.all()});
        Random random(seed);
        Bytes noise(2000);
        fill(noise.data(), noise.size(), seed);
        /* A plausible frame with a good CRC half of the time. */
        if (seed % 2 == 0) {
            Bytes ulpdu(noise.begin(), noise.begin() + static_cast<long>(random.below(100)));
            if (!ulpdu.empty())
                ulpdu[0] = static_cast<uint8_t>((ulpdu[0] & 0xc0) | 1);
            if (ulpdu.size() > 1)
                ulpdu[1] = static_cast<uint8_t>(0x40 | (ulpdu[1] & 7));
            client.raw.say(fpdu(ulpdu));
        }
        client.raw.say(noise);
        client.raw.shut_down();
        client.end->expect(RDMA_CM_EVENT_DISCONNECTED);
        expect_qp_state(client.end->qp(), IBV_QPS_ERR);
    }
    expect_route_works();
}

} // namespace
