// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The modules come and go.  These cases take them away from all others, so they run
 * by themselves, as root: SOFTWARP_MODULE, SOFTWARP_SDP_MODULE and
 * SOFTWARP_PROVOKE_MODULE are the files.  Both modules of ours and the devices are there
 * again in the end.
 */
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/klog.h>
#include <sys/syscall.h>

#include "kinds.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

namespace {

std::string setting(const char *name) {
    const char *value = std::getenv(name);
    EXPECT_NE(value, nullptr) << name;
    return value != nullptr ? value : "";
}

/* These return an errno. */
int load(const std::string &path, const std::string &parameters = "") {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return fd ? ERRNO_OF(::syscall(SYS_finit_module, fd.get(), parameters.c_str(), 0)) : errno;
}

int unload(const char *name) {
    return ERRNO_OF(::syscall(SYS_delete_module, name, O_NONBLOCK));
}

/* What the kernel has logged since it was made */
class Log {
  public:
    Log() : before_(all().size()) {}
    std::string text() const { return all().substr(before_); }

  private:
    static std::string all() {
        std::string text(static_cast<size_t>(::klogctl(10, nullptr, 0)),
                         0); // SYSLOG_ACTION_SIZE_BUFFER
        int len = ::klogctl(3, text.data(), static_cast<int>(text.size())); // _READ_ALL
        text.resize(len > 0 ? static_cast<size_t>(len) : 0);
        return text;
    }
    size_t before_;
};

/* Lines of /proc/net/softwarp_sdp, each of which holds the module */
std::vector<std::string> lines() {
    std::ifstream file("/proc/thread-self/net/softwarp_sdp");
    std::vector<std::string> found;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line))
        found.push_back(line);
    return found;
}

/* To softwarp_sdp.ko; -1: it is not loaded */
int references() {
    std::ifstream file("/sys/module/softwarp_sdp/refcnt");
    int count = -1;
    file >> count;
    return count;
}

Fd sdp_socket(int family = AF_INET, int protocol = IPPROTO_SDP) {
    return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol));
}

Fd listening() {
    Fd fd = sdp_socket();
    EXPECT_EQ(bind_to(fd, address("127.0.0.1")), 0);
    EXPECT_EQ(::listen(fd.get(), 64), 0);
    return fd;
}

Pair connected_to(const Fd &listener) {
    Fd here = sdp_socket();
    int error = connect_to(here, name_of(listener));
    EXPECT_EQ(error, 0) << std::strerror(error);
    return {std::move(here), error == 0 ? Fd(::accept(listener.get(), nullptr, nullptr)) : Fd()};
}

void exchange(const Fd &listener) {
    Pair pair = connected_to(listener);
    EXPECT_TRUE(send_all(pair.here, pattern(1000)));
    EXPECT_EQ(receive(pair.there, 1000), pattern(1000));
}

/* The devices that the guest has made */
void add_devices() {
    EXPECT_TRUE(run("rdma link add sw0 type softwarp netdev net0"));
    EXPECT_TRUE(run("rdma link add swlo type softwarp netdev lo"));
    EXPECT_TRUE(run("ip netns exec peer rdma link add sw1 type softwarp netdev net1"));
}

bool may_end_with(long error) {
    return error == ENETDOWN || error == ECONNRESET || error == EPIPE;
}

} // namespace

