// SPDX-License-Identifier: GPL-2.0
/*
 * Streams whose other end is in this kernel, too.  What TCP carries between two
 * namespaces, or between two sockets of one, is not cut into segments as a rule,
 * so that a longer FPDU costs less; see swp_fpdu_unit().
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/net.h>
#include <linux/random.h>
#include <net/ipv6.h>

#include "crowd.h"
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
static struct swp_llp *llp_of(struct swp_near *n)
{
	return container_of(n, struct swp_llp, near);
}

/* Do both policies allow the stream to go past TCP? */
static bool allowed(const struct swp_llp *a, const struct swp_llp *b)
{
	u8 least = SWP_SAME_HOST_ALL;

	if (net_eq(sock_net(a->sk), sock_net(b->sk)) &&
	    swp_llp_is_by_loopback(a) && swp_llp_is_by_loopback(b))
		least = SWP_SAME_HOST_NETNS;
	return a->near.same_host >= least && b->near.same_host >= least;
}

static void make_token(struct swp_near *n)
{
	get_random_bytes(&n->stag, sizeof(n->stag));
	get_random_bytes(&n->to, sizeof(n->to));
}

static void introduce(struct swp_llp *a, struct swp_llp *b)
{
	lockdep_assert_held(&lock);
	WRITE_ONCE(a->near.here, true);
	WRITE_ONCE(b->near.here, true);
	/* a stream has two ends: nobody else takes the place of one that has gone */
	if (!allowed(a, b) || a->near.met || b->near.met)
		return;
	a->near.met = true;
	b->near.met = true;
	make_token(&a->near);
	make_token(&b->near);
	rcu_assign_pointer(a->near.peer, b);
	rcu_assign_pointer(b->near.peer, a);
}

void swp_near_add(struct swp_llp *llp, enum swp_same_host same_host)
{
	struct sockaddr_storage local, remote;
	struct swp_near *n = &llp->near;
	int left = SWP_NEAR_LOOKS;
	struct swp_near *other;
	u32 hash;

	/* it has ended meanwhile */
	if (swp_llp_names(llp, &local, &remote, NULL))
		return;
	n->same_host = same_host;
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
		introduce(llp, llp_of(other));
		break;
	}
	hash_add(streams, &n->node, hash);
	spin_unlock_bh(&lock);
}

void swp_near_del(struct swp_llp *llp)
{
	struct swp_llp *peer;

	spin_lock_bh(&lock);
	peer = rcu_dereference_protected(llp->near.peer, lockdep_is_held(&lock));
	if (peer) {
		RCU_INIT_POINTER(peer->near.peer, NULL);
		RCU_INIT_POINTER(llp->near.peer, NULL);
	}
	hash_del(&llp->near.node);
	spin_unlock_bh(&lock);
}

struct swp_llp *swp_near_peer(struct swp_llp *llp)
{
	struct swp_llp *peer;

	if (!swp_near_has_peer(&llp->near))
		return NULL;
	rcu_read_lock();
	peer = rcu_dereference(llp->near.peer);
	if (peer && !kref_get_unless_zero(&peer->ref))
		peer = NULL;
	rcu_read_unlock();
	return peer;
}

/*
 * What waits in TCP to be sent to a receiver of this machine makes nothing faster but
 * lies in memory instead of caches, and there are as many queues as streams.  So all
 * streams with more than the least have this many octets together.  Where something
 * delays each packet as a network does, TCP knows better.
 */
#define SWP_NEAR_QUEUE		(1024 * 1024)
#define SWP_NEAR_QUEUE_LEAST	(128 * 1024)
#define SWP_NEAR_DELAY_US	2000
/* Long enough for streams that take turns, in jiffies */
#define SWP_NEAR_PERIOD		(HZ < 100 ? 1 : HZ / 100)

static struct swp_crowd crowd ____cacheline_aligned_in_smp;

bool swp_near_has_share(struct swp_llp *llp)
{
	u32 octets = swp_llp_unacked(llp), streams;

	if (octets < SWP_NEAR_QUEUE_LEAST ||
	    swp_llp_min_rtt_us(llp) >= SWP_NEAR_DELAY_US)
		return true;
	streams = swp_crowd_count(&crowd,
				  (jiffies - INITIAL_JIFFIES) / SWP_NEAR_PERIOD,
				  &llp->near.crowd);
	return octets < SWP_NEAR_QUEUE / streams;
}

void swp_near_hear(struct swp_llp *llp, u32 stag, u64 to)
{
	struct swp_llp *peer;

	/* a peer's guesses cost it a stream of its own Writes, and us no lock */
	rcu_read_lock();
	peer = rcu_dereference(llp->near.peer);
	if (peer && peer->near.stag == stag && peer->near.to == to)
		WRITE_ONCE(llp->near.heard, true);
	rcu_read_unlock();
}
