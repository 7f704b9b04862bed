// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "cgroup.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "bpf/sdp_switch.h"
#include "common/fd.hpp"
#include "errors.hpp"

namespace softwarp::tools {
namespace {

namespace fs = std::filesystem;

// exportfs.h of the kernel; the handle is the id.
constexpr int fileid_kernfs = 0xfe;
// Names tried for a new cgroup
constexpr int names_most = 100;
// Removing is tried again as often, after such a pause.
constexpr int removals_most = 100;
constexpr std::chrono::milliseconds pause{100};

// open_by_handle_at() wants the handle's octets behind the structure.
struct Handle {
    file_handle header{};
    std::uint64_t id = 0;
};
static_assert(offsetof(Handle, id) == sizeof(file_handle));

std::string read_file(const char *path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::string_view take_line(std::string_view &text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
}

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (!line.empty()) {
        const std::string_view word = line.substr(0, line.find(' '));
        words.push_back(word);
        line.remove_prefix(std::min(word.size() + 1, line.size()));
    }
    return words;
}

// In mountinfo blanks and the like are written as \040.
std::string unescaped(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
        const std::string_view digits = text.substr(std::min<std::size_t>(1, text.size()), 3);
        if (text.front() == '\\' && digits.size() == 3 &&
            digits.find_first_not_of("01234567") == std::string_view::npos) {
            plain += static_cast<char>(std::stoi(std::string{digits}, nullptr, 8));
            text.remove_prefix(4);
        } else {
            plain += text.front();
            text.remove_prefix(1);
        }
    }
    return plain;
}

std::string mount_point() {
    std::string point = cgroup_mount_in(read_file("/proc/self/mountinfo"));
    if (point.empty())
        throw std::runtime_error{"no control groups of version 2 are mounted; mount them: "
                                 "mount -t cgroup2 none /sys/fs/cgroup"};
    return point;
}

bool is_cgroup(const Fd &fd) {
    struct statfs about = {};
    return fstatfs(fd.get(), &about) == 0 && about.f_type == CGROUP2_SUPER_MAGIC;
}

Fd open_directory(const std::string &path) {
    return Fd{open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
}

std::uint64_t id_of(const Fd &fd, const std::string &path) {
    struct stat status = {};
    if (fstat(fd.get(), &status) != 0)
        throw failure(path, errno);
    return status.st_ino;
}

bool write_file(const std::string &path, std::string_view text) {
    const Fd fd{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    return fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool is_populated(const Fd &events) {
    std::string text(256, '\0');
    const ssize_t count = pread(events.get(), text.data(), text.size(), 0);
    // ENODEV: it is gone
    return count > 0 && text.find("populated 1") != std::string::npos;
}

void wait_until_empty(const Cgroup &cgroup) {
    const Fd events{open((cgroup.path + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC)};
    if (!events)
        return;
    while (is_populated(events)) {
        pollfd changed{.fd = events.get(), .events = POLLPRI, .revents = 0};
        poll(&changed, 1, -1);
    }
}

// With the cgroups below that the program has left
bool remove_tree(const fs::path &path) {
    std::error_code error;
    for (fs::directory_iterator entry{path, error}, end; !error && entry != end;
         entry.increment(error)) {
        std::error_code ignored;
        if (entry->is_directory(ignored) && !entry->is_symlink(ignored))
            remove_tree(entry->path());
    }
    return rmdir(path.c_str()) == 0 || errno == ENOENT;
}

} // namespace

std::string cgroup_mount_in(std::string_view mountinfo) {
    while (!mountinfo.empty()) {
        // ID PARENT DEVICE ROOT POINT OPTIONS [FIELD]... - TYPE SOURCE OPTIONS
        const std::vector<std::string_view> words = words_of(take_line(mountinfo));
        const auto dash = std::find(words.begin(), words.end(), "-");
        if (words.size() > 4 && words.end() - dash > 1 && *(dash + 1) == "cgroup2")
            return unescaped(words[4]);
    }
    return {};
}

std::string cgroup_path_in(std::string_view text) {
    constexpr std::string_view start = "0::";
    while (!text.empty()) {
        const std::string_view line = take_line(text);
        // ".." leads out of the namespace of cgroups
        if (line.starts_with(start) &&
            line.substr(start.size()).find("/..") == std::string_view::npos)
            return std::string{line.substr(start.size())};
    }
    return {};
}

Cgroup find_cgroup(const std::string &name) {
    const std::string below = mount_point() + "/" + name;
    for (const std::string &path : {name, below}) {
        const Fd fd = open_directory(path);
        if (!fd || !is_cgroup(fd))
            continue;
        std::error_code error;
        const fs::path full = fs::canonical(path, error);
        const auto depth = std::distance(full.begin(), full.end());
        if (error || depth > SDP_SWITCH_LEVELS)
            throw std::runtime_error{
                fmt::format("{}: this control group is too deep: the kernel's program looks at "
                            "{} levels",
                            path, SDP_SWITCH_LEVELS)};
        return {full.string(), id_of(fd, path)};
    }
    throw std::runtime_error{fmt::format(
        "{} is no control group of version 2: give its directory, below {}", name, mount_point())};
}

Cgroup root_cgroup() {
    return find_cgroup(mount_point());
}

Cgroup own_cgroup() {
    const std::string path = cgroup_path_in(read_file("/proc/self/cgroup"));
    if (path.empty())
        throw std::runtime_error{"this process is in no control group of version 2 below the "
                                 "mounted ones"};
    return find_cgroup(mount_point() + path);
}

std::string path_of_cgroup(std::uint64_t id) {
    const Fd mount = open_directory(mount_point());
    Handle handle;
    handle.header.handle_bytes = sizeof(handle.id);
    handle.header.handle_type = fileid_kernfs;
    handle.id = id;
    const Fd fd{open_by_handle_at(mount.get(), &handle.header, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!fd) {
        if (errno == ESTALE || errno == ENOENT)
            return {};
        throw failure("looking for a control group", errno);
    }
    std::error_code error;
    const fs::path path = fs::read_symlink(fmt::format("/proc/self/fd/{}", fd.get()), error);
    struct stat status = {};
    // Removed meanwhile, or out of sight in a namespace
    if (error || stat(path.c_str(), &status) != 0 || status.st_ino != id)
        return {};
    return path.string();
}

Cgroup make_cgroup(const Cgroup &parent, const std::string &name) {
    for (int i = 0; i < names_most; ++i) {
        const std::string path = fmt::format("{}/{}-{}-{}", parent.path, name, getpid(), i);
        if (mkdir(path.c_str(), 0755) == 0) {
            try {
                return find_cgroup(path);
            } catch (const std::exception &) {
                rmdir(path.c_str());
                throw;
            }
        }
        if (errno != EEXIST)
            throw failure("making the control group " + path, errno);
    }
    throw std::runtime_error{
        fmt::format("{} has too many control groups of the name {}", parent.path, name)};
}

void enter_cgroup(const Cgroup &cgroup) {
    if (!write_file(cgroup.path + "/cgroup.procs", "0"))
        throw failure("entering the control group " + cgroup.path, errno);
}

void remove_cgroup_when_empty(const Cgroup &cgroup) {
    for (int i = 0; i < removals_most; ++i) {
        wait_until_empty(cgroup);
        if (remove_tree(cgroup.path))
            return;
        std::this_thread::sleep_for(pause);
    }
}

} // namespace softwarp::tools
