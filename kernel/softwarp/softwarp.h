/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects of a softwarp device and the functions that pass between the
 * files of the module, grouped by the file that implements them.
 */
#ifndef SOFTWARP_H
#define SOFTWARP_H

#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/netdevice.h>
#include <linux/refcount.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/uverbs_ioctl.h>

#include "compat.h"
#include "llp.h"
#include "stats.h"
#include "uapi/softwarp_abi.h"

struct swp_ep;
struct swp_listener;

/* Limits; the administrator's copies are module parameters (params.c). */
#define SWP_MAX_ORD		128	/* also the largest IRD */
#define SWP_MAX_MSG		0x80000000U /* bytes of one message, 2 GiB */
#define SWP_MAX_QPN		0xffffffU
#define SWP_MAX_MR		0xffffffU /* STags have 24 bits of index */

/* An OUI that nobody was given, as no vendor is 0: the bit for local ones is set */
#define SWP_VENDOR_ID		0x025750

struct swp_params {
	uint max_qp;		/* QPs per device */
	uint max_cq;		/* CQs per device */
	uint max_mr;		/* memory regions per device */
	uint max_pd;		/* protection domains per device */
	uint max_ucontext;	/* user contexts per device */
	uint max_srq;		/* shared receive queues per device */
	uint max_qp_wr;		/* entries of one SQ or RQ */
	uint max_srq_wr;	/* entries of one shared receive queue */
	uint max_cqe;		/* entries of one CQ */
	uint user_share;	/* percent of each max_* for one ordinary user */
	uint reserved_share;	/* percent that ordinary users leave to others */
	uint max_pending;	/* MPA handshakes in progress per listener */
	uint max_pending_source;	/* of those one source's, once half are taken */
	uint handshake_ms;	/* time for TCP connect, or for an MPA Request */
	uint reply_ms;		/* time for an MPA Reply, milliseconds */
	/* struct swp_policy of devices to come */
	uint mpa_rev;
	uint mpa_crc;
	uint mpa_markers;
	uint mpa_fallback;
	uint mpa_p2p;
	uint mpa_rtr;
	uint mpa_rdmac;
	uint mpa_extensions;
	uint max_ird;		/* inbound reads per QP */
	uint tx_poll_us;	/* time a worker watches an empty send queue */
	uint zcopy_min;		/* bytes of a message from which pages go by reference */
};

extern struct swp_params swp_params;

/* limits.c: objects that are counted ----------------------------------------- */

enum swp_limit {
	SWP_LIMIT_QP,
	SWP_LIMIT_CQ,
	SWP_LIMIT_SRQ,
	SWP_LIMIT_MR,		/* regions and windows */
	SWP_LIMIT_PD,
	SWP_LIMIT_UCONTEXT,
	SWP_LIMIT_COUNT
};

/* What an ordinary user has on a device; as long as that is anything */
struct swp_owner {
	u32 uid;		/* in the initial user namespace */
	u32 num[SWP_LIMIT_COUNT];
	u32 total;
};

/* Device ------------------------------------------------------------------- */

enum swp_crc_policy {
	SWP_CRC_OFF,		/* C=0; used only if the peer asks */
	SWP_CRC_PREFER,		/* C=1, so it is used */
	SWP_CRC_REQUIRE,	/* and a peer with C=0 is refused */
};

/* What start-up asks for and takes, see policy.c; each member is a u8 there */
struct swp_policy {
	u8 crc;			/* enum swp_crc_policy */
	u8 markers;		/* bool: M=1, we want them in what we receive */
	u8 revision;		/* highest MPA revision offered and accepted */
	u8 fallback;		/* bool: again with 1 when a peer closes on 2 */
	u8 p2p;			/* bool: A=1, our initiator sends an RTR */
	u8 rtr;			/* enum swp_mpa_rtr: offered and accepted */
	u8 rdmac;		/* bool: MPA revision 0 is accepted, too */
	u8 extensions;		/* bool: RFC 7306 is sent and accepted */
};

struct swp_device {
	struct ib_device base;		/* first: ib_core allocates it */
	struct net_device *netdev;	/* held from newlink to dealloc */
	netdevice_tracker netdev_tracker;
	union ib_gid gid;
	struct swp_policy policy;	/* swp_policy_read() */

	struct xarray qps;		/* QP number -> struct swp_qp */
	u32 qp_next;
	struct xarray mrs;		/* STag index -> struct swp_mr, RCU */
	spinlock_t mw_lock;		/* which window is bound to what; bh safe */

