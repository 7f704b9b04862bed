// SPDX-License-Identifier: GPL-2.0
/* The TCP connection underneath a link, see carrier.h. */
#include <linux/inet_diag.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "carrier.h"
#include "link.h"

/* Options ------------------------------------------------------------------------- */

/* The ECN bits are TCP's own. */
static u8 dscp(u8 tos, u8 ecn)
{
	return (tos & ~INET_ECN_MASK) | (ecn & INET_ECN_MASK);
}

static bool same_packets(const struct sock *a, const struct sock *b)
{
	if (READ_ONCE(a->sk_priority) != READ_ONCE(b->sk_priority) ||
	    READ_ONCE(a->sk_mark) != READ_ONCE(b->sk_mark) ||
	    (READ_ONCE(inet_sk(a)->tos) ^ READ_ONCE(inet_sk(b)->tos)) &
	    ~INET_ECN_MASK)
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	if (a->sk_family == AF_INET6 &&
	    (READ_ONCE(inet6_sk(a)->tclass) ^ READ_ONCE(inet6_sk(b)->tclass)) &
	    ~INET_ECN_MASK)
		return false;
#endif
	return true;
}

bool sdp_carrier_stale(const struct sock *to, const struct sock *from)
{
	return to && (!same_packets(to, from) ||
		      sock_flag(to, SOCK_KEEPOPEN) !=
		      sock_flag(from, SOCK_KEEPOPEN));
}

static void copy_packets(struct sock *to, const struct sock *from)
{
	WRITE_ONCE(inet_sk(to)->uc_ttl, READ_ONCE(inet_sk(from)->uc_ttl));
#if IS_ENABLED(CONFIG_IPV6)
	if (to->sk_family == AF_INET6)
		/* a bit field in older kernels */
		inet6_sk(to)->hop_limit = data_race(inet6_sk(from)->hop_limit);
#endif
	if (same_packets(to, from))
		return;
	WRITE_ONCE(to->sk_priority, READ_ONCE(from->sk_priority));
	WRITE_ONCE(to->sk_mark, READ_ONCE(from->sk_mark));
	WRITE_ONCE(inet_sk(to)->tos,
		   dscp(READ_ONCE(inet_sk(from)->tos), inet_sk(to)->tos));
#if IS_ENABLED(CONFIG_IPV6)
	if (to->sk_family == AF_INET6)
		inet6_sk(to)->tclass = dscp(READ_ONCE(inet6_sk(from)->tclass),
					    inet6_sk(to)->tclass);
#endif
	/* these may change the route */
	sk_dst_reset(to);
}

/* As setsockopt() does it: the timer starts when the flag changes. */
static void set_keepalive(struct sock *to, bool on)
{
	sock_owned_by_me(to);
	to->sk_prot->keepalive(to, on);
	sock_valbool_flag(to, SOCK_KEEPOPEN, on);
}

static void copy_times(struct sock *to, const struct sock *from)
{
	struct tcp_sock *tp = tcp_sk(to);
	const struct tcp_sock *by = tcp_sk(from);
	int time = READ_ONCE(by->keepalive_time);
	bool sooner = tp->keepalive_time != time;
	bool on = sock_flag(from, SOCK_KEEPOPEN);

	WRITE_ONCE(tp->keepalive_time, time);
	WRITE_ONCE(tp->keepalive_intvl, READ_ONCE(by->keepalive_intvl));
	WRITE_ONCE(tp->keepalive_probes, READ_ONCE(by->keepalive_probes));
	WRITE_ONCE(inet_csk(to)->icsk_user_timeout,
		   READ_ONCE(inet_csk(from)->icsk_user_timeout));
	if (sooner && on && sock_flag(to, SOCK_KEEPOPEN))
		set_keepalive(to, false);
	if (on != sock_flag(to, SOCK_KEEPOPEN))
		set_keepalive(to, on);
}

void sdp_carrier_congestion(struct sock *to, const struct sock *from)
{
	const struct tcp_congestion_ops *ca;
	char name[TCP_CA_NAME_MAX];
	bool other;

	/* another thread may change that of a listener meanwhile */
	rcu_read_lock();
	ca = READ_ONCE(inet_csk(from)->icsk_ca_ops);
	other = inet_csk(from)->icsk_ca_setsockopt &&
		ca != inet_csk(to)->icsk_ca_ops;
	strscpy(name, ca->name, sizeof(name));
	rcu_read_unlock();
	if (!other)
		return;
	sdp_carrier_choose(to, name);
}

