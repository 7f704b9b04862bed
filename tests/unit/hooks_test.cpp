// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What the preload library makes of a program's calls, with a fake libc behind it:
// which calls reach the kernel, with what policy, and what the program sees in errno.
#include "hooks.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <softwarp_sdp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config.hpp"

namespace {

using namespace softwarp::preload;
using ::testing::Test;

constexpr int odd_errno = 4711; // that no call sets

struct FakeSocket {
    int domain = 0;
    int type = 0;
    int protocol = 0;
    int policy = SDP_INFO_POLICY_SDP;
    sockaddr_storage name{};
    socklen_t name_length = 0;
};

// The kernel's part.  Calls are noted as they come.
struct Fake {
    std::map<int, FakeSocket> sockets;
    std::vector<std::string> calls;
    int next = 10;
    bool loaded = true; // the module
    int socket_error = 0;
    int connect_error = 0;
    std::vector<int> listen_errors; // of the calls to come
    sdp_info info{};

    [[nodiscard]] long count(const std::string &call) const {
        return std::count(calls.begin(), calls.end(), call);
    }
};

Fake *fake = nullptr;

int fail(int error) {
    errno = error;
    return -1;
}

int fake_socket(int domain, int type, int protocol) {
    fake->calls.push_back("socket " + std::to_string(protocol));
    if (fake->socket_error != 0)
        return fail(fake->socket_error);
    if (protocol == IPPROTO_SDP && !fake->loaded)
        return fail(EPROTONOSUPPORT);
    fake->sockets[fake->next] = {domain, type, protocol};
    return fake->next++;
}

int fake_bind(int fd, const sockaddr *address, socklen_t length) {
    fake->calls.push_back("bind");
    FakeSocket &socket = fake->sockets.at(fd);
    std::memcpy(&socket.name, address, length);
    socket.name_length = length;
    return 0;
}

int fake_connect(int, const sockaddr *, socklen_t) {
    fake->calls.push_back("connect");
    return fake->connect_error != 0 ? fail(fake->connect_error) : 0;
}

int fake_listen(int, int) {
    fake->calls.push_back("listen");
    if (fake->listen_errors.empty())
        return 0;
    const int error = fake->listen_errors.front();
    fake->listen_errors.erase(fake->listen_errors.begin());
    return error != 0 ? fail(error) : 0;
}

int fake_setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    const auto found = fake->sockets.find(fd);
    if (found == fake->sockets.end())
        return fail(EBADF);
    if (level != SOL_SDP || name != SDP_POLICY || found->second.protocol != IPPROTO_SDP)
        return fail(ENOPROTOOPT);
    EXPECT_EQ(length, sizeof(int));
    std::memcpy(&found->second.policy, value, sizeof(int));
    return 0;
}

int fake_getsockopt(int fd, int level, int name, void *value, socklen_t *length) {
    const FakeSocket &socket = fake->sockets.at(fd);
    if (level == SOL_SDP && name == SDP_INFO && socket.protocol == IPPROTO_SDP) {
        std::memcpy(value, &fake->info, sizeof(fake->info));
        return 0;
    }
    if (level != SOL_SOCKET)
        return fail(ENOPROTOOPT);
    const int found = name == SO_TYPE ? socket.type : name == SO_PROTOCOL ? IPPROTO_TCP : 0;
    std::memcpy(value, &found, sizeof(found));
    *length = sizeof(found);
    return 0;
}

int fake_getsockname(int fd, sockaddr *address, socklen_t *length) {
    const auto found = fake->sockets.find(fd);
    if (found == fake->sockets.end())
        return fail(EBADF);
    const FakeSocket &socket = found->second;
    if (socket.name_length == 0) {
        sockaddr_storage empty{};
        empty.ss_family = static_cast<sa_family_t>(socket.domain);
        std::memcpy(address, &empty, std::min<std::size_t>(*length, sizeof(empty)));
        return 0;
    }
    std::memcpy(address, &socket.name, std::min<std::size_t>(*length, socket.name_length));
    *length = socket.name_length;
    return 0;
}

int fake_close(int fd) {
    fake->calls.push_back("close");
    fake->sockets.erase(fd);
    return 0;
}

const Libc fake_libc{fake_socket,      fake_bind,        fake_connect,
                     fake_listen,      fake_getsockopt,  fake_setsockopt,
                     fake_getsockname, fake_getsockname, fake_close};

