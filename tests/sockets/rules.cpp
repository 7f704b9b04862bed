// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What SDP sockets say to a peer, in which order and how, and what they do with what
 * it says; draft-pinkerton-iwarp-sdp-01.  Comments carry requirement ids, and
 * tests/conformance/elsewhere.tsv has them all.  Peer::hear() looks at what holds for
 * every message: its number, its flags, and whether its Send asks for an event.
 */
#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <string>

#include <poll.h>

#include "peer.hpp"

namespace softwarp::sockets {

using std::chrono::milliseconds;
using wire::Bytes;
using wire::Ending;
using wire::View;

class Rules : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Rules, testing::ValuesIn(sdp_kinds()), name_of_kind);

/* Long enough for what must not come */
constexpr milliseconds kQuiet(150);

static void linger_zero(const Fd &fd) {
    linger now{1, 0};
    ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
}

/* TCP ends here, and nothing comes before that. */
static void expect_end(Peer &peer, bool abort = false) {
    Ending ending = peer.stream.ending();
    EXPECT_TRUE(ending == Ending::fin || (abort && ending == Ending::reset))
        << wire::ending_text(ending);
}

/* It does not, and nothing comes but news of buffers. */
static void expect_open(Peer &peer) {
    while (std::optional<Heard> h = peer.hear_within(kQuiet)) {
        EXPECT_EQ(h->msg.mid, kSdpData);
        EXPECT_EQ(h->msg.payload, 0U);
    }
}

/* The program gets an error, not an end. */
static void expect_reset(const Fd &app, const std::string &what) {
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(app.get(), &c, 1, 0)), ECONNRESET) << what;
}

/* Octets come together from as many messages as the socket likes. */
static Bytes hear_data(Peer &peer, size_t size) {
    Bytes found;
    while (found.size() < size) {
        Heard h = peer.hear_other();
        EXPECT_EQ(h.msg.mid, kSdpData);
        if (h.msg.mid != kSdpData)
            break;
        wire::append(found, h.payload());
    }
    return found;
}

static SdpMessage changed(SdpMessage msg, const std::function<void(SdpMessage &)> &change) {
    change(msg);
    return msg;
}

/* Set-up ----------------------------------------------------------------------- */

/* SDP-30, SDP-31 and so on: the fields of Hello and HelloAck behind the BSDH */
static void check_offer(const SdpMessage &msg, View octets) {
    EXPECT_GE(msg.bufs, 3);
    EXPECT_EQ(msg.flags, 0);
    EXPECT_EQ(msg.mseq, 0U);
    EXPECT_EQ(msg.mseq_ack, 0U);
    EXPECT_GE(msg.hello.max_adverts, 1);
    EXPECT_GE(msg.hello.rcv_size, 37U);
    EXPECT_LE(msg.hello.rcv_size, 0x80000000U);
    EXPECT_GE(msg.hello.ird, 1);
    EXPECT_GE(msg.hello.ord, 1);
    EXPECT_EQ(octets[18], 0) << "Rsvd";
    EXPECT_EQ(octets[19], 0x11) << "MinV, MajV";
}

