// SPDX-License-Identifier: GPL-2.0
/*
 * The program's socket and its calls, see sock.h.
 */
#include <linux/poll.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/ipv6.h>

#include "auto.h"
#include "bytcp.h"
#include "carrier.h"
#include "cma.h"
#include "compat.h"
#include "family.h"
#include "link.h"
#include "listen.h"
#include "netns.h"
#include "option.h"
#include "own.h"
#include "sock.h"
#include "stats.h"
#include "stream.h"
#include "uapi/softwarp_sdp.h"

/* Result: continue the call as TCP's, on the same socket; not an errno */
#define BY_TCP	1

/* The link of a socket that the caller has locked, with a reference, or NULL */
static struct sdp_link *link_of(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);
	struct sdp_link *link;

	link = ss ? rcu_dereference_protected(ss->link, lockdep_sock_is_held(sk)) :
		    NULL;
	if (link)
		sdp_link_get(link);
	return link;
}

static struct sdp_listener *listener_of(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);

	return ss ? rcu_dereference_protected(ss->listener,
					      lockdep_sock_is_held(sk)) : NULL;
}

/* connect() has not chosen SDP or TCP yet; if false, its outcome is visible. */
static bool is_undecided(const struct sdp_sock *ss)
{
	/* pairs with the release in sdp_sock_attempt() */
	return smp_load_acquire(&ss->undecided);
}

/* All calls of the socket go to TCP. */
static bool is_tcp(const struct sock *sk)
{
	const struct sdp_sock *ss;
	bool ret;

	rcu_read_lock();
	ss = sdp_sk(sk);
	ret = !ss || (!is_undecided(ss) && READ_ONCE(ss->tcp) &&
		      !rcu_access_pointer(ss->listener));
	rcu_read_unlock();
	return ret;
}

/* Any context */
static bool has_listener(const struct sock *sk)
{
	const struct sdp_sock *ss;
	bool ret;

	rcu_read_lock();
	ss = sdp_sk(sk);
	ret = ss && rcu_access_pointer(ss->listener);
	rcu_read_unlock();
	return ret;
}

struct sdp_listener *sdp_sock_listener(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);

	return ss ? rcu_dereference(ss->listener) : NULL;
}

/* Make the socket TCP's for a reason, or with NONE no longer TCP's. */
static void be_tcp(struct sock *sk, u8 reason)
{
	struct sdp_sock *ss = sdp_sk(sk);

	sock_owned_by_me(sk);
	sdp_by_tcp_hide(ss->by_tcp);
	WRITE_ONCE(ss->by_tcp, reason ? sdp_by_tcp_show(sk, reason) : NULL);
	ss->reason = reason;
	WRITE_ONCE(ss->tcp, !!reason);
	if (!reason)
		sdp_family_ops(sk, false);
}

/* Memory ------------------------------------------------------------------- */

/* Charge the receive buffers of a link, for as long as the socket has it. */
static int charge(struct sock *sk)
{
	if (!__sk_mem_schedule(sk, SDP_LINK_COST, SK_MEM_RECV))
		return -ENOBUFS;
	sk_mem_charge(sk, SDP_LINK_COST);
	return 0;
}

/*
 * Keep up to a page more than sk_mem_uncharge() does, so that a socket with one
 * small message after the other does not take it from the protocol's account and
 * give it back each time.
 */
static void uncharge_sent(struct sock *sk, int octets)
{
	if (sk->sk_forward_alloc + octets < (int)(2 * PAGE_SIZE) &&
	    !sk_under_memory_pressure(sk))
		sk_mem_charge(sk, -octets);
	else
		sk_mem_uncharge(sk, octets);
}

/* As with TCP, only who has found no room learns that there is some. */
static void tell_room(struct sock *sk)
{
	/* pairs with those in wait_to_send() and sdp_stream_poll() */
	smp_mb();
	if (sk->sk_socket && test_bit(SOCK_NOSPACE, &sk->sk_socket->flags))
		sk->sk_write_space(sk);
}

/*
 * Uncharge sent octets, and charge buffers that a move has added.  With the
 * socket locked, or in softirq with its slock.
 */
static void settle(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);
	struct sdp_link *link;
	int octets, more;

	if (!ss)
		return;
	rcu_read_lock();
	link = rcu_dereference(ss->link);
	octets = link ? atomic_xchg(&link->tx_done, 0) : 0;
	more = link ? atomic_xchg(&link->rx_more, 0) : 0;
	if (more < 0) {
		sk_mem_uncharge(sk, -more);
		link->charged += more;
	} else if (more && __sk_mem_schedule(sk, more, SK_MEM_RECV)) {
		sk_mem_charge(sk, more);
		link->charged += more;
	} else if (more) {
		atomic_add(more, &link->rx_more);
	}
	if (link && READ_ONCE(link->next_carrier))
		sdp_link_use_next(link);
	rcu_read_unlock();
	if (!octets)
		return;
	sk_wmem_queued_add(sk, -octets);
	uncharge_sent(sk, octets);
	tell_room(sk);
}

bool sdp_sock_trylock(struct sock *sk)
{
	bool locked;

	spin_lock_bh(&sk->sk_lock.slock);
	locked = !sk->sk_lock.owned;
	if (locked)
		sk->sk_lock.owned = 1;
	spin_unlock_bh(&sk->sk_lock.slock);
	/* as lock_sock() does it */
	if (locked)
		mutex_acquire(&sk->sk_lock.dep_map, 0, 1, _RET_IP_);
	return locked;
}

void sdp_sock_sent(struct sock *sk)
{
	bh_lock_sock(sk);
	/* else release_cb() does it when the socket is unlocked */
	if (!sock_owned_by_user(sk))
		settle(sk);
	bh_unlock_sock(sk);
}

void sdp_sock_wake_writers(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	/* there is no room yet: an event that none who polls waits for */
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, EPOLLMSG);
	rcu_read_unlock();
}

/*
 * Not if a signal or a callback of another is to say that there is something to
 * read: the process it concerns need not call us before there is.
 */
bool sdp_sock_may_receive(const struct sock *sk)
{
	const struct socket_wq *wq;
	bool may;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	may = wq && !READ_ONCE(wq->fasync_list) && sdp_is_unhooked(sk) &&
	      !(READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN);
	rcu_read_unlock();
	return may;
}

void sdp_sock_wake_to_receive(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	/*
	 * No event is named: there is none yet, and io_uring would report it without
	 * a look.  Not a synchronous one, which draws the process to this CPU.
	 */
	if (skwq_has_sleeper(wq))
		wake_up_interruptible(&wq->wait);
	rcu_read_unlock();
}

static void release_cb(struct sock *sk)
{
	settle(sk);
	sdp_tcp_prot(sk)->release_cb(sk);
}

/* Links -------------------------------------------------------------------- */

void sdp_sock_up(struct sock *sk, struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	WRITE_ONCE(sdp_sk(sk)->undecided, false);
	sk->sk_state_change(sk);
	sk_wake_async(sk, SOCK_WAKE_IO, POLL_OUT);
}

void sdp_sock_eof(struct sock *sk)
{
	WRITE_ONCE(sk->sk_shutdown, sk->sk_shutdown | RCV_SHUTDOWN);
	sk->sk_state_change(sk);
	sk_wake_async(sk, SOCK_WAKE_WAITD,
		      sk->sk_shutdown == SHUTDOWN_MASK ? POLL_HUP : POLL_IN);
}

