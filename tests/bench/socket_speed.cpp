// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stream sockets, TCP's and SDP's by the same calls.  Processor time is the whole
 * machine's, so both ends have to be on it and nothing else.
 *
 *   socket-speed --server ADDRESS --port N [--sdp]
 *   socket-speed --connect ADDRESS --port N [--sdp] --test stream|echo|connect ...
 *
 * stream   one way, from so many connections, each written to in blocks of a size;
 *          bytes and seconds until the other end has read the last one; --nodelay:
 *          no block waits for the next (TCP_NODELAY), as always with the others
 * echo     a request and a response of that size, one after the other
 * connect  connect, one octet there and back, close
 *
 * The client prints one JSON object: count (bytes, round trips, connections),
 * seconds, cpu_seconds.
 */
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "softwarp_sdp.h"

namespace {

using Clock = std::chrono::steady_clock;

enum class Test : uint32_t { Stream, Echo, Connect };

/* What a connection begins with, in host byte order: both ends are one machine. */
struct Plan {
    Test test;
    uint32_t size;
};

struct Options {
    std::string server, connect;
    uint16_t port = 0;
    bool sdp = false;
    Test test = Test::Stream;
    uint32_t size = 131072;
    unsigned connections = 1;
    double seconds = 2;
    bool spin = false;
    bool nodelay = false;
};

[[noreturn]] void fail(const char *what) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

class Socket {
  public:
    explicit Socket(int fd) : fd_(fd) {
        if (fd_ < 0)
            fail("socket");
    }
    Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket &operator=(Socket &&) = delete;
    ~Socket() {
        if (fd_ >= 0)
            ::close(fd_);
    }
    int get() const { return fd_; }

