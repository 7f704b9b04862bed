// SPDX-License-Identifier: GPL-2.0
/*
 * TCP sockets: callbacks, ownership, and the little I/O of MPA start-up.
 *
 * The callbacks read the owner in struct swp_llp, and swp_llp_set_owner()
 * changes it, both with the socket lock held, so they need no further lock.
 * sk_user_data points from the socket to the LLP.  It is cleared under the
 * socket lock before the LLP is freed after an RCU grace period, because a
 * callback without the socket lock (error queue) may still use the LLP.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "compat.h"
#include "frags.h"
#include "llp.h"
#include "proto/fpdu.h"

/* Pause before the RST that replaces a FIN without memory, milliseconds */
#define SWP_RST_PAUSE_MS	10

static struct workqueue_struct *swp_llp_wq;

/* Callbacks of a connection ------------------------------------------------ */

/*
 * RFC 6093: an urgent octet is one of the stream like others, and
 * SOCK_URGINLINE keeps it in its place.  But tcp_read_sock() would stop in
 * front of it for ever, so clear the mark before any read.  TCP marks an octet
 * before it calls data_ready, never after.  Socket lock held.
 */
static void forget_urgent(struct sock *sk)
{
	if (unlikely(tcp_sk(sk)->urg_data))
		WRITE_ONCE(tcp_sk(sk)->urg_data, 0);
}

static void on_data_ready(struct sock *sk)
{
	struct swp_llp *llp;

	forget_urgent(sk);
	rcu_read_lock();
	llp = rcu_dereference_sk_user_data(sk);
	if (llp && llp->ops)
		llp->ops->data_ready(llp);
	rcu_read_unlock();
}

static void on_write_space(struct sock *sk)
{
	struct swp_llp *llp;

	rcu_read_lock();
	llp = rcu_dereference_sk_user_data(sk);
	if (llp && llp->ops)
		llp->ops->write_space(llp);
	rcu_read_unlock();
}

static void on_state_change(struct sock *sk)
{
	struct swp_llp *llp;

	rcu_read_lock();
	llp = rcu_dereference_sk_user_data(sk);
	if (llp && llp->ops)
		llp->ops->state_change(llp);
	rcu_read_unlock();
}

