// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory whose every byte is known: the byte at an offset is a function of a
 * seed and that offset, so data that arrive shifted, stale, short or in the
 * wrong place do not match.
 */
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace softwarp::e2e {

/* Fills length octets with the pattern of the seed from offset `start` on. */
void fill(void *where, size_t length, uint64_t seed, uint64_t start = 0);

/* Offset of the first octet that differs from the pattern, or length. */
size_t mismatch(const void *where, size_t length, uint64_t seed, uint64_t start = 0);

/* Offset of the first octet that is not `value`, or length. */
size_t mismatch_value(const void *where, size_t length, uint8_t value);

/* A GoogleTest expectation that the memory holds the pattern. */
void expect_pattern(const void *where, size_t length, uint64_t seed, uint64_t start = 0,
                    const std::string &what = "");
void expect_value(const void *where, size_t length, uint8_t value, const std::string &what = "");

/* The generator behind it all; also a cheap source of random numbers. */
uint64_t splitmix(uint64_t state);

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() { return splitmix(state_++ * 0x9e3779b97f4a7c15U); }
    /* 0 .. limit - 1 */
    uint64_t below(uint64_t limit) { return next() % limit; }

  private:
    uint64_t state_;
};

/* Page-aligned anonymous memory, zeroed. */
class Buffer {
  public:
    explicit Buffer(size_t size, int protection = PROT_READ | PROT_WRITE);
    Buffer(Buffer &&other) noexcept;
    Buffer &operator=(Buffer &&) = delete;
    ~Buffer();
    uint8_t *data() const { return data_; }
    uint8_t *at(size_t offset) const { return data_ + offset; }
    uint64_t addr(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(data_ + offset); }
    size_t size() const { return size_; }
    void set(uint8_t value) const;

  private:
    uint8_t *data_ = nullptr;
    size_t size_ = 0;
};

} // namespace softwarp::e2e
