// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Whatever an unprivileged program posts, or a peer sends, no processor is kept
 * from others: the kernel's watchdogs, set to look closely, report nothing, and
 * another user's connections come up meanwhile.
 *
 * The requests of the floods stand in the ring from the start; a thread that
 * only stores the producer's index posts them faster than any engine takes them.
 */
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <regex>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/rings.hpp"
#include "wire/stream.hpp"

using namespace softwarp::e2e;
using namespace softwarp::wire;

namespace {

using Clock = std::chrono::steady_clock;

/* A soft lockup is one of twice the watchdog's threshold, which is a second. */
constexpr auto kTime = std::chrono::seconds(4);
constexpr uid_t kNobody = 65534;
constexpr uid_t kSomebody = 65533;

/* What the processes of a test know of each other. */
struct Shared {
    std::atomic<bool> begun, over;
};
Shared *shared;

/* Set-up is done: from here on until when a deed goes on, for every thread of it. */
class Until {
  public:
    Until() { shared->begun = true; }
    bool over() const { return Clock::now() >= end_; }

  private:
    Clock::time_point end_ = Clock::now() + kTime;
};

/* Does something as a user without privileges; a process, to be waited for. */
class User {
  public:
    User(uid_t uid, const std::function<uint64_t()> &deed) {
        int ends[2];
        require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
        pid_ = fork();
        require(pid_ >= 0, "fork");
        if (pid_ == 0)
            _exit(run(uid, deed, ends[1]));
        close(ends[1]);
        result_ = Fd(ends[0]);
    }

    ~User() {
        if (pid_ < 0)
            return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }

    User(const User &) = delete;
    User &operator=(const User &) = delete;

    /* What the deed returned: how often it was done. */
    uint64_t count() {
        uint64_t count = 0;
        ssize_t got = read(result_.get(), &count, sizeof(count));
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        if (got != sizeof(count) || status != 0)
            fail(fmt::format("a user's process ended with status {:#x}", status));
        return count;
    }

  private:
    static int run(uid_t uid, const std::function<uint64_t()> &deed, int to) {
        try {
            require(setgroups(0, nullptr) == 0 && setresgid(uid, uid, uid) == 0 &&
                        setresuid(uid, uid, uid) == 0,
                    "become a user");
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            uint64_t count = deed();
            return write(to, &count, sizeof(count)) == sizeof(count) ? 0 : 1;
        } catch (const std::exception &error) {
            fmt::print(stderr, "user {}: {}\n", uid, error.what());
        }
        return 1;
    }

    pid_t pid_ = -1;
    Fd result_;
};

void set(const std::string &path, const std::string &value) {
    std::ofstream file(path);
    file << value << std::flush;
    if (!file)
        fail("cannot write " + path);
}

class Watchdog : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        /* one that is off would be as silent as one that has nothing to say */
        set("/proc/sys/kernel/soft_watchdog", "1");
        set("/proc/sys/kernel/watchdog_thresh", "1");
        set("/proc/sys/kernel/hung_task_timeout_secs", "10");
        set("/proc/sys/vm/nr_hugepages", "8");
        set("/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout", "3");
    }

    void SetUp() override {
        void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        require(memory != MAP_FAILED, "mmap");
        shared = new (memory) Shared{};
        log_ = Fd(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        require(log_.get() >= 0 && lseek(log_.get(), 0, SEEK_END) >= 0, "open /dev/kmsg");
    }

    void TearDown() override {
        munmap(shared, sizeof(Shared));
        std::regex report("lockup|detected stalls|blocked for more than|self-detected stall");
        char line[8192];
        for (;;) {
            ssize_t got = read(log_.get(), line, sizeof(line));
            if (got < 0 && errno == EPIPE)
                continue;
            if (got <= 0)
                break;
            std::string text(line, static_cast<size_t>(got));
            EXPECT_FALSE(std::regex_search(text, report)) << text;
        }
    }

    /* A stranger does it, while another user wants nothing but to connect and to talk. */
    static void endure(const std::function<uint64_t()> &deed) {
        User stranger(kNobody, deed);
        User other(kSomebody, [] {
            uint64_t rounds = 0;
            while (!shared->over) {
                bool begun = shared->begun;
                expect_route_works(own4());
                rounds += begun && !shared->over ? 1 : 0;
            }
            return rounds;
        });
        uint64_t done = stranger.count();
        shared->over = true;
        uint64_t served = other.count();
        fmt::print("done {} times, others were served {} times\n", done, served);
        EXPECT_GT(done, 0U);
        EXPECT_GT(served, 0U);
    }

  private:
    Fd log_;
};

