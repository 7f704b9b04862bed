// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Every error path taken once: of each call the first thing that can fail does,
 * then the second, and so on until one call is through without.  What failed
 * has to leave nothing behind, what did not has to work.  FaultOften is for what
 * is done in interrupts and workers, where failures come by chance.
 *
 * Wants a kernel with fault injection and /sys/kernel/debug mounted; the
 * harness looks for leaks and reports.
 */
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/network.hpp"

using namespace softwarp::e2e;

namespace {

void set(const std::string &path, const std::string &value) {
    std::ofstream file(path);
    file << value << std::flush;
    if (!file)
        fail("cannot write " + path);
}

std::string get(const std::string &path) {
    std::ifstream file(path);
    std::string value;
    std::getline(file, value);
    if (!file)
        fail("cannot read " + path);
    return value;
}

/* The line of /proc/self/status, where pinned and locked memory are counted. */
std::string status(const std::string &key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(key))
            return line;
    return {};
}

constexpr const char *kAllocations[] = {"failslab", "fail_page_alloc"};

std::string attribute(const std::string &of, const std::string &name) {
    return fmt::format("/sys/kernel/debug/{}/{}", of, name);
}

/* While it lives, the n-th thing that this thread asks of the kernel and that can fail does. */
class FailNth {
  public:
    FailNth(const Fd &file, unsigned n) : file_(file.get()) {
        int length = std::snprintf(text_, sizeof(text_), "%u", n);
        require(pwrite(file_, text_, static_cast<size_t>(length), 0) == length, "write fail-nth");
    }

    ~FailNth() { over(); }
    FailNth(const FailNth &) = delete;
    FailNth &operator=(const FailNth &) = delete;

    /* Ends it; returns whether it came to that. */
    bool over() {
        if (file_ < 0)
            return failed_;
        /* what is left to count down; to read that can be what fails */
        ssize_t got = pread(file_, text_, sizeof(text_) - 1, 0);
        failed_ = got > 0 && text_[0] == '0';
        /* the same here, and then it is over as well */
        got = pwrite(file_, "0", 1, 0);
        file_ = -1;
        return failed_;
    }

  private:
    int file_;
    bool failed_ = false;
    char text_[16] = {};
};

/* A call that is made, and what is done with its result; both are given 0 or its errno. */
struct Attempt {
    std::function<void()> prepare = [] {};
    std::function<int()> call;
    std::function<void(int)> after = [](int) {};
    bool frugal = false; // may ask the kernel for nothing that can fail
    unsigned stride = 1; // not every failure, but every second, say
};

/* What fails is asked for by this thread. */
class OneThread : public testing::Test {
  protected:
    OneThread() {
        for (const char *kind : kAllocations) {
            set(attribute(kind, "ignore-gfp-wait"), "N");
            set(attribute(kind, "verbose"), "0");
        }
        set(attribute("fail_page_alloc", "min-order"), "0");
        set(attribute("fail_usercopy", "verbose"), "0");
        nth_ = Fd(open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC));
        require(nth_.get() >= 0, "open fail-nth; has the kernel FAULT_INJECTION?");
    }

    /* Until it is through without a failure. */
    void each_failure(const Attempt &attempt) {
        std::map<int, unsigned> seen;
        unsigned failures = 0;
        bool failed = true;

        for (unsigned n = 1; failed; n += attempt.stride) {
            attempt.prepare();
            int error;
            {
                FailNth nth(nth_, n);
                error = attempt.call();
                failed = nth.over();
            }
            seen[error]++;
            failures += failed ? 1 : 0;
            SCOPED_TRACE(fmt::format("failure {}, result {}", n, error));
            EXPECT_TRUE(failed || error == 0) << "without a failure";
            attempt.after(error);
            if (testing::Test::HasFailure() || n > 5000)
                FAIL() << "at failure " << n;
        }
        for (auto [error, times] : seen)
            fmt::print("{} times {}\n", times, error != 0 ? errno_name(error) : "success");
        EXPECT_TRUE(attempt.frugal || failures > 0) << "nothing ever failed";
    }

  private:
    Fd nth_;
};

/* The module ---------------------------------------------------------------- */

/* While it lives, only what is asked for between these addresses fails. */
class OnlyFrom {
  public:
    OnlyFrom(uint64_t start, uint64_t end) {
        for (const char *kind : kKinds) {
            set(attribute(kind, "require-start"), fmt::format("{:#x}", start));
            set(attribute(kind, "require-end"), fmt::format("{:#x}", end));
        }
    }
    ~OnlyFrom() {
        for (const char *kind : kKinds) {
            set(attribute(kind, "require-start"), "0");
            set(attribute(kind, "require-end"), "0xffffffffffffffff");
        }
    }
    OnlyFrom(const OnlyFrom &) = delete;
    OnlyFrom &operator=(const OnlyFrom &) = delete;

  private:
    static constexpr const char *kKinds[] = {"failslab", "fail_page_alloc", "fail_usercopy"};
};

