// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * MPA frames as they come from a peer: octet 0 of the input chooses the kind and
 * the highest revision, octet 1 where the stream is cut, the rest is the stream.
 */
#include "input.hpp"

using softwarp::fuzz::Exact;
using softwarp::fuzz::Input;

namespace {

/* How start-up reads: never more than asked for. */
int gather(swp_mpa_kind kind, uint8_t min_rev, uint8_t max_rev, const uint8_t *stream, size_t size,
           swp_mpa_frame *frame, std::unique_ptr<Exact> *kept, size_t *need) {
    size_t got = 0;
    for (;;) {
        *kept = std::make_unique<Exact>(stream, got);
        int ret = swp_mpa_decode(kind, min_rev, max_rev, (*kept)->get(), got, frame, need);
        if (ret != -EAGAIN)
            return ret;
        CHECK(*need > got && *need <= SWP_MPA_FRAME_MAX);
        if (got == size)
            return -EAGAIN;
        got = *need < size ? *need : size;
    }
}

bool same(const swp_mpa_frame &a, const swp_mpa_frame &b) {
    return a.rev == b.rev && a.markers == b.markers && a.crc == b.crc && a.reject == b.reject &&
           a.enhanced == b.enhanced && a.p2p == b.p2p && a.rtr == b.rtr && a.ird == b.ird &&
           a.ord == b.ord && a.pd_len == b.pd_len &&
           (a.pd_len == 0 || std::memcmp(a.pd, b.pd, a.pd_len) == 0);
}

void check_frame(swp_mpa_kind kind, uint8_t min_rev, uint8_t max_rev, const Exact &octets,
                 const swp_mpa_frame &frame, size_t need) {
    CHECK(need == octets.size());
    CHECK(frame.rev >= min_rev && frame.rev <= max_rev);
    CHECK(frame.rev != SWP_MPA_REV_RDMAC || frame.reject || (frame.markers && frame.crc));
    CHECK(!frame.enhanced || frame.rev >= 2);
    CHECK(!frame.reject || kind == SWP_MPA_REPLY);
    CHECK(frame.ird <= SWP_MPA_DEPTH_NONE && frame.ord <= SWP_MPA_DEPTH_NONE);
    CHECK(frame.p2p || frame.rtr == 0);
    CHECK((frame.rtr & ~(SWP_RTR_SEND | SWP_RTR_WRITE | SWP_RTR_READ)) == 0);
    size_t ahead = SWP_MPA_HDR_LEN + (frame.enhanced ? SWP_MPA_ENH_LEN : 0);
    CHECK(frame.pd == octets.get() + ahead);
    CHECK(ahead + frame.pd_len == octets.size());

    uint8_t again[SWP_MPA_FRAME_MAX];
    int len = swp_mpa_encode(kind, &frame, again);
    CHECK(len == static_cast<int>(octets.size()));
    swp_mpa_frame decoded;
    size_t decoded_need = 0;
    Exact encoded(again, static_cast<size_t>(len));
    CHECK(swp_mpa_decode(kind, min_rev, max_rev, encoded.get(), encoded.size(), &decoded,
                         &decoded_need) == 0);
    CHECK(same(frame, decoded));
    /* what is not flags comes back as it was */
    CHECK(std::memcmp(again, octets.get(), 16) == 0);
    CHECK(std::memcmp(again + 17, octets.get() + 17, 3) == 0);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    uint8_t choice = in.u8();
    uint8_t cut = in.u8();
    auto kind = (choice & 1) != 0 ? SWP_MPA_REPLY : SWP_MPA_REQUEST;
    uint8_t max_rev = (choice & 2) != 0 ? 1 : 2;
    uint8_t min_rev = (choice & 4) != 0 ? SWP_MPA_REV_RDMAC : SWP_MPA_REV_MIN;

    swp_mpa_frame frame{};
    std::unique_ptr<Exact> octets;
    size_t need = 0;
    int verdict = gather(kind, min_rev, max_rev, in.rest(), in.left(), &frame, &octets, &need);
    if (verdict == 0)
        check_frame(kind, min_rev, max_rev, *octets, frame, need);
    else
        CHECK(verdict == -EAGAIN || verdict == -EBADMSG || verdict == -EPROTONOSUPPORT ||
              verdict == -EMSGSIZE || verdict == -EPROTO);

    /* However much is there at once, the answer is the same. */
    Exact all(in.rest(), in.left());
    swp_mpa_frame at_once{};
    size_t at_once_need = 0;
    CHECK(swp_mpa_decode(kind, min_rev, max_rev, all.get(), all.size(), &at_once, &at_once_need) ==
          verdict);
    if (verdict == 0)
        CHECK(same(frame, at_once) && need == at_once_need);

    /* A beginning gives "more", or what the whole gives when that is an error. */
    Exact begin(in.rest(), in.left() < cut ? in.left() : cut);
    int early =
        swp_mpa_decode(kind, min_rev, max_rev, begin.get(), begin.size(), &at_once, &at_once_need);
    CHECK(early == -EAGAIN || early == verdict);
    return 0;
}
