// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * DDP: RFC 5041.  What the device says is compared octet by octet with the wire
 * peer's codec; what it must not do to memory is looked for in memory.
 */
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>
#include <netinet/tcp.h>

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

constexpr uint8_t kMore = kDdpVersion;                           // untagged, not last
constexpr uint8_t kMoreTagged = kDdpTagged | kDdpVersion;        // tagged, not last
constexpr uint8_t kSolicited = kRdmapVersion | kOpSendSolicited; // octet of RDMAP
constexpr uint8_t kResponse = kRdmapVersion | kOpReadResponse;

/*
 * Memory with a registered part in the middle, whose ends are nowhere near page
 * boundaries.  All of it holds a pattern; what is outside the part has to hold
 * it for ever, and the part as long as nothing legal was written there.
 */
class Guarded {
  public:
    explicit Guarded(ibv_pd *pd, int access = kAll, size_t start = kPage + 100,
                     size_t length = 5000)
        : buffer_(4 * kPage), start_(start), length_(length) {
        fill(buffer_.data(), buffer_.size(), kSeed);
        mr_ = register_memory(pd, buffer_.at(start_), length_, access);
    }

    uint32_t stag() const { return mr_->rkey; }
    uint64_t addr(int64_t offset = 0) const {
        return buffer_.addr(start_) + static_cast<uint64_t>(offset);
    }
    uint64_t end(int64_t offset = 0) const { return addr(static_cast<int64_t>(length_) + offset); }
    size_t length() const { return length_; }
    uint8_t *at(size_t offset = 0) const { return buffer_.at(start_ + offset); }
    ibv_sge sge(size_t offset, size_t length) const {
        return {addr(static_cast<int64_t>(offset)), static_cast<uint32_t>(length), mr_->lkey};
    }
    ibv_sge all() const { return sge(0, length_); }
    ibv_mr *mr() const { return mr_.get(); }
    void deregister() { mr_.reset(); }

    /* The octets around the part. */
    void expect_guards(Where where = Where::current()) const {
        std::string line = fmt::format("line {}", where.line());
        expect_pattern(buffer_.data(), start_, kSeed, 0, line + ": in front");
        size_t behind = start_ + length_;
        expect_pattern(buffer_.at(behind), buffer_.size() - behind, kSeed, behind,
                       line + ": behind");
    }
    /* Those and the part. */
    void expect_untouched(Where where = Where::current()) const {
        expect_pattern(buffer_.data(), buffer_.size(), kSeed, 0,
                       fmt::format("line {}", where.line()));
    }
    /* A stretch of the part is as it was. */
    void expect_old(size_t offset, size_t length, Where where = Where::current()) const {
        expect_pattern(at(offset), length, kSeed, start_ + offset,
                       fmt::format("line {}", where.line()));
    }

  private:
    static constexpr size_t kPage = 4096;
    static constexpr uint64_t kSeed = 0x6a7d;

    Buffer buffer_;
    size_t start_, length_;
    Mr mr_;
};

/* Octets of a ULPDU that a TCP segment takes, RFC 5044 s. 4.5, without markers. */
size_t mulpdu(Link &link) {
    int emss = 0;
    socklen_t size = sizeof(emss);
    require(getsockopt(link.peer().fd(), IPPROTO_TCP, TCP_MAXSEG, &emss, &size) == 0, "TCP_MAXSEG");
    return static_cast<size_t>(emss - (6 + emss % 4));
}

