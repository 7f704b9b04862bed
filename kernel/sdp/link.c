// SPDX-License-Identifier: GPL-2.0
/* Set-up and teardown of links, see link.h. */
#include <linux/slab.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "auto.h"
#include "cma.h"
#include "compat.h"
#include "family.h"
#include "link.h"
#include "listen.h"
#include "own.h"
#include "sock.h"
#include "stats.h"
#include "trace.h"
#include "uapi/softwarp_sdp.h"

struct workqueue_struct *sdp_wq, *sdp_listen_wq, *sdp_move_wq;
static struct workqueue_struct *end_wq, *push_wq;

static void work(struct work_struct *work);
static void push_work(struct work_struct *work);
static void dismantle(struct work_struct *work);
static void timer(struct timer_list *t);
static void nudge(struct timer_list *t);
static void cq_work(struct work_struct *work);

/* Lifetime and timers ------------------------------------------------------ */

struct sdp_link *sdp_link_new(const struct sock *sk, bool connector,
			      const struct sdp_carrier_ops *ops)
{
	struct sdp_link *link = kzalloc(sizeof(*link), GFP_KERNEL);

	if (!link)
		return NULL;
	if (sdp_seen_reserve(&link->seen, SDP_SEEN_LINK, sk)) {
		kfree(link);
		return NULL;
	}
	kref_init(&link->ref);
	spin_lock_init(&link->lock);
	sdp_spin_init(&link->spin);
	INIT_LIST_HEAD(&link->rx_early);
	INIT_LIST_HEAD(&link->rx_ready);
	INIT_LIST_HEAD(&link->on_device);
	INIT_LIST_HEAD(&link->entry);
	INIT_WORK(&link->work, work);
	INIT_WORK(&link->push_work, push_work);
	link->tx_cpu = -1;
	INIT_WORK(&link->end, dismantle);
	INIT_WORK(&link->move_work, sdp_move_work);
	INIT_WORK(&link->cq_work, cq_work);
	timer_setup(&link->timer, timer, 0);
	timer_setup(&link->nudge, nudge, 0);
	link->ops = ops;
	link->connector = connector;
	link->phase = connector ? SDP_LINK_TCP : SDP_LINK_HELLO;
	link->traced = sdp_link_state(link);
	return link;
}

void sdp_link_over(struct sdp_link *link, struct socket *tcp)
{
	link->tcp = tcp;
	sock_hold(tcp->sk);
	link->carrier = tcp->sk;
}

static void release(struct kref *ref)
{
	struct sdp_link *link = container_of(ref, struct sdp_link, ref);

	if (link->attempt)
		sdp_attempt_put(link->attempt);
	sdp_seen_release(&link->seen);
	sdp_link_free(link);
	if (link->carrier)
		sock_put(link->carrier);
	if (link->next_carrier)
		sock_put(link->next_carrier);
	kfree_rcu(link, rcu);
}

void sdp_link_put(struct sdp_link *link)
{
	kref_put(&link->ref, release);
}

void sdp_link_event(struct sdp_link *link, enum sdp_event event)
{
	set_bit(event, &link->events);
	/* queued while it runs, the work would wake another worker in vain */
	if (current_work() == &link->work) {
		link->again = true;
		return;
	}
	sdp_link_get(link);
	if (!queue_work(sdp_wq, &link->work))
		sdp_link_put(link);
}

/*
 * Credit arrives on the CPU on which the peer's program reads, if both ends are
 * on one machine.  Work without a CPU of its own would mostly run there, too,
 * and one CPU would do what two can do.
 */
void sdp_link_push(struct sdp_link *link)
{
	int cpu = READ_ONCE(link->tx_cpu);

	sdp_link_get(link);
	if (!queue_work_on(cpu < 0 ? WORK_CPU_UNBOUND : cpu, push_wq,
			   &link->push_work))
		sdp_link_put(link);
}

static void set_timer(struct sdp_link *link, unsigned long time)
{
	lockdep_assert_held(&link->lock);
	/* dismantle() stops the timers only once */
	if (link->phase == SDP_LINK_DOWN)
		return;
	sdp_link_get(link);
	if (mod_timer(&link->timer, jiffies + time))
		sdp_link_put(link);
}

void sdp_link_later(struct sdp_link *link, unsigned long time)
{
	sdp_link_get(link);
	if (mod_timer(&link->nudge, jiffies + time))
		sdp_link_put(link);
}

static void set_tunable_timer(struct sdp_link *link, enum sdp_tunable which)
{
	set_timer(link, sdp_tunable_jiffies(link->seen.net, which));
}

void sdp_link_limit_setup_locked(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	set_tunable_timer(link, SDP_SETUP_TIMEOUT);
}

void sdp_link_limit_setup(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	sdp_link_limit_setup_locked(link);
	spin_unlock_bh(&link->lock);
}

static void stop_timer(struct sdp_link *link, struct timer_list *t)
{
	if (timer_delete(t))
		sdp_link_put(link);
}

/*
 * An orphan has as long as TCP's FIN-WAIT-2 takes, or as is configured, from
 * the last time that it has sent octets.
 */
static void begin_orphan_time(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	link->progress = link->conn.source.sent;
	link->orphan_until = jiffies +
		sdp_tunable_jiffies(link->seen.net, SDP_ORPHAN_TIMEOUT);
}

/* In jiffies; 0: it has to end. */
static unsigned long orphan_time_left(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->conn.source.sent != link->progress)
		begin_orphan_time(link);
	return time_after(link->orphan_until, jiffies) ?
	       link->orphan_until - jiffies : 0;
}

