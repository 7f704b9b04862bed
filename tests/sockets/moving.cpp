// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peer that hands its socket on: SuspComm, and a new connection to where it says;
 * draft-pinkerton-iwarp-sdp-01 section 13.  Comments carry requirement ids.
 */
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "peer.hpp"
#include "seen.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

using std::chrono::milliseconds;
using wire::Bytes;
using wire::Ending;

class Moving : public Peers {
  protected:
    /* The other place of the peer's, where it waits for the socket */
    struct Place {
        Fd listener;
        Address address;
    };

    Place place() const {
        Place p;
        p.listener = tcp_listener();
        p.address = name_of(p.listener);
        return p;
    }

    /* SDP-209, SDP-210: SuspComm, its answer, and the end of TCP */
    static void suspend(Peer &peer, uint16_t port) {
        say_suspend(peer, port);
        Heard h = peer.hear_other();
        ASSERT_EQ(h.msg.mid, kSdpSuspCommAck);
        EXPECT_EQ(h.octets.size(), 16U);
        EXPECT_EQ(h.opcode, wire::kOpSendSolicited);
        EXPECT_EQ(wire::ending_text(peer.stream.ending()), wire::ending_text(Ending::fin));
    }

    static void say_suspend(Peer &peer, uint16_t port) {
        SdpMessage msg = message(kSdpSuspComm);
        msg.port = port;
        msg.bufs = 8;
        peer.say(msg);
    }

    /* SDP-210: it comes from where it came from before, with a Hello by the usual rules */
    static std::unique_ptr<Peer> arrive(const Place &p, const Address &from) {
        Address a;
        a.len = sizeof(a.storage);
        if (events(p.listener, POLLIN, 20000) != POLLIN)
            e2e::fail("nobody comes");
        Fd fd(::accept(p.listener.get(), a.get(), &a.len));
        EXPECT_TRUE(fd) << std::strerror(errno);
        EXPECT_TRUE(a == from) << a.port();
        return std::make_unique<Peer>(::dup(fd.get()));
    }

    /* SDP-211, SDP-212 */
    static void resume(Peer &peer, const SdpMessage &ack = good_hello_ack()) {
        SdpMessage hello = peer.hear_hello();
        EXPECT_GE(hello.bufs, 3);
        EXPECT_EQ(hello.hello.major, 1);
        peer.start_mpa();
        peer.say_hello_ack(encode(ack));
    }

    static std::unique_ptr<Peer> resumed(const Place &p, const Address &from) {
        std::unique_ptr<Peer> peer = arrive(p, from);
        resume(*peer);
        return peer;
    }

    /* From the old peer to the new one */
    static std::unique_ptr<Peer> moved(Talk &talk, const Place &p) {
        Address from = name_of(talk.app);
        suspend(*talk.peer, p.address.port());
        talk.peer.reset();
        return resumed(p, from);
    }

    Talk either(bool connector) const { return connector ? connected_to_peer() : accepted(); }
};
INSTANTIATE_TEST_SUITE_P(All, Moving, testing::ValuesIn(sdp_kinds()), name_of_kind);

static Bytes hear_data(Peer &peer, size_t size) {
    Bytes found;
    while (found.size() < size) {
        Heard h = peer.hear_other();
        EXPECT_EQ(h.msg.mid, kSdpData);
        if (h.msg.mid != kSdpData)
            break;
        wire::append(found, h.payload());
        /* news of buffers */
        if (h.msg.mseq % 4 == 3)
            peer.say(message(kSdpData));
    }
    return found;
}

static int waiting(const Fd &fd) {
    int octets = -1;
    EXPECT_EQ(::ioctl(fd.get(), FIONREAD, &octets), 0);
    return octets;
}

static int state(const Fd &fd) {
    sdp_info info{};
    socklen_t len = sizeof(info);
    EXPECT_EQ(::getsockopt(fd.get(), SOL_SDP, SDP_INFO, &info, &len), 0);
    return info.state;
}