/* Keeps the window small of a peer that does not read. */
void small_window(Link &link) {
    int size = 32 * 1024;
    require(setsockopt(link.peer().fd(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0,
            "SO_RCVBUF");
}

/* Waits until our TCP has all that the peer said, or refuses it. */
void expect_heard(Link &link) {
    EXPECT_TRUE(eventually([&] {
        int left = 0;
        return ioctl(link.peer().fd(), SIOCOUTQ, &left) != 0 || left == 0;
    }));
}

void send_invalidate(Link &link, uint64_t id, ibv_sge sge, uint32_t stag) {
    ibv_send_wr wr{};
    ibv_send_wr *bad = nullptr;
    wr.wr_id = id;
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.invalidate_rkey = stag;
    require(ibv_post_send(link.qp(), &wr, &bad) == 0, "ibv_post_send");
}

/* Headers ----------------------------------------------------------------- */

/* Each kind of header against octets written down by hand. */
TEST(DdpHeader, Octets) {
    REQ("DDP-01", "DDP-02", "DDP-03", "DDP-04", "DDP-05", "DDP-06");
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    Region from(link.pd(), 64);
    memset(from.at(0), 0x5a, 64);

    link.send(1, {from.sge(0, 3)});
    link.expect_ulpdu(
        Bytes{0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x5a, 0x5a, 0x5a});
    link.write(2, {from.sge(0, 2)}, 0x0102030405060708, 0x11223344);
    link.expect_ulpdu(
        Bytes{0xc1, 0x40, 0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8, 0x5a, 0x5a});
    link.read(3, {from.sge(8, 4)}, 0x1112131415161718, 0x55667788);
    Segment request = link.hear();
    EXPECT_EQ(request.ddp, 0x41);
    EXPECT_EQ(request.rdmap, 0x41);
    EXPECT_EQ(request.invalidate, 0U);
    EXPECT_EQ(request.qn, 1U);
    EXPECT_EQ(request.msn, 1U);
    EXPECT_EQ(request.mo, 0U);

    link.say_read({.sink_stag = 0x99aabbcc,
                   .sink_to = 0xf1f2f3f4f5f6f7f8,
                   .size = 1,
                   .src_stag = from.rkey(),
                   .src_to = from.addr(1)});
    link.expect_ulpdu(Bytes{0xc1, 0x42, 0x99, 0xaa, 0xbb, 0xcc, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6,
                            0xf7, 0xf8, 0x5a});
    /* A Terminate: the queue has a number of its own. */
    link.say(Untagged{.qn = 9});
    Segment last = link.hear();
    EXPECT_EQ(last.ddp, 0x41);
    EXPECT_EQ(last.rdmap, 0x47);
    EXPECT_EQ(last.qn, 2U);
    EXPECT_EQ(last.msn, 1U);
    EXPECT_EQ(last.mo, 0U);
}

/* All versions but 1, of both kinds of segment; the header comes back. */
TEST(DdpHeader, OtherVersionsAreRefused) {
    REQ("DDP-02", "DDP-31");
    for (uint8_t version : {0, 2, 3}) {
        SCOPED_TRACE(int(version));
        {
            Link link;
            Guarded to(link.pd());
            Tagged bad{.ddp = static_cast<uint8_t>(0xc0 | version),
                       .stag = to.stag(),
                       .to = to.addr(),
                       .payload = Bytes(16)};
            link.say(bad);
            link.expect_terminate(1, 1, 0x04, Headers::ddp(bad.bytes()));
            link.expect_disconnected();
            to.expect_untouched();
        }
        Link link;
        Guarded to(link.pd());
        link.recv(1, {to.all()});
        Untagged bad{.ddp = static_cast<uint8_t>(0x40 | version), .payload = Bytes(16)};
        link.say(bad);
        link.expect_terminate(1, 2, 0x06, Headers::ddp(bad.bytes()));
        link.expect_disconnected();
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        to.expect_untouched();
    }
}

/* The version counts from the first segment on, the one that opens the stream. */
TEST(DdpHeader, FirstSegmentHasAVersion) {
    REQ("DDP-02", "DDP-36");
    Link link({.open = false});
    Tagged bad{.ddp = 0xc2};
    link.say(bad);
    link.expect_terminate(1, 1, 0x04, Headers::ddp(bad.bytes()));
    link.expect_disconnected();
}

/* All four reserved bits, one by one and together. */
TEST(DdpHeader, ReservedBitsAreIgnored) {
    REQ("DDP-03");
    Link link;
    Region to(link.pd(), 256);
    uint32_t msn = 1;
    for (uint8_t bits : {0x04, 0x08, 0x10, 0x20, 0x3c}) {
        SCOPED_TRACE(int(bits));
        uint8_t value = static_cast<uint8_t>(msn);
        link.recv(msn, {to.sge(0, 8)});
        link.say(Tagged{.ddp = static_cast<uint8_t>(0xc1 | bits),
                        .stag = to.rkey(),
                        .to = to.addr(64),
                        .payload = Bytes(8, value)});
        link.say(Untagged{
            .ddp = static_cast<uint8_t>(0x41 | bits), .msn = msn, .payload = Bytes(8, value)});
        expect_success(link.rcq(), msn, IBV_WC_RECV, 8);
        expect_value(to.at(0), 8, value);
        expect_value(to.at(64), 8, value);
        msn++;
    }
}

/* Segmentation --------------------------------------------------------------- */

/*
 * Messages around one, two and many segments: which of them are last, what is
 * the same in all, what counts on, how long they are.
 */
TEST(DdpSegments, FillTheMulpdu) {
    REQ("DDP-04", "DDP-07", "DDP-08", "DDP-09", "DDP-11", "DDP-12", "DDP-42");
    Link link;
    size_t limit = mulpdu(link);
    ASSERT_GT(limit, 1000U);
    size_t send_room = limit - kUntaggedHeader, write_room = limit - kTaggedHeader;
    Region from(link.pd(), 40000);
    fill(from.at(0), 40000, 5);
    uint32_t msn = 1;
    for (size_t length : {size_t(1), send_room - 1, send_room, send_room + 1, write_room,
                          write_room + 1, 2 * send_room, 3 * write_room + 7, size_t(40000)})
        for (int kind = 0; kind < 3; kind++) {
            SCOPED_TRACE(fmt::format("{} octets, kind {}", length, kind));
            bool write = kind == 0;
            constexpr uint64_t kTo = 0xfffffff0; // past 32 bits
            if (write)
                link.write(length, {from.sge(0, length)}, kTo, 0xabcd);
            else if (kind == 1)
                link.send(length, {from.sge(0, length)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
            else
                send_invalidate(link, length, from.sge(0, length), 0xfedcba98);
            size_t room = write ? write_room : send_room, done = 0;
            size_t segments = (length + room - 1) / room;
            for (size_t i = 0; i < segments; i++) {
                size_t payload = std::min(room, length - done);
                bool last = i == segments - 1;
                Bytes data = pattern(payload, 5, done);
                uint8_t ddp = static_cast<uint8_t>(kDdpVersion | (last ? kDdpLast : 0));
                if (write)
                    link.expect_ulpdu(Tagged{.ddp = static_cast<uint8_t>(ddp | kDdpTagged),
                                             .stag = 0xabcd,
                                             .to = kTo + done,
                                             .payload = data});
                else
                    link.expect_ulpdu(
                        Untagged{.ddp = ddp,
                                 .rdmap = kind == 1 ? kSolicited
                                                    : uint8_t(kRdmapVersion | kOpSendInvalidate),
                                 .invalidate = kind == 1 ? 0 : 0xfedcba98,
                                 .msn = msn,
                                 .mo = static_cast<uint32_t>(done),
                                 .payload = data});
                done += payload;
            }
            msn += !write;
            expect_success(link.scq(), length, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
        }
}

/*
 * Messages longer than TCP's window: where it stops for want of room TCP cuts
 * short, and the segments follow its cuts.  That has to stay the exception.
 */
TEST(DdpSegments, LongMessages) {
    REQ("DDP-11", "DDP-12", "DDP-42");
    const size_t kLength = full_or_quick<size_t>(2000000, 400000);
    Link link;
    size_t room = mulpdu(link) - kUntaggedHeader;
    Region from(link.pd(), kLength);
    fill(from.at(0), kLength, 15);
    link.send(1, {from.all()});
    size_t segments = 0;
    for (size_t done = 0; done < kLength; segments++) {
        Segment segment = link.hear();
        ASSERT_EQ(segment.mo, done);
        ASSERT_LE(segment.payload.size(), room);
        ASSERT_EQ(segment.last(), done + segment.payload.size() == kLength);
        ASSERT_EQ(segment.payload, pattern(segment.payload.size(), 15, done));
        done += segment.payload.size();
    }
    size_t least = (kLength + room - 1) / room;
    EXPECT_LE(segments, least + least / 10);
    expect_success(link.scq(), 1, IBV_WC_SEND);
}

/* Read Responses are cut in the same way, their offsets count from the sink's. */
TEST(DdpSegments, ReadResponsesToo) {
    REQ("DDP-04", "DDP-08", "DDP-11", "DDP-12", "DDP-42");
    constexpr size_t kLength = 40001;
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    size_t room = mulpdu(link) - kTaggedHeader;
    Region source(link.pd(), kLength);
    fill(source.at(0), kLength, 6);
    link.say_read({.sink_stag = 0x1234,
                   .sink_to = 0xffffff00,
                   .size = kLength,
                   .src_stag = source.rkey(),
                   .src_to = source.addr()});
    for (size_t done = 0; done < kLength;) {
        size_t payload = std::min(room, kLength - done);
        bool last = done + payload == kLength;
        link.expect_ulpdu(Tagged{.ddp = last ? uint8_t(0xc1) : kMoreTagged,
                                 .rdmap = kResponse,
                                 .stag = 0x1234,
                                 .to = 0xffffff00 + done,
                                 .payload = pattern(payload, 6, done)});
        done += payload;
    }
}

/* Both directions busy: each message comes whole, in the order of its kind. */
TEST(DdpSegments, MessagesAreNotMixed) {
    REQ("DDP-11", "DDP-16");
    constexpr size_t kLength = 60000;
    constexpr uint32_t kCount = 12, kReads = 4;
    Link link({.enhanced = Enhanced{.ird = kReads, .ord = kReads}});
    Region from(link.pd(), kLength);
    fill(from.at(0), kLength, 9);
    for (uint32_t i = 0; i < kCount; i += 2) {
        link.send(i, {from.all()});
        link.write(i + 1, {from.all()}, 0x1000 * i, 0x77);
    }
    for (uint32_t i = 0; i < kReads; i++)
        link.say_read({.sink_stag = i,
                       .sink_to = i,
                       .size = kLength,
                       .src_stag = from.rkey(),
                       .src_to = from.addr()});
    uint32_t own = 0, reads = 0;
    while (own < kCount || reads < kReads) {
        /* Compares the segments of a message with each other. */
        Link::Message message = link.hear_message();
        EXPECT_EQ(message.payload, pattern(kLength, 9));
        EXPECT_GT(message.segments, 1U);
        if (message.rdmap == kResponse) {
            EXPECT_EQ(message.stag, reads);
            EXPECT_EQ(message.to, reads);
            reads++;
        } else if (own % 2 == 0) {
            EXPECT_FALSE(message.tagged);
            EXPECT_EQ(message.msn, own / 2 + 1);
            own++;
        } else {
            EXPECT_TRUE(message.tagged);
            EXPECT_EQ(message.to, 0x1000U * (own - 1));
            own++;
        }
    }
    for (uint32_t i = 0; i < kCount; i++)
        expect_wc(link.scq(), i, IBV_WC_SUCCESS);
}

TEST(DdpSegments, NothingIsOneSegment) {
    REQ("DDP-13", "DDP-04");
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    link.send(1, {});
    link.expect_ulpdu(Untagged{});
    link.write(2, {}, 0x8000, 0x42);
    link.expect_ulpdu(Tagged{.stag = 0x42, .to = 0x8000});
    link.say_read({.sink_stag = 7, .sink_to = 8, .size = 0, .src_stag = 9, .src_to = 10});
    link.expect_ulpdu(Tagged{.rdmap = kResponse, .stag = 7, .to = 8});
    /* And the other way round: an empty Send takes a buffer. */
    Region to(link.pd(), 8);
    link.recv(3, {to.all()});
    link.say(Untagged{});
    expect_success(link.rcq(), 3, IBV_WC_RECV, 0);
}

/* MSNs count for themselves on each queue and in each direction. */
TEST(DdpSegments, SequenceNumbers) {
    REQ("DDP-09", "DDP-10");
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    Region memory(link.pd(), 64);
    for (uint32_t i = 1; i <= 4; i++) {
        SCOPED_TRACE(i);
        link.send(i, {memory.sge(0, i)});
        Segment send = link.hear();
        EXPECT_EQ(send.qn, 0U);
        EXPECT_EQ(send.msn, i);
        link.read(10 + i, {memory.sge(16, 4)}, 0x100, 0x200);
        Segment request = link.hear();
        EXPECT_EQ(request.qn, 1U);
        EXPECT_EQ(request.msn, i);
        ReadRequest header = ReadRequest::parse(request.payload);
        link.say(Tagged{.rdmap = kResponse,
                        .stag = header.sink_stag,
                        .to = header.sink_to,
                        .payload = Bytes(4)});
        expect_success(link.scq(), i, IBV_WC_SEND);
        expect_success(link.scq(), 10 + i, IBV_WC_RDMA_READ);
        /* A Write has none. */
        link.write(20 + i, {memory.sge(0, 1)}, 0, 1);
        EXPECT_TRUE(link.hear().tagged());
        expect_success(link.scq(), 20 + i, IBV_WC_RDMA_WRITE);
    }
    for (uint32_t i = 1; i <= 3; i++) {
        SCOPED_TRACE(i);
        link.recv(i, {memory.all()});
        link.say(Untagged{.msn = i, .payload = Bytes(i)});
        expect_success(link.rcq(), i, IBV_WC_RECV, i);
        link.say_read({.sink_stag = i,
                       .size = 4,
                       .src_stag = memory.rkey(),
                       .src_to = memory.addr()}); // numbered 1, 2, 3
        EXPECT_EQ(link.hear().stag, i);
    }
}

/* From 0xffffffff on to 0, both ways, Sends and reads; older numbers are out. */
TEST(DdpSegments, SequenceNumbersWrap) {
    REQ("DDP-10", "DDP-28");
    const char *module = getenv("SOFTWARP_PRESET");
    ASSERT_NE(module, nullptr) << "SOFTWARP_PRESET has to name preset.ko";
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    Region memory(link.pd(), 64);
    /* The stream is in full operation when this is through. */
    link.recv(99, {memory.all()});
    link.say(Untagged{.msn = 1});
    expect_success(link.rcq(), 99, IBV_WC_RECV, 0);
    in_namespace(ns_of(Role::responder), [&] {
        must_shell(fmt::format("insmod {} netdev={} qpn={} msn=0xfffffffe && rmmod preset", module,
                               netdev_of(device_of(Role::responder), ns_of(Role::responder)),
                               link.qp()->qp_num));
    });
    for (uint32_t msn : {0xfffffffeU, 0xffffffffU, 0U, 1U, 2U}) {
        SCOPED_TRACE(msn);
        link.recv(msn, {memory.all()});
        /* Two segments, so that the number has to hold for a while. */
        link.say(Untagged{.ddp = kMore, .msn = msn, .payload = Bytes(8, 1)});
        link.say(Untagged{.msn = msn, .mo = 8, .payload = Bytes(8, 2)});
        expect_success(link.rcq(), msn, IBV_WC_RECV, 16);
        link.send(msn, {memory.sge(0, 4)});
        EXPECT_EQ(link.hear().msn, msn);
        expect_success(link.scq(), msn, IBV_WC_SEND);
        ReadRequest theirs{
            .sink_stag = 5, .size = 4, .src_stag = memory.rkey(), .src_to = memory.addr()};
        link.say(theirs.bytes(msn));
        EXPECT_EQ(link.hear().rdmap, kResponse);
        link.read(msn, {memory.sge(0, 4)}, 0x100, 0x200);
        Segment request = link.hear();
        EXPECT_EQ(request.msn, msn);
        ReadRequest header = ReadRequest::parse(request.payload);
        link.say(Tagged{.rdmap = kResponse,
                        .stag = header.sink_stag,
                        .to = header.sink_to,
                        .payload = Bytes(4)});
        expect_success(link.scq(), msn, IBV_WC_RDMA_READ);
    }
    Untagged old{.msn = 0xffffffff};
    link.recv(1, {memory.all()});
    link.say(old);
    link.expect_terminate(1, 2, 0x03, Headers::ddp(old.bytes()));
}

/*
 * 2^32 octets are no message, whatever they would be sent from.  The longest that
 * is taken fails for its memory only.
 */
TEST(DdpSegments, NoMessageIsTooLong) {
    REQ("DDP-41");
    constexpr uint32_t kQuarter = 0x40000000;
    const SgList too_long[] = {
        {{0, kQuarter, 1}, {0, kQuarter, 1}, {0, kQuarter, 1}, {0, kQuarter, 1}},
        {{0, 0xffffffff, 1}, {0, 1, 1}},
        {{0, 0xffffffff, 1}, {0, 0xffffffff, 1}, {0, 0xffffffff, 1}, {0, 0xffffffff, 1}},
    };
    for (bool write : {false, true})
        for (const SgList &sg : too_long) {
            Link link;
            if (write)
                link.write(1, sg, 0, 7);
            else
                link.send(1, sg);
            link.expect_terminate(0, 0, 0x00, Headers::none());
            expect_wc(link.scq(), 1, IBV_WC_LOC_LEN_ERR);
            link.expect_disconnected();
        }
    Link link;
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(link.context(), 1, &port), 0);
    link.send(1, {{0, port.max_msg_sz, 1}});
    link.expect_terminate(0, 0, 0x00, Headers::none());
    expect_wc(link.scq(), 1, IBV_WC_LOC_PROT_ERR);
    link.expect_disconnected();
}

/* As many as were agreed, no power of two, while their count goes from 2^32 - 1 to 0. */
TEST(DdpSegments, CountsOfReadsWrap) {
    REQ("DDP-10");
    constexpr uint16_t kReads = 5;
    constexpr uint32_t kFrom = 0xfffffffd;
    const char *module = getenv("SOFTWARP_PRESET");
    ASSERT_NE(module, nullptr) << "SOFTWARP_PRESET has to name preset.ko";
    Link link({.enhanced = Enhanced{.ird = kReads, .ord = kReads},
               .qp = {.send_wr = 256, .ird = kReads, .ord = kReads}});
    Region memory(link.pd(), 4096);
    fill(memory.at(0), 4096, 3);
    link.recv(99, {memory.sge(4000, 8)});
    link.say(Untagged{.msn = 1});
    expect_success(link.rcq(), 99, IBV_WC_RECV, 0);
    in_namespace(ns_of(Role::responder), [&] {
        must_shell(fmt::format("insmod {} netdev={} qpn={} msn={} reads={} && rmmod preset", module,
                               netdev_of(device_of(Role::responder), ns_of(Role::responder)),
                               link.qp()->qp_num, kFrom, kFrom));
    });
    /* Theirs: all requests are in the queue at once, as they come in one segment. */
    Bytes all;
    for (uint32_t i = 0; i < kReads; i++) {
        ReadRequest request{.sink_stag = 100 + i,
                            .size = 16,
                            .src_stag = memory.rkey(),
                            .src_to = memory.addr(16 * i)};
        Bytes one = fpdu(request.bytes(kFrom + i));
        all.insert(all.end(), one.begin(), one.end());
    }
    link.peer().say(all);
    for (uint32_t i = 0; i < kReads; i++) {
        SCOPED_TRACE(i);
        Segment response = link.hear();
        EXPECT_EQ(response.stag, 100 + i);
        EXPECT_EQ(mismatch(response.payload.data(), 16, 3, 16 * i), 16U);
    }
    /* Ours: all are out before the first is answered. */
    for (uint32_t i = 0; i < kReads; i++)
        link.read(i, {memory.sge(2048 + 64 * i, 16)}, 0x100, 0x200);
    std::vector<ReadRequest> requests;
    for (uint32_t i = 0; i < kReads; i++)
        requests.push_back(ReadRequest::parse(link.hear().payload));
    for (uint32_t i = 0; i < kReads; i++) {
        SCOPED_TRACE(i);
        link.say(Tagged{.rdmap = kResponse,
                        .stag = requests[i].sink_stag,
                        .to = requests[i].sink_to,
                        .payload = Bytes(16, static_cast<uint8_t>(i + 1))});
        expect_success(link.scq(), i, IBV_WC_RDMA_READ);
        expect_value(memory.at(2048 + 64 * i), 16, static_cast<uint8_t>(i + 1));
    }
}

/* Queues and delivery ---------------------------------------------------------- */

/* Untagged messages take buffers in the order posted, tagged ones take none. */
TEST(DdpDelivery, BuffersInOrder) {
    REQ("DDP-14", "DDP-16", "DDP-19");
    constexpr uint32_t kCount = 8;
    Link link;
    Region memory(link.pd(), kCount * 64);
    for (uint32_t i = 1; i <= kCount; i++)
        link.recv(i, {memory.sge((i - 1) * 64, 64)});
    for (uint32_t i = 1; i <= kCount; i++) {
        link.say(Tagged{.stag = memory.rkey(),
                        .to = memory.addr((i - 1) * 64 + 48),
                        .payload = Bytes(16, static_cast<uint8_t>(0x80 + i))});
        link.say(Untagged{.msn = i, .payload = Bytes(5 * i, static_cast<uint8_t>(i))});
    }
    for (uint32_t i = 1; i <= kCount; i++) {
        SCOPED_TRACE(i);
        expect_success(link.rcq(), i, IBV_WC_RECV, 5 * i);
        expect_value(memory.at((i - 1) * 64), 5 * i, static_cast<uint8_t>(i));
        expect_value(memory.at((i - 1) * 64 + 48), 16, static_cast<uint8_t>(0x80 + i));
    }
    expect_quiet(link.rcq());
}

/* What comes up with a message: its length, and the ULP's own octets. */
TEST(DdpDelivery, LengthAndUlpOctets) {
    REQ("DDP-07", "DDP-19");
    Link link({.qp = {.send_wr = 256, .events = true}});
    Region to(link.pd(), 4096);
    ASSERT_EQ(ibv_req_notify_cq(link.rcq(), 1), 0);
    /* Three segments of a plain Send: their length is what they sum up to. */
    link.recv(1, {to.all()});
    link.say(Untagged{.ddp = kMore, .payload = Bytes(100)});
    link.say(Untagged{.ddp = kMore, .mo = 100, .payload = Bytes(1)});
    link.say(Untagged{.mo = 101, .payload = Bytes(1000)});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 1101);
    EXPECT_TRUE(no_cq_event(link.ours().completions())) << "a plain Send is not solicited";
    /* The same with the RDMAP octet that asks for an event. */
    link.recv(2, {to.all()});
    link.say(Untagged{.ddp = kMore, .rdmap = kSolicited, .msn = 2, .payload = Bytes(7)});
    link.say(Untagged{.rdmap = kSolicited, .msn = 2, .mo = 7, .payload = Bytes(7)});
    EXPECT_EQ(next_cq_event(link.ours().completions()), link.rcq());
    expect_success(link.rcq(), 2, IBV_WC_RECV, 14);
}

/* Not before the last segment, and with all that came before it. */
TEST(DdpDelivery, WholeMessagesOnly) {
    REQ("DDP-15", "DDP-16", "DDP-04");
    Link link;
    Region to(link.pd(), 4096);
    link.recv(1, {to.sge(0, 1000)});
    link.recv(2, {to.sge(1000, 1000)});
    link.say(Untagged{.ddp = kMore, .payload = pattern(300, 3)});
    expect_quiet(link.rcq());
    link.say(Untagged{.ddp = kMore, .mo = 300, .payload = pattern(300, 3, 300)});
    expect_quiet(link.rcq());
    /* No payload, and not the last: nothing either. */
    link.say(Untagged{.ddp = kMore, .mo = 600});
    expect_quiet(link.rcq());
    link.say(Untagged{.mo = 600, .payload = pattern(400, 3, 600)});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 1000);
    expect_pattern(to.at(0), 1000, 3);
    link.say(Untagged{.msn = 2});
    expect_success(link.rcq(), 2, IBV_WC_RECV, 0);
}

/* A Send is delivered when the Writes before it are in memory, however cut. */
TEST(DdpDelivery, WritesBeforeASend) {
    REQ("DDP-16", "DDP-15");
    constexpr size_t kLength = 20000;
    Link link;
    Region to(link.pd(), kLength);
    for (uint32_t round = 1; round <= 20; round++) {
        SCOPED_TRACE(round);
        link.recv(round, {});
        Bytes stream;
        for (size_t done = 0; done < kLength;) {
            size_t payload = std::min<size_t>(1300 + 7 * round, kLength - done);
            append(stream,
                   fpdu(Tagged{.ddp = done + payload == kLength ? uint8_t(0xc1) : kMoreTagged,
                               .stag = to.rkey(),
                               .to = to.addr(done),
                               .payload = pattern(payload, round, done)}
                            .bytes()));
            done += payload;
        }
        append(stream, fpdu(Untagged{.msn = round}.bytes()));
        link.peer().say(stream);
        expect_success(link.rcq(), round, IBV_WC_RECV, 0);
        expect_pattern(to.at(0), kLength, round);
    }
}

/* Buffers that overlap: nothing but them changes, and the stream goes on. */
TEST(DdpDelivery, OverlappingBuffers) {
    REQ("DDP-17", "DDP-39");
    Link link;
    Guarded to(link.pd());
    /* Receive and Writes into the same octets, and two parts of one receive. */
    link.recv(1, {to.sge(0, 2000), to.sge(1000, 2000)});
    for (uint8_t i = 0; i < 5; i++)
        link.say(Tagged{.stag = to.stag(), .to = to.addr(500 * i), .payload = Bytes(2000, i)});
    link.say(Untagged{.payload = Bytes(3999, 0xaa)});
    for (uint8_t i = 0; i < 5; i++)
        link.say(Tagged{.stag = to.stag(), .to = to.addr(500 * i), .payload = Bytes(2000, i)});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 3999);
    link.send_msn = 2;
    link.expect_works();
    to.expect_guards();
    to.expect_old(4000, 1000);
    /* TCP keeps the order, so here the last one wins. */
    expect_value(to.at(2000), 2000, 4);
}

/*
 * A request is complete when TCP has its octets: its buffer may change then, and
 * what cannot be sent is not complete.
 */
TEST(DdpDelivery, CompleteAtTheSource) {
    REQ("DDP-18");
    constexpr size_t kLength = 256 * 1024;
    const size_t kCount = full_or_quick<size_t>(40, 24);
    Link link({.qp = {.send_wr = 64}});
    small_window(link);
    Region from(link.pd(), kCount * kLength);
    for (size_t i = 0; i < kCount; i++) {
        fill(from.at(i * kLength), kLength, i);
        link.send(i, {from.sge(i * kLength, kLength)});
    }
    size_t complete = 0;
    auto quiet = [&] {
        std::optional<ibv_wc> wc;
        bool any = false;
        while ((wc = try_wc(link.scq()))) {
            EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc->wr_id, complete);
            memset(from.at(complete * kLength), 0xee, kLength);
            complete++;
            any = true;
        }
        return !any;
    };
    for (int still = 0; still < 3;) {
        std::this_thread::sleep_for(milliseconds(50));
        still = quiet() ? still + 1 : 0;
    }
    EXPECT_LT(complete, kCount) << "nobody has read any of it";
    for (size_t i = 0; i < kCount; i++) {
        SCOPED_TRACE(i);
        EXPECT_EQ(link.hear_message().payload, pattern(kLength, i));
    }
    EXPECT_TRUE(eventually([&] {
        quiet();
        return complete == kCount;
    }));
}

