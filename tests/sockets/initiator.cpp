// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which end initiates MPA: the accepting one, or the connecting one if its program
 * wants that.  RFC 5044 section 7.1.3 leaves it to them; RFC 6581 section 5 has
 * the RTR that the second way needs.
 */
#include <cerrno>
#include <cstring>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/socket.h>

#include "peer.hpp"
#include "seen.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

using wire::Bytes;
using wire::Enhanced;
using wire::MpaFrame;

class Initiator : public Peers {
  protected:
    static int choose(const Fd &fd, int value) {
        return ERRNO_OF(::setsockopt(fd.get(), SOL_SDP, SDP_INITIATOR, &value, sizeof(value)));
    }
    static int chosen(const Fd &fd) { return option(fd, SOL_SDP, SDP_INITIATOR); }
    static int told(const Fd &fd) {
        sdp_info found{};
        socklen_t len = sizeof(found);
        EXPECT_EQ(::getsockopt(fd.get(), SOL_SDP, SDP_INFO, &found, &len), 0);
        EXPECT_EQ(len, sizeof(found));
        return found.initiator;
    }
    /* Hello, and a Request for the given RTR right behind it */
    static Bytes opening(const MpaFrame &request) {
        return wire::join({encode(good_hello()), request.bytes()});
    }
    static MpaFrame request(unsigned rtr = wire::kRtrWrite) {
        return MpaFrame::enhanced_request({.ird = 1, .ord = 1, .p2p = true, .rtr = rtr});
    }
    /* The connection ends, and nobody is there to be accepted. */
    void ends(const Fd &l, const Fd &fd, const char *what) const {
        char c;
        ssize_t ret = 1;
        while (ret > 0)
            ret = ::recv(fd.get(), &c, 1, 0);
        EXPECT_TRUE(ret == 0 || errno == ECONNRESET) << what << ": " << std::strerror(errno);
        set_nonblocking(l);
        EXPECT_EQ(ERRNO_OF(::accept(l.get(), nullptr, nullptr)), EAGAIN) << what;
        set_nonblocking(l, false);
    }
};
INSTANTIATE_TEST_SUITE_P(All, Initiator, testing::ValuesIn(sdp_kinds()), name_of_kind);

TEST_P(Initiator, Values) {
    Fd fd = make();
    EXPECT_EQ(chosen(fd), SDP_INFO_INITIATOR_ACCEPTOR);
    EXPECT_EQ(told(fd), SDP_INFO_INITIATOR_ACCEPTOR);
    for (int wrong : {-1, 2, 256})
        EXPECT_EQ(choose(fd, wrong), EINVAL) << wrong;
    EXPECT_EQ(choose(fd, SDP_INFO_INITIATOR_CONNECTOR), 0);
    EXPECT_EQ(chosen(fd), SDP_INFO_INITIATOR_CONNECTOR);
    EXPECT_EQ(told(fd), SDP_INFO_INITIATOR_CONNECTOR);
    EXPECT_EQ(choose(listener(), SDP_INFO_INITIATOR_CONNECTOR), EINVAL);
}

/* A listener takes both, whatever it would do itself as a connector. */
TEST_P(Initiator, EitherEnd) {
    Fd l = make();
    Address a = loopback();
    ASSERT_EQ(choose(l, SDP_INFO_INITIATOR_CONNECTOR), 0);
    ASSERT_EQ(::bind(l.get(), a.get(), a.len), 0);
    ASSERT_EQ(::listen(l.get(), 4), 0);
    a = name_of(l);
    for (int i = 0; i < 20; i++) {
        int wanted = i % 2 ? SDP_INFO_INITIATOR_CONNECTOR : SDP_INFO_INITIATOR_ACCEPTOR;
        Fd here = make();
        ASSERT_EQ(choose(here, wanted), 0);
        ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0) << std::strerror(errno);
        /* octets of the connector wait for HelloAck, as ever */
        ASSERT_TRUE(send_all(here, pattern(50000)));
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        for (const Fd *fd : {&here, &there}) {
            EXPECT_EQ(told(*fd), wanted);
            EXPECT_EQ(chosen(*fd), wanted);
            EXPECT_EQ(choose(*fd, wanted), EINVAL);
        }
        ASSERT_TRUE(send_all(there, pattern(50000, 3)));
        EXPECT_EQ(receive(there, 50000), pattern(50000));
        EXPECT_EQ(receive(here, 50000), pattern(50000, 3));
    }
}

/*
 * SDP-68: the Request comes in one segment with the Hello, then the RTR, which is
 * no Send, and nothing else before HelloAck.
 */
