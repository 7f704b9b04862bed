// SPDX-License-Identifier: GPL-2.0
/*
 * SDP messages on the wire, see wire.h.
 */
#include "wire.h"

static __u16 get16(const __u8 *p)
{
	return (__u16)(p[0] << 8 | p[1]);
}

static __u32 get32(const __u8 *p)
{
	return (__u32)get16(p) << 16 | get16(p + 2);
}

static void put16(__u8 *p, __u16 v)
{
	p[0] = (__u8)(v >> 8);
	p[1] = (__u8)v;
}

static void put32(__u8 *p, __u32 v)
{
	put16(p, (__u16)(v >> 16));
	put16(p + 2, (__u16)v);
}

/* A word of a 16-bit field and two octets; in the draft the octets are last. */
struct word {
	__u16 wide;
	__u8 flags;
	__u8 low;
};

static void put_word(enum sdp_layout layout, __u8 *p, struct word w)
{
	if (layout == SDP_LAYOUT_DRAFT) {
		put16(p, w.wide);
		p[2] = w.flags;
		p[3] = w.low;
	} else {
		p[0] = w.low;
		p[1] = w.flags;
		put16(p + 2, w.wide);
	}
}

static struct word get_word(enum sdp_layout layout, const __u8 *p)
{
	struct word w;

	if (layout == SDP_LAYOUT_DRAFT) {
		w.wide = get16(p);
		w.flags = p[2];
		w.low = p[3];
	} else {
		w.low = p[0];
		w.flags = p[1];
		w.wide = get16(p + 2);
	}
	return w;
}

/* Two 16-bit fields in one word */
static void put_pair(enum sdp_layout layout, __u8 *p, __u16 first, __u16 second)
{
	put16(p, layout == SDP_LAYOUT_DRAFT ? first : second);
	put16(p + 2, layout == SDP_LAYOUT_DRAFT ? second : first);
}

static void get_pair(enum sdp_layout layout, const __u8 *p, __u16 *first,
		     __u16 *second)
{
	*first = get16(layout == SDP_LAYOUT_DRAFT ? p : p + 2);
	*second = get16(layout == SDP_LAYOUT_DRAFT ? p + 2 : p);
}

struct sdp_kind sdp_kind_of(__u8 mid)
{
	static const struct sdp_kind low[] = {
		[SDP_MID_HELLO]			= { .header = 32 },
		[SDP_MID_HELLO_ACK]		= { .header = 28, .solicited = true },
		[SDP_MID_DISCONN]		= { .header = 16 },
		[SDP_MID_ABORT_CONN]		= { .header = 16, .solicited = true },
		[SDP_MID_SEND_SM]		= { .header = 16, .solicited = true },
		[SDP_MID_RDMA_WR_COMPL]		= { .header = 20, .solicited = true,
						    .invalidates = true },
		[SDP_MID_RDMA_RD_COMPL]		= { .header = 20, .solicited = true,
						    .invalidates = true },
		[SDP_MID_MODE_CHANGE]		= { .header = 20 },
		[SDP_MID_SRC_AVAIL_CANCEL]	= { .header = 16, .solicited = true },
		[SDP_MID_SINK_AVAIL_CANCEL]	= { .header = 16, .solicited = true },
		[SDP_MID_SINK_CANCEL_ACK]	= { .header = 16, .solicited = true },
		[SDP_MID_CH_RCV_BUF]		= { .header = 20 },
		[SDP_MID_CH_RCV_BUF_ACK]	= { .header = 20 },
		[SDP_MID_SUSP_COMM]		= { .header = 24, .solicited = true },
		[SDP_MID_SUSP_COMM_ACK]		= { .header = 16, .solicited = true },
	};
	static const struct sdp_kind high[] = {
		[SDP_MID_SINK_AVAIL - SDP_MID_SINK_AVAIL] = {
			.header = 36, .payload = true },
		[SDP_MID_SRC_AVAIL - SDP_MID_SINK_AVAIL] = {
			.header = 32, .payload = true },
		[SDP_MID_DATA - SDP_MID_SINK_AVAIL] = {
			.header = 16, .payload = true },
	};
	static const struct sdp_kind none;

