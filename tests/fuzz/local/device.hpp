// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The kernel's interfaces as they are, without libraries in between: those check
 * arguments, wait for events and use memory of their own, and what no library
 * sends is what a hostile program will.  Handles are integers, so that a thread
 * may use what another destroys.
 */
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "local/board.hpp"
#include "softwarp_abi.h"

namespace softwarp::fuzz::local {

using Octets = std::span<const uint8_t>;

template<typename T>
Octets octets_of(const T &value) {
    return {reinterpret_cast<const uint8_t *>(&value), sizeof(value)};
}

/* What a command gave back. */
struct Answer {
    int error = 0;
    alignas(8) std::array<uint8_t, 512> bytes = {};

    bool ok() const { return error == 0; }
    template<typename T>
    T at(size_t offset = 0) const {
        T value;
        std::memcpy(&value, bytes.data() + offset, sizeof(value));
        return value;
    }
};

/* Writes a command to a uverbs device; `extended` ones have a second header. */
void write_command(int fd, uint32_t number, bool extended, Octets core, Octets tail,
                   size_t core_answer, size_t tail_answer, Answer &answer);

/* A command whose structure may begin with the address of its answer. */
template<typename Core>
Answer verb(int fd, uint32_t number, Core core, size_t core_answer = 0, size_t tail_answer = 0,
            Octets tail = {}) {
    Answer answer;
    if constexpr (requires { core.response; })
        core.response = reinterpret_cast<uintptr_t>(answer.bytes.data());
    write_command(fd, number, false, octets_of(core), tail, core_answer, tail_answer, answer);
    return answer;
}

template<typename Core>
Answer verb_ex(int fd, uint32_t number, const Core &core, size_t core_answer = 0,
               size_t tail_answer = 0, Octets tail = {}) {
    Answer answer;
    write_command(fd, number, true, octets_of(core), tail, core_answer, tail_answer, answer);
    return answer;
}

/* A command of rdma_cm. */
int write_cm(int fd, uint32_t number, Octets core, size_t answer_size);

template<typename Core>
Answer cm(int fd, uint32_t number, Core core, size_t answer_size = 0) {
    Answer answer;
    if constexpr (requires { core.response; })
        core.response = reinterpret_cast<uintptr_t>(answer.bytes.data());
    answer.error = write_cm(fd, number, octets_of(core), answer_size);
    return answer;
}

/* Names of the devices under /dev/infiniband, and what they are called as RDMA devices. */
struct Node {
    std::string path;
    std::string name;
};
std::vector<Node> nodes();

/* Lists something of a device by netlink, as `rdma resource show` does; octets heard or -errno. */
int list_resources(uint32_t command, uint32_t device_index, bool dump);

} // namespace softwarp::fuzz::local
