// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Questions about objects and their limits. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "probe.hpp"

namespace softwarp::verbs {
namespace {

using Names = std::vector<std::string>;

std::string listed(const Names &names, const std::string &otherwise) {
    if (names.empty())
        throw No(otherwise);
    return fmt::format("{}", fmt::join(names, ", "));
}

/* Queue pairs ----------------------------------------------------------------- */

std::string qp_types() {
    Objects objects;
    Names names;
    constexpr std::pair<ibv_qp_type, const char *> kTypes[] = {
        {IBV_QPT_RC, "RC"}, {IBV_QPT_UC, "UC"}, {IBV_QPT_UD, "UD"}, {IBV_QPT_RAW_PACKET, "raw"}};
    for (auto [type, name] : kTypes)
        if (objects.qp({4, 4, 1, 1, 0}, type))
            names.emplace_back(name);
    ibv_xrcd_init_attr attr{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
    if (ibv_xrcd *domain = ibv_open_xrcd(context(), &attr)) {
        names.emplace_back("XRC");
        ibv_close_xrcd(domain);
    }
    return listed(names, error_name(errno));
}

/* The GID that stands for the target's address, of RoCE v2 where there are several. */
int gid_index(ibv_gid *gid) {
    Address to = address(target.address, 0);
    for (uint32_t i = 0; i < 32; i++) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(context(), 1, i, &entry, 0) != 0 ||
            entry.gid_type == IBV_GID_TYPE_ROCE_V1)
            continue;
        *gid = entry.gid;
        if (entry.gid_type == IBV_GID_TYPE_IB ||
            std::memcmp(&entry.gid.raw[12], &to.v4.sin_addr, 4) == 0)
            return static_cast<int>(i);
    }
    throw No("no GID");
}

/* From one state to the next with ibv_modify_qp alone. */
void connect_by_hand(ibv_qp *qp, uint32_t peer, int index, const ibv_gid &gid) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAll;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.port_num = 1;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 3;
    attr.max_rd_atomic = 1;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

std::string connecting() {
    Names names;
    try {
        Link().message(SendWr::send(1, {}));
        names.emplace_back("rdma_cm");
    } catch (const std::runtime_error &) {
    }
    try {
        Objects objects;
        Region memory(objects.pd.get(), kSize);
        ibv_gid gid{};
        int index = gid_index(&gid);
        Qp one = objects.qp({4, 4, 1, 1, 0}), other = objects.qp({4, 4, 1, 1, 0});
        connect_by_hand(made(one.get()), made(other.get())->qp_num, index, gid);
        connect_by_hand(other.get(), one->qp_num, index, gid);
        done(post_recv(other.get(), 1, {memory.sge(0, 100)}));
        done(post_send(one.get(), SendWr::send(2, {memory.sge(100, 100)})));
        completion(objects.cq.get());
        completion(objects.cq.get());
        names.emplace_back("`ibv_modify_qp`");
    } catch (const No &) {
    }
    return listed(names, "neither");
}

std::string queues_of_zero() {
    Objects objects;
    Names names;
    if (objects.qp({0, 4, 1, 1, 0}))
        names.emplace_back("send");
    if (objects.qp({4, 0, 1, 1, 0}))
        names.emplace_back("receive");
    return names.size() == 2 ? kYes : listed(names, error_name(errno));
}

/* As many pieces of 64 octets as there are. */
SgList pieces(const Region &region, uint32_t count) {
    SgList list;
    for (uint32_t i = 0; i < count; i++)
        list.push_back(region.sge(i * size_t{64}, 64));
    return list;
}

std::string message_sges() {
    auto count = static_cast<uint32_t>(attributes().orig_attr.max_sge);
    QpOptions options{.send_sge = count, .recv_sge = count};
    Link link(options, options);
    done(post_recv(link.s().qp(), 1, pieces(link.remote(), count)));
    link.run(SendWr::send(1, pieces(link.local, count)));
    completion(link.s().rcq());
    arrived(link.remote().at(0), count * size_t{64});
    return std::to_string(count);
}

std::string read_sges() {
    auto count = static_cast<uint32_t>(attributes().orig_attr.max_sge_rd);
    Link link(QpOptions{.send_sge = count});
    fill(link.remote().at(0), kSize, kSeed);
    link.local.buffer.set(0);
    link.run(
        SendWr::read(1, pieces(link.local, count), link.remote().addr(), link.remote().rkey()));
    arrived(link.local.at(0), count * size_t{64});
    return std::to_string(count);
}

/* The greatest amount for which there is a QP; it has to work as well. */
std::string inline_data() {
    uint32_t good = 0, bad = 1 << 20;
    {
        Objects objects;
        auto fits = [&](uint32_t size) { return objects.qp({4, 4, 1, 1, size}) != nullptr; };
        while (bad - good > 1) {
            uint32_t middle = good + (bad - good) / 2;
            (fits(middle) ? good : bad) = middle;
        }
    }
    if (good == 0)
        throw No(error_name(errno));
    Link link(QpOptions{.inline_data = good});
    Buffer unregistered(kSize);
    fill(unregistered.at(0), kSize, kSeed);
    SendWr wr =
        SendWr::send(1, {{unregistered.addr(), good, 0}}, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    link.message(wr, good);
    return std::to_string(good);
}

std::string reads_in_flight() {
    ibv_device_attr attr = attributes().orig_attr;
    return fmt::format("{} / {}", attr.max_qp_rd_atom, attr.max_qp_init_rd_atom);
}

std::string message_size() {
    ibv_port_attr attr{};
    done(ibv_query_port(context(), 1, &attr));
    return std::to_string(attr.max_msg_sz);
}

/* Shared receive queues --------------------------------------------------------- */

struct SharedLink {
    static Srq create(ibv_pd *pd) {
        ibv_srq_init_attr attr{};
        attr.attr = {16, 1, 0};
        return Srq(made(ibv_create_srq(pd, &attr)));
    }
    /* A message takes one of the requests. */
    void message() {
        link.run(SendWr::send(1, {link.local.sge(0, kLength)}));
        completion(link.s().rcq());
    }
    void post(int count) {
        for (int i = 0; i < count; i++)
            done(post_srq_recv(srq.get(), 1, {link.remote().all()}));
    }
    std::string event(ibv_event_type type) const {
        auto found = wait_async(
            context(), [&](const AsyncEvent &event) { return event.type == type; },
            Deadline(kPatience));
        return found ? kYes : throw No("no event");
    }

    Pd pd{alloc_pd(context())};
    Srq srq{create(pd.get())};
    Link link{QpOptions{}, QpOptions{.pd = pd.get(), .srq = srq.get()}};
};

std::string srq() {
    SharedLink shared;
    shared.post(1);
    shared.message();
    arrived(shared.link.remote().at(0), kLength);
    return kYes;
}

std::string srq_limit() {
    SharedLink shared;
    shared.post(4);
    ibv_srq_attr attr{};
    attr.srq_limit = 2;
    done(ibv_modify_srq(shared.srq.get(), &attr, IBV_SRQ_LIMIT));
    for (int i = 0; i < 3; i++)
        shared.message();
    return shared.event(IBV_EVENT_SRQ_LIMIT_REACHED);
}

std::string srq_last() {
    SharedLink shared;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    done(ibv_modify_qp(shared.link.s().qp(), &attr, IBV_QP_STATE));
    return shared.event(IBV_EVENT_QP_LAST_WQE_REACHED);
}

std::string srq_resize() {
    Pd pd = alloc_pd(context());
    Srq srq = SharedLink::create(pd.get());
    ibv_srq_attr attr{};
    attr.max_wr = 1000;
    done(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR));
    done(ibv_query_srq(srq.get(), &attr));
    if (attr.max_wr < 1000)
        throw No("nothing changes");
    return kYes;
}

/* Memory -------------------------------------------------------------------------- */

template<ibv_mw_type type>
std::string window() {
    Link link;
    Mw mw(made(ibv_alloc_mw(link.s().pd(), type)));
    use_window(link, mw.get());
    if (type == IBV_MW_TYPE_1)
        return kYes;
    unsigned flags = attributes().orig_attr.device_cap_flags;
    Names names;
    if ((flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A) != 0)
        names.emplace_back("2A");
    if ((flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0)
        names.emplace_back("2B");
    return listed(names, "not announced");
}

/* The client writes into a region of the server's that is registered in some other way. */
std::string written(Link &link, ibv_mr *mr, uint64_t address, const uint8_t *place) {
    Mr owner(made(mr));
    link.write(address, mr->rkey, place);
    return kYes;
}

std::string zero_based() {
    Link link;
    Buffer memory(kSize);
    return written(link,
                   ibv_reg_mr(link.s().pd(), memory.data(), kSize, kAll | IBV_ACCESS_ZERO_BASED), 0,
                   memory.at(0));
}

std::string own_address() {
    Link link;
    Buffer memory(kSize);
    constexpr uint64_t kAddress = 0x123456789000;
    return written(link, ibv_reg_mr_iova(link.s().pd(), memory.data(), kSize, kAddress, kAll),
                   kAddress, memory.at(0));
}

std::string on_demand() {
    Link link;
    Buffer memory(kSize);
    return written(link,
                   ibv_reg_mr(link.s().pd(), memory.data(), kSize, kAll | IBV_ACCESS_ON_DEMAND),
                   memory.addr(), memory.at(0));
}

/* Memory as a dma-buf, where the kernel has a driver that makes one of it. */
std::string dma_buf() {
    Fd memory(memfd_create("softwarp-verbs-probe", MFD_ALLOW_SEALING));
    require(memory.get() >= 0 && ftruncate(memory.get(), kSize) == 0 &&
                fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0,
            "memfd");
    auto *place = static_cast<uint8_t *>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0));
    require(place != MAP_FAILED, "mmap");
    Fd maker(open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
    udmabuf_create create{};
    create.memfd = static_cast<uint32_t>(memory.get());
    create.size = kSize;
    Fd buffer(maker.get() < 0 ? -1 : ioctl(maker.get(), UDMABUF_CREATE, &create));

    Link link;
    bool real = buffer.get() >= 0;
    ibv_mr *mr =
        ibv_reg_dmabuf_mr(link.s().pd(), 0, kSize, 0, real ? buffer.get() : memory.get(), kAll);
    if (mr == nullptr && errno != EOPNOTSUPP && !real)
        fail("this kernel makes no dma-buf to try with");
    return written(link, mr, 0, place);
}

/* Each of the three, alone; the region has to be usable as it became. */
std::string rereg() {
    Names names;
    std::string error;
    auto attempt = [&](const char *name, int flags) {
        bool moves = flags == IBV_REREG_MR_CHANGE_TRANSLATION;
        bool opens = flags == IBV_REREG_MR_CHANGE_ACCESS;
        bool joins = flags == IBV_REREG_MR_CHANGE_PD;
        Link link;
        Buffer first(kSize), second(kSize);
        Pd other = alloc_pd(context());
        Mr mr = register_memory(joins ? other.get() : link.s().pd(), first.data(), kSize,
                                opens ? kLocal : kAll);
        const Buffer &memory = moves ? second : first;
        errno = 0;
        try {
            if (ibv_rereg_mr(mr.get(), flags, joins ? link.s().pd() : nullptr,
                             moves ? memory.data() : nullptr, moves ? kSize : 0,
                             opens ? kAll : 0) != 0)
                throw No(error_name(errno));
            link.write(memory.addr(), mr->rkey, memory.at(0));
            names.emplace_back(name);
        } catch (const No &no) {
            error = no.what();
        }
    };
    attempt("memory", IBV_REREG_MR_CHANGE_TRANSLATION);
    attempt("rights", IBV_REREG_MR_CHANGE_ACCESS);
    attempt("PD", IBV_REREG_MR_CHANGE_PD);
    return names.size() == 3 ? kYes : listed(names, error);
}

std::string null_mr() {
    Pd pd = alloc_pd(context());
    Mr mr(made(ibv_alloc_null_mr(pd.get())));
    return kYes;
}

/* Completion queues ------------------------------------------------------------- */

std::string vectors() {
    return std::to_string(context()->num_comp_vectors);
}

std::string resize_cq() {
    Cq cq = create_cq(context(), 16);
    done(ibv_resize_cq(cq.get(), 1000));
    if (cq->cqe < 1000)
        throw No("nothing changes");
    return kYes;
}

std::string moderation() {
    Cq cq = create_cq(context(), 16);
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {4, 10};
    done(ibv_modify_cq(cq.get(), &attr));
    return kYes;
}

struct CqExDestroyer {
    void operator()(ibv_cq_ex *cq) const {
        report_destroy(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
    }
};
using CqEx = std::unique_ptr<ibv_cq_ex, CqExDestroyer>;

CqEx create_cq_ex(uint64_t fields) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = fields;
    return CqEx(ibv_create_cq_ex(context(), &attr));
}

/* Polls one completion of a message and looks at it. */
void poll_ex(Link &link, ibv_cq_ex *cq, void (*look)(ibv_cq_ex *)) {
    link.s().recv(1, {link.remote().all()});
    link.run(SendWr::send(1, {link.local.sge(0, kLength)}));
    ibv_poll_cq_attr attr{};
    int error = ENOENT;
    eventually([&] { return (error = ibv_start_poll(cq, &attr)) != ENOENT; }, Deadline(kPatience));
    done(error);
    bool good = cq->status == IBV_WC_SUCCESS;
    if (good)
        look(cq);
    ibv_end_poll(cq);
    if (!good)
        throw No(ibv_wc_status_str(cq->status));
}

std::string cq_ex() {
    constexpr std::pair<uint64_t, const char *> kFields[] = {
        {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, "timestamp"},
        {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, "wall clock"},
        {IBV_WC_EX_WITH_CVLAN, "VLAN"},
        {IBV_WC_EX_WITH_FLOW_TAG, "flow tag"},
        {IBV_WC_EX_WITH_TM_INFO, "tag matching"}};
    CqEx cq(create_cq_ex(IBV_WC_STANDARD_FLAGS));
    made(cq.get());
    Link link(QpOptions{}, QpOptions{.recv_cq = ibv_cq_ex_to_cq(cq.get())});
    poll_ex(link, cq.get(), [](ibv_cq_ex *polled) {
        if (ibv_wc_read_byte_len(polled) != kLength || ibv_wc_read_opcode(polled) != IBV_WC_RECV)
            throw No("wrong fields");
    });
    Names names{"standard fields"};
    for (auto [flag, name] : kFields)
        if (create_cq_ex(flag))
            names.emplace_back(name);
    return listed(names, "");
}

std::string timestamps() {
    CqEx cq(create_cq_ex(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
    made(cq.get());
    Link link(QpOptions{}, QpOptions{.recv_cq = ibv_cq_ex_to_cq(cq.get())});
    static uint64_t stamps[2];
    poll_ex(link, cq.get(), [](auto *polled) { stamps[0] = ibv_wc_read_completion_ts(polled); });
    poll_ex(link, cq.get(), [](auto *polled) { stamps[1] = ibv_wc_read_completion_ts(polled); });
    if (stamps[0] == 0 || stamps[1] <= stamps[0])
        throw No("they do not grow");
    return kYes;
}

std::string device_clock() {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    done(ibv_query_rt_values_ex(context(), &values));
    return kYes;
}

std::string solicited() {
    Link link(QpOptions{}, QpOptions{.events = true});
    done(ibv_req_notify_cq(link.s().rcq(), 1));
    link.message(SendWr::send(1, {}));
    if (!no_cq_event(link.s().completions()))
        throw No("each message is an event");
    link.message(SendWr::send(1, {}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
    if (no_cq_event(link.s().completions(), kPatience))
        throw No("no event");
    return kYes;
}

/* The rest ---------------------------------------------------------------------- */

std::string domains() {
    ibv_td_init_attr thread{};
    ibv_td *td = made(ibv_alloc_td(context(), &thread));
    Pd pd = alloc_pd(context());
    ibv_parent_domain_init_attr parent{};
    parent.pd = pd.get();
    parent.td = td;
    Pd domain(made(ibv_alloc_parent_domain(context(), &parent)));
    domain.reset();
    done(ibv_dealloc_td(td));
    return kYes;
}

std::string import() {
    Objects objects;
    Region memory(objects.pd.get(), kSize);
    Context again(made(ibv_import_device(dup(context()->cmd_fd))));
    ibv_pd *pd = made(ibv_import_pd(again.get(), objects.pd->handle));
    ibv_mr *mr = made(ibv_import_mr(pd, memory.mr->handle));
    bool same = mr->rkey == memory.rkey();
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd);
    return same ? kYes : throw No("another key");
}

std::string counters() {
    std::string device = "/sys/class/infiniband/" + target.device;
    std::error_code error;
    for (const std::string &path : {device + "/hw_counters", device + "/ports/1/hw_counters"})
        for (const auto &entry : std::filesystem::directory_iterator(path, error))
            if (entry.path().filename() != "lifespan")
                return kYes;
    throw No("none");
}

/* The device's removal returns although a program holds objects, which hears of it. */
std::string removal() {
    DeviceGone gone;
    Context opened = open_device(target.device);
    Pd pd = alloc_pd(opened.get());
    Region memory(pd.get(), kSize);
    ShellResult result = shell("rdma link delete " + target.device, Deadline(kPatience));
    if (result.status == -1)
        throw No("waits until they close it");
    if (result.status != 0)
        throw No(result.output.substr(0, 60));
    auto fatal = wait_async(
        opened.get(), [](const AsyncEvent &event) { return event.type == IBV_EVENT_DEVICE_FATAL; },
        Deadline(kPatience));
    return fatal ? kYes : throw No("no event");
}

constexpr Probe kProbes[] = {
    {"qp_types", qp_types},
    {"connecting", connecting},
    {"zero_wr", queues_of_zero},
    {"message_sge", message_sges},
    {"read_sge", read_sges},
    {"inline", inline_data},
    {"rd_atom", reads_in_flight},
    {"message_size", message_size},
    {"srq", srq},
    {"srq_limit", srq_limit},
    {"srq_last", srq_last},
    {"srq_resize", srq_resize},
    {"mw1", window<IBV_MW_TYPE_1>},
    {"mw2", window<IBV_MW_TYPE_2>},
    {"rereg", rereg},
    {"zero_based", zero_based},
    {"iova", own_address},
    {"on_demand", on_demand},
    {"dma_buf", dma_buf},
    {"null_mr", null_mr},
    {"vectors", vectors},
    {"resize_cq", resize_cq},
    {"moderation", moderation},
    {"cq_ex", cq_ex},
    {"timestamps", timestamps},
    {"clock", device_clock},
    {"solicited", solicited},
    {"domains", domains},
    {"import", import},
    {"counters", counters},
    {"removal", removal},
};

} // namespace

std::span<const Probe> object_probes() {
    return kProbes;
}

} // namespace softwarp::verbs
