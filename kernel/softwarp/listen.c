// SPDX-License-Identifier: GPL-2.0
/*
 * Listening.
 *
 * rdma_cm repeats a listen on the wildcard address on every RDMA device, and
 * accepts a connection request only from the device whose netdev owns the
 * connection's local address, whatever interface received the SYN.  So all
 * devices of a network namespace share one TCP socket per address and port, the
 * hub, which is bound to no interface.  The hub gives an accepted connection to
 * the listener of the device that owns its local address.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/memcontrol.h>
#include <linux/nsproxy.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <rdma/rdma_cm.h>

#include "ep.h"
#include "iwcm.h"

/* Hash table of the sources of a listener's pending connections */
#define SWP_SOURCES		64

/* Connections accepted from a socket before other work gets the CPU */
#define SWP_ACCEPT_BATCH	64

/* Milliseconds until the next try, if accept() has no memory */
#define SWP_ACCEPT_RETRY_MS	20

/*
 * A connection without memory for an endpoint delays those behind it, and the
 * limit may be that of one listener's owner.  So hold a connection at most
 * SWP_HOLD_MS, and then no other one of this listener before SWP_HOLD_PAUSE_MS,
 * both in milliseconds.
 */
#define SWP_HOLD_MS		100
#define SWP_HOLD_PAUSE_MS	2000

struct swp_hub {
	struct list_head entry;		/* hub_mutex */
	struct net *net;		/* held by the socket */
	struct sockaddr_storage addr;
	bool v6only;
	unsigned int users;		/* hub_mutex */
	struct swp_lls lls;
	struct delayed_work accept_work;
	struct swp_llp *held;		/* accepted, waits for an endpoint */
	unsigned long held_until;
	spinlock_t lock;		/* protects the list below */
	struct list_head listeners;
};

struct swp_listener {
	struct kref ref;
	struct swp_device *dev;
	struct list_head dev_entry;	/* dev->cm_lock */
	struct swp_hub *hub;		/* NULL: other namespace, no socket */
	struct list_head hub_entry;	/* hub->lock */
	struct iw_cm_id *id;		/* NULL: of QPs that wait for a peer */
	const struct swp_ulp *ulp;	/* of its endpoints */
	struct sockaddr_storage addr;
	bool v6only;
	int tos;			/* -1: not set */
	u32 users;			/* without id: QPs; hub_mutex */
	struct mem_cgroup *memcg;	/* charged for incoming connections */

	spinlock_t lock;		/* protects all below */
	bool dead;			/* no event on id any more */
	struct list_head pending;	/* endpoints up to OFFERING */
	u32 npending;
	unsigned long hold_again;	/* only for the hub's accept_work */
	struct list_head reported;	/* endpoints in REPORTED */
	/* pending endpoints by the source of the connection */
	struct hlist_head sources[SWP_SOURCES];
};

static siphash_key_t source_key;
static DEFINE_MUTEX(hub_mutex);
static LIST_HEAD(hubs);

/* Listeners ---------------------------------------------------------------- */

/* The device waits for this, so a reference makes lis->dev safe to use. */
static void listener_free(struct kref *ref)
{
	struct swp_listener *lis = container_of(ref, struct swp_listener, ref);

	spin_lock_bh(&lis->dev->cm_lock);
	lis->dev->num_listeners--;
	spin_unlock_bh(&lis->dev->cm_lock);
	wake_up_all(&swp_cm_idle);
	mem_cgroup_put(lis->memcg);
	kfree(lis);
}

static void listener_put(struct swp_listener *lis)
{
	kref_put(&lis->ref, listener_free);
}

static void pending_less(struct swp_listener *lis, struct swp_ep *ep)
{
	lockdep_assert_held(&lis->lock);
	hlist_del_init(&ep->source_entry);
	lis->npending--;
}

void swp_listener_leave(struct swp_ep *ep)
{
	struct swp_listener *lis = ep->lis;

	lockdep_assert_held(&ep->mutex);
	if (!lis)
		return;
	spin_lock_bh(&lis->lock);
	list_del_init(&ep->lis_entry);
	if (ep->state < SWP_EP_REPORTED)
		pending_less(lis, ep);
	spin_unlock_bh(&lis->lock);
	ep->lis = NULL;
	ep->memcg = NULL;
	listener_put(lis);
}

