// SPDX-License-Identifier: GPL-2.0
/*
 * Connecting by SDP or by TCP, see auto.h.
 */
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/sock.h>

#include "auto.h"
#include "compat.h"
#include "device.h"
#include "family.h"
#include "link.h"
#include "netns.h"
#include "own.h"
#include "pm.h"
#include "sock.h"
#include "stats.h"

/* The second wait for an answer is twice as long as the first one. */
#define ASK_TRIES	2
#define ASK_PARTS	3
/* Datagrams that are read at a time */
#define BUDGET	16
/* Interval at which a locked socket is tried again */
#define RETRY_TIME	(HZ / 100 ?: 1)

static void work(struct work_struct *work);

static struct sdp_pm *pm_of(const struct sdp_attempt *a)
{
	return &sdp_net(sock_net(a->sk))->pm;
}

/* Lifetime and events ------------------------------------------------------ */

static void release(struct kref *ref)
{
	struct sdp_attempt *a = container_of(ref, struct sdp_attempt, ref);

	sock_put(a->sk);
	/* proc.c may be looking at it */
	kfree_rcu(a, rcu);
}

void sdp_attempt_put(struct sdp_attempt *a)
{
	kref_put(&a->ref, release);
}

static void look(struct sdp_attempt *a, unsigned long delay)
{
	kref_get(&a->ref);
	if (mod_delayed_work(sdp_wq, &a->work, delay))
		sdp_attempt_put(a);
}

static void on_udp(struct sock *sk)
{
	struct sdp_attempt *a;

	read_lock_bh(&sk->sk_callback_lock);
	a = __locked_read_sk_user_data_with_flags(sk, SK_USER_DATA_NOCOPY);
	if (a)
		look(a, 0);
	read_unlock_bh(&sk->sk_callback_lock);
}

static void hook(struct sdp_attempt *a)
{
	struct sock *sk = a->udp->sk;

	write_lock_bh(&sk->sk_callback_lock);
	__rcu_assign_sk_user_data_with_flags(sk, a, SK_USER_DATA_NOCOPY);
	sk->sk_data_ready = on_udp;
	sk->sk_error_report = on_udp;
	write_unlock_bh(&sk->sk_callback_lock);
}

static void close_udp(struct sdp_attempt *a)
{
	struct sock *sk;

	if (!a->udp)
		return;
	sk = a->udp->sk;
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	sock_release(a->udp);
	a->udp = NULL;
}

static void close_all(struct sdp_attempt *a)
{
	close_udp(a);
	if (a->carrier)
		sock_release(a->carrier);
	a->carrier = NULL;
}

void sdp_attempt_cancel(struct sdp_attempt *a)
{
	sock_owned_by_me(a->sk);
	WRITE_ONCE(a->state, SDP_ATTEMPT_OVER);
	close_all(a);
	if (cancel_delayed_work(&a->work))
		sdp_attempt_put(a);
}

void sdp_attempt_failed(struct sdp_attempt *a, int error)
{
	WRITE_ONCE(a->error, error);
	/* pairs with smp_load_acquire() in step() */
	smp_store_release(&a->failed, true);
	look(a, 0);
}

/* Choosing SDP or TCP ------------------------------------------------------ */

static int by_tcp(struct sdp_attempt *a, u8 reason)
{
	a->state = SDP_ATTEMPT_OVER;
	if (a->carrier)
		a->port = inet_sk(a->carrier->sk)->inet_num;
	/* getsockname() may have shown this port; the peer may know it */
	if (a->port)
		sdp_sock_take_port(a->sk, a->port);
	close_all(a);
	return sdp_sock_by_tcp(a->sk, &a->to, a->to_len, reason);
}

