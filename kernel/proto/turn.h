/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which context looks at a send queue next.
 *
 * A request must never wait in a send queue without a context that is going to
 * look, and one such context is enough.  So each QP has one
 * word of state, its turn, which names the context that must look next.  Only
 * the context that runs the engine changes it, with the socket lock held: when
 * the engine stops, the table below gives the next turn.  This file is pure:
 * the module runs it, KUnit checks every cell, and the model checker runs it in
 * all interleavings (tests/model/turn.pml).
 *
 * The contexts that run the engine (enum swp_actor), always with the socket
 * lock held:
 *
 *   HOLDER    a process in run_tx(): the poster's doorbell, the worker, the
 *             poller; also when it processes the backlog while it releases the
 *             lock.  It owns the socket, or has the spinlocks of both ends'.  It
 *             comes back for another burst
 *   LEAVING   the same in its last burst: it does not come back
 *   SOFTIRQ   a socket callback while no process has the lock; or a HOLDER of
 *             the other end, which has both spinlocks, and comes back for its
 *             own end and, as long as it has the processor, for responses
 *   STRANGER  a socket callback in a process that took the lock for something
 *             else, while it releases the lock.  It has no budget, so it never
 *             runs the engine for others and the turn never stays with it
 *
 * How each turn makes sure of the next look (enum swp_turn):
 *
 *   POSTER    kick is set in the ring: the next poster rings the doorbell.
 *             After setting kick, look at the queue again, see swp_turn_kick().
 *             A consumer in the kernel that queues tx_work clears kick first:
 *             then posters need not ring until somebody has looked
 *   POLLER    poll_work watches the queue
 *   PEER      the next request waits for the peer: for the response to a read
 *             or for the first FPDU.  data_ready runs the engine
 *   TCP       TCP has unacknowledged octets and calls write_space on their ACK
 *   WORK      tx_work is queued; with a delay of a tick or two while a HOLDER
 *             of the other end is going to send the responses
 *   LATER     tx_work is queued with a delay
 *   HOLDER    the process that has the lock takes it again
 *   ENGINE    the engine runs and sets the turn when it stops; only contexts
 *             without the lock see this value
 *   NOBODY    the stream has not begun, or has ended; after its end kick is
 *             set, and the doorbell flushes
 */
#ifndef SWP_PROTO_TURN_H
#define SWP_PROTO_TURN_H

#include "base.h"

enum swp_turn {
	SWP_TURN_NOBODY,
	SWP_TURN_POSTER,
	SWP_TURN_POLLER,
	SWP_TURN_PEER,
	SWP_TURN_TCP,
	SWP_TURN_WORK,
	SWP_TURN_LATER,
	SWP_TURN_HOLDER,
	SWP_TURN_ENGINE,
	SWP_TURN_COUNT
};

enum swp_actor {
	SWP_ACTOR_HOLDER,
	SWP_ACTOR_LEAVING,
	SWP_ACTOR_SOFTIRQ,
	SWP_ACTOR_STRANGER,
	SWP_ACTOR_COUNT
};

/* Why the engine stopped */
enum swp_stop {
	SWP_STOP_EMPTY,		/* everything has been sent */
	SWP_STOP_HELD,		/* the next request waits for the peer */
	SWP_STOP_FULL,		/* TCP takes no more */
	SWP_STOP_BURST,		/* the budget is used up */
	SWP_STOP_MEMORY,	/* an allocation failed */
	SWP_STOP_DEAD,		/* the stream has ended */
	SWP_STOP_COUNT
};

/* The socket callback that asks for the engine */
enum swp_news {
	SWP_NEWS_DATA,		/* data_ready, after the receive engine */
	SWP_NEWS_ACKED,		/* write_space */
};

/*
 * swp_turn_after - the next turn after @actor ran the engine until @stop
 * @out: TCP has octets that will be acknowledged, so it will call write_space
 * @poller: poll_work is running and will look, with the lock, before it ends
 */
