// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * RDMAP: RFC 5040.
 *
 * Octets of segments that ours says are compared as a whole where a test can
 * know all of them; layer, etype and code of a Terminate are written 0/2/0x06.
 */
#include <softwarp_abi.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

/* Helpers ------------------------------------------------------------------- */

/* vendor_err of completions: the error as we found it, or as the peer told. */
constexpr uint32_t found(unsigned layer, unsigned etype, unsigned code) {
    return SWP_VENDOR_ERR(layer, etype, code);
}
constexpr uint32_t told(unsigned layer, unsigned etype, unsigned code) {
    return SWP_VENDOR_ERR(layer, etype, code) | SWP_VENDOR_ERR_REMOTE;
}

constexpr uint8_t rdmap_of(uint8_t opcode) {
    return kRdmapVersion | opcode;
}

void expect_vendor(ibv_cq *cq, uint64_t id, ibv_wc_status status, uint32_t vendor,
                   Where where = Where::current()) {
    ibv_wc wc = expect_wc(cq, id, status, where);
    EXPECT_EQ(wc.vendor_err, vendor) << where.line() << ": " << wc_text(wc);
}

Tagged response(const ReadRequest &request, Bytes payload, uint64_t done = 0, bool last = true) {
    return {.ddp = static_cast<uint8_t>(kDdpTagged | kDdpVersion | (last ? kDdpLast : 0)),
            .rdmap = rdmap_of(kOpReadResponse),
            .stag = request.sink_stag,
            .to = request.sink_to + done,
            .payload = std::move(payload)};
}

/* A Read Request of ours, whatever it says. */
ReadRequest hear_request(Link &link) {
    Segment segment = link.hear();
    if (segment.opcode() != kOpReadRequest)
        fail("no Read Request but " + segment.text());
    return ReadRequest::parse(segment.payload);
}

/* Several ULPDUs in one TCP segment: ours looks at all before it speaks. */
void say_at_once(Link &link, std::initializer_list<Bytes> ulpdus) {
    Bytes all;
    for (const Bytes &ulpdu : ulpdus)
        append(all, link.peer().writer().encode(ulpdu));
    link.peer().say(all);
}

