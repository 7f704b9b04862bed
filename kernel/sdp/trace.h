/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: /sys/kernel/tracing/events/sdp.  Each has both addresses of its
 * connection, so that its lines can be found among others.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sdp

#if !defined(SDP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SDP_TRACE_H

#include <linux/tracepoint.h>

#include "link.h"

/* sdp_link_state() */
#define SDP_SHOW_STATE(state) __print_symbolic(state, \
	{ 2, "tcp" }, { 3, "hello" }, { 4, "mpa" }, { 5, "hello-ack" }, \
	{ 6, "open" }, { 7, "closing" }, { 8, "half" }, { 9, "peer-half" }, \
	{ 10, "peer-closing" }, { 11, "last" }, { 12, "wait" }, \
	{ 13, "finish" }, { 14, "aborting" }, { 15, "closed" }, { 16, "down" }, \
	{ 17, "moving" })

/* enum sdp_mid */
#define SDP_SHOW_MID(mid) __print_symbolic(mid, \
	{ 0x00, "Hello" }, { 0x01, "HelloAck" }, { 0x02, "DisConn" }, \
	{ 0x03, "AbortConn" }, { 0x04, "SendSm" }, { 0x05, "RdmaWrCompl" }, \
	{ 0x06, "RdmaRdCompl" }, { 0x07, "ModeChange" }, \
	{ 0x08, "SrcAvailCancel" }, { 0x09, "SinkAvailCancel" }, \
	{ 0x0a, "SinkCancelAck" }, { 0x0b, "ChRcvBuf" }, \
	{ 0x0c, "ChRcvBufAck" }, { 0x0d, "SuspComm" }, \
	{ 0x0e, "SuspCommAck" }, { 0xfd, "SinkAvail" }, \
	{ 0xfe, "SrcAvail" }, { 0xff, "Data" })

/* enum sdp_step */
#define SDP_SHOW_STEP(step) __print_symbolic(step, \
	{ 0, "TCP connected" }, { 1, "Hello sent" }, { 2, "Hello taken" }, \
	{ 3, "device" }, { 4, "MPA begins" }, { 5, "MPA done" }, \
	{ 6, "HelloAck sent" }, { 7, "HelloAck taken" }, { 8, "timeout" })

/* enum sdp_fault */
#define SDP_SHOW_FAULT(fault) __print_symbolic(fault, \
	{ 1, "malformed" }, { 2, "mseq" }, { 3, "ack" }, { 4, "overrun" }, \
	{ 5, "size" }, { 6, "unexpected" }, { 7, "mode" }, { 8, "adverts" }, \
	{ 9, "payload" }, { 10, "unfinished" }, { 11, "resize" }, \
	{ 12, "invalidate" })

#define SDP_ENDS \
	__array(u8, local, sizeof(union sdp_end)) \
	__array(u8, remote, sizeof(union sdp_end))
#define SDP_ASSIGN_ENDS(link) do { \
	memcpy(__entry->local, &(link)->seen.local, sizeof(union sdp_end)); \
	memcpy(__entry->remote, &(link)->seen.remote, sizeof(union sdp_end)); \
} while (0)

