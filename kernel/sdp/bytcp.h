/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The entry of a socket that is TCP's in /proc/net/softwarp_sdp.  Its calls and
 * ss treat it as any other TCP socket, but until it is closed it holds this
 * module.
 */
#ifndef SDP_BYTCP_H
#define SDP_BYTCP_H

#include <linux/kref.h>
#include <linux/rhashtable-types.h>

#include "netns.h"

struct sdp_by_tcp {
	struct sdp_seen seen;
	struct kref ref;		/* held by the socket and readers */
	struct sock *sk;		/* with a reference */
	u8 reason;			/* enum sdp_info_reason */
	struct rhash_head node;		/* of one that was accepted, by @sk */
	struct rcu_head rcu;
};

int sdp_by_tcp_init(void);
void sdp_by_tcp_exit(void);

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
/*
 * The same for a socket that TCP has accepted for an auto listener.  It has no
 * struct sdp_sock, as sk_user_data of a TCP socket is for others.
 */
void sdp_by_tcp_show_accepted(struct sock *sk);
void sdp_by_tcp_hide_accepted(struct sock *sk);

#endif /* SDP_BYTCP_H */