void sdp_carrier_choice(struct sock *from, char name[TCP_CA_NAME_MAX])
{
	const struct inet_connection_sock *icsk = inet_csk(from);

	name[0] = '\0';
	lock_sock(from);
	/* TCP lets the module go when it destroys the socket, and keeps the pointer */
	if (from->sk_state != TCP_CLOSE && icsk->icsk_ca_setsockopt)
		strscpy(name, icsk->icsk_ca_ops->name, TCP_CA_NAME_MAX);
	release_sock(from);
}

void sdp_carrier_choose(struct sock *to, char name[TCP_CA_NAME_MAX])
{
	/* if the program may not choose it any more, the default will do */
	if (name[0])
		to->sk_prot->setsockopt(to, SOL_TCP, TCP_CONGESTION,
					KERNEL_SOCKPTR(name), strlen(name));
}

void sdp_carrier_prepare(struct sock *to, const struct sock *from)
{
	sdp_carrier_congestion(to, from);
	sdp_carrier_follow(to, from);
}

void sdp_carrier_follow(struct sock *to, const struct sock *from)
{
	lock_sock(to);
	copy_packets(to, from);
	copy_times(to, from);
	inet_csk(to)->icsk_syn_retries =
		READ_ONCE(inet_csk(from)->icsk_syn_retries);
	tcp_sk(to)->rx_opt.user_mss = READ_ONCE(tcp_sk(from)->rx_opt.user_mss);
	release_sock(to);
}

/* Whether it is closed: then only TCP may touch it. */
static bool is_gone(const struct sock *to)
{
	sock_owned_by_me(to);
	return sock_flag(to, SOCK_DEAD) || to->sk_state == TCP_CLOSE;
}

void sdp_carrier_options(struct sock *to, const struct sock *from)
{
	sock_owned_by_me(from);
	if (!to)
		return;
	lock_sock(to);
	if (!is_gone(to)) {
		copy_packets(to, from);
		copy_times(to, from);
	}
	release_sock(to);
}

void sdp_carrier_keepalive(struct sock *to, bool on)
{
	if (!to)
		return;
	lock_sock(to);
	if (!is_gone(to) && on != sock_flag(to, SOCK_KEEPOPEN))
		set_keepalive(to, on);
	release_sock(to);
}

/* State of the connection -------------------------------------------------- */

u32 sdp_carrier_unacked(const struct sock *carrier)
{
	const struct tcp_sock *tp = tcp_sk(carrier);
	int state = carrier ? inet_sk_state_load(carrier) : TCP_CLOSE;

	if (state == TCP_CLOSE || state == TCP_SYN_SENT || state == TCP_SYN_RECV)
		return 0;
	return READ_ONCE(tp->write_seq) - READ_ONCE(tp->snd_una);
}

u32 sdp_carrier_rtt(const struct sock *carrier)
{
	/* TCP may be about to change it, to one that is as good */
	u32 rtt = carrier ? data_race(tcp_min_rtt(tcp_sk(carrier))) : ~0U;

	return rtt == ~0U ? 0 : rtt;
}

/*
 * Small messages are copied by TCP, so tx_done counts them before their ACK:
 * that is why the octets TCP has unacknowledged are considered as well.
 */
static u64 outq(const struct sock *sk, const struct sdp_link *link)
{
	u64 left, busy;

	lockdep_assert_held(&link->lock);
	left = max(sk->sk_wmem_queued - atomic_read(&link->tx_done), 0);
	busy = left - min(left, link->queue_octets);
	busy = max_t(u64, busy, sdp_carrier_unacked(link->carrier));
	return link->queue_octets + min(busy, link->conn.source.sent);
}

u64 sdp_carrier_outq(const struct sock *sk, struct sdp_link *link)
{
	u64 octets;

	spin_lock_bh(&link->lock);
	octets = outq(sk, link);
	spin_unlock_bh(&link->lock);
	return octets;
}

