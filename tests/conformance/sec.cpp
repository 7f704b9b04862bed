// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Security: RFC 5042, and sections 8 of RFC 5040 and RFC 5041.  What a peer, and
 * what another program of this machine, must not be able to do.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

/* Helpers ------------------------------------------------------------------- */

constexpr int kEverything = kAll | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint8_t kInvalidate = kRdmapVersion | kOpSendInvalidate;

/* The ways to get at memory by an STag, with the codes of what RFC 5040 calls them. */
struct Way {
    const char *name;
    unsigned layer;
    bool has_request; // the Terminate returns a Read Request
    Bytes (*ulpdu)(uint32_t stag, uint64_t to, uint32_t length);
};

const Way kWays[] = {
    {"Write", 1, false,
     [](uint32_t stag, uint64_t to, uint32_t length) {
         return Tagged{.stag = stag, .to = to, .payload = Bytes(length, 0xee)}.bytes();
     }},
    {"Read", 0, true,
     [](uint32_t stag, uint64_t to, uint32_t length) {
         return ReadRequest{.sink_stag = 1, .size = length, .src_stag = stag, .src_to = to}.bytes(
             1);
     }},
    {"Atomic", 0, false,
     [](uint32_t stag, uint64_t to, uint32_t) {
         return AtomicRequest::fetch_add(1, stag, to, 1).bytes(1);
     }},
};

/* The Terminate for such a segment; codes for RDMAP and, with a Write, for DDP. */
void expect_refused(Link &link, const Way &way, const Bytes &bad, unsigned ddp, unsigned rdmap,
                    Where where = Where::current()) {
    link.expect_terminate(way.layer, 1, way.layer == 1 ? ddp : rdmap,
                          way.has_request ? Headers::rdma(bad) : Headers::ddp(bad), where);
    link.expect_async(IBV_EVENT_QP_ACCESS_ERR, where);
    link.expect_disconnected(where);
}

Bytes send_invalidate(uint32_t stag, uint32_t msn = 1) {
    return Untagged{.rdmap = kInvalidate, .invalidate = stag, .msn = msn}.bytes();
}

/* The peer's right of way to this memory, by a Write of one octet and a Send behind it. */
void expect_writable(Link &link, const Region &memory, uint8_t value,
                     Where where = Where::current()) {
    link.recv(0x99, {});
    link.say(Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = {value}});
    link.say(Untagged{.msn = link.send_msn++});
    expect_success(link.rcq(), 0x99, IBV_WC_RECV, 0, where);
    EXPECT_EQ(*memory.at(0), value) << where.line();
}

/* A window of type 2, bound through the QP of a link. */
Mw bound_window(Link &link, const Region &memory, uint64_t offset, uint64_t length) {
    Mw mw = alloc_mw(link.pd(), IBV_MW_TYPE_2);
    SendWr wr = SendWr::bind_mw(0x88, mw.get(), memory.mr.get(), memory.addr(offset), length,
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_ATOMIC);
    require(post_send(link.qp(), wr) == 0, "ibv_post_send of a bind");
    expect_success(link.scq(), 0x88, IBV_WC_BIND_MW);
    mw->rkey = wr.rkey;
    return mw;
}

/* A QP outside any connection, or none if it is refused. */
Qp make_qp(ibv_pd *pd, ibv_cq *cq, uint32_t wr = 1, ibv_srq *srq = nullptr) {
    ibv_qp_init_attr init{};
    init.send_cq = cq;
    init.recv_cq = cq;
    init.srq = srq;
    init.cap.max_send_wr = wr;
    init.cap.max_recv_wr = 1;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init.qp_type = IBV_QPT_RC;
    return Qp(ibv_create_qp(pd, &init));
}

/* Other programs of this machine -------------------------------------------------- */

/* A handle that is not its owner's, for as long as this lives. */
class Borrowed {
  public:
    Borrowed(uint32_t &mine, uint32_t theirs) : mine_(mine), own_(mine) { mine_ = theirs; }
    ~Borrowed() { mine_ = own_; }
    Borrowed(const Borrowed &) = delete;
    Borrowed &operator=(const Borrowed &) = delete;

  private:
    uint32_t &mine_;
    uint32_t own_;
};

/*
 * Everything that one context has, named by another: nothing of it is to be had.
 * The other has made so much that its handles are none of the first one's.
 */
