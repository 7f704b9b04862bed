// SPDX-License-Identifier: GPL-2.0
/*
 * Connection manager: what iw_cm asks for, from the TCP connection to the
 * moment a QP takes the stream over, and the events of its end.
 *
 * An endpoint (struct swp_ep) belongs to one TCP connection.  Everything it
 * waits for ends in swp_ep_work(), one work item per endpoint, which looks at
 * what there is and never waits for the peer:
 *
 *   active    CONNECTING -> WAIT_REPLY ---------------------> RUNNING -> DEAD
 *   passive   WAIT_REQUEST -> OFFERING -> REPORTED -(accept)-> RUNNING -> DEAD
 *
 * In RUNNING the QP owns the stream and calls peer_fin() and closed().
 *
 * Listening.  rdma_cm repeats a listen on the wildcard address on every RDMA
 * device, and takes a connection request only from the device whose netdev owns
 * the connection's local address, whatever interface the SYN came in by.  So
 * all devices of a network namespace share one TCP socket per address and port,
 * the hub, which is bound to no interface; accepted connections are given to
 * the listener of the device that owns their local address.
 *
 * Locks, outermost first:
 *   hub_mutex      the list of hubs, their birth and death
 *   ep->mutex      state of an endpoint and its socket until RUNNING
 *   hub->lock      listeners of a hub
 *   lis->lock      dead, pending; CONNECT_REQUEST is delivered under it
 *   ep->ev_lock    what was and what may be told to iw_cm; CLOSE after the rest
 *   dev->cm_lock   lists of a device
 *
 * References on an endpoint: one from birth until swp_ep_finish(), one for each
 * of the two work items while queued, one of the QP until closed().
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/memcontrol.h>
#include <linux/nsproxy.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>

#include "softwarp.h"
#include "qp.h"
#include "include/startup.h"
#include "proto/fpdu.h"
#include "proto/mpa.h"
#include "proto/rdmap.h"

/* iw_cm's events hold private data lengths and read depths in 8 bits. */
#define SWP_EVENT_PD_MAX	255
#define SWP_EVENT_DEPTH_MAX	255

/* iw_cm has no free event for the listening id: ask again, milliseconds */
#define SWP_OFFER_RETRY_MS	5

/* iw_cm is short of memory for the answer to a connect: times to try */
#define SWP_REPLY_TRIES		200

/* Hash table of the sources of a listener's pending connections */
#define SWP_SOURCES		64

/* Connections taken from a listening socket before others get a turn */
#define SWP_ACCEPT_BATCH	64

/* accept() is short of memory: again, milliseconds */
#define SWP_ACCEPT_RETRY_MS	20

/*
 * A connection that has no memory for an endpoint keeps those behind it waiting,
 * and the memory may be what one listener's owner has used up: so long, and no
 * other one of that listener for so long afterwards, milliseconds.
 */
#define SWP_HOLD_MS		100
#define SWP_HOLD_PAUSE_MS	2000

/* Start-up is short of memory: again, milliseconds */
#define SWP_MEMORY_RETRY_MS	5

enum swp_ep_state {
	SWP_EP_CONNECTING,	/* TCP is connecting */
	SWP_EP_WAIT_REPLY,	/* Request sent */
	SWP_EP_WAIT_REQUEST,	/* accepted by TCP */
	SWP_EP_OFFERING,	/* Request complete, no event slot for it yet */
	SWP_EP_REPORTED,	/* the ULP knows and has not answered */
	SWP_EP_RUNNING,		/* the QP has the stream */
	SWP_EP_DEAD,
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
	u32 ird, ord;			/* startup: what the ULP asks for */
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
	struct list_head dev_entry;	/* dev->cm_lock */
	struct delayed_work work;
	struct delayed_work timer;

	struct mutex mutex;		/* protects all up to ev_lock */
	enum swp_ep_state state;
	struct swp_handshake *hs;
	struct swp_llp *llp;
	struct net *net;		/* active, until RUNNING; with reference */
	struct swp_listener *lis;	/* passive, until RUNNING; with reference */
	struct list_head lis_entry;	/* lis->lock: pending or reported */
	struct hlist_node source_entry;	/* lis->lock: while pending */
	u64 source;			/* of whom it is, swp_source() */
	struct iw_cm_id *id;		/* with reference; passive: from accept on */
	struct swp_qp *qp;		/* until RUNNING; with reference */
	u32 qpn;
	/* instead of iw_cm: whoever called swp_startup() */
	const struct swp_startup_ops *user;
	void *ctx;
	bool asked;			/* request() was called */
	int kill;			/* errno of who wants it gone, or 0 */
	unsigned long handle;		/* REPORTED: index in swp_asked, or 0 */

	spinlock_t ev_lock;		/* protects all below */
	bool told_up;			/* ESTABLISHED or CONNECT_REPLY went out */
	bool fin;			/* peer_fin() came before that */
	bool closed;			/* closed() came before that */
	int error;			/* and what it said */
};

struct swp_hub {
	struct list_head entry;		/* hub_mutex */
	struct net *net;		/* held by the socket */
	struct sockaddr_storage addr;
	bool v6only;
	unsigned int users;		/* hub_mutex */
	struct swp_lls lls;
	struct delayed_work accept_work;
	struct swp_llp *held;		/* accepted, no memory for an endpoint */
	unsigned long held_until;
	spinlock_t lock;		/* protects the list below */
	struct list_head listeners;
};

struct swp_listener {
	struct kref ref;
	struct swp_device *dev;
	struct list_head dev_entry;	/* dev->cm_lock */
	struct swp_hub *hub;		/* NULL: other namespace, no socket */
	struct list_head hub_entry;	/* hub->lock */
	struct iw_cm_id *id;
	struct mem_cgroup *memcg;	/* pays for what strangers begin */

	spinlock_t lock;		/* protects all below */
	bool dead;			/* no event on id any more */
	struct list_head pending;	/* endpoints up to OFFERING */
	u32 npending;
	unsigned long hold_again;	/* of the hub's accept_work alone */
	struct list_head reported;	/* and those in REPORTED */
	/* pending, by the source of the connection */
	struct hlist_head sources[SWP_SOURCES];
};

static struct workqueue_struct *swp_cm_wq;
/*
 * One at a time: connections come up in the order in which they were begun, and
 * with them the events.  Programs with several QPs count on it (perftest).
 */
static struct workqueue_struct *swp_cm_ordered_wq;
static DECLARE_WAIT_QUEUE_HEAD(swp_cm_idle);
static siphash_key_t swp_source_key;
static DEFINE_MUTEX(hub_mutex);
static LIST_HEAD(hubs);
/*
 * Endpoints in REPORTED.  iw_cm hands a handle back with the answer, not a
 * pointer, so that an endpoint may end while a late answer is still possible, or
 * iw_cm has dropped the request and none will come.  A handle is never used
 * again.
 */
static DEFINE_XARRAY_FLAGS(swp_asked, XA_FLAGS_LOCK_BH);
static atomic_long_t swp_last_handle = ATOMIC_LONG_INIT(0);

static const struct swp_llp_ops swp_ep_llp_ops;
static const struct swp_conn_ops swp_ep_conn_ops;

/* Listener and endpoint lifetime ------------------------------------------- */

/* The device waits for this, so whoever has a reference may use lis->dev. */
static void swp_listener_free(struct kref *ref)
{
	struct swp_listener *lis = container_of(ref, struct swp_listener, ref);

	spin_lock_bh(&lis->dev->cm_lock);
	lis->dev->num_listeners--;
	spin_unlock_bh(&lis->dev->cm_lock);
	wake_up_all(&swp_cm_idle);
	mem_cgroup_put(lis->memcg);
	kfree(lis);
}

static void swp_listener_put(struct swp_listener *lis)
{
	kref_put(&lis->ref, swp_listener_free);
}

static void swp_ep_free_handshake(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;

	if (!hs)
		return;
	if (hs->in != hs->head)
		kfree(hs->in);
	kfree(hs->pd);
	kfree(hs);
	ep->hs = NULL;
}

/* The device waits for this, so whoever has a reference may use ep->dev. */
static void swp_ep_free(struct kref *ref)
{
	struct swp_ep *ep = container_of(ref, struct swp_ep, ref);

	spin_lock_bh(&ep->dev->cm_lock);
	list_del(&ep->dev_entry);
	swp_stat_add(ep->dev, CONN_NOW, -1);
	spin_unlock_bh(&ep->dev->cm_lock);
	wake_up_all(&swp_cm_idle);
	mutex_destroy(&ep->mutex);
	swp_ep_free_handshake(ep);
	kfree(ep);
}

static void swp_ep_put(struct swp_ep *ep)
{
	kref_put(&ep->ref, swp_ep_free);
}

/* Who handed over a socket may take its time when it is called. */
static struct workqueue_struct *swp_ep_wq(const struct swp_ep *ep)
{
	return ep->user ? swp_cm_wq : swp_cm_ordered_wq;
}

/* Any context; the caller knows that the endpoint is alive. */
static void swp_ep_kick(struct swp_ep *ep)
{
	kref_get(&ep->ref);
	if (queue_delayed_work(swp_ep_wq(ep), &ep->work, 0))
		return;
	/* it keeps its place among the others, but does not wait any longer */
	if (!timer_pending(&ep->work.timer) ||
	    mod_delayed_work(swp_ep_wq(ep), &ep->work, 0))
		swp_ep_put(ep);
}

static void swp_ep_kick_later(struct swp_ep *ep, unsigned int ms)
{
	kref_get(&ep->ref);
	if (!queue_delayed_work(swp_ep_wq(ep), &ep->work, msecs_to_jiffies(ms)))
		swp_ep_put(ep);
}

static void swp_ep_start_timer(struct swp_ep *ep, unsigned int ms)
{
	kref_get(&ep->ref);
	if (!queue_delayed_work(swp_cm_wq, &ep->timer, msecs_to_jiffies(ms)))
		swp_ep_put(ep);
}

static void swp_ep_restart_timer(struct swp_ep *ep, unsigned int ms)
{
	kref_get(&ep->ref);
	if (mod_delayed_work(swp_cm_wq, &ep->timer, msecs_to_jiffies(ms)))
		swp_ep_put(ep);
}

