/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queue pair and its two engines.
 *
 * Locks, outermost first:
 *
 *   socket lock   both engines (struct swp_tx, struct swp_rx) and every change
 *                 of qp->state while a stream is attached.  Held in softirq by
 *                 TCP when it calls us, or taken by lock_sock().
 *   qp->lock      state, the completion side of the SQ, the RQ; bh safe, short.
 *   cq->lock      inside qp->lock; irq safe where a kernel consumer may poll
 *                 from an interrupt, bh safe otherwise.
 *
 * sq_post_lock / rq_post_lock serialise posters of kernel consumers and nest
 * with nothing.  Completion and event handlers run with the socket lock at most.
 *
 * References on a QP: one of the verbs object, one per connection (cm.c), one
 * per iw_cm user, one while a work item is queued.  destroy_qp waits for all.
 */
#ifndef SWP_QP_H
#define SWP_QP_H

#include "softwarp.h"
#include "proto/mpa.h"
#include "proto/rdmap.h"
#include "proto/fpdu.h"
#include "proto/life.h"
#include "proto/qp_fsm.h"
#include "proto/turn.h"

/* What became of a send request after it was taken from the ring */
enum swp_slot_state {
	SWP_SLOT_ACTIVE,	/* being sent, or waiting for TCP to take it */
	SWP_SLOT_WAIT_ACK,	/* its pages are in TCP's hands until acked */
	SWP_SLOT_WAIT_RESP,	/* a read waiting for its response */
	SWP_SLOT_DONE,
};

/* Kernel's private record of a send request; index as in the SQ ring */
struct swp_slot {
	u64 wr_id;
	u32 byte_len;
	u32 end_seq;		/* WAIT_ACK: TCP sequence behind the last octet */
	u32 vendor_err;
	u32 wire_id;		/* Send: its MSN; Write: the STag */
	u8 opcode;		/* enum swp_opcode */
	u8 flags;		/* enum swp_wqe_flags */
	u8 status;		/* enum ib_wc_status */
	bool by_ref;		/* TCP reads the consumer's pages */
	u8 state;		/* enum swp_slot_state */
};

/* A read or an atomic that the peer issued (inbound read queue) */
struct swp_irq {
	bool is_atomic;
	union {
		struct swp_rreq read;
		struct swp_atomic atomic;
	};
};

/* A read or an atomic that we issued (outbound read queue) */
struct swp_orq {
	u32 slot;
	bool atomic;		/* an Atomic Request; its id is the slot */
	u32 sink_stag;
	u64 sink_to;
	u32 size;
	u32 done;		/* octets placed */
	bool inv;		/* invalidate inv_stag when it is complete */
	u32 inv_stag;
	u16 num_sge;
	u16 sge_i;		/* placement position */
	u32 sge_off;
	struct swp_sge one;	/* the list, when it has one part */
	struct swp_sge *more;	/* ... and when it has more, see swp_orq_room() */
};

/* What the transmitter is working on */
enum swp_tx_kind {
	SWP_TX_NONE,
	SWP_TX_SQE,
	SWP_TX_RRESP,
	SWP_TX_CTRL,		/* RTR or Terminate: header only */
};

/* Octets handed to TCP before somebody else gets a turn */
#define SWP_TX_BURST	(512 * 1024)
/* Bursts that a process sends in a row before a worker takes over */
#define SWP_TX_LOOPS	16
#define SWP_TX_BVECS	64
/*
 * Pages of a batch: of 64 KiB payload in four parts that begin anywhere, and of
 * the engine around them.  By itself a batch may have one FPDU of this size.
 */
#define SWP_TX_HOLD	40

struct swp_tx {
	bool running;
	bool fenced;		/* responder: nothing before the first FPDU came */
	u8 rtr;			/* initiator: enum swp_mpa_rtr still to send */
	bool term_pending;
	bool term_sent;
	bool fin_wanted;	/* FIN once everything queued is sent */
	bool shut;		/* FIN requested from the socket */
	u8 stalls;		/* closing: looks that found no progress */
	u32 moved;		/* closing: octets at the last look */
	u8 resp_turn;
	u32 streak;		/* small doorbells with nothing received between */
	u32 last_bytes;		/* of the last batch */

	/* who looks next, see proto/turn.h */
	u8 turn;		/* enum swp_turn */
	bool kick;		/* what the ring says; nobody reads it there */
	bool poller;		/* poll_work looks, with the lock, before it ends */
	bool leaving;		/* the holder does not come back */
	int left;		/* budget of the holder, octets */
	/*
	 * The process that has the lock in order to send.  Compared only; its
	 * own name a process finds here if and only if it is in run_tx().
	 */
	struct task_struct *holder;
	bool held;		/* the next request waits for the peer */
	bool local;		/* the last one sent nothing */

