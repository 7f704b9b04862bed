// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/verbs.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace softwarp::e2e {

namespace {

int device_gone_scopes;

std::string at(std::source_location where) {
    std::string_view file = where.file_name();
    return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), where.line());
}

/* Events read from a context and not yet asked for. */
std::map<ibv_context *, std::list<AsyncEvent>> &kept_events() {
    static std::map<ibv_context *, std::list<AsyncEvent>> kept;
    return kept;
}

bool is_qp_event(ibv_event_type type) {
    switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return true;
    default: return false;
    }
}

/* Reads one event if there is one within the time. */
std::optional<AsyncEvent> read_async(ibv_context *context, int timeout_ms) {
    pollfd waiting{context->async_fd, POLLIN, 0};
    if (poll(&waiting, 1, timeout_ms) <= 0 || (waiting.revents & POLLIN) == 0)
        return std::nullopt;
    ibv_async_event event{};
    if (ibv_get_async_event(context, &event) != 0)
        return std::nullopt;
    AsyncEvent result{event.event_type, nullptr};
    if (is_qp_event(event.event_type))
        result.element = event.element.qp;
    else if (event.event_type == IBV_EVENT_CQ_ERR)
        result.element = event.element.cq;
    else if (event.event_type == IBV_EVENT_SRQ_ERR ||
             event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
        result.element = event.element.srq;
    ibv_ack_async_event(&event);
    return result;
}

} // namespace

void report_destroy(int error, const char *what) {
    if (error != 0 && !DeviceGone::excused(error))
        ADD_FAILURE() << what << " returned " << errno_name(error);
}

DeviceGone::DeviceGone() {
    device_gone_scopes++;
}

DeviceGone::~DeviceGone() {
    device_gone_scopes--;
}

bool DeviceGone::excused(int error) {
    return error == EIO && device_gone_scopes > 0;
}

Context open_device(const std::string &name) {
    int count = 0;
    ibv_device **list = ibv_get_device_list(&count);
    require(list != nullptr, "ibv_get_device_list");
    Context context;
    for (int i = 0; i < count && !context; i++)
        if (name == ibv_get_device_name(list[i]))
            context.reset(ibv_open_device(list[i]));
    ibv_free_device_list(list);
    require(context != nullptr, "open device " + name);
    return context;
}

bool device_exists(const std::string &name) {
    int count = 0;
    ibv_device **list = ibv_get_device_list(&count);
    if (list == nullptr)
        return false;
    bool found = std::any_of(list, list + count, [&](ibv_device *device) {
        return name == ibv_get_device_name(device);
    });
    ibv_free_device_list(list);
    return found;
}

Pd alloc_pd(ibv_context *context) {
    Pd pd(ibv_alloc_pd(context));
    require(pd != nullptr, "ibv_alloc_pd");
    return pd;
}

Cq create_cq(ibv_context *context, int entries, ibv_comp_channel *channel, int vector) {
    Cq cq(ibv_create_cq(context, entries, nullptr, channel, vector));
    require(cq != nullptr, "ibv_create_cq");
    return cq;
}

CompChannel create_channel(ibv_context *context) {
    CompChannel channel(ibv_create_comp_channel(context));
    require(channel != nullptr, "ibv_create_comp_channel");
    return channel;
}

Srq create_srq(ibv_pd *pd, uint32_t wr, uint32_t sge, uint32_t limit) {
    ibv_srq_init_attr attr{};
    attr.attr = {wr, sge, limit};
    Srq srq(ibv_create_srq(pd, &attr));
    require(srq != nullptr, "ibv_create_srq");
    return srq;
}

Mw alloc_mw(ibv_pd *pd, ibv_mw_type type) {
    Mw mw(ibv_alloc_mw(pd, type));
    require(mw != nullptr, "ibv_alloc_mw");
    return mw;
}

Mr register_memory(ibv_pd *pd, void *where, size_t length, int access) {
    Mr mr(ibv_reg_mr(pd, where, length, access));
    require(mr != nullptr, fmt::format("ibv_reg_mr of {} bytes", length));
    return mr;
}

Region::Region(ibv_pd *pd, size_t size, int access)
    : buffer(size), mr(register_memory(pd, buffer.data(), size, access)) {}

SendWr SendWr::send(uint64_t id, SgList sg, unsigned flags) {
    return SendWr{.wr_id = id, .opcode = IBV_WR_SEND, .sg = std::move(sg), .flags = flags};
}

SendWr SendWr::send_inv(uint64_t id, SgList sg, uint32_t stag, unsigned flags) {
    SendWr wr = send(id, std::move(sg), flags);
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.invalidate = stag;
    return wr;
}