/* The peer takes little more than this many octets before it reads. */
void narrow_window(Link &link) {
    int size = 32 * 1024;
    require(setsockopt(link.peer().fd(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0,
            "SO_RCVBUF");
}

/* And as it was meant to be: reading goes faster. */
void widen_window(Link &link) {
    int size = 4 << 20;
    require(setsockopt(link.peer().fd(), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) == 0,
            "SO_RCVBUFFORCE");
}

/* More than TCP's buffers hold, so that sending it blocks. */
constexpr size_t kHuge = 12 << 20;

/* Fails the stream, so that what is outstanding is flushed. */
void end_of(Link &link) {
    link.peer().reset();
    link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
}

/* What the wire shows --------------------------------------------------------- */

/* One of each message, octet by octet. */
TEST(Rdmap, EveryMessage) {
    REQ("RDMAP-01", "RDMAP-02", "RDMAP-03", "RDMAP-04", "RDMAP-05", "RDMAP-06", "RDMAP-07",
        "RDMAP-08", "RDMAP-11", "RDMAP-12", "RDMAP-31", "RDMAP-38", "RDMAP-43", "RDMAP-48");
    Link link;
    Region memory(link.pd(), 64);
    fill(memory.at(0), 64, 5);
    auto post = [&](const SendWr &wr) { ASSERT_EQ(post_send(link.qp(), wr), 0); };

    link.send(1, {memory.sge(0, 5)});
    link.expect_ulpdu(Untagged{.rdmap = 0x43, .payload = pattern(5, 5)});
    post(SendWr::send_inv(2, {}, 0xa1b2c3d4));
    link.expect_ulpdu(Untagged{.rdmap = 0x44, .invalidate = 0xa1b2c3d4, .msn = 2});
    link.send(3, {memory.sge(1, 4)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    link.expect_ulpdu(Untagged{.rdmap = 0x45, .msn = 3, .payload = pattern(4, 5, 1)});
    post(SendWr::send_inv(4, {memory.sge(2, 3)}, 0x01020304,
                          IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
    link.expect_ulpdu(
        Untagged{.rdmap = 0x46, .invalidate = 0x01020304, .msn = 4, .payload = pattern(3, 5, 2)});
    link.write(5, {memory.sge(0, 8)}, 0xfedcba9876543210, 0x55667788);
    link.expect_ulpdu(Tagged{
        .rdmap = 0x40, .stag = 0x55667788, .to = 0xfedcba9876543210, .payload = pattern(8, 5)});

    link.read(6, {memory.sge(16, 9)}, 0x1122334455667788, 0x99aabbcc);
    ReadRequest ours{.sink_stag = memory.lkey(),
                     .sink_to = memory.addr(16),
                     .size = 9,
                     .src_stag = 0x99aabbcc,
                     .src_to = 0x1122334455667788};
    Bytes request = ours.bytes(1);
    EXPECT_EQ(request.size(), 46U);
    EXPECT_EQ(request[1], 0x41);
    link.expect_ulpdu(request);
    link.say(response(ours, pattern(9, 6)));
    for (uint64_t id = 1; id <= 6; id++)
        expect_wc(link.scq(), id, IBV_WC_SUCCESS);
    expect_pattern(memory.at(16), 9, 6);

    link.say_read({.sink_stag = 0xdeadbeef,
                   .sink_to = 0x8000000000000001,
                   .size = 7,
                   .src_stag = memory.rkey(),
                   .src_to = memory.addr(3)});
    link.expect_ulpdu(Tagged{
        .rdmap = 0x42, .stag = 0xdeadbeef, .to = 0x8000000000000001, .payload = pattern(7, 5, 3)});

    Bytes bad = Untagged{.rdmap = rdmap_of(15)}.bytes();
    link.recv(9, {});
    link.say(bad);
    /* 0x47, QN 2, MSN 1, MO 0, all looked at in there */
    link.expect_terminate(0, 2, 0x06, Headers::ddp(bad));
    link.expect_disconnected();
}

/* The STag to invalidate stands in each segment; in other Sends zero does. */
TEST(Rdmap, InvalidateStagInEverySegment) {
    REQ("RDMAP-05", "RDMAP-06", "RDMAP-09");
    constexpr size_t kLength = 20000;
    Link link;
    Region memory(link.pd(), kLength);
    fill(memory.at(0), kLength, 1);
    ASSERT_EQ(post_send(link.qp(), SendWr::send_inv(1, {memory.all()}, 0xcafe0123)), 0);
    link.send(2, {memory.all()});
    for (uint32_t stag : {0xcafe0123U, 0U}) {
        Link::Message message = link.hear_message();
        EXPECT_GT(message.segments, 1U);
        EXPECT_EQ(message.invalidate, stag);
        expect_octets(message.payload, pattern(kLength, 1));
    }
}

/* What stands in that field of other messages is not looked at. */
TEST(Rdmap, InvalidateStagIgnored) {
    REQ("RDMAP-06");
    Link link;
    Region memory(link.pd(), 256);
    fill(memory.at(0), 8, 3);
    link.recv(1, {memory.sge(100, 8)});
    link.recv(2, {memory.sge(100, 8)});
    link.say(Untagged{.invalidate = memory.rkey(), .payload = {1}});
    link.say(Untagged{.rdmap = rdmap_of(kOpSendSolicited),
                      .invalidate = memory.rkey(),
                      .msn = 2,
                      .payload = {2}});
    for (uint64_t id : {1, 2}) {
        ibv_wc wc = expect_success(link.rcq(), id, IBV_WC_RECV, 1);
        EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_INV, 0U);
    }
    Bytes request = ReadRequest{.sink_stag = 1,
                                .sink_to = 0,
                                .size = 8,
                                .src_stag = memory.rkey(),
                                .src_to = memory.addr()}
                        .bytes(1);
    std::copy_n(request.begin() + 46 - 12, 4, request.begin() + 2); // SrcSTag
    link.say(request);
    link.expect_ulpdu(
        Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 1, .payload = pattern(8, 3)});
    /* As valid as before. */
    link.say(Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = {7}});
    link.send_msn = 3;
    link.expect_works();
    EXPECT_EQ(*memory.at(0), 7);
}

/* Both reserved bits set in every message that may come. */
TEST(Rdmap, ReservedBitsIgnored) {
    REQ("RDMAP-04", "RDMAP-20");
    constexpr uint8_t kReserved = 0x30;
    Link link;
    Region memory(link.pd(), 256);
    fill(memory.at(0), 8, 3);
    uint32_t msn = 1;
    for (uint8_t opcode :
         {kOpSend, kOpSendSolicited, kOpSendInvalidate, kOpSendSolicitedInvalidate}) {
        Region victim(link.pd(), 64);
        link.recv(msn, {memory.sge(100, 8)});
        link.say(Untagged{.rdmap = static_cast<uint8_t>(rdmap_of(opcode) | kReserved),
                          .invalidate = victim.rkey(),
                          .msn = msn,
                          .payload = {opcode}});
        expect_success(link.rcq(), msn, IBV_WC_RECV, 1);
        EXPECT_EQ(*memory.at(100), opcode);
        msn++;
    }
    link.say(Tagged{.rdmap = rdmap_of(kOpWrite) | kReserved,
                    .stag = memory.rkey(),
                    .to = memory.addr(50),
                    .payload = {9}});
    Bytes request = ReadRequest{.sink_stag = 1,
                                .sink_to = 0,
                                .size = 8,
                                .src_stag = memory.rkey(),
                                .src_to = memory.addr()}
                        .bytes(1);
    request[1] |= kReserved;
    link.say(request);
    link.expect_ulpdu(
        Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 1, .payload = pattern(8, 3)});
    EXPECT_EQ(*memory.at(50), 9);

    link.read(70, {memory.sge(200, 4)}, 0, 1);
    Tagged answer = response(hear_request(link), {1, 2, 3, 4});
    answer.rdmap |= kReserved;
    link.say(answer);
    expect_success(link.scq(), 70, IBV_WC_RDMA_READ, 4);

    link.recv(71, {});
    Terminate term{.layer = 0, .etype = 2, .code = 0x06, .reserved = 0x1fff};
    Bytes octets = term.bytes();
    octets[1] |= kReserved;
    link.say(octets);
    expect_vendor(link.rcq(), 71, IBV_WC_WR_FLUSH_ERR, told(0, 2, 0x06));
    link.expect_fin();
}

/* Once in RDMA mode nothing but RDMA messages goes over the stream, to its end. */
TEST(Rdmap, OnlyMessagesUntilTheEnd) {
    REQ("RDMAP-64");
    constexpr size_t kLength = 50000;
    Link link;
    Region memory(link.pd(), kLength);
    fill(memory.at(0), kLength, 2);
    link.send(1, {memory.all()});
    link.write(2, {memory.all()}, 0, 5);
    link.say_read(
        {.sink_stag = 6, .size = kLength, .src_stag = memory.rkey(), .src_to = memory.addr()});
    link.send(3, {});
    std::multiset<uint8_t> heard;
    for (int i = 0; i < 4; i++) {
        Link::Message message = link.hear_message();
        heard.insert(message.rdmap);
        EXPECT_TRUE(message.payload.empty() || message.payload == pattern(kLength, 2));
    }
    EXPECT_EQ(heard, (std::multiset<uint8_t>{0x40, 0x42, 0x43, 0x43}));
    link.ours().disconnect();
    link.expect_fin();
    link.expect_disconnected();
}

/* Read Requests and Responses ---------------------------------------------------- */

/* Sink STag and offset are the requester's own business. */
TEST(Rdmap, SinkIsCopied) {
    REQ("RDMAP-13", "RDMAP-14", "RDMAP-30", "RDMAP-38");
    constexpr uint32_t kLength = 10001;
    Link link;
    Region memory(link.pd(), 3 * 4096 + kLength);
    fill(memory.at(0), memory.buffer.size(), 9);
    for (uint64_t sink : {0UL, 1UL, 0x7fffUL, 0xffffffff12345679UL}) {
        for (size_t from : {0, 1, 4095, 4097}) {
            link.say_read({.sink_stag = 0xf00d0000 + static_cast<uint32_t>(from),
                           .sink_to = sink,
                           .size = kLength,
                           .src_stag = memory.rkey(),
                           .src_to = memory.addr(from)});
            Link::Message message = link.hear_message();
            EXPECT_EQ(message.rdmap, rdmap_of(kOpReadResponse));
            EXPECT_EQ(message.stag, 0xf00d0000 + from);
            EXPECT_EQ(message.to, sink);
            expect_octets(message.payload, pattern(kLength, 9, from));
        }
    }
    link.expect_nothing_for();
}

/* A read of nothing looks at no source. */
TEST(Rdmap, ReadOfNothing) {
    REQ("RDMAP-15", "RDMAP-35", "RDMAP-37");
    Link link;
    for (uint32_t stag : {0U, 0x12345678U, 0xffffffffU}) {
        link.say_read({.sink_stag = 0xabcd,
                       .sink_to = 0x1234567,
                       .size = 0,
                       .src_stag = stag,
                       .src_to = ~uint64_t{0}});
        link.expect_ulpdu(
            Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 0xabcd, .to = 0x1234567});
    }
    link.expect_works();
}

/* Ours asks for nothing, too; and for 2 GiB, the most that a request may have. */
TEST(Rdmap, SizesAskedFor) {
    REQ("RDMAP-15", "RDMAP-29", "RDMAP-37");
    Link link({.qp = {.send_sge = 32}});
    Region memory(link.pd(), 64 << 20);
    link.read(1, {}, ~uint64_t{0}, 0);
    ReadRequest request = hear_request(link);
    EXPECT_EQ(request.size, 0U);
    link.say(response(request, {}));
    expect_success(link.scq(), 1, IBV_WC_RDMA_READ, 0);
    link.read(2, SgList(32, memory.all()), 0x10, 0x20);
    EXPECT_EQ(hear_request(link).size, 0x80000000U);
    end_of(link);
}

/*
 * A response of many segments, more than TCP's buffers hold.  The largest size
 * of all is seen in the field only: RdmapFault.*ReadFourGigabytes.
 */
TEST(Rdmap, ReadOfManyMegabytes) {
    REQ("RDMAP-15", "RDMAP-41");
    Link link;
    Region memory(link.pd(), kHuge);
    fill(memory.at(0), kHuge, 8);
    link.say_read({.sink_stag = 1,
                   .sink_to = 2,
                   .size = kHuge - 1,
                   .src_stag = memory.rkey(),
                   .src_to = memory.addr(1)});
    Link::Message message = link.hear_message();
    EXPECT_EQ(message.to, 2U);
    ASSERT_EQ(message.payload.size(), kHuge - 1);
    EXPECT_EQ(mismatch(message.payload.data(), kHuge - 1, 8, 1), kHuge - 1);
}

/* Reads are answered in the order of the requests, and nobody above hears of it. */
TEST(Rdmap, ResponsesInOrder) {
    REQ("RDMAP-26", "RDMAP-32", "RDMAP-33", "RDMAP-35", "RDMAP-41", "RDMAP-62");
    constexpr uint32_t kReads = 8;
    Link link;
    Region memory(link.pd(), 100000);
    fill(memory.at(0), 100000, 4);
    link.recv(1, {});
    const uint32_t sizes[kReads] = {50000, 1, 0, 3000, 100000, 2, 1400, 9};
    Bytes all;
    for (uint32_t i = 0; i < kReads; i++)
        append(all, link.peer().writer().encode(ReadRequest{.sink_stag = 100 + i,
                                                            .sink_to = i,
                                                            .size = sizes[i],
                                                            .src_stag = memory.rkey(),
                                                            .src_to = memory.addr()}
                                                    .bytes(i + 1)));
    link.peer().say(all);
    for (uint32_t i = 0; i < kReads; i++) {
        Link::Message message = link.hear_message();
        EXPECT_EQ(message.rdmap, rdmap_of(kOpReadResponse));
        EXPECT_EQ(message.stag, 100 + i);
        EXPECT_EQ(message.to, i);
        expect_octets(message.payload, pattern(sizes[i], 4));
    }
    link.expect_nothing_for();
    expect_quiet(link.rcq());
    expect_quiet(link.scq());
}

/* Ours: one request per read, numbered, in order; each completes with its response. */
TEST(Rdmap, ReadsOfOurs) {
    REQ("RDMAP-30", "RDMAP-31", "RDMAP-33", "RDMAP-34", "RDMAP-40", "RDMAP-56", "RDMAP-61");
    constexpr size_t kReads = 4;
    constexpr size_t kLength = 5000;
    Link link;
    Region memory(link.pd(), kReads * kLength);
    for (uint64_t i = 0; i < kReads; i++)
        link.read(i, {memory.sge(i * kLength, kLength)}, 0x1000 * i, 0x700 + i);
    std::vector<ReadRequest> requests;
    for (uint32_t i = 0; i < kReads; i++) {
        Segment segment = link.hear();
        EXPECT_EQ(segment.rdmap, rdmap_of(kOpReadRequest));
        EXPECT_TRUE(segment.last());
        EXPECT_EQ(segment.qn, 1U);
        EXPECT_EQ(segment.msn, i + 1);
        EXPECT_EQ(segment.mo, 0U);
        requests.push_back(ReadRequest::parse(segment.payload));
        EXPECT_EQ(requests[i].src_stag, 0x700 + i);
        EXPECT_EQ(requests[i].src_to, 0x1000 * i);
        EXPECT_EQ(requests[i].size, kLength);
    }
    for (size_t i = 0; i < kReads; i++) {
        Bytes data = pattern(kLength, i);
        link.say(response(requests[i], Bytes(data.begin(), data.begin() + 1300), 0, false));
        link.say(response(requests[i], Bytes(data.begin() + 1300, data.end() - 1), 1300, false));
        expect_quiet(link.scq());
        link.say(response(requests[i], Bytes(data.end() - 1, data.end()), kLength - 1));
        expect_success(link.scq(), i, IBV_WC_RDMA_READ, kLength);
        expect_pattern(memory.at(i * kLength), kLength, i);
    }
    expect_quiet(link.scq());
    link.expect_works();
}

/* No work request reads from two remote buffers: there is one place to name it. */
TEST(Rdmap, OneRemoteBufferPerRequest) {
    REQ("RDMAP-25", "RDMAP-34");
    Link link;
    Region memory(link.pd(), 40000);
    fill(memory.at(0), 40000, 3);
    /* Many local pieces, one remote buffer, many segments. */
    link.write(1, {memory.sge(0, 10000), memory.sge(20000, 10000), memory.sge(10000, 10000)},
               0x5000, 0x42);
    Link::Message write = link.hear_message();
    EXPECT_EQ(write.stag, 0x42U);
    EXPECT_EQ(write.to, 0x5000U);
    EXPECT_GT(write.segments, 10U);
    EXPECT_EQ(write.payload,
              join({pattern(10000, 3), pattern(10000, 3, 20000), pattern(10000, 3, 10000)}));
    link.read(2, {memory.sge(0, 10), memory.sge(100, 10), memory.sge(50, 10)}, 0x6000, 0x43);
    ReadRequest request = hear_request(link);
    EXPECT_EQ(request.size, 30U);
    EXPECT_EQ(request.src_stag, 0x43U);
    EXPECT_EQ(request.src_to, 0x6000U);
    link.say(response(request, pattern(30, 6)));
    expect_success(link.scq(), 1, IBV_WC_RDMA_WRITE);
    expect_success(link.scq(), 2, IBV_WC_RDMA_READ, 30);
    expect_pattern(memory.at(0), 10, 6);
    expect_pattern(memory.at(100), 10, 6, 10);
    expect_pattern(memory.at(50), 10, 6, 20);
    link.expect_nothing_for();
}

/* A response that is not the one asked for. */
struct BadResponse {
    const char *name;
    void (*spoil)(Tagged &);
    unsigned code; // of 1/1
};

void PrintTo(const BadResponse &bad, std::ostream *to) {
    *to << bad.name;
}

class RdmapBadResponse : public testing::TestWithParam<BadResponse> {};

INSTANTIATE_TEST_SUITE_P(
    Each, RdmapBadResponse,
    testing::Values(BadResponse{"Stag", [](Tagged &r) { r.stag ^= 0x100; }, 0x00},
                    BadResponse{"OffsetTooHigh", [](Tagged &r) { r.to += 1; }, 0x01},
                    BadResponse{"OffsetTooLow", [](Tagged &r) { r.to -= 1; }, 0x01},
                    BadResponse{"TooLong", [](Tagged &r) { r.payload.push_back(0); }, 0x01},
                    BadResponse{"TooShort", [](Tagged &r) { r.payload.pop_back(); }, 0x01}),
    [](const testing::TestParamInfo<BadResponse> &info) { return std::string(info.param.name); });

TEST_P(RdmapBadResponse, Terminates) {
    REQ("RDMAP-42", "RDMAP-73");
    Link link;
    Region memory(link.pd(), 300);
    memory.buffer.set(0x5a);
    link.read(1, {memory.sge(100, 100)}, 0, 1);
    Tagged bad = response(hear_request(link), Bytes(100, 0xee));
    GetParam().spoil(bad);
    link.say(bad);
    link.expect_terminate(1, 1, GetParam().code, Headers::ddp(bad.bytes()));
    link.expect_async(IBV_EVENT_QP_ACCESS_ERR);
    expect_vendor(link.scq(), 1, IBV_WC_WR_FLUSH_ERR, found(1, 1, GetParam().code));
    expect_value(memory.at(0), 300, 0x5a, "the sink and what is around it");
    link.expect_disconnected();
}

/* IRD and ORD --------------------------------------------------------------------- */

LinkOptions with_depths(uint16_t ird, uint16_t ord) {
    LinkOptions options;
    options.enhanced = Enhanced{.ird = ord, .ord = ird}; // as the peer sees it
    options.qp.ird = static_cast<uint8_t>(ird);
    options.qp.ord = static_cast<uint8_t>(ord);
    return options;
}

TEST(Rdmap, DepthsAreKnown) {
    REQ("RDMAP-65", "SEC-19");
    for (auto [ird, ord] : {std::pair{1, 1}, {3, 7}, {16, 2}}) {
        Link link(with_depths(ird, ord));
        ASSERT_TRUE(link.reply.enhanced);
        EXPECT_EQ(link.reply.enhanced->ird, ird);
        EXPECT_EQ(link.reply.enhanced->ord, ord);
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ASSERT_EQ(ibv_query_qp(link.qp(), &attr,
                               IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init),
                  0);
        EXPECT_EQ(attr.max_rd_atomic, ord);
        EXPECT_EQ(attr.max_dest_rd_atomic, ird);
    }
}

/* As many reads as agreed are taken at once, again and again; one more is too many. */
TEST(Rdmap, InboundLimit) {
    REQ("RDMAP-39", "RDMAP-66", "RDMAP-31", "SEC-18");
    for (uint16_t ird : {1, 2, 5}) {
        SCOPED_TRACE(ird);
        Link link(with_depths(ird, 1));
        ASSERT_EQ(link.reply.enhanced->ird, ird);
        Region memory(link.pd(), 64);
        fill(memory.at(0), 64, 1);
        ReadRequest request{.sink_stag = 1,
                            .sink_to = 0,
                            .size = 8,
                            .src_stag = memory.rkey(),
                            .src_to = memory.addr()};
        uint32_t msn = 1;
        auto burst = [&](uint32_t count) {
            Bytes all;
            for (uint32_t i = 0; i < count; i++)
                append(all, link.peer().writer().encode(request.bytes(msn++)));
            link.peer().say(all);
        };
        for (int round = 0; round < 3; round++) {
            burst(ird);
            for (uint32_t i = 0; i < ird; i++)
                link.expect_ulpdu(Tagged{
                    .rdmap = rdmap_of(kOpReadResponse), .stag = 1, .payload = pattern(8, 1)});
        }
        burst(ird + 1);
        /* DDP's error: no RDMA header (Fig. 10) */
        link.skip_to_terminate(1, 2, 0x02, Headers::ddp(request.bytes(msn - 1)));
        link.expect_async(IBV_EVENT_QP_REQ_ERR);
        link.expect_disconnected();
    }
}

/* A place is free again when its response was said, not before. */
TEST(Rdmap, InboundLimitWhileBlocked) {
    REQ("RDMAP-66");
    Link link(with_depths(1, 1));
    narrow_window(link);
    Region memory(link.pd(), kHuge);
    ReadRequest request{.sink_stag = 1,
                        .sink_to = 0,
                        .size = kHuge,
                        .src_stag = memory.rkey(),
                        .src_to = memory.addr()};
    link.say(request.bytes(1));
    link.hear();
    link.say(request.bytes(2));
    link.skip_to_terminate(1, 2, 0x02, Headers::ddp(request.bytes(2)));
    link.expect_disconnected();
}

TEST(Rdmap, OutboundLimit) {
    REQ("RDMAP-65", "RDMAP-66", "SEC-19");
    for (uint16_t ord : {1, 3}) {
        SCOPED_TRACE(ord);
        Link link(with_depths(4, ord));
        Region memory(link.pd(), 64);
        std::vector<SendWr> list;
        for (uint64_t i = 0; i < 2U * ord + 1; i++)
            list.push_back(SendWr::read(i, {memory.sge(0, 8)}, 0, i));
        ASSERT_EQ(post_send_list(link.qp(), list), 0);
        std::vector<ReadRequest> requests;
        for (uint16_t i = 0; i < ord; i++)
            requests.push_back(hear_request(link));
        link.expect_nothing_for();
        for (uint64_t i = 0; i < list.size(); i++) {
            link.say(response(requests.at(i), Bytes(8, 1)));
            expect_success(link.scq(), i, IBV_WC_RDMA_READ, 8);
            if (i + ord >= list.size())
                continue;
            requests.push_back(hear_request(link));
            EXPECT_EQ(requests.back().src_stag, i + ord);
            link.expect_nothing_for(milliseconds(10));
        }
        link.expect_works();
    }
}

/* No outbound reads were granted: a read is the poster's error, and not sent. */
TEST(Rdmap, NoOutboundReads) {
    REQ("RDMAP-66", "RDMAP-72");
    Link link(with_depths(1, 0));
    ASSERT_EQ(link.reply.enhanced->ord, 0);
    Region memory(link.pd(), 64);
    link.read(1, {memory.sge(0, 8)}, 0, 1);
    link.expect_terminate(0, 0, 0x00, Headers::none());
    expect_vendor(link.scq(), 1, IBV_WC_LOC_QP_OP_ERR, found(0, 0, 0));
    link.expect_disconnected();
}

/* Sends and Writes ------------------------------------------------------------------ */

TEST(Rdmap, SendsArriveInOrder) {
    REQ("RDMAP-09", "RDMAP-43", "RDMAP-45", "RDMAP-55");
    constexpr size_t kRoom = 8192;
    const size_t lengths[] = {1, 0, 5000, 4, 0, 8192, 1500};
    Link link;
    Region memory(link.pd(), 7 * kRoom);
    memory.buffer.set(0x5a);
    for (uint64_t i = 0; i < 7; i++)
        link.recv(i, {memory.sge(i * kRoom, kRoom)});
    /* The first one's segments are of all sizes. */
    for (uint32_t i = 0; i < 7; i++) {
        Bytes data = pattern(lengths[i], i);
        size_t at = 0;
        do {
            size_t part = std::min<size_t>(data.size() - at, 1 + at % 999);
            bool last = at + part == data.size();
            link.say(Untagged{.ddp = static_cast<uint8_t>(kDdpVersion | (last ? kDdpLast : 0)),
                              .msn = i + 1,
                              .mo = static_cast<uint32_t>(at),
                              .payload = Bytes(data.begin() + static_cast<long>(at),
                                               data.begin() + static_cast<long>(at + part))});
            at += part;
        } while (at < data.size());
    }
    for (uint64_t i = 0; i < 7; i++) {
        expect_success(link.rcq(), i, IBV_WC_RECV, static_cast<int64_t>(lengths[i]));
        expect_pattern(memory.at(i * kRoom), lengths[i], i);
        expect_value(memory.at(i * kRoom + lengths[i]), kRoom - lengths[i], 0x5a, "behind it");
    }
    link.send_msn = 8;
    link.expect_works();
}

/* Of all types, as they were posted. */
TEST(Rdmap, SubmissionOrder) {
    REQ("RDMAP-28", "RDMAP-33", "RDMAP-45", "RDMAP-58", "RDMAP-60");
    Link link;
    Region memory(link.pd(), 30000);
    std::vector<SendWr> list;
    uint64_t id = 0;
    for (size_t length : {1, 30000, 0, 2000}) {
        list.push_back(SendWr::send(id++, {memory.sge(0, length)}));
        list.push_back(SendWr::write(id++, {memory.sge(0, length)}, 0, 1));
        list.push_back(SendWr::read(id++, {memory.sge(0, length)}, 0, 2));
        list.push_back(SendWr::write(id++, {memory.sge(0, length)}, 0, 3));
    }
    ASSERT_EQ(post_send_list(link.qp(), list), 0);
    std::vector<ReadRequest> requests;
    for (const SendWr &wr : list) {
        Link::Message message = link.hear_message();
        EXPECT_EQ(message.rdmap, rdmap_of(wr.opcode == IBV_WR_SEND         ? kOpSend
                                          : wr.opcode == IBV_WR_RDMA_WRITE ? kOpWrite
                                                                           : kOpReadRequest));
        if (wr.opcode == IBV_WR_RDMA_READ)
            requests.push_back(ReadRequest::parse(message.payload));
        else
            EXPECT_EQ(message.payload.size(), wr.length());
        if (message.tagged) {
            EXPECT_EQ(message.stag, wr.rkey);
        }
    }
    /* All is said, but behind the first read nothing completes. */
    for (id = 0; id < 2; id++)
        expect_wc(link.scq(), id, IBV_WC_SUCCESS);
    expect_quiet(link.scq());
    for (const ReadRequest &request : requests)
        link.say(response(request, Bytes(request.size)));
    for (; id < list.size(); id++)
        expect_success(link.scq(), id, list[id].wc_opcode());
}

/* A Write is seen by nobody above; a Send behind it tells that it is there. */
TEST(Rdmap, WriteThenSend) {
    REQ("RDMAP-26", "RDMAP-54", "RDMAP-55", "RDMAP-29");
    constexpr size_t kLength = 60000;
    Link link;
    Region memory(link.pd(), kLength);
    for (uint32_t round = 0; round < 5; round++) {
        link.recv(round, {});
        Bytes data = pattern(kLength, round);
        Bytes all;
        /* In uneven segments, all in one go, and a Write of nothing to nowhere. */
        for (size_t at = 0; at < kLength;) {
            size_t part = std::min<size_t>(kLength - at, 1 + at % 4000);
            append(all, link.peer().writer().encode(Tagged{
                            .ddp = static_cast<uint8_t>(kDdpTagged | kDdpVersion |
                                                        (at + part == kLength ? kDdpLast : 0)),
                            .stag = memory.rkey(),
                            .to = memory.addr(at),
                            .payload = Bytes(data.begin() + static_cast<long>(at),
                                             data.begin() + static_cast<long>(at + part))}
                                                        .bytes()));
            at += part;
        }
        append(all, link.peer().writer().encode(Tagged{.stag = 0, .to = ~uint64_t{0}}.bytes()));
        link.peer().say(all);
        expect_quiet(link.rcq(), milliseconds(5));
        link.say(Untagged{.msn = round + 1});
        expect_success(link.rcq(), round, IBV_WC_RECV, 0);
        expect_pattern(memory.at(0), kLength, round);
        expect_quiet(link.rcq(), milliseconds(5));
    }
    expect_quiet(link.scq());
}

TEST(Rdmap, WriteOfNothing) {
    REQ("RDMAP-29");
    Link link;
    link.write(1, {}, 0x1234567890, 0x42);
    link.expect_ulpdu(Tagged{.stag = 0x42, .to = 0x1234567890});
    expect_success(link.scq(), 1, IBV_WC_RDMA_WRITE);
    for (uint32_t stag : {0U, 1U, 0xffffffffU})
        link.say(Tagged{.stag = stag, .to = 0xffffffffffffffff});
    link.expect_works();
}

TEST(Rdmap, SolicitedEvents) {
    REQ("RDMAP-46");
    Link link({.qp = {.events = true}});
    for (uint64_t i = 0; i < 4; i++)
        link.recv(i, {});
    ASSERT_EQ(ibv_req_notify_cq(link.rcq(), 1), 0);
    link.say(Untagged{});
    expect_success(link.rcq(), 0, IBV_WC_RECV, 0);
    EXPECT_TRUE(no_cq_event(link.ours().completions()));
    link.say(Untagged{.rdmap = rdmap_of(kOpSendSolicited), .msn = 2});
    EXPECT_EQ(next_cq_event(link.ours().completions()), link.rcq());
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
    /* And with Invalidate. */
    Region memory(link.pd(), 64);
    ASSERT_EQ(ibv_req_notify_cq(link.rcq(), 1), 0);
    link.say(Untagged{
        .rdmap = rdmap_of(kOpSendSolicitedInvalidate), .invalidate = memory.rkey(), .msn = 3});
    EXPECT_EQ(next_cq_event(link.ours().completions()), link.rcq());
    expect_success(link.rcq(), 2, IBV_WC_RECV, 0);
}

/* Ordering --------------------------------------------------------------------------- */

/* What was written is what is read, when the read comes behind. */
TEST(Rdmap, ReadBack) {
    REQ("RDMAP-57", "RDMAP-55");
    constexpr size_t kLength = 3000;
    Link link;
    Region memory(link.pd(), kLength);
    link.recv(1, {memory.all()});
    Bytes first = pattern(kLength, 1), second = pattern(kLength, 2);
    ReadRequest request{.sink_stag = 1,
                        .sink_to = 0,
                        .size = kLength,
                        .src_stag = memory.rkey(),
                        .src_to = memory.addr()};
    /* A read that comes before sees none of it: it is answered first here. */
    say_at_once(link, {Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = first}.bytes(),
                       request.bytes(1)});
    expect_octets(link.hear_message().payload, first, "behind a Write");
    say_at_once(link, {Untagged{.payload = second}.bytes(), request.bytes(2)});
    expect_octets(link.hear_message().payload, second, "behind a Send");
    expect_success(link.rcq(), 1, IBV_WC_RECV, kLength);
    /* The response of a read of nothing says that what came before is placed. */
    ReadRequest nothing{};
    Bytes third = pattern(kLength, 3);
    say_at_once(link, {Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = third}.bytes(),
                       nothing.bytes(3)});
    link.expect_ulpdu(Tagged{.rdmap = rdmap_of(kOpReadResponse)});
    expect_pattern(memory.at(0), kLength, 3);
}

