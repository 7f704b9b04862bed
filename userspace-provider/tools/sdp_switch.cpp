// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Turns the kernel's switch on and off for control groups, shows it, or runs a program in
// a control group of its own that is switched.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cgroup.hpp"
#include "command.hpp"
#include "common/fd.hpp"
#include "errors.hpp"
#include "program.hpp"
#include "switch.hpp"

namespace {

using namespace softwarp;
using tools::Cgroup;
using tools::describe;

constexpr int exit_off = 1;
// As env(1) and sdp_run have them
constexpr int exit_failed = 125;
constexpr int exit_not_startable = 126;
constexpr int exit_not_found = 127;

constexpr const char *footer =
    "TCP sockets made in the control group from then on use SDP where the peer has it, as those\n"
    "of sdp_run do.  While the switch is on, the module softwarp_sdp stays loaded.\n"
    "Exit codes: 0; show: 1 if it is off; 125 sdp_switch failed; run: those of sdp_run.";

struct Options {
    std::optional<std::string> cgroup;
    std::vector<std::string> command;
};

template<class... Args>
void complain(fmt::format_string<Args...> format, Args &&...args) {
    tools::complain_as("sdp_switch", format, std::forward<Args>(args)...);
}

Cgroup wanted(const Options &options) {
    return options.cgroup ? tools::find_cgroup(*options.cgroup) : tools::root_cgroup();
}

int turn_on(const Options &options) {
    tools::need_hook();
    tools::switch_on(wanted(options));
    return 0;
}

int turn_off(const Options &options) {
    if (!options.cgroup) {
        tools::switch_off();
        return 0;
    }
    if (!tools::switch_off(tools::find_cgroup(*options.cgroup)))
        complain("it was not on for {}", *options.cgroup);
    return 0;
}

int show(const Options &options) {
    tools::SwitchState state = tools::switch_state();
    std::sort(state.cgroups.begin(), state.cgroups.end(),
              [](const auto &a, const auto &b) { return a.cgroup.path < b.cgroup.path; });
    const std::optional<Cgroup> only =
        options.cgroup ? std::optional{tools::find_cgroup(*options.cgroup)} : std::nullopt;
    bool on = false;
    for (const tools::SwitchedCgroup &switched : state.cgroups) {
        if (only && only->id != switched.cgroup.id)
            continue;
        if (!on)
            fmt::print("{:>10}  {}\n", "sockets", "cgroup");
        on = true;
        fmt::print("{:10}  {}\n", switched.sockets,
                   switched.cgroup.path.empty() ? fmt::format("removed ({})", switched.cgroup.id)
                                                : switched.cgroup.path);
    }
    if (!on)
        fmt::print("{}\n", state.on && !only ? "on, but all its control groups are gone" : "off");
    return on ? 0 : exit_off;
}

// Waits until nobody is left in the cgroup, and removes it.  It is no child of the
// program, and has nothing of its caller's open, who may wait for the end of a pipe.
[[noreturn]] void clean_up(const Cgroup &cgroup, Fd started) {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (nothing >= 0)
            dup2(nothing, fd);
    dup2(started.get(), STDERR_FILENO + 1);
    close_range(STDERR_FILENO + 2, ~0U, 0);
    const int pipe = STDERR_FILENO + 1;
    // Who stops a service tells all its processes; this one goes when they have.
    for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGTSTP})
        std::signal(number, SIG_IGN);
    char octet = 0;
    while (read(pipe, &octet, 1) < 0 && errno == EINTR)
        continue;
    try {
        tools::remove_cgroup_when_empty(cgroup);
        tools::switch_off(cgroup);
    } catch (const std::exception &) {
        _exit(1); // there is nobody to tell
    }
    _exit(0);
}