int swp_listener_report(struct swp_ep *ep, struct iw_cm_event *ev)
{
	struct swp_listener *lis = ep->lis;
	int ret;

	lockdep_assert_held(&ep->mutex);
	/* accept and reject may be called at once; they wait for the mutex */
	spin_lock_bh(&lis->lock);
	ret = lis->dead ? -ESHUTDOWN : lis->id->event_handler(lis->id, ev);
	if (!ret) {
		ep->state = SWP_EP_REPORTED;
		list_move_tail(&ep->lis_entry, &lis->reported);
		pending_less(lis, ep);
	}
	spin_unlock_bh(&lis->lock);
	return ret;
}

bool swp_listener_is_dead(struct swp_listener *lis)
{
	bool dead;

	spin_lock_bh(&lis->lock);
	dead = lis->dead;
	spin_unlock_bh(&lis->lock);
	return dead;
}

/* Hubs --------------------------------------------------------------------- */

/*
 * The interface that owns a local address, found as rdma_cm does it.  Under
 * rcu_read_lock().
 */
static struct net_device *addr_netdev(struct net *net,
				      const struct sockaddr_storage *a,
				      int ifindex)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	struct net_device *ndev;

	if (a->ss_family == AF_INET)
		return __ip_dev_find(net,
			((const struct sockaddr_in *)a)->sin_addr.s_addr,
			false);
#if IS_ENABLED(CONFIG_IPV6)
	/* several interfaces may have the same link-local address */
	if (ifindex && ipv6_addr_type(&in6->sin6_addr) & IPV6_ADDR_LINKLOCAL)
		return dev_get_by_index_rcu(net, ifindex);
	for_each_netdev_rcu(net, ndev)
		if (ipv6_chk_addr(net, &in6->sin6_addr, ndev, 1))
			return ndev;
#endif
	return NULL;
}

/* The listener of the device on @ndev, with a reference; or NULL. */
static struct swp_listener *hub_find(struct swp_hub *hub,
				     const struct net_device *ndev)
{
	struct swp_listener *lis;

	spin_lock_bh(&hub->lock);
	list_for_each_entry(lis, &hub->listeners, hub_entry) {
		if (lis->dev->netdev == ndev) {
			kref_get(&lis->ref);
			spin_unlock_bh(&hub->lock);
			return lis;
		}
	}
	spin_unlock_bh(&hub->lock);
	return NULL;
}

static struct swp_listener *hub_route(struct swp_hub *hub,
				      const struct sockaddr_storage *local,
				      int ifindex)
{
	struct swp_listener *lis = NULL;
	struct net_device *ndev;

	rcu_read_lock();
	ndev = addr_netdev(hub->net, local, ifindex);
	if (ndev)
		lis = hub_find(hub, ndev);
	/* rdma_cm lets a device serve the VLANs on its netdev */
	if (!lis && ndev && is_vlan_dev(ndev))
		lis = hub_find(hub, vlan_dev_real_dev(ndev));
	rcu_read_unlock();
	return lis;
}

/* A connection for no device: send RST, count it at one that listens here. */
static void hub_stray(struct swp_hub *hub, struct swp_llp *llp,
		      const struct sockaddr_storage *local)
{
	struct swp_listener *lis;

	spin_lock_bh(&hub->lock);
	/* NULL: the last listener is being closed, and the socket with it */
	lis = list_first_entry_or_null(&hub->listeners, struct swp_listener,
				       hub_entry);
	if (lis) {
		swp_stat_inc(lis->dev, CONN_FAILED);
		pr_warn_ratelimited("connection to %pISpc, an address of no listening device\n",
				    local);
	}
	spin_unlock_bh(&hub->lock);
	swp_llp_abort(llp);
	swp_llp_put(llp);
}

/* The source of a connection: the peer's IPv4 address, or its IPv6 /64. */
static u64 source_of(const struct sockaddr_storage *remote)
{
	if (remote->ss_family == AF_INET)
		return (__force u32)
		       ((const struct sockaddr_in *)remote)->sin_addr.s_addr;
	return get_unaligned((const u64 *)
			     &((const struct sockaddr_in6 *)remote)->sin6_addr);
}

/*
 * Half of a listener's places are for any source.  When they are taken, a
 * source with its share of places gets no more, so that it cannot keep others
 * out.
 */
