// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The provider's objects between a fake library and a fake device: mapping,
// error paths, doorbells, and completions across the death of a QP.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

#include "common/mapping.hpp"
#include "common/spinlock.hpp"
#include "fake_verbs.hpp"

namespace {

using softwarp::abi::VerbsContext;
using softwarp::abi::VerbsDevice;
using softwarp::abi::VerbsSysfsDev;

constexpr std::uint64_t sq_at = 0x10000;
constexpr std::uint32_t rq_offset = 0x800; // behind the SQ's four entries
constexpr std::uint64_t rq_at = sq_at + rq_offset;
constexpr std::uint64_t cq_at = 0x30000;
constexpr std::uint64_t cq2_at = 0x40000;
constexpr std::uint64_t srq_at = 0x50000;
constexpr std::uint64_t srq2_at = 0x60000;
constexpr std::size_t file_bytes = 0x70000;
constexpr std::size_t arm_at = 192;
constexpr std::size_t kick_at = 128;

class Provider : public testing::Test {
  protected:
    void SetUp() override {
        kernel = FakeKernel{};
        kernel.qp = {.ring_key = sq_at,
                     .ring_bytes = 4096 + 4096,
                     .rq_offset = rq_offset,
                     .sq_entries = 4,
                     .rq_entries = 4,
                     .sq_stride = 128,
                     .rq_stride = 32,
                     .qp_id = 100,
                     .max_inline = 96};
        kernel.cq_key = cq_at;
        kernel.resized = {.ring_key = cq2_at, .ring_bytes = 4096 + 4096, .entries = 16};
        kernel.srq = {.ring_key = srq_at,
                      .ring_bytes = 4096 + 4096,
                      .entries = 4,
                      .stride = 48,
                      .reserved = 0};
        kernel.resized_srq = {.ring_key = srq2_at, .ring_bytes = 4096 + 4096, .entries = 8};
        sysfs.abi_ver = SWP_ABI_VERSION;
        device = registered->alloc_device(&sysfs);
        ASSERT_NE(device, nullptr);
        std::strcpy(device->device.name, "sw0");
        fd = memfd_create("device", MFD_CLOEXEC);
        ASSERT_EQ(ftruncate(fd, file_bytes), 0);
        const int own = dup(fd);
        ASSERT_EQ(memory.map(own, 0, file_bytes), 0);
        close(own);
    }

    void TearDown() override {
        if (context != nullptr)
            kernel.ops.free_context(context);
        if (device != nullptr)
            registered->uninit_device(device);
        EXPECT_EQ(kernel.contexts, 0);
        EXPECT_EQ(kernel.pds, 0);
        EXPECT_EQ(kernel.mrs, 0);
        EXPECT_EQ(kernel.mws, 0);
        EXPECT_EQ(kernel.cqs, 0);
        EXPECT_EQ(kernel.srqs, 0);
        EXPECT_EQ(kernel.qps, 0);
    }

    void open() {
        VerbsContext *opened = registered->alloc_context(&device->device, fd, nullptr);
        ASSERT_NE(opened, nullptr);
        context = &opened->context;
        pd.context = context;
    }

    // Leaves the QP in INIT.
    ibv_qp *create_qp(ibv_cq *send_cq, ibv_cq *recv_cq) {
        ibv_qp_init_attr attr{};
        attr.send_cq = send_cq;
        attr.recv_cq = recv_cq;
        attr.cap.max_send_sge = 2;
        attr.cap.max_recv_sge = 1;
        ibv_qp *created = kernel.ops.create_qp(&pd, &attr);
        if (created != nullptr)
            to_init(created);
        return created;
    }

    static void to_init(ibv_qp *qp) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        EXPECT_EQ(kernel.ops.modify_qp(qp, &attr, IBV_QP_STATE), 0);
    }

    template<class T>
    void poke(std::uint64_t at, T value) {
        std::memcpy(static_cast<char *>(memory.data()) + at, &value, sizeof(value));
    }
    template<class T>
    T peek(std::uint64_t at) {
        T value;
        std::memcpy(&value, static_cast<char *>(memory.data()) + at, sizeof(value));
        return value;
    }

    // The kernel's part: completion number @index of the CQ at @ring.
    void complete(std::uint64_t ring, std::uint32_t index, std::uint32_t qp_num) {
        swp_cqe cqe{};
        cqe.wr_id = index;
        cqe.opcode = SWP_OP_SEND;
        cqe.qp_num = qp_num;
        cqe.gen = static_cast<std::uint16_t>(index / kernel.cq_entries + 1);
        poke(ring + SWP_RING_DATA_OFF + std::uint64_t{index % kernel.cq_entries} * 64, cqe);
    }

    VerbsSysfsDev sysfs{};
    VerbsDevice *device = nullptr;
    int fd = -1;
    softwarp::Mapping memory;
    ibv_context *context = nullptr;
    ibv_pd pd{};
};

// Context -----------------------------------------------------------------------

TEST_F(Provider, OpensWithItsIdAndVersion) {
    open();
    EXPECT_EQ(kernel.driver_id, 0x53575250U);
    EXPECT_EQ(kernel.uctx_req.abi_version, 3U);
    EXPECT_EQ(kernel.uctx_req.reserved, 0U);
}

TEST_F(Provider, SetsTheSlotsItHasAndNoOthers) {
    open();
    std::array<void *, softwarp::abi::by_abi(76, 76, 79, 83, 93)> slots{};
    static_assert(sizeof(slots) == sizeof(kernel.ops));
    std::memcpy(slots.data(), &kernel.ops, sizeof(slots));
    int set = 0;
    for (const void *slot : slots)
        set += slot != nullptr;
    EXPECT_EQ(set, 35);
}

TEST_F(Provider, NewerModule) {
    sysfs.abi_ver = SWP_ABI_VERSION + 1;
    registered->uninit_device(device);
    device = registered->alloc_device(&sysfs);
    std::strcpy(device->device.name, "sw0");
    testing::internal::CaptureStderr();
    errno = 0;
    EXPECT_EQ(registered->alloc_context(&device->device, fd, nullptr), nullptr);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "softwarp: sw0: the kernel module speaks ABI version 4, this libibverbs provider "
              "version 3; install the provider (" SOFTWARP_PLUGIN_FILE ") of the same release\n");
    EXPECT_EQ(kernel.uctx_req.abi_version, 0U) << "the module was not asked";
    EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "the descriptor is closed";
}

TEST_F(Provider, OlderModuleFoundByTheAnswer) {
    kernel.abi_version = 0;
    testing::internal::CaptureStderr();
    EXPECT_EQ(registered->alloc_context(&device->device, fd, nullptr), nullptr);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "softwarp: sw0: the kernel module speaks ABI version 0, this libibverbs provider "
              "version 3; install the kernel module (softwarp.ko) of the same release and load it "
              "again\n");
}

TEST_F(Provider, OpenPassesTheKernelsErrorOn) {
    kernel.next_error = EMFILE;
    EXPECT_EQ(registered->alloc_context(&device->device, fd, nullptr), nullptr);
    EXPECT_EQ(errno, EMFILE);
}

TEST_F(Provider, FirmwareVersion) {
    open();
    kernel.fw_ver = 0x0000000200030005;
    ibv_device_attr_ex attr{};
    EXPECT_EQ(kernel.ops.query_device_ex(context, nullptr, &attr, sizeof(attr)), 0);
    EXPECT_STREQ(attr.orig_attr.fw_ver, "2.3.5");
    kernel.next_error = EIO;
    EXPECT_EQ(kernel.ops.query_device_ex(context, nullptr, &attr, sizeof(attr)), EIO);
}

