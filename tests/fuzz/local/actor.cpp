// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "local/actor.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "lib/system.hpp"
#include "local/device.hpp"

namespace softwarp::fuzz::local {

namespace {

constexpr uid_t kFirstUid = 65530;
/* No more than so many objects of a kind. */
constexpr std::array<size_t, kKinds> kMost = {4, 6, 10, 4, 12, 16, 6, 4, 3, 16};

/* Every thread of every life has numbers of its own. */
uint64_t stream_of(unsigned actor, uint64_t life, unsigned thread) {
    return uint64_t{actor} << 48 | life << 8 | thread;
}

void limit(__rlimit_resource_t what, rlim_t value) {
    rlimit both{value, value};
    setrlimit(what, &both);
}

} // namespace

Actor::Actor(const Options &options, unsigned index, uint64_t life, const Sequence *sequence)
    : options_(options), index_(index), life_(life), sequence_(sequence) {
    Random random(options.seed, stream_of(index, life, 0xff));
    style_.threads = static_cast<unsigned>(random.range(1, 3));
    style_.far_side = random.chance(40);
    style_.scribble = random.pick({0U, 0U, 0U, 1U, 2U});
    style_.steps = random.pick({200U, 1000U, 5000U}) + random.below(1000);
    style_.ending = random.pick({0U, 0U, 0U, 1U, 2U});
    if (sequence_ == nullptr)
        return;
    style_.scribble = sequence_->scribble;
    style_.far_side = sequence_->far_side;
    style_.threads = 0;
    while (style_.threads < kThreads && !sequence_->threads[style_.threads].empty())
        style_.threads++;
}

void Actor::become_stranger() {
    setpgid(0, 0);
    if (style_.far_side)
        e2e::enter_namespace(e2e::config().peer_ns);
    uid_t uid = kFirstUid + index_ % options_.uids;
    e2e::require(setgroups(0, nullptr) == 0 && setresgid(uid, uid, uid) == 0 &&
                     setresuid(uid, uid, uid) == 0,
                 "setresuid");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit(RLIMIT_MEMLOCK, 8 << 20);
    limit(RLIMIT_NOFILE, 256);
    limit(RLIMIT_CORE, 0);
    std::signal(SIGPIPE, SIG_IGN);
}

void Actor::live() {
    become_stranger();
    void *got = mmap(nullptr, kPlaces * kPlace + kArena, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    e2e::require(got != MAP_FAILED, "mmap");
    places_ = static_cast<uint8_t *>(got);
    arena_ = places_ + kPlaces * kPlace;
    for (auto &slot : board->actors[index_].threads)
        slot.tid = 0;
    {
        std::vector<std::jthread> threads;
        for (unsigned i = 1; i < style_.threads; i++)
            threads.emplace_back([this, i] { thread(i); });
        thread(0);
        /* one that ends the process does not wait for the others */
        if (sequence_ == nullptr && style_.ending != 1)
            kill(getpid(), style_.ending == 2 ? SIGKILL : SIGTERM);
    }
    Random random(options_.seed, stream_of(index_, life_, 0xfe));
    my_slot = board->actors[index_].threads.data();
    my_slot->tid = gettid();
    tidy(random);
    _exit(0);
}

void Actor::one_step(unsigned op, uint64_t seed) {
    uint64_t step = my_slot->steps.load(std::memory_order_relaxed);
    Step &log = my_slot->log[step % kLog];
    log.op.store(op, std::memory_order_relaxed);
    log.seed.store(seed, std::memory_order_relaxed);
    my_slot->steps.store(step + 1, std::memory_order_relaxed);
    Random random(seed, op);
    OpCount &count = board->ops[op];
    count.tried.fetch_add(1, std::memory_order_relaxed);
    last_error = 0;
    if (operations()[op].run(*this, random))
        count.done.fetch_add(1, std::memory_order_relaxed);
    else if (last_error != 0)
        count.error.store(last_error, std::memory_order_relaxed);
}

void Actor::thread(unsigned number) {
    my_slot = &board->actors[index_].threads[number];
    my_slot->tid = gettid();
    Random random(options_.seed, stream_of(index_, life_, number));
    if (sequence_ != nullptr) {
        for (unsigned i = 0; i < sequence_->repeat && !board->stop; i++)
            for (const Sequence::Line &line : sequence_->threads[number])
                one_step(line.op, line.seed ? *line.seed : random.next());
    } else {
        for (uint64_t i = 0; i < style_.steps && !board->stop; i++) {
            unsigned op = pick_operation(random);
            one_step(op, random.next());
        }
    }
    my_slot->tid = 0;
}

/* Destroys everything, in an order that nobody recommends. */
void Actor::tidy(Random &random) {
    for (unsigned left = 200; left > 0; left--) {
        auto kind = static_cast<Kind>(random.below(kKinds));
        if (auto object = take(kind, random))
            destroy(*this, kind, *object);
    }
}

std::optional<Object> Actor::any(Kind kind, Random &random) {
    std::lock_guard hold(mutex_);
    const std::vector<Object> &pool = pools_[kind];
    if (pool.empty())
        return std::nullopt;
    return pool[random.below(pool.size())];
}

namespace {

template<typename Fits>
std::optional<Object> choose(const std::vector<Object> &pool, Random &random, Fits fits) {
    auto count = static_cast<uint64_t>(std::count_if(pool.begin(), pool.end(), fits));
    uint64_t which = random.below(count);
    for (const Object &object : pool)
        if (fits(object) && which-- == 0)
            return object;
    return std::nullopt;
}

} // namespace

std::optional<Object> Actor::any_in(Kind kind, int fd, Random &random) {
    std::lock_guard hold(mutex_);
    return choose(pools_[kind], random, [&](const Object &object) { return object.fd == fd; });
}

std::optional<Object> Actor::any_below(Kind kind, int fd, uint32_t parent, Random &random) {
    std::lock_guard hold(mutex_);
    return choose(pools_[kind], random,
                  [&](const Object &object) { return object.fd == fd && object.parent == parent; });
}

std::optional<Object> Actor::any_on(Kind kind, uint64_t guid, Random &random) {
    std::lock_guard hold(mutex_);
    return choose(pools_[kind], random, [&](const Object &object) { return object.guid == guid; });
}

std::optional<Object> Actor::idle_qp(uint64_t guid, Random &random) {
    std::lock_guard hold(mutex_);
    return choose(pools_[kQp], random,
                  [&](const Object &object) { return object.guid == guid && !object.busy; });
}

std::optional<Object> Actor::take(Kind kind, Random &random) {
    std::lock_guard hold(mutex_);
    std::vector<Object> &pool = pools_[kind];
    if (pool.empty())
        return std::nullopt;
    std::swap(pool[random.below(pool.size())], pool.back());
    Object object = pool.back();
    pool.pop_back();
    return object;
}

std::optional<Object> Actor::find(Kind kind, int fd, uint32_t handle) {
    std::lock_guard hold(mutex_);
    for (const Object &object : pools_[kind])
        if (object.fd == fd && object.handle == handle)
            return object;
    return std::nullopt;
}

bool Actor::full(Kind kind) {
    std::lock_guard hold(mutex_);
    return pools_[kind].size() >= kMost[kind];
}

void Actor::add(Kind kind, const Object &object) {
    std::lock_guard hold(mutex_);
    pools_[kind].push_back(object);
}

void Actor::remove(Kind kind, int fd, uint32_t handle) {
    std::lock_guard hold(mutex_);
    std::erase_if(pools_[kind],
                  [&](const Object &object) { return object.fd == fd && object.handle == handle; });
}

void Actor::forget(int fd) {
    std::lock_guard hold(mutex_);
    for (std::vector<Object> &pool : pools_)
        std::erase_if(pool, [&](const Object &object) { return object.fd == fd; });
}

uint8_t *Actor::place(Random &random) {
    return places_ + random.below(kPlaces) * kPlace;
}

Ring Actor::map_ring(int fd, uint64_t key, uint32_t bytes, uint32_t entries, uint32_t stride,
                     Random &random) {
    if (bytes == 0 || bytes > kPlace || entries == 0)
        return {};
    uint8_t *where = place(random);
    if (mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             static_cast<off_t>(key)) == MAP_FAILED) {
        /* the attempt has taken away what was there */
        mmap(where, kPlace, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        return {};
    }
    return {where, entries, stride};
}

/* A child has the files and mappings of its parent, and goes on with them. */
void Actor::fork_child(Random &random) {
    unsigned steps = static_cast<unsigned>(random.below(50));
    uint64_t seed = random.next();
    pid_t child;
    {
        std::lock_guard hold(mutex_);
        child = fork();
    }
    if (child != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Random own(seed, steps);
    static const int forking = operation("fork");
    for (unsigned i = 0; i < steps; i++) {
        unsigned op = pick_operation(own);
        if (op != static_cast<unsigned>(forking))
            operations()[op].run(*this, own);
        else
            own.next();
    }
    _exit(0);
}

/* Table ---------------------------------------------------------------------- */

const std::vector<Operation> &operations() {
    static const std::vector<Operation> all = [] {
        std::vector<Operation> joined;
        for (const auto &part : {verb_operations(), data_operations(), cm_operations()})
            joined.insert(joined.end(), part.begin(), part.end());
        e2e::require(joined.size() <= kOps, "more operations than the board has room for");
        return joined;
    }();
    return all;
}

int operation(std::string_view name) {
    const auto &all = operations();
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Operation &op) { return op.name == name; });
    return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

unsigned pick_operation(Random &random) {
    static const unsigned total = [] {
        unsigned sum = 0;
        for (const Operation &op : operations())
            sum += op.weight;
        return sum;
    }();
    auto at = static_cast<unsigned>(random.below(total));
    unsigned index = 0;
    for (const Operation &op : operations()) {
        if (at < op.weight)
            break;
        at -= op.weight;
        index++;
    }
    return index;
}

} // namespace softwarp::fuzz::local