static void hook(struct swp_llp *llp)
{
	struct sock *sk = llp->sk;

	lock_sock(sk);
	/* the socket of a consumer may not have the flag */
	llp->saved_urginline = sock_flag(sk, SOCK_URGINLINE);
	sock_set_flag(sk, SOCK_URGINLINE);
	forget_urgent(sk);
	write_lock_bh(&sk->sk_callback_lock);
	llp->saved_data_ready = sk->sk_data_ready;
	llp->saved_write_space = sk->sk_write_space;
	llp->saved_state_change = sk->sk_state_change;
	llp->saved_error_report = sk->sk_error_report;
	rcu_assign_sk_user_data(sk, llp);
	sk->sk_data_ready = on_data_ready;
	sk->sk_write_space = on_write_space;
	sk->sk_state_change = on_state_change;
	sk->sk_error_report = on_state_change;
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

static void unhook(struct swp_llp *llp)
{
	struct sock *sk = llp->sk;

	lock_sock(sk);
	llp->ops = NULL;
	llp->owner = NULL;
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_data_ready = llp->saved_data_ready;
	sk->sk_write_space = llp->saved_write_space;
	sk->sk_state_change = llp->saved_state_change;
	sk->sk_error_report = llp->saved_error_report;
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

/* The end of a stream ------------------------------------------------------ */

/* Taken before we end our direction: is a FIN due, and at which sequence? */
struct swp_fin {
	bool due;
	u32 seq;
};

static void fin_due(struct sock *sk, struct swp_fin *fin)
{
	lock_sock(sk);
	fin->due = (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
	fin->seq = tcp_sk(sk)->write_seq;
	release_sock(sk);
}

/*
 * Called after that.  Without memory for an skb with FIN, TCP never sends one,
 * but proceeds as if it had: the peer would not notice the end of the stream.
 * So send RST instead, after a pause in which memory may become free for it.
 */
static void fin_ensure(struct sock *sk, const struct swp_fin *fin)
{
	bool lost;

	lock_sock(sk);
	lost = fin->due && sk->sk_state != TCP_CLOSE &&
	       tcp_sk(sk)->write_seq == fin->seq;
	release_sock(sk);
	if (!lost)
		return;
	msleep(SWP_RST_PAUSE_MS);
	tcp_abort(sk, ECONNABORTED);
}

/* Lifetime ----------------------------------------------------------------- */

static void swp_llp_free_work(struct work_struct *work)
{
	struct swp_llp *llp = container_of(work, struct swp_llp, free_work);

	swp_near_del(llp);
	if (llp->sock) {
		struct sock *sk = llp->sk;
		struct swp_fin fin;

		unhook(llp);
		sock_hold(sk);
		fin_due(sk, &fin);
		sock_release(llp->sock);
		fin_ensure(sk, &fin);
		sock_put(sk);
	}
	kfree_rcu(llp, rcu);
}

static struct swp_llp *alloc_llp(void)
{
	struct swp_llp *llp;

	llp = kzalloc(sizeof(*llp), GFP_KERNEL_ACCOUNT);
	if (!llp)
		return NULL;
	kref_init(&llp->ref);
	INIT_WORK(&llp->free_work, swp_llp_free_work);
	return llp;
}

static void wrap(struct swp_llp *llp, struct socket *sock)
{
	struct sock *sk = sock->sk;

	llp->sock = sock;
	llp->sk = sk;
	llp->saved_allocation = sk->sk_allocation;
	sk->sk_allocation = GFP_ATOMIC;
	llp->saved_task_frag = swp_sk_set_task_frag(sk, false);
	tcp_sock_set_nodelay(sk);
	hook(llp);
}

int swp_llp_may_take(struct socket *sock)
{
	struct sock *sk = sock->sk;
	int ret = 0;

	if (!sk_is_tcp(sk))
		return -EINVAL;
	lock_sock(sk);
	if (sk->sk_state != TCP_ESTABLISHED)
		ret = -ENOTCONN;
	else if (sk->sk_user_data || inet_csk_has_ulp(sk))
		ret = -EINVAL;	/* another module has hooked it */
	release_sock(sk);
	return ret;
}

struct swp_llp *swp_llp_create(struct socket *sock)
{
	struct swp_llp *llp = alloc_llp();

	if (!llp)
		return ERR_PTR(-ENOMEM);
	wrap(llp, sock);
	return llp;
}

struct socket *swp_llp_give_back(struct swp_llp *llp)
{
	struct socket *sock = llp->sock;

	swp_near_del(llp);
	unhook(llp);
	lock_sock(sock->sk);
	sock_valbool_flag(sock->sk, SOCK_URGINLINE, llp->saved_urginline);
	release_sock(sock->sk);
	sock->sk->sk_allocation = llp->saved_allocation;
	swp_sk_set_task_frag(sock->sk, llp->saved_task_frag);
	llp->sock = NULL;
	swp_llp_put(llp);
	return sock;
}

void swp_llp_get(struct swp_llp *llp)
{
	kref_get(&llp->ref);
}

static void last_put(struct kref *ref)
{
	struct swp_llp *llp = container_of(ref, struct swp_llp, ref);

	queue_work(swp_llp_wq, &llp->free_work);
}

void swp_llp_put(struct swp_llp *llp)
{
	kref_put(&llp->ref, last_put);
}

/* Socket lock held. */
static void new_owner(struct swp_llp *llp, const struct swp_llp_ops *ops,
		      void *owner)
{
	llp->ops = ops;
	llp->owner = owner;
	if (!ops)
		return;
	ops->data_ready(llp);
	/* data_ready() may have given the stream to another owner */
	if (llp->ops)
		llp->ops->state_change(llp);
}

void swp_llp_set_owner(struct swp_llp *llp, const struct swp_llp_ops *ops,
		       void *owner)
{
	lock_sock(llp->sk);
	new_owner(llp, ops, owner);
	release_sock(llp->sk);
}

int swp_llp_give(struct swp_llp *llp, const struct swp_llp_ops *ops,
		 void *owner, int (*take)(void *arg), void *arg)
{
	int ret;

	lock_sock(llp->sk);
	ret = take(arg);
	if (!ret)
		new_owner(llp, ops, owner);
	release_sock(llp->sk);
	return ret;
}

bool swp_llp_is_connecting(const struct swp_llp *llp)
{
	return llp->sk->sk_state == TCP_SYN_SENT;
}

bool swp_llp_has_news(const struct swp_llp *llp)
{
	const struct sock *sk = llp->sk;

	if (sk->sk_state == TCP_ESTABLISHED)
		return !skb_queue_empty(&sk->sk_receive_queue) || sk->sk_err;
	return !swp_llp_is_connecting(llp);
}

void swp_llp_shutdown(struct swp_llp *llp)
{
	struct swp_fin fin;

	fin_due(llp->sk, &fin);
	/* fails only if there is no connection left to shut down */
	kernel_sock_shutdown(llp->sock, SHUT_WR);
	fin_ensure(llp->sk, &fin);
}

void swp_llp_abort(struct swp_llp *llp)
{
	/* fails only if the socket is closed already */
	tcp_abort(llp->sk, ECONNABORTED);
}

/* TCP state for the engines ------------------------------------------------ */

/*
 * All of these except swp_llp_may_hear(), swp_llp_info() and swp_llp_trylock()
 * run with the socket lock held, so TCP changes nothing meanwhile.  They use
 * fields and functions that in-kernel users of TCP have used since long before
 * 6.1, and that are the same in 7.x.
 */

/*
 * The MSS with which TCP will cut segments now.  tcp_current_mss(), which is
 * not exported, starts from mss_cache and subtracts the SACK blocks of the next
 * segment, by the same rule as here since 4.x.  If they ever disagree, segments
 * do not begin with FPDUs: only the alignment is lost.
 */
static u32 current_mss(struct sock *sk)
{
	const struct dst_entry *dst = __sk_dst_get(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 mss, sacks;

	if (dst && unlikely(dst_mtu(dst) != inet_csk(sk)->icsk_pmtu_cookie)) {
		/*
		 * TCP checks the path MTU only when it is called to send, and
		 * then it has the batch already: so call it once before.
		 */
		struct msghdr none = {
			.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL
		};

		tcp_sendmsg_locked(sk, &none, 0);
	}
	mss = tp->mss_cache;
	/*
	 * FPDUs are multiples of 4 octets.  Another MSS would move every cut,
	 * and an MSS larger than any FPDU would add the head of the next FPDU
	 * to a segment.  A smaller MSS is always legal.  TCP sets mss_cache
	 * again when the path changes, under the same lock.
	 */
	if (unlikely(mss & 3 || mss > SWP_EMSS_MAX)) {
		mss = min_t(u32, mss, SWP_EMSS_MAX) & ~3U;
		tp->mss_cache = mss;
	}
	sacks = tp->rx_opt.num_sacks + tp->rx_opt.dsack;
	if (sacks) {
		u32 used = tp->tcp_header_len - sizeof(struct tcphdr);
		u32 room = MAX_TCP_OPTION_SPACE - used;

		if (room >= TCPOLEN_SACK_BASE_ALIGNED + TCPOLEN_SACK_PERBLOCK) {
			sacks = min_t(u32, sacks,
				      (room - TCPOLEN_SACK_BASE_ALIGNED) /
				      TCPOLEN_SACK_PERBLOCK);
			mss -= TCPOLEN_SACK_BASE_ALIGNED +
			       sacks * TCPOLEN_SACK_PERBLOCK;
		}
	}
	return max(mss, 64U);
}

/*
 * tcp_sendmsg_locked() adds to the tail of the write queue if that is unsent,
 * has room, and its record has not ended (eor).  This makes the same checks, and
 * ends a tail that has room but hardly a page fragment left.
 */
void swp_llp_tail(struct swp_llp *llp, struct swp_llp_tail *t)
{
	struct sock *sk = llp->sk;
	struct sk_buff *tail = tcp_send_head(sk) ? tcp_write_queue_tail(sk) :
						   NULL;
	u32 segs = tcp_sk(sk)->gso_segs ?: 1;

	t->mss = current_mss(sk);
	t->len = 0;
	t->pieces = MAX_SKB_FRAGS;
	t->room = min_t(u32, segs * t->mss,
			rounddown(GSO_LEGACY_MAX_SIZE - 1 - MAX_TCP_HEADER,
				  t->mss));
	if (!t->room)
		t->room = t->mss;
	if (!tail || TCP_SKB_CB(tail)->eor || tail->len >= t->room)
		return;
	if (skb_shinfo(tail)->nr_frags >= MAX_SKB_FRAGS - 3) {
		swp_llp_end_tail(llp);
	} else {
		t->len = tail->len;
		t->room -= tail->len;
		t->pieces -= skb_shinfo(tail)->nr_frags;
	}
}

/* The effect of MSG_EOR, for octets that were sent without it */
void swp_llp_end_tail(struct swp_llp *llp)
{
	TCP_SKB_CB(tcp_write_queue_tail(llp->sk))->eor = 1;
}

bool swp_llp_has_space(const struct swp_llp *llp)
{
	return sk_stream_memory_free(llp->sk);
}

u32 swp_llp_unacked(const struct swp_llp *llp)
{
	const struct tcp_sock *tp = tcp_sk(llp->sk);

	return tp->write_seq - tp->snd_una;
}

u32 swp_llp_min_rtt_us(const struct swp_llp *llp)
{
	return tcp_min_rtt(tcp_sk(llp->sk));
}

/* TCP calls sk_write_space() if SOCK_NOSPACE is set. */
void swp_llp_want_space(struct swp_llp *llp)
{
	set_bit(SOCK_NOSPACE, &llp->sock->flags);
}

bool swp_llp_calls(const struct swp_llp *llp, bool unsent)
{
	/* the ACK calls us; TCP will send its unsent octets by itself */
	if (unsent)
		return !tcp_rtx_and_write_queues_empty(llp->sk);
	return !tcp_rtx_queue_empty(llp->sk);
}

u32 swp_llp_end_seq(const struct swp_llp *llp)
{
	return tcp_sk(llp->sk)->write_seq;
}

bool swp_llp_is_acked(const struct swp_llp *llp, u32 seq)
{
	return !after(seq, tcp_sk(llp->sk)->snd_una);
}

u32 swp_llp_moved(const struct swp_llp *llp)
{
	const struct tcp_sock *tp = tcp_sk(llp->sk);

	return tp->snd_una + tp->copied_seq;
}

/*
 * Is there room for much more than the peer may send?  By the rule by which TCP tells
 * it after a read; a hint without the lock.
 */
static bool window_lags(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 window = tcp_receive_window(tp);
	int most = min_t(int, tcp_space(sk), min(tp->window_clamp, tp->rcv_ssthresh));

	return READ_ONCE(sk->sk_state) == TCP_ESTABLISHED &&
	       most > 0 && 2 * window <= (u32)most;
}

/* How often the peer is told of that after one release */
#define SWP_WINDOW_TRIES	4

/* Another try, by TCP's timer, unless a process comes sooner. */
static void tell_later(struct sock *sk)
{
	spin_lock_bh(&sk->sk_lock.slock);
	if (!sock_owned_by_user_nocheck(sk) && sk->sk_state == TCP_ESTABLISHED) {
		inet_csk_schedule_ack(sk);
		inet_csk_reset_xmit_timer(sk, ICSK_TIME_DACK, 1, TCP_RTO_MAX);
	}
	spin_unlock_bh(&sk->sk_lock.slock);
}

/*
 * TCP counts all packets that have waited for the owner as if they took up memory,
 * until it has processed the last of them.  So what is read meanwhile opens no window,
 * and after that nobody would: a peer that has used its window up would wait until
 * its timer sends a probe.
 */
void swp_llp_release(struct swp_llp *llp)
{
	struct sock *sk = llp->sk;
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 end, told = 0;
	int i;

	release_sock(sk);
	/* data_race: without the lock, see window_lags() */
	for (i = 0; i < SWP_WINDOW_TRIES && data_race(window_lags(sk)); i++) {
		/* data_race: a hint; another process that has it comes here later */
		if (data_race(sock_owned_by_user_nocheck(sk)))
			return;
		lock_sock(sk);
		end = tp->rcv_wup + tp->rcv_wnd;
		/* TCP has reasons of its own, or what came meanwhile has used it up */
		if (i && end == told) {
			release_sock(sk);
			break;
		}
		told = end;
		/* not before that has processed what waits by then */
		inet_csk_schedule_ack(sk);
		swp_sk_ack_on_release(sk);
		release_sock(sk);
	}
	/* data_race: as above; the process has other things to do */
	if (i && data_race(window_lags(sk)))
		tell_later(sk);
}

u32 swp_llp_unread(const struct swp_llp *llp)
{
	const struct tcp_sock *tp = tcp_sk(llp->sk);

	return tp->rcv_nxt - tp->copied_seq;
}

u32 swp_llp_out_of_order(const struct swp_llp *llp)
{
	return READ_ONCE(tcp_sk(llp->sk)->rcv_ooopack);
}

bool swp_llp_may_hear(const struct swp_llp *from, const struct swp_llp *to)
{
	const struct tcp_sock *tp = tcp_sk(from->sk);
	u32 una = READ_ONCE(tp->snd_una);
	u32 nxt;

	/* what was acknowledged by then has been received ... */
	smp_rmb();
	nxt = READ_ONCE(tcp_sk(to->sk)->rcv_nxt);
	/* ... and what was received by then has been sent */
	smp_rmb();
	return !before(nxt, una) && !after(nxt, READ_ONCE(tp->write_seq));
}

bool swp_llp_is_by_loopback(const struct swp_llp *llp)
{
	const struct dst_entry *dst;
	bool is;

	rcu_read_lock();
	dst = rcu_dereference(llp->sk->sk_dst_cache);
	is = dst && dst->dev == sock_net(llp->sk)->loopback_dev;
	rcu_read_unlock();
	return is;
}

void swp_llp_info(const struct swp_llp *llp, struct swp_llp_info *info)
{
	const struct tcp_sock *tp = tcp_sk(llp->sk);

	*info = (struct swp_llp_info) {
		.state = READ_ONCE(llp->sk->sk_state),
		.mss = READ_ONCE(tp->mss_cache),
		.srtt_us = READ_ONCE(tp->srtt_us) >> 3,
		.cwnd = READ_ONCE(tp->snd_cwnd),
		.retrans = READ_ONCE(tp->total_retrans),
		.unacked = READ_ONCE(tp->write_seq) - READ_ONCE(tp->snd_una),
		.unread = READ_ONCE(tp->rcv_nxt) - READ_ONCE(tp->copied_seq),
	};
}

bool swp_llp_is_locked(const struct swp_llp *llp)
{
	return sock_owned_by_user_nocheck(llp->sk);
}

bool swp_llp_trylock(struct swp_llp *llp)
{
	struct sock *sk = llp->sk;

	if (irqs_disabled() || in_hardirq())
		return false;
	local_bh_disable();
	/* this CPU may hold it already: a completion handler posts */
	if (!spin_trylock(&sk->sk_lock.slock)) {
		local_bh_enable();
		return false;
	}
	/* for sparse, which expects a function to release what it takes */
	__release(&sk->sk_lock.slock);
	if (!sock_owned_by_user_nocheck(sk))
		return true;
	swp_llp_unlock(llp);
	return false;
}

void swp_llp_unlock(struct swp_llp *llp)
{
	__acquire(&llp->sk->sk_lock.slock);
	spin_unlock(&llp->sk->sk_lock.slock);
	local_bh_enable();
}

/*
 * How long to try to have two sockets: what another burst past TCP may take, or what
 * a process has to receive that owns one.  Octets that go by TCP instead would give it
 * more to receive, and so on.
 */
#define SWP_BOTH_NS	(200 * NSEC_PER_USEC)
/* Most doublings of the time for which an owner that was late is not waited for */
#define SWP_BOTH_LATES	6

/* Without a lock: a late answer costs one more look. */
static bool is_owned(const struct swp_llp *llp)
{
	return READ_ONCE(llp->sk->sk_lock.owned);
}

/* Any order will do for locks that nobody waits for. */
static bool take_both(struct swp_llp *a, struct swp_llp *b)
{
	if (!swp_llp_trylock(a))
		return false;
	if (swp_llp_trylock(b))
		return true;
	swp_llp_unlock(a);
	return false;
}

/* Units of a microsecond, about, so that 32 bits are enough */
static u32 late_time(u64 ns)
{
	return ns >> 10;
}

/*
 * An owner that is kept from its processor could be waited for again and again.
 * Several processes may do that at once; what they note of it is a hint.
 */
static bool was_late(const struct swp_near *n, u64 now)
{
	u32 left = READ_ONCE(n->late_until) - late_time(now);

	/* or it was long ago: what is left is never more than that */
	return READ_ONCE(n->lates) &&
	       left - 1 < late_time(SWP_BOTH_NS << SWP_BOTH_LATES);
}

static void note_late(struct swp_near *n, u64 now)
{
	u8 lates = READ_ONCE(n->lates);

	WRITE_ONCE(n->late_until, late_time(now + (SWP_BOTH_NS << lates)));
	WRITE_ONCE(n->lates, min(lates + 1, SWP_BOTH_LATES));
}

bool swp_llp_trylock_both(struct swp_llp *a, struct swp_llp *b)
{
	bool owned, stays = true;
	u64 begin = 0, now;

	for (;;) {
		/* keep nobody from the locks while they would be of no use */
		owned = is_owned(a) || is_owned(b);
		stays = stays && owned;
		if (!owned && take_both(a, b)) {
			if (READ_ONCE(a->near.lates))
				WRITE_ONCE(a->near.lates, 0);
			return true;
		}
		/* the owner may wait for this CPU */
		if (need_resched())
			return false;
		cpu_relax();
		now = ktime_get_ns();
		if (owned && was_late(&a->near, now))
			return false;
		if (!begin)
			begin = now;
		else if (now - begin > SWP_BOTH_NS)
			break;
	}
	if (stays)
		note_late(&a->near, now);
	return false;
}

void swp_llp_unlock_both(struct swp_llp *a, struct swp_llp *b)
{
	swp_llp_unlock(b);
	swp_llp_unlock(a);
}

bool swp_llp_all_read(const struct swp_llp *from, const struct swp_llp *to)
{
	return from->sk->sk_state == TCP_ESTABLISHED &&
	       to->sk->sk_state == TCP_ESTABLISHED &&
	       tcp_sk(from->sk)->write_seq == tcp_sk(to->sk)->copied_seq;
}

/* Addresses ---------------------------------------------------------------- */

static int addr_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					  sizeof(struct sockaddr_in);
}

/* Whether there was one */
static bool addr_clear_port(struct sockaddr_storage *a)
{
	__be16 *port = a->ss_family == AF_INET6 ?
			       &((struct sockaddr_in6 *)a)->sin6_port :
			       &((struct sockaddr_in *)a)->sin_port;
	bool was = *port;

	*port = 0;
	return was;
}

/* At a dual-stack listener, ::ffff:a.b.c.d is an IPv4 connection. */
static void addr_unmap(struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (a->ss_family != AF_INET6 || !ipv6_addr_v4mapped(&in6->sin6_addr))
		return;
	in.sin_port = in6->sin6_port;
	in.sin_addr.s_addr = in6->sin6_addr.s6_addr32[3];
	memset(a, 0, sizeof(*a));
	memcpy(a, &in, sizeof(in));
}

/*
 * An end of a connection.  Not kernel_getsockname(), which runs the BPF programs
 * of a cgroup: these are for a program's own calls, and may change the address.
 */
static int name_of(const struct sock *sk, struct sockaddr_storage *a, bool peer)
{
	const struct inet_sock *inet = inet_sk(sk);
	__be32 own = inet->inet_rcv_saddr ?: inet->inet_saddr;

	if (peer && inet_sk_state_load(sk) == TCP_CLOSE)
		return -ENOTCONN;
	memset(a, 0, sizeof(*a));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)a;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = peer ? inet->inet_dport : inet->inet_sport;
		in6->sin6_addr = peer ? sk->sk_v6_daddr : sk->sk_v6_rcv_saddr;
		in6->sin6_scope_id = ipv6_iface_scope_id(&in6->sin6_addr,
							 sk->sk_bound_dev_if);
		return 0;
	}
#endif
	*(struct sockaddr_in *)a = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = peer ? inet->inet_dport : inet->inet_sport,
		.sin_addr.s_addr = peer ? inet->inet_daddr : own,
	};
	return 0;
}

