// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What programs ask of TCP itself, which is beneath an SDP socket: keepalive and
 * timeouts, what packets carry, TCP_INFO.
 */
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/tcp.h>

#include "peer.hpp"

namespace softwarp::sockets {

/* The system's headers name them once more. */
constexpr uint8_t kEstablished = 1, kSynSent = 2, kFinWait2 = 5, kClose = 7, kCloseWait = 8,
                  kListen = 10;

/* A socket whose peer is plain TCP, so that it can be made to vanish */
struct Loose {
    Fd listener, app, tcp;
    std::unique_ptr<Peer> peer;

    int other() const { return peer ? peer->stream.fd() : tcp.get(); }
};

class Carrier : public Peers {
  protected:
    bool is_tcp() const {
        return std::string(GetParam().name).starts_with("tcp") ||
               GetParam().policy == Kind::kFellBack;
    }

    using Tune = std::function<void(const Fd &)>;
    static void untuned(const Fd &) {}

    /* @tune: before it connects, or its listener is connected to */
    Loose loose(bool connects, const Tune &tune = untuned) const {
        Loose l;
        l.listener = connects ? tcp_listener() : listener();
        Address a = name_of(l.listener);
        if (!connects) {
            tune(l.listener);
            l.tcp = tcp_to(l.listener);
            if (!is_tcp()) {
                l.peer = std::make_unique<Peer>(::dup(l.tcp.get()));
                l.peer->say_hello(encode(good_hello()));
            }
            l.app = Fd(::accept(l.listener.get(), nullptr, nullptr));
            EXPECT_TRUE(l.app);
            return l;
        }
        l.app = make();
        tune(l.app);
        set_nonblocking(l.app);
        EXPECT_EQ(ERRNO_OF(::connect(l.app.get(), a.get(), a.len)), EINPROGRESS);
        l.tcp = Fd(::accept(l.listener.get(), nullptr, nullptr));
        if (!is_tcp()) {
            l.peer = std::make_unique<Peer>(::dup(l.tcp.get()));
            l.peer->hear_hello();
            l.peer->start_mpa();
            l.peer->say_hello_ack(encode(good_hello_ack()));
        }
        EXPECT_EQ(events(l.app, POLLOUT, 10000), POLLOUT);
        EXPECT_EQ(option(l.app, SOL_SOCKET, SO_ERROR), 0);
        set_nonblocking(l.app, false);
        return l;
    }
};

/* Others have no TCP beneath, or elsewhere. */
static std::vector<Kind> carried_kinds() {
    std::vector<Kind> kinds;
    for (const Kind &kind : all_kinds()) {
        if (!kind.host && kind.policy != Kind::kBoth)
            kinds.push_back(kind);
    }
    return kinds;
}

INSTANTIATE_TEST_SUITE_P(All, Carrier, testing::ValuesIn(carried_kinds()), name_of_kind);

static tcp_info info_of(int fd) {
    tcp_info info{};
    socklen_t len = sizeof(info);
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0) << std::strerror(errno);
    return info;
}

static uint8_t state_of(const Fd &fd) {
    return info_of(fd.get()).tcpi_state;
}

static bool becomes(const Fd &fd, uint8_t state) {
    return eventually([&] { return state_of(fd) == state; });
}

/* The program is told within the time that TCP would tell it, more or less. */
static void expect_timeout(const Fd &app) {
    auto begin = std::chrono::steady_clock::now();
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(app.get(), &c, 1, 0)), ETIMEDOUT);
    auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GT(took, std::chrono::milliseconds(500));
    EXPECT_LT(took, std::chrono::seconds(20));
    EXPECT_EQ(::recv(app.get(), &c, 1, 0), 0);
    EXPECT_EQ(state_of(app), kClose);
}

/* SDP-218 */
TEST_P(Carrier, KeepaliveEnds) {
    for (bool connects : {false, true}) {
        SCOPED_TRACE(connects);
        Loose l = loose(connects);
        keep_alive(l.app);
        vanish(l.other());
        expect_timeout(l.app);
    }
}

TEST_P(Carrier, KeepaliveFromBefore) {
    for (bool connects : {false, true}) {
        SCOPED_TRACE(connects);
        Loose l = loose(connects, keep_alive);
        EXPECT_EQ(option(l.app, SOL_SOCKET, SO_KEEPALIVE), 1);
        EXPECT_EQ(option(l.app, IPPROTO_TCP, TCP_KEEPIDLE), 1);
        EXPECT_EQ(option(l.app, IPPROTO_TCP, TCP_KEEPINTVL), 1);
        EXPECT_EQ(option(l.app, IPPROTO_TCP, TCP_KEEPCNT), 1);
        vanish(l.other());
        expect_timeout(l.app);
    }
}

