// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who pays for memory, how much an object may cost, and how many of them one
 * user may have.  Documentation/security.md has the table.
 */
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <softwarp_abi.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

/* Runs as this user, without capabilities, on a thread of its own: the others stay root. */
void as_user(uid_t uid, const std::function<void()> &fn) {
    std::exception_ptr error;
    std::thread thread([&] {
        try {
            require(syscall(SYS_setresuid, uid, uid, uid) == 0, "setresuid");
            fn();
        } catch (...) {
            error = std::current_exception();
        }
    });
    thread.join();
    if (error)
        std::rethrow_exception(error);
}

/* A number of /proc/meminfo or /proc/self/status, KiB. */
uint64_t proc_kib(const std::string &path, const std::string &name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.rfind(name + ":", 0) == 0)
            return std::stoull(line.substr(name.size() + 1));
    fail("no " + name + " in " + path);
}

uint64_t pinned_kib() {
    return proc_kib("/proc/self/status", "VmPin");
}

/* RLIMIT_MEMLOCK of the process, as long as it lives. */
class Memlock {
  public:
    explicit Memlock(rlim_t bytes) {
        require(getrlimit(RLIMIT_MEMLOCK, &before_) == 0, "getrlimit");
        rlimit limit{bytes, before_.rlim_max};
        require(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
    }
    ~Memlock() { setrlimit(RLIMIT_MEMLOCK, &before_); }
    Memlock(const Memlock &) = delete;
    Memlock &operator=(const Memlock &) = delete;

  private:
    rlimit before_{};
};

/* Locked memory ----------------------------------------------------------------- */

int cq_error(ibv_context *context, int entries) {
    errno = 0;
    Cq cq(ibv_create_cq(context, entries, nullptr, nullptr, 0));
    return cq ? 0 : errno;
}

int srq_error(ibv_pd *pd, uint32_t entries) {
    ibv_srq_init_attr attr{};
    attr.attr = {entries, 1, 0};
    errno = 0;
    Srq srq(ibv_create_srq(pd, &attr));
    return srq ? 0 : errno;
}

int qp_error(ibv_pd *pd, ibv_cq *cq, uint32_t send, uint32_t recv) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {send, recv, 1, 1, 0};
    errno = 0;
    Qp qp(ibv_create_qp(pd, &attr));
    return qp ? 0 : errno;
}

TEST(Memlock, RingsCount) {
    uint64_t before = pinned_kib();
    Memlock limit((before + 256) * 1024);
    as_user(65534, [&] {
        Context context = open_device(config().dev);
        Pd pd = alloc_pd(context.get());
        const uint64_t opened = pinned_kib();
        EXPECT_LE(opened, before + 4) << "a page of the context";
        {
            Cq cq = create_cq(context.get(), 16);
            EXPECT_GT(pinned_kib(), opened);
            EXPECT_EQ(cq_error(context.get(), 65536), ENOMEM) << "4 MiB";
            EXPECT_EQ(srq_error(pd.get(), 32768), ENOMEM) << "1 MiB";
            EXPECT_EQ(qp_error(pd.get(), cq.get(), 8192, 1), ENOMEM) << "512 KiB";
            EXPECT_EQ(qp_error(pd.get(), cq.get(), 1, 16384), ENOMEM) << "512 KiB";
            EXPECT_EQ(qp_error(pd.get(), cq.get(), 64, 64), 0);
            EXPECT_EQ(ibv_resize_cq(cq.get(), 65536), ENOMEM);
            EXPECT_EQ(ibv_resize_cq(cq.get(), 32), 0);
        }
        EXPECT_LE(pinned_kib(), opened) << "what fails or goes counts no more";
        /* Many small ones are as much as a large one. */
        std::vector<Cq> cqs;
        for (int i = 0; i < 200; i++) {
            Cq cq(ibv_create_cq(context.get(), 256, nullptr, nullptr, 0));
            if (!cq)
                break;
            cqs.push_back(std::move(cq));
        }
        EXPECT_GE(cqs.size(), 10U);
        EXPECT_LE(cqs.size(), 256U / 16);
        cqs.pop_back();
        EXPECT_EQ(cq_error(context.get(), 256), 0);
    });
    /* or less: what an earlier test has closed may count for a moment longer */
    EXPECT_LE(pinned_kib(), before);
    /* CAP_IPC_LOCK lifts it. */
    Context context = open_device(config().dev);
    EXPECT_EQ(cq_error(context.get(), 65536), 0);
}

