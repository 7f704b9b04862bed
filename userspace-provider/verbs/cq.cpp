// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Completion queues.  Polling and arming work on the mapped ring alone.
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "command.hpp"
#include "complain.hpp"
#include "objects.hpp"
#include "provider.hpp"

namespace softwarp {

namespace {

// Returns 0 or a positive errno.
int map_ring(Mapping &memory, int cmd_fd, std::uint64_t key, std::uint32_t bytes,
             std::uint32_t entries) noexcept {
    if (!ring_is_sane(bytes, entries, sizeof(swp_cqe), sizeof(swp_cqe))) {
        complain("softwarp: the kernel module describes an impossible completion queue "
                 "(%u entries in %u bytes); install module and provider of the same release\n",
                 entries, bytes);
        return EPROTO;
    }
    return memory.map(cmd_fd, key, bytes);
}

// Ends the creation of a CQ, whose command returned @error.
Cq *finish_create(std::unique_ptr<Cq> cq, int error, int cmd_fd,
                  const swp_create_cq_resp &kernel) noexcept {
    if (error == 0) {
        error = map_ring(cq->memory, cmd_fd, kernel.ring_key, kernel.ring_bytes, kernel.entries);
        if (error != 0)
            abi::ibv_cmd_destroy_cq(&cq->base.cq);
    }
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    cq->ring = CompletionRing{cq->memory.data(), kernel.entries};
    return cq.release();
}

void set_moving(Cq &cq, bool moving) noexcept {
    const std::lock_guard polling{cq.lock};
    const std::lock_guard arming{cq.arm_lock};
    cq.moving = moving;
}

// Extended polling ----------------------------------------------------------------
//
// Between start_poll() and end_poll() the lock is held, and the completion that
// the others read is cq.current.

int take(Cq &cq) noexcept {
    cq.current = cq.ring.take();
    if (cq.current == nullptr)
        return ENOENT;
    cq.base.cq_ex.wr_id = cq.current->wr_id;
    cq.base.cq_ex.status = wc_status(*cq.current);
    return 0;
}

// Of a program that finds nothing; without the lock.  True: it may find something
// now.  It may go to sleep if not, so do all that there is, within reason.
bool look_for_work(Cq &cq) noexcept {
    constexpr int most = 16;
    Spin &spin = *to_context(cq.base.cq.context)->spin;
    int calls = 0;
    for (; calls < most && spin.wanted(); ++calls)
        spin.call(cq.base.cq);
    return calls != 0;
}

int poll_ring(Cq &cq, int max, ibv_wc *wc) noexcept {
    const int error = acquire(cq, cq.lock);
    if (error != 0)
        return -error;
    const int n = cq.ring.poll(max, wc);
    cq.lock.unlock();
    return n;
}

void end_poll(ibv_cq_ex *ibcq) noexcept {
    Cq &cq = *to_cq(ibcq);
    cq.ring.release();
    cq.lock.unlock();
}

int start_poll(ibv_cq_ex *ibcq, ibv_poll_cq_attr *attr) noexcept {
    Cq &cq = *to_cq(ibcq);
    if (attr->comp_mask != 0)
        return EINVAL;
    int error = acquire(cq, cq.lock);
    if (error != 0)
        return error;
    error = take(cq);
    if (error == 0)
        return 0;
    end_poll(ibcq); // which the program does not call then
    if (!look_for_work(cq))
        return error;
    error = acquire(cq, cq.lock);
    if (error != 0)
        return error;
    error = take(cq);
    if (error != 0)
        end_poll(ibcq);
    return error;
}

int next_poll(ibv_cq_ex *ibcq) noexcept {
    return take(*to_cq(ibcq));
}

ibv_wc_opcode read_opcode(ibv_cq_ex *cq) noexcept {
    return wc_opcode(*to_cq(cq)->current);
}

unsigned read_wc_flags(ibv_cq_ex *cq) noexcept {
    return wc_flags(*to_cq(cq)->current);
}

std::uint32_t read_vendor_err(ibv_cq_ex *cq) noexcept {
    return to_cq(cq)->current->vendor_err;
}

std::uint32_t read_byte_len(ibv_cq_ex *cq) noexcept {
    return to_cq(cq)->current->byte_len;
}

// Or the STag that was invalidated.
__be32 read_imm_data(ibv_cq_ex *cq) noexcept {
    return to_cq(cq)->current->imm_inv;
}

std::uint32_t read_qp_num(ibv_cq_ex *cq) noexcept {
    return to_cq(cq)->current->qp_num;
}

std::uint64_t read_completion_ts(ibv_cq_ex *cq) noexcept {
    return to_cq(cq)->current->timestamp;
}

// iWARP has none of these; programs ask for them with IBV_WC_STANDARD_FLAGS.
std::uint32_t read_none_32(ibv_cq_ex * /*cq*/) noexcept {
    return 0;
}

std::uint8_t read_none_8(ibv_cq_ex * /*cq*/) noexcept {
    return 0;
}

constexpr std::uint64_t standard_wc_flags = IBV_WC_STANDARD_FLAGS;
constexpr std::uint64_t known_wc_flags = standard_wc_flags | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;

void set_poll_functions(ibv_cq_ex &cq, std::uint64_t wc_flags) noexcept {
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
    cq.read_opcode = read_opcode;
    cq.read_vendor_err = read_vendor_err;
    cq.read_wc_flags = read_wc_flags;
    if ((wc_flags & IBV_WC_EX_WITH_BYTE_LEN) != 0)
        cq.read_byte_len = read_byte_len;
    if ((wc_flags & IBV_WC_EX_WITH_IMM) != 0)
        cq.read_imm_data = read_imm_data;
    if ((wc_flags & IBV_WC_EX_WITH_QP_NUM) != 0)
        cq.read_qp_num = read_qp_num;
    if ((wc_flags & IBV_WC_EX_WITH_SRC_QP) != 0)
        cq.read_src_qp = read_none_32;
    if ((wc_flags & IBV_WC_EX_WITH_SLID) != 0)
        cq.read_slid = read_none_32;
    if ((wc_flags & IBV_WC_EX_WITH_SL) != 0)
        cq.read_sl = read_none_8;
    if ((wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0)
        cq.read_dlid_path_bits = read_none_8;
    if ((wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
        cq.read_completion_ts = read_completion_ts;
}

} // namespace

ibv_cq *create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel,
                  int comp_vector) noexcept {
    std::unique_ptr<Cq> cq{new (std::nothrow) Cq};
    if (!cq) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_create_cq> request;
    Response<ib_uverbs_create_cq_resp, swp_create_cq_resp> response;
    const int error =
        abi::ibv_cmd_create_cq(context, cqe, channel, comp_vector, &cq->base.cq, request.data(),
                               request.size(), response.data(), response.size());
    Cq *created = finish_create(std::move(cq), error, context->cmd_fd, response.tail());
    return created != nullptr ? &created->base.cq : nullptr;
}

// A CQ for one thread alone, by a flag or by its parent domain, is the same as any
// other here: see pd.cpp.  The kernel stops one that is overrun, whatever its
// owner says.
ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr) noexcept {
    constexpr std::uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    const bool flags_given = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
    if ((attr->wc_flags & ~known_wc_flags) != 0 || (attr->comp_mask & ~known) != 0 ||
        (flags_given && (attr->flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0)) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
        (attr->parent_domain == nullptr || to_pd(attr->parent_domain)->of == nullptr)) {
        errno = EINVAL;
        return nullptr;
    }
    std::unique_ptr<Cq> cq{new (std::nothrow) Cq};
    if (!cq) {
        errno = ENOMEM;
        return nullptr;
    }
    // Nothing that the kernel knows of.
    ibv_cq_init_attr_ex asked = *attr;
    asked.comp_mask &= ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_PD};
    Request<ib_uverbs_ex_create_cq, NoTail, ExtendedHeader> request;
    Response<ib_uverbs_ex_create_cq_resp, swp_create_cq_resp> response;
    const int error = abi::create_cq_ex(context, &asked, &cq->base, request.data(), request.size(),
                                        response.data(), response.size(), 0);
    Cq *created = finish_create(std::move(cq), error, context->cmd_fd, response.tail());
    if (created == nullptr)
        return nullptr;
    set_poll_functions(created->base.cq_ex, attr->wc_flags);
    return &created->base.cq_ex;
}

// Moderation of events is the kernel's, like the events.
int modify_cq(ibv_cq *cq, ibv_modify_cq_attr *attr) noexcept {
    Request<ib_uverbs_ex_modify_cq, NoTail, ExtendedHeader> request;
    return abi::ibv_cmd_modify_cq(cq, attr, request.data(), request.size());
}

int move_to_next(Cq &cq) noexcept {
    Mapping memory; // the new one, then the old one
    const int error =
        map_ring(memory, cq.base.cq.context->cmd_fd, cq.next.key, cq.next.bytes, cq.next.entries);
    if (error != 0)
        return error;
    std::swap(cq.memory, memory);
    cq.ring = CompletionRing{cq.memory.data(), cq.next.entries};
    set_moving(cq, false);
    return 0;
}

// The kernel takes what waits along into a new ring, after which the old one is
// dead.  Should the new one not be to be mapped, whoever needs it tries again.
int resize_cq(ibv_cq *ibcq, int cqe) noexcept {
    Cq &cq = *to_cq(ibcq);
    if (cqe <= 0)
        return EINVAL;
    const std::lock_guard resizing{cq.resize_mutex};
    const bool behind = cq.moving; // since an earlier one
    set_moving(cq, true);
    Request<ib_uverbs_resize_cq> request;
    Response<ib_uverbs_resize_cq_resp, swp_resize_cq_resp> response;
    int error = abi::ibv_cmd_resize_cq(ibcq, cqe, request.data(), request.size(), response.data(),
                                       response.size());
    const swp_resize_cq_resp kernel = response.tail();
    // The core answers last, and the answer may not get through when all is done.
    const bool unanswered = error == EFAULT && kernel.entries != 0;
    if (error != 0 && !unanswered) {
        set_moving(cq, behind);
        return error;
    }
    cq.next = {.key = kernel.ring_key, .bytes = kernel.ring_bytes, .entries = kernel.entries};
    error = move_to_next(cq);
    if (unanswered && error == 0)
        ibcq->cqe = static_cast<int>(kernel.entries);
    return error;
}

int poll_cq(ibv_cq *ibcq, int max, ibv_wc *wc) noexcept {
    Cq &cq = *to_cq(ibcq);
    if (max < 0)
        return -EINVAL;
    const int n = poll_ring(cq, max, wc);
    if (n != 0 || !look_for_work(cq))
        return n;
    return poll_ring(cq, max, wc);
}

int req_notify_cq(ibv_cq *ibcq, int solicited_only) noexcept {
    Cq &cq = *to_cq(ibcq);
    const int error = acquire(cq, cq.arm_lock);
    if (error != 0)
        return error;
    cq.ring.arm(solicited_only != 0);
    cq.arm_lock.unlock();
    return 0;
}

int destroy_cq(ibv_cq *ibcq) noexcept {
    const int error = destroy(abi::ibv_cmd_destroy_cq, ibcq);
    if (error == 0)
        put_cq(ibcq);
    return error;
}

} // namespace softwarp
