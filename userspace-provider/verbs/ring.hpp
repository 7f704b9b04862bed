// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The user side of the rings that softwarp_abi.h describes: index arithmetic
// and the producer of the send and receive rings and the consumer of the
// completion ring.  Works on any memory laid out as a ring; makes no system
// call, takes no lock: callers serialise the methods of one object, except that
// CompletionRing::arm() may run beside the others.
#ifndef SOFTWARP_VERBS_RING_HPP
#define SOFTWARP_VERBS_RING_HPP

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "softwarp_abi.h"

namespace softwarp {

static_assert(sizeof(swp_ring_ctrl) == SWP_RING_DATA_OFF);
static_assert(sizeof(swp_sge) == 16);
static_assert(sizeof(swp_sqe) == 32);
static_assert(sizeof(swp_rqe) == 16);
static_assert(sizeof(swp_cqe) == 64);
static_assert(offsetof(swp_cqe, gen) == 30);
static_assert(offsetof(swp_cqe, timestamp) == 32);
static_assert(sizeof(swp_operands) == 16);
static_assert(sizeof(swp_bind) == 24);
// Values that the kernel hands on untranslated.
static_assert(IBV_ACCESS_REMOTE_WRITE == 2 && IBV_ACCESS_ZERO_BASED == 32);
static_assert(IBV_WC_SUCCESS == 0 && IBV_WC_WR_FLUSH_ERR == 5 && IBV_WC_GENERAL_ERR == 21);

inline constexpr std::uint32_t max_ring_entries = 1U << 30;

// Not an enum ibv_wc_status: marks a CQE whose QP is gone, see
// CompletionRing::purge().  The status is the kernel's word alone, while the
// opcode may echo whatever was in the send ring.
inline constexpr std::uint8_t cqe_status_skip = 255;

// How many entries lie between two free running counters.
constexpr std::uint32_t ring_used(std::uint32_t prod, std::uint32_t cons) noexcept {
    return prod - cons;
}

constexpr bool ring_is_full(std::uint32_t prod, std::uint32_t cons,
                            std::uint32_t entries) noexcept {
    return ring_used(prod, cons) >= entries;
}

// Generation number of the valid CQE @index of a ring of 2^@shift entries.
constexpr std::uint16_t cqe_generation(std::uint32_t index, unsigned shift) noexcept {
    return static_cast<std::uint16_t>((index >> shift) + 1);
}

// Is this a ring that we can work on?  Guards against a kernel module that
// disagrees about the layout; @element is the least size of an entry.
constexpr bool ring_is_sane(std::uint32_t bytes, std::uint32_t entries, std::uint32_t stride,
                            std::uint64_t element) noexcept {
    return std::has_single_bit(entries) && entries <= max_ring_entries && stride >= element &&
           stride % 16 == 0 && bytes >= SWP_RING_DATA_OFF + std::uint64_t{entries} * stride;
}

constexpr std::uint64_t sqe_bytes(std::uint32_t max_sge, std::uint32_t max_inline) noexcept {
    // What requests without a list of their own put there.
    constexpr std::uint64_t operands = sizeof(swp_sge) + sizeof(swp_operands);
    const std::uint64_t sges = std::uint64_t{max_sge} * sizeof(swp_sge);
    return sizeof(swp_sqe) + std::max({sges, std::uint64_t{max_inline}, operands});
}
static_assert(sizeof(swp_bind) <= sizeof(swp_sge) + sizeof(swp_operands));

constexpr std::uint64_t rqe_bytes(std::uint32_t max_sge) noexcept {
    return sizeof(swp_rqe) + std::uint64_t{max_sge} * sizeof(swp_sge);
}

// What a post function has to tell its caller.
struct PostResult {
    int error;     // 0 or a positive errno about *bad_wr
    bool doorbell; // the kernel asks to be called
};

// Producer of a send or receive ring.  A default constructed one has no
// entries and is always full.
class WorkRing {
  public:
    WorkRing() = default;

    WorkRing(void *ring, std::uint32_t entries, std::uint32_t stride) noexcept
        : ctrl_{static_cast<swp_ring_ctrl *>(ring)},
          data_(static_cast<std::byte *>(ring) + SWP_RING_DATA_OFF), entries_{entries},
          mask_{entries - 1}, stride_{stride} {
        reload();
    }