/* SDP-206: no octet is lost, none comes twice, and the program sees nothing of it. */
TEST_P(Moving, OctetsOfBothDirections) {
    for (bool connector : {false, true}) {
        SCOPED_TRACE(connector);
        Talk talk = either(connector);
        Address here = name_of(talk.app), there = peer_of(talk.app);
        Counters before = counters();
        Bytes out, in;
        for (uint8_t i = 0; i < 3; i++) {
            Place p = place();
            /* of what is read before, and after, and is on its way */
            talk.peer->say(message(kSdpData), pattern(300, i));
            wire::append(in, pattern(300, i));
            ASSERT_TRUE(send_all(talk.app, pattern(700, i)));
            EXPECT_EQ(hear_data(*talk.peer, 700), pattern(700, i));
            suspend(*talk.peer, p.address.port());
            talk.peer.reset();
            EXPECT_EQ(state(talk.app), SDP_INFO_MOVING);
            EXPECT_EQ(waiting(talk.app), 300);
            EXPECT_EQ(events(talk.app, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT);
            ASSERT_TRUE(send_all(talk.app, pattern(500, i)));
            talk.peer = arrive(p, here);
            EXPECT_EQ(receive(talk.app, 200).size(), 200U);
            resume(*talk.peer);
            EXPECT_EQ(hear_data(*talk.peer, 500), pattern(500, i));
            EXPECT_EQ(state(talk.app), SDP_INFO_OPEN);
            talk.peer->say(message(kSdpData), pattern(100, i));
            Bytes rest = pattern(300, i);
            rest.erase(rest.begin(), rest.begin() + 200);
            wire::append(rest, pattern(100, i));
            EXPECT_EQ(receive(talk.app, rest.size()), rest);
            EXPECT_EQ(waiting(talk.app), 0);
            EXPECT_TRUE(name_of(talk.app) == here);
            EXPECT_TRUE(peer_of(talk.app) == there);
        }
        EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), 0);
        expect_more(before, "resumed", 3);
        expect_more(before, "connected", 0);
        expect_more(before, "accepted", 0);
        expect_more(before, "resets", 0);
    }
}

/* Much of it, from a program that waits for room, and for octets */
TEST_P(Moving, ProgramsThatWait) {
    Bytes out = pattern(300000), in = pattern(50000, 9), found;
    std::jthread sender, receiver; // which end when the connection does
    Talk talk = accepted();
    sender = std::jthread([&] { EXPECT_TRUE(send_all(talk.app, out)); });
    receiver = std::jthread([&] { EXPECT_EQ(receive(talk.app, in.size()), in); });
    SdpMessage few = message(kSdpData);
    few.bufs = 8;
    auto hear_some = [&](size_t size) {
        while (found.size() < size) {
            Heard h = talk.peer->hear();
            if (h.msg.mid == kSdpChRcvBuf) {
                SdpMessage ack = message(kSdpChRcvBufAck);
                ack.size = 4096;
                ack.bufs = 8;
                talk.peer->say(ack);
            }
            wire::append(found, h.payload());
            if (h.msg.mseq % 4 == 3)
                talk.peer->say(few);
        }
    };
    Address from = name_of(talk.app);
    size_t said = 0;
    for (int i = 0; i < 4; i++) {
        hear_some(found.size() + 50000);
        wire::View part = wire::View(in).subspan(said, 2000);
        talk.peer->say(few, part);
        said += part.size();
        Place p = place();
        say_suspend(*talk.peer, p.address.port());
        /* what was sent before the answer */
        for (;;) {
            Heard h = talk.peer->hear();
            if (h.msg.mid == kSdpSuspCommAck)
                break;
            wire::append(found, h.payload());
        }
        EXPECT_EQ(wire::ending_text(talk.peer->stream.ending()), wire::ending_text(Ending::fin));
        talk.peer = resumed(p, from);
    }
    EXPECT_LT(found.size(), out.size()) << "it has not waited";
    hear_some(out.size());
    EXPECT_EQ(found, out);
    while (said < in.size()) {
        wire::View part = wire::View(in).subspan(said, std::min<size_t>(in.size() - said, 1000));
        talk.peer->say(message(kSdpData), part);
        said += part.size();
        /* it reads at once, and has as many buffers as before */
        usleep(2000);
    }
    sender.join();
    receiver.join();
}

/* The port that it had before: TCP has to come to its end first. */
TEST_P(Moving, ToTheSamePort) {
    Talk talk = connected_to_peer();
    Address from = name_of(talk.app);
    Place p{std::move(talk.listener), peer_of(talk.app)};
    suspend(*talk.peer, p.address.port());
    ASSERT_TRUE(send_all(talk.app, pattern(10)));
    usleep(100000);
    EXPECT_EQ(state(talk.app), SDP_INFO_MOVING);
    talk.peer.reset();
    talk.peer = resumed(p, from);
    EXPECT_EQ(hear_data(*talk.peer, 10), pattern(10));
}

