// SPDX-License-Identifier: GPL-2.0
/*
 * Devices: one ib_device per netdev, added and removed by `rdma link`, which
 * follows the events of the netdev.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ctype.h>
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/random.h>
#include <net/addrconf.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_netlink.h>

#include "device.h"
#include "iwcm.h"
#include "mem.h"
#include "verbs.h"

/*
 * Time for the users of a device to close connections when its netdev is
 * removed.  RTNL is held meanwhile, which blocks all changes of interfaces and
 * routes.  So all devices together get at most this time, and over longer times
 * one part in SWP_LEAVE_SHARE.
 */
#define SWP_LEAVE_TIME	(2 * HZ)
#define SWP_LEAVE_SHARE	4

static DECLARE_WAIT_QUEUE_HEAD(device_left);
/* From then on, all of SWP_LEAVE_TIME is available again.  Under RTNL. */
static unsigned long leave_due;

static bool netdev_fits(const struct net_device *ndev)
{
	switch (ndev->type) {
	case ARPHRD_ETHER:
	case ARPHRD_LOOPBACK:
	case ARPHRD_NONE:
	case ARPHRD_PPP:
	case ARPHRD_TUNNEL:
	case ARPHRD_TUNNEL6:
	case ARPHRD_SIT:
	case ARPHRD_IPGRE:
		return true;
	default:
		return false;
	}
}

/*
 * The GUID is the EUI-64 of the hardware address.  An all-zero address counts
 * as none, so a netdev without an address (lo, tun) gets a locally administered
 * random one.  The GID is the GUID with the link-local prefix, like the default
 * GID of an InfiniBand port: many programs and SRP use its low half as the name
 * of the port.  With a kernel whose rdma_cm finds an iWARP device by its GID,
 * the GID is the hardware address and zeros instead.
 */
static void make_gid(struct swp_device *dev)
{
	const struct net_device *ndev = dev->netdev;
	u8 addr[MAX_ADDR_LEN] = {};
	__be64 guid;

	memcpy(addr, ndev->dev_addr,
	       min_t(u32, ndev->addr_len, sizeof(dev->gid)));
	if (!memchr_inv(addr, 0, sizeof(addr))) {
		if (SWP_GID_IS_MAC)
			pr_info("%s has no hardware address, by which rdma_cm of this kernel finds a device\n",
				ndev->name);
		eth_random_addr(addr);
	}
	addrconf_addr_eui48((u8 *)&guid, addr);
	/* the node keeps its GUID when the port's GID changes */
	if (!dev->base.node_guid)
		dev->base.node_guid = guid;
	if (SWP_GID_IS_MAC) {
		memcpy(dev->gid.raw, addr, sizeof(dev->gid));
		return;
	}
	dev->gid.global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	dev->gid.global.interface_id = guid;
}

/* The core calls this after the last user is gone, then frees the device. */
void swp_dealloc_driver(struct ib_device *ibdev)
{
	struct swp_device *dev = to_swp_dev(ibdev);

	wake_up_all(&device_left);
	swp_cm_device_gone(dev);
	WARN_ON(!xa_empty(&dev->qps));
	WARN_ON(!xa_empty(&dev->mrs));
	xa_destroy(&dev->qps);
	xa_destroy(&dev->mrs);
	swp_limits_exit(dev);
	netdev_put(dev->netdev, &dev->netdev_tracker);
	free_percpu(dev->stats);
}

static struct swp_device *alloc_device(struct net_device *ndev)
{
	struct swp_device *dev = ib_alloc_device(swp_device, base);
	struct ib_device *ibdev;

	if (!dev)
		return NULL;
	dev->stats = alloc_percpu(struct swp_stats);
	if (!dev->stats) {
		ib_dealloc_device(&dev->base);
		return NULL;
	}
	dev->netdev = ndev;
	netdev_hold(ndev, &dev->netdev_tracker, GFP_KERNEL);
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_BH);
	xa_init(&dev->mrs);
	xa_init_flags(&dev->counters, XA_FLAGS_ALLOC1);
	swp_limits_init(dev);
	spin_lock_init(&dev->mw_lock);
	dev->qp_next = get_random_u32() & 0xffffff;
	swp_policy_init(dev);
	swp_cm_device_init(dev);
	make_gid(dev);
	swp_gids_init(dev);

	ibdev = &dev->base;
	ib_set_device_ops(ibdev, &swp_dev_ops);
	swp_set_version_ops(ibdev);
	ibdev->node_type = RDMA_NODE_RNIC;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = num_possible_cpus();
	strscpy(ibdev->node_desc, "softwarp, RDMA over TCP",
		sizeof(ibdev->node_desc));
	strscpy(ibdev->iw_ifname, ndev->name, sizeof(ibdev->iw_ifname));
	/* the host's own stack binds the TCP port: no port mapper */
	ibdev->iw_driver_flags = IW_F_NO_PORT_MAP;
	/* the doorbell of a mapped send queue is an empty POST_SEND */
	ibdev->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				  BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ);
	return dev;
}

/* The core accepts any name, but a device needs a valid file name. */
static bool name_fits(const char *name)
{
	const char *c;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return false;
	for (c = name; *c; c++)
		if (!isgraph(*c) || *c == '/' || *c == '%')
			return false;
	return c != name;
}

/*
 * `rdma link add NAME type softwarp netdev DEV`.  rdma_nl has no extended ack
 * here, so log the reasons that an errno does not express.
 */
