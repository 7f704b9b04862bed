/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An endpoint: one TCP connection from its beginning until a QP takes over the
 * stream, and the events of its end.
 *
 *   active    CONNECTING -> WAIT_REPLY ---------------------> RUNNING -> DEAD
 *             ^  PAUSED  <------'   (pair.c: the peer is not there yet)
 *   passive   WAIT_REQUEST -> OFFERING -> REPORTED -(accept)-> RUNNING -> DEAD
 *
 * All events of an endpoint queue one work item (ep.c), which handles what has
 * arrived and never waits for the peer.  In RUNNING the QP owns the stream and
 * calls peer_fin() and closed().  An endpoint serves a ULP: iw_cm (iwcm.c), a
 * kernel consumer with a socket (startup.c), or a QP that ibv_modify_qp()
 * connects (pair.c).  A listener (listen.c) creates the passive endpoints of
 * iw_cm and of pair.c.
 *
 * Locks, outermost first:
 *   hub_mutex      the list of hubs, their creation and end (listen.c)
 *   ep->mutex      state of an endpoint and its socket until RUNNING
 *   hub->lock      listeners of a hub
 *   lis->lock      dead, pending; CONNECT_REQUEST is delivered under it
 *   ep->ev_lock    which events the ULP has and may get; CLOSE after the rest
 *   dev->cm_lock   lists of a device
 *
 * References on an endpoint: one from its creation until ep_finish(), one for
 * each of the two work items while queued, one of the QP until closed(), one of
 * a consumer's handle.
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
#include "include/startup.h"
#include "proto/mpa.h"

struct swp_ulp;

/* Milliseconds until the next try, when TCP has no memory during start-up */
#define SWP_MEMORY_RETRY_MS	5

enum swp_ep_state {
	SWP_EP_PAUSED,		/* the next attempt to connect is due later */
	SWP_EP_CONNECTING,	/* TCP is connecting */
	SWP_EP_WAIT_REPLY,	/* Request sent */
	SWP_EP_WAIT_REQUEST,	/* accepted by TCP */
	SWP_EP_OFFERING,	/* Request complete, no event slot for it yet */
	SWP_EP_REPORTED,	/* the ULP has the Request, not yet answered */
	SWP_EP_RUNNING,		/* the QP has the stream */
	SWP_EP_DEAD,
	SWP_EP_STATES
};

/* State of start-up, freed when it ends */
struct swp_handshake {
	struct swp_policy policy;	/* at the beginning of start-up */
	struct sockaddr_storage remote;	/* for the log */
	struct swp_mpa_local local;
	struct swp_mpa_frame mine;	/* active: the Request sent */
	struct swp_mpa_frame peer;	/* passive: the Request received */
	u8 max_rev;
	bool retried;			/* active: now with revision 1 */
	u32 ird, ord;			/* startup: requested by the consumer */
	bool exact_ird;			/* grant no more than it asks for */
	u32 attempts;			/* pair: failed ones */
	u16 pd_len;			/* active: the ULP's private data */
	u8 *pd;
	/* startup, active: octets to send ahead of the Request */
	u8 lead_len;
	u8 lead[SWP_STARTUP_LEAD];
	u8 refusal;			/* of a QP's peer: enum swp_pair_reason */
	size_t sent;			/* octets of our frame given to TCP */
	/* the peer's frame: room for a header, until more is announced */
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
	struct swp_qp *qp;		/* until RUNNING; reference, claim */
	u32 qpn;
	int kill;			/* errno with which it must end, or 0 */
	struct mem_cgroup *memcg;	/* to charge the frame to, or NULL */
	/* iw_cm */
	struct iw_cm_id *id;		/* reference; passive: after accept */
	struct net *net;		/* active, until RUNNING; reference */
	/* iw_cm, pair */
	struct swp_listener *lis;	/* passive, until RUNNING; reference */
	struct list_head lis_entry;	/* lis->lock: pending or reported */
	struct hlist_node source_entry;	/* lis->lock: while pending */
	u64 source;			/* of the peer's address, listen.c */
	unsigned long handle;		/* REPORTED: index in the table, or 0 */
	/* startup */
	const struct swp_startup_ops *ops;
	void *ctx;