/* Posts for so long ahead that another thread may have the processor for a while. */
constexpr uint32_t kDepth = 32768;
constexpr QpOptions kFlood{.send_wr = kDepth, .inline_data = 64};

/* What is posted all the time, and how the engine is made to look. */
enum class Look { doorbell, softirq, any };

/*
 * Keeps the ring full until time is up and makes the engine look at it; returns
 * how many requests it has taken.
 */
uint64_t flood(const SendRing &ring, ibv_qp *qp, Look look, const Until &until = Until()) {
    std::atomic_ref kick(ring.ctrl()->kick);
    std::atomic<uint64_t> taken = 0;
    std::jthread post([&] {
        while (!until.over())
            for (int i = 0; i < 64; i++) {
                if (look == Look::softirq)
                    kick.store(0);
                taken += ring.post_all();
            }
    });
    std::jthread scribble([&] {
        while (look == Look::any && !until.over())
            for (uint32_t i = 0; i < 64; i++)
                kick.store(i % 3 == 0 ? i : i & 1);
    });
    while (!until.over())
        if (look == Look::softirq)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        else
            ring_doorbell(qp);
    return taken;
}

swp_sqe request(uint8_t opcode, uint32_t rkey = 0, uint64_t addr = 0) {
    swp_sqe sqe{};
    sqe.opcode = opcode;
    sqe.rkey = rkey;
    sqe.remote_addr = addr;
    return sqe;
}

/* Memory and a window that requests of one QP bind to it without end. */
struct Windows {
    explicit Windows(const Endpoint &end)
        : memory(end.pd(), 4096, kAll | IBV_ACCESS_MW_BIND),
          type_1(alloc_mw(end.pd(), IBV_MW_TYPE_1)), type_2(alloc_mw(end.pd(), IBV_MW_TYPE_2)) {}

    void bind_type_1(const SendRing &ring) const {
        swp_bind what = bind();
        ring.fill(request(SWP_OP_BIND_MW, type_1->rkey), &what, sizeof(what));
    }

    /* bound, invalidated, bound ... */
    void bind_type_2(const SendRing &ring) const {
        swp_bind what = bind();
        swp_sqe invalidate = request(SWP_OP_LOCAL_INV);
        invalidate.imm_inv = type_2->rkey;
        ring.fill(request(SWP_OP_BIND_MW, type_2->rkey), &what, sizeof(what), 2, 0);
        ring.fill(invalidate, nullptr, 0, 2, 1);
    }

    swp_bind bind() const { return {memory.addr(), 4096, memory.lkey(), IBV_ACCESS_REMOTE_READ}; }

    Region memory;
    Mw type_1, type_2;
};

TEST_F(Watchdog, BindsWithoutEnd) {
    endure([] {
        Pair pair(kFlood, own4());
        SendRing ring(pair.c());
        Windows windows(pair.c());
        windows.bind_type_1(ring);
        return flood(ring, pair.c().qp(), Look::doorbell);
    });
}

TEST_F(Watchdog, BindsAndInvalidationsWithoutEnd) {
    endure([] {
        Pair pair(kFlood, own4());
        SendRing ring(pair.c());
        Windows windows(pair.c());
        windows.bind_type_2(ring);
        return flood(ring, pair.c().qp(), Look::any);
    });
}

/* The engine looks because a packet came, or an acknowledgement. */
TEST_F(Watchdog, BindsWithoutEndInSoftirq) {
    endure([] {
        Pair pair(kFlood, own4());
        SendRing ring(pair.c());
        Windows windows(pair.c());
        Region to(pair.c().pd(), 64), from(pair.s().pd(), 64);
        windows.bind_type_1(ring);
        Until until;
        std::jthread peer([&] {
            while (!until.over()) {
                pair.s().write(1, {from.all()}, to.addr(), to.rkey());
                next_wc(pair.s().scq());
            }
        });
        return flood(ring, pair.c().qp(), Look::softirq, until);
    });
}