/* Shares ------------------------------------------------------------------------ */

std::vector<Srq> srqs_until_refused(ibv_pd *pd) {
    std::vector<Srq> srqs;
    for (int i = 0; i < 1000; i++) {
        ibv_srq_init_attr attr{};
        attr.attr = {1, 1, 0};
        errno = 0;
        Srq srq(ibv_create_srq(pd, &attr));
        if (!srq) {
            EXPECT_EQ(errno, ENOMEM);
            break;
        }
        srqs.push_back(std::move(srq));
    }
    return srqs;
}

/* Of 40 places a user may have 10, all users 36; the last 4 are root's. */
TEST(Shares, OfAUserAndOfAllUsers) {
    ASSERT_EQ(resource_count(config().dev, "srq"), 0U);
    ParameterOverride max("max_srq", "40");
    ParameterOverride share("user_share", "25");
    ParameterOverride kept("reserved_share", "10");
    Context roots = open_device(config().dev);
    Pd roots_pd = alloc_pd(roots.get());
    std::vector<Context> contexts;
    std::vector<Pd> pds;
    std::vector<std::vector<Srq>> all;
    for (uid_t uid : {65534U, 65533U, 65532U, 65531U}) {
        SCOPED_TRACE(uid);
        as_user(uid, [&] {
            contexts.push_back(open_device(config().dev));
            pds.push_back(alloc_pd(contexts.back().get()));
            all.push_back(srqs_until_refused(pds.back().get()));
        });
        EXPECT_EQ(all.back().size(), uid == 65531U ? 6U : 10U);
    }
    std::vector<Srq> roots_srqs = srqs_until_refused(roots_pd.get());
    EXPECT_EQ(roots_srqs.size(), 4U);
    roots_srqs.clear();
    /* What a user gives back it may have again, whoever destroys it. */
    all[0].pop_back();
    all[0].pop_back();
    as_user(65534, [&] {
        std::vector<Srq> more = srqs_until_refused(pds[0].get());
        EXPECT_EQ(more.size(), 2U);
    });
    all.clear();
    EXPECT_EQ(srqs_until_refused(roots_pd.get()).size(), 40U) << "root has no share";
}

/* Each kind has its own count. */
TEST(Shares, OfEachKind) {
    as_user(65534, [&] {
        Context context = open_device(config().dev);
        Pd pd = alloc_pd(context.get());
        Cq cq = create_cq(context.get(), 1);
        ASSERT_EQ(qp_error(pd.get(), cq.get(), 1, 1), 0);
    });
    ParameterOverride share("user_share", "0");
    as_user(65534, [&] {
        Context context = open_device(config().dev);
        Pd pd = alloc_pd(context.get());
        errno = 0;
        EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr) << "one, however small the share";
        EXPECT_EQ(errno, ENOMEM);
        Cq cq = create_cq(context.get(), 1);
        EXPECT_EQ(cq_error(context.get(), 1), ENOMEM);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {1, 1, 1, 1, 0};
        Qp qp(ibv_create_qp(pd.get(), &attr));
        ASSERT_NE(qp, nullptr);
        EXPECT_EQ(qp_error(pd.get(), cq.get(), 1, 1), ENOMEM);
        Region region(pd.get(), 4096);
        errno = 0;
        EXPECT_EQ(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1), nullptr) << "counts as a region";
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(ibv_open_device(context->device), nullptr);
    });
}

/* Parameters -------------------------------------------------------------------- */

int set_parameter(const std::string &name, const std::string &value) {
    std::string path = "/sys/module/softwarp/parameters/" + name;
    Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    require(fd.get() >= 0, path);
    ssize_t n = write(fd.get(), value.data(), value.size());
    return n < 0 ? errno : 0;
}

TEST(Parameters, WhatIsTooLargeIsRefused) {
    for (const char *name :
         {"max_qp", "max_cq", "max_mr", "max_pd", "max_ucontext", "max_srq", "max_qp_wr",
          "max_srq_wr", "max_cqe", "max_pending", "handshake_ms", "reply_ms", "max_ird",
          "spin_wait_us", "tx_poll_us", "user_share", "reserved_share"}) {
        SCOPED_TRACE(name);
        std::string before = module_parameter(name);
        for (const char *value : {"2147483648", "4294967295", "4294967296", "-1", "many"}) {
            int error = set_parameter(name, value);
            EXPECT_TRUE(error == EINVAL || error == ERANGE) << value;
            EXPECT_EQ(module_parameter(name), before);
        }
        EXPECT_EQ(set_parameter(name, before), 0);
    }
}

