// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Conformance tests.  They want root, the topology of lib/system.hpp and an idle
 * device.  --gtest_filter picks some of them, --gtest_output=xml:FILE keeps
 * which requirement each one shows.
 */
#include <csignal>

#include <gtest/gtest.h>

int main(int argc, char **argv) {
    std::signal(SIGPIPE, SIG_IGN);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
