// SPDX-License-Identifier: GPL-2.0
/*
 * A peer hands its socket on to another process or host of its, and we follow:
 * draft-pinkerton-iwarp-sdp-01 section 13.1.1, as the Remote Peer.
 *
 *   SuspComm taken in -> SuspCommAck sent (proto/sdp/conn.c)
 *     -> it has left:       BOUND    the queue pair is gone, and TCP closes behind all
 *                                    that was said; another TCP has the old address
 *                                    and port
 *     -> connect():         SETUP    to the port of SuspComm; Hello, MPA, HelloAck as
 *                                    always, with link->phase from its beginning
 *     -> HelloAck taken in: NONE     the stream goes on where it was
 *
 * The socket keeps its link, which has the octets of both directions that are not
 * where they belong.  While link->open the program sends into the queue, reads,
 * shuts down and closes as ever.  It must not take longer than a set-up may, and
 * what goes wrong is an end of the connection: ECONNRESET.
 */
#include <net/sock.h>
#include <net/tcp.h>

#include "carrier.h"
#include "compat.h"
#include "ends.h"
#include "link.h"
#include "sock.h"

/* Between two attempts to connect; the TCP before may have to come to its end */
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

/* The program may look at the one before; with a reference */
static struct sock *latest(struct sdp_link *link)
{
	struct sock *sk;

	spin_lock_bh(&link->lock);
	sk = link->next_carrier ?: link->carrier;
	sock_hold(sk);
	spin_unlock_bh(&link->lock);
	return sk;
}

static void set_next(struct sdp_link *link, struct sock *sk)
{
	struct sock *old;

	sock_hold(sk);
	spin_lock_bh(&link->lock);
	old = link->next_carrier;
	/* nobody has accepted it: then nobody looks */
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

/* TCP that has our end of the one before; the peer looks for its port. */
static int bind_tcp(struct sdp_link *link)
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
	sk->sk_bound_dev_if = from->sk_bound_dev_if;
	sdp_carrier_prepare(sk, from);
	/* a listener may have the port as well */
	sk->sk_reuse = SK_FORCE_REUSE;
	if (local.any.sa_family == AF_INET6)
		local.in6.sin6_scope_id = sk->sk_bound_dev_if;
	ret = kernel_bind(sock, swp_sockaddr_arg(&local), sdp_end_len(&local));
	if (ret) {
		sock_release(sock);
		goto out;
	}
	link->tcp = sock;
	set_next(link, sk);
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
	ret = kernel_connect(link->tcp, swp_sockaddr_arg(&remote),
			     sdp_end_len(&remote), O_NONBLOCK);
	if (ret == -EADDRNOTAVAIL) {
		/* to the same port, where TCP is not done yet */
		sdp_link_later(link, RETRY_TIME);
		return;
	}
	if (ret && ret != -EINPROGRESS) {
		sdp_link_abort(link, ECONNRESET);
		return;
	}
	spin_lock_bh(&link->lock);
	link->move = SDP_MOVE_SETUP;
	spin_unlock_bh(&link->lock);
	sdp_link_event(link, SDP_EV_TCP);
}

/* The socket takes over what is new as soon as that is possible. */
static void tell_socket(struct sdp_link *link)
{
	struct sock *sk;

	spin_lock_bh(&link->lock);
	sk = link->sk;
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&link->lock);
	if (!sk)
		return;
	local_bh_disable();
	sdp_sock_sent(sk);
	local_bh_enable();
	sock_put(sk);
}

/* Has SuspCommAck left, and nothing been done about it? */
static bool begin(struct sdp_link *link)
{
	bool begun;

	spin_lock_bh(&link->lock);
	begun = link->phase == SDP_LINK_UP && link->conn.suspended;
	if (begun) {
		link->phase = SDP_LINK_TCP;
		link->move = SDP_MOVE_BOUND;
		link->connector = true;
		sdp_link_stated(link);
	}
	spin_unlock_bh(&link->lock);
	return begun;
}

static void leave(struct sdp_link *link)
{
	sdp_link_limit_setup(link);
	sdp_link_quiesce(link);
	sdp_link_leave(link);
	/* nothing of it comes any more */
	clear_bit(SDP_EV_TCP, &link->events);
	clear_bit(SDP_EV_REQUEST, &link->events);
	clear_bit(SDP_EV_DONE, &link->events);
	clear_bit(SDP_EV_CLOSED, &link->events);
	sdp_link_keep(link);
	WRITE_ONCE(link->lost, 0);
}

void sdp_move_event(struct sdp_link *link)
{
	if (begin(link)) {
		leave(link);
		if (bind_tcp(link)) {
			sdp_link_abort(link, ECONNRESET);
			return;
		}
		sdp_link_hook(link);
		tell_socket(link);
	}
	if (link->tcp && READ_ONCE(link->move) == SDP_MOVE_BOUND)
		connect_tcp(link);
}
