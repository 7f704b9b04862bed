// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A hostile program: one process of an unprivileged user, some threads, small
 * pools of objects that they share, and operations on whatever is in the pools.
 * What is taken from a pool may be destroyed by another thread while it is used.
 */
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "lib/random.hpp"
#include "local/board.hpp"

namespace softwarp::fuzz::local {

enum Kind : unsigned {
    kContext,
    kPd,
    kCq,
    kSrq,
    kQp,
    kMr,
    kMw,
    kCompChannel,
    kCmChannel,
    kCmId,
    kKinds,
};

/* A mapped ring, or what was one; see Actor::map_ring(). */
struct Ring {
    uint8_t *base = nullptr;
    uint32_t entries = 0;
    uint32_t stride = 0;
};

/* Memory of a peer's, from its private data. */
struct Far {
    uint64_t addr = 0;
    uint32_t length = 0;
    uint32_t rkey = 0;
};

struct Object {
    int fd = -1;         // of the device or the channel that it belongs to
    uint32_t handle = 0; // the kernel's name of it there
    uint32_t number = 0; // QPN; lkey; rkey of a window
    uint32_t parent = 0; // QP, MR, MW: handle of the PD.  Id: the QPN it was connected with
    uint64_t guid = 0;   // of the device
    uint64_t addr = 0;   // MR
    uint32_t length = 0;
    uint32_t cons = 0;      // CQ: completions taken
    bool busy = false;      // QP: given to a connection.  Id: listens, or was answered
    bool requested = false; // id: a peer asked for it
    bool listens = false;   // id: or has tried to
    int async = -1;         // context: where its events come
    Ring send = {};
    Ring recv = {}; // of CQs and SRQs, too
    Far far = {};
};

/* How the processes of one run behave. */
struct Options {
    uint64_t seed = 1;
    uint64_t calls = 100000;
    unsigned actors = 6;
    unsigned uids = 3;
    bool strangers = true;
    bool admin = true;
    double slow = 1; // factor on all limits of time
};

/* What one life of an actor is like; follows from seed, actor and life. */
struct Style {
    unsigned threads = 1;
    bool far_side = false; // in the namespace of the peer
    unsigned scribble = 0; // 0: never, 1: on entries, 2: on every word
    uint64_t steps = 0;    // of each thread
    unsigned ending = 0;   // 0: exit, 1: tidy, 2: SIGKILL
};

/* A sequence from the corpus: for each thread, what it does one after the other. */
struct Sequence {
    struct Line {
        unsigned op;
        std::optional<uint64_t> seed; // none: another each time
    };
    std::string name;
    unsigned repeat = 1;
    unsigned scribble = 0;
    bool far_side = false;
    std::array<std::vector<Line>, kThreads> threads;
};

class Actor {
  public:
    Actor(const Options &options, unsigned index, uint64_t life, const Sequence *sequence);

    /* The life of the process that was forked for it; does not return. */
    [[noreturn]] void live();

    /* For operations; all of them from any thread. */
    const Style &style() const { return style_; }
    unsigned index() const { return index_; }
    std::optional<Object> any(Kind kind, Random &random);
    /* One that belongs to this file; any if there is none and `strict` is false. */
    std::optional<Object> any_in(Kind kind, int fd, Random &random);
    /* The same with that parent. */
    std::optional<Object> any_below(Kind kind, int fd, uint32_t parent, Random &random);
    std::optional<Object> any_on(Kind kind, uint64_t guid, Random &random);
    std::optional<Object> idle_qp(uint64_t guid, Random &random);
    std::optional<Object> take(Kind kind, Random &random);
    std::optional<Object> find(Kind kind, int fd, uint32_t handle);
    /* Held where ids are made or answered. */
    std::mutex &answering() { return answering_; }
    bool full(Kind kind);
    void add(Kind kind, const Object &object);
    void remove(Kind kind, int fd, uint32_t handle);
    /* Forgets all that belongs to a file. */
    void forget(int fd);
    template<typename Change>
    void change(Kind kind, int fd, uint32_t handle, Change change) {
        std::lock_guard hold(mutex_);
        for (Object &object : pools_[kind])
            if (object.fd == fd && object.handle == handle)
                change(object);
    }
    template<typename Change>
    void change_qp(uint32_t qpn, Change change) {
        std::lock_guard hold(mutex_);
        for (Object &object : pools_[kQp])
            if (object.number == qpn)
                change(object);
    }

    /*
     * Rings are mapped into places that stay mapped to something for ever, so
     * that a stale pointer is no crash but a write to what is there now.
     */
    Ring map_ring(int fd, uint64_t key, uint32_t bytes, uint32_t entries, uint32_t stride,
                  Random &random);
    uint8_t *place(Random &random);
    /* Memory to register. */
    uint8_t *arena() const { return arena_; }
    static constexpr size_t kArena = 2 << 20;
    static constexpr size_t kPlace = 256 << 10;
    static constexpr unsigned kPlaces = 48;

    void fork_child(Random &random);

  private:
    void become_stranger();
    void thread(unsigned number);
    void one_step(unsigned op, uint64_t seed);
    void tidy(Random &random);

    const Options &options_;
    unsigned index_;
    uint64_t life_;
    const Sequence *sequence_;
    Style style_;
    std::mutex mutex_; // protects pools_
    std::mutex answering_;
    std::array<std::vector<Object>, kKinds> pools_;
    uint8_t *places_ = nullptr;
    uint8_t *arena_ = nullptr;
};

/* The operations ------------------------------------------------------------ */

struct Operation {
    std::string_view name;
    unsigned weight;
    bool (*run)(Actor &, Random &);
};

/* All of them; the index is that of Board::ops. */
const std::vector<Operation> &operations();
/* By its name, or -1. */
int operation(std::string_view name);
/* One of them, by weight. */
unsigned pick_operation(Random &random);

/* verbs.cpp: parts of operations that others use */
std::optional<Object> ready_qp(Actor &actor, Random &random, uint64_t guid);
std::optional<Object> make_context(Actor &actor, Random &random, uint64_t guid);
std::optional<Object> make_mr(Actor &actor, Random &random, const Object &pd, bool sane);
bool destroy(Actor &actor, Kind kind, const Object &object);
bool ring_doorbell(const Object &qp);
uint32_t some_number(Random &random, uint32_t right);
bool scribble(Actor &actor, Random &random, unsigned level);
bool modify_qp_state(const Object &qp, unsigned state, uint32_t more_mask, Random &random);

/* The tables of operations by file. */
std::vector<Operation> verb_operations();
std::vector<Operation> data_operations();
std::vector<Operation> cm_operations();

} // namespace softwarp::fuzz::local