void sdp_sock_urgent(struct sock *sk)
{
	/* accept() may be attaching the file */
	read_lock_bh(&sk->sk_callback_lock);
	sk_send_sigurg(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void sdp_sock_over(struct sock *sk, struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	/* after the peer's end of stream, only a sender sees a reset */
	if (link->error == ECONNRESET && link->eof &&
	    !(sk->sk_shutdown & SEND_SHUTDOWN))
		WRITE_ONCE(sk->sk_err, EPIPE);
	else if (link->error)
		WRITE_ONCE(sk->sk_err, link->error);
	/* pairs with the one in sdp_stream_poll(), as in tcp_reset() */
	smp_wmb();
	WRITE_ONCE(sk->sk_shutdown, SHUTDOWN_MASK);
}

/*
 * One wake-up, not two as TCP's: for epoll the second is another edge, and may come
 * when the program has already taken the error.
 */
static void wake_all(struct sock *sk, bool error)
{
	if (error && !sdp_has_own_error_report(sk))
		sk_wake_async(sk, SOCK_WAKE_IO, POLL_ERR);
	else if (error)
		sk_error_report(sk);
	sk->sk_state_change(sk);
}

void sdp_sock_wake_over(struct sock *sk, struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	wake_all(sk, link->error);
	sk_wake_async(sk, SOCK_WAKE_WAITD, POLL_HUP);
}

/* Under link->lock as well, because the link changes sk_shutdown, too. */
static void shut(struct sock *sk, struct sdp_link *link, u8 mask)
{
	lockdep_assert_held(&link->lock);
	WRITE_ONCE(sk->sk_shutdown, sk->sk_shutdown | mask);
}

/*
 * A full message in each slot, which other devices keep until the peer has it.
 * softwarp gives it to TCP, so eight are enough for it always to have the next one,
 * and the oldest pages are still in the caches when they are filled again.  TCP
 * starts with less, and learns from its window, which we do not have.
 */
static void grow_sndbuf(struct sock *sk, const struct sdp_link *link)
{
	int octets = SDP_RX_SIZE * (link->ops == &sdp_carrier_tcp ? 8 : SDP_TX_SLOTS);
	int most = READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_wmem[2]);

	if (sk->sk_userlocks & SOCK_SNDBUF_LOCK)
		return;
	WRITE_ONCE(sk->sk_sndbuf, max(sk->sk_sndbuf, min(most, octets)));
}

/* Attach a link to a locked socket; takes over the reference if it succeeds. */
static int attach(struct sock *sk, struct sdp_link *link)
{
	struct sdp_sock *ss = sdp_sk(sk);
	int ret;

	ret = charge(sk);
	if (ret)
		return ret;
	link->charged = SDP_LINK_COST;
	grow_sndbuf(sk, link);
	spin_lock_bh(&link->lock);
	sock_hold(sk);
	link->sk = sk;
	link->nodelay = tcp_sk(sk)->nonagle & TCP_NAGLE_OFF;
	rcu_assign_pointer(ss->link, link);
	sdp_link_skip(link);
	sdp_link_pump(link);
	/* an accepted link may have changed while it waited */
	if (link->eof)
		sdp_sock_eof(sk);
	if (link->phase == SDP_LINK_DOWN || link->error) {
		link->told = true;
		sdp_sock_over(sk, link);
		sdp_sock_wake_over(sk, link);
	}
	spin_unlock_bh(&link->lock);
	return 0;
}

/* Undo attach(), of a link that is down or was not started. */
static void detach(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);
	struct sdp_link *link;

	link = rcu_dereference_protected(ss->link, lockdep_sock_is_held(sk));
	if (!link)
		return;
	spin_lock_bh(&link->lock);
	link->sk = NULL;
	spin_unlock_bh(&link->lock);
	RCU_INIT_POINTER(ss->link, NULL);
	sk_mem_uncharge(sk, sk->sk_wmem_queued + link->charged);
	link->charged = 0;
	sk_wmem_queued_add(sk, -sk->sk_wmem_queued);
	sdp_link_put(link);
	/* not the last one: the caller has another one */
	sock_put(sk);
}

/* Free a socket that the program has closed. */
static void bury(struct sock *sk)
{
	lock_sock(sk);
	detach(sk);
	release_sock(sk);
	sdp_tcp_prot(sk)->close(sk, 0);
}

void sdp_sock_unlinked(struct sdp_link *link)
{
	struct sock *sk;

	spin_lock_bh(&link->lock);
	link->unlinked = true;
	sk = link->bury ? link->sk : NULL;
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&link->lock);
	if (!sk)
		return;
	bury(sk);
	sock_put(sk);
}

/* struct proto ------------------------------------------------------------------------ */

static int init(struct sock *sk)
{
	bool unaware = sk->sk_protocol == IPPROTO_SDP_AUTO;
	struct sdp_sock *ss;
	int ret;

	/* before anything can be sent: packets carry it */
	sk->sk_protocol = IPPROTO_TCP;
	ret = sdp_tcp_prot(sk)->init(sk);
	if (ret)
		return ret;
	/* no zero-copy: octets are copied */
	if (sk->sk_socket)
		clear_bit(SOCK_SUPPORT_ZC, &sk->sk_socket->flags);
	ss = kzalloc(sizeof(*ss), GFP_KERNEL_ACCOUNT);
	if (!ss)
		return -ENOMEM;
	ss->layout = sdp_tunable(sock_net(sk), SDP_LAYOUT_DEFAULT);
	ss->initiator = sdp_tunable(sock_net(sk), SDP_INITIATOR_DEFAULT);
	ss->policy = unaware ? SDP_INFO_POLICY_AUTO :
			       sdp_tunable(sock_net(sk), SDP_POLICY_DEFAULT);
	ss->unaware = unaware;
	ss->sk = sk;
	ret = sdp_seen_reserve(&ss->seen, SDP_SEEN_SOCK, sk);
	if (ret) {
		kfree(ss);
		return ret;
	}
	__rcu_assign_sk_user_data_with_flags(sk, ss, SK_USER_DATA_NOCOPY);
	sdp_seen_show(&ss->seen, NULL);
	return 0;
}

static void destroy(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);

	if (ss) {
		sdp_seen_release(&ss->seen);
		rcu_assign_sk_user_data(sk, NULL);
		kfree_rcu(ss, rcu);
	}
	sdp_tcp_prot(sk)->destroy(sk);
}

/* Detach the listener of a locked socket; the caller has to close it. */
static struct sdp_listener *take_listener(struct sock *sk)
{
	struct sdp_listener *l = listener_of(sk);

	if (!l)
		return NULL;
	RCU_INIT_POINTER(sdp_sk(sk)->listener, NULL);
	sk->sk_kern_sock = 0;
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_data_ready = l->data_ready;
	write_unlock_bh(&sk->sk_callback_lock);
	sdp_listener_refund(l);
	return l;
}

/* Close the listener if the socket is closed or does not listen any more. */
static void stop_listening(struct sock *sk, bool closing)
{
	struct sdp_listener *l = NULL;

	lock_sock(sk);
	if (closing || sk->sk_state != TCP_LISTEN)
		l = take_listener(sk);
	release_sock(sk);
	if (!l)
		return;
	sdp_listener_close(l);
	/* waiters woken earlier have still seen a listener */
	if (!closing)
		sk->sk_state_change(sk);
}