int swp_llp_names(struct swp_llp *llp, struct sockaddr_storage *local,
		  struct sockaddr_storage *remote, int *ifindex)
{
	int ret;

	ret = name_of(llp->sk, local, false) ?: name_of(llp->sk, remote, true);
	if (ret)
		return ret;
	addr_unmap(local);
	addr_unmap(remote);
	if (ifindex)
		*ifindex = READ_ONCE(llp->sk->sk_bound_dev_if);
	return 0;
}

/* Active side -------------------------------------------------------------- */

static int open_sock(struct net *net, int family, int tos,
		     struct socket **sockp)
{
	struct socket *sock;
	int ret;

	ret = sock_create_kern(net, family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (ret)
		return ret;
	swp_sk_hold_net(sock->sk);
	/* connections inherit it from a listening socket */
	sock_set_flag(sock->sk, SOCK_URGINLINE);
	/* a restarted server must be able to use a port in TIME_WAIT */
	sock_set_reuseaddr(sock->sk);
	if (tos >= 0) {
		ip_sock_set_tos(sock->sk, tos);
#if IS_ENABLED(CONFIG_IPV6)
		if (family == AF_INET6)
			inet6_sk(sock->sk)->tclass = tos;
#endif
	}
	*sockp = sock;
	return 0;
}

static struct swp_llp *connect_from(struct net *net,
				    const struct sockaddr_storage *local,
				    const struct sockaddr_storage *remote,
				    int tos)
{
	struct socket *sock;
	struct swp_llp *llp;
	int ret;

	ret = open_sock(net, local->ss_family, tos, &sock);
	if (ret)
		return ERR_PTR(ret);
	llp = swp_llp_create(sock);
	if (IS_ERR(llp)) {
		sock_release(sock);
		return llp;
	}
	ret = kernel_bind(sock, swp_sockaddr_arg(local), addr_len(local));
	if (!ret)
		ret = kernel_connect(sock, swp_sockaddr_arg(remote),
				     addr_len(remote), O_NONBLOCK);
	if (ret && ret != -EINPROGRESS) {
		swp_llp_put(llp);
		return ERR_PTR(ret);
	}
	return llp;
}

struct swp_llp *swp_llp_connect(struct net *net,
				const struct sockaddr_storage *local,
				const struct sockaddr_storage *remote, int tos)
{
	struct sockaddr_storage any_port = *local;
	struct swp_llp *llp;

	llp = connect_from(net, local, remote, tos);
	/*
	 * The port has another owner (bind), or a connection to this peer,
	 * which may be in TIME_WAIT (connect).
	 */
	if ((llp == ERR_PTR(-EADDRINUSE) || llp == ERR_PTR(-EADDRNOTAVAIL)) &&
	    addr_clear_port(&any_port))
		llp = connect_from(net, &any_port, remote, tos);
	return llp;
}

int swp_llp_connect_result(struct swp_llp *llp)
{
	struct sock *sk = llp->sk;
	int ret;

	lock_sock(sk);
	switch (sk->sk_state) {
	case TCP_SYN_SENT:
	case TCP_SYN_RECV:
		ret = -EINPROGRESS;
		break;
	case TCP_CLOSE:
		ret = sock_error(sk);
		if (!ret)
			ret = -ECONNREFUSED;
		break;
	default:
		ret = 0;
		break;
	}
	release_sock(sk);
	return ret;
}

/*
 * The pages that sockets fill with frames: a socket sends one or two, and a page
 * of its own would have to be allocated, and cleared, for each.  A socket would
 * keep it, up to 32 KiB, so take it back: after start-up, the engine gives TCP
 * its own pages.
 */
static SWP_DEFINE_FRAGS(frames);

static void lend_page(struct sock *sk)
{
	lock_sock(sk);
	if (!sk->sk_frag.page)
		swp_frags_take(&frames, &sk->sk_frag);
	release_sock(sk);
}

static void take_page_back(struct sock *sk)
{
	lock_sock(sk);
	swp_frags_give(&frames, &sk->sk_frag);
	release_sock(sk);
}

int swp_llp_send(struct swp_llp *llp, const void *buf, size_t len, size_t *sent)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec iov;
	int ret = 0;

