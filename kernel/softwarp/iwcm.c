// SPDX-License-Identifier: GPL-2.0
/*
 * The interface to iw_cm: its calls (connect, accept, reject), and the events
 * of its endpoints.  The only user of iw_cm is rdma_cm.
 */
#include <linux/delay.h>
#include <linux/sched.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>

#include "ep.h"
#include "iwcm.h"
#include "qp.h"

/* iw_cm's events hold private data lengths and read depths in 8 bits. */
#define EVENT_PD_MAX	255
#define EVENT_DEPTH_MAX	255

/* Milliseconds until the next try, if iw_cm has no memory or no free event */
#define OFFER_RETRY_MS	5

/* Times to try to report the result of a connect, if iw_cm has no memory */
#define REPLY_TRIES	200

/*
 * Endpoints in REPORTED.  iw_cm passes a handle with its answer, not a pointer,
 * so that an endpoint may end while a late answer is still possible, or when
 * iw_cm has dropped the request and does not answer.  Handles are never reused.
 */
static DEFINE_XARRAY_FLAGS(asked, XA_FLAGS_LOCK_BH);
static atomic_long_t last_handle = ATOMIC_LONG_INIT(0);

/* Events ------------------------------------------------------------------- */

static u8 event_depth(const struct swp_mpa_frame *f, u16 value)
{
	/* not negotiated: report the most that we support */
	if (!f->enhanced || value == SWP_MPA_DEPTH_NONE)
		value = min_t(uint, swp_params.max_ird, SWP_MAX_ORD);
	return min_t(u16, value, EVENT_DEPTH_MAX);
}

/* ulp->replied */
static void replied(struct swp_ep *ep, int status,
		    const struct swp_mpa_frame *f)
{
	struct iw_cm_event ev = {
		.event = IW_CM_EVENT_CONNECT_REPLY,
		.status = status,
		.local_addr = ep->id->m_local_addr,
		.remote_addr = ep->id->m_remote_addr,
	};
	int tries;

	lockdep_assert_held(&ep->mutex);
	if (f) {
		ev.ird = event_depth(f, f->ird);
		ev.ord = event_depth(f, f->ord);
		if (f->pd_len && f->pd_len <= EVENT_PD_MAX) {
			ev.private_data = (void *)f->pd;
			ev.private_data_len = f->pd_len;
		}
	}
	/*
	 * The caller of rdma_connect() waits for this event, so it must be
	 * delivered; but iw_cm copies the private data with an atomic
	 * allocation.
	 */
	for (tries = 0; ep->id->event_handler(ep->id, &ev); tries++) {
		if (WARN_ON_ONCE(tries > REPLY_TRIES))
			break;
		if (tries == REPLY_TRIES) {
			ibdev_err(&ep->dev->base,
				  "no memory for the private data of a Reply\n");
			ev.private_data_len = 0;
		}
		msleep(OFFER_RETRY_MS);
	}
}

/*
 * Leave the status 0: rdma_cm would return it from rdma_disconnect(), which
 * does not fail because of how the peer ended.  Failed requests show the
 * reason.
 */
static void tell(struct swp_ep *ep, enum iw_cm_event_type type)
{
	struct iw_cm_event ev = { .event = type };

	lockdep_assert_held(&ep->ev_lock);
	/* iw_cm keeps a slot for each of these */
	WARN_ON_ONCE(ep->id->event_handler(ep->id, &ev));
}

static void disconnect(struct swp_ep *ep)
{
	tell(ep, IW_CM_EVENT_DISCONNECT);
}

static void closed(struct swp_ep *ep, int error)
{
	tell(ep, IW_CM_EVENT_CLOSE);
}

/* After this no answer finds the endpoint. */
static void drop_handle(struct swp_ep *ep)
{
	lockdep_assert_held(&ep->mutex);
	if (!ep->handle)
		return;
	xa_erase_bh(&asked, ep->handle);
	ep->handle = 0;
}

static void release(struct swp_ep *ep)
{
	lockdep_assert_held(&ep->mutex);
	drop_handle(ep);
	swp_listener_leave(ep);
	if (ep->net) {
		put_net(ep->net);
		ep->net = NULL;
	}
}

