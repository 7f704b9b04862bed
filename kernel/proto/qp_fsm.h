/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The states of a queue pair: state x input -> next state and actions.
 * RFC 5040 section 6.2 (the events of the stream that the ULP sees) and section
 * 7.1 (errors), RFC 5044 section 7.3 (the end of the stream).
 *
 *   RESET <-> INIT -start-> RTS -SQD, FIN-> CLOSING
 *                            |                 |
 *                            `-----+-----------'--- end --------> ERROR
 *                                  `-- fault --> TERMINATE --said----^
 *
 * That is a QP that the connection manager connects; for it, RTR of the verbs
 * is INIT.  A QP that ibv_modify_qp() connects has the states of the verbs, each
 * without and with the stream:
 *
 *   INIT -address-> RTR -start-> RTR_UP
 *                    |              |
 *                  to RTS         to RTS
 *                    v              v
 *                   WAIT -start--> RTS       RTR, WAIT -nobody comes-> ERROR
 *                                   | FIN
 *                                   v
 *                                  PARTING -end-> LEFT -a request-> ERROR
 *
 * An InfiniBand QP does not notice that its peer has gone until it sends, and
 * programs rely on it: one end may exit while the other still polls.
 *
 * From every state the consumer may move the QP back to RESET.
 * TERMINATE: we have found a fault and receive nothing more; at most our own
 * Terminate still has to be sent.
 *
 * life.h says whether a QP may get a stream at all.
 */
#ifndef SWP_PROTO_QP_FSM_H
#define SWP_PROTO_QP_FSM_H

#include "base.h"

enum swp_qp_state {
	SWP_QP_RESET,
	SWP_QP_INIT,
	SWP_QP_RTR,		/* RTR, it waits for the stream */
	SWP_QP_WAIT,		/* RTS for the consumer, it waits as well */
	SWP_QP_LEFT,		/* RTS for the consumer, but the peer has left */
	SWP_QP_RTR_UP,		/* RTR for the consumer, with a stream */
	SWP_QP_RTS,
	SWP_QP_PARTING,		/* the same, after the peer's FIN; then LEFT */
	SWP_QP_CLOSING,		/* the SQ drains, then we send FIN */
	SWP_QP_TERMINATE,
	SWP_QP_ERROR,
	SWP_QP_STATES
};

enum swp_qp_input {
	/* the consumer calls ib_modify_qp() */
	SWP_QP_TO_RESET,
	SWP_QP_TO_INIT,
	SWP_QP_TO_RTR,		/* without an address */
	SWP_QP_TO_PAIR,		/* RTR, with the address of the peer */
	SWP_QP_TO_RTS,
	SWP_QP_TO_SQD,
	SWP_QP_TO_ERR,		/* of a QP with a stream */
	SWP_QP_TO_ERR_IDLE,	/* of a QP without a stream */
	/* the stream */
	SWP_QP_STARTED,		/* MPA start-up has succeeded */
	SWP_QP_ALONE,		/* the peer of RTR or WAIT does not come */
	SWP_QP_PEER_FIN,	/* the peer has closed, between messages */
	SWP_QP_PEER_LEAVES,	/* the same, if ibv_modify_qp() has connected it */
	SWP_QP_FAULT,		/* we have found a fault */
	SWP_QP_SAID,		/* our Terminate is sent, or cannot be sent */
	SWP_QP_TOLD,		/* the peer's Terminate has arrived */
	SWP_QP_CLOSED,		/* the stream has ended in order */
	SWP_QP_LOST,		/* the stream has ended in an error */
	SWP_QP_INPUTS
};

/* In the order of execution, see qp_step() */
enum swp_qp_action {
	SWP_DO_DROP	= 1 << 0,	/* drop what is built but not sent */
	SWP_DO_TERMINATE = 1 << 1,	/* send a Terminate, if allowed */
	SWP_DO_FIN	= 1 << 2,	/* FIN once all that is posted is sent */
	SWP_DO_FLUSH	= 1 << 3,	/* complete all requests, in error */
	SWP_DO_REASON	= 1 << 4,	/* raise the event of the fault */
	SWP_DO_FATAL	= 1 << 5,	/* raise the event of a lost stream */
	SWP_DO_SHUT	= 1 << 6,	/* FIN now; the connection is over */
	SWP_DO_SHUT_ONCE = 1 << 7,	/* the same, unless FIN has been sent */
	SWP_DO_LINGER	= 1 << 8,	/* limit the time to the stream's end */
	SWP_DO_LOOK	= 1 << 9,	/* have the transmit engine run */
	SWP_DO_LET_GO	= 1 << 10,	/* release the stream */
};

/* The input changes nothing; if it is ib_modify_qp(), the call fails. */
#define SWP_QP_NO	SWP_QP_STATES

struct swp_qp_next {
	__u8 state;		/* enum swp_qp_state, or SWP_QP_NO */
	__u16 actions;		/* enum swp_qp_action, or-ed together */
};

/* Does it wait for the stream that its consumer has asked for? */
static inline bool swp_qp_waits(enum swp_qp_state state)
{
	return state == SWP_QP_RTR || state == SWP_QP_WAIT;
}

/* No stream yet, and no error */
static inline bool swp_qp_is_idle(enum swp_qp_state state)
{
	return state <= SWP_QP_WAIT;
}

/* The SQ drains before our FIN */
static inline bool swp_qp_closes(enum swp_qp_state state)
{
	return state == SWP_QP_PARTING || state == SWP_QP_CLOSING;
}

/* In full operation */
static inline bool swp_qp_is_up(enum swp_qp_state state)
{
	return state == SWP_QP_RTR_UP || state == SWP_QP_RTS;
}

struct swp_qp_next swp_qp_next(enum swp_qp_state state,
			       enum swp_qp_input input);

#endif /* SWP_PROTO_QP_FSM_H */
