/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Listening: the program's socket listens for TCP connections itself, and what
 * comes in are carriers, each of which becomes a link:
 *
 *   SILENT     its Hello is not all there.  So many that a flood costs little, and
 *              then the oldest one goes for the next: it holds nobody's place.
 *   WAITING    it is, and there is no place yet
 *   HALF_OPEN  it has a queue pair, and MPA starts.  Who takes long there goes
 *              when others come.
 *   READY      to be accepted
 *
 * The last two have places, as many as the program's backlog allows.
 *
 * Requests of rdma_cm's bring their Hello along, and wait for a place, as many as
 * there are places.
 *
 * With the policy auto the program's socket is TCP's, and carriers come to a
 * socket of the kernel's at a port of its own, of which the port mapper tells.
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

/* Where a link is that nobody has accepted yet; under sdp_listener.lock */
enum sdp_listed {
	SDP_NOT_LISTED,
	SDP_SILENT,
	SDP_WAITING,
	SDP_HALF_OPEN,
	SDP_READY,
	SDP_LISTS
};

struct sdp_listener {
	struct kref ref;
	struct sock *sk;		/* with a reference */
	struct socket *port;		/* of the policy auto; else @sk has it */
	struct sdp_service service;	/* for the port mapper */
	bool turn;			/* SDP's, where TCP's wait as well */
	struct delayed_work work;	/* takes carriers in, gives places */
	void (*data_ready)(struct sock *sk);	/* the socket's own */
	spinlock_t lock;
	/* Under @lock ------------------------------------------------------- */
	struct list_head list[SDP_LISTS];	/* but the first; the oldest first */
	u32 count[SDP_LISTS];		/* of each */
	u32 charged;			/* places that the socket pays for */
	bool closed;
	/* --------------------------------------------------------------------- */
	struct sdp_seen seen;
	struct sdp_cma_listener cm;	/* what rdma_cm listens on */
	struct work_struct end;
	struct rcu_head rcu;
};

/*
 * sdp_listener_new - for a socket that listens from the next moment on
 * @own_port: for carriers; the program's is for TCP
 * Returns an ERR_PTR without memory or a port.  The socket is locked.
 */
struct sdp_listener *sdp_listener_new(struct sock *sk, bool own_port);

/* It listens, with the backlog that the socket has.  The socket is locked. */
int sdp_listener_open(struct sdp_listener *l);

/*
 * No more: with the socket locked, what it has paid for comes back; without, links
 * that nobody has accepted are ended.  Process context.
 */
void sdp_listener_refund(struct sdp_listener *l);
void sdp_listener_close(struct sdp_listener *l);

/* The oldest link that waits to be accepted, with its reference, or NULL */
struct sdp_link *sdp_listener_take(struct sdp_listener *l);
bool sdp_listener_ready(struct sdp_listener *l);
/* What may be the last reference is given back in process context, or else so. */
void sdp_listener_put(struct sdp_listener *l);
void sdp_listener_put_atomic(struct sdp_listener *l);
/* The address of an accepted connection, as the program knows the service */
void sdp_listener_name(const struct sdp_listener *l,
		       struct sockaddr_storage *local);
/* There may be carriers, and room for more of them. */
void sdp_listener_kick(struct sdp_listener *l);

/*
 * A link that rdma_cm's request has made, with the reference of sdp_link_new().
 * False: there are too many, or none are wanted.  Process context.
 */
bool sdp_listener_enter(struct sdp_listener *l, struct sdp_link *link);

/*
 * A place for a link that has said Hello.  False: not yet, and SDP_EV_TCP will
 * tell.  From its work item, as the following ones.
 */
bool sdp_listener_admit(struct sdp_link *link);
/* A link has come a step further, or to its end. */
void sdp_listener_look(struct sdp_link *link);
void sdp_listener_lost(struct sdp_link *link);

#endif /* SDP_LISTEN_H */