// A grandchild that cleans up.  Returns the end of a pipe that is closed when the program
// is started, or was not.
Fd leave_cleaner(const Cgroup &cgroup) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        throw tools::failure("making a pipe", errno);
    Fd reading{ends[0]};
    Fd writing{ends[1]};
    const pid_t child = fork();
    if (child < 0)
        throw tools::failure("starting a process", errno);
    if (child == 0) {
        setsid();
        const pid_t cleaner = fork();
        if (cleaner != 0)
            _exit(cleaner < 0 ? 1 : 0);
        writing = Fd{};
        clean_up(cgroup, std::move(reading));
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        throw tools::failure("starting a process", EAGAIN);
    return writing;
}

int run(const Options &options) {
    const std::string &name = options.command.front();
    const tools::Program program =
        tools::find_program(name, getenv("PATH")); // NOLINT(concurrency-mt-unsafe): one thread
    if (program.error != 0) {
        complain("{}: {}", name, describe(program.error));
        return program.error == ENOENT || program.error == ENOTDIR ? exit_not_found
                                                                   : exit_not_startable;
    }
    tools::need_hook();
    const Cgroup cgroup = tools::make_cgroup(tools::own_cgroup(), "sdp_run");
    Fd started;
    try {
        tools::switch_on(cgroup);
        started = leave_cleaner(cgroup);
    } catch (const std::exception &error) {
        complain("{}", error.what());
        rmdir(cgroup.path.c_str());
        tools::switch_off(cgroup);
        return exit_failed;
    }
    tools::enter_cgroup(cgroup);
    std::vector<char *> arguments;
    arguments.reserve(options.command.size() + 1);
    for (const std::string &argument : options.command)
        arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    execvp(name.c_str(), arguments.data());
    const int error = errno;
    complain("{}: {}", name, describe(error));
    return error == ENOENT ? exit_not_found : exit_not_startable;
}

// The program that is to be run; its options are its own.  Empty if there is none.
std::vector<std::string> command_of(int argc, char **argv) {
    std::vector<std::string> words{argv, argv + argc};
    if (words.size() < 3 || words[1] != "run")
        return {};
    const auto first = words.begin() + (words[2] == "--" ? 3 : 2);
    if (first != words.end() && words[2].starts_with('-') && words[2] != "--")
        return {};
    return {first, words.end()};
}

// 0, or -1 after --help or --version, or an exit code
int parse(int argc, char **argv, Options &options, std::string &action) {
    CLI::App app{"Let the kernel make SDP sockets of the TCP sockets of control groups, for "
                 "programs that sdp_run cannot preload a library into: static ones, Go, setuid.",
                 "sdp_switch"};
    app.footer(footer);
    app.require_subcommand(1);
    CLI::App *on = app.add_subcommand("on", "switch a control group");
    CLI::App *off = app.add_subcommand("off", "switch it back; without --cgroup all");
    CLI::App *state = app.add_subcommand("show", "list the control groups, and the number of "
                                                 "sockets that were switched");
    for (CLI::App *sub : {on, off, state})
        sub->add_option("-c,--cgroup", options.cgroup,
                        "its directory, such as /sys/fs/cgroup/system.slice/nginx.service; the "
                        "ones below belong to it. Without it all processes of this host")
            ->type_name("PATH");
    app.add_subcommand("run", "run CMD in a control group of its own that is switched, as sdp_run "
                              "--kernel does");
    if (const int code = tools::parse_words(app, argc, argv, exit_failed); code != 0)
        return code;
    action = app.get_subcommands().front()->get_name();
    if (action == "run") {
        complain("no program is given; see sdp_switch --help");
        return exit_failed;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        Options options;
        options.command = command_of(argc, argv);
        if (!options.command.empty())
            return run(options);
        std::string action;
        if (const int code = parse(argc, argv, options, action); code != 0)
            return code < 0 ? 0 : code;
        if (action == "on")
            return turn_on(options);
        if (action == "off")
            return turn_off(options);
        return show(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "sdp_switch: %s\n", error.what());
        return exit_failed;
    }
}
