// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/network.hpp"

#include <fcntl.h>
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

    /* Few processes: starting one is what takes time on an emulated processor. */
    must_shell(fmt::format("ip -batch - <<EOF\n"
                           "netns add {0}\n"
                           "netns add {1}\n"
                           "link add {2} netns {0} type veth peer name {3} netns {1}\n"
                           "EOF",
                           ns_a, ns_b, netdev_a, netdev_b));
    auto set_up = [&](const std::string &ns, const std::string &device, const std::string &netdev,
                      const std::string &addr, unsigned host) {
        in_namespace(ns, [&] {
            must_shell(fmt::format("ip -batch - <<EOF\n"
                                   "link set lo up\n"
                                   "addr add {2}/24 dev {1}\n"
                                   "addr add fd88:{3}::{4}/64 dev {1} nodad\n"
                                   "link set {1} up\n"
                                   "EOF\n"
                                   "rdma link add {0} type {5} netdev {1}",
                                   device, netdev, addr, n, host, config().link_type));
        });
    };
    set_up(ns_a, dev_a, netdev_a, addr_a, 1);
    set_up(ns_b, dev_b, netdev_b, addr_b, 2);
    meet(ns_a, addr_b);
    meet(ns_b, addr_a);
}

TwoHosts::~TwoHosts() {
    /*
     * Some may be gone already: that is what the tests do.  The veth dies with the
     * namespaces, and the devices with it.
     */
    shell(fmt::format("ip -force -batch - <<EOF\nnetns del {}\nnetns del {}\nEOF", ns_a, ns_b));
    bool gone = eventually([&] { return !device_exists(dev_a) && !device_exists(dev_b); });
    EXPECT_TRUE(gone) << "devices outlive their network namespaces";
}

Route TwoHosts::route() const {
    return {ns_b, addr_b, ns_a, addr_b, ""};
}

ShellResult link_add(const std::string &name, const std::string &netdev, const std::string &ns,
                     const std::string &type) {
    ShellResult result{};
    in_namespace(ns, [&] {
        result = shell(fmt::format("rdma link add {} type {} netdev {}", name, type, netdev));
    });
    return result;
}

ShellResult link_delete(const std::string &name) {
    return shell("rdma link delete " + name);
}

std::string netdev_of(const std::string &device, const std::string &ns) {
    std::string text;
    in_namespace(ns, [&] { text = must_shell("rdma link show " + device + "/1"); });
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

namespace {

std::string policy_path(const std::string &device, const std::string &name) {
    return "/sys/class/infiniband/" + device + "/mpa/" + name;
}

int write_file(const std::string &path, const std::string &value) {
    Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd.get() < 0)
        return errno;
    return write(fd.get(), value.data(), value.size()) < 0 ? errno : 0;
}

std::string first_line(const std::string &path) {
    std::ifstream file(path);
    std::string value;
    std::getline(file, value);
    return value;
}

} // namespace

std::string policy(const std::string &device, const std::string &name) {
    return first_line(policy_path(device, name));
}

int set_policy(const std::string &device, const std::string &name, const std::string &value) {
    return write_file(policy_path(device, name), value);
}

PolicyOverride::PolicyOverride(const std::string &device, const std::string &name,
                               const std::string &value)
    : path_(policy_path(device, name)), before_(first_line(path_)) {
    if (before_.empty() || write_file(path_, value + "\n") != 0)
        fail("cannot set " + path_ + " to " + value);
}

PolicyOverride::~PolicyOverride() {
    EXPECT_EQ(write_file(path_, before_), 0) << "cannot restore " << path_;
}

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