/* SDP-32, SDP-33, SDP-35, SDP-37, SDP-38, SDP-74; what a Hello may have: SDP-23, SDP-26, SDP-222 */
TEST_P(Rules, HelloAck) {
    struct Row {
        const char *what;
        void (*change)(SdpMessage &);
        uint8_t reserved;
    };
    static const Row rows[] = {
        {"as it should be", [](SdpMessage &) {}, 0},
        {"MinV 0", [](SdpMessage &m) { m.hello.minor = 0; }, 0},
        {"MinV 7", [](SdpMessage &m) { m.hello.minor = 7; }, 0},
        {"MSeq, MSeqAck", [](SdpMessage &m) { m.mseq = 77, m.mseq_ack = 88; }, 0},
        {"Rsvd", [](SdpMessage &) {}, 0xff},
        {"the least", [](SdpMessage &m) { m.bufs = 3, m.hello.rcv_size = 37; }, 0},
        {"the most",
         [](SdpMessage &m) {
             m.bufs = 65535;
             m.hello.rcv_size = m.hello.des_rem_rcv_size = 0x80000000;
             m.hello.max_adverts = m.hello.ird = m.hello.ord = 65535;
         },
         0},
    };
    Fd l = listener();
    for (const Row &row : rows) {
        SCOPED_TRACE(row.what);
        SdpMessage hello = changed(good_hello(), row.change);
        Bytes octets = encode(hello);
        octets[18] = row.reserved;
        auto peer = peer_to(l);
        Heard ack = peer->say_hello(octets);
        EXPECT_EQ(ack.octets.size(), 28U);
        EXPECT_EQ(ack.opcode, wire::kOpSendSolicited);
        check_offer(ack.msg, ack.octets);
        /* SDP-72, SDP-73 */
        EXPECT_LE(ack.msg.hello.ord, hello.hello.ird);
        EXPECT_GE(ack.msg.hello.ird, std::min<int>(hello.hello.ord, 8));
        Fd app(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(app);
        peer->say(message(kSdpData), pattern(20));
        EXPECT_EQ(receive(app, 20), pattern(20));
    }
}

/* In the layout of a Hello that has InfiniBand's, all that is said is said in that. */
TEST_P(Rules, OtherLayout) {
    Talk talk = accepted(good_hello(), kLayoutIb);
    ASSERT_TRUE(send_all(talk.app, pattern(30)));
    EXPECT_EQ(hear_data(*talk.peer, 30), pattern(30));
    talk.peer->say(message(kSdpData), pattern(20));
    EXPECT_EQ(receive(talk.app, 20), pattern(20));
}

/* SDP-75: an acceptor may talk at once.  SDP-19, SDP-20: with number 0, and nothing to acknowledge
 */
TEST_P(Rules, FirstWordIsTheAcceptors) {
    Talk talk = accepted();
    ASSERT_TRUE(send_all(talk.app, pattern(10)));
    Heard h = talk.peer->hear_other();
    EXPECT_EQ(h.msg.mseq, 0U);
    EXPECT_EQ(h.msg.mseq_ack, 0U);
    EXPECT_EQ(h.payload(), pattern(10));
}

/* SDP-21 to SDP-25, SDP-65, SDP-68: the Hello, and then nothing but MPA's start-up */
TEST_P(Rules, NothingBeforeHelloAck) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    Fd app = make();
    set_nonblocking(app);
    ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
    Peer peer(::accept(l.get(), nullptr, nullptr));
    Bytes octets = peer.stream.hear(kSdpHelloLen);
    SdpMessage hello = SdpMessage::parse(octets, kLayoutDraft);
    EXPECT_EQ(hello.mid, kSdpHello);
    check_offer(hello, octets);
    EXPECT_LE(hello.hello.des_rem_rcv_size, 0x80000000U);
    EXPECT_TRUE(peer.stream.silent(kQuiet));
    peer.start_mpa();
    EXPECT_TRUE(peer.stream.silent(kQuiet));
    EXPECT_LT(::send(app.get(), "x", 1, 0), 0);
    EXPECT_EQ(events(app, POLLOUT, 0) & POLLOUT, 0);
    /* SDP-79, SDP-221: from here on it is a stream */
    peer.say_hello_ack(encode(good_hello_ack()));
    EXPECT_NE(events(app, POLLOUT, 10000) & POLLOUT, 0);
    ASSERT_TRUE(send_all(app, pattern(10)));
    Heard h = peer.hear_other();
    EXPECT_EQ(h.msg.mid, kSdpData);
    EXPECT_EQ(h.msg.mseq, 0U);
    EXPECT_EQ(h.payload(), pattern(10));
}

/* SDP-34, SDP-36, SDP-76 */
TEST_P(Rules, BadHelloAcks) {
    struct Row {
        const char *what;
        void (*change)(SdpMessage &);
    };
    static const Row rows[] = {
        {"another message", [](SdpMessage &m) { m.mid = kSdpHello; }},
        {"Data", [](SdpMessage &m) { m = {}, m.mid = kSdpData, m.bufs = 5; }},
        {"version", [](SdpMessage &m) { m.hello.major = 2; }},
        {"MaxAdverts", [](SdpMessage &m) { m.hello.max_adverts = 0; }},
        {"LocIRD", [](SdpMessage &m) { m.hello.ird = 0; }},
        {"LocORD", [](SdpMessage &m) { m.hello.ord = 0; }},
        {"Bufs", [](SdpMessage &m) { m.bufs = 2; }},
        {"size too small", [](SdpMessage &m) { m.hello.rcv_size = kSdpSizeMin - 1; }},
        {"size too large", [](SdpMessage &m) { m.hello.rcv_size = 0x80000001; }},
    };
    Fd l = tcp_listener();
    Address a = name_of(l);
    for (const Row &row : rows) {
        SCOPED_TRACE(row.what);
        Fd app = make();
        set_nonblocking(app);
        ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
        Peer peer(::accept(l.get(), nullptr, nullptr));
        peer.hear_hello();
        peer.start_mpa();
        peer.say_hello_ack(encode(changed(good_hello_ack(), row.change)));
        EXPECT_NE(events(app, POLLOUT, 10000) & POLLERR, 0);
        EXPECT_EQ(option(app, SOL_SOCKET, SO_ERROR), ECONNRESET);
        EXPECT_TRUE(peer.stream.closed_by_peer());
        EXPECT_EQ(peer.heard, 0U);
    }
}

