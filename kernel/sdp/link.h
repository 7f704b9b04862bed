/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An SDP connection: a TCP connection that becomes an iWARP stream, its queue
 * pair, its buffers and the protocol's state; draft-pinkerton-iwarp-sdp-01
 * sections 8 and 10.
 *
 *   connector   TCP -> START (Hello sent, MPA) -> ACK (awaited) -> UP -> DOWN
 *   acceptor    HELLO (awaited) -> START (MPA) -> UP -> DOWN
 *
 * In START the acceptor initiates MPA, or the connector if its program wants
 * that.  Then the connector sends the Request in one segment with the Hello, and
 * that is how the acceptor knows.
 *
 * Over devices that are not softwarp's, rdma_cm connects instead of TCP and
 * MPA; see cma.h.
 *
 * A peer may move its end elsewhere (SuspComm): then an UP link becomes a
 * connector once more, see move.c, and the socket does not notice.
 *
 * Everything that may sleep runs in two work items: @work sets the link up and
 * creates the queue pair; @end, which @work queues last, destroys it.  Neither
 * runs concurrently with itself or with the other.  A third one, @push_work,
 * only sends, as any context may.  Completions are handled with softirqs off.
 * Our own device may run them from within ib_post_send(), so @lock is not held
 * over that call.  The work items, completions and the socket's calls
 * synchronise on @lock, which is held for no longer than one message takes.
 */
#ifndef SDP_LINK_H
#define SDP_LINK_H

#include <linux/kref.h>
#include <linux/net.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include <linux/sizes.h>

#include "device.h"
#include "netns.h"
#include "proto/sdp/conn.h"
#include "proto/sdp/flow.h"
#include "proto/sdp/push.h"
#include "proto/sdp/spin.h"

/*
 * Number and size of receive buffers: FIRST is what a connection starts with,
 * BUFS and SIZE are the limits.  When the program reads, sdp_link_grow()
 * enlarges them if the peer has asked for that, and there are MANY then; and
 * gives more, if the peer keeps running out of credit though the program reads.
 */
#define SDP_RX_FIRST_BUFS	7
#define SDP_RX_FIRST_SIZE	4096
#define SDP_RX_MANY	16
#define SDP_RX_BUFS	46
/* One message of this size, header included, holds most writes of programs. */
#define SDP_RX_SIZE	(SZ_128K + SZ_4K)
/* Octets charged to the socket at first */
#define SDP_LINK_COST	(SDP_RX_FIRST_BUFS * SDP_RX_FIRST_SIZE)
/* Messages posted to the device at a time */
#define SDP_TX_SLOTS	14
/*
 * Up to this many small messages in a row are posted unsignaled, at half the
 * cost.  They are posted inline, so no page has to wait for their completion.
 */
#define SDP_TX_QUIET	7
/* Limit for those, with header; send requests of the device have room for it */
#define SDP_TX_INLINE	160
/* Completions of one link: its messages, a probe, and those of the drains */
#define SDP_CQES	(SDP_RX_BUFS + SDP_TX_SLOTS + 3)
/* Pages or parts of pages that one message is gathered from */
#define SDP_TX_PIECES	9
/* Pieces that wait to be sent; a power of two */
#define SDP_TX_QUEUE	128
/* Time limit for AbortConn to be sent */
#define SDP_ABORT_TIME	(5 * HZ)
/* Interval of credit probes; also the longest that octets wait for more */
#define SDP_NUDGE_TIME	(HZ / 5)
/* From the beginning of starvation to the first probe; the interval doubles then */
#define SDP_PROBE_TIME	HZ
/* Longest interval of probes */
#define SDP_PROBE_MOST	(120 * HZ)

enum sdp_phase {
	SDP_LINK_TCP,
	SDP_LINK_HELLO,
	SDP_LINK_START,
	SDP_LINK_ACK,
	SDP_LINK_UP,
	SDP_LINK_DOWN,
};

