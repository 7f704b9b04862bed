// SPDX-License-Identifier: GPL-2.0
/* Data of connected sockets, see stream.h. */
#include <asm/ioctls.h>
#include <linux/ktime.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sockios.h>
#include <linux/task_work.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "carrier.h"
#include "frags.h"
#include "stats.h"
#include "stream.h"

/* Octets that are copied before the link is pumped */
#define PUSH	(64U << 10)
/* Octets that a call has the device process at a time */
#define RECEIVE	(512U << 10)

static bool ended(const struct sdp_link *link)
{
	return READ_ONCE(link->phase) == SDP_LINK_DOWN;
}

static bool is_up(const struct sdp_link *link)
{
	return READ_ONCE(link->open);
}

/*
 * Have the device process what has arrived, before the caller sleeps for it; true:
 * look again.  It may take time, of which a peer that sends much decides.
 */
static bool receive(struct sdp_link *link, long *timeo)
{
	unsigned long begin = jiffies;

	/* a call that does not wait ends anyway */
	if ((*timeo && signal_pending(current)) ||
	    !sdp_link_receive(link, RECEIVE))
		return false;
	cond_resched();
	if (*timeo != MAX_SCHEDULE_TIMEOUT)
		*timeo -= min_t(long, *timeo, jiffies - begin);
	return true;
}

/* Sending ---------------------------------------------------------------------- */

/* Sent octets count as room at once, before settle() uncharges them. */
static bool has_room(const struct sock *sk, const struct sdp_link *link)
{
	int used = READ_ONCE(sk->sk_wmem_queued) - atomic_read(&link->tx_done);

	return used < READ_ONCE(sk->sk_sndbuf) &&
	       READ_ONCE(link->queue_count) < SDP_TX_QUEUE;
}

static bool may_send(const struct sock *sk, const struct sdp_link *link)
{
	return is_up(link) && has_room(sk, link);
}

static bool send_ended(const struct sock *sk, const struct sdp_link *link)
{
	return READ_ONCE(sk->sk_err) || ended(link) ||
	       (READ_ONCE(sk->sk_shutdown) & SEND_SHUTDOWN);
}

static void push(struct sdp_link *link, bool more)
{
	spin_lock_bh(&link->lock);
	link->more = more;
	WRITE_ONCE(link->tx_cpu, raw_smp_processor_id());
	sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
}

/* While link->urgents, the last octet stays queued: it may go out of band. */
static void urgent_begins(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	link->urgents++;
	spin_unlock_bh(&link->lock);
}

static void urgent_ends(struct sdp_link *link, bool sent)
{
	spin_lock_bh(&link->lock);
	link->urgents--;
	if (sent && link->open && link->queue_octets)
		sdp_conn_oob(&link->conn, link->queue_octets);
	sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
}

/*
 * Wait for room; 0: try again.  If there is room but no memory, no event says
 * when there is: then look again after a time that is random, to spread the
 * sockets.
 */
static int wait_to_send(struct sock *sk, struct sdp_link *link, long *timeo)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	bool room = may_send(sk, link);
	unsigned long begin = jiffies;
	long step = *timeo, left;
	int ret;

	/* callers that do not wait learn of room by SIGIO or poll() */
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
	set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	/* pairs with the one in tell_room(), before may_send() below */
	smp_mb__after_atomic();
	if (!*timeo) {
		/* nothing is on its way whose end would tell: as with TCP */
		if (room && !sk->sk_wmem_queued)
			sk->sk_write_space(sk);
		return -EAGAIN;
	}
	if (signal_pending(current))
		return sock_intr_errno(*timeo);
	if (room)
		step = min_t(long, step, 2 + get_random_u32() % (HZ / 5));
	left = step;
	sdp_link_push_begin(link);
	add_wait_queue(sk_sleep(sk), &wait);
	ret = sk_wait_event(sk, &left, (!room && may_send(sk, link)) ||
			    READ_ONCE(link->push_due) ||
			    READ_ONCE(link->arrived) ||
			    send_ended(sk, link), &wait);
	remove_wait_queue(sk_sleep(sk), &wait);
	sdp_link_push_end(link);
	if (*timeo != MAX_SCHEDULE_TIMEOUT)
		/* sdp_link_push_end() may have taken time to send */
		*timeo -= min_t(long, *timeo,
				max_t(long, step - left, jiffies - begin));
	return ret < 0 ? ret : 0;
}

