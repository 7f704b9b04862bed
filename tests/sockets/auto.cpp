// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The policies auto and tcp: by what a connection is made, how long that takes, and
 * that a socket which is TCP's is so in all its calls.  The port mapper is asked on
 * loopback, so that all of it is within one network namespace.
 */
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "kinds.hpp"
#include "portmap.hpp"
#include "seen.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

namespace {

int policy(const Fd &fd, int value) {
    return set(fd, SOL_SDP, SDP_POLICY, value);
}

std::vector<Kind> kinds(int address = AF_UNSPEC) {
    std::vector<Kind> found;
    for (const Kind &kind : {Kind{"auto4", AF_INET, IPPROTO_SDP, AF_INET},
                             Kind{"auto6", AF_INET6, IPPROTO_SDP, AF_INET6}})
        if (address == AF_UNSPEC || kind.address == address)
            found.push_back(kind);
    return found;
}

bool echoes(const Fd &a, const Fd &b) {
    std::vector<uint8_t> octets = pattern(100000);
    std::thread sender([&] { EXPECT_TRUE(send_all(a, octets)); });
    bool right = receive(b, octets.size()) == octets;
    sender.join();
    return right;
}

/* What the kernel chooses ports from, for as long as it is there */
class LocalPorts {
  public:
    explicit LocalPorts(const std::string &range) {
        std::ifstream file(kPath);
        EXPECT_TRUE(std::getline(file, before_));
        std::ofstream(kPath) << range;
    }
    LocalPorts(const LocalPorts &) = delete;
    LocalPorts &operator=(const LocalPorts &) = delete;
    ~LocalPorts() { std::ofstream(kPath) << before_; }

  private:
    static constexpr const char *kPath = "/proc/sys/net/ipv4/ip_local_port_range";
    std::string before_;
};

Address at(int family, const std::string &text, uint16_t port) {
    Address a;
    if (family == AF_INET6) {
        auto *in6 = reinterpret_cast<sockaddr_in6 *>(&a.storage);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        a.len = sizeof(*in6);
        EXPECT_EQ(::inet_pton(family, text.c_str(), &in6->sin6_addr), 1);
        return a;
    }
    auto *in = reinterpret_cast<sockaddr_in *>(&a.storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    a.len = sizeof(*in);
    EXPECT_EQ(::inet_pton(family, text.c_str(), &in->sin_addr), 1);
    return a;
}

} // namespace

class Auto : public Sockets {
  protected:
    Fd make_auto(int flags = 0) const {
        Fd fd = make(flags);
        EXPECT_EQ(policy(fd, SDP_INFO_POLICY_AUTO), 0);
        return fd;
    }

    Fd plain() const { return Fd(::socket(GetParam().address, SOCK_STREAM, 0)); }

    Fd listening(Fd fd, uint16_t port = 0) const {
        set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        EXPECT_EQ(bind_to(fd, loopback(port)), 0);
        EXPECT_EQ(::listen(fd.get(), 16), 0) << std::strerror(errno);
        return fd;
    }

    Fd auto_listener(uint16_t port = 0) const { return listening(make_auto(), port); }
    Fd tcp_listener(uint16_t port = 0) const { return listening(plain(), port); }

    static Fd accepted(const Fd &listener) {
        Fd fd(::accept(listener.get(), nullptr, nullptr));
        EXPECT_TRUE(fd) << std::strerror(errno);
        return fd;
    }

    void expect_sdp(const Fd &fd) const {
        EXPECT_EQ(info(fd).transport, SDP_INFO_TRANSPORT_SDP);
        EXPECT_EQ(info(fd).reason, SDP_INFO_REASON_NONE);
    }

