// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Questions to an RDMA device, each answered by trying.  Nothing here belongs to
 * one driver: both ends of a connection are the same device, reached through one
 * of its own addresses, and only public libibverbs and librdmacm are used.
 */
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "lib/connection.hpp"

namespace softwarp::verbs {

using namespace softwarp::e2e;

/* The device says no, and how: a errno's name, a completion status, or what is missing. */
class No : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/*
 * One question.  ask() returns the answer, "yes" or whatever there is to tell, or
 * throws No.  Failure says that the question could not be put: no answer at all.
 */
struct Probe {
    const char *id; // row of the tables
    std::string (*ask)();
};

std::span<const Probe> object_probes();
std::span<const Probe> request_probes();

/* What main() was asked to look at. */
struct Target {
    std::string device;
    std::string address; // of its netdev
};
extern Target target;

inline const std::string kYes = "yes";
/* How long a device may take for what it does at all. */
constexpr milliseconds kPatience(3000);
constexpr size_t kSize = 64 * 1024; // of the regions
constexpr size_t kLength = 3000;    // of a message
constexpr uint64_t kSeed = 7;

std::string error_name(int error);

/* No with errno unless there is an object. */
template<typename T>
T *made(T *object) {
    if (object == nullptr)
        throw No(error_name(errno));
    return object;
}

/* No unless 0; takes what verbs return for an error: errno, -errno, or -1 with errno. */
void done(int error);

/* The context that connections of the device have, too. */
ibv_context *context();
ibv_device_attr_ex attributes();

/* What QPs are made of. */
struct Objects {
    Qp qp(ibv_qp_cap cap, ibv_qp_type type = IBV_QPT_RC, ibv_srq *srq = nullptr) const;

    Pd pd{alloc_pd(context())};
    Cq cq{create_cq(context(), 64)};
};

/* A successful completion; No with its status, or without one. */
ibv_wc completion(ibv_cq *cq);

/* A connection of the device with itself; the client sends. */
class Link {
  public:
    explicit Link(const QpOptions &client = {}, const QpOptions &server = {});

    Endpoint &c() const { return pair_.c(); }
    Endpoint &s() const { return pair_.s(); }
    /* The server's memory, registered with these rights at the first call. */
    Region &remote(int access = kAll);
    /* Posts at the client and waits for the completion. */
    void run(const SendWr &wr);
    /* Runs a Send of `length` octets in one piece, or what differs; it has to arrive. */
    ibv_wc message(SendWr wr, size_t length = kLength);
    /* A Write to that address arrives at that place. */
    void write(uint64_t addr, uint32_t rkey, const uint8_t *place);

  private:
    Pair pair_;
    std::optional<Region> remote_;

  public:
    Region local; // the client's
};

/* No unless the memory comes to hold the pattern. */
void arrived(const uint8_t *place, size_t length);

/*
 * The server binds the window to its memory, which has no remote rights itself,
 * and the client writes through it.  Returns the window's key.
 */
uint32_t use_window(Link &link, ibv_mw *window);

} // namespace softwarp::verbs
