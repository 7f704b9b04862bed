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

#include "qp.h"

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
	void *ring = qp->irq;
	bool ok = grow(qp, &ring, &qp->irq_size, qp->irq_cons,
		       sizeof(*qp->irq));

	qp->irq = ring;
	return ok;
}

static bool grow_orq(struct swp_qp *qp)
{
	void *ring = qp->orq;
	bool ok = grow(qp, &ring, &qp->orq_size, qp->orq_cons,
		       sizeof(*qp->orq));

	qp->orq = ring;
	return ok;
}

/* @ird, @ord: what was agreed; a Read RTR has its place in it.  0 or -ENOMEM. */
int swp_reads_init(struct swp_qp *qp, u16 ird, u16 ord)
{
	if (ird && !qp->irq && !grow_irq(qp))
		return -ENOMEM;
	if (ord && !qp->orq && !grow_orq(qp))
		return -ENOMEM;
	return 0;
}

void swp_reads_free(struct swp_qp *qp)
{
	u32 i;

	for (i = 0; i < qp->orq_size; i++)
		kvfree(qp->orq[i].more);
	kvfree(qp->orq);
	kvfree(qp->irq);
	qp->orq = NULL;
	qp->irq = NULL;
	qp->orq_size = 0;
	qp->irq_size = 0;
}

/*
 * Is there memory for one more request of the peer, if it may issue one?  To be
 * asked before anything is taken from the stream.
 */
bool swp_irq_grow(struct swp_qp *qp)
{
	return qp->irq_size >= qp->sp.ird || grow_irq(qp);
}

/*
 * Is there a place for one more request of ours, with @num_sge parts?  False: it
 * waits for a response, or, with tx.no_mem set, for memory.
 */
bool swp_orq_room(struct swp_qp *qp, u32 num_sge)
{
	u32 n = qp->orq_prod - qp->orq_cons;
	struct swp_orq *o;

	if (n >= qp->sp.ord)
		return false;
	if (n == qp->orq_size && !grow_orq(qp))
		goto no_mem;
	o = swp_orq(qp, qp->orq_prod);
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
void swp_orq_done(struct swp_qp *qp)
{
	struct swp_orq *o = swp_orq(qp, qp->orq_cons++);

	if (unlikely(o->more)) {
		kvfree(o->more);
		o->more = NULL;
	}
}