/* Half of a Send, then a Read Request whose last octet is missing: neither counts. */
TEST(Rdmap, NothingStartsBeforeItIsDelivered) {
    REQ("RDMAP-57", "RDMAP-55");
    Link link;
    Region memory(link.pd(), 64);
    fill(memory.at(0), 64, 1);
    Bytes unit = link.peer().writer().encode(ReadRequest{.sink_stag = 1,
                                                         .sink_to = 0,
                                                         .size = 64,
                                                         .src_stag = memory.rkey(),
                                                         .src_to = memory.addr()}
                                                 .bytes(1));
    link.peer().say(View(unit).first(unit.size() - 1));
    link.expect_nothing_for();
    fill(memory.at(0), 64, 2);
    link.peer().say(View(unit).last(1));
    link.expect_ulpdu(
        Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 1, .payload = pattern(64, 2)});
    link.recv(1, {memory.all()});
    link.say(Untagged{.ddp = kDdpVersion, .payload = Bytes(10)});
    expect_quiet(link.rcq());
    link.say(Untagged{.mo = 10, .payload = Bytes(10)});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 20);
}

/* Sends and Writes that TCP has not taken are not complete. */
TEST(Rdmap, NotCompleteBeforeTcpHasIt) {
    REQ("RDMAP-59");
    constexpr uint64_t kCount = 24;
    constexpr size_t kLength = kHuge / kCount;
    Link link;
    narrow_window(link);
    Region memory(link.pd(), kLength);
    fill(memory.at(0), kLength, 6);
    for (uint64_t i = 0; i < kCount; i++)
        if (i % 2 == 0)
            link.send(i, {memory.all()});
        else
            link.write(i, {memory.all()}, 0, 1);
    uint64_t done = 0;
    Deadline quiet(milliseconds(200));
    while (!quiet.passed())
        if (std::optional<ibv_wc> wc = try_wc(link.scq())) {
            EXPECT_EQ(wc->wr_id, done++);
            quiet = Deadline(milliseconds(200));
        }
    EXPECT_LT(done, kCount) << "complete, and nobody reads";
    widen_window(link);
    for (uint64_t i = 0; i < kCount; i++) {
        Link::Message message = link.hear_message();
        EXPECT_EQ(message.payload.size(), kLength);
        EXPECT_EQ(mismatch(message.payload.data(), kLength, 6), kLength);
    }
    for (; done < kCount; done++)
        expect_wc(link.scq(), done, IBV_WC_SUCCESS);
}

/* A Send need not wait for the response of a read that came before it. */
TEST(Rdmap, SendOvertakesResponse) {
    REQ("RDMAP-63");
    Link link;
    narrow_window(link);
    Region memory(link.pd(), kHuge);
    fill(memory.at(0), kHuge, 1);
    link.recv(1, {});
    link.say_read(
        {.sink_stag = 1, .size = kHuge, .src_stag = memory.rkey(), .src_to = memory.addr()});
    link.say(Untagged{});
    /* Most of the response is still to be said. */
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
    widen_window(link);
    Link::Message message = link.hear_message();
    EXPECT_EQ(message.payload.size(), kHuge);
    EXPECT_EQ(mismatch(message.payload.data(), kHuge, 1), kHuge);
}

/* Errors of the peer --------------------------------------------------------------------- */

/* Memory in all its kinds, for somebody who wants to get at it. */
struct Kinds {
    explicit Kinds(const Link &link)
        : good(link.pd(), 4096), readable(link.pd(), 4096, kRemoteRead),
          writable(link.pd(), 4096, kRemoteWrite), local(link.pd(), 4096, kLocal),
          other_pd(alloc_pd(link.context())), foreign(other_pd.get(), 4096) {
        dead_stag = register_memory(link.pd(), good.at(0), 4096)->rkey;
        for (Region *region : all())
            region->buffer.set(0x5a);
    }
    std::array<Region *, 5> all() { return {&good, &readable, &writable, &local, &foreign}; }

    Region good, readable, writable, local;
    Pd other_pd;
    Region foreign;
    uint32_t dead_stag;
};

enum class Copies { none, ddp, rdma };

struct Fault {
    const char *name;
    const char *requirements; // beside what all of them show
    Bytes (*ulpdu)(const Kinds &);
    unsigned layer, etype, code;
    Copies copies;
    ibv_event_type event;
};

void PrintTo(const Fault &fault, std::ostream *to) {
    *to << fault.name;
}

Bytes read_from(uint32_t stag, uint64_t to, uint32_t size) {
    return ReadRequest{.sink_stag = 0x1111,
                       .sink_to = 0x2222333344445555,
                       .size = size,
                       .src_stag = stag,
                       .src_to = to}
        .bytes(1);
}

Bytes write_to(uint32_t stag, uint64_t to, size_t size) {
    return Tagged{.stag = stag, .to = to, .payload = Bytes(size, 0xee)}.bytes();
}

Bytes send_inv(uint32_t stag, uint8_t opcode = kOpSendInvalidate) {
    return Untagged{.rdmap = rdmap_of(opcode), .invalidate = stag, .payload = {1, 2, 3}}.bytes();
}

Bytes tagged_op(uint8_t rdmap) {
    return Tagged{.rdmap = rdmap, .stag = 7}.bytes();
}

Bytes untagged_op(uint8_t rdmap, uint32_t qn = 0, size_t payload = 0) {
    return Untagged{.rdmap = rdmap, .qn = qn, .payload = Bytes(payload)}.bytes();
}

constexpr uint64_t kTop = ~uint64_t{0};

#define ULPDU(expression)                                                                          \
    [](const Kinds &m) -> Bytes {                                                                  \
        (void)m;                                                                                   \
        return expression;                                                                         \
    }

constexpr auto kReq = IBV_EVENT_QP_REQ_ERR;
constexpr auto kAcc = IBV_EVENT_QP_ACCESS_ERR;