/* Where a function of the kernel begins, and the next one. */
std::pair<uint64_t, uint64_t> extent(const std::string &function) {
    std::ifstream file("/proc/kallsyms");
    std::vector<uint64_t> addresses;
    uint64_t found = 0;
    std::string address, type, name, rest;
    while (file >> address >> type >> name && std::getline(file, rest)) {
        addresses.push_back(std::stoull(address, nullptr, 16));
        if (name == function)
            found = addresses.back();
    }
    require(found != 0, "no " + function + " in kallsyms");
    std::sort(addresses.begin(), addresses.end());
    return {found, *std::upper_bound(addresses.begin(), addresses.end(), found)};
}

/*
 * Before anything else, as librdmacm keeps the devices that it has seen.  Not with
 * KASAN but without KASAN_VMALLOC: it takes a second module at the same place for
 * an overrun, and leaves it as it is instead of zeroed.
 */
class FaultModule : public OneThread {};

TEST_F(FaultModule, Load) {
    struct Link {
        std::string name, netdev, ns;
    };
    const std::string &ns = config().peer_ns;
    const Link links[] = {
        {config().dev, netdev_of(config().dev), ""},
        {config().peer_dev, netdev_of(config().peer_dev, ns), ns},
        {config().lo_dev, netdev_of(config().lo_dev), ""},
    };
    std::string path =
        must_shell("sed -n 's/^install softwarp .*insmod //p' /etc/modprobe.d/softwarp-test.conf");
    path.erase(path.find_last_not_of('\n') + 1);
    std::ifstream file(path, std::ios::binary);
    const std::string module{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(module.empty()) << path;
    for (const Link &link : links)
        ASSERT_EQ(link_delete(link.name).status, 0);
    ASSERT_EQ(syscall(SYS_delete_module, "softwarp", O_NONBLOCK), 0) << errno_name(errno);
    {
        /* what the kernel does before it calls the module is not ours */
        auto [start, end] = extent("do_init_module");
        OnlyFrom init(start, end);
        each_failure({.call =
                          [&] {
                              return syscall(SYS_init_module, module.data(), module.size(), "") == 0
                                         ? 0
                                         : errno;
                          },
                      .after =
                          [&](int error) {
                              if (error == 0) {
                                  EXPECT_EQ(syscall(SYS_delete_module, "softwarp", O_NONBLOCK), 0);
                              }
                          }});
    }
    must_shell("modprobe softwarp");
    for (const Link &link : links) {
        ShellResult added = link_add(link.name, link.netdev, link.ns);
        ASSERT_EQ(added.status, 0) << added.output;
    }
}

/* Objects of one device ----------------------------------------------------- */

class Fault : public OneThread {
  protected:
    Fault() {
        /* librdmacm keeps what it opens for the first connection */
        expect_route_works();
        before_ = resources();
    }

    void TearDown() override {
        EXPECT_TRUE(eventually([&] { return resources() == before_; })) << before_ << "became\n"
                                                                        << resources();
        expect_route_works();
    }

  private:
    static std::string resources() {
        return must_shell("rdma resource show") + status("VmPin:") + status("VmLck:");
    }

    std::string before_;
};

/*
 * This thread is an ordinary user's, who may have so little that what a failure
 * leaves behind would be missed.
 */
class Scarce {
  public:
    Scarce() {
        rlimit little{2 << 20, 2 << 20};
        require(prlimit(0, RLIMIT_MEMLOCK, &little, &memlock_) == 0, "prlimit");
        require(syscall(SYS_setresuid, kNobody, kNobody, 0) == 0, "setresuid");
    }
    ~Scarce() {
        EXPECT_EQ(syscall(SYS_setresuid, 0, 0, 0), 0);
        prlimit(0, RLIMIT_MEMLOCK, &memlock_, nullptr);
    }
    Scarce(const Scarce &) = delete;
    Scarce &operator=(const Scarce &) = delete;

  private:
    static constexpr uid_t kNobody = 65534;

    /* all of it may be one ordinary user's */
    ParameterOverride share_{"user_share", "100"}, kept_{"reserved_share", "0"};
    ParameterOverride cqs_{"max_cq", "6"}, qps_{"max_qp", "4"}, mrs_{"max_mr", "4"},
        pds_{"max_pd", "4"}, srqs_{"max_srq", "4"}, contexts_{"max_ucontext", "6"};
    rlimit memlock_{};
};

class FaultNth : public Fault {
  protected:
    void TearDown() override {
        pd.reset();
        context.reset();
        scarce.reset();
        Fault::TearDown();
    }

    std::unique_ptr<Scarce> scarce = std::make_unique<Scarce>();
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());

    /* A verb that makes something, whose owner is of type T. */
    template<typename T>
    void each_failure_to_make(const std::function<typename T::pointer()> &make) {
        T made;
        each_failure({.call =
                          [&] {
                              errno = 0;
                              made.reset(make());
                              return made ? 0 : (errno != 0 ? errno : EIO);
                          },
                      .after = [&](int) { made.reset(); }});
    }

    /* A verb that destroys it; after a failure it is still there. */
    template<typename T, typename D>
    void each_failure_to_destroy(const std::function<T()> &make, D destroy) {
        T made;
        each_failure({.prepare = [&] { made = make(); },
                      .call =
                          [&] {
                              int error = destroy(made.get());
                              if (error == 0)
                                  made.release();
                              return error;
                          },
                      .after = [&](int) { made.reset(); },
                      .frugal = true});
    }

    Qp create_qp(ibv_cq *cq) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {64, 64, 4, 4, 64};
        return Qp(ibv_create_qp(pd.get(), &attr));
    }
};

