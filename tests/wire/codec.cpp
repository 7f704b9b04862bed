// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "wire/codec.hpp"

#include <fmt/format.h>

#include "lib/system.hpp"

namespace softwarp::wire {

using e2e::fail;

namespace {

constexpr uint64_t kMarkerDistance = 512;
constexpr size_t kMarkerSize = 4;

size_t pad_of(size_t ulpdu) {
    return (4 - (2 + ulpdu) % 4) % 4;
}

void want(View from, size_t at, size_t count) {
    if (from.size() < at + count)
        fail(fmt::format("{} octets at {} wanted of {}", count, at, hex(from)));
}

Bytes part(View from, size_t at, size_t count) {
    want(from, at, count);
    return Bytes(from.begin() + static_cast<ptrdiff_t>(at),
                 from.begin() + static_cast<ptrdiff_t>(at + count));
}

} // namespace

uint32_t crc32c(View data) {
    static const std::array<uint32_t, 256> table = [] {
        std::array<uint32_t, 256> t{};
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0);
            t[i] = value;
        }
        return t;
    }();
    uint32_t crc = ~0U;
    for (uint8_t octet : data)
        crc = (crc >> 8) ^ table[(crc ^ octet) & 0xff];
    return ~crc;
}

void put16(Bytes &to, uint16_t value) {
    to.push_back(static_cast<uint8_t>(value >> 8));
    to.push_back(static_cast<uint8_t>(value));
}

void put32(Bytes &to, uint32_t value) {
    put16(to, static_cast<uint16_t>(value >> 16));
    put16(to, static_cast<uint16_t>(value));
}

void put64(Bytes &to, uint64_t value) {
    put32(to, static_cast<uint32_t>(value >> 32));
    put32(to, static_cast<uint32_t>(value));
}

uint16_t get16(View from, size_t at) {
    want(from, at, 2);
    return static_cast<uint16_t>(from[at] << 8 | from[at + 1]);
}

uint32_t get32(View from, size_t at) {
    return static_cast<uint32_t>(get16(from, at)) << 16 | get16(from, at + 2);
}

uint64_t get64(View from, size_t at) {
    return static_cast<uint64_t>(get32(from, at)) << 32 | get32(from, at + 4);
}

void append(Bytes &to, View what) {
    to.insert(to.end(), what.begin(), what.end());
}

Bytes join(std::initializer_list<View> parts) {
    Bytes all;
    for (View part : parts)
        append(all, part);
    return all;
}

std::string hex(View octets, size_t limit) {
    std::string text = fmt::format("[{}]", octets.size());
    for (size_t i = 0; i < octets.size() && i < limit; i++)
        text += fmt::format("{}{:02x}", i % 4 == 0 ? " " : "", octets[i]);
    if (octets.size() > limit)
        text += " ...";
    return text;
}

/* MPA start-up -------------------------------------------------------------- */

const std::string kRequestKey = "MPA ID Req Frame";
const std::string kReplyKey = "MPA ID Rep Frame";

Bytes Enhanced::bytes() const {
    unsigned first = ird | (p2p ? 0x8000U : 0) | ((rtr & kRtrSend) != 0 ? 0x4000U : 0);
    unsigned second =
        ord | ((rtr & kRtrWrite) != 0 ? 0x8000U : 0) | ((rtr & kRtrRead) != 0 ? 0x4000U : 0);
    Bytes octets;
    put16(octets, static_cast<uint16_t>(first));
    put16(octets, static_cast<uint16_t>(second));
    return octets;
}

Enhanced Enhanced::parse(View octets) {
    unsigned first = get16(octets, 0);
    unsigned second = get16(octets, 2);
    Enhanced data;
    data.ird = first & 0x3fff;
    data.ord = second & 0x3fff;
    data.p2p = (first & 0x8000) != 0;
    data.rtr = ((first & 0x4000) != 0 ? kRtrSend : 0U) | ((second & 0x8000) != 0 ? kRtrWrite : 0U) |
               ((second & 0x4000) != 0 ? kRtrRead : 0U);
    return data;
}

MpaFrame MpaFrame::request(uint8_t flags, uint8_t revision, Bytes private_data) {
    return {.key = kRequestKey,
            .flags = flags,
            .revision = revision,
            .private_data = std::move(private_data)};
}

