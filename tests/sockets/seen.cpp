// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What an administrator sees of SDP sockets: /proc/net/softwarp_sdp, and the counters
 * in softwarp_sdp_stat beside it.
 */
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <sched.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <thread>

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>

#include "peer.hpp"
#include "seen.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

/* net.softwarp_sdp -------------------------------------------------------------------- */

std::string path_of(const std::string &name) {
    return "/proc/sys/net/softwarp_sdp/" + name;
}

std::string read_value(const std::string &name) {
    char text[64] = "";
    Fd fd(::open(path_of(name).c_str(), O_RDONLY));
    EXPECT_TRUE(fd) << name << ": " << std::strerror(errno);
    ssize_t len = ::read(fd.get(), text, sizeof(text) - 1);
    EXPECT_GT(len, 0) << name;
    std::string found(text, len > 0 ? static_cast<size_t>(len) : 0);
    return found.substr(0, found.find('\n'));
}

int write_value(const std::string &name, const std::string &value) {
    Fd fd(::open(path_of(name).c_str(), O_WRONLY));
    if (!fd)
        return errno;
    return ERRNO_OF(::write(fd.get(), value.data(), value.size()));
}

long charged_pages() {
    std::ifstream file("/proc/net/sockstat");
    std::string text, word;
    while (std::getline(file, text)) {
        std::istringstream line(text);
        long pages = -1;
        line >> word;
        if (word != "TCP:")
            continue;
        while (line >> word)
            if (word == "mem")
                line >> pages;
        return pages;
    }
    return -1;
}

Tuned::Tuned(const std::string &name, int value) : name_(name), before_(read_value(name)) {
    EXPECT_EQ(write_value(name, std::to_string(value)), 0) << name;
    EXPECT_EQ(read_value(name), std::to_string(value));
}

Tuned::~Tuned() {
    EXPECT_EQ(write_value(name_, before_), 0) << name_;
}

class Seen : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Seen, testing::ValuesIn(sdp_kinds()), name_of_kind);

/* The port mapper is for softwarp's devices alone. */
class SeenAnswers : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, SeenAnswers,
                         testing::Values(Kind{"sdp4", AF_INET, IPPROTO_SDP, AF_INET},
                                         Kind{"sdp6", AF_INET6, IPPROTO_SDP, AF_INET6}),
                         name_of_kind);

using Row = std::map<std::string, std::string>;

/* A thread's own network namespace may be another one than the process's. */
static const std::string kProc = "/proc/thread-self/net/";

/* Lines of a file by the names of their columns */
static std::vector<Row> table(const std::string &name) {
    std::ifstream file(kProc + name);
    EXPECT_TRUE(file.is_open());
    std::string text, word;
    std::vector<std::string> names;
    std::getline(file, text);
    std::istringstream header(text);
    while (header >> word)
        names.push_back(word);
    std::vector<Row> found;
    while (std::getline(file, text)) {
        std::istringstream line(text);
        Row row;
        for (const std::string &name : names) {
            EXPECT_TRUE(line >> word) << name << " is missing: " << text;
            row[name] = word;
        }
        EXPECT_FALSE(line >> word) << text;
        found.push_back(row);
    }
    return found;
}

static std::vector<Row> rows() {
    return table("softwarp_sdp");
}

static std::string text_of(const Address &a) {
    char text[INET6_ADDRSTRLEN] = "";
    std::string port = ":" + std::to_string(a.port());
    if (a.storage.ss_family == AF_INET6) {
        auto *in6 = reinterpret_cast<const sockaddr_in6 *>(&a.storage);
        ::inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
        return "[" + std::string(text) + "]" + port;
    }
    auto *in = reinterpret_cast<const sockaddr_in *>(&a.storage);
    ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    return text + port;
}

/* All lines with that local address, and that remote one if there is one */
static std::vector<Row> rows_of(const Address &local, const Address *remote = nullptr) {
    std::vector<Row> found;
    for (Row &row : rows())
        if (row["local"] == text_of(local) && (!remote || row["remote"] == text_of(*remote)))
            found.push_back(row);
    return found;
}

