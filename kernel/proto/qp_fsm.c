// SPDX-License-Identifier: GPL-2.0
/*
 * The table of qp_fsm.h.
 */
#include "qp_fsm.h"

#define TO(next, actions)	{ SWP_QP_##next, actions }
#define NO		{ SWP_QP_NO, 0 }

/* Inputs that only a stream brings */
#define WITHOUT_STREAM						\
	[SWP_QP_TO_SQD]		= NO,				\
	[SWP_QP_TO_ERR]		= NO,				\
	[SWP_QP_TO_ERR_IDLE]	= TO(ERROR, SWP_DO_FLUSH),	\
	[SWP_QP_PEER_FIN]	= NO,				\
	[SWP_QP_PEER_LEAVES]	= NO,				\
	[SWP_QP_FAULT]		= NO,				\
	[SWP_QP_SAID]		= NO,				\
	[SWP_QP_TOLD]		= NO,				\
	[SWP_QP_CLOSED]		= NO,				\
	[SWP_QP_LOST]		= NO

/*
 * A stream in full operation.
 * SQD: limit the time: a fenced responder may never be allowed to send, and the
 * peer may never receive what is posted.
 * ERR: what TCP already has still arrives.  If a message is cut short, the peer
 * sees an abortive end, which is correct.
 * A fault: limit the time, since the peer may not receive any more.
 */
#define IN_OPERATION						\
	[SWP_QP_TO_SQD]		= TO(CLOSING, SWP_DO_FIN | SWP_DO_LINGER | \
					      SWP_DO_LOOK),	\
	[SWP_QP_TO_ERR]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_SHUT_ONCE),	\
	[SWP_QP_TO_ERR_IDLE]	= NO,				\
	[SWP_QP_STARTED]	= NO,				\
	[SWP_QP_ALONE]		= NO,				\
	[SWP_QP_PEER_FIN]	= TO(CLOSING, SWP_DO_FIN | SWP_DO_LINGER), \
	[SWP_QP_PEER_LEAVES]	= TO(PARTING, SWP_DO_FIN | SWP_DO_LINGER), \
	[SWP_QP_FAULT]		= TO(TERMINATE, SWP_DO_TERMINATE | \
						SWP_DO_LINGER |	\
						SWP_DO_LOOK),	\
	[SWP_QP_SAID]		= NO,				\
	[SWP_QP_TOLD]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_REASON | SWP_DO_SHUT | \
					    SWP_DO_LINGER),	\
	[SWP_QP_CLOSED]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_LET_GO),	\
	[SWP_QP_LOST]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_FATAL | SWP_DO_LET_GO)

/* A stream whose SQ drains; the step to this state has limited the time */
#define DRAINS							\
	[SWP_QP_TO_ERR]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_SHUT_ONCE),	\
	[SWP_QP_TO_ERR_IDLE]	= NO,				\
	[SWP_QP_STARTED]	= NO,				\
	[SWP_QP_ALONE]		= NO,				\
	[SWP_QP_FAULT]		= TO(TERMINATE, SWP_DO_TERMINATE | \
						SWP_DO_LINGER |	\
						SWP_DO_LOOK),	\
	[SWP_QP_SAID]		= NO,				\
	[SWP_QP_TOLD]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_REASON | SWP_DO_SHUT | \
					    SWP_DO_LINGER),	\
	[SWP_QP_LOST]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH | \
					    SWP_DO_FATAL | SWP_DO_LET_GO)

/* A stream that is useless, or has ended */
#define IS_OVER							\
	[SWP_QP_TO_INIT]	= NO,				\
	[SWP_QP_TO_RTR]		= NO,				\
	[SWP_QP_TO_PAIR]	= NO,				\
	[SWP_QP_TO_RTS]		= NO,				\
	[SWP_QP_TO_SQD]		= NO,				\
	[SWP_QP_STARTED]	= NO,				\
	[SWP_QP_ALONE]		= NO