	if (mid <= SDP_MID_SUSP_COMM_ACK)
		return low[mid];
	if (mid >= SDP_MID_SINK_AVAIL)
		return high[mid - SDP_MID_SINK_AVAIL];
	return none;
}

/* The high nibble of the octet is MinV in the draft, MajV in InfiniBand. */
static __u8 versions(enum sdp_layout layout, const struct sdp_hello *h)
{
	__u8 high = layout == SDP_LAYOUT_DRAFT ? h->minor : h->major;
	__u8 low = layout == SDP_LAYOUT_DRAFT ? h->major : h->minor;

	return (__u8)(high << 4 | (low & 0xf));
}

static void put_hello(enum sdp_layout layout, const struct sdp_msg *msg, __u8 *p)
{
	const struct sdp_hello *h = &msg->hello;
	const struct word w = {
		.wide = h->max_adverts,
		.low = versions(layout, h),
	};

	put_word(layout, p, w);
	p += 4;
	if (msg->mid == SDP_MID_HELLO) {
		put32(p, h->des_rem_rcv_size);
		p += 4;
	}
	put32(p, h->rcv_size);
	put_pair(layout, p + 4, h->ird, h->ord);
}

static void get_hello(enum sdp_layout layout, const __u8 *p, struct sdp_msg *msg)
{
	struct word w = get_word(layout, p);
	struct sdp_hello *h = &msg->hello;
	__u8 high = w.low >> 4, low = w.low & 0xf;

	h->max_adverts = w.wide;
	h->major = layout == SDP_LAYOUT_DRAFT ? low : high;
	h->minor = layout == SDP_LAYOUT_DRAFT ? high : low;
	p += 4;
	h->des_rem_rcv_size = 0;
	if (msg->mid == SDP_MID_HELLO) {
		h->des_rem_rcv_size = get32(p);
		p += 4;
	}
	h->rcv_size = get32(p);
	get_pair(layout, p + 4, &h->ird, &h->ord);
}

static void put_avail(const struct sdp_msg *msg, __u8 *p)
{
	put32(p, msg->avail.len);
	put32(p + 4, msg->avail.stag);
	put32(p + 8, (__u32)(msg->avail.va >> 32));
	put32(p + 12, (__u32)msg->avail.va);
	if (msg->mid == SDP_MID_SINK_AVAIL)
		put32(p + 16, msg->avail.non_discards);
}

static enum sdp_violation get_avail(const __u8 *p, struct sdp_msg *msg)
{
	struct sdp_avail *a = &msg->avail;

	a->len = get32(p);
	a->stag = get32(p + 4);
	a->va = (__u64)get32(p + 8) << 32 | get32(p + 12);
	a->non_discards = msg->mid == SDP_MID_SINK_AVAIL ? get32(p + 16) : 0;
	return a->len && a->len <= SDP_SIZE_MAX ? SDP_OK : SDP_BAD_SIZE;
}

/* S and Mode are the lowest bits of the word in the draft, else the highest. */
static __u32 mode_word(enum sdp_layout layout, const struct sdp_mode_change *m)
{
	if (layout == SDP_LAYOUT_DRAFT)
		return (__u32)m->mode << 1 | m->send;
	return (__u32)m->send << 31 | (__u32)m->mode << 28;
}

static enum sdp_violation get_mode(enum sdp_layout layout, const __u8 *p,
				   struct sdp_mode_change *m)
{
	__u32 w = get32(p);

	if (layout == SDP_LAYOUT_DRAFT) {
		m->send = w & 1;
		m->mode = w >> 1 & 7;
	} else {
		m->send = w >> 31;
		m->mode = w >> 28 & 7;
	}
	return m->mode <= SDP_MODE_PIPELINED ? SDP_OK : SDP_BAD_MODE;
}

/* SuspCH: the constants and the port form the service ID of InfiniBand. */
static enum sdp_violation get_susp(enum sdp_layout layout, const __u8 *p,
				   struct sdp_msg *msg)
{
	__u16 one;

