/* SPDX-License-Identifier: GPL-2.0 */
/* Streams whose other end is in this kernel, too. */
#ifndef SWP_NEAR_H
#define SWP_NEAR_H

#include <linux/in6.h>
#include <linux/list.h>

struct swp_llp;

struct swp_near {
	struct hlist_node node;
	struct {
		struct in6_addr addr[2];	/* ours, the peer's */
		__be16 port[2];
	} key;
	bool here;		/* the other end is here; written under a lock */
};

/*
 * swp_near_add - note a stream that begins, and if it is the second end of one,
 * note that for both
 *
 * Two namespaces can have the same addresses, so that sequence numbers have to fit,
 * too.  @here stays when the other end has gone: that stream is over.  Process
 * context, without locks.
 */
void swp_near_add(struct swp_llp *llp);
/* Before the socket is released, whether the stream was added or not */
void swp_near_del(struct swp_llp *llp);

#endif /* SWP_NEAR_H */
