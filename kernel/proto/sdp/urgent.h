/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An octet out of band, at the end that receives it; draft-pinkerton-iwarp-sdp-01
 * section 9.5.3.  There is one at a time, the newest, as with TCP:
 *
 *          OOB_PEND          OOB_PRES            program takes it
 *   NONE -----------> TOLD -----------> THERE -----------------> READ
 *     ^                 |                 |   program reads on     |
 *     `-----------------'-----------------'------------------------'
 *         none came
 *
 * What a peer may do with its two flags costs nothing here: another OOB_PEND
 * before the octet says nothing new, OOB_PRES that was not told of tells, and
 * what does not come within the octets that the draft allows is forgotten.
 *
 * Positions are in octets of the stream.
 */
#ifndef SDP_PROTO_URGENT_H
#define SDP_PROTO_URGENT_H

#include "../base.h"

/* Octets behind OOB_PEND, with the one that it tells of */
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
	__u64 told;		/* TOLD: the one of the next octet at that time */
	__u64 gone;		/* octets before this one are not to be read */
};

/*
 * sdp_urgent_pend - a message with OOB_PEND; before sdp_urgent_take()
 * @received: octets that came before it
 * @read: octets that the program has read
 * Returns whether the program is to be signalled.
 */
bool sdp_urgent_pend(struct sdp_urgent *u, __u64 received, __u64 read);

/*
 * sdp_urgent_take - octets have come
 * @received: with these
 * @last: the last one of them if it is out of band, else NULL
 * Returns whether the program is to be signalled.
 */
bool sdp_urgent_take(struct sdp_urgent *u, __u64 received, const __u8 *last,
		     __u64 read);

/* The program has read so many. */
void sdp_urgent_read(struct sdp_urgent *u, __u64 read);

/*
 * Octets before the mark for a program that is at @read: 0 at the mark itself,
 * ~0 if there is none.
 */
__u64 sdp_urgent_left(const struct sdp_urgent *u, __u64 read);

#endif /* SDP_PROTO_URGENT_H */
