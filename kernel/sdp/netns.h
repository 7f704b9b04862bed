/* SPDX-License-Identifier: GPL-2.0 */
/*
 * State of a network namespace: tunables, counters, and the list of its
 * sockets, connections and listeners, which /proc/net/softwarp_sdp shows.
 */
#ifndef SDP_NETNS_H
#define SDP_NETNS_H

#include <linux/uidgid.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

#include "ends.h"
#include "pm.h"
#include "sysctl.h"

struct ctl_table;
struct ctl_table_header;
struct sdp_stats;
struct sock;

enum sdp_seen_kind {
	SDP_SEEN_LINK,
	SDP_SEEN_LISTENER,
	SDP_SEEN_BY_TCP,
	SDP_SEEN_SOCK,
};

/*
 * An entry of the list: part of struct sdp_link, struct sdp_listener, struct
 * sdp_by_tcp and struct sdp_sock, which are freed by RCU.  From sdp_seen_show()
 * on, readers access it at any time.
 */
struct sdp_seen {
	struct net *net;		/* with a reference */
	u32 id;				/* its index on the list; 0: none */
	u8 kind;			/* enum sdp_seen_kind */
	kuid_t uid;			/* of the user who made it */
	union sdp_end local, remote;	/* of a link; they do not change */
	char device[IB_DEVICE_NAME_MAX];	/* under sdp_link.lock */
};

struct sdp_net {
	struct xarray seen;		/* struct sdp_seen, by sdp_seen.id */
	u32 next;			/* where to look for the next id */
	struct sdp_stats __percpu *stats;
	int tunable[SDP_TUNABLES];	/* enum sdp_tunable */
	struct ctl_table *table;
	struct ctl_table_header *sysctl;
	struct sdp_pm pm;
};

struct sdp_net *sdp_net(const struct net *net);
int sdp_netns_init(void);
void sdp_netns_exit(void);

/*
 * sdp_seen_reserve - reserve an index on the list, invisible to readers
 * @sk: of TCP; gives the namespace and the user
 * Process context.
 */
int sdp_seen_reserve(struct sdp_seen *s, enum sdp_seen_kind kind,
		     const struct sock *sk);
/*
 * Make the entry visible, with the addresses of a TCP sock; NULL: with those it
 * has.  Any context.
 */
void sdp_seen_show(struct sdp_seen *s, const struct sock *sk);
/* Remove the entry from the list; does nothing the second time. */
void sdp_seen_hide(struct sdp_seen *s);
/* Remove the entry and put the reference to the namespace. */
void sdp_seen_release(struct sdp_seen *s);

/* proc.c */
int sdp_proc_init(struct net *net);
void sdp_proc_exit(struct net *net);

/* pmproc.c */
int sdp_pm_proc_init(struct net *net);
void sdp_pm_proc_exit(struct net *net);

#endif /* SDP_NETNS_H */
