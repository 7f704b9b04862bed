// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fixtures.hpp"

#include <fstream>

#include <fmt/format.h>

namespace softwarp::conformance {

namespace {

std::string at(const Where &where) {
    std::string_view file = where.file_name();
    file = file.substr(file.rfind('/') + 1);
    return fmt::format("{}:{}", file, where.line());
}

} // namespace

Role other(Role role) {
    return role == Role::responder ? Role::initiator : Role::responder;
}

std::string device_of(Role role) {
    return role == Role::responder ? config().peer_dev : config().dev;
}

std::string ns_of(Role role) {
    return role == Role::responder ? config().peer_ns : "";
}

std::string addr_of(Role role) {
    return role == Role::responder ? config().peer_addr4 : config().addr4;
}

void expect_octets(View got, View expected, const std::string &what, Where where) {
    if (got.size() == expected.size() && std::equal(got.begin(), got.end(), expected.begin()))
        return;
    ADD_FAILURE() << at(where) << ": " << what << "\n  got      " << hex(got, 4096)
                  << "\n  expected " << hex(expected, 4096);
}

Bytes pattern(size_t length, uint64_t seed, uint64_t start) {
    Bytes octets(length);
    fill(octets.data(), length, seed, start);
    return octets;
}

/* Link -------------------------------------------------------------------- */

Link::Link(const LinkOptions &options) {
    if (options.role == Role::responder)
        connect_responder(options);
    else
        connect_initiator(options);
}

Link::~Link() = default;

void Link::connect_responder(const LinkOptions &options) {
    Listener listener(channel_, ns_of(Role::responder), addr_of(Role::responder));
    peer_ =
        std::make_unique<Stream>(ns_of(Role::initiator), addr_of(Role::responder), listener.port());
    request =
        options.enhanced
            ? MpaFrame::enhanced_request(*options.enhanced, options.flags, options.private_data)
            : MpaFrame::request(options.flags, options.revision, options.private_data);
    peer_->say(request.bytes());
    event = channel_.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    ours_ = std::make_unique<Endpoint>(channel_, CmId(event.id), options.qp);
    e2e::accept(*ours_);
    reply = peer_->hear_frame();
    if (reply.key != kReplyKey || reply.has(kMpaReject))
        fail("no accepting Reply: " + hex(reply.bytes()));
    ours_->expect(RDMA_CM_EVENT_ESTABLISHED);
    peer_->use_markers(reply.has(kMpaMarkers), request.has(kMpaMarkers));
    peer_->any_crc = !request.has(kMpaCrc) && !reply.has(kMpaCrc);
    if (options.open)
        say(options.rtr.value_or(Tagged{}.bytes()));
}

void Link::connect_initiator(const LinkOptions &options) {
    Acceptor acceptor(ns_of(Role::responder), addr_of(Role::responder), 0, options.stream);
    ours_ = std::make_unique<Endpoint>(
        channel_,
        resolve(channel_, ns_of(Role::initiator), addr_of(Role::responder), acceptor.port()),
        options.qp);
    start_connect(*ours_);
    peer_ = std::make_unique<Stream>(acceptor.accept());
    request = peer_->hear_frame();
    if (request.key != kRequestKey)
        fail("no Request: " + hex(request.bytes()));
    uint8_t revision = options.enhanced ? 2 : options.revision;
    if (revision == 1 && request.revision > 1) {
        /* A peer that knows revision 1 only closes; ours comes again. */
        peer_.reset();
        peer_ = std::make_unique<Stream>(acceptor.accept());
        request = peer_->hear_frame();
    }
    if (request.revision != revision)
        fail(fmt::format("Request of revision {}, not {}", request.revision, revision));
    std::optional<Enhanced> data = options.enhanced;
    if (!data && request.enhanced)
        data = Enhanced{.ird = request.enhanced->ord,
                        .ord = request.enhanced->ird,
                        .p2p = request.enhanced->p2p,
                        .rtr = request.enhanced->rtr};
    reply = data ? MpaFrame::enhanced_reply(*data, options.flags, options.private_data)
                 : MpaFrame::reply(options.flags, revision, options.private_data);
    peer_->say(reply.bytes());
    event = ours_->expect(RDMA_CM_EVENT_ESTABLISHED);
    peer_->use_markers(request.has(kMpaMarkers), reply.has(kMpaMarkers));
    peer_->any_crc = !request.has(kMpaCrc) && !reply.has(kMpaCrc);
    /* The RTR of a peer-to-peer initiator is for the test to look at. */
    if (!options.open || !data || !data->p2p)
        return;
    Segment rtr = hear();
    if (rtr.opcode() == kOpReadRequest)
        say(Tagged{.rdmap = kRdmapVersion | kOpReadResponse,
                   .stag = ReadRequest::parse(rtr.payload).sink_stag,
                   .to = ReadRequest::parse(rtr.payload).sink_to});
}

Link::Message Link::hear_message(Where where) {
    Message message;
    for (;;) {
        Segment segment = hear();
        if (message.segments++ == 0) {
            message.rdmap = segment.rdmap;
            message.tagged = segment.tagged();
            message.stag = segment.stag;
            message.to = segment.to;
            message.invalidate = segment.invalidate;
            message.qn = segment.qn;
            message.msn = segment.msn;
        }
        /* RFC 5041 s. 4: what is equal in all segments, what counts on. */
        EXPECT_EQ(segment.ddp & ~kDdpLast, kDdpVersion | (message.tagged ? kDdpTagged : 0))
            << at(where) << ": " << segment.text();
        EXPECT_EQ(segment.rdmap, message.rdmap) << at(where) << ": " << segment.text();
        if (message.tagged) {
            EXPECT_EQ(segment.stag, message.stag) << at(where);
            EXPECT_EQ(segment.to, message.to + message.payload.size()) << at(where);
        } else {
            EXPECT_EQ(segment.invalidate, message.invalidate) << at(where);
            EXPECT_EQ(segment.qn, message.qn) << at(where);
            EXPECT_EQ(segment.msn, message.msn) << at(where);
            EXPECT_EQ(segment.mo, message.payload.size()) << at(where);
        }
        append(message.payload, segment.payload);
        if (segment.last())
            return message;
    }
}

void Link::expect_ulpdu(View ulpdu, Where where) {
    Fpdu unit = peer_->hear_fpdu();
    expect_octets(unit.ulpdu, ulpdu, "ULPDU", where);
    if (!peer_->any_crc) {
        EXPECT_TRUE(unit.crc_good) << at(where) << ": " << hex(unit.raw);
    }
    EXPECT_TRUE(unit.markers_good()) << at(where) << ": " << hex(unit.raw, 1600);
    EXPECT_TRUE(unit.pad_zero()) << at(where) << ": " << hex(unit.raw);
}

void Link::check_terminate(const Terminate &term, unsigned layer, unsigned etype, unsigned code,
                           const std::optional<Headers> &headers, const Where &where) {
    std::string expected = fmt::format("{}/{}/{:#04x}", layer, etype, code);
    EXPECT_TRUE(term.layer == layer && term.etype == etype && term.code == code)
        << at(where) << ": Terminate " << term.text() << ", not " << expected;
    EXPECT_EQ(term.reserved, 0) << at(where);
    EXPECT_TRUE(term.rest.empty())
        << at(where) << ": octets behind the Terminate " << hex(term.rest);
    if (!headers)
        return;
    EXPECT_EQ(term.m, headers->m) << at(where) << ": " << term.text();
    EXPECT_EQ(term.d, headers->d) << at(where) << ": " << term.text();
    EXPECT_EQ(term.r, headers->r) << at(where) << ": " << term.text();
    const Bytes &ulpdu = headers->ulpdu;
    if (headers->m && term.d) {
        EXPECT_EQ(term.length, ulpdu.size()) << at(where) << ": DDP Segment Length";
    }
    if (headers->d && term.d) {
        size_t header = (ulpdu.at(0) & kDdpTagged) != 0 ? kTaggedHeader : kUntaggedHeader;
        expect_octets(term.ddp_header, View(ulpdu).first(header), "terminated DDP header", where);
    }
    if (headers->r && term.r)
        expect_octets(term.rdma_header, View(ulpdu).subspan(kUntaggedHeader, kReadHeader),
                      "terminated RDMA header", where);
}

namespace {

bool is_terminate(const Segment &segment) {
    return !segment.tagged() && segment.opcode() == kOpTerminate;
}

} // namespace

Terminate Link::expect_terminate(unsigned layer, unsigned etype, unsigned code,
                                 const std::optional<Headers> &headers, Where where) {
    Segment segment = hear();
    if (!is_terminate(segment))
        fail("no Terminate but " + segment.text(), where);
    /* T=0, L=1, version 1; QN 2, MSN 1, MO 0; the Invalidate STag is zero. */
    EXPECT_EQ(segment.ddp, kDdpLast | kDdpVersion) << at(where);
    EXPECT_EQ(segment.rdmap, kRdmapVersion | kOpTerminate) << at(where);
    EXPECT_EQ(segment.invalidate, 0U) << at(where);
    EXPECT_EQ(segment.qn, 2U) << at(where);
    EXPECT_EQ(segment.msn, 1U) << at(where);
    EXPECT_EQ(segment.mo, 0U) << at(where);
    Terminate term = Terminate::parse(segment.payload);
    check_terminate(term, layer, etype, code, headers, where);
    expect_fin(where);
    return term;
}

Terminate Link::skip_to_terminate(unsigned layer, unsigned etype, unsigned code,
                                  const std::optional<Headers> &headers, Where where) {
    for (;;) {
        Segment segment = hear();
        if (!is_terminate(segment))
            continue;
        Terminate term = Terminate::parse(segment.payload);
        check_terminate(term, layer, etype, code, headers, where);
        expect_fin(where);
        return term;
    }
}

namespace {

void expect_ending(Stream &stream, std::initializer_list<Ending> endings, const Where &where) {
    Ending ending = stream.ending();
    std::string expected;
    for (Ending one : endings) {
        if (one == ending)
            return;
        expected += (expected.empty() ? "" : " or ") + ending_text(one);
    }
    ADD_FAILURE() << at(where) << ": " << ending_text(ending) << " instead of " << expected;
}

} // namespace

void Link::expect_fin(Where where) {
    expect_ending(*peer_, {Ending::fin}, where);
}

void Link::expect_reset(Where where) {
    expect_ending(*peer_, {Ending::reset}, where);
}

void Link::expect_end(Where where) {
    expect_ending(*peer_, {Ending::fin, Ending::reset}, where);
}

void Link::expect_nothing_for(milliseconds quiet, Where where) {
    Ending ending = peer_->ending(Deadline(quiet));
    if (ending == Ending::none)
        return;
    std::string what = ending_text(ending);
    if (ending == Ending::data)
        what += ": " + hex(peer_->hear_fpdu().raw);
    ADD_FAILURE() << at(where) << ": " << what << " instead of silence";
}

void Link::expect_async(ibv_event_type type, Where where) {
    expect_qp_event(qp(), {type}, where);
}

void Link::expect_disconnected(Where where) {
    peer_->shut_down();
    ours_->expect(RDMA_CM_EVENT_DISCONNECTED, Deadline(), where);
    expect_qp_state(qp(), IBV_QPS_ERR, where);
}

void Link::expect_state(ibv_qp_state state, Where where) {
    expect_qp_state(qp(), state, where);
}

void Link::expect_works(Where where) {
    constexpr size_t kLength = 600;
    Region memory(pd(), 2 * kLength);
    fill(memory.at(0), kLength, 77);
    recv(0x77, {memory.sge(kLength, kLength)});
    say(Untagged{.msn = send_msn++, .payload = pattern(kLength, 78)});
    e2e::expect_success(rcq(), 0x77, IBV_WC_RECV, kLength, where);
    expect_pattern(memory.at(kLength), kLength, 78, 0, "to ours");
    send(0x78, {memory.sge(0, kLength)});
    Message message = hear_message(where);
    EXPECT_EQ(message.rdmap, kRdmapVersion | kOpSend) << at(where);
    expect_octets(message.payload, pattern(kLength, 77), "to the peer", where);
    e2e::expect_success(scq(), 0x78, IBV_WC_SEND, -1, where);
}

/* Policy ------------------------------------------------------------------ */

Policy::Policy(Role role, const std::string &attribute, const std::string &value)
    : path_("/sys/class/infiniband/" + device_of(role) + "/mpa/" + attribute) {
    std::getline(std::ifstream(path_), before_);
    std::ofstream file(path_);
    file << value << std::flush;
    if (!file)
        fail("cannot set " + path_ + " to " + value);
}

Policy::~Policy() {
    std::ofstream file(path_);
    file << before_ << std::flush;
    EXPECT_TRUE(file.good()) << "cannot restore " << path_;
}

uint64_t counter(Role role, const std::string &name) {
    std::map<std::string, uint64_t> all = counters(device_of(role));
    if (!all.contains(name))
        fail("no counter " + name);
    return all[name];
}

/* Passive ----------------------------------------------------------------- */

Passive::Passive()
    : listener(channel, ns_of(Role::responder), addr_of(Role::responder)), peer(connect()) {}

Stream Passive::connect() const {
    return Stream(ns_of(Role::initiator), addr_of(Role::responder), listener.port());
}

CmEvent Passive::expect_request() {
    return channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
}

bool Passive::no_request(milliseconds quiet) {
    std::optional<CmEvent> event = channel.try_next(listener.id(), Deadline(quiet));
    if (event && event->type == RDMA_CM_EVENT_CONNECT_REQUEST)
        rdma_destroy_id(event->id);
    return !event;
}

Endpoint &Passive::accept(const CmEvent &request, const QpOptions &options) {
    ours_ = std::make_unique<Endpoint>(channel, CmId(request.id), options);
    e2e::accept(*ours_);
    return *ours_;
}

void Passive::reject(const CmEvent &request, const Bytes &private_data) {
    require(rdma_reject(request.id, private_data.data(),
                        static_cast<uint8_t>(private_data.size())) == 0,
            "rdma_reject");
    rdma_destroy_id(request.id);
}

/* Active ------------------------------------------------------------------ */

namespace {

std::unique_ptr<Endpoint> connecting(EventChannel &channel, uint16_t port,
                                     const QpOptions &options) {
    auto endpoint = std::make_unique<Endpoint>(
        channel, resolve(channel, ns_of(Role::initiator), addr_of(Role::responder), port), options);
    start_connect(*endpoint);
    return endpoint;
}

} // namespace

Active::Active(const QpOptions &options)
    : acceptor_(ns_of(Role::responder), addr_of(Role::responder)),
      ours_(connecting(channel, acceptor_.port(), options)), peer(acceptor_.accept()),
      request_octets(peer.hear_mpa()), request(MpaFrame::parse(request_octets)) {}

CmEvent Active::expect(rdma_cm_event_type type, Where where) {
    return ours_->expect(type, Deadline(), where);
}

bool Active::undecided(milliseconds quiet) {
    return !channel.try_next(ours_->id(), Deadline(quiet));
}

} // namespace softwarp::conformance