/* The pages of the queue */
static SWP_DEFINE_FRAGS(filled);

void sdp_stream_exit(void)
{
	swp_frags_free(&filled);
}

/* Copy some octets into the queue; returns how many, or a negative errno. */
static int append(struct sock *sk, struct sdp_link *link, struct msghdr *msg)
{
	struct page_frag *frag = sk_page_frag(sk);
	bool queued;
	int copy;

	/* as much as TCP asks for */
	if (!swp_frags_room(&filled, frag, 32) &&
	    !sk_page_frag_refill(sk, frag))
		return -EAGAIN;
	copy = min_t(size_t, msg_data_left(msg), frag->size - frag->offset);
	if (!sk_wmem_schedule(sk, copy))
		return -EAGAIN;
	copy = copy_page_from_iter(frag->page, frag->offset, copy,
				   &msg->msg_iter);
	if (!copy)
		return -EFAULT;
	get_page(frag->page);
	spin_lock_bh(&link->lock);
	/* only the holder of the socket's lock adds to it: it has room */
	queued = link->open &&
		 sdp_link_queue(link, frag->page, frag->offset, copy);
	spin_unlock_bh(&link->lock);
	if (!queued) {
		put_page(frag->page);
		return -EPIPE;
	}
	frag->offset += copy;
	sk_wmem_queued_add(sk, copy);
	sk_mem_charge(sk, copy);
	return copy;
}

static int send_error(struct sock *sk, int flags)
{
	int ret = sock_error(sk) ?: -EPIPE;

	if (ret == -EPIPE && !(flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return ret;
}

/* Returns the octets queued, with an errno in *@error if not all were. */
static int send_octets(struct sock *sk, struct sdp_link *link,
		       struct msghdr *msg, int *error)
{
	long timeo = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT);
	bool received = false;
	u32 unpushed = 0;
	int done = 0;
	int ret = 0;

	for (;;) {
		if (send_ended(sk, link)) {
			ret = -EPIPE;
			break;
		}
		ret = 0;
		/* a send of 0 octets waits for the connection, too */
		if (!msg_data_left(msg) && (done || is_up(link)))
			break;
		ret = may_send(sk, link) ? append(sk, link, msg) : -EAGAIN;
		if (ret > 0) {
			done += ret;
			unpushed += ret;
			received = false;
			if (unpushed >= PUSH) {
				push(link, true);
				unpushed = 0;
			}
			continue;
		}
		if (ret != -EAGAIN)
			break;
		/* do not hold anything back for octets that cannot come */
		push(link, false);
		/* credit may be among what has arrived */
		if (!received && receive(link, &timeo)) {
			received = true;
			continue;
		}
		ret = wait_to_send(sk, link, &timeo);
		received = false;
		if (ret)
			break;
	}
	*error = ret;
	return done;
}

int sdp_stream_send(struct sock *sk, struct sdp_link *link, struct msghdr *msg,
		    size_t len)
{
	bool more = (msg->msg_flags & MSG_MORE) ||
		    (tcp_sk(sk)->nonagle & TCP_NAGLE_CORK);
	bool urgent = msg->msg_flags & MSG_OOB;
	int done, ret;

	if (urgent)
		urgent_begins(link);
	done = send_octets(sk, link, msg, &ret);
	if (urgent)
		urgent_ends(link, done);
	if (done)
		push(link, more);
	if (done || !ret)
		return done;
	return ret == -EPIPE ? send_error(sk, msg->msg_flags) : ret;
}

void sdp_stream_options(struct sock *sk, struct sdp_link *link)
{
	u8 nonagle = tcp_sk(sk)->nonagle;

	spin_lock_bh(&link->lock);
	link->nodelay = nonagle & TCP_NAGLE_OFF;
	if (!(nonagle & TCP_NAGLE_CORK))
		link->more = false;
	sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
}

/* Interval to look whether TCP has its ACKs, of which there is no event */
#define LOOK_TIME	(HZ / 50)

/* A move may replace the carrier while the socket is not locked. */
static bool carrier_done(struct sdp_link *link)
{
	bool done;

	spin_lock_bh(&link->lock);
	done = !sdp_carrier_unacked(link->carrier);
	spin_unlock_bh(&link->lock);
	return done;
}

/* The peer has everything up to our DisConn, or nothing is sent any more. */
static bool said_all(struct sdp_link *link)
{
	switch (READ_ONCE(link->conn.state)) {
	case SDP_OPEN:
	case SDP_CLOSING:
	case SDP_PEER_HALF:
	case SDP_PEER_CLOSING:
		return ended(link);
	}
	return ended(link) || (!READ_ONCE(link->tx_busy) && carrier_done(link));
}

void sdp_stream_wait_close(struct sock *sk, struct sdp_link *link, long timeo)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);

	long step, left;

	add_wait_queue(sk_sleep(sk), &wait);
	while (timeo && !signal_pending(current) && !said_all(link)) {
		step = min_t(long, timeo, LOOK_TIME);
		left = step;
		if (sk_wait_event(sk, &left, said_all(link), &wait) < 0)
			break;
		timeo -= step - left;
	}
	remove_wait_queue(sk_sleep(sk), &wait);
}

