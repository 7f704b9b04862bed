/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection behind its set-up: what a message means, and which one is to be
 * sent next.  draft-pinkerton-iwarp-sdp-01 sections 6, 8.2, 9 to 12, 13.1.
 *
 *   messages of the peer  -> sdp_conn_take()  -> what the caller has to do
 *   the program's wishes  -> sdp_conn_close(), sdp_conn_oob() and so on
 *   credit, buffers, octets -> sdp_conn_next() -> the next message
 *
 * After each call sdp_conn_next() may have something to send, until it says no.
 * The caller has the octets, the buffers and the timers.  This end receives by
 * all mechanisms and sends by Bcopy: its SrcAvails and SinkAvails are to come.
 */
#ifndef SDP_PROTO_CONN_H
#define SDP_PROTO_CONN_H

#include "close.h"
#include "credit.h"
#include "resize.h"
#include "setup.h"
#include "sink.h"
#include "urgent.h"
#include "wire.h"

/* The sending half-connection.  Positions are in octets of the stream. */
struct sdp_source {
	__u8 mode;		/* enum sdp_mode */
	bool oob;		/* the octet before @oob_end is to go out of band */
	bool oob_told;		/* and the peer knows that one comes ... */
	__u64 oob_end;
	__u64 oob_told_end;	/* ... before this position */
	__u64 sent;
	__u32 payloads;		/* messages that had some: PotentialNonDiscards */
};

/* Why a connection was aborted here */
enum sdp_fault {
	SDP_FAULT_NONE,
	SDP_FAULT_MALFORMED,	/* enum sdp_violation has the details */
	SDP_FAULT_MSEQ,
	SDP_FAULT_ACK,
	SDP_FAULT_OVERRUN,
	SDP_FAULT_SIZE,		/* larger than our buffers */
	SDP_FAULT_UNEXPECTED,	/* an answer to nothing, or not in this state */
	SDP_FAULT_MODE,
	SDP_FAULT_ADVERTS,
	SDP_FAULT_PAYLOAD,	/* where none may be */
	SDP_FAULT_UNFINISHED,	/* DisConn before all was said */
	SDP_FAULT_RESIZE,
	SDP_FAULT_INVALIDATE,	/* of an STag that is not up to it */
	SDP_FAULTS
};

struct sdp_conn {
	struct sdp_credits credits;
	struct sdp_resize resize;
	struct sdp_source source;
	struct sdp_sink sink;
	bool connector;
	__u8 state;		/* enum sdp_state */
	__u8 fault;		/* enum sdp_fault, of the abort */
	__u64 disconn;		/* its number, from SDP_HALF and SDP_LAST on */
	bool disconn_seen;	/* it went by the carrier before this one */
	bool abort_due;		/* AbortConn */
	bool suspend_due;	/* SuspCommAck, when no Read runs any more */
	bool suspended;		/* and nothing more is said here */
	bool asked;		/* for credit, since there was some for payload */
	bool probe;		/* ask with the last one, if need be */
	__u16 suspend_port;	/* where to connect to */
};

/* What is to be done; enum sdp_close_action as well */
enum sdp_action {
	SDP_DO_DELIVER	= 1 << 8,	/* msg->payload octets join the stream */
	SDP_DO_URGENT	= 1 << 9,	/* an octet out of band is on its way */
	SDP_DO_OOB	= 1 << 10,	/* it is the last one of this payload */
	SDP_DO_ADVERT	= 1 << 11,	/* sdp_sink_want() or sdp_sink_refuse() */
	SDP_DO_RESIZE	= 1 << 12,	/* sdp_resize_answer() */
	SDP_DO_SUSPEND	= 1 << 13,	/* after SuspCommAck: connect anew */
};

/* What the program has to be sent */
struct sdp_queue {
	__u64 octets;
	bool partial;	/* less than a message full may go */
	bool flows;	/* payload is in flight, and its completion calls again */
};

/* A message to be sent */
struct sdp_out {
	struct sdp_msg msg;	/* payload: octets from the head of the queue */
	bool solicited;
	bool invalidate;	/* the peer's STag */
	__u32 stag;
};

/*
 * sdp_conn_init - Hello and HelloAck have been exchanged; section 8.1.1
 * @own: what was said of this end
 * @terms: what the peer has said
 */
void sdp_conn_init(struct sdp_conn *c, bool connector,
		   const struct sdp_offer *own, const struct sdp_terms *terms);

/*
 * sdp_conn_resume - the same over another carrier, behind SDP_DO_SUSPEND
 *
 * Whoever connects anew is the connecting peer from then on.  Credits, sizes, modes
 * and advertisements are those of any connection that begins; what is closed stays
 * closed, and the stream goes on where it was.  Section 13.1.1 (4) to (8).
 */
void sdp_conn_resume(struct sdp_conn *c, const struct sdp_offer *own,
		     const struct sdp_terms *terms);

/*
 * sdp_conn_take - a message came in
 * @invalidated: the Send that had it has invalidated an STag
 * Returns enum sdp_action and enum sdp_close_action.  After a fault that is an
 * abort, and @c->fault says why.
 */
__u32 sdp_conn_take(struct sdp_conn *c, const struct sdp_msg *msg,
		    bool invalidated);

/* A message was malformed, or larger than its buffer: enum sdp_close_action. */
__u32 sdp_conn_fault(struct sdp_conn *c, enum sdp_fault fault);

/*
 * sdp_conn_next - the message to be sent next
 * False: none for now.  True: it is sent in this order, whatever happens.
 */
bool sdp_conn_next(struct sdp_conn *c, const struct sdp_queue *queue,
		   struct sdp_out *out);

/*
 * There is something to say and no credit for it.  As TCP does with a window of
 * zero, the caller calls sdp_conn_probe() now and then: sdp_conn_next() then has a
 * message that makes the peer tell its credits, if there is one that may be sent.
 */
bool sdp_conn_starved(const struct sdp_conn *c, const struct sdp_queue *queue);
void sdp_conn_probe(struct sdp_conn *c);

/*
 * The last of so many octets that wait to be sent is out of band.  One that has
 * not been told of yet becomes an ordinary octet, as with TCP.
 */
void sdp_conn_oob(struct sdp_conn *c, __u64 octets);

/*
 * Inputs of close.h but for the peer's messages and SDP_IN_SAID; returns
 * enum sdp_close_action.
 */
__u32 sdp_conn_input(struct sdp_conn *c, enum sdp_input input);

/* May the program still send; will more come in? */
bool sdp_conn_sends(const struct sdp_conn *c);
bool sdp_conn_receives(const struct sdp_conn *c);

#endif /* SDP_PROTO_CONN_H */
