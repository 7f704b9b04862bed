// SPDX-License-Identifier: GPL-2.0
/*
 * Connections by rdma_cm, see cma.h.
 */
#include <linux/inetdevice.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/sock.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

#include "cma.h"
#include "compat.h"
#include "link.h"
#include "listen.h"
#include "sock.h"
#include "stats.h"
#include "trace.h"

/* Time to resolve a neighbour, and a path, ms */
#define RESOLVE_TIME	2000
/* Interval of requests to a listener that is full */
#define RETRY_TIME	(HZ / 4)
/* Limit of addresses of a wildcard listener */
#define ADDRESSES	256

/* Addresses ---------------------------------------------------------------- */

/* Map IPv4 to the socket's family, for programs; rdma_cm has it unmapped. */
static void map_end(union sdp_end *end, const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

	if (sk->sk_family != AF_INET6 || end->any.sa_family != AF_INET)
		return;
	in6.sin6_port = end->in.sin_port;
	ipv6_addr_set_v4mapped(end->in.sin_addr.s_addr, &in6.sin6_addr);
	end->in6 = in6;
#endif
}

static __be16 *port_of(union sdp_end *end)
{
	return end->any.sa_family == AF_INET6 ? &end->in6.sin6_port :
						&end->in.sin_port;
}

static bool same_address(const union sdp_end *a, const union sdp_end *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return ipv6_addr_equal(&a->in6.sin6_addr, &b->in6.sin6_addr) &&
	       a->in6.sin6_scope_id == b->in6.sin6_scope_id;
}

/* Called before other contexts see the link. */
static void set_ends(struct sdp_link *link, const struct sdp_ends *ends)
{
	memcpy(&link->local, &ends->local, sizeof(ends->local));
	memcpy(&link->remote, &ends->remote, sizeof(ends->remote));
	link->seen.local = ends->local;
	link->seen.remote = ends->remote;
}

/* Route -------------------------------------------------------------------- */

static bool read_address(const struct sock *sk, const struct sockaddr *addr,
			 int len, union sdp_end *end)
{
	memset(end, 0, sizeof(*end));
	if (len < sizeof(addr->sa_family) || addr->sa_family != sk->sk_family)
		return false;
	if (addr->sa_family == AF_INET6) {
		/* with or without a scope */
		if (len < SIN6_LEN_RFC2133)
			return false;
		memcpy(&end->in6, addr, min_t(int, len, sizeof(end->in6)));
		end->in6.sin6_flowinfo = 0;
		return !ipv6_addr_any(&end->in6.sin6_addr);
	}
	if (len < sizeof(end->in))
		return false;
	memcpy(&end->in, addr, sizeof(end->in));
	memset(&end->in.sin_zero, 0, sizeof(end->in.sin_zero));
	return end->in.sin_addr.s_addr != htonl(INADDR_ANY);
}

static struct dst_entry *route4(const struct sock *sk, struct sdp_ends *ends)
{
	struct flowi4 fl4 = {
		.flowi4_oif = sk->sk_bound_dev_if,
		.flowi4_mark = READ_ONCE(sk->sk_mark),
		.flowi4_proto = IPPROTO_TCP,
		.daddr = ends->remote.in.sin_addr.s_addr,
		.saddr = ends->local.in.sin_addr.s_addr,
	};
	struct rtable *rt = ip_route_output_key(sock_net(sk), &fl4);

	if (IS_ERR(rt))
		return NULL;
	if (rt->rt_flags & (RTCF_MULTICAST | RTCF_BROADCAST)) {
		ip_rt_put(rt);
		return NULL;
	}
	ends->local.in.sin_addr.s_addr = fl4.saddr;
	return &rt->dst;
}

#if IS_ENABLED(CONFIG_IPV6)
static struct dst_entry *route6(const struct sock *sk, struct sdp_ends *ends)
{
	struct sockaddr_in6 *to = &ends->remote.in6;
	struct flowi6 fl6 = {
		.flowi6_oif = sk->sk_bound_dev_if,
		.flowi6_mark = READ_ONCE(sk->sk_mark),
		.flowi6_proto = IPPROTO_TCP,
		.daddr = to->sin6_addr,
		.saddr = ends->local.in6.sin6_addr,
	};
	struct dst_entry *dst;

