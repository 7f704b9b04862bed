// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Atomics and immediate data: RFC 7306.
 *
 * The wire peer is requester or responder; tests that say so have our device in
 * either MPA role.  Layer, etype and code of a Terminate are written 0/2/0x06.
 */
#include <arpa/inet.h>
#include <softwarp_abi.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

/* Helpers ------------------------------------------------------------------- */

constexpr uint32_t found(unsigned layer, unsigned etype, unsigned code) {
    return SWP_VENDOR_ERR(layer, etype, code);
}
constexpr uint32_t told(unsigned layer, unsigned etype, unsigned code) {
    return SWP_VENDOR_ERR(layer, etype, code) | SWP_VENDOR_ERR_REMOTE;
}

constexpr uint8_t rdmap_of(uint8_t opcode) {
    return kRdmapVersion | opcode;
}

constexpr uint64_t kOnes = ~uint64_t{0};
constexpr int kAtomic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/* 64-bit words that a peer may do atomics on, as the processor sees them. */
struct Words {
    explicit Words(ibv_pd *pd, size_t count = 8, int access = kAtomic | IBV_ACCESS_REMOTE_READ)
        : region(pd, 8 * count, access) {}
    std::atomic_ref<uint64_t> operator[](size_t i) const {
        return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t *>(region.at(8 * i)));
    }
    uint64_t to(size_t i) const { return region.addr(8 * i); }
    uint32_t stag() const { return region.rkey(); }

    Region region;
};

/* Requests that SendWr has no members for. */
ibv_send_wr fetch_add(uint64_t id, uint64_t to, uint32_t stag, uint64_t add) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = to;
    wr.wr.atomic.rkey = stag;
    wr.wr.atomic.compare_add = add;
    return wr;
}

ibv_send_wr cmp_swap(uint64_t id, uint64_t to, uint32_t stag, uint64_t compare, uint64_t swap) {
    ibv_send_wr wr = fetch_add(id, to, stag, compare);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.swap = swap;
    return wr;
}

ibv_send_wr write_imm(uint64_t id, uint64_t to, uint32_t stag, uint32_t value) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.wr.rdma.remote_addr = to;
    wr.wr.rdma.rkey = stag;
    wr.imm_data = htonl(value);
    return wr;
}

ibv_send_wr send_imm(uint64_t id, uint32_t value) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(value);
    return wr;
}

void post(Link &link, ibv_send_wr wr, SgList sg = {}, unsigned flags = IBV_SEND_SIGNALED,
          Where where = Where::current()) {
    wr.sg_list = sg.data();
    wr.num_sge = static_cast<int>(sg.size());
    wr.send_flags = flags;
    ibv_send_wr *bad = nullptr;
    int error = ibv_post_send(link.qp(), &wr, &bad);
    if (error != 0)
        fail("ibv_post_send returned " + errno_name(error), where);
}

/* An Atomic Request of ours, whatever it says. */
AtomicRequest hear_atomic(Link &link, Where where = Where::current()) {
    Segment segment = link.hear();
    if (segment.opcode() != kOpAtomicRequest || segment.payload.size() != kAtomicRequest)
        fail("no Atomic Request but " + segment.text(), where);
    return AtomicRequest::parse(segment.payload);
}

void expect_vendor(ibv_cq *cq, uint64_t id, ibv_wc_status status, uint32_t vendor,
                   Where where = Where::current()) {
    ibv_wc wc = expect_wc(cq, id, status, where);
    EXPECT_EQ(wc.vendor_err, vendor) << where.line() << ": " << wc_text(wc);
}

/* The next completion is of immediate data with this value. */
ibv_wc expect_immediate(ibv_cq *cq, uint64_t id, ibv_wc_opcode opcode, uint32_t value,
                        uint32_t byte_len, Where where = Where::current()) {
    ibv_wc wc = expect_success(cq, id, opcode, byte_len, where);
    EXPECT_EQ(wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), unsigned{IBV_WC_WITH_IMM})
        << where.line();
    EXPECT_EQ(ntohl(wc.imm_data), value) << where.line();
    return wc;
}

/* Several ULPDUs in one TCP segment: ours looks at all before it speaks. */
void say_at_once(Link &link, std::initializer_list<Bytes> ulpdus) {
    Bytes all;
    for (const Bytes &ulpdu : ulpdus)
        append(all, link.peer().writer().encode(ulpdu));
    link.peer().say(all);
}

LinkOptions with_depths(uint16_t ird, uint16_t ord, Role role = Role::responder) {
    LinkOptions options{.role = role, .revision = 2};
    /* As the peer sees it.  As responder it grants what ours asks for. */
    if (role == Role::responder)
        options.enhanced = Enhanced{.ird = ord, .ord = ird};
    options.qp.ird = static_cast<uint8_t>(ird);
    options.qp.ord = static_cast<uint8_t>(ord);
    return options;
}

/* A Terminate of the peer's about a segment of ours. */
Bytes complaint(uint8_t layer, uint8_t etype, uint8_t code, View culprit) {
    size_t header = (culprit[0] & kDdpTagged) != 0 ? kTaggedHeader : kUntaggedHeader;
    Terminate term{.layer = layer,
                   .etype = etype,
                   .code = code,
                   .m = true,
                   .d = true,
                   .length = static_cast<uint16_t>(culprit.size())};
    term.ddp_header.assign(culprit.begin(), culprit.begin() + static_cast<long>(header));
    return term.bytes();
}

/* Both roles of our device. */
class RdmapxRole : public testing::TestWithParam<Role> {};

INSTANTIATE_TEST_SUITE_P(As, RdmapxRole, testing::Values(Role::responder, Role::initiator),
                         [](const testing::TestParamInfo<Role> &info) {
                             return info.param == Role::responder ? "Responder" : "Initiator";
                         });

/* What the wire shows --------------------------------------------------------- */

/* What ours says, octet by octet, but for the identifier that it chose. */
TEST_P(RdmapxRole, RequestsOfOurs) {
    REQ("RDMAPX-01", "RDMAPX-02", "RDMAPX-03", "RDMAPX-05", "RDMAPX-08", "RDMAPX-09", "RDMAPX-16",
        "RDMAPX-26");
    Link link({.role = GetParam()});
    Words words(link.pd());
    post(link, fetch_add(1, 0x1122334455667788, 0x99aabbcc, 0x0102030405060708),
         {words.region.sge(0, 8)});
    Segment segment = link.hear();
    AtomicRequest add = AtomicRequest::parse(segment.payload);
    EXPECT_EQ(add, (AtomicRequest{.opcode = 0,
                                  .id = add.id,
                                  .stag = 0x99aabbcc,
                                  .to = 0x1122334455667788,
                                  .data = 0x0102030405060708,
                                  .mask = 0,
                                  .compare = 0,
                                  .compare_mask = kOnes}));
    EXPECT_EQ(segment.ddp, kDdpLast | kDdpVersion);
    EXPECT_EQ(segment.rdmap, 0x4a);
    EXPECT_EQ(segment.invalidate, 0U);
    EXPECT_EQ(segment.qn, 1U);
    EXPECT_EQ(segment.msn, 1U);
    EXPECT_EQ(segment.mo, 0U);
    EXPECT_EQ(segment.payload.size(), 52U);

    post(link, cmp_swap(2, 0x1000, 0x0a0b0c0d, 0x2122232425262728, 0x3132333435363738),
         {words.region.sge(8, 8)});
    Fpdu unit = link.peer().hear_fpdu();
    ASSERT_EQ(unit.ulpdu.size(), 70U);
    AtomicRequest swap = AtomicRequest::parse(View(unit.ulpdu).subspan(kUntaggedHeader));
    Bytes expected = AtomicRequest{.opcode = 2,
                                   .id = swap.id,
                                   .stag = 0x0a0b0c0d,
                                   .to = 0x1000,
                                   .data = 0x3132333435363738,
                                   .mask = kOnes,
                                   .compare = 0x2122232425262728,
                                   .compare_mask = kOnes}
                         .bytes(2);
    expect_octets(unit.ulpdu, expected, "CmpSwap");
    EXPECT_NE(add.id, swap.id);

    /* Neither is complete before its answer is there. */
    expect_quiet(link.scq());
    EXPECT_EQ(words[0].load(), 0U);
    link.say(AtomicResponse{add.id, 0x4142434445464748}.bytes(1));
    expect_success(link.scq(), 1, IBV_WC_FETCH_ADD, 8);
    EXPECT_EQ(words[0].load(), 0x4142434445464748U);
    expect_quiet(link.scq());
    link.say(AtomicResponse{swap.id, kOnes}.bytes(2));
    expect_success(link.scq(), 2, IBV_WC_COMP_SWAP, 8);
    EXPECT_EQ(words[1].load(), kOnes);
    link.expect_works();
}

/* What ours answers, octet by octet, and what it did. */
TEST_P(RdmapxRole, ResponsesOfOurs) {
    REQ("RDMAPX-01", "RDMAPX-02", "RDMAPX-03", "RDMAPX-04", "RDMAPX-05", "RDMAPX-09", "RDMAPX-11",
        "RDMAPX-26");
    Link link({.role = GetParam()});
    Words words(link.pd());
    words[3] = 0x0102030405060708;
    link.say(AtomicRequest::fetch_add(0xa1a2a3a4, words.stag(), words.to(3), 0x10).bytes(1));
    link.expect_ulpdu(Untagged{.rdmap = 0x4b,
                               .qn = 3,
                               .msn = 1,
                               .payload = {0xa1, 0xa2, 0xa3, 0xa4, 1, 2, 3, 4, 5, 6, 7, 8}});
    EXPECT_EQ(words[3].load(), 0x0102030405060718U);
    link.say(AtomicRequest::cmp_swap(0, words.stag(), words.to(3), 0x0102030405060718, kOnes - 1)
                 .bytes(2));
    link.expect_ulpdu(AtomicResponse{0, 0x0102030405060718}.bytes(2));
    EXPECT_EQ(words[3].load(), kOnes - 1);
    link.say(AtomicRequest::cmp_swap(kOnes & 0xffffffff, words.stag(), words.to(3), 5, 6).bytes(3));
    link.expect_ulpdu(AtomicResponse{0xffffffff, kOnes - 1}.bytes(3));
    EXPECT_EQ(words[3].load(), kOnes - 1);
    /* Its neighbours are as they were, and nobody above was told. */
    for (size_t i : {0, 1, 2, 4, 5, 6, 7})
        EXPECT_EQ(words[i].load(), 0U) << i;
    expect_quiet(link.rcq());
    link.expect_works();
}