static void close(struct sock *sk, long timeout)
{
	struct sdp_link *link;
	bool done;

	stop_listening(sk, true);
	lock_sock(sk);
	sdp_sock_attempt(sk, NULL);
	link = link_of(sk);
	if (!link) {
		release_sock(sk);
		sdp_tcp_prot(sk)->close(sk, timeout);
		return;
	}
	spin_lock_bh(&link->lock);
	shut(sk, link, SHUTDOWN_MASK);
	spin_unlock_bh(&link->lock);
	/* RFC 2525 2.17, as TCP does: unread octets cause an abort */
	sdp_link_orphan(link, READ_ONCE(link->rx_octets) ||
			(sock_flag(sk, SOCK_LINGER) && !sk->sk_lingertime));
	if (timeout)
		sdp_stream_wait_close(sk, link, timeout);
	sock_hold(sk);
	sock_orphan(sk);
	spin_lock_bh(&link->lock);
	done = link->unlinked;
	if (!done)
		link->bury = true;
	spin_unlock_bh(&link->lock);
	release_sock(sk);
	if (done)
		bury(sk);
	sock_put(sk);
	sdp_link_put(link);
}

/* SO_KEEPALIVE, called before it is set; the socket is locked. */
static void keepalive(struct sock *sk, int on)
{
	struct sdp_link *link = link_of(sk);

	sdp_tcp_prot(sk)->keepalive(sk, on);
	/* the next carrier of a move looks there */
	sock_valbool_flag(sk, SOCK_KEEPOPEN, on);
	/* BPF programs must not sleep: sdp_sendmsg() applies it later */
	if (link && !has_current_bpf_ctx())
		sdp_link_keepalive(link, on);
	if (link)
		sdp_link_put(link);
}

/* The value of an ioctl() of a link; -ENOIOCTLCMD: it is TCP's. */
static int link_ioctl(struct sock *sk, unsigned int cmd, int *value)
{
	struct sdp_link *link;
	int ret = -ENOIOCTLCMD;

	lock_sock(sk);
	link = link_of(sk);
	if (link) {
		ret = sdp_stream_ioctl(sk, link, cmd, value);
		sdp_link_put(link);
	}
	release_sock(sk);
	return ret;
}

/* io_uring calls this one, and not that of the socket. */
static int prot_ioctl(struct sock *sk, int cmd, int *value)
{
	int ret = link_ioctl(sk, cmd, value);

	return ret == -ENOIOCTLCMD ?
		       swp_prot_ioctl(sdp_tcp_prot(sk), sk, cmd, value) : ret;
}

#ifdef CONFIG_BPF_SYSCALL
/* A sockmap would replace our calls by TCP's. */
static int refuse_psock(struct sock *sk, struct sk_psock *psock, bool restore)
{
	return -EOPNOTSUPP;
}
#endif

/* The program's calls ------------------------------------------------------ */

/*
 * Free what is ours of a locked socket without a link.  Calls that do not have
 * the lock use it under RCU.  TCP's tables do the rest: sometimes later, as
 * listeners are freed by RCU, but the module is not held until then.
 */
static void forget(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);

	sock_owned_by_me(sk);
	sdp_by_tcp_hide_accepted(sk);
	if (!ss)
		return;
	/* before the look for a link: it could still choose TCP */
	sdp_sock_attempt(sk, NULL);
	if (rcu_access_pointer(ss->link))
		return;
	sdp_family_forget(sk);
	rcu_assign_sk_user_data(sk, NULL);
	sdp_by_tcp_hide(ss->by_tcp);
	sdp_seen_release(&ss->seen);
	kfree_rcu(ss, rcu);
}

static int sdp_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (!sk)
		return 0;
	/* before TCP's release(), which evaluates sk_kern_sock */
	stop_listening(sk, true);
	lock_sock(sk);
	forget(sk);
	release_sock(sk);
	return sdp_tcp_ops(sock->sk)->release(sock);
}

static int sdp_bind(struct socket *sock, struct swp_sockaddr *addr, int len)
{
	const struct sdp_sock *ss;
	bool busy;

	rcu_read_lock();
	ss = sdp_sk(sock->sk);
	busy = ss && (rcu_access_pointer(ss->link) || READ_ONCE(ss->attempt));
	rcu_read_unlock();
	if (busy)
		return -EINVAL;
	return sdp_tcp_ops(sock->sk)->bind(sock, addr, len);
}

void sdp_sock_inherit(struct sock *to, const struct sock *from)
{
	sdp_own_cgroup(to, from);
	to->sk_reuse = from->sk_reuse;
	to->sk_reuseport = from->sk_reuseport;
	to->sk_bound_dev_if = from->sk_bound_dev_if;
	to->sk_mark = from->sk_mark;
	to->sk_priority = from->sk_priority;
	to->sk_max_pacing_rate = from->sk_max_pacing_rate;
#ifdef CONFIG_NET_RX_BUSY_POLL
	to->sk_ll_usec = from->sk_ll_usec;
#endif
	sock_valbool_flag(to, SOCK_LOCALROUTE, sock_flag(from, SOCK_LOCALROUTE));
	inet_sk(to)->tos = inet_sk(from)->tos;
	inet_sk(to)->uc_ttl = inet_sk(from)->uc_ttl;
	inet_sk(to)->local_port_range = inet_sk(from)->local_port_range;
	swp_inet_inherit(to, from);
	inet_csk(to)->icsk_syn_retries = inet_csk(from)->icsk_syn_retries;
#if IS_ENABLED(CONFIG_IPV6)
	to->sk_ipv6only = from->sk_ipv6only;
	if (to->sk_family == AF_INET6) {
		inet6_sk(to)->hop_limit = inet6_sk(from)->hop_limit;
		inet6_sk(to)->tclass = inet6_sk(from)->tclass;
	}
#endif
}

/* The same, and what else an accepted socket inherits from its listener */
static void inherit_all(struct sock *to, const struct sock *from)
{
	sdp_sock_inherit(to, from);
	/* not inherited with TCP, either */
	to->sk_priority = 0;
	to->sk_sndtimeo = from->sk_sndtimeo;
	to->sk_rcvtimeo = from->sk_rcvtimeo;
	to->sk_rcvlowat = from->sk_rcvlowat;
	to->sk_lingertime = from->sk_lingertime;
	to->sk_userlocks = from->sk_userlocks & (SOCK_SNDBUF_LOCK |
						 SOCK_RCVBUF_LOCK);
	to->sk_sndbuf = from->sk_sndbuf;
	to->sk_rcvbuf = from->sk_rcvbuf;
	tcp_sk(to)->nonagle = tcp_sk(from)->nonagle;
	tcp_sk(to)->linger2 = tcp_sk(from)->linger2;
	tcp_sk(to)->notsent_lowat = tcp_sk(from)->notsent_lowat;
	tcp_sk(to)->keepalive_time = tcp_sk(from)->keepalive_time;
	tcp_sk(to)->keepalive_intvl = tcp_sk(from)->keepalive_intvl;
	tcp_sk(to)->keepalive_probes = tcp_sk(from)->keepalive_probes;
	inet_csk(to)->icsk_user_timeout = inet_csk(from)->icsk_user_timeout;
	sock_valbool_flag(to, SOCK_KEEPOPEN, sock_flag(from, SOCK_KEEPOPEN));
	sock_valbool_flag(to, SOCK_LINGER, sock_flag(from, SOCK_LINGER));
	sock_valbool_flag(to, SOCK_URGINLINE, sock_flag(from, SOCK_URGINLINE));
}