	struct mutex limit_mutex;	/* protects the next three; innermost */
	u32 num[SWP_LIMIT_COUNT];	/* of all users and the kernel */
	u32 ordinary[SWP_LIMIT_COUNT];	/* of those that are held to a share */
	struct xarray owners;		/* uid -> struct swp_owner */
	atomic_t next_cq_id;

	struct swp_stats __percpu *stats;
	struct xarray counters;		/* id -> struct swp_counter */

	/* connection manager (cm.c) */
	spinlock_t cm_lock;		/* protects the lists below */
	struct list_head eps;		/* struct swp_ep */
	struct list_head listeners;	/* struct swp_listener */
	u32 num_listeners;		/* that are not freed */
	bool cm_dead;			/* going away: no new endpoints */
};

static inline struct swp_device *to_swp_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct swp_device, base);
}

/*
 * swp_count - one more of these, made by the current process for itself if @user
 * @owner: set to who has it, for swp_uncount(); NULL: counts on the device only
 * Returns 0, or -ENOMEM at a limit.  Process context.
 */
int swp_count(struct swp_device *dev, enum swp_limit what, bool user,
	      struct swp_owner **owner);
void swp_uncount(struct swp_device *dev, enum swp_limit what,
		 struct swp_owner *owner);
void swp_limits_init(struct swp_device *dev);
void swp_limits_exit(struct swp_device *dev);

static inline enum ib_atomic_cap swp_atomic_cap(const struct swp_device *dev)
{
	return READ_ONCE(dev->policy.extensions) ? IB_ATOMIC_GLOB :
						   IB_ATOMIC_NONE;
}

struct swp_ucontext {
	struct ib_ucontext base;
	struct swp_device *dev;
	struct swp_owner *owner;
};

struct swp_pd {
	struct ib_pd base;
	struct swp_owner *owner;
	u32 qps;		/* in it; dev->mw_lock */
};

#define to_swp_pd(x)	container_of(x, struct swp_pd, base)

/* Memory shared with user space, or private to the kernel */
struct swp_ring {
	void *mem;			/* struct swp_ring_ctrl, elements */
	u32 bytes;			/* of mem; 0 = no ring */
	u32 entries;			/* power of two */
	u32 mask;
	u32 stride;
	struct swp_mmap_entry *entry;	/* NULL for kernel consumers */
};

struct swp_mmap_entry {
	struct rdma_user_mmap_entry base;
	void *mem;			/* freed with the entry */
	struct mm_struct *mm;		/* whose locked memory it is */
	u32 locked;			/* pages of it */
};

static inline struct swp_ring_ctrl *swp_ring_ctrl(const struct swp_ring *r)
{
	return r->mem;
}

static inline void *swp_ring_slot(const struct swp_ring *r, u32 i)
{
	return r->mem + SWP_RING_DATA_OFF + (size_t)(i & r->mask) * r->stride;
}

/* Completion queue ----------------------------------------------------------*/

struct swp_cq {
	struct ib_cq base;
	struct swp_owner *owner;
	struct mutex resize_mutex;	/* outside lock: who changes the ring */
	struct swp_ring ring;
	u32 id;
	spinlock_t lock;	/* protects all below; irq safe, innermost */
	u32 prod;
	u32 cons;		/* kernel consumers: ours; user: see ring */
	u32 arm;		/* kernel consumers: enum swp_arm */
	bool overflow;
	bool timestamps;	/* of each completion; constant */
	/* moderation of events: one per this many completions ... */
	u16 mod_count;		/* 0: an event at once */
	u16 mod_period;		/* ... or this long, us, after the first */
	u16 held;		/* completions that would have raised it */
	struct hrtimer mod_timer;
};

#define to_swp_cq(x)	container_of(x, struct swp_cq, base)

/* Shared receive queue ------------------------------------------------------*/

struct swp_srq {
	struct ib_srq base;
	struct swp_device *dev;
	struct swp_owner *owner;
	struct mutex resize_mutex;	/* outside lock: who changes the ring */
	u32 max_sge;
	spinlock_t lock;	/* protects all below; bh safe, inside socket locks */
	struct swp_ring ring;	/* a kernel consumer's: post_lock, too */
	u32 cons;
	u32 limit;		/* event when fewer are left; 0 = none wanted */
	bool broken;		/* the owner was told */
	spinlock_t post_lock;	/* kernel posters; irq safe, inside lock */
};

#define to_swp_srq(x)	container_of(x, struct swp_srq, base)

/* Memory --------------------------------------------------------------------*/

