/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queue pair and its two engines.
 *
 * Locks, outermost first:
 *
 *   qp->modify    one ib_modify_qp() at a time; the other contexts that change
 *                 the state do not take it.
 *   socket lock   both engines (struct swp_tx, struct swp_rx) and every change
 *                 of qp->state while a stream is attached.  TCP holds it in
 *                 softirq when it calls us, or lock_sock() takes it.
 *   qp->lock      state, the completion side of the SQ, the RQ; bh safe, short.
 *   cq->lock      inside qp->lock; irq safe where a kernel consumer may poll
 *                 from an interrupt, bh safe otherwise.
 *
 * sq_post_lock and rq_post_lock serialise the posters of kernel consumers.
 * They nest with nothing.  Completion and event handlers run with the socket
 * lock at most.
 *
 * References on a QP: one of the verbs object, one per connection (ep.c), one
 * per iw_cm user, one for each queued work item.  destroy_qp waits for all.
 */
#ifndef SWP_QP_H
#define SWP_QP_H

#include <linux/completion.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "cq.h"
#include "device.h"
#include "llp.h"
#include "mem.h"
#include "pair.h"
#include "rx.h"
#include "srq.h"
#include "stats.h"
#include "tx.h"
#include "proto/life.h"
#include "proto/qp_fsm.h"
#include "proto/terminate.h"

struct swp_ep;
struct swp_iread;
struct swp_oread;

/* State of a send request after the engine took it from the ring */
enum swp_slot_state {
	SWP_SLOT_ACTIVE,	/* being sent, or not yet all given to TCP */
	SWP_SLOT_WAIT_ACK,	/* TCP uses its pages until they are acked */
	SWP_SLOT_WAIT_RESP,	/* a read that waits for its response */
	SWP_SLOT_DONE,
};

/* The kernel's private record of a send request; index as in the SQ ring */
struct swp_slot {
	u64 wr_id;
	u32 byte_len;
	u32 end_seq;		/* WAIT_ACK: TCP sequence after the request */
	u32 vendor_err;
	u32 wire_id;		/* Send: its MSN; Write: the STag */
	u8 opcode;		/* enum swp_opcode */
	u8 flags;		/* enum swp_wqe_flags */
	u8 status;		/* enum ib_wc_status */
	bool by_ref;		/* TCP sends the consumer's pages */
	u8 state;		/* enum swp_slot_state */
};

/* Result of MPA start-up; given to the QP together with the stream */
struct swp_stream_params {
	u8 mpa_rev;
	bool crc;		/* CRC32c generated and checked */
	bool tx_markers;	/* in what we send */
	bool rx_markers;	/* in what we receive */
	u8 accept;		/* enum swp_accept; EXT: we may send it, too */
	bool initiator;		/* false: wait for the first FPDU to send */
	/*
	 * enum swp_mpa_rtr.  Initiator: the kind to send as first FPDU, or 0;
	 * responder: kinds that the first FPDU may be.
	 */
	u8 rtr;
	u16 ird;		/* reads the peer may have outstanding, >= 0 */
	u16 ord;		/* reads we may have outstanding, >= 0 */
};

/*
 * Calls from a QP to the owner of its connection (ep.c) at the end of the
 * stream.  closed() runs once, in process context without locks: after a
 * graceful close, when both directions have seen FIN; after an error, when both
 * queues are flushed, while TCP may still be delivering a Terminate.
 * @error: 0 graceful, else negative errno.
 * peer_fin() runs at most once, in process context, when the peer has closed
 * its direction of the stream.
 */
struct swp_conn_ops {
	void (*peer_fin)(void *conn);
	void (*closed)(void *conn, int error);
};

enum swp_qp_flag {
	/* for close_work to do */
	SWP_QPF_SHUTDOWN,	/* send FIN */
	SWP_QPF_PEER_FIN,	/* call peer_fin() */
	SWP_QPF_TELL,		/* call closed() */
	SWP_QPF_CLOSED,		/* release the stream, which has ended */
	/* done */
	SWP_QPF_FIN_SEEN,	/* the peer's FIN has arrived */
	SWP_QPF_LAST_WQE,	/* the event was raised */
	SWP_QPF_LISTENS,	/* it uses the device's listener, see pair.c */
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
	 * enum ib_access_flags as the consumer set them.  They count only if
	 * ibv_modify_qp() connects the QP (paired): rdma_cm sets 0 on every QP
	 * of an id that has not connected yet, and does not change it later, so
	 * there only the rights of regions count.
	 */
	int access;
	bool paired;
	struct mutex modify;	/* see the top of this file */
	bool sig_all;
	bool user;
	/* see startup.h; constant once it is used */
	bool prompt;
	bool (*arrived)(void *ctx, bool few);	/* or NULL */
	void *arrived_ctx;
	struct swp_spinner *spinner;	/* of a program, or NULL */
	struct list_head news;	/* in its list */
	struct mem_cgroup *memcg;	/* to charge, or NULL */
	/* user: the creator, see swp_qp_may_connect() */
	kuid_t maker;
	struct pid *maker_tgid;
	struct swp_ep *claim;	/* under lock: its start-up, or NULL */
	struct swp_pair pair;
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
	u32 sq_tx;		/* next request to take, by engine or flush */
	u32 sq_acked;		/* TCP has all octets of requests before it */
	u32 ack_waiting;	/* number of these that wait for an ACK */
	u32 rq_cons;
	spinlock_t sq_post_lock;	/* kernel posters; irq safe */
	spinlock_t rq_post_lock;	/* kernel posters; irq safe */

