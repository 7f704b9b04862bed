// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "network.hpp"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "common/fd.hpp"

namespace softwarp::tools {
namespace {

using preload::Endpoint;

constexpr std::size_t v4_octets = 4;
constexpr std::size_t v6_octets = 16;

// A message to the kernel, attribute by attribute.
class Request {
  public:
    Request(int type, int flags) {
        nlmsghdr header{};
        header.nlmsg_type = static_cast<std::uint16_t>(type);
        header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
        put(&header, sizeof(header));
    }

    void put(const void *data, std::size_t bytes) {
        const auto *octets = static_cast<const char *>(data);
        octets_.insert(octets_.end(), octets, octets + bytes);
        octets_.resize(NLMSG_ALIGN(octets_.size()));
    }
    void attribute(int type, const void *data, std::size_t bytes) {
        const nlattr header{.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + bytes),
                            .nla_type = static_cast<std::uint16_t>(type)};
        put(&header, sizeof(header));
        put(data, bytes);
    }
    [[nodiscard]] std::string_view octets() {
        const auto length = static_cast<std::uint32_t>(octets_.size());
        std::memcpy(octets_.data(), &length, sizeof(length)); // nlmsg_len is the first member
        return {octets_.data(), octets_.size()};
    }

  private:
    std::vector<char> octets_;
};

// Attributes behind the first @skip octets of a message, by type.
std::map<int, std::string_view> attributes_of(std::string_view payload, std::size_t skip) {
    std::map<int, std::string_view> found;
    payload.remove_prefix(std::min<std::size_t>(NLMSG_ALIGN(skip), payload.size()));
    while (payload.size() >= NLA_HDRLEN) {
        nlattr header{};
        std::memcpy(&header, payload.data(), sizeof(header));
        if (header.nla_len < NLA_HDRLEN || header.nla_len > payload.size())
            break;
        found[header.nla_type & NLA_TYPE_MASK] =
            payload.substr(NLA_HDRLEN, header.nla_len - NLA_HDRLEN);
        payload.remove_prefix(std::min<std::size_t>(NLA_ALIGN(header.nla_len), payload.size()));
    }
    return found;
}

std::optional<std::uint32_t> number_in(const std::map<int, std::string_view> &attributes,
                                       int type) {
    const auto found = attributes.find(type);
    std::uint32_t value = 0;
    if (found == attributes.end() || found->second.size() < sizeof(value))
        return std::nullopt;
    std::memcpy(&value, found->second.data(), sizeof(value));
    return value;
}

std::string text_in(const std::map<int, std::string_view> &attributes, int type) {
    const auto found = attributes.find(type);
    if (found == attributes.end())
        return {};
    return std::string{found->second.substr(0, found->second.find('\0'))};
}

using Take = std::function<void(std::string_view payload)>;

// Whether more messages follow a datagram of these; @error is set by the last one.
bool take_all(std::string_view octets, bool dump, const Take &take, int &error) {
    while (octets.size() >= sizeof(nlmsghdr)) {
        nlmsghdr header{};
        std::memcpy(&header, octets.data(), sizeof(header));
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > octets.size())
            break;
        const std::string_view payload =
            octets.substr(NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN);
        if (header.nlmsg_type == NLMSG_DONE)
            return false;
        if (header.nlmsg_type == NLMSG_ERROR) {
            nlmsgerr answer{};
            std::memcpy(&answer, payload.data(), std::min(payload.size(), sizeof(answer.error)));
            error = -answer.error;
            return false;
        }
        take(payload);
        octets.remove_prefix(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), octets.size()));
    }
    return dump;
}

// Asks the kernel; 0 or an errno.
int ask(int protocol, Request request, bool dump, const Take &take) {
    const Fd fd{socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)};
    if (!fd)
        return errno;
    const std::string_view octets = request.octets();
    if (send(fd.get(), octets.data(), octets.size(), 0) < 0)
        return errno;
    std::array<char, 32768> block{};
    int error = 0;
    for (bool more = true; more;) {
        const ssize_t count = recv(fd.get(), block.data(), block.size(), 0);
        if (count <= 0)
            return count < 0 ? errno : EIO;
        more = take_all({block.data(), static_cast<std::size_t>(count)}, dump, take, error);
    }
    return error;
}

std::string name_of(std::uint32_t index) {
    std::array<char, IF_NAMESIZE> name{};
    return if_indextoname(index, name.data()) != nullptr ? name.data() : "";
}

bool is_over(const RdmaDevice &device, const std::string &netdev) {
    return std::find(device.netdevs.begin(), device.netdevs.end(), netdev) != device.netdevs.end();
}