/* What has begun goes on: neither a move nor a HelloAck prolongs it. */
static void set_orphan_timer(struct sdp_link *link)
{
	set_timer(link, max(orphan_time_left(link), 1UL));
}

static void setup_timeout(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->phase == SDP_LINK_DOWN)
		return;
	sdp_count(link->seen.net, SDP_STAT_SETUP_TIMEOUTS);
	trace_sdp_setup(link, SDP_STEP_TIMEOUT, -ETIMEDOUT);
	sdp_link_down(link, link->open ? ECONNRESET : ETIMEDOUT);
}

/* Both ends have sent all, but the peer does not close the stream. */
static void close_timeout(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	sdp_count(link->seen.net, SDP_STAT_CLOSE_TIMEOUTS);
	sdp_link_act(link, sdp_conn_input(&link->conn, SDP_IN_GRACE));
}

/*
 * After our DisConn, first send AbortConn, which has a time limit of its own.
 */
static void give_up(struct sdp_link *link)
{
	bool said = link->conn.state == SDP_ABORTING;

	lockdep_assert_held(&link->lock);
	if (!said) {
		sdp_count(link->seen.net, SDP_STAT_ORPHAN_TIMEOUTS);
		/* the orphan's, about to expire, would be AbortConn's limit */
		stop_timer(link, &link->timer);
	}
	sdp_link_act(link, sdp_conn_input(&link->conn, SDP_IN_ABORT));
	sdp_link_pump(link);
	if (said || link->conn.state != SDP_ABORTING)
		sdp_link_down(link, link->error);
}

bool sdp_link_ends_orphan(struct sdp_link *link)
{
	if (!link->orphan || orphan_time_left(link))
		return false;
	/* otherwise a limit of the end is running */
	if (link->conn.state != SDP_WAIT && link->conn.state != SDP_ABORTING)
		give_up(link);
	return true;
}

static void timer(struct timer_list *t)
{
	struct sdp_link *link = timer_container_of(link, t, timer);

	spin_lock_bh(&link->lock);
	/* set for something else while this waited for the lock */
	if (timer_pending(t))
		;
	else if (link->phase != SDP_LINK_UP || !link->answered)
		setup_timeout(link);
	else if (link->conn.state == SDP_WAIT)
		close_timeout(link);
	else if (link->conn.state == SDP_ABORTING)
		give_up(link);
	else if (link->orphan && !sdp_link_ends_orphan(link))
		set_orphan_timer(link);
	spin_unlock_bh(&link->lock);
	sdp_link_put(link);
}

static void nudge(struct timer_list *t)
{
	struct sdp_link *link = timer_container_of(link, t, nudge);

	spin_lock_bh(&link->lock);
	link->more = false;
	if (link->move == SDP_MOVE_BOUND)
		sdp_link_event(link, SDP_EV_MOVE);
	if (link->push_due)
		sdp_link_event(link, SDP_EV_PUMP);
	if (link->phase == SDP_LINK_UP) {
		if (sdp_credits_left(&link->conn.credits) < 3)
			trace_sdp_credit(link, true);
		sdp_conn_probe(&link->conn);
		sdp_link_starves(link);
	} else if (link->phase == SDP_LINK_TCP) {
		sdp_link_event(link, SDP_EV_TCP);
	}
	sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
	sdp_link_put(link);
}

/* The state as users see it ------------------------------------------------ */

static const u8 phases[] = {
	[SDP_LINK_TCP] = SDP_INFO_TCP,
	[SDP_LINK_HELLO] = SDP_INFO_HELLO,
	[SDP_LINK_START] = SDP_INFO_MPA,
	[SDP_LINK_ACK] = SDP_INFO_HELLO_ACK,
	[SDP_LINK_UP] = SDP_INFO_OPEN,
	[SDP_LINK_DOWN] = SDP_INFO_DOWN,
};

static const u8 states[SDP_STATES] = {
	[SDP_OPEN] = SDP_INFO_OPEN,
	[SDP_CLOSING] = SDP_INFO_CLOSING,
	[SDP_HALF] = SDP_INFO_HALF,
	[SDP_PEER_HALF] = SDP_INFO_PEER_HALF,
	[SDP_PEER_CLOSING] = SDP_INFO_PEER_CLOSING,
	[SDP_LAST] = SDP_INFO_LAST,
	[SDP_WAIT] = SDP_INFO_WAIT,
	[SDP_FINISH] = SDP_INFO_FINISH,
	[SDP_ABORTING] = SDP_INFO_ABORTING,
	[SDP_CLOSED] = SDP_INFO_CLOSED,
};

u8 sdp_link_state(const struct sdp_link *link)
{
	if (link->move && link->phase != SDP_LINK_DOWN)
		return SDP_INFO_MOVING;
	if (link->phase == SDP_LINK_UP)
		return states[link->conn.state];
	/* rdma_cm has one request and one reply: the latter is HelloAck */
	if (link->phase == SDP_LINK_START && link->ops == &sdp_carrier_cm)
		return SDP_INFO_HELLO_ACK;
	return phases[link->phase];
}

void sdp_link_stated(struct sdp_link *link)
{
	u8 now = sdp_link_state(link);

	lockdep_assert_held(&link->lock);
	if (now == link->traced)
		return;
	trace_sdp_state(link, link->traced, now);
	link->traced = now;
}

void sdp_link_fault(struct sdp_link *link, enum sdp_fault fault)
{
	sdp_count_fault(link->seen.net, fault);
	trace_sdp_fault(link, fault);
}

/* Changes of state --------------------------------------------------------- */