/* Bind to another socket's port, without a conflict. */
static int share_port(struct sock *sk, u16 port)
{
	int ret;

	sk->sk_reuse = SK_FORCE_REUSE;
	ret = sk->sk_prot->get_port(sk, port);
	inet_sk(sk)->inet_sport = htons(inet_sk(sk)->inet_num);
	return ret;
}

/*
 * Bind to the address that the program has bound, without another check of its
 * rights: bind() has checked them, and the program may have dropped them since.
 */
static int bind_as(struct sock *to, const struct sock *from)
{
	u16 port = inet_sk(from)->inet_num;
	int ret = 0;

	lock_sock(to);
	inet_sk(to)->inet_rcv_saddr = inet_sk(from)->inet_rcv_saddr;
	inet_sk(to)->inet_saddr = inet_sk(from)->inet_saddr;
#if IS_ENABLED(CONFIG_IPV6)
	if (to->sk_family == AF_INET6) {
		to->sk_v6_rcv_saddr = from->sk_v6_rcv_saddr;
		inet6_sk(to)->saddr = inet6_sk(from)->saddr;
	}
#endif
	to->sk_userlocks |= from->sk_userlocks & (SOCK_BINDADDR_LOCK |
						  SOCK_BINDPORT_LOCK);
	if (port)
		ret = share_port(to, port);
	release_sock(to);
	/* the errno of bind() */
	return ret ? -EADDRINUSE : 0;
}

/* Choose a port as connect() would. */
int sdp_sock_any_port(struct sock *sk)
{
	sock_owned_by_me(sk);
	if (inet_sk(sk)->inet_num)
		return 0;
	if (sk->sk_prot->get_port(sk, 0))
		return -EAGAIN;
	inet_sk(sk)->inet_sport = htons(inet_sk(sk)->inet_num);
	return 0;
}

void sdp_sock_take_port(struct sock *sk, u16 port)
{
	u8 reuse = sk->sk_reuse;

	sock_owned_by_me(sk);
	if (inet_sk(sk)->inet_num)
		return;
	share_port(sk, port);
	sk->sk_reuse = reuse;
}

struct socket *sdp_sock_carrier(struct sock *sk)
{
	struct socket *sock;
	int ret;

	ret = sock_create_kern(sock_net(sk), sk->sk_family, SOCK_STREAM,
			       IPPROTO_TCP, &sock);
	if (ret)
		return ERR_PTR(ret);
	swp_sk_hold_net(sock->sk);
	sdp_sock_inherit(sock->sk, sk);
	ret = bind_as(sock->sk, sk);
	if (ret) {
		sock_release(sock);
		return ERR_PTR(ret);
	}
	return sock;
}

struct socket *sdp_sock_hold_port(const struct sock *from)
{
	struct socket *sock;

	if (sock_create_kern(sock_net(from), from->sk_family, SOCK_STREAM,
			     IPPROTO_TCP, &sock))
		return NULL;
	sdp_sock_inherit(sock->sk, from);
	if (bind_as(sock->sk, from)) {
		sock_release(sock);
		return NULL;
	}
	/* only @from shares it */
	lock_sock(sock->sk);
	sock->sk->sk_reuse = SK_NO_REUSE;
	release_sock(sock->sk);
	return sock;
}

int sdp_sock_by_sdp(struct sock *sk, struct socket *carrier,
		    const union sdp_end *to, int len, struct sdp_attempt *a)
{
	struct sdp_ends ends;
	struct sdp_link *link;
	bool by_cm;
	int ret;

	sock_owned_by_me(sk);
	/* the port mapper has answered with a TCP port */
	by_cm = !a && sdp_cma_way(carrier->sk, &to->any, len, &ends);
	link = sdp_link_new(sk, true,
			    by_cm ? &sdp_carrier_cm : &sdp_carrier_tcp);
	if (!link) {
		sock_release(carrier);
		return -ENOMEM;
	}
	if (by_cm)
		link->tcp = carrier;
	else
		sdp_link_over(link, carrier);
	link->layout = sdp_sk(sk)->layout;
	if (!by_cm)
		link->initiator = sdp_sk(sk)->initiator;
	if (a) {
		kref_get(&a->ref);
		link->attempt = a;
	}
	/* clear the error of an earlier attempt */
	sk->sk_err = 0;
	ret = attach(sk, link);
	if (ret) {
		sdp_link_put(link);
		sock_release(carrier);
		return ret;
	}
	if (by_cm) {
		ret = sdp_cma_connect(link, &ends);
		if (!ret)
			return 0;
	} else {
		sdp_carrier_prepare(carrier->sk, sk);
		ret = sdp_own_connect(carrier, to, len);
	}
	if (!by_cm && !ret) {
		/* the local address is chosen already */
		sdp_own_name(carrier->sk, (union sdp_end *)&link->local);
		sdp_link_start(link);
		sdp_link_event(link, SDP_EV_TCP);
		return 0;
	}
	detach(sk);
	sock_release(carrier);
	return ret;
}

int sdp_sock_by_tcp(struct sock *sk, const union sdp_end *to, int len, u8 reason)
{
	union sdp_end at = *to;
	int ret;

	sock_owned_by_me(sk);
	sdp_family_forget(sk);
	be_tcp(sk, reason);
	sdp_count_reason(sock_net(sk), reason);
	ret = sk->sk_prot->connect(sk, swp_sockaddr_arg(&at), len);
	/* not before: TCP's poll() would see a socket that does not connect */
	if (!ret)
		sdp_family_ops(sk, true);
	return ret;
}

void sdp_sock_attempt(struct sock *sk, struct sdp_attempt *a)
{
	struct sdp_sock *ss = sdp_sk(sk);
	struct sdp_attempt *old = ss->attempt;

	sock_owned_by_me(sk);
	WRITE_ONCE(ss->attempt, a);
	/* pairs with is_undecided(), which runs without the lock */
	smp_store_release(&ss->undecided, !!a);
	if (!old)
		return;
	sdp_attempt_cancel(old);
	sdp_attempt_put(old);
}

u16 sdp_sock_unlink(struct sock *sk)
{
	struct sdp_link *link = link_of(sk);
	u16 port;

	if (!link)
		return 0;
	port = sdp_end_port((union sdp_end *)&link->local);
	sdp_link_reset(link);
	detach(sk);
	sdp_link_put(link);
	return port;
}

void sdp_sock_decided(struct sock *sk, int error)
{
	sock_owned_by_me(sk);
	if (error)
		WRITE_ONCE(sk->sk_err, -error);
	sdp_sock_attempt(sk, NULL);
	/* processes that waited for SDP wait for TCP now, if at all */
	wake_all(sk, error);
}

/* Run the cgroup's BPF programs, as TCP would; they may change the address. */
static int pre_connect(struct sock *sk, struct swp_sockaddr *addr, int len)
{
	return BPF_CGROUP_PRE_CONNECT_ENABLED(sk) ?
		       sk->sk_prot->pre_connect(sk, addr, len) : 0;
}