/* FPDUs cut and joined anywhere by the layer below. */
TEST(DdpDelivery, AnyCutBelow) {
    REQ("DDP-34", "DDP-15");
    Link link;
    Region to(link.pd(), 8192);
    Bytes stream;
    std::vector<size_t> lengths{0, 1, 2, 3, 4, 33, 100};
    for (uint32_t i = 1; i <= lengths.size(); i++) {
        link.recv(i, {to.sge(i * 256, 256)});
        append(stream, fpdu(Untagged{.msn = i, .payload = pattern(lengths[i - 1], i)}.bytes()));
    }
    link.peer().say(stream, SendPlan::every(1, stream.size()));
    for (uint32_t i = 1; i <= lengths.size(); i++) {
        SCOPED_TRACE(i);
        expect_success(link.rcq(), i, IBV_WC_RECV, static_cast<int64_t>(lengths[i - 1]));
        expect_pattern(to.at(i * 256), lengths[i - 1], i);
    }
}

/* A segment that the check of the layer below finds broken is none. */
TEST(DdpDelivery, BrokenBelow) {
    REQ("DDP-34", "DDP-35");
    Link link;
    Guarded to(link.pd());
    link.recv(1, {to.sge(0, 100)});
    link.peer().say_fpdu(
        {.ulpdu = Tagged{.stag = to.stag(), .to = to.addr(200), .payload = Bytes(99)}.bytes(),
         .crc = Crc::bad});
    link.expect_terminate(2, 0, 0x02, Headers::none());
    link.expect_disconnected();
    expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    link.expect_async(IBV_EVENT_QP_FATAL);
    to.expect_untouched();
}

