/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who looks at a send queue next: all interleavings of posters, the softirq that
 * brings ACKs and data, the worker, the poller, and a stranger that takes the
 * socket lock for something else.  The decisions are those of the module:
 * kernel/proto/turn.h is compiled in.
 *
 * What has to hold: when nothing can happen any more, no request and no response
 * lies there; and no run of the engine takes more than its budget.
 *
 * What stands for what
 *   prod, kick   the words of the mapped ring; every access is a step of its own
 *   lock         the socket lock: FREE, SOFTIRQ's spinlock, or the owning process
 *   out          messages that TCP has sent and the peer has not acknowledged
 *   reads        reads of ours without response; fenced requests wait for them
 *   asked        reads of the peer that wait for our response
 *
 * BROKEN=1, 2, 3, 4, 5 are mistakes that the checker has to find: the second look
 * behind kick is left out; the poller gives up without the lock; a stranger that
 * handles the backlog is taken for the holder, who comes back; nobody looks for what
 * the handler of a receive has posted; kick is cleared when the worker may already
 * have looked.
 *
 * KERNEL: the posters are consumers in the kernel.  REPLIES: so many requests are
 * posted by the handler of a receive, within the receive engine.
 *
 * Left out: contents, completions, the end of a stream (tests/model/life.pml).
 * Memory is sequentially consistent here; the code has full barriers where the
 * order of a store and a load of the two shared words matters.
 */

/* Requests of the two posters */
#ifndef POSTS0
#define POSTS0	2
#define POSTS1	1
#endif
#ifndef REPLIES
#define REPLIES	0
#endif
#define TOTAL	(POSTS0 + POSTS1 + REPLIES)
#ifndef BURST
#define BURST	2	/* budget, requests */
#endif
#ifndef BROKEN
#define BROKEN	0
#endif
#define LOOPS	2	/* bursts of a process before the worker takes over */
#ifndef WINDOW
#define WINDOW	2	/* messages that TCP takes */
#endif

/* The numbers of kernel/proto/turn.h, which the compiler compares */
#define T_POSTER	1
#define T_POLLER	2
#define T_WORK		5
#define T_LATER		6
#define T_HOLDER	7
#define T_ENGINE	8

c_decl {
\#include "kernel/proto/turn.h"
	_Static_assert(SWP_TURN_POSTER == T_POSTER &&
		       SWP_TURN_POLLER == T_POLLER &&
		       SWP_TURN_WORK == T_WORK &&
		       SWP_TURN_LATER == T_LATER &&
		       SWP_TURN_HOLDER == T_HOLDER &&
		       SWP_TURN_ENGINE == T_ENGINE, "turns");
}

/* Who can have the lock */
#define FREE		0
#define SOFTIRQ		1
#define POSTER0		2
#define POSTER1		3
#define WORKER		4
#define POLLER		5
#define STRANGER	6

/* Why run_tx() runs */
#define DOORBELL	0
#define WORK		1
#define POLL		2
#define POLL_END	3

/* Words that programs see */
byte prod;
bool kick;

/* Of the QP */
byte turn;
byte sq_tx;
bool poller;
bool leaving;
byte holder;
short left;
bool work;		/* tx_work is queued, with a delay or without */
bool poll_work;

/* The world around */
byte lock;
byte out, reads, asked;
#ifndef SHORTAGES
#define SHORTAGES 1
#endif
byte shortages = SHORTAGES;	/* of memory, to come */
#ifndef QUESTIONS
#define QUESTIONS 1
#endif
byte questions = QUESTIONS;	/* reads of the peer, to come */
byte replies = REPLIES;
bool posted;		/* by a handler; of the receive engine */

/* Of whoever has the lock, so there is one */
byte actor, stop, next;
short spend;
byte news;
bool runs;
bool ring;
byte before;

/* Requests by number: the first is a read, the next fenced, others neither */
#define is_read(n)	((n) == 0)
#define is_fenced(n)	((n) == 1)

/*
 * What nobody can see who has not the lock is one step.  The turn is seen, and
 * so are prod and kick.
 */
