// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Numbers that follow from a seed alone, the same on every machine.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace softwarp::fuzz {

class Random {
  public:
    Random(uint64_t seed, uint64_t stream) : state_(mix(seed) ^ mix(~stream)) {}

    uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15U); }
    /* 0 .. limit - 1 */
    uint64_t below(uint64_t limit) { return limit == 0 ? 0 : next() % limit; }
    /* low .. high */
    uint64_t range(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool chance(unsigned percent) { return below(100) < percent; }

    template<typename T>
    T pick(std::initializer_list<T> from) {
        return *std::next(from.begin(), static_cast<ptrdiff_t>(below(from.size())));
    }

  private:
    /* splitmix64's output function */
    static uint64_t mix(uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

    uint64_t state_;
};

} // namespace softwarp::fuzz