/* Tagged buffers ---------------------------------------------------------------- */

/* Exactly what is registered can be written, to the octet. */
TEST(DdpTagged, WithinBounds) {
    REQ("DDP-21", "DDP-23", "DDP-39");
    Link link;
    Guarded to(link.pd());
    size_t length = to.length();
    uint32_t msn = 1;
    auto write = [&](int64_t offset, size_t count, uint8_t value) {
        SCOPED_TRACE(fmt::format("{} + {}", offset, count));
        link.recv(msn, {});
        link.say(Tagged{.stag = to.stag(), .to = to.addr(offset), .payload = Bytes(count, value)});
        link.say(Untagged{.msn = msn});
        expect_success(link.rcq(), msn++, IBV_WC_RECV, 0);
        expect_value(to.at(static_cast<size_t>(offset)), count, value);
        to.expect_guards();
    };
    write(0, 1, 1);
    write(static_cast<int64_t>(length) - 1, 1, 2);
    write(0, length, 3);
    write(1, length - 2, 4);
    write(3995, 2, 5); // across a page
    write(3000, 2000, 6);
}

/* The last offsets there are: the end of a region at the end of the space. */
TEST(DdpTagged, EndOfTheOffsets) {
    REQ("DDP-21", "DDP-23");
    Buffer memory(4096);
    constexpr size_t kLength = 1000;
    const uint64_t base = UINT64_MAX - kLength; // the last octet at 2^64 - 2
    const size_t start = base % 4096;           // offsets and addresses agree in a page
    auto registered = [&](Link &link) {
        return Mr(ibv_reg_mr_iova(link.pd(), memory.at(start), kLength, base, kAll));
    };
    auto expect_memory = [&](uint8_t value) {
        expect_value(memory.at(0), start, 0);
        expect_value(memory.at(start), kLength, value);
        expect_value(memory.at(start + kLength), 4096 - start - kLength, 0);
    };
    {
        Link link;
        Mr mr = registered(link);
        ASSERT_TRUE(mr);
        link.recv(1, {});
        link.say(Tagged{.stag = mr->rkey, .to = base, .payload = Bytes(kLength, 0x31)});
        link.say(Untagged{});
        expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
        expect_memory(0x31);
    }
    struct Case {
        uint64_t to;
        size_t length;
        unsigned code;
    };
    /* Up to the last offset there is, which is not registered; then over it. */
    for (const Case &one : std::initializer_list<Case>{{base - 1, 2, 0x01},
                                                       {base + kLength - 1, 2, 0x03},
                                                       {base, kLength + 2, 0x03},
                                                       {base + kLength - 1, 100, 0x03},
                                                       {UINT64_MAX, 2, 0x03},
                                                       {UINT64_MAX - 3, 8, 0x03}}) {
        SCOPED_TRACE(fmt::format("{:#x} + {}", one.to, one.length));
        Link link;
        Mr mr = registered(link);
        ASSERT_TRUE(mr);
        Tagged bad{.stag = mr->rkey, .to = one.to, .payload = Bytes(one.length, 0x32)};
        link.say(bad);
        link.expect_terminate(1, 1, one.code, Headers::ddp(bad.bytes()));
        link.expect_disconnected();
        expect_memory(0x31);
    }
}

