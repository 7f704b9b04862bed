// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The wire peer: a plain TCP connection that says exactly the octets that a
 * test wants, cut as it wants, and shows exactly the octets that the device
 * says.  It speaks either role: TCP connects or listens, MPA initiates or
 * responds, in any combination.
 *
 * Set-up and reading that go wrong throw e2e::Failure.
 */
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "lib/system.hpp"
#include "wire/codec.hpp"

namespace softwarp::wire {

using e2e::Deadline;
using e2e::milliseconds;

/*
 * How octets are handed to TCP: cut in front of each of these offsets.  A piece
 * goes out only when the one before it left the socket, and as a rule after it
 * was acknowledged, so pieces arrive in segments of their own.  Without cuts all
 * goes at once and TCP packs as it likes.
 */
struct SendPlan {
    std::vector<size_t> cuts = {};

    static SendPlan whole() { return {}; }
    static SendPlan at(std::initializer_list<size_t> cuts) { return {std::vector<size_t>(cuts)}; }
    /* Pieces of `size` octets, for `total` octets. */
    static SendPlan every(size_t size, size_t total);
};

/* How a stream ends, seen from its reader. */
enum class Ending {
    none, // it does not, in the time given
    fin,
    reset,
    data, // it does not: octets came instead
};

std::string ending_text(Ending ending);

struct StreamOptions {
    int mss = 0;     // TCP_MAXSEG: the largest segment this end says it takes; 0 = TCP's choice
    int receive = 0; // SO_RCVBUF, octets; 0 = TCP's choice
};

class Stream {
  public:
    /* Connects from the namespace ("" = the initial one). */
    Stream(const std::string &ns, const std::string &addr, uint16_t port,
           const StreamOptions &options = {});
    explicit Stream(e2e::Fd fd);

    /* Octets ---------------------------------------------------------------- */

    void say(View octets, const SendPlan &plan = {});
    /* Reads exactly that many; throws when the stream ends or time is up. */
    Bytes hear(size_t count, Deadline deadline = Deadline());
    /* All that comes until the stream ends; throws when it does not. */
    Bytes hear_to_end(Deadline deadline = Deadline());
    /* True if nothing comes and the stream stays open for the time. */
    bool silent(milliseconds quiet);
    /* What comes next: an end, or octets (which stay to be read). */
    Ending ending(Deadline deadline = Deadline());
    /* True if the peer closes or resets within the time; reads and drops data. */
    bool closed_by_peer(Deadline deadline = Deadline());
    void shut_down(); // FIN, the other direction stays open
    void reset();     // RST
    int fd() const { return fd_.get(); }

    /* MPA start-up ---------------------------------------------------------- */

    /* A whole Request or Reply, as octets or taken apart. */
    Bytes hear_mpa(Deadline deadline = Deadline());
    MpaFrame hear_frame(Deadline deadline = Deadline());

    /* Full operation -------------------------------------------------------- */

    /*
     * Which directions carry markers from here on: what this end says, what it
     * hears.  Neither, unless this is called before the first FPDU.
     */
    void use_markers(bool said, bool heard);
    FpduWriter &writer() { return writer_; }
    FpduReader &reader() { return reader_; }

    void say_ulpdu(View ulpdu, const SendPlan &plan = {});
    void say_fpdu(const FpduSpec &spec, const SendPlan &plan = {});
    /* The next FPDU, whatever is wrong with it. */
    Fpdu hear_fpdu(Deadline deadline = Deadline());
    /*
     * The segment in the next FPDU, whose CRC (unless `any_crc`), pad and
     * markers have to be right.
     */
    Segment hear_segment(Deadline deadline = Deadline());
    bool any_crc = false;

  private:
    void push(View octets);
    /* Adds what there is to ahead_; false at the end of the stream. */
    bool fill();
    size_t unheard() const { return ahead_.size() - ahead_at_; }
    Bytes take(size_t count);
    /* What the socket has next, which is ready. */
    Ending peek();
    void wait_sent();

    e2e::Fd fd_;
    Bytes ahead_; // read from the socket, and from ahead_at_ on not yet heard
    size_t ahead_at_ = 0;
    FpduWriter writer_;
    FpduReader reader_;
};

/* A listening TCP socket in a namespace. */
class Acceptor {
  public:
    Acceptor(const std::string &ns, const std::string &addr, uint16_t port = 0,
             const StreamOptions &options = {});
    uint16_t port() const { return port_; }
    Stream accept(Deadline deadline = Deadline());
    /* True if nobody connects for the time. */
    bool lonely(milliseconds quiet);

  private:
    e2e::Fd fd_;
    uint16_t port_ = 0;
};

} // namespace softwarp::wire