    void send(const void *data, size_t size) const {
        const auto *octets = static_cast<const char *>(data);
        while (size) {
            ssize_t ret = ::send(fd_, octets, size, MSG_NOSIGNAL);
            if (ret < 0 && errno == EAGAIN)
                continue;
            if (ret < 0)
                fail("send");
            octets += ret;
            size -= static_cast<size_t>(ret);
        }
    }
    /* All of them, or false if the peer is done before the first one */
    bool receive(void *data, size_t size) const {
        auto *octets = static_cast<char *>(data);
        size_t done = 0;
        while (done < size) {
            ssize_t ret = ::recv(fd_, octets + done, size - done, 0);
            if (ret < 0 && errno == EAGAIN)
                continue;
            if (ret < 0)
                fail("recv");
            if (ret == 0 && !done)
                return false;
            if (ret == 0)
                throw std::runtime_error("the stream ended too soon");
            done += static_cast<size_t>(ret);
        }
        return true;
    }
    void set_nodelay() const {
        int one = 1;
        if (::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
            fail("TCP_NODELAY");
    }
    void set_nonblock() const {
        if (::fcntl(fd_, F_SETFL, O_NONBLOCK))
            fail("O_NONBLOCK");
    }

  private:
    int fd_;
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

sockaddr_in address(const std::string &name, uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    if (inet_pton(AF_INET, name.c_str(), &in.sin_addr) != 1)
        throw std::runtime_error(fmt::format("{} is no IPv4 address", name));
    return in;
}

Socket make(const Options &o) {
    return Socket(::socket(AF_INET, SOCK_STREAM, o.sdp ? IPPROTO_SDP : 0));
}

/* One connection of the server's, to its end */
void serve(const Socket &peer) {
    Plan plan{};
    if (!peer.receive(&plan, sizeof(plan)))
        return;
    std::vector<char> buffer(plan.test == Test::Stream ? 1U << 20 : plan.size);
    uint64_t total = 0;
    for (;;) {
        if (plan.test != Test::Stream) {
            if (!peer.receive(buffer.data(), plan.size))
                return;
            peer.send(buffer.data(), plan.size);
            continue;
        }
        ssize_t ret = ::recv(peer.get(), buffer.data(), buffer.size(), 0);
        if (ret < 0)
            fail("recv");
        if (ret == 0)
            break;
        total += static_cast<uint64_t>(ret);
    }
    peer.send(&total, sizeof(total));
}

void run_server(const Options &o) {
    Socket listener = make(o);
    int one = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    sockaddr_in in = address(o.server, o.port);
    if (::bind(listener.get(), reinterpret_cast<sockaddr *>(&in), sizeof(in)) ||
        ::listen(listener.get(), 128))
        fail("listen");
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;) {
        Socket peer(::accept(listener.get(), nullptr, nullptr));
        peer.set_nodelay();
        std::thread(
            [](Socket own) {
                try {
                    serve(own);
                } catch (const std::exception &error) {
                    fmt::print(stderr, "socket-speed: server: {}\n", error.what());
                }
            },
            std::move(peer))
            .detach();
    }
}

Socket connected(const Options &o) {
    Socket here = make(o);
    sockaddr_in in = address(o.connect, o.port);
    if (::connect(here.get(), reinterpret_cast<sockaddr *>(&in), sizeof(in)))
        fail("connect");
    if (o.nodelay || o.test != Test::Stream)
        here.set_nodelay();
    if (o.spin)
        here.set_nonblock();
    Plan plan{o.test, o.test == Test::Connect ? 1 : o.size};
    here.send(&plan, sizeof(plan));
    return here;
}

bool over(const Options &o, Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count() >= o.seconds;
}

uint64_t stream(const Options &o, const Socket &here, Clock::time_point begin) {
    std::vector<char> block(o.size, 'x');
    uint64_t sent = 0, read = 0;
    while (!over(o, begin)) {
        here.send(block.data(), block.size());
        sent += block.size();
    }
    ::shutdown(here.get(), SHUT_WR);
    if (!here.receive(&read, sizeof(read)) || read != sent)
        throw std::runtime_error(fmt::format("{} octets sent, {} read", sent, read));
    return read;
}

void round_trip(const Socket &here, std::vector<char> &block) {
    here.send(block.data(), block.size());
    if (!here.receive(block.data(), block.size()))
        throw std::runtime_error("the server has closed");
}

uint64_t echo(const Options &o, const Socket &here, Clock::time_point begin) {
    std::vector<char> block(o.size, 'x');
    uint64_t count = 0;
    for (; !over(o, begin); count++)
        round_trip(here, block);
    return count;
}

uint64_t connects(const Options &o, Clock::time_point begin) {
    std::vector<char> one(1);
    uint64_t count = 0;
    for (; !over(o, begin); count++)
        round_trip(connected(o), one);
    return count;
}

void run_client(const Options &o) {
    std::vector<Socket> sockets;
    for (unsigned i = 0; o.test != Test::Connect && i < o.connections; i++)
        sockets.push_back(connected(o));
    std::atomic<uint64_t> count = 0;
    std::atomic<bool> failed = false;
    std::vector<std::thread> threads;
    Times begin = now();
    auto run = [&](auto &&what) {
        threads.emplace_back([&, what] {
            try {
                count += what();
            } catch (const std::exception &error) {
                fmt::print(stderr, "socket-speed: {}\n", error.what());
                failed = true;
            }
        });
    };
    for (const Socket &here : sockets)
        run([&] {
            return o.test == Test::Stream ? stream(o, here, begin.wall) : echo(o, here, begin.wall);
        });
    for (unsigned i = 0; o.test == Test::Connect && i < o.connections; i++)
        run([&] { return connects(o, begin.wall); });
    for (auto &thread : threads)
        thread.join();
    Times end = now();
    if (failed)
        throw std::runtime_error("not all connections came to their end");
    fmt::print("{{\"count\": {}, \"seconds\": {:.6f}, \"cpu_seconds\": {:.2f}}}\n", count.load(),
               std::chrono::duration<double>(end.wall - begin.wall).count(), end.cpu - begin.cpu);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app{"Measure stream sockets, TCP's or SDP's."};
    Options o;
    auto *server = app.add_option("--server", o.server, "listen at this IPv4 address");
    app.add_option("--connect", o.connect, "measure against the server there")->excludes(server);
    app.add_option("--port", o.port, "of the server")->required();
    app.add_flag("--sdp", o.sdp, "IPPROTO_SDP instead of TCP");
    app.add_option("--test", o.test, "stream, echo or connect")
        ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, Test>>{
            {"stream", Test::Stream}, {"echo", Test::Echo}, {"connect", Test::Connect}}));
    app.add_option("--size", o.size, "of a block or a request")->check(CLI::Range(1U, 1U << 30));
    app.add_option("--connections", o.connections, "at once")->check(CLI::Range(1U, 1000U));
    app.add_option("--seconds", o.seconds, "to measure")->check(CLI::Range(0.1, 3600.0));
    app.add_flag("--spin", o.spin, "ask for data without sleeping");
    app.add_flag("--nodelay", o.nodelay, "TCP_NODELAY for a stream, too");
    CLI11_PARSE(app, argc, argv);
    try {
        if (o.server.empty() == o.connect.empty())
            throw std::runtime_error("one of --server and --connect is needed");
        if (o.server.empty())
            run_client(o);
        else
            run_server(o);
    } catch (const std::exception &error) {
        fmt::print(stderr, "socket-speed: {}\n", error.what());
        return 1;
    }
    return 0;
}
