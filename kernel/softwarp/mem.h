/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions and windows: the table of STags, the rights on each, and
 * the way from an address to a page.
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
	SWP_MR_DMA,		/* all kernel memory, addresses are virtual */
	SWP_MR_FAST,		/* alloc_mr(): registered by work requests */
	SWP_MR_WINDOW,		/* alloc_mw(): a part of another one, for peers */
};

/* Blocks that a fast registration may have */
#define SWP_MAX_FAST_BLOCKS	1024

enum swp_mr_flag {
	SWP_MRF_INVALID,	/* no lookup finds it any more */
	SWP_MRF_DEAD,		/* WINDOW: never to be bound again; dev->mw_lock */
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
	struct swp_mr *parent;	/* WINDOW: bound to, or NULL; dev->mw_lock */
	u64 parent_addr;	/* WINDOW: what iova is there */
	u32 qpn;		/* WINDOW: the only QP it is for; 0 = any of the PD */
	u32 reg_qpn;		/* FAST: the QP that registered it; its peer may invalidate */
	bool type_2;		/* WINDOW */
	u32 windows;		/* USER: bound to it; dev->mw_lock */
	refcount_t ref;		/* the table's and one per placement running */
	struct completion idle;	/* the last of them is gone */
	struct rcu_head rcu;
};

#define to_swp_mr(x)	container_of(x, struct swp_mr, base)

struct swp_mw {
	struct ib_mw base;
	struct swp_mr *mr;	/* outlives it by a grace period */
};

#define to_swp_mw(x)	container_of(x, struct swp_mw, base)

/*
 * A region that is looked up is used and given back without sleeping; softirqs
 * are off in between, so that an invalidation can wait for that.
 */
struct swp_mr *swp_mr_get(struct swp_device *dev, u32 stag);
void swp_mr_put(struct swp_mr *mr);

/*
 * swp_mr_check - may @len bytes at @addr be accessed through this QP?
 * Returns 0, -EACCES (right missing), -EPERM (other PD or QP), -ERANGE (bounds),
 * -EOVERFLOW (address wraps).
 */
int swp_mr_check(const struct swp_mr *mr, const struct swp_qp *qp, u64 addr,
		 u64 len, int access);
/*
 * swp_mr_check_atomic - may this QP's peer do an atomic at @to?  Returns what
 * swp_mr_check() says, or -EINVAL: the memory there is not aligned.
 */
int swp_mr_check_atomic(const struct swp_mr *mr, const struct swp_qp *qp,
			u64 to);
/*
 * swp_mr_atomic - do it, atomically for all processors and all peers
 * @old: what was there before
 * Returns 0, -ENOENT (no such STag), or what swp_mr_check_atomic() says.
 */
int swp_mr_atomic(struct swp_qp *qp, const struct swp_atomic *a, u64 *old);
/*
 * The page and the offset in it of @addr, which swp_mr_check() has allowed;
 * *@len is cut down to what lies contiguous.
 */
struct page *swp_mr_page(const struct swp_mr *mr, u64 addr, u32 *off, u32 *len);

/*
 * Invalidation: no access through the STag finds the region any more, local ones
 * included, and none is under way on return; its owner still has to deregister
 * it.  Any context but hard interrupts.
 *
 * swp_mr_remote_inv - the peer's Send with Invalidate
 * Returns 0, -ENOENT (no such STag), or -EPERM: the region belongs to another
 * PD, other streams may use it or windows are bound to it, or the peer has no
 * right on it.  The latter were never advertised, but for a sink of reads, whose
 * STag the peer sees in each Read Request.
 *
 * swp_mr_local_inv - a work request of its owner
 * Returns 0, -ENOENT, or -EPERM: not one that can be invalidated by this QP.
 */
int swp_mr_remote_inv(struct swp_qp *qp, u32 stag);
int swp_mr_local_inv(struct swp_qp *qp, u32 stag);

/*
 * A fast registration takes effect: what swp_map_mr_sg() was given last can be
 * accessed as STag @key, whose index is the region's.  Socket lock held.
 * Returns 0, -ENOENT, or -EINVAL: it is valid already, or not such a region.
 */
int swp_mr_fast_reg(struct swp_qp *qp, u32 key, int access);

/*
 * A memory window becomes STag @key for a part of a region, or for nothing.
 * Socket lock held.  Returns 0; -ENOENT: no such window or region; -EINVAL: not
 * to be bound so; -EACCES, -ERANGE: the region does not allow it.
 */
int swp_mw_bind(struct swp_qp *qp, u32 key, const struct swp_bind *b);

/*
 * Local access: lkey to region, checked.  ERR_PTR(-EFAULT) when not allowed; else
 * the caller gives it back with swp_sge_put().
 */
struct swp_mr *swp_sge_get(struct swp_qp *qp, const struct swp_sge *sge, u32 off,
			   u32 len, int access);
void swp_sge_put(const struct swp_qp *qp, struct swp_mr *mr);

/* A QP of the PD is about to be made; it is gone.  Process context. */
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
