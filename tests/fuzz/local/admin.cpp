// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <rdma/rdma_netlink.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "lib/system.hpp"
#include "local/device.hpp"
#include "local/others.hpp"

namespace softwarp::fuzz::local {

namespace {

struct Side {
    const char *device;
    const char *netdev;
    const char *addr;
    bool far;
};
constexpr Side kSides[] = {{"fz0", "fz0", "10.78.0.1", false}, {"fz1", "fz1", "10.78.0.2", true}};

void on_side(const Side &side, const std::string &command) {
    std::string whole = command;
    if (side.far)
        whole = fmt::format("ip netns exec {} {}", e2e::config().peer_ns, command);
    e2e::shell(whole, e2e::Deadline(e2e::milliseconds(60000)));
}

void set_some_policy(Random &random) {
    struct Word {
        const char *name;
        const char *value;
    };
    constexpr Word kWords[] = {{"crc", "off"},        {"crc", "prefer"},
                               {"crc", "require"},    {"markers", "on"},
                               {"markers", "off"},    {"revision", "1"},
                               {"revision", "2"},     {"fallback", "on"},
                               {"fallback", "off"},   {"p2p", "on"},
                               {"p2p", "off"},        {"rdmac", "on"},
                               {"rdmac", "off"},      {"rtr", "read"},
                               {"rtr", "send write"}, {"rtr", "send write read"},
                               {"extensions", "off"}, {"extensions", "on"},
                               {"crc", "nonsense"}};
    std::vector<Node> all = nodes();
    if (all.empty())
        return;
    const Node &node = all[random.below(all.size())];
    const Word &word = kWords[random.below(std::size(kWords))];
    std::ofstream file("/sys/class/infiniband/" + node.name + "/mpa/" + word.name);
    file << word.value << std::flush;
}

void read_attributes(Random &random) {
    std::vector<Node> all = nodes();
    if (all.empty())
        return;
    std::string base = "/sys/class/infiniband/" + all[random.below(all.size())].name;
    for (const char *part : {"/mpa", "/ports/1/hw_counters", "/ports/1"}) {
        std::error_code error;
        for (std::filesystem::directory_iterator i(base + part, error), end; i != end;
             i.increment(error)) {
            if (error)
                break;
            std::ifstream file(i->path());
            std::string text;
            std::getline(file, text);
        }
    }
}

void list_some(Random &random) {
    constexpr uint32_t kCommands[] = {
        RDMA_NLDEV_CMD_RES_QP_GET,     RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_CMD_RES_CQ_GET,
        RDMA_NLDEV_CMD_RES_MR_GET,     RDMA_NLDEV_CMD_RES_PD_GET,    RDMA_NLDEV_CMD_RES_CTX_GET,
        RDMA_NLDEV_CMD_RES_SRQ_GET,    RDMA_NLDEV_CMD_STAT_GET,      RDMA_NLDEV_CMD_RES_GET,
        RDMA_NLDEV_CMD_RES_QP_GET_RAW, RDMA_NLDEV_CMD_RES_CQ_GET_RAW};
    for (unsigned left = static_cast<unsigned>(random.range(1, 20)); left > 0; left--)
        list_resources(kCommands[random.below(std::size(kCommands))],
                       static_cast<uint32_t>(random.below(8)), true);
}

void add_device(const Side &side) {
    on_side(side, fmt::format("rdma link add {} type {} netdev {}", side.device,
                              e2e::config().link_type, side.netdev));
}

void delete_device(const Side &side) {
    e2e::shell(fmt::format("rdma link delete {}", side.device),
               e2e::Deadline(e2e::milliseconds(60000)));
}

void one_thing(Random &random) {
    const Side &side = kSides[random.below(2)];
    switch (random.below(24)) {
    case 0: delete_device(side); break;
    case 1:
    case 2: add_device(side); break;
    case 3: on_side(side, fmt::format("ip link set {} down", side.netdev)); break;
    case 4:
    case 5: /* an address goes with the link in some set-ups; put it back */
        on_side(side, fmt::format("ip link set {} up", side.netdev));
        on_side(side, fmt::format("ip addr replace {}/24 dev {}", side.addr, side.netdev));
        break;
    case 6:
        on_side(side, fmt::format("ip link set {} mtu {}", side.netdev,
                                  random.pick({1500, 9000, 576, 1280, 65000})));
        break;
    case 7: on_side(side, fmt::format("ip addr del {}/24 dev {}", side.addr, side.netdev)); break;
    case 8: e2e::shell("rdma resource show -dd; rdma resource show qp -dd"); break;
    case 9:
        e2e::shell(fmt::format("rdma statistic qp set link {}/1 auto type {}",
                               random.chance(50) ? e2e::config().dev : side.device,
                               random.chance(50) ? "on" : "off"));
        break;
    case 10: e2e::shell("rdma statistic; rdma statistic qp show"); break;
    case 11:
    case 12:
    case 13:
    case 14:
    case 15: set_some_policy(random); break;
    case 16: read_attributes(random); break;
    default: list_some(random); break;
    }
    board->admin.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

void make_second_link() {
    const std::string &ns = e2e::config().peer_ns;
    e2e::must_shell(fmt::format("ip link add {0} type veth peer name {1} netns {2} && "
                                "ip addr add {3}/24 dev {0} && ip link set {0} up && "
                                "ip -n {2} addr add {4}/24 dev {1} && ip -n {2} link set {1} up",
                                kSides[0].netdev, kSides[1].netdev, ns, kSides[0].addr,
                                kSides[1].addr));
    for (const Side &side : kSides)
        add_device(side);
}

void remove_second_link() {
    for (const Side &side : kSides)
        delete_device(side);
    e2e::shell(fmt::format("ip link delete {}", kSides[0].netdev));
    /* as they were */
    e2e::shell(fmt::format("rdma statistic qp set link {}/1 auto type off", e2e::config().dev));
}

void administrator(const Options &options) {
    Random random(options.seed, 0xad314);
    while (!board->stop) {
        try {
            one_thing(random);
        } catch (const e2e::Failure &) {
        }
        usleep(static_cast<useconds_t>(random.range(10000, 150000)));
    }
}

} // namespace softwarp::fuzz::local