SendWr SendWr::write(uint64_t id, SgList sg, uint64_t remote_addr, uint32_t rkey, unsigned flags) {
    return SendWr{.wr_id = id,
                  .opcode = IBV_WR_RDMA_WRITE,
                  .sg = std::move(sg),
                  .flags = flags,
                  .remote_addr = remote_addr,
                  .rkey = rkey};
}

SendWr SendWr::read(uint64_t id, SgList sg, uint64_t remote_addr, uint32_t rkey, unsigned flags) {
    SendWr wr = write(id, std::move(sg), remote_addr, rkey, flags);
    wr.opcode = IBV_WR_RDMA_READ;
    return wr;
}

SendWr SendWr::write_imm(uint64_t id, SgList sg, uint64_t remote_addr, uint32_t rkey, uint32_t imm,
                         unsigned flags) {
    SendWr wr = write(id, std::move(sg), remote_addr, rkey, flags);
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm = imm;
    return wr;
}

SendWr SendWr::send_imm(uint64_t id, uint32_t imm, unsigned flags) {
    SendWr wr = send(id, {}, flags);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm = imm;
    return wr;
}

SendWr SendWr::fetch_add(uint64_t id, const ibv_sge &old, uint64_t remote_addr, uint32_t rkey,
                         uint64_t add, unsigned flags) {
    SendWr wr = write(id, {old}, remote_addr, rkey, flags);
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.compare_add = add;
    return wr;
}

SendWr SendWr::cmp_swap(uint64_t id, const ibv_sge &old, uint64_t remote_addr, uint32_t rkey,
                        uint64_t compare, uint64_t swap, unsigned flags) {
    SendWr wr = write(id, {old}, remote_addr, rkey, flags);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.compare_add = compare;
    wr.swap = swap;
    return wr;
}

SendWr SendWr::local_inv(uint64_t id, uint32_t stag, unsigned flags) {
    SendWr wr = send(id, {}, flags);
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate = stag;
    return wr;
}

SendWr SendWr::bind_mw(uint64_t id, ibv_mw *mw, ibv_mr *mr, uint64_t addr, uint64_t length,
                       unsigned access, unsigned flags) {
    SendWr wr = send(id, {}, flags);
    wr.opcode = IBV_WR_BIND_MW;
    wr.mw = mw;
    wr.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind = {mr, addr, length, access};
    return wr;
}

uint32_t SendWr::length() const {
    uint32_t sum = 0;
    for (const ibv_sge &sge : sg)
        sum += sge.length;
    return sum;
}

ibv_wc_opcode SendWr::wc_opcode() const {
    switch (opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_WRITE: return IBV_WC_RDMA_WRITE;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    default: return IBV_WC_SEND;
    }
}

int post_send_list(ibv_qp *qp, std::span<const SendWr> wrs, size_t *bad) {
    std::vector<ibv_send_wr> raw(wrs.size());
    for (size_t i = 0; i < wrs.size(); i++) {
        raw[i] = {};
        raw[i].wr_id = wrs[i].wr_id;
        raw[i].next = i + 1 < wrs.size() ? &raw[i + 1] : nullptr;
        raw[i].sg_list = const_cast<ibv_sge *>(wrs[i].sg.data());
        raw[i].num_sge = static_cast<int>(wrs[i].sg.size());
        raw[i].opcode = wrs[i].opcode;
        raw[i].send_flags = wrs[i].flags;
        switch (wrs[i].opcode) {
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            raw[i].wr.atomic = {wrs[i].remote_addr, wrs[i].compare_add, wrs[i].swap, wrs[i].rkey};
            break;
        case IBV_WR_BIND_MW:
            raw[i].bind_mw.mw = wrs[i].mw;
            raw[i].bind_mw.rkey = wrs[i].rkey;
            raw[i].bind_mw.bind_info = wrs[i].bind;
            break;
        case IBV_WR_SEND_WITH_INV:
        case IBV_WR_LOCAL_INV: raw[i].invalidate_rkey = wrs[i].invalidate; break;
        case IBV_WR_SEND_WITH_IMM: raw[i].imm_data = htonl(wrs[i].imm); break;
        case IBV_WR_RDMA_WRITE_WITH_IMM: raw[i].imm_data = htonl(wrs[i].imm); [[fallthrough]];
        default:
            raw[i].wr.rdma.remote_addr = wrs[i].remote_addr;
            raw[i].wr.rdma.rkey = wrs[i].rkey;
            break;
        }
    }
    ibv_send_wr *first_bad = nullptr;
    int error = ibv_post_send(qp, raw.data(), &first_bad);
    if (bad != nullptr)
        *bad = error != 0 && first_bad != nullptr ? static_cast<size_t>(first_bad - raw.data())
                                                  : wrs.size();
    return error;
}