/* Work for the work item; bits of sdp_link.events */
enum sdp_event {
	SDP_EV_TCP,		/* TCP's state has changed or data has come */
	SDP_EV_REQUEST,		/* MPA Request received */
	SDP_EV_ADDR,		/* rdma_cm has resolved the address */
	SDP_EV_ROUTE,		/* rdma_cm has resolved the route */
	SDP_EV_DONE,		/* start-up of MPA or rdma_cm has ended */
	SDP_EV_CLOSED,		/* the stream has ended */
	SDP_EV_FIN,		/* close the carrier */
	SDP_EV_PUMP,		/* run sdp_link_pump() */
	SDP_EV_MOVE,		/* SuspCommAck was sent, or retry connect() */
	SDP_EV_ABORT,		/* tear it down because of sdp_link.error */
};

/* States of a move from one carrier to the next, see move.c */
enum sdp_move {
	SDP_MOVE_NONE,
	SDP_MOVE_LEAVES,	/* sdp_move_work() leaves the old carrier */
	SDP_MOVE_BOUND,		/* TCP is bound to the old port */
	SDP_MOVE_SETUP,		/* set-up as for any connector */
};

/*
 * Whether a context is building and posting messages.  Only one does at a time,
 * so that they stay in order.  It drops the lock while it posts, with softirqs
 * off.
 */
enum sdp_pump {
	SDP_PUMP_IDLE,
	SDP_PUMP_RUNS,
	SDP_PUMP_AGAIN,		/* it repeats: there may be more to send */
};

/* Memory for one message */
struct sdp_room {
	struct page *page;
	u64 dma;			/* valid if @mapped */
	u32 size;
	bool mapped;
};

/* A receive buffer for one message */
struct sdp_rx {
	struct ib_cqe cqe;
	struct sdp_link *link;
	struct list_head entry;		/* on sdp_link.rx_ready or rx_early */
	struct sdp_room room;
	u32 off, len;			/* payload not read yet */
	bool invalidated;		/* an STag was; for rx_early only */
	bool kept;			/* in sdp_link.kept, not in .rx */
};

/* Octets of the program's in a page, with a reference to the page */
struct sdp_piece {
	struct page *page;
	u32 off, len;
};

/* A message posted to the device */
struct sdp_tx {
	struct ib_cqe cqe;
	struct sdp_link *link;
	u8 mid;
	u8 pieces;
	u8 hdr_len;
	u8 covers;			/* slots that its completion frees */
	u32 payload;
	u64 hdr_dma;
	u64 dma[SDP_TX_PIECES];
	struct sdp_piece piece[SDP_TX_PIECES];
	u8 hdr[SDP_HDR_MAX];
};

struct sdp_attempt;
struct sdp_listener;
struct rdma_cm_id;

/*
 * How a link is connected, and its queue pair made: softwarp's start-up on a
 * TCP connection, or rdma_cm.  Called by the link's work items only.
 */
struct sdp_carrier_ops {
	/* Continue set-up; 0 or a negative errno, which fails the link */
	int (*step)(struct sdp_link *link);
	int (*create_qp)(struct sdp_link *link, struct ib_qp_init_attr *attr);
	/* Close gracefully: messages already posted still arrive */
	void (*fin)(struct sdp_link *link);
	/* Destroy the queue pair and its CQ, and what the carrier holds */
	void (*destroy)(struct sdp_link *link);
};

extern const struct sdp_carrier_ops sdp_carrier_tcp;