static const struct swp_qp_next table[SWP_QP_STATES][SWP_QP_INPUTS] = {
	[SWP_QP_RESET] = {
		WITHOUT_STREAM,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= TO(INIT, 0),
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= NO,
		/*
		 * A kernel consumer's QP may still be here: rdma_cm moves it
		 * only when it is connected.
		 */
		[SWP_QP_STARTED]	= TO(RTS, 0),
		[SWP_QP_ALONE]		= NO,
	},
	[SWP_QP_INIT] = {
		WITHOUT_STREAM,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= TO(INIT, 0),
		/* for the connection manager these change nothing */
		[SWP_QP_TO_RTR]		= TO(INIT, 0),
		[SWP_QP_TO_RTS]		= TO(INIT, 0),
		[SWP_QP_TO_PAIR]	= TO(RTR, 0),
		[SWP_QP_STARTED]	= TO(RTS, 0),
		[SWP_QP_ALONE]		= NO,
	},
	[SWP_QP_RTR] = {
		WITHOUT_STREAM,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= TO(WAIT, 0),
		[SWP_QP_STARTED]	= TO(RTR_UP, 0),
		[SWP_QP_ALONE]		= TO(ERROR, SWP_DO_FLUSH),
	},
	[SWP_QP_WAIT] = {
		WITHOUT_STREAM,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= TO(WAIT, 0),
		[SWP_QP_STARTED]	= TO(RTS, 0),
		[SWP_QP_ALONE]		= TO(ERROR, SWP_DO_FLUSH),
	},
	[SWP_QP_LEFT] = {
		WITHOUT_STREAM,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= TO(LEFT, 0),
		[SWP_QP_STARTED]	= NO,
		[SWP_QP_ALONE]		= TO(ERROR, SWP_DO_FLUSH),
	},
	[SWP_QP_RTR_UP] = {
		IN_OPERATION,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= TO(RTS, 0),
	},
	[SWP_QP_RTS] = {
		IN_OPERATION,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= TO(RTS, 0),
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= TO(RTS, 0),
	},
	[SWP_QP_PARTING] = {
		DRAINS,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= TO(PARTING, 0),
		[SWP_QP_TO_SQD]		= TO(CLOSING, 0),
		/* it was seen before */
		[SWP_QP_PEER_FIN]	= TO(PARTING, SWP_DO_FIN),
		[SWP_QP_PEER_LEAVES]	= NO,
		/* posted receives stay: they wait for a peer that has left */
		[SWP_QP_CLOSED]		= TO(LEFT, SWP_DO_DROP | SWP_DO_LET_GO),
	},
	[SWP_QP_CLOSING] = {
		DRAINS,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_INIT]	= NO,
		[SWP_QP_TO_RTR]		= NO,
		[SWP_QP_TO_PAIR]	= NO,
		[SWP_QP_TO_RTS]		= NO,
		[SWP_QP_TO_SQD]		= NO,
		[SWP_QP_PEER_FIN]	= TO(CLOSING, SWP_DO_FIN),
		[SWP_QP_PEER_LEAVES]	= NO,
		[SWP_QP_CLOSED]		= TO(ERROR, SWP_DO_DROP | SWP_DO_FLUSH |
						    SWP_DO_LET_GO),
	},
	[SWP_QP_TERMINATE] = {
		IS_OVER,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		/* TERMINATE leads to ERROR within the linger time anyway */
		[SWP_QP_TO_ERR]		= NO,
		[SWP_QP_TO_ERR_IDLE]	= NO,
		[SWP_QP_PEER_FIN]	= NO,
		[SWP_QP_PEER_LEAVES]	= NO,
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
		IS_OVER,
		[SWP_QP_TO_RESET]	= TO(RESET, 0),
		[SWP_QP_TO_ERR]		= NO,
		/* flush what was posted since the last flush */
		[SWP_QP_TO_ERR_IDLE]	= TO(ERROR, SWP_DO_FLUSH),
		[SWP_QP_PEER_FIN]	= NO,
		[SWP_QP_PEER_LEAVES]	= NO,
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