	/* message being sent */
	enum swp_tx_kind kind;
	u8 opcode;		/* enum swp_rdmap_opcode */
	u8 hdr_len;
	bool inlined;
	bool imm_next;		/* Immediate Data follows the Write */
	bool by_ref;		/* pages of the message go by reference */
	u32 len;
	u32 off;
	u32 stag;
	u64 to;
	u32 msn;
	u16 sge_i;
	u32 sge_off;
	u32 num_sge;
	union {
		struct swp_sqe sqe;
		u8 sqe_raw[sizeof(struct swp_sqe) + SWP_MAX_INLINE];
	};
	u8 ctrl[SWP_UNTAGGED_LEN + SWP_TERM_MAX];
	u32 ctrl_len;

	u32 send_msn;
	u32 rreq_msn;
	u32 atomic_msn;		/* of responses */

	/* with markers: positions in the stream, see proto/fpdu.h */
	u32 stream;		/* of the next octet to be built */
	u32 head;		/* of ULPDU_Length of the FPDU being built */

	/* batch: what goes to TCP in one call, at most one skb */
	bool no_mem;		/* the next request waits for memory */
	struct bio_vec bv[SWP_TX_BVECS];
	struct iov_iter it;
	u32 nbv;
	u32 bytes;
	u32 pieces;		/* page fragments it takes in the skb */
	u32 mss;
	u32 pos;		/* octets in the TCP segment being filled */
	u32 room;		/* octets the skb still takes */
	u32 max_pieces;
	bool eor;
	bool pending;		/* built, not yet taken by TCP */
	bool has_term;
	u32 batch_tx;		/* sq.tx when it was built */
	u32 fpdus;
	u32 crc;
	struct page_frag frag;	/* the processor's, while the engine runs */
	struct page *hold[SWP_TX_HOLD];
	u32 nhold;
};

struct swp_rx {
	bool running;
	bool swallow;		/* stream is dead: eat what comes */
	bool starved;		/* no memory for the side buffer; work will retry */
	u32 msn[SWP_QN_COUNT];	/* expected next, per QN */
	bool in_write;		/* a Write has begun and not ended */
	bool after_write;	/* the last message was a Write */
	u32 write_len;		/* of that one, octets so far */
	/* Send being received */
	bool in_msg;
	u8 opcode;
	u32 mo;
	u32 space;		/* octets its buffer takes */
	u64 wr_id;
	u16 sge_i;
	u32 sge_off;
	u32 num_sge;
	struct swp_sge sge[SWP_MAX_SGE];
	/* FPDU that spans skbs, put together here */
	u8 *asm_buf;
	u32 asm_size;
	u32 asm_len;
	/* with markers all FPDUs are, without them; positions as above */
	u32 stream;		/* of the next octet to come */
	u32 head;		/* of ULPDU_Length of the FPDU in asm_buf */
	u32 end;		/* behind the last FPDU that was whole */
	u32 crc;		/* of what came of it, markers included */
	u8 marker[SWP_MARKER_LEN];
	bool marker_bad;	/* one in it disagrees */
};

enum swp_qp_flag {
	/* what close_work has to do */
	SWP_QPF_SHUTDOWN,	/* send FIN */
	SWP_QPF_PEER_FIN,	/* tell the connection of the peer's FIN */
	SWP_QPF_TELL,		/* tell the connection that it is over */
	SWP_QPF_CLOSED,		/* the stream has ended: let go of it */
	/* what has happened */
	SWP_QPF_FIN_SEEN,
	SWP_QPF_LAST_WQE,	/* the event was raised */
};

struct swp_qp {
	struct ib_qp base;
	struct swp_device *dev;
	struct swp_owner *owner;
	struct swp_pd *pd;
	u32 qpn;
	refcount_t ref;
	struct completion idle;

	spinlock_t lock;	/* see the top of this file */
	enum swp_qp_state state;
	enum swp_life life;	/* under lock, see proto/life.h */
	/*
	 * enum ib_access_flags as the consumer set them; shown by query_qp only.
	 * rdma_cm sets 0 on every QP of an id that has not connected yet and
	 * never comes back to it, so the rights of regions decide alone.
	 */
	int access;
	bool sig_all;
	bool user;
	struct mem_cgroup *memcg;	/* who pays; NULL: nobody in particular */
	/* user: who made it and may connect it, see swp_qp_may_connect() */
	kuid_t maker;
	struct pid *maker_tgid;
	struct swp_ep *claim;	/* under lock: the one start-up for it, or NULL */
	u32 max_inline;
	u32 max_send_sge;
	u32 max_recv_sge;