struct sdp_link {
	struct kref ref;
	spinlock_t lock;		/* see above */
	/* Under @lock ------------------------------------------------------- */
	u8 phase;			/* enum sdp_phase, of the carrier */
	u8 move;			/* enum sdp_move */
	bool open;			/* it was UP and is not DOWN */
	bool answered;			/* HelloAck was sent, or is not to be */
	int error;			/* errno for the program, or 0 */
	int lost;			/* errno if TCP gave up, else 0 */
	bool eof;			/* the peer's DisConn was processed */
	bool orphan;			/* its program has closed it */
	bool counted;			/* counted in @orphans of link.c */
	bool told;			/* its end was reported to the socket */
	bool unlinked;			/* nothing of the device is held */
	bool bury;			/* then free the socket, too */
	u64 progress;			/* octets sent when an orphan's time began ... */
	unsigned long orphan_until;	/* ... and its end, in jiffies */
	struct sdp_conn conn;
	u8 traced;			/* sdp_link_state() at the last trace */
	struct sock *sk;		/* the program's, with a reference */
	struct sdp_attempt *attempt;	/* may fall back; with a reference */
	/* received */
	struct list_head rx_early;	/* messages received before phase UP */
	struct list_head rx_ready;	/* oldest first */
	u32 rx_octets;			/* payload in rx_ready not read yet */
	u64 rx_total;			/* payload ever put into rx_ready */
	u32 rx_full;			/* buffers in rx_ready, but @kept */
	struct sdp_urgent urgent;
	bool marked;			/* @urgent.state is not NONE */
	bool held;			/* the program copies from the oldest */
	u32 rx_count;			/* buffers of @rx in use ... */
	u32 rx_want;			/* ... and as many as the peer could use */
	struct sdp_flow rx_flow;
	struct sdp_rx *kept;		/* @rx of an earlier carrier ... */
	u32 kept_count;			/* ... and how many are in rx_ready */
	u32 moves;			/* carriers whose @rx was freed */
	bool grow;			/* the peer needs larger buffers, or more */
	u32 spares;			/* of @spare, unused; see repost() */
	struct sdp_room *spare;
	/* to be sent */
	struct sdp_piece *queue;
	u16 queue_head, queue_count;
	u64 queue_octets;
	bool nodelay;			/* do not wait for more octets */
	bool more;			/* wait: the program sends more */
	u16 urgents;			/* sends with MSG_OOB in progress */
	u16 tx_next, tx_busy;		/* slots: next one, number in use */
	u16 tx_large;			/* busy slots with large messages */
	u16 tx_quiet;			/* busy slots after a signaled one */
	bool tx_inline;			/* the device takes inline data */
	bool starved;			/* something to send lacks credit ... */
	unsigned long starved_at;	/* ... since then, in jiffies */
	unsigned long probe_time;	/* from then until the next probe, in jiffies */
	bool probing;			/* the last probe has not completed */
	struct ib_cqe probe;
	bool cm_up;			/* rdma_cm has reported ESTABLISHED */
	bool fin_waits;			/* raise SDP_EV_FIN, see sdp_link_fin_due() */
	u8 pump;			/* enum sdp_pump */
	u32 pushers;			/* processes that sleep in send() */
	bool push_due;			/* one was woken; proto/sdp/push.h */
	bool arrived;			/* octets wait for sdp_link_receive() */
	u32 receivers;			/* processes in the device's receive() */
	atomic_t watchers;		/* processes awake that look at @arrived; no lock */
	/*
	 * Used by the work items only ---------------------------------------
	 */
	const struct sdp_carrier_ops *ops;
	bool connector;
	u8 initiator;			/* enum sdp_info_initiator */
	bool ending;			/* @end was queued */
	bool leaving;			/* @move_work was, and has not ended */
	u8 layout;			/* enum sdp_layout */
	u8 hello_got;
	struct sdp_offer offer;
	struct socket *tcp;		/* until MPA's start-up takes it over */
	bool foreign;			/* @tcp has the callbacks of another */
	struct rdma_cm_id *cm_id;	/* or this; @tcp then has the port */
	struct sock *carrier;		/* TCP's, with a reference, or NULL */
	struct sock *next_carrier;	/* its successor, sdp_link_use_next() */
	struct sdp_device *dev;
	struct swp_startup *startup;
	struct ib_cq *cq;
	atomic_t cq_events;		/* CQ events not handled yet */
	struct work_struct cq_work;	/* if the budget did not suffice */
	struct ib_qp *qp;
	struct sdp_rx *rx;
	struct sdp_tx *tx;
	u8 tx_pieces;			/* limit per message */
	struct list_head on_device;
	u8 hello[SDP_HELLO_LEN];	/* or HelloAck */
	/* --------------------------------------------------------------------- */
	struct sdp_listener *listener;	/* it came from; work items only */
	struct list_head entry;		/* on one of the listener's lists */
	u8 listed;			/* enum sdp_listed */
	bool deferred;			/* raise an event when something comes; under @lock */
	unsigned long since;		/* jiffies when it joined that list */
	unsigned long events;		/* enum sdp_event, atomic */
	int status;			/* of SDP_EV_DONE */
	u32 charged;			/* octets; under the socket's lock */
	struct sdp_spin spin;		/* the same */
	atomic_t tx_done;		/* octets to uncharge, see settle() */
	atomic_t rx_more;		/* octets to charge, see settle() */
	struct work_struct work;
	bool again;			/* it has raised an event; its own */
	bool stream_over;		/* the device has called closed() */
	struct work_struct push_work;	/* runs sdp_link_pump() ... */
	int tx_cpu;			/* ... where the program last sent, or -1 */
	struct work_struct end;		/* runs dismantle() */
	struct work_struct move_work;	/* in place of @work, for a time */
	struct timer_list timer;	/* set-up, grace, orphan, abort */
	struct timer_list nudge;	/* probes, octets that have waited for more, retries */
	struct sockaddr_storage local, remote;
	struct sdp_seen seen;
	struct rcu_head rcu;
};

