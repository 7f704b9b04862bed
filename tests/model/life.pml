/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The life of a queue pair: two start-ups at once, a consumer that moves it to the
 * error state and destroys it, the removal of the device, and the softirq, the
 * workers and the timers of the streams, in all interleavings.  The decisions are
 * those of the module: kernel/proto/life.h is compiled in.
 *
 * What has to hold: nobody touches the QP once its memory is free; the QP gets one
 * stream at most, and none in the error state or while it goes; whoever owns a
 * connection is told once that it is over; every reference to a stream is given
 * back, and none to a stream that is still somebody's; destruction comes to its
 * end, whatever the peer does.
 *
 * What stands for what
 *   qp_lock      a step in atomic { }
 *   sk_lock      of each stream: nobody, the softirq, or a process
 *   owned        the callbacks of the stream are the QP's
 *   queued_...   a work item is queued, and holds a reference; running_...: it
 *                runs; barred_...: somebody cancels it, and nobody can queue it
 *
 * BROKEN=1 to 4 are mistakes that the checker has to find: the last look before a
 * stream is attached is left out; the stream is attached before its callbacks are
 * the QP's, without the socket lock; a start-up is not told that the QP goes; a
 * worker waits for memory for a stream that is gone.
 */
#ifndef BROKEN
#define BROKEN	0
#endif

/* Start-ups at once, 1 or 2 */
#ifndef STARTS
#define STARTS	2
#endif
#ifndef INCIDENTS
#define INCIDENTS 1
#endif

/* The numbers of kernel/proto/life.h, which the compiler compares */
#define L_FREE		0
#define L_STARTING	1
#define L_STARTED	2
#define L_GOING		4
#define L_REFUSED	5
#define S_START		0
#define S_ATTACH	1
#define S_UNDO		2
#define S_GO		3

c_decl {
\#include "kernel/proto/life.h"
	_Static_assert(SWP_LIFE_FREE == L_FREE &&
		       SWP_LIFE_STARTING == L_STARTING &&
		       SWP_LIFE_STARTED == L_STARTED &&
		       SWP_LIFE_GOING == L_GOING &&
		       SWP_LIFE_REFUSED == L_REFUSED, "states");
	_Static_assert(SWP_STEP_START == S_START &&
		       SWP_STEP_ATTACH == S_ATTACH &&
		       SWP_STEP_UNDO == S_UNDO &&
		       SWP_STEP_GO == S_GO, "steps");
}

/* States of the QP, as far as they matter here */
#define INIT	0
#define RTS	1
#define ERROR	2

#define SOFTIRQ	1	/* any other number is a process */

/* Of the QP */
byte ref = 1;
bool gone;		/* its memory is free */
bool erased;		/* no lookup finds it */
byte life, state;
byte step, next;
byte claim;		/* the start-up that has it, 0: none */
byte qp_llp;		/* its stream, 0: none */
bool conn;		/* somebody has to be told */
bool starved;
bool shutdown, tell, closed;	/* what close_work is to do */

bool queued_tx, running_tx, barred_tx;
bool queued_close, running_close, barred_close;
bool queued_linger, running_linger, barred_linger;

/* Of the two streams, from 1 on */
byte llp_ref[3];
byte sk_lock[3];
bool owned[3];
bool kill[3];		/* its start-up, or its connection, is to end */
bool told[3];
byte attached;		/* which stream the QP got */
byte strays;		/* runs of the worker without a stream */
byte incidents = INCIDENTS;	/* of streams, to come */

inline touch()
{
	assert(!gone)
}

inline put()
{
	atomic { assert(ref > 0 && !gone); ref-- }
}

inline queue(queued, barred)
{
	atomic {
		touch();
		if
		:: !queued && !barred -> queued = true; ref++
		:: else
		fi
	}
}

inline cancel_sync(queued, running, barred)
{
	atomic {
		touch();
		barred = true;
		if
		:: queued -> queued = false; ref--
		:: else
		fi
	};
	atomic { !running -> barred = false }
}

inline take_step(s)
{
	step = s;
	c_code {
		now.next = swp_life_after(now.life, now.step, now.state == 0);
	};
	step = 0;
	if
	:: next != L_REFUSED -> life = next
	:: else
	fi
}

