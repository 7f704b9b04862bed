// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Enhanced connection establishment, RFC 6581. */
#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

struct Kind {
    const char *name;
    unsigned flag;
};

constexpr Kind kKinds[] = {{"send", kRtrSend}, {"write", kRtrWrite}, {"read", kRtrRead}};

std::string rtr_words(unsigned rtr) {
    std::string words;
    for (const Kind &kind : kKinds)
        if ((rtr & kind.flag) != 0)
            words += (words.empty() ? "" : " ") + std::string(kind.name);
    return words;
}

/* The zero-length message of a kind, as a ULPDU. */
Bytes rtr_ulpdu(unsigned kind) {
    switch (kind) {
    case kRtrSend: return Untagged{}.bytes();
    case kRtrRead: return ReadRequest{.sink_stag = 5, .src_stag = 6}.bytes();
    default: return Tagged{.stag = 9}.bytes();
    }
}

unsigned rtr_kind(const Segment &segment) {
    switch (segment.opcode()) {
    case kOpSend: return kRtrSend;
    case kOpReadRequest: return kRtrRead;
    case kOpWrite: return kRtrWrite;
    default: return kRtrNone;
    }
}

unsigned max_ird(Link &link) {
    ibv_device_attr attr{};
    require(ibv_query_device(link.context(), &attr) == 0, "ibv_query_device");
    return static_cast<unsigned>(attr.max_qp_rd_atom);
}

/* Frames ---------------------------------------------------------------------- */

TEST(Mpa2Frame, RequestOctets) {
    REQ("MPA2-01", "MPA2-02", "MPA2-05", "MPA2-06", "MPA2-08", "MPA2-10", "MPA2-25");
    Active active({.ird = 5, .ord = 9, .private_data = {'h', 'i'}});
    /* A, B and IRD 5; C, D and ORD 9 */
    expect_octets(active.request_octets, Bytes{0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65,
                                               0x71, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65, 0x50, 0x02,
                                               0x00, 0x06, 0xc0, 0x05, 0xc0, 0x09, 'h',  'i'});
    EXPECT_TRUE(active.peer.silent(milliseconds(20)));
}

TEST(Mpa2Frame, ReplyOctets) {
    REQ("MPA2-01", "MPA2-02", "MPA2-05", "MPA2-06", "MPA2-08", "MPA2-41");
    Passive passive;
    passive.peer.say(
        MpaFrame::enhanced_request({.ird = 3, .ord = 4, .p2p = true, .rtr = kRtrAll}).bytes());
    passive.accept(passive.expect_request(), {.ird = 4, .ord = 2, .private_data = {'y', 'e', 's'}});
    expect_octets(passive.peer.hear_mpa(),
                  Bytes{0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65,
                        0x70, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65, 0x50, 0x02,
                        0x00, 0x07, 0xc0, 0x04, 0xc0, 0x02, 'y',  'e',  's'});
}

/* Reserved bits: four are left. */
TEST(Mpa2Frame, ReservedBitsAreIgnored) {
    REQ("MPA2-05");
    for (Role role : {Role::responder, Role::initiator})
        for (uint8_t bits : {0x01, 0x02, 0x04, 0x08, 0x0f}) {
            SCOPED_TRACE(int{bits});
            Link link({.role = role,
                       .flags = static_cast<uint8_t>(kMpaCrc | bits),
                       .enhanced = Enhanced{.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrWrite}});
            const MpaFrame &ours = role == Role::responder ? link.reply : link.request;
            EXPECT_EQ(ours.flags, kMpaCrc | kMpaEnhanced);
            link.expect_works();
        }
}

/* S without room for the enhanced octets. */
TEST(Mpa2Frame, TooShortForTheEnhancedData) {
    REQ("MPA2-07");
    for (size_t length : {0, 1, 2, 3}) {
        SCOPED_TRACE(length);
        Passive passive;
        passive.peer.say(MpaFrame::request(kMpaCrc | kMpaEnhanced, 2, Bytes(length)).bytes());
        EXPECT_TRUE(passive.peer.hear_to_end().empty());
        EXPECT_TRUE(passive.no_request(milliseconds(0)));

        Active active;
        active.peer.say(MpaFrame::reply(kMpaCrc | kMpaEnhanced, 2, Bytes(length)).bytes());
        EXPECT_TRUE(active.peer.hear_to_end().empty());
        EXPECT_EQ(active.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, -EPROTO);
    }
}

