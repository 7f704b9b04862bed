/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions and windows: the table of STags, the rights of each, and the
 * way from an address to a page.
 */
#ifndef SWP_MEM_H
#define SWP_MEM_H

#include <linux/completion.h>
#include <linux/refcount.h>
#include <rdma/ib_verbs.h>

#include "device.h"

struct swp_atomic;
struct swp_qp;

enum swp_mr_kind {
	SWP_MR_USER,		/* ib_umem */
	SWP_MR_DMA,		/* all kernel memory, virtual addresses */
	SWP_MR_FAST,		/* alloc_mr(): registered by work requests */
	SWP_MR_WINDOW,		/* alloc_mw(): part of a region, for peers */
};

/* Most blocks of a fast registration */
#define SWP_MAX_FAST_BLOCKS	1024

enum swp_mr_flag {
	SWP_MRF_INVALID,	/* swp_mr_get() does not find it */
	SWP_MRF_DEAD,		/* WINDOW: it cannot be bound; dev->mw_lock */
};

struct swp_mr {
	struct ib_mr base;
	struct swp_device *dev;
	struct swp_owner *owner;
	enum swp_mr_kind kind;
	unsigned long flags;	/* enum swp_mr_flag */
	u32 stag;
	int access;		/* enum ib_access_flags */
	u64 iova;		/* first valid address or tagged offset */
	u64 length;		/* bytes */
	u32 first_off;		/* offset of iova in the first page or block */
	struct page **pages;	/* USER */
	struct ib_umem *umem;	/* USER */
	u64 *blocks;		/* FAST: their kernel addresses */
	u32 max_blocks;
	u32 num_blocks;
	u8 block_shift;
	struct swp_mr *parent;	/* WINDOW: its region, or NULL; dev->mw_lock */
	u64 parent_addr;	/* WINDOW: address of its start in parent */
	u32 qpn;		/* WINDOW: its only QP; 0: any QP of the PD */
	/* FAST: the QP that registered it, whose peer may invalidate it */
	u32 reg_qpn;
	bool type_2;		/* WINDOW */
	u32 windows;		/* USER: windows bound to it; dev->mw_lock */
	refcount_t ref;		/* one of the table, one per placement */
	struct completion idle;	/* the last reference is dropped */
	struct rcu_head rcu;
};

#define to_swp_mr(x)	container_of(x, struct swp_mr, base)

struct swp_mw {
	struct ib_mw base;
	struct swp_mr *mr;	/* freed a grace period after dealloc_mw */
};

#define to_swp_mw(x)	container_of(x, struct swp_mw, base)

/*
 * Between the lookup and the put of a region, the caller must not sleep;
 * softirqs are off, so that an invalidation can wait for the put.
 */
struct swp_mr *swp_mr_get(struct swp_device *dev, u32 stag);
void swp_mr_put(struct swp_mr *mr);
/* One more reference, for a caller that has one; the same holds for it. */
void swp_mr_get_again(struct swp_mr *mr);

/*
 * swp_mr_check - may @len bytes at @addr be accessed through this QP?
 * Returns 0, -EACCES (missing right), -EPERM (other PD or QP), -ERANGE (bounds)
 * or -EOVERFLOW (the address wraps).
 */
int swp_mr_check(const struct swp_mr *mr, const struct swp_qp *qp, u64 addr,
		 u64 len, int access);
/*
 * swp_mr_check_atomic - may this QP's peer execute an atomic at @to?  Returns
 * as swp_mr_check(), or -EINVAL: the memory is not aligned.
 */
int swp_mr_check_atomic(const struct swp_mr *mr, const struct swp_qp *qp,
			u64 to);
/*
 * swp_mr_atomic - execute it, atomically for all CPUs and all peers
 * @old: set to the previous value
 * Returns 0, -ENOENT (no such STag), or as swp_mr_check_atomic().
 */
int swp_mr_atomic(struct swp_qp *qp, const struct swp_atomic *a, u64 *old);
/*
 * Returns the page of @addr, and the offset in it; swp_mr_check() has allowed
 * the access.  Reduces *@len to the contiguous octets.
 */
struct page *swp_mr_page(const struct swp_mr *mr, u64 addr, u32 *off, u32 *len);

/*
 * Invalidation: on return no access through the STag is possible or in
 * progress, not even a local one; its owner still has to deregister the region.
 * Any context except hard interrupts.
 *
 * swp_mr_remote_inv - the peer's Send with Invalidate
 * Returns 0, -ENOENT (no such STag), or -EPERM: the region belongs to another
 * PD, other streams may use it, windows are bound to it, or the peer has no
 * right on it.  Regions without rights are not advertised; but the peer sees
 * the STag of a sink of reads in each Read Request.
 *
 * swp_mr_local_inv - a work request of the owner
 * Returns 0, -ENOENT, or -EPERM: this QP cannot invalidate it.
 */
int swp_mr_remote_inv(struct swp_qp *qp, u32 stag);
int swp_mr_local_inv(struct swp_qp *qp, u32 stag);

/*
 * Execute a fast registration: the memory of the last swp_map_mr_sg() becomes
 * accessible as STag @key, which has the region's index.  Socket lock held.
 * Returns 0, -ENOENT, or -EINVAL: it is valid already, not for this PD, or not
 * such a region.
 */
int swp_mr_fast_reg(struct swp_qp *qp, u32 key, int access);

/*
 * Bind a memory window as STag @key to a part of a region, or unbind it (length
 * 0).  Socket lock held.  Returns 0; -ENOENT: no such window or region;
 * -EINVAL: the window cannot be bound like this; or an error of swp_mr_check():
 * the region does not allow it.
 */
int swp_mw_bind(struct swp_qp *qp, u32 key, const struct swp_bind *b);

/*
 * Returns the region of an SGE for local access, checked, or ERR_PTR(-EFAULT).
 * The caller drops it with swp_sge_put().
 */
struct swp_mr *swp_sge_get(struct swp_qp *qp, const struct swp_sge *sge, u32 off,
			   u32 len, int access);
void swp_sge_put(const struct swp_qp *qp, struct swp_mr *mr);

/* Before the creation of a QP in the PD; after its end.  Process context. */
void swp_pd_add_qp(struct ib_pd *pd);
void swp_pd_del_qp(struct ib_pd *pd);
/* Verbs */
struct ib_mr *swp_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
			      int access);
struct ib_mr *swp_get_dma_mr(struct ib_pd *pd, int access);
struct ib_mr *swp_rereg_user_mr(struct ib_mr *mr, int flags, u64 start,
				u64 length, u64 iova, int access,
				struct ib_pd *pd, struct ib_udata *udata);
int swp_dereg_mr(struct ib_mr *mr, struct ib_udata *udata);
struct ib_mr *swp_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_sg);
int swp_alloc_mw(struct ib_mw *mw, struct ib_udata *udata);
int swp_dealloc_mw(struct ib_mw *mw);
int swp_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		  unsigned int *off);

#endif /* SWP_MEM_H */
