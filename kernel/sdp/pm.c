// SPDX-License-Identifier: GPL-2.0
/*
 * The port mapper, see pm.h.
 */
#include <linux/jhash.h>
#include <linux/log2.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "compat.h"
#include "device.h"
#include "link.h"
#include "netns.h"
#include "own.h"
#include "pm.h"
#include "stats.h"

/* Datagrams at a time */
#define BUDGET	64
/* Limit of services to compare; others may share their hash bucket */
#define SCAN_MAX	1024
/* Interval to look for ports that have rested */
#define REST_TIME	(HZ / 2)
/* Entries of the cache that a reader looks at with the lock held */
#define LOOK_MAX	64

u64 sdp_pm_now(void)
{
	return ktime_to_ms(ktime_get_boottime());
}

u64 sdp_pm_handle(struct sdp_pm *pm)
{
	return atomic64_inc_return(&pm->handle);
}

/* Addresses -------------------------------------------------------------------- */

u8 sdp_pm_addr(u8 *addr, const union sdp_end *end)
{
	const struct in6_addr *a = &end->in6.sin6_addr;

	memset(addr, 0, sizeof(*a));
	if (end->any.sa_family == AF_INET) {
		memcpy(addr, &end->in.sin_addr, 4);
		return 4;
	}
	if (ipv6_addr_v4mapped(a)) {
		memcpy(addr, &a->s6_addr32[3], 4);
		return 4;
	}
	memcpy(addr, a, sizeof(*a));
	return 6;
}

void sdp_pm_end(union sdp_end *end, u8 version, const u8 *addr, u16 port)
{
	memset(end, 0, sizeof(*end));
	if (version == 4) {
		end->in.sin_family = AF_INET;
		end->in.sin_port = htons(port);
		memcpy(&end->in.sin_addr, addr, 4);
		return;
	}
	end->in6.sin6_family = AF_INET6;
	end->in6.sin6_port = htons(port);
	memcpy(&end->in6.sin6_addr, addr, sizeof(end->in6.sin6_addr));
}

static bool is_any(const u8 *addr)
{
	return !memchr_inv(addr, 0, sizeof(struct in6_addr));
}

/* Services ----------------------------------------------------------------------- */

void sdp_pm_publish(struct sdp_pm *pm, struct sdp_service *s)
{
	spin_lock_bh(&pm->lock);
	if (hlist_unhashed(&s->node))
		hash_add(pm->services, &s->node, sdp_end_port(&s->at));
	spin_unlock_bh(&pm->lock);
}

bool sdp_pm_withdraw(struct sdp_pm *pm, struct sdp_service *s)
{
	bool told;

	spin_lock_bh(&pm->lock);
	hash_del(&s->node);
	told = s->told;
	spin_unlock_bh(&pm->lock);
	return told;
}

void sdp_pm_rest(struct sdp_pm *pm, const struct sdp_service *s,
		 struct socket *sock)
{
	bool low = inet_port_requires_bind_service(pm->net,
						   sdp_end_port(&s->at));
	int kind = low ? SDP_PM_PRIVILEGED : SDP_PM_ANYBODYS;
	u8 time = sdp_tunable(pm->net, SDP_PM_TIME);
	struct sdp_pm_rest *rest;

	spin_lock_bh(&pm->lock);
	rest = &pm->rests[kind][pm->next_rest[kind]++ % SDP_PM_RESTS];
	rest->until = sdp_pm_now() + sdp_pm_time_ms(time);
	rest->port = s->port;
	swap(rest->sock, sock);
	spin_unlock_bh(&pm->lock);
	if (sock)
		sock_release(sock);
	schedule_delayed_work(&pm->rest_work, REST_TIME);
}

/* A socket whose time is over, or that of any; *@more: others remain. */
static struct socket *rested(struct sdp_pm *pm, bool all, bool *more)
{
	struct socket *sock = NULL;
	u64 now = sdp_pm_now();
	int i;

