// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Device, port and object verbs, without a connection. */
#include <endian.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/children.hpp"
#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

class Basic : public testing::Test {
  protected:
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());

    ibv_device_attr device_attr() const {
        ibv_device_attr attr{};
        EXPECT_EQ(ibv_query_device(context.get(), &attr), 0);
        return attr;
    }

    /* errno of a registration that must fail; 0 if it does not. */
    int reg_error(void *where, size_t length, int access) const {
        errno = 0;
        Mr mr(ibv_reg_mr(pd.get(), where, length, access));
        return mr ? 0 : errno;
    }
};

/* A QP outside of any connection, with what it needs. */
struct LoneQp {
    LoneQp(ibv_context *context, ibv_pd *pd, ibv_qp_cap cap = {16, 16, 2, 2, 0},
           ibv_qp_type type = IBV_QPT_RC)
        : scq(create_cq(context, 64)), rcq(create_cq(context, 64)) {
        attr.send_cq = scq.get();
        attr.recv_cq = rcq.get();
        attr.qp_type = type;
        attr.cap = cap;
        errno = 0;
        qp.reset(ibv_create_qp(pd, &attr));
        error = qp ? 0 : errno;
    }

    Cq scq;
    Cq rcq;
    ibv_qp_init_attr attr{};
    Qp qp;
    int error;
};

int to_state(ibv_qp *qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    int mask = IBV_QP_STATE;
    if (state == IBV_QPS_INIT) {
        attr.port_num = 1;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    }
    return ibv_modify_qp(qp, &attr, mask);
}

TEST_F(Basic, DeviceIsAnRnic) {
    EXPECT_EQ(context->device->transport_type, IBV_TRANSPORT_IWARP);
    EXPECT_EQ(context->device->node_type, IBV_NODE_RNIC);
    EXPECT_GE(context->num_comp_vectors, 1);

    ibv_device_attr attr = device_attr();
    EXPECT_NE(attr.vendor_id, 0U);
    EXPECT_EQ(attr.phys_port_cnt, 1);
    EXPECT_GE(attr.max_sge, 32);
    EXPECT_GE(attr.max_sge_rd, 1);
    EXPECT_GE(attr.max_qp, 1024);
    EXPECT_GE(attr.max_qp_wr, 4096);
    EXPECT_GE(attr.max_cq, 1024);
    EXPECT_GE(attr.max_cqe, 65535);
    EXPECT_GE(attr.max_mr, 1024);
    EXPECT_GE(attr.max_pd, 1024);
    EXPECT_GE(attr.max_mr_size, uint64_t{1} << 32);
    EXPECT_NE(attr.page_size_cap & static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), 0U);
    EXPECT_GE(attr.max_qp_rd_atom, 1);
    EXPECT_GE(attr.max_qp_init_rd_atom, 1);
    EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_GLOB);
}

TEST_F(Basic, ExtendedQueryAgrees) {
    ibv_device_attr attr = device_attr();
    ibv_device_attr_ex extended{};
    ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &extended), 0);
    EXPECT_EQ(extended.orig_attr.max_qp, attr.max_qp);
    EXPECT_EQ(extended.orig_attr.max_sge, attr.max_sge);
    EXPECT_EQ(extended.orig_attr.max_mr_size, attr.max_mr_size);
}

TEST_F(Basic, GuidsAreSetAndDiffer) {
    std::set<uint64_t> guids;
    for (const std::string &name : {config().dev, config().peer_dev, config().lo_dev}) {
        Context device = open_device(name);
        EXPECT_NE(ibv_get_device_guid(device->device), 0U) << name;
        guids.insert(ibv_get_device_guid(device->device));
    }
    EXPECT_EQ(guids.size(), 3U);
}

