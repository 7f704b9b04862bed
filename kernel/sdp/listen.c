// SPDX-License-Identifier: GPL-2.0
/*
 * Listening, see listen.h.
 */
#include <linux/slab.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "compat.h"
#include "family.h"
#include "link.h"
#include "listen.h"
#include "own.h"
#include "sock.h"
#include "stats.h"

/* Carriers that are taken in at a time */
#define BUDGET	64
/* Places that are charged in advance */
#define SPARE	4
/* Interval to look for links that hold a place for too long */
#define LOOK_TIME	(HZ / 2)
/* And until it tries again to lock the socket */
#define RETRY_TIME	(HZ / 100 ?: 1)

static struct sdp_pm *pm_of(const struct sdp_listener *l)
{
	return &sdp_net(l->seen.net)->pm;
}

/* The sock that carriers come to */
static struct sock *tcp_of(const struct sdp_listener *l)
{
	return l->port ? l->port->sk : l->sk;
}

static void free_listener(struct sdp_listener *l)
{
	if (l->port)
		sock_release(l->port);
	sdp_seen_release(&l->seen);
	sock_put(l->sk);
	kfree_rcu(l, rcu);
}

static void free_later(struct work_struct *work)
{
	free_listener(container_of(work, struct sdp_listener, end));
}

static void last_put(struct kref *ref)
{
	free_listener(container_of(ref, struct sdp_listener, ref));
}

static void last_put_atomic(struct kref *ref)
{
	struct sdp_listener *l = container_of(ref, struct sdp_listener, ref);

	queue_work(sdp_listen_wq, &l->end);
}

void sdp_listener_put(struct sdp_listener *l)
{
	kref_put(&l->ref, last_put);
}

void sdp_listener_put_atomic(struct sdp_listener *l)
{
	kref_put(&l->ref, last_put_atomic);
}

void sdp_listener_kick(struct sdp_listener *l)
{
	kref_get(&l->ref);
	/* run it now even if it is delayed */
	if (mod_delayed_work(sdp_listen_wq, &l->work, 0))
		sdp_listener_put(l);
}

/* Not behind sdp_listener_close(), which cancels it once and for all. */
static void look_after(struct sdp_listener *l, unsigned long time)
{
	bool queued = false;

	kref_get(&l->ref);
	spin_lock_bh(&l->lock);
	if (!l->closed)
		queued = queue_delayed_work(sdp_listen_wq, &l->work, time);
	spin_unlock_bh(&l->lock);
	if (!queued)
		sdp_listener_put(l);
}

static void look_later(struct sdp_listener *l)
{
	look_after(l, LOOK_TIME);
}

/*
 * A carrier waits in TCP's queue.  Children inherit this callback until they
 * are taken; they have no listener.
 */
static void carrier_ready(struct sock *sk)
{
	struct sdp_listener *l;

	rcu_read_lock();
	l = sdp_sock_listener(sk);
	if (!l) {
		sdp_carrier_data_ready(sk);
	} else if (kref_get_unless_zero(&l->ref)) {
		if (mod_delayed_work(sdp_listen_wq, &l->work, 0))
			sdp_listener_put(l);
	}
	rcu_read_unlock();
}