struct Address {
    explicit Address(const std::string &ip, std::uint16_t port) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        inet_pton(AF_INET, ip.c_str(), &v4.sin_addr);
    }
    [[nodiscard]] const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&v4); }

    sockaddr_in v4{};
};

class HooksTest : public Test {
  protected:
    void SetUp() override {
        fake = &fake_;
        directory_ =
            std::filesystem::temp_directory_path() / ("softwarp-hooks-" + std::to_string(getpid()));
        std::filesystem::create_directories(directory_);
    }
    void TearDown() override {
        fake = nullptr;
        std::filesystem::remove_all(directory_);
    }

    // With rules, and a log of all levels in a file.
    void begin(const std::string &rules, Policy policy = Policy::automatic, int level = 1) {
        Config config;
        EXPECT_TRUE(config.rules.add(rules, "f").empty());
        config.policy = policy;
        config.program = "prog";
        start(std::move(config), level);
    }
    void start(Config config, int level = 1) {
        LogSettings settings{LogSettings::Destination::file, (directory_ / "log").string(), level};
        hooks_ = std::make_unique<Hooks>(fake_libc, std::move(config), Log{settings, "prog"});
        errno = odd_errno;
    }

    [[nodiscard]] std::string log() const {
        std::ifstream file{log_path((directory_ / "log").string(), geteuid())};
        return {std::istreambuf_iterator<char>{file}, {}};
    }
    // The fake's only socket.
    [[nodiscard]] int policy() const {
        return fake_.sockets.empty() ? -1 : fake_.sockets.begin()->second.policy;
    }
    int connect(int fd, const std::string &ip, std::uint16_t port) {
        const Address address{ip, port};
        return hooks_->connect(fd, address.get(), sizeof(address.v4));
    }
    int bind(int fd, const std::string &ip, std::uint16_t port) {
        const Address address{ip, port};
        return hooks_->bind(fd, address.get(), sizeof(address.v4));
    }

    Fake fake_;
    std::unique_ptr<Hooks> hooks_;
    std::filesystem::path directory_;
};

} // namespace

TEST_F(HooksTest, TcpSocketsBecomeSdp) {
    begin("");
    for (const int domain : {AF_INET, AF_INET6}) {
        for (const int protocol : {0, static_cast<int>(IPPROTO_TCP)}) {
            const int fd =
                hooks_->socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
            const FakeSocket &made = fake_.sockets.at(fd);
            EXPECT_EQ(made.domain, domain);
            EXPECT_EQ(made.type, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK);
            EXPECT_EQ(made.protocol, IPPROTO_SDP);
            EXPECT_EQ(made.policy, SDP_INFO_POLICY_AUTO);
        }
    }
    EXPECT_EQ(errno, odd_errno);
}

TEST_F(HooksTest, OtherSocketsStay) {
    begin("");
    struct {
        int domain, type, protocol;
    } const cases[] = {{AF_INET, SOCK_DGRAM, 0},
                       {AF_INET, SOCK_RAW, IPPROTO_TCP},
                       {AF_INET, SOCK_STREAM, IPPROTO_SCTP},
                       {AF_INET, SOCK_STREAM, IPPROTO_MPTCP},
                       {AF_UNIX, SOCK_STREAM, 0},
                       {AF_INET, SOCK_STREAM | 0x100, 0}};
    for (const auto &one : cases) {
        const int fd = hooks_->socket(one.domain, one.type, one.protocol);
        EXPECT_EQ(fake_.sockets.at(fd).protocol, one.protocol);
        EXPECT_EQ(fake_.sockets.at(fd).type, one.type);
    }
}

TEST_F(HooksTest, WithoutModuleTcpAndSaidOnce) {
    fake_.loaded = false;
    begin("");
    for (int i = 0; i < 3; ++i) {
        const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
        EXPECT_EQ(fake_.sockets.at(fd).protocol, 0);
    }
    EXPECT_EQ(errno, odd_errno);
    const std::string said = log();
    const std::string text = "the kernel module softwarp_sdp is not loaded: using TCP\n";
    EXPECT_NE(said.find(text), std::string::npos) << said;
    EXPECT_EQ(said.find(text), said.rfind(text)) << said;
    // Each attempt would start modprobe.
    EXPECT_EQ(fake_.count("socket 257"), 1);
}

