// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Enhanced connection establishment, RFC 6581. */
#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

TEST(Mpa2, BothRolesWork) {
    REQ("MPA2-41");
    {
        Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
        link.expect_works();
    }
    Link link({.role = Role::initiator, .revision = 2});
    link.expect_works();
}

} // namespace
