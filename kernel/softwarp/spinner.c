// SPDX-License-Identifier: GPL-2.0
#include <linux/ktime.h>

#include "device.h"
#include "spinner.h"
#include "qp.h"

/* Without an answer it does not ask for this time, ns, and the double each time */
#define SWP_SPINNER_DEAF	(64 * 1000)
#define SWP_SPINNER_DEAFER	8
/* Octets of a stream after which the next one has its turn */
#define SWP_SPINNER_BURST	(256 * 1024)
/* Streams that one call serves */
#define SWP_SPINNER_STREAMS	4

static struct swp_spin_page *page(const struct swp_spinner *p)
{
	return p->page.mem;
}

void swp_spinner_init(struct swp_ucontext *uctx, bool knows)
{
	struct swp_spinner *p = &uctx->spinner;

	spin_lock_init(&p->lock);
	INIT_LIST_HEAD(&p->qps);
	/* without it there is no page: no entries */
	if (knows && swp_ring_alloc(&p->page, 1, sizeof(struct swp_spin_page), uctx))
		ibdev_dbg(&uctx->dev->base, "no page for a program that spins\n");
}

void swp_spinner_exit(struct swp_spinner *p)
{
	WARN_ON_ONCE(!list_empty(&p->qps));
	swp_ring_free(&p->page);
}

/* Asks once.  Only one asks at a time: who gives up changes the word as an answer does. */
static bool ask(struct swp_spinner *p)
{
	u64 wait = READ_ONCE(swp_params.spin_wait_us) * NSEC_PER_USEC;
	u64 now = ktime_get_ns();

	if (!wait || now < p->deaf_until)
		return false;
	WRITE_ONCE(page(p)->ask, 1);
	do {
		cpu_relax();
		if (!READ_ONCE(page(p)->ask)) {
			p->deaf = 0;
			return true;
		}
	} while (ktime_get_ns() - now < wait);
	WRITE_ONCE(page(p)->ask, 0);
	p->deaf_until = now + ((u64)SWP_SPINNER_DEAF << p->deaf);
	p->deaf = min_t(u32, p->deaf + 1, SWP_SPINNER_DEAFER);
	return false;
}

/*
 * A program that answers at once is in ibv_poll_cq(), on another processor, and
 * looks there for work for a moment.  One that serves others looks when it is done.
 */
static bool answers(struct swp_spinner *p)
{
	bool here;

	if (!p->page.entries || !READ_ONCE(swp_params.spin_wait_us))
		return false;
	if (atomic_read(&p->serving))
		return true;
	if (test_and_set_bit_lock(0, &p->asking))
		return false;
	here = ask(p);
	clear_bit_unlock(0, &p->asking);
	return here;
}

void swp_spinner_add(struct swp_qp *qp)
{
	struct swp_spinner *p = qp->spinner;

	swp_qp_assert_owned(qp);
	spin_lock_bh(&p->lock);
	if (list_empty(&qp->news)) {
		swp_qp_get(qp);
		list_add_tail(&qp->news, &p->qps);
		WRITE_ONCE(page(p)->work, 1);
	}
	spin_unlock_bh(&p->lock);
}

bool swp_spinner_comes(struct swp_qp *qp)
{
	if (!answers(qp->spinner))
		return false;
	swp_spinner_add(qp);
	return true;
}

/* The next stream, with its reference, or NULL */
static struct swp_qp *next(struct swp_spinner *p)
{
	struct swp_qp *qp;

	/* many threads may ask, while softirq waits for the lock */
	if (list_empty_careful(&p->qps))
		return NULL;
	spin_lock_bh(&p->lock);
	qp = list_first_entry_or_null(&p->qps, struct swp_qp, news);
	if (qp)
		list_del_init(&qp->news);
	if (list_empty(&p->qps))
		WRITE_ONCE(page(p)->work, 0);
	spin_unlock_bh(&p->lock);
	return qp;
}

void swp_spinner_forget(struct swp_qp *qp)
{
	struct swp_spinner *p = qp->spinner;
	bool found;

	if (!p)
		return;
	spin_lock_bh(&p->lock);
	found = !list_empty(&qp->news);
	list_del_init(&qp->news);
	if (found && list_empty(&p->qps))
		WRITE_ONCE(page(p)->work, 0);
	spin_unlock_bh(&p->lock);
	if (found)
		swp_qp_put(qp);
}

void swp_spinner_serve(struct swp_spinner *p)
{
	struct swp_qp *qp;
	int i;

	if (!p->page.entries)
		return;
	atomic_inc(&p->serving);
	for (i = 0; i < SWP_SPINNER_STREAMS; i++) {
		qp = next(p);
		if (!qp)
			break;
		swp_qp_serve(qp, SWP_SPINNER_BURST);
		swp_qp_put(qp);
		cond_resched();
	}
	atomic_dec(&p->serving);
}
