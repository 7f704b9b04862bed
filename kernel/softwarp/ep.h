/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An endpoint: one TCP connection from its beginning to the moment a QP takes
 * the stream over, and the events of its end.
 *
 *   active    CONNECTING -> WAIT_REPLY ---------------------> RUNNING -> DEAD
 *   passive   WAIT_REQUEST -> OFFERING -> REPORTED -(accept)-> RUNNING -> DEAD
 *
 * Everything an endpoint waits for ends in one work item (ep.c), which looks at
 * what there is and never waits for the peer.  In RUNNING the QP owns the stream
 * and calls peer_fin() and closed().  An endpoint works for a ULP: iw_cm
 * (iwcm.c), or a consumer in the kernel that hands over a socket (startup.c).
 * Passive endpoints of iw_cm come from a listener (listen.c).
 *
 * Locks, outermost first:
 *   hub_mutex      the list of hubs, their birth and death (listen.c)
 *   ep->mutex      state of an endpoint and its socket until RUNNING
 *   hub->lock      listeners of a hub
 *   lis->lock      dead, pending; CONNECT_REQUEST is delivered under it
 *   ep->ev_lock    what the ULP knows and may be told; CLOSE after the rest
 *   dev->cm_lock   lists of a device
 *
 * References on an endpoint: one from birth until swp_ep_finish(), one for each
 * of the two work items while queued, one of the QP until closed(), one of a
 * consumer's handle.
 */
#ifndef SWP_EP_H
#define SWP_EP_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/iw_cm.h>

#include "device.h"
#include "llp.h"
#include "proto/mpa.h"

struct swp_ulp;

/* TCP is short of memory during start-up: again, milliseconds */
#define SWP_MEMORY_RETRY_MS	5

enum swp_ep_state {
	SWP_EP_CONNECTING,	/* TCP is connecting */
	SWP_EP_WAIT_REPLY,	/* Request sent */
	SWP_EP_WAIT_REQUEST,	/* accepted by TCP */
	SWP_EP_OFFERING,	/* Request complete, no event slot for it yet */
	SWP_EP_REPORTED,	/* the ULP knows and has not answered */
	SWP_EP_RUNNING,		/* the QP has the stream */
	SWP_EP_DEAD,
	SWP_EP_STATES
};

/* What only start-up needs, freed with it */
struct swp_handshake {
	struct swp_policy policy;	/* as it was when it began */
	struct sockaddr_storage remote;	/* for the log */
	struct swp_mpa_local local;
	struct swp_mpa_frame mine;	/* active: the Request sent */
	struct swp_mpa_frame peer;	/* passive: the Request received */
	u8 max_rev;
	bool retried;			/* active: with revision 1 */
	u32 ird, ord;			/* startup: what the consumer asks for */
	u16 pd_len;			/* active: the ULP's private data */
	u8 *pd;
	size_t sent;			/* octets of our frame that TCP has */
	/* the peer's frame; a peer that says nothing gets room for no more */
	size_t got, room;
	u8 *in;
	u8 head[SWP_MPA_HDR_LEN];
};

struct swp_ep {
	struct kref ref;
	struct swp_device *dev;
	const struct swp_ulp *ulp;
	struct list_head dev_entry;	/* dev->cm_lock */
	struct delayed_work work;
	struct delayed_work timer;

	struct mutex mutex;		/* protects all up to ev_lock */
	enum swp_ep_state state;
	struct swp_handshake *hs;
	struct swp_llp *llp;
	struct swp_qp *qp;		/* until RUNNING; with reference and claim */
	u32 qpn;
	int kill;			/* errno with which it has to end, or 0 */
	struct mem_cgroup *memcg;	/* pays for the peer's frame, or NULL */
	/* iw_cm */
	struct iw_cm_id *id;		/* with reference; passive: from accept on */
	struct net *net;		/* active, until RUNNING; with reference */
	struct swp_listener *lis;	/* passive, until RUNNING; with reference */
	struct list_head lis_entry;	/* lis->lock: pending or reported */
	struct hlist_node source_entry;	/* lis->lock: while pending */
	u64 source;			/* of the peer's address, for the share */
	unsigned long handle;		/* REPORTED: index in the table, or 0 */
	/* startup */
	const struct swp_startup_ops *ops;
	void *ctx;

	spinlock_t ev_lock;		/* protects all below */
	bool told_up;			/* the ULP knows that it is up */
	bool fin;			/* peer_fin() came before that */
	bool closed;			/* closed() came before that */
	int error;			/* and what it said */
};

enum swp_drop {
	SWP_DROP_RST,
	SWP_DROP_FIN,
};

/*
 * What differs between the ULPs of an endpoint.  Process context, under
 * ep->mutex, but for disconnect() and closed(): those under ep->ev_lock.
 */