TEST_F(Provider, RawClock) {
    open();
    const auto now = [] {
        timespec t{};
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1'000'000'000L + t.tv_nsec;
    };
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | 1U << 7;
    const long before = now();
    EXPECT_EQ(kernel.ops.query_rt_values(context, &values), 0);
    EXPECT_EQ(values.comp_mask, std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) << "what is filled in";
    EXPECT_EQ(values.raw_clock.tv_sec, 0);
    EXPECT_GE(values.raw_clock.tv_nsec, before);
    EXPECT_LE(values.raw_clock.tv_nsec, now());
    values.comp_mask = 1U << 7;
    EXPECT_EQ(kernel.ops.query_rt_values(context, &values), EINVAL);
}

TEST_F(Provider, QueryPort) {
    open();
    ibv_port_attr attr{};
    EXPECT_EQ(kernel.ops.query_port(context, 1, &attr), 0);
    EXPECT_EQ(attr.lid, 1);
}

TEST_F(Provider, FatalEventsMoveTheQpsState) {
    open();
    ibv_qp qp{};
    ibv_async_event event{};
    event.element.qp = &qp;
    for (const ibv_event_type type :
         {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
        qp.state = IBV_QPS_RTS;
        event.event_type = type;
        kernel.ops.async_event(context, &event);
        EXPECT_EQ(qp.state, IBV_QPS_ERR);
    }
    qp.state = IBV_QPS_RTS;
    event.event_type = IBV_EVENT_COMM_EST;
    kernel.ops.async_event(context, &event);
    EXPECT_EQ(qp.state, IBV_QPS_RTS);
}

// PD and MR -----------------------------------------------------------------------

TEST_F(Provider, PdAndMr) {
    open();
    ibv_pd *own = kernel.ops.alloc_pd(context);
    ASSERT_NE(own, nullptr);
    ibv_mr *mr = kernel.ops.reg_mr(own, this, 8, 0, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->lkey, 0x1234U);
    auto *vmr = reinterpret_cast<softwarp::abi::VerbsMr *>(mr);
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.dereg_mr(vmr), EBUSY) << "stays alive";
    EXPECT_EQ(kernel.ops.dereg_mr(vmr), 0);
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.dealloc_pd(own), EBUSY);
    EXPECT_EQ(kernel.ops.dealloc_pd(own), 0);

    kernel.next_error = EINVAL;
    EXPECT_EQ(kernel.ops.reg_mr(own, nullptr, 8, 0, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    kernel.next_error = ENOMEM;
    EXPECT_EQ(kernel.ops.alloc_pd(context), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(Provider, RegistersAnew) {
    open();
    ibv_mr *mr = kernel.ops.reg_mr(&pd, this, 8, 0, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    auto *vmr = reinterpret_cast<softwarp::abi::VerbsMr *>(mr);
    EXPECT_EQ(kernel.ops.rereg_mr(vmr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, this, 16, 0), 0);
    EXPECT_EQ(mr->lkey, 0x5678U);
    kernel.next_error = EBUSY;
    errno = 0;
    EXPECT_EQ(kernel.ops.rereg_mr(vmr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1), EBUSY);
    EXPECT_EQ(errno, EBUSY);
    mr->lkey = 0;
    kernel.next_error = EFAULT;
    EXPECT_EQ(kernel.ops.rereg_mr(vmr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, this, 8, 0), 0);
    EXPECT_EQ(mr->lkey, 0x5678U) << "asked once more";
    EXPECT_EQ(kernel.ops.dereg_mr(vmr), 0);
}

TEST_F(Provider, Windows) {
    open();
    ibv_mw *mw = kernel.ops.alloc_mw(&pd, IBV_MW_TYPE_2);
    ASSERT_NE(mw, nullptr);
    EXPECT_EQ(mw->type, IBV_MW_TYPE_2);
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.dealloc_mw(mw), EBUSY) << "stays alive";
    EXPECT_EQ(kernel.ops.dealloc_mw(mw), 0);
    kernel.next_error = ENOMEM;
    EXPECT_EQ(kernel.ops.alloc_mw(&pd, IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

// Domains -------------------------------------------------------------------------

TEST_F(Provider, ParentDomainIsAnotherHandle) {
    open();
    ibv_pd *own = kernel.ops.alloc_pd(context);
    ASSERT_NE(own, nullptr);
    own->handle = 77;
    ibv_td_init_attr td_attr{};
    ibv_td *td = kernel.ops.alloc_td(context, &td_attr);
    ASSERT_NE(td, nullptr);
    EXPECT_EQ(td->context, context);
    ibv_parent_domain_init_attr attr{};
    attr.pd = own;
    attr.td = td;
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    ibv_pd *parent = kernel.ops.alloc_parent_domain(context, &attr);
    ASSERT_NE(parent, nullptr);
    EXPECT_EQ(parent->context, context);
    EXPECT_EQ(parent->handle, 77U);
    attr.td = nullptr;
    ibv_pd *other = kernel.ops.alloc_parent_domain(context, &attr);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(kernel.pds, 1) << "the kernel knows of one";

    EXPECT_EQ(kernel.ops.dealloc_td(td), EBUSY);
    EXPECT_EQ(kernel.ops.dealloc_pd(own), EBUSY);
    EXPECT_EQ(kernel.ops.dealloc_pd(parent), 0);
    EXPECT_EQ(kernel.ops.dealloc_td(td), 0);
    EXPECT_EQ(kernel.ops.dealloc_pd(own), EBUSY);
    EXPECT_EQ(kernel.ops.dealloc_pd(other), 0);
    EXPECT_EQ(kernel.pds, 1);
    EXPECT_EQ(kernel.ops.dealloc_pd(own), 0);
}

TEST_F(Provider, DomainsThatCannotBe) {
    open();
    ibv_td_init_attr td_attr{.comp_mask = 1};
    EXPECT_EQ(kernel.ops.alloc_td(context, &td_attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_parent_domain_init_attr attr{};
    EXPECT_EQ(kernel.ops.alloc_parent_domain(context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL) << "without a PD";
    ibv_context foreign{};
    ibv_pd theirs{.context = &foreign, .handle = 0};
    attr.pd = &theirs;
    EXPECT_EQ(kernel.ops.alloc_parent_domain(context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr.pd = kernel.ops.alloc_pd(context);
    ibv_td td{.context = &foreign};
    attr.td = &td;
    EXPECT_EQ(kernel.ops.alloc_parent_domain(context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr.td = nullptr;
    for (const std::uint32_t mask : {std::uint32_t{IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS}, 4U}) {
        attr.comp_mask = mask;
        EXPECT_EQ(kernel.ops.alloc_parent_domain(context, &attr), nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
    EXPECT_EQ(kernel.ops.dealloc_pd(attr.pd), 0);
}

// SRQ -----------------------------------------------------------------------------

TEST_F(Provider, SrqPostsIntoTheMappedRing) {
    open();
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 3, .max_sge = 2, .srq_limit = 0};
    ibv_srq *srq = kernel.ops.create_srq(&pd, &attr);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(attr.attr.max_wr, 4U);
    std::array<ibv_sge, 3> sg{{{.addr = 1, .length = 2, .lkey = 3}, {}, {}}};
    ibv_recv_wr wr{};
    ibv_recv_wr *bad = nullptr;
    wr.sg_list = sg.data();
    wr.num_sge = 2;
    poke<std::uint32_t>(srq_at + kick_at, 1);
    for (std::uint64_t i = 0; i < 4; ++i) {
        wr.wr_id = 10 + i;
        EXPECT_EQ(kernel.ops.post_srq_recv(srq, &wr, &bad), 0);
    }
    EXPECT_EQ(kernel.ops.post_srq_recv(srq, &wr, &bad), ENOMEM);
    EXPECT_EQ(bad, &wr);
    EXPECT_EQ(peek<std::uint32_t>(srq_at), 4U);
    EXPECT_EQ(peek<std::uint64_t>(srq_at + SWP_RING_DATA_OFF + 3 * 48), 13U);
    EXPECT_EQ(peek<std::uint64_t>(srq_at + SWP_RING_DATA_OFF + 3 * 48 + 16), 1U) << "address";
    EXPECT_TRUE(kernel.doorbells.empty()) << "there is none for an SRQ";
    wr.num_sge = 3;
    EXPECT_EQ(kernel.ops.post_srq_recv(srq, &wr, &bad), EINVAL);

    EXPECT_EQ(kernel.ops.modify_srq(srq, &attr.attr, IBV_SRQ_LIMIT), 0);
    kernel.next_error = EOPNOTSUPP;
    EXPECT_EQ(kernel.ops.modify_srq(srq, &attr.attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
    ibv_srq_attr asked{};
    EXPECT_EQ(kernel.ops.query_srq(srq, &asked), 0);
    EXPECT_EQ(asked.max_wr, 4U);
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.destroy_srq(srq), EBUSY) << "stays alive";
    EXPECT_EQ(kernel.ops.destroy_srq(srq), 0);
}

TEST_F(Provider, SrqFailuresLeaveNothing) {
    open();
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 3, .max_sge = 3, .srq_limit = 0};
    testing::internal::CaptureStderr(); // 16 + 3 * 16 do not fit in 48
    EXPECT_EQ(kernel.ops.create_srq(&pd, &attr), nullptr);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("impossible shared receive queue (4 x"),
              std::string::npos);
    attr.attr.max_sge = 2;
    kernel.srq.ring_key = 1;
    EXPECT_EQ(kernel.ops.create_srq(&pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    kernel.next_error = ENOMEM;
    EXPECT_EQ(kernel.ops.create_srq(&pd, &attr), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

class ProviderSrq : public Provider {
  protected:
    void create() {
        open();
        ibv_srq_init_attr attr{};
        attr.attr = {.max_wr = 3, .max_sge = 2, .srq_limit = 0};
        srq = kernel.ops.create_srq(&pd, &attr);
        ASSERT_NE(srq, nullptr);
    }
    int post(std::uint64_t id) {
        ibv_recv_wr wr{};
        ibv_recv_wr *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = sg.data();
        wr.num_sge = 2;
        return kernel.ops.post_srq_recv(srq, &wr, &bad);
    }
    int resize(std::uint32_t max_wr, int mask = IBV_SRQ_MAX_WR) {
        ibv_srq_attr attr{.max_wr = max_wr, .max_sge = 0, .srq_limit = 1};
        return kernel.ops.modify_srq(srq, &attr, mask);
    }
    // The counters that the kernel writes into the new ring.
    void taken_along(std::uint32_t prod, std::uint32_t cons) {
        poke<std::uint32_t>(srq2_at, prod);
        poke<std::uint32_t>(srq2_at + 64, cons);
    }

    ibv_srq *srq = nullptr;
    std::array<ibv_sge, 2> sg{};
};

TEST_F(ProviderSrq, GoesOnInAnotherRing) {
    create();
    for (std::uint64_t i = 0; i < 4; ++i)
        ASSERT_EQ(post(i), 0);
    kernel.next_error = EINVAL;
    EXPECT_EQ(resize(1), EINVAL);
    EXPECT_EQ(post(4), ENOMEM) << "as it was";
    EXPECT_EQ(peek<std::uint32_t>(srq_at), 4U);

    taken_along(4, 1);
    ASSERT_EQ(resize(8, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
    for (std::uint64_t i = 4; i < 9; ++i)
        EXPECT_EQ(post(i), 0);
    EXPECT_EQ(post(9), ENOMEM);
    EXPECT_EQ(peek<std::uint32_t>(srq_at), 4U) << "nobody writes there any more";
    EXPECT_EQ(peek<std::uint32_t>(srq2_at), 9U);
    EXPECT_EQ(peek<std::uint64_t>(srq2_at + SWP_RING_DATA_OFF + 4 * 48), 4U);
    EXPECT_EQ(peek<std::uint64_t>(srq2_at + SWP_RING_DATA_OFF + 0 * 48), 8U);
    EXPECT_EQ(kernel.ops.destroy_srq(srq), 0);
}

TEST_F(ProviderSrq, WhoseNewRingIsNotToBeHad) {
    create();
    ASSERT_EQ(post(0), 0);
    kernel.resized_srq.ring_key = 1;
    EXPECT_EQ(resize(8), EINVAL);
    EXPECT_EQ(post(1), EINVAL) << "nobody would see it";
    kernel.next_error = EBUSY;
    EXPECT_EQ(resize(8), EBUSY);
    EXPECT_EQ(post(1), EINVAL) << "still";
    kernel.resized_srq = {.ring_key = srq2_at, .ring_bytes = 256, .entries = 8};
    testing::internal::CaptureStderr();
    EXPECT_EQ(resize(8), EPROTO);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("impossible shared receive queue (8 x"),
              std::string::npos);
    EXPECT_EQ(peek<std::uint32_t>(srq_at), 1U);
    kernel.resized_srq.ring_bytes = 8192;
    taken_along(1, 0);
    EXPECT_EQ(resize(8), 0) << "another attempt may do";
    EXPECT_EQ(post(1), 0);
    EXPECT_EQ(peek<std::uint32_t>(srq2_at), 2U);
    EXPECT_EQ(kernel.ops.destroy_srq(srq), 0);
}

// Who posts does not wait for another resize.
TEST_F(ProviderSrq, WhoseNewRingIsToBeHadLater) {
    create();
    ASSERT_EQ(post(0), 0);
    taken_along(1, 0);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    const rlimit none{.rlim_cur = 4096, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    const int error = resize(8);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(post(1), 0);
    EXPECT_EQ(peek<std::uint32_t>(srq2_at), 2U);
    EXPECT_EQ(kernel.ops.destroy_srq(srq), 0);
}

// Posted to while the command is under way, the ring must be the new one.
TEST_F(ProviderSrq, PostsWaitForTheNewRing) {
    create();
    ASSERT_EQ(post(0), 0);
    std::thread poster;
    int posted = -1;
    kernel.in_resize_srq = [&] {
        poster = std::thread{[&] { posted = post(1); }};
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        taken_along(1, 0);
    };
    ASSERT_EQ(resize(8), 0);
    poster.join();
    EXPECT_EQ(posted, 0);
    EXPECT_EQ(peek<std::uint32_t>(srq_at), 1U);
    EXPECT_EQ(peek<std::uint32_t>(srq2_at), 2U);
    EXPECT_EQ(kernel.ops.destroy_srq(srq), 0);
}

// CQ ------------------------------------------------------------------------------

TEST_F(Provider, CqPollsTheMappedRing) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    std::array<ibv_wc, 4> wc{};
    EXPECT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 0);
    complete(cq_at, 0, 1);
    complete(cq_at, 1, 1);
    EXPECT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 2);
    EXPECT_EQ(wc[1].wr_id, 1U);
    EXPECT_EQ(peek<std::uint32_t>(cq_at + 64), 2U) << "cons";
    EXPECT_EQ(kernel.ops.poll_cq(cq, -1, wc.data()), -EINVAL);
    EXPECT_EQ(kernel.ops.req_notify_cq(cq, 0), 0);
    EXPECT_EQ(peek<std::uint32_t>(cq_at + 192), 2U) << "arm";
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.destroy_cq(cq), EBUSY);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
    EXPECT_EQ(kernel.cqs, 0);

    cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    kernel.next_error = EFAULT;
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0) << "tried again";
    EXPECT_EQ(kernel.cqs, 0);
    cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    kernel.next_error = ENOENT;
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0) << "destroyed before, and not answered";
    kernel.cqs = 0;
}

TEST_F(Provider, CqModerationIsTheKernels) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    ibv_modify_cq_attr attr{.attr_mask = IBV_CQ_ATTR_MODERATE,
                            .moderate = {.cq_count = 7, .cq_period = 900}};
    EXPECT_EQ(kernel.ops.modify_cq(cq, &attr), 0);
    EXPECT_EQ(kernel.moderation.cq_count, 7);
    EXPECT_EQ(kernel.moderation.cq_period, 900);
    kernel.next_error = EOPNOTSUPP;
    EXPECT_EQ(kernel.ops.modify_cq(cq, &attr), EOPNOTSUPP);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
}

TEST_F(Provider, CqFailuresLeaveNothing) {
    open();
    kernel.next_error = ENOSPC;
    EXPECT_EQ(kernel.ops.create_cq(context, 5, nullptr, 0), nullptr);
    EXPECT_EQ(errno, ENOSPC);

    kernel.cq_key = 1; // not a page: mmap refuses
    EXPECT_EQ(kernel.ops.create_cq(context, 5, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(kernel.cqs, 0);

    kernel.cq_key = cq_at;
    kernel.cq_entries = 65; // no power of two, and too many for cq_bytes
    testing::internal::CaptureStderr();
    EXPECT_EQ(kernel.ops.create_cq(context, 5, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_NE(
        testing::internal::GetCapturedStderr().find("impossible completion queue (65 entries"),
        std::string::npos);
    EXPECT_EQ(kernel.cqs, 0);
}

TEST_F(Provider, CqGoesOnInAnotherRing) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    std::array<ibv_wc, 4> wc{};
    complete(cq_at, 0, 1);
    complete(cq_at, 1, 1);
    ASSERT_EQ(kernel.ops.poll_cq(cq, 1, wc.data()), 1);
    EXPECT_EQ(kernel.ops.resize_cq(cq, 0), EINVAL);
    EXPECT_EQ(kernel.ops.resize_cq(cq, -1), EINVAL);

    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.resize_cq(cq, 1), EBUSY);
    ASSERT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 1) << "as it was";
    EXPECT_EQ(wc[0].wr_id, 1U);

    ASSERT_EQ(kernel.ops.resize_cq(cq, 16), 0);
    kernel.cq_entries = 16;
    complete(cq_at, 2, 1); // nobody looks there any more
    EXPECT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 0);
    for (std::uint32_t i = 0; i < 9; ++i)
        complete(cq2_at, i, 1);
    for (std::uint32_t i = 0; i < 9; ++i) {
        ASSERT_EQ(kernel.ops.poll_cq(cq, 1, wc.data()), 1);
        EXPECT_EQ(wc[0].wr_id, i);
    }
    EXPECT_EQ(peek<std::uint32_t>(cq2_at + 64), 9U) << "cons";
    EXPECT_EQ(kernel.ops.req_notify_cq(cq, 0), 0);
    EXPECT_EQ(peek<std::uint32_t>(cq2_at + arm_at), 2U);
    EXPECT_EQ(peek<std::uint32_t>(cq_at + arm_at), 0U);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
}

TEST_F(Provider, CqWhoseNewRingIsNotToBeHad) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    complete(cq_at, 0, 1); // which the kernel takes along
    kernel.resized.ring_key = 1;
    EXPECT_EQ(kernel.ops.resize_cq(cq, 16), EINVAL);
    std::array<ibv_wc, 1> wc{};
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, wc.data()), -EINVAL) << "nothing comes to the old one";
    EXPECT_EQ(kernel.ops.req_notify_cq(cq, 0), EINVAL);
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.resize_cq(cq, 1), EBUSY);
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, wc.data()), -EINVAL) << "still";

    kernel.resized = {.ring_key = cq2_at, .ring_bytes = 1024, .entries = 16};
    testing::internal::CaptureStderr();
    EXPECT_EQ(kernel.ops.resize_cq(cq, 16), EPROTO);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("impossible completion queue"),
              std::string::npos);
    kernel.resized.ring_bytes = 8192;
    EXPECT_EQ(kernel.ops.resize_cq(cq, 16), 0) << "another attempt may do";
    complete(cq2_at, 0, 1);
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, wc.data()), 1);
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, wc.data()), 0);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
}

TEST_F(Provider, CqIsResizedWithoutAnAnswer) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    kernel.next_error = EFAULT;
    EXPECT_EQ(kernel.ops.resize_cq(cq, 16), 0);
    EXPECT_EQ(cq->cqe, 16);
    complete(cq2_at, 0, 1);
    ibv_wc wc{};
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, &wc), 1);
    kernel.resized.entries = 0;
    kernel.next_error = EFAULT;
    EXPECT_EQ(kernel.ops.resize_cq(cq, 8), EFAULT) << "did not even begin";
    complete(cq2_at, 1, 1);
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, &wc), 1);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
}