	get_pair(layout, p + 4, &msg->port, &one);
	return !get32(p) && one == 1 ? SDP_OK : SDP_BAD_CONSTANT;
}

__u32 sdp_encode(enum sdp_layout layout, const struct sdp_msg *msg, __u8 *buf)
{
	const struct word w = { msg->bufs, msg->flags, msg->mid };
	__u32 header = sdp_kind_of(msg->mid).header;
	__u8 *ext = buf + SDP_BSDH_LEN;

	put_word(layout, buf, w);
	put32(buf + 4, header + msg->payload);
	put32(buf + 8, msg->mseq);
	put32(buf + 12, msg->mseq_ack);
	switch (msg->mid) {
	case SDP_MID_HELLO:
	case SDP_MID_HELLO_ACK:
		put_hello(layout, msg, ext);
		break;
	case SDP_MID_SRC_AVAIL:
	case SDP_MID_SINK_AVAIL:
		put_avail(msg, ext);
		break;
	case SDP_MID_MODE_CHANGE:
		put32(ext, mode_word(layout, &msg->mode));
		break;
	case SDP_MID_RDMA_WR_COMPL:
	case SDP_MID_RDMA_RD_COMPL:
	case SDP_MID_CH_RCV_BUF:
	case SDP_MID_CH_RCV_BUF_ACK:
		put32(ext, msg->size);
		break;
	case SDP_MID_SUSP_COMM:
		put32(ext, 0);
		put_pair(layout, ext + 4, msg->port, 1);
		break;
	default:
		break;
	}
	return header;
}

enum sdp_violation sdp_decode(enum sdp_layout layout, const __u8 *buf, __u32 len,
			      struct sdp_msg *msg)
{
	const __u8 *ext = buf + SDP_BSDH_LEN;
	struct sdp_kind kind;
	struct word w;

	memset(msg, 0, sizeof(*msg));
	if (len < SDP_BSDH_LEN || get32(buf + 4) != len)
		return SDP_BAD_LENGTH;
	w = get_word(layout, buf);
	msg->mid = w.low;
	msg->flags = w.flags;
	msg->bufs = w.wide;
	msg->mseq = get32(buf + 8);
	msg->mseq_ack = get32(buf + 12);
	kind = sdp_kind_of(msg->mid);
	if (!kind.header)
		return SDP_BAD_MID;
	if (len < kind.header)
		return SDP_BAD_LENGTH;
	msg->payload = len - kind.header;
	if (msg->payload && !kind.payload)
		return SDP_BAD_PAYLOAD;

	switch (msg->mid) {
	case SDP_MID_HELLO:
	case SDP_MID_HELLO_ACK:
		get_hello(layout, ext, msg);
		return SDP_OK;
	case SDP_MID_SRC_AVAIL:
	case SDP_MID_SINK_AVAIL:
		return get_avail(ext, msg);
	case SDP_MID_MODE_CHANGE:
		return get_mode(layout, ext, &msg->mode);
	case SDP_MID_RDMA_WR_COMPL:
	case SDP_MID_RDMA_RD_COMPL:
	case SDP_MID_CH_RCV_BUF:
	case SDP_MID_CH_RCV_BUF_ACK:
		msg->size = get32(ext);
		return SDP_OK;
	case SDP_MID_SUSP_COMM:
		return get_susp(layout, ext, msg);
	case SDP_MID_DATA:
		return (msg->flags & SDP_FLAG_OOB_PRES) && !msg->payload ?
		       SDP_BAD_OOB : SDP_OK;
	default:
		return SDP_OK;
	}
}

bool sdp_hello_layout(const __u8 *buf, enum sdp_layout *layout)
{
	if (get16(buf) && !get16(buf + 2))
		*layout = SDP_LAYOUT_DRAFT;
	else if (!get16(buf) && get16(buf + 2))
		*layout = SDP_LAYOUT_IB;
	else
		return false;
	return get32(buf + 4) == SDP_HELLO_LEN;
}