/* The enhanced octets are no private data of the program's. */
TEST(Mpa2Frame, PrivateDataBehindTheEnhancedData) {
    REQ("MPA2-06", "MPA2-07", "MPA2-09");
    for (size_t length : {0, 1, 4, 196, 255}) {
        SCOPED_TRACE(length);
        Bytes there = pattern(length, 1), back = pattern(length, 2);
        Link link({.enhanced = Enhanced{.ird = 1, .ord = 1},
                   .private_data = there,
                   .qp = {.private_data = back}});
        EXPECT_EQ(link.event.private_data, there);
        EXPECT_EQ(link.reply.private_data, back);
        EXPECT_EQ(get16(link.reply.bytes(), 18), 4 + length);
        link.expect_works();
    }
    /* 508 octets are legal and more than the RDMA core carries: neither cut nor answered. */
    for (size_t length : {256, 508}) {
        Passive passive;
        passive.peer.say(
            MpaFrame::enhanced_request({.ird = 1, .ord = 1}, kMpaCrc, Bytes(length, 1)).bytes());
        EXPECT_EQ(passive.peer.ending(), Ending::reset);
        EXPECT_TRUE(passive.no_request(milliseconds(0)));
    }
    /* 509 do not fit. */
    Passive passive;
    passive.peer.say(
        MpaFrame::enhanced_request({.ird = 1, .ord = 1}, kMpaCrc, Bytes(509, 1)).bytes());
    EXPECT_TRUE(passive.peer.hear_to_end().empty());
}

/* Plain and enhanced, each answered in kind. */
TEST(Mpa2Frame, AnswersInKind) {
    REQ("MPA2-01", "MPA2-04", "MPA2-41", "MPA2-42");
    {
        Link link({.revision = 1});
        EXPECT_EQ(link.reply.revision, 1);
        EXPECT_FALSE(link.reply.has(kMpaEnhanced));
        link.expect_works();
    }
    {
        /* Revision 2 with nothing enhanced about it. */
        Link link({.revision = 2});
        EXPECT_EQ(link.reply.revision, 2);
        EXPECT_FALSE(link.reply.has(kMpaEnhanced));
        EXPECT_EQ(get16(link.reply.bytes(), 18), 0);
        link.expect_works();
    }
    Link link({.enhanced = Enhanced{.ird = 1, .ord = 1}});
    EXPECT_EQ(link.reply.revision, 2);
    EXPECT_TRUE(link.reply.has(kMpaEnhanced));
    link.expect_works();
}

/* A rejection as well. */
TEST(Mpa2Frame, RejectsInKind) {
    REQ("MPA2-15", "MPA2-41", "MPA2-42");
    for (bool enhanced : {false, true}) {
        SCOPED_TRACE(enhanced);
        Passive passive;
        passive.peer.say(enhanced ? MpaFrame::enhanced_request(
                                        {.ird = 3, .ord = 3, .p2p = true, .rtr = kRtrRead})
                                        .bytes()
                                  : MpaFrame::request().bytes());
        passive.reject(passive.expect_request(), {'n', 'o'});
        MpaFrame reply = passive.peer.hear_frame();
        EXPECT_TRUE(reply.has(kMpaReject));
        EXPECT_EQ(reply.enhanced.has_value(), enhanced);
        EXPECT_EQ(reply.private_data, (Bytes{'n', 'o'}));
        if (enhanced) {
            EXPECT_TRUE(reply.enhanced->p2p);
        }
        /* And nothing else: no Terminate behind it. */
        EXPECT_EQ(passive.peer.ending(), Ending::fin);
    }
}