/* The user's first object as well */
TEST_F(FaultNth, OpenDevice) {
    ibv_device *device = context->device;
    pd.reset();
    context.reset();
    each_failure_to_make<Context>([&] { return ibv_open_device(device); });
}

TEST_F(FaultNth, AllocPd) {
    each_failure_to_make<Pd>([&] { return ibv_alloc_pd(context.get()); });
    each_failure_to_destroy<Pd>([&] { return alloc_pd(context.get()); }, ibv_dealloc_pd);
}

TEST_F(FaultNth, CreateCq) {
    CompChannel channel = create_channel(context.get());
    each_failure_to_make<Cq>(
        [&] { return ibv_create_cq(context.get(), 512, nullptr, channel.get(), 0); });
    each_failure_to_destroy<Cq>([&] { return create_cq(context.get(), 512, channel.get()); },
                                ibv_destroy_cq);
}

/* Whatever became of it, what waits in the queue and what comes later is seen, once. */
TEST_F(FaultNth, ResizeCq) {
    Cq cq = create_cq(context.get(), 16);
    Qp qp = create_qp(cq.get());
    Region memory(pd.get(), 4096);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
    uint64_t id = 0;
    auto flushed = [&] { EXPECT_EQ(post_recv(qp.get(), ++id, {memory.all()}), 0); };
    each_failure({.prepare = flushed,
                  .call = [&] { return ibv_resize_cq(cq.get(), cq->cqe == 16 ? 512 : 16); },
                  .after =
                      [&](int) {
                          flushed();
                          expect_wc(cq.get(), id - 1, IBV_WC_WR_FLUSH_ERR);
                          expect_wc(cq.get(), id, IBV_WC_WR_FLUSH_ERR);
                          EXPECT_FALSE(try_wc(cq.get()));
                      }});
}

TEST_F(FaultNth, CreateQp) {
    Cq cq = create_cq(context.get(), 128);
    ibv_qp_init_attr attr{};
    each_failure_to_make<Qp>([&] {
        attr.send_cq = attr.recv_cq = cq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {64, 64, 4, 4, 64};
        return ibv_create_qp(pd.get(), &attr);
    });
    each_failure_to_destroy<Qp>([&] { return create_qp(cq.get()); }, ibv_destroy_qp);
}

TEST_F(FaultNth, ModifyQp) {
    Cq cq = create_cq(context.get(), 128);
    Qp qp;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    each_failure({.prepare = [&] { qp = create_qp(cq.get()); },
                  .call = [&] { return ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE); },
                  .after = [&](int) { qp.reset(); }});
}

TEST_F(FaultNth, CreateSrq) {
    ibv_srq_init_attr attr{};
    each_failure_to_make<Srq>([&] {
        attr.attr = {256, 4, 0};
        return ibv_create_srq(pd.get(), &attr);
    });
    each_failure_to_destroy<Srq>([&] { return create_srq(pd.get(), 256); }, ibv_destroy_srq);
}

TEST_F(FaultNth, ResizeSrq) {
    Srq srq = create_srq(pd.get(), 64);
    Region memory(pd.get(), 4096);
    ibv_srq_attr attr{};
    unsigned round = 0;
    each_failure(
        {.call =
             [&] {
                 attr.max_wr = round++ % 2 == 0 ? 512 : 64;
                 return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR);
             },
         .after = [&](int) { EXPECT_EQ(post_srq_recv(srq.get(), round, {memory.all()}), 0); }});
}

TEST_F(FaultNth, RegMr) {
    Buffer memory(64 * 1024);
    each_failure_to_make<Mr>(
        [&] { return ibv_reg_mr(pd.get(), memory.at(0), memory.size(), kAll); });
    each_failure_to_destroy<Mr>(
        [&] { return register_memory(pd.get(), memory.at(0), memory.size()); }, ibv_dereg_mr);
}

TEST_F(FaultNth, ReregMr) {
    Buffer memory(64 * 1024), other(256 * 1024);
    Mr mr;
    each_failure({.prepare = [&] { mr = register_memory(pd.get(), memory.at(0), memory.size()); },
                  .call =
                      [&] {
                          int error = ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION,
                                                   nullptr, other.at(0), other.size(), 0);
                          return error == 0 ? 0 : errno;
                      },
                  .after = [&](int) { mr.reset(); }});
}

TEST_F(FaultNth, AllocMw) {
    for (ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
        each_failure_to_make<Mw>([&] { return ibv_alloc_mw(pd.get(), type); });
        each_failure_to_destroy<Mw>([&] { return alloc_mw(pd.get(), type); }, ibv_dealloc_mw);
    }
}