	*more = false;
	spin_lock_bh(&pm->lock);
	for (i = 0; i < SDP_PM_KINDS * SDP_PM_RESTS && !sock; i++) {
		struct sdp_pm_rest *rest = &pm->rests[i / SDP_PM_RESTS]
						     [i % SDP_PM_RESTS];

		if (rest->sock && (all || now >= rest->until))
			swap(rest->sock, sock);
		else if (rest->sock)
			*more = true;
	}
	spin_unlock_bh(&pm->lock);
	return sock;
}

static bool release_rested(struct sdp_pm *pm, bool all)
{
	struct socket *sock;
	bool more;

	while ((sock = rested(pm, all, &more)))
		sock_release(sock);
	return more;
}

static void rest_work(struct work_struct *work)
{
	struct sdp_pm *pm = container_of(work, struct sdp_pm, rest_work.work);

	if (release_rested(pm, false))
		schedule_delayed_work(&pm->rest_work, REST_TIME);
}

bool sdp_pm_rests(struct sdp_pm *pm, u16 port)
{
	u64 now = sdp_pm_now();
	const struct sdp_pm_rest *rest;
	bool found = false;
	int i;

	spin_lock_bh(&pm->lock);
	for (i = 0; i < SDP_PM_KINDS * SDP_PM_RESTS && !found; i++) {
		rest = &pm->rests[i / SDP_PM_RESTS][i % SDP_PM_RESTS];
		found = rest->port == port && now < rest->until;
	}
	spin_unlock_bh(&pm->lock);
	return found;
}

/*
 * How well a service matches a request.  0: not at all, 1: it listens at any
 * address, 2: it listens at this address.
 */
static int fits(const struct sdp_service *s, const struct sdp_pm_msg *msg,
		int ifindex)
{
	u8 addr[sizeof(struct in6_addr)];
	u8 version = sdp_pm_addr(addr, &s->at);

	if (sdp_end_port(&s->at) != msg->ap_port ||
	    (s->bound_dev && s->bound_dev != ifindex))
		return 0;
	if (is_any(addr))
		return version == msg->version || (version == 6 && !s->v6only);
	return version == msg->version && !memcmp(addr, msg->ap_addr,
						  sizeof(addr)) ? 2 : 0;
}

/* The SDP port of a service, or 0.  Services that match equally take turns. */
static u16 find_service(struct sdp_pm *pm, const struct sdp_pm_msg *msg,
			int ifindex)
{
	struct sdp_service *s, *found = NULL;
	u32 best = 0, equal = 0, seen = 0;
	int fit;

	lockdep_assert_held(&pm->lock);
	hash_for_each_possible(pm->services, s, node, msg->ap_port) {
		if (++seen > SCAN_MAX)
			break;
		fit = fits(s, msg, ifindex);
		if (!fit || fit < best)
			continue;
		equal = fit > best ? 1 : equal + 1;
		best = fit;
		/* of the equal ones each is as likely, whatever the peer asks with */
		if (!reciprocal_scale(jhash_3words(msg->handle, msg->cp_port,
						   equal, pm->secret), equal))
			found = s;
	}
	if (!found)
		return 0;
	found->told = true;
	return found->port;
}

/* The responder -------------------------------------------------------------------- */

/* A request that was received */
struct request {
	union sdp_end from;
	union sdp_end to;		/* our address, no port */
	int ifindex;
	struct sdp_pm_msg msg;
};

static u32 hash_addr(const struct sdp_pm *pm, const union sdp_end *end)
{
	u8 addr[sizeof(struct in6_addr)];

	sdp_pm_addr(addr, end);
	return jhash(addr, sizeof(addr), pm->secret);
}

/* Find the destination of a datagram; false for broadcast and multicast. */
static bool destination(struct request *r, void *control, size_t len)
{
	struct msghdr msg = { .msg_control = control, .msg_controllen = len };
	struct cmsghdr *c;

	for_each_cmsghdr(c, &msg) {
		if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo *i = CMSG_DATA(c);

			r->to.in.sin_family = AF_INET;
			r->to.in.sin_addr = i->ipi_spec_dst;
			r->ifindex = i->ipi_ifindex;
			/* not a broadcast */
			return i->ipi_addr.s_addr == i->ipi_spec_dst.s_addr;
		}
#if IS_ENABLED(CONFIG_IPV6)
		if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo *i = CMSG_DATA(c);

			r->to.in6.sin6_family = AF_INET6;
			r->to.in6.sin6_addr = i->ipi6_addr;
			r->ifindex = i->ipi6_ifindex;
			return !ipv6_addr_is_multicast(&i->ipi6_addr);
		}