/* Rejected, our initiator says nothing more either. */
TEST(Mpa2Frame, NothingBehindARejection) {
    REQ("MPA2-15", "MPA2-33");
    Active active;
    /* It names an ORD beyond all limits and no RTR kind: no matter. */
    active.peer.say(MpaFrame::enhanced_reply({.ird = 0, .ord = 5000, .p2p = true, .rtr = kRtrNone},
                                             kMpaCrc | kMpaReject)
                        .bytes());
    EXPECT_TRUE(active.peer.hear_to_end().empty());
    EXPECT_EQ(active.expect(RDMA_CM_EVENT_REJECTED).status, -ECONNREFUSED);
}

/* Nothing enhanced wanted: neither peer-to-peer nor reads. */
TEST(Mpa2Frame, PlainWhereNothingEnhancedIsWanted) {
    REQ("MPA2-03", "MPA2-43");
    Policy p2p(Role::initiator, "p2p", "off");
    {
        Active active({.ird = 0, .ord = 0});
        EXPECT_EQ(active.request.revision, 1);
        EXPECT_FALSE(active.request.has(kMpaEnhanced));
        EXPECT_TRUE(active.request.private_data.empty());
    }
    Active active({.ird = 1, .ord = 0});
    EXPECT_EQ(active.request.revision, 2);
    EXPECT_TRUE(active.request.has(kMpaEnhanced));
}

/* Revisions that do not know each other ---------------------------------------- */

TEST(Mpa2Revision, OldResponderCloses) {
    REQ("MPA2-44");
    Policy revision(Role::responder, "revision", "1");
    Passive passive;
    passive.peer.say(MpaFrame::enhanced_request({.ird = 1, .ord = 1}).bytes());
    EXPECT_TRUE(passive.peer.hear_to_end().empty());
    EXPECT_TRUE(passive.no_request(milliseconds(0)));
    Link link({.revision = 1});
    link.expect_works();
}

TEST(Mpa2Revision, InitiatorReportsTheEnd) {
    REQ("MPA2-44");
    Policy fallback(Role::initiator, "fallback", "off");
    Active active;
    active.peer.shut_down();
    CmEvent event = active.channel.expect(active.ours().id(), RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.status, -ECONNRESET);
    EXPECT_TRUE(active.acceptor().lonely(kSilence)) << "tried again against the policy";
}

TEST(Mpa2Revision, InitiatorTriesAgain) {
    REQ("MPA2-45", "MPA2-03");
    for (bool reset : {false, true}) {
        SCOPED_TRACE(reset);
        Active active({.private_data = {1, 2, 3}});
        if (reset)
            active.peer.reset();
        else
            active.peer.shut_down();
        Stream again = active.accept();
        MpaFrame request = again.hear_frame();
        EXPECT_EQ(request.revision, 1);
        EXPECT_FALSE(request.has(kMpaEnhanced));
        EXPECT_EQ(request.private_data, (Bytes{1, 2, 3}));
        again.say(MpaFrame::reply().bytes());
        active.expect(RDMA_CM_EVENT_ESTABLISHED);
        /* No RTR: revision 1 knows none. */
        EXPECT_TRUE(again.silent(kSilence));
    }
}

/* An enhanced Request does not take a plain Reply for an acceptance. */
TEST(Mpa2Revision, PlainReplyToAnEnhancedRequest) {
    REQ("MPA2-41");
    for (uint8_t revision : {1, 2}) {
        Active active;
        active.peer.say(MpaFrame::reply(kMpaCrc, revision).bytes());
        EXPECT_TRUE(active.peer.closed_by_peer());
        EXPECT_NE(active.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, 0);
    }
}

/* IRD and ORD ------------------------------------------------------------------- */