	lend_page(llp->sk);
	while (*sent < len) {
		iov.iov_base = (void *)buf + *sent;
		iov.iov_len = len - *sent;
		ret = kernel_sendmsg(llp->sock, &msg, &iov, 1, iov.iov_len);
		if (ret < 0)
			break;
		*sent += ret;
	}
	take_page_back(llp->sk);
	return min(ret, 0);
}

static int read_some(struct swp_llp *llp, void *buf, size_t len, int flags)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT };
	struct kvec iov = { .iov_base = buf, .iov_len = len };

	return kernel_recvmsg(llp->sock, &msg, &iov, 1, len,
			      MSG_DONTWAIT | flags);
}

int swp_llp_recv(struct swp_llp *llp, void *buf, size_t len)
{
	return read_some(llp, buf, len, 0);
}

int swp_llp_peek(struct swp_llp *llp)
{
	u8 octet;

	return read_some(llp, &octet, 1, MSG_PEEK);
}

/* Listening side ----------------------------------------------------------- */

/*
 * Called without the lock of the listening socket.  A connection that is not
 * accepted yet inherits this callback, but not sk_user_data.
 */
static void on_connection(struct sock *sk)
{
	struct swp_lls *lls;

	read_lock_bh(&sk->sk_callback_lock);
	rcu_read_lock();
	lls = rcu_dereference_sk_user_data(sk);
	if (lls && sk->sk_state == TCP_LISTEN)
		lls->ready(lls->arg);
	rcu_read_unlock();
	read_unlock_bh(&sk->sk_callback_lock);
}