#endif
	}
	return false;
}

/* Reply from the address that the request was sent to. */
static void reply(struct sdp_responder *e, struct request *r,
		  const struct sdp_pm_msg *answer)
{
	u8 control[CMSG_SPACE(sizeof(struct in6_pktinfo))]
		__aligned(__alignof__(struct cmsghdr)) = {};
	struct cmsghdr *c = (struct cmsghdr *)control;
	u8 buf[SDP_PM_LEN];
	struct kvec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
	struct msghdr msg = {
		.msg_name = &r->from,
		.msg_namelen = sdp_end_len(&r->from),
		.msg_control = control,
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};

	if (r->to.any.sa_family == AF_INET) {
		struct in_pktinfo *i = CMSG_DATA(c);

		c->cmsg_level = SOL_IP;
		c->cmsg_type = IP_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(*i));
		i->ipi_spec_dst = r->to.in.sin_addr;
		msg.msg_controllen = CMSG_SPACE(sizeof(*i));
	} else {
		struct in6_pktinfo *i = CMSG_DATA(c);

		c->cmsg_level = SOL_IPV6;
		c->cmsg_type = IPV6_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(*i));
		i->ipi6_addr = r->to.in6.sin6_addr;
		if (r->from.in6.sin6_scope_id)
			i->ipi6_ifindex = r->ifindex;
		msg.msg_controllen = CMSG_SPACE(sizeof(*i));
	}
	sdp_pm_encode(answer, buf);
	/* if the reply is lost, the peer repeats its request */
	kernel_sendmsg(e->sock, &msg, &iov, 1, sizeof(buf));
}

/* A burst as large as the rate per second */
static struct sdp_pm_rate rate(const struct sdp_pm *pm, enum sdp_tunable which)
{
	u32 value = sdp_tunable(pm->net, which);

	return (struct sdp_pm_rate){ .burst = value, .per_second = value };
}

static void set_rates(struct sdp_pm *pm)
{
	lockdep_assert_held(&pm->lock);
	pm->guard->source = rate(pm, SDP_PM_SOURCE_RATE);
	pm->guard->all = rate(pm, SDP_PM_RATE);
}

/* Whether a device has the service's address, which must be one of this host */
static bool has_device(const struct sdp_pm *pm, const struct sdp_pm_msg *msg)
{
	struct sdp_device *dev;
	union sdp_end at;

	sdp_pm_end(&at, msg->version, msg->ap_addr, 0);
	dev = sdp_device_at(pm->net, &at);
	if (dev)
		sdp_device_put(dev);
	return dev;
}

static void answer(struct sdp_responder *e, struct request *r)
{
	struct sdp_pm_service service = {
		.time = sdp_tunable(e->pm->net, SDP_PM_TIME),
	};
	struct sdp_pm *pm = e->pm;
	struct sdp_pm_msg out;
	u8 version = sdp_pm_addr(service.addr, &r->to);
	bool pass;

	spin_lock_bh(&pm->lock);
	set_rates(pm);
	pass = sdp_pm_guard_pass(pm->guard, hash_addr(pm, &r->from),
				 sdp_pm_now());
	if (pass && version == r->msg.version)
		service.port = find_service(pm, &r->msg, r->ifindex);
	spin_unlock_bh(&pm->lock);
	if (!pass) {
		sdp_count(pm->net, SDP_STAT_PM_FLOODED);
		net_warn_ratelimited("softwarp_sdp: the port mapper is asked too often; the last one by %pISc\n",
				     &r->from.any);
		return;
	}
	memcpy(service.addr, r->msg.ap_addr, sizeof(service.addr));
	if (service.port && !has_device(pm, &r->msg))
		service.port = 0;
	if (!sdp_pm_answer(&r->msg, service.port ? &service : NULL, &out))
		return;
	sdp_count(pm->net, service.port ? SDP_STAT_PM_ACCEPTS_SENT :
					  SDP_STAT_PM_DENIES_SENT);
	reply(e, r, &out);
}