TEST(Sec, ObjectsOfOthers) {
    REQ("SEC-04", "SEC-16", "SEC-15", "SEC-01");
    Context mine = open_device(config().dev), theirs = open_device(config().dev);
    Pd pd = alloc_pd(mine.get());
    Cq cq = create_cq(mine.get(), 16);
    Srq srq = create_srq(pd.get(), 16);
    Buffer memory(4096);

    std::vector<Pd> filler;
    for (int i = 0; i < 64; i++)
        filler.push_back(alloc_pd(theirs.get()));
    Pd other_pd = alloc_pd(theirs.get());
    Cq other_cq = create_cq(theirs.get(), 16);
    Srq other_srq = create_srq(other_pd.get(), 16);
    Mr other_mr = register_memory(other_pd.get(), memory.data(), 4096);
    ASSERT_GT(std::min({other_pd->handle, other_cq->handle, other_srq->handle, other_mr->handle}),
              std::max({pd->handle, cq->handle, srq->handle}) + 8);

    EXPECT_TRUE(make_qp(pd.get(), cq.get()));
    {
        Borrowed handle(pd->handle, other_pd->handle);
        EXPECT_FALSE(make_qp(pd.get(), cq.get())) << "a QP in another's PD";
        EXPECT_EQ(ibv_reg_mr(pd.get(), memory.data(), 4096, kAll), nullptr);
        EXPECT_EQ(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1), nullptr);
        ibv_srq_init_attr srq_attr{};
        srq_attr.attr.max_wr = 4;
        EXPECT_EQ(ibv_create_srq(pd.get(), &srq_attr), nullptr);
    }
    {
        Borrowed handle(cq->handle, other_cq->handle);
        EXPECT_FALSE(make_qp(pd.get(), cq.get())) << "a QP on another's CQ";
        EXPECT_NE(ibv_resize_cq(cq.get(), 64), 0);
    }
    EXPECT_TRUE(make_qp(pd.get(), cq.get(), 1, srq.get()));
    {
        Borrowed handle(srq->handle, other_srq->handle);
        EXPECT_FALSE(make_qp(pd.get(), cq.get(), 1, srq.get())) << "a QP on another's SRQ";
        ibv_srq_attr change{.max_wr = 64, .max_sge = 0, .srq_limit = 0};
        EXPECT_NE(ibv_modify_srq(srq.get(), &change, IBV_SRQ_MAX_WR), 0);
        EXPECT_NE(ibv_query_srq(srq.get(), &change), 0);
    }
    /* And they are all still there. */
    EXPECT_EQ(ibv_resize_cq(other_cq.get(), 64), 0);
    ibv_srq_attr query{};
    EXPECT_EQ(ibv_query_srq(other_srq.get(), &query), 0);
    EXPECT_EQ(query.max_wr, 16U);
}

/* There are PDs enough for each stream to have its own. */
TEST(Sec, OwnPdForEachStream) {
    REQ("SEC-07");
    Context context = open_device(config().dev);
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
    EXPECT_GE(attr.max_pd, attr.max_qp);
    constexpr size_t kCount = 100;
    std::vector<Pd> pds;
    std::vector<Qp> qps;
    Cq cq = create_cq(context.get(), 16);
    for (size_t i = 0; i < kCount; i++) {
        pds.push_back(alloc_pd(context.get()));
        qps.push_back(make_qp(pds.back().get(), cq.get()));
        ASSERT_TRUE(qps.back()) << i;
    }
    qps.clear();
}

