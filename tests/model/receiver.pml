/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who receives what TCP has for a queue pair: processes that read, and sleep when
 * there is nothing, the work item, softirq and the timer, in all interleavings.  The
 * decision is the module's: kernel/proto/receiver.h is compiled in.
 *
 * What has to hold: all octets are read in the end, and as long as processes come
 * when they are woken, no timer is needed for that.
 *
 * What stands for what
 *   atomic { }   a step under the lock of TCP's socket, or under link->lock
 *   unread       blocks that TCP has; all of them are enough to leave them to others
 *   have         blocks that the process can read
 *   mark         link->arrived
 *   READERS=2    two processes, the first of which may leave at any time that it does
 *                not sleep: it has what it wanted, or waited for something else
 *   TIMER=1      contexts are late at times; a process may even stay away until
 *                everything has been received (BUSY=1)
 *   ROOM=n       ACKs that make room to send, which is left to others as octets are
 *
 * BROKEN=1 to 6 are mistakes that the checker has to find: the mark is set after the
 * wake-up (1); a process looks at the mark before it is on the wait queue (2); who has
 * left a part sets no mark (3), or wakes nobody (5); no timer is set (4);
 * who receives does not look for room to send (6).
 */
#ifndef BROKEN
#define BROKEN	0
#endif
#ifndef TIMER
#define TIMER	0
#endif
#ifndef READERS
#define READERS	1
#endif
#ifndef BUSY
#define BUSY	0
#endif
#ifndef ROOM
#define ROOM	0
#endif

#define BLOCKS	4

#define B_SOFTIRQ	0
#define B_READER	1
#define B_WORK		2

c_decl {
\#include "kernel/proto/receiver.h"
	_Static_assert(SWP_RX_SOFTIRQ == B_SOFTIRQ && SWP_RX_READER == B_READER &&
		       SWP_RX_WORK == B_WORK, "contexts");
}

byte come, unread, have, got, acks;
bool room;
byte by;
bool mark, queued, timed, late_mark;
bool asleep[READERS], woken[READERS];

byte w;

inline wake()
{
	for (w : 0 .. READERS - 1) {
		if
		:: asleep[w] -> woken[w] = true
		:: else
		fi
	};
	w = 0
}

/* receives() */
inline receives(who)
{
	by = who;
#if BROKEN != 4
	timed = who != B_SOFTIRQ
#else
	timed = false
#endif
}

/* pass_on(); sets @here if softirq is to receive */
inline pass_on(here)
{
	here = false;
	c_code { now.by = swp_rx_next(now.by, true); };
	if
	:: by == B_READER ->
#if BROKEN == 1
		wake();
		late_mark = true;
#else
		mark = true;
		wake();
#endif
		receives(B_READER)
	:: by == B_WORK && !queued ->
		queued = true;
		receives(B_WORK)
	:: else ->
		receives(B_SOFTIRQ);
		here = true
	fi
}

/* the handlers of completions wake whoever sleeps */
inline all()
{
	have = have + unread;
	unread = 0;
	room = false;
	wake()
}

/* receive(): all of it, or a part */
inline some(who, more)
{
	atomic {
		if
		:: unread > 0 ->
			if
			:: have = have + unread; unread = 0
			:: have = have + 1; unread = unread - 1
			fi;
			wake()
		:: else
		fi;
#if BROKEN != 6
		room = false;
#endif
		more = unread > 0;
		if
		:: more -> receives(who)
		:: else -> receives(B_SOFTIRQ)
		fi
	}
}

proctype reader(byte me)
{
	bool more;

	do
	:: got == BLOCKS && acks == ROOM && !(ROOM && mark) -> break
	:: me + 1 < READERS -> break
	:: atomic { have > 0 -> have--; got++ }
	:: have == 0 && (got < BLOCKS || acks < ROOM || (ROOM && mark)) ->
#if BUSY
		/* it does something else, until the others have done it all */
		if
		:: skip
		:: true -> come == BLOCKS && unread == 0
		fi;
#endif
		if
		:: atomic { mark -> mark = false };
			some(B_READER, more);
#if BROKEN != 3
			if
			:: atomic { more -> mark = true
#if BROKEN != 5
				; wake()
#endif
			   }
			:: else
			fi;
#endif
			more = false
		:: else ->
#if BROKEN == 2
			if
			:: have > 0 || mark
			:: else ->
				asleep[me] = true;
				woken[me]
			fi;
#else
			asleep[me] = true;
			/* it looks once, and again when it is woken */
			if
			:: have > 0 || mark || got == BLOCKS
			:: else -> woken[me]
			fi;
#endif
			atomic { asleep[me] = false; woken[me] = false }
		fi
	od
}

active proctype softirq()
{
	bool here;

end:	do
	:: atomic { come < BLOCKS ->
			come++;
			unread++;
			if
			:: by == B_SOFTIRQ ->
				if
				:: pass_on(here)
				/* few octets, or the process runs on this processor */
				:: here = true
				fi
			:: else -> here = false
			fi;
			if
			:: here -> all()
			:: else
			fi;
			here = false
		}
#if ROOM
	:: atomic { acks < ROOM ->
			acks++;
			room = true;
			if
			:: by == B_SOFTIRQ ->
				if
				:: pass_on(here)
				:: here = true
				fi;
				if
				:: here -> room = false
				:: else
				fi
#if TIMER
			/* the other context is late: all that was left to it */
			:: by != B_SOFTIRQ ->
				pass_on(here);
				if
				:: here -> all()
				:: else
				fi
#endif
			:: by != B_SOFTIRQ
			fi;
			here = false
		}
#endif
	:: atomic { late_mark -> late_mark = false; mark = true }
	od
}

/* rx_late(); whoever is late may come all the same */
active proctype timer()
{
	bool here;

end:	do
#if TIMER
	:: atomic { timed ->
			timed = false;
			pass_on(here);
			if
			:: here -> all()
			:: else
			fi;
			here = false
		}
#else
	:: false
#endif
	od
}

active proctype worker()
{
	bool more;

end:	do
	:: atomic { queued -> queued = false };
		some(B_WORK, more);
		atomic {
			if
			:: more -> queued = true; more = false
			:: else
			fi
		}
	od
}

init {
	byte i;

	atomic {
		for (i : 0 .. READERS - 1) {
			run reader(i)
		};
		i = 0
	};
	/* nothing moves any more */
	timeout;
	assert(got == BLOCKS && unread == 0 && have == 0 && !room);
	assert(by == B_SOFTIRQ && !queued)
}
