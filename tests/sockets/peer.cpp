// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "peer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/tcp.h>
#include <poll.h>

#include <linux/filter.h>

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

SdpMessage good_hello() {
    SdpMessage msg;
    msg.mid = kSdpHello;
    msg.bufs = 8;
    msg.hello.max_adverts = 1;
    msg.hello.rcv_size = msg.hello.des_rem_rcv_size = 4096;
    msg.hello.ird = msg.hello.ord = 1;
    return msg;
}

SdpMessage good_hello_ack() {
    SdpMessage msg = good_hello();
    msg.mid = kSdpHelloAck;
    return msg;
}

void give(const Fd &fd, int level, int name, int value) {
    EXPECT_EQ(::setsockopt(fd.get(), level, name, &value, sizeof(value)), 0)
        << std::strerror(errno);
}

void vanish(int fd) {
    sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    sock_fprog program{1, &drop};
    ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
    /* when it is closed, what waits for it need not wait any longer */
    linger now{1, 0};
    ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
}

void keep_alive(const Fd &fd) {
    give(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    give(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    give(fd, IPPROTO_TCP, TCP_KEEPCNT, 1);
    give(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::vector<uint8_t> encode(const SdpMessage &msg, SdpLayout layout) {
    return msg.bytes(layout);
}

SdpMessage message(SdpMid mid) {
    SdpMessage msg{};
    msg.mid = mid;
    return msg;
}

SdpMessage src_avail(uint32_t len) {
    SdpMessage msg = message(kSdpSrcAvail);
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

SdpMessage Peer::numbered(SdpMessage msg) {
    msg.mseq = said++;
    msg.mseq_ack = heard != 0 ? heard - 1 : 0;
    if (msg.bufs == 0)
        msg.bufs = 100;
    return msg;
}

void Peer::say(SdpMessage msg, View payload) {
    msg.payload = static_cast<uint32_t>(payload.size());
    say_octets(wire::join({encode(numbered(msg), layout), payload}));
}

/* An RDMA Write of no octets, which RFC 5041 section 5.2 gives no STag to check */
static bool is_probe(const wire::Segment &segment) {
    return segment.tagged() && segment.last() && segment.opcode() == wire::kOpWrite &&
           segment.payload.empty();
}

Heard Peer::hear_message() {
    for (;;) {
        wire::Segment segment = stream.hear_segment();
        if (!is_probe(segment))
            return hear_rest(std::move(segment));
    }
}

/* A message, one buffer's full, whose segments are in order */
Heard Peer::hear_rest(wire::Segment segment) {
    Heard found;
    msn_heard_++;
    for (;;) {
        EXPECT_FALSE(segment.tagged()) << segment.text();
        EXPECT_EQ(segment.qn, 0U) << segment.text();
        EXPECT_EQ(segment.msn, msn_heard_);
        EXPECT_EQ(segment.mo, found.octets.size());
        if (segment.tagged() || segment.qn != 0)
            e2e::fail("a message was expected: " + segment.text());
        found.opcode = segment.opcode();
        wire::append(found.octets, segment.payload);
        if (segment.last())
            break;
        segment = stream.hear_segment();
    }
    found.msg = SdpMessage::parse(found.octets, layout);
    return found;
}

/* Section 14.2, Figure 4: what holds for each message that a socket sends */
static void check_kind(const Heard &h) {
    bool urgent = (h.msg.flags & (kSdpOobPres | kSdpOobPend)) != 0;
    bool solicited = false;
    bool quiet = false;
    switch (h.msg.mid) {
    case kSdpAbortConn:
    case kSdpSuspComm:
    case kSdpSuspCommAck:
    case kSdpSendSm:
    case kSdpSrcAvailCancel:
    case kSdpSinkAvailCancel:
    case kSdpHelloAck:
    case kSdpRdmaWrCompl:
    case kSdpRdmaRdCompl:
    case kSdpSinkCancelAck: solicited = true; break;
    case kSdpData: solicited = urgent; break;
    default: break;
    }
    quiet = h.opcode == wire::kOpSend || h.opcode == wire::kOpSendInvalidate;
    EXPECT_EQ(quiet, !solicited) << "MID " << int{h.msg.mid} << ", opcode " << int{h.opcode};
    EXPECT_EQ(h.msg.flags & ~7, 0);
    EXPECT_TRUE(h.msg.mid == kSdpData || (h.msg.flags & kSdpOobPres) == 0);
    EXPECT_TRUE(h.msg.mid == kSdpRdmaRdCompl || h.msg.mid == kSdpRdmaWrCompl ||
                (h.msg.flags & kSdpReqPipe) == 0);
}

Heard Peer::hear() {
    return held_to_rules(hear_message());
}

std::optional<Heard> Peer::hear_within(wire::milliseconds quiet) {
    wire::Deadline deadline(quiet);
    for (;;) {
        wire::Ending ending = stream.ending(deadline);
        if (ending == wire::Ending::none)
            return std::nullopt;
        if (ending != wire::Ending::data)
            e2e::fail("the stream is to stay open: " + wire::ending_text(ending));
        wire::Segment segment = stream.hear_segment();
        if (!is_probe(segment))
            return held_to_rules(hear_rest(std::move(segment)));
    }
}

Heard Peer::held_to_rules(Heard found) {
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
        if (found.msg.mid != kSdpData || found.msg.payload != 0)
            return found;
    }
}

Heard Peer::say_hello(View hello, SdpLayout as) {
    layout = as;
    stream.say(hello);
    wire::MpaFrame request = stream.hear_frame();
    EXPECT_EQ(request.key, wire::kRequestKey);
    wire::Enhanced depths = request.enhanced.value_or(wire::Enhanced{});
    stream.say(wire::MpaFrame::enhanced_reply({.ird = depths.ord, .ord = depths.ird}).bytes());
    Heard ack = hear_message();
    check_kind(ack);
    EXPECT_EQ(ack.msg.mid, kSdpHelloAck);
    return ack;
}

SdpMessage Peer::hear_hello() {
    Bytes octets = stream.hear(kSdpHelloLen);
    SdpMessage hello = SdpMessage::parse(octets, layout);
    EXPECT_EQ(hello.mid, kSdpHello);
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

Peers::Talk Peers::accepted(const SdpMessage &hello, SdpLayout layout) const {
    Talk talk;
    talk.listener = listener();
    talk.peer = peer_to(talk.listener);
    talk.first = talk.peer->say_hello(encode(hello, layout), layout).msg;
    talk.app = Fd(::accept(talk.listener.get(), nullptr, nullptr));
    EXPECT_TRUE(talk.app) << std::strerror(errno);
    return talk;
}

Peers::Talk Peers::connected_to_peer(const SdpMessage &ack) const {
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