/* Read Requests that ours has on the wire without an answer, of `posted` reads. */
size_t outstanding_reads(Link &link, size_t posted) {
    Region to(link.pd(), posted * 8);
    for (size_t i = 0; i < posted; i++)
        link.read(i, {to.sge(i * 8, 8)}, 0x1000 + i, 0x55);
    std::vector<ReadRequest> open;
    while (link.peer().ending(Deadline(kSilence)) == Ending::data) {
        Segment segment = link.hear();
        EXPECT_EQ(segment.opcode(), kOpReadRequest) << segment.text();
        open.push_back(ReadRequest::parse(segment.payload));
    }
    size_t limit = open.size();
    /* Each answer makes room for one more, and no more than that. */
    for (size_t i = 0; i < posted; i++) {
        link.say(Tagged{.rdmap = kRdmapVersion | kOpReadResponse,
                        .stag = open.at(i).sink_stag,
                        .to = open[i].sink_to,
                        .payload = pattern(8, i)});
        expect_success(link.scq(), i, IBV_WC_RDMA_READ);
        expect_pattern(to.at(i * 8), 8, i);
        if (open.size() < posted)
            open.push_back(ReadRequest::parse(link.hear().payload));
    }
    return limit;
}

/*
 * Ours takes that many reads at once, and not one more.  No answer is done
 * before all requests are there, for it is larger than all that TCP holds.
 */
void expect_ird(Link &link, uint16_t ird) {
    constexpr size_t kLength = 12 << 20;
    Region source(link.pd(), kLength);
    for (uint32_t i = 0; i <= ird; i++)
        link.say_read({.sink_stag = i + 1,
                       .size = kLength,
                       .src_stag = source.rkey(),
                       .src_to = source.addr()});
    Terminate term = link.skip_to_terminate(1, 2, 2);
    ASSERT_EQ(term.ddp_header.size(), kUntaggedHeader);
    EXPECT_EQ(get32(term.ddp_header, 10), ird + 1U) << "MSN of the one too many";
}

TEST(Mpa2Depths, InitiatorSaysItsOwn) {
    REQ("MPA2-10");
    for (uint8_t ird : {0, 1, 7, 128})
        for (uint8_t ord : {0, 3, 100}) {
            Active active({.ird = ird, .ord = ord});
            ASSERT_TRUE(active.request.enhanced);
            EXPECT_EQ(active.request.enhanced->ird, ird);
            EXPECT_EQ(active.request.enhanced->ord, ord);
        }
}

TEST(Mpa2Depths, ResponderStaysWithinTheInitiatorsIrd) {
    REQ("MPA2-11", "MPA2-12");
    for (uint16_t ird : {1, 4, 9}) {
        SCOPED_TRACE(ird);
        Link link({.enhanced = Enhanced{.ird = ird, .ord = 2},
                   .qp = {.send_wr = 64, .ird = 2, .ord = 8}});
        uint16_t expected = std::min<uint16_t>(ird, 8);
        EXPECT_EQ(link.reply.enhanced->ord, expected);
        EXPECT_EQ(outstanding_reads(link, 20), expected);
    }
}

TEST(Mpa2Depths, ResponderMakesRoomForTheInitiatorsOrd) {
    REQ("MPA2-12", "MPA2-17");
    for (uint16_t ord : {1, 2, 12}) {
        SCOPED_TRACE(ord);
        Link link({.enhanced = Enhanced{.ird = 1, .ord = ord}, .qp = {.ird = 2, .ord = 1}});
        EXPECT_GE(link.reply.enhanced->ird, ord);
        expect_ird(link, link.reply.enhanced->ird);
    }
}

TEST(Mpa2Depths, RoomForAReadRtr) {
    REQ("MPA2-13");
    Link link({.enhanced = Enhanced{.ird = 0, .ord = 0, .p2p = true, .rtr = kRtrRead},
               .qp = {.ird = 0, .ord = 0},
               .rtr = rtr_ulpdu(kRtrRead)});
    EXPECT_GE(link.reply.enhanced->ird, 1);
    EXPECT_EQ(link.hear().rdmap, kRdmapVersion | kOpReadResponse);
    link.expect_works();
}

TEST(Mpa2Depths, BothProgramsAreTold) {
    REQ("MPA2-16");
    {
        Link link({.enhanced = Enhanced{.ird = 3, .ord = 4}});
        /* What the peer initiates is what this end has to respond to. */
        EXPECT_EQ(link.event.responder_resources, 4);
        EXPECT_EQ(link.event.initiator_depth, 3);
    }
    Link link({.role = Role::initiator,
               .enhanced = Enhanced{.ird = 5, .ord = 6, .p2p = true, .rtr = kRtrWrite}});
    EXPECT_EQ(link.event.responder_resources, 6);
    EXPECT_EQ(link.event.initiator_depth, 5);
}

