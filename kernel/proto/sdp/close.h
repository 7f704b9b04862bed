/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a connection ends: state x input -> next state and actions.
 * draft-pinkerton-iwarp-sdp-01 section 8.2.
 *
 *            close             DisConn out         DisConn in
 *   OPEN -----------> CLOSING -----------> HALF ----------------> WAIT --.
 *    |                   |                                   grace |     |
 *    | DisConn in        | DisConn in                              v     | TCP
 *    v        close      v           DisConn out         sent   FINISH --+-->
 *             CLOSED
 *   PEER_HALF -----> PEER_CLOSING -----------> LAST ---------------^
 *
 * The end that sends the second DisConn closes TCP once that message has
 * completed.  If the two DisConns have crossed, the connecting peer closes TCP
 * at once.  An abort resets TCP until our DisConn is sent; after that we send
 * AbortConn.
 */
#ifndef SDP_PROTO_CLOSE_H
#define SDP_PROTO_CLOSE_H

#include "../base.h"

enum sdp_state {
	SDP_OPEN,
	SDP_CLOSING,		/* the program is done; queued octets go out */
	SDP_HALF,		/* our DisConn is sent */
	SDP_PEER_HALF,		/* the peer's DisConn has arrived */
	SDP_PEER_CLOSING,	/* the same, and the program is done, too */
	SDP_LAST,		/* both; ours, the second, has not completed */
	SDP_WAIT,		/* both; wait for the peer to close TCP */
	SDP_FINISH,		/* both; we have closed TCP */
	SDP_ABORTING,		/* AbortConn is due or has not completed */
	SDP_CLOSED,
	SDP_STATES
};

enum sdp_input {
	SDP_IN_CLOSE,		/* the program sends nothing more */
	SDP_IN_ABORT,		/* the program or a fault ends it now */
	SDP_IN_SAID,		/* our DisConn is given to the device */
	SDP_IN_SAID_DONE,	/* the Send of our DisConn has completed */
	SDP_IN_SAID_FAILED,
	SDP_IN_ABORT_DONE,	/* that of AbortConn has completed or failed */
	SDP_IN_DISCONN,		/* the peer's DisConn */
	SDP_IN_DISCONN_CROSSED,	/* the same, crossed; we are the connector */
	SDP_IN_ABORTCONN,	/* the peer's AbortConn */
	SDP_IN_LLP_DOWN,	/* TCP has ended, for whatever reason */
	SDP_IN_GRACE,		/* the peer has had its time to close TCP */
	SDP_INPUTS
};

enum sdp_close_action {
	SDP_DO_EOF	= 1 << 0,	/* the peer sends no more octets */
	SDP_DO_GRACE	= 1 << 1,	/* start the timer for SDP_IN_GRACE */
	SDP_DO_ABORTCONN = 1 << 2,	/* send it; without credit: SDP_DO_RESET */
	SDP_DO_FIN	= 1 << 3,	/* close TCP */
	SDP_DO_RESET	= 1 << 4,	/* reset TCP */
	SDP_DO_FAIL	= 1 << 5,	/* the program gets an error */
	SDP_DO_GONE	= 1 << 6,	/* what we send no longer arrives */
};

/* The input changes nothing; if it is the peer's message, it is a violation. */
#define SDP_STATE_NO	SDP_STATES

struct sdp_next {
	__u8 state;		/* enum sdp_state, or SDP_STATE_NO */
	__u8 actions;		/* enum sdp_close_action, or-ed together */
};

struct sdp_next sdp_close_next(enum sdp_state state, enum sdp_input input);

#endif /* SDP_PROTO_CLOSE_H */
