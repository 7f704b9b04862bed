// SPDX-License-Identifier: GPL-2.0
/*
 * MPA start-up frames and negotiation.  Pure code; called by the connection
 * manager and by the unit tests.
 */
#include "mpa.h"

static const __u8 request_key[SWP_MPA_KEY_LEN] = {
	'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 'e', 'q', ' ', 'F', 'r', 'a',
	'm', 'e'
};

static const __u8 reply_key[SWP_MPA_KEY_LEN] = {
	'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 'e', 'p', ' ', 'F', 'r', 'a',
	'm', 'e'
};

/* Offsets of the fields behind the key */
enum {
	OFF_FLAGS	= 16,
	OFF_REV		= 17,
	OFF_PD_LEN	= 18,
};

/* The two 16-bit words of the enhanced data */
enum {
	ENH_A		= 0x8000,	/* first word, with IRD */
	ENH_B		= 0x4000,
	ENH_C		= 0x8000,	/* second word, with ORD */
	ENH_D		= 0x4000,
	ENH_DEPTH	= 0x3fff,
};

static __u16 get16(const __u8 *p)
{
	return (__u16)(p[0] << 8 | p[1]);
}

static void put16(__u8 *p, __u16 v)
{
	p[0] = (__u8)(v >> 8);
	p[1] = (__u8)v;
}

static __u16 min16(__u16 a, __u16 b)
{
	return a < b ? a : b;
}

static __u16 max16(__u16 a, __u16 b)
{
	return a > b ? a : b;
}

static void decode_enhanced(const __u8 *p, struct swp_mpa_frame *f)
{
	__u16 first = get16(p);
	__u16 second = get16(p + 2);

	f->p2p = first & ENH_A;
	f->ird = first & ENH_DEPTH;
	f->ord = second & ENH_DEPTH;
	/* RFC 6581 section 9.2: B, C and D mean nothing without A */
	if (!f->p2p)
		return;
	if (first & ENH_B)
		f->rtr |= SWP_RTR_SEND;
	if (second & ENH_C)
		f->rtr |= SWP_RTR_WRITE;
	if (second & ENH_D)
		f->rtr |= SWP_RTR_READ;
}

/* Revision 0 needs both markers and CRC, except in a rejection. */
static bool rdmac_flags_ok(enum swp_mpa_kind kind, __u8 flags)
{
	const __u8 both = SWP_MPA_F_MARKERS | SWP_MPA_F_CRC;

	return (flags & both) == both ||
	       (kind == SWP_MPA_REPLY && (flags & SWP_MPA_F_REJECT));
}

int swp_mpa_decode(enum swp_mpa_kind kind, __u8 min_rev, __u8 max_rev,
		   const __u8 *buf, size_t len, struct swp_mpa_frame *f,
		   size_t *need)
{
	const __u8 *key = kind == SWP_MPA_REQUEST ? request_key : reply_key;
	size_t n = len < SWP_MPA_KEY_LEN ? len : SWP_MPA_KEY_LEN;
	bool enhanced;
	__u16 pd_len;

	/* fail on the first wrong octet: more octets would not help */
	if (memcmp(buf, key, n))
		return -EBADMSG;
	if (len < SWP_MPA_HDR_LEN) {
		*need = SWP_MPA_HDR_LEN;
		return -EAGAIN;
	}

	if (buf[OFF_REV] < min_rev || buf[OFF_REV] > max_rev)
		return -EPROTONOSUPPORT;
	if (buf[OFF_REV] == SWP_MPA_REV_RDMAC &&
	    !rdmac_flags_ok(kind, buf[OFF_FLAGS]))
		return -EPROTO;
	pd_len = get16(buf + OFF_PD_LEN);
	if (pd_len > SWP_MPA_PD_MAX)
		return -EMSGSIZE;
	/* in revision 1 the flag is a reserved bit, so ignore it there */
	enhanced = buf[OFF_REV] >= 2 && (buf[OFF_FLAGS] & SWP_MPA_F_ENHANCED);
	if (enhanced && pd_len < SWP_MPA_ENH_LEN)
		return -EPROTO;

	*need = SWP_MPA_HDR_LEN + pd_len;
	if (len < *need)
		return -EAGAIN;

	memset(f, 0, sizeof(*f));
	f->rev = buf[OFF_REV];
	f->markers = buf[OFF_FLAGS] & SWP_MPA_F_MARKERS;
	f->crc = buf[OFF_FLAGS] & SWP_MPA_F_CRC;
	/* RFC 5044 section 7.1.1: R is not checked in a Request */
	f->reject = kind == SWP_MPA_REPLY &&
		    (buf[OFF_FLAGS] & SWP_MPA_F_REJECT);
	f->enhanced = enhanced;
	f->pd = buf + SWP_MPA_HDR_LEN;
	f->pd_len = pd_len;
	if (enhanced) {
		decode_enhanced(f->pd, f);
		f->pd += SWP_MPA_ENH_LEN;
		f->pd_len -= SWP_MPA_ENH_LEN;
	}
	return 0;
}

