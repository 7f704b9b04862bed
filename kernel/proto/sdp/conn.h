/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection after its set-up: what a message means, and which one to send
 * next.  draft-pinkerton-iwarp-sdp-01 sections 6, 8.2, 9 to 12, 13.1.
 *
 *   messages of the peer    -> sdp_conn_take() -> what the caller has to do
 *   requests of the program -> sdp_conn_input(), sdp_conn_oob() and so on
 *   credit, buffers, octets -> sdp_conn_next() -> the next message
 *
 * After each call the caller calls sdp_conn_next() until it returns false.  The
 * caller has the octets, the buffers and the timers.  This end receives by all
 * mechanisms but sends by Bcopy only: it sends no SrcAvail and no SinkAvail.
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
	bool oob;		/* announce the octet before @oob_end */
	bool oob_told;		/* OOB_PEND is sent, OOB_PRES is not */
	__u64 oob_end;
	__u64 oob_told_end;	/* end of the octet that was announced */
	__u64 sent;
	__u32 payloads;		/* messages with some: PotentialNonDiscards */
};

/* Why this end aborted a connection */
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
	SDP_FAULT_PAYLOAD,	/* payload where none is allowed */
	SDP_FAULT_UNFINISHED,	/* DisConn or SrcAvail before promised octets */
	SDP_FAULT_RESIZE,
	SDP_FAULT_INVALIDATE,	/* invalidates an STag; we advertise none */
	SDP_FAULTS
};

struct sdp_conn {
	struct sdp_credits credits;
	struct sdp_resize resize;
	struct sdp_source source;
	struct sdp_sink sink;
	bool connector;
	__u8 state;		/* enum sdp_state */
	__u8 fault;		/* enum sdp_fault, the reason of the abort */
	__u64 disconn;		/* MSeq of our DisConn, once it is sent */
	bool disconn_seen;	/* our DisConn was sent on the last carrier */
	bool abort_due;		/* AbortConn must be sent */
	bool suspend_due;	/* SuspCommAck is due after the last Read */
	bool suspended;		/* SuspCommAck is sent, nothing may follow it */
	bool asked;		/* we asked for credit since the last payload */
	bool probe;		/* may use the last credit to ask for more */
	__u16 suspend_port;	/* of SuspComm: where to connect to */
};

/* What the caller has to do; combined with enum sdp_close_action */
enum sdp_action {
	SDP_DO_DELIVER	= 1 << 8,	/* msg->payload octets join the stream */
	SDP_DO_URGENT	= 1 << 9,	/* an octet out of band will follow */
	SDP_DO_OOB	= 1 << 10,	/* it is the last one of this payload */
	SDP_DO_ADVERT	= 1 << 11,	/* sdp_sink_want() or sdp_sink_refuse() */
	SDP_DO_RESIZE	= 1 << 12,	/* sdp_resize_answer() */
	SDP_DO_SUSPEND	= 1 << 13,	/* connect anew after SuspCommAck */
};

/* What the program has queued for sending */
struct sdp_queue {
	__u64 octets;
	bool partial;	/* send them even if they do not fill a message */
	bool flows;	/* payload is in flight, and its completion calls again */
};

/* A message to be sent */
struct sdp_out {
	struct sdp_msg msg;	/* payload: octets from the head of the queue */
	bool solicited;
	bool invalidate;	/* invalidate @stag, an STag of the peer */
	__u32 stag;
};

/*
 * sdp_conn_init - Hello and HelloAck have been exchanged; section 8.1.1
 * @own: what this end offered
 * @terms: result of sdp_hello_check() or sdp_hello_ack_check()
 */
void sdp_conn_init(struct sdp_conn *c, bool connector,
		   const struct sdp_offer *own, const struct sdp_terms *terms);

/*
 * sdp_conn_resume - continue over another carrier, after SDP_DO_SUSPEND
 *
 * This end has connected anew, so it is the connecting peer from now on.
 * Credits, sizes, modes and advertisements are those of a new connection.  A
 * closed direction stays closed, and the stream continues where it was.
 * Section 13.1.1 (4) to (8).
 */
void sdp_conn_resume(struct sdp_conn *c, const struct sdp_offer *own,
		     const struct sdp_terms *terms);

/*
 * sdp_conn_take - a message has arrived
 * @invalidated: its Send has invalidated an STag
 * Returns enum sdp_action and enum sdp_close_action.  After a fault they are
 * those of an abort, and @c->fault has the reason.
 */
__u32 sdp_conn_take(struct sdp_conn *c, const struct sdp_msg *msg,
		    bool invalidated);

/* The caller has found a fault of the peer.  Returns enum sdp_close_action. */
__u32 sdp_conn_fault(struct sdp_conn *c, enum sdp_fault fault);

/*
 * sdp_conn_next - the message to send next
 * False: none for now.  True: the caller must send it, in the order of the
 * calls.
 */
bool sdp_conn_next(struct sdp_conn *c, const struct sdp_queue *queue,
		   struct sdp_out *out);

/*
 * Does a message wait for credit?  Then the caller calls sdp_conn_probe() now
 * and then, as TCP probes a zero window: sdp_conn_next() then returns a message
 * that makes the peer report its credits, if one may be sent.
 */
bool sdp_conn_starved(const struct sdp_conn *c, const struct sdp_queue *queue);
void sdp_conn_probe(struct sdp_conn *c);

/*
 * The last of @octets queued octets is out of band.  An earlier one that was
 * not announced yet becomes an ordinary octet, as with TCP.
 */
void sdp_conn_oob(struct sdp_conn *c, __u64 octets);

/*
 * For the inputs of close.h except the peer's messages and SDP_IN_SAID.
 * Returns enum sdp_close_action.
 */
__u32 sdp_conn_input(struct sdp_conn *c, enum sdp_input input);

/* May the program still send?  May the peer still send? */
bool sdp_conn_sends(const struct sdp_conn *c);
bool sdp_conn_receives(const struct sdp_conn *c);

#endif /* SDP_PROTO_CONN_H */
