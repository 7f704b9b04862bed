// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The user side of the rings that softwarp_abi.h describes: index arithmetic
// and the producer of the send and receive rings and the consumer of the
// completion ring.  Works on any memory laid out as a ring; makes no system
// call, takes no lock: callers serialise the methods of one object, except
// CompletionRing::arm().
#ifndef SOFTWARP_VERBS_RING_HPP
#define SOFTWARP_VERBS_RING_HPP

#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "softwarp_abi.h"

namespace softwarp {

static_assert(sizeof(swp_ring_ctrl) == 256);
static_assert(sizeof(swp_sge) == 16);
static_assert(sizeof(swp_sqe) == 32);
static_assert(sizeof(swp_rqe) == 16);
static_assert(sizeof(swp_cqe) == 64);
static_assert(offsetof(swp_cqe, gen) == 30);
// Values that the kernel hands on untranslated.
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
    const std::uint64_t sges = std::uint64_t{max_sge} * sizeof(swp_sge);
    return sizeof(swp_sqe) + (sges > max_inline ? sges : max_inline);
}

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
        : ctrl_{static_cast<swp_ring_ctrl *>(ring)}, data_{static_cast<std::byte *>(ring) +
                                                           SWP_RING_DATA_OFF},
          entries_{entries}, mask_{entries - 1}, stride_{stride} {
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

class SendQueue {
  public:
    SendQueue() = default;

    SendQueue(WorkRing ring, std::uint32_t max_sge, std::uint32_t max_inline,
              bool signal_all) noexcept
        : ring_{ring}, max_sge_{max_sge}, max_inline_{max_inline}, signal_all_{signal_all} {}

    // Posts a list.  Stops at the first request in error and leaves it in
    // *bad; those before it are posted.  Errors: EINVAL (more SGEs or inline
    // data than the QP was made for, unknown opcode or flag, inline read),
    // EOPNOTSUPP (an opcode that the device has not), ENOMEM (queue full).
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

    void reload() noexcept { ring_.reload(); }

  private:
    static int opcode_of(ibv_wr_opcode opcode, std::uint8_t &swp) noexcept {
        switch (opcode) {
        case IBV_WR_RDMA_WRITE: swp = SWP_OP_WRITE; return 0;
        case IBV_WR_RDMA_READ: swp = SWP_OP_READ; return 0;
        case IBV_WR_SEND: swp = SWP_OP_SEND; return 0;
        case IBV_WR_SEND_WITH_INV: swp = SWP_OP_SEND_INV; return 0;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
        case IBV_WR_LOCAL_INV:
        case IBV_WR_BIND_MW:
        case IBV_WR_TSO:
        case IBV_WR_ATOMIC_WRITE: return EOPNOTSUPP;
        default: return EINVAL;
        }
    }

    int put(const ibv_send_wr &wr) noexcept {
        constexpr unsigned known_flags =
            IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
        swp_sqe sqe{};

        const int error = opcode_of(wr.opcode, sqe.opcode);
        if (error != 0)
            return error;
        // A negative count fails the first test as well.
        const auto num_sge = static_cast<std::uint32_t>(wr.num_sge);
        if (num_sge > max_sge_ || (wr.send_flags & ~known_flags) != 0)
            return EINVAL;

        sqe.wr_id = wr.wr_id;
        unsigned flags = 0;
        if (signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0)
            flags |= SWP_WQE_SIGNALED;
        if ((wr.send_flags & IBV_SEND_FENCE) != 0)
            flags |= SWP_WQE_FENCE;

        if (sqe.opcode == SWP_OP_WRITE || sqe.opcode == SWP_OP_READ) {
            sqe.remote_addr = wr.wr.rdma.remote_addr;
            sqe.rkey = wr.wr.rdma.rkey;
        } else {
            if ((wr.send_flags & IBV_SEND_SOLICITED) != 0)
                flags |= SWP_WQE_SOLICITED;
            if (sqe.opcode == SWP_OP_SEND_INV)
                sqe.inv_stag = wr.invalidate_rkey;
        }

        if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
            if (sqe.opcode == SWP_OP_READ)
                return EINVAL;
            std::uint64_t length = 0;
            for (std::uint32_t i = 0; i < num_sge; ++i)
                length += wr.sg_list[i].length;
            if (length > max_inline_)
                return EINVAL;
            if (ring_.full())
                return ENOMEM;
            flags |= SWP_WQE_INLINE;
            sqe.inline_len = static_cast<std::uint32_t>(length);
            put_inline(ring_.slot() + sizeof(sqe), wr.sg_list, num_sge);
        } else {
            if (ring_.full())
                return ENOMEM;
            sqe.num_sge = static_cast<std::uint16_t>(num_sge);
            put_sges(ring_.slot() + sizeof(sqe), wr.sg_list, num_sge);
        }
        sqe.flags = static_cast<std::uint8_t>(flags);
        std::memcpy(ring_.slot(), &sqe, sizeof(sqe));
        ring_.advance();
        return 0;
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

    WorkRing ring_;
    std::uint32_t max_sge_ = 0;
    std::uint32_t max_inline_ = 0;
    bool signal_all_ = false;
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
          cons_{std::atomic_ref<__u32>{ctrl_->cons}.load(std::memory_order_relaxed)} {}

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
        if (i != cons_) {
            cons_ = i;
            // Release: the kernel may overwrite what it sees as consumed.
            std::atomic_ref<__u32>{ctrl_->cons}.store(i, std::memory_order_release);
        }
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
        wc.status = static_cast<ibv_wc_status>(cqe.status);
        switch (cqe.opcode) {
        case SWP_OP_WRITE: wc.opcode = IBV_WC_RDMA_WRITE; break;
        case SWP_OP_READ: wc.opcode = IBV_WC_RDMA_READ; break;
        case SWP_OP_SEND:
        case SWP_OP_SEND_INV: wc.opcode = IBV_WC_SEND; break;
        case SWP_OP_RECV: wc.opcode = IBV_WC_RECV; break;
        default:
            // Never posted by this provider, so the ring was scribbled on: a
            // failure tells its own story, success cannot be.
            wc.opcode = IBV_WC_DRIVER1;
            if (wc.status == IBV_WC_SUCCESS)
                wc.status = IBV_WC_GENERAL_ERR;
            break;
        }
        wc.vendor_err = cqe.vendor_err;
        wc.byte_len = cqe.byte_len;
        wc.qp_num = cqe.qp_num;
        if ((cqe.flags & SWP_CQE_WITH_INV) != 0) {
            wc.wc_flags = IBV_WC_WITH_INV;
            wc.invalidated_rkey = cqe.imm_inv;
        }
    }

    swp_ring_ctrl *ctrl_ = nullptr;
    swp_cqe *cqes_ = nullptr;
    std::uint32_t mask_ = 0;
    unsigned shift_ = 0;
    std::uint32_t cons_ = 0;
};

} // namespace softwarp

#endif // SOFTWARP_VERBS_RING_HPP
