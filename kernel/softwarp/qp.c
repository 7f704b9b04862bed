// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: lifetime, states, completions, flushing, and the end of a
 * stream.  The engines that move data are in tx.c and rx.c.
 */
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "iwcm.h"
#include "qp.h"
#include "reads.h"
#include "trace.h"
#include "proto/mpa.h"

struct workqueue_struct *swp_wq;
struct workqueue_struct *swp_user_wq;
struct workqueue_struct *swp_poll_wq;
struct workqueue_struct *swp_rx_wq, *swp_rx_user_wq;

/* Time for a dead or half-closed stream to end before we release it */
#define SWP_LINGER	(5 * HZ)
/* Number of such times without progress, for a stream that still has to send */
#define SWP_STALLS	4

/* The longest wait for memory: 2^7 ms */
#define SWP_BACKOFF_MAX	7

static void tx_work(struct work_struct *work);
static void poll_work(struct work_struct *work);
static void rx_work(struct work_struct *work);
static void rx_late(struct timer_list *t);
static void close_work(struct work_struct *work);
static void linger_work(struct work_struct *work);

/* References -------------------------------------------------------------- */

struct swp_qp *swp_qp_lookup(struct swp_device *dev, u32 qpn)
{
	struct swp_qp *qp;

	xa_lock_bh(&dev->qps);
	qp = xa_load(&dev->qps, qpn);
	if (qp && !refcount_inc_not_zero(&qp->ref))
		qp = NULL;
	xa_unlock_bh(&dev->qps);
	return qp;
}

void swp_qp_get(struct swp_qp *qp)
{
	refcount_inc(&qp->ref);
}

void swp_qp_put(struct swp_qp *qp)
{
	if (refcount_dec_and_test(&qp->ref))
		complete(&qp->idle);
}

/* The LLP's memory is freed an RCU grace period after its last put. */
struct swp_llp *swp_qp_llp(struct swp_qp *qp)
{
	struct swp_llp *llp;

	rcu_read_lock();
	llp = READ_ONCE(qp->llp);
	if (llp && !kref_get_unless_zero(&llp->ref))
		llp = NULL;
	rcu_read_unlock();
	return llp;
}

/* The right to connect a QP ------------------------------------------------ */

void swp_qp_set_maker(struct swp_qp *qp)
{
	qp->maker = current_euid();
	qp->maker_tgid = get_pid(task_tgid(current));
}

void swp_qp_drop_maker(struct swp_qp *qp)
{
	put_pid(qp->maker_tgid);
	qp->maker_tgid = NULL;
}

/*
 * rdma_cm accepts any QP number from a program, and QP numbers are easy to
 * guess.  So only the process that created the QP may connect it, even if its
 * user has changed since, or another process of the user that it had then.
 */
bool swp_qp_may_connect(const struct swp_qp *qp)
{
	return task_tgid(current) == qp->maker_tgid ||
	       uid_eq(current_euid(), qp->maker);
}

int swp_qp_claim(struct swp_qp *qp, struct swp_ep *ep)
{
	int ret = 0;

	spin_lock_bh(&qp->lock);
	if (qp->claim || swp_qp_started(qp))
		ret = -EISCONN;
	else if (qp->state != SWP_QP_RESET && qp->state != SWP_QP_INIT)
		ret = -EINVAL;
	else
		qp->claim = ep;
	spin_unlock_bh(&qp->lock);
	return ret;
}

void swp_qp_unclaim(struct swp_qp *qp, struct swp_ep *ep)
{
	spin_lock_bh(&qp->lock);
	if (qp->claim == ep)
		WRITE_ONCE(qp->claim, NULL);
	spin_unlock_bh(&qp->lock);
	/*
	 * For swp_qp_reset(); the caller still has a reference on the QP.  Pairs
	 * with the barrier of wait_var_event(): it sees NULL, or is seen waiting.
	 */
	smp_mb();
	wake_up_var(&qp->claim);
}

/* Work items: each queued one holds a reference --------------------------- */

/*
 * Work for an ordinary user's program has no priority over programs; nor has that
 * for a socket, which is a prompt consumer: it would only keep its own program
 * waiting, while there may be another processor.
 */
static bool is_programs(const struct swp_qp *qp)
{
	return qp->owner || qp->prompt;
}

static struct workqueue_struct *qp_wq(const struct swp_qp *qp)
{
	return is_programs(qp) ? swp_user_wq : swp_wq;
}

void swp_qp_kick(struct swp_qp *qp)
{
	swp_qp_get(qp);
	/*
	 * Not mod_delayed_work(), which does not tell that another context has
	 * cancelled the item meanwhile, so that nothing is queued.
	 */
	while (!queue_delayed_work(qp_wq(qp), &qp->tx_work, 0)) {
		/* work that is about to run sees earlier stores of the caller */
		if (!timer_pending(&qp->tx_work.timer) ||
		    !cancel_delayed_work(&qp->tx_work)) {
			swp_qp_put(qp);
			return;
		}
		/* that one's reference */
		swp_qp_put(qp);
	}
}

void swp_qp_kick_soon(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	/* the delay begins again, but of none that is about to run */
	if (timer_pending(&qp->tx_work.timer) &&
	    cancel_delayed_work(&qp->tx_work))
		swp_qp_put(qp);
	swp_qp_get(qp);
	if (!queue_delayed_work(qp_wq(qp), &qp->tx_work, 1))
		swp_qp_put(qp);
}

void swp_qp_kick_later(struct swp_qp *qp)
{
	u8 n = READ_ONCE(qp->backoff);

	if (n < SWP_BACKOFF_MAX)
		WRITE_ONCE(qp->backoff, n + 1);
	swp_qp_get(qp);
	if (!queue_delayed_work(qp_wq(qp), &qp->tx_work,
				msecs_to_jiffies(1U << n)))
		swp_qp_put(qp);
}

void swp_qp_close_later(struct swp_qp *qp, unsigned int flag)
{
	set_bit(flag, &qp->flags);
	swp_qp_get(qp);
	if (!queue_work(qp_wq(qp), &qp->close_work))
		swp_qp_put(qp);
}

static void start_linger(struct swp_qp *qp)
{
	swp_qp_get(qp);
	if (mod_delayed_work(qp_wq(qp), &qp->linger_work, SWP_LINGER))
		swp_qp_put(qp);
}

static void stop_linger(struct swp_qp *qp)
{
	if (cancel_delayed_work_sync(&qp->linger_work))
		swp_qp_put(qp);
}

/* Completions ------------------------------------------------------------- */

static int push_send(struct swp_qp *qp, const struct swp_slot *s)
{
	struct swp_cqe cqe = {
		.wr_id = s->wr_id,
		.byte_len = s->byte_len,
		.qp_num = qp->qpn,
		.vendor_err = s->status ? s->vendor_err : 0,
		.opcode = s->opcode,
		.status = s->status,
	};

	lockdep_assert_held(&qp->lock);
	return swp_cq_push(qp->scq, &cqe);
}

void swp_sq_complete(struct swp_qp *qp)
{
	struct swp_ring_ctrl *ctrl;
	int bits = 0;

	if (!qp->sq.entries)
		return;
	ctrl = swp_ring_ctrl(&qp->sq);
	spin_lock_bh(&qp->lock);
	while (qp->sq_done != qp->sq_tx) {
		struct swp_slot *s = &qp->slots[qp->sq_done & qp->sq.mask];

		if (s->state != SWP_SLOT_DONE)
			break;
		/*
		 * Free the slot before its completion is visible, so that the
		 * poller can post the next request at once.
		 */
		qp->sq_done++;
		/* pairs with the poster's acquire load of cons */
		smp_store_release(&ctrl->cons, qp->sq_done);
		if ((s->flags & SWP_WQE_SIGNALED) || s->status)
			bits |= push_send(qp, s);
	}
	spin_unlock_bh(&qp->lock);
	if (bits)
		swp_cq_notify(qp->scq, bits);
}