static inline enum swp_turn swp_turn_after(enum swp_stop stop,
					   enum swp_actor actor, bool out,
					   bool poller)
{
	/* by stop, actor and @out */
	static const __u8 table[SWP_STOP_COUNT][SWP_ACTOR_COUNT][2] = {
		[SWP_STOP_EMPTY] = {
			[SWP_ACTOR_HOLDER] = {
				SWP_TURN_POSTER, SWP_TURN_POSTER,
			},
			[SWP_ACTOR_LEAVING] = {
				SWP_TURN_POSTER, SWP_TURN_POSTER,
			},
			[SWP_ACTOR_SOFTIRQ] = {
				SWP_TURN_POSTER, SWP_TURN_POSTER,
			},
			[SWP_ACTOR_STRANGER] = { SWP_TURN_WORK, SWP_TURN_WORK },
		},
		[SWP_STOP_HELD] = {
			[SWP_ACTOR_HOLDER] = { SWP_TURN_PEER, SWP_TURN_PEER },
			[SWP_ACTOR_LEAVING] = { SWP_TURN_PEER, SWP_TURN_PEER },
			[SWP_ACTOR_SOFTIRQ] = { SWP_TURN_PEER, SWP_TURN_PEER },
			[SWP_ACTOR_STRANGER] = { SWP_TURN_WORK, SWP_TURN_WORK },
		},
		[SWP_STOP_FULL] = {
			[SWP_ACTOR_HOLDER] = { SWP_TURN_LATER, SWP_TURN_TCP },
			[SWP_ACTOR_LEAVING] = { SWP_TURN_LATER, SWP_TURN_TCP },
			[SWP_ACTOR_SOFTIRQ] = { SWP_TURN_LATER, SWP_TURN_TCP },
			[SWP_ACTOR_STRANGER] = { SWP_TURN_WORK, SWP_TURN_WORK },
		},
		[SWP_STOP_BURST] = {
			[SWP_ACTOR_HOLDER] = {
				SWP_TURN_HOLDER, SWP_TURN_HOLDER,
			},
			[SWP_ACTOR_LEAVING] = { SWP_TURN_WORK, SWP_TURN_WORK },
			/* leave the CPU to others until the next ACK */
			[SWP_ACTOR_SOFTIRQ] = { SWP_TURN_WORK, SWP_TURN_TCP },
			[SWP_ACTOR_STRANGER] = { SWP_TURN_WORK, SWP_TURN_WORK },
		},
		[SWP_STOP_MEMORY] = {
			[SWP_ACTOR_HOLDER] = { SWP_TURN_LATER, SWP_TURN_LATER },
			[SWP_ACTOR_LEAVING] = {
				SWP_TURN_LATER, SWP_TURN_LATER,
			},
			[SWP_ACTOR_SOFTIRQ] = {
				SWP_TURN_LATER, SWP_TURN_LATER,
			},
			[SWP_ACTOR_STRANGER] = { SWP_TURN_WORK, SWP_TURN_WORK },
		},
		[SWP_STOP_DEAD] = {
			[SWP_ACTOR_HOLDER] = {
				SWP_TURN_NOBODY, SWP_TURN_NOBODY,
			},
			[SWP_ACTOR_LEAVING] = {
				SWP_TURN_NOBODY, SWP_TURN_NOBODY,
			},
			[SWP_ACTOR_SOFTIRQ] = {
				SWP_TURN_NOBODY, SWP_TURN_NOBODY,
			},
			[SWP_ACTOR_STRANGER] = {
				SWP_TURN_NOBODY, SWP_TURN_NOBODY,
			},
		},
	};
	enum swp_turn turn = (enum swp_turn)table[stop][actor][out];

	return turn == SWP_TURN_POSTER && poller ? SWP_TURN_POLLER : turn;
}

/*
 * Must the next poster ring the doorbell?  The engine stores kick, executes a
 * full barrier and loads prod; the poster stores prod, executes a full barrier
 * and loads kick: one of the two sees the other's store.
 */
static inline bool swp_turn_kick(enum swp_turn turn)
{
	return turn == SWP_TURN_POSTER;
}

/*
 * swp_turn_runs - must the engine run for this socket callback?
 * @due: something besides the send queue waits to be sent: responses, a
 *	Terminate, FIN
 * Not if the context that has the turn will look soon by itself.  But the
 * worker and the poller may have to wait for a processor, so the engine runs
 * for them.
 */
static inline bool swp_turn_runs(enum swp_turn turn, enum swp_news news,
				 bool due)
{
	switch (turn) {
	case SWP_TURN_WORK:
	case SWP_TURN_POLLER:
		return true;
	case SWP_TURN_PEER:
		return due || news == SWP_NEWS_DATA;
	case SWP_TURN_TCP:
		return news == SWP_NEWS_ACKED;
	case SWP_TURN_POSTER:
		return due;
	default:
		return false;
	}
}

#endif /* SWP_PROTO_TURN_H */