/* Immediate data that ours says: behind a Write and alone, solicited and not. */
TEST_P(RdmapxRole, ImmediateDataOfOurs) {
    REQ("RDMAPX-01", "RDMAPX-02", "RDMAPX-18", "RDMAPX-20", "RDMAPX-22", "RDMAPX-26");
    Link link({.role = GetParam()});
    Region memory(link.pd(), 64);
    fill(memory.at(0), 64, 5);
    constexpr unsigned kSolicited = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

    post(link, write_imm(1, 0x1000, 0x77, 0x01020304), {memory.sge(0, 5)});
    link.expect_ulpdu(Tagged{.rdmap = 0x40, .stag = 0x77, .to = 0x1000, .payload = pattern(5, 5)});
    link.expect_ulpdu(Untagged{.rdmap = 0x48, .msn = 1, .payload = {1, 2, 3, 4, 0, 0, 0, 0}});
    expect_success(link.scq(), 1, IBV_WC_RDMA_WRITE);

    post(link, write_imm(2, 0x2000, 0x78, 0xfffefdfc), {memory.sge(1, 2)}, kSolicited);
    link.expect_ulpdu(
        Tagged{.rdmap = 0x40, .stag = 0x78, .to = 0x2000, .payload = pattern(2, 5, 1)});
    link.expect_ulpdu(
        Untagged{.rdmap = 0x49, .msn = 2, .payload = {0xff, 0xfe, 0xfd, 0xfc, 0, 0, 0, 0}});
    expect_success(link.scq(), 2, IBV_WC_RDMA_WRITE);

    /* Without a Write it says so in the last octet. */
    post(link, send_imm(3, 0x0a0b0c0d));
    link.expect_ulpdu(
        Untagged{.rdmap = 0x48, .msn = 3, .payload = {0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 1}});
    expect_success(link.scq(), 3, IBV_WC_SEND);
    post(link, send_imm(4, 0), {}, kSolicited);
    link.expect_ulpdu(Untagged{.rdmap = 0x49, .msn = 4, .payload = {0, 0, 0, 0, 0, 0, 0, 1}});
    expect_success(link.scq(), 4, IBV_WC_SEND);

    /* A Write of nothing is said, too: the immediate data are behind it. */
    post(link, write_imm(5, 0x3000, 0x79, 9));
    link.expect_ulpdu(Tagged{.rdmap = 0x40, .stag = 0x79, .to = 0x3000});
    link.expect_ulpdu(Untagged{.rdmap = 0x48, .msn = 5, .payload = {0, 0, 0, 9, 0, 0, 0, 0}});
    expect_success(link.scq(), 5, IBV_WC_RDMA_WRITE);

    /* One long enough for several segments has its immediate data behind the last. */
    Region large(link.pd(), 100000);
    fill(large.at(0), 100000, 6);
    post(link, write_imm(6, 0x4000, 0x7a, 10), {large.all()});
    Link::Message message = link.hear_message();
    EXPECT_EQ(message.rdmap, 0x40);
    EXPECT_GT(message.segments, 1U);
    expect_octets(message.payload, pattern(100000, 6));
    link.expect_ulpdu(Untagged{.rdmap = 0x48, .msn = 6, .payload = {0, 0, 0, 10, 0, 0, 0, 0}});
    expect_success(link.scq(), 6, IBV_WC_RDMA_WRITE);
    link.expect_nothing_for();
    expect_quiet(link.scq());
}

/* Whatever TCP makes of them; with markers, too. */
TEST(Rdmapx, CutAnywhere) {
    REQ("RDMAPX-03", "RDMAPX-18");
    for (uint8_t flags : {kMpaCrc, static_cast<uint8_t>(kMpaCrc | kMpaMarkers)}) {
        SCOPED_TRACE(unsigned{flags});
        Policy markers(Role::responder, "markers", (flags & kMpaMarkers) != 0 ? "on" : "off");
        Link link({.flags = flags});
        Words words(link.pd());
        auto say_in_pieces = [&](const Bytes &ulpdu, size_t piece) {
            Bytes octets = link.peer().writer().encode(ulpdu);
            link.peer().say(octets, SendPlan::every(piece, octets.size()));
        };
        uint32_t msn = 1;
        for (size_t piece : {1, 3, 7, 20, 71}) {
            uint64_t before = words[0].load();
            say_in_pieces(
                AtomicRequest::fetch_add(msn, words.stag(), words.to(0), piece).bytes(msn), piece);
            link.expect_ulpdu(AtomicResponse{msn, before}.bytes(msn));
            link.recv(msn, {});
            say_in_pieces(Immediate{.value = msn}.bytes(msn), piece);
            expect_immediate(link.rcq(), msn, IBV_WC_RECV_RDMA_WITH_IMM, msn, 0);
            msn++;
        }
        EXPECT_EQ(words[0].load(), 1U + 3 + 7 + 20 + 71);
    }
}

/* Fields that mean nothing make no difference. */
TEST(Rdmapx, IgnoredFields) {
    REQ("RDMAPX-02", "RDMAPX-05", "RDMAPX-08");
    Link link;
    Words words(link.pd());
    AtomicRequest add = AtomicRequest::fetch_add(1, words.stag(), words.to(0), 5);
    add.opcode |= 0xabcdef50; // the reserved bits
    add.compare = 0x1234;     // of a CmpSwap
    add.compare_mask = 0x4321;
    link.say(Untagged{.ddp = 0x7d, // reserved bits of DDP
                      .rdmap = 0x7a,
                      .invalidate = words.stag(),
                      .qn = 1,
                      .payload = add.payload()});
    link.expect_ulpdu(AtomicResponse{1, 0}.bytes(1));
    EXPECT_EQ(words[0].load(), 5U);
    AtomicRequest swap = AtomicRequest::cmp_swap(2, words.stag(), words.to(0), 5, 7);
    swap.opcode |= 0xfffffff0;
    link.say(swap.bytes(2));
    link.expect_ulpdu(AtomicResponse{2, 5}.bytes(2));
    EXPECT_EQ(words[0].load(), 7U);

    for (uint64_t i : {0, 1})
        link.recv(i, {});
    for (uint32_t i : {0, 1}) {
        link.say(Untagged{.ddp = 0x7d,
                          .rdmap = static_cast<uint8_t>(0x78 + i),
                          .invalidate = words.stag(),
                          .msn = i + 1,
                          .payload = Immediate{.value = 0x11 + i}.payload()});
        ibv_wc wc = expect_immediate(link.rcq(), i, IBV_WC_RECV_RDMA_WITH_IMM, 0x11 + i, 0);
        EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_INV, 0U);
    }

    post(link, fetch_add(3, 0, 1, 1), {words.region.sge(8, 8)});
    AtomicRequest ours = hear_atomic(link);
    link.say(Untagged{.ddp = 0x7d,
                      .rdmap = 0x7b,
                      .invalidate = words.stag(),
                      .qn = 3,
                      .payload = AtomicResponse{ours.id, 99}.payload()});
    expect_success(link.scq(), 3, IBV_WC_FETCH_ADD, 8);
    EXPECT_EQ(words[1].load(), 99U);
    /* The STag was not invalidated. */
    link.say(AtomicRequest::fetch_add(4, words.stag(), words.to(0), 1).bytes(3));
    link.expect_ulpdu(AtomicResponse{4, 7}.bytes(3));
}

/* The operations -------------------------------------------------------------- */

TEST(Rdmapx, FetchAdd) {
    REQ("RDMAPX-06", "RDMAPX-11", "RDMAPX-27");
    struct Row {
        uint64_t old, add, mask, result;
    };
    constexpr uint64_t kHalves = 0x8000000080000000, kBytes = 0x8080808080808080;
    const Row rows[] = {
        {7, 0, 0, 7},
        {40, 2, 0, 42},
        {kOnes, 1, 0, 0},
        {5, kOnes, 0, 4},
        {0xffffffff, 1, 0, 0x100000000},
        {0xffffffff, 1, kHalves, 0},
        {0x80000000, 0x80000000, kHalves, 0},
        {0x7fffffff, 1, kHalves, 0x80000000},
        {kOnes, 0x0000000100000002, kHalves, 0x0000000000000001},
        {kOnes, 1, uint64_t{1} << 63, 0},
        {0x00ff7f8001fe10f0, 0x0101018101020f10, kBytes, 0x0100800102001f00},
        {0xf0f0f0f0f0f0f0f0, 0xffff0000ffff0000, kOnes, 0x0f0ff0f00f0ff0f0},
    };
    Link link;
    Words words(link.pd());
    uint32_t msn = 1;
    for (const Row &row : rows) {
        SCOPED_TRACE(fmt::format("{:#x} + {:#x}, mask {:#x}", row.old, row.add, row.mask));
        words[5] = row.old;
        AtomicRequest request = AtomicRequest::fetch_add(msn, words.stag(), words.to(5), row.add);
        request.mask = row.mask;
        link.say(request.bytes(msn));
        link.expect_ulpdu(AtomicResponse{msn, row.old}.bytes(msn));
        EXPECT_EQ(words[5].load(), row.result);
        msn++;
    }
}

