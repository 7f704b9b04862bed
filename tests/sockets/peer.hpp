// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peer over plain TCP that speaks SDP message by message, in either role: it says
 * what a test wants, and what it hears is held against the rules that hold for
 * every message.
 */
#pragma once

#include <memory>
#include <optional>

#include "kinds.hpp"
#include "wire/sdp.hpp"
#include "wire/stream.hpp"

namespace softwarp::sockets {

using wire::SdpLayout;
using wire::SdpMessage;
using wire::SdpMid;
using enum wire::SdpFlag;
using enum wire::SdpLayout;
using enum wire::SdpMid;
using enum wire::SdpMode;
using wire::kSdpBufsMin;
using wire::kSdpHeader;
using wire::kSdpHelloLen;
using wire::kSdpSizeMin;

/* Buffers that a socket has and does not tell of until the peer's message 2 is here */
constexpr uint16_t kSpareBufs = 2;

/* IPPROTO_SDP over IPv4 and IPv6 */
std::vector<Kind> sdp_kinds();

/* What an end says that has 8 buffers of 4096 octets, all of which it tells of */
SdpMessage good_hello();
SdpMessage good_hello_ack();
/* The headers of a message */
std::vector<uint8_t> encode(const SdpMessage &msg, SdpLayout layout = kLayoutDraft);
SdpMessage message(SdpMid mid);
SdpMessage src_avail(uint32_t len);

/* A message that came */
struct Heard {
    SdpMessage msg{};
    wire::Bytes octets; // all of it
    uint8_t opcode = 0; // of RDMAP

    wire::Bytes payload() const;
};

/*
 * A socket without credit for long probes its peer by an RDMA Write of no octets.
 * That is no message, and what hears messages passes over it, as a peer's RNIC does.
 */
class Peer {
  public:
    explicit Peer(int fd) : stream(e2e::Fd(fd)) {}

    /* Set-up behind TCP's: as the connecting peer, up to HelloAck, */
    Heard say_hello(wire::View hello, SdpLayout layout = kLayoutDraft);
    /* and as the accepting one: the Hello, MPA, HelloAck. */
    SdpMessage hear_hello();
    void start_mpa();
    void say_hello_ack(wire::View ack);

    /* The next message, with its numbers; Bufs is 100 unless the message has some. */
    void say(SdpMessage msg, wire::View payload = {});
    void say_octets(wire::View octets, uint8_t opcode = wire::kOpSend, uint32_t stag = 0);
    SdpMessage numbered(SdpMessage msg);
    Heard hear();
    /* The same, or none if none begins in the time; an end of the stream fails the test. */
    std::optional<Heard> hear_within(wire::milliseconds quiet);
    /* The same as hear(), without those that only tell of buffers */
    Heard hear_other();

    wire::Stream stream;
    SdpLayout layout = kLayoutDraft;
    uint32_t said = 0, heard = 0; // messages behind HelloAck

  private:
    Heard hear_message();
    Heard hear_rest(wire::Segment segment);
    Heard held_to_rules(Heard found);
    uint32_t msn_said_ = 0, msn_heard_ = 0;
};

void give(const Fd &fd, int level, int name, int value);
/* Nothing reaches that socket any more, and it says nothing before it is closed. */
void vanish(int fd);
/* Keepalive after a second, given up after another */
void keep_alive(const Fd &fd);

/* Sockets with a peer that a test plays */
class Peers : public Sockets {
  protected:
    struct Talk {
        Fd listener, app;
        std::unique_ptr<Peer> peer;
        SdpMessage first; // what the socket has said of itself: HelloAck, or Hello
    };

    /* TCP to an SDP listener */
    Fd tcp_to(const Fd &l) const;
    /* The listener is as good as before. */
    void works(const Fd &l) const;
    Fd tcp_listener() const;
    std::unique_ptr<Peer> peer_to(const Fd &l) const;
    /* A socket that was accepted, and one that has connected */
    Talk accepted(const SdpMessage &hello = good_hello(), SdpLayout layout = kLayoutDraft) const;
    Talk connected_to_peer(const SdpMessage &ack = good_hello_ack()) const;
};

} // namespace softwarp::sockets