/* @first: status of the oldest request that the engine has not taken */
static int flush_sq(struct swp_qp *qp, enum ib_wc_status first)
{
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(&qp->sq);
	u32 prod, left = qp->sq.entries;
	bool failed = false;
	int bits = 0;

	lockdep_assert_held(&qp->lock);
	for (; qp->sq_done != qp->sq_tx; qp->sq_done++, left--) {
		struct swp_slot *s = &qp->slots[qp->sq_done & qp->sq.mask];

		/* no success after a failure, even if TCP took the request */
		if ((s->state != SWP_SLOT_DONE || failed) && !s->status) {
			s->status = IB_WC_WR_FLUSH_ERR;
			s->vendor_err = qp->vendor_err;
		}
		failed |= s->status != IB_WC_SUCCESS;
		if (s->status || (s->flags & SWP_WQE_SIGNALED))
			bits |= push_send(qp, s);
	}
	/* requests not yet taken; kick makes the next poster call us again */
	WRITE_ONCE(ctrl->kick, 1);
	/* pairs with the poster's barrier between prod and kick */
	smp_mb();
	/* pairs with the poster's release of prod */
	prod = smp_load_acquire(&ctrl->prod);
	while (qp->sq_tx != prod && left--) {
		const struct swp_sqe *e = swp_ring_slot(&qp->sq, qp->sq_tx);
		struct swp_slot s = {
			.wr_id = READ_ONCE(e->wr_id),
			.status = first,
			.vendor_err = qp->vendor_err,
		};
		u8 op = READ_ONCE(e->opcode);

		s.opcode = op <= SWP_OP_USER_MAX || !qp->user ? op : SWP_OP_SEND;
		bits |= push_send(qp, &s);
		first = IB_WC_WR_FLUSH_ERR;
		qp->sq_tx++;
	}
	qp->sq_tx = prod;
	qp->sq_done = prod;
	qp->sq_acked = prod;
	qp->ack_waiting = 0;
	/* pairs with the poster's acquire load of cons */
	smp_store_release(&ctrl->cons, prod);
	return bits;
}

static int push_recv_flush(struct swp_qp *qp, u64 wr_id)
{
	struct swp_cqe cqe = {
		.wr_id = wr_id,
		.qp_num = qp->qpn,
		.opcode = SWP_OP_RECV,
		.status = IB_WC_WR_FLUSH_ERR,
		.vendor_err = qp->vendor_err,
	};

	lockdep_assert_held(&qp->lock);
	return swp_cq_push(qp->rcq, &cqe);
}

static int flush_rq(struct swp_qp *qp)
{
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(&qp->rq);
	u32 prod, left = qp->rq.entries;
	int bits = 0;

	lockdep_assert_held(&qp->lock);
	WRITE_ONCE(ctrl->kick, 1);
	/* pairs with the poster's barrier between prod and kick */
	smp_mb();
	/* pairs with the poster's release of prod */
	prod = smp_load_acquire(&ctrl->prod);
	while (qp->rq_cons != prod && left--) {
		const struct swp_rqe *e = swp_ring_slot(&qp->rq, qp->rq_cons);

		bits |= push_recv_flush(qp, READ_ONCE(e->wr_id));
		qp->rq_cons++;
	}
	qp->rq_cons = prod;
	/* pairs with the poster's acquire load of cons */
	smp_store_release(&ctrl->cons, prod);
	return bits;
}

/*
 * Completes all outstanding requests with IB_WC_WR_FLUSH_ERR, in posting order,
 * but the oldest that no engine has taken with @first.  The engines do not run,
 * or the caller holds the socket lock and has stopped them.  A QP that is not in
 * the error state has been reset since the caller looked.
 */
static void flush(struct swp_qp *qp, enum ib_wc_status first)
{
	int sbits = 0, rbits = 0;

	spin_lock_bh(&qp->lock);
	if (qp->state != SWP_QP_ERROR) {
		spin_unlock_bh(&qp->lock);
		return;
	}
	if (qp->sq.entries)
		sbits = flush_sq(qp, first);
	if (qp->rx.in_msg) {
		qp->rx.in_msg = false;
		rbits |= push_recv_flush(qp, qp->rx.wr_id);
	}
	if (qp->rq.entries)
		rbits |= flush_rq(qp);
	spin_unlock_bh(&qp->lock);
	swp_cq_notify(qp->scq, sbits);
	swp_cq_notify(qp->rcq, rbits);
}

void swp_qp_flush(struct swp_qp *qp)
{
	flush(qp, IB_WC_WR_FLUSH_ERR);
}

void swp_qp_event(struct swp_qp *qp, enum ib_event_type type)
{
	struct ib_event ev = {
		.device = qp->base.device,
		.event = type,
		.element.qp = &qp->base,
	};

	if (qp->base.event_handler)
		qp->base.event_handler(&ev, qp->base.qp_context);
}

/* The end of a stream ------------------------------------------------------*/

static void set_state(struct swp_qp *qp, enum swp_qp_state state)
{
	spin_lock_bh(&qp->lock);
	WRITE_ONCE(qp->state, state);
	spin_unlock_bh(&qp->lock);
	trace_swp_qp_state(qp->qpn, state, qp->vendor_err);
}

