// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * CRC32c by carry-less multiplications (MPA-07, RFC 5044 section 4.4), which emulated CPUs do not
 * have: on the CPU that runs this test, each length is what the polynomial says, with and without a
 * copy.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "softwarp/crc_fold.h"

namespace {

constexpr std::size_t kMost = 3000;
constexpr std::uint8_t kGuard = 0xa5;

std::uint32_t bitwise(std::uint32_t crc, const std::uint8_t *p, std::size_t len) {
    while (len-- > 0) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    }
    return crc;
}

class Fold : public testing::Test {
  protected:
    void SetUp() override {
        if (!swp_fold_there())
            GTEST_SKIP() << "this CPU has no VPCLMULQDQ and AVX2";
        swp_fold_prepare(&factors_);
        std::mt19937 random{1};
        for (auto &octet : src_)
            octet = static_cast<std::uint8_t>(random());
    }

    swp_fold_factors factors_{};
    std::array<std::uint8_t, kMost + 8> src_{};
};

TEST_F(Fold, AnyLength) {
    for (std::size_t len = SWP_FOLD_LEAST; len <= kMost; len += SWP_FOLD_WIDTH) {
        for (std::size_t off = 0; off < 8; off += 3) {
            std::array<std::uint8_t, SWP_FOLD_WIDTH> rest{};
            const auto crc = static_cast<std::uint32_t>(len * 2654435761U);
            swp_fold(rest.data(), crc, src_.data() + off, len, &factors_);
            ASSERT_EQ(bitwise(0, rest.data(), rest.size()), bitwise(crc, src_.data() + off, len))
                << len << ' ' << off;
        }
    }
}

TEST_F(Fold, Copies) {
    for (std::size_t len = SWP_FOLD_LEAST; len <= kMost; len += SWP_FOLD_WIDTH) {
        const std::size_t off = len / SWP_FOLD_WIDTH % 7;
        std::array<std::uint8_t, SWP_FOLD_WIDTH> rest{};
        std::vector<std::uint8_t> dst(off + len + 1, kGuard);
        swp_fold_copy(rest.data(), ~0U, src_.data() + 1, len, &factors_, dst.data() + off);
        ASSERT_EQ(bitwise(0, rest.data(), rest.size()), bitwise(~0U, src_.data() + 1, len)) << len;
        ASSERT_TRUE(std::equal(dst.begin() + static_cast<std::ptrdiff_t>(off), dst.end() - 1,
                               src_.begin() + 1))
            << len;
        ASSERT_EQ(dst.back(), kGuard);
        ASSERT_TRUE(off == 0 || dst[off - 1] == kGuard);
    }
}

/* What is not a whole register is left alone. */
TEST_F(Fold, RoundsDown) {
    for (std::size_t more = 1; more < SWP_FOLD_WIDTH; more++) {
        std::array<std::uint8_t, SWP_FOLD_WIDTH> rest{};
        std::vector<std::uint8_t> dst(SWP_FOLD_LEAST + more, kGuard);
        swp_fold_copy(rest.data(), 0, src_.data(), SWP_FOLD_LEAST + more, &factors_, dst.data());
        ASSERT_EQ(bitwise(0, rest.data(), rest.size()), bitwise(0, src_.data(), SWP_FOLD_LEAST))
            << more;
        ASSERT_EQ(dst[SWP_FOLD_LEAST], kGuard);
    }
}

} // namespace
