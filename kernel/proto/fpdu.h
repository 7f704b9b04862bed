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
#define SWP_ULPDU_MAX	65535	/* limit of the field; a receiver accepts it */
#define SWP_FPDU_MAX	(SWP_MPA_LEN + SWP_ULPDU_MAX + 3 + SWP_MPA_CRC_LEN)

/*
 * RFC 5044 section 3: the sender makes no longer ULPDU, however large the EMSS.
 * The FPDU of such a ULPDU fills an EMSS of SWP_EMSS_MAX.
 */
#define SWP_MULPDU_MAX	64768
#define SWP_EMSS_MAX	(SWP_MPA_LEN + SWP_MULPDU_MAX + 2 + SWP_MPA_CRC_LEN)

/* RFC 5044 section 4.1: pad makes length field, ULPDU and pad a multiple of 4 */
static inline __u32 swp_fpdu_pad(__u32 ulpdu)
{
	return -(SWP_MPA_LEN + ulpdu) & 3;
}

/* Octets of a whole FPDU without markers; @ulpdu is at most SWP_ULPDU_MAX */
static inline __u32 swp_fpdu_len(__u32 ulpdu)
{
	return SWP_MPA_LEN + ulpdu + swp_fpdu_pad(ulpdu) + SWP_MPA_CRC_LEN;
}

/* Largest ULPDU to send whose FPDU fits @room octets; 0 if none fits */
static inline __u32 swp_ulpdu_fit(__u32 room)
{
	room &= ~3U;
	if (room < SWP_MPA_LEN + SWP_MPA_CRC_LEN + 2)
		return 0;
	room -= SWP_MPA_LEN + SWP_MPA_CRC_LEN;
	return room > SWP_MULPDU_MAX ? SWP_MULPDU_MAX : room;
}

/*
 * Markers (RFC 5044 section 4.3).  A position counts the octets in one
 * direction of the stream, from the first one after the start-up frame.  It may
 * wrap: 512 divides 2^32, so no marker moves.  FPDUs begin at multiples of 4.
 */
#define SWP_MARKER_LEN		4
#define SWP_MARKER_DISTANCE	512	/* from one marker to the next */

/* Octets from @pos to the next marker; 0 if there is one at @pos */
static inline __u32 swp_marker_gap(__u32 pos)
{
	return -pos & (SWP_MARKER_DISTANCE - 1);
}

/* Position of the ULPDU_Length field of an FPDU that begins at @pos */
static inline __u32 swp_fpdu_head(__u32 pos)
{
	return pos + (swp_marker_gap(pos) ? 0 : SWP_MARKER_LEN);
}

/*
 * FPDUPTR of the marker at @pos in the FPDU whose ULPDU_Length is at @head: the
 * distance between the two, 0 for a marker directly before ULPDU_Length.
 */
static inline __u16 swp_fpduptr(__u32 pos, __u32 head)
{
	return head - pos == SWP_MARKER_LEN ? 0 : (__u16)(pos - head);
}

/* Octets with markers of the first @n octets of an FPDU that begins at @pos */
static inline __u32 swp_marked_len(__u32 pos, __u32 n)
{
	__u32 gap = swp_marker_gap(pos);

	if (n <= gap)
		return n;
	return n + SWP_MARKER_LEN *
		   (1 + (n - gap - 1) / (SWP_MARKER_DISTANCE - SWP_MARKER_LEN));
}

/* Of @room octets from @pos on (a multiple of 4), those that are not markers */
static inline __u32 swp_marked_fit(__u32 pos, __u32 room)
{
	__u32 gap = swp_marker_gap(pos);

	if (room <= gap)
		return room;
	return room - SWP_MARKER_LEN *
		      (1 + (room - gap - 1) / SWP_MARKER_DISTANCE);
}

/*
 * RFC 5044 section 4.5: the MULPDU for an EMSS, that is the largest ULPDU that
 * fits wherever the markers are in the FPDU.
 */