static void swp_ep_stop_timer(struct swp_ep *ep)
{
	if (cancel_delayed_work(&ep->timer))
		swp_ep_put(ep);
}

static void swp_ep_work(struct work_struct *work);
static void swp_ep_timeout(struct work_struct *work);

/*
 * An endpoint in the device's list, locked, with a reference for the caller besides
 * the first one: as soon as it is in the list it may be killed, by a work item that
 * waits for the mutex.
 */
static struct swp_ep *swp_ep_new(struct swp_device *dev,
				 enum swp_ep_state state)
{
	struct swp_ep *ep;

	ep = kzalloc(sizeof(*ep), GFP_KERNEL_ACCOUNT);
	if (!ep)
		return ERR_PTR(-ENOMEM);
	ep->hs = kzalloc(sizeof(*ep->hs), GFP_KERNEL_ACCOUNT);
	if (!ep->hs) {
		kfree(ep);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&ep->ref);
	ep->hs->in = ep->hs->head;
	ep->hs->room = sizeof(ep->hs->head);
	ep->dev = dev;
	swp_policy_read(dev, &ep->hs->policy);
	ep->hs->max_rev = ep->hs->policy.revision;
	ep->state = state;
	mutex_init(&ep->mutex);
	spin_lock_init(&ep->ev_lock);
	INIT_DELAYED_WORK(&ep->work, swp_ep_work);
	INIT_DELAYED_WORK(&ep->timer, swp_ep_timeout);
	INIT_LIST_HEAD(&ep->lis_entry);

	mutex_lock(&ep->mutex);
	kref_get(&ep->ref);
	spin_lock_bh(&dev->cm_lock);
	if (dev->cm_dead) {
		spin_unlock_bh(&dev->cm_lock);
		mutex_unlock(&ep->mutex);
		kfree(ep->hs);
		kfree(ep);
		return ERR_PTR(-ENODEV);
	}
	list_add_tail(&ep->dev_entry, &dev->eps);
	swp_stat_inc(dev, CONN_NOW);
	spin_unlock_bh(&dev->cm_lock);
	return ep;
}

static void swp_listener_pending_less(struct swp_listener *lis,
				      struct swp_ep *ep)
{
	lockdep_assert_held(&lis->lock);
	hlist_del_init(&ep->source_entry);
	lis->npending--;
}

/* No answer finds the endpoint any more.  Under ep->mutex. */
static void swp_ep_drop_handle(struct swp_ep *ep)
{
	if (!ep->handle)
		return;
	xa_erase_bh(&swp_asked, ep->handle);
	ep->handle = 0;
}

/* Frees what start-up needed.  Under ep->mutex. */
static void swp_ep_end_handshake(struct swp_ep *ep)
{
	struct swp_listener *lis = ep->lis;

	swp_ep_drop_handle(ep);
	if (lis) {
		spin_lock_bh(&lis->lock);
		list_del_init(&ep->lis_entry);
		if (ep->state < SWP_EP_REPORTED)
			swp_listener_pending_less(lis, ep);
		spin_unlock_bh(&lis->lock);
		ep->lis = NULL;
		swp_listener_put(lis);
	}
	/* after the listener, which may have started it */
	swp_ep_stop_timer(ep);
	if (ep->qp) {
		swp_qp_unclaim(ep->qp, ep);
		swp_qp_put(ep->qp);
		ep->qp = NULL;
	}
	if (ep->net) {
		put_net(ep->net);
		ep->net = NULL;
	}
}

enum swp_drop {
	SWP_DROP_RST,
	SWP_DROP_FIN,
};

/* Takes the stream from the endpoint and ends it.  Under ep->mutex. */
static void swp_ep_drop_llp(struct swp_ep *ep, enum swp_drop how)
{
	if (!ep->llp)
		return;
	swp_llp_set_owner(ep->llp, NULL, NULL);
	if (how == SWP_DROP_FIN)
		swp_llp_shutdown(ep->llp);
	else
		swp_llp_abort(ep->llp);
	swp_llp_put(ep->llp);
	ep->llp = NULL;
}

/*
 * A rejection ends MPA, not the stream: the consumer of startup.h may go on with
 * its socket.  Under ep->mutex.
 */
static void swp_ep_give_back(struct swp_ep *ep)
{
	struct swp_llp *llp = ep->llp;

	if (!llp || !ep->user || !ep->user->rejected)
		return;
	ep->llp = NULL;
	swp_llp_set_owner(llp, NULL, NULL);
	ep->user->rejected(ep->ctx, swp_llp_give_back(llp));
}

/*
 * The end: the first reference goes.  Once per endpoint, by a caller that has
 * a reference of its own.
 */
static void swp_ep_finish(struct swp_ep *ep)
{
	if (ep->id) {
		ep->id->rem_ref(ep->id);
		ep->id = NULL;
	}
	swp_ep_put(ep);
}

/* Events ------------------------------------------------------------------- */

static u8 swp_event_depth(const struct swp_mpa_frame *f, u16 value)
{
	/* nothing was said: what we could do at most */
	if (!f->enhanced || value == SWP_MPA_DEPTH_NONE)
		value = min_t(uint, swp_params.max_ird, SWP_MAX_ORD);
	return min_t(u16, value, SWP_EVENT_DEPTH_MAX);
}

static void swp_ep_user_peer(const struct swp_mpa_frame *f,
			     struct swp_startup_peer *peer)
{
	*peer = (struct swp_startup_peer) {
		.private_data = f->pd,
		.private_data_len = f->pd_len,
		.enhanced = f->enhanced,
		.ird = f->ird,
		.ord = f->ord,
	};
}

/* @f: the peer's frame, or NULL.  Under ep->mutex. */
static void swp_ep_user_done(struct swp_ep *ep, int status,
			     const struct swp_mpa_frame *f)
{
	struct swp_startup_peer peer;

	if (f)
		swp_ep_user_peer(f, &peer);
	ep->user->done(ep->ctx, status, f ? &peer : NULL);
}

/*
 * The answer to a connect, exactly one.  @f: the peer's Reply, or NULL.
 * Under ep->mutex.
 */
static void swp_ep_reply_event(struct swp_ep *ep, int status,
			       const struct swp_mpa_frame *f)
{
	struct iw_cm_event ev = {
		.event = IW_CM_EVENT_CONNECT_REPLY,
		.status = status,
	};
	int tries;

	if (status)
		swp_stat_inc(ep->dev, CONN_FAILED);
	else
		swp_stat_inc(ep->dev, CONN_ACTIVE);
	if (ep->user) {
		swp_ep_user_done(ep, status, f);
		return;
	}
	ev.local_addr = ep->id->m_local_addr;
	ev.remote_addr = ep->id->m_remote_addr;
	if (f) {
		ev.ird = swp_event_depth(f, f->ird);
		ev.ord = swp_event_depth(f, f->ord);
		if (f->pd_len && f->pd_len <= SWP_EVENT_PD_MAX) {
			ev.private_data = (void *)f->pd;
			ev.private_data_len = f->pd_len;
		}
	}
	/*
	 * The caller of rdma_connect() waits for this event, and iw_cm copies
	 * the private data with an atomic allocation: it has to succeed.
	 */
	for (tries = 0; ep->id->event_handler(ep->id, &ev); tries++) {
		if (WARN_ON_ONCE(tries > SWP_REPLY_TRIES))
			break;
		if (tries == SWP_REPLY_TRIES) {
			ibdev_err(&ep->dev->base,
				  "no memory for the private data of a Reply\n");
			ev.private_data_len = 0;
		}
		msleep(SWP_OFFER_RETRY_MS);
	}
}

static void swp_ep_event(struct swp_ep *ep, enum iw_cm_event_type type,
			 int error)
{
	/*
	 * No status: rdma_cm hands it to rdma_disconnect(), whose success does
	 * not depend on how the peer ended.  Failed requests tell the reason.
	 */
	struct iw_cm_event ev = { .event = type };

	lockdep_assert_held(&ep->ev_lock);
	if (ep->user) {
		if (type == IW_CM_EVENT_CLOSE)
			ep->user->closed(ep->ctx, error);
		else
			ep->user->disconnect(ep->ctx);
		return;
	}
	/* iw_cm keeps a slot for each of these */
	WARN_ON_ONCE(ep->id->event_handler(ep->id, &ev));
}

/*
 * iw_cm has been told that the connection is up, so it may now hear of its end.
 * The QP's reference covers the call: it is dropped here when closed() came
 * early.  Under ep->mutex.
 */
static void swp_ep_told_up(struct swp_ep *ep)
{
	bool closed;

	spin_lock_bh(&ep->ev_lock);
	ep->told_up = true;
	closed = ep->closed;
	if (ep->fin)
		swp_ep_event(ep, IW_CM_EVENT_DISCONNECT, 0);
	if (closed)
		swp_ep_event(ep, IW_CM_EVENT_CLOSE, ep->error);
	spin_unlock_bh(&ep->ev_lock);
	if (closed)
		swp_ep_finish(ep);
}

static void swp_ep_peer_fin(void *conn)
{
	struct swp_ep *ep = conn;

	spin_lock_bh(&ep->ev_lock);
	if (ep->told_up)
		swp_ep_event(ep, IW_CM_EVENT_DISCONNECT, 0);
	else
		ep->fin = true;
	spin_unlock_bh(&ep->ev_lock);
}

static void swp_ep_closed(void *conn, int error)
{
	struct swp_ep *ep = conn;
	bool told_up;

	ibdev_dbg(&ep->dev->base, "connection ended: %d\n", error);
	spin_lock_bh(&ep->ev_lock);
	told_up = ep->told_up;
	ep->error = error;
	if (told_up)
		swp_ep_event(ep, IW_CM_EVENT_CLOSE, error);
	else
		ep->closed = true;
	spin_unlock_bh(&ep->ev_lock);
	if (told_up)
		swp_ep_finish(ep);
	swp_ep_put(ep);
}