TEST(Mpa2Depths, InitiatorFollowsTheReply) {
    REQ("MPA2-17");
    for (uint16_t ird : {1, 2, 30}) {
        SCOPED_TRACE(ird);
        Link link({.role = Role::initiator,
                   .enhanced = Enhanced{.ird = ird, .ord = 3, .p2p = true, .rtr = kRtrWrite},
                   .qp = {.send_wr = 64, .ird = 1, .ord = 8}});
        EXPECT_EQ(outstanding_reads(link, 20), std::min<size_t>(ird, 8));
        expect_ird(link, 3);
    }
}

TEST(Mpa2Depths, TooMuchForTheInitiator) {
    REQ("MPA2-18", "MPA2-39");
    for (uint16_t ord : {200, 5000, 0x3ffe}) {
        SCOPED_TRACE(ord);
        Active active;
        active.peer.say(
            MpaFrame::enhanced_reply({.ird = 1, .ord = ord, .p2p = true, .rtr = kRtrAll}).bytes());
        Segment segment = active.peer.hear_segment();
        expect_octets(Terminate::parse(segment.payload).payload(), Bytes{0x20, 0x06, 0, 0});
        EXPECT_EQ(segment.qn, 2U);
        EXPECT_EQ(segment.msn, 1U);
        EXPECT_EQ(active.peer.ending(), Ending::fin);
        EXPECT_NE(active.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, 0);
    }
}

/* 0x3FFF: left to the programs ------------------------------------------------- */

TEST(Mpa2Depths, InitiatorOrdNotNegotiated) {
    REQ("MPA2-19", "MPA2-20");
    Link link({.enhanced = Enhanced{.ird = 2, .ord = kDepthNone}, .qp = {.ird = 5, .ord = 1}});
    EXPECT_EQ(link.reply.enhanced->ird, kDepthNone);
    EXPECT_EQ(link.reply.enhanced->ord, 1);
    /* Its IRD is what the program asked for. */
    expect_ird(link, 5);
}

TEST(Mpa2Depths, InitiatorIrdNotNegotiated) {
    REQ("MPA2-19", "MPA2-22");
    Link link({.enhanced = Enhanced{.ird = kDepthNone, .ord = 2},
               .qp = {.send_wr = 64, .ird = 5, .ord = 6}});
    EXPECT_EQ(link.reply.enhanced->ord, kDepthNone);
    EXPECT_GE(link.reply.enhanced->ird, 2);
    EXPECT_EQ(outstanding_reads(link, 20), 6U);
}

TEST(Mpa2Depths, ResponderIrdNotNegotiated) {
    REQ("MPA2-19", "MPA2-21");
    Link link({.role = Role::initiator,
               .enhanced = Enhanced{.ird = kDepthNone, .ord = 1, .p2p = true, .rtr = kRtrWrite},
               .qp = {.send_wr = 64, .ird = 2, .ord = 6}});
    EXPECT_EQ(outstanding_reads(link, 20), 6U);
}

TEST(Mpa2Depths, ResponderOrdNotNegotiated) {
    REQ("MPA2-19", "MPA2-23");
    Link link({.role = Role::initiator,
               .enhanced = Enhanced{.ird = 1, .ord = kDepthNone, .p2p = true, .rtr = kRtrWrite},
               .qp = {.ird = 3, .ord = 1}});
    expect_ird(link, 3);
}

/* Values that make no sense cost nothing. */
TEST(Mpa2Depths, AreChecked) {
    REQ("MPA2-46", "SEC-19");
    Link link({.enhanced = Enhanced{.ird = 0x3ffe, .ord = 0x3ffe, .p2p = true, .rtr = kRtrAll},
               .qp = {.ird = 4, .ord = 4}});
    EXPECT_LE(link.reply.enhanced->ird, max_ird(link));
    EXPECT_LE(link.reply.enhanced->ord, 4);
    EXPECT_LE(link.event.responder_resources, 255);
    link.send_msn = 1;
    link.expect_works();
}

