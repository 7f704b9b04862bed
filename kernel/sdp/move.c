// SPDX-License-Identifier: GPL-2.0
/*
 * A peer moves its socket to another process or host, and we follow:
 * draft-pinkerton-iwarp-sdp-01 section 13.1.1, as the Remote Peer.
 *
 *   SuspComm received -> SuspCommAck sent (proto/sdp/conn.c)
 *     -> sent:       LEAVES the queue pair is destroyed, TCP closes after all
 *                           that was sent
 *     -> destroyed:  BOUND  a new TCP socket is bound to the old address and
 *                           port
 *     -> connect():  SETUP  to the port of SuspComm; Hello, MPA, HelloAck as
 *                           always, link->phase starts from TCP
 *     -> HelloAck:   NONE   the stream goes on where it was
 *
 * The socket keeps its link, which keeps the octets of both directions that are
 * not delivered yet.  While link->open the program sends into the queue, reads,
 * shuts down and closes as always.  A move is limited as a set-up is; any error
 * ends the connection with ECONNRESET.
 */
#include <net/sock.h>
#include <net/tcp.h>

#include "carrier.h"
#include "compat.h"
#include "ends.h"
#include "link.h"
#include "own.h"
#include "sock.h"

/* Interval of attempts to connect: the old connection may have to end first */
#define RETRY_TIME	(HZ / 50)

void sdp_link_use_next(struct sdp_link *link)
{
	struct sock *old;

	spin_lock_bh(&link->lock);
	old = link->carrier;
	link->carrier = link->next_carrier;
	link->next_carrier = NULL;
	spin_unlock_bh(&link->lock);
	sock_put(old);
}

/*
 * The newest carrier, with a reference, or NULL.  The program may still use the old
 * one.
 */
static struct sock *latest(struct sdp_link *link)
{
	struct sock *sk;

	spin_lock_bh(&link->lock);
	sk = link->next_carrier ?: link->carrier;
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&link->lock);
	return sk;
}

/*
 * A carrier takes options once connect() was called, and connect_tcp() copies them after
 * that: so either we find it connecting, or it finds what the program has set.
 */
void sdp_link_options(struct sdp_link *link, const struct sock *sk)
{
	struct sock *next = latest(link);

	sdp_carrier_options(link->carrier, sk);
	if (next != link->carrier)
		sdp_carrier_options(next, sk);
	if (next)
		sock_put(next);
}

void sdp_link_keepalive(struct sdp_link *link, bool on)
{
	struct sock *next = latest(link);

	sdp_carrier_keepalive(link->carrier, on);
	if (next != link->carrier)
		sdp_carrier_keepalive(next, on);
	if (next)
		sock_put(next);
}

static void set_next(struct sdp_link *link, struct sock *sk)
{
	struct sock *old;

	sock_hold(sk);
	spin_lock_bh(&link->lock);
	old = link->next_carrier;
	/* no program uses link->carrier, so replace it at once */
	if (!link->sk)
		old = link->carrier;
	if (link->sk)
		link->next_carrier = sk;
	else
		link->carrier = sk;
	spin_unlock_bh(&link->lock);
	if (old)
		sock_put(old);
}

/* The program's socket, with a reference, or NULL */
static struct sock *socket_of(struct sdp_link *link)
{
	struct sock *sk;

	spin_lock_bh(&link->lock);
	sk = link->sk;
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&link->lock);
	return sk;
}

/*
 * The program sets options at its socket, and those of the carrier that is left are
 * as they were then.
 */
static void follow_options(struct sdp_link *link, struct sock *to,
			   const struct sock *carrier)
{
	struct sock *sk = socket_of(link);

	sdp_carrier_follow(to, sk ?: carrier);
	if (sk)
		sock_put(sk);
}

/* Create a TCP socket bound to our old end: the peer expects its port. */
static int bind_tcp(struct sdp_link *link, char *congestion)
{
	union sdp_end local = link->seen.local;
	struct sock *from = latest(link);
	struct socket *sock;
	struct sock *sk;
	int ret;

	ret = sock_create_kern(link->seen.net, local.any.sa_family, SOCK_STREAM,
			       IPPROTO_TCP, &sock);
	if (ret)
		goto out;
	sk = sock->sk;
	swp_sk_hold_net(sk);
	sdp_own_cgroup(sk, from);
	sk->sk_bound_dev_if = from->sk_bound_dev_if;
	sdp_carrier_choose(sk, congestion);
	/* a listener may have the same port */
	sk->sk_reuse = SK_FORCE_REUSE;
	if (local.any.sa_family == AF_INET6)
		local.in6.sin6_scope_id = sk->sk_bound_dev_if;
	ret = sdp_own_bind(sock, &local);
	if (ret) {
		sock_release(sock);
		goto out;
	}
	link->tcp = sock;
	set_next(link, sk);
	follow_options(link, sk, from);
out:
	sock_put(from);
	return ret;
}

