// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/fd.hpp"

namespace softwarp::tools {
namespace {

// The kernel follows as many interpreters of interpreters.
constexpr int interpreters_most = 5;
constexpr std::size_t segments_most = 512;
constexpr std::string_view blanks = " \t";

// Whether a file may be started: 0, or what execve() would say.
int startable(const std::string &path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0)
        return errno;
    if (!S_ISREG(status.st_mode))
        return EACCES;
    return eaccess(path.c_str(), X_OK) == 0 ? 0 : errno;
}

std::string read_at(const Fd &fd, std::size_t offset, std::size_t bytes) {
    std::string text(bytes, '\0');
    const ssize_t count = pread(fd.get(), text.data(), bytes, static_cast<off_t>(offset));
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
}

template<class Value>
bool read_value(const Fd &fd, std::size_t offset, Value &value) {
    return pread(fd.get(), &value, sizeof(value), static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(sizeof(value));
}

// The loader that an ELF file of our class names; empty for a static one.
std::string loader_of(const Fd &fd, const Elf64_Ehdr &header) {
    const std::size_t count = std::min<std::size_t>(header.e_phnum, segments_most);
    for (std::size_t i = 0; i < count; ++i) {
        Elf64_Phdr segment{};
        if (!read_value(fd, header.e_phoff + i * header.e_phentsize, segment))
            break;
        if (segment.p_type == PT_INTERP) {
            const std::string name =
                read_at(fd, segment.p_offset, std::min<std::size_t>(segment.p_filesz, 4096));
            return name.substr(0, name.find('\0'));
        }
    }
    return {};
}

// The kernel gives a program more rights than its caller has, and the loader then
// ignores the caller's LD_PRELOAD.
std::optional<std::string> why_privileged(const std::string &path, const struct stat &status) {
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid())
        return path + " is a setuid program, and the loader ignores LD_PRELOAD for these";
    if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 &&
        status.st_gid != getgid())
        return path + " is a setgid program, and the loader ignores LD_PRELOAD for these";
    if (getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0)
        return path + " has file capabilities, and the loader ignores LD_PRELOAD for programs "
                      "with these";
    return std::nullopt;
}

std::optional<std::string> why_not_elf(const std::string &path, const Fd &fd,
                                       const Elf64_Ehdr &header) {
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
        return path + " is a program of another architecture, or a 32-bit one, and "
                      "the library is not";
    const std::string loader = loader_of(fd, header);
    if (loader.empty())
        return path + " is a static program, which has no loader";
    if (loader.find("/ld-musl") != std::string::npos)
        return path + " uses musl as its C library, and the library is for glibc";
    return std::nullopt;
}

// The interpreter of a script, from its first line without the #!.
std::string interpreter_of(std::string_view line) {
    line = line.substr(0, line.find('\n'));
    const std::size_t begin = std::min(line.find_first_not_of(blanks), line.size());
    line.remove_prefix(begin);
    return std::string{line.substr(0, line.find_first_of(blanks))};
}

} // namespace

Program find_program(const std::string &name, const char *search_path) {
    if (name.empty())
        return {{}, ENOENT};
    if (name.find('/') != std::string::npos) {
        const int error = startable(name);
        return {error == 0 ? name : "", error};
    }
    // Without PATH libc looks there.
    std::string_view path = search_path != nullptr ? search_path : "/bin:/usr/bin";
    int error = ENOENT;
    for (bool more = true; more;) {
        const std::size_t colon = path.find(':');
        const std::string_view directory = path.substr(0, colon);
        more = colon != std::string_view::npos;
        path.remove_prefix(more ? colon + 1 : path.size());
        const std::string candidate = std::string{directory.empty() ? "." : directory} + "/" + name;
        const int found = startable(candidate);
        if (found == 0)
            return {candidate, 0};
        // Something that may not be started says more than nothing.
        if (found == EACCES)
            error = found;
    }
    return {{}, error};
}

std::optional<std::string> why_not_preloaded(const std::string &path) {
    std::string at = path;
    for (int i = 0; i <= interpreters_most; ++i) {
        const Fd fd{open(at.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
        struct stat status = {};
        if (!fd || fstat(fd.get(), &status) != 0)
            return std::nullopt; // may be started and not read
        const std::string head = read_at(fd, 0, 256);
        if (head.starts_with("#!")) {
            at = interpreter_of(std::string_view{head}.substr(2));
            continue;
        }
        if (std::optional<std::string> why = why_privileged(at, status))
            return why;
        Elf64_Ehdr header{};
        if (!head.starts_with(ELFMAG) || !read_value(fd, 0, header))
            return std::nullopt;
        return why_not_elf(at, fd, header);
    }
    return std::nullopt;
}

} // namespace softwarp::tools