Counters counters() {
    std::ifstream file(kProc + "softwarp_sdp_stat");
    EXPECT_TRUE(file.is_open());
    Counters found;
    std::string name;
    uint64_t value = 0;
    while (file >> name >> value)
        found[name] = value;
    return found;
}

void expect_more(const Counters &before, const std::string &name, uint64_t more) {
    ASSERT_EQ(before.count(name), 1U) << name;
    EXPECT_TRUE(eventually([&] { return counters()[name] >= before.at(name) + more; })) << name;
    EXPECT_EQ(counters()[name], before.at(name) + more) << name;
}

static std::string inode_of(const Fd &fd) {
    struct stat st = {};
    EXPECT_EQ(::fstat(fd.get(), &st), 0);
    return std::to_string(st.st_ino);
}

TEST_P(Seen, Listener) {
    Fd l = listener(7);
    Address a = name_of(l);
    std::vector<Row> found = rows_of(a);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0]["state"], "listen");
    EXPECT_EQ(found[0]["rx_queue"], "0");
    EXPECT_EQ(found[0]["tx_queue"], "7");
    EXPECT_EQ(found[0]["inode"], inode_of(l));
    EXPECT_EQ(found[0]["uid"], std::to_string(::getuid()));
    /* what waits to be accepted */
    Fd here = make();
    ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
    ASSERT_TRUE(eventually([&] { return rows_of(a).at(0)["rx_queue"] == "1"; }));
    l.reset();
    for (Row &row : rows_of(a))
        EXPECT_NE(row["state"], "listen");
}

/* The only line of a socket */
static Row row_of_inode(const std::string &inode);

/* A socket that is neither connected nor listens holds the module all the same. */
TEST_P(Seen, IdleBeforeListenAndAfter) {
    Fd fd = make();
    std::string inode = inode_of(fd);
    EXPECT_EQ(row_of_inode(inode)["state"], "idle");
    EXPECT_EQ(row_of_inode(inode)["uid"], std::to_string(::getuid()));
    Address a = loopback();
    ASSERT_EQ(::bind(fd.get(), a.get(), a.len), 0);
    a = name_of(fd);
    EXPECT_EQ(row_of_inode(inode)["local"], text_of(a));
    EXPECT_EQ(row_of_inode(inode)["state"], "idle");
    ASSERT_EQ(::listen(fd.get(), 1), 0);
    EXPECT_EQ(row_of_inode(inode)["state"], "listen");
    ASSERT_EQ(::shutdown(fd.get(), SHUT_RDWR), 0);
    EXPECT_EQ(row_of_inode(inode)["state"], "idle");
    fd.reset();
    EXPECT_TRUE(rows_of(a).empty());
}

TEST_P(Seen, Connection) {
    Pair pair = connected();
    Address a = name_of(pair.here), b = name_of(pair.there);
    ASSERT_TRUE(send_all(pair.here, pattern(1000)));
    ASSERT_TRUE(eventually([&] { return rows_of(b, &a).at(0)["rx_queue"] == "1000"; }));
    std::vector<Row> here = rows_of(a, &b), there = rows_of(b, &a);
    ASSERT_EQ(here.size(), 1U);
    ASSERT_EQ(there.size(), 1U);
    EXPECT_EQ(here[0]["state"], "open");
    EXPECT_EQ(here[0]["mode"], "combined");
    EXPECT_EQ(here[0]["rx_queue"], "0");
    EXPECT_EQ(here[0]["tx_bcopy"], "1000");
    EXPECT_EQ(here[0]["rx_bcopy"], "0");
    EXPECT_EQ(here[0]["tx_zcopy"], "0");
    EXPECT_EQ(here[0]["inode"], inode_of(pair.here));
    EXPECT_EQ(here[0]["why"], "-");
    EXPECT_EQ(here[0]["policy"], "sdp");
    EXPECT_EQ(here[0]["service"], "-");
    EXPECT_EQ(there[0]["policy"], "sdp");
    EXPECT_NE(here[0]["device"], "-");
    EXPECT_GT(std::stoi(here[0]["peer"]), 0);
    EXPECT_GT(std::stoi(here[0]["size"]), 0);
    EXPECT_EQ(there[0]["inode"], inode_of(pair.there));
    EXPECT_EQ(there[0]["rx_bcopy"], "1000");
    /* one buffer is full */
    EXPECT_EQ(std::stoi(there[0]["own"]), std::stoi(there[0]["bufs"]) - 1);
    EXPECT_EQ(receive(pair.there, 1000), pattern(1000));
    EXPECT_EQ(rows_of(b, &a).at(0)["rx_queue"], "0");
    EXPECT_EQ(rows_of(b, &a).at(0)["rx_bcopy"], "1000");
    ASSERT_EQ(::shutdown(pair.here.get(), SHUT_WR), 0);
    ASSERT_TRUE(eventually([&] { return rows_of(b, &a).at(0)["state"] == "peer-half"; }));
    EXPECT_EQ(rows_of(a, &b).at(0)["state"], "half");
    pair.here.reset();
    pair.there.reset();
    EXPECT_TRUE(eventually([&] { return rows_of(a).empty() && rows_of(b, &a).empty(); }));
}