static const struct swp_conn_ops swp_ep_conn_ops = {
	.peer_fin = swp_ep_peer_fin,
	.closed = swp_ep_closed,
};

/* Start-up common to both sides -------------------------------------------- */

/*
 * Nobody has the work look for nothing: while it waits for its turn, what comes
 * last of all would be seen before what others have waited for longer.
 */
static void swp_ep_llp_data(struct swp_llp *llp)
{
	if (swp_llp_has_news(llp))
		swp_ep_kick(llp->owner);
}

static void swp_ep_llp_state(struct swp_llp *llp)
{
	struct swp_ep *ep = llp->owner;

	/* the passive side is connected from the start */
	if (READ_ONCE(ep->lis) ? swp_llp_has_news(llp) :
				 !swp_llp_is_connecting(llp))
		swp_ep_kick(ep);
}

static void swp_ep_llp_write_space(struct swp_llp *llp)
{
	/* frames are smaller than any send buffer */
}

static const struct swp_llp_ops swp_ep_llp_ops = {
	.data_ready = swp_ep_llp_data,
	.write_space = swp_ep_llp_write_space,
	.state_change = swp_ep_llp_state,
};

static void swp_local_init(struct swp_handshake *hs, u32 ird, u32 ord)
{
	const struct swp_policy *policy = &hs->policy;
	struct swp_mpa_local *l = &hs->local;

	l->max_ird = min_t(uint, swp_params.max_ird, SWP_MAX_ORD);
	l->ird = min_t(u32, ird, l->max_ird);
	l->ord = min_t(u32, ord, SWP_MAX_ORD);
	l->rtr = policy->rtr;
	l->p2p = policy->p2p;
	l->crc = policy->crc != SWP_CRC_OFF;
	l->markers = policy->markers;
}

/* Required is a peer that asks by itself, not one that follows our wish. */
static bool swp_crc_missing(const struct swp_handshake *hs,
			    const struct swp_mpa_frame *f)
{
	return hs->policy.crc == SWP_CRC_REQUIRE && !f->crc;
}

static void swp_stream_init(struct swp_stream_params *p,
			    const struct swp_handshake *hs, u8 rev,
			    const struct swp_mpa_result *res, bool initiator)
{
	*p = (struct swp_stream_params) {
		.mpa_rev = rev,
		.crc = res->crc,
		.tx_markers = res->tx_markers,
		.rx_markers = res->rx_markers,
		/* RFC 7306 came later than the Consortium's version */
		.accept = rev == SWP_MPA_REV_RDMAC ? SWP_ACCEPT_RDMAC :
			  hs->policy.extensions ? SWP_ACCEPT_EXT : 0,
		.initiator = initiator,
		.rtr = res->rtr,
		.ird = res->ird,
		.ord = res->ord,
	};
}

/* Room for @len octets of the peer's frame, at the expense of the listener. */
static int swp_handshake_room(struct swp_handshake *hs, size_t len,
			      const struct swp_listener *lis)
{
	struct mem_cgroup *old = NULL;
	u8 *in;

	if (len <= hs->room)
		return 0;
	if (lis)
		old = set_active_memcg(lis->memcg);
	in = kmalloc(len, GFP_KERNEL_ACCOUNT);
	if (lis)
		set_active_memcg(old);
	if (!in)
		return -ENOMEM;
	memcpy(in, hs->in, hs->got);
	if (hs->in != hs->head)
		kfree(hs->in);
	hs->in = in;
	hs->room = len;
	return 0;
}

/*
 * Reads what there is of a frame and nothing of what follows it.  0 when the
 * frame is complete, -EAGAIN, -ECONNRESET at the end of the stream, the
 * socket's error, or an error of swp_mpa_decode().
 */
static int swp_ep_gather(struct swp_ep *ep, enum swp_mpa_kind kind,
			 struct swp_mpa_frame *f)
{
	struct swp_handshake *hs = ep->hs;
	u8 min_rev = hs->policy.rdmac ? SWP_MPA_REV_RDMAC : SWP_MPA_REV_MIN;
	size_t need;
	int ret;

	for (;;) {
		ret = swp_mpa_decode(kind, min_rev, hs->max_rev, hs->in,
				     hs->got, f, &need);
		if (ret != -EAGAIN)
			return ret;
		ret = swp_handshake_room(hs, need, ep->lis);
		if (ret)
			return ret;
		ret = swp_llp_recv(ep->llp, hs->in + hs->got, need - hs->got);
		if (ret < 0)
			return ret;
		if (!ret)
			return -ECONNRESET;
		hs->got += ret;
	}
}

static bool swp_mpa_malformed(int err)
{
	return err == -EBADMSG || err == -EPROTONOSUPPORT ||
	       err == -EMSGSIZE || err == -EPROTO;
}

/*
 * RFC 5044 section 7.1.2, rule 9: a frame with more private data than the ULP
 * takes, which for iw_cm's are 255 octets, counts as improperly formed.
 */
static bool swp_pd_too_long(struct swp_ep *ep, const char *what,
			    const struct swp_mpa_frame *f)
{
	if (f->pd_len <= SWP_EVENT_PD_MAX || ep->user)
		return false;
	ibdev_warn_ratelimited(&ep->dev->base,
			       "%s with %u octets of private data, iw_cm takes %u\n",
			       what, f->pd_len, SWP_EVENT_PD_MAX);
	swp_stat_inc(ep->dev, MPA_PD_LONG);
	return true;
}

/*
 * What is not sent yet of a frame.  -EAGAIN: there is no memory for it, and the
 * caller has to come again, with the same frame.
 */
static int swp_ep_send_frame(struct swp_ep *ep, enum swp_mpa_kind kind,
			     const struct swp_mpa_frame *f)
{
	u8 out[SWP_MPA_FRAME_MAX];
	int len = swp_mpa_encode(kind, f, out);

	if (len < 0)
		return len;
	return swp_llp_send(ep->llp, out, len, &ep->hs->sent);
}

/*
 * The Reply, in the time of the ULP that gives the answer.  A peer whose enhanced
 * Request is answered with the end of the stream would take us for one that knows
 * revision 1 only, so memory is waited for.
 */
static int swp_ep_send_reply(struct swp_ep *ep, const struct swp_mpa_frame *f)
{
	unsigned long until = jiffies +
			      msecs_to_jiffies(swp_params.handshake_ms);
	int ret;

	for (;;) {
		ret = swp_ep_send_frame(ep, SWP_MPA_REPLY, f);
		if (ret != -EAGAIN || READ_ONCE(ep->kill) ||
		    time_after(jiffies, until))
			return ret;
		msleep(SWP_MEMORY_RETRY_MS);
	}
}

/* RFC 6581 section 8: tells why the stream cannot be used. */
static void swp_ep_send_terminate(struct swp_ep *ep, u8 code,
				  const struct swp_mpa_result *res)
{
	const struct swp_term term = {
		.layer = SWP_LAYER_LLP,
		.etype = SWP_LLP_ET_MPA,
		.code = code,
	};
	/* a marker would stand in front, and it is all zeros there */
	u8 buf[SWP_MARKER_LEN + SWP_MPA_LEN + SWP_UNTAGGED_LEN + SWP_TERM_MAX +
	       3 + SWP_MPA_CRC_LEN] = {};
	u8 *fpdu = buf + (res->tx_markers ? SWP_MARKER_LEN : 0);
	size_t sent = 0;
	u32 ulpdu, len;
	__le32 sum = 0;

	swp_untagged_encode(fpdu + SWP_MPA_LEN, SWP_RDMAP_TERMINATE, true, 0,
			    SWP_QN_TERMINATE, 1, 0);
	ulpdu = SWP_UNTAGGED_LEN +
		swp_term_encode(fpdu + SWP_MPA_LEN + SWP_UNTAGGED_LEN, &term,
				NULL, 0, 0, NULL);
	fpdu[0] = ulpdu >> 8;
	fpdu[1] = ulpdu;
	len = fpdu - buf + swp_fpdu_len(ulpdu);
	if (res->crc)
		sum = cpu_to_le32(~swp_crc32c(~0U, buf,
					      len - SWP_MPA_CRC_LEN));
	memcpy(buf + len - SWP_MPA_CRC_LEN, &sum, sizeof(sum));
	if (!swp_llp_send(ep->llp, buf, len, &sent))
		swp_stat_terminate(ep->dev, true, term.layer, term.etype,
				   term.code);
}

/* Keeps the ULP's private data for the Request. */
static int swp_handshake_pd(struct swp_handshake *hs, const void *pd, u16 len)
{
	if (!len)
		return 0;
	hs->pd = kmemdup(pd, len, GFP_KERNEL_ACCOUNT);
	if (!hs->pd)
		return -ENOMEM;
	hs->pd_len = len;
	return 0;
}

/* Active side -------------------------------------------------------------- */

/* The connect failed; @f: the peer's Reply, if there was one. */
static void swp_ep_connect_failed(struct swp_ep *ep, int err,
				  const struct swp_mpa_frame *f,
				  enum swp_drop how)
{
	if (err == -ECONNREFUSED && f)
		swp_ep_give_back(ep);
	swp_ep_drop_llp(ep, how);
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_DEAD;
	swp_ep_reply_event(ep, err, f);
	swp_ep_finish(ep);
}

/* Opens the TCP connection; progress comes through the socket's callbacks. */
static int swp_ep_open(struct swp_ep *ep)
{
	struct iw_cm_id *id = ep->id;
	struct swp_llp *llp;
	int ret;

	llp = swp_llp_open(ep->net, &id->m_local_addr,
			   id->tos_set ? id->tos : -1);
	if (IS_ERR(llp))
		return PTR_ERR(llp);
	ret = swp_llp_connect(llp, &id->m_remote_addr);
	if (ret && ret != -EINPROGRESS) {
		swp_llp_put(llp);
		return ret;
	}
	ep->llp = llp;
	ep->hs->sent = 0;
	ep->state = SWP_EP_CONNECTING;
	swp_llp_set_owner(llp, &swp_ep_llp_ops, ep);
	return 0;
}