TEST_P(Carrier, KeepaliveThenItsTimes) {
    Loose l = loose(true);
    give(l.app, SOL_SOCKET, SO_KEEPALIVE, 1);
    give(l.app, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    give(l.app, IPPROTO_TCP, TCP_KEEPCNT, 1);
    give(l.app, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    vanish(l.other());
    expect_timeout(l.app);
}

/* SDP-218: a peer that is there answers TCP's probes, and the program sees nothing */
TEST_P(Carrier, KeepaliveAnswered) {
    Loose l = loose(false);
    usleep(300000);
    uint32_t before = info_of(l.other()).tcpi_segs_in;
    uint32_t data = info_of(l.other()).tcpi_data_segs_in;
    keep_alive(l.app);
    EXPECT_EQ(events(l.app, POLLIN | POLLRDHUP, 3500), 0);
    EXPECT_GE(info_of(l.other()).tcpi_segs_in, before + 2);
    EXPECT_EQ(info_of(l.other()).tcpi_data_segs_in, data);
    /* and no more of it when it is off */
    give(l.app, SOL_SOCKET, SO_KEEPALIVE, 0);
    before = info_of(l.other()).tcpi_segs_in;
    EXPECT_EQ(events(l.app, POLLIN | POLLRDHUP, 2500), 0);
    EXPECT_EQ(info_of(l.other()).tcpi_segs_in, before);
}

TEST_P(Carrier, UserTimeout) {
    for (bool connects : {false, true}) {
        SCOPED_TRACE(connects);
        Loose l = loose(connects);
        give(l.app, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000);
        vanish(l.other());
        ASSERT_TRUE(send_all(l.app, pattern(100)));
        expect_timeout(l.app);
    }
}

TEST_P(Carrier, UserTimeoutFromBefore) {
    auto tune = [](const Fd &fd) { give(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000); };
    for (bool connects : {false, true}) {
        SCOPED_TRACE(connects);
        Loose l = loose(connects, tune);
        EXPECT_EQ(option(l.app, IPPROTO_TCP, TCP_USER_TIMEOUT), 1000);
        vanish(l.other());
        ASSERT_TRUE(send_all(l.app, pattern(100)));
        expect_timeout(l.app);
    }
}

/* Who waits for room is told as well, and poll(). */
TEST_P(Carrier, TimeoutOfASender) {
    Loose l = loose(true);
    give(l.app, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000);
    vanish(l.other());
    std::vector<uint8_t> much = pattern(20 << 20);
    EXPECT_FALSE(send_all(l.app, much));
    EXPECT_EQ(errno, ETIMEDOUT);
    EXPECT_EQ(events(l.app, POLLIN | POLLOUT), POLLIN | POLLOUT | POLLHUP);
    EXPECT_EQ(ERRNO_OF(::send(l.app.get(), "x", 1, 0)), EPIPE);
}

/* A number in /proc/sys for as long as this lives */
class Sysctl {
  public:
    Sysctl(std::string path, int value) : path_(std::move(path)) {
        std::ifstream(path_) >> before_;
        std::ofstream(path_) << value;
    }
    ~Sysctl() { std::ofstream(path_) << before_; }
    Sysctl(const Sysctl &) = delete;
    Sysctl &operator=(const Sysctl &) = delete;

  private:
    std::string path_;
    int before_ = 0;
};

/* As much as goes; then all of it is acknowledged, and something waits. */
static void fill_until_acknowledged(const Fd &app) {
    fill(app);
    EXPECT_TRUE(eventually([&] { return info_of(app.get()).tcpi_unacked == 0; }));
    set_nonblocking(app, false);
}

/* Its peer is there, and takes nothing: that is limited as well, tcp(7). */
TEST_P(Carrier, UserTimeoutOfAFullPeer) {
    Loose l = loose(true);
    give(l.app, IPPROTO_TCP, TCP_USER_TIMEOUT, 1500);
    fill_until_acknowledged(l.app);
    expect_timeout(l.app);
}

/* A full peer that is no more, with nothing that it would have to acknowledge */
TEST_P(Carrier, FullPeerVanishes) {
    Sysctl retries("/proc/sys/net/ipv4/tcp_retries2", 2);
    Loose l = loose(false);
    fill_until_acknowledged(l.app);
    vanish(l.other());
    expect_timeout(l.app);
}

/* Probes of a full peer end neither the connection nor what it carries. */
TEST_P(Carrier, FullPeerIsProbed) {
    Pair p = connected();
    size_t sent = 0;
    uint32_t before = 0;
    /* once more if something was still on its way, since a machine may stand still for a while */
    for (int tries = 0; tries < 4; tries++) {
        sent = fill(p.here, sent);
        before = info_of(p.there.get()).tcpi_segs_in;
        usleep(1800000);
        if (!events(p.here, POLLOUT))
            break;
    }
    EXPECT_GT(info_of(p.there.get()).tcpi_segs_in, before);
    EXPECT_EQ(events(p.here, POLLOUT | POLLIN), 0);
    EXPECT_TRUE(receive(p.there, sent) == repeated(sent));
    EXPECT_TRUE(send_all(p.there, pattern(1000)));
    /* they need not be there yet, and fill() does not block */
    set_nonblocking(p.here, false);
    EXPECT_EQ(receive(p.here, 1000), pattern(1000));
}

TEST_P(Carrier, SynCount) {
    Fd l = tcp_listener();
    vanish(l.get());
    Address a = name_of(l);
    Fd app = make();
    give(app, IPPROTO_TCP, TCP_SYNCNT, 1);
    auto begin = TickClock::now();
    std::thread looks([&] {
        usleep(200000);
        EXPECT_EQ(state_of(app), kSynSent);
    });
    EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), ETIMEDOUT);
    looks.join();
    /* one second, and two for the other one */
    EXPECT_GT(TickClock::now() - begin, std::chrono::milliseconds(2000));
    EXPECT_LT(TickClock::now() - begin, std::chrono::seconds(8));
}