	if (ipv6_addr_is_multicast(&to->sin6_addr))
		return NULL;
	if (ipv6_addr_type(&to->sin6_addr) & IPV6_ADDR_LINKLOCAL) {
		if (!fl6.flowi6_oif)
			fl6.flowi6_oif = to->sin6_scope_id;
		ends->local.in6.sin6_scope_id = fl6.flowi6_oif;
	}
	dst = ip6_dst_lookup_flow(sock_net(sk), NULL, &fl6, NULL);
	if (IS_ERR(dst))
		return NULL;
	ends->local.in6.sin6_addr = fl6.saddr;
	return dst;
}
#endif

static struct dst_entry *route(const struct sock *sk, struct sdp_ends *ends)
{
	if (ends->remote.any.sa_family == AF_INET)
		return route4(sk, ends);
#if IS_ENABLED(CONFIG_IPV6)
	return route6(sk, ends);
#else
	return NULL;
#endif
}

bool sdp_cma_way(struct sock *sk, const struct sockaddr *addr, int len,
		 struct sdp_ends *ends)
{
	struct net *net = sock_net(sk);
	struct dst_entry *dst;
	bool ours;

	if (!sdp_device_foreign() || !read_address(sk, addr, len, &ends->remote))
		return false;
	sdp_end_of(&ends->local, sk, false);
	sdp_end_unmap(&ends->remote);
	if (ends->remote.any.sa_family == AF_INET && ipv6_only_sock(sk))
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	/* the unspecified address is one of IPv4 as well */
	if (sk->sk_family == AF_INET6 && ends->remote.any.sa_family == AF_INET &&
	    ipv6_addr_any(&ends->local.in6.sin6_addr))
		ipv6_addr_set_v4mapped(0, &ends->local.in6.sin6_addr);
#endif
	sdp_end_unmap(&ends->local);
	if (ends->local.any.sa_family != ends->remote.any.sa_family)
		return false;
	dst = route(sk, ends);
	if (!dst)
		return false;
	ours = sdp_device_is_softwarps(net, dst->dev, &ends->local);
	dst_release(dst);
	map_end(&ends->local, sk);
	map_end(&ends->remote, sk);
	return !ours;
}

/* Events of rdma_cm -------------------------------------------------------- */

static int errno_of(const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		/* the neighbour does not answer */
		return event->status == -ETIMEDOUT || event->status >= 0 ?
		       -EHOSTUNREACH : event->status;
	case RDMA_CM_EVENT_UNREACHABLE:
		return -ETIMEDOUT;
	case RDMA_CM_EVENT_REJECTED:
		if (event->status < 0)
			return event->status;
		if (event->status == IB_CM_REJ_NO_RESOURCES)
			return -EAGAIN;
		return event->status == IB_CM_REJ_TIMEOUT ? -ETIMEDOUT :
							    -ECONNREFUSED;
	default:
		return event->status < 0 ? event->status : -ECONNRESET;
	}
}

/* Save HelloAck: the event's data are freed after the handler. */
static void keep_answer(struct sdp_link *link, const struct rdma_conn_param *p)
{
	link->hello_got = min_t(u32, p->private_data_len, sizeof(link->hello));
	memcpy(link->hello, p->private_data, link->hello_got);
}

/* The connection is established for rdma_cm, which can now end it. */
static void established(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	link->cm_up = true;
	if (link->fin_waits && sdp_link_fin_due(link))
		sdp_link_event(link, SDP_EV_FIN);
	spin_unlock_bh(&link->lock);
}

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct sdp_link *link = id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		sdp_link_event(link, SDP_EV_ADDR);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		sdp_link_event(link, SDP_EV_ROUTE);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (link->connector)
			keep_answer(link, &event->param.conn);
		established(link);
		sdp_link_event(link, SDP_EV_DONE);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		sdp_link_event(link, SDP_EV_CLOSED);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		sdp_link_abort(link, ENETDOWN);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	case RDMA_CM_EVENT_REJECTED:
		/* after HelloAck: the end of a connection, not of a request */
		if (link->hello_got) {
			sdp_link_event(link, SDP_EV_CLOSED);
			break;
		}
		fallthrough;
	default:
		WRITE_ONCE(link->status, errno_of(event));
		sdp_link_event(link, SDP_EV_DONE);
	}
	return 0;
}

