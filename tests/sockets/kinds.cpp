// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "kinds.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fstream>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "seen.hpp"

namespace softwarp::sockets {

void PrintTo(const Kind &kind, std::ostream *out) {
    *out << kind.name;
}

Fd &Fd::operator=(Fd &&other) noexcept {
    if (this != &other) {
        reset();
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

void Fd::reset() {
    if (fd_ >= 0)
        ::close(fd_);
    fd_ = -1;
}

uint16_t Address::port() const {
    if (storage.ss_family == AF_INET6)
        return ntohs(reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in *>(&storage)->sin_port);
}

void Address::set_port(uint16_t port) {
    if (storage.ss_family == AF_INET6)
        reinterpret_cast<sockaddr_in6 *>(&storage)->sin6_port = htons(port);
    else
        reinterpret_cast<sockaddr_in *>(&storage)->sin_port = htons(port);
}

bool Address::operator==(const Address &other) const {
    return len == other.len && std::memcmp(&storage, &other.storage, len) == 0;
}

static Fd this_namespace() {
    return Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

/* Without RDMA devices, and with the addresses that this machine has */
static const Fd &without_devices() {
    static const Fd fd = [] {
        EXPECT_EQ(::unshare(CLONE_NEWNET), 0) << std::strerror(errno);
        loopback_up();
        EXPECT_EQ(
            std::system(
                "ip link add net0 type veth peer name net1 && ip addr add 10.77.0.1/24 dev net0 && "
                "ip addr add fd77::1/64 dev net0 nodad && ip link set net0 up && ip link set net1 "
                "up"),
            0);
        return this_namespace();
    }();
    return fd;
}

void Sockets::SetUp() {
    std::signal(SIGPIPE, SIG_IGN);
    if (GetParam().policy == Kind::kPolicyIsSdp)
        return;
    if (GetParam().policy == Kind::kFellBack) {
        home_ = this_namespace();
        ASSERT_EQ(::setns(without_devices().get(), CLONE_NEWNET), 0) << std::strerror(errno);
    }
    policy_ = read_value("policy");
    ASSERT_EQ(write_value("policy", std::to_string(SDP_INFO_POLICY_AUTO)), 0);
}

void Sockets::TearDown() {
    if (!policy_.empty()) {
        EXPECT_EQ(write_value("policy", policy_), 0);
    }
    if (home_) {
        EXPECT_EQ(::setns(home_.get(), CLONE_NEWNET), 0) << std::strerror(errno);
    }
}

bool run(const std::string &command) {
    return std::system(command.c_str()) == 0;
}

void loopback_up() {
    Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    EXPECT_EQ(::ioctl(fd.get(), SIOCSIFFLAGS, &request), 0);
}

Fd Sockets::make(int flags) const {
    const Kind &kind = GetParam();
    Fd fd(::socket(kind.family, SOCK_STREAM | flags, kind.protocol));
    EXPECT_TRUE(fd) << std::strerror(errno);
    return fd;
}

Fd Sockets::make_for(int address, int flags) const {
    int protocol = std::string(GetParam().name).starts_with("tcp") ? 0 : IPPROTO_SDP;
    Fd fd(::socket(address, SOCK_STREAM | flags, protocol));
    EXPECT_TRUE(fd) << std::strerror(errno);
    return fd;
}

Address Sockets::loopback(uint16_t port) const {
    if (GetParam().host)
        return address(GetParam().host, port);
    return address(GetParam().address == AF_INET6 ? "::1" : "127.0.0.1", port);
}

Address Sockets::any(uint16_t port) const {
    return address(GetParam().address == AF_INET6 ? "::" : "0.0.0.0", port);
}

Address Sockets::another_address(uint16_t port) const {
    return address(GetParam().address == AF_INET6 ? "fd77::1" : "10.77.0.1", port);
}

Fd Sockets::listener_at(const Address &a, int backlog) const {
    Fd fd = make_for(a.storage.ss_family);
    EXPECT_EQ(bind_to(fd, a), 0);
    EXPECT_EQ(::listen(fd.get(), backlog), 0) << std::strerror(errno);
    return fd;
}

Fd Sockets::dial(const Address &a, int flags) const {
    Fd fd = make_for(a.storage.ss_family, flags);
    errno = connect_to(fd, a);
    return fd;
}

Fd Sockets::listener(int backlog, int flags) const {
    Fd fd = make(flags);
    Address a = loopback();
    EXPECT_EQ(::bind(fd.get(), a.get(), a.len), 0) << std::strerror(errno);
    EXPECT_EQ(::listen(fd.get(), backlog), 0) << std::strerror(errno);
    return fd;
}

Pair Sockets::connected() const {
    Fd l = listener();
    Address a = name_of(l);
    Pair pair;
    pair.here = make();
    EXPECT_EQ(::connect(pair.here.get(), a.get(), a.len), 0) << std::strerror(errno);
    pair.there = Fd(::accept(l.get(), nullptr, nullptr));
    EXPECT_TRUE(pair.there) << std::strerror(errno);
    return pair;
}

void Sockets::tune(Pair &pair, int level, int name, int value) const {
    for (Fd *fd : {&pair.here, &pair.there})
        EXPECT_EQ(::setsockopt(fd->get(), level, name, &value, sizeof(value)), 0);
}

Address address(const std::string &text, uint16_t port) {
    Address a;
    if (text.find(':') != std::string::npos) {
        sockaddr_in6 in6{};
        in6.sin6_family = AF_INET6;
        EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &in6.sin6_addr), 1);
        std::memcpy(&a.storage, &in6, sizeof(in6));
        a.len = sizeof(in6);
    } else {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), &in.sin_addr), 1);
        std::memcpy(&a.storage, &in, sizeof(in));
        a.len = sizeof(in);
    }
    a.set_port(port);
    return a;
}

