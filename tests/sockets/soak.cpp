// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Much, many and long, with each octet verified:
 *
 *   socket-soak --serve ADDRESS --port N [--kind K]
 *   socket-soak --stream ADDRESS --port N [--kind K] --bytes B
 *   socket-soak --many N --seconds S
 *   socket-soak --idle N [--kind K]
 *
 * serve    a server for --stream, until it is told to end
 * stream   so many octets there and as many back at the same time
 * many     so many connections at once over loopback, each of which has its octets
 *          echoed; half of them are to a TCP server, by the policy auto
 * idle     so many sockets that are connected and do nothing: what one of them costs
 *
 * The last line is one of JSON.
 */
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <endian.h>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
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

enum class Sort : uint8_t { Tcp, Sdp, Auto };

struct Options {
    std::string serve, stream;
    uint16_t port = 5000;
    Sort kind = Sort::Sdp;
    uint64_t bytes = 1ULL << 30;
    unsigned many = 0, idle = 0;
    double seconds = 60;
};

[[noreturn]] void fail(const char *what) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
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

  private:
    int fd_;
};

struct Address {
    sockaddr_storage storage{};
    socklen_t len = 0;

    Address(const std::string &text, uint16_t port) {
        auto *in = reinterpret_cast<sockaddr_in *>(&storage);
        auto *in6 = reinterpret_cast<sockaddr_in6 *>(&storage);
        if (::inet_pton(AF_INET6, text.c_str(), &in6->sin6_addr) == 1) {
            in6->sin6_family = AF_INET6;
            in6->sin6_port = htons(port);
            len = sizeof(*in6);
        } else if (::inet_pton(AF_INET, text.c_str(), &in->sin_addr) == 1) {
            in->sin_family = AF_INET;
            in->sin_port = htons(port);
            len = sizeof(*in);
        } else {
            throw std::runtime_error(fmt::format("{} is no address", text));
        }
    }
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
};

Socket make(int family, Sort kind) {
    Socket made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, kind == Sort::Tcp ? 0 : IPPROTO_SDP));
    int policy = kind == Sort::Auto ? SDP_INFO_POLICY_AUTO : SDP_INFO_POLICY_SDP;
    if (kind != Sort::Tcp && ::setsockopt(made.get(), SOL_SDP, SDP_POLICY, &policy, sizeof(policy)))
        fail("SDP_POLICY");
    return made;
}

Socket listening(const Address &at, Sort kind) {
    Socket made = make(at.storage.ss_family, kind);
    int one = 1;
    ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (::bind(made.get(), at.get(), at.len) || ::listen(made.get(), 1024))
        fail("listen");
    return made;
}

Socket connected(const Address &to, Sort kind) {
    Socket made = make(to.storage.ss_family, kind);
    if (::connect(made.get(), to.get(), to.len))
        fail("connect");
    return made;
}

bool is_sdp(const Socket &s) {
    sdp_info info{};
    socklen_t len = sizeof(info);
    return ::getsockopt(s.get(), SOL_SDP, SDP_INFO, &info, &len) == 0 &&
           info.transport == SDP_INFO_TRANSPORT_SDP;
}

/* What stands at a place of a stream */
uint64_t word(uint64_t seed, uint64_t at) {
    uint64_t z = seed + at * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    return z ^ (z >> 27);
}

/* The same octets on every processor */
void write_pattern(std::vector<uint64_t> &block, uint64_t seed, uint64_t at) {
    for (uint64_t &value : block)
        value = htole64(word(seed, at++));
}

/* Both directions at once ---------------------------------------------------------- */

constexpr size_t kBlock = 1U << 16;

struct Wish {
    uint64_t bytes, seed; // little-endian; of what the client sends; the server's is the next one
};

void all(const Socket &s, void *data, size_t size, bool out) {
    auto *octets = static_cast<char *>(data);
    while (size) {
        ssize_t ret =
            out ? ::send(s.get(), octets, size, MSG_NOSIGNAL) : ::recv(s.get(), octets, size, 0);
        if (ret < 0)
            fail(out ? "send" : "recv");
        if (ret == 0)
            throw std::runtime_error("the stream ended too soon");
        octets += ret;
        size -= static_cast<size_t>(ret);
    }
}

