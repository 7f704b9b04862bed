// SPDX-License-Identifier: GPL-2.0
/*
 * The GIDs of a device: first the one by which rdma_cm finds it (device.c), then
 * the IP addresses of its netdev, IPv4-mapped or as they are.  QPs that
 * ibv_modify_qp() connects name each other by these.
 */
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/ipv6.h>

#include "device.h"
#include "ep.h"
#include "proto/pair.h"

static_assert(sizeof(union ib_gid) == SWP_PAIR_GID_LEN);

/* The table ----------------------------------------------------------------- */

struct found {
	union ib_gid addr[SWP_GIDS - 1];
	unsigned int num;
};

static bool is_in(const union ib_gid *table, unsigned int num,
		  const union ib_gid *gid)
{
	while (num--)
		if (!memcmp(table++, gid, sizeof(*gid)))
			return true;
	return false;
}

static void note(struct found *f, const void *addr)
{
	union ib_gid gid;

	memcpy(&gid, addr, sizeof(gid));
	if (f->num < ARRAY_SIZE(f->addr) &&
	    swp_gid_kind(gid.raw) != SWP_GID_NOBODY &&
	    !is_in(f->addr, f->num, &gid))
		f->addr[f->num++] = gid;
}

/* The addresses that the netdev has now */
static void find(const struct net_device *ndev, struct found *f)
{
	const struct in_device *in_dev;
	const struct in_ifaddr *ifa;
	struct in6_addr mapped;

	rcu_read_lock();
	in_dev = __in_dev_get_rcu(ndev);
	if (in_dev) {
		in_dev_for_each_ifa_rcu(ifa, in_dev) {
			ipv6_addr_set_v4mapped(ifa->ifa_local, &mapped);
			note(f, &mapped);
		}
	}
#if IS_ENABLED(CONFIG_IPV6)
	{
		struct inet6_dev *idev = __in6_dev_get(ndev);
		const struct inet6_ifaddr *ifp;

		if (idev) {
			read_lock_bh(&idev->lock);
			list_for_each_entry(ifp, &idev->addr_list, if_list)
				note(f, &ifp->addr);
			read_unlock_bh(&idev->lock);
		}
	}
#endif
	rcu_read_unlock();
}

/* The link-local address that belongs to the first GID */
static void first_address(const struct swp_device *dev, union ib_gid *addr)
{
	*addr = dev->gid;
	if (swp_gid_kind(dev->gid.raw) == SWP_GID_MAC)
		swp_gid_from_mac(dev->gid.raw, addr->raw);
}

static void drop(struct found *f, const union ib_gid *gid)
{
	unsigned int i;

	for (i = 0; i < f->num; i++)
		if (!memcmp(&f->addr[i], gid, sizeof(*gid)))
			f->addr[i] = f->addr[--f->num];
}

/* Takes over the addresses of the netdev.  True: the table has changed. */
static bool refresh(struct swp_device *dev)
{
	struct swp_gids *g = &dev->gids;
	struct found f = {};
	union ib_gid first;
	bool changed = false;
	unsigned int i;

	find(dev->netdev, &f);
	first_address(dev, &first);
	spin_lock_bh(&g->lock);
	g->first_is_addr = is_in(f.addr, f.num, &first);
	/* the first place of the table has it already */
	if (swp_gid_kind(dev->gid.raw) == SWP_GID_LINK_LOCAL)
		drop(&f, &first);
	for (i = 0; i < ARRAY_SIZE(g->addr); i++) {
		if (is_in(f.addr, f.num, &g->addr[i])) {
			drop(&f, &g->addr[i]);
		} else if (swp_gid_kind(g->addr[i].raw) != SWP_GID_NOBODY) {
			memset(&g->addr[i], 0, sizeof(g->addr[i]));
			changed = true;
		}
	}
	for (i = 0; i < ARRAY_SIZE(g->addr) && f.num; i++) {
		if (swp_gid_kind(g->addr[i].raw) != SWP_GID_NOBODY)
			continue;
		g->addr[i] = f.addr[0];
		drop(&f, &g->addr[i]);
		changed = true;
	}
	spin_unlock_bh(&g->lock);
	return changed;
}

static void gids_work(struct work_struct *work)
{
	struct swp_device *dev = container_of(work, struct swp_device,
					      gids.work);
	struct ib_event ev = {
		.device = &dev->base,
		.element.port_num = 1,
		.event = IB_EVENT_GID_CHANGE,
	};

	/* the core reads the table again */
	if (refresh(dev))
		ib_dispatch_event(&ev);
	ib_device_put(&dev->base);
}