/* Convert an address to the family of the socket. */
static void to_family_of(const struct sdp_attempt *a, union sdp_end *to)
{
	struct in6_addr mapped;

	if (a->to.any.sa_family != AF_INET6)
		return;
	if (to->any.sa_family == AF_INET6) {
		to->in6.sin6_scope_id = a->to.in6.sin6_scope_id;
		return;
	}
	ipv6_addr_set_v4mapped(to->in.sin_addr.s_addr, &mapped);
	to->in6 = (struct sockaddr_in6){
		.sin6_family = AF_INET6,
		.sin6_port = to->in.sin_port,
		.sin6_addr = mapped,
	};
}

static struct socket *new_carrier(struct sdp_attempt *a)
{
	struct socket *carrier = sdp_sock_carrier(a->sk);

	if (IS_ERR(carrier) || !a->port)
		return carrier;
	lock_sock(carrier->sk);
	sdp_sock_take_port(carrier->sk, a->port);
	release_sock(carrier->sk);
	return carrier;
}

static int by_sdp(struct sdp_attempt *a, union sdp_end *where)
{
	struct socket *carrier = a->carrier;
	int ret;

	/* for by_tcp(), if this fails at once */
	if (carrier)
		a->port = inet_sk(carrier->sk)->inet_num;
	a->carrier = NULL;
	close_udp(a);
	if (!carrier)
		carrier = new_carrier(a);
	ret = PTR_ERR_OR_ZERO(carrier);
	if (!ret) {
		a->state = SDP_ATTEMPT_LINKED;
		to_family_of(a, where);
		ret = sdp_sock_by_sdp(a->sk, carrier, where,
				      sdp_end_len(where), a);
	}
	/* TCP may succeed, or returns the right errno */
	return ret ? by_tcp(a, SDP_INFO_REASON_SETUP) : 0;
}

/*
 * Whether another program's request would get the same answer.  The cache is
 * shared by all users: what only this socket cannot reach is not for it.
 */
static bool is_ordinary(const struct sock *sk)
{
	if (READ_ONCE(sk->sk_bound_dev_if) || READ_ONCE(sk->sk_mark) ||
	    sock_flag(sk, SOCK_LOCALROUTE) ||
	    READ_ONCE(inet_sk(sk)->uc_ttl) != -1)
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && inet6_sk(sk)->hop_limit != -1)
		return false;
#endif
	return true;
}

static void keep_denial(struct sdp_attempt *a)
{
	if (is_ordinary(a->sk))
		sdp_pm_denied(pm_of(a), &a->asked);
}

static u8 reason_of(enum sdp_pm_known known)
{
	return known == SDP_PM_DENIED ? SDP_INFO_REASON_DENIED :
					SDP_INFO_REASON_NO_ANSWER;
}

/* Asking the port mapper --------------------------------------------------- */

/* 0, or an errno: that of an ICMP error that has come in the meantime, too */
static int send(struct sdp_attempt *a, const struct sdp_pm_msg *m)
{
	u8 buf[SDP_PM_LEN];
	struct kvec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	int ret;

	sdp_pm_encode(m, buf);
	/* a lost request is repeated by the timer; a lost PMAck does no harm */
	ret = kernel_sendmsg(a->udp, &msg, &iov, 1, sizeof(buf));
	return min(ret, 0);
}

/*
 * Read the next valid message, at the expense of *@left datagrams; false: there is
 * none now, or an error, or nothing is left.
 */
static bool receive(struct sdp_attempt *a, struct sdp_pm_msg *m, int *error,
		    int *left)
{
	u8 buf[SDP_PM_LEN];
	struct kvec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT };
	int ret;

	*error = 0;
	while (*left) {
		--*left;
		ret = kernel_recvmsg(a->udp, &msg, &iov, 1, sizeof(buf),
				     MSG_DONTWAIT);
		if (ret < 0) {
			*error = ret == -EAGAIN ? 0 : ret;
			return false;
		}
		if (!sdp_pm_decode(buf, ret, m))
			return true;
	}
	return false;
}

/*
 * Whether ICMP reports that there is no port mapper or no route, or this host's
 * own filter lets no request out
 */
