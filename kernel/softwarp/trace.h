/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: /sys/kernel/tracing/events/softwarp.  They show the way of a
 * request, by QP number and wr_id: taken (wqe), sent (tx_batch), received
 * (rx_fpdu), completed (cqe); and why a stream ended (terminate, qp_state).
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM softwarp

#if !defined(SWP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SWP_TRACE_H

#include <linux/tracepoint.h>

#define SWP_SHOW_OPCODE(op) __print_symbolic(op, \
	{ 0x0, "Write" }, { 0x1, "Read Request" }, { 0x2, "Read Response" }, \
	{ 0x3, "Send" }, { 0x4, "Send with Invalidate" }, \
	{ 0x5, "Send with SE" }, { 0x6, "Send with SE and Invalidate" }, \
	{ 0x7, "Terminate" }, { 0x8, "Immediate Data" }, \
	{ 0x9, "Immediate Data with SE" }, { 0xa, "Atomic Request" }, \
	{ 0xb, "Atomic Response" })

#define SWP_SHOW_STATE(state) __print_symbolic(state, \
	{ 0, "reset" }, { 1, "init" }, { 2, "rtr" }, { 3, "wait" }, \
	{ 4, "left" }, { 5, "rtr_up" }, { 6, "rts" }, { 7, "parting" }, \
	{ 8, "closing" }, { 9, "terminate" }, { 10, "error" })

/* The engine has taken a send request; opcode as in softwarp_abi.h */
TRACE_EVENT(swp_wqe,
	TP_PROTO(u32 qpn, u64 wr_id, u8 opcode, u8 flags, u32 len),
	TP_ARGS(qpn, wr_id, opcode, flags, len),
	TP_STRUCT__entry(
		__field(u64, wr_id)
		__field(u32, qpn)
		__field(u32, len)
		__field(u8, opcode)
		__field(u8, flags)
	),
	TP_fast_assign(
		__entry->wr_id = wr_id;
		__entry->qpn = qpn;
		__entry->len = len;
		__entry->opcode = opcode;
		__entry->flags = flags;
	),
	TP_printk("qp %u wr_id 0x%llx opcode %u flags 0x%x %u bytes",
		  __entry->qpn, __entry->wr_id, __entry->opcode,
		  __entry->flags, __entry->len)
);

/* The engine gave TCP a batch of FPDUs; ret: octets taken, or negative errno */
TRACE_EVENT(swp_tx_batch,
	TP_PROTO(u32 qpn, u32 fpdus, u32 bytes, int ret),
	TP_ARGS(qpn, fpdus, bytes, ret),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, fpdus)
		__field(u32, bytes)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->fpdus = fpdus;
		__entry->bytes = bytes;
		__entry->ret = ret;
	),
	TP_printk("qp %u %u FPDUs %u octets ret %d", __entry->qpn,
		  __entry->fpdus, __entry->bytes, __entry->ret)
);

/* MPA has accepted an FPDU; opcode as on the wire */
TRACE_EVENT(swp_rx_fpdu,
	TP_PROTO(u32 qpn, u8 opcode, bool last, u32 payload),
	TP_ARGS(qpn, opcode, last, payload),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, payload)
		__field(u8, opcode)
		__field(bool, last)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->payload = payload;
		__entry->opcode = opcode;
		__entry->last = last;
	),
	TP_printk("qp %u %s%s %u octets", __entry->qpn,
		  SWP_SHOW_OPCODE(__entry->opcode),
		  __entry->last ? " (last)" : "", __entry->payload)
);

/* A completion was appended; opcode as in softwarp_abi.h, enum ib_wc_status */
TRACE_EVENT(swp_cqe,
	TP_PROTO(u32 cq, u32 qpn, u64 wr_id, u8 opcode, u8 status, u32 len,
		 u32 vendor_err),
	TP_ARGS(cq, qpn, wr_id, opcode, status, len, vendor_err),
	TP_STRUCT__entry(
		__field(u64, wr_id)
		__field(u32, cq)
		__field(u32, qpn)
		__field(u32, len)
		__field(u32, vendor_err)
		__field(u8, opcode)
		__field(u8, status)
	),
	TP_fast_assign(
		__entry->wr_id = wr_id;
		__entry->cq = cq;
		__entry->qpn = qpn;
		__entry->len = len;
		__entry->vendor_err = vendor_err;
		__entry->opcode = opcode;
		__entry->status = status;
	),
	TP_printk("cq %u qp %u wr_id 0x%llx opcode %u status %u vendor_err 0x%x %u bytes",
		  __entry->cq, __entry->qpn, __entry->wr_id, __entry->opcode,
		  __entry->status, __entry->vendor_err, __entry->len)
);

/* A Terminate is due, or the peer's has arrived */
TRACE_EVENT(swp_terminate,
	TP_PROTO(u32 qpn, bool from_peer, u8 layer, u8 etype, u8 code),
	TP_ARGS(qpn, from_peer, layer, etype, code),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(bool, from_peer)
		__field(u8, layer)
		__field(u8, etype)
		__field(u8, code)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->from_peer = from_peer;
		__entry->layer = layer;
		__entry->etype = etype;
		__entry->code = code;
	),
	TP_printk("qp %u %s %u/%u/0x%02x", __entry->qpn,
		  __entry->from_peer ? "received" : "due", __entry->layer,
		  __entry->etype, __entry->code)
);

TRACE_EVENT(swp_qp_state,
	TP_PROTO(u32 qpn, u32 state, u32 vendor_err),
	TP_ARGS(qpn, state, vendor_err),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, state)
		__field(u32, vendor_err)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->state = state;
		__entry->vendor_err = vendor_err;
	),
	TP_printk("qp %u %s vendor_err 0x%x", __entry->qpn,
		  SWP_SHOW_STATE(__entry->state), __entry->vendor_err)
);

#endif /* SWP_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
