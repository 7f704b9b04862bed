/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An SDP connection: a TCP connection that becomes an iWARP stream, its queue
 * pair, its buffers and the protocol's state; draft-pinkerton-iwarp-sdp-01
 * sections 8 and 10.
 *
 *   connector   TCP -> START (Hello sent, MPA) -> ACK (of Hello) -> UP -> DOWN
 *   acceptor    HELLO (awaited) -> START (MPA) -> UP -> DOWN
 *
 * Over devices that are not softwarp's rdma_cm connects, in place of TCP and MPA;
 * see cma.h.
 *
 * A peer may want to go on elsewhere (SuspComm): then an UP link becomes a
 * connector once more, see move.c, and the socket notices nothing.
 *
 * What may sleep is done by one work item, which never runs twice at once: it
 * makes and unmakes the queue pair.  Completions are taken with softirqs off,
 * those of our own device from within ib_post_send(), too, over which @lock is not
 * held.  All of these, and the socket's calls, meet under @lock, which is held for
 * as long as one message takes.
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
#include "proto/sdp/push.h"

/*
 * Receive buffers and their size: to begin with, what an idle connection has, and
 * when the peer has asked for more and the program reads, sdp_link_grow()
 */
#define SDP_RX_FIRST_BUFS	6
#define SDP_RX_FIRST_SIZE	4096
#define SDP_RX_BUFS	16
/* Much of what programs write at once, with its header, is one message. */
#define SDP_RX_SIZE	(SZ_128K + SZ_4K)
/* What a link costs to begin with */
#define SDP_LINK_COST	(SDP_RX_FIRST_BUFS * SDP_RX_FIRST_SIZE)
/* Messages that the device has at a time */
#define SDP_TX_SLOTS	14
/*
 * Of so many small ones in a row the device does not tell that they have left, and
 * they cost half as much.  They are copied, so that nothing waits to be given back.
 */
#define SDP_TX_QUIET	7
/* With their headers; what a request to the device has room for anyway */
#define SDP_TX_INLINE	160
/* Completions of one link: its messages both ways, a probe, and those of the drains */
#define SDP_CQES	(SDP_RX_BUFS + SDP_TX_SLOTS + 3)
/* Pieces of memory that one message is put together from */
#define SDP_TX_PIECES	9
/* Pieces that wait to be sent; a power of two */
#define SDP_TX_QUEUE	128
/* For AbortConn to leave */
#define SDP_ABORT_TIME	(5 * HZ)
/* Between two questions for credit, and what waits for more does so no longer */
#define SDP_NUDGE_TIME	(HZ / 5)
/* From the beginning of starvation to the first probe; then twice that, and so on */
#define SDP_PROBE_TIME	HZ
/* Between two probes, at most */
#define SDP_PROBE_MOST	(120 * HZ)

enum sdp_phase {
	SDP_LINK_TCP,
	SDP_LINK_HELLO,
	SDP_LINK_START,
	SDP_LINK_ACK,
	SDP_LINK_UP,
	SDP_LINK_DOWN,
};

/* What the work item has to do; bits of sdp_link.events */
enum sdp_event {
	SDP_EV_TCP,		/* the state of TCP has changed, or data is there */
	SDP_EV_REQUEST,		/* MPA Request */
	SDP_EV_ADDR,		/* rdma_cm has found the device */
	SDP_EV_ROUTE,		/* and the way */
	SDP_EV_DONE,		/* end of MPA's start-up, or of rdma_cm's */
	SDP_EV_CLOSED,		/* the stream has ended */
	SDP_EV_FIN,		/* close the carrier */
	SDP_EV_PUMP,		/* go on sending */
	SDP_EV_MOVE,		/* SuspCommAck has left, or: try again to connect */
	SDP_EV_ABORT,		/* end it, with sdp_link.error */
};

/* On the way from one carrier to the next */
enum sdp_move {
	SDP_MOVE_NONE,
	SDP_MOVE_BOUND,		/* TCP is to connect, from the old port */
	SDP_MOVE_SETUP,		/* as any connector */
};

/*
 * Who puts messages together and hands them over: one context at a time, in their
 * order.  It gives the lock back meanwhile, with softirqs off.
 */
enum sdp_pump {
	SDP_PUMP_IDLE,
	SDP_PUMP_RUNS,
	SDP_PUMP_AGAIN,		/* it looks once more: there may be more to say */
};