/* The engine looks for the first time on the queue that brings all connections up. */
TEST_F(Watchdog, BindsBeforeTheConnection) {
    endure([] {
        EventChannel clients, servers;
        Listener listener(servers, "", config().addr4);
        Endpoint client(clients, resolve(clients, "", config().addr4, listener.port()), kFlood);
        SendRing ring(client);
        Windows windows(client);
        std::atomic<bool> stop = false;
        std::atomic<uint64_t> taken = 0;
        windows.bind_type_1(ring);
        Until until;
        std::jthread post([&] {
            while (!stop)
                taken += ring.post_all();
        });
        start_connect(client);
        CmEvent asked = servers.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        Endpoint server(servers, CmId(asked.id), QpOptions{});
        accept(server);
        while (!until.over())
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        stop = true;
        client.expect(RDMA_CM_EVENT_ESTABLISHED);
        return taken.load();
    });
}

/* Octets that cost the most: none at all, and some out of the ring itself. */
TEST_F(Watchdog, EmptyAndInlineWrites) {
    endure([] {
        Pair pair(kFlood, own4());
        SendRing ring(pair.c());
        Region to(pair.s().pd(), 64);
        uint8_t octets[64] = {};
        swp_sqe some = request(SWP_OP_WRITE, to.rkey(), to.addr());
        some.flags = SWP_WQE_INLINE;
        some.inline_len = sizeof(octets);
        ring.fill(request(SWP_OP_WRITE));
        ring.fill(some, octets, sizeof(octets), 4, 3);
        return flood(ring, pair.c().qp(), Look::any);
    });
}

/* Memory as large as a message may be, of which there is little: one huge page, many times. */
struct Vast {
    static constexpr size_t kPiece = 2 << 20;
    static constexpr size_t kSize = (size_t{1} << 31) - kPiece;

    explicit Vast(ibv_pd *pd) {
        Fd file(memfd_create("vast", MFD_CLOEXEC | MFD_HUGETLB));
        require(file.get() >= 0 && ftruncate(file.get(), kPiece) == 0, "memfd_create");
        start = static_cast<uint8_t *>(
            mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        require(start != MAP_FAILED, "mmap");
        for (size_t at = 0; at < kSize; at += kPiece)
            require(mmap(start + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                         file.get(), 0) != MAP_FAILED,
                    "mmap a piece");
        mr = register_memory(pd, start, kSize, kAll);
    }

    ~Vast() {
        mr.reset();
        munmap(start, kSize);
    }

    swp_sge sge() const { return {reinterpret_cast<uintptr_t>(start), mr->lkey, kSize}; }

    uint8_t *start;
    Mr mr;
};

TEST_F(Watchdog, ReadsOfTheGreatestSize) {
    endure([] {
        Pd pd = alloc_pd(cm_context(config().dev));
        QpOptions options{.send_wr = 64, .send_sge = 2, .pd = pd.get(), .ird = 128, .ord = 128};
        Pair pair(options, own4());
        SendRing ring(pair.c());
        Vast memory(pd.get());
        swp_sqe read = request(SWP_OP_READ, memory.mr->rkey, memory.sge().addr);
        swp_sge sink = memory.sge();
        read.num_sge = 1;
        ring.fill(read, &sink, sizeof(sink));
        return flood(ring, pair.c().qp(), Look::any);
    });
}

/* All of a queue is flushed at each doorbell. */
TEST_F(Watchdog, PostingAfterTheEnd) {
    endure([] {
        Pair pair(QpOptions{.send_wr = 32768, .send_cqe = 1 << 17}, own4());
        SendRing ring(pair.c());
        ibv_qp_attr error{};
        error.qp_state = IBV_QPS_ERR;
        require(ibv_modify_qp(pair.c().qp(), &error, IBV_QP_STATE) == 0, "ibv_modify_qp");
        return flood(ring, pair.c().qp(), Look::doorbell);
    });
}

/* A CQ that says that it is full is moved as a whole, to and fro. */
TEST_F(Watchdog, ResizingTheGreatestQueue) {
    endure([] {
        Context context = open_device(config().dev);
        ibv_device_attr attr{};
        require(ibv_query_device(context.get(), &attr) == 0, "ibv_query_device");
        Cq cq = create_cq(context.get(), attr.max_cqe);
        uint64_t rounds = 0;
        for (Until until; !until.over(); rounds++) {
            for (const Mapping &ring : device_mappings())
                std::atomic_ref(reinterpret_cast<swp_ring_ctrl *>(ring.start)->cons)
                    .store(0U - static_cast<uint32_t>(cq->cqe));
            /* the library may have another opinion of what waits */
            if (ibv_resize_cq(cq.get(), attr.max_cqe - static_cast<int>(rounds % 2)) != 0)
                cq = create_cq(context.get(), attr.max_cqe);
        }
        return rounds;
    });
}

/* Peers ------------------------------------------------------------------- */

/* A responder in full operation and the peer that is to trouble it. */
struct Victim {
    explicit Victim(uint8_t flags, const StreamOptions &options = {})
        : listener(channel, "", config().addr4), raw("", config().addr4, listener.port(), options) {
        raw.say(MpaFrame::enhanced_request({.ird = 16, .ord = 16}, flags).bytes());
        CmEvent request = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        end = std::make_unique<Endpoint>(channel, CmId(request.id), QpOptions{});
        accept(*end);
        raw.hear_frame();
        end->expect(RDMA_CM_EVENT_ESTABLISHED);
        raw.use_markers(false, (flags & kMpaMarkers) != 0);
    }