    // Takes the counters from the ring, as after a move to RESET.
    void reload() noexcept {
        if (entries_ == 0)
            return;
        cons_seen_ = word(ctrl_->cons).load(std::memory_order_acquire);
        prod_ = published_ = word(ctrl_->prod).load(std::memory_order_relaxed);
    }

    // The kernel's counter is only looked at when the last look is used up,
    // which keeps its cache line with the transmitter.  The acquire pairs with
    // the kernel's release of cons: it has read the slot before we reuse it.
    [[nodiscard]] bool full() noexcept {
        if (!ring_is_full(prod_, cons_seen_, entries_))
            return false;
        if (entries_ == 0)
            return true;
        cons_seen_ = word(ctrl_->cons).load(std::memory_order_acquire);
        return ring_is_full(prod_, cons_seen_, entries_);
    }

    // Where the next entry is written; only when not full.
    [[nodiscard]] std::byte *slot() noexcept {
        return data_ + static_cast<std::size_t>(prod_ & mask_) * stride_;
    }

    void advance() noexcept { ++prod_; }

    // Takes back what was written since @mark and not yet published.
    [[nodiscard]] std::uint32_t mark() const noexcept { return prod_; }
    void rewind(std::uint32_t mark) noexcept { prod_ = mark; }

    // Shows the entries written since the last call to the kernel and says
    // whether it wants the doorbell.  The full barrier orders our store of
    // prod before our load of kick; the kernel stores kick, executes a full
    // barrier and loads prod before it sleeps, so one of us sees the other.
    [[nodiscard]] bool publish() noexcept {
        if (prod_ == published_)
            return false;
        published_ = prod_;
        word(ctrl_->prod).store(prod_, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return word(ctrl_->kick).load(std::memory_order_relaxed) != 0;
    }

  private:
    static std::atomic_ref<__u32> word(__u32 &w) noexcept { return std::atomic_ref<__u32>{w}; }

    swp_ring_ctrl *ctrl_ = nullptr;
    std::byte *data_ = nullptr;
    std::uint32_t entries_ = 0;
    std::uint32_t mask_ = 0;
    std::uint32_t stride_ = 0;
    std::uint32_t prod_ = 0;      // next entry to write
    std::uint32_t published_ = 0; // what the kernel was told
    std::uint32_t cons_seen_ = 0; // what the kernel told us
};

// Copies a scatter/gather list behind the header of an entry.
inline void put_sges(std::byte *to, const ibv_sge *sg, std::uint32_t count) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
        const swp_sge sge{.addr = sg[i].addr, .lkey = sg[i].lkey, .length = sg[i].length};
        std::memcpy(to + i * sizeof(sge), &sge, sizeof(sge));
    }
}

// Posts lists of requests for ibv_post_send(), or, between start() and
// complete() or abort(), requests one by one for the ibv_wr_*() functions.
class SendQueue {
  public:
    SendQueue() = default;

    SendQueue(WorkRing ring, std::uint32_t max_sge, std::uint32_t max_inline,
              bool signal_all) noexcept
        : ring_{ring}, max_sge_{max_sge}, max_inline_{max_inline}, signal_all_{signal_all} {}

    // Posts a list.  Stops at the first request in error and leaves it in
    // *bad; those before it are posted.  Errors: EINVAL (more SGEs or inline
    // data than the QP was made for, unknown opcode or flag, inline read, a
    // window that is not to be bound so), EOPNOTSUPP (what the device has not,
    // such as data with a Send with Immediate), ENOMEM (queue full).
    [[nodiscard]] PostResult post(ibv_send_wr *wr, ibv_send_wr **bad) noexcept {
        int error = 0;
        for (; wr != nullptr; wr = wr->next) {
            error = put(*wr);
            if (error != 0) {
                *bad = wr;
                break;
            }
        }
        return {error, ring_.publish()};
    }

    // Posts the bind of a type 1 window, which is to have @rkey.
    [[nodiscard]] PostResult bind(const ibv_mw &mw, std::uint32_t rkey,
                                  const ibv_mw_bind &bind) noexcept {
        swp_sqe sqe{};
        sqe.wr_id = bind.wr_id;
        sqe.opcode = SWP_OP_BIND_MW;
        if ((bind.send_flags & ~known_flags) != 0)
            return {EINVAL, false};
        sqe.flags = flags_of(bind.send_flags, sqe.opcode);
        const int error = put_bind(sqe, mw, rkey, bind.bind_info);
        return {error, ring_.publish()};
    }