/* In the layout of the connection */
TEST_P(Moving, OtherLayout) {
    Talk talk = accepted(good_hello(), kLayoutIb);
    Address from = name_of(talk.app);
    Place p = place();
    suspend(*talk.peer, p.address.port());
    talk.peer = arrive(p, from);
    talk.peer->layout = kLayoutIb;
    talk.peer->hear_hello();
    talk.peer->start_mpa();
    talk.peer->say_hello_ack(encode(good_hello_ack(), kLayoutIb));
    ASSERT_TRUE(send_all(talk.app, pattern(10)));
    EXPECT_EQ(hear_data(*talk.peer, 10), pattern(10));
}

/* SDP-212: what was advertised is void, and modes are those of the beginning. */
TEST_P(Moving, ModesStartAfresh) {
    Talk talk = accepted();
    SdpMessage mode = message(kSdpModeChange);
    mode.mode.mode = kSdpPipelined;
    talk.peer->say(mode);
    talk.peer->say(src_avail(100));
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpSendSm);
    Place p = place();
    talk.peer = moved(talk, p);
    /* in Combined Mode, with octets of its own */
    talk.peer->say(src_avail(20), pattern(10));
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpSendSm);
    talk.peer->say(message(kSdpData), pattern(10));
    EXPECT_EQ(receive(talk.app, 20).size(), 20U);
}

/* We are done, and the peer knows; SDP-235: we are the connecting peer now */
TEST_P(Moving, OurHalfIsClosed) {
    Talk talk = accepted();
    ASSERT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    Place p = place();
    talk.peer = moved(talk, p);
    talk.peer->say(message(kSdpData), pattern(30));
    EXPECT_EQ(receive(talk.app, 30), pattern(30));
    EXPECT_EQ(ERRNO_OF(::send(talk.app.get(), "x", 1, MSG_NOSIGNAL)), EPIPE);
    EXPECT_EQ(state(talk.app), SDP_INFO_HALF);
    /* it came second, so the peer closes TCP */
    talk.peer->say(message(kSdpDisConn));
    char c;
    EXPECT_EQ(::recv(talk.app.get(), &c, 1, 0), 0);
    ASSERT_TRUE(eventually([&] { return state(talk.app) == SDP_INFO_WAIT; }));
    talk.peer->stream.shut_down();
    ASSERT_TRUE(eventually([&] { return state(talk.app) == SDP_INFO_DOWN; }));
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), 0);
}

TEST_P(Moving, ThePeersHalfIsClosed) {
    Talk talk = accepted();
    talk.peer->say(message(kSdpData), pattern(30));
    talk.peer->say(message(kSdpDisConn));
    Place p = place();
    talk.peer = moved(talk, p);
    EXPECT_EQ(receive(talk.app, 31), pattern(30));
    ASSERT_TRUE(send_all(talk.app, pattern(40)));
    EXPECT_EQ(hear_data(*talk.peer, 40), pattern(40));
    talk.app.reset();
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    EXPECT_EQ(wire::ending_text(talk.peer->stream.ending()), wire::ending_text(Ending::fin));
}

/* What was sent arrives, though the program is gone before there is a way. */
TEST_P(Moving, ClosedInBetween) {
    Talk talk = accepted();
    Address from = name_of(talk.app);
    Place p = place();
    suspend(*talk.peer, p.address.port());
    ASSERT_TRUE(send_all(talk.app, pattern(5000)));
    talk.app.reset();
    talk.peer = resumed(p, from);
    EXPECT_EQ(hear_data(*talk.peer, 5000), pattern(5000));
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    talk.peer->say(message(kSdpDisConn));
}

/* A peer that has the octets, and moves instead of closing: the time of what nobody has any
 * more does not begin anew. */
