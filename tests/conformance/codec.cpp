// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The wire peer's own codec against octets worked out elsewhere; no device. */
#include <gtest/gtest.h>

#include "lib/system.hpp"
#include "wire/codec.hpp"
#include "wire/sdp.hpp"

using namespace softwarp::wire;

namespace {

TEST(WireCodec, Crc32c) {
    const std::string digits = "123456789";
    EXPECT_EQ(crc32c(Bytes(digits.begin(), digits.end())), 0xe3069283U);
    EXPECT_EQ(crc32c(Bytes(32)), 0x8a9136aaU);
    EXPECT_EQ(crc32c({}), 0U);
}

TEST(WireCodec, RtrFrames) {
    EXPECT_EQ(fpdu(Untagged{}.bytes()),
              (Bytes{0x00, 0x12, 0x41, 0x43, 0, 0, 0, 0, 0,    0,    0,    0,
                     0,    0,    0,    0x01, 0, 0, 0, 0, 0x58, 0x7b, 0xe8, 0xc4}));
    EXPECT_EQ(fpdu(Tagged{}.bytes()), (Bytes{0x00, 0x0e, 0xc1, 0x40, 0, 0,    0,    0,    0,   0, 0,
                                             0,    0,    0,    0,    0, 0xa3, 0x05, 0x72, 0xab}));
    Bytes read = fpdu(ReadRequest{}.bytes());
    ASSERT_EQ(read.size(), 52U);
    EXPECT_EQ(Bytes(read.end() - 4, read.end()), (Bytes{0xf2, 0xc6, 0xdd, 0x3d}));
}

/* Content n from position p holds m markers (RFC 5044 s. 4.3). */
TEST(WireCodec, PlacesOfMarkers) {
    struct Row {
        size_t n, p, m;
    };
    for (Row row : {Row{24, 0, 1},
                    {24, 488, 0},
                    {24, 500, 1},
                    {508, 0, 1},
                    {512, 0, 2},

                    {1452, 0, 3}}) {
        SCOPED_TRACE(testing::Message() << "n " << row.n << " p " << row.p);
        FpduWriter writer(true);
        FpduReader reader(true);
        /* Get to the position with FPDUs of known size: a marker, then multiples of 4. */
        Bytes stream;
        if (row.p != 0)
            stream = writer.encode(Bytes(row.p - 4 - 6));
        ASSERT_EQ(writer.position(), row.p);
        Bytes unit = writer.encode(Bytes(row.n - 6, 0x5a));
        EXPECT_EQ(unit.size(), row.n + 4 * row.m);
        append(stream, unit);
        size_t at = 0;
        auto source = [&](size_t count) {
            Bytes piece(stream.begin() + static_cast<long>(at),
                        stream.begin() + static_cast<long>(at + count));
            at += count;
            return piece;
        };
        if (row.p != 0) {
            EXPECT_TRUE(reader.decode(source).crc_good);
        }
        Fpdu back = reader.decode(source);
        EXPECT_EQ(back.markers.size(), row.m);
        EXPECT_TRUE(back.markers_good());
        EXPECT_TRUE(back.crc_good);
        EXPECT_EQ(back.ulpdu, Bytes(row.n - 6, 0x5a));
        EXPECT_EQ(at, stream.size());
    }
}

TEST(WireCodec, MpaFrames) {
    MpaFrame frame = MpaFrame::enhanced_request(
        {.ird = 3, .ord = 0x3fff, .p2p = true, .rtr = kRtrSend | kRtrRead}, kMpaCrc, {'x'});
    Bytes octets = frame.bytes();
    EXPECT_EQ(octets, (Bytes{'M', 'P', 'A', ' ',  'I', 'D', ' ', 'R',  'e',  'q',  ' ',  'F', 'r',
                             'a', 'm', 'e', 0x50, 2,   0,   5,   0xc0, 0x03, 0x7f, 0xff, 'x'}));
    MpaFrame back = MpaFrame::parse(octets);
    EXPECT_EQ(back.enhanced, frame.enhanced);
    EXPECT_EQ(back.private_data, frame.private_data);
    EXPECT_EQ(back.bytes(), octets);
}

TEST(WireCodec, Terminates) {
    Terminate term{.layer = 1, .etype = 2, .code = 5, .m = true, .d = true, .length = 0x1234};
    term.ddp_header =
        View(Untagged{.mo = 7}.bytes()).size() == 18 ? Untagged{.mo = 7}.bytes() : Bytes{};
    Bytes octets = term.payload();
    ASSERT_EQ(octets.size(), 4U + 2 + 18);
    EXPECT_EQ(Bytes(octets.begin(), octets.begin() + 6), (Bytes{0x12, 5, 0xc0, 0, 0x12, 0x34}));
    Terminate back = Terminate::parse(octets);
    EXPECT_EQ(back.text(), "1/2/0x05 M D");
    EXPECT_EQ(back.ddp_header, term.ddp_header);
    EXPECT_TRUE(back.rest.empty());
}

/* Both readings of the figures; that of InfiniBand is what its dissectors show. */
TEST(WireCodec, SdpMessages) {
    SdpMessage hello{.mid = kSdpHello, .bufs = 0x1234, .mseq = 0, .mseq_ack = 0};
    hello.hello = {.max_adverts = 0x0203,
                   .major = 1,
                   .minor = 2,
                   .des_rem_rcv_size = 0x11223344,
                   .rcv_size = 0x55667788,
                   .ird = 0x0a0b,
                   .ord = 0x0c0d};
    SdpMessage mode{
        .mid = kSdpModeChange, .flags = 0, .bufs = 7, .mseq = 0x01020304, .mseq_ack = 5};
    mode.mode = {.mode = kSdpPipelined, .send = true};
    SdpMessage susp{.mid = kSdpSuspComm, .bufs = 7};
    susp.port = 0xabcd;
    SdpMessage sink{.mid = kSdpSinkAvail, .bufs = 7, .payload = 3};
    sink.avail = {.len = 9, .stag = 0x01020304, .va = 0x1112131415161718, .non_discards = 6};
    SdpMessage urgent{.mid = kSdpData, .flags = kSdpOobPres, .bufs = 7, .payload = 1};
    SdpMessage resize{.mid = kSdpChRcvBuf, .bufs = 7};
    resize.size = 0x01020304;
    struct Row {
        SdpMessage msg;
        Bytes draft, ib;
    };
    const Row rows[] = {
        {hello,
         {0x12, 0x34, 0,    0,    0,    0,    0,    32,   0,    0,    0,
          0,    0,    0,    0,    0,    0x02, 0x03, 0,    0x21, 0x11, 0x22,
          0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x0a, 0x0b, 0x0c, 0x0d},
         {0,    0,    0x12, 0x34, 0,    0,    0,    32,   0,    0,    0,
          0,    0,    0,    0,    0,    0x12, 0,    0x02, 0x03, 0x11, 0x22,
          0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x0c, 0x0d, 0x0a, 0x0b}},
        {mode,
         {0, 7, 0, 7, 0, 0, 0, 20, 1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 0x05},
         {7, 0, 0, 7, 0, 0, 0, 20, 1, 2, 3, 4, 0, 0, 0, 5, 0xa0, 0, 0, 0}},
        {susp,
         {0, 7, 0, 13, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0, 1},
         {13, 0, 0, 7, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xab, 0xcd}},
        {sink,
         {0, 7, 0, 0xfd, 0, 0, 0,    39,   0,    0,    0,    0,    0,    0,    0, 0, 0, 0,
          0, 9, 1, 2,    3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 6},
         {0xfd, 0, 0, 7, 0, 0, 0,    39,   0,    0,    0,    0,    0,    0,    0, 0, 0, 0,
          0,    9, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 6}},
        {urgent,
         {0, 7, 1, 0xff, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0},
         {0xff, 1, 0, 7, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0}},
        {resize,
         {0, 7, 0, 11, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4},
         {11, 0, 0, 7, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}},
    };
    for (const Row &row : rows) {
        for (SdpLayout layout : {kLayoutDraft, kLayoutIb}) {
            Bytes octets = row.msg.bytes(layout);
            EXPECT_EQ(octets, layout == kLayoutDraft ? row.draft : row.ib);
            octets.resize(octets.size() + row.msg.payload);
            EXPECT_EQ(SdpMessage::parse(octets, layout).bytes(layout), row.msg.bytes(layout));
        }
    }
    EXPECT_EQ(layout_of_hello(rows[0].draft), kLayoutDraft);
    EXPECT_EQ(layout_of_hello(rows[0].ib), kLayoutIb);
    EXPECT_EQ(layout_of_hello(rows[1].draft), std::nullopt);
}

/* What no end may send is not taken, so a test that hears it fails. */
TEST(WireCodec, SdpMessagesThatMayNotBe) {
    Bytes good = SdpMessage{.mid = kSdpDisConn, .bufs = 7}.bytes();
    EXPECT_NO_THROW(SdpMessage::parse(good, kLayoutDraft));
    struct Row {
        size_t at;
        uint8_t value;
    };
    for (Row row :
         {Row{2, 0x08}, {2, 0x01}, {3, 0x0f}, {3, 0x40}, {3, kSdpModeChange}, {7, 15}, {7, 17}}) {
        Bytes bad = good;
        bad[row.at] = row.value;
        EXPECT_THROW(SdpMessage::parse(bad, kLayoutDraft), softwarp::e2e::Failure) << row.at;
    }
    Bytes more = good;
    more.push_back(0);
    more[7] = 17;
    EXPECT_THROW(SdpMessage::parse(more, kLayoutDraft), softwarp::e2e::Failure);
    Bytes mode = SdpMessage{.mid = kSdpModeChange}.bytes();
    for (Row row : {Row{16, 0x80}, {19, 0x06}}) {
        Bytes bad = mode;
        bad[row.at] = row.value;
        EXPECT_THROW(SdpMessage::parse(bad, kLayoutDraft), softwarp::e2e::Failure) << row.at;
    }
}

} // namespace