	struct swp_cq *scq;
	struct swp_cq *rcq;
	struct swp_srq *srq;	/* NULL: receives come from rq */
	struct swp_ring sq;
	struct swp_ring rq;
	struct swp_slot *slots;
	u32 sq_done;		/* oldest request not completed */
	u32 sq_tx;		/* next request to take; engine or flush */
	u32 sq_acked;		/* requests before it were given to TCP whole */
	u32 ack_waiting;	/* of those, how many wait for an ACK */
	u32 rq_cons;
	spinlock_t sq_post_lock;	/* kernel posters; irq safe */
	spinlock_t rq_post_lock;	/* kernel posters; irq safe */

	/* reads in progress, see reads.c: rings that grow up to ird / ord */
	struct swp_irq *irq;
	u32 irq_size;
	u32 irq_prod;
	u32 irq_cons;
	struct swp_orq *orq;
	u32 orq_size;
	u32 orq_prod;
	u32 orq_cons;

	struct swp_stream_params sp;
	struct swp_llp *llp;	/* under lock; the engines' is stable */
	struct swp_tx tx;
	struct swp_rx rx;

	/* the error that ended the stream; first one wins */
	enum swp_fault fault;	/* ours; NONE: there is none, or it is the peer's */
	u8 term_buf[SWP_TERM_MAX];
	u32 term_len;
	u32 vendor_err;

	struct swp_qp_stats stats;	/* under the socket lock */
	u32 counter_id;		/* bound to it; the two are under the lock of qps */
	struct swp_qp_stats *bound;	/* what they were then */

	unsigned long flags;	/* enum swp_qp_flag */
	u8 backoff;		/* of tx_work, see swp_qp_kick_later() */
	struct delayed_work tx_work;
	struct work_struct poll_work;
	struct work_struct close_work;
	struct delayed_work linger_work;
	const struct swp_conn_ops *conn_ops;
	void *conn;
	int close_error;
};

/*
 * Counters of the data path are plain words of the QP, added up when somebody
 * asks: per-CPU additions cost an interrupt section on some architectures.
 */
#define swp_qp_stat_add(qp, id, n)	((qp)->stats.v[SWP_STAT_##id] += (n))
#define swp_qp_stat_inc(qp, id)		swp_qp_stat_add(qp, id, 1)

/* qp.c */
extern struct workqueue_struct *swp_wq;	/* for consumers in the kernel */
extern struct workqueue_struct *swp_user_wq;
extern struct workqueue_struct *swp_poll_wq;
/* The stream with a reference, or NULL.  Any context. */
struct swp_llp *swp_qp_llp(struct swp_qp *qp);
void swp_qp_kick(struct swp_qp *qp);		/* queue tx_work, any context */
/* The same after a while that grows until something succeeds: memory is short. */
void swp_qp_kick_later(struct swp_qp *qp);
void swp_qp_doorbell(struct swp_qp *qp);	/* process context */
void swp_qp_flush(struct swp_qp *qp);		/* any context, no locks but the socket's */
void swp_qp_event(struct swp_qp *qp, enum ib_event_type type);
void swp_qp_close_later(struct swp_qp *qp, unsigned int flag);
int swp_qp_init_obj(struct swp_qp *qp);
void swp_qp_destroy_obj(struct swp_qp *qp);
int swp_qp_modify_state(struct swp_qp *qp, enum ib_qp_state state);
/* The current process has made the user QP. */
void swp_qp_set_maker(struct swp_qp *qp);
void swp_qp_drop_maker(struct swp_qp *qp);
/* May the current process, for which a user of rdma_cm speaks, connect it? */
bool swp_qp_may_connect(const struct swp_qp *qp);

/* Has the QP ever had a stream?  It gets one at most. */
static inline bool swp_qp_started(const struct swp_qp *qp)
{
	return READ_ONCE(qp->life) >= SWP_LIFE_STARTED;
}

/* As completions carry it; see SWP_VENDOR_ERR */
static inline u32 swp_vendor_err(const struct swp_term *t)
{
	return SWP_VENDOR_ERR(t->layer, t->etype, t->code);
}

static inline u32 swp_fault_vendor_err(enum swp_fault fault)
{
	const struct swp_term t = swp_fault_term(fault);

	return swp_vendor_err(&t);
}

/*
 * swp_qp_fail - a stream has failed; first call wins.  Socket lock held.
 * @fault: reason; sent to the peer as Terminate
 * @ddp, @ddp_len, @seg_len, @rreq: headers for the Terminate, see
 *     swp_term_encode(); NULL when the error is not tied to a segment
 */
void swp_qp_fail(struct swp_qp *qp, enum swp_fault fault, const u8 *ddp,
		 u32 ddp_len, u16 seg_len, const u8 *rreq);
/* Our Terminate is on its way or can't be sent: flush, FIN.  Socket lock held. */
void swp_qp_terminated(struct swp_qp *qp);
/* A Terminate came in.  Socket lock held. */
void swp_qp_peer_terminated(struct swp_qp *qp, const struct swp_term *t);
/* The stream is gone or useless, nothing can be sent.  Socket lock held. */
void swp_qp_dead(struct swp_qp *qp, int error);

