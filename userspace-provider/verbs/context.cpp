// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Devices and contexts: the ABI check, the slots, and what is asked of the
// device as a whole.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>

#include "command.hpp"
#include "complain.hpp"
#include "objects.hpp"
#include "provider.hpp"

namespace softwarp {

namespace {

constexpr abi::VerbsContextOps context_ops = [] {
    abi::VerbsContextOps ops{};
    ops.alloc_mw = alloc_mw;
    ops.alloc_parent_domain = alloc_parent_domain;
    ops.alloc_pd = alloc_pd;
    ops.alloc_td = alloc_td;
    ops.async_event = async_event;
    ops.bind_mw = bind_mw;
    ops.create_cq = create_cq;
    ops.create_cq_ex = create_cq_ex;
    ops.create_qp = create_qp;
    ops.create_qp_ex = create_qp_ex;
    ops.create_srq = create_srq;
    ops.dealloc_mw = dealloc_mw;
    ops.dealloc_pd = dealloc_pd;
    ops.dealloc_td = dealloc_td;
    ops.dereg_mr = dereg_mr;
    ops.destroy_cq = destroy_cq;
    ops.destroy_qp = destroy_qp;
    ops.destroy_srq = destroy_srq;
    ops.free_context = free_context;
    ops.modify_cq = modify_cq;
    ops.modify_qp = modify_qp;
    ops.modify_srq = modify_srq;
    ops.poll_cq = poll_cq;
    ops.post_recv = post_recv;
    ops.post_send = post_send;
    ops.post_srq_recv = post_srq_recv;
    ops.query_device_ex = query_device_ex;
    ops.query_port = query_port;
    ops.query_qp = query_qp;
    ops.query_rt_values = query_rt_values;
    ops.query_srq = query_srq;
    ops.reg_mr = reg_mr;
    ops.req_notify_cq = req_notify_cq;
    ops.rereg_mr = rereg_mr;
    ops.resize_cq = resize_cq;
    return ops;
}();

// Returns 0 or EPROTONOSUPPORT, after telling the user what to do.
int check_abi(const char *device, std::uint32_t kernel) noexcept {
    if (kernel == SWP_ABI_VERSION)
        return 0;
    complain("softwarp: %s: the kernel module speaks ABI version %u, this libibverbs provider "
             "version %u; install %s of the same release%s\n",
             device, kernel, unsigned{SWP_ABI_VERSION},
             kernel > SWP_ABI_VERSION ? "the provider (" SOFTWARP_PLUGIN_FILE ")"
                                      : "the kernel module (softwarp.ko)",
             kernel > SWP_ABI_VERSION ? "" : " and load it again");
    return EPROTONOSUPPORT;
}

// Returns 0 or a positive errno.
int open_context(Context &context, const Device &device) noexcept {
    const char *name = device.base.device.name;
    // Asked first, because a module of another version may refuse the command.
    int error = check_abi(name, device.abi_version);
    if (error != 0)
        return error;

    Request<ib_uverbs_get_context, swp_uctx_req> request{
        swp_uctx_req{.abi_version = SWP_ABI_VERSION, .reserved = 0}};
    Response<ib_uverbs_get_context_resp, swp_uctx_resp> response;
    error = abi::get_context(&context.base, request.data(), request.size(), response.data(),
                             response.size());
    if (error != 0)
        return error;
    error = check_abi(name, response.tail().abi_version);
    if (error != 0)
        return error;

    context.qps = new (std::nothrow) QpTable;
    context.spin = new (std::nothrow) Spin;
    if (context.qps == nullptr || context.spin == nullptr) {
        delete context.qps;
        delete context.spin;
        return ENOMEM;
    }
    context.spin->map(context.base.context.cmd_fd, response.tail());
    return 0;
}

} // namespace

abi::VerbsDevice *alloc_device(abi::VerbsSysfsDev *sysfs) noexcept {
    std::unique_ptr<Device> device{new (std::nothrow) Device{}};
    if (!device)
        return nullptr;
    device->abi_version = sysfs->abi_ver;
    return &device.release()->base;
}

void uninit_device(abi::VerbsDevice *device) noexcept {
    delete to_device(&device->device);
}

abi::VerbsContext *alloc_context(ibv_device *device, int cmd_fd, void * /*private_data*/) noexcept {
    // The library takes the place of the VerbsContext in our block as a null
    // based pointer.  It owns cmd_fd from here on, also when it fails.
    auto *context = static_cast<Context *>(abi::_verbs_init_and_alloc_context(
        device, cmd_fd, sizeof(Context), nullptr, SWP_DRIVER_ID));
    if (context == nullptr)
        return nullptr;

    const int error = open_context(*context, *to_device(device));
    if (error != 0) {
        abi::verbs_uninit_context(&context->base);
        std::free(context);
        errno = error;
        return nullptr;
    }
    abi::verbs_set_ops(&context->base, &context_ops);
    return &context->base;
}

void free_context(ibv_context *ibcontext) noexcept {
    Context *context = to_context(ibcontext);
    delete context->qps;
    delete context->spin;
    abi::verbs_uninit_context(&context->base);
    std::free(context);
}

int query_device_ex(ibv_context *context, const ibv_query_device_ex_input *input,
                    ibv_device_attr_ex *attr, std::size_t attr_size) noexcept {
    ib_uverbs_ex_query_device_resp response{};
    std::size_t response_size = sizeof(response);
    const int error =
        abi::ibv_cmd_query_device_any(context, input, attr, attr_size, &response, &response_size);
    if (error != 0)
        return error;
    // major << 32 | minor << 16 | patch, as other drivers have it.
    const std::uint64_t version = response.base.fw_ver;
    auto &text = attr->orig_attr.fw_ver;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg)
    std::snprintf(text, sizeof(text), "%u.%u.%u", static_cast<unsigned>(version >> 32),
                  static_cast<unsigned>(version >> 16 & 0xffff),
                  static_cast<unsigned>(version & 0xffff));
    return 0;
}

// The clock of completion timestamps.  Its unit is that of hca_core_clock, which
// is 1 GHz; as with other devices all of it is in tv_nsec.
int query_rt_values(ibv_context * /*context*/, ibv_values_ex *values) noexcept {
    const std::uint32_t wanted = values->comp_mask;
    values->comp_mask = wanted & IBV_VALUES_MASK_RAW_CLOCK;
    if (values->comp_mask == 0)
        return wanted != 0 ? EINVAL : 0;
    timespec now{};
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return errno;
    values->raw_clock = {.tv_sec = 0, .tv_nsec = now.tv_sec * 1'000'000'000 + now.tv_nsec};
    return 0;
}

int query_port(ibv_context *context, std::uint8_t port, ibv_port_attr *attr) noexcept {
    Request<ib_uverbs_query_port> request;
    return abi::ibv_cmd_query_port(context, port, attr, request.data(), request.size());
}

// The library keeps a copy of the QP's state for the application's eyes.
void async_event(ibv_context * /*context*/, ibv_async_event *event) noexcept {
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: event->element.qp->state = IBV_QPS_ERR; break;
    default: break;
    }
}

} // namespace softwarp
