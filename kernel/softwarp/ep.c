// SPDX-License-Identifier: GPL-2.0
/*
 * Endpoints: MPA start-up on one TCP connection, for either end and any ULP.
 *
 * The table rules[] at the end of this file says what each state does on an
 * event, how long it may take, and how it ends.
 */
#include <linux/delay.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <net/net_namespace.h>

#include "crc.h"
#include "ep.h"
#include "qp.h"
#include "proto/fpdu.h"
#include "proto/rdmap.h"

struct workqueue_struct *swp_cm_wq;
/*
 * Runs one work item at a time, so that connections, and their events, come up
 * in the order in which they began.  Programs with several QPs rely on it
 * (perftest).
 */
static struct workqueue_struct *ordered_wq;
DECLARE_WAIT_QUEUE_HEAD(swp_cm_idle);

static const struct swp_conn_ops conn_ops;

/* Lifetime ----------------------------------------------------------------- */

void swp_ep_free_handshake(struct swp_ep *ep)
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

/* The device waits for this, so a reference makes ep->dev safe to use. */
static void ep_free(struct kref *ref)
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

void swp_ep_get(struct swp_ep *ep)
{
	kref_get(&ep->ref);
}

void swp_ep_put(struct swp_ep *ep)
{
	kref_put(&ep->ref, ep_free);
}

void swp_ep_release(struct swp_ep *ep)
{
	mutex_unlock(&ep->mutex);
	swp_ep_put(ep);
}

static struct workqueue_struct *ep_wq(const struct swp_ep *ep)
{
	return ep->ulp->ordered ? ordered_wq : swp_cm_wq;
}

void swp_ep_kick(struct swp_ep *ep)
{
	kref_get(&ep->ref);
	if (queue_delayed_work(ep_wq(ep), &ep->work, 0))
		return;
	/* keeps its place in the queue, but ends a delay */
	if (!timer_pending(&ep->work.timer) ||
	    mod_delayed_work(ep_wq(ep), &ep->work, 0))
		swp_ep_put(ep);
}

void swp_ep_kick_later(struct swp_ep *ep, unsigned int ms)
{
	kref_get(&ep->ref);
	if (!queue_delayed_work(ep_wq(ep), &ep->work, msecs_to_jiffies(ms)))
		swp_ep_put(ep);
}

void swp_ep_kill(struct swp_ep *ep, int error)
{
	WRITE_ONCE(ep->kill, error);
	swp_ep_kick(ep);
}

void swp_ep_expire(struct swp_ep *ep, unsigned int ms)
{
	kref_get(&ep->ref);
	if (!queue_delayed_work(swp_cm_wq, &ep->timer, msecs_to_jiffies(ms)))
		swp_ep_put(ep);
}

void swp_ep_stop_timer(struct swp_ep *ep)
{
	if (cancel_delayed_work(&ep->timer))
		swp_ep_put(ep);
}

static void ep_work(struct work_struct *work);
static void ep_timeout(struct work_struct *work);

struct swp_ep *swp_ep_new(struct swp_device *dev, const struct swp_ulp *ulp,
			  enum swp_ep_state state)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT;
	struct swp_ep *ep;

	/* reclaim for this listener's owner must not delay other listeners */
	if (state == SWP_EP_WAIT_REQUEST)
		gfp |= __GFP_NORETRY | __GFP_NOWARN;
	ep = kzalloc(sizeof(*ep), gfp);
	if (!ep)
		return ERR_PTR(-ENOMEM);
	ep->hs = kzalloc(sizeof(*ep->hs), gfp);
	if (!ep->hs) {
		kfree(ep);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&ep->ref);
	ep->hs->in = ep->hs->head;
	ep->hs->room = sizeof(ep->hs->head);
	ep->dev = dev;
	ep->ulp = ulp;
	swp_policy_read(dev, &ep->hs->policy);
	ep->hs->max_rev = ep->hs->policy.revision;
	ep->state = state;
	mutex_init(&ep->mutex);
	spin_lock_init(&ep->ev_lock);
	INIT_DELAYED_WORK(&ep->work, ep_work);
	INIT_DELAYED_WORK(&ep->timer, ep_timeout);
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

/*
 * Returns the endpoint after @ep (NULL: the first) with a reference.  Drops
 * that of @ep, which keeps @ep in the list until the next endpoint is found.
 */