    // From start() on the first error is kept, and nothing is posted after it.
    // @error: one that is known already, or 0
    void start(int error) noexcept {
        mark_ = ring_.mark();
        entry_ = nullptr;
        error_ = error;
    }

    // Begins a request; @sqe has its opcode and what belongs to that.
    void add(std::uint64_t wr_id, unsigned send_flags, const swp_sqe &sqe) noexcept {
        close();
        if ((send_flags & ~known_flags) != 0)
            fail(EINVAL);
        else if (ring_.full())
            fail(ENOMEM);
        if (error_ != 0)
            return;
        sqe_ = sqe;
        sqe_.wr_id = wr_id;
        // Inline is what its setter makes of a request.
        sqe_.flags = flags_of(send_flags, sqe.opcode);
        entry_ = ring_.slot();
        ring_.advance();
    }

    void add_atomic(std::uint64_t wr_id, unsigned send_flags, const swp_sqe &sqe,
                    const swp_operands &operands) noexcept {
        add(wr_id, send_flags, sqe);
        if (error_ == 0)
            std::memcpy(entry_ + sizeof(sqe) + sizeof(swp_sge), &operands, sizeof(operands));
    }

    void add_bind(std::uint64_t wr_id, unsigned send_flags, const ibv_mw *mw, std::uint32_t rkey,
                  const ibv_mw_bind_info &info) noexcept {
        swp_bind bind{};
        swp_sqe sqe{};
        sqe.opcode = SWP_OP_BIND_MW;
        sqe.rkey = rkey;
        add(wr_id, send_flags, sqe);
        fail(is_type_2_bind(mw, info) ? bind_of(*mw, rkey, info, bind) : EINVAL);
        if (error_ == 0)
            std::memcpy(entry_ + sizeof(sqe), &bind, sizeof(bind));
    }

    // The SGEs of the request begun last.
    void set_sges(const ibv_sge *sg, std::size_t count) noexcept {
        if (error_ != 0)
            return;
        if (entry_ == nullptr || count > max_sge_ || !has_data(sqe_.opcode)) {
            error_ = EINVAL;
            return;
        }
        const auto num_sge = static_cast<std::uint32_t>(count);
        if (sqe_.opcode == SWP_OP_SEND_IMM) {
            fail(any_data(sg, num_sge) ? EOPNOTSUPP : 0);
            return;
        }
        sqe_.flags = static_cast<std::uint8_t>(sqe_.flags & ~SWP_WQE_INLINE);
        sqe_.inline_len = 0;
        sqe_.num_sge = static_cast<std::uint16_t>(num_sge);
        if (is_atomic(sqe_.opcode) && num_sge != 1)
            return; // close() will find it
        put_sges(entry_ + sizeof(swp_sqe), sg, num_sge);
    }

    // The data of the request begun last.
    void set_inline(const ibv_data_buf *buffers, std::size_t count) noexcept {
        if (error_ != 0)
            return;
        if (entry_ == nullptr || !has_data(sqe_.opcode) || !takes_inline(sqe_.opcode)) {
            error_ = EINVAL;
            return;
        }
        std::uint64_t length = 0;
        for (std::size_t i = 0; i < count && length <= max_inline_; ++i) {
            if (buffers[i].length > max_inline_) {
                error_ = EINVAL;
                return;
            }
            length += buffers[i].length;
        }
        if (length > max_inline_) {
            error_ = EINVAL;
            return;
        }
        if (sqe_.opcode == SWP_OP_SEND_IMM) {
            fail(length != 0 ? EOPNOTSUPP : 0);
            return;
        }
        std::byte *to = entry_ + sizeof(swp_sqe);
        for (std::size_t i = 0; i < count; ++i) {
            if (buffers[i].length == 0)
                continue; // its address may be null
            std::memcpy(to, buffers[i].addr, buffers[i].length);
            to += buffers[i].length;
        }
        sqe_.flags |= SWP_WQE_INLINE;
        sqe_.num_sge = 0;
        sqe_.inline_len = static_cast<std::uint32_t>(length);
    }

    [[nodiscard]] PostResult complete() noexcept {
        close();
        if (error_ != 0) {
            abort();
            return {error_, false};
        }
        return {0, ring_.publish()};
    }

    void abort() noexcept {
        ring_.rewind(mark_);
        entry_ = nullptr;
    }

