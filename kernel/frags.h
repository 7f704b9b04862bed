/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pages that were filled and given to TCP, to be filled again once it has no
 * reference to them any more.  Kernels that clear each page at its allocation, as
 * those of most distributions do, would otherwise clear as many octets as are
 * sent.  A ring belongs to a CPU and a module.  It is of use only if it has about
 * as many pages as are in flight, and the fewer it has, the more of them are still
 * in the caches: so it grows while its two oldest pages are in flight, and shrinks
 * while neither is.  Together the rings of a module keep a thousandth of the memory
 * at most, or half a MiB for each CPU.
 *
 * Softirqs are off while a ring is used.  On PREEMPT_RT that excludes nobody any
 * more, so it has a lock, which is nothing elsewhere.
 */
#ifndef SWP_FRAGS_H
#define SWP_FRAGS_H

#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/sizes.h>
#include <linux/skbuff.h>
#include <linux/topology.h>

#include "compat.h"

#define SWP_FRAGS_MIN	16
#define SWP_FRAGS_MAX	64
#define SWP_FRAGS_SHARE	1024	/* of the memory */
#define SWP_FRAGS_SPARE	64	/* pages filled while there was one too many */
#define SWP_FRAG_SIZE	SZ_32K	/* what skb_page_frag_refill() tries for */

struct swp_frags {
	local_lock_t lock;
	struct page *page[SWP_FRAGS_MAX];
	u32 limit;		/* how many of them it may have; 0: not known yet */
	u32 first, pages;	/* the oldest, and how many there are */
	u32 spare;		/* how often in a row the second was free, too */
	struct page_frag part;	/* of swp_frags_give() */
};

#define SWP_DEFINE_FRAGS(name) \
	DEFINE_PER_CPU(struct swp_frags, name) = { \
		.lock = INIT_LOCAL_LOCK(lock) }

/* How many pages a CPU may keep, of @memory octets of which all CPUs have a share */
static inline u32 swp_frags_limit(u64 memory)
{
	u64 pages = div_u64(memory, SWP_FRAGS_SHARE * SWP_FRAG_SIZE);

	pages = div_u64(pages, num_possible_cpus());
	return clamp_t(u64, pages, SWP_FRAGS_MIN, SWP_FRAGS_MAX);
}

/* Is it worth keeping?  Not what scarce memory, its reserves or other nodes gave. */
static inline bool swp_frags_keeps(const struct page_frag *f)
{
	return f->size >= SWP_FRAG_SIZE && !page_is_pfmemalloc(f->page) &&
	       page_to_nid(f->page) == numa_mem_id();
}

/*
 * Is there a page with @older ones, to which nobody else has a reference?  Whose was
 * the last one has read what it wanted.
 */
static inline bool swp_frags_free_at(const struct swp_frags *ring, u32 older)
{
	return older < ring->pages &&
	       page_ref_count(ring->page[(ring->first + older) % SWP_FRAGS_MAX]) == 1;
}

static inline struct page *swp_frags_pop(struct swp_frags *ring)
{
	ring->pages--;
	return ring->page[ring->first++ % SWP_FRAGS_MAX];
}

/*
 * swp_frags_room - have room in a page, without allocating one
 * @frags: variable of each CPU
 * @f: a page that the caller alone fills, or one with page NULL
 * @least: octets that are asked for
 *
 * A page to which nobody else has a reference is free from its beginning.  If
 * there is no room, @f becomes the page that this CPU filled longest ago, or the
 * one after that, and the ring takes over the caller's reference to the old page.
 * False: @f is without a page, allocate one.  Any context but hard interrupts.
 */
static inline bool swp_frags_room(struct swp_frags __percpu *frags,
				  struct page_frag *f, u32 least)
{
	struct page *full = NULL, *next = NULL, *drop = NULL;
	struct swp_frags *ring;
	bool kept;

	if (f->page) {
		if (page_ref_count(f->page) == 1)
			f->offset = 0;
		if (f->offset + least <= f->size)
			return true;
		full = f->page;
	}
	local_bh_disable();
	local_lock_nested_bh(&frags->lock);
	ring = this_cpu_ptr(frags);
	if (unlikely(!ring->limit))
		ring->limit = swp_frags_limit((u64)totalram_pages() << PAGE_SHIFT);
	kept = full && swp_frags_keeps(f);
	if (!swp_frags_free_at(ring, 0)) {
		ring->spare = 0;
		/*
		 * It may be in flight for long: do not wait for it, nor when
		 * there is no room for one more, or nothing to fill.
		 */
		if (swp_frags_free_at(ring, 1) ||
		    (ring->pages && (!full || (kept && ring->pages == ring->limit))))
			drop = swp_frags_pop(ring);
	} else if (!swp_frags_free_at(ring, 1)) {
		ring->spare = 0;
	} else if (++ring->spare == SWP_FRAGS_SPARE) {
		ring->spare = 0;
		drop = swp_frags_pop(ring);
	}
	if (swp_frags_free_at(ring, 0))
		next = swp_frags_pop(ring);
	if (kept)
		ring->page[(ring->first + ring->pages++) % SWP_FRAGS_MAX] = full;
	local_unlock_nested_bh(&frags->lock);
	local_bh_enable();
	if (full && !kept)
		put_page(full);
	if (drop)
		put_page(drop);
	f->page = next;
	if (!next)
		return false;
	f->offset = 0;
	f->size = page_size(next);
	return true;
}

/*
 * swp_frags_take - begin to fill the page that this CPU was filling last, if any
 *
 * Any context but hard interrupts.
 */
static inline void swp_frags_take(struct swp_frags __percpu *frags,
				  struct page_frag *f)
{
	struct page_frag *part;

	local_bh_disable();
	local_lock_nested_bh(&frags->lock);
	part = &this_cpu_ptr(frags)->part;
	*f = *part;
	part->page = NULL;
	local_unlock_nested_bh(&frags->lock);
	local_bh_enable();
}

/*
 * swp_frags_give - stop filling @f: leave it to the next one on this CPU, or free it
 *
 * So nobody has a page for long who may not send again.  Any context but hard
 * interrupts.
 */
static inline void swp_frags_give(struct swp_frags __percpu *frags,
				  struct page_frag *f)
{
	struct page_frag *part;

	if (!f->page)
		return;
	local_bh_disable();
	local_lock_nested_bh(&frags->lock);
	part = &this_cpu_ptr(frags)->part;
	/* receivers drop what the reserves of memory gave */
	if (!part->page && !page_is_pfmemalloc(f->page))
		swap(*part, *f);
	local_unlock_nested_bh(&frags->lock);
	local_bh_enable();
	if (f->page)
		put_page(f->page);
	f->page = NULL;
}

/* Free the pages of all CPUs, once nobody uses @frags any more. */
static inline void swp_frags_free(struct swp_frags __percpu *frags)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct swp_frags *ring = per_cpu_ptr(frags, cpu);

		while (ring->pages)
			put_page(swp_frags_pop(ring));
		if (ring->part.page)
			put_page(ring->part.page);
		ring->part.page = NULL;
	}
}

#endif /* SWP_FRAGS_H */
