// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two ends with wishes of any kind go through start-up, over the wire format;
 * then the responder meets any Request, the initiator any Reply.
 */
#include "input.hpp"

using softwarp::fuzz::Exact;
using softwarp::fuzz::Input;

namespace {

swp_mpa_local wishes(Input &in) {
    swp_mpa_local l{};
    uint8_t flags = in.u8();
    l.max_ird = in.u16() & (SWP_MPA_DEPTH_NONE - 1);
    l.ird = in.u16() & (SWP_MPA_DEPTH_NONE - 1);
    l.ord = in.u16() & (SWP_MPA_DEPTH_NONE - 1);
    l.rtr = flags & (SWP_RTR_SEND | SWP_RTR_WRITE | SWP_RTR_READ);
    if (l.rtr == 0)
        l.rtr = SWP_RTR_WRITE;
    l.crc = (flags & 0x80) != 0;
    l.p2p = (flags & 0x40) != 0;
    l.markers = (flags & 0x20) != 0;
    return l;
}

swp_mpa_frame any_frame(Input &in, swp_mpa_kind kind) {
    swp_mpa_frame f{};
    uint8_t flags = in.u8();
    f.rev = (flags & 1) != 0 ? 2 : 1;
    f.markers = (flags & 2) != 0;
    f.crc = (flags & 4) != 0;
    f.reject = kind == SWP_MPA_REPLY && (flags & 8) != 0;
    if (f.rev == 1 && (flags & 0x40) != 0) {
        f.rev = SWP_MPA_REV_RDMAC;
        f.markers = f.crc = true;
    }
    f.enhanced = f.rev == 2 && (flags & 0x10) != 0;
    if (f.enhanced) {
        f.p2p = (flags & 0x20) != 0;
        uint8_t rtr = in.u8() & (SWP_RTR_SEND | SWP_RTR_WRITE | SWP_RTR_READ);
        f.rtr = f.p2p ? rtr : 0;
        f.ird = in.u16() & SWP_MPA_DEPTH_NONE;
        f.ord = in.u16() & SWP_MPA_DEPTH_NONE;
    }
    return f;
}

/* The frame as the other end sees it. */
swp_mpa_frame over_the_wire(swp_mpa_kind kind, const swp_mpa_frame &sent) {
    uint8_t buf[SWP_MPA_FRAME_MAX];
    int len = swp_mpa_encode(kind, &sent, buf);
    CHECK(len >= SWP_MPA_HDR_LEN && len <= SWP_MPA_FRAME_MAX);
    swp_mpa_frame got{};
    size_t need = 0;
    Exact octets(buf, static_cast<size_t>(len));
    CHECK(swp_mpa_decode(kind, SWP_MPA_REV_RDMAC, SWP_MPA_REV_MAX, octets.get(), octets.size(),
                         &got, &need) == 0);
    got.pd = nullptr;
    CHECK(got.rev == sent.rev && got.crc == sent.crc && got.markers == sent.markers &&
          got.reject == sent.reject && got.enhanced == sent.enhanced && got.p2p == sent.p2p &&
          got.rtr == sent.rtr && got.ird == sent.ird && got.ord == sent.ord);
    return got;
}

bool one_bit(uint8_t bits) {
    return bits != 0 && (bits & (bits - 1)) == 0;
}

void check_responder(const swp_mpa_local &l, const swp_mpa_frame &req) {
    swp_mpa_frame rep{};
    swp_mpa_result res{};
    swp_mpa_respond(&l, &req, &rep, &res);
    CHECK(res.tx_markers == req.markers && res.rx_markers == rep.markers);
    CHECK(rep.markers == (l.markers || req.rev == SWP_MPA_REV_RDMAC));
    CHECK(!rep.reject && rep.rev == req.rev && rep.enhanced == req.enhanced);
    CHECK(rep.p2p == req.p2p && (!rep.p2p || rep.rtr != 0));
    CHECK(res.rtr == (req.p2p ? rep.rtr : 0));
    CHECK(res.crc == rep.crc && (res.crc || (!l.crc && !req.crc)));
    CHECK(res.ird <= l.max_ird || (res.ird == 1 && (rep.rtr & SWP_RTR_READ) != 0));
    CHECK(res.ord <= l.ord);
    if (req.enhanced && req.ird != SWP_MPA_DEPTH_NONE)
        CHECK(res.ord <= req.ird && rep.ord == res.ord);
    if (req.enhanced && req.ord != SWP_MPA_DEPTH_NONE)
        CHECK(rep.ird == res.ird);
    over_the_wire(SWP_MPA_REPLY, rep);
    swp_mpa_refuse(&l, &req, &rep);
    CHECK(rep.reject && rep.rev == req.rev && rep.enhanced == req.enhanced);
    over_the_wire(SWP_MPA_REPLY, rep);
}

void check_initiator(const swp_mpa_local &l, const swp_mpa_frame &req, const swp_mpa_frame &rep) {
    swp_mpa_result res{};
    switch (swp_mpa_conclude(&l, &req, &rep, &res)) {
    case SWP_MPA_AGREED: break;
    case SWP_MPA_REJECTED: CHECK(rep.reject); return;
    default: CHECK(!rep.reject); return;
    }
    CHECK(!rep.reject && rep.enhanced == req.enhanced);
    CHECK(res.crc == (req.crc || rep.crc));
    CHECK(res.ird <= l.max_ird);
    CHECK(res.tx_markers == rep.markers);
    CHECK(res.rx_markers == (req.markers || rep.rev == SWP_MPA_REV_RDMAC));
    CHECK(res.ord <= l.ord || (res.ord == 1 && res.rtr == SWP_RTR_READ));
    if (req.enhanced && rep.ird != SWP_MPA_DEPTH_NONE)
        CHECK(res.ord <= rep.ird || (res.ord == 1 && res.rtr == SWP_RTR_READ));
    if (req.enhanced && rep.ord != SWP_MPA_DEPTH_NONE)
        CHECK(res.ird >= rep.ord);
    if (req.enhanced && (req.p2p || rep.p2p))
        CHECK(one_bit(res.rtr) && (res.rtr & l.rtr & rep.rtr) == res.rtr);
    else
        CHECK(res.rtr == 0);
}

/* Both ends are ours: neither may be asked for more than it granted. */
void check_both(const swp_mpa_local &active, const swp_mpa_local &passive, uint8_t rev) {
    swp_mpa_frame req{};
    swp_mpa_request(&active, rev, &req);
    CHECK(req.rev == (req.enhanced ? rev : 1));
    /* what needs the enhanced format has it */
    CHECK(rev < 2 || req.enhanced == (active.p2p || active.ird != 0 || active.ord != 0));
    swp_mpa_frame seen = over_the_wire(SWP_MPA_REQUEST, req);
    swp_mpa_frame rep{};
    swp_mpa_result here{}, there{};
    swp_mpa_respond(&passive, &seen, &rep, &there);
    swp_mpa_frame answer = over_the_wire(SWP_MPA_REPLY, rep);
    if (swp_mpa_conclude(&active, &req, &answer, &here) != SWP_MPA_AGREED)
        return;
    CHECK(here.crc == there.crc);
    CHECK(here.tx_markers == there.rx_markers && here.rx_markers == there.tx_markers);
    if (!req.enhanced)
        return;
    CHECK((here.rtr & there.rtr) == here.rtr);
    CHECK(here.ord <= there.ird);
    CHECK(there.ord <= here.ird);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    uint8_t rev = (in.u8() & 1) != 0 ? 2 : 1;
    swp_mpa_local active = wishes(in);
    swp_mpa_local passive = wishes(in);
    check_both(active, passive, rev);
    check_responder(passive, any_frame(in, SWP_MPA_REQUEST));
    swp_mpa_frame req{};
    swp_mpa_request(&active, rev, &req);
    check_initiator(active, req, any_frame(in, SWP_MPA_REPLY));
    return 0;
}
