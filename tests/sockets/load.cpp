// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What is taken away while octets flow: the device, the link, and a namespace with all
 * who live in it
 */
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include "peer.hpp"

namespace softwarp::sockets {

/* The policy is that of a namespace, and these make some of their own. */
static std::vector<Kind> kinds() {
    std::vector<Kind> found;
    for (const Kind &kind : local_kinds())
        if (kind.policy == Kind::kPolicyIsSdp)
            found.push_back(kind);
    return found;
}

SUITE_OF(Lost, kinds());

class LostDevice : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, LostDevice, testing::ValuesIn(sdp_kinds()), name_of_kind);

static bool has_device(const std::string &name) {
    return std::filesystem::exists("/sys/class/infiniband/" + name);
}

/* One that no other test has, whose namespace may take a moment to go */
static std::string new_device() {
    static int count;
    return "lost" + std::to_string(count++);
}

static bool add_device(const std::string &name) {
    return run("rdma link add " + name + " type softwarp netdev lo");
}

/* A new namespace for the calling thread, with loopback and a device */
static bool enter(const std::string &device) {
    if (::unshare(CLONE_NEWNET) != 0)
        return false;
    loopback_up();
    return add_device(device);
}

/* Octets in one direction for as long as it goes, and the errno then */
static int pour(const Fd &fd) {
    const std::vector<uint8_t> octets(100000, 'x');
    while (send_all(fd, octets))
        ;
    return errno;
}

static int drink(const Fd &fd, std::atomic<size_t> &total) {
    std::vector<uint8_t> octets(200000);
    for (;;) {
        ssize_t ret = ::recv(fd.get(), octets.data(), octets.size(), 0);
        if (ret <= 0)
            return ret < 0 ? errno : 0;
        total += static_cast<size_t>(ret);
    }
}

/* Whatever they are in the midst of, all learn of it, and can go on with another one. */
TEST_P(LostDevice, UnderLoad) {
    const std::string device = new_device();
    auto test = [&] {
        ASSERT_TRUE(enter(device));
        Fd l = listener(16);
        std::vector<Pair> pairs;
        std::vector<std::unique_ptr<Call>> calls;
        std::vector<std::atomic<size_t>> totals(4);
        for (size_t i = 0; i < totals.size(); i++) {
            Fd here = dial(name_of(l));
            pairs.push_back({std::move(here), Fd(::accept(l.get(), nullptr, nullptr))});
        }
        for (size_t i = 0; i < totals.size(); i++) {
            calls.push_back(std::make_unique<Call>([&, i] { return pour(pairs[i].here); }));
            calls.push_back(
                std::make_unique<Call>([&, i] { return drink(pairs[i].there, totals[i]); }));
        }
        for (const auto &total : totals)
            EXPECT_TRUE(eventually([&] { return total > 1000000; }));
        EXPECT_TRUE(run("rdma link delete " + device));
        /* who hears of it from the other end first has been reset */
        for (const auto &call : calls) {
            long error = call->ret();
            EXPECT_TRUE(error == ENETDOWN || error == ECONNRESET || error == EPIPE) << error;
        }
        Fd refused = dial(name_of(l));
        EXPECT_EQ(errno, ENETUNREACH);
        EXPECT_TRUE(add_device(device));
        Fd here = dial(name_of(l));
        Fd there(::accept(l.get(), nullptr, nullptr));
        EXPECT_TRUE(send_all(here, pattern(1000)));
        EXPECT_EQ(receive(there, 1000), pattern(1000));
    };
    std::thread(test).join();
    EXPECT_TRUE(eventually([&] { return !has_device(device); }));
}

/* Nothing comes through any more: who said for how long that may be learns of it. */
TEST_P(Lost, LinkUnderLoad) {
    const std::string device = new_device();
    auto test = [&] {
        ASSERT_TRUE(enter(device));
        Fd l = listener(4);
        Fd here = dial(name_of(l));
        Fd there(::accept(l.get(), nullptr, nullptr));
        std::atomic<size_t> total = 0;
        EXPECT_EQ(set(here, IPPROTO_TCP, TCP_USER_TIMEOUT, 1500), 0);
        Call pours([&] { return pour(here); });
        Call drinks([&] { return drink(there, total); });
        EXPECT_TRUE(eventually([&] { return total > 1000000; }));
        EXPECT_TRUE(run("tc qdisc add dev lo root netem loss 100%"));
        EXPECT_EQ(pours.ret(), ETIMEDOUT) << std::strerror(static_cast<int>(pours.ret()));
        EXPECT_EQ(events(here, POLLIN) & POLLHUP, POLLHUP);
        /* the other end finds out when it says something */
        EXPECT_TRUE(run("tc qdisc del dev lo root"));
        ::shutdown(there.get(), SHUT_RDWR);
        drinks.ret();
    };
    std::thread(test).join();
    EXPECT_TRUE(eventually([&] { return !has_device(device); }));
}

/* All processes are killed: nothing keeps the namespace, nor what is in it. */
TEST_P(LostDevice, Namespace) {
    const std::string device = new_device();
    auto *flows = static_cast<std::atomic<size_t> *>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(flows, MAP_FAILED);
    pid_t child = ::fork();
    if (child == 0) {
        if (!enter(device))
            ::_exit(1);
        Fd l = listener(4);
        Fd here = dial(name_of(l));
        Fd there(::accept(l.get(), nullptr, nullptr));
        Call pours([&] { return pour(here); });
        ::_exit(drink(there, *flows));
    }
    EXPECT_TRUE(eventually([&] { return *flows > 1000000; }));
    EXPECT_TRUE(has_device(device));
    EXPECT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(eventually([&] { return !has_device(device); }));
    ::munmap(flows, 4096);
}

} // namespace softwarp::sockets