static bool has_room(struct swp_listener *lis, struct hlist_head *sources,
		     u64 source)
{
	u32 max = READ_ONCE(swp_params.max_pending);
	u32 share = READ_ONCE(swp_params.max_pending_source);
	struct swp_ep *ep;
	u32 n = 0;

	if (lis->npending >= max)
		return false;
	if (lis->npending < max / 2)
		return true;
	hlist_for_each_entry(ep, sources, source_entry)
		if (ep->source == source && ++n >= share)
			return false;
	return true;
}

/* Adds an endpoint to the listener.  False: it has too many, or is closing. */
static bool admit(struct swp_listener *lis, struct swp_ep *ep,
		  const struct sockaddr_storage *remote)
{
	struct hlist_head *sources;
	bool ok;

	ep->source = source_of(remote);
	sources = lis->sources + siphash_1u64(ep->source, &source_key) %
				 SWP_SOURCES;
	spin_lock_bh(&lis->lock);
	ok = !lis->dead && has_room(lis, sources, ep->source);
	if (ok) {
		kref_get(&lis->ref);
		ep->lis = lis;
		ep->memcg = lis->memcg;
		lis->npending++;
		list_add_tail(&ep->lis_entry, &lis->pending);
		hlist_add_head(&ep->source_entry, sources);
	}
	spin_unlock_bh(&lis->lock);
	return ok;
}

/* May a connection of this listener wait for memory, and so delay others? */
static bool may_hold(struct swp_hub *hub, struct swp_listener *lis)
{
	if (hub->held)
		return time_before(jiffies, hub->held_until);
	if (time_before(jiffies, lis->hold_again))
		return false;
	hub->held_until = jiffies + msecs_to_jiffies(SWP_HOLD_MS);
	lis->hold_again = jiffies + msecs_to_jiffies(SWP_HOLD_PAUSE_MS);
	return true;
}

/* -ENOMEM: the caller keeps @llp and tries again; there may be memory then. */
static int hub_incoming(struct swp_hub *hub, struct swp_llp *llp)
{
	struct sockaddr_storage local, remote;
	struct swp_listener *lis;
	struct mem_cgroup *old;
	struct swp_ep *ep;
	int ifindex;

	if (swp_llp_names(llp, &local, &remote, &ifindex)) {
		/* the peer has reset it */
		swp_llp_put(llp);
		return 0;
	}
	lis = hub_route(hub, &local, ifindex);
	if (!lis) {
		hub_stray(hub, llp, &local);
		return 0;
	}

	old = set_active_memcg(lis->memcg);
	ep = swp_ep_new(lis->dev, lis->ulp, SWP_EP_WAIT_REQUEST);
	set_active_memcg(old);
	if (IS_ERR(ep)) {
		bool hold = PTR_ERR(ep) == -ENOMEM && may_hold(hub, lis);

		if (!hold)
			swp_stat_inc(lis->dev, PENDING_DROP);
		listener_put(lis);
		if (hold)
			return -ENOMEM;
		swp_llp_abort(llp);
		swp_llp_put(llp);
		return 0;
	}
	ep->llp = llp;
	if (!admit(lis, ep, &remote)) {
		swp_stat_inc(lis->dev, PENDING_DROP);
		swp_ep_discard(ep, -ENOBUFS, SWP_DROP_RST);
	} else {
		swp_ep_start_timer(ep);
		swp_ep_own(ep, llp);
	}
	swp_ep_release(ep);
	listener_put(lis);
	return 0;
}

static void hub_drop_held(struct swp_hub *hub)
{
	if (!hub->held)
		return;
	swp_llp_abort(hub->held);
	swp_llp_put(hub->held);
	hub->held = NULL;
}

/* The next connection: the one that waits for memory, or a new one. */
static struct swp_llp *hub_next(struct swp_hub *hub)
{
	return hub->held ?: swp_lls_accept(&hub->lls);
}