    void reload() noexcept { ring_.reload(); }

  private:
    static constexpr unsigned known_flags =
        IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

    static int opcode_of(ibv_wr_opcode opcode, std::uint8_t &swp) noexcept {
        switch (opcode) {
        case IBV_WR_RDMA_WRITE: swp = SWP_OP_WRITE; return 0;
        case IBV_WR_RDMA_WRITE_WITH_IMM: swp = SWP_OP_WRITE_IMM; return 0;
        case IBV_WR_RDMA_READ: swp = SWP_OP_READ; return 0;
        case IBV_WR_SEND: swp = SWP_OP_SEND; return 0;
        case IBV_WR_SEND_WITH_INV: swp = SWP_OP_SEND_INV; return 0;
        case IBV_WR_SEND_WITH_IMM: swp = SWP_OP_SEND_IMM; return 0;
        case IBV_WR_ATOMIC_CMP_AND_SWP: swp = SWP_OP_CMP_SWAP; return 0;
        case IBV_WR_ATOMIC_FETCH_AND_ADD: swp = SWP_OP_FETCH_ADD; return 0;
        case IBV_WR_LOCAL_INV: swp = SWP_OP_LOCAL_INV; return 0;
        case IBV_WR_BIND_MW: swp = SWP_OP_BIND_MW; return 0;
        case IBV_WR_TSO:
        case IBV_WR_ATOMIC_WRITE: return EOPNOTSUPP;
        default: return EINVAL;
        }
    }

    static bool is_atomic(std::uint8_t opcode) noexcept {
        return opcode == SWP_OP_FETCH_ADD || opcode == SWP_OP_CMP_SWAP;
    }

    static bool takes_inline(std::uint8_t opcode) noexcept {
        return opcode != SWP_OP_READ && !is_atomic(opcode);
    }

    static bool has_data(std::uint8_t opcode) noexcept {
        return opcode != SWP_OP_LOCAL_INV && opcode != SWP_OP_BIND_MW;
    }

    static bool any_data(const ibv_sge *sg, std::uint32_t count) noexcept {
        return std::any_of(sg, sg + count, [](const ibv_sge &sge) { return sge.length != 0; });
    }

    [[nodiscard]] std::uint8_t flags_of(unsigned send_flags, std::uint8_t opcode) const noexcept {
        unsigned flags = 0;
        if (signal_all_ || (send_flags & IBV_SEND_SIGNALED) != 0)
            flags |= SWP_WQE_SIGNALED;
        if ((send_flags & IBV_SEND_FENCE) != 0)
            flags |= SWP_WQE_FENCE;
        // It is for what the peer gets a completion of.
        if ((send_flags & IBV_SEND_SOLICITED) != 0 &&
            (opcode == SWP_OP_SEND || opcode == SWP_OP_SEND_INV || opcode == SWP_OP_SEND_IMM ||
             opcode == SWP_OP_WRITE_IMM))
            flags |= SWP_WQE_SOLICITED;
        return static_cast<std::uint8_t>(flags);
    }

