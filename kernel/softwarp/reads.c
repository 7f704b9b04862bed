// SPDX-License-Identifier: GPL-2.0
/*
 * The queues of reads and atomics that are in progress: those of the peer, which
 * wait for our response, and our own, which wait for the peer's.  What start-up
 * agreed upon is a limit; memory is taken for as many as there are at a time.
 *
 * Rings are powers of two, so that their free running indices may wrap.  All of
 * this runs with the socket lock held, or before the engines do.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "reads.h"

/* Entries of a ring when it is made */
#define SWP_READS_MIN	4

/* In any context, to the account of the program whose QP it is. */
void *swp_qp_alloc(struct swp_qp *qp, size_t size)
{
	struct mem_cgroup *old = set_active_memcg(qp->memcg);
	void *p;

	p = kvmalloc(size, GFP_ATOMIC | __GFP_NOWARN |
			   (qp->user ? __GFP_ACCOUNT : 0));
	set_active_memcg(old);
	return p;
}

/* A ring of twice the size; every entry of the old one is in use. */
static bool grow(struct swp_qp *qp, void **ring, u32 *size, u32 cons,
		 size_t stride)
{
	u32 i, n = *size ? *size * 2 : SWP_READS_MIN;
	void *bigger = swp_qp_alloc(qp, n * stride);

	if (!bigger)
		return false;
	memset(bigger, 0, n * stride);
	for (i = cons; i != cons + *size; i++)
		memcpy(bigger + (i & (n - 1)) * stride,
		       *ring + (i & (*size - 1)) * stride, stride);
	kvfree(*ring);
	*ring = bigger;
	*size = n;
	return true;
}

static bool grow_irq(struct swp_qp *qp)
{
	void *ring = qp->iread;
	bool ok = grow(qp, &ring, &qp->iread_size, qp->iread_cons,
		       sizeof(*qp->iread));

	qp->iread = ring;
	return ok;
}

static bool grow_oreads(struct swp_qp *qp)
{
	void *ring = qp->oread;
	bool ok = grow(qp, &ring, &qp->oread_size, qp->oread_cons,
		       sizeof(*qp->oread));

	qp->oread = ring;
	return ok;
}

/* @ird, @ord: what was agreed; a Read RTR has its place in it.  0 or -ENOMEM. */
int swp_reads_init(struct swp_qp *qp, u16 ird, u16 ord)
{
	if (ird && !qp->iread && !grow_irq(qp))
		return -ENOMEM;
	if (ord && !qp->oread && !grow_oreads(qp))
		return -ENOMEM;
	return 0;
}

void swp_reads_free(struct swp_qp *qp)
{
	u32 i;

	for (i = 0; i < qp->oread_size; i++)
		kvfree(qp->oread[i].more);
	kvfree(qp->oread);
	kvfree(qp->iread);
	qp->oread = NULL;
	qp->iread = NULL;
	qp->oread_size = 0;
	qp->iread_size = 0;
}

/*
 * Is there memory for one more request of the peer, if it may issue one?  To be
 * asked before anything is taken from the stream.
 */
bool swp_iread_grow(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	return qp->iread_size >= qp->sp.ird || grow_irq(qp);
}

/*
 * Is there a place for one more request of ours, with @num_sge parts?  False: it
 * waits for a response, or, with tx.no_mem set, for memory.
 */
bool swp_oread_room(struct swp_qp *qp, u32 num_sge)
{
	u32 n = qp->oread_prod - qp->oread_cons;
	struct swp_oread *o;

	swp_qp_assert_owned(qp);
	if (n >= qp->sp.ord)
		return false;
	if (n == qp->oread_size && !grow_oreads(qp))
		goto no_mem;
	o = swp_oread(qp, qp->oread_prod);
	if (num_sge <= 1 || o->more)
		return true;
	/* the number is the program's to change: enough for any that passes */
	o->more = swp_qp_alloc(qp, qp->max_send_sge * sizeof(*o->more));
	if (o->more)
		return true;
no_mem:
	qp->tx.no_mem = true;
	return false;
}

/* The oldest request of ours has its response. */
void swp_oread_done(struct swp_qp *qp)
{
	struct swp_oread *o = swp_oread(qp, qp->oread_cons++);

	swp_qp_assert_owned(qp);
	if (unlikely(o->more)) {
		kvfree(o->more);
		o->more = NULL;
	}
}
