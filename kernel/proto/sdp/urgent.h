/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An octet out of band, at the receiver; draft-pinkerton-iwarp-sdp-01 section
 * 9.5.3.  There is one at a time, the newest, as with TCP:
 *
 *          OOB_PEND          OOB_PRES            program takes it
 *   NONE -----------> TOLD -----------> THERE -----------------> READ
 *     ^                 |                 |   program reads on     |
 *     `-----------------'-----------------'------------------------'
 *         none came
 *
 * All uses of the two flags are accepted: a second OOB_PEND before the octet
 * does not signal again, OOB_PRES without OOB_PEND signals, and an octet that
 * does not come within the distance that the draft allows is forgotten.
 *
 * Positions are in octets of the stream.
 */
#ifndef SDP_PROTO_URGENT_H
#define SDP_PROTO_URGENT_H

#include "../base.h"

/* The octet comes at most so many octets after OOB_PEND, itself included. */
#define SDP_OOB_AHEAD	65535

enum sdp_urgent_state {
	SDP_URGENT_NONE,
	SDP_URGENT_TOLD,
	SDP_URGENT_THERE,
	SDP_URGENT_READ,
};

struct sdp_urgent {
	__u8 state;		/* enum sdp_urgent_state */
	__u8 octet;		/* THERE */
	__u64 mark;		/* THERE, READ: the position of the octet */
	__u64 told;		/* TOLD: position of the stream at OOB_PEND */
	__u64 gone;		/* the program must not read before this */
};

/*
 * sdp_urgent_pend - a message with OOB_PEND has arrived
 * @received: octets received before it
 * @read: octets that the program has read
 * Call it before sdp_urgent_take().  Returns whether to signal the program.
 */
bool sdp_urgent_pend(struct sdp_urgent *u, __u64 received, __u64 read);

/*
 * sdp_urgent_take - octets have arrived
 * @received: octets received so far, including these
 * @last: the last one of them if it is out of band, else NULL
 * Returns whether to signal the program.
 */
bool sdp_urgent_take(struct sdp_urgent *u, __u64 received, const __u8 *last,
		     __u64 read);

/* The program has read @read octets of the stream so far. */
void sdp_urgent_read(struct sdp_urgent *u, __u64 read);

/* Octets from position @read to the mark: 0 at the mark itself, ~0 if none. */
__u64 sdp_urgent_left(const struct sdp_urgent *u, __u64 read);

#endif /* SDP_PROTO_URGENT_H */