static bool is_unreachable(int error)
{
	return error == -ECONNREFUSED || error == -EHOSTUNREACH ||
	       error == -ENETUNREACH || error == -EACCES ||
	       error == -EPROTO || error == -EOPNOTSUPP || error == -EPERM;
}

static void set_timer(struct sdp_attempt *a)
{
	u64 now = sdp_pm_now();
	u64 left = a->query.when > now ? a->query.when - now : 0;

	look(a, msecs_to_jiffies(left) + 1);
}

#if IS_ENABLED(CONFIG_IPV6)
static bool is_allowed6(struct net *net, const struct in6_addr *answer,
			const struct in6_addr *asked)
{
	int type = ipv6_addr_type(answer);

	if (ipv6_addr_equal(answer, asked))
		return true;
	if (type & (IPV6_ADDR_LOOPBACK | IPV6_ADDR_MULTICAST | IPV6_ADDR_MAPPED) ||
	    type == IPV6_ADDR_ANY)
		return false;
	return !ipv6_chk_addr(net, answer, NULL, 0) ||
	       ipv6_chk_addr(net, asked, NULL, 0);
}
#endif

static bool is_allowed4(struct net *net, __be32 answer, __be32 asked)
{
	if (answer == asked)
		return true;
	if (ipv4_is_loopback(answer))
		return ipv4_is_loopback(asked);
	switch (inet_addr_type(net, answer)) {
	case RTN_UNICAST:
		return true;
	case RTN_LOCAL:
		return inet_addr_type(net, asked) == RTN_LOCAL;
	}
	return false;
}

/*
 * Whether an answer may name this address.  It may be that of another host
 * (section 7.3.1.10), but a peer must not send our programs to services of this
 * host, which take them for local ones, nor to more than one host.
 */
static bool is_allowed(const struct sdp_attempt *a, const struct sdp_pm_msg *m)
{
	struct net *net = sock_net(a->sk);
	union sdp_end answer, asked;

	sdp_pm_end(&answer, m->version, m->ap_addr, 0);
	sdp_pm_end(&asked, a->asked.version, a->asked.ap_addr, 0);
#if IS_ENABLED(CONFIG_IPV6)
	if (answer.any.sa_family == AF_INET6)
		return is_allowed6(net, &answer.in6.sin6_addr,
				   &asked.in6.sin6_addr);
#endif
	return is_allowed4(net, answer.in.sin_addr.s_addr,
			   asked.in.sin_addr.s_addr);
}

static int accepted(struct sdp_attempt *a, const struct sdp_pm_msg *m)
{
	union sdp_end where;

	sdp_count(sock_net(a->sk), SDP_STAT_PM_ACCEPTED);
	send(a, &a->query.answer);
	sdp_pm_accepted(pm_of(a), &a->asked, &a->query.answer, m->time);
	sdp_pm_end(&where, m->version, m->ap_addr, m->ap_port);
	return by_sdp(a, &where);
}

/* No answer, but also no waiting: retry after the time of a denial. */
static int nobody_there(struct sdp_attempt *a, int error)
{
	if (sdp_query_unreachable(&a->query) == SDP_QUERY_NOTHING)
		return 0;
	sdp_count(sock_net(a->sk), SDP_STAT_PM_UNREACHABLE);
	/* a filter of this host may be for this user or this cgroup */
	if (error != -EPERM)
		keep_denial(a);
	return by_tcp(a, SDP_INFO_REASON_NO_ANSWER);
}