/* SDP-33, SDP-222, SDP-223: what does not matter */
TEST_P(Rules, GoodHelloAcks) {
    struct Row {
        const char *what;
        void (*change)(SdpMessage &);
    };
    static const Row rows[] = {
        {"MinV 0", [](SdpMessage &m) { m.hello.minor = 0; }},
        {"MinV 7", [](SdpMessage &m) { m.hello.minor = 7; }},
        {"MSeq, MSeqAck", [](SdpMessage &m) { m.mseq = 77, m.mseq_ack = 88; }},
        {"the least", [](SdpMessage &m) { m.bufs = 3, m.hello.rcv_size = 37; }},
    };
    for (const Row &row : rows) {
        SCOPED_TRACE(row.what);
        Talk talk = connected_to_peer(changed(good_hello_ack(), row.change));
        talk.peer->say(message(kSdpData), pattern(20));
        EXPECT_EQ(receive(talk.app, 20), pattern(20));
    }
}

/* SDP-66, SDP-67, SDP-71, SDP-155, SDP-156: what Hello and HelloAck promise is there at once */
TEST_P(Rules, AsManyMessagesAsBuffers) {
    for (bool connector : {false, true}) {
        SCOPED_TRACE(connector);
        Talk talk = connector ? connected_to_peer() : accepted();
        /* HelloAck has used one of the connector's */
        uint32_t count = talk.first.bufs - (connector ? 1U : 0U);
        uint32_t size = talk.first.hello.rcv_size - kSdpHeader;
        Bytes all;
        for (uint32_t i = 0; i < count; i++) {
            Bytes part = pattern(size, static_cast<uint8_t>(i));
            talk.peer->say(message(kSdpData), part);
            wire::append(all, part);
        }
        EXPECT_EQ(receive(talk.app, all.size()), all);
    }
}

/* Credits and sizes -------------------------------------------------------------- */

/* SDP-16, SDP-163, SDP-167: one way alone, by what the draft says a peer may send */
TEST_P(Rules, OneWay) {
    Talk talk = connected_to_peer();
    Peer &peer = *talk.peer;
    int64_t left = talk.first.bufs - 1;
    for (uint32_t i = 0; i < 200; i++) {
        Bytes part = pattern(50, static_cast<uint8_t>(i));
        while (left < 3) {
            Heard h = peer.hear();
            EXPECT_EQ(h.msg.payload, 0U);
            uint32_t behind =
                h.msg.mseq_ack == 0 && peer.said == 0 ? 0 : peer.said - 1 - h.msg.mseq_ack;
            left = int64_t{h.msg.bufs} - behind;
            /* it has no more than at first, and never says so */
            EXPECT_LE(h.msg.bufs, talk.first.bufs + kSpareBufs);
        }
        peer.say(message(kSdpData), part);
        left--;
        ASSERT_EQ(receive(talk.app, part.size()), part) << i;
    }
}

/* SDP-164, SDP-165, SDP-166: three buffers, of which HelloAck takes one */
TEST_P(Rules, NoCreditForPayload) {
    Talk talk = accepted(changed(good_hello(), [](SdpMessage &m) { m.bufs = 3; }));
    Peer &peer = *talk.peer;
    ASSERT_TRUE(send_all(talk.app, pattern(10)));
    /* it may ask with the last but one, and has none to give with the last */
    EXPECT_EQ(peer.hear().msg.payload, 0U);
    EXPECT_FALSE(peer.hear_within(milliseconds(1500)));
    SdpMessage more = message(kSdpData);
    more.bufs = 2;
    peer.say(more);
    expect_open(peer);
    more.bufs = 10;
    peer.say(more);
    EXPECT_EQ(hear_data(peer, 10), pattern(10));
}

/* SDP-29, SDP-37, SDP-155: a message as large as the buffer is taken */
TEST_P(Rules, LargestMessage) {
    for (bool connector : {false, true}) {
        SCOPED_TRACE(connector);
        Talk talk = connector ? connected_to_peer() : accepted();
        Bytes octets = pattern(talk.first.hello.rcv_size - kSdpHeader);
        talk.peer->say(message(kSdpData), octets);
        EXPECT_EQ(receive(talk.app, octets.size()), octets);
    }
}

/* and one that is larger is not. */
TEST_P(Rules, TooLargeAMessage) {
    Talk talk = accepted();
    talk.peer->say(message(kSdpData), pattern(talk.first.hello.rcv_size - kSdpHeader + 1));
    expect_reset(talk.app, "larger than the buffer");
    EXPECT_TRUE(talk.peer->stream.closed_by_peer());
}