static std::vector<Row> rows_of_inode(const std::string &inode) {
    std::vector<Row> found;
    for (Row &row : rows())
        if (row["inode"] == inode)
            found.push_back(row);
    return found;
}

static Row row_of_inode(const std::string &inode) {
    std::vector<Row> found = rows_of_inode(inode);
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? Row() : found[0];
}

/* With the policy auto both ends show the service, which is not what carries the connection. */
TEST_P(SeenAnswers, ServiceOfAConnection) {
    Fd listener = make();
    ASSERT_EQ(set(listener, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_AUTO), 0);
    ASSERT_EQ(bind_to(listener, loopback()), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    std::string service = text_of(name_of(listener));
    Fd here = make();
    std::string inode = inode_of(here);
    EXPECT_EQ(row_of_inode(inode)["policy"], "sdp");
    ASSERT_EQ(set(here, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_AUTO), 0);
    EXPECT_EQ(row_of_inode(inode)["policy"], "auto");
    ASSERT_EQ(connect_to(here, name_of(listener)), 0);
    Fd there(::accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    Row client = row_of_inode(inode), server = row_of_inode(inode_of(there));
    for (Row *row : {&client, &server}) {
        EXPECT_EQ((*row)["state"], "open");
        EXPECT_EQ((*row)["policy"], "auto");
        EXPECT_EQ((*row)["service"], service);
    }
    EXPECT_NE(client["remote"], service);
    EXPECT_EQ(client["remote"], server["local"]);
    EXPECT_EQ(row_of_inode(inode_of(listener))["policy"], "auto");
    EXPECT_EQ(row_of_inode(inode_of(listener))["service"], "-");
}

/* One that is TCP's, with the reason */
TEST_P(Seen, ByTcp) {
    Fd l(::socket(GetParam().address, SOCK_STREAM, 0));
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    Address b = name_of(l);
    Fd here = make();
    ASSERT_EQ(set(here, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_TCP), 0);
    std::string inode = inode_of(here);
    EXPECT_EQ(row_of_inode(inode)["state"], "idle");
    ASSERT_EQ(connect_to(here, b), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    Address a = name_of(here);
    std::vector<Row> found = rows_of(a, &b);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0]["state"], "by-tcp");
    EXPECT_EQ(found[0]["why"], "policy");
    EXPECT_EQ(found[0]["policy"], "tcp");
    EXPECT_EQ(found[0]["service"], "-");
    EXPECT_EQ(found[0]["inode"], inode);
    EXPECT_EQ(found[0]["uid"], std::to_string(::getuid()));
    ASSERT_TRUE(send_all(there, pattern(1000)));
    EXPECT_TRUE(eventually([&] { return rows_of(a, &b).at(0)["rx_queue"] == "1000"; }));
    here.reset();
    EXPECT_TRUE(rows_of_inode(inode).empty());
    /* a connect() that has failed, and then it is a listener, by TCP and by SDP */
    l.reset();
    for (int policy : {SDP_INFO_POLICY_TCP, SDP_INFO_POLICY_SDP, SDP_INFO_POLICY_AUTO}) {
        here = make();
        inode = inode_of(here);
        ASSERT_EQ(set(here, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_TCP), 0);
        ASSERT_EQ(connect_to(here, b), ECONNREFUSED);
        EXPECT_EQ(row_of_inode(inode)["state"], "idle");
        ASSERT_EQ(set(here, SOL_SDP, SDP_POLICY, policy), 0);
        ASSERT_EQ(bind_to(here, loopback()), 0);
        ASSERT_EQ(::listen(here.get(), 5), 0);
        found = rows_of_inode(inode);
        ASSERT_EQ(found.size(), 1U);
        EXPECT_EQ(found[0]["state"], policy == SDP_INFO_POLICY_TCP ? "by-tcp" : "listen");
        EXPECT_EQ(found[0]["tx_queue"], "5");
        ASSERT_EQ(::shutdown(here.get(), SHUT_RDWR), 0);
        EXPECT_EQ(row_of_inode(inode)["state"], "idle");
    }
}

/* One that TCP has accepted at an auto listener, until it is closed here */
TEST_P(Seen, AcceptedByTcp) {
    Fd l = make();
    ASSERT_EQ(set(l, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_AUTO), 0);
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    Fd here(::socket(GetParam().address, SOCK_STREAM, 0));
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    std::string inode = inode_of(there);
    Address a = name_of(there), b = name_of(here);
    Row row = row_of_inode(inode);
    EXPECT_EQ(row["state"], "by-tcp");
    EXPECT_EQ(row["why"], "peer");
    EXPECT_EQ(row["policy"], "auto");
    EXPECT_EQ(row["local"], text_of(a));
    EXPECT_EQ(row["remote"], text_of(b));
    ASSERT_TRUE(send_all(here, pattern(1000)));
    EXPECT_TRUE(eventually([&] { return row_of_inode(inode)["rx_queue"] == "1000"; }));
    /* TCP is done with it, the program is not */
    set_linger(here, 0);
    here.reset();
    EXPECT_TRUE(eventually([&] { return row_of_inode(inode)["state"] == "idle"; }));
    there.reset();
    EXPECT_TRUE(rows_of_inode(inode).empty());
}

/* Lines of sockets that come and go meanwhile */
TEST_P(Seen, ByTcpWhileItIsClosed) {
    Fd l(::socket(GetParam().address, SOCK_STREAM, 0));
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 16), 0);
    std::atomic<bool> stop = false;
    std::thread reader([&] {
        while (!stop)
            rows();
    });
    for (int i = 0; i < 100; i++) {
        Fd here = make();
        EXPECT_EQ(set(here, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_TCP), 0);
        EXPECT_EQ(connect_to(here, name_of(l)), 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
    }
    stop = true;
    reader.join();
    for (Row &row : rows())
        EXPECT_NE(row["state"], "by-tcp");
}