/* A message has preceded ESTABLISHED: let rdma_cm raise that event. */
static void on_qp_event(struct ib_event *event, void *context)
{
	struct sdp_link *link = context;

	if (event->event == IB_EVENT_COMM_EST)
		rdma_notify(link->cm_id, event->event);
}

static int create_qp(struct sdp_link *link, struct ib_qp_init_attr *attr)
{
	struct ib_cq *cq;
	int ret;

	/* let the core poll: other devices may raise events in interrupts */
	cq = ib_cq_pool_get(link->dev->ib, SDP_CQES, raw_smp_processor_id(),
			    IB_POLL_SOFTIRQ);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	link->cq = cq;
	attr->send_cq = cq;
	attr->recv_cq = cq;
	attr->event_handler = on_qp_event;
	attr->qp_context = link;
	ret = rdma_create_qp(link->cm_id, link->dev->pd, attr);
	if (!ret)
		link->qp = link->cm_id->qp;
	return ret;
}

static struct rdma_conn_param param_of(struct sdp_link *link, const void *data,
				       u8 len)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = len,
		.responder_resources = link->offer.ird,
		.initiator_depth = link->offer.ord,
		.retry_count = 7,
		/* infinite: credits limit what the peer sends */
		.rnr_retry_count = 7,
	};
}

/* Enter START, before messages can come. */
static int enter_start(struct sdp_link *link)
{
	int ret = 0;

	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_DOWN)
		ret = -ECONNABORTED;
	else
		link->phase = SDP_LINK_START;
	sdp_link_stated(link);
	spin_unlock_bh(&link->lock);
	return ret;
}

/* Connecting ------------------------------------------------------------------------ */

/* Bind the TCP port, so that nothing here listens on it by rdma_cm. */
static int hold_port(struct socket *sock, union sdp_end *local)
{
	int ret;

	lock_sock(sock->sk);
	ret = sdp_sock_any_port(sock->sk);
	*port_of(local) = htons(inet_sk(sock->sk)->inet_num);
	release_sock(sock->sk);
	return ret ? -EADDRNOTAVAIL : 0;
}

int sdp_cma_connect(struct sdp_link *link, struct sdp_ends *ends)
{
	int ret = hold_port(link->tcp, &ends->local);

	if (ret)
		return ret;
	link->layout = SDP_LAYOUT_IB;
	set_ends(link, ends);
	sdp_link_start(link);
	sdp_link_event(link, SDP_EV_TCP);
	return 0;
}

static int look_for_device(struct sdp_link *link)
{
	struct sock *sk = link->tcp->sk;
	union sdp_end local, remote;
	struct rdma_cm_id *id;
	int ret;

	if (link->cm_id)
		return 0;
	id = rdma_create_id(link->seen.net, on_event, link, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	link->cm_id = id;
	/* once for all attempts */
	if (!timer_pending(&link->timer))
		sdp_link_limit_setup(link);
	/* several connections may use one bound port */
	rdma_set_reuseaddr(id, 1);
	rdma_set_service_type(id, inet_sk(sk)->tos);
	id->route.addr.dev_addr.bound_dev_if = sk->sk_bound_dev_if;
	memcpy(&local, &link->local, sizeof(local));
	memcpy(&remote, &link->remote, sizeof(remote));
	sdp_end_unmap(&local);
	sdp_end_unmap(&remote);
	ret = rdma_resolve_addr(id, &local.any, &remote.any, RESOLVE_TIME);
	return ret == -EADDRINUSE ? -EADDRNOTAVAIL : ret;
}

static int look_for_route(struct sdp_link *link)
{
	struct rdma_cm_id *id = link->cm_id;
	int ret = sdp_link_join(link, sdp_device_of(id->device));

	/* iWARP's TCP may be the host's own, and needs the port */
	if (!ret && rdma_cap_iw_cm(id->device, id->port_num))
		sdp_link_drop_tcp(link);
	return ret ?: rdma_resolve_route(id, RESOLVE_TIME);
}

static int say_hello(struct sdp_link *link)
{
	struct rdma_conn_param param;
	struct sdp_msg hello;
	int ret;

	ret = sdp_link_make_qp(link) ?: enter_start(link);
	if (ret)
		return ret;
	sdp_hello_make(&link->offer, &hello);
	sdp_encode(link->layout, &hello, link->hello);
	param = param_of(link, link->hello, SDP_HELLO_LEN);
	ret = rdma_connect(link->cm_id, &param);
	trace_sdp_setup(link, SDP_STEP_HELLO_SENT, ret);
	return ret;
}

/* The listener is full: as TCP does, repeat the request until the time-out. */
static int ask_again(struct sdp_link *link)
{
	int ret = 0;

	sdp_link_leave(link);
	sdp_link_free(link);
	INIT_LIST_HEAD(&link->rx_early);
	WRITE_ONCE(link->status, 0);
	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_DOWN)
		ret = -ECONNABORTED;
	else
		link->phase = SDP_LINK_TCP;
	sdp_link_stated(link);
	spin_unlock_bh(&link->lock);
	if (!ret)
		sdp_link_later(link, RETRY_TIME);
	return ret;
}