/* Ready to receive --------------------------------------------------------------- */

TEST(Mpa2Rtr, InitiatorSaysWhatItCan) {
    REQ("MPA2-24", "MPA2-25", "MPA2-34");
    for (unsigned rtr = 1; rtr <= kRtrAll; rtr++) {
        SCOPED_TRACE(rtr_words(rtr));
        Policy kinds(Role::initiator, "rtr", rtr_words(rtr));
        Active active;
        ASSERT_TRUE(active.request.enhanced);
        EXPECT_TRUE(active.request.enhanced->p2p);
        EXPECT_EQ(active.request.enhanced->rtr, rtr);
    }
    Policy p2p(Role::initiator, "p2p", "off");
    Active active;
    ASSERT_TRUE(active.request.enhanced);
    EXPECT_FALSE(active.request.enhanced->p2p);
    EXPECT_EQ(active.request.enhanced->rtr, kRtrNone);
}

/* Every set that may be offered, to responders that can take one, two or three kinds. */
TEST(Mpa2Rtr, ResponderAnswersTheOffer) {
    REQ("MPA2-24", "MPA2-26", "MPA2-27", "MPA2-28", "MPA2-29", "MPA2-30");
    for (unsigned can : {kRtrSend, kRtrWrite, kRtrRead, kRtrAll}) {
        Policy kinds(Role::responder, "rtr", rtr_words(can));
        for (unsigned offered = 0; offered <= kRtrAll; offered++) {
            SCOPED_TRACE("can " + rtr_words(can) + ", offered " + rtr_words(offered));
            Link link({.enhanced = Enhanced{.ird = 2, .ord = 2, .p2p = true, .rtr = offered},
                       .open = false});
            ASSERT_TRUE(link.reply.enhanced);
            EXPECT_TRUE(link.reply.enhanced->p2p);
            unsigned common = can & offered;
            if (common != 0) {
                EXPECT_EQ(link.reply.enhanced->rtr & offered, common);
            }
            /* Never none, and never what it cannot take. */
            EXPECT_NE(link.reply.enhanced->rtr, kRtrNone);
            EXPECT_EQ(link.reply.enhanced->rtr & ~can, 0U);
        }
    }
}

/* Client-server: the other bits mean nothing, and a zero-length Send is a Send. */
TEST(Mpa2Rtr, BitsWithoutA) {
    REQ("MPA2-27", "MPA2-34", "MPA2-35");
    for (unsigned bits : {0U, 1U, 2U, 4U, 7U}) {
        SCOPED_TRACE(bits);
        Link link(
            {.enhanced = Enhanced{.ird = 1, .ord = 1, .p2p = false, .rtr = bits}, .open = false});
        EXPECT_FALSE(link.reply.enhanced->p2p);
        EXPECT_EQ(link.reply.enhanced->rtr, kRtrNone);
        link.recv(1, {});
        link.say(Untagged{});
        expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
        link.send_msn = 2;
        link.expect_works();
    }
    /* Nor does our initiator send an RTR to a client-server Reply. */
    Policy p2p(Role::initiator, "p2p", "off");
    Link link({.role = Role::initiator, .enhanced = Enhanced{.ird = 1, .ord = 1, .rtr = kRtrNone}});
    link.expect_nothing_for();
    link.expect_works();
}