struct BadTag {
    const char *requirement;
    const char *name;
    unsigned code;
    /* Makes the bad segment; `other` is a region of another protection domain. */
    std::function<Tagged(const Guarded &region, const Guarded &read_only, const Guarded &other)>
        make;
};

void PrintTo(const BadTag &bad, std::ostream *to) {
    *to << bad.name;
}

const BadTag kBadTags[] = {
    {"DDP-20", "NoStag", 0x00,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag() ^ 0x80000000, .to = region.addr()};
     }},
    {"DDP-20", "StagZero", 0x00,
     [](auto &region, auto &, auto &) { return Tagged{.to = region.addr()}; }},
    {"DDP-20", "OtherKey", 0x00,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag() ^ 0x01, .to = region.addr()};
     }},
    {"DDP-24", "NoRightToWrite", 0x00,
     [](auto &, auto &read_only, auto &) {
         return Tagged{.stag = read_only.stag(), .to = read_only.addr()};
     }},
    {"DDP-22", "OtherDomain", 0x02,
     [](auto &, auto &, auto &other) { return Tagged{.stag = other.stag(), .to = other.addr()}; }},
    {"DDP-21", "InFront", 0x01,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = region.addr(-16)};
     }},
    {"DDP-21", "StartsInFront", 0x01,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = region.addr(-1)};
     }},
    {"DDP-21", "Behind", 0x01,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = region.end()};
     }},
    {"DDP-21", "EndsBehind", 0x01,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = region.end(-15)};
     }},
    {"DDP-21", "OffsetZero", 0x01,
     [](auto &region, auto &, auto &) { return Tagged{.stag = region.stag(), .to = 0}; }},
    {"DDP-21", "OffsetOfTheKernel", 0x01,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = 0xffffffff81000000};
     }},
    {"DDP-23", "Wraps", 0x03,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = UINT64_MAX - 7};
     }},
    {"DDP-23", "WrapsByOne", 0x03,
     [](auto &region, auto &, auto &) {
         return Tagged{.stag = region.stag(), .to = UINT64_MAX - 14};
     }},
};

class DdpBadTag : public testing::TestWithParam<BadTag> {};

INSTANTIATE_TEST_SUITE_P(DdpTagged, DdpBadTag, testing::ValuesIn(kBadTags),
                         [](const auto &info) { return std::string(info.param.name); });

/* 16 octets into the wrong place: the code, the headers, and nothing placed. */
TEST_P(DdpBadTag, EndsTheStream) {
    REQ(GetParam().requirement, "DDP-31", "DDP-39");
    Link link;
    Pd domain = alloc_pd(link.context());
    Guarded region(link.pd()), read_only(link.pd(), kRemoteRead), other(domain.get());
    Tagged bad = GetParam().make(region, read_only, other);
    bad.payload = Bytes(16, 0xbd);
    link.say(bad);
    link.expect_terminate(1, 1, GetParam().code, Headers::ddp(bad.bytes()));
    link.expect_disconnected();
    link.expect_async(IBV_EVENT_QP_ACCESS_ERR);
    region.expect_untouched();
    read_only.expect_untouched();
    other.expect_untouched();
}

/* The second segment of a Write fails; the first has been placed. */
TEST(DdpTagged, LaterSegmentOutside) {
    REQ("DDP-21", "DDP-31");
    Link link;
    Guarded to(link.pd());
    link.say(Tagged{
        .ddp = kMoreTagged, .stag = to.stag(), .to = to.end(-100), .payload = Bytes(100, 0x11)});
    Tagged bad{.stag = to.stag(), .to = to.end(), .payload = Bytes(1, 0x12)};
    link.say(bad);
    link.expect_terminate(1, 1, 0x01, Headers::ddp(bad.bytes()));
    to.expect_guards();
    expect_value(to.at(to.length() - 100), 100, 0x11);
    to.expect_old(0, to.length() - 100);
}

/* Nothing is written by an empty segment, so nothing about it is wrong. */
TEST(DdpTagged, EmptyIsNotChecked) {
    REQ("DDP-25");
    Link link;
    Pd domain = alloc_pd(link.context());
    Guarded region(link.pd()), read_only(link.pd(), kRemoteRead), other(domain.get());
    uint32_t gone = 0;
    {
        Region dead(link.pd(), 64);
        gone = dead.rkey();
    }
    for (uint32_t stag : {0U, 1U, 0xffffffffU, gone, region.stag(), read_only.stag(), other.stag()})
        for (uint64_t to : {uint64_t(0), uint64_t(1), region.addr(-1), region.end(), UINT64_MAX}) {
            link.say(Tagged{.stag = stag, .to = to});
            link.say(Tagged{.ddp = kMoreTagged, .stag = stag, .to = to});
        }
    link.expect_works();
    region.expect_untouched();
}

/*
 * Whatever a header says: STags one bit off the right one, offsets around every
 * edge, lengths from one octet to a full FPDU.
 */
