/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Streams whose other end is in this kernel, too.
 *
 * Their FPDUs need no network.  If the policies of both devices allow it, the
 * transmit engine hands them to the receive engine of the other QP, which copies
 * the payload from region to region: near_burst() in qp.c.  TCP still carries
 * start-up, the end of the stream, and everything while others have one of the
 * sockets.  An FPDU goes past TCP only if the other end has taken all octets that
 * TCP carried, so order is kept, and each FPDU may go either way.
 *
 * Addresses and sequence numbers do not prove that two sockets are the ends of one
 * stream: something in between may have chosen them.  So each end sends a token, a
 * random number that is nowhere but in this kernel, as STag and tagged offset of a
 * Write without octets, which no receiver looks at (RFC 5041 section 5.2).  FPDUs
 * go past TCP after the other end has received it.
 */
#ifndef SWP_NEAR_H
#define SWP_NEAR_H

#include <linux/in6.h>
#include <linux/list.h>

struct swp_llp;
struct swp_qp;

/* Which streams within this kernel need no TCP: a policy of each device */
enum swp_same_host {
	SWP_SAME_HOST_OFF,
	SWP_SAME_HOST_NETNS,	/* those by a namespace's loopback device */
	SWP_SAME_HOST_ALL,	/* also past what may be in between */
};

struct swp_near {
	struct hlist_node node;
	struct {
		struct in6_addr addr[2];	/* ours, the peer's */
		__be16 port[2];
	} key;
	bool here;		/* the other end is here; written under a lock */
	u8 same_host;		/* enum swp_same_host */
	/*
	 * The other end, if the policies of both allow to go past TCP, until one
	 * of them ends.  Written under a lock.
	 */
	struct swp_llp __rcu *peer;
	unsigned long crowd;	/* mark of swp_crowd_count(); socket lock held */
	bool met;		/* it had a peer: what was heard is of that one */
	bool heard;		/* its token has arrived */
	/* times in a row that one of both sockets stayed owned for too long; and when to
	 * wait for it again, in about microseconds
	 */
	u8 lates;
	u32 late_until;
	/* our token; constant while peer is set */
	u32 stag;
	u64 to;
	/* with both ends' sockets locked: */
	struct swp_qp *qp;	/* at the other end, or NULL: they are not */
	bool news;		/* FPDUs came past TCP: may we have to answer? */
};

/*
 * swp_near_add - note a stream that begins, and if it is the second end of one,
 * note that for both
 *
 * Two namespaces can have the same addresses, so that sequence numbers have to fit,
 * too.  @here stays when the other end has gone: that stream is over.  Process
 * context, without locks; the stream is attached to a QP.
 */
void swp_near_add(struct swp_llp *llp, enum swp_same_host same_host);
/* Before the socket is released, whether the stream was added or not */
void swp_near_del(struct swp_llp *llp);
/* The other end with a reference, if FPDUs may go past TCP, or NULL.  Any context. */
struct swp_llp *swp_near_peer(struct swp_llp *llp);
/* May the stream go past TCP?  If so, our token is there. */
static inline bool swp_near_has_peer(const struct swp_near *n)
{
	if (!rcu_access_pointer(n->peer))
		return false;
	/* pairs with rcu_assign_pointer(): the token is not behind the pointer */
	smp_rmb();
	return true;
}

/*
 * May TCP be given more of a stream whose other end is here?  If not, an ACK will come
 * for what it has.  Socket lock held.
 */
bool swp_near_has_share(struct swp_llp *llp);

/* A Write without octets has arrived: is it the peer's token? */
void swp_near_hear(struct swp_llp *llp, u32 stag, u64 to);

#endif /* SWP_NEAR_H */