/* Perform the action of one step of the query. */
static int act(struct sdp_attempt *a, enum sdp_query_action action,
	       const struct sdp_pm_msg *m)
{
	const struct net *net = sock_net(a->sk);
	int ret;

	switch (action) {
	case SDP_QUERY_NOTHING:
		return 0;
	case SDP_QUERY_SEND:
		sdp_count(net, SDP_STAT_PM_REQUESTS_SENT);
		/*
		 * First the timer: within a host the ICMP error comes before
		 * send() returns, and the work item that it queues must not be
		 * put off.
		 */
		set_timer(a);
		ret = send(a, &a->asked);
		return is_unreachable(ret) ? nobody_there(a, ret) : 0;
	case SDP_QUERY_ACK:
		if (is_allowed(a, m))
			return accepted(a, m);
		fallthrough;
	case SDP_QUERY_DENIED:
		sdp_count(net, SDP_STAT_PM_DENIED);
		keep_denial(a);
		return by_tcp(a, SDP_INFO_REASON_DENIED);
	case SDP_QUERY_SILENT:
		break;
	}
	sdp_count(net, SDP_STAT_PM_SILENT);
	if (is_ordinary(a->sk))
		sdp_pm_silent(pm_of(a), &a->asked);
	return by_tcp(a, SDP_INFO_REASON_NO_ANSWER);
}

/*
 * Use the cache if it knows the service.  *@ret: as that of by_sdp(), by_tcp()
 */
static bool use_known(struct sdp_attempt *a, int *ret)
{
	enum sdp_pm_known known;
	union sdp_end where;

	known = sdp_pm_lookup(pm_of(a), &a->asked, &where);
	if (known == SDP_PM_UNKNOWN)
		return false;
	sdp_count(sock_net(a->sk), SDP_STAT_PM_CACHED);
	if (known == SDP_PM_BY_SDP) {
		a->remembered = where;
		*ret = by_sdp(a, &where);
	} else {
		*ret = by_tcp(a, reason_of(known));
	}
	return true;
}

/*
 * When it is time to ask again or to give up, first see whether another attempt
 * has got an answer.  Peers limit theirs, ICMP to one a second, so of many
 * attempts at once only the first ones may get one.  That is no silence, for
 * which the whole host would not be asked again.
 */
static int ask_on(struct sdp_attempt *a)
{
	enum sdp_query_action action;
	struct sdp_pm_msg m;
	int left = BUDGET;
	int error, ret;

	/* before looking, so that events of the meantime are not put off */
	set_timer(a);
	while (receive(a, &m, &error, &left)) {
		ret = act(a, sdp_query_take(&a->query, &m), &m);
		if (ret || a->state != SDP_ATTEMPT_ASKING)
			return ret;
	}
	if (is_unreachable(error))
		return nobody_there(a, error);
	action = sdp_query_timer(&a->query, sdp_pm_now());
	if (action != SDP_QUERY_NOTHING) {
		if (use_known(a, &ret))
			return ret;
		ret = act(a, action, NULL);
		if (ret || a->state != SDP_ATTEMPT_ASKING)
			return ret;
		/* act() has set the timer after we looked: look once more */
		left = 0;
	}
	if (!left)
		look(a, 0);
	return 0;
}

/*
 * Copy the options that affect routing.  Not sdp_sock_inherit(), which is for
 * TCP sockets.
 */
static void route_as(struct sock *to, const struct sock *from)
{
	sdp_own_cgroup(to, from);
	to->sk_bound_dev_if = from->sk_bound_dev_if;
	to->sk_mark = from->sk_mark;
	to->sk_priority = from->sk_priority;
	sock_valbool_flag(to, SOCK_LOCALROUTE, sock_flag(from, SOCK_LOCALROUTE));
	inet_sk(to)->tos = inet_sk(from)->tos;
	inet_sk(to)->uc_ttl = inet_sk(from)->uc_ttl;
#if IS_ENABLED(CONFIG_IPV6)
	to->sk_ipv6only = from->sk_ipv6only;
	if (to->sk_family == AF_INET6) {
		inet6_sk(to)->hop_limit = inet6_sk(from)->hop_limit;
		inet6_sk(to)->tclass = inet6_sk(from)->tclass;
	}
#endif
}