const Fault kFaults[] = {
    /* RDMAP version: 00b, 10b, 11b */
    {"Version0", "RDMAP-03 RDMAP-78", ULPDU(untagged_op(0x03)), 0, 2, 0x05, Copies::ddp, kReq},
    {"Version2", "RDMAP-03 RDMAP-78", ULPDU(untagged_op(0x83)), 0, 2, 0x05, Copies::ddp, kReq},
    {"Version3", "RDMAP-03 RDMAP-78", ULPDU(untagged_op(0xc3)), 0, 2, 0x05, Copies::ddp, kReq},
    {"Version0Tagged", "RDMAP-03 RDMAP-78", ULPDU(tagged_op(0x00)), 0, 2, 0x05, Copies::ddp, kReq},
    {"Version2Tagged", "RDMAP-03 RDMAP-78", ULPDU(tagged_op(0x80)), 0, 2, 0x05, Copies::ddp, kReq},
    {"Version0Read", "RDMAP-03 RDMAP-78", ULPDU(untagged_op(0x01, 1, 28)), 0, 2, 0x05, Copies::ddp,
     kReq},
    /* Opcodes that are none */
    {"Opcode12", "RDMAP-10 RDMAP-77", ULPDU(untagged_op(0x4c)), 0, 2, 0x06, Copies::ddp, kReq},
    {"Opcode13", "RDMAP-10 RDMAP-77", ULPDU(untagged_op(0x4d)), 0, 2, 0x06, Copies::ddp, kReq},
    {"Opcode14", "RDMAP-10 RDMAP-77", ULPDU(untagged_op(0x4e)), 0, 2, 0x06, Copies::ddp, kReq},
    {"Opcode15", "RDMAP-10 RDMAP-77", ULPDU(untagged_op(0x4f)), 0, 2, 0x06, Copies::ddp, kReq},
    {"Opcode8Tagged", "RDMAP-10 RDMAP-77", ULPDU(tagged_op(0x48)), 0, 2, 0x06, Copies::ddp, kReq},
    {"Opcode15Tagged", "RDMAP-10 RDMAP-77", ULPDU(tagged_op(0x4f)), 0, 2, 0x06, Copies::ddp, kReq},
    /* T that contradicts the opcode */
    {"ReadRequestTagged", "RDMAP-07 RDMAP-77", ULPDU(tagged_op(0x41)), 0, 2, 0x06, Copies::ddp,
     kReq},
    {"SendTagged", "RDMAP-07 RDMAP-77", ULPDU(tagged_op(0x43)), 0, 2, 0x06, Copies::ddp, kReq},
    {"SendInvTagged", "RDMAP-07 RDMAP-77", ULPDU(tagged_op(0x44)), 0, 2, 0x06, Copies::ddp, kReq},
    {"SendSeTagged", "RDMAP-07 RDMAP-77", ULPDU(tagged_op(0x45)), 0, 2, 0x06, Copies::ddp, kReq},
    {"SendSeInvTagged", "RDMAP-07 RDMAP-77", ULPDU(tagged_op(0x46)), 0, 2, 0x06, Copies::ddp, kReq},
    {"TerminateTagged", "RDMAP-07 RDMAP-77", ULPDU(tagged_op(0x47)), 0, 2, 0x06, Copies::ddp, kReq},
    {"WriteUntagged", "RDMAP-07 RDMAP-77", ULPDU(untagged_op(0x40)), 0, 2, 0x06, Copies::ddp, kReq},
    {"ReadResponseUntagged", "RDMAP-07 RDMAP-77", ULPDU(untagged_op(0x42)), 0, 2, 0x06, Copies::ddp,
     kReq},
    /* The queue of somebody else */
    {"SendOnQueue1", "RDMAP-08 RDMAP-77", ULPDU(untagged_op(0x43, 1)), 0, 2, 0x06, Copies::ddp,
     kReq},
    {"SendOnQueue2", "RDMAP-08 RDMAP-77", ULPDU(untagged_op(0x43, 2)), 0, 2, 0x06, Copies::ddp,
     kReq},
    {"ReadRequestOnQueue0", "RDMAP-08 RDMAP-77", ULPDU(untagged_op(0x41, 0, 28)), 0, 2, 0x06,
     Copies::ddp, kReq},
    {"ReadRequestOnQueue2", "RDMAP-08 RDMAP-77", ULPDU(untagged_op(0x41, 2, 28)), 0, 2, 0x06,
     Copies::ddp, kReq},
    {"TerminateOnQueue0", "RDMAP-08 RDMAP-77", ULPDU(untagged_op(0x47, 0, 4)), 0, 2, 0x06,
     Copies::ddp, kReq},
    {"TerminateOnQueue1", "RDMAP-08 RDMAP-77", ULPDU(untagged_op(0x47, 1, 4)), 0, 2, 0x06,
     Copies::ddp, kReq},
    {"SendOnQueue4", "RDMAP-08 RDMAP-76", ULPDU(untagged_op(0x43, 4)), 1, 2, 0x01, Copies::ddp,
     kReq},
    /* A Read Request that is not 28 octets */
    {"ReadRequestTooLong", "RDMAP-11", ULPDU(untagged_op(0x41, 1, 29)), 1, 2, 0x05, Copies::ddp,
     kReq},
    {"ReadRequestTooShort", "RDMAP-11", ULPDU(untagged_op(0x41, 1, 27)), 0, 2, 0xff, Copies::ddp,
     kReq},
    {"ReadRequestEmpty", "RDMAP-11", ULPDU(untagged_op(0x41, 1, 0)), 0, 2, 0xff, Copies::ddp, kReq},
    /* Reads of what may not be read */
    {"ReadUnknownStag", "RDMAP-36 RDMAP-74 RDMAP-80",
     ULPDU(read_from(m.good.rkey() ^ 0x5a5a5a00, m.good.addr(), 1)), 0, 1, 0x00, Copies::rdma,
     kAcc},
    {"ReadWrongKey", "RDMAP-36 RDMAP-74 RDMAP-80",
     ULPDU(read_from(m.good.rkey() ^ 1, m.good.addr(), 1)), 0, 1, 0x00, Copies::rdma, kAcc},
    {"ReadDeadStag", "RDMAP-36 RDMAP-74 RDMAP-80 RDMAP-86",
     ULPDU(read_from(m.dead_stag, m.good.addr(), 1)), 0, 1, 0x00, Copies::rdma, kAcc},
    {"ReadOtherPd", "RDMAP-36 RDMAP-74 RDMAP-81 RDMAP-85",
     ULPDU(read_from(m.foreign.rkey(), m.foreign.addr(), 1)), 0, 1, 0x03, Copies::rdma, kAcc},
    {"ReadBelow", "RDMAP-36 RDMAP-74 RDMAP-82 RDMAP-85",
     ULPDU(read_from(m.good.rkey(), m.good.addr() - 1, 2)), 0, 1, 0x01, Copies::rdma, kAcc},
    {"ReadBeyond", "RDMAP-36 RDMAP-74 RDMAP-82 RDMAP-85",
     ULPDU(read_from(m.good.rkey(), m.good.addr(), 4097)), 0, 1, 0x01, Copies::rdma, kAcc},
    {"ReadLastAndOneMore", "RDMAP-36 RDMAP-74 RDMAP-82 RDMAP-85",
     ULPDU(read_from(m.good.rkey(), m.good.addr(4095), 2)), 0, 1, 0x01, Copies::rdma, kAcc},
    {"ReadBehind", "RDMAP-36 RDMAP-74 RDMAP-82 RDMAP-85",
     ULPDU(read_from(m.good.rkey(), m.good.addr(4096), 1)), 0, 1, 0x01, Copies::rdma, kAcc},
    {"ReadFourGigabytes", "RDMAP-15 RDMAP-74 RDMAP-82 RDMAP-85",
     ULPDU(read_from(m.good.rkey(), m.good.addr(), 0xffffffff)), 0, 1, 0x01, Copies::rdma, kAcc},
    {"ReadWraps", "RDMAP-36 RDMAP-74 RDMAP-83 RDMAP-85", ULPDU(read_from(m.good.rkey(), kTop, 2)),
     0, 1, 0x04, Copies::rdma, kAcc},
    {"ReadWrapsIntoRegion", "RDMAP-74 RDMAP-83 RDMAP-85",
     ULPDU(read_from(m.good.rkey(), kTop - 0xfffffff0, 0xffffffff)), 0, 1, 0x04, Copies::rdma,
     kAcc},
    {"ReadWithoutRight", "RDMAP-36 RDMAP-74 RDMAP-84 RDMAP-85",
     ULPDU(read_from(m.writable.rkey(), m.writable.addr(), 1)), 0, 1, 0x02, Copies::rdma, kAcc},
    {"ReadLocalMemory", "RDMAP-74 RDMAP-84 RDMAP-85",
     ULPDU(read_from(m.local.rkey(), m.local.addr(), 1)), 0, 1, 0x02, Copies::rdma, kAcc},
    /* Writes to what may not be written */
    {"WriteUnknownStag", "RDMAP-27", ULPDU(write_to(m.good.rkey() ^ 0x5a5a5a00, m.good.addr(), 1)),
     1, 1, 0x00, Copies::ddp, kAcc},
    {"WriteDeadStag", "RDMAP-27 RDMAP-86", ULPDU(write_to(m.dead_stag, m.good.addr(), 1)), 1, 1,
     0x00, Copies::ddp, kAcc},
    {"WriteBelow", "RDMAP-27 RDMAP-85", ULPDU(write_to(m.good.rkey(), m.good.addr() - 1, 8)), 1, 1,
     0x01, Copies::ddp, kAcc},
    {"WriteBeyond", "RDMAP-27 RDMAP-85", ULPDU(write_to(m.good.rkey(), m.good.addr(4000), 97)), 1,
     1, 0x01, Copies::ddp, kAcc},
    {"WriteOtherPd", "RDMAP-27 RDMAP-85", ULPDU(write_to(m.foreign.rkey(), m.foreign.addr(), 8)), 1,
     1, 0x02, Copies::ddp, kAcc},
    {"WriteWraps", "RDMAP-27 RDMAP-85", ULPDU(write_to(m.good.rkey(), kTop - 3, 8)), 1, 1, 0x03,
     Copies::ddp, kAcc},
    {"WriteWithoutRight", "RDMAP-27 RDMAP-85",
     ULPDU(write_to(m.readable.rkey(), m.readable.addr(), 8)), 1, 1, 0x00, Copies::ddp, kAcc},
    {"WriteLocalMemory", "RDMAP-27 RDMAP-85", ULPDU(write_to(m.local.rkey(), m.local.addr(), 8)), 1,
     1, 0x00, Copies::ddp, kAcc},
    /* STags that can't be invalidated */
    {"InvalidateUnknownStag", "RDMAP-47 RDMAP-79", ULPDU(send_inv(m.good.rkey() ^ 0x5a5a5a00)), 0,
     2, 0x09, Copies::ddp, kReq},
    {"InvalidateWrongKey", "RDMAP-47 RDMAP-79 RDMAP-86", ULPDU(send_inv(m.good.rkey() ^ 1)), 0, 2,
     0x09, Copies::ddp, kReq},
    {"InvalidateDeadStag", "RDMAP-47 RDMAP-79", ULPDU(send_inv(m.dead_stag)), 0, 2, 0x09,
     Copies::ddp, kReq},
    {"InvalidateOtherPd", "RDMAP-47 RDMAP-79 RDMAP-85", ULPDU(send_inv(m.foreign.rkey())), 0, 1,
     0x09, Copies::ddp, kAcc},
    {"InvalidateOtherPdSe", "RDMAP-47 RDMAP-79 RDMAP-85",
     ULPDU(send_inv(m.foreign.rkey(), kOpSendSolicitedInvalidate)), 0, 1, 0x09, Copies::ddp, kAcc},
    {"InvalidateLocalMemory", "RDMAP-47 RDMAP-79 RDMAP-85", ULPDU(send_inv(m.local.rkey())), 0, 1,
     0x09, Copies::ddp, kAcc},
    /* Sends */
    {"SendTooLong", "RDMAP-44", ULPDU(untagged_op(0x43, 0, 65)), 1, 2, 0x05, Copies::ddp, kReq},
    {"SendOutOfOrder", "RDMAP-45", ULPDU((Untagged{.msn = 2}.bytes())), 1, 2, 0x03, Copies::ddp,
     kReq},
    /* A response that nobody asked for */
    {"UnsolicitedResponse", "RDMAP-42 RDMAP-77", ULPDU(tagged_op(0x42)), 0, 2, 0x06, Copies::ddp,
     kReq},
    /* DDP's own, before anything of RDMAP */
    {"DdpVersionTagged", "RDMAP-76", ULPDU((Tagged{.ddp = 0xc2, .stag = m.good.rkey()}.bytes())), 1,
     1, 0x04, Copies::ddp, kAcc},
    {"DdpVersionUntagged", "RDMAP-76", ULPDU((Untagged{.ddp = 0x40}.bytes())), 1, 2, 0x06,
     Copies::ddp, kReq},
};

class RdmapFault : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(Each, RdmapFault, testing::ValuesIn(kFaults),
                         [](const testing::TestParamInfo<Fault> &info) {
                             return std::string(info.param.name);
                         });

/*
 * The Terminate says what is wrong and with what; FIN follows; the application
 * gets event, flushed requests and the reason; no memory was touched.
 */
