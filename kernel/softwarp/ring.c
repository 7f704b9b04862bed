// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: their memory, its accounting, and the requests in receive queues.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "device.h"
#include "ring.h"
#include "rx.h"

/* Memory ------------------------------------------------------------------ */

/*
 * When the memory cgroup of a program is full, the program gets an error, and the OOM
 * killer does not run.
 */
static gfp_t page_gfp(bool charge)
{
	return GFP_KERNEL | __GFP_ZERO | __GFP_RETRY_MAYFAIL | __GFP_NOWARN |
	       (charge ? __GFP_ACCOUNT : 0);
}

/*
 * Allocates zeroed pages that can be mapped, and maps them contiguously here.
 * Those of a program are charged to its memory cgroup.
 */
static void *alloc_ring_mem(u32 bytes, bool charge)
{
	gfp_t gfp = page_gfp(charge);
	unsigned int i, n = bytes >> PAGE_SHIFT;
	struct page **pages;
	void *mem;

	pages = kvmalloc_array(n, sizeof(*pages),
			       charge ? GFP_KERNEL_ACCOUNT : GFP_KERNEL);
	if (!pages)
		return NULL;
	for (i = 0; i < n; i++) {
		pages[i] = alloc_page(gfp);
		if (!pages[i])
			goto err;
		if (!(i % 64))
			cond_resched();
	}
	/* vfree() puts the pages, too, and frees the array */
	mem = vmap(pages, n, VM_MAP | VM_USERMAP | VM_MAP_PUT_PAGES,
		   PAGE_KERNEL);
	if (!mem)
		goto err;
	return mem;

err:
	while (i--)
		__free_page(pages[i]);
	kvfree(pages);
	return NULL;
}

/*
 * The same for a program.  One page, as of most small queues, has an address here
 * without being mapped, and needs no flush of all TLBs when it goes.
 */
static void *alloc_shared(u32 bytes)
{
	if (bytes > PAGE_SIZE)
		return alloc_ring_mem(bytes, true);
	return (void *)__get_free_page(page_gfp(true));
}

/* @mem: of alloc_shared().  Pages that a program has mapped stay until it unmaps them. */
static void free_shared(void *mem)
{
	if (is_vmalloc_addr(mem))
		vfree(mem);
	else
		free_page((unsigned long)mem);
}

/*
 * Allocates zeroed memory of the kernel alone.  To map pages costs more than all
 * else that makes a small queue.
 */
static void *alloc_private(u32 bytes)
{
	void *mem = NULL;

	if (bytes <= SZ_32K)
		mem = kzalloc(bytes, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
	return mem ?: alloc_ring_mem(PAGE_ALIGN(bytes), false);
}

/*
 * A program's rings are pinned like its regions, so they count like these
 * against RLIMIT_MEMLOCK, in the counter of ib_umem_get().
 */
static int lock_pages(struct swp_mmap_entry *e, u64 bytes)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = current->mm;
	u64 sum;

	e->locked = PAGE_ALIGN(bytes) >> PAGE_SHIFT;
	sum = atomic64_add_return(e->locked, &mm->pinned_vm);
	if (sum > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(e->locked, &mm->pinned_vm);
		return -ENOMEM;
	}
	/* keep the counter, but not the memory of the process */
	mmgrab(mm);
	e->mm = mm;
	return 0;
}

static void free_entry(struct swp_mmap_entry *e)
{
	free_shared(e->mem);
	if (e->mm) {
		atomic64_sub(e->locked, &e->mm->pinned_vm);
		mmdrop(e->mm);
	}
	kfree(e);
}

/* Allocates memory that a program can map; it counts as @bytes plus @beside. */
static int alloc_mapped(struct swp_ring *r, u64 bytes, u64 beside,
			struct swp_ucontext *uctx)
{
	struct swp_mmap_entry *e = kzalloc(sizeof(*e), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!e)
		return -ENOMEM;
	ret = lock_pages(e, bytes + PAGE_ALIGN(beside));
	if (ret)
		goto err;
	ret = -ENOMEM;
	e->mem = alloc_shared(bytes);
	if (!e->mem)
		goto err;
	ret = rdma_user_mmap_entry_insert(&uctx->base, &e->base, bytes);
	if (ret)
		goto err;
	r->mem = e->mem;
	r->entry = e;
	return 0;

err:
	free_entry(e);
	return ret;
}

/* Of a ring, whatever is behind it */
static u64 ring_bytes(const struct swp_ring *r)
{
	if (!r->entries)
		return 0;
	return ALIGN(SWP_RING_DATA_OFF + (u64)r->entries * r->stride, 64);
}

static int alloc_memory(struct swp_ring *r, u64 bytes, u64 beside,
			struct swp_ucontext *uctx)
{
	int ret = 0;

	/* no more than a mapping can have */
	if (PAGE_ALIGN(bytes) > U32_MAX)
		return -ENOMEM;
	if (uctx) {
		bytes = PAGE_ALIGN(bytes);
		ret = alloc_mapped(r, bytes, beside, uctx);
	} else {
		r->mem = alloc_private(bytes);
		ret = r->mem ? 0 : -ENOMEM;
	}
	if (!ret)
		r->bytes = bytes;
	return ret;
}