static int begin_connect(struct sock *sk, struct swp_sockaddr *addr, int len)
{
	struct sdp_sock *ss = sdp_sk(sk);
	struct socket *carrier;
	union sdp_end to = {};
	int ret;

	/* a connect() that failed may have left it with TCP's tables */
	sdp_family_retake(sk);
	be_tcp(sk, SDP_INFO_REASON_NONE);
	ret = pre_connect(sk, addr, len);
	if (ret)
		return ret;
	/* TCP refuses an address that is too short */
	len = min_t(int, len, sizeof(to));
	memcpy(&to, addr, len);
	switch (ss->policy) {
	case SDP_INFO_POLICY_TCP:
		return sdp_sock_by_tcp(sk, &to, len, SDP_INFO_REASON_POLICY);
	case SDP_INFO_POLICY_AUTO:
		return sdp_attempt_begin(sk, &to, len);
	}
	carrier = sdp_sock_carrier(sk);
	if (IS_ERR(carrier))
		return PTR_ERR(carrier);
	return sdp_sock_by_sdp(sk, carrier, &to, len, NULL);
}

/* Whether the link is connected or has failed */
static bool decided(const struct sdp_link *link)
{
	/* pairs with the release in sdp_link_up() and tell_over() */
	return smp_load_acquire(&link->phase) >= SDP_LINK_UP ||
	       READ_ONCE(link->open);
}

/* Whether connect() is done, as far as SDP is concerned.  Any context. */
static bool settled(const struct sock *sk)
{
	const struct sdp_sock *ss;
	struct sdp_link *link;
	bool ret = true;

	rcu_read_lock();
	ss = sdp_sk(sk);
	link = ss ? rcu_dereference(ss->link) : NULL;
	if (ss && is_undecided(ss))
		ret = false;
	else if (link)
		ret = decided(link);
	rcu_read_unlock();
	return ret;
}

/* Wait until settled(), 0 or a negative errno: the socket may become TCP's. */
static int wait_settled(struct sock *sk, long timeo)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	int ret = 0;

	if (settled(sk))
		return 0;
	if (!timeo)
		return -EAGAIN;
	add_wait_queue(sk_sleep(sk), &wait);
	while (timeo && !signal_pending(current) && !ret && !settled(sk))
		/* negative: another thread has disconnected it */
		if (sk_wait_event(sk, &timeo, settled(sk), &wait) < 0)
			ret = -EPIPE;
	remove_wait_queue(sk_sleep(sk), &wait);
	if (!ret && !settled(sk))
		ret = timeo ? sock_intr_errno(timeo) : -EAGAIN;
	return ret;
}

static int disconnect(struct socket *sock, int flags)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link = link_of(sk);
	int ret;

	/* calls that sleep notice by this that they lost their connection */
	sk->sk_disconnects++;
	sdp_sock_attempt(sk, NULL);
	if (link) {
		/* no farewell: nothing is charged for the link from here on */
		sdp_link_reset(link);
		detach(sk);
		sdp_link_put(link);
	}
	ret = sk->sk_prot->disconnect(sk, flags);
	sock->state = ret ? SS_DISCONNECTING : SS_UNCONNECTED;
	return ret;
}

/* Result of a settled connect(): 0, a negative errno, or BY_TCP to ask TCP */
static int outcome(struct socket *sock, int flags)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link = link_of(sk);
	int ret = 0;

	if (!link)
		return !sdp_sk(sk) || sdp_sk(sk)->tcp ? BY_TCP : -EPIPE;
	if (READ_ONCE(link->phase) == SDP_LINK_DOWN) {
		ret = sock_error(sk) ?: -ECONNABORTED;
		disconnect(sock, flags);
	} else {
		sock->state = SS_CONNECTED;
	}
	sdp_link_put(link);
	return ret;
}

/* @fresh: set if this call has begun to connect */
static int connect_locked(struct socket *sock, struct swp_sockaddr *addr,
			  int len, int flags, bool *fresh)
{
	struct sock *sk = sock->sk;
	long timeo;
	int ret;

	if (!sdp_sk(sk))
		return BY_TCP;
	if (len < sizeof(addr->sa_family))
		return -EINVAL;
	if (addr->sa_family == AF_UNSPEC)
		return disconnect(sock, flags);
	switch (sock->state) {
	case SS_CONNECTED:
		return -EISCONN;
	case SS_CONNECTING:
		break;
	case SS_UNCONNECTED:
		/* a call of TCP's that began before may have reset the state */
		if (sk->sk_state != TCP_CLOSE || sdp_sk(sk)->attempt ||
		    rcu_access_pointer(sdp_sk(sk)->link))
			return -EISCONN;
		ret = begin_connect(sk, addr, len);
		if (ret)
			return ret;
		sock->state = SS_CONNECTING;
		*fresh = true;
		break;
	default:
		return -EINVAL;
	}

	timeo = sock_sndtimeo(sk, flags & O_NONBLOCK);
	/* do not ask TCP, which would take it for a second call */
	if (*fresh && !timeo)
		return -EINPROGRESS;
	ret = wait_settled(sk, timeo);
	if (ret == -EAGAIN)
		ret = *fresh ? -EINPROGRESS : -EALREADY;
	return ret ?: outcome(sock, flags);
}

static int sdp_connect(struct socket *sock, struct swp_sockaddr *addr, int len,
		       int flags)
{
	struct sock *sk = sock->sk;
	bool fresh = false;
	int ret;

	lock_sock(sk);
	ret = connect_locked(sock, addr, len, flags, &fresh);
	release_sock(sk);
	if (ret == BY_TCP) {
		ret = sdp_tcp_ops(sk)->connect(sock, addr, len, flags);
		/* TCP has taken this call for a second one */
		if (ret == -EALREADY && fresh)
			ret = -EINPROGRESS;
	}
	/* AF_UNSPEC ends listening */
	if (has_listener(sk))
		stop_listening(sk, false);
	return ret;
}

/* Create the socket's listener by its policy; none if the policy is TCP. */
static int prepare_to_listen(struct sock *sk)
{
	struct sdp_sock *ss = sdp_sk(sk);
	bool automatic = ss->policy == SDP_INFO_POLICY_AUTO;
	struct sdp_listener *l;

	if (listener_of(sk))
		return 0;
	if (ss->policy == SDP_INFO_POLICY_TCP) {
		sdp_family_forget(sk);
		be_tcp(sk, SDP_INFO_REASON_POLICY);
		sdp_family_ops(sk, true);
		return 0;
	}
	l = sdp_listener_new(sk, automatic);
	if (IS_ERR(l))
		return PTR_ERR(l);
	/* undo what a failed connect() has left */
	be_tcp(sk, SDP_INFO_REASON_NONE);
	if (automatic) {
		sdp_family_forget(sk);
	} else {
		sdp_family_retake(sk);
		/* so that carriers get the lock classes of kernel sockets */
		sk->sk_kern_sock = 1;
	}
	rcu_assign_pointer(ss->listener, l);
	WRITE_ONCE(ss->tcp, automatic);
	return 0;
}

