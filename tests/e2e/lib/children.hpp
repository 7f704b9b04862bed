// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Another process to connect to, and to kill.  It runs this program again with
 * a role, so that it shares nothing with the tests but the device.
 */
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lib/system.hpp"

namespace softwarp::e2e {

class Child {
  public:
    explicit Child(const std::vector<std::string> &role);
    ~Child(); // kills it if it still runs
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    pid_t pid() const { return pid_; }
    /* The next line of its output. */
    std::string line(Deadline deadline = Deadline());
    void signal(int number) const;
    /* Waits for its end; false if it does not come in time. */
    bool wait(Deadline deadline = Deadline());
    /* As waitpid(2) reported it. */
    int status() const { return status_; }

  private:
    pid_t pid_ = -1;
    Fd output_;
    std::string read_;
    bool reaped_ = false;
    int status_ = 0;
};

/* What a peer process tells about its memory, as private data of its accept. */
struct PeerMemory {
    uint64_t addr;
    uint32_t rkey;
    uint32_t length;
};

/*
 * The process's side: runs the role in argv, does not return to the tests.
 *
 * peer MODE NS ADDR: listens, prints the port, accepts one connection, tells
 * its PeerMemory, prints "ready" and then, until killed or disconnected:
 *   sink    keeps its receive queue full
 *   writer  writes without end to the memory named in the request
 *   reader  reads without end from it
 *   sender  sends without end
 *   spinner looks for completions without end
 *   liar    tells the kernel without end that it looks for completions
 *
 * pair NS ADDR DEVICE: connects to itself over the device, prints "ready" and
 * writes without end.
 *
 * connect UID ADDR PORT QPN, accept UID ADDR QPN: as that user with a QP of
 * somebody else; accept prints its port first.  Print the errno that it brought,
 * or 0, and sleep.
 *
 * waiter DEVICE NS ADDR PEER: a queue pair in RTR for a peer at that address,
 * prints "ready" and sleeps.
 *
 * holder DEVICE: makes some of each object, prints "ready" and sleeps.
 */
int run_role(const std::vector<std::string> &role);

} // namespace softwarp::e2e
