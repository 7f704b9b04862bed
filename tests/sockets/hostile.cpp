// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Peers that say anything: messages in good FPDUs, most of them right for a while,
 * then with fields, lengths and octets that no rule allows, in both roles, while the
 * program at the other end does this and that.  An honest connection goes on beside
 * them.  What must not happen is told by the kernel, or by who hangs.
 *
 * SOCKETS_SEED and SOCKETS_SESSIONS in the environment play other sessions, and more.
 */
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>

#include <poll.h>
#include <sys/ioctl.h>

#include "peer.hpp"
#include "portmap.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

using wire::Bytes;

class Hostile : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Hostile, testing::ValuesIn(sdp_kinds()), name_of_kind);

static unsigned long number(const char *name, unsigned long otherwise) {
    const char *text = std::getenv(name);
    return text != nullptr ? std::strtoul(text, nullptr, 0) : otherwise;
}

namespace {

/* The same seed, the same values */
class Chance {
  public:
    explicit Chance(uint64_t seed) : engine_(seed) {}
    /* Below that */
    uint32_t below(uint32_t end) { return static_cast<uint32_t>(engine_() % end); }
    bool one_in(uint32_t count) { return below(count) == 0; }
    uint32_t word() {
        static const uint32_t edges[] = {0,      1,          2,          3,         0x7fff,
                                         0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
        return one_in(3) ? edges[below(std::size(edges))] : static_cast<uint32_t>(engine_());
    }
    template<typename T, size_t N>
    T of(const T (&all)[N]) {
        return all[below(N)];
    }
    Bytes octets(size_t size) {
        Bytes found(size);
        std::ranges::generate(found, [&] { return static_cast<uint8_t>(engine_()); });
        return found;
    }
    /* A few bits, or a length, are not what they were. */
    void spoil(Bytes &octets) {
        switch (below(4)) {
        case 0: octets.resize(below(static_cast<uint32_t>(octets.size()) + 1)); break;
        case 1: octets.resize(octets.size() + below(40), 0x5a); break;
        default:
            for (uint32_t i = 0; i <= below(4) && !octets.empty(); i++) {
                uint32_t end = std::min<uint32_t>(static_cast<uint32_t>(octets.size()), 40);
                octets[below(end)] ^= static_cast<uint8_t>(1U << below(8));
            }
        }
    }

  private:
    std::mt19937_64 engine_;
};

/* The program: calls that do not wait, until it is to close. */
class Program {
  public:
    Program(Fd fd, uint64_t seed)
        : fd_(std::move(fd)), thread_([this, seed] { run(Chance(seed)); }) {}
    ~Program() {
        over_ = true;
        thread_.join();
    }

  private:
    void run(Chance chance) {
        std::vector<uint8_t> octets(100000);
        while (!over_) {
            size_t size = chance.below(static_cast<uint32_t>(octets.size()));
            int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
            int queued = 0;
            switch (chance.below(9)) {
            case 0: flags |= MSG_OOB; [[fallthrough]];
            case 1:
            case 2: ::send(fd_.get(), octets.data(), size, flags); break;
            case 3: flags |= MSG_PEEK; [[fallthrough]];
            case 4:
            case 5:
            case 6: ::recv(fd_.get(), octets.data(), size, flags); break;
            case 7: ::recv(fd_.get(), octets.data(), 1, flags | MSG_OOB); break;
            default: ::ioctl(fd_.get(), FIONREAD, &queued); break;
            }
            if (chance.one_in(200))
                ::shutdown(fd_.get(), SHUT_WR);
            if (chance.one_in(50))
                usleep(chance.below(3000));
        }
    }

    Fd fd_;
    std::atomic<bool> over_ = false;
    std::thread thread_;
};

/* A connection of two who keep to the rules */
class Honest {
  public:
    explicit Honest(Pair pair)
        : pair_(std::move(pair)), thread_([this] {
              std::vector<uint8_t> octets = pattern(20000);
              while (!over_ && good_) {
                  good_ =
                      send_all(pair_.here, octets) && receive(pair_.there, octets.size()) == octets;
                  rounds_++;
                  usleep(1000);
              }
          }) {}
    ~Honest() { end(); }
    bool good() {
        size_t before = rounds_;
        bool goes_on = eventually([&] { return rounds_ > before || !good_; });
        end();
        return good_ && goes_on;
    }