static inline __u32 swp_mulpdu(__u32 emss, bool markers)
{
	__u32 less = SWP_MPA_LEN + SWP_MPA_CRC_LEN + emss % 4;

	if (markers)
		less += SWP_MARKER_LEN *
			((emss + SWP_MARKER_DISTANCE - 1) / SWP_MARKER_DISTANCE);
	if (emss <= less)
		return 0;
	return emss - less > SWP_MULPDU_MAX ? SWP_MULPDU_MAX : emss - less;
}

/*
 * RFC 5044 section 5: when the EMSS leaves less than this for a ULPDU, FPDUs
 * span segments instead.  swp_cut() relies on all headers being shorter.
 */
#define SWP_MULPDU_MIN	128

/*
 * Where no link cuts TCP's packets into segments, an FPDU may be as long as many
 * of them: it costs as much as a short one, but for its octets.  Four of these
 * fit into the largest packet.
 */
#define SWP_LARGE_FPDU	15000

/*
 * swp_fpdu_unit - octets after which FPDUs begin, in place of each segment
 * @mss: octets per TCP segment
 * @room: octets that the packet can have, from its first one
 * @most: octets up to which an FPDU may span segments
 *
 * Returns a multiple of @mss, so that FPDUs still begin where segments do.
 */
static inline __u32 swp_fpdu_unit(__u32 mss, __u32 room, __u32 most)
{
	__u32 n = (room < most ? room : most) / mss;

	return n > 1 ? n * mss : mss;
}

/*
 * swp_fpdu_span - where the unit ends in which the next FPDU begins
 * @unit: of swp_fpdu_unit()
 * @pos: octets already in the unit, < @unit
 * @room: octets that still fit into the packet, > 0
 *
 * A packet ends with what is left of its last unit.  Returns @unit or less, in
 * octets from the same start as @pos.
 */
static inline __u32 swp_fpdu_span(__u32 unit, __u32 pos, __u32 room)
{
	return room < unit - pos ? pos + room : unit;
}

/*
 * Less room than this is not worth an FPDU with the head of a message: the TCP
 * segment ends short instead.
 */
#define SWP_MIN_FILL	128

/*
 * swp_cut - choose the payload of the next FPDU.
 * @mss: octets per TCP segment, or of swp_fpdu_span(); a multiple of 4
 * @pos: octets already in the current segment, < @mss
 * @hdr: octets of header in front of the payload, < SWP_MULPDU_MIN
 * @left: payload octets left of the message, up to 2^32 - 1, which the peer
 *        chooses for a read: so compare it before adding anything to it
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

	if (left <= SWP_MULPDU_MAX - hdr && swp_fpdu_len(hdr + left) <= room) {
		*payload = left;
		return true;
	}
	if (fit >= SWP_MULPDU_MIN && (!pos || fit - hdr >= SWP_MIN_FILL)) {
		*payload = fit - hdr;
		return true;
	}
	if (pos)
		return false;
	*payload = left < SWP_MULPDU_MIN - hdr ? left : SWP_MULPDU_MIN - hdr;
	return true;
}

/*
 * swp_cut_marked - the same with markers; @stream: position of the FPDU.
 *
 * The number of markers varies between FPDUs, so a few octets of a segment may
 * remain behind the largest ULPDU allowed; then it ends short, and the next
 * FPDU still starts on a cut.
 */
static inline bool swp_cut_marked(__u32 mss, __u32 pos, __u32 stream, __u32 hdr,
				  __u32 left, __u32 *payload)
{
	/* of what was sent before, as a start-up frame, any length is possible */
	__u32 room = (mss - pos) & ~3U;
	__u32 most = swp_mulpdu(mss, true);
	__u32 fit = swp_ulpdu_fit(swp_marked_fit(stream, room));

	if (fit > most)
		fit = most;
	if (hdr <= most && left <= most - hdr &&
	    swp_marked_len(stream, swp_fpdu_len(hdr + left)) <= room) {
		*payload = left;
		return true;
	}
	if (fit >= SWP_MULPDU_MIN && (!pos || fit - hdr >= SWP_MIN_FILL)) {
		*payload = fit - hdr;
		return true;
	}
	if (pos)
		return false;
	*payload = left < SWP_MULPDU_MIN - hdr ? left : SWP_MULPDU_MIN - hdr;
	return true;
}

#endif /* SWP_PROTO_FPDU_H */
