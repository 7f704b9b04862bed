/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs that ibv_modify_qp() connects.
 */
#ifndef SWP_PAIR_H
#define SWP_PAIR_H

#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "proto/pair.h"

struct swp_qp;

/* Attributes that are only shown: softwarp leaves these matters to TCP */
struct swp_pair_shown {
	enum ib_mtu path_mtu;
	u32 flow_label;
	u8 sgid_index;
	u8 hop_limit;
	u8 traffic_class;
	u8 min_rnr_timer;
	u8 rnr_retry;
	u8 max_rd_atomic;
};

/*
 * What a QP knows of its peer.  The consumer sets it while it moves the QP from
 * INIT to RTR, and later only send_psn, timeout and retries, under qp->lock; it
 * is constant for others while the QP waits (swp_qp_waits()).
 */
struct swp_pair {
	struct swp_pair_view view;
	bool active;		/* this end connects */
	u8 ird;			/* reads that the peer may have outstanding */
	u8 timeout;		/* 4.096 us * 2^timeout */
	u8 retries;
	struct swp_pair_shown shown;
	/* under qp->lock */
	u32 peer_psn;		/* at which the peer expects our requests, or NONE */
	unsigned long deadline;	/* for the stream, jiffies */
	bool posted;		/* the deadline is that of a request */
	int error;		/* of the last attempt, for the log */
	bool vetted;		/* the peer's Reply fits: its QP has its stream */
	struct delayed_work work;	/* queued: a reference on the QP */
};

void swp_pair_init(struct swp_qp *qp);
/*
 * INIT to RTR with the address of the peer, RTR to RTS.  Process context, with
 * qp->modify.  They do not wait for the peer.
 */
int swp_pair_rtr(struct swp_qp *qp, const struct ib_qp_attr *attr, int mask);
int swp_pair_rts(struct swp_qp *qp, const struct ib_qp_attr *attr, int mask);
/* PSNs, which keep strangers out, only if the @mask asks for anything at all */
void swp_pair_query(struct swp_qp *qp, struct ib_qp_attr *attr, int mask);
/*
 * A request was posted to a QP without stream: if the QP waits, this limits the
 * time.  Any context.
 */
void swp_pair_posted(struct swp_qp *qp);
/* The QP may not wait any more: release what waiting needs.  Any context. */
void swp_pair_look(struct swp_qp *qp);
/*
 * The same at once, for a QP that waits no more and will not wait.  Process
 * context, no locks except qp->modify.
 */
void swp_pair_stop(struct swp_qp *qp);

#endif /* SWP_PAIR_H */