/* swp_qp_llp() */
inline get_llp(l)
{
	atomic {
		touch();
		l = qp_llp;
		if
		:: l -> assert(llp_ref[l] > 0); llp_ref[l]++
		:: else
		fi
	}
}

inline put_llp(l)
{
	atomic {
		assert(llp_ref[l] > 0);
		llp_ref[l]--;
		assert(llp_ref[l] > 0 || !owned[l]);
		l = 0
	}
}

inline lock_sock(l, me)
{
	atomic { sk_lock[l] == 0 -> assert(llp_ref[l] > 0); sk_lock[l] = me }
}

inline release_sock(l)
{
	sk_lock[l] = 0
}

/* swp_qp_dead(), with the socket lock held */
inline dead()
{
	atomic {
		touch();
		state = ERROR;
		closed = true;
		queue(queued_close, barred_close)
	}
}

/* What the stream may have to say when it is looked at; sk_lock held */
inline look()
{
	atomic {
		if
		:: incidents > 0 -> incidents--; dead()
		:: incidents > 0 -> incidents--; starved = true;
			queue(queued_tx, barred_tx)
		:: starved = false
		fi
	}
}

inline tell_closed(t)
{
	atomic {
		touch();
		t = conn;
		conn = false
	};
	if
	:: t -> assert(!told[attached]); told[attached] = true
	:: else
	fi;
	t = false
}

proctype close_work()
{
	byte l;
	bool t;

end:	do
	:: atomic { queued_close -> queued_close = false; running_close = true;
			get_llp(l) };
		if
		:: l ->
			if
			:: atomic { shutdown -> shutdown = false;
					queue(queued_linger, barred_linger) }
			:: else
			fi;
			if
			:: tell -> tell = false; tell_closed(t)
			:: else
			fi;
			if
			:: closed ->
				closed = false;
				atomic { lock_sock(l, 2); owned[l] = false };
				release_sock(l);
				atomic { qp_llp = 0; llp_ref[l]-- };
				cancel_sync(queued_linger, running_linger,
					    barred_linger);
				tell_closed(t)
			:: else
			fi;
			put_llp(l)
		:: else
		fi;
		atomic { put(); running_close = false }
	od
}

proctype linger_work()
{
	byte l;

end:	do
	:: atomic { queued_linger -> queued_linger = false; running_linger = true;
			get_llp(l) };
		if
		:: l ->
			atomic {
				lock_sock(l, 3);
				if
				:: owned[l] -> dead()
				:: else
				fi
			};
			atomic { release_sock(l); put_llp(l) }
		:: else
		fi;
		atomic { put(); running_linger = false }
	od
}

proctype tx_work()
{
	byte l;

end:	do
	:: atomic { queued_tx -> queued_tx = false; running_tx = true };
		get_llp(l);
		if
		:: l ->
			atomic {
				lock_sock(l, 4);
				if
				:: owned[l] -> look()
				:: else
				fi
			};
			release_sock(l)
		:: else -> strays++; assert(strays <= 3)
		fi;
		if
#if BROKEN == 4
		:: starved -> queue(queued_tx, barred_tx)
#else
		:: l && starved -> queue(queued_tx, barred_tx)
#endif
		:: else
		fi;
		atomic {
			if
			:: l -> put_llp(l)
			:: else
			fi;
			put();
			running_tx = false
		}
	od
}

proctype softirq(byte s)
{
end:	do
	:: atomic { owned[s] && sk_lock[s] == 0 && incidents > 0 ->
			sk_lock[s] = SOFTIRQ };
		look();
		release_sock(s)
	od
}