Address name_of(const Fd &fd) {
    Address a;
    a.len = sizeof(a.storage);
    EXPECT_EQ(::getsockname(fd.get(), a.get(), &a.len), 0) << std::strerror(errno);
    return a;
}

Address peer_of(const Fd &fd) {
    Address a;
    a.len = sizeof(a.storage);
    EXPECT_EQ(::getpeername(fd.get(), a.get(), &a.len), 0) << std::strerror(errno);
    return a;
}

int option(const Fd &fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof(value);
    EXPECT_EQ(::getsockopt(fd.get(), level, name, &value, &len), 0) << std::strerror(errno);
    return value;
}

short events(const Fd &fd, short wanted, int ms) {
    pollfd p{fd.get(), wanted, 0};
    EXPECT_GE(::poll(&p, 1, ms), 0);
    return p.revents;
}

void set_nonblocking(const Fd &fd, bool on) {
    int flags = ::fcntl(fd.get(), F_GETFL);
    ::fcntl(fd.get(), F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

int bind_to(const Fd &fd, const Address &a) {
    return ERRNO_OF(::bind(fd.get(), a.get(), a.len));
}

int connect_to(const Fd &fd, const Address &a) {
    return ERRNO_OF(::connect(fd.get(), a.get(), a.len));
}

int set(const Fd &fd, int level, int name, int value) {
    return ERRNO_OF(::setsockopt(fd.get(), level, name, &value, sizeof(value)));
}

void set_linger(const Fd &fd, int seconds) {
    linger lg{1, seconds};
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
}

void set_timeout(const Fd &fd, int name, int ms) {
    timeval tv{ms / 1000, ms % 1000 * 1000};
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, name, &tv, sizeof(tv)), 0);
}

void take_signal(int number, bool restart) {
    struct sigaction act = {};
    act.sa_handler = [](int) {};
    act.sa_flags = restart ? SA_RESTART : 0;
    EXPECT_EQ(::sigaction(number, &act, nullptr), 0);
}

bool Call::sleeps() const {
    auto state = [this] {
        std::ifstream file("/proc/self/task/" + std::to_string(tid_) + "/stat");
        std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        size_t end = text.rfind(')');
        return end == std::string::npos ? '?' : text[end + 2];
    };
    return eventually([&] { return done_ || (tid_ != 0 && state() == 'S'); }) && !done_;
}

void Call::join() {
    if (!thread_.joinable())
        return;
    if (!eventually([&] { return done(); })) {
        ADD_FAILURE() << "a call that does not return";
        take_signal(SIGUSR1);
        while (!done_) {
            interrupt(SIGUSR1);
            usleep(10000);
        }
    }
    thread_.join();
}

Epoll::Epoll(const Fd &fd, uint32_t events) : ep(::epoll_create1(0)) {
    epoll_event ev{};
    ev.events = events;
    EXPECT_EQ(::epoll_ctl(ep.get(), EPOLL_CTL_ADD, fd.get(), &ev), 0);
}

uint32_t Epoll::wait(int ms) const {
    epoll_event ev{};
    return ::epoll_wait(ep.get(), &ev, 1, ms) == 1 ? ev.events : 0;
}

