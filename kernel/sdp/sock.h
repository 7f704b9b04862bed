/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The program's socket.  It is a TCP socket all along, with tables of its own in
 * front: as long as it is not connected by SDP, calls go to TCP on the same sock.
 * Once it is, its TCP part rests in TCP_CLOSE and the link does the work.
 *
 *                 connect()                          listen()
 *   IDLE ---------------------> LINKED       IDLE ------------> LISTENING
 *     ^  failed, and was told     |                  close(), shutdown()
 *     `---------------------------'
 *
 * With the policy auto connect() may take some time to know by what it is, see
 * auto.h, and then the socket is TCP's: its own table of struct proto is back, and
 * all calls go to it.  A listening one is TCP's, too, and has a listener beside.
 * Those that TCP has accepted for it have no struct sdp_sock at all.
 *
 * Calls hold the socket's lock; the link tells of its doings by the functions
 * below, under link->lock, which is taken inside of that.
 */
#ifndef SDP_SOCK_H
#define SDP_SOCK_H

#include <net/sock.h>

#include "ends.h"

struct sdp_attempt;
struct sdp_by_tcp;
struct sdp_link;
struct sdp_listener;

struct sdp_sock {
	struct sdp_link __rcu *link;
	struct sdp_listener __rcu *listener;
	u8 layout;			/* enum sdp_layout, of a link to come */
	/* Under the socket's lock, or read without by READ_ONCE() */
	struct sdp_attempt *attempt;	/* with a reference */
	bool undecided;			/* connect() is, by what; see auto.h */
	bool tcp;			/* the socket is TCP's */
	u8 policy;			/* enum sdp_info_policy */
	u8 reason;			/* enum sdp_info_reason, of @tcp */
	struct sdp_by_tcp *by_tcp;	/* what is seen of that */
	struct rcu_head rcu;
};

static inline struct sdp_sock *sdp_sk(const struct sock *sk)
{
	return (struct sdp_sock *)((uintptr_t)rcu_access_pointer(__sk_user_data(sk)) &
				   SK_USER_DATA_PTRMASK);
}

/* What is ours of the two tables of a socket; family.c has the rest */
extern const struct proto sdp_sock_prot;
extern const struct proto_ops sdp_sock_ops;

/* What the link tells; under link->lock */
void sdp_sock_up(struct sock *sk, struct sdp_link *link);
void sdp_sock_eof(struct sock *sk);
/* An octet out of band is on its way, or there; the program has not closed it. */
void sdp_sock_urgent(struct sock *sk);
/* The end: what is to be seen, and the waking, with link->phase set in between */
void sdp_sock_over(struct sock *sk, struct sdp_link *link);
void sdp_sock_wake_over(struct sock *sk, struct sdp_link *link);
/* Those who sleep in send(); under link->lock */
void sdp_sock_wake_writers(struct sock *sk);
/* Messages have left; without link->lock, in softirq. */
void sdp_sock_sent(struct sock *sk);
/* Nothing of the device is left; by the link's work item, without locks. */
void sdp_sock_unlinked(struct sdp_link *link);

/*
 * For connecting, with the socket locked: options that a socket of the kernel's has
 * from it; such a socket for TCP, bound to the same port, or an ERR_PTR; and
 * connecting by either.  With SDP @carrier is gone whatever becomes of it.
 */
void sdp_sock_inherit(struct sock *to, const struct sock *from);
struct socket *sdp_sock_carrier(struct sock *sk);
int sdp_sock_by_sdp(struct sock *sk, struct socket *carrier,
		    const union sdp_end *to, int len, struct sdp_attempt *a);
int sdp_sock_by_tcp(struct sock *sk, const union sdp_end *to, int len, u8 reason);
/* A port for a socket that has none: 0 or an errno; one that another socket has */
int sdp_sock_any_port(struct sock *sk);
void sdp_sock_take_port(struct sock *sk, u16 port);
/* What is attempted; the last one is over, with NULL */
void sdp_sock_attempt(struct sock *sk, struct sdp_attempt *a);
/* Its link is of no use any more; the port of it */
u16 sdp_sock_unlink(struct sock *sk);
/* By whatever, or not at all with a negative errno: who waits is told. */
void sdp_sock_decided(struct sock *sk, int error);

/* The listener of a socket, under RCU, or NULL */
struct sdp_listener *sdp_sock_listener(struct sock *sk);

#endif /* SDP_SOCK_H */