struct swp_ulp {
	/* connections come up in the order in which they were begun */
	bool ordered;
	u16 pd_max;		/* octets of private data that it takes */
	/* another TCP connection to the same peer; NULL: there is only the one */
	int (*reopen)(struct swp_ep *ep);
	/*
	 * The answer to a connect, exactly one.
	 * @status: 0, or why it failed
	 * @f: the peer's Reply, or NULL
	 */
	void (*replied)(struct swp_ep *ep, int status,
			const struct swp_mpa_frame *f);
	/*
	 * A Request is there: tell the ULP and go to REPORTED, or to OFFERING
	 * and come again.  May release the mutex meanwhile.
	 */
	void (*offer)(struct swp_ep *ep);
	/* A passive endpoint ends before it was accepted; may be NULL. */
	void (*dropped)(struct swp_ep *ep, int error);
	/* No answer to offer() can come any more.  NULL: one always can. */
	bool (*gone)(struct swp_ep *ep);
	/* Start-up is over: gives up what it has in the endpoint.  May be NULL. */
	void (*release)(struct swp_ep *ep);
	/*
	 * A rejection came or went: the stream may be taken from the endpoint,
	 * which closes it otherwise.  May be NULL.
	 */
	void (*rejected)(struct swp_ep *ep);
	void (*disconnect)(struct swp_ep *ep);
	void (*closed)(struct swp_ep *ep, int error);
};

/* ep.c: lifetime ----------------------------------------------------------- */

/*
 * swp_ep_new - an endpoint in the list of its device
 *
 * It is locked, and the caller has a reference besides the first one: as soon as
 * it is in the list it may be killed, by a work item that waits for the mutex.
 * Returns ERR_PTR(-ENOMEM), or -ENODEV: the device is going away.
 */
struct swp_ep *swp_ep_new(struct swp_device *dev, const struct swp_ulp *ulp,
			  enum swp_ep_state state);
void swp_ep_get(struct swp_ep *ep);
void swp_ep_put(struct swp_ep *ep);
/* Unlocks, and gives the caller's reference back. */
void swp_ep_release(struct swp_ep *ep);
/* Something has happened.  Any context; the caller knows that it is alive. */
void swp_ep_kick(struct swp_ep *ep);
void swp_ep_kick_later(struct swp_ep *ep, unsigned int ms);
/* It has to go, for this reason.  As swp_ep_kick(). */
void swp_ep_kill(struct swp_ep *ep, int error);
/* All endpoints of a device have to. */
void swp_ep_kill_all(struct swp_device *dev, int error);
/* The time is over after @ms, unless it is sooner.  As swp_ep_kick(). */
void swp_ep_expire(struct swp_ep *ep, unsigned int ms);

/* ep.c: under ep->mutex ------------------------------------------------------ */

/* The time that the present state may take begins. */
void swp_ep_start_timer(struct swp_ep *ep);
void swp_ep_stop_timer(struct swp_ep *ep);
/* The stream becomes the endpoint's, whose work item sees what comes. */
void swp_ep_own(struct swp_ep *ep, struct swp_llp *llp);
/* Takes the stream from the endpoint and ends it. */
void swp_ep_drop_llp(struct swp_ep *ep, enum swp_drop how);
/* Frees what start-up needed, but for ep->hs. */
void swp_ep_end_handshake(struct swp_ep *ep);
void swp_ep_free_handshake(struct swp_ep *ep);
/* The end of an endpoint whose ULP hears of it by the result of its call. */
void swp_ep_abandon(struct swp_ep *ep);
/* The end of a passive endpoint that was not accepted. */
void swp_ep_discard(struct swp_ep *ep, int error, enum swp_drop how);
/*
 * The ULP knows that the connection is up, and may now hear of its end.  The QP's
 * reference covers the call: it is dropped here when closed() came early.
 */
void swp_ep_told_up(struct swp_ep *ep);

void swp_handshake_local(struct swp_handshake *hs, u32 ird, u32 ord);
/* Keeps the ULP's private data for the Request. */
int swp_handshake_pd(struct swp_handshake *hs, const void *pd, u16 len);
/* Room for @len octets of the peer's frame. */
int swp_handshake_room(struct swp_ep *ep, size_t len);

/*
 * REPORTED: something is there behind the Request, octets or the end of the
 * stream.  Returns the error that this is, or 0: nothing is.
 */
int swp_ep_spoke_early(struct swp_ep *ep);
/* Waits for memory, not for the peer. */
void swp_ep_send_refusal(struct swp_ep *ep, const void *pd, u16 len);
/*
 * Gives the stream to ep->qp and sends the Reply.  On failure the endpoint is as
 * before.
 */
int swp_ep_accept(struct swp_ep *ep, u32 ird, u32 ord, const void *pd,
		  u16 pd_len);

/* ep.c: module -------------------------------------------------------------- */

extern struct workqueue_struct *swp_cm_wq;
/* Woken when a device may have no endpoint, or no listener, any more */
extern wait_queue_head_t swp_cm_idle;
int swp_ep_init(void);
void swp_ep_exit(void);

/* listen.c ------------------------------------------------------------------ */

/* A passive endpoint leaves its listener.  Under ep->mutex. */
void swp_listener_leave(struct swp_ep *ep);
/*
 * Delivers an event on the listener's id, and the endpoint is REPORTED.  Under
 * ep->mutex.  Returns -ESHUTDOWN when the listener is dead, or iw_cm's error.
 */
int swp_listener_report(struct swp_ep *ep, struct iw_cm_event *ev);
bool swp_listener_is_dead(struct swp_listener *lis);
/* No new endpoint and no new listener; the listeners that are there close. */
void swp_listen_stop(struct swp_device *dev);
void swp_listen_init(void);

/* iwcm.c -------------------------------------------------------------------- */

extern const struct swp_ulp swp_iwcm_ulp;

#endif /* SWP_EP_H */
