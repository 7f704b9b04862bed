// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the targets share: reading an input piece by piece, copies whose every
 * overrun AddressSanitizer sees, and a check that ends the program.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

extern "C" {
#include "proto/fpdu.h"
#include "proto/mpa.h"
#include "proto/rdmap.h"
}

#define CHECK(holds)                                                                               \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);        \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)

namespace softwarp::fuzz {

/* An input, from its start; what is beyond its end reads as zeros. */
class Input {
  public:
    Input(const uint8_t *data, size_t size) : data_(data), left_(size) {}

    uint8_t u8() {
        if (left_ == 0)
            return 0;
        left_--;
        return *data_++;
    }
    uint16_t u16() { return static_cast<uint16_t>(u8() << 8 | u8()); }
    uint32_t u32() { return static_cast<uint32_t>(u16()) << 16 | u16(); }
    const uint8_t *rest() const { return data_; }
    size_t left() const { return left_; }

  private:
    const uint8_t *data_;
    size_t left_;
};

/* Exactly these octets on the heap: one octet further is a report. */
class Exact {
  public:
    Exact(const uint8_t *from, size_t size) : octets_(new uint8_t[size]), size_(size) {
        if (size != 0)
            std::memcpy(octets_.get(), from, size);
    }
    const uint8_t *get() const { return octets_.get(); }
    size_t size() const { return size_; }

  private:
    std::unique_ptr<uint8_t[]> octets_;
    size_t size_;
};

} // namespace softwarp::fuzz