MpaFrame MpaFrame::reply(uint8_t flags, uint8_t revision, Bytes private_data) {
    return {.key = kReplyKey,
            .flags = flags,
            .revision = revision,
            .private_data = std::move(private_data)};
}

MpaFrame MpaFrame::enhanced_request(const Enhanced &data, uint8_t flags, Bytes private_data) {
    MpaFrame frame = request(flags, 2, std::move(private_data));
    frame.enhanced = data;
    return frame;
}

MpaFrame MpaFrame::enhanced_reply(const Enhanced &data, uint8_t flags, Bytes private_data) {
    MpaFrame frame = reply(flags, 2, std::move(private_data));
    frame.enhanced = data;
    return frame;
}

Bytes MpaFrame::bytes() const {
    Bytes data;
    if (enhanced)
        data = enhanced->bytes();
    append(data, private_data);
    Bytes frame(key.begin(), key.end());
    frame.push_back(static_cast<uint8_t>(flags | (enhanced ? kMpaEnhanced : 0)));
    frame.push_back(revision);
    put16(frame, pd_length.value_or(static_cast<uint16_t>(data.size())));
    append(frame, data);
    return frame;
}

MpaFrame MpaFrame::parse(View octets) {
    want(octets, 0, kMpaHeader);
    MpaFrame frame;
    frame.key.assign(octets.begin(), octets.begin() + kMpaKey);
    frame.flags = octets[16];
    frame.revision = octets[17];
    Bytes data = part(octets, kMpaHeader, get16(octets, 18));
    if (frame.revision >= 2 && frame.has(kMpaEnhanced)) {
        frame.enhanced = Enhanced::parse(data);
        data.erase(data.begin(), data.begin() + 4);
    }
    frame.private_data = std::move(data);
    return frame;
}

Bytes mpa_frame(bool reply, uint8_t flags, uint8_t revision, const Bytes &private_data) {
    return reply ? MpaFrame::reply(flags, revision, private_data).bytes()
                 : MpaFrame::request(flags, revision, private_data).bytes();
}

/* DDP and RDMAP ------------------------------------------------------------- */

Bytes Untagged::bytes() const {
    Bytes segment{ddp, rdmap};
    put32(segment, invalidate);
    put32(segment, qn);
    put32(segment, msn);
    put32(segment, mo);
    append(segment, payload);
    return segment;
}

Bytes Tagged::bytes() const {
    Bytes segment{ddp, rdmap};
    put32(segment, stag);
    put64(segment, to);
    append(segment, payload);
    return segment;
}

Bytes ReadRequest::header() const {
    Bytes octets;
    put32(octets, sink_stag);
    put64(octets, sink_to);
    put32(octets, size);
    put32(octets, src_stag);
    put64(octets, src_to);
    return octets;
}

Bytes ReadRequest::bytes(uint32_t msn) const {
    return Untagged{
        .rdmap = kRdmapVersion | kOpReadRequest, .qn = 1, .msn = msn, .payload = header()}
        .bytes();
}

ReadRequest ReadRequest::parse(View header) {
    return {get32(header, 0), get64(header, 4), get32(header, 12), get32(header, 16),
            get64(header, 20)};
}

AtomicRequest AtomicRequest::fetch_add(uint32_t id, uint32_t stag, uint64_t to, uint64_t add) {
    return {.opcode = kFetchAdd, .id = id, .stag = stag, .to = to, .data = add};
}

AtomicRequest AtomicRequest::cmp_swap(uint32_t id, uint32_t stag, uint64_t to, uint64_t compare,
                                      uint64_t swap) {
    return {.opcode = kCmpSwap,
            .id = id,
            .stag = stag,
            .to = to,
            .data = swap,
            .mask = ~uint64_t{0},
            .compare = compare};
}

Bytes AtomicRequest::payload() const {
    Bytes octets;
    put32(octets, opcode);
    put32(octets, id);
    put32(octets, stag);
    for (uint64_t word : {to, data, mask, compare, compare_mask})
        put64(octets, word);
    return octets;
}

Bytes AtomicRequest::bytes(uint32_t msn) const {
    return Untagged{
        .rdmap = kRdmapVersion | kOpAtomicRequest, .qn = 1, .msn = msn, .payload = payload()}
        .bytes();
}

