// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The conductor: starts hostile programs and those that have to live beside
 * them, and sees to it that each can be killed, that the honest go on, and that
 * in the end nothing is left.
 */
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lib/network.hpp"
#include "lib/resources.hpp"
#include "lib/system.hpp"
#include "local/actor.hpp"
#include "local/corpus.hpp"
#include "local/honest.hpp"
#include "local/others.hpp"

namespace softwarp::fuzz::local {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStuckSeconds = 10; // an actor without a step is killed
constexpr double kUnkillableSeconds = 20;
constexpr uint64_t kStallMs = 2000; // of the control's time
constexpr uint64_t kMissing = 256ULL << 20;
constexpr uint64_t kReplayLife = 1ULL << 30;

double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string text_of(const std::filesystem::path &path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/* Where each thread of a process is in the kernel. */
std::string stacks_of(pid_t pid) {
    std::string text;
    std::error_code error;
    auto tasks = std::filesystem::path("/proc") / std::to_string(pid) / "task";
    for (std::filesystem::directory_iterator i(tasks, error), end; i != end && !error;
         i.increment(error))
        text += fmt::format("thread {} {}:\n{}{}", i->path().filename().string(),
                            text_of(i->path() / "wchan"), text_of(i->path() / "stack"),
                            text_of(i->path() / "status").substr(0, 60));
    return text;
}

/* A process that the conductor has started. */
struct Child {
    pid_t pid = -1;
    bool killed = false;
    bool reported = false;
    Clock::time_point killed_at;
};

struct Watch {
    uint64_t seen = 0;
    Clock::time_point when;
};

class Conductor {
  public:
    Conductor(const Options &options, const std::string &corpus)
        : options_(options), corpus_(corpus) {}
    int go();

  private:
    template<typename Body>
    pid_t start(Body body, uid_t uid);
    void start_honest();
    void start_others();
    void start_actor(unsigned index, uint64_t life, const Sequence *sequence);
    bool reap(unsigned index);
    void reap_others();
    void watch_actor(unsigned index);
    void kill_child(Child &child);
    void watch_honest();
    void watch_log();
    void progress(bool last);
    uint64_t calls() const;
    void replay();
    void run();
    void stop_all();
    void check_left(const Resources &before);
    void report();
    void failure(const std::string &what);
    bool enough() const { return failures_.size() > 5; }
    void tick();

    const Options &options_;
    std::string corpus_;
    Clock::time_point begin_ = Clock::now();
    Clock::time_point shown_ = begin_;
    uint64_t shown_calls_ = 0;
    std::array<Child, kActors> actors_;
    std::array<std::array<Watch, kThreads>, kActors> watches_;
    std::vector<pid_t> honest_;
    pid_t strangers_ = -1;
    pid_t admin_ = -1;
    uint64_t strangers_life_ = 0;
    uint64_t lives_ = 0, crashed_ = 0, stuck_ = 0, reports_ = 0;
    bool stalled_ = false;
    e2e::Fd log_;
    std::vector<std::string> failures_;
};

void Conductor::failure(const std::string &what) {
    fmt::print("FAILED {}\n", what);
    failures_.push_back(what);
}

template<typename Body>
pid_t Conductor::start(Body body, uid_t uid) {
    std::fflush(nullptr);
    pid_t pid = fork();
    e2e::require(pid >= 0, "fork");
    if (pid != 0)
        return pid;
    if (uid != 0 && (setgroups(0, nullptr) != 0 || setresgid(uid, uid, uid) != 0 ||
                     setresuid(uid, uid, uid) != 0))
        _exit(9);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGPIPE, SIG_IGN);
    try {
        body();
    } catch (const std::exception &error) {
        fmt::print("a process of the fuzzer itself: {}\n", error.what());
        std::fflush(nullptr);
        _exit(8);
    }
    std::fflush(nullptr);
    _exit(0);
}

void Conductor::start_honest() {
    /* root, so as to enter the namespace; all else is what anybody may do */
    for (auto body : {control_server, control_client, honest_server, honest_client})
        honest_.push_back(start(body, 0));
    bool up = e2e::eventually(
        [] {
            return board->pair.failed || board->control.failed ||
                   (board->pair.rounds > 4 && board->control.rounds > 4);
        },
        e2e::Deadline(e2e::milliseconds(15000)));
    watch_honest();
    if (!up)
        failure("the honest pair does not get under way");
}

void Conductor::start_others() {
    if (options_.strangers)
        strangers_ = start([&] { strangers(options_, strangers_life_); }, 65520);
    if (options_.admin)
        admin_ = start([&] { administrator(options_); }, 0);
}

void Conductor::start_actor(unsigned index, uint64_t life, const Sequence *sequence) {
    ActorSlot &slot = board->actors[index];
    slot.life = life;
    for (ThreadSlot &thread : slot.threads)
        thread.tid = 0;
    Child &child = actors_[index];
    child = Child();
    child.pid = start([&] { Actor(options_, index, life, sequence).live(); }, 0);
    slot.pid = child.pid;
    for (Watch &watch : watches_[index])
        watch = {0, Clock::now()};
    lives_++;
}

/* True if the actor has ended. */
bool Conductor::reap(unsigned index) {
    Child &child = actors_[index];
    if (child.pid < 0)
        return true;
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid)
        return false;
    /* its children go with it */
    kill(-child.pid, SIGKILL);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM)
        crashed_++;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 8)
        failure(fmt::format("actor {} did not come up", index));
    board->actors[index].pid = 0;
    child.pid = -1;
    return true;
}