/* The stream goes on over another carrier. */
static void moved(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	link->phase = SDP_LINK_UP;
	link->move = SDP_MOVE_NONE;
	sdp_link_stated(link);
	stop_timer(link, &link->timer);
	if (link->orphan)
		set_orphan_timer(link);
	sdp_count(link->seen.net, SDP_STAT_RESUMED);
}

void sdp_link_up(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->open) {
		moved(link);
		return;
	}
	WRITE_ONCE(link->open, true);
	/* pairs with decided(), which then sees what was negotiated as well */
	smp_store_release(&link->phase, SDP_LINK_UP);
	sdp_link_stated(link);
	/* MPA may fence HelloAck, until the RTR of a peer that initiates comes */
	link->answered = link->connector ||
			 link->initiator != SDP_INFO_INITIATOR_CONNECTOR;
	if (link->answered)
		stop_timer(link, &link->timer);
	sdp_count(link->seen.net, link->connector ? SDP_STAT_CONNECTED :
						    SDP_STAT_ACCEPTED);
	if (link->sk)
		sdp_sock_up(link->sk, link);
}

/*
 * Only now the set-up of a peer that initiates MPA is over.  While it owes its RTR
 * nothing is unacknowledged, so TCP would not notice that it has gone.
 */
void sdp_link_answered(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->answered)
		return;
	link->answered = true;
	/* a limit of the end is running */
	if (link->conn.state == SDP_ABORTING || link->conn.state == SDP_WAIT)
		return;
	stop_timer(link, &link->timer);
	if (link->orphan)
		set_orphan_timer(link);
}

/*
 * Report the end to the program once; all of its state is set before it wakes.
 * With an attempt that may fall back to TCP, an end before UP is reported to
 * the attempt instead.
 */
static void tell_over(struct sdp_link *link, u8 phase)
{
	bool tell = link->sk && !link->told;

	lockdep_assert_held(&link->lock);
	if (tell && link->attempt && link->phase < SDP_LINK_UP && !link->open) {
		link->told = true;
		/* pairs with decided() */
		smp_store_release(&link->phase, phase);
		sdp_attempt_failed(link->attempt, link->error);
		return;
	}
	if (tell)
		sdp_sock_over(link->sk, link);
	/* pairs with decided(), sdp_stream_poll(): @phase comes after sk_err */
	smp_store_release(&link->phase, phase);
	if (!tell)
		return;
	link->told = true;
	sdp_sock_wake_over(link->sk, link);
}

void sdp_link_down(struct sdp_link *link, int error)
{
	lockdep_assert_held(&link->lock);
	if (link->phase == SDP_LINK_DOWN)
		return;
	link->error = error;
	tell_over(link, SDP_LINK_DOWN);
	WRITE_ONCE(link->open, false);
	sdp_link_stated(link);
	sdp_link_event(link, SDP_EV_ABORT);
}

void sdp_link_abort(struct sdp_link *link, int error)
{
	spin_lock_bh(&link->lock);
	sdp_link_down(link, error);
	spin_unlock_bh(&link->lock);
}

void sdp_link_act(struct sdp_link *link, u32 actions)
{
	int failure = READ_ONCE(link->lost) ?: ECONNRESET;

	lockdep_assert_held(&link->lock);
	sdp_link_stated(link);
	if (actions & SDP_DO_EOF) {
		link->eof = true;
		sdp_link_undefer(link);
		if (link->sk)
			sdp_sock_eof(link->sk);
	}
	if (actions & SDP_DO_GRACE)
		set_tunable_timer(link, SDP_GRACE);
	if ((actions & SDP_DO_RESET) && link->phase != SDP_LINK_DOWN)
		sdp_count(link->seen.net, SDP_STAT_RESETS);
	if (actions & (SDP_DO_RESET | SDP_DO_GONE))
		sdp_link_down(link, actions & SDP_DO_FAIL ? failure : 0);
	if (actions & SDP_DO_FAIL) {
		link->error = failure;
		tell_over(link, link->phase);
	}
	if (link->conn.state == SDP_ABORTING && !timer_pending(&link->timer))
		set_timer(link, SDP_ABORT_TIME);
	if (actions & SDP_DO_FIN)
		sdp_link_event(link, SDP_EV_FIN);
}

/*
 * A slow peer can keep a closed connection for long.  So orphans are limited,
 * as TCP's are; those above the limit are reset without AbortConn.
 */
static atomic_t orphans;

static bool count_orphan(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (!link->counted)
		atomic_inc(&orphans);
	link->counted = true;
	return atomic_read(&orphans) <=
	       sdp_tunable(link->seen.net, SDP_ORPHANS_MAX);
}

static void uncount_orphan(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	if (link->counted)
		atomic_dec(&orphans);
	link->counted = false;
	spin_unlock_bh(&link->lock);
}

void sdp_link_reset(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	link->orphan = true;
	link->more = false;
	sdp_link_down(link, 0);
	spin_unlock_bh(&link->lock);
}

/*
 * The work item resets the stream when it gets a CPU.  A program that has closed its
 * end with an abort may count on the peer's finding it reset, as with TCP.
 */
static void abort_stream(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	/* sdp_link_quiesce() waits for us before the queue pair goes */
	link->receivers++;
	spin_unlock_bh(&link->lock);
	link->dev->api->abort(link->qp);
	spin_lock_bh(&link->lock);
	link->receivers--;
}

