// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "local/corpus.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "lib/system.hpp"

namespace softwarp::fuzz::local {

namespace {

void read_line(const std::string &line, Sequence &sequence) {
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first.empty() || first.front() == '#')
        return;
    if (first == "repeat") {
        sequence.repeat = static_cast<unsigned>(std::stoul(second));
    } else if (first == "scribble") {
        sequence.scribble = static_cast<unsigned>(std::stoul(second));
    } else if (first == "side") {
        sequence.far_side = second == "far";
    } else {
        auto thread = static_cast<size_t>(first.front() - '0');
        int op = operation(second);
        if (first.size() != 2 || first.back() != ':' || thread >= kThreads || op < 0)
            e2e::fail(sequence.name + ": " + line);
        Sequence::Line step{static_cast<unsigned>(op), {}};
        if (!third.empty())
            step.seed = std::stoull(third, nullptr, 0);
        sequence.threads[thread].push_back(step);
    }
}

} // namespace

std::vector<Sequence> read_corpus(const std::string &directory) {
    std::vector<Sequence> all;
    for (const auto &entry : std::filesystem::directory_iterator(directory)) {
        Sequence sequence;
        sequence.name = entry.path().stem().string();
        std::ifstream file(entry.path());
        std::string line;
        while (std::getline(file, line))
            read_line(line, sequence);
        if (sequence.threads[0].empty())
            e2e::fail(sequence.name + " has no step of thread 0");
        all.push_back(sequence);
    }
    std::sort(all.begin(), all.end(),
              [](const Sequence &a, const Sequence &b) { return a.name < b.name; });
    return all;
}

std::string recent_steps(const ActorSlot &actor) {
    std::string text = fmt::format("# life {}\n", actor.life.load());
    for (unsigned thread = 0; thread < kThreads; thread++) {
        const ThreadSlot &slot = actor.threads[thread];
        uint64_t end = slot.steps;
        for (uint64_t at = end > kLog ? end - kLog : 0; at < end; at++) {
            const Step &step = slot.log[at % kLog];
            uint32_t op = step.op;
            if (op < operations().size())
                text +=
                    fmt::format("{}: {} {:#x}\n", thread, operations()[op].name, step.seed.load());
        }
    }
    return text;
}

} // namespace softwarp::fuzz::local
