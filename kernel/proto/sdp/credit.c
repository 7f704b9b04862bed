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
		/* HelloAck used a buffer of the connector but has no MSeq */
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

/* Buffers that we may advertise, over the life of the connection */
static __u64 tellable(const struct sdp_credits *c)
{
	__u64 most = c->received + SDP_BUFS_MAX;
	__u64 own = c->posted - c->spare;

	return own < most ? own : most;
}

/* Messages that the peer thinks it may send once tellable() is advertised */
static __u64 reach(const struct sdp_credits *c)
{
	__u64 numbered = c->received - c->extra;

	/* while our MSeqAck is 0 it counts message 0 as not received */
	return tellable(c) - (numbered > 1 ? c->extra : c->received);
}

bool sdp_credits_gives(const struct sdp_credits *c)
{
	return tellable(c) > c->told && reach(c) > c->reach;
}

bool sdp_credits_unclear(const struct sdp_credits *c)
{
	/* before a message of the peer there is no MSeqAck that is ambiguous */
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
	/* the peer counts one more: the last but one, or the last one */
	return left == 1 || (c->limit == c->sent && sdp_credits_gives(c));
}

bool sdp_credits_due(const struct sdp_credits *c, bool flows)
{
	__u64 more = tellable(c) - c->told;
	__u64 left = c->told > c->received ? c->told - c->received : 0;
	__u64 half = (c->posted - c->received) / 2;

	if (!sdp_credits_gives(c))
		return false;
	/* a peer that counts message 0 as we do sees one credit less */
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
		/* messages of ours that it has not received, section 10.2 */
		__u32 behind = (__u32)c->sent - 1 - msg->mseq_ack;

		if (behind >= c->sent || c->sent - behind < c->acked)
			return SDP_CREDIT_ACK;
		acked = c->sent - behind;
		c->clear = true;
	}
	c->acked = acked;
	limit = acked + msg->bufs;
	/* while message 0 is unclear the limit never goes down */
	if (c->clear || limit > c->limit)
		c->limit = limit;
	c->received++;
	/* a peer that has sent message 2 cannot misread our MSeqAck any more */
	if (numbered == 2)
		c->spare = 0;
	return SDP_CREDIT_OK;
}

void sdp_credits_hold(struct sdp_credits *c)
{
	c->held = true;
	/* a SrcAvail came before it, so at least two messages are numbered */
	c->hold = (__u32)(c->received - c->extra - 2);
}

void sdp_credits_release(struct sdp_credits *c)
{
	c->held = false;
}
