/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The TCP connection underneath a link, as far as programs can see and set it:
 * options that they set on their own socket, and TCP_INFO.
 *
 * From the start of MPA on the sock belongs to the device, which closes it at
 * any time; the link's reference keeps it allocated.  It is accessed under its
 * own lock, which nests inside that of the program's socket, and no longer once
 * it is closed: then its timers are TCP's.  Links over devices that are not
 * softwarp's have no carrier: the functions for connected links accept NULL for
 * it.
 */
#ifndef SDP_CARRIER_H
#define SDP_CARRIER_H

#include <net/sock.h>
#include <net/tcp.h>

struct sdp_link;

/*
 * sdp_carrier_prepare - copy all options to a carrier that is not connected yet
 * sdp_carrier_follow - the same but congestion control, for a carrier that a move
 *			needs; @from is not locked
 * sdp_carrier_options - copy those that can change later: keepalive, user
 *			 timeout, mark, priority, TOS and traffic class, TTL and
 *			 hop limit
 * @from: the program's, locked
 * Process context.
 */
void sdp_carrier_prepare(struct sock *to, const struct sock *from);
void sdp_carrier_follow(struct sock *to, const struct sock *from);
void sdp_carrier_options(struct sock *to, const struct sock *from);

/* Whether options have changed without a call to us.  Without locks. */
bool sdp_carrier_stale(const struct sock *to, const struct sock *from);

/* Apply SO_KEEPALIVE; the program's socket is locked, and changes next. */
void sdp_carrier_keepalive(struct sock *to, bool on);

/*
 * Octets, with all headers, that the peer's TCP has not acknowledged.  Without
 * the carrier's lock; the caller keeps the carrier from being replaced.
 */
u32 sdp_carrier_unacked(const struct sock *carrier);

/*
 * The shortest round trip of the last minutes in us, or 0: not known.  Without
 * locks; NULL and a carrier that is replaced are as above.
 */
u32 sdp_carrier_rtt(const struct sock *carrier);

/* Octets of the program's, queued or not acknowledged; @sk is locked. */
u64 sdp_carrier_outq(const struct sock *sk, struct sdp_link *link);

/*
 * A move: the congestion control that the program has chosen for a carrier, or "",
 * taken while the carrier lives; and its choice for the next one.  Both unlocked.
 */
void sdp_carrier_choice(struct sock *from, char name[TCP_CA_NAME_MAX]);
void sdp_carrier_choose(struct sock *to, char name[TCP_CA_NAME_MAX]);

/* Inherit the listener's congestion control; @to is unlocked. */
void sdp_carrier_congestion(struct sock *to, const struct sock *from);

/*
 * getsockopt() of TCP_INFO, TCP_MAXSEG and TCP_CC_INFO; -ENOPROTOOPT: not
 * handled here.  The program's socket is locked.
 */
int sdp_carrier_getsockopt(struct sock *sk, struct sdp_link *link, int name,
			   char __user *val, int __user *len);

#endif /* SDP_CARRIER_H */
