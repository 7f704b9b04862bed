// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One ULPDU: DDP and RDMAP headers, the Read Request, the Terminate that a bad
 * one earns, Terminates that come in, and atomics.  The first octet of the input
 * says what the receiver takes, the next two are the ULPDU_Length, which may
 * promise more than there is, as it does in the engine, where only the headers
 * are at hand.
 */
#include "input.hpp"

using softwarp::fuzz::Exact;
using softwarp::fuzz::Input;

namespace {

bool in_tables(const swp_term &t) {
    switch (t.layer << 4 | t.etype) {
    case SWP_LAYER_RDMAP << 4 | SWP_RDMAP_ET_LOCAL:
    case SWP_LAYER_DDP << 4 | SWP_DDP_ET_LOCAL: return t.code == 0;
    case SWP_LAYER_RDMAP << 4 | SWP_RDMAP_ET_PROT: return t.code <= 4 || t.code == 9;
    case SWP_LAYER_RDMAP << 4 | SWP_RDMAP_ET_OP:
        return (t.code >= 5 && t.code <= 9) || t.code == 0xff;
    case SWP_LAYER_DDP << 4 | SWP_DDP_ET_TAGGED: return t.code <= 4;
    case SWP_LAYER_DDP << 4 | SWP_DDP_ET_UNTAGGED: return t.code >= 1 && t.code <= 6;
    default: return false;
    }
}

void check_segment(const swp_seg &seg, uint32_t ulpdu_len, const uint8_t *octets, unsigned accept) {
    CHECK(seg.hdr_len == (seg.tagged ? SWP_TAGGED_LEN : SWP_UNTAGGED_LEN));
    CHECK(seg.payload + seg.hdr_len == ulpdu_len);
    bool rdmac = (accept & SWP_ACCEPT_RDMAC) != 0;
    bool ext = (accept & SWP_ACCEPT_EXT) != 0;
    CHECK(seg.opcode <= (ext ? SWP_RDMAP_ATOMIC_RESP : SWP_RDMAP_TERMINATE));
    CHECK(seg.tagged || seg.qn <= (ext ? SWP_QN_ATOMIC_RESP : SWP_QN_TERMINATE));
    CHECK(seg.tagged == (seg.opcode == SWP_RDMAP_WRITE || seg.opcode == SWP_RDMAP_READ_RESP));
    CHECK(seg.tagged == ((octets[0] & 0x80) != 0) && seg.last == ((octets[0] & 0x40) != 0));

    uint8_t again[SWP_UNTAGGED_LEN];
    if (seg.tagged)
        swp_tagged_encode(again, seg.opcode, seg.last, seg.stag, seg.to);
    else
        swp_untagged_encode(again, seg.opcode, seg.last, seg.stag, seg.qn, seg.msn, seg.mo);
    /* all but reserved bits comes back, versions as 01b */
    unsigned ddp = octets[0] & 0x03, rdmap = octets[1] & 0xc0;
    CHECK(ddp == (rdmac ? 0U : 0x01U));
    CHECK(rdmap == (rdmac ? 0U : 0x40U));
    CHECK(again[0] == ((octets[0] & 0xc0) | 0x01) && again[1] == ((octets[1] & 0x0f) | 0x40));
    CHECK(std::memcmp(again + 2, octets + 2, seg.hdr_len - 2U) == 0);
}

void check_terminate(const swp_term &t, const uint8_t *ddp, uint32_t ddp_len, uint16_t seg_len,
                     const uint8_t *rreq) {
    uint8_t buf[SWP_TERM_MAX];
    uint32_t len = swp_term_encode(buf, &t, ddp, ddp_len, seg_len, rreq);
    CHECK(len <= SWP_TERM_MAX && len == (ddp == nullptr ? 4 : 6 + ddp_len + (rreq ? 28 : 0)));
    swp_term back{};
    uint32_t msn = 0;
    const uint8_t *inside = nullptr;
    Exact octets(buf, len);
    CHECK(swp_term_decode(octets.get(), len, &back, &msn, &inside) == 0);
    CHECK(back.layer == t.layer && back.etype == t.etype && back.code == t.code);
    CHECK((inside != nullptr) == (rreq != nullptr));
    if (inside != nullptr)
        CHECK(std::memcmp(inside, rreq, SWP_READ_REQ_LEN) == 0);
    if (ddp != nullptr && ddp_len == SWP_UNTAGGED_LEN)
        CHECK(msn == (static_cast<uint32_t>(ddp[10]) << 24 | static_cast<uint32_t>(ddp[11]) << 16 |
                      static_cast<uint32_t>(ddp[12]) << 8 | ddp[13]));
}

/* RFC 7306 section 5.1.1, bit by bit. */
uint64_t add_slowly(uint64_t old, uint64_t add, uint64_t mask) {
    uint64_t result = 0;
    unsigned carry = 0;
    for (unsigned i = 0; i < 64; i++) {
        unsigned sum = (old >> i & 1) + (add >> i & 1) + carry;
        result |= static_cast<uint64_t>(sum & 1) << i;
        carry = (mask >> i & 1) != 0 ? 0 : sum >> 1;
    }
    return result;
}

/* Section 5.1.2. */
uint64_t swap_slowly(const swp_atomic &a, uint64_t old) {
    uint64_t result = 0;
    for (unsigned i = 0; i < 64; i++) {
        uint64_t bit = uint64_t{1} << i;
        if ((a.compare_mask & bit) != 0 && (old & bit) != (a.compare & bit))
            return old;
        result |= ((a.mask & bit) != 0 ? a.data : old) & bit;
    }
    return result;
}

void check_atomic(const uint8_t *octets, uint64_t old) {
    swp_atomic a{};
    int ret = swp_atomic_decode(octets, &a);
    CHECK(a.op == (octets[3] & 0x0f));
    CHECK(ret == (a.op == SWP_ATOMIC_FETCH_ADD || a.op == SWP_ATOMIC_CMP_SWAP ? 0 : -EPROTO));
    if (ret != 0)
        return;
    bool add = a.op == SWP_ATOMIC_FETCH_ADD;
    CHECK(swp_atomic_result(&a, old) ==
          (add ? add_slowly(old, a.data, a.mask) : swap_slowly(a, old)));

    uint8_t again[SWP_ATOMIC_REQ_LEN];
    swp_atomic_encode(again, &a);
    CHECK(again[0] == 0 && again[1] == 0 && again[2] == 0 && again[3] == a.op);
    CHECK(std::memcmp(again + 4, octets + 4, (add ? 36 : SWP_ATOMIC_REQ_LEN) - 4U) == 0);
    for (size_t i = 36; add && i < SWP_ATOMIC_REQ_LEN; i++)
        CHECK(again[i] == (i < 44 ? 0 : 0xff));
}

void check_atomic_response(const uint8_t *octets) {
    __u32 id = 0;
    __u64 value = 0;
    swp_atomic_resp_decode(octets, &id, &value);
    uint8_t again[SWP_ATOMIC_RESP_LEN];
    swp_atomic_resp_encode(again, id, value);
    CHECK(std::memcmp(again, octets, sizeof(again)) == 0);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    unsigned accept = in.u8() & (SWP_ACCEPT_RDMAC | SWP_ACCEPT_EXT);
    uint32_t ulpdu_len = in.u16();
    /* what the engine has at hand of it */
    size_t hand = ulpdu_len < SWP_MAX_HDR ? ulpdu_len : SWP_MAX_HDR;
    uint8_t whole[SWP_MAX_HDR] = {};
    std::memcpy(whole, in.rest(), in.left() < hand ? in.left() : hand);
    Exact head(whole, hand < SWP_UNTAGGED_LEN ? hand : SWP_UNTAGGED_LEN);

    swp_seg seg{};
    swp_fault fault = swp_seg_decode(head.get(), ulpdu_len, accept, &seg);
    CHECK(fault < SWP_FAULT_UNKNOWN);
    swp_term term = swp_fault_term(fault);
    bool is_rreq = false;
    if (fault == SWP_FAULT_NONE) {
        check_segment(seg, ulpdu_len, head.get(), accept);
        is_rreq = seg.opcode == SWP_RDMAP_READ_REQ && hand == SWP_MAX_HDR;
        term = {SWP_LAYER_RDMAP, SWP_RDMAP_ET_PROT, SWP_RP_BOUNDS};
    } else {
        CHECK(in_tables(term) && swp_fault_of(&term) == fault);
    }
    check_terminate(term, nullptr, 0, 0, nullptr);
    if (seg.hdr_len != 0 && hand >= seg.hdr_len)
        check_terminate(term, whole, seg.hdr_len, static_cast<uint16_t>(ulpdu_len),
                        is_rreq ? whole + SWP_UNTAGGED_LEN : nullptr);

    if (is_rreq) {
        Exact octets(whole + SWP_UNTAGGED_LEN, SWP_READ_REQ_LEN);
        swp_rreq r{};
        swp_rreq_decode(octets.get(), &r);
        uint8_t again[SWP_READ_REQ_LEN];
        swp_rreq_encode(again, &r);
        CHECK(std::memcmp(again, octets.get(), sizeof(again)) == 0);
    }

    /* What is behind a header, as the payload of an atomic, and then the value it meets. */
    if (in.left() >= SWP_UNTAGGED_LEN + SWP_ATOMIC_RESP_LEN) {
        Exact octets(in.rest() + SWP_UNTAGGED_LEN, SWP_ATOMIC_RESP_LEN);
        check_atomic_response(octets.get());
    }
    if (in.left() >= SWP_UNTAGGED_LEN + SWP_ATOMIC_REQ_LEN) {
        Input behind(in.rest() + SWP_UNTAGGED_LEN + SWP_ATOMIC_REQ_LEN,
                     in.left() - SWP_UNTAGGED_LEN - SWP_ATOMIC_REQ_LEN);
        uint64_t old = static_cast<uint64_t>(behind.u32()) << 32;
        old |= behind.u32();
        Exact octets(in.rest() + SWP_UNTAGGED_LEN, SWP_ATOMIC_REQ_LEN);
        check_atomic(octets.get(), old);
    }

    /* The same octets as the payload of a Terminate of the peer's. */
    size_t left = in.left() < SWP_TERM_MAX ? in.left() : SWP_TERM_MAX;
    Exact payload(in.rest(), left);
    uint32_t msn = 1;
    const uint8_t *rreq = nullptr;
    int ret = swp_term_decode(payload.get(), static_cast<uint32_t>(left), &term, &msn, &rreq);
    CHECK(ret == (left < 4 ? -EPROTO : 0));
    CHECK(swp_fault_of(&term) > SWP_FAULT_NONE && swp_fault_blame(&term) <= SWP_BLAME_REQUEST);
    if (rreq != nullptr)
        CHECK(rreq >= payload.get() && rreq + SWP_READ_REQ_LEN <= payload.get() + left);
    return 0;
}