TEST(Parameters, TheLargestFitTheirPlaces) {
    ParameterOverride qp("max_qp", "16777214");
    ParameterOverride cq("max_cq", "2147483647");
    ParameterOverride mr("max_mr", "16777215");
    ParameterOverride cqe("max_cqe", "33554432");
    ParameterOverride ird("max_ird", "128");
    Context context = open_device(config().dev);
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
    for (int value :
         {attr.max_qp, attr.max_cq, attr.max_mr, attr.max_mw, attr.max_cqe, attr.max_res_rd_atom})
        EXPECT_GT(value, 0);
    EXPECT_EQ(cq_error(context.get(), 1), 0);
}

/* Listings ---------------------------------------------------------------------- */

TEST(Listings, ShowNoAddresses) {
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Region region(pd.get(), 4096);
    std::string address = fmt::format("{:x}", region.addr());
    for (const char *user : {"root", "nobody"}) {
        std::string text = must_shell(
            fmt::format("setpriv --reuid {} --clear-groups rdma -dd resource show mr", user));
        EXPECT_NE(text.find("drv_kind user"), std::string::npos) << text;
        EXPECT_EQ(text.find("iova"), std::string::npos) << text;
        EXPECT_EQ(text.find(address), std::string::npos) << text;
    }
}

/* Completion rings -------------------------------------------------------------- */

std::set<uint8_t *> ring_mappings() {
    std::set<uint8_t *> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("uverbs") != std::string::npos)
            found.insert(reinterpret_cast<uint8_t *>(std::stoull(line, nullptr, 16)));
    return found;
}

/* Who watches a slot sees one generation after the other: 0 is one of them. */
TEST(CqRing, GenerationIsStoredOnce) {
    const uint64_t kMessages = threads_take_turns() ? 100 : full_or_quick<uint64_t>(4000, 1000);
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    std::set<uint8_t *> before = ring_mappings();
    Cq cq = create_cq(context.get(), 1);
    uint8_t *ring = nullptr;
    for (uint8_t *at : ring_mappings())
        if (!before.count(at))
            ring = at;
    ASSERT_NE(ring, nullptr);
    auto *cqe = reinterpret_cast<swp_cqe *>(ring + SWP_RING_DATA_OFF);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {1, 1, 1, 1, 0};
    Qp qp(ibv_create_qp(pd.get(), &attr));
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp.get(), &error, IBV_QP_STATE), 0);

    std::atomic<bool> stop{false};
    std::atomic<uint64_t> cleared{0};
    std::atomic<bool> watching{false};
    std::thread watcher([&] {
        std::atomic_ref<__u16> gen(cqe->gen);
        while (!stop) {
            uint16_t last = 0;
            for (int i = 0; i < 1000; i++) {
                uint16_t now = gen.load(std::memory_order_relaxed);
                if (last != 0 && now == 0)
                    cleared++;
                last = now;
            }
            watching = true;
        }
    });
    EXPECT_TRUE(eventually([&] { return watching.load(); }));
    /* each is flushed at once */
    for (uint64_t i = 0; i < kMessages; i++) {
        ASSERT_EQ(post_recv(qp.get(), i, {}), 0);
        ASSERT_EQ(next_wc(cq.get()).wr_id, i);
    }
    stop = true;
    watcher.join();
    EXPECT_EQ(cleared.load(), 0U);
}

/* A queue in the error state: each receive that is posted is flushed into the CQ at once. */
struct Flusher {
    Flusher(ibv_pd *pd, ibv_cq *cq, uint32_t at_once) : wrs(at_once) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {1, at_once, 1, 1, 0};
        qp.reset(ibv_create_qp(pd, &attr));
        require(qp != nullptr, "ibv_create_qp");
        ibv_qp_attr error{};
        error.qp_state = IBV_QPS_ERR;
        require(ibv_modify_qp(qp.get(), &error, IBV_QP_STATE) == 0, "ibv_modify_qp");
        for (size_t i = 0; i < wrs.size(); i++)
            wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
    }
    void flush() {
        ibv_recv_wr *bad = nullptr;
        require(ibv_post_recv(qp.get(), wrs.data(), &bad) == 0, "ibv_post_recv");
    }

    std::vector<ibv_recv_wr> wrs;
    Qp qp;
};