/* Receiving ---------------------------------------------------------------------- */

/* Where the program continues to read */
struct place {
	struct sdp_rx *rx;	/* held until sdp_link_consume(); or NULL */
	u32 skip, octets;	/* in @rx: octets before, octets to read */
	bool urgent;		/* the first octet to read is out of band */
};

/* Find the place after @skip octets that were peeked at. */
static void look(struct sdp_link *link, u64 skip, struct place *p)
{
	struct sdp_rx *rx;
	u64 left;

	*p = (struct place){};
	spin_lock_bh(&link->lock);
	left = sdp_urgent_left(&link->urgent, sdp_link_position(link) + skip);
	p->urgent = !left;
	list_for_each_entry(rx, &link->rx_ready, entry) {
		if (skip < rx->len) {
			sdp_link_hold(link);
			p->rx = rx;
			p->skip = skip;
			p->octets = rx->len - skip;
			if (left)
				p->octets = min_t(u64, p->octets, left);
			break;
		}
		skip -= rx->len;
	}
	spin_unlock_bh(&link->lock);
}

static bool at_mark(struct sdp_link *link, u64 skip)
{
	bool at;

	if (!READ_ONCE(link->marked))
		return false;
	spin_lock_bh(&link->lock);
	at = !sdp_urgent_left(&link->urgent, sdp_link_position(link) + skip);
	spin_unlock_bh(&link->lock);
	return at;
}

/*
 * Copy octets to the program; returns how many, 0 if there are none, or a
 * negative errno.  @seen counts them, for MSG_PEEK.  An octet out of band at
 * the start is skipped.
 */
static int copy_some(struct sock *sk, struct sdp_link *link, struct msghdr *msg,
		     size_t len, int flags, u32 *seen)
{
	bool peek = flags & MSG_PEEK;
	struct place p;
	u32 copied;

	do {
		look(link, peek ? *seen : 0, &p);
		if (!p.rx)
			return 0;
		if (!len || !p.urgent || sock_flag(sk, SOCK_URGINLINE))
			break;
		sdp_link_consume(link, p.rx, peek ? 0 : 1);
		*seen += 1;
	} while (true);

	copied = min_t(size_t, len, p.octets);
	if (!(flags & MSG_TRUNC))
		/* never the page itself, which a pipe of 6.1 would take */
		copied = copy_to_iter(page_address(p.rx->room.page) + p.rx->off +
				      p.skip, copied, &msg->msg_iter);
	sdp_link_consume(link, p.rx, peek ? 0 : copied);
	*seen += copied;
	return copied || !len ? copied : -EFAULT;
}

static bool readable(const struct sdp_link *link, u32 target)
{
	return READ_ONCE(link->rx_octets) >= target;
}

/*
 * Nothing more comes before the program reads: a peer with payload keeps two
 * credits, and each small message uses a buffer.
 */
static bool full(const struct sdp_link *link)
{
	return READ_ONCE(link->rx_full) + 3 >= READ_ONCE(link->rx_count);
}

/* A caller that sees this and then looks for octets sees all that will come. */
static bool recv_ended(const struct sock *sk, const struct sdp_link *link)
{
	bool over = READ_ONCE(sk->sk_err) || ended(link) ||
		    (READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN);

	/* pairs with link->lock, under which octets come before the end */
	smp_rmb();
	return over;
}

