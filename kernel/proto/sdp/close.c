// SPDX-License-Identifier: GPL-2.0
/*
 * The table of close.h.
 */
#include "close.h"

#define TO(next, actions)	{ SDP_##next, actions }
#define NO			{ SDP_STATE_NO, 0 }
/* The connection ends, and the program gets an error. */
#define RESET			TO(CLOSED, SDP_DO_RESET | SDP_DO_FAIL)
#define LOST			TO(CLOSED, SDP_DO_FAIL | SDP_DO_GONE)

static const struct sdp_next table[SDP_STATES][SDP_INPUTS] = {
	[SDP_OPEN] = {
		[SDP_IN_CLOSE]		= TO(CLOSING, 0),
		[SDP_IN_ABORT]		= TO(CLOSED, SDP_DO_RESET),
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= NO,
		[SDP_IN_SAID_FAILED]	= NO,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= TO(PEER_HALF, SDP_DO_EOF),
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= NO,
		[SDP_IN_LLP_DOWN]	= LOST,
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_CLOSING] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= TO(CLOSED, SDP_DO_RESET),
		[SDP_IN_SAID]		= TO(HALF, 0),
		[SDP_IN_SAID_DONE]	= NO,
		[SDP_IN_SAID_FAILED]	= NO,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= TO(PEER_CLOSING, SDP_DO_EOF),
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= NO,
		[SDP_IN_LLP_DOWN]	= LOST,
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_HALF] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= TO(ABORTING, SDP_DO_ABORTCONN),
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= TO(HALF, 0),
		[SDP_IN_SAID_FAILED]	= RESET,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= TO(WAIT, SDP_DO_EOF | SDP_DO_GRACE),
		[SDP_IN_DISCONN_CROSSED] = TO(FINISH, SDP_DO_EOF | SDP_DO_FIN),
		[SDP_IN_ABORTCONN]	= NO,
		/* abortive without the peer's DisConn, section 8.2.1 (4) */
		[SDP_IN_LLP_DOWN]	= LOST,
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_PEER_HALF] = {
		[SDP_IN_CLOSE]		= TO(PEER_CLOSING, 0),
		[SDP_IN_ABORT]		= TO(CLOSED, SDP_DO_RESET),
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= NO,
		[SDP_IN_SAID_FAILED]	= NO,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= NO,
		[SDP_IN_DISCONN_CROSSED] = NO,
		/* both the sender and the receiver of AbortConn close TCP */
		[SDP_IN_ABORTCONN]	= TO(CLOSED, SDP_DO_FIN | SDP_DO_FAIL),
		/* no error: all that the peer has sent is here */
		[SDP_IN_LLP_DOWN]	= TO(CLOSED, SDP_DO_GONE),
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_PEER_CLOSING] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= TO(CLOSED, SDP_DO_RESET),
		[SDP_IN_SAID]		= TO(LAST, 0),
		[SDP_IN_SAID_DONE]	= NO,
		[SDP_IN_SAID_FAILED]	= NO,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= NO,
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= TO(CLOSED, SDP_DO_FIN | SDP_DO_FAIL),
		/* octets accepted from the program have not all arrived */
		[SDP_IN_LLP_DOWN]	= LOST,
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_LAST] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= TO(ABORTING, SDP_DO_ABORTCONN),
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= TO(FINISH, SDP_DO_FIN),
		[SDP_IN_SAID_FAILED]	= RESET,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= NO,
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= TO(CLOSED, SDP_DO_FIN | SDP_DO_FAIL),
		/* our DisConn has not completed, so it may not have arrived */
		[SDP_IN_LLP_DOWN]	= LOST,
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_WAIT] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= TO(ABORTING, SDP_DO_ABORTCONN),
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= TO(WAIT, 0),
		[SDP_IN_SAID_FAILED]	= RESET,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= NO,
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= TO(CLOSED, SDP_DO_FIN | SDP_DO_FAIL),
		[SDP_IN_LLP_DOWN]	= TO(CLOSED, 0),
		[SDP_IN_GRACE]		= TO(FINISH, SDP_DO_FIN),
	},
	[SDP_FINISH] = {
		[SDP_IN_CLOSE]		= NO,
		/* no message can be sent any more */
		[SDP_IN_ABORT]		= TO(CLOSED, SDP_DO_RESET),
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= TO(FINISH, 0),
		[SDP_IN_SAID_FAILED]	= RESET,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= NO,
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= TO(CLOSED, SDP_DO_FAIL),
		[SDP_IN_LLP_DOWN]	= TO(CLOSED, 0),
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_ABORTING] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= NO,
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= TO(ABORTING, 0),
		[SDP_IN_SAID_FAILED]	= TO(CLOSED, SDP_DO_RESET),
		/* TCP closes as usual, so that AbortConn arrives */
		[SDP_IN_ABORT_DONE]	= TO(CLOSED, SDP_DO_FIN),
		/* ignore whatever else comes */
		[SDP_IN_DISCONN]	= TO(ABORTING, 0),
		[SDP_IN_DISCONN_CROSSED] = TO(ABORTING, 0),
		[SDP_IN_ABORTCONN]	= TO(ABORTING, 0),
		[SDP_IN_LLP_DOWN]	= TO(CLOSED, SDP_DO_GONE),
		[SDP_IN_GRACE]		= NO,
	},
	[SDP_CLOSED] = {
		[SDP_IN_CLOSE]		= NO,
		[SDP_IN_ABORT]		= NO,
		[SDP_IN_SAID]		= NO,
		[SDP_IN_SAID_DONE]	= NO,
		[SDP_IN_SAID_FAILED]	= NO,
		[SDP_IN_ABORT_DONE]	= NO,
		[SDP_IN_DISCONN]	= NO,
		[SDP_IN_DISCONN_CROSSED] = NO,
		[SDP_IN_ABORTCONN]	= NO,
		[SDP_IN_LLP_DOWN]	= NO,
		[SDP_IN_GRACE]		= NO,
	},
};

struct sdp_next sdp_close_next(enum sdp_state state, enum sdp_input input)
{
	return table[state][input];
}
