// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs that ibv_modify_qp() connects, without rdma_cm.
 *
 *     consumer        QP                smaller end          larger end
 *     INIT to RTR     RTR               connects by TCP      listens, waits
 *                      |                 Request ----------> is it the peer of a
 *                      |                        <---------- Reply      QP in RTR?
 *     RTR to RTS      WAIT or RTS       the stream is the QP's at both ends
 *
 * That a QP waits is its state (swp_qp_waits()), and nothing else.  Everything
 * that waiting needs follows from it: the deadline, the use of the device's
 * listener, and the endpoint of an end that connects.  pair->work looks at the
 * state and releases what is left over; whoever ends the waiting queues it.
 *
 * The smaller end has one endpoint as long as it waits (ep.c, with the claim on
 * the QP), which tries again after pauses: the peer may come later.  The larger
 * end has none: an endpoint of the listener finds the QP by its number, compares
 * what the peer says with what the consumer has said, and claims it, all under
 * qp->lock.  So an accepted stream is that of exactly the peer which the QP
 * expects at that moment, and there is at most one.
 *
 * PSNs are known at different times: the one we receive at in RTR, the one we
 * send at in RTS.  Each end compares those that it knows when a message comes,
 * and the other one when its consumer moves the QP to RTS: peer_psn is written,
 * and send_psn compared, both under qp->lock, so that one of the two sees the
 * other.
 */
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>

#include "ep.h"
#include "iwcm.h"
#include "qp.h"

/* Least milliseconds that a posted request waits: a late peer is no error. */
#define SWP_PAIR_LEAST_MS	5000

static const struct swp_ulp pair_ulp;

/* Waiting -------------------------------------------------------------------- */

/*
 * Queues the work item, instead of one that is queued.  mod_delayed_work() does
 * not tell whether it has queued an item that another context cancels, so do it
 * in two steps, which the lock keeps together.
 */
static void look_after(struct swp_qp *qp, unsigned long delay)
{
	lockdep_assert_held(&qp->lock);
	if (cancel_delayed_work(&qp->pair.work))
		swp_qp_put(qp);
	swp_qp_get(qp);
	if (!queue_delayed_work(swp_cm_wq, &qp->pair.work, delay))
		swp_qp_put(qp);
}

void swp_pair_look(struct swp_qp *qp)
{
	if (!READ_ONCE(qp->paired))
		return;
	spin_lock_bh(&qp->lock);
	look_after(qp, 0);
	spin_unlock_bh(&qp->lock);
}

static void stop_listening(struct swp_qp *qp)
{
	if (test_and_clear_bit(SWP_QPF_LISTENS, &qp->flags))
		swp_listener_unshare(qp->dev);
}

/*
 * Ends the waiting, or what is posted after the peer has @left.  False: the QP got
 * its stream, or was reset, meanwhile.
 */
static bool failed(struct swp_qp *qp, bool left, int error)
{
	const struct swp_pair_end *peer = &qp->pair.view.peer;

	if (!swp_qp_alone(qp, left))
		return false;
	swp_stat_inc(qp->dev, PAIR_FAILED);
	ibdev_warn_ratelimited(&qp->dev->base,
			       "qp %u: no stream with qp %u of %pI6c (%d)\n",
			       qp->qpn, peer->qpn, peer->gid, error);
	return true;
}

static void pair_work(struct work_struct *work)
{
	struct swp_qp *qp = container_of(to_delayed_work(work), struct swp_qp,
					 pair.work);
	bool waits;
	int error;
	long left;

	spin_lock_bh(&qp->lock);
	waits = swp_qp_waits(qp->state);
	left = qp->pair.deadline - jiffies;
	error = qp->pair.error;
	if (waits && left > 0)
		look_after(qp, left);
	spin_unlock_bh(&qp->lock);
	/* an endpoint that has just given it a stream must not end */
	if (waits && left <= 0 && failed(qp, false, error ?: -ETIMEDOUT))
		swp_cm_qp_gone(qp);
	if (!waits || left <= 0)
		stop_listening(qp);
	swp_qp_put(qp);
}

