// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "local/honest.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "lib/connection.hpp"
#include "local/board.hpp"

namespace softwarp::fuzz::local {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kBulk = 65536;
constexpr uint32_t kMessage = 16384;
constexpr unsigned kReceives = 48;
constexpr unsigned kBurst = 32;
constexpr uint64_t kAliveMost = 250;

struct Stopped {};

struct Header {
    uint64_t seq;
    uint32_t kind;
    uint32_t length; // of what follows, or of what was written
    uint32_t index;  // in a burst
    uint32_t reserved;
};

enum : uint32_t { kWrite, kBurstOf, kRead, kBigSend, kKindCount };

uint64_t ms_since(Clock::time_point begin) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
}

void note_longest(std::atomic<uint64_t> &longest, uint64_t value) {
    if (value > longest)
        longest = value;
}

/* One end: what it posts, and waiting for what completes, by events. */
class Port {
  public:
    Port(e2e::Endpoint &end, e2e::Region &messages) : end_(end), messages_(messages) {}

    void post_receives() {
        for (unsigned i = 0; i < kReceives; i++)
            post_receive(i);
    }
    void post_receive(uint64_t index) {
        end_.recv(index, {messages_.sge(index * kMessage, kMessage)});
    }
    const uint8_t *message(uint64_t index) const { return messages_.at(index * kMessage); }

    ibv_wc received() { return wait(end_.rcq()); }
    void sent() { wait(end_.scq()); }

  private:
    ibv_wc wait(ibv_cq *cq) {
        for (bool armed = false;;) {
            ibv_wc wc;
            int count = ibv_poll_cq(cq, 1, &wc);
            if (count < 0)
                throw std::runtime_error("ibv_poll_cq");
            if (count == 1) {
                if (wc.status != IBV_WC_SUCCESS)
                    throw std::runtime_error("a completion: " + e2e::wc_text(wc));
                return wc;
            }
            if (!armed) {
                if (ibv_req_notify_cq(cq, 0) != 0)
                    throw std::runtime_error("ibv_req_notify_cq");
                armed = true;
                continue;
            }
            /* a CQ whose event was lost is not to be looked at by chance */
            while (!event())
                ;
            armed = false;
        }
    }

    /* False if none came for a while. */
    bool event() {
        if (board->stop)
            throw Stopped();
        pollfd look{end_.completions()->fd, POLLIN, 0};
        if (poll(&look, 1, 200) <= 0)
            return false;
        ibv_cq *cq = nullptr;
        void *unused = nullptr;
        if (ibv_get_cq_event(end_.completions(), &cq, &unused) != 0)
            throw std::runtime_error("ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
        return true;
    }

    e2e::Endpoint &end_;
    e2e::Region &messages_;
};

e2e::QpOptions qp_options() {
    e2e::QpOptions options;
    options.send_wr = 64;
    options.recv_wr = 64;
    options.events = true;
    return options;
}

void wrong(uint64_t seq, const char *what) {
    throw std::runtime_error(fmt::format("round {}: {}", seq, what));
}

void check(const uint8_t *where, uint32_t length, uint64_t seq, const char *what) {
    size_t at = e2e::mismatch(where, length, seq);
    if (at != length)
        wrong(seq, fmt::format("{}: octet {} of {} is not the one sent", what, at, length).c_str());
}

struct Far {
    uint64_t addr;
    uint32_t rkey;
};

void serve() {
    e2e::enter_namespace(e2e::config().peer_ns);
    e2e::EventChannel channel;
    e2e::Listener listener(channel, "", e2e::config().peer_addr4);
    board->pair.port = listener.port();
    e2e::CmEvent event = channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST,
                                        e2e::Deadline(e2e::milliseconds(30000)));
    e2e::CmId id(event.id);
    e2e::Pd pd = e2e::alloc_pd(id->verbs);
    e2e::Region bulk(pd.get(), kBulk);
    e2e::Region messages(pd.get(), kReceives * kMessage);
    e2e::Region answer(pd.get(), sizeof(Header));
    e2e::QpOptions options = qp_options();
    options.pd = pd.get();
    Far far{bulk.addr(), bulk.rkey()};
    options.private_data.resize(sizeof(far));
    std::memcpy(options.private_data.data(), &far, sizeof(far));
    e2e::Endpoint end(channel, std::move(id), options);
    Port port(end, messages);
    port.post_receives();
    e2e::accept(end);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    uint32_t in_burst = 0;
    for (uint64_t seq = 0;;) {
        ibv_wc wc = port.received();
        Header header;
        std::memcpy(&header, port.message(wc.wr_id), sizeof(header));
        if (header.seq != seq || header.kind != seq % kKindCount || header.index != in_burst)
            wrong(seq, "a message is missing, or came twice");
        if (header.kind == kWrite)
            check(bulk.at(0), header.length, seq, "Write");
        else if (header.kind == kRead)
            e2e::fill(bulk.at(0), header.length, seq);
        else
            check(port.message(wc.wr_id) + sizeof(header), header.length, seq + header.index,
                  "Send");
        port.post_receive(wc.wr_id);
        if (header.kind == kBurstOf && ++in_burst < kBurst)
            continue;
        in_burst = 0;
        std::memcpy(answer.at(0), &header, sizeof(header));
        end.send(0, {answer.all()});
        port.sent();
        seq++;
    }
}

