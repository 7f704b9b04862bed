// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Both roles of the port mapper, octet by octet
 */
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kinds.hpp"

namespace softwarp::sockets {

constexpr uint16_t kMapperPort = 3935;
enum MessageType : uint8_t { kRequest = 0, kAccept = 1, kAck = 2, kDeny = 3 };

/* Figure 17 of the draft */
struct Message {
    std::array<uint8_t, 48> octets{};

    uint8_t type() const { return octets[0] >> 4 & 3; }
    void set_type(uint8_t type) {
        octets[0] = static_cast<uint8_t>((octets[0] & 0xcf) | type << 4);
    }
    uint8_t version() const { return octets[0] & 15; }
    uint8_t time() const { return octets[1]; }
    uint16_t ap_port() const { return word(4); }
    void set_ap_port(uint16_t port);
    void set_ap_addr(const Address &address);
    uint16_t cp_port() const { return word(6); }
    uint64_t handle() const;
    std::vector<uint8_t> cp_addr() const { return {octets.begin() + 16, octets.begin() + 32}; }
    std::vector<uint8_t> ap_addr() const { return {octets.begin() + 32, octets.end()}; }
    bool operator==(const Message &other) const { return octets == other.octets; }

  private:
    uint16_t word(size_t at) const {
        return static_cast<uint16_t>(octets[at] << 8 | octets[at + 1]);
    }
};

/* Where is that service to be had, for a client that would come from there? */
Message request(const Address &service, const Address &client);

/* Stands in for a host's port mapper: keeps what it is asked, and is silent at first. */
class Mapper {
  public:
    Mapper(Address at, bool v6);
    ~Mapper();
    /* From now on, with that port */
    void answer(uint16_t port) { port_ = port; }
    /* ... at another address than that of the request; before answer() */
    void answer_at(const Address &at) { at_ = at; }
    /* Or with an octet that is no message */
    void answer_nonsense() { nonsense_ = true; }
    /* So many, which may take a moment */
    std::vector<Message> taken(size_t count);

  private:
    void run();

    Fd fd_;
    std::optional<Address> at_;
    std::atomic<uint16_t> port_ = 0;
    std::atomic<bool> stop_ = false;
    std::atomic<bool> nonsense_ = false;
    std::mutex mutex_;
    std::vector<Message> taken_;
    std::thread thread_;
};

/* Asks the port mapper at an address, and at a port that is not kMapperPort if there is one. */
class Client {
  public:
    explicit Client(Address mapper, std::optional<Address> from = {});
    void send(const Message &message, size_t len = sizeof(Message::octets));
    std::optional<Message> receive(int ms = 5000);

  private:
    Fd fd_;
};

} // namespace softwarp::sockets