int swp_lls_open(struct swp_lls *lls, struct net *net,
		 const struct sockaddr_storage *local, bool v6only, int tos,
		 int backlog, void (*ready)(void *arg), void *arg)
{
	struct socket *sock;
	struct sock *sk;
	int ret;

	ret = open_sock(net, local->ss_family, tos, &sock);
	if (ret)
		return ret;
	sk = sock->sk;
#if IS_ENABLED(CONFIG_IPV6)
	if (local->ss_family == AF_INET6) {
		lock_sock(sk);
		/* rdma_cm decides this, not net.ipv6.bindv6only */
		sk->sk_ipv6only = v6only;
		release_sock(sk);
	}
#endif
	ret = kernel_bind(sock, swp_sockaddr_arg(local), addr_len(local));
	if (ret)
		goto err_release;

	lls->sock = sock;
	lls->ready = ready;
	lls->arg = arg;
	write_lock_bh(&sk->sk_callback_lock);
	lls->saved_data_ready = sk->sk_data_ready;
	__rcu_assign_sk_user_data_with_flags(sk, lls, SK_USER_DATA_NOCOPY);
	sk->sk_data_ready = on_connection;
	write_unlock_bh(&sk->sk_callback_lock);

	ret = kernel_listen(sock, backlog);
	if (ret)
		goto err_quiesce;
	return 0;

err_quiesce:
	swp_lls_quiesce(lls);
err_release:
	sock_release(sock);
	return ret;
}