/* Tells a ring its size: @entries, rounded up to a power of two, of @stride bytes. */
void swp_ring_size(struct swp_ring *r, u32 entries, u32 stride)
{
	memset(r, 0, sizeof(*r));
	if (!entries)
		return;
	r->entries = roundup_pow_of_two(entries);
	r->mask = r->entries - 1;
	r->stride = stride;
}

/*
 * swp_ring_alloc_two - allocate two rings whose sizes are known, either without
 * entries perhaps, in one piece of memory, which @uctx can map, or which is private if
 * that is NULL.  It belongs to @first, which is freed alone.
 * @beside: bytes that the caller allocates elsewhere for each element of @first
 * Returns 0 or -ENOMEM.
 */
int swp_ring_alloc_two(struct swp_ring *first, struct swp_ring *second,
		       u32 beside, struct swp_ucontext *uctx)
{
	u64 offset = ring_bytes(first);
	int ret;

	if (!first->entries && !second->entries)
		return 0;
	ret = alloc_memory(first, offset + ring_bytes(second),
			   (u64)first->entries * beside, uctx);
	if (ret)
		return ret;
	if (second->entries)
		second->mem = first->mem + offset;
	return 0;
}

/*
 * swp_ring_alloc - allocate a ring of @entries elements of @stride bytes, as above
 * Returns 0 or -ENOMEM.
 */
int swp_ring_alloc(struct swp_ring *r, u32 entries, u32 stride,
		   struct swp_ucontext *uctx)
{
	struct swp_ring none = {};
	int ret;

	swp_ring_size(r, entries, stride);
	ret = swp_ring_alloc_two(r, &none, 0, uctx);
	if (ret)
		memset(r, 0, sizeof(*r));
	return ret;
}

/* A mapping may outlive the queue; then its entry frees the memory. */
void swp_ring_free(struct swp_ring *r)
{
	if (r->entry)
		rdma_user_mmap_entry_remove(&r->entry->base);
	else
		kvfree(r->mem);
	memset(r, 0, sizeof(*r));
}

u64 swp_ring_key(const struct swp_ring *r)
{
	return r->entry ? rdma_user_mmap_get_offset(&r->entry->base) : 0;
}

int swp_mmap(struct ib_ucontext *ctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *e = rdma_user_mmap_entry_get(ctx, vma);
	struct swp_mmap_entry *entry;
	int ret;

	if (!e)
		return -EINVAL;
	entry = container_of(e, struct swp_mmap_entry, base);
	if (is_vmalloc_addr(entry->mem)) {
		ret = remap_vmalloc_range(vma, entry->mem, 0);
	} else {
		/* the same flags; the core has compared the length */
		swp_vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
		ret = vm_insert_page(vma, vma->vm_start,
				     virt_to_page(entry->mem));
	}
	rdma_user_mmap_entry_put(e);
	return ret;
}

void swp_mmap_free(struct rdma_user_mmap_entry *e)
{
	free_entry(container_of(e, struct swp_mmap_entry, base));
}

/* Receive requests --------------------------------------------------------- */

int swp_rqe_fetch(struct swp_rx *rx, const struct swp_ring *ring, u32 cons,
		  u32 max_sge, u32 *left)
{
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(ring);
	struct swp_rqe rqe;
	const void *src;
	u64 space = 0;
	u32 i, prod;
	int ret = 0;

	/* pairs with the poster's release of prod */
	prod = smp_load_acquire(&ctrl->prod);
	if (prod == cons)
		return -ENOBUFS;
	if (prod - cons > ring->entries)
		return -EINVAL;
	*left = prod - cons - 1;
	src = swp_ring_slot(ring, cons);
	memcpy(&rqe, src, sizeof(rqe));
	barrier();	/* check and use only the copy */
	rx->wr_id = rqe.wr_id;
	rx->in_msg = true;
	rx->num_sge = rqe.num_sge;
	rx->sge_i = 0;
	rx->sge_off = 0;
	if (rqe.num_sge > max_sge) {
		rx->num_sge = 0;
		ret = -EINVAL;
	}
	memcpy(rx->sge, src + sizeof(rqe), rx->num_sge * sizeof(*rx->sge));
	barrier();	/* as above */
	for (i = 0; i < rx->num_sge; i++)
		space += rx->sge[i].length;
	/* no message is longer than the range of MO */
	rx->space = min_t(u64, space, U32_MAX);
	return ret;
}

int swp_rqe_post(struct swp_ring *ring, u32 max_sge, const struct ib_recv_wr *wr,
		 const struct ib_recv_wr **bad)
{
	struct swp_ring_ctrl *ctrl = swp_ring_ctrl(ring);
	u32 prod = ctrl->prod;
	struct swp_rqe *e;
	int ret = 0;

	for (; wr; wr = wr->next) {
		/* pairs with the engine's release of cons */
		if (prod - smp_load_acquire(&ctrl->cons) >= ring->entries) {
			ret = -ENOMEM;
			break;
		}
		if (wr->num_sge < 0 || wr->num_sge > max_sge) {
			ret = -EINVAL;
			break;
		}
		e = swp_ring_slot(ring, prod);
		e->wr_id = wr->wr_id;
		e->num_sge = wr->num_sge;
		swp_copy_sges((struct swp_sge *)(e + 1), wr->sg_list, wr->num_sge);
		prod++;
	}
	/* pairs with the engine's acquire load of prod */
	smp_store_release(&ctrl->prod, prod);
	if (ret)
		*bad = wr;
	return ret;
}