TEST(Rdmapx, CmpSwap) {
    REQ("RDMAPX-07", "RDMAPX-11", "RDMAPX-27");
    struct Row {
        uint64_t old, compare, compare_mask, swap, mask, result;
    };
    const Row rows[] = {
        {5, 5, kOnes, 9, kOnes, 9},
        {5, 4, kOnes, 9, kOnes, 5},
        {uint64_t{1} << 63, 0, kOnes, 9, kOnes, uint64_t{1} << 63},
        {0x1234, 0x1299, 0xff00, 0x5678, kOnes, 0x5678},
        {0x1234, 0x9934, 0xff00, 0x5678, kOnes, 0x1234},
        {0x1234, 0x9999, 0, 0x5678, kOnes, 0x5678},
        {0xaaaaaaaaaaaaaaaa, 0xaaaaaaaaaaaaaaaa, kOnes, 0x5555555555555555, 0xffff0000,
         0xaaaaaaaa5555aaaa},
        {7, 7, kOnes, 9, 0, 7},
        {0xcafe0000, 0xffffffffcafeffff, 0xffff0000, 0x1111111111111111, 0xffffffff00000000,
         0x11111111cafe0000},
    };
    Link link;
    Words words(link.pd());
    uint32_t msn = 1;
    for (const Row &row : rows) {
        SCOPED_TRACE(fmt::format("{:#x} = {:#x}, masks {:#x} {:#x}", row.old, row.compare,
                                 row.compare_mask, row.mask));
        words[5] = row.old;
        AtomicRequest request =
            AtomicRequest::cmp_swap(msn, words.stag(), words.to(5), row.compare, row.swap);
        request.mask = row.mask;
        request.compare_mask = row.compare_mask;
        link.say(request.bytes(msn));
        link.expect_ulpdu(AtomicResponse{msn, row.old}.bytes(msn));
        EXPECT_EQ(words[5].load(), row.result);
        msn++;
    }
}

/*
 * Streams of several consumers and the processor itself count on one word: none
 * of them is lost, and no two of them saw the same value.
 */
