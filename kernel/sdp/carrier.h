/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The TCP connection beneath a link, as far as programs have a say in it: options
 * that they set on their own socket, and what it tells of itself.
 *
 * The sock is the device's from the start of MPA on, which closes it when it likes;
 * a link has a reference, so that it is there.  It is touched under its own lock,
 * inside of that of the program's socket, and not any more once it is closed: its
 * timers are TCP's then.  Links over devices that are not softwarp's have none, and
 * NULL is a carrier of which nothing is known.
 */
#ifndef SDP_CARRIER_H
#define SDP_CARRIER_H

#include <net/sock.h>

struct sdp_link;

/*
 * sdp_carrier_prepare - options of a carrier that is not connected yet, all of them
 * sdp_carrier_options - those that can change later: keepalive, user timeout, mark,
 *			 priority, TOS and traffic class, TTL and hop limit
 * @from: the program's, locked
 * Process context.
 */
void sdp_carrier_prepare(struct sock *to, const struct sock *from);
void sdp_carrier_options(struct sock *to, const struct sock *from);

/* Has the program changed those that are told of by nobody?  Without locks. */
bool sdp_carrier_stale(const struct sock *to, const struct sock *from);

/* SO_KEEPALIVE is about to change; the program's socket is locked. */
void sdp_carrier_keepalive(struct sock *to, bool on);

/*
 * Octets of ours that the peer's TCP has not acknowledged, with all headers.
 * Without locks.
 */
u32 sdp_carrier_unacked(const struct sock *carrier);

/* Octets of the program's that are not; its socket is locked. */
u64 sdp_carrier_outq(const struct sock *sk, struct sdp_link *link);

/* An accepted socket has the congestion control of its listener; @to is unlocked. */
void sdp_carrier_congestion(struct sock *to, const struct sock *from);

/*
 * getsockopt() of TCP_INFO, TCP_MAXSEG and TCP_CC_INFO; -ENOPROTOOPT: another one.
 * The program's socket is locked.
 */
int sdp_carrier_getsockopt(struct sock *sk, struct sdp_link *link, int name,
			   char __user *val, int __user *len);

#endif /* SDP_CARRIER_H */