/* What is asked of objects that stay */
TEST_F(FaultNth, Query) {
    Cq cq = create_cq(context.get(), 128);
    Qp qp = create_qp(cq.get());
    Srq srq = create_srq(pd.get(), 64);
    ibv_device_attr device{};
    ibv_port_attr port{};
    ibv_qp_attr qp_attr{};
    ibv_qp_init_attr init{};
    ibv_srq_attr srq_attr{};
    ibv_modify_cq_attr moderation{};
    moderation.attr_mask = IBV_CQ_ATTR_MODERATE;
    moderation.moderate = {.cq_count = 4, .cq_period = 100};
    each_failure({.call = [&] { return ibv_query_device(context.get(), &device); }});
    each_failure({.call = [&] { return ibv_query_port(context.get(), 1, &port); }});
    each_failure({.call = [&] { return ibv_query_qp(qp.get(), &qp_attr, IBV_QP_STATE, &init); }});
    each_failure({.call = [&] { return ibv_query_srq(srq.get(), &srq_attr); }});
    each_failure({.call = [&] { return ibv_modify_cq(cq.get(), &moderation); }});
}

/* A device ---------------------------------------------------------------- */

/* Of RDMA netlink; a request is answered while it is sent, by the thread that sends it. */
class Netlink {
  public:
    Netlink() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA)) {
        require(fd_.get() >= 0, "socket");
    }

    void new_link(const char *name, const char *netdev) {
        begin(RDMA_NLDEV_CMD_NEWLINK);
        add(RDMA_NLDEV_ATTR_DEV_NAME, name);
        add(RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
        add(RDMA_NLDEV_ATTR_LINK_TYPE, "softwarp");
        end();
    }

    void delete_link(const std::string &name) {
        begin(RDMA_NLDEV_CMD_DELLINK);
        add_number(RDMA_NLDEV_ATTR_DEV_INDEX, index_of(name));
        end();
    }

    /* A counter of its own for a QP */
    void bind_counter(const std::string &device, uint32_t qpn) {
        begin(RDMA_NLDEV_CMD_STAT_SET);
        add_number(RDMA_NLDEV_ATTR_DEV_INDEX, index_of(device));
        add_number(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
        add_number(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP);
        add_number(RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_MANUAL);
        add_number(RDMA_NLDEV_ATTR_RES_LQPN, qpn);
        end();
    }

    /* How it went, 0 or an errno; ENOBUFS if there was no memory to say so. */
    int ask() {
        if (send(fd_.get(), octets_.data(), at_, 0) < 0)
            return errno;
        for (;;) {
            ssize_t got = recv(fd_.get(), answer_.data(), answer_.size(), MSG_DONTWAIT);
            nlmsghdr header{};
            nlmsgerr error{};
            if (got < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(error)))
                return ENOBUFS;
            std::memcpy(&header, answer_.data(), sizeof(header));
            if (header.nlmsg_type != NLMSG_ERROR)
                continue; /* what was asked for */
            std::memcpy(&error, answer_.data() + NLMSG_HDRLEN, sizeof(error));
            return -error.error;
        }
    }

    /* An answer that could not be read then */
    void drain() {
        while (recv(fd_.get(), answer_.data(), answer_.size(), MSG_DONTWAIT) > 0)
            ;
    }

  private:
    static uint32_t index_of(const std::string &device) {
        return static_cast<uint32_t>(std::stoul(must_shell("rdma dev show " + device)));
    }

    void begin(int command) {
        header_ =
            nlmsghdr{NLMSG_HDRLEN, static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)),
                     NLM_F_REQUEST | NLM_F_ACK, 0, 0};
        at_ = NLMSG_HDRLEN;
    }

    void end() {
        header_.nlmsg_len = static_cast<uint32_t>(at_);
        std::memcpy(octets_.data(), &header_, sizeof(header_));
    }

    void add(uint16_t type, const void *value, size_t size) {
        nlattr attr{static_cast<uint16_t>(NLA_HDRLEN + size), type};
        std::memcpy(octets_.data() + at_, &attr, sizeof(attr));
        std::memcpy(octets_.data() + at_ + NLA_HDRLEN, value, size);
        at_ += NLA_ALIGN(attr.nla_len);
    }

    void add(uint16_t type, const char *text) { add(type, text, std::strlen(text) + 1); }
    void add_number(uint16_t type, uint32_t number) { add(type, &number, sizeof(number)); }

    Fd fd_;
    nlmsghdr header_{};
    size_t at_ = 0;
    std::array<uint8_t, 256> octets_{};
    std::array<uint8_t, 1024> answer_{};
};

class FaultDevice : public Fault {};

TEST_F(FaultDevice, Add) {
    must_shell("ip link add swfault type dummy && ip link set swfault up");
    Netlink netlink;
    netlink.new_link("swf", "swfault");
    each_failure({.call = [&] { return netlink.ask(); },
                  .after =
                      [&](int) {
                          netlink.drain();
                          /* libibverbs does not know it where ib_uverbs had no memory */
                          if (access("/sys/class/infiniband/swf", F_OK) == 0)
                              must_shell("rdma link delete swf");
                      },
                  .stride = full_or_quick(1U, 16U)});
    must_shell("ip link delete swfault");
}

