// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "peer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>

namespace softwarp::sockets {

using wire::Bytes;
using wire::View;

std::vector<Kind> sdp_kinds() {
    std::vector<Kind> kinds;
    for (const Kind &kind : all_kinds()) {
        if (std::string(kind.name).starts_with("sdp"))
            kinds.push_back(kind);
    }
    return kinds;
}

static sdp_offer good_offer() {
    sdp_offer offer{};
    offer.posted = 8 + SDP_BUFS_SPARE;
    offer.rcv_size = offer.want_size = 4096;
    offer.max_adverts = 1;
    offer.ird = offer.ord = 1;
    return offer;
}

sdp_msg good_hello() {
    sdp_offer offer = good_offer();
    sdp_msg msg{};
    sdp_hello_make(&offer, &msg);
    return msg;
}

sdp_msg good_hello_ack() {
    sdp_offer offer = good_offer();
    sdp_msg msg{};
    sdp_hello_ack_make(&offer, &msg);
    return msg;
}

std::vector<uint8_t> encode(const sdp_msg &msg, sdp_layout layout) {
    std::vector<uint8_t> octets(SDP_HDR_MAX);
    octets.resize(sdp_encode(layout, &msg, octets.data()));
    return octets;
}

sdp_msg message(sdp_mid mid) {
    sdp_msg msg{};
    msg.mid = mid;
    return msg;
}

sdp_msg src_avail(uint32_t len) {
    sdp_msg msg = message(SDP_MID_SRC_AVAIL);
    msg.avail.len = len;
    msg.avail.stag = 0x12345600;
    msg.avail.va = 0x1001;
    return msg;
}

Bytes Heard::payload() const {
    return {octets.end() - msg.payload, octets.end()};
}

/* Peer ------------------------------------------------------------------------ */

void Peer::say_octets(View octets, uint8_t opcode, uint32_t stag) {
    constexpr size_t most = 1000;

    msn_said_++;
    for (size_t at = 0; at == 0 || at < octets.size(); at += most) {
        View part = octets.subspan(at, std::min(most, octets.size() - at));
        wire::Untagged segment{.rdmap = static_cast<uint8_t>(wire::kRdmapVersion | opcode),
                               .invalidate = stag,
                               .msn = msn_said_,
                               .mo = static_cast<uint32_t>(at),
                               .payload = Bytes(part.begin(), part.end())};
        if (at + part.size() < octets.size())
            segment.ddp = wire::kDdpVersion;
        stream.say_ulpdu(segment.bytes());
    }
}

sdp_msg Peer::numbered(sdp_msg msg) {
    msg.mseq = said++;
    msg.mseq_ack = heard != 0 ? heard - 1 : 0;
    if (msg.bufs == 0)
        msg.bufs = 100;
    return msg;
}

void Peer::say(sdp_msg msg, View payload) {
    msg.payload = static_cast<uint32_t>(payload.size());
    say_octets(wire::join({encode(numbered(msg), layout), payload}));
}

/* A message, one buffer's full, whose segments are in order */
Heard Peer::hear_message() {
    Heard found;
    msn_heard_++;
    for (bool last = false; !last;) {
        wire::Segment segment = stream.hear_segment();
        EXPECT_FALSE(segment.tagged()) << segment.text();
        EXPECT_EQ(segment.qn, 0U) << segment.text();
        EXPECT_EQ(segment.msn, msn_heard_);
        EXPECT_EQ(segment.mo, found.octets.size());
        if (segment.tagged() || segment.qn != 0)
            e2e::fail("a message was expected: " + segment.text());
        found.opcode = segment.opcode();
        wire::append(found.octets, segment.payload);
        last = segment.last();
    }
    EXPECT_EQ(sdp_decode(layout, found.octets.data(), static_cast<uint32_t>(found.octets.size()),
                         &found.msg),
              SDP_OK);
    return found;
}

/* Section 14.2, Figure 4: what holds for each message that a socket sends */
static void check_kind(const Heard &h) {
    bool urgent = (h.msg.flags & (SDP_FLAG_OOB_PRES | SDP_FLAG_OOB_PEND)) != 0;
    bool solicited = false;
    bool quiet = false;
    switch (h.msg.mid) {
    case SDP_MID_ABORT_CONN:
    case SDP_MID_SUSP_COMM:
    case SDP_MID_SUSP_COMM_ACK:
    case SDP_MID_SEND_SM:
    case SDP_MID_SRC_AVAIL_CANCEL:
    case SDP_MID_SINK_AVAIL_CANCEL:
    case SDP_MID_HELLO_ACK:
    case SDP_MID_RDMA_WR_COMPL:
    case SDP_MID_RDMA_RD_COMPL:
    case SDP_MID_SINK_CANCEL_ACK: solicited = true; break;
    case SDP_MID_DATA: solicited = urgent; break;
    default: break;
    }
    quiet = h.opcode == wire::kOpSend || h.opcode == wire::kOpSendInvalidate;
    EXPECT_EQ(quiet, !solicited) << "MID " << int{h.msg.mid} << ", opcode " << int{h.opcode};
    EXPECT_EQ(h.msg.flags & ~7, 0);
    EXPECT_TRUE(h.msg.mid == SDP_MID_DATA || (h.msg.flags & SDP_FLAG_OOB_PRES) == 0);
    EXPECT_TRUE(h.msg.mid == SDP_MID_RDMA_RD_COMPL || h.msg.mid == SDP_MID_RDMA_WR_COMPL ||
                (h.msg.flags & SDP_FLAG_REQ_PIPE) == 0);
}

Heard Peer::hear() {
    Heard found = hear_message();
    check_kind(found);
    EXPECT_EQ(found.msg.mseq, heard);
    heard++;
    /* of what was said, which may still be on its way */
    EXPECT_LE(found.msg.mseq_ack, said != 0 ? said - 1 : 0);
    return found;
}

Heard Peer::hear_other() {
    for (;;) {
        Heard found = hear();
        if (found.msg.mid != SDP_MID_DATA || found.msg.payload != 0)
            return found;
    }
}

Heard Peer::say_hello(View hello, sdp_layout as) {
    layout = as;
    stream.say(hello);
    wire::MpaFrame request = stream.hear_frame();
    EXPECT_EQ(request.key, wire::kRequestKey);
    wire::Enhanced depths = request.enhanced.value_or(wire::Enhanced{});
    stream.say(wire::MpaFrame::enhanced_reply({.ird = depths.ord, .ord = depths.ird}).bytes());
    Heard ack = hear_message();
    check_kind(ack);
    EXPECT_EQ(ack.msg.mid, SDP_MID_HELLO_ACK);
    return ack;
}

sdp_msg Peer::hear_hello() {
    Bytes octets = stream.hear(SDP_HELLO_LEN);
    sdp_msg hello{};
    EXPECT_EQ(sdp_decode(layout, octets.data(), SDP_HELLO_LEN, &hello), SDP_OK);
    EXPECT_EQ(hello.mid, SDP_MID_HELLO);
    return hello;
}

void Peer::start_mpa() {
    stream.say(wire::MpaFrame::enhanced_request({.ird = 1, .ord = 1}).bytes());
    wire::MpaFrame reply = stream.hear_frame();
    EXPECT_EQ(reply.key, wire::kReplyKey);
    EXPECT_FALSE(reply.has(wire::kMpaReject));
}

void Peer::say_hello_ack(View ack) {
    say_octets(ack, wire::kOpSendSolicited);
}

/* Sockets and peers ------------------------------------------------------------ */

Fd Peers::tcp_to(const Fd &l) const {
    Address a = name_of(l);
    Fd fd(::socket(a.storage.ss_family, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(fd.get(), a.get(), a.len), 0) << std::strerror(errno);
    timeval tv{20, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    return fd;
}

void Peers::works(const Fd &l) const {
    Address a = name_of(l);
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0) << std::strerror(errno);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

Fd Peers::tcp_listener() const {
    Fd l(::socket(GetParam().address, SOCK_STREAM, 0));
    Address a = loopback();
    EXPECT_EQ(::bind(l.get(), a.get(), a.len), 0);
    EXPECT_EQ(::listen(l.get(), 8), 0);
    return l;
}

std::unique_ptr<Peer> Peers::peer_to(const Fd &l) const {
    return std::make_unique<Peer>(::dup(tcp_to(l).get()));
}

Peers::Talk Peers::accepted(const sdp_msg &hello, sdp_layout layout) const {
    Talk talk;
    talk.listener = listener();
    talk.peer = peer_to(talk.listener);
    talk.first = talk.peer->say_hello(encode(hello, layout), layout).msg;
    talk.app = Fd(::accept(talk.listener.get(), nullptr, nullptr));
    EXPECT_TRUE(talk.app) << std::strerror(errno);
    return talk;
}

Peers::Talk Peers::connected_to_peer(const sdp_msg &ack) const {
    Talk talk;
    talk.listener = tcp_listener();
    Address a = name_of(talk.listener);
    talk.app = make();
    set_nonblocking(talk.app);
    EXPECT_EQ(ERRNO_OF(::connect(talk.app.get(), a.get(), a.len)), EINPROGRESS);
    talk.peer = std::make_unique<Peer>(::accept(talk.listener.get(), nullptr, nullptr));
    talk.first = talk.peer->hear_hello();
    talk.peer->start_mpa();
    talk.peer->say_hello_ack(encode(ack));
    EXPECT_NE(events(talk.app, POLLOUT, 10000) & POLLOUT, 0);
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), 0);
    set_nonblocking(talk.app, false);
    return talk;
}

} // namespace softwarp::sockets