// Who polls does not wait for another resize.
TEST_F(Provider, CqWhoseNewRingIsToBeHadLater) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    const rlimit none{.rlim_cur = 4096, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    const int error = kernel.ops.resize_cq(cq, 16);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_EQ(error, ENOMEM);
    complete(cq2_at, 0, 1);
    std::array<ibv_wc, 4> wc{};
    EXPECT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 1);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
}

// Polled and armed while the command is under way, the ring must be the new one.
TEST_F(Provider, PollAndArmWaitForTheNewRing) {
    open();
    ibv_cq *cq = kernel.ops.create_cq(context, 5, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    complete(cq_at, 0, 1); // which the kernel takes along
    std::thread poller;
    std::thread armer;
    int polled = -1;
    kernel.in_resize_cq = [&] {
        poller = std::thread{[&] {
            ibv_wc wc{};
            polled = kernel.ops.poll_cq(cq, 1, &wc);
        }};
        armer = std::thread{[&] { kernel.ops.req_notify_cq(cq, 0); }};
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        complete(cq2_at, 0, 1);
    };
    ASSERT_EQ(kernel.ops.resize_cq(cq, 16), 0);
    poller.join();
    armer.join();
    EXPECT_EQ(polled, 1) << "not told that there is nothing";
    EXPECT_EQ(peek<std::uint32_t>(cq_at + 64), 0U);
    EXPECT_EQ(peek<std::uint32_t>(cq2_at + 64), 1U);
    EXPECT_EQ(peek<std::uint32_t>(cq_at + arm_at), 0U);
    EXPECT_EQ(peek<std::uint32_t>(cq2_at + arm_at), 2U);
    EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
}

// CQ, extended ----------------------------------------------------------------------

class ProviderCqEx : public Provider {
  protected:
    ibv_cq_ex *create(std::uint64_t wc_flags, std::uint32_t comp_mask = 0,
                      std::uint32_t flags = 0) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 8;
        attr.wc_flags = wc_flags;
        attr.comp_mask = comp_mask;
        attr.flags = flags;
        return kernel.ops.create_cq_ex(context, &attr);
    }
    void destroy(ibv_cq_ex *cq) { EXPECT_EQ(kernel.ops.destroy_cq(ibv_cq_ex_to_cq(cq)), 0); }
};