	/* reads in progress: rings that grow up to ird and ord, see reads.c */
	struct swp_iread *iread;
	u32 iread_size;
	u32 iread_prod;
	u32 iread_cons;
	struct swp_oread *oread;
	u32 oread_size;
	u32 oread_prod;
	u32 oread_cons;

	struct swp_stream_params sp;
	struct swp_llp *llp;	/* under lock; constant for the engines */
	struct swp_tx tx;
	struct swp_rx rx;

	/* the error that ended the stream; the first one counts */
	enum swp_fault fault;	/* found here; NONE: none, or by the peer */
	u8 term_buf[SWP_TERM_MAX];
	u32 term_len;
	u32 vendor_err;

	struct swp_qp_stats stats;	/* under the socket lock */
	u32 counter_id;		/* it is bound to; both under the lock of qps */
	struct swp_qp_stats *bound;	/* stats at the time of binding */

	unsigned long flags;	/* enum swp_qp_flag */
	u8 backoff;		/* of tx_work, see swp_qp_kick_later() */
	struct delayed_work tx_work;
	struct work_struct poll_work;
	struct work_struct rx_work;
	struct timer_list rx_timer;
	struct work_struct close_work;
	struct delayed_work linger_work;
	const struct swp_conn_ops *conn_ops;
	void *conn;
	int close_error;
};

#define to_swp_qp(x)	container_of(x, struct swp_qp, base)

/*
 * Counters of the data path are plain words of the QP, and a reader adds up
 * those of all QPs: per-CPU counters would have to disable interrupts on some
 * architectures.
 */
#define swp_qp_stat_add(qp, id, n)	((qp)->stats.v[SWP_STAT_##id] += (n))
#define swp_qp_stat_inc(qp, id)		swp_qp_stat_add(qp, id, 1)

/*
 * The caller may use the engines: it holds the socket lock, as a process or in
 * softirq, or there is no stream.
 */
static inline void swp_qp_assert_owned(const struct swp_qp *qp)
{
	if (IS_ENABLED(CONFIG_LOCKDEP) && qp->llp)
		sock_owned_by_me(qp->llp->sk);
}

/* Life --------------------------------------------------------------------- */

/* Lookups run in any context; the last put wakes the destruction. */
struct swp_qp *swp_qp_lookup(struct swp_device *dev, u32 qpn);
void swp_qp_get(struct swp_qp *qp);
void swp_qp_put(struct swp_qp *qp);

int swp_qp_init_obj(struct swp_qp *qp);
void swp_qp_destroy_obj(struct swp_qp *qp);
int swp_qp_modify_state(struct swp_qp *qp, enum ib_qp_state state);
/*
 * Back to RESET, from any state: ends the stream as the destruction does, and
 * drops all requests without completions.  Process context; waits for a
 * start-up to end.  -EINVAL: the QP is being destroyed.
 */
int swp_qp_reset(struct swp_qp *qp);
/* Record the current process as creator of a user QP. */
void swp_qp_set_maker(struct swp_qp *qp);
void swp_qp_drop_maker(struct swp_qp *qp);
/* May the current process connect this user QP through rdma_cm? */
bool swp_qp_may_connect(const struct swp_qp *qp);

/* The stream --------------------------------------------------------------- */

/*
 * Give a stream in full operation phase to a QP in RESET or INIT.  Process
 * context, no locks.  On success the QP is in RTS, owns @llp and has its own
 * reference on it; @ops and @conn must stay valid until closed() has run.
 * Returns -EINVAL if the QP is in the wrong state, -ENOMEM.
 */
int swp_qp_start(struct swp_qp *qp, struct swp_llp *llp,
		 const struct swp_stream_params *p,
		 const struct swp_conn_ops *ops, void *conn);

