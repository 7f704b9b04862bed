// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Every case runs on TCP, which says what is right, and on each kind of SDP
 * socket, which has to do the same.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "softwarp_sdp.h"

namespace softwarp::sockets {

struct Kind {
    const char *name;
    int family; // of socket()
    int protocol;
    int address;                // AF_INET or AF_INET6
    const char *host = nullptr; // of this host, where loopback will not do
    /* net.softwarp_sdp.policy is auto: SDP if there are devices, and TCP in a namespace without */
    enum { kPolicyIsSdp, kBoth, kFellBack } policy = kPolicyIsSdp;
};

const std::vector<Kind> &all_kinds();
/* Those over loopback; of AF_INET, of AF_INET6, or of both */
std::vector<Kind> local_kinds(int address = AF_UNSPEC);
std::string name_of_kind(const testing::TestParamInfo<Kind> &info);
void PrintTo(const Kind &kind, std::ostream *out);

/* A descriptor that is closed when it goes */
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd &operator=(Fd &&other) noexcept;
    ~Fd() { reset(); }
    void reset();
    /* somebody else has closed it, or will */
    int release() { return std::exchange(fd_, -1); }
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

  private:
    int fd_ = -1;
};

struct Address {
    sockaddr_storage storage{};
    socklen_t len = 0;

    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
    sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
    uint16_t port() const;
    void set_port(uint16_t port);
    bool operator==(const Address &other) const;
};

struct Pair {
    Fd here, there;
};

class Sockets : public testing::TestWithParam<Kind> {
  protected:
    void SetUp() override;
    void TearDown() override;

    Fd make(int flags = 0) const;
    /* By SDP at a port of its own, which the program does not see */
    bool is_elsewhere() const { return GetParam().policy == Kind::kBoth; }
    /* One of AF_INET or AF_INET6 that talks to sockets of this kind */
    Fd make_for(int address, int flags = 0) const;
    /* Loopback, or what is in place of it, with that port in host byte order */
    Address loopback(uint16_t port = 0) const;
    /* All addresses */
    Address any(uint16_t port = 0) const;
    /* One of this machine that is not loopback's */
    Address another_address(uint16_t port = 0) const;
    Fd listener(int backlog = 8, int flags = 0) const;
    Fd listener_at(const Address &a, int backlog = 8) const;
    /* Connected, or not and errno says why */
    Fd dial(const Address &a, int flags = 0) const;
    /* Connected, and accepted */
    Pair connected() const;
    void tune(Pair &pair, int level, int name, int value) const;

  private:
    std::string policy_;
    Fd home_; // the namespace, while it is another one
};

/* An address as it is written, with a port */
Address address(const std::string &text, uint16_t port = 0);
Address name_of(const Fd &fd);
Address peer_of(const Fd &fd);
int option(const Fd &fd, int level, int name);
/* The events that poll() has at once, or after so many ms */
short events(const Fd &fd, short wanted, int ms = 0);
void set_nonblocking(const Fd &fd, bool on = true);
/* Calls that take an address; 0, or the errno */
int bind_to(const Fd &fd, const Address &a);
int connect_to(const Fd &fd, const Address &a);
/* setsockopt() of an int; 0, or the errno */
int set(const Fd &fd, int level, int name, int value);
/* A close() that resets, with 0, or waits */
void set_linger(const Fd &fd, int seconds);
/* SDP_INFO */
sdp_info info(const Fd &fd);
/* SO_RCVTIMEO, SO_SNDTIMEO */
void set_timeout(const Fd &fd, int name, int ms);

/* By the shell; true: it exits with 0 */
bool run(const std::string &command);

/* In a new network namespace */
void loopback_up();

/* Octets that differ from their neighbours */
std::vector<uint8_t> pattern(size_t size, uint8_t seed = 0);
/* All of it, from a stream that ends or has so many; false: an error */
bool send_all(const Fd &fd, const std::vector<uint8_t> &octets, int flags = 0);
std::vector<uint8_t> receive(const Fd &fd, size_t size);
/* What a block is when it is sent again and again */
std::vector<uint8_t> repeated(size_t size);
/* As many of these, after @sent, as both sides have room for; the socket does not block then */
size_t fill(const Fd &fd, size_t sent = 0);
/* A handler for it that does nothing */
void take_signal(int number, bool restart = false);

/* The errno of a call that failed, 0 of one that did not */
#define ERRNO_OF(call) ((call) < 0 ? errno : 0)

/* A suite of cases, on those kinds, or on all of them */
#define SUITE_OF(suite, kinds)                                                                     \
    class suite : public Sockets {};                                                               \
    INSTANTIATE_TEST_SUITE_P(All, suite, testing::ValuesIn(kinds), name_of_kind)
#define SUITE(suite) SUITE_OF(suite, all_kinds())

/* Comes true within a few seconds? */
template<typename Condition>
bool eventually(Condition condition) {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        usleep(1000);
    }
    return true;
}

/* Such a result of a call in a process of its own, or minus the signal that has ended it */
template<typename Function>
int in_child(Function function) {
    pid_t child = ::fork();
    if (child == 0)
        ::_exit(function());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* A call in a thread of its own, because it may sleep */
class Call {
  public:
    template<typename Function>
    explicit Call(Function function)
        : thread_([this, function] {
              tid_ = ::gettid();
              ret_ = static_cast<long>(function());
              error_ = ret_ < 0 ? errno : 0;
              done_ = true;
          }) {}
    ~Call() { join(); }
    bool done() const { return done_; }
    /* It has not ended, and does not run */
    bool sleeps() const;
    void interrupt(int number) { ::pthread_kill(thread_.native_handle(), number); }
    long ret() { return join(), ret_; }
    int error() { return join(), error_; }

  private:
    /* One that does not come to its end is interrupted until it does. */
    void join();

    std::atomic<pid_t> tid_ = 0;
    std::atomic<bool> done_ = false;
    long ret_ = 0;
    int error_ = 0;
    std::thread thread_;
};

/*
 * The kernel's ticks, by which its time limits end.  Where a virtual processor waits for a real
 * one, ticks are late: then a limit is over sooner by any other clock, TCP's as well.
 */
struct TickClock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<TickClock>;
    static constexpr bool is_steady = true;
    static time_point now() {
        timespec ts{};
        ::clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
        return time_point(std::chrono::seconds(ts.tv_sec) + duration(ts.tv_nsec));
    }
};

/* ms since it was made */
class Stopwatch {
  public:
    long ms() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(TickClock::now() - begin_)
            .count();
    }

  private:
    TickClock::time_point begin_ = TickClock::now();
};

/* One descriptor, watched */
struct Epoll {
    Epoll(const Fd &fd, uint32_t events);
    /* What there is, or comes within that time; 0: nothing */
    uint32_t wait(int ms) const;
    Fd ep;
};

} // namespace softwarp::sockets