/* A start-up that names the QP, and the connection that comes of it */
proctype endpoint(byte s)
{
	byte l;
	bool ok;

	/* take_qp() */
	atomic {
		if
		:: erased -> goto over
		:: else -> touch(); ref++
		fi
	};
	atomic {
		touch();
		ok = !claim && life < L_STARTED && state == INIT;
		if
		:: ok -> claim = s
		:: else
		fi
	};
	if
	:: !ok -> put(); goto over
	:: else
	fi;

	/* the peer answers, or never does */
	if
	:: true
	:: true -> kill[s]; ok = false
	fi;
	/* swp_qp_start() */
	if
	:: ok ->
		atomic {
			touch();
			take_step(S_START);
			ok = next != L_REFUSED;
			next = 0
		}
	:: else
	fi;
	if
	:: ok ->
#if BROKEN != 2
		lock_sock(s, 4 + s);
#endif
		atomic {
			touch();
#if BROKEN == 1
			next = L_STARTED;
			life = next;
#else
			take_step(S_ATTACH);
#endif
			ok = next != L_REFUSED;
			next = 0;
			if
			:: ok ->
				assert(state == INIT && !qp_llp && !attached);
				state = RTS;
				conn = true;
				llp_ref[s]++;
				attached = s;
				qp_llp = s
			:: else
			fi
		};
#if BROKEN == 2
		lock_sock(s, 4 + s);
#endif
		if
		:: ok -> owned[s] = true; look()
		:: else
		fi;
		release_sock(s);
		if
		:: ok -> queue(queued_tx, barred_tx)
		:: else -> atomic { touch(); take_step(S_UNDO); next = 0 }
		fi
	:: else
	fi;
	atomic {
		touch();
		if
		:: claim == s -> claim = 0
		:: else
		fi;
		put()
	};
	if
	:: !ok -> goto over
	:: else
	fi;

	do
	:: told[s] -> break
	:: kill[s] ->
		kill[s] = false;
		/* end_running(): the QP is looked up again */
		atomic {
			if
			:: !erased -> touch(); ref++; ok = true
			:: else -> ok = false
			fi
		};
		if
		:: ok ->
			get_llp(l);
			if
			:: l ->
				atomic {
					lock_sock(l, 4 + s);
					if
					:: owned[l] -> dead()
					:: else
					fi
				};
				atomic { release_sock(l); put_llp(l) }
			:: else
			fi;
			put()
		:: else
		fi
	od;
over:
	atomic {
		ok = false;
		l = s;
		put_llp(l)
	}
}

/* The device goes: connections are to end, then who made the QP destroys it. */
proctype remover()
{
	if
	:: atomic { true -> kill[1] = true; kill[2] = true }
	:: true
	fi
}

/* Verbs of one QP come one after the other. */
proctype consumer()
{
	byte l, mine;
	bool t;

	if
	:: true
	:: /* modify_err() */
		atomic {
			t = !qp_llp;
			if
			:: t -> state = ERROR
			:: else
			fi
		};
		if
		:: !t ->
			get_llp(l);
			if
			:: l ->
				lock_sock(l, 7);
				if
				:: atomic { owned[l] && state == RTS ->
					touch();
					state = ERROR;
					tell = true;
					shutdown = true;
					queue(queued_close, barred_close) }
				:: else
				fi;
				release_sock(l);
				put_llp(l)
			:: else
			fi
		:: else
		fi;
		t = false
	fi;

	/* swp_qp_destroy_obj() */
	erased = true;
	atomic { take_step(S_GO); assert(next == L_GOING); next = 0 };
	get_llp(l);
	if
	:: l ->
		atomic { lock_sock(l, 7); owned[l] = false };
		release_sock(l)
	:: else
	fi;
	cancel_sync(queued_tx, running_tx, barred_tx);
	cancel_sync(queued_close, running_close, barred_close);
	cancel_sync(queued_linger, running_linger, barred_linger);
	atomic { mine = qp_llp; qp_llp = 0; state = ERROR };
	tell_closed(t);
	/* swp_cm_qp_gone() */
	atomic {
		if
		:: mine -> put_llp(mine)
		:: else
		fi;
		if
		:: l -> put_llp(l)
		:: else
		fi;
#if BROKEN != 3
		if
		:: claim -> kill[claim] = true
		:: else
		fi
#endif
	};
	put();
	atomic { ref == 0 -> gone = true }
}

init {
	atomic {
		llp_ref[1] = 1;
		llp_ref[2] = 1;
		run endpoint(1);
		if
		:: STARTS == 2 -> run endpoint(2); run softirq(2)
		:: else -> llp_ref[2] = 0
		fi;
		run softirq(1);
		run tx_work();
		run close_work();
		run linger_work();
		run remover();
		run consumer()
	};
	timeout;
	assert(gone);
	assert(llp_ref[1] == 0 && llp_ref[2] == 0);
	assert(!owned[1] && !owned[2]);
	assert(!attached || told[attached])
}