void swp_lls_quiesce(struct swp_lls *lls)
{
	struct sock *sk = lls->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_data_ready = lls->saved_data_ready;
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
}

void swp_lls_close(struct swp_lls *lls)
{
	sock_release(lls->sock);
	lls->sock = NULL;
}

struct swp_llp *swp_lls_accept(struct swp_lls *lls)
{
	/* allocate first: it must not fail with a connection accepted */
	struct swp_llp *llp = alloc_llp();
	struct socket *sock;
	struct sock *sk;
	int ret;

	if (!llp)
		return ERR_PTR(-ENOMEM);
	ret = kernel_accept(lls->sock, &sock, O_NONBLOCK);
	if (ret) {
		kfree(llp);
		return ERR_PTR(ret);
	}
	sk = sock->sk;
	/* the listening socket's original callback, not on_connection() */
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_data_ready = lls->saved_data_ready;
	write_unlock_bh(&sk->sk_callback_lock);
	wrap(llp, sock);
	return llp;
}

int swp_llp_init(void)
{
	swp_llp_wq = alloc_workqueue("swp_llp", WQ_PERCPU | WQ_MEM_RECLAIM, 0);
	return swp_llp_wq ? 0 : -ENOMEM;
}

void swp_llp_exit(void)
{
	destroy_workqueue(swp_llp_wq);
	/* wait for callbacks that began before unhook() */
	synchronize_rcu();
	swp_frags_free(&frames);
}