static struct swp_ep *next_ep(struct swp_device *dev, struct swp_ep *ep)
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

void swp_ep_kill_all(struct swp_device *dev, int error)
{
	struct swp_ep *ep = NULL;

	while ((ep = next_ep(dev, ep)))
		swp_ep_kill(ep, error);
}

/* The end of start-up ------------------------------------------------------ */

void swp_ep_end_handshake(struct swp_ep *ep)
{
	lockdep_assert_held(&ep->mutex);
	if (ep->ulp->release)
		ep->ulp->release(ep);
	/* after release(): the listener may have started it */
	swp_ep_stop_timer(ep);
	if (ep->qp) {
		swp_qp_unclaim(ep->qp, ep);
		swp_qp_put(ep->qp);
		ep->qp = NULL;
	}
}

void swp_ep_drop_llp(struct swp_ep *ep, enum swp_drop how)
{
	lockdep_assert_held(&ep->mutex);
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

/* Drops the first reference.  Once per endpoint; the caller has another one. */
static void ep_finish(struct swp_ep *ep)
{
	if (ep->id) {
		ep->id->rem_ref(ep->id);
		ep->id = NULL;
	}
	swp_ep_put(ep);
}

void swp_ep_abandon(struct swp_ep *ep)
{
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_DEAD;
	ep_finish(ep);
}

void swp_ep_discard(struct swp_ep *ep, int error, enum swp_drop how)
{
	lockdep_assert_held(&ep->mutex);
	swp_ep_drop_llp(ep, how);
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_DEAD;
	if (ep->ulp->dropped)
		ep->ulp->dropped(ep, error);
	ep_finish(ep);
}

/* The answer to a connect; @f: the peer's Reply, or NULL. */
static void tell_replied(struct swp_ep *ep, int status,
			 const struct swp_mpa_frame *f)
{
	if (status)
		swp_stat_inc(ep->dev, CONN_FAILED);
	else
		swp_stat_inc(ep->dev, CONN_ACTIVE);
	ep->ulp->replied(ep, status, f);
}

/* @f: the peer's Reply, if there was one. */
static void connect_failed(struct swp_ep *ep, int err,
			   const struct swp_mpa_frame *f, enum swp_drop how)
{
	int pause = ep->ulp->again ? ep->ulp->again(ep, err, f) : -1;

	lockdep_assert_held(&ep->mutex);
	if (pause >= 0) {
		swp_ep_drop_llp(ep, how);
		swp_ep_pause(ep, pause);
		return;
	}
	if (err == -ECONNREFUSED && f && ep->ulp->rejected)
		ep->ulp->rejected(ep);
	swp_ep_drop_llp(ep, how);
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_DEAD;
	tell_replied(ep, err, f);
	ep_finish(ep);
}

/* The end of a connection -------------------------------------------------- */

void swp_ep_told_up(struct swp_ep *ep)
{
	bool closed;

	lockdep_assert_held(&ep->mutex);
	spin_lock_bh(&ep->ev_lock);
	ep->told_up = true;
	closed = ep->closed;
	if (ep->fin)
		ep->ulp->disconnect(ep);
	if (closed)
		ep->ulp->closed(ep, ep->error);
	spin_unlock_bh(&ep->ev_lock);
	if (closed)
		ep_finish(ep);
}

static void peer_fin(void *conn)
{
	struct swp_ep *ep = conn;

	spin_lock_bh(&ep->ev_lock);
	if (ep->told_up)
		ep->ulp->disconnect(ep);
	else
		ep->fin = true;
	spin_unlock_bh(&ep->ev_lock);
}

static void closed(void *conn, int error)
{
	struct swp_ep *ep = conn;
	bool told_up;

	ibdev_dbg(&ep->dev->base, "connection ended: %d\n", error);
	spin_lock_bh(&ep->ev_lock);
	told_up = ep->told_up;
	ep->error = error;
	if (told_up)
		ep->ulp->closed(ep, error);
	else
		ep->closed = true;
	spin_unlock_bh(&ep->ev_lock);
	if (told_up)
		ep_finish(ep);
	swp_ep_put(ep);
}

static const struct swp_conn_ops conn_ops = {
	.peer_fin = peer_fin,
	.closed = closed,
};

/* The socket's callbacks --------------------------------------------------- */

/*
 * Queue the work item only if there is something to read: otherwise it could
 * wait in the queue until an octet arrives, and handle it before older events
 * of other endpoints.
 */
static void llp_data(struct swp_llp *llp)
{
	if (swp_llp_has_news(llp))
		swp_ep_kick(llp->owner);
}

static void llp_state(struct swp_llp *llp)
{
	struct swp_ep *ep = llp->owner;

	/* with a listener, or by startup.c: TCP is connected already */
	if (READ_ONCE(ep->lis) || ep->ops ? swp_llp_has_news(llp) :
					    !swp_llp_is_connecting(llp))
		swp_ep_kick(ep);
}

static void llp_write_space(struct swp_llp *llp)
{
	/* frames are smaller than any send buffer */
}

static const struct swp_llp_ops llp_ops = {
	.data_ready = llp_data,
	.write_space = llp_write_space,
	.state_change = llp_state,
};

void swp_ep_own(struct swp_ep *ep, struct swp_llp *llp)
{
	lockdep_assert_held(&ep->mutex);
	ep->llp = llp;
	swp_llp_set_owner(llp, &llp_ops, ep);
}

int swp_ep_connect(struct swp_ep *ep, const struct sockaddr_storage *local,
		   const struct sockaddr_storage *remote, int tos)
{
	struct swp_llp *llp;

	lockdep_assert_held(&ep->mutex);
	llp = swp_llp_connect(ep->net, local, remote, tos);
	if (IS_ERR(llp))
		return PTR_ERR(llp);
	ep->hs->sent = 0;
	ep->state = SWP_EP_CONNECTING;
	swp_ep_own(ep, llp);
	return 0;
}

void swp_ep_pause(struct swp_ep *ep, unsigned int ms)
{
	lockdep_assert_held(&ep->mutex);
	ep->state = SWP_EP_PAUSED;
	kref_get(&ep->ref);
	if (mod_delayed_work(swp_cm_wq, &ep->timer, msecs_to_jiffies(ms)))
		swp_ep_put(ep);
}

void swp_ep_hurry(struct swp_ep *ep)
{
	mutex_lock(&ep->mutex);
	if (ep->state == SWP_EP_PAUSED)
		swp_ep_pause(ep, 0);
	mutex_unlock(&ep->mutex);
}

/* Frames ------------------------------------------------------------------- */

void swp_handshake_local(struct swp_handshake *hs, u32 ird, u32 ord)
{
	const struct swp_policy *policy = &hs->policy;
	struct swp_mpa_local *l = &hs->local;

	l->max_ird = min_t(uint, swp_params.max_ird, SWP_MAX_ORD);
	if (hs->exact_ird)
		l->max_ird = min_t(u32, ird, l->max_ird);
	l->ird = min_t(u32, ird, l->max_ird);
	l->ord = min_t(u32, ord, SWP_MAX_ORD);
	l->rtr = policy->rtr;
	l->p2p = policy->p2p;
	l->crc = policy->crc != SWP_CRC_OFF;
	l->markers = policy->markers;
}

int swp_handshake_pd(struct swp_handshake *hs, const void *pd, u16 len)
{
	if (!len)
		return 0;
	hs->pd = kmemdup(pd, len, GFP_KERNEL_ACCOUNT);
	if (!hs->pd)
		return -ENOMEM;
	hs->pd_len = len;
	return 0;
}

int swp_handshake_room(struct swp_ep *ep, size_t len)
{
	struct swp_handshake *hs = ep->hs;
	struct mem_cgroup *old = NULL;
	u8 *in;

	if (len <= hs->room)
		return 0;
	if (ep->memcg)
		old = set_active_memcg(ep->memcg);
	/* flags as in swp_ep_new(); the caller tries again */
	in = kmalloc(len, GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);
	if (ep->memcg)
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

/* SWP_CRC_REQUIRE: the peer itself must set C=1; our own C=1 is not enough. */
static bool crc_missing(const struct swp_handshake *hs,
			const struct swp_mpa_frame *f)
{
	return hs->policy.crc == SWP_CRC_REQUIRE && !f->crc;
}

static void stream_init(struct swp_stream_params *p,
			const struct swp_handshake *hs, u8 rev,
			const struct swp_mpa_result *res, bool initiator)
{
	*p = (struct swp_stream_params) {
		.mpa_rev = rev,
		.crc = res->crc,
		.tx_markers = res->tx_markers,
		.rx_markers = res->rx_markers,
		/* the Consortium's version is older than RFC 7306 */
		.accept = rev == SWP_MPA_REV_RDMAC ? SWP_ACCEPT_RDMAC :
			  hs->policy.extensions ? SWP_ACCEPT_EXT : 0,
		.initiator = initiator,
		.rtr = res->rtr,
		.ird = res->ird,
		.ord = res->ord,
	};
}

/*
 * Reads the octets of a frame that have arrived, and none of those after it.
 * Returns 0: the frame is complete, -EAGAIN, -ENOMEM, -ECONNRESET: the stream
 * has ended, the socket's error, or an error of swp_mpa_decode().
 */
static int gather(struct swp_ep *ep, enum swp_mpa_kind kind,
		  struct swp_mpa_frame *f)
{
	struct swp_handshake *hs = ep->hs;
	u8 min_rev = hs->policy.rdmac ? SWP_MPA_REV_RDMAC : SWP_MPA_REV_MIN;
	size_t need;
	int ret;

	lockdep_assert_held(&ep->mutex);
	for (;;) {
		ret = swp_mpa_decode(kind, min_rev, hs->max_rev, hs->in,
				     hs->got, f, &need);
		if (ret != -EAGAIN)
			return ret;
		ret = swp_handshake_room(ep, need);
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

static bool malformed(int err)
{
	return err == -EBADMSG || err == -EPROTONOSUPPORT ||
	       err == -EMSGSIZE || err == -EPROTO;
}

/*
 * RFC 5044 section 7.1.2, rule 9: a frame with more private data than the ULP
 * accepts counts as improperly formed.
 */
static bool pd_too_long(struct swp_ep *ep, const char *what,
			const struct swp_mpa_frame *f)
{
	if (f->pd_len <= ep->ulp->pd_max)
		return false;
	ibdev_warn_ratelimited(&ep->dev->base,
			       "%s with %u octets of private data, iw_cm takes %u\n",
			       what, f->pd_len, ep->ulp->pd_max);
	swp_stat_inc(ep->dev, MPA_PD_LONG);
	return true;
}

/*
 * Sends the rest of a frame.  -EAGAIN: there is no memory; the caller has to
 * try again, with the same frame.
 */
static int send_frame(struct swp_ep *ep, enum swp_mpa_kind kind,
		      const struct swp_mpa_frame *f)
{
	struct swp_handshake *hs = ep->hs;
	u32 lead = kind == SWP_MPA_REQUEST ? hs->lead_len : 0;
	u8 out[SWP_STARTUP_LEAD + SWP_MPA_FRAME_MAX];
	int len;

	lockdep_assert_held(&ep->mutex);
	memcpy(out, hs->lead, lead);
	len = swp_mpa_encode(kind, f, out + lead);
	if (len < 0)
		return len;
	return swp_llp_send(ep->llp, out, lead + len, &hs->sent);
}

/*
 * Sends the Reply, in the context of the ULP that answers.  Waits for memory:
 * if the stream ended instead, a peer with an enhanced Request would conclude
 * that we support only revision 1.
 */
static int send_reply(struct swp_ep *ep, const struct swp_mpa_frame *f)
{
	unsigned long until = jiffies +
			      msecs_to_jiffies(swp_params.handshake_ms);
	int ret;

	lockdep_assert_held(&ep->mutex);
	for (;;) {
		ret = send_frame(ep, SWP_MPA_REPLY, f);
		if (ret != -EAGAIN || READ_ONCE(ep->kill) ||
		    time_after(jiffies, until))
			return ret;
		msleep(SWP_MEMORY_RETRY_MS);
	}
}

/* RFC 6581 section 8: tells the peer why the stream cannot be used. */
static void send_terminate(struct swp_ep *ep, enum swp_fault fault,
			   const struct swp_mpa_result *res)
{
	const struct swp_term term = swp_fault_term(fault);
	/* a marker would precede the FPDU, with a value of 0 there */
	u8 buf[SWP_MARKER_LEN + SWP_MPA_LEN + SWP_UNTAGGED_LEN + SWP_TERM_MAX +
	       3 + SWP_MPA_CRC_LEN] = {};
	u8 *fpdu = buf + (res->tx_markers ? SWP_MARKER_LEN : 0);
	size_t sent = 0;
	u32 ulpdu, len;
	__le32 sum = 0;

	lockdep_assert_held(&ep->mutex);
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
		swp_stat_terminate(ep->dev, true, fault);
}

/* Active side -------------------------------------------------------------- */

int swp_ep_request(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	int ret;

	lockdep_assert_held(&ep->mutex);
	swp_mpa_request(&hs->local, hs->max_rev, &hs->mine);
	/* the Reply must not have a higher revision */
	hs->max_rev = hs->mine.rev;
	hs->mine.pd = hs->pd;
	hs->mine.pd_len = hs->pd_len;
	hs->got = 0;
	ret = send_frame(ep, SWP_MPA_REQUEST, &hs->mine);
	if (ret)
		return ret;
	ep->state = SWP_EP_WAIT_REPLY;
	/* now the peer's ULP may take up to reply_ms */
	swp_ep_start_timer(ep);
	/* after an early Reply there is no further callback */
	if (swp_llp_peek(ep->llp) != -EAGAIN)
		swp_ep_kick(ep);
	return 0;
}

static void connecting(struct swp_ep *ep)
{
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = swp_llp_connect_result(ep->llp);
	if (ret == -EINPROGRESS)
		return;
	if (!ret)
		ret = swp_ep_request(ep);
	if (ret == -EAGAIN)
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
	else if (ret)
		connect_failed(ep, ret, NULL, SWP_DROP_RST);
}

/*
 * RFC 6581 section 10: a peer that supports only revision 1 closes on an
 * enhanced Request.  True: another attempt has begun.
 */
static bool fall_back(struct swp_ep *ep, int err)
{
	struct swp_handshake *hs = ep->hs;

	lockdep_assert_held(&ep->mutex);
	if (hs->got || hs->retried || !hs->mine.enhanced ||
	    !hs->policy.fallback || !ep->ulp->reopen)
		return false;
	if (err != -ECONNRESET && err != -EPIPE)
		return false;
	ibdev_dbg(&ep->dev->base, "peer closed on MPA revision 2, trying 1\n");
	hs->retried = true;
	hs->max_rev = 1;
	/* a FIN would keep the ports, which are the next attempt's, too */
	swp_ep_drop_llp(ep, SWP_DROP_RST);
	return !ep->ulp->reopen(ep);
}

/*
 * The Reply is valid, but this end cannot continue.  RFC 6581 section 9.3: send
 * an enhanced peer a Terminate, as the only FPDU of this stream.
 */
static void give_up(struct swp_ep *ep, int err, enum swp_fault fault,
		    const struct swp_mpa_result *res)
{
	enum swp_drop how = SWP_DROP_RST;

	lockdep_assert_held(&ep->mutex);
	if (ep->hs->mine.enhanced) {
		send_terminate(ep, fault, res);
		how = SWP_DROP_FIN;
	}
	connect_failed(ep, err, NULL, how);
}

static void start_active(struct swp_ep *ep, const struct swp_mpa_frame *reply,
			 const struct swp_mpa_result *res)
{
	struct swp_stream_params p;
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = ep->ulp->vet ? ep->ulp->vet(ep, reply) : 0;
	if (ret) {
		give_up(ep, ret, SWP_FAULT_MPA_LOCAL, res);
		return;
	}
	if (pd_too_long(ep, "Reply", reply)) {
		give_up(ep, -EMSGSIZE, SWP_FAULT_MPA_LOCAL, res);
		return;
	}

	stream_init(&p, ep->hs, reply->rev, res, true);
	kref_get(&ep->ref);
	ret = swp_qp_start(ep->qp, ep->llp, &p, &conn_ops, ep);
	if (ret) {
		swp_ep_put(ep);
		give_up(ep, ret, SWP_FAULT_MPA_LOCAL, res);
		return;
	}
	ep->state = SWP_EP_RUNNING;
	swp_llp_put(ep->llp);
	ep->llp = NULL;
	swp_ep_end_handshake(ep);
	tell_replied(ep, 0, reply);
	swp_ep_free_handshake(ep);
	swp_ep_told_up(ep);
}

static void reply_came(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	enum swp_mpa_verdict verdict;
	struct swp_mpa_result res;
	struct swp_mpa_frame f;
	enum swp_fault fault;
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = gather(ep, SWP_MPA_REPLY, &f);
	if (ret == -EAGAIN)
		return;
	if (ret == -ENOMEM) {
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
		return;
	}
	if (ret) {
		if (fall_back(ep, ret))
			return;
		if (malformed(ret)) {
			ibdev_warn_ratelimited(&ep->dev->base,
					       "invalid MPA Reply from %pISpc (%d)\n",
					       &hs->remote, ret);
			swp_stat_inc(ep->dev, MPA_BAD);
			ret = -EPROTO;
		}
		connect_failed(ep, ret, NULL, SWP_DROP_RST);
		return;
	}

	verdict = swp_mpa_conclude(&hs->local, &hs->mine, &f, &res);
	if (verdict == SWP_MPA_AGREED && crc_missing(hs, &f))
		verdict = SWP_MPA_INVALID;
	switch (verdict) {
	case SWP_MPA_AGREED:
		start_active(ep, &f, &res);
		return;
	case SWP_MPA_REJECTED:
		if (pd_too_long(ep, "rejection", &f)) {
			connect_failed(ep, -EMSGSIZE, NULL, SWP_DROP_RST);
			return;
		}
		swp_stat_inc(ep->dev, MPA_REJECTED);
		connect_failed(ep, -ECONNREFUSED, &f, SWP_DROP_FIN);
		return;
	case SWP_MPA_NO_IRD:
		fault = SWP_FAULT_MPA_IRD;
		break;
	case SWP_MPA_NO_RTR:
		fault = SWP_FAULT_MPA_RTR;
		break;
	case SWP_MPA_INVALID:
	default:
		ibdev_warn_ratelimited(&ep->dev->base,
				       "MPA Reply from %pISpc does not fit (%s)\n",
				       &hs->remote,
				       crc_missing(hs, &f) ? "no CRC" :
							     "not enhanced");
		swp_stat_inc(ep->dev, MPA_BAD);
		connect_failed(ep, -EPROTO, NULL, SWP_DROP_RST);
		return;
	}
	ibdev_warn_ratelimited(&ep->dev->base,
			       "MPA negotiation with %pISpc failed: %s\n",
			       &hs->remote,
			       fault == SWP_FAULT_MPA_IRD ? "peer's ORD" :
						       "no common RTR");
	give_up(ep, -EPROTO, fault, &res);
}

/* Passive side ------------------------------------------------------------- */

void swp_ep_send_refusal(struct swp_ep *ep, const void *pd, u16 len)
{
	struct swp_handshake *hs = ep->hs;
	struct swp_mpa_frame rep;

	lockdep_assert_held(&ep->mutex);
	swp_mpa_refuse(&hs->local, &hs->peer, &rep);
	rep.pd = pd;
	rep.pd_len = len;
	/* ignore what arrives while send_reply() waits for memory */
	swp_llp_set_owner(ep->llp, NULL, NULL);
	/* on failure the peer is gone and needs no refusal */
	if (!send_reply(ep, &rep))
		swp_stat_inc(ep->dev, MPA_REJECTED);
}

bool swp_ep_try_refusal(struct swp_ep *ep, const void *pd, u16 len)
{
	struct swp_mpa_frame rep;
	int ret;

	lockdep_assert_held(&ep->mutex);
	swp_mpa_refuse(&ep->hs->local, &ep->hs->peer, &rep);
	rep.pd = pd;
	rep.pd_len = len;
	ret = send_frame(ep, SWP_MPA_REPLY, &rep);
	if (!ret)
		swp_stat_inc(ep->dev, MPA_REJECTED);
	return ret != -EAGAIN;
}

int swp_ep_spoke_early(struct swp_ep *ep)
{
	const struct swp_handshake *hs = ep->hs;
	int ret = swp_llp_peek(ep->llp);

	lockdep_assert_held(&ep->mutex);
	if (hs->got <= swp_mpa_frame_len(&hs->peer)) {
		if (ret == -EAGAIN)
			return 0;
		if (ret <= 0)
			return ret ?: -ECONNRESET;
	}
	ibdev_warn_ratelimited(&ep->dev->base,
			       "peer sends before the MPA Reply\n");
	swp_stat_inc(ep->dev, MPA_BAD);
	return -EPROTO;
}

static void request_came(struct swp_ep *ep)
{
	struct swp_handshake *hs = ep->hs;
	int ret;

	lockdep_assert_held(&ep->mutex);
	ret = gather(ep, SWP_MPA_REQUEST, &hs->peer);
	if (ret == -EAGAIN)
		return;
	if (ret == -ENOMEM) {
		swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
		return;
	}
	if (ret) {
		if (malformed(ret)) {
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
	 * This finds octets that arrived together with it, reported() later
	 * ones.
	 */
	ret = swp_ep_spoke_early(ep);
	if (ret) {
		swp_ep_discard(ep, ret, SWP_DROP_RST);
		return;
	}

	swp_handshake_local(hs, swp_params.max_ird, SWP_MAX_ORD);
	if (crc_missing(hs, &hs->peer)) {
		if (!swp_ep_try_refusal(ep, NULL, 0)) {
			swp_ep_kick_later(ep, SWP_MEMORY_RETRY_MS);
			return;
		}
		ibdev_warn_ratelimited(&ep->dev->base,
				       "Request refused: peer without CRC\n");
		swp_ep_discard(ep, -EPROTO, SWP_DROP_FIN);
		return;
	}
	if (pd_too_long(ep, "Request", &hs->peer)) {
		swp_ep_discard(ep, -EMSGSIZE, SWP_DROP_RST);
		return;
	}
	ep->ulp->offer(ep);
}

static void offer(struct swp_ep *ep)
{
	ep->ulp->offer(ep);
}

/*
 * While the ULP decides, the peer must neither send (RFC 5044 section 7.1.2)
 * nor close.
 */
static void reported(struct swp_ep *ep)
{
	int error = swp_ep_spoke_early(ep);

	lockdep_assert_held(&ep->mutex);
	if (error)
		swp_ep_discard(ep, error, SWP_DROP_RST);
}

int swp_ep_accept(struct swp_ep *ep, u32 ird, u32 ord, const void *pd,
		  u16 pd_len)
{
	struct swp_handshake *hs = ep->hs;
	struct swp_stream_params p;
	struct swp_mpa_result res;
	struct swp_mpa_frame rep;
	int ret;

	lockdep_assert_held(&ep->mutex);
	swp_handshake_local(hs, ird, ord);
	swp_mpa_respond(&hs->local, &hs->peer, &rep, &res);
	rep.pd = pd;
	rep.pd_len = pd_len;

	/*
	 * Start the QP first, so that it can receive what follows the Reply.
	 * As responder it sends nothing until the first FPDU has arrived, which
	 * the initiator sends only after the Reply.
	 */
	stream_init(&p, hs, rep.rev, &res, false);
	kref_get(&ep->ref);
	ret = swp_qp_start(ep->qp, ep->llp, &p, &conn_ops, ep);
	if (ret) {
		swp_ep_put(ep);
		return ret;
	}
	swp_ep_end_handshake(ep);
	ep->state = SWP_EP_RUNNING;

	/* from now on, a failure ends an established connection */
	if (send_reply(ep, &rep))
		swp_llp_abort(ep->llp);
	swp_llp_put(ep->llp);
	ep->llp = NULL;
	swp_stat_inc(ep->dev, CONN_PASSIVE);
	return 0;
}

/* The states --------------------------------------------------------------- */

/* Tries to connect once more. */
static bool pause_over(struct swp_ep *ep)
{
	int ret = ep->ulp->reopen(ep);

	if (ret)
		connect_failed(ep, ret, NULL, SWP_DROP_RST);
	else
		swp_ep_start_timer(ep);
	return false;
}

static bool connect_late(struct swp_ep *ep)
{
	ibdev_dbg(&ep->dev->base, "connect to %pISpc timed out\n",
		  &ep->hs->remote);
	return true;
}

static bool reply_late(struct swp_ep *ep)
{
	swp_stat_inc(ep->dev, MPA_TIMEOUT);
	return connect_late(ep);
}

static bool request_late(struct swp_ep *ep)
{
	swp_stat_inc(ep->dev, MPA_TIMEOUT);
	ibdev_warn_ratelimited(&ep->dev->base,
			       "no MPA Request within %u ms\n",
			       swp_params.handshake_ms);
	return true;
}

static bool offer_late(struct swp_ep *ep)
{
	swp_stat_inc(ep->dev, PENDING_DROP);
	return true;
}

/* The listener starts this time when it closes: the ULP may still answer. */
static bool answer_late(struct swp_ep *ep)
{
	return ep->ulp->gone && ep->ulp->gone(ep);
}

static void end_connect(struct swp_ep *ep, int error)
{
	connect_failed(ep, error, NULL, SWP_DROP_RST);
}

static void end_passive(struct swp_ep *ep, int error)
{
	swp_ep_discard(ep, error, SWP_DROP_RST);
}

static void end_running(struct swp_ep *ep, int error)
{
	struct swp_qp *qp = swp_qp_lookup(ep->dev, ep->qpn);

	if (!qp)
		return;
	/* a QP that was reset may have another stream by now */
	swp_qp_abort(qp, ep);
	swp_qp_put(qp);
}

struct rule {
	/* handles an event; there may be none */
	void (*run)(struct swp_ep *ep);
	/*
	 * Time limit, milliseconds; NULL: the rest of the previous state's
	 * limit, or none.
	 */
	const uint *limit;
	/* the time is over; true: the endpoint ends */
	bool (*late)(struct swp_ep *ep);
	/* ends it: the time is over, or the device, QP or listener goes */
	void (*end)(struct swp_ep *ep, int error);
};

static const struct rule rules[SWP_EP_STATES] = {
	[SWP_EP_PAUSED] = {
		/* no event: a callback of the last stream may come late */
		.late = pause_over,
		.end = end_connect,
	},
	[SWP_EP_CONNECTING] = {
		.run = connecting,
		.limit = &swp_params.handshake_ms,
		.late = connect_late,
		.end = end_connect,
	},
	[SWP_EP_WAIT_REPLY] = {
		.run = reply_came,
		.limit = &swp_params.reply_ms,
		.late = reply_late,
		.end = end_connect,
	},
	[SWP_EP_WAIT_REQUEST] = {
		.run = request_came,
		.limit = &swp_params.handshake_ms,
		.late = request_late,
		.end = end_passive,
	},
	[SWP_EP_OFFERING] = {
		.run = offer,
		.late = offer_late,
		.end = end_passive,
	},
	[SWP_EP_REPORTED] = {
		.run = reported,
		.late = answer_late,
		.end = end_passive,
	},
	[SWP_EP_RUNNING] = {
		/* the QP has its own time limit, and calls closed() */
		.end = end_running,
	},
	/* [SWP_EP_DEAD]: empty, for a kick that came too late */
};

void swp_ep_start_timer(struct swp_ep *ep)
{
	const struct rule *rule = &rules[ep->state];

	lockdep_assert_held(&ep->mutex);
	kref_get(&ep->ref);
	if (mod_delayed_work(swp_cm_wq, &ep->timer,
			     msecs_to_jiffies(*rule->limit)))
		swp_ep_put(ep);
}

static void ep_work(struct work_struct *work)
{
	struct swp_ep *ep = container_of(to_delayed_work(work), struct swp_ep,
					 work);
	const struct rule *rule;

	mutex_lock(&ep->mutex);
	rule = &rules[ep->state];
	if (READ_ONCE(ep->kill)) {
		if (rule->end)
			rule->end(ep, ep->kill);
	} else if (rule->run) {
		rule->run(ep);
	}
	swp_ep_release(ep);
}

static void ep_timeout(struct work_struct *work)
{
	struct swp_ep *ep = container_of(to_delayed_work(work), struct swp_ep,
					 timer);
	const struct rule *rule;

	mutex_lock(&ep->mutex);
	rule = &rules[ep->state];
	/* set again meanwhile: a new state has begun, whose time is not over */
	if (!delayed_work_pending(&ep->timer) && rule->late && rule->late(ep))
		rule->end(ep, -ETIMEDOUT);
	swp_ep_release(ep);
}

/* Module ------------------------------------------------------------------- */

int swp_ep_init(void)
{
	/* with WQ_UNBOUND each step would wake a worker on another processor */
	swp_cm_wq = alloc_workqueue("swp_cm", WQ_PERCPU | WQ_MEM_RECLAIM, 0);
	if (!swp_cm_wq)
		return -ENOMEM;
	ordered_wq = alloc_ordered_workqueue("swp_cm_ordered", WQ_MEM_RECLAIM);
	if (!ordered_wq) {
		destroy_workqueue(swp_cm_wq);
		return -ENOMEM;
	}
	return 0;
}

void swp_ep_exit(void)
{
	destroy_workqueue(ordered_wq);
	destroy_workqueue(swp_cm_wq);
}