void Conductor::kill_child(Child &child) {
    kill(child.pid, SIGKILL);
    kill(-child.pid, SIGKILL);
    if (!child.killed) {
        child.killed = true;
        child.killed_at = Clock::now();
    }
}

void Conductor::watch_actor(unsigned index) {
    Child &child = actors_[index];
    if (child.pid < 0)
        return;
    if (child.killed) {
        if (!child.reported && since(child.killed_at) > kUnkillableSeconds * options_.slow) {
            child.reported = true;
            /* not every kernel shows stacks in /proc */
            std::ofstream("/proc/sysrq-trigger") << 'w' << std::flush;
            failure(fmt::format("actor {} can't be killed:\n{}", index, stacks_of(child.pid)));
        }
        return;
    }
    for (unsigned i = 0; i < kThreads; i++) {
        ThreadSlot &thread = board->actors[index].threads[i];
        Watch &watch = watches_[index][i];
        uint64_t now = thread.calls + thread.steps;
        if (now != watch.seen || thread.tid == 0) {
            watch = {now, Clock::now()};
        } else if (since(watch.when) > kStuckSeconds * options_.slow) {
            const Step &step = thread.log[(thread.steps - 1) % kLog];
            fmt::print("actor {} life {} is stuck in {}:\n{}", index,
                       board->actors[index].life.load(),
                       operations()[step.op % operations().size()].name, stacks_of(child.pid));
            stuck_++;
            kill_child(child);
            return;
        }
    }
}

void Conductor::reap_others() {
    int status = 0;
    if (strangers_ > 0 && waitpid(strangers_, &status, WNOHANG) == strangers_) {
        strangers_life_++;
        strangers_ = start([&] { strangers(options_, strangers_life_); }, 65520);
    }
    if (admin_ > 0 && waitpid(admin_, &status, WNOHANG) == admin_) {
        admin_ = -1;
        failure("the administrator died");
    }
}

void Conductor::watch_honest() {
    for (Honest *honest : {&board->pair, &board->control})
        if (honest->failed) {
            failure(honest->why.data());
            honest->failed = false;
            stalled_ = true; /* what comes of it is no news */
        }
    uint64_t quiet = board->control.alive - board->pair.last;
    if (!stalled_ && board->pair.rounds > 0 &&
        std::max(quiet, board->pair.longest.load()) > kStallMs) {
        stalled_ = true;
        failure(fmt::format("the honest pair stood still for {} ms while the control went on",
                            std::max(quiet, board->pair.longest.load())));
        for (pid_t pid : honest_)
            fmt::print("{}", stacks_of(pid));
        fmt::print("{}\n", e2e::shell("rdma resource show qp -dd; ss -tmi").output.substr(0, 8000));
    }
}

