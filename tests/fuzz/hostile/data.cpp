// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Attacks in full operation: on memory that is not theirs, on memory of the
 * host, on the time that it takes to be rid of them.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "hostile/victim.hpp"
#include "lib/memory.hpp"
#include "lib/random.hpp"

using namespace softwarp::fuzz;
using softwarp::e2e::CmId;
using softwarp::e2e::config;
using softwarp::e2e::Deadline;
using softwarp::e2e::full_or_quick;
using softwarp::e2e::milliseconds;
using softwarp::e2e::QpOptions;
using softwarp::e2e::Region;
using softwarp::wire::Bytes;
using softwarp::wire::Ending;
using softwarp::wire::MpaFrame;
using softwarp::wire::Segment;
using softwarp::wire::Tagged;
using softwarp::wire::Untagged;
using Clock = std::chrono::steady_clock;

namespace {

using HostileData = Hostile;

/*
 * What the device says until it ends the stream: its Terminate, or "" if there
 * is none.
 */
std::string terminate_of(softwarp::wire::Stream &peer) {
    softwarp::wire::FpduReader reader;
    Bytes all = peer.hear_to_end();
    size_t at = 0;
    std::string found;
    while (at < all.size()) {
        softwarp::wire::Fpdu fpdu = reader.decode([&](size_t count) {
            if (all.size() - at < count)
                softwarp::e2e::fail("an FPDU that is cut");
            at += count;
            return Bytes(all.begin() + static_cast<ptrdiff_t>(at - count),
                         all.begin() + static_cast<ptrdiff_t>(at));
        });
        Segment segment = Segment::parse(fpdu.ulpdu);
        EXPECT_EQ(found, "") << "something behind a Terminate: " << segment.text();
        if (segment.opcode() == softwarp::wire::kOpTerminate) {
            auto term = softwarp::wire::Terminate::parse(segment.payload);
            found = fmt::format("{}/{}/{:#04x}", term.layer, term.etype, term.code);
        }
    }
    return found;
}

/*
 * Every opcode with every length near an edge, the octets being there: whatever
 * it means, the device ends the stream or goes on, and either at once.
 */
TEST_F(HostileData, LengthsOfUlpdus) {
    Victim victim;
    int ended = 0, went_on = 0;
    unsigned which = 0;
    for (unsigned opcode = 0; opcode < 13; opcode++) {
        for (size_t size : {0,  1,  2,  3,  6,  13, 14, 15, 17, 18, 19,   21,    22,    26,
                            29, 30, 31, 45, 46, 47, 69, 70, 71, 74, 1460, 16384, 65534, 65535}) {
            /* there are 28: in the quick form each opcode has others of them */
            if (which++ % full_or_quick(1U, 3U) != 0)
                continue;
            SCOPED_TRACE(fmt::format("opcode {}, {} octets", opcode, size));
            auto connection = victim.connect();
            Region buffer(connection.consumer->pd(), 4096);
            connection.consumer->recv(1, {buffer.sge(0, 2048)});
            std::memset(buffer.at(0), 0x5a, 4096);
            bool tagged = opcode == 0 || opcode == 2;
            Bytes ulpdu = tagged ? Tagged{.rdmap = static_cast<uint8_t>(0x40 | opcode),
                                          .stag = buffer.rkey(),
                                          .to = buffer.addr(2048)}
                                       .bytes()
                                 : Untagged{.rdmap = static_cast<uint8_t>(0x40 | opcode),
                                            .qn = opcode == 1 || opcode == 10 ? 1U
                                                  : opcode == 7               ? 2U
                                                  : opcode == 11              ? 3U
                                                                              : 0U}
                                       .bytes();
            ulpdu.resize(size, 0);
            connection.peer.say_ulpdu(ulpdu);
            connection.peer.shut_down();
            terminate_of(connection.peer).empty() ? went_on++ : ended++;
            connection.consumer->expect(RDMA_CM_EVENT_DISCONNECTED);
            /* a Write lands where it says, all of it, or nowhere */
            bool landed = opcode == 0 && size > 14 && size - 14 <= 2048;
            EXPECT_EQ(*buffer.at(2048), landed ? 0 : 0x5a);
            EXPECT_EQ(*buffer.at(4095), 0x5a);
        }
    }
    fmt::print("{} streams terminated, {} not\n", ended, went_on);
}

/* A length field that promises what never comes. */
TEST_F(HostileData, UnfinishedFpdus) {
    Victim victim;
    for (unsigned length : {1U, 18U, 1000U, 65535U}) {
        for (bool reset : {false, true}) {
            SCOPED_TRACE(fmt::format("{} octets, {}", length, reset ? "RST" : "FIN"));
            auto connection = victim.connect();
            connection.consumer->recv(1, {});
            Bytes begin;
            softwarp::wire::put16(begin, static_cast<uint16_t>(length));
            begin.resize(2 + length / 2, 0x41);
            connection.peer.say(begin);
            if (reset)
                connection.peer.reset();
            else
                connection.peer.shut_down();
            softwarp::e2e::expect_wc(connection.consumer->rcq(), 1, IBV_WC_WR_FLUSH_ERR);
            connection.consumer->expect(RDMA_CM_EVENT_DISCONNECTED);
        }
    }
}

/* Read Requests beyond the IRD: the first too many ends the stream, whatever else is queued. */
TEST_F(HostileData, ReadRequestFlood) {
    const uint32_t flood = full_or_quick(50000U, 2000U);
    for (uint8_t ird : {1, 4, 16, 128}) {
        SCOPED_TRACE(static_cast<int>(ird));
        Victim victim;
        QpOptions options;
        options.ird = ird;
        auto other = victim.connect();
        auto connection =
            victim.connect(MpaFrame::enhanced_request({.ird = 0, .ord = ird}), options);
        ASSERT_TRUE(connection.reply.enhanced.has_value());
        uint16_t granted = connection.reply.enhanced->ird;
        Region memory(connection.consumer->pd(), 1 << 20, softwarp::e2e::kRemoteRead);
        /* one at a time hands the device as many as fit a segment at once */
        Bytes stream;
        for (uint32_t msn = 1; msn <= flood; msn++) {
            Bytes request = softwarp::wire::ReadRequest{.sink_stag = 1,
                                                        .sink_to = 0,
                                                        .size = 1 << 20,
                                                        .src_stag = memory.rkey(),
                                                        .src_to = memory.addr()}
                                .bytes(msn);
            softwarp::wire::append(stream, softwarp::wire::fpdu(request));
        }
        std::thread speaker([&] {
            try {
                connection.peer.say(stream);
            } catch (const softwarp::e2e::Failure &) {
                /* the device has ended the stream */
            }
        });
        std::string said;
        try {
            said = terminate_of(connection.peer);
        } catch (const softwarp::e2e::Failure &) {
            /* what it said was lost with the reset that the rest of the flood earns */
        }
        speaker.join();
        if (!said.empty()) {
            EXPECT_EQ(said, "1/2/0x02");
        }
        connection.consumer->expect(RDMA_CM_EVENT_DISCONNECTED);
        fmt::print("IRD {} of {}: {} requests, {}\n", granted, ird, flood, said);
        /* nobody else notices */
        other.peer.say_ulpdu(softwarp::wire::ReadRequest{}.bytes());
        EXPECT_EQ(other.peer.hear_segment().opcode(), softwarp::wire::kOpReadResponse);
    }
}

/*
 * Guessing STags: with the index of a region that exists and every other key, and
 * at random.  No guess may hit, and each costs its stream, but nobody else's.
 */
TEST_F(HostileData, StagGuessing) {
    const unsigned random_guesses = full_or_quick(3000, 100);
    const unsigned step = full_or_quick(1, 8);
    Victim victim;
    auto innocent = victim.connect();
    innocent.peer.say_ulpdu(Tagged{}.bytes());
    Memory memory(innocent.consumer->context());
    uint32_t real = memory.target().open.stag;

    unsigned tries = 0, hits = 0;
    auto guess = [&](uint32_t stag, bool read) {
        /* same protection domain: only the STag stands in the way */
        auto request = MpaFrame::request();
        softwarp::wire::Stream peer = victim.dial();
        peer.say(request.bytes());
        CmId id(victim.channel().expect(victim.listener().id(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = innocent.consumer->rcq();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {1, 1, 1, 1, 0};
        ASSERT_EQ(rdma_create_qp(id.get(), memory.pd(), &attr), 0);
        rdma_conn_param param{};
        param.responder_resources = 1;
        ASSERT_EQ(rdma_accept(id.get(), &param), 0);
        peer.hear_frame();
        const Span &open = memory.target().open;
        if (read)
            peer.say_ulpdu(softwarp::wire::ReadRequest{1, 0, 16, stag, open.addr}.bytes());
        else
            peer.say_ulpdu(
                Tagged{.stag = stag, .to = open.addr, .payload = Bytes(16, 0xee)}.bytes());
        peer.shut_down();
        std::string said = terminate_of(peer);
        hits += said.empty();
        tries++;
        ibv_destroy_qp(id->qp);
        id->qp = nullptr;
        victim.channel().forget(id.get());
    };
    for (unsigned key = 0; key < 256; key += step)
        if ((real & 0xff) != key)
            guess((real & 0xffffff00U) | key, (key & 1) != 0);
    Random random(1, 1);
    for (unsigned i = 0; i < random_guesses; i++) {
        uint32_t stag = static_cast<uint32_t>(random.next());
        if (stag != real && stag != memory.target().readonly.stag)
            guess(stag, i % 2 == 0);
    }
    EXPECT_EQ(hits, 0U);
    EXPECT_EQ(memory.damage(), "");
    const auto *open = reinterpret_cast<const uint8_t *>(memory.target().open.addr);
    for (int i = 0; i < 16; i++)
        EXPECT_NE(open[i], 0xee);
    fmt::print("{} STags guessed, {} hits\n", tries, hits);
    innocent.peer.say_ulpdu(softwarp::wire::ReadRequest{}.bytes());
    EXPECT_EQ(innocent.peer.hear_segment().opcode(), softwarp::wire::kOpReadResponse);
}

/*
 * A peer that stops reading while it is owed Read Responses and Sends.  The
 * consumer has to be rid of it when it wants to, and of the memory as well.
 */
TEST_F(HostileData, PeersThatStopReading) {
    const int count = full_or_quick(64, 8);
    constexpr size_t kSize = 1 << 20;
    Victim victim;
    std::vector<Victim::Connection> stuck;
    std::vector<std::unique_ptr<Region>> regions;
    for (int i = 0; i < count; i++) {
        stuck.push_back(victim.connect());
        auto &connection = stuck.back();
        int small = 4096;
        setsockopt(connection.peer.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        regions.push_back(std::make_unique<Region>(connection.consumer->pd(), kSize));
        Region &region = *regions.back();
        for (uint32_t msn = 1; msn <= 8; msn++)
            connection.peer.say_ulpdu(softwarp::wire::ReadRequest{.sink_stag = 1,
                                                                  .sink_to = 0,
                                                                  .size = kSize,
                                                                  .src_stag = region.rkey(),
                                                                  .src_to = region.addr()}
                                          .bytes(msn));
        for (uint64_t n = 0; n < 8; n++) {
            connection.consumer->send(n, {region.all()});
            connection.consumer->read(100 + n, {region.sge(0, 4096)}, 0, 1);
        }
    }
    expect_serves();

    auto begin = Clock::now();
    for (int i = 0; i < count; i++) {
        auto &connection = stuck[static_cast<size_t>(i)];
        switch (i % 4) {
        case 0: /* the consumer destroys what it has */ break;
        case 1: connection.consumer->disconnect(); break;
        case 2: connection.peer.reset(); break;
        default: connection.peer.shut_down(); break;
        }
    }
    /* whoever wants an end, there is one, though nothing gets through to these peers */
    for (int i = 0; i < count; i++) {
        auto &connection = stuck[static_cast<size_t>(i)];
        if (i % 4 != 0)
            connection.consumer->expect(RDMA_CM_EVENT_DISCONNECTED, Deadline(milliseconds(40000)));
        regions[static_cast<size_t>(i)].reset();
        connection.consumer.reset();
    }
    double took = std::chrono::duration<double>(Clock::now() - begin).count();
    fmt::print("rid of {} peers in {:.1f} s\n", count, took);
    expect_serves();
    stuck.clear();
}

} // namespace
