/* SPDX-License-Identifier: GPL-2.0 */
/*
 * FPDU arithmetic (RFC 5044 section 4): lengths, pads, and where to cut a DDP
 * message so that FPDUs start where TCP starts its segments.  Pure code.
 */
#ifndef SWP_PROTO_FPDU_H
#define SWP_PROTO_FPDU_H

#include "base.h"

#define SWP_MPA_LEN	2	/* ULPDU_Length field */
#define SWP_MPA_CRC_LEN	4
#define SWP_ULPDU_MAX	65535
#define SWP_FPDU_MAX	(SWP_MPA_LEN + SWP_ULPDU_MAX + 3 + SWP_MPA_CRC_LEN)

/* RFC 5044 section 4.1: pad makes length field, ULPDU and pad a multiple of 4 */
static inline __u32 swp_fpdu_pad(__u32 ulpdu)
{
	return -(SWP_MPA_LEN + ulpdu) & 3;
}

/* Octets of a whole FPDU without markers */
static inline __u32 swp_fpdu_len(__u32 ulpdu)
{
	return SWP_MPA_LEN + ulpdu + swp_fpdu_pad(ulpdu) + SWP_MPA_CRC_LEN;
}

/* Largest ULPDU whose FPDU fits @room octets; 0 when none does */
static inline __u32 swp_ulpdu_fit(__u32 room)
{
	room &= ~3U;
	if (room < SWP_MPA_LEN + SWP_MPA_CRC_LEN + 2)
		return 0;
	room -= SWP_MPA_LEN + SWP_MPA_CRC_LEN;
	/* the largest length that needs no pad and still fits 16 bits */
	return room > SWP_ULPDU_MAX - 1 ? SWP_ULPDU_MAX - 1 : room;
}

/*
 * Filling less than this with the head of a message is not worth an FPDU: the
 * TCP segment is closed short instead.
 */
#define SWP_MIN_FILL	128

/*
 * swp_cut - choose the payload of the next FPDU.
 * @mss: octets per TCP segment, a multiple of 4
 * @pos: octets the segment that is being filled holds already, < @mss
 * @hdr: octets of header in front of the payload
 * @left: payload octets the message still has
 * @payload: result
 *
 * Returns true when the FPDU goes into the segment at @pos, false when that
 * segment has to be ended first (the caller then asks again with @pos 0).
 *
 * A message that fits what is left of the segment goes there whole; otherwise
 * its head fills the segment exactly, so that the next FPDU starts on the cut
 * that TCP will make.  With @pos 0 the answer is always true.
 */
static inline bool swp_cut(__u32 mss, __u32 pos, __u32 hdr, __u32 left,
			   __u32 *payload)
{
	__u32 room = mss - pos;
	__u32 fit = swp_ulpdu_fit(room);

	if (left <= SWP_ULPDU_MAX - hdr && swp_fpdu_len(hdr + left) <= room) {
		*payload = left;
		return true;
	}
	if (fit > hdr && (!pos || fit - hdr >= SWP_MIN_FILL)) {
		*payload = fit - hdr;
		return true;
	}
	if (pos)
		return false;
	/*
	 * RFC 5044 section 5: a useless EMSS does not stop the stream, FPDUs
	 * then just span segments.
	 */
	*payload = left < SWP_MIN_FILL ? left : SWP_MIN_FILL;
	return true;
}

#endif /* SWP_PROTO_FPDU_H */
