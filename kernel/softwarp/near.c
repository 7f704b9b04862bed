// SPDX-License-Identifier: GPL-2.0
/*
 * Streams whose other end is in this kernel, too.  What TCP carries between two
 * namespaces, or between two sockets of one, is not cut into segments as a rule,
 * so that a longer FPDU costs less; see swp_fpdu_unit().
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/net.h>
#include <net/ipv6.h>

#include "llp.h"

static DEFINE_HASHTABLE(streams, 10);
static DEFINE_SPINLOCK(lock);

/* Most streams that are looked at: many namespaces can have the same addresses. */
#define SWP_NEAR_LOOKS	64

static void set_end(struct swp_near *n, int i, const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;

	if (a->ss_family == AF_INET6) {
		n->key.addr[i] = v6->sin6_addr;
		n->key.port[i] = v6->sin6_port;
	} else {
		ipv6_addr_set_v4mapped(v4->sin_addr.s_addr, &n->key.addr[i]);
		n->key.port[i] = v4->sin_port;
	}
}

/* The same for both ends */
static u32 hash_of(const struct swp_near *n)
{
	static u32 seed __read_mostly;
	u32 end[2];
	int i;

	net_get_random_once(&seed, sizeof(seed));
	for (i = 0; i < 2; i++)
		end[i] = jhash2((const u32 *)&n->key.addr[i],
				sizeof(n->key.addr[i]) / sizeof(u32),
				seed + (__force u16)n->key.port[i]);
	return end[0] ^ end[1];
}

static bool are_ends_of_one(const struct swp_near *a, const struct swp_near *b)
{
	return ipv6_addr_equal(&a->key.addr[0], &b->key.addr[1]) &&
	       ipv6_addr_equal(&a->key.addr[1], &b->key.addr[0]) &&
	       a->key.port[0] == b->key.port[1] &&
	       a->key.port[1] == b->key.port[0];
}

/* It lives while @n is in the table, and we hold the lock. */
static const struct swp_llp *llp_of(const struct swp_near *n)
{
	return container_of(n, struct swp_llp, near);
}

void swp_near_add(struct swp_llp *llp)
{
	struct sockaddr_storage local, remote;
	struct swp_near *n = &llp->near;
	int left = SWP_NEAR_LOOKS;
	struct swp_near *other;
	u32 hash;

	/*
	 * A start that failed has added it; or it is ending.  Its neighbours in
	 * the table may change it meanwhile, but it stays there.
	 */
	if (!hlist_unhashed_lockless(&n->node) ||
	    swp_llp_names(llp, &local, &remote, NULL))
		return;
	set_end(n, 0, &local);
	set_end(n, 1, &remote);
	hash = hash_of(n);
	spin_lock_bh(&lock);
	hash_for_each_possible(streams, other, node, hash) {
		if (!left--)
			break;
		if (!are_ends_of_one(n, other) ||
		    !swp_llp_may_hear(llp, llp_of(other)) ||
		    !swp_llp_may_hear(llp_of(other), llp))
			continue;
		WRITE_ONCE(other->here, true);
		WRITE_ONCE(n->here, true);
		break;
	}
	hash_add(streams, &n->node, hash);
	spin_unlock_bh(&lock);
}

void swp_near_del(struct swp_llp *llp)
{
	spin_lock_bh(&lock);
	hash_del(&llp->near.node);
	spin_unlock_bh(&lock);
}