TEST_P(RdmapFault, Terminates) {
    const Fault &fault = GetParam();
    std::string ids = "RDMAP-16 RDMAP-17 RDMAP-19 RDMAP-20 RDMAP-21 RDMAP-22 RDMAP-23 RDMAP-48 "
                      "RDMAP-51 RDMAP-52 RDMAP-67 RDMAP-68 RDMAP-69 RDMAP-71 RDMAP-73 ";
    RecordProperty("requirements", ids + fault.requirements);
    Link link;
    Kinds memory(link);
    Region to(link.pd(), 64);
    link.recv(1, {to.all()});
    link.recv(2, {to.all()});
    link.read(3, {memory.local.sge(0, 8)}, 0x77, 0x88);
    link.read(4, {memory.local.sge(0, 8)}, 0x77, 0x88, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    ASSERT_EQ(hear_request(link).src_stag, 0x88U);
    Bytes bad = fault.ulpdu(memory);
    /* The read of ours makes a response one of those asked for. */
    if (bad[1] == 0x42) {
        link.say(Tagged{.rdmap = 0x42,
                        .stag = memory.local.lkey(),
                        .to = memory.local.addr(),
                        .payload = Bytes(8, 0x5a)});
        expect_success(link.scq(), 3, IBV_WC_RDMA_READ);
        link.say(response(hear_request(link), Bytes(8, 0x5a)));
        expect_success(link.scq(), 4, IBV_WC_RDMA_READ);
    }
    link.say(bad);
    Headers headers = fault.copies == Copies::rdma  ? Headers::rdma(bad)
                      : fault.copies == Copies::ddp ? Headers::ddp(bad)
                                                    : Headers::none();
    link.expect_terminate(fault.layer, fault.etype, fault.code, headers);
    link.expect_async(fault.event);
    uint32_t reason = found(fault.layer, fault.etype, fault.code);
    ibv_wc first = next_wc(link.rcq());
    EXPECT_EQ(first.wr_id, 1U);
    /* A Send that failed in its buffer fails that request, else it is flushed. */
    EXPECT_EQ(first.status, bad[1] == 0x43 && bad.size() == 18 + 65 ? IBV_WC_LOC_LEN_ERR
                            : fault.code == 0x09                    ? IBV_WC_LOC_ACCESS_ERR
                                                                    : IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(first.vendor_err, reason) << wc_text(first);
    expect_vendor(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR, reason);
    if (bad[1] != 0x42) {
        expect_vendor(link.scq(), 3, IBV_WC_WR_FLUSH_ERR, reason);
        expect_vendor(link.scq(), 4, IBV_WC_WR_FLUSH_ERR, reason);
    }
    /* And what is posted from now on. */
    link.send(5, {});
    expect_vendor(link.scq(), 5, IBV_WC_WR_FLUSH_ERR, reason);
    link.expect_disconnected();
    for (Region *region : memory.all())
        expect_value(region->at(0), 4096, 0x5a, "memory");
}

/* Opcodes 8 to 11 and queue 3, where the policy knows of RFC 5040 alone. */
TEST(Rdmap, OpcodesOfRfc7306) {
    REQ("RDMAP-10", "RDMAP-08", "RDMAP-76", "RDMAP-77");
    Policy policy(Role::responder, "extensions", "off");
    struct Row {
        Bytes ulpdu;
        unsigned layer, code;
    };
    const Row rows[] = {
        {untagged_op(0x48, 0, 8), 0, 0x06},  {untagged_op(0x49, 0, 8), 0, 0x06},
        {untagged_op(0x4a, 1, 52), 0, 0x06}, {untagged_op(0x4b, 0, 12), 0, 0x06},
        {untagged_op(0x4b, 3, 12), 1, 0x01}, {untagged_op(0x43, 3), 1, 0x01},
    };
    for (const Row &row : rows) {
        SCOPED_TRACE(hex(row.ulpdu));
        Link link;
        link.recv(1, {});
        link.say(row.ulpdu);
        link.expect_terminate(row.layer, 2, row.code, Headers::ddp(row.ulpdu));
        link.expect_disconnected();
    }
}

/*
 * The RDMA Consortium's protocols, RFC 5044 appendix C: MPA revision 0 with markers and CRC both
 * ways, and version 00b of DDP and RDMAP in all segments of both ways; where the policy says so.
 */
constexpr uint8_t kBothFlags = kMpaCrc | kMpaMarkers;

Bytes as_consortium(Bytes ulpdu) {
    ulpdu[0] &= 0xfc;
    ulpdu[1] &= 0x3f;
    return ulpdu;
}

LinkOptions consortium() {
    return {.flags = kBothFlags, .revision = 0, .rtr = as_consortium(Tagged{}.bytes())};
}

/* A Terminate of this version, behind what else there is; and the end. */
Terminate expect_old_terminate(Link &link, unsigned layer, unsigned etype, unsigned code,
                               Where where = Where::current()) {
    Segment segment = link.hear();
    while (segment.opcode() != kOpTerminate)
        segment = link.hear();
    EXPECT_EQ(segment.ddp, 0x40) << where.line();
    EXPECT_EQ(segment.rdmap, 0x07) << where.line();
    Terminate term = Terminate::parse(segment.payload);
    EXPECT_EQ(term.layer, layer) << where.line();
    EXPECT_EQ(term.etype, etype) << where.line();
    EXPECT_EQ(term.code, code) << where.line();
    link.expect_fin(where);
    link.expect_disconnected(where);
    return term;
}

/* All kinds of messages that ours sends, and those that it takes. */
TEST(Rdmap, ConsortiumMessages) {
    REQ("RDMAP-03", "MPA-54", "DDP-02");
    Policy policy(Role::responder, "rdmac", "on");
    Link link(consortium());
    EXPECT_EQ(link.reply.revision, 0U);
    EXPECT_EQ(link.reply.flags, kBothFlags);
    constexpr size_t kLength = 4096;
    Region memory(link.pd(), 2 * kLength);
    fill(memory.at(0), kLength, 1);
    auto expect = [&](const Bytes &ulpdu) { link.expect_ulpdu(as_consortium(ulpdu)); };

    link.recv(1, {memory.sge(kLength, 8)});
    link.say(as_consortium(Untagged{.payload = {1, 2}}.bytes()));
    expect_success(link.rcq(), 1, IBV_WC_RECV, 2);
    link.say(as_consortium(
        Tagged{.stag = memory.rkey(), .to = memory.addr(kLength), .payload = {3}}.bytes()));
    ReadRequest theirs{
        .sink_stag = 1, .size = 8, .src_stag = memory.rkey(), .src_to = memory.addr()};
    link.say(as_consortium(theirs.bytes(1)));
    expect(Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 1, .payload = pattern(8, 1)}.bytes());
    EXPECT_EQ(*memory.at(kLength), 3);

    ASSERT_EQ(post_send(link.qp(), SendWr::send_inv(2, {memory.sge(0, 8)}, 0xa1b2c3d4)), 0);
    expect(Untagged{
        .rdmap = rdmap_of(kOpSendInvalidate), .invalidate = 0xa1b2c3d4, .payload = pattern(8, 1)}
               .bytes());
    link.write(3, {memory.sge(0, 8)}, 0x10, 0x20);
    expect(Tagged{.stag = 0x20, .to = 0x10, .payload = pattern(8, 1)}.bytes());
    ReadRequest ours{.sink_stag = memory.lkey(),
                     .sink_to = memory.addr(kLength),
                     .size = 9,
                     .src_stag = 0x20,
                     .src_to = 0x10};
    link.read(4, {memory.sge(kLength, 9)}, 0x10, 0x20);
    expect(ours.bytes(1));
    link.say(as_consortium(response(ours, pattern(9, 6)).bytes()));
    for (uint64_t id = 2; id <= 4; id++)
        expect_wc(link.scq(), id, IBV_WC_SUCCESS);
    expect_pattern(memory.at(kLength), 9, 6);
    /* Every segment of a message. */
    link.send(5, {memory.sge(0, kLength)});
    size_t heard = 0;
    while (heard < kLength) {
        Segment segment = link.hear();
        EXPECT_EQ(segment.ddp & 0x3f, 0);
        EXPECT_EQ(segment.rdmap, kOpSend);
        heard += segment.payload.size();
    }
    expect_success(link.scq(), 5, IBV_WC_SEND);

    link.say(as_consortium(Terminate{.layer = 0, .etype = 1, .code = 0}.bytes()));
    link.expect_async(IBV_EVENT_QP_FATAL);
    link.expect_disconnected();
}

/* What RFC 7306 adds came later: neither side of it is there, and the device says the same. */
TEST(Rdmap, ConsortiumHasNoExtensions) {
    REQ("MPA-54", "RDMAP-10");
    auto atomics = [](Link &link) {
        ibv_device_attr attr{};
        EXPECT_EQ(ibv_query_device(link.context(), &attr), 0);
        return attr.atomic_cap;
    };
    ibv_atomic_cap before = IBV_ATOMIC_NONE;
    {
        Link link;
        before = atomics(link);
    }
    Policy policy(Role::responder, "rdmac", "on");
    for (uint8_t opcode : {8, 9, 10, 11}) {
        SCOPED_TRACE(int{opcode});
        Link link(consortium());
        EXPECT_EQ(atomics(link), before);
        link.recv(1, {});
        Bytes wrong = as_consortium(Untagged{.rdmap = rdmap_of(opcode)}.bytes());
        link.say(wrong);
        expect_octets(expect_old_terminate(link, 0, 2, 0x06).ddp_header, wrong);
    }
    for (ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
        SCOPED_TRACE(int{opcode});
        Link link(consortium());
        ibv_send_wr wr{}, *bad = nullptr;
        wr.wr_id = 1;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        ASSERT_EQ(ibv_post_send(link.qp(), &wr, &bad), 0);
        expect_vendor(link.scq(), 1, IBV_WC_LOC_QP_OP_ERR, found(0, 0, 0));
        expect_old_terminate(link, 0, 0, 0x00);
    }
}

/* A Read Request that comes back in a Terminate looks as it came. */
TEST(Rdmap, ConsortiumSourceGoesBeforeARead) {
    REQ("MPA-54", "RDMAP-23");
    Policy policy(Role::responder, "rdmac", "on");
    Link link(consortium());
    narrow_window(link);
    Region first(link.pd(), kHuge);
    Buffer memory(4096);
    Mr mr = register_memory(link.pd(), memory.data(), 4096, kRemoteRead);
    link.say(as_consortium(
        ReadRequest{.sink_stag = 1, .size = kHuge, .src_stag = first.rkey(), .src_to = first.addr()}
            .bytes(1)));
    Bytes second = as_consortium(
        ReadRequest{.sink_stag = 2, .size = 4000, .src_stag = mr->rkey, .src_to = memory.addr(9)}
            .bytes(2));
    link.say(second);
    link.hear();
    mr.reset();
    widen_window(link);
    Terminate term = expect_old_terminate(link, 0, 1, 0x00);
    expect_octets(term.ddp_header, Bytes(second.begin(), second.begin() + kUntaggedHeader));
}

/* One version both ways: the other one is wrong on either kind of stream, whatever the policy. */
TEST(Rdmap, NoMixOfVersions) {
    REQ("RDMAP-03", "RDMAP-78", "MPA-54", "DDP-02");
    Policy policy(Role::responder, "rdmac", "on");
    for (bool old : {true, false})
        for (uint8_t bad : {0, 1, 2, 3}) {
            SCOPED_TRACE(fmt::format("revision {}, segment {}", old ? 0 : 1, bad));
            Link link(old ? consortium() : LinkOptions{});
            link.recv(1, {});
            Bytes wrong = Untagged{}.bytes();
            if (old)
                wrong = as_consortium(wrong);
            unsigned layer = bad < 2 ? 1 : 0;
            /* The other stream's number, and one that is nobody's. */
            if (layer == 1)
                wrong[0] ^= bad == 0 ? 0x01 : 0x02;
            else
                wrong[1] ^= bad == 2 ? 0x40 : 0x80;
            link.say(wrong);
            unsigned code = layer == 1 ? 0x06 : 0x05;
            if (old)
                expect_octets(expect_old_terminate(link, layer, 2, code).ddp_header, wrong);
            else {
                link.expect_terminate(layer, 2, code, Headers::ddp(wrong));
                link.expect_disconnected();
            }
        }
}

/* Revision 0 without its markers or its CRC is no frame. */
TEST(Rdmap, ConsortiumWithoutMarkersOrCrc) {
    REQ("MPA-54", "MPA-29");
    Policy policy(Role::responder, "rdmac", "on");
    for (uint8_t flags : {uint8_t{0}, kMpaCrc, kMpaMarkers}) {
        SCOPED_TRACE(flags);
        Passive passive;
        passive.peer.say(MpaFrame::request(flags, 0).bytes());
        EXPECT_TRUE(passive.peer.closed_by_peer());
        EXPECT_TRUE(passive.no_request(milliseconds(20)));
    }
}

/* The answer of ours that rejects is of revision 0, too; one that rejects ours needs no flags. */
TEST(Rdmap, ConsortiumRejects) {
    REQ("MPA-54", "MPA-29");
    {
        Policy policy(Role::responder, "rdmac", "on");
        Passive passive;
        passive.peer.say(MpaFrame::request(kBothFlags, 0).bytes());
        passive.reject(passive.expect_request());
        MpaFrame reply = passive.peer.hear_frame();
        EXPECT_EQ(reply.revision, 0U);
        EXPECT_EQ(reply.flags, kBothFlags | kMpaReject);
    }
    Policy revision(Role::initiator, "revision", "1");
    Policy policy(Role::initiator, "rdmac", "on");
    Active active;
    active.peer.say(MpaFrame::reply(kMpaReject, 0).bytes());
    active.expect(RDMA_CM_EVENT_REJECTED);
}

/* Our initiator says revision 1, and follows a Reply of revision 0. */
TEST(Rdmap, ConsortiumResponder) {
    REQ("RDMAP-03", "MPA-54");
    Policy revision(Role::initiator, "revision", "1");
    for (bool on : {true, false}) {
        SCOPED_TRACE(on);
        Policy policy(Role::initiator, "rdmac", on ? "on" : "off");
        Active active;
        EXPECT_EQ(active.request.revision, 1U);
        active.peer.say(MpaFrame::reply(kBothFlags, 0).bytes());
        if (!on) {
            active.expect(RDMA_CM_EVENT_CONNECT_ERROR);
            continue;
        }
        active.expect(RDMA_CM_EVENT_ESTABLISHED);
        active.peer.use_markers(true, true);
        Region memory(active.ours().pd(), 64);
        fill(memory.at(0), 8, 1);
        active.ours().send(1, {memory.sge(0, 8)});
        expect_octets(active.peer.hear_fpdu().ulpdu,
                      as_consortium(Untagged{.payload = pattern(8, 1)}.bytes()));
        active.ours().recv(2, {memory.sge(32, 8)});
        active.peer.say_ulpdu(as_consortium(Untagged{.payload = {1, 2}}.bytes()));
        expect_success(active.ours().rcq(), 2, IBV_WC_RECV, 2);
    }
}

/* More than one thing is wrong: which is said, by the order of section 7.2. */
struct Order {
    const char *name;
    Bytes (*ulpdu)(const Kinds &);
    unsigned layer, etype, code;
    bool receive = true; // one is posted
};

void PrintTo(const Order &order, std::ostream *to) {
    *to << order.name;
}

const Order kOrders[] = {
    {"DdpVersionBeforeQueue", ULPDU((Untagged{.ddp = 0x40, .qn = 9}.bytes())), 1, 2, 0x06},
    {"DdpVersionBeforeOpcode", ULPDU((Tagged{.ddp = 0xc0, .rdmap = 0x4f}.bytes())), 1, 1, 0x04},
    {"QueueBeforeOpcode", ULPDU((Untagged{.rdmap = 0x4f, .qn = 4}.bytes())), 1, 2, 0x01},
    {"QueueBeforeMsn", ULPDU((Untagged{.qn = 4, .msn = 7}.bytes())), 1, 2, 0x01},
    {"MsnBeforeOpcode", ULPDU((Untagged{.rdmap = 0x4f, .msn = 7}.bytes())), 1, 2, 0x03},
    {"MsnBeforeVersion", ULPDU((Untagged{.rdmap = 0x83, .msn = 7}.bytes())), 1, 2, 0x03},
    {"MsnBeforeMo", ULPDU((Untagged{.msn = 7, .mo = 4}.bytes())), 1, 2, 0x03},
    {"MoBeforeVersion", ULPDU((Untagged{.rdmap = 0x83, .mo = 4}.bytes())), 1, 2, 0x04},
    {"NoBufferBeforeVersion", ULPDU((Untagged{.rdmap = 0x83}.bytes())), 1, 2, 0x02, false},
    {"NoBufferBeforeOpcode", ULPDU((Untagged{.rdmap = 0x4f}.bytes())), 1, 2, 0x02, false},
    {"MsnOfQueue1BeforeOpcode", ULPDU((Untagged{.rdmap = 0x43, .qn = 1, .msn = 2}.bytes())), 1, 2,
     0x03},
    {"OpcodeBeforeVersion", ULPDU(untagged_op(0x8f)), 0, 2, 0x06},
    {"OpcodeBeforeVersionTagged", ULPDU(tagged_op(0x8f)), 0, 2, 0x06},
    {"TagBeforeVersion", ULPDU(tagged_op(0x83)), 0, 2, 0x06},
    {"VersionBeforeStag", ULPDU((Tagged{.rdmap = 0x80, .stag = 5, .payload = {1}}.bytes())), 0, 2,
     0x05},
    {"VersionBeforeSource", ULPDU([] {
         Bytes ulpdu = read_from(5, 5, 5);
         ulpdu[1] = 0x81;
         return ulpdu;
     }()),
     0, 2, 0x05},
    {"LengthBeforeInvalidate",
     ULPDU((Untagged{.rdmap = rdmap_of(kOpSendInvalidate), .invalidate = 5, .payload = Bytes(65)}
                .bytes())),
     1, 2, 0x05},
    {"StagBeforeWrap", ULPDU(read_from(m.dead_stag, kTop, 2)), 0, 1, 0x00},
    {"StreamBeforeBounds", ULPDU(read_from(m.foreign.rkey(), m.foreign.addr() - 1, 2)), 0, 1, 0x03},
    {"StreamBeforeWrap", ULPDU(read_from(m.foreign.rkey(), kTop, 2)), 0, 1, 0x03},
    {"StreamBeforeBoundsOfAWrite", ULPDU(write_to(m.foreign.rkey(), m.foreign.addr() - 1, 2)), 1, 1,
     0x02},
};

class RdmapOrder : public testing::TestWithParam<Order> {};

INSTANTIATE_TEST_SUITE_P(Each, RdmapOrder, testing::ValuesIn(kOrders),
                         [](const testing::TestParamInfo<Order> &info) {
                             return std::string(info.param.name);
                         });

TEST_P(RdmapOrder, FirstFaultCounts) {
    REQ("RDMAP-76", "RDMAP-77", "RDMAP-78", "RDMAP-79", "RDMAP-80", "RDMAP-81", "RDMAP-82",
        "RDMAP-83");
    const Order &order = GetParam();
    Link link;
    Kinds memory(link);
    Region to(link.pd(), 64);
    if (order.receive)
        link.recv(1, {to.all()});
    link.say(order.ulpdu(memory));
    link.expect_terminate(order.layer, order.etype, order.code);
    link.expect_disconnected();
}

/* Two bad messages in a row: the first is what the Terminate is about. */
TEST(Rdmap, FirstBadMessageCounts) {
    REQ("RDMAP-75");
    {
        Link link;
        Kinds memory(link);
        Bytes write = write_to(memory.dead_stag, 0x1234, 5);
        say_at_once(link, {write, read_from(memory.foreign.rkey(), memory.foreign.addr(), 8),
                           untagged_op(0x4f)});
        link.expect_terminate(1, 1, 0x00, Headers::ddp(write));
        link.expect_disconnected();
    }
    Link link;
    Kinds memory(link);
    Bytes read = read_from(memory.foreign.rkey(), memory.foreign.addr(), 8);
    say_at_once(link, {read, write_to(memory.dead_stag, 0x1234, 5)});
    link.expect_terminate(0, 1, 0x03, Headers::rdma(read));
    link.expect_disconnected();
}

/* A bad read ends the stream at once; good ones before it need not be answered. */
TEST(Rdmap, BadReadBehindGoodOnes) {
    REQ("RDMAP-62", "RDMAP-74", "RDMAP-75");
    Link link;
    Kinds memory(link);
    fill(memory.good.at(0), 4096, 1);
    ReadRequest good{.sink_stag = 1,
                     .sink_to = 0,
                     .size = 4096,
                     .src_stag = memory.good.rkey(),
                     .src_to = memory.good.addr()};
    ReadRequest bad = good;
    bad.size = 4097;
    say_at_once(link, {good.bytes(1), good.bytes(2), bad.bytes(3), good.bytes(4)});
    /* What is answered is answered in order and whole. */
    for (;;) {
        Segment segment = link.hear();
        if (segment.opcode() == kOpTerminate) {
            Terminate term = Terminate::parse(segment.payload);
            EXPECT_EQ(term.layer << 4 | term.etype, 0x01);
            EXPECT_EQ(term.code, 0x01);
            expect_octets(term.ddp_header, View(bad.bytes(3)).first(kUntaggedHeader), "DDP header");
            expect_octets(term.rdma_header, bad.header(), "RDMA header");
            break;
        }
        EXPECT_EQ(segment.opcode(), kOpReadResponse) << segment.text();
        EXPECT_EQ(mismatch(segment.payload.data(), segment.payload.size(), 1, segment.to),
                  segment.payload.size());
    }
    link.expect_fin();
    link.expect_disconnected();
}

/* No receive is posted. */
TEST(Rdmap, SendWithoutReceive) {
    REQ("RDMAP-43", "RDMAP-48");
    Link link;
    Bytes bad = Untagged{.payload = {1}}.bytes();
    link.say(bad);
    link.expect_terminate(1, 2, 0x02, Headers::ddp(bad));
    link.expect_async(kReq);
    link.expect_disconnected();
}

/* A zero-length Send takes a receive like any other: the second one finds none. */
TEST(Rdmap, SendOfNothingTakesAReceive) {
    REQ("RDMAP-43");
    Link link;
    link.recv(1, {});
    link.say(Untagged{});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
    Bytes bad = Untagged{.msn = 2}.bytes();
    link.say(bad);
    link.expect_terminate(1, 2, 0x02, Headers::ddp(bad));
    link.expect_disconnected();
}

/* The error is MPA's: no headers. */
TEST(Rdmap, CrcError) {
    REQ("RDMAP-16", "RDMAP-19", "RDMAP-67");
    Link link;
    link.recv(1, {});
    link.peer().say_fpdu({.ulpdu = Untagged{}.bytes(), .crc = Crc::bad});
    link.expect_terminate(2, 0, 0x02, Headers::none());
    link.expect_async(IBV_EVENT_QP_FATAL);
    expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, found(2, 0, 0x02));
    link.expect_disconnected();
}

