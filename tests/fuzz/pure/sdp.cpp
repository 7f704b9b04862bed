// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * SDP messages and those of the port mapper as they come from a peer: octet 0 of
 * the input chooses the layout, the next four add to the length that RDMAP tells,
 * the rest is the message.
 */
#include "input.hpp"

extern "C" {
#include "proto/sdp/portmap.h"
#include "proto/sdp/wire.h"
}

using softwarp::fuzz::Exact;
using softwarp::fuzz::Input;

namespace {

void check_message(sdp_layout layout, const uint8_t *octets, uint32_t len, const sdp_msg &msg) {
    const struct sdp_kind kind = sdp_kind_of(msg.mid);
    CHECK(kind.header >= SDP_BSDH_LEN && kind.header <= SDP_HDR_MAX);
    CHECK(kind.header + msg.payload == len);
    CHECK(msg.payload == 0 || kind.payload);
    if (msg.mid == SDP_MID_SRC_AVAIL || msg.mid == SDP_MID_SINK_AVAIL)
        CHECK(msg.avail.len >= 1 && msg.avail.len <= SDP_SIZE_MAX);
    if (msg.mid == SDP_MID_MODE_CHANGE)
        CHECK(msg.mode.mode <= SDP_MODE_PIPELINED);

    uint8_t again[SDP_HDR_MAX];
    CHECK(sdp_encode(layout, &msg, again) == kind.header);
    sdp_msg back;
    CHECK(sdp_decode(layout, again, len, &back) == SDP_OK);
    CHECK(std::memcmp(&msg, &back, sizeof(msg)) == 0);
    /* all of it comes back, but for what is reserved in three extended headers */
    CHECK(std::memcmp(again, octets, SDP_BSDH_LEN) == 0);
    if (msg.mid != SDP_MID_MODE_CHANGE && msg.mid > SDP_MID_HELLO_ACK)
        CHECK(std::memcmp(again, octets, kind.header) == 0);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    sdp_layout layout = (in.u8() & 1) != 0 ? SDP_LAYOUT_IB : SDP_LAYOUT_DRAFT;
    uint32_t len = static_cast<uint32_t>(in.left() > 4 ? in.left() - 4 : 0);
    len += in.u32();
    /* what the engine has at hand of it; behind its end there are zeros */
    size_t hand = len < SDP_HDR_MAX ? len : SDP_HDR_MAX;
    uint8_t whole[SDP_HDR_MAX] = {};
    std::memcpy(whole, in.rest(), in.left() < hand ? in.left() : hand);
    Exact head(whole, hand);

    sdp_msg msg;
    sdp_violation wrong = sdp_decode(layout, head.get(), len, &msg);
    CHECK(wrong <= SDP_BAD_CONSTANT);
    if (wrong == SDP_OK)
        check_message(layout, head.get(), len, msg);
    if (wrong == SDP_OK && msg.mid == SDP_MID_HELLO && msg.flags == 0 && msg.bufs != 0) {
        sdp_layout found;
        CHECK(sdp_hello_layout(head.get(), &found) && found == layout);
    }

    Exact datagram(in.rest(), in.left());
    sdp_pm_msg pm;
    if (sdp_pm_decode(datagram.get(), static_cast<uint32_t>(datagram.size()), &pm) == 0) {
        CHECK(pm.type <= SDP_PM_DENY && (pm.version == 4 || pm.version == 6));
        uint8_t again[SDP_PM_LEN];
        sdp_pm_encode(&pm, again);
        CHECK(std::memcmp(again, datagram.get(), 2) == 0);
        CHECK(std::memcmp(again + 4, datagram.get() + 4, 16) == 0);
        /* all of the addresses that counts, and zeros for what does not */
        size_t counts = pm.version == 4 ? 4 : 16;
        for (size_t at : {16, 32}) {
            CHECK(std::memcmp(again + at, datagram.get() + at, counts) == 0);
            for (size_t i = counts; i < 16; i++)
                CHECK(again[at + i] == 0);
        }
        CHECK(sdp_pm_time_ms(pm.time) >= (pm.time == 0 ? 0U : 250U));
    }
    return 0;
}
