// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/resources.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <fmt/format.h>

#include "lib/system.hpp"

namespace softwarp::fuzz {

namespace {

uint64_t meminfo(const std::string &name) {
    std::ifstream file("/proc/meminfo");
    std::string key;
    uint64_t value = 0;
    std::string rest;
    while (file >> key >> value && std::getline(file, rest))
        if (key == name + ":")
            return value * 1024;
    e2e::fail("no " + name + " in /proc/meminfo");
}

uint64_t tcp_sockets() {
    uint64_t count = 0;
    for (const char *path : {"/proc/net/sockstat", "/proc/net/sockstat6"}) {
        std::ifstream file(path);
        std::string line;
        while (std::getline(file, line)) {
            std::istringstream words(line);
            std::string protocol, key;
            uint64_t value = 0;
            words >> protocol;
            while (protocol.starts_with("TCP") && words >> key >> value)
                count += key == "inuse" || key == "orphan" ? value : 0;
        }
    }
    return count;
}

} // namespace

Resources Resources::now() {
    Resources resources;
    std::string text = e2e::must_shell("rdma resource show");
    /* contexts are not counted: librdmacm keeps those of a program open until it ends */
    std::regex pair("\\b(pd|cq|qp|cm_id|mr) (\\d+)");
    for (std::sregex_iterator i(text.begin(), text.end(), pair), end; i != end; ++i)
        resources.objects[(*i)[1]] += std::stoull((*i)[2]);
    resources.sockets = tcp_sockets();
    resources.unreclaimed = meminfo("SUnreclaim");
    resources.available = meminfo("MemAvailable");
    return resources;
}

std::string Resources::text() const {
    std::string text;
    for (const auto &[name, count] : objects)
        text += fmt::format("{} {}, ", name, count);
    return text + fmt::format("TCP sockets {}, SUnreclaim {} KiB, MemAvailable {} MiB", sockets,
                              unreclaimed / 1024, available >> 20);
}

std::string left_over(const Resources &before, int seconds) {
    Resources now;
    bool back = e2e::eventually(
        [&] {
            now = Resources::now();
            for (const auto &[name, count] : now.objects) {
                auto was = before.objects.find(name);
                if (count > (was == before.objects.end() ? 0 : was->second))
                    return false;
            }
            return now.sockets <= before.sockets;
        },
        e2e::Deadline(e2e::milliseconds(seconds * 1000)));
    return back ? std::string() : "before: " + before.text() + "; left: " + now.text();
}

std::map<std::string, uint64_t> device_counters(const std::string &device) {
    std::map<std::string, uint64_t> values;
    auto directory =
        std::filesystem::path("/sys/class/infiniband") / device / "ports/1/hw_counters";
    for (const auto &entry : std::filesystem::directory_iterator(directory)) {
        std::ifstream file(entry.path());
        file >> values[entry.path().filename()];
    }
    return values;
}

uint64_t counter_sum(const std::string &name) {
    uint64_t sum = 0;
    for (const auto &entry : std::filesystem::directory_iterator("/sys/class/infiniband")) {
        std::ifstream file(entry.path() / "ports/1/hw_counters" / name);
        uint64_t value = 0;
        if (file >> value)
            sum += value;
    }
    return sum;
}

std::string get_policy(const std::string &device, const std::string &name) {
    std::ifstream file("/sys/class/infiniband/" + device + "/mpa/" + name);
    std::string value;
    std::getline(file, value);
    return value;
}

void set_policy(const std::string &device, const std::string &name, const std::string &value) {
    std::ofstream file("/sys/class/infiniband/" + device + "/mpa/" + name);
    file << value << std::flush;
    if (!file)
        e2e::fail(fmt::format("{} does not take {} for {}", device, value, name));
}

} // namespace softwarp::fuzz
