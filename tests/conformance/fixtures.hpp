// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A QP of ours and the wire peer at the other end of its stream.
 *
 *     Link link;                              // our responder in full operation
 *     Region to(link.pd(), 64);
 *     link.recv(1, {to.all()});
 *     link.say(Untagged{.payload = {1, 2}});  // as an FPDU
 *     expect_success(link.rcq(), 1, IBV_WC_RECV, 2);
 *
 *     Link link({.role = Role::initiator, .revision = 2, .enhanced = ...});
 *
 * Our responder is the device in the namespace "peer", our initiator that in the
 * initial one; the wire peer has the other place.
 */
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "req.hpp"
#include "wire/stream.hpp"

namespace softwarp::conformance {

using namespace softwarp::e2e;
using namespace softwarp::wire;
using Where = std::source_location;

/* How long is silence: enough for what would come to come. */
constexpr milliseconds kSilence(60);

/* What our device is. */
enum class Role {
    responder,
    initiator,
};

/* How the stream is set up; what the wire peer says of itself. */
struct LinkOptions {
    Role role = Role::responder;
    uint8_t flags = kMpaCrc; // of the peer's frame: M, C
    /*
     * Of the peer's frame.  Our initiator is made to speak this revision, by
     * answering its enhanced Request the way it wants to be answered.
     */
    uint8_t revision = 1;
    /* The peer's enhanced data; revision is 2 then. */
    std::optional<Enhanced> enhanced = {};
    Bytes private_data = {};
    QpOptions qp = {.send_wr = 256};
    StreamOptions stream = {};
    /*
     * Start full operation: as initiator the peer sends a zero-length Write (or
     * what `rtr` says), so that our responder may send, too.
     */
    bool open = true;
    std::optional<Bytes> rtr = {};
};

/* What a Terminate has to carry, besides layer, type and code. */
struct Headers {
    bool m = false, d = false, r = false;
    Bytes ulpdu = {}; // the one that failed
    /* No headers. */
    static Headers none() { return {}; }
    /* Segment length and DDP header of this ULPDU. */
    static Headers ddp(Bytes ulpdu) { return {true, true, false, std::move(ulpdu)}; }
    /* And its Read Request header. */
    static Headers rdma(Bytes ulpdu) { return {true, true, true, std::move(ulpdu)}; }
};

/* The device, its namespace and the address at which it is found. */
std::string device_of(Role role);
std::string ns_of(Role role);
std::string addr_of(Role role);
Role other(Role role);

class Link {
  public:
    /* Connects; throws Failure unless the stream gets into full operation. */
    explicit Link(const LinkOptions &options = {});
    ~Link();
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    /* Ours ------------------------------------------------------------------ */

    Endpoint &ours() const { return *ours_; }
    ibv_qp *qp() const { return ours_->qp(); }
    ibv_pd *pd() const { return ours_->pd(); }
    ibv_cq *scq() const { return ours_->scq(); }
    ibv_cq *rcq() const { return ours_->rcq(); }
    ibv_context *context() const { return ours_->context(); }
    void recv(uint64_t id, const SgList &sg) { ours_->recv(id, sg); }
    void send(uint64_t id, SgList sg, unsigned flags = IBV_SEND_SIGNALED) {
        ours_->send(id, std::move(sg), flags);
    }
    void write(uint64_t id, SgList sg, uint64_t to, uint32_t stag,
               unsigned flags = IBV_SEND_SIGNALED) {
        ours_->write(id, std::move(sg), to, stag, flags);
    }
    void read(uint64_t id, SgList sg, uint64_t from, uint32_t stag,
              unsigned flags = IBV_SEND_SIGNALED) {
        ours_->read(id, std::move(sg), from, stag, flags);
    }

    /* Theirs ---------------------------------------------------------------- */

    Stream &peer() { return *peer_; }
    /* One FPDU with all that belongs to it. */
    void say(const Untagged &segment) { peer_->say_ulpdu(segment.bytes()); }
    void say(const Tagged &segment) { peer_->say_ulpdu(segment.bytes()); }
    void say(View ulpdu) { peer_->say_ulpdu(ulpdu); }
    void say(const Bytes &ulpdu) { peer_->say_ulpdu(ulpdu); }
    /* The next Read Request, numbered by itself. */
    void say_read(const ReadRequest &request) { say(request.bytes(++read_msn_)); }
    /* The next segment that ours said; CRC, pad, markers are right or this throws. */
    Segment hear() { return peer_->hear_segment(); }
    /* A whole message that ours said: checks all its segments against each other. */
    struct Message {
        uint8_t rdmap = 0;
        bool tagged = false;
        uint32_t stag = 0;
        uint64_t to = 0;
        uint32_t invalidate = 0, qn = 0, msn = 0;
        Bytes payload;
        size_t segments = 0;
    };
    Message hear_message(Where where = Where::current());