/* False: no datagram is left. */
static bool take_datagram(struct sdp_responder *e)
{
	u8 control[CMSG_SPACE(sizeof(struct in6_pktinfo)) +
		   CMSG_SPACE(sizeof(struct in_pktinfo))]
		__aligned(__alignof__(struct cmsghdr));
	struct request r = {};
	u8 buf[SDP_PM_LEN];
	struct kvec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
	struct msghdr msg = {
		.msg_name = &r.from,
		.msg_namelen = sizeof(r.from),
		.msg_control = control,
		.msg_controllen = sizeof(control),
		.msg_flags = MSG_DONTWAIT,
	};
	int ret;

	/* what exceeds a message is cut off; it still has the length of one */
	ret = kernel_recvmsg(e->sock, &msg, &iov, 1, sizeof(buf), MSG_DONTWAIT);
	if (ret < 0)
		return ret != -EAGAIN;
	if (sdp_pm_decode(buf, ret, &r.msg) ||
	    !destination(&r, control, sizeof(control) - msg.msg_controllen)) {
		sdp_count(e->pm->net, SDP_STAT_PM_MALFORMED);
		return true;
	}
	/* a PMAck changes nothing here */
	if (r.msg.type == SDP_PM_REQ)
		answer(e, &r);
	else if (r.msg.type == SDP_PM_ACK)
		sdp_count(e->pm->net, SDP_STAT_PM_ACKS_RECEIVED);
	return true;
}

static void respond(struct work_struct *work)
{
	struct sdp_responder *e = container_of(work, struct sdp_responder, work);
	int i;

	for (i = 0; i < BUDGET; i++)
		if (!take_datagram(e))
			return;
	queue_work(sdp_wq, work);
}

static void on_datagram(struct sock *sk)
{
	struct sdp_responder *e;

	read_lock_bh(&sk->sk_callback_lock);
	e = __locked_read_sk_user_data_with_flags(sk, SK_USER_DATA_NOCOPY);
	if (e)
		queue_work(sdp_wq, &e->work);
	read_unlock_bh(&sk->sk_callback_lock);
}

static void hook(struct sdp_responder *e)
{
	struct sock *sk = e->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	__rcu_assign_sk_user_data_with_flags(sk, e, SK_USER_DATA_NOCOPY);
	sk->sk_data_ready = on_datagram;
	write_unlock_bh(&sk->sk_callback_lock);
	/* for datagrams that came earlier */
	queue_work(sdp_wq, &e->work);
}

static int bind_any(struct socket *sock, int family, u16 port)
{
	union sdp_end any = {};

	any.any.sa_family = family;
	sdp_end_set_port(&any, port);
	return sdp_own_bind(sock, &any);
}

/* The socket has no reference to the namespace: its users have. */
static int open_one(struct sdp_responder *e, int family, u16 port)
{
	struct socket *sock;
	int ret;

	ret = sock_create_kern(e->pm->net, family, SOCK_DGRAM, IPPROTO_UDP,
			       &sock);
	/* no IPv6: there are no requests by it */
	if (ret)
		return ret == -EAFNOSUPPORT ? 0 : ret;
#if IS_ENABLED(CONFIG_IPV6)
	if (family == AF_INET6) {
		ip6_sock_set_v6only(sock->sk);
		ip6_sock_set_recvpktinfo(sock->sk);
	}
#endif
	if (family == AF_INET)
		ip_sock_set_pktinfo(sock->sk);
	ret = bind_any(sock, family, port);
	if (ret) {
		sock_release(sock);
		/* ipv6.disable_ipv6 */
		return ret == -EADDRNOTAVAIL && family == AF_INET6 ? 0 : ret;
	}
	e->sock = sock;
	hook(e);
	return 0;
}