int post_send(ibv_qp *qp, const SendWr &wr) {
    return post_send_list(qp, {&wr, 1});
}

int post_recv(ibv_qp *qp, uint64_t wr_id, const SgList &sg) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = const_cast<ibv_sge *>(sg.data());
    wr.num_sge = static_cast<int>(sg.size());
    ibv_recv_wr *bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
}

int post_srq_recv(ibv_srq *srq, uint64_t wr_id, const SgList &sg) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = const_cast<ibv_sge *>(sg.data());
    wr.num_sge = static_cast<int>(sg.size());
    ibv_recv_wr *bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
}

int bind_mw(ibv_qp *qp, uint64_t wr_id, ibv_mw *mw, ibv_mr *mr, uint64_t addr, uint64_t length,
            unsigned access, unsigned flags) {
    ibv_mw_bind bind{};
    bind.wr_id = wr_id;
    bind.send_flags = flags;
    bind.bind_info = {mr, addr, length, access};
    return ibv_bind_mw(qp, mw, &bind);
}

std::optional<ibv_wc> try_wc(ibv_cq *cq) {
    ibv_wc wc{};
    int got = ibv_poll_cq(cq, 1, &wc);
    if (got < 0)
        fail(fmt::format("ibv_poll_cq returned {}", got));
    if (got == 0)
        return std::nullopt;
    return wc;
}

ibv_wc next_wc(ibv_cq *cq, Deadline deadline, std::source_location where) {
    for (unsigned spins = 0;; spins++) {
        bool last = spins % 64 == 63 && deadline.passed();
        if (std::optional<ibv_wc> wc = try_wc(cq))
            return *wc;
        if (last)
            fail("no completion in time", where);
        /* Two CPUs at most, and the kernel's threads want one. */
        if (spins > 256)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        else
            std::this_thread::yield();
    }
}

std::string wc_text(const ibv_wc &wc) {
    return fmt::format("completion {:#x} status {} ({}) vendor {:#x}", wc.wr_id,
                       static_cast<int>(wc.status), ibv_wc_status_str(wc.status), wc.vendor_err);
}

ibv_wc expect_wc(ibv_cq *cq, uint64_t wr_id, ibv_wc_status status, std::source_location where) {
    ibv_wc wc = next_wc(cq, Deadline(), where);
    EXPECT_EQ(wc.wr_id, wr_id) << at(where) << ": " << wc_text(wc);
    EXPECT_EQ(wc.status, status) << at(where) << ": " << wc_text(wc) << ", not "
                                 << ibv_wc_status_str(status);
    return wc;
}

ibv_wc expect_success(ibv_cq *cq, uint64_t wr_id, ibv_wc_opcode opcode, int64_t byte_len,
                      std::source_location where) {
    ibv_wc wc = next_wc(cq, Deadline(), where);
    /* What follows would make no sense after a failed completion. */
    if (wc.status != IBV_WC_SUCCESS)
        fail(wc_text(wc), where);
    EXPECT_EQ(wc.wr_id, wr_id) << at(where);
    EXPECT_EQ(wc.opcode, opcode) << at(where);
    if (byte_len >= 0) {
        EXPECT_EQ(wc.byte_len, static_cast<uint32_t>(byte_len)) << at(where);
    }
    return wc;
}

uint64_t expect_done_then_flushed(ibv_cq *cq, uint64_t count, std::source_location where) {
    uint64_t done = 0;
    for (uint64_t i = 0; i < count; i++) {
        ibv_wc wc = next_wc(cq, Deadline(), where);
        EXPECT_EQ(wc.wr_id, i) << at(where) << ": " << wc_text(wc);
        if (wc.status == IBV_WC_SUCCESS) {
            EXPECT_EQ(done, i) << at(where) << ": success behind a failure";
            done++;
        } else {
            EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR) << at(where) << ": " << wc_text(wc);
        }
    }
    return done;
}

