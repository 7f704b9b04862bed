// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/network.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <regex>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace softwarp::e2e {

namespace {

/* Lets ARP find the address: a connect to a closed port is answered behind it. */
void meet(const std::string &ns, const std::string &addr) {
    in_namespace(ns, [&] {
        Address to = address(addr, 9);
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        require(fd.get() >= 0, "socket");
        int result = connect(fd.get(), &to.generic, sizeof(to.v4));
        require(result == 0 || errno == ECONNREFUSED, "connect " + addr);
    });
}

} // namespace

TwoHosts::TwoHosts() {
    static unsigned instance;
    unsigned n = ++instance;
    std::string base = fmt::format("e2e{}", n);

    ns_a = dev_a = base + "_a";
    ns_b = dev_b = base + "_b";
    netdev_a = base + "va";
    netdev_b = base + "vb";
    addr_a = fmt::format("10.88.{}.1", n);
    addr_b = fmt::format("10.88.{}.2", n);

    must_shell(fmt::format("ip netns add {} && ip netns add {}", ns_a, ns_b));
    must_shell(fmt::format("ip link add {} netns {} type veth peer name {} netns {}", netdev_a,
                           ns_a, netdev_b, ns_b));
    auto set_up = [&](const std::string &ns, const std::string &netdev, const std::string &addr,
                      unsigned host) {
        must_shell(fmt::format("ip -n {0} link set lo up && ip -n {0} addr add {2}/24 dev {1} && "
                               "ip -n {0} addr add fd88:{3}::{4}/64 dev {1} nodad && "
                               "ip -n {0} link set {1} up",
                               ns, netdev, addr, n, host));
    };
    set_up(ns_a, netdev_a, addr_a, 1);
    set_up(ns_b, netdev_b, addr_b, 2);
    meet(ns_a, addr_b);
    meet(ns_b, addr_a);
    for (auto &[name, netdev, ns] :
         {std::tuple(dev_a, netdev_a, ns_a), std::tuple(dev_b, netdev_b, ns_b)}) {
        ShellResult result = link_add(name, netdev, ns);
        if (result.status != 0)
            fail("rdma link add: " + result.output);
    }
}

TwoHosts::~TwoHosts() {
    /* Any of these may be gone already: that is what the tests do. */
    for (const std::string &device : {dev_a, dev_b})
        if (device_exists(device))
            link_delete(device);
    shell(fmt::format("ip netns del {}", ns_a));
    shell(fmt::format("ip netns del {}", ns_b));
    /* The ends of the veth die with their namespaces, and devices with them. */
    bool gone = eventually([&] { return !device_exists(dev_a) && !device_exists(dev_b); });
    EXPECT_TRUE(gone) << "devices outlive their network namespaces";
}

Route TwoHosts::route() const {
    return {ns_b, addr_b, ns_a, addr_b, ""};
}

std::string in_ns(const std::string &ns) {
    return ns.empty() ? "" : "ip netns exec " + ns + " ";
}

ShellResult link_add(const std::string &name, const std::string &netdev, const std::string &ns,
                     const std::string &type) {
    return shell(
        fmt::format("{}rdma link add {} type {} netdev {}", in_ns(ns), name, type, netdev));
}

ShellResult link_delete(const std::string &name) {
    return shell("rdma link delete " + name);
}

std::string netdev_of(const std::string &device, const std::string &ns) {
    std::string text = must_shell(in_ns(ns) + "rdma link show " + device + "/1");
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("netdev (\\S+)")))
        fail("no netdev in: " + text);
    return found[1];
}

std::map<std::string, uint64_t> counters(const std::string &device) {
    std::string text = must_shell("rdma statistic show link " + device + "/1");
    std::map<std::string, uint64_t> values;
    std::regex pair("(\\w+) (\\d+)");
    for (std::sregex_iterator i(text.begin(), text.end(), pair), end; i != end; ++i)
        values[(*i)[1]] = std::stoull((*i)[2]);
    return values;
}

uint64_t resource_count(const std::string &device, const std::string &object) {
    std::string text = must_shell("rdma resource show " + device);
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("\\b" + object + " (\\d+)")))
        fail("no " + object + " in: " + text);
    return std::stoull(found[1]);
}

namespace {

std::string parameter_path(const std::string &name) {
    return "/sys/module/softwarp/parameters/" + name;
}

} // namespace

std::string module_parameter(const std::string &name) {
    std::ifstream file(parameter_path(name));
    std::string value;
    std::getline(file, value);
    return value;
}

ParameterOverride::ParameterOverride(std::string name, const std::string &value)
    : name_(std::move(name)), before_(module_parameter(name_)) {
    std::ofstream file(parameter_path(name_));
    file << value << std::flush;
    if (before_.empty() || !file)
        fail("cannot set module parameter " + name_);
}

ParameterOverride::~ParameterOverride() {
    std::ofstream file(parameter_path(name_));
    file << before_ << std::flush;
    EXPECT_TRUE(file.good()) << "cannot restore module parameter " << name_;
}

} // namespace softwarp::e2e
