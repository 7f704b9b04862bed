// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Asks an RDMA device what it can do, and prints one JSON object: the id of each
 * question and the answer, "yes", a number or a list, or "no: " and how it was
 * refused.  "error: " means that the question could not be put.
 *
 * Each question has a process of its own, so that a library that crashes and a
 * call that never returns are answers, too, and the next question finds a device
 * that nobody uses.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "probe.hpp"

namespace softwarp::verbs {

Target target;

std::string error_name(int error) {
    const char *name = strerrorname_np(error);
    return name != nullptr ? name : fmt::format("error {}", error);
}

void done(int error) {
    if (error != 0)
        throw No(error_name(error == -1 ? errno : std::abs(error)));
}

ibv_context *context() {
    static ibv_context *found = cm_context(target.device);
    return found;
}

ibv_device_attr_ex attributes() {
    ibv_device_attr_ex attr{};
    done(ibv_query_device_ex(context(), nullptr, &attr));
    return attr;
}

Qp Objects::qp(ibv_qp_cap cap, ibv_qp_type type, ibv_srq *srq) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.srq = srq;
    attr.cap = cap;
    attr.qp_type = type;
    return Qp(ibv_create_qp(pd.get(), &attr));
}

ibv_wc completion(ibv_cq *cq) {
    std::optional<ibv_wc> wc;
    if (!eventually([&] { return (wc = try_wc(cq)).has_value(); }, Deadline(kPatience)))
        throw No("no completion");
    if (wc->status != IBV_WC_SUCCESS)
        throw No(ibv_wc_status_str(wc->status));
    return *wc;
}

void arrived(const uint8_t *place, size_t length) {
    if (!eventually([&] { return mismatch(place, length, kSeed) == length; }, Deadline(kPatience)))
        throw No("no data arrives");
}

Link::Link(const QpOptions &client, const QpOptions &server)
    : pair_(PairOptions{.client = client,
                        .server = server,
                        .route = {"", target.address, "", target.address, ""}}),
      local(c().pd(), kSize) {
    fill(local.at(0), kSize, kSeed);
}

Region &Link::remote(int access) {
    if (!remote_)
        remote_.emplace(s().pd(), kSize, access);
    return *remote_;
}

void Link::run(const SendWr &wr) {
    done(post_send(c().qp(), wr));
    completion(c().scq());
}

ibv_wc Link::message(SendWr wr, size_t length) {
    if (wr.sg.empty() && length != 0)
        wr.sg = {local.sge(0, length)};
    s().recv(1, {remote().all()});
    run(wr);
    ibv_wc wc = completion(s().rcq());
    if (wc.byte_len != length)
        throw No(fmt::format("{} octets of {}", wc.byte_len, length));
    arrived(remote().at(0), length);
    return wc;
}

void Link::write(uint64_t addr, uint32_t rkey, const uint8_t *place) {
    run(SendWr::write(1, {local.sge(0, kLength)}, addr, rkey));
    arrived(place, kLength);
}

uint32_t use_window(Link &link, ibv_mw *window) {
    Region &memory = link.remote(kLocal | IBV_ACCESS_MW_BIND);
    constexpr unsigned kRights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (window->type == IBV_MW_TYPE_1) {
        done(bind_mw(link.s().qp(), 1, window, memory.mr.get(), memory.addr(), kSize, kRights));
    } else {
        SendWr bind = SendWr::bind_mw(1, window, memory.mr.get(), memory.addr(), kSize, kRights);
        done(post_send(link.s().qp(), bind));
        window->rkey = bind.rkey;
    }
    completion(link.s().scq());
    link.write(memory.addr(), window->rkey, memory.at(0));
    return window->rkey;
}

namespace {

std::string ask(const Probe &probe) {
    try {
        return probe.ask();
    } catch (const No &no) {
        return fmt::format("no: {}", no.what());
    } catch (const std::exception &error) {
        return fmt::format("error: {}", error.what());
    }
}

/* The answer of a process of its own. */
std::string ask_apart(const Probe &probe) {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    Fd output(ends[0]), input(ends[1]);
    pid_t pid = fork();
    require(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        std::string answer = ask(probe);
        _exit(::write(input.get(), answer.data(), answer.size()) < 0 ? 1 : 0);
    }
    input.reset();

    Deadline deadline(5 * kPatience);
    pollfd waiting{output.get(), POLLIN, 0};
    bool ended = poll(&waiting, 1, deadline.left_ms()) > 0;
    if (!ended)
        kill(pid, SIGKILL);
    int status = 0;
    /* It may be stuck in the kernel. */
    bool reaped = eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }, deadline);
    if (!ended || !reaped)
        return "no: it hangs";
    if (WIFSIGNALED(status))
        return fmt::format("no: SIG{} in the library", sigabbrev_np(WTERMSIG(status)));
    char answer[1024];
    ssize_t got = ::read(output.get(), answer, sizeof(answer));
    return got > 0 ? std::string(answer, static_cast<size_t>(got)) : "error: no answer";
}

std::string json(const std::string &text) {
    std::string result = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\')
            result += '\\';
        result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return result + '"';
}

} // namespace
} // namespace softwarp::verbs

int main(int argc, char **argv) {
    using namespace softwarp::verbs;
    CLI::App app("What an RDMA device can do, by trying, as JSON");
    bool remove = false;
    std::vector<std::string> only;
    app.add_option("device", target.device, "name of the device")->required();
    app.add_option("address", target.address, "IP address of its network device")->required();
    app.add_option("id", only, "these questions only");
    app.add_flag("--remove", remove, "ask last whether it can go while in use: it is gone then");
    CLI11_PARSE(app, argc, argv);

    std::vector<Probe> probes(object_probes().begin(), object_probes().end());
    probes.insert(probes.end(), request_probes().begin(), request_probes().end());
    /* What removes the device comes last. */
    std::stable_partition(probes.begin(), probes.end(),
                          [](const Probe &probe) { return std::string(probe.id) != "removal"; });
    const char *separator = "{";
    for (const Probe &probe : probes) {
        bool wanted = only.empty() || std::find(only.begin(), only.end(), probe.id) != only.end();
        if (!wanted || (std::string(probe.id) == "removal" && !remove))
            continue;
        auto begin = std::chrono::steady_clock::now();
        std::string answer = ask_apart(probe);
        auto took = std::chrono::steady_clock::now() - begin;
        fmt::print(stderr, "{:5} ms  {:16} {}\n",
                   std::chrono::duration_cast<milliseconds>(took).count(), probe.id, answer);
        fmt::print("{}\n  {}: {}", separator, json(probe.id), json(answer));
        separator = ",";
    }
    fmt::print("\n}}\n");
    return 0;
}