/* The same, for the listener's own port */
static void port_ready(struct sock *sk)
{
	struct sdp_listener *l;

	read_lock_bh(&sk->sk_callback_lock);
	l = __locked_read_sk_user_data_with_flags(sk, SK_USER_DATA_NOCOPY);
	if (l)
		sdp_listener_kick(l);
	else
		sdp_carrier_data_ready(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

/* Lists ------------------------------------------------------------------------ */

static void enlist(struct sdp_listener *l, struct sdp_link *link, u8 list)
{
	lockdep_assert_held(&l->lock);
	list_add_tail(&link->entry, &l->list[list]);
	WRITE_ONCE(l->count[list], l->count[list] + 1);
	link->listed = list;
	link->since = jiffies;
}

static void delist(struct sdp_listener *l, struct sdp_link *link)
{
	lockdep_assert_held(&l->lock);
	list_del_init(&link->entry);
	WRITE_ONCE(l->count[link->listed], l->count[link->listed] - 1);
	link->listed = SDP_NOT_LISTED;
}

static void move(struct sdp_listener *l, struct sdp_link *link, u8 list)
{
	delist(l, link);
	enlist(l, link, list);
}

static struct sdp_link *oldest(struct sdp_listener *l, u8 list)
{
	lockdep_assert_held(&l->lock);
	return list_first_entry_or_null(&l->list[list], struct sdp_link, entry);
}

/* Places ----------------------------------------------------------------------- */

static u32 taken(const struct sdp_listener *l)
{
	return READ_ONCE(l->count[SDP_HALF_OPEN]) +
	       READ_ONCE(l->count[SDP_DEFERRED]) +
	       READ_ONCE(l->count[SDP_READY]);
}

/* The backlog plus one, as TCP counts */
static u32 most(const struct sdp_listener *l)
{
	return READ_ONCE(l->sk->sk_max_ack_backlog) + 1;
}

/* Whether to take in no more carriers; silent links do not count */
static bool full(const struct sdp_listener *l)
{
	return taken(l) + READ_ONCE(l->count[SDP_WAITING]) >= most(l);
}

/*
 * Charge the listener's socket for the places in use, those that links wait
 * for, and some more, until the accepted socket is charged instead.  The socket
 * is locked.
 */
static void pay(struct sdp_listener *l)
{
	struct sock *sk = l->sk;
	u32 want = min(taken(l) + READ_ONCE(l->count[SDP_WAITING]) + SPARE,
		       most(l));
	u32 has = l->charged;

	sock_owned_by_me(sk);
	while (has < want && __sk_mem_schedule(sk, SDP_LINK_COST, SK_MEM_RECV)) {
		sk_mem_charge(sk, SDP_LINK_COST);
		has++;
	}
	/* keep some, so that not each link charges and uncharges */
	while (has > want + SPARE) {
		sk_mem_uncharge(sk, SDP_LINK_COST);
		has--;
	}
	spin_lock_bh(&l->lock);
	/* links may have taken places meanwhile, but only charged ones */
	WRITE_ONCE(l->charged, has);
	spin_unlock_bh(&l->lock);
}

void sdp_listener_refund(struct sdp_listener *l)
{
	u32 has;

	sock_owned_by_me(l->sk);
	spin_lock_bh(&l->lock);
	l->closed = true;
	has = l->charged;
	WRITE_ONCE(l->charged, 0);
	spin_unlock_bh(&l->lock);
	while (has--)
		sk_mem_uncharge(l->sk, SDP_LINK_COST);
}

static bool free_place(const struct sdp_listener *l)
{
	lockdep_assert_held(&l->lock);
	return taken(l) < min(most(l), l->charged);
}

bool sdp_listener_admit(struct sdp_link *link)
{
	struct sdp_listener *l = link->listener;
	u8 list;

	spin_lock_bh(&l->lock);
	if (link->listed == SDP_SILENT)
		move(l, link, free_place(l) && !l->count[SDP_WAITING] ?
			      SDP_HALF_OPEN : SDP_WAITING);
	list = link->listed;
	spin_unlock_bh(&l->lock);
	if (list == SDP_WAITING)
		sdp_listener_kick(l);
	return list == SDP_HALF_OPEN;
}

/* Assign free places to waiting links, in order. */
static void give_places(struct sdp_listener *l)
{
	struct sdp_link *link;

	spin_lock_bh(&l->lock);
	while (free_place(l) && (link = oldest(l, SDP_WAITING))) {
		move(l, link, SDP_HALF_OPEN);
		sdp_link_event(link, SDP_EV_TCP);
	}
	spin_unlock_bh(&l->lock);
}

/* Abort the oldest link of a list if it has this age. */
static bool evict(struct sdp_listener *l, u8 list, unsigned long age)
{
	struct sdp_link *link;

	spin_lock_bh(&l->lock);
	link = oldest(l, list);
	if (link && time_before(jiffies, link->since + age))
		link = NULL;
	if (link)
		delist(l, link);
	spin_unlock_bh(&l->lock);
	if (!link)
		return false;
	sdp_count(link->seen.net, list == SDP_SILENT ? SDP_STAT_SILENT_DROPPED :
						       SDP_STAT_STUCK_DROPPED);
	sdp_link_abort(link, ECONNABORTED);
	sdp_link_put(link);
	return true;
}

/* Whether links or carriers wait while half-open ones hold places */
static bool contested(const struct sdp_listener *l)
{
	return READ_ONCE(l->count[SDP_HALF_OPEN]) && full(l) &&
	       (READ_ONCE(l->count[SDP_WAITING]) ||
		READ_ONCE(tcp_of(l)->sk_ack_backlog));
}

/* TCP_DEFER_ACCEPT --------------------------------------------------------- */

/* TCP keeps it as a number of SYN-ACKs, the intervals of which double. */
static unsigned long defer_time(const struct sdp_listener *l)
{
	u8 left = READ_ONCE(inet_csk(l->sk)->icsk_accept_queue.rskq_defer_accept);
	unsigned long step = TCP_TIMEOUT_INIT, time = 0;

	for (; left; left--) {
		time += step;
		step = min_t(unsigned long, 2 * step, TCP_RTO_MAX);
	}
	return time;
}

/* Whether nothing has come yet; link->deferred asks for an event when it has. */
static bool waits(const struct sdp_listener *l, struct sdp_link *link)
{
	bool wait;

	if (!defer_time(l))
		return false;
	spin_lock_bh(&link->lock);
	wait = !link->rx_octets && !link->eof;
	link->deferred = wait;
	spin_unlock_bh(&link->lock);
	return wait;
}

/* Let links be accepted whose time is over. */
static void stop_deferring(struct sdp_listener *l)
{
	unsigned long time = defer_time(l);
	struct sdp_link *link;
	int count = 0;

	/* not at the expense of others that wait */
	if (full(l) && (READ_ONCE(l->count[SDP_WAITING]) ||
			READ_ONCE(tcp_of(l)->sk_ack_backlog)))
		time = min(time, sdp_tunable_jiffies(l->seen.net,
						     SDP_PLACE_TIME));
	spin_lock_bh(&l->lock);
	while ((link = oldest(l, SDP_DEFERRED)) &&
	       !time_before(jiffies, link->since + time)) {
		move(l, link, SDP_READY);
		count++;
	}
	spin_unlock_bh(&l->lock);
	while (count--)
		l->data_ready(l->sk);
}

/* Carriers --------------------------------------------------------------------- */

/* End a carrier that another has taken: its callbacks and its struct proto stay. */
static void drop_carrier(struct sock *sk)
{
	lock_sock(sk);
	sdp_family_forget(sk);
	release_sock(sk);
	sk->sk_prot->close(sk, 0);
}

/* The next carrier, as a kernel socket; -EAGAIN: none, -EBUSY: it was dropped. */
static struct socket *next_carrier(struct sdp_listener *l)
{
	struct socket *sock;
	struct sock *sk;
	int ret;

	ret = sock_create_lite(l->sk->sk_family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (ret)
		return ERR_PTR(ret);
	sk = swp_prot_accept(tcp_of(l));
	if (!sk) {
		sock_release(sock);
		return ERR_PTR(-EAGAIN);
	}
	/* a BPF program has put it into a sockmap */
	if (READ_ONCE(sk->sk_user_data)) {
		drop_carrier(sk);
		sock_release(sock);
		return ERR_PTR(-EBUSY);
	}
	lock_sock(sk);
	sdp_carrier_forget(sk, sock);
	sock_graft(sk, sock);
	sock->state = SS_CONNECTED;
	release_sock(sk);
	return sock;
}

static void take_in(struct sdp_listener *l, struct socket *sock)
{
	struct sdp_link *link = sdp_link_new(l->sk, false, &sdp_carrier_tcp);
	bool closed;

	if (!link) {
		sock_release(sock);
		return;
	}
	sdp_link_over(link, sock);
	/* for this function: the link may end meanwhile */
	sdp_link_get(link);
	kref_get(&l->ref);
	link->listener = l;
	spin_lock_bh(&l->lock);
	sdp_link_start(link);
	closed = l->closed;
	/* the list takes over the reference of sdp_link_new() */
	if (!closed)
		enlist(l, link, SDP_SILENT);
	spin_unlock_bh(&l->lock);
	sdp_link_event(link, SDP_EV_TCP);
	if (closed) {
		sdp_link_abort(link, 0);
		sdp_link_put(link);
	}
	sdp_link_put(link);
}

bool sdp_listener_enter(struct sdp_listener *l, struct sdp_link *link)
{
	bool room;

	kref_get(&l->ref);
	link->listener = l;
	spin_lock_bh(&l->lock);
	/* the same limit as that of TCP's queue of connections not taken in */
	room = !l->closed && l->count[SDP_SILENT] + l->count[SDP_WAITING] <
			     min_t(u32, most(l), sdp_tunable(l->seen.net,
							     SDP_SILENT_MAX));
	if (room) {
		sdp_link_get(link);
		sdp_link_start(link);
		enlist(l, link, SDP_SILENT);
	}
	spin_unlock_bh(&l->lock);
	if (room) {
		sdp_link_event(link, SDP_EV_TCP);
		sdp_link_put(link);
		return true;
	}
	sdp_count(link->seen.net, SDP_STAT_FULL_REFUSED);
	link->listener = NULL;
	sdp_listener_put(l);
	return false;
}

/* True: the budget is used up; there may be more. */
static bool take_some(struct sdp_listener *l)
{
	struct socket *sock;
	int i;

	for (i = 0; i < BUDGET && !full(l) && !READ_ONCE(l->closed); i++) {
		sock = next_carrier(l);
		if (sock == ERR_PTR(-EAGAIN))
			return false;
		if (sock == ERR_PTR(-EBUSY))
			continue;
		if (IS_ERR(sock)) {
			look_later(l);
			return false;
		}
		/* a loop, because the limit may have been lowered */
		while (READ_ONCE(l->count[SDP_SILENT]) >=
		       sdp_tunable(l->seen.net, SDP_SILENT_MAX))
			evict(l, SDP_SILENT, 0);
		take_in(l, sock);
	}
	return i == BUDGET;
}

static void work(struct work_struct *work)
{
	struct sdp_listener *l = container_of(work, struct sdp_listener,
					      work.work);
	bool more = false;

	if (sdp_sock_trylock(l->sk)) {
		if (!l->closed)
			pay(l);
		release_sock(l->sk);
	} else {
		look_after(l, RETRY_TIME);
	}
	give_places(l);
	stop_deferring(l);
	if (!READ_ONCE(l->closed))
		more = take_some(l);
	if (contested(l) &&
	    evict(l, SDP_HALF_OPEN,
		  sdp_tunable_jiffies(l->seen.net, SDP_PLACE_TIME)))
		more = true;
	/* for an overdue place, for memory to charge, or to stop deferring */
	if (contested(l) || READ_ONCE(l->count[SDP_WAITING]) ||
	    READ_ONCE(l->count[SDP_DEFERRED]))
		look_later(l);
	if (more)
		sdp_listener_kick(l);
	sdp_listener_put(l);
}

static struct socket *make_port(struct sock *sk)
{
	struct socket *sock;
	union sdp_end at;
	int ret;

	ret = sock_create_kern(sock_net(sk), sk->sk_family, SOCK_STREAM,
			       IPPROTO_TCP, &sock);
	if (ret)
		return ERR_PTR(ret);
	swp_sk_hold_net(sock->sk);
	sdp_sock_inherit(sock->sk, sk);
	/* else another program might share the port */
	sock->sk->sk_reuse = SK_NO_REUSE;
	sock->sk->sk_reuseport = 0;
	sdp_end_of(&at, sk, false);
	sdp_end_set_port(&at, 0);
	ret = sdp_own_bind(sock, &at);
	if (ret) {
		sock_release(sock);
		return ERR_PTR(ret);
	}
	return sock;
}

/* Ports are chosen at random, and few are kept by sdp_pm_rests(). */
#define PORT_TRIES	8

/* Bind the program's address and a port that peers do not remember. */
static struct socket *new_port(struct sdp_pm *pm, struct sock *sk)
{
	struct socket *sock = NULL;
	int i;

	for (i = 0; i < PORT_TRIES; i++) {
		if (sock)
			sock_release(sock);
		sock = make_port(sk);
		if (IS_ERR(sock) ||
		    !sdp_pm_rests(pm, inet_sk(sock->sk)->inet_num))
			break;
	}
	return sock;
}

static void hook(struct sdp_listener *l)
{
	struct sock *sk = tcp_of(l);

	write_lock_bh(&sk->sk_callback_lock);
	l->data_ready = l->sk->sk_data_ready;
	if (l->port)
		__rcu_assign_sk_user_data_with_flags(sk, l, SK_USER_DATA_NOCOPY);
	sk->sk_data_ready = l->port ? port_ready : carrier_ready;
	write_unlock_bh(&sk->sk_callback_lock);
}

/* Stop the listener's own port; the program's socket is TCP's to stop. */
static void close_port(struct sdp_listener *l)
{
	struct sock *sk = tcp_of(l);

	if (!l->port)
		return;
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	/* free_listener() releases it: the work item may still use it */
	kernel_sock_shutdown(l->port, SHUT_RDWR);
	sdp_pm_close(pm_of(l));
}

struct sdp_listener *sdp_listener_new(struct sock *sk, bool own_port)
{
	struct sdp_listener *l = kzalloc(sizeof(*l), GFP_KERNEL_ACCOUNT);
	int ret = -ENOMEM;
	int i;

	if (!l)
		return ERR_PTR(ret);
	if (sdp_seen_reserve(&l->seen, SDP_SEEN_LISTENER, sk))
		goto err_free;
	if (own_port) {
		ret = sdp_pm_open(pm_of(l));
		if (ret)
			goto err_seen;
		l->port = new_port(pm_of(l), sk);
		if (IS_ERR(l->port)) {
			ret = PTR_ERR(l->port);
			goto err_pm;
		}
	}
	kref_init(&l->ref);
	spin_lock_init(&l->lock);
	for (i = SDP_SILENT; i < SDP_LISTS; i++)
		INIT_LIST_HEAD(&l->list[i]);
	INIT_DELAYED_WORK(&l->work, work);
	sdp_cma_prepare(l);
	INIT_WORK(&l->end, free_later);
	sock_hold(sk);
	l->sk = sk;
	sdp_seen_show(&l->seen, sk);
	hook(l);
	return l;

err_pm:
	sdp_pm_close(pm_of(l));
err_seen:
	sdp_seen_release(&l->seen);
err_free:
	kfree(l);
	return ERR_PTR(ret);
}

int sdp_listener_open(struct sdp_listener *l)
{
	struct sdp_service *s = &l->service;
	int ret;

	sock_owned_by_me(l->sk);
	/* once, and before carriers use it in sdp_listener_name() */
	if (!s->port) {
		sdp_end_of(&s->at, l->sk, false);
		s->v6only = ipv6_only_sock(l->sk);
		s->bound_dev = READ_ONCE(l->sk->sk_bound_dev_if);
		s->port = inet_sk(tcp_of(l))->inet_num;
	}
	if (l->port) {
		ret = kernel_listen(l->port,
				    READ_ONCE(l->sk->sk_max_ack_backlog));
		if (ret)
			return ret;
	}
	sdp_pm_publish(pm_of(l), s);
	/* the backlog may have grown */
	sdp_listener_kick(l);
	return 0;
}

void sdp_listener_name(const struct sdp_listener *l,
		       struct sockaddr_storage *local)
{
	sdp_end_set_port((union sdp_end *)local,
			 sdp_end_port(&l->service.at));
}

void sdp_listener_close(struct sdp_listener *l)
{
	struct sdp_link *link, *next;
	LIST_HEAD(links);
	int i;

	/* with the port still bound, so that no other program gets it in between */
	if (sdp_pm_withdraw(pm_of(l), &l->service))
		sdp_pm_rest(pm_of(l), &l->service,
			    l->port ? sdp_sock_hold_port(l->port->sk) : NULL);
	close_port(l);
	sdp_seen_hide(&l->seen);
	sdp_cma_unlisten(l);
	spin_lock_bh(&l->lock);
	l->closed = true;
	for (i = SDP_SILENT; i < SDP_LISTS; i++) {
		list_splice_tail_init(&l->list[i], &links);
		WRITE_ONCE(l->count[i], 0);
	}
	/* so that sdp_listener_lost() leaves these links alone */
	list_for_each_entry_safe(link, next, &links, entry)
		link->listed = SDP_NOT_LISTED;
	spin_unlock_bh(&l->lock);
	list_for_each_entry_safe(link, next, &links, entry) {
		list_del_init(&link->entry);
		sdp_link_orphan(link, true);
		sdp_link_put(link);
	}
	if (cancel_delayed_work(&l->work))
		sdp_listener_put(l);
	/* links and the work item put their references soon */
	sdp_listener_put(l);
}

bool sdp_listener_ready(struct sdp_listener *l)
{
	return !list_empty_careful(&l->list[SDP_READY]);
}

/*
 * A place is free now: is there somebody to take it, or much that is charged for
 * nobody?  What comes later looks itself.
 */
static bool has_work(const struct sdp_listener *l)
{
	/* pairs with the queueing of the work item for a new carrier */
	smp_mb();
	return READ_ONCE(l->count[SDP_WAITING]) ||
	       READ_ONCE(tcp_of(l)->sk_ack_backlog) ||
	       READ_ONCE(l->charged) > taken(l) + 3 * SPARE;
}

struct sdp_link *sdp_listener_take(struct sdp_listener *l)
{
	struct sdp_link *link;

	spin_lock_bh(&l->lock);
	link = oldest(l, SDP_READY);
	if (link)
		delist(l, link);
	spin_unlock_bh(&l->lock);
	if (link && has_work(l))
		sdp_listener_kick(l);
	return link;
}

void sdp_listener_look(struct sdp_link *link)
{
	struct sdp_listener *l = link->listener;
	u8 before, list;

	if (!l || READ_ONCE(link->phase) != SDP_LINK_UP)
		return;
	list = waits(l, link) ? SDP_DEFERRED : SDP_READY;
	spin_lock_bh(&l->lock);
	before = link->listed;
	if (before != SDP_HALF_OPEN && before != SDP_DEFERRED)
		list = before;
	if (list != before)
		move(l, link, list);
	spin_unlock_bh(&l->lock);
	if (list == before)
		return;
	if (list == SDP_DEFERRED)
		look_later(l);
	else
		l->data_ready(l->sk);
}

void sdp_listener_lost(struct sdp_link *link)
{
	struct sdp_listener *l = link->listener;
	bool mine;

	if (!l)
		return;
	spin_lock_bh(&l->lock);
	/* a READY link stays: it is accepted with what it has received */
	mine = link->listed != SDP_NOT_LISTED && link->listed != SDP_READY;
	if (mine)
		delist(l, link);
	spin_unlock_bh(&l->lock);
	link->listener = NULL;
	if (mine) {
		sdp_listener_kick(l);
		sdp_link_put(link);
	}
	sdp_listener_put(l);
}