/* Memory for one message */
struct sdp_room {
	struct page *page;
	u64 dma;			/* for the device, if it is mapped */
	u32 size;
	bool mapped;
};

/* A buffer for one message */
struct sdp_rx {
	struct ib_cqe cqe;
	struct sdp_link *link;
	struct list_head entry;		/* of sdp_link.rx_ready */
	struct sdp_room room;
	u32 off, len;			/* payload that was not read yet */
	bool invalidated;		/* of an early one, see sdp_link.rx_early */
	bool kept;			/* of the carrier before, see sdp_link.kept */
};

/* Memory that holds octets of the program's, with a reference to the page */
struct sdp_piece {
	struct page *page;
	u32 off, len;
};

/* A message that the device has */
struct sdp_tx {
	struct ib_cqe cqe;
	struct sdp_link *link;
	u8 mid;
	u8 pieces;
	u8 hdr_len;
	u8 covers;			/* slots that are free when it has left */
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
 * What carries a link until it has a queue pair, and makes that: softwarp's entries
 * on a TCP connection, or rdma_cm.  Called by the work item alone.
 */
struct sdp_carrier_ops {
	/* Go on with set-up; 0, or why it has failed */
	int (*step)(struct sdp_link *link);
	int (*create_qp)(struct sdp_link *link, struct ib_qp_init_attr *attr);
	/* Close it: what was handed over arrives. */
	void (*fin)(struct sdp_link *link);
	/* Nothing is left of the queue pair, nor of the carrier. */
	void (*destroy)(struct sdp_link *link);
};

extern const struct sdp_carrier_ops sdp_carrier_tcp;

struct sdp_link {
	struct kref ref;
	spinlock_t lock;		/* see above */
	/* Under @lock ------------------------------------------------------- */
	u8 phase;			/* enum sdp_phase, of the carrier */
	u8 move;			/* enum sdp_move */
	bool open;			/* there is a stream: it was up, and is not down */
	int error;			/* of SDP_LINK_DOWN, a positive errno or 0 */
	int lost;			/* why TCP has ended, or 0: the peer did it */
	bool eof;			/* the peer's DisConn was taken */
	bool orphan;			/* no program has it any more ... */
	bool counted;			/* ... and it is among those that may be so */
	bool told;			/* the program knows that it is over */
	bool unlinked;			/* nothing of the device is left */
	bool bury;			/* then the socket is to be closed for good */
	u64 progress;			/* octets sent when the orphan's time began */
	struct sdp_conn conn;
	u8 traced;			/* sdp_link_state() that was told last */
	struct sock *sk;		/* of the program, with a reference */
	struct sdp_attempt *attempt;	/* that would try TCP, with a reference */
	/* received */
	struct list_head rx_early;	/* messages before we know that it is up */
	struct list_head rx_ready;	/* the oldest first */
	u32 rx_octets;			/* in them */
	u64 rx_total;			/* that have ever been in them */
	u32 rx_full;			/* how many they are */
	struct sdp_urgent urgent;
	bool marked;			/* it is something to be looked at */
	bool held;			/* the program copies from the oldest */
	u32 rx_count;			/* buffers that are in use */
	struct sdp_rx *kept;		/* those of the carrier before that ... */
	u32 kept_count;			/* ... have octets, and are not in the above */
	bool grow;			/* the peer wants larger ones ... */
	u32 spares;			/* ... which take their place one by one */
	struct sdp_room *spare;
	/* to be sent */
	struct sdp_piece *queue;
	u16 queue_head, queue_count;
	u64 queue_octets;
	bool nodelay;			/* no waiting for more octets ... */
	bool more;			/* ... or some, because more will come */
	u16 urgents;			/* sends of MSG_OOB that have not ended */
	u16 tx_next, tx_busy;		/* slots, in a circle */
	u16 tx_large;			/* of these, with large messages */
	u16 tx_quiet;			/* of these, the last ones; nobody tells of them */
	bool tx_inline;			/* the device can do such */
	bool starved;			/* what waits to be sent lacks credit ... */
	unsigned long starved_at;	/* ... since then, in jiffies */
	unsigned long probe_time;	/* from then until the next probe, in jiffies */
	bool probing;			/* the last one has not completed */
	struct ib_cqe probe;
	bool fin_waits;			/* until the device has none */
	u8 pump;			/* enum sdp_pump */
	u32 pushers;			/* processes that sleep in send(); see ... */
	bool push_due;			/* ... proto/sdp/push.h */
	/* The work item's own ------------------------------------------------ */
	const struct sdp_carrier_ops *ops;
	bool connector;
	bool ending;			/* @end is queued, or has run */
	u8 layout;			/* enum sdp_layout */
	u8 hello_got;
	struct sdp_offer offer;
	struct socket *tcp;		/* until MPA has it */
	struct rdma_cm_id *cm_id;	/* or this; then @tcp has the port, if any */
	struct sock *carrier;		/* of TCP beneath, with a reference, or NULL */
	struct sock *next_carrier;	/* in its place, when the socket can be locked */
	struct sdp_device *dev;
	struct swp_startup *startup;
	struct ib_cq *cq;
	atomic_t cq_events;		/* of it, that were not answered */
	struct work_struct cq_work;	/* goes on where there was much */
	struct ib_qp *qp;
	struct sdp_rx *rx;
	struct sdp_tx *tx;
	u8 tx_pieces;			/* of a message, at most */
	struct list_head on_device;
	u8 hello[SDP_HELLO_LEN];	/* or HelloAck */
	/* --------------------------------------------------------------------- */
	struct sdp_listener *listener;	/* that it came from; the work item's */
	struct list_head entry;		/* of its lists */
	u8 listed;			/* enum sdp_listed */
	unsigned long since;		/* jiffies; on this list of its */
	unsigned long events;		/* enum sdp_event, atomic */
	int status;			/* of SDP_EV_DONE */
	u32 charged;			/* octets for buffers; under the socket's lock */
	atomic_t tx_done;		/* octets that the socket is still charged for */
	atomic_t rx_more;		/* octets that it is to be charged for */
	struct work_struct work;
	struct work_struct end;		/* the last one */
	struct timer_list timer;	/* set-up, grace */
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
	SDP_STEP_DEVICE,	/* looked for */
	SDP_STEP_MPA,		/* its start-up begins */
	SDP_STEP_MPA_DONE,
	SDP_STEP_ACK_SENT,
	SDP_STEP_ACK_TAKEN,
	SDP_STEP_TIMEOUT,
};

/* The workqueue of all links, and of listeners */
extern struct workqueue_struct *sdp_wq, *sdp_listen_wq;
int sdp_link_init(void);
void sdp_link_exit(void);

/*
 * sdp_link_new - a link that is not going yet
 * @sk: the namespace is its, and the user
 * The caller gives it what carries it.  Process context.  NULL: no memory
 */
struct sdp_link *sdp_link_new(const struct sock *sk, bool connector,
			      const struct sdp_carrier_ops *ops);
/* It is carried by this socket of TCP's, which is its own from now on. */
void sdp_link_over(struct sdp_link *link, struct socket *tcp);
/*
 * sdp_link_start - what it takes for the work item to have it from here on
 * Does not sleep.  SDP_EV_TCP is the caller's to raise, with a reference.
 */
void sdp_link_start(struct sdp_link *link);

/*
 * Of its work item, for what carries it:
 * sdp_link_limit_setup - it ends if set-up takes too long from here on
 * sdp_link_join - the device is this, with the reference; 0 or an error
 * sdp_link_make_qp - with its buffers, and link->offer by what there is
 * sdp_link_leave - the reverse of both, and the end of what carries it
 * sdp_link_drop_tcp - TCP's socket has no use any more
 * sdp_link_later - SDP_EV_TCP, or SDP_EV_MOVE, after a while
 */
void sdp_link_limit_setup(struct sdp_link *link);
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
 * sdp_link_abort - end it at once
 * @error: positive errno for the program, or 0
 * Any context, without link->lock.
 */
void sdp_link_abort(struct sdp_link *link, int error);

/* enum sdp_info_state; under link->lock */
u8 sdp_link_state(const struct sdp_link *link);
/* What may have changed it is done: traces a change.  Under link->lock. */
void sdp_link_stated(struct sdp_link *link);
/* The peer has broken a rule: counts and traces it. */
void sdp_link_fault(struct sdp_link *link, enum sdp_fault fault);

/* Tell the work item.  Any context. */
void sdp_link_event(struct sdp_link *link, enum sdp_event event);

/*
 * All of these under link->lock:
 * sdp_link_act - what the protocol wants to be done; enum sdp_action and
 *		  enum sdp_close_action
 * sdp_link_up - Hello and HelloAck have been exchanged, link->conn is initialised
 * sdp_link_down - it is over, with a positive errno or 0
 * sdp_link_pump - send what there is to be sent; gives the lock back meanwhile
 * sdp_link_send - one message, for which there must be a slot; then as sdp_link_pump
 */
void sdp_link_act(struct sdp_link *link, u32 actions);
void sdp_link_up(struct sdp_link *link);
void sdp_link_down(struct sdp_link *link, int error);
void sdp_link_pump(struct sdp_link *link);
void sdp_link_send(struct sdp_link *link, const struct sdp_out *out);
/*
 * sdp_link_starves - the nudge timer has expired; does the peer still exist?
 * A sender without credit may have nothing unacknowledged, so TCP would not notice
 * that the peer has gone.  As TCP does with a window of zero, the link probes, at
 * intervals that double; TCP_USER_TIMEOUT ends it, whether the peer answers or not.
 * Under link->lock, which is released meanwhile.
 */
void sdp_link_starves(struct sdp_link *link);
/*
 * sdp_link_push_begin - the caller is about to sleep until there is room, or
 *			 link->push_due
 * sdp_link_push_end - it is awake; without link->lock, both
 * In between it is the caller that sends what softirq would not, see proto/sdp/push.h.
 */
void sdp_link_push_begin(struct sdp_link *link);
void sdp_link_push_end(struct sdp_link *link);
/* What came before it was up; under link->lock, too. */
void sdp_link_take_early(struct sdp_link *link);

/*
 * move.c:
 * sdp_move_event - SDP_EV_MOVE; by the work item
 * sdp_link_use_next - link->carrier is the next one from here on, with the socket
 *		       locked, or its slock held
 */
void sdp_move_event(struct sdp_link *link);
void sdp_link_use_next(struct sdp_link *link);

/* link.c, for that: what TCP does is told from here on */
void sdp_link_hook(struct sdp_link *link);

/*
 * Wait until what was said is handed over; behind SDP_LINK_DOWN and on a move
 * nothing more follows.  Process context.
 */
void sdp_link_quiesce(struct sdp_link *link);

/*
 * sdp_link_hold - the oldest buffer stays while the program copies from it
 * sdp_link_consume - the program has read octets of it, or none, and lets go of it
 * sdp_link_skip - it does without what TCP would take from its stream, too: an
 *		   octet out of band that it stood at when the next one came
 * The first under link->lock, the second without, the third as the first, by
 * the socket's owner or link->held being false.
 */
static inline void sdp_link_hold(struct sdp_link *link)
{
	link->held = true;
}

void sdp_link_consume(struct sdp_link *link, struct sdp_rx *rx, u32 octets);
void sdp_link_skip(struct sdp_link *link);

/* The program's position in the stream; under link->lock */
static inline u64 sdp_link_position(const struct sdp_link *link)
{
	return link->rx_total - link->rx_octets;
}

/*
 * sdp_link_grow - larger buffers as the peer wishes, paid for by the socket
 * @stuck: or more of them, because the program waits for more than they hold
 * The caller has the socket locked and calls this when the program reads:
 * buffers grow by use.  Without memory the wish stays.  Process context.
 * Returns whether there is more room.
 */
bool sdp_link_grow(struct sdp_link *link, struct sock *sk, bool stuck);

/*
 * sdp_link_queue - octets for the peer, with the reference to their page
 * False: there is no room, and nothing is changed.  Under link->lock.
 */
bool sdp_link_queue(struct sdp_link *link, struct page *page, u32 off, u32 len);

/*
 * The link does without a socket from now on: what was to be sent is sent, and
 * the connection closed, in the background.  @abort: no, it is ended.
 */
void sdp_link_orphan(struct sdp_link *link, bool abort);

/* The same, at once: the peer gets a reset, and what was to be sent is dropped. */
void sdp_link_reset(struct sdp_link *link);

/*
 * transfer.c: memory of both directions, with link->dev and link->qp there, and
 * the receive buffers posted.  Freeing comes when the queue pair is gone; what the
 * program has not read, or what is to be sent, is kept for another one.
 */
int sdp_link_alloc(struct sdp_link *link);
void sdp_link_keep(struct sdp_link *link);
void sdp_link_unmap(struct sdp_link *link);
void sdp_link_free(struct sdp_link *link);

#endif /* SDP_LINK_H */