/* Raises an event, once: the QP takes nothing more from its SRQ. */
static void last_wqe(struct swp_qp *qp)
{
	if (qp->srq && !test_and_set_bit(SWP_QPF_LAST_WQE, &qp->flags))
		swp_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

/* Raises the event of a failed stream for the local consumer. */
static void tell_failed(struct swp_qp *qp)
{
	static const enum ib_event_type events[] = {
		[SWP_EVENT_FATAL] = IB_EVENT_QP_FATAL,
		[SWP_EVENT_ACCESS] = IB_EVENT_QP_ACCESS_ERR,
		[SWP_EVENT_REQUEST] = IB_EVENT_QP_REQ_ERR,
	};

	swp_qp_assert_owned(qp);
	swp_qp_event(qp, events[swp_fault_event(qp->fault)]);
}

/*
 * A responder that is still fenced must not send an FPDU, not even a Terminate
 * (RFC 5044 section 7.1.2); after FIN no end can send one.
 */
static void want_terminate(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	if (qp->tx.fenced || qp->tx.shut)
		return;
	qp->tx.term_pending = true;
	swp_tx_cut(qp);
}

/*
 * Sends FIN, and calls the connection's closed().  The stream itself may end
 * later, so that TCP can deliver what was sent.
 */
static void shut_stream(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	qp->tx.shut = true;
	set_bit(SWP_QPF_TELL, &qp->flags);
	swp_qp_close_later(qp, SWP_QPF_SHUTDOWN);
}

/*
 * Applies an input to a QP with a stream, see proto/qp_fsm.h.  False: it
 * changes nothing.  Socket lock held.
 */
static bool qp_step(struct swp_qp *qp, enum swp_qp_input input)
{
	const struct swp_qp_next next = swp_qp_next(qp->state, input);

	sock_owned_by_me(qp->llp->sk);
	if (next.state == SWP_QP_NO)
		return false;
	if (next.actions & SWP_DO_DROP)
		swp_tx_release(qp);
	if (next.actions & SWP_DO_TERMINATE)
		want_terminate(qp);
	if (next.actions & SWP_DO_FIN)
		qp->tx.fin_wanted = true;
	if (next.state >= SWP_QP_TERMINATE)
		qp->rx.swallow = true;
	if (next.state != qp->state)
		set_state(qp, next.state);
	if (next.state == SWP_QP_LEFT) {
		swp_tx_set_turn(qp, SWP_TURN_NOBODY);
		/* close_work looks for what was posted before that */
		if (qp->sq.entries)
			WRITE_ONCE(swp_ring_ctrl(&qp->sq)->kick, 1);
	}
	if (next.actions & SWP_DO_FLUSH) {
		swp_tx_set_turn(qp, SWP_TURN_NOBODY);
		swp_qp_flush(qp);
		last_wqe(qp);
	}
	if (next.actions & SWP_DO_REASON)
		tell_failed(qp);
	if (next.actions & SWP_DO_FATAL)
		swp_qp_event(qp, IB_EVENT_QP_FATAL);
	if ((next.actions & SWP_DO_SHUT) ||
	    ((next.actions & SWP_DO_SHUT_ONCE) && !qp->tx.shut))
		shut_stream(qp);
	if (next.actions & SWP_DO_LINGER)
		start_linger(qp);
	if (next.actions & SWP_DO_LOOK)
		swp_qp_kick(qp);
	if (next.actions & SWP_DO_LET_GO)
		swp_qp_close_later(qp, SWP_QPF_CLOSED);
	return true;
}

static bool would_step(const struct swp_qp *qp, enum swp_qp_input input)
{
	return swp_qp_next(qp->state, input).state != SWP_QP_NO;
}

void swp_qp_fail(struct swp_qp *qp, enum swp_fault fault, const u8 *ddp,
		 u32 ddp_len, u16 seg_len, const u8 *rreq)
{
	const struct swp_term t = swp_fault_term(fault);

	swp_qp_assert_owned(qp);
	if (!would_step(qp, SWP_QP_FAULT))
		return;
	qp->fault = fault;
	qp->vendor_err = swp_vendor_err(&t);
	qp->term_len = swp_term_encode(qp->term_buf, &t, ddp, ddp_len, seg_len,
				       rreq);
	qp->close_error = -EPROTO;
	trace_swp_terminate(qp->qpn, false, t.layer, t.etype, t.code);
	ibdev_dbg(&qp->dev->base, "qp %u: error %u/%u/0x%02x\n", qp->qpn,
		  t.layer, t.etype, t.code);
	qp_step(qp, SWP_QP_FAULT);
}

void swp_qp_terminated(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	qp_step(qp, SWP_QP_SAID);
}

void swp_qp_peer_terminated(struct swp_qp *qp, const struct swp_term *t)
{
	swp_qp_assert_owned(qp);
	if (!would_step(qp, SWP_QP_TOLD))
		return;
	qp->vendor_err = swp_vendor_err(t) | SWP_VENDOR_ERR_REMOTE;
	qp->close_error = -ECONNRESET;
	trace_swp_terminate(qp->qpn, true, t->layer, t->etype, t->code);
	qp_step(qp, SWP_QP_TOLD);
}

void swp_qp_dead(struct swp_qp *qp, int error)
{
	swp_qp_assert_owned(qp);
	if (qp->close_error == 0)
		qp->close_error = error;
	qp->tx.term_pending = false;
	qp_step(qp, error ? SWP_QP_LOST : SWP_QP_CLOSED);
}

bool swp_qp_has_posts(const struct swp_qp *qp)
{
	return qp->sq.entries &&
	       READ_ONCE(swp_ring_ctrl(&qp->sq)->prod) != READ_ONCE(qp->sq_tx);
}

/*
 * TCP's state has changed.  Socket lock held.  swp_rx_run() handles all data of
 * the peer before its FIN is handled here.
 */
static void llp_state_change(struct swp_llp *llp)
{
	struct swp_qp *qp = llp->owner;
	enum swp_qp_input input = SWP_QP_PEER_FIN;
	struct sock *sk = llp->sk;
	int err = sk->sk_err ? -sk->sk_err : 0;
	const u32 lost = swp_fault_vendor_err(SWP_FAULT_MPA_CLOSED);

	swp_qp_assert_owned(qp);
	if (!err && sk->sk_state == TCP_ESTABLISHED &&
	    !(sk->sk_shutdown & RCV_SHUTDOWN))
		return;

	swp_rx_run(qp);
	if (err || sk->sk_state == TCP_CLOSE) {
		if (!qp->vendor_err && swp_qp_is_up(qp->state))
			qp->vendor_err = lost;
		if (!err && (swp_qp_is_up(qp->state) ||
			     qp->oread_prod != qp->oread_cons || qp->rx.in_msg ||
			     swp_rx_unfinished(&qp->rx)))
			err = -ECONNRESET;
		swp_qp_dead(qp, err);
		return;
	}
	if (!(sk->sk_shutdown & RCV_SHUTDOWN))
		return;

	/* FIN: nothing more arrives, so all that waits for the peer fails */
	if (swp_qp_is_up(qp->state) && qp->paired)
		input = SWP_QP_PEER_LEAVES;
	if (would_step(qp, input)) {
		if (qp->oread_prod != qp->oread_cons || qp->rx.in_msg ||
		    swp_rx_unfinished(&qp->rx) || (qp->tx.fenced && swp_qp_has_posts(qp))) {
			/* without Terminate: the peer does not read any more */
			qp->vendor_err = lost;
			swp_qp_dead(qp, -ECONNRESET);
			return;
		}
		qp_step(qp, input);
	}
	if (!test_and_set_bit(SWP_QPF_FIN_SEEN, &qp->flags))
		swp_qp_close_later(qp, SWP_QPF_PEER_FIN);
	swp_tx_run(qp);
	if (qp->tx.shut && sk->sk_state != TCP_CLOSE_WAIT)
		swp_qp_dead(qp, 0);
}

/* Receiving on the consumer's CPU ------------------------------------------ */

/* Octets from which it pays to move to another CPU */
#define SWP_RX_MOVE	(32 * 1024)
/* The same for a reader that sleeps, of a stream to which it gives no answers ... */
#define SWP_RX_MOVE_BULK	(3 * 1024)
/* ... for this many octets.  Where they are answered, moving takes time. */
#define SWP_RX_BULK	(64 * 1024)
/* The same for a program that spins */
#define SWP_RX_SPIN	(256 * 1024)
/* Octets after which rx_work releases the socket lock */
#define SWP_RX_BURST	(512 * 1024)
/* Ticks after which another context takes over from one that has not run */
#define SWP_RX_PATIENCE	2
/* Ticks during which a reader that was late is not asked again */
#define SWP_RX_LATE	(HZ / 4)

void swp_qp_consumer_is_here(struct swp_qp *qp)
{
	int cpu = in_task() ? raw_smp_processor_id() : -1;

	if (READ_ONCE(qp->rx.cpu) != cpu)
		WRITE_ONCE(qp->rx.cpu, cpu);
}

/* False: it is queued already, or is being cancelled. */
static bool queue_rx(struct swp_qp *qp)
{
	struct workqueue_struct *wq = is_programs(qp) ? swp_rx_user_wq :
							swp_rx_wq;
	int cpu = READ_ONCE(qp->rx.cpu);

	return queue_work_on(cpu < 0 ? WORK_CPU_UNBOUND : cpu, wq, &qp->rx_work);
}

/* The owner of the stream: until SWP_RX_PATIENCE is over, @by receives. */
static void receives(struct swp_qp *qp, enum swp_rx_by by)
{
	swp_qp_assert_owned(qp);
	WRITE_ONCE(qp->rx.by, by);
	qp->rx.by_since = jiffies;
	if (by != SWP_RX_SOFTIRQ)
		mod_timer(&qp->rx_timer, jiffies + SWP_RX_PATIENCE);
}

/* What follows from octets that were received, and from all that was left to others */
static void all_news(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	swp_tx_news(qp, SWP_NEWS_DATA);
	if (!qp->spinner)
		return;
	swp_tx_acked(qp);
	swp_tx_news(qp, SWP_NEWS_ACKED);
}

/* Receive some; true: there may be more, for @by to receive. */
static bool receive(struct swp_qp *qp, enum swp_rx_by by, size_t octets)
{
	struct swp_llp *llp = swp_qp_llp(qp);
	bool more = false;

	if (!llp)
		return false;
	lock_sock(llp->sk);
	if (llp->owner == qp) {
		more = swp_rx_some(qp, octets);
		receives(qp, more ? by : SWP_RX_SOFTIRQ);
		all_news(qp);
	}
	swp_llp_release(llp);
	swp_llp_put(llp);
	return more;
}

bool swp_qp_receive(struct swp_qp *qp, size_t octets)
{
	return receive(qp, SWP_RX_READER, octets);
}

static void rx_work(struct work_struct *work)
{
	struct swp_qp *qp = container_of(work, struct swp_qp, rx_work);

	/* queue it again, so that others get the CPU first */
	if (!receive(qp, SWP_RX_WORK, SWP_RX_BURST) || !queue_rx(qp))
		swp_qp_put(qp);
}

static bool rx_is_late(const struct swp_qp *qp)
{
	return time_after_eq(jiffies, qp->rx.by_since + SWP_RX_PATIENCE);
}

/* How much has arrived, for those that may receive it */
enum rx_amount {
	RX_FEW,			/* not worth waking anybody */
	RX_SOME,		/* worth waking a reader */
	RX_MANY,		/* or a worker */
};

/*
 * Have the next context receive: the reader, else the work item if @amount is worth
 * it, else softirq.  A reader that did not come is not asked for a while: it may be
 * busy.  True: the caller, softirq, must not.
 */
static bool pass_on(struct swp_qp *qp, enum rx_amount amount)
{
	enum swp_rx_by by = qp->rx.by, next;
	bool comes;

	swp_qp_assert_owned(qp);
	if (by == SWP_RX_READER) {
		qp->rx.reader_late = true;
		qp->rx.late_since = jiffies;
	} else if (time_after_eq(jiffies, qp->rx.late_since + SWP_RX_LATE)) {
		qp->rx.reader_late = false;
	}
	comes = by == SWP_RX_SOFTIRQ && !qp->rx.reader_late &&
		(qp->spinner ? swp_spinner_comes(qp) :
		 qp->arrived && qp->arrived(qp->arrived_ctx, amount == RX_FEW));
	if (!comes && (amount != RX_MANY ||
		       (qp->spinner && by == SWP_RX_SOFTIRQ)))
		return false;
	next = swp_rx_next(by, comes);
	if (next == SWP_RX_READER)
		swp_qp_stat_inc(qp, RX_READ);
	if (next == SWP_RX_WORK) {
		swp_qp_get(qp);
		if (queue_rx(qp)) {
			swp_qp_stat_inc(qp, RX_MOVED);
		} else {
			/* one that was late has not run yet; it finds nothing */
			swp_qp_put(qp);
			next = SWP_RX_SOFTIRQ;
		}
	}
	receives(qp, next);
	return next != SWP_RX_SOFTIRQ;
}

/*
 * Is there a stream of octets to receive, or of reads to answer?  One message, or one
 * read at a time, is done sooner where it arrives.
 */
static bool much_for_spinner(const struct swp_qp *qp, u32 unread)
{
	swp_qp_assert_owned(qp);
	if (qp->rx.big_reads)
		return true;
	return unread >= SWP_RX_MOVE_BULK && qp->rx.unanswered >= SWP_RX_SPIN &&
	       qp->oread_prod - qp->oread_cons != 1;
}

/*
 * Softirq runs on the CPU that received the packets; with both ends on one
 * machine, that is the sender's.  To copy and check many octets at once, it
 * pays to move to the CPU on which the consumer reads: they should be in its
 * cache.
 */
static bool rx_moves(struct swp_qp *qp)
{
	int cpu = READ_ONCE(qp->rx.cpu);
	u32 unread;

	swp_qp_assert_owned(qp);
	if (qp->rx.by != SWP_RX_SOFTIRQ)
		return !rx_is_late(qp) || pass_on(qp, RX_MANY);
	unread = swp_llp_unread(qp->llp);
	qp->rx.unanswered = min_t(u32, qp->rx.unanswered + unread, SWP_RX_SPIN);
	if (swp_llp_is_locked(qp->llp))
		return false;
	if (qp->spinner)
		return much_for_spinner(qp, unread) && pass_on(qp, RX_SOME);
	if (cpu < 0 || cpu == raw_smp_processor_id())
		return false;
	if (unread >= SWP_RX_MOVE)
		return pass_on(qp, RX_MANY);
	if (qp->rx.unanswered < SWP_RX_BULK)
		return false;
	return pass_on(qp, unread >= SWP_RX_MOVE_BULK ? RX_SOME : RX_FEW);
}

/* The same for room to send */
static bool tx_moves(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	if (!qp->spinner)
		return false;
	if (qp->rx.by != SWP_RX_SOFTIRQ)
		return !rx_is_late(qp) || pass_on(qp, RX_MANY);
	return qp->tx.turn == SWP_TURN_TCP &&
	       !swp_llp_is_locked(qp->llp) && pass_on(qp, RX_SOME);
}

/*
 * With a full window no packet arrives whose softirq would notice that another
 * context is late, so this timer does.  Nothing stops it when that has run: it
 * checks the time of the last move instead.
 */
static void rx_late(struct timer_list *t)
{
	struct swp_qp *qp = timer_container_of(qp, t, rx_timer);
	struct swp_llp *llp = swp_qp_llp(qp);
	bool again = false;

	if (!llp)
		return;
	if (!swp_llp_trylock(llp)) {
		/* try again when the lock is free */
		again = READ_ONCE(qp->rx.by) != SWP_RX_SOFTIRQ;
	} else {
		if (llp->owner == qp && qp->rx.by != SWP_RX_SOFTIRQ) {
			again = !rx_is_late(qp);
			if (!again && !pass_on(qp, RX_MANY)) {
				swp_rx_run(qp);
				all_news(qp);
			}
		}
		swp_llp_unlock(llp);
	}
	if (again)
		mod_timer(&qp->rx_timer, jiffies + 1);
	swp_llp_put(llp);
}

static void llp_data_ready(struct swp_llp *llp)
{
	struct swp_qp *qp = llp->owner;
	bool left = qp->rx.by != SWP_RX_SOFTIRQ;

	swp_qp_assert_owned(qp);
	if (rx_moves(qp))
		return;
	swp_rx_run(qp);
	if (left)
		all_news(qp);
	else
		swp_tx_news(qp, SWP_NEWS_DATA);
}

static void llp_write_space(struct swp_llp *llp)
{
	struct swp_qp *qp = llp->owner;
	bool left = qp->spinner && qp->rx.by != SWP_RX_SOFTIRQ;

	swp_qp_assert_owned(qp);
	if (tx_moves(qp))
		return;
	if (left) {
		/* octets were left, too, and no other callback may follow */
		swp_rx_run(qp);
		all_news(qp);
		return;
	}
	swp_tx_acked(qp);
	swp_tx_news(qp, SWP_NEWS_ACKED);
}

static const struct swp_llp_ops qp_llp_ops = {
	.data_ready = llp_data_ready,
	.write_space = llp_write_space,
	.state_change = llp_state_change,
};

/* Calls the connection's closed(), unless that was done before. */
static void tell_closed(struct swp_qp *qp)
{
	const struct swp_conn_ops *ops;
	void *conn;

	spin_lock_bh(&qp->lock);
	ops = qp->conn_ops;
	conn = qp->conn;
	qp->conn_ops = NULL;
	spin_unlock_bh(&qp->lock);
	if (ops)
		ops->closed(conn, qp->close_error);
}

/* The work of the functions above that needs process context */
static void close_work(struct work_struct *work)
{
	struct swp_qp *qp = container_of(work, struct swp_qp, close_work);
	struct swp_llp *llp = swp_qp_llp(qp);
	const struct swp_conn_ops *ops = READ_ONCE(qp->conn_ops);

	if (!llp)
		goto out;
	if (test_and_clear_bit(SWP_QPF_SHUTDOWN, &qp->flags)) {
		swp_llp_shutdown(llp);
		start_linger(qp);
	}
	/* only this work clears ops, or the destruction, which waits for it */
	if (test_and_clear_bit(SWP_QPF_PEER_FIN, &qp->flags) && ops)
		ops->peer_fin(qp->conn);
	if (test_and_clear_bit(SWP_QPF_TELL, &qp->flags))
		tell_closed(qp);

	if (!test_and_clear_bit(SWP_QPF_CLOSED, &qp->flags))
		goto out_put;

	/* after this, no callback and no engine runs */
	swp_llp_set_owner(llp, NULL, NULL);
	spin_lock_bh(&qp->lock);
	qp->llp = NULL;
	spin_unlock_bh(&qp->lock);
	swp_llp_put(llp);
	stop_linger(qp);
	tell_closed(qp);
	/* what was posted meanwhile must not wait */
	if (READ_ONCE(qp->state) == SWP_QP_LEFT)
		swp_qp_kick(qp);
out_put:
	swp_llp_put(llp);
out:
	swp_qp_put(qp);
}

/*
 * Does a closing stream make progress?  That is, in one of the last SWP_STALLS
 * checks octets were acknowledged or read, or FPDUs came or went past TCP.  Socket
 * lock held.
 */
static bool closing_moves(struct swp_qp *qp)
{
	u32 moved = swp_llp_moved(qp->llp) +
		    (u32)qp->stats.v[SWP_STAT_TX_NEAR] +
		    (u32)qp->stats.v[SWP_STAT_RX_FPDU];

	swp_qp_assert_owned(qp);
	if (moved != qp->tx.moved) {
		qp->tx.moved = moved;
		qp->tx.stalls = 0;
	}
	return ++qp->tx.stalls < SWP_STALLS;
}

static void linger_work(struct work_struct *work)
{
	struct swp_qp *qp = container_of(work, struct swp_qp, linger_work.work);
	struct swp_llp *llp = swp_qp_llp(qp);

	/*
	 * The peer does not answer.  TCP keeps trying to deliver what it has,
	 * for as long as for any closed socket.
	 */
	if (llp) {
		lock_sock(llp->sk);
		if (llp->owner != qp)
			;
		else if (!swp_qp_closes(qp->state) || qp->tx.shut ||
			 qp->tx.fenced)
			swp_qp_dead(qp, qp->close_error);
		else if (closing_moves(qp))
			start_linger(qp);
		else
			swp_qp_dead(qp, -ETIMEDOUT);
		swp_llp_release(llp);
		swp_llp_put(llp);
	}
	swp_qp_put(qp);
}

/* Sending from process context -------------------------------------------- */

/* Small doorbells in a row that make a stream of requests */
#define SWP_STREAM_DOORBELLS	16
/* Most requests of a small doorbell */
#define SWP_STREAM_BATCH	4
/* Most octets of one of them that goes past TCP */
#define SWP_STREAM_NEAR	4096

/* Running pollers of all devices; at most half of the CPUs may poll. */
static atomic_t pollers;

static bool may_poll(void)
{
	int max = num_online_cpus() / 2;

	if (!swp_params.tx_poll_us || atomic_inc_return(&pollers) > max) {
		if (swp_params.tx_poll_us)
			atomic_dec(&pollers);
		return false;
	}
	return true;
}

/*
 * Are the requests from @first on worth another CPU?  Not large ones that take
 * receives: at full speed those of a program that sleeps run out, since its CPU
 * has to receive, too.  At most SWP_STREAM_BATCH requests.
 */
static bool pay(const struct swp_qp *qp, u32 first)
{
	u32 i;

	for (i = first; i != qp->sq_tx; i++) {
		const struct swp_slot *s = &qp->slots[i & qp->sq.mask];

		/* past TCP the poster's CPU has no more work than one copy */
		if (qp->tx.near && s->byte_len > SWP_STREAM_NEAR)
			return false;
		switch (s->opcode) {
		case SWP_OP_WRITE:
		case SWP_OP_READ:
		case SWP_OP_READ_INV:
			break;
		default:
			if (s->byte_len > qp->tx.mss)
				return false;
		}
	}
	return true;
}

/*
 * A program that posts requests one by one pays a system call for each doorbell,
 * a packet for a small one, and all the work for a large Write before it can post
 * the next.  If nothing is received in between, so that it is not a dialogue, a
 * worker on another CPU polls the send queue for a while.  Then posting costs
 * nothing of that, and small requests that accumulate share a packet.  Socket
 * lock held.
 */
static void note_doorbell(struct swp_qp *qp, u32 before)
{
	u32 taken = qp->sq_tx - before;
	unsigned int cpu;

	swp_qp_assert_owned(qp);
	swp_qp_stat_inc(qp, DOORBELLS);
	if (!taken || taken > SWP_STREAM_BATCH || !pay(qp, before)) {
		qp->tx.streak = 0;
		return;
	}
	if (++qp->tx.streak < SWP_STREAM_DOORBELLS ||
	    qp->tx.turn != SWP_TURN_POSTER || qp->tx.poller || !may_poll())
		return;
	qp->tx.streak = 0;
	qp->tx.poller = true;
	swp_tx_set_turn(qp, SWP_TURN_POLLER);
	swp_qp_stat_inc(qp, TX_POLLS);
	/*
	 * On the poster's own CPU it would only keep the poster from posting.
	 * If the poster moves there meanwhile, the worker finds nothing and
	 * ends.
	 */
	cpu = cpumask_next(raw_smp_processor_id(), cpu_online_mask);
	if (cpu >= nr_cpu_ids)
		cpu = cpumask_first(cpu_online_mask);
	swp_qp_get(qp);
	if (WARN_ON_ONCE(!queue_work_on(cpu, swp_poll_wq, &qp->poll_work)))
		swp_qp_put(qp);
}

/* Socket lock held, or the poller cannot run any more. */
static void end_poller(struct swp_qp *qp)
{
	if (!qp->tx.poller)
		return;
	qp->tx.poller = false;
	atomic_dec(&pollers);
}

enum swp_run {
	SWP_RUN_DOORBELL,
	SWP_RUN_WORK,
	SWP_RUN_POLL,		/* the poller has seen requests */
	SWP_RUN_POLL_END,	/* the poller ends */
};

/* One burst.  Socket lock held by this process, and the stream is the QP's. */
static void tx_burst(struct swp_qp *qp, enum swp_run why)
{
	u32 before = qp->sq_tx;

	swp_qp_assert_owned(qp);
	/* if the poller that ends has the turn, swp_tx_run() passes it on */
	if (why == SWP_RUN_POLL_END)
		end_poller(qp);
	swp_tx_run(qp);
	if (why == SWP_RUN_DOORBELL)
		note_doorbell(qp, before);
}

/* A side buffer for received octets that found no memory */
static u8 *starved_buf(struct swp_qp *qp)
{
	if (!READ_ONCE(qp->rx.starved))
		return NULL;
	return kvmalloc(roundup_pow_of_two(SWP_FPDU_MAX),
			GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
}

/* One burst of the process that owns the socket. */
static void own_burst(struct swp_qp *qp, struct swp_llp *llp, enum swp_run why,
		      bool leaving)
{
	u8 *buf = starved_buf(qp);

	lock_sock(llp->sk);
	/* otherwise the QP may have another stream by now */
	if (llp->owner == qp) {
		WRITE_ONCE(qp->tx.holder, current);
		qp->tx.leaving = leaving;
		qp->tx.left = SWP_TX_BURST;
		if (buf) {
			swp_rx_feed(qp, buf, roundup_pow_of_two(SWP_FPDU_MAX));
			if (!qp->rx.starved)
				WRITE_ONCE(qp->backoff, 0);
		}
		buf = NULL;
		tx_burst(qp, why);
	} else if (why == SWP_RUN_POLL_END) {
		end_poller(qp);
	}
	swp_llp_release(llp);
	kvfree(buf);
}

static const struct swp_llp_ops qp_llp_ops;

enum swp_near_burst {
	SWP_NEAR_NOT,	/* the peer is not here, or others have one of the sockets */
	SWP_NEAR_DONE,
	SWP_NEAR_MORE,	/* the peer owes responses, and there is no reason to wait */
};

/* Octets of a burst of both ends that are left to this one's own requests, at least */
#define SWP_NEAR_OWN	(SWP_NEAR_BURST / 4)

/*
 * Does the other end owe responses?  Otherwise, and where this one waits for memory or
 * has ended, its tx_work will do.  Both ends' sockets are locked.
 */
static bool near_more(const struct swp_qp *qp, const struct swp_qp *to)
{
	return swp_tx_owes(to) && qp->tx.turn != SWP_TURN_LATER &&
	       qp->tx.turn != SWP_TURN_NOBODY;
}

/*
 * One burst with the sockets of both ends, so that FPDUs can go past TCP: see
 * near.h.  Both are only taken as softirq takes them, since two processes that own
 * a socket each could not have the other one.
 */
static enum swp_near_burst near_burst(struct swp_qp *qp, struct swp_llp *llp,
				      enum swp_run why, bool leaving)
{
	struct swp_llp *peer = swp_near_peer(llp);
	enum swp_near_burst result = SWP_NEAR_DONE;
	bool was_leaving;
	struct swp_qp *to;

	if (!peer)
		return SWP_NEAR_NOT;
	if (READ_ONCE(qp->rx.starved) || !swp_llp_trylock_both(llp, peer)) {
		swp_llp_put(peer);
		return SWP_NEAR_NOT;
	}
	to = peer->ops == &qp_llp_ops ? peer->owner : NULL;
	if (llp->owner == qp) {
		qp->tx.by_hand = true;
		/* another process may be in its last burst, about to lock again */
		was_leaving = qp->tx.leaving;
		qp->tx.leaving = leaving;
		qp->tx.left = SWP_NEAR_BURST;
		if (to) {
			llp->near.qp = to;
			peer->near.qp = qp;
			to->tx.shared = !leaving;
			if (swp_tx_owes(to)) {
				qp->tx.left -= SWP_NEAR_OWN;
				swp_tx_run(to);
				swp_tx_settle(to);
				qp->tx.left += SWP_NEAR_OWN;
			}
		}
		tx_burst(qp, why);
		if (to) {
			swp_tx_settle(qp);
			if (near_more(qp, to))
				result = SWP_NEAR_MORE;
			to->tx.shared = false;
		}
		llp->near.qp = NULL;
		peer->near.qp = NULL;
		qp->tx.leaving = was_leaving;
		qp->tx.by_hand = false;
	} else if (why == SWP_RUN_POLL_END) {
		end_poller(qp);
	}
	swp_llp_unlock_both(llp, peer);
	swp_llp_put(peer);
	return result;
}

/*
 * Runs the engine in bursts, releasing the lock in between, until another
 * context has the turn and the peer, if it is here, has answered.  Process context.
 */
static void run_tx(struct swp_qp *qp, enum swp_run why)
{
	struct swp_llp *llp = swp_qp_llp(qp);
	bool leaving, more = false;
	enum swp_near_burst near;
	int n;

	for (n = 1; llp && n <= SWP_TX_LOOPS; n++) {
		leaving = n == SWP_TX_LOOPS;
		near = near_burst(qp, llp, why, leaving);
		if (near == SWP_NEAR_NOT)
			own_burst(qp, llp, why, leaving);
		/* somebody else had a socket: once more, if that is not over yet */
		more = near == SWP_NEAR_MORE || (near == SWP_NEAR_NOT && more);
		if (READ_ONCE(qp->tx.turn) != SWP_TURN_HOLDER && !more)
			break;
		/* note the doorbell, or the poller's end, only once */
		why = SWP_RUN_WORK;
		cond_resched();
	}
	/* leave it if another process has stored itself there by now */
	cmpxchg(&qp->tx.holder, current, NULL);
	/* without a stream, do not delay the QP's destruction by a retry */
	if (llp && READ_ONCE(qp->rx.starved))
		swp_qp_kick_later(qp);
	if (llp)
		swp_llp_put(llp);
	else if (why == SWP_RUN_POLL_END)
		end_poller(qp);
	/* the step to ERROR has flushed; flush what was posted later */
	if (READ_ONCE(qp->state) == SWP_QP_ERROR)
		swp_qp_flush(qp);
	else if (!llp)
		swp_pair_posted(qp);
}

/* Must the poller go on?  Read without the lock. */
static bool poll_on(const struct swp_qp *qp)
{
	switch (READ_ONCE(qp->tx.turn)) {
	case SWP_TURN_POLLER:
	case SWP_TURN_HOLDER:
	case SWP_TURN_ENGINE:
		return true;
	default:
		return false;
	}
}

static void poll_work(struct work_struct *work)
{
	struct swp_qp *qp = container_of(work, struct swp_qp, poll_work);
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(&qp->sq);
	u64 limit = swp_params.tx_poll_us * NSEC_PER_USEC;
	u64 until = ktime_get_ns() + limit;
	u32 spins = 0;

	while (poll_on(qp)) {
		if (READ_ONCE(ctrl->prod) != READ_ONCE(qp->sq_tx)) {
			run_tx(qp, SWP_RUN_POLL);
			until = ktime_get_ns() + limit;
			cond_resched();
			continue;
		}
		cpu_relax();
		if (++spins % 64)
			continue;
		cond_resched();
		if (ktime_get_ns() > until)
			break;
	}
	run_tx(qp, SWP_RUN_POLL_END);
	swp_qp_put(qp);
}

static void tx_work(struct work_struct *work)
{
	struct swp_qp *qp = container_of(to_delayed_work(work), struct swp_qp,
					 tx_work);

	run_tx(qp, SWP_RUN_WORK);
	swp_qp_put(qp);
}

void swp_qp_doorbell(struct swp_qp *qp)
{
	run_tx(qp, SWP_RUN_DOORBELL);
}

/*
 * swp_qp_serve - do what the socket callbacks have left to this process, see
 * swp_spinner_serve(): receive about @octets, and send in bursts as run_tx() does.
 */
void swp_qp_serve(struct swp_qp *qp, size_t octets)
{
	struct swp_llp *llp = swp_qp_llp(qp);
	bool more;

	if (!llp)
		return;
	lock_sock(llp->sk);
	if (llp->owner == qp) {
		WRITE_ONCE(qp->tx.holder, current);
		qp->tx.leaving = false;
		qp->tx.left = SWP_TX_BURST;
		qp->rx.serving = true;
		more = swp_rx_some(qp, octets);
		qp->rx.serving = false;
		receives(qp, more ? SWP_RX_READER : SWP_RX_SOFTIRQ);
		/* nobody can forget it before the lock is released */
		if (more)
			swp_spinner_add(qp);
		all_news(qp);
	}
	swp_llp_release(llp);
	if (READ_ONCE(qp->tx.turn) == SWP_TURN_HOLDER)
		run_tx(qp, SWP_RUN_WORK);
	else
		cmpxchg(&qp->tx.holder, current, NULL);
	swp_llp_put(llp);
}

/* Octets above which a worker sends, instead of the poster */
#define SWP_POST_DIRECT	(20 * 1024)

/* Runs the engine as softirq does.  False: tx_work has to run it. */
static bool run_here(struct swp_qp *qp)
{
	struct swp_llp *llp = swp_qp_llp(qp);
	bool done = false;

	if (!llp)
		return false;
	if (swp_llp_trylock(llp)) {
		/* the worker flushes a queue in the error state */
		if (llp->owner == qp && qp->state != SWP_QP_ERROR) {
			swp_tx_run(qp);
			done = qp->state != SWP_QP_ERROR;
		}
		swp_llp_unlock(llp);
	}
	swp_llp_put(llp);
	return done;
}

/*
 * A post must not call a completion handler (core_locking.rst): the consumer
 * may hold a lock that its handler takes.  The core's handlers for the CQs of
 * ib_alloc_cq() are allowed: they only schedule the polling.
 */
static bool has_core_cqs(const struct swp_qp *qp)
{
	return swp_cq_is_cores(qp->scq) && swp_cq_is_cores(qp->rcq);
}

/* In a handler that the receive engine has called with softirqs off? */
static bool in_rx(const struct swp_qp *qp)
{
	return in_softirq() && !in_hardirq() &&
	       READ_ONCE(qp->rx.notifies) == raw_smp_processor_id();
}

void swp_qp_posted(struct swp_qp *qp, u64 octets)
{
	if (in_rx(qp)) {
		qp->rx.posted = true;
		return;
	}
	if (octets <= SWP_POST_DIRECT && (qp->prompt || has_core_cqs(qp)) &&
	    run_here(qp))
		return;
	/* until the worker has looked, others need not ask for it, nor race it */
	WRITE_ONCE(swp_ring_ctrl(&qp->sq)->kick, 0);
	swp_qp_kick(qp);
}

/* Life ---------------------------------------------------------------------*/

int swp_qp_init_obj(struct swp_qp *qp)
{
	struct swp_device *dev = qp->dev;
	int ret;

	refcount_set(&qp->ref, 1);
	init_completion(&qp->idle);
	spin_lock_init(&qp->lock);
	spin_lock_init(&qp->sq_post_lock);
	spin_lock_init(&qp->rq_post_lock);
	INIT_DELAYED_WORK(&qp->tx_work, tx_work);
	INIT_WORK(&qp->poll_work, poll_work);
	INIT_WORK(&qp->rx_work, rx_work);
	timer_setup(&qp->rx_timer, rx_late, 0);
	qp->rx.cpu = -1;
	qp->rx.notifies = -1;
	qp->rx.read_try = (u32)jiffies;
	INIT_WORK(&qp->close_work, close_work);
	INIT_DELAYED_WORK(&qp->linger_work, linger_work);
	mutex_init(&qp->modify);
	swp_pair_init(qp);
	/* iWARP's Idle, the state of a new QP; iWARP has no Reset */
	qp->state = SWP_QP_INIT;
	ret = xa_alloc_cyclic_bh(&dev->qps, &qp->qpn, qp,
				 XA_LIMIT(2, SWP_MAX_QPN), &dev->qp_next,
				 GFP_KERNEL);
	return ret < 0 ? ret : 0;
}

/* The only place that changes qp->life.  Under qp->lock. */
static bool life_step(struct swp_qp *qp, enum swp_life_step step)
{
	enum swp_life next = swp_life_after(qp->life, step,
					    swp_qp_is_idle(qp->state));

	lockdep_assert_held(&qp->lock);
	if (next == SWP_LIFE_REFUSED)
		return false;
	WRITE_ONCE(qp->life, next);
	return true;
}

static bool life_step_locked(struct swp_qp *qp, enum swp_life_step step)
{
	bool taken;

	spin_lock_bh(&qp->lock);
	taken = life_step(qp, step);
	spin_unlock_bh(&qp->lock);
	return taken;
}

struct stream {
	struct swp_qp *qp;
	struct swp_llp *llp;
	const struct swp_conn_ops *ops;
	void *conn;
};

/* Socket lock held.  Without a turn the poller ends, whatever is posted. */
static int let_go(void *arg)
{
	const struct stream *s = arg;

	if (s->llp->owner == s->qp)
		WRITE_ONCE(s->qp->tx.turn, SWP_TURN_NOBODY);
	return 0;
}

/*
 * Ends the stream of a QP that gets no other one meanwhile, since its life is
 * RESTING or GOING.  On return no callback of the socket reaches the QP, no
 * engine and none of its work items runs, and its connection is released.
 * @flush_it: complete its requests in error
 */
static void end_stream(struct swp_qp *qp, bool flush_it)
{
	struct swp_llp *llp = swp_qp_llp(qp), *attached;
	struct stream s = { qp, llp };

	if (llp)
		swp_llp_give(llp, NULL, NULL, let_go, &s);
	if (cancel_delayed_work_sync(&qp->tx_work))
		swp_qp_put(qp);
	if (cancel_work_sync(&qp->poll_work))
		swp_qp_put(qp);
	if (cancel_work_sync(&qp->rx_work))
		swp_qp_put(qp);
	swp_spinner_forget(qp);
	timer_delete_sync(&qp->rx_timer);
	if (cancel_work_sync(&qp->close_work))
		swp_qp_put(qp);
	/* close_work() queues it, too */
	if (cancel_delayed_work_sync(&qp->tx_work))
		swp_qp_put(qp);
	stop_linger(qp);

	/* close_work() may have released the stream before us */
	spin_lock_bh(&qp->lock);
	attached = qp->llp;
	WRITE_ONCE(qp->llp, NULL);
	spin_unlock_bh(&qp->lock);
	swp_tx_release(qp);
	end_poller(qp);
	/* without a flush nobody else may do it either */
	set_state(qp, flush_it ? SWP_QP_ERROR : SWP_QP_RESET);
	if (flush_it)
		swp_qp_flush(qp);
	if (llp)
		swp_llp_shutdown(llp);
	tell_closed(qp);
	if (attached)
		swp_llp_put(attached);
	if (llp)
		swp_llp_put(llp);
}

/*
 * Why nothing runs on a freed QP:
 * 1. no new lookup finds the QP, and a context that has found it before cannot
 *    give it a stream any more;
 * 2. no callback of the socket reaches it, and no engine runs;
 * 3. none of its requests is outstanding;
 * 4. the connection manager has released it, and it waits for no peer;
 * 5. no reference is left.
 */
void swp_qp_destroy_obj(struct swp_qp *qp)
{
	int i;

	xa_erase_bh(&qp->dev->qps, qp->qpn);
	WARN_ON_ONCE(!life_step_locked(qp, SWP_STEP_GO));
	end_stream(qp, true);
	swp_pair_stop(qp);
	/* no start-up begins any more; end one that is running */
	swp_cm_qp_gone(qp);

	swp_qp_put(qp);
	wait_for_completion(&qp->idle);

	for (i = 0; i < SWP_STAT_QP_COUNT; i++)
		this_cpu_add(qp->dev->stats->v[i], qp->stats.v[i]);
	kvfree(qp->rx.asm_buf);
	swp_reads_free(qp);
}

/* Drops all requests of a ring; they complete nowhere. */
static u32 empty_ring(struct swp_ring *r)
{
	struct swp_ring_ctrl *ctrl;
	u32 prod;

	if (!r->entries)
		return 0;
	ctrl = swp_ring_ctrl(r);
	WRITE_ONCE(ctrl->kick, 0);
	prod = READ_ONCE(ctrl->prod);
	/* pairs with the poster's acquire load of cons */
	smp_store_release(&ctrl->cons, prod);
	return prod;
}

/* Makes a QP without stream as it was when it was created. */
static void renew(struct swp_qp *qp)
{
	swp_reads_free(qp);
	qp->iread_prod = 0;
	qp->iread_cons = 0;
	qp->oread_prod = 0;
	qp->oread_cons = 0;
	kvfree(qp->rx.asm_buf);
	memset_after(&qp->rx, 0, sge);
	qp->rx.cpu = -1;
	qp->rx.notifies = -1;
	qp->rx.read_try = (u32)jiffies;
	memset_after(&qp->tx, 0, sqe);
	memset(&qp->sp, 0, sizeof(qp->sp));
	qp->fault = SWP_FAULT_NONE;
	qp->term_len = 0;
	qp->vendor_err = 0;
	qp->close_error = 0;
	qp->backoff = 0;
	qp->flags = 0;

	spin_lock_bh(&qp->lock);
	qp->sq_tx = empty_ring(&qp->sq);
	qp->sq_done = qp->sq_tx;
	qp->sq_acked = qp->sq_tx;
	qp->ack_waiting = 0;
	qp->rq_cons = empty_ring(&qp->rq);
	WRITE_ONCE(qp->paired, false);
	WRITE_ONCE(qp->state, swp_qp_next(qp->state, SWP_QP_TO_RESET).state);
	WARN_ON_ONCE(!life_step(qp, SWP_STEP_RENEW) &&
		     qp->life != SWP_LIFE_GOING);
	spin_unlock_bh(&qp->lock);
	trace_swp_qp_state(qp->qpn, SWP_QP_RESET, 0);
}

/*
 * Why nothing of the old stream runs on the new one:
 * 1. life is RESTING, so no start-up gets a claim, and none attaches a stream;
 * 2. the start-up that has the claim is told to end, and has given it back, so
 *    swp_qp_start() does not run;
 * 3. the QP waits for no peer (swp_pair_stop());
 * 4. no callback, engine or work item runs (end_stream()).
 * A program may ring the doorbell meanwhile: run_tx() changes nothing of a QP
 * that is not the owner of the stream it has found, and flush() looks at the
 * state under the lock.
 */
int swp_qp_reset(struct swp_qp *qp)
{
	if (!life_step_locked(qp, SWP_STEP_REST))
		return -EINVAL;
	swp_cm_qp_gone(qp);
	wait_var_event(&qp->claim, !READ_ONCE(qp->claim));
	end_stream(qp, false);
	swp_pair_stop(qp);
	renew(qp);
	return 0;
}

int swp_qp_wait(struct swp_qp *qp, const struct swp_ep *ep)
{
	struct swp_qp_next next;
	int ret = 0;

	spin_lock_bh(&qp->lock);
	next = swp_qp_next(qp->state, SWP_QP_TO_PAIR);
	if (next.state == SWP_QP_NO) {
		ret = -EINVAL;
	} else if (qp->claim != ep || swp_qp_started(qp)) {
		ret = -EISCONN;
	} else {
		WRITE_ONCE(qp->state, next.state);
		WRITE_ONCE(qp->paired, true);
		/* a post begins to count the time, see swp_pair_posted() */
		if (qp->sq.entries) {
			qp->tx.kick = true;
			WRITE_ONCE(swp_ring_ctrl(&qp->sq)->kick, 1);
		}
	}
	spin_unlock_bh(&qp->lock);
	return ret;
}

bool swp_qp_alone(struct swp_qp *qp, bool left)
{
	struct swp_qp_next next;
	bool posted;

	spin_lock_bh(&qp->lock);
	next = swp_qp_next(qp->state, SWP_QP_ALONE);
	/* or it has been reset since the caller looked */
	if (left ? qp->state != SWP_QP_LEFT : qp->state == SWP_QP_LEFT)
		next.state = SWP_QP_NO;
	if (next.state != SWP_QP_NO)
		WRITE_ONCE(qp->state, next.state);
	posted = swp_qp_has_posts(qp);
	spin_unlock_bh(&qp->lock);
	if (next.state == SWP_QP_NO)
		return false;
	trace_swp_qp_state(qp->qpn, next.state, qp->vendor_err);
	flush(qp, IB_WC_RETRY_EXC_ERR);
	last_wqe(qp);
	/* an InfiniBand QP reports a request that failed by its completion */
	if (!posted)
		swp_qp_event(qp, IB_EVENT_QP_FATAL);
	return true;
}

/* Another start-up may follow, unless the QP is being destroyed or reset. */
static void undo_start(struct swp_qp *qp)
{
	swp_reads_free(qp);
	life_step_locked(qp, SWP_STEP_UNDO);
}

/*
 * Attaches the stream, if the QP may still have it; from now on the destruction
 * of the QP finds the stream.  Socket lock held, so that the QP has the
 * callbacks before its destruction can remove them.
 */
static int attach(void *arg)
{
	const struct stream *s = arg;
	struct swp_qp *qp = s->qp;
	int ret = -EINVAL;

	spin_lock_bh(&qp->lock);
	if (life_step(qp, SWP_STEP_ATTACH)) {
		WRITE_ONCE(qp->state,
			   swp_qp_next(qp->state, SWP_QP_STARTED).state);
		qp->conn_ops = s->ops;
		qp->conn = s->conn;
		swp_llp_get(s->llp);
		WRITE_ONCE(qp->llp, s->llp);
		ret = 0;
	}
	spin_unlock_bh(&qp->lock);
	return ret;
}

/*
 * Memory of a kernel consumer may not be referred to, and its handlers run under one
 * socket's lock.  There is no place for markers.
 */
static bool may_go_near(const struct swp_qp *qp)
{
	return qp->user && !qp->sp.tx_markers && !qp->sp.rx_markers;
}

int swp_qp_start(struct swp_qp *qp, struct swp_llp *llp,
		 const struct swp_stream_params *p,
		 const struct swp_conn_ops *ops, void *conn)
{
	struct stream s = { qp, llp, ops, conn };
	bool read_rtr;
	int ret;

	/* one stream at a time, even if a program connects it twice at once */
	if (!life_step_locked(qp, SWP_STEP_START))
		return -EINVAL;
	/* a Read RTR needs a place, even if the peer grants no reads */
	read_rtr = p->initiator && p->rtr == SWP_RTR_READ;
	ret = swp_reads_init(qp, p->ird, max_t(u16, p->ord, read_rtr));
	if (ret)
		goto err;

	qp->sp = *p;
	qp->tx.fenced = !p->initiator;
	qp->tx.rtr = p->initiator ? p->rtr : 0;
	qp->tx.send_msn = 1;
	qp->tx.rreq_msn = 1;
	qp->tx.atomic_msn = 1;
	qp->rx.crc = ~0U;
	qp->rx.msn[SWP_QN_SEND] = 1;
	qp->rx.msn[SWP_QN_READ_REQ] = 1;
	qp->rx.msn[SWP_QN_TERMINATE] = 1;
	qp->rx.msn[SWP_QN_ATOMIC_RESP] = 1;
	/*
	 * The worker looks first: the caller has to start other connections,
	 * too, and no time to send posted requests, unless they are small ones.
	 */
	qp->tx.turn = qp->prompt ? SWP_TURN_HOLDER : SWP_TURN_WORK;
	ret = swp_llp_give(llp, &qp_llp_ops, qp, attach, &s);
	if (ret)
		goto err;
	swp_near_add(llp, may_go_near(qp) ? READ_ONCE(qp->dev->policy.same_host) :
					    SWP_SAME_HOST_OFF);
	if (!qp->prompt || !run_here(qp))
		swp_qp_kick(qp);
	return 0;

err:
	undo_start(qp);
	return ret;
}

void swp_qp_abort(struct swp_qp *qp, const void *conn)
{
	struct swp_llp *llp;
	bool its;

	/* both are set together, see attach() */
	spin_lock_bh(&qp->lock);
	its = qp->conn == conn;
	spin_unlock_bh(&qp->lock);
	llp = its ? swp_qp_llp(qp) : NULL;
	if (!llp)
		return;
	swp_llp_abort(llp);
	lock_sock(llp->sk);
	if (llp->owner == qp)
		swp_qp_dead(qp, -ECONNABORTED);
	swp_llp_release(llp);
	swp_llp_put(llp);
}

/*
 * A state change by the consumer that concerns no engine: none runs, or nothing
 * changes for it.
 */
static int modify_idle(struct swp_qp *qp, enum swp_qp_input input)
{
	struct swp_qp_next next;
	int ret = 0;

	spin_lock_bh(&qp->lock);
	next = swp_qp_next(qp->state, input);
	if (next.state == SWP_QP_NO)
		ret = -EINVAL;
	else
		WRITE_ONCE(qp->state, next.state);
	spin_unlock_bh(&qp->lock);
	return ret;
}

/* Moves a QP to ERROR that has no stream, and will not get one. */
static bool modify_err_idle(struct swp_qp *qp)
{
	struct swp_qp_next next;
	bool idle;

	spin_lock_bh(&qp->lock);
	/* a stream whose peer has left does nothing any more, attached or not */
	idle = !qp->llp || qp->state == SWP_QP_LEFT;
	next = swp_qp_next(qp->state, SWP_QP_TO_ERR_IDLE);
	if (idle && !WARN_ON_ONCE(next.state == SWP_QP_NO))
		WRITE_ONCE(qp->state, next.state);
	spin_unlock_bh(&qp->lock);
	if (!idle)
		return false;
	swp_qp_flush(qp);
	last_wqe(qp);
	return true;
}

/* ERR: stop sending, flush, close the stream.  SQD: send all before that. */
static void modify_stream(struct swp_qp *qp, enum swp_qp_input input)
{
	struct swp_llp *llp = swp_qp_llp(qp);

	/* close_work() has released the stream: it has been flushed, or is LEFT */
	if (!llp)
		return;
	lock_sock(llp->sk);
	if (llp->owner == qp)
		qp_step(qp, input);
	swp_llp_release(llp);
	swp_llp_put(llp);
}

/*
 * The connection manager moves a QP to RTS, so RTR and RTS change nothing, and
 * are accepted in INIT and RTS; pair.c has RTR with the address of a peer, and
 * the RTS that follows it.  Process context.
 */
int swp_qp_modify_state(struct swp_qp *qp, enum ib_qp_state state)
{
	switch (state) {
	case IB_QPS_RESET:
		return swp_qp_reset(qp);
	case IB_QPS_INIT:
		return modify_idle(qp, SWP_QP_TO_INIT);
	case IB_QPS_RTR:
		return modify_idle(qp, SWP_QP_TO_RTR);
	case IB_QPS_RTS:
		return modify_idle(qp, SWP_QP_TO_RTS);
	case IB_QPS_SQD:
		modify_stream(qp, SWP_QP_TO_SQD);
		return 0;
	case IB_QPS_ERR:
		if (!modify_err_idle(qp)) {
			modify_stream(qp, SWP_QP_TO_ERR);
			/* the peer may have left meanwhile */
			if (READ_ONCE(qp->state) == SWP_QP_LEFT)
				modify_err_idle(qp);
		}
		return 0;
	default:
		return -EINVAL;
	}
}
