// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/net/softwarp_sdp: a line for each connection and listener of a
 * namespace, for sockets that are TCP's, and for all others that are open: while
 * there is a line, the module cannot be unloaded.
 *
 * A read continues after the last line shown, by the entry's index on the list.
 * It holds RCU for a page of lines, and the lock of one link at a time.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "auto.h"
#include "bytcp.h"
#include "cma.h"
#include "link.h"
#include "listen.h"
#include "netns.h"
#include "sock.h"
#include "stats.h"

#define NAME	"softwarp_sdp"

struct position {
	struct seq_net_private net;
	unsigned long id;
};

struct line {
	const union sdp_end *local, *remote;
	const char *state, *mode;
	u32 rx_queue, tx_queue;
	u64 own_credits, peer_credits;
	u32 bufs, size;
	u64 received, sent;
	kuid_t uid;
	unsigned long inode;
	char device[IB_DEVICE_NAME_MAX];
	const char *policy;
	union sdp_end service;		/* or family 0 */
	const char *why;
	int error;
	u16 port;
};

/* Names ------------------------------------------------------------------------- */

static const char *const phases[] = {
	[SDP_LINK_TCP] = "tcp",
	[SDP_LINK_HELLO] = "hello",
	[SDP_LINK_START] = "mpa",
	[SDP_LINK_ACK] = "hello-ack",
	[SDP_LINK_DOWN] = "down",
};

static const char *const states[SDP_STATES] = {
	[SDP_OPEN] = "open",
	[SDP_CLOSING] = "closing",
	[SDP_HALF] = "half",
	[SDP_PEER_HALF] = "peer-half",
	[SDP_PEER_CLOSING] = "peer-closing",
	[SDP_LAST] = "last",
	[SDP_WAIT] = "wait",
	[SDP_FINISH] = "finish",
	[SDP_ABORTING] = "aborting",
	[SDP_CLOSED] = "closed",
};

static const char *const modes[] = {
	[SDP_MODE_BUFFERED] = "buffered",
	[SDP_MODE_COMBINED] = "combined",
	[SDP_MODE_PIPELINED] = "pipelined",
};

static const char *const policies[] = {
	[SDP_INFO_POLICY_SDP] = "sdp",
	[SDP_INFO_POLICY_AUTO] = "auto",
	[SDP_INFO_POLICY_TCP] = "tcp",
};

/* Lines ------------------------------------------------------------------------- */

/* Of a sock that is ours; its struct sdp_sock is freed by RCU. */
static const char *policy_of(const struct sock *sk)
{
	const struct sdp_sock *ss = sdp_sk(sk);

	return ss ? policies[READ_ONCE(ss->policy)] : NULL;
}

static bool has_another_port(const union sdp_end *end, const union sdp_end *sdp)
{
	return sdp_end_port(end) != sdp_end_port(sdp);
}

/*
 * With the policy auto, a connection by SDP has a port at the server's end that
 * its program does not know.  Find the end as the program knows it.
 */
static void describe_service(const struct sdp_link *link, struct line *l)
{
	const union sdp_end *own = (const union sdp_end *)&link->local;

	lockdep_assert_held(&link->lock);
	if (link->attempt) {
		if (has_another_port(&link->attempt->to, &link->seen.remote))
			l->service = link->attempt->to;
	} else if (link->open && has_another_port(own, &link->seen.local)) {
		/* names() has set it, and does not change it any more */
		l->service = *own;
	}
}

/* Of a connection that is or was UP */
static void describe_conn(struct sdp_link *link, struct line *l)
{
	const struct sdp_conn *c = &link->conn;

	lockdep_assert_held(&link->lock);
	if (link->phase == SDP_LINK_UP && !link->move)
		l->state = states[c->state];
	l->mode = modes[c->source.mode];
	l->own_credits = c->credits.posted - c->credits.received;
	l->peer_credits = sdp_credits_left(&c->credits);
	l->size = c->resize.own;
	l->sent = c->source.sent;
	l->why = sdp_fault_name(c->fault);
}

static void describe_link(struct sdp_link *link, struct line *l)
{
	struct sock *sk;
	int queued;

	l->local = &link->seen.local;
	l->remote = &link->seen.remote;
	l->uid = link->seen.uid;
	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_START && link->ops == &sdp_carrier_cm)
		l->state = phases[SDP_LINK_ACK];
	else if (link->phase != SDP_LINK_UP)
		l->state = phases[link->phase];
	if (link->open && link->move)
		l->state = "moving";
	/* the peer's buffer size is set when link->conn is initialised */
	if (link->conn.resize.peer)
		describe_conn(link, l);
	l->rx_queue = link->rx_octets;
	l->bufs = link->rx_count;
	l->received = link->rx_total;
	l->error = link->error;
	describe_service(link, l);
	memcpy(l->device, link->seen.device, sizeof(l->device));
	sk = link->sk;
	if (sk) {
		sock_hold(sk);
		queued = READ_ONCE(sk->sk_wmem_queued) -
			 atomic_read(&link->tx_done);
		l->tx_queue = max(queued, 0);
	}
	spin_unlock_bh(&link->lock);
	if (!sk)
		return;
	l->policy = policy_of(sk);
	l->uid = READ_ONCE(sk->sk_uid);
	l->inode = sock_i_ino(sk);
	sock_put(sk);
}

