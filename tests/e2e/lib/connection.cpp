// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace softwarp::e2e {

void CmIdDestroyer::operator()(rdma_cm_id *id) const {
    if (rdma_destroy_id(id) != 0)
        report_destroy(errno, "rdma_destroy_id");
}

EventChannel::EventChannel() : channel_(rdma_create_event_channel()) {
    require(channel_ != nullptr, "rdma_create_event_channel");
    int flags = fcntl(channel_->fd, F_GETFL);
    require(fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl");
}

EventChannel::~EventChannel() {
    /*
     * Requests nobody took own an id of their own.  Other events need no
     * care: their ids are gone before the channel.
     */
    for (const CmEvent &event : kept_)
        if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            rdma_destroy_id(event.id);
    rdma_destroy_event_channel(channel_);
}

std::optional<CmEvent> EventChannel::read_one(int timeout_ms) {
    pollfd waiting{channel_->fd, POLLIN, 0};
    int ready = poll(&waiting, 1, timeout_ms);
    if (ready <= 0)
        return std::nullopt;
    rdma_cm_event *event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) {
        /* The library eats some events; EAGAIN or ENODATA then. */
        return std::nullopt;
    }
    CmEvent copy{};
    copy.type = event->event;
    copy.status = event->status;
    copy.id = event->id;
    copy.listen_id = event->listen_id;
    copy.responder_resources = event->param.conn.responder_resources;
    copy.initiator_depth = event->param.conn.initiator_depth;
    const auto *data = static_cast<const uint8_t *>(event->param.conn.private_data);
    if (data != nullptr)
        copy.private_data.assign(data, data + event->param.conn.private_data_len);
    rdma_ack_cm_event(event);
    return copy;
}

std::optional<CmEvent> EventChannel::try_next(const rdma_cm_id *id, Deadline deadline) {
    auto belongs = [&](const CmEvent &event) {
        const rdma_cm_id *owner =
            event.type == RDMA_CM_EVENT_CONNECT_REQUEST ? event.listen_id : event.id;
        return id == nullptr || owner == id;
    };
    auto found = std::find_if(kept_.begin(), kept_.end(), belongs);
    if (found != kept_.end()) {
        CmEvent event = *found;
        kept_.erase(found);
        return event;
    }
    for (;;) {
        int left = deadline.left_ms();
        std::optional<CmEvent> event = read_one(left);
        if (event && belongs(*event))
            return event;
        if (event)
            kept_.push_back(*event);
        else if (left == 0)
            return std::nullopt;
    }
}

CmEvent EventChannel::expect(const rdma_cm_id *id, rdma_cm_event_type type, Deadline deadline,
                             std::source_location where) {
    std::optional<CmEvent> event = try_next(id, deadline);
    if (!event)
        fail(fmt::format("no {} in time", rdma_event_str(type)), where);
    if (event->type != type)
        fail(fmt::format("{} instead of {}", cm_event_text(*event), rdma_event_str(type)), where);
    return *event;
}

void EventChannel::forget(const rdma_cm_id *id) {
    std::erase_if(kept_, [&](const CmEvent &event) { return event.id == id; });
}

std::string cm_event_text(const CmEvent &event) {
    return fmt::format("{} with status {}", rdma_event_str(event.type), event.status);
}

CmId create_id(EventChannel &channel, const std::string &ns) {
    CmId id;
    in_namespace(ns, [&] {
        rdma_cm_id *raw = nullptr;
        require(rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
        id.reset(raw);
    });
    return id;
}

Address address(const std::string &text, uint16_t port) {
    Address result{};
    if (inet_pton(AF_INET, text.c_str(), &result.v4.sin_addr) == 1) {
        result.v4.sin_family = AF_INET;
        result.v4.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, text.c_str(), &result.v6.sin6_addr) == 1) {
        result.v6.sin6_family = AF_INET6;
        result.v6.sin6_port = htons(port);
    } else {
        fail("no IP address: " + text);
    }
    return result;
}

