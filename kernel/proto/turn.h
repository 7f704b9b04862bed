/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who looks at a send queue next.
 *
 * A request must never wait without a context that is about to look, and no
 * context needs to look twice.  So there is one word of state per QP, its turn, which says whose
 * duty the next look is.  Only the context that runs the engine, socket lock held,
 * changes it: when it stops, the table below has the successor.  This file is
 * pure; the module runs it, KUnit walks it and tests/model/turn.pml has the
 * model checker run it in all interleavings.
 *
 * Who runs the engine (enum swp_actor), always with the socket lock held:
 *
 *   HOLDER    a process in run_tx(): the poster's doorbell, the worker, the
 *             poller; also what it handles of the backlog while it gives the
 *             lock back.  It comes back for another burst
 *   LEAVING   the same in its last burst: it does not come back
 *   SOFTIRQ   the socket calls, and no process has the lock
 *   STRANGER  the socket calls while a process that has the lock for something
 *             else gives it back.  It gets no budget, so it never runs the
 *             engine for others and never keeps a duty
 *
 * How the duty comes about:
 *
 *   POSTER    kick is set in the ring: the next poster rings the doorbell.
 *             Whoever sets it has to look once more, see swp_turn_kick()
 *   POLLER    poll_work watches the queue
 *   PEER      what waits needs something of the peer: the response to a read,
 *             the first FPDU; data_ready
 *   TCP       TCP has octets out and calls write_space when they are acked
 *   WORK      tx_work is queued
 *   LATER     tx_work is queued with a delay
 *   HOLDER    the process that has the lock takes it again
 *   ENGINE    it runs, and decides when it stops; only seen without the lock
 *   NOBODY    the stream has ended, or not begun; once it has ended kick is set,
 *             and a doorbell flushes
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
	SWP_STOP_EMPTY,		/* all that there is has been sent */
	SWP_STOP_HELD,		/* the next request waits for the peer */
	SWP_STOP_FULL,		/* TCP takes no more */
	SWP_STOP_BURST,		/* the budget is used up */
	SWP_STOP_MEMORY,	/* there is none */
	SWP_STOP_DEAD,		/* the stream has ended */
	SWP_STOP_COUNT
};

/* What a socket calls for */
enum swp_news {
	SWP_NEWS_DATA,		/* data_ready, behind the receive engine */
	SWP_NEWS_ACKED,		/* write_space */
};

/*
 * swp_turn_after - whose turn it is when @actor stopped for @stop
 * @out: TCP has octets that will be acknowledged, so it will call again
 * @poller: poll_work is running and will look, with the lock, before it ends
 */
static inline enum swp_turn swp_turn_after(enum swp_stop stop,
					   enum swp_actor actor, bool out,
					   bool poller)
{
	/* by stop, actor, and whether nothing or something is out */
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
			/* others get a turn until the next ACK */
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
 * Does the poster have to ring?  Who sets kick looks at prod once more behind a
 * full barrier, and the poster stores prod, executes a full barrier and loads
 * kick: one of the two sees the other's store.
 */
static inline bool swp_turn_kick(enum swp_turn turn)
{
	return turn == SWP_TURN_POSTER;
}

/*
 * swp_turn_runs - does the engine run for what the socket calls for?
 * @due: something besides the send queue waits to be sent: responses, a
 *	Terminate, FIN
 * Whose duty it is and who comes anyhow need not be helped; the worker and the
 * poller may have to wait for a processor, so they are.
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
