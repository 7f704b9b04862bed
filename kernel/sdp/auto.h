/* SPDX-License-Identifier: GPL-2.0 */
/*
 * connect() of a socket with the policy auto, until it is known by what:
 *
 *            the peer's port mapper accepts
 *   ASKING --------------------------------> LINKED ----> connected by SDP
 *     |  ^                                     |
 *     |  `-------------------------------------+ ended before it was up
 *     |    an answer of before was taken       |
 *     `----------------> TCP <-----------------'
 *       denies, does not answer
 *
 * The first step is taken by connect() itself, and the others by a work item with
 * the socket locked.  What is known already, from the cache or because there is no
 * RDMA device on the way, takes no time.
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
	SDP_ATTEMPT_OVER,		/* TCP has it, or nobody */
};

struct sdp_attempt {
	struct kref ref;
	struct delayed_work work;
	struct sock *sk;		/* with a reference */
	/* Under the socket's lock -------------------------------------------- */
	u8 state;			/* enum sdp_attempt_state */
	union sdp_end to;		/* as the program has named it */
	int to_len;
	struct socket *udp;		/* to the peer's port mapper */
	struct socket *carrier;		/* bound to the port that was said there */
	struct sdp_pm_msg asked;	/* what is looked up in the cache */
	struct sdp_query query;
	/* where to, by an answer of before that is tried first; no port: none */
	union sdp_end remembered;
	u16 port;			/* of ours, if there was one to be told of */
	bool again;			/* that was in vain */
	bool failed;			/* the link has, any context */
	int error;			/* of it */
};

/*
 * sdp_attempt_begin - connect a locked socket by what there is
 * 0: it is on its way, and sk->sk_socket may be told so; else an errno.
 */
int sdp_attempt_begin(struct sock *sk, const union sdp_end *to, int len);

/* It is to have no effect any more.  The socket is locked. */
void sdp_attempt_cancel(struct sdp_attempt *a);
void sdp_attempt_put(struct sdp_attempt *a);

/* What the socket is called while it is asked; false: not known yet.  It is locked. */
bool sdp_attempt_name(const struct sdp_attempt *a, union sdp_end *name);

/* The link of it has ended before it was up.  Any context. */
void sdp_attempt_failed(struct sdp_attempt *a, int error);

#endif /* SDP_AUTO_H */