static void close_one(struct sdp_responder *e)
{
	struct sock *sk;

	if (!e->sock)
		return;
	sk = e->sock->sk;
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	/* only the work item itself queues it from here on */
	cancel_work_sync(&e->work);
	sock_release(e->sock);
	e->sock = NULL;
}

static void open_all(struct sdp_pm *pm)
{
	static const int families[SDP_PM_FAMILIES] = { AF_INET, AF_INET6 };
	u16 port = sdp_tunable(pm->net, SDP_PM_UDP_PORT);
	int i, ret;

	for (i = 0; i < SDP_PM_FAMILIES; i++) {
		if (pm->responders[i].sock)
			continue;
		ret = open_one(&pm->responders[i], families[i], port);
		if (ret)
			pr_notice_ratelimited("softwarp_sdp: UDP port %u cannot be had (%pe), so that no peer is told of the SDP services here; is iwpmd running?\n",
					      port, ERR_PTR(ret));
	}
}

int sdp_pm_open(struct sdp_pm *pm)
{
	struct sdp_pm_guard *guard;

	mutex_lock(&pm->mutex);
	if (!pm->guard) {
		guard = kvzalloc(sizeof(*guard), GFP_KERNEL);
		if (!guard) {
			mutex_unlock(&pm->mutex);
			return -ENOMEM;
		}
		sdp_pm_guard_init(guard, rate(pm, SDP_PM_SOURCE_RATE),
				  rate(pm, SDP_PM_RATE));
		pm->guard = guard;
	}
	pm->users++;
	/* retry what failed for an earlier user */
	open_all(pm);
	mutex_unlock(&pm->mutex);
	return 0;
}

void sdp_pm_close(struct sdp_pm *pm)
{
	int i;

	mutex_lock(&pm->mutex);
	if (!--pm->users)
		for (i = 0; i < SDP_PM_FAMILIES; i++)
			close_one(&pm->responders[i]);
	mutex_unlock(&pm->mutex);
}

/* Answers of peers --------------------------------------------------------- */

bool sdp_pm_prepare(struct sdp_pm *pm)
{
	u32 sets = roundup_pow_of_two(sdp_tunable(pm->net, SDP_PM_CACHE)) /
		   SDP_PM_WAYS;
	struct sdp_pm_entry *entries;

	if (READ_ONCE(pm->cache.sets) == sets)
		return true;
	entries = kvcalloc(sets * SDP_PM_WAYS, sizeof(*entries),
			   GFP_KERNEL_ACCOUNT);
	/* then the old one serves, if there is one */
	if (!entries)
		return READ_ONCE(pm->cache.sets);
	spin_lock_bh(&pm->lock);
	WRITE_ONCE(pm->cache.sets, sets);
	swap(pm->cache.entries, entries);
	spin_unlock_bh(&pm->lock);
	kvfree(entries);
	return true;
}

static u32 hash_asked(const struct sdp_pm *pm, const struct sdp_pm_msg *asked)
{
	u32 hash = jhash(asked->ap_addr, sizeof(asked->ap_addr),
			 pm->secret ^ asked->ap_port);

	return jhash(asked->cp_addr, sizeof(asked->cp_addr), hash);
}

/* The key for a host without port mapper: it applies to all its services. */
static struct sdp_pm_msg whole_host(const struct sdp_pm_msg *asked)
{
	struct sdp_pm_msg host = *asked;

	host.ap_port = 0;
	return host;
}

static const struct sdp_pm_entry *find(struct sdp_pm *pm,
				       const struct sdp_pm_msg *asked)
{
	lockdep_assert_held(&pm->lock);
	return sdp_pm_cache_find(&pm->cache, asked, hash_asked(pm, asked),
				 sdp_pm_now());
}

enum sdp_pm_known sdp_pm_lookup(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
				union sdp_end *where)
{
	struct sdp_pm_msg host = whole_host(asked);
	enum sdp_pm_known known = SDP_PM_UNKNOWN;
	const struct sdp_pm_entry *e;

