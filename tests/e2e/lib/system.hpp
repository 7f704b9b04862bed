// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What every test needs of the machine: its configuration, deadlines, shell
 * commands, network namespaces.  Set-up that goes wrong throws Failure, which
 * GoogleTest reports as the failure of the running test.
 */
#pragma once

#include <sched.h>

#include <chrono>
#include <functional>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace softwarp::e2e {

using std::chrono::milliseconds;

/*
 * The topology under test, by default what scripts/vm sets up:
 *
 *   initial namespace                     namespace "peer"
 *   swlo on lo, sw0 10.77.0.1, fd77::1 == veth == sw1 10.77.0.2, fd77::2
 */
struct Config {
    std::string dev;        // SOFTWARP_E2E_DEV, device at addr4 and addr6
    std::string peer_dev;   // SOFTWARP_E2E_PEER_DEV
    std::string lo_dev;     // SOFTWARP_E2E_LO_DEV, device on lo
    std::string addr4;      // SOFTWARP_E2E_ADDR4
    std::string addr6;      // SOFTWARP_E2E_ADDR6
    std::string peer_addr4; // SOFTWARP_E2E_PEER_ADDR4
    std::string peer_addr6; // SOFTWARP_E2E_PEER_ADDR6
    std::string peer_ns;    // SOFTWARP_E2E_PEER_NS
    std::string link_type;  // SOFTWARP_E2E_TYPE, of "rdma link add"
    double scale;           // SOFTWARP_E2E_SCALE, factor on all deadlines
    bool quick;             // SOFTWARP_E2E_QUICK, smaller sizes, same tests
    bool unload;            // SOFTWARP_E2E_UNLOAD, unload the module at the end
};

const Config &config();

/* The larger value, or with SOFTWARP_E2E_QUICK the smaller one. */
template<typename T>
T full_or_quick(T full, T quick) {
    return config().quick ? quick : full;
}

/* Is the running kernel older than this version? */
bool kernel_before(unsigned major, unsigned minor);

/*
 * User-Mode Linux: the threads of one process share a process of the host, so a
 * thread that spins keeps the others from running until a timer tick.
 */
bool threads_take_turns();

class Failure : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(std::string_view what,
                       std::source_location where = std::source_location::current());

/* Throws Failure with the text and errno if the condition does not hold. */
void require(bool holds, std::string_view what,
             std::source_location where = std::source_location::current());

std::string errno_name(int error);

/* A point in time by which something must have happened. */
class Deadline {
  public:
    /* limit: as on a machine of normal speed; the scale is applied here */
    explicit Deadline(milliseconds limit = milliseconds(10000));
    bool passed() const;
    /* Time left for poll(2), never negative. */
    int left_ms() const;

  private:
    std::chrono::steady_clock::time_point end_;
};

/* Waits for the condition, looking again every few milliseconds. */
bool eventually(const std::function<bool()> &holds, Deadline deadline = Deadline());

struct ShellResult {
    int status;         // exit status, 128 + signal, or -1 if it hung and was killed
    std::string output; // stdout and stderr
};

ShellResult shell(const std::string &command, Deadline deadline = Deadline(milliseconds(20000)));

/* As shell, but throws unless the command succeeds; returns its output. */
std::string must_shell(const std::string &command,
                       std::source_location where = std::source_location::current());

/*
 * Runs the function in the named network namespace ("" = where the program was
 * started), on a thread of its own; exceptions come back to the caller.
 */
void in_namespace(const std::string &ns, const std::function<void()> &fn);

/* Moves the calling thread into the named namespace. */
void enter_namespace(const std::string &ns);

/* Keeps the calling thread on one processor: on this one, or on another. */
class OneProcessor {
  public:
    explicit OneProcessor(bool another = false);
    ~OneProcessor();
    OneProcessor(const OneProcessor &) = delete;
    OneProcessor &operator=(const OneProcessor &) = delete;

  private:
    cpu_set_t before_ = {};
};

/* A file descriptor that closes itself. */
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd &&other) noexcept : fd_(other.release()) {}
    Fd &operator=(Fd &&other) noexcept;
    ~Fd();
    int get() const { return fd_; }
    int release();
    void reset();

  private:
    int fd_ = -1;
};

} // namespace softwarp::e2e