/* What the peer does not take in waits, and is seen to, also when its program is gone. */
TEST_P(Seen, SendQueueAndOrphan) {
    Pair pair = connected();
    Address a = name_of(pair.here), b = name_of(pair.there);
    set_nonblocking(pair.here);
    std::vector<uint8_t> octets(100000);
    int queued = 0;
    while (::send(pair.here.get(), octets.data(), octets.size(), 0) > 0)
        ;
    ASSERT_TRUE(eventually([&] {
        /* until nothing moves */
        int before = queued;
        queued = std::stoi(rows_of(a, &b).at(0)["tx_queue"]);
        usleep(300000);
        return queued == before && queued > 0;
    }));
    EXPECT_GT(queued, 0);
    pair.here.reset();
    std::vector<Row> found = rows_of(a, &b);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0]["state"], "closing");
    EXPECT_EQ(found[0]["inode"], "0");
}

TEST_P(Seen, Connecting) {
    Fd l = tcp_listener();
    Address b = name_of(l);
    Fd here = make();
    set_nonblocking(here);
    ASSERT_EQ(ERRNO_OF(::connect(here.get(), b.get(), b.len)), EINPROGRESS);
    std::vector<Row> found;
    ASSERT_TRUE(eventually([&] {
        found.clear();
        for (Row &row : rows())
            if (row["remote"] == text_of(b))
                found.push_back(row);
        return found.size() == 1 && found[0]["state"] == "mpa";
    }));
    EXPECT_EQ(found[0]["inode"], inode_of(here));
    EXPECT_EQ(found[0]["mode"], "-");
}

