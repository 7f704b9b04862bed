// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "wire/stream.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include <fmt/format.h>

namespace softwarp::wire {

using e2e::fail;
using e2e::Fd;
using e2e::in_namespace;
using e2e::require;

namespace {

/* How long a piece may wait for its acknowledgement, which the peer may delay. */
constexpr milliseconds kAckWait(2);

union Address {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
};

Address address(const std::string &text, uint16_t port, socklen_t &length) {
    Address result{};
    if (inet_pton(AF_INET, text.c_str(), &result.v4.sin_addr) == 1) {
        result.v4.sin_family = AF_INET;
        result.v4.sin_port = htons(port);
        length = sizeof(result.v4);
    } else if (inet_pton(AF_INET6, text.c_str(), &result.v6.sin6_addr) == 1) {
        result.v6.sin6_family = AF_INET6;
        result.v6.sin6_port = htons(port);
        length = sizeof(result.v6);
    } else {
        fail("no IP address: " + text);
    }
    return result;
}

int queued(int fd, unsigned long what) {
    int octets = 0;
    require(ioctl(fd, what, &octets) == 0, "ioctl of a socket's queue");
    return octets;
}

/* Before the connection, which settles them; accepted sockets have the listener's. */
void set_options(int fd, const StreamOptions &options) {
    if (options.mss != 0)
        require(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &options.mss, sizeof(options.mss)) == 0,
                "TCP_MAXSEG");
    if (options.receive != 0)
        require(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options.receive, sizeof(options.receive)) ==
                    0,
                "SO_RCVBUF");
}

} // namespace

SendPlan SendPlan::every(size_t size, size_t total) {
    SendPlan plan;
    for (size_t at = size; at < total; at += size)
        plan.cuts.push_back(at);
    return plan;
}

std::string ending_text(Ending ending) {
    switch (ending) {
    case Ending::none: return "no end";
    case Ending::fin: return "FIN";
    case Ending::reset: return "RST";
    case Ending::data: return "more octets";
    }
    return "?";
}

