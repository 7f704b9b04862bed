// SPDX-License-Identifier: GPL-2.0
/*
 * Sizes of receive buffers, see resize.h.
 */
#include "resize.h"

void sdp_resize_init(struct sdp_resize *r, bool connector, __u32 peer, __u32 own)
{
	*r = (struct sdp_resize){
		.connector = connector,
		.peer = peer,
		.own = own,
	};
}

bool sdp_resize_ask(struct sdp_resize *r, __u32 size)
{
	/* one request at a time, and none while one of the peer's is open */
	if (r->asked || r->wish || size == r->peer)
		return false;
	if (size < SDP_RCV_SIZE_MIN || size > SDP_SIZE_MAX)
		return false;
	if (size > r->peer ? r->no_more : r->no_less)
		return false;
	r->asked = size;
	r->due = true;
	return true;
}

__u32 sdp_resize_asked(struct sdp_resize *r)
{
	r->due = false;
	r->old = r->peer;
	if (r->asked < r->peer)
		r->peer = r->asked;
	return r->asked;
}

enum sdp_resize_fault sdp_resize_take_ack(struct sdp_resize *r, __u32 size)
{
	__u32 asked = r->asked;

	if (size < SDP_RCV_SIZE_MIN || size > SDP_SIZE_MAX)
		return SDP_RESIZE_SIZE;
	if (!asked || r->due) {
		if (!r->voided)
			return SDP_RESIZE_NEVER;
		/* the peer answers our request, which came before its own */
		r->voided = false;
		r->peer = size;
		return SDP_RESIZE_OK;
	}
	if (asked > r->old ? size < r->old : size < asked || size > r->old)
		return SDP_RESIZE_SIZE;
	if (size == r->old) {
		if (asked > r->old)
			r->no_more = true;
		else
			r->no_less = true;
	}
	r->peer = size;
	r->asked = 0;
	return SDP_RESIZE_OK;
}

enum sdp_resize_fault sdp_resize_take(struct sdp_resize *r, __u32 size, bool *act)
{
	*act = false;
	if (r->wish)
		return SDP_RESIZE_TWICE;
	if (r->asked && !r->due && !r->connector)
		return SDP_RESIZE_OK;
	if (r->asked) {
		/* our request is void; a lower limit from it may stay */
		r->voided = !r->due;
		r->asked = 0;
		r->due = false;
	}
	r->wish = size < SDP_RCV_SIZE_MIN ? SDP_RCV_SIZE_MIN :
		  size > SDP_SIZE_MAX ? SDP_SIZE_MAX : size;
	*act = true;
	return SDP_RESIZE_OK;
}

__u32 sdp_resize_answer(struct sdp_resize *r, __u32 size, __u64 posted)
{
	bool more = r->wish > r->own;

	if (!r->wish)
		return r->own;
	if (size > SDP_SIZE_MAX)
		size = SDP_SIZE_MAX;
	if (more && size < r->own)
		size = r->own;
	if (!more && size > r->own)
		size = r->own;
	if (!more && size < r->wish)
		size = r->wish;
	r->answer = size;
	r->when = size > r->own ? posted : 0;
	return size;
}

bool sdp_resize_ack_due(const struct sdp_resize *r, __u64 received)
{
	return r->answer && received >= r->when;
}

__u32 sdp_resize_acked(struct sdp_resize *r)
{
	r->own = r->answer;
	r->answer = 0;
	r->wish = 0;
	return r->own;
}
