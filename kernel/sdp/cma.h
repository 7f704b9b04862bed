/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections over devices that are not softwarp's: InfiniBand, RoCE, iWARP in
 * hardware.  rdma_cm makes and ends them, with a port of its own space of the same
 * number as TCP's; Hello is private data of its request, HelloAck of its answer,
 * and headers have InfiniBand's layout.
 *
 *   connector   TCP (device and way are looked for) -> START (Hello sent) -> UP
 *   acceptor    HELLO (until there is a place) -> START (HelloAck sent) -> UP
 *
 * What is told by rdma_cm's handlers becomes events of the link, whose work item
 * does the rest; rdma_destroy_id() waits for handlers, so that they never do it.
 *
 * An rdma_cm_id that listens on the wildcard address would do so on softwarp's
 * devices, too, where the port is TCP's and the program's already.  So there is
 * one for each address that has another device, and addresses and devices that
 * come later are looked for when they do.
 */
#ifndef SDP_CMA_H
#define SDP_CMA_H

#include <linux/list.h>
#include <linux/workqueue.h>

#include "netns.h"

struct sdp_carrier_ops;
struct sdp_link;
struct sdp_listener;
struct sock;

/* Of a listener */
struct sdp_cma_listener {
	struct list_head entry;		/* of all that listen */
	struct list_head ports;		/* the work item's own */
	struct work_struct work;
};

/* The ends of a connection that is to be made */
struct sdp_ends {
	union sdp_end local, remote;
};

extern const struct sdp_carrier_ops sdp_carrier_cm;

int sdp_cma_init(void);
void sdp_cma_exit(void);

/*
 * sdp_cma_way - is the way to an address by a device that is not softwarp's?
 * @sk: of TCP, bound as the connection is to be
 * @ends: filled in if so, in the family of the socket
 * Where an address is no good, or there is no way, no: TCP knows the errno.
 * Process context.
 */
bool sdp_cma_way(struct sock *sk, const struct sockaddr *addr, int len,
		 struct sdp_ends *ends);
/*
 * sdp_cma_connect - begin a connection
 * link->tcp holds the port, or is given one here.  0, or a negative errno; all
 * else that can fail is told by the link.
 */
int sdp_cma_connect(struct sdp_link *link, struct sdp_ends *ends);

/*
 * A listener: to begin with; from when TCP's socket listens on, until when rdma_cm
 * does where it can; to the end.  Process context, the socket not locked.
 */
void sdp_cma_prepare(struct sdp_listener *l);
void sdp_cma_listen(struct sdp_listener *l);
void sdp_cma_unlisten(struct sdp_listener *l);

/* Addresses or devices have come, or gone.  Process context. */
void sdp_cma_refresh(void);

#endif /* SDP_CMA_H */