int swp_mpa_encode(enum swp_mpa_kind kind, const struct swp_mpa_frame *f,
		   __u8 *buf)
{
	__u32 pd_len = (__u32)f->pd_len + (f->enhanced ? SWP_MPA_ENH_LEN : 0);
	__u8 *p = buf + SWP_MPA_HDR_LEN;
	__u16 first, second;

	if (pd_len > SWP_MPA_PD_MAX)
		return -EMSGSIZE;

	memcpy(buf, kind == SWP_MPA_REQUEST ? request_key : reply_key,
	       SWP_MPA_KEY_LEN);
	buf[OFF_FLAGS] = (__u8)((f->markers ? SWP_MPA_F_MARKERS : 0) |
				(f->crc ? SWP_MPA_F_CRC : 0) |
				(f->enhanced ? SWP_MPA_F_ENHANCED : 0));
	if (kind == SWP_MPA_REPLY && f->reject)
		buf[OFF_FLAGS] |= SWP_MPA_F_REJECT;
	buf[OFF_REV] = f->rev;
	put16(buf + OFF_PD_LEN, (__u16)pd_len);

	if (f->enhanced) {
		first = f->ird & ENH_DEPTH;
		second = f->ord & ENH_DEPTH;
		if (f->p2p) {
			first |= ENH_A;
			first |= f->rtr & SWP_RTR_SEND ? ENH_B : 0;
			second |= f->rtr & SWP_RTR_WRITE ? ENH_C : 0;
			second |= f->rtr & SWP_RTR_READ ? ENH_D : 0;
		}
		put16(p, first);
		put16(p + 2, second);
		p += SWP_MPA_ENH_LEN;
	}
	if (f->pd_len)
		memcpy(p, f->pd, f->pd_len);
	return (int)(SWP_MPA_HDR_LEN + pd_len);
}

void swp_mpa_request(const struct swp_mpa_local *l, __u8 rev,
		     struct swp_mpa_frame *req)
{
	memset(req, 0, sizeof(*req));
	req->rev = SWP_MPA_REV_MIN;
	req->crc = l->crc;
	req->markers = l->markers;
	if (rev < 2 || !(l->p2p || l->ird || l->ord))
		return;
	req->rev = rev;
	req->enhanced = true;
	req->p2p = l->p2p;
	req->rtr = l->p2p ? l->rtr : 0;
	req->ird = min16(l->ird, l->max_ird);
	req->ord = l->ord;
}

/* RFC 6581 section 9.1: IRD follows the initiator's ORD, ORD its IRD. */
static void respond_depths(const struct swp_mpa_local *l,
			   const struct swp_mpa_frame *req,
			   struct swp_mpa_frame *rep,
			   struct swp_mpa_result *res)
{
	__u16 ird = min16(l->ird, l->max_ird);
	/* a Read RTR needs an IRD of 1, even if the ULP wants no reads */
	__u16 rtr = rep->rtr & SWP_RTR_READ ? 1 : 0;

	if (req->ord == SWP_MPA_DEPTH_NONE) {
		res->ird = max16(ird, rtr);
		rep->ird = SWP_MPA_DEPTH_NONE;
	} else {
		res->ird = min16(max16(req->ord, ird), l->max_ird);
		res->ird = max16(res->ird, rtr);
		rep->ird = res->ird;
	}

