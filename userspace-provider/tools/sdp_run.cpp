// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Runs a program with the preload library, or explains what a connection to an address
// would use, and why.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <softwarp_sdp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "common/fd.hpp"
#include "network.hpp"
#include "preload/config.hpp"
#include "preload/kernel.hpp"
#include "preload/rules.hpp"
#include "program.hpp"
#include "words.hpp"

namespace {

using namespace softwarp;
using preload::Endpoint;
using preload::Loaded;
using preload::Policy;
using preload::Role;
using preload::Rule;
using tools::describe;

// As env(1) and nice(1) have them; of --check whether SDP can be used.
constexpr int exit_failed = 125;
constexpr int exit_not_startable = 126;
constexpr int exit_not_found = 127;
constexpr int exit_check_sdp = 0;
constexpr int exit_check_tcp = 1;

constexpr const char *library_name = "libsoftwarp_sdp.so";
constexpr const char *switch_name = "sdp_switch";
// Longer than the kernel takes to give up SDP and use TCP.
constexpr timeval connect_time{.tv_sec = 30, .tv_usec = 0};

struct Options {
    std::optional<std::string> policy;
    std::optional<std::string> rules;
    std::optional<std::string> log;
    std::optional<std::string> check;
    bool verbose = false;
    bool connect = false;
    bool kernel = false;
    std::vector<std::string> command;
};

class Help : public CLI::Formatter {
  public:
    std::string make_usage(const CLI::App *, std::string) const override {
        return "usage: sdp_run [OPTION]... CMD [ARG]...\n"
               "       sdp_run --kernel CMD [ARG]...\n"
               "       sdp_run --check ADDRESS:PORT [--connect] [OPTION]... [CMD]\n";
    }
};

constexpr const char *footer =
    "Rules are in /etc/softwarp/sdp.conf and ~/.config/softwarp/sdp.conf, in libsdp.conf's\n"
    "language, and in $SDP_RULES.  Exit codes: those of CMD; 125 sdp_run failed, 126 CMD cannot "
    "be\n"
    "started, 127 there is no CMD; with --check 0 SDP can be used, 1 TCP will be.";

template<class... Args>
void complain(fmt::format_string<Args...> format, Args &&...args) {
    tools::complain_as("sdp_run", format, std::forward<Args>(args)...);
}

void set(const char *variable, const std::string &value) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
    if (setenv(variable, value.c_str(), 1) != 0)
        throw std::bad_alloc{};
}

const char *get(const char *variable) {
    return getenv(variable); // NOLINT(concurrency-mt-unsafe): there is one thread
}

std::string base_name(const std::string &path) {
    return path.substr(path.rfind('/') + 1); // npos + 1 is 0
}

// What the program will find in its environment besides LD_PRELOAD.
void set_variables(const Options &options) {
    if (options.rules)
        set(preload::file_variable, std::filesystem::absolute(*options.rules).string());
    else if (options.policy && get(preload::file_variable) == nullptr)
        set(preload::file_variable, "");
    if (options.policy)
        set(preload::policy_variable, *options.policy);
    std::string log = options.verbose ? "destination stderr min-level 7" : "";
    if (options.log)
        log += " " + *options.log;
    if (!log.empty())
        set(preload::log_variable, log);
}

// Beside this program in a build tree; else where it was installed.  Empty if nowhere.
std::string find_own(const char *name, const char *installed) {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    for (const std::filesystem::path &path :
         {self.parent_path() / name, std::filesystem::path{installed}}) {
        if (!path.empty() && std::filesystem::exists(path, error))
            return path.string();
    }
    return {};
}

// Puts the library first in LD_PRELOAD; whether that can be done.
bool preload_library() {
    const std::string library = find_own(library_name, SOFTWARP_LIBRARY);
    if (library.empty()) {
        complain("{} is neither beside sdp_run nor at {}", library_name, SOFTWARP_LIBRARY);
        return false;
    }
    // The loader splits at these.
    if (library.find_first_of(" :") != std::string::npos) {
        complain("{}: the loader takes no path with blanks or colons; install the library",
                 library);
        return false;
    }
    std::string list = library;
    if (const char *before = get("LD_PRELOAD"); before != nullptr && *before != '\0') {
        const std::string text = before;
        // Once is enough: this may run below another sdp_run.
        if (text == library || text.starts_with(library + ":"))
            list.clear();
        list += (list.empty() ? "" : ":") + text;
    }
    set("LD_PRELOAD", list);
    return true;
}

// 0, or the errno with which the kernel refuses to make an SDP socket.
int try_socket() {
    const Fd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_SDP)};
    return fd ? 0 : errno;
}

std::string module_text(int error) {
    if (error == 0)
        return "softwarp_sdp is loaded";
    if (error == EPROTONOSUPPORT)
        return "softwarp_sdp is not loaded (modprobe softwarp_sdp loads it)";
    return fmt::format("the kernel makes no SDP sockets: {}", describe(error));
}

// Whether rules can be read; else their errors are shown.
bool are_good(const Loaded &loaded) {
    for (const preload::Error &error : loaded.errors)
        complain("{}", error.text());
    return loaded.errors.empty();
}