static void swp_ep_connecting(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	int ret;

	ret = swp_llp_connect_result(ep->llp);
	if (ret == -EINPROGRESS)
		return;
	if (ret) {
		swp_ep_connect_failed(ep, ret, NULL, SWP_DROP_RST);
		return;
	}

	swp_mpa_request(&hs->local, hs->max_rev, &hs->mine);
	/* what answers it has no higher one */
	hs->max_rev = hs->mine.rev;
	hs->mine.pd = hs->pd;
	hs->mine.pd_len = hs->pd_len;
	hs->got = 0;
	ret = swp_ep_send_frame(ep, SWP_MPA_REQUEST, &hs->mine);
	if (ret == -EAGAIN) {
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
		return;
	}
	if (ret) {
		swp_ep_connect_failed(ep, ret, NULL, SWP_DROP_RST);
		return;
	}
	ep->state = SWP_EP_WAIT_REPLY;
	/* from here on it is the peer's ULP that takes its time */
	swp_ep_restart_timer(ep, swp_params.reply_ms);
	/* whoever answers before he is asked is not heard of again */
	if (swp_llp_peek(ep->llp) != -EAGAIN)
		swp_ep_kick(ep);
}

/*
 * RFC 6581 section 10: a peer that knows revision 1 only closes when it sees an
 * enhanced Request.  True when another attempt has begun.
 */
static bool swp_ep_fall_back(struct swp_ep *ep, int err)
{
	struct swp_handshake *hs = ep->hs;

	/* who handed over a socket has no other */
	if (hs->got || hs->retried || !hs->mine.enhanced ||
	    !hs->policy.fallback || ep->user)
		return false;
	if (err != -ECONNRESET && err != -EPIPE)
		return false;
	ibdev_dbg(&ep->dev->base, "peer closed on MPA revision 2, trying 1\n");
	hs->retried = true;
	hs->max_rev = 1;
	swp_ep_drop_llp(ep, SWP_DROP_FIN);
	return !swp_ep_open(ep);
}

/*
 * The Reply was good and this end cannot go on.  RFC 6581 section 9.3: an
 * enhanced peer hears it in a Terminate, the only FPDU of this stream.
 */
static void swp_ep_give_up(struct swp_ep *ep, int err, u8 code,
			   const struct swp_mpa_result *res)
{
	enum swp_drop how = SWP_DROP_RST;

	if (ep->hs->mine.enhanced) {
		swp_ep_send_terminate(ep, code, res);
		how = SWP_DROP_FIN;
	}
	swp_ep_connect_failed(ep, err, NULL, how);
}

static void swp_ep_start_active(struct swp_ep *ep,
				const struct swp_mpa_frame *reply,
				const struct swp_mpa_result *res)
{
	struct swp_stream_params p;
	int ret;

	if (swp_pd_too_long(ep, "Reply", reply)) {
		swp_ep_give_up(ep, -EMSGSIZE, SWP_MPA_E_LOCAL, res);
		return;
	}

	swp_stream_init(&p, ep->hs, reply->rev, res, true);
	kref_get(&ep->ref);
	ret = swp_qp_start(ep->qp, ep->llp, &p, &swp_ep_conn_ops, ep);
	if (ret) {
		swp_ep_put(ep);
		swp_ep_give_up(ep, ret, SWP_MPA_E_LOCAL, res);
		return;
	}
	ep->state = SWP_EP_RUNNING;
	swp_llp_put(ep->llp);
	ep->llp = NULL;
	swp_ep_end_handshake(ep);
	swp_ep_reply_event(ep, 0, reply);
	swp_ep_free_handshake(ep);
	swp_ep_told_up(ep);
}

static void swp_ep_reply(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	enum swp_mpa_verdict verdict;
	struct swp_mpa_result res;
	struct swp_mpa_frame f;
	u8 code;
	int ret;

	ret = swp_ep_gather(ep, SWP_MPA_REPLY, &f);
	if (ret == -EAGAIN)
		return;
	if (ret == -ENOMEM) {
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
		return;
	}
	if (ret) {
		if (swp_ep_fall_back(ep, ret))
			return;
		if (swp_mpa_malformed(ret)) {
			ibdev_warn_ratelimited(&ep->dev->base,
					       "invalid MPA Reply from %pISpc (%d)\n",
					       &hs->remote, ret);
			swp_stat_inc(ep->dev, MPA_BAD);
			ret = -EPROTO;
		}
		swp_ep_connect_failed(ep, ret, NULL, SWP_DROP_RST);
		return;
	}

	verdict = swp_mpa_conclude(&hs->local, &hs->mine, &f, &res);
	if (verdict == SWP_MPA_AGREED && swp_crc_missing(hs, &f))
		verdict = SWP_MPA_INVALID;
	switch (verdict) {
	case SWP_MPA_AGREED:
		swp_ep_start_active(ep, &f, &res);
		return;
	case SWP_MPA_REJECTED:
		if (swp_pd_too_long(ep, "rejection", &f)) {
			swp_ep_connect_failed(ep, -EMSGSIZE, NULL,
					      SWP_DROP_RST);
			return;
		}
		swp_stat_inc(ep->dev, MPA_REJECTED);
		swp_ep_connect_failed(ep, -ECONNREFUSED, &f, SWP_DROP_FIN);
		return;
	case SWP_MPA_NO_IRD:
		code = SWP_MPA_E_IRD;
		break;
	case SWP_MPA_NO_RTR:
		code = SWP_MPA_E_RTR;
		break;
	case SWP_MPA_INVALID:
	default:
		ibdev_warn_ratelimited(&ep->dev->base,
				       "MPA Reply from %pISpc does not fit (%s)\n",
				       &hs->remote,
				       swp_crc_missing(hs, &f) ?
				       "no CRC" : "not enhanced");
		swp_stat_inc(ep->dev, MPA_BAD);
		swp_ep_connect_failed(ep, -EPROTO, NULL, SWP_DROP_RST);
		return;
	}
	ibdev_warn_ratelimited(&ep->dev->base,
			       "MPA negotiation with %pISpc failed: %s\n",
			       &hs->remote,
			       code == SWP_MPA_E_IRD ? "peer's ORD" :
						       "no common RTR");
	swp_ep_give_up(ep, -EPROTO, code, &res);
}

/*
 * The QP that an id names, for the endpoint: with a reference and a claim, until
 * start-up is over.  A QP of the kernel is for the id that it was made with (no
 * consumer in the tree connects another), a program's for its owner; iw_cm's
 * only user is rdma_cm, whose id is the context.  Under ep->mutex.
 */
static int swp_ep_take_qp(struct swp_ep *ep, const struct iw_cm_id *id, u32 qpn)
{
	const struct rdma_cm_id *cid = id->context;
	struct swp_qp *qp;
	int ret = -EINVAL;
	bool may;

	if (!cid || cid->device != id->device)
		return -EINVAL;
	qp = swp_qp_lookup(ep->dev, qpn);
	if (!qp)
		return -EINVAL;
	if (cid->qp)
		may = cid->qp == &qp->base && !qp->user;
	else
		may = qp->user && swp_qp_may_connect(qp);
	if (may)
		ret = swp_qp_claim(qp, ep);
	else
		ibdev_warn_ratelimited(&ep->dev->base,
				       "%s wants to connect qp %u of somebody else\n",
				       current->comm, qpn);
	if (ret) {
		swp_qp_put(qp);
		return ret;
	}
	ep->qp = qp;
	ep->qpn = qpn;
	return 0;
}

int swp_cm_connect(struct iw_cm_id *id, struct iw_cm_conn_param *param)
{
	struct swp_device *dev = to_swp_dev(id->device);
	struct swp_ep *ep;
	int ret;

	if (id->m_local_addr.ss_family != id->m_remote_addr.ss_family ||
	    (id->m_local_addr.ss_family != AF_INET &&
	     id->m_local_addr.ss_family != AF_INET6))
		return -EAFNOSUPPORT;

	/* all of it under the mutex: callbacks and device removal wait */
	ep = swp_ep_new(dev, SWP_EP_CONNECTING);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	id->add_ref(id);
	ep->id = id;
	ep->hs->remote = id->m_remote_addr;
	swp_local_init(ep->hs, param->ird, param->ord);
	swp_mpa_request(&ep->hs->local, ep->hs->max_rev, &ep->hs->mine);
	ret = -EINVAL;
	if (param->private_data_len > swp_mpa_pd_room(&ep->hs->mine))
		goto err;
	ret = swp_handshake_pd(ep->hs, param->private_data,
			       param->private_data_len);
	if (ret)
		goto err;
	ret = swp_ep_take_qp(ep, id, param->qpn);
	if (ret)
		goto err;
	rcu_read_lock();
	ep->net = maybe_get_net(dev_net(dev->netdev));
	rcu_read_unlock();
	ret = -ENODEV;
	if (!ep->net)
		goto err;

	swp_ep_start_timer(ep, swp_params.handshake_ms);
	ret = swp_ep_open(ep);
	if (ret)
		goto err;
	id->provider_data = ep;
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
	return 0;

err:
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_DEAD;
	swp_ep_finish(ep);
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
	return ret;
}

/* Passive side ------------------------------------------------------------- */

/* iw_cm was not told of it, or does not care any more. */
static void swp_ep_discard(struct swp_ep *ep, int err, enum swp_drop how)
{
	swp_ep_drop_llp(ep, how);
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_DEAD;
	if (ep->user)
		swp_ep_user_done(ep, err, NULL);
	swp_ep_finish(ep);
}

static void swp_ep_send_refusal(struct swp_ep *ep, const void *pd, u16 len)
{
	struct swp_handshake *hs = ep->hs;
	struct swp_mpa_frame rep;

	swp_mpa_refuse(&hs->local, &hs->peer, &rep);
	rep.pd = pd;
	rep.pd_len = len;
	/* while memory is waited for, nobody has to look at what comes */
	swp_llp_set_owner(ep->llp, NULL, NULL);
	/* a peer that is gone already needs no refusal */
	if (!swp_ep_send_reply(ep, &rep))
		swp_stat_inc(ep->dev, MPA_REJECTED);
}