void talk(const Socket &s, uint64_t bytes, uint64_t seed) {
    std::vector<uint64_t> block(kBlock / 8);
    for (uint64_t done = 0; done < bytes;) {
        write_pattern(block, seed, done / 8);
        size_t n = static_cast<size_t>(std::min<uint64_t>(kBlock, bytes - done));
        all(s, block.data(), n, true);
        done += n;
    }
    if (::shutdown(s.get(), SHUT_WR))
        fail("shutdown");
}

void hear(const Socket &s, uint64_t bytes, uint64_t seed) {
    std::vector<uint64_t> block(kBlock / 8), want(kBlock / 8);
    for (uint64_t done = 0; done < bytes;) {
        size_t n = static_cast<size_t>(std::min<uint64_t>(kBlock, bytes - done));
        all(s, block.data(), n, false);
        write_pattern(want, seed, done / 8);
        if (std::memcmp(block.data(), want.data(), n) != 0)
            throw std::runtime_error(fmt::format("wrong octets behind {}", done));
        done += n;
    }
    char more;
    if (::recv(s.get(), &more, 1, 0) != 0)
        throw std::runtime_error("no end behind the last octet");
}

void both(const Socket &s, uint64_t bytes, uint64_t own, uint64_t peer) {
    std::string error;
    std::thread sender([&] {
        try {
            talk(s, bytes, own);
        } catch (const std::exception &e) {
            error = e.what();
            ::shutdown(s.get(), SHUT_RDWR);
        }
    });
    try {
        hear(s, bytes, peer);
    } catch (...) {
        ::shutdown(s.get(), SHUT_RDWR);
        sender.join();
        throw;
    }
    sender.join();
    if (!error.empty())
        throw std::runtime_error(error);
}

void serve(const Options &o) {
    Socket l = listening(Address(o.serve, o.port), o.kind);
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;) {
        Socket peer(::accept(l.get(), nullptr, nullptr));
        std::thread(
            [](Socket s) {
                try {
                    Wish wish{};
                    all(s, &wish, sizeof(wish), false);
                    uint64_t seed = le64toh(wish.seed);
                    both(s, le64toh(wish.bytes), seed + 1, seed);
                } catch (const std::exception &e) {
                    fmt::print(stderr, "socket-soak: server: {}\n", e.what());
                }
            },
            std::move(peer))
            .detach();
    }
}

void stream(const Options &o) {
    Socket s = connected(Address(o.stream, o.port), o.kind);
    bool sdp = is_sdp(s);
    auto begin = Clock::now();
    auto seed = static_cast<uint64_t>(begin.time_since_epoch().count());
    Wish wish{htole64(o.bytes), htole64(seed)};
    all(s, &wish, sizeof(wish), true);
    both(s, o.bytes, seed, seed + 1);
    fmt::print("{{\"bytes\": {}, \"seconds\": {:.1f}, \"sdp\": {}}}\n", 2 * o.bytes, since(begin),
               sdp);
}

/* Many ------------------------------------------------------------------------------ */

constexpr size_t kMost = 8192;

void limit_descriptors(unsigned sockets) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = sockets + 100;
    if (::setrlimit(RLIMIT_NOFILE, &limit))
        fail("RLIMIT_NOFILE");
}

void nonblocking(const Socket &s) {
    if (::fcntl(s.get(), F_SETFL, O_NONBLOCK))
        fail("O_NONBLOCK");
}

class Poll {
  public:
    Poll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {}
    void watch(const Socket &s, uint32_t events, void *what, bool anew) const {
        epoll_event event{};
        event.events = events;
        event.data.ptr = what;
        if (::epoll_ctl(fd_.get(), anew ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, s.get(), &event))
            fail("epoll_ctl");
    }
    template<typename Function>
    void turn(Function function) {
        int count = ::epoll_wait(fd_.get(), events_, std::size(events_), 100);
        for (int i = 0; i < count; i++)
            function(events_[i].data.ptr, events_[i].events);
    }

  private:
    Socket fd_;
    epoll_event events_[256];
};

/* Sends back whatever comes, and takes no more before that has gone. */
class Echo {
  public:
    explicit Echo(Socket s) : s_(std::move(s)) { nonblocking(s_); }
    const Socket &socket() const { return s_; }
    /* What to wait for; 0: the end */
    uint32_t run() {
        if (!left_) {
            ssize_t ret = ::recv(s_.get(), octets_, sizeof(octets_), 0);
            if (ret == 0)
                return 0;
            if (ret < 0)
                return errno == EAGAIN ? static_cast<uint32_t>(EPOLLIN) : 0;
            at_ = 0;
            left_ = static_cast<size_t>(ret);
        }
        ssize_t ret = ::send(s_.get(), octets_ + at_, left_, MSG_NOSIGNAL);
        if (ret < 0)
            return errno == EAGAIN ? static_cast<uint32_t>(EPOLLOUT) : 0;
        at_ += static_cast<size_t>(ret);
        left_ -= static_cast<size_t>(ret);
        return left_ ? static_cast<uint32_t>(EPOLLOUT) : EPOLLIN;
    }