/* After a failure it is there, or it is gone. */
TEST_F(FaultDevice, Delete) {
    must_shell("ip link add swfault type dummy && ip link set swfault up");
    Netlink netlink;
    each_failure({.prepare =
                      [&] {
                          if (access("/sys/class/infiniband/swf", F_OK) != 0)
                              must_shell("rdma link add swf type softwarp netdev swfault");
                          netlink.delete_link("swf");
                      },
                  .call = [&] { return netlink.ask(); },
                  .after =
                      [&](int error) {
                          netlink.drain();
                          if (error == 0) {
                              EXPECT_NE(access("/sys/class/infiniband/swf", F_OK), 0);
                          }
                      }});
    must_shell("ip link delete swfault");
}

/* A QP's own counter, which goes with the QP */
TEST_F(FaultDevice, BindCounter) {
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Cq cq = create_cq(context.get(), 16);
    Qp qp;
    Netlink netlink;
    each_failure({.prepare =
                      [&] {
                          ibv_qp_init_attr attr{};
                          attr.send_cq = attr.recv_cq = cq.get();
                          attr.qp_type = IBV_QPT_RC;
                          attr.cap = {16, 16, 1, 1, 0};
                          qp = Qp(ibv_create_qp(pd.get(), &attr));
                          ASSERT_TRUE(qp);
                          netlink.bind_counter(config().dev, qp->qp_num);
                      },
                  .call = [&] { return netlink.ask(); },
                  .after =
                      [&](int) {
                          netlink.drain();
                          qp.reset();
                      }});
}

/* Connections ------------------------------------------------------------- */

class FaultCm : public Fault {
  protected:
    int result(int returned) { return returned == 0 ? 0 : errno; }

    /* Client and server of a connection that is about to be made */
    struct Ends {
        EventChannel clients, servers;
        std::unique_ptr<Listener> listener;
        std::unique_ptr<Endpoint> client, server;
        rdma_conn_param param{};

        explicit Ends(bool asked = false) {
            listener = std::make_unique<Listener>(servers, config().peer_ns, config().peer_addr4);
            client = std::make_unique<Endpoint>(
                clients, resolve(clients, "", config().peer_addr4, listener->port()), QpOptions{});
            param = client->conn_param();
            if (asked) {
                start_connect(*client);
                await_request();
            }
        }

        bool await_request() {
            std::optional<CmEvent> event = servers.try_next(listener->id(), Deadline());
            if (!event || event->type != RDMA_CM_EVENT_CONNECT_REQUEST)
                return false;
            server = std::make_unique<Endpoint>(servers, CmId(event->id), QpOptions{});
            return true;
        }

        /*
         * The client hears how it went, in time, whatever that is; true: it is
         * connected.  It never asks once more, as it does with revision 1 when it
         * takes the server for one that does not know revision 2.
         */
        bool outcome() {
            std::optional<CmEvent> event;
            bool told = eventually([&] {
                Deadline now(milliseconds(0));
                std::optional<CmEvent> again = servers.try_next(listener->id(), now);
                if (again) {
                    ADD_FAILURE() << "asked once more";
                    rdma_reject(CmId(again->id).get(), nullptr, 0);
                }
                event = clients.try_next(client->id(), now);
                return event.has_value();
            });
            EXPECT_TRUE(told) << "never heard of again";
            return event && event->type == RDMA_CM_EVENT_ESTABLISHED;
        }

        void establish() {
            accept(*server);
            servers.expect(server->id(), RDMA_CM_EVENT_ESTABLISHED);
            clients.expect(client->id(), RDMA_CM_EVENT_ESTABLISHED);
        }

        void talk() {
            Region from(client->pd(), 5000), to(server->pd(), 5000);
            fill(from.at(0), 5000, 7);
            server->recv(1, {to.all()});
            client->send(2, {from.all()});
            expect_success(server->rcq(), 1, IBV_WC_RECV, 5000);
            expect_success(client->scq(), 2, IBV_WC_SEND);
            expect_pattern(to.at(0), 5000, 7);
        }
    };
};

TEST_F(FaultCm, Listen) {
    EventChannel channel;
    CmId id;
    Address where = address(config().addr4, 0);
    each_failure({.prepare = [&] { id = create_id(channel); },
                  .call =
                      [&] {
                          int error = result(rdma_bind_addr(id.get(), &where.generic));
                          return error != 0 ? error : result(rdma_listen(id.get(), 8));
                      },
                  .after = [&](int) { id.reset(); }});
}

TEST_F(FaultCm, Connect) {
    std::unique_ptr<Ends> ends;
    each_failure({.prepare = [&] { ends = std::make_unique<Ends>(); },
                  .call = [&] { return result(rdma_connect(ends->client->id(), &ends->param)); },
                  .after =
                      [&](int error) {
                          if (error == 0 && ends->await_request()) {
                              accept(*ends->server);
                              EXPECT_TRUE(ends->outcome());
                              ends->talk();
                          } else if (error == 0) {
                              EXPECT_FALSE(ends->outcome());
                          }
                          ends.reset();
                      }});
}