Endpoint::Endpoint(EventChannel &channel, CmId id, const QpOptions &options)
    : channel_(channel), options_(options), id_(std::move(id)), pd_(options.pd),
      scq_(options.send_cq), rcq_(options.recv_cq) {
    require(id_->verbs != nullptr, "id is bound to a device");
    if (pd_ == nullptr) {
        own_pd_ = alloc_pd(id_->verbs);
        pd_ = own_pd_.get();
    }
    if (options.events)
        completions_ = create_channel(id_->verbs);
    if (scq_ == nullptr) {
        int entries =
            options.send_cqe != 0 ? options.send_cqe : static_cast<int>(options.send_wr) + 1;
        own_scq_ = create_cq(id_->verbs, entries, completions_.get(), options.vector);
        scq_ = own_scq_.get();
    }
    if (rcq_ == nullptr) {
        int entries =
            options.recv_cqe != 0 ? options.recv_cqe : static_cast<int>(options.recv_wr) + 1;
        own_rcq_ = create_cq(id_->verbs, entries, completions_.get(), options.vector);
        rcq_ = own_rcq_.get();
    }
    ibv_qp_init_attr_ex attr{};
    attr.qp_context = this;
    attr.send_cq = scq_;
    attr.recv_cq = rcq_;
    attr.srq = options.srq;
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = options.sq_sig_all ? 1 : 0;
    attr.cap = {options.send_wr, options.recv_wr, options.send_sge, options.recv_sge,
                options.inline_data};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    if (options.operations != 0) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = options.operations;
    }
    require(rdma_create_qp_ex(id_.get(), &attr) == 0, "rdma_create_qp_ex");
    cap_ = attr.cap;
}

Endpoint::~Endpoint() {
    if (id_) {
        destroy_qp();
        channel_.forget(id_.get());
    }
}

void Endpoint::destroy_qp() {
    if (id_->qp == nullptr)
        return;
    forget_async(id_->qp);
    /* Not rdma_destroy_qp, which hides what ibv_destroy_qp returns. */
    int error = ibv_destroy_qp(id_->qp);
    report_destroy(error, "ibv_destroy_qp");
    id_->qp = nullptr;
}

void Endpoint::post(const SendWr &wr) {
    int error = post_send(qp(), wr);
    if (error != 0)
        fail("ibv_post_send returned " + errno_name(error));
}

void Endpoint::send(uint64_t wr_id, SgList sg, unsigned flags) {
    post(SendWr::send(wr_id, std::move(sg), flags));
}

void Endpoint::write(uint64_t wr_id, SgList sg, uint64_t remote_addr, uint32_t rkey,
                     unsigned flags) {
    post(SendWr::write(wr_id, std::move(sg), remote_addr, rkey, flags));
}

void Endpoint::read(uint64_t wr_id, SgList sg, uint64_t remote_addr, uint32_t rkey,
                    unsigned flags) {
    post(SendWr::read(wr_id, std::move(sg), remote_addr, rkey, flags));
}

void Endpoint::recv(uint64_t wr_id, const SgList &sg) {
    int error = post_recv(qp(), wr_id, sg);
    if (error != 0)
        fail("ibv_post_recv returned " + errno_name(error));
}

CmEvent Endpoint::expect(rdma_cm_event_type type, Deadline deadline, std::source_location where) {
    return channel_.expect(id_.get(), type, deadline, where);
}

void Endpoint::disconnect() {
    require(rdma_disconnect(id_.get()) == 0, "rdma_disconnect");
}

rdma_conn_param Endpoint::conn_param() const {
    rdma_conn_param param{};
    param.responder_resources = options_.ird;
    param.initiator_depth = options_.ord;
    /* iWARP has neither; RoCE would take the first packet that comes late for a lost peer. */
    param.retry_count = param.rnr_retry_count = 7;
    param.private_data = options_.private_data.data();
    param.private_data_len = static_cast<uint8_t>(options_.private_data.size());
    return param;
}

ibv_context *cm_context(const std::string &device) {
    int count = 0;
    ibv_context **list = rdma_get_devices(&count);
    require(list != nullptr, "rdma_get_devices");
    ibv_context *found = nullptr;
    for (int i = 0; i < count; i++)
        if (device == ibv_get_device_name(list[i]->device))
            found = list[i];
    rdma_free_devices(list);
    require(found != nullptr, "device " + device);
    return found;
}

Route veth4() {
    return {config().peer_ns, config().peer_addr4, "", config().peer_addr4, ""};
}

Route veth6() {
    return {config().peer_ns, config().peer_addr6, "", config().peer_addr6, ""};
}

Route back4() {
    return {"", config().addr4, config().peer_ns, config().addr4, ""};
}

Route own4() {
    return {"", config().addr4, "", config().addr4, ""};
}

Route own6() {
    return {"", config().addr6, "", config().addr6, ""};
}

Route loop4() {
    return {"", "127.0.0.1", "", "127.0.0.1", ""};
}

Route loop6() {
    return {"", "::1", "", "::1", ""};
}