/* If the listener is closed, iw_cm may have dropped the request. */
static bool gone(struct swp_ep *ep)
{
	return ep->lis && swp_listener_is_dead(ep->lis);
}

/* ulp->offer: reports the Request, as soon as iw_cm has a free event */
static void offer(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	struct iw_cm_event ev = {
		.event = IW_CM_EVENT_CONNECT_REQUEST,
		.private_data = (void *)hs->peer.pd,
		.private_data_len = hs->peer.pd_len,
		.ird = event_depth(&hs->peer, hs->peer.ird),
		.ord = event_depth(&hs->peer, hs->peer.ord),
	};
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = swp_llp_names(ep->llp, &ev.local_addr, &ev.remote_addr, NULL);
	if (ret) {
		swp_ep_discard(ep, ret, SWP_DROP_RST);
		return;
	}

	if (!ep->handle) {
		unsigned long handle = atomic_long_inc_return(&last_handle);

		ret = xa_insert_bh(&asked, handle, ep, GFP_KERNEL);
		if (ret == -ENOMEM)
			goto later;
		if (ret) {
			swp_ep_discard(ep, ret, SWP_DROP_RST);
			return;
		}
		ep->handle = handle;
	}
	ev.provider_data = (void *)ep->handle;

	ret = swp_listener_report(ep, &ev);
	if (ret == -ENOMEM)
		goto later;
	if (ret) {
		swp_ep_discard(ep, ret, SWP_DROP_RST);
	} else {
		/* the ULP may take any time to answer */
		swp_ep_stop_timer(ep);
		/* start it if the listener has closed meanwhile */
		if (gone(ep))
			swp_ep_expire(ep, swp_params.handshake_ms / 2);
		/* check for octets after the Request */
		swp_ep_kick(ep);
	}
	return;

later:
	ep->state = SWP_EP_OFFERING;
	swp_ep_kick_later(ep, OFFER_RETRY_MS);
}

/* Calls by iw_cm ----------------------------------------------------------- */

static int open_tcp(struct swp_ep *ep)
{
	const struct iw_cm_id *id = ep->id;

	return swp_ep_connect(ep, &id->m_local_addr, &id->m_remote_addr,
			      id->tos_set ? id->tos : -1);
}

/*
 * Takes the QP that an id names for the endpoint, with a reference and a claim,
 * until start-up is over.  A kernel QP may be connected only with the id with
 * which it was created (no consumer in the tree uses another), a user QP only
 * by its owner.  The only user of iw_cm is rdma_cm, whose id is the context.
 * Under ep->mutex.
 */
static int take_qp(struct swp_ep *ep, const struct iw_cm_id *id, u32 qpn)
{
	const struct rdma_cm_id *cid = id->context;
	struct swp_qp *qp;
	int ret = -EINVAL;
	bool may;

	lockdep_assert_held(&ep->mutex);
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

	/* holds the mutex throughout: callbacks and device removal wait */
	ep = swp_ep_new(dev, &swp_iwcm_ulp, SWP_EP_CONNECTING);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	id->add_ref(id);
	ep->id = id;
	ep->hs->remote = id->m_remote_addr;
	swp_handshake_local(ep->hs, param->ird, param->ord);
	swp_mpa_request(&ep->hs->local, ep->hs->max_rev, &ep->hs->mine);
	ret = -EINVAL;
	if (param->private_data_len > swp_mpa_pd_room(&ep->hs->mine))
		goto err;
	ret = swp_handshake_pd(ep->hs, param->private_data,
			       param->private_data_len);
	if (ret)
		goto err;
	ret = take_qp(ep, id, param->qpn);
	if (ret)
		goto err;
	rcu_read_lock();
	ep->net = maybe_get_net(dev_net(dev->netdev));
	rcu_read_unlock();
	ret = -ENODEV;
	if (!ep->net)
		goto err;

	swp_ep_start_timer(ep);
	ret = open_tcp(ep);
	if (ret)
		goto err;
	id->provider_data = ep;
	swp_ep_release(ep);
	return 0;

err:
	swp_ep_abandon(ep);
	swp_ep_release(ep);
	return ret;
}