/* SDP-103, SDP-157: nothing larger than the peer's buffers leaves */
TEST_P(Rules, SmallBuffers) {
    for (uint32_t size : {37U, 38U, 500U}) {
        SCOPED_TRACE(size);
        Talk talk =
            accepted(changed(good_hello(), [&](SdpMessage &m) { m.hello.rcv_size = size; }));
        Peer &peer = *talk.peer;
        Bytes octets = pattern(60), found;
        ASSERT_TRUE(send_all(talk.app, octets));
        while (found.size() < octets.size()) {
            Heard h = peer.hear();
            EXPECT_LE(h.octets.size(), size);
            wire::append(found, h.payload());
            peer.say(message(kSdpData));
        }
        EXPECT_EQ(found, octets);
    }
}

static SdpMessage resize_to(uint32_t size) {
    SdpMessage msg = message(kSdpChRcvBuf);
    msg.size = size;
    return msg;
}

/* A peer asks for larger buffers, and says something until it has the answer, or 25 times. */
static Heard grow(const Fd &app, Peer &peer, uint32_t size) {
    peer.say(resize_to(size));
    Heard h;
    for (uint32_t i = 0; i < 25 && h.msg.mid != kSdpChRcvBufAck; i++) {
        Bytes octets;
        for (uint8_t seed = 0; seed < 4; seed++) {
            peer.say(message(kSdpData), pattern(10, seed));
            wire::append(octets, pattern(10, seed));
        }
        EXPECT_EQ(receive(app, octets.size()), octets);
        while (h.msg.mid != kSdpChRcvBufAck && !peer.stream.silent(milliseconds(20)))
            h = peer.hear();
    }
    return h;
}

/*
 * SDP-171, SDP-172, SDP-173, SDP-179: a program that reads has larger buffers for a peer that
 * wants them; the answer waits for the small ones to be used, and the peer need not wait for it
 */
TEST_P(Rules, BuffersGrow) {
    Talk talk = connected_to_peer();
    Peer &peer = *talk.peer;
    uint32_t size = talk.first.hello.rcv_size;
    /* posted before, but for HelloAck's */
    uint32_t old = talk.first.bufs + kSpareBufs - 1;
    Heard h = grow(talk.app, peer, 2 * size);
    ASSERT_EQ(h.msg.mid, kSdpChRcvBufAck);
    EXPECT_EQ(h.msg.size, 2 * size);
    EXPECT_EQ(h.opcode, wire::kOpSend);
    EXPECT_GE(peer.said, old);
    Bytes octets = pattern(2 * size - kSdpHeader);
    peer.say(message(kSdpData), octets);
    EXPECT_EQ(receive(talk.app, octets.size()), octets);
    /* less is of no use; that is told at once */
    peer.say(resize_to(16));
    while (h.msg.mid != kSdpChRcvBufAck || h.msg.mseq_ack + 1 != peer.said)
        h = peer.hear();
    EXPECT_EQ(h.msg.size, 2 * size);
}

/* SDP-174: without memory for larger ones they stay what they are, and that is told at once */
TEST_P(Rules, BuffersKeepTheirSize) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    int least = 2048;
    ASSERT_EQ(::setsockopt(talk.app.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)), 0);
    peer.say(resize_to(2 * talk.first.hello.rcv_size));
    peer.say(message(kSdpData), pattern(10));
    EXPECT_EQ(receive(talk.app, 10), pattern(10));
    Heard h = peer.hear_other();
    EXPECT_EQ(h.msg.mid, kSdpChRcvBufAck);
    EXPECT_EQ(h.msg.size, talk.first.hello.rcv_size);
    EXPECT_EQ(h.opcode, wire::kOpSend);
    peer.say(message(kSdpData), pattern(10));
    EXPECT_EQ(receive(talk.app, 10), pattern(10));
}

/* While it lives, loopback is as long as a link around the world. */
class Distance {
  public:
    Distance() { EXPECT_TRUE(run("tc qdisc add dev lo root netem delay 100ms limit 10000")); }
    ~Distance() { EXPECT_TRUE(run("tc qdisc del dev lo root")); }
    Distance(const Distance &) = delete;
    Distance &operator=(const Distance &) = delete;
};

/* Messages that fill buffers of that size */
static void say_much(Peer &peer, uint32_t messages, uint32_t size) {
    for (uint32_t i = 0; i < messages; i++)
        peer.say(message(kSdpData), pattern(size - kSdpHeader));
}

static void read_much(const Fd &app, uint32_t messages, uint32_t size) {
    for (uint32_t i = 0; i < messages; i++)
        ASSERT_EQ(receive(app, size - kSdpHeader), pattern(size - kSdpHeader));
}

/*
 * A peer uses up all but two of @bufs buffers, the program reads, the peer asks for
 * credit, and the program reads something more: the buffers that there are then
 */
static uint32_t asked_for_credit(const Fd &app, Peer &peer, uint32_t bufs, uint32_t size) {
    say_much(peer, bufs - 3, size);
    read_much(app, bufs - 3, size);
    peer.say(message(kSdpData));
    say_much(peer, 1, kSdpHeader + 10);
    read_much(app, 1, kSdpHeader + 10);
    /* to take longer would be a slower flow */
    while (peer.hear_within(milliseconds(0)))
        ;
    return info(app).own_bufs;
}

