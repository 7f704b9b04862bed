// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * End-to-end tests of a softwarp device.  They want root, the topology of
 * lib/system.hpp and an idle device; --gtest_filter picks some of them.
 */
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lib/children.hpp"
#include "lib/system.hpp"

int main(int argc, char **argv) {
    if (argc > 2 && std::strcmp(argv[1], "--role") == 0)
        return softwarp::e2e::run_role(std::vector<std::string>(argv + 2, argv + argc));
    std::signal(SIGPIPE, SIG_IGN);
    testing::InitGoogleTest(&argc, argv);
    if (!softwarp::e2e::config().unload) {
        std::string filter = testing::GTEST_FLAG(filter);
        filter += filter.find('-') == std::string::npos ? "-ZUnload.*" : ":ZUnload.*";
        testing::GTEST_FLAG(filter) = filter;
    }
    return RUN_ALL_TESTS();
}