void sdp_link_orphan(struct sdp_link *link, bool abort)
{
	bool reset;

	spin_lock_bh(&link->lock);
	reset = abort && link->phase == SDP_LINK_UP &&
		link->ops == &sdp_carrier_tcp;
	link->orphan = true;
	/* at once: the lock is dropped below, while octets are posted */
	begin_orphan_time(link);
	link->more = false;
	if (link->open && !count_orphan(link)) {
		sdp_count(link->seen.net, SDP_STAT_ORPHANS_DROPPED);
		sdp_link_down(link, 0);
	}
	if (!link->open)
		sdp_link_down(link, 0);
	else if (abort)
		sdp_link_act(link, sdp_conn_input(&link->conn, SDP_IN_ABORT));
	else
		sdp_link_act(link, sdp_conn_input(&link->conn, SDP_IN_CLOSE));
	/* not if AbortConn is to go first: the RST might overtake it */
	reset = reset && link->phase == SDP_LINK_DOWN;
	sdp_link_pump(link);
	if (link->open && !timer_pending(&link->timer))
		set_orphan_timer(link);
	if (reset)
		abort_stream(link);
	spin_unlock_bh(&link->lock);
}

/* Completions of our own device -------------------------------------------- */

/* Completions at a time: a peer may send as fast as they are handled */
#define CQ_BUDGET	64

/* False: the budget is used up; there may be more, without an event. */
static bool take_all(struct ib_cq *cq)
{
	int left = CQ_BUDGET;
	struct ib_wc wc[4];
	int i, n;

	do {
		/* fewer than were asked for: what comes now, arming reports */
		do {
			n = ib_poll_cq(cq, ARRAY_SIZE(wc), wc);
			for (i = 0; i < n; i++)
				wc[i].wr_cqe->done(cq, &wc[i]);
			left -= n;
			if (left <= 0)
				return false;
		} while (n == ARRAY_SIZE(wc));
	} while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				      IB_CQ_REPORT_MISSED_EVENTS) > 0);
	return true;
}

/*
 * Handle completions, in order, with softirqs off.  Only the context that has
 * raised link->cq_events from 0 runs this, until the counter is 0 again or it
 * passes the duty on to the work item.
 */
static void answer_events(struct sdp_link *link)
{
	int events;

	do {
		events = atomic_read(&link->cq_events);
		if (!take_all(link->cq)) {
			sdp_link_get(link);
			queue_work(sdp_wq, &link->cq_work);
			return;
		}
	} while (atomic_sub_return(events, &link->cq_events));
}

static void cq_work(struct work_struct *work)
{
	struct sdp_link *link = container_of(work, struct sdp_link, cq_work);

	local_bh_disable();
	answer_events(link);
	local_bh_enable();
	sdp_link_put(link);
}

/*
 * If a context is already handling completions, the counter makes it look once
 * more.  That context may be this one: an answer to a message may complete at
 * once.
 */
static void on_completion(struct ib_cq *cq, void *ctx)
{
	struct sdp_link *link = ctx;

	if (atomic_inc_return(&link->cq_events) == 1)
		answer_events(link);
}

/* Have processes of the program receive; false: none is going to. */
static bool leave_to_processes(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->phase != SDP_LINK_UP || !link->sk || link->orphan ||
	    !sdp_sock_may_receive(link->sk))
		return false;
	/* before the wake-up: who sleeps looks at it once it is on the queue */
	WRITE_ONCE(link->arrived, true);
	sdp_sock_wake_to_receive(link->sk);
	return true;
}

/* Octets of the peer for a process that reads or waits, see startup.h */
static bool on_arrival(void *ctx, bool few)
{
	struct sdp_link *link = ctx;
	bool comes;

	/* one that ends its watch now looks at link->arrived before it sleeps */
	if (few && !atomic_read(&link->watchers))
		return false;
	spin_lock_bh(&link->lock);
	comes = leave_to_processes(link);
	spin_unlock_bh(&link->lock);
	return comes;
}

bool sdp_link_receive(struct sdp_link *link, u32 octets)
{
	bool go, more;

	if (!READ_ONCE(link->arrived))
		return false;
	spin_lock_bh(&link->lock);
	go = link->arrived && link->phase == SDP_LINK_UP;
	WRITE_ONCE(link->arrived, false);
	link->receivers += go;
	spin_unlock_bh(&link->lock);
	if (!go)
		return false;
	/* sdp_link_quiesce() waits for us before the queue pair goes */
	more = link->dev->api->receive(link->qp, octets);
	spin_lock_bh(&link->lock);
	link->receivers--;
	/* the caller may have enough, while others wait for something among it */
	if (more)
		leave_to_processes(link);
	spin_unlock_bh(&link->lock);
	return true;
}

/*
 * Not ib_alloc_cq(): polling in a softirq, as the core does it, would cost more
 * than the rest of a small message.
 */
static int create_cq(struct sdp_link *link)
{
	struct ib_cq_init_attr attr = { .cqe = SDP_CQES };
	struct ib_cq *cq = ib_create_cq(link->dev->ib, on_completion, NULL,
					link, &attr);

	if (IS_ERR(cq))
		return PTR_ERR(cq);
	link->cq = cq;
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
}

/* MPA's start-up, by softwarp ---------------------------------------------- */

static void on_request(void *ctx, const struct swp_startup_peer *peer)
{
	sdp_link_event(ctx, SDP_EV_REQUEST);
}

static void on_done(void *ctx, int status, const struct swp_startup_peer *peer)
{
	struct sdp_link *link = ctx;

	WRITE_ONCE(link->status, status);
	sdp_link_event(link, SDP_EV_DONE);
}

static void on_disconnect(void *ctx)
{
	/* not all that the peer has sent is processed yet; closed() follows */
}

