// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Attacks on start-up, where a peer is nobody yet.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include "hostile/victim.hpp"

using namespace softwarp::fuzz;
using softwarp::e2e::accept;
using softwarp::e2e::CmEvent;
using softwarp::e2e::CmId;
using softwarp::e2e::config;
using softwarp::e2e::Deadline;
using softwarp::e2e::Endpoint;
using softwarp::e2e::EventChannel;
using softwarp::e2e::eventually;
using softwarp::e2e::Fd;
using softwarp::e2e::full_or_quick;
using softwarp::e2e::milliseconds;
using softwarp::e2e::ParameterOverride;
using softwarp::e2e::require;
using softwarp::wire::Bytes;
using softwarp::wire::Ending;
using softwarp::wire::MpaFrame;
using softwarp::wire::Stream;
using softwarp::wire::View;
using Clock = std::chrono::steady_clock;

namespace {

using HostileStartup = Hostile;

/* A limit on start-up that others can keep on a slow machine, too, without making the test long. */
int limit_ms(int ms) {
    return static_cast<int>(ms * std::min(config().scale, 3.0));
}

/* A plain connect; the device may have reset it before it returns. */
Fd dial_now(const std::string &addr, uint16_t port) {
    softwarp::e2e::Address to = softwarp::e2e::address(addr, port);
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(fd.get() >= 0, "socket");
    require(connect(fd.get(), &to.generic, sizeof(to.v4)) == 0 || errno == ECONNRESET, "connect");
    return fd;
}

void reset(Fd &fd) {
    linger now{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    fd.reset();
}

/* Whether the device has ended the stream. */
bool is_over(const Fd &fd) {
    pollfd look{fd.get(), POLLIN, 0};
    return poll(&look, 1, 0) != 0;
}

/*
 * An octet of the Request per second each: no octet buys more time, so all are
 * reset when the time for a handshake is over, and none delays anybody.
 */
TEST_F(HostileStartup, SlowRequests) {
    const int handshake_ms = limit_ms(4000);
    const int count = full_or_quick(400, 100);
    ParameterOverride limit("handshake_ms", std::to_string(handshake_ms));
    uint64_t timeouts = counter("mpa_timeout");
    Victim victim;
    Bytes request = MpaFrame::request(softwarp::wire::kMpaCrc, 1, Bytes(100)).bytes();

    auto begin = Clock::now();
    std::vector<Stream> slow;
    for (int i = 0; i < count; i++)
        slow.push_back(victim.dial());
    size_t said = 0;
    auto passed = [&] { return std::chrono::duration<double, std::milli>(Clock::now() - begin); };
    while (passed().count() < handshake_ms / 2) {
        for (Stream &stream : slow)
            stream.say(View(request).subspan(said, 1));
        said++;
        expect_serves();
        auto connection = victim.connect();
        connection.peer.reset();
        connection.consumer->expect(RDMA_CM_EVENT_DISCONNECTED);
        std::this_thread::sleep_until(begin + std::chrono::seconds(said));
    }
    ASSERT_LT(said, request.size()) << "the peers were not slow";
    for (Stream &stream : slow)
        ASSERT_EQ(stream.ending(Deadline(milliseconds(4000 + 4000))), Ending::reset);
    EXPECT_GE(passed().count(), handshake_ms * 0.9);
    EXPECT_EQ(counter("mpa_timeout") - timeouts, static_cast<uint64_t>(count));
    fmt::print("{} peers, an octet per second each: reset after {:.1f} s\n", count,
               passed().count() / 1000);
}

/* The same in a Reply: the device gives up in time, and connects elsewhere meanwhile. */
TEST_F(HostileStartup, SlowReplies) {
    const int count = full_or_quick(100, 20);
    ParameterOverride limit("reply_ms", std::to_string(limit_ms(3000)));
    softwarp::wire::Acceptor slow("", config().addr4);
    Bytes reply = MpaFrame::reply(softwarp::wire::kMpaCrc, 2, Bytes(100)).bytes();

    EventChannel channel;
    std::vector<std::unique_ptr<Endpoint>> ends;
    std::vector<Stream> peers;
    for (int i = 0; i < count; i++) {
        CmId id = softwarp::e2e::resolve(channel, config().peer_ns, config().addr4, slow.port());
        ends.push_back(
            std::make_unique<Endpoint>(channel, std::move(id), softwarp::e2e::QpOptions{}));
        softwarp::e2e::start_connect(*ends.back());
        peers.push_back(slow.accept());
    }
    auto begin = Clock::now();
    for (size_t said = 0; said < 2; said++) {
        for (Stream &peer : peers)
            peer.say(View(reply).subspan(said, 1));
        expect_serves();
        std::this_thread::sleep_until(begin + std::chrono::seconds(said + 1));
    }
    for (auto &end : ends)
        end->expect(RDMA_CM_EVENT_UNREACHABLE);
}

/*
 * Connects that say nothing, more than may be pending.  What is over the limit is
 * reset and counted; the listener works as soon as there is room, others all the
 * time; and no memory stays behind.
 */
TEST_F(HostileStartup, SilentConnects) {
    const size_t count = full_or_quick<size_t>(100000, 1500);
    const size_t pending = full_or_quick<size_t>(512, 64);
    const size_t held = 3 * pending; // by us, at most
    ParameterOverride limit("max_pending", std::to_string(pending));
    Victim victim;

    uint64_t drops = counter("pending_limit_drop");
    uint64_t timeouts = counter("mpa_timeout");
    std::deque<Fd> sockets;
    size_t most = 0, reset_by_device = 0;
    Resources warm;
    auto drop_oldest = [&] {
        reset_by_device += is_over(sockets.front());
        reset(sockets.front());
        sockets.pop_front();
    };
    auto begin = Clock::now();
    auto shown = begin;
    for (size_t i = 0; i < count; i++) {
        sockets.push_back(dial_now(config().peer_addr4, victim.port()));
        if (sockets.size() > held)
            drop_oldest();
        if (i % (count / 10) == 0) {
            /* the device resets in its own time, but it does */
            size_t open = 0;
            bool bounded = eventually([&] {
                open = 0;
                for (const Fd &fd : sockets)
                    open += !is_over(fd);
                return open <= pending;
            });
            EXPECT_TRUE(bounded) << open << " handshakes pending";
            most = std::max(most, open);
            expect_serves();
        }
        if (i == count / 4)
            warm = Resources::now();
        if (Clock::now() - shown > std::chrono::seconds(5)) {
            shown = Clock::now();
            fmt::print("{} of {} connects\n", i, count);
            std::fflush(stdout);
        }
    }
    Resources loaded = Resources::now();
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    while (!sockets.empty())
        drop_oldest();
    drops = counter("pending_limit_drop") - drops;
    timeouts = counter("mpa_timeout") - timeouts;

    EXPECT_GT(drops, 0U);
    /* where all is slow, silence ends by its own time limit, too */
    EXPECT_GE(drops + timeouts, reset_by_device);
    int64_t growth =
        static_cast<int64_t>(loaded.unreclaimed) - static_cast<int64_t>(warm.unreclaimed);
    fmt::print(
        "{} silent connects in {:.0f} s, at most {} open, {} reset over the limit; slab memory "
        "{:+} KiB since a quarter of them\n",
        count, seconds, most, drops, growth / 1024);
    EXPECT_LT(growth, static_cast<int64_t>((count - count / 4) * 64)) << "an object per connect";

    /* the listener that was attacked */
    EXPECT_TRUE(eventually([&] {
        try {
            auto connection = victim.connect();
            connection.peer.reset();
            connection.consumer->expect(RDMA_CM_EVENT_DISCONNECTED);
            return true;
        } catch (const softwarp::e2e::Failure &) {
            return false;
        }
    }));
}

/* Connects that are reset at once, or after the Request, however far it has come. */
TEST_F(HostileStartup, ConnectsThatLeave) {
    const int count = full_or_quick(5000, 300);
    Victim victim;
    Bytes request = MpaFrame::request(softwarp::wire::kMpaCrc, 1, Bytes(10)).bytes();
    for (int i = 0; i < count; i++) {
        Fd fd = dial_now(config().peer_addr4, victim.port());
        size_t n = static_cast<size_t>(i) % (request.size() + 1);
        require(send(fd.get(), request.data(), n, MSG_NOSIGNAL) == static_cast<ssize_t>(n), "send");
        if (i % 2 == 0)
            reset(fd);
        else
            fd.reset();
        if (i % 50 == 0) {
            victim.refuse_requests();
            expect_serves();
        }
    }
    victim.refuse_requests();
}

/* Every PD_Length that a Request or Reply may claim, with what is behind it. */
TEST_F(HostileStartup, PrivateDataLengths) {
    Victim victim;
    for (uint8_t revision : {1, 2}) {
        for (size_t size : {0,   1,   2,   3,   4,   5,   196, 251, 252, 254,
                            255, 256, 257, 503, 504, 505, 508, 509, 511, 512}) {
            SCOPED_TRACE(fmt::format("revision {}, {} octets", revision, size));
            Bytes data(size);
            for (size_t i = 0; i < size; i++)
                data[i] = static_cast<uint8_t>(i * 3 + 1);
            MpaFrame request = MpaFrame::request(softwarp::wire::kMpaCrc, revision, data);
            if (revision == 2) {
                if (size + 4 > 512)
                    continue;
                request.enhanced = softwarp::wire::Enhanced{1, 1};
            }
            Stream peer = victim.dial();
            peer.say(request.bytes());
            if (size > 255) {
                /* more than the RDMA core can carry: malformed, RFC 5044 section 7.1.2 */
                EXPECT_EQ(peer.ending(), Ending::reset);
                continue;
            }
            CmEvent event =
                victim.channel().expect(victim.listener().id(), RDMA_CM_EVENT_CONNECT_REQUEST);
            Bytes got = event.private_data;
            ASSERT_GE(got.size(), size);
            EXPECT_EQ(Bytes(got.begin(), got.begin() + static_cast<ptrdiff_t>(size)), data);
            rdma_reject(event.id, nullptr, 0);
            rdma_destroy_id(event.id);
            EXPECT_TRUE(peer.hear_frame().has(softwarp::wire::kMpaReject));
        }
    }
    for (uint16_t claim : {513, 514, 1024, 4096, 32767, 32768, 65534, 65535}) {
        MpaFrame request = MpaFrame::request();
        request.pd_length = claim;
        Stream peer = victim.dial();
        peer.say(request.bytes());
        EXPECT_EQ(peer.ending(), Ending::reset) << claim;
    }
    for (uint16_t claim : {0, 1, 2, 3}) {
        /* enhanced, and no room for what that means */
        MpaFrame request = MpaFrame::request(softwarp::wire::kMpaCrc | softwarp::wire::kMpaEnhanced,
                                             2, Bytes(claim));
        Stream peer = victim.dial();
        peer.say(request.bytes());
        EXPECT_EQ(peer.ending(), Ending::reset) << claim;
    }
}

} // namespace
