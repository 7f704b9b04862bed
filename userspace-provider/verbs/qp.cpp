// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Queue pairs.  Posting works on the mapped rings and enters the kernel only
// when the ring's kick word says so.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

void purge(ibv_cq *ibcq, std::uint32_t qp_num) noexcept {
    if (ibcq == nullptr)
        return;
    Cq &cq = *to_cq(ibcq);
    // Of one whose ring is not to be mapped the completions stay.
    if (acquire(cq, cq.lock) != 0)
        return;
    cq.ring.purge(qp_num);
    cq.lock.unlock();
}

void purge_completions_of(const ibv_qp &qp) noexcept {
    purge(qp.send_cq, qp.qp_num);
    if (qp.recv_cq != qp.send_cq)
        purge(qp.recv_cq, qp.qp_num);
}

// Returns 0 or a positive errno.  @cap: what the kernel granted.
int map_rings(Qp &qp, int cmd_fd, const swp_create_qp_resp &kernel, const ibv_qp_cap &cap,
              bool signal_all) noexcept {
    const bool has_rq = kernel.rq_entries != 0;
    // That of the SQ ends where that of the RQ begins.
    const std::uint32_t sq_bytes = has_rq ? kernel.rq_offset : kernel.ring_bytes;
    const bool sq_sane =
        kernel.sq_entries == 0 || ring_is_sane(sq_bytes, kernel.sq_entries, kernel.sq_stride,
                                               sqe_bytes(cap.max_send_sge, kernel.max_inline));
    const bool rq_sane =
        !has_rq || (kernel.rq_offset % 64 == 0 && kernel.rq_offset <= kernel.ring_bytes &&
                    ring_is_sane(kernel.ring_bytes - kernel.rq_offset, kernel.rq_entries,
                                 kernel.rq_stride, rqe_bytes(cap.max_recv_sge)));
    if (!sq_sane || !rq_sane) {
        complain("softwarp: the kernel module describes an impossible queue pair (send %u x %u, "
                 "receive %u x %u from %u on, in %u bytes); install module and provider of the "
                 "same release\n",
                 kernel.sq_entries, kernel.sq_stride, kernel.rq_entries, kernel.rq_stride,
                 kernel.rq_offset, kernel.ring_bytes);
        return EPROTO;
    }
    if (kernel.sq_entries == 0 && !has_rq)
        return 0;
    const int error = qp.memory.map(cmd_fd, kernel.ring_key, kernel.ring_bytes);
    if (error != 0)
        return error;
    auto *const rings = static_cast<std::byte *>(qp.memory.data());
    if (kernel.sq_entries != 0)
        qp.sq = SendQueue{WorkRing{rings, kernel.sq_entries, kernel.sq_stride}, cap.max_send_sge,
                          kernel.max_inline, signal_all};
    if (has_rq)
        qp.rq = RecvQueue{WorkRing{rings + kernel.rq_offset, kernel.rq_entries, kernel.rq_stride},
                          cap.max_recv_sge};
    return 0;
}

// A queue pair in RESET takes no requests.  Of the later states only the kernel
// knows: the connection manager moves the QP on without the library.
template<class Wr>
bool refuses_posts(const ibv_qp &qp, Wr *first, Wr **bad_wr) noexcept {
    if (qp.state != IBV_QPS_RESET)
        return false;
    *bad_wr = first;
    return true;
}

// Ends a post call.  A doorbell that fails is reported for the whole list: the
// requests stay in the ring, but the device is gone or does not serve the QP.
template<class Wr>
int finish_post(Qp &qp, const PostResult &result, Wr *first, Wr **bad_wr) noexcept {
    if (!result.doorbell)
        return result.error;
    const int error = qp.doorbell.ring(qp.base.qp);
    if (error == 0 || result.error != 0)
        return result.error;
    *bad_wr = first;
    return error;
}

} // namespace

int QpTable::add(Qp &qp) noexcept {
    const std::uint32_t number = qp.base.qp.qp_num;
    const std::lock_guard guard{mutex_};
    try {
        Qp *&owner = by_number_[number];
        if (owner != nullptr)
            purge_completions_of(owner->base.qp);
        owner = &qp;
    } catch (const std::bad_alloc &) {
        return ENOMEM;
    }
    return 0;
}

void QpTable::remove(Qp &qp) noexcept {
    const std::lock_guard guard{mutex_};
    const auto it = by_number_.find(qp.base.qp.qp_num);
    if (it == by_number_.end() || it->second != &qp)
        return;
    purge_completions_of(qp.base.qp);
    by_number_.erase(it);
}

