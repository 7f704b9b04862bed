/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who sends what a link of SDP's has queued: programs that write and sleep for
 * room, softirq that brings credit and takes completions, the work item, in all
 * interleavings.  The decision is the module's: kernel/proto/sdp/push.h is compiled in.
 *
 * What has to hold: octets for which there is credit leave, and who sleeps for room
 * wakes when there is some.
 *
 * What stands for what
 *   atomic { }   a step under link->lock, which is given back while a message is
 *                handed to the device
 *   queue        blocks that wait to be sent; LARGE of them are too much for softirq
 *   asleep       the process is on the wait queue; woken: and was woken
 *   stuck        it gets no processor, or another thread has the socket's lock, for as
 *                long as anything is to be sent
 *
 * BROKEN=1, 2 and 3 are mistakes that the checker has to find: who was woken to send
 * does not do so when a signal makes it go; a process has its last look before it says
 * that it sleeps; no timer is set for who was woken.
 */
#ifndef BROKEN
#define BROKEN	0
#endif
#ifndef WRITERS
#define WRITERS	2
#endif

#define BLOCKS	2	/* of each writer */
#define ROOM	2	/* blocks that may wait, or be with the device */
#define LARGE	1
#define TOTAL	(WRITERS * BLOCKS)

#define IDLE	0
#define RUNS	1
#define AGAIN	2

#define P_HERE	0
#define P_WAKE	1
#define P_WOKEN	2
#define P_WORK	3

c_decl {
\#include "kernel/proto/sdp/push.h"
	_Static_assert(SDP_PUSH_HERE == P_HERE && SDP_PUSH_WAKE == P_WAKE &&
		       SDP_PUSH_WOKEN == P_WOKEN && SDP_PUSH_WORK == P_WORK,
		       "pushes");
}

byte put, queue, sent, done;	/* blocks: written, waiting, handed over, completed */
byte credit, given;
byte pump;
byte pushers, gone;
bool due, work, stuck, timed;
byte by;
bool asleep[WRITERS], woken[WRITERS];

inline wake_all()
{
	byte w;

	for (w : 0 .. WRITERS - 1) {
		if
		:: asleep[w] -> woken[w] = true
		:: else
		fi
	};
	w = 0
}

/* sdp_link_pump(); @go is the caller's variable */
inline sdp_pump(softirq, go)
{
	atomic {
		go = false;
		if
		:: pump != IDLE -> pump = AGAIN
		:: pump == IDLE && credit > 0 && queue > LARGE && softirq ->
			c_code {
				now.by = sdp_push_by(true, SDP_PUSH_LARGE + 1,
						     now.pushers, now.due);
			};
			if
			:: by == P_HERE -> go = true
			:: by == P_WAKE -> due = true; timed = true; wake_all()
			:: by == P_WOKEN -> timed = true
			:: by == P_WORK -> work = true
			fi;
			by = 0
		:: else -> go = true
		fi
	};
	if
	:: go ->
		do
		:: atomic {
			pump = RUNS;
			if
			:: queue > 0 && credit > 0 -> queue--; credit--
			:: else -> go = false
			fi };
			if
			/* the lock is given back here */
			:: go -> sent++
			:: else
			fi;
			atomic {
				if
				:: go -> skip
				:: !go && pump == AGAIN -> go = true
				:: else -> pump = IDLE; break
				fi
			}
		od
	:: else
	fi
}

/* what has left has given its room back when it is complete */
#define has_room	(queue + sent - done < ROOM)

proctype writer(byte me)
{
	byte i;
	bool go;

	for (i : 1 .. BLOCKS) {
		do
		:: has_room -> break
		:: else ->
			sdp_pump(false, go);
#if BROKEN == 2
			if
			:: has_room || due
			:: else ->
				atomic { pushers++; asleep[me] = true };
				woken[me];
				pushers--
			fi;
#else
			pushers++;
			asleep[me] = true;
			/* it looks once, and again when it is woken */
			if
			:: has_room || due
			:: else ->
				if
				:: woken[me]
				/* a signal */
				:: i = BLOCKS + 1
				fi
			fi;
			if
			:: skip
			:: atomic { due && !stuck -> stuck = true };
				queue == 0;
				stuck = false
			fi;
			/* a timer that ends now does nothing */
			atomic { pushers--; due = false; timed = false };
#endif
			atomic { asleep[me] = false; woken[me] = false };
#if BROKEN != 1
			sdp_pump(false, go);
#endif
			if
			:: i > BLOCKS -> goto over
			:: else
			fi
		od;
		atomic { queue++; put++ };
		sdp_pump(false, go)
	}
over:	atomic { gone++ }
}

active proctype timer()
{
end:	do
#if BROKEN != 3
	/* else it is as if it had not ended yet */
	:: atomic { timed && stuck -> timed = false; work = true }
#else
	:: false
#endif
	od
}

/* Completions, which give room, and credit, in any order */
active proctype softirq()
{
	bool go;

end:	do
	:: atomic { done < sent -> done++; wake_all() };
		sdp_pump(true, go)
	:: atomic { given < TOTAL -> given++; credit++ };
		sdp_pump(true, go)
	od
}

active proctype worker()
{
	bool go;

end:	do
	:: atomic { work -> work = false };
		sdp_pump(false, go)
	od
}

init {
	byte w;

	atomic {
		for (w : 0 .. WRITERS - 1) {
			run writer(w)
		};
		w = 0
	};
	/* nothing moves any more */
	timeout;
	assert(sent == put && queue == 0);
	assert(pump == IDLE && gone == WRITERS)
}
