// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "aside.hpp"
#include "common/fd.hpp"
#include "real.hpp"

namespace softwarp::preload {
namespace {

// A message, and a line with it: room for the name of a program, too.
using Message = std::array<char, 600>;
using Line = std::array<char, 1000>;

template<std::size_t Size>
std::string_view formatted(const std::array<char, Size> &line, int length) noexcept {
    return {line.data(),
            static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(Size) - 1))};
}

int priority_of(Level level) noexcept {
    if (level >= level_error)
        return LOG_ERR;
    if (level == level_warning)
        return LOG_WARNING;
    return level >= level_match ? LOG_INFO : LOG_DEBUG;
}

} // namespace

std::string log_path(const std::string &name, uid_t user) {
    const bool absolute = name.starts_with('/');
    if (user == 0)
        return absolute ? name : "/var/log/" + name;
    return (absolute ? name : "/tmp/" + name) + "." + std::to_string(user);
}

Log::Log(LogSettings settings, std::string program)
    : settings_{std::move(settings)}, program_{std::move(program)},
      path_(log_path(settings_.file, geteuid())) {
    struct stat status = {};
    has_standard_error_ = fstat(STDERR_FILENO, &status) == 0;
    device_ = status.st_dev;
    inode_ = status.st_ino;
}

void Log::say(Level level, const char *format, ...) const noexcept {
    if (!wants(level))
        return;
    const Aside aside;
    Message line{};
    va_list args;
    va_start(args, format);
    const int length = std::vsnprintf(line.data(), line.size(), format, args);
    va_end(args);
    write(level, formatted(line, length));
}

void Log::write(Level level, std::string_view message) const noexcept {
    switch (settings_.destination) {
    case LogSettings::Destination::standard_error:
        if (write_standard_error(message))
            return;
        break;
    case LogSettings::Destination::file:
        if (write_file(message))
            return;
        break;
    case LogSettings::Destination::system: break;
    }
    write_system(level, message);
}

bool Log::write_standard_error(std::string_view message) const noexcept {
    struct stat status = {};
    // The program may have closed it, and a database may be there now.
    if (!has_standard_error_ || fstat(STDERR_FILENO, &status) != 0 || status.st_dev != device_ ||
        status.st_ino != inode_)
        return false;
    // A pipe that nobody reads would end the program by SIGPIPE, a full one would stop it.
    pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0 ||
        (ready.revents & (POLLERR | POLLNVAL)) != 0)
        return false;
    Line line{};
    const std::string_view text =
        formatted(line, std::snprintf(line.data(), line.size(), "softwarp_sdp: %s[%d]: %.*s\n",
                                      program_.c_str(), static_cast<int>(getpid()),
                                      static_cast<int>(message.size()), message.data()));
    return ::write(STDERR_FILENO, text.data(), text.size()) >= 0;
}

void Log::write_system(Level level, std::string_view message) const noexcept {
    // Not syslog(3): its lock may be held by a thread that fork() has left behind.
    const Fd fd{real.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    if (!fd ||
        real.connect(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0)
        return;
    Line line{};
    const std::string_view text =
        formatted(line, std::snprintf(line.data(), line.size(), "<%d>%s[%d]: softwarp_sdp: %.*s",
                                      LOG_USER | priority_of(level), program_.c_str(),
                                      static_cast<int>(getpid()), static_cast<int>(message.size()),
                                      message.data()));
    send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

bool Log::write_file(std::string_view message) const noexcept {
    // Others may write into /tmp: no links, and only a file that nobody else may write.
    const Fd fd{open(path_.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                     S_IRUSR | S_IWUSR)};
    struct stat status = {};
    if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1 ||
        status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return false;
    // Not gmtime(): it takes a lock.
    using namespace std::chrono;
    const auto now = floor<seconds>(system_clock::now());
    const auto today = floor<days>(now);
    const year_month_day date{today};
    const hh_mm_ss time{now - today};
    Line line{};
    const std::string_view text = formatted(
        line, std::snprintf(
                  line.data(), line.size(), "%d-%02u-%02uT%02d:%02d:%02dZ %s[%d]: %.*s\n",
                  static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                  static_cast<unsigned>(date.day()), static_cast<int>(time.hours().count()),
                  static_cast<int>(time.minutes().count()),
                  static_cast<int>(time.seconds().count()), program_.c_str(),
                  static_cast<int>(getpid()), static_cast<int>(message.size()), message.data()));
    return ::write(fd.get(), text.data(), text.size()) >= 0;
}

} // namespace softwarp::preload
