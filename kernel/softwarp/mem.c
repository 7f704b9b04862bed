// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions and windows: the table of STags, access checks, and the way
 * from an address to a page.
 *
 * An STag is 24 random bits of table index and 8 random bits of key, so that a
 * peer cannot guess one (RFC 5042 section 6.2).
 */
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/ib_umem.h>

#include "mem.h"
#include "qp.h"

/* Regions ----------------------------------------------------------------- */

static void drop_ref(struct swp_mr *mr)
{
	if (refcount_dec_and_test(&mr->ref))
		complete(&mr->idle);
}

/* Returns the region with this index, valid or not; swp_mr_put() drops it. */
static struct swp_mr *find_mr(struct swp_device *dev, u32 stag)
{
	struct swp_mr *mr;

	local_bh_disable();
	rcu_read_lock();
	mr = xa_load(&dev->mrs, stag >> 8);
	if (mr && !refcount_inc_not_zero(&mr->ref))
		mr = NULL;
	rcu_read_unlock();
	if (!mr)
		local_bh_enable();
	return mr;
}

/* Any context.  The caller drops the region with swp_mr_put(). */
struct swp_mr *swp_mr_get(struct swp_device *dev, u32 stag)
{
	struct swp_mr *mr = find_mr(dev, stag);

	if (!mr)
		return NULL;
	/*
	 * The barrier pairs with the one in invalidate(): it sees our reference
	 * or we see the flag.  The acquire pairs with swp_mr_fast_reg() and
	 * bind_to(): without the flag, we see all they have stored.
	 */
	smp_mb__after_atomic();
	if (test_bit_acquire(SWP_MRF_INVALID, &mr->flags) ||
	    READ_ONCE(mr->stag) != stag) {
		swp_mr_put(mr);
		return NULL;
	}
	return mr;
}

void swp_mr_put(struct swp_mr *mr)
{
	drop_ref(mr);
	local_bh_enable();
}

void swp_mr_get_again(struct swp_mr *mr)
{
	local_bh_disable();
	refcount_inc(&mr->ref);
}

/* The rights of a QP are for its peer; see struct swp_qp for whose count. */
static bool qp_allows(const struct swp_qp *qp, int access)
{
	access &= IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
		  IB_ACCESS_REMOTE_ATOMIC;
	return !READ_ONCE(qp->paired) || !(access & ~READ_ONCE(qp->access));
}

int swp_mr_check(const struct swp_mr *mr, const struct swp_qp *qp, u64 addr,
		 u64 len, int access)
{
	if (mr->base.pd != qp->base.pd || (mr->qpn && mr->qpn != qp->qpn))
		return -EPERM;
	if ((mr->access & access) != access || !qp_allows(qp, access))
		return -EACCES;
	if (addr + len < addr)
		return -EOVERFLOW;
	if (mr->kind == SWP_MR_DMA)
		return virt_addr_valid((void *)(uintptr_t)addr) ? 0 : -ERANGE;
	if (addr < mr->iova || len > mr->length ||
	    addr - mr->iova > mr->length - len)
		return -ERANGE;
	return 0;
}

struct page *swp_mr_page(const struct swp_mr *mr, u64 addr, u32 *off, u32 *len)
{
	struct page *page;
	u64 pos;

	if (mr->kind == SWP_MR_WINDOW) {
		addr = mr->parent_addr + (addr - mr->iova);
		mr = mr->parent;
	}
	if (mr->kind == SWP_MR_DMA) {
		void *va = (void *)(uintptr_t)addr;

		*off = offset_in_page(va);
		page = virt_to_page(va);
	} else if (mr->kind == SWP_MR_FAST) {
		void *va;

		pos = addr - mr->iova + mr->first_off;
		va = (void *)(uintptr_t)mr->blocks[pos >> mr->block_shift] +
		     (pos & ((1U << mr->block_shift) - 1));
		*off = offset_in_page(va);
		page = virt_to_page(va);
		*len = min_t(u32, *len, (1U << mr->block_shift) -
					(pos & ((1U << mr->block_shift) - 1)));
	} else {
		pos = addr - mr->iova + mr->first_off;
		*off = pos & ~PAGE_MASK;
		page = mr->pages[pos >> PAGE_SHIFT];
	}
	*len = min_t(u32, *len, PAGE_SIZE - *off);
	return page;
}

