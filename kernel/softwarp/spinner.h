/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A program that spins in ibv_poll_cq() has a processor that does nothing else.  It
 * can be asked to do what the socket callbacks of its streams would otherwise do
 * on the processor where packets arrive: that of the sender, if both ends are on
 * this machine.
 */
#ifndef SWP_SPINNER_H
#define SWP_SPINNER_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/spinlock.h>

#include "ring.h"

struct swp_qp;
struct swp_ucontext;

struct swp_spinner {
	struct swp_ring page;	/* a struct swp_spin_page; unused: no entries */
	atomic_t serving;	/* threads in swp_spinner_serve() */
	unsigned long asking;	/* bit 0: somebody asks; it protects: */
	u64 deaf_until;		/* not asked until then, ns */
	u32 deaf;		/* questions in a row without an answer */
	spinlock_t lock;	/* protects the list; bh safe */
	struct list_head qps;	/* that wait for it; each with a reference */
};

/*
 * Never fails: a program that may not have the page, or whose library does not know
 * it (@knows), is not asked.
 */
void swp_spinner_init(struct swp_ucontext *uctx, bool knows);
void swp_spinner_exit(struct swp_spinner *p);
/*
 * Will the program that has created @qp come?  Then it will call
 * swp_spinner_serve().  The stream's owner, in softirq.
 */
bool swp_spinner_comes(struct swp_qp *qp);
/* The stream has more for it.  The stream's owner. */
void swp_spinner_add(struct swp_qp *qp);
/* The stream of @qp has ended, and nobody asks for it any more. */
void swp_spinner_forget(struct swp_qp *qp);
/* Do what waits, for a limited time.  Process context. */
void swp_spinner_serve(struct swp_spinner *p);

#endif /* SWP_SPINNER_H */