TEST_F(ProviderCqEx, RefusesWhatItHasNot) {
    open();
    for (const std::uint64_t flag :
         {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO,
          IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK}) {
        EXPECT_EQ(create(flag), nullptr) << flag;
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
    EXPECT_EQ(create(0, IBV_CQ_INIT_ATTR_MASK_PD), nullptr);
    EXPECT_EQ(errno, EINVAL) << "without one";
    EXPECT_EQ(create(0, 4), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(create(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    kernel.next_error = ENOMEM;
    EXPECT_EQ(create(0), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    ibv_cq_ex *cq = create(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(cq->read_byte_len, nullptr) << "not asked for";
    EXPECT_EQ(cq->read_completion_ts, nullptr);
    destroy(cq);
}

TEST_F(ProviderCqEx, ReadsStepByStep) {
    open();
    ibv_cq_ex *cq =
        create(std::uint64_t{IBV_WC_STANDARD_FLAGS} + IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    ASSERT_NE(cq, nullptr);
    ibv_poll_cq_attr attr{};
    EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
    EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT) << "not locked by the first";
    attr.comp_mask = 1;
    EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL);
    attr.comp_mask = 0;

    swp_cqe cqe{};
    cqe.wr_id = 0xabcdef;
    cqe.opcode = SWP_OP_RECV_IMM;
    cqe.flags = SWP_CQE_WITH_IMM;
    cqe.imm_inv = 0x01020304;
    cqe.byte_len = 99;
    cqe.qp_num = 7;
    cqe.timestamp = 0x1122334455667788;
    cqe.gen = 1;
    poke(cq_at + SWP_RING_DATA_OFF, cqe);
    cqe.wr_id = 2;
    cqe.opcode = SWP_OP_READ;
    cqe.flags = 0;
    cqe.status = IBV_WC_REM_ACCESS_ERR;
    cqe.vendor_err = 0xc0000101;
    poke(cq_at + SWP_RING_DATA_OFF + 64, cqe);

    ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
    EXPECT_EQ(cq->wr_id, 0xabcdefU);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(ibv_wc_read_imm_data(cq), 0x01020304U);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 99U);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), 7U);
    EXPECT_EQ(ibv_wc_read_src_qp(cq), 0U);
    EXPECT_EQ(ibv_wc_read_slid(cq), 0U);
    EXPECT_EQ(ibv_wc_read_sl(cq), 0U);
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0U);
    EXPECT_EQ(ibv_wc_read_completion_ts(cq), 0x1122334455667788U);
    EXPECT_EQ(kernel.ops.req_notify_cq(ibv_cq_ex_to_cq(cq), 0), 0) << "arming does not wait";
    ASSERT_EQ(ibv_next_poll(cq), 0);
    EXPECT_EQ(cq->wr_id, 2U);
    EXPECT_EQ(cq->status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_wc_read_vendor_err(cq), 0xc0000101U);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    EXPECT_EQ(peek<std::uint32_t>(cq_at + 64), 2U) << "cons";

    complete(cq_at, 2, 1);
    ibv_wc wc{};
    EXPECT_EQ(kernel.ops.poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc), 1) << "the other way works, too";
    destroy(cq);
}

