// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Where a message is cut: any MSS, any header, messages of any length one after
 * the other.  Lengths and pads are compared with a computation of their own.
 */
#include "input.hpp"

using softwarp::fuzz::Input;

namespace {

/* RFC 5044 section 4.1, octet by octet */
uint32_t fpdu_length(uint32_t ulpdu) {
    uint32_t n = 2 + ulpdu;
    while (n % 4 != 0)
        n++;
    return n + 4;
}

/* RFC 5044 section 4.3, marker by marker: so many octets from `pos` on, with theirs */
uint32_t with_markers(uint32_t pos, uint32_t octets) {
    uint32_t n = 0;
    while (octets != 0) {
        if ((pos + n) % 512 == 0)
            n += 4;
        uint32_t step = 512 - (pos + n) % 512;
        if (step > octets)
            step = octets;
        n += step;
        octets -= step;
    }
    return n;
}

void check_markers(uint32_t pos, uint32_t octets, uint32_t room) {
    pos &= ~3U;
    octets &= 0xffff;
    room &= 0xfffc;
    CHECK(swp_marked_len(pos, octets) == with_markers(pos, octets));
    CHECK((pos + swp_marker_gap(pos)) % 512 == 0 && swp_marker_gap(pos) < 512);
    uint32_t fit = swp_marked_fit(pos, room);
    CHECK(with_markers(pos, fit) <= room && with_markers(pos, fit + 1) > room);
    uint32_t head = swp_fpdu_head(pos);
    CHECK(head % 512 != 0 && head - pos <= 4);
    if (head != pos)
        CHECK(swp_fpduptr(pos, head) == 0);
    uint32_t inside = head + swp_marker_gap(head);
    CHECK(swp_fpduptr(inside, head) == static_cast<uint16_t>(inside - head));
}

/* The stream as far as it has been sent. */
struct Place {
    uint32_t segment = 0; // octets in the segment that is being filled
    uint32_t stream = 0;  // octets in all
};

bool cut(bool markers, uint32_t mss, const Place &at, uint32_t hdr, uint32_t left,
         uint32_t *payload) {
    return markers ? swp_cut_marked(mss, at.segment, at.stream, hdr, left, payload)
                   : swp_cut(mss, at.segment, hdr, left, payload);
}

/* Sends one message. */
void send(bool markers, uint32_t mss, Place &at, uint32_t hdr, uint32_t left) {
    /* longer ones only repeat what was seen */
    for (int fpdus = 0; fpdus < 64; fpdus++) {
        uint32_t payload = 0;
        if (!cut(markers, mss, at, hdr, left, &payload)) {
            CHECK(at.segment != 0);
            at.segment = 0;
            CHECK(cut(markers, mss, at, hdr, left, &payload));
        }
        CHECK(payload <= left && payload <= SWP_MULPDU_MAX - hdr);
        CHECK(left == 0 || payload != 0);
        uint32_t length = fpdu_length(hdr + payload);
        CHECK(length == swp_fpdu_len(hdr + payload) && length % 4 == 0);
        CHECK(length == 2 + hdr + payload + swp_fpdu_pad(hdr + payload) + 4);
        if (markers)
            length = with_markers(at.stream, length);
        /* an FPDU leaves its segment only where the EMSS is useless, RFC 5044 section 5 */
        if (at.segment + length > mss)
            CHECK(at.segment == 0 && swp_mulpdu(mss, markers) < SWP_MULPDU_MIN);
        left -= payload;
        at.segment = (at.segment + length) % mss;
        at.stream += length;
        if (left == 0)
            return;
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    /* the engine takes what TCP says less its options, down to a multiple of 4 */
    uint32_t mss = in.u16() & ~3U;
    if (mss < 8)
        mss = 8;

    uint32_t room = in.u32();
    uint32_t fit = swp_ulpdu_fit(room);
    CHECK(fit <= SWP_MULPDU_MAX);
    if (fit != 0) {
        CHECK(fpdu_length(fit) <= room);
        CHECK(fpdu_length(fit + 1) > (room & ~3U) || fit == SWP_MULPDU_MAX);
    } else {
        CHECK(room < fpdu_length(2));
    }
    check_markers(room, mss * 7, room >> 16);

    /* a start-up frame of any length may be in front of the first FPDU */
    Place plain, marked;
    plain.segment = marked.segment = (room >> 8) % mss;
    for (int messages = 0; messages < 16 && in.left() >= 4; messages++) {
        static const uint32_t headers[] = {SWP_TAGGED_LEN, SWP_UNTAGGED_LEN, SWP_MAX_HDR,
                                           SWP_UNTAGGED_LEN + SWP_TERM_MAX};
        uint32_t word = in.u32();
        /* a few octets, or as many as fit the field but a few: a peer asks for either */
        uint32_t left = word >> (word & 31);
        if ((word & 0x80) != 0)
            left = ~left;
        uint32_t hdr = headers[(word >> 5) & 3];
        send(false, mss, plain, hdr, left);
        send(true, mss, marked, hdr, left);
    }
    return 0;
}