void swp_gids_look(struct swp_device *dev)
{
	if (!ib_device_try_get(&dev->base))
		return;
	if (!queue_work(swp_cm_wq, &dev->gids.work))
		ib_device_put(&dev->base);
}

void swp_gids_init(struct swp_device *dev)
{
	spin_lock_init(&dev->gids.lock);
	INIT_WORK(&dev->gids.work, gids_work);
	refresh(dev);
}

int swp_gid_query(struct swp_device *dev, u32 index, union ib_gid *gid)
{
	if (index >= SWP_GIDS)
		return -EINVAL;
	if (!index) {
		*gid = dev->gid;
		return 0;
	}
	spin_lock_bh(&dev->gids.lock);
	*gid = dev->gids.addr[index - 1];
	spin_unlock_bh(&dev->gids.lock);
	return 0;
}

/* Addresses ----------------------------------------------------------------- */

static void set_v6(const struct swp_device *dev, const u8 *ip, bool link_local,
		   struct sockaddr_storage *addr)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;

	in6->sin6_family = AF_INET6;
	memcpy(&in6->sin6_addr, ip, sizeof(in6->sin6_addr));
	if (link_local)
		in6->sin6_scope_id = dev->netdev->ifindex;
}

/*
 * Without a link-local address (lo, a tunnel), the first GID stands for the
 * device itself, and any of its addresses reaches it.
 */
static bool stand_in(struct swp_device *dev, const u8 *gid, union ib_gid *use)
{
	struct swp_gids *g = &dev->gids;
	bool found = false;
	unsigned int i;

	if (memcmp(gid, &dev->gid, sizeof(dev->gid)))
		return false;
	spin_lock_bh(&g->lock);
	for (i = 0; !g->first_is_addr && !found && i < ARRAY_SIZE(g->addr);
	     i++) {
		found = swp_gid_kind(g->addr[i].raw) != SWP_GID_NOBODY;
		*use = g->addr[i];
	}
	spin_unlock_bh(&g->lock);
	return found;
}

int swp_gid_address(struct swp_device *dev, const u8 *gid,
		    struct sockaddr_storage *addr)
{
	struct sockaddr_in *in = (struct sockaddr_in *)addr;
	union ib_gid use;

	if (!stand_in(dev, gid, &use))
		memcpy(&use, gid, sizeof(use));
	memset(addr, 0, sizeof(*addr));
	switch (swp_gid_kind(use.raw)) {
	case SWP_GID_IPV4:
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, use.raw + 12, sizeof(in->sin_addr));
		return 0;
	case SWP_GID_IPV6:
		set_v6(dev, use.raw, false, addr);
		return 0;
	case SWP_GID_MAC:
		swp_gid_from_mac(gid, use.raw);
		fallthrough;
	case SWP_GID_LINK_LOCAL:
		set_v6(dev, use.raw, true, addr);
		return 0;
	case SWP_GID_NOBODY:
	default:
		return -EADDRNOTAVAIL;
	}
}

/* Changes of addresses ------------------------------------------------------ */

/* May be in softirq: IPv6 adds addresses there. */
static void addresses_changed(struct net_device *ndev)
{
	struct ib_device *ibdev = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);

	if (!ibdev)
		return;
	swp_gids_look(to_swp_dev(ibdev));
	ib_device_put(ibdev);
}

static int inet_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	const struct in_ifaddr *ifa = ptr;

	addresses_changed(ifa->ifa_dev->dev);
	return NOTIFY_DONE;
}

static int inet6_event(struct notifier_block *nb, unsigned long event,
		       void *ptr)
{
	const struct inet6_ifaddr *ifa = ptr;

	addresses_changed(ifa->idev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block inet_nb = { .notifier_call = inet_event };
static struct notifier_block inet6_nb = { .notifier_call = inet6_event };

int swp_gids_register(void)
{
	int ret = register_inetaddr_notifier(&inet_nb);

	if (ret)
		return ret;
	ret = register_inet6addr_notifier(&inet6_nb);
	if (ret)
		unregister_inetaddr_notifier(&inet_nb);
	return ret;
}

void swp_gids_unregister(void)
{
	unregister_inet6addr_notifier(&inet6_nb);
	unregister_inetaddr_notifier(&inet_nb);
}