static void hub_accept(struct work_struct *work)
{
	struct swp_hub *hub = container_of(to_delayed_work(work),
					   struct swp_hub, accept_work);
	struct swp_llp *llp;
	int n, ret = 0;

	for (n = 0; n < SWP_ACCEPT_BATCH; n++) {
		llp = hub_next(hub);
		ret = PTR_ERR_OR_ZERO(llp);
		if (ret == -EAGAIN)
			return;
		if (!ret) {
			ret = hub_incoming(hub, llp);
			hub->held = ret ? llp : NULL;
		}
		if (ret && ret != -ECONNABORTED)
			break;
		cond_resched();
	}
	if (n == SWP_ACCEPT_BATCH) {
		queue_delayed_work(swp_cm_wq, &hub->accept_work, 0);
		return;
	}
	pr_warn_ratelimited("accept: %d, trying again\n", ret);
	queue_delayed_work(swp_cm_wq, &hub->accept_work,
			   msecs_to_jiffies(SWP_ACCEPT_RETRY_MS));
}

static void hub_ready(void *arg)
{
	struct swp_hub *hub = arg;

	mod_delayed_work(swp_cm_wq, &hub->accept_work, 0);
}

static bool addr_equal(const struct sockaddr_storage *a,
		       const struct sockaddr_storage *b)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_port == b4->sin_port &&
		       a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a6->sin6_port == b6->sin6_port &&
	       a6->sin6_scope_id == b6->sin6_scope_id &&
	       ipv6_addr_equal(&a6->sin6_addr, &b6->sin6_addr);
}

static void hub_free(struct swp_hub *hub)
{
	lockdep_assert_held(&hub_mutex);
	list_del(&hub->entry);
	/* close the socket last: hub_accept() may still use it */
	swp_lls_quiesce(&hub->lls);
	cancel_delayed_work_sync(&hub->accept_work);
	hub_drop_held(hub);
	swp_lls_close(&hub->lls);
	kfree(hub);
}

/* Joins the hub of the address; the first listener creates it. */
static int hub_join(struct swp_listener *lis, struct net *net, int backlog)
{
	const struct sockaddr_storage *addr = &lis->addr;
	struct swp_listener *other;
	struct swp_hub *hub;
	int ret;

	lockdep_assert_held(&hub_mutex);
	list_for_each_entry(hub, &hubs, entry) {
		if (!net_eq(hub->net, net) || !addr_equal(&hub->addr, addr))
			continue;
		if (hub->v6only != lis->v6only)
			return -EADDRINUSE;
		other = hub_find(hub, lis->dev->netdev);
		if (other) {
			listener_put(other);
			return -EADDRINUSE;
		}
		goto join;
	}

	hub = kzalloc(sizeof(*hub), GFP_KERNEL);
	if (!hub)
		return -ENOMEM;
	hub->net = net;
	hub->addr = *addr;
	hub->v6only = lis->v6only;
	spin_lock_init(&hub->lock);
	INIT_LIST_HEAD(&hub->listeners);
	INIT_DELAYED_WORK(&hub->accept_work, hub_accept);
	/* do this before the socket listens, for its first connection */
	list_add(&lis->hub_entry, &hub->listeners);
	/*
	 * Listeners with larger backlogs may join later.  A connection waits
	 * here only for hub_accept(), not for the ULP.
	 */
	ret = swp_lls_open(&hub->lls, net, addr, lis->v6only, lis->tos,
			   max(backlog, 1024), hub_ready, hub);
	if (ret) {
		kfree(hub);
		return ret;
	}
	list_add(&hub->entry, &hubs);
	hub->users = 1;
	lis->hub = hub;
	return 0;

join:
	hub->users++;
	lis->hub = hub;
	spin_lock_bh(&hub->lock);
	list_add_tail(&lis->hub_entry, &hub->listeners);
	spin_unlock_bh(&hub->lock);
	return 0;
}

static void hub_leave(struct swp_listener *lis)
{
	struct swp_hub *hub = lis->hub;

	lockdep_assert_held(&hub_mutex);
	if (!hub)
		return;
	lis->hub = NULL;
	spin_lock_bh(&hub->lock);
	list_del(&lis->hub_entry);
	spin_unlock_bh(&hub->lock);
	if (!--hub->users)
		hub_free(hub);
}

/*
 * The network namespace of a listening id.  iw_cm does not have it, but its
 * only user is rdma_cm, whose id is the context.
 */
static struct net *listen_net(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *cid = id->context;

	if (cid && cid->device == id->device && cid->route.addr.dev_addr.net)
		return cid->route.addr.dev_addr.net;
	if (!(current->flags & PF_KTHREAD) && current->nsproxy)
		return current->nsproxy->net_ns;
	return NULL;
}