/*
 * A peer far away that uses up its credit though the program reads gets more of it, up to a
 * limit.  The first time that it asks there is nothing to compare with.  They do not all become
 * as large as it would like them then.
 */
TEST_P(Rules, MoreBuffersForADistantPeer) {
    std::optional<Distance> distance(std::in_place);
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    give(talk.app, SOL_SOCKET, SO_RCVBUFFORCE, 100 * 8192);
    uint32_t size = 2 * talk.first.hello.rcv_size;
    ASSERT_EQ(grow(talk.app, peer, size).msg.size, size);
    uint32_t bufs = info(talk.app).own_bufs;
    EXPECT_EQ(bufs, 16U);
    for (uint32_t more : {16U, 24U, 36U, 46U, 46U}) {
        bufs = asked_for_credit(talk.app, peer, bufs, size);
        ASSERT_EQ(bufs, more);
    }
    distance.reset();
    uint32_t larger = grow(talk.app, peer, 16 * size).msg.size;
    EXPECT_GE(larger, 2 * size);
    EXPECT_EQ(info(talk.app).own_bufs, bufs);
    EXPECT_LE(larger * bufs, static_cast<uint32_t>(option(talk.app, SOL_SOCKET, SO_RCVBUF)));
}

/* and one nearby does not, for its credit is back before it misses it. */
TEST_P(Rules, NoMoreBuffersForAPeerNearby) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    uint32_t size = 2 * talk.first.hello.rcv_size;
    ASSERT_EQ(grow(talk.app, peer, size).msg.size, size);
    uint32_t bufs = info(talk.app).own_bufs;
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(asked_for_credit(talk.app, peer, bufs, size), bufs);
}

/* Nor would more help where the program is slow. */
TEST_P(Rules, NoMoreBuffersForASlowProgram) {
    Distance distance;
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    uint32_t size = 2 * talk.first.hello.rcv_size;
    ASSERT_EQ(grow(talk.app, peer, size).msg.size, size);
    uint32_t bufs = info(talk.app).own_bufs;
    ASSERT_EQ(asked_for_credit(talk.app, peer, bufs, size), bufs);
    uint32_t unread = bufs / 2 + 1;
    say_much(peer, unread, size);
    peer.say(message(kSdpData));
    /* behind which it has arrived */
    say_much(peer, 1, kSdpHeader + 10);
    ASSERT_TRUE(eventually([&] { return info(talk.app).own_credits + unread + 1 == bufs; }));
    read_much(talk.app, unread, size);
    read_much(talk.app, 1, kSdpHeader + 10);
    EXPECT_EQ(info(talk.app).own_bufs, bufs);
}

/* SO_RCVBUF limits the number, too. */
TEST_P(Rules, MoreBuffersWithinTheLimit) {
    Distance distance;
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    uint32_t size = 2 * talk.first.hello.rcv_size;
    give(talk.app, SOL_SOCKET, SO_RCVBUF, static_cast<int>(10 * size));
    uint32_t most = static_cast<uint32_t>(option(talk.app, SOL_SOCKET, SO_RCVBUF)) / size;
    ASSERT_EQ(grow(talk.app, peer, size).msg.size, size);
    ASSERT_EQ(asked_for_credit(talk.app, peer, 16, size), 16U);
    EXPECT_EQ(asked_for_credit(talk.app, peer, 16, size), most);
    EXPECT_EQ(asked_for_credit(talk.app, peer, most, size), most);
}

/* SDP-61, SDP-168, SDP-169, SDP-170: a sender that has much to say asks, and waits for the answer
 */
TEST_P(Rules, AsksForLargerBuffers) {
    Talk talk = accepted(changed(good_hello(), [](SdpMessage &m) { m.bufs = 60; }));
    Peer &peer = *talk.peer;
    Bytes octets = pattern(40000), found;
    ASSERT_TRUE(send_all(talk.app, octets));
    bool asked = false;
    while (found.size() < octets.size()) {
        Heard h = peer.hear();
        EXPECT_LE(h.octets.size(), 4096U);
        wire::append(found, h.payload());
        if (h.msg.mid != kSdpChRcvBuf)
            continue;
        EXPECT_FALSE(asked) << "SDP-177";
        asked = true;
        EXPECT_GT(h.msg.size, 4096U);
        EXPECT_EQ(h.octets.size(), 20U);
        EXPECT_EQ(h.opcode, wire::kOpSend);
    }
    EXPECT_TRUE(asked);
    EXPECT_EQ(found, octets);
    SdpMessage ack = message(kSdpChRcvBufAck);
    ack.size = 20000;
    peer.say(ack);
    /* the answer has to be there before more is sent */
    peer.say(src_avail(2), pattern(1));
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpSendSm);
    ASSERT_TRUE(send_all(talk.app, octets));
    for (found.clear(); found.size() < octets.size();) {
        Heard h = peer.hear_other();
        if (found.empty()) {
            EXPECT_GT(h.octets.size(), 4096U);
        }
        EXPECT_LE(h.octets.size(), 20000U);
        wire::append(found, h.payload());
    }
    EXPECT_EQ(found, octets);
}