TEST_F(HooksTest, ErrorsOfSocketAreThoseOfTcp) {
    fake_.socket_error = EMFILE;
    begin("");
    EXPECT_EQ(hooks_->socket(AF_INET, SOCK_STREAM, 0), -1);
    EXPECT_EQ(errno, EMFILE);
    EXPECT_EQ(fake_.count("socket 0"), 1);
    // and the next one may succeed
    fake_.socket_error = 0;
    EXPECT_EQ(fake_.sockets.at(hooks_->socket(AF_INET, SOCK_STREAM, 0)).protocol, IPPROTO_SDP);
}

TEST_F(HooksTest, ConnectTakesTheRule) {
    begin("use tcp client *:22\nuse sdp client 10.0.0.0/8:*\nuse sdp client other *:*");
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, "10.1.1.1", 22), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_TCP);
    EXPECT_EQ(connect(fd, "10.1.1.1", 23), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_SDP);
    EXPECT_EQ(connect(fd, "11.1.1.1", 23), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_AUTO);
    EXPECT_EQ(errno, odd_errno);
    EXPECT_NE(log().find("connect to 10.1.1.1:22: rule f:1, \"use tcp client *:22\""),
              std::string::npos);
    EXPECT_NE(log().find("connect to 11.1.1.1:23: no rule, policy auto"), std::string::npos);
}

TEST_F(HooksTest, ListenTakesTheRuleOfTheBoundAddress) {
    begin("use tcp server *:22\nuse sdp server 10.0.0.1:*");
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd, "0.0.0.0", 22), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_TCP);
    fake_.sockets.at(fd).policy = -1; // somebody has changed it
    EXPECT_EQ(hooks_->listen(fd, 5), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_TCP);
    EXPECT_EQ(bind(fd, "10.0.0.1", 80), 0);
    EXPECT_EQ(hooks_->listen(fd, 5), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_SDP);
    EXPECT_EQ(bind(fd, "0.0.0.0", 80), 0);
    EXPECT_EQ(hooks_->listen(fd, 5), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_AUTO);
    EXPECT_NE(log().find("listen on 0.0.0.0:22: TCP only\n"), std::string::npos);
    EXPECT_NE(log().find("listen on 10.0.0.1:80: SDP only\n"), std::string::npos);
    EXPECT_NE(log().find("listen on 0.0.0.0:80: SDP and TCP\n"), std::string::npos);
    EXPECT_EQ(errno, odd_errno);
}

// The kernel chooses the port of a socket that is not bound.
TEST_F(HooksTest, ListenUnbound) {
    begin("use tcp server *:*");
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(hooks_->listen(fd, 5), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_TCP);
}