/* What packets carry ----------------------------------------------------------- */

struct Diag {
    int tos = -1, tclass = -1, mark = -1, timer = -1;
    std::string congestion;
};

/* The TCP connection of those ends, as ss(8) asks for it */
static Diag diag_of(const Address &from, const Address &to) {
    struct {
        nlmsghdr header;
        inet_diag_req_v2 request;
    } ask{};
    Fd nl(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    EXPECT_TRUE(nl);
    ask.header.nlmsg_len = sizeof(ask);
    ask.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    ask.header.nlmsg_flags = NLM_F_REQUEST;
    ask.request.sdiag_family = static_cast<uint8_t>(from.storage.ss_family);
    ask.request.sdiag_protocol = IPPROTO_TCP;
    ask.request.idiag_ext =
        1 << (INET_DIAG_TOS - 1) | 1 << (INET_DIAG_TCLASS - 1) | 1 << (INET_DIAG_CONG - 1);
    ask.request.idiag_states = ~0U;
    ask.request.id.idiag_sport = htons(from.port());
    ask.request.id.idiag_dport = htons(to.port());
    ask.request.id.idiag_cookie[0] = ask.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    auto copy = [](const Address &a, __be32 *out) {
        if (a.storage.ss_family == AF_INET6)
            std::memcpy(out, &reinterpret_cast<const sockaddr_in6 *>(&a.storage)->sin6_addr, 16);
        else
            std::memcpy(out, &reinterpret_cast<const sockaddr_in *>(&a.storage)->sin_addr, 4);
    };
    copy(from, ask.request.id.idiag_src);
    copy(to, ask.request.id.idiag_dst);
    EXPECT_EQ(::send(nl.get(), &ask, sizeof(ask), 0), static_cast<ssize_t>(sizeof(ask)));
    alignas(nlmsghdr) char answer[8192];
    ssize_t ret = ::recv(nl.get(), answer, sizeof(answer), 0);
    auto *header = reinterpret_cast<nlmsghdr *>(answer);
    Diag diag;
    EXPECT_GE(ret, static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))));
    EXPECT_EQ(header->nlmsg_type, SOCK_DIAG_BY_FAMILY);
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return diag;
    auto *msg = static_cast<inet_diag_msg *>(NLMSG_DATA(header));
    diag.timer = msg->idiag_timer;
    auto *attr = reinterpret_cast<rtattr *>(msg + 1);
    int left = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof(*msg)));
    for (; RTA_OK(attr, left); attr = RTA_NEXT(attr, left)) {
        const void *data = RTA_DATA(attr);
        switch (attr->rta_type) {
        case INET_DIAG_TOS: diag.tos = *static_cast<const uint8_t *>(data); break;
        case INET_DIAG_TCLASS: diag.tclass = *static_cast<const uint8_t *>(data); break;
        case INET_DIAG_MARK: std::memcpy(&diag.mark, data, 4); break;
        case INET_DIAG_CONG: diag.congestion = static_cast<const char *>(data); break;
        default: break;
        }
    }
    return diag;
}

static Diag diag_of(const Fd &app) {
    return diag_of(name_of(app), peer_of(app));
}