    int put(const ibv_send_wr &wr) noexcept {
        swp_sqe sqe{};

        const int error = opcode_of(wr.opcode, sqe.opcode);
        if (error != 0)
            return error;
        if ((wr.send_flags & ~known_flags) != 0)
            return EINVAL;
        sqe.wr_id = wr.wr_id;
        sqe.flags = flags_of(wr.send_flags, sqe.opcode);
        // A negative count is a large one.
        const auto num_sge = static_cast<std::uint32_t>(wr.num_sge);
        switch (sqe.opcode) {
        case SWP_OP_SEND: break;
        case SWP_OP_WRITE:
        case SWP_OP_READ:
            sqe.remote_addr = wr.wr.rdma.remote_addr;
            sqe.rkey = wr.wr.rdma.rkey;
            break;
        case SWP_OP_WRITE_IMM:
            sqe.remote_addr = wr.wr.rdma.remote_addr;
            sqe.rkey = wr.wr.rdma.rkey;
            sqe.imm_inv = wr.imm_data;
            break;
        case SWP_OP_SEND_INV: sqe.imm_inv = wr.invalidate_rkey; break;
        case SWP_OP_SEND_IMM:
            sqe.imm_inv = wr.imm_data;
            if (num_sge > max_sge_)
                return EINVAL;
            return any_data(wr.sg_list, num_sge) ? EOPNOTSUPP : put_bare(sqe);
        case SWP_OP_LOCAL_INV: sqe.imm_inv = wr.invalidate_rkey; return put_bare(sqe);
        case SWP_OP_BIND_MW:
            if (!is_type_2_bind(wr.bind_mw.mw, wr.bind_mw.bind_info))
                return EINVAL;
            return put_bind(sqe, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
        default: return put_atomic(sqe, wr);
        }
        if (num_sge > max_sge_)
            return EINVAL;

        if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
            if (!takes_inline(sqe.opcode))
                return EINVAL;
            std::uint64_t length = 0;
            for (std::uint32_t i = 0; i < num_sge; ++i)
                length += wr.sg_list[i].length;
            if (length > max_inline_)
                return EINVAL;
            if (ring_.full())
                return ENOMEM;
            sqe.flags |= SWP_WQE_INLINE;
            sqe.inline_len = static_cast<std::uint32_t>(length);
            put_inline(ring_.slot() + sizeof(sqe), wr.sg_list, num_sge);
        } else {
            if (ring_.full())
                return ENOMEM;
            sqe.num_sge = static_cast<std::uint16_t>(num_sge);
            put_sges(ring_.slot() + sizeof(sqe), wr.sg_list, num_sge);
        }
        std::memcpy(ring_.slot(), &sqe, sizeof(sqe));
        ring_.advance();
        return 0;
    }

    // Ends a request that has no list.
    int put_bare(const swp_sqe &sqe) noexcept {
        if (ring_.full())
            return ENOMEM;
        std::memcpy(ring_.slot(), &sqe, sizeof(sqe));
        ring_.advance();
        return 0;
    }

    int put_atomic(swp_sqe sqe, const ibv_send_wr &wr) noexcept {
        const bool swap = sqe.opcode == SWP_OP_CMP_SWAP;
        if (wr.num_sge != 1 || max_sge_ == 0 || (wr.send_flags & IBV_SEND_INLINE) != 0)
            return EINVAL;
        if (ring_.full())
            return ENOMEM;
        sqe.remote_addr = wr.wr.atomic.remote_addr;
        sqe.rkey = wr.wr.atomic.rkey;
        sqe.num_sge = 1;
        const swp_operands operands{.data = swap ? wr.wr.atomic.swap : wr.wr.atomic.compare_add,
                                    .compare = swap ? wr.wr.atomic.compare_add : 0};
        std::byte *to = ring_.slot() + sizeof(sqe);
        put_sges(to, wr.sg_list, 1);
        std::memcpy(to + sizeof(swp_sge), &operands, sizeof(operands));
        return put_bare(sqe);
    }

    // Only the kernel knows what the region allows; what can be told from the
    // request alone is refused here, as there it would cost the connection.
    static int bind_of(const ibv_mw &mw, std::uint32_t rkey, const ibv_mw_bind_info &info,
                       swp_bind &bind) noexcept {
        constexpr unsigned known_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
        if (((rkey ^ mw.rkey) & ~0xffU) != 0 || (info.mr == nullptr && info.length != 0) ||
            (info.mw_access_flags & ~known_access) != 0)
            return EINVAL;
        bind = {.addr = info.addr,
                .length = info.length,
                .lkey = info.mr != nullptr ? info.mr->lkey : 0,
                .access = info.mw_access_flags};
        return 0;
    }

    // A window of type 1 is ibv_bind_mw()'s, one of type 2 is not unbound thus.
    static bool is_type_2_bind(const ibv_mw *mw, const ibv_mw_bind_info &info) noexcept {
        return mw != nullptr && mw->type == IBV_MW_TYPE_2 && info.length != 0;
    }

    int put_bind(swp_sqe sqe, const ibv_mw &mw, std::uint32_t rkey,
                 const ibv_mw_bind_info &info) noexcept {
        swp_bind bind{};
        const int error = bind_of(mw, rkey, info, bind);
        if (error != 0)
            return error;
        if (ring_.full())
            return ENOMEM;
        sqe.rkey = rkey;
        std::memcpy(ring_.slot() + sizeof(sqe), &bind, sizeof(bind));
        return put_bare(sqe);
    }