/* The queues are the links that can be accepted and the backlog, as in ss. */
static void describe_listener(struct sdp_listener *listener, struct line *l,
			      union sdp_end *ends)
{
	struct sock *sk = listener->sk;

	sdp_end_of(&ends[0], sk, false);
	memset(&ends[1], 0, sizeof(ends[1]));
	ends[1].any.sa_family = sk->sk_family;
	l->local = &ends[0];
	l->remote = &ends[1];
	if (sk->sk_state == TCP_LISTEN)
		l->state = "listen";
	if (listener->port)
		l->port = READ_ONCE(listener->service.port);
	l->policy = policy_of(sk);
	l->rx_queue = READ_ONCE(listener->count[SDP_READY]);
	l->tx_queue = READ_ONCE(sk->sk_max_ack_backlog);
	l->uid = READ_ONCE(sk->sk_uid);
	l->inode = sock_i_ino(sk);
}

/* TCP's queues, as in ss */
static void describe_by_tcp(const struct sdp_by_tcp *b, struct line *l,
			    union sdp_end *ends)
{
	struct sock *sk = b->sk;
	const struct tcp_sock *tp = tcp_sk(sk);
	int state = inet_sk_state_load(sk);

	sdp_end_of(&ends[0], sk, false);
	sdp_end_of(&ends[1], sk, true);
	l->local = &ends[0];
	l->remote = &ends[1];
	l->state = state == TCP_CLOSE ? "idle" : "by-tcp";
	if (state == TCP_LISTEN) {
		l->rx_queue = READ_ONCE(sk->sk_ack_backlog);
		l->tx_queue = READ_ONCE(sk->sk_max_ack_backlog);
	} else {
		l->rx_queue = max_t(int, READ_ONCE(tp->rcv_nxt) -
					 READ_ONCE(tp->copied_seq), 0);
		l->tx_queue = READ_ONCE(tp->write_seq) - READ_ONCE(tp->snd_una);
	}
	l->uid = READ_ONCE(sk->sk_uid);
	l->inode = sock_i_ino(sk);
	/* TCP has accepted it at an auto listener: it has no struct sdp_sock */
	l->policy = b->reason == SDP_INFO_REASON_PEER ?
		    policies[SDP_INFO_POLICY_AUTO] : policy_of(sk);
	l->why = sdp_reason_name(b->reason);
}

/* A socket without any of the above; or its link is over, and it is freed next */
static void describe_sock(struct sock *sk, const struct sdp_sock *ss,
			  struct line *l, union sdp_end *ends)
{
	const struct sdp_link *link = rcu_dereference(ss->link);

	if ((link && READ_ONCE(link->seen.id)) ||
	    rcu_access_pointer(ss->listener) || READ_ONCE(ss->by_tcp))
		return;
	sdp_end_of(&ends[0], sk, false);
	memset(&ends[1], 0, sizeof(ends[1]));
	ends[1].any.sa_family = sk->sk_family;
	l->local = &ends[0];
	l->remote = &ends[1];
	l->state = "idle";
	if (link)
		l->state = phases[SDP_LINK_DOWN];
	else if (READ_ONCE(ss->undecided))
		l->state = "asking";
	l->policy = policies[READ_ONCE(ss->policy)];
	l->uid = READ_ONCE(sk->sk_uid);
	l->inode = sock_i_ino(sk);
}

static void print(struct seq_file *m, const struct line *l)
{
	char local[48], remote[48], service[48] = "-";

	/* through strings: with a width %pIS would exceed its own buffer */
	snprintf(local, sizeof(local), "%pISpc", &l->local->any);
	snprintf(remote, sizeof(remote), "%pISpc", &l->remote->any);
	if (l->service.any.sa_family)
		snprintf(service, sizeof(service), "%pISpc", &l->service.any);
	seq_printf(m, "%-47s %-47s %-12s %-9s %8u %8u %5llu %5llu %4u %6u %12llu %12llu %12u %12u %5u %10lu %-10s %-6s %-47s ",
		   local, remote, l->state, l->mode ?: "-",
		   l->rx_queue, l->tx_queue, l->own_credits, l->peer_credits,
		   l->bufs, l->size, l->received, l->sent, 0, 0,
		   from_kuid_munged(seq_user_ns(m), l->uid), l->inode,
		   l->device[0] ? l->device : "-", l->policy ?: "-", service);
	if (l->why)
		seq_printf(m, "%s\n", l->why);
	else if (l->error)
		seq_printf(m, "%pe\n", ERR_PTR(-l->error));
	else if (l->port)
		seq_printf(m, "sdp-port=%u\n", l->port);
	else
		seq_puts(m, "-\n");
}

