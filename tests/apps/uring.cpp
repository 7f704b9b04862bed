// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// A server and a client on io_uring, with every call on sockets but those that make them:
//
//     uring serve PORT                        sends back what it gets
//     uring ask HOST PORT MIBS SECONDS        a stream there and back, then messages; all verified
#include <arpa/inet.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr unsigned entries = 256;
constexpr std::size_t part = 65536;
constexpr std::size_t clients = 8;
constexpr std::size_t message = 1000;

[[noreturn]] void fail(const char *what, int error) {
    std::fprintf(stderr, "%s: %s\n", what, std::strerror(error));
    std::exit(1);
}

int must(const char *what, int result) {
    if (result < 0)
        fail(what, -result);
    return result;
}

// Tells what has been done, and to whom.
enum class Op : std::uint64_t { accept, receive, send, connect };

struct Done {
    Op op;
    void *whose;
    int result;
    bool more;
};

class Ring {
  public:
    Ring() { must("io_uring_queue_init", io_uring_queue_init(entries, &ring_, 0)); }
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;
    ~Ring() { io_uring_queue_exit(&ring_); }

    void accept(int fd) {
        io_uring_sqe *sqe = entry();
        io_uring_prep_multishot_accept(sqe, fd, nullptr, nullptr, 0);
        tag(sqe, Op::accept, nullptr);
    }
    void connect(int fd, const sockaddr_in &to, void *whose) {
        io_uring_sqe *sqe = entry();
        io_uring_prep_connect(sqe, fd, reinterpret_cast<const sockaddr *>(&to), sizeof(to));
        tag(sqe, Op::connect, whose);
    }
    void receive(int fd, void *at, std::size_t size, void *whose) {
        io_uring_sqe *sqe = entry();
        io_uring_prep_recv(sqe, fd, at, size, 0);
        tag(sqe, Op::receive, whose);
    }
    void send(int fd, const void *at, std::size_t size, void *whose) {
        io_uring_sqe *sqe = entry();
        io_uring_prep_send(sqe, fd, at, size, MSG_WAITALL | MSG_NOSIGNAL);
        tag(sqe, Op::send, whose);
    }
    Done wait() {
        // Whoever waits has asked for something before.
        must("io_uring_submit", io_uring_submit_and_wait(&ring_, 1));
        io_uring_cqe *cqe = nullptr;
        must("io_uring_wait_cqe", io_uring_wait_cqe(&ring_, &cqe));
        const std::uint64_t data = io_uring_cqe_get_data64(cqe);
        const Done done{static_cast<Op>(data & 3),
                        reinterpret_cast<void *>(data & ~std::uint64_t{3}), cqe->res,
                        (cqe->flags & IORING_CQE_F_MORE) != 0};
        io_uring_cqe_seen(&ring_, cqe);
        return done;
    }

  private:
    io_uring_sqe *entry() {
        io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
        if (sqe == nullptr) {
            must("io_uring_submit", io_uring_submit(&ring_));
            sqe = io_uring_get_sqe(&ring_);
        }
        return sqe;
    }
    // Preparing an entry clears it.
    static void tag(io_uring_sqe *sqe, Op op, void *whose) {
        io_uring_sqe_set_data64(sqe, reinterpret_cast<std::uintptr_t>(whose) |
                                         static_cast<std::uint64_t>(op));
    }

    io_uring ring_{};
};

int new_socket() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket", errno);
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return fd;
}

struct alignas(4) Served {
    int fd;
    std::array<std::uint8_t, part> data;
};

