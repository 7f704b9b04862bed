/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The states of a queue pair: state x input -> next state and what is to be done.
 * RFC 5040 section 6.2 (its ULP sees the stream by these events) and section 7.1
 * (errors), RFC 5044 section 7.3 (the end of the stream).
 *
 *   RESET <-> INIT -start-> RTS -SQD, FIN-> CLOSING
 *                            |                 |
 *                            `-----+-----------'--- end --------> ERROR
 *                                  `-- fault --> TERMINATE --said----^
 *
 * RTR of the verbs is INIT here: nothing differs until the stream starts.
 * TERMINATE: a fault was found, nothing more is received, at most our own
 * Terminate is still to be sent.
 *
 * Whether a QP may have a stream at all is another matter: life.h.
 */
#ifndef SWP_PROTO_QP_FSM_H
#define SWP_PROTO_QP_FSM_H

#include "base.h"

enum swp_qp_state {
	SWP_QP_RESET,
	SWP_QP_INIT,
	SWP_QP_RTS,
	SWP_QP_CLOSING,		/* SQ drains, then FIN */
	SWP_QP_TERMINATE,
	SWP_QP_ERROR,
	SWP_QP_STATES
};

enum swp_qp_input {
	/* the consumer calls ib_modify_qp() */
	SWP_QP_TO_RESET,
	SWP_QP_TO_INIT,
	SWP_QP_TO_RTS,		/* or RTR: the stream makes it so, not the call */
	SWP_QP_TO_SQD,
	SWP_QP_TO_ERR,		/* with a stream */
	SWP_QP_TO_ERR_IDLE,	/* without */
	/* the stream */
	SWP_QP_STARTED,		/* MPA start-up is over */
	SWP_QP_PEER_FIN,	/* the peer has closed, between messages */
	SWP_QP_FAULT,		/* we have found a fault */
	SWP_QP_SAID,		/* our Terminate is out, or cannot be sent */
	SWP_QP_TOLD,		/* a Terminate came in */
	SWP_QP_CLOSED,		/* the stream is gone, as it should */
	SWP_QP_LOST,		/* the stream is gone, and should not be */
	SWP_QP_INPUTS
};

/* In the order in which they are done */
enum swp_qp_action {
	SWP_DO_DROP	= 1 << 0,	/* what is built and not sent */
	SWP_DO_TERMINATE = 1 << 1,	/* a Terminate is due, if it can be sent */
	SWP_DO_FIN	= 1 << 2,	/* FIN once all that is posted is sent */
	SWP_DO_FLUSH	= 1 << 3,	/* complete all requests, in error */
	SWP_DO_REASON	= 1 << 4,	/* raise the event of the fault */
	SWP_DO_FATAL	= 1 << 5,	/* raise that of a lost stream */
	SWP_DO_SHUT	= 1 << 6,	/* FIN now; the connection is over */
	SWP_DO_SHUT_ONCE = 1 << 7,	/* the same, unless FIN is out */
	SWP_DO_LINGER	= 1 << 8,	/* limit the time that is left */
	SWP_DO_LOOK	= 1 << 9,	/* the transmit engine has to look */
	SWP_DO_LET_GO	= 1 << 10,	/* of the stream */
};

/* The event changes nothing, and ib_modify_qp() fails. */
#define SWP_QP_NO	SWP_QP_STATES

struct swp_qp_next {
	__u8 state;		/* enum swp_qp_state, or SWP_QP_NO */
	__u16 actions;		/* enum swp_qp_action, or-ed together */
};

struct swp_qp_next swp_qp_next(enum swp_qp_state state,
			       enum swp_qp_input input);

#endif /* SWP_PROTO_QP_FSM_H */