/* A CQ with very many completions in it is resized while others add to it: all are there. */
TEST(CqRing, ResizedInSlices) {
    const int kWaiting = full_or_quick(1 << 18, 1 << 15);
    constexpr int kAtOnce = 16384;
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Cq cq = create_cq(context.get(), 2 * kWaiting);
    Flusher many(pd.get(), cq.get(), kAtOnce), few(pd.get(), cq.get(), 3);
    for (int i = 0; i < kWaiting; i += kAtOnce)
        many.flush();
    std::atomic<bool> stop{false};
    std::atomic<int> added{0};
    std::thread adder([&] {
        while (!stop && added < kWaiting / 2) {
            few.flush();
            added += 3;
        }
    });
    for (int i = 0; i < 4; i++) {
        int seen = added;
        EXPECT_EQ(ibv_resize_cq(cq.get(), 2 * kWaiting), 0);
        EXPECT_TRUE(eventually([&] { return added > seen || added >= kWaiting / 2; }));
    }
    stop = true;
    adder.join();
    int polled = 0, in_order = 0;
    ibv_wc wc[64];
    for (int n; (n = ibv_poll_cq(cq.get(), 64, wc)) > 0; polled += n)
        for (int i = 0; i < n; i++) {
            EXPECT_EQ(wc[i].status, IBV_WC_WR_FLUSH_ERR);
            in_order += polled + i < kWaiting ? wc[i].qp_num == many.qp->qp_num
                                              : wc[i].qp_num == few.qp->qp_num;
        }
    EXPECT_EQ(polled, kWaiting + added);
    EXPECT_EQ(in_order, polled);
}

/* What an object costs ------------------------------------------------------------ */

void write_file(const std::string &path, const std::string &text) {
    Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    require(fd.get() >= 0, path);
    require(write(fd.get(), text.data(), text.size()) >= 0, path);
}

/* Free pages go back to where they are counted, not to lists of the processors. */
class NoPageLists {
  public:
    NoPageLists() { write_file(kPath, "1000000"); }
    ~NoPageLists() { write_file(kPath, "0"); }
    NoPageLists(const NoPageLists &) = delete;
    NoPageLists &operator=(const NoPageLists &) = delete;

  private:
    static constexpr const char *kPath = "/proc/sys/vm/percpu_pagelist_high_fraction";
};

constexpr const char *kStatRefresh = "/proc/sys/vm/stat_refresh";

