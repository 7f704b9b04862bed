/* SPDX-License-Identifier: GPL-2.0 */
/*
 * connect() of a socket with the policy auto, until SDP or TCP is chosen:
 *
 *            the peer's port mapper accepts
 *   ASKING --------------------------------> LINKED ----> connected by SDP
 *     |  ^                                     |
 *     |  `-------------------------------------+ ended before it was up
 *     |    if a cached answer was used         |
 *     `----------------> TCP <-----------------'
 *       denies, does not answer
 *
 * connect() itself takes the first step, a work item with the socket locked
 * takes the others.  If the answer is cached or there is no RDMA device on the
 * way, there is no waiting.
 */
#ifndef SDP_AUTO_H
#define SDP_AUTO_H

#include <linux/kref.h>
#include <linux/workqueue.h>

#include "ends.h"
#include "proto/sdp/query.h"

struct sdp_link;
struct sock;
struct socket;

enum sdp_attempt_state {
	SDP_ATTEMPT_ASKING,
	SDP_ATTEMPT_LINKED,
	SDP_ATTEMPT_OVER,		/* TCP has it, or it has failed */
};

struct sdp_attempt {
	struct kref ref;
	struct delayed_work work;
	struct sock *sk;		/* with a reference */
	/* Under the socket's lock -------------------------------------------- */
	u8 state;			/* enum sdp_attempt_state */
	union sdp_end to;		/* as given by the program */
	int to_len;
	struct socket *udp;		/* to the peer's port mapper */
	struct socket *carrier;		/* bound to the port named in @asked */
	struct sdp_pm_msg asked;	/* the request; also the cache's key */
	struct sdp_query query;
	/* address of a cached answer that is tried first; port 0: none */
	union sdp_end remembered;
	u16 port;			/* our local port, if one was visible */
	bool again;			/* @remembered has failed */
	bool failed;			/* the link has failed; any context */
	int error;			/* its errno */
	struct rcu_head rcu;
};

/*
 * sdp_attempt_begin - connect a locked socket by SDP or TCP
 * 0: in progress, and sk->sk_socket may be marked so; else a negative errno.
 */
int sdp_attempt_begin(struct sock *sk, const union sdp_end *to, int len);

/* Cancel: it has no effect from here on.  The socket is locked. */
void sdp_attempt_cancel(struct sdp_attempt *a);
void sdp_attempt_put(struct sdp_attempt *a);

/* The local address while ASKING; false: not known.  The socket is locked. */
bool sdp_attempt_name(const struct sdp_attempt *a, union sdp_end *name);

/* Its link has ended before it was up.  Any context. */
void sdp_attempt_failed(struct sdp_attempt *a, int error);

#endif /* SDP_AUTO_H */
