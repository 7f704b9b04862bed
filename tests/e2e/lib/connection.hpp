// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections through librdmacm.  Both ends live in this process: an rdma_cm id
 * belongs to the network namespace of the thread that made it, everything after
 * that works from any thread, so one thread can drive both sides.
 */
#pragma once

#include <rdma/rdma_cma.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lib/verbs.hpp"

namespace softwarp::e2e {

struct CmIdDestroyer {
    void operator()(rdma_cm_id *id) const;
};
using CmId = std::unique_ptr<rdma_cm_id, CmIdDestroyer>;

/* A copy of an event; the original is acknowledged at once. */
struct CmEvent {
    rdma_cm_event_type type;
    int status;
    rdma_cm_id *id;
    rdma_cm_id *listen_id; // of a CONNECT_REQUEST, else null
    std::vector<uint8_t> private_data = {};
    uint8_t responder_resources;
    uint8_t initiator_depth;
};

class EventChannel {
  public:
    EventChannel();
    ~EventChannel();
    EventChannel(const EventChannel &) = delete;
    EventChannel &operator=(const EventChannel &) = delete;

    rdma_event_channel *get() const { return channel_; }

    /*
     * The first event of the id, or with null of any id.  A request counts
     * as an event of its listener.  Events of other ids are kept.
     */
    std::optional<CmEvent> try_next(const rdma_cm_id *id, Deadline deadline);

    /* As above, but throws unless it comes and has the type. */
    CmEvent expect(const rdma_cm_id *id, rdma_cm_event_type type, Deadline deadline = Deadline(),
                   std::source_location where = std::source_location::current());

    /* Drops kept events of an id that is about to be destroyed. */
    void forget(const rdma_cm_id *id);

  private:
    std::optional<CmEvent> read_one(int timeout_ms);

    rdma_event_channel *channel_;
    std::deque<CmEvent> kept_;
};

std::string cm_event_text(const CmEvent &event);

/* An id made in the namespace ("" = the initial one). */
CmId create_id(EventChannel &channel, const std::string &ns = "");

union Address {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
};
Address address(const std::string &text, uint16_t port);

struct QpOptions {
    uint32_t send_wr = 64;
    uint32_t recv_wr = 64;
    uint32_t send_sge = 4;
    uint32_t recv_sge = 4;
    uint32_t inline_data = 0;
    bool sq_sig_all = false;
    int send_cqe = 0; // 0 = send_wr + 1
    int recv_cqe = 0;
    bool events = false;       // CQs get a completion channel
    ibv_cq *send_cq = nullptr; // use these instead of own ones
    ibv_cq *recv_cq = nullptr;
    ibv_pd *pd = nullptr;
    ibv_srq *srq = nullptr;  // then there is no receive queue
    uint64_t operations = 0; // IBV_QP_EX_WITH_*: an extended QP
    int vector = 0;
    uint8_t ird = 16;
    uint8_t ord = 16;
    std::vector<uint8_t> private_data = {};
};

/*
 * One end of a connection: the rdma_cm id, a PD, two CQs and the QP.  Members
 * are in the order in which they have to go, last first.
 */
class Endpoint {
  public:
    /* Takes an id that is bound to a device and makes the rest. */
    Endpoint(EventChannel &channel, CmId id, const QpOptions &options);
    ~Endpoint();
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;

    ibv_qp *qp() const { return id_->qp; }
    ibv_context *context() const { return id_->verbs; }
    ibv_qp_ex *qpx() const { return ibv_qp_to_qp_ex(id_->qp); }
    ibv_pd *pd() const { return pd_; }
    ibv_cq *scq() const { return scq_; }
    ibv_cq *rcq() const { return rcq_; }
    ibv_comp_channel *completions() const { return completions_.get(); }
    rdma_cm_id *id() const { return id_.get(); }
    EventChannel &channel() const { return channel_; }
    const ibv_qp_cap &cap() const { return cap_; }