  private:
    void end() {
        over_ = true;
        if (thread_.joinable())
            thread_.join();
    }

    Pair pair_;
    std::atomic<bool> over_ = false, good_ = true;
    std::atomic<size_t> rounds_ = 0;
    std::thread thread_;
};

} // namespace

static SdpMessage any_message(Chance &chance, const Peer &peer) {
    static const SdpMid mids[] = {
        kSdpData,         kSdpData,       kSdpData,        kSdpData,           kSdpHello,
        kSdpHelloAck,     kSdpDisConn,    kSdpAbortConn,   kSdpSendSm,         kSdpRdmaWrCompl,
        kSdpRdmaRdCompl,  kSdpModeChange, kSdpSrcAvail,    kSdpSinkAvail,      kSdpChRcvBuf,
        kSdpChRcvBufAck,  kSdpSuspComm,   kSdpSuspCommAck, kSdpSrcAvailCancel, kSdpSinkAvailCancel,
        kSdpSinkCancelAck};
    SdpMessage msg = message(chance.of(mids));
    if (msg.mid == kSdpDisConn && !chance.one_in(4))
        msg.mid = kSdpData;
    if (chance.one_in(4))
        msg.flags = static_cast<uint8_t>(chance.below(8));
    msg.bufs = static_cast<uint16_t>(chance.one_in(8) ? chance.word() : 100);
    msg.mseq = peer.said;
    msg.mseq_ack = peer.heard != 0 ? peer.heard - 1 : 0;
    if (chance.one_in(30))
        msg.mseq = chance.word();
    if (chance.one_in(30))
        msg.mseq_ack = chance.word();
    switch (msg.mid) {
    case kSdpSrcAvail:
    case kSdpSinkAvail:
        msg.avail = {};
        msg.avail.len = chance.one_in(2) ? chance.word() : 1 + chance.below(200000);
        msg.avail.stag = chance.word();
        msg.avail.va = chance.word();
        break;
    case kSdpModeChange: msg.mode = {}; break;
    case kSdpHello:
    case kSdpHelloAck: msg.hello = good_hello().hello; break;
    case kSdpSuspComm: msg.port = static_cast<uint16_t>(chance.word()); break;
    default: msg.size = chance.one_in(2) ? chance.word() : 2048 + chance.below(200000); break;
    }
    return msg;
}

/* Takes in what there is, so that the other end is not held up. */
static void drain(Peer &peer) {
    while (peer.stream.ending(e2e::Deadline(e2e::milliseconds(0))) == wire::Ending::data) {
        if (peer.stream.hear_segment().last())
            peer.heard++;
    }
}

static void talk(Peer &peer, Chance &chance) {
    static const uint8_t opcodes[] = {wire::kOpSend,           wire::kOpSend,
                                      wire::kOpSend,           wire::kOpSendSolicited,
                                      wire::kOpSendInvalidate, wire::kOpSendSolicitedInvalidate};
    uint32_t count = chance.below(60);
    for (uint32_t i = 0; i < count; i++) {
        SdpMessage msg = any_message(chance, peer);
        uint32_t room = chance.one_in(10) ? 20000 : 4000;
        Bytes payload =
            chance.octets(msg.mid == kSdpData || chance.one_in(10) ? chance.below(room) : 0);
        msg.payload = static_cast<uint32_t>(payload.size());
        Bytes octets = wire::join({encode(msg, peer.layout), payload});
        if (chance.one_in(12))
            chance.spoil(octets);
        peer.say_octets(octets, chance.of(opcodes), chance.word());
        peer.said++;
        if (chance.one_in(60))
            peer.stream.say(chance.octets(1 + chance.below(100)));
        if (!chance.one_in(5))
            drain(peer);
    }
    if (chance.one_in(3))
        peer.stream.reset();
    else if (chance.one_in(2))
        peer.stream.shut_down();
}

/* A good Hello or HelloAck, as a rule */
static Bytes opening(Chance &chance, const SdpMessage &good, SdpLayout layout) {
    Bytes octets = encode(good, layout);
    if (chance.one_in(8))
        chance.spoil(octets);
    return octets;
}

/* True: it came so far that it could say what it liked. */
template<typename Open>
static bool session(Open open) {
    bool opened = false;
    try {
        open(opened);
    } catch (const e2e::Failure &) {
        /* the other end has had enough, as it should */
    }
    return opened;
}

/* SDP-80 and what there is against all sorts of messages */
TEST_P(Hostile, Clients) {
    uint64_t seed = number("SOCKETS_SEED", 1);
    unsigned long sessions = number("SOCKETS_SESSIONS", 60);
    Honest honest(connected());
    Fd l = listener(64);
    size_t opened = 0;
    for (unsigned long i = 0; i < sessions && !HasFailure(); i++) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", session " + std::to_string(i));
        Chance chance(seed << 32 | i);
        opened += session([&](bool &so_far) {
            Peer peer(::dup(tcp_to(l).get()));
            peer.layout = chance.one_in(3) ? kLayoutIb : kLayoutDraft;
            peer.stream.say(opening(chance, good_hello(), peer.layout));
            wire::MpaFrame asked = peer.stream.hear_frame(e2e::Deadline(e2e::milliseconds(500)));
            wire::Enhanced depths = asked.enhanced.value_or(wire::Enhanced{});
            peer.stream.say(
                wire::MpaFrame::enhanced_reply({.ird = depths.ord, .ord = depths.ird}).bytes());
            while (!peer.stream.hear_segment().last())
                ;
            so_far = true;
            Program program(Fd(::accept(l.get(), nullptr, nullptr)), chance.word());
            talk(peer, chance);
        });
    }
    EXPECT_GT(opened, sessions / 2);
    /* what nobody has accepted */
    set_nonblocking(l);
    while (Fd(::accept(l.get(), nullptr, nullptr)))
        ;
    set_nonblocking(l, false);
    works(l);
    EXPECT_TRUE(honest.good());
}