TEST(Rdmapx, Atomicity) {
    REQ("RDMAPX-14", "RDMAPX-06", "RDMAPX-07");
    constexpr unsigned kLinks = 4;
    constexpr uint32_t kWindow = 16;
    const uint32_t rounds = full_or_quick(200U, 50U);
    Buffer buffer(4096);
    std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t *>(buffer.at(1024)));
    std::vector<std::unique_ptr<Link>> links;
    std::vector<Mr> mrs;
    for (unsigned i = 0; i < kLinks; i++) {
        links.push_back(std::make_unique<Link>());
        mrs.push_back(register_memory(links[i]->pd(), buffer.data(), buffer.size(), kAtomic));
    }
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(links[0]->context(), &attr), 0);
    ASSERT_EQ(attr.atomic_cap, IBV_ATOMIC_GLOB);

    std::vector<std::vector<uint64_t>> seen(kLinks + 1);
    std::atomic<unsigned> busy{kLinks};
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < kLinks; i++)
        threads.emplace_back([&, i] {
            uint32_t msn = 1;
            try {
                for (uint32_t round = 0; round < rounds; round++) {
                    Bytes all;
                    for (uint32_t k = 0; k < kWindow; k++)
                        append(all, links[i]->peer().writer().encode(
                                        AtomicRequest::fetch_add(msn + k, mrs[i]->rkey,
                                                                 buffer.addr(1024), 1)
                                            .bytes(msn + k)));
                    links[i]->peer().say(all);
                    for (uint32_t k = 0; k < kWindow; k++) {
                        AtomicResponse answer = AtomicResponse::parse(links[i]->hear().payload);
                        EXPECT_EQ(answer.id, msn + k);
                        seen[i].push_back(answer.value);
                    }
                    msn += kWindow;
                }
            } catch (const Failure &failure) {
                ADD_FAILURE() << failure.what();
            }
            busy--;
        });
    while (busy != 0) {
        seen[kLinks].push_back(word.fetch_add(1));
        if (seen[kLinks].size() % 16 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    threads.clear();
    uint64_t count = uint64_t{kLinks} * rounds * kWindow + seen[kLinks].size();
    EXPECT_EQ(word.load(), count);
    std::vector<uint64_t> all;
    for (const std::vector<uint64_t> &one : seen) {
        EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
        all.insert(all.end(), one.begin(), one.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), count);
    for (uint64_t i = 0; i < count; i++)
        if (all[i] != i) {
            ADD_FAILURE() << "value " << i << " was seen by nobody, or by two";
            break;
        }
}

/* Atomics and reads ------------------------------------------------------------- */

/* Both are numbered on queue 1, take effect in turn, and are answered in turn. */
TEST_P(RdmapxRole, InOrderWithReads) {
    REQ("RDMAPX-12", "RDMAPX-13", "RDMAPX-23", "RDMAPX-36");
    Link link({.role = GetParam()});
    Words words(link.pd());
    words[0] = 100;
    auto read = [&](uint32_t msn) {
        return ReadRequest{.sink_stag = msn,
                           .sink_to = 0,
                           .size = 8,
                           .src_stag = words.stag(),
                           .src_to = words.to(0)}
            .bytes(msn);
    };
    auto add = [&](uint32_t msn, uint64_t value) {
        return AtomicRequest::fetch_add(msn, words.stag(), words.to(0), value).bytes(msn);
    };
    auto answer = [&](uint32_t msn, uint64_t value) {
        Bytes octets(8);
        std::memcpy(octets.data(), &value, 8);
        link.expect_ulpdu(
            Tagged{.rdmap = rdmap_of(kOpReadResponse), .stag = msn, .payload = octets});
    };
    say_at_once(link,
                {read(1), add(2, 1), read(3), add(4, 10), add(5, 100), read(6),
                 AtomicRequest::cmp_swap(7, words.stag(), words.to(0), 211, 5).bytes(7), read(8)});
    answer(1, 100);
    link.expect_ulpdu(AtomicResponse{2, 100}.bytes(1));
    answer(3, 101);
    link.expect_ulpdu(AtomicResponse{4, 101}.bytes(2));
    link.expect_ulpdu(AtomicResponse{5, 111}.bytes(3));
    answer(6, 211);
    link.expect_ulpdu(AtomicResponse{7, 211}.bytes(4));
    answer(8, 5);
    link.expect_works();
}

/* What is written before an atomic is what it finds. */
TEST(Rdmapx, WriteThenAtomic) {
    REQ("RDMAPX-23", "RDMAPX-13", "RDMAPX-30");
    Link link;
    Words words(link.pd(), 8, kAtomic | IBV_ACCESS_REMOTE_WRITE);
    for (uint32_t i = 1; i <= 20; i++) {
        uint64_t value = splitmix(i);
        Bytes octets(8);
        std::memcpy(octets.data(), &value, 8);
        say_at_once(link,
                    {Tagged{.stag = words.stag(), .to = words.to(2), .payload = octets}.bytes(),
                     AtomicRequest::fetch_add(i, words.stag(), words.to(2), i).bytes(i)});
        link.expect_ulpdu(AtomicResponse{i, value}.bytes(i));
        EXPECT_EQ(words[2].load(), value + i);
    }
}

/* IRD is for both together. */
TEST(Rdmapx, InboundLimit) {
    REQ("RDMAPX-12", "RDMAPX-28");
    for (uint16_t ird : {1, 2, 5}) {
        for (bool last_is_atomic : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {}", ird, last_is_atomic));
            Link link(with_depths(ird, 1));
            Words words(link.pd());
            uint32_t msn = 1, atomics = 0;
            auto any = [&](bool atomic) {
                uint32_t number = msn++;
                return atomic ? AtomicRequest::fetch_add(number, words.stag(), words.to(0), 1)
                                    .bytes(number)
                              : ReadRequest{.sink_stag = number,
                                            .size = 8,
                                            .src_stag = words.stag(),
                                            .src_to = words.to(1)}
                                    .bytes(number);
            };
            for (int round = 0; round < 3; round++) {
                Bytes all;
                for (uint32_t i = 0; i < ird; i++)
                    append(all, link.peer().writer().encode(any(i % 2 == 0)));
                link.peer().say(all);
                for (uint32_t i = 0; i < ird; i++) {
                    Segment segment = link.hear();
                    EXPECT_EQ(segment.opcode(), i % 2 == 0 ? kOpAtomicResponse : kOpReadResponse);
                    if (i % 2 == 0) {
                        EXPECT_EQ(AtomicResponse::parse(segment.payload).value, atomics++);
                    }
                }
            }
            Bytes all, last;
            for (uint32_t i = 0; i < ird; i++)
                append(all, link.peer().writer().encode(any(i % 2 != 0)));
            last = any(last_is_atomic);
            append(all, link.peer().writer().encode(last));
            link.peer().say(all);
            link.skip_to_terminate(1, 2, 0x02, Headers::ddp(last));
            link.expect_async(IBV_EVENT_QP_REQ_ERR);
            link.expect_disconnected();
        }
    }
}

/* And so is ORD; answers have to come in the order of the requests. */
TEST_P(RdmapxRole, OutboundLimit) {
    REQ("RDMAPX-12", "RDMAPX-13", "RDMAPX-16", "RDMAPX-28", "RDMAPX-32");
    constexpr uint16_t kOrd = 2;
    Link link(with_depths(4, kOrd, GetParam()));
    Words words(link.pd(), 16);
    constexpr uint64_t kCount = 8;
    for (uint64_t i = 0; i < kCount; i++) {
        if (i % 3 == 1)
            link.read(i, {words.region.sge(8 * i, 8)}, 8 * i, 0x100);
        else
            post(link, fetch_add(i, 8 * i, 0x100, i), {words.region.sge(8 * i, 8)});
    }
    std::vector<Segment> heard;
    for (uint16_t i = 0; i < kOrd; i++)
        heard.push_back(link.hear());
    link.expect_nothing_for();
    uint32_t atomics = 0;
    for (uint64_t i = 0; i < kCount; i++) {
        const Segment segment = heard.at(i);
        EXPECT_EQ(segment.qn, 1U);
        EXPECT_EQ(segment.msn, i + 1);
        expect_quiet(link.scq(), milliseconds(5));
        if (i % 3 == 1) {
            ReadRequest request = ReadRequest::parse(segment.payload);
            EXPECT_EQ(request.src_to, 8 * i);
            link.say(Tagged{.rdmap = rdmap_of(kOpReadResponse),
                            .stag = request.sink_stag,
                            .to = request.sink_to,
                            .payload = Bytes(8, static_cast<uint8_t>(i))});
            expect_success(link.scq(), i, IBV_WC_RDMA_READ, 8);
            EXPECT_EQ(words[i].load(), i * 0x0101010101010101);
        } else {
            AtomicRequest request = AtomicRequest::parse(segment.payload);
            EXPECT_EQ(request.to, 8 * i);
            link.say(AtomicResponse{request.id, 1000 + i}.bytes(++atomics));
            expect_success(link.scq(), i, IBV_WC_FETCH_ADD, 8);
            EXPECT_EQ(words[i].load(), 1000 + i);
        }
        if (i + kOrd < kCount) {
            heard.push_back(link.hear());
            link.expect_nothing_for(milliseconds(10));
        }
    }
    link.expect_works();
}

/* As many as were granted, of both kinds, answered all at once. */
TEST_P(RdmapxRole, AllPlacesInUse) {
    REQ("RDMAPX-28", "RDMAPX-12");
    for (uint16_t ord : {1, 7, 16}) {
        SCOPED_TRACE(ord);
        Link link(with_depths(4, ord, GetParam()));
        Words words(link.pd(), 16);
        uint32_t atomics = 0;
        for (int round = 0; round < 2; round++) {
            for (uint64_t i = 0; i < ord; i++)
                if (i % 4 == 3)
                    link.read(i, {words.region.sge(8 * i, 8)}, 8 * i, 0x100);
                else
                    post(link, fetch_add(i, 8 * i, 0x100, i), {words.region.sge(8 * i, 8)});
            Bytes answers;
            for (uint64_t i = 0; i < ord; i++) {
                Segment segment = link.hear();
                ASSERT_EQ(segment.qn, 1U);
                Bytes answer;
                if (segment.opcode() == kOpReadRequest) {
                    ReadRequest request = ReadRequest::parse(segment.payload);
                    answer = Tagged{.rdmap = rdmap_of(kOpReadResponse),
                                    .stag = request.sink_stag,
                                    .to = request.sink_to,
                                    .payload = Bytes(8, static_cast<uint8_t>(i))}
                                 .bytes();
                } else {
                    AtomicRequest request = AtomicRequest::parse(segment.payload);
                    answer = AtomicResponse{request.id, 500 + i}.bytes(++atomics);
                }
                append(answers, link.peer().writer().encode(answer));
            }
            link.peer().say(answers);
            for (uint64_t i = 0; i < ord; i++) {
                bool read = i % 4 == 3;
                expect_success(link.scq(), i, read ? IBV_WC_RDMA_READ : IBV_WC_FETCH_ADD, 8);
                EXPECT_EQ(words[i].load(), read ? i * 0x0101010101010101 : 500 + i);
            }
        }
        link.expect_works();
    }
}

/* An atomic is nothing for the program whose memory it works on. */
TEST(Rdmapx, NotShownToTheProgram) {
    REQ("RDMAPX-29");
    Link link;
    Words words(link.pd());
    for (uint64_t i = 0; i < 3; i++)
        link.recv(i, {});
    for (uint32_t i = 1; i <= 20; i++) {
        link.say(AtomicRequest::fetch_add(i, words.stag(), words.to(0), 1).bytes(i));
        link.expect_ulpdu(AtomicResponse{i, i - 1}.bytes(i));
    }
    expect_quiet(link.rcq());
    expect_quiet(link.scq(), milliseconds(0));
    link.expect_nothing_for(milliseconds(10));
    link.say(Untagged{});
    expect_success(link.rcq(), 0, IBV_WC_RECV, 0);
}

/* Writes and Sends of the peer come in while an atomic of ours waits for its answer. */
TEST_P(RdmapxRole, AnswerBehindLaterMessages) {
    REQ("RDMAPX-31", "RDMAPX-32");
    Link link({.role = GetParam()});
    Words words(link.pd());
    Region to(link.pd(), 4096);
    post(link, fetch_add(1, 0x100, 0x33, 1), {words.region.sge(0, 8)});
    AtomicRequest request = hear_atomic(link);
    for (uint32_t i = 1; i <= 3; i++) {
        link.recv(i, {to.sge(64 * i, 64)});
        link.say(Tagged{.stag = to.rkey(), .to = to.addr(1024 * i), .payload = pattern(1000, i)});
        link.say(Untagged{.msn = i, .payload = pattern(64, i + 10)});
        expect_success(link.rcq(), i, IBV_WC_RECV, 64);
        expect_pattern(to.at(64 * i), 64, i + 10);
        expect_pattern(to.at(1024 * i), 1000, i);
    }
    expect_quiet(link.scq());
    EXPECT_EQ(words[0].load(), 0U);
    link.say(AtomicResponse{request.id, 77}.bytes(1));
    expect_success(link.scq(), 1, IBV_WC_FETCH_ADD, 8);
    EXPECT_EQ(words[0].load(), 77U);
}

/* What cannot be made is not sent: a Terminate without headers is, in its place. */
TEST_P(RdmapxRole, LocalErrors) {
    REQ("RDMAPX-33");
    for (int which = 0; which < 5; which++) {
        SCOPED_TRACE(which);
        Link link({.role = GetParam()});
        Words words(link.pd());
        Region read_only(link.pd(), 64, IBV_ACCESS_REMOTE_READ);
        const ibv_sge unknown{words.to(0), 8, words.stag() ^ 1};
        const ibv_sge beyond{words.to(8), 8, words.stag()};
        link.send(1, {});
        link.expect_ulpdu(Untagged{});
        expect_success(link.scq(), 1, IBV_WC_SEND);
        switch (which) {
        case 0: post(link, fetch_add(2, 0, 1, 1), {unknown}); break;
        case 1: post(link, cmp_swap(2, 0, 1, 1, 1), {beyond}); break;
        case 2: /* the answer could not be written */
            post(link, fetch_add(2, 0, 1, 1), {read_only.sge(0, 8)});
            break;
        case 3: post(link, write_imm(2, 0, 1, 1), {unknown}); break;
        default: post(link, write_imm(2, 0, 1, 1), {beyond});
        }
        link.expect_terminate(0, 0, 0x00, Headers::none());
        EXPECT_EQ(next_wc(link.scq()).status, IBV_WC_LOC_PROT_ERR);
        link.expect_disconnected();
    }
}

/* No outbound reads were granted: an atomic is the poster's error, and not sent. */
TEST(Rdmapx, NoOutboundReads) {
    REQ("RDMAPX-12");
    Link link(with_depths(1, 0));
    Words words(link.pd());
    post(link, fetch_add(1, 0, 1, 1), {words.region.sge(0, 8)});
    link.expect_terminate(0, 0, 0x00, Headers::none());
    expect_vendor(link.scq(), 1, IBV_WC_LOC_QP_OP_ERR, found(0, 0, 0));
    link.expect_disconnected();
}

/* A fence waits for atomics as for reads; completions come as requests were posted. */
TEST_P(RdmapxRole, MixedOrder) {
    REQ("RDMAPX-12", "RDMAPX-16", "RDMAPX-20", "RDMAPX-23", "RDMAPX-32", "RDMAPX-34");
    Link link({.role = GetParam()});
    Words words(link.pd());
    words[7] = 0x7777777777777777;
    post(link, write_imm(0, 0x100, 0x1, 0xaa), {words.region.sge(56, 8)});
    link.send(1, {words.region.sge(56, 1)});
    post(link, fetch_add(2, 0x200, 0x2, 1), {words.region.sge(0, 8)});
    link.read(3, {words.region.sge(8, 8)}, 0x300, 0x3);
    post(link, send_imm(4, 0xbb));
    post(link, cmp_swap(5, 0x400, 0x4, 1, 2), {words.region.sge(16, 8)});
    post(link, write_imm(6, 0x500, 0x5, 0xcc), {}, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    post(link, fetch_add(7, 0x600, 0x6, 1), {words.region.sge(24, 8)},
         IBV_SEND_SIGNALED | IBV_SEND_FENCE);

    link.expect_ulpdu(Tagged{.stag = 1, .to = 0x100, .payload = Bytes(8, 0x77)});
    link.expect_ulpdu(Immediate{.value = 0xaa}.bytes(1));
    link.expect_ulpdu(Untagged{.msn = 2, .payload = {0x77}});
    AtomicRequest add = hear_atomic(link);
    Segment read = link.hear();
    EXPECT_EQ(read.msn, 2U);
    ASSERT_EQ(read.opcode(), kOpReadRequest);
    link.expect_ulpdu(Immediate{.value = 0xbb, .rest = 1}.bytes(3));
    Segment third = link.hear();
    EXPECT_EQ(third.msn, 3U);
    ASSERT_EQ(third.opcode(), kOpAtomicRequest);
    AtomicRequest swap = AtomicRequest::parse(third.payload);
    expect_success(link.scq(), 0, IBV_WC_RDMA_WRITE);
    expect_success(link.scq(), 1, IBV_WC_SEND);
    link.expect_nothing_for();
    expect_quiet(link.scq());

    link.say(AtomicResponse{add.id, 1}.bytes(1));
    expect_success(link.scq(), 2, IBV_WC_FETCH_ADD, 8);
    expect_quiet(link.scq());
    ReadRequest request = ReadRequest::parse(read.payload);
    link.say(Tagged{.rdmap = rdmap_of(kOpReadResponse),
                    .stag = request.sink_stag,
                    .to = request.sink_to,
                    .payload = Bytes(8, 2)});
    expect_success(link.scq(), 3, IBV_WC_RDMA_READ, 8);
    expect_success(link.scq(), 4, IBV_WC_SEND);
    link.expect_nothing_for();
    link.say(AtomicResponse{swap.id, 3}.bytes(2));
    expect_success(link.scq(), 5, IBV_WC_COMP_SWAP, 8);
    link.expect_ulpdu(Tagged{.stag = 5, .to = 0x500});
    link.expect_ulpdu(Immediate{.value = 0xcc}.bytes(4));
    expect_success(link.scq(), 6, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(hear_atomic(link).to, 0x600U);
    EXPECT_EQ(words[0].load(), 1U);
    EXPECT_EQ(words[1].load(), 0x0202020202020202U);
    EXPECT_EQ(words[2].load(), 3U);
}

/* Immediate data --------------------------------------------------------------- */

/* Each takes a receive of queue 0, in turn with Sends, and puts nothing in it. */
TEST_P(RdmapxRole, ImmediateTakesAReceive) {
    REQ("RDMAPX-18", "RDMAPX-19", "RDMAPX-22", "RDMAPX-23", "RDMAPX-34");
    Link link({.role = GetParam()});
    Region memory(link.pd(), 1024);
    memory.buffer.set(0x5a);
    for (uint64_t i = 0; i < 6; i++)
        link.recv(i, {memory.sge(64 * i, 64)});
    say_at_once(link, {
                          Immediate{.value = 0x01020304}.bytes(1),
                          Untagged{.msn = 2, .payload = pattern(10, 1)}.bytes(),
                          Immediate{.value = 0xffffffff, .solicited = true}.bytes(3),
                          Immediate{.value = 0, .rest = 1}.bytes(4),
                          Untagged{.msn = 5}.bytes(),
                          Immediate{.value = 6, .rest = 0xdeadbeef}.bytes(6),
                      });
    expect_immediate(link.rcq(), 0, IBV_WC_RECV_RDMA_WITH_IMM, 0x01020304, 0);
    EXPECT_EQ(expect_success(link.rcq(), 1, IBV_WC_RECV, 10).wc_flags, 0U);
    expect_immediate(link.rcq(), 2, IBV_WC_RECV_RDMA_WITH_IMM, 0xffffffff, 0);
    /* Ours says in the last octet that there is no Write. */
    expect_immediate(link.rcq(), 3, IBV_WC_RECV, 0, 0);
    EXPECT_EQ(expect_success(link.rcq(), 4, IBV_WC_RECV, 0).wc_flags, 0U);
    expect_immediate(link.rcq(), 5, IBV_WC_RECV_RDMA_WITH_IMM, 6, 0);
    expect_pattern(memory.at(64), 10, 1);
    for (size_t i : {0, 2, 3, 4, 5})
        expect_value(memory.at(64 * i), 64, 0x5a, "a receive of immediate data");
    link.send_msn = 7;
    link.expect_works();
}

/* When the immediate data are delivered the Write is placed, all of it. */
TEST(Rdmapx, WriteThenImmediate) {
    REQ("RDMAPX-20", "RDMAPX-22");
    Link link;
    const size_t lengths[] = {0, 1, 1460, 5000, 70000};
    Region memory(link.pd(), 70000);
    uint32_t msn = 1;
    for (size_t length : lengths) {
        SCOPED_TRACE(length);
        memory.buffer.set(0);
        link.recv(msn, {});
        Bytes data = pattern(length, msn), all;
        size_t at = 0;
        do {
            size_t piece = std::min<size_t>(1440, length - at);
            bool last = at + piece == length;
            Tagged segment{
                .ddp = static_cast<uint8_t>(kDdpTagged | kDdpVersion | (last ? kDdpLast : 0)),
                .stag = memory.rkey(),
                .to = memory.addr(at)};
            segment.payload.assign(data.begin() + static_cast<long>(at),
                                   data.begin() + static_cast<long>(at + piece));
            append(all, link.peer().writer().encode(segment.bytes()));
            at += piece;
        } while (at < length);
        append(all, link.peer().writer().encode(Immediate{.value = msn}.bytes(msn)));
        link.peer().say(all);
        expect_immediate(link.rcq(), msn, IBV_WC_RECV_RDMA_WITH_IMM, msn,
                         static_cast<uint32_t>(length));
        expect_pattern(memory.at(0), length, msn);
        msn++;
    }
    /* The length is that of the Write right before, or none. */
    for (uint64_t i = 0; i < 4; i++)
        link.recv(100 + i, {memory.all()});
    Bytes write = Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = Bytes(5)}.bytes();
    say_at_once(link, {write, write, Immediate{.value = 1}.bytes(msn), // of the second
                       Immediate{.value = 2}.bytes(msn + 1),           // of none
                       write, Untagged{.msn = msn + 2, .payload = {1}}.bytes(),
                       Immediate{.value = 3}.bytes(msn + 3)});
    expect_immediate(link.rcq(), 100, IBV_WC_RECV_RDMA_WITH_IMM, 1, 5);
    expect_immediate(link.rcq(), 101, IBV_WC_RECV_RDMA_WITH_IMM, 2, 0);
    expect_success(link.rcq(), 102, IBV_WC_RECV, 1);
    expect_immediate(link.rcq(), 103, IBV_WC_RECV_RDMA_WITH_IMM, 3, 0);
}

/* A Write by chance in front of what stands alone is not its Write. */
TEST(Rdmapx, AloneBehindAWrite) {
    REQ("RDMAPX-22");
    Link link;
    Region memory(link.pd(), 64);
    link.recv(1, {});
    say_at_once(link,
                {Tagged{.stag = memory.rkey(), .to = memory.addr(), .payload = Bytes(5)}.bytes(),
                 Immediate{.value = 7, .rest = 1}.bytes(1)});
    expect_immediate(link.rcq(), 1, IBV_WC_RECV, 7, 0);
}

TEST(Rdmapx, SolicitedEvents) {
    REQ("RDMAPX-21");
    Link link({.qp = {.events = true}});
    for (uint64_t i = 0; i < 4; i++)
        link.recv(i, {});
    ASSERT_EQ(ibv_req_notify_cq(link.rcq(), 1), 0);
    link.say(Immediate{.value = 1}.bytes(1));
    expect_immediate(link.rcq(), 0, IBV_WC_RECV_RDMA_WITH_IMM, 1, 0);
    EXPECT_TRUE(no_cq_event(link.ours().completions()));
    link.say(Immediate{.value = 2, .solicited = true}.bytes(2));
    EXPECT_EQ(next_cq_event(link.ours().completions()), link.rcq());
    expect_immediate(link.rcq(), 1, IBV_WC_RECV_RDMA_WITH_IMM, 2, 0);
    /* Any completion, when that was asked for. */
    ASSERT_EQ(ibv_req_notify_cq(link.rcq(), 0), 0);
    link.say(Immediate{.value = 3}.bytes(3));
    EXPECT_EQ(next_cq_event(link.ours().completions()), link.rcq());
    expect_immediate(link.rcq(), 2, IBV_WC_RECV_RDMA_WITH_IMM, 3, 0);
}

/* What is wrong ------------------------------------------------------------------- */

/* Memory in all its kinds, for somebody who wants to do atomics on it. */
struct Kinds {
    explicit Kinds(const Link &link)
        : good(link.pd(), 4096, kAtomic), plain(link.pd(), 4096, kAll),
          local(link.pd(), 4096, kLocal), other_pd(alloc_pd(link.context())),
          foreign(other_pd.get(), 4096, kAtomic), odd_buffer(4096),
          odd(ibv_reg_mr(link.pd(), odd_buffer.at(4), 64, kAtomic | IBV_ACCESS_ZERO_BASED)) {
        require(odd != nullptr, "a region with an odd address");
        dead_stag = register_memory(link.pd(), good.at(0), 4096, kAtomic)->rkey;
        for (const Buffer *buffer : all())
            buffer->set(0x5a);
    }
    std::vector<const Buffer *> all() const {
        return {&good.buffer, &plain.buffer, &local.buffer, &foreign.buffer, &odd_buffer};
    }

    Region good, plain, local;
    Pd other_pd;
    Region foreign;
    Buffer odd_buffer;
    Mr odd; // zero-based, so offset 0 is aligned and the address is not
    uint32_t dead_stag;
};

struct Fault {
    const char *name;
    const char *requirements;
    Bytes (*ulpdu)(const Kinds &);
    unsigned layer, etype, code;
    ibv_event_type event;
};

void PrintTo(const Fault &fault, std::ostream *to) {
    *to << fault.name;
}

Bytes add_at(uint32_t stag, uint64_t to) {
    return AtomicRequest::fetch_add(1, stag, to, 1).bytes(1);
}

Bytes with_opcode(const Kinds &m, uint32_t opcode) {
    AtomicRequest request = AtomicRequest::cmp_swap(1, m.good.rkey(), m.good.addr(), 1, 2);
    request.opcode = opcode;
    return request.bytes(1);
}

/* A good Atomic Request with another length, queue, place or last bit. */
Bytes odd_request(const Kinds &m, size_t length, uint32_t qn = 1, uint8_t ddp = 0x41,
                  uint32_t mo = 0, uint32_t msn = 1) {
    Bytes payload = AtomicRequest::fetch_add(1, m.good.rkey(), m.good.addr(), 1).payload();
    payload.resize(length);
    return Untagged{.ddp = ddp,
                    .rdmap = rdmap_of(kOpAtomicRequest),
                    .qn = qn,
                    .msn = msn,
                    .mo = mo,
                    .payload = payload}
        .bytes();
}

Bytes odd_immediate(size_t length, uint32_t qn = 0, uint8_t ddp = 0x41, uint32_t mo = 0,
                    uint32_t msn = 1) {
    return Untagged{.ddp = ddp,
                    .rdmap = rdmap_of(kOpImmediate),
                    .qn = qn,
                    .msn = msn,
                    .mo = mo,
                    .payload = Bytes(length, 1)}
        .bytes();
}

#define ULPDU(expression)                                                                          \
    [](const Kinds &m) -> Bytes {                                                                  \
        (void)m;                                                                                   \
        return expression;                                                                         \
    }

constexpr auto kReq = IBV_EVENT_QP_REQ_ERR;
constexpr auto kAcc = IBV_EVENT_QP_ACCESS_ERR;

const Fault kFaults[] = {
    /* Operations that are none */
    {"Operation1", "RDMAPX-05", ULPDU(with_opcode(m, 1)), 0, 2, 0x06, kReq},
    {"Operation3", "RDMAPX-05", ULPDU(with_opcode(m, 3)), 0, 2, 0x06, kReq},
    {"Operation15", "RDMAPX-05", ULPDU(with_opcode(m, 15)), 0, 2, 0x06, kReq},
    {"Operation15Reserved", "RDMAPX-05", ULPDU(with_opcode(m, 0x3f)), 0, 2, 0x06, kReq},
    /* Alignment: of the memory, wherever the offset puts it */
    {"Offset1", "RDMAPX-10", ULPDU(add_at(m.good.rkey(), m.good.addr(1))), 0, 2, 0x07, kReq},
    {"Offset4", "RDMAPX-10", ULPDU(add_at(m.good.rkey(), m.good.addr(4))), 0, 2, 0x07, kReq},
    {"Offset4084", "RDMAPX-10", ULPDU(add_at(m.good.rkey(), m.good.addr(4084))), 0, 2, 0x07, kReq},
    {"BoundsBeforeAddress", "RDMAPX-10 RDMAPX-15", ULPDU(add_at(m.good.rkey(), m.good.addr(4092))),
     0, 1, 0x01, kAcc},
    {"OddAddress", "RDMAPX-10", ULPDU(add_at(m.odd->rkey, 0)), 0, 2, 0x07, kReq},
    {"OddAddress8", "RDMAPX-10", ULPDU(add_at(m.odd->rkey, 8)), 0, 2, 0x07, kReq},
    {"OddAddress5", "RDMAPX-10", ULPDU(add_at(m.odd->rkey, 5)), 0, 2, 0x07, kReq},
    /* What an offset stands for shows when the STag is known */
    {"StagBeforeAddress", "RDMAPX-10 RDMAPX-15", ULPDU(add_at(m.dead_stag, 4)), 0, 1, 0x00, kAcc},
    {"RightBeforeAddress", "RDMAPX-10 RDMAPX-15", ULPDU(add_at(m.plain.rkey(), m.plain.addr(4))), 0,
     1, 0x02, kAcc},
    {"OperationBeforeOffset", "RDMAPX-05 RDMAPX-10",
     ULPDU((AtomicRequest{.opcode = 9, .stag = m.good.rkey(), .to = 1}.bytes(1))), 0, 2, 0x06,
     kReq},
    /* Memory that is not there for this */
    {"UnknownStag", "RDMAPX-15", ULPDU(add_at(m.good.rkey() ^ 0x5a5a5a00, m.good.addr())), 0, 1,
     0x00, kAcc},
    {"WrongKey", "RDMAPX-15", ULPDU(add_at(m.good.rkey() ^ 1, m.good.addr())), 0, 1, 0x00, kAcc},
    {"DeadStag", "RDMAPX-15", ULPDU(add_at(m.dead_stag, m.good.addr())), 0, 1, 0x00, kAcc},
    {"OtherPd", "RDMAPX-15", ULPDU(add_at(m.foreign.rkey(), m.foreign.addr())), 0, 1, 0x03, kAcc},
    {"Below", "RDMAPX-15", ULPDU(add_at(m.good.rkey(), m.good.addr() - 8)), 0, 1, 0x01, kAcc},
    {"Behind", "RDMAPX-15", ULPDU(add_at(m.good.rkey(), m.good.addr(4096))), 0, 1, 0x01, kAcc},
    {"HalfBehind", "RDMAPX-15", ULPDU(add_at(m.odd->rkey, 64)), 0, 1, 0x01, kAcc},
    {"Wraps", "RDMAPX-15", ULPDU(add_at(m.good.rkey(), kOnes - 7)), 0, 1, 0x04, kAcc},
    {"ReadAndWriteOnly", "RDMAPX-15", ULPDU(add_at(m.plain.rkey(), m.plain.addr())), 0, 1, 0x02,
     kAcc},
    {"LocalMemory", "RDMAPX-15", ULPDU(add_at(m.local.rkey(), m.local.addr())), 0, 1, 0x02, kAcc},
    /* Requests that are not 52 octets in one segment of queue 1 */
    {"RequestTooShort", "RDMAPX-03", ULPDU(odd_request(m, 51)), 0, 2, 0xff, kReq},
    {"RequestEmpty", "RDMAPX-03", ULPDU(odd_request(m, 0)), 0, 2, 0xff, kReq},
    {"RequestTooLong", "RDMAPX-03", ULPDU(odd_request(m, 53)), 1, 2, 0x05, kReq},
    {"RequestNotLast", "RDMAPX-03", ULPDU(odd_request(m, 52, 1, 0x01)), 1, 2, 0x05, kReq},
    {"RequestAtOffset", "RDMAPX-03 RDMAPX-12", ULPDU(odd_request(m, 52, 1, 0x41, 8)), 1, 2, 0x04,
     kReq},
    {"RequestOutOfOrder", "RDMAPX-12", ULPDU(odd_request(m, 52, 1, 0x41, 0, 2)), 1, 2, 0x03, kReq},
    {"RequestOnQueue0", "RDMAPX-02", ULPDU(odd_request(m, 52, 0)), 0, 2, 0x06, kReq},
    {"RequestOnQueue2", "RDMAPX-02", ULPDU(odd_request(m, 52, 2)), 0, 2, 0x06, kReq},
    {"RequestOnQueue4", "RDMAPX-02", ULPDU(odd_request(m, 52, 4)), 1, 2, 0x01, kReq},
    {"RequestTagged", "RDMAPX-02", ULPDU((Tagged{.rdmap = 0x4a, .payload = Bytes(52)}.bytes())), 0,
     2, 0x06, kReq},
    /* Immediate data that are not eight octets in one segment of queue 0 */
    {"ImmediateEmpty", "RDMAPX-18", ULPDU(odd_immediate(0)), 0, 2, 0xff, kReq},
    {"ImmediateOf4", "RDMAPX-18", ULPDU(odd_immediate(4)), 0, 2, 0xff, kReq},
    {"ImmediateOf7", "RDMAPX-18", ULPDU(odd_immediate(7)), 0, 2, 0xff, kReq},
    {"ImmediateOf9", "RDMAPX-18", ULPDU(odd_immediate(9)), 0, 2, 0xff, kReq},
    {"ImmediateOf1000", "RDMAPX-18", ULPDU(odd_immediate(1000)), 0, 2, 0xff, kReq},
    {"ImmediateNotLast", "RDMAPX-18", ULPDU(odd_immediate(8, 0, 0x01)), 0, 2, 0xff, kReq},
    {"ImmediateAtOffset", "RDMAPX-18", ULPDU(odd_immediate(8, 0, 0x41, 8)), 1, 2, 0x04, kReq},
    {"ImmediateOutOfOrder", "RDMAPX-19", ULPDU(odd_immediate(8, 0, 0x41, 0, 2)), 1, 2, 0x03, kReq},
    {"ImmediateTwice", "RDMAPX-19", ULPDU(odd_immediate(8, 0, 0x41, 0, 0)), 1, 2, 0x03, kReq},
    {"ImmediateOnQueue1", "RDMAPX-02", ULPDU(odd_immediate(8, 1)), 0, 2, 0x06, kReq},
    {"ImmediateOnQueue2", "RDMAPX-02", ULPDU(odd_immediate(8, 2)), 0, 2, 0x06, kReq},
    {"ImmediateTagged", "RDMAPX-02", ULPDU((Tagged{.rdmap = 0x48, .payload = Bytes(8)}.bytes())), 0,
     2, 0x06, kReq},
    {"ImmediateSeTagged", "RDMAPX-02", ULPDU((Tagged{.rdmap = 0x49, .payload = Bytes(8)}.bytes())),
     0, 2, 0x06, kReq},
    /* What RFC 5040 has on the new queue */
    {"SendOnQueue3", "RDMAPX-17", ULPDU((Untagged{.rdmap = 0x43, .qn = 3}.bytes())), 1, 2, 0x02,
     kReq},
    /* Responses that nobody waits for: the one that is out is a read's */
    {"UnsolicitedResponse", "RDMAPX-17", ULPDU((AtomicResponse{0, 1}.bytes(1))), 1, 2, 0x02, kReq},
    {"UnsolicitedResponseMsn", "RDMAPX-17", ULPDU((AtomicResponse{0, 1}.bytes(2))), 1, 2, 0x03,
     kReq},
    {"ResponseOnQueue0", "RDMAPX-02",
     ULPDU((Untagged{.rdmap = 0x4b, .payload = Bytes(12)}.bytes())), 0, 2, 0x06, kReq},
    {"ResponseOnQueue1", "RDMAPX-02",
     ULPDU((Untagged{.rdmap = 0x4b, .qn = 1, .payload = Bytes(12)}.bytes())), 0, 2, 0x06, kReq},
    {"ResponseTagged", "RDMAPX-02", ULPDU((Tagged{.rdmap = 0x4b, .payload = Bytes(12)}.bytes())), 0,
     2, 0x06, kReq},
    /* Versions */
    {"RequestVersion0", "RDMAPX-01", ULPDU([&] {
         Bytes ulpdu = add_at(m.good.rkey(), m.good.addr());
         ulpdu[1] = 0x0a;
         return ulpdu;
     }()),
     0, 2, 0x05, kReq},
    {"ImmediateVersion2", "RDMAPX-01",
     ULPDU((Untagged{.rdmap = 0x88, .payload = Bytes(8)}.bytes())), 0, 2, 0x05, kReq},
    /* The next opcode is nobody's */
    {"Opcode12", "RDMAPX-01 RDMAPX-26", ULPDU((Untagged{.rdmap = 0x4c}.bytes())), 0, 2, 0x06, kReq},
};

class RdmapxFault : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(Each, RdmapxFault, testing::ValuesIn(kFaults),
                         [](const testing::TestParamInfo<Fault> &info) {
                             return std::string(info.param.name);
                         });

/*
 * The Terminate says what is wrong, with the DDP header of the segment and no
 * more; the application gets event, flushed requests and the reason; no memory
 * was touched.
 */
TEST_P(RdmapxFault, Terminates) {
    const Fault &fault = GetParam();
    RecordProperty("requirements", std::string("RDMAPX-25 ") + fault.requirements);
    Link link;
    Kinds memory(link);
    Region to(link.pd(), 64);
    link.recv(1, {to.all()});
    link.read(2, {memory.local.sge(0, 8)}, 0x77, 0x88);
    ASSERT_EQ(link.hear().opcode(), kOpReadRequest);
    Bytes bad = fault.ulpdu(memory);
    link.say(bad);
    link.expect_terminate(fault.layer, fault.etype, fault.code, Headers::ddp(bad));
    link.expect_async(fault.event);
    uint32_t reason = found(fault.layer, fault.etype, fault.code);
    expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, reason);
    expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, reason);
    link.expect_disconnected();
    for (const Buffer *buffer : memory.all())
        expect_value(buffer->data(), 4096, 0x5a, "memory");
    expect_value(to.at(0), 64, 0, "the receive");
}