void swp_pair_init(struct swp_qp *qp)
{
	INIT_DELAYED_WORK(&qp->pair.work, pair_work);
}

void swp_pair_stop(struct swp_qp *qp)
{
	if (cancel_delayed_work_sync(&qp->pair.work))
		swp_qp_put(qp);
	stop_listening(qp);
}

void swp_pair_posted(struct swp_qp *qp)
{
	struct swp_pair *p = &qp->pair;
	unsigned long deadline;
	u32 ms;

	/*
	 * A consumer that looked at kick before the peer left, see
	 * swp_qp_posted(), has cleared it, and no engine sets it any more.
	 */
	if (!qp->user && qp->sq.entries && READ_ONCE(qp->state) == SWP_QP_LEFT) {
		WRITE_ONCE(swp_ring_ctrl(&qp->sq)->kick, 1);
		/* pairs with the poster's barrier between prod and kick */
		smp_mb();
	}
	if (!swp_qp_has_posts(qp))
		return;
	/* no retry would find a peer that has left */
	if (READ_ONCE(qp->state) == SWP_QP_LEFT)
		failed(qp, true, -ENOTCONN);
	if (!swp_qp_waits(READ_ONCE(qp->state)))
		return;
	spin_lock_bh(&qp->lock);
	/* timeout and retries are those of RTS */
	if (qp->state == SWP_QP_WAIT && !p->posted) {
		p->posted = true;
		ms = swp_pair_patience(p->timeout, p->retries,
				       SWP_PAIR_LEAST_MS,
				       swp_params.qp_setup_ms);
		deadline = jiffies + msecs_to_jiffies(ms);
		if (time_before(deadline, p->deadline)) {
			p->deadline = deadline;
			/* the work item finds how much time is left */
			look_after(qp, 0);
		}
	}
	/*
	 * Under the lock, so that a reset, which begins after this, cancels it:
	 * if the item ran when the QP is about to wait again, it would take the
	 * listener from it.
	 */
	spin_unlock_bh(&qp->lock);
}

/* Addresses ------------------------------------------------------------------- */

static int addresses(struct swp_device *dev, const struct swp_pair_view *view,
		     struct sockaddr_storage *local,
		     struct sockaddr_storage *remote)
{
	int ret = swp_gid_address(dev, view->self.gid, local);

	if (!ret)
		ret = swp_gid_address(dev, view->peer.gid, remote);
	if (!ret && local->ss_family != remote->ss_family)
		ret = -EAFNOSUPPORT;
	return ret;
}