/* The state that a TCP connection would have at this point */
static u8 state_of(struct sdp_link *link)
{
	static const u8 states[SDP_STATES] = {
		[SDP_OPEN] = TCP_ESTABLISHED,
		[SDP_CLOSING] = TCP_FIN_WAIT1,
		[SDP_HALF] = TCP_FIN_WAIT2,
		[SDP_PEER_HALF] = TCP_CLOSE_WAIT,
		[SDP_PEER_CLOSING] = TCP_LAST_ACK,
		[SDP_LAST] = TCP_LAST_ACK,
		/* TIME-WAIT is no concern of the program */
		[SDP_WAIT] = TCP_CLOSE,
		[SDP_FINISH] = TCP_CLOSE,
		[SDP_ABORTING] = TCP_CLOSE,
		[SDP_CLOSED] = TCP_CLOSE,
	};

	lockdep_assert_held(&link->lock);
	if (link->phase == SDP_LINK_DOWN || link->told)
		return TCP_CLOSE;
	if (!link->open)
		return TCP_SYN_SENT;
	/* a FIN in place of DisConn would not be acknowledged yet */
	if (link->conn.state == SDP_HALF &&
	    (link->tx_busy || sdp_carrier_unacked(link->carrier)))
		return TCP_FIN_WAIT1;
	return states[link->conn.state];
}

/* Fill in TCP_INFO: octets are the program's, all else is the carrier's. */
static void describe(struct sock *sk, struct sdp_link *link,
		     struct tcp_info *info)
{
	sock_owned_by_me(sk);
	if (link->carrier)
		tcp_get_info(link->carrier, info);
	else
		memset(info, 0, sizeof(*info));
	spin_lock_bh(&link->lock);
	info->tcpi_state = state_of(link);
	info->tcpi_bytes_sent = link->conn.source.sent;
	info->tcpi_bytes_acked = link->conn.source.sent + link->queue_octets -
				 outq(sk, link);
	info->tcpi_bytes_received = link->rx_total;
	info->tcpi_notsent_bytes = link->queue_octets;
	spin_unlock_bh(&link->lock);
}

static int put_info(struct sock *sk, struct sdp_link *link, char __user *val,
		    int __user *len)
{
	struct tcp_info info;
	int size;

	if (get_user(size, len))
		return -EFAULT;
	if (size < 0)
		return -EINVAL;
	describe(sk, link, &info);
	size = min_t(unsigned int, size, sizeof(info));
	if (put_user(size, len) || copy_to_user(val, &info, size))
		return -EFAULT;
	return 0;
}

/*
 * Not TCP's getsockopt(), which does not lock the socket: a carrier can end at
 * any time, and then its congestion control may be unloaded.  Nothing is copied
 * to the program while the carrier is locked, because that may take long.
 */
static int put_cc_info(struct sock *carrier, char __user *val, int __user *len)
{
	const struct tcp_congestion_ops *ca;
	union tcp_cc_info info;
	size_t found = 0;
	int size, attr;
	bool gone;

	if (get_user(size, len))
		return -EFAULT;
	if (size < 0)
		return -EINVAL;
	lock_sock(carrier);
	gone = is_gone(carrier);
	ca = gone ? NULL : inet_csk(carrier)->icsk_ca_ops;
	if (ca && ca->get_info)
		found = ca->get_info(carrier, ~0U, &attr, &info);
	release_sock(carrier);
	if (gone)
		return -ENOPROTOOPT;
	size = min_t(unsigned int, size, found);
	if (put_user(size, len) || copy_to_user(val, &info, size))
		return -EFAULT;
	return 0;
}

int sdp_carrier_getsockopt(struct sock *sk, struct sdp_link *link, int name,
			   char __user *val, int __user *len)
{
	struct sock *carrier = link->carrier;

	switch (name) {
	case TCP_INFO:
		return put_info(sk, link, val, len);
	case TCP_CC_INFO:
		return carrier ? put_cc_info(carrier, val, len) : -ENOPROTOOPT;
	case TCP_MAXSEG:
		return carrier ? carrier->sk_prot->getsockopt(carrier, SOL_TCP,
							      name, val, len) :
				 -ENOPROTOOPT;
	}
	return -ENOPROTOOPT;
}
