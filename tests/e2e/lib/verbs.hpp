// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owners of verbs objects, work requests as values, and waiting for
 * completions and asynchronous events with a deadline.
 */
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "lib/pattern.hpp"
#include "lib/system.hpp"

namespace softwarp::e2e {

/* Owners ------------------------------------------------------------------ */

/* Records a test failure unless the error is excused; see DeviceGone. */
void report_destroy(int error, const char *what);

/*
 * While one of these lives, objects may answer EIO on destruction: what
 * libibverbs returns for the objects of a device that was removed.
 */
class DeviceGone {
  public:
    DeviceGone();
    ~DeviceGone();
    DeviceGone(const DeviceGone &) = delete;
    DeviceGone &operator=(const DeviceGone &) = delete;
    static bool excused(int error);
};

struct Destroyer {
    void operator()(ibv_context *context) const {
        report_destroy(ibv_close_device(context), "ibv_close_device");
    }
    void operator()(ibv_pd *pd) const { report_destroy(ibv_dealloc_pd(pd), "ibv_dealloc_pd"); }
    void operator()(ibv_mr *mr) const { report_destroy(ibv_dereg_mr(mr), "ibv_dereg_mr"); }
    void operator()(ibv_cq *cq) const { report_destroy(ibv_destroy_cq(cq), "ibv_destroy_cq"); }
    void operator()(ibv_qp *qp) const { report_destroy(ibv_destroy_qp(qp), "ibv_destroy_qp"); }
    void operator()(ibv_srq *srq) const { report_destroy(ibv_destroy_srq(srq), "ibv_destroy_srq"); }
    void operator()(ibv_mw *mw) const { report_destroy(ibv_dealloc_mw(mw), "ibv_dealloc_mw"); }
    void operator()(ibv_comp_channel *channel) const {
        report_destroy(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    }
};

using Context = std::unique_ptr<ibv_context, Destroyer>;
using Pd = std::unique_ptr<ibv_pd, Destroyer>;
using Mr = std::unique_ptr<ibv_mr, Destroyer>;
using Cq = std::unique_ptr<ibv_cq, Destroyer>;
using Qp = std::unique_ptr<ibv_qp, Destroyer>;
using Srq = std::unique_ptr<ibv_srq, Destroyer>;
using Mw = std::unique_ptr<ibv_mw, Destroyer>;
using CompChannel = std::unique_ptr<ibv_comp_channel, Destroyer>;

/* All throw Failure if the object cannot be made. */
Context open_device(const std::string &name);
bool device_exists(const std::string &name);
Pd alloc_pd(ibv_context *context);
Cq create_cq(ibv_context *context, int entries, ibv_comp_channel *channel = nullptr,
             int vector = 0);
CompChannel create_channel(ibv_context *context);
Srq create_srq(ibv_pd *pd, uint32_t wr, uint32_t sge = 1, uint32_t limit = 0);
Mw alloc_mw(ibv_pd *pd, ibv_mw_type type);

constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr int kRemoteRead = IBV_ACCESS_REMOTE_READ;
constexpr int kRemoteWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

Mr register_memory(ibv_pd *pd, void *where, size_t length, int access = kAll);

/* Memory together with a registration that covers all of it. */
struct Region {
    Region(ibv_pd *pd, size_t size, int access = kAll);
    ibv_sge sge(size_t offset, size_t length) const {
        return {buffer.addr(offset), static_cast<uint32_t>(length), mr->lkey};
    }
    ibv_sge all() const { return sge(0, buffer.size()); }
    uint8_t *at(size_t offset) const { return buffer.at(offset); }
    uint64_t addr(size_t offset = 0) const { return buffer.addr(offset); }
    uint32_t rkey() const { return mr->rkey; }
    uint32_t lkey() const { return mr->lkey; }

    Buffer buffer;
    Mr mr;
};

/* Work requests ----------------------------------------------------------- */

using SgList = std::vector<ibv_sge>;

/* A send work request as a value; copies point to their own SG list. */
struct SendWr {
    uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    SgList sg;
    unsigned flags = IBV_SEND_SIGNALED;
    uint64_t remote_addr = 0;
    uint32_t rkey = 0;
    uint32_t invalidate = 0; // of a Send with Invalidate or a local one
    uint32_t imm = 0;        // host byte order
    uint64_t compare_add = 0;
    uint64_t swap = 0;
    ibv_mw *mw = nullptr; // to bind, with rkey as its new key
    ibv_mw_bind_info bind = {};

