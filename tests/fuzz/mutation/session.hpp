// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Legal sessions, as the peer plays them: how it starts up, what it says, and
 * what the consumer at the other end does meanwhile.  They are the stock that
 * mutation starts from; each is played as it is before that, and has to work.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/memory.hpp"
#include "wire/codec.hpp"

namespace softwarp::fuzz {

using wire::Bytes;

enum class What {
    send,
    write,
    read,      // Read Request
    response,  // Read Response to the consumer's read number `flavour`
    terminate, // layer, type and code in `flavour`, as in the frame
    atomic,    // Atomic Request on word `at` / 8
    value,     // Atomic Response to the consumer's atomic number `flavour`
    immediate,
};

/* A whole RDMAP message of the peer's. */
struct Message {
    What what = What::send;
    uint32_t size = 0;
    uint32_t at = 0;            // offset in the region that it reads or writes
    uint32_t segment = 1 << 16; // payload octets per FPDU, at most
    uint32_t flavour = 0;       // send, immediate: 1 solicited; atomic: its operation
    uint8_t fill = 0;           // of the payload
    uint8_t reserved = 0;       // bits to set where DDP says "ignored"
    uint32_t ignored = 0;       // Invalidate STag of a message that has none
    bool pad = false;           // of ones
    bool mutated = false;
};

/* What the consumer posts once connected. */
struct Consumer {
    std::vector<uint32_t> reads = {}; // of the peer's memory, octets each
    std::vector<uint32_t> sends = {};
    std::vector<uint32_t> writes = {};
    uint32_t atomics = 0;                  // on the peer's memory, behind the reads
    std::vector<uint32_t> writes_imm = {}; // with immediate data
    uint32_t bare_imms = 0;                // immediate data alone
};

struct Startup {
    bool device_connects = false; // the device is MPA initiator
    uint8_t revision = 1;
    bool crc = true;
    bool markers = false; // wanted in what the device sends
    bool enhanced = false;
    bool p2p = false;
    unsigned rtr = wire::kRtrNone; // the kind sent, or accepted
    uint16_t ird = 16;
    uint16_t ord = 16;
    Bytes private_data = {};
};

struct Session {
    std::string name;
    Startup startup;
    Consumer consumer;
    std::vector<Message> messages;
};

/* All legal sessions. */
const std::vector<Session> &recorded();

/* A frame of a session, ready to be spoilt. */
struct Frame {
    Bytes ulpdu = {};
    wire::Crc crc = wire::Crc::good;
    std::optional<Bytes> pad = {};
    std::optional<uint16_t> length = {};
    Bytes garbage = {};               // octets that stand in front of it
    std::vector<uint32_t> flips = {}; // bits to turn over when all else is done
    unsigned after_reads = 0;         // Read and Atomic Requests to be heard before it
    bool mutated = false;
    bool lying_markers = false;
};

/* The MPA frame that the peer says. */
wire::MpaFrame startup_frame(const Startup &startup);

/* The session's messages as segments, with the numbers that belong there. */
std::vector<Frame> frames_of(const Session &session, const Target &target);

} // namespace softwarp::fuzz
