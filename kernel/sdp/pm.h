/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The port mapper of a network namespace; draft-pinkerton-iwarp-sdp-01 section 7.
 *
 * The responder tells peers at which port a service is to be had by SDP.  It is
 * there as long as a socket with the policy auto listens.  What clients have been
 * told by peers is kept in a cache.  Both are bounded, whoever asks.
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

/* UDP, IPv4 and IPv6 */
#define SDP_PM_FAMILIES	2
/* Of the hash table of services */
#define SDP_PM_SERVICE_BITS	7
/* Answers to a client, 4 each */
#define SDP_PM_SETS	64
/* Ports that are not given to other services yet */
#define SDP_PM_RESTS	128

/* A service of this host; a part of struct sdp_listener */
struct sdp_service {
	struct hlist_node node;		/* under sdp_pm.lock */
	union sdp_end at;		/* where programs know it */
	u16 port;			/* where SDP is spoken */
	bool v6only;
	bool told;			/* to somebody who may remember it; sdp_pm.lock */
	int bound_dev;			/* 0: none */
};

/* A port of a service that is no more */
struct sdp_pm_rest {
	u64 until;			/* ms */
	u16 port;
};

/* One socket of the responder */
struct sdp_responder {
	struct sdp_pm *pm;
	struct socket *sock;
	struct work_struct work;
};

struct sdp_pm {
	struct net *net;
	struct mutex mutex;		/* of the next two */
	u32 users;
	struct sdp_responder responders[SDP_PM_FAMILIES];
	u32 secret;			/* for hashes */
	atomic64_t handle;		/* AssocHandle of the next question */
	spinlock_t lock;
	/* Under @lock ------------------------------------------------------- */
	DECLARE_HASHTABLE(services, SDP_PM_SERVICE_BITS);	/* by port */
	struct sdp_pm_guard *guard;	/* with the responder */
	struct sdp_pm_cache cache;	/* from the first question on */
	struct sdp_pm_rest rests[SDP_PM_RESTS];
	u32 next_rest;			/* the oldest one */
};

void sdp_pm_init(struct sdp_pm *pm, struct net *net);
/* Nothing uses it any more. */
void sdp_pm_exit(struct sdp_pm *pm);

/*
 * sdp_pm_open - the responder is needed, once more
 * Without its UDP port services can be had all the same, but nobody is told; the
 * reason is logged.  Returns 0 or -ENOMEM.  Process context, sdp_pm_close() as well.
 */
int sdp_pm_open(struct sdp_pm *pm);
void sdp_pm_close(struct sdp_pm *pm);

/* A service is there, for as long as it is not withdrawn.  Any context. */
void sdp_pm_publish(struct sdp_pm *pm, struct sdp_service *s);
void sdp_pm_withdraw(struct sdp_pm *pm, struct sdp_service *s);

/*
 * Do peers remember that port as one of a service which is no more?  They would
 * reach another one by it.  Known of the last SDP_PM_RESTS.
 */
bool sdp_pm_rests(struct sdp_pm *pm, u16 port);

/* What the cache says */
enum sdp_pm_known {
	SDP_PM_UNKNOWN,		/* to be asked */
	SDP_PM_BY_SDP,		/* at *@where */
	SDP_PM_DENIED,		/* only by TCP */
	SDP_PM_SILENT,		/* the host has no port mapper */
};

/*
 * sdp_pm_lookup - is it known how a service is to be had?
 * @asked: with both addresses and the service's port
 */
enum sdp_pm_known sdp_pm_lookup(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
				union sdp_end *where);

/* The answers, for the cache: an acceptance, a denial, a host without port mapper */
void sdp_pm_accepted(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		     const struct sdp_pm_msg *ack, u8 time);
void sdp_pm_denied(struct sdp_pm *pm, const struct sdp_pm_msg *asked);
void sdp_pm_silent(struct sdp_pm *pm, const struct sdp_pm_msg *asked);
/* It is not there any more, if nothing newer is known */
void sdp_pm_forget(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		   const union sdp_end *where);

/* For a question: room for its answer in the cache; false: no memory */
bool sdp_pm_prepare(struct sdp_pm *pm);
u64 sdp_pm_handle(struct sdp_pm *pm);
/* Milliseconds, as the pure code takes them */
u64 sdp_pm_now(void);

/* Addresses of messages; IPv4 within IPv6 is IPv4 there */
u8 sdp_pm_addr(u8 *addr, const union sdp_end *end);
void sdp_pm_end(union sdp_end *end, u8 version, const u8 *addr, u16 port);

#endif /* SDP_PM_H */