// Says why a program will use TCP although no rule wants that; whether it may go on.
bool can_use_sdp(const Loaded &loaded, const std::string &path) {
    const preload::Config &config = loaded.config;
    if (!config.rules.may_use_sdp(config.program, config.policy))
        return true; // it is to use TCP
    const int error = try_socket();
    const std::optional<std::string> why =
        error != 0 ? module_text(error) : tools::why_not_preloaded(path);
    if (!why)
        return true;
    if (config.policy == Policy::sdp) {
        complain("{}; {} is not started, because the policy sdp allows nothing else", *why,
                 config.program);
        return false;
    }
    complain("{}; {} uses TCP", *why, config.program);
    return true;
}

int run(const Options &options) {
    const std::string &name = options.command.front();
    const tools::Program program = tools::find_program(name, get("PATH"));
    if (program.error != 0) {
        complain("{}: {}", name, describe(program.error));
        return program.error == ENOENT || program.error == ENOTDIR ? exit_not_found
                                                                   : exit_not_startable;
    }
    set_variables(options);
    const Loaded loaded = preload::load(get, base_name(name));
    if (!are_good(loaded) || !can_use_sdp(loaded, program.path) || !preload_library())
        return exit_failed;

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

// By the kernel's switch, without the library: sdp_switch runs the program.
int run_by_kernel(const Options &options) {
    const std::string path = find_own(switch_name, SOFTWARP_SWITCH);
    if (path.empty()) {
        complain("--kernel needs sdp_switch, which is neither beside sdp_run nor at {}; it is "
                 "built where clang, bpftool and libbpf are",
                 SOFTWARP_SWITCH);
        return exit_failed;
    }
    std::vector<std::string> words{path, "run", "--"};
    words.insert(words.end(), options.command.begin(), options.command.end());
    std::vector<char *> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string &word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(path.c_str(), arguments.data());
    complain("{}: {}", path, describe(errno));
    return exit_failed;
}

// The policy of a role, printed with the rule that it comes from.
Policy show_policy(const Loaded &loaded, Role role, const Endpoint &endpoint) {
    const char *what = role == Role::client ? "connect" : "listen";
    const Rule *rule = loaded.config.rules.find(role, loaded.config.program, endpoint);
    if (rule == nullptr) {
        const Policy policy = loaded.config.policy;
        fmt::print("{:9}policy {}, no rule takes it\n", fmt::format("{}:", what),
                   preload::name_of(policy));
        return policy;
    }
    fmt::print("{:9}policy {}, rule {}, \"{}\"\n", fmt::format("{}:", what),
               preload::name_of(rule->policy), rule->where, rule->text);
    return rule->policy;
}

// Whether the route and the devices allow SDP with a policy.
bool show_route(const Endpoint &endpoint, Policy policy) {
    const tools::Route route = tools::route_to(endpoint);
    if (route.error != 0) {
        fmt::print("route:   none: {}\n", describe(route.error));
        return false;
    }
    fmt::print("route:   {}by {}\n", route.loopback ? "within this host, " : "", route.netdev);
    const std::vector<tools::RdmaDevice> devices = tools::rdma_devices();
    const std::optional<tools::RdmaDevice> device = tools::device_on(devices, route, endpoint);
    if (!device) {
        fmt::print("device:  none over {}; make one as root: {}\n", route.netdev,
                   tools::add_command(devices, route.netdev));
        return false;
    }
    fmt::print("device:  {}{}\n", device->name,
               device->softwarp ? "" : ", which is not softwarp's");
    if (!device->softwarp && policy == Policy::automatic) {
        fmt::print("         the policy auto uses softwarp's devices alone\n");
        return false;
    }
    return true;
}

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;

    explicit SocketAddress(const Endpoint &endpoint) {
        if (endpoint.v6) {
            sockaddr_in6 v6{};
            v6.sin6_family = AF_INET6;
            v6.sin6_port = htons(endpoint.port);
            std::memcpy(&v6.sin6_addr, endpoint.address.data(), sizeof(v6.sin6_addr));
            length = sizeof(v6);
            std::memcpy(&storage, &v6, sizeof(v6));
        } else {
            sockaddr_in v4{};
            v4.sin_family = AF_INET;
            v4.sin_port = htons(endpoint.port);
            std::memcpy(&v4.sin_addr, endpoint.address.data(), sizeof(v4.sin_addr));
            length = sizeof(v4);
            std::memcpy(&storage, &v4, sizeof(v4));
        }
    }
    [[nodiscard]] const sockaddr *get() const {
        return reinterpret_cast<const sockaddr *>(&storage);
    }
};

