// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "observe.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <softwarp_sdp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "words.hpp"

namespace softwarp::tools {
namespace {

using preload::Endpoint;

// A million sockets have less.
constexpr std::size_t contents_most = std::size_t{1} << 30;
constexpr const char *settings_path = "/proc/sys/net/softwarp_sdp";
// enum of SO_BUF_LOCK: the program has set the buffer's size
constexpr int send_buffer_set = 1;
constexpr int receive_buffer_set = 2;

template<class Value>
std::optional<Value> option(const Fd &fd, int level, int name) {
    Value value{};
    socklen_t length = sizeof(value);
    if (getsockopt(fd.get(), level, name, &value, &length) != 0)
        return std::nullopt;
    return value;
}

std::map<std::string, std::uint64_t> read_settings() {
    std::map<std::string, std::uint64_t> settings;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator{settings_path, error}) {
        std::string text = read_whole(entry.path().string()).text;
        text.resize(std::min(text.find('\n'), text.size()));
        if (const auto value = number_of(text))
            settings[entry.path().filename().string()] = *value;
    }
    return settings;
}

void read_answers(Snapshot &snapshot) {
    const Contents file = read_whole("/proc/net/softwarp_sdp_pm");
    if (file.error == EACCES || file.error == EPERM)
        snapshot.no_answers = "only root of this network namespace may see it";
    else if (file.error == ENOENT)
        snapshot.no_answers = "the module is older than this program and does not show it";
    else if (file.error != 0)
        snapshot.no_answers = describe(file.error);
    else {
        Parsed<Answer> parsed = answers_in(file.text);
        snapshot.no_answers = std::move(parsed.error);
        if (snapshot.no_answers.empty())
            snapshot.answers = std::move(parsed.values);
    }
}

using Name = int (*)(int, sockaddr *, socklen_t *);

std::string name_by(Name get, const Fd &fd) {
    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
    auto *address = reinterpret_cast<sockaddr *>(&storage);
    if (get(fd.get(), address, &length) != 0)
        return {};
    const auto endpoint = Endpoint::of(address, std::min<socklen_t>(length, sizeof(storage)));
    return endpoint ? preload::text_of(*endpoint).data() : "";
}

std::string text_in(const char *text, std::size_t most) {
    return {text, strnlen(text, most)};
}

std::string why_in(const sdp_info &info) {
    if (info.transport == SDP_INFO_TRANSPORT_TCP)
        return reason_word(info.reason);
    if (info.fault != SDP_INFO_FAULT_NONE)
        return fault_word(info.fault);
    if (info.error != 0) {
        const char *name = strerrorname_np(static_cast<int>(info.error));
        return name != nullptr ? name : std::to_string(info.error);
    }
    return {};
}

std::string state_in(const sdp_info &info, bool named) {
    if (info.transport == SDP_INFO_TRANSPORT_TCP)
        return named ? "by-tcp" : "idle";
    return state_word(info.state);
}

Reading::Own own_in(const Fd &fd) {
    Reading::Own own;
    const int locked = option<int>(fd, SOL_SOCKET, SO_BUF_LOCK).value_or(0);
    const auto size = [&](int name) {
        return static_cast<std::uint64_t>(
            std::max(option<int>(fd, SOL_SOCKET, name).value_or(0), 0));
    };
    if ((locked & send_buffer_set) != 0)
        own.send_buffer = size(SO_SNDBUF);
    if ((locked & receive_buffer_set) != 0)
        own.receive_buffer = size(SO_RCVBUF);
    if (const auto tcp = option<tcp_info>(fd, SOL_TCP, TCP_INFO))
        own.retransmissions = tcp->tcpi_total_retrans;
    return own;
}

// Of a socket that TCP has the queues are not in SDP_INFO; 0 of a listener.
std::uint64_t queue_of(const Fd &fd, unsigned long which) {
    int octets = 0;
    return ioctl(fd.get(), which, &octets) == 0 ? static_cast<std::uint64_t>(std::max(octets, 0))
                                                : 0;
}

Reading reading_of(const Fd &fd, const sdp_info &info) {
    Socket socket;
    socket.local = name_by(getsockname, fd);
    socket.remote = name_by(getpeername, fd);
    socket.state = state_in(info, !socket.remote.empty());
    socket.mode = mode_word(info.tx_mode);
    socket.device = text_in(info.device, sizeof(info.device));
    socket.policy = preload::name_of(static_cast<preload::Policy>(info.policy));
    socket.why = why_in(info);
    const bool by_tcp = info.transport == SDP_INFO_TRANSPORT_TCP;
    socket.rx_queue = by_tcp ? queue_of(fd, SIOCINQ) : info.rx_queue;
    socket.tx_queue = by_tcp ? queue_of(fd, SIOCOUTQ) : info.tx_queue;
    socket.own_credits = info.own_credits;
    socket.peer_credits = info.peer_credits;
    socket.buffers = info.own_bufs;
    socket.buffer_size = info.own_size;
    socket.rx_bcopy = info.rx_bcopy;
    socket.tx_bcopy = info.tx_bcopy;
    socket.rx_zcopy = info.rx_read + info.rx_write;
    socket.tx_zcopy = info.tx_read + info.tx_write;
    return {.socket = std::move(socket), .own = own_in(fd)};
}

// Whether the socket is of the caller's network namespace; so it is if the kernel does
// not say.
bool is_of_this_namespace(const Fd &fd) {
    const Fd own{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    const auto theirs = option<std::uint64_t>(fd, SOL_SOCKET, SO_NETNS_COOKIE);
    const auto ours = own ? option<std::uint64_t>(own, SOL_SOCKET, SO_NETNS_COOKIE) : std::nullopt;
    return !theirs || !ours || *theirs == *ours;
}

std::string plain_tcp_sentence(const Fd &fd) {
    std::array<char, 16> name{};
    socklen_t length = name.size() - 1;
    if (getsockopt(fd.get(), SOL_TCP, TCP_ULP, name.data(), &length) == 0 && length > 0)
        return fmt::format("The socket is TCP's for good, because the program uses TCP_ULP ({}) "
                           "on it, which SDP does not have.",
                           text_in(name.data(), name.size()));
    return "The socket is plain TCP: it was not made as an SDP socket.  Start the program under "
           "sdp_run; sdp_run --check ADDRESS:PORT PROGRAM says whether it can be.";
}

} // namespace

Contents read_whole(const std::string &path) {
    const Fd fd{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (!fd)
        return {{}, errno};
    Contents contents;
    std::array<char, 65536> block{};
    while (contents.text.size() < contents_most) {
        const ssize_t count = read(fd.get(), block.data(), block.size());
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return {{}, errno};
        if (count == 0)
            return contents;
        contents.text.append(block.data(), static_cast<std::size_t>(count));
    }
    return {{}, EFBIG};
}

Snapshot take_snapshot() {
    Snapshot snapshot;
    const Contents sockets = read_whole("/proc/net/softwarp_sdp");
    if (sockets.error == ENOENT) {
        snapshot.loaded = false;
        snapshot.error = "softwarp_sdp is not loaded: all sockets use TCP.  Load it as root: "
                         "modprobe softwarp_sdp";
        return snapshot;
    }
    const Contents counters = read_whole("/proc/net/softwarp_sdp_stat");
    const int error = sockets.error != 0 ? sockets.error : counters.error;
    if (error != 0) {
        snapshot.error = fmt::format("/proc/net/softwarp_sdp: {}", describe(error));
        return snapshot;
    }
    Parsed<Socket> parsed = sockets_in(sockets.text);
    snapshot.error = std::move(parsed.error);
    snapshot.sockets = std::move(parsed.values);
    snapshot.counters = counters_in(counters.text);
    snapshot.settings = read_settings();
    read_answers(snapshot);
    return snapshot;
}

Copied copy_descriptor(pid_t pid, int number) {
    const Fd process{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
    if (!process)
        return {{},
                errno == ESRCH || errno == EINVAL
                    ? fmt::format("there is no process {}", pid)
                    : fmt::format("process {}: {}", pid, describe(errno))};
    Fd fd{static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0))};
    if (fd)
        return {std::move(fd), {}};
    if (errno == EBADF)
        return {{}, fmt::format("process {} has no descriptor {}", pid, number)};
    if (errno == ESRCH)
        return {{}, fmt::format("there is no process {}", pid)};
    if (errno == EPERM)
        return {{},
                fmt::format("descriptors of process {} are not for this user to see: be root, "
                            "or its user where kernel.yama.ptrace_scope is 0",
                            pid)};
    return {{}, fmt::format("descriptor {} of process {}: {}", number, pid, describe(errno))};
}

Described describe_descriptor(const Fd &fd) {
    Described found;
    const auto type = option<int>(fd, SOL_SOCKET, SO_TYPE);
    const auto protocol = option<int>(fd, SOL_SOCKET, SO_PROTOCOL);
    const auto domain = option<int>(fd, SOL_SOCKET, SO_DOMAIN);
    if (!type) {
        found.error = "it is not a socket";
        return found;
    }
    sdp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(fd.get(), SOL_SDP, SDP_INFO, &info, &length) != 0) {
        const int family = domain.value_or(AF_UNSPEC);
        const bool is_ip = family == AF_INET || family == AF_INET6;
        if (!is_ip || *type != SOCK_STREAM || protocol != IPPROTO_TCP) {
            found.error = "it is a socket, but not one of TCP or SDP";
            return found;
        }
        found.plain_tcp = true;
        found.sentence = plain_tcp_sentence(fd);
        return found;
    }
    if (!is_of_this_namespace(fd)) {
        found.error = "its socket belongs to another network namespace, of which nothing is known "
                      "here; enter that one first: nsenter --net=/proc/PID/ns/net sdp_stat ...";
        return found;
    }
    found.transport = info.transport;
    found.policy = info.policy;
    found.reading = reading_of(fd, info);
    return found;
}

} // namespace softwarp::tools
