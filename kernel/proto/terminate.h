/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The faults of a stream and their consequences: one row per fault, in
 * terminate.c.  RFC 5040 section 4.8 with Figure 9, RFC 5041 section 8.2,
 * RFC 5044 section 8, RFC 6581 section 8, RFC 7306 section 8.
 *
 * How a fault is handled; the example is a bad CRC:
 *
 *   rx.c, crc_ok()            finds it: SWP_FAULT_MPA_CRC
 *   swp_rx_mpa_error()        increments counters of the QP
 *   qp.c, swp_qp_fail()       the first fault wins; the QP stops receiving, a
 *                             message half sent is cut short, and a Terminate
 *                             becomes due
 *   tx.c, next_msg()          sends the Terminate: layer, type and code of the
 *                             row, and the headers that the row asks for
 *   stats.c                   counts it under the row's name, at both ends
 *   qp.c, swp_qp_terminated() flushes, raises the row's event here, sends FIN
 *   rx.c, blame()             at the peer: the request gets the row's status
 */
#ifndef SWP_PROTO_TERMINATE_H
#define SWP_PROTO_TERMINATE_H

#include "base.h"

/* Terminate, RFC 5040 section 4.8, Figure 9 */
enum swp_term_layer {
	SWP_LAYER_RDMAP	= 0,
	SWP_LAYER_DDP	= 1,
	SWP_LAYER_LLP	= 2,
};

enum swp_term_etype {
	SWP_RDMAP_ET_LOCAL	= 0,
	SWP_RDMAP_ET_PROT	= 1,
	SWP_RDMAP_ET_OP		= 2,
	SWP_DDP_ET_LOCAL	= 0,
	SWP_DDP_ET_TAGGED	= 1,
	SWP_DDP_ET_UNTAGGED	= 2,
	SWP_LLP_ET_MPA		= 0,
};

enum swp_term_code {
	/* RDMAP remote protection */
	SWP_RP_INVALID_STAG	= 0x00,
	SWP_RP_BOUNDS		= 0x01,
	SWP_RP_ACCESS		= 0x02,
	SWP_RP_NOT_ASSOC	= 0x03,
	SWP_RP_TO_WRAP		= 0x04,
	SWP_RP_CANT_INVALIDATE	= 0x09,
	/* RDMAP remote operation */
	SWP_RO_VERSION		= 0x05,
	SWP_RO_OPCODE		= 0x06,
	SWP_RO_STREAM		= 0x07,
	SWP_RO_ALIGNMENT	= 0x07,	/* of an atomic, RFC 7306 section 8.2 */
	SWP_RO_GLOBAL		= 0x08,	/* local catastrophe of the peer */
	SWP_RO_CANT_INVALIDATE	= 0x09,
	SWP_RO_UNSPECIFIED	= 0xff,
	/* DDP tagged buffer */
	SWP_DT_INVALID_STAG	= 0x00,
	SWP_DT_BOUNDS		= 0x01,
	SWP_DT_NOT_ASSOC	= 0x02,
	SWP_DT_TO_WRAP		= 0x03,
	SWP_DT_VERSION		= 0x04,
	/* DDP untagged buffer */
	SWP_DU_QN		= 0x01,
	SWP_DU_NO_BUFFER	= 0x02,
	SWP_DU_MSN_RANGE	= 0x03,
	SWP_DU_MO		= 0x04,
	SWP_DU_TOO_LONG		= 0x05,
	SWP_DU_VERSION		= 0x06,
	/* MPA */
	SWP_MPA_CLOSED		= 0x01,
	SWP_MPA_CRC		= 0x02,
	SWP_MPA_MARKER		= 0x03,
	/* MPA start-up, RFC 6581 section 8 */
	SWP_MPA_FRAME		= 0x04,
	SWP_MPA_LOCAL		= 0x05,
	SWP_MPA_IRD		= 0x06,
	SWP_MPA_RTR		= 0x07,
};

/* The reason of a Terminate; host values. */
struct swp_term {
	__u8 layer;
	__u8 etype;
	__u8 code;
};