    static void put_inline(std::byte *to, const ibv_sge *sg, std::uint32_t count) noexcept {
        for (std::uint32_t i = 0; i < count; ++i) {
            if (sg[i].length == 0)
                continue; // its address may be null
            // NOLINTNEXTLINE(performance-no-int-to-ptr): the API carries addresses as integers
            std::memcpy(to, reinterpret_cast<const void *>(sg[i].addr), sg[i].length);
            to += sg[i].length;
        }
    }

    void fail(int error) noexcept {
        if (error_ == 0)
            error_ = error;
    }

    // Writes the head of the request begun last: no setter is to follow.
    void close() noexcept {
        if (error_ != 0 || entry_ == nullptr)
            return;
        if (is_atomic(sqe_.opcode) && sqe_.num_sge != 1)
            error_ = EINVAL;
        std::memcpy(entry_, &sqe_, sizeof(sqe_));
        entry_ = nullptr;
    }

    WorkRing ring_;
    std::uint32_t max_sge_ = 0;
    std::uint32_t max_inline_ = 0;
    bool signal_all_ = false;
    // between start() and complete()
    int error_ = 0;
    std::uint32_t mark_ = 0;
    std::byte *entry_ = nullptr; // of the request begun last
    swp_sqe sqe_{};              // and its head
};

class RecvQueue {
  public:
    RecvQueue() = default;

    RecvQueue(WorkRing ring, std::uint32_t max_sge) noexcept : ring_{ring}, max_sge_{max_sge} {}

    // As SendQueue::post(); errors: EINVAL (too many SGEs), ENOMEM (full).
    [[nodiscard]] PostResult post(ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept {
        int error = 0;
        for (; wr != nullptr; wr = wr->next) {
            error = put(*wr);
            if (error != 0) {
                *bad = wr;
                break;
            }
        }
        return {error, ring_.publish()};
    }

    void reload() noexcept { ring_.reload(); }

  private:
    int put(const ibv_recv_wr &wr) noexcept {
        const auto num_sge = static_cast<std::uint32_t>(wr.num_sge);
        if (num_sge > max_sge_)
            return EINVAL;
        if (ring_.full())
            return ENOMEM;
        const swp_rqe rqe{.wr_id = wr.wr_id, .num_sge = num_sge, .reserved = 0};
        std::memcpy(ring_.slot(), &rqe, sizeof(rqe));
        put_sges(ring_.slot() + sizeof(rqe), wr.sg_list, num_sge);
        ring_.advance();
        return 0;
    }

    WorkRing ring_;
    std::uint32_t max_sge_ = 0;
};

// What the fields of a CQE mean to the API.
inline ibv_wc_opcode wc_opcode(const swp_cqe &cqe) noexcept {
    switch (cqe.opcode) {
    case SWP_OP_WRITE:
    case SWP_OP_WRITE_IMM: return IBV_WC_RDMA_WRITE;
    case SWP_OP_READ: return IBV_WC_RDMA_READ;
    case SWP_OP_SEND:
    case SWP_OP_SEND_INV:
    case SWP_OP_SEND_IMM: return IBV_WC_SEND;
    case SWP_OP_LOCAL_INV: return IBV_WC_LOCAL_INV;
    case SWP_OP_BIND_MW: return IBV_WC_BIND_MW;
    case SWP_OP_FETCH_ADD: return IBV_WC_FETCH_ADD;
    case SWP_OP_CMP_SWAP: return IBV_WC_COMP_SWAP;
    case SWP_OP_RECV: return IBV_WC_RECV;
    case SWP_OP_RECV_IMM: return IBV_WC_RECV_RDMA_WITH_IMM;
    default: return IBV_WC_DRIVER1; // see wc_status()
    }
}

inline ibv_wc_status wc_status(const swp_cqe &cqe) noexcept {
    // An opcode that this provider never posts means that the ring was scribbled
    // on: a failure tells its own story, success cannot be.
    if (cqe.status == IBV_WC_SUCCESS && wc_opcode(cqe) == IBV_WC_DRIVER1)
        return IBV_WC_GENERAL_ERR;
    return static_cast<ibv_wc_status>(cqe.status);
}

inline unsigned wc_flags(const swp_cqe &cqe) noexcept {
    return ((cqe.flags & SWP_CQE_WITH_INV) != 0 ? unsigned{IBV_WC_WITH_INV} : 0U) |
           ((cqe.flags & SWP_CQE_WITH_IMM) != 0 ? unsigned{IBV_WC_WITH_IMM} : 0U);
}

// Consumer of a completion ring.
class CompletionRing {
  public:
    CompletionRing() = default;