/* Each limit of the device, reached: an error, a counter, and everybody else goes on. */
TEST(Sec, EveryLimit) {
    REQ("SEC-02");
    Link bystander({.role = Role::initiator});
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Cq cq = create_cq(context.get(), 16);
    Buffer memory(4096);
    auto make_srq = [&](uint32_t wr) {
        ibv_srq_init_attr init{};
        init.attr = {.max_wr = wr, .max_sge = 1, .srq_limit = 0};
        return Srq(ibv_create_srq(pd.get(), &init)) != nullptr;
    };
    auto make_cq = [&](int entries) {
        return Cq(ibv_create_cq(context.get(), entries, nullptr, nullptr, 0)) != nullptr;
    };
    struct Limit {
        const char *parameter;
        bool counted; // a size that is too large is a bad request, not a limit that was hit
        std::function<bool()> make;
    };
    const Limit limits[] = {
        {"max_pd", true, [&] { return Pd(ibv_alloc_pd(context.get())) != nullptr; }},
        {"max_cq", true, [&] { return make_cq(16); }},
        {"max_qp", true, [&] { return make_qp(pd.get(), cq.get()) != nullptr; }},
        {"max_srq", true, [&] { return make_srq(1); }},
        {"max_mr", true,
         [&] { return Mr(ibv_reg_mr(pd.get(), memory.data(), 4096, kAll)) != nullptr; }},
        {"max_mr", true, [&] { return Mw(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2)) != nullptr; }},
        {"max_ucontext", true,
         [&] { return Context(ibv_open_device(context->device)) != nullptr; }},
        {"max_cqe", false, [&] { return make_cq(200); }},
        {"max_qp_wr", false, [&] { return make_qp(pd.get(), cq.get(), 200) != nullptr; }},
        {"max_srq_wr", false, [&] { return make_srq(200); }},
    };
    /* Some of each are there. */
    Srq srq = create_srq(pd.get(), 1);
    Mr mr = register_memory(pd.get(), memory.data(), 4096);
    for (const Limit &limit : limits) {
        SCOPED_TRACE(limit.parameter);
        EXPECT_TRUE(limit.make());
        {
            ParameterOverride less(limit.parameter, limit.counted ? "1" : "100");
            uint64_t before = counter(Role::initiator, "object_limit_hit");
            EXPECT_FALSE(limit.make());
            if (limit.counted) {
                EXPECT_EQ(counter(Role::initiator, "object_limit_hit"), before + 1);
            }
        }
        EXPECT_TRUE(limit.make());
    }
    bystander.expect_works();
}