bool is_among(const std::vector<RdmaDevice> &devices, const std::string &name) {
    return std::any_of(devices.begin(), devices.end(),
                       [&](const RdmaDevice &device) { return device.name == name; });
}

int nldev(int command) {
    return RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
}

} // namespace

Route route_to(const Endpoint &endpoint) {
    const std::size_t octets = endpoint.v6 ? v6_octets : v4_octets;
    rtmsg message{};
    message.rtm_family = endpoint.v6 ? AF_INET6 : AF_INET;
    message.rtm_dst_len = static_cast<unsigned char>(8 * octets);
    Request request{RTM_GETROUTE, 0};
    request.put(&message, sizeof(message));
    request.attribute(RTA_DST, endpoint.address.data(), octets);

    Route route;
    route.source.v6 = endpoint.v6;
    route.error = ask(NETLINK_ROUTE, std::move(request), false, [&](std::string_view payload) {
        const auto attributes = attributes_of(payload, sizeof(rtmsg));
        if (const auto index = number_in(attributes, RTA_OIF))
            route.netdev = name_of(*index);
        const auto source = attributes.find(RTA_PREFSRC);
        if (source != attributes.end() && source->second.size() == octets)
            std::memcpy(route.source.address.data(), source->second.data(), octets);
        rtmsg answer{};
        std::memcpy(&answer, payload.data(), std::min(payload.size(), sizeof(answer)));
        route.loopback = answer.rtm_type == RTN_LOCAL;
        if (answer.rtm_type == RTN_UNREACHABLE || answer.rtm_type == RTN_BLACKHOLE ||
            answer.rtm_type == RTN_PROHIBIT)
            route.error = ENETUNREACH;
    });
    if (route.error == 0 && route.netdev.empty())
        route.error = ENETUNREACH;
    return route;
}

std::string netdev_with(const Endpoint &endpoint) {
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0)
        return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner{first, freeifaddrs};
    for (const ifaddrs *at = first; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr)
            continue;
        const socklen_t length =
            at->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        const std::optional<Endpoint> own = Endpoint::of(at->ifa_addr, length);
        if (own && own->v6 == endpoint.v6 && own->address == endpoint.address)
            return at->ifa_name;
    }
    return {};
}

std::vector<RdmaDevice> rdma_devices() {
    std::vector<std::pair<std::uint32_t, RdmaDevice>> found;
    ask(NETLINK_RDMA, Request{nldev(RDMA_NLDEV_CMD_GET), NLM_F_DUMP}, true,
        [&](std::string_view payload) {
            const auto attributes = attributes_of(payload, 0);
            const auto index = number_in(attributes, RDMA_NLDEV_ATTR_DEV_INDEX);
            const std::string name = text_in(attributes, RDMA_NLDEV_ATTR_DEV_NAME);
            if (index && !name.empty())
                found.push_back({*index, {name, {}, false}});
        });
    std::vector<RdmaDevice> devices;
    for (auto &[index, device] : found) {
        Request request{nldev(RDMA_NLDEV_CMD_PORT_GET), NLM_F_DUMP};
        request.attribute(RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
        ask(NETLINK_RDMA, std::move(request), true, [&device = device](std::string_view payload) {
            const std::string name = text_in(attributes_of(payload, 0), RDMA_NLDEV_ATTR_NDEV_NAME);
            if (!name.empty())
                device.netdevs.push_back(name);
        });
        // No other driver has this directory.
        device.softwarp =
            access(("/sys/class/infiniband/" + device.name + "/mpa").c_str(), F_OK) == 0;
        devices.push_back(std::move(device));
    }
    return devices;
}

std::optional<RdmaDevice> device_on(const std::vector<RdmaDevice> &devices, const Route &route,
                                    const Endpoint &endpoint) {
    std::vector<std::string> netdevs{route.netdev};
    if (route.loopback) {
        netdevs.insert(netdevs.begin(), "lo");
        netdevs.push_back(netdev_with(endpoint));
    }
    for (const bool softwarp : {true, false}) {
        for (const std::string &netdev : netdevs) {
            for (const RdmaDevice &device : devices) {
                if (device.softwarp == softwarp && is_over(device, netdev))
                    return device;
            }
        }
    }
    return std::nullopt;
}

std::string add_command(const std::vector<RdmaDevice> &devices, const std::string &netdev) {
    std::string name;
    for (std::size_t i = 0; name.empty() || is_among(devices, name); ++i)
        name = "sw" + std::to_string(i);
    return "rdma link add " + name + " type softwarp netdev " + netdev;
}

} // namespace softwarp::tools