static void on_closed(void *ctx, int error)
{
	struct sdp_link *link = ctx;

	WRITE_ONCE(link->stream_over, true);
	/* here TCP has given up; the peer is the cause of all other errors */
	if (error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH)
		WRITE_ONCE(link->lost, -error);
	sdp_link_event(link, SDP_EV_CLOSED);
}

static const struct swp_startup_ops ops = {
	.request = on_request,
	.done = on_done,
	.disconnect = on_disconnect,
	.closed = on_closed,
};

static bool initiates(const struct sdp_link *link)
{
	return link->connector ==
	       (link->initiator == SDP_INFO_INITIATOR_CONNECTOR);
}

/*
 * The receiver of the last streaming octet may initiate (RFC 5044 section 7.1.3),
 * and does unless the connector wants to.  Then the RTR lifts the fence of the
 * acceptor, which sends HelloAck.
 */
static int start_mpa(struct sdp_link *link)
{
	struct swp_startup_param p = {
		.qp = link->qp,
		.sock = link->tcp,
		.role = initiates(link) ? SWP_STARTUP_INITIATOR :
					  SWP_STARTUP_RESPONDER,
		.p2p = SWP_STARTUP_P2P_OFF,
		.ird = link->offer.ird,
		.ord = link->offer.ord,
		.ops = &ops,
		.ctx = link,
	};
	struct swp_startup *s;

	if (link->connector && initiates(link)) {
		p.p2p = SWP_STARTUP_P2P_UNSEEN;
		p.octets = link->hello;
		p.octets_len = sizeof(link->hello);
	}
	s = link->dev->api->start(&p);
	if (IS_ERR(s))
		return PTR_ERR(s);
	link->tcp = NULL;
	link->startup = s;
	return 0;
}

/* TCP's socket, while it is ours ------------------------------------------- */

static void tcp_event(struct sock *sk)
{
	struct sdp_link *link;

	read_lock_bh(&sk->sk_callback_lock);
	link = __locked_read_sk_user_data_with_flags(sk, SK_USER_DATA_NOCOPY);
	if (link)
		sdp_link_event(link, SDP_EV_TCP);
	read_unlock_bh(&sk->sk_callback_lock);
}

void sdp_link_hook(struct sdp_link *link)
{
	struct sock *sk = link->tcp->sk;

	write_lock_bh(&sk->sk_callback_lock);
	/* a BPF program may have put it into a sockmap, which uses both */
	link->foreign = sk->sk_user_data;
	if (!link->foreign) {
		__rcu_assign_sk_user_data_with_flags(sk, link,
						     SK_USER_DATA_NOCOPY);
		sk->sk_state_change = tcp_event;
		sk->sk_data_ready = tcp_event;
	}
	write_unlock_bh(&sk->sk_callback_lock);
}

/*
 * Afterwards tcp_event() neither runs nor can run: the device installs its own
 * callbacks next.
 */