/*
 * Open a socket to the peer's port mapper, which finds our address and route.
 */
static int open_udp(struct sdp_attempt *a)
{
	u16 port = sdp_tunable(sock_net(a->sk), SDP_PM_UDP_PORT);
	union sdp_end at = a->to, own;
	struct socket *udp;
	int ret;

	ret = sock_create_kern(sock_net(a->sk), a->sk->sk_family, SOCK_DGRAM,
			       IPPROTO_UDP, &udp);
	if (ret)
		return ret;
	swp_sk_hold_net(udp->sk);
	route_as(udp->sk, a->sk);
	sdp_end_set_port(&at, port);
	a->udp = udp;
	hook(a);
	/* use the program's local address if it is bound */
	sdp_end_of(&own, a->sk, false);
	sdp_end_set_port(&own, 0);
	return sdp_own_bind(udp, &own) ?: sdp_own_connect(udp, &at, a->to_len);
}

/* Reserve a local port for the SDP connection. */
static int open_carrier(struct sdp_attempt *a)
{
	int ret;

	a->carrier = new_carrier(a);
	if (IS_ERR(a->carrier)) {
		ret = PTR_ERR(a->carrier);
		a->carrier = NULL;
		return ret;
	}
	lock_sock(a->carrier->sk);
	ret = sdp_sock_any_port(a->carrier->sk);
	release_sock(a->carrier->sk);
	return ret;
}

static int ask(struct sdp_attempt *a)
{
	/* TCP shares local ports between destinations; a port of our own is not */
	if (open_carrier(a))
		return by_tcp(a, SDP_INFO_REASON_SETUP);
	a->asked.cp_port = inet_sk(a->carrier->sk)->inet_num;
	a->asked.handle = sdp_pm_handle(pm_of(a));
	sdp_query_ask(&a->query, &a->asked,
		      sdp_tunable(sock_net(a->sk), SDP_PM_WAIT) / ASK_PARTS,
		      ASK_TRIES, sdp_pm_now());
	return act(a, SDP_QUERY_SEND, NULL);
}

/* Whether the route leaves by a netdev with a device, or stays within the host */
static bool has_device(const struct sdp_attempt *a)
{
	struct dst_entry *dst = sk_dst_get(a->udp->sk);
	union sdp_end own;
	bool has;

	if (!dst)
		return false;
	sdp_end_of(&own, a->udp->sk, false);
	has = sdp_device_is_softwarps(sock_net(a->sk), dst->dev, &own);
	dst_release(dst);
	return has;
}

/* Use the cache if it knows the service, else ask the port mapper. */
static int look_up(struct sdp_attempt *a)
{
	int ret;

	/* first, so that another size of the cache is in force at once */
	if (!sdp_pm_prepare(pm_of(a)))
		return -ENOMEM;
	return use_known(a, &ret) ? ret : ask(a);
}

static int decide(struct sdp_attempt *a)
{
	struct sdp_pm_msg *asked = &a->asked;
	union sdp_end own;

	/* without a route TCP has none, either, and returns the errno */
	if (open_udp(a) || !has_device(a))
		return by_tcp(a, SDP_INFO_REASON_NO_DEVICE);
	sdp_end_of(&own, a->udp->sk, false);
	asked->version = sdp_pm_addr(asked->ap_addr, &a->to);
	asked->ap_port = sdp_end_port(&a->to);
	if (sdp_pm_addr(asked->cp_addr, &own) != asked->version)
		return by_tcp(a, SDP_INFO_REASON_NO_DEVICE);
	return look_up(a);
}

/* Whether the address is valid; an invalid one is left to TCP to refuse. */
static bool understood(const struct sock *sk, const union sdp_end *to, int len)
{
	if (to->any.sa_family != sk->sk_family || len < sdp_end_len(to))
		return false;
	return sdp_end_port(to);
}