/* The same from the work item, which must not wait; false: not yet. */
static bool swp_ep_try_refusal(struct swp_ep *ep)
{
	struct swp_mpa_frame rep;
	int ret;

	swp_mpa_refuse(&ep->hs->local, &ep->hs->peer, &rep);
	ret = swp_ep_send_frame(ep, SWP_MPA_REPLY, &rep);
	if (!ret)
		swp_stat_inc(ep->dev, MPA_REJECTED);
	return ret != -EAGAIN;
}

/* Tells the ULP of the Request, as soon as iw_cm has room for it. */
static void swp_ep_offer(struct swp_ep *ep)
{
	struct swp_listener *lis = ep->lis;
	struct swp_handshake *hs = ep->hs;
	struct iw_cm_event ev = {
		.event = IW_CM_EVENT_CONNECT_REQUEST,
		.private_data = (void *)hs->peer.pd,
		.private_data_len = hs->peer.pd_len,
		.ird = swp_event_depth(&hs->peer, hs->peer.ird),
		.ord = swp_event_depth(&hs->peer, hs->peer.ord),
	};
	int ret;

	ret = swp_llp_names(ep->llp, &ev.local_addr, &ev.remote_addr, NULL);
	if (ret) {
		swp_ep_discard(ep, ret, SWP_DROP_RST);
		return;
	}

	if (!ep->handle) {
		unsigned long handle = atomic_long_inc_return(&swp_last_handle);

		ret = xa_insert_bh(&swp_asked, handle, ep, GFP_KERNEL);
		if (ret == -ENOMEM)
			goto later;
		if (ret) {
			swp_ep_discard(ep, ret, SWP_DROP_RST);
			return;
		}
		ep->handle = handle;
	}
	ev.provider_data = (void *)ep->handle;

	/* accept and reject may come at once; they wait for the mutex */
	spin_lock_bh(&lis->lock);
	ret = lis->dead ? -ESHUTDOWN : lis->id->event_handler(lis->id, &ev);
	if (!ret) {
		ep->state = SWP_EP_REPORTED;
		list_move_tail(&ep->lis_entry, &lis->reported);
		swp_listener_pending_less(lis, ep);
	}
	spin_unlock_bh(&lis->lock);
	if (ret == -ENOMEM)
		goto later;
	if (ret) {
		swp_ep_discard(ep, ret, SWP_DROP_RST);
	} else {
		/* from here on the ULP takes what time it needs */
		swp_ep_stop_timer(ep);
		/* look at what came behind the Request */
		swp_ep_kick(ep);
	}
	return;

later:
	ep->state = SWP_EP_OFFERING;
	swp_ep_kick_later(ep, SWP_OFFER_RETRY_MS);
}

/*
 * Something is there behind the Request: octets, or the end of the stream.
 * Returns the error that this is.
 */
static int swp_ep_spoke_early(struct swp_ep *ep)
{
	const struct swp_handshake *hs = ep->hs;
	int ret = swp_llp_peek(ep->llp);

	if (ret <= 0 && hs->got <= swp_mpa_frame_len(&hs->peer))
		return ret ? ret : -ECONNRESET;
	ibdev_warn_ratelimited(&ep->dev->base,
			       "peer sends before the MPA Reply\n");
	swp_stat_inc(ep->dev, MPA_BAD);
	return -EPROTO;
}

static void swp_ep_request(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	int ret;

	ret = swp_ep_gather(ep, SWP_MPA_REQUEST, &hs->peer);
	if (ret == -EAGAIN)
		return;
	if (ret == -ENOMEM) {
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
		return;
	}
	if (ret) {
		if (swp_mpa_malformed(ret)) {
			ibdev_warn_ratelimited(&ep->dev->base,
					       "invalid MPA Request (%d)\n",
					       ret);
			swp_stat_inc(ep->dev, MPA_BAD);
			ret = -EPROTO;
		} else {
			swp_stat_inc(ep->dev, CONN_FAILED);
		}
		swp_ep_discard(ep, ret, SWP_DROP_RST);
		return;
	}

	/*
	 * RFC 5044 section 7.1.2: nothing follows the Request before the Reply.
	 * What came in one segment with it is found here, later octets by
	 * swp_ep_reported().
	 */
	if (hs->got > swp_mpa_frame_len(&hs->peer) ||
	    swp_llp_peek(ep->llp) != -EAGAIN) {
		swp_ep_discard(ep, swp_ep_spoke_early(ep), SWP_DROP_RST);
		return;
	}

	swp_local_init(hs, swp_params.max_ird, SWP_MAX_ORD);
	if (swp_crc_missing(hs, &hs->peer)) {
		if (!swp_ep_try_refusal(ep)) {
			swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
			return;
		}
		ibdev_warn_ratelimited(&ep->dev->base,
				       "Request refused: peer without CRC\n");
		swp_ep_discard(ep, -EPROTO, SWP_DROP_FIN);
		return;
	}
	if (swp_pd_too_long(ep, "Request", &hs->peer)) {
		swp_ep_discard(ep, -EMSGSIZE, SWP_DROP_RST);
		return;
	}
	if (ep->user) {
		/* swp_ep_work() asks */
		ep->state = SWP_EP_REPORTED;
		swp_ep_stop_timer(ep);
		return;
	}
	swp_ep_offer(ep);
}

/*
 * The peer may neither send (RFC 5044 section 7.1.2) nor leave while the ULP
 * makes up its mind.
 */
static void swp_ep_reported(struct swp_ep *ep)
{
	if (swp_llp_peek(ep->llp) != -EAGAIN)
		swp_ep_discard(ep, swp_ep_spoke_early(ep), SWP_DROP_RST);
}

/*
 * The endpoint of a reported id, locked, with a reference; NULL if it has ended:
 * the peer has left, or nobody has answered since the listener went.
 */
static struct swp_ep *swp_ep_take(struct iw_cm_id *id)
{
	unsigned long handle = (unsigned long)id->provider_data;
	struct swp_ep *ep;

	id->provider_data = NULL;
	if (!handle)
		return NULL;
	/* it is taken from the table before its last reference goes */
	xa_lock_bh(&swp_asked);
	ep = xa_load(&swp_asked, handle);
	if (ep)
		kref_get(&ep->ref);
	xa_unlock_bh(&swp_asked);
	if (!ep)
		return NULL;
	mutex_lock(&ep->mutex);
	if (ep->state == SWP_EP_REPORTED) {
		swp_ep_drop_handle(ep);
		return ep;
	}
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
	return NULL;
}

static void swp_ep_release(struct swp_ep *ep)
{
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
}

/*
 * Gives the stream to the QP and sends the Reply.  On failure the endpoint is as
 * before.  Under ep->mutex.
 */
static int swp_ep_accept(struct swp_ep *ep, u32 ird, u32 ord, const void *pd,
			 u16 pd_len)
{
	struct swp_handshake *hs = ep->hs;
	struct swp_stream_params p;
	struct swp_mpa_result res;
	struct swp_mpa_frame rep;
	int ret;

	swp_local_init(hs, ird, ord);
	swp_mpa_respond(&hs->local, &hs->peer, &rep, &res);
	rep.pd = pd;
	rep.pd_len = pd_len;

	/*
	 * The QP first, so that it is there for whatever follows the Reply.
	 * As responder it sends nothing before the first FPDU came, which an
	 * initiator sends after it has the Reply.
	 */
	swp_stream_init(&p, hs, rep.rev, &res, false);
	kref_get(&ep->ref);
	ret = swp_qp_start(ep->qp, ep->llp, &p, &swp_ep_conn_ops, ep);
	if (ret) {
		swp_ep_put(ep);
		return ret;
	}
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_RUNNING;

	/* from here on a failure is the end of an established connection */
	if (swp_ep_send_reply(ep, &rep))
		swp_llp_abort(ep->llp);
	swp_llp_put(ep->llp);
	ep->llp = NULL;
	swp_stat_inc(ep->dev, CONN_PASSIVE);
	return 0;
}

int swp_cm_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param)
{
	enum swp_drop how = SWP_DROP_RST;
	struct swp_handshake *hs;
	struct iw_cm_event ev;
	struct swp_ep *ep;
	int ret;

	ep = swp_ep_take(id);
	if (!ep)
		return -ECONNRESET;
	hs = ep->hs;

	ret = READ_ONCE(ep->kill);
	if (ret)
		goto err;
	ret = -EINVAL;
	if (param->private_data_len > swp_mpa_pd_room(&hs->peer))
		goto err_refuse;
	/* octets or the end of the stream that nobody has looked at yet */
	if (swp_llp_peek(ep->llp) != -EAGAIN) {
		swp_ep_spoke_early(ep);
		ret = -ECONNRESET;
		goto err_drop;
	}
	ret = swp_ep_take_qp(ep, id, param->qpn);
	if (ret)
		goto err_refuse;
	id->add_ref(id);
	ep->id = id;
	ret = swp_ep_accept(ep, param->ird, param->ord, param->private_data,
			    param->private_data_len);
	if (ret)
		goto err_refuse;

	ev = (struct iw_cm_event) {
		.event = IW_CM_EVENT_ESTABLISHED,
		.ird = swp_event_depth(&hs->peer, hs->peer.ird),
		.ord = swp_event_depth(&hs->peer, hs->peer.ord),
	};
	WARN_ON_ONCE(id->event_handler(id, &ev));
	swp_ep_free_handshake(ep);
	swp_ep_told_up(ep);
	swp_ep_release(ep);
	return 0;

err_refuse:
	swp_ep_send_refusal(ep, NULL, 0);
err:
	how = SWP_DROP_FIN;
err_drop:
	swp_stat_inc(ep->dev, CONN_FAILED);
	swp_ep_discard(ep, ret, how);
	swp_ep_release(ep);
	return ret;
}

int swp_cm_reject(struct iw_cm_id *id, const void *pdata, u8 len)
{
	struct swp_ep *ep;

	ep = swp_ep_take(id);
	/* the peer may have left; that is no concern of who refuses it */
	if (!ep)
		return 0;
	swp_ep_send_refusal(ep, pdata, len);
	swp_ep_discard(ep, -ECONNREFUSED, SWP_DROP_FIN);
	swp_ep_release(ep);
	return 0;
}

