// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "local/device.hpp"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <filesystem>
#include <fstream>

#include "lib/system.hpp"

namespace softwarp::fuzz::local {

void write_command(int fd, uint32_t number, bool extended, Octets core, Octets tail,
                   size_t core_answer, size_t tail_answer, Answer &answer) {
    alignas(8) std::array<uint8_t, 1024> out{};
    size_t at = sizeof(ib_uverbs_cmd_hdr);
    ib_uverbs_cmd_hdr first{};
    first.command = number;
    if (extended) {
        /* counted in eights; the size of the core tells which version of it this is */
        ib_uverbs_ex_cmd_hdr second{};
        if (core_answer + tail_answer != 0)
            second.response = reinterpret_cast<uintptr_t>(answer.bytes.data());
        second.provider_in_words = static_cast<uint16_t>(tail.size() / 8);
        second.provider_out_words = static_cast<uint16_t>(tail_answer / 8);
        std::memcpy(out.data() + at, &second, sizeof(second));
        at += sizeof(second);
        first.command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
        first.in_words = static_cast<uint16_t>(core.size() / 8);
        first.out_words = static_cast<uint16_t>(core_answer / 8);
    }
    std::memcpy(out.data() + at, core.data(), core.size());
    at += core.size();
    std::memcpy(out.data() + at, tail.data(), tail.size());
    at += tail.size();
    if (!extended) {
        first.in_words = static_cast<uint16_t>(at / 4);
        first.out_words = static_cast<uint16_t>((core_answer + tail_answer) / 4);
    }
    std::memcpy(out.data(), &first, sizeof(first));
    count_call();
    answer.error = write(fd, out.data(), at) < 0 ? errno : 0;
    last_error = answer.error;
}

int write_cm(int fd, uint32_t number, Octets core, size_t answer_size) {
    alignas(8) std::array<uint8_t, 1024> out{};
    rdma_ucm_cmd_hdr header{};
    header.cmd = number;
    header.in = static_cast<uint16_t>(core.size());
    header.out = static_cast<uint16_t>(answer_size);
    std::memcpy(out.data(), &header, sizeof(header));
    std::memcpy(out.data() + sizeof(header), core.data(), core.size());
    count_call();
    last_error = write(fd, out.data(), sizeof(header) + core.size()) < 0 ? errno : 0;
    return last_error;
}

std::vector<Node> nodes() {
    std::vector<Node> found;
    std::error_code error;
    std::filesystem::directory_iterator all("/sys/class/infiniband_verbs", error);
    for (const auto &entry : all) {
        std::ifstream file(entry.path() / "ibdev");
        std::string name;
        if (file >> name)
            found.push_back({"/dev/infiniband/" + entry.path().filename().string(), name});
    }
    return found;
}

int list_resources(uint32_t command, uint32_t device_index, bool dump) {
    e2e::Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
    if (fd.get() < 0)
        return -errno;
    timeval limit{.tv_sec = 1, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    struct {
        nlmsghdr header;
        nlattr attr[2];
    } message = {};
    static_assert(sizeof(message) == 24);
    /* an attribute is four octets of header and the index */
    message.header.nlmsg_len = sizeof(message);
    message.header.nlmsg_type = static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
    message.header.nlmsg_flags =
        static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | (dump ? NLM_F_DUMP : 0));
    message.attr[0].nla_len = 8;
    message.attr[0].nla_type = RDMA_NLDEV_ATTR_DEV_INDEX;
    std::memcpy(&message.attr[1], &device_index, 4);
    count_call();
    if (send(fd.get(), &message, sizeof(message), 0) < 0)
        return -errno;
    std::array<char, 16384> heard;
    int total = 0;
    for (int i = 0; i < 64; i++) {
        ssize_t count = recv(fd.get(), heard.data(), heard.size(), 0);
        if (count < 0)
            return -errno;
        nlmsghdr answer;
        std::memcpy(&answer, heard.data(), sizeof(answer));
        if (answer.nlmsg_type == NLMSG_DONE || answer.nlmsg_type == NLMSG_ERROR)
            break;
        total += static_cast<int>(count);
    }
    return total;
}

} // namespace softwarp::fuzz::local
