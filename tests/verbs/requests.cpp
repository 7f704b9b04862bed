// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Questions about work requests. */
#include <arpa/inet.h>

#include <fmt/format.h>

#include "probe.hpp"

namespace softwarp::verbs {
namespace {

constexpr uint32_t kImmediate = 0x12345678;

std::string send() {
    Link().message(SendWr::send(1, {}));
    return kYes;
}

std::string write() {
    Link link;
    link.write(link.remote().addr(), link.remote().rkey(), link.remote().at(0));
    return kYes;
}

std::string read() {
    Link link;
    fill(link.remote().at(0), kLength, kSeed);
    link.local.buffer.set(0);
    link.run(
        SendWr::read(1, {link.local.sge(0, kLength)}, link.remote().addr(), link.remote().rkey()));
    arrived(link.local.at(0), kLength);
    return kYes;
}

/* The client cannot use the key any more; a Read hears of it, unlike a Write. */
void expect_invalid(Link &link, uint32_t rkey) {
    try {
        link.run(SendWr::read(1, {link.local.sge(0, 8)}, link.remote().addr(), rkey));
    } catch (const No &) {
        return;
    }
    throw No("the key is still good");
}

/* Of a window, or where there is none of a region. */
std::string send_inv() {
    Link link;
    Mw mw(ibv_alloc_mw(link.s().pd(), IBV_MW_TYPE_2));
    uint32_t key = mw ? use_window(link, mw.get()) : link.remote().rkey();
    SendWr wr = SendWr::send_inv(1, {}, key);
    ibv_wc wc = link.message(wr);
    bool told = (wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == key;
    expect_invalid(link, key);
    return told ? kYes : "yes, without `IBV_WC_WITH_INV`";
}

std::string local_inv() {
    Link link;
    Mw mw(ibv_alloc_mw(link.s().pd(), IBV_MW_TYPE_2));
    uint32_t key = mw ? use_window(link, mw.get()) : link.remote().rkey();
    done(post_send(link.s().qp(), SendWr::local_inv(1, key)));
    completion(link.s().scq());
    expect_invalid(link, key);
    return kYes;
}

void expect_immediate(const ibv_wc &wc, ibv_wc_opcode opcode) {
    if (wc.opcode != opcode || (wc.wc_flags & IBV_WC_WITH_IMM) == 0 ||
        ntohl(wc.imm_data) != kImmediate)
        throw No("another completion");
}

std::string write_imm() {
    Link link;
    Region &remote = link.remote();
    done(post_recv(link.s().qp(), 1, {}));
    link.run(SendWr::write_imm(1, {link.local.sge(0, kLength)}, remote.addr(), remote.rkey(),
                               kImmediate));
    expect_immediate(completion(link.s().rcq()), IBV_WC_RECV_RDMA_WITH_IMM);
    arrived(remote.at(0), kLength);
    return kYes;
}

template<size_t length>
std::string send_imm() {
    Link link;
    expect_immediate(link.message(SendWr::send_imm(1, kImmediate), length), IBV_WC_RECV);
    return kYes;
}

/* `request` of a word that holds 100 puts `after` there and answers 100. */
template<typename Request>
std::string atomic(Request request, uint64_t after) {
    Link link;
    Region &remote = link.remote(kAll | IBV_ACCESS_REMOTE_ATOMIC);
    auto *word = reinterpret_cast<uint64_t *>(remote.at(0));
    auto *answer = reinterpret_cast<uint64_t *>(link.local.at(0));
    *word = 100;
    *answer = 0;
    link.run(request(link.local.sge(0, 8), remote.addr(), remote.rkey()));
    if (*answer != 100 || *word != after)
        throw No("wrong numbers");
    return kYes;
}

std::string fetch_add() {
    return atomic([](const ibv_sge &sge, uint64_t addr,
                     uint32_t rkey) { return SendWr::fetch_add(1, sge, addr, rkey, 11); },
                  111);
}

std::string cmp_swap() {
    return atomic([](const ibv_sge &sge, uint64_t addr,
                     uint32_t rkey) { return SendWr::cmp_swap(1, sge, addr, rkey, 100, 5); },
                  5);
}

std::string atomic_host() {
    switch (attributes().orig_attr.atomic_cap) {
    case IBV_ATOMIC_GLOB: return "`IBV_ATOMIC_GLOB`";
    case IBV_ATOMIC_HCA: throw No("`IBV_ATOMIC_HCA`");
    default: throw No("`IBV_ATOMIC_NONE`");
    }
}

/* No unless there are QPs with such operations; then a connection with them. */
QpOptions with_operations(uint64_t operations) {
    Objects objects;
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = objects.cq.get();
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.pd = objects.pd.get();
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = operations;
    Qp qp(made(ibv_create_qp_ex(context(), &attr)));
    return QpOptions{.operations = operations};
}

std::string extended() {
    Link link(with_operations(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                              IBV_QP_EX_WITH_RDMA_READ));
    ibv_qp_ex *qp = made(link.c().qpx());
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, link.remote().rkey(), link.remote().addr());
    ibv_wr_set_sge(qp, link.local.lkey(), link.local.addr(), kLength);
    done(ibv_wr_complete(qp));
    completion(link.c().scq());
    arrived(link.remote().at(0), kLength);
    return kYes;
}

std::string atomic_write() {
    Link link(with_operations(IBV_QP_EX_WITH_ATOMIC_WRITE));
    ibv_qp_ex *qp = made(link.c().qpx());
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_write(qp, link.remote().rkey(), link.remote().addr(), link.local.at(0));
    done(ibv_wr_complete(qp));
    completion(link.c().scq());
    arrived(link.remote().at(0), 8);
    return kYes;
}

/* libibverbs 44 has no such request, so what the kernel's driver announces has to do. */
std::string flush() {
    constexpr uint64_t kFlushGlobal = uint64_t{1} << 38;
    constexpr uint64_t kFlushPersistent = uint64_t{1} << 39;
    if ((attributes().device_cap_flags_ex & (kFlushGlobal | kFlushPersistent)) == 0)
        throw No("not announced");
    return "announced";
}

/* For the kernel's own users alone; this is what they look at. */
std::string fast_registration() {
    if ((attributes().orig_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) == 0)
        throw No("not announced");
    return "announced";
}

/* A Send of what a Read before it brings. */
std::string fence() {
    Link link;
    fill(link.remote().at(0), kLength, kSeed);
    link.local.buffer.set(0);
    done(post_recv(link.s().qp(), 1, {link.remote().sge(kSize / 2, kSize / 2)}));
    ibv_sge sge = link.local.sge(0, kLength);
    const SendWr list[] = {SendWr::read(1, {sge}, link.remote().addr(), link.remote().rkey()),
                           SendWr::send(2, {sge}, IBV_SEND_SIGNALED | IBV_SEND_FENCE)};
    done(post_send_list(link.c().qp(), list));
    completion(link.c().scq());
    completion(link.c().scq());
    completion(link.s().rcq());
    arrived(link.remote().at(kSize / 2), kLength);
    return kYes;
}

constexpr Probe kProbes[] = {
    {"send", send},
    {"write", write},
    {"read", read},
    {"send_inv", send_inv},
    {"write_imm", write_imm},
    {"send_imm", send_imm<0>},
    {"send_imm_data", send_imm<kLength>},
    {"fetch_add", fetch_add},
    {"cmp_swap", cmp_swap},
    {"atomic_host", atomic_host},
    {"atomic_write", atomic_write},
    {"flush", flush},
    {"local_inv", local_inv},
    {"fast_reg", fast_registration},
    {"fence", fence},
    {"qp_ex", extended},
};

} // namespace

std::span<const Probe> request_probes() {
    return kProbes;
}

} // namespace softwarp::verbs