enum swp_mr_kind {
	SWP_MR_USER,		/* ib_umem */
	SWP_MR_DMA,		/* all kernel memory, addresses are virtual */
	SWP_MR_FAST,		/* alloc_mr(): registered by work requests */
	SWP_MR_WINDOW,		/* alloc_mw(): a part of another one, for peers */
};

/* Blocks that a fast registration may have */
#define SWP_MAX_FAST_BLOCKS	1024

enum swp_mr_flag {
	SWP_MRF_INVALID,	/* by whoever may: no lookup finds it any more */
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
	u32 reg_qpn;		/* FAST: who registered it; its peer may invalidate */
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

/* Queue pair ----------------------------------------------------------------*/

/* What MPA start-up agreed upon; handed to the QP with the stream. */
struct swp_stream_params {
	u8 mpa_rev;
	bool crc;		/* CRC32c generated and checked */
	bool tx_markers;	/* in what we send */
	bool rx_markers;	/* in what we receive */
	u8 accept;		/* enum swp_accept; EXT: also sent */
	bool initiator;		/* false: nothing sent before the first FPDU came */
	/*
	 * enum swp_mpa_rtr.  Initiator: the kind to send as first FPDU, or 0;
	 * responder: kinds that the first FPDU may be.
	 */
	u8 rtr;
	u16 ird;		/* reads the peer may have outstanding, >= 0 */
	u16 ord;		/* reads we may have outstanding, >= 0 */
};

/*
 * How a QP tells the owner of its connection (cm.c) that the stream ended.
 * closed() runs once, in process context without locks: after a graceful close,
 * when both directions have seen FIN; after an error, when both queues have been
 * flushed, though TCP may still be busy delivering a Terminate.
 * @error: 0 graceful, else negative errno.
 * peer_fin() runs at most once, in process context, when the peer closed its
 * direction or sent a Terminate.
 */
struct swp_conn_ops {
	void (*peer_fin)(void *conn);
	void (*closed)(void *conn, int error);
};

struct swp_qp;

#define to_swp_qp(x)	container_of(x, struct swp_qp, base)

/* qp.c: lifetime. Lookups run in any context; the last put wakes destroy. */
struct swp_qp *swp_qp_lookup(struct swp_device *dev, u32 qpn);
void swp_qp_get(struct swp_qp *qp);
void swp_qp_put(struct swp_qp *qp);
struct ib_qp *swp_qp_to_ib(struct swp_qp *qp);

/*
 * qp.c: give a stream in full operation phase to a QP in INIT.  Process
 * context, no locks.  On success the QP has its own reference on @llp and has
 * become its owner, and is in RTS; @ops/@conn stay valid until closed() ran.
 * Returns -EINVAL when the QP is in the wrong state, -ENOMEM.
 */
int swp_qp_start(struct swp_qp *qp, struct swp_llp *llp,
		 const struct swp_stream_params *p,
		 const struct swp_conn_ops *ops, void *conn);

/*
 * qp.c: one start-up at a time has a claim on a QP, so that none waits for a
 * stranger's.  Returns -EISCONN when another one has it or there is, or was, a
 * stream; -EINVAL when the QP is going away.  Process context.
 */
int swp_qp_claim(struct swp_qp *qp, struct swp_ep *ep);
void swp_qp_unclaim(struct swp_qp *qp, struct swp_ep *ep);

/* qp.c: abortive end of the stream, if there is one.  Process context. */
void swp_qp_abort(struct swp_qp *qp);

/* policy.c: any context */
void swp_policy_init(struct swp_device *dev);
void swp_policy_read(const struct swp_device *dev, struct swp_policy *p);

/* cm.c: connection management -------------------------------------------- */

int swp_cm_connect(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int swp_cm_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int swp_cm_reject(struct iw_cm_id *id, const void *pdata, u8 len);
int swp_cm_listen(struct iw_cm_id *id, int backlog);
int swp_cm_destroy_listen(struct iw_cm_id *id);
void swp_cm_device_init(struct swp_device *dev);
/*
 * No new endpoints; pending ones fail, connections are aborted, listening
 * sockets close.  Does not wait; may be called early and more than once.
 */
void swp_cm_device_stop(struct swp_device *dev);
/*
 * swp_cm_device_stop(), then waits for the last endpoint.  Only once no client
 * of ib_core is left (dealloc_driver): no cm id may refer to an endpoint.
 */
void swp_cm_device_gone(struct swp_device *dev);
/*
 * The QP is being destroyed or moved to ERROR: a start-up that has a claim on it
 * fails now.  Process context, no locks.
 */
void swp_cm_qp_gone(struct swp_qp *qp);
int swp_cm_init(void);
void swp_cm_exit(void);

#endif /* SOFTWARP_H */