// QP ------------------------------------------------------------------------------

// The flags of a QP where a library for x86 looks; the QP's mutex is larger on some processors.
std::uint32_t flag_at(const ibv_qp *qp, std::size_t at) {
    std::uint32_t flag = 0;
    std::memcpy(&flag, reinterpret_cast<const std::byte *>(qp) + at + sizeof(pthread_mutex_t) - 40,
                sizeof(flag));
    return flag;
}

class ProviderQp : public Provider {
  protected:
    void SetUp() override {
        Provider::SetUp();
        open();
        cq = kernel.ops.create_cq(context, 8, nullptr, 0);
        ASSERT_NE(cq, nullptr);
    }
    void TearDown() override {
        if (qp != nullptr) {
            EXPECT_EQ(kernel.ops.destroy_qp(qp), 0);
        }
        EXPECT_EQ(kernel.ops.destroy_cq(cq), 0);
        Provider::TearDown();
    }

    ibv_cq *cq = nullptr;
    ibv_qp *qp = nullptr;
    ibv_send_wr *bad = nullptr;
    ibv_recv_wr *bad_recv = nullptr;
};

TEST_F(ProviderQp, GrantsWhatTheModuleGrants) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap.max_send_sge = 2;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = 1;
    qp = kernel.ops.create_qp(&pd, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(attr.cap.max_inline_data, 96U);
    to_init(qp);
    std::array<unsigned char, 97> data{};
    ibv_sge sg{.addr = reinterpret_cast<std::uintptr_t>(data.data()), .length = 96, .lkey = 0};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.sg_list = &sg;
    wr.num_sge = 1;
    EXPECT_EQ(kernel.ops.post_send(qp, &wr, &bad), 0);
    sg.length = 97;
    EXPECT_EQ(kernel.ops.post_send(qp, &wr, &bad), EINVAL);
}

TEST_F(ProviderQp, TakesNoRequestsInReset) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(kernel.ops.modify_qp(qp, &attr, IBV_QP_STATE), 0);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    ibv_recv_wr recv{};
    EXPECT_EQ(kernel.ops.post_send(qp, &send, &bad), EINVAL);
    EXPECT_EQ(bad, &send);
    EXPECT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), EINVAL);
    EXPECT_EQ(bad_recv, &recv);
    EXPECT_EQ(peek<std::uint32_t>(sq_at), 0U);
    EXPECT_EQ(peek<std::uint32_t>(rq_at), 0U);
}

TEST_F(ProviderQp, NoExtendedQp) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    // Where rdma-core 44 and later ones look for the flag.
    EXPECT_EQ(flag_at(qp, 352), 0U);
    EXPECT_EQ(flag_at(qp, 360), 0U);
}

TEST_F(ProviderQp, PostsIntoTheMappedRings) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    ibv_send_wr send{};
    send.wr_id = 5;
    send.opcode = IBV_WR_SEND;
    ibv_recv_wr recv{};
    recv.wr_id = 6;
    EXPECT_EQ(kernel.ops.post_send(qp, &send, &bad), 0);
    EXPECT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), 0);
    EXPECT_EQ(peek<std::uint32_t>(sq_at), 1U);
    EXPECT_EQ(peek<std::uint64_t>(sq_at + SWP_RING_DATA_OFF), 5U);
    EXPECT_EQ(peek<std::uint32_t>(rq_at), 1U);
    EXPECT_EQ(peek<std::uint64_t>(rq_at + SWP_RING_DATA_OFF), 6U);
    EXPECT_TRUE(kernel.doorbells.empty());
}

TEST_F(ProviderQp, DoorbellIsOnePostSendCommand) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    poke<std::uint32_t>(sq_at + kick_at, 1);
    poke<std::uint32_t>(rq_at + kick_at, 1);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    ibv_recv_wr recv{};
    EXPECT_EQ(kernel.ops.post_send(qp, &send, &bad), 0);
    EXPECT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), 0);
    ASSERT_EQ(kernel.doorbells.size(), 2U);
    for (const std::string &bytes : kernel.doorbells) {
        ASSERT_EQ(bytes.size(), 32U);
        const auto word = [&](std::size_t at) {
            std::uint32_t value = 0;
            std::memcpy(&value, bytes.data() + at, sizeof(value));
            return value;
        };
        EXPECT_EQ(word(0), std::uint32_t{IB_USER_VERBS_CMD_POST_SEND});
        EXPECT_EQ(word(4), 8U | 1U << 16) << "8 words in, 1 word out";
        EXPECT_NE(word(8) | word(12), 0U) << "response pointer";
        EXPECT_EQ(word(16), 0x77U) << "QP handle";
        EXPECT_EQ(word(20), 0U) << "no work requests";
        EXPECT_EQ(word(24), 0U) << "no SGEs";
        EXPECT_EQ(word(28), sizeof(ib_uverbs_send_wr));
    }
}

