// SPDX-License-Identifier: GPL-2.0
/*
 * The receiving half-connection, see sink.h.
 */
#include "sink.h"

void sdp_sink_init(struct sdp_sink *s, __u8 most)
{
	*s = (struct sdp_sink){
		.mode = SDP_MODE_COMBINED,
		.most = most < SDP_ADVERTS ? most : SDP_ADVERTS,
	};
}

/* Octets of an advertisement that have neither arrived nor been requested */
static __u32 rest(const struct sdp_advert *a)
{
	return a->len - a->inlined - a->told - a->ready - a->reading;
}

/* Remove the oldest advertisement. */
static void pop(struct sdp_sink *s)
{
	int i;

	s->count--;
	for (i = 0; i < s->count; i++)
		s->adverts[i] = s->adverts[i + 1];
	s->refused = false;
}

enum sdp_sink_fault sdp_sink_data(struct sdp_sink *s, __u32 payload)
{
	/* Data may overtake an advertisement only if a SendSm asked for it */
	if ((s->count || s->cancelling) && payload > s->owed)
		return SDP_SINK_PAYLOAD;
	s->owed -= payload < s->owed ? payload : s->owed;
	return SDP_SINK_OK;
}

enum sdp_sink_fault sdp_sink_avail(struct sdp_sink *s, const struct sdp_msg *msg)
{
	bool combined = s->mode == SDP_MODE_COMBINED;

	if (s->mode == SDP_MODE_BUFFERED)
		return SDP_SINK_MODE;
	if (s->cancelling || s->count >= s->most || (combined && s->count))
		return SDP_SINK_ADVERTS;
	if (combined ? !msg->payload : msg->payload)
		return SDP_SINK_PAYLOAD;
	if (msg->payload > msg->avail.len)
		return SDP_SINK_PAYLOAD;
	if (combined && s->owed)
		return SDP_SINK_UNFINISHED;
	s->adverts[s->count++] = (struct sdp_advert){
		.stag = msg->avail.stag,
		.va = msg->avail.va,
		.len = msg->avail.len,
		.inlined = msg->payload,
	};
	return SDP_SINK_OK;
}

bool sdp_sink_cancel(struct sdp_sink *s)
{
	struct sdp_advert *oldest = &s->adverts[0];

	/* a second SrcAvailCancel changes nothing */
	if (!s->count || s->cancelling)
		return false;
	s->cancelling = true;
	s->refused = false;
	s->dropped = s->count > 1;
	s->count = 1;
	if (oldest->reading || oldest->ready)
		return oldest->reading;
	s->dropped = true;
	s->count = 0;
	return false;
}

enum sdp_sink_fault sdp_sink_mode(struct sdp_sink *s, __u8 mode)
{
	switch (s->mode) {
	case SDP_MODE_COMBINED:
		if (mode == SDP_MODE_COMBINED)
			return SDP_SINK_MODE;
		/* the peer must wait for the end of its SrcAvail first */
		if (mode == SDP_MODE_BUFFERED && (s->count || s->cancelling))
			return SDP_SINK_MODE;
		break;
	case SDP_MODE_PIPELINED:
		if (mode != SDP_MODE_COMBINED)
			return SDP_SINK_MODE;
		break;
	default:
		/* in Buffered Mode this end is the master */
		return SDP_SINK_MODE;
	}
	s->mode = mode;
	return SDP_SINK_OK;
}

enum sdp_sink_fault sdp_sink_end(const struct sdp_sink *s)
{
	return s->count || s->cancelling || s->owed ? SDP_SINK_UNFINISHED :
						      SDP_SINK_OK;
}

__u32 sdp_sink_want(struct sdp_sink *s, __u32 most, __u32 *stag, __u64 *va)
{
	struct sdp_advert *a = &s->adverts[0];
	__u32 octets;

	/* owed octets precede the advertised ones in the stream */
	if (!s->count || s->refused || s->cancelling || s->owed || s->stopped)
		return 0;
	octets = rest(a);
	if (octets > most)
		octets = most;
	*stag = a->stag;
	*va = a->va + a->inlined + a->told + a->ready + a->reading;
	a->reading += octets;
	return octets;
}

void sdp_sink_read(struct sdp_sink *s, __u32 octets)
{
	struct sdp_advert *a = &s->adverts[0];

	if (!s->count || octets > a->reading)
		return;
	a->reading -= octets;
	a->ready += octets;
}

void sdp_sink_refuse(struct sdp_sink *s)
{
	if (s->count && !s->cancelling)
		s->refused = true;
}

void sdp_sink_stop(struct sdp_sink *s)
{
	s->stopped = true;
}

bool sdp_sink_owes(const struct sdp_sink *s)
{
	return s->cancelling || (s->count && s->adverts[0].ready);
}

bool sdp_sink_busy(const struct sdp_sink *s)
{
	return s->count && s->adverts[0].reading;
}

bool sdp_sink_due(const struct sdp_sink *s)
{
	if (sdp_sink_busy(s))
		return false;
	if (s->count && s->adverts[0].ready)
		return true;
	if (s->cancelling)
		return true;
	/* one refusal at a time, so that @owed belongs to one SrcAvail */
	if (!s->count || s->owed)
		return false;
	/* nothing is left to read if all of it came with the SrcAvail */
	return s->refused || !rest(&s->adverts[0]);
}

bool sdp_sink_answer(struct sdp_sink *s, struct sdp_msg *msg, __u32 *stag,
		     bool *invalidate)
{
	struct sdp_advert *a = &s->adverts[0];

	*invalidate = false;
	if (!sdp_sink_due(s))
		return false;
	if (s->count && a->ready) {
		*msg = (struct sdp_msg){
			.mid = SDP_MID_RDMA_RD_COMPL,
			.size = a->ready,
		};
		a->told += a->ready;
		a->ready = 0;
		if (!rest(a)) {
			*stag = a->stag;
			*invalidate = true;
			pop(s);
			/* all octets were read, so nothing was cancelled */
			if (!s->dropped)
				s->cancelling = false;
		}
		return true;
	}
	*msg = (struct sdp_msg){ .mid = SDP_MID_SEND_SM };
	if (s->cancelling) {
		/* the peer keeps the octets that are left */
		s->count = 0;
		s->cancelling = false;
		s->dropped = false;
	} else {
		s->owed = rest(a);
		pop(s);
	}
	return true;
}
