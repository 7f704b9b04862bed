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
 * One device.  It stays usable as long as it is on the list: the RDMA core tells
 * us of its end and waits until all links over it are cut.
 */
struct sdp_device {
	struct ib_device *ib;
	struct ib_pd *pd;
	const struct swp_startup_api *api;	/* NULL: not softwarp's, see cma.h */
	struct ib_event_handler events;	/* of one that is not */
	struct list_head entry;		/* of all devices, under their mutex */
	struct kref ref;		/* the list and links */
	struct completion gone;		/* the last of these */
	struct mutex mutex;		/* of @links */
	struct list_head links;		/* with a QP, see sdp_link.on_device */
	bool leaving;			/* no new ones */
};

int sdp_device_init(void);
void sdp_device_exit(void);

/*
 * softwarp's device over a netdev, with a reference, or NULL.  Where packets stay
 * within the host, one over the netdev that has the address will do.
 */
struct sdp_device *sdp_device_find(struct net *net, const struct sock *sk);
/* The one over the netdev that has this address of the host, as above */
struct sdp_device *sdp_device_at(struct net *net, const union sdp_end *end);
void sdp_device_put(struct sdp_device *dev);

/* Devices that are not softwarp's: is there any? */
bool sdp_device_foreign(void);
/* One of those, by what rdma_cm has found, with a reference, or NULL */
struct sdp_device *sdp_device_of(struct ib_device *ib);
/*
 * Is there one of softwarp's over the netdev, or over the one that has the address,
 * if packets stay within the host?  Process context.
 */
bool sdp_device_is_softwarps(struct net *net, const struct net_device *ndev,
			     const union sdp_end *own);

/* Reads that a QP of the device can have at a time, inbound and outbound */
int sdp_device_depths(struct sdp_device *dev, u32 *ird, u32 *ord);

#endif /* SDP_DEVICE_H */