TEST_F(FaultCm, Accept) {
    std::unique_ptr<Ends> ends;
    each_failure({.prepare = [&] { ends = std::make_unique<Ends>(true); },
                  .call = [&] { return result(rdma_accept(ends->server->id(), &ends->param)); },
                  .after =
                      [&](int error) {
                          if (error != 0)
                              ends->server.reset();
                          bool up = ends->outcome();
                          EXPECT_TRUE(up || error != 0);
                          if (error == 0 && up)
                              ends->talk();
                          ends.reset();
                      }});
}

TEST_F(FaultCm, Reject) {
    std::unique_ptr<Ends> ends;
    each_failure({.prepare = [&] { ends = std::make_unique<Ends>(true); },
                  .call = [&] { return result(rdma_reject(ends->server->id(), "no", 2)); },
                  .after =
                      [&](int) {
                          ends->server.reset();
                          EXPECT_FALSE(ends->outcome());
                          ends.reset();
                      }});
}

/* The other end of a QP that is destroyed hears of it. */
TEST_F(FaultCm, DestroyQp) {
    std::unique_ptr<Ends> ends;
    each_failure({.prepare =
                      [&] {
                          ends = std::make_unique<Ends>(true);
                          ends->establish();
                          ends->talk();
                      },
                  .call =
                      [&] {
                          int error = ibv_destroy_qp(ends->server->qp());
                          if (error == 0)
                              ends->server->id()->qp = nullptr;
                          return error;
                      },
                  .after =
                      [&](int) {
                          ends->client->expect(RDMA_CM_EVENT_DISCONNECTED);
                          ends.reset();
                      }});
}

TEST_F(FaultCm, Disconnect) {
    std::unique_ptr<Ends> ends;
    each_failure({.prepare =
                      [&] {
                          ends = std::make_unique<Ends>(true);
                          ends->establish();
                          ends->talk();
                      },
                  .call = [&] { return result(rdma_disconnect(ends->server->id())); },
                  .after =
                      [&](int error) {
                          if (error != 0)
                              ends->server.reset();
                          ends->client->expect(RDMA_CM_EVENT_DISCONNECTED);
                          ends.reset();
                      }});
}

/* After a failure the region is as it was, keys included. */
TEST_F(FaultCm, Rereg) {
    constexpr uint32_t kSize = 64 * 1024;
    Pair pair;
    Region from(pair.c().pd(), kSize);
    Buffer memory[2] = {Buffer(kSize), Buffer(kSize)};
    Mr mr = register_memory(pair.s().pd(), memory[0].at(0), kSize);
    unsigned now = 0;
    uint64_t seed = 0;
    each_failure({.call =
                      [&] {
                          int error = ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION,
                                                   nullptr, memory[1 - now].at(0), kSize, 0);
                          return error == 0 ? 0 : errno;
                      },
                  .after =
                      [&](int error) {
                          now = error == 0 ? 1 - now : now;
                          fill(from.at(0), kSize, ++seed);
                          pair.c().write(1, {from.all()}, memory[now].addr(), mr->rkey);
                          expect_success(pair.c().scq(), 1, IBV_WC_RDMA_WRITE);
                          EXPECT_TRUE(eventually(
                              [&] { return mismatch(memory[now].at(0), kSize, seed) == kSize; }));
                      }});
}

/* Posting ------------------------------------------------------------------- */

class FaultPost : public FaultCm {
  protected:
    static constexpr uint32_t kSize = 5000;
};

/* What is in a ring is posted, and the doorbell is heard, however often there is no memory for it.
 */
TEST_F(FaultPost, GoesOn) {
    Pair pair;
    Region from(pair.c().pd(), 2 * kSize), to(pair.s().pd(), 2 * kSize);
    const std::array wrs{SendWr::write(2, {from.sge(0, kSize)}, to.addr(), to.rkey()),
                         SendWr::send(3, {from.sge(kSize, kSize)})};
    uint64_t seed = 0;
    each_failure({.prepare =
                      [&] {
                          fill(from.at(0), 2 * kSize, ++seed);
                          pair.s().recv(1, {to.sge(kSize, kSize)});
                      },
                  .call = [&] { return post_send_list(pair.c().qp(), wrs); },
                  .after =
                      [&](int error) {
                          EXPECT_EQ(error, 0);
                          expect_success(pair.c().scq(), 2, IBV_WC_RDMA_WRITE);
                          expect_success(pair.c().scq(), 3, IBV_WC_SEND);
                          expect_success(pair.s().rcq(), 1, IBV_WC_RECV, kSize);
                          expect_pattern(to.at(0), 2 * kSize, seed);
                      }});
}

