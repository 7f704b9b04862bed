// SPDX-License-Identifier: GPL-2.0
/*
 * MPA start-up on a socket of a kernel consumer, see include/startup.h.
 */
#include <linux/module.h>

#include "ep.h"
#include "qp.h"
#include "include/startup.h"

/* Calls to the consumer ---------------------------------------------------- */

static void peer_of(const struct swp_mpa_frame *f,
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

/* ulp->replied, also for the responder; @f: the peer's frame, or NULL */
static void done(struct swp_ep *ep, int status, const struct swp_mpa_frame *f)
{
	struct swp_startup_peer peer;

	lockdep_assert_held(&ep->mutex);
	if (f)
		peer_of(f, &peer);
	ep->ops->done(ep->ctx, status, f ? &peer : NULL);
}

static void dropped(struct swp_ep *ep, int error)
{
	done(ep, error, NULL);
}

/* Releases the mutex for the call, since the consumer may answer at once. */
static void offer(struct swp_ep *ep)
{
	struct swp_startup_peer peer;

	lockdep_assert_held(&ep->mutex);
	ep->state = SWP_EP_REPORTED;
	/* the ULP may take any time to answer */
	swp_ep_stop_timer(ep);
	peer_of(&ep->hs->peer, &peer);
	mutex_unlock(&ep->mutex);
	ep->ops->request(ep->ctx, &peer);
	mutex_lock(&ep->mutex);
	/* check for octets after the Request, unless it is answered already */
	if (ep->state == SWP_EP_REPORTED && swp_llp_has_news(ep->llp))
		swp_ep_kick(ep);
}

static void rejected(struct swp_ep *ep)
{
	struct swp_llp *llp = ep->llp;

	lockdep_assert_held(&ep->mutex);
	if (!llp || !ep->ops->rejected)
		return;
	ep->llp = NULL;
	swp_llp_set_owner(llp, NULL, NULL);
	ep->ops->rejected(ep->ctx, swp_llp_give_back(llp));
}

static void disconnect(struct swp_ep *ep)
{
	lockdep_assert_held(&ep->ev_lock);
	ep->ops->disconnect(ep->ctx);
}

static void closed(struct swp_ep *ep, int error)
{
	lockdep_assert_held(&ep->ev_lock);
	ep->ops->closed(ep->ctx, error);
}

static const struct swp_ulp startup_ulp = {
	/* a consumer may sleep in its ops */
	.ordered = false,
	.pd_max = SWP_MPA_PD_MAX,
	.replied = done,
	.offer = offer,
	.dropped = dropped,
	.rejected = rejected,
	.disconnect = disconnect,
	.closed = closed,
};

/* Calls by the consumer ---------------------------------------------------- */

static struct swp_ep *to_ep(struct swp_startup *s)
{
	return (struct swp_ep *)s;
}

static bool is_ours(const struct ib_device *ibdev)
{
	return ibdev->ops.owner == THIS_MODULE;
}

static int query(struct ib_device *ibdev, struct swp_startup_caps *caps)
{
	struct swp_mpa_frame request = {};
	struct swp_policy policy;

	if (!is_ours(ibdev))
		return -EINVAL;
	swp_policy_read(to_swp_dev(ibdev), &policy);
	request.enhanced = policy.revision == SWP_MPA_REV_MAX;
	*caps = (struct swp_startup_caps) {
		.revision = policy.revision,
		.private_data = swp_mpa_pd_room(&request),
		.ird = min_t(uint, swp_params.max_ird, SWP_MAX_ORD),
		.ord = SWP_MAX_ORD,
		.extensions = policy.extensions,
		.netdev = to_swp_dev(ibdev)->netdev,
	};
	return 0;
}

static int check(const struct swp_startup_param *p)
{
	if (!is_ours(p->qp->device) || !p->ops)
		return -EINVAL;
	if (p->role == SWP_STARTUP_RESPONDER ?
	    p->private_data_len || p->octets_len > SWP_MPA_FRAME_MAX :
	    p->octets_len > SWP_STARTUP_LEAD ||
	    p->private_data_len > SWP_MPA_PD_MAX)
		return -EINVAL;
	return swp_llp_may_take(p->sock);
}

/* Sets what the consumer wants of RFC 6581 section 5 in place of the policy. */
static int choose_rtr(struct swp_handshake *hs, const struct swp_startup_param *p)
{
	if (p->p2p == SWP_STARTUP_P2P_POLICY)
		return 0;
	hs->policy.p2p = p->p2p != SWP_STARTUP_P2P_OFF;
	if (p->p2p != SWP_STARTUP_P2P_UNSEEN)
		return 0;
	hs->policy.rtr &= ~SWP_RTR_SEND;
	return hs->policy.rtr && hs->max_rev >= SWP_MPA_REV_MAX ? 0 : -EOPNOTSUPP;
}

/* Copies the consumer's parameters to the endpoint.  Under ep->mutex. */
static int fill(struct swp_ep *ep, const struct swp_startup_param *p)
{
	struct swp_handshake *hs = ep->hs;
	struct swp_qp *qp = to_swp_qp(p->qp);
	struct sockaddr_storage local;
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = choose_rtr(hs, p);
	if (ret)
		return ret;
	hs->ird = p->ird;
	hs->ord = p->ord;
	swp_handshake_local(hs, p->ird, p->ord);
	/* only the log needs the addresses */
	swp_llp_names(ep->llp, &local, &hs->remote, NULL);
	if (p->role == SWP_STARTUP_INITIATOR) {
		swp_mpa_request(&hs->local, hs->max_rev, &hs->mine);
		if (p->private_data_len > swp_mpa_pd_room(&hs->mine))
			return -EINVAL;
		hs->lead_len = p->octets_len;
		if (p->octets_len)
			memcpy(hs->lead, p->octets, p->octets_len);
		ret = swp_handshake_pd(hs, p->private_data,
				       p->private_data_len);
	} else {
		ret = swp_handshake_room(ep, p->octets_len);
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

static struct swp_startup *start(const struct swp_startup_param *p)
{
	struct swp_device *dev = to_swp_dev(p->qp->device);
	struct swp_llp *llp;
	struct swp_ep *ep;
	int ret;

	ret = check(p);
	if (ret)
		return ERR_PTR(ret);
	llp = swp_llp_create(p->sock);
	if (IS_ERR(llp))
		return ERR_CAST(llp);
	ep = swp_ep_new(dev, &startup_ulp,
			p->role == SWP_STARTUP_INITIATOR ?
				SWP_EP_CONNECTING : SWP_EP_WAIT_REQUEST);
	if (IS_ERR(ep)) {
		swp_llp_give_back(llp);
		return ERR_CAST(ep);
	}

	/* the caller's reference of swp_ep_new() becomes that of the handle */
	ep->ops = p->ops;
	ep->ctx = p->ctx;
	ep->llp = llp;
	ret = fill(ep, p);
	if (ret)
		goto err;
	swp_ep_start_timer(ep);
	swp_ep_own(ep, llp);
	/* the work item reports an error, behind our return */
	if (p->role == SWP_STARTUP_INITIATOR)
		ret = swp_ep_request(ep);
	if (ret && ret != -EAGAIN)
		swp_ep_kill(ep, ret);
	else if (ret || (p->role != SWP_STARTUP_INITIATOR && p->octets_len))
		swp_ep_kick(ep);
	mutex_unlock(&ep->mutex);
	return (struct swp_startup *)ep;

err:
	ep->llp = NULL;
	swp_llp_give_back(llp);
	swp_ep_abandon(ep);
	swp_ep_release(ep);
	return ERR_PTR(ret);
}

/* Returns the endpoint, locked, if a Request waits for its answer, or NULL. */
static struct swp_ep *asked(struct swp_startup *s)
{
	struct swp_ep *ep = to_ep(s);

	mutex_lock(&ep->mutex);
	if (ep->state == SWP_EP_REPORTED)
		return ep;
	mutex_unlock(&ep->mutex);
	return NULL;
}

static int accept(struct swp_startup *s, const void *private_data, u16 len)
{
	struct swp_ep *ep = asked(s);
	struct swp_handshake *hs;
	int ret = 0;

	if (!ep)
		return -ENOTCONN;
	hs = ep->hs;
	if (len > swp_mpa_pd_room(&hs->peer)) {
		ret = -EINVAL;
		goto out;
	}
	ret = swp_ep_spoke_early(ep);
	if (ret) {
		swp_ep_discard(ep, ret, SWP_DROP_RST);
		ret = 0;	/* done() has reported it */
		goto out;
	}
	ret = swp_ep_accept(ep, hs->ird, hs->ord, private_data, len);
	if (ret) {
		swp_ep_send_refusal(ep, NULL, 0);
		swp_stat_inc(ep->dev, CONN_FAILED);
		swp_ep_discard(ep, ret, SWP_DROP_FIN);
		ret = 0;
		goto out;
	}
	done(ep, 0, &hs->peer);
	swp_ep_free_handshake(ep);
	swp_ep_told_up(ep);
out:
	mutex_unlock(&ep->mutex);
	return ret;
}

static int reject(struct swp_startup *s, const void *private_data, u16 len)
{
	struct swp_ep *ep = asked(s);
	int ret = 0;

	if (!ep)
		return -ENOTCONN;
	if (len > swp_mpa_pd_room(&ep->hs->peer)) {
		ret = -EINVAL;
	} else {
		swp_ep_send_refusal(ep, private_data, len);
		rejected(ep);
		swp_ep_discard(ep, -ECONNREFUSED, SWP_DROP_FIN);
	}
	mutex_unlock(&ep->mutex);
	return ret;
}

static void put(struct swp_startup *s)
{
	struct swp_ep *ep = to_ep(s);

	/* all callers of ops are these work items, or hold one of the locks */
	flush_work(&ep->work.work);
	flush_work(&ep->timer.work);
	mutex_lock(&ep->mutex);
	mutex_unlock(&ep->mutex);
	spin_lock_bh(&ep->ev_lock);
	spin_unlock_bh(&ep->ev_lock);
	swp_ep_put(ep);
}

static int owned_by(struct ib_qp *ibqp, kuid_t uid)
{
	struct swp_qp *qp;

	if (!is_ours(ibqp->device) || ibqp->uobject)
		return -EINVAL;
	qp = to_swp_qp(ibqp);
	return swp_count_for(qp->dev, SWP_LIMIT_QP, uid, &qp->owner);
}

static int prompt(struct ib_qp *ibqp, bool (*arrived)(void *ctx, bool few),
		  void *ctx)
{
	struct swp_qp *qp;

	if (!is_ours(ibqp->device) || ibqp->uobject)
		return -EINVAL;
	qp = to_swp_qp(ibqp);
	if (swp_cq_is_cores(qp->scq) || swp_cq_is_cores(qp->rcq))
		return -EINVAL;
	qp->prompt = true;
	qp->arrived = arrived;
	qp->arrived_ctx = ctx;
	qp->scq->prompt = true;
	qp->rcq->prompt = true;
	return 0;
}

static bool receive(struct ib_qp *ibqp, size_t octets)
{
	return swp_qp_receive(to_swp_qp(ibqp), octets);
}

static void abort_stream(struct ib_qp *ibqp)
{
	struct swp_llp *llp = swp_qp_llp(to_swp_qp(ibqp));

	if (!llp)
		return;
	swp_llp_abort(llp);
	swp_llp_put(llp);
}

const struct swp_startup_api swp_startup_api = {
	.version = SWP_STARTUP_VERSION,
	.query = query,
	.start = start,
	.accept = accept,
	.reject = reject,
	.put = put,
	.owned_by = owned_by,
	.prompt = prompt,
	.receive = receive,
	.abort = abort_stream,
};
EXPORT_SYMBOL_GPL(swp_startup_api);