    /* The posting calls throw if the library refuses. */
    void send(uint64_t wr_id, SgList sg, unsigned flags = IBV_SEND_SIGNALED);
    void write(uint64_t wr_id, SgList sg, uint64_t remote_addr, uint32_t rkey,
               unsigned flags = IBV_SEND_SIGNALED);
    void read(uint64_t wr_id, SgList sg, uint64_t remote_addr, uint32_t rkey,
              unsigned flags = IBV_SEND_SIGNALED);
    void recv(uint64_t wr_id, const SgList &sg);
    void post(const SendWr &wr);

    CmEvent expect(rdma_cm_event_type type, Deadline deadline = Deadline(),
                   std::source_location where = std::source_location::current());
    void disconnect();

    /* Destroys the QP now; the destructor does it otherwise. */
    void destroy_qp();
    /* What the connect or accept of this end was given. */
    rdma_conn_param conn_param() const;

  private:
    EventChannel &channel_;
    QpOptions options_;
    CmId id_;
    Pd own_pd_;
    ibv_pd *pd_;
    CompChannel completions_;
    Cq own_scq_;
    Cq own_rcq_;
    ibv_cq *scq_;
    ibv_cq *rcq_;
    ibv_qp_cap cap_{};
};

/* What the ids of a device have as their verbs, for objects that several share. */
ibv_context *cm_context(const std::string &device);

/* Where a connection goes: who listens on what, who connects to what. */
struct Route {
    std::string listen_ns;
    std::string listen_addr;
    std::string connect_ns;
    std::string connect_addr;
    std::string source_addr; // "" = the kernel chooses
};

Route veth4(); // initial namespace to peer; the default
Route veth6();
Route back4(); // peer to initial namespace
Route own4();  // own address of a netdev
Route own6();
Route loop4(); // 127.0.0.1
Route loop6(); // ::1

class Listener {
  public:
    /* port 0: any free one */
    Listener(EventChannel &channel, const std::string &ns, const std::string &addr,
             int backlog = 16, uint16_t port = 0);
    ~Listener();
    rdma_cm_id *id() const { return id_.get(); }
    uint16_t port() const;
    EventChannel &channel() const { return channel_; }
    void close();

  private:
    EventChannel &channel_;
    CmId id_;
};

/*
 * Time for rdma_resolve_addr(3).  The RDMA core may miss the moment when ARP
 * answers and looks again only when this is up.
 */
int resolve_ms();

/*
 * The steps of a connection, for tests that care about one of them.
 * resolve: an id whose address and route are resolved, ready for a QP.
 */
CmId resolve(EventChannel &channel, const std::string &ns, const std::string &addr, uint16_t port,
             const std::string &source = "", uint16_t source_port = 0);
void start_connect(Endpoint &endpoint);
void accept(Endpoint &endpoint);

struct PairOptions {
    QpOptions client;
    QpOptions server;
    Route route = veth4();
};

/* Two connected ends. */
class Pair {
  public:
    explicit Pair(const PairOptions &options = {});
    Pair(const QpOptions &both, const Route &route);

    EventChannel client_channel;
    EventChannel server_channel;
    CmEvent request; // the CONNECT_REQUEST that the server saw
    CmEvent reply;   // the ESTABLISHED that the client saw

  private:
    std::unique_ptr<Endpoint> server_;
    std::unique_ptr<Endpoint> client_;

  public:
    /* The ends; valid until reset. */
    Endpoint &c() const { return *client_; }
    Endpoint &s() const { return *server_; }
    void drop_client() { client_.reset(); }
    void drop_server() { server_.reset(); }
};

/* Sends a message each way over the pair and verifies it. */
void expect_works(Pair &pair, uint64_t seed = 1);

/* A new connection over the route carries data. */
void expect_route_works(const Route &route = veth4());

} // namespace softwarp::e2e
