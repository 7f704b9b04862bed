// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "mutation/player.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>

namespace softwarp::fuzz {

using e2e::Deadline;
using e2e::Fd;
using e2e::milliseconds;
using e2e::require;

namespace {

/* How long a peer waits for a Read Request that a spoilt session may never bring. */
constexpr int kReadPatienceMs = 50;
/* The consumer's writes go to memory that the peer does not have. */
constexpr uint32_t kPeerStag = 0x0badca5e;
constexpr unsigned kSendWr = 24;

/* A work request's id says which connection it belongs to, and which one it is. */
uint64_t id_of(uint64_t number, bool send, size_t index) {
    return number << 8 | (send ? 0x80U : 0) | index;
}

sockaddr_in ip(const std::string &addr, uint16_t port) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    require(inet_pton(AF_INET, addr.c_str(), &where.sin_addr) == 1, "an IPv4 address");
    return where;
}

uint16_t local_port(int fd) {
    sockaddr_in where{};
    socklen_t size = sizeof(where);
    getsockname(fd, reinterpret_cast<sockaddr *>(&where), &size);
    return ntohs(where.sin_port);
}

/* Neither end shall wait in TIME_WAIT for hundreds of thousands of these. */
void linger_not(int fd) {
    linger now{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* Whether a start-up frame is whole, by its own account. */
bool whole(const Bytes &octets) {
    if (octets.size() < wire::kMpaHeader)
        return false;
    return octets.size() >= wire::kMpaHeader + wire::get16(octets, 18);
}

/* What a receive of the consumer's completes for; an RTR is none. */
unsigned sends_of(const Session &session) {
    auto sends =
        std::count_if(session.messages.begin(), session.messages.end(), [](const Message &message) {
            return message.what == What::send || message.what == What::immediate;
        });
    const Startup &startup = session.startup;
    if (startup.p2p && !startup.device_connects && startup.rtr == wire::kRtrSend)
        sends--;
    return static_cast<unsigned>(sends);
}

struct NotYet {};

} // namespace

void Counts::add(const Counts &other) {
    connections += other.connections;
    frames += other.frames;
    mutated += other.mutated;
    octets += other.octets;
    for (const auto &[name, count] : other.changes)
        changes[name] += count;
    for (const auto &[name, count] : other.endings)
        endings[name] += count;
    failures.insert(failures.end(), other.failures.begin(), other.failures.end());
}

Player::Player(std::string addr, uint64_t seed) : addr_(std::move(addr)), seed_(seed) {
    channel_ = rdma_create_event_channel();
    require(channel_ != nullptr, "rdma_create_event_channel");
    int flags = fcntl(channel_->fd, F_GETFL);
    require(fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl");
    sockaddr_in where = ip(addr_, 0);
    /* rdma_cm picks a port without looking for TCP's connections in TIME_WAIT */
    for (int tries = 20;; tries--) {
        require(rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
        require(rdma_bind_addr(listener_, reinterpret_cast<sockaddr *>(&where)) == 0,
                "rdma_bind_addr");
        require(listener_->verbs != nullptr, "a device at " + addr_);
        if (rdma_listen(listener_, 64) == 0)
            break;
        require(errno == EADDRINUSE && tries != 0, "rdma_listen");
        rdma_destroy_id(listener_);
    }
    port_ = ntohs(rdma_get_src_port(listener_));

    raw_listener_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    require(raw_listener_.get() >= 0, "socket");
    require(bind(raw_listener_.get(), reinterpret_cast<sockaddr *>(&where), sizeof(where)) == 0,
            "bind");
    require(listen(raw_listener_.get(), 64) == 0, "listen");
    raw_port_ = local_port(raw_listener_.get());

    cq_ = ibv_create_cq(listener_->verbs, 256, nullptr, nullptr, 0);
    require(cq_ != nullptr, "ibv_create_cq");
    memory_ = std::make_unique<Memory>(listener_->verbs);
}

Player::~Player() {
    memory_.reset();
    ibv_destroy_cq(cq_);
    rdma_destroy_id(listener_);
    rdma_destroy_event_channel(channel_);
}

void Player::wrong(const std::string &what) {
    counts_.failures.push_back(fmt::format("connection {} ({}): {}", number_, name_, what));
}

/* What is played ------------------------------------------------------------ */

void Player::rehearse(const Session &session) {
    Show show{.session = session, .legal = true};
    show.startup = startup_frame(session.startup).bytes();
    name_ = session.name;
    perform(show);
}

void Player::play(uint64_t number) {
    Random random(seed_, number);
    const Session &legal = recorded()[random.below(recorded().size())];
    number_ = number;
    name_ = legal.name;

    Show show{.session = legal};
    if (random.chance(95))
        vary(random, show.session, counts_.changes);
    wire::MpaFrame startup = startup_frame(legal.startup);
    show.startup = startup.bytes();
    if (random.chance(10)) {
        show.spoilt_startup = true;
        spoil_startup(random, startup, show.startup, counts_.changes);
    }
    if (random.chance(90))
        show.spoil = [&](std::vector<Frame> &frames) {
            spoil(random, frames, memory_->target(), counts_.changes);
        };
    switch (random.below(8)) {
    case 0: show.end = End::reset; break;
    case 1: show.end = End::cut_fin; break;
    case 2: show.end = End::cut_reset; break;
    default: show.end = End::fin; break;
    }
    if (show.end != End::fin)
        counts_.changes[show.end == End::reset     ? "reset behind all"
                        : show.end == End::cut_fin ? "FIN anywhere"
                                                   : "reset anywhere"]++;
    show.stop = random.next();
    uint64_t mode = random.below(8);
    uint64_t cut_seed = random.next();
    if (mode < 3) {
        counts_.changes["pieces"]++;
        show.cuts = [mode, cut_seed](size_t total) {
            Random places(cut_seed, total);
            std::vector<size_t> cuts;
            if (mode == 0)
                for (size_t i = 1; i < total && i <= 24; i++)
                    cuts.push_back(i);
            else
                for (uint64_t n = places.range(1, 12); n != 0; n--)
                    cuts.push_back(places.below(total + 1));
            std::sort(cuts.begin(), cuts.end());
            return cuts;
        };
    }
    uint16_t lie = static_cast<uint16_t>(random.next());
    show.marker = [lie](uint16_t right) { return static_cast<uint16_t>(right + lie); };
    perform(show);
}

void Player::perform(const Show &show) {
    show_ = &show;
    failures_before_ = counts_.failures.size();
    begin(show);
    if (start_up(show))
        say_frames(show);
    finish(show);
    judge(show);
    clean_up();
    show_ = nullptr;
    counts_.connections++;
}

/* The peer ------------------------------------------------------------------ */

void Player::begin(const Show &) {
    raw_.reset();
    raw_over_ = raw_reset_ = false;
    heard_.clear();
    startup_size_ = taken_ = 0;
    device_startup_.reset();
    reader_ = wire::FpduReader();
    crc_ = true;
    reads_heard_ = 0;
    terminated_.clear();
    id_ = nullptr;
    was_up_ = over_ = false;
    receives_.clear();
    sends_.clear();
    good_receives_ = good_sends_ = 0;
}

bool Player::dial() {
    raw_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(raw_.get() >= 0, "socket");
    sockaddr_in to = ip(addr_, port_);
    if (connect(raw_.get(), reinterpret_cast<sockaddr *>(&to), sizeof(to)) != 0) {
        wrong("TCP connect: " + e2e::errno_name(errno));
        return false;
    }
    raw_local_port_ = local_port(raw_.get());
    return true;
}

/* Lets the device connect to us. */
bool Player::answer() {
    require(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    sockaddr_in to = ip(addr_, raw_port_);
    require(rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr *>(&to), 2000) == 0,
            "rdma_resolve_addr");
    auto connected = [&] {
        if (raw_.get() >= 0 || over_)
            return true;
        raw_ = Fd(accept4(raw_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        return raw_.get() >= 0;
    };
    if (!pump(connected, kPatience * 1000) || raw_.get() < 0) {
        wrong("the device does not connect");
        return false;
    }
    return true;
}

bool Player::heard_startup() {
    if (device_startup_)
        return true;
    if (!whole(heard_))
        return false;
    startup_size_ = wire::kMpaHeader + wire::get16(heard_, 18);
    device_startup_ = wire::MpaFrame::parse(wire::View(heard_).first(startup_size_));
    taken_ = startup_size_;
    return true;
}

bool Player::start_up(const Show &show) {
    bool active = show.session.startup.device_connects;
    if (active ? !answer() : !dial())
        return false;
    int on = 1;
    setsockopt(raw_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    fcntl(raw_.get(), F_SETFL, O_NONBLOCK);

    auto heard = [&] { return raw_over_ || heard_startup(); };
    if (active && !pump(heard, kPatience * 1000)) {
        wrong("the device connects and says nothing");
        return false;
    }
    if (raw_over_)
        return false;

    std::vector<size_t> cuts;
    if (show.cuts && (show.stop & 1) != 0)
        cuts = show.cuts(show.startup.size());
    size_t said = 0;
    bool all = say(show.startup, cuts, &said);
    counts_.frames++;
    counts_.mutated += show.spoilt_startup || !cuts.empty();
    counts_.octets += said;
    if (!all)
        return false;
    if (active)
        return whole(show.startup);
    if (!whole(show.startup))
        return false;
    if (!pump(heard, kPatience * 1000)) {
        wrong("a whole MPA Request and neither Reply nor end");
        return false;
    }
    return device_startup_ && !device_startup_->has(wire::kMpaReject);
}

void Player::say_frames(const Show &show) {
    const wire::MpaFrame &theirs = *device_startup_;
    crc_ = theirs.has(wire::kMpaCrc) || (show.startup[16] & wire::kMpaCrc) != 0;
    reader_ = wire::FpduReader((show.startup[16] & wire::kMpaMarkers) != 0);
    wire::FpduWriter writer(theirs.has(wire::kMpaMarkers));

    std::vector<Frame> frames = frames_of(show.session, memory_->target());
    if (show.spoil)
        show.spoil(frames);

    Bytes stream;
    std::vector<size_t> starts;
    std::vector<Piece> pieces;
    unsigned reads = 0;
    for (const Frame &frame : frames) {
        if (frame.after_reads > reads) {
            reads = frame.after_reads;
            pieces.push_back({stream.size(), reads});
        }
        starts.push_back(stream.size());
        wire::append(stream, frame.garbage);
        writer.marker_value = {};
        if (frame.lying_markers && show.marker)
            writer.marker_value = [&](uint64_t, uint16_t right) { return show.marker(right); };
        Bytes octets = writer.encode({.ulpdu = frame.ulpdu,
                                      .crc = crc_ ? frame.crc : wire::Crc::zero,
                                      .pad = frame.pad,
                                      .length = frame.length});
        for (uint32_t bit : frame.flips)
            octets[(bit >> 3) % octets.size()] ^= static_cast<uint8_t>(1U << (bit & 7));
        wire::append(stream, octets);
    }
    pieces.push_back({stream.size(), 0});

    if (show.end == End::cut_fin || show.end == End::cut_reset)
        stream.resize(show.stop % (stream.size() + 1));
    std::vector<size_t> cuts;
    if (show.cuts)
        cuts = show.cuts(stream.size());

    size_t at = 0;
    for (const Piece &piece : pieces) {
        size_t end = std::min(piece.end, stream.size());
        std::vector<size_t> own;
        for (size_t cut : cuts)
            if (cut > at && cut < end)
                own.push_back(cut - at);
        size_t said = 0;
        bool all = say(Bytes(stream.begin() + static_cast<ptrdiff_t>(at),
                             stream.begin() + static_cast<ptrdiff_t>(end)),
                       own, &said);
        at += said;
        if (!all || end == stream.size())
            break;
        auto asked = [&] { return raw_over_ || reads_heard_ >= piece.after_reads; };
        bool came = pump(asked, show.legal ? kPatience * 1000 : kReadPatienceMs);
        if (show.legal && (!came || raw_over_))
            wrong(fmt::format("{} Read and Atomic Requests instead of {}", reads_heard_,
                              piece.after_reads));
    }
    counts_.octets += at;
    for (size_t i = 0; i < frames.size(); i++) {
        if (starts[i] >= at)
            break;
        counts_.frames++;
        counts_.mutated += frames[i].mutated;
    }
}

/* Gives octets to TCP, cut at these offsets; false if the stream is over. */
bool Player::say(const Bytes &octets, const std::vector<size_t> &cuts, size_t *said) {
    size_t at = 0;
    auto next = cuts.begin();
    while (at < octets.size()) {
        while (next != cuts.end() && *next <= at)
            ++next;
        size_t end = next == cuts.end() ? octets.size() : std::min(*next, octets.size());
        ssize_t n = send(raw_.get(), octets.data() + at, end - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            at += static_cast<size_t>(n);
            continue;
        }
        if (errno != EAGAIN)
            break;
        bool writable = false;
        auto room = [&] {
            pollfd look{raw_.get(), POLLOUT, 0};
            writable = poll(&look, 1, 0) > 0;
            return writable || raw_over_;
        };
        if (!pump(room, kPatience * 1000, true)) {
            wrong("the device takes nothing");
            break;
        }
    }
    *said = at;
    return at == octets.size();
}

void Player::hear() {
    uint8_t octets[65536];
    for (;;) {
        ssize_t n = recv(raw_.get(), octets, sizeof(octets), MSG_DONTWAIT);
        if (n > 0) {
            heard_.insert(heard_.end(), octets, octets + n);
            if (static_cast<size_t>(n) < sizeof(octets))
                break;
            continue;
        }
        if (n < 0 && errno == EAGAIN)
            break;
        raw_over_ = true;
        raw_reset_ = n < 0;
        break;
    }
    if (device_startup_)
        take_fpdus();
}

/* Understands what the device says, which has to be right whatever it is told. */
void Player::take_fpdus() {
    for (;;) {
        size_t at = taken_;
        wire::FpduReader reader = reader_;
        wire::Fpdu fpdu;
        try {
            fpdu = reader.decode([&](size_t count) {
                if (heard_.size() - at < count)
                    throw NotYet{};
                at += count;
                return Bytes(heard_.begin() + static_cast<ptrdiff_t>(at - count),
                             heard_.begin() + static_cast<ptrdiff_t>(at));
            });
        } catch (const NotYet &) {
            return;
        }
        reader_ = reader;
        taken_ = at;
        if (!terminated_.empty())
            wrong("the device speaks after its Terminate");
        if (crc_ && !fpdu.crc_good && !show_->spoilt_startup)
            wrong("the device's CRC is bad");
        if (!fpdu.pad_zero() || !fpdu.markers_good())
            wrong("the device's pad or markers are bad");
        try {
            wire::Segment segment = wire::Segment::parse(fpdu.ulpdu);
            if (segment.opcode() == wire::kOpReadRequest ||
                segment.opcode() == wire::kOpAtomicRequest)
                reads_heard_++;
            if (segment.opcode() == wire::kOpTerminate)
                terminated_ = "Terminate " + wire::Terminate::parse(segment.payload).text();
        } catch (const e2e::Failure &failure) {
            wrong(fmt::format("the device says: {}", failure.what()));
        }
    }
}

void Player::hang_up() {
    if (raw_.get() < 0)
        return;
    linger_not(raw_.get());
    raw_.reset();
}

void Player::finish(const Show &show) {
    std::string ending;
    if (raw_.get() >= 0) {
        bool reset = show.end == End::reset || show.end == End::cut_reset;
        if (!reset || show.legal) {
            /* a legal peer waits until all has arrived */
            auto arrived = [&] {
                return raw_over_ || over_ ||
                       (was_up_ && good_receives_ >= sends_of(show.session) &&
                        std::count(sends_.begin(), sends_.end(), true) == 0);
            };
            if (show.legal && !pump(arrived, kPatience * 1000))
                wrong("a legal session comes to no end");
            shutdown(raw_.get(), SHUT_WR);
            if (!pump([&] { return raw_over_; }, kPatience * 1000))
                wrong("the device does not end the stream");
        }
        ending = !raw_over_                               ? "reset by the peer"
                 : !terminated_.empty()                   ? terminated_
                 : raw_reset_ && !device_startup_         ? "start-up reset"
                 : !raw_reset_ && !device_startup_        ? "start-up closed"
                 : raw_reset_                             ? "reset by the device"
                 : device_startup_->has(wire::kMpaReject) ? "rejected"
                                                          : "FIN";
        if (raw_over_ && !raw_reset_ && device_startup_ && taken_ != heard_.size())
            wrong("the device ends the stream within an FPDU");
        hang_up();
    } else {
        ending = "no connection";
    }
    counts_.endings[ending]++;

    if (id_ != nullptr && !over_) {
        /* a device that falls back to revision 1 connects again */
        auto told = [&] {
            Fd again(accept4(raw_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (again.get() >= 0)
                linger_not(again.get());
            return over_;
        };
        if (!pump(told, kPatience * 1000))
            wrong(fmt::format("the consumer does not hear of the end ({})", ending));
    }
}

/* What has to be true whatever was said. */
void Player::judge(const Show &show) {
    auto pending = [&] {
        return std::count(receives_.begin(), receives_.end(), true) +
               std::count(sends_.begin(), sends_.end(), true);
    };
    poll_cq();
    if (was_up_ && over_ && pending() != 0 &&
        !pump(
            [&] {
                poll_cq();
                return pending() == 0;
            },
            kPatience * 1000))
        wrong(fmt::format("{} requests are never flushed", pending()));
    std::string damage = memory_->damage();
    if (!damage.empty())
        wrong(damage);
    if (Memory::leaked(heard_))
        wrong("the device told the peer what it must not read");
    if (!show.legal || counts_.failures.size() != failures_before_)
        return;

    unsigned sends = sends_of(show.session);
    bool terminates = false;
    for (const Message &message : show.session.messages)
        terminates |= message.what == What::terminate;
    if (!terminated_.empty())
        wrong("a legal session ends with " + terminated_);
    if (good_receives_ != sends)
        wrong(fmt::format("{} of {} Sends arrived", good_receives_, sends));
    if (!terminates && good_sends_ != sends_.size())
        wrong(fmt::format("{} of {} requests succeeded", good_sends_, sends_.size()));
}

void Player::clean_up() {
    if (id_ == nullptr)
        return;
    if (id_->qp != nullptr) {
        int error = ibv_destroy_qp(id_->qp);
        if (error != 0)
            wrong("ibv_destroy_qp: " + e2e::errno_name(error));
        id_->qp = nullptr;
    }
    if (rdma_destroy_id(id_) != 0)
        wrong("rdma_destroy_id: " + e2e::errno_name(errno));
    id_ = nullptr;
    ibv_wc wc;
    while (ibv_poll_cq(cq_, 1, &wc) > 0)
        wrong("a completion of a QP that is gone");
}

/* Waits for either end until something is the case; false if time is up. */
bool Player::pump(const std::function<bool()> &done, int limit_ms, bool want_write) {
    std::optional<Deadline> deadline;
    for (;;) {
        if (done())
            return true;
        if (!deadline)
            deadline.emplace(milliseconds(limit_ms));
        if (deadline->passed())
            return false;
        bool listen_too = show_ != nullptr && show_->session.startup.device_connects;
        bool hear_too = raw_.get() >= 0 && !raw_over_;
        std::array<pollfd, 3> fds{pollfd{channel_->fd, POLLIN, 0},
                                  pollfd{hear_too ? raw_.get() : -1,
                                         static_cast<short>(POLLIN | (want_write ? POLLOUT : 0)),
                                         0},
                                  pollfd{listen_too ? raw_listener_.get() : -1, POLLIN, 0}};
        poll(fds.data(), fds.size(), std::min(deadline->left_ms(), 100));
        if (fds[1].revents != 0)
            hear();
        if (fds[0].revents != 0)
            on_events();
        poll_cq();
    }
}

/* The consumer -------------------------------------------------------------- */

void Player::on_events() {
    rdma_cm_event *event = nullptr;
    while (rdma_get_cm_event(channel_, &event) == 0) {
        rdma_cm_event_type type = event->event;
        rdma_cm_id *id = event->id;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            on_request(id, ntohs(rdma_get_dst_port(id)));
            continue;
        }
        if (id != id_)
            continue;
        switch (type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (rdma_resolve_route(id_, 2000) != 0)
                wrong("rdma_resolve_route: " + e2e::errno_name(errno));
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED: {
            make_qp();
            rdma_conn_param param{};
            param.responder_resources = static_cast<uint8_t>(show_->session.startup.ird);
            param.initiator_depth = static_cast<uint8_t>(show_->session.startup.ord);
            if (rdma_connect(id_, &param) != 0)
                wrong("rdma_connect: " + e2e::errno_name(errno));
            break;
        }
        case RDMA_CM_EVENT_ESTABLISHED:
            was_up_ = true;
            post_sends();
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
        case RDMA_CM_EVENT_REJECTED:
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR: over_ = true; break;
        default: break;
        }
    }
}

void Player::on_request(rdma_cm_id *id, uint16_t port) {
    if (id_ != nullptr || raw_.get() < 0 || port != raw_local_port_ ||
        show_->session.startup.device_connects) {
        /* of a connection whose peer left before */
        rdma_reject(id, nullptr, 0);
        rdma_destroy_id(id);
        return;
    }
    id_ = id;
    make_qp();
    rdma_conn_param param{};
    param.responder_resources = 16;
    param.initiator_depth = 16;
    /* a peer that is gone already, or said too much, makes it fail */
    if (rdma_accept(id_, &param) != 0)
        over_ = true;
}

void Player::make_qp() {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_;
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    attr.cap = {kSendWr, Memory::kReceives, 1, 1, 0};
    require(rdma_create_qp(id_, memory_->pd(), &attr) == 0, "rdma_create_qp");
    post_receives();
}

void Player::post_receives() {
    receives_.assign(Memory::kReceives, true);
    for (unsigned i = 0; i < Memory::kReceives; i++) {
        ibv_sge sge = memory_->receive(i);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id_of(number_, false, i);
        wr.sg_list = &sge;
        wr.num_sge = 1;
        if (int error = ibv_post_recv(id_->qp, &wr, &bad); error != 0) {
            wrong("ibv_post_recv: " + e2e::errno_name(error));
            receives_[i] = false;
        }
    }
}

void Player::post_sends() {
    auto post = [&](ibv_wr_opcode opcode, ibv_sge sge, int sges = 1) {
        ibv_send_wr wr{}, *bad = nullptr;
        wr.wr_id = id_of(number_, true, sends_.size());
        wr.opcode = opcode;
        wr.sg_list = &sge;
        wr.num_sge = sges;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            wr.wr.atomic.rkey = kPeerStag;
            wr.wr.atomic.remote_addr = 0x10000;
        } else {
            wr.wr.rdma.rkey = kPeerStag;
            wr.wr.rdma.remote_addr = 0x10000;
        }
        wr.imm_data = static_cast<uint32_t>(sends_.size());
        sends_.push_back(true);
        if (int error = ibv_post_send(id_->qp, &wr, &bad); error != 0) {
            wrong("ibv_post_send: " + e2e::errno_name(error));
            sends_.back() = false;
        }
    };
    const Consumer &consumer = show_->session.consumer;
    unsigned sink = 0;
    for (uint32_t size : consumer.reads)
        post(IBV_WR_RDMA_READ, memory_->sink(sink++, size));
    for (uint32_t i = 0; i < consumer.atomics; i++)
        post(i % 2 == 0 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
             memory_->sink(sink++, 8));
    for (uint32_t size : consumer.sends)
        post(IBV_WR_SEND, memory_->source(0, size));
    for (uint32_t size : consumer.writes)
        post(IBV_WR_RDMA_WRITE, memory_->source(0, size));
    for (uint32_t size : consumer.writes_imm)
        post(IBV_WR_RDMA_WRITE_WITH_IMM, memory_->source(0, size));
    for (uint32_t i = 0; i < consumer.bare_imms; i++)
        post(IBV_WR_SEND_WITH_IMM, {}, 0);
}

void Player::poll_cq() {
    ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(cq_, 1, &wc)) > 0) {
        bool send = (wc.wr_id & 0x80) != 0;
        std::vector<bool> &posted = send ? sends_ : receives_;
        size_t index = wc.wr_id & 0x7f;
        if (wc.wr_id >> 8 != number_ || index >= posted.size() || !posted[index]) {
            wrong(fmt::format("a completion of nothing: wr_id {:#x}", wc.wr_id));
            continue;
        }
        posted[index] = false;
        if (wc.status != IBV_WC_SUCCESS)
            continue;
        (send ? good_sends_ : good_receives_)++;
        /* with immediate data it is the length of a Write */
        bool immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
        bool right = immediate ? wc.opcode == IBV_WC_RECV || wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM
                               : wc.opcode == IBV_WC_RECV && wc.byte_len <= Memory::kReceiveSize;
        if (!send && !right)
            wrong(fmt::format("a receive of {} octets, opcode {}", wc.byte_len,
                              static_cast<int>(wc.opcode)));
    }
    if (n < 0)
        wrong("ibv_poll_cq fails");
}

} // namespace softwarp::fuzz