	spinlock_t ev_lock;		/* protects all below */
	bool told_up;			/* the ULP knows that it is up */
	bool fin;			/* peer_fin() was called before that */
	bool closed;			/* closed() was called before that */
	int error;			/* argument of closed() */
};

enum swp_drop {
	SWP_DROP_RST,
	SWP_DROP_FIN,
};

/*
 * Differences between the ULPs of endpoints.  Process context, under ep->mutex,
 * except disconnect() and closed(): under ep->ev_lock.
 */
struct swp_ulp {
	/* connections come up in the order in which they began */
	bool ordered;
	u16 pd_max;		/* octets of private data that it accepts */
	/* open another TCP connection to the same peer; NULL: it cannot */
	int (*reopen)(struct swp_ep *ep);
	/*
	 * The result of a connect, exactly once.
	 * @status: 0, or the error
	 * @f: the peer's Reply, or NULL
	 */
	void (*replied)(struct swp_ep *ep, int status,
			const struct swp_mpa_frame *f);
	/*
	 * A Request is complete: report it to the ULP and move to REPORTED, or
	 * move to OFFERING and try again.  May release the mutex meanwhile.
	 */
	void (*offer)(struct swp_ep *ep);
	/*
	 * A connect has failed, ep->qp is still claimed: returns milliseconds
	 * until the next attempt, or -1: replied() follows.  May be NULL.
	 * @f: the peer's rejection, or NULL
	 */
	int (*again)(struct swp_ep *ep, int error,
		     const struct swp_mpa_frame *f);
	/* Is this Reply the right one?  0 or the error.  May be NULL. */
	int (*vet)(struct swp_ep *ep, const struct swp_mpa_frame *f);
	/* A passive endpoint ends before it is accepted; may be NULL. */
	void (*dropped)(struct swp_ep *ep, int error);
	/* Is no answer to offer() possible any more?  NULL: it always is. */
	bool (*gone)(struct swp_ep *ep);
	/* Start-up is over: release the ULP's part of it.  May be NULL. */
	void (*release)(struct swp_ep *ep);
	/*
	 * A rejection was sent or received: the ULP may take the stream from
	 * the endpoint, which closes it otherwise.  May be NULL.
	 */
	void (*rejected)(struct swp_ep *ep);
	void (*disconnect)(struct swp_ep *ep);
	void (*closed)(struct swp_ep *ep, int error);
};

/* ep.c: lifetime ----------------------------------------------------------- */

/*
 * swp_ep_new - create an endpoint and add it to the list of its device
 *
 * Returns it locked, and the caller has a reference in addition to the first
 * one: once it is in the list, a work item that waits for the mutex may kill
 * it.  Or returns ERR_PTR(-ENOMEM), or -ENODEV: the device is being removed.
 */
struct swp_ep *swp_ep_new(struct swp_device *dev, const struct swp_ulp *ulp,
			  enum swp_ep_state state);
void swp_ep_get(struct swp_ep *ep);
void swp_ep_put(struct swp_ep *ep);
/* Unlocks, and drops the caller's reference. */
void swp_ep_release(struct swp_ep *ep);
/* Queue the work item.  Any context; the caller makes sure that @ep lives. */
void swp_ep_kick(struct swp_ep *ep);
void swp_ep_kick_later(struct swp_ep *ep, unsigned int ms);
/* End it with this error.  As swp_ep_kick(). */
void swp_ep_kill(struct swp_ep *ep, int error);
/* The same for all endpoints of a device.  Process context. */
void swp_ep_kill_all(struct swp_device *dev, int error);
/* Start the timer, unless it runs already.  As swp_ep_kick(). */
void swp_ep_expire(struct swp_ep *ep, unsigned int ms);

/* ep.c: under ep->mutex ---------------------------------------------------- */

/* Start the timer with the time limit of the present state. */
void swp_ep_start_timer(struct swp_ep *ep);
void swp_ep_stop_timer(struct swp_ep *ep);
/* Give the stream to the endpoint: its work item handles what arrives. */
void swp_ep_own(struct swp_ep *ep, struct swp_llp *llp);
/*
 * Send the Request; TCP is connected.  On an error, as send_frame() returns it, the
 * endpoint's state is the same as before.
 */