TEST_P(Initiator, OnTheWire) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    Fd app = make();
    ASSERT_EQ(choose(app, SDP_INFO_INITIATOR_CONNECTOR), 0);
    set_nonblocking(app);
    ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
    Peer peer(::accept(l.get(), nullptr, nullptr));
    /* what the first segment has */
    std::vector<uint8_t> first(1000);
    ssize_t got = ::recv(peer.stream.fd(), first.data(), first.size(), MSG_PEEK);
    ASSERT_GT(got, static_cast<ssize_t>(kSdpHelloLen + wire::kMpaHeader));
    peer.hear_hello();
    MpaFrame asked = peer.stream.hear_frame();
    EXPECT_EQ(asked.key, wire::kRequestKey);
    EXPECT_EQ(asked.revision, 2);
    ASSERT_TRUE(asked.enhanced);
    EXPECT_TRUE(asked.enhanced->p2p);
    EXPECT_EQ(asked.enhanced->rtr & wire::kRtrSend, 0U);
    EXPECT_NE(asked.enhanced->rtr, 0U);
    EXPECT_EQ(static_cast<size_t>(got), kSdpHelloLen + asked.bytes().size());
    EXPECT_TRUE(peer.stream.silent(wire::milliseconds(100)));

    peer.stream.say(
        MpaFrame::enhanced_reply({.ird = 1, .ord = 1, .p2p = true, .rtr = wire::kRtrWrite})
            .bytes());
    wire::Segment rtr = peer.stream.hear_segment();
    EXPECT_TRUE(rtr.tagged());
    EXPECT_EQ(rtr.opcode(), wire::kOpWrite);
    EXPECT_TRUE(rtr.payload.empty());
    EXPECT_TRUE(peer.stream.silent(wire::milliseconds(100)));
    EXPECT_EQ(events(app, POLLOUT, 0) & POLLOUT, 0);
    peer.say_hello_ack(encode(good_hello_ack()));
    EXPECT_NE(events(app, POLLOUT, 10000) & POLLOUT, 0);
    ASSERT_TRUE(send_all(app, pattern(10)));
    EXPECT_EQ(peer.hear_other().payload(), pattern(10));
    peer.say(message(kSdpData), pattern(20));
    EXPECT_EQ(receive(app, 20), pattern(20));
}

/*
 * A peer that never sends its RTR: the set-up ends, although nothing that was sent is
 * unacknowledged and the program has been given the socket.
 */