/* Memory that the program itself may not access so is not registered. */
TEST(Sec, OnlyMemoryOfItsOwn) {
    REQ("SEC-13");
    constexpr size_t kSize = 4 * 4096;
    Link link;
    auto registered = [&](void *where, size_t length, int access) {
        return Mr(ibv_reg_mr(link.pd(), where, length, access)) != nullptr;
    };
    Buffer readable(kSize, PROT_READ), none(kSize, PROT_NONE), all(kSize);
    for (int access : {kLocal, kRemoteWrite, kAll, kLocal | IBV_ACCESS_REMOTE_ATOMIC}) {
        SCOPED_TRACE(access);
        EXPECT_TRUE(registered(all.data(), kSize, access));
        EXPECT_FALSE(registered(readable.data(), kSize, access));
        EXPECT_FALSE(registered(none.data(), kSize, access));
    }
    EXPECT_TRUE(registered(readable.data(), kSize, kRemoteRead));
    EXPECT_FALSE(registered(none.data(), kSize, kRemoteRead));
    /* A hole in the middle, or only the last page not to be written. */
    ASSERT_EQ(mprotect(all.at(3 * 4096), 4096, PROT_READ), 0);
    EXPECT_FALSE(registered(all.data(), kSize, kLocal));
    ASSERT_EQ(munmap(none.at(4096), 4096), 0);
    ASSERT_EQ(mprotect(none.data(), 4096, PROT_READ | PROT_WRITE), 0);
    EXPECT_FALSE(registered(none.data(), 2 * 4096, kRemoteRead));
    ASSERT_NE(mmap(none.at(4096), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
    /* Addresses that are not the program's at all. */
    for (uint64_t where : {uint64_t{0}, uint64_t{1} << 46, uint64_t{0xffff888000000000},
                           uint64_t{0xffffffff81000000}, ~uint64_t{0} - 4095}) {
        SCOPED_TRACE(where);
        EXPECT_FALSE(registered(reinterpret_cast<void *>(where), 4096, kRemoteRead));
    }
}

/* Files in a directory, as paths; directories below it are left out. */
std::vector<std::string> files_of(const std::string &directory) {
    std::vector<std::string> files;
    DIR *dir = opendir(directory.c_str());
    require(dir != nullptr, directory);
    while (const dirent *entry = readdir(dir))
        if (entry->d_name[0] != '.')
            files.push_back(directory + "/" + entry->d_name);
    closedir(dir);
    return files;
}

/*
 * Code and settings of the device are root's.  The child that tries as somebody
 * else ends with the number of what it could do after all.
 */
TEST(Sec, OnlyRootLoadsAnything) {
    REQ("SEC-25");
    std::vector<std::string> files = files_of("/sys/module/softwarp/parameters");
    for (const char *part : {"/mpa", "/ports/1/hw_counters"})
        for (const std::string &file : files_of("/sys/class/infiniband/" + config().dev + part))
            files.push_back(file);
    ASSERT_GT(files.size(), 30U);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int done = 0;
        if (setgroups(0, nullptr) != 0 || setresgid(65534, 65534, 65534) != 0 ||
            setresuid(65534, 65534, 65534) != 0)
            _exit(200);
        for (const std::string &file : files)
            done += open(file.c_str(), O_WRONLY | O_CLOEXEC) >= 0;
        done += syscall(SYS_init_module, "", 0UL, "") == 0 || errno != EPERM;
        done += syscall(SYS_delete_module, "softwarp", O_NONBLOCK) == 0 || errno != EPERM;
        _exit(done);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    ShellResult link = shell(
        "setpriv --reuid 65534 --regid 65534 --clear-groups rdma link delete " + config().dev);
    EXPECT_NE(link.status, 0) << link.output;
    EXPECT_TRUE(device_exists(config().dev));
}

/* STags --------------------------------------------------------------------------- */

/* Each way to get at memory, by an STag of another PD. */
TEST(Sec, AnotherPd) {
    REQ("SEC-05", "SEC-26", "RDMAP-85");
    for (const Way &way : kWays) {
        SCOPED_TRACE(way.name);
        Link link;
        Pd other = alloc_pd(link.context());
        Region memory(other.get(), 4096, kEverything);
        memory.buffer.set(0x5a);
        Bytes bad = way.ulpdu(memory.rkey(), memory.addr(), 8);
        link.say(bad);
        expect_refused(link, way, bad, 0x02, 0x03);
        expect_value(memory.at(0), 4096, 0x5a);
    }
    Link link, owner;
    Region memory(owner.pd(), 4096, kEverything);
    link.recv(1, {});
    Bytes bad = send_invalidate(memory.rkey());
    link.say(bad);
    link.expect_terminate(0, 1, 0x09, Headers::ddp(bad));
    link.expect_async(IBV_EVENT_QP_ACCESS_ERR);
    link.expect_disconnected();
    expect_writable(owner, memory, 7);
}

/* The two ways to tie an STag to streams: those of its PD, or one of them. */
TEST(Sec, AnotherStreamOfThePd) {
    REQ("SEC-06", "DDP-45", "SEC-26");
    Link owner;
    Region memory(owner.pd(), 4096, kEverything | IBV_ACCESS_MW_BIND);
    memory.buffer.set(0x5a);
    Mw window = bound_window(owner, memory, 1024, 1024);
    for (const Way &way : kWays) {
        SCOPED_TRACE(way.name);
        Link link({.qp = {.pd = owner.pd()}});
        expect_writable(link, memory, 0x5a);
        Bytes bad = way.ulpdu(window->rkey, memory.addr(1024), 8);
        link.say(bad);
        expect_refused(link, way, bad, 0x02, 0x03);
        expect_value(memory.at(0), 4096, 0x5a);
    }
    {
        Link link({.qp = {.pd = owner.pd()}});
        link.recv(1, {});
        Bytes bad = send_invalidate(window->rkey);
        link.say(bad);
        link.expect_terminate(0, 1, 0x09, Headers::ddp(bad));
        link.expect_disconnected();
    }
    owner.recv(1, {});
    owner.say(Tagged{.stag = window->rkey, .to = memory.addr(1024), .payload = {1, 2, 3}});
    owner.say(Untagged{});
    expect_success(owner.rcq(), 1, IBV_WC_RECV, 0);
    EXPECT_EQ(memory.at(1024)[2], 3);
}

/*
 * What two streams share is not for the peer of one of them to invalidate: it ends
 * its stream, and the other goes on using the region.  What only its stream can use is.
 */
TEST(Sec, SharedStagsStay) {
    REQ("SEC-20", "RDMAP-47", "RDMAP-79");
    Link first;
    Region memory(first.pd(), 4096, kEverything | IBV_ACCESS_MW_BIND);
    {
        Link second({.qp = {.pd = first.pd()}});
        second.recv(1, {});
        Bytes bad = send_invalidate(memory.rkey());
        second.say(bad);
        Segment segment = second.hear();
        ASSERT_EQ(segment.opcode(), kOpTerminate) << segment.text();
        Terminate term = Terminate::parse(segment.payload);
        EXPECT_EQ(term.layer, 0) << term.text();
        EXPECT_TRUE(term.etype == 1 || term.etype == 2) << term.text();
        EXPECT_EQ(term.code, 0x09) << term.text();
        second.expect_fin();
        second.expect_disconnected();
        expect_writable(first, memory, 1);
    }
    expect_writable(first, memory, 2);
    /* A window of this stream, though the PD has another one. */
    {
        Link second({.qp = {.pd = first.pd()}});
        Mw window = bound_window(first, memory, 0, 64);
        first.recv(2, {});
        first.say(send_invalidate(window->rkey, first.send_msn++));
        ibv_wc wc = expect_success(first.rcq(), 2, IBV_WC_RECV, 0);
        EXPECT_EQ(wc.invalidated_rkey, window->rkey);
        expect_writable(first, memory, 3);
    }
    /* And the region, now that the stream is alone. */
    first.recv(3, {});
    first.say(send_invalidate(memory.rkey(), first.send_msn++));
    expect_success(first.rcq(), 3, IBV_WC_RECV, 0);
    Bytes bad = Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = {1}}.bytes();
    first.say(bad);
    first.expect_terminate(1, 1, 0x00, Headers::ddp(bad));
}

/*
 * Many registrations, one after the other: every bit as often set as not, every
 * part of the range used as often, no step that comes twice too often, and none
 * of those that are gone given out again soon.
 */
TEST(Sec, StagsAreSpread) {
    REQ("SEC-08", "RDMAP-87");
    const size_t count = full_or_quick<size_t>(6000, 2000);
    constexpr size_t kParts = 64;
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Buffer memory(4096);
    std::vector<uint32_t> stags;
    for (size_t i = 0; i < count; i++)
        stags.push_back(register_memory(pd.get(), memory.data(), 4096)->rkey);

    /* Of n throws of a coin 6.5 deviations off the middle are no accident. */
    const double middle = static_cast<double>(count) / 2;
    const double off = 6.5 * std::sqrt(static_cast<double>(count)) / 2;
    for (int bit = 0; bit < 32; bit++)
        EXPECT_NEAR(
            static_cast<double>(std::count_if(
                stags.begin(), stags.end(), [&](uint32_t stag) { return (stag >> bit & 1) != 0; })),
            middle, off)
            << "bit " << bit;
    std::array<size_t, kParts> parts{};
    for (uint32_t stag : stags)
        parts[stag / (UINT32_MAX / kParts + 1)]++;
    const double share = static_cast<double>(count) / kParts;
    for (size_t i = 0; i < kParts; i++)
        EXPECT_NEAR(static_cast<double>(parts[i]), share, 6.5 * std::sqrt(share)) << "part " << i;

    std::map<uint32_t, int> steps;
    std::map<uint32_t, int> seen;
    for (size_t i = 0; i < count; i++) {
        seen[stags[i]]++;
        if (i > 0)
            steps[stags[i] - stags[i - 1]]++;
    }
    auto again = [](const std::map<uint32_t, int> &all) {
        int sum = 0;
        for (auto [value, times] : all)
            sum += times - 1;
        return sum;
    };
    /* One in two hundred of such runs has one; five are no accident. */
    EXPECT_LT(again(steps), 5);
    EXPECT_LT(again(seen), 5);
}

/* Bounds and rights --------------------------------------------------------------- */

/* One octet, or word, in front, behind, and across each end. */
TEST(Sec, BoundsToTheOctet) {
    REQ("SEC-09");
    constexpr size_t kStart = 4096 + 8, kLength = 5004; /* ends in the middle of a word */
    for (const Way &way : kWays)
        for (int place = 0; place < 5; place++) {
            SCOPED_TRACE(fmt::format("{} {}", way.name, place));
            Link link;
            Buffer memory(4 * 4096);
            memory.set(0x5a);
            Mr mr = register_memory(link.pd(), memory.at(kStart), kLength, kEverything);
            const uint64_t begin = memory.addr(kStart), end = begin + kLength;
            bool atomic = way.name == std::string("Atomic");
            uint64_t to = 0;
            uint32_t length = 0;
            switch (place) {
            case 0: /* the last octet in front */
                to = begin - (atomic ? 8 : 1);
                length = 1;
                break;
            case 1: /* across the beginning */
                to = begin - (atomic ? 8 : 1);
                length = 2;
                break;
            case 2: /* the first octet behind */
                to = end + (atomic ? 4 : 0);
                length = 1;
                break;
            case 3: /* across the end */
                to = end - (atomic ? 4 : 1);
                length = 2;
                break;
            default: /* across both */ to = begin - (atomic ? 8 : 1); length = kLength + 2;
            }
            Bytes bad = way.ulpdu(mr->rkey, to, length);
            link.say(bad);
            expect_refused(link, way, bad, 0x01, 0x01);
            expect_value(memory.data(), memory.size(), 0x5a);
        }
    /* A Read Response may go where the read said, and not one octet beside. */
    for (int64_t shift : {-1, 1, 100, -100}) {
        SCOPED_TRACE(shift);
        Link link;
        Region sink(link.pd(), 4096);
        sink.buffer.set(0x5a);
        link.read(1, {sink.sge(1000, 100)}, 0x10, 0x20);
        ReadRequest request = ReadRequest::parse(link.hear().payload);
        link.say(Tagged{.rdmap = kRdmapVersion | kOpReadResponse,
                        .stag = request.sink_stag,
                        .to = request.sink_to + static_cast<uint64_t>(shift),
                        .payload = Bytes(100, 0xee)});
        EXPECT_EQ(link.hear().opcode(), kOpTerminate);
        link.expect_fin();
        link.expect_disconnected();
        expect_value(sink.at(0), 4096, 0x5a);
    }
}

/* Each right by itself lets in its own kind of access and no other. */
TEST(Sec, RightsApart) {
    REQ("SEC-12");
    const int rights[] = {kRemoteWrite, IBV_ACCESS_REMOTE_READ | kLocal,
                          IBV_ACCESS_REMOTE_ATOMIC | kLocal};
    for (size_t right = 0; right < std::size(rights); right++)
        for (size_t i = 0; i < std::size(kWays); i++) {
            SCOPED_TRACE(fmt::format("right {}, {}", right, kWays[i].name));
            Link link;
            Region memory(link.pd(), 4096, rights[right]);
            Bytes ulpdu = kWays[i].ulpdu(memory.rkey(), memory.addr(), 8);
            link.say(ulpdu);
            if (right != i) {
                expect_refused(link, kWays[i], ulpdu, 0x00, 0x02);
                expect_value(memory.at(0), 4096, 0);
                continue;
            }
            if (i > 0) {
                EXPECT_EQ(link.hear().opcode(), i == 1 ? kOpReadResponse : kOpAtomicResponse);
            }
            link.expect_works();
            EXPECT_EQ(*memory.at(0), i == 0 ? 0xee : i == 1 ? 0 : 1);
        }
}

/*
 * The peer writes without a pause; from the moment that revoking has returned the
 * memory is as it is.
 */
TEST(Sec, RevokedUnderFire) {
    REQ("SEC-10", "SEC-11", "RDMAP-86");
    constexpr size_t kLength = 16384, kPiece = 1024;
    enum { kDeregister, kLocalInvalidate, kRemoteInvalidate, kWays };
    for (int way = 0; way < kWays; way++)
        for (size_t round = 0; round < full_or_quick<size_t>(4, 2); round++) {
            SCOPED_TRACE(fmt::format("way {} round {}", way, round));
            Link link;
            Buffer memory(kLength);
            Mr mr = register_memory(link.pd(), memory.data(), kLength, kAll | IBV_ACCESS_MW_BIND);
            Mw window = alloc_mw(link.pd(), IBV_MW_TYPE_2);
            uint32_t stag = mr->rkey;
            if (way != kDeregister) {
                SendWr wr = SendWr::bind_mw(1, window.get(), mr.get(), memory.addr(), kLength,
                                            IBV_ACCESS_REMOTE_WRITE);
                ASSERT_EQ(post_send(link.qp(), wr), 0);
                expect_success(link.scq(), 1, IBV_WC_BIND_MW);
                stag = wr.rkey;
            }
            link.recv(2, {});
            std::atomic<bool> stop{false};
            auto fire = [&](uint8_t value) {
                Bytes burst;
                for (size_t at = 0; at < kLength; at += kPiece)
                    append(burst,
                           link.peer().writer().encode(Tagged{
                               .stag = stag, .to = memory.addr(at), .payload = Bytes(kPiece, value)}
                                                           .bytes()));
                return burst;
            };
            if (way == kRemoteInvalidate) {
                Bytes all = fire(1);
                append(all, link.peer().writer().encode(send_invalidate(stag)));
                append(all, fire(2));
                link.peer().say(all);
                expect_success(link.rcq(), 2, IBV_WC_RECV, 0);
                Bytes then(memory.data(), memory.data() + kLength);
                link.expect_terminate(1, 1, 0x00);
                EXPECT_EQ(memcmp(then.data(), memory.data(), kLength), 0);
                expect_value(memory.data(), kLength, 1);
                continue;
            }
            std::thread gun([&] {
                try {
                    for (uint8_t value = 1; !stop; value++)
                        link.peer().say(fire(value));
                } catch (const Failure &) {
                    /* the stream has ended */
                }
            });
            const std::atomic_ref<uint8_t> last(*memory.at(kLength - 1));
            EXPECT_TRUE(eventually([&] { return last.load() >= 3; }));
            if (way == kDeregister) {
                mr.reset();
            } else {
                EXPECT_EQ(post_send(link.qp(), SendWr::local_inv(3, stag)), 0);
                expect_success(link.scq(), 3, IBV_WC_LOCAL_INV);
            }
            Bytes then(memory.data(), memory.data() + kLength);
            link.expect_terminate(1, 1, 0x00);
            stop = true;
            gun.join();
            EXPECT_EQ(memcmp(then.data(), memory.data(), kLength), 0);
        }
}

/* Shares ---------------------------------------------------------------------------- */

/*
 * The counter that is bound to one QP, by name; empty when there is none.  rdma(8)
 * shows names and values, and behind them "LQPN: <17>".
 */
std::map<std::string, uint64_t> counters_of(uint32_t qpn) {
    std::istringstream words(
        shell(fmt::format("rdma statistic qp show link {}/1", config().dev)).output);
    std::map<std::string, uint64_t> values;
    for (std::string word, before; words >> word; before = word) {
        if (word == "link") {
            values.clear();
        } else if (before == "LQPN:") {
            if (word.find(fmt::format("<{}>", qpn)) == 0)
                return values;
        } else if (word.find_first_not_of("0123456789") == std::string::npos) {
            values[before] = std::stoull(word);
        }
    }
    return {};
}

/* Has the device count a QP for itself as long as this lives. */
class Counted {
  public:
    explicit Counted(uint32_t qpn) : qpn_(qpn) {
        ShellResult bind =
            shell(fmt::format("rdma statistic qp bind link {}/1 lqpn {}", config().dev, qpn));
        require(bind.status == 0, bind.output);
    }
    ~Counted() {
        uint64_t number = of("cntn");
        shell(fmt::format("rdma statistic qp unbind link {}/1 cntn {} lqpn {}", config().dev,
                          number, qpn_));
    }
    Counted(const Counted &) = delete;
    Counted &operator=(const Counted &) = delete;
    uint64_t of(const std::string &name) const { return counters_of(qpn_)[name]; }

  private:
    uint32_t qpn_;
};

/*
 * Two streams on one SRQ.  One peer takes all it can get: an event tells that few
 * are left, completions and counters whose they were; the other goes on.
 */
TEST(Sec, WhoTakesSharedReceives) {
    REQ("SEC-14");
    constexpr uint32_t kReceives = 32, kLimit = 8, kTaken = 28;
    ibv_context *context = cm_context(device_of(Role::initiator));
    Pd pd = alloc_pd(context);
    Cq cq = create_cq(context, 256);
    Srq srq = create_srq(pd.get(), kReceives, 1, kLimit);
    QpOptions shared{.recv_cq = cq.get(), .pd = pd.get(), .srq = srq.get()};
    Link greedy({.role = Role::initiator, .qp = shared});
    Link modest({.role = Role::initiator, .qp = shared});
    Counted of_greedy(greedy.qp()->qp_num), of_modest(modest.qp()->qp_num);
    for (uint64_t i = 0; i < kReceives; i++)
        ASSERT_EQ(post_srq_recv(srq.get(), i, {}), 0);
    modest.say(Untagged{});
    EXPECT_EQ(next_wc(cq.get()).qp_num, modest.qp()->qp_num);
    Bytes flood;
    for (uint32_t i = 1; i <= kTaken; i++)
        append(flood, greedy.peer().writer().encode(Untagged{.msn = i}.bytes()));
    greedy.peer().say(flood);
    for (uint32_t i = 0; i < kTaken; i++)
        EXPECT_EQ(next_wc(cq.get()).qp_num, greedy.qp()->qp_num);
    expect_srq_event(srq.get(), IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(of_greedy.of("rx_fpdu"), kTaken);
    EXPECT_EQ(of_modest.of("rx_fpdu"), 1U);
    for (uint64_t i = 0; i < kTaken; i++)
        ASSERT_EQ(post_srq_recv(srq.get(), i, {}), 0);
    for (uint32_t i = 2; i <= 10; i++) {
        modest.say(Untagged{.msn = i});
        EXPECT_EQ(next_wc(cq.get()).qp_num, modest.qp()->qp_num);
    }
}

/* FPDUs in many pieces, and many tiny ones: seen, stream by stream; and it can be ended. */
TEST(Sec, CostlyStreamsAreSeen) {
    REQ("SEC-21");
    constexpr uint32_t kPieces = 20, kTiny = 500;
    Link pieces({.role = Role::initiator}), tiny({.role = Role::initiator}),
        plain({.role = Role::initiator});
    Region to(pieces.pd(), 4096);
    Counted of_pieces(pieces.qp()->qp_num), of_tiny(tiny.qp()->qp_num),
        of_plain(plain.qp()->qp_num);
    for (uint32_t i = 1; i <= kPieces; i++) {
        pieces.recv(i, {to.all()});
        Bytes ulpdu = Untagged{.msn = i, .payload = Bytes(1000)}.bytes();
        pieces.peer().say_ulpdu(ulpdu, SendPlan::at({100, 600}));
        expect_success(pieces.rcq(), i, IBV_WC_RECV, 1000);
    }
    Bytes all;
    for (uint32_t i = 0; i < kTiny; i++)
        append(all, tiny.peer().writer().encode(Tagged{}.bytes()));
    append(all, tiny.peer().writer().encode(Untagged{}.bytes()));
    tiny.recv(1, {});
    tiny.peer().say(all);
    expect_success(tiny.rcq(), 1, IBV_WC_RECV, 0);
    plain.expect_works();
    EXPECT_GE(of_pieces.of("rx_split_fpdu"), kPieces);
    EXPECT_EQ(of_plain.of("rx_split_fpdu"), 0U);
    EXPECT_EQ(of_tiny.of("rx_fpdu"), kTiny + 1);
    EXPECT_LT(of_tiny.of("rx_bytes"), of_tiny.of("rx_fpdu") * 32);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(tiny.qp(), &attr, IBV_QP_STATE), 0);
    tiny.expect_fin();
    plain.expect_works();
}

/* More connections that say nothing than are allowed: the rest is sent away. */
TEST(Sec, HalfOpenStreamsAreLimited) {
    REQ("SEC-22");
    ParameterOverride limit("max_pending", "4");
    ParameterOverride patience("handshake_ms", "1500");
    uint64_t dropped = counter(Role::responder, "pending_limit_drop");
    uint64_t expired = counter(Role::responder, "mpa_timeout");
    Passive passive;
    std::vector<Stream> others;
    size_t refused = 0;
    for (int i = 0; i < 7; i++)
        try {
            others.push_back(passive.connect());
        } catch (const Failure &) {
            refused++; /* so soon that connect() heard of it */
        }
    EXPECT_TRUE(
        eventually([&] { return counter(Role::responder, "pending_limit_drop") == dropped + 4; }));
    EXPECT_LE(refused, 4U);
    /* Those that were let in are ended as well, in their time. */
    EXPECT_TRUE(passive.peer.closed_by_peer());
    for (Stream &other : others)
        EXPECT_TRUE(other.closed_by_peer());
    EXPECT_EQ(counter(Role::responder, "mpa_timeout"), expired + 4);
    Link link;
    link.expect_works();
}

} // namespace