/* A change of state, during set-up or later */
TRACE_EVENT(sdp_state,
	TP_PROTO(const struct sdp_link *link, u8 from, u8 to),
	TP_ARGS(link, from, to),
	TP_STRUCT__entry(
		SDP_ENDS
		__field(u8, from)
		__field(u8, to)
	),
	TP_fast_assign(
		SDP_ASSIGN_ENDS(link);
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("%pISpc %pISpc %s -> %s", __entry->local, __entry->remote,
		  SDP_SHOW_STATE(__entry->from), SDP_SHOW_STATE(__entry->to))
);

/* A step of a set-up; ret: 0, or negative errno, which ends it */
TRACE_EVENT(sdp_setup,
	TP_PROTO(const struct sdp_link *link, u8 step, int ret),
	TP_ARGS(link, step, ret),
	TP_STRUCT__entry(
		SDP_ENDS
		__field(int, ret)
		__field(u8, step)
		__field(bool, connector)
	),
	TP_fast_assign(
		SDP_ASSIGN_ENDS(link);
		__entry->ret = ret;
		__entry->step = step;
		__entry->connector = link->connector;
	),
	TP_printk("%pISpc %pISpc %s: %s ret %d", __entry->local,
		  __entry->remote,
		  __entry->connector ? "connector" : "acceptor",
		  SDP_SHOW_STEP(__entry->step), __entry->ret)
);

DECLARE_EVENT_CLASS(sdp_message,
	TP_PROTO(const struct sdp_link *link, const struct sdp_msg *msg),
	TP_ARGS(link, msg),
	TP_STRUCT__entry(
		SDP_ENDS
		__field(u32, mseq)
		__field(u32, mseq_ack)
		__field(u32, payload)
		__field(u16, bufs)
		__field(u8, mid)
		__field(u8, flags)
	),
	TP_fast_assign(
		SDP_ASSIGN_ENDS(link);
		__entry->mseq = msg->mseq;
		__entry->mseq_ack = msg->mseq_ack;
		__entry->payload = msg->payload;
		__entry->bufs = msg->bufs;
		__entry->mid = msg->mid;
		__entry->flags = msg->flags;
	),
	TP_printk("%pISpc %pISpc %s flags 0x%02x bufs %u mseq %u mseq_ack %u %u octets",
		  __entry->local, __entry->remote, SDP_SHOW_MID(__entry->mid),
		  __entry->flags, __entry->bufs, __entry->mseq,
		  __entry->mseq_ack, __entry->payload)
);

/* A valid message was received; a fault in its use is traced after it. */
DEFINE_EVENT(sdp_message, sdp_message_received,
	TP_PROTO(const struct sdp_link *link, const struct sdp_msg *msg),
	TP_ARGS(link, msg));

/* A message, HelloAck included, is posted to the device. */
DEFINE_EVENT(sdp_message, sdp_message_sent,
	TP_PROTO(const struct sdp_link *link, const struct sdp_msg *msg),
	TP_ARGS(link, msg));

/* Octets wait for credit; probe: for so long that the peer is asked next */
TRACE_EVENT(sdp_credit,
	TP_PROTO(const struct sdp_link *link, bool probe),
	TP_ARGS(link, probe),
	TP_STRUCT__entry(
		SDP_ENDS
		__field(u64, own)
		__field(u64, peer)
		__field(u64, queued)
		__field(bool, probe)
	),
	TP_fast_assign(
		SDP_ASSIGN_ENDS(link);
		__entry->own = link->conn.credits.posted -
			       link->conn.credits.received;
		__entry->peer = sdp_credits_left(&link->conn.credits);
		__entry->queued = link->queue_octets;
		__entry->probe = probe;
	),
	TP_printk("%pISpc %pISpc %s: own %llu peer %llu, %llu octets wait",
		  __entry->local, __entry->remote,
		  __entry->probe ? "probe" : "starved", __entry->own,
		  __entry->peer, __entry->queued)
);

/* ChRcvBuf and ChRcvBufAck, of either end; own, peer: after it was processed */
TRACE_EVENT(sdp_resize,
	TP_PROTO(const struct sdp_link *link, bool ours,
		 const struct sdp_msg *msg),
	TP_ARGS(link, ours, msg),
	TP_STRUCT__entry(
		SDP_ENDS
		__field(u32, size)
		__field(u32, own)
		__field(u32, peer)
		__field(u8, mid)
		__field(bool, ours)
	),
	TP_fast_assign(
		SDP_ASSIGN_ENDS(link);
		__entry->size = msg->size;
		__entry->own = link->conn.resize.own;
		__entry->peer = link->conn.resize.peer;
		__entry->mid = msg->mid;
		__entry->ours = ours;
	),
	TP_printk("%pISpc %pISpc %s %s size %u: own %u peer %u",
		  __entry->local, __entry->remote,
		  __entry->ours ? "sent" : "received",
		  SDP_SHOW_MID(__entry->mid), __entry->size, __entry->own,
		  __entry->peer)
);

/* The peer has violated the protocol, enum sdp_fault */
TRACE_EVENT(sdp_fault,
	TP_PROTO(const struct sdp_link *link, u8 fault),
	TP_ARGS(link, fault),
	TP_STRUCT__entry(
		SDP_ENDS
		__field(u8, fault)
	),
	TP_fast_assign(
		SDP_ASSIGN_ENDS(link);
		__entry->fault = fault;
	),
	TP_printk("%pISpc %pISpc %s", __entry->local, __entry->remote,
		  SDP_SHOW_FAULT(__entry->fault))
);

#endif /* SDP_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