TEST_F(Basic, PortIsActive) {
    for (const std::string &name : {config().dev, config().peer_dev, config().lo_dev}) {
        SCOPED_TRACE(name);
        Context device = open_device(name);
        ibv_port_attr port{};
        ASSERT_EQ(ibv_query_port(device.get(), 1, &port), 0);
        EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
        EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
        EXPECT_GE(port.gid_tbl_len, 1);
        EXPECT_GE(port.pkey_tbl_len, 1);
        EXPECT_EQ(port.max_msg_sz, 0x80000000U);
        EXPECT_NE(port.active_width, 0);
        EXPECT_NE(port.active_speed, 0);

        union ibv_gid gid = {};
        ASSERT_EQ(ibv_query_gid(device.get(), 1, 0, &gid), 0);
        /* A zero GID counts as none: the core would not find the device. */
        EXPECT_TRUE(gid.global.subnet_prefix != 0 || gid.global.interface_id != 0);
        __be16 pkey = 0;
        ASSERT_EQ(ibv_query_pkey(device.get(), 1, 0, &pkey), 0);
        EXPECT_EQ(pkey, 0xffff);
    }
}

/* In the form of an InfiniBand port's, with the netdev beside it. */
TEST_F(Basic, GidNamesPortAndNetdev) {
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &entry, 0), 0);
    if (kernel_before(6, 6)) {
        /* There rdma_cm finds the device by the hardware address, and no netdev is told. */
        EXPECT_EQ(entry.gid.global.interface_id & be64toh(0xffffffffffffULL), 0U);
        return;
    }
    EXPECT_EQ(entry.gid.global.subnet_prefix, htobe64(0xfe80000000000000ULL));
    EXPECT_EQ(entry.gid.global.interface_id, ibv_get_device_guid(context->device));
    EXPECT_EQ(entry.ndev_ifindex, if_nametoindex(netdev_of(config().dev).c_str()));
    /* the addresses of the netdev follow, see modify.cpp */
    ibv_gid_entry table[32] = {};
    EXPECT_GE(ibv_query_gid_table(context.get(), table, 32, 0), 3);
    EXPECT_EQ(std::memcmp(&table[0], &entry, sizeof(entry)), 0);
}

TEST_F(Basic, PortsAndTableEntriesThatAreNotThere) {
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context.get(), 0, &port), EINVAL);
    EXPECT_EQ(ibv_query_port(context.get(), 2, &port), EINVAL);
    union ibv_gid gid = {};
    EXPECT_NE(ibv_query_gid(context.get(), 1, 4096, &gid), 0);
    __be16 pkey = 0;
    EXPECT_NE(ibv_query_pkey(context.get(), 1, 4096, &pkey), 0);
}

TEST_F(Basic, UnknownDevice) {
    EXPECT_THROW(open_device("no-such-device"), Failure);
}

TEST_F(Basic, ManyContexts) {
    std::vector<Context> contexts;
    for (int i = 0; i < 32; i++)
        contexts.push_back(open_device(config().dev));
    for (Context &c : contexts)
        alloc_pd(c.get());
}

TEST_F(Basic, ObjectsComeAndGo) {
    uint64_t qps = resource_count(config().dev, "qp");
    uint64_t cqs = resource_count(config().dev, "cq");
    uint64_t mrs = resource_count(config().dev, "mr");
    uint64_t pds = resource_count(config().dev, "pd");
    Buffer memory(64 * 1024);
    for (int i = 0; i < full_or_quick(500, 100); i++) {
        Pd own = alloc_pd(context.get());
        Mr mr = register_memory(own.get(), memory.data(), memory.size());
        LoneQp lone(context.get(), own.get());
        ASSERT_EQ(lone.error, 0) << errno_name(lone.error);
        EXPECT_NE(mr->rkey, 0U);
    }
    EXPECT_EQ(resource_count(config().dev, "qp"), qps);
    EXPECT_EQ(resource_count(config().dev, "cq"), cqs);
    EXPECT_EQ(resource_count(config().dev, "mr"), mrs);
    EXPECT_EQ(resource_count(config().dev, "pd"), pds);
}