/* Behind the Terminate nothing comes, whatever is posted or said meanwhile. */
TEST(Rdmap, SilentBehindTerminate) {
    REQ("RDMAP-49", "RDMAP-52", "RDMAP-69", "RDMAP-70", "RDMAP-75");
    Link link;
    Region memory(link.pd(), 4096);
    uint16_t port = ntohs(rdma_get_src_port(link.ours().id()));
    Bytes bad = untagged_op(0x4e, 2);
    link.say(bad);
    link.say(untagged_op(0x4f, 2));
    for (uint64_t i = 0; i < 20; i++)
        link.send(i, {memory.all()});
    for (;;) {
        Segment segment = link.hear();
        if (segment.opcode() != kOpTerminate)
            continue;
        Terminate term = Terminate::parse(segment.payload);
        EXPECT_EQ(term.code, 0x06);
        expect_octets(term.ddp_header, View(bad).first(kUntaggedHeader), "the first error");
        break;
    }
    link.expect_fin();
    /* It goes on listening until the peer has closed, so no RST can overtake. */
    for (uint32_t i = 0; i < 50; i++) {
        link.say(Untagged{.msn = i + 1, .payload = Bytes(1000)});
        link.say(Terminate{.layer = 0, .etype = 2, .code = 6}.bytes());
    }
    link.expect_fin();
    link.expect_disconnected();
    /* Both have closed: the connection goes. */
    std::string sockets = fmt::format("ip netns exec {} ss -Htan 'sport = :{}' | "
                                      "grep -Evc 'LISTEN|TIME-WAIT'",
                                      config().peer_ns, port);
    EXPECT_TRUE(eventually([&] { return shell(sockets).output == "0\n"; }))
        << shell(sockets).output;
}

/* A long message of ours that is under way does not keep the Terminate. */
TEST(Rdmap, TerminateDoesNotWaitForALongMessage) {
    REQ("RDMAP-67", "RDMAP-52");
    for (bool response : {false, true}) {
        SCOPED_TRACE(response);
        Link link;
        narrow_window(link);
        Region memory(link.pd(), kHuge);
        if (response)
            link.say_read({.sink_stag = 1,
                           .size = kHuge,
                           .src_stag = memory.rkey(),
                           .src_to = memory.addr()});
        else
            link.send(1, {memory.all()});
        size_t heard = link.hear().payload.size();
        Bytes bad = write_to(memory.rkey() ^ 1, 0, 1);
        link.say(bad);
        for (;;) {
            Segment segment = link.hear();
            if (segment.opcode() == kOpTerminate)
                break;
            heard += segment.payload.size();
        }
        EXPECT_LT(heard, kHuge);
        link.expect_fin();
        if (!response)
            expect_vendor(link.scq(), 1, IBV_WC_WR_FLUSH_ERR, found(1, 1, 0x00));
        link.expect_async(kAcc);
        link.expect_disconnected();
    }
}

/* A short rest of a message is said before the Terminate: messages stay whole. */
TEST(Rdmap, TerminateBehindAShortRest) {
    REQ("RDMAP-73");
    Link link;
    Region memory(link.pd(), 65536);
    fill(memory.at(0), 65536, 3);
    ReadRequest good{
        .sink_stag = 1, .size = 65536, .src_stag = memory.rkey(), .src_to = memory.addr()};
    link.say(good.bytes(1));
    Segment first = link.hear();
    link.say(write_to(memory.rkey() ^ 1, 0, 1));
    size_t heard = first.payload.size();
    while (heard < 65536) {
        Segment segment = link.hear();
        ASSERT_EQ(segment.opcode(), kOpReadResponse);
        heard += segment.payload.size();
        EXPECT_EQ(segment.last(), heard == 65536);
    }
    link.expect_terminate(1, 1, 0x00);
    link.expect_disconnected();
}

/* The source of a read goes while it is answered: what is left comes back. */
TEST(Rdmap, SourceGoesDuringARead) {
    REQ("RDMAP-24", "RDMAP-23", "RDMAP-74", "RDMAP-85", "RDMAP-86");
    Link link;
    narrow_window(link);
    Buffer memory(kHuge);
    fill(memory.data(), kHuge, 7);
    Mr mr = register_memory(link.pd(), memory.data(), kHuge, kRemoteRead);
    ReadRequest request{.sink_stag = 0xaabbccdd,
                        .sink_to = 0x1000000000,
                        .size = kHuge - 5,
                        .src_stag = mr->rkey,
                        .src_to = memory.addr(5)};
    Bytes sent = request.bytes(1);
    link.say(sent);
    size_t heard = 0;
    auto take = [&](const Segment &segment) {
        EXPECT_EQ(segment.to, request.sink_to + heard);
        EXPECT_EQ(mismatch(segment.payload.data(), segment.payload.size(), 7, 5 + heard),
                  segment.payload.size());
        heard += segment.payload.size();
    };
    take(link.hear());
    mr.reset();
    Terminate term;
    for (;;) {
        Segment segment = link.hear();
        if (segment.opcode() == kOpTerminate) {
            term = Terminate::parse(segment.payload);
            break;
        }
        take(segment);
    }
    link.expect_fin();
    EXPECT_LT(heard, request.size);
    EXPECT_EQ(term.text(),
              (Terminate{.layer = 0, .etype = 1, .m = true, .d = true, .r = true}.text()));
    EXPECT_EQ(term.length, sent.size());
    expect_octets(term.ddp_header, View(sent).first(kUntaggedHeader), "DDP header");
    ReadRequest left = request;
    left.sink_to += heard;
    left.src_to += heard;
    left.size -= static_cast<uint32_t>(heard);
    EXPECT_EQ(ReadRequest::parse(term.rdma_header), left)
        << "after " << heard << " octets: " << hex(term.rdma_header);
    link.expect_async(kAcc);
    link.expect_disconnected();
}