TEST(DdpTagged, HostileHeaders) {
    REQ("DDP-39", "DDP-20", "DDP-21", "DDP-23");
    struct Hostile {
        uint32_t flip = 0; // bits of the STag
        uint64_t to = 0;   // relative to the region
        size_t length = 1;
    };
    std::vector<Hostile> all;
    for (int bit = 0; bit < 32; bit++)
        all.push_back({.flip = 1U << bit});
    const uint64_t end = 5000;
    for (size_t length : {size_t(1), size_t(100), size_t(5001), size_t(60000)})
        for (uint64_t to :
             {uint64_t(0) - 1, uint64_t(0) - 100, uint64_t(0) - 4096, end, end + 1,
              end - length + 1, end + 4096, uint64_t(1) << 31, uint64_t(1) << 32, uint64_t(1) << 47,
              uint64_t(1) << 63, uint64_t(0) - (uint64_t(1) << 32)})
            all.push_back({.to = to, .length = length});
    size_t step = full_or_quick<size_t>(1, 5);
    for (size_t i = 0; i < all.size(); i += step) {
        const Hostile &one = all[i];
        SCOPED_TRACE(fmt::format("{:#x} {:#x} {}", one.flip, one.to, one.length));
        Link link;
        Guarded to(link.pd());
        ASSERT_EQ(to.length(), end);
        link.say(Tagged{.stag = to.stag() ^ one.flip,
                        .to = to.addr() + one.to,
                        .payload = Bytes(one.length, 0xd1)});
        Segment segment = link.hear();
        ASSERT_EQ(segment.opcode(), kOpTerminate) << segment.text();
        Terminate term = Terminate::parse(segment.payload);
        EXPECT_EQ(term.layer, 1) << term.text();
        EXPECT_EQ(term.etype, 1) << term.text();
        link.expect_end();
        to.expect_untouched();
        if (testing::Test::HasFailure())
            break;
    }
}

/* Deregistered between two segments of one Write: the next finds no STag. */
TEST(DdpTagged, GoneForTheNextSegment) {
    REQ("DDP-40", "DDP-20");
    Link link;
    Guarded to(link.pd());
    uint32_t stag = to.stag();
    link.recv(1, {});
    link.say(Tagged{.stag = stag, .to = to.addr(), .payload = Bytes(64, 0x41)});
    link.say(Untagged{});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
    link.say(
        Tagged{.ddp = kMoreTagged, .stag = stag, .to = to.addr(64), .payload = Bytes(64, 0x42)});
    ASSERT_TRUE(eventually([&] { return mismatch_value(to.at(64), 64, 0x42) == 64; }));
    to.deregister();
    Tagged bad{.stag = stag, .to = to.addr(128), .payload = Bytes(64, 0x43)};
    link.say(bad);
    link.expect_terminate(1, 1, 0x00, Headers::ddp(bad.bytes()));
    to.expect_guards();
    to.expect_old(128, 64);
}

/* Untagged buffers ---------------------------------------------------------------- */

struct BadUntagged {
    const char *requirement;
    const char *name;
    Untagged segment;
    unsigned code;
};

void PrintTo(const BadUntagged &bad, std::ostream *to) {
    *to << bad.name;
}

Untagged on_queue(uint32_t qn) {
    return {.qn = qn, .payload = Bytes(4)};
}

Untagged numbered(uint32_t msn) {
    return {.msn = msn, .payload = Bytes(4)};
}

Untagged at_offset(uint32_t mo) {
    return {.mo = mo, .payload = Bytes(4)};
}

Untagged read_numbered(uint32_t msn, uint32_t mo = 0) {
    return {.rdmap = kRdmapVersion | kOpReadRequest,
            .qn = 1,
            .msn = msn,
            .mo = mo,
            .payload = ReadRequest{}.header()};
}

Untagged terminate_numbered(uint32_t msn, uint32_t mo = 0) {
    return {.rdmap = kRdmapVersion | kOpTerminate,
            .qn = 2,
            .msn = msn,
            .mo = mo,
            .payload = Terminate{.layer = 0, .etype = 2, .code = 0xff}.payload()};
}

const BadUntagged kBadUntagged[] = {
    {"DDP-26", "Queue5", on_queue(5), 0x01},
    {"DDP-26", "Queue4", on_queue(4), 0x01},
    {"DDP-26", "Queue256", on_queue(256), 0x01},
    {"DDP-26", "QueueSignBit", on_queue(0x80000000), 0x01},
    {"DDP-26", "QueueAllOnes", on_queue(0xffffffff), 0x01},
    {"DDP-28", "MsnZero", numbered(0), 0x03},
    {"DDP-28", "MsnNext", numbered(2), 0x03},
    {"DDP-28", "MsnFar", numbered(100000), 0x03},
    {"DDP-28", "MsnAllOnes", numbered(0xffffffff), 0x03},
    {"DDP-28", "MsnByteSwapped", numbered(0x01000000), 0x03},
    {"DDP-29", "MoOne", at_offset(1), 0x04},
    {"DDP-29", "MoAtTheEnd", at_offset(64), 0x04},
    {"DDP-29", "MoBeyond", at_offset(65), 0x04},
    {"DDP-29", "MoAllOnes", at_offset(0xffffffff), 0x04},
    {"DDP-28", "ReadMsnZero", read_numbered(0), 0x03},
    {"DDP-28", "ReadMsnNext", read_numbered(2), 0x03},
    {"DDP-29", "ReadMo", read_numbered(1, 28), 0x04},
    {"DDP-28", "TerminateMsnZero", terminate_numbered(0), 0x03},
    {"DDP-28", "TerminateMsnNext", terminate_numbered(2), 0x03},
    {"DDP-29", "TerminateMo", terminate_numbered(1, 4), 0x04},
};

class DdpBadUntagged : public testing::TestWithParam<BadUntagged> {};

INSTANTIATE_TEST_SUITE_P(DdpUntagged, DdpBadUntagged, testing::ValuesIn(kBadUntagged),
                         [](const auto &info) { return std::string(info.param.name); });

/* First message of the stream, with buffers of 64 octets waiting. */
TEST_P(DdpBadUntagged, EndsTheStream) {
    REQ(GetParam().requirement, "DDP-31");
    Link link;
    Guarded to(link.pd());
    link.recv(1, {to.sge(0, 64)});
    link.recv(2, {to.sge(64, 64)});
    link.say(GetParam().segment);
    link.expect_terminate(1, 2, GetParam().code, Headers::ddp(GetParam().segment.bytes()));
    link.expect_disconnected();
    expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
    link.expect_async(IBV_EVENT_QP_REQ_ERR);
    to.expect_untouched();
}

/* A number that was used, after some messages, in front of a waiting buffer. */
TEST(DdpUntagged, OldNumber) {
    REQ("DDP-28", "DDP-16");
    Link link;
    Guarded to(link.pd());
    for (uint32_t i = 1; i <= 3; i++) {
        link.recv(i, {to.sge(0, 8)});
        link.say(Untagged{.msn = i, .payload = Bytes(8, 1)});
        expect_success(link.rcq(), i, IBV_WC_RECV, 8);
    }
    link.recv(4, {to.sge(8, 8)});
    Untagged bad{.msn = 3, .payload = Bytes(8, 2)};
    link.say(bad);
    link.expect_terminate(1, 2, 0x03, Headers::ddp(bad.bytes()));
    link.expect_disconnected();
    expect_wc(link.rcq(), 4, IBV_WC_WR_FLUSH_ERR);
    to.expect_old(8, 8);
}

/* No buffer: at first, and after all of them were used; an empty Send, too. */
TEST(DdpUntagged, NoBuffer) {
    REQ("DDP-27", "DDP-14");
    for (uint32_t before : {0U, 1U, 3U})
        for (size_t length : {0, 1, 1000}) {
            SCOPED_TRACE(fmt::format("{} before, {} octets", before, length));
            Link link;
            for (uint32_t i = 1; i <= before; i++) {
                link.recv(i, {});
                link.say(Untagged{.msn = i});
                expect_success(link.rcq(), i, IBV_WC_RECV, 0);
            }
            Untagged bad{.msn = before + 1, .payload = Bytes(length)};
            link.say(bad);
            link.expect_terminate(1, 2, 0x02, Headers::ddp(bad.bytes()));
            link.expect_disconnected();
            link.expect_async(IBV_EVENT_QP_REQ_ERR);
        }
}

