// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Processor time of an RDMA transfer.  perftest spins while it waits, which
 * drowns what the transport itself costs; here both ends sleep until a
 * completion event comes.  Processor time is the whole machine's, between the
 * first and the last message, so both ends have to be on it and nothing else.
 *
 *   transfer-cost --server ADDRESS --port N
 *   transfer-cost --connect ADDRESS --port N --op write|read|send
 *
 * The client prints one JSON object: bytes, seconds, cpu_seconds.
 */
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "ends.hpp"

namespace {

using namespace softwarp;
using Clock = std::chrono::steady_clock;

constexpr int kDepth = 32;
/* A sender on iWARP may be ahead by all that TCP buffers; receives must outnumber that. */
constexpr int kReceives = 1024;

/* What the server tells about its memory, in host byte order: both ends are one machine. */
struct Offer {
    uint64_t address;
    uint32_t rkey;
    uint32_t size;
};

struct Times {
    Clock::time_point wall;
    double cpu;
};

/* The busy time of all processors, in seconds. */
Times now() {
    std::ifstream stat("/proc/stat");
    std::string label;
    double field[8] = {};
    stat >> label;
    for (double &value : field)
        stat >> value;
    double busy = 0;
    for (int i = 0; i < 8; i++)
        if (i != 3 && i != 4) // idle, waiting
            busy += field[i];
    return {Clock::now(), busy / static_cast<double>(sysconf(_SC_CLK_TCK))};
}

/* One end: connection, memory and a completion queue to sleep on. */
struct End {
    rdma_cm_id *id = nullptr;
    ibv_comp_channel *wake = nullptr;
    ibv_cq *cq = nullptr;
    ibv_mr *mr = nullptr;
    char *memory = nullptr;