	if (req->ird == SWP_MPA_DEPTH_NONE) {
		res->ord = l->ord;
		rep->ord = SWP_MPA_DEPTH_NONE;
	} else {
		res->ord = min16(l->ord, req->ird);
		rep->ord = res->ord;
	}
}

static void respond_enhanced(const struct swp_mpa_local *l,
			     const struct swp_mpa_frame *req,
			     struct swp_mpa_frame *rep,
			     struct swp_mpa_result *res)
{
	rep->enhanced = true;
	rep->p2p = req->p2p;
	if (req->p2p) {
		/* RFC 6581 section 9.2: not 0, even if no kind is common */
		rep->rtr = req->rtr & l->rtr;
		if (!rep->rtr)
			rep->rtr = l->rtr;
		res->rtr = rep->rtr;
	}
	respond_depths(l, req, rep, res);
}

void swp_mpa_respond(const struct swp_mpa_local *l,
		     const struct swp_mpa_frame *req, struct swp_mpa_frame *rep,
		     struct swp_mpa_result *res)
{
	memset(res, 0, sizeof(*res));
	memset(rep, 0, sizeof(*rep));
	rep->rev = req->rev;
	/* RFC 5044 section 7.1.1: CRC is used when either end wants it */
	res->crc = l->crc || req->crc;
	rep->crc = res->crc;
	/* RFC 5044 section 4.3: each end decides for what it receives */
	rep->markers = l->markers || req->rev == SWP_MPA_REV_RDMAC;
	res->rx_markers = rep->markers;
	res->tx_markers = req->markers;

	if (req->enhanced) {
		respond_enhanced(l, req, rep, res);
		return;
	}
	/* the initiator's ORD is unknown, so allow the maximum */
	res->ird = l->max_ird;
	res->ord = l->ord;
}

void swp_mpa_refuse(const struct swp_mpa_local *l,
		    const struct swp_mpa_frame *req, struct swp_mpa_frame *rep)
{
	struct swp_mpa_result res;

	memset(rep, 0, sizeof(*rep));
	rep->rev = req->rev;
	rep->crc = l->crc || req->crc;
	rep->markers = req->rev == SWP_MPA_REV_RDMAC;
	rep->reject = true;
	if (req->enhanced)
		respond_enhanced(l, req, rep, &res);
}

enum swp_mpa_verdict swp_mpa_conclude(const struct swp_mpa_local *l,
				      const struct swp_mpa_frame *req,
				      const struct swp_mpa_frame *rep,
				      struct swp_mpa_result *res)
{
	__u16 ird = min16(l->ird, l->max_ird);
	__u8 common;

	memset(res, 0, sizeof(*res));
	/* check this first: a peer that rejects may not know enhanced frames */
	if (rep->reject)
		return SWP_MPA_REJECTED;
	if (rep->enhanced != req->enhanced)
		return SWP_MPA_INVALID;

	res->crc = req->crc || rep->crc;
	/* RFC 5044 section C.2.5: revision 0 has markers, requested or not */
	res->rx_markers = req->markers || rep->rev == SWP_MPA_REV_RDMAC;
	res->tx_markers = rep->markers;
	if (!req->enhanced) {
		res->ird = l->max_ird;
		res->ord = l->ord;
		return SWP_MPA_AGREED;
	}

	res->ord = l->ord;
	if (rep->ird != SWP_MPA_DEPTH_NONE)
		res->ord = min16(l->ord, rep->ird);

	res->ird = ird;
	if (rep->ord != SWP_MPA_DEPTH_NONE) {
		if (rep->ord > l->max_ird)
			return SWP_MPA_NO_IRD;
		res->ird = max16(ird, rep->ord);
	}

	/* A=1 asks for an RTR, even in a Reply that should have A=0 */
	if (!req->p2p && !rep->p2p)
		return SWP_MPA_AGREED;
	common = l->rtr & rep->rtr;
	if (common & SWP_RTR_WRITE) {
		res->rtr = SWP_RTR_WRITE;
	} else if (common & SWP_RTR_READ) {
		res->rtr = SWP_RTR_READ;
		res->ord = max16(res->ord, 1);
	} else if (common & SWP_RTR_SEND) {
		res->rtr = SWP_RTR_SEND;
	} else {
		return SWP_MPA_NO_RTR;
	}
	return SWP_MPA_AGREED;
}
