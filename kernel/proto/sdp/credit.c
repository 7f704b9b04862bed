// SPDX-License-Identifier: GPL-2.0
/*
 * Sequence numbers, acknowledgements and credits, see credit.h.
 */
#include "credit.h"

__u16 sdp_credits_first(__u32 posted)
{
	__u32 bufs = posted - SDP_BUFS_SPARE;

	return bufs < SDP_BUFS_MAX ? (__u16)bufs : SDP_BUFS_MAX;
}

void sdp_credits_init(struct sdp_credits *c, bool connector, __u32 posted,
		      __u16 peer_bufs)
{
	*c = (struct sdp_credits){
		.posted = posted,
		.told = sdp_credits_first(posted),
		.spare = SDP_BUFS_SPARE,
		/* HelloAck: with a buffer of the connector, without a number */
		.received = connector ? 1 : 0,
		.extra = connector ? 1 : 0,
		.limit = connector ? peer_bufs : peer_bufs - 1U,
	};
	c->reach = c->told - c->received;
}

__u64 sdp_credits_left(const struct sdp_credits *c)
{
	return c->limit > c->sent ? c->limit - c->sent : 0;
}

/* Buffers that the peer may know of, over the life of the connection */
static __u64 tellable(const struct sdp_credits *c)
{
	__u64 most = c->received + SDP_BUFS_MAX;
	__u64 own = c->posted - c->spare;

	return own < most ? own : most;
}

/* Messages that the peer may send once it is told, by its own reckoning */
static __u64 reach(const struct sdp_credits *c)
{
	__u64 numbered = c->received - c->extra;

	/* Up to message 1 it does not know that one was received. */
	return tellable(c) - (numbered > 1 ? c->extra : c->received);
}

bool sdp_credits_gives(const struct sdp_credits *c)
{
	return tellable(c) > c->told && reach(c) > c->reach;
}

bool sdp_credits_unclear(const struct sdp_credits *c)
{
	/* without a message of the peer's there is no MSeqAck that may mean either */
	return !c->clear && c->sent && c->received > c->extra;
}

bool sdp_credits_allow(const struct sdp_credits *c, bool payload)
{
	__u64 left = sdp_credits_left(c);

	if (left >= 3)
		return true;
	if (payload || !left)
		return false;
	return left == 2 || sdp_credits_gives(c);
}

bool sdp_credits_ask(const struct sdp_credits *c, bool again)
{
	__u64 left = sdp_credits_left(c);

	if (left == 2)
		return true;
	if (!again || !sdp_credits_unclear(c))
		return false;
	/* in the eyes of the peer that is the last but one, or the last one */
	return left == 1 || (c->limit == c->sent && sdp_credits_gives(c));
}

bool sdp_credits_due(const struct sdp_credits *c, bool flows)
{
	__u64 more = tellable(c) - c->told;
	__u64 left = c->told > c->received ? c->told - c->received : 0;
	__u64 half = (c->posted - c->received) / 2;

	if (!sdp_credits_gives(c))
		return false;
	/* one that reckons as we do, with message 0 unclear, sees one less */
	return left <= (c->spare ? 2 : 1) ||
	       (!flows && more >= (half > 2 ? half : 2));
}

void sdp_credits_post(struct sdp_credits *c, __u32 count)
{
	c->posted += count;
}

__u32 sdp_credits_room(const struct sdp_credits *c)
{
	__u64 now = c->posted - c->received;

	return now < SDP_BUFS_MAX ? (__u32)(SDP_BUFS_MAX - now) : 0;
}

void sdp_credits_stamp(struct sdp_credits *c, struct sdp_msg *msg)
{
	__u64 numbered = c->received - c->extra;

	if (reach(c) > c->reach)
		c->reach = reach(c);
	if (tellable(c) > c->told)
		c->told = tellable(c);
	msg->bufs = c->told > c->received ? (__u16)(c->told - c->received) : 0;
	msg->mseq = (__u32)c->sent;
	msg->mseq_ack = numbered ? (__u32)(numbered - 1) : 0;
	if (c->held)
		msg->mseq_ack = c->hold;
	c->sent++;
}

enum sdp_credit_fault sdp_credits_take(struct sdp_credits *c,
				       const struct sdp_msg *msg)
{
	__u64 numbered = c->received - c->extra;
	__u64 acked = 0;
	__u64 limit;

	if (msg->mseq != (__u32)numbered)
		return SDP_CREDIT_MSEQ;
	if (c->received >= c->posted)
		return SDP_CREDIT_OVERRUN;
	if (c->clear || msg->mseq_ack) {
		/* how many of ours it has not seen, section 10.2 */
		__u32 behind = (__u32)c->sent - 1 - msg->mseq_ack;

		if (behind >= c->sent || c->sent - behind < c->acked)
			return SDP_CREDIT_ACK;
		acked = c->sent - behind;
		c->clear = true;
	}
	c->acked = acked;
	limit = acked + msg->bufs;
	/* buffers that were there stay, whatever cannot be said of message 0 */
	if (c->clear || limit > c->limit)
		c->limit = limit;
	c->received++;
	/* No peer that has come so far can mean anything but what it says. */
	if (numbered == 2)
		c->spare = 0;
	return SDP_CREDIT_OK;
}

void sdp_credits_hold(struct sdp_credits *c)
{
	c->held = true;
	/* a SrcAvail came before, so there are two at least */
	c->hold = (__u32)(c->received - c->extra - 2);
}

void sdp_credits_release(struct sdp_credits *c)
{
	c->held = false;
}