void serve(in_port_t port) {
    const int listener = new_socket();
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    if (bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof(at)) != 0 ||
        listen(listener, 64) != 0)
        fail("listen", errno);
    Ring ring;
    ring.accept(listener);
    for (;;) {
        const Done done = ring.wait();
        auto *served = static_cast<Served *>(done.whose);
        if (done.op == Op::accept) {
            if (!done.more)
                ring.accept(listener);
            served = new Served{must("accept", done.result), {}};
            ring.receive(served->fd, served->data.data(), part, served);
        } else if (done.result <= 0) {
            close(served->fd);
            delete served;
        } else if (done.op == Op::receive) {
            ring.send(served->fd, served->data.data(), static_cast<std::size_t>(done.result),
                      served);
        } else {
            ring.receive(served->fd, served->data.data(), part, served);
        }
    }
}

double now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void randomize(std::vector<std::uint8_t> &data) {
    static std::mt19937_64 random{std::random_device{}()};
    std::size_t done = 0;
    for (; done + sizeof(std::uint64_t) <= data.size(); done += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(&data[done], &word, sizeof(word));
    }
    for (; done < data.size(); done++)
        data[done] = static_cast<std::uint8_t>(random());
}

struct alignas(4) Asking {
    int fd = new_socket();
    std::size_t sent = 0;
    std::size_t got = 0;
    std::vector<std::uint8_t> out;
    std::vector<std::uint8_t> in;

    explicit Asking(std::size_t size) : out(size), in(size) { randomize(out); }
    Asking(const Asking &) = delete;
    Asking &operator=(const Asking &) = delete;
    ~Asking() { close(fd); }

    void send(Ring &ring) { ring.send(fd, &out[sent], std::min(part, out.size() - sent), this); }
    void receive(Ring &ring) { ring.receive(fd, &in[got], in.size() - got, this); }
    // One thing is done, and the next is asked for.  Has all come back?
    bool go(Ring &ring, const Done &done) {
        if (done.result < 0)
            fail("a call of the client", -done.result);
        if (done.op == Op::connect) {
            receive(ring);
            send(ring);
        } else if (done.op == Op::send) {
            sent += static_cast<std::size_t>(done.result);
            if (sent < out.size())
                send(ring);
        } else {
            if (done.result == 0)
                fail("the server has closed", EPIPE);
            got += static_cast<std::size_t>(done.result);
            if (got < in.size())
                receive(ring);
        }
        if (got < in.size() || sent < out.size())
            return false;
        if (out != in)
            fail("other octets came back", EBADMSG);
        sent = got = 0;
        return true;
    }
};

int ask(const char *host, in_port_t port, std::size_t size, double seconds) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        fail(host, EINVAL);
    Ring ring;
    double speed = 0;
    {
        Asking stream(size);
        const double begin = now();
        ring.connect(stream.fd, to, &stream);
        while (!stream.go(ring, ring.wait()))
            continue;
        speed = static_cast<double>(size) / (now() - begin);
    }
    std::vector<std::unique_ptr<Asking>> several;
    for (std::size_t i = 0; i < clients; i++) {
        several.push_back(std::make_unique<Asking>(message));
        ring.connect(several.back()->fd, to, several.back().get());
    }
    const double begin = now();
    std::size_t open = clients;
    std::size_t messages = 0;
    while (open > 0) {
        const Done done = ring.wait();
        auto *asking = static_cast<Asking *>(done.whose);
        if (!asking->go(ring, done))
            continue;
        messages++;
        if (now() - begin >= seconds) {
            open--;
            continue;
        }
        randomize(asking->out);
        asking->receive(ring);
        asking->send(ring);
    }
    std::printf("{\"speed\": %.0f, \"rate\": %.1f}\n", speed,
                static_cast<double>(messages) / (now() - begin));
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3 && std::string(argv[1]) == "serve")
        serve(static_cast<in_port_t>(std::stoi(argv[2])));
    if (argc == 6 && std::string(argv[1]) == "ask")
        return ask(argv[2], static_cast<in_port_t>(std::stoi(argv[3])), std::stoul(argv[4]) << 20,
                   std::stod(argv[5]));
    std::fprintf(stderr, "usage: uring serve PORT | uring ask HOST PORT MIBS SECONDS\n");
    return 2;
}
