// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <deque>

#include "lib/system.hpp"
#include "local/others.hpp"
#include "mutation/mutate.hpp"
#include "mutation/session.hpp"

namespace softwarp::fuzz::local {

namespace {

using wire::Bytes;

constexpr size_t kHeld = 12;

Span some_region(Random &random) {
    RegionNotice &notice = any_of(board->regions, random);
    return {notice.addr, notice.length, notice.rkey};
}

Target some_target(Random &random) {
    Target target;
    for (Span *span : {&target.open, &target.readonly, &target.local, &target.sink, &target.foreign,
                       &target.stale, &target.words})
        *span = some_region(random);
    return target;
}

const Session &some_session(Random &random, bool device_connects) {
    for (;;) {
        const Session &session = recorded()[random.below(recorded().size())];
        if (session.startup.device_connects == device_connects)
            return session;
    }
}

/* What comes within a fifth of a second. */
Bytes hear(int fd) {
    Bytes heard(2048);
    pollfd look{fd, POLLIN, 0};
    if (poll(&look, 1, 200) <= 0)
        return {};
    ssize_t count = recv(fd, heard.data(), heard.size(), MSG_DONTWAIT);
    heard.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return heard;
}

bool say(int fd, const Bytes &octets) {
    size_t at = 0;
    while (at < octets.size()) {
        ssize_t count = send(fd, octets.data() + at, octets.size() - at, MSG_NOSIGNAL);
        if (count <= 0)
            return false;
        at += static_cast<size_t>(count);
    }
    return true;
}

Bytes start_up(Random &random, const Session &session) {
    wire::MpaFrame frame = startup_frame(session.startup);
    if (random.chance(20))
        frame.flags = static_cast<uint8_t>(frame.flags ^ random.pick({0x80U, 0x40U, 0x20U, 0x10U}));
    Bytes octets = frame.bytes();
    Changes unused;
    if (random.chance(15))
        spoil_startup(random, frame, octets, unused);
    return octets;
}

/* A Read Request for more than there is, aimed at a region. */
Frame huge_read(Random &random) {
    Span from = some_region(random);
    wire::ReadRequest read;
    read.sink_stag = static_cast<uint32_t>(random.next());
    read.sink_to = random.next();
    read.size = random.chance(50) ? 0xffffffffU - static_cast<uint32_t>(random.below(32))
                                  : static_cast<uint32_t>(random.next());
    read.src_stag = from.stag;
    read.src_to = from.addr;
    Frame frame;
    frame.ulpdu = read.bytes();
    return frame;
}

void full_operation(int fd, Random &random, const Session &legal, bool markers) {
    Target target = some_target(random);
    Session session = legal;
    Changes unused;
    vary(random, session, unused);
    std::vector<Frame> frames = frames_of(session, target);
    if (random.chance(70) && !frames.empty())
        spoil(random, frames, target, unused);
    if (random.chance(20))
        frames.insert(frames.begin(), huge_read(random));
    wire::FpduWriter writer(markers && random.chance(95));
    auto lie = static_cast<uint16_t>(random.next());
    for (const Frame &frame : frames) {
        Bytes octets = frame.garbage;
        writer.marker_value = {};
        if (frame.lying_markers)
            writer.marker_value = [lie](uint64_t, uint16_t right) {
                return static_cast<uint32_t>(static_cast<uint16_t>(right + lie));
            };
        wire::append(octets, writer.encode({.ulpdu = frame.ulpdu,
                                            .crc = frame.crc,
                                            .pad = frame.pad,
                                            .length = frame.length}));
        for (uint32_t bit : frame.flips)
            octets[(bit >> 3) % octets.size()] ^= static_cast<uint8_t>(1U << (bit & 7));
        if (!say(fd, octets))
            return;
        board->frames.fetch_add(1, std::memory_order_relaxed);
    }
}

void bound_times(int fd) {
    timeval limit{.tv_sec = 0, .tv_usec = 300000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof(on));
}

class Stranger {
  public:
    explicit Stranger(Random random) : random_(random) {}

    void listen_somewhere() {
        listener_ = e2e::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = inet_addr(e2e::config().addr4.c_str());
        socklen_t size = sizeof(in);
        e2e::require(bind(listener_.get(), reinterpret_cast<sockaddr *>(&in), size) == 0 &&
                         listen(listener_.get(), 16) == 0 &&
                         getsockname(listener_.get(), reinterpret_cast<sockaddr *>(&in), &size) ==
                             0,
                     "listen");
        for (Listener &notice : board->strangers) {
            notice.addr = in.sin_addr.s_addr;
            notice.port = ntohs(in.sin_port);
        }
    }

    void once() {
        if (random_.chance(40))
            answer();
        else
            dial();
        if (held_.size() > kHeld || (!held_.empty() && random_.chance(30)))
            held_.pop_front();
    }

  private:
    void dial() {
        Listener &to = any_of(board->listeners, random_);
        e2e::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = to.addr;
        in.sin_port = htons(static_cast<uint16_t>(to.port));
        bound_times(fd.get());
        if (to.port == 0 || connect(fd.get(), reinterpret_cast<sockaddr *>(&in), sizeof(in)) != 0) {
            usleep(20000);
            return;
        }
        const Session &session = some_session(random_, false);
        Bytes octets = start_up(random_, session);
        if (random_.chance(5))
            octets.resize(random_.below(octets.size() + 1));
        if (!say(fd.get(), octets))
            return;
        Bytes reply = hear(fd.get());
        bool markers = reply.size() > 16 && (reply[16] & wire::kMpaMarkers) != 0;
        if (!reply.empty() || random_.chance(10))
            full_operation(fd.get(), random_, session, markers);
        leave(std::move(fd));
    }

    void answer() {
        e2e::Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (fd.get() < 0) {
            usleep(5000);
            return;
        }
        bound_times(fd.get());
        const Session &session = some_session(random_, true);
        Bytes request = hear(fd.get());
        if (!say(fd.get(), start_up(random_, session)))
            return;
        bool markers = request.size() > 16 && (request[16] & wire::kMpaMarkers) != 0;
        full_operation(fd.get(), random_, session, markers);
        leave(std::move(fd));
    }

    void leave(e2e::Fd fd) {
        board->sessions.fetch_add(1, std::memory_order_relaxed);
        switch (random_.below(4)) {
        case 0: {
            linger now{1, 0};
            setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
            break;
        }
        case 1: shutdown(fd.get(), SHUT_WR); break;
        case 2: hear(fd.get()); break;
        default: break;
        }
        /* some stay open and read nothing */
        if (random_.chance(50))
            held_.push_back(std::move(fd));
    }

    Random random_;
    e2e::Fd listener_;
    std::deque<e2e::Fd> held_;
};

} // namespace

void strangers(const Options &options, uint64_t life) {
    Stranger stranger(Random(options.seed, 0x57a9 + (life << 16)));
    stranger.listen_somewhere();
    while (!board->stop) {
        try {
            stranger.once();
        } catch (const e2e::Failure &) {
            /* a frame that the codec does not make */
        }
    }
}

} // namespace softwarp::fuzz::local
