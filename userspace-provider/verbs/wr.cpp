// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Posting by function calls, ibv_wr_*(3): from wr_start() to wr_complete() or
// wr_abort() the send queue is locked, and the first error is kept for the end.
#include <cerrno>

#include "objects.hpp"
#include "provider.hpp"

namespace softwarp {

namespace {

void add(ibv_qp_ex *qp, const swp_sqe &sqe) noexcept {
    to_qp(qp)->sq.add(qp->wr_id, qp->wr_flags, sqe);
}

swp_sqe request(swp_opcode opcode) noexcept {
    swp_sqe sqe{};
    sqe.opcode = opcode;
    return sqe;
}

// @imm: the immediate data or the STag to invalidate
swp_sqe send_request(swp_opcode opcode, std::uint32_t imm) noexcept {
    swp_sqe sqe = request(opcode);
    sqe.imm_inv = imm;
    return sqe;
}

swp_sqe remote_request(swp_opcode opcode, std::uint32_t rkey, std::uint64_t remote_addr,
                       std::uint32_t imm = 0) noexcept {
    swp_sqe sqe = send_request(opcode, imm);
    sqe.rkey = rkey;
    sqe.remote_addr = remote_addr;
    return sqe;
}

void wr_rdma_write(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t remote_addr) noexcept {
    add(qp, remote_request(SWP_OP_WRITE, rkey, remote_addr));
}

void wr_rdma_write_imm(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t remote_addr,
                       __be32 imm_data) noexcept {
    add(qp, remote_request(SWP_OP_WRITE_IMM, rkey, remote_addr, imm_data));
}

void wr_rdma_read(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t remote_addr) noexcept {
    add(qp, remote_request(SWP_OP_READ, rkey, remote_addr));
}

void wr_send(ibv_qp_ex *qp) noexcept {
    add(qp, request(SWP_OP_SEND));
}

void wr_send_imm(ibv_qp_ex *qp, __be32 imm_data) noexcept {
    add(qp, send_request(SWP_OP_SEND_IMM, imm_data));
}

void wr_send_inv(ibv_qp_ex *qp, std::uint32_t rkey) noexcept {
    add(qp, send_request(SWP_OP_SEND_INV, rkey));
}

void wr_local_inv(ibv_qp_ex *qp, std::uint32_t rkey) noexcept {
    add(qp, send_request(SWP_OP_LOCAL_INV, rkey));
}

void wr_atomic(ibv_qp_ex *qp, const swp_sqe &sqe, const swp_operands &operands) noexcept {
    to_qp(qp)->sq.add_atomic(qp->wr_id, qp->wr_flags, sqe, operands);
}

void wr_atomic_cmp_swp(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t remote_addr,
                       std::uint64_t compare, std::uint64_t swap) noexcept {
    wr_atomic(qp, remote_request(SWP_OP_CMP_SWAP, rkey, remote_addr),
              {.data = swap, .compare = compare});
}

void wr_atomic_fetch_add(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t remote_addr,
                         std::uint64_t addend) noexcept {
    wr_atomic(qp, remote_request(SWP_OP_FETCH_ADD, rkey, remote_addr),
              {.data = addend, .compare = 0});
}

void wr_bind_mw(ibv_qp_ex *qp, ibv_mw *mw, std::uint32_t rkey,
                const ibv_mw_bind_info *info) noexcept {
    to_qp(qp)->sq.add_bind(qp->wr_id, qp->wr_flags, mw, rkey, *info);
}

void wr_set_sge(ibv_qp_ex *qp, std::uint32_t lkey, std::uint64_t addr,
                std::uint32_t length) noexcept {
    const ibv_sge sge{.addr = addr, .length = length, .lkey = lkey};
    to_qp(qp)->sq.set_sges(&sge, 1);
}

void wr_set_sge_list(ibv_qp_ex *qp, std::size_t count, const ibv_sge *list) noexcept {
    to_qp(qp)->sq.set_sges(list, count);
}

void wr_set_inline_data(ibv_qp_ex *qp, void *addr, std::size_t length) noexcept {
    const ibv_data_buf buffer{.addr = addr, .length = length};
    to_qp(qp)->sq.set_inline(&buffer, 1);
}

void wr_set_inline_data_list(ibv_qp_ex *qp, std::size_t count, const ibv_data_buf *list) noexcept {
    to_qp(qp)->sq.set_inline(list, count);
}

void wr_start(ibv_qp_ex *ibqp) noexcept {
    Qp &qp = *to_qp(ibqp);
    qp.sq_lock.lock();
    // As with ibv_post_send().
    qp.sq.start(ibqp->qp_base.state == IBV_QPS_RESET ? EINVAL : 0);
}

int wr_complete(ibv_qp_ex *ibqp) noexcept {
    Qp &qp = *to_qp(ibqp);
    const PostResult result = qp.sq.complete();
    qp.sq_lock.unlock();
    return result.doorbell ? qp.doorbell.ring(ibqp->qp_base) : result.error;
}

void wr_abort(ibv_qp_ex *ibqp) noexcept {
    Qp &qp = *to_qp(ibqp);
    qp.sq.abort();
    qp.sq_lock.unlock();
}

} // namespace

void set_wr_functions(ibv_qp_ex &qp, std::uint64_t operations) noexcept {
    if ((operations & IBV_QP_EX_WITH_RDMA_WRITE) != 0)
        qp.wr_rdma_write = wr_rdma_write;
    if ((operations & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) != 0)
        qp.wr_rdma_write_imm = wr_rdma_write_imm;
    if ((operations & IBV_QP_EX_WITH_SEND) != 0)
        qp.wr_send = wr_send;
    if ((operations & IBV_QP_EX_WITH_SEND_WITH_IMM) != 0)
        qp.wr_send_imm = wr_send_imm;
    if ((operations & IBV_QP_EX_WITH_SEND_WITH_INV) != 0)
        qp.wr_send_inv = wr_send_inv;
    if ((operations & IBV_QP_EX_WITH_RDMA_READ) != 0)
        qp.wr_rdma_read = wr_rdma_read;
    if ((operations & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) != 0)
        qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    if ((operations & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) != 0)
        qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
    if ((operations & IBV_QP_EX_WITH_LOCAL_INV) != 0)
        qp.wr_local_inv = wr_local_inv;
    if ((operations & IBV_QP_EX_WITH_BIND_MW) != 0)
        qp.wr_bind_mw = wr_bind_mw;
    qp.wr_set_sge = wr_set_sge;
    qp.wr_set_sge_list = wr_set_sge_list;
    qp.wr_set_inline_data = wr_set_inline_data;
    qp.wr_set_inline_data_list = wr_set_inline_data_list;
    qp.wr_start = wr_start;
    qp.wr_complete = wr_complete;
    qp.wr_abort = wr_abort;
}

} // namespace softwarp