/* One that has said nothing yet is a line without an inode. */
TEST_P(Seen, SilentPeer) {
    Fd l = listener();
    Address b = name_of(l);
    Fd fd = tcp_to(l);
    Address a = name_of(fd);
    ASSERT_TRUE(eventually([&] { return rows_of(b, &a).size() == 1; }));
    Row row = rows_of(b, &a).at(0);
    EXPECT_EQ(row["state"], "hello");
    EXPECT_EQ(row["inode"], "0");
    fd.reset();
    EXPECT_TRUE(eventually([&] { return rows_of(b, &a).empty(); }));
}

TEST_P(Seen, OtherNamespacesDoNotSeeIt) {
    Pair pair = connected();
    ASSERT_FALSE(rows().empty());
    std::vector<Row> others;
    bool moved = false;
    Counters counts;
    std::thread other([&] {
        moved = ::unshare(CLONE_NEWNET) == 0;
        others = rows();
        counts = counters();
    });
    other.join();
    ASSERT_TRUE(moved);
    EXPECT_TRUE(others.empty());
    EXPECT_FALSE(counts.empty());
    for (auto &[name, value] : counts)
        EXPECT_EQ(value, 0U) << name;
}

/* More than one read() has room for: each of them, and once. */
TEST_P(Seen, ManyLines) {
    std::vector<Fd> many;
    for (int i = 0; i < 200; i++)
        many.push_back(listener());
    std::map<std::string, int> lines;
    for (Row &row : rows())
        lines[row["local"]]++;
    for (const Fd &fd : many)
        EXPECT_EQ(lines[text_of(name_of(fd))], 1);
}

TEST_P(Seen, ConnectionsAreCounted) {
    Counters before = counters();
    Pair pair = connected();
    expect_more(before, "connected", 1);
    expect_more(before, "accepted", 1);
    ASSERT_TRUE(send_all(pair.here, pattern(5000)));
    EXPECT_EQ(receive(pair.there, 5000), pattern(5000));
    expect_more(before, "octets_sent", 5000);
    expect_more(before, "octets_received", 5000);
    EXPECT_GT(counters()["messages_sent"], before["messages_sent"]);
    EXPECT_GT(counters()["messages_received"], before["messages_received"]);
    expect_more(before, "bad_hello", 0);
    expect_more(before, "resets", 0);
}

TEST_P(Seen, BadHellosAreCounted) {
    Fd l = listener();
    Counters before = counters();
    SdpMessage major = good_hello();
    major.hello.major = 2;
    for (const std::vector<uint8_t> &octets : {encode(major), pattern(kSdpHelloLen)}) {
        Fd fd = tcp_to(l);
        ASSERT_TRUE(send_all(fd, octets));
        char c;
        EXPECT_LE(::recv(fd.get(), &c, 1, 0), 0);
    }
    expect_more(before, "bad_hello", 2);
    expect_more(before, "accepted", 0);
}

TEST_P(Seen, BadHelloAcksAreCounted) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    Counters before = counters();
    Fd app = make();
    set_nonblocking(app);
    EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
    Peer peer(::accept(l.get(), nullptr, nullptr));
    peer.hear_hello();
    peer.start_mpa();
    SdpMessage ack = good_hello_ack();
    ack.bufs = 1;
    peer.say_hello_ack(encode(ack));
    expect_more(before, "bad_hello_ack", 1);
    expect_more(before, "connected", 0);
}

