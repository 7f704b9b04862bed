// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Many connections at a time: queue pairs that rdma_cm connects, or TCP sockets.
 * How many come up in a second, and what memory each end of one takes while it is
 * idle: the machine's, so both ends have to be on it and nothing else.
 *
 *   many-connections --server ADDRESS --port N --count N [--tcp]
 *   many-connections --connect ADDRESS --port N --count N [--tcp]
 *
 * A queue pair has 16 requests in each direction and shares its completion queue
 * with the others of its end.  The client prints one JSON object: count, seconds,
 * bytes_per_end (of both programs and the kernel together).
 */
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <rdma/rdma_cma.h>

#include "ends.hpp"

namespace {

using namespace softwarp;
using Clock = std::chrono::steady_clock;

/* Connections that come up at the same time */
constexpr int kAtOnce = 64;
constexpr int kBacklog = 1024;
constexpr int kRequests = 16;

struct Options {
    std::string server, connect;
    uint16_t port = 18000;
    unsigned count = 10000;
    bool tcp = false;
};

/* Octets that the machine could give to programs */
double available() {
    std::ifstream info("/proc/meminfo");
    std::string label;
    double kib = 0;
    while (info >> label >> kib) {
        if (label == "MemAvailable:")
            return kib * 1024;
        info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    throw std::runtime_error("/proc/meminfo has no MemAvailable");
}

/* What has come up counts until here; then it lies idle for a while. */
struct Measure {
    double before = available();
    Clock::time_point begin = Clock::now();

    void print(unsigned count) const {
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        std::this_thread::sleep_for(std::chrono::seconds(1));
        fmt::print("{{\"count\": {}, \"seconds\": {:.6f}, \"bytes_per_end\": {:.0f}}}\n", count,
                   seconds, (before - available()) / count / 2);
        std::fflush(stdout);
    }
};

/* TCP ---------------------------------------------------------------------- */

int tcp_socket() {
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    check(fd >= 0, "socket");
    return fd;
}

[[noreturn]] void serve_tcp(const Options &options) {
    const int listener = tcp_socket(), one = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    sockaddr_in address = address_of(options.server, options.port);
    check(!::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)), "bind");
    check(!::listen(listener, kBacklog), "listen");
    for (;;)
        check(::accept(listener, nullptr, nullptr) >= 0, "accept");
}

void connect_tcp(const Options &options) {
    const sockaddr_in address = address_of(options.connect, options.port);
    const Measure measure;
    for (unsigned i = 0; i < options.count; i++)
        check(
            !::connect(tcp_socket(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)),
            "connect");
    measure.print(options.count);
}

/* Queue pairs -------------------------------------------------------------- */

/* The event's kind, the id that it is about, and what a peer asks for */
struct Event {
    rdma_cm_event_type type;
    rdma_cm_id *id;
    rdma_conn_param param;
};

Event next_event(rdma_event_channel *channel) {
    rdma_cm_event *event;
    check(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    const Event found = {event->event, event->id, event->param.conn};
    if (event->status != 0)
        throw std::runtime_error(
            fmt::format("{}: {}", rdma_event_str(event->event), std::strerror(-event->status)));
    rdma_ack_cm_event(event);
    return found;
}

void make_qp(rdma_cm_id *id, ibv_cq *&cq) {
    if (cq == nullptr) {
        cq = ibv_create_cq(id->verbs, 2 * kRequests * kAtOnce, nullptr, nullptr, 0);
        check(cq, "ibv_create_cq");
    }
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {.max_send_wr = kRequests,
                .max_recv_wr = kRequests,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    attr.qp_type = IBV_QPT_RC;
    check(!rdma_create_qp(id, nullptr, &attr), "rdma_create_qp");
}

[[noreturn]] void serve_rdma(const Options &options) {
    const EventChannel channel = make_channel();
    rdma_cm_id *listener;
    ibv_cq *cq = nullptr;
    check(!rdma_create_id(channel.get(), &listener, nullptr, RDMA_PS_TCP), "rdma_create_id");
    sockaddr_in address = address_of(options.server, options.port);
    check(!rdma_bind_addr(listener, reinterpret_cast<sockaddr *>(&address)), "rdma_bind_addr");
    check(!rdma_listen(listener, kBacklog), "rdma_listen");
    for (;;) {
        Event event = next_event(channel.get());
        if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            make_qp(event.id, cq);
            event.param.private_data = nullptr;
            event.param.private_data_len = 0;
            check(!rdma_accept(event.id, &event.param), "rdma_accept");
        } else if (event.type == RDMA_CM_EVENT_DISCONNECTED) {
            std::_Exit(0); // the client is done, and the kernel does the rest
        }
    }
}

void connect_rdma(const Options &options) {
    const EventChannel channel = make_channel();
    const sockaddr_in address = address_of(options.connect, options.port);
    ibv_cq *cq = nullptr;
    unsigned begun = 0, up = 0;
    rdma_conn_param param = {};
    param.responder_resources = param.initiator_depth = 1;
    auto begin = [&] {
        rdma_cm_id *id;
        sockaddr_in to = address;
        check(!rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
        check(!rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&to), 10000),
              "rdma_resolve_addr");
        begun++;
    };
    const Measure measure;
    while (begun < options.count && begun < kAtOnce)
        begin();
    while (up < options.count) {
        const Event event = next_event(channel.get());
        switch (event.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            check(!rdma_resolve_route(event.id, 10000), "rdma_resolve_route");
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            make_qp(event.id, cq);
            check(!rdma_connect(event.id, &param), "rdma_connect");
            break;
        case RDMA_CM_EVENT_ESTABLISHED:
            up++;
            if (begun < options.count)
                begin();
            break;
        default:
            throw std::runtime_error(fmt::format("unexpected: {}", rdma_event_str(event.type)));
        }
    }
    measure.print(options.count);
}

/* A socket each, and some files */
void allow_files(unsigned count) {
    const rlim_t needed = count + 100;
    rlimit limit = {};
    check(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = std::max(limit.rlim_cur, needed);
    limit.rlim_max = std::max(limit.rlim_max, needed);
    check(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit(RLIMIT_NOFILE)");
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Many connections at a time: how fast they come up, and the memory of each");
    Options options;
    auto *role = app.add_option_group("role")->require_option(1);
    role->add_option("--server", options.server, "address to listen on");
    role->add_option("--connect", options.connect, "address of the server");
    app.add_option("--port", options.port);
    app.add_option("--count", options.count, "connections")->check(CLI::Range(1U, 60000U));
    app.add_flag("--tcp", options.tcp, "TCP sockets, not queue pairs");
    CLI11_PARSE(app, argc, argv);
    try {
        allow_files(options.count);
        if (!options.server.empty())
            options.tcp ? serve_tcp(options) : serve_rdma(options);
        options.tcp ? connect_tcp(options) : connect_rdma(options);
        std::_Exit(0); // the kernel ends the connections, and destroys what there is
    } catch (const std::exception &error) {
        fmt::print(stderr, "many-connections: {}\n", error.what());
        return 1;
    }
}