// Connects, closes at once, and says what that has used; whether it was SDP.
bool show_connection(const Endpoint &endpoint, Policy policy) {
    const Fd fd{socket(endpoint.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_SDP)};
    const int value = preload::number_of(policy);
    const SocketAddress address{endpoint};
    if (!fd || setsockopt(fd.get(), SOL_SDP, SDP_POLICY, &value, sizeof(value)) != 0 ||
        setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &connect_time, sizeof(connect_time)) != 0 ||
        ::connect(fd.get(), address.get(), address.length) != 0) {
        fmt::print("peer:    connecting failed: {}\n", describe(errno));
        return false;
    }
    sdp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(fd.get(), SOL_SDP, SDP_INFO, &info, &length) != 0) {
        fmt::print("peer:    connected, but SDP_INFO failed: {}\n", describe(errno));
        return false;
    }
    if (info.transport == SDP_INFO_TRANSPORT_SDP) {
        fmt::print("peer:    connected by SDP\n");
        return true;
    }
    fmt::print("peer:    connected by TCP, because {}\n", preload::sentence_of(info.reason));
    return false;
}

int check(const Options &options) {
    const std::optional<Endpoint> endpoint = preload::endpoint_of(*options.check);
    if (!endpoint) {
        complain("\"{}\" is not an address with a port, such as 10.0.0.1:80 or [fd00::1]:80",
                 *options.check);
        return exit_failed;
    }
    set_variables(options);
    const std::string name = options.command.empty() ? "" : base_name(options.command.front());
    const Loaded loaded = preload::load(get, name);
    if (!are_good(loaded))
        return exit_failed;

    std::string files;
    for (const std::string &file : loaded.files)
        files += (files.empty() ? "" : ", ") + file;
    fmt::print("rules:   {}{}\n", files.empty() ? "no file" : files,
               name.empty() ? "; give a CMD for rules of one program" : ", for " + name);
    const Policy policy = show_policy(loaded, Role::client, *endpoint);
    show_policy(loaded, Role::server, *endpoint);
    bool can = policy != Policy::tcp;
    const int error = try_socket();
    fmt::print("module:  {}\n", module_text(error));
    can = error == 0 && can;
    can = show_route(*endpoint, policy) && can;
    if (!options.command.empty()) {
        const tools::Program program = tools::find_program(options.command.front(), get("PATH"));
        const std::optional<std::string> why =
            program.error == 0 ? tools::why_not_preloaded(program.path) : std::nullopt;
        if (program.error != 0)
            fmt::print("program: {}: {}\n", options.command.front(), describe(program.error));
        else
            fmt::print("program: {}\n", why ? *why : program.path + " can be preloaded");
        can = can && !why;
    }
    if (options.connect && error == 0)
        can = show_connection(*endpoint, policy) && can;
    const char *verdict = "TCP";
    if (can)
        verdict = policy == Policy::sdp ? "SDP, or an error"
                  : options.connect     ? "SDP"
                                        : "SDP if the peer has it (--connect tries), else TCP";
    fmt::print("result:  {}\n", verdict);
    return can ? exit_check_sdp : exit_check_tcp;
}

int parse(int argc, char **argv, Options &options) {
    CLI::App app{"Run a program whose TCP connections use SDP, stream sockets over RDMA, where "
                 "both ends have it.",
                 "sdp_run"};
    app.formatter(std::make_shared<Help>());
    app.prefix_command();
    app.footer(footer);
    app.add_option("-p,--policy", options.policy,
                   "auto: SDP where the peer has it, else TCP; sdp: nothing else; tcp. For what no "
                   "rule of --rules or $SDP_RULES takes; without --rules no file is read")
        ->check(CLI::IsMember({"auto", "sdp", "tcp"}));
    app.add_option("-r,--rules", options.rules, "file of rules, in place of the usual ones")
        ->type_name("FILE");
    app.add_flag("-v,--verbose", options.verbose,
                 "say on stderr what each connection uses, and why");
    app.add_option("-l,--log", options.log,
                   "as in a log rule: \"destination file NAME min-level 4\"")
        ->type_name("SETTINGS");
    app.add_flag("-k,--kernel", options.kernel,
                 "let the kernel switch CMD's sockets, in place of a library: for static programs, "
                 "Go, setuid. For root; the policy is auto, and there are no rules");
    app.add_option("--check", options.check,
                   "run nothing; explain what a connection to this address would use")
        ->type_name("ADDRESS:PORT");
    app.add_flag("--connect", options.connect,
                 "with --check: also connect, say what it used, and close at once");
    if (const int code = tools::parse_words(app, argc, argv, exit_failed); code != 0)
        return code;
    options.command = app.remaining();
    if (!options.command.empty() && options.command.front() == "--")
        options.command.erase(options.command.begin());
    else if (!options.command.empty() && options.command.front().starts_with('-')) {
        complain("there is no option {}; see sdp_run --help", options.command.front());
        return exit_failed;
    }
    if (options.connect && !options.check) {
        complain("--connect goes with --check");
        return exit_failed;
    }
    if (options.kernel &&
        (options.policy || options.rules || options.log || options.verbose || options.check)) {
        complain("--kernel goes with no other option: the kernel knows no rules, and logs nothing");
        return exit_failed;
    }
    if (options.command.empty() && !options.check) {
        complain("no program is given; see sdp_run --help");
        return exit_failed;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        Options options;
        if (const int code = parse(argc, argv, options); code != 0)
            return code < 0 ? 0 : code; // --help
        if (options.kernel)
            return run_by_kernel(options);
        return options.check ? check(options) : run(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "sdp_run: %s\n", error.what());
        return exit_failed;
    }
}
