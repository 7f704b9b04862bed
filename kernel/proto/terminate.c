// SPDX-License-Identifier: GPL-2.0
/*
 * The table of faults of terminate.h, and the look-ups in it.
 */
#include "terminate.h"

struct row {
	struct swp_term term;
	__u8 headers;		/* enum swp_fault_headers */
	__u8 event;		/* enum swp_fault_event */
	__u8 blame;		/* enum swp_fault_blame */
	const char *name;
};

/* All rows of one layer and type have the same event and blame. */
#define ROW(layer, type, code, headers, event, blame, name) { \
	{ SWP_LAYER_##layer, SWP_##type, code }, SWP_HDR_##headers, \
	SWP_EVENT_##event, SWP_BLAME_##blame, "terminate_for_" name }

static const struct row rows[SWP_FAULT_COUNT] = {
	[SWP_FAULT_RDMAP_LOCAL] =
		ROW(RDMAP, RDMAP_ET_LOCAL, 0x00,
		    NONE, FATAL, OPERATION, "rdmap_local"),
	[SWP_FAULT_RDMAP_INVALID_STAG] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RP_INVALID_STAG,
		    RREQ, ACCESS, ACCESS, "rdmap_invalid_stag"),
	[SWP_FAULT_RDMAP_BOUNDS] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RP_BOUNDS,
		    RREQ, ACCESS, ACCESS, "rdmap_bounds"),
	[SWP_FAULT_RDMAP_ACCESS] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RP_ACCESS,
		    RREQ, ACCESS, ACCESS, "rdmap_access"),
	[SWP_FAULT_RDMAP_NOT_ASSOC] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RP_NOT_ASSOC,
		    RREQ, ACCESS, ACCESS, "rdmap_stag_not_associated"),
	[SWP_FAULT_RDMAP_TO_WRAP] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RP_TO_WRAP,
		    RREQ, ACCESS, ACCESS, "rdmap_to_wrap"),
	[SWP_FAULT_RDMAP_CANT_INVALIDATE] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RP_CANT_INVALIDATE,
		    RREQ, ACCESS, ACCESS, "rdmap_stag_not_invalidated"),
	[SWP_FAULT_RDMAP_PROT_OTHER] =
		ROW(RDMAP, RDMAP_ET_PROT, SWP_RO_UNSPECIFIED,
		    RREQ, ACCESS, ACCESS, "rdmap_protection_other"),
	[SWP_FAULT_RDMAP_VERSION] =
		ROW(RDMAP, RDMAP_ET_OP, SWP_RO_VERSION,
		    DDP, REQUEST, OPERATION, "rdmap_version"),
	[SWP_FAULT_RDMAP_OPCODE] =
		ROW(RDMAP, RDMAP_ET_OP, SWP_RO_OPCODE,
		    DDP, REQUEST, OPERATION, "rdmap_opcode"),
	/* RFC 7306 uses the same number for misaligned memory of an atomic */
	[SWP_FAULT_RDMAP_STREAM] =
		ROW(RDMAP, RDMAP_ET_OP, SWP_RO_STREAM,
		    DDP, REQUEST, OPERATION, "rdmap_stream"),
	[SWP_FAULT_RDMAP_GLOBAL] =
		ROW(RDMAP, RDMAP_ET_OP, SWP_RO_GLOBAL,
		    DDP, REQUEST, OPERATION, "rdmap_global"),
	[SWP_FAULT_RDMAP_OP_STAG] =
		ROW(RDMAP, RDMAP_ET_OP, SWP_RO_CANT_INVALIDATE,
		    DDP, REQUEST, OPERATION, "rdmap_operation_stag"),
	[SWP_FAULT_RDMAP_UNSPECIFIED] =
		ROW(RDMAP, RDMAP_ET_OP, SWP_RO_UNSPECIFIED,
		    DDP, REQUEST, OPERATION, "rdmap_operation_other"),
	[SWP_FAULT_DDP_LOCAL] =
		ROW(DDP, DDP_ET_LOCAL, 0x00,
		    NONE, FATAL, OPERATION, "ddp_local"),
	[SWP_FAULT_DDP_INVALID_STAG] =
		ROW(DDP, DDP_ET_TAGGED, SWP_DT_INVALID_STAG,
		    DDP, ACCESS, ACCESS, "ddp_invalid_stag"),
	[SWP_FAULT_DDP_BOUNDS] =
		ROW(DDP, DDP_ET_TAGGED, SWP_DT_BOUNDS,
		    DDP, ACCESS, ACCESS, "ddp_bounds"),
	[SWP_FAULT_DDP_NOT_ASSOC] =
		ROW(DDP, DDP_ET_TAGGED, SWP_DT_NOT_ASSOC,
		    DDP, ACCESS, ACCESS, "ddp_stag_not_associated"),
	[SWP_FAULT_DDP_TO_WRAP] =
		ROW(DDP, DDP_ET_TAGGED, SWP_DT_TO_WRAP,
		    DDP, ACCESS, ACCESS, "ddp_to_wrap"),
	[SWP_FAULT_DDP_TAGGED_VERSION] =
		ROW(DDP, DDP_ET_TAGGED, SWP_DT_VERSION,
		    DDP, ACCESS, ACCESS, "ddp_tagged_version"),
	[SWP_FAULT_DDP_QN] =
		ROW(DDP, DDP_ET_UNTAGGED, SWP_DU_QN,
		    DDP, REQUEST, REQUEST, "ddp_qn"),
	[SWP_FAULT_DDP_NO_BUFFER] =
		ROW(DDP, DDP_ET_UNTAGGED, SWP_DU_NO_BUFFER,
		    DDP, REQUEST, REQUEST, "ddp_no_buffer"),
	[SWP_FAULT_DDP_MSN] =
		ROW(DDP, DDP_ET_UNTAGGED, SWP_DU_MSN_RANGE,
		    DDP, REQUEST, REQUEST, "ddp_msn"),
	[SWP_FAULT_DDP_MO] =
		ROW(DDP, DDP_ET_UNTAGGED, SWP_DU_MO,
		    DDP, REQUEST, REQUEST, "ddp_mo"),
	[SWP_FAULT_DDP_TOO_LONG] =
		ROW(DDP, DDP_ET_UNTAGGED, SWP_DU_TOO_LONG,
		    DDP, REQUEST, REQUEST, "ddp_too_long"),
	[SWP_FAULT_DDP_UNTAGGED_VERSION] =
		ROW(DDP, DDP_ET_UNTAGGED, SWP_DU_VERSION,
		    DDP, REQUEST, REQUEST, "ddp_untagged_version"),
	[SWP_FAULT_MPA_CLOSED] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_CLOSED,
		    NONE, FATAL, OPERATION, "mpa_closed"),
	[SWP_FAULT_MPA_CRC] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_CRC,
		    NONE, FATAL, OPERATION, "mpa_crc"),
	[SWP_FAULT_MPA_MARKER] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_MARKER,
		    NONE, FATAL, OPERATION, "mpa_marker"),
	[SWP_FAULT_MPA_FRAME] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_FRAME,
		    NONE, FATAL, OPERATION, "mpa_frame"),
	[SWP_FAULT_MPA_LOCAL] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_LOCAL,
		    NONE, FATAL, OPERATION, "mpa_local"),
	[SWP_FAULT_MPA_IRD] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_IRD,
		    NONE, FATAL, OPERATION, "mpa_ird"),
	[SWP_FAULT_MPA_RTR] =
		ROW(LLP, LLP_ET_MPA, SWP_MPA_RTR,
		    NONE, FATAL, OPERATION, "mpa_rtr"),
	[SWP_FAULT_MPA_OTHER] =
		ROW(LLP, LLP_ET_MPA, 0xff,
		    NONE, FATAL, OPERATION, "mpa_other"),
	[SWP_FAULT_UNKNOWN] = {
		.term = { 0xf, 0xf, 0xff },
		.name = "terminate_for_unknown",
	},
};

