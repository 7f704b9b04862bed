// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Hosts of a test's own, for what must not be done to the shared topology:
 *
 *   namespace e2eN_a                 namespace e2eN_b
 *   device e2eN_a on netdev va  ==  netdev vb with device e2eN_b
 *          10.88.N.1, fd88:N::1          10.88.N.2, fd88:N::2
 */
#pragma once

#include <map>
#include <string>

#include "lib/connection.hpp"

namespace softwarp::e2e {

class TwoHosts {
  public:
    TwoHosts();
    ~TwoHosts();
    TwoHosts(const TwoHosts &) = delete;
    TwoHosts &operator=(const TwoHosts &) = delete;

    Route route() const; // client in a, server in b

    std::string ns_a, ns_b;
    std::string dev_a, dev_b;
    std::string netdev_a, netdev_b;
    std::string addr_a, addr_b;
};

/* Shell commands around a device. */
ShellResult link_add(const std::string &name, const std::string &netdev, const std::string &ns = "",
                     const std::string &type = config().link_type);
ShellResult link_delete(const std::string &name);

/* Name of the netdev below a device, as the namespace sees it. */
std::string netdev_of(const std::string &device, const std::string &ns = "");

/* The counters that "rdma statistic show" has for the device. */
std::map<std::string, uint64_t> counters(const std::string &device);

/* Number of objects of the device in "rdma resource show": "qp", "cq", "mr", "pd" ... */
uint64_t resource_count(const std::string &device, const std::string &object);

/* A module parameter of softwarp; empty if there is none. */
std::string module_parameter(const std::string &name);

/* Sets a module parameter as long as it lives. */
class ParameterOverride {
  public:
    ParameterOverride(std::string name, const std::string &value);
    ~ParameterOverride();
    ParameterOverride(const ParameterOverride &) = delete;
    ParameterOverride &operator=(const ParameterOverride &) = delete;

  private:
    std::string name_;
    std::string before_;
};

/* One attribute of /sys/class/infiniband/DEVICE/mpa/, set as long as it lives. */
class PolicyOverride {
  public:
    PolicyOverride(const std::string &device, const std::string &name, const std::string &value);
    ~PolicyOverride();
    PolicyOverride(const PolicyOverride &) = delete;
    PolicyOverride &operator=(const PolicyOverride &) = delete;

  private:
    std::string path_;
    std::string before_;
};

std::string policy(const std::string &device, const std::string &name);
/* 0, or the errno of the write. */
int set_policy(const std::string &device, const std::string &name, const std::string &value);

} // namespace softwarp::e2e