static void unhook(struct sdp_link *link)
{
	struct sock *sk = link->tcp->sk;

	if (link->foreign)
		return;
	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	sdp_carrier_callbacks(sk);
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

void sdp_link_drop_tcp(struct sdp_link *link)
{
	if (!link->tcp)
		return;
	unhook(link);
	sock_release(link->tcp);
	link->tcp = NULL;
}

static int names(struct sdp_link *link)
{
	const struct sock *sk = link->tcp->sk;

	/* a move: the program keeps the addresses that it knows */
	if (link->open)
		return 0;
	if (inet_sk_state_load(sk) == TCP_CLOSE)
		return -ENOTCONN;
	/* a connector's own address was set by connect() */
	if (!link->connector)
		sdp_own_name(sk, (union sdp_end *)&link->local);
	sdp_end_of((union sdp_end *)&link->remote, sk, true);
	if (link->listener && link->listener->port)
		sdp_listener_name(link->listener, &link->local);
	return 0;
}

/* Set-up ------------------------------------------------------------------- */

int sdp_link_join(struct sdp_link *link, struct sdp_device *dev)
{
	trace_sdp_setup(link, SDP_STEP_DEVICE, dev ? 0 : -ENETUNREACH);
	if (!dev) {
		sdp_count(link->seen.net, SDP_STAT_NO_DEVICE);
		return -ENETUNREACH;
	}
	mutex_lock(&dev->mutex);
	if (dev->leaving) {
		mutex_unlock(&dev->mutex);
		sdp_device_put(dev);
		return -ENETDOWN;
	}
	link->dev = dev;
	list_add_tail(&link->on_device, &dev->links);
	mutex_unlock(&dev->mutex);
	spin_lock_bh(&link->lock);
	strscpy(link->seen.device, dev_name(&dev->ib->dev),
		sizeof(link->seen.device));
	spin_unlock_bh(&link->lock);
	return 0;
}

static int tcp_create_qp(struct sdp_link *link, struct ib_qp_init_attr *attr)
{
	const struct swp_startup_api *api = link->dev->api;
	struct ib_qp *qp;
	int ret;

	ret = create_cq(link);
	if (ret)
		return ret == -ENOMEM ? -ENOBUFS : ret;
	attr->send_cq = link->cq;
	attr->recv_cq = link->cq;
	attr->cap.max_inline_data = SDP_TX_INLINE;
	qp = ib_create_qp(link->dev->pd, attr);
	if (IS_ERR(qp))
		return PTR_ERR(qp) == -ENOMEM ? -ENOBUFS : PTR_ERR(qp);
	link->qp = qp;
	link->tx_inline = attr->cap.max_inline_data >= SDP_TX_INLINE;
	ret = api->prompt(qp, on_arrival, link);
	if (ret)
		return ret;
	/* this QP counts against the user's limits at the device */
	return api->owned_by(qp, link->seen.uid) ? -ENOBUFS : 0;
}

int sdp_link_make_qp(struct sdp_link *link)
{
	struct sdp_device *dev = link->dev;
	struct ib_qp_init_attr attr = {
		.cap = {
			/* a probe, and the drain */
			.max_send_wr = SDP_TX_SLOTS + 2,
			.max_recv_wr = SDP_RX_BUFS + 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	u32 ird, ord, sges;
	int ret;

	ret = sdp_device_depths(dev, &ird, &ord);
	if (ret)
		return ret;
	/* one SGE is for the header */
	sges = min_t(u32, dev->ib->attrs.max_send_sge, SDP_TX_PIECES + 1);
	if (sges < 2 || dev->ib->attrs.max_qp_wr < attr.cap.max_recv_wr)
		return -ENETUNREACH;
	attr.cap.max_send_sge = sges;
	link->tx_pieces = sges - 1;
	link->offer = (struct sdp_offer){
		.posted = SDP_RX_FIRST_BUFS,
		.rcv_size = SDP_RX_FIRST_SIZE,
		.want_size = SDP_RX_FIRST_SIZE,
		.max_adverts = 1,
		.ird = clamp_t(u32, ird, 1, 8),
		.ord = clamp_t(u32, ord, 1, 8),
	};
	ret = link->ops->create_qp(link, &attr);
	return ret ?: sdp_link_alloc(link);
}

static int say_hello(struct sdp_link *link)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct sdp_msg hello;
	struct kvec iov = {
		.iov_base = link->hello, .iov_len = sizeof(link->hello),
	};
	int ret;

	sdp_hello_make(&link->offer, &hello);
	sdp_encode(link->layout, &hello, link->hello);
	/* MPA's start-up sends it in one segment with the Request */
	if (initiates(link))
		return 0;
	/* nothing was sent before, so there is room for all of it */
	ret = kernel_sendmsg(link->tcp, &msg, &iov, 1, iov.iov_len);
	if (ret >= 0)
		ret = ret == sizeof(link->hello) ? 0 : -ENOBUFS;
	trace_sdp_setup(link, SDP_STEP_HELLO_SENT, ret);
	return ret;
}

/* TCP is connected, or Hello is here: find the device and create the rest. */
static int prepare(struct sdp_link *link)
{
	struct sock *sk = link->tcp->sk;
	int ret;

	ret = names(link);
	if (!ret)
		ret = sdp_link_join(link, sdp_device_find(sock_net(sk), sk));
	return ret ?: sdp_link_make_qp(link);
}

/* Start MPA, which takes over TCP's socket. */
static int start(struct sdp_link *link)
{
	int ret = 0;

	unhook(link);
	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_DOWN)
		ret = -ECONNABORTED;
	else
		link->phase = SDP_LINK_START;
	sdp_link_stated(link);
	spin_unlock_bh(&link->lock);
	if (!ret)
		ret = start_mpa(link);
	trace_sdp_setup(link, SDP_STEP_MPA, ret);
	return ret;
}

static int tcp_connected(struct sdp_link *link)
{
	struct sock *sk = link->tcp->sk;
	int state = inet_sk_state_load(sk);

	if (state == TCP_SYN_SENT || state == TCP_SYN_RECV)
		return 0;
	/* connect() has failed; SDP_EV_MOVE retries it */
	if (READ_ONCE(link->move) == SDP_MOVE_BOUND)
		return 0;
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return sock_error(sk) ?: -ECONNREFUSED;
	trace_sdp_setup(link, SDP_STEP_TCP, 0);
	/* a move as a whole is limited by leave() in move.c */
	if (!link->open)
		sdp_link_limit_setup(link);
	return prepare(link) ?: say_hello(link) ?: start(link);
}

/*
 * Read exactly the 32 octets of the Hello; what follows is MPA's.  1: all are
 * there, 0: not yet, or a negative errno
 */
static int read_hello(struct sdp_link *link)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT };
	struct kvec iov;
	int ret;

	/* read until EAGAIN: the end of the stream raises only one event */
	while (link->hello_got < sizeof(link->hello)) {
		iov.iov_base = link->hello + link->hello_got;
		iov.iov_len = sizeof(link->hello) - link->hello_got;
		ret = kernel_recvmsg(link->tcp, &msg, &iov, 1, iov.iov_len,
				     MSG_DONTWAIT);
		if (ret == -EAGAIN)
			return 0;
		if (ret <= 0)
			return ret ?: -ECONNRESET;
		link->hello_got += ret;
	}
	return 1;
}

static int bad_hello(struct sdp_link *link)
{
	sdp_count(link->seen.net, SDP_STAT_BAD_HELLO);
	trace_sdp_setup(link, SDP_STEP_HELLO_TAKEN, -EPROTO);
	return -EPROTO;
}

/*
 * What follows the Hello can only be a Request: the connector sends nothing else
 * before HelloAck (section 8.1.1 (2)).
 */
static bool request_follows(struct sdp_link *link)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT };
	u8 octet;
	struct kvec iov = { .iov_base = &octet, .iov_len = 1 };

	return kernel_recvmsg(link->tcp, &msg, &iov, 1, 1,
			      MSG_PEEK | MSG_DONTWAIT) == 1;
}

