// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * SDP messages as values, draft-pinkerton-iwarp-sdp-01 section 6.  Written from
 * the figures and sharing nothing with the kernel's code, so that two readings
 * have to agree.  bytes() encodes what a test wants, however wrong; parse()
 * takes only what an end may send.
 */
#pragma once

#include "wire/codec.hpp"

namespace softwarp::wire {

/* How the fields of a 32-bit word lie, see sdp.cpp */
enum SdpLayout {
    kLayoutDraft,
    kLayoutIb,
};

/* Figure 3 */
enum SdpMid : uint8_t {
    kSdpHello = 0x00,
    kSdpHelloAck = 0x01,
    kSdpDisConn = 0x02,
    kSdpAbortConn = 0x03,
    kSdpSendSm = 0x04,
    kSdpRdmaWrCompl = 0x05,
    kSdpRdmaRdCompl = 0x06,
    kSdpModeChange = 0x07,
    kSdpSrcAvailCancel = 0x08,
    kSdpSinkAvailCancel = 0x09,
    kSdpSinkCancelAck = 0x0a,
    kSdpChRcvBuf = 0x0b,
    kSdpChRcvBufAck = 0x0c,
    kSdpSuspComm = 0x0d,
    kSdpSuspCommAck = 0x0e,
    kSdpSinkAvail = 0xfd,
    kSdpSrcAvail = 0xfe,
    kSdpData = 0xff,
};

/* s. 6.1.2 */
enum SdpFlag : uint8_t {
    kSdpOobPres = 0x01,
    kSdpOobPend = 0x02,
    kSdpReqPipe = 0x04,
};

/* s. 6.3.8 */
enum SdpMode : uint8_t {
    kSdpBuffered = 0,
    kSdpCombined = 1,
    kSdpPipelined = 2,
};

constexpr size_t kSdpHeader = 16;    // BSDH, s. 6.1
constexpr size_t kSdpHelloLen = 32;  // with BSDH
constexpr uint32_t kSdpSizeMin = 37; // the smallest buffer, s. 6.2.1
constexpr uint32_t kSdpSizeMax = 1U << 31;
constexpr uint16_t kSdpBufsMin = 3; // s. 10

/* ss. 6.2.1 and 6.2.2 */
struct SdpHello {
    uint16_t max_adverts = 0;
    uint8_t major = 1;
    uint8_t minor = 1;
    uint32_t des_rem_rcv_size = 0; // not in HelloAck
    uint32_t rcv_size = 0;
    uint16_t ird = 0;
    uint16_t ord = 0;
};

/* ss. 6.3.2 and 6.3.3 */
struct SdpAvail {
    uint32_t len = 0;
    uint32_t stag = 0;
    uint64_t va = 0;
    uint32_t non_discards = 0; // of SinkAvail
};

struct SdpModeChange {
    uint8_t mode = kSdpBuffered;
    bool send = false; // S
};

struct SdpMessage {
    uint8_t mid = kSdpHello;
    uint8_t flags = 0;
    uint16_t bufs = 0;
    uint32_t mseq = 0;
    uint32_t mseq_ack = 0;
    uint32_t payload = 0; // octets behind the headers

    /* Of the messages that have them */
    SdpHello hello{};
    SdpAvail avail{};
    SdpModeChange mode{};
    uint32_t size = 0; // of RdmaRdCompl, RdmaWrCompl, ChRcvBuf, ChRcvBufAck
    uint16_t port = 0; // of SuspComm

    /* The headers; Len counts the payload, which the caller appends. */
    Bytes bytes(SdpLayout layout = kLayoutDraft) const;
    /*
     * Of a whole message, payload included.  Throws e2e::Failure for a wrong Len,
     * an unknown MID, payload where none may be, and values that may not be sent,
     * reserved fields included.
     */
    static SdpMessage parse(View octets, SdpLayout layout);
};

/* The layout of a Hello, by Bufs, which is not 0, and MID, which is */
std::optional<SdpLayout> layout_of_hello(View octets);

} // namespace softwarp::wire