  private:
    Socket s_;
    char octets_[4096];
    size_t at_ = 0, left_ = 0;
};

/* Accepts at each of the listeners, and echoes. */
void echo(const std::vector<Socket> &listeners, const std::atomic<bool> &stop) {
    Poll poll;
    std::deque<Echo> peers;
    for (const Socket &l : listeners) {
        nonblocking(l);
        poll.watch(l, EPOLLIN, const_cast<Socket *>(&l), true);
    }
    auto is_listener = [&](void *what) {
        return what >= &listeners.front() && what <= &listeners.back();
    };
    while (!stop)
        poll.turn([&](void *what, uint32_t) {
            if (is_listener(what)) {
                int fd = ::accept(static_cast<Socket *>(what)->get(), nullptr, nullptr);
                if (fd >= 0) {
                    Echo &peer = peers.emplace_back(Socket(fd));
                    poll.watch(peer.socket(), EPOLLIN, &peer, true);
                }
                return;
            }
            auto *peer = static_cast<Echo *>(what);
            poll.watch(peer->socket(), peer->run(), peer, false);
        });
}

/* Blocks of any size, of which one is on its way */
class Client {
  public:
    Client(Socket s, uint64_t seed) : s_(std::move(s)), seed_(seed), sdp_(is_sdp(s_)) {
        nonblocking(s_);
        next();
    }
    const Socket &socket() const { return s_; }
    bool sdp() const { return sdp_; }
    uint64_t rounds() const { return rounds_; }
    uint32_t run() {
        while (sent_ < size_) {
            ssize_t ret = ::send(s_.get(), octets_ + sent_, size_ - sent_, MSG_NOSIGNAL);
            if (ret < 0 && errno != EAGAIN)
                fail("send");
            if (ret < 0)
                break;
            sent_ += static_cast<size_t>(ret);
        }
        while (heard_ < sent_) {
            char back[kMost];
            ssize_t ret = ::recv(s_.get(), back, sent_ - heard_, 0);
            if (ret < 0 && errno != EAGAIN)
                fail("recv");
            if (ret == 0)
                throw std::runtime_error("the server has closed");
            if (ret < 0)
                break;
            if (std::memcmp(back, octets_ + heard_, static_cast<size_t>(ret)) != 0)
                throw std::runtime_error("wrong octets");
            heard_ += static_cast<size_t>(ret);
        }
        if (heard_ == size_) {
            rounds_++;
            next();
            return EPOLLOUT;
        }
        return sent_ < size_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
    }

  private:
    void next() {
        uint64_t value = word(seed_, rounds_);
        size_ = 1 + value % kMost;
        for (size_t i = 0; i < size_; i += 8) {
            uint64_t octets = word(value, i);
            std::memcpy(octets_ + i, &octets, std::min<size_t>(8, size_ - i));
        }
        sent_ = heard_ = 0;
    }

    Socket s_;
    uint64_t seed_;
    bool sdp_;
    char octets_[kMost];
    size_t size_ = 0, sent_ = 0, heard_ = 0;
    uint64_t rounds_ = 0;
};