/* The second segment of a Send anywhere but behind the first. */
TEST(DdpUntagged, OffsetOfALaterSegment) {
    REQ("DDP-29", "DDP-31", "DDP-09");
    for (uint32_t mo : {0U, 1U, 99U, 101U, 900U, 1000U, 1001U, 0x80000000U, 0xffffffffU}) {
        SCOPED_TRACE(mo);
        Link link;
        Guarded to(link.pd());
        link.recv(1, {to.sge(0, 1000)});
        link.say(Untagged{.ddp = kMore, .payload = Bytes(100, 0x21)});
        Untagged bad{.mo = mo, .payload = Bytes(50, 0x22)};
        link.say(bad);
        link.expect_terminate(1, 2, 0x04, Headers::ddp(bad.bytes()));
        link.expect_disconnected();
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        to.expect_guards();
        expect_value(to.at(0), 100, 0x21);
        to.expect_old(100, to.length() - 100);
    }
}

/* One octet more than fits: of one segment, of the last, of several parts. */
TEST(DdpUntagged, TooLong) {
    REQ("DDP-30", "DDP-31");
    struct Case {
        const char *name;
        std::vector<std::pair<size_t, size_t>> parts; // of the receive: offset, length
        std::vector<size_t> segments;                 // the last one is too long
    };
    for (const Case &one : std::initializer_list<Case>{
             {"one segment", {{0, 64}}, {65}},
             {"one segment, much", {{0, 64}}, {4000}},
             {"last segment", {{0, 64}}, {60, 5}},
             {"behind a full buffer", {{0, 64}}, {64, 1}},
             {"several parts", {{0, 10}, {100, 20}, {200, 34}}, {65}},
             {"several parts and segments", {{0, 10}, {100, 20}, {200, 34}}, {5, 30, 30}},
             {"no parts", {}, {1}},
             {"parts of nothing", {{0, 0}, {64, 0}}, {1}}}) {
        SCOPED_TRACE(one.name);
        Link link;
        Guarded to(link.pd());
        SgList list;
        for (auto [offset, length] : one.parts)
            list.push_back(to.sge(offset, length));
        link.recv(1, list);
        uint32_t mo = 0;
        for (size_t i = 0; i + 1 < one.segments.size(); i++) {
            link.say(Untagged{.ddp = kMore, .mo = mo, .payload = Bytes(one.segments[i], 0x31)});
            mo += static_cast<uint32_t>(one.segments[i]);
        }
        Untagged bad{.mo = mo, .payload = Bytes(one.segments.back(), 0x32)};
        link.say(bad);
        link.expect_terminate(1, 2, 0x05, Headers::ddp(bad.bytes()));
        link.expect_disconnected();
        expect_wc(link.rcq(), 1, IBV_WC_LOC_LEN_ERR);
        link.expect_async(IBV_EVENT_QP_REQ_ERR);
        to.expect_guards();
        /* The good segments are in place, of the bad one not an octet. */
        size_t good = mo;
        for (auto [offset, length] : one.parts) {
            size_t placed = std::min(good, length);
            expect_value(to.at(offset), placed, 0x31);
            to.expect_old(offset + placed, length - placed);
            good -= placed;
        }
    }
}

/* A buffer that is filled to its last octet is not too short. */
TEST(DdpUntagged, JustFits) {
    REQ("DDP-30");
    Link link;
    Guarded to(link.pd());
    link.recv(1, {to.sge(0, 10), to.sge(100, 20), to.sge(200, 34)});
    link.say(Untagged{.payload = pattern(64, 8)});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 64);
    expect_pattern(to.at(0), 10, 8);
    expect_pattern(to.at(100), 20, 8, 10);
    expect_pattern(to.at(200), 34, 8, 30);
    to.expect_guards();
    to.expect_old(10, 90);
}

/*
 * Messages that a peer mixes.  A Send is not interrupted: not by tagged
 * segments or reads, not by the next Send; its ULP octets may differ, that is
 * not looked at.
 */
TEST(DdpUntagged, MixedWithOthers) {
    REQ("DDP-11", "DDP-28", "DDP-31");
    struct Case {
        const char *name;
        bool tagged;
        Untagged segment;
        unsigned layer, etype, code;
    };
    for (const Case &one :
         std::initializer_list<Case>{{"a Write", true, {}, 0, 2, 0x06},
                                     {"a Read Request", false, read_numbered(1), 0, 2, 0x06},
                                     {"the next Send", false, numbered(2), 1, 2, 0x03},
                                     {"the next Send, of another kind",
                                      false,
                                      {.rdmap = kSolicited, .msn = 2, .payload = Bytes(4)},
                                      1,
                                      2,
                                      0x03},
                                     {"this Send, of another kind",
                                      false,
                                      {.rdmap = kSolicited, .mo = 8, .payload = Bytes(4)},
                                      0,
                                      2,
                                      0x06}}) {
        SCOPED_TRACE(one.name);
        Link link;
        Guarded to(link.pd());
        link.recv(1, {to.sge(0, 64)});
        link.recv(2, {to.sge(64, 64)});
        link.say(Untagged{.ddp = kMore, .payload = Bytes(8, 0x51)});
        Bytes bad =
            one.tagged
                ? Tagged{.stag = to.stag(), .to = to.addr(200), .payload = Bytes(4, 0x52)}.bytes()
                : one.segment.bytes();
        link.say(bad);
        link.expect_terminate(one.layer, one.etype, one.code, Headers::ddp(bad));
        link.expect_disconnected();
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
        expect_value(to.at(0), 8, 0x51);
        to.expect_old(8, to.length() - 8);
    }
    Link link;
    Region to(link.pd(), 64);
    link.recv(1, {to.all()});
    link.say(Untagged{.ddp = kMore, .invalidate = 0x1111, .payload = Bytes(8)});
    link.say(Untagged{.invalidate = 0x2222, .mo = 8, .payload = Bytes(8)});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 16);
}

/* Errors ------------------------------------------------------------------------- */

/*
 * Good segments behind a bad one, in the same TCP segment and later: dropped,
 * without another Terminate.
 */
TEST(DdpError, TheRestIsDropped) {
    REQ("DDP-31", "DDP-43");
    Link link;
    Guarded to(link.pd());
    link.recv(1, {to.sge(0, 64)});
    Tagged bad{.stag = to.stag(), .to = to.end(), .payload = Bytes(4)};
    Bytes rest = join(
        {fpdu(Tagged{.stag = to.stag(), .to = to.addr(100), .payload = Bytes(100, 0x61)}.bytes()),
         fpdu(Untagged{.payload = Bytes(64, 0x62)}.bytes()), fpdu(Untagged{.qn = 5}.bytes())});
    link.peer().say(join({fpdu(bad.bytes()), rest}));
    link.expect_terminate(1, 1, 0x01, Headers::ddp(bad.bytes()));
    link.peer().say(rest);
    expect_heard(link);
    link.expect_disconnected();
    expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    expect_quiet(link.rcq());
    EXPECT_TRUE(link.peer().closed_by_peer());
    to.expect_untouched();
}

/* The same bad segment in a good message's place, cut in every way by TCP. */
TEST(DdpError, BadSegmentInPieces) {
    REQ("DDP-31", "DDP-34", "DDP-43");
    for (size_t cut : {1, 2, 3, 4, 15, 16, 17, 20}) {
        SCOPED_TRACE(cut);
        Link link;
        Guarded to(link.pd());
        Tagged bad{.stag = to.stag(), .to = to.end(-1), .payload = Bytes(2)};
        link.peer().say_ulpdu(bad.bytes(), SendPlan{{cut}});
        link.expect_terminate(1, 1, 0x01, Headers::ddp(bad.bytes()));
        to.expect_untouched();
    }
}

/* The receiver's own buffer has gone: a catastrophe of ours, not of the peer. */
TEST(DdpError, LocalCatastrophe) {
    REQ("DDP-32", "DDP-38");
    Link link;
    Guarded to(link.pd());
    link.recv(1, {to.sge(0, 64)});
    link.recv(2, {});
    to.deregister();
    link.say(Untagged{.payload = Bytes(64, 0x71)});
    link.expect_terminate(1, 0, 0x00, Headers::none());
    link.expect_disconnected();
    expect_wc(link.rcq(), 1, IBV_WC_LOC_PROT_ERR);
    expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
    link.expect_async(IBV_EVENT_QP_FATAL);
    to.expect_untouched();
}

