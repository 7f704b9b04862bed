// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What a program that finds nothing does with the page that it shares with the kernel.
#include "spin.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace {

using namespace softwarp;

TEST(Spin, WithoutAPageNothingIsWanted) {
    Spin spin;
    swp_uctx_resp kernel{};
    EXPECT_FALSE(spin.wanted());
    spin.map(-1, kernel);
    EXPECT_FALSE(spin.wanted());
    // none that a kernel module describes which knows less of it
    kernel.spin_bytes = sizeof(swp_spin_page) - 1;
    spin.map(-1, kernel);
    EXPECT_FALSE(spin.wanted());
    // and none that is not to be mapped
    kernel.spin_bytes = 4096;
    spin.map(-1, kernel);
    EXPECT_FALSE(spin.wanted());
}

TEST(Spin, AnswersAndLooksForWork) {
    swp_spin_page page{};
    Spin spin;
    spin.use(&page);
    EXPECT_FALSE(spin.wanted());
    page.ask = 1;
    EXPECT_FALSE(spin.wanted());
    EXPECT_EQ(page.ask, 0U);
    page.work = 1;
    EXPECT_TRUE(spin.wanted());
    EXPECT_EQ(page.work, 1U) << "which only the kernel writes";
    page.ask = 1;
    EXPECT_TRUE(spin.wanted());
    EXPECT_EQ(page.ask, 0U);
    spin.use(nullptr);
    page.ask = 1;
    EXPECT_FALSE(spin.wanted());
    EXPECT_EQ(page.ask, 1U);
}

// The kernel asks, and has work for who answers.
TEST(Spin, WorkFollowsTheAnswer) {
    swp_spin_page page{};
    const std::atomic_ref<__u32> ask{page.ask};
    const std::atomic_ref<__u32> work{page.work};
    Spin spin;
    spin.use(&page);
    ask.store(1);
    std::thread kernel([&] {
        while (ask.load() != 0)
            std::this_thread::yield();
        work.store(1);
    });
    while (!spin.wanted())
        std::this_thread::yield();
    kernel.join();
    EXPECT_EQ(ask.load(), 0U);
}

} // namespace