static int listen_by_policy(struct socket *sock, int backlog)
{
	struct sock *sk = sock->sk;
	struct sdp_listener *l;
	struct sdp_sock *ss;
	int ret = 0;

	lock_sock(sk);
	ss = sdp_sk(sk);
	if (ss && (rcu_access_pointer(ss->link) ||
		   sock->state != SS_UNCONNECTED))
		ret = -EINVAL;
	else if (ss)
		ret = prepare_to_listen(sk);
	release_sock(sk);
	if (ret)
		return ret;
	ret = sdp_tcp_ops(sk)->listen(sock, backlog);
	/* if that failed, or another thread ended it */
	stop_listening(sk, false);
	if (is_tcp(sk))
		return ret;
	lock_sock(sk);
	l = listener_of(sk);
	if (l && !ret)
		ret = sdp_listener_open(l);
	if (!ret && !l)
		ret = -EINVAL;
	if (ret && sk->sk_state == TCP_LISTEN)
		sk->sk_prot->disconnect(sk, 0);
	if (!ret)
		kref_get(&l->ref);
	release_sock(sk);
	if (ret) {
		stop_listening(sk, false);
	} else {
		sdp_cma_listen(l);
		sdp_listener_put(l);
	}
	return ret;
}

/* Change the policy of a socket that is idle. */
static bool change_policy(struct sock *sk, u8 from, u8 to)
{
	struct sdp_sock *ss;
	bool changed;

	lock_sock(sk);
	ss = sdp_sk(sk);
	changed = ss && ss->unaware && ss->policy == from &&
		  sdp_option_is_idle(sk);
	if (changed)
		WRITE_ONCE(ss->policy, to);
	release_sock(sk);
	return changed;
}

/*
 * A program that has asked for TCP gets TCP if what SDP needs besides is missing:
 * memory, or a second port.
 */
static int sdp_listen(struct socket *sock, int backlog)
{
	struct sock *sk = sock->sk;
	int ret = listen_by_policy(sock, backlog);

	if (!ret || !change_policy(sk, SDP_INFO_POLICY_AUTO,
				   SDP_INFO_POLICY_TCP))
		return ret;
	ret = listen_by_policy(sock, backlog);
	if (ret)
		change_policy(sk, SDP_INFO_POLICY_TCP, SDP_INFO_POLICY_AUTO);
	return ret;
}

/* Whether a connection by TCP waits at a listener of the policy auto */
static bool tcp_ready(const struct sock *sk, const struct sdp_listener *l)
{
	return l->port &&
	       !reqsk_queue_empty(&inet_csk(sk)->icsk_accept_queue);
}

static bool acceptable(const struct sock *sk, struct sdp_listener *l)
{
	return sdp_listener_ready(l) || tcp_ready(sk, l);
}

static int wait_to_accept(struct sock *sk, struct sdp_listener *l, long *timeo)
{
	DEFINE_WAIT(wait);
	int ret = 0;

	while (!acceptable(sk, l)) {
		ret = -EINVAL;
		if (sk->sk_state != TCP_LISTEN || listener_of(sk) != l)
			break;
		ret = -EAGAIN;
		if (!*timeo)
			break;
		ret = sock_intr_errno(*timeo);
		if (signal_pending(current))
			break;
		prepare_to_wait_exclusive(sk_sleep(sk), &wait,
					  TASK_INTERRUPTIBLE);
		release_sock(sk);
		if (!acceptable(sk, l))
			*timeo = schedule_timeout(*timeo);
		sched_annotate_sleep();
		lock_sock(sk);
		finish_wait(sk_sleep(sk), &wait);
		ret = 0;
	}
	return ret;
}

/*
 * Make a kernel socket one of a program's, as if TCP had cloned the listener:
 * with its reference to the namespace, its label and its classes of locks
 */
static void adopt(struct sock *child, struct sock *sk)
{
	child->sk_kern_sock = 0;
	swp_sk_hold_net(child);
	security_sk_clone(sk, child);
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	lockdep_copy_map(&child->sk_lock.dep_map, &sk->sk_lock.dep_map);
	lockdep_copy_map(&child->sk_lock.slock.dep_map,
			 &sk->sk_lock.slock.dep_map);
	lockdep_copy_map(&child->sk_callback_lock.dep_map,
			 &sk->sk_callback_lock.dep_map);
#endif
}

/*
 * Make a socket for a connection that exists.  As a kernel socket, because
 * accept() must not run what a cgroup or a security module has for socket().
 */
static int make_child(struct sock *sk, struct socket *newsock,
		      struct sdp_link *link)
{
	struct socket *made;
	struct sock *child;
	int ret;

	ret = __sock_create(sock_net(sk), sk->sk_family, SOCK_STREAM,
			    IPPROTO_SDP, &made, 1);
	if (ret)
		return ret;
	child = made->sk;
	adopt(child, sk);
	sdp_carrier_congestion(child, sk);
	lock_sock(child);
	inherit_all(child, sk);
	sdp_sk(child)->layout = link->layout;
	sdp_sk(child)->initiator = link->initiator;
	WRITE_ONCE(sdp_sk(child)->policy, sdp_sk(sk)->policy);
	ret = attach(child, link);
	if (ret) {
		release_sock(child);
		sock_release(made);
		return ret;
	}
	sock_orphan(child);
	sock_reset_flag(child, SOCK_DEAD);
	made->sk = NULL;
	sock_graft(child, newsock);
	newsock->state = SS_CONNECTED;
	/* the listener's options may have changed since */
	sdp_link_options(link, child);
	release_sock(child);
	sock_release(made);
	return 0;
}

/*
 * Wait for the next connection: 0 and *@link by SDP, or BY_TCP, for which the
 * caller has to unlock the socket
 */
static int next_child(struct sock *sk, struct sdp_listener *l, long *timeo,
		      struct sdp_link **link)
{
	int ret;

	do {
		ret = wait_to_accept(sk, l, timeo);
		if (ret)
			return ret;
		/* alternate, so that neither kind starves the other */
		l->turn = !l->turn;
		if (l->turn && tcp_ready(sk, l))
			return BY_TCP;
		*link = sdp_listener_take(l);
	} while (!*link && !tcp_ready(sk, l));
	return *link ? 0 : BY_TCP;
}

static int accept_by_tcp(struct socket *sock, struct socket *newsock, int flags)
{
	int ret = swp_ops_accept(sdp_tcp_ops(sock->sk), sock, newsock, flags);

	if (ret)
		return ret;
	lock_sock(newsock->sk);
	sdp_family_child(newsock->sk, newsock);
	release_sock(newsock->sk);
	sdp_by_tcp_show_accepted(newsock->sk);
	return 0;
}

static int accept(struct socket *sock, struct socket *newsock, int flags)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link = NULL;
	struct sdp_listener *l;
	long timeo;
	int ret;

	if (is_tcp(sk))
		return accept_by_tcp(sock, newsock, flags);
	lock_sock(sk);
	l = listener_of(sk);
	if (!l) {
		release_sock(sk);
		return -EINVAL;
	}
	kref_get(&l->ref);
	timeo = sock_rcvtimeo(sk, flags & O_NONBLOCK);
	while ((ret = next_child(sk, l, &timeo, &link)) == BY_TCP) {
		release_sock(sk);
		ret = accept_by_tcp(sock, newsock, flags | O_NONBLOCK);
		lock_sock(sk);
		/* -EAGAIN: another thread was faster */
		if (ret != -EAGAIN)
			break;
	}
	release_sock(sk);
	sdp_listener_put(l);
	if (ret || !link)
		return ret;
	ret = make_child(sk, newsock, link);
	if (ret) {
		sdp_link_orphan(link, true);
		sdp_link_put(link);
	}
	return ret;
}

SWP_OP_ACCEPT(sdp_accept, accept)

