// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What the command lines of the tools have in common.
#ifndef SOFTWARP_TOOLS_COMMAND_HPP
#define SOFTWARP_TOOLS_COMMAND_HPP

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>

namespace softwarp::tools {

// Says on stderr why program `name` failed.
template<class... Args>
void complain_as(const char *name, fmt::format_string<Args...> format, Args &&...args) {
    fmt::print(stderr, "{}: {}\n", name, fmt::format(format, std::forward<Args>(args)...));
}

// Parses the words.  Returns 0, -1 after --help or --version, or `failed` after a complaint.
[[nodiscard]] inline int parse_words(CLI::App &app, int argc, char **argv, int failed) {
    app.set_version_flag("--version", app.get_name() + " " SOFTWARP_VERSION,
                         "print the version and exit");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        if (error.get_exit_code() == 0) {
            app.exit(error); // --help, --version
            return -1;
        }
        const std::string &name = app.get_name();
        complain_as(name.c_str(), "{}; see {} --help", error.what(), name);
        return failed;
    }
    return 0;
}

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_COMMAND_HPP