/* Is there a reason to look for octets again? */
static bool may_receive(const struct sock *sk, const struct sdp_link *link, u32 seen)
{
	return recv_ended(sk, link) || readable(link, seen + 1) ||
	       (seen && full(link)) || READ_ONCE(link->arrived);
}

/* Ends a watch: others want this processor, or there is work before the return */
static bool is_wanted(void)
{
	/* newer kernels take back a used-up CPU quota only at the return */
	return signal_pending(current) || task_work_pending(current) ||
	       need_resched() || !single_task_running();
}

/*
 * Watch for octets until @until, see proto/sdp/spin.h.
 * 1: look again, 0: nothing has come, or a negative errno.
 */
static int spin(struct sock *sk, struct sdp_link *link, u32 seen, u64 until,
		long *timeo)
{
	unsigned long begin = jiffies;

	release_sock(sk);
	atomic_inc(&link->watchers);
	/* the monotonic clock is the same on all processors, others are not */
	while (!may_receive(sk, link, seen) && ktime_get_ns() < until &&
	       !is_wanted())
		cpu_relax();
	atomic_dec(&link->watchers);
	lock_sock(sk);
	/* another thread has disconnected it */
	if (link->sk != sk)
		return -EPIPE;
	if (*timeo != MAX_SCHEDULE_TIMEOUT)
		*timeo -= min_t(long, *timeo, jiffies - begin);
	/* another thread may have received them */
	return may_receive(sk, link, seen);
}

/* The program gets octets: if it has watched for them, that has paid. */
static void end_watch(struct sock *sk, struct sdp_link *link,
		      struct sdp_watch *watch)
{
	if (!watch->until)
		return;
	watch->until = 0;
	sdp_count(sock_net(sk), SDP_STAT_SPIN_HIT);
	sdp_spin_hit(&link->spin);
}

/* A process that sleeps */
struct sleeper {
	struct wait_queue_entry wait;
	u64 woken;		/* ns of ktime_get() when it was; or 0 */
};

static int note_wake(struct wait_queue_entry *wait, unsigned int mode, int sync,
		     void *key)
{
	struct sleeper *sleeper = container_of(wait, struct sleeper, wait);
	u64 now = ktime_get_ns();
	int woken = woken_wake_function(wait, mode, sync, key);

	/* not if it had not slept yet, or was awake again */
	if (woken)
		sleeper->woken = now;
	return woken;
}

/* Sleep for octets, but watch for them first if that pays; results of spin(). */
static int spin_or_sleep(struct sock *sk, struct sdp_link *link, u32 seen,
			 struct sdp_watch *watch, long *timeo)
{
	u32 most = sdp_tunable(sock_net(sk), SDP_SPIN) * NSEC_PER_USEC;
	u32 limit = sdp_spin_limit(&link->spin, most);
	u64 begin = ktime_get_ns(), end, ns = limit;
	struct sleeper sleeper = {};
	bool spins = false;
	int ret;

	if (limit && (watch->until || sdp_spin_due(&link->spin))) {
		/* jiffies_to_nsecs() of more than an hour may wrap */
		if (*timeo < HZ)
			ns = min(ns, jiffies_to_nsecs(*timeo));
		/* what brings the program nothing does not prolong it */
		sdp_watch(watch, begin, ns);
		ret = spin(sk, link, seen, watch->until, timeo);
		if (ret)
			return ret;
		/* whom another thread has cut short has not watched in vain */
		spins = ktime_get_ns() >= watch->until;
		if (spins)
			sdp_count(sock_net(sk), SDP_STAT_SPIN_MISSED);
		watch->until = 0;
	}
	init_waitqueue_func_entry(&sleeper.wait,
				  most ? note_wake : woken_wake_function);
	sleeper.wait.private = current;
	add_wait_queue(sk_sleep(sk), &sleeper.wait);
	ret = sk_wait_event(sk, timeo, may_receive(sk, link, seen),
			    &sleeper.wait);
	remove_wait_queue(sk_sleep(sk), &sleeper.wait);
	end = ktime_get_ns();
	if (sleeper.woken)
		sdp_spin_woken(&link->spin, end - sleeper.woken, most);
	/* what woke it for another reason says nothing */
	sdp_spin_slept(&link->spin, spins, ret > 0 && end - begin <
		       sdp_spin_limit(&link->spin, most));
	return ret < 0 ? ret : 1;
}

