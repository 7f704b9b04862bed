/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Listening.  The program's socket listens for TCP connections.  Each
 * connection that comes in is a carrier and becomes a link, which is on one of
 * these lists:
 *
 *   SILENT     Hello is not complete.  Their number is limited, so that a flood
 *              costs little; the oldest one makes room.  They hold no place.
 *   WAITING    Hello is complete, but there is no place yet.
 *   HALF_OPEN  The link has a queue pair, and MPA starts.  One that stays here
 *              for long is dropped when others wait.
 *   DEFERRED   It is set up, but the program wants it no sooner than its first
 *              octets, or the end of some time: TCP_DEFER_ACCEPT.
 *   READY      It can be accepted.
 *
 * Links in the last three lists hold places, as many as the program's backlog
 * allows.
 *
 * rdma_cm's requests bring Hello with them.  They wait for a place, too; as
 * many may wait as there are places.
 *
 * With the policy auto the program's socket is TCP's.  Carriers come to a
 * kernel socket at a port of its own, which the port mapper tells to peers.
 */
#ifndef SDP_LISTEN_H
#define SDP_LISTEN_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "cma.h"
#include "netns.h"

struct sdp_link;
struct sock;
struct socket;

/* The list of a link that is not accepted yet; under sdp_listener.lock */
enum sdp_listed {
	SDP_NOT_LISTED,
	SDP_SILENT,
	SDP_WAITING,
	SDP_HALF_OPEN,
	SDP_DEFERRED,
	SDP_READY,
	SDP_LISTS
};

struct sdp_listener {
	struct kref ref;
	struct sock *sk;		/* with a reference */
	struct socket *port;		/* policy auto: carriers' socket */
	struct sdp_service service;	/* what the port mapper answers with */
	bool turn;			/* the next accept() prefers SDP */
	struct delayed_work work;	/* takes in carriers, assigns places */
	void (*data_ready)(struct sock *sk);	/* that the socket had before */
	spinlock_t lock;
	/* Under @lock ------------------------------------------------------- */
	struct list_head list[SDP_LISTS];	/* oldest first; [0] unused */
	u32 count[SDP_LISTS];		/* length of each list */
	u32 charged;			/* places that @sk is charged for */
	bool closed;
	/* --------------------------------------------------------------------- */
	struct sdp_seen seen;
	struct sdp_cma_listener cm;	/* what rdma_cm listens on */
	struct work_struct end;
	struct rcu_head rcu;
};

/*
 * sdp_listener_new - allocate a listener for a socket that is about to listen
 * @own_port: bind another port for carriers; the program's is TCP's
 * Returns an ERR_PTR without memory or a port.  The socket is locked.
 */
struct sdp_listener *sdp_listener_new(struct sock *sk, bool own_port);

/* Open it: the socket listens and has its backlog.  The socket is locked. */
int sdp_listener_open(struct sdp_listener *l);

/*
 * The end:
 * sdp_listener_refund - uncharge its places, with the socket locked
 * sdp_listener_close - end links that are not accepted, the socket not locked
 * Process context.
 */
void sdp_listener_refund(struct sdp_listener *l);
void sdp_listener_close(struct sdp_listener *l);

/* Take the oldest link to be accepted, with its reference, or NULL */
struct sdp_link *sdp_listener_take(struct sdp_listener *l);
bool sdp_listener_ready(struct sdp_listener *l);
/* Put a reference, in process context or in any context. */
void sdp_listener_put(struct sdp_listener *l);
void sdp_listener_put_atomic(struct sdp_listener *l);
/* Set the local port of an accepted connection to that of the service */
void sdp_listener_name(const struct sdp_listener *l,
		       struct sockaddr_storage *local);
/* Run the work item: there may be carriers, and room for them. */
void sdp_listener_kick(struct sdp_listener *l);

/*
 * Enter a link for a request of rdma_cm, with the reference of sdp_link_new().
 * False: too many wait, or the listener is closed.  Process context.
 */
bool sdp_listener_enter(struct sdp_listener *l, struct sdp_link *link);

/*
 * Assign a place to a link whose Hello is here.  False: not yet, SDP_EV_TCP
 * follows.  Called by the link's work item, as the following ones.
 */
bool sdp_listener_admit(struct sdp_link *link);
/* A link is UP and can be accepted, or it has ended. */
void sdp_listener_look(struct sdp_link *link);
void sdp_listener_lost(struct sdp_link *link);

#endif /* SDP_LISTEN_H */
