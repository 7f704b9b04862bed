// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * softwarp-fuzz: a hostile peer and the consumer it is hostile to, over a device
 * of this host, for as many mutated frames as asked for.
 */
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lib/resources.hpp"
#include "lib/system.hpp"
#include "mutation/player.hpp"

namespace {

using namespace softwarp::fuzz;
using Clock = std::chrono::steady_clock;

struct Options {
    uint64_t frames = 100000;
    unsigned seconds = 0;
    uint64_t seed = 1;
    uint64_t first = 0;
    uint64_t connections = 0;
    unsigned workers = 6;
    std::string addr = "10.77.0.1";
};

/* Connections in a row that meet the same policy. */
constexpr uint64_t kRound = 500;
/* What the device wants in start-up, round by round. */
struct Policy {
    const char *crc;
    const char *markers;
    const char *rdmac;
    const char *extensions = "on";
};
constexpr Policy kPolicies[] = {{"prefer", "off", "off"},       {"off", "off", "off"},
                                {"prefer", "on", "off"},        {"off", "on", "on"},
                                {"prefer", "off", "on"},        {"require", "off", "off"},
                                {"prefer", "off", "off", "off"}};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Run {
  public:
    explicit Run(const Options &options) : options_(options), next_(options.first) {}

    int go();

  private:
    void rehearse();
    void want(const Policy &policy);
    void round(uint64_t number);
    bool enough() const;
    void note(const Counts &counts);
    void progress();
    void report();
    void check_memory();

    const Options &options_;
    std::string device_;
    Clock::time_point begin_ = Clock::now();
    Clock::time_point shown_ = begin_;
    std::atomic<uint64_t> next_;
    std::mutex mutex_; // protects total_
    Counts total_;
    uint64_t fpdus_before_ = 0;
    std::vector<std::pair<uint64_t, Resources>> samples_; // after so many connections
    std::vector<std::unique_ptr<Player>> players_;
};

void Run::note(const Counts &counts) {
    std::lock_guard hold(mutex_);
    for (const std::string &failure : counts.failures)
        fmt::print("FAILED {}\n", failure);
    total_.add(counts);
}

/* The stock has to be legal, or nothing that follows from it means a thing. */
void Run::rehearse() {
    Player player(options_.addr, options_.seed);
    device_ = player.device();
    Counts all;
    for (const Session &session : recorded()) {
        /* the second half of them in a device that wants markers */
        Policy policy = kPolicies[2 * all.connections < recorded().size() ? 0 : 2];
        policy.rdmac = session.startup.revision == 0 ? "on" : "off";
        want(policy);
        player.rehearse(session);
        Counts counts = player.take_counts();
        for (const std::string &failure : counts.failures)
            fmt::print("FAILED {}\n", failure);
        all.add(counts);
        /* one may take its time to fail */
        if (all.failures.size() > 3)
            break;
    }
    fmt::print("{} legal sessions, {} frames, {} failed\n", all.connections, all.frames,
               all.failures.size());
    for (const auto &[name, count] : all.endings)
        fmt::print("  {:6} {}\n", count, name);
    total_.failures = all.failures;
}

void Run::want(const Policy &policy) {
    set_policy(device_, "crc", policy.crc);
    set_policy(device_, "markers", policy.markers);
    set_policy(device_, "rdmac", policy.rdmac);
    set_policy(device_, "extensions", policy.extensions);
}

bool Run::enough() const {
    if (!total_.failures.empty())
        return true;
    if (options_.connections != 0)
        return total_.connections >= options_.connections;
    if (options_.seconds != 0)
        return seconds_since(begin_) >= options_.seconds;
    return total_.mutated >= options_.frames;
}

void Run::progress() {
    if (seconds_since(shown_) < 5)
        return;
    shown_ = Clock::now();
    double passed = seconds_since(begin_);
    fmt::print("{:.0f} s: {} mutated frames of {}, {} connections, {:.0f} frames/s\n", passed,
               total_.mutated, total_.frames, total_.connections,
               static_cast<double>(total_.mutated) / passed);
    std::fflush(stdout);
}

void Run::round(uint64_t number) {
    uint64_t index = number / kRound;
    const Policy &policy = kPolicies[index % std::size(kPolicies)];
    want(policy);
    uint64_t end = (index + 1) * kRound;
    if (options_.connections != 0)
        end = std::min(end, options_.first + options_.connections);
    std::atomic<bool> stop{false};
    std::atomic<unsigned> busy{static_cast<unsigned>(players_.size())};
    std::vector<std::jthread> threads;
    for (auto &player : players_)
        threads.emplace_back([&, player = player.get()] {
            try {
                while (!stop) {
                    uint64_t mine = next_++;
                    if (mine >= end)
                        break;
                    player->play(mine);
                    note(player->take_counts());
                }
            } catch (const std::exception &error) {
                Counts failed;
                failed.failures.push_back(error.what());
                note(failed);
            }
            busy--;
        });
    while (busy != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::lock_guard hold(mutex_);
        progress();
        stop = enough();
    }
    threads.clear();
    next_ = end;
}

/* Memory may rise while caches fill, but not by an object per connection. */
void Run::check_memory() {
    if (samples_.size() < 6)
        return;
    const auto &[then, before] = samples_[samples_.size() / 3];
    const auto &[now, after] = samples_.back();
    int64_t growth =
        static_cast<int64_t>(after.unreclaimed) - static_cast<int64_t>(before.unreclaimed);
    double per = static_cast<double>(growth) / static_cast<double>(now - then);
    fmt::print("slab memory: {:+} KiB over the last {} connections, {:.1f} octets each\n",
               growth / 1024, now - then, per);
    /* what waits for TIME_WAIT or a grace period to end disturbs short runs */
    if (now - then >= 10000 && per > 64)
        total_.failures.push_back("slab memory grows with each connection");
}

void Run::report() {
    double passed = seconds_since(begin_);
    fmt::print("endings:\n");
    for (const auto &[name, count] : total_.endings)
        fmt::print("  {:8} {}\n", count, name);
    fmt::print("changes:\n");
    for (const auto &[name, count] : total_.changes)
        fmt::print("  {:8} {}\n", count, name);
    uint64_t fpdus = counter_sum("rx_fpdu") - fpdus_before_;
    uint64_t legal = total_.frames - total_.mutated;
    check_memory();
    fmt::print(
        "seed {}: {} frames, {} of them mutated; the device looked into {} FPDUs, so at least "
        "{} mutated ones\n",
        options_.seed, total_.frames, total_.mutated, fpdus, fpdus > legal ? fpdus - legal : 0);
    fmt::print("{} connections, {:.1f} s, {:.0f} mutated frames/s, {:.0f} connections/s\n",
               total_.connections, passed, static_cast<double>(total_.mutated) / passed,
               static_cast<double>(total_.connections) / passed);
}

int Run::go() {
    Resources before = Resources::now();
    rehearse();
    if (total_.failures.empty()) {
        fpdus_before_ = counter_sum("rx_fpdu");
        begin_ = shown_ = Clock::now();
        for (unsigned i = 0; i < options_.workers; i++)
            players_.push_back(std::make_unique<Player>(options_.addr, options_.seed));
        while (!enough()) {
            round(next_);
            samples_.emplace_back(total_.connections, Resources::now());
        }
        players_.clear();
        report();
    }
    want(kPolicies[0]);
    std::string left = left_over(before, 30);
    if (!left.empty())
        total_.failures.push_back("objects are left behind: " + left);
    for (const std::string &failure : total_.failures)
        fmt::print("failure: {}\n", failure);
    fmt::print("{} failures\n", total_.failures.size());
    return total_.failures.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app{"Plays mutated iWARP sessions against a softwarp device of this host"};
    app.add_option("--frames", options.frames, "mutated frames to play")->capture_default_str();
    app.add_option("--seconds", options.seconds, "play so long instead");
    app.add_option("--connections", options.connections, "play so many connections instead");
    app.add_option("--seed", options.seed, "what is played follows from it")->capture_default_str();
    app.add_option("--first", options.first, "number of the first connection")
        ->capture_default_str();
    app.add_option("--workers", options.workers, "connections at once")->capture_default_str();
    app.add_option("--addr", options.addr, "IPv4 address of the device's netdev")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    std::signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    try {
        return Run(options).go();
    } catch (const std::exception &error) {
        fmt::print("failure: {}\n", error.what());
        return 1;
    }
}
