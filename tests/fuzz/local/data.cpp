// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Operations on mapped rings: requests that are right, requests that are not,
 * and words that mean nothing; and what processes do to each other.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <limits>

#include "local/actor.hpp"
#include "local/device.hpp"

namespace softwarp::fuzz::local {

namespace {

using Word = std::atomic_ref<uint32_t>;

swp_ring_ctrl *control_of(const Ring &ring) {
    return reinterpret_cast<swp_ring_ctrl *>(ring.base);
}

uint8_t *entry_of(const Ring &ring, uint32_t index) {
    return ring.base + SWP_RING_DATA_OFF + size_t{index & (ring.entries - 1)} * ring.stride;
}

swp_sge some_sge(Actor &actor, const Object &of, Random &random) {
    swp_sge sge{};
    auto mr = actor.any_below(kMr, of.fd, of.parent, random);
    if (!mr || random.chance(2))
        mr = actor.any(kMr, random);
    if (!mr)
        return sge;
    uint32_t most = std::min(mr->length, random.chance(90) ? 2048U : 65536U);
    sge.length = static_cast<uint32_t>(random.below(uint64_t{most} + 1));
    sge.addr = mr->addr + random.below(mr->length - sge.length + 1);
    sge.lkey = some_number(random, mr->number);
    if (random.chance(1))
        sge.length = static_cast<uint32_t>(random.next());
    return sge;
}

Far some_target(const Object &qp, Random &random) {
    Far far = qp.far;
    if (far.length == 0 || random.chance(3)) {
        RegionNotice &notice = any_of(board->regions, random);
        far = {notice.addr, notice.length, notice.rkey};
    }
    return far;
}

/* A request as a library would write it, mostly. */
void build(Actor &actor, const Object &qp, Random &random, uint8_t *out, uint32_t space) {
    swp_sqe sqe{};
    std::array<swp_sge, 4> sges{};
    size_t behind = 0;
    Far far = some_target(qp, random);
    uint32_t sge_count = static_cast<uint32_t>(random.pick({0U, 1U, 1U, 1U, 1U, 2U, 3U}));
    uint32_t total = 0;
    for (uint32_t i = 0; i < sge_count; i++) {
        sges[i] = some_sge(actor, qp, random);
        total += sges[i].length;
    }
    sqe.wr_id = random.next();
    sqe.flags = static_cast<uint8_t>(random.chance(60) ? SWP_WQE_SIGNALED : 0);
    if (random.chance(10))
        sqe.flags = static_cast<uint8_t>(sqe.flags | SWP_WQE_FENCE);
    if (random.chance(10))
        sqe.flags = static_cast<uint8_t>(sqe.flags | SWP_WQE_SOLICITED);
    sqe.opcode = static_cast<uint8_t>(random.pick(
        {SWP_OP_WRITE, SWP_OP_WRITE, SWP_OP_WRITE, SWP_OP_READ, SWP_OP_READ, SWP_OP_SEND,
         SWP_OP_SEND, SWP_OP_SEND_INV, SWP_OP_LOCAL_INV, SWP_OP_BIND_MW, SWP_OP_BIND_MW,
         SWP_OP_FETCH_ADD, SWP_OP_CMP_SWAP, SWP_OP_WRITE_IMM, SWP_OP_SEND_IMM}));
    sqe.rkey = some_number(random, far.rkey);
    sqe.remote_addr = far.addr;
    if (far.length > total)
        sqe.remote_addr += random.below(far.length - total);
    sqe.num_sge = static_cast<uint16_t>(sge_count);
    switch (sqe.opcode) {
    case SWP_OP_SEND_INV: sqe.imm_inv = far.rkey; break;
    case SWP_OP_SEND_IMM: sqe.num_sge = 0; break;
    case SWP_OP_LOCAL_INV: {
        auto mw = actor.any_below(kMw, qp.fd, qp.parent, random);
        sqe.imm_inv = mw ? mw->number : static_cast<uint32_t>(random.next());
        sqe.num_sge = 0;
        break;
    }
    case SWP_OP_BIND_MW: {
        auto mw = actor.any_below(kMw, qp.fd, qp.parent, random);
        auto mr = actor.any_below(kMr, qp.fd, qp.parent, random);
        swp_bind bind{};
        if (mw && mr) {
            sqe.rkey = (mw->number & ~0xffU) | static_cast<uint32_t>(random.below(256));
            bind.addr = mr->addr;
            bind.length = random.chance(80) ? mr->length : random.below(mr->length + 64ULL);
            bind.lkey = mr->number;
            bind.access = static_cast<uint32_t>(random.below(random.chance(90) ? 8 : 256));
            actor.change(kMw, mw->fd, mw->handle,
                         [&](Object &object) { object.number = sqe.rkey; });
        }
        sqe.num_sge = 0;
        std::memcpy(out + sizeof(sqe), &bind, std::min<size_t>(sizeof(bind), space - sizeof(sqe)));
        behind = sizeof(bind);
        break;
    }
    case SWP_OP_FETCH_ADD:
    case SWP_OP_CMP_SWAP: {
        sges[0].length = random.chance(95) ? 8 : sges[0].length;
        sqe.num_sge = 1;
        sqe.remote_addr &= ~uint64_t{random.chance(95) ? 7U : 0U};
        swp_operands operands{random.next(), random.next()};
        if (space >= sizeof(sqe) + sizeof(swp_sge) + sizeof(operands))
            std::memcpy(out + sizeof(sqe) + sizeof(swp_sge), &operands, sizeof(operands));
        break;
    }
    default:
        if (random.chance(10)) {
            sqe.flags = static_cast<uint8_t>(sqe.flags | SWP_WQE_INLINE);
            sqe.inline_len = static_cast<uint32_t>(random.below(space - sizeof(sqe) + 1));
            sqe.num_sge = 0;
        }
    }
    std::memcpy(out, &sqe, sizeof(sqe));
    if (behind == 0 && sqe.num_sge != 0)
        std::memcpy(out + sizeof(sqe), sges.data(),
                    std::min<size_t>(sqe.num_sge * sizeof(swp_sge), space - sizeof(sqe)));
    if (random.chance(2))
        for (unsigned i = 0; i < 4; i++)
            out[random.below(space)] = static_cast<uint8_t>(random.next());
}

/* Posts up to `count` requests; true if the kernel wants the doorbell. */
bool post_requests(Actor &actor, const Object &qp, Random &random, unsigned count) {
    swp_ring_ctrl *control = control_of(qp.send);
    uint32_t prod = Word(control->prod).load(std::memory_order_relaxed);
    for (; count > 0; count--) {
        uint32_t cons = Word(control->cons).load(std::memory_order_acquire);
        if (prod - cons >= qp.send.entries && random.chance(98))
            break;
        build(actor, qp, random, entry_of(qp.send, prod), qp.send.stride);
        prod++;
        count_call();
    }
    Word(control->prod).store(prod, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return Word(control->kick).load(std::memory_order_relaxed) != 0;
}

bool post_send(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    if (!qp || qp->send.base == nullptr)
        return false;
    unsigned count = random.chance(80) ? 1 : static_cast<unsigned>(random.range(2, 32));
    if (post_requests(actor, *qp, random, count) || random.chance(2))
        ring_doorbell(*qp);
    return true;
}

/* As many requests in a row as a program that does nothing else posts. */
bool post_stream(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    if (!qp || qp->send.base == nullptr)
        return false;
    for (unsigned rounds = static_cast<unsigned>(random.range(8, 64)); rounds > 0; rounds--)
        if (post_requests(actor, *qp, random, 1))
            ring_doorbell(*qp);
    return true;
}

bool post_receive(Actor &actor, const Object &to, Random &random, unsigned count) {
    if (to.recv.base == nullptr)
        return false;
    swp_ring_ctrl *control = control_of(to.recv);
    uint32_t prod = Word(control->prod).load(std::memory_order_relaxed);
    for (; count > 0; count--) {
        uint32_t cons = Word(control->cons).load(std::memory_order_acquire);
        if (prod - cons >= to.recv.entries && random.chance(98))
            break;
        uint8_t *out = entry_of(to.recv, prod);
        swp_rqe rqe{};
        rqe.wr_id = random.next();
        rqe.num_sge = random.chance(98) ? 1 : static_cast<uint32_t>(random.below(40));
        swp_sge sge = some_sge(actor, to, random);
        std::memcpy(out, &rqe, sizeof(rqe));
        if (to.recv.stride >= sizeof(rqe) + sizeof(sge))
            std::memcpy(out + sizeof(rqe), &sge, sizeof(sge));
        prod++;
        count_call();
    }
    Word(control->prod).store(prod, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return Word(control->kick).load(std::memory_order_relaxed) != 0;
}

bool post_recv(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    if (!qp || qp->recv.base == nullptr)
        return false;
    if (post_receive(actor, *qp, random, static_cast<unsigned>(random.range(1, 16))))
        ring_doorbell(*qp);
    return true;
}

bool post_srq_recv(Actor &actor, Random &random) {
    auto srq = actor.any(kSrq, random);
    if (!srq || srq->recv.base == nullptr)
        return false;
    post_receive(actor, *srq, random, static_cast<unsigned>(random.range(1, 16)));
    return true;
}

bool doorbell(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    return qp && ring_doorbell(*qp);
}

/* Requests in the command, as no provider of ours sends them. */
bool post_command(Actor &actor, Random &random) {
    auto qp = actor.any(kQp, random);
    if (!qp)
        return false;
    ib_uverbs_post_send request{};
    request.qp_handle = some_number(random, qp->handle);
    request.wr_count = random.chance(80) ? 1 : static_cast<uint32_t>(random.next());
    request.wqe_size = sizeof(ib_uverbs_send_wr);
    ib_uverbs_send_wr wr{};
    wr.wr_id = random.next();
    wr.opcode = static_cast<uint32_t>(random.below(16));
    wr.send_flags = static_cast<uint32_t>(random.below(32));
    uint32_t number = random.pick({IB_USER_VERBS_CMD_POST_SEND, IB_USER_VERBS_CMD_POST_RECV,
                                   IB_USER_VERBS_CMD_POST_SRQ_RECV});
    return verb(qp->fd, number, request, 4, 0, octets_of(wr)).ok();
}

bool poll_cq(Actor &actor, Random &random) {
    auto cq = actor.any(kCq, random);
    if (!cq || cq->recv.base == nullptr)
        return false;
    uint32_t index = cq->cons;
    uint32_t first = index;
    for (unsigned most = static_cast<unsigned>(random.range(1, 64)); most > 0; most--) {
        swp_cqe cqe;
        std::memcpy(&cqe, entry_of(cq->recv, index), sizeof(cqe));
        if (cqe.gen != static_cast<uint16_t>(index / cq->recv.entries + 1))
            break;
        index++;
    }
    Word(control_of(cq->recv)->cons).store(index, std::memory_order_release);
    actor.change(kCq, cq->fd, cq->handle, [&](Object &object) { object.cons = index; });
    return index != first;
}

bool arm_cq(Actor &actor, Random &random) {
    auto cq = actor.any(kCq, random);
    if (!cq || cq->recv.base == nullptr)
        return false;
    count_call();
    Word(control_of(cq->recv)->arm).store(random.pick({2U, 2U, 1U, 0U, 3U}));
    return true;
}

/* Processes ------------------------------------------------------------------------ */

bool scribble_some(Actor &actor, Random &random) {
    return actor.style().scribble != 0 && scribble(actor, random, actor.style().scribble);
}

/* Only those of the same user die of it. */
bool kill_other(Actor &actor, Random &random) {
    int pid = any_of(board->actors, random).pid;
    (void)actor;
    return pid > 0 && kill(pid, SIGKILL) == 0;
}

bool fork_some(Actor &actor, Random &random) {
    while (waitpid(-1, nullptr, WNOHANG) > 0)
        ;
    actor.fork_child(random);
    return true;
}

/* The process pauses, so that others get on and connections come about. */
bool pause(Actor &, Random &random) {
    usleep(static_cast<useconds_t>(random.range(100, 3000)));
    return true;
}

} // namespace

bool ring_doorbell(const Object &qp) {
    ib_uverbs_post_send request{};
    request.qp_handle = qp.handle;
    request.wqe_size = sizeof(ib_uverbs_send_wr);
    return verb(qp.fd, IB_USER_VERBS_CMD_POST_SEND, request, 4).ok();
}

/* Words of a ring, or of what was one; level 1 leaves the counters alone. */
bool scribble(Actor &actor, Random &random, unsigned level) {
    uint8_t *place = actor.place(random);
    auto *control = reinterpret_cast<swp_ring_ctrl *>(place);
    for (unsigned left = static_cast<unsigned>(random.range(1, 16)); left > 0; left--) {
        if (level == 1 || random.chance(40)) {
            size_t at = SWP_RING_DATA_OFF + random.below(random.chance(80) ? 4096 : 65536) / 4 * 4;
            Word(*reinterpret_cast<uint32_t *>(place + at))
                .store(static_cast<uint32_t>(random.chance(50) ? random.next() : random.below(40)));
            continue;
        }
        uint32_t *words[] = {&control->prod, &control->cons, &control->kick, &control->arm};
        Word word(*words[random.below(4)]);
        switch (random.below(6)) {
        case 0: word.store(static_cast<uint32_t>(random.next())); break;
        case 1: word.store(0); break;
        case 2: word.store(1); break;
        case 3: word.store(std::numeric_limits<uint32_t>::max()); break;
        case 4: word.fetch_add(static_cast<uint32_t>(random.below(64))); break;
        default: word.fetch_sub(static_cast<uint32_t>(random.below(64))); break;
        }
    }
    return true;
}

std::vector<Operation> data_operations() {
    return {
        {"post_send", 260, post_send},   {"post_stream", 30, post_stream},
        {"post_recv", 120, post_recv},   {"post_srq_recv", 30, post_srq_recv},
        {"doorbell", 60, doorbell},      {"post_command", 6, post_command},
        {"poll_cq", 150, poll_cq},       {"arm_cq", 40, arm_cq},
        {"scribble", 40, scribble_some}, {"kill_other", 1, kill_other},
        {"fork", 2, fork_some},          {"pause", 12, pause},
    };
}

} // namespace softwarp::fuzz::local