static int hear_hello(struct sdp_link *link)
{
	struct sdp_terms terms;
	struct sdp_msg hello;
	enum sdp_layout layout;
	int ret;

	ret = read_hello(link);
	if (ret <= 0)
		return ret;
	if (!sdp_hello_layout(link->hello, &layout) ||
	    sdp_decode(layout, link->hello, sizeof(link->hello), &hello))
		return bad_hello(link);
	if (!sdp_listener_admit(link))
		return 0;
	link->layout = layout;
	if (request_follows(link))
		WRITE_ONCE(link->initiator, SDP_INFO_INITIATOR_CONNECTOR);
	ret = prepare(link);
	if (ret)
		return ret;
	/* only now, because link->offer has the depths of the device */
	if (sdp_hello_check(&link->offer, &hello, &terms))
		return bad_hello(link);
	trace_sdp_setup(link, SDP_STEP_HELLO_TAKEN, 0);
	link->offer.ird = terms.ird;
	link->offer.ord = terms.ord;
	spin_lock_bh(&link->lock);
	sdp_conn_init(&link->conn, false, &link->offer, &terms);
	spin_unlock_bh(&link->lock);
	return start(link);
}

/* MPA's start-up has ended: UP for the acceptor, ACK for the connector. */
static int started(struct sdp_link *link)
{
	struct sdp_out out = { .solicited = true };
	int status = READ_ONCE(link->status);

	trace_sdp_setup(link, SDP_STEP_MPA_DONE, status);
	if (status)
		return status;
	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_START && link->connector) {
		link->phase = SDP_LINK_ACK;
		sdp_link_stated(link);
	} else if (link->phase == SDP_LINK_START) {
		sdp_hello_ack_make(&link->offer, &out.msg);
		sdp_link_up(link);
		sdp_link_send(link, &out);
		trace_sdp_setup(link, SDP_STEP_ACK_SENT, 0);
	}
	spin_unlock_bh(&link->lock);
	return 0;
}

/* The end ------------------------------------------------------------------ */

/*
 * Wait until the completions are handled that our own device has raised.  The last
 * one may have used up the budget of answer_events(): then cq_work is queued or
 * about to be, and must run once more, even though it finds nothing.
 */
static void wait_completed(struct sdp_link *link)
{
	while (atomic_read(&link->cq_events)) {
		flush_work(&link->cq_work);
		usleep_range(10, 100);
	}
}

/*
 * Wait until all that was received and sent has completed.  Where our own device
 * has said that the stream is over, it has raised these completions before: so
 * spare it the requests by which ib_drain_qp() notices the same.
 */
static void drain(struct sdp_link *link)
{
	if (!link->qp)
		return;
	if (READ_ONCE(link->stream_over))
		wait_completed(link);
	else
		ib_drain_qp(link->qp);
}

/* First process all that was received, so that a DisConn among it counts. */
static void stream_closed(struct sdp_link *link)
{
	u32 actions;

	drain(link);
	/* a peer that has our SuspCommAck may close before SDP_EV_MOVE */
	if (test_and_clear_bit(SDP_EV_MOVE, &link->events)) {
		sdp_move_event(link);
		if (READ_ONCE(link->phase) != SDP_LINK_UP)
			return;
	}
	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_UP) {
		actions = sdp_conn_input(&link->conn, SDP_IN_LLP_DOWN);
		sdp_link_act(link, actions);
		sdp_link_down(link, link->error);
	} else {
		sdp_link_down(link, READ_ONCE(link->lost) ?: ECONNRESET);
	}
	spin_unlock_bh(&link->lock);
}

static void tcp_close_stream(struct sdp_link *link)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_SQD };

	/* else the device would refuse a DisConn that is being posted */
	sdp_link_wait_posted(link);
	if (link->qp && ib_modify_qp(link->qp, &attr, IB_QP_STATE))
		sdp_link_abort(link, link->error);
}

static void go_on(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
}

static void push_work(struct work_struct *work)
{
	struct sdp_link *link = container_of(work, struct sdp_link, push_work);

	go_on(link);
	sdp_link_put(link);
}

static void tcp_destroy(struct sdp_link *link)
{
	drain(link);
	if (link->qp)
		ib_destroy_qp(link->qp);
	wait_completed(link);
	if (link->cq)
		ib_destroy_cq(link->cq);
	if (link->startup)
		link->dev->api->put(link->startup);
	link->startup = NULL;
}

void sdp_link_leave(struct sdp_link *link)
{
	struct sdp_device *dev = link->dev;

	link->ops->destroy(link);
	link->qp = NULL;
	link->cq = NULL;
	if (!dev)
		return;
	sdp_link_unmap(link);
	mutex_lock(&dev->mutex);
	list_del_init(&link->on_device);
	mutex_unlock(&dev->mutex);
	link->dev = NULL;
	sdp_device_put(dev);
}

/* The last work item: afterwards nothing of the device and of TCP is left. */
static void dismantle(struct work_struct *work)
{
	struct sdp_link *link = container_of(work, struct sdp_link, end);

	sdp_seen_hide(&link->seen);
	sdp_link_quiesce(link);
	/* phase DOWN keeps them from being set again */
	stop_timer(link, &link->timer);
	stop_timer(link, &link->nudge);
	sdp_link_leave(link);
	sdp_link_drop_tcp(link);
	uncount_orphan(link);
	sdp_listener_lost(link);
	sdp_sock_unlinked(link);
	/* the reference of sdp_link_start() */
	sdp_link_put(link);
}

/* The errno that a program gets when set-up fails */
static int set_up_error(int ret)
{
	switch (ret) {
	case -EPROTO:		/* no SDP, or against its rules */
	case -EBADMSG:
	case -ENOTCONN:
	case -EPIPE:
		return -ECONNRESET;
	}
	return ret;
}