/* Counters tell which. */
TEST_P(Seen, FaultsAreCounted) {
    struct Case {
        const char *name;
        void (*say)(Peer &peer);
    };
    static const Case cases[] = {
        {"fault_malformed",
         [](Peer &peer) {
             wire::Bytes octets = encode(peer.numbered(message(kSdpData)));
             octets.push_back(0); // Len says nothing of it
             peer.say_octets(octets);
         }},
        {"fault_mseq",
         [](Peer &peer) {
             peer.said++;
             peer.say(message(kSdpData), pattern(5));
         }},
        {"fault_ack",
         [](Peer &peer) {
             SdpMessage msg = peer.numbered(message(kSdpData));
             msg.mseq_ack += 1000;
             peer.say_octets(encode(msg));
         }},
        {"fault_malformed",
         [](Peer &peer) {
             wire::Bytes octets = encode(peer.numbered(message(kSdpData)));
             octets[3] = 0x77; // MID
             peer.say_octets(octets);
         }},
        {"fault_unexpected", [](Peer &peer) { peer.say(message(kSdpSuspCommAck)); }},
        {"fault_mode",
         [](Peer &peer) {
             SdpMessage msg = message(kSdpModeChange);
             msg.mode.mode = kSdpCombined; // as it is
             peer.say(msg);
         }},
        {"fault_adverts",
         [](Peer &peer) {
             peer.say(message(kSdpDisConn));
             peer.say(src_avail(20), pattern(10));
         }},
        {"fault_payload",
         [](Peer &peer) {
             peer.say(message(kSdpDisConn));
             peer.say(message(kSdpData), pattern(10));
         }},
        {"fault_unfinished",
         [](Peer &peer) {
             peer.say(src_avail(20), pattern(10));
             EXPECT_EQ(peer.hear_other().msg.mid, kSdpSendSm);
             peer.say(message(kSdpDisConn));
         }},
        {"fault_resize",
         [](Peer &peer) {
             SdpMessage msg = message(kSdpChRcvBuf);
             msg.size = 20000; // which waits until the program reads
             peer.say(msg);
             peer.say(msg);
         }},
        {"fault_size", [](Peer &peer) { peer.say(message(kSdpData), pattern(4096)); }},
    };
    for (const Case &c : cases) {
        Talk talk = accepted();
        Counters before = counters();
        c.say(*talk.peer);
        expect_more(before, c.name, 1);
        /* and no other */
        Counters after = counters();
        for (auto &[name, value] : before) {
            if (name.rfind("fault_", 0) == 0 && name != c.name) {
                EXPECT_EQ(after[name], value) << name << ", not " << c.name;
            }
        }
    }
}

/*
 * As the draft draws it the first two octets are Bufs, of which any number will do; in
 * InfiniBand's layout the first one is MID.
 */
TEST_P(Seen, FirstOctetOfAMessage) {
    Talk talk = accepted();
    Counters before = counters();
    SdpMessage many = message(kSdpData);
    many.bufs = 0x7777;
    talk.peer->say(many, pattern(5));
    EXPECT_EQ(receive(talk.app, 5), pattern(5));
    expect_more(before, "fault_malformed", 0);
    Talk other = accepted(good_hello(), kLayoutIb);
    wire::Bytes octets = encode(other.peer->numbered(message(kSdpData)), kLayoutIb);
    EXPECT_EQ(octets[0], kSdpData);
    octets[0] = 0x77;
    other.peer->say_octets(octets);
    expect_more(before, "fault_malformed", 1);
}

/*
 * More messages than buffers, and an STag that is not ours: the device ends the stream before
 * SDP sees the message.
 */
TEST_P(Seen, FaultsThatTheDeviceFinds) {
    Counters before = counters();
    Talk talk = accepted();
    /* large enough that none is put into another one's buffer */
    try {
        for (uint32_t i = 0; i < talk.first.bufs + kSpareBufs + 1U; i++)
            talk.peer->say(message(kSdpData), pattern(2000));
    } catch (const std::runtime_error &) {
        /* it may be over before all of them are out */
    }
    EXPECT_TRUE(eventually([&] { return (events(talk.app, 0) & POLLERR) != 0; }));
    EXPECT_EQ(option(talk.app, SOL_SOCKET, SO_ERROR), ECONNRESET);
    Talk other = accepted();
    other.peer->say_octets(encode(other.peer->numbered(message(kSdpData))), wire::kOpSendInvalidate,
                           0x777);
    EXPECT_TRUE(eventually([&] { return (events(other.app, 0) & POLLERR) != 0; }));
    expect_more(before, "fault_overrun", 0);
    expect_more(before, "fault_invalidate", 0);
}