/* Error type 3 of DDP is nobody's: looked for in answers to all kinds of noise. */
TEST(DdpError, TypesInUse) {
    REQ("DDP-33");
    Random random(33);
    size_t rounds = full_or_quick<size_t>(100, 20);
    std::array<unsigned, 4> seen{};
    for (size_t round = 0; round < rounds; round++) {
        SCOPED_TRACE(round);
        Link link;
        Guarded to(link.pd());
        link.recv(1, {to.sge(0, 16)});
        /* A segment with some random fields, and one that is bad for sure. */
        Bytes ulpdu = round % 2 != 0 ? Untagged{.qn = uint32_t(random.below(3)),
                                                .msn = uint32_t(random.below(3)),
                                                .mo = uint32_t(random.below(2)),
                                                .payload = Bytes(random.below(40))}
                                           .bytes()
                                     : Tagged{.stag = to.stag() ^ uint32_t(random.below(2)),
                                              .to = to.addr(int64_t(random.below(6000)) - 500),
                                              .payload = Bytes(random.below(400))}
                                           .bytes();
        ulpdu.at(0) ^= uint8_t(random.below(4) == 0 ? random.below(4) : 0);
        link.say(ulpdu);
        link.say(Tagged{.stag = to.stag() ^ 1, .payload = Bytes(1)});
        Segment segment = link.hear();
        ASSERT_EQ(segment.opcode(), kOpTerminate) << segment.text();
        Terminate term = Terminate::parse(segment.payload);
        if (term.layer == 1) {
            EXPECT_LT(term.etype, 3) << term.text();
            seen[term.etype & 3]++;
        }
    }
    EXPECT_GT(seen[1], 0U);
    EXPECT_GT(seen[2], 0U);
}

/* Stream set-up and teardown ----------------------------------------------------- */

/* No segment before both frames have gone, whoever has something to say. */
TEST(DdpStream, SilentBeforeFullOperation) {
    REQ("DDP-36");
    {
        Link link({.open = false});
        Region from(link.pd(), 8);
        link.send(1, {from.all()});
        link.write(2, {from.all()}, 0, 1);
        link.expect_nothing_for();
        expect_quiet(link.scq());
        link.say(Tagged{});
        EXPECT_EQ(link.hear().opcode(), kOpSend);
        EXPECT_EQ(link.hear().opcode(), kOpWrite);
        expect_success(link.scq(), 1, IBV_WC_SEND);
        expect_success(link.scq(), 2, IBV_WC_RDMA_WRITE);
    }
    Active active;
    EXPECT_TRUE(active.peer.silent(kSilence)) << "spoke before the Reply";
}

/* A stream of ours as initiator uses the same version. */
TEST(DdpStream, SameVersionBothWays) {
    REQ("DDP-02", "DDP-36");
    Link link({.role = Role::initiator});
    Region memory(link.pd(), 64);
    link.send(1, {memory.sge(0, 8)});
    EXPECT_EQ(link.hear().ddp & 0x03, 1);
    link.recv(2, {memory.all()});
    link.say(Untagged{.payload = Bytes(8)});
    expect_success(link.rcq(), 2, IBV_WC_RECV, 8);
    Untagged bad{.ddp = 0x42, .msn = 2};
    link.say(bad);
    link.expect_terminate(1, 2, 0x06, Headers::ddp(bad.bytes()));
}

/* A graceful end: what was posted goes out, then FIN; nothing new is taken. */
TEST(DdpStream, GracefulEnd) {
    REQ("DDP-37", "DDP-16");
    constexpr size_t kLength = 64 * 1024;
    constexpr uint32_t kCount = 20;
    Link link({.qp = {.send_wr = 64}});
    small_window(link);
    Region from(link.pd(), kLength);
    fill(from.at(0), kLength, 12);
    for (uint32_t i = 1; i <= kCount; i++)
        link.send(i, {from.all()});
    link.ours().disconnect();
    for (uint32_t i = 1; i <= kCount; i++) {
        SCOPED_TRACE(i);
        Link::Message message = link.hear_message();
        EXPECT_EQ(message.msn, i);
        EXPECT_EQ(message.payload, pattern(kLength, 12));
    }
    link.expect_fin();
    for (uint32_t i = 1; i <= kCount; i++)
        expect_success(link.scq(), i, IBV_WC_SEND);
    link.expect_disconnected();
    link.send(99, {from.all()});
    expect_wc(link.scq(), 99, IBV_WC_WR_FLUSH_ERR);
}

/* A read that is out keeps the stream open until it is answered. */
TEST(DdpStream, GracefulEndWithARead) {
    REQ("DDP-37");
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    Region to(link.pd(), 100);
    link.read(1, {to.all()}, 0x100, 0x200);
    ReadRequest header = ReadRequest::parse(link.hear().payload);
    link.ours().disconnect();
    link.expect_nothing_for();
    link.say(Tagged{.rdmap = kResponse,
                    .stag = header.sink_stag,
                    .to = header.sink_to,
                    .payload = pattern(100, 13)});
    expect_success(link.scq(), 1, IBV_WC_RDMA_READ);
    expect_pattern(to.at(0), 100, 13);
    link.expect_fin();
    link.expect_disconnected();
}

/* The peer closes its half: what is queued still goes out, then ours is closed. */
TEST(DdpStream, PeerClosesFirst) {
    REQ("DDP-44", "DDP-35");
    constexpr size_t kLength = 64 * 1024;
    constexpr uint32_t kCount = 20;
    Link link({.qp = {.send_wr = 64}});
    small_window(link);
    Region from(link.pd(), kLength);
    fill(from.at(0), kLength, 14);
    for (uint32_t i = 1; i <= kCount; i++)
        link.send(i, {from.all()});
    link.recv(7, {});
    link.peer().shut_down();
    for (uint32_t i = 1; i <= kCount; i++) {
        SCOPED_TRACE(i);
        EXPECT_EQ(link.hear_message().payload, pattern(kLength, 14));
    }
    link.expect_fin();
    for (uint32_t i = 1; i <= kCount; i++)
        expect_success(link.scq(), i, IBV_WC_SEND);
    link.expect_disconnected();
    expect_wc(link.rcq(), 7, IBV_WC_WR_FLUSH_ERR);
}

/* A reset: all that was outstanding completes in error, an event says why. */
TEST(DdpStream, LostBelow) {
    REQ("DDP-35", "DDP-38");
    Link link({.enhanced = Enhanced{.ird = 4, .ord = 4}});
    Region memory(link.pd(), 4096);
    link.recv(1, {memory.sge(0, 64)});
    link.recv(2, {});
    link.read(3, {memory.sge(64, 64)}, 0x100, 0x200);
    EXPECT_EQ(link.hear().opcode(), kOpReadRequest);
    link.send(4, {memory.sge(128, 64)}, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    /* In the middle of a message to ours. */
    link.say(Untagged{.ddp = kMore, .payload = Bytes(10)});
    link.peer().reset();
    link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(link.scq(), 3, IBV_WC_WR_FLUSH_ERR);
    expect_wc(link.scq(), 4, IBV_WC_WR_FLUSH_ERR);
    link.expect_async(IBV_EVENT_QP_FATAL);
    link.expect_state(IBV_QPS_ERR);
}

/*
 * An abortive end of ours in the middle of a message to us: when the flush has
 * been seen, the buffers are the program's own again.
 */
TEST(DdpStream, AbortiveEnd) {
    REQ("DDP-38", "DDP-31");
    Link link;
    Guarded to(link.pd());
    link.recv(1, {to.sge(0, 2000)});
    link.recv(2, {to.sge(2000, 2000)});
    link.say(Untagged{.ddp = kMore, .payload = Bytes(1000, 0x81)});
    ASSERT_TRUE(eventually([&] { return mismatch_value(to.at(0), 1000, 0x81) == 1000; }));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(link.qp(), &attr, IBV_QP_STATE), 0);
    expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
    memset(to.at(0), 0xcc, to.length());
    /* Our direction is closed; what still arrives on the other changes nothing. */
    link.expect_fin();
    link.say(Tagged{.stag = to.stag(), .to = to.addr(4000), .payload = Bytes(1000, 0x84)});
    link.say(Untagged{.mo = 1000, .payload = Bytes(1000, 0x82)});
    link.say(Untagged{.msn = 2, .payload = Bytes(2000, 0x83)});
    expect_heard(link);
    link.expect_disconnected();
    expect_value(to.at(0), to.length(), 0xcc);
    to.expect_guards();
}

} // namespace
