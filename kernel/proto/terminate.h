/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be wrong with a stream, and everything that follows from it: one row
 * per fault.  RFC 5040 section 4.8 with Figure 9, RFC 5041 section 8.2, RFC 5044
 * section 8, RFC 6581 section 9.2, RFC 7306 section 8.
 *
 * The way of a fault, with a bad CRC for an example:
 *
 *   rx.c, crc_ok()            finds it: SWP_FAULT_MPA_CRC
 *   mpa_error(), reject()     counters of the QP
 *   qp.c, swp_qp_fail()       first fault wins; the QP stops receiving, what is
 *                             half sent is cut short, a Terminate is due
 *   tx.c, next_msg()          sends it: layer, type, code of the row, and those
 *                             headers of the segment that the row has
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
	/* and of its start-up, RFC 6581 section 9.2 */
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

/* Headers of the segment that go into the Terminate, where they are known */
enum swp_fault_headers {
	SWP_HDR_NONE,
	SWP_HDR_DDP,		/* M and D bits */
	SWP_HDR_RREQ,		/* and R, if it is a Read Request */
};

/* What the consumer at the end that found it is told */
enum swp_fault_event {
	SWP_EVENT_FATAL,
	SWP_EVENT_ACCESS,
	SWP_EVENT_REQUEST,
};

/* What becomes of the peer's request that is to blame */
enum swp_fault_blame {
	SWP_BLAME_OPERATION,
	SWP_BLAME_ACCESS,
	SWP_BLAME_REQUEST,
};

/*
 * ROW(fault, layer, type, code, headers, event, blame, name): faults of one
 * layer and type have the same event and blame.  In the order of the counters;
 * names are those of counters, without "terminate_for_".
 */
