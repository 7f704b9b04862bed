// SPDX-License-Identifier: GPL-2.0
/*
 * The messages and decisions of pair.h.
 */
#include "pair.h"

static const __u8 magic[4] = { 's', 'w', 'Q', 'P' };

/* Offsets of the fields */
enum {
	OFF_VERSION	= 4,
	OFF_KIND	= 5,
	OFF_REASON	= 6,
	OFF_RESERVED	= 7,
	OFF_SELF_GID	= 8,
	OFF_PEER_GID	= 24,
	OFF_SELF_QPN	= 40,
	OFF_PEER_QPN	= 44,
	OFF_RECV_PSN	= 48,
	OFF_SEND_PSN	= 52,
};

static __u32 get32(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

static void put32(__u8 *p, __u32 v)
{
	p[0] = (__u8)(v >> 24);
	p[1] = (__u8)(v >> 16);
	p[2] = (__u8)(v >> 8);
	p[3] = (__u8)v;
}

void swp_pair_encode(const struct swp_pair_msg *m, __u8 buf[SWP_PAIR_LEN])
{
	const struct swp_pair_view *v = &m->view;

	memset(buf, 0, SWP_PAIR_LEN);
	memcpy(buf, magic, sizeof(magic));
	buf[OFF_VERSION] = SWP_PAIR_VERSION;
	buf[OFF_KIND] = (__u8)m->kind;
	buf[OFF_REASON] = (__u8)m->reason;
	if (m->kind == SWP_PAIR_REFUSAL)
		return;
	memcpy(buf + OFF_SELF_GID, v->self.gid, SWP_PAIR_GID_LEN);
	memcpy(buf + OFF_PEER_GID, v->peer.gid, SWP_PAIR_GID_LEN);
	put32(buf + OFF_SELF_QPN, v->self.qpn);
	put32(buf + OFF_PEER_QPN, v->peer.qpn);
	put32(buf + OFF_RECV_PSN, v->recv_psn);
	put32(buf + OFF_SEND_PSN, v->send_psn);
}

static bool all_zero(const __u8 *p, size_t n)
{
	while (n--)
		if (*p++)
			return false;
	return true;
}

static bool view_ok(const struct swp_pair_view *v)
{
	return v->self.qpn <= SWP_PAIR_24_BITS &&
	       v->peer.qpn <= SWP_PAIR_24_BITS &&
	       v->recv_psn <= SWP_PAIR_24_BITS &&
	       (v->send_psn <= SWP_PAIR_24_BITS ||
		v->send_psn == SWP_PAIR_PSN_NONE);
}

int swp_pair_decode(const __u8 *buf, size_t len, struct swp_pair_msg *m)
{
	struct swp_pair_view *v = &m->view;
	bool refusal;

	memset(m, 0, sizeof(*m));
	if (len < OFF_VERSION + 1 || memcmp(buf, magic, sizeof(magic)))
		return -EBADMSG;
	if (buf[OFF_VERSION] != SWP_PAIR_VERSION)
		return -EPROTONOSUPPORT;
	if (len != SWP_PAIR_LEN || buf[OFF_RESERVED] ||
	    buf[OFF_KIND] < SWP_PAIR_REQUEST ||
	    buf[OFF_KIND] > SWP_PAIR_REFUSAL)
		return -EPROTO;
	refusal = buf[OFF_KIND] == SWP_PAIR_REFUSAL;
	if (buf[OFF_REASON] >= SWP_PAIR_REASONS ||
	    refusal == !buf[OFF_REASON])
		return -EPROTO;
	m->kind = (enum swp_pair_kind)buf[OFF_KIND];
	m->reason = (enum swp_pair_reason)buf[OFF_REASON];
	if (refusal)
		return all_zero(buf + OFF_SELF_GID,
				SWP_PAIR_LEN - OFF_SELF_GID) ? 0 : -EPROTO;

	memcpy(v->self.gid, buf + OFF_SELF_GID, SWP_PAIR_GID_LEN);
	memcpy(v->peer.gid, buf + OFF_PEER_GID, SWP_PAIR_GID_LEN);
	v->self.qpn = get32(buf + OFF_SELF_QPN);
	v->peer.qpn = get32(buf + OFF_PEER_QPN);
	v->recv_psn = get32(buf + OFF_RECV_PSN);
	v->send_psn = get32(buf + OFF_SEND_PSN);
	return view_ok(v) ? 0 : -EPROTO;
}

static bool same_end(const struct swp_pair_end *a, const struct swp_pair_end *b)
{
	return a->qpn == b->qpn && !memcmp(a->gid, b->gid, sizeof(a->gid));
}

enum swp_pair_verdict swp_pair_compare(const struct swp_pair_view *ours,
				       const struct swp_pair_view *theirs)
{
	bool sends = ours->send_psn != SWP_PAIR_PSN_NONE;
	bool receives = theirs->send_psn != SWP_PAIR_PSN_NONE;

	if (!same_end(&ours->self, &theirs->peer) ||
	    !same_end(&ours->peer, &theirs->self))
		return SWP_PAIR_STRANGER;
	if (!sends && !receives)
		return SWP_PAIR_TOO_EARLY;
	if ((sends && ours->send_psn != theirs->recv_psn) ||
	    (receives && theirs->send_psn != ours->recv_psn))
		return SWP_PAIR_PSN_DIFFERS;
	return SWP_PAIR_FITS;
}

int swp_pair_order(const struct swp_pair_end *a, const struct swp_pair_end *b)
{
	int order = memcmp(a->gid, b->gid, sizeof(a->gid));

	if (order)
		return order;
	return a->qpn < b->qpn ? -1 : a->qpn > b->qpn;
}

__u32 swp_pair_pause(__u32 attempt)
{
	/* 5 ms << 8 is more than the maximum */
	if (attempt >= 8)
		return SWP_PAIR_PAUSE_MAX;
	return SWP_PAIR_PAUSE_MIN << attempt;
}

__u32 swp_pair_patience(__u8 timeout, __u8 retries, __u32 least, __u32 most)
{
	/*
	 * timeout has 5 bits, retries 3.  4.096 us are 4096 ns; 2^20 of them
	 * are near enough to a millisecond, and need no division.
	 */
	__u64 ms = ((4096ULL << (timeout & 31)) >> 20) * ((retries & 7) + 1U);

	if (!(timeout & 31) || ms > most)
		return most;
	if (ms < least)
		return least < most ? least : most;
	return (__u32)ms;
}

static enum swp_gid_kind kind_of_ipv4(const __u8 *ip)
{
	/* 0.0.0.0/8, and multicast, reserved and broadcast from 224.0.0.0 on */
	return !ip[0] || ip[0] >= 224 ? SWP_GID_NOBODY : SWP_GID_IPV4;
}

enum swp_gid_kind swp_gid_kind(const __u8 gid[SWP_PAIR_GID_LEN])
{
	if (all_zero(gid, 10) && gid[10] == 0xff && gid[11] == 0xff)
		return kind_of_ipv4(gid + 12);
	if (all_zero(gid, SWP_PAIR_GID_LEN) || gid[0] == 0xff)
		return SWP_GID_NOBODY;
	if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80)
		return SWP_GID_LINK_LOCAL;
	if (all_zero(gid + 6, 10))
		return SWP_GID_MAC;
	return SWP_GID_IPV6;
}

void swp_gid_from_mac(const __u8 gid[SWP_PAIR_GID_LEN],
		      __u8 addr[SWP_PAIR_GID_LEN])
{
	/* RFC 4291 appendix A */
	const __u8 result[SWP_PAIR_GID_LEN] = {
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, gid[0] ^ 2, gid[1], gid[2],
		0xff, 0xfe, gid[3], gid[4], gid[5]
	};

	memcpy(addr, result, sizeof(result));
}