    CompletionRing(void *ring, std::uint32_t entries) noexcept
        : ctrl_{static_cast<swp_ring_ctrl *>(ring)},
          // NOLINTNEXTLINE(bugprone-casting-through-void): page aligned by contract
          cqes_{static_cast<swp_cqe *>(
              static_cast<void *>(static_cast<std::byte *>(ring) + SWP_RING_DATA_OFF))},
          mask_{entries - 1}, shift_{static_cast<unsigned>(std::countr_zero(entries))},
          cons_{std::atomic_ref<__u32>{ctrl_->cons}.load(std::memory_order_relaxed)},
          released_(cons_) {}

    // The next completion, or null.  It stays in its place until release().
    [[nodiscard]] const swp_cqe *take() noexcept {
        // Who takes without end must not fill the ring up meanwhile.
        if (ring_used(cons_, released_) > mask_ / 2)
            release();
        while (valid(cons_)) {
            const swp_cqe &cqe = cqes_[cons_ & mask_];
            ++cons_;
            if (cqe.status != cqe_status_skip)
                return &cqe;
        }
        return nullptr;
    }

    // Gives the places of what was taken back to the kernel.
    void release() noexcept {
        if (released_ == cons_)
            return;
        released_ = cons_;
        // Release: the kernel may overwrite what it sees as consumed.
        std::atomic_ref<__u32>{ctrl_->cons}.store(cons_, std::memory_order_release);
    }

    // Moves up to @max completions into @wc; returns how many.
    [[nodiscard]] int poll(int max, ibv_wc *wc) noexcept {
        std::uint32_t i = cons_;
        int n = 0;
        while (n < max && valid(i)) {
            const swp_cqe &cqe = cqes_[i & mask_];
            ++i;
            if (cqe.status != cqe_status_skip)
                convert(cqe, wc[n++]);
        }
        cons_ = i;
        release();
        return n;
    }

    // Hides the completions of a QP that no longer exists from poll().
    void purge(std::uint32_t qp_num) noexcept {
        for (std::uint32_t i = cons_; ring_used(i, cons_) <= mask_ && valid(i); ++i) {
            swp_cqe &cqe = cqes_[i & mask_];
            if (cqe.qp_num == qp_num)
                cqe.status = cqe_status_skip;
        }
    }

    // Asks for an event.  A request for any completion is the stronger one and
    // is not weakened by a later one for solicited completions.  The barrier
    // orders the request before the caller's next look at the ring; the kernel
    // stores a CQE, executes a full barrier and loads arm.  Thread safe.
    void arm(bool solicited_only) noexcept {
        const std::atomic_ref<__u32> arm{ctrl_->arm};
        if (solicited_only) {
            __u32 none = SWP_ARM_NONE;
            arm.compare_exchange_strong(none, SWP_ARM_SOLICITED, std::memory_order_seq_cst);
        } else {
            arm.store(SWP_ARM_NEXT, std::memory_order_seq_cst);
        }
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }

  private:
    // Acquire: pairs with the kernel's release of gen, its last store.
    [[nodiscard]] bool valid(std::uint32_t i) noexcept {
        return std::atomic_ref<__u16>{cqes_[i & mask_].gen}.load(std::memory_order_acquire) ==
               cqe_generation(i, shift_);
    }

    static void convert(const swp_cqe &cqe, ibv_wc &wc) noexcept {
        wc = ibv_wc{};
        wc.wr_id = cqe.wr_id;
        wc.status = wc_status(cqe);
        wc.opcode = wc_opcode(cqe);
        wc.vendor_err = cqe.vendor_err;
        wc.byte_len = cqe.byte_len;
        wc.qp_num = cqe.qp_num;
        wc.wc_flags = wc_flags(cqe);
        // The same word of the union holds both.
        if (wc.wc_flags != 0)
            wc.invalidated_rkey = cqe.imm_inv;
    }

    swp_ring_ctrl *ctrl_ = nullptr;
    swp_cqe *cqes_ = nullptr;
    std::uint32_t mask_ = 0;
    unsigned shift_ = 0;
    std::uint32_t cons_ = 0;
    std::uint32_t released_ = 0; // what the kernel was told
};

} // namespace softwarp

#endif // SOFTWARP_VERBS_RING_HPP