TEST_F(Basic, ProcessLeavesItsObjectsBehind) {
    uint64_t qps = resource_count(config().dev, "qp");
    Child holder({"holder", config().dev});
    EXPECT_EQ(holder.line(), "ready");
    EXPECT_EQ(resource_count(config().dev, "qp"), qps + 8);
    holder.signal(SIGKILL);
    ASSERT_TRUE(holder.wait());
    EXPECT_TRUE(eventually([&] { return resource_count(config().dev, "qp") == qps; }));
}

TEST_F(Basic, KeysAreUniqueAmongLiveRegions) {
    Buffer memory(4096);
    std::vector<Mr> regions;
    std::set<uint32_t> keys;
    for (int i = 0; i < 256; i++) {
        regions.push_back(register_memory(pd.get(), memory.data(), memory.size()));
        EXPECT_TRUE(keys.insert(regions.back()->rkey).second) << "rkey used twice";
        EXPECT_NE(regions.back()->lkey, 0U);
    }
}

TEST_F(Basic, CqSizes) {
    ibv_device_attr attr = device_attr();
    for (int entries : {1, 2, 3, 100, 1000, attr.max_cqe}) {
        Cq cq(ibv_create_cq(context.get(), entries, nullptr, nullptr, 0));
        ASSERT_NE(cq, nullptr) << entries;
        EXPECT_GE(cq->cqe, entries);
    }
    for (int entries : {0, -1, attr.max_cqe + 1}) {
        errno = 0;
        Cq cq(ibv_create_cq(context.get(), entries, nullptr, nullptr, 0));
        EXPECT_EQ(cq, nullptr) << entries;
        EXPECT_EQ(errno, EINVAL) << entries;
    }
}

TEST_F(Basic, CqVectors) {
    for (int vector = 0; vector < context->num_comp_vectors; vector++)
        create_cq(context.get(), 4, nullptr, vector);
    for (int vector : {-1, context->num_comp_vectors}) {
        errno = 0;
        Cq cq(ibv_create_cq(context.get(), 4, nullptr, nullptr, vector));
        EXPECT_EQ(cq, nullptr) << vector;
        EXPECT_EQ(errno, EINVAL) << vector;
    }
}

TEST_F(Basic, QpCapabilitiesAreAtLeastWhatWasAsked) {
    for (const ibv_qp_cap &cap :
         {ibv_qp_cap{1, 1, 1, 1, 0}, ibv_qp_cap{3, 5, 2, 3, 1}, ibv_qp_cap{100, 100, 32, 32, 0},
          ibv_qp_cap{16, 16, 1, 1, 512}, ibv_qp_cap{16, 16, 32, 32, 512},
          ibv_qp_cap{0, 16, 0, 4, 0}, ibv_qp_cap{16, 0, 4, 0, 0},
          ibv_qp_cap{static_cast<uint32_t>(device_attr().max_qp_wr),
                     static_cast<uint32_t>(device_attr().max_qp_wr), 1, 1, 0}}) {
        SCOPED_TRACE(fmt::format("{} {} {} {} {}", cap.max_send_wr, cap.max_recv_wr,
                                 cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data));
        LoneQp lone(context.get(), pd.get(), cap);
        ASSERT_EQ(lone.error, 0) << errno_name(lone.error);
        const ibv_qp_cap &got = lone.attr.cap;
        EXPECT_GE(got.max_send_wr, cap.max_send_wr);
        EXPECT_GE(got.max_recv_wr, cap.max_recv_wr);
        EXPECT_GE(got.max_send_sge, cap.max_send_sge);
        EXPECT_GE(got.max_recv_sge, cap.max_recv_sge);
        EXPECT_GE(got.max_inline_data, cap.max_inline_data);

        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ASSERT_EQ(ibv_query_qp(lone.qp.get(), &attr, IBV_QP_CAP | IBV_QP_STATE, &init), 0);
        EXPECT_EQ(attr.qp_state, IBV_QPS_INIT);
        EXPECT_GE(attr.cap.max_send_wr, cap.max_send_wr);
        EXPECT_GE(attr.cap.max_recv_wr, cap.max_recv_wr);
        EXPECT_GE(attr.cap.max_inline_data, cap.max_inline_data);
        EXPECT_EQ(init.send_cq, lone.scq.get());
        EXPECT_EQ(init.qp_type, IBV_QPT_RC);
    }
}