static struct swp_listener *listener_new(struct swp_device *dev,
					 const struct swp_ulp *ulp)
{
	struct swp_listener *lis = kzalloc(sizeof(*lis), GFP_KERNEL_ACCOUNT);

	if (!lis)
		return NULL;
	kref_init(&lis->ref);
	spin_lock_init(&lis->lock);
	INIT_LIST_HEAD(&lis->pending);
	INIT_LIST_HEAD(&lis->reported);
	lis->hold_again = jiffies;
	lis->dev = dev;
	lis->ulp = ulp;
	spin_lock_bh(&dev->cm_lock);
	dev->num_listeners++;
	spin_unlock_bh(&dev->cm_lock);
	return lis;
}

/*
 * Adds a listener to its device, and has it listen.  On failure the caller puts
 * it.  @id_net: the namespace of the ULP, NULL: that of the netdev.
 */
static int listener_open(struct swp_listener *lis, const struct net *id_net,
			 int backlog)
{
	struct swp_device *dev = lis->dev;
	struct net *net;
	int ret = 0;

	lockdep_assert_held(&hub_mutex);
	rcu_read_lock();
	net = maybe_get_net(dev_net(dev->netdev));
	rcu_read_unlock();
	spin_lock_bh(&dev->cm_lock);
	if (dev->cm_dead || !net)
		ret = -ENODEV;
	else
		list_add_tail(&lis->dev_entry, &dev->listeners);
	spin_unlock_bh(&dev->cm_lock);
	/*
	 * rdma_cm also repeats a wildcard listen on devices whose netdev is in
	 * another namespace, but accepts no connection from them.
	 */
	if (!ret && (!id_net || net_eq(id_net, net))) {
		ret = hub_join(lis, net, backlog);
		if (ret) {
			spin_lock_bh(&dev->cm_lock);
			list_del(&lis->dev_entry);
			spin_unlock_bh(&dev->cm_lock);
		}
	}
	if (net)
		put_net(net);
	return ret;
}

int swp_cm_listen(struct iw_cm_id *id, int backlog)
{
	struct swp_listener *lis;
	int ret;

	if (id->m_local_addr.ss_family != AF_INET &&
	    id->m_local_addr.ss_family != AF_INET6)
		return -EAFNOSUPPORT;

	lis = listener_new(to_swp_dev(id->device), &swp_iwcm_ulp);
	if (!lis)
		return -ENOMEM;
	lis->id = id;
	lis->addr = id->m_local_addr;
	lis->v6only = id->afonly;
	lis->tos = id->tos_set ? id->tos : -1;
	/* NULL, or that of the root, for a kernel consumer */
	lis->memcg = get_mem_cgroup_from_mm(current->mm);

	mutex_lock(&hub_mutex);
	ret = listener_open(lis, listen_net(id), backlog);
	if (!ret) {
		id->add_ref(id);
		id->provider_data = lis;
	}
	mutex_unlock(&hub_mutex);
	if (ret)
		listener_put(lis);
	return ret;
}

/* After this there is no event on the listening id, and no new endpoint. */
static void listener_close(struct swp_listener *lis)
{
	struct swp_ep *ep;

	lockdep_assert_held(&hub_mutex);
	hub_leave(lis);
	spin_lock_bh(&lis->lock);
	lis->dead = true;
	list_for_each_entry(ep, &lis->pending, lis_entry)
		swp_ep_kill(ep, -ESHUTDOWN);
	/*
	 * iw_cm drops the events that it has not processed yet, and does not
	 * say which.  The ULP may still answer the others for a limited time;
	 * after that, an answer finds no endpoint.
	 */
	list_for_each_entry(ep, &lis->reported, lis_entry)
		swp_ep_expire(ep, swp_params.handshake_ms / 2);
	spin_unlock_bh(&lis->lock);
}

/* The same for a listener that no ULP can use any more; the caller puts it. */
static void listener_end(struct swp_listener *lis)
{
	lockdep_assert_held(&hub_mutex);
	listener_close(lis);
	spin_lock_bh(&lis->dev->cm_lock);
	list_del(&lis->dev_entry);
	spin_unlock_bh(&lis->dev->cm_lock);
}

int swp_cm_destroy_listen(struct iw_cm_id *id)
{
	struct swp_listener *lis = id->provider_data;

	if (!lis)
		return 0;
	id->provider_data = NULL;
	mutex_lock(&hub_mutex);
	listener_end(lis);
	mutex_unlock(&hub_mutex);
	id->rem_ref(id);
	listener_put(lis);
	return 0;
}