/* The engine --------------------------------------------------------------- */

static void swp_ep_killed(struct swp_ep *ep)
{
	struct swp_qp *qp;

	switch (ep->state) {
	case SWP_EP_CONNECTING:
	case SWP_EP_WAIT_REPLY:
		/* connect() itself failed, or has not begun */
		if (ep->llp)
			swp_ep_connect_failed(ep, ep->kill, NULL,
					      SWP_DROP_RST);
		break;
	case SWP_EP_WAIT_REQUEST:
	case SWP_EP_OFFERING:
	case SWP_EP_REPORTED:
		swp_ep_discard(ep, ep->kill, SWP_DROP_RST);
		break;
	case SWP_EP_RUNNING:
		qp = swp_qp_lookup(ep->dev, ep->qpn);
		if (qp) {
			swp_qp_abort(qp);
			swp_qp_put(qp);
		}
		break;
	case SWP_EP_DEAD:
		break;
	}
}

static void swp_ep_work(struct work_struct *work)
{
	struct swp_ep *ep = container_of(to_delayed_work(work), struct swp_ep,
					 work);
	struct swp_startup_peer peer;
	bool ask;

	mutex_lock(&ep->mutex);
	if (ep->kill) {
		swp_ep_killed(ep);
		goto out;
	}
	switch (ep->state) {
	case SWP_EP_CONNECTING:
		swp_ep_connecting(ep);
		break;
	case SWP_EP_WAIT_REPLY:
		swp_ep_reply(ep);
		break;
	case SWP_EP_WAIT_REQUEST:
		swp_ep_request(ep);
		break;
	case SWP_EP_OFFERING:
		swp_ep_offer(ep);
		break;
	case SWP_EP_REPORTED:
		swp_ep_reported(ep);
		break;
	case SWP_EP_RUNNING:
	case SWP_EP_DEAD:
		/* a late kick */
		break;
	}
out:
	ask = ep->user && ep->state == SWP_EP_REPORTED && !ep->asked;
	if (ask) {
		ep->asked = true;
		swp_ep_user_peer(&ep->hs->peer, &peer);
	}
	mutex_unlock(&ep->mutex);
	if (ask) {
		/* may answer, which takes the mutex */
		ep->user->request(ep->ctx, &peer);
		/* look at what came behind the Request */
		swp_ep_kick(ep);
	}
	swp_ep_put(ep);
}

static bool swp_listener_dead(struct swp_listener *lis)
{
	bool dead;

	spin_lock_bh(&lis->lock);
	dead = lis->dead;
	spin_unlock_bh(&lis->lock);
	return dead;
}

static void swp_ep_timeout(struct work_struct *work)
{
	struct swp_ep *ep = container_of(to_delayed_work(work), struct swp_ep,
					 timer);

	mutex_lock(&ep->mutex);
	switch (ep->state) {
	case SWP_EP_CONNECTING:
	case SWP_EP_WAIT_REPLY:
		ibdev_dbg(&ep->dev->base, "connect to %pISpc timed out\n",
			  &ep->hs->remote);
		if (ep->state == SWP_EP_WAIT_REPLY)
			swp_stat_inc(ep->dev, MPA_TIMEOUT);
		swp_ep_connect_failed(ep, -ETIMEDOUT, NULL, SWP_DROP_RST);
		break;
	case SWP_EP_WAIT_REQUEST:
		swp_stat_inc(ep->dev, MPA_TIMEOUT);
		ibdev_warn_ratelimited(&ep->dev->base,
				       "no MPA Request within %u ms\n",
				       swp_params.handshake_ms);
		swp_ep_discard(ep, -ETIMEDOUT, SWP_DROP_RST);
		break;
	case SWP_EP_OFFERING:
		swp_stat_inc(ep->dev, PENDING_DROP);
		swp_ep_discard(ep, -ETIMEDOUT, SWP_DROP_RST);
		break;
	case SWP_EP_REPORTED:
		/* the listener is gone and nobody has answered since */
		if (ep->lis && swp_listener_dead(ep->lis))
			swp_ep_discard(ep, -ETIMEDOUT, SWP_DROP_RST);
		break;
	case SWP_EP_RUNNING:
	case SWP_EP_DEAD:
		/* lost a race with progress */
		break;
	}
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
}

/* Listening ---------------------------------------------------------------- */

/*
 * The interface that owns a local address, as rdma_cm will look for it.
 * Under rcu_read_lock().
 */
static struct net_device *swp_addr_netdev(struct net *net,
					  const struct sockaddr_storage *a,
					  int ifindex)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	struct net_device *ndev;

	if (a->ss_family == AF_INET)
		return __ip_dev_find(net,
			((const struct sockaddr_in *)a)->sin_addr.s_addr,
			false);
#if IS_ENABLED(CONFIG_IPV6)
	/* a link-local address says nothing without its interface */
	if (ifindex && ipv6_addr_type(&in6->sin6_addr) & IPV6_ADDR_LINKLOCAL)
		return dev_get_by_index_rcu(net, ifindex);
	for_each_netdev_rcu(net, ndev)
		if (ipv6_chk_addr(net, &in6->sin6_addr, ndev, 1))
			return ndev;
#endif
	return NULL;
}

/* The listener of the device on @ndev, with a reference; or NULL. */
static struct swp_listener *swp_hub_find(struct swp_hub *hub,
					 const struct net_device *ndev)
{
	struct swp_listener *lis;

	spin_lock_bh(&hub->lock);
	list_for_each_entry(lis, &hub->listeners, hub_entry) {
		if (lis->dev->netdev == ndev) {
			kref_get(&lis->ref);
			spin_unlock_bh(&hub->lock);
			return lis;
		}
	}
	spin_unlock_bh(&hub->lock);
	return NULL;
}

static struct swp_listener *swp_hub_route(struct swp_hub *hub,
					  const struct sockaddr_storage *local,
					  int ifindex)
{
	struct swp_listener *lis = NULL;
	struct net_device *ndev;

	rcu_read_lock();
	ndev = swp_addr_netdev(hub->net, local, ifindex);
	if (ndev)
		lis = swp_hub_find(hub, ndev);
	/* rdma_cm lets a device serve the VLANs on its netdev */
	if (!lis && ndev && is_vlan_dev(ndev))
		lis = swp_hub_find(hub, vlan_dev_real_dev(ndev));
	rcu_read_unlock();
	return lis;
}

/* A connection for no device: RST, counted where the port is listened on. */
static void swp_hub_stray(struct swp_hub *hub, struct swp_llp *llp,
			  const struct sockaddr_storage *local)
{
	struct swp_listener *lis;

	spin_lock_bh(&hub->lock);
	/* none left: the last one is going, and the socket with it */
	lis = list_first_entry_or_null(&hub->listeners, struct swp_listener,
				       hub_entry);
	if (lis) {
		swp_stat_inc(lis->dev, CONN_FAILED);
		pr_warn_ratelimited("connection to %pISpc, an address of no listening device\n",
				    local);
	}
	spin_unlock_bh(&hub->lock);
	swp_llp_abort(llp);
	swp_llp_put(llp);
}

/* Whom a peer's address belongs to: one IPv4 address, or one /64. */
static u64 swp_source(const struct sockaddr_storage *remote)
{
	if (remote->ss_family == AF_INET)
		return (__force u32)
		       ((const struct sockaddr_in *)remote)->sin_addr.s_addr;
	return get_unaligned((const u64 *)
			     &((const struct sockaddr_in6 *)remote)->sin6_addr);
}

/*
 * Half of what a listener takes is for whoever comes first; of the other half no
 * source gets more than its share, so that one alone can't keep others out.
 */
static bool swp_listener_has_room(struct swp_listener *lis,
				  struct hlist_head *sources, u64 source)
{
	u32 max = READ_ONCE(swp_params.max_pending);
	u32 share = READ_ONCE(swp_params.max_pending_source);
	struct swp_ep *ep;
	u32 n = 0;

	if (lis->npending >= max)
		return false;
	if (lis->npending < max / 2)
		return true;
	hlist_for_each_entry(ep, sources, source_entry)
		if (ep->source == source && ++n >= share)
			return false;
	return true;
}

/* Gives the endpoint to the listener; false: too many, or it is closing. */
static bool swp_listener_admit(struct swp_listener *lis, struct swp_ep *ep,
			       const struct sockaddr_storage *remote)
{
	struct hlist_head *sources;
	bool ok;

	ep->source = swp_source(remote);
	sources = lis->sources + siphash_1u64(ep->source, &swp_source_key) %
				 SWP_SOURCES;
	spin_lock_bh(&lis->lock);
	ok = !lis->dead && swp_listener_has_room(lis, sources, ep->source);
	if (ok) {
		kref_get(&lis->ref);
		ep->lis = lis;
		lis->npending++;
		list_add_tail(&ep->lis_entry, &lis->pending);
		hlist_add_head(&ep->source_entry, sources);
	}
	spin_unlock_bh(&lis->lock);
	return ok;
}

/* May a connection of this listener wait for memory, and others behind it? */
static bool swp_hub_may_hold(struct swp_hub *hub, struct swp_listener *lis)
{
	if (hub->held)
		return time_before(jiffies, hub->held_until);
	if (time_before(jiffies, lis->hold_again))
		return false;
	hub->held_until = jiffies + msecs_to_jiffies(SWP_HOLD_MS);
	lis->hold_again = jiffies + msecs_to_jiffies(SWP_HOLD_PAUSE_MS);
	return true;
}

