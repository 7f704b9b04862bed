/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rings: memory that the kernel shares with a program, or keeps for a kernel
 * consumer, and the rules of their indices.  The layout is that of
 * uapi/softwarp_abi.h.
 */
#ifndef SWP_RING_H
#define SWP_RING_H

#include <rdma/ib_verbs.h>

#include "uapi/softwarp_abi.h"

struct swp_rx;
struct swp_ucontext;

/* Memory shared with user space, or private to the kernel */
struct swp_ring {
	void *mem;			/* struct swp_ring_ctrl, elements */
	u32 bytes;			/* of mem; 0 = not this ring's to free */
	u32 entries;			/* power of two; 0 = no ring */
	u32 mask;
	u32 stride;
	struct swp_mmap_entry *entry;	/* NULL for kernel consumers */
};

struct swp_mmap_entry {
	struct rdma_user_mmap_entry base;
	void *mem;			/* freed with the entry */
	struct mm_struct *mm;		/* charged for the pinned pages */
	u32 locked;			/* number of these pages */
};

static inline struct swp_ring_ctrl *swp_ring_ctrl(const struct swp_ring *r)
{
	return r->mem;
}

static inline void *swp_ring_slot(const struct swp_ring *r, u32 i)
{
	return r->mem + SWP_RING_DATA_OFF + (size_t)(i & r->mask) * r->stride;
}

static inline void swp_copy_sges(struct swp_sge *dst, const struct ib_sge *src,
				 int num)
{
	for (; num; num--, dst++, src++) {
		dst->addr = src->addr;
		dst->lkey = src->lkey;
		dst->length = src->length;
	}
}

void swp_ring_size(struct swp_ring *r, u32 entries, u32 stride);
int swp_ring_alloc(struct swp_ring *r, u32 entries, u32 stride,
		   struct swp_ucontext *uctx);
int swp_ring_alloc_two(struct swp_ring *first, struct swp_ring *second,
		       u32 beside, struct swp_ucontext *uctx);
void swp_ring_free(struct swp_ring *r);
u64 swp_ring_key(const struct swp_ring *r);
int swp_mmap(struct ib_ucontext *ctx, struct vm_area_struct *vma);
void swp_mmap_free(struct rdma_user_mmap_entry *e);

/*
 * swp_rqe_fetch - copy and check the receive request at index @cons of a ring
 * @left: set to the number of requests after it
 * Returns 0; -ENOBUFS: there is none; -EINVAL: the ring's owner stored invalid
 * values; rx->in_msg says whether there was a request at all.  The caller holds
 * the lock of the consumer index, and advances it if rx->in_msg is set.
 */
int swp_rqe_fetch(struct swp_rx *rx, const struct swp_ring *ring, u32 cons,
		  u32 max_sge, u32 *left);

/* Posts requests of a kernel consumer; the caller serialises the posters. */
int swp_rqe_post(struct swp_ring *ring, u32 max_sge, const struct ib_recv_wr *wr,
		 const struct ib_recv_wr **bad);

#endif /* SWP_RING_H */
