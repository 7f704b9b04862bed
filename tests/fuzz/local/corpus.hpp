// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sequences of operations as text:
 *
 *   # what it found
 *   repeat 500                 how often each thread goes through its lines
 *   scribble 2                 0, 1 or 2, as Style::scribble; 0 if absent
 *   side far                   in the peer's namespace
 *   0: create_qp               thread, operation, and if all is to follow from it:
 *   1: destroy_qp 0x1234       the operation's seed
 */
#pragma once

#include <string>
#include <vector>

#include "local/actor.hpp"

namespace softwarp::fuzz::local {

/* All sequences of a directory, by name; throws e2e::Failure on a line that is none. */
std::vector<Sequence> read_corpus(const std::string &directory);

/* What an actor's threads have done last, in the same form. */
std::string recent_steps(const ActorSlot &actor);

} // namespace softwarp::fuzz::local