/* Run the cgroup's BPF programs, which may change the address; its length */
static int shown(struct sock *sk, struct sockaddr *addr, bool peer)
{
	lock_sock(sk);
	swp_bpf_getname(sk, addr, peer);
	release_sock(sk);
	return sdp_end_len((union sdp_end *)addr);
}

/* An address of a link, as the program knows it; returns its length. */
static int name_of(struct sock *sk, struct sdp_link *link,
		   struct sockaddr *addr, bool peer)
{
	union sdp_end *name = (union sdp_end *)addr;

	memcpy(name, peer ? &link->remote : &link->local, sizeof(*name));
	/* hide the port that the port mapper has given */
	if (peer && link->attempt && name->any.sa_family == AF_INET6) {
		name->in6.sin6_port = link->attempt->to.in6.sin6_port;
		name->in6.sin6_addr = link->attempt->to.in6.sin6_addr;
	} else if (peer && link->attempt) {
		name->in = link->attempt->to.in;
	}
	return shown(sk, addr, peer);
}

static int sdp_getname(struct socket *sock, struct sockaddr *addr, int peer)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link;
	struct sdp_sock *ss;
	bool asks, open;
	int ret;

	if (is_tcp(sk))
		return sdp_tcp_ops(sk)->getname(sock, addr, peer);
	lock_sock(sk);
	link = link_of(sk);
	ss = sdp_sk(sk);
	asks = !link && !peer && ss && ss->attempt &&
	       sdp_attempt_name(ss->attempt, (union sdp_end *)addr);
	release_sock(sk);
	if (asks)
		return shown(sk, addr, false);
	if (!link)
		return sdp_tcp_ops(sk)->getname(sock, addr, peer);
	/* whoever has seen the link's error finds it without a peer, as with TCP */
	spin_lock_bh(&link->lock);
	open = link->open;
	spin_unlock_bh(&link->lock);
	if (peer == 1 && !open)
		ret = -ENOTCONN;
	else if (!(peer ? &link->remote : &link->local)->ss_family ||
		 (peer && !open &&
		  READ_ONCE(link->phase) < SDP_LINK_START &&
		  link->ops == &sdp_carrier_tcp))
		/* not known yet, or it never will be */
		ret = sdp_tcp_ops(sk)->getname(sock, addr, 0);
	else
		ret = name_of(sk, link, addr, peer);
	sdp_link_put(link);
	return ret;
}

/* What poll() reports, after sock_poll_wait() */
static __poll_t ready(struct file *file, struct socket *sock)
{
	struct sock *sk = sock->sk;
	const struct proto_ops *tcp = sdp_tcp_ops(sk);
	struct sdp_listener *l = NULL;
	struct sdp_link *link = NULL;
	struct sdp_sock *ss;
	__poll_t mask = 0;
	bool by_tcp;

	rcu_read_lock();
	ss = sdp_sk(sk);
	if (ss && is_undecided(ss)) {
		rcu_read_unlock();
		return 0;
	}
	if (ss) {
		l = rcu_dereference(ss->listener);
		link = rcu_dereference(ss->link);
	}
	if (l && sdp_listener_ready(l))
		mask = EPOLLIN | EPOLLRDNORM;
	else if (link)
		mask = sdp_stream_poll(sock, link);
	by_tcp = !ss || READ_ONCE(ss->tcp) || (!l && !link);
	rcu_read_unlock();
	/* sock_poll_wait() covers both */
	if (by_tcp)
		mask |= tcp->poll(file, sock, NULL);
	return mask;
}

/* sdp_link_receive(), which sleeps, so not under RCU */
static bool receive_now(struct sock *sk, u32 octets)
{
	struct sdp_link *link = NULL;
	struct sdp_sock *ss;
	bool received;

	rcu_read_lock();
	ss = sdp_sk(sk);
	if (ss)
		link = rcu_dereference(ss->link);
	if (link && !(READ_ONCE(link->arrived) &&
		      kref_get_unless_zero(&link->ref)))
		link = NULL;
	rcu_read_unlock();
	if (!link)
		return false;
	received = sdp_link_receive(link, octets);
	sdp_link_put(link);
	return received;
}

static __poll_t sdp_poll(struct file *file, struct socket *sock,
			 poll_table *wait)
{
	__poll_t wanted = EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM;
	struct sock *sk = sock->sk;
	__poll_t mask;

	if (is_tcp(sk))
		return sdp_tcp_ops(sk)->poll(file, sock, wait);
	sock_poll_wait(file, sock, wait);
	mask = ready(file, sock);
	wanted &= poll_requested_events(wait) & ~mask;
	/* not more than a message: the caller may watch many sockets */
	if (wanted && receive_now(sk, SDP_RX_SIZE))
		mask = ready(file, sock);
	return mask;
}

static int sdp_shutdown(struct socket *sock, int how)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link;
	int mask = how + 1;
	int ret;

	if (is_tcp(sk))
		return sdp_tcp_ops(sk)->shutdown(sock, how);
	lock_sock(sk);
	link = link_of(sk);
	ret = -EINVAL;
	if (!settled(sk) && mask > 0 && !(mask & ~SHUTDOWN_MASK)) {
		ret = disconnect(sock, O_NONBLOCK);
		goto out;
	}
	if (!link) {
		release_sock(sk);
		ret = sdp_tcp_ops(sk)->shutdown(sock, how);
		stop_listening(sk, false);
		return ret;
	}
	if ((mask & ~SHUTDOWN_MASK) || mask <= 0)
		goto out;
	if (sock->state == SS_CONNECTING)
		sock->state = SS_CONNECTED;
	ret = READ_ONCE(link->phase) == SDP_LINK_DOWN ? -ENOTCONN : 0;
	spin_lock_bh(&link->lock);
	shut(sk, link, mask);
	if (mask & SEND_SHUTDOWN) {
		link->more = false;
		if (link->open)
			sdp_link_act(link, sdp_conn_input(&link->conn,
							  SDP_IN_CLOSE));
		sdp_link_pump(link);
	}
	spin_unlock_bh(&link->lock);
	sk->sk_state_change(sk);
out:
	release_sock(sk);
	if (link)
		sdp_link_put(link);
	return ret;
}

static int sdp_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg)
{
	struct sock *sk = sock->sk;
	int ret = -ENOIOCTLCMD;
	int value;

	if (!is_tcp(sk))
		ret = link_ioctl(sk, cmd, &value);
	if (ret == -ENOIOCTLCMD)
		return sdp_tcp_ops(sk)->ioctl(sock, cmd, arg);
	return ret ?: put_user(value, (int __user *)arg);
}

/*
 * Before TCP replaces its tables, for TLS for instance, or builds others from
 * them: give it the socket for good.
 */
static int leave(struct sock *sk)
{
	int ret = 0;

	lock_sock(sk);
	if (!is_tcp(sk)) {
		ret = -EOPNOTSUPP;
	} else if (sk->sk_state != TCP_ESTABLISHED) {
		/* as TCP, which only does this to connected sockets */
		ret = -ENOTCONN;
	} else {
		forget(sk);
		sdp_family_leave(sk);
	}
	release_sock(sk);
	return ret;
}

/* Whether the program wants TCP's segments to be authenticated */
static bool is_key(int name)
{
	return name == TCP_MD5SIG || name == TCP_MD5SIG_EXT ||
	       name == TCP_AO_ADD_KEY || name == TCP_AO_DEL_KEY ||
	       name == TCP_AO_INFO;
}