TEST_P(Hostile, Servers) {
    uint64_t seed = number("SOCKETS_SEED", 1);
    unsigned long sessions = number("SOCKETS_SESSIONS", 60);
    Honest honest(connected());
    Fd l = tcp_listener();
    Address a = name_of(l);
    size_t opened = 0;
    for (unsigned long i = 0; i < sessions && !HasFailure(); i++) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", session " + std::to_string(i));
        Chance chance(~seed << 32 | i);
        Fd app = make(SOCK_NONBLOCK);
        ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
        opened += session([&](bool &so_far) {
            Peer peer(::accept(l.get(), nullptr, nullptr));
            Program program(std::move(app), chance.word());
            peer.stream.hear(kSdpHelloLen);
            peer.stream.say(wire::MpaFrame::enhanced_request({.ird = 1, .ord = 1}).bytes());
            peer.stream.hear_frame();
            peer.say_hello_ack(opening(chance, good_hello_ack(), kLayoutDraft));
            so_far = true;
            talk(peer, chance);
        });
    }
    EXPECT_GT(opened, sessions / 2);
    EXPECT_TRUE(honest.good());
}

/* PM-*: anything at all at its port; who asks as it is meant is still answered. */
TEST_P(Hostile, PortMapperClients) {
    uint64_t seed = number("SOCKETS_SEED", 1);
    unsigned long packets = number("SOCKETS_SESSIONS", 60) * 20;
    int policy = SDP_INFO_POLICY_AUTO;
    Fd l = make();
    ASSERT_EQ(::setsockopt(l.get(), SOL_SDP, SDP_POLICY, &policy, sizeof(policy)), 0);
    Address a = loopback();
    ASSERT_EQ(bind_to(l, a), 0);
    ASSERT_EQ(::listen(l.get(), 8), 0);
    Chance chance(seed);
    Message good = request(name_of(l), loopback(4711));
    Fd udp(::socket(GetParam().address, SOCK_DGRAM, 0));
    Address mapper = loopback(kMapperPort);
    ASSERT_EQ(connect_to(udp, mapper), 0);
    for (unsigned long i = 0; i < packets; i++) {
        Bytes octets(good.octets.begin(), good.octets.end());
        if (chance.one_in(4))
            octets = chance.octets(chance.below(100));
        else
            chance.spoil(octets);
        /* the answers, refusals of the socket among them, are nobody's */
        ::send(udp.get(), octets.data(), octets.size(), MSG_DONTWAIT);
        std::array<uint8_t, 100> answer{};
        ::recv(udp.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    }
    /* one source gets so many answers a second */
    EXPECT_TRUE(eventually([&] {
        Client client(loopback());
        client.send(good);
        std::optional<Message> reply = client.receive(200);
        return reply && reply->type() == kAccept;
    }));
}

} // namespace softwarp::sockets
