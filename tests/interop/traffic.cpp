// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Traffic between two RDMA devices that need not be of the same driver:
 *
 *   initial namespace            namespace "peer"
 *   ours, sw0  10.77.0.1  =====  the peer, sw1  10.77.0.2
 *
 * Both ends live in this process, so each octet that was moved is compared with
 * what was sent, and the octets around it with what was there before.  Only what
 * in-tree siw can do as well is asked for: 6 scatter elements, one for a Read.
 *
 * Each test runs with ours as client and as server, over IPv4 and IPv6.  What
 * was negotiated is not visible here; the scripts look at the wire for that.
 */
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "lib/pattern.hpp"

namespace softwarp::e2e {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr uint8_t kUntouched = 0xee;
constexpr size_t kGuard = 64;

/* SOFTWARP_INTEROP_PEER: the driver of the peer, siw unless it says something else. */
bool peer_is_siw() {
    const char *driver = std::getenv("SOFTWARP_INTEROP_PEER");
    return driver == nullptr || std::string_view(driver) == "siw";
}

struct Way {
    const char *name;
    bool ours_connects;
    bool v6;
};

void PrintTo(const Way &way, std::ostream *out) {
    *out << way.name;
}

const std::string &our_address(const Way &way) {
    return way.v6 ? config().addr6 : config().addr4;
}

const std::string &peer_address(const Way &way) {
    return way.v6 ? config().peer_addr6 : config().peer_addr4;
}

/* Where the connecting and the listening end are. */
std::string connect_ns(const Way &way) {
    return way.ours_connects ? "" : config().peer_ns;
}

std::string listen_ns(const Way &way) {
    return way.ours_connects ? config().peer_ns : "";
}

const std::string &listen_address(const Way &way) {
    return way.ours_connects ? peer_address(way) : our_address(way);
}

/*
 * A listening id.  siw makes its sockets in the namespace of the thread that
 * calls, whatever namespace the id belongs to.
 */
class Server {
  public:
    explicit Server(const Way &way) : id_(create_id(channel_, listen_ns(way))) {
        in_namespace(listen_ns(way), [&] {
            Address where = address(listen_address(way), 0);
            require(rdma_bind_addr(id_.get(), &where.generic) == 0, "rdma_bind_addr");
            require(rdma_listen(id_.get(), 32) == 0, "rdma_listen");
        });
    }
    EventChannel &channel() { return channel_; }
    uint16_t port() const { return ntohs(rdma_get_src_port(id_.get())); }
    CmEvent request() {
        return channel_.expect(id_.get(), RDMA_CM_EVENT_CONNECT_REQUEST, Deadline(kSlow));
    }
    /* Parts of a handshake with siw wait for each other's timers at worst. */
    static constexpr milliseconds kSlow{20000};

  private:
    EventChannel channel_;
    CmId id_;
};

/* The connecting end before anybody accepted it; null if rdma_connect(3) itself failed. */
std::unique_ptr<Endpoint> begin_connect(const Way &way, EventChannel &channel, uint16_t port,
                                        const QpOptions &options) {
    CmId id = resolve(channel, connect_ns(way), listen_address(way), port);
    auto end = std::make_unique<Endpoint>(channel, std::move(id), options);
    int failed = 0;
    in_namespace(connect_ns(way), [&] {
        rdma_conn_param param = end->conn_param();
        failed = rdma_connect(end->id(), &param);
    });
    if (failed != 0)
        end.reset();
    return end;
}

/*
 * A connection.  Without an RTR message the responder's first FPDU has to wait
 * for one of the initiator (RFC 5044 section 7.1.2), so there is one to begin
 * with.
 */
class Link {
  public:
    explicit Link(const Way &way, Server &server, const QpOptions &connect = {},
                  const QpOptions &listen = {})
        : way_(way) {
        connecting_ = begin_connect(way, channel_, server.port(), connect);
        require(connecting_ != nullptr, "rdma_connect");
        request_ = server.request();
        accepting_ = std::make_unique<Endpoint>(server.channel(), CmId(request_.id), listen);
        greeting_ = std::make_unique<Region>(accepting_->pd(), 8);
        accepting_->recv(0x6e, {greeting_->all()});
        accept(*accepting_);
        reply_ = connecting_->expect(RDMA_CM_EVENT_ESTABLISHED, Deadline(Server::kSlow));
        /*
         * At once: siw listens for the RTR only after it sent its Reply, and looks
         * for one that was faster when the next octets come.
         */
        connecting_->send(0x6f, {});
        accepting_->expect(RDMA_CM_EVENT_ESTABLISHED, Deadline(Server::kSlow));
        expect_success(accepting_->rcq(), 0x6e, IBV_WC_RECV, 0);
        expect_success(connecting_->scq(), 0x6f, IBV_WC_SEND);
    }
    Endpoint &ours() const { return way_.ours_connects ? *connecting_ : *accepting_; }
    Endpoint &peer() const { return way_.ours_connects ? *accepting_ : *connecting_; }
    /* The end that a test names first, and the other one. */
    Endpoint &end(bool ours) const { return ours ? this->ours() : peer(); }
    Endpoint &connecting() const { return *connecting_; }
    Endpoint &accepting() const { return *accepting_; }
    const CmEvent &request() const { return request_; }
    const CmEvent &reply() const { return reply_; }

    /* The connection ended at both ends. */
    void expect_gone() {
        connecting_->expect(RDMA_CM_EVENT_DISCONNECTED, Deadline(Server::kSlow));
        accepting_->expect(RDMA_CM_EVENT_DISCONNECTED, Deadline(Server::kSlow));
    }