AtomicRequest AtomicRequest::parse(View payload) {
    return {get32(payload, 0),  get32(payload, 4),  get32(payload, 8),  get64(payload, 12),
            get64(payload, 20), get64(payload, 28), get64(payload, 36), get64(payload, 44)};
}

Bytes AtomicResponse::payload() const {
    Bytes octets;
    put32(octets, id);
    put64(octets, value);
    return octets;
}

Bytes AtomicResponse::bytes(uint32_t msn) const {
    return Untagged{
        .rdmap = kRdmapVersion | kOpAtomicResponse, .qn = 3, .msn = msn, .payload = payload()}
        .bytes();
}

AtomicResponse AtomicResponse::parse(View payload) {
    return {get32(payload, 0), get64(payload, 4)};
}

Bytes Immediate::payload() const {
    Bytes octets;
    put32(octets, value);
    put32(octets, rest);
    return octets;
}

Bytes Immediate::bytes(uint32_t msn) const {
    uint8_t opcode = solicited ? kOpImmediateSolicited : kOpImmediate;
    return Untagged{
        .rdmap = static_cast<uint8_t>(kRdmapVersion | opcode), .msn = msn, .payload = payload()}
        .bytes();
}

Immediate Immediate::parse(View payload) {
    return {.value = get32(payload, 0), .rest = get32(payload, 4)};
}

Segment Segment::parse(View ulpdu) {
    want(ulpdu, 0, 2);
    Segment segment;
    segment.ddp = ulpdu[0];
    segment.rdmap = ulpdu[1];
    size_t header = segment.tagged() ? kTaggedHeader : kUntaggedHeader;
    want(ulpdu, 0, header);
    if (segment.tagged()) {
        segment.stag = get32(ulpdu, 2);
        segment.to = get64(ulpdu, 6);
    } else {
        segment.invalidate = get32(ulpdu, 2);
        segment.qn = get32(ulpdu, 6);
        segment.msn = get32(ulpdu, 10);
        segment.mo = get32(ulpdu, 14);
    }
    segment.payload = part(ulpdu, header, ulpdu.size() - header);
    return segment;
}

std::string Segment::text() const {
    if (tagged())
        return fmt::format("ddp {:#04x} rdmap {:#04x} stag {:#x} to {:#x} payload {}", ddp, rdmap,
                           stag, to, hex(payload, 32));
    return fmt::format("ddp {:#04x} rdmap {:#04x} inv {:#x} qn {} msn {} mo {} payload {}", ddp,
                       rdmap, invalidate, qn, msn, mo, hex(payload, 32));
}

Bytes Terminate::payload() const {
    Bytes octets{static_cast<uint8_t>(layer << 4 | etype), code};
    put16(octets, static_cast<uint16_t>((m ? 0x8000U : 0) | (d ? 0x4000U : 0) | (r ? 0x2000U : 0) |
                                        (reserved & 0x1fffU)));
    if (d) {
        put16(octets, length);
        append(octets, ddp_header);
    }
    if (r)
        append(octets, rdma_header);
    append(octets, rest);
    return octets;
}

Bytes Terminate::bytes() const {
    return Untagged{.rdmap = kRdmapVersion | kOpTerminate, .qn = 2, .payload = payload()}.bytes();
}

std::string Terminate::text() const {
    return fmt::format("{}/{}/{:#04x}{}{}{}", layer, etype, code, m ? " M" : "", d ? " D" : "",
                       r ? " R" : "");
}

Terminate Terminate::parse(View payload) {
    want(payload, 0, 4);
    Terminate term;
    term.layer = payload[0] >> 4;
    term.etype = payload[0] & 0x0f;
    term.code = payload[1];
    unsigned control = get16(payload, 2);
    term.m = (control & 0x8000) != 0;
    term.d = (control & 0x4000) != 0;
    term.r = (control & 0x2000) != 0;
    term.reserved = control & 0x1fff;
    size_t at = 4;
    if (term.d) {
        term.length = get16(payload, at);
        at += 2;
        want(payload, at, 1);
        size_t header = (payload[at] & kDdpTagged) != 0 ? kTaggedHeader : kUntaggedHeader;
        term.ddp_header = part(payload, at, header);
        at += header;
    }
    if (term.r) {
        term.rdma_header = part(payload, at, kReadHeader);
        at += kReadHeader;
    }
    term.rest = part(payload, at, payload.size() - at);
    return term;
}

