// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The wire peer's own codec against octets worked out elsewhere; no device. */
#include <gtest/gtest.h>

#include "wire/codec.hpp"

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

} // namespace
