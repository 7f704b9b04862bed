// SPDX-License-Identifier: GPL-2.0
/*
 * The table of qp_fsm.h.
 */
#include "qp_fsm.h"

#define TO(next, actions)	{ SWP_QP_##next, actions }
#define NO		{ SWP_QP_NO, 0 }

static const struct swp_qp_next table[SWP_QP_STATES][SWP_QP_INPUTS] = {
	[SWP_QP_RESET] = {
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= TO(INIT, 0),
		[SWP_QP_TO_RTS]		= NO,
		[SWP_QP_TO_SQD]		= NO,
		[SWP_QP_TO_ERR]		= NO,
		[SWP_QP_TO_ERR_IDLE]	= TO(ERROR, SWP_DO_FLUSH),
		/*
		 * A kernel consumer's QP may still be here: rdma_cm moves it
		 * only when it is connected.
		 */
		[SWP_QP_STARTED]	= TO(RTS, 0),
		[SWP_QP_PEER_FIN]	= NO,
		[SWP_QP_FAULT]		= NO,
		[SWP_QP_SAID]		= NO,
		[SWP_QP_TOLD]		= NO,
		[SWP_QP_CLOSED]		= NO,
		[SWP_QP_LOST]		= NO,
	},
	[SWP_QP_INIT] = {
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= TO(INIT, 0),
		[SWP_QP_TO_RTS]		= TO(INIT, 0),
		[SWP_QP_TO_SQD]		= NO,
		[SWP_QP_TO_ERR]		= NO,
		[SWP_QP_TO_ERR_IDLE]	= TO(ERROR, SWP_DO_FLUSH),
		[SWP_QP_STARTED]	= TO(RTS, 0),
		[SWP_QP_PEER_FIN]	= NO,
		[SWP_QP_FAULT]		= NO,
		[SWP_QP_SAID]		= NO,
		[SWP_QP_TOLD]		= NO,
		[SWP_QP_CLOSED]		= NO,
		[SWP_QP_LOST]		= NO,
	},
	[SWP_QP_RTS] = {
		[SWP_QP_TO_RESET]	= NO,
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTS]		= TO(RTS, 0),
		/*
		 * Limit the time: a fenced responder may never be allowed to
		 * send, and the peer may never receive what is posted.
		 */
		[SWP_QP_TO_SQD]		= TO(CLOSING, SWP_DO_FIN | SWP_DO_LINGER |
						      SWP_DO_LOOK),
		/*
		 * What TCP already has still arrives.  If a message is cut
		 * short, the peer sees an abortive end, which is correct.
		 */
		[SWP_QP_TO_ERR]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_SHUT_ONCE),
		[SWP_QP_TO_ERR_IDLE]	= NO,
		[SWP_QP_STARTED]	= NO,
		[SWP_QP_PEER_FIN]	= TO(CLOSING, SWP_DO_FIN | SWP_DO_LINGER),
		/* limit the time: the peer may not receive any more */
		[SWP_QP_FAULT]		= TO(TERMINATE, SWP_DO_TERMINATE |
							SWP_DO_LINGER |
							SWP_DO_LOOK),
		[SWP_QP_SAID]		= NO,
		[SWP_QP_TOLD]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_REASON | SWP_DO_SHUT |
						    SWP_DO_LINGER),
		[SWP_QP_CLOSED]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_LET_GO),
		[SWP_QP_LOST]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_FATAL | SWP_DO_LET_GO),
	},
	[SWP_QP_CLOSING] = {
		[SWP_QP_TO_RESET]	= NO,
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTS]		= NO,
		[SWP_QP_TO_SQD]		= NO,
		[SWP_QP_TO_ERR]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_SHUT_ONCE),
		[SWP_QP_TO_ERR_IDLE]	= NO,
		[SWP_QP_STARTED]	= NO,
		/* the step to CLOSING has already limited the time */
		[SWP_QP_PEER_FIN]	= TO(CLOSING, SWP_DO_FIN),
		[SWP_QP_FAULT]		= TO(TERMINATE, SWP_DO_TERMINATE |
							SWP_DO_LINGER |
							SWP_DO_LOOK),
		[SWP_QP_SAID]		= NO,
		[SWP_QP_TOLD]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_REASON | SWP_DO_SHUT |
						    SWP_DO_LINGER),
		[SWP_QP_CLOSED]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_LET_GO),
		[SWP_QP_LOST]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_FATAL | SWP_DO_LET_GO),
	},
	[SWP_QP_TERMINATE] = {
		[SWP_QP_TO_RESET]	= NO,
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTS]		= NO,
		[SWP_QP_TO_SQD]		= NO,
		/* TERMINATE leads to ERROR within the linger time anyway */
		[SWP_QP_TO_ERR]		= NO,
		[SWP_QP_TO_ERR_IDLE]	= NO,
		[SWP_QP_STARTED]	= NO,
		[SWP_QP_PEER_FIN]	= NO,
		/* the first fault counts */
		[SWP_QP_FAULT]		= NO,
		[SWP_QP_SAID]		= TO(ERROR, SWP_DO_FLUSH | SWP_DO_REASON |
						    SWP_DO_SHUT),
		[SWP_QP_TOLD]		= NO,
		[SWP_QP_CLOSED]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_REASON | SWP_DO_LET_GO),
		[SWP_QP_LOST]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_REASON | SWP_DO_LET_GO),
	},
	[SWP_QP_ERROR] = {
		[SWP_QP_TO_RESET]	= NO,
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTS]		= NO,
		[SWP_QP_TO_SQD]		= NO,
		[SWP_QP_TO_ERR]		= NO,
		/* flush what was posted since the last flush */
		[SWP_QP_TO_ERR_IDLE]	= TO(ERROR, SWP_DO_FLUSH),
		[SWP_QP_STARTED]	= NO,
		[SWP_QP_PEER_FIN]	= NO,
		[SWP_QP_FAULT]		= NO,
		[SWP_QP_SAID]		= NO,
		[SWP_QP_TOLD]		= NO,
		[SWP_QP_CLOSED]		= TO(ERROR, SWP_DO_DROP | SWP_DO_LET_GO),
		[SWP_QP_LOST]		= TO(ERROR, SWP_DO_DROP | SWP_DO_LET_GO),
	},
};

struct swp_qp_next swp_qp_next(enum swp_qp_state state,
			       enum swp_qp_input input)
{
	return table[state][input];
}