    void prepare(rdma_cm_id *with, size_t size) {
        id = with;
        wake = ibv_create_comp_channel(id->verbs);
        check(wake, "ibv_create_comp_channel");
        cq = ibv_create_cq(id->verbs, kReceives + kDepth, nullptr, wake, 0);
        check(cq, "ibv_create_cq");
        ibv_qp_init_attr attr = {};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {.max_send_wr = kDepth,
                    .max_recv_wr = kReceives,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
        attr.qp_type = IBV_QPT_RC;
        check(!rdma_create_qp(id, nullptr, &attr), "rdma_create_qp");
        memory = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        check(memory != MAP_FAILED, "mmap");
        mr = ibv_reg_mr(id->pd, memory, size,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        check(mr, "ibv_reg_mr");
    }

    /* Completions, asleep until there is one; each must be a success. */
    int wait(ibv_wc *completions, int count) {
        for (;;) {
            int found = ibv_poll_cq(cq, count, completions);
            check(found >= 0, "ibv_poll_cq");
            if (!found) {
                check(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
                found = ibv_poll_cq(cq, count, completions);
            }
            for (int i = 0; i < found; i++)
                if (completions[i].status != IBV_WC_SUCCESS)
                    throw std::runtime_error(
                        fmt::format("completion: {}", ibv_wc_status_str(completions[i].status)));
            if (found > 0)
                return found;
            ibv_cq *which;
            void *context;
            check(!ibv_get_cq_event(wake, &which, &context), "ibv_get_cq_event");
            ibv_ack_cq_events(which, 1);
        }
    }
};

rdma_cm_event *expect(rdma_event_channel *channel, rdma_cm_event_type type) {
    rdma_cm_event *event;
    check(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    if (event->event != type)
        throw std::runtime_error(
            fmt::format("expected {}, got {}", rdma_event_str(type), rdma_event_str(event->event)));
    return event;
}

void serve(const std::string &where, uint16_t port, size_t size) {
    const EventChannel channel = make_channel();
    rdma_cm_id *listener;
    check(!rdma_create_id(channel.get(), &listener, nullptr, RDMA_PS_TCP), "rdma_create_id");
    sockaddr_in address = address_of(where, port);
    check(!rdma_bind_addr(listener, reinterpret_cast<sockaddr *>(&address)), "rdma_bind_addr");
    check(!rdma_listen(listener, 1), "rdma_listen");

    rdma_cm_event *event = expect(channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    End end;
    end.prepare(event->id, size);
    rdma_conn_param param = event->param.conn;
    rdma_ack_cm_event(event);
    for (int i = 0; i < kReceives; i++)
        check(!rdma_post_recv(end.id, nullptr, end.memory, size, end.mr), "rdma_post_recv");

    Offer offer = {reinterpret_cast<uintptr_t>(end.memory), end.mr->rkey,
                   static_cast<uint32_t>(size)};
    param.private_data = &offer;
    param.private_data_len = sizeof(offer);
    check(!rdma_accept(end.id, &param), "rdma_accept");
    rdma_ack_cm_event(expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED));

    /* Receives are used up only by sends; a write or read never wakes this thread. */
    std::thread([&end, size] {
        try {
            ibv_wc completions[kDepth];
            for (;;)
                for (int left = end.wait(completions, kDepth); left > 0; left--)
                    check(!rdma_post_recv(end.id, nullptr, end.memory, size, end.mr),
                          "rdma_post_recv");
        } catch (const std::exception &) {
            /* The connection ended, which the main thread learns by itself. */
        }
    }).detach();
    expect(channel.get(), RDMA_CM_EVENT_DISCONNECTED);
    /* The thread may still hold the objects: leave them to the kernel. */
    std::_Exit(0);
}

void transfer(const std::string &where, uint16_t port, const std::string &op, size_t size,
              double seconds) {
    const EventChannel channel = make_channel();
    rdma_cm_id *id;
    check(!rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
    sockaddr_in address = address_of(where, port);
    check(!rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 2000),
          "rdma_resolve_addr");
    rdma_ack_cm_event(expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
    check(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
    rdma_ack_cm_event(expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
    End end;
    end.prepare(id, size);
    rdma_conn_param param = {};
    param.responder_resources = param.initiator_depth = 16;
    check(!rdma_connect(id, &param), "rdma_connect");
    rdma_cm_event *event = expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
    Offer offer;
    if (event->param.conn.private_data_len < sizeof(offer))
        throw std::runtime_error("the server told nothing about its memory");
    std::memcpy(&offer, event->param.conn.private_data, sizeof(offer));
    rdma_ack_cm_event(event);
    if (offer.size < size)
        throw std::runtime_error("the server's memory is too small");

    auto post = [&] {
        int failed;
        if (op == "write")
            failed = rdma_post_write(id, nullptr, end.memory, size, end.mr, IBV_SEND_SIGNALED,
                                     offer.address, offer.rkey);
        else if (op == "read")
            failed = rdma_post_read(id, nullptr, end.memory, size, end.mr, IBV_SEND_SIGNALED,
                                    offer.address, offer.rkey);
        else
            failed = rdma_post_send(id, nullptr, end.memory, size, end.mr, IBV_SEND_SIGNALED);
        check(!failed, "posting");
    };

    const Times begin = now();
    const auto limit = begin.wall + std::chrono::duration<double>(seconds);
    uint64_t messages = 0;
    int outstanding = 0;
    ibv_wc completions[kDepth];
    for (; outstanding < kDepth; outstanding++)
        post();
    while (outstanding > 0) {
        int done = end.wait(completions, kDepth);
        messages += static_cast<uint64_t>(done);
        outstanding -= done;
        if (Clock::now() < limit)
            for (; outstanding < kDepth; outstanding++)
                post();
    }
    const Times finish = now();
    check(!rdma_disconnect(id), "rdma_disconnect");
    fmt::print("{{\"bytes\": {}, \"seconds\": {:.6f}, \"cpu_seconds\": {:.3f}}}\n", messages * size,
               std::chrono::duration<double>(finish.wall - begin.wall).count(),
               finish.cpu - begin.cpu);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Processor time of an RDMA transfer whose ends sleep until completions come");
    std::string server, connect, op = "write";
    uint16_t port = 18000;
    size_t size = 65536;
    double seconds = 2;
    auto *role = app.add_option_group("role")->require_option(1);
    role->add_option("--server", server, "address to listen on");
    role->add_option("--connect", connect, "address of the server");
    app.add_option("--port", port);
    app.add_option("--op", op)->check(CLI::IsMember({"write", "read", "send"}));
    app.add_option("--size", size, "bytes per message")
        ->check(CLI::Range(size_t{1}, size_t{1} << 24));
    app.add_option("--seconds", seconds)->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        if (!server.empty())
            serve(server, port, size);
        else
            transfer(connect, port, op, size, seconds);
    } catch (const std::exception &error) {
        fmt::print(stderr, "transfer-cost: {}\n", error.what());
        return 1;
    }
    return 0;
}