/* With a report goes what led to it; guest.py counts the reports themselves. */
void Conductor::watch_log() {
    static const std::regex pattern(
        "BUG: |WARNING: |KASAN: |UBSAN: |INFO: (task|possible|trying|rcu)|"
        "Oops|refcount_t: |list_(add|del) corruption");
    std::array<char, 8192> line;
    while (log_.get() >= 0) {
        ssize_t count = read(log_.get(), line.data(), line.size() - 1);
        if (count <= 0) {
            if (count < 0 && errno == EPIPE)
                continue; /* lines were lost */
            break;
        }
        std::string text(line.data(), static_cast<size_t>(count));
        if (!std::regex_search(text, pattern))
            continue;
        reports_++;
        fmt::print("report of the kernel {:.0f} s after the start: {}", since(begin_),
                   text.substr(text.find(';') + 1));
        const char *out = std::getenv("SOFTWARP_OUT");
        if (out == nullptr || reports_ > 4)
            continue;
        for (unsigned i = 0; i < options_.actors; i++)
            std::ofstream(fmt::format("{}/found-{}-actor-{}.txt", out, reports_, i))
                << "# " << text << recent_steps(board->actors[i]);
    }
}

uint64_t Conductor::calls() const {
    uint64_t sum = 0;
    for (const ActorSlot &actor : board->actors)
        for (const ThreadSlot &thread : actor.threads)
            sum += thread.calls;
    return sum;
}

void Conductor::progress(bool last) {
    double passed = since(shown_);
    if (passed < 10 && !last)
        return;
    uint64_t now = calls();
    fmt::print(
        "{:.0f} s: {} calls, {:.0f}/s, {} lives, {} crashed, {} stuck; {} hostile frames; root {}; "
        "pair {} rounds, longest pause {} ms, {} of the control's\n",
        since(begin_), now, static_cast<double>(now - shown_calls_) / passed, lives_, crashed_,
        stuck_, board->frames.load(), board->admin.load(), board->pair.rounds.load(),
        board->pair.longest_ms.load(), board->pair.longest.load());
    shown_ = Clock::now();
    shown_calls_ = now;
}

void Conductor::tick() {
    usleep(50000);
    for (unsigned i = 0; i < kActors; i++)
        watch_actor(i);
    reap_others();
    watch_honest();
    watch_log();
    progress(false);
}

/* What was found once is played first, by two processes at the same time. */
void Conductor::replay() {
    if (corpus_.empty())
        return;
    std::vector<Sequence> all = read_corpus(corpus_);
    uint64_t life = kReplayLife;
    for (const Sequence &sequence : all) {
        Clock::time_point begin = Clock::now();
        for (unsigned i = 0; i < 2; i++)
            start_actor(i, life++, &sequence);
        bool over = false;
        while (!over) {
            tick();
            over = true;
            for (unsigned i = 0; i < 2; i++) {
                over = reap(i) && over;
                if (actors_[i].pid > 0 && since(begin) > 20 * options_.slow)
                    kill_child(actors_[i]);
            }
            if (enough())
                return;
        }
    }
    fmt::print("{} sequences of the corpus played in {:.1f} s\n", all.size(), since(begin_));
}

void Conductor::run() {
    Random random(options_.seed, 0xc0d0);
    std::array<uint64_t, kActors> life{};
    while (calls() < options_.calls && !enough()) {
        for (unsigned i = 0; i < options_.actors; i++)
            if (reap(i) && !enough())
                start_actor(i, life[i]++, nullptr);
        tick();
        /* what root kills, it kills at any moment */
        if (random.chance(2)) {
            Child &child = actors_[random.below(options_.actors)];
            if (child.pid > 0)
                kill_child(child);
        }
    }
}

void Conductor::stop_all() {
    /* the honest stay until the others are gone */
    Clock::time_point begin = Clock::now();
    bool over = false;
    while (!over && since(begin) < 3 * kUnkillableSeconds * options_.slow) {
        over = true;
        for (unsigned i = 0; i < kActors; i++)
            if (!reap(i)) {
                kill_child(actors_[i]);
                over = false;
            }
        tick();
    }
    if (admin_ > 0) {
        kill(admin_, SIGKILL);
        waitpid(admin_, nullptr, 0);
        admin_ = -1;
    }
    watch_honest();
    board->stop = true;
    for (pid_t pid : honest_) {
        int status = 0;
        bool ended = e2e::eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; },
                                     e2e::Deadline(e2e::milliseconds(20000)));
        if (!ended) {
            failure("an honest program does not end:\n" + stacks_of(pid));
            kill(pid, SIGKILL);
            continue;
        }
        if (status != 0)
            failure(fmt::format("an honest program died, status {:#x}", status));
    }
    if (strangers_ > 0) {
        kill(strangers_, SIGKILL);
        waitpid(strangers_, nullptr, 0);
        strangers_ = -1;
    }
    watch_log();
}