/* The first FPDU is the RTR, of a kind in the Reply; then what is posted. */
TEST(Mpa2Rtr, InitiatorSendsOne) {
    REQ("MPA2-31", "MPA2-32", "MPA2-36");
    for (unsigned answered = 1; answered <= kRtrAll; answered++) {
        SCOPED_TRACE(rtr_words(answered));
        Active active({.send_wr = 8, .ird = 2, .ord = 2});
        active.peer.say(
            MpaFrame::enhanced_reply({.ird = 2, .ord = 2, .p2p = true, .rtr = answered}).bytes());
        active.expect(RDMA_CM_EVENT_ESTABLISHED);
        active.ours().send(1, {});
        Segment rtr = active.peer.hear_segment();
        unsigned kind = rtr_kind(rtr);
        EXPECT_NE(kind & answered, 0U) << rtr.text();
        EXPECT_TRUE(rtr.last());
        if (kind == kRtrRead) {
            ReadRequest request = ReadRequest::parse(rtr.payload);
            EXPECT_EQ(request.size, 0U);
            EXPECT_EQ(rtr.msn, 1U);
            EXPECT_EQ(rtr.qn, 1U);
            active.peer.say_ulpdu(Tagged{.rdmap = kRdmapVersion | kOpReadResponse,
                                         .stag = request.sink_stag,
                                         .to = request.sink_to}
                                      .bytes());
        } else {
            EXPECT_TRUE(rtr.payload.empty());
        }
        /* The program's Send, behind it; no completion but its own. */
        Segment send = active.peer.hear_segment();
        EXPECT_EQ(send.rdmap, kRdmapVersion | kOpSend);
        EXPECT_EQ(send.msn, kind == kRtrSend ? 2U : 1U);
        expect_success(active.ours().scq(), 1, IBV_WC_SEND);
        expect_quiet(active.ours().scq());
        /* And what the peer sends after the RTR arrives. */
        active.ours().recv(2, {});
        active.peer.say_ulpdu(Untagged{}.bytes());
        expect_success(active.ours().rcq(), 2, IBV_WC_RECV, 0);
    }
}

/* Each kind alone, so that the choice is not ours. */
TEST(Mpa2Rtr, InitiatorCanSendEachKind) {
    REQ("MPA2-25", "MPA2-32");
    for (const Kind &kind : kKinds) {
        SCOPED_TRACE(kind.name);
        Active active({.ird = 1, .ord = 0});
        active.peer.say(
            MpaFrame::enhanced_reply({.ird = 1, .ord = 0, .p2p = true, .rtr = kind.flag}).bytes());
        active.expect(RDMA_CM_EVENT_ESTABLISHED);
        EXPECT_EQ(rtr_kind(active.peer.hear_segment()), kind.flag);
    }
}

/* Kinds that were not offered are for the initiator to pass over. */
TEST(Mpa2Rtr, NothingInCommon) {
    REQ("MPA2-31", "MPA2-33", "MPA2-39");
    for (const Kind &can : kKinds) {
        Policy kinds(Role::initiator, "rtr", can.name);
        for (unsigned answered = 0; answered <= kRtrAll; answered++) {
            SCOPED_TRACE(std::string("can ") + can.name + ", Reply " + rtr_words(answered));
            Active active({.ird = 1, .ord = 1});
            active.peer.say(
                MpaFrame::enhanced_reply({.ird = 1, .ord = 1, .p2p = true, .rtr = answered})
                    .bytes());
            Segment first = active.peer.hear_segment();
            if ((answered & can.flag) != 0) {
                EXPECT_EQ(rtr_kind(first), can.flag);
                active.expect(RDMA_CM_EVENT_ESTABLISHED);
                continue;
            }
            EXPECT_EQ(first.rdmap, kRdmapVersion | kOpTerminate);
            expect_octets(first.payload, Bytes{0x20, 0x07, 0, 0});
            EXPECT_EQ(active.peer.ending(), Ending::fin);
            EXPECT_NE(active.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, 0);
        }
    }
}

/*
 * An RTR of each kind reaches our responder: it lifts the fence, and neither a
 * receive nor a completion of the program's is spent on it.
 */
