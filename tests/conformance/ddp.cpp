// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* DDP: RFC 5041. */
#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

/* The control octets, from both kinds of header. */
TEST(Ddp, ControlOctet) {
    REQ("DDP-01", "DDP-02");
    Link link;
    Region from(link.pd(), 8);
    link.send(1, {from.all()});
    EXPECT_EQ(link.hear().ddp, 0x41);
    link.write(2, {from.all()}, 0x1000, 0x77);
    EXPECT_EQ(link.hear().ddp, 0xc1);
}

} // namespace