	spin_lock_bh(&pm->lock);
	if (!pm->cache.entries)
		goto out;
	e = find(pm, asked);
	if (e && e->sdp) {
		sdp_pm_end(where, e->version, e->addr, e->port);
		known = SDP_PM_BY_SDP;
	} else if (e) {
		known = SDP_PM_DENIED;
	} else if (find(pm, &host)) {
		known = SDP_PM_SILENT;
	}
out:
	spin_unlock_bh(&pm->lock);
	return known;
}

bool sdp_pm_next(struct sdp_pm *pm, u32 *at, struct sdp_pm_entry *entry,
		 u64 *now)
{
	const struct sdp_pm_entry *e;
	u32 end;

	do {
		cond_resched();
		spin_lock_bh(&pm->lock);
		*now = sdp_pm_now();
		end = pm->cache.sets * SDP_PM_WAYS;
		e = sdp_pm_cache_next(&pm->cache, at, LOOK_MAX, *now);
		if (e)
			*entry = *e;
		spin_unlock_bh(&pm->lock);
	} while (!e && *at < end);
	return e;
}

static void keep(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		 const struct sdp_pm_msg *ack, u8 time, u32 ms)
{
	spin_lock_bh(&pm->lock);
	if (pm->cache.entries)
		sdp_pm_cache_keep(&pm->cache, asked, hash_asked(pm, asked), ack,
				  time, ms, sdp_pm_now());
	spin_unlock_bh(&pm->lock);
}

void sdp_pm_accepted(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		     const struct sdp_pm_msg *ack, u8 time)
{
	keep(pm, asked, ack, min_t(u8, time, SDP_PM_TIME_MOST), 0);
}

void sdp_pm_denied(struct sdp_pm *pm, const struct sdp_pm_msg *asked)
{
	keep(pm, asked, NULL, 0, sdp_tunable(pm->net, SDP_PM_DENIED_TIME));
}

void sdp_pm_silent(struct sdp_pm *pm, const struct sdp_pm_msg *asked)
{
	struct sdp_pm_msg host = whole_host(asked);

	keep(pm, &host, NULL, 0, sdp_tunable(pm->net, SDP_PM_SILENT_TIME));
}

void sdp_pm_forget(struct sdp_pm *pm, const struct sdp_pm_msg *asked,
		   const union sdp_end *where)
{
	const struct sdp_pm_entry *e;
	union sdp_end known;

	spin_lock_bh(&pm->lock);
	e = pm->cache.entries ? find(pm, asked) : NULL;
	if (e && e->sdp) {
		sdp_pm_end(&known, e->version, e->addr, e->port);
		if (!memcmp(&known, where, sizeof(known)))
			sdp_pm_cache_drop(&pm->cache, asked,
					  hash_asked(pm, asked));
	}
	spin_unlock_bh(&pm->lock);
}

/* Lifetime ----------------------------------------------------------------- */

void sdp_pm_init(struct sdp_pm *pm, struct net *net)
{
	int i;

	pm->net = net;
	mutex_init(&pm->mutex);
	spin_lock_init(&pm->lock);
	hash_init(pm->services);
	INIT_DELAYED_WORK(&pm->rest_work, rest_work);
	pm->secret = get_random_u32();
	/* random, so that it does not repeat one from before a reboot */
	atomic64_set(&pm->handle, get_random_u64());
	for (i = 0; i < SDP_PM_FAMILIES; i++) {
		pm->responders[i].pm = pm;
		INIT_WORK(&pm->responders[i].work, respond);
	}
}

void sdp_pm_exit(struct sdp_pm *pm)
{
	int i;

	for (i = 0; i < SDP_PM_FAMILIES; i++)
		close_one(&pm->responders[i]);
	/* no listener is left to add one */
	cancel_delayed_work_sync(&pm->rest_work);
	release_rested(pm, true);
	kvfree(pm->guard);
	kvfree(pm->cache.entries);
	mutex_destroy(&pm->mutex);
}