namespace {

// Ends the creation of a QP, whose command returned @error.  @cap: what the
// kernel granted, to which the inline data is added.
Qp *finish_create(std::unique_ptr<Qp> qp, int error, ibv_context &context,
                  const swp_create_qp_resp &kernel, ibv_qp_cap &cap, bool signal_all) noexcept {
    ibv_qp &ibqp = qp->base.qp;
    if (error == 0) {
        cap.max_inline_data = kernel.max_inline;
        error = map_rings(*qp, context.cmd_fd, kernel, cap, signal_all);
        if (error == 0)
            error = to_context(&context)->qps->add(*qp);
        if (error != 0)
            abi::ibv_cmd_destroy_qp(&ibqp);
    }
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    qp->doorbell.prepare(ibqp.handle);
    return qp.release();
}

// @attr: of a QP that was just made.
template<class Attr>
void get_cqs(const Attr &attr) noexcept {
    for (ibv_cq *cq : {attr.send_cq, attr.recv_cq})
        if (cq != nullptr)
            to_cq(cq)->users.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) noexcept {
    std::unique_ptr<Qp> qp{new (std::nothrow) Qp};
    if (!qp) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_create_qp> request;
    Response<ib_uverbs_create_qp_resp, swp_create_qp_resp> response;
    const int error = abi::ibv_cmd_create_qp(pd, &qp->base.qp, attr, request.data(), request.size(),
                                             response.data(), response.size());
    Qp *created = finish_create(std::move(qp), error, *pd->context, response.tail(), attr->cap,
                                attr->sq_sig_all != 0);
    if (created == nullptr)
        return nullptr;
    get_cqs(*attr);
    return &created->base.qp;
}

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr) noexcept {
    constexpr std::uint32_t known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const bool extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if ((attr->comp_mask & ~known) != 0 ||
        ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0) ||
        (extended && (attr->send_ops_flags & ~wr_operations) != 0)) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) {
        errno = EINVAL;
        return nullptr;
    }
    std::unique_ptr<Qp> qp{new (std::nothrow) Qp};
    if (!qp) {
        errno = ENOMEM;
        return nullptr;
    }
    // The command that suffices knows no creation flags.
    ibv_qp_init_attr_ex asked = *attr;
    asked.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_CREATE_FLAGS};
    Request<ib_uverbs_create_qp> request;
    Response<ib_uverbs_create_qp_resp, swp_create_qp_resp> response;
    const int error = abi::ibv_cmd_create_qp_ex(context, &qp->base, &asked, request.data(),
                                                request.size(), response.data(), response.size());
    attr->cap = asked.cap;
    Qp *created = finish_create(std::move(qp), error, *context, response.tail(), attr->cap,
                                attr->sq_sig_all != 0);
    if (created == nullptr)
        return nullptr;
    get_cqs(*attr);
    if (extended) {
        set_wr_functions(created->base.qp_ex, attr->send_ops_flags);
        for (const std::size_t at : abi::verbs_qp_flags_at)
            std::memcpy(created->base.bytes.data() + at, &abi::verbs_qp_extended,
                        sizeof(abi::verbs_qp_extended));
    }
    return &created->base.qp;
}

int query_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, ibv_qp_init_attr *init_attr) noexcept {
    Request<ib_uverbs_query_qp> request;
    return abi::ibv_cmd_query_qp(qp, attr, attr_mask, init_attr, request.data(), request.size());
}

int modify_qp(ibv_qp *ibqp, ibv_qp_attr *attr, int attr_mask) noexcept {
    Request<ib_uverbs_modify_qp> request;
    const int error = abi::ibv_cmd_modify_qp(ibqp, attr, attr_mask, request.data(), request.size());
    if (error == 0 && (attr_mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET) {
        Qp &qp = *to_qp(ibqp);
        {
            const std::lock_guard guard{qp.sq_lock};
            qp.sq.reload();
        }
        const std::lock_guard guard{qp.rq_lock};
        qp.rq.reload();
    }
    return error;
}

int destroy_qp(ibv_qp *ibqp) noexcept {
    QpTable &qps = *to_context(ibqp->context)->qps;
    const int error = destroy(abi::ibv_cmd_destroy_qp, ibqp);
    if (error != 0)
        return error;
    Qp *qp = to_qp(ibqp);
    qps.remove(*qp);
    put_cq(ibqp->send_cq);
    put_cq(ibqp->recv_cq);
    delete qp;
    return 0;
}

int post_send(ibv_qp *ibqp, ibv_send_wr *wr, ibv_send_wr **bad_wr) noexcept {
    Qp &qp = *to_qp(ibqp);
    if (refuses_posts(*ibqp, wr, bad_wr))
        return EINVAL;
    qp.sq_lock.lock();
    const PostResult result = qp.sq.post(wr, bad_wr);
    qp.sq_lock.unlock();
    return finish_post(qp, result, wr, bad_wr);
}

int post_recv(ibv_qp *ibqp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept {
    Qp &qp = *to_qp(ibqp);
    if (refuses_posts(*ibqp, wr, bad_wr))
        return EINVAL;
    if (ibqp->srq != nullptr) {
        *bad_wr = wr;
        return EINVAL;
    }
    qp.rq_lock.lock();
    const PostResult result = qp.rq.post(wr, bad_wr);
    qp.rq_lock.unlock();
    return finish_post(qp, result, wr, bad_wr);
}

// A window of type 1 changes its key with every bind.
int bind_mw(ibv_qp *ibqp, ibv_mw *mw, ibv_mw_bind *bind) noexcept {
    Qp &qp = *to_qp(ibqp);
    if (ibqp->state == IBV_QPS_RESET)
        return EINVAL;
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    qp.sq_lock.lock();
    const PostResult result = qp.sq.bind(*mw, rkey, *bind);
    qp.sq_lock.unlock();
    if (result.error != 0)
        return result.error;
    mw->rkey = rkey;
    return result.doorbell ? qp.doorbell.ring(*ibqp) : 0;
}

} // namespace softwarp