    /* Expectations ---------------------------------------------------------- */

    /* The next FPDU holds exactly this ULPDU. */
    void expect_ulpdu(View ulpdu, Where where = Where::current());
    void expect_ulpdu(const Untagged &segment, Where where = Where::current()) {
        expect_ulpdu(segment.bytes(), where);
    }
    void expect_ulpdu(const Tagged &segment, Where where = Where::current()) {
        expect_ulpdu(segment.bytes(), where);
    }
    /*
     * A Terminate with this layer, type and code; with the headers, when given,
     * and else with any; behind it nothing but a FIN.
     */
    Terminate expect_terminate(unsigned layer, unsigned etype, unsigned code,
                               const std::optional<Headers> &headers = {},
                               Where where = Where::current());
    /* As above, but whatever comes before it is skipped (Read Responses, say). */
    Terminate skip_to_terminate(unsigned layer, unsigned etype, unsigned code,
                                const std::optional<Headers> &headers = {},
                                Where where = Where::current());
    /* The stream's next event is this end. */
    void expect_fin(Where where = Where::current());
    void expect_reset(Where where = Where::current());
    /* FIN or RST, and no octet before. */
    void expect_end(Where where = Where::current());
    void expect_nothing_for(milliseconds quiet = kSilence, Where where = Where::current());
    void expect_async(ibv_event_type type, Where where = Where::current());
    /* Our application hears of the end; also closes the peer's direction. */
    void expect_disconnected(Where where = Where::current());
    void expect_state(ibv_qp_state state, Where where = Where::current());
    /* Data still go both ways: nothing was broken by what went before. */
    void expect_works(Where where = Where::current());

    /* What start-up brought ------------------------------------------------- */

    MpaFrame request; // ours or theirs, by role
    MpaFrame reply;
    CmEvent event{};       // responder: the CONNECT_REQUEST; initiator: the ESTABLISHED
    uint32_t send_msn = 1; // of the next Send that the peer says, for expect_works

  private:
    void check_terminate(const Terminate &term, unsigned layer, unsigned etype, unsigned code,
                         const std::optional<Headers> &headers, const Where &where);
    void connect_responder(const LinkOptions &options);
    void connect_initiator(const LinkOptions &options);

    EventChannel channel_;
    std::unique_ptr<Stream> peer_;
    std::unique_ptr<Endpoint> ours_;
    uint32_t read_msn_ = 0;
};

/*
 * An attribute of a device's mpa/ directory in sysfs, set as long as this lives:
 * Policy off(Role::responder, "crc", "off").
 */
class Policy {
  public:
    Policy(Role role, const std::string &attribute, const std::string &value);
    ~Policy();
    Policy(const Policy &) = delete;
    Policy &operator=(const Policy &) = delete;

  private:
    std::string path_;
    std::string before_;
};

/* A counter of the device. */
uint64_t counter(Role role, const std::string &name);

/*
 * Steps of start-up, for tests about them.  Our responder waits for a Request:
 *
 *     Passive passive;
 *     passive.peer.say(MpaFrame::request().bytes());
 *     CmEvent event = passive.expect_request();
 */
class Passive {
  public:
    Passive();
    /* Another TCP connection to the same listener. */
    Stream connect() const;
    CmEvent expect_request();
    bool no_request(milliseconds quiet = kSilence);
    /* Makes a QP for the request and accepts it. */
    Endpoint &accept(const CmEvent &request, const QpOptions &options = {});
    void reject(const CmEvent &request, const Bytes &private_data = {});

    EventChannel channel;
    Listener listener;
    Stream peer;

  private:
    std::unique_ptr<Endpoint> ours_;
};

/* Our initiator has connected and said its Request; the peer may answer. */
class Active {
  public:
    explicit Active(const QpOptions &options = {});
    /* TCP connections after the first, when ours tries again. */
    Stream accept() { return acceptor_.accept(); }
    Acceptor &acceptor() { return acceptor_; }
    Endpoint &ours() const { return *ours_; }
    CmEvent expect(rdma_cm_event_type type, Where where = Where::current());
    /* Neither success nor failure is told for the time. */
    bool undecided(milliseconds quiet = kSilence);

    EventChannel channel;

  private:
    Acceptor acceptor_;
    std::unique_ptr<Endpoint> ours_;

  public:
    Stream peer;
    Bytes request_octets; // as they came
    MpaFrame request;
};

/* Compares octets, and shows both in hex when they differ. */
void expect_octets(View got, View expected, const std::string &what = "",
                   Where where = Where::current());

/* The pattern of lib/pattern.hpp as octets. */
Bytes pattern(size_t length, uint64_t seed, uint64_t start = 0);

} // namespace softwarp::conformance