    void expect_tcp(const Fd &fd, int reason) const {
        EXPECT_EQ(info(fd).transport, SDP_INFO_TRANSPORT_TCP);
        EXPECT_EQ(info(fd).reason, reason);
    }
};
INSTANTIATE_TEST_SUITE_P(All, Auto, testing::ValuesIn(kinds()), name_of_kind);

/* Both ends know how: it is SDP, and what the program sees of addresses is the service. */
TEST_P(Auto, BothHaveIt) {
    Fd listener = auto_listener();
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    Fd there = accepted(listener);
    expect_sdp(here);
    expect_sdp(there);
    EXPECT_EQ(info(here).policy, SDP_INFO_POLICY_AUTO);
    EXPECT_EQ(info(there).policy, SDP_INFO_POLICY_AUTO);
    EXPECT_TRUE(peer_of(here) == name_of(listener));
    EXPECT_TRUE(name_of(there) == name_of(listener));
    EXPECT_TRUE(peer_of(there) == name_of(here));
    EXPECT_TRUE(echoes(here, there));
    EXPECT_TRUE(echoes(there, here));
}

/* Nobody has a port mapper there: TCP, at once. */
TEST_P(Auto, PeerHasTcp) {
    Fd listener = tcp_listener();
    Fd here = make_auto();
    Counters before = counters();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    Fd there = accepted(listener);
    expect_tcp(here, SDP_INFO_REASON_NO_ANSWER);
    expect_more(before, "pm_unreachable", 1);
    expect_more(before, "tcp_no_answer", 1);
    EXPECT_TRUE(peer_of(here) == name_of(listener));
    EXPECT_TRUE(peer_of(there) == name_of(here));
    EXPECT_TRUE(echoes(here, there));
    EXPECT_TRUE(echoes(there, here));
    tcp_info tcp{};
    socklen_t len = sizeof(tcp);
    ASSERT_EQ(::getsockopt(here.get(), SOL_TCP, TCP_INFO, &tcp, &len), 0);
    EXPECT_EQ(tcp.tcpi_state, TCP_ESTABLISHED);
}

TEST_P(Auto, TcpComesToAuto) {
    Fd listener = auto_listener();
    Fd here = plain();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    Fd there = accepted(listener);
    expect_tcp(there, SDP_INFO_REASON_PEER);
    EXPECT_EQ(info(there).policy, SDP_INFO_POLICY_AUTO);
    EXPECT_TRUE(echoes(here, there));
    EXPECT_TRUE(echoes(there, here));
    ::shutdown(here.get(), SHUT_WR);
    EXPECT_TRUE(receive(there, 1).empty());
}

/* One accept() for both, in turn, and poll() for either */
TEST_P(Auto, BothAtOneListener) {
    Fd listener = auto_listener();
    EXPECT_EQ(events(listener, POLLIN), 0);
    std::vector<Fd> clients;
    for (int i = 0; i < 10; i++) {
        clients.push_back(i % 2 ? plain() : make_auto());
        ASSERT_EQ(connect_to(clients.back(), name_of(listener)), 0);
    }
    int sdp = 0;
    for (int i = 0; i < 10; i++) {
        ASSERT_TRUE(eventually([&] { return events(listener, POLLIN) == POLLIN; }));
        sdp += info(accepted(listener)).transport == SDP_INFO_TRANSPORT_SDP;
    }
    EXPECT_EQ(sdp, 5);
    EXPECT_EQ(events(listener, POLLIN), 0);
    set_nonblocking(listener);
    EXPECT_EQ(ERRNO_OF(::accept(listener.get(), nullptr, nullptr)), EAGAIN);
}

/* Who sleeps in accept() wakes for either. */
TEST_P(Auto, AcceptWaitsForBoth) {
    Fd listener = auto_listener();
    for (bool sdp : {true, false, true}) {
        Call call([&] { return ::accept(listener.get(), nullptr, nullptr); });
        ASSERT_TRUE(call.sleeps());
        Fd here = sdp ? make_auto() : plain();
        ASSERT_EQ(connect_to(here, name_of(listener)), 0);
        Fd there(static_cast<int>(call.ret()));
        ASSERT_TRUE(there);
        EXPECT_EQ(info(there).transport == SDP_INFO_TRANSPORT_SDP, sdp);
    }
}

/* The port of a service that does SDP alone is known as well. */
TEST_P(Auto, ServiceWithoutTcp) {
    Fd other = auto_listener();
    Fd listener = listening(make());
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    Fd there = accepted(listener);
    expect_sdp(here);
    expect_sdp(there);
}

/* A port mapper that knows of no such service says so. */
TEST_P(Auto, Denied) {
    Fd other = auto_listener();
    Fd listener = tcp_listener();
    Counters before = counters();
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_tcp(here, SDP_INFO_REASON_DENIED);
    expect_more(before, "pm_denied", 1);
    expect_more(before, "pm_denies_sent", 1);
}

/* Nobody is asked twice within the time that an answer holds. */
TEST_P(Auto, AskedOnce) {
    Fd listener = auto_listener();
    Counters before = counters();
    for (int i = 0; i < 5; i++) {
        Fd here = make_auto();
        ASSERT_EQ(connect_to(here, name_of(listener)), 0);
        expect_sdp(here);
        accepted(listener);
    }
    expect_more(before, "pm_requests_sent", 1);
    expect_more(before, "pm_accepts_sent", 1);
    expect_more(before, "pm_acks_received", 1);
    expect_more(before, "pm_cached", 4);
}

/* PM-12, -13: an answer may be for once, and SDP is still there when it is used. */
TEST_P(Auto, AnswerForOnce) {
    Tuned tuned("pm_time", 0);
    Fd listener = auto_listener();
    Counters before = counters();
    for (int i = 0; i < 3; i++) {
        Fd here = make_auto();
        ASSERT_EQ(connect_to(here, name_of(listener)), 0);
        expect_sdp(here);
        EXPECT_TRUE(echoes(here, accepted(listener)));
    }
    expect_more(before, "pm_requests_sent", 3);
    EXPECT_EQ(counters()["pm_cached"], before["pm_cached"]);
}

/* PM-20, -23, -38, -42: at the port of port mappers, and no two questions are the same. */
TEST_P(Auto, QuestionsDiffer) {
    Tuned forgotten("pm_silent_ms", 1);
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    constexpr size_t kMany = 5;
    std::vector<Fd> fds;
    for (size_t i = 0; i < kMany; i++) {
        fds.push_back(make_auto(SOCK_NONBLOCK));
        ASSERT_EQ(connect_to(fds.back(), name_of(listener)), EINPROGRESS);
    }
    std::set<uint64_t> handles;
    std::set<std::pair<uint64_t, uint16_t>> asked;
    for (const Message &m : mapper.taken(2 * kMany)) {
        EXPECT_EQ(m.ap_port(), name_of(listener).port());
        handles.insert(m.handle());
        asked.insert({m.handle(), m.cp_port()});
    }
    EXPECT_EQ(handles.size(), kMany);
    EXPECT_EQ(asked.size(), kMany);
    for (const Fd &fd : fds)
        EXPECT_EQ(events(fd, POLLOUT, 20000), POLLOUT);
}

/* PM-41: where the count begins nobody can tell. */
TEST_P(Auto, FirstHandleIsRandom) {
    auto *handles = static_cast<uint64_t *>(::mmap(
        nullptr, 2 * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void *>(handles), MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        std::string add = "rdma link add fresh" + std::to_string(i) + GetParam().name +
                          " type softwarp netdev lo";
        ASSERT_EQ(in_child([&] {
                      if (::unshare(CLONE_NEWNET) != 0)
                          return 1;
                      loopback_up();
                      if (std::system(add.c_str()) != 0)
                          return 2;
                      {
                          Mapper mapper(loopback(), AF_INET6 == GetParam().address);
                          Fd listener = tcp_listener();
                          Fd here = make_auto();
                          if (connect_to(here, name_of(listener)) != 0)
                              return 3;
                          handles[i] = mapper.taken(1)[0].handle();
                      }
                      return 0;
                  }),
                  0);
    }
    EXPECT_NE(handles[0], handles[1]);
    EXPECT_GT(handles[0] | handles[1], UINT32_MAX);
    ::munmap(handles, 2 * sizeof(uint64_t));
}

/* PM-59 */
TEST_P(Auto, AnotherPort) {
    Tuned tuned("pm_port", 4935);
    Fd listener = auto_listener();
    Fd free(::socket(GetParam().address, SOCK_DGRAM, 0));
    EXPECT_EQ(bind_to(free, loopback(kMapperPort)), 0);
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_sdp(here);
    Client client(loopback(4935));
    client.send(request(name_of(listener), loopback(4711)));
    EXPECT_TRUE(client.receive());
}

/* PM-44: a reset where SDP was promised is a denial, and TCP has its turn. */
TEST_P(Auto, Refused) {
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    Fd silent = plain();
    ASSERT_EQ(bind_to(silent, loopback()), 0);
    mapper.answer(name_of(silent).port());
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_tcp(here, SDP_INFO_REASON_REFUSED);
    EXPECT_TRUE(echoes(here, accepted(listener)));
    /* and now that is known */
    Fd next = make_auto();
    ASSERT_EQ(connect_to(next, name_of(listener)), 0);
    expect_tcp(next, SDP_INFO_REASON_DENIED);
}

/* PM-19: an answer may name another address, but none that leads back to this host, or to many. */
TEST_P(Auto, AnswerNamesAnotherAddress) {
    bool six = GetParam().address == AF_INET6;
    std::string own = six ? "fd98::1" : "10.98.0.1", other = six ? "fd98::2" : "10.98.0.2";
    std::string mask = six ? "/128 nodad" : "/32";
    int count = 0;
    auto test = [&](const std::string &answer, bool sdp) {
        /* an earlier device may take a moment to go */
        std::string commands = "rdma link add led" + std::string(six ? "six" : "four") +
                               std::to_string(count++) +
                               " type softwarp netdev lo && ip address add " + own + mask +
                               " dev lo && ip address add " + other + mask + " dev lo";
        return in_child([&] {
            if (::unshare(CLONE_NEWNET) != 0)
                return 1;
            loopback_up();
            if (std::system(commands.c_str()) != 0)
                return 2;
            Fd listener = plain(), liar = make();
            if (bind_to(listener, at(GetParam().address, own, 0)) != 0 ||
                ::listen(listener.get(), 8) != 0 || bind_to(liar, any()) != 0 ||
                ::listen(liar.get(), 8) != 0)
                return 3;
            Mapper mapper(at(GetParam().address, own, 0), six);
            mapper.answer_at(at(GetParam().address, answer, 0));
            mapper.answer(name_of(liar).port());
            Fd here = make_auto();
            if (connect_to(here, name_of(listener)) != 0)
                return 4;
            if (sdp)
                return info(here).transport == SDP_INFO_TRANSPORT_SDP ? 0 : 5;
            if (info(here).reason != SDP_INFO_REASON_DENIED)
                return 6;
            return counters()["pm_accepted"] == 0 ? 0 : 7;
        });
    };
    EXPECT_EQ(test(own, true), 0);
    EXPECT_EQ(test(other, true), 0);
    for (const char *bad :
         six ? std::vector<const char *>{"::1", "::", "ff02::1", "::ffff:127.0.0.1"}
             : std::vector<const char *>{"127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"})
        EXPECT_EQ(test(bad, false), 0) << bad;
}

/* An answer of before does not hold any more: it is asked anew. */
TEST_P(Auto, AnswerIsStale) {
    Fd other = auto_listener();
    Fd listener = auto_listener();
    uint16_t port = name_of(listener).port();
    Fd first = make_auto();
    ASSERT_EQ(connect_to(first, name_of(listener)), 0);
    first.reset();
    listener.reset();
    Counters before = counters();
    listener = auto_listener(port);
    /* the port that the program is told of at once, and is to keep */
    uint16_t told = 0;
    auto connect = [&] {
        Fd fd = make_auto(SOCK_NONBLOCK);
        EXPECT_EQ(connect_to(fd, name_of(listener)), EINPROGRESS);
        told = name_of(fd).port();
        EXPECT_EQ(events(fd, POLLOUT, 10000), POLLOUT);
        set_nonblocking(fd, false);
        return fd;
    };
    Fd here = connect();
    Fd there = accepted(listener);
    expect_sdp(here);
    EXPECT_EQ(name_of(here).port(), told);
    EXPECT_EQ(peer_of(there).port(), told);
    EXPECT_TRUE(echoes(here, there));
    expect_more(before, "pm_stale", 1);
    expect_more(before, "pm_requests_sent", 1);
    /* and then it is there by TCP alone */
    here.reset();
    there.reset();
    listener.reset();
    listener = tcp_listener(port);
    here = connect();
    there = accepted(listener);
    expect_tcp(here, SDP_INFO_REASON_DENIED);
    EXPECT_EQ(peer_of(there).port(), told);
    EXPECT_TRUE(echoes(here, there));
    expect_more(before, "pm_stale", 2);
    expect_more(before, "pm_denied", 1);
}

/* The number for programs that know nothing of SDP: the policy auto, whatever the default. */
TEST_P(Auto, ByNumber) {
    for (int usual : {SDP_INFO_POLICY_SDP, SDP_INFO_POLICY_AUTO, SDP_INFO_POLICY_TCP}) {
        Tuned tuned("policy", usual);
        Fd unaware(::socket(GetParam().address, SOCK_STREAM, IPPROTO_SDP_AUTO));
        ASSERT_TRUE(unaware) << std::strerror(errno);
        EXPECT_EQ(option(unaware, SOL_SDP, SDP_POLICY), SDP_INFO_POLICY_AUTO) << usual;
        EXPECT_EQ(option(unaware, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
        EXPECT_EQ(option(make(), SOL_SDP, SDP_POLICY), usual);
        Fd listener = listening(std::move(unaware));
        Fd here(::socket(GetParam().address, SOCK_STREAM, IPPROTO_SDP_AUTO));
        ASSERT_EQ(connect_to(here, name_of(listener)), 0);
        Fd there = accepted(listener);
        expect_sdp(here);
        EXPECT_TRUE(echoes(here, there));
    }
    EXPECT_EQ(ERRNO_OF(::socket(GetParam().address, SOCK_DGRAM, IPPROTO_SDP_AUTO)),
              EPROTONOSUPPORT);
}

/* ... and TCP from listen() if there is no second port for SDP, where a program that knows is told.
 */
TEST_P(Auto, ByNumberWithoutASecondPort) {
    LocalPorts one("40000 40000");
    Fd taken = plain();
    ASSERT_EQ(bind_to(taken, loopback(40000)), 0);
    Fd aware = make_auto();
    ASSERT_EQ(bind_to(aware, loopback(40002)), 0);
    EXPECT_EQ(ERRNO_OF(::listen(aware.get(), 1)), EADDRINUSE);
    aware.reset();
    Fd listener(::socket(GetParam().address, SOCK_STREAM, IPPROTO_SDP_AUTO));
    ASSERT_EQ(bind_to(listener, loopback(40002)), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0) << std::strerror(errno);
    EXPECT_EQ(option(listener, SOL_SDP, SDP_POLICY), SDP_INFO_POLICY_TCP);
    taken.reset();
    Fd here = plain();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* A port by which somebody was told of a service is not another's for as long as that is known. */
TEST_P(Auto, PortsRest) {
    LocalPorts few("40000 41023");
    Tuned often("pm_source_rate", 1000);
    std::set<uint16_t> ports;
    for (int i = 0; i < 64; i++) {
        Fd listener = auto_listener();
        Client client(loopback());
        client.send(request(name_of(listener), loopback(4711)));
        std::optional<Message> answer = client.receive();
        ASSERT_TRUE(answer);
        ASSERT_EQ(answer->type(), kAccept);
        EXPECT_TRUE(ports.insert(answer->ap_port()).second) << answer->ap_port();
    }
}

/* ... nor does another program get it, in whatever way it binds. */
TEST_P(Auto, PortsRestFromPrograms) {
    Tuned time("pm_time", 8);
    Fd listener = auto_listener();
    Client client(loopback());
    client.send(request(name_of(listener), loopback(4711)));
    std::optional<Message> answer = client.receive();
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->type(), kAccept);
    Stopwatch watch;
    listener.reset();
    auto bind_there = [&](int option) {
        Fd fd = plain();
        if (option) {
            EXPECT_EQ(set(fd, SOL_SOCKET, option, 1), 0);
        }
        return bind_to(fd, loopback(answer->ap_port()));
    };
    for (int option : {0, SO_REUSEADDR, SO_REUSEPORT}) {
        int error = bind_there(option);
        if (watch.ms() < 2000) {
            EXPECT_EQ(error, EADDRINUSE) << option;
        }
    }
    Fd here = plain();
    EXPECT_EQ(connect_to(here, loopback(answer->ap_port())), ECONNREFUSED);
    /* and then it is as any other */
    EXPECT_TRUE(eventually([&] { return bind_there(0) == 0; }));
    EXPECT_GE(watch.ms(), 2000);
}

/* A namespace goes at once, with ports that rest in it. */
TEST_P(Auto, PortsRestInANamespace) {
    std::string device = "rests" + std::string(GetParam().name);
    Tuned time("pm_time", 254);
    EXPECT_EQ(in_child([&] {
                  if (::unshare(CLONE_NEWNET) != 0)
                      return 1;
                  loopback_up();
                  if (std::system(("rdma link add " + device + " type softwarp netdev lo").c_str()))
                      return 2;
                  Fd listener = auto_listener();
                  Client client(loopback());
                  client.send(request(name_of(listener), loopback(4711)));
                  std::optional<Message> answer = client.receive();
                  return answer && answer->type() == kAccept ? 0 : 3;
              }),
              0);
    EXPECT_TRUE(eventually(
        [&] { return std::system(("rdma link show | grep -q " + device + "/").c_str()) != 0; }));
}

/* All local ports have connections to somewhere else: TCP can share them, and is the way then. */
TEST_P(Auto, NoPortIsFree) {
    Fd elsewhere = tcp_listener(), listener = tcp_listener();
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    /* where no port rests */
    LocalPorts few("42000 42003");
    std::vector<Fd> others;
    for (int i = 0; i < 4; i++) {
        others.push_back(plain());
        ASSERT_EQ(connect_to(others.back(), name_of(elsewhere)), 0);
    }
    Counters before = counters();
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_tcp(here, SDP_INFO_REASON_SETUP);
    expect_more(before, "pm_requests_sent", 0);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* A service is started again, and many of its clients come at once. */
TEST_P(Auto, ManyWithAStaleAnswer) {
    Fd listener = auto_listener();
    uint16_t port = name_of(listener).port();
    Fd first = make_auto();
    ASSERT_EQ(connect_to(first, name_of(listener)), 0);
    first.reset();
    listener.reset();
    listener = auto_listener(port);
    std::vector<Fd> clients;
    for (int i = 0; i < 12; i++) {
        clients.push_back(make_auto(SOCK_NONBLOCK));
        ASSERT_EQ(connect_to(clients.back(), name_of(listener)), EINPROGRESS);
    }
    for (const Fd &client : clients) {
        ASSERT_EQ(events(client, POLLOUT, 10000), POLLOUT);
        expect_sdp(client);
    }
}

/* Who answers and then does not do SDP */
TEST_P(Auto, SetUpFails) {
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    Fd liar = tcp_listener();
    mapper.answer(name_of(liar).port());
    std::thread closer([&] { accepted(liar); });
    Fd here = make_auto();
    EXPECT_EQ(connect_to(here, name_of(listener)), 0);
    closer.join();
    expect_tcp(here, SDP_INFO_REASON_SETUP);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* Datagrams that are no answers: connect() waits no longer than for a silent host. */
TEST_P(Auto, NonsenseIsNoAnswer) {
    // the host is not to be remembered as a silent one
    Tuned soon("pm_silent_ms", 1);
    Mapper mapper(another_address(), AF_INET6 == GetParam().address);
    mapper.answer_nonsense();
    Fd listener = plain();
    ASSERT_EQ(bind_to(listener, another_address()), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    Fd here = make_auto(SOCK_NONBLOCK);
    ASSERT_EQ(connect_to(here, name_of(listener)), EINPROGRESS);
    ASSERT_EQ(events(here, POLLOUT, 20000), POLLOUT);
    expect_tcp(here, SDP_INFO_REASON_NO_ANSWER);
    EXPECT_EQ(mapper.taken(2).size(), 2U);
}

/* A host that is silent costs 200 ms at most, and that once. */
/* pm_wait_ms and what connect() takes anyway, also where processors are emulated */
static constexpr long kAskedMs = 300;
static constexpr long kKnownMs = 100;

TEST_P(Auto, NobodyAnswers) {
    Mapper mapper(another_address(), AF_INET6 == GetParam().address);
    Fd listener = plain();
    ASSERT_EQ(bind_to(listener, another_address()), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    Counters before;
    std::vector<Message> asked;
    Tuned size("pm_cache", 1024);
    /* on a busy machine the least of some counts; another size forgets the host */
    long ms = 0;
    for (int i = 0; i < 10 && (i == 0 || ms > kAskedMs); i++) {
        EXPECT_EQ(write_value("pm_cache", i % 2 == 0 ? "2048" : "1024"), 0);
        before = counters();
        Fd here = make_auto();
        Stopwatch watch;
        ASSERT_EQ(connect_to(here, name_of(listener)), 0);
        ms = watch.ms();
        EXPECT_GE(ms, 190);
        expect_tcp(here, SDP_INFO_REASON_NO_ANSWER);
        expect_more(before, "pm_silent", 1);
        expect_more(before, "pm_requests_sent", 2);
        asked = mapper.taken(asked.size() + 2);
        ASSERT_EQ(asked.size(), 2U * static_cast<size_t>(i) + 2);
        EXPECT_EQ(asked[asked.size() - 2], asked.back());
    }
    EXPECT_LE(ms, kAskedMs);
    /* another service of that host */
    Fd other = plain();
    ASSERT_EQ(bind_to(other, another_address()), 0);
    ASSERT_EQ(::listen(other.get(), 8), 0);
    Fd next = make_auto();
    ASSERT_EQ(connect_to(next, name_of(other)), 0);
    expect_tcp(next, SDP_INFO_REASON_NO_ANSWER);
    expect_more(before, "pm_requests_sent", 2);
    expect_more(before, "pm_cached", 1);
    /* and nobody waits for it */
    for (int i = 0; i < 10 && (i == 0 || ms > kKnownMs); i++) {
        next = make_auto();
        Stopwatch watch;
        ASSERT_EQ(connect_to(next, name_of(other)), 0);
        ms = watch.ms();
    }
    EXPECT_LE(ms, kKnownMs);
    expect_more(before, "pm_requests_sent", 2);
}

/*
 * Of many who ask at once only the first may be answered: a host's ICMP is limited to one a
 * second.  What these have learnt counts for the others, whose silence is none of the host's.
 */
class AskedTogether : public Auto {
  protected:
    AskedTogether() : mapper_(std::in_place, loopback(), AF_INET6 == GetParam().address) {
        Fd service = tcp_listener();
        service_ = name_of(service);
        service.reset();
        before_ = counters();
        first_ = make_auto(SOCK_NONBLOCK);
        EXPECT_EQ(connect_to(first_, service_), EINPROGRESS);
        EXPECT_EQ(mapper_->taken(1).size(), 1U);
        mapper_.reset();
    }

    /* The first one looks again before it has waited for all its time. */
    void expect_known() {
        EXPECT_EQ(events(first_, POLLOUT, 20000), POLLOUT);
        expect_more(before_, "pm_requests_sent", 2);
        expect_more(before_, "pm_cached", 1);
        expect_more(before_, "pm_silent", 0);
    }

    Tuned patience_{"pm_wait_ms", 3000};
    std::optional<Mapper> mapper_;
    Address service_;
    Counters before_;
    Fd first_;
};
INSTANTIATE_TEST_SUITE_P(All, AskedTogether, testing::ValuesIn(kinds()), name_of_kind);

TEST_P(AskedTogether, NobodyThere) {
    Fd listener = tcp_listener(service_.port());
    Fd second = make_auto();
    Stopwatch watch;
    ASSERT_EQ(connect_to(second, service_), 0);
    /* ICMP says so at once; a third of pm_wait_ms passes until it is asked again */
    EXPECT_LT(watch.ms(), 900);
    expect_tcp(second, SDP_INFO_REASON_NO_ANSWER);
    expect_known();
    expect_tcp(first_, SDP_INFO_REASON_DENIED);
    /* and the host's other services are not said to be without SDP */
    Fd other = auto_listener();
    Fd third = make_auto();
    ASSERT_EQ(connect_to(third, name_of(other)), 0);
    expect_sdp(third);
}

TEST_P(AskedTogether, Accepted) {
    Fd listener = auto_listener(service_.port());
    Fd second = make_auto();
    ASSERT_EQ(connect_to(second, service_), 0);
    expect_sdp(second);
    accepted(listener);
    expect_known();
    expect_sdp(first_);
    EXPECT_TRUE(echoes(first_, accepted(listener)));
}

/* What a socket cannot reach for its own reasons says nothing to others: each asks. */
TEST_P(Auto, OwnReasonsAreNotKept) {
    bool six = GetParam().address == AF_INET6;
    Fd listener = tcp_listener();
    auto connect = [&](const Fd &fd, int reason = SDP_INFO_REASON_NO_ANSWER) {
        EXPECT_EQ(connect_to(fd, name_of(listener)), 0);
        expect_tcp(fd, reason);
        accepted(listener);
    };
    auto visit = [&](int level, int name, int value) {
        Fd fd = make_auto();
        EXPECT_EQ(set(fd, level, name, value), 0) << name;
        connect(fd);
    };
    Counters before = counters();
    visit(SOL_SOCKET, SO_MARK, 1);
    visit(SOL_SOCKET, SO_DONTROUTE, 1);
    visit(six ? SOL_IPV6 : SOL_IP, six ? IPV6_UNICAST_HOPS : IP_TTL, 1);
    Fd bound = make_auto();
    EXPECT_EQ(::setsockopt(bound.get(), SOL_SOCKET, SO_BINDTODEVICE, "lo", 3), 0);
    connect(bound);
    expect_more(before, "pm_unreachable", 4);
    /* and this one's is kept */
    connect(make_auto());
    expect_more(before, "pm_unreachable", 5);
    connect(make_auto(), SDP_INFO_REASON_DENIED);
    expect_more(before, "pm_unreachable", 5);
    expect_more(before, "pm_cached", 1);
}

/* Between the question and its answer the socket is as one of TCP's that connects. */
TEST_P(Auto, WhileItIsAsked) {
    Tuned forgotten("pm_silent_ms", 1);
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    Address to = name_of(listener);
    Fd here = make_auto(SOCK_NONBLOCK);
    Epoll level(here, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    Epoll edge(here, EPOLLOUT | EPOLLET);
    /* of one that is not connected */
    EXPECT_NE(level.wait(0), 0U);
    edge.wait(0);
    ASSERT_EQ(connect_to(here, to), EINPROGRESS);
    EXPECT_EQ(connect_to(here, to), EALREADY);
    EXPECT_EQ(bind_to(here, loopback()), EINVAL);
    EXPECT_EQ(events(here, POLLIN | POLLOUT), 0);
    EXPECT_EQ(level.wait(0), 0U);
    char octet = 1;
    EXPECT_EQ(ERRNO_OF(::send(here.get(), &octet, 1, 0)), EAGAIN);
    EXPECT_EQ(ERRNO_OF(::recv(here.get(), &octet, 1, 0)), EAGAIN);
    sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    EXPECT_EQ(ERRNO_OF(::getpeername(here.get(), reinterpret_cast<sockaddr *>(&peer), &len)),
              ENOTCONN);
    EXPECT_EQ(info(here).transport, SDP_INFO_TRANSPORT_NONE);
    /* its name is known, and stays */
    Address own = name_of(here);
    EXPECT_NE(own.port(), 0);
    EXPECT_EQ(own, loopback(own.port()));
    /* those that have waited since then see what comes of it */
    EXPECT_EQ(edge.wait(20000), static_cast<uint32_t>(EPOLLOUT));
    EXPECT_EQ(level.wait(20000), static_cast<uint32_t>(EPOLLOUT));
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
    EXPECT_EQ(connect_to(here, to), 0);
    EXPECT_EQ(connect_to(here, to), EISCONN);
    expect_tcp(here, SDP_INFO_REASON_NO_ANSWER);
    EXPECT_EQ(name_of(here), own);
    set_nonblocking(here, false);
    Fd there = accepted(listener);
    EXPECT_EQ(peer_of(there), own);
    EXPECT_TRUE(echoes(here, there));
}

/* At no moment is it one that nobody connects, whichever way it goes on by. */
TEST_P(Auto, PolledAllTheTime) {
    Tuned forgotten("pm_silent_ms", 1);
    Tuned soon("pm_wait_ms", 3);
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    auto polled = [](const Fd &fd) {
        Stopwatch watch;
        short seen = 0;
        while (!seen && watch.ms() < 20000)
            seen = events(fd, POLLIN | POLLOUT);
        return seen;
    };
    Fd listener = tcp_listener();
    Address nobody = name_of(Fd(tcp_listener()));
    for (int i = 0; i < 100; i++) {
        Fd here = make_auto(SOCK_NONBLOCK);
        ASSERT_EQ(connect_to(here, i % 2 ? nobody : name_of(listener)), EINPROGRESS);
        if (i % 2) {
            /* TCP's own poll may see the error before the rest */
            EXPECT_TRUE(polled(here) & POLLERR);
            EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
        } else {
            EXPECT_EQ(polled(here), POLLOUT);
            accepted(listener);
        }
    }
}

/* Calls that sleep meanwhile go on with what it has become. */
TEST_P(Auto, CallsWaitForTheAnswer) {
    Tuned forgotten("pm_silent_ms", 1);
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    Fd here = make_auto();
    Call connecting([&] { return connect_to(here, name_of(listener)); });
    ASSERT_FALSE(mapper.taken(1).empty());
    Call sending([&] { return ::send(here.get(), "softwarp", 8, 0); });
    Call receiving([&] {
        char octets[8];
        return ::recv(here.get(), octets, sizeof(octets), MSG_WAITALL);
    });
    Fd there = accepted(listener);
    EXPECT_EQ(receive(there, 8), std::vector<uint8_t>({'s', 'o', 'f', 't', 'w', 'a', 'r', 'p'}));
    EXPECT_TRUE(send_all(there, pattern(8)));
    EXPECT_EQ(connecting.ret(), 0);
    EXPECT_EQ(sending.ret(), 8);
    EXPECT_EQ(receiving.ret(), 8);
}

/* It can be given up at any time. */
TEST_P(Auto, GivenUpWhileItIsAsked) {
    Tuned forgotten("pm_silent_ms", 1);
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    Fd closed = make_auto(SOCK_NONBLOCK);
    ASSERT_EQ(connect_to(closed, name_of(listener)), EINPROGRESS);
    closed.reset();
    Fd shut = make_auto(SOCK_NONBLOCK);
    ASSERT_EQ(connect_to(shut, name_of(listener)), EINPROGRESS);
    EXPECT_EQ(::shutdown(shut.get(), SHUT_RDWR), 0);
    Fd dropped = make_auto(SOCK_NONBLOCK);
    ASSERT_EQ(connect_to(dropped, name_of(listener)), EINPROGRESS);
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    EXPECT_EQ(::connect(dropped.get(), &none, sizeof(none)), 0);
    /* the time of all three passes, and nobody has come */
    EXPECT_EQ(events(listener, POLLIN, 500), 0);
    /* and these are as good as new */
    set_nonblocking(dropped, false);
    EXPECT_EQ(connect_to(dropped, name_of(listener)), 0);
    EXPECT_TRUE(echoes(dropped, accepted(listener)));
}

/* A signal ends the call, and not the connecting. */
TEST_P(Auto, InterruptedWhileItIsAsked) {
    Tuned forgotten("pm_silent_ms", 1);
    Mapper mapper(loopback(), AF_INET6 == GetParam().address);
    Fd listener = tcp_listener();
    Fd here = make_auto();
    take_signal(SIGUSR1);
    Call call([&] { return ::connect(here.get(), name_of(listener).get(), loopback().len); });
    ASSERT_FALSE(mapper.taken(1).empty());
    call.interrupt(SIGUSR1);
    EXPECT_EQ(call.ret(), -1);
    EXPECT_EQ(call.error(), EINTR);
    EXPECT_EQ(events(here, POLLOUT, 20000), POLLOUT);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* With an errno that is TCP's, and the socket is good for another try. */
TEST_P(Auto, NobodyListens) {
    Tuned soon("pm_denied_ms", 50);
    Fd listener = auto_listener();
    Address to = name_of(listener);
    listener.reset();
    Fd here = make_auto();
    EXPECT_EQ(connect_to(here, to), ECONNREFUSED);
    EXPECT_EQ(connect_to(here, to), ECONNREFUSED);
    Fd late = make_auto(SOCK_NONBLOCK);
    ASSERT_EQ(connect_to(late, to), EINPROGRESS);
    ASSERT_TRUE(eventually([&] { return (events(late, POLLOUT, 100) & POLLHUP) != 0; }));
    EXPECT_EQ(events(late, POLLOUT), POLLOUT | POLLERR | POLLHUP);
    EXPECT_EQ(option(late, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    /* by SDP, once it is there */
    listener = auto_listener(to.port());
    ASSERT_TRUE(eventually([&] {
        here = make_auto();
        EXPECT_EQ(connect_to(here, to), 0);
        accepted(listener);
        usleep(100000);
        return info(here).transport == SDP_INFO_TRANSPORT_SDP;
    }));
}

/* After one that has failed by TCP the next connect() decides anew. */
TEST_P(Auto, TheSameSocketAgain) {
    Fd refused = tcp_listener();
    Address nobody = name_of(refused);
    refused.reset();
    Fd listener = auto_listener();
    Fd here = make_auto();
    EXPECT_EQ(connect_to(here, nobody), ECONNREFUSED);
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_sdp(here);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* A port that the program has bound is the one it connects from, by both. */
TEST_P(Auto, FromABoundPort) {
    for (bool sdp : {true, false}) {
        Fd listener = sdp ? auto_listener() : tcp_listener();
        Fd here = make_auto();
        ASSERT_EQ(bind_to(here, loopback()), 0);
        uint16_t port = name_of(here).port();
        ASSERT_EQ(connect_to(here, name_of(listener)), 0);
        Fd there = accepted(listener);
        EXPECT_EQ(info(here).transport == SDP_INFO_TRANSPORT_SDP, sdp);
        EXPECT_EQ(peer_of(there).port(), port);
    }
}

TEST_P(Auto, PolicyTcp) {
    Fd listener = make();
    ASSERT_EQ(policy(listener, SDP_INFO_POLICY_TCP), 0);
    listener = listening(std::move(listener));
    Fd here = make();
    ASSERT_EQ(policy(here, SDP_INFO_POLICY_TCP), 0);
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_tcp(here, SDP_INFO_REASON_POLICY);
    expect_tcp(listener, SDP_INFO_REASON_POLICY);
    EXPECT_TRUE(echoes(here, accepted(listener)));
    Fd other = plain();
    ASSERT_EQ(connect_to(other, name_of(listener)), 0);
    EXPECT_TRUE(echoes(other, accepted(listener)));
}

/* A program that wants TCP's segments signed wants TCP; SDP alone refuses. */
TEST_P(Auto, KeysChooseTcp) {
    Fd listener = tcp_listener();
    tcp_md5sig key{};
    Address peer = name_of(listener);
    std::memcpy(&key.tcpm_addr, &peer.storage, peer.len);
    key.tcpm_keylen = 4;
    std::memcpy(key.tcpm_key, "same", 4);
    auto set_key = [&](const Fd &fd) {
        return ERRNO_OF(::setsockopt(fd.get(), SOL_TCP, TCP_MD5SIG, &key, sizeof(key)));
    };
    Fd sdp = make();
    EXPECT_EQ(set_key(sdp), EOPNOTSUPP);
    Fd other = auto_listener();
    EXPECT_EQ(set_key(other), EOPNOTSUPP);
    /* kernels without it refuse what TCP is asked for */
    int known = set_key(plain());
    Fd here = make_auto();
    EXPECT_EQ(set_key(here), known);
    EXPECT_EQ(option(here, SOL_SDP, SDP_POLICY), SDP_INFO_POLICY_TCP);
    if (known == 0) {
        EXPECT_EQ(set_key(listener), 0);
    }
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    expect_tcp(here, SDP_INFO_REASON_POLICY);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

TEST_P(Auto, PolicyIsForBeforehand) {
    Fd fd = make();
    EXPECT_EQ(option(fd, SOL_SDP, SDP_POLICY), SDP_INFO_POLICY_SDP);
    for (int value : {-1, 3, 1000})
        EXPECT_EQ(policy(fd, value), EINVAL);
    for (int value : {SDP_INFO_POLICY_TCP, SDP_INFO_POLICY_AUTO, SDP_INFO_POLICY_SDP}) {
        EXPECT_EQ(policy(fd, value), 0);
        EXPECT_EQ(option(fd, SOL_SDP, SDP_POLICY), value);
    }
    Fd listener = auto_listener();
    EXPECT_EQ(policy(listener, SDP_INFO_POLICY_SDP), EINVAL);
    Fd here = make_auto();
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    EXPECT_EQ(policy(here, SDP_INFO_POLICY_TCP), EINVAL);
    Fd there = accepted(listener);
    EXPECT_EQ(policy(there, SDP_INFO_POLICY_TCP), EINVAL);
}

/* In a namespace without devices nobody is asked, and nobody waits. */
TEST_P(Auto, NoDevice) {
    int ret = in_child([&] {
        if (::unshare(CLONE_NEWNET) != 0)
            return 1;
        loopback_up();
        Fd listener = tcp_listener();
        Fd here = make_auto();
        if (connect_to(here, name_of(listener)) != 0)
            return 2;
        if (info(here).reason != SDP_INFO_REASON_NO_DEVICE)
            return 3;
        if (counters()["pm_requests_sent"] != 0)
            return 4;
        return echoes(here, accepted(listener)) ? 0 : 5;
    });
    EXPECT_EQ(ret, 0);
}

/* The source address has a device, but the route leaves by a netdev without: nobody is asked. */
TEST_P(Auto, NoDeviceOnTheRoute) {
    bool six = GetParam().address == AF_INET6;
    std::string own = six ? "fd98::1" : "10.98.0.1", far = six ? "fd99::" : "10.99.0.";
    std::string commands = "rdma link add " + std::string(six ? "near6" : "near4") +
                           " type softwarp netdev lo && "
                           "ip link add far0 type veth peer name far1 && ip link set far0 up && "
                           "ip link set far1 up && ip address add " +
                           own + (six ? "/128 nodad" : "/32") + " dev lo && ip address add " + far +
                           "1" + (six ? "/64 nodad" : "/24") + " dev far0";
    int ret = in_child([&] {
        if (::unshare(CLONE_NEWNET) != 0)
            return 1;
        loopback_up();
        if (std::system(commands.c_str()) != 0)
            return 2;
        Fd here = make_auto(SOCK_NONBLOCK);
        if (bind_to(here, at(GetParam().address, own, 0)) != 0)
            return 3;
        if (connect_to(here, at(GetParam().address, far + "2", 7)) != EINPROGRESS)
            return 4;
        if (counters()["pm_requests_sent"] != 0)
            return 5;
        return info(here).reason == SDP_INFO_REASON_NO_DEVICE ? 0 : 6;
    });
    EXPECT_EQ(ret, 0);
}

/* Many at once, from threads, and each right */
TEST_P(Auto, ManyAtOnce) {
    Fd listener = auto_listener();
    constexpr int kThreads = 4, kEach = 25;
    std::thread acceptor([&] {
        for (int i = 0; i < kThreads * kEach; i++) {
            Fd there = accepted(listener);
            std::vector<uint8_t> octets = receive(there, 100);
            EXPECT_TRUE(send_all(there, octets));
        }
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < kEach; i++) {
                Fd here = t % 2 ? make_auto() : plain();
                ASSERT_EQ(connect_to(here, name_of(listener)), 0);
                std::vector<uint8_t> octets = pattern(100, static_cast<uint8_t>(t * kEach + i));
                EXPECT_TRUE(send_all(here, octets));
                EXPECT_EQ(receive(here, 100), octets);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    acceptor.join();
}

/* The listener ends with connections of both kinds that nobody has accepted. */
TEST_P(Auto, ListenerEnds) {
    Fd listener = auto_listener();
    Fd sdp = make_auto(), tcp = plain();
    ASSERT_EQ(connect_to(sdp, name_of(listener)), 0);
    ASSERT_EQ(connect_to(tcp, name_of(listener)), 0);
    expect_sdp(sdp);
    Call call([&] { return ::accept(listener.get(), nullptr, nullptr); });
    ::close(static_cast<int>(call.ret()));
    EXPECT_EQ(::shutdown(listener.get(), SHUT_RD), 0);
    EXPECT_EQ(ERRNO_OF(::accept(listener.get(), nullptr, nullptr)), EINVAL);
    listener.reset();
    char octet;
    for (Fd *fd : {&sdp, &tcp}) {
        ssize_t ret = ::recv(fd->get(), &octet, 1, 0);
        EXPECT_LE(ret, 0);
    }
}

/* The responder --------------------------------------------------------------------------- */

class Responder : public Auto {};
INSTANTIATE_TEST_SUITE_P(All, Responder, testing::ValuesIn(kinds()), name_of_kind);

/* PM-24, -25, -17, -18: what it says, from where */
TEST_P(Responder, Answers) {
    Fd listener = auto_listener();
    Client client(loopback());
    Message asked = request(name_of(listener), loopback(4711));
    client.send(asked);
    std::optional<Message> reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->type(), kAccept);
    EXPECT_EQ(reply->version(), asked.version());
    EXPECT_NE(reply->ap_port(), name_of(listener).port());
    EXPECT_NE(reply->ap_port(), 0);
    EXPECT_EQ(reply->cp_port(), 4711);
    EXPECT_EQ(reply->handle(), asked.handle());
    EXPECT_NE(reply->time(), 0);
    EXPECT_EQ(reply->ap_addr(), asked.ap_addr());
    EXPECT_EQ(reply->cp_addr(), asked.cp_addr());
    /* at that port SDP is to be had */
    Fd here = make();
    EXPECT_EQ(connect_to(here, loopback(reply->ap_port())), 0);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* PM-50, -52: a question that comes again is answered by what is so then. */
TEST_P(Responder, AnswersAgain) {
    Fd other = auto_listener();
    Fd listener = auto_listener();
    Client client(loopback());
    Message asked = request(name_of(listener), loopback(4711));
    for (int i = 0; i < 2; i++) {
        client.send(asked);
        std::optional<Message> reply = client.receive();
        ASSERT_TRUE(reply);
        EXPECT_EQ(reply->type(), kAccept);
    }
    listener.reset();
    client.send(asked);
    std::optional<Message> reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->type(), kDeny);
    EXPECT_EQ(reply->time(), 0);
    EXPECT_EQ(reply->handle(), asked.handle());
    EXPECT_EQ(reply->ap_addr(), asked.ap_addr());
}

/* What is no question gets no answer, and is counted. */
TEST_P(Responder, Garbage) {
    Fd listener = auto_listener();
    Client client(loopback());
    Counters before = counters();
    Message good = request(name_of(listener), loopback(4711));
    uint64_t bad = 0;
    auto send = [&](Message m, size_t len) {
        client.send(m, len);
        bad++;
    };
    send(good, 0);
    send(good, 47);
    for (uint8_t first : {0x40, 0x80, 0xc0, 0x05, 0x00, 0x0f}) {
        Message m = good;
        m.octets[0] = first;
        send(m, 48);
    }
    expect_more(before, "pm_malformed", bad);
    /* an acceptance and a denial that nobody has asked for */
    for (uint8_t type : {kAccept, kDeny}) {
        Message m = good;
        m.set_type(type);
        client.send(m);
    }
    client.send(good);
    std::optional<Message> reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->type(), kAccept);
    EXPECT_FALSE(client.receive(200));
}

/* Sources of more than one address, which ::1 has not */
class OneSource : public Auto {};
INSTANTIATE_TEST_SUITE_P(All, OneSource, testing::ValuesIn(kinds(AF_INET)), name_of_kind);

/* PM-24, -60: from the address that was asked, which is not the one that the route back would
 * choose. */
TEST_P(OneSource, AnswersFromWhereItWasAsked) {
    Fd listener = make_auto();
    ASSERT_EQ(bind_to(listener, any()), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    Client client(address("127.0.0.9"), address("127.0.0.8"));
    for (uint16_t port : {name_of(listener).port(), uint16_t{1}}) {
        client.send(request(address("127.0.0.9", port), address("127.0.0.8", 4711)));
        std::optional<Message> reply = client.receive();
        ASSERT_TRUE(reply);
        EXPECT_EQ(reply->type(), port == 1 ? kDeny : kAccept);
    }
}

/* PM-57: one source gets so many answers and no more; others get theirs. */
TEST_P(OneSource, Flood) {
    Fd listener = make_auto();
    ASSERT_EQ(bind_to(listener, any()), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    Address service = address("127.0.0.1", name_of(listener).port());
    Client one(loopback(), address("127.0.0.2"));
    Client other(loopback(), address("127.0.0.3"));
    Counters before = counters();
    Stopwatch watch;
    /* what UDP itself drops meanwhile is not counted */
    EXPECT_TRUE(eventually([&] {
        for (int i = 0; i < 500; i++)
            one.send(request(service, address("127.0.0.2", 4711)));
        return counters()["pm_flooded"] > before["pm_flooded"] + 1000;
    }));
    /* and it would drop the other's as well, until its queue is worked off */
    uint64_t flooded = 0;
    EXPECT_TRUE(eventually([&] {
        ::usleep(50'000);
        uint64_t until_now = std::exchange(flooded, counters()["pm_flooded"]);
        return flooded == until_now;
    }));
    /* few enough for the queue, and what the one source may ask again is used up */
    for (int i = 0; i < 100; i++)
        one.send(request(service, address("127.0.0.2", 4711)));
    EXPECT_TRUE(eventually([&] { return counters()["pm_flooded"] > flooded + 20; }));
    other.send(request(service, address("127.0.0.3", 4711)));
    EXPECT_TRUE(other.receive());
    int answers = 0;
    while (one.receive(100))
        answers++;
    EXPECT_GE(answers, 64);
    EXPECT_LT(answers, 128 + 64 * watch.ms() / 1000);
}

/* Without anybody that is auto there is none. */
TEST_P(Responder, OnlyWhileItIsNeeded) {
    Client client(loopback());
    Message asked = request(loopback(1), loopback(2));
    {
        Fd listener = auto_listener();
        client.send(asked);
        EXPECT_TRUE(client.receive());
    }
    EXPECT_TRUE(eventually([&] {
        client.send(asked);
        return !client.receive(100);
    }));
    Fd taken(::socket(GetParam().address, SOCK_DGRAM, 0));
    set(taken, SOL_IPV6, IPV6_V6ONLY, 1);
    EXPECT_TRUE(eventually([&] { return bind_to(taken, loopback(3935)) == 0; }));
    /* and while another has the port, programs can listen all the same */
    Fd listener = auto_listener();
    Fd here = plain();
    EXPECT_EQ(connect_to(here, name_of(listener)), 0);
    EXPECT_TRUE(echoes(here, accepted(listener)));
}

/* Loopback has many addresses by IPv4 alone. */
class ManyHosts : public Auto {};
INSTANTIATE_TEST_SUITE_P(All, ManyHosts, testing::ValuesIn(kinds(AF_INET)), name_of_kind);

/* Silence is remembered of as many hosts as there is room for. */
TEST_P(ManyHosts, Silent) {
    Mapper mapper(any(), false);
    Fd listener = plain();
    set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    ASSERT_EQ(bind_to(listener, any()), 0);
    ASSERT_EQ(::listen(listener.get(), 200), 0);
    Tuned patience("pm_wait_ms", 3);
    constexpr int hosts = 100;
    auto visit = [&] {
        Counters before = counters();
        std::vector<Fd> all; // at once, because each waits
        for (int i = 0; i < hosts; i++) {
            Address host = address("127.1.0." + std::to_string(i + 1), name_of(listener).port());
            all.push_back(make_auto(SOCK_NONBLOCK));
            int error = connect_to(all.back(), host);
            EXPECT_TRUE(error == 0 || error == EINPROGRESS) << std::strerror(error);
        }
        for (const Fd &here : all)
            EXPECT_EQ(events(here, POLLOUT, 10000), POLLOUT);
        for (int i = 0; i < hosts; i++)
            EXPECT_TRUE(accepted(listener));
        return counters()["pm_silent"] - before["pm_silent"];
    };
    {
        Tuned few("pm_cache", 64);
        EXPECT_EQ(visit(), static_cast<uint64_t>(hosts));
        EXPECT_GE(visit(), static_cast<uint64_t>(hosts) - 64);
    }
    Tuned many("pm_cache", 1024);
    EXPECT_EQ(visit(), static_cast<uint64_t>(hosts));
    /* unless five of them share one of 256 places for four */
    EXPECT_LE(visit(), 5U);
}

class DualStack : public Auto {};
INSTANTIATE_TEST_SUITE_P(All, DualStack, testing::ValuesIn(kinds(AF_INET6)), name_of_kind);

/* A dual-stack server is to be had by either. */
TEST_P(DualStack, ByEither) {
    Fd listener = make_auto();
    ASSERT_EQ(bind_to(listener, any()), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    uint16_t port = name_of(listener).port();
    for (const char *to : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
        Address a = address(to, port);
        Fd here = make_for(a.storage.ss_family);
        ASSERT_EQ(policy(here, SDP_INFO_POLICY_AUTO), 0);
        ASSERT_EQ(connect_to(here, a), 0) << to;
        expect_sdp(here);
        EXPECT_TRUE(peer_of(here) == a) << to;
        EXPECT_TRUE(echoes(here, accepted(listener)));
    }
}

} // namespace softwarp::sockets