/* QPs that wait for a peer -------------------------------------------------- */

/* Backlog of the socket; a connection waits there only for hub_accept(). */
#define SWP_SHARED_BACKLOG	1024

/* Listens on any address: of IPv6 and IPv4, or of IPv4 if there is no IPv6. */
static int share_open(struct swp_listener *lis, u16 port)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&lis->addr;
	struct sockaddr_in *in = (struct sockaddr_in *)&lis->addr;
	int ret;

	lockdep_assert_held(&hub_mutex);
	lis->tos = -1;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	ret = listener_open(lis, NULL, SWP_SHARED_BACKLOG);
	if (ret != -EAFNOSUPPORT)
		return ret;
	memset(&lis->addr, 0, sizeof(lis->addr));
	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	return listener_open(lis, NULL, SWP_SHARED_BACKLOG);
}

static u16 port_of(const struct swp_listener *lis)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&lis->addr;

	/* at the same place for both families */
	return ntohs(in->sin_port);
}

/* Use the listener that there is; -ENOENT: there is none. */
static int share_join(struct swp_device *dev, u16 port)
{
	struct swp_listener *lis = dev->shared;

	lockdep_assert_held(&hub_mutex);
	if (!lis)
		return -ENOENT;
	/* after the end of the listener no peer would come */
	if (lis->dead)
		return -ENODEV;
	/* the parameter has changed: peers come to the other one */
	if (port_of(lis) != port)
		return -EADDRINUSE;
	lis->users++;
	return 0;
}

struct share {
	struct work_struct work;
	struct swp_device *dev;
	const struct swp_ulp *ulp;
	u16 port;
	int ret;
};

static int share_new(const struct share *s)
{
	struct swp_listener *lis;
	int ret;

	lockdep_assert_held(&hub_mutex);
	lis = listener_new(s->dev, s->ulp);
	if (!lis)
		return -ENOMEM;
	ret = share_open(lis, s->port);
	if (ret) {
		listener_put(lis);
		return ret;
	}
	lis->users = 1;
	s->dev->shared = lis;
	return 0;
}

static void share_work(struct work_struct *work)
{
	struct share *s = container_of(work, struct share, work);

	mutex_lock(&hub_mutex);
	s->ret = share_join(s->dev, s->port);
	if (s->ret == -ENOENT)
		s->ret = share_new(s);
	mutex_unlock(&hub_mutex);
}

int swp_listener_share(struct swp_device *dev, const struct swp_ulp *ulp,
		       u16 port)
{
	struct share s = { .dev = dev, .ulp = ulp, .port = port };

	mutex_lock(&hub_mutex);
	s.ret = share_join(dev, port);
	mutex_unlock(&hub_mutex);
	if (s.ret != -ENOENT)
		return s.ret;
	/*
	 * The socket is everybody's who will wait there.  So it gets nothing of the
	 * process that happens to be the first: neither its cgroup, whose BPF
	 * programs may filter, nor its rights, which a port below 1024 needs.
	 */
	INIT_WORK_ONSTACK(&s.work, share_work);
	queue_work(swp_cm_wq, &s.work);
	flush_work(&s.work);
	destroy_work_on_stack(&s.work);
	return s.ret;
}

void swp_listener_unshare(struct swp_device *dev)
{
	struct swp_listener *lis;

	mutex_lock(&hub_mutex);
	lis = dev->shared;
	if (!--lis->users) {
		dev->shared = NULL;
		listener_end(lis);
	} else {
		lis = NULL;
	}
	mutex_unlock(&hub_mutex);
	if (lis)
		listener_put(lis);
}

/* Device and module -------------------------------------------------------- */

void swp_listen_stop(struct swp_device *dev)
{
	struct swp_listener *lis;

	mutex_lock(&hub_mutex);
	spin_lock_bh(&dev->cm_lock);
	dev->cm_dead = true;
	spin_unlock_bh(&dev->cm_lock);
	/* with cm_dead set and the mutex held the list does not change */
	list_for_each_entry(lis, &dev->listeners, dev_entry)
		listener_close(lis);
	mutex_unlock(&hub_mutex);
}

void swp_listen_init(void)
{
	get_random_bytes(&source_key, sizeof(source_key));
}