void one_round(e2e::Endpoint &end, Port &port, uint64_t seq, e2e::Region &bulk, e2e::Region &out,
               const Far &far) {
    auto length = static_cast<uint32_t>(1 + seq * 977 % (kBulk - 1));
    Header header{seq, static_cast<uint32_t>(seq % kKindCount), length, 0, 0};
    unsigned signals = 1;
    auto say = [&](uint8_t *at) {
        std::memcpy(at, &header, sizeof(header));
        bool follows = header.kind == kBurstOf || header.kind == kBigSend;
        if (follows)
            e2e::fill(at + sizeof(header), header.length, seq + header.index);
        auto offset = static_cast<size_t>(at - out.at(0));
        end.send(1, {out.sge(offset, sizeof(header) + (follows ? header.length : 0))});
    };
    switch (header.kind) {
    case kWrite:
        e2e::fill(bulk.at(0), length, seq);
        end.write(2, {bulk.sge(0, length)}, far.addr, far.rkey);
        signals = 2;
        say(out.at(0));
        break;
    case kBurstOf:
        header.length = 40;
        signals = kBurst;
        for (; header.index < kBurst; header.index++)
            say(out.at(size_t{header.index} * 256));
        break;
    case kRead: say(out.at(0)); break;
    default:
        header.length = length % (kMessage - static_cast<uint32_t>(sizeof(header)));
        say(out.at(0));
    }
    for (; signals > 0; signals--)
        port.sent();
    ibv_wc wc = port.received();
    uint64_t acked;
    std::memcpy(&acked, port.message(wc.wr_id), sizeof(acked));
    if (acked != seq)
        wrong(seq, "the answer is to another");
    port.post_receive(wc.wr_id);
    if (header.kind == kRead) {
        bulk.buffer.set(0);
        end.read(3, {bulk.sge(0, length)}, far.addr, far.rkey);
        port.sent();
        check(bulk.at(0), length, seq, "Read");
    }
}

void ask() {
    while (board->pair.port == 0)
        usleep(10000);
    e2e::EventChannel channel;
    e2e::CmId id = e2e::resolve(channel, "", e2e::config().peer_addr4,
                                static_cast<uint16_t>(board->pair.port));
    e2e::Pd pd = e2e::alloc_pd(id->verbs);
    e2e::Region bulk(pd.get(), kBulk);
    e2e::Region out(pd.get(), kMessage);
    e2e::Region messages(pd.get(), kReceives * kMessage);
    e2e::QpOptions options = qp_options();
    options.pd = pd.get();
    e2e::Endpoint end(channel, std::move(id), options);
    Port port(end, messages);
    port.post_receives();
    e2e::start_connect(end);
    e2e::CmEvent event = end.expect(RDMA_CM_EVENT_ESTABLISHED);
    Far far;
    e2e::require(event.private_data.size() >= sizeof(far), "no private data");
    std::memcpy(&far, event.private_data.data(), sizeof(far));
    Honest &shown = board->pair;
    shown.last = board->control.alive.load();
    for (uint64_t seq = 0;; seq++) {
        Clock::time_point begin = Clock::now();
        uint64_t before = shown.last;
        one_round(end, port, seq, bulk, out, far);
        uint64_t now = board->control.alive;
        note_longest(shown.longest, now - before);
        note_longest(shown.longest_ms, ms_since(begin));
        shown.last = now;
        shown.rounds++;
        if (board->stop)
            throw Stopped();
        usleep(1000);
    }
}

