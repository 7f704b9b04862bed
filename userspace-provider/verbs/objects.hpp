// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The provider's objects.  Each begins with the library's structure, so that
// the pointers the application holds convert to ours.
#ifndef SOFTWARP_VERBS_OBJECTS_HPP
#define SOFTWARP_VERBS_OBJECTS_HPP

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "abi.hpp"
#include "common/mapping.hpp"
#include "common/spinlock.hpp"
#include "doorbell.hpp"
#include "ring.hpp"
#include "spin.hpp"

namespace softwarp {

struct Qp;

struct Device {
    abi::VerbsDevice base;
    std::uint32_t abi_version; // ib_device_ops.uverbs_abi_ver
};

// Which QP owns a number, as far as completions are concerned.  The kernel may
// give the number of a destroyed QP to a new one before destroy_qp() of the
// old one has returned; then the old one's completions are removed on behalf
// of the new one, and destroy_qp() must not touch those that followed.
class QpTable {
  public:
    // Enters @qp, whose number the kernel has just assigned; no completion of
    // its own can exist yet.  Returns 0 or ENOMEM.
    [[nodiscard]] int add(Qp &qp) noexcept;
    // Takes @qp out, which the kernel has destroyed, with its completions.
    void remove(Qp &qp) noexcept;

  private:
    std::mutex mutex_; // protects the map; taken outside of the CQ locks
    std::unordered_map<std::uint32_t, Qp *> by_number_;
};

// The library allocates this one as raw zeroed memory: nothing in it may need
// a constructor.
struct Context {
    abi::VerbsContext base;
    QpTable *qps;
    Spin *spin;
};

struct Td {
    ibv_td base{};
    std::atomic<unsigned> users{0}; // parent domains
};

// A protection domain, or a parent domain: another handle of one, which for the
// kernel is the same.
struct Pd {
    ibv_pd base{};
    Pd *of = nullptr;               // a parent domain's protection domain
    Td *td = nullptr;               // and its thread domain, if it has one
    std::atomic<unsigned> users{0}; // parent domains
};

// Where the kernel's ring is to be mapped from, and what it holds.
struct RingPlace {
    std::uint64_t key = 0;
    std::uint32_t bytes = 0;
    std::uint32_t entries = 0;
};

struct Cq;
struct Srq;

// Maps the ring of @next, in which the kernel works since a resize, and makes it
// the object's.  Returns 0 or a positive errno, upon which another attempt may be
// made.  The object's resize_mutex is held.
[[nodiscard]] int move_to_next(Cq &cq) noexcept;
[[nodiscard]] int move_to_next(Srq &srq) noexcept;

// A CQ or an SRQ changes its ring when it is resized.  Meanwhile nobody may work
// on it, and who would sleep on a CQ must not be told that it is empty: they wait.
// Takes @lock, which is one of the object's, at a time when the ring stays.
// Returns 0, or without the lock why the ring that the kernel has moved to is not
// to be mapped.
template<class T>
[[nodiscard]] int acquire(T &object, Spinlock &lock) noexcept {
    for (;;) {
        lock.lock();
        if (!object.moving) [[likely]]
            return 0;
        lock.unlock();
        const std::lock_guard wait{object.resize_mutex};
        // The resize is over, and there was no memory for the new ring?
        if (!object.moving)
            continue;
        const int error = move_to_next(object);
        if (error != 0)
            return error;
    }
}

struct Cq {
    abi::VerbsCq base{};
    Mapping memory;
    // The program, until it destroys the CQ, and each QP once per queue.  Only of
    // a device that is gone does a CQ go before its QPs.
    std::atomic<std::uint32_t> users{1};
    std::mutex resize_mutex; // held while the ring is replaced; taken before the locks
    RingPlace next;          // under resize_mutex, while moving
    // Arming has a lock of its own, because start_poll() holds the other one
    // until end_poll(), and a program may well arm in between.
    Spinlock arm_lock;
    alignas(64) Spinlock lock; // protects the consumer side of ring
    bool moving = false;       // the ring is being replaced; written with both locks held
    CompletionRing ring;
    const swp_cqe *current = nullptr; // between start_poll() and end_poll(), with lock held
};

struct Srq {
    ibv_srq base{};
    Mapping memory;
    std::uint32_t stride = 0;
    std::uint32_t max_sge = 0;
    std::mutex resize_mutex;   // held while the ring is replaced; taken before the lock
    RingPlace next;            // under resize_mutex, while moving
    alignas(64) Spinlock lock; // protects all below
    bool moving = false;       // the ring is being replaced
    RecvQueue queue;
};

struct Qp {
    abi::VerbsQp base{};
    Mapping memory; // of both rings
    Doorbell doorbell;
    alignas(64) Spinlock sq_lock; // protects sq
    SendQueue sq;
    alignas(64) Spinlock rq_lock; // protects rq
    RecvQueue rq;
};

static_assert(std::is_trivial_v<Context>);
static_assert(std::is_standard_layout_v<Device> && offsetof(Device, base) == 0);
static_assert(std::is_standard_layout_v<Context> && offsetof(Context, base) == 0);
static_assert(std::is_standard_layout_v<Td> && offsetof(Td, base) == 0);
static_assert(std::is_standard_layout_v<Pd> && offsetof(Pd, base) == 0);
static_assert(std::is_standard_layout_v<Cq> && offsetof(Cq, base) == 0);
static_assert(std::is_standard_layout_v<Srq> && offsetof(Srq, base) == 0);
static_assert(std::is_standard_layout_v<Qp> && offsetof(Qp, base) == 0);

inline Device *to_device(ibv_device *device) {
    return reinterpret_cast<Device *>(device);
}

inline Context *to_context(ibv_context *context) {
    auto *end = reinterpret_cast<std::byte *>(context);
    return reinterpret_cast<Context *>(end - offsetof(abi::VerbsContext, context));
}

inline Td *to_td(ibv_td *td) {
    return reinterpret_cast<Td *>(td);
}

inline Pd *to_pd(ibv_pd *pd) {
    return reinterpret_cast<Pd *>(pd);
}

inline Cq *to_cq(ibv_cq *cq) {
    return reinterpret_cast<Cq *>(cq);
}

inline Cq *to_cq(ibv_cq_ex *cq) {
    return reinterpret_cast<Cq *>(cq);
}

// Destroys a kernel's object.  The kernel does that before it answers: should it
// not get the answer through, the next attempt finds no such object any more.
template<class T>
[[nodiscard]] int destroy(int (*command)(T *), T *object) noexcept {
    int error = command(object);
    if (error == EFAULT)
        error = command(object);
    return error == ENOENT ? 0 : error;
}

// Frees the CQ with its last user.
inline void put_cq(ibv_cq *ibcq) {
    Cq *cq = to_cq(ibcq);
    if (cq != nullptr && cq->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
        delete cq;
}

inline Srq *to_srq(ibv_srq *srq) {
    return reinterpret_cast<Srq *>(srq);
}

inline Qp *to_qp(ibv_qp *qp) {
    return reinterpret_cast<Qp *>(qp);
}

inline Qp *to_qp(ibv_qp_ex *qp) {
    return reinterpret_cast<Qp *>(qp);
}

} // namespace softwarp

#endif // SOFTWARP_VERBS_OBJECTS_HPP