inline set_turn(t)
{
	turn = t;
	atomic {
		c_code { now.ring = swp_turn_kick(now.turn); };
		if
		:: ring != kick -> kick = ring
		:: else
		fi;
		if
		:: turn == T_WORK || turn == T_LATER -> work = true
		:: else
		fi;
		ring = false
	}
}

/* send_some() */
inline send_some()
{
	do
	:: atomic { spend <= 0 ->
		c_code { now.stop = SWP_STOP_BURST; };
		break }
	:: atomic { spend > 0 && shortages > 0 ->
		shortages--;
		c_code { now.stop = SWP_STOP_MEMORY; };
		break }
	:: atomic { spend > 0 && shortages > 0 ->
		/* TCP has none, perhaps with nothing out */
		shortages--;
		c_code { now.stop = SWP_STOP_FULL; };
		break }
	:: atomic { spend > 0 && out >= WINDOW ->
		c_code { now.stop = SWP_STOP_FULL; };
		break }
	:: atomic { spend > 0 && out < WINDOW && asked > 0 ->
		asked--;
		out++;
		spend-- }
	:: atomic { spend > 0 && out < WINDOW && asked == 0 && sq_tx == prod ->
		c_code { now.stop = SWP_STOP_EMPTY; };
		break }
	:: atomic { spend > 0 && out < WINDOW && asked == 0 && sq_tx != prod &&
		    is_fenced(sq_tx) && reads > 0 ->
		c_code { now.stop = SWP_STOP_HELD; };
		break }
	:: atomic { spend > 0 && out < WINDOW && sq_tx != prod &&
		    !(is_fenced(sq_tx) && reads > 0) ->
		if
		:: turn == T_POSTER -> set_turn(T_ENGINE)
		:: else
		fi;
		if
		:: is_read(sq_tx) -> reads++
		:: else
		fi;
		out++;
		sq_tx++;
		spend-- }
	od
}

/* swp_tx_run() */
inline engine(me)
{
	atomic {
		if
		:: lock == SOFTIRQ ->
			c_code { now.actor = SWP_ACTOR_SOFTIRQ; };
			spend = BURST
		:: lock != SOFTIRQ && holder != me ->
#if BROKEN == 3
			c_code { now.actor = SWP_ACTOR_HOLDER; };
#else
			c_code { now.actor = SWP_ACTOR_STRANGER; };
#endif
			spend = 0
		:: lock != SOFTIRQ && holder == me && leaving ->
			c_code { now.actor = SWP_ACTOR_LEAVING; };
			spend = left
		:: lock != SOFTIRQ && holder == me && !leaving ->
			c_code { now.actor = SWP_ACTOR_HOLDER; };
			spend = left
		fi;
		before = sq_tx
	};
	do
	:: true ->
		send_some();
		c_code {
			now.next = swp_turn_after(now.stop, now.actor,
						  now.out > 0, now.poller);
		};
		set_turn(next);
#if BROKEN == 1
		break
#else
		if
		:: turn != T_POSTER || sq_tx == prod -> break
		:: else
		fi
#endif
	od;
	atomic {
		assert(sq_tx - before <= BURST);
		before = 0;
		if
		:: lock != SOFTIRQ && holder == me -> left = spend
		:: else
		fi;
		/* what is over makes no difference */
		spend = 0;
		actor = 0;
		stop = 0;
		next = 0
	}
}

/* data_ready and write_space, behind the receive engine; it is an ACK or not */
inline socket_calls(me, ack)
{
	atomic {
		if
		:: ack -> c_code { now.news = SWP_NEWS_ACKED; }
		:: else -> c_code { now.news = SWP_NEWS_DATA; }
		fi;
		c_code {
			now.runs = swp_turn_runs(now.turn, now.news,
						 now.asked > 0);
		};
		news = 0
	};
	if
	:: atomic { runs -> runs = false }; engine(me)
	:: else
	fi
}

/* Data: the receive engine, and what is behind it */
inline data(me)
{
	if
	:: replies > 0 ->
		atomic { replies--; prod++ };
		if
		:: kick -> posted = true
		:: else
		fi
	:: true
	fi;
	if
	:: atomic { posted -> posted = false };
#if BROKEN != 4
		engine(me)
#endif
	:: else
	fi;
	socket_calls(me, false)
}