static void set_port(struct sockaddr_storage *addr, u16 port)
{
	if (addr->ss_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

/* Ports do not count, nor does the scope: the listener is the device's. */
static bool same_address(const struct sockaddr_storage *a,
			 const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return ipv6_addr_equal(&((const struct sockaddr_in6 *)a)->sin6_addr,
			       &((const struct sockaddr_in6 *)b)->sin6_addr);
}

/* Does the connection of a Request have the addresses of its GIDs? */
static bool comes_from(struct swp_ep *ep, const struct swp_pair_view *theirs)
{
	struct sockaddr_storage here, there, local, remote;

	return !swp_llp_names(ep->llp, &local, &remote, NULL) &&
	       !addresses(ep->dev, theirs, &there, &here) &&
	       same_address(&local, &here) && same_address(&remote, &there);
}

/* Messages -------------------------------------------------------------------- */

static int decode(struct swp_ep *ep, const struct swp_mpa_frame *f,
		  struct swp_pair_msg *m)
{
	int ret = swp_pair_decode(f->pd, f->pd_len, m);

	if (!ret)
		return 0;
	swp_stat_inc(ep->dev, PAIR_BAD);
	ibdev_warn_ratelimited(&ep->dev->base,
			       "%s at the port of queue pairs: %s\n",
			       f->reject ? "rejection" : "start-up",
			       ret == -EPROTONOSUPPORT ?
			       "another version of softwarp" : "not softwarp");
	return ret;
}

static void encode(struct swp_qp *qp, enum swp_pair_kind kind, u8 *buf)
{
	struct swp_pair_msg m = { .kind = kind };

	spin_lock_bh(&qp->lock);
	m.view = qp->pair.view;
	spin_unlock_bh(&qp->lock);
	swp_pair_encode(&m, buf);
}

static void mismatch(struct swp_device *dev, const struct swp_pair_view *v,
		     const char *what)
{
	swp_stat_inc(dev, PAIR_MISMATCH);
	ibdev_warn_ratelimited(&dev->base,
			       "qp %u of %pI6c for our qp %u: %s\n",
			       v->self.qpn, v->self.gid, v->peer.qpn, what);
}

/* The end that connects -------------------------------------------------------- */

/* The peer, or the way to it, may be there later. */
static bool is_transient(int error)
{
	switch (error) {
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EPIPE:
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -EHOSTDOWN:
	case -ENETDOWN:
	case -EADDRNOTAVAIL:
	case -ENOMEM:
	case -ENOBUFS:
	case -EAGAIN:
		return true;
	default:
		return false;
	}
}

/* What a rejection means for us, as an errno */
static int rejected(struct swp_ep *ep, const struct swp_mpa_frame *f)
{
	struct swp_pair_msg m;

	if (decode(ep, f, &m) || m.kind != SWP_PAIR_REFUSAL)
		return -EPROTO;
	if (m.reason == SWP_PAIR_NOT_HERE)
		return -ECONNREFUSED;
	if (m.reason == SWP_PAIR_WRONG_PSN)
		mismatch(ep->dev, &ep->qp->pair.view,
			 "the peer expects another PSN");
	return -EBADMSG;
}

/* ulp->again */
static int again(struct swp_ep *ep, int error, const struct swp_mpa_frame *f)
{
	struct swp_qp *qp = ep->qp;

	lockdep_assert_held(&ep->mutex);
	/* the consumer itself has ended it */
	if (READ_ONCE(ep->kill) == -ECONNABORTED)
		return -1;
	if (f)
		error = rejected(ep, f);
	/* a peer that has sent its Reply does not wait any more */
	if (READ_ONCE(ep->kill) || qp->pair.vetted || !is_transient(error)) {
		failed(qp, false, READ_ONCE(ep->kill) ?: error);
		return -1;
	}
	spin_lock_bh(&qp->lock);
	qp->pair.error = error;
	spin_unlock_bh(&qp->lock);
	swp_stat_inc(ep->dev, PAIR_RETRY);
	return swp_pair_pause(ep->hs->attempts++);
}

/* ulp->reopen */
static int open_tcp(struct swp_ep *ep)
{
	const struct swp_pair *p = &ep->qp->pair;
	struct sockaddr_storage local, remote;
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = addresses(ep->dev, &p->view, &local, &remote);
	if (ret)
		return ret;
	set_port(&remote, swp_params.qp_port);
	ep->hs->remote = remote;
	/* the consumer may have set the PSN since the last attempt */
	encode(ep->qp, SWP_PAIR_REQUEST, ep->hs->pd);
	return swp_ep_connect(ep, &local, &remote,
			      p->shown.traffic_class ?: -1);
}

/*
 * Compares the peer's view with ours.  If it fits, the PSN that the peer expects
 * is noted: swp_pair_rts() compares it with what the consumer says later.
 * Under qp->lock.
 */
static enum swp_pair_verdict compare(struct swp_pair *p,
				     const struct swp_pair_view *theirs)
{
	enum swp_pair_verdict verdict = swp_pair_compare(&p->view, theirs);

	if (verdict == SWP_PAIR_FITS)
		p->peer_psn = theirs->recv_psn;
	return verdict;
}

/* ulp->vet */
static int vet(struct swp_ep *ep, const struct swp_mpa_frame *reply)
{
	struct swp_qp *qp = ep->qp;
	enum swp_pair_verdict verdict;
	struct swp_pair_msg m;

	lockdep_assert_held(&ep->mutex);
	if (decode(ep, reply, &m) || m.kind != SWP_PAIR_REPLY)
		return -EPROTO;
	spin_lock_bh(&qp->lock);
	verdict = compare(&qp->pair, &m.view);
	qp->pair.vetted = verdict == SWP_PAIR_FITS;
	spin_unlock_bh(&qp->lock);
	if (verdict == SWP_PAIR_FITS)
		return 0;
	mismatch(ep->dev, &m.view, "its Reply does not fit");
	return -EPROTO;
}

/* ulp->replied */
static void replied(struct swp_ep *ep, int status,
		    const struct swp_mpa_frame *f)
{
	if (!status)
		swp_stat_inc(ep->dev, PAIR_UP);
}

/* Both ends need the RTR of RFC 6581: either consumer may send first. */
static void fill_handshake(struct swp_ep *ep, u8 ird)
{
	struct swp_handshake *hs = ep->hs;

	hs->policy.p2p = true;
	hs->policy.fallback = false;
	hs->max_rev = SWP_MPA_REV_MAX;
	hs->exact_ird = true;
	swp_handshake_local(hs, ird, SWP_MAX_ORD);
}

/* Prepares the endpoint and makes the first attempt.  Under ep->mutex. */
static int begin_connect(struct swp_ep *ep, struct swp_qp *qp)
{
	u8 message[SWP_PAIR_LEN];
	int ret;

	lockdep_assert_held(&ep->mutex);
	fill_handshake(ep, qp->pair.ird);
	encode(qp, SWP_PAIR_REQUEST, message);
	ret = swp_handshake_pd(ep->hs, message, sizeof(message));
	if (ret)
		return ret;
	ret = swp_qp_claim(qp, ep);
	if (ret)
		return ret;
	swp_qp_get(qp);
	ep->qp = qp;
	ep->qpn = qp->qpn;
	rcu_read_lock();
	ep->net = maybe_get_net(dev_net(ep->dev->netdev));
	rcu_read_unlock();
	if (!ep->net)
		return -ENODEV;

	ret = open_tcp(ep);
	if (!ret)
		swp_ep_start_timer(ep);
	else if (ret == -ECONNREFUSED || ret == -ENOMEM || ret == -ENOBUFS)
		swp_ep_pause(ep, swp_pair_pause(ep->hs->attempts++));
	else
		return ret;	/* let the consumer know at once */
	return swp_qp_wait(qp, ep);
}

static int wait_active(struct swp_qp *qp)
{
	struct swp_ep *ep;
	int ret;

	/* holds the mutex throughout: nothing happens before the QP waits */
	ep = swp_ep_new(qp->dev, &pair_ulp, SWP_EP_CONNECTING);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	ret = begin_connect(ep, qp);
	if (ret) {
		swp_ep_drop_llp(ep, SWP_DROP_RST);
		swp_ep_abandon(ep);
	}
	swp_ep_release(ep);
	return ret;
}

/* The end that listens ---------------------------------------------------------- */

static int wait_passive(struct swp_qp *qp)
{
	int ret = swp_listener_share(qp->dev, &pair_ulp, swp_params.qp_port);

	if (ret)
		return ret;
	set_bit(SWP_QPF_LISTENS, &qp->flags);
	ret = swp_qp_wait(qp, NULL);
	if (ret)
		stop_listening(qp);
	return ret;
}

/*
 * If this QP waits for the sender of the message: takes it for the endpoint,
 * with a claim.  Otherwise the reason to refuse.
 */
static enum swp_pair_reason take(struct swp_ep *ep, struct swp_qp *qp,
				 const struct swp_pair_view *theirs)
{
	enum swp_pair_verdict verdict = SWP_PAIR_STRANGER;

	spin_lock_bh(&qp->lock);
	if (swp_qp_waits(qp->state) && !qp->pair.active && !qp->claim &&
	    !swp_qp_started(qp))
		verdict = compare(&qp->pair, theirs);
	if (verdict == SWP_PAIR_FITS)
		qp->claim = ep;
	spin_unlock_bh(&qp->lock);
	switch (verdict) {
	case SWP_PAIR_FITS:
		return SWP_PAIR_NO_REASON;
	case SWP_PAIR_PSN_DIFFERS:
		mismatch(ep->dev, theirs, "wrong PSN");
		return SWP_PAIR_WRONG_PSN;
	case SWP_PAIR_STRANGER:
	case SWP_PAIR_TOO_EARLY:
	default:
		swp_stat_inc(ep->dev, PAIR_ABSENT);
		return SWP_PAIR_NOT_HERE;
	}
}

/*
 * Finds the QP that a Request is for, and gives it to the endpoint.  A peer
 * learns of a QP only if it is the one for which the QP waits.
 */
static enum swp_pair_reason find_qp(struct swp_ep *ep,
				    const struct swp_pair_view *theirs)
{
	enum swp_pair_reason reason;
	struct swp_qp *qp;

	lockdep_assert_held(&ep->mutex);
	if (!comes_from(ep, theirs)) {
		mismatch(ep->dev, theirs, "its address is another");
		return SWP_PAIR_NOT_HERE;
	}
	qp = swp_qp_lookup(ep->dev, theirs->peer.qpn);
	if (!qp) {
		swp_stat_inc(ep->dev, PAIR_ABSENT);
		return SWP_PAIR_NOT_HERE;
	}
	reason = take(ep, qp, theirs);
	if (reason) {
		swp_qp_put(qp);
		return reason;
	}
	ep->qp = qp;
	ep->qpn = qp->qpn;
	return SWP_PAIR_NO_REASON;
}

static void refuse(struct swp_ep *ep, enum swp_pair_reason reason)
{
	const struct swp_pair_msg m = {
		.kind = SWP_PAIR_REFUSAL,
		.reason = reason,
	};
	u8 message[SWP_PAIR_LEN];

	lockdep_assert_held(&ep->mutex);
	swp_pair_encode(&m, message);
	if (!swp_ep_try_refusal(ep, message, sizeof(message))) {
		/* the work item comes back here, with the same result or 0 */
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
		return;
	}
	swp_ep_discard(ep, -ECONNREFUSED, SWP_DROP_FIN);
}

/* Gives the stream to ep->qp. */
static void accept(struct swp_ep *ep)
{
	u8 message[SWP_PAIR_LEN];
	u8 ird = ep->qp->pair.ird;
	int ret;

	lockdep_assert_held(&ep->mutex);
	/* the end of the listener, which the QP needs no more, would end it */
	swp_listener_leave(ep);
	encode(ep->qp, SWP_PAIR_REPLY, message);
	ep->hs->exact_ird = true;
	ret = swp_ep_accept(ep, ird, SWP_MAX_ORD, message, sizeof(message));
	if (ret) {
		swp_stat_inc(ep->dev, CONN_FAILED);
		swp_ep_discard(ep, ret, SWP_DROP_RST);
		return;
	}
	swp_stat_inc(ep->dev, PAIR_UP);
	swp_ep_free_handshake(ep);
	swp_ep_told_up(ep);
}

/* ulp->offer */
static void offer(struct swp_ep *ep)
{
	const struct swp_mpa_frame *f = &ep->hs->peer;
	enum swp_pair_reason reason;
	struct swp_pair_msg m;

	lockdep_assert_held(&ep->mutex);
	/* without an RTR our QP could not send first */
	if (!f->enhanced || !f->p2p || decode(ep, f, &m) ||
	    m.kind != SWP_PAIR_REQUEST) {
		swp_ep_discard(ep, -EPROTO, SWP_DROP_RST);
		return;
	}
	/* a refusal that TCP has taken in part is not changed any more */
	reason = ep->hs->refusal ?: find_qp(ep, &m.view);
	ep->hs->refusal = reason;
	if (reason)
		refuse(ep, reason);
	else
		accept(ep);
}

/* Both ends -------------------------------------------------------------------- */

/* ulp->release */
static void release(struct swp_ep *ep)
{
	lockdep_assert_held(&ep->mutex);
	swp_listener_leave(ep);
	if (ep->net) {
		put_net(ep->net);
		ep->net = NULL;
	}
	/* it may wait no more */
	if (ep->qp)
		swp_pair_look(ep->qp);
}

/* The QP's own events tell its consumer of the end. */
static void disconnect(struct swp_ep *ep)
{
}

static void closed(struct swp_ep *ep, int error)
{
}

static const struct swp_ulp pair_ulp = {
	.ordered = false,
	.pd_max = SWP_MPA_PD_MAX,
	.reopen = open_tcp,
	.replied = replied,
	.again = again,
	.vet = vet,
	.offer = offer,
	.release = release,
	.disconnect = disconnect,
	.closed = closed,
};

/* What the consumer calls -------------------------------------------------------- */

/* May the calling process use the addresses of this device? */
static bool may_use(const struct swp_qp *qp)
{
	/* rdma_cm binds an id to addresses of its own namespace only, too */
	return !qp->user ||
	       net_eq(current->nsproxy->net_ns, dev_net(qp->dev->netdev));
}

static int check_rtr(struct swp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	const int needed = IB_QP_AV | IB_QP_DEST_QPN | IB_QP_RQ_PSN;

	if (!swp_params.qp_port)
		return -EOPNOTSUPP;
	if ((mask & needed) != needed || (mask & IB_QP_SQ_PSN) ||
	    attr->dest_qp_num > SWP_PAIR_24_BITS)
		return -EINVAL;
	if (!(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH)) {
		ibdev_warn_ratelimited(&qp->dev->base,
				       "%s connects a queue pair without a GID: see ibv_rc_pingpong -g, perftest -x\n",
				       current->comm);
		return -EINVAL;
	}
	if (!may_use(qp))
		return -EPERM;
	return READ_ONCE(qp->state) == SWP_QP_INIT ? 0 : -EINVAL;
}

static void fill_pair(struct swp_qp *qp, const struct ib_qp_attr *attr,
		      int mask)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(&attr->ah_attr);
	struct swp_pair *p = &qp->pair;

	p->view = (struct swp_pair_view) {
		.self.qpn = qp->qpn,
		.peer.qpn = attr->dest_qp_num,
		.recv_psn = attr->rq_psn & SWP_PAIR_24_BITS,
		.send_psn = SWP_PAIR_PSN_NONE,
	};
	memcpy(p->view.self.gid, grh->sgid_attr->gid.raw, SWP_PAIR_GID_LEN);
	memcpy(p->view.peer.gid, grh->dgid.raw, SWP_PAIR_GID_LEN);
	p->ird = mask & IB_QP_MAX_DEST_RD_ATOMIC ?
		 min_t(u32, attr->max_dest_rd_atomic, SWP_MAX_ORD) :
		 SWP_MAX_ORD;
	p->shown = (struct swp_pair_shown) {
		.path_mtu = mask & IB_QP_PATH_MTU ? attr->path_mtu : 0,
		.min_rnr_timer = mask & IB_QP_MIN_RNR_TIMER ?
				 attr->min_rnr_timer : 0,
		.sgid_index = grh->sgid_index,
		.hop_limit = grh->hop_limit,
		.flow_label = grh->flow_label,
		.traffic_class = grh->traffic_class,
	};
	p->timeout = 0;
	p->retries = 0;
	p->peer_psn = SWP_PAIR_PSN_NONE;
	p->deadline = jiffies + msecs_to_jiffies(swp_params.qp_setup_ms);
	p->posted = false;
	p->error = 0;
	p->vetted = false;
}

int swp_pair_rtr(struct swp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	struct swp_pair *p = &qp->pair;
	struct sockaddr_storage local, remote;
	int ret, order;

	lockdep_assert_held(&qp->modify);
	ret = check_rtr(qp, attr, mask);
	if (ret)
		return ret;
	/* nobody else looks at it before the QP waits */
	fill_pair(qp, attr, mask);
	ret = addresses(qp->dev, &p->view, &local, &remote);
	if (ret)
		return ret;
	order = swp_pair_order(&p->view.self, &p->view.peer);
	/* a stream has two ends */
	if (!order)
		return -EOPNOTSUPP;
	p->active = order < 0;
	ret = p->active ? wait_active(qp) : wait_passive(qp);
	/* the work item finds how much time is left, if it still waits */
	if (!ret)
		swp_pair_look(qp);
	return ret;
}

/* Changes the state, and compares the PSN with that of a peer that has come. */
static int step_to_rts(struct swp_qp *qp, const struct ib_qp_attr *attr,
		       int mask)
{
	struct swp_qp_next next;
	struct swp_pair *p = &qp->pair;
	u32 psn = attr->sq_psn & SWP_PAIR_24_BITS;
	int ret = -EINVAL;

	spin_lock_bh(&qp->lock);
	next = swp_qp_next(qp->state, SWP_QP_TO_RTS);
	if (next.state == SWP_QP_NO)
		goto out;
	if (p->view.send_psn == SWP_PAIR_PSN_NONE) {
		if (!(mask & IB_QP_SQ_PSN) ||
		    (p->peer_psn != SWP_PAIR_PSN_NONE && p->peer_psn != psn))
			goto out;
		p->view.send_psn = psn;
	} else if (mask & IB_QP_SQ_PSN) {
		goto out;
	}
	if (mask & IB_QP_TIMEOUT)
		p->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		p->retries = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		p->shown.rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		p->shown.max_rd_atomic = attr->max_rd_atomic;
	WRITE_ONCE(qp->state, next.state);
	ret = 0;
out:
	spin_unlock_bh(&qp->lock);
	return ret;
}

int swp_pair_rts(struct swp_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	struct swp_ep *ep;
	int ret;

	lockdep_assert_held(&qp->modify);
	if (mask & (IB_QP_AV | IB_QP_DEST_QPN | IB_QP_RQ_PSN))
		return -EINVAL;
	ret = step_to_rts(qp, attr, mask);
	if (ret)
		return ret;
	/* now the peer can compare a PSN: do not wait for the next attempt */
	ep = swp_qp_waits(READ_ONCE(qp->state)) ? swp_cm_claimer(qp) : NULL;
	if (ep) {
		swp_ep_hurry(ep);
		swp_ep_put(ep);
	}
	swp_pair_posted(qp);
	return 0;
}

void swp_pair_query(struct swp_qp *qp, struct ib_qp_attr *attr, int mask)
{
	const struct swp_pair *p = &qp->pair;

	spin_lock_bh(&qp->lock);
	attr->dest_qp_num = p->view.peer.qpn;
	if (mask)
		attr->rq_psn = p->view.recv_psn;
	if (mask && p->view.send_psn != SWP_PAIR_PSN_NONE)
		attr->sq_psn = p->view.send_psn;
	if (p->shown.path_mtu)
		attr->path_mtu = p->shown.path_mtu;
	attr->max_rd_atomic = p->shown.max_rd_atomic;
	attr->max_dest_rd_atomic = p->ird;
	attr->min_rnr_timer = p->shown.min_rnr_timer;
	attr->timeout = p->timeout;
	attr->retry_cnt = p->retries;
	attr->rnr_retry = p->shown.rnr_retry;
	rdma_ah_set_port_num(&attr->ah_attr, 1);
	rdma_ah_set_grh(&attr->ah_attr, NULL, p->shown.flow_label,
			p->shown.sgid_index, p->shown.hop_limit,
			p->shown.traffic_class);
	rdma_ah_set_dgid_raw(&attr->ah_attr, (void *)p->view.peer.gid);
	spin_unlock_bh(&qp->lock);
}