/*
 * SDP over an unprotected connection is not what such a program wants: a socket
 * that may use TCP does so, and others refuse.
 */
static int choose_tcp(struct sock *sk)
{
	struct sdp_sock *ss;
	int ret = 0;

	lock_sock(sk);
	ss = sdp_sk(sk);
	if (ss && ss->policy == SDP_INFO_POLICY_AUTO && sdp_option_is_idle(sk))
		WRITE_ONCE(ss->policy, SDP_INFO_POLICY_TCP);
	else if (ss && ss->policy != SDP_INFO_POLICY_TCP && !is_tcp(sk))
		ret = -EOPNOTSUPP;
	release_sock(sk);
	return ret;
}

/* Options that treat the socket as TCP's own: 0 if TCP may set it */
static int check_option(struct sock *sk, int level, int name)
{
	if ((level == SOL_TCP && name == TCP_ULP) ||
	    (level == SOL_IPV6 && name == IPV6_ADDRFORM))
		return leave(sk);
	if (level == SOL_TCP && is_key(name))
		return choose_tcp(sk);
	if (level == SOL_TCP &&
	    (name == TCP_REPAIR || name == TCP_FASTOPEN_CONNECT) &&
	    (!is_tcp(sk) || inet_sk_state_load(sk) == TCP_CLOSE))
		return -EOPNOTSUPP;
	return 0;
}

static int sdp_setsockopt(struct socket *sock, int level, int name,
			  sockptr_t val, unsigned int len)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link;
	int ret;

	if (level == SOL_SDP) {
		lock_sock(sk);
		link = link_of(sk);
		ret = sdp_option_set(sk, link, name, val, len);
		release_sock(sk);
		if (link)
			sdp_link_put(link);
		return ret;
	}
	ret = check_option(sk, level, name);
	if (ret)
		return ret;
	ret = sdp_tcp_ops(sock->sk)->setsockopt(sock, level, name, val, len);
	if (ret)
		return ret;
	lock_sock(sk);
	link = link_of(sk);
	if (link) {
		sdp_link_options(link, sk);
		if (level == SOL_TCP)
			sdp_stream_options(sk, link);
		sdp_link_put(link);
	}
	release_sock(sk);
	return 0;
}

static int sdp_getsockopt(struct socket *sock, int level, int name,
			  char __user *val, int __user *len)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link;
	int ret;

	if (level != SOL_SDP && level != SOL_TCP)
		return sdp_tcp_ops(sk)->getsockopt(sock, level, name, val, len);
	lock_sock(sk);
	link = link_of(sk);
	if (level == SOL_TCP && name == TCP_ZEROCOPY_RECEIVE && link)
		/* TCP would report an empty queue for ever */
		ret = -EOPNOTSUPP;
	else if (level == SOL_SDP)
		ret = sdp_option_get(sk, link, name, val, len);
	else
		ret = link ? sdp_carrier_getsockopt(sk, link, name, val, len) :
			     -ENOPROTOOPT;
	release_sock(sk);
	if (link)
		sdp_link_put(link);
	if (level == SOL_TCP && ret == -ENOPROTOOPT)
		return sdp_tcp_ops(sk)->getsockopt(sock, level, name, val, len);
	return ret;
}

/* Wait for the choice: *@link with a reference, or NULL for TCP. */
static int link_to_use(struct sock *sk, long timeo, struct sdp_link **link)
{
	struct sdp_sock *ss = sdp_sk(sk);
	int ret = 0;

	/* if there is a link, its calls wait until it is up */
	if (ss && is_undecided(ss))
		ret = wait_settled(sk, timeo);
	*link = ret ? NULL : link_of(sk);
	return ret;
}

/* The end of a file that is sent: send what MSG_MORE has held back. */
static void sdp_splice_eof(struct socket *sock)
{
	struct sock *sk = sock->sk;
	struct sdp_link *link;

	lock_sock(sk);
	link = link_of(sk);
	if (link) {
		sdp_stream_options(sk, link);
		sdp_link_put(link);
	}
	release_sock(sk);
	if (!link && sdp_tcp_ops(sk)->splice_eof)
		sdp_tcp_ops(sk)->splice_eof(sock);
}

/* The octets are copied: the pages are those of receive buffers. */
static ssize_t sdp_splice_read(struct socket *sock, loff_t *pos,
			       struct pipe_inode_info *pipe, size_t len,
			       unsigned int flags)
{
	if (is_tcp(sock->sk))
		return sdp_tcp_ops(sock->sk)->splice_read(sock, pos, pipe, len,
							  flags);
	return swp_copy_splice_read(sock->file, pos, pipe, len, flags);
}

static int sdp_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	const struct proto_ops *tcp = sdp_tcp_ops(sock->sk);
	struct sock *sk = sock->sk;
	struct sdp_link *link;
	int ret;

	if (is_tcp(sk))
		return tcp->sendmsg(sock, msg, len);
	lock_sock(sk);
	ret = link_to_use(sk, sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT),
			  &link);
	if (link && sdp_carrier_stale(link->carrier, sk))
		sdp_link_options(link, sk);
	if (link)
		ret = sdp_stream_send(sk, link, msg, len);
	release_sock(sk);
	if (link)
		sdp_link_put(link);
	if (link || ret)
		return ret;
	/* TCP would connect */
	if ((msg->msg_flags & MSG_FASTOPEN) && !is_tcp(sk))
		return -EOPNOTSUPP;
	return tcp->sendmsg(sock, msg, len);
}

static int sdp_recvmsg(struct socket *sock, struct msghdr *msg, size_t len,
		       int flags)
{
	const struct proto_ops *tcp = sdp_tcp_ops(sock->sk);
	struct sock *sk = sock->sk;
	struct sdp_link *link;
	int ret;

	if (is_tcp(sk))
		return tcp->recvmsg(sock, msg, len, flags);
	lock_sock(sk);
	ret = link_to_use(sk, sock_rcvtimeo(sk, flags & MSG_DONTWAIT), &link);
	if (link)
		ret = sdp_stream_recv(sk, link, msg, len, flags);
	release_sock(sk);
	if (link)
		sdp_link_put(link);
	if (link || ret)
		return ret;
	return tcp->recvmsg(sock, msg, len, flags);
}

/* Tables ------------------------------------------------------------------- */

const struct proto sdp_sock_prot = {
	.init = init,
	.destroy = destroy,
	.close = close,
	.release_cb = release_cb,
	.keepalive = keepalive,
	.ioctl = SWP_PROT_IOCTL(prot_ioctl),
#ifdef CONFIG_BPF_SYSCALL
	.psock_update_sk_prot = refuse_psock,
#endif
};

const struct proto_ops sdp_sock_ops = {
	.release = sdp_release,
	.bind = sdp_bind,
	.connect = sdp_connect,
	.accept = sdp_accept,
	.getname = sdp_getname,
	.poll = sdp_poll,
	.ioctl = sdp_ioctl,
	.listen = sdp_listen,
	.shutdown = sdp_shutdown,
	.setsockopt = sdp_setsockopt,
	.getsockopt = sdp_getsockopt,
	.sendmsg = sdp_sendmsg,
	.recvmsg = sdp_recvmsg,
	.splice_eof = sdp_splice_eof,
	.splice_read = sdp_splice_read,
};