/* Steps of a set-up, for tracing */
enum sdp_step {
	SDP_STEP_TCP,		/* TCP is connected */
	SDP_STEP_HELLO_SENT,
	SDP_STEP_HELLO_TAKEN,
	SDP_STEP_DEVICE,	/* looked up */
	SDP_STEP_MPA,		/* MPA's start-up has begun */
	SDP_STEP_MPA_DONE,
	SDP_STEP_ACK_SENT,
	SDP_STEP_ACK_TAKEN,
	SDP_STEP_TIMEOUT,
};

/* The workqueues of all links, of listeners, and of moves */
extern struct workqueue_struct *sdp_wq, *sdp_listen_wq, *sdp_move_wq;
int sdp_link_init(void);
void sdp_link_exit(void);

/*
 * sdp_link_new - allocate a link that does nothing yet
 * @sk: gives the network namespace and the user
 * The caller attaches the carrier.  Process context.  NULL: no memory
 */
struct sdp_link *sdp_link_new(const struct sock *sk, bool connector,
			      const struct sdp_carrier_ops *ops);
/* Let @tcp carry the link, which owns it from now on. */
void sdp_link_over(struct sdp_link *link, struct socket *tcp);
/*
 * sdp_link_start - hand the link to its work item
 * Does not sleep.  The caller needs a reference, and raises SDP_EV_TCP next.
 */
void sdp_link_start(struct sdp_link *link);

/*
 * For carriers, called by the link's work item:
 * sdp_link_limit_setup - start the set-up timer, which ends the link; and under
 *			  link->lock
 * sdp_link_ends_orphan - abort it if its program has closed it so long ago that
 *			  it has to end; true: it ends; under link->lock
 * sdp_link_join - use this device, taking over the reference; 0 or an error
 * sdp_link_make_qp - create queue pair and buffers, and fill in link->offer
 * sdp_link_leave - undo join and make_qp, and destroy the carrier's part
 * sdp_link_drop_tcp - release TCP's socket
 * sdp_link_later - raise SDP_EV_TCP or SDP_EV_MOVE after @time jiffies
 */