void Conductor::check_left(const Resources &before) {
    remove_second_link();
    std::string left = left_over(before, 40);
    if (!left.empty())
        failure("objects are left behind: " + left + "\n" +
                e2e::shell("rdma resource show -dd; rdma resource show qp -dd; "
                           "rdma resource show cm_id -dd; ss -tnap")
                    .output);
    Resources after;
    bool back = e2e::eventually(
        [&] {
            after = Resources::now();
            return after.available + kMissing > before.available;
        },
        e2e::Deadline(e2e::milliseconds(10000)));
    fmt::print("memory before: {}\nmemory after: {}\n", before.text(), after.text());
    if (!back)
        failure("memory has not come back");
}

void Conductor::report() {
    fmt::print("{:24} {:>10} {:>10}  {}\n", "operation", "tried", "done", "last error");
    for (size_t i = 0; i < operations().size(); i++)
        fmt::print("{:24} {:10} {:10}  {}\n", operations()[i].name, board->ops[i].tried.load(),
                   board->ops[i].done.load(),
                   board->ops[i].error == 0 ? "" : e2e::errno_name(board->ops[i].error));
    fmt::print("{} sessions of hostile peers\n", board->sessions.load());
    double passed = since(begin_);
    fmt::print(
        "seed {}: {} calls in {:.1f} s, {:.0f}/s; {} lives, {} crashed, {} stuck; {} hostile "
        "frames, {} deeds of root\n",
        options_.seed, calls(), passed, static_cast<double>(calls()) / passed, lives_, crashed_,
        stuck_, board->frames.load(), board->admin.load());
    fmt::print(
        "honest pair: {} rounds, longest {} ms, {} ms of the control's time; control: {} rounds, "
        "longest {} ms\n",
        board->pair.rounds.load(), board->pair.longest_ms.load(), board->pair.longest.load(),
        board->control.rounds.load(), board->control.longest_ms.load());
    fmt::print("{} failures\n", failures_.size());
}

int Conductor::go() {
    Resources before = Resources::now();
    /*
     * TCP sends what a closed socket still has for minutes to an address that has
     * gone, and root takes addresses away here.
     */
    std::ofstream orphans("/proc/sys/net/ipv4/tcp_orphan_retries");
    if (!(orphans << 2 << std::flush))
        e2e::fail("cannot write tcp_orphan_retries");
    make_second_link();
    log_ = e2e::Fd(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (log_.get() >= 0)
        lseek(log_.get(), 0, SEEK_END);
    start_honest();
    if (failures_.empty()) {
        start_others();
        replay();
        run();
    }
    stop_all();
    check_left(before);
    report();
    return failures_.empty() ? 0 : 1;
}

} // namespace

} // namespace softwarp::fuzz::local

int main(int argc, char **argv) {
    using namespace softwarp::fuzz::local;
    Options options;
    std::string corpus;
    options.slow = softwarp::e2e::config().scale;
    bool alone = false;
    CLI::App app{"Unprivileged processes that abuse the RDMA devices of this host"};
    app.add_option("--calls", options.calls, "calls to make")->capture_default_str();
    app.add_option("--seed", options.seed, "what each actor does follows from it")
        ->capture_default_str();
    app.add_option("--actors", options.actors, "processes at once")
        ->capture_default_str()
        ->check(CLI::Range(1U, kActors));
    app.add_option("--corpus", corpus, "a directory of sequences to play first");
    app.add_flag("--alone", alone, "neither hostile peers nor an administrator");
    CLI11_PARSE(app, argc, argv);
    options.strangers = options.admin = !alone;
    std::signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    void *page =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 2;
    board = new (page) Board();
    try {
        /*
         * Before an id goes, iw_cm waits for its connect to end, beyond SIGKILL: to a listener
         * that does not answer that is the whole time which a Reply has.
         */
        const softwarp::e2e::ParameterOverride reply("reply_ms", "5000");
        return Conductor(options, corpus).go();
    } catch (const std::exception &error) {
        fmt::print("failure: {}\n", error.what());
        return 1;
    }
}
