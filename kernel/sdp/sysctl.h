/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tunables of a network namespace: net.softwarp_sdp.
 *
 * To add one, add an enumerator here and a line to the table in sysctl.c.
 */
#ifndef SDP_SYSCTL_H
#define SDP_SYSCTL_H

#include <linux/types.h>

struct net;

enum sdp_tunable {
	/* ms */
	SDP_SETUP_TIMEOUT,	/* set-up, after TCP; section 8.1.1 */
	SDP_GRACE,		/* for the peer to close TCP; section 8.2.1 */
	SDP_ORPHAN_TIMEOUT,	/* orphans, since the last octets were sent */
	SDP_PLACE_TIME,		/* of a half-open link, while others wait */
	/* numbers and sizes */
	SDP_SILENT_MAX,		/* links at a listener without Hello */
	SDP_ORPHANS_MAX,	/* orphans of the whole host */
	SDP_RX_SIZE_MAX,	/* size of a receive buffer */
	SDP_LAYOUT_DEFAULT,	/* enum sdp_layout */
	SDP_INITIATOR_DEFAULT,	/* enum sdp_info_initiator, of new sockets */
	SDP_SPIN,		/* us to watch before recv() sleeps */
	SDP_POLICY_DEFAULT,	/* enum sdp_info_policy, of new sockets */
	/* the port mapper, see pm.h */
	SDP_PM_UDP_PORT,	/* of the responder, and at peers */
	SDP_PM_TIME,		/* PmTime of answers */
	SDP_PM_WAIT,		/* ms, in all, for an answer */
	SDP_PM_SILENT_TIME,	/* ms, until a silent host is asked again */
	SDP_PM_DENIED_TIME,	/* ms, until a denied service is asked for */
	SDP_PM_CACHE,		/* answers to keep, silence of hosts included */
	SDP_PM_SOURCE_RATE,	/* answers per second to one source ... */
	SDP_PM_RATE,
	SDP_TUNABLES
};

/* Any context */
int sdp_tunable(const struct net *net, enum sdp_tunable which);
/* For a tunable in ms: at least as long, from any time within a jiffy */
unsigned long sdp_tunable_jiffies(const struct net *net, enum sdp_tunable which);

int sdp_sysctl_init(struct net *net);
void sdp_sysctl_exit(struct net *net);

#endif /* SDP_SYSCTL_H */
