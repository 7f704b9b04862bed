// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who pays for what, and that nobody gets anything for nothing: memory that is charged
 * is given back, none is held uncharged, and what programs share has limits.
 */
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <sched.h>
#include <sys/wait.h>

#include "peer.hpp"
#include "seen.hpp"

namespace softwarp::sockets {

class Cost : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Cost, testing::ValuesIn(sdp_kinds()), name_of_kind);

/* All of them, or those of a port */
static size_t connections(const std::string &port = "") {
    std::ifstream file("/proc/net/softwarp_sdp");
    std::string text;
    size_t lines = 0;
    std::getline(file, text);
    while (std::getline(file, text))
        lines += text.find(" listen ") == std::string::npos &&
                 text.find(port + " ") != std::string::npos;
    return lines;
}

/* What a function returns in a process of its own */
template<typename Function>
static int in_a_child(Function function) {
    pid_t child = ::fork();
    if (child == 0)
        ::_exit(function());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int forget_peer(const Fd &fd) {
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    return ERRNO_OF(::connect(fd.get(), &none, sizeof(none)));
}

/* Pages that nobody uses, those included that each processor keeps at hand */
static long free_pages() {
    std::ofstream("/proc/sys/vm/drop_caches") << 3;
    std::ifstream zones("/proc/zoneinfo");
    long pages = 0, n = 0;
    for (std::string line; std::getline(zones, line);) {
        std::istringstream words(line);
        std::string word, next;
        words >> word >> next;
        if (word == "count:")
            pages += std::stol(next);
        else if (word == "pages" && next == "free" && words >> n)
            pages += n;
    }
    return pages;
}

/* It takes long where a processor is emulated, so it is for the one kind that only the fastest
 * machine has. */
class Pages : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Pages, testing::Values(sdp_kinds().back()), name_of_kind);

/* What a program sends while the stream ends is freed, although it is sent no more. */
TEST_P(Pages, SentWhileTheStreamEnds) {
    const auto connections = [&] {
        for (int i = 0; i < 100; i++) {
            Talk talk = accepted();
            set_nonblocking(talk.app, false);
            SdpMessage credits = message(kSdpData);
            credits.bufs = 20000;
            talk.peer->say(credits);
            const auto sends = [&] {
                std::vector<uint8_t> octets = pattern(8000);
                while (::send(talk.app.get(), octets.data(), octets.size(), MSG_NOSIGNAL) > 0)
                    ;
                return 0;
            };
            Call one(sends), two(sends), three(sends);
            std::vector<uint8_t> sink(1 << 16);
            const auto end =
                std::chrono::steady_clock::now() + std::chrono::microseconds(300 + 30 * i);
            while (std::chrono::steady_clock::now() < end)
                (void)!::recv(talk.peer->stream.fd(), sink.data(), sink.size(), MSG_DONTWAIT);
            if (i % 2)
                talk.peer->stream.reset();
            talk.peer.reset();
        }
    };
    /* the caches of the kernel, and the pages that the modules keep to fill them again */
    connections();
    connections();
    /* memory comes and goes by itself, but what is not freed adds up: 100 pages and more each time
     */
    const long before = free_pages();
    long lost = LONG_MAX;
    for (int round = 1; round <= 10 && lost > 200; round++) {
        connections();
        if (round >= 4)
            lost = before - free_pages();
    }
    EXPECT_LE(lost, 200) << "pages";
}

/* A call that reads when another thread disconnects has no use for larger buffers. */
TEST_P(Cost, DisconnectedWhileItReads) {
    Fd l = listener();
    long before = charged_pages();
    for (int i = 0; i < 40; i++) {
        Fd here = make();
        ASSERT_EQ(ERRNO_OF(::connect(here.get(), name_of(l).get(), name_of(l).len)), 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        ASSERT_EQ(::shutdown(there.get(), SHUT_WR), 0);
        std::vector<uint8_t> octets(1 << 20);
        std::thread reader([&] { ::recv(there.get(), octets.data(), octets.size(), MSG_WAITALL); });
        ASSERT_TRUE(send_all(here, pattern(100000)));
        usleep(20000);
        EXPECT_EQ(forget_peer(there), 0);
        reader.join();
    }
    /* each processor keeps 256 in reserve; 40 of these had 1,800 that nobody gave back */
    EXPECT_TRUE(eventually([&] { return charged_pages() < before + 800; }))
        << before << " pages before, " << charged_pages() << " after";
}

/* Octets that nobody pays for any more are gone, and do not wait to be sent. */
TEST_P(Cost, NothingIsLeftBehindADisconnect) {
    SdpMessage ack = good_hello_ack();
    ack.bufs = 30000;
    ack.hello.rcv_size = 1 << 20;
    Talk talk = connected_to_peer(ack);
    const std::string port = ":" + std::to_string(name_of(talk.app).port());
    std::vector<uint8_t> octets = pattern(100000);
    set_nonblocking(talk.app);
    while (::send(talk.app.get(), octets.data(), octets.size(), 0) > 0)
        ;
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(::shutdown(talk.app.get(), SHUT_WR), 0);
    EXPECT_EQ(connections(port), 1U);
    EXPECT_EQ(forget_peer(talk.app), 0);
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (connections(port) > 0 && std::chrono::steady_clock::now() < end)
        usleep(1000);
    EXPECT_EQ(connections(port), 0U);
}

/* What a device has is shared: an ordinary user does not get all of it. */
TEST_P(Cost, OneUserDoesNotTakeTheDevice) {
    const std::string path = "/sys/module/softwarp/parameters/max_qp";
    std::string most;
    std::ifstream(path) >> most;
    ASSERT_TRUE(std::ofstream(path) << 100 << std::flush);
    int ret = in_a_child([&] {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0)
            return 1;
        Fd l = listener(100);
        std::vector<Fd> all;
        int error = 0;
        for (int i = 0; i < 60 && error == 0; i++) {
            all.push_back(make());
            error = ERRNO_OF(::connect(all.back().get(), name_of(l).get(), name_of(l).len));
        }
        /* both ends are this user's: 25 of 100 */
        if (all.size() < 5 || all.size() > 14)
            return 2;
        /* who cannot have one here is told so, and who is refused by the listener, too */
        return error == ENOBUFS || error == ECONNRESET ? 0 : 3;
    });
    EXPECT_EQ(ret, 0);
    Fd l = listener();
    Fd here = make();
    EXPECT_EQ(ERRNO_OF(::connect(here.get(), name_of(l).get(), name_of(l).len)), 0);
    EXPECT_TRUE(std::ofstream(path) << most << std::flush);
}