TEST_F(FaultPost, FunctionsGoOn) {
    PairOptions options;
    options.client.operations = IBV_QP_EX_WITH_RDMA_READ;
    Pair pair(options);
    Region to(pair.c().pd(), kSize), from(pair.s().pd(), kSize);
    fill(from.at(0), kSize, 1);
    each_failure({.call =
                      [&] {
                          ibv_qp_ex *qp = pair.c().qpx();
                          ibv_wr_start(qp);
                          qp->wr_id = 1;
                          qp->wr_flags = IBV_SEND_SIGNALED;
                          ibv_wr_rdma_read(qp, from.rkey(), from.addr());
                          ibv_wr_set_sge(qp, to.lkey(), to.addr(), kSize);
                          return ibv_wr_complete(qp);
                      },
                  .after =
                      [&](int error) {
                          EXPECT_EQ(error, 0);
                          expect_success(pair.c().scq(), 1, IBV_WC_RDMA_READ);
                          expect_pattern(to.at(0), kSize, 1);
                      }});
}

/* A window of type 1 has a new key when the bind is posted, and only then. */
TEST_F(FaultPost, BindGoesOn) {
    Pair pair;
    Region memory(pair.s().pd(), kSize, kAll | IBV_ACCESS_MW_BIND), from(pair.c().pd(), kSize);
    Mw mw = alloc_mw(pair.s().pd(), IBV_MW_TYPE_1);
    uint64_t seed = 0;
    each_failure({.call =
                      [&] {
                          return bind_mw(pair.s().qp(), 1, mw.get(), memory.mr.get(), memory.addr(),
                                         kSize, IBV_ACCESS_REMOTE_WRITE);
                      },
                  .after =
                      [&](int error) {
                          EXPECT_EQ(error, 0);
                          expect_success(pair.s().scq(), 1, IBV_WC_BIND_MW);
                          fill(from.at(0), kSize, ++seed);
                          pair.c().write(2, {from.all()}, memory.addr(), mw->rkey);
                          expect_success(pair.c().scq(), 2, IBV_WC_RDMA_WRITE);
                          EXPECT_TRUE(eventually(
                              [&] { return mismatch(memory.at(0), kSize, seed) == kSize; }));
                      }});
}

/* In the error state each post is a doorbell, and nothing else flushes. */
TEST_F(FaultPost, FlushGoesOn) {
    Context context = open_device(config().dev);
    Pd pd = alloc_pd(context.get());
    Cq cq = create_cq(context.get(), 64);
    Region memory(pd.get(), kSize);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {16, 16, 1, 1, 0};
    Qp qp(ibv_create_qp(pd.get(), &attr));
    ASSERT_TRUE(qp);
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp.get(), &state, IBV_QP_STATE), 0);
    each_failure({.call = [&] { return post_recv(qp.get(), 1, {memory.all()}); },
                  .after =
                      [&](int error) {
                          EXPECT_EQ(error, 0);
                          expect_wc(cq.get(), 1, IBV_WC_WR_FLUSH_ERR);
                      }});
    each_failure({.call = [&] { return post_send(qp.get(), SendWr::send(2, {memory.all()})); },
                  .after =
                      [&](int error) {
                          EXPECT_EQ(error, 0);
                          expect_wc(cq.get(), 2, IBV_WC_WR_FLUSH_ERR);
                      }});
}

/* While it lives, so many allocations of this thread, one after the other, fail. */
class Shortage {
  public:
    explicit Shortage(unsigned failures) {
        set(attribute("failslab", "task-filter"), "Y");
        set(attribute("failslab", "interval"), "1");
        set(attribute("failslab", "times"), std::to_string(failures));
        set("/proc/thread-self/make-it-fail", "1");
        set(attribute("failslab", "probability"), "100");
    }
    ~Shortage() {
        /* what is opened now would fail, but a file that is open may be written to */
        while (write(probability_.get(), "0", 1) != 1)
            ;
        set("/proc/thread-self/make-it-fail", "0");
        set(attribute("failslab", "task-filter"), "N");
        set(attribute("failslab", "times"), "-1");
    }
    Shortage(const Shortage &) = delete;
    Shortage &operator=(const Shortage &) = delete;

  private:
    Fd probability_{open(attribute("failslab", "probability").c_str(), O_WRONLY | O_CLOEXEC)};
};

/* A shortage that outlasts the first few attempts */
TEST_F(FaultPost, OutlastsAShortage) {
    Pair pair;
    Region from(pair.c().pd(), kSize), to(pair.s().pd(), kSize);
    fill(from.at(0), kSize, 1);
    pair.s().recv(1, {to.all()});
    int error;
    {
        Shortage shortage(100);
        error = post_send(pair.c().qp(), SendWr::send(2, {from.all()}));
    }
    EXPECT_EQ(error, 0);
    expect_success(pair.c().scq(), 2, IBV_WC_SEND);
    expect_success(pair.s().rcq(), 1, IBV_WC_RECV, kSize);
    expect_pattern(to.at(0), kSize, 1);
}

/* By chance ----------------------------------------------------------------- */

