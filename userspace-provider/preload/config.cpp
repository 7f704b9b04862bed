// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "config.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/fd.hpp"

namespace softwarp::preload {
namespace {

constexpr std::size_t file_most = 1U << 20;

// 0, or an errno: EFBIG also for what is no file.
int read_file(const std::string &path, std::string &text) {
    const Fd fd{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    struct stat status = {};
    if (!fd || fstat(fd.get(), &status) != 0)
        return errno;
    if (!S_ISREG(status.st_mode))
        return S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    std::array<char, 4096> block{};
    for (;;) {
        const ssize_t count = read(fd.get(), block.data(), block.size());
        if (count == 0)
            return 0;
        if (count < 0 && errno != EINTR)
            return errno;
        if (count > 0)
            text.append(block.data(), static_cast<std::size_t>(count));
        if (text.size() > file_most)
            return EFBIG;
    }
}

// Whether there is such a file.
bool add_file(const std::string &path, Loaded &loaded) {
    std::string text;
    const int error = read_file(path, text);
    if (error == ENOENT || error == ENOTDIR)
        return false;
    loaded.files.push_back(path);
    if (error != 0) {
        loaded.errors.push_back(
            {path, 0, 0,
             std::string{"it cannot be read as a file of rules: "} + strerrordesc_np(error)});
        return true;
    }
    for (Error &wrong : loaded.config.rules.add(text, path))
        loaded.errors.push_back(std::move(wrong));
    return true;
}

std::string text_of(const char *value) {
    return value != nullptr ? value : "";
}

} // namespace

Loaded load(const std::function<const char *(const char *)> &variable, const std::string &program) {
    Loaded loaded;
    Config &config = loaded.config;
    config.program = program;
    loaded.errors = config.rules.add(text_of(variable(rules_variable)), rules_variable, ';');

    if (const char *file = variable(file_variable); file != nullptr) {
        if (*file != '\0' && !add_file(file, loaded))
            loaded.errors.push_back({file, 0, 0, "there is no such file"});
    } else {
        std::string home = text_of(variable("XDG_CONFIG_HOME"));
        if (!home.starts_with('/')) {
            home = text_of(variable("HOME"));
            if (!home.empty())
                home += "/.config";
        }
        // $HOME may be that of another user, who started the service.
        if (!home.empty() && access((home + "/" + user_file).c_str(), R_OK) == 0)
            add_file(home + "/" + user_file, loaded);
        if (!add_file(host_file, loaded))
            add_file(old_host_file, loaded);
    }

    if (const std::string name = text_of(variable(policy_variable)); !name.empty()) {
        const std::optional<Policy> policy = policy_of(name);
        config.policy = policy.value_or(Policy::tcp);
        if (!policy)
            loaded.errors.push_back({policy_variable, 0, 0,
                                     "\"" + name + "\" is not a policy; write auto, sdp or tcp"});
    }
    if (const std::string log = text_of(variable(log_variable)); !log.empty()) {
        for (Error &wrong : config.rules.add_log(log, log_variable))
            loaded.errors.push_back(std::move(wrong));
    }
    config.broken = !loaded.errors.empty();
    return loaded;
}

} // namespace softwarp::preload
