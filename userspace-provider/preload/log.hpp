// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Messages of the library in somebody else's process: no lock, no buffer, no
// descriptor kept open, nothing that a signal or a fork could find half done.
#ifndef SOFTWARP_PRELOAD_LOG_HPP
#define SOFTWARP_PRELOAD_LOG_HPP

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "rules.hpp"

namespace softwarp::preload {

// libsdp's levels.  A message is written if its level is min-level or greater.
enum Level : int {
    level_debug = 1,
    level_call = 2,     // each call that is taken over, and what it returned
    level_no_match = 3, // no rule takes an address
    level_match = 4,    // which rule does
    level_use = 7,      // what a connection or a listener uses, and why TCP
    level_warning = 8,
    level_error = 9,
};

class Log {
  public:
    // Of a process that runs @program.  Must be made before the program can have
    // closed its descriptor 2.
    Log(LogSettings settings, std::string program);

    [[nodiscard]] bool wants(Level level) const noexcept { return level >= settings_.min_level; }
    // Leaves errno alone.
    [[gnu::format(printf, 3, 4)]] void say(Level level, const char *format, ...) const noexcept;

  private:
    void write(Level level, std::string_view message) const noexcept;
    [[nodiscard]] bool write_standard_error(std::string_view message) const noexcept;
    void write_system(Level level, std::string_view message) const noexcept;
    [[nodiscard]] bool write_file(std::string_view message) const noexcept;

    LogSettings settings_;
    std::string program_;
    std::string path_; // of settings_.file
    // What descriptor 2 was; a program may have another file there later.
    bool has_standard_error_ = false;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

// Where the messages for a file of this name go: below /var/log for root, and with
// the number of the user for others.
[[nodiscard]] std::string log_path(const std::string &name, uid_t user);

} // namespace softwarp::preload

#endif // SOFTWARP_PRELOAD_LOG_HPP
