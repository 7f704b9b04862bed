// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Operations on verbs objects: made, changed, asked for, destroyed.
 */
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>

#include <infiniband/verbs.h>

#include "local/actor.hpp"
#include "local/device.hpp"

namespace softwarp::fuzz::local {

namespace {

/* Sizes: mostly small, sometimes at an edge; large rings cost everybody memory. */
uint32_t some_size(Random &random) {
    switch (random.below(40)) {
    case 0: return 0;
    case 1: return static_cast<uint32_t>(random.next());
    case 2: return 1U << random.below(32);
    case 3: return static_cast<uint32_t>(random.range(256, 4096));
    default: return static_cast<uint32_t>(random.range(1, 128));
    }
}

uint64_t guid_of(const std::string &device) {
    std::ifstream file("/sys/class/infiniband/" + device + "/node_guid");
    std::string text;
    file >> text;
    uint64_t guid = 0;
    /* "0253:00ff:fe00:0001", most significant first; commands show it in network order */
    for (char digit : text)
        if (digit != ':')
            guid = guid << 4 | static_cast<uint64_t>(std::stoi(std::string(1, digit), nullptr, 16));
    return __builtin_bswap64(guid);
}

void publish_qpn(uint32_t qpn, Random &random) {
    any_of(board->qpns, random).store(qpn, std::memory_order_relaxed);
}

} // namespace

/* A number that is right, mostly; else one of somebody else, or nobody's. */
uint32_t some_number(Random &random, uint32_t right) {
    switch (random.below(50)) {
    case 0: return static_cast<uint32_t>(random.next());
    case 1: return right + 1;
    case 2: return any_of(board->qpns, random).load(std::memory_order_relaxed);
    case 3: return static_cast<uint32_t>(random.below(16));
    default: return right;
    }
}

/* Contexts ------------------------------------------------------------------- */

std::optional<Object> make_context(Actor &actor, Random &random, uint64_t guid) {
    std::vector<Node> all = nodes();
    std::erase_if(all, [&](const Node &node) { return guid != 0 && guid_of(node.name) != guid; });
    if (all.empty() || actor.full(kContext))
        return std::nullopt;
    const Node &node = all[random.below(all.size())];
    count_call();
    int fd = open(node.path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return std::nullopt;
    swp_uctx_req request{};
    request.abi_version =
        random.chance(98) ? SWP_ABI_VERSION : static_cast<uint32_t>(random.next());
    Answer answer = verb(fd, IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, 8,
                         sizeof(swp_uctx_resp), octets_of(request));
    if (!answer.ok()) {
        close(fd);
        return std::nullopt;
    }
    Object context;
    context.fd = fd;
    context.async = static_cast<int>(answer.at<uint32_t>());
    fcntl(context.async, F_SETFL, O_NONBLOCK);
    answer = verb(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{},
                  sizeof(ib_uverbs_query_device_resp));
    context.guid = answer.at<ib_uverbs_query_device_resp>().node_guid;
    actor.add(kContext, context);
    return context;
}

namespace {

/* The context to work in: there is always one, unless the device has gone. */
std::optional<Object> context(Actor &actor, Random &random) {
    auto found = actor.any(kContext, random);
    return found ? found : make_context(actor, random, 0);
}

bool open_context(Actor &actor, Random &random) {
    return make_context(actor, random, 0).has_value();
}

bool close_context(Actor &actor, Random &random) {
    auto object = actor.take(kContext, random);
    return object && destroy(actor, kContext, *object);
}

bool query_device(Actor &actor, Random &random) {
    auto in = context(actor, random);
    if (!in)
        return false;
    if (random.chance(50))
        return verb(in->fd, IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{},
                    sizeof(ib_uverbs_query_device_resp))
            .ok();
    return verb_ex(in->fd, IB_USER_VERBS_EX_CMD_QUERY_DEVICE, ib_uverbs_ex_query_device{},
                   sizeof(ib_uverbs_ex_query_device_resp))
        .ok();
}

bool query_port(Actor &actor, Random &random) {
    auto in = context(actor, random);
    if (!in)
        return false;
    ib_uverbs_query_port request{};
    request.port_num = static_cast<uint8_t>(random.pick({1U, 1U, 1U, 0U, 2U, 255U}));
    return verb(in->fd, IB_USER_VERBS_CMD_QUERY_PORT, request, sizeof(ib_uverbs_query_port_resp))
        .ok();
}

bool read_async(Actor &actor, Random &random) {
    auto in = actor.any(kContext, random);
    ib_uverbs_async_event_desc event;
    count_call();
    return in && read(in->async, &event, sizeof(event)) > 0;
}

/* Protection domains ----------------------------------------------------------- */

std::optional<Object> make_pd(Actor &actor, const Object &in) {
    Answer answer = verb(in.fd, IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, 4);
    if (!answer.ok())
        return std::nullopt;
    Object pd;
    pd.fd = in.fd;
    pd.guid = in.guid;
    pd.handle = answer.at<uint32_t>();
    actor.add(kPd, pd);
    return pd;
}

/* The PD of a context, or a new one. */
std::optional<Object> pd_in(Actor &actor, Random &random, const Object &in) {
    auto found = actor.any_in(kPd, in.fd, random);
    return found ? found : make_pd(actor, in);
}

std::optional<Object> some_pd(Actor &actor, Random &random) {
    auto in = context(actor, random);
    return in ? pd_in(actor, random, *in) : std::nullopt;
}

template<Kind kind>
bool destroy_some(Actor &actor, Random &random) {
    auto object = actor.take(kind, random);
    return object && destroy(actor, kind, *object);
}

bool alloc_pd(Actor &actor, Random &random) {
    if (actor.full(kPd))
        return destroy_some<kPd>(actor, random);
    auto in = context(actor, random);
    return in && make_pd(actor, *in);
}

/* Completion queues ------------------------------------------------------------ */

std::optional<Object> make_cq(Actor &actor, Random &random, const Object &in, uint32_t entries) {
    ib_uverbs_create_cq request{};
    request.user_handle = random.next();
    request.cqe = entries;
    request.comp_vector = random.chance(95) ? 0 : static_cast<uint32_t>(random.next());
    auto channel = actor.any_in(kCompChannel, in.fd, random);
    request.comp_channel = channel && random.chance(70) ? static_cast<int>(channel->handle) : -1;
    Answer answer;
    size_t core = sizeof(ib_uverbs_create_cq_resp);
    if (random.chance(80)) {
        answer =
            verb(in.fd, IB_USER_VERBS_CMD_CREATE_CQ, request, core, sizeof(swp_create_cq_resp));
    } else {
        ib_uverbs_ex_create_cq more{};
        more.user_handle = request.user_handle;
        more.cqe = request.cqe;
        more.comp_vector = request.comp_vector;
        more.comp_channel = request.comp_channel;
        more.flags = random.chance(50) ? 1 : static_cast<uint32_t>(random.below(8));
        core = sizeof(ib_uverbs_ex_create_cq_resp);
        answer =
            verb_ex(in.fd, IB_USER_VERBS_EX_CMD_CREATE_CQ, more, core, sizeof(swp_create_cq_resp));
    }
    if (!answer.ok())
        return std::nullopt;
    Object cq;
    cq.fd = in.fd;
    cq.guid = in.guid;
    cq.handle = answer.at<uint32_t>();
    auto tail = answer.at<swp_create_cq_resp>(core);
    cq.recv = actor.map_ring(in.fd, tail.ring_key, tail.ring_bytes, tail.entries, 64, random);
    actor.add(kCq, cq);
    return cq;
}

std::optional<Object> cq_in(Actor &actor, Random &random, const Object &in) {
    auto found = actor.any_in(kCq, in.fd, random);
    return found ? found : make_cq(actor, random, in, 256);
}

bool create_cq(Actor &actor, Random &random) {
    if (actor.full(kCq))
        return destroy_some<kCq>(actor, random);
    auto in = context(actor, random);
    return in && make_cq(actor, random, *in, some_size(random));
}

bool resize_cq(Actor &actor, Random &random) {
    auto cq = actor.any(kCq, random);
    if (!cq)
        return false;
    ib_uverbs_resize_cq request{};
    request.cq_handle = some_number(random, cq->handle);
    request.cqe = some_size(random);
    Answer answer = verb(cq->fd, IB_USER_VERBS_CMD_RESIZE_CQ, request,
                         sizeof(ib_uverbs_resize_cq_resp), sizeof(swp_resize_cq_resp));
    if (!answer.ok())
        return false;
    auto tail = answer.at<swp_resize_cq_resp>(sizeof(ib_uverbs_resize_cq_resp));
    Ring ring = actor.map_ring(cq->fd, tail.ring_key, tail.ring_bytes, tail.entries, 64, random);
    actor.change(kCq, cq->fd, request.cq_handle, [&](Object &object) {
        object.recv = ring;
        object.cons = 0;
    });
    return true;
}

/* struct ib_uverbs_ex_modify_cq, which not every header has */
struct ModifyCq {
    uint32_t handle;
    uint32_t attr_mask;
    uint16_t count;
    uint16_t period;
    uint32_t reserved;
};

bool modify_cq(Actor &actor, Random &random) {
    auto cq = actor.any(kCq, random);
    if (!cq)
        return false;
    ModifyCq request{};
    request.handle = some_number(random, cq->handle);
    request.attr_mask = random.chance(90) ? 1 : static_cast<uint32_t>(random.next());
    request.count = static_cast<uint16_t>(random.below(8));
    request.period = static_cast<uint16_t>(random.pick({0U, 1U, 50U, 1000U, 65535U}));
    return verb_ex(cq->fd, IB_USER_VERBS_EX_CMD_MODIFY_CQ, request).ok();
}

bool req_notify_cq(Actor &actor, Random &random) {
    auto cq = actor.any(kCq, random);
    if (!cq)
        return false;
    ib_uverbs_req_notify_cq request{};
    request.cq_handle = some_number(random, cq->handle);
    request.solicited_only = random.chance(30);
    return verb(cq->fd, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, request).ok();
}

bool poll_cq_command(Actor &actor, Random &random) {
    auto cq = actor.any(kCq, random);
    if (!cq)
        return false;
    ib_uverbs_poll_cq request{};
    request.cq_handle = cq->handle;
    request.ne = static_cast<uint32_t>(random.below(4));
    return verb(cq->fd, IB_USER_VERBS_CMD_POLL_CQ, request, 8 + 4 * sizeof(ib_uverbs_wc)).ok();
}

bool create_comp_channel(Actor &actor, Random &random) {
    if (actor.full(kCompChannel))
        return destroy_some<kCompChannel>(actor, random);
    auto in = context(actor, random);
    if (!in)
        return false;
    Answer answer =
        verb(in->fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{}, 4);
    if (!answer.ok())
        return false;
    Object channel;
    channel.fd = in->fd;
    channel.guid = in->guid;
    channel.handle = answer.at<uint32_t>();
    fcntl(static_cast<int>(channel.handle), F_SETFL, O_NONBLOCK);
    actor.add(kCompChannel, channel);
    return true;
}

bool read_comp_channel(Actor &actor, Random &random) {
    auto channel = actor.any(kCompChannel, random);
    ib_uverbs_comp_event_desc event;
    count_call();
    return channel && read(static_cast<int>(channel->handle), &event, sizeof(event)) > 0;
}

/* Shared receive queues -------------------------------------------------------- */

bool create_srq(Actor &actor, Random &random) {
    if (actor.full(kSrq))
        return destroy_some<kSrq>(actor, random);
    auto pd = some_pd(actor, random);
    if (!pd)
        return false;
    ib_uverbs_create_srq request{};
    request.pd_handle = some_number(random, pd->handle);
    request.max_wr = some_size(random);
    request.max_sge =
        random.chance(90) ? static_cast<uint32_t>(random.range(1, 4)) : some_size(random);
    request.srq_limit = random.chance(70) ? 0 : some_size(random);
    Answer answer = verb(pd->fd, IB_USER_VERBS_CMD_CREATE_SRQ, request,
                         sizeof(ib_uverbs_create_srq_resp), sizeof(swp_create_srq_resp));
    if (!answer.ok())
        return false;
    Object srq;
    srq.fd = pd->fd;
    srq.guid = pd->guid;
    srq.parent = pd->handle;
    srq.handle = answer.at<uint32_t>();
    auto tail = answer.at<swp_create_srq_resp>(sizeof(ib_uverbs_create_srq_resp));
    srq.recv =
        actor.map_ring(pd->fd, tail.ring_key, tail.ring_bytes, tail.entries, tail.stride, random);
    actor.add(kSrq, srq);
    return true;
}

bool modify_srq(Actor &actor, Random &random) {
    auto srq = actor.any(kSrq, random);
    if (!srq)
        return false;
    swp_modify_srq_resp resp{};
    swp_modify_srq_req tail{};
    tail.resp_addr = reinterpret_cast<uintptr_t>(&resp);
    if (random.chance(10))
        tail.resp_addr = random.pick({uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63});
    ib_uverbs_modify_srq request{};
    request.srq_handle = some_number(random, srq->handle);
    request.attr_mask = static_cast<uint32_t>(random.range(1, 3));
    request.max_wr = some_size(random);
    request.srq_limit = some_size(random);
    Answer answer = verb(srq->fd, IB_USER_VERBS_CMD_MODIFY_SRQ, request, 0, 0, octets_of(tail));
    if (!answer.ok())
        return false;
    if (resp.entries != 0) {
        Ring ring = actor.map_ring(srq->fd, resp.ring_key, resp.ring_bytes, resp.entries,
                                   srq->recv.stride, random);
        actor.change(kSrq, srq->fd, request.srq_handle,
                     [&](Object &object) { object.recv = ring; });
    }
    return true;
}

bool query_srq(Actor &actor, Random &random) {
    auto srq = actor.any(kSrq, random);
    if (!srq)
        return false;
    ib_uverbs_query_srq request{};
    request.srq_handle = some_number(random, srq->handle);
    return verb(srq->fd, IB_USER_VERBS_CMD_QUERY_SRQ, request, sizeof(ib_uverbs_query_srq_resp))
        .ok();
}

/* Memory ------------------------------------------------------------------------ */

uint32_t some_access(Random &random) {
    if (random.chance(5))
        return static_cast<uint32_t>(random.next());
    return random.pick({7U, 15U, 31U, 1U, 0U, 4U, 3U, 0x1fU, 0x3fU});
}

struct Range {
    uint64_t start;
    uint64_t length;
};

Range some_range(const Actor &actor, Random &random, uint8_t *place) {
    Range range{};
    range.start = reinterpret_cast<uintptr_t>(actor.arena()) + random.below(Actor::kArena / 2);
    range.length = random.chance(80) ? random.range(1, 65536) : random.below(Actor::kArena / 2);
    switch (random.below(30)) {
    case 0: range.length = random.next(); break;
    case 1: range.start = random.next(); break;
    case 2: range.length = 0; break;
    case 3: range.length = ~uint64_t{0} - range.start; break;
    case 4:
    case 5: /* pages of a ring, so that a peer may write there */
        range.start = reinterpret_cast<uintptr_t>(place);
        range.length = random.range(1, 3) * 4096;
        break;
    default: break;
    }
    return range;
}

} // namespace

std::optional<Object> make_mr(Actor &actor, Random &random, const Object &pd, bool sane) {
    Range range = some_range(actor, random, actor.place(random));
    if (sane) {
        range.start = reinterpret_cast<uintptr_t>(actor.arena()) + random.below(64) * 4096;
        range.length = 65536;
    }
    ib_uverbs_reg_mr request{};
    request.start = range.start;
    request.length = range.length;
    request.hca_va = random.chance(90) ? request.start : request.start & 4095;
    request.pd_handle = sane ? pd.handle : some_number(random, pd.handle);
    request.access_flags = sane ? 0x1f : some_access(random);
    Answer answer = verb(pd.fd, IB_USER_VERBS_CMD_REG_MR, request, sizeof(ib_uverbs_reg_mr_resp));
    if (!answer.ok())
        return std::nullopt;
    Object mr;
    mr.fd = pd.fd;
    mr.guid = pd.guid;
    mr.parent = pd.handle;
    mr.handle = answer.at<uint32_t>();
    mr.number = answer.at<uint32_t>(4);
    mr.addr = request.hca_va;
    mr.length = static_cast<uint32_t>(std::min<uint64_t>(range.length, 1 << 20));
    actor.add(kMr, mr);
    RegionNotice &notice = any_of(board->regions, random);
    notice.addr = mr.addr;
    notice.length = mr.length;
    notice.rkey = mr.number;
    return mr;
}

namespace {

bool reg_mr(Actor &actor, Random &random) {
    if (actor.full(kMr))
        return destroy_some<kMr>(actor, random);
    auto pd = some_pd(actor, random);
    return pd && make_mr(actor, random, *pd, random.chance(30));
}

bool rereg_mr(Actor &actor, Random &random) {
    auto mr = actor.any(kMr, random);
    auto pd = some_pd(actor, random);
    if (!mr || !pd)
        return false;
    Range range = some_range(actor, random, actor.place(random));
    ib_uverbs_rereg_mr request{};
    request.mr_handle = some_number(random, mr->handle);
    request.flags = static_cast<uint32_t>(random.range(1, 7));
    request.start = range.start;
    request.length = range.length;
    request.hca_va = range.start;
    request.pd_handle = pd->handle;
    request.access_flags = some_access(random);
    Answer answer =
        verb(mr->fd, IB_USER_VERBS_CMD_REREG_MR, request, sizeof(ib_uverbs_rereg_mr_resp));
    if (!answer.ok())
        return false;
    actor.change(kMr, mr->fd, request.mr_handle, [&](Object &object) {
        object.number = answer.at<uint32_t>();
        if ((request.flags & 1) != 0) {
            object.addr = request.hca_va;
            object.length = static_cast<uint32_t>(std::min<uint64_t>(range.length, 1 << 20));
        }
    });
    return true;
}

bool alloc_mw(Actor &actor, Random &random) {
    if (actor.full(kMw))
        return destroy_some<kMw>(actor, random);
    auto pd = some_pd(actor, random);
    if (!pd)
        return false;
    ib_uverbs_alloc_mw request{};
    request.pd_handle = some_number(random, pd->handle);
    request.mw_type = static_cast<uint8_t>(random.pick({1U, 2U, 2U, 2U, 0U, 3U}));
    Answer answer =
        verb(pd->fd, IB_USER_VERBS_CMD_ALLOC_MW, request, sizeof(ib_uverbs_alloc_mw_resp));
    if (!answer.ok())
        return false;
    Object mw;
    mw.fd = pd->fd;
    mw.guid = pd->guid;
    mw.parent = pd->handle;
    mw.handle = answer.at<uint32_t>();
    mw.number = answer.at<uint32_t>(4);
    actor.add(kMw, mw);
    return true;
}

/* What is registered goes away below the registration. */
bool pull_memory(Actor &actor, Random &random) {
    uint8_t *where = actor.arena() + random.below(Actor::kArena / 65536) * 65536;
    if (random.chance(70))
        return madvise(where, 65536, MADV_DONTNEED) == 0;
    return mmap(where, 65536, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/* A mapping that no library asks for, or a ring's place that becomes plain memory. */
bool map_anything(Actor &actor, Random &random) {
    auto in = context(actor, random);
    if (!in)
        return false;
    uint8_t *place = actor.place(random);
    auto bytes = static_cast<uint32_t>(random.range(1, 16) * 4096);
    uint64_t key = random.chance(80) ? random.below(64) * 4096 : random.next() << 12;
    if (random.chance(50))
        return mmap(place, Actor::kPlace, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    count_call();
    return actor.map_ring(in->fd, key, bytes, 16, 64, random).base != nullptr;
}

/* Queue pairs -------------------------------------------------------------------- */

std::optional<Object> make_qp(Actor &actor, Random &random, const Object &in, bool sane) {
    auto pd = pd_in(actor, random, in);
    auto scq = cq_in(actor, random, in);
    auto rcq = cq_in(actor, random, in);
    if (!pd || !scq || !rcq)
        return std::nullopt;
    auto number = [&](uint32_t right) { return sane ? right : some_number(random, right); };
    auto size = [&](uint32_t right) { return sane ? right : some_size(random); };
    ib_uverbs_create_qp request{};
    request.user_handle = random.next();
    request.pd_handle = number(pd->handle);
    request.send_cq_handle = number(scq->handle);
    request.recv_cq_handle = number(rcq->handle);
    auto srq = actor.any_in(kSrq, in.fd, random);
    if (srq && random.chance(40)) {
        request.is_srq = 1;
        request.srq_handle = number(srq->handle);
    }
    request.max_send_wr = size(64);
    request.max_recv_wr = size(64);
    request.max_send_sge = sane || random.chance(90) ? 4 : some_size(random);
    request.max_recv_sge = sane || random.chance(90) ? 2 : some_size(random);
    request.max_inline_data = random.pick({0U, 64U, 200U, 512U});
    request.sq_sig_all = random.chance(50);
    request.qp_type =
        static_cast<uint8_t>(sane || random.chance(97) ? uint64_t{IBV_QPT_RC} : random.below(16));
    size_t core = sizeof(ib_uverbs_create_qp_resp);
    Answer answer =
        verb(in.fd, IB_USER_VERBS_CMD_CREATE_QP, request, core, sizeof(swp_create_qp_resp));
    if (!answer.ok())
        return std::nullopt;
    auto tail = answer.at<swp_create_qp_resp>(core);
    Object qp;
    qp.fd = in.fd;
    qp.guid = in.guid;
    qp.parent = pd->handle;
    qp.handle = answer.at<uint32_t>();
    qp.number = tail.qp_id;
    /* both rings are in one mapping */
    Ring rings = actor.map_ring(in.fd, tail.ring_key, tail.ring_bytes,
                                std::max(tail.sq_entries, tail.rq_entries), tail.sq_stride, random);
    if (rings.base != nullptr && tail.sq_entries != 0)
        qp.send = {rings.base, tail.sq_entries, tail.sq_stride};
    if (rings.base != nullptr && tail.rq_entries != 0)
        qp.recv = {rings.base + tail.rq_offset, tail.rq_entries, tail.rq_stride};
    if (request.is_srq != 0 && srq)
        qp.recv = srq->recv;
    actor.add(kQp, qp);
    publish_qpn(qp.number, random);
    return qp;
}

bool create_qp(Actor &actor, Random &random) {
    if (actor.full(kQp))
        return destroy_some<kQp>(actor, random);
    auto in = context(actor, random);
    return in && make_qp(actor, random, *in, random.chance(30));
}

} // namespace

/* A QP that is good for a connection, with memory beside it. */
std::optional<Object> ready_qp(Actor &actor, Random &random, uint64_t guid) {
    auto found = actor.idle_qp(guid, random);
    if (found)
        return found;
    auto in = actor.any_on(kContext, guid, random);
    if (!in) {
        if (actor.full(kContext))
            destroy_some<kContext>(actor, random);
        in = make_context(actor, random, guid);
    }
    if (!in)
        return std::nullopt;
    if (actor.full(kQp))
        destroy_some<kQp>(actor, random);
    auto pd = pd_in(actor, random, *in);
    if (pd && !actor.any_below(kMr, in->fd, pd->handle, random) && !actor.full(kMr))
        make_mr(actor, random, *pd, true);
    return make_qp(actor, random, *in, true);
}

bool modify_qp_state(const Object &qp, unsigned state, uint32_t more_mask, Random &random) {
    ib_uverbs_modify_qp request{};
    request.qp_handle = some_number(random, qp.handle);
    request.attr_mask = IBV_QP_STATE | more_mask;
    request.qp_state = static_cast<uint8_t>(state);
    request.cur_qp_state = static_cast<uint8_t>(random.below(8));
    request.qp_access_flags = static_cast<uint32_t>(random.below(16));
    request.path_mtu = static_cast<uint8_t>(random.below(8));
    request.port_num = 1;
    if (random.chance(20)) {
        ib_uverbs_ex_modify_qp more{};
        more.base = request;
        return verb_ex(qp.fd, IB_USER_VERBS_EX_CMD_MODIFY_QP, more,
                       sizeof(ib_uverbs_ex_modify_qp_resp))
            .ok();
    }
    return verb(qp.fd, IB_USER_VERBS_CMD_MODIFY_QP, request).ok();
}

namespace {

bool modify_qp(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    if (!qp)
        return false;
    /* not so often to the error state that nothing else is ever seen */
    unsigned state = random.pick({1U, 3U, 3U, 1U, 0U, 4U, 6U});
    if (random.chance(3))
        state = static_cast<unsigned>(random.below(256));
    uint32_t mask = random.chance(70) ? 0U : uint32_t{IBV_QP_ACCESS_FLAGS};
    if (random.chance(10))
        mask = static_cast<uint32_t>(random.next()) & 0x1fffff;
    return modify_qp_state(*qp, state, mask, random);
}

/* One step of a queue pair that is connected without rdma_cm. */
bool step_pair(const Object &qp, uint32_t peer, unsigned state, const ib_uverbs_qp_dest &dest,
               Random &random) {
    static const std::map<unsigned, uint32_t> masks = {
        {0, 0},
        {1, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
        {2, IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC},
        {3, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT},
    };
    ib_uverbs_modify_qp request{};
    request.qp_handle = qp.handle;
    request.attr_mask = IBV_QP_STATE | masks.at(state);
    if (random.chance(3))
        request.attr_mask ^= 1U << random.below(21);
    request.qp_state = static_cast<uint8_t>(state);
    request.port_num = 1;
    request.qp_access_flags = static_cast<uint32_t>(random.below(16));
    request.dest_qp_num = random.chance(95) ? peer : static_cast<uint32_t>(random.next());
    request.rq_psn = request.sq_psn = random.chance(95) ? 7 : static_cast<uint32_t>(random.next());
    request.max_dest_rd_atomic = static_cast<uint8_t>(random.below(256));
    request.timeout = static_cast<uint8_t>(random.below(32));
    request.retry_cnt = static_cast<uint8_t>(random.below(8));
    request.dest = dest;
    return verb(qp.fd, IB_USER_VERBS_CMD_MODIFY_QP, request).ok();
}

/* Where a peer may be: an address of a host, the first GID, or anything */
ib_uverbs_qp_dest some_dest(Random &random) {
    static const std::array<std::array<uint8_t, 4>, 3> hosts = {
        {{10, 77, 0, 1}, {10, 77, 0, 2}, {127, 0, 0, 1}}};
    ib_uverbs_qp_dest dest{};
    dest.is_global = random.chance(97) ? 1 : 0;
    dest.port_num = 1;
    dest.sgid_index = static_cast<uint8_t>(random.chance(80) ? 1 : random.below(256));
    dest.traffic_class = static_cast<uint8_t>(random.chance(90) ? 0 : random.below(256));
    if (random.chance(10)) {
        for (uint8_t &octet : dest.dgid)
            octet = static_cast<uint8_t>(random.next());
        return dest;
    }
    dest.dgid[10] = dest.dgid[11] = 0xff;
    const auto &host = hosts.at(random.below(hosts.size()));
    std::copy(host.begin(), host.end(), dest.dgid + 12);
    return dest;
}

/*
 * Connects two queue pairs, mostly the actor's own, through ibv_modify_qp(), in
 * any order, or begins to; or moves one back to RESET.
 */
bool pair_qps(Actor &actor, Random &random) {
    auto one = actor.any(kQp, random);
    auto two = actor.any(kQp, random);
    if (!one || !two)
        return false;
    const uint32_t other = random.chance(80) ? two->number : any_of(board->qpns, random).load();
    const ib_uverbs_qp_dest dest = some_dest(random);
    bool done = false;
    for (const unsigned state : {0U, 1U, 2U, 3U}) {
        if (random.chance(state == 0 ? 50 : 95))
            done |= step_pair(*one, other, state, dest, random);
        if (random.chance(state == 0 ? 50 : 90))
            done |= step_pair(*two, one->number, state, dest, random);
    }
    return done;
}

bool query_qp(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    if (!qp)
        return false;
    ib_uverbs_query_qp request{};
    request.qp_handle = some_number(random, qp->handle);
    request.attr_mask = 0x1fffff;
    return verb(qp->fd, IB_USER_VERBS_CMD_QUERY_QP, request, sizeof(ib_uverbs_query_qp_resp)).ok();
}

/* Everything that has a number and is not meant for us ----------------------------- */

bool any_command(Actor &actor, Random &random) {
    auto in = context(actor, random);
    if (!in)
        return false;
    struct {
        uint64_t words[16];
    } request;
    Answer answer;
    for (uint64_t &word : request.words) {
        word = random.chance(60) ? random.below(16) : random.next();
        if (random.chance(20))
            word = any_of(board->qpns, random);
    }
    request.words[0] = reinterpret_cast<uintptr_t>(answer.bytes.data());
    auto number = static_cast<uint32_t>(random.below(random.chance(80) ? 72 : 256));
    size_t used = random.below(16) * 8;
    write_command(in->fd, number, random.chance(40), {reinterpret_cast<uint8_t *>(&request), used},
                  {}, random.below(16) * 8, random.below(4) * 8, answer);
    return answer.ok();
}

bool any_ioctl(Actor &actor, Random &random) {
    auto in = context(actor, random);
    if (!in)
        return false;
    std::array<uint64_t, 32> data{};
    for (uint64_t &word : data)
        word = random.chance(60) ? random.below(64) : random.next();
    auto kind = static_cast<Kind>(random.below(kKinds));
    auto object = actor.any_in(kind, in->fd, random);
    std::array<ib_uverbs_attr, 6> attrs{};
    size_t count = random.below(attrs.size() + 1);
    for (size_t i = 0; i < count; i++) {
        ib_uverbs_attr &attr = attrs[i];
        attr.attr_id = static_cast<uint16_t>(random.chance(85) ? i : random.below(16));
        if (random.chance(10))
            attr.attr_id = static_cast<uint16_t>(attr.attr_id | 0x1000);
        attr.len = static_cast<uint16_t>(random.pick({0U, 0U, 4U, 8U, 8U, 16U, 64U}));
        attr.flags = static_cast<uint16_t>(random.below(2)); /* UVERBS_ATTR_F_MANDATORY */
        attr.data = reinterpret_cast<uintptr_t>(data.data());
        if (attr.len == 0)
            attr.data = object ? object->handle : random.below(16);
    }
    ib_uverbs_ioctl_hdr header{};
    header.length = static_cast<uint16_t>(sizeof(header) + count * sizeof(ib_uverbs_attr));
    header.object_id = static_cast<uint16_t>(random.below(18));
    header.method_id = static_cast<uint16_t>(random.below(12));
    /*
     * With any device the kernel (6.12, 7.3) loses a task_struct for each context
     * beyond the first that a file asks for in this way: ib_alloc_ucontext() takes a
     * reference, and UVERBS_METHOD_GET_CONTEXT frees what holds it.
     */
    if (header.object_id == UVERBS_OBJECT_DEVICE && header.method_id == UVERBS_METHOD_GET_CONTEXT)
        return false;
    header.num_attrs = static_cast<uint16_t>(count);
    header.driver_id = SWP_DRIVER_ID;
    if (random.chance(5))
        header.driver_id = static_cast<uint32_t>(random.below(32));
    alignas(8) std::array<uint8_t, sizeof(header) + sizeof(attrs)> request{};
    std::memcpy(request.data(), &header, sizeof(header));
    std::memcpy(request.data() + sizeof(header), attrs.data(), sizeof(attrs));
    count_call();
    return ioctl(in->fd, RDMA_VERBS_IOCTL, request.data()) == 0;
}

bool list(Actor &, Random &random) {
    uint32_t command = random.pick(
        {RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_CMD_RES_CQ_GET,
         RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_CMD_RES_CTX_GET,
         RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_CMD_RES_GET,
         RDMA_NLDEV_CMD_RES_QP_GET_RAW, RDMA_NLDEV_CMD_DELLINK});
    if (command == RDMA_NLDEV_CMD_DELLINK && board->stop)
        return false;
    return list_resources(command, static_cast<uint32_t>(random.below(8)), random.chance(90)) > 0;
}

bool destroy_context(const Object &object) {
    count_call();
    close(object.async);
    return close(object.fd) == 0;
}

} // namespace

bool destroy(Actor &actor, Kind kind, const Object &object) {
    int fd = object.fd;
    switch (kind) {
    case kContext: actor.forget(fd); return destroy_context(object);
    case kPd: {
        ib_uverbs_dealloc_pd request{object.handle};
        bool gone = verb(fd, IB_USER_VERBS_CMD_DEALLOC_PD, request).ok();
        if (!gone && !actor.full(kPd))
            actor.add(kPd, object);
        return gone;
    }
    case kCq: {
        ib_uverbs_destroy_cq request{};
        request.cq_handle = object.handle;
        bool gone = verb(fd, IB_USER_VERBS_CMD_DESTROY_CQ, request, 8).ok();
        if (!gone && !actor.full(kCq))
            actor.add(kCq, object);
        return gone;
    }
    case kSrq: {
        ib_uverbs_destroy_srq request{};
        request.srq_handle = object.handle;
        bool gone = verb(fd, IB_USER_VERBS_CMD_DESTROY_SRQ, request, 4).ok();
        if (!gone && !actor.full(kSrq))
            actor.add(kSrq, object);
        return gone;
    }
    case kQp: {
        ib_uverbs_destroy_qp request{};
        request.qp_handle = object.handle;
        return verb(fd, IB_USER_VERBS_CMD_DESTROY_QP, request, 4).ok();
    }
    case kMr: {
        ib_uverbs_dereg_mr request{object.handle};
        bool gone = verb(fd, IB_USER_VERBS_CMD_DEREG_MR, request).ok();
        if (!gone && !actor.full(kMr))
            actor.add(kMr, object);
        return gone;
    }
    case kMw: {
        ib_uverbs_dealloc_mw request{object.handle};
        return verb(fd, IB_USER_VERBS_CMD_DEALLOC_MW, request).ok();
    }
    case kCompChannel: count_call(); return close(static_cast<int>(object.handle)) == 0;
    case kCmChannel:
        actor.forget(fd);
        count_call();
        return close(fd) == 0;
    case kCmId: {
        rdma_ucm_destroy_id request{};
        request.id = object.handle;
        return cm(fd, RDMA_USER_CM_CMD_DESTROY_ID, request, 4).ok();
    }
    case kKinds: break;
    }
    return false;
}

std::vector<Operation> verb_operations() {
    return {
        {"open_context", 4, open_context},
        {"close_context", 1, close_context},
        {"query_device", 4, query_device},
        {"query_port", 4, query_port},
        {"read_async", 10, read_async},
        {"alloc_pd", 6, alloc_pd},
        {"dealloc_pd", 2, destroy_some<kPd>},
        {"create_cq", 6, create_cq},
        {"destroy_cq", 3, destroy_some<kCq>},
        {"resize_cq", 6, resize_cq},
        {"modify_cq", 10, modify_cq},
        {"req_notify_cq", 10, req_notify_cq},
        {"poll_cq_command", 4, poll_cq_command},
        {"create_comp_channel", 3, create_comp_channel},
        {"destroy_comp_channel", 1, destroy_some<kCompChannel>},
        {"read_comp_channel", 15, read_comp_channel},
        {"create_srq", 4, create_srq},
        {"destroy_srq", 2, destroy_some<kSrq>},
        {"modify_srq", 6, modify_srq},
        {"query_srq", 6, query_srq},
        {"reg_mr", 10, reg_mr},
        {"dereg_mr", 5, destroy_some<kMr>},
        {"rereg_mr", 6, rereg_mr},
        {"alloc_mw", 6, alloc_mw},
        {"dealloc_mw", 3, destroy_some<kMw>},
        {"pull_memory", 4, pull_memory},
        {"map_anything", 4, map_anything},
        {"create_qp", 8, create_qp},
        {"destroy_qp", 5, destroy_some<kQp>},
        {"modify_qp", 12, modify_qp},
        {"pair_qps", 12, pair_qps},
        {"query_qp", 20, query_qp},
        {"any_command", 20, any_command},
        {"any_ioctl", 20, any_ioctl},
        {"list", 3, list},
    };
}

} // namespace softwarp::fuzz::local