TEST_F(HooksTest, ListenFallsBackToTcp) {
    begin("");
    fake_.listen_errors = {ENOMEM, 0};
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd, "0.0.0.0", 80), 0);
    EXPECT_EQ(hooks_->listen(fd, 5), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_TCP);
    EXPECT_NE(log().find("listen on 0.0.0.0:80: TCP only, because SDP failed with ENOMEM"),
              std::string::npos);
    // What fails by TCP, too, fails.
    fake_.listen_errors = {EADDRINUSE, EADDRINUSE};
    EXPECT_EQ(hooks_->listen(fd, 5), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    // And a rule that allows nothing but SDP is kept.
    begin("use sdp server *:*");
    fake_.listen_errors = {ENOMEM, 0};
    EXPECT_EQ(hooks_->listen(fd, 5), -1);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(HooksTest, ForeignDescriptorsAreLeftAlone) {
    begin("use sdp client *:*\nuse sdp server *:*");
    const int udp = hooks_->socket(AF_INET, SOCK_DGRAM, 0);
    errno = odd_errno;
    EXPECT_EQ(connect(udp, "10.0.0.1", 53), 0);
    EXPECT_EQ(errno, odd_errno);
    EXPECT_EQ(log(), "");
    errno = odd_errno;
    EXPECT_EQ(hooks_->listen(99, 5), 0); // of the fake; nothing of ours before it failed
    EXPECT_EQ(errno, odd_errno);
    const sockaddr_storage other{};
    EXPECT_EQ(hooks_->connect(udp, reinterpret_cast<const sockaddr *>(&other), sizeof(other)), 0);
    EXPECT_EQ(hooks_->connect(udp, nullptr, 0), 0);
    EXPECT_EQ(fake_.count("connect"), 3);
}

// The kernel answers EFAULT; the library must not crash before it can.
TEST_F(HooksTest, AddressesThatCannotBeRead) {
    begin("");
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    fake_.connect_error = EFAULT;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto *pages = static_cast<char *>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    const Address good{"10.0.0.1", 80};
    for (const std::size_t inside : {0U, 2U, 8U, 15U}) {
        char *at = pages + page - inside;
        std::memcpy(at, good.get(), inside);
        EXPECT_EQ(hooks_->connect(fd, reinterpret_cast<const sockaddr *>(at), sizeof(good.v4)), -1);
        EXPECT_EQ(errno, EFAULT);
    }
    fake_.connect_error = 0;
    char *at = pages + page - sizeof(good.v4);
    std::memcpy(at, good.get(), sizeof(good.v4));
    fake_.sockets.at(fd).policy = -1;
    EXPECT_EQ(hooks_->connect(fd, reinterpret_cast<const sockaddr *>(at), sizeof(good.v4)), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_AUTO);
    munmap(pages, 2 * page);
}

// Made before the module was loaded, or by a parent without us.
TEST_F(HooksTest, PlainTcpUnderARuleForSdpIsAnError) {
    begin("use sdp client *:*", Policy::automatic, 9);
    fake_.sockets[5] = {AF_INET, SOCK_STREAM, IPPROTO_TCP};
    EXPECT_EQ(connect(5, "10.0.0.1", 80), 0);
    EXPECT_NE(log().find("connect to 10.0.0.1:80: f:1 says SDP, but the socket was made for TCP, "
                         "which it uses"),
              std::string::npos);
}

TEST_F(HooksTest, SaysWhatAConnectionUses) {
    begin("", Policy::automatic, 7);
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    fake_.info.transport = SDP_INFO_TRANSPORT_SDP;
    std::strcpy(fake_.info.device, "sw0");
    EXPECT_EQ(connect(fd, "10.0.0.1", 80), 0);
    EXPECT_NE(log().find("connected with 10.0.0.1:80: SDP over sw0\n"), std::string::npos);
    fake_.info.transport = SDP_INFO_TRANSPORT_TCP;
    const std::map<int, std::string> reasons{
        {SDP_INFO_REASON_POLICY, "the policy allows nothing else"},
        {SDP_INFO_REASON_NO_DEVICE, "there is no RDMA device on the route"},
        {SDP_INFO_REASON_NO_ANSWER, "the peer's port mapper does not answer"},
        {SDP_INFO_REASON_DENIED, "the peer has no SDP port for this service"},
        {SDP_INFO_REASON_REFUSED, "nobody listens at the peer's SDP port"},
        {SDP_INFO_REASON_SETUP, "SDP's set-up failed"}};
    for (const auto &[reason, text] : reasons) {
        fake_.info.reason = static_cast<std::uint8_t>(reason);
        EXPECT_EQ(connect(fd, "10.0.0.2", 80), 0);
        EXPECT_NE(log().find("connected with 10.0.0.2:80: TCP, because " + text + "\n"),
                  std::string::npos);
    }
    fake_.connect_error = ENETUNREACH;
    EXPECT_EQ(connect(fd, "10.0.0.3", 80), -1);
    EXPECT_EQ(errno, ENETUNREACH);
    EXPECT_NE(log().find("connect to 10.0.0.3:80: ENETUNREACH\n"), std::string::npos);
}

// A program that does not wait in connect() asks SO_ERROR when poll() says so.
TEST_F(HooksTest, SaysWhatBecameOfANonBlockingConnect) {
    begin("", Policy::automatic, 7);
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    fake_.connect_error = EINPROGRESS;
    EXPECT_EQ(connect(fd, "10.0.0.1", 80), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    EXPECT_EQ(log(), "");
    const Address peer{"10.0.0.1", 80};
    EXPECT_EQ(bind(fd, "10.0.0.1", 80), 0); // the fake has one name for both ends
    fake_.info.transport = SDP_INFO_TRANSPORT_SDP;
    int error = -1;
    socklen_t length = sizeof(error);
    errno = odd_errno;
    EXPECT_EQ(hooks_->getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    EXPECT_EQ(error, 0);
    EXPECT_EQ(errno, odd_errno);
    EXPECT_NE(log().find("connected with 10.0.0.1:80: SDP"), std::string::npos);
}

TEST_F(HooksTest, RulesForTcpAloneChangeNothing) {
    begin("use tcp server *:*\nuse tcp client prog *:*\nuse sdp client *:*");
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(fake_.sockets.at(fd).protocol, 0);
    EXPECT_EQ(fake_.count("socket 257"), 0);
}

TEST_F(HooksTest, BrokenRulesMeanTcp) {
    Config config;
    config.broken = true;
    start(std::move(config));
    EXPECT_EQ(fake_.sockets.at(hooks_->socket(AF_INET, SOCK_STREAM, 0)).protocol, 0);
}

TEST_F(HooksTest, DefaultPolicy) {
    begin("", Policy::sdp);
    const int fd = hooks_->socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_SDP);
    begin("use both client *:80", Policy::tcp);
    EXPECT_EQ(connect(fd, "10.0.0.1", 80), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_AUTO);
    EXPECT_EQ(connect(fd, "10.0.0.1", 81), 0);
    EXPECT_EQ(policy(), SDP_INFO_POLICY_TCP);
}

class LogTest : public HooksTest {};

TEST_F(LogTest, Paths) {
    EXPECT_EQ(log_path("libsdp.log", 0), "/var/log/libsdp.log");
    EXPECT_EQ(log_path("/tmp/x", 0), "/tmp/x");
    EXPECT_EQ(log_path("libsdp.log", 1000), "/tmp/libsdp.log.1000");
    EXPECT_EQ(log_path("/home/u/x", 1000), "/home/u/x.1000");
}

TEST_F(LogTest, LineOfAFile) {
    const Log log{{LogSettings::Destination::file, (directory_ / "log").string(), 8}, "prog"};
    errno = odd_errno;
    log.say(level_use, "not this");
    log.say(level_warning, "number %d", 5);
    log.say(level_error, "%s", std::string(5000, 'x').c_str());
    EXPECT_EQ(errno, odd_errno);
    const std::string text = this->log();
    EXPECT_EQ(text.find("not this"), std::string::npos);
    const std::string tail = "Z prog[" + std::to_string(getpid()) + "]: number 5\n";
    EXPECT_EQ(text.find(tail), std::string{"2026-01-02T03:04:05"}.size()) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
    EXPECT_EQ(text.back(), '\n');
}

// Others may write into the directory.
TEST_F(LogTest, NoFileOfAnother) {
    const std::filesystem::path target = directory_ / "target";
    std::ofstream{target} << "precious";
    const std::string path = log_path((directory_ / "log").string(), geteuid());
    const Log log{{LogSettings::Destination::file, (directory_ / "log").string(), 8}, "prog"};
    std::filesystem::create_symlink(target, path);
    log.say(level_error, "text");
    std::filesystem::remove(path);
    std::filesystem::create_hard_link(target, path);
    log.say(level_error, "text");
    std::filesystem::remove(path);
    EXPECT_EQ(std::filesystem::file_size(target), 8U);
    std::filesystem::create_directory(path);
    log.say(level_error, "text");
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    log.say(level_error, "text"); // and does not wait for a reader
}

namespace {

// What a process writes to its descriptor 2, for a while a pipe.
class Captured {
  public:
    Captured() {
        EXPECT_EQ(pipe(ends_.data()), 0);
        saved_ = dup(STDERR_FILENO);
        dup2(ends_[1], STDERR_FILENO);
    }
    Captured(const Captured &) = delete;
    Captured &operator=(const Captured &) = delete;
    ~Captured() {
        dup2(saved_, STDERR_FILENO);
        for (const int fd : {ends_[0], ends_[1], saved_})
            close(fd);
    }
    void stop_reading() {
        close(ends_[0]);
        ends_[0] = -1;
    }
    [[nodiscard]] std::string text() const {
        std::array<char, 4096> block{};
        fcntl(ends_[0], F_SETFL, O_NONBLOCK);
        const ssize_t count = read(ends_[0], block.data(), block.size());
        return {block.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
    }

  private:
    std::array<int, 2> ends_{};
    int saved_ = -1;
};

} // namespace

TEST_F(LogTest, StandardError) {
    const Captured captured;
    const Log log{{}, "prog"};
    log.say(level_warning, "not this");
    log.say(level_error, "this");
    EXPECT_EQ(captured.text(), "softwarp_sdp: prog[" + std::to_string(getpid()) + "]: this\n");
}

TEST_F(LogTest, StandardErrorThatNobodyReads) {
    Captured captured;
    const Log log{{}, "prog"};
    captured.stop_reading();
    log.say(level_error, "SIGPIPE would end the test here");
}

// A program has closed its descriptor 2 and opened something else.
TEST_F(LogTest, NotIntoWhatIsDescriptorTwoNow) {
    const Captured captured;
    const Log log{{}, "prog"};
    const std::filesystem::path path = directory_ / "database";
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    log.say(level_error, "text");
    close(fd);
    EXPECT_EQ(std::filesystem::file_size(path), 0U);
}

class ConfigTest : public HooksTest {
  protected:
    Loaded load() {
        variables_.insert({"HOME", directory_.string()});
        return softwarp::preload::load(
            [this](const char *name) -> const char * {
                const auto found = variables_.find(name);
                return found != variables_.end() ? found->second.c_str() : nullptr;
            },
            "prog");
    }
    std::string write(const std::string &name, const std::string &text) {
        const std::filesystem::path path = directory_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream{path} << text;
        return path.string();
    }

    std::map<std::string, std::string> variables_;
};

TEST_F(ConfigTest, InlineRulesComeBeforeAFile) {
    variables_["SDP_RULES"] = "use tcp client *:22;use tcp client *:23";
    variables_["LIBSDP_CONFIG_FILE"] = write("rules", "use sdp client *:*");
    const Loaded loaded = load();
    ASSERT_EQ(loaded.config.rules.rules().size(), 3U);
    EXPECT_EQ(loaded.config.rules.rules()[1].where, "SDP_RULES:1");
    EXPECT_EQ(loaded.config.rules.rules()[2].policy, Policy::sdp);
    EXPECT_FALSE(loaded.config.broken);
    EXPECT_EQ(loaded.files.size(), 1U);
}

TEST_F(ConfigTest, FileOfTheUser) {
    const std::string path = write(".config/softwarp/sdp.conf", "use sdp client *:1");
    EXPECT_EQ(load().files.at(0), path);
    const std::string other = write("other/softwarp/sdp.conf", "use sdp client *:2");
    variables_["XDG_CONFIG_HOME"] = (directory_ / "other").string();
    EXPECT_EQ(load().files.at(0), other);
    variables_["LIBSDP_CONFIG_FILE"] = "";
    EXPECT_TRUE(load().files.empty());
}

TEST_F(ConfigTest, Policy) {
    EXPECT_EQ(load().config.policy, Policy::automatic);
    variables_["SDP_POLICY"] = "sdp";
    EXPECT_EQ(load().config.policy, Policy::sdp);
    variables_["SDP_POLICY"] = "both";
    const Loaded loaded = load();
    EXPECT_TRUE(loaded.config.broken);
    EXPECT_EQ(loaded.errors.at(0).text(),
              "SDP_POLICY: \"both\" is not a policy; write auto, sdp or tcp");
}

TEST_F(ConfigTest, LogOfTheEnvironmentCountsMore) {
    variables_["LIBSDP_CONFIG_FILE"] = write("rules", "log min-level 8 destination syslog");
    EXPECT_EQ(load().config.rules.log().min_level, 8);
    variables_["SDP_LOG"] = "min-level 7 destination stderr";
    EXPECT_EQ(load().config.rules.log().min_level, 7);
    EXPECT_EQ(load().config.rules.log().destination, LogSettings::Destination::standard_error);
}

TEST_F(ConfigTest, Errors) {
    const std::string path = write("rules", "use tcp client *:22\nuse stp client *:*\n");
    variables_["LIBSDP_CONFIG_FILE"] = path;
    Loaded loaded = load();
    EXPECT_TRUE(loaded.config.broken);
    EXPECT_EQ(loaded.errors.at(0).text(), path + ":2:5: \"stp\" is not a family: sdp, tcp or both");
    variables_["LIBSDP_CONFIG_FILE"] = path + ".none";
    EXPECT_EQ(load().errors.at(0).text(), path + ".none: there is no such file");
    variables_["LIBSDP_CONFIG_FILE"] = directory_.string();
    EXPECT_EQ(load().errors.at(0).text(),
              directory_.string() + ": it cannot be read as a file of rules: Is a directory");
    variables_["LIBSDP_CONFIG_FILE"] = write("large", std::string(2U << 20, '#'));
    EXPECT_TRUE(load().config.broken);
    variables_["LIBSDP_CONFIG_FILE"] = "/dev/null";
    EXPECT_TRUE(load().config.broken);
}
