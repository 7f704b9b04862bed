// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peer made of a plain TCP socket: it says exactly the octets that a test
 * wants and shows exactly the octets that the device says.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/system.hpp"

namespace softwarp::e2e {

using Bytes = std::vector<uint8_t>;

/* CRC32c (RFC 5044 s. 4.4), bit by bit from its definition. */
uint32_t crc32c(std::span<const uint8_t> data);

void put16(Bytes &to, uint16_t value);
void put32(Bytes &to, uint32_t value);
void put64(Bytes &to, uint64_t value);
uint16_t get16(std::span<const uint8_t> from, size_t at);
uint32_t get32(std::span<const uint8_t> from, size_t at);
uint64_t get64(std::span<const uint8_t> from, size_t at);

/* MPA frames, RFC 5044 s. 7.1 and RFC 6581 s. 6 */
constexpr uint8_t kMpaMarkers = 0x80;
constexpr uint8_t kMpaCrc = 0x40;
constexpr uint8_t kMpaReject = 0x20;
constexpr uint8_t kMpaEnhanced = 0x10;
constexpr size_t kMpaHeader = 20;

Bytes mpa_frame(bool reply, uint8_t flags, uint8_t revision, const Bytes &private_data = {});

/* DDP segments with their RDMAP octet, RFC 5041 and RFC 5040 */
enum Opcode : uint8_t {
    kOpWrite = 0,
    kOpReadRequest = 1,
    kOpReadResponse = 2,
    kOpSend = 3,
    kOpSendInvalidate = 4,
    kOpSendSolicited = 5,
    kOpTerminate = 7,
};

struct Untagged {
    uint8_t ddp = 0x41; // last, version 1
    uint8_t rdmap = 0x40 | kOpSend;
    uint32_t invalidate = 0;
    uint32_t qn = 0;
    uint32_t msn = 1;
    uint32_t mo = 0;
    Bytes payload = {};
    Bytes bytes() const;
};

struct Tagged {
    uint8_t ddp = 0xc1;
    uint8_t rdmap = 0x40 | kOpWrite;
    uint32_t stag = 0;
    uint64_t to = 0;
    Bytes payload = {};
    Bytes bytes() const;
};

/* An FPDU around a ULPDU, without markers. */
Bytes fpdu(const Bytes &ulpdu);

struct Fpdu {
    Bytes ulpdu;
    Bytes pad;
    bool crc_good;
};

class RawTcp {
  public:
    /* Connects from the namespace. */
    RawTcp(const std::string &ns, const std::string &addr, uint16_t port);
    explicit RawTcp(Fd fd) : fd_(std::move(fd)) {}

    void say(std::span<const uint8_t> octets);
    /* Reads exactly that many; throws when the stream ends or time is up. */
    Bytes hear(size_t count, Deadline deadline = Deadline());
    /* True if the peer closes or resets within the time; reads and drops data. */
    bool closed_by_peer(Deadline deadline = Deadline());
    /* True if nothing comes and the stream stays open for the time. */
    bool silent(milliseconds quiet);

    /* The whole MPA Reply. */
    Bytes hear_reply(Deadline deadline = Deadline());
    Fpdu hear_fpdu(Deadline deadline = Deadline());
    void shut_down(); // FIN
    void reset();     // RST

  private:
    Fd fd_;
};

/* A listening TCP socket in a namespace. */
class RawListener {
  public:
    RawListener(const std::string &ns, const std::string &addr);
    uint16_t port() const { return port_; }
    RawTcp accept(Deadline deadline = Deadline());

  private:
    Fd fd_;
    uint16_t port_ = 0;
};

} // namespace softwarp::e2e
