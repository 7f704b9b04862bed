// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/pattern.hpp"

#include <endian.h>

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/system.hpp"

namespace softwarp::e2e {

uint64_t splitmix(uint64_t state) {
    state += 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebU;
    return state ^ (state >> 31);
}

namespace {

uint64_t word_at(uint64_t seed, uint64_t index) {
    return splitmix(splitmix(seed) ^ index);
}

uint8_t octet_at(uint64_t seed, uint64_t offset) {
    return static_cast<uint8_t>(word_at(seed, offset / 8) >> (8 * (offset % 8)));
}

/* Eight octets at once, the same ones on every processor. */
uint64_t octets_of(uint64_t key, uint64_t index) {
    return htole64(splitmix(key ^ index));
}

} // namespace

void fill(void *where, size_t length, uint64_t seed, uint64_t start) {
    auto *octets = static_cast<uint8_t *>(where);
    size_t done = 0;
    uint64_t key = splitmix(seed);

    for (; done < length && (start + done) % 8 != 0; done++)
        octets[done] = octet_at(seed, start + done);
    for (; done + 8 <= length; done += 8) {
        uint64_t word = octets_of(key, (start + done) / 8);
        std::memcpy(octets + done, &word, 8);
    }
    for (; done < length; done++)
        octets[done] = octet_at(seed, start + done);
}

size_t mismatch(const void *where, size_t length, uint64_t seed, uint64_t start) {
    const auto *octets = static_cast<const uint8_t *>(where);
    size_t done = 0;
    uint64_t key = splitmix(seed);

    for (; done < length && (start + done) % 8 != 0; done++)
        if (octets[done] != octet_at(seed, start + done))
            return done;
    for (; done + 8 <= length; done += 8) {
        uint64_t word = octets_of(key, (start + done) / 8);
        if (std::memcmp(octets + done, &word, 8) != 0)
            break;
    }
    for (; done < length; done++)
        if (octets[done] != octet_at(seed, start + done))
            return done;
    return length;
}

size_t mismatch_value(const void *where, size_t length, uint8_t value) {
    const auto *octets = static_cast<const uint8_t *>(where);

    if (length == 0 || octets[0] != value)
        return 0;
    /* Each octet equals its successor: one memcmp over the whole. */
    if (std::memcmp(octets, octets + 1, length - 1) == 0)
        return length;
    size_t at = 0;
    while (octets[at] == value)
        at++;
    return at;
}

void expect_pattern(const void *where, size_t length, uint64_t seed, uint64_t start,
                    const std::string &what) {
    size_t at = mismatch(where, length, seed, start);
    if (at == length)
        return;
    ADD_FAILURE() << fmt::format("{}: octet {} of {} is {:#04x}, not {:#04x}", what, at, length,
                                 static_cast<const uint8_t *>(where)[at],
                                 octet_at(seed, start + at));
}

void expect_value(const void *where, size_t length, uint8_t value, const std::string &what) {
    if (length == 0)
        return;
    size_t at = mismatch_value(where, length, value);
    if (at == length)
        return;
    ADD_FAILURE() << fmt::format("{}: octet {} of {} is {:#04x}, not {:#04x}", what, at, length,
                                 static_cast<const uint8_t *>(where)[at], value);
}

Buffer::Buffer(size_t size, int protection) : size_(size) {
    void *memory =
        mmap(nullptr, size == 0 ? 1 : size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "mmap");
    data_ = static_cast<uint8_t *>(memory);
}

Buffer::Buffer(Buffer &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer::~Buffer() {
    if (data_ != nullptr)
        munmap(data_, size_ == 0 ? 1 : size_);
}

void Buffer::set(uint8_t value) const {
    std::memset(data_, value, size_);
}

} // namespace softwarp::e2e