/* Free pages that processors have on lists of their own; these count as used. */
int64_t listed_kib() {
    int64_t pages = 0;
    std::ifstream zones("/proc/zoneinfo");
    for (std::string word; zones >> word;)
        if (word == "count:") {
            int64_t count = 0;
            zones >> count;
            pages += count;
        }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Memory that the kernel has for itself, KiB; what is on its way back comes back first. */
int64_t used_kib() {
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
    write_file("/proc/sys/vm/drop_caches", "2");
    /* each processor counts up to half a MiB for itself before it tells the others */
    if (access(kStatRefresh, F_OK) == 0)
        write_file(kStatRefresh, "1");
    const char *path = "/proc/meminfo";
    return static_cast<int64_t>(proc_kib(path, "MemTotal") - proc_kib(path, "MemFree") -
                                proc_kib(path, "Buffers") - proc_kib(path, "Cached") -
                                proc_kib(path, "AnonPages")) -
           listed_kib();
}

/* A kernel that looks for mistakes keeps much beside, and behind, each object. */
double checked() {
    std::ifstream symbols("/proc/kallsyms");
    for (std::string line; std::getline(symbols, line);)
        if (line.find(" kasan_save_stack") != std::string::npos)
            return 10;
    return 1;
}

/*
 * What an object of a kind takes, in KiB, when that many are made: in the middle
 * one of three batches, as the rest of the kernel allocates now and then, too.
 * Some come before and bring tables and caches along.  All are kept to the end, as
 * what is given back comes back late.
 */
template<typename Make>
void cost(const char *what, int number, double at_most, Make make) {
    std::vector<decltype(make())> objects;
    objects.reserve(static_cast<size_t>(4 * number));
    auto batch = [&](int size) {
        int64_t before = used_kib();
        for (int i = 0; i < size; i++)
            objects.push_back(make());
        return static_cast<double>(used_kib() - before) / size;
    };
    batch(number / 2);
    std::array<double, 3> each = {batch(number), batch(number), batch(number)};
    std::sort(each.begin(), each.end());
    fmt::print("{:32} {:6.1f} KiB ({:.1f} to {:.1f}), at most {}\n", what, each[1], each[0],
               each[2], at_most);
    EXPECT_LE(each[1], at_most * checked()) << what;
}

TEST(Cost, OfObjects) {
    /* where checkers cost a multiple, and time, some KiB more or less are nothing */
    const int kMany = checked() > 1 ? 30 : 150, kSmall = 4 * kMany;
    NoPageLists none;
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Cq cq = create_cq(context.get(), 1);
    Region region(pd.get(), 4096);
    auto qp = [&](ibv_qp_cap cap) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = cap;
        Qp made(ibv_create_qp(pd.get(), &attr));
        require(made != nullptr, "ibv_create_qp");
        return made;
    };
    cost("nothing", kMany, 1, [] { return 0; });
    cost("CQ of 64", kMany, 12, [&] { return create_cq(context.get(), 64); });
    cost("QP of rping, 16 and 2", kMany, 18, [&] { return qp({16, 2, 1, 1, 0}); });
    cost("QP of ib_send_bw, 128 and 512", kMany, 44, [&] { return qp({128, 512, 1, 1, 0}); });
    cost("region of a page", kSmall, 2,
         [&] { return register_memory(pd.get(), region.at(0), 4096); });
    cost("window", kSmall, 2, [&] { return alloc_mw(pd.get(), IBV_MW_TYPE_2); });
    cost("PD", kSmall, 1, [&] { return alloc_pd(context.get()); });
}

/* Connections to a plain TCP socket, with the queues of rping. */
TEST(Cost, OfConnections) {
    const int kMany = checked() > 1 ? 15 : 60;
    NoPageLists none;
    QpOptions options{.send_wr = 16, .recv_wr = 2, .send_sge = 1, .recv_sge = 1};
    Context context = open_device(config().peer_dev);
    Pd pd = alloc_pd(cm_context(config().peer_dev));
    Cq cq = create_cq(cm_context(config().peer_dev), 4096);
    options.pd = pd.get();
    options.send_cq = options.recv_cq = cq.get();
    EventChannel channel;
    Listener listener(channel, config().peer_ns, config().peer_addr4, 1024);
    Region memory(pd.get(), 4096);
    struct Ends {
        std::unique_ptr<Endpoint> ours;
        std::unique_ptr<Stream> theirs;
    };
    /* Both sockets are of this machine. */
    auto connected = [&] {
        Ends ends;
        ends.theirs = std::make_unique<Stream>("", config().peer_addr4, listener.port());
        ends.theirs->say(mpa_frame(false, kMpaCrc, 1, {}));
        CmEvent request = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        ends.ours = std::make_unique<Endpoint>(channel, CmId(request.id), options);
        accept(*ends.ours);
        ends.theirs->hear_mpa();
        ends.ours->expect(RDMA_CM_EVENT_ESTABLISHED);
        /* One message each way. */
        ends.ours->recv(1, {memory.sge(0, 64)});
        ends.theirs->say(fpdu(Untagged{.payload = Bytes(64)}.bytes()));
        expect_success(cq.get(), 1, IBV_WC_RECV, 64);
        ends.ours->send(2, {memory.sge(0, 64)});
        expect_success(cq.get(), 2, IBV_WC_SEND);
        ends.theirs->hear_fpdu();
        return ends;
    };
    cost("connected, idle", kMany, 40, connected);
    /* the bound is the same: what was announced costs nothing */
    cost("connected, 3 octets of an FPDU", kMany, 40, [&] {
        Ends ends = connected();
        ends.theirs->say(Bytes{0xff, 0xf0, 0x41});
        return ends;
    });
    cost("half open", kMany, 16,
         [&] { return std::make_unique<Stream>("", config().peer_addr4, listener.port()); });
    cost("listener", kMany, 32, [&] {
        return std::make_unique<Listener>(channel, config().peer_ns, config().peer_addr4);
    });
}

} // namespace
