// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What sdp_run --check and sdp_stat have to know of the host: the route to an address, and
// the RDMA devices over netdevs.  By netlink, as ip(8) and rdma(8) do.
#ifndef SOFTWARP_TOOLS_NETWORK_HPP
#define SOFTWARP_TOOLS_NETWORK_HPP

#include <optional>
#include <string>
#include <vector>

#include "preload/rules.hpp"

namespace softwarp::tools {

struct Route {
    int error = 0;      // an errno; then there is no route
    std::string netdev; // that it leaves by
    bool loopback = false;
    preload::Endpoint source; // without a port; any address if the kernel did not say
};

[[nodiscard]] Route route_to(const preload::Endpoint &endpoint);

// The netdev of this host that has an address; empty if none has.
[[nodiscard]] std::string netdev_with(const preload::Endpoint &endpoint);

struct RdmaDevice {
    std::string name;
    std::vector<std::string> netdevs; // of its ports
    bool softwarp = false;
};

// Those of this network namespace; none without RDMA in the kernel.
[[nodiscard]] std::vector<RdmaDevice> rdma_devices();

// The device that the kernel takes: over the route's netdev; within the host also over
// the one that has the address.  softwarp's come first.
[[nodiscard]] std::optional<RdmaDevice> device_on(const std::vector<RdmaDevice> &devices,
                                                  const Route &route,
                                                  const preload::Endpoint &endpoint);

// The command that makes one over a netdev, with a name that is free.
[[nodiscard]] std::string add_command(const std::vector<RdmaDevice> &devices,
                                      const std::string &netdev);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_NETWORK_HPP