int sdp_attempt_begin(struct sock *sk, const union sdp_end *to, int len)
{
	struct sdp_attempt *a;
	int ret;

	sock_owned_by_me(sk);
	if (!understood(sk, to, len))
		return sdp_sock_by_tcp(sk, to, len, SDP_INFO_REASON_NO_DEVICE);
	a = kzalloc(sizeof(*a), GFP_KERNEL_ACCOUNT);
	if (!a)
		return -ENOMEM;
	kref_init(&a->ref);
	INIT_DELAYED_WORK(&a->work, work);
	sock_hold(sk);
	a->sk = sk;
	a->to = *to;
	a->to_len = sdp_end_len(to);
	sdp_sock_attempt(sk, a);
	/* the socket has the reference */
	ret = decide(a);
	if (ret || a->state == SDP_ATTEMPT_OVER)
		sdp_sock_attempt(sk, NULL);
	return ret;
}

bool sdp_attempt_name(const struct sdp_attempt *a, union sdp_end *name)
{
	sock_owned_by_me(a->sk);
	if (!a->carrier || !a->udp)
		return false;
	sdp_end_of(name, a->udp->sk, false);
	sdp_end_set_port(name, inet_sk(a->carrier->sk)->inet_num);
	return true;
}

/* The work item ------------------------------------------------------------ */

/*
 * The cached answer is stale: the service may have been restarted at another
 * port, and the cache may have a newer answer already.  This is tried once.
 */
static int look_up_again(struct sdp_attempt *a)
{
	sdp_count(sock_net(a->sk), SDP_STAT_PM_STALE);
	sdp_pm_forget(pm_of(a), &a->asked, &a->remembered);
	a->again = true;
	WRITE_ONCE(a->failed, false);
	a->state = SDP_ATTEMPT_ASKING;
	if (open_udp(a))
		return by_tcp(a, SDP_INFO_REASON_NO_DEVICE);
	return look_up(a);
}

/*
 * Whether set-up has ended for a reason that others would meet as well, and not
 * for the limits of this user, or a time that the program has set
 */
static bool is_the_peers(const struct sdp_attempt *a, int error)
{
	return error == ECONNREFUSED || error == ECONNRESET ||
	       (error == ETIMEDOUT &&
		!READ_ONCE(inet_csk(a->sk)->icsk_user_timeout));
}

/* A reset by a port that was answered is a denial (section 7.5.1). */
static int link_failed(struct sdp_attempt *a)
{
	int error = READ_ONCE(a->error);

	a->port = sdp_sock_unlink(a->sk);
	if (!a->again && sdp_end_port(&a->remembered))
		return look_up_again(a);
	if (is_the_peers(a, error))
		keep_denial(a);
	return by_tcp(a, error == ECONNREFUSED ? SDP_INFO_REASON_REFUSED :
						 SDP_INFO_REASON_SETUP);
}

static void step(struct sdp_attempt *a)
{
	int ret = 0;

	if (a->state == SDP_ATTEMPT_ASKING)
		ret = ask_on(a);
	/* pairs with smp_store_release() in sdp_attempt_failed() */
	else if (a->state == SDP_ATTEMPT_LINKED && smp_load_acquire(&a->failed))
		ret = link_failed(a);
	if (!ret && a->state != SDP_ATTEMPT_OVER)
		return;
	sdp_sock_decided(a->sk, ret);
}

static void work(struct work_struct *work)
{
	struct sdp_attempt *a = container_of(work, struct sdp_attempt, work.work);

	if (sdp_sock_trylock(a->sk)) {
		if (a->state != SDP_ATTEMPT_OVER)
			step(a);
		release_sock(a->sk);
	} else {
		look(a, RETRY_TIME);
		/* if it was cancelled meanwhile, nothing else stops the timer */
		if (READ_ONCE(a->state) == SDP_ATTEMPT_OVER &&
		    cancel_delayed_work(&a->work))
			sdp_attempt_put(a);
	}
	sdp_attempt_put(a);
}