/*
 * Wait for octets: 1 look again, 0 or an errno: end the call
 * @over: recv_ended() before the last look for octets
 */
static int wait_to_receive(struct sock *sk, struct sdp_link *link, int copied,
			   u32 seen, bool over, struct sdp_watch *watch,
			   long *timeo)
{
	int ret;

	if (copied) {
		if (over || !*timeo || signal_pending(current))
			return 0;
		/* MSG_PEEK leaves @seen octets in their buffers */
		if (seen && full(link))
			return sdp_link_grow(link, sk, true) ? 1 : 0;
	} else {
		/* after the peer's end an error does not concern the reader */
		ret = over && !READ_ONCE(link->eof) ? sock_error(sk) : 0;
		if (ret)
			return ret;
		if (over)
			return 0;
		if (!*timeo)
			return -EAGAIN;
		if (signal_pending(current))
			return sock_intr_errno(*timeo);
		if (seen && full(link))
			return sdp_link_grow(link, sk, true) ? 1 : -EAGAIN;
	}
	return spin_or_sleep(sk, link, seen, watch, timeo);
}

/* MSG_OOB, which never waits; results are those of TCP */
static int recv_urgent(struct sock *sk, struct sdp_link *link,
		       struct msghdr *msg, size_t len, int flags)
{
	struct sdp_urgent *u = &link->urgent;
	int ret = 1;
	u8 octet;

	spin_lock_bh(&link->lock);
	octet = u->octet;
	if (sock_flag(sk, SOCK_URGINLINE) || u->state == SDP_URGENT_NONE ||
	    u->state == SDP_URGENT_READ)
		ret = -EINVAL;
	else if (ended(link) && !link->eof)
		ret = -ENOTCONN;
	else if (u->state == SDP_URGENT_TOLD)
		ret = recv_ended(sk, link) ? 0 : -EAGAIN;
	else if (!(flags & MSG_PEEK))
		u->state = SDP_URGENT_READ;
	spin_unlock_bh(&link->lock);
	if (ret <= 0)
		return ret;
	msg->msg_flags |= MSG_OOB;
	if (!len) {
		msg->msg_flags |= MSG_TRUNC;
		return 0;
	}
	if (!(flags & MSG_TRUNC) && memcpy_to_msg(msg, &octet, 1))
		return -EFAULT;
	return 1;
}

/* Octets to read up to the mark, as with TCP */
static int inq(const struct sock *sk, struct sdp_link *link)
{
	u64 octets;

	spin_lock_bh(&link->lock);
	octets = link->rx_octets;
	if (!sock_flag(sk, SOCK_URGINLINE))
		octets = min(octets, sdp_urgent_left(&link->urgent,
						     sdp_link_position(link)));
	spin_unlock_bh(&link->lock);
	return octets;
}

/* TCP_INQ, and io_uring's msg_get_inq */
static void tell_inq(const struct sock *sk, struct sdp_link *link,
		     struct msghdr *msg)
{
	int octets;

	if (!tcp_sk(sk)->recvmsg_inq && !msg->msg_get_inq)
		return;
	octets = inq(sk, link);
	/* who learns that there is nothing does not look */
	if (!octets && sdp_link_receive(link, SDP_RX_SIZE))
		octets = inq(sk, link);
	/* the end of the stream can be read */
	if (!octets && READ_ONCE(link->eof))
		octets = 1;
	msg->msg_inq = octets;
	if (tcp_sk(sk)->recvmsg_inq)
		put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(octets), &octets);
}

