/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The port mapper of a network namespace; draft-pinkerton-iwarp-sdp-01 section 7.
 *
 * The responder tells peers the port at which a service is available by SDP.
 * It runs as long as a socket with the policy auto listens.  A cache keeps the
 * answers that clients here got from peers.  Both are bounded, whoever asks.
 */
#ifndef SDP_PM_H
#define SDP_PM_H

#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "ends.h"
#include "proto/sdp/answer.h"
#include "proto/sdp/query.h"

struct net;
struct socket;

/* UDP sockets: IPv4 and IPv6 */
#define SDP_PM_FAMILIES	2
/* Size of the hash table of services */
#define SDP_PM_SERVICE_BITS	7
/*
 * Longest PmTime that an answer is kept for, 254 s.  A peer may say "for ever";
 * but it may be replaced by a host that does not know of its answers.
 */
#define SDP_PM_TIME_MOST	254
/* Number of ports that are kept from others, for each of the two kinds below */
#define SDP_PM_RESTS	128

/* A service of this host; a part of struct sdp_listener */
struct sdp_service {
	struct hlist_node node;		/* under sdp_pm.lock */
	union sdp_end at;		/* its address for programs */
	u16 port;			/* the port for SDP */
	bool v6only;
	bool told;			/* peers may remember it; sdp_pm.lock */
	int bound_dev;			/* 0: none */
};

/* A port of a service that has ended, while peers may remember it */
struct sdp_pm_rest {
	u64 until;			/* ms */
	u16 port;
	struct socket *sock;		/* bound to it, or NULL */
};

/*
 * Services at ports that need CAP_NET_BIND_SERVICE have a list of their own:
 * other users can fill only the other one.
 */
enum sdp_pm_kind {
	SDP_PM_ANYBODYS,
	SDP_PM_PRIVILEGED,
	SDP_PM_KINDS,
};

/* One socket of the responder */
struct sdp_responder {
	struct sdp_pm *pm;
	struct socket *sock;
	struct work_struct work;
};

struct sdp_pm {
	struct net *net;
	struct mutex mutex;		/* of @users and @responders */
	u32 users;
	struct sdp_responder responders[SDP_PM_FAMILIES];
	u32 secret;			/* for hashes */
	atomic64_t handle;		/* of the last AssocHandle */
	spinlock_t lock;
	/* Under @lock ------------------------------------------------------- */
	DECLARE_HASHTABLE(services, SDP_PM_SERVICE_BITS);	/* by port */
	struct sdp_pm_guard *guard;	/* allocated with the responder */
	struct sdp_pm_cache cache;	/* allocated by sdp_pm_prepare() */
	struct sdp_pm_rest rests[SDP_PM_KINDS][SDP_PM_RESTS];
	u32 next_rest[SDP_PM_KINDS];	/* index of the oldest one */
	/* --------------------------------------------------------------------- */
	struct delayed_work rest_work;	/* releases the sockets in @rests */
};

void sdp_pm_init(struct sdp_pm *pm, struct net *net);
/* The caller ensures that nothing uses it any more. */
void sdp_pm_exit(struct sdp_pm *pm);

/*
 * sdp_pm_open - start the responder for one more user
 * If its UDP port is taken, services work all the same, but peers do not learn
 * of them; the reason is logged.  Returns 0 or -ENOMEM.  Process context, as
 * sdp_pm_close().
 */
int sdp_pm_open(struct sdp_pm *pm);
void sdp_pm_close(struct sdp_pm *pm);

/*
 * Add or remove a service.  Any context.  sdp_pm_withdraw() returns whether
 * peers may remember it; then the caller calls sdp_pm_rest().
 */
void sdp_pm_publish(struct sdp_pm *pm, struct sdp_service *s);
bool sdp_pm_withdraw(struct sdp_pm *pm, struct sdp_service *s);
/*
 * sdp_pm_rest - keep the port of a withdrawn service until peers have forgotten it
 * @sock: bound to the port, without a reference to the namespace, or NULL.  It
 *	  is released then, or with the namespace.
 * Process context.  The caller has a reference to the namespace.
 */
void sdp_pm_rest(struct sdp_pm *pm, const struct sdp_service *s,
		 struct socket *sock);

/*
 * Whether peers may remember this port as that of a service that has ended:
 * they would reach another one by it.  The last SDP_PM_RESTS are known.
 */
bool sdp_pm_rests(struct sdp_pm *pm, u16 port);

/* What the cache says */
enum sdp_pm_known {
	SDP_PM_UNKNOWN,		/* the port mapper has to be asked */
	SDP_PM_BY_SDP,		/* at *@where */
	SDP_PM_DENIED,		/* only by TCP */
	SDP_PM_SILENT,		/* the host has no port mapper */
};

/*
 * sdp_pm_lookup - look up in the cache how a service is available
 * @asked: with both addresses and the service's port
 */
enum sdp_pm_known sdp_pm_lookup(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
				union sdp_end *where);

/*
 * sdp_pm_next - copy the next valid entry of the cache
 * @at: index to begin with, and then that of the entry
 * @now: time at which it was valid
 * False: there is none.  Process context; the lock is held for a few entries at
 * a time.
 */
bool sdp_pm_next(struct sdp_pm *pm, u32 *at, struct sdp_pm_entry *entry,
		 u64 *now);

/* Enter an answer in the cache: accepted, denied, or no port mapper there */
void sdp_pm_accepted(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		     const struct sdp_pm_msg *ack, u8 time);
void sdp_pm_denied(struct sdp_pm *pm, const struct sdp_pm_msg *asked);
void sdp_pm_silent(struct sdp_pm *pm, const struct sdp_pm_msg *asked);
/* Remove an acceptance that has proved wrong, unless it was replaced. */
void sdp_pm_forget(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		   const union sdp_end *where);

/*
 * Allocate the cache before a request, or another one if its size was changed;
 * false: no memory
 */
bool sdp_pm_prepare(struct sdp_pm *pm);
u64 sdp_pm_handle(struct sdp_pm *pm);
/* Time in milliseconds, for the code in proto/ */
u64 sdp_pm_now(void);

/* Convert addresses to and from messages; IPv4-mapped ones become IPv4. */
u8 sdp_pm_addr(u8 *addr, const union sdp_end *end);
void sdp_pm_end(union sdp_end *end, u8 version, const u8 *addr, u16 port);

#endif /* SDP_PM_H */