Stream::Stream(const std::string &ns, const std::string &addr, uint16_t port,
               const StreamOptions &options) {
    socklen_t length = 0;
    Address to = address(addr, port, length);
    in_namespace(ns, [&] {
        fd_ = Fd(socket(to.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        require(fd_.get() >= 0, "socket");
        set_options(fd_.get(), options);
        require(connect(fd_.get(), &to.generic, length) == 0, "connect " + addr);
    });
    int on = 1;
    require(setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
}

Stream::Stream(Fd fd) : fd_(std::move(fd)) {
    int on = 1;
    require(setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
}

void Stream::push(View octets) {
    while (!octets.empty()) {
        ssize_t sent = send(fd_.get(), octets.data(), octets.size(), MSG_NOSIGNAL);
        require(sent > 0, "send");
        octets = octets.subspan(static_cast<size_t>(sent));
    }
}

void Stream::wait_sent() {
    Deadline patience(kAckWait);
    while (queued(fd_.get(), SIOCOUTQ) > 0) {
        if (patience.passed() && queued(fd_.get(), SIOCOUTQNSD) == 0)
            return;
        std::this_thread::yield();
    }
}

void Stream::say(View octets, const SendPlan &plan) {
    size_t at = 0;
    for (size_t cut : plan.cuts) {
        if (cut <= at || cut >= octets.size())
            continue;
        push(octets.subspan(at, cut - at));
        wait_sent();
        at = cut;
    }
    push(octets.subspan(at));
}

bool Stream::fill() {
    constexpr size_t kChunk = 65536;
    if (unheard() == 0) {
        ahead_.clear();
        ahead_at_ = 0;
    }
    size_t had = ahead_.size();
    ahead_.resize(had + kChunk);
    ssize_t n = recv(fd_.get(), ahead_.data() + had, kChunk, 0);
    int error = errno;
    ahead_.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    errno = error;
    require(n >= 0, "recv");
    return n > 0;
}

Bytes Stream::take(size_t count) {
    auto first = ahead_.begin() + static_cast<ptrdiff_t>(ahead_at_);
    ahead_at_ += count;
    return Bytes(first, first + static_cast<ptrdiff_t>(count));
}

Bytes Stream::hear(size_t count, Deadline deadline) {
    while (unheard() < count) {
        pollfd waiting{fd_.get(), POLLIN, 0};
        if (poll(&waiting, 1, deadline.left_ms()) <= 0)
            fail(fmt::format("peer said {} of {} octets in time", unheard(), count));
        if (!fill())
            fail(fmt::format("peer closed after {} of {} octets", unheard(), count));
    }
    return take(count);
}

Bytes Stream::hear_to_end(Deadline deadline) {
    for (;;) {
        pollfd waiting{fd_.get(), POLLIN, 0};
        if (poll(&waiting, 1, deadline.left_ms()) <= 0)
            fail(fmt::format("no end of the stream after {} octets", unheard()));
        Ending end = peek();
        if (end != Ending::data)
            return take(unheard());
        fill();
    }
}

bool Stream::silent(milliseconds quiet) {
    return ending(Deadline(quiet)) == Ending::none;
}

Ending Stream::peek() {
    char octet = 0;
    ssize_t n = recv(fd_.get(), &octet, 1, MSG_PEEK);
    if (n > 0)
        return Ending::data;
    if (n == 0)
        return Ending::fin;
    require(errno == ECONNRESET || errno == EPIPE, "recv");
    return Ending::reset;
}

Ending Stream::ending(Deadline deadline) {
    if (unheard() > 0)
        return Ending::data;
    pollfd waiting{fd_.get(), POLLIN, 0};
    if (poll(&waiting, 1, deadline.left_ms()) <= 0)
        return Ending::none;
    return peek();
}

bool Stream::closed_by_peer(Deadline deadline) {
    for (;;) {
        take(unheard());
        switch (ending(deadline)) {
        case Ending::none: return false;
        case Ending::fin:
        case Ending::reset: return true;
        case Ending::data: fill();
        }
    }
}

void Stream::shut_down() {
    shutdown(fd_.get(), SHUT_WR);
}

void Stream::reset() {
    linger now{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    fd_.reset();
}

Bytes Stream::hear_mpa(Deadline deadline) {
    Bytes frame = hear(kMpaHeader, deadline);
    append(frame, hear(get16(frame, 18), deadline));
    return frame;
}

MpaFrame Stream::hear_frame(Deadline deadline) {
    return MpaFrame::parse(hear_mpa(deadline));
}

void Stream::use_markers(bool said, bool heard) {
    writer_ = FpduWriter(said);
    reader_ = FpduReader(heard);
}

void Stream::say_ulpdu(View ulpdu, const SendPlan &plan) {
    say(writer_.encode(ulpdu), plan);
}

void Stream::say_fpdu(const FpduSpec &spec, const SendPlan &plan) {
    say(writer_.encode(spec), plan);
}

Fpdu Stream::hear_fpdu(Deadline deadline) {
    return reader_.decode([&](size_t count) { return hear(count, deadline); });
}

Segment Stream::hear_segment(Deadline deadline) {
    Fpdu unit = hear_fpdu(deadline);
    if (!any_crc && !unit.crc_good)
        fail("FPDU with a wrong CRC: " + hex(unit.raw));
    if (!unit.markers_good())
        fail("FPDU with a wrong marker: " + hex(unit.raw, 1600));
    if (!unit.pad_zero())
        fail("FPDU whose pad is not zero: " + hex(unit.raw));
    return Segment::parse(unit.ulpdu);
}

Acceptor::Acceptor(const std::string &ns, const std::string &addr, uint16_t port,
                   const StreamOptions &options) {
    socklen_t length = 0;
    Address where = address(addr, port, length);
    in_namespace(ns, [&] {
        fd_ = Fd(socket(where.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        require(fd_.get() >= 0, "socket");
        int on = 1;
        setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        set_options(fd_.get(), options);
        require(bind(fd_.get(), &where.generic, length) == 0, "bind " + addr);
        require(listen(fd_.get(), 128) == 0, "listen");
    });
    Address bound{};
    socklen_t size = sizeof(bound);
    require(getsockname(fd_.get(), &bound.generic, &size) == 0, "getsockname");
    port_ = ntohs(bound.v4.sin_port);
}

Stream Acceptor::accept(Deadline deadline) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    if (poll(&waiting, 1, deadline.left_ms()) <= 0)
        fail("nobody connects");
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    require(fd.get() >= 0, "accept");
    return Stream(std::move(fd));
}

bool Acceptor::lonely(milliseconds quiet) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    return poll(&waiting, 1, Deadline(quiet).left_ms()) == 0;
}

} // namespace softwarp::wire
