// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The page that all processes of the local fuzzer share: what each thread does,
 * how many calls were made, and what one actor tells the others so that they can
 * abuse it - numbers of QPs, ports, keys of regions, process ids.  Everything is
 * an atomic that anybody may overwrite at any time.
 */
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "lib/random.hpp"

namespace softwarp::fuzz::local {

constexpr unsigned kActors = 16;
constexpr unsigned kThreads = 4;
constexpr unsigned kLog = 256;
constexpr unsigned kOps = 96;

/* One operation of a thread; what it does follows from the two and from what there is. */
struct Step {
    std::atomic<uint32_t> op;
    std::atomic<uint64_t> seed;
};

struct alignas(64) ThreadSlot {
    std::atomic<uint64_t> calls;
    std::atomic<uint64_t> steps; // its own end wraps in log
    std::atomic<int> tid;        // 0: not running
    std::array<Step, kLog> log;
};

struct ActorSlot {
    std::atomic<int> pid;
    std::atomic<uint64_t> life;
    std::array<ThreadSlot, kThreads> threads;
};

struct OpCount {
    std::atomic<uint64_t> tried;
    std::atomic<uint64_t> done;
    std::atomic<int> error; // of the last one that failed
};

struct Listener {
    std::atomic<uint32_t> addr; // network byte order; 0: none
    std::atomic<uint32_t> port;
};

struct RegionNotice {
    std::atomic<uint64_t> addr;
    std::atomic<uint32_t> length;
    std::atomic<uint32_t> rkey;
};

/* One of a pair of programs, and of the control beside it. */
struct Honest {
    std::atomic<uint64_t> rounds;
    std::atomic<uint64_t> alive;      // control: ms that it went on, see honest.hpp
    std::atomic<uint64_t> last;       // control's `alive` when the last round ended
    std::atomic<uint64_t> longest;    // of a round, in `alive`
    std::atomic<uint64_t> longest_ms; // of a round, by the clock
    std::atomic<uint32_t> port;
    std::atomic<bool> failed;
    std::array<char, 256> why; // written once, before `failed`
};

struct Board {
    std::array<ActorSlot, kActors> actors;
    std::array<OpCount, kOps> ops;
    std::array<std::atomic<uint32_t>, 64> qpns;
    std::array<Listener, 32> listeners; // of ours
    std::array<Listener, 8> strangers;  // of hostile peers
    std::array<RegionNotice, 64> regions;
    std::atomic<uint64_t> frames;   // that hostile peers have sent
    std::atomic<uint64_t> sessions; // of hostile peers
    std::atomic<uint64_t> admin;    // what root has done
    std::atomic<bool> stop;
    Honest pair;
    Honest control;
};

/* Made by the conductor before it forks. */
inline Board *board = nullptr;
/* The calling thread's, null outside of actors. */
inline thread_local ThreadSlot *my_slot = nullptr;

/* Of the last command. */
inline thread_local int last_error = 0;

/* A verb, a call of rdma_cm or a posted request is about to be made. */
inline void count_call() {
    if (my_slot != nullptr)
        my_slot->calls.fetch_add(1, std::memory_order_relaxed);
}

template<typename Array>
auto &any_of(Array &array, Random &random) {
    return array[random.below(array.size())];
}

} // namespace softwarp::fuzz::local
