// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a host has in use, to be compared with what it had before.
 */
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace softwarp::fuzz {

struct Resources {
    /* Objects of all devices by kind, as "rdma resource show" counts them. */
    std::map<std::string, uint64_t> objects;
    uint64_t sockets = 0;     // TCP sockets of this namespace, not those in TIME_WAIT
    uint64_t unreclaimed = 0; // SUnreclaim, octets
    uint64_t available = 0;   // MemAvailable, octets

    static Resources now();
    std::string text() const;
};

/*
 * Empty as soon as there are no more objects and sockets than before, else what
 * is left after a time.
 */
std::string left_over(const Resources &before, int seconds);

/* The device's counters. */
std::map<std::string, uint64_t> device_counters(const std::string &device);

/* Sum of a counter over all devices. */
uint64_t counter_sum(const std::string &name);

/* What a device does in start-up, by name: crc, markers, rdmac ... */
std::string get_policy(const std::string &device, const std::string &name);
/* Throws e2e::Failure if the device does not take it. */
void set_policy(const std::string &device, const std::string &name, const std::string &value);

} // namespace softwarp::fuzz