void expect_quiet(ibv_cq *cq, milliseconds quiet, std::source_location where) {
    Deadline end(quiet);
    while (!end.passed()) {
        if (std::optional<ibv_wc> wc = try_wc(cq)) {
            ADD_FAILURE() << at(where) << ": unexpected " << wc_text(*wc);
            return;
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
}

namespace {

ibv_cq *poll_cq_event(ibv_comp_channel *channel, int timeout_ms) {
    pollfd waiting{channel->fd, POLLIN, 0};
    if (poll(&waiting, 1, timeout_ms) <= 0)
        return nullptr;
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    if (ibv_get_cq_event(channel, &cq, &context) != 0)
        return nullptr;
    ibv_ack_cq_events(cq, 1);
    return cq;
}

} // namespace

ibv_cq *next_cq_event(ibv_comp_channel *channel, Deadline deadline, std::source_location where) {
    ibv_cq *cq = poll_cq_event(channel, deadline.left_ms());
    if (cq == nullptr)
        fail("no completion event in time", where);
    return cq;
}

bool no_cq_event(ibv_comp_channel *channel, milliseconds quiet) {
    return poll_cq_event(channel, Deadline(quiet).left_ms()) == nullptr;
}

std::optional<AsyncEvent> wait_async(ibv_context *context,
                                     const std::function<bool(const AsyncEvent &)> &matches,
                                     Deadline deadline) {
    std::list<AsyncEvent> &kept = kept_events()[context];
    auto found = std::find_if(kept.begin(), kept.end(), matches);
    if (found != kept.end()) {
        AsyncEvent event = *found;
        kept.erase(found);
        return event;
    }
    for (;;) {
        int left = deadline.left_ms();
        std::optional<AsyncEvent> event = read_async(context, left);
        if (event && matches(*event))
            return event;
        if (event)
            kept.push_back(*event);
        else if (left == 0)
            return std::nullopt;
    }
}

void expect_qp_event(ibv_qp *qp, std::initializer_list<ibv_event_type> types,
                     std::source_location where) {
    auto event = wait_async(qp->context, [&](const AsyncEvent &e) { return e.element == qp; });
    if (!event) {
        ADD_FAILURE() << at(where) << ": no asynchronous event of the QP";
        return;
    }
    bool expected = std::find(types.begin(), types.end(), event->type) != types.end();
    EXPECT_TRUE(expected) << at(where) << ": event " << ibv_event_type_str(event->type);
}

void expect_cq_event(ibv_cq *cq, ibv_event_type type, std::source_location where) {
    auto event = wait_async(cq->context, [&](const AsyncEvent &e) { return e.element == cq; });
    if (!event) {
        ADD_FAILURE() << at(where) << ": no asynchronous event of the CQ";
        return;
    }
    EXPECT_EQ(event->type, type) << at(where) << ": event " << ibv_event_type_str(event->type);
}

void expect_srq_event(ibv_srq *srq, ibv_event_type type, std::source_location where) {
    auto event = wait_async(srq->context, [&](const AsyncEvent &e) { return e.element == srq; });
    if (!event) {
        ADD_FAILURE() << at(where) << ": no asynchronous event of the SRQ";
        return;
    }
    EXPECT_EQ(event->type, type) << at(where) << ": event " << ibv_event_type_str(event->type);
}

void expect_context_event(ibv_context *context, ibv_event_type type, std::source_location where) {
    auto event = wait_async(context, [&](const AsyncEvent &e) { return e.type == type; });
    EXPECT_TRUE(event.has_value())
        << at(where) << ": no asynchronous event " << ibv_event_type_str(type);
}

void forget_async(const void *element) {
    for (auto &[context, events] : kept_events())
        events.remove_if([&](const AsyncEvent &e) { return e.element == element; });
}

void forget_async_context(ibv_context *context) {
    while (read_async(context, 0))
        ;
    kept_events().erase(context);
}

ibv_gid gid_of(const std::string &address) {
    ibv_gid gid{};
    if (address.find(':') == std::string::npos) {
        gid.raw[10] = gid.raw[11] = 0xff;
        require(inet_pton(AF_INET, address.c_str(), gid.raw + 12) == 1, address);
    } else {
        require(inet_pton(AF_INET6, address.c_str(), gid.raw) == 1, address);
    }
    return gid;
}

int gid_index(ibv_context *context, const std::string &address) {
    const ibv_gid wanted = gid_of(address);
    ibv_port_attr port{};
    require(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
    for (int i = 1; i < port.gid_tbl_len; i++) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(context, 1, static_cast<uint32_t>(i), &entry, 0) == 0 &&
            memcmp(&entry.gid, &wanted, sizeof(wanted)) == 0)
            return i;
    }
    return -1;
}

ibv_qp_state qp_state(ibv_qp *qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
    if (error != 0)
        fail("ibv_query_qp returned " + errno_name(error));
    return attr.qp_state;
}

void expect_qp_state(ibv_qp *qp, ibv_qp_state state, std::source_location where) {
    EXPECT_TRUE(eventually([&] { return qp_state(qp) == state; }))
        << at(where) << ": QP is in state " << qp_state(qp) << ", not " << state;
}

} // namespace softwarp::e2e