/* It goes before the first octet: the request comes back as it was. */
TEST(Rdmap, SourceGoesBeforeARead) {
    REQ("RDMAP-24", "RDMAP-23", "RDMAP-33");
    Link link;
    narrow_window(link);
    Region first(link.pd(), kHuge);
    Buffer memory(4096);
    Mr mr = register_memory(link.pd(), memory.data(), 4096, kRemoteRead);
    link.say(
        ReadRequest{.sink_stag = 1, .size = kHuge, .src_stag = first.rkey(), .src_to = first.addr()}
            .bytes(1));
    Bytes second = ReadRequest{.sink_stag = 2,
                               .sink_to = 77,
                               .size = 4000,
                               .src_stag = mr->rkey,
                               .src_to = memory.addr(9)}
                       .bytes(2);
    link.say(second);
    link.hear();
    mr.reset();
    widen_window(link);
    link.skip_to_terminate(0, 1, 0x00, Headers::rdma(second));
    link.expect_disconnected();
}

/* Errors of our own ------------------------------------------------------------------------- */

/* A request that fails here: what was posted before it is said, it is not. */
TEST(Rdmap, LocalErrors) {
    REQ("RDMAP-19", "RDMAP-71", "RDMAP-72", "RDMAP-68", "RDMAP-22");
    for (int kind = 0; kind < 4; kind++) {
        SCOPED_TRACE(kind);
        Link link;
        Region memory(link.pd(), 4096);
        fill(memory.at(0), 4096, 1);
        ibv_sge bad{memory.addr(), 4097, memory.lkey()};
        link.recv(50, {});
        SendWr wrs[] = {SendWr::send(2, {bad}), SendWr::write(2, {bad}, 0x10, 0x20),
                        SendWr::read(2, {bad}, 0x10, 0x20),
                        SendWr::send(2, {{memory.addr(), 8, memory.lkey() ^ 1}})};
        std::vector<SendWr> list{SendWr::write(1, {memory.all()}, 0x1000, 0x77), wrs[kind],
                                 SendWr::send(3, {memory.sge(0, 4)}),
                                 SendWr::read(4, {memory.sge(0, 4)}, 0, 1)};
        ASSERT_EQ(post_send_list(link.qp(), list), 0);
        expect_octets(link.hear_message().payload, pattern(4096, 1), "the good one");
        link.expect_terminate(0, 0, 0x00, Headers::none());
        link.expect_async(IBV_EVENT_QP_FATAL);
        expect_success(link.scq(), 1, IBV_WC_RDMA_WRITE);
        expect_vendor(link.scq(), 2, IBV_WC_LOC_PROT_ERR, found(0, 0, 0));
        expect_vendor(link.scq(), 3, IBV_WC_WR_FLUSH_ERR, found(0, 0, 0));
        expect_vendor(link.scq(), 4, IBV_WC_WR_FLUSH_ERR, found(0, 0, 0));
        expect_vendor(link.rcq(), 50, IBV_WC_WR_FLUSH_ERR, found(0, 0, 0));
        link.expect_disconnected();
    }
}

/* Buffers of our own that turn out to be bad when the peer's data come; DDP places. */
TEST(Rdmap, LocalErrorsOfReceivingBuffers) {
    REQ("RDMAP-71", "RDMAP-72");
    {
        Link link;
        Region memory(link.pd(), 4096);
        link.recv(1, {{memory.addr(), 4096, memory.lkey() ^ 1}});
        link.recv(2, {});
        link.say(Untagged{.payload = {1}});
        link.expect_terminate(1, 0, 0x00, Headers::none());
        link.expect_async(IBV_EVENT_QP_FATAL);
        expect_vendor(link.rcq(), 1, IBV_WC_LOC_PROT_ERR, found(1, 0, 0));
        expect_vendor(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR, found(1, 0, 0));
        link.expect_disconnected();
    }
    Link link;
    Buffer memory(4096);
    Mr mr = register_memory(link.pd(), memory.data(), 4096, kLocal);
    link.read(1, {{memory.addr(), 8, mr->lkey}}, 0, 1);
    link.read(2, {{memory.addr(), 8, mr->lkey}}, 0, 1);
    ReadRequest request = hear_request(link);
    hear_request(link);
    mr.reset();
    link.say(response(request, Bytes(8, 0xee)));
    link.expect_terminate(1, 0, 0x00, Headers::none());
    link.expect_async(IBV_EVENT_QP_FATAL);
    expect_vendor(link.scq(), 1, IBV_WC_LOC_PROT_ERR, found(1, 0, 0));
    expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, found(1, 0, 0));
    expect_value(memory.data(), 4096, 0, "deregistered memory");
    link.expect_disconnected();
}

/* Terminates of the peer --------------------------------------------------------------------- */

/* Each reason there is, and some that there are not, without headers. */
TEST(Rdmap, TerminateReceived) {
    REQ("RDMAP-18", "RDMAP-49", "RDMAP-50", "RDMAP-68", "RDMAP-71");
    struct Reason {
        uint8_t layer, etype, code;
        ibv_wc_status status;
    };
    const Reason reasons[] = {
        {0, 0, 0x00, IBV_WC_REM_OP_ERR},      {0, 0, 0x5a, IBV_WC_REM_OP_ERR},
        {0, 1, 0x00, IBV_WC_REM_ACCESS_ERR},  {0, 1, 0x01, IBV_WC_REM_ACCESS_ERR},
        {0, 1, 0x02, IBV_WC_REM_ACCESS_ERR},  {0, 1, 0x03, IBV_WC_REM_ACCESS_ERR},
        {0, 1, 0x04, IBV_WC_REM_ACCESS_ERR},  {0, 1, 0xff, IBV_WC_REM_ACCESS_ERR},
        {0, 2, 0x05, IBV_WC_REM_OP_ERR},      {0, 2, 0x06, IBV_WC_REM_OP_ERR},
        {0, 2, 0x07, IBV_WC_REM_OP_ERR},      {0, 2, 0x08, IBV_WC_REM_OP_ERR},
        {0, 2, 0x09, IBV_WC_REM_OP_ERR},      {0, 2, 0xff, IBV_WC_REM_OP_ERR},
        {1, 0, 0x00, IBV_WC_REM_OP_ERR},      {1, 1, 0x01, IBV_WC_REM_ACCESS_ERR},
        {1, 2, 0x02, IBV_WC_REM_INV_REQ_ERR}, {2, 0, 0x02, IBV_WC_REM_OP_ERR},
        {2, 0, 0x06, IBV_WC_REM_OP_ERR},      {9, 7, 0x33, IBV_WC_REM_OP_ERR},
    };
    for (const Reason &reason : reasons) {
        SCOPED_TRACE(fmt::format("{}/{}/{:#04x}", reason.layer, reason.etype, reason.code));
        Link link;
        Region memory(link.pd(), 64);
        link.read(1, {memory.sge(0, 8)}, 0, 1);
        link.read(2, {memory.sge(8, 8)}, 0, 1);
        hear_request(link);
        hear_request(link);
        link.say(
            Terminate{.layer = reason.layer, .etype = reason.etype, .code = reason.code}.bytes());
        uint32_t vendor = told(reason.layer, reason.etype, reason.code);
        expect_vendor(link.scq(), 1, reason.status, vendor);
        expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, vendor);
        link.expect_async(IBV_EVENT_QP_FATAL);
        /* Nothing is said in reply. */
        link.expect_fin();
        link.expect_disconnected();
        link.recv(3, {});
        expect_vendor(link.rcq(), 3, IBV_WC_WR_FLUSH_ERR, vendor);
    }
}

Bytes terminate_of(uint8_t layer, uint8_t etype, uint8_t code, View culprit, bool rdma = false) {
    size_t header = (culprit[0] & kDdpTagged) != 0 ? kTaggedHeader : kUntaggedHeader;
    Terminate term{.layer = layer,
                   .etype = etype,
                   .code = code,
                   .m = true,
                   .d = true,
                   .r = rdma,
                   .length = static_cast<uint16_t>(culprit.size()),
                   .ddp_header =
                       Bytes(culprit.begin(), culprit.begin() + static_cast<long>(header)),
                   .rdma_header = {}};
    if (rdma)
        term.rdma_header = Bytes(culprit.begin() + static_cast<long>(header),
                                 culprit.begin() + static_cast<long>(header + kReadHeader));
    return term.bytes();
}

/* The headers say which request it was. */
TEST(Rdmap, TerminateBlamesARead) {
    REQ("RDMAP-50", "RDMAP-16");
    for (uint64_t culprit = 0; culprit < 4; culprit++) {
        SCOPED_TRACE(culprit);
        Link link;
        Region memory(link.pd(), 64);
        std::vector<Bytes> requests;
        for (uint64_t i = 0; i < 4; i++) {
            link.read(i, {memory.sge(8 * i, 8)}, 0x100 * i, 0x33);
            requests.push_back(link.peer().hear_fpdu().ulpdu);
        }
        link.say(terminate_of(0, 1, 0x02, requests[culprit], true));
        for (uint64_t i = 0; i < 4; i++)
            expect_vendor(link.scq(), i, i == culprit ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR,
                          told(0, 1, 0x02));
        link.expect_async(IBV_EVENT_QP_FATAL);
        link.expect_fin();
        link.expect_disconnected();
    }
}

/* A Send or Write that is still being said; and one that was complete long ago. */
TEST(Rdmap, TerminateBlamesWhatIsBeingSaid) {
    REQ("RDMAP-50", "RDMAP-53");
    for (bool write : {false, true}) {
        SCOPED_TRACE(write);
        Link link;
        narrow_window(link);
        Region memory(link.pd(), kHuge);
        link.send(1, {});
        expect_success(link.scq(), 1, IBV_WC_SEND);
        if (write)
            link.write(2, {memory.all()}, 0, 0x4242);
        else
            link.send(2, {memory.all()});
        link.send(3, {});
        link.hear();
        Bytes first = link.peer().hear_fpdu().ulpdu;
        link.say(terminate_of(1, write ? 1 : 2, write ? 0x01 : 0x05, first));
        expect_vendor(link.scq(), 2, write ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR,
                      told(1, write ? 1 : 2, write ? 0x01 : 0x05));
        expect_wc(link.scq(), 3, IBV_WC_WR_FLUSH_ERR);
        /* Ours stops: of the message only what TCP had comes. */
        EXPECT_LT(link.peer().hear_to_end().size(), kHuge);
        link.expect_disconnected();
    }
    Link link;
    link.send(1, {});
    Bytes past = link.peer().hear_fpdu().ulpdu;
    expect_success(link.scq(), 1, IBV_WC_SEND);
    Region memory(link.pd(), 64);
    link.read(2, {memory.sge(0, 8)}, 0, 1);
    hear_request(link);
    link.say(terminate_of(1, 2, 0x02, past));
    /* The read is not what the peer complains about. */
    expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, told(1, 2, 0x02));
    link.expect_fin();
    link.expect_disconnected();
}

/* In the middle of a Send of the peer's, and with nothing posted. */
TEST(Rdmap, TerminateAnywhere) {
    REQ("RDMAP-49");
    {
        Link link;
        link.say(Terminate{.layer = 0, .etype = 2, .code = 0xff}.bytes());
        link.expect_async(IBV_EVENT_QP_FATAL);
        link.expect_fin();
        link.expect_disconnected();
    }
    Link link;
    Region memory(link.pd(), 64);
    link.recv(1, {memory.all()});
    link.say(Untagged{.ddp = kDdpVersion, .payload = Bytes(10)});
    link.say(Terminate{.layer = 0, .etype = 2, .code = 0xff}.bytes());
    expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, told(0, 2, 0xff));
    link.expect_async(IBV_EVENT_QP_FATAL);
    link.expect_fin();
    link.expect_disconnected();
}

/* A Terminate that is none is an error like any other. */
TEST(Rdmap, BadTerminates) {
    REQ("RDMAP-48", "RDMAP-50", "RDMAP-71", "RDMAP-76");
    struct Case {
        Untagged segment;
        uint8_t layer, code; // etype is 2
    };
    const Bytes body{0x02, 0xff, 0, 0};
    const uint8_t op = rdmap_of(kOpTerminate);
    const Case cases[] = {
        {{.rdmap = op, .qn = 2, .msn = 2, .payload = body}, 1, 0x03},
        {{.rdmap = op, .qn = 2, .msn = 0, .payload = body}, 1, 0x03},
        {{.rdmap = op, .qn = 2, .mo = 4, .payload = body}, 1, 0x04},
        {{.ddp = kDdpVersion, .rdmap = op, .qn = 2, .payload = body}, 0, 0xff},
        {{.rdmap = op, .qn = 2, .payload = {2, 0xff, 0}}, 0, 0xff},
        {{.rdmap = op, .qn = 2}, 0, 0xff},
    };
    for (const Case &one : cases) {
        SCOPED_TRACE(hex(one.segment.bytes()));
        Link link;
        link.recv(1, {});
        link.say(one.segment);
        expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, found(one.layer, 2, one.code));
        link.expect_async(kReq);
        link.expect_terminate(one.layer, 2, one.code, Headers::ddp(one.segment.bytes()));
        link.expect_disconnected();
    }
}

/* Header bits and headers that do not fit together, cut anywhere. */
TEST(Rdmap, TerminateOfAnyShape) {
    REQ("RDMAP-16", "RDMAP-20", "RDMAP-49");
    Bytes body = Terminate{.layer = 0,
                           .etype = 2,
                           .code = 0x06,
                           .m = true,
                           .d = true,
                           .r = true,
                           .reserved = 0x0aaa,
                           .length = 46,
                           .ddp_header = Bytes(18, 0x41),
                           .rdma_header = Bytes(28, 0xff)}
                     .payload();
    std::vector<Bytes> bodies;
    for (size_t length : {4, 5, 6, 7, 20, 24, 51, 52})
        bodies.emplace_back(body.begin(), body.begin() + static_cast<long>(length));
    for (int bits = 0; bits < 8; bits++) {
        bodies.push_back(body);
        bodies.back()[2] = static_cast<uint8_t>(bits << 5);
    }
    bodies.push_back(body);
    bodies.back().resize(1000, 0x77); // more behind it
    for (const Bytes &one : bodies) {
        SCOPED_TRACE(hex(one));
        Link link;
        link.recv(1, {});
        link.say(Untagged{.rdmap = rdmap_of(kOpTerminate), .qn = 2, .payload = one});
        expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, told(0, 2, 0x06));
        link.expect_fin();
        link.expect_disconnected();
    }
}

