// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The provider's objects between a fake library and a fake device: mapping,
// error paths, doorbells, and completions across the death of a QP.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "common/mapping.hpp"
#include "common/spinlock.hpp"
#include "fake_verbs.hpp"

namespace {

using softwarp::abi34::VerbsContext;
using softwarp::abi34::VerbsDevice;
using softwarp::abi34::VerbsSysfsDev;

constexpr std::uint64_t sq_at = 0x10000;
constexpr std::uint64_t rq_at = 0x20000;
constexpr std::uint64_t cq_at = 0x30000;
constexpr std::uint64_t cq2_at = 0x40000;
constexpr std::size_t file_bytes = 0x50000;
constexpr std::size_t kick_at = 128;

class Provider : public testing::Test {
  protected:
    void SetUp() override {
        kernel = FakeKernel{};
        kernel.qp = {.sq_key = sq_at,
                     .rq_key = rq_at,
                     .sq_bytes = 4096 + 4096,
                     .rq_bytes = 4096 + 4096,
                     .sq_entries = 4,
                     .rq_entries = 4,
                     .sq_stride = 128,
                     .rq_stride = 32,
                     .qp_id = 100,
                     .max_inline = 96};
        kernel.cq_key = cq_at;
        sysfs.abi_ver = 1;
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
        EXPECT_EQ(kernel.cqs, 0);
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
        poke(ring + 4096 + std::uint64_t{index % kernel.cq_entries} * 64, cqe);
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
    EXPECT_EQ(kernel.uctx_req.abi_version, 1U);
    EXPECT_EQ(kernel.uctx_req.reserved, 0U);
}

TEST_F(Provider, SetsTheSlotsItHasAndNoOthers) {
    open();
    std::array<void *, 76> slots{};
    static_assert(sizeof(slots) == sizeof(kernel.ops));
    std::memcpy(slots.data(), &kernel.ops, sizeof(slots));
    int set = 0;
    for (const void *slot : slots)
        set += slot != nullptr;
    EXPECT_EQ(set, 18);
}

TEST_F(Provider, NewerModule) {
    sysfs.abi_ver = 2;
    registered->uninit_device(device);
    device = registered->alloc_device(&sysfs);
    std::strcpy(device->device.name, "sw0");
    testing::internal::CaptureStderr();
    errno = 0;
    EXPECT_EQ(registered->alloc_context(&device->device, fd, nullptr), nullptr);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "softwarp: sw0: the kernel module speaks ABI version 2, this libibverbs provider "
              "version 1; install the provider (libsoftwarp-rdmav34.so) of the same release\n");
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
              "version 1; install the kernel module (softwarp.ko) of the same release and load it "
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
    auto *vmr = reinterpret_cast<softwarp::abi34::VerbsMr *>(mr);
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

// QP ------------------------------------------------------------------------------

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
    ibv_sge sg{.addr = reinterpret_cast<std::uint64_t>(data.data()), .length = 96, .lkey = 0};
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
    const auto *bytes = reinterpret_cast<const unsigned char *>(qp);
    EXPECT_EQ(bytes[352], 0);
    EXPECT_EQ(bytes[360], 0);
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
    EXPECT_EQ(peek<std::uint64_t>(sq_at + 4096), 5U);
    EXPECT_EQ(peek<std::uint32_t>(rq_at), 1U);
    EXPECT_EQ(peek<std::uint64_t>(rq_at + 4096), 6U);
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
    kernel.write_errors = {EIO};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), EIO) << "the device is gone";
    EXPECT_EQ(bad, wr.data());

    poke<std::uint32_t>(sq_at + 64, 4);
    kernel.write_errors = {EACCES};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), 0) << "by ioctl";
    EXPECT_EQ(kernel.ioctl_doorbells, 1);

    poke<std::uint32_t>(sq_at + 64, 6);
    wr[1].opcode = IBV_WR_BIND_MW;
    kernel.write_errors = {EIO};
    EXPECT_EQ(kernel.ops.post_send(qp, wr.data(), &bad), EOPNOTSUPP) << "the request's own error";
    EXPECT_EQ(bad, &wr[1]);
}

TEST_F(ProviderQp, QueuesWithoutEntries) {
    kernel.qp.sq_entries = kernel.qp.sq_bytes = 0;
    kernel.qp.sq_key = 0;
    qp = create_qp(cq, cq);
    ASSERT_NE(qp, nullptr);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    EXPECT_EQ(kernel.ops.post_send(qp, &send, &bad), ENOMEM);
    EXPECT_EQ(bad, &send);
    ibv_recv_wr recv{};
    EXPECT_EQ(kernel.ops.post_recv(qp, &recv, &bad_recv), 0);
}

TEST_F(ProviderQp, FailuresLeaveNothing) {
    kernel.next_error = EINVAL;
    EXPECT_EQ(create_qp(cq, cq), nullptr);
    EXPECT_EQ(errno, EINVAL);

    kernel.qp.rq_key = 1; // after the SQ was mapped
    EXPECT_EQ(create_qp(cq, cq), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(kernel.qps, 0);

    kernel.qp.rq_key = rq_at;
    kernel.qp.sq_stride = 64; // 32 + 96 bytes of inline data do not fit
    testing::internal::CaptureStderr();
    EXPECT_EQ(create_qp(cq, cq), nullptr);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("impossible queue pair"),
              std::string::npos);
    EXPECT_EQ(kernel.qps, 0);
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
    EXPECT_EQ(peek<std::uint64_t>(rq_at + 4096), 9U);
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