TEST_P(Moving, AnOrphanGetsNoMoreTime) {
    Tuned tuned("orphan_timeout_ms", 1000);
    Counters before = counters();
    Talk talk = accepted();
    Address from = name_of(talk.app);
    auto begin = std::chrono::steady_clock::now();
    talk.app.reset();
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    auto move = [&] {
        Place p = place();
        try {
            say_suspend(*talk.peer, p.address.port());
            if (talk.peer->hear_other().msg.mid != kSdpSuspCommAck)
                return false;
        } catch (const e2e::Failure &) {
            return false;
        }
        talk.peer.reset();
        if (events(p.listener, POLLIN, 1000) != POLLIN)
            return false;
        talk.peer = resumed(p, from);
        return true;
    };
    int moves = 0;
    while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(10) && move()) {
        moves++;
        std::this_thread::sleep_for(milliseconds(100));
    }
    EXPECT_GT(moves, 1);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    expect_more(before, "orphan_timeouts", 1);
}

/* What the program sets meanwhile holds for the next carrier. */
TEST_P(Moving, OptionsInBetween) {
    Talk talk = accepted();
    Address from = name_of(talk.app);
    Place p = place();
    suspend(*talk.peer, p.address.port());
    keep_alive(talk.app);
    talk.peer = resumed(p, from);
    vanish(talk.peer->stream.fd());
    EXPECT_EQ(events(talk.app, POLLIN, 20000) & POLLERR, POLLERR);
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), ETIMEDOUT);
}

/* close() waits for the peer's new place, and for all that it has not got yet. */
TEST_P(Moving, LingersInBetween) {
    Talk talk = accepted();
    Address from = name_of(talk.app);
    Place p = place();
    suspend(*talk.peer, p.address.port());
    ASSERT_TRUE(send_all(talk.app, pattern(5000)));
    set_linger(talk.app, 20);
    Call closing([fd = talk.app.release()] { return ::close(fd); });
    EXPECT_TRUE(closing.sleeps());
    talk.peer = arrive(p, from);
    EXPECT_FALSE(closing.done());
    resume(*talk.peer);
    EXPECT_EQ(hear_data(*talk.peer, 5000), pattern(5000));
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    EXPECT_EQ(closing.ret(), 0);
    talk.peer->say(message(kSdpDisConn));
}

TEST_P(Moving, ShutDownInBetween) {
    Talk talk = accepted();
    Address from = name_of(talk.app);
    Place p = place();
    suspend(*talk.peer, p.address.port());
    ASSERT_TRUE(send_all(talk.app, pattern(50)));
    ASSERT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    talk.peer = resumed(p, from);
    EXPECT_EQ(hear_data(*talk.peer, 50), pattern(50));
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpDisConn);
    talk.peer->say(message(kSdpData), pattern(60));
    EXPECT_EQ(receive(talk.app, 60), pattern(60));
}

