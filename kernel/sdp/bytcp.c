// SPDX-License-Identifier: GPL-2.0
/*
 * Sockets that are TCP's, see bytcp.h.
 */
#include <linux/slab.h>
#include <net/sock.h>

#include "bytcp.h"

struct sdp_by_tcp *sdp_by_tcp_show(struct sock *sk, u8 reason)
{
	struct sdp_by_tcp *b = kzalloc(sizeof(*b), GFP_KERNEL_ACCOUNT);

	sock_owned_by_me(sk);
	if (!b)
		return NULL;
	if (sdp_seen_reserve(&b->seen, SDP_SEEN_BY_TCP, sk)) {
		kfree(b);
		return NULL;
	}
	kref_init(&b->ref);
	sock_hold(sk);
	b->sk = sk;
	b->reason = reason;
	sdp_seen_show(&b->seen, NULL);
	return b;
}

static void release(struct kref *ref)
{
	struct sdp_by_tcp *b = container_of(ref, struct sdp_by_tcp, ref);

	sdp_seen_release(&b->seen);
	sock_put(b->sk);
	kfree_rcu(b, rcu);
}

void sdp_by_tcp_put(struct sdp_by_tcp *b)
{
	kref_put(&b->ref, release);
}

void sdp_by_tcp_hide(struct sdp_by_tcp *b)
{
	if (!b)
		return;
	sdp_seen_hide(&b->seen);
	sdp_by_tcp_put(b);
}
