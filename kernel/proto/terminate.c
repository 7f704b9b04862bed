// SPDX-License-Identifier: GPL-2.0
/*
 * The rows of terminate.h, and how they are found.
 */
#include "terminate.h"

struct row {
	struct swp_term term;
	__u8 headers;
	__u8 event;
	__u8 blame;
};

static const struct row rows[SWP_FAULT_COUNT] = {
#define SWP_FAULT_ROW(id, l, t, c, hdr, ev, bl, name) \
	[SWP_FAULT_##id] = { \
		.term = { SWP_LAYER_##l, SWP_##t, c }, \
		.headers = SWP_HDR_##hdr, \
		.event = SWP_EVENT_##ev, \
		.blame = SWP_BLAME_##bl, \
	},
	SWP_FAULTS(SWP_FAULT_ROW)
#undef SWP_FAULT_ROW
	[SWP_FAULT_UNKNOWN] = { .term = { 0xf, 0xf, 0xff } },
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