/* While it lives, of what the module allocates, wherever it does so, so many of a hundred fail. */
class FailOften {
  public:
    explicit FailOften(int percent) {
        for (const char *kind : kAllocations) {
            set(attribute(kind, "task-filter"), "N");
            set(attribute(kind, "interval"), "1");
            set(attribute(kind, "times"), "-1");
            set(attribute(kind, "probability"), std::to_string(percent));
        }
    }

    ~FailOften() {
        for (const char *kind : kAllocations)
            set(attribute(kind, "probability"), "0");
    }

    FailOften(const FailOften &) = delete;
    FailOften &operator=(const FailOften &) = delete;

  private:
    static uint64_t text() {
        return std::stoull(get("/sys/module/softwarp/sections/.text"), nullptr, 16);
    }
    static uint64_t size() { return std::stoull(get("/sys/module/softwarp/coresize")); }

    OnlyFrom module_{text(), text() + size()};
};

class FaultOften : public FaultCm {
  protected:
    /* Whether both ends have come up; whoever began hears of it. */
    static bool connect_somehow(Ends &ends) {
        if (rdma_connect(ends.client->id(), &ends.param) != 0)
            return false;
        /* who was never asked is told so by the other end */
        std::optional<CmEvent> event;
        EXPECT_TRUE(eventually([&] {
            event = ends.servers.try_next(ends.listener->id(), Deadline(milliseconds(0)));
            if (!event)
                event = ends.clients.try_next(ends.client->id(), Deadline(milliseconds(0)));
            return event.has_value();
        })) << "nobody heard anything";
        if (!event || event->type != RDMA_CM_EVENT_CONNECT_REQUEST)
            return false;
        CmId id(event->id);
        try {
            ends.server = std::make_unique<Endpoint>(ends.servers, std::move(id), QpOptions{});
        } catch (const Failure &) {
            /* it has no memory either; its id is gone, which is a refusal */
        }
        bool accepted = ends.server && rdma_accept(ends.server->id(), &ends.param) == 0;
        if (!accepted)
            ends.server.reset();
        return ends.outcome() && accepted;
    }
};

/* Memory is short while data flow both ways; all of them arrive, in time. */
TEST_F(FaultOften, StreamsGoOn) {
    constexpr size_t kSize = 60000;
    constexpr unsigned kRounds = 30;
    Pair pair;
    Region client(pair.c().pd(), 4 * kSize), server(pair.s().pd(), 4 * kSize);

    for (int percent : {3, 30, 0}) {
        SCOPED_TRACE(fmt::format("{} of a hundred", percent));
        FailOften often(percent);
        for (unsigned round = 1; round <= kRounds && !HasFailure(); round++) {
            uint64_t seed = static_cast<uint64_t>(percent) * 1000 + round;
            fill(client.at(0), 2 * kSize, seed);
            fill(server.at(2 * kSize), kSize, seed + 500);
            pair.s().recv(1, {server.sge(0, kSize)});
            pair.c().send(2, {client.sge(0, kSize)});
            pair.c().write(3, {client.sge(kSize, kSize)}, server.addr(kSize), server.rkey());
            pair.c().read(4, {client.sge(2 * kSize, kSize)}, server.addr(2 * kSize), server.rkey());
            expect_success(pair.s().rcq(), 1, IBV_WC_RECV, kSize);
            for (uint64_t id = 2; id <= 4; id++)
                expect_wc(pair.c().scq(), id, IBV_WC_SUCCESS);
            expect_pattern(server.at(0), 2 * kSize, seed);
            expect_pattern(client.at(2 * kSize), kSize, seed + 500);
        }
    }
}

/*
 * A Terminate is sent, too, and both ends hear of the end.  Not by an asynchronous
 * event: for that ib_uverbs needs memory, and drops it otherwise, as it does with
 * completion events (ib_uverbs_async_handler, ib_uverbs_comp_handler).
 */
TEST_F(FaultOften, ErrorsAreTold) {
    for (unsigned round = 0; round < full_or_quick(20U, 5U) && !HasFailure(); round++) {
        Pair pair;
        Region client(pair.c().pd(), 4096), server(pair.s().pd(), 4096);
        {
            FailOften often(30);
            pair.c().read(1, {client.all()}, server.addr(), server.rkey() ^ 0x100);
            expect_wc(pair.c().scq(), 1, IBV_WC_REM_ACCESS_ERR);
        }
        pair.s().expect(RDMA_CM_EVENT_DISCONNECTED);
        pair.c().expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

/* Whoever connects hears how it went, and what is up works; afterwards nothing is left. */
TEST_F(FaultOften, ConnectionsEnd) {
    for (int percent : {1, 3, 10}) {
        unsigned up = 0, attempts = full_or_quick(60U, 10U);
        for (unsigned i = 0; i < attempts && !HasFailure(); i++) {
            SCOPED_TRACE(fmt::format("{} of a hundred, attempt {}", percent, i));
            Ends ends;
            std::optional<FailOften> often(percent);
            bool established = connect_somehow(ends);
            often.reset();
            if (established)
                ends.talk();
            up += established ? 1 : 0;
        }
        fmt::print("{} of a hundred: {} of {} connections came up\n", percent, up, attempts);
    }
}

} // namespace