TEST_F(ProviderQp, DoorbellErrors) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    poke<std::uint32_t>(sq_at + kick_at, 1);
    std::array<ibv_send_wr, 2> wr{};
    wr[0].opcode = wr[1].opcode = IBV_WR_SEND;
    wr[0].next = &wr[1];

    kernel.write_errors = {EINTR, EINTR};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), 0) << "tried again";
    EXPECT_EQ(kernel.doorbells.size(), 1U);

    poke<std::uint32_t>(sq_at + 64, 2);
    kernel.write_errors = {ENOMEM, EFAULT, ENOMEM, EINTR, ENOMEM};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), 0) << "rung until somebody hears it";
    EXPECT_TRUE(kernel.write_errors.empty());
    EXPECT_EQ(kernel.doorbells.size(), 2U);

    poke<std::uint32_t>(sq_at + 64, 4);
    kernel.write_errors = {ENOMEM, EIO};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), EIO) << "the device is gone";
    EXPECT_EQ(bad, wr.data());

    poke<std::uint32_t>(sq_at + 64, 6);
    kernel.write_errors = {EACCES, EACCES};
    kernel.next_error = ENOMEM;
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), 0) << "by ioctl";
    EXPECT_EQ(kernel.ioctl_doorbells, 2);

    poke<std::uint32_t>(sq_at + 64, 8);
    wr[1].opcode = IBV_WR_TSO;
    kernel.write_errors = {EIO};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), EOPNOTSUPP) << "the request's own error";
    EXPECT_EQ(bad, &wr[1]);
}

TEST_F(ProviderQp, QueuesWithoutEntries) {
    kernel.qp.sq_entries = 0;
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    EXPECT_EQ(kernel.ops.post_send(qp, &send, &bad), ENOMEM);
    EXPECT_EQ(bad, &send);
    ibv_recv_wr recv{};
    EXPECT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), 0);
}

TEST_F(ProviderQp, WithSrqHasNoReceiveQueue) {
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {.max_wr = 3, .max_sge = 2, .srq_limit = 0};
    ibv_srq *srq = kernel.ops.create_srq(&pd, &srq_attr);
    ASSERT_NE(srq, nullptr);
    kernel.qp.rq_entries = kernel.qp.rq_offset = 0;
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap.max_send_sge = 2;
    qp = kernel.ops.create_qp(&pd, &attr);
    ASSERT_NE(qp, nullptr);
    to_init(qp);
    ibv_recv_wr recv{};
    EXPECT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), EINVAL);
    EXPECT_EQ(bad_recv, &recv);
    EXPECT_EQ(kernel.ops.post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(kernel.ops.destroy_qp(qp), 0);
    qp = nullptr;
    EXPECT_EQ(kernel.ops.destroy_srq(srq), 0);
}

TEST_F(ProviderQp, BindingTypeOneChangesTheKey) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    ibv_mw mw{};
    mw.rkey = 0x123456ff;
    mw.type = IBV_MW_TYPE_1;
    ibv_mr mr{};
    mr.lkey = 0x789;
    ibv_mw_bind bind{};
    bind.wr_id = 4;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {
        .mr = &mr, .addr = 0x1000, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
    EXPECT_EQ(kernel.ops.bind_mw(qp, &mw, &bind), 0);
    EXPECT_EQ(mw.rkey, 0x12345600U) << "the key alone wraps";
    EXPECT_EQ(peek<std::uint32_t>(sq_at), 1U);
    EXPECT_EQ(peek<std::uint64_t>(sq_at + SWP_RING_DATA_OFF), 4U);
    EXPECT_EQ(peek<std::uint8_t>(sq_at + SWP_RING_DATA_OFF + 8), 5U) << "SWP_OP_BIND_MW";
    EXPECT_EQ(peek<std::uint8_t>(sq_at + SWP_RING_DATA_OFF + 9), 1U);
    EXPECT_EQ(peek<std::uint32_t>(sq_at + SWP_RING_DATA_OFF + 24), 0x12345600U);
    EXPECT_EQ(peek<std::uint64_t>(sq_at + SWP_RING_DATA_OFF + 32), 0x1000U);
    EXPECT_EQ(peek<std::uint64_t>(sq_at + SWP_RING_DATA_OFF + 40), 64U);
    EXPECT_EQ(peek<std::uint32_t>(sq_at + SWP_RING_DATA_OFF + 48), 0x789U);
    EXPECT_EQ(peek<std::uint32_t>(sq_at + SWP_RING_DATA_OFF + 52), 4U);

    bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
    EXPECT_EQ(kernel.ops.bind_mw(qp, &mw, &bind), EINVAL);
    EXPECT_EQ(mw.rkey, 0x12345600U);
    bind.bind_info = {};
    EXPECT_EQ(kernel.ops.bind_mw(qp, &mw, &bind), 0) << "unbinds";
    EXPECT_EQ(mw.rkey, 0x12345601U);
}

// QP, extended ----------------------------------------------------------------------

class ProviderQpEx : public ProviderQp {
  protected:
    ibv_qp *create(std::uint64_t operations,
                   std::uint32_t comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                   std::uint32_t create_flags = 0) {
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap.max_send_sge = 2;
        attr.cap.max_recv_sge = 1;
        attr.comp_mask = comp_mask;
        attr.pd = &pd;
        attr.create_flags = create_flags;
        attr.send_ops_flags = operations;
        return kernel.ops.create_qp_ex(context, &attr);
    }

    // With all operations, in INIT.
    void make() {
        qp = create(0x3ff);
        ASSERT_NE(qp, nullptr);
        to_init(qp);
        qpx = reinterpret_cast<ibv_qp_ex *>(qp);
    }

    [[nodiscard]] std::uint64_t entry(std::uint32_t slot) const {
        return sq_at + SWP_RING_DATA_OFF + std::uint64_t{slot} * 128;
    }

    ibv_qp_ex *qpx = nullptr;
};

