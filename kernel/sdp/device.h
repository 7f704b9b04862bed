/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RDMA devices that SDP can use.
 */
#ifndef SDP_DEVICE_H
#define SDP_DEVICE_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

#include "ends.h"
#include "include/startup.h"
#include "netns.h"

/*
 * One device.  It can be used until remove() returns: the RDMA core calls that,
 * and remove() waits until all links over the device are gone.
 */
struct sdp_device {
	struct ib_device *ib;
	struct ib_pd *pd;
	const struct swp_startup_api *api;	/* NULL: not softwarp's, see cma.h */
	struct ib_event_handler events;	/* if not softwarp's */
	struct list_head entry;		/* on a list under devices_mutex */
	struct kref ref;		/* held by the list and links */
	struct completion gone;		/* the last reference was put */
	struct mutex mutex;		/* protects @links and @leaving */
	struct list_head links;		/* see sdp_link.on_device */
	bool leaving;			/* it goes: no new links */
};

int sdp_device_init(void);
void sdp_device_exit(void);

/*
 * softwarp's device for a TCP sock, with a reference, or NULL: over the netdev
 * of its route, or over the one that has its local address, because packets may
 * stay within the host.
 */
struct sdp_device *sdp_device_find(struct net *net, const struct sock *sk);
/* softwarp's device over the netdev that has this local address; as above */
struct sdp_device *sdp_device_at(struct net *net, const union sdp_end *end);
void sdp_device_put(struct sdp_device *dev);

/* Whether there is a device that is not softwarp's */
bool sdp_device_foreign(void);
/* Such a device, as rdma_cm has resolved it, with a reference, or NULL */
struct sdp_device *sdp_device_of(struct ib_device *ib);
/*
 * Whether a device of softwarp's is over the netdev, or, if that is a loopback
 * netdev, over the one that has the address.  Process context.
 */
bool sdp_device_is_softwarps(struct net *net, const struct net_device *ndev,
			     const union sdp_end *own);

/* Number of reads that a QP of the device can have in progress, both ways */
int sdp_device_depths(struct sdp_device *dev, u32 *ird, u32 *ord);

#endif /* SDP_DEVICE_H */
