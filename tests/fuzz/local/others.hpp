// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who else is about while actors act: hostile peers that speak TCP themselves,
 * and an administrator.
 */
#pragma once

#include "local/actor.hpp"

namespace softwarp::fuzz::local {

/* Peers that dial listeners of actors, and listen for them; until Board::stop. */
void strangers(const Options &options, uint64_t life);

/* Devices, netdevs, policy, lists; until Board::stop. */
void administrator(const Options &options);

/* The second link, between addresses 10.78.0.1 and 10.78.0.2, whose devices come and go. */
void make_second_link();
void remove_second_link();

} // namespace softwarp::fuzz::local
