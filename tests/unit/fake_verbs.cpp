// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fake_verbs.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

FakeKernel kernel;
const softwarp::abi::VerbsDeviceOps *registered = nullptr;

namespace {

int failure() {
    return std::exchange(kernel.next_error, 0);
}

template<class T>
void put(void *buffer, std::size_t at, std::size_t size, const T &tail) {
    if (at + sizeof(tail) != size)
        std::abort(); // a tail of the wrong size or in the wrong place
    std::memcpy(static_cast<char *>(buffer) + at, &tail, sizeof(tail));
}

void expect_size(std::size_t got, std::size_t wanted) {
    if (got != wanted)
        std::abort();
}

#if SOFTWARP_PRIVATE_ABI >= 57
void expect_null(const void *parameter) {
    if (parameter != nullptr)
        std::abort();
}
#endif

} // namespace

// Sizes below are header + kernel structure + tail as the kernel expects them.
namespace softwarp::abi {

extern "C" {

void SOFTWARP_REGISTER_DRIVER(const VerbsDeviceOps *ops) {
    registered = ops;
}

void *_verbs_init_and_alloc_context(ibv_device *device, int cmd_fd, std::size_t alloc_size,
                                    VerbsContext *context_offset, std::uint32_t driver_id) {
    auto *block = static_cast<char *>(std::calloc(1, alloc_size));
    auto *context =
        reinterpret_cast<VerbsContext *>(block + reinterpret_cast<std::size_t>(context_offset));
    context->context.device = device;
    context->context.cmd_fd = cmd_fd;
    kernel.driver_id = driver_id;
    ++kernel.contexts;
    return block;
}

void verbs_uninit_context(VerbsContext *context) {
    close(context->context.cmd_fd);
    --kernel.contexts;
}

void verbs_set_ops(VerbsContext *, const VerbsContextOps *ops) {
    kernel.ops = *ops;
}

#if SOFTWARP_PRIVATE_ABI >= 57
int ibv_cmd_get_context(VerbsContext *, void *cmd, std::size_t cmd_size, FdArray *fds, void *resp,
                        std::size_t resp_size) {
    expect_null(fds);
#else
int ibv_cmd_get_context(VerbsContext *, void *cmd, std::size_t cmd_size, void *resp,
                        std::size_t resp_size) {
#endif
    expect_size(cmd_size, 8 + 8 + sizeof(swp_uctx_req));
    std::memcpy(&kernel.uctx_req, static_cast<char *>(cmd) + 16, sizeof(kernel.uctx_req));
    put(resp, 8, resp_size,
        swp_uctx_resp{.abi_version = kernel.abi_version,
                      .max_inline = SWP_MAX_INLINE,
                      .max_sge = SWP_MAX_SGE,
                      .spin_bytes = 0,
                      .spin_key = 0});
    return failure();
}

int ibv_cmd_query_device_any(ibv_context *, const ibv_query_device_ex_input *, ibv_device_attr_ex *,
                             std::size_t, ib_uverbs_ex_query_device_resp *resp,
                             std::size_t *resp_size) {
    expect_size(std::exchange(*resp_size, 304), 304);
    resp->base.fw_ver = kernel.fw_ver;
    return failure();
}

int ibv_cmd_query_port(ibv_context *, std::uint8_t port, ibv_port_attr *attr, void *,
                       std::size_t cmd_size) {
    expect_size(cmd_size, 24);
    attr->lid = port;
    return failure();
}

int ibv_cmd_alloc_pd(ibv_context *context, ibv_pd *pd, void *, std::size_t cmd_size, void *,
                     std::size_t resp_size) {
    expect_size(cmd_size, 16);
    expect_size(resp_size, 4);
    const int error = failure();
    if (error == 0) {
        pd->context = context;
        ++kernel.pds;
    }
    return error;
}

int ibv_cmd_dealloc_pd(ibv_pd *) {
    const int error = failure();
    kernel.pds -= error == 0;
    return error;
}

int ibv_cmd_reg_mr(ibv_pd *, void *, std::size_t, std::uint64_t, int access, VerbsMr *mr, void *,
                   std::size_t cmd_size, void *, std::size_t resp_size) {
    expect_size(cmd_size, 48);
    expect_size(resp_size, 12);
    const int error = failure();
    if (error == 0) {
        mr->access = access;
        mr->mr.lkey = 0x1234;
        ++kernel.mrs;
    }
    return error;
}

int ibv_cmd_dereg_mr(VerbsMr *) {
    const int error = failure();
    kernel.mrs -= error == 0;
    return error;
}

int ibv_cmd_rereg_mr(VerbsMr *mr, std::uint32_t, void *addr, std::size_t, std::uint64_t hca_va, int,
                     ibv_pd *, void *, std::size_t cmd_size, void *, std::size_t resp_size) {
    expect_size(cmd_size, 56);
    expect_size(resp_size, 8);
    expect_size(hca_va, reinterpret_cast<std::size_t>(addr));
    const int error = failure();
    if (error == 0)
        mr->mr.lkey = mr->mr.rkey = 0x5678;
    return error;
}

int ibv_cmd_alloc_mw(ibv_pd *pd, ibv_mw_type type, ibv_mw *mw, void *, std::size_t cmd_size, void *,
                     std::size_t resp_size) {
    expect_size(cmd_size, 24);
    expect_size(resp_size, 8);
    const int error = failure();
    if (error != 0)
        return error;
    mw->context = pd->context;
    mw->pd = pd;
    mw->rkey = 0x123456ff;
    mw->type = type;
    ++kernel.mws;
    return 0;
}

int ibv_cmd_dealloc_mw(ibv_mw *) {
    const int error = failure();
    kernel.mws -= error == 0;
    return error;
}

int ibv_cmd_create_cq(ibv_context *context, int, ibv_comp_channel *, int, ibv_cq *cq, void *,
                      std::size_t cmd_size, void *resp, std::size_t resp_size) {
    expect_size(cmd_size, 40);
    const int error = failure();
    if (error != 0)
        return error;
    cq->context = context;
    put(resp, 8, resp_size,
        swp_create_cq_resp{.ring_key = kernel.cq_key,
                           .ring_bytes = kernel.cq_bytes,
                           .entries = kernel.cq_entries,
                           .cq_id = 1,
                           .reserved = 0});
    ++kernel.cqs;
    return 0;
}

#if SOFTWARP_PRIVATE_ABI >= 59
int ibv_cmd_create_cq_ex(ibv_context *context, const ibv_cq_init_attr_ex *, CqMemory *memory,
                         VerbsCq *cq, void *, std::size_t cmd_size, void *resp,
                         std::size_t resp_size, std::uint32_t) {
    expect_null(memory);
#else
int ibv_cmd_create_cq_ex(ibv_context *context, const ibv_cq_init_attr_ex *, VerbsCq *cq, void *,
                         std::size_t cmd_size, void *resp, std::size_t resp_size, std::uint32_t) {
#endif
    expect_size(cmd_size, 56);
    const int error = failure();
    if (error != 0)
        return error;
    cq->cq.context = context;
    put(resp, 16, resp_size,
        swp_create_cq_resp{.ring_key = kernel.cq_key,
                           .ring_bytes = kernel.cq_bytes,
                           .entries = kernel.cq_entries,
                           .cq_id = 1,
                           .reserved = 0});
    ++kernel.cqs;
    return 0;
}

int ibv_cmd_resize_cq(ibv_cq *, int, void *, std::size_t cmd_size, void *resp,
                      std::size_t resp_size) {
    expect_size(cmd_size, 24);
    if (const auto hook = std::exchange(kernel.in_resize_cq, nullptr))
        hook();
    const int error = failure();
    if (error == 0 || error == EFAULT) // what the core says last does not come through
        put(resp, 8, resp_size, kernel.resized);
    return error;
}

int ibv_cmd_modify_cq(ibv_cq *, ibv_modify_cq_attr *attr, void *, std::size_t cmd_size) {
    expect_size(cmd_size, 40);
    kernel.moderation = attr->moderate;
    return failure();
}

int ibv_cmd_destroy_cq(ibv_cq *) {
    const int error = failure();
    kernel.cqs -= error == 0;
    return error;
}

int ibv_cmd_create_srq(ibv_pd *pd, ibv_srq *srq, ibv_srq_init_attr *attr, void *,
                       std::size_t cmd_size, void *resp, std::size_t resp_size) {
    expect_size(cmd_size, 40);
    const int error = failure();
    if (error != 0)
        return error;
    srq->context = pd->context;
    attr->attr.max_wr = kernel.srq.entries;
    put(resp, 16, resp_size, kernel.srq);
    ++kernel.srqs;
    return 0;
}

int ibv_cmd_modify_srq(ibv_srq *, ibv_srq_attr *, int mask, void *cmd, std::size_t cmd_size) {
    if ((mask & IBV_SRQ_MAX_WR) == 0) {
        expect_size(cmd_size, 24);
        return failure();
    }
    expect_size(cmd_size, 24 + sizeof(swp_modify_srq_req));
    if (const auto hook = std::exchange(kernel.in_resize_srq, nullptr))
        hook();
    const int error = failure();
    if (error != 0)
        return error;
    swp_modify_srq_req request{};
    std::memcpy(&request, static_cast<char *>(cmd) + 24, sizeof(request));
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI carries addresses as integers
    std::memcpy(reinterpret_cast<void *>(request.resp_addr), &kernel.resized_srq,
                sizeof(kernel.resized_srq));
    return 0;
}

int ibv_cmd_query_srq(ibv_srq *, ibv_srq_attr *attr, void *, std::size_t cmd_size) {
    expect_size(cmd_size, 24);
    attr->max_wr = kernel.srq.entries;
    return failure();
}

int ibv_cmd_destroy_srq(ibv_srq *) {
    const int error = failure();
    kernel.srqs -= error == 0;
    return error;
}

int ibv_cmd_create_qp(ibv_pd *pd, ibv_qp *qp, ibv_qp_init_attr *attr, void *, std::size_t cmd_size,
                      void *resp, std::size_t resp_size) {
    expect_size(cmd_size, 64);
    const int error = failure();
    if (error != 0)
        return error;
    qp->context = pd->context;
    qp->send_cq = attr->send_cq;
    qp->recv_cq = attr->recv_cq;
    qp->srq = attr->srq;
    qp->qp_num = kernel.qp_num;
    qp->handle = 0x77;
    qp->state = IBV_QPS_RESET;
    put(resp, 32, resp_size, kernel.qp);
    ++kernel.qps;
    return 0;
}

int ibv_cmd_create_qp_ex(ibv_context *, VerbsQp *qp, ibv_qp_init_attr_ex *attr, void *cmd,
                         std::size_t cmd_size, void *resp, std::size_t resp_size) {
    ibv_qp_init_attr plain{};
    plain.send_cq = attr->send_cq;
    plain.recv_cq = attr->recv_cq;
    plain.srq = attr->srq;
    kernel.qp_comp_mask = attr->comp_mask;
    return ibv_cmd_create_qp(attr->pd, &qp->qp, &plain, cmd, cmd_size, resp, resp_size);
}

int ibv_cmd_query_qp(ibv_qp *, ibv_qp_attr *, int, ibv_qp_init_attr *, void *,
                     std::size_t cmd_size) {
    expect_size(cmd_size, 24);
    return failure();
}

int ibv_cmd_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, void *, std::size_t cmd_size) {
    expect_size(cmd_size, 120);
    const int error = failure();
    if (error == 0 && (attr_mask & IBV_QP_STATE) != 0)
        qp->state = attr->qp_state;
    return error;
}

int ibv_cmd_destroy_qp(ibv_qp *) {
    const int error = failure();
    if (error != 0)
        return error;
    --kernel.qps;
    if (const auto hook = std::exchange(kernel.in_destroy_qp, nullptr))
        hook();
    return 0;
}

int ibv_cmd_post_send(ibv_qp *, ibv_send_wr *wr, ibv_send_wr **) {
    if (wr != nullptr)
        std::abort();
    ++kernel.ioctl_doorbells;
    return failure();
}

ssize_t __real_write(int fd, const void *buffer, size_t bytes);

// Device writes are doorbells; anything else (gtest's output) is let through.
ssize_t __wrap_write(int fd, const void *buffer, size_t bytes);
ssize_t __wrap_write(int fd, const void *buffer, size_t bytes) {
    if (kernel.contexts == 0 || fd <= STDERR_FILENO)
        return __real_write(fd, buffer, bytes);
    if (!kernel.write_errors.empty()) {
        const int error = kernel.write_errors.front();
        kernel.write_errors.erase(kernel.write_errors.begin());
        if (error != 0) {
            errno = error;
            return -1;
        }
    }
    kernel.doorbells.emplace_back(static_cast<const char *>(buffer), bytes);
    return static_cast<ssize_t>(bytes);
}

} // extern "C"

} // namespace softwarp::abi
