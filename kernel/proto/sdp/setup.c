// SPDX-License-Identifier: GPL-2.0
/*
 * Hello and HelloAck, see setup.h.
 */
#include "credit.h"
#include "setup.h"

static void make(const struct sdp_offer *own, struct sdp_msg *msg)
{
	*msg = (struct sdp_msg){
		.bufs = sdp_credits_first(own->posted),
		.hello = {
			.max_adverts = own->max_adverts,
			.major = SDP_VERSION,
			.minor = SDP_VERSION,
			.rcv_size = own->rcv_size,
			.ird = own->ird,
			.ord = own->ord,
		},
	};
}

void sdp_hello_make(const struct sdp_offer *own, struct sdp_msg *msg)
{
	make(own, msg);
	msg->mid = SDP_MID_HELLO;
	msg->hello.des_rem_rcv_size = own->want_size;
}

void sdp_hello_ack_make(const struct sdp_offer *own, struct sdp_msg *msg)
{
	make(own, msg);
	msg->mid = SDP_MID_HELLO_ACK;
}

static __u16 lower(__u16 a, __u16 b)
{
	return a < b ? a : b;
}

static enum sdp_refusal check(const struct sdp_offer *own,
			      const struct sdp_msg *msg, struct sdp_terms *terms)
{
	const struct sdp_hello *h = &msg->hello;

	if (h->major != SDP_VERSION)
		return SDP_NO_VERSION;
	if (!h->max_adverts)
		return SDP_NO_ADVERTS;
	if (!h->ird || !h->ord)
		return SDP_NO_DEPTH;
	if (msg->bufs < SDP_BUFS_MIN)
		return SDP_NO_BUFS;
	if (h->rcv_size < SDP_RCV_SIZE_MIN || h->rcv_size > SDP_SIZE_MAX)
		return SDP_NO_SIZE;
	*terms = (struct sdp_terms){
		.bufs = msg->bufs,
		.max_adverts = h->max_adverts,
		.rcv_size = h->rcv_size,
		/* more than the peer's depths would be of no use */
		.ird = lower(own->ird, h->ord),
		.ord = lower(own->ord, h->ird),
		.minor = (__u8)lower(SDP_VERSION, h->minor),
	};
	return SDP_ACCEPTABLE;
}

enum sdp_refusal sdp_hello_check(const struct sdp_offer *own,
				 const struct sdp_msg *msg,
				 struct sdp_terms *terms)
{
	enum sdp_refusal why;

	if (msg->mid != SDP_MID_HELLO)
		return SDP_NO_HELLO;
	why = check(own, msg, terms);
	if (why == SDP_ACCEPTABLE && msg->hello.des_rem_rcv_size <= SDP_SIZE_MAX)
		terms->want_size = msg->hello.des_rem_rcv_size;
	return why;
}

enum sdp_refusal sdp_hello_ack_check(const struct sdp_offer *own,
				     const struct sdp_msg *msg,
				     struct sdp_terms *terms)
{
	if (msg->mid != SDP_MID_HELLO_ACK)
		return SDP_NO_HELLO;
	return check(own, msg, terms);
}