int swp_ep_request(struct swp_ep *ep);
/* Takes the stream from the endpoint and ends it. */
void swp_ep_drop_llp(struct swp_ep *ep, enum swp_drop how);
/* Frees everything of start-up except ep->hs. */
void swp_ep_end_handshake(struct swp_ep *ep);
void swp_ep_free_handshake(struct swp_ep *ep);
/* Ends an endpoint without an event: the ULP gets the result of its call. */
void swp_ep_abandon(struct swp_ep *ep);
/* Ends a passive endpoint that was not accepted. */
void swp_ep_discard(struct swp_ep *ep, int error, enum swp_drop how);
/*
 * The ULP knows that the connection is up, so events of its end may follow.  If
 * closed() was called before, this drops the first reference; so the caller
 * needs another one.
 */
void swp_ep_told_up(struct swp_ep *ep);

/*
 * Opens a TCP connection; the socket's callbacks report progress.  Returns 0,
 * with the endpoint in CONNECTING, or an error.
 */
int swp_ep_connect(struct swp_ep *ep, const struct sockaddr_storage *local,
		   const struct sockaddr_storage *remote, int tos);
/* Moves the endpoint to PAUSED: ulp->reopen() follows after @ms. */
void swp_ep_pause(struct swp_ep *ep, unsigned int ms);
/* Ends the pause of an endpoint, if it makes one.  Takes the mutex. */
void swp_ep_hurry(struct swp_ep *ep);

void swp_handshake_local(struct swp_handshake *hs, u32 ird, u32 ord);
/* Copies the ULP's private data for the Request. */
int swp_handshake_pd(struct swp_handshake *hs, const void *pd, u16 len);
/* Makes room for @len octets of the peer's frame. */
int swp_handshake_room(struct swp_ep *ep, size_t len);

/*
 * Has anything arrived after the Request, octets or the end of the stream,
 * before our Reply?  Returns 0 if not, else the error.
 */
int swp_ep_spoke_early(struct swp_ep *ep);
/* Sends a rejection.  Waits for memory, not for the peer. */
void swp_ep_send_refusal(struct swp_ep *ep, const void *pd, u16 len);
/*
 * The same from the work item, which must not wait.  False: try again later,
 * with the same private data.
 */
bool swp_ep_try_refusal(struct swp_ep *ep, const void *pd, u16 len);
/*
 * Gives the stream to ep->qp and sends the Reply.  On failure it changes
 * nothing in the endpoint.
 */
int swp_ep_accept(struct swp_ep *ep, u32 ird, u32 ord, const void *pd,
		  u16 pd_len);

/* ep.c: module ------------------------------------------------------------- */

extern struct workqueue_struct *swp_cm_wq;
/* Woken when the last endpoint or listener of a device may be gone */
extern wait_queue_head_t swp_cm_idle;
int swp_ep_init(void);
void swp_ep_exit(void);

/* listen.c ----------------------------------------------------------------- */

/* Removes a passive endpoint from its listener.  Under ep->mutex. */
void swp_listener_leave(struct swp_ep *ep);
/*
 * Delivers an event on the listener's id and moves the endpoint to REPORTED.
 * Under ep->mutex.  Returns -ESHUTDOWN if the listener is dead, or iw_cm's
 * error.
 */
int swp_listener_report(struct swp_ep *ep, struct iw_cm_event *ev);
bool swp_listener_is_dead(struct swp_listener *lis);
/* Prevents new endpoints and listeners; closes the existing listeners. */
void swp_listen_stop(struct swp_device *dev);
void swp_listen_init(void);

/*
 * The listener of a device's QPs that wait for a peer, on any address and this
 * port.  The first user creates it, the last one closes it.  Process context, no
 * locks.  Returns 0, -ENODEV: the device is being removed, or the error of the
 * socket, -EADDRINUSE for example, which is also that of another port than the
 * users before have.
 */
int swp_listener_share(struct swp_device *dev, const struct swp_ulp *ulp,
		       u16 port);
void swp_listener_unshare(struct swp_device *dev);

/* iwcm.c ------------------------------------------------------------------- */

extern const struct swp_ulp swp_iwcm_ulp;

#endif /* SWP_EP_H */