    EventChannel channel;
    Listener listener;
    Stream raw;
    std::unique_ptr<Endpoint> end;
};

/* Says the same again and again, as fast as TCP takes it. */
uint64_t repeat(const Stream &raw, const Bytes &octets) {
    uint64_t times = 0;
    for (Until until; !until.over(); times++)
        for (size_t at = 0; at < octets.size();) {
            ssize_t sent = send(raw.fd(), octets.data() + at, octets.size() - at, MSG_NOSIGNAL);
            require(sent > 0 || errno == EAGAIN, "send");
            at += sent > 0 ? static_cast<size_t>(sent) : 0;
        }
    return times;
}

TEST_F(Watchdog, EmptyFpdusOfAPeer) {
    endure([] {
        Victim victim(kMpaCrc);
        Bytes many, one = fpdu(Tagged{}.bytes());
        while (many.size() < 64 * 1024)
            append(many, one);
        return repeat(victim.raw, many);
    });
}

/* Each octet of an FPDU is a packet of its own. */
TEST_F(Watchdog, TinySegmentsOfAPeer) {
    endure([] {
        Victim victim(kMpaCrc, {.mss = 88});
        Bytes one = fpdu(Tagged{}.bytes());
        uint64_t times = 0;
        for (Until until; !until.over(); times++)
            for (uint8_t octet : one) {
                while (send(victim.raw.fd(), &octet, 1, MSG_NOSIGNAL) < 0)
                    require(errno == EAGAIN, "send");
            }
        return times;
    });
}

/* Sixteen Read Requests of memory beyond all bounds, in the smallest segments, with markers. */
TEST_F(Watchdog, ReadsInTinySegmentsWithMarkers) {
    endure([] {
        Victim victim(kMpaCrc | kMpaMarkers, {.mss = 88});
        Vast memory(victim.end->pd());
        for (uint32_t i = 1; i <= 16; i++)
            victim.raw.say_ulpdu(ReadRequest{.sink_stag = 1,
                                             .size = Vast::kSize,
                                             .src_stag = memory.mr->rkey,
                                             .src_to = memory.sge().addr}
                                     .bytes(i));
        uint64_t times = 0;
        for (Until until; !until.over(); times++)
            victim.raw.hear(64 * 1024);
        victim.raw.reset();
        return times;
    });
}

} // namespace