void many(const Options &o) {
    limit_descriptors(2 * o.many);
    Address auto_at("127.0.0.1", o.port), tcp_at("127.0.0.1", static_cast<uint16_t>(o.port + 1));
    std::vector<Socket> listeners;
    listeners.push_back(listening(auto_at, Sort::Auto));
    listeners.push_back(listening(tcp_at, Sort::Tcp));
    std::atomic<bool> stop = false;
    std::atomic<bool> broken = false;
    std::thread server([&] {
        try {
            echo(listeners, stop);
        } catch (const std::exception &e) {
            fmt::print(stderr, "socket-soak: server: {}\n", e.what());
            broken = true;
        }
    });
    auto end = [&] {
        stop = true;
        server.join();
    };
    try {
        Poll poll;
        std::deque<Client> clients;
        unsigned by_sdp = 0;
        for (unsigned i = 0; i < o.many; i++) {
            Client &c = clients.emplace_back(connected(i % 2 ? tcp_at : auto_at, Sort::Auto), i);
            by_sdp += c.sdp();
            poll.watch(c.socket(), EPOLLOUT, &c, true);
        }
        fmt::print(stderr, "socket-soak: {} connections, {} by SDP\n", o.many, by_sdp);
        auto begin = Clock::now(), told = begin;
        while (since(begin) < o.seconds && !broken) {
            poll.turn([&](void *what, uint32_t) {
                auto *c = static_cast<Client *>(what);
                poll.watch(c->socket(), c->run(), c, false);
            });
            if (since(told) > 10) {
                told = Clock::now();
                fmt::print(stderr, "socket-soak: {:.0f} s so far\n", since(begin));
            }
        }
        uint64_t total = 0, least = UINT64_MAX;
        for (const Client &c : clients) {
            total += c.rounds();
            least = std::min(least, c.rounds());
        }
        fmt::print("{{\"connections\": {}, \"sdp\": {}, \"seconds\": {:.1f}, \"rounds\": {}, "
                   "\"least\": {}}}\n",
                   o.many, by_sdp, since(begin), total, least);
        if (!least || broken)
            throw std::runtime_error("not all connections had an answer");
    } catch (...) {
        end();
        throw;
    }
    end();
}

/* Idle ------------------------------------------------------------------------------ */

/* KiB, of /proc/meminfo */
long meminfo(const std::string &name) {
    std::ifstream file("/proc/meminfo");
    std::string label;
    for (long value; file >> label >> value; file.ignore(100, '\n'))
        if (label == name + ":")
            return value;
    throw std::runtime_error(name + " is not in /proc/meminfo");
}

/* What is free, and what will be when nobody needs it */
long available() {
    /* connections are set up by work items, some of which may run yet */
    ::sleep(2);
    return meminfo("MemFree") + meminfo("Cached") + meminfo("Buffers") + meminfo("SReclaimable");
}

void idle(const Options &o) {
    limit_descriptors(o.idle);
    Address at("127.0.0.1", o.port);
    Socket l = listening(at, o.kind);
    std::vector<Socket> sockets;
    sockets.reserve(o.idle);
    long before = available();
    auto begin = Clock::now(), told = begin;
    while (sockets.size() + 1 < o.idle) {
        sockets.push_back(connected(at, o.kind));
        sockets.emplace_back(::accept(l.get(), nullptr, nullptr));
        if (since(told) > 10) {
            told = Clock::now();
            fmt::print(stderr, "socket-soak: {} sockets so far\n", sockets.size());
        }
    }
    double seconds = since(begin);
    long used = before - available();
    size_t count = sockets.size();
    /* all of them live */
    for (size_t i = 0; i < count; i += 2) {
        char octet = static_cast<char>(i);
        all(sockets[i], &octet, 1, true);
        all(sockets[i + 1], &octet, 1, false);
        if (octet != static_cast<char>(i))
            throw std::runtime_error("a wrong octet");
    }
    fmt::print("{{\"sockets\": {}, \"seconds\": {:.1f}, \"bytes_each\": {}}}\n", count, seconds,
               used * 1024 / static_cast<long>(count));
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app{"Stream sockets, TCP's or SDP's: much, many and long, with each octet verified."};
    Options o;
    app.add_option("--serve", o.serve, "be the server at this address");
    app.add_option("--stream", o.stream, "both ways at once with the server there");
    app.add_option("--many", o.many, "so many connections over loopback")
        ->check(CLI::Range(1U, 100000U));
    app.add_option("--idle", o.idle, "so many sockets")->check(CLI::Range(2U, 200000U));
    app.add_option("--port", o.port, "of servers");
    app.add_option("--kind", o.kind, "tcp, sdp or auto")
        ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, Sort>>{
            {"tcp", Sort::Tcp}, {"sdp", Sort::Sdp}, {"auto", Sort::Auto}}));
    app.add_option("--bytes", o.bytes, "each way");
    app.add_option("--seconds", o.seconds, "of --many");
    CLI11_PARSE(app, argc, argv);
    try {
        if (!o.serve.empty())
            serve(o);
        else if (!o.stream.empty())
            stream(o);
        else if (o.many)
            many(o);
        else if (o.idle)
            idle(o);
        else
            throw std::runtime_error("one of --serve, --stream, --many and --idle is needed");
    } catch (const std::exception &e) {
        fmt::print(stderr, "socket-soak: {}\n", e.what());
        return 1;
    }
    return 0;
}
