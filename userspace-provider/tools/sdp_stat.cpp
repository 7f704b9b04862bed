// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Shows the SDP sockets of a network namespace, and explains in sentences why a connection
// is on TCP, or slow.
#include <fmt/core.h>
#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "command.hpp"
#include "network.hpp"
#include "observe.hpp"
#include "preload/config.hpp"
#include "preload/rules.hpp"
#include "report.hpp"
#include "softwarp_sdp.h"
#include "table.hpp"
#include "why.hpp"

namespace {

using namespace softwarp;
using preload::Endpoint;
using preload::Policy;
using tools::Forecast;
using tools::Reading;
using tools::Sections;
using tools::Sentences;
using tools::Snapshot;
using tools::Socket;
using tools::Surroundings;
using tools::Verdict;
using Seconds = std::chrono::duration<double>;

constexpr int exit_good = 0;
constexpr int exit_tcp = 1;
constexpr int exit_failed = 2;
constexpr int exit_not_loaded = 3;

// Connections with a peer that are described one by one.
constexpr std::size_t shown_most = 8;
constexpr double seconds_least = 0.1;
constexpr double seconds_most = 86400;

constexpr const char *all_sections = "all";

struct Options {
    std::vector<std::string> sections;
    std::optional<std::string> watch;
    std::uint64_t count = 0; // 0: without end
    bool json = false;
    bool why = false;
    std::optional<std::string> address;
    std::optional<pid_t> pid;
    std::optional<int> fd;
    double interval = 1;
};

class Help : public CLI::Formatter {
  public:
    std::string make_usage(const CLI::App *, std::string) const override {
        return "usage: sdp_stat [SECTION]... [--json] [--watch [SECONDS] [--count N]]\n"
               "       sdp_stat why ADDRESS[:PORT] [--json]\n"
               "       sdp_stat why --pid PID --fd FD [--json]\n";
    }
};

constexpr const char *footer =
    "Sections: sockets, reasons, faults, cache, counters, settings, all; by default the first\n"
    "four.  Exit codes: 0 shown, or with why SDP; 1 with why TCP, or no connection; 2 sdp_stat\n"
    "failed; 3 softwarp_sdp is not loaded.";

template<class... Args>
void complain(fmt::format_string<Args...> format, Args &&...args) {
    tools::complain_as("sdp_stat", format, std::forward<Args>(args)...);
}

void print(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

const char *get(const char *variable) {
    return getenv(variable); // NOLINT(concurrency-mt-unsafe): there is one thread
}

// False: there is no such section.
bool choose(Sections &sections, const std::string &name) {
    using Named = std::pair<const char *, bool Sections::*>;
    const std::array known{
        Named{"sockets", &Sections::sockets},   Named{"reasons", &Sections::reasons},
        Named{"faults", &Sections::faults},     Named{"cache", &Sections::cache},
        Named{"counters", &Sections::counters}, Named{"settings", &Sections::settings}};
    bool found = false;
    for (const auto &[word, member] : known) {
        if (name == word || name == all_sections) {
            sections.*member = true;
            found = true;
        }
    }
    return found;
}

Sections sections_of(const Options &options) {
    Sections sections;
    for (const std::string &name : options.sections)
        choose(sections, name);
    if (!options.sections.empty())
        return sections;
    if (options.json || options.watch)
        choose(sections, all_sections);
    else
        sections = {.sockets = true, .reasons = true, .faults = true, .cache = true};
    return sections;
}

int complain_of(const Snapshot &snapshot) {
    complain("{}", snapshot.error);
    return snapshot.loaded ? exit_failed : exit_not_loaded;
}

double wait_for(double seconds) {
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(Seconds{seconds});
    return Seconds{std::chrono::steady_clock::now() - begin}.count();
}

// Shows what changes, until the module is unloaded or the count is over.
int watch(const Options &options) {
    const Sections sections = sections_of(options);
    Snapshot before = tools::take_snapshot();
    for (std::uint64_t i = 0; before.error.empty(); ++i) {
        if (options.count > 0 && i == options.count)
            return exit_good;
        const double seconds = wait_for(options.interval);
        Snapshot after = tools::take_snapshot();
        if (after.error.empty())
            print(options.json ? tools::json_of_changes(before, after, seconds, sections)
                               : tools::text_of_changes(before, after, seconds, sections));
        before = std::move(after);
    }
    return complain_of(before);
}

int show(const Options &options) {
    const Snapshot snapshot = tools::take_snapshot();
    if (!snapshot.error.empty())
        return complain_of(snapshot);
    const Sections sections = sections_of(options);
    print(options.json ? tools::json_of(snapshot, sections) : tools::text_of(snapshot, sections));
    return exit_good;
}

// why -------------------------------------------------------------------------------------

Surroundings surroundings_of(const Snapshot &snapshot, const std::optional<Endpoint> &peer) {
    Surroundings around;
    around.peer = peer;
    around.answers = snapshot.answers;
    around.settings = snapshot.settings;
    around.devices = tools::rdma_devices();
    if (peer) {
        around.route = tools::route_to(*peer);
        if (around.route->error == 0)
            around.device = tools::device_on(around.devices, *around.route, *peer);
    }
    return around;
}

void append(Sentences &to, const Sentences &more) {
    to.insert(to.end(), more.begin(), more.end());
}

// All connections with a peer; if there are none, those that may be.
struct Found {
    std::vector<Socket> sockets;
    bool sure = true;
};

Found find_with(const Snapshot &snapshot, const Endpoint &peer) {
    const std::vector<tools::Answer> answers =
        snapshot.answers ? *snapshot.answers : std::vector<tools::Answer>{};
    Found sure;
    Found perhaps{{}, false};
    for (const Socket &socket : snapshot.sockets) {
        const tools::With with = tools::with_peer(socket, peer, answers);
        if (with == tools::With::yes)
            sure.sockets.push_back(socket);
        else if (with == tools::With::maybe)
            perhaps.sockets.push_back(socket);
    }
    return sure.sockets.empty() && !perhaps.sockets.empty() ? perhaps : sure;
}

void note_transport(Verdict &verdict, const Socket &socket) {
    const std::string transport = socket.kind() == Socket::Kind::sdp   ? "sdp"
                                  : socket.kind() == Socket::Kind::tcp ? "tcp"
                                                                       : "none";
    if (verdict.transport.empty() || verdict.transport == "none")
        verdict.transport = transport;
    else if (verdict.transport != transport && transport != "none")
        verdict.transport = "mixed";
    if (transport == "tcp" && verdict.reason.empty())
        verdict.reason = socket.why;
}

const Socket *find_again(const std::vector<Socket> &sockets, const Socket &which) {
    for (const Socket &socket : sockets) {
        if (socket.local == which.local && socket.remote == which.remote)
            return &socket;
    }
    return nullptr;
}

// The policy that a program under sdp_run has for the peer, and what says so.
Policy policy_for(const Endpoint &peer, Sentences &sentences) {
    const preload::Loaded loaded = preload::load(get, "");
    for (const preload::Error &error : loaded.errors)
        sentences.push_back("A rule is wrong, and sdp_run starts no program: " + error.text());
    const preload::Rule *rule = loaded.config.rules.find(preload::Role::client, "", peer);
    if (rule == nullptr)
        return loaded.config.policy;
    sentences.push_back(fmt::format("Under sdp_run {}, \"{}\", sets the policy {}.", rule->where,
                                    rule->text, preload::name_of(rule->policy)));
    return rule->policy;
}

// Connections that there are; what holds each up, from two readings.
void describe_connections(Verdict &verdict, const std::vector<Socket> &before, const Endpoint &peer,
                          double seconds, const Snapshot &snapshot) {
    const Found found = find_with(snapshot, peer);
    const std::vector<Socket> &after = found.sockets;
    const Surroundings around = surroundings_of(snapshot, peer);
    std::set<std::string> explained;
    std::size_t shown = 0;
    verdict.sockets = after;
    if (!found.sure)
        verdict.sentences.emplace_back(
            "By SDP a connection has the port that the peer's port mapper gave, so those that "
            "follow may be with this service or with another one of the host; --pid and --fd "
            "tell.");
    for (const Socket &now : after) {
        note_transport(verdict, now);
        if (++shown > shown_most)
            continue;
        verdict.sentences.push_back(tools::headline(now));
        if (now.kind() == Socket::Kind::tcp && explained.insert(now.why).second)
            append(verdict.sentences, tools::remedy(now.why, around));
        if (const Socket *was = find_again(before, now))
            append(verdict.sentences, tools::what_slows({*was, {}}, {now, {}}, seconds, around));
    }
    if (shown > shown_most)
        verdict.sentences.push_back(
            fmt::format("There are {} more connections with it; sdp_stat sockets shows them.",
                        shown - shown_most));
}

void describe_next(Verdict &verdict, const Endpoint &peer, const Snapshot &snapshot) {
    const Policy policy = policy_for(peer, verdict.sentences);
    const Forecast next = tools::forecast(policy, surroundings_of(snapshot, peer));
    append(verdict.sentences, next.sentences);
    if (verdict.transport.empty())
        verdict.transport = tools::name_of(next.way);
}

int answer(const Options &options, const Verdict &verdict) {
    if (options.json) {
        print(tools::json_of(verdict));
    } else {
        for (const std::string &sentence : verdict.sentences)
            print(sentence + "\n");
    }
    return verdict.is_bad() ? exit_tcp : exit_good;
}

Verdict not_loaded(const Snapshot &snapshot) {
    return {"tcp", "not_loaded", {snapshot.error}, {}};
}

int why_address(const Options &options) {
    const std::optional<Endpoint> peer = tools::place_of(*options.address);
    if (!peer) {
        complain("{} is not an address; write 10.0.0.1, 10.0.0.1:80, fd00::1 or [fd00::1]:80",
                 *options.address);
        return exit_failed;
    }
    const Snapshot first = tools::take_snapshot();
    if (!first.loaded)
        return answer(options, not_loaded(first));
    if (!first.error.empty())
        return complain_of(first);
    Verdict verdict;
    const std::vector<Socket> before = find_with(first, *peer).sockets;
    if (before.empty()) {
        verdict.sentences.push_back(
            fmt::format("No SDP socket is connected with {}.", *options.address));
        describe_next(verdict, *peer, first);
        return answer(options, verdict);
    }
    const double seconds = wait_for(options.interval);
    const Snapshot second = tools::take_snapshot();
    if (!second.error.empty())
        return complain_of(second);
    describe_connections(verdict, before, *peer, seconds, second);
    describe_next(verdict, *peer, second);
    return answer(options, verdict);
}

int why_descriptor(const Options &options) {
    const tools::Copied copied = tools::copy_descriptor(*options.pid, *options.fd);
    if (!copied.fd) {
        complain("{}", copied.error);
        return exit_failed;
    }
    const tools::Described first = tools::describe_descriptor(copied.fd);
    if (!first.error.empty()) {
        complain("descriptor {} of process {}: {}", *options.fd, *options.pid, first.error);
        return exit_failed;
    }
    const Snapshot snapshot = tools::take_snapshot();
    if (!first.reading) {
        if (!snapshot.loaded)
            return answer(options, not_loaded(snapshot));
        return answer(options, {"tcp", "plain_tcp", {first.sentence}, {}});
    }
    const double seconds = wait_for(options.interval);
    const tools::Described second = tools::describe_descriptor(copied.fd);
    const Reading &now = second.reading ? *second.reading : *first.reading;
    const Surroundings around = surroundings_of(snapshot, tools::place_of(now.socket.remote));
    Verdict verdict;
    verdict.sockets = {now.socket};
    note_transport(verdict, now.socket);
    verdict.sentences.push_back(tools::headline(now.socket));
    if (first.policy != SDP_INFO_POLICY_AUTO && now.socket.kind() == Socket::Kind::listener)
        verdict.sentences.emplace_back("Its policy is sdp: TCP clients cannot connect.");
    if (now.socket.kind() == Socket::Kind::tcp)
        append(verdict.sentences, tools::remedy(now.socket.why, around));
    append(verdict.sentences, tools::what_slows(*first.reading, now, seconds, around));
    return answer(options, verdict);
}

// The command line -------------------------------------------------------------------------

bool is_good(Options &options) {
    if (options.watch && !options.watch->empty()) {
        char *end = nullptr;
        options.interval = std::strtod(options.watch->c_str(), &end);
        Sections ignored;
        // the word after --watch may also be a section
        if (end == options.watch->c_str() && choose(ignored, *options.watch)) {
            options.sections.push_back(*options.watch);
            options.interval = 1;
        } else if (*end != '\0' || end == options.watch->c_str()) {
            complain("--watch takes seconds, not {}", *options.watch);
            return false;
        }
    }
    const bool in_range = options.interval >= seconds_least && options.interval <= seconds_most;
    if (!in_range) { // or no number
        complain("seconds are at least {} and at most {}", seconds_least, seconds_most);
        return false;
    }
    if (options.count > 0 && !options.watch) {
        complain("--count goes with --watch");
        return false;
    }
    if (options.why && (options.watch || !options.sections.empty())) {
        complain("why takes no section and no --watch");
        return false;
    }
    if (options.why && options.address.has_value() == (options.pid || options.fd)) {
        complain("why takes an address, or --pid and --fd");
        return false;
    }
    if (options.why && options.pid.has_value() != options.fd.has_value()) {
        complain("--pid and --fd go together");
        return false;
    }
    return true;
}

int parse(int argc, char **argv, Options &options) {
    CLI::App app{"Show sockets of SDP and what they use, or explain a connection.", "sdp_stat"};
    app.formatter(std::make_shared<Help>());
    app.footer(footer);
    app.add_option("SECTION", options.sections, "what to show")
        ->check(CLI::IsMember(
            {"sockets", "reasons", "faults", "cache", "counters", "settings", all_sections}));
    app.add_flag("-j,--json", options.json, "one JSON object; with --watch one on each line");
    app.add_option("-w,--watch", options.watch, "show what changes, per second")
        ->expected(0, 1)
        ->type_name("[SECONDS]");
    app.add_option("-n,--count", options.count, "with --watch: end after so many times")
        ->type_name("N");
    CLI::App *why =
        app.add_subcommand("why", "Explain the connections with a peer, or a descriptor");
    why->fallthrough();
    // CLI11 2.4 takes no brackets in the name of a positional.
    why->add_option("ADDRESS", options.address,
                    "literal, perhaps with :PORT; an IPv6 address with a port in brackets");
    why->add_option("-p,--pid", options.pid, "process that has the socket")
        ->check(CLI::Range(1, std::numeric_limits<int>::max()));
    why->add_option("-f,--fd", options.fd, "its descriptor")
        ->check(CLI::Range(0, std::numeric_limits<int>::max()));
    why->add_option("-i,--interval", options.interval, "seconds between the two readings")
        ->type_name("SECONDS");
    if (const int code = tools::parse_words(app, argc, argv, exit_failed); code != 0)
        return code;
    options.why = why->parsed();
    if (app.count("--watch") > 0 && !options.watch)
        options.watch = "";
    return is_good(options) ? 0 : exit_failed;
}

} // namespace

int main(int argc, char **argv) {
    try {
        Options options;
        if (const int code = parse(argc, argv, options); code != 0)
            return code < 0 ? 0 : code; // --help
        if (!options.why)
            return options.watch ? watch(options) : show(options);
        return options.address ? why_address(options) : why_descriptor(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "sdp_stat: %s\n", error.what());
        return exit_failed;
    }
}
