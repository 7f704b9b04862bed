// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* MPA, RFC 5044. */
#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

TEST(Mpa, BothRolesWork) {
    REQ("MPA-32");
    {
        Link link;
        link.expect_works();
    }
    Link link({.role = Role::initiator});
    link.expect_works();
}

} // namespace