/*
 * Completes what can be completed, in posting order.  Any context; not with
 * qp->lock held.
 */
void swp_sq_complete(struct swp_qp *qp);

/* reads.c: socket lock held, but for init and free */
void *swp_qp_alloc(struct swp_qp *qp, size_t size);
int swp_reads_init(struct swp_qp *qp, u16 ird, u16 ord);
void swp_reads_free(struct swp_qp *qp);
bool swp_irq_grow(struct swp_qp *qp);
bool swp_orq_room(struct swp_qp *qp, u32 num_sge);
void swp_orq_done(struct swp_qp *qp);

static inline struct swp_irq *swp_irq(const struct swp_qp *qp, u32 i)
{
	return &qp->irq[i & (qp->irq_size - 1)];
}

static inline struct swp_orq *swp_orq(const struct swp_qp *qp, u32 i)
{
	return &qp->orq[i & (qp->orq_size - 1)];
}

static inline struct swp_sge *swp_orq_sge(struct swp_orq *o)
{
	return o->num_sge > 1 ? o->more : &o->one;
}

/* See swp_irq_grow() */
static inline bool swp_irq_room(struct swp_qp *qp)
{
	return likely(qp->irq_prod - qp->irq_cons < qp->irq_size) ||
	       swp_irq_grow(qp);
}

/* cq.c */
enum { SWP_CQ_NOTIFY = 1, SWP_CQ_OVERFLOW = 2 };
int swp_cq_push(struct swp_cq *cq, struct swp_cqe *cqe);
void swp_cq_notify(struct swp_cq *cq, int bits);
/* Raises an event that moderation holds back; none is under way then.  May sleep. */
void swp_cq_settle(struct swp_cq *cq);

/* tx.c: socket lock held */
void swp_tx_run(struct swp_qp *qp);
void swp_tx_set_turn(struct swp_qp *qp, enum swp_turn turn);
void swp_tx_news(struct swp_qp *qp, enum swp_news news);
void swp_tx_acked(struct swp_qp *qp);
void swp_tx_release(struct swp_qp *qp);
void swp_tx_cut(struct swp_qp *qp);
/* What the processors keep; no QP is left. */
void swp_tx_exit(void);

/*
 * rx.c: copy the receive request with index @cons out of a ring, and check it.
 * @left: set to the number of requests behind it
 * Returns 0; -ENOBUFS: there is none; -EINVAL: its owner wrote nonsense, and
 * rx->in_msg says whether there was a request at all.  The owner of @cons has
 * locked it, and moves it on when rx->in_msg is set.
 */
int swp_rqe_fetch(struct swp_rx *rx, const struct swp_ring *ring, u32 cons,
		  u32 max_sge, u32 *left);

/* verbs.c: requests of a kernel consumer; posters are serialised by the caller */
int swp_rqe_post(struct swp_ring *ring, u32 max_sge, const struct ib_recv_wr *wr,
		 const struct ib_recv_wr **bad);

/* srq.c: is there a request?  Others may take it.  Softirq or process context. */
bool swp_srq_posted(struct swp_srq *srq);
/* srq.c: the next request, as swp_rqe_fetch().  Socket lock held. */
int swp_srq_take(struct swp_srq *srq, struct swp_rx *rx);

/* rx.c: socket lock held */
void swp_rx_run(struct swp_qp *qp);
void swp_rx_feed(struct swp_qp *qp, u8 *buf, u32 size);

/* Has an FPDU begun to come that is not whole? */
static inline bool swp_rx_unfinished(const struct swp_qp *qp)
{
	return qp->rx.asm_len || qp->rx.stream != qp->rx.end;
}

/*
 * mem.c: a region that is looked up is used and given back without sleeping;
 * softirqs are off in between, so that who invalidates it can wait for that.
 */
int swp_ring_alloc(struct swp_ring *r, u32 entries, u32 stride, u32 beside,
		   struct swp_ucontext *uctx);
void swp_ring_free(struct swp_ring *r);
u64 swp_ring_key(const struct swp_ring *r);
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

/* Local access: lkey to region, checked. ERR_PTR(-EFAULT) when not allowed. */
struct swp_mr *swp_sge_get(struct swp_qp *qp, const struct swp_sge *sge, u32 off,
			   u32 len, int access);

/* crc.c: CRC32c, register form: seed ~0, invert at the end.  Any context. */
u32 swp_crc32c(u32 crc, const void *p, size_t len);
/* The same while copying; the CRC is that of what stands in @dst afterwards. */
u32 swp_crc32c_copy(u32 crc, void *dst, const void *src, size_t len);
/* Chooses how; before all others. */
void swp_crc_init(void);

#endif /* SWP_QP_H */