/* Version of DDP, version of RDMAP, queue, MSN and MO of each of the four messages. */
TEST(Rdmapx, FieldsOfEachMessage) {
    REQ("RDMAPX-35", "RDMAPX-25");
    enum { kDdp, kRdmap, kQueue, kNumber, kOffset, kFields };
    struct Expected {
        unsigned layer, etype, code;
    };
    constexpr Expected expected[kFields] = {
        {1, 2, 0x06}, {0, 2, 0x05}, {1, 2, 0x01}, {1, 2, 0x03}, {1, 2, 0x04}};
    for (uint8_t opcode :
         {kOpImmediate, kOpImmediateSolicited, kOpAtomicRequest, kOpAtomicResponse})
        for (int field = 0; field < kFields; field++) {
            SCOPED_TRACE(fmt::format("opcode {} field {}", opcode, field));
            Link link;
            Words words(link.pd());
            link.recv(1, {});
            post(link, fetch_add(2, 0, 0x33, 1), {words.region.sge(0, 8)});
            AtomicRequest ours = hear_atomic(link);
            Untagged message{.rdmap = rdmap_of(opcode)};
            if (opcode == kOpAtomicRequest) {
                message.qn = 1;
                message.payload =
                    AtomicRequest::fetch_add(1, words.stag(), words.to(0), 1).payload();
            } else if (opcode == kOpAtomicResponse) {
                message.qn = 3;
                message.payload = AtomicResponse{ours.id, 5}.payload();
            } else {
                message.payload = Bytes(8, 1);
            }
            switch (field) {
            case kDdp: message.ddp = kDdpLast | 0x02; break;
            case kRdmap: message.rdmap = static_cast<uint8_t>(0x80 | opcode); break;
            case kQueue: message.qn = 4; break;
            case kNumber: message.msn = 5; break;
            default: message.mo = 8;
            }
            link.say(message);
            link.expect_terminate(expected[field].layer, expected[field].etype,
                                  expected[field].code, Headers::ddp(message.bytes()));
            expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
            expect_wc(link.scq(), 2, IBV_WC_WR_FLUSH_ERR);
            link.expect_disconnected();
            EXPECT_EQ(words[0].load(), 0U);
        }
}