/* Those that a peer keeps alive, and that no program has any more */
TEST_P(Cost, OrphansHaveALimit) {
    Tuned few("orphans_max", 5);
    Counters before = counters();
    size_t others = connections();
    std::vector<Talk> talks;
    for (int i = 0; i < 20; i++) {
        talks.push_back(connected_to_peer());
        /* more than the peer takes: it says nothing from here on */
        ASSERT_TRUE(send_all(talks.back().app, pattern(60000)));
        talks.back().app.reset();
    }
    EXPECT_TRUE(eventually([&] { return connections() <= others + 5; })) << connections();
    EXPECT_GE(counters()["orphans_dropped"], before["orphans_dropped"] + 15);
}

/* How often softwarp's devices have left octets to the process that reads */
static uint64_t left_to_readers() {
    uint64_t sum = 0;
    for (const auto &device : std::filesystem::directory_iterator("/sys/class/infiniband")) {
        uint64_t value = 0;
        std::ifstream(device.path() / "ports/1/hw_counters/rx_by_reader") >> value;
        sum += value;
    }
    return sum;
}

/* The calling thread's processor */
static bool pin(size_t processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return ::sched_setaffinity(0, sizeof(set), &set) == 0;
}

/* Copies and checksums of what has come are the reader's, not those of who sends. */
TEST_P(Cost, ReceivesWhereItIsRead) {
    constexpr size_t kSize = 16 << 20;
    Pair p = connected();
    uint64_t before = left_to_readers();
    Call reader([&] { return pin(1) && receive(p.there, kSize) == pattern(kSize) ? 0 : -1; });
    Call writer([&] { return pin(0) && send_all(p.here, pattern(kSize)) ? 0 : -1; });
    EXPECT_EQ(writer.ret(), 0);
    EXPECT_EQ(reader.ret(), 0);
    EXPECT_GT(left_to_readers(), before);
}