static int newlink(const char *name, struct net_device *ndev)
{
	struct ib_device *other;
	struct swp_device *dev;
	int ret;

	if (!name_fits(name)) {
		pr_warn("a device name has printable characters other than / and %%\n");
		return -EINVAL;
	}
	if (!netdev_fits(ndev)) {
		pr_warn("%s is of a type that carries no IP by itself (%u)\n",
			ndev->name, ndev->type);
		return -EINVAL;
	}
	other = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);
	if (other) {
		pr_warn("%s has the device %s already\n", ndev->name,
			dev_name(&other->dev));
		ib_device_put(other);
		return -EEXIST;
	}

	dev = alloc_device(ndev);
	if (!dev)
		return -ENOMEM;
	ret = ib_device_set_netdev(&dev->base, ndev, 1);
	if (ret)
		goto err;
	swp_mark_named_by_user(&dev->base);
	/*
	 * If each RDMA device belongs to one network namespace, the core adds
	 * it to init_net; but its sockets are in the namespace of its netdev.
	 */
	if (!rdma_dev_access_netns(&dev->base, dev_net(ndev)))
		write_pnet(&dev->base.coredev.rdma_net, dev_net(ndev));
	ret = ib_register_device(&dev->base, name, NULL);
	if (ret)
		goto err;
	/* for addresses that came while no notifier found the device */
	other = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);
	if (other) {
		swp_gids_look(to_swp_dev(other));
		ib_device_put(other);
	}
	return 0;
err:
	ib_dealloc_device(&dev->base);
	return ret;
}

static struct rdma_link_ops link_ops = {
	.type = "softwarp",
	.newlink = newlink,
};

static void port_event(struct swp_device *dev, enum ib_event_type type)
{
	struct ib_event ev = {
		.device = &dev->base,
		.element.port_num = 1,
		.event = type,
	};

	ib_dispatch_event(&ev);
}

static bool has_device(struct net_device *ndev)
{
	struct ib_device *ibdev = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);

	if (ibdev)
		ib_device_put(ibdev);
	return ibdev;
}

/*
 * Waits until the device is gone.  RTNL is held, and users may wait for a dead
 * peer, or not close at all, so limit the time, also for many devices in a row.
 */
static void wait_left(struct net_device *ndev)
{
	unsigned long begun = jiffies, owed = leave_due - begun;
	long limit;

	/* leave_due is in the past */
	if (owed > 2 * SWP_LEAVE_SHARE * SWP_LEAVE_TIME) {
		owed = 0;
		leave_due = begun;
	}
	limit = SWP_LEAVE_TIME - (long)(owed / SWP_LEAVE_SHARE);
	if (limit > 0)
		wait_event_timeout(device_left, !has_device(ndev), limit);
	leave_due += (jiffies - begun) * SWP_LEAVE_SHARE;
}

static int netdev_event(struct notifier_block *nb, unsigned long event,
			void *ptr)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(ptr);
	struct ib_device *ibdev = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);
	struct swp_device *dev;

	if (!ibdev)
		return NOTIFY_DONE;
	dev = to_swp_dev(ibdev);
	switch (event) {
	case NETDEV_UP:
		if (!SWP_CORE_REPORTS_PORTS)
			port_event(dev, IB_EVENT_PORT_ACTIVE);
		break;
	case NETDEV_DOWN:
		if (!SWP_CORE_REPORTS_PORTS)
			port_event(dev, IB_EVENT_PORT_ERR);
		break;
	case NETDEV_CHANGEADDR:
		make_gid(dev);
		swp_gids_look(dev);
		port_event(dev, IB_EVENT_GID_CHANGE);
		break;
	case NETDEV_CHANGENAME:
		strscpy(ibdev->iw_ifname, ndev->name, sizeof(ibdev->iw_ifname));
		break;
	case NETDEV_GOING_DOWN:
		/* a netdev that only goes down keeps its device */
		if (!ndev->dismantle)
			break;
		/*
		 * The netdev is being removed, but still sends: let the users
		 * of the device close their connections, as they can when only
		 * the device is deleted.  (If they cannot send, some wait a
		 * minute for the answer.)  NETDEV_UNREGISTER aborts the
		 * connections that are left.
		 */
		ib_unregister_device_queued(ibdev);
		ib_device_put(ibdev);
		wait_left(ndev);
		return NOTIFY_OK;
	case NETDEV_UNREGISTER:
		/* RTNL is held: stop the traffic, and queue the removal */
		swp_cm_device_stop(dev);
		ib_unregister_device_queued(ibdev);
		break;
	default:
		break;
	}
	ib_device_put(ibdev);
	return NOTIFY_OK;
}

static struct notifier_block netdev_nb = {
	.notifier_call = netdev_event,
};

int swp_device_register(void)
{
	int ret = register_netdevice_notifier(&netdev_nb);

	if (ret)
		return ret;
	ret = swp_gids_register();
	if (ret) {
		unregister_netdevice_notifier(&netdev_nb);
		return ret;
	}
	rdma_link_register(&link_ops);
	return 0;
}

/*
 * First prevent new devices, then remove the existing ones from their clients
 * and programs, which can still close connections.  Unregister the notifier
 * last: it replays NETDEV_UNREGISTER, which aborts connections.
 */
void swp_device_unregister(void)
{
	rdma_link_unregister(&link_ops);
	ib_unregister_driver(SWP_DRIVER_ID);
	swp_gids_unregister();
	unregister_netdevice_notifier(&netdev_nb);
}
