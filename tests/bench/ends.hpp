// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the measuring programs on rdma_cm share.  They throw: a measurement that meets
 * an error is none.
 */
#pragma once

#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <rdma/rdma_cma.h>

namespace softwarp {

/* With what errno says */
[[noreturn]] inline void fail(const char *what) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

inline void check(bool good, const char *what) {
    if (!good)
        fail(what);
}

inline sockaddr_in address_of(const std::string &text, uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1)
        throw std::runtime_error(fmt::format("{} is no IPv4 address", text));
    return address;
}

struct DestroyChannel {
    void operator()(rdma_event_channel *channel) const { rdma_destroy_event_channel(channel); }
};
using EventChannel = std::unique_ptr<rdma_event_channel, DestroyChannel>;

inline EventChannel make_channel() {
    EventChannel channel(rdma_create_event_channel());
    check(channel != nullptr, "rdma_create_event_channel");
    return channel;
}

} // namespace softwarp