/* Data ---------------------------------------------------------------------------- */

/* SDP-08, SDP-13, SDP-42: flags that mean nothing, and messages that have nothing for the program
 */
TEST_P(Rules, FlagsThatMeanNothing) {
    Talk talk = accepted();
    SdpMessage msg = message(kSdpData);
    msg.flags = 0xf8 | kSdpReqPipe;
    talk.peer->say(msg);
    set_nonblocking(talk.app);
    char c;
    usleep(100000);
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), EAGAIN);
    set_nonblocking(talk.app, false);
    talk.peer->say(msg, pattern(5));
    EXPECT_EQ(receive(talk.app, 5), pattern(5));
}

/*
 * SDP-52, SDP-102, SDP-106, SDP-112, SDP-121, SDP-135: what is advertised is asked for by Data, at
 * once and once, though no program reads; what came with it is not asked for again
 */
TEST_P(Rules, AdvertIsRefused) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    Bytes octets = pattern(300);
    View all(octets);
    peer.say(src_avail(200), all.first(10));
    Heard h = peer.hear_other();
    EXPECT_EQ(h.msg.mid, kSdpSendSm);
    EXPECT_EQ(h.octets.size(), 16U);
    EXPECT_EQ(h.opcode, wire::kOpSendSolicited);
    peer.say(message(kSdpData), all.subspan(10, 190));
    peer.say(message(kSdpData), all.subspan(200));
    EXPECT_EQ(receive(talk.app, octets.size()), octets);
    /* and in Pipelined Mode, where nothing comes with it */
    SdpMessage mode = message(kSdpModeChange);
    mode.mode.mode = kSdpPipelined;
    peer.say(mode);
    peer.say(src_avail(200));
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpSendSm);
    peer.say(message(kSdpData), all.first(200));
    EXPECT_EQ(receive(talk.app, 200), Bytes(octets.begin(), octets.begin() + 200));
}

/* SDP-143, SDP-144: of what was refused nothing is left to be cancelled */
TEST_P(Rules, CancelOfNothing) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    peer.say(src_avail(20), pattern(10));
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpSendSm);
    peer.say(message(kSdpSrcAvailCancel));
    peer.say(message(kSdpData), pattern(10));
    EXPECT_EQ(receive(talk.app, 20).size(), 20U);
    ASSERT_TRUE(send_all(talk.app, pattern(5)));
    Heard h = peer.hear_other();
    EXPECT_EQ(h.msg.mid, kSdpData);
    EXPECT_EQ(h.payload(), pattern(5));
}

/* SDP-215: Reads and Writes are no errors of the stream; these touch no memory. */
TEST_P(Rules, ReadAndWriteOfNothing) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    peer.stream.say_ulpdu(wire::Tagged{.stag = 1, .to = 2}.bytes());
    peer.stream.say_ulpdu(wire::ReadRequest{.sink_stag = 3, .sink_to = 4}.bytes());
    wire::Segment response = peer.stream.hear_segment();
    EXPECT_EQ(response.opcode(), wire::kOpReadResponse) << response.text();
    EXPECT_EQ(response.stag, 3U);
    peer.say(message(kSdpData), pattern(5));
    EXPECT_EQ(receive(talk.app, 5), pattern(5));
}

