// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Peers that mean harm: they want memory, time or octets that are not theirs.
 * Each scenario also wants the device to serve others meanwhile, and everything
 * back when it is over.  They run where the end-to-end tests run.
 */
#include <csignal>

#include <gtest/gtest.h>

int main(int argc, char **argv) {
    std::signal(SIGPIPE, SIG_IGN);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