#define SWP_FAULTS(ROW) \
	/* RDMAP: local catastrophe */ \
	ROW(RDMAP_LOCAL, RDMAP, RDMAP_ET_LOCAL, 0x00, \
	    NONE, FATAL, OPERATION, "rdmap_local") \
	/* RDMAP: remote protection */ \
	ROW(RDMAP_INVALID_STAG, RDMAP, RDMAP_ET_PROT, SWP_RP_INVALID_STAG, \
	    RREQ, ACCESS, ACCESS, "rdmap_invalid_stag") \
	ROW(RDMAP_BOUNDS, RDMAP, RDMAP_ET_PROT, SWP_RP_BOUNDS, \
	    RREQ, ACCESS, ACCESS, "rdmap_bounds") \
	ROW(RDMAP_ACCESS, RDMAP, RDMAP_ET_PROT, SWP_RP_ACCESS, \
	    RREQ, ACCESS, ACCESS, "rdmap_access") \
	ROW(RDMAP_NOT_ASSOC, RDMAP, RDMAP_ET_PROT, SWP_RP_NOT_ASSOC, \
	    RREQ, ACCESS, ACCESS, "rdmap_stag_not_associated") \
	ROW(RDMAP_TO_WRAP, RDMAP, RDMAP_ET_PROT, SWP_RP_TO_WRAP, \
	    RREQ, ACCESS, ACCESS, "rdmap_to_wrap") \
	ROW(RDMAP_CANT_INVALIDATE, RDMAP, RDMAP_ET_PROT, \
	    SWP_RP_CANT_INVALIDATE, \
	    RREQ, ACCESS, ACCESS, "rdmap_stag_not_invalidated") \
	ROW(RDMAP_PROT_OTHER, RDMAP, RDMAP_ET_PROT, SWP_RO_UNSPECIFIED, \
	    RREQ, ACCESS, ACCESS, "rdmap_protection_other") \
	/* RDMAP: remote operation */ \
	ROW(RDMAP_VERSION, RDMAP, RDMAP_ET_OP, SWP_RO_VERSION, \
	    DDP, REQUEST, OPERATION, "rdmap_version") \
	ROW(RDMAP_OPCODE, RDMAP, RDMAP_ET_OP, SWP_RO_OPCODE, \
	    DDP, REQUEST, OPERATION, "rdmap_opcode") \
	/* RFC 7306 has the same number for an atomic's misaligned memory */ \
	ROW(RDMAP_STREAM, RDMAP, RDMAP_ET_OP, SWP_RO_STREAM, \
	    DDP, REQUEST, OPERATION, "rdmap_stream") \
	ROW(RDMAP_GLOBAL, RDMAP, RDMAP_ET_OP, SWP_RO_GLOBAL, \
	    DDP, REQUEST, OPERATION, "rdmap_global") \
	ROW(RDMAP_OP_STAG, RDMAP, RDMAP_ET_OP, SWP_RO_CANT_INVALIDATE, \
	    DDP, REQUEST, OPERATION, "rdmap_operation_stag") \
	ROW(RDMAP_UNSPECIFIED, RDMAP, RDMAP_ET_OP, SWP_RO_UNSPECIFIED, \
	    DDP, REQUEST, OPERATION, "rdmap_operation_other") \
	/* DDP: local catastrophe */ \
	ROW(DDP_LOCAL, DDP, DDP_ET_LOCAL, 0x00, \
	    NONE, FATAL, OPERATION, "ddp_local") \
	/* DDP: tagged buffer */ \
	ROW(DDP_INVALID_STAG, DDP, DDP_ET_TAGGED, SWP_DT_INVALID_STAG, \
	    DDP, ACCESS, ACCESS, "ddp_invalid_stag") \
	ROW(DDP_BOUNDS, DDP, DDP_ET_TAGGED, SWP_DT_BOUNDS, \
	    DDP, ACCESS, ACCESS, "ddp_bounds") \
	ROW(DDP_NOT_ASSOC, DDP, DDP_ET_TAGGED, SWP_DT_NOT_ASSOC, \
	    DDP, ACCESS, ACCESS, "ddp_stag_not_associated") \
	ROW(DDP_TO_WRAP, DDP, DDP_ET_TAGGED, SWP_DT_TO_WRAP, \
	    DDP, ACCESS, ACCESS, "ddp_to_wrap") \
	ROW(DDP_TAGGED_VERSION, DDP, DDP_ET_TAGGED, SWP_DT_VERSION, \
	    DDP, ACCESS, ACCESS, "ddp_tagged_version") \
	/* DDP: untagged buffer */ \
	ROW(DDP_QN, DDP, DDP_ET_UNTAGGED, SWP_DU_QN, \
	    DDP, REQUEST, REQUEST, "ddp_qn") \
	ROW(DDP_NO_BUFFER, DDP, DDP_ET_UNTAGGED, SWP_DU_NO_BUFFER, \
	    DDP, REQUEST, REQUEST, "ddp_no_buffer") \
	ROW(DDP_MSN, DDP, DDP_ET_UNTAGGED, SWP_DU_MSN_RANGE, \
	    DDP, REQUEST, REQUEST, "ddp_msn") \
	ROW(DDP_MO, DDP, DDP_ET_UNTAGGED, SWP_DU_MO, \
	    DDP, REQUEST, REQUEST, "ddp_mo") \
	ROW(DDP_TOO_LONG, DDP, DDP_ET_UNTAGGED, SWP_DU_TOO_LONG, \
	    DDP, REQUEST, REQUEST, "ddp_too_long") \
	ROW(DDP_UNTAGGED_VERSION, DDP, DDP_ET_UNTAGGED, SWP_DU_VERSION, \
	    DDP, REQUEST, REQUEST, "ddp_untagged_version") \
	/* MPA */ \
	ROW(MPA_CLOSED, LLP, LLP_ET_MPA, SWP_MPA_CLOSED, \
	    NONE, FATAL, OPERATION, "mpa_closed") \
	ROW(MPA_CRC, LLP, LLP_ET_MPA, SWP_MPA_CRC, \
	    NONE, FATAL, OPERATION, "mpa_crc") \
	ROW(MPA_MARKER, LLP, LLP_ET_MPA, SWP_MPA_MARKER, \
	    NONE, FATAL, OPERATION, "mpa_marker") \
	ROW(MPA_FRAME, LLP, LLP_ET_MPA, SWP_MPA_FRAME, \
	    NONE, FATAL, OPERATION, "mpa_frame") \
	ROW(MPA_LOCAL, LLP, LLP_ET_MPA, SWP_MPA_LOCAL, \
	    NONE, FATAL, OPERATION, "mpa_local") \
	ROW(MPA_IRD, LLP, LLP_ET_MPA, SWP_MPA_IRD, \
	    NONE, FATAL, OPERATION, "mpa_ird") \
	ROW(MPA_RTR, LLP, LLP_ET_MPA, SWP_MPA_RTR, \
	    NONE, FATAL, OPERATION, "mpa_rtr") \
	ROW(MPA_OTHER, LLP, LLP_ET_MPA, 0xff, \
	    NONE, FATAL, OPERATION, "mpa_other")

enum swp_fault {
	SWP_FAULT_NONE,
#define SWP_FAULT_ENUM(id, ...) SWP_FAULT_##id,
	SWP_FAULTS(SWP_FAULT_ENUM)
#undef SWP_FAULT_ENUM
	SWP_FAULT_UNKNOWN,	/* a peer's that has no row */
	SWP_FAULT_COUNT
};

/* What a Terminate for it says */
struct swp_term swp_fault_term(enum swp_fault fault);
enum swp_fault_headers swp_fault_headers(enum swp_fault fault);
enum swp_fault_event swp_fault_event(enum swp_fault fault);

/* The row of a Terminate, which may be a peer's; SWP_FAULT_UNKNOWN: it has none. */
enum swp_fault swp_fault_of(const struct swp_term *t);
/* What its layer and type say of the request that is to blame */
enum swp_fault_blame swp_fault_blame(const struct swp_term *t);

/*
 * A region does not allow what the peer wants.  @err: -ENOENT no such STag,
 * -EACCES a right is missing, -EPERM it belongs to others, -ERANGE bounds,
 * -EOVERFLOW the address wraps, -EINVAL misaligned
 *
 * DDP checks tagged buffers, and has no code for rights and alignment; RDMAP
 * checks the data source of a Read and the memory of an atomic.
 */
enum swp_fault swp_fault_tagged(int err);
enum swp_fault swp_fault_source(int err);

#endif /* SWP_PROTO_TERMINATE_H */