/* RFC 7306 s. 5.2.1: the address is a multiple of 8; what the offset is counted from is not. */
TEST(Rdmapx, OffsetOfAnyAlignment) {
    REQ("RDMAPX-10");
    Link link;
    Buffer buffer(4096);
    buffer.set(0);
    /* Offset 0 is octet 4, octet 1 and so on: the word at octet 64 is at another offset in each. */
    uint32_t msn = 0;
    for (size_t base : {4, 1, 7}) {
        SCOPED_TRACE(base);
        Mr mr(ibv_reg_mr(link.pd(), buffer.at(base), 1024, kAtomic | IBV_ACCESS_ZERO_BASED));
        require(mr != nullptr, "a region with an odd address");
        auto id = static_cast<uint32_t>(base);
        uint64_t word = 0;
        memcpy(&word, buffer.at(64), sizeof(word));
        link.say(
            AtomicRequest::fetch_add(id, mr->rkey, 64 - base, 0x0102030405060708).bytes(++msn));
        Segment segment = link.hear();
        AtomicResponse response = AtomicResponse::parse(segment.payload);
        EXPECT_EQ(response.id, id);
        EXPECT_EQ(response.value, word);
        uint64_t after = 0;
        memcpy(&after, buffer.at(64), sizeof(after));
        EXPECT_EQ(after, word + 0x0102030405060708);
    }
}

