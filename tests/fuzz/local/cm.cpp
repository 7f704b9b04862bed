// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Operations on rdma_cm: what events ask for, mostly, and anything at any time.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>

#include <infiniband/verbs.h>

#include "lib/system.hpp"
#include "local/actor.hpp"
#include "local/device.hpp"

namespace softwarp::fuzz::local {

namespace {

/* enum rdma_cm_event_type, without the library's header */
enum : uint32_t {
    kAddrResolved,
    kAddrError,
    kRouteResolved,
    kRouteError,
    kConnectRequest,
    kConnectResponse,
    kConnectError,
    kUnreachable,
    kRejected,
    kEstablished,
    kDisconnected,
    kDeviceRemoval,
};

constexpr uint32_t kMagic = 0x66757a7a;

/* What ours tell each other of their memory. */
struct Greeting {
    uint32_t magic;
    uint32_t rkey;
    uint64_t addr;
    uint32_t length;
};

__kernel_sockaddr_storage storage(uint32_t addr, uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = addr;
    __kernel_sockaddr_storage out{};
    std::memcpy(&out, &in, sizeof(in));
    return out;
}

/* An address of a device on this side. */
uint32_t own_address(const Actor &actor, Random &random) {
    const e2e::Config &config = e2e::config();
    std::string text;
    if (actor.style().far_side)
        text = random.pick({config.peer_addr4.c_str(), config.peer_addr4.c_str(), "10.78.0.2"});
    else
        text = random.pick({config.addr4.c_str(), config.addr4.c_str(), "127.0.0.1", "10.78.0.1"});
    if (random.chance(5))
        text = random.pick({"0.0.0.0", "10.77.0.99", "255.255.255.255", "224.0.0.1"});
    return inet_addr(text.c_str());
}

std::optional<Object> make_channel(Actor &actor) {
    count_call();
    int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return std::nullopt;
    Object channel;
    channel.fd = fd;
    actor.add(kCmChannel, channel);
    return channel;
}

std::optional<Object> channel(Actor &actor, Random &random) {
    auto found = actor.any(kCmChannel, random);
    return found ? found : make_channel(actor);
}

std::optional<Object> make_id(Actor &actor, Random &random) {
    if (actor.full(kCmId)) {
        if (auto old = actor.take(kCmId, random))
            destroy(actor, kCmId, *old);
    }
    auto in = channel(actor, random);
    if (!in)
        return std::nullopt;
    rdma_ucm_create_id request{};
    request.uid = random.next();
    request.ps = static_cast<uint16_t>(random.chance(98) ? uint64_t{RDMA_PS_TCP} : random.next());
    request.qp_type =
        static_cast<uint8_t>(random.chance(98) ? uint64_t{IBV_QPT_RC} : random.next());
    std::lock_guard hold(actor.answering());
    Answer answer = cm(in->fd, RDMA_USER_CM_CMD_CREATE_ID, request, 4);
    if (!answer.ok())
        return std::nullopt;
    Object id;
    id.fd = in->fd;
    id.handle = answer.at<uint32_t>();
    actor.add(kCmId, id);
    return id;
}

rdma_ucm_query_addr_resp query(const Object &id, bool &known) {
    rdma_ucm_query request{};
    request.id = id.handle;
    request.option = RDMA_USER_CM_QUERY_ADDR;
    Answer answer = cm(id.fd, RDMA_USER_CM_CMD_QUERY, request, sizeof(rdma_ucm_query_addr_resp));
    known = answer.ok();
    return answer.at<rdma_ucm_query_addr_resp>();
}

rdma_ucm_conn_param some_param(Actor &actor, Random &random, const std::optional<Object> &qp) {
    rdma_ucm_conn_param param{};
    param.qp_num = some_number(random, qp ? qp->number : 0);
    param.responder_resources = static_cast<uint8_t>(random.chance(90) ? 16 : random.next());
    param.initiator_depth = static_cast<uint8_t>(random.chance(90) ? 16 : random.next());
    param.valid = 1;
    for (unsigned i = 0; i < 8; i++)
        param.private_data[random.below(sizeof(param.private_data))] =
            static_cast<uint8_t>(random.next());
    param.private_data_len =
        static_cast<uint8_t>(random.chance(90) ? sizeof(Greeting) : random.below(256));
    auto mr = qp ? actor.any_below(kMr, qp->fd, qp->parent, random) : std::nullopt;
    if (mr) {
        Greeting greeting{kMagic, mr->number, mr->addr, mr->length};
        std::memcpy(param.private_data, &greeting, sizeof(greeting));
    }
    return param;
}

Far far_of(const rdma_ucm_conn_param &param) {
    Greeting greeting;
    std::memcpy(&greeting, param.private_data, sizeof(greeting));
    if (param.private_data_len < sizeof(greeting) || greeting.magic != kMagic)
        return {};
    return {greeting.addr, greeting.length, greeting.rkey};
}

/* The QP is in use, and knows whose memory it writes to. */
void note_connection(Actor &actor, const Object &id, const std::optional<Object> &qp,
                     const Far &far) {
    if (!qp)
        return;
    actor.change(kQp, qp->fd, qp->handle, [&](Object &object) {
        object.busy = true;
        if (far.length != 0)
            object.far = far;
    });
    actor.change(kCmId, id.fd, id.handle, [&](Object &object) { object.parent = qp->number; });
}

bool init_attr(const Object &id, unsigned state) {
    rdma_ucm_init_qp_attr request{};
    request.id = id.handle;
    request.qp_state = state;
    return cm(id.fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, request, sizeof(ib_uverbs_qp_attr)).ok();
}

bool connect_id(Actor &actor, Random &random, const Object &id) {
    bool known = false;
    uint64_t guid = query(id, known).node_guid;
    auto qp = known ? ready_qp(actor, random, guid) : actor.any(kQp, random);
    if (random.chance(50))
        init_attr(id, IBV_QPS_INIT);
    if (qp && random.chance(50))
        modify_qp_state(*qp, IBV_QPS_INIT, 0, random);
    rdma_ucm_connect request{};
    request.conn_param = some_param(actor, random, qp);
    request.id = id.handle;
    bool done = cm(id.fd, RDMA_USER_CM_CMD_CONNECT, request).ok();
    if (done)
        note_connection(actor, id, qp, {});
    return done;
}

/*
 * The kernel's iw_cm (6.12, 7.3) does not stand an accept or a reject of an id
 * that connects, nor a second one of an id that was requested: either clears
 * IWCM_F_CONNECT_WAIT or moves the id to IDLE while a driver still works on it,
 * and the next event or destroy meets a BUG().  No driver is asked before that,
 * so this is left out: requests are answered once, and numbers of ids are not
 * given out again meanwhile.
 */
bool claim_answer(Actor &actor, const Object &id) {
    bool mine = false;
    actor.change(kCmId, id.fd, id.handle, [&](Object &object) {
        mine = object.requested && !object.busy;
        object.busy = true;
    });
    return mine;
}

bool accept_id(Actor &actor, Random &random, const Object &id, const Far &far) {
    bool known = false;
    uint64_t guid = query(id, known).node_guid;
    auto qp = known ? ready_qp(actor, random, guid) : actor.any(kQp, random);
    std::lock_guard hold(actor.answering());
    if (!claim_answer(actor, id))
        return false;
    rdma_ucm_accept request{};
    request.uid = random.next();
    request.conn_param = some_param(actor, random, qp);
    request.id = id.handle;
    bool done = cm(id.fd, RDMA_USER_CM_CMD_ACCEPT, request).ok();
    if (done)
        note_connection(actor, id, qp, far);
    return done;
}

bool reject_id(Actor &actor, const Object &id, Random &random) {
    std::lock_guard hold(actor.answering());
    if (!claim_answer(actor, id))
        return false;
    rdma_ucm_reject request{};
    request.id = id.handle;
    request.private_data_len = static_cast<uint8_t>(random.next());
    request.reason = static_cast<uint8_t>(random.below(32));
    return cm(id.fd, RDMA_USER_CM_CMD_REJECT, request).ok();
}

bool disconnect_id(const Object &id) {
    rdma_ucm_disconnect request{};
    request.id = id.handle;
    return cm(id.fd, RDMA_USER_CM_CMD_DISCONNECT, request).ok();
}

bool drop_id(Actor &actor, const Object &id) {
    actor.remove(kCmId, id.fd, id.handle);
    return destroy(actor, kCmId, id);
}

bool resolve_route(const Object &id) {
    rdma_ucm_resolve_route request{};
    request.id = id.handle;
    request.timeout_ms = 1000;
    return cm(id.fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, request).ok();
}

bool take_request(Actor &actor, Random &random, const Object &id, const Far &far) {
    switch (random.below(20)) {
    case 0: return reject_id(actor, id, random);
    case 1: return drop_id(actor, id);
    case 2: return true; /* the peer may wait */
    default: return accept_id(actor, random, id, far);
    }
}

/* What a program does that has got this event. */
bool react(Actor &actor, Random &random, const Object &in, const rdma_ucm_event_resp &event) {
    Object id;
    id.fd = in.fd;
    id.handle = event.id;
    rdma_ucm_conn_param param;
    std::memcpy(&param, &event.param, sizeof(param));
    switch (event.event) {
    case kAddrResolved: return resolve_route(id);
    case kRouteResolved: return connect_id(actor, random, id);
    case kConnectRequest: {
        if (actor.full(kCmId)) {
            if (auto old = actor.take(kCmId, random))
                destroy(actor, kCmId, *old);
        }
        id.requested = true;
        actor.add(kCmId, id);
        return take_request(actor, random, id, far_of(param));
    }
    case kEstablished: {
        auto mine = actor.find(kCmId, id.fd, id.handle);
        Far far = far_of(param);
        if (mine && far.length != 0)
            actor.change_qp(mine->parent, [&](Object &object) { object.far = far; });
        return true;
    }
    default: {
        auto mine = actor.find(kCmId, id.fd, id.handle);
        if (mine && random.chance(70)) {
            std::optional<Object> qp;
            actor.change_qp(mine->parent, [&](Object &object) { qp = object; });
            if (qp) {
                actor.remove(kQp, qp->fd, qp->handle);
                destroy(actor, kQp, *qp);
            }
        }
        return random.chance(80) && drop_id(actor, id);
    }
    }
}

bool cm_event(Actor &actor, Random &random) {
    auto in = actor.any(kCmChannel, random);
    if (!in)
        return false;
    if (random.chance(10)) {
        pollfd waiting{in->fd, POLLIN, 0};
        poll(&waiting, 1, 1);
    }
    Answer answer =
        cm(in->fd, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, sizeof(rdma_ucm_event_resp));
    if (!answer.ok())
        return false;
    if (random.chance(5))
        return true; /* lost */
    return react(actor, random, *in, answer.at<rdma_ucm_event_resp>());
}

/* Any call on any id, whatever state it is in ------------------------------------- */

bool open_channel(Actor &actor, Random &random) {
    if (actor.full(kCmChannel)) {
        auto old = actor.take(kCmChannel, random);
        return old && destroy(actor, kCmChannel, *old);
    }
    return make_channel(actor).has_value();
}

bool create_id(Actor &actor, Random &random) {
    return make_id(actor, random).has_value();
}

bool destroy_id(Actor &actor, Random &random) {
    auto id = actor.take(kCmId, random);
    return id && destroy(actor, kCmId, *id);
}

bool bind_id(Actor &actor, Random &random, const Object &id) {
    rdma_ucm_bind request{};
    request.id = id.handle;
    request.addr_size = sizeof(sockaddr_in);
    request.addr = storage(own_address(actor, random), 0);
    return cm(id.fd, RDMA_USER_CM_CMD_BIND, request).ok();
}

bool listen_id(Actor &actor, Random &random, const Object &id) {
    /* see migrate_any() */
    std::lock_guard hold(actor.answering());
    actor.change(kCmId, id.fd, id.handle, [](Object &object) { object.listens = true; });
    rdma_ucm_listen request{};
    request.id = id.handle;
    request.backlog = static_cast<uint32_t>(random.pick({1U, 8U, 64U, 0U, 4096U}));
    if (!cm(id.fd, RDMA_USER_CM_CMD_LISTEN, request).ok())
        return false;
    bool known = false;
    rdma_ucm_query_addr_resp resp = query(id, known);
    sockaddr_in in;
    std::memcpy(&in, &resp.src_addr, sizeof(in));
    if (known && in.sin_family == AF_INET) {
        Listener &listener = any_of(board->listeners, random);
        listener.addr = in.sin_addr.s_addr;
        listener.port = ntohs(in.sin_port);
    }
    actor.change(kCmId, id.fd, id.handle, [](Object &object) { object.busy = true; });
    return true;
}

bool listen_new(Actor &actor, Random &random) {
    auto id = make_id(actor, random);
    return id && bind_id(actor, random, *id) && listen_id(actor, random, *id);
}

bool resolve_addr(Actor &actor, Random &random, const Object &id) {
    Listener &listener =
        random.chance(80) ? any_of(board->listeners, random) : any_of(board->strangers, random);
    uint32_t addr = listener.addr;
    if (addr == 0 || random.chance(3))
        addr = own_address(actor, random);
    rdma_ucm_resolve_addr request{};
    request.id = id.handle;
    request.timeout_ms = static_cast<uint32_t>(random.pick({1000U, 1000U, 1U, 100U}));
    request.dst_size = sizeof(sockaddr_in);
    request.dst_addr = storage(addr, static_cast<uint16_t>(listener.port));
    return cm(id.fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, request).ok();
}

bool dial(Actor &actor, Random &random) {
    auto id = make_id(actor, random);
    return id && resolve_addr(actor, random, *id);
}

template<bool (*call)(Actor &, Random &, const Object &)>
bool on_any(Actor &actor, Random &random) {
    auto id = actor.any(kCmId, random);
    if (id)
        id->handle = some_number(random, id->handle);
    return id && call(actor, random, *id);
}

bool route_id(Actor &, Random &, const Object &id) {
    return resolve_route(id);
}

bool accept_any(Actor &actor, Random &random, const Object &id) {
    return accept_id(actor, random, id, {});
}

bool reject_any(Actor &actor, Random &random, const Object &id) {
    return reject_id(actor, id, random);
}

bool disconnect_any(Actor &, Random &, const Object &id) {
    return disconnect_id(id);
}

bool init_attr_any(Actor &, Random &random, const Object &id) {
    return init_attr(id, static_cast<unsigned>(random.below(8)));
}

bool query_any(Actor &, Random &random, const Object &id) {
    rdma_ucm_query request{};
    request.id = id.handle;
    request.option = static_cast<uint32_t>(random.below(4));
    return cm(id.fd, RDMA_USER_CM_CMD_QUERY, request, sizeof(rdma_ucm_query_addr_resp)).ok();
}

bool notify_any(Actor &, Random &random, const Object &id) {
    rdma_ucm_notify request{};
    request.id = id.handle;
    request.event = static_cast<uint32_t>(random.below(24));
    return cm(id.fd, RDMA_USER_CM_CMD_NOTIFY, request).ok();
}

bool set_option(Actor &, Random &random, const Object &id) {
    uint64_t value = random.below(256);
    rdma_ucm_set_option request{};
    request.optval = reinterpret_cast<uintptr_t>(&value);
    request.id = id.handle;
    request.level = static_cast<uint32_t>(random.below(10) == 0);
    request.optname = static_cast<uint32_t>(random.below(5));
    request.optlen = static_cast<uint32_t>(random.pick({1U, 4U, 4U, 8U, 0U, 64U}));
    return cm(id.fd, RDMA_USER_CM_CMD_SET_OPTION, request).ok();
}

/*
 * An id that listens stays where it is: rdma_ucm (6.12, 7.3) leaves the ids of its
 * requests in the old channel, frees them with that, and looks at them again with
 * the requests, which have moved.
 */
bool migrate_any(Actor &actor, Random &random, const Object &id) {
    std::lock_guard hold(actor.answering());
    bool stays = true;
    actor.change(kCmId, id.fd, id.handle, [&](Object &object) { stays = object.listens; });
    auto to = actor.any(kCmChannel, random);
    if (stays || !to)
        return false;
    rdma_ucm_migrate_id request{};
    request.id = id.handle;
    request.fd = static_cast<uint32_t>(id.fd);
    bool done = cm(to->fd, RDMA_USER_CM_CMD_MIGRATE_ID, request, 4).ok();
    if (done)
        actor.change(kCmId, id.fd, id.handle, [&](Object &object) { object.fd = to->fd; });
    return done;
}

bool any_cm_command(Actor &actor, Random &random) {
    auto in = channel(actor, random);
    if (!in)
        return false;
    Answer answer;
    std::array<uint64_t, 40> words{};
    for (uint64_t &word : words)
        word = random.chance(80) ? random.below(16) : random.next();
    words[random.below(2)] = reinterpret_cast<uintptr_t>(answer.bytes.data());
    auto number = static_cast<uint32_t>(random.below(26));
    /* see claim_answer() and migrate_any() */
    if (number == RDMA_USER_CM_CMD_ACCEPT || number == RDMA_USER_CM_CMD_REJECT ||
        number == RDMA_USER_CM_CMD_LISTEN || number == RDMA_USER_CM_CMD_MIGRATE_ID)
        return false;
    size_t used = random.below(sizeof(words) + 1);
    return write_cm(in->fd, number, {reinterpret_cast<uint8_t *>(words.data()), used},
                    random.below(512)) == 0;
}

} // namespace

std::vector<Operation> cm_operations() {
    return {
        {"open_channel", 3, open_channel},
        {"cm_event", 160, cm_event},
        {"create_id", 2, create_id},
        {"destroy_id", 6, destroy_id},
        {"listen_new", 8, listen_new},
        {"dial", 16, dial},
        {"bind", 3, on_any<bind_id>},
        {"listen", 3, on_any<listen_id>},
        {"resolve_addr", 3, on_any<resolve_addr>},
        {"resolve_route", 3, on_any<route_id>},
        {"connect", 4, on_any<connect_id>},
        {"accept", 4, on_any<accept_any>},
        {"reject", 3, on_any<reject_any>},
        {"disconnect", 5, on_any<disconnect_any>},
        {"init_attr", 4, on_any<init_attr_any>},
        {"query_id", 6, on_any<query_any>},
        {"notify", 3, on_any<notify_any>},
        {"set_option", 4, on_any<set_option>},
        {"migrate", 2, on_any<migrate_any>},
        {"any_cm_command", 6, any_cm_command},
    };
}

} // namespace softwarp::fuzz::local