TEST(Mpa2Rtr, ResponderTakesEachKind) {
    REQ("MPA2-26", "MPA2-38", "MPA-34");
    for (const Kind &kind : kKinds) {
        SCOPED_TRACE(kind.name);
        Link link({.enhanced = Enhanced{.ird = 1, .ord = 1, .p2p = true, .rtr = kind.flag},
                   .open = false});
        Region to(link.pd(), 64);
        link.recv(1, {to.all()});
        link.send(2, {});
        link.expect_nothing_for();
        link.say(rtr_ulpdu(kind.flag));
        Segment first = link.hear();
        if (kind.flag == kRtrRead) {
            /* Answered in its turn, before or behind the Send. */
            Segment second = link.hear();
            if (first.opcode() == kOpSend)
                std::swap(first, second);
            expect_octets(Bytes{first.ddp, first.rdmap}, Bytes{0xc1, 0x42});
            EXPECT_EQ(first.stag, 5U);
            EXPECT_TRUE(first.payload.empty());
            first = second;
        }
        EXPECT_EQ(first.rdmap, kRdmapVersion | kOpSend);
        EXPECT_EQ(first.msn, 1U);
        expect_success(link.scq(), 2, IBV_WC_SEND);
        expect_quiet(link.rcq());
        /* The receive is still there for the first Send of the program's. */
        uint32_t msn = kind.flag == kRtrSend ? 2 : 1;
        link.say(Untagged{.msn = msn, .payload = {7, 8, 9}});
        expect_success(link.rcq(), 1, IBV_WC_RECV, 3);
        link.send_msn = msn + 1;
        link.expect_works();
    }
}

/* With no receive posted at all, an RTR by Send is no Send without a buffer. */
TEST(Mpa2Rtr, SendNeedsNoReceive) {
    REQ("MPA2-38");
    Link link({.enhanced = Enhanced{.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrSend},
               .rtr = rtr_ulpdu(kRtrSend)});
    link.send_msn = 2;
    link.expect_works();
}

/* Only the first FPDU is an RTR. */
TEST(Mpa2Rtr, OnlyTheFirst) {
    REQ("MPA2-38");
    Link link({.enhanced = Enhanced{.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrAll}});
    link.recv(1, {});
    link.say(Untagged{});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
    link.send_msn = 2;
    link.expect_works();
}

/* Local trouble ------------------------------------------------------------------- */

/* Behind a good Reply our initiator says why it cannot go on. */
TEST(Mpa2Terminate, LocalError) {
    REQ("MPA2-39", "MPA2-40");
    Active active;
    /* More private data than the RDMA core has room for in its event. */
    active.peer.say(MpaFrame::enhanced_reply({.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrAll},
                                             kMpaCrc, Bytes(300, 1))
                        .bytes());
    Segment segment = active.peer.hear_segment();
    EXPECT_EQ(segment.rdmap, kRdmapVersion | kOpTerminate);
    expect_octets(segment.payload, Bytes{0x20, 0x05, 0, 0});
    EXPECT_TRUE(active.peer.closed_by_peer());
    EXPECT_EQ(active.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, -EMSGSIZE);
}

/* In whatever form the stream would have had: CRC or not, markers or not. */
TEST(Mpa2Terminate, HasTheFormOfTheStream) {
    REQ("MPA2-39", "MPA-04", "MPA-10");
    for (bool crc : {false, true})
        for (bool markers : {false, true}) {
            SCOPED_TRACE(testing::Message() << "crc " << crc << " markers " << markers);
            Policy policy(Role::initiator, "crc", crc ? "prefer" : "off");
            Active active;
            active.peer.say(
                MpaFrame::enhanced_reply({.ird = 1, .ord = 9999, .p2p = true, .rtr = kRtrAll},
                                         static_cast<uint8_t>(markers ? kMpaMarkers : 0))
                    .bytes());
            active.peer.use_markers(false, markers);
            active.peer.any_crc = !crc;
            Fpdu unit = active.peer.hear_fpdu();
            EXPECT_TRUE(unit.markers_good());
            EXPECT_EQ(unit.markers.size(), markers ? 1U : 0U);
            if (crc) {
                EXPECT_TRUE(unit.crc_good);
            }
            Segment segment = Segment::parse(unit.ulpdu);
            expect_octets(segment.payload, Bytes{0x20, 0x06, 0, 0});
            EXPECT_EQ(active.peer.ending(), Ending::fin);
            EXPECT_NE(active.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, 0);
        }
}

} // namespace