/* The end of the stream without a Terminate -------------------------------------------------- */

/* FIN between messages: what is posted is said, then ours closes, too. */
TEST(Rdmap, GracefulEnd) {
    REQ("RDMAP-70");
    Link link;
    Region memory(link.pd(), 4096);
    link.recv(1, {});
    link.peer().shut_down();
    link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
    rdma_disconnect(link.ours().id());
    link.expect_fin();
    expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, 0);
    link.expect_state(IBV_QPS_ERR);
    EXPECT_FALSE(wait_async(
        link.context(), [&](const AsyncEvent &e) { return e.element == link.qp(); },
        Deadline(kSilence)));
}

/* FIN with a read unanswered, or in a message: that is an error, and MPA's. */
TEST(Rdmap, EndInTheMiddle) {
    REQ("RDMAP-68", "RDMAP-70", "RDMAP-71");
    for (int kind = 0; kind < 3; kind++) {
        SCOPED_TRACE(kind);
        Link link;
        Region memory(link.pd(), 64);
        link.recv(1, {memory.all()});
        if (kind == 0) {
            link.read(2, {memory.sge(0, 8)}, 0, 1);
            hear_request(link);
        } else if (kind == 1) {
            link.say(Untagged{.ddp = kDdpVersion, .payload = Bytes(4)});
        } else {
            Bytes unit = link.peer().writer().encode(Untagged{}.bytes());
            link.peer().say(View(unit).first(unit.size() - 1));
        }
        link.peer().shut_down();
        link.expect_async(IBV_EVENT_QP_FATAL);
        expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, found(2, 0, 0x01));
        if (kind == 0)
            expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, found(2, 0, 0x01));
        link.expect_end();
        link.expect_disconnected();
    }
}

TEST(Rdmap, Reset) {
    REQ("RDMAP-68", "RDMAP-70", "RDMAP-71");
    Link link;
    Region memory(link.pd(), 64);
    link.recv(1, {});
    link.read(2, {memory.sge(0, 8)}, 0, 1);
    hear_request(link);
    link.peer().reset();
    link.expect_async(IBV_EVENT_QP_FATAL);
    expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, found(2, 0, 0x01));
    expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, found(2, 0, 0x01));
    link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
    link.expect_state(IBV_QPS_ERR);
}

/* Invalidation and protection ------------------------------------------------------------------ */

/* The STag is gone for everybody when the Send is delivered. */
TEST(Rdmap, SendWithInvalidate) {
    REQ("RDMAP-47", "RDMAP-79", "RDMAP-86", "RDMAP-85");
    for (uint8_t opcode : {kOpSendInvalidate, kOpSendSolicitedInvalidate})
        for (int access = 0; access < 4; access++) {
            SCOPED_TRACE(fmt::format("opcode {}, then {}", opcode, access));
            Link link;
            Region memory(link.pd(), 4096), bystander(link.pd(), 4096);
            for (uint64_t i = 1; i <= 3; i++)
                link.recv(i, {bystander.sge(0, 64)});
            /* Used before it, in the same burst. */
            Bytes send = Untagged{.rdmap = rdmap_of(opcode),
                                  .invalidate = memory.rkey(),
                                  .payload = pattern(10, 1)}
                             .bytes();
            say_at_once(link, {write_to(memory.rkey(), memory.addr(), 8), send});
            ibv_wc wc = expect_success(link.rcq(), 1, IBV_WC_RECV, 10);
            EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_INV, unsigned{IBV_WC_WITH_INV});
            EXPECT_EQ(wc.invalidated_rkey, memory.rkey());
            expect_pattern(bystander.at(0), 10, 1);
            expect_value(memory.at(0), 8, 0xee, "written before");
            /* Others are as they were; nothing of nothing needs no STag. */
            link.say(write_to(bystander.rkey(), bystander.addr(100), 8));
            link.say(write_to(memory.rkey(), memory.addr(), 0));
            Bytes bad;
            switch (access) {
            case 0:
                bad = write_to(memory.rkey(), memory.addr(100), 8);
                link.say(bad);
                link.expect_terminate(1, 1, 0x00, Headers::ddp(bad));
                break;
            case 1:
                bad = read_from(memory.rkey(), memory.addr(100), 8);
                link.say(bad);
                link.expect_terminate(0, 1, 0x00, Headers::rdma(bad));
                break;
            case 2: /* a second time */
                bad = Untagged{.rdmap = rdmap_of(opcode), .invalidate = memory.rkey(), .msn = 2}
                          .bytes();
                link.say(bad);
                link.expect_terminate(0, 2, 0x09, Headers::ddp(bad));
                break;
            default: /* its owner */
                link.send(5, {memory.sge(0, 8)});
                link.expect_terminate(0, 0, 0x00, Headers::none());
                expect_wc(link.scq(), 5, IBV_WC_LOC_PROT_ERR);
            }
            expect_value(memory.at(100), 8, 0, "written behind it");
            expect_value(bystander.at(100), 8, 0xee, "of the other region");
            link.expect_disconnected();
        }
}

/*
 * RFC 5040 s. 8.1.1: what other streams may use is not one peer's to invalidate.  A region is all
 * QPs' of its protection domain; when only one is left it is that one's.
 */
TEST(Rdmap, InvalidateWhatIsShared) {
    REQ("RDMAP-47", "RDMAP-79", "SEC-20");
    Link other;
    Region memory(other.pd(), 4096), bystander(other.pd(), 4096);
    {
        LinkOptions options;
        options.qp.pd = other.pd();
        Link link(options);
        Bytes send;
        link.recv(1, {bystander.sge(0, 64)});
        send = Untagged{.rdmap = rdmap_of(kOpSendInvalidate), .invalidate = memory.rkey()}.bytes();
        link.say(send);
        link.expect_terminate(0, 1, 0x09, Headers::ddp(send));
        expect_wc(link.rcq(), 1, IBV_WC_LOC_ACCESS_ERR);
        link.expect_disconnected();
        /* Also while that one's stream is at its end: its QP can still name the region. */
        other.say(write_to(memory.rkey(), memory.addr(), 8));
        other.recv(1, {});
        other.say(Untagged{});
        expect_success(other.rcq(), 1, IBV_WC_RECV, 0);
        expect_value(memory.at(0), 8, 0xee, "written by the other");
    }
    other.recv(2, {});
    other.say(
        Untagged{.rdmap = rdmap_of(kOpSendInvalidate), .invalidate = memory.rkey(), .msn = 2});
    ibv_wc wc = expect_success(other.rcq(), 2, IBV_WC_RECV, 0);
    EXPECT_EQ(wc.invalidated_rkey, memory.rkey());
    Bytes bad = write_to(memory.rkey(), memory.addr(), 8);
    other.say(bad);
    other.expect_terminate(1, 1, 0x00, Headers::ddp(bad));
    other.expect_disconnected();
}

/* A QP that was made and never connected counts: it may be next. */
TEST(Rdmap, InvalidateWhatASecondQpMayUse) {
    REQ("RDMAP-47", "RDMAP-79", "SEC-20");
    Link link;
    Region memory(link.pd(), 4096);
    ibv_qp_init_attr attr{};
    attr.send_cq = link.scq();
    attr.recv_cq = link.rcq();
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp *second = ibv_create_qp(link.pd(), &attr);
    ASSERT_NE(second, nullptr);
    link.recv(1, {});
    Bytes send =
        Untagged{.rdmap = rdmap_of(kOpSendInvalidate), .invalidate = memory.rkey()}.bytes();
    link.say(send);
    link.expect_terminate(0, 1, 0x09, Headers::ddp(send));
    link.expect_disconnected();
    EXPECT_EQ(ibv_destroy_qp(second), 0);
}

/* Only the last segment delivers: until then the STag is good, also elsewhere. */
TEST(Rdmap, InvalidatedWhenDelivered) {
    REQ("RDMAP-47", "RDMAP-86", "SEC-10");
    Link link;
    Region memory(link.pd(), 4096);
    link.recv(1, {memory.sge(0, 64)});
    link.say(Untagged{.ddp = kDdpVersion,
                      .rdmap = rdmap_of(kOpSendInvalidate),
                      .invalidate = memory.rkey(),
                      .payload = Bytes(10, 1)});
    /* placed, not delivered */
    EXPECT_TRUE(eventually([&] { return *memory.at(9) == 1; }));
    link.send(2, {memory.sge(0, 8)});
    EXPECT_EQ(link.hear().payload.size(), 8U);
    expect_success(link.scq(), 2, IBV_WC_SEND);
    link.recv(3, {});
    /* The buffer of the Send itself is in what it invalidates. */
    link.say(Untagged{.rdmap = rdmap_of(kOpSendInvalidate),
                      .invalidate = memory.rkey(),
                      .mo = 10,
                      .payload = Bytes(10, 2)});
    ibv_wc wc = expect_success(link.rcq(), 1, IBV_WC_RECV, 20);
    EXPECT_EQ(wc.invalidated_rkey, memory.rkey());
    EXPECT_EQ(*memory.at(19), 2);
    link.say(write_to(memory.rkey(), memory.addr(), 1));
    link.expect_terminate(1, 1, 0x00);
    link.expect_disconnected();
}

/* Streams of one PD share its STags; those of another do not. */
TEST(Rdmap, StagsBelongToAPd) {
    REQ("RDMAP-85", "RDMAP-81");
    Link link, other;
    Region memory(link.pd(), 4096);
    fill(memory.at(0), 4096, 1);
    Bytes bad = read_from(memory.rkey(), memory.addr(), 8);
    other.say(bad);
    other.expect_terminate(0, 1, 0x03, Headers::rdma(bad));
    other.expect_disconnected();
    link.say_read({.sink_stag = 5, .size = 8, .src_stag = memory.rkey(), .src_to = memory.addr()});
    link.expect_ulpdu(
        Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 5, .payload = pattern(8, 1)});
    link.expect_works();
}

/* Not to be guessed: no two alike, no bit that hardly changes, no counter. */
TEST(Rdmap, StagsAreRandom) {
    REQ("RDMAP-87");
    constexpr int kCount = 512;
    Link link;
    Buffer memory(4096);
    std::vector<uint32_t> stags;
    for (int i = 0; i < kCount; i++)
        stags.push_back(register_memory(link.pd(), memory.data(), 4096)->rkey);
    EXPECT_EQ(std::set<uint32_t>(stags.begin(), stags.end()).size(), stags.size());
    for (int bit = 0; bit < 32; bit++) {
        int set = static_cast<int>(std::count_if(
            stags.begin(), stags.end(), [&](uint32_t stag) { return (stag >> bit & 1) != 0; }));
        /* 256 of 512 give or take 11; ten times that is no accident */
        EXPECT_NEAR(set, kCount / 2, 113) << "bit " << bit;
    }
    std::map<uint32_t, int> steps;
    for (size_t i = 1; i < stags.size(); i++)
        steps[stags[i] - stags[i - 1]]++;
    for (auto [step, count] : steps)
        EXPECT_LE(count, 2) << "step " << step;
}

/* Who floods breaks his own stream, and nobody else's. */
TEST(Rdmap, FloodsStayInTheirStream) {
    REQ("RDMAP-88", "SEC-17", "SEC-18");
    Link bystander;
    Region source(bystander.pd(), 64);
    fill(source.at(0), 64, 1);
    auto works = [&] {
        bystander.expect_works();
        bystander.say_read(
            {.sink_stag = 5, .size = 8, .src_stag = source.rkey(), .src_to = source.addr()});
        bystander.expect_ulpdu(
            Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = 5, .payload = pattern(8, 1)});
    };
    {
        /* More Sends than there are receives. */
        Link flood;
        flood.recv(1, {});
        Bytes all;
        for (uint32_t msn = 1; msn <= 1000; msn++)
            append(all, flood.peer().writer().encode(Untagged{.msn = msn}.bytes()));
        flood.peer().say(all);
        expect_success(flood.rcq(), 1, IBV_WC_RECV, 0);
        works();
        flood.expect_terminate(1, 2, 0x02);
        flood.expect_disconnected();
    }
    {
        /* Reads of more than can be sent, all that may be outstanding, unread. */
        Link flood(with_depths(4, 1));
        narrow_window(flood);
        Region memory(flood.pd(), kHuge);
        for (uint32_t i = 0; i < 4; i++)
            flood.say_read({.sink_stag = 1,
                            .size = kHuge,
                            .src_stag = memory.rkey(),
                            .src_to = memory.addr()});
        flood.hear();
        works();
        /* And more than may be. */
        flood.say_read({.sink_stag = 1, .size = 0});
        flood.skip_to_terminate(1, 2, 0x02);
        works();
        flood.expect_disconnected();
    }
    {
        /* A CQ too small for its queues overflows for its own QP only. */
        Link flood({.qp = {.recv_wr = 256, .recv_cqe = 1}});
        for (uint64_t i = 0; i < 256; i++)
            flood.recv(i, {});
        Bytes all;
        for (uint32_t msn = 1; msn <= 256; msn++)
            append(all, flood.peer().writer().encode(Untagged{.msn = msn}.bytes()));
        flood.peer().say(all);
        expect_cq_event(flood.rcq(), IBV_EVENT_CQ_ERR);
        works();
        end_of(flood);
    }
    works();
}

} // namespace