/* What breaks a rule: SDP-05, SDP-07, SDP-18, SDP-94, SDP-97, SDP-159 and more */
TEST_P(Rules, Violations) {
    struct Row {
        const char *what;
        SdpMessage msg;
        size_t payload;
        void (*spoil)(Bytes &octets);
        uint8_t opcode;
    };
    auto of = [](SdpMid mid) { return message(mid); };
    auto mode = [](uint8_t to, bool send) {
        SdpMessage msg = message(kSdpModeChange);
        msg.mode.mode = to;
        msg.mode.send = send;
        return msg;
    };
    auto as_is = [](Bytes &) {};
    const Row rows[] = {
        {"MID 0x0f", of(kSdpData), 0, [](Bytes &o) { o[3] = 0x0f; }, 3},
        {"MID 0x40", of(kSdpData), 0, [](Bytes &o) { o[3] = 0x40; }, 3},
        {"MID 0x80", of(kSdpData), 0, [](Bytes &o) { o[3] = 0x80; }, 3},
        {"MID 0xfc", of(kSdpData), 0, [](Bytes &o) { o[3] = 0xfc; }, 3},
        {"less than a BSDH", of(kSdpData), 0, [](Bytes &o) { o.resize(15); }, 3},
        {"nothing at all", of(kSdpData), 0, [](Bytes &o) { o.clear(); }, 3},
        {"Len too small", of(kSdpData), 5, [](Bytes &o) { o[7]--; }, 3},
        {"Len too large", of(kSdpData), 5, [](Bytes &o) { o[7]++; }, 3},
        {"payload of SendSm", of(kSdpSendSm), 1, as_is, 5},
        {"MSeq left out", of(kSdpData), 1, [](Bytes &o) { o[11]++; }, 3},
        {"MSeqAck of what was not sent", of(kSdpData), 1, [](Bytes &o) { o[15] = 9; }, 3},
        {"SrcAvail of nothing", src_avail(0), 1, as_is, 3},
        {"SrcAvail of too much", src_avail(0x80000001), 1, as_is, 3},
        {"SrcAvail without payload", src_avail(100), 0, as_is, 3},
        {"SrcAvail of less than its payload", src_avail(1), 2, as_is, 3},
        {"SinkAvail", of(kSdpSinkAvail), 0, [](Bytes &o) { o[19] = 100; }, 3},
        {"a second Hello", good_hello(), 0, as_is, 3},
        {"a second HelloAck", good_hello_ack(), 0, as_is, 5},
        {"RdmaRdCompl", of(kSdpRdmaRdCompl), 0, as_is, 5},
        {"RdmaWrCompl", of(kSdpRdmaWrCompl), 0, as_is, 5},
        {"SendSm", of(kSdpSendSm), 0, as_is, 5},
        {"SinkCancelAck", of(kSdpSinkCancelAck), 0, as_is, 5},
        {"SuspCommAck", of(kSdpSuspCommAck), 0, as_is, 5},
        {"ChRcvBufAck", of(kSdpChRcvBufAck), 0, as_is, 3},
        {"AbortConn without DisConn", of(kSdpAbortConn), 0, as_is, 5},
        {"the mode that there is", mode(kSdpCombined, false), 0, as_is, 3},
        {"a mode of ours", mode(kSdpPipelined, true), 0, as_is, 3},
        {"mode 3", mode(3, false), 0, as_is, 3},
    };
    Fd l = listener();
    for (const Row &row : rows) {
        SCOPED_TRACE(row.what);
        auto peer = peer_to(l);
        peer->say_hello(encode(good_hello()));
        Fd app(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(app);
        SdpMessage msg = row.msg;
        msg.payload = static_cast<uint32_t>(row.payload);
        Bytes octets = wire::join({encode(peer->numbered(msg)), pattern(row.payload)});
        row.spoil(octets);
        peer->say_octets(octets, row.opcode, 0x777);
        expect_reset(app, row.what);
        /* no message says so, the stream just ends */
        expect_end(*peer, true);
    }
    works(l);
}

/* SDP-117, SDP-125: nothing of ours is there to be invalidated; RDMAP says so */
TEST_P(Rules, InvalidateOfNothing) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    SdpMessage msg = peer.numbered(message(kSdpData));
    peer.say_octets(encode(msg), wire::kOpSendInvalidate, 0x777);
    expect_reset(talk.app, "no such STag");
    EXPECT_EQ(peer.stream.hear_segment().qn, 2U);
    expect_end(peer, true);
}

/* Ends ------------------------------------------------------------------------------ */

/* SDP-39, SDP-81 to SDP-87: we are done, the peer is not */
TEST_P(Rules, HalfClosed) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    ASSERT_TRUE(send_all(talk.app, pattern(1000)));
    ASSERT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    EXPECT_EQ(hear_data(peer, 1000), pattern(1000));
    Heard h = peer.hear_other();
    EXPECT_EQ(h.msg.mid, kSdpDisConn);
    EXPECT_EQ(h.octets.size(), 16U);
    EXPECT_EQ(h.opcode, wire::kOpSend);
    EXPECT_EQ(ERRNO_OF(::send(talk.app.get(), "x", 1, MSG_NOSIGNAL)), EPIPE);
    expect_open(peer);
    /* by Data, and what is advertised */
    peer.say(message(kSdpData), pattern(500));
    EXPECT_EQ(receive(talk.app, 500), pattern(500));
    peer.say(src_avail(20), pattern(10));
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpSendSm);
    peer.say(message(kSdpData), pattern(10));
    EXPECT_EQ(receive(talk.app, 20).size(), 20U);
    /* SDP-88, SDP-92: whose DisConn came second closes TCP */
    peer.say(message(kSdpDisConn));
    char c;
    EXPECT_EQ(::recv(talk.app.get(), &c, 1, 0), 0);
    expect_open(peer);
    peer.stream.shut_down();
    EXPECT_TRUE(peer.stream.closed_by_peer());
    EXPECT_EQ(::recv(talk.app.get(), &c, 1, 0), 0);
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), 0);
}