/* -ENOMEM: not taken, there may be memory for an endpoint later. */
static int swp_hub_incoming(struct swp_hub *hub, struct swp_llp *llp)
{
	struct sockaddr_storage local, remote;
	struct swp_listener *lis;
	struct mem_cgroup *old;
	struct swp_ep *ep;
	int ifindex;

	if (swp_llp_names(llp, &local, &remote, &ifindex)) {
		/* reset before it was accepted */
		swp_llp_put(llp);
		return 0;
	}
	lis = swp_hub_route(hub, &local, ifindex);
	if (!lis) {
		swp_hub_stray(hub, llp, &local);
		return 0;
	}

	old = set_active_memcg(lis->memcg);
	ep = swp_ep_new(lis->dev, SWP_EP_WAIT_REQUEST);
	set_active_memcg(old);
	if (IS_ERR(ep)) {
		bool hold = PTR_ERR(ep) == -ENOMEM && swp_hub_may_hold(hub, lis);

		if (!hold)
			swp_stat_inc(lis->dev, PENDING_DROP);
		swp_listener_put(lis);
		if (hold)
			return -ENOMEM;
		swp_llp_abort(llp);
		swp_llp_put(llp);
		return 0;
	}
	ep->llp = llp;
	if (!swp_listener_admit(lis, ep, &remote)) {
		swp_stat_inc(lis->dev, PENDING_DROP);
		swp_ep_discard(ep, -ENOBUFS, SWP_DROP_RST);
	} else {
		swp_ep_start_timer(ep, swp_params.handshake_ms);
		swp_llp_set_owner(llp, &swp_ep_llp_ops, ep);
	}
	swp_ep_release(ep);
	swp_listener_put(lis);
	return 0;
}

static void swp_hub_drop_held(struct swp_hub *hub)
{
	if (!hub->held)
		return;
	swp_llp_abort(hub->held);
	swp_llp_put(hub->held);
	hub->held = NULL;
}

/* The next connection, which may be one that had to wait for memory. */
static struct swp_llp *swp_hub_next(struct swp_hub *hub)
{
	return hub->held ?: swp_lls_accept(&hub->lls);
}

static void swp_hub_accept(struct work_struct *work)
{
	struct swp_hub *hub = container_of(to_delayed_work(work),
					   struct swp_hub, accept_work);
	struct swp_llp *llp;
	int n, ret = 0;

	for (n = 0; n < SWP_ACCEPT_BATCH; n++) {
		llp = swp_hub_next(hub);
		ret = PTR_ERR_OR_ZERO(llp);
		if (ret == -EAGAIN)
			return;
		if (!ret) {
			ret = swp_hub_incoming(hub, llp);
			hub->held = ret ? llp : NULL;
		}
		if (ret && ret != -ECONNABORTED)
			break;
		cond_resched();
	}
	if (n == SWP_ACCEPT_BATCH) {
		queue_delayed_work(swp_cm_wq, &hub->accept_work, 0);
		return;
	}
	pr_warn_ratelimited("accept: %d, trying again\n", ret);
	queue_delayed_work(swp_cm_wq, &hub->accept_work,
			   msecs_to_jiffies(SWP_ACCEPT_RETRY_MS));
}

static void swp_hub_ready(void *arg)
{
	struct swp_hub *hub = arg;

	mod_delayed_work(swp_cm_wq, &hub->accept_work, 0);
}

static bool swp_addr_equal(const struct sockaddr_storage *a,
			   const struct sockaddr_storage *b)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_port == b4->sin_port &&
		       a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a6->sin6_port == b6->sin6_port &&
	       a6->sin6_scope_id == b6->sin6_scope_id &&
	       ipv6_addr_equal(&a6->sin6_addr, &b6->sin6_addr);
}

static void swp_hub_free(struct swp_hub *hub)
{
	list_del(&hub->entry);
	/* an accept that runs now may still need the socket */
	swp_lls_quiesce(&hub->lls);
	cancel_delayed_work_sync(&hub->accept_work);
	swp_hub_drop_held(hub);
	swp_lls_close(&hub->lls);
	kfree(hub);
}

/* Joins the hub of the address; the first listener makes it. */
static int swp_hub_join(struct swp_listener *lis, struct net *net, int backlog)
{
	const struct sockaddr_storage *addr = &lis->id->m_local_addr;
	const struct iw_cm_id *id = lis->id;
	struct swp_listener *other;
	struct swp_hub *hub;
	int ret;

	lockdep_assert_held(&hub_mutex);
	list_for_each_entry(hub, &hubs, entry) {
		if (!net_eq(hub->net, net) || !swp_addr_equal(&hub->addr, addr))
			continue;
		if (hub->v6only != id->afonly)
			return -EADDRINUSE;
		other = swp_hub_find(hub, lis->dev->netdev);
		if (other) {
			swp_listener_put(other);
			return -EADDRINUSE;
		}
		goto join;
	}

	hub = kzalloc(sizeof(*hub), GFP_KERNEL);
	if (!hub)
		return -ENOMEM;
	hub->net = net;
	hub->addr = *addr;
	hub->v6only = id->afonly;
	spin_lock_init(&hub->lock);
	INIT_LIST_HEAD(&hub->listeners);
	INIT_DELAYED_WORK(&hub->accept_work, swp_hub_accept);
	/* before the socket listens, lest the first connection finds nobody */
	list_add(&lis->hub_entry, &hub->listeners);
	/*
	 * Other listeners with larger backlogs may join, and a connection waits
	 * here for the accept loop only, not for the ULP.
	 */
	ret = swp_lls_open(&hub->lls, net, addr, id->afonly,
			   id->tos_set ? id->tos : -1, max(backlog, 1024),
			   swp_hub_ready, hub);
	if (ret) {
		kfree(hub);
		return ret;
	}
	list_add(&hub->entry, &hubs);
	hub->users = 1;
	lis->hub = hub;
	return 0;

join:
	hub->users++;
	lis->hub = hub;
	spin_lock_bh(&hub->lock);
	list_add_tail(&lis->hub_entry, &hub->listeners);
	spin_unlock_bh(&hub->lock);
	return 0;
}

static void swp_hub_leave(struct swp_listener *lis)
{
	struct swp_hub *hub = lis->hub;

	lockdep_assert_held(&hub_mutex);
	if (!hub)
		return;
	lis->hub = NULL;
	spin_lock_bh(&hub->lock);
	list_del(&lis->hub_entry);
	spin_unlock_bh(&hub->lock);
	if (!--hub->users)
		swp_hub_free(hub);
}

/*
 * The namespace that a listening id belongs to.  iw_cm does not say, but its
 * only user is rdma_cm, whose id is the context.
 */
static struct net *swp_listen_net(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *cid = id->context;

	if (cid && cid->device == id->device && cid->route.addr.dev_addr.net)
		return cid->route.addr.dev_addr.net;
	if (!(current->flags & PF_KTHREAD) && current->nsproxy)
		return current->nsproxy->net_ns;
	return NULL;
}

int swp_cm_listen(struct iw_cm_id *id, int backlog)
{
	struct swp_device *dev = to_swp_dev(id->device);
	struct net *id_net = swp_listen_net(id);
	struct swp_listener *lis;
	struct net *net;
	int ret = 0;

	if (id->m_local_addr.ss_family != AF_INET &&
	    id->m_local_addr.ss_family != AF_INET6)
		return -EAFNOSUPPORT;

	lis = kzalloc(sizeof(*lis), GFP_KERNEL_ACCOUNT);
	if (!lis)
		return -ENOMEM;
	kref_init(&lis->ref);
	spin_lock_init(&lis->lock);
	INIT_LIST_HEAD(&lis->pending);
	INIT_LIST_HEAD(&lis->reported);
	lis->hold_again = jiffies;
	lis->dev = dev;
	lis->id = id;
	/* NULL or the root's for a listener of the kernel */
	lis->memcg = get_mem_cgroup_from_mm(current->mm);

	rcu_read_lock();
	net = maybe_get_net(dev_net(dev->netdev));
	rcu_read_unlock();

	mutex_lock(&hub_mutex);
	spin_lock_bh(&dev->cm_lock);
	dev->num_listeners++;
	if (dev->cm_dead || !net)
		ret = -ENODEV;
	else
		list_add_tail(&lis->dev_entry, &dev->listeners);
	spin_unlock_bh(&dev->cm_lock);
	/*
	 * rdma_cm repeats a wildcard listen on devices whose netdev is in
	 * another namespace, and takes no connection from them.
	 */
	if (!ret && (!id_net || net_eq(id_net, net))) {
		ret = swp_hub_join(lis, net, backlog);
		if (ret) {
			spin_lock_bh(&dev->cm_lock);
			list_del(&lis->dev_entry);
			spin_unlock_bh(&dev->cm_lock);
		}
	}
	if (!ret) {
		id->add_ref(id);
		id->provider_data = lis;
	}
	mutex_unlock(&hub_mutex);
	if (net)
		put_net(net);
	if (ret)
		swp_listener_put(lis);
	return ret;
}

/* No event on the listening id after this, no new endpoint either. */
static void swp_listener_close(struct swp_listener *lis)
{
	struct swp_ep *ep;

	lockdep_assert_held(&hub_mutex);
	swp_hub_leave(lis);
	spin_lock_bh(&lis->lock);
	lis->dead = true;
	list_for_each_entry(ep, &lis->pending, lis_entry) {
		WRITE_ONCE(ep->kill, -ESHUTDOWN);
		swp_ep_kick(ep);
	}
	/*
	 * iw_cm drops those of its events that it has not come to, and does not
	 * tell which.  The ULP may still answer the others, but not for long:
	 * a later answer finds no endpoint.
	 */
	list_for_each_entry(ep, &lis->reported, lis_entry)
		swp_ep_start_timer(ep, swp_params.handshake_ms / 2);
	spin_unlock_bh(&lis->lock);
}

int swp_cm_destroy_listen(struct iw_cm_id *id)
{
	struct swp_listener *lis = id->provider_data;

	if (!lis)
		return 0;
	id->provider_data = NULL;
	mutex_lock(&hub_mutex);
	swp_listener_close(lis);
	spin_lock_bh(&lis->dev->cm_lock);
	list_del(&lis->dev_entry);
	spin_unlock_bh(&lis->dev->cm_lock);
	mutex_unlock(&hub_mutex);
	id->rem_ref(id);
	swp_listener_put(lis);
	return 0;
}

/* Start-up on a socket that a consumer hands over --------------------------- */

static struct swp_ep *swp_startup_ep(struct swp_startup *s)
{
	return (struct swp_ep *)s;
}