/* The device's module goes beneath sockets that are connecting, send, read, wait and idle. */
TEST(Unload, DeviceUnderLoad) {
    std::string module = setting("SOFTWARP_MODULE");
    Fd l = listening();
    Fd idle = sdp_socket();
    Pair waiting = connected_to(l);
    std::vector<Pair> pairs;
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<std::atomic<size_t>> totals(4);
    for (size_t i = 0; i < totals.size(); i++)
        pairs.push_back(connected_to(l));
    for (size_t i = 0; i < totals.size(); i++) {
        calls.push_back(std::make_unique<Call>([&, i] {
            const std::vector<uint8_t> octets(100000, 'x');
            while (send_all(pairs[i].here, octets))
                ;
            return errno;
        }));
        calls.push_back(std::make_unique<Call>([&, i] {
            std::vector<uint8_t> octets(200000);
            for (;;) {
                ssize_t ret = ::recv(pairs[i].there.get(), octets.data(), octets.size(), 0);
                if (ret <= 0)
                    return ret < 0 ? errno : 0;
                totals[i] += static_cast<size_t>(ret);
            }
        }));
    }
    calls.push_back(std::make_unique<Call>([&] {
        char c;
        return ::recv(waiting.there.get(), &c, 1, 0) < 0 ? errno : 0;
    }));
    /* until there is no device, with every errno on the way there */
    set_nonblocking(l);
    std::atomic<size_t> dialled = 0;
    Call dials([&] {
        for (;;) {
            Fd fd = sdp_socket();
            int error = connect_to(fd, name_of(l));
            if (error != 0 && !may_end_with(error))
                return error;
            if (error == 0)
                Fd there(::accept(l.get(), nullptr, nullptr));
            dialled++;
        }
    });
    for (const auto &total : totals)
        EXPECT_TRUE(eventually([&] { return total > 1000000; }));
    EXPECT_TRUE(eventually([&] { return dialled > 3; }));
    EXPECT_EQ(unload("softwarp"), 0);
    for (const auto &call : calls) {
        long error = call->ret();
        EXPECT_TRUE(may_end_with(error)) << std::strerror(static_cast<int>(error));
    }
    EXPECT_EQ(dials.ret(), ENETUNREACH) << std::strerror(static_cast<int>(dials.ret()));
    EXPECT_EQ(connect_to(idle, name_of(l)), ENETUNREACH);
    /* what was accepted meanwhile has ended as well */
    ASSERT_EQ(load(module), 0);
    add_devices();
    l = listening();
    exchange(l);
    EXPECT_EQ(connect_to(idle, name_of(l)), 0);
}