/*
 * Claim a QP for a start-up.  Only one start-up at a time has the claim, so
 * that none waits for that of another process.  Returns -EISCONN if another one
 * has it, or if there is or was a stream; -EINVAL if the QP is neither in RESET
 * nor in INIT.  Process context.
 */
int swp_qp_claim(struct swp_qp *qp, struct swp_ep *ep);
void swp_qp_unclaim(struct swp_qp *qp, struct swp_ep *ep);

/*
 * A QP that ibv_modify_qp() connects begins to wait for its stream: INIT to RTR.
 * @ep: the start-up that has the claim, or NULL: there must be none.
 */
int swp_qp_wait(struct swp_qp *qp, const struct swp_ep *ep);
/*
 * Nobody comes: fails the oldest send request with IB_WC_RETRY_EXC_ERR, or, if
 * there is none, raises IB_EVENT_QP_FATAL; flushes the others.
 * @left: the peer has left, else: it was waited for.  False: that is not so any
 * more.  Any context, no locks of the QP.
 */
bool swp_qp_alone(struct swp_qp *qp, bool left);
/* Are there send requests that no engine has taken?  Any context. */
bool swp_qp_has_posts(const struct swp_qp *qp);

/* Abort the stream, if there is one and it is @conn's.  Process context. */
void swp_qp_abort(struct swp_qp *qp, const void *conn);

/* Has the QP had a stream since the last reset, or is it going? */
static inline bool swp_qp_started(const struct swp_qp *qp)
{
	return READ_ONCE(qp->life) >= SWP_LIFE_STARTED;
}

/* The vendor_err of completions, see SWP_VENDOR_ERR */
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
 * swp_qp_fail - fail a stream; only the first call counts.  Socket lock held.
 * @fault: reason; sent to the peer as Terminate
 * @ddp, @ddp_len, @seg_len, @rreq: headers for the Terminate, see
 *     swp_term_encode(); NULL if the error does not belong to a segment
 */
void swp_qp_fail(struct swp_qp *qp, enum swp_fault fault, const u8 *ddp,
		 u32 ddp_len, u16 seg_len, const u8 *rreq);
/* Our Terminate is sent or cannot be sent: flush, FIN.  Socket lock held. */
void swp_qp_terminated(struct swp_qp *qp);
/* The peer's Terminate has arrived.  Socket lock held. */
void swp_qp_peer_terminated(struct swp_qp *qp, const struct swp_term *t);
/* The stream has ended or is useless; nothing is sent.  Socket lock held. */
void swp_qp_dead(struct swp_qp *qp, int error);

/* Work and completions ----------------------------------------------------- */

extern struct workqueue_struct *swp_wq;	/* with high priority */
extern struct workqueue_struct *swp_user_wq;
extern struct workqueue_struct *swp_poll_wq;
extern struct workqueue_struct *swp_rx_wq, *swp_rx_user_wq;
/* The stream with a reference, or NULL.  Any context. */
struct swp_llp *swp_qp_llp(struct swp_qp *qp);
void swp_qp_kick(struct swp_qp *qp);		/* queue tx_work, any context */
/*
 * The same in one or two ticks: until then somebody else may have done the work.
 * Socket lock held, as whoever else queues it for such a QP has it.
 */
void swp_qp_kick_soon(struct swp_qp *qp);
/* The same with a delay, which grows while there is no memory. */
void swp_qp_kick_later(struct swp_qp *qp);
void swp_qp_doorbell(struct swp_qp *qp);	/* process context */
/*
 * swp_qp_receive - receive about @octets in place of softirq
 * For a consumer whose arrived() has been called.  True: there may be more.
 * Process context.
 */
bool swp_qp_receive(struct swp_qp *qp, size_t octets);
/* The same for swp_spinner_serve(), and it sends */
void swp_qp_serve(struct swp_qp *qp, size_t octets);
/* Note the CPU on which a kernel consumer posts a receive.  Any context. */
void swp_qp_consumer_is_here(struct swp_qp *qp);
/*
 * Doorbell of a kernel consumer for requests with @octets on the wire.  Any
 * context; the consumer may hold any locks of its own.
 */
void swp_qp_posted(struct swp_qp *qp, u64 octets);
void swp_qp_flush(struct swp_qp *qp);	/* any context; at most socket lock */
void swp_qp_event(struct swp_qp *qp, enum ib_event_type type);
void swp_qp_close_later(struct swp_qp *qp, unsigned int flag);
/*
 * Completes all send requests that can be completed, in posting order.  Any
 * context; without qp->lock.
 */
void swp_sq_complete(struct swp_qp *qp);

/* Memory charged to the QP's creator; never sleeps. */
void *swp_qp_alloc(struct swp_qp *qp, size_t size);

#endif /* SWP_QP_H */
