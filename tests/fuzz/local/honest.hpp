// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An honest pair of programs, one on each side of the link, whose stream must
 * not stop and whose data must be right whatever the others do; and beside it a
 * control, a pair of the same shape over plain TCP.
 *
 * An emulated machine with ten busy processes does not serve anybody every two
 * seconds.  So a pause is measured in the control's time: each round of the
 * control adds to Honest::alive what it took, a quarter of a second at most.
 * While the whole machine stands still, so does that clock; while the pair alone
 * does, it goes on.
 */
#pragma once

#include <sys/types.h>

namespace softwarp::fuzz::local {

/* A process for each; they run until Board::stop. */
void honest_server();
void honest_client();
void control_server();
void control_client();

} // namespace softwarp::fuzz::local