static void connect_tcp(struct sdp_link *link)
{
	union sdp_end remote = link->seen.remote;
	int ret;

	sdp_end_set_port(&remote, link->conn.suspend_port);
	if (remote.any.sa_family == AF_INET6)
		remote.in6.sin6_scope_id = link->tcp->sk->sk_bound_dev_if;
	ret = sdp_own_connect(link->tcp, &remote, sdp_end_len(&remote));
	if (ret == -EADDRNOTAVAIL) {
		/* the old connection still has the same pair of ports */
		sdp_link_later(link, RETRY_TIME);
		return;
	}
	if (ret) {
		sdp_link_abort(link, ECONNRESET);
		return;
	}
	/* before connect() it took no options, see sdp_link_options() */
	follow_options(link, link->tcp->sk, link->tcp->sk);
	spin_lock_bh(&link->lock);
	link->move = SDP_MOVE_SETUP;
	spin_unlock_bh(&link->lock);
	sdp_link_event(link, SDP_EV_TCP);
}

/* Have settle() take over the new carrier and charges as soon as it can. */
static void tell_socket(struct sdp_link *link)
{
	struct sock *sk = socket_of(link);

	if (!sk)
		return;
	local_bh_disable();
	sdp_sock_sent(sk);
	local_bh_enable();
	sock_put(sk);
}

/* Begin the move once SuspCommAck was sent.  False: it has begun, or cannot. */
static bool begin(struct sdp_link *link)
{
	bool begun;

	spin_lock_bh(&link->lock);
	/* else a peer that moves again and again would keep an orphan */
	begun = link->phase == SDP_LINK_UP && link->conn.suspended &&
		!sdp_link_ends_orphan(link);
	if (begun) {
		link->phase = SDP_LINK_TCP;
		link->move = SDP_MOVE_LEAVES;
		link->connector = true;
		sdp_link_stated(link);
		/* in place of an orphan's timer */
		sdp_link_limit_setup_locked(link);
	}
	spin_unlock_bh(&link->lock);
	return begun;
}

static void leave(struct sdp_link *link)
{
	sdp_link_quiesce(link);
	sdp_link_leave(link);
	/* the old carrier raises no more events */
	clear_bit(SDP_EV_TCP, &link->events);
	clear_bit(SDP_EV_REQUEST, &link->events);
	clear_bit(SDP_EV_DONE, &link->events);
	clear_bit(SDP_EV_CLOSED, &link->events);
	WRITE_ONCE(link->stream_over, false);
	sdp_link_keep(link);
	WRITE_ONCE(link->lost, 0);
}

static void congestion_of(struct sdp_link *link, char *name)
{
	struct sock *sk = latest(link);

	sdp_carrier_choice(sk, name);
	sock_put(sk);
}

/*
 * A peer that acknowledges nothing can make the end of a queue pair take seconds,
 * and the workqueue of the link's work item serves the set-ups of all.  So this is
 * another one; link->leaving keeps the link's own away from what is changed here.
 */
void sdp_move_work(struct work_struct *work)
{
	struct sdp_link *link = container_of(work, struct sdp_link, move_work);
	char congestion[TCP_CA_NAME_MAX];

	congestion_of(link, congestion);
	leave(link);
	/* it has ended while it waited for this */
	if (READ_ONCE(link->phase) == SDP_LINK_DOWN)
		goto out;
	if (bind_tcp(link, congestion)) {
		sdp_link_abort(link, ECONNRESET);
	} else {
		spin_lock_bh(&link->lock);
		link->move = SDP_MOVE_BOUND;
		spin_unlock_bh(&link->lock);
		sdp_link_hook(link);
		tell_socket(link);
	}
out:
	/* pairs with is_leaving() */
	smp_store_release(&link->leaving, false);
	sdp_link_event(link, SDP_EV_MOVE);
	sdp_link_put(link);
}

void sdp_move_event(struct sdp_link *link)
{
	if (begin(link)) {
		WRITE_ONCE(link->leaving, true);
		sdp_link_get(link);
		queue_work(sdp_move_wq, &link->move_work);
	} else if (link->tcp && READ_ONCE(link->move) == SDP_MOVE_BOUND) {
		connect_tcp(link);
	}
}
