/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections over devices that are not softwarp's: InfiniBand, RoCE, iWARP in
 * hardware.  rdma_cm connects and disconnects them, by a port of its own port
 * space with TCP's number.  Hello is private data of its request, HelloAck of
 * its reply, and headers have InfiniBand's layout.
 *
 *   connector   TCP (device and route are resolved) -> START (Hello sent) -> UP
 *   acceptor    HELLO (until there is a place) -> START (HelloAck sent) -> UP
 *
 * rdma_cm's handlers only raise events of the link, whose work item does the
 * rest: rdma_destroy_id() waits for handlers, so a handler must not call it.
 *
 * An rdma_cm_id that listens on the wildcard address would listen on softwarp's
 * devices, too, where the program's TCP socket has the port already.  So there
 * is one rdma_cm_id for each address with another device.  Addresses and
 * devices that come later are added when they come.
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

/* rdma_cm's part of a listener */
struct sdp_cma_listener {
	struct list_head entry;		/* on the list of all listeners */
	struct list_head ports;		/* struct port; used by @work only */
	struct work_struct work;
};

/* Local and remote address of a connection to be made */
struct sdp_ends {
	union sdp_end local, remote;
};

extern const struct sdp_carrier_ops sdp_carrier_cm;

int sdp_cma_init(void);
void sdp_cma_exit(void);

/*
 * sdp_cma_way - whether the route to an address is by a device not softwarp's
 * @sk: of TCP, bound as the connection is to be
 * @ends: filled in if so, in the family of the socket
 * False also if the address is invalid or has no route: TCP returns the errno.
 * Process context.
 */
bool sdp_cma_way(struct sock *sk, const struct sockaddr *addr, int len,
		 struct sdp_ends *ends);
/*
 * sdp_cma_connect - begin a connection
 * link->tcp holds the port, or gets one here.  0, or a negative errno; the link
 * reports all later errors.
 */
int sdp_cma_connect(struct sdp_link *link, struct sdp_ends *ends);

/*
 * sdp_cma_prepare - initialise the part of a new listener
 * sdp_cma_listen - TCP's socket listens: listen by rdma_cm, too, where possible
 * sdp_cma_unlisten - stop listening by rdma_cm
 * Process context, the socket not locked.
 */
void sdp_cma_prepare(struct sdp_listener *l);
void sdp_cma_listen(struct sdp_listener *l);
void sdp_cma_unlisten(struct sdp_listener *l);

/*
 * Addresses or devices have come: let all listeners listen on them, too.
 * Process context.
 */
void sdp_cma_refresh(void);

#endif /* SDP_CMA_H */