int swp_mr_check_atomic(const struct swp_mr *mr, const struct swp_qp *qp,
			u64 to)
{
	u32 off, len = sizeof(u64);
	int ret;

	ret = swp_mr_check(mr, qp, to, len, IB_ACCESS_REMOTE_ATOMIC);
	if (ret)
		return ret;
	/* the memory must be aligned, but the tagged offset need not be */
	swp_mr_page(mr, to, &off, &len);
	return off % sizeof(u64) ? -EINVAL : 0;
}

int swp_mr_atomic(struct swp_qp *qp, const struct swp_atomic *a, u64 *old)
{
	struct swp_mr *mr = swp_mr_get(qp->dev, a->stag);
	u32 off, len = sizeof(u64);
	struct page *page;
	u64 *p;
	int ret;

	swp_qp_assert_owned(qp);
	if (!mr)
		return -ENOENT;
	ret = swp_mr_check_atomic(mr, qp, a->to);
	if (ret)
		goto out;
	/* an aligned word does not cross a page */
	page = swp_mr_page(mr, a->to, &off, &len);
	p = page_address(page) + off;
	*old = READ_ONCE(*p);
	while (!try_cmpxchg64(p, old, swp_atomic_result(a, *old)))
		cpu_relax();
out:
	swp_mr_put(mr);
	return ret;
}

struct swp_mr *swp_sge_get(struct swp_qp *qp, const struct swp_sge *sge, u32 off,
			   u32 len, int access)
{
	struct swp_mr *mr = to_swp_pd(qp->base.pd)->dma;

	/* the PD's own region cannot be invalidated, and outlives its QPs */
	if (!mr || mr->stag != sge->lkey)
		mr = swp_mr_get(qp->dev, sge->lkey);
	if (!mr)
		return ERR_PTR(-EFAULT);
	/* only peers may use a window */
	if (mr->kind == SWP_MR_WINDOW ||
	    swp_mr_check(mr, qp, sge->addr + off, len, access) ||
	    sge->addr + off < sge->addr) {
		swp_sge_put(qp, mr);
		return ERR_PTR(-EFAULT);
	}
	return mr;
}

void swp_sge_put(const struct swp_qp *qp, struct swp_mr *mr)
{
	if (mr != to_swp_pd(qp->base.pd)->dma)
		swp_mr_put(mr);
}

/* Gives the region a random STag and makes it visible. */
static int publish_mr(struct swp_mr *mr)
{
	struct swp_device *dev = mr->dev;
	int tries, ret = -ENOSPC;
	u32 stag;

	for (tries = 0; tries < 64; tries++) {
		get_random_bytes(&stag, sizeof(stag));
		if (!(stag >> 8))
			continue;	/* hardware peers take 0 as "none" */
		mr->stag = stag;
		ret = xa_insert(&dev->mrs, stag >> 8, mr, GFP_KERNEL);
		if (ret != -EBUSY)
			break;
	}
	mr->base.lkey = mr->stag;
	mr->base.rkey = mr->stag;
	return ret;
}

static struct swp_mr *new_mr(struct ib_pd *pd, int access)
{
	struct swp_device *dev = to_swp_dev(pd->device);
	struct swp_owner *owner;
	struct swp_mr *mr;
	int ret;

	ret = swp_count(dev, SWP_LIMIT_MR, pd->uobject, &owner);
	if (ret)
		return ERR_PTR(ret);
	mr = kzalloc(sizeof(*mr), pd->uobject ? GFP_KERNEL_ACCOUNT :
						GFP_KERNEL);
	if (!mr) {
		swp_uncount(dev, SWP_LIMIT_MR, owner);
		return ERR_PTR(-ENOMEM);
	}
	mr->owner = owner;
	mr->dev = dev;
	mr->access = access;
	mr->base.pd = pd;
	mr->base.device = pd->device;
	refcount_set(&mr->ref, 1);
	init_completion(&mr->idle);
	return mr;
}