TEST_F(ProviderQpEx, RefusesWhatItHasNot) {
    for (const std::uint64_t operation : {std::uint64_t{IBV_QP_EX_WITH_TSO}, std::uint64_t{1} << 11,
                                          std::uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE}}) {
        EXPECT_EQ(create(IBV_QP_EX_WITH_SEND | operation), nullptr) << operation;
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
    for (const unsigned bit : {1U, 3U, 4U, 5U, 7U}) {
        EXPECT_EQ(create(0, IBV_QP_INIT_ATTR_PD | 1U << bit), nullptr) << bit;
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
    EXPECT_EQ(create(0, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(create(IBV_QP_EX_WITH_SEND, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS), nullptr);
    EXPECT_EQ(errno, EINVAL) << "no PD";
    kernel.next_error = ENOMEM;
    EXPECT_EQ(create(IBV_QP_EX_WITH_SEND), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(ProviderQpEx, FlagIsWhereAnyLibraryLooks) {
    qp = create(IBV_QP_EX_WITH_SEND, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                         IBV_QP_INIT_ATTR_CREATE_FLAGS);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(kernel.qp_comp_mask, 1U | 1U << 6) << "what the command knows";
    EXPECT_EQ(flag_at(qp, 352), SOFTWARP_PRIVATE_ABI == 34 ? 2U : 0U)
        << "wr_flush but for rdma-core 44";
    EXPECT_EQ(flag_at(qp, 360), 2U);
    const auto *ex = reinterpret_cast<const ibv_qp_ex *>(qp);
    EXPECT_NE(ex->wr_send, nullptr);
    EXPECT_EQ(ex->wr_rdma_read, nullptr) << "not asked for";
}

TEST_F(ProviderQpEx, IsPlainWithoutOperations) {
    qp = create(0, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(flag_at(qp, 352), 0U);
    EXPECT_EQ(flag_at(qp, 360), 0U);
}

TEST_F(ProviderQpEx, BuildsRequests) {
    make();
    ibv_wr_start(qpx);
    qpx->wr_id = 1;
    qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    ibv_wr_rdma_write_imm(qpx, 0x55, 0x1000, 0x0a0b0c0d);
    ibv_wr_set_sge(qpx, 7, 8, 9);
    qpx->wr_id = 2;
    qpx->wr_flags = IBV_SEND_FENCE;
    ibv_wr_atomic_cmp_swp(qpx, 0x66, 0x2000, 11, 12);
    const std::array<ibv_sge, 2> sg{
        {{.addr = 1, .length = 8, .lkey = 2}, {.addr = 3, .length = 8, .lkey = 4}}};
    ibv_wr_set_sge_list(qpx, 1, sg.data());
    qpx->wr_id = 3;
    ibv_wr_send(qpx);
    std::array<char, 4> text{'a', 'b', 'c', 'd'};
    const std::array<ibv_data_buf, 3> buffers{{{.addr = text.data(), .length = 3},
                                               {.addr = nullptr, .length = 0},
                                               {.addr = text.data() + 3, .length = 1}}};
    ibv_wr_set_inline_data_list(qpx, 3, buffers.data());
    EXPECT_EQ(peek<std::uint32_t>(sq_at), 0U) << "nothing yet";
    EXPECT_EQ(ibv_wr_complete(qpx), 0);
    EXPECT_EQ(peek<std::uint32_t>(sq_at), 3U);

    EXPECT_EQ(peek<std::uint64_t>(entry(0)), 1U);
    EXPECT_EQ(peek<std::uint8_t>(entry(0) + 8), 8U) << "SWP_OP_WRITE_IMM";
    EXPECT_EQ(peek<std::uint8_t>(entry(0) + 9), 1U | 2U);
    EXPECT_EQ(peek<std::uint16_t>(entry(0) + 10), 1U);
    EXPECT_EQ(peek<std::uint64_t>(entry(0) + 16), 0x1000U);
    EXPECT_EQ(peek<std::uint32_t>(entry(0) + 24), 0x55U);
    EXPECT_EQ(peek<std::uint32_t>(entry(0) + 28), 0x0a0b0c0dU);
    EXPECT_EQ(peek<std::uint64_t>(entry(0) + 32), 8U) << "address";
    EXPECT_EQ(peek<std::uint32_t>(entry(0) + 40), 7U) << "lkey";
    EXPECT_EQ(peek<std::uint32_t>(entry(0) + 44), 9U) << "length";

    EXPECT_EQ(peek<std::uint8_t>(entry(1) + 8), 7U) << "SWP_OP_CMP_SWAP";
    EXPECT_EQ(peek<std::uint8_t>(entry(1) + 9), 8U);
    EXPECT_EQ(peek<std::uint16_t>(entry(1) + 10), 1U);
    EXPECT_EQ(peek<std::uint64_t>(entry(1) + 32), 1U);
    EXPECT_EQ(peek<std::uint64_t>(entry(1) + 48), 12U) << "to store";
    EXPECT_EQ(peek<std::uint64_t>(entry(1) + 56), 11U) << "to compare";

    EXPECT_EQ(peek<std::uint8_t>(entry(2) + 8), 2U) << "SWP_OP_SEND";
    EXPECT_EQ(peek<std::uint8_t>(entry(2) + 9), 4U | 8U) << "inline";
    EXPECT_EQ(peek<std::uint16_t>(entry(2) + 10), 0U);
    EXPECT_EQ(peek<std::uint32_t>(entry(2) + 12), 4U);
    EXPECT_EQ(peek<std::uint32_t>(entry(2) + 32), 0x64636261U);
}

TEST_F(ProviderQpEx, EveryOperation) {
    make();
    poke<std::uint32_t>(sq_at + kick_at, 1);
    ibv_mr mr{};
    mr.lkey = 0x99;
    ibv_mw mw{};
    mw.type = IBV_MW_TYPE_2;
    mw.rkey = 0x100;
    const ibv_mw_bind_info info{
        .mr = &mr, .addr = 5, .length = 6, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    std::uint32_t n = 0;
    const auto post = [&](std::uint8_t opcode, auto &&build) {
        ibv_wr_start(qpx);
        qpx->wr_id = n;
        qpx->wr_flags = 0;
        build();
        EXPECT_EQ(ibv_wr_complete(qpx), 0) << unsigned{opcode};
        const std::uint32_t slot = n++ % 4;
        EXPECT_EQ(peek<std::uint8_t>(entry(slot) + 8), opcode);
        EXPECT_EQ(peek<std::uint64_t>(entry(slot)), n - 1);
        poke<std::uint32_t>(sq_at + 64, n); // done
        return entry(slot);
    };
    const auto with_sge = [&] { ibv_wr_set_sge(qpx, 1, 2, 8); };
    post(SWP_OP_WRITE, [&] {
        ibv_wr_rdma_write(qpx, 1, 2);
        with_sge();
    });
    post(SWP_OP_READ, [&] {
        ibv_wr_rdma_read(qpx, 1, 2);
        with_sge();
    });
    post(SWP_OP_SEND, [&] { ibv_wr_send(qpx); });
    std::uint64_t at = post(SWP_OP_SEND_INV, [&] {
        ibv_wr_send_inv(qpx, 0x4242);
        with_sge();
    });
    EXPECT_EQ(peek<std::uint32_t>(at + 28), 0x4242U);
    at = post(SWP_OP_SEND_IMM, [&] {
        ibv_wr_send_imm(qpx, 0x4343);
        ibv_wr_set_sge(qpx, 1, 2, 0);
    });
    EXPECT_EQ(peek<std::uint32_t>(at + 28), 0x4343U);
    EXPECT_EQ(peek<std::uint16_t>(at + 10), 0U);
    at = post(SWP_OP_LOCAL_INV, [&] { ibv_wr_local_inv(qpx, 0x4444); });
    EXPECT_EQ(peek<std::uint32_t>(at + 28), 0x4444U);
    at = post(SWP_OP_BIND_MW, [&] { ibv_wr_bind_mw(qpx, &mw, 0x101, &info); });
    EXPECT_EQ(peek<std::uint32_t>(at + 24), 0x101U);
    EXPECT_EQ(peek<std::uint64_t>(at + 32), 5U);
    EXPECT_EQ(peek<std::uint32_t>(at + 48), 0x99U);
    at = post(SWP_OP_FETCH_ADD, [&] {
        ibv_wr_atomic_fetch_add(qpx, 1, 2, 77);
        with_sge();
    });
    EXPECT_EQ(peek<std::uint64_t>(at + 48), 77U);
    EXPECT_EQ(kernel.doorbells.size(), n) << "one per list";
}

TEST_F(ProviderQpEx, AnErrorPostsNothing) {
    make();
    poke<std::uint32_t>(sq_at + kick_at, 1);
    std::array<char, 97> data{};
    ibv_mr mr{};
    ibv_mw mw{};
    mw.type = IBV_MW_TYPE_1;
    const ibv_mw_bind_info info{
        .mr = &mr, .addr = 5, .length = 6, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    const std::array<ibv_sge, 3> sg{};
    const auto refused = [&](int error, auto &&build) {
        ibv_wr_start(qpx);
        qpx->wr_flags = 0;
        ibv_wr_send(qpx);
        build();
        ibv_wr_send(qpx);
        EXPECT_EQ(ibv_wr_complete(qpx), error);
        EXPECT_EQ(peek<std::uint32_t>(sq_at), 0U);
    };
    refused(EINVAL, [&] { ibv_wr_set_inline_data(qpx, data.data(), 97); });
    refused(EINVAL, [&] { ibv_wr_set_sge_list(qpx, 3, sg.data()); });
    refused(EINVAL, [&] {
        qpx->wr_flags = 1U << 9;
        ibv_wr_send(qpx);
    });
    refused(EINVAL, [&] { ibv_wr_atomic_fetch_add(qpx, 1, 2, 3); }); // and no place for the answer
    refused(EINVAL, [&] {
        ibv_wr_atomic_fetch_add(qpx, 1, 2, 3);
        ibv_wr_set_sge_list(qpx, 2, sg.data());
    });
    refused(EINVAL, [&] {
        ibv_wr_rdma_read(qpx, 1, 2);
        ibv_wr_set_inline_data(qpx, data.data(), 1);
    });
    refused(EINVAL, [&] {
        ibv_wr_local_inv(qpx, 1);
        ibv_wr_set_sge(qpx, 1, 2, 3);
    });
    refused(EINVAL, [&] { ibv_wr_bind_mw(qpx, &mw, mw.rkey, &info); }); // type 1
    mw.type = IBV_MW_TYPE_2;
    refused(EINVAL, [&] { ibv_wr_bind_mw(qpx, &mw, mw.rkey + 0x100, &info); });
    refused(EOPNOTSUPP, [&] {
        ibv_wr_send_imm(qpx, 1);
        ibv_wr_set_sge(qpx, 1, 2, 3);
    });
    refused(EOPNOTSUPP, [&] {
        ibv_wr_send_imm(qpx, 1);
        ibv_wr_set_inline_data(qpx, data.data(), 1);
    });
    refused(ENOMEM, [&] {
        for (int i = 0; i < 4; ++i)
            ibv_wr_send(qpx);
    });
    EXPECT_TRUE(kernel.doorbells.empty());

    ibv_wr_start(qpx);
    ibv_wr_send(qpx);
    ibv_wr_abort(qpx);
    ibv_wr_start(qpx);
    EXPECT_EQ(ibv_wr_complete(qpx), 0) << "an empty list";
    EXPECT_EQ(peek<std::uint32_t>(sq_at), 0U);

    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(kernel.ops.modify_qp(qp, &attr, IBV_QP_STATE), 0);
    ibv_wr_start(qpx);
    ibv_wr_send(qpx);
    EXPECT_EQ(ibv_wr_complete(qpx), EINVAL) << "in RESET";
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    to_init(qp);
    EXPECT_EQ(kernel.ops.post_send(qp, &wr, &bad), 0) << "the lock is free";
}

TEST_F(ProviderQp, FailuresLeaveNothing) {
    kernel.next_error = EINVAL;
    EXPECT_EQ(create_qp(cq, cq), nullptr);
    EXPECT_EQ(errno, EINVAL);

    kernel.qp.ring_key = 1; // not to be mapped
    EXPECT_EQ(create_qp(cq, cq), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(kernel.qps, 0);
    kernel.qp.ring_key = sq_at;

    const auto impossible = [&](const swp_create_qp_resp &described) {
        const swp_create_qp_resp good = std::exchange(kernel.qp, described);
        testing::internal::CaptureStderr();
        EXPECT_EQ(create_qp(cq, cq), nullptr);
        EXPECT_EQ(errno, EPROTO);
        EXPECT_NE(testing::internal::GetCapturedStderr().find("impossible queue pair"),
                  std::string::npos);
        EXPECT_EQ(kernel.qps, 0);
        kernel.qp = good;
    };
    swp_create_qp_resp bad_qp = kernel.qp;
    bad_qp.sq_stride = 64; // 32 + 96 bytes of inline data do not fit
    impossible(bad_qp);
    for (const std::uint32_t offset : {SWP_RING_DATA_OFF + 3 * 128U,       // in the SQ's last entry
                                       rq_offset + 16U,                    // not aligned
                                       8192U - 64U, 8192U, 8192U + 64U}) { // no room for the RQ
        bad_qp = kernel.qp;
        bad_qp.rq_offset = offset;
        impossible(bad_qp);
    }
}

TEST_F(ProviderQp, ModifyToResetReloadsTheCounters) {
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    ibv_recv_wr recv{};
    ASSERT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), 0);
    poke<std::uint32_t>(rq_at, 0); // the module starts the queues afresh
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(kernel.ops.modify_qp(qp, &attr, IBV_QP_STATE), 0);
    to_init(qp);
    recv.wr_id = 9;
    ASSERT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), 0);
    EXPECT_EQ(peek<std::uint32_t>(rq_at), 1U);
    EXPECT_EQ(peek<std::uint64_t>(rq_at + SWP_RING_DATA_OFF), 9U);
    kernel.next_error = EINVAL;
    EXPECT_EQ(kernel.ops.modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    ibv_qp_init_attr init{};
    EXPECT_EQ(kernel.ops.query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
}

TEST_F(ProviderQp, DestroyTakesTheCompletionsAlong) {
    kernel.cq_key = cq2_at;
    ibv_cq *recv_cq = kernel.ops.create_cq(context, 8, nullptr, 0);
    ASSERT_NE(recv_cq, nullptr);
    ibv_qp *dying = create_qp(cq, recv_cq);
    ASSERT_NE(dying, nullptr);
    complete(cq_at, 0, 100);
    complete(cq_at, 1, 55);
    complete(cq2_at, 0, 100);
    kernel.next_error = EBUSY;
    EXPECT_EQ(kernel.ops.destroy_qp(dying), EBUSY);
    EXPECT_EQ(kernel.ops.destroy_qp(dying), 0);
    std::array<ibv_wc, 4> wc{};
    EXPECT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 1);
    EXPECT_EQ(wc[0].qp_num, 55U);
    EXPECT_EQ(kernel.ops.poll_cq(recv_cq, 4, wc.data()), 0);
    EXPECT_EQ(kernel.ops.destroy_cq(recv_cq), 0);
}

// Of a device that is gone, everything that a program destroys is gone already,
// in whatever order it does that.
TEST_F(ProviderQp, OutlivesItsCq) {
    kernel.cq_key = cq2_at;
    ibv_cq *gone = kernel.ops.create_cq(context, 8, nullptr, 0);
    ASSERT_NE(gone, nullptr);
    ibv_qp *orphan = create_qp(gone, cq);
    ASSERT_NE(orphan, nullptr);
    complete(cq2_at, 0, 100);
    complete(cq_at, 0, 100);
    EXPECT_EQ(kernel.ops.destroy_cq(gone), 0);
    EXPECT_EQ(kernel.ops.destroy_qp(orphan), 0);
    ibv_wc wc{};
    EXPECT_EQ(kernel.ops.poll_cq(cq, 1, &wc), 0);
}

// While destroy_qp() still waits for the acknowledgement of events, another
// thread gets the number for a QP of its own, with completions of its own.
TEST_F(ProviderQp, NumberReusedDuringDestroy) {
    ibv_qp *dying = create_qp(cq, cq);
    ASSERT_NE(dying, nullptr);
    complete(cq_at, 0, 100);
    kernel.in_destroy_qp = [this] {
        qp = create_qp(cq, cq);
        complete(cq_at, 1, 100);
    };
    EXPECT_EQ(kernel.ops.destroy_qp(dying), 0);
    ASSERT_NE(qp, nullptr);
    std::array<ibv_wc, 4> wc{};
    ASSERT_EQ(kernel.ops.poll_cq(cq, 4, wc.data()), 1) << "the new QP's, not the old one's";
    EXPECT_EQ(wc[0].wr_id, 1U);
}

// Helpers -------------------------------------------------------------------------

TEST(SpinlockTest, Excludes) {
    softwarp::Spinlock lock;
    long counter = 0;
    const auto work = [&] {
        for (int i = 0; i < 50000; ++i) {
            lock.lock();
            counter = counter + 1;
            lock.unlock();
        }
    };
    std::thread other{work};
    work();
    other.join();
    EXPECT_EQ(counter, 100000);
}

TEST(MappingTest, MovesAndUnmaps) {
    const int fd = memfd_create("mapping", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 8192), 0);
    softwarp::Mapping first;
    ASSERT_EQ(first.map(fd, 4096, 4096), 0);
    EXPECT_EQ(first.map(fd, 1, 4096), EINVAL);
    EXPECT_EQ(first.size(), 4096U) << "a failure changes nothing";
    void *at = first.data();
    {
        const softwarp::Mapping second{std::move(first)};
        EXPECT_EQ(second.data(), at);
        // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
        EXPECT_EQ(first.data(), nullptr);
    }
    EXPECT_EQ(msync(at, 4096, MS_ASYNC), -1) << "no longer mapped";
    EXPECT_EQ(errno, ENOMEM);
    close(fd);
}

} // namespace