/* FPDUs --------------------------------------------------------------------- */

Bytes FpduWriter::encode(const FpduSpec &spec) {
    Bytes content;
    put16(content, spec.length.value_or(static_cast<uint16_t>(spec.ulpdu.size())));
    append(content, spec.ulpdu);
    append(content, spec.pad.value_or(Bytes(pad_of(spec.ulpdu.size()))));

    Bytes out;
    auto place_marker = [&](uint16_t fpduptr) {
        uint32_t value = marker_value ? marker_value(position_, fpduptr) : fpduptr;
        put32(out, value);
        position_ += kMarkerSize;
    };
    auto due = [&] { return markers_ && position_ % kMarkerDistance == 0; };

    /* In front of ULPDU_Length it belongs to this FPDU and points nowhere back. */
    if (due())
        place_marker(0);
    uint64_t start = position_;
    for (uint8_t octet : content) {
        if (due())
            place_marker(static_cast<uint16_t>(position_ - start));
        out.push_back(octet);
        position_++;
    }
    /* Between pad and CRC: still inside, and covered. */
    if (due())
        place_marker(static_cast<uint16_t>(position_ - start));

    uint32_t crc = 0;
    if (spec.crc != Crc::zero)
        crc = crc32c(out) ^ (spec.crc == Crc::bad ? 1U : 0);
    for (int i = 0; i < 4; i++) {
        /* With a pad that leaves the words, even a CRC may be cut. */
        if (i > 0 && due())
            place_marker(static_cast<uint16_t>(position_ - start));
        out.push_back(static_cast<uint8_t>(crc >> (8 * i)));
        position_++;
    }
    return out;
}

bool Fpdu::markers_good() const {
    for (const Marker &marker : markers)
        if (!marker.good())
            return false;
    return true;
}

bool Fpdu::pad_zero() const {
    for (uint8_t octet : pad)
        if (octet != 0)
            return false;
    return true;
}

Bytes FpduReader::take(const Source &source, size_t count, Fpdu &fpdu, Bytes &covered) {
    Bytes content;
    while (count > 0) {
        if (markers_ && position_ % kMarkerDistance == 0) {
            Bytes octets = source(kMarkerSize);
            append(fpdu.raw, octets);
            append(covered, octets);
            bool inside = fpdu.raw.size() > kMarkerSize;
            if (!inside)
                fpdu.start = position_ + kMarkerSize;
            fpdu.markers.push_back(
                Marker{position_, get16(octets, 0), get16(octets, 2),
                       static_cast<uint16_t>(inside ? position_ - fpdu.start : 0)});
            position_ += kMarkerSize;
        }
        size_t piece = count;
        if (markers_)
            piece = std::min<size_t>(piece, kMarkerDistance - position_ % kMarkerDistance);
        Bytes octets = source(piece);
        append(fpdu.raw, octets);
        append(covered, octets);
        append(content, octets);
        position_ += piece;
        count -= piece;
    }
    return content;
}

Fpdu FpduReader::decode(const Source &source) {
    Fpdu fpdu;
    Bytes covered;
    fpdu.start = position_;
    Bytes length = take(source, 2, fpdu, covered);
    size_t size = get16(length, 0);
    fpdu.ulpdu = take(source, size, fpdu, covered);
    fpdu.pad = take(source, pad_of(size), fpdu, covered);

    /* A marker right before the CRC is covered by it. */
    Bytes behind;
    Bytes crc = take(source, 4, fpdu, behind);
    behind.resize(behind.size() - 4);
    append(covered, behind);
    for (int i = 0; i < 4; i++)
        fpdu.crc |= static_cast<uint32_t>(crc[i]) << (8 * i);
    fpdu.crc_good = fpdu.crc == crc32c(covered);
    return fpdu;
}

Bytes fpdu(View ulpdu) {
    return FpduWriter().encode(ulpdu);
}

size_t fpdu_size(size_t ulpdu) {
    return 2 + ulpdu + pad_of(ulpdu) + 4;
}

} // namespace softwarp::wire
