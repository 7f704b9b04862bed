/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A socket that is TCP's, as /proc/net/softwarp_sdp shows it: by its own calls and
 * by ss it is like any other of TCP's.
 */
#ifndef SDP_BYTCP_H
#define SDP_BYTCP_H

#include <linux/kref.h>

#include "netns.h"

struct sdp_by_tcp {
	struct sdp_seen seen;
	struct kref ref;		/* the socket's, and of who reads it */
	struct sock *sk;		/* with a reference */
	u8 reason;			/* enum sdp_info_reason */
	struct rcu_head rcu;
};

/*
 * sdp_by_tcp_show - a locked socket is TCP's from now on
 * Without memory it is not seen.
 */
struct sdp_by_tcp *sdp_by_tcp_show(struct sock *sk, u8 reason);
/* Not any more, or for a reader that has done with it; NULL is none.  Any context. */
void sdp_by_tcp_hide(struct sdp_by_tcp *b);
void sdp_by_tcp_put(struct sdp_by_tcp *b);

#endif /* SDP_BYTCP_H */