void take_all(int fd, uint8_t *where, size_t count) {
    while (count > 0) {
        pollfd look{fd, POLLIN, 0};
        if (poll(&look, 1, 200) == 0) {
            if (board->stop)
                throw Stopped();
            continue;
        }
        ssize_t got = recv(fd, where, count, 0);
        if (got <= 0)
            throw std::runtime_error("the control's connection is lost");
        where += got;
        count -= static_cast<size_t>(got);
    }
}

void give_all(int fd, const uint8_t *what, size_t count) {
    while (count > 0) {
        ssize_t gone = send(fd, what, count, MSG_NOSIGNAL);
        if (gone <= 0)
            throw std::runtime_error("the control's connection is lost");
        what += gone;
        count -= static_cast<size_t>(gone);
    }
}

uint32_t control_size(uint64_t seq) {
    return static_cast<uint32_t>(1 + seq * 977 % (kBulk - 1));
}

sockaddr_in control_address(uint32_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = inet_addr(e2e::config().peer_addr4.c_str());
    in.sin_port = htons(static_cast<uint16_t>(port));
    return in;
}

void control_serve() {
    e2e::enter_namespace(e2e::config().peer_ns);
    e2e::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in in = control_address(0);
    socklen_t size = sizeof(in);
    e2e::require(bind(listener.get(), reinterpret_cast<sockaddr *>(&in), size) == 0 &&
                     listen(listener.get(), 1) == 0 &&
                     getsockname(listener.get(), reinterpret_cast<sockaddr *>(&in), &size) == 0,
                 "listen");
    board->control.port = ntohs(in.sin_port);
    e2e::Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    e2e::require(fd.get() >= 0, "accept");
    std::vector<uint8_t> octets(kBulk);
    for (uint64_t seq = 0;; seq++) {
        take_all(fd.get(), octets.data(), control_size(seq));
        give_all(fd.get(), octets.data(), 1);
    }
}

void control_ask() {
    while (board->control.port == 0)
        usleep(10000);
    e2e::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in in = control_address(board->control.port);
    e2e::require(connect(fd.get(), reinterpret_cast<sockaddr *>(&in), sizeof(in)) == 0, "connect");
    std::vector<uint8_t> octets(kBulk);
    Honest &shown = board->control;
    Clock::time_point last = Clock::now();
    for (uint64_t seq = 0;; seq++) {
        give_all(fd.get(), octets.data(), control_size(seq));
        take_all(fd.get(), octets.data(), 1);
        uint64_t took = ms_since(last);
        note_longest(shown.longest_ms, took);
        if (took > 0) {
            shown.alive += std::min(took, kAliveMost);
            last = Clock::now();
        }
        shown.rounds++;
        if (board->stop)
            throw Stopped();
        usleep(1000);
    }
}

/* Runs one of the four; what it throws is the board's. */
void play(Honest &shown, const char *role, void (*body)()) {
    try {
        body();
    } catch (const Stopped &) {
    } catch (const std::exception &error) {
        if (!board->stop && !shown.failed) {
            std::string text = fmt::format("{}: {}", role, error.what());
            std::strncpy(shown.why.data(), text.c_str(), shown.why.size() - 1);
            shown.failed = true;
        }
    }
}

} // namespace

void honest_server() {
    play(board->pair, "honest server", serve);
}

void honest_client() {
    play(board->pair, "honest client", ask);
}

void control_server() {
    play(board->control, "control", control_serve);
}

void control_client() {
    play(board->control, "control", control_ask);
}

} // namespace softwarp::fuzz::local