TEST_F(Basic, QpBeyondTheLimits) {
    ibv_device_attr attr = device_attr();
    auto wr = static_cast<uint32_t>(attr.max_qp_wr) + 1;
    auto sge = static_cast<uint32_t>(attr.max_sge) + 1;
    for (const ibv_qp_cap &cap :
         {ibv_qp_cap{wr, 1, 1, 1, 0}, ibv_qp_cap{1, wr, 1, 1, 0}, ibv_qp_cap{1, 1, sge, 1, 0},
          ibv_qp_cap{1, 1, 1, sge, 0}, ibv_qp_cap{1, 1, 1, 1, 1 << 20},
          ibv_qp_cap{~0U, ~0U, ~0U, ~0U, ~0U}}) {
        LoneQp lone(context.get(), pd.get(), cap);
        EXPECT_EQ(lone.error, EINVAL)
            << fmt::format("{} {} {} {} {}", cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge,
                           cap.max_recv_sge, cap.max_inline_data);
    }
}

TEST_F(Basic, OnlyRcQps) {
    for (ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
        LoneQp lone(context.get(), pd.get(), {1, 1, 1, 1, 0}, type);
        EXPECT_EQ(lone.error, EOPNOTSUPP) << type;
    }
}

TEST_F(Basic, BusyObjectsStay) {
    auto lone = std::make_unique<LoneQp>(context.get(), pd.get());
    ASSERT_EQ(lone->error, 0);
    EXPECT_EQ(ibv_destroy_cq(lone->scq.get()), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(lone->rcq.get()), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    lone.reset();
    Region region(pd.get(), 4096);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
}

TEST_F(Basic, QpOutsideAConnection) {
    Region region(pd.get(), 4096);
    LoneQp lone(context.get(), pd.get());
    ASSERT_EQ(lone.error, 0);
    ASSERT_EQ(to_state(lone.qp.get(), IBV_QPS_INIT), 0);
    EXPECT_EQ(qp_state(lone.qp.get()), IBV_QPS_INIT);

    /* Receives may be posted from INIT on; ERR flushes them. */
    for (uint64_t i = 0; i < 3; i++)
        ASSERT_EQ(post_recv(lone.qp.get(), i, {region.all()}), 0);
    expect_quiet(lone.rcq.get());
    ASSERT_EQ(to_state(lone.qp.get(), IBV_QPS_ERR), 0);
    for (uint64_t i = 0; i < 3; i++)
        expect_wc(lone.rcq.get(), i, IBV_WC_WR_FLUSH_ERR);

    /* Requests posted in ERR are accepted and flushed. */
    ASSERT_EQ(post_recv(lone.qp.get(), 7, {region.all()}), 0);
    expect_wc(lone.rcq.get(), 7, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(post_send(lone.qp.get(), SendWr::send(8, {region.all()})), 0);
    expect_wc(lone.scq.get(), 8, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(qp_state(lone.qp.get()), IBV_QPS_ERR);
}

TEST_F(Basic, ModifyWithWrongAttributes) {
    LoneQp lone(context.get(), pd.get());
    ASSERT_EQ(lone.error, 0);
    ibv_qp_attr attr{};
    attr.qp_state = static_cast<ibv_qp_state>(77);
    EXPECT_EQ(ibv_modify_qp(lone.qp.get(), &attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(qp_state(lone.qp.get()), IBV_QPS_INIT);
}

TEST_F(Basic, MemoryAccessFlags) {
    Buffer memory(8192);
    for (int access : {0, kLocal, kRemoteRead, kRemoteWrite, kAll})
        EXPECT_EQ(reg_error(memory.data(), memory.size(), access), 0) << access;
    /* ibv_reg_mr(3): remote write needs local write. */
    EXPECT_EQ(reg_error(memory.data(), memory.size(), IBV_ACCESS_REMOTE_WRITE), EINVAL);
    EXPECT_EQ(reg_error(memory.data(), memory.size(), 1 << 18), EINVAL);
    /* The core itself answers here; of the kernels that are supported, 6.1 in another way. */
    EXPECT_EQ(reg_error(memory.data(), memory.size(), IBV_ACCESS_ON_DEMAND),
              kernel_before(6, 2) ? EINVAL : EOPNOTSUPP);
}

TEST_F(Basic, MemoryThatIsNotThere) {
    Buffer memory(3 * 4096);
    munmap(memory.at(4096), 4096);
    EXPECT_EQ(reg_error(memory.at(4096), 4096, kLocal), EFAULT);
    EXPECT_EQ(reg_error(memory.data(), 3 * 4096, kLocal), EFAULT);
    EXPECT_EQ(reg_error(memory.data(), 4096, kLocal), 0);
    /* Put something back so that the buffer's end unmaps its own. */
    ASSERT_NE(
        mmap(memory.at(4096), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        MAP_FAILED);

    Buffer constant(4096, PROT_READ);
    EXPECT_EQ(reg_error(constant.data(), 4096, kLocal), EFAULT);
    EXPECT_EQ(reg_error(constant.data(), 4096, kRemoteRead), 0);
}

TEST_F(Basic, MemoryLengthsOutOfReason) {
    Buffer memory(4096);
    EXPECT_EQ(reg_error(memory.data(), 0, kLocal), EINVAL);
    /* The range wraps around, or ends beyond what 32-bit programs have. */
    EXPECT_EQ(reg_error(memory.data(), ~size_t{0}, kLocal), sizeof(size_t) == 8 ? EINVAL : EFAULT);
    /* half of what there may be: 2^46 octets to 64-bit programs */
    EXPECT_NE(reg_error(memory.data(), size_t{1} << (sizeof(size_t) == 8 ? 46 : 31), kLocal), 0);
}

/* Beyond RLIMIT_MEMLOCK a process without CAP_IPC_LOCK gets ENOMEM. */
TEST_F(Basic, MemlockLimit) {
    std::exception_ptr error;
    int beyond = -1, within = -1;
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);

    /* Capabilities belong to the thread: the others keep theirs. */
    std::thread modest([&] {
        try {
            __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
            __user_cap_data_struct data[2]{};
            require(syscall(SYS_capget, &header, data) == 0, "capget");
            data[0].effective &= ~(1U << CAP_IPC_LOCK);
            require(syscall(SYS_capset, &header, data) == 0, "capset");
            rlimit limit{256 * 1024, before.rlim_max};
            require(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");

            Context own = open_device(config().dev);
            Pd own_pd = alloc_pd(own.get());
            Buffer memory(1 << 20);
            errno = 0;
            Mr large(ibv_reg_mr(own_pd.get(), memory.data(), memory.size(), kLocal));
            beyond = large ? 0 : errno;
            Mr small(ibv_reg_mr(own_pd.get(), memory.data(), 16 * 4096, kLocal));
            within = small ? 0 : errno;
        } catch (...) {
            error = std::current_exception();
        }
    });
    modest.join();
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (error)
        std::rethrow_exception(error);
    EXPECT_EQ(beyond, ENOMEM);
    EXPECT_EQ(within, 0);
}

TEST_F(Basic, LargeRegion) {
    /* The pages come from the pool of the machine: not too many of them. */
    size_t size = full_or_quick<size_t>(256, 64) << 20;
    Region region(pd.get(), size);
    EXPECT_EQ(region.mr->length, size);
}

} // namespace