static void free_mr(struct swp_mr *mr)
{
	kvfree(mr->pages);
	kvfree(mr->blocks);
	if (mr->umem)
		ib_umem_release(mr->umem);
	swp_uncount(mr->dev, SWP_LIMIT_MR, mr->owner);
	kfree_rcu(mr, rcu);
}

struct ib_mr *swp_get_dma_mr(struct ib_pd *pd, int access)
{
	struct swp_mr *mr;
	int ret;

	/* peers must not get an STag for all of memory */
	if (access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
		      IB_ACCESS_REMOTE_ATOMIC))
		return ERR_PTR(-EOPNOTSUPP);
	mr = new_mr(pd, access | IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->kind = SWP_MR_DMA;
	mr->length = U64_MAX;
	ret = publish_mr(mr);
	if (ret) {
		free_mr(mr);
		return ERR_PTR(ret);
	}
	/* the first one is the core's, created before anybody uses the PD */
	if (!to_swp_pd(pd)->dma)
		to_swp_pd(pd)->dma = mr;
	return &mr->base;
}

static int fill_pages(struct swp_mr *mr)
{
	size_t i = 0, n = ib_umem_num_pages(mr->umem);
	struct sg_page_iter it;

	mr->pages = kvmalloc_array(n, sizeof(*mr->pages), GFP_KERNEL_ACCOUNT);
	if (!mr->pages)
		return -ENOMEM;
	for_each_sgtable_page(&mr->umem->sgt_append.sgt, &it, 0) {
		if (i == n)
			break;
		mr->pages[i++] = sg_page_iter_page(&it);
	}
	return i == n ? 0 : -EFAULT;
}

struct ib_mr *swp_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
			      int access)
{
	struct swp_mr *mr;
	int ret;

	if (!length || start + length < start || iova + length < iova)
		return ERR_PTR(-EINVAL);
	if (access & ~(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
		       IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC |
		       IB_ACCESS_MW_BIND | IB_ZERO_BASED | IB_ACCESS_RELAXED_ORDERING))
		return ERR_PTR(-EOPNOTSUPP);
	if (access & IB_ZERO_BASED)
		iova = 0;

	mr = new_mr(pd, access);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->kind = SWP_MR_USER;
	mr->iova = iova;
	mr->length = length;
	mr->first_off = start & ~PAGE_MASK;
	mr->umem = swp_umem_get(pd->device, start, length, access);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		mr->umem = NULL;
		goto err;
	}
	ret = fill_pages(mr);
	if (!ret)
		ret = publish_mr(mr);
	if (ret)
		goto err;
	return &mr->base;

err:
	free_mr(mr);
	return ERR_PTR(ret);
}

/*
 * Returns a new region, with new keys, of the same memory or of other memory.
 * The core replaces the old region by it and deregisters the old one.  On
 * failure the old region is unchanged.
 */
struct ib_mr *swp_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				u64 length, u64 iova, int access,
				struct ib_pd *pd, struct ib_udata *udata)
{
	struct swp_mr *mr = to_swp_mr(ibmr);
	int was = mr->access;
	struct ib_mr *new;
	bool bound;

	if (flags & ~IB_MR_REREG_SUPPORTED)
		return ERR_PTR(-EOPNOTSUPP);
	/* without MW_BIND, no window can be bound while it is replaced */
	spin_lock_bh(&mr->dev->mw_lock);
	bound = mr->windows;
	if (!bound)
		mr->access &= ~IB_ACCESS_MW_BIND;
	spin_unlock_bh(&mr->dev->mw_lock);
	if (bound)
		return ERR_PTR(-EBUSY);
	if (!(flags & IB_MR_REREG_TRANS)) {
		start = mr->umem->address;
		length = mr->length;
		iova = mr->iova;
	}
	new = swp_reg_user_mr(flags & IB_MR_REREG_PD ? pd : ibmr->pd, start,
			      length, iova,
			      flags & IB_MR_REREG_ACCESS ? access : was);
	if (IS_ERR(new))
		mr->access = was;
	return new;
}