TEST_P(Carrier, PacketsFromBefore) {
    bool v6 = GetParam().address == AF_INET6;
    auto tune = [&](const Fd &fd) {
        give(fd, IPPROTO_IP, IP_TOS, 0x28);
        if (v6)
            give(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x48);
        give(fd, SOL_SOCKET, SO_MARK, 77);
        give(fd, SOL_SOCKET, SO_PRIORITY, 4);
        give(fd, IPPROTO_IP, IP_TTL, 9);
        give(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        EXPECT_EQ(::setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
    };
    for (bool connects : {false, true}) {
        SCOPED_TRACE(connects);
        Loose l = loose(connects, tune);
        Diag diag = diag_of(l.app);
        EXPECT_EQ(diag.tos, 0x28);
        if (v6) {
            EXPECT_EQ(diag.tclass, 0x48);
        }
        EXPECT_EQ(diag.mark, 77);
        EXPECT_EQ(diag.congestion, "reno");
        EXPECT_TRUE(eventually([&] { return diag_of(l.app).timer == 2; }));
        char name[16] = "";
        socklen_t len = sizeof(name);
        EXPECT_EQ(::getsockopt(l.app.get(), IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
        EXPECT_STREQ(name, "reno");
        EXPECT_EQ(option(l.app, IPPROTO_IP, IP_TOS), 0x28);
        EXPECT_EQ(option(l.app, SOL_SOCKET, SO_MARK), 77);
        /* TCP's children have none */
        EXPECT_EQ(option(l.app, SOL_SOCKET, SO_PRIORITY), connects ? 4 : 0);
        EXPECT_EQ(option(l.app, IPPROTO_IP, IP_TTL), 9);
    }
}

TEST_P(Carrier, PacketsLater) {
    bool v6 = GetParam().address == AF_INET6;
    for (bool connects : {false, true}) {
        SCOPED_TRACE(connects);
        Loose l = loose(connects);
        EXPECT_EQ(diag_of(l.app).tos, 0);
        /* what was said at set-up is acknowledged soon */
        EXPECT_TRUE(eventually([&] { return diag_of(l.app).timer == 0; }));
        give(l.app, IPPROTO_IP, IP_TOS, 0x10);
        EXPECT_EQ(diag_of(l.app).tos, 0x10);
        if (v6) {
            give(l.app, IPPROTO_IPV6, IPV6_TCLASS, 0x20);
            EXPECT_EQ(diag_of(l.app).tclass, 0x20);
        }
        give(l.app, SOL_SOCKET, SO_KEEPALIVE, 1);
        EXPECT_EQ(diag_of(l.app).timer, 2);
        give(l.app, SOL_SOCKET, SO_KEEPALIVE, 0);
        EXPECT_EQ(diag_of(l.app).timer, 0);
        /* it counts for what is sent */
        give(l.app, SOL_SOCKET, SO_MARK, 5);
        ASSERT_TRUE(send_all(l.app, pattern(10)));
        EXPECT_EQ(diag_of(l.app).mark, 5);
        ASSERT_TRUE(eventually([&] { return diag_of(l.app).timer == 0; }));
    }
}

/* TCP_INFO --------------------------------------------------------------------- */

TEST_P(Carrier, States) {
    Fd fresh = make();
    EXPECT_EQ(state_of(fresh), kClose);
    Fd l = listener();
    EXPECT_EQ(state_of(l), kListen);
    Pair p = connected();
    EXPECT_EQ(state_of(p.here), kEstablished);
    EXPECT_EQ(state_of(p.there), kEstablished);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_TRUE(becomes(p.there, kCloseWait));
    EXPECT_TRUE(becomes(p.here, kFinWait2));
    ASSERT_EQ(::shutdown(p.there.get(), SHUT_WR), 0);
    EXPECT_TRUE(becomes(p.there, kClose));
    EXPECT_TRUE(becomes(p.here, kClose));
}

TEST_P(Carrier, StateOfAReset) {
    Pair p = connected();
    linger now{1, 0};
    ASSERT_EQ(::setsockopt(p.here.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    p.here.reset();
    EXPECT_TRUE(becomes(p.there, kClose));
    Pair q = connected();
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    ASSERT_EQ(::connect(q.here.get(), &none, sizeof(none)), 0);
    EXPECT_EQ(state_of(q.here), kClose);
}

TEST_P(Carrier, Octets) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100000)));
    EXPECT_EQ(receive(p.there, 100000).size(), 100000U);
    ASSERT_TRUE(send_all(p.there, pattern(3000)));
    EXPECT_EQ(receive(p.here, 3000).size(), 3000U);
    /* TCP counts SYN as well */
    EXPECT_TRUE(eventually([&] {
        uint64_t acked = info_of(p.here.get()).tcpi_bytes_acked;
        return acked == 100000 || acked == 100001;
    }));
    tcp_info info = info_of(p.here.get());
    /* for TCP also what it has sent once more */
    EXPECT_EQ(info.tcpi_bytes_sent, 100000U + (is_tcp() ? info.tcpi_bytes_retrans : 0));
    EXPECT_EQ(info.tcpi_bytes_received, 3000U);
    EXPECT_EQ(info.tcpi_notsent_bytes, 0U);
    EXPECT_GT(info.tcpi_rtt, 0U);
    EXPECT_GT(info.tcpi_snd_mss, 500U);
    EXPECT_GT(info.tcpi_pmtu, info.tcpi_snd_mss);
    EXPECT_GT(info.tcpi_segs_out, 0U);
    EXPECT_EQ(info_of(p.there.get()).tcpi_bytes_received, 100000U);
}

TEST_P(Carrier, Lost) {
    Loose l = loose(true);
    EXPECT_EQ(info_of(l.app.get()).tcpi_total_retrans, 0U);
    vanish(l.other());
    ASSERT_TRUE(send_all(l.app, pattern(100)));
    EXPECT_TRUE(eventually([&] { return info_of(l.app.get()).tcpi_total_retrans > 0; }));
    tcp_info info = info_of(l.app.get());
    EXPECT_GE(info.tcpi_bytes_sent, 100U);
    EXPECT_LT(info.tcpi_bytes_acked, 100U);
    EXPECT_GT(info.tcpi_unacked, 0U);
}

/* SIOCOUTQ is of what the peer has not acknowledged, and SO_LINGER waits for that. */
TEST_P(Carrier, LingersForTheLost) {
    for (bool connects : {false, true}) {
        Loose l = loose(connects);
        vanish(l.other());
        ASSERT_TRUE(send_all(l.app, pattern(100)));
        usleep(300000);
        int n = -1;
        ASSERT_EQ(::ioctl(l.app.get(), SIOCOUTQ, &n), 0);
        EXPECT_EQ(n, 100);
        linger wait{1, 1};
        ASSERT_EQ(::setsockopt(l.app.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
        auto begin = TickClock::now();
        l.app.reset();
        EXPECT_GT(TickClock::now() - begin, std::chrono::milliseconds(900));
    }
}

/* What there is no room for is not told, and how much it is. */
TEST_P(Carrier, InfoInPart) {
    Pair p = connected();
    uint8_t first[4] = {0, 99, 99, 99};
    socklen_t len = 1;
    EXPECT_EQ(::getsockopt(p.here.get(), IPPROTO_TCP, TCP_INFO, first, &len), 0);
    EXPECT_EQ(len, 1U);
    EXPECT_EQ(first[0], kEstablished);
    EXPECT_EQ(first[1], 99);
    std::vector<uint8_t> large(4096);
    len = 4096;
    EXPECT_EQ(::getsockopt(p.here.get(), IPPROTO_TCP, TCP_INFO, large.data(), &len), 0);
    EXPECT_GE(len, 200U);
    EXPECT_LT(len, 4096U);
    len = static_cast<socklen_t>(-1);
    EXPECT_EQ(ERRNO_OF(::getsockopt(p.here.get(), IPPROTO_TCP, TCP_INFO, large.data(), &len)),
              EINVAL);
    len = 4096;
    void *nowhere = reinterpret_cast<void *>(8);
    EXPECT_EQ(ERRNO_OF(::getsockopt(p.here.get(), IPPROTO_TCP, TCP_INFO, nowhere, &len)), EFAULT);
}

TEST_P(Carrier, MaxSegment) {
    Pair p = connected();
    EXPECT_EQ(option(p.here, IPPROTO_TCP, TCP_MAXSEG),
              static_cast<int>(info_of(p.here.get()).tcpi_snd_mss));
    Loose l = loose(true, [](const Fd &fd) { give(fd, IPPROTO_TCP, TCP_MAXSEG, 700); });
    EXPECT_LE(option(l.app, IPPROTO_TCP, TCP_MAXSEG), 700);
    EXPECT_LE(info_of(l.other()).tcpi_snd_mss, 700U);
}

TEST_P(Carrier, IncomingCpu) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    ASSERT_EQ(receive(p.there, 10).size(), 10U);
    int cpu = option(p.there, SOL_SOCKET, SO_INCOMING_CPU);
    EXPECT_GE(cpu, 0);
    EXPECT_LT(cpu, ::sysconf(_SC_NPROCESSORS_CONF));
}

} // namespace softwarp::sockets