struct swp_term swp_fault_term(enum swp_fault fault)
{
	return rows[fault].term;
}

enum swp_fault_headers swp_fault_headers(enum swp_fault fault)
{
	return rows[fault].headers;
}

enum swp_fault_event swp_fault_event(enum swp_fault fault)
{
	return rows[fault].event;
}

const char *swp_fault_name(enum swp_fault fault)
{
	return rows[fault].name;
}

static bool same_type(const struct swp_term *a, const struct swp_term *b)
{
	return a->layer == b->layer && a->etype == b->etype;
}

enum swp_fault swp_fault_of(const struct swp_term *t)
{
	int i;

	for (i = SWP_FAULT_NONE + 1; i < SWP_FAULT_UNKNOWN; i++)
		if (same_type(&rows[i].term, t) && rows[i].term.code == t->code)
			break;
	return i;
}

enum swp_fault_blame swp_fault_blame(const struct swp_term *t)
{
	int i;

	for (i = SWP_FAULT_NONE + 1; i < SWP_FAULT_UNKNOWN; i++)
		if (same_type(&rows[i].term, t))
			return rows[i].blame;
	return SWP_BLAME_OPERATION;
}

enum swp_fault swp_fault_tagged(int err)
{
	switch (err) {
	case -EPERM:
		return SWP_FAULT_DDP_NOT_ASSOC;
	case -ERANGE:
		return SWP_FAULT_DDP_BOUNDS;
	case -EOVERFLOW:
		return SWP_FAULT_DDP_TO_WRAP;
	default:
		return SWP_FAULT_DDP_INVALID_STAG;
	}
}

enum swp_fault swp_fault_source(int err)
{
	switch (err) {
	case -EACCES:
		return SWP_FAULT_RDMAP_ACCESS;
	case -EPERM:
		return SWP_FAULT_RDMAP_NOT_ASSOC;
	case -ERANGE:
		return SWP_FAULT_RDMAP_BOUNDS;
	case -EOVERFLOW:
		return SWP_FAULT_RDMAP_TO_WRAP;
	case -EINVAL:
		return SWP_FAULT_RDMAP_STREAM;
	default:
		return SWP_FAULT_RDMAP_INVALID_STAG;
	}
}