static void erase_mr(struct swp_mr *mr)
{
	xa_erase(&mr->dev->mrs, mr->stag >> 8);
	drop_ref(mr);
	wait_for_completion(&mr->idle);
	free_mr(mr);
}

/*
 * After return nothing reads or writes the memory any more: the STag is removed
 * from the table, and placements that found it before have ended (they hold
 * their reference for one FPDU).  TCP has its own references on pages that it
 * still has to send.  -EBUSY while a memory window is bound to the region.
 */
int swp_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct swp_mr *mr = to_swp_mr(ibmr);
	bool bound;

	spin_lock_bh(&mr->dev->mw_lock);
	bound = mr->windows;
	if (!bound)
		set_bit(SWP_MRF_INVALID, &mr->flags);
	spin_unlock_bh(&mr->dev->mw_lock);
	if (bound)
		return -EBUSY;
	erase_mr(mr);
	return 0;
}

/* Fast registration ------------------------------------------------------- */

struct ib_mr *swp_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_sg)
{
	struct swp_mr *mr;
	int ret;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_sg || max_sg > SWP_MAX_FAST_BLOCKS)
		return ERR_PTR(-EINVAL);
	mr = new_mr(pd, 0);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->kind = SWP_MR_FAST;
	set_bit(SWP_MRF_INVALID, &mr->flags);
	mr->max_blocks = max_sg;
	mr->blocks = kvmalloc_array(max_sg, sizeof(*mr->blocks), GFP_KERNEL);
	ret = mr->blocks ? publish_mr(mr) : -ENOMEM;
	if (ret) {
		free_mr(mr);
		return ERR_PTR(ret);
	}
	return &mr->base;
}

static int set_block(struct ib_mr *ibmr, u64 addr)
{
	struct swp_mr *mr = to_swp_mr(ibmr);

	if (mr->num_blocks == mr->max_blocks)
		return -ENOMEM;
	mr->blocks[mr->num_blocks++] = addr;
	return 0;
}

/* The device has no DMA mapping: DMA addresses are kernel addresses. */
int swp_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		  unsigned int *off)
{
	to_swp_mr(ibmr)->num_blocks = 0;
	return ib_sg_to_pages(ibmr, sg, nents, off, set_block);
}

int swp_mr_fast_reg(struct swp_qp *qp, u32 key, int access)
{
	struct swp_mr *mr = find_mr(qp->dev, key);
	int ret = -EINVAL;
	u64 blocks;

	swp_qp_assert_owned(qp);
	if (!mr)
		return -ENOENT;
	if (mr->base.pd != qp->base.pd || mr->kind != SWP_MR_FAST ||
	    !test_bit(SWP_MRF_INVALID, &mr->flags))
		goto out;
	mr->iova = mr->base.iova;
	mr->length = mr->base.length;
	mr->block_shift = ilog2(mr->base.page_size);
	mr->first_off = mr->iova & (mr->base.page_size - 1);
	blocks = (u64)mr->num_blocks << mr->block_shift;
	if (mr->first_off + mr->length > blocks)
		goto out;
	mr->access = access;
	mr->reg_qpn = qp->qpn;
	WRITE_ONCE(mr->stag, key);
	/* pairs with the acquire in swp_mr_get() */
	clear_bit_unlock(SWP_MRF_INVALID, &mr->flags);
	ret = 0;
out:
	swp_mr_put(mr);
	return ret;
}

/* Invalidation ------------------------------------------------------------ */

/*
 * The caller has one reference, the table another.  The others belong to
 * placements on other CPUs, each of which ends after one FPDU, as it runs with
 * softirqs off.  A batch past TCP keeps its references until the other end's
 * engine has taken it, which may call this or wait for mw_lock.  But nobody waits
 * for one of those: a peer may invalidate a region only if no other QP is in its
 * PD, and the QP that is has the socket lock of the batch.  Windows, which others
 * may unbind, are not kept.  False: the region is invalid already, or another caller of
 * this waits.
 */