/* Immediate data need a receive, as Sends do. */
TEST(Rdmapx, ImmediateWithoutReceive) {
    REQ("RDMAPX-19");
    Link link;
    link.recv(1, {});
    link.say(Immediate{.value = 5}.bytes(1));
    expect_immediate(link.rcq(), 1, IBV_WC_RECV_RDMA_WITH_IMM, 5, 0);
    Bytes second = Immediate{.value = 6}.bytes(2);
    link.say(second);
    link.expect_terminate(1, 2, 0x02, Headers::ddp(second));
    link.expect_disconnected();
}

/* Once a message has begun nothing comes in between but a Terminate. */
TEST(Rdmapx, NothingInTheMiddle) {
    REQ("RDMAPX-23");
    for (int which = 0; which < 5; which++) {
        SCOPED_TRACE(which);
        Link link;
        Words words(link.pd(), 8, kAtomic | IBV_ACCESS_REMOTE_WRITE);
        Region to(link.pd(), 64);
        link.recv(1, {to.all()});
        link.recv(2, {to.all()});
        post(link, fetch_add(3, 0, 0, 0), {words.region.sge(0, 8)});
        AtomicRequest ours = hear_atomic(link);
        Bytes bad;
        if (which == 4) {
            link.say(Tagged{.ddp = kDdpTagged | kDdpVersion,
                            .stag = words.stag(),
                            .to = words.to(4),
                            .payload = Bytes(8)});
            bad = Immediate{.value = 5}.bytes(1);
        } else {
            link.say(Untagged{.ddp = kDdpVersion, .payload = Bytes(8)});
            bad = which == 0   ? add_at(words.stag(), words.to(0))
                  : which == 1 ? AtomicResponse{ours.id, 9}.bytes(1)
                  : which == 2 ? Untagged{.rdmap = 0x48, .mo = 8, .payload = Bytes(8)}.bytes()
                               : Untagged{.rdmap = 0x49, .mo = 8, .payload = Bytes(8)}.bytes();
        }
        link.say(bad);
        link.expect_terminate(0, 2, 0x06, Headers::ddp(bad));
        link.expect_disconnected();
        EXPECT_EQ(words[0].load(), 0U);
    }
}

/* An answer has to be the one that is next, with the identifier that was sent. */
struct Answer {
    const char *name;
    Bytes (*ulpdu)(const AtomicRequest &);
    unsigned layer, etype, code;
};

void PrintTo(const Answer &answer, std::ostream *to) {
    *to << answer.name;
}

Bytes odd_answer(const AtomicRequest &request, size_t length, uint8_t ddp = 0x41, uint32_t mo = 0) {
    Bytes payload = AtomicResponse{request.id, 9}.payload();
    payload.resize(length);
    return Untagged{
        .ddp = ddp, .rdmap = rdmap_of(kOpAtomicResponse), .qn = 3, .mo = mo, .payload = payload}
        .bytes();
}

Bytes answer(uint32_t id, uint32_t msn) {
    return AtomicResponse{id, 9}.bytes(msn);
}

const Answer kAnswers[] = {
    {"OtherId", [](const AtomicRequest &r) { return answer(r.id ^ 1, 1); }, 0, 2, 0x06},
    {"IdOfTheSecond", [](const AtomicRequest &r) { return answer(r.id + 1, 1); }, 0, 2, 0x06},
    {"Msn0", [](const AtomicRequest &r) { return answer(r.id, 0); }, 1, 2, 0x03},
    {"Msn2", [](const AtomicRequest &r) { return answer(r.id, 2); }, 1, 2, 0x03},
    {"AtOffset", [](const AtomicRequest &r) { return odd_answer(r, 12, 0x41, 4); }, 1, 2, 0x04},
    {"Empty", [](const AtomicRequest &r) { return odd_answer(r, 0); }, 0, 2, 0xff},
    {"TooShort", [](const AtomicRequest &r) { return odd_answer(r, 11); }, 0, 2, 0xff},
    {"TooLong", [](const AtomicRequest &r) { return odd_answer(r, 13); }, 1, 2, 0x05},
    {"NotLast", [](const AtomicRequest &r) { return odd_answer(r, 12, 0x01); }, 1, 2, 0x05},
    {"ReadResponse",
     [](const AtomicRequest &) {
         return Tagged{.rdmap = rdmap_of(kOpReadResponse), .payload = Bytes(8)}.bytes();
     },
     0, 2, 0x06},
};

class RdmapxAnswer : public testing::TestWithParam<Answer> {};

INSTANTIATE_TEST_SUITE_P(Each, RdmapxAnswer, testing::ValuesIn(kAnswers),
                         [](const testing::TestParamInfo<Answer> &info) {
                             return std::string(info.param.name);
                         });