/* What epoll tells of, in the mode of it */
static int read_by_epoll(const Fd &fd, const std::vector<uint8_t> &want, uint32_t mode) {
    Epoll epoll(fd, EPOLLIN | mode);
    std::vector<uint8_t> got(want.size());
    size_t done = 0;
    while (done < got.size()) {
        epoll_event event{};
        if (::epoll_wait(epoll.ep.get(), &event, 1, 10'000) != 1)
            return -1;
        do {
            ssize_t n = ::read(fd.get(), &got[done], got.size() - done);
            if (n == 0 || (n < 0 && errno != EAGAIN))
                return -1;
            if (n < 0)
                break;
            done += n;
        } while (mode && done < got.size());
    }
    return got == want ? 0 : -1;
}

/* The same of those who sleep in epoll_wait(): one who is woken for a part of a message sleeps
 * on, and an edge is none too few. */
TEST_P(Cost, ReceivesWhereItIsPolled) {
    constexpr size_t kSize = 16 << 20;
    for (uint32_t mode : {0U, uint32_t{EPOLLET}}) {
        Pair p = connected();
        set_nonblocking(p.there);
        uint64_t before = left_to_readers();
        Call reader([&] { return pin(1) ? read_by_epoll(p.there, pattern(kSize), mode) : -1; });
        Call writer([&] { return pin(0) && send_all(p.here, pattern(kSize)) ? 0 : -1; });
        EXPECT_EQ(writer.ret(), 0);
        EXPECT_EQ(reader.ret(), 0);
        EXPECT_GT(left_to_readers(), before);
    }
}

/* Who is to be told of what comes and does something else holds up nobody: it is taken. */
TEST_P(Cost, ReceivesForWhoStaysAway) {
    constexpr size_t kSize = 4 << 20;
    Pair p = connected();
    auto read = [&](size_t size, int where) {
        Call reader([&] { return pin(where) && receive(p.there, size) == pattern(size) ? 0 : -1; });
        return reader.ret() == 0;
    };
    /* there are larger buffers behind it, and it is known where it reads */
    Call writer([&] { return pin(0) && send_all(p.here, pattern(kSize)) ? 0 : -1; });
    ASSERT_TRUE(read(kSize, 1));
    ASSERT_EQ(writer.ret(), 0);
    Epoll unwatched(p.there, EPOLLIN | EPOLLOUT);
    bool asked = false;
    /* which processor sends what is queued is not ours to say */
    for (int i = 0; i < 100 && !asked; i++) {
        uint64_t before = left_to_readers();
        Counters counted = counters();
        ASSERT_TRUE(pin(i / 4 % 2) && send_all(p.here, pattern(200'000)));
        expect_more(counted, "octets_received", 200'000);
        asked = left_to_readers() > before;
        ASSERT_TRUE(read(200'000, 1 - i / 4 % 2));
    }
    EXPECT_TRUE(asked);
}

/* Whoever waits for answers that come soon watches for them, unless that is switched off. */
TEST_P(Cost, WatchesBeforeItSleeps) {
    Pair p = connected();
    /* an answer that comes while it is waited for, with a processor for each */
    auto rounds = [&](int most, auto over) {
        Call echo([&] {
            uint8_t octet = 0;
            if (!pin(0))
                return -1;
            while (::recv(p.there.get(), &octet, 1, 0) == 1 &&
                   ::send(p.there.get(), &octet, 1, 0) == 1 && octet == 0)
                ;
            return 0;
        });
        Call asker([&] {
            bool done = false;
            if (!pin(1))
                return -1;
            for (int i = 0; i < most && !done; i++) {
                done = i == most - 1 || over();
                uint8_t octet = done;
                if (::send(p.here.get(), &octet, 1, 0) != 1 ||
                    ::recv(p.here.get(), &octet, 1, 0) != 1)
                    return -1;
            }
            return 0;
        });
        EXPECT_EQ(asker.ret(), 0);
        EXPECT_EQ(echo.ret(), 0);
    };
    {
        Tuned off("spin_us", 0);
        Counters before = counters();
        rounds(300, [] { return false; });
        EXPECT_EQ(counters()["spin_hit"], before["spin_hit"]);
        EXPECT_EQ(counters()["spin_missed"], before["spin_missed"]);
    }
    /* the answer may take long where processors are emulated */
    Tuned on("spin_us", 10000);
    Counters before = counters();
    rounds(5000, [&] { return counters()["spin_hit"] >= before["spin_hit"] + 20; });
    EXPECT_GE(counters()["spin_hit"], before["spin_hit"] + 20);
}

/* Waits longer than the limit are no reason to watch, even if by little. */
TEST_P(Cost, SleepsWhereWaitsAreLong) {
    constexpr int kOctets = 200;
    Tuned on("spin_us", 100);
    Pair p = connected();
    Call writer([&] {
        uint8_t octet = 1;
        for (int i = 0; i < kOctets; i++) {
            /* a timer may be as coarse as a tick */
            auto next = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
            while (std::chrono::steady_clock::now() < next)
                ;
            if (::send(p.here.get(), &octet, 1, 0) != 1)
                return -1;
        }
        return 0;
    });
    Counters before = counters();
    for (int i = 0; i < kOctets; i++) {
        uint8_t octet = 0;
        ASSERT_EQ(::recv(p.there.get(), &octet, 1, 0), 1);
    }
    EXPECT_EQ(writer.ret(), 0);
    Counters after = counters();
    uint64_t watched =
        after["spin_hit"] - before["spin_hit"] + after["spin_missed"] - before["spin_missed"];
    /* where processors are emulated the reader may be late, and wait for less */
    EXPECT_LT(watched, kOctets / 10U);
}

/* It does not watch for longer than it is to wait, by the clock and for ever. */
TEST_P(Cost, WatchesWithinItsTime) {
    Tuned on("spin_us", 10000);
    Pair p = connected();
    set_timeout(p.there, SO_RCVTIMEO, 300);
    /* each of these octets comes soon, and wakes who waits for a million */
    std::atomic<bool> over = false;
    Call writer([&] {
        uint8_t octet = 1;
        while (!over && ::send(p.here.get(), &octet, 1, 0) == 1)
            usleep(50);
        return 0;
    });
    std::vector<uint8_t> octets(1'000'000);
    auto begin = std::chrono::steady_clock::now();
    EXPECT_GT(::recv(p.there.get(), octets.data(), octets.size(), MSG_WAITALL), 0);
    auto took = std::chrono::steady_clock::now() - begin;
    over = true;
    EXPECT_EQ(writer.ret(), 0);
    EXPECT_LT(took, std::chrono::milliseconds(1500));
}

} // namespace softwarp::sockets
