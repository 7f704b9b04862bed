// SPDX-License-Identifier: GPL-2.0
/*
 * The queues of reads and atomics in progress: those of the peer, which wait
 * for our response, and our own, which wait for the peer's.  The IRD and ORD
 * that MPA start-up negotiated are limits; the rings grow as far as they are
 * used.
 *
 * Ring sizes are powers of two, so that their free running indices may wrap.
 * The functions run with the socket lock held, or while no engine can run.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "reads.h"

/* Any context; a user QP's memory is charged to the memcg of its creator. */
void *swp_qp_alloc(struct swp_qp *qp, size_t size)
{
	struct mem_cgroup *old = set_active_memcg(qp->memcg);
	void *p;

	p = kvmalloc(size, GFP_ATOMIC | __GFP_NOWARN |
			   (qp->user ? __GFP_ACCOUNT : 0));
	set_active_memcg(old);
	return p;
}

/* Doubles the size of a ring whose entries are all in use; a new one has one. */
static bool grow(struct swp_qp *qp, void **ring, u32 *size, u32 cons,
		 size_t stride)
{
	u32 i, n = *size ? *size * 2 : 1;
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

/* @ird, @ord: negotiated; @ord is at least 1 for a Read RTR.  0 or -ENOMEM. */
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
 * Is there memory for one more request of the peer, if it may issue one?  Check
 * this before taking anything from the stream.
 */
bool swp_iread_grow(struct swp_qp *qp)
{
	swp_qp_assert_owned(qp);
	return qp->iread_size >= qp->sp.ird || grow_irq(qp);
}

/*
 * Is there a place for one more request of ours, with @num_sge SGEs?  False: it
 * waits for a response or, if tx.no_mem is set, for memory.
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
	/* a program can change num_sge later: allocate for the maximum */
	o->more = swp_qp_alloc(qp, qp->max_send_sge * sizeof(*o->more));
	if (o->more)
		return true;
no_mem:
	qp->tx.no_mem = true;
	return false;
}

/* The response to our oldest request is complete. */
void swp_oread_done(struct swp_qp *qp)
{
	struct swp_oread *o = swp_oread(qp, qp->oread_cons++);

	swp_qp_assert_owned(qp);
	if (unlikely(o->more)) {
		kvfree(o->more);
		o->more = NULL;
	}
}