  private:
    Way way_;
    EventChannel channel_;
    std::unique_ptr<Endpoint> connecting_;
    std::unique_ptr<Endpoint> accepting_;
    std::unique_ptr<Region> greeting_;
    CmEvent request_{};
    CmEvent reply_{};
};

/* What is odd about lengths: words, pads, one segment more or less, pages, the length field. */
std::vector<size_t> lengths() {
    std::vector<size_t> list = {0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 255, 1000};
    for (size_t length = 1410; length <= 1450; length += full_or_quick<size_t>(1, 13))
        list.push_back(length);
    for (size_t length : {2866, 2867, 4095, 4096, 4097, 9001, 65535, 65536, 65537})
        list.push_back(length);
    list.push_back(full_or_quick(kMiB, 256 * kKiB));
    list.push_back(full_or_quick(kMiB + 1, 256 * kKiB + 1));
    list.push_back(full_or_quick(4 * kMiB + 3, 300 * kKiB + 3));
    return list;
}

/* Memory of which a part is to be filled by a transfer, and the rest is not. */
struct Target {
    Target(Endpoint &end, size_t length, size_t shift)
        : region(end.pd(), length + 2 * kGuard), at(kGuard - 8 + shift % 8), length(length) {
        region.buffer.set(kUntouched);
    }
    ibv_sge sge() const { return region.sge(at, length); }
    uint64_t addr() const { return region.addr(at); }
    void expect(uint64_t seed, const std::string &what) const {
        expect_value(region.at(0), at, kUntouched, what + ", before");
        expect_pattern(region.at(at), length, seed, 0, what);
        size_t end = at + length;
        expect_value(region.at(end), region.buffer.size() - end, kUntouched, what + ", behind");
    }
    Region region;
    size_t at;
    size_t length;
};

SgList some(const ibv_sge &sge) {
    return sge.length == 0 ? SgList{} : SgList{sge};
}

class Traffic : public testing::TestWithParam<Way> {
  protected:
    const Way &way() const { return GetParam(); }
    Server server{GetParam()};
};

std::string label(bool ours, size_t length) {
    return fmt::format("{} octets from {}", length, ours ? "ours to the peer" : "the peer to ours");
}

/* Data ---------------------------------------------------------------------- */

TEST_P(Traffic, Send) {
    Link link(way(), server);
    uint64_t seed = 1;
    for (size_t length : lengths())
        for (bool ours : {true, false}) {
            Endpoint &from = link.end(ours);
            Endpoint &to = link.end(!ours);
            SCOPED_TRACE(label(ours, length));
            Target target(to, length, seed);
            Region source(from.pd(), length + 1);
            fill(source.at(0), length, ++seed);
            to.recv(7, {target.sge()});
            from.send(8, some(source.sge(0, length)));
            expect_success(to.rcq(), 7, IBV_WC_RECV, static_cast<int64_t>(length));
            expect_success(from.scq(), 8, IBV_WC_SEND);
            target.expect(seed, "sent");
        }
}

TEST_P(Traffic, Write) {
    Link link(way(), server);
    uint64_t seed = 1000;
    for (size_t length : lengths())
        for (bool ours : {true, false}) {
            Endpoint &from = link.end(ours);
            Endpoint &to = link.end(!ours);
            SCOPED_TRACE(label(ours, length));
            Target target(to, length, seed);
            Region source(from.pd(), length + 1);
            fill(source.at(0), length, ++seed);
            /* The Send comes behind the Write and says that it is complete. */
            Region unused(to.pd(), 8);
            to.recv(7, {unused.all()});
            from.write(8, some(source.sge(0, length)), target.addr(), target.region.rkey());
            from.send(9, {});
            expect_success(to.rcq(), 7, IBV_WC_RECV, 0);
            expect_success(from.scq(), 8, IBV_WC_RDMA_WRITE);
            expect_success(from.scq(), 9, IBV_WC_SEND);
            target.expect(seed, "written");
        }
}

TEST_P(Traffic, Read) {
    Link link(way(), server);
    uint64_t seed = 2000;
    for (size_t length : lengths())
        for (bool ours : {true, false}) {
            Endpoint &reader = link.end(ours);
            Endpoint &source_end = link.end(!ours);
            SCOPED_TRACE(label(!ours, length));
            Target target(reader, length, seed);
            Region source(source_end.pd(), length + 1);
            fill(source.at(0), length, ++seed);
            /* One element even without octets: siw takes the sink from it. */
            reader.read(8, {target.sge()}, source.addr(), source.rkey());
            ibv_wc wc = expect_success(reader.scq(), 8, IBV_WC_RDMA_READ);
            EXPECT_EQ(wc.byte_len, length);
            target.expect(seed, "read");
        }
}

/* Five pieces at odd places, on both sides of a Send, at the source of a Write. */
TEST_P(Traffic, ScatterGather) {
    constexpr std::array<size_t, 5> kFrom = {1, 4093, 7, 20000, 333};
    constexpr std::array<size_t, 5> kTo = {9000, 3, 1449, 10001, 3981};
    constexpr size_t kTotal = 24434;
    constexpr size_t kGap = 13;

    QpOptions options;
    options.send_sge = options.recv_sge = 5;
    Link link(way(), server, options, options);
    for (bool ours : {true, false}) {
        Endpoint &from = link.end(ours);
        Endpoint &to = link.end(!ours);
        Region source(from.pd(), kTotal + 6 * kGap);
        Region sink(to.pd(), kTotal + 6 * kGap);
        Target written(to, kTotal, 3);
        sink.buffer.set(kUntouched);
        SgList gather, scatter;
        size_t at = kGap, done = 0;
        for (size_t length : kFrom) {
            fill(source.at(at), length, 77, done);
            gather.push_back(source.sge(at, length));
            at += length + kGap;
            done += length;
        }
        at = kGap;
        for (size_t length : kTo) {
            scatter.push_back(sink.sge(at, length));
            at += length + kGap;
        }
        to.recv(1, scatter);
        from.write(2, gather, written.addr(), written.region.rkey());
        from.send(3, gather);
        expect_success(to.rcq(), 1, IBV_WC_RECV, kTotal);
        expect_success(from.scq(), 2, IBV_WC_RDMA_WRITE);
        expect_success(from.scq(), 3, IBV_WC_SEND);
        written.expect(77, "gathered");
        at = 0;
        done = 0;
        for (size_t length : kTo) {
            expect_value(sink.at(at), kGap, kUntouched, "between pieces");
            expect_pattern(sink.at(at + kGap), length, 77, done, "scattered");
            at += kGap + length;
            done += length;
        }
    }
}

TEST_P(Traffic, Inline) {
    QpOptions options;
    options.inline_data = 64;
    Link link(way(), server, options, options);
    for (bool ours : {true, false})
        for (size_t length : {1, 13, 64}) {
            Endpoint &from = link.end(ours);
            Endpoint &to = link.end(!ours);
            SCOPED_TRACE(label(ours, length));
            Target sent(to, length, 1);
            Target written(to, length, 2);
            std::array<uint8_t, 64> source{};
            fill(source.data(), length, 5);
            ibv_sge sge{reinterpret_cast<uintptr_t>(source.data()), static_cast<uint32_t>(length),
                        0};
            to.recv(1, {sent.sge()});
            from.write(2, {sge}, written.addr(), written.region.rkey(),
                       IBV_SEND_SIGNALED | IBV_SEND_INLINE);
            from.send(3, {sge}, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
            source.fill(0);
            expect_success(to.rcq(), 1, IBV_WC_RECV, static_cast<int64_t>(length));
            expect_success(from.scq(), 2, IBV_WC_RDMA_WRITE);
            expect_success(from.scq(), 3, IBV_WC_SEND);
            sent.expect(5, "sent");
            written.expect(5, "written");
        }
}

/* Only the Send that says so wakes a receiver that asked for solicited events. */
TEST_P(Traffic, Solicited) {
    QpOptions options;
    options.events = true;
    Link link(way(), server, options, options);
    for (bool ours : {true, false}) {
        Endpoint &from = link.end(ours);
        Endpoint &to = link.end(!ours);
        SCOPED_TRACE(ours ? "ours sends" : "the peer sends");
        Target first(to, 100, 1);
        Target second(to, 2000, 2);
        Region source(from.pd(), 2000);
        fill(source.at(0), 2000, 9);
        to.recv(1, {first.sge()});
        to.recv(2, {second.sge()});
        /* siw takes the bit, but wakes nobody who waits for solicited events alone. */
        bool blind = ours && peer_is_siw();
        ASSERT_EQ(ibv_req_notify_cq(to.rcq(), blind ? 0 : 1), 0);
        from.send(3, {source.sge(0, 100)});
        expect_success(to.rcq(), 1, IBV_WC_RECV, 100);
        if (blind) {
            EXPECT_EQ(next_cq_event(to.completions()), to.rcq());
            ASSERT_EQ(ibv_req_notify_cq(to.rcq(), 0), 0);
        } else {
            EXPECT_TRUE(no_cq_event(to.completions())) << "a Send without the bit gave an event";
        }
        from.send(4, {source.sge(0, 2000)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
        EXPECT_EQ(next_cq_event(to.completions()), to.rcq());
        expect_success(to.rcq(), 2, IBV_WC_RECV, 2000);
        expect_success(from.scq(), 3, IBV_WC_SEND);
        expect_success(from.scq(), 4, IBV_WC_SEND);
        first.expect(9, "not solicited");
        second.expect(9, "solicited");
    }
}

/*
 * One end's part of a mixed load: Sends, Writes and Reads of random lengths, a
 * window of them under way, each between places of its own.
 */
class Load {
  public:
    static constexpr unsigned kWindow = 24;

    Load(Endpoint &from, Endpoint &to, uint64_t seed, size_t count, bool in_order)
        : from_(from), to_(to), random_(seed), seed_(seed), in_order_(in_order), seen_(count + 1) {
        size_t total = 0;
        for (size_t i = 0; i < count; i++) {
            Op op;
            op.kind = static_cast<Kind>(random_.below(3));
            op.length = random_.below(4) == 0 ? random_.below(60000) : random_.below(3000);
            op.at = total;
            total += op.length + 1 + random_.below(9);
            ops_.push_back(op);
        }
        near_ = std::make_unique<Region>(from.pd(), total);
        far_ = std::make_unique<Region>(to.pd(), total);
        near_->buffer.set(kUntouched);
        far_->buffer.set(kUntouched);
        for (size_t i = 0; i < count; i++) {
            const Op &op = ops_[i];
            Region &source = op.kind == Kind::read ? *far_ : *near_;
            fill(source.at(op.at), op.length, seed_ + i);
            if (op.kind == Kind::send) {
                to.recv(i, {far_->sge(op.at, op.length)});
                receives_.push_back(i);
            }
        }
        /* Says that the Writes before it are complete. */
        last_ = std::make_unique<Region>(to.pd(), 8);
        to.recv(count, {last_->all()});
        receives_.push_back(count);
    }

    static QpOptions options(size_t count) {
        QpOptions options;
        options.send_wr = kWindow + 1;
        options.recv_wr = static_cast<uint32_t>(count) + 1;
        return options;
    }

    /* Posts what the window allows and takes what is complete; false when all is done. */
    bool step() {
        while (posted_ <= ops_.size() && posted_ - completed_ < kWindow)
            post(posted_++);
        while (std::optional<ibv_wc> wc = try_wc(from_.scq())) {
            if (wc->status != IBV_WC_SUCCESS)
                fail("request: " + wc_text(*wc));
            /* siw completes Writes and Sends before the Reads in front of them. */
            if (in_order_) {
                EXPECT_EQ(wc->wr_id, completed_);
            }
            EXPECT_EQ(seen_.at(wc->wr_id)++, 0) << "completed twice";
            completed_++;
        }
        while (std::optional<ibv_wc> wc = try_wc(to_.rcq())) {
            if (wc->status != IBV_WC_SUCCESS)
                fail("receive: " + wc_text(*wc));
            if (received_ >= receives_.size())
                fail("more receives than Sends");
            size_t i = receives_[received_++];
            EXPECT_EQ(wc->wr_id, i);
            EXPECT_EQ(wc->byte_len, i < ops_.size() ? ops_[i].length : 0);
        }
        return completed_ <= ops_.size() || received_ < receives_.size();
    }

    void verify() const {
        size_t end = 0;
        for (size_t i = 0; i < ops_.size(); i++) {
            const Op &op = ops_[i];
            const Region &sink = op.kind == Kind::read ? *near_ : *far_;
            expect_value(sink.at(end), 0, kUntouched);
            expect_pattern(sink.at(op.at), op.length, seed_ + i, 0,
                           fmt::format("operation {}, kind {}", i, static_cast<int>(op.kind)));
            /* The octet behind belongs to nobody. */
            EXPECT_EQ(*sink.at(op.at + op.length), kUntouched) << "behind operation " << i;
        }
    }

  private:
    enum class Kind { send, write, read };
    struct Op {
        Kind kind;
        size_t length;
        size_t at;
    };

    void post(size_t i) {
        if (i == ops_.size()) {
            from_.send(i, {});
            return;
        }
        const Op &op = ops_[i];
        switch (op.kind) {
        case Kind::send: from_.send(i, some(near_->sge(op.at, op.length))); break;
        case Kind::write:
            from_.write(i, some(near_->sge(op.at, op.length)), far_->addr(op.at), far_->rkey());
            break;
        case Kind::read:
            from_.read(i, {near_->sge(op.at, op.length)}, far_->addr(op.at), far_->rkey());
            break;
        }
    }

    Endpoint &from_;
    Endpoint &to_;
    Random random_;
    uint64_t seed_;
    bool in_order_;
    std::vector<int> seen_;
    std::vector<Op> ops_;
    std::vector<size_t> receives_;
    std::unique_ptr<Region> near_;
    std::unique_ptr<Region> far_;
    std::unique_ptr<Region> last_; // siw takes no receive without an element
    size_t posted_ = 0;
    size_t completed_ = 0;
    size_t received_ = 0;
};

using Loads = std::vector<std::unique_ptr<Load>>;

void add_both_ways(Loads &loads, Link &link, uint64_t seed, size_t count) {
    for (bool ours : {true, false})
        loads.push_back(std::make_unique<Load>(link.end(ours), link.end(!ours),
                                               (2 * seed + (ours ? 1 : 0)) << 20, count,
                                               ours || !peer_is_siw()));
}

void run(const Loads &loads) {
    Deadline deadline(milliseconds(60000));
    for (bool busy = true; busy;) {
        busy = false;
        for (const std::unique_ptr<Load> &load : loads)
            busy |= load->step();
        if (busy && deadline.passed())
            fail("the load is not done in time");
        std::this_thread::yield();
    }
    for (const std::unique_ptr<Load> &load : loads)
        load->verify();
}

TEST_P(Traffic, MixedLoad) {
    const size_t count = full_or_quick(400, 60);
    Link link(way(), server, Load::options(count), Load::options(count));
    Loads loads;
    add_both_ways(loads, link, 1, count);
    run(loads);
}

TEST_P(Traffic, EightQpsAtOnce) {
    const size_t count = full_or_quick(100, 20);
    std::vector<std::unique_ptr<Link>> links;
    Loads loads;
    for (uint64_t i = 0; i < 8; i++) {
        links.push_back(
            std::make_unique<Link>(way(), server, Load::options(count), Load::options(count)));
        add_both_ways(loads, *links.back(), 2 + i, count);
    }
    run(loads);
}

/* One Read at a time may be under way, and twenty are posted. */
TEST_P(Traffic, ReadsBeyondOrd) {
    constexpr size_t kReads = 20, kLength = 3000;
    QpOptions options;
    options.ird = options.ord = 1;
    Link link(way(), server, options, options);
    for (bool ours : {true, false}) {
        Endpoint &reader = link.end(ours);
        Region source(link.end(!ours).pd(), kReads * kLength);
        Region sink(reader.pd(), kReads * kLength);
        fill(source.at(0), kReads * kLength, 4);
        for (size_t i = 0; i < kReads; i++)
            reader.read(i, {sink.sge(i * kLength, kLength)}, source.addr(i * kLength),
                        source.rkey());
        for (size_t i = 0; i < kReads; i++)
            expect_success(reader.scq(), i, IBV_WC_RDMA_READ);
        expect_pattern(sink.at(0), kReads * kLength, 4, 0, "read");
    }
}

/* Connections --------------------------------------------------------------- */

std::vector<uint8_t> private_data(size_t length, uint64_t seed) {
    std::vector<uint8_t> data(length);
    fill(data.data(), length, seed);
    return data;
}

/* A core without a length may round up; what was sent has to be there, then zeros. */
void expect_private(const std::vector<uint8_t> &got, size_t length, uint64_t seed) {
    std::vector<uint8_t> wanted = private_data(length, seed);
    ASSERT_GE(got.size(), length);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin()));
    EXPECT_TRUE(std::all_of(got.begin() + static_cast<ptrdiff_t>(length), got.end(),
                            [](uint8_t octet) { return octet == 0; }));
}

/* What an RTR message is for: the responder's program speaks first. */
class ResponderFirst : public Traffic {};

TEST_P(ResponderFirst, Send) {
    for (size_t length : {0, 1, 5000}) {
        SCOPED_TRACE(fmt::format("{} octets", length));
        EventChannel channel;
        auto connecting = begin_connect(way(), channel, server.port(), {});
        ASSERT_NE(connecting, nullptr);
        Target target(*connecting, length, 1);
        connecting->recv(1, {target.sge()});
        CmEvent request = server.request();
        Endpoint accepting(server.channel(), CmId(request.id), {});
        Region source(accepting.pd(), length + 1);
        fill(source.at(0), length, 5);
        accept(accepting);
        accepting.expect(RDMA_CM_EVENT_ESTABLISHED, Deadline(Server::kSlow));
        accepting.send(2, some(source.sge(0, length)));
        connecting->expect(RDMA_CM_EVENT_ESTABLISHED, Deadline(Server::kSlow));
        expect_success(connecting->rcq(), 1, IBV_WC_RECV, static_cast<int64_t>(length));
        expect_success(accepting.scq(), 2, IBV_WC_SEND);
        target.expect(5, "sent");
        /* The RTR is nobody's receive and nobody's completion. */
        expect_quiet(accepting.rcq());
        expect_quiet(connecting->scq());
    }
}

/* siw counts private data and 4 octets of its own in 8 bits: 251 is the most that it sends. */
TEST_P(Traffic, PrivateData) {
    for (size_t length : {0, 1, 3, 64, 200, 251}) {
        SCOPED_TRACE(fmt::format("{} octets", length));
        QpOptions connect, listen;
        connect.private_data = private_data(length, 6);
        listen.private_data = private_data(length, 7);
        Link link(way(), server, connect, listen);
        expect_private(link.request().private_data, length, 6);
        expect_private(link.reply().private_data, length, 7);
    }
}

TEST_P(Traffic, Rejection) {
    for (size_t length : {0, 5, 148}) {
        SCOPED_TRACE(fmt::format("{} octets", length));
        EventChannel channel;
        auto end = begin_connect(way(), channel, server.port(), {});
        ASSERT_NE(end, nullptr);
        CmEvent request = server.request();
        CmId id(request.id);
        std::vector<uint8_t> reason = private_data(length, 8);
        ASSERT_EQ(rdma_reject(id.get(), reason.data(), static_cast<uint8_t>(length)), 0);
        std::optional<CmEvent> event = channel.try_next(end->id(), Deadline(Server::kSlow));
        ASSERT_TRUE(event.has_value()) << "no answer";
        /*
         * siw looks for what comes behind a Reply of bare 20 octets before it looks
         * into it, and takes our FIN, if it is there already, for a broken start-up.
         */
        bool may_miss = peer_is_siw() && !way().ours_connects && length == 0;
        if (!may_miss || event->type != RDMA_CM_EVENT_CONNECT_ERROR) {
            EXPECT_EQ(event->type, RDMA_CM_EVENT_REJECTED) << cm_event_text(*event);
        }
        /* siw as initiator does not hand over what a rejection carries. */
        if (!event->private_data.empty()) {
            expect_private(event->private_data, length, 8);
        }
    }
}

/*
 * The responder may not read more at once than the initiator serves, and the
 * other way round: what each is told fits the other.
 */
TEST_P(Traffic, IrdAndOrd) {
    for (auto [ird, ord] : {std::pair<uint8_t, uint8_t>{1, 4}, {4, 1}, {16, 16}, {100, 3}}) {
        SCOPED_TRACE(fmt::format("IRD {}, ORD {}", ird, ord));
        QpOptions connect, listen;
        connect.ird = ird;
        connect.ord = ord;
        listen.ird = 128;
        listen.ord = ird;
        Link link(way(), server, connect, listen);
        EXPECT_EQ(link.request().responder_resources, ord);
        EXPECT_EQ(link.request().initiator_depth, ird);
        EXPECT_LE(link.reply().initiator_depth, 128);
        expect_value(nullptr, 0, 0);
        /* As many reads as were agreed, both ways. */
        for (bool ours : {true, false}) {
            Endpoint &reader = link.end(ours);
            Region source(link.end(!ours).pd(), 32 * kKiB);
            Region sink(reader.pd(), 32 * kKiB);
            fill(source.at(0), 32 * kKiB, ird);
            for (size_t i = 0; i < 32; i++)
                reader.read(i, {sink.sge(i * kKiB, kKiB)}, source.addr(i * kKiB), source.rkey());
            for (size_t i = 0; i < 32; i++)
                expect_success(reader.scq(), i, IBV_WC_RDMA_READ);
            expect_pattern(sink.at(0), 32 * kKiB, ird, 0, "read");
        }
    }
}

/* Whoever disconnects: both are told, and what is posted is flushed. */
TEST_P(Traffic, Disconnect) {
    for (bool ours : {true, false}) {
        SCOPED_TRACE(ours ? "ours disconnects" : "the peer disconnects");
        Link link(way(), server);
        Region ours_memory(link.ours().pd(), 100);
        Region peer_memory(link.peer().pd(), 100);
        fill(ours_memory.at(0), 50, 3);
        link.peer().recv(0, {peer_memory.sge(0, 50)});
        link.peer().recv(1, {peer_memory.sge(50, 50)});
        link.ours().recv(1, {ours_memory.sge(50, 50)});
        link.ours().send(5, {ours_memory.sge(0, 50)});
        expect_success(link.peer().rcq(), 0, IBV_WC_RECV, 50);
        link.end(ours).disconnect();
        link.expect_gone();
        expect_wc(link.peer().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_wc(link.ours().rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_pattern(peer_memory.at(0), 50, 3);
    }
}

/* Errors: a Terminate of the one is understood by the other ------------------ */

/* Ours sends or gets one Terminate more when the test is over. */
class OneTerminate {
  public:
    explicit OneTerminate(bool ours_sends)
        : name_(ours_sends ? "terminate_sent" : "terminate_received"), before_(now()) {}
    ~OneTerminate() {
        EXPECT_TRUE(eventually([&] { return now() == before_ + 1; }))
            << name_ << " went from " << before_ << " to " << now();
    }
    OneTerminate(const OneTerminate &) = delete;
    OneTerminate &operator=(const OneTerminate &) = delete;

  private:
    /* The statistics are read at most once in this time. */
    uint64_t now() const { return counters(config().dev).at(name_); }
    std::string name_;
    uint64_t before_;
};

class Faults : public Traffic {
  protected:
    /* One fault by ours, one by the peer. */
    template<typename Fault>
    void each_way(Fault fault, std::initializer_list<bool> who = {true, false}) {
        for (bool ours : who) {
            SCOPED_TRACE(ours ? "ours is at fault" : "the peer is at fault");
            OneTerminate check(!ours);
            Link link(way(), server);
            fault(link, link.end(ours), link.end(!ours), ours);
        }
    }
};

TEST_P(Faults, WriteWithoutRegion) {
    each_way([](Link &link, Endpoint &from, Endpoint &to, bool) {
        Region memory(from.pd(), 100);
        Region sink(to.pd(), 100);
        to.recv(1, {sink.all()});
        from.write(2, {memory.all()}, sink.addr(), sink.rkey() ^ 0x5a5a00);
        link.expect_gone();
        expect_wc(to.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_value(sink.at(0), 100, 0, "nothing was written");
    });
}

TEST_P(Faults, WriteOutOfBounds) {
    each_way([](Link &link, Endpoint &from, Endpoint &to, bool) {
        Region memory(from.pd(), 200);
        Region sink(to.pd(), 4096);
        fill(memory.at(0), 200, 3);
        to.recv(1, {sink.sge(0, 10)});
        from.write(2, {memory.all()}, sink.addr() + 4000, sink.rkey());
        link.expect_gone();
        expect_wc(to.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    });
}

TEST_P(Faults, ReadWithoutRegion) {
    each_way([](Link &link, Endpoint &from, Endpoint &to, bool ours) {
        Region memory(from.pd(), 100);
        Region source(to.pd(), 100);
        from.read(2, {memory.all()}, source.addr(), source.rkey() ^ 0x5a5a00);
        ibv_wc wc = next_wc(from.scq());
        EXPECT_EQ(wc.wr_id, 2U);
        /*
         * siw knows flushed requests only, and its own Terminates have layer and
         * type in each other's place: ours learns that the peer failed, not why.
         */
        ibv_wc_status wanted = IBV_WC_REM_ACCESS_ERR;
        if (peer_is_siw())
            wanted = ours ? IBV_WC_REM_OP_ERR : IBV_WC_WR_FLUSH_ERR;
        EXPECT_EQ(wc.status, wanted) << wc_text(wc);
        link.expect_gone();
        expect_value(memory.at(0), 100, 0, "nothing was read");
    });
}

TEST_P(Faults, ReadWithoutRight) {
    auto fault = [](Link &link, Endpoint &from, Endpoint &to, bool) {
        Region memory(from.pd(), 100);
        Region source(to.pd(), 100, kRemoteWrite);
        fill(source.at(0), 100, 3);
        from.read(2, {memory.all()}, source.addr(), source.rkey());
        ibv_wc wc = next_wc(from.scq());
        EXPECT_NE(wc.status, IBV_WC_SUCCESS);
        link.expect_gone();
        expect_value(memory.at(0), 100, 0, "nothing was read");
    };
    /* siw as the source asks for no right to read. */
    if (peer_is_siw())
        each_way(fault, {false});
    else
        each_way(fault);
}

TEST_P(Faults, WriteWithoutRight) {
    each_way([](Link &link, Endpoint &from, Endpoint &to, bool) {
        Region memory(from.pd(), 100);
        Region sink(to.pd(), 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
        fill(memory.at(0), 100, 3);
        from.write(2, {memory.all()}, sink.addr(), sink.rkey());
        link.expect_gone();
        expect_value(sink.at(0), 100, 0, "nothing was written");
    });
}

TEST_P(Faults, SendWithoutReceive) {
    each_way([](Link &link, Endpoint &from, Endpoint &, bool) {
        Region memory(from.pd(), 100);
        from.send(2, {memory.all()});
        link.expect_gone();
    });
}

TEST_P(Faults, SendTooLong) {
    each_way([](Link &link, Endpoint &from, Endpoint &to, bool) {
        Region memory(from.pd(), 5000);
        Region sink(to.pd(), 5000);
        sink.buffer.set(kUntouched);
        to.recv(1, {sink.sge(0, 3000)});
        from.send(2, {memory.all()});
        link.expect_gone();
        ibv_wc wc = next_wc(to.rcq());
        EXPECT_NE(wc.status, IBV_WC_SUCCESS);
        expect_value(sink.at(3000), 2000, kUntouched, "behind the receive");
    });
}

/* Send with Invalidate, and with Solicited Event: siw does it, ours refuses for user regions. */
SendWr send_invalidate(uint64_t id, SgList sg, uint32_t rkey, unsigned flags) {
    SendWr wr = SendWr::send(id, std::move(sg), flags);
    wr.opcode = IBV_WR_SEND_WITH_INV;
    /* In a union with what post_send fills in. */
    wr.remote_addr = 0;
    wr.rkey = rkey;
    return wr;
}

int post_invalidate(ibv_qp *qp, const SendWr &wr) {
    ibv_send_wr raw{};
    raw.wr_id = wr.wr_id;
    raw.sg_list = const_cast<ibv_sge *>(wr.sg.data());
    raw.num_sge = static_cast<int>(wr.sg.size());
    raw.opcode = wr.opcode;
    raw.send_flags = wr.flags;
    raw.invalidate_rkey = wr.rkey;
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(qp, &raw, &bad);
}

class Invalidate : public Traffic {
  protected:
    void refused(bool ours, unsigned flags) {
        OneTerminate check(!ours);
        Link link(way(), server);
        Endpoint &from = link.end(ours);
        Endpoint &to = link.end(!ours);
        Region memory(from.pd(), 100);
        Region sink(to.pd(), 200);
        to.recv(1, {sink.sge(0, 100)});
        ASSERT_EQ(post_invalidate(
                      from.qp(), send_invalidate(2, {memory.all()}, sink.rkey() ^ 0x5a5a00, flags)),
                  0);
        link.expect_gone();
        EXPECT_NE(next_wc(to.rcq()).status, IBV_WC_SUCCESS);
    }
};

TEST_P(Invalidate, UnknownRegion) {
    for (unsigned flags : {0U, static_cast<unsigned>(IBV_SEND_SOLICITED)}) {
        refused(false, IBV_SEND_SIGNALED | flags);
        /* siw prepares a Terminate then, but goes on and sends none. */
        if (!peer_is_siw())
            refused(true, IBV_SEND_SIGNALED | flags);
    }
}

/* To siw, which lets a peer invalidate the regions of users; not for two of ours. */
class InvalidateAtPeer : public Traffic {};

TEST_P(InvalidateAtPeer, Works) {
    for (unsigned flags : {0U, static_cast<unsigned>(IBV_SEND_SOLICITED)}) {
        Link link(way(), server);
        Region memory(link.ours().pd(), 100);
        Region sink(link.peer().pd(), 200);
        fill(memory.at(0), 100, 5);
        link.peer().recv(1, {sink.sge(0, 100)});
        ASSERT_EQ(post_invalidate(link.ours().qp(), send_invalidate(2, {memory.all()}, sink.rkey(),
                                                                    IBV_SEND_SIGNALED | flags)),
                  0);
        /* siw tells the receiving program in the kernel, but not in user space. */
        expect_success(link.peer().rcq(), 1, IBV_WC_RECV, 100);
        expect_success(link.ours().scq(), 2, IBV_WC_SEND);
        expect_pattern(sink.at(0), 100, 5, 0, "sent");
        /* The region is invalid now. */
        OneTerminate check(false);
        link.ours().write(3, {memory.all()}, sink.addr(100), sink.rkey());
        link.expect_gone();
        expect_value(sink.at(100), 100, 0, "not written");
    }
}

/* Atomics and immediate data, RFC 7306 ----------------------------------------- */

/* Posts one, which is at memory of eight octets. */
void post_extension(Endpoint &from, ibv_wr_opcode opcode, uint64_t id, const SgList &sg,
                    uint64_t addr = 0, uint32_t rkey = 0, uint64_t first = 0, uint64_t second = 0) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = const_cast<ibv_sge *>(sg.data());
    wr.num_sge = static_cast<int>(sg.size());
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = first;
        wr.wr.atomic.swap = second;
    } else {
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = rkey;
        wr.imm_data = htonl(static_cast<uint32_t>(first));
    }
    require(ibv_post_send(from.qp(), &wr, &bad) == 0, "ibv_post_send");
}

uint64_t word(const Region &region, size_t index) {
    uint64_t value = 0;
    std::memcpy(&value, region.at(8 * index), sizeof(value));
    return value;
}

class Extensions : public Traffic {};

/* Of two that know them. */
TEST_P(Extensions, Atomics) {
    Link link(way(), server);
    for (bool ours : {true, false}) {
        SCOPED_TRACE(ours ? "by ours" : "by the peer");
        Endpoint &from = link.end(ours);
        Endpoint &to = link.end(!ours);
        Region source(from.pd(), 64);
        Region target(to.pd(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
        uint64_t value = 0;
        for (uint64_t i = 1; i <= 50; i++) {
            bool swap = i % 3 == 0;
            post_extension(from, swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, i,
                           {source.sge(0, 8)}, target.addr(8), target.rkey(), swap ? value : i,
                           splitmix(i));
            expect_success(from.scq(), i, swap ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD, 8);
            EXPECT_EQ(word(source, 0), value);
            value = swap ? splitmix(i) : value + i;
            EXPECT_EQ(word(target, 1), value);
        }
    }
}

TEST_P(Extensions, ImmediateData) {
    Link link(way(), server);
    for (bool ours : {true, false}) {
        SCOPED_TRACE(ours ? "by ours" : "by the peer");
        Endpoint &from = link.end(ours);
        Endpoint &to = link.end(!ours);
        Region source(from.pd(), 5000);
        Region target(to.pd(), 5000);
        fill(source.at(0), 5000, 9);
        for (uint32_t i = 0; i < 20; i++) {
            to.recv(i, {});
            bool bare = i % 4 == 0;
            size_t length = bare ? 0 : splitmix(i) % 4000;
            if (bare)
                post_extension(from, IBV_WR_SEND_WITH_IMM, i, {}, 0, 0, i);
            else
                post_extension(from, IBV_WR_RDMA_WRITE_WITH_IMM, i, some(source.sge(0, length)),
                               target.addr(16), target.rkey(), i);
            ibv_wc wc = expect_success(to.rcq(), i, bare ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                                       static_cast<int64_t>(length));
            EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_IMM});
            EXPECT_EQ(ntohl(wc.imm_data), i);
            expect_pattern(target.at(16), length, 9);
            expect_success(from.scq(), i, bare ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
        }
    }
}

/* By ours to a peer that does not: its Terminate says so, and that is the request's status. */
TEST_P(Extensions, RefusedByThePeer) {
    for (ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
                                 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM}) {
        SCOPED_TRACE(opcode);
        OneTerminate check(false);
        Link link(way(), server);
        Region memory(link.ours().pd(), 64);
        Region sink(link.peer().pd(), 64);
        link.peer().recv(1, {sink.sge(8, 8)});
        SgList sg = opcode == IBV_WR_SEND_WITH_IMM ? SgList{} : SgList{memory.sge(0, 8)};
        post_extension(link.ours(), opcode, 2, sg, sink.addr(), sink.rkey(), 1, 1);
        link.expect_gone();
        /* Immediate data are complete when TCP has them, as a Send is. */
        ibv_wc wc = next_wc(link.ours().scq());
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            EXPECT_EQ(wc.status, IBV_WC_REM_OP_ERR) << wc_text(wc);
        }
        EXPECT_NE(next_wc(link.peer().rcq()).status, IBV_WC_SUCCESS);
    }
}

/* Negotiations that have to fail --------------------------------------------- */

/* The initiator is told that there is no connection, and the responder's program hears nothing. */
class Refused : public Traffic {};

TEST_P(Refused, Connect) {
    EventChannel channel;
    auto end = begin_connect(way(), channel, server.port(), {});
    if (end) {
        std::optional<CmEvent> event = channel.try_next(end->id(), Deadline(Server::kSlow));
        ASSERT_TRUE(event.has_value()) << "no answer";
        EXPECT_TRUE(event->type == RDMA_CM_EVENT_REJECTED ||
                    event->type == RDMA_CM_EVENT_UNREACHABLE ||
                    event->type == RDMA_CM_EVENT_CONNECT_ERROR)
            << cm_event_text(*event);
    }
    std::optional<CmEvent> request = server.channel().try_next(nullptr, Deadline(milliseconds(50)));
    EXPECT_FALSE(request.has_value()) << cm_event_text(*request);
}

/* The responder's program heard and accepted, then the initiator or its device did not like the
 * Reply. */
class RefusedLate : public Traffic {};

TEST_P(RefusedLate, Connect) {
    EventChannel channel;
    auto end = begin_connect(way(), channel, server.port(), {});
    ASSERT_NE(end, nullptr);
    CmEvent request = server.request();
    Endpoint accepting(server.channel(), CmId(request.id), {});
    accept(accepting);
    std::optional<CmEvent> event = channel.try_next(end->id(), Deadline(Server::kSlow));
    ASSERT_TRUE(event.has_value()) << "no answer";
    EXPECT_TRUE(event->type == RDMA_CM_EVENT_REJECTED || event->type == RDMA_CM_EVENT_UNREACHABLE ||
                event->type == RDMA_CM_EVENT_CONNECT_ERROR)
        << cm_event_text(*event);
    /* The responder may have taken the connection for established, but not for long. */
    event = server.channel().try_next(accepting.id(), Deadline(Server::kSlow));
    if (event && event->type == RDMA_CM_EVENT_ESTABLISHED)
        event = server.channel().try_next(accepting.id(), Deadline(Server::kSlow));
    ASSERT_TRUE(event.has_value()) << "the responder is not told";
    EXPECT_NE(event->type, RDMA_CM_EVENT_ESTABLISHED) << cm_event_text(*event);
}

const Way kWays[] = {{"Client4", true, false},
                     {"Client6", true, true},
                     {"Server4", false, false},
                     {"Server6", false, true}};

std::string way_name(const testing::TestParamInfo<Way> &info) {
    return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Interop, Traffic, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, ResponderFirst, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, Faults, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, Invalidate, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, Extensions, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, InvalidateAtPeer, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, RefusedLate, testing::ValuesIn(kWays), way_name);
INSTANTIATE_TEST_SUITE_P(Interop, Refused, testing::ValuesIn(kWays), way_name);

} // namespace
} // namespace softwarp::e2e

int main(int argc, char **argv) {
    std::signal(SIGPIPE, SIG_IGN);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
