/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The entry of a socket that is TCP's in /proc/net/softwarp_sdp.  Its calls and
 * ss treat it as any other TCP socket.
 */
#ifndef SDP_BYTCP_H
#define SDP_BYTCP_H

#include <linux/kref.h>

#include "netns.h"

struct sdp_by_tcp {
	struct sdp_seen seen;
	struct kref ref;		/* held by the socket and readers */
	struct sock *sk;		/* with a reference */
	u8 reason;			/* enum sdp_info_reason */
	struct rcu_head rcu;
};

/*
 * sdp_by_tcp_show - show a locked socket that is TCP's from now on
 * NULL without memory: then it is not shown.
 */
struct sdp_by_tcp *sdp_by_tcp_show(struct sock *sk, u8 reason);
/*
 * sdp_by_tcp_hide - remove the entry; NULL is allowed
 * sdp_by_tcp_put - put a reader's reference
 * Any context.
 */
void sdp_by_tcp_hide(struct sdp_by_tcp *b);
void sdp_by_tcp_put(struct sdp_by_tcp *b);

#endif /* SDP_BYTCP_H */