static bool invalidate(struct swp_mr *mr)
{
	/* a full barrier, pairs with the one in swp_mr_get() */
	if (test_and_set_bit(SWP_MRF_INVALID, &mr->flags))
		return false;
	while (refcount_read(&mr->ref) > 2)
		cpu_relax();
	return true;
}

/*
 * The caller holds mw_lock, and a reference in addition to the table's.  A
 * context that waits for the lock must not have a reference: that would be a
 * deadlock.
 */
static void unbind(struct swp_mr *mw)
{
	lockdep_assert_held(&mw->dev->mw_lock);
	invalidate(mw);
	if (mw->parent)
		mw->parent->windows--;
	mw->parent = NULL;
}

void swp_pd_add_qp(struct ib_pd *pd)
{
	struct swp_device *dev = to_swp_dev(pd->device);

	spin_lock_bh(&dev->mw_lock);
	to_swp_pd(pd)->qps++;
	spin_unlock_bh(&dev->mw_lock);
}

void swp_pd_del_qp(struct ib_pd *pd)
{
	struct swp_device *dev = to_swp_dev(pd->device);

	spin_lock_bh(&dev->mw_lock);
	to_swp_pd(pd)->qps--;
	spin_unlock_bh(&dev->mw_lock);
}

/*
 * RFC 5040 section 8.1.1: a peer must not invalidate an STag that another peer
 * may use, so the STag must belong to this stream alone.  A region does, while
 * its PD has only one QP; invalidate_locked() holds the lock that protects
 * their number.
 */
static bool peer_may_invalidate(const struct swp_mr *mr,
				const struct swp_qp *qp)
{
	if (mr->base.pd != qp->base.pd ||
	    !(mr->access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
			    IB_ACCESS_REMOTE_ATOMIC)))
		return false;
	switch (mr->kind) {
	case SWP_MR_FAST:
		return mr->reg_qpn == qp->qpn;
	case SWP_MR_WINDOW:
		return mr->qpn == qp->qpn;
	case SWP_MR_USER:
		return READ_ONCE(to_swp_pd(mr->base.pd)->qps) == 1;
	default:
		return false;
	}
}

static bool owner_may_invalidate(const struct swp_mr *mr,
				 const struct swp_qp *qp)
{
	return mr->base.pd == qp->base.pd &&
	       (mr->kind == SWP_MR_FAST ||
		(mr->kind == SWP_MR_WINDOW && mr->qpn == qp->qpn));
}

typedef bool (*may_invalidate)(const struct swp_mr *mr,
			       const struct swp_qp *qp);

/* Invalidates a window, or a region to which windows can be bound. */
static int invalidate_locked(struct swp_qp *qp, u32 stag, may_invalidate may)
{
	struct swp_mr *mr;
	int ret = 0;

	spin_lock_bh(&qp->dev->mw_lock);
	mr = swp_mr_get(qp->dev, stag);
	if (!mr) {
		spin_unlock_bh(&qp->dev->mw_lock);
		return -ENOENT;
	}
	/* check again: the STag may be of another region now */
	if (!may(mr, qp) || mr->windows)
		ret = -EPERM;
	else if (mr->kind == SWP_MR_WINDOW)
		unbind(mr);
	else
		invalidate(mr);
	swp_mr_put(mr);
	spin_unlock_bh(&qp->dev->mw_lock);
	return ret;
}

static int invalidate_stag(struct swp_qp *qp, u32 stag, may_invalidate may)
{
	struct swp_mr *mr = swp_mr_get(qp->dev, stag);
	bool fast;
	int ret = 0;

	if (!mr)
		return -ENOENT;
	/* fast registrations are invalidated often: avoid the lock */
	fast = mr->kind == SWP_MR_FAST;
	if (!may(mr, qp))
		ret = -EPERM;
	else if (fast && !invalidate(mr))
		ret = -ENOENT;
	swp_mr_put(mr);
	return fast || ret ? ret : invalidate_locked(qp, stag, may);
}