std::vector<uint8_t> pattern(size_t size, uint8_t seed) {
    std::vector<uint8_t> octets(size);
    for (size_t i = 0; i < size; i++)
        octets[i] = static_cast<uint8_t>(seed + i * 31 + (i >> 8) * 7 + (i >> 16));
    return octets;
}

sdp_info info(const Fd &fd) {
    sdp_info found;
    socklen_t len = sizeof(found);
    std::memset(&found, 0xee, sizeof(found));
    EXPECT_EQ(::getsockopt(fd.get(), SOL_SDP, SDP_INFO, &found, &len), 0) << std::strerror(errno);
    EXPECT_EQ(len, sizeof(found));
    return found;
}

bool send_all(const Fd &fd, const std::vector<uint8_t> &octets, int flags) {
    size_t done = 0;
    while (done < octets.size()) {
        ssize_t ret = ::send(fd.get(), octets.data() + done, octets.size() - done, flags);
        if (ret < 0)
            return false;
        done += static_cast<size_t>(ret);
    }
    return true;
}

std::vector<uint8_t> receive(const Fd &fd, size_t size) {
    std::vector<uint8_t> octets(size);
    size_t done = 0;
    while (done < size) {
        ssize_t ret = ::recv(fd.get(), octets.data() + done, size - done, 0);
        if (ret <= 0)
            break;
        done += static_cast<size_t>(ret);
    }
    octets.resize(done);
    return octets;
}

/* A prime, so that what is lost is seen */
constexpr size_t kBlock = 8191;

std::vector<uint8_t> repeated(size_t size) {
    std::vector<uint8_t> block = pattern(kBlock), octets;
    while (octets.size() < size)
        octets.insert(octets.end(), block.begin(),
                      block.begin() + static_cast<long>(std::min(kBlock, size - octets.size())));
    return octets;
}

size_t fill(const Fd &fd, size_t sent) {
    std::vector<uint8_t> block = pattern(kBlock);
    int full = 0;
    set_nonblocking(fd);
    for (;;) {
        ssize_t ret =
            ::send(fd.get(), block.data() + sent % kBlock, kBlock - sent % kBlock, MSG_NOSIGNAL);
        if (ret > 0) {
            sent += static_cast<size_t>(ret);
            full = 0;
            continue;
        }
        EXPECT_EQ(errno, EAGAIN);
        /* what moves to the receiver meanwhile makes room once more */
        if (full++ == 2)
            return sent;
        events(fd, POLLOUT, 40);
    }
}

std::string name_of_kind(const testing::TestParamInfo<Kind> &info) {
    return info.param.name;
}

static std::vector<Kind> make_kinds() {
    std::vector<Kind> kinds = {
        {"tcp4", AF_INET, 0, AF_INET},
        {"tcp6", AF_INET6, 0, AF_INET6},
        {"sdp4", AF_INET, IPPROTO_SDP, AF_INET},
        {"sdp6", AF_INET6, IPPROTO_SDP, AF_INET6},
        {"family", AF_INET_SDP, 0, AF_INET},
        {"both4", AF_INET, IPPROTO_SDP, AF_INET, nullptr, Kind::kBoth},
        {"both6", AF_INET6, IPPROTO_SDP, AF_INET6, nullptr, Kind::kBoth},
        {"fell4", AF_INET, IPPROTO_SDP, AF_INET, nullptr, Kind::kFellBack},
        {"fell6", AF_INET6, IPPROTO_SDP, AF_INET6, nullptr, Kind::kFellBack},
    };
    /* over a device that is not softwarp's, and so not over lo: one on net0 */
    if (std::getenv("SOFTWARP_SOCKETS_FOREIGN"))
        kinds.insert(kinds.end(),
                     {{"roce4", AF_INET, IPPROTO_SDP, AF_INET, "10.77.0.1"},
                      {"roce6", AF_INET6, IPPROTO_SDP, AF_INET6, "fd77::1"},
                      {"mapped", AF_INET6, IPPROTO_SDP, AF_INET6, "::ffff:10.77.0.1"}});
    return kinds;
}

const std::vector<Kind> &all_kinds() {
    static const std::vector<Kind> kinds = make_kinds();
    return kinds;
}

std::vector<Kind> local_kinds(int address) {
    std::vector<Kind> kinds;
    for (const Kind &kind : all_kinds())
        if (!kind.host && (address == AF_UNSPEC || kind.address == address))
            kinds.push_back(kind);
    return kinds;
}

} // namespace softwarp::sockets
