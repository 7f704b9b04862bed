/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The program's socket.  It is always a TCP socket, with our struct proto and
 * struct proto_ops in front: until it is connected by SDP, calls go to TCP on
 * the same sock.  Afterwards its TCP part stays in TCP_CLOSE and the link does
 * the work.
 *
 *                 connect()                          listen()
 *   IDLE ---------------------> LINKED       IDLE ------------> LISTENING
 *     ^  failed and reported      |                  close(), shutdown()
 *     `---------------------------'
 *
 * With the policy auto, connect() may take time to choose SDP or TCP, see
 * auto.h.  If it chooses TCP, the socket becomes TCP's: TCP's struct proto is
 * restored, and its calls are TCP's.  A listening socket is TCP's, too, and has
 * a listener besides.  Sockets that TCP has accepted for it have no struct
 * sdp_sock at all, nor have those that TCP has for good because of TCP_ULP.
 *
 * The calls hold the socket's lock.  The link reports events by the functions
 * below, under link->lock, which nests inside the socket's lock.
 */
#ifndef SDP_SOCK_H
#define SDP_SOCK_H

#include <net/sock.h>

#include "ends.h"
#include "netns.h"

struct sdp_attempt;
struct sdp_by_tcp;
struct sdp_link;
struct sdp_listener;

struct sdp_sock {
	struct sdp_seen seen;		/* its line in /proc without another one */
	struct sock *sk;		/* without a reference */
	struct sdp_link __rcu *link;
	struct sdp_listener __rcu *listener;
	u8 layout;			/* enum sdp_layout, for the next link */
	u8 initiator;			/* enum sdp_info_initiator, the same */
	/* Written under the socket's lock; read without by READ_ONCE() */
	struct sdp_attempt *attempt;	/* with a reference */
	bool undecided;			/* connect() chooses, see auto.h */
	bool tcp;			/* the socket is TCP's */
	bool unaware;			/* made as IPPROTO_SDP_AUTO */
	u8 policy;			/* enum sdp_info_policy */
	u8 reason;			/* enum sdp_info_reason, of @tcp */
	struct sdp_by_tcp *by_tcp;	/* its line in /proc, if @tcp */
	struct rcu_head rcu;
};

/*
 * Sockets that TCP has accepted for an auto listener have our calls, but no struct
 * sdp_sock.  Others may keep something of theirs there: a sockmap its psock, which
 * has a flag more, and KCM, which has none.
 */
static inline struct sdp_sock *sdp_sk(const struct sock *sk)
{
	uintptr_t data = (uintptr_t)rcu_access_pointer(__sk_user_data(sk));

	if ((data & ~SK_USER_DATA_PTRMASK) != SK_USER_DATA_NOCOPY)
		return NULL;
	return (struct sdp_sock *)(data & SK_USER_DATA_PTRMASK);
}

/*
 * sdp_sock_trylock - lock a program's socket if no call holds its lock
 * For work items, which must not wait: a call may be in a page fault that its
 * program never ends.  Unlock by release_sock().  Process context.
 */
bool sdp_sock_trylock(struct sock *sk);

/* Our entries of the two tables of a socket; family.c has the rest */
extern const struct proto sdp_sock_prot;
extern const struct proto_ops sdp_sock_ops;

/* The link's events; under link->lock */
void sdp_sock_up(struct sock *sk, struct sdp_link *link);
void sdp_sock_eof(struct sock *sk);
/* An octet out of band is announced or there; the program has not closed it. */
void sdp_sock_urgent(struct sock *sk);
/* The end: set the state, then wake; the link sets link->phase in between. */
void sdp_sock_over(struct sock *sk, struct sdp_link *link);
void sdp_sock_wake_over(struct sock *sk, struct sdp_link *link);
/*
 * Under link->lock: may processes of this socket call sdp_link_receive() when they
 * are woken, and wake them: those that sleep until they can read or write.
 */
bool sdp_sock_may_receive(const struct sock *sk);
void sdp_sock_wake_to_receive(struct sock *sk);
/* Wake processes that sleep in send(); under link->lock */
void sdp_sock_wake_writers(struct sock *sk);
/* Sends have completed; softirqs off, without link->lock. */
void sdp_sock_sent(struct sock *sk);
/* The device is done with the link; by its work item, without locks. */
void sdp_sock_unlinked(struct sdp_link *link);

/*
 * For connecting, with the socket locked:
 * sdp_sock_inherit - copy options to a socket of the kernel's
 * sdp_sock_carrier - a kernel socket for TCP, bound to the same port, or an
 *		      ERR_PTR
 * sdp_sock_hold_port - a kernel socket that only keeps the address and port of
 *			@from; it has no reference to the namespace.  NULL: failed
 * sdp_sock_by_sdp - connect by SDP; consumes @carrier, also when it fails
 * sdp_sock_by_tcp - connect by TCP
 */
void sdp_sock_inherit(struct sock *to, const struct sock *from);
struct socket *sdp_sock_carrier(struct sock *sk);
struct socket *sdp_sock_hold_port(const struct sock *from);
int sdp_sock_by_sdp(struct sock *sk, struct socket *carrier,
		    const union sdp_end *to, int len, struct sdp_attempt *a);
int sdp_sock_by_tcp(struct sock *sk, const union sdp_end *to, int len, u8 reason);
/* Bind a socket without a port: to any port, 0 or an errno; to a shared port */
int sdp_sock_any_port(struct sock *sk);
void sdp_sock_take_port(struct sock *sk, u16 port);
/* Set the attempt, or NULL; the one before is cancelled. */
void sdp_sock_attempt(struct sock *sk, struct sdp_attempt *a);
/* Reset and detach its link; returns the link's local port, or 0. */
u16 sdp_sock_unlink(struct sock *sk);
/* connect() has chosen, or failed with a negative errno: wake the waiters. */
void sdp_sock_decided(struct sock *sk, int error);

/* The listener of a socket, under RCU, or NULL */
struct sdp_listener *sdp_sock_listener(struct sock *sk);

#endif /* SDP_SOCK_H */