TEST_P(RdmapxAnswer, Terminates) {
    REQ("RDMAPX-04", "RDMAPX-09", "RDMAPX-17");
    const Answer &answer = GetParam();
    Link link;
    Words words(link.pd());
    post(link, fetch_add(1, 0, 0, 0), {words.region.sge(0, 8)});
    post(link, fetch_add(2, 0, 0, 0), {words.region.sge(8, 8)});
    AtomicRequest request = hear_atomic(link);
    hear_atomic(link);
    Bytes bad = answer.ulpdu(request);
    link.say(bad);
    link.expect_terminate(answer.layer, answer.etype, answer.code, Headers::ddp(bad));
    link.expect_async(kReq);
    uint32_t reason = found(answer.layer, answer.etype, answer.code);
    expect_vendor(link.scq(), 1, IBV_WC_WR_FLUSH_ERR, reason);
    expect_vendor(link.scq(), 2, IBV_WC_WR_FLUSH_ERR, reason);
    link.expect_disconnected();
    EXPECT_EQ(words[0].load(), 0U);
    EXPECT_EQ(words[1].load(), 0U);
}

/* Answered once, and once more. */
TEST(Rdmapx, ResponseTwice) {
    REQ("RDMAPX-17");
    Link link;
    Words words(link.pd());
    post(link, fetch_add(1, 0, 0, 0), {words.region.sge(0, 8)});
    AtomicRequest request = hear_atomic(link);
    link.say(AtomicResponse{request.id, 5}.bytes(1));
    expect_success(link.scq(), 1, IBV_WC_FETCH_ADD, 8);
    Bytes again = AtomicResponse{request.id, 6}.bytes(2);
    link.say(again);
    link.expect_terminate(1, 2, 0x02, Headers::ddp(again));
    link.expect_disconnected();
    EXPECT_EQ(words[0].load(), 5U);
}

/* Good requests before a bad one have been answered, or are not done at all. */
TEST(Rdmapx, BadRequestBehindGoodOnes) {
    REQ("RDMAPX-13", "RDMAPX-15", "RDMAPX-25", "RDMAPX-36");
    Link link;
    Words words(link.pd());
    Bytes bad = AtomicRequest::fetch_add(4, words.stag() ^ 1, words.to(0), 1).bytes(4);
    Bytes all;
    for (uint32_t i = 1; i <= 3; i++)
        append(all, link.peer().writer().encode(
                        AtomicRequest::fetch_add(i, words.stag(), words.to(0), 1).bytes(i)));
    append(all, link.peer().writer().encode(bad));
    append(all, link.peer().writer().encode(
                    AtomicRequest::fetch_add(5, words.stag(), words.to(0), 100).bytes(5)));
    link.peer().say(all);
    uint64_t answered = 0;
    for (;;) {
        Segment segment = link.hear();
        if (segment.opcode() == kOpTerminate) {
            Terminate term = Terminate::parse(segment.payload);
            EXPECT_EQ(term.text(), "0/1/0x00 M D");
            EXPECT_EQ(term.length, 70U);
            expect_octets(term.ddp_header, View(bad).first(kUntaggedHeader));
            break;
        }
        EXPECT_EQ(segment.opcode(), kOpAtomicResponse);
        EXPECT_EQ(AtomicResponse::parse(segment.payload).value, answered++);
    }
    link.expect_fin();
    link.expect_disconnected();
    EXPECT_LE(answered, 3U);
    EXPECT_EQ(words[0].load(), answered);
}

/* A peer's Terminate says which atomic it is about. */
TEST(Rdmapx, TerminateBlamesAnAtomic) {
    REQ("RDMAPX-25", "RDMAPX-16");
    for (uint64_t culprit = 0; culprit < 4; culprit++) {
        SCOPED_TRACE(culprit);
        Link link;
        Words words(link.pd());
        std::vector<Bytes> requests;
        for (uint64_t i = 0; i < 4; i++) {
            if (i == 2)
                link.read(i, {words.region.sge(8 * i, 8)}, 0x100, 0x33);
            else
                post(link, fetch_add(i, 8 * i, 0x33, 1), {words.region.sge(8 * i, 8)});
            requests.push_back(link.peer().hear_fpdu().ulpdu);
        }
        link.say(complaint(0, 1, 0x02, requests[culprit]));
        for (uint64_t i = 0; i < 4; i++)
            expect_vendor(link.scq(), i, i == culprit ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR,
                          told(0, 1, 0x02));
        link.expect_async(IBV_EVENT_QP_FATAL);
        link.expect_fin();
        link.expect_disconnected();
    }
}

/* A peer that knows nothing of RFC 7306: the request fails, with its reason. */
TEST_P(RdmapxRole, PeerWithoutExtensions) {
    REQ("RDMAPX-24", "RDMAPX-16");
    Link link({.role = GetParam()});
    Words words(link.pd());
    post(link, fetch_add(1, 0, 0x33, 1), {words.region.sge(0, 8)});
    link.send(2, {});
    Bytes request = link.peer().hear_fpdu().ulpdu;
    ASSERT_EQ(request[1], 0x4a);
    link.say(complaint(0, 2, 0x06, request));
    expect_vendor(link.scq(), 1, IBV_WC_REM_OP_ERR, told(0, 2, 0x06));
    link.expect_async(IBV_EVENT_QP_FATAL);
    link.hear(); // the Send
    link.expect_fin();
    link.expect_disconnected();
}

/* Policy ---------------------------------------------------------------------------- */

/* With "extensions" off there are eight opcodes and three queues. */
TEST_P(RdmapxRole, RefusedByPolicy) {
    REQ("RDMAPX-24", "RDMAPX-27");
    const Role role = GetParam();
    Policy off(role, "extensions", "off");
    struct Row {
        Bytes ulpdu;
        unsigned layer, etype, code;
    };
    for (int i = 0; i < 7; i++) {
        SCOPED_TRACE(i);
        Link link({.role = role});
        ibv_device_attr attr{};
        ASSERT_EQ(ibv_query_device(link.context(), &attr), 0);
        EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_NONE);
        Words words(link.pd());
        link.recv(1, {});
        const Row rows[] = {
            {Immediate{.value = 1}.bytes(1), 0, 2, 0x06},
            {Immediate{.value = 1, .solicited = true}.bytes(1), 0, 2, 0x06},
            {add_at(words.stag(), words.to(0)), 0, 2, 0x06},
            {AtomicRequest::cmp_swap(1, words.stag(), words.to(0), 0, 1).bytes(1), 0, 2, 0x06},
            {Untagged{.rdmap = 0x4b, .payload = Bytes(12)}.bytes(), 0, 2, 0x06},
            {Tagged{.rdmap = 0x4a, .payload = Bytes(52)}.bytes(), 0, 2, 0x06},
            /* Queue 3 is none, which DDP sees first. */
            {AtomicResponse{0, 1}.bytes(1), 1, 2, 0x01},
        };
        const Row &row = rows[i];
        link.say(row.ulpdu);
        link.expect_terminate(row.layer, row.etype, row.code, Headers::ddp(row.ulpdu));
        expect_vendor(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR, found(row.layer, row.etype, row.code));
        link.expect_disconnected();
        EXPECT_EQ(words[0].load(), 0U);
    }
}

/* Nor does ours send any: the request is its poster's error. */
TEST_P(RdmapxRole, NotSentByPolicy) {
    REQ("RDMAPX-24", "RDMAPX-27");
    const Role role = GetParam();
    Policy off(role, "extensions", "off");
    for (int i = 0; i < 4; i++) {
        SCOPED_TRACE(i);
        Link link({.role = role});
        Words words(link.pd());
        link.send(1, {});
        link.expect_ulpdu(Untagged{});
        expect_success(link.scq(), 1, IBV_WC_SEND);
        if (i < 2)
            post(link, i == 0 ? fetch_add(2, 0, 1, 1) : cmp_swap(2, 0, 1, 1, 1),
                 {words.region.sge(0, 8)});
        else
            post(link, i == 2 ? write_imm(2, 0, 1, 1) : send_imm(2, 1));
        link.expect_terminate(0, 0, 0x00, Headers::none());
        expect_vendor(link.scq(), 2, IBV_WC_LOC_QP_OP_ERR, found(0, 0, 0));
        link.expect_disconnected();
    }
}

/* A stream keeps what it began with. */
TEST(Rdmapx, PolicyOfTheStart) {
    REQ("RDMAPX-24");
    Link link;
    Words words(link.pd());
    Policy off(Role::responder, "extensions", "off");
    link.say(add_at(words.stag(), words.to(0)));
    link.expect_ulpdu(AtomicResponse{1, 0}.bytes(1));
    post(link, send_imm(1, 5));
    link.expect_ulpdu(Immediate{.value = 5, .rest = 1}.bytes(1));
}

/* A program that asks for none of them never makes ours say one. */
TEST(Rdmapx, NeverUnasked) {
    REQ("RDMAPX-24", "RDMAPX-26");
    Link link;
    Region memory(link.pd(), 30000);
    link.write(1, {memory.all()}, 0, 1);
    link.send(2, {memory.all()}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    link.read(3, {memory.sge(0, 8)}, 0, 1);
    ASSERT_EQ(post_send(link.qp(), SendWr::send_inv(4, {}, 5)), 0);
    link.say_read(
        {.sink_stag = 1, .size = 20000, .src_stag = memory.rkey(), .src_to = memory.addr()});
    std::set<unsigned> opcodes;
    for (unsigned last = 0; last < 5;) {
        Segment segment = link.hear();
        opcodes.insert(segment.opcode());
        last += segment.last();
    }
    EXPECT_EQ(opcodes, (std::set<unsigned>{kOpWrite, kOpReadRequest, kOpReadResponse,
                                           kOpSendInvalidate, kOpSendSolicited}));
}

} // namespace
