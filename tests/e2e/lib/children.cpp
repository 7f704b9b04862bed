// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/children.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "lib/connection.hpp"
#include "lib/rings.hpp"

namespace softwarp::e2e {

Child::Child(const std::vector<std::string> &role) {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    output_ = Fd(ends[0]);
    Fd input(ends[1]);

    std::vector<std::string> words{"softwarp-e2e", "--role"};
    words.insert(words.end(), role.begin(), role.end());
    std::vector<char *> argv;
    for (std::string &word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);

    pid_ = fork();
    require(pid_ >= 0, "fork");
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(input.get(), STDOUT_FILENO);
        execv("/proc/self/exe", argv.data());
        _exit(127);
    }
}

Child::~Child() {
    if (reaped_)
        return;
    kill(pid_, SIGKILL);
    wait();
}

std::string Child::line(Deadline deadline) {
    for (;;) {
        size_t end = read_.find('\n');
        if (end != std::string::npos) {
            std::string line = read_.substr(0, end);
            read_.erase(0, end + 1);
            return line;
        }
        pollfd waiting{output_.get(), POLLIN, 0};
        if (poll(&waiting, 1, deadline.left_ms()) <= 0)
            fail("the peer process says nothing");
        char chunk[256];
        ssize_t got = ::read(output_.get(), chunk, sizeof(chunk));
        if (got <= 0)
            fail("the peer process ended: " + read_);
        read_.append(chunk, static_cast<size_t>(got));
    }
}

void Child::signal(int number) const {
    require(kill(pid_, number) == 0, "kill");
}

bool Child::wait(Deadline deadline) {
    if (!reaped_)
        reaped_ = eventually([&] { return waitpid(pid_, &status_, WNOHANG) == pid_; }, deadline);
    return reaped_;
}

namespace {

constexpr size_t kMessage = 256 * 1024;
constexpr unsigned kDepth = 32;

void stream(Endpoint &end, const std::string &mode, const Region &memory, const PeerMemory &peer) {
    ibv_sge whole = memory.sge(0, kMessage);
    unsigned outstanding = 0;
    auto post = [&] {
        if (mode == "sink")
            end.recv(0, {whole});
        else if (mode == "sender")
            end.send(0, {whole});
        else if (mode == "writer")
            end.write(0, {whole}, peer.addr, peer.rkey);
        else if (mode == "reader")
            end.read(0, {whole}, peer.addr, peer.rkey);
        else
            fail("no such mode: " + mode);
        outstanding++;
    };
    ibv_cq *cq = mode == "sink" ? end.rcq() : end.scq();
    bool said = false;

    while (outstanding < kDepth)
        post();
    if (mode == "sink") {
        fmt::print("ready\n");
        std::fflush(stdout);
        said = true;
    }
    for (;;) {
        std::optional<ibv_wc> wc = try_wc(cq);
        if (!wc) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            continue;
        }
        if (wc->status != IBV_WC_SUCCESS)
            return;
        outstanding--;
        post();
        if (!said) {
            fmt::print("ready\n");
            std::fflush(stdout);
            said = true;
        }
    }
}

/* Answers for all contexts of this process, without ever doing what the kernel has for it. */
[[noreturn]] void lie(const std::set<Mapping> &pages) {
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;)
        for (const Mapping &page : pages)
            std::atomic_ref(reinterpret_cast<swp_spin_page *>(page.start)->ask).store(0);
}

/* Looks for completions without end, of which there are none. */
[[noreturn]] void look(const Endpoint &end) {
    fmt::print("ready\n");
    std::fflush(stdout);
    for (ibv_wc wc;;)
        require(ibv_poll_cq(end.rcq(), 1, &wc) == 0, "there is no completion");
}

int run_peer(const std::string &mode, const std::string &ns, const std::string &addr) {
    EventChannel channel;
    Listener listener(channel, ns, addr);
    /* there are no rings yet */
    const std::set<Mapping> pages = device_mappings();
    fmt::print("{}\n", listener.port());
    std::fflush(stdout);

    CmEvent request = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    PeerMemory theirs{};
    if (request.private_data.size() >= sizeof(theirs))
        std::memcpy(&theirs, request.private_data.data(), sizeof(theirs));
    /* The memory's keys go into the accept, so its PD comes first. */
    Endpoint end(channel, CmId(request.id), QpOptions{.send_wr = kDepth, .recv_wr = kDepth});
    Region memory(end.pd(), kMessage);
    PeerMemory ours{memory.addr(), memory.rkey(), kMessage};
    rdma_conn_param param = end.conn_param();
    param.private_data = &ours;
    param.private_data_len = sizeof(ours);
    require(rdma_accept(end.id(), &param) == 0, "rdma_accept");
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    if (mode == "liar")
        lie(pages);
    if (mode == "spinner")
        look(end);
    stream(end, mode, memory, theirs);
    return 0;
}