static int take_answer(struct sdp_link *link)
{
	struct sdp_terms terms;
	struct sdp_msg ack;

	lockdep_assert_held(&link->lock);
	if (link->hello_got < SDP_HELLO_ACK_LEN ||
	    sdp_decode(link->layout, link->hello, SDP_HELLO_ACK_LEN, &ack) ||
	    sdp_hello_ack_check(&link->offer, &ack, &terms)) {
		sdp_count(link->seen.net, SDP_STAT_BAD_HELLO_ACK);
		trace_sdp_setup(link, SDP_STEP_ACK_TAKEN, -EPROTO);
		return -EPROTO;
	}
	trace_sdp_setup(link, SDP_STEP_ACK_TAKEN, 0);
	sdp_conn_init(&link->conn, true, &link->offer, &terms);
	/* HelloAck counts as a message that used a buffer, but used none */
	sdp_credits_post(&link->conn.credits, 1);
	sdp_link_up(link);
	sdp_link_take_early(link);
	sdp_link_pump(link);
	return 0;
}

/* Accepting --------------------------------------------------------------------------- */

static int bad_hello(const struct net *net)
{
	sdp_count(net, SDP_STAT_BAD_HELLO);
	return -EPROTO;
}

/* Accept the request, with a QP, when the listener has a place. */
static int answer(struct sdp_link *link)
{
	struct rdma_conn_param param;
	struct sdp_msg hello, ack;
	struct sdp_terms terms;
	u8 octets[SDP_HDR_MAX];
	int ret;

	if (READ_ONCE(link->phase) != SDP_LINK_HELLO || link->connector ||
	    !sdp_listener_admit(link))
		return 0;
	ret = sdp_link_join(link, sdp_device_of(link->cm_id->device)) ?:
	      sdp_link_make_qp(link);
	if (ret)
		return ret;
	if (sdp_decode(link->layout, link->hello, SDP_HELLO_LEN, &hello) ||
	    sdp_hello_check(&link->offer, &hello, &terms))
		return bad_hello(link->seen.net);
	link->offer.ird = terms.ird;
	link->offer.ord = terms.ord;
	trace_sdp_setup(link, SDP_STEP_HELLO_TAKEN, 0);
	spin_lock_bh(&link->lock);
	sdp_conn_init(&link->conn, false, &link->offer, &terms);
	spin_unlock_bh(&link->lock);
	ret = enter_start(link);
	if (ret)
		return ret;
	sdp_hello_ack_make(&link->offer, &ack);
	param = param_of(link, octets, sdp_encode(link->layout, &ack, octets));
	rdma_lock_handler(link->cm_id);
	ret = rdma_accept(link->cm_id, &param);
	rdma_unlock_handler(link->cm_id);
	local_bh_disable();
	if (!ret)
		sdp_count_sent(link->seen.net, &ack);
	local_bh_enable();
	trace_sdp_setup(link, SDP_STEP_ACK_SENT, ret);
	return ret;
}

