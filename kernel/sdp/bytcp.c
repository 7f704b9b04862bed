// SPDX-License-Identifier: GPL-2.0
/*
 * Sockets that are TCP's, see bytcp.h.
 */
#include <linux/rhashtable.h>
#include <linux/slab.h>
#include <net/sock.h>

#include "bytcp.h"
#include "uapi/softwarp_sdp.h"

static struct rhashtable accepted;

static const struct rhashtable_params accepted_params = {
	.key_len = sizeof(struct sock *),
	.key_offset = offsetof(struct sdp_by_tcp, sk),
	.head_offset = offsetof(struct sdp_by_tcp, node),
	.automatic_shrinking = true,
};

int sdp_by_tcp_init(void)
{
	return rhashtable_init(&accepted, &accepted_params);
}

/* The table is empty: a socket on it holds the module. */
void sdp_by_tcp_exit(void)
{
	rhashtable_destroy(&accepted);
}

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

void sdp_by_tcp_show_accepted(struct sock *sk)
{
	struct sdp_by_tcp *b;

	lock_sock(sk);
	b = sdp_by_tcp_show(sk, SDP_INFO_REASON_PEER);
	release_sock(sk);
	/* without memory it is not shown */
	if (b && rhashtable_insert_fast(&accepted, &b->node, accepted_params))
		sdp_by_tcp_hide(b);
}

void sdp_by_tcp_hide_accepted(struct sock *sk)
{
	struct sdp_by_tcp *b;

	b = rhashtable_lookup_fast(&accepted, &sk, accepted_params);
	if (!b)
		return;
	rhashtable_remove_fast(&accepted, &b->node, accepted_params);
	sdp_by_tcp_hide(b);
}