int swp_mr_remote_inv(struct swp_qp *qp, u32 stag)
{
	swp_qp_assert_owned(qp);
	return invalidate_stag(qp, stag, peer_may_invalidate);
}

int swp_mr_local_inv(struct swp_qp *qp, u32 stag)
{
	swp_qp_assert_owned(qp);
	return invalidate_stag(qp, stag, owner_may_invalidate);
}

/* Memory windows ---------------------------------------------------------- */

int swp_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct swp_mr *mr = new_mr(ibmw->pd, 0);
	int ret;

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	mr->kind = SWP_MR_WINDOW;
	mr->type_2 = ibmw->type == IB_MW_TYPE_2;
	set_bit(SWP_MRF_INVALID, &mr->flags);
	ret = publish_mr(mr);
	if (ret) {
		free_mr(mr);
		return ret;
	}
	ibmw->rkey = mr->stag;
	to_swp_mw(ibmw)->mr = mr;
	return 0;
}

int swp_dealloc_mw(struct ib_mw *ibmw)
{
	struct swp_mr *mr = to_swp_mw(ibmw)->mr;
	struct swp_device *dev = mr->dev;

	spin_lock_bh(&dev->mw_lock);
	set_bit(SWP_MRF_DEAD, &mr->flags);
	refcount_inc(&mr->ref);
	unbind(mr);
	drop_ref(mr);
	spin_unlock_bh(&dev->mw_lock);
	erase_mr(mr);
	return 0;
}

/* mw_lock held */
static int bind_to(struct swp_qp *qp, struct swp_mr *mw, u32 key,
		   const struct swp_bind *b)
{
	struct swp_mr *mr = swp_mr_get(qp->dev, b->lkey);
	int ret = -EINVAL;

	lockdep_assert_held(&qp->dev->mw_lock);
	if (!mr)
		return -ENOENT;
	if (mr->kind != SWP_MR_USER)
		goto out;
	ret = swp_mr_check(mr, qp, b->addr, b->length, IB_ACCESS_MW_BIND |
			   (b->access & (IB_ACCESS_REMOTE_WRITE |
					 IB_ACCESS_REMOTE_ATOMIC) ?
			    IB_ACCESS_LOCAL_WRITE : 0));
	if (ret)
		goto out;
	mw->parent = mr;
	mr->windows++;
	mw->parent_addr = b->addr;
	mw->iova = b->access & IB_ZERO_BASED ? 0 : b->addr;
	mw->length = b->length;
	mw->access = b->access;
	mw->qpn = mw->type_2 ? qp->qpn : 0;
	WRITE_ONCE(mw->stag, key);
	/* pairs with the acquire in swp_mr_get() */
	clear_bit_unlock(SWP_MRF_INVALID, &mw->flags);
out:
	swp_mr_put(mr);
	return ret;
}

int swp_mw_bind(struct swp_qp *qp, u32 key, const struct swp_bind *b)
{
	struct swp_mr *mw;
	int ret = -ENOENT;

	swp_qp_assert_owned(qp);
	spin_lock_bh(&qp->dev->mw_lock);
	mw = find_mr(qp->dev, key);
	if (!mw)
		goto out_unlock;
	ret = -EINVAL;
	if (mw->kind != SWP_MR_WINDOW || mw->base.pd != qp->base.pd ||
	    test_bit(SWP_MRF_DEAD, &mw->flags) ||
	    (b->access & ~(IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
			   IB_ACCESS_REMOTE_ATOMIC | IB_ZERO_BASED)))
		goto out;
	/* type 2 must be unbound; type 1 is unbound here */
	if (mw->type_2) {
		if (!test_bit(SWP_MRF_INVALID, &mw->flags) || !b->length)
			goto out;
	} else {
		unbind(mw);
		WRITE_ONCE(mw->stag, key);
	}
	ret = b->length ? bind_to(qp, mw, key, b) : 0;
out:
	swp_mr_put(mw);
out_unlock:
	spin_unlock_bh(&qp->dev->mw_lock);
	return ret;
}
