// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/raw_mpa.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lib/connection.hpp"

namespace softwarp::e2e {

uint32_t crc32c(std::span<const uint8_t> data) {
    static const std::array<uint32_t, 256> table = [] {
        std::array<uint32_t, 256> t{};
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0);
            t[i] = value;
        }
        return t;
    }();
    uint32_t crc = ~0U;
    for (uint8_t octet : data)
        crc = (crc >> 8) ^ table[(crc ^ octet) & 0xff];
    return ~crc;
}

void put16(Bytes &to, uint16_t value) {
    to.push_back(static_cast<uint8_t>(value >> 8));
    to.push_back(static_cast<uint8_t>(value));
}

void put32(Bytes &to, uint32_t value) {
    put16(to, static_cast<uint16_t>(value >> 16));
    put16(to, static_cast<uint16_t>(value));
}

void put64(Bytes &to, uint64_t value) {
    put32(to, static_cast<uint32_t>(value >> 32));
    put32(to, static_cast<uint32_t>(value));
}

uint16_t get16(std::span<const uint8_t> from, size_t at) {
    return static_cast<uint16_t>(from[at] << 8 | from[at + 1]);
}

uint32_t get32(std::span<const uint8_t> from, size_t at) {
    return static_cast<uint32_t>(get16(from, at)) << 16 | get16(from, at + 2);
}

uint64_t get64(std::span<const uint8_t> from, size_t at) {
    return static_cast<uint64_t>(get32(from, at)) << 32 | get32(from, at + 4);
}

Bytes mpa_frame(bool reply, uint8_t flags, uint8_t revision, const Bytes &private_data) {
    const char *key = reply ? "MPA ID Rep Frame" : "MPA ID Req Frame";
    Bytes frame(key, key + 16);
    frame.push_back(flags);
    frame.push_back(revision);
    put16(frame, static_cast<uint16_t>(private_data.size()));
    frame.insert(frame.end(), private_data.begin(), private_data.end());
    return frame;
}

Bytes Untagged::bytes() const {
    Bytes segment{ddp, rdmap};
    put32(segment, invalidate);
    put32(segment, qn);
    put32(segment, msn);
    put32(segment, mo);
    segment.insert(segment.end(), payload.begin(), payload.end());
    return segment;
}

Bytes Tagged::bytes() const {
    Bytes segment{ddp, rdmap};
    put32(segment, stag);
    put64(segment, to);
    segment.insert(segment.end(), payload.begin(), payload.end());
    return segment;
}

Bytes fpdu(const Bytes &ulpdu) {
    Bytes unit;
    put16(unit, static_cast<uint16_t>(ulpdu.size()));
    unit.insert(unit.end(), ulpdu.begin(), ulpdu.end());
    while (unit.size() % 4 != 0)
        unit.push_back(0);
    uint32_t crc = crc32c(unit);
    for (int i = 0; i < 4; i++)
        unit.push_back(static_cast<uint8_t>(crc >> (8 * i)));
    return unit;
}

namespace {

socklen_t length_of(const Address &where) {
    return where.generic.sa_family == AF_INET ? sizeof(where.v4) : sizeof(where.v6);
}

} // namespace

RawTcp::RawTcp(const std::string &ns, const std::string &addr, uint16_t port) {
    Address to = address(addr, port);
    in_namespace(ns, [&] {
        fd_ = Fd(socket(to.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        require(fd_.get() >= 0, "socket");
        require(connect(fd_.get(), &to.generic, length_of(to)) == 0, "connect " + addr);
    });
    int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void RawTcp::say(std::span<const uint8_t> octets) {
    while (!octets.empty()) {
        ssize_t sent = send(fd_.get(), octets.data(), octets.size(), MSG_NOSIGNAL);
        require(sent > 0, "send");
        octets = octets.subspan(static_cast<size_t>(sent));
    }
}

Bytes RawTcp::hear(size_t count, Deadline deadline) {
    Bytes heard(count);
    size_t got = 0;
    while (got < count) {
        pollfd waiting{fd_.get(), POLLIN, 0};
        if (poll(&waiting, 1, deadline.left_ms()) <= 0)
            fail(fmt::format("peer said {} of {} octets in time", got, count));
        ssize_t n = recv(fd_.get(), heard.data() + got, count - got, 0);
        require(n >= 0, "recv");
        if (n == 0)
            fail(fmt::format("peer closed after {} of {} octets", got, count));
        got += static_cast<size_t>(n);
    }
    return heard;
}

bool RawTcp::closed_by_peer(Deadline deadline) {
    for (;;) {
        pollfd waiting{fd_.get(), POLLIN, 0};
        if (poll(&waiting, 1, deadline.left_ms()) <= 0)
            return false;
        char dropped[4096];
        ssize_t n = recv(fd_.get(), dropped, sizeof(dropped), 0);
        if (n <= 0)
            return n == 0 || errno == ECONNRESET;
    }
}

bool RawTcp::silent(milliseconds quiet) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    return poll(&waiting, 1, Deadline(quiet).left_ms()) == 0;
}

Bytes RawTcp::hear_reply(Deadline deadline) {
    Bytes reply = hear(kMpaHeader, deadline);
    Bytes data = hear(get16(reply, 18), deadline);
    reply.insert(reply.end(), data.begin(), data.end());
    return reply;
}

Fpdu RawTcp::hear_fpdu(Deadline deadline) {
    Bytes unit = hear(2, deadline);
    size_t length = get16(unit, 0);
    size_t pad = (4 - (2 + length) % 4) % 4;
    Bytes rest = hear(length + pad + 4, deadline);
    unit.insert(unit.end(), rest.begin(), rest.end());

    uint32_t said = 0;
    for (int i = 0; i < 4; i++)
        said |= static_cast<uint32_t>(unit[unit.size() - 4 + i]) << (8 * i);
    uint32_t computed = crc32c(std::span(unit).first(unit.size() - 4));
    return Fpdu{Bytes(unit.begin() + 2, unit.begin() + 2 + length),
                Bytes(unit.begin() + 2 + length, unit.end() - 4), said == computed};
}

void RawTcp::shut_down() {
    shutdown(fd_.get(), SHUT_WR);
}

void RawTcp::reset() {
    linger now{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    fd_.reset();
}

RawListener::RawListener(const std::string &ns, const std::string &addr) {
    Address where = address(addr, 0);
    in_namespace(ns, [&] {
        fd_ = Fd(socket(where.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        require(fd_.get() >= 0, "socket");
        require(bind(fd_.get(), &where.generic, length_of(where)) == 0, "bind " + addr);
        require(listen(fd_.get(), 128) == 0, "listen");
    });
    Address bound{};
    socklen_t size = sizeof(bound);
    require(getsockname(fd_.get(), &bound.generic, &size) == 0, "getsockname");
    port_ = ntohs(bound.v4.sin_port);
}

RawTcp RawListener::accept(Deadline deadline) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    if (poll(&waiting, 1, deadline.left_ms()) <= 0)
        fail("nobody connects");
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    require(fd.get() >= 0, "accept");
    return RawTcp(std::move(fd));
}

} // namespace softwarp::e2e