static int tcp_step(struct sdp_link *link)
{
	u8 phase = READ_ONCE(link->phase);
	int ret = 0;

	if (test_and_clear_bit(SDP_EV_TCP, &link->events) && link->tcp) {
		if (link->foreign)
			return -EBUSY;
		if (phase == SDP_LINK_TCP)
			ret = tcp_connected(link);
		else if (phase == SDP_LINK_HELLO && !link->connector)
			ret = hear_hello(link);
	}
	if (!ret && test_and_clear_bit(SDP_EV_REQUEST, &link->events))
		ret = link->dev->api->accept(link->startup, NULL, 0);
	if (!ret && test_and_clear_bit(SDP_EV_DONE, &link->events))
		ret = started(link);
	return ret;
}

const struct sdp_carrier_ops sdp_carrier_tcp = {
	.step = tcp_step,
	.create_qp = tcp_create_qp,
	.fin = tcp_close_stream,
	.destroy = tcp_destroy,
};

static bool is_leaving(const struct sdp_link *link)
{
	/* pairs with sdp_move_work() */
	return smp_load_acquire(&link->leaving);
}

static void look(struct sdp_link *link)
{
	int ret, error;

	if (READ_ONCE(link->phase) != SDP_LINK_DOWN) {
		ret = link->ops->step(link);
		/* a connected program gets ECONNRESET if a move fails */
		error = READ_ONCE(link->open) ? ECONNRESET : -set_up_error(ret);
		if (ret)
			sdp_link_abort(link, error);
		/* the listener goes first: the end may have come already */
		sdp_listener_look(link);
		if (test_and_clear_bit(SDP_EV_PUMP, &link->events))
			go_on(link);
		if (test_and_clear_bit(SDP_EV_FIN, &link->events))
			link->ops->fin(link);
		if (test_and_clear_bit(SDP_EV_MOVE, &link->events))
			sdp_move_event(link);
		if (is_leaving(link))
			return;
		if (test_and_clear_bit(SDP_EV_CLOSED, &link->events))
			stream_closed(link);
	}
	if (!is_leaving(link) && !link->ending &&
	    READ_ONCE(link->phase) == SDP_LINK_DOWN) {
		link->ending = true;
		/* passes on the reference of sdp_link_start() */
		queue_work(end_wq, &link->end);
	}
}

/* Looks in a row for events that the work itself has raised */
#define LOOKS	8

static void work(struct work_struct *work)
{
	struct sdp_link *link = container_of(work, struct sdp_link, work);
	int left = LOOKS;

	/* while it is leaving the events are kept: it is called again after that */
	do {
		link->again = false;
		if (!is_leaving(link))
			look(link);
	} while (link->again && --left);
	/* pass on the reference, unless the work was queued meanwhile */
	if (!link->again || !queue_work(sdp_wq, &link->work))
		sdp_link_put(link);
}

void sdp_link_start(struct sdp_link *link)
{
	/* put by dismantle() */
	sdp_link_get(link);
	/* carriers other than TCP have set both addresses already */
	sdp_seen_show(&link->seen, link->ops == &sdp_carrier_tcp ?
				   link->tcp->sk : NULL);
	/* only a connector without fallback waits as long as TCP does */
	if (!link->connector || link->attempt)
		sdp_link_limit_setup(link);
	/* from here on events may come, and end the link at any time */
	if (link->tcp)
		sdp_link_hook(link);
}

int sdp_link_init(void)
{
	/*
	 * Not WQ_UNBOUND: that would wake a worker on another processor for each
	 * step of a set-up or an end, which costs more than the step.
	 */
	sdp_wq = alloc_workqueue("softwarp_sdp", WQ_PERCPU, 0);
	/* separate: a program can hold its listener's socket lock for long */
	sdp_listen_wq = alloc_workqueue("softwarp_sdp_listen", WQ_PERCPU, 0);
	/*
	 * Separate: a peer can make the end of a queue pair take seconds, and by
	 * moves as often as it likes.
	 */
	end_wq = alloc_workqueue("softwarp_sdp_end", WQ_PERCPU, 0);
	sdp_move_wq = alloc_workqueue("softwarp_sdp_move", WQ_UNBOUND, 0);
	push_wq = alloc_workqueue("softwarp_sdp_push", WQ_PERCPU, 0);
	if (sdp_wq && sdp_listen_wq && end_wq && sdp_move_wq && push_wq)
		return 0;
	if (push_wq)
		destroy_workqueue(push_wq);
	if (sdp_move_wq)
		destroy_workqueue(sdp_move_wq);
	if (end_wq)
		destroy_workqueue(end_wq);
	if (sdp_wq)
		destroy_workqueue(sdp_wq);
	if (sdp_listen_wq)
		destroy_workqueue(sdp_listen_wq);
	return -ENOMEM;
}

void sdp_link_exit(void)
{
	destroy_workqueue(sdp_listen_wq);
	/*
	 * Links that the listeners have ended are queued here.  Not drained: a
	 * packet for a socket that dismantle() has not released yet queues more,
	 * which does nothing any more.
	 */
	flush_workqueue(sdp_wq);
	/* a move that is under way comes back for the end */
	flush_workqueue(sdp_move_wq);
	flush_workqueue(sdp_wq);
	destroy_workqueue(end_wq);
	destroy_workqueue(sdp_move_wq);
	/* after the last completion, which may have queued something there */
	destroy_workqueue(push_wq);
	destroy_workqueue(sdp_wq);
	/* links are freed by kfree_rcu() */
	rcu_barrier();
}
