// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * From a legal session to one that is not.  Everything follows from the random
 * numbers given; the only thing that differs between two runs with the same seed
 * are the device's STags and addresses, for which the peer aims.
 */
#pragma once

#include <map>
#include <string>

#include "lib/random.hpp"
#include "mutation/session.hpp"

namespace softwarp::fuzz {

/* How often each kind of change was made. */
using Changes = std::map<std::string, uint64_t>;

/*
 * Changes messages but keeps what they need to be taken: sizes, places,
 * segments, contents, reserved fields, order, repetition.
 */
void vary(Random &random, Session &session, Changes &changes);

/* Spoils one to three frames, in every way. */
void spoil(Random &random, std::vector<Frame> &frames, const Target &target, Changes &changes);

/* Spoils the octets of an MPA frame, or what belongs to it. */
void spoil_startup(Random &random, const wire::MpaFrame &legal, Bytes &octets, Changes &changes);

} // namespace softwarp::fuzz