/* Handle a connection request.  Non-zero: rejected; rdma_cm destroys the id. */
static int take_in(struct sdp_listener *l, struct rdma_cm_id *id,
		   const struct rdma_conn_param *param)
{
	const struct rdma_addr *addr = &id->route.addr;
	struct net *net = sock_net(l->sk);
	enum sdp_layout layout;
	struct sdp_ends ends;
	struct sdp_msg hello;
	struct sdp_link *link;

	if (param->private_data_len < SDP_HELLO_LEN ||
	    !sdp_hello_layout(param->private_data, &layout) ||
	    layout != SDP_LAYOUT_IB ||
	    sdp_decode(layout, param->private_data, SDP_HELLO_LEN, &hello))
		return bad_hello(net);
	link = sdp_link_new(l->sk, false, &sdp_carrier_cm);
	if (!link)
		return -ENOMEM;
	link->layout = layout;
	link->hello_got = SDP_HELLO_LEN;
	memcpy(link->hello, param->private_data, SDP_HELLO_LEN);
	memcpy(&ends.local, &addr->src_addr, sizeof(ends.local));
	memcpy(&ends.remote, &addr->dst_addr, sizeof(ends.remote));
	map_end(&ends.local, l->sk);
	map_end(&ends.remote, l->sk);
	set_ends(link, &ends);
	link->cm_id = id;
	id->context = link;
	id->event_handler = on_event;
	if (sdp_listener_enter(l, link))
		return 0;
	link->cm_id = NULL;
	sdp_link_put(link);
	/* the peer may try again */
	rdma_reject(id, NULL, 0, IB_CM_REJ_NO_RESOURCES);
	return -EBUSY;
}

/* Listening ----------------------------------------------------------------------------- */

/* An address that rdma_cm listens on; of the listener's work item only */
struct port {
	struct list_head entry;		/* on sdp_cma_listener.ports */
	struct sdp_listener *l;
	struct rdma_cm_id *id;
	union sdp_end end;
	bool dead;			/* its device is being removed */
};

static LIST_HEAD(listeners);
/* Any context.  Only listeners on the list may have their work item queued. */
static DEFINE_SPINLOCK(listeners_lock);

static void look_after(struct sdp_listener *l)
{
	lockdep_assert_held(&listeners_lock);
	if (!list_empty(&l->cm.entry))
		queue_work(sdp_listen_wq, &l->cm.work);
}

void sdp_cma_refresh(void)
{
	struct sdp_listener *l;

	spin_lock_bh(&listeners_lock);
	list_for_each_entry(l, &listeners, cm.entry)
		look_after(l);
	spin_unlock_bh(&listeners_lock);
}

static int on_request(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct port *port = id->context;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return take_in(port->l, id, &event->param.conn);
	if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		WRITE_ONCE(port->dead, true);
		spin_lock_bh(&listeners_lock);
		look_after(port->l);
		spin_unlock_bh(&listeners_lock);
	}
	return 0;
}

static void close_port(struct port *port)
{
	list_del(&port->entry);
	rdma_destroy_id(port->id);
	kfree(port);
}

/* 0: listening, 1: the address is not for us, or a negative errno */
static int open_port(struct port *port)
{
	struct rdma_cm_id *id = port->id;
	struct sdp_device *dev;
	int ret;

	rdma_set_afonly(id, 1);
	ret = rdma_bind_addr(id, &port->end.any);
	/* no device has the address, or not yet */
	if (ret == -ENODEV)
		return 1;
	if (ret)
		return ret;
	dev = id->device ? sdp_device_of(id->device) : NULL;
	if (!dev)
		return 1;
	sdp_device_put(dev);
	return rdma_listen(id, READ_ONCE(port->l->sk->sk_max_ack_backlog));
}

static void try_address(struct sdp_listener *l, const union sdp_end *end)
{
	struct port *port;
	int ret;

	list_for_each_entry(port, &l->cm.ports, entry)
		if (same_address(&port->end, end))
			return;
	port = kzalloc(sizeof(*port), GFP_KERNEL);
	if (!port)
		return;
	port->l = l;
	port->end = *end;
	*port_of(&port->end) = htons(inet_sk(l->sk)->inet_num);
	port->id = rdma_create_id(sock_net(l->sk), on_request, port,
				  RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(port->id)) {
		kfree(port);
		return;
	}
	list_add_tail(&port->entry, &l->cm.ports);
	ret = open_port(port);
	if (ret < 0)
		sdp_count(sock_net(l->sk), SDP_STAT_CM_UNHEARD);
	if (ret)
		close_port(port);
}