/* A namespace has loopback of its own, over which there is no RDMA device. */
TEST_P(Seen, MissingDevicesAreCounted) {
    std::thread other([&] {
        ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
        Fd control(::socket(AF_INET, SOCK_DGRAM, 0));
        ifreq lo{};
        std::strcpy(lo.ifr_name, "lo");
        lo.ifr_flags = IFF_UP;
        ASSERT_EQ(::ioctl(control.get(), SIOCSIFFLAGS, &lo), 0) << std::strerror(errno);
        Counters before = counters();
        Fd l = tcp_listener();
        Address a = name_of(l);
        Fd app = make();
        EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), ENETUNREACH);
        expect_more(before, "no_device", 1);
        Fd listens = listener();
        Fd says = tcp_to(listens);
        ASSERT_TRUE(send_all(says, encode(good_hello())));
        char c;
        EXPECT_LE(::recv(says.get(), &c, 1, 0), 0);
        expect_more(before, "no_device", 2);
    });
    other.join();
}

TEST_P(Seen, SilenceIsCounted) {
    Tuned tuned("setup_timeout_ms", 300);
    Fd l = tcp_listener();
    Address a = name_of(l);
    Counters before = counters();
    Fd app = make();
    EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), ETIMEDOUT);
    expect_more(before, "setup_timeouts", 1);
}

/* A line for each answer that is remembered, of the namespace alone, and for root alone. */
TEST_P(SeenAnswers, OfPortMappers) {
    const std::string path = kProc + "softwarp_sdp_pm";
    struct stat st = {};
    ASSERT_EQ(::stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0400U);
    EXPECT_EQ(st.st_uid, 0U);
    EXPECT_EQ(in_child([&] {
                  if (::setgid(65534) != 0 || ::setuid(65534) != 0)
                      return -1;
                  return ::open(path.c_str(), O_RDONLY) < 0 ? errno : 0;
              }),
              EACCES);

    /* another size forgets all */
    Tuned size("pm_cache", std::stoi(read_value("pm_cache")) == 128 ? 256 : 128);
    Tuned denied("pm_denied_ms", 600000);
    Fd both = make();
    set(both, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_AUTO);
    ASSERT_EQ(bind_to(both, loopback()), 0);
    ASSERT_EQ(::listen(both.get(), 8), 0);
    Fd tcp = tcp_listener();
    for (const Fd *to : {&both, &tcp}) {
        Fd fd = make();
        set(fd, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_AUTO);
        ASSERT_EQ(connect_to(fd, name_of(*to)), 0);
    }
    std::map<std::string, Row> found;
    for (Row &row : table("softwarp_sdp_pm"))
        found[row["service"]] = row;
    Row &by_sdp = found[text_of(name_of(both))];
    EXPECT_EQ(by_sdp["answer"], "sdp");
    EXPECT_NE(by_sdp["sdp"], by_sdp["service"]);
    EXPECT_EQ(by_sdp["sdp"].substr(0, by_sdp["sdp"].rfind(':')),
              by_sdp["service"].substr(0, by_sdp["service"].rfind(':')));
    EXPECT_EQ(by_sdp["local"], text_of(loopback()));
    Row &by_tcp = found[text_of(name_of(tcp))];
    EXPECT_EQ(by_tcp["answer"], "denied");
    EXPECT_EQ(by_tcp["sdp"], "-");
    EXPECT_LE(std::stol(by_tcp["expires_ms"]), 600000);
    EXPECT_GT(std::stol(by_tcp["expires_ms"]), 500000);

    std::vector<Row> others;
    std::thread other([&] {
        ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
        others = table("softwarp_sdp_pm");
    });
    other.join();
    EXPECT_TRUE(others.empty());
}

TEST_P(Seen, NobodyWrites) {
    struct stat st = {};
    for (const char *name : {"softwarp_sdp", "softwarp_sdp_stat"}) {
        ASSERT_EQ(::stat((kProc + name).c_str(), &st), 0);
        EXPECT_EQ(st.st_mode & 07777, 0444U);
    }
}

} // namespace softwarp::sockets