/* Whoever holds the module is to be seen, and when nobody is, it goes at once. */
TEST(Unload, WhenTheLastSocketIsClosed) {
    std::string module = setting("SOFTWARP_SDP_MODULE");
    /* those of the test before */
    ASSERT_TRUE(eventually([] { return references() == 0; }));
    EXPECT_TRUE(lines().empty()) << lines().front();
    {
        Fd fd = sdp_socket();
        EXPECT_EQ(unload("softwarp_sdp"), EWOULDBLOCK);
        ASSERT_EQ(lines().size(), 1U);
        EXPECT_NE(lines()[0].find(" idle "), std::string::npos) << lines()[0];
    }
    EXPECT_TRUE(lines().empty());
    EXPECT_EQ(unload("softwarp_sdp"), 0);
    EXPECT_EQ(ERRNO_OF(::socket(AF_INET, SOCK_STREAM, IPPROTO_SDP)), EPROTONOSUPPORT);
    EXPECT_EQ(ERRNO_OF(::socket(AF_INET, SOCK_STREAM, IPPROTO_SDP_AUTO)), EPROTONOSUPPORT);
    ASSERT_EQ(load(module), 0);
    {
        Fd l = listening();
        EXPECT_EQ(unload("softwarp_sdp"), EWOULDBLOCK);
        EXPECT_EQ(lines().size(), 1U);
    }
    EXPECT_TRUE(lines().empty());
    EXPECT_EQ(unload("softwarp_sdp"), 0);
    ASSERT_EQ(load(module), 0);
    {
        /* accepted by TCP */
        Fd l = sdp_socket();
        ASSERT_EQ(set(l, SOL_SDP, SDP_POLICY, SDP_INFO_POLICY_AUTO), 0);
        EXPECT_EQ(bind_to(l, address("127.0.0.1")), 0);
        EXPECT_EQ(::listen(l.get(), 8), 0);
        Fd here(::socket(AF_INET, SOCK_STREAM, 0));
        ASSERT_EQ(connect_to(here, name_of(l)), 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
        l.reset();
        EXPECT_EQ(unload("softwarp_sdp"), EWOULDBLOCK);
        ASSERT_EQ(lines().size(), 1U);
        EXPECT_NE(lines()[0].find(" by-tcp "), std::string::npos) << lines()[0];
    }
    EXPECT_TRUE(lines().empty());
    EXPECT_EQ(unload("softwarp_sdp"), 0);
    ASSERT_EQ(load(module), 0);
    {
        Fd l = listening();
        Pair pair = connected_to(l);
        EXPECT_TRUE(send_all(pair.here, pattern(100000)));
        EXPECT_EQ(receive(pair.there, 100000), pattern(100000));
        EXPECT_EQ(unload("softwarp_sdp"), EWOULDBLOCK);
        EXPECT_GE(lines().size(), 3U);
    }
    /* until both ends have said that they close, and the last context has left */
    ASSERT_TRUE(eventually([] { return lines().empty(); })) << lines().front();
    Stopwatch since;
    EXPECT_TRUE(eventually([] { return unload("softwarp_sdp") == 0; }));
    EXPECT_LT(since.ms(), 1000);
    ASSERT_EQ(load(module), 0);
}

/* A number of a family that is taken, or that there is not, is refused and says so. */
TEST(Unload, FamilyTaken) {
    std::string module = setting("SOFTWARP_SDP_MODULE");
    ASSERT_TRUE(eventually([] { return references() == 0; }));
    EXPECT_EQ(load(module), EEXIST);
    ASSERT_EQ(unload("softwarp_sdp"), 0);
    struct Case {
        int family, error;
    };
    for (Case c : {Case{AF_INET, EEXIST}, {AF_NETLINK, EEXIST}, {1000, ENOBUFS}}) {
        Log log;
        int error = load(module, "family=" + std::to_string(c.family));
        /* what Linux 7 makes of a module's EEXIST, which is its own for one that is loaded */
        EXPECT_TRUE(error == c.error || (c.error == EEXIST && error == EBUSY)) << error;
        std::string text = log.text();
        EXPECT_NE(text.find("softwarp_sdp: protocol family " + std::to_string(c.family) +
                            " cannot be had: -" + std::to_string(c.error)),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("choose another by the parameter family"), std::string::npos) << text;
        /* and nothing is left of it, its protocol number included */
        EXPECT_EQ(ERRNO_OF(::socket(AF_INET, SOCK_STREAM, IPPROTO_SDP)), EPROTONOSUPPORT);
    }
    /* the protocol's number, of which there is only one */
    std::string other = setting("SOFTWARP_PROVOKE_MODULE");
    ASSERT_EQ(load(other, "kind=protocol"), 0);
    {
        Log log;
        int error = load(module);
        EXPECT_TRUE(error == EEXIST || error == EBUSY) << error;
        EXPECT_NE(log.text().find("protocol 257 of AF_INET is another module's"), std::string::npos)
            << log.text();
        EXPECT_TRUE(sdp_socket()) << "it has lost its number: " << std::strerror(errno);
    }
    EXPECT_EQ(unload("provoke"), 0);
    ASSERT_EQ(load(module, "family=28"), 0);
    EXPECT_TRUE(sdp_socket(28, 0)) << std::strerror(errno);
    EXPECT_EQ(ERRNO_OF(::socket(AF_INET_SDP, SOCK_STREAM, 0)), EAFNOSUPPORT);
    EXPECT_TRUE(sdp_socket());
    ASSERT_EQ(unload("softwarp_sdp"), 0);
    ASSERT_EQ(load(module), 0);
    EXPECT_TRUE(sdp_socket(AF_INET_SDP, 0)) << std::strerror(errno);
}

} // namespace softwarp::sockets