struct addresses {
	u32 count;
	union sdp_end end[ADDRESSES];
};

static void add4(struct addresses *a, __be32 addr)
{
	if (a->count < ADDRESSES)
		a->end[a->count++].in = (struct sockaddr_in){
			.sin_family = AF_INET, .sin_addr.s_addr = addr,
		};
}

static void collect4(struct addresses *a, const struct net_device *ndev)
{
	const struct in_device *in = __in_dev_get_rcu(ndev);
	const struct in_ifaddr *ifa;

	if (!in)
		return;
	in_dev_for_each_ifa_rcu(ifa, in)
		add4(a, ifa->ifa_local);
}

static void add6(struct addresses *a, const struct in6_addr *addr, int ifindex)
{
	bool local = ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL;

	if (a->count < ADDRESSES)
		a->end[a->count++].in6 = (struct sockaddr_in6){
			.sin6_family = AF_INET6,
			.sin6_addr = *addr,
			.sin6_scope_id = local ? ifindex : 0,
		};
}

static void collect6(struct addresses *a, const struct net_device *ndev)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct inet6_dev *idev = __in6_dev_get(ndev);
	const struct inet6_ifaddr *ifa;

	if (!idev)
		return;
	read_lock_bh(&idev->lock);
	list_for_each_entry(ifa, &idev->addr_list, if_list)
		add6(a, &ifa->addr, ndev->ifindex);
	read_unlock_bh(&idev->lock);
#endif
}

/* Collect the socket's own address, or all addresses for the wildcard. */
static void collect(struct addresses *a, const struct sock *sk)
{
	const struct net_device *ndev;
	union sdp_end own;
	bool v4, v6;

	sdp_end_of(&own, sk, false);
	sdp_end_unmap(&own);
	v4 = own.any.sa_family == AF_INET;
	v6 = !v4;
	if (v4 && own.in.sin_addr.s_addr) {
		add4(a, own.in.sin_addr.s_addr);
		return;
	}
	if (v6 && !ipv6_addr_any(&own.in6.sin6_addr)) {
		add6(a, &own.in6.sin6_addr, sk->sk_bound_dev_if);
		return;
	}
	if (v6 && !ipv6_only_sock(sk))
		v4 = true;
	rcu_read_lock();
	for_each_netdev_rcu(sock_net(sk), ndev) {
		if (sk->sk_bound_dev_if && sk->sk_bound_dev_if != ndev->ifindex)
			continue;
		if (v4)
			collect4(a, ndev);
		if (v6)
			collect6(a, ndev);
	}
	rcu_read_unlock();
}

static void listen_work(struct work_struct *work)
{
	struct sdp_listener *l = container_of(work, struct sdp_listener, cm.work);
	struct port *port, *next;
	struct addresses *a;
	u32 i;

	list_for_each_entry_safe(port, next, &l->cm.ports, entry)
		if (READ_ONCE(port->dead))
			close_port(port);
	if (!sdp_device_foreign())
		return;
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		return;
	collect(a, l->sk);
	for (i = 0; i < a->count && !READ_ONCE(l->closed); i++)
		try_address(l, &a->end[i]);
	kfree(a);
}

void sdp_cma_prepare(struct sdp_listener *l)
{
	INIT_LIST_HEAD(&l->cm.entry);
	INIT_LIST_HEAD(&l->cm.ports);
	INIT_WORK(&l->cm.work, listen_work);
}

void sdp_cma_listen(struct sdp_listener *l)
{
	spin_lock_bh(&listeners_lock);
	/* it may be closed already: sdp_cma_unlisten() is not called again */
	if (!READ_ONCE(l->closed) && list_empty(&l->cm.entry))
		list_add_tail(&l->cm.entry, &listeners);
	if (sdp_device_foreign())
		look_after(l);
	spin_unlock_bh(&listeners_lock);
	/* so that a client that comes next is not refused */
	flush_work(&l->cm.work);
}

