/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a connection ends: state x input -> next state and what is to be done.
 * draft-pinkerton-iwarp-sdp-01 section 8.2.
 *
 *            close             DisConn out         DisConn in
 *   OPEN -----------> CLOSING -----------> HALF ----------------> WAIT --.
 *    |                   |                                   grace |     |
 *    | DisConn in        | DisConn in                              v     | TCP
 *    v        close      v           DisConn out         sent   FINISH --+--> CLOSED
 *   PEER_HALF -----> PEER_CLOSING -----------> LAST ---------------^
 *
 * Who sends the second DisConn closes TCP, when that message is out.  Where both
 * have crossed, the connecting peer does, at once.  An abort is TCP's affair as
 * long as our DisConn is not out, and AbortConn says it from then on.
 */
#ifndef SDP_PROTO_CLOSE_H
#define SDP_PROTO_CLOSE_H

#include "../base.h"

enum sdp_state {
	SDP_OPEN,
	SDP_CLOSING,		/* the program is done; what it has sent goes out */
	SDP_HALF,		/* our DisConn is out */
	SDP_PEER_HALF,		/* the peer's is in */
	SDP_PEER_CLOSING,	/* and the program is done, too */
	SDP_LAST,		/* both; ours came second and is to be completed */
	SDP_WAIT,		/* both; the peer closes TCP */
	SDP_FINISH,		/* we have closed it */
	SDP_ABORTING,		/* AbortConn is out and to be completed */
	SDP_CLOSED,
	SDP_STATES
};

enum sdp_input {
	SDP_IN_CLOSE,		/* the program sends nothing more */
	SDP_IN_ABORT,		/* the program or a fault: end it now */
	SDP_IN_SAID,		/* DisConn is given to the device */
	SDP_IN_SAID_DONE,	/* its Send has completed */
	SDP_IN_SAID_FAILED,
	SDP_IN_ABORT_DONE,	/* that of AbortConn has, well or not */
	SDP_IN_DISCONN,		/* the peer's */
	SDP_IN_DISCONN_CROSSED,	/* it had not seen ours, and we are the connector */
	SDP_IN_ABORTCONN,	/* the peer's */
	SDP_IN_LLP_DOWN,	/* TCP has ended, for whatever reason */
	SDP_IN_GRACE,		/* the peer has had its time to close TCP */
	SDP_INPUTS
};

enum sdp_close_action {
	SDP_DO_EOF	= 1 << 0,	/* the program has all there is */
	SDP_DO_GRACE	= 1 << 1,	/* start the time for SDP_IN_GRACE */
	SDP_DO_ABORTCONN = 1 << 2,	/* send it; without credit: SDP_DO_RESET */
	SDP_DO_FIN	= 1 << 3,	/* close TCP */
	SDP_DO_RESET	= 1 << 4,	/* end TCP at once */
	SDP_DO_FAIL	= 1 << 5,	/* the program gets an error */
	SDP_DO_GONE	= 1 << 6,	/* nothing of ours arrives any more */
};

/* The input changes nothing here; a message of the peer's is a violation. */
#define SDP_STATE_NO	SDP_STATES

struct sdp_next {
	__u8 state;		/* enum sdp_state, or SDP_STATE_NO */
	__u8 actions;		/* enum sdp_close_action, or-ed together */
};

struct sdp_next sdp_close_next(enum sdp_state state, enum sdp_input input);

#endif /* SDP_PROTO_CLOSE_H */