    static SendWr send(uint64_t id, SgList sg, unsigned flags = IBV_SEND_SIGNALED);
    static SendWr send_inv(uint64_t id, SgList sg, uint32_t stag,
                           unsigned flags = IBV_SEND_SIGNALED);
    static SendWr write(uint64_t id, SgList sg, uint64_t remote_addr, uint32_t rkey,
                        unsigned flags = IBV_SEND_SIGNALED);
    static SendWr read(uint64_t id, SgList sg, uint64_t remote_addr, uint32_t rkey,
                       unsigned flags = IBV_SEND_SIGNALED);
    static SendWr write_imm(uint64_t id, SgList sg, uint64_t remote_addr, uint32_t rkey,
                            uint32_t imm, unsigned flags = IBV_SEND_SIGNALED);
    static SendWr send_imm(uint64_t id, uint32_t imm, unsigned flags = IBV_SEND_SIGNALED);
    static SendWr fetch_add(uint64_t id, const ibv_sge &old, uint64_t remote_addr, uint32_t rkey,
                            uint64_t add, unsigned flags = IBV_SEND_SIGNALED);
    static SendWr cmp_swap(uint64_t id, const ibv_sge &old, uint64_t remote_addr, uint32_t rkey,
                           uint64_t compare, uint64_t swap, unsigned flags = IBV_SEND_SIGNALED);
    static SendWr local_inv(uint64_t id, uint32_t stag, unsigned flags = IBV_SEND_SIGNALED);
    /* The window is to have the key that follows its present one. */
    static SendWr bind_mw(uint64_t id, ibv_mw *mw, ibv_mr *mr, uint64_t addr, uint64_t length,
                          unsigned access, unsigned flags = IBV_SEND_SIGNALED);
    uint32_t length() const;
    ibv_wc_opcode wc_opcode() const;
};

/* Return 0 or the errno that the library returned. */
int post_send(ibv_qp *qp, const SendWr &wr);
int post_recv(ibv_qp *qp, uint64_t wr_id, const SgList &sg);
int post_srq_recv(ibv_srq *srq, uint64_t wr_id, const SgList &sg);
/* Binds a window of type 1; its rkey changes. */
int bind_mw(ibv_qp *qp, uint64_t wr_id, ibv_mw *mw, ibv_mr *mr, uint64_t addr, uint64_t length,
            unsigned access, unsigned flags = IBV_SEND_SIGNALED);

/* Posts all as one list; *bad is the index of the request in bad_wr. */
int post_send_list(ibv_qp *qp, std::span<const SendWr> wrs, size_t *bad = nullptr);

/* Completions ------------------------------------------------------------- */

/* The next completion; throws Failure when none comes in time. */
ibv_wc next_wc(ibv_cq *cq, Deadline deadline = Deadline(),
               std::source_location where = std::source_location::current());

std::optional<ibv_wc> try_wc(ibv_cq *cq);

/* Takes the next completion and expects its wr_id and status. */
ibv_wc expect_wc(ibv_cq *cq, uint64_t wr_id, ibv_wc_status status,
                 std::source_location where = std::source_location::current());

/* As expect_wc with success, and the opcode; byte_len is checked if >= 0. */
ibv_wc expect_success(ibv_cq *cq, uint64_t wr_id, ibv_wc_opcode opcode, int64_t byte_len = -1,
                      std::source_location where = std::source_location::current());

/*
 * Takes the completions of requests 0 .. count - 1 of a connection that is lost:
 * some succeed, from the first failure on all are flushed.  Returns how many
 * succeeded.
 */
uint64_t expect_done_then_flushed(ibv_cq *cq, uint64_t count,
                                  std::source_location where = std::source_location::current());

/* Expects that the CQ stays empty for the time given. */
void expect_quiet(ibv_cq *cq, milliseconds quiet = milliseconds(30),
                  std::source_location where = std::source_location::current());

std::string wc_text(const ibv_wc &wc);

/* Waits for the next event of the channel, acknowledges it. */
ibv_cq *next_cq_event(ibv_comp_channel *channel, Deadline deadline = Deadline(),
                      std::source_location where = std::source_location::current());
bool no_cq_event(ibv_comp_channel *channel, milliseconds quiet = milliseconds(50));

/* Asynchronous events ----------------------------------------------------- */

struct AsyncEvent {
    ibv_event_type type;
    void *element; // QP, CQ or SRQ, null for port and device events
};

/*
 * Waits for an event that matches.  Others are kept for later calls, so that
 * the events of several QPs of one context may be asked for in any order.
 */
std::optional<AsyncEvent> wait_async(ibv_context *context,
                                     const std::function<bool(const AsyncEvent &)> &matches,
                                     Deadline deadline = Deadline());

/* Waits for an event of the QP and expects it to be one of these. */
void expect_qp_event(ibv_qp *qp, std::initializer_list<ibv_event_type> types,
                     std::source_location where = std::source_location::current());
void expect_cq_event(ibv_cq *cq, ibv_event_type type,
                     std::source_location where = std::source_location::current());
void expect_srq_event(ibv_srq *srq, ibv_event_type type,
                      std::source_location where = std::source_location::current());
void expect_context_event(ibv_context *context, ibv_event_type type,
                          std::source_location where = std::source_location::current());

/* Drops what is kept for an element (before it is destroyed) or a context. */
void forget_async(const void *element);
void forget_async_context(ibv_context *context);

/* GIDs -------------------------------------------------------------------- */

/* The GID of an IP address */
ibv_gid gid_of(const std::string &address);
/* The place of an address in the device's table, or -1 */
int gid_index(ibv_context *context, const std::string &address);

ibv_qp_state qp_state(ibv_qp *qp);
void expect_qp_state(ibv_qp *qp, ibv_qp_state state,
                     std::source_location where = std::source_location::current());

} // namespace softwarp::e2e