TEST_P(Initiator, NoRtr) {
    Tuned tuned("setup_timeout_ms", 400);
    Fd l = listener();
    for (bool close_first : {false, true}) {
        std::unique_ptr<Peer> peer = peer_to(l);
        peer->stream.say(opening(request()));
        peer->stream.hear_frame();
        Fd app(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(app);
        if (close_first) {
            app.reset();
        } else {
            char c;
            EXPECT_EQ(ERRNO_OF(::recv(app.get(), &c, 1, 0)), ECONNRESET);
        }
        EXPECT_TRUE(peer->stream.closed_by_peer());
    }
    /* with the RTR the time is over for good */
    std::unique_ptr<Peer> peer = peer_to(l);
    peer->stream.say(opening(request()));
    peer->stream.hear_frame();
    peer->stream.say_ulpdu(wire::Tagged{}.bytes());
    peer->stream.hear_segment();
    Fd app(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(app);
    usleep(800000);
    peer->say(message(kSdpData), pattern(20));
    EXPECT_EQ(receive(app, 20), pattern(20));
}

/* A peer that has another RTR, or none, or refuses */
TEST_P(Initiator, BadReplies) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    const Enhanced send{.ird = 1, .ord = 1, .p2p = true, .rtr = wire::kRtrSend};
    const Enhanced none{.ird = 1, .ord = 1};
    for (const MpaFrame &reply : {MpaFrame::enhanced_reply(send),
                                  MpaFrame::enhanced_reply(none, wire::kMpaCrc | wire::kMpaReject),
                                  MpaFrame::request(), MpaFrame::reply()}) {
        Fd app = make();
        ASSERT_EQ(choose(app, SDP_INFO_INITIATOR_CONNECTOR), 0);
        set_nonblocking(app);
        ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
        Peer peer(::accept(l.get(), nullptr, nullptr));
        peer.hear_hello();
        peer.stream.hear_frame();
        peer.stream.say(reply.bytes());
        EXPECT_NE(events(app, POLLOUT, 10000) & POLLERR, 0);
        int error = option(app, SOL_SOCKET, SO_ERROR);
        EXPECT_TRUE(error == ECONNRESET || error == ECONNREFUSED) << std::strerror(error);
    }
}

/* The listener's part of it, with the Request cut anywhere */
TEST_P(Initiator, PeerInitiates) {
    Fd l = listener();
    const size_t whole = opening(request()).size();
    for (size_t cut : {size_t{0}, kSdpHelloLen + 1, kSdpHelloLen + 10,
                       kSdpHelloLen + wire::kMpaHeader, whole - 1}) {
        std::unique_ptr<Peer> peer = peer_to(l);
        wire::SendPlan plan;
        if (cut)
            plan.cuts = {cut};
        peer->stream.say(opening(request()), plan);
        MpaFrame reply = peer->stream.hear_frame();
        EXPECT_EQ(reply.key, wire::kReplyKey);
        EXPECT_FALSE(reply.has(wire::kMpaReject));
        ASSERT_TRUE(reply.enhanced);
        EXPECT_NE(reply.enhanced->rtr & wire::kRtrWrite, 0U);
        /* the fence of MPA, until the RTR has come */
        EXPECT_TRUE(peer->stream.silent(wire::milliseconds(50)));
        peer->stream.say_ulpdu(wire::Tagged{}.bytes());
        wire::Segment ack = peer->stream.hear_segment();
        EXPECT_EQ(ack.opcode(), wire::kOpSendSolicited);
        EXPECT_EQ(SdpMessage::parse(ack.payload, kLayoutDraft).mid, kSdpHelloAck);
        Fd app(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(app);
        EXPECT_EQ(told(app), SDP_INFO_INITIATOR_CONNECTOR);
        peer->say(message(kSdpData), pattern(20));
        EXPECT_EQ(receive(app, 20), pattern(20));
    }
    works(l);
}

/* The policy of the device has none of the RTRs that may be used. */
TEST_P(Initiator, NotByPolicy) {
    const std::string rtr = "/sys/class/infiniband/swlo/mpa/rtr";
    std::string before;
    ASSERT_TRUE(std::getline(std::ifstream(rtr), before));
    Fd l = listener();
    Address a = name_of(l);
    ASSERT_TRUE(std::ofstream(rtr) << "send" << std::flush);
    Fd app = make();
    EXPECT_EQ(choose(app, SDP_INFO_INITIATOR_CONNECTOR), 0);
    EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EOPNOTSUPP);
    /* the other way needs none */
    works(l);
    ASSERT_TRUE(std::ofstream(rtr) << before << std::flush);
    EXPECT_EQ(::connect(app.get(), a.get(), a.len), 0) << std::strerror(errno);
}

/* What is behind the Hello and is no Request */
TEST_P(Initiator, NoRequest) {
    Fd l = listener();
    struct {
        const char *what;
        Bytes octets;
    } const rows[] = {
        {"one octet", pattern(1)},
        {"garbage", pattern(100)},
        {"a Reply", MpaFrame::reply().bytes()},
        {"too much private data", MpaFrame{.pd_length = 513}.bytes()},
        {"another Hello", encode(good_hello())},
    };
    for (const auto &row : rows) {
        Fd fd = tcp_to(l);
        ASSERT_TRUE(send_all(fd, wire::join({encode(good_hello()), row.octets})));
        /* the peer may have reset it by now */
        ::shutdown(fd.get(), SHUT_WR);
        ends(l, fd, row.what);
    }
    works(l);
}

/* Both ends initiate: the Request is too late to be seen with the Hello. */
TEST_P(Initiator, Both) {
    Fd l = listener();
    Fd fd = tcp_to(l);
    ASSERT_TRUE(send_all(fd, encode(good_hello())));
    EXPECT_EQ(receive(fd, wire::kMpaHeader).size(), wire::kMpaHeader);
    ASSERT_TRUE(send_all(fd, request().bytes()));
    ends(l, fd, "two Requests");
    works(l);
}

/*
 * A message in place of the RTR, which section 8.1.1 (2) forbids.  It lifts the fence
 * as well, so it is taken, or is too early, as it happens; the listener goes on.
 */
TEST_P(Initiator, SpeaksTooEarly) {
    Fd l = listener();
    std::unique_ptr<Peer> peer = peer_to(l);
    SdpMessage data = message(kSdpData);
    data.bufs = 100;
    peer->stream.say(opening(request()));
    peer->stream.hear_frame();
    peer->say(data, pattern(20));
    /* if it is too early, there is nobody to accept */
    ASSERT_TRUE(eventually([&] {
        return events(l, POLLIN) == POLLIN ||
               peer->stream.closed_by_peer(e2e::Deadline(e2e::milliseconds(0)));
    }));
    if (events(l, POLLIN) == POLLIN) {
        Fd app(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(app);
        timeval tv{20, 0};
        ::setsockopt(app.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        std::vector<uint8_t> got(20);
        ssize_t ret = ::recv(app.get(), got.data(), got.size(), 0);
        EXPECT_TRUE(ret == 20 || (ret < 0 && errno == ECONNRESET)) << ret;
    }
    works(l);
}

} // namespace softwarp::sockets