/* Writes over a connection within the namespace until killed. */
int run_pair(const std::string &ns, const std::string &addr, const std::string &device) {
    Pair pair(QpOptions{}, Route{ns, addr, ns, addr, ""});
    EventChannel channel;
    Listener listener(channel, ns, addr);
    if (ibv_get_device_name(pair.c().context()->device) != device)
        fail("the connection is not over " + device);
    Region from(pair.c().pd(), kMessage), to(pair.s().pd(), kMessage);
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;) {
        for (int i = 0; i < 8; i++)
            pair.c().write(0, {from.all()}, to.addr(), to.rkey());
        for (int i = 0; i < 8; i++)
            next_wc(pair.c().scq());
    }
}

/* Whoever may open the devices; the library's files are read before. */
void become(const std::string &uid) {
    if (uid == "0")
        return;
    must_shell("chmod 0666 /dev/infiniband/*");
    ibv_free_device_list(ibv_get_device_list(nullptr));
    auto number = static_cast<uid_t>(std::stoul(uid));
    require(setgroups(0, nullptr) == 0, "setgroups");
    require(setresgid(number, number, number) == 0, "setresgid");
    require(setresuid(number, number, number) == 0, "setresuid");
}

[[noreturn]] void say_and_sleep(int result) {
    fmt::print("{}\n", result == 0 ? 0 : errno);
    std::fflush(stdout);
    for (;;)
        pause();
}

int run_connect(const std::string &uid, const std::string &addr, const std::string &port,
                const std::string &qpn) {
    become(uid);
    EventChannel channel;
    CmId id = resolve(channel, "", addr, static_cast<uint16_t>(std::stoul(port)));
    rdma_conn_param param{};
    param.qp_num = static_cast<uint32_t>(std::stoul(qpn));
    say_and_sleep(rdma_connect(id.get(), &param));
}

int run_accept(const std::string &uid, const std::string &addr, const std::string &qpn) {
    become(uid);
    EventChannel channel;
    Listener listener(channel, "", addr);
    fmt::print("{}\n", listener.port());
    std::fflush(stdout);
    CmEvent request = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    CmId id(request.id);
    rdma_conn_param param{};
    param.qp_num = static_cast<uint32_t>(std::stoul(qpn));
    say_and_sleep(rdma_accept(id.get(), &param));
}

/* A queue pair that waits for a peer which ibv_modify_qp() names; until killed. */
int run_waiter(const std::string &device, const std::string &ns, const std::string &address,
               const std::string &peer) {
    enter_namespace(ns);
    Context context = open_device(device);
    Pd pd = alloc_pd(context.get());
    Cq cq = create_cq(context.get(), 16);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {8, 8, 1, 1, 0};
    Qp qp(ibv_create_qp(pd.get(), &init));
    require(qp != nullptr, "ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.dest_qp_num = 3;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid_of(peer);
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index(context.get(), address));
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    require(ibv_modify_qp(qp.get(), &attr, mask) == 0, "ibv_modify_qp");
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;)
        pause();
}

/* Makes objects and holds them until killed. */
int run_holder(const std::string &device) {
    Context context = open_device(device);
    Pd pd = alloc_pd(context.get());
    Region memory(pd.get(), 1 << 20);
    std::vector<Cq> cqs;
    std::vector<Qp> qps;
    for (int i = 0; i < 8; i++) {
        cqs.push_back(create_cq(context.get(), 16));
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cqs.back().get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {8, 8, 1, 1, 0};
        qps.emplace_back(ibv_create_qp(pd.get(), &attr));
        require(qps.back() != nullptr, "ibv_create_qp");
    }
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;)
        pause();
}

} // namespace

int run_role(const std::vector<std::string> &role) {
    try {
        if (role.size() == 4 && role[0] == "peer")
            return run_peer(role[1], role[2], role[3]);
        if (role.size() == 4 && role[0] == "pair")
            return run_pair(role[1], role[2], role[3]);
        if (role.size() == 5 && role[0] == "connect")
            return run_connect(role[1], role[2], role[3], role[4]);
        if (role.size() == 4 && role[0] == "accept")
            return run_accept(role[1], role[2], role[3]);
        if (role.size() == 5 && role[0] == "waiter")
            return run_waiter(role[1], role[2], role[3], role[4]);
        if (role.size() == 2 && role[0] == "holder")
            return run_holder(role[1]);
        fmt::print(stderr, "no such role\n");
    } catch (const std::exception &error) {
        fmt::print(stderr, "peer process: {}\n", error.what());
    }
    return 1;
}

} // namespace softwarp::e2e