/* SDP-90, SDP-91, SDP-92, SDP-98: the peer is done first */
TEST_P(Rules, PeerHalfClosed) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    peer.say(message(kSdpData), pattern(100));
    peer.say(message(kSdpDisConn));
    EXPECT_EQ(receive(talk.app, 101), pattern(100));
    ASSERT_TRUE(send_all(talk.app, pattern(2000)));
    EXPECT_EQ(hear_data(peer, 2000), pattern(2000));
    expect_open(peer);
    talk.app.reset();
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpDisConn);
    expect_end(peer);
}

/* SDP-92: both at once; the connecting peer closes TCP */
TEST_P(Rules, CrossingDisConn) {
    Talk talk = connected_to_peer();
    Peer &peer = *talk.peer;
    ASSERT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    ASSERT_TRUE(eventually([&] { return peer.stream.ending() == Ending::data; }));
    /* that message is not seen yet, so it is not acknowledged */
    peer.say(message(kSdpDisConn));
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpDisConn);
    expect_end(peer);
    char c;
    EXPECT_EQ(::recv(talk.app.get(), &c, 1, 0), 0);
}

/* SDP-40, SDP-41, SDP-93, SDP-98: behind a DisConn an abort is said, and TCP closes as usual */
TEST_P(Rules, AbortBehindDisConn) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    ASSERT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    EXPECT_EQ(peer.hear_other().msg.mid, kSdpDisConn);
    linger_zero(talk.app);
    talk.app.reset();
    Heard h = peer.hear_other();
    EXPECT_EQ(h.msg.mid, kSdpAbortConn);
    EXPECT_EQ(h.octets.size(), 16U);
    EXPECT_EQ(h.opcode, wire::kOpSendSolicited);
    expect_end(peer);
}

/* SDP-41, SDP-94, SDP-96: without one nothing is said, and what was not sent is not */
TEST_P(Rules, AbortWithoutDisConn) {
    Talk talk = accepted(changed(good_hello(), [](SdpMessage &m) { m.bufs = 4; }));
    Peer &peer = *talk.peer;
    /* one message has credit */
    ASSERT_TRUE(send_all(talk.app, pattern(4000)));
    EXPECT_EQ(peer.hear().msg.payload, 4000U);
    ASSERT_TRUE(send_all(talk.app, pattern(3000)));
    /* it may ask for credit */
    EXPECT_EQ(peer.hear().msg.payload, 0U);
    linger_zero(talk.app);
    talk.app.reset();
    expect_end(peer, true);
}

/* SDP-88, SDP-95: an end of TCP is none of the stream's */
TEST_P(Rules, EndWithoutDisConn) {
    for (bool reset : {false, true}) {
        SCOPED_TRACE(reset);
        Talk talk = accepted();
        talk.peer->say(message(kSdpData), pattern(10));
        EXPECT_EQ(receive(talk.app, 10), pattern(10));
        if (reset)
            talk.peer->stream.reset();
        else
            talk.peer->stream.shut_down();
        expect_reset(talk.app, "no DisConn");
    }
}

/* SDP-88, SDP-95: DisConn is taken back */
TEST_P(Rules, AbortConnOfThePeer) {
    Talk talk = accepted();
    Peer &peer = *talk.peer;
    peer.say(message(kSdpDisConn));
    EXPECT_NE(events(talk.app, POLLRDHUP, 10000) & POLLRDHUP, 0);
    peer.say(message(kSdpAbortConn));
    ASSERT_TRUE(eventually([&] { return (events(talk.app, 0) & POLLERR) != 0; }));
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), EPIPE);
    EXPECT_TRUE(peer.stream.closed_by_peer());
}

/* SDP-85: nothing follows a DisConn but what is no data */
TEST_P(Rules, DataBehindDisConn) {
    Talk talk = accepted();
    talk.peer->say(message(kSdpDisConn));
    talk.peer->say(message(kSdpData), pattern(1));
    ASSERT_TRUE(eventually([&] { return (events(talk.app, 0) & POLLERR) != 0; }));
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), EPIPE);
}

/* SDP-80: TCP ends in the middle of set-up, at the last moment */
TEST_P(Rules, EndBeforeHelloAck) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    for (bool behind_mpa : {false, true}) {
        Fd app = make();
        set_nonblocking(app);
        ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
        Peer peer(::accept(l.get(), nullptr, nullptr));
        peer.hear_hello();
        if (behind_mpa)
            peer.start_mpa();
        peer.stream.reset();
        EXPECT_NE(events(app, POLLOUT, 10000) & POLLERR, 0);
        EXPECT_EQ(option(app, SOL_SOCKET, SO_ERROR), ECONNRESET);
    }
}

} // namespace softwarp::sockets