static void print_header(struct seq_file *m)
{
	seq_printf(m, "%-47s %-47s %-12s %-9s %8s %8s %5s %5s %4s %6s %12s %12s %12s %12s %5s %10s %-10s %-6s %-47s %s\n",
		   "local", "remote", "state", "mode", "rx_queue", "tx_queue",
		   "own", "peer", "bufs", "size", "rx_bcopy", "tx_bcopy",
		   "rx_zcopy", "tx_zcopy", "uid", "inode", "device",
		   "policy", "service", "why");
}

/* Readers need a reference to these two: it keeps their sockets. */

static void show_listener(struct seq_file *m, struct sdp_listener *listener)
{
	union sdp_end ends[2];
	struct line l = {};

	if (!kref_get_unless_zero(&listener->ref))
		return;
	describe_listener(listener, &l, ends);
	if (l.state)
		print(m, &l);
	sdp_listener_put_atomic(listener);
}

static void show_by_tcp(struct seq_file *m, struct sdp_by_tcp *b)
{
	union sdp_end ends[2];
	struct line l = {};

	if (!kref_get_unless_zero(&b->ref))
		return;
	describe_by_tcp(b, &l, ends);
	if (l.state)
		print(m, &l);
	sdp_by_tcp_put(b);
}

/* TCP's memory stays that of socks under RCU, but it may be another sock. */
static void show_sock(struct seq_file *m, const struct sdp_sock *ss)
{
	struct sock *sk = ss->sk;
	union sdp_end ends[2];
	struct line l = {};

	if (!refcount_inc_not_zero(&sk->sk_refcnt))
		return;
	if (sdp_sk(sk) == ss)
		describe_sock(sk, ss, &l, ends);
	if (l.state)
		print(m, &l);
	sock_put(sk);
}

static int show(struct seq_file *m, void *v)
{
	struct sdp_seen *s = v;
	struct line l = {};

	if (v == SEQ_START_TOKEN) {
		print_header(m);
		return 0;
	}
	switch ((enum sdp_seen_kind)s->kind) {
	case SDP_SEEN_LINK:
		describe_link(container_of(s, struct sdp_link, seen), &l);
		print(m, &l);
		break;
	case SDP_SEEN_LISTENER:
		show_listener(m, container_of(s, struct sdp_listener, seen));
		break;
	case SDP_SEEN_BY_TCP:
		show_by_tcp(m, container_of(s, struct sdp_by_tcp, seen));
		break;
	case SDP_SEEN_SOCK:
		show_sock(m, container_of(s, struct sdp_sock, seen));
		break;
	}
	return 0;
}

/* Iteration ---------------------------------------------------------------- */

/* The first entry from this index on */
static void *find(struct seq_file *m, unsigned long id, loff_t *pos)
{
	struct position *p = m->private;
	void *found;

	p->id = id;
	found = xa_find(&sdp_net(seq_file_net(m))->seen, &p->id, INT_MAX,
			XA_PRESENT);
	/* after the last entry: an index that never exists */
	*pos = found ? p->id : (loff_t)INT_MAX + 1;
	return found;
}

static void *start(struct seq_file *m, loff_t *pos)
	__acquires(RCU)
{
	loff_t from = *pos;

	rcu_read_lock();
	if (!from)
		return SEQ_START_TOKEN;
	return from > INT_MAX ? NULL : find(m, from, &from);
}

static void *next(struct seq_file *m, void *v, loff_t *pos)
{
	struct position *p = m->private;

	return find(m, v == SEQ_START_TOKEN ? 1 : p->id + 1, pos);
}

static void stop(struct seq_file *m, void *v)
	__releases(RCU)
{
	rcu_read_unlock();
}

static const struct seq_operations seq_ops = {
	.start = start,
	.next = next,
	.stop = stop,
	.show = show,
};

int sdp_proc_init(struct net *net)
{
	if (!proc_create_net(NAME, 0444, net->proc_net, &seq_ops,
			     sizeof(struct position)))
		return -ENOMEM;
	return 0;
}

void sdp_proc_exit(struct net *net)
{
	remove_proc_entry(NAME, net->proc_net);
}
