// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Plays sessions against a device, one connection after the other: the hostile
 * peer on a plain socket, and the consumer that the device serves, on a QP of its
 * own per connection.  Both are driven by one thread, which looks at what the
 * device tells either of them.
 */
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/memory.hpp"
#include "lib/random.hpp"
#include "lib/system.hpp"
#include "mutation/mutate.hpp"
#include "mutation/session.hpp"

namespace softwarp::fuzz {

struct Counts {
    uint64_t connections = 0;
    uint64_t frames = 0;  // given to TCP, at least their first octet
    uint64_t mutated = 0; // of these
    uint64_t octets = 0;  // given to TCP
    Changes changes;
    Changes endings;
    std::vector<std::string> failures;

    void add(const Counts &other);
};

/* How long the device may take for anything, seconds. */
constexpr int kPatience = 20;

class Player {
  public:
    /* addr: an IPv4 address of a netdev with a device, of this host */
    Player(std::string addr, uint64_t seed);
    ~Player();
    Player(const Player &) = delete;
    Player &operator=(const Player &) = delete;

    /* Plays a session as it is; a failure if anything goes wrong. */
    void rehearse(const Session &session);
    /* Plays connection `number`; what it is follows from the seed. */
    void play(uint64_t number);

    std::string device() const { return listener_->verbs->device->name; }

    /* What was counted since the last call. */
    Counts take_counts() { return std::exchange(counts_, {}); }

  private:
    enum class End {
        fin,
        reset,
        cut_fin, // in the middle of what there is to say
        cut_reset,
    };

    struct Show {
        Session session;
        Bytes startup = {};
        bool spoilt_startup = false;
        std::function<void(std::vector<Frame> &)> spoil = {};
        std::function<std::vector<size_t>(size_t)> cuts = {}; // offsets in so many octets
        std::function<uint16_t(uint16_t)> marker = {};
        End end = End::fin;
        uint64_t stop = 0; // where to cut, modulo the length
        bool legal = false;
    };

    struct Piece {
        size_t end;           // in the stream
        unsigned after_reads; // Read Requests to be heard before the next piece
    };

    void perform(const Show &show);
    void begin(const Show &show);
    bool start_up(const Show &show);
    void say_frames(const Show &show);
    void finish(const Show &show);
    void judge(const Show &show);
    void clean_up();

    bool dial();
    bool answer();
    void hang_up();
    bool say(const Bytes &octets, const std::vector<size_t> &cuts, size_t *said);
    bool pump(const std::function<bool()> &done, int limit_ms, bool want_write = false);
    void hear();
    void take_fpdus();
    bool heard_startup();

    void on_events();
    void on_request(rdma_cm_id *id, uint16_t port);
    void make_qp();
    void post_receives();
    void post_sends();
    void poll_cq();
    void wrong(const std::string &what);

    std::string addr_;
    uint64_t seed_;
    rdma_event_channel *channel_ = nullptr;
    rdma_cm_id *listener_ = nullptr;
    uint16_t port_ = 0;
    e2e::Fd raw_listener_;
    uint16_t raw_port_ = 0;
    ibv_cq *cq_ = nullptr;
    std::unique_ptr<Memory> memory_;

    /* this connection */
    uint64_t number_ = 0;
    std::string name_;
    const Show *show_ = nullptr;
    e2e::Fd raw_;
    uint16_t raw_local_port_ = 0;
    bool raw_over_ = false;
    bool raw_reset_ = false; // by the device
    Bytes heard_;
    size_t startup_size_ = 0;
    std::optional<wire::MpaFrame> device_startup_;
    wire::FpduReader reader_;
    size_t taken_ = 0; // octets of heard_ that are understood
    bool crc_ = true;
    unsigned reads_heard_ = 0;
    std::string terminated_;
    rdma_cm_id *id_ = nullptr;
    bool was_up_ = false;
    bool over_ = false;
    std::vector<bool> receives_; // posted and not complete
    std::vector<bool> sends_;
    unsigned good_receives_ = 0;
    unsigned good_sends_ = 0;
    size_t failures_before_ = 0;

    Counts counts_;
};

} // namespace softwarp::fuzz