void sdp_link_limit_setup(struct sdp_link *link);
void sdp_link_limit_setup_locked(struct sdp_link *link);
bool sdp_link_ends_orphan(struct sdp_link *link);
int sdp_link_join(struct sdp_link *link, struct sdp_device *dev);
int sdp_link_make_qp(struct sdp_link *link);
void sdp_link_leave(struct sdp_link *link);
void sdp_link_drop_tcp(struct sdp_link *link);
void sdp_link_later(struct sdp_link *link, unsigned long time);

static inline void sdp_link_get(struct sdp_link *link)
{
	kref_get(&link->ref);
}

void sdp_link_put(struct sdp_link *link);

/*
 * sdp_link_abort - take the link down at once
 * @error: positive errno for the program, or 0
 * Any context, without link->lock.
 */
void sdp_link_abort(struct sdp_link *link, int error);

/* enum sdp_info_state; under link->lock */
u8 sdp_link_state(const struct sdp_link *link);
/* Trace the state if it has changed.  Under link->lock. */
void sdp_link_stated(struct sdp_link *link);
/* Count and trace a protocol violation by the peer. */
void sdp_link_fault(struct sdp_link *link, enum sdp_fault fault);

/* Raise an event and queue the work item.  Any context. */
void sdp_link_event(struct sdp_link *link, enum sdp_event event);
/*
 * sdp_link_push - call sdp_link_pump() on the CPU on which the program sends
 * Any context; under link->lock or not.
 */
void sdp_link_push(struct sdp_link *link);

/* Octets, or their end, have come: the listener may wait for them. */
static inline void sdp_link_undefer(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->deferred)
		sdp_link_event(link, SDP_EV_PUMP);
	link->deferred = false;
}

/*
 * All of these under link->lock:
 * sdp_link_act - perform what the protocol asks for; enum sdp_action and enum
 *		  sdp_close_action
 * sdp_link_up - enter UP: Hello and HelloAck are exchanged, link->conn is
 *		 initialised
 * sdp_link_answered - our HelloAck has left
 * sdp_link_down - enter DOWN with a positive errno or 0
 * sdp_link_pump - send what can be sent; drops and retakes the lock
 * sdp_link_send - send one message, for which there must be a slot, then pump
 */
void sdp_link_act(struct sdp_link *link, u32 actions);
void sdp_link_up(struct sdp_link *link);
void sdp_link_answered(struct sdp_link *link);
void sdp_link_down(struct sdp_link *link, int error);
void sdp_link_pump(struct sdp_link *link);
void sdp_link_send(struct sdp_link *link, const struct sdp_out *out);
/*
 * sdp_link_starves - the nudge timer has expired: check that the peer still exists
 * A sender without credit may have nothing unacknowledged, so TCP would not notice
 * that the peer has gone.  As TCP does with a window of zero, the link probes, at
 * intervals that double.  TCP_USER_TIMEOUT ends the link even if the peer answers.
 * Under link->lock, which is released meanwhile.
 */
void sdp_link_starves(struct sdp_link *link);
/*
 * sdp_link_push_begin - the caller is about to sleep until there is room or
 *			 link->push_due is set
 * sdp_link_push_end - the caller is awake; it sends what is queued
 * In between softirq may leave the sending to the caller, see proto/sdp/push.h.
 * Both without link->lock.
 */
void sdp_link_push_begin(struct sdp_link *link);
void sdp_link_push_end(struct sdp_link *link);
/*
 * Process messages received before the link was UP, and those that come
 * meanwhile; under link->lock, which is released in between.
 */
void sdp_link_take_early(struct sdp_link *link);

/*
 * move.c:
 * sdp_move_event - handle SDP_EV_MOVE; by the work item
 * sdp_move_work - leave the old carrier, in place of the work item
 * sdp_link_use_next - replace link->carrier by the next one, with the socket
 *		       locked or its slock held
 * sdp_link_options - sdp_carrier_options() for the carriers, old and new, and
 * sdp_link_keepalive - sdp_carrier_keepalive() for them; @sk, the link's, is locked
 */
