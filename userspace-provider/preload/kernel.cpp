// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "kernel.hpp"

#include <softwarp_sdp.h>

namespace softwarp::preload {

int number_of(Policy policy) noexcept {
    switch (policy) {
    case Policy::sdp: return SDP_INFO_POLICY_SDP;
    case Policy::automatic: return SDP_INFO_POLICY_AUTO;
    case Policy::tcp: break;
    }
    return SDP_INFO_POLICY_TCP;
}

const char *sentence_of(unsigned reason) noexcept {
    switch (reason) {
    case SDP_INFO_REASON_POLICY: return "the policy allows nothing else";
    case SDP_INFO_REASON_NO_DEVICE: return "there is no RDMA device on the route";
    case SDP_INFO_REASON_NO_ANSWER: return "the peer's port mapper does not answer";
    case SDP_INFO_REASON_DENIED: return "the peer has no SDP port for this service";
    case SDP_INFO_REASON_REFUSED: return "nobody listens at the peer's SDP port";
    case SDP_INFO_REASON_SETUP: return "SDP's set-up failed";
    case SDP_INFO_REASON_PEER: return "the peer has connected by TCP";
    default: return "the kernel has a reason that is newer than this program";
    }
}

} // namespace softwarp::preload
