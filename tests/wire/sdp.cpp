// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A message is 32-bit words, and each word is fields, listed here from left to right
 * as in the draft's figures.  Read literally, the left one is the most significant and
 * first on the wire.  Read as InfiniBand does, the figure is mirrored: the right one is.
 */
#include "wire/sdp.hpp"

#include "lib/system.hpp"

namespace softwarp::wire {

namespace {

struct Field {
    uint32_t value;
    unsigned bits;
};

uint32_t word_of(SdpLayout layout, std::initializer_list<Field> fields) {
    uint32_t word = 0;
    unsigned left = 32;
    unsigned right = 0;
    for (const Field &field : fields) {
        left -= field.bits;
        uint32_t mask = field.bits == 32 ? ~0U : (1U << field.bits) - 1;
        word |= (field.value & mask) << (layout == kLayoutDraft ? left : right);
        right += field.bits;
    }
    return word;
}

/* The fields of a word, by their widths */
template<size_t N>
std::array<uint32_t, N> fields_of(SdpLayout layout, uint32_t word, const unsigned (&bits)[N]) {
    std::array<uint32_t, N> found{};
    unsigned left = 32;
    unsigned right = 0;
    for (size_t i = 0; i < N; i++) {
        left -= bits[i];
        found[i] = word >> (layout == kLayoutDraft ? left : right) & ((1U << bits[i]) - 1);
        right += bits[i];
    }
    return found;
}

/* Octets behind BSDH, Figure 3; nothing: no such message */
std::optional<size_t> extension_of(uint8_t mid) {
    switch (mid) {
    case kSdpHello: return 16;
    case kSdpHelloAck: return 12;
    case kSdpRdmaWrCompl:
    case kSdpRdmaRdCompl:
    case kSdpModeChange:
    case kSdpChRcvBuf:
    case kSdpChRcvBufAck: return 4;
    case kSdpSuspComm: return 8;
    case kSdpSrcAvail: return 16;
    case kSdpSinkAvail: return 20;
    case kSdpDisConn:
    case kSdpAbortConn:
    case kSdpSendSm:
    case kSdpSrcAvailCancel:
    case kSdpSinkAvailCancel:
    case kSdpSinkCancelAck:
    case kSdpSuspCommAck:
    case kSdpData: return 0;
    default: return {};
    }
}

bool may_have_payload(uint8_t mid) {
    return mid == kSdpData || mid == kSdpSrcAvail || mid == kSdpSinkAvail;
}

void must(bool good, const char *what, View octets) {
    if (!good)
        e2e::fail("SDP: " + std::string(what) + ": " + hex(octets));
}

} // namespace

Bytes SdpMessage::bytes(SdpLayout layout) const {
    Bytes to;
    put32(to, word_of(layout, {{bufs, 16}, {flags, 8}, {mid, 8}}));
    put32(to, static_cast<uint32_t>(kSdpHeader + extension_of(mid).value_or(0)) + payload);
    put32(to, mseq);
    put32(to, mseq_ack);
    switch (mid) {
    case kSdpHello:
    case kSdpHelloAck:
        put32(to, word_of(layout,
                          {{hello.max_adverts, 16}, {0, 8}, {hello.minor, 4}, {hello.major, 4}}));
        if (mid == kSdpHello)
            put32(to, hello.des_rem_rcv_size);
        put32(to, hello.rcv_size);
        put32(to, word_of(layout, {{hello.ird, 16}, {hello.ord, 16}}));
        break;
    case kSdpSrcAvail:
    case kSdpSinkAvail:
        put32(to, avail.len);
        put32(to, avail.stag);
        put64(to, avail.va);
        if (mid == kSdpSinkAvail)
            put32(to, avail.non_discards);
        break;
    case kSdpModeChange:
        put32(to, word_of(layout, {{0, 28}, {mode.mode, 3}, {mode.send, 1}}));
        break;
    case kSdpRdmaWrCompl:
    case kSdpRdmaRdCompl:
    case kSdpChRcvBuf:
    case kSdpChRcvBufAck: put32(to, size); break;
    case kSdpSuspComm:
        put32(to, 0);
        put32(to, word_of(layout, {{port, 16}, {1, 16}}));
        break;
    default: break;
    }
    return to;
}

SdpMessage SdpMessage::parse(View octets, SdpLayout layout) {
    SdpMessage msg;
    auto [bufs, flags, mid] = fields_of(layout, get32(octets, 0), {16, 8, 8});
    msg.bufs = static_cast<uint16_t>(bufs);
    msg.flags = static_cast<uint8_t>(flags);
    msg.mid = static_cast<uint8_t>(mid);
    msg.mseq = get32(octets, 8);
    msg.mseq_ack = get32(octets, 12);
    std::optional<size_t> extension = extension_of(msg.mid);
    must(extension.has_value(), "MID", octets);
    must(get32(octets, 4) == octets.size() && octets.size() >= kSdpHeader + *extension, "Len",
         octets);
    msg.payload = static_cast<uint32_t>(octets.size() - kSdpHeader - *extension);
    must(msg.payload == 0 || may_have_payload(msg.mid), "payload", octets);
    must((flags & ~(kSdpOobPres | kSdpOobPend | kSdpReqPipe)) == 0, "reserved flags", octets);
    must((flags & kSdpOobPres) == 0 || msg.payload != 0, "an octet out of band that is not there",
         octets);

    size_t at = kSdpHeader;
    auto next = [&] {
        uint32_t word = get32(octets, at);
        at += 4;
        return word;
    };
    switch (msg.mid) {
    case kSdpHello:
    case kSdpHelloAck: {
        auto [adverts, reserved, minor, major] = fields_of(layout, next(), {16, 8, 4, 4});
        must(reserved == 0, "a reserved field", octets);
        msg.hello.max_adverts = static_cast<uint16_t>(adverts);
        msg.hello.minor = static_cast<uint8_t>(minor);
        msg.hello.major = static_cast<uint8_t>(major);
        if (msg.mid == kSdpHello)
            msg.hello.des_rem_rcv_size = next();
        msg.hello.rcv_size = next();
        auto [ird, ord] = fields_of(layout, next(), {16, 16});
        msg.hello.ird = static_cast<uint16_t>(ird);
        msg.hello.ord = static_cast<uint16_t>(ord);
        break;
    }
    case kSdpSrcAvail:
    case kSdpSinkAvail:
        msg.avail.len = next();
        msg.avail.stag = next();
        msg.avail.va = get64(octets, at);
        at += 8;
        if (msg.mid == kSdpSinkAvail)
            msg.avail.non_discards = next();
        must(msg.avail.len != 0 && msg.avail.len <= kSdpSizeMax, "an advertised length", octets);
        break;
    case kSdpModeChange: {
        auto [reserved, mode, send] = fields_of(layout, next(), {28, 3, 1});
        must(reserved == 0 && mode <= kSdpPipelined, "a mode", octets);
        msg.mode.mode = static_cast<uint8_t>(mode);
        msg.mode.send = send != 0;
        break;
    }
    case kSdpRdmaWrCompl:
    case kSdpRdmaRdCompl:
    case kSdpChRcvBuf:
    case kSdpChRcvBufAck: msg.size = next(); break;
    case kSdpSuspComm: {
        must(next() == 0, "Constant1", octets);
        auto [port, one] = fields_of(layout, next(), {16, 16});
        must(one == 1, "Constant2", octets);
        msg.port = static_cast<uint16_t>(port);
        break;
    }
    default: break;
    }
    return msg;
}

std::optional<SdpLayout> layout_of_hello(View octets) {
    for (SdpLayout layout : {kLayoutDraft, kLayoutIb}) {
        auto [bufs, flags, mid] = fields_of(layout, get32(octets, 0), {16, 8, 8});
        if (bufs != 0 && flags == 0 && mid == kSdpHello)
            return layout;
    }
    return {};
}

} // namespace softwarp::wire
