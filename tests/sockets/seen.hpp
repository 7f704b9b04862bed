// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Of a network namespace: /proc/net/softwarp_sdp_stat, the counters, and
 * net.softwarp_sdp, what can be set
 */
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace softwarp::sockets {

using Counters = std::map<std::string, uint64_t>;

Counters counters();
/* One has gone up by so many since then, which may take a moment. */
void expect_more(const Counters &before, const std::string &name, uint64_t more);

/* Pages that the sockets of TCP and SDP are charged for, or -1 */
long charged_pages();

/* Where one is to be found, what it is now, and */
std::string path_of(const std::string &name);
std::string read_value(const std::string &name);
/* the errno of setting it, 0 if it went well */
int write_value(const std::string &name, const std::string &value);

/* Another value for as long as it is there */
class Tuned {
  public:
    Tuned(const std::string &name, int value);
    Tuned(const Tuned &) = delete;
    Tuned &operator=(const Tuned &) = delete;
    ~Tuned();

  private:
    std::string name_, before_;
};

} // namespace softwarp::sockets