/* Headers of the segment that the Terminate carries, if they are known */
enum swp_fault_headers {
	SWP_HDR_NONE,
	SWP_HDR_DDP,		/* M and D bits */
	SWP_HDR_RREQ,		/* and R, if it is a Read Request */
};

/* The event for the consumer of the end that found the fault */
enum swp_fault_event {
	SWP_EVENT_FATAL,
	SWP_EVENT_ACCESS,
	SWP_EVENT_REQUEST,
};

/* The status of the request, at the peer, that caused the fault */
enum swp_fault_blame {
	SWP_BLAME_OPERATION,
	SWP_BLAME_ACCESS,
	SWP_BLAME_REQUEST,
};

/* All faults, in the order of the counters; the rows are in terminate.c. */
enum swp_fault {
	SWP_FAULT_NONE,
	SWP_FAULT_RDMAP_LOCAL,
	SWP_FAULT_RDMAP_INVALID_STAG,
	SWP_FAULT_RDMAP_BOUNDS,
	SWP_FAULT_RDMAP_ACCESS,
	SWP_FAULT_RDMAP_NOT_ASSOC,
	SWP_FAULT_RDMAP_TO_WRAP,
	SWP_FAULT_RDMAP_CANT_INVALIDATE,
	SWP_FAULT_RDMAP_PROT_OTHER,
	SWP_FAULT_RDMAP_VERSION,
	SWP_FAULT_RDMAP_OPCODE,
	SWP_FAULT_RDMAP_STREAM,
	SWP_FAULT_RDMAP_GLOBAL,
	SWP_FAULT_RDMAP_OP_STAG,
	SWP_FAULT_RDMAP_UNSPECIFIED,
	SWP_FAULT_DDP_LOCAL,
	SWP_FAULT_DDP_INVALID_STAG,
	SWP_FAULT_DDP_BOUNDS,
	SWP_FAULT_DDP_NOT_ASSOC,
	SWP_FAULT_DDP_TO_WRAP,
	SWP_FAULT_DDP_TAGGED_VERSION,
	SWP_FAULT_DDP_QN,
	SWP_FAULT_DDP_NO_BUFFER,
	SWP_FAULT_DDP_MSN,
	SWP_FAULT_DDP_MO,
	SWP_FAULT_DDP_TOO_LONG,
	SWP_FAULT_DDP_UNTAGGED_VERSION,
	SWP_FAULT_MPA_CLOSED,
	SWP_FAULT_MPA_CRC,
	SWP_FAULT_MPA_MARKER,
	SWP_FAULT_MPA_FRAME,
	SWP_FAULT_MPA_LOCAL,
	SWP_FAULT_MPA_IRD,
	SWP_FAULT_MPA_RTR,
	SWP_FAULT_MPA_OTHER,
	SWP_FAULT_UNKNOWN,	/* from a peer, with a code that has no row */
	SWP_FAULT_COUNT
};

/* Layer, type and code of a Terminate for @fault */
struct swp_term swp_fault_term(enum swp_fault fault);
enum swp_fault_headers swp_fault_headers(enum swp_fault fault);
enum swp_fault_event swp_fault_event(enum swp_fault fault);
/* The name of the counter of @fault */
const char *swp_fault_name(enum swp_fault fault);

/* The fault of a Terminate, which may be a peer's; SWP_FAULT_UNKNOWN: no row */
enum swp_fault swp_fault_of(const struct swp_term *t);
/* The status for the request that caused it, by layer and type of @t */
enum swp_fault_blame swp_fault_blame(const struct swp_term *t);

/*
 * The fault when a region does not allow an access of the peer.  @err: -ENOENT
 * no such STag, -EACCES a right is missing, -EPERM it is not for this stream,
 * -ERANGE bounds, -EOVERFLOW the address wraps, -EINVAL misaligned
 *
 * swp_fault_tagged(): DDP checks tagged buffers; it has no code for rights and
 * alignment.  swp_fault_source(): RDMAP checks the data source of a Read and
 * the memory of an atomic.
 */
enum swp_fault swp_fault_tagged(int err);
enum swp_fault swp_fault_source(int err);

#endif /* SWP_PROTO_TERMINATE_H */
