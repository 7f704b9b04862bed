/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What an administrator of a network namespace can set: net.softwarp_sdp.
 *
 * One more is a number here and a line of the table in sysctl.c.
 */
#ifndef SDP_SYSCTL_H
#define SDP_SYSCTL_H

#include <linux/types.h>

struct net;

enum sdp_tunable {
	/* ms */
	SDP_SETUP_TIMEOUT,	/* set-up, from TCP's being connected on; section 8.1.1 */
	SDP_GRACE,		/* the peer's time to close TCP; section 8.2.1 */
	SDP_ORPHAN_TIMEOUT,	/* of what nobody has any more and nothing leaves of */
	SDP_PLACE_TIME,		/* of a listener, while others want it */
	/* how many, or how large */
	SDP_SILENT_MAX,		/* at a listener, that have not said Hello */
	SDP_ORPHANS_MAX,	/* that their programs have closed, of the whole host */
	SDP_RX_SIZE_MAX,	/* of one receive buffer */
	SDP_LAYOUT_DEFAULT,	/* enum sdp_layout */
	SDP_POLICY_DEFAULT,	/* enum sdp_info_policy, of new sockets */
	/* the port mapper, see pm.h */
	SDP_PM_UDP_PORT,	/* of the responder, and of those that are asked */
	SDP_PM_TIME,		/* PmTime of answers */
	SDP_PM_WAIT,		/* ms, for a host that does not answer */
	SDP_PM_SILENT_TIME,	/* ms, before it is asked again */
	SDP_PM_DENIED_TIME,	/* ms, before a service is asked for again */
	SDP_PM_SOURCE_RATE,	/* answers per second to one source, and in all */
	SDP_PM_RATE,
	SDP_TUNABLES
};

/* Any context */
int sdp_tunable(const struct net *net, enum sdp_tunable which);
/* Of one that is in ms */
unsigned long sdp_tunable_jiffies(const struct net *net, enum sdp_tunable which);

int sdp_sysctl_init(struct net *net);
void sdp_sysctl_exit(struct net *net);

#endif /* SDP_SYSCTL_H */