inline lock_sock(me)
{
	atomic { lock == FREE -> lock = me }
}

/*
 * The backlog: what came at any time while the lock was held.  Nobody looks there
 * before the lock is given back, so here is early enough for it to come.
 */
inline release_sock(me)
{
	do
	:: atomic { true ->
		lock = FREE;
		leaving = false;
		left = 0;
		break }
	:: atomic { out > 0 -> out-- };
		socket_calls(me, true)
	:: atomic { reads > 0 -> reads-- };
		data(me)
	:: atomic { questions > 0 -> questions--; asked++ };
		data(me)
	od
}

/* run_tx(); @why and @n are the caller's variables */
inline run_tx(me, why, n)
{
	n = 1;
	do
	:: true ->
		lock_sock(me);
		atomic {
			holder = me;
			leaving = (n == LOOPS);
			left = BURST;
			if
			:: why == POLL_END -> poller = false
			:: else
			fi
		};
		engine(me);
		if
		/* note_doorbell(): the stream may be one of small requests */
		:: why == DOORBELL && !poller && turn == T_POSTER ->
			poller = true;
			set_turn(T_POLLER);
			poll_work = true
		:: true
		fi;
		release_sock(me);
		if
		:: n == LOOPS || turn != T_HOLDER -> break
		:: else
		fi;
		why = WORK;
		n++
	od;
	atomic {
		why = 0;
		n = 0;
		if
		:: holder == me -> holder = FREE
		:: else
		fi
	}
}

/* swp_qp_posted(), if it does not run the engine itself */
inline ask_worker()
{
#if BROKEN == 5
	work = true;
	kick = false
#else
	kick = false;
	work = true
#endif
}

proctype poster(byte me; byte posts)
{
	byte why, n, i;

	for (i : 1 .. posts) {
		/* the provider's lock covers both posters */
		prod++;
		if
		:: kick ->
#ifdef KERNEL
			/* swp_qp_posted(): as in softirq, or the worker */
			if
			:: atomic { lock == FREE -> lock = SOFTIRQ };
				engine(SOFTIRQ);
				lock = FREE
			:: lock != FREE -> ask_worker()
			/* it is too much for that */
			:: true -> ask_worker()
			fi
#else
			why = DOORBELL;
			run_tx(me, why, n)
#endif
		:: else
		fi
	}
}

active proctype worker()
{
	byte why, n;

end:	do
	:: atomic { work -> work = false };
		why = WORK;
		run_tx(WORKER, why, n)
	od
}

active proctype polling()
{
	byte why, n;

end:	do
	:: atomic { poll_work -> poll_work = false };
		do
		:: turn != T_POLLER && turn != T_HOLDER && turn != T_ENGINE ->
			break
		:: prod != sq_tx ->
			why = POLL;
			run_tx(POLLER, why, n);
			/* one more look at most, or this would go on for ever */
			break
		/* time is up */
		:: true -> break
		od;
#if BROKEN == 2
		poller = false
#else
		why = POLL_END;
		run_tx(POLLER, why, n)
#endif
	od
}

/* Somebody lists QPs, or asks for the addresses of the connection. */
active proctype stranger()
{
	lock_sock(STRANGER);
	skip;
	release_sock(STRANGER)
}

/* The peer and its TCP, and the softirq by which they are heard */
active proctype softirq()
{
end:	do
	:: atomic { out > 0 && lock == FREE -> lock = SOFTIRQ; out-- };
		socket_calls(SOFTIRQ, true);
		lock = FREE
	:: atomic { reads > 0 && lock == FREE -> lock = SOFTIRQ; reads-- };
		data(SOFTIRQ);
		lock = FREE
	:: atomic { questions > 0 && lock == FREE ->
		questions--;
		asked++;
		lock = SOFTIRQ };
		data(SOFTIRQ);
		lock = FREE
	od
}

init {
	/* swp_qp_start(): the first look is the worker's */
	atomic {
		turn = T_WORK;
		work = true;
		run poster(POSTER0, POSTS0);
		run poster(POSTER1, POSTS1)
	}
	timeout;
	/* those for which nothing has come */
	assert(sq_tx == TOTAL - replies);
	assert(asked == 0);
	assert(reads == 0 && out == 0)
}