void sdp_cma_unlisten(struct sdp_listener *l)
{
	struct port *port, *next;

	spin_lock_bh(&listeners_lock);
	list_del_init(&l->cm.entry);
	spin_unlock_bh(&listeners_lock);
	cancel_work_sync(&l->cm.work);
	list_for_each_entry_safe(port, next, &l->cm.ports, entry)
		close_port(port);
}

/* The link's carrier ------------------------------------------------------- */

static int done(struct sdp_link *link)
{
	int ret = READ_ONCE(link->status);

	/* without TCP's socket it has no port to ask from; iWARP's MPA does not queue */
	if (ret == -EAGAIN)
		return link->tcp ? ask_again(link) : -ECONNREFUSED;
	if (ret)
		return ret;
	spin_lock_bh(&link->lock);
	if (link->phase == SDP_LINK_START && link->connector)
		ret = take_answer(link);
	else if (link->phase == SDP_LINK_START)
		sdp_link_up(link);
	spin_unlock_bh(&link->lock);
	return ret;
}

static int step(struct sdp_link *link)
{
	int ret = 0;

	if (test_and_clear_bit(SDP_EV_TCP, &link->events))
		ret = link->connector ? look_for_device(link) : answer(link);
	if (!ret && test_and_clear_bit(SDP_EV_ADDR, &link->events))
		ret = look_for_route(link);
	if (!ret && test_and_clear_bit(SDP_EV_ROUTE, &link->events))
		ret = say_hello(link);
	if (!ret && test_and_clear_bit(SDP_EV_DONE, &link->events))
		ret = done(link);
	if (ret != -ENODEV)
		return ret;
	sdp_count(link->seen.net, SDP_STAT_NO_DEVICE);
	return -ENETUNREACH;
}

/*
 * rdma_disconnect() ends the queue pair at once: first let all sends complete.
 * And it tells the peer only if the connection is established for rdma_cm.  A
 * message of the peer shows that it is, but can arrive before the CM's own.
 */
static void fin(struct sdp_link *link)
{
	bool waits, notify;

	spin_lock_bh(&link->lock);
	waits = !sdp_link_fin_due(link);
	notify = !link->cm_up;
	link->fin_waits = waits;
	spin_unlock_bh(&link->lock);
	/* on failure, the event comes when the CM's message has arrived */
	if (notify)
		rdma_notify(link->cm_id, IB_EVENT_COMM_EST);
	if (!waits && rdma_disconnect(link->cm_id))
		sdp_link_abort(link, link->error);
}

static void destroy(struct sdp_link *link)
{
	if (!link->cm_id)
		return;
	if (link->qp) {
		/* requests the disconnection, or confirms the peer's */
		rdma_disconnect(link->cm_id);
		ib_drain_qp(link->qp);
		rdma_destroy_qp(link->cm_id);
	}
	if (link->cq)
		ib_cq_pool_put(link->cq, SDP_CQES);
	/* waits for handlers: none runs afterwards */
	rdma_destroy_id(link->cm_id);
	link->cm_id = NULL;
}

const struct sdp_carrier_ops sdp_carrier_cm = {
	.step = step,
	.create_qp = create_qp,
	.fin = fin,
	.destroy = destroy,
};

/* New addresses ------------------------------------------------------------ */

static int on_address(struct notifier_block *nb, unsigned long event, void *data)
{
	if (event == NETDEV_UP && sdp_device_foreign())
		sdp_cma_refresh();
	return NOTIFY_DONE;
}

static struct notifier_block address4 = { .notifier_call = on_address };
static struct notifier_block address6 = { .notifier_call = on_address };

int sdp_cma_init(void)
{
	int ret = register_inetaddr_notifier(&address4);

	if (ret)
		return ret;
	ret = register_inet6addr_notifier(&address6);
	if (ret)
		unregister_inetaddr_notifier(&address4);
	return ret;
}

void sdp_cma_exit(void)
{
	unregister_inet6addr_notifier(&address6);
	unregister_inetaddr_notifier(&address4);
}