/*
 * Returns the endpoint of a reported id, locked, with a reference.  NULL: it
 * has ended, because the peer has closed, or because the answer is late after
 * the listener has closed.
 */
static struct swp_ep *take(struct iw_cm_id *id)
{
	unsigned long handle = (unsigned long)id->provider_data;
	struct swp_ep *ep;

	id->provider_data = NULL;
	if (!handle)
		return NULL;
	/* an endpoint in the table still has a reference */
	xa_lock_bh(&asked);
	ep = xa_load(&asked, handle);
	if (ep)
		swp_ep_get(ep);
	xa_unlock_bh(&asked);
	if (!ep)
		return NULL;
	mutex_lock(&ep->mutex);
	if (ep->state == SWP_EP_REPORTED) {
		drop_handle(ep);
		return ep;
	}
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
	return NULL;
}

int swp_cm_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param)
{
	enum swp_drop how = SWP_DROP_RST;
	struct swp_handshake *hs;
	struct iw_cm_event ev;
	struct swp_ep *ep;
	int ret;

	ep = take(id);
	if (!ep)
		return -ECONNRESET;
	hs = ep->hs;

	ret = READ_ONCE(ep->kill);
	if (ret)
		goto err;
	ret = -EINVAL;
	if (param->private_data_len > swp_mpa_pd_room(&hs->peer))
		goto err_refuse;
	/* has the work item not yet seen octets, or the end of the stream? */
	if (swp_ep_spoke_early(ep)) {
		ret = -ECONNRESET;
		goto err_drop;
	}
	ret = take_qp(ep, id, param->qpn);
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
		.ird = event_depth(&hs->peer, hs->peer.ird),
		.ord = event_depth(&hs->peer, hs->peer.ord),
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

	ep = take(id);
	/* if the peer has closed, there is nothing to reject */
	if (!ep)
		return 0;
	swp_ep_send_refusal(ep, pdata, len);
	swp_ep_discard(ep, -ECONNREFUSED, SWP_DROP_FIN);
	swp_ep_release(ep);
	return 0;
}

const struct swp_ulp swp_iwcm_ulp = {
	.ordered = true,
	.pd_max = EVENT_PD_MAX,
	.reopen = open_tcp,
	.replied = replied,
	.offer = offer,
	.gone = gone,
	.release = release,
	.disconnect = disconnect,
	.closed = closed,
};

/* Device and module -------------------------------------------------------- */

void swp_cm_device_init(struct swp_device *dev)
{
	spin_lock_init(&dev->cm_lock);
	INIT_LIST_HEAD(&dev->eps);
	INIT_LIST_HEAD(&dev->listeners);
	dev->cm_dead = false;
}

struct swp_ep *swp_cm_claimer(struct swp_qp *qp)
{
	struct swp_ep *ep;

	/* the endpoint gives up its claim before it is freed */
	spin_lock_bh(&qp->lock);
	ep = qp->claim;
	if (ep)
		swp_ep_get(ep);
	spin_unlock_bh(&qp->lock);
	return ep;
}

void swp_cm_qp_gone(struct swp_qp *qp)
{
	struct swp_ep *ep = swp_cm_claimer(qp);

	if (!ep)
		return;
	swp_ep_kill(ep, -ECONNABORTED);
	swp_ep_put(ep);
}

void swp_cm_device_stop(struct swp_device *dev)
{
	swp_listen_stop(dev);
	swp_ep_kill_all(dev, -ENODEV);
}

static bool cm_empty(struct swp_device *dev)
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
	wait_event(swp_cm_idle, cm_empty(dev));
	WARN_ON(!list_empty(&dev->listeners));
}

int swp_cm_init(void)
{
	int ret;

	swp_listen_init();
	ret = swp_llp_init();
	if (ret)
		return ret;
	ret = swp_ep_init();
	if (ret)
		swp_llp_exit();
	return ret;
}

void swp_cm_exit(void)
{
	swp_ep_exit();
	swp_llp_exit();
}
