// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A test names the requirements that it shows, as its first statement:
 *
 *     REQ("MPA-12", "MPA-13");
 *
 * by their ids in requirements/.  A requirement that needs several tests is
 * named by each of them, and holds when all of them pass.
 */
#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

namespace softwarp::conformance {

inline void record_requirements(std::initializer_list<const char *> ids) {
    std::string all;
    for (const char *id : ids)
        all += (all.empty() ? "" : " ") + std::string(id);
    testing::Test::RecordProperty("requirements", all);
}

} // namespace softwarp::conformance

#define REQ(...) softwarp::conformance::record_requirements({__VA_ARGS__})