/* Who gives up does not come back. */
TEST_P(Moving, AbortedInBetween) {
    Talk talk = accepted();
    Place p = place();
    suspend(*talk.peer, p.address.port());
    Fd fd(::accept(p.listener.get(), nullptr, nullptr));
    linger now{1, 0};
    ASSERT_EQ(::setsockopt(talk.app.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    talk.app.reset();
    Peer peer(::dup(fd.get()));
    EXPECT_TRUE(peer.stream.closed_by_peer());
}

/* Nobody is there, or it is another program: an end as any */
TEST_P(Moving, NobodyThere) {
    Talk talk = accepted();
    talk.peer->say(message(kSdpData), pattern(20));
    uint16_t port = place().address.port();
    suspend(*talk.peer, port);
    EXPECT_EQ(receive(talk.app, 20), pattern(20));
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
    EXPECT_EQ(state(talk.app), SDP_INFO_DOWN);
    EXPECT_EQ(::recv(talk.app.get(), &c, 1, 0), 0);
    EXPECT_EQ(ERRNO_OF(::send(talk.app.get(), &c, 1, MSG_NOSIGNAL)), EPIPE);
}

TEST_P(Moving, SilenceThere) {
    Tuned tuned("setup_timeout_ms", 400);
    Talk talk = accepted();
    Place p = place();
    suspend(*talk.peer, p.address.port());
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
}

TEST_P(Moving, BadAnswerThere) {
    Talk talk = accepted();
    Address from = name_of(talk.app);
    Place p = place();
    suspend(*talk.peer, p.address.port());
    std::unique_ptr<Peer> peer = arrive(p, from);
    SdpMessage ack = good_hello_ack();
    ack.bufs = 2;
    resume(*peer, ack);
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
    EXPECT_TRUE(peer->stream.closed_by_peer());
}

/* SDP-208: behind SuspComm a peer is silent; port 0 is none */
TEST_P(Moving, Violations) {
    Place p = place();
    for (SdpMid mid : {kSdpData, kSdpSuspComm, kSdpDisConn}) {
        SCOPED_TRACE(int{mid});
        Talk talk = accepted();
        SdpMessage more = message(mid);
        more.port = p.address.port();
        /* both at once, or it is gone before the second comes */
        int on = 1, off = 0;
        ASSERT_EQ(::setsockopt(talk.peer->stream.fd(), SOL_TCP, TCP_CORK, &on, sizeof(on)), 0);
        say_suspend(*talk.peer, p.address.port());
        talk.peer->say(more);
        ASSERT_EQ(::setsockopt(talk.peer->stream.fd(), SOL_TCP, TCP_CORK, &off, sizeof(off)), 0);
        char c;
        EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
    }
    Talk talk = accepted();
    say_suspend(*talk.peer, 0);
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
}

/* A program that does not read keeps octets of one carrier, and no more. */
TEST_P(Moving, OnceBeforeItReads) {
    Talk talk = accepted();
    talk.peer->say(message(kSdpData), pattern(1000));
    Place p = place();
    talk.peer = moved(talk, p);
    for (uint32_t i = 0; i < 4; i++)
        talk.peer->say(message(kSdpData), pattern(1500, static_cast<uint8_t>(i)));
    Place q = place();
    say_suspend(*talk.peer, q.address.port());
    EXPECT_TRUE(eventually([&] { return waiting(talk.app) == 7000; }));
    while (!talk.peer->stream.silent(milliseconds(200)))
        ASSERT_EQ(talk.peer->hear().msg.mid, kSdpData);
    EXPECT_EQ(receive(talk.app, 1000), pattern(1000));
    EXPECT_EQ(talk.peer->hear_other().msg.mid, kSdpSuspCommAck);
    talk.peer = resumed(q, name_of(talk.app));
    for (uint32_t i = 0; i < 4; i++)
        EXPECT_EQ(receive(talk.app, 1500), pattern(1500, static_cast<uint8_t>(i)));
    talk.peer->say(message(kSdpData), pattern(10));
    EXPECT_EQ(receive(talk.app, 10), pattern(10));
}

/* A HelloAck on the carrier that is being left, at any time of the move */
TEST_P(Moving, HelloAckTooEarly) {
    Bytes ack = encode(good_hello_ack());
    for (unsigned i = 0; i < 200; i++) {
        Talk talk = accepted();
        Place p = place();
        say_suspend(*talk.peer, p.address.port());
        auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(i % 100);
        while (std::chrono::steady_clock::now() < until)
            ;
        try {
            talk.peer->say_octets(ack);
        } catch (const e2e::Failure &) {
            // the end of the carrier may come first
        }
        ASSERT_TRUE(eventually([&] { return state(talk.app) != SDP_INFO_OPEN; })) << i;
        // without a queue pair this would end the kernel
        ::send(talk.app.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        set_linger(talk.app, 0);
    }
}

/* What a move is charged for comes back when the program has read. */
TEST_P(Moving, CostsNoMoreEachTime) {
    Talk talk = accepted();
    const int moves = 250;
    long before = charged_pages();
    for (int i = 0; i < moves; i++) {
        Place p = place();
        talk.peer->say(message(kSdpData), pattern(100));
        ASSERT_TRUE(eventually([&] { return waiting(talk.app) == 100; }));
        talk.peer = moved(talk, p);
        EXPECT_EQ(receive(talk.app, 100), pattern(100));
    }
    // 24 KiB for each would be 1,500 pages.  Each processor keeps up to 256 to itself, either
    // way, and who charges need not run where the other gives back.
    EXPECT_TRUE(eventually([&] { return charged_pages() < before + 800; }))
        << before << " pages before, " << charged_pages() << " after";
}

/* One that nobody has accepted yet */
TEST_P(Moving, BeforeAccept) {
    Fd l = listener();
    auto peer = peer_to(l);
    peer->say_hello(encode(good_hello()));
    peer->say(message(kSdpData), pattern(20));
    Place p = place();
    suspend(*peer, p.address.port());
    peer = resumed(p, name_of(l));
    Fd app(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(app);
    EXPECT_EQ(receive(app, 20), pattern(20));
    ASSERT_TRUE(send_all(app, pattern(30)));
    EXPECT_EQ(hear_data(*peer, 30), pattern(30));
}

} // namespace softwarp::sockets
