/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads and atomics in progress: those of the peer, and ours.  The socket lock
 * protects all of it, except in init and free.
 */
#ifndef SWP_READS_H
#define SWP_READS_H

#include "qp.h"

/* A read or an atomic that the peer issued (inbound read queue) */
struct swp_iread {
	bool is_atomic;
	union {
		struct swp_rreq read;
		struct swp_atomic atomic;
	};
};

/* A read or an atomic that we issued (outbound read queue) */
struct swp_oread {
	u32 slot;
	bool atomic;		/* an Atomic Request; its id is the slot */
	bool inv;		/* invalidate inv_stag when it is complete */
	u16 num_sge;
	u32 inv_stag;
	u32 sink_stag;
	u64 sink_to;
	u32 size;
	u32 done;		/* octets placed */
	u32 sge_off;		/* placement position ... */
	u16 sge_i;		/* ... in this SGE */
	struct swp_sge one;	/* the list if it has one SGE */
	struct swp_sge *more;	/* ... or more, see swp_oread_room() */
};

int swp_reads_init(struct swp_qp *qp, u16 ird, u16 ord);
void swp_reads_free(struct swp_qp *qp);
bool swp_iread_grow(struct swp_qp *qp);
bool swp_oread_room(struct swp_qp *qp, u32 num_sge);
void swp_oread_done(struct swp_qp *qp);

static inline struct swp_iread *swp_iread(const struct swp_qp *qp, u32 i)
{
	return &qp->iread[i & (qp->iread_size - 1)];
}

static inline struct swp_oread *swp_oread(const struct swp_qp *qp, u32 i)
{
	return &qp->oread[i & (qp->oread_size - 1)];
}

static inline struct swp_sge *swp_oread_sge(struct swp_oread *o)
{
	return o->num_sge > 1 ? o->more : &o->one;
}

/* See swp_iread_grow() */
static inline bool swp_iread_room(struct swp_qp *qp)
{
	return likely(qp->iread_prod - qp->iread_cons < qp->iread_size) ||
	       swp_iread_grow(qp);
}

#endif /* SWP_READS_H */
