// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "portmap.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>

namespace softwarp::sockets {

void Message::set_ap_port(uint16_t port) {
    octets[4] = static_cast<uint8_t>(port >> 8);
    octets[5] = static_cast<uint8_t>(port);
}

uint64_t Message::handle() const {
    uint64_t value = 0;
    for (size_t i = 8; i < 16; i++)
        value = value << 8 | octets[i];
    return value;
}

static void put_address(uint8_t *to, const Address &a) {
    if (a.storage.ss_family == AF_INET)
        std::memcpy(to, &reinterpret_cast<const sockaddr_in *>(&a.storage)->sin_addr, 4);
    else
        std::memcpy(to, &reinterpret_cast<const sockaddr_in6 *>(&a.storage)->sin6_addr, 16);
}

void Message::set_ap_addr(const Address &address) {
    std::fill(octets.begin() + 32, octets.end(), 0);
    put_address(&octets[32], address);
}

Message request(const Address &service, const Address &client) {
    static uint8_t count = 0;
    Message m;
    m.octets[0] = service.storage.ss_family == AF_INET ? 4 : 6;
    m.set_ap_port(service.port());
    m.octets[6] = static_cast<uint8_t>(client.port() >> 8);
    m.octets[7] = static_cast<uint8_t>(client.port());
    m.octets[15] = ++count;
    put_address(&m.octets[16], client);
    put_address(&m.octets[32], service);
    return m;
}

Mapper::Mapper(Address at, bool v6) : fd_(::socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0)) {
    /* one that was the kernel's may take a moment to go */
    at.set_port(kMapperPort);
    EXPECT_TRUE(eventually([&] { return bind_to(fd_, at) == 0; }));
    thread_ = std::thread([this] { run(); });
}

Mapper::~Mapper() {
    stop_ = true;
    thread_.join();
}

void Mapper::run() {
    while (!stop_) {
        Message m;
        Address from;
        from.len = sizeof(from.storage);
        if ((events(fd_, POLLIN, 20) & POLLIN) == 0)
            continue;
        if (::recvfrom(fd_.get(), m.octets.data(), m.octets.size(), 0, from.get(), &from.len) != 48)
            continue;
        {
            std::lock_guard lock(mutex_);
            taken_.push_back(m);
        }
        if (nonsense_)
            ::sendto(fd_.get(), "x", 1, 0, from.get(), from.len);
        if (port_ == 0 || m.type() != kRequest)
            continue;
        m.set_type(kAccept);
        m.set_ap_port(port_);
        if (at_)
            m.set_ap_addr(*at_);
        ::sendto(fd_.get(), m.octets.data(), m.octets.size(), 0, from.get(), from.len);
    }
}

std::vector<Message> Mapper::taken(size_t count) {
    std::vector<Message> found;
    eventually([&] {
        std::lock_guard lock(mutex_);
        found = taken_;
        return found.size() >= count;
    });
    return found;
}

Client::Client(Address mapper, std::optional<Address> from)
    : fd_(::socket(mapper.storage.ss_family, SOCK_DGRAM, 0)) {
    if (from) {
        EXPECT_EQ(bind_to(fd_, *from), 0);
    }
    if (!mapper.port())
        mapper.set_port(kMapperPort);
    EXPECT_EQ(connect_to(fd_, mapper), 0);
}

/* Where nobody listens an earlier one has left an error. */
void Client::send(const Message &message, size_t len) {
    auto sent = [&] { return ::send(fd_.get(), message.octets.data(), len, 0); };
    EXPECT_TRUE(sent() >= 0 || sent() >= 0) << std::strerror(errno);
}

std::optional<Message> Client::receive(int ms) {
    Message m;
    if ((events(fd_, POLLIN, ms) & POLLIN) == 0)
        return {};
    if (::recv(fd_.get(), m.octets.data(), m.octets.size(), 0) != 48)
        return {};
    return m;
}

} // namespace softwarp::sockets
