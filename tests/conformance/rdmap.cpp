// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* RDMAP: RFC 5040. */
#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

/* Version 01b and the opcode, in the second octet of a ULPDU. */
TEST(Rdmap, ControlOctet) {
    REQ("RDMAP-01", "RDMAP-02");
    Link link;
    Region from(link.pd(), 8);
    link.send(1, {from.all()});
    EXPECT_EQ(link.hear().rdmap, 0x43);
    link.write(2, {from.all()}, 0x1000, 0x77);
    EXPECT_EQ(link.hear().rdmap, 0x40);
    link.read(3, {from.all()}, 0x1000, 0x77);
    EXPECT_EQ(link.hear().rdmap, 0x41);
}

} // namespace