static int swp_startup_check(const struct swp_startup_param *p)
{
	struct sock *sk = p->sock->sk;
	int ret = 0;

	if (p->qp->device->ops.driver_id != SWP_DRIVER_ID || !p->ops ||
	    !sk_is_tcp(sk))
		return -EINVAL;
	if (p->role == SWP_STARTUP_RESPONDER ?
	    p->private_data_len || p->octets_len > SWP_MPA_FRAME_MAX :
	    p->octets_len || p->private_data_len > SWP_MPA_PD_MAX)
		return -EINVAL;
	lock_sock(sk);
	if (sk->sk_state != TCP_ESTABLISHED)
		ret = -ENOTCONN;
	else if (sk->sk_user_data || inet_csk_has_ulp(sk))
		ret = -EINVAL;	/* somebody else listens in */
	release_sock(sk);
	return ret;
}

/* What the consumer asks for, into the endpoint.  Under ep->mutex. */
static int swp_startup_fill(struct swp_ep *ep,
			    const struct swp_startup_param *p)
{
	struct swp_handshake *hs = ep->hs;
	struct swp_qp *qp = to_swp_qp(p->qp);
	struct sockaddr_storage local;
	int ret;

	if (p->p2p != SWP_STARTUP_P2P_POLICY)
		hs->policy.p2p = p->p2p == SWP_STARTUP_P2P_ON;
	hs->ird = p->ird;
	hs->ord = p->ord;
	swp_local_init(hs, p->ird, p->ord);
	/* nothing but the log needs them */
	swp_llp_names(ep->llp, &local, &hs->remote, NULL);
	if (p->role == SWP_STARTUP_INITIATOR) {
		swp_mpa_request(&hs->local, hs->max_rev, &hs->mine);
		if (p->private_data_len > swp_mpa_pd_room(&hs->mine))
			return -EINVAL;
		ret = swp_handshake_pd(hs, p->private_data,
				       p->private_data_len);
	} else {
		ret = swp_handshake_room(hs, p->octets_len, NULL);
		if (!ret && p->octets_len)
			memcpy(hs->in, p->octets, p->octets_len);
		hs->got = p->octets_len;
	}
	if (ret)
		return ret;
	ret = swp_qp_claim(qp, ep);
	if (ret)
		return ret;
	swp_qp_get(qp);
	ep->qp = qp;
	ep->qpn = qp->qpn;
	return 0;
}

struct swp_startup *swp_startup(const struct swp_startup_param *p)
{
	struct swp_device *dev = to_swp_dev(p->qp->device);
	struct swp_llp *llp;
	struct swp_ep *ep;
	int ret;

	ret = swp_startup_check(p);
	if (ret)
		return ERR_PTR(ret);
	llp = swp_llp_create(p->sock);
	if (IS_ERR(llp))
		return ERR_CAST(llp);
	ep = swp_ep_new(dev, p->role == SWP_STARTUP_INITIATOR ?
			     SWP_EP_CONNECTING : SWP_EP_WAIT_REQUEST);
	if (IS_ERR(ep)) {
		swp_llp_give_back(llp);
		return ERR_CAST(ep);
	}

	/* the caller's reference becomes that of the handle */
	ep->llp = llp;
	ret = swp_startup_fill(ep, p);
	if (ret)
		goto err;
	ep->user = p->ops;
	ep->ctx = p->ctx;
	swp_ep_start_timer(ep, swp_params.handshake_ms);
	swp_llp_set_owner(llp, &swp_ep_llp_ops, ep);
	/* the first look, for which octets need not come, is taken at once */
	swp_ep_kick(ep);
	mutex_unlock(&ep->mutex);
	return (struct swp_startup *)ep;

err:
	ep->llp = NULL;
	swp_llp_give_back(llp);
	swp_ep_discard(ep, ret, SWP_DROP_RST);
	swp_ep_release(ep);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(swp_startup);

/* The endpoint of a Request that waits for its answer, locked; or NULL. */
static struct swp_ep *swp_startup_asked(struct swp_startup *s)
{
	struct swp_ep *ep = swp_startup_ep(s);

	mutex_lock(&ep->mutex);
	if (ep->state == SWP_EP_REPORTED && ep->asked)
		return ep;
	mutex_unlock(&ep->mutex);
	return NULL;
}

int swp_startup_accept(struct swp_startup *s, const void *private_data, u16 len)
{
	struct swp_ep *ep = swp_startup_asked(s);
	struct swp_handshake *hs;
	int ret = 0;

	if (!ep)
		return -ENOTCONN;
	hs = ep->hs;
	if (len > swp_mpa_pd_room(&hs->peer)) {
		ret = -EINVAL;
		goto out;
	}
	swp_ep_reported(ep);
	if (ep->state != SWP_EP_REPORTED)
		goto out;	/* done() has told */
	ret = swp_ep_accept(ep, hs->ird, hs->ord, private_data, len);
	if (ret) {
		swp_ep_send_refusal(ep, NULL, 0);
		swp_stat_inc(ep->dev, CONN_FAILED);
		swp_ep_discard(ep, ret, SWP_DROP_FIN);
		ret = 0;
		goto out;
	}
	swp_ep_user_done(ep, 0, &hs->peer);
	swp_ep_free_handshake(ep);
	swp_ep_told_up(ep);
out:
	mutex_unlock(&ep->mutex);
	return ret;
}
EXPORT_SYMBOL_GPL(swp_startup_accept);

int swp_startup_reject(struct swp_startup *s, const void *private_data, u16 len)
{
	struct swp_ep *ep = swp_startup_asked(s);
	int ret = 0;

	if (!ep)
		return -ENOTCONN;
	if (len > swp_mpa_pd_room(&ep->hs->peer)) {
		ret = -EINVAL;
	} else {
		swp_ep_send_refusal(ep, private_data, len);
		swp_ep_give_back(ep);
		swp_ep_discard(ep, -ECONNREFUSED, SWP_DROP_FIN);
	}
	mutex_unlock(&ep->mutex);
	return ret;
}
EXPORT_SYMBOL_GPL(swp_startup_reject);

void swp_startup_put(struct swp_startup *s)
{
	struct swp_ep *ep = swp_startup_ep(s);

	/* whatever calls the consumer is one of the work items or holds a lock */
	flush_work(&ep->work.work);
	flush_work(&ep->timer.work);
	mutex_lock(&ep->mutex);
	mutex_unlock(&ep->mutex);
	spin_lock_bh(&ep->ev_lock);
	spin_unlock_bh(&ep->ev_lock);
	swp_ep_put(ep);
}
EXPORT_SYMBOL_GPL(swp_startup_put);

/* Device and module -------------------------------------------------------- */

void swp_cm_device_init(struct swp_device *dev)
{
	spin_lock_init(&dev->cm_lock);
	INIT_LIST_HEAD(&dev->eps);
	INIT_LIST_HEAD(&dev->listeners);
	dev->cm_dead = false;
}

/*
 * The endpoint after @ep (NULL: the first) with a reference; takes over that of
 * @ep, which keeps its place in the list until the next one is found.
 */
static struct swp_ep *swp_cm_next(struct swp_device *dev, struct swp_ep *ep)
{
	struct list_head *pos = ep ? &ep->dev_entry : &dev->eps;
	struct swp_ep *next = NULL;

	spin_lock_bh(&dev->cm_lock);
	for (pos = pos->next; pos != &dev->eps; pos = pos->next) {
		next = list_entry(pos, struct swp_ep, dev_entry);
		if (kref_get_unless_zero(&next->ref))
			break;
		next = NULL;
	}
	spin_unlock_bh(&dev->cm_lock);
	if (ep)
		swp_ep_put(ep);
	return next;
}

void swp_cm_qp_gone(struct swp_qp *qp)
{
	struct swp_ep *ep;

	/* it gives up its claim before it goes */
	spin_lock_bh(&qp->lock);
	ep = qp->claim;
	if (ep)
		kref_get(&ep->ref);
	spin_unlock_bh(&qp->lock);
	if (!ep)
		return;
	WRITE_ONCE(ep->kill, -ECONNABORTED);
	swp_ep_kick(ep);
	swp_ep_put(ep);
}

void swp_cm_device_stop(struct swp_device *dev)
{
	struct swp_listener *lis;
	struct swp_ep *ep = NULL;

	mutex_lock(&hub_mutex);
	spin_lock_bh(&dev->cm_lock);
	dev->cm_dead = true;
	spin_unlock_bh(&dev->cm_lock);
	/* with cm_dead set and the mutex held the list only stands */
	list_for_each_entry(lis, &dev->listeners, dev_entry)
		swp_listener_close(lis);
	mutex_unlock(&hub_mutex);
	while ((ep = swp_cm_next(dev, ep))) {
		WRITE_ONCE(ep->kill, -ENODEV);
		swp_ep_kick(ep);
	}
}

static bool swp_cm_empty(struct swp_device *dev)
{
	bool empty;

	spin_lock_bh(&dev->cm_lock);
	empty = list_empty(&dev->eps) && !dev->num_listeners;
	spin_unlock_bh(&dev->cm_lock);
	return empty;
}

void swp_cm_device_gone(struct swp_device *dev)
{
	swp_cm_device_stop(dev);
	wait_event(swp_cm_idle, swp_cm_empty(dev));
	WARN_ON(!list_empty(&dev->listeners));
}

int swp_cm_init(void)
{
	int ret;

	get_random_bytes(&swp_source_key, sizeof(swp_source_key));
	ret = swp_llp_init();
	if (ret)
		return ret;
	swp_cm_wq = alloc_workqueue("swp_cm", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!swp_cm_wq)
		goto err_llp;
	swp_cm_ordered_wq = alloc_ordered_workqueue("swp_cm_ordered",
						    WQ_MEM_RECLAIM);
	if (!swp_cm_ordered_wq)
		goto err_wq;
	return 0;

err_wq:
	destroy_workqueue(swp_cm_wq);
err_llp:
	swp_llp_exit();
	return -ENOMEM;
}

void swp_cm_exit(void)
{
	destroy_workqueue(swp_cm_ordered_wq);
	destroy_workqueue(swp_cm_wq);
	swp_llp_exit();
}