Listener::Listener(EventChannel &channel, const std::string &ns, const std::string &addr,
                   int backlog, uint16_t port)
    : channel_(channel) {
    /* rdma_cm does not know which ports TCP uses: one that it has chosen may be taken */
    for (int left = port == 0 ? 10 : 1; left > 0; left--) {
        id_ = create_id(channel, ns);
        Address where = address(addr, port);
        require(rdma_bind_addr(id_.get(), &where.generic) == 0, "rdma_bind_addr " + addr);
        if (rdma_listen(id_.get(), backlog) == 0)
            return;
        if (errno != EADDRINUSE)
            break;
    }
    require(false, "rdma_listen " + addr);
}

Listener::~Listener() {
    close();
}

void Listener::close() {
    if (!id_)
        return;
    rdma_cm_id *raw = id_.get();
    id_.reset();
    channel_.forget(raw);
}

uint16_t Listener::port() const {
    return ntohs(rdma_get_src_port(id_.get()));
}

int resolve_ms() {
    return static_cast<int>(1000 * config().scale);
}

CmId resolve(EventChannel &channel, const std::string &ns, const std::string &addr, uint16_t port,
             const std::string &source, uint16_t source_port) {
    CmId id = create_id(channel, ns);
    Address to = address(addr, port);
    Address from{};
    if (!source.empty())
        from = address(source, source_port);
    Deadline deadline;
    require(rdma_resolve_addr(id.get(), source.empty() ? nullptr : &from.generic, &to.generic,
                              resolve_ms()) == 0,
            "rdma_resolve_addr " + addr);
    channel.expect(id.get(), RDMA_CM_EVENT_ADDR_RESOLVED, deadline);
    require(rdma_resolve_route(id.get(), resolve_ms()) == 0, "rdma_resolve_route " + addr);
    channel.expect(id.get(), RDMA_CM_EVENT_ROUTE_RESOLVED, deadline);
    return id;
}

void start_connect(Endpoint &endpoint) {
    rdma_conn_param param = endpoint.conn_param();
    require(rdma_connect(endpoint.id(), &param) == 0, "rdma_connect");
}

void accept(Endpoint &endpoint) {
    rdma_conn_param param = endpoint.conn_param();
    require(rdma_accept(endpoint.id(), &param) == 0, "rdma_accept");
}

Pair::Pair(const PairOptions &options) : request{}, reply{} {
    const Route &route = options.route;
    Listener listener(server_channel, route.listen_ns, route.listen_addr);

    CmId id = resolve(client_channel, route.connect_ns, route.connect_addr, listener.port(),
                      route.source_addr);
    client_ = std::make_unique<Endpoint>(client_channel, std::move(id), options.client);
    start_connect(*client_);

    request = server_channel.expect(listener.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = std::make_unique<Endpoint>(server_channel, CmId(request.id), options.server);
    accept(*server_);

    reply = client_->expect(RDMA_CM_EVENT_ESTABLISHED);
    server_->expect(RDMA_CM_EVENT_ESTABLISHED);
}

Pair::Pair(const QpOptions &both, const Route &route)
    : Pair(PairOptions{.client = both, .server = both, .route = route}) {}

void expect_works(Pair &pair, uint64_t seed) {
    constexpr size_t kLength = 5000;
    Region at_client(pair.c().pd(), 2 * kLength);
    Region at_server(pair.s().pd(), 2 * kLength);
    fill(at_client.at(0), kLength, seed);
    fill(at_server.at(0), kLength, seed + 1);

    pair.c().recv(0xc0, {at_client.sge(kLength, kLength)});
    pair.s().recv(0xd0, {at_server.sge(kLength, kLength)});
    pair.c().send(0xc1, {at_client.sge(0, kLength)});
    expect_success(pair.s().rcq(), 0xd0, IBV_WC_RECV, kLength);
    pair.s().send(0xd1, {at_server.sge(0, kLength)});
    expect_success(pair.c().rcq(), 0xc0, IBV_WC_RECV, kLength);
    expect_success(pair.c().scq(), 0xc1, IBV_WC_SEND);
    expect_success(pair.s().scq(), 0xd1, IBV_WC_SEND);
    expect_pattern(at_server.at(kLength), kLength, seed, 0, "to the server");
    expect_pattern(at_client.at(kLength), kLength, seed + 1, 0, "to the client");
}

void expect_route_works(const Route &route) {
    Pair pair(QpOptions{}, route);
    expect_works(pair);
}

} // namespace softwarp::e2e
