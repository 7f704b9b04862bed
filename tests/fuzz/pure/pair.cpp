// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The private data of queue pairs that ibv_modify_qp() connects: a message of a
 * peer, and what two ends with views of any kind decide.
 */
#include "input.hpp"

extern "C" {
#include "proto/pair.h"
}

using softwarp::fuzz::Exact;
using softwarp::fuzz::Input;

namespace {

void check_message(const Exact &octets, const swp_pair_msg &m) {
    CHECK(octets.size() == SWP_PAIR_LEN);
    CHECK((m.kind == SWP_PAIR_REFUSAL) == (m.reason != SWP_PAIR_NO_REASON));
    CHECK(m.view.self.qpn <= SWP_PAIR_24_BITS && m.view.peer.qpn <= SWP_PAIR_24_BITS);
    CHECK(m.view.recv_psn <= SWP_PAIR_24_BITS);
    CHECK(m.view.send_psn <= SWP_PAIR_24_BITS || m.view.send_psn == SWP_PAIR_PSN_NONE);
    uint8_t again[SWP_PAIR_LEN];
    swp_pair_encode(&m, again);
    CHECK(std::memcmp(again, octets.get(), SWP_PAIR_LEN) == 0);
}

/* One octet of a view, or none, is another one. */
swp_pair_view changed(const swp_pair_view &v, Input &in) {
    swp_pair_view other = v;
    switch (in.u8() % 8) {
    case 0: other.self.gid[in.u8() % SWP_PAIR_GID_LEN] ^= in.u8(); break;
    case 1: other.peer.gid[in.u8() % SWP_PAIR_GID_LEN] ^= in.u8(); break;
    case 2: other.self.qpn ^= in.u8(); break;
    case 3: other.peer.qpn ^= in.u8(); break;
    case 4: other.recv_psn ^= in.u8(); break;
    case 5: other.send_psn ^= in.u8(); break;
    case 6: other.send_psn = SWP_PAIR_PSN_NONE; break;
    default: break;
    }
    return other;
}

void check_decision(const swp_pair_view &a, Input &in) {
    swp_pair_view mirror{};
    mirror.self = a.peer;
    mirror.peer = a.self;
    mirror.recv_psn = a.send_psn;
    mirror.send_psn = a.recv_psn;
    const swp_pair_view b = changed(mirror, in);
    const swp_pair_verdict verdict = swp_pair_compare(&a, &b);
    /* both ends come to the same result, and exactly one of them connects */
    CHECK(verdict == swp_pair_compare(&b, &a));
    const int order = swp_pair_order(&a.self, &a.peer), other = swp_pair_order(&a.peer, &a.self);
    CHECK((order < 0) == (other > 0) && (order == 0) == (other == 0));
    if (verdict != SWP_PAIR_FITS)
        return;
    /* only the PSN that one end does not know yet may differ */
    CHECK(std::memcmp(&b.self, &mirror.self, sizeof(b.self)) == 0);
    CHECK(std::memcmp(&b.peer, &mirror.peer, sizeof(b.peer)) == 0);
    CHECK(a.send_psn == SWP_PAIR_PSN_NONE || a.send_psn == b.recv_psn);
    CHECK(b.send_psn == SWP_PAIR_PSN_NONE || b.send_psn == a.recv_psn);
    CHECK(a.send_psn != SWP_PAIR_PSN_NONE || b.send_psn != SWP_PAIR_PSN_NONE);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    const size_t len = in.left() < SWP_PAIR_LEN + 8 ? in.left() : SWP_PAIR_LEN + in.u8() % 8U;
    const Exact octets(in.rest(), len < in.left() ? len : in.left());
    swp_pair_msg m{};
    const int ret = swp_pair_decode(octets.get(), octets.size(), &m);
    if (ret == 0)
        check_message(octets, m);
    else
        CHECK(ret == -EBADMSG || ret == -EPROTONOSUPPORT || ret == -EPROTO);

    swp_pair_view view{};
    for (uint8_t &octet : view.self.gid)
        octet = in.u8();
    for (uint8_t &octet : view.peer.gid)
        octet = in.u8();
    view.self.qpn = in.u32() & SWP_PAIR_24_BITS;
    view.peer.qpn = in.u32() & SWP_PAIR_24_BITS;
    view.recv_psn = in.u32() & SWP_PAIR_24_BITS;
    view.send_psn = (in.u8() & 1) != 0 ? SWP_PAIR_PSN_NONE : in.u32() & SWP_PAIR_24_BITS;
    check_decision(view, in);

    uint8_t address[SWP_PAIR_GID_LEN];
    if (swp_gid_kind(view.self.gid) == SWP_GID_MAC) {
        swp_gid_from_mac(view.self.gid, address);
        CHECK(swp_gid_kind(address) == SWP_GID_LINK_LOCAL);
    }
    const uint32_t least = in.u16(), most = in.u32();
    CHECK(swp_pair_patience(in.u8(), in.u8(), least, most) <= most);
    CHECK(swp_pair_pause(in.u32()) <= SWP_PAIR_PAUSE_MAX);
    return 0;
}