void sdp_move_event(struct sdp_link *link);
void sdp_move_work(struct work_struct *work);
void sdp_link_use_next(struct sdp_link *link);
void sdp_link_options(struct sdp_link *link, const struct sock *sk);
void sdp_link_keepalive(struct sdp_link *link, bool on);

/*
 * link.c, for move.c: install our callbacks on TCP's socket, unless those of
 * another are there; then SDP_EV_TCP fails the link with EBUSY
 */
void sdp_link_hook(struct sdp_link *link);

/*
 * sdp_link_receive - have the device process what has arrived for us, if it has
 * left that to the process that reads
 * @octets: after so many it stops
 * True: it did, and there may be octets to read, or credit, or more to receive.
 * To be called before a process sleeps for any of these, which link->arrived has
 * to wake.  Process context, with the program's socket locked or not, without
 * link->lock.
 */
bool sdp_link_receive(struct sdp_link *link, u32 octets);

/*
 * sdp_link_quiesce - wait until no context is posting messages, and none is in
 *		      sdp_link_receive(); in phase DOWN and during a move, when
 *		      none starts again
 * sdp_link_wait_posted - only until none is posting, in any phase
 * Processes of one program can keep each other in sdp_link_receive() as long as
 * its peer sends, so in phase UP nothing must wait for them.  Process context.
 */
void sdp_link_quiesce(struct sdp_link *link);
void sdp_link_wait_posted(struct sdp_link *link);

/*
 * sdp_link_hold - keep the oldest buffer while the program copies from it
 * sdp_link_consume - the program has read @octets of it, maybe 0, and is done
 * sdp_link_skip - drop what TCP would drop, too: an octet out of band at which
 *		   the program stood when the next one came
 * sdp_link_hold() needs link->lock.  sdp_link_consume() takes it.
 * sdp_link_skip() needs link->lock; it does nothing while link->held.
 */
static inline void sdp_link_hold(struct sdp_link *link)
{
	link->held = true;
}

void sdp_link_consume(struct sdp_link *link, struct sdp_rx *rx, u32 octets);
void sdp_link_skip(struct sdp_link *link);

/* The program's position in the stream; under link->lock */
/* For connections by rdma_cm: the queue pair may end.  link->lock held. */
static inline bool sdp_link_fin_due(const struct sdp_link *link)
{
	return link->cm_up && !link->tx_busy;
}

static inline u64 sdp_link_position(const struct sdp_link *link)
{
	return link->rx_total - link->rx_octets;
}

/*
 * sdp_link_grow - give the peer larger buffers, or more, if it needs them
 * @stuck: or more buffers, because the program waits for more than they hold
 * Called with the socket locked when the program reads, so that buffers grow by
 * use; the socket is charged.  Without memory the request stays pending.
 * Process context.  Returns whether there is more room.
 */
bool sdp_link_grow(struct sdp_link *link, struct sock *sk, bool stuck);

/*
 * sdp_link_queue - queue octets for the peer, taking over the page reference
 * False: the queue is full, and nothing has changed.  Under link->lock.
 */
bool sdp_link_queue(struct sdp_link *link, struct page *page, u32 off, u32 len);

/*
 * The program has closed the socket: send what is queued and close the
 * connection in the background, or end it with AbortConn if @abort.
 */
void sdp_link_orphan(struct sdp_link *link, bool abort);

/* The same without a farewell: reset the connection and drop what is queued. */
void sdp_link_reset(struct sdp_link *link);

/*
 * transfer.c, memory of both directions:
 * sdp_link_alloc - allocate and map it, post receive buffers; link->dev and
 *		    link->qp are set
 * sdp_link_unmap - unmap it from the device when the queue pair is gone
 * sdp_link_keep - free it for a move, but keep the octets not read or not sent
 * sdp_link_free - free everything
 */
int sdp_link_alloc(struct sdp_link *link);
void sdp_link_keep(struct sdp_link *link);
void sdp_link_unmap(struct sdp_link *link);
void sdp_link_free(struct sdp_link *link);

#endif /* SDP_LINK_H */
