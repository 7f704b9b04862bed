// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// A program that knows nothing of SDP, to be linked statically:
//
//     plain serve PORT             sends back what it gets, on one connection after the other
//     plain talk ADDRESS PORT      sends a pattern and verifies what comes back; says its user
//     plain look                   says what kind of sockets it is given
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "softwarp_sdp.h"

namespace {

constexpr std::size_t pattern_octets = 300000;

[[noreturn]] void fail(const char *what) {
    std::perror(what);
    std::exit(1);
}

sockaddr_in address_of(const char *text, const char *port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<in_port_t>(std::stoi(port)));
    if (inet_pton(AF_INET, text, &at.sin_addr) != 1)
        fail(text);
    return at;
}

void send_all(int fd, const char *data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t count = write(fd, data, bytes);
        if (count <= 0)
            fail("write");
        data += count;
        bytes -= static_cast<std::size_t>(count);
    }
}

int serve(const char *port) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in at = address_of("0.0.0.0", port);
    const int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, reinterpret_cast<const sockaddr *>(&at), sizeof(at)) != 0 ||
        listen(listener, 16) != 0)
        fail("listen");
    for (;;) {
        const int fd = accept(listener, nullptr, nullptr);
        if (fd < 0)
            fail("accept");
        std::array<char, 65536> buffer;
        ssize_t count = 0;
        while ((count = read(fd, buffer.data(), buffer.size())) > 0)
            send_all(fd, buffer.data(), static_cast<std::size_t>(count));
        close(fd);
    }
}

int talk(const char *address, const char *port) {
    const int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    const sockaddr_in at = address_of(address, port);
    if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr *>(&at), sizeof(at)) != 0)
        fail("connect");
    std::string pattern(pattern_octets, '\0');
    for (std::size_t i = 0; i < pattern.size(); ++i)
        pattern[i] = static_cast<char>(i % 251);
    std::string got;
    // In turns: neither end may wait for the other to read.
    constexpr std::size_t turn = 10000;
    for (std::size_t i = 0; i < pattern.size(); i += turn) {
        send_all(fd, pattern.data() + i, turn);
        std::array<char, turn> buffer;
        std::size_t left = turn;
        while (left > 0) {
            const ssize_t count = read(fd, buffer.data(), left);
            if (count <= 0)
                fail("read");
            got.append(buffer.data(), static_cast<std::size_t>(count));
            left -= static_cast<std::size_t>(count);
        }
    }
    if (got != pattern) {
        std::puts("wrong octets");
        return 1;
    }
    std::printf("all octets are right, user %d\n", static_cast<int>(geteuid()));
    return 0;
}

// FAMILY PROTOCOL POLICY, with "tcp" for a plain one
void look_at(const char *name, int family, int type, int protocol) {
    const int fd = socket(family, type, protocol);
    if (fd < 0) {
        std::printf("%s: %s\n", name, std::strerror(errno));
        return;
    }
    int number = 0;
    int policy = 0;
    socklen_t length = sizeof(int);
    getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &number, &length);
    length = sizeof(int);
    if (getsockopt(fd, SOL_SDP, SDP_POLICY, &policy, &length) == 0)
        std::printf("%s: protocol %d, SDP, policy %d\n", name, number, policy);
    else
        std::printf("%s: protocol %d\n", name, number);
    close(fd);
}

int look() {
    look_at("inet", AF_INET, SOCK_STREAM, 0);
    look_at("inet tcp", AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    look_at("inet6", AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    look_at("udp", AF_INET, SOCK_DGRAM, 0);
    look_at("mptcp", AF_INET, SOCK_STREAM, 262);
    look_at("sdp", AF_INET, SOCK_STREAM, IPPROTO_SDP);
    look_at("unix", AF_UNIX, SOCK_STREAM, 0);
    look_at("wrong", AF_INET, SOCK_STREAM | 0x100000, 0);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "serve" && argc == 3)
        return serve(argv[2]);
    if (what == "talk" && argc == 4)
        return talk(argv[2], argv[3]);
    if (what == "look")
        return look();
    return 2;
}