int sdp_stream_recv(struct sock *sk, struct sdp_link *link, struct msghdr *msg,
		    size_t len, int flags)
{
	long timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	size_t target = sock_rcvlowat(sk, flags & MSG_WAITALL, len);
	bool peek = flags & MSG_PEEK;
	u32 seen = max(sk_peek_offset(sk, flags), 0);
	struct sdp_watch watch = {};
	bool received = false;
	int done = 0;
	int ret = 0;
	bool over;

	if (flags & MSG_ERRQUEUE)
		return -EAGAIN;
	if (flags & MSG_OOB)
		return recv_urgent(sk, link, msg, len, flags);
	/* a call for 0 octets waits for one, too */
	while (len ? done < len : !readable(link, 1)) {
		if (at_mark(link, peek ? seen : 0)) {
			if (done)
				break;
			if (signal_pending(current)) {
				ret = timeo ? sock_intr_errno(timeo) : -EAGAIN;
				break;
			}
		}
		over = recv_ended(sk, link);
		ret = copy_some(sk, link, msg, len - done, flags, &seen);
		if (ret > 0) {
			end_watch(sk, link, &watch);
			done += ret;
			received = false;
			continue;
		}
		if (ret < 0)
			break;
		if (!received && receive(link, &timeo)) {
			received = true;
			continue;
		}
		if (done >= target)
			break;
		/* a long MSG_WAITALL must not go on with the small buffers */
		if (READ_ONCE(link->grow) && done && !peek)
			sdp_link_grow(link, sk, false);
		ret = wait_to_receive(sk, link, done, peek ? seen : 0, over,
				      &watch, &timeo);
		if (ret <= 0)
			break;
		received = false;
	}
	if (peek)
		sk_peek_offset_fwd(sk, done);
	else
		sk_peek_offset_bwd(sk, done);
	if (READ_ONCE(link->grow) && done && !peek)
		sdp_link_grow(link, sk, false);
	if (done || !ret)
		tell_inq(sk, link, msg);
	return done ?: ret;
}

/* poll and ioctl ----------------------------------------------------------- */

static __poll_t poll_input(struct sock *sk, struct sdp_link *link)
{
	u32 octets = READ_ONCE(link->rx_octets);
	__poll_t mask = 0;

	if (READ_ONCE(link->marked)) {
		spin_lock_bh(&link->lock);
		octets = link->rx_octets;
		if (link->urgent.state == SDP_URGENT_THERE)
			mask |= EPOLLPRI;
		/* the octet out of band is not one of the stream */
		if (!sock_flag(sk, SOCK_URGINLINE) &&
		    !sdp_urgent_left(&link->urgent, sdp_link_position(link)))
			octets--;
		spin_unlock_bh(&link->lock);
	}
	if (octets >= sock_rcvlowat(sk, 0, INT_MAX) || (octets && full(link)))
		mask |= EPOLLIN | EPOLLRDNORM;
	return mask;
}

__poll_t sdp_stream_poll(struct socket *sock, struct sdp_link *link)
{
	struct sock *sk = sock->sk;
	u8 shutdown = READ_ONCE(sk->sk_shutdown);
	__poll_t mask = 0;

	if (shutdown == SHUTDOWN_MASK || ended(link))
		mask |= EPOLLHUP;
	if (shutdown & RCV_SHUTDOWN)
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
	if (is_up(link) || ended(link)) {
		mask |= poll_input(sk, link);
		if (shutdown & SEND_SHUTDOWN) {
			mask |= EPOLLOUT | EPOLLWRNORM;
		} else if (has_room(sk, link)) {
			mask |= EPOLLOUT | EPOLLWRNORM;
		} else {
			sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
			set_bit(SOCK_NOSPACE, &sock->flags);
			/* pairs with the one in tell_room() */
			smp_mb__after_atomic();
			if (has_room(sk, link))
				mask |= EPOLLOUT | EPOLLWRNORM;
		}
	}
	/* pairs with the one in sdp_sock_over(): no end is seen without its error */
	smp_rmb();
	if (READ_ONCE(sk->sk_err) ||
	    !skb_queue_empty_lockless(&sk->sk_error_queue))
		mask |= EPOLLERR;
	return mask;
}

int sdp_stream_ioctl(struct sock *sk, struct sdp_link *link, unsigned int cmd,
		     int *value)
{
	switch (cmd) {
	case SIOCINQ:
		*value = inq(sk, link);
		if (!*value && sdp_link_receive(link, SDP_RX_SIZE))
			*value = inq(sk, link);
		return 0;
	case SIOCOUTQ:
		*value = sdp_carrier_outq(sk, link);
		return 0;
	case SIOCOUTQNSD:
		*value = READ_ONCE(link->queue_octets);
		return 0;
	case SIOCATMARK:
		*value = at_mark(link, 0);
		return 0;
	}
	return -ENOIOCTLCMD;
}
