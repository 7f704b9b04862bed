// SPDX-License-Identifier: GPL-2.0
/*
 * RDMA devices, see device.h.
 */
#include <linux/inetdevice.h>
#include <linux/module.h>
#include <net/addrconf.h>
#include <net/dst.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/sock.h>

#include "cma.h"
#include "device.h"
#include "link.h"
#include "netns.h"

static LIST_HEAD(devices);
static DEFINE_MUTEX(devices_mutex);
/* Number of devices that are not softwarp's */
static atomic_t foreign = ATOMIC_INIT(0);

static struct ib_client client;

static void release(struct kref *ref)
{
	struct sdp_device *dev = container_of(ref, struct sdp_device, ref);

	complete(&dev->gone);
}

void sdp_device_put(struct sdp_device *dev)
{
	kref_put(&dev->ref, release);
}

/*
 * softwarp's start-up API, without a dependency on its module: softwarp.ko is
 * loaded as long as its device is registered, and remove() runs before that
 * ends.
 */
static const struct swp_startup_api *startup_of(struct ib_device *ib)
{
	const struct swp_startup_api *api = symbol_get(swp_startup_api);
	struct swp_startup_caps caps;
	bool ours;

	if (!api)
		return NULL;
	ours = api->version == SWP_STARTUP_VERSION && !api->query(ib, &caps);
	symbol_put(swp_startup_api);
	return ours ? api : NULL;
}

/* Whether rdma_cm can connect the device */
static bool connectable(struct ib_device *ib)
{
	u32 port;

	rdma_for_each_port(ib, port)
		if (rdma_cap_ib_cm(ib, port) || rdma_cap_iw_cm(ib, port))
			return true;
	return false;
}

/* A port's address has changed: listeners may have more to listen on. */
static void on_ib_event(struct ib_event_handler *h, struct ib_event *event)
{
	if (event->event == IB_EVENT_GID_CHANGE)
		sdp_cma_refresh();
}

static void add_foreign(struct sdp_device *dev)
{
	atomic_inc(&foreign);
	INIT_IB_EVENT_HANDLER(&dev->events, dev->ib, on_ib_event);
	ib_register_event_handler(&dev->events);
	sdp_cma_refresh();
}

static int add(struct ib_device *ib)
{
	const struct swp_startup_api *api = startup_of(ib);
	struct sdp_device *dev;

	if (!api && !connectable(ib))
		return -EOPNOTSUPP;
	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	dev->pd = ib_alloc_pd(ib, 0);
	if (IS_ERR(dev->pd)) {
		int ret = PTR_ERR(dev->pd);

		kfree(dev);
		return ret;
	}
	dev->ib = ib;
	dev->api = api;
	kref_init(&dev->ref);
	init_completion(&dev->gone);
	mutex_init(&dev->mutex);
	INIT_LIST_HEAD(&dev->links);
	ib_set_client_data(ib, &client, dev);
	mutex_lock(&devices_mutex);
	list_add_tail(&dev->entry, &devices);
	mutex_unlock(&devices_mutex);
	if (!api)
		add_foreign(dev);
	return 0;
}

static void remove(struct ib_device *ib, void *data)
{
	struct sdp_device *dev = data;
	struct sdp_link *link;

	if (!dev->api) {
		ib_unregister_event_handler(&dev->events);
		atomic_dec(&foreign);
	}
	mutex_lock(&devices_mutex);
	list_del(&dev->entry);
	mutex_unlock(&devices_mutex);
	mutex_lock(&dev->mutex);
	dev->leaving = true;
	list_for_each_entry(link, &dev->links, on_device)
		sdp_link_abort(link, ENETDOWN);
	mutex_unlock(&dev->mutex);
	sdp_device_put(dev);
	wait_for_completion(&dev->gone);
	ib_dealloc_pd(dev->pd);
	mutex_destroy(&dev->mutex);
	kfree(dev);
}

static struct ib_client client = {
	.name = "softwarp_sdp",
	.add = add,
	.remove = remove,
};

static struct sdp_device *over(const struct net_device *ndev)
{
	struct sdp_device *dev, *found = NULL;
	struct swp_startup_caps caps;

	mutex_lock(&devices_mutex);
	list_for_each_entry(dev, &devices, entry) {
		if (!dev->api || dev->api->query(dev->ib, &caps) ||
		    caps.netdev != ndev)
			continue;
		kref_get(&dev->ref);
		found = dev;
		break;
	}
	mutex_unlock(&devices_mutex);
	return found;
}

/* The netdev that has the address, which is not an IPv4-mapped one */
static struct net_device *owner_of(struct net *net, const union sdp_end *own)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (own->any.sa_family == AF_INET6) {
		struct net_device *ndev, *found = NULL;

		rcu_read_lock();
		for_each_netdev_rcu(net, ndev) {
			/* strict: on this netdev, not on any */
			if (!ipv6_chk_addr(net, &own->in6.sin6_addr, ndev, 1))
				continue;
			dev_hold(ndev);
			found = ndev;
			break;
		}
		rcu_read_unlock();
		return found;
	}
#endif
	return ip_dev_find(net, own->in.sin_addr.s_addr);
}

struct sdp_device *sdp_device_at(struct net *net, const union sdp_end *end)
{
	struct net_device *ndev;
	union sdp_end own = *end;
	struct sdp_device *dev;

	sdp_end_unmap(&own);
	ndev = owner_of(net, &own);
	if (!ndev)
		return NULL;
	dev = over(ndev);
	dev_put(ndev);
	return dev;
}

struct sdp_device *sdp_device_find(struct net *net, const struct sock *sk)
{
	struct dst_entry *dst = sk_dst_get((struct sock *)sk);
	struct sdp_device *dev = NULL;
	union sdp_end own;

	if (dst) {
		dev = over(dst->dev);
		dst_release(dst);
	}
	if (dev)
		return dev;
	sdp_end_of(&own, sk, false);
	return sdp_device_at(net, &own);
}

bool sdp_device_is_softwarps(struct net *net, const struct net_device *ndev,
			     const union sdp_end *own)
{
	struct sdp_device *dev = over(ndev);

	if (!dev && (ndev->flags & IFF_LOOPBACK))
		dev = sdp_device_at(net, own);
	if (!dev)
		return false;
	sdp_device_put(dev);
	return true;
}

/* Devices that are not softwarp's ------------------------------------------ */

bool sdp_device_foreign(void)
{
	return atomic_read(&foreign);
}

struct sdp_device *sdp_device_of(struct ib_device *ib)
{
	struct sdp_device *dev, *found = NULL;

	mutex_lock(&devices_mutex);
	list_for_each_entry(dev, &devices, entry) {
		if (dev->ib != ib || dev->api)
			continue;
		kref_get(&dev->ref);
		found = dev;
		break;
	}
	mutex_unlock(&devices_mutex);
	return found;
}

int sdp_device_depths(struct sdp_device *dev, u32 *ird, u32 *ord)
{
	struct swp_startup_caps caps;
	int ret;

	if (!dev->api) {
		*ird = dev->ib->attrs.max_qp_rd_atom;
		*ord = dev->ib->attrs.max_qp_init_rd_atom;
		return 0;
	}
	ret = dev->api->query(dev->ib, &caps);
	*ird = ret ? 0 : caps.ird;
	*ord = ret ? 0 : caps.ord;
	return ret;
}

int sdp_device_init(void)
{
	return ib_register_client(&client);
}

void sdp_device_exit(void)
{
	ib_unregister_client(&client);
}
