// SPDX-License-Identifier: GPL-2.0
/*
 * Finds FPDUs in the TCP stream, with markers or without, for rx.c.
 *
 * It passes on only complete FPDUs, so no octet is placed before its CRC is
 * checked, and the only state between calls is the unfinished FPDU.  An FPDU
 * that spans skbs (the peer does not align, or the path MTU has changed) is
 * assembled in a side buffer first.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "crc.h"
#include "reads.h"
#include "skbcur.h"

/*
 * @need: octets that have arrived, not those that the peer has announced: three
 * octets of a 64 KiB FPDU must not make us allocate 64 KiB.
 */
static bool grow_asm(struct swp_qp *qp, u32 need)
{
	struct swp_rx *rx = &qp->rx;
	u8 *buf;

	swp_qp_assert_owned(qp);
	if (need <= rx->asm_size)
		return true;
	need = roundup_pow_of_two(max(need, 256U));
	buf = swp_qp_alloc(qp, need);
	if (!buf)
		return false;
	memcpy(buf, rx->asm_buf, rx->asm_len);
	kvfree(rx->asm_buf);
	rx->asm_buf = buf;
	rx->asm_size = need;
	return true;
}

/* An idle stream keeps no side buffer: it may be long until the next FPDU. */
static void drop_asm(struct swp_rx *rx)
{
	kvfree(rx->asm_buf);
	rx->asm_buf = NULL;
	rx->asm_size = 0;
}

/*
 * Adds octets to the FPDU in the side buffer; handles the FPDU when it is
 * complete.  Returns the number of octets taken, < 0 on error.
 */
static int assemble(struct swp_qp *qp, struct swp_cur *c, u32 avail)
{
	struct swp_rx *rx = &qp->rx;
	u32 taken = 0, want, need, n;
	struct swp_cur flat;
	u32 ulpdu;
	int ret;

	swp_qp_assert_owned(qp);
	while (taken < avail) {
		if (rx->asm_len < SWP_MPA_LEN) {
			want = SWP_MPA_LEN;
		} else {
			ulpdu = rx->asm_buf[0] << 8 | rx->asm_buf[1];
			want = swp_fpdu_len(ulpdu);
		}
		n = min(want - rx->asm_len, avail - taken);
		need = rx->asm_len + n;
		/* the octets behind the length most likely belong to it, too */
		if (want == SWP_MPA_LEN)
			need = min(rx->asm_len + avail - taken, 2048U);
		/* report the octets taken before as taken */
		if (!grow_asm(qp, need))
			return taken ? (int)taken : -ENOMEM;
		swp_cur_copy(c, rx->asm_buf + rx->asm_len, n);
		rx->asm_len += n;
		taken += n;
		if (rx->asm_len < want)
			break;
		if (want == SWP_MPA_LEN)
			continue;
		rx->asm_len = 0;
		swp_cur_flat(&flat, rx->asm_buf, want);
		swp_qp_stat_inc(qp, RX_SPLIT);
		ret = swp_rx_fpdu(qp, flat, ulpdu);
		return ret < 0 ? ret : taken;
	}
	return taken;
}

/* TCP keeps the octets not taken; schedule a retry. */
static void starve(read_descriptor_t *desc)
{
	struct swp_qp *qp = desc->arg.data;

	swp_qp_assert_owned(qp);
	desc->count = 0;
	qp->rx.starved = true;
	/* the limit may be the program's memcg, and so last for any time */
	swp_qp_kick_later(qp);
}

/* tcp_read_sock() actor: @len octets of @skb from @off on are new. */
static int rx_skb(read_descriptor_t *desc, struct sk_buff *skb,
		  unsigned int off, size_t len)
{
	struct swp_qp *qp = desc->arg.data;
	struct swp_rx *rx = &qp->rx;
	struct swp_cur c;
	u32 pos = 0;
	int ret;

	swp_qp_assert_owned(qp);
	if (rx->swallow)
		return len;
	swp_cur_skb(&c, skb, off);
	while (pos < len && !rx->swallow) {
		u32 left = len - pos, ulpdu, fpdu;
		struct swp_cur at = c;
		u8 l[2];

		if (unlikely(!swp_iread_room(qp))) {
			starve(desc);
			return pos;
		}
		if (rx->asm_len || left < SWP_MPA_LEN)
			goto split;
		swp_cur_copy(&at, l, sizeof(l));
		ulpdu = l[0] << 8 | l[1];
		fpdu = swp_fpdu_len(ulpdu);
		if (fpdu > left)
			goto split;
		ret = swp_rx_fpdu(qp, c, ulpdu);
		if (ret < 0)
			return len;	/* the stream failed: drop the rest */
		swp_cur_skip(&c, fpdu);
		pos += fpdu;
		continue;
split:
		ret = assemble(qp, &c, left);
		if (ret == -ENOMEM) {
			starve(desc);
			return pos;
		}
		if (ret < 0)
			return len;
		pos += ret;
	}
	return len;
}

/*
 * With markers, every FPDU is assembled without them in the side buffer, and
 * its CRC is computed meanwhile.  Markers are for receivers that have to find
 * an FPDU in the middle of a stream; this one only checks and discards them.
 */

/*
 * RFC 5044 section 8: it is an error if a marker and the lengths so far
 * disagree on where the FPDU begins.  With CRC, check the CRC first: if it is
 * wrong, too, report that, because then the octets are not those that the peer
 * sent.
 */
static int got_marker(struct swp_qp *qp)
{
	struct swp_rx *rx = &qp->rx;
	u32 pos = rx->stream - SWP_MARKER_LEN;
	u16 want = rx->asm_len ? swp_fpduptr(pos, rx->head) : 0;

	swp_qp_assert_owned(qp);
	if (qp->sp.crc)
		rx->crc = swp_crc32c(rx->crc, rx->marker, SWP_MARKER_LEN);
	/* take the two low bits as zero; ignore the first two octets */
	if (((rx->marker[2] << 8 | rx->marker[3]) & ~3) == want)
		return 0;
	rx->marker_bad = true;
	return qp->sp.crc ? 0 : swp_rx_mpa_error(qp, SWP_FAULT_MPA_MARKER);
}

static int got_marked(struct swp_qp *qp, u32 ulpdu)
{
	struct swp_rx *rx = &qp->rx;
	u32 len = swp_fpdu_len(ulpdu);
	u32 crc = ~rx->crc;
	struct swp_cur flat;

	swp_qp_assert_owned(qp);
	swp_qp_stat_inc(qp, RX_FPDU);
	swp_qp_stat_add(qp, RX_BYTES, ulpdu);
	rx->asm_len = 0;
	rx->end = rx->stream;
	rx->crc = ~0U;
	if (qp->sp.crc &&
	    get_unaligned_le32(rx->asm_buf + len - SWP_MPA_CRC_LEN) != crc)
		return swp_rx_mpa_error(qp, SWP_FAULT_MPA_CRC);
	if (rx->marker_bad)
		return swp_rx_mpa_error(qp, SWP_FAULT_MPA_MARKER);
	swp_cur_flat(&flat, rx->asm_buf, len);
	return swp_rx_ulpdu(qp, flat, ulpdu);
}

/* Takes octets, all of one kind.  Returns their number, or < 0 on error. */
static int take_marked(struct swp_qp *qp, struct swp_cur *c, u32 avail)
{
	struct swp_rx *rx = &qp->rx;
	u32 in_marker = rx->stream % SWP_MARKER_DISTANCE;
	u32 ulpdu = 0, len = 0, stop, n;
	int ret = 0;

	swp_qp_assert_owned(qp);
	if (in_marker < SWP_MARKER_LEN) {
		n = min(avail, SWP_MARKER_LEN - in_marker);
		swp_cur_copy(c, rx->marker + in_marker, n);
		rx->stream += n;
		if (in_marker + n == SWP_MARKER_LEN)
			ret = got_marker(qp);
		return ret < 0 ? ret : (int)n;
	}

	if (!rx->asm_len)
		rx->head = rx->stream;
	if (rx->asm_len < SWP_MPA_LEN) {
		stop = SWP_MPA_LEN;
	} else {
		ulpdu = rx->asm_buf[0] << 8 | rx->asm_buf[1];
		len = swp_fpdu_len(ulpdu);
		stop = len - SWP_MPA_CRC_LEN;
		if (rx->asm_len >= stop)
			stop = len;
	}
	/* grow it for all of @avail, not again between every two markers */
	if (!grow_asm(qp, min(max(stop, len), rx->asm_len + avail)))
		return -ENOMEM;
	n = min3(stop - rx->asm_len, avail, swp_marker_gap(rx->stream));
	swp_cur_copy(c, rx->asm_buf + rx->asm_len, n);
	if (qp->sp.crc && stop != len)
		rx->crc = swp_crc32c(rx->crc, rx->asm_buf + rx->asm_len, n);
	rx->asm_len += n;
	rx->stream += n;
	if (rx->asm_len == len)
		ret = got_marked(qp, ulpdu);
	return ret < 0 ? ret : (int)n;
}

static int rx_marked(read_descriptor_t *desc, struct sk_buff *skb,
		     unsigned int off, size_t len)
{
	struct swp_qp *qp = desc->arg.data;
	struct swp_rx *rx = &qp->rx;
	struct swp_cur c;
	u32 pos = 0;
	int ret;

	swp_qp_assert_owned(qp);
	if (rx->swallow)
		return len;
	swp_cur_skb(&c, skb, off);
	while (pos < len && !rx->swallow) {
		ret = swp_iread_room(qp) ? take_marked(qp, &c, len - pos) :
					 -ENOMEM;
		if (ret == -ENOMEM) {
			starve(desc);
			return pos;
		}
		if (ret < 0)
			return len;
		pos += ret;
	}
	return len;
}

/* Takes over a side buffer that a caller that may sleep has allocated. */
void swp_rx_feed(struct swp_qp *qp, u8 *buf, u32 size)
{
	struct swp_rx *rx = &qp->rx;

	swp_qp_assert_owned(qp);
	if (!rx->starved || rx->swallow || size <= rx->asm_size) {
		kvfree(buf);
	} else {
		memcpy(buf, rx->asm_buf, rx->asm_len);
		kvfree(rx->asm_buf);
		rx->asm_buf = buf;
		rx->asm_size = size;
	}
	swp_rx_run(qp);
}

/* tcp_read_sock() continues until desc->count is 0. */
static int rx_actor(read_descriptor_t *desc, struct sk_buff *skb,
		    unsigned int off, size_t len)
{
	struct swp_qp *qp = desc->arg.data;
	int taken;

	swp_qp_assert_owned(qp);
	if (unlikely(!swp_skb_is_readable(skb))) {
		/* no processor can read them: the stream was steered to a queue of devmem TCP */
		swp_qp_fail(qp, SWP_FAULT_MPA_LOCAL, NULL, 0, 0, NULL);
		taken = len;
	} else {
		taken = unlikely(qp->sp.rx_markers) ?
				rx_marked(desc, skb, off, len) :
				rx_skb(desc, skb, off, len);
	}
	desc->count -= min_t(size_t, desc->count, taken);
	return taken;
}

bool swp_rx_some(struct swp_qp *qp, size_t octets)
{
	read_descriptor_t desc = { .arg.data = qp, .count = octets };
	struct swp_rx *rx = &qp->rx;

	swp_qp_assert_owned(qp);
	if (rx->running)
		return false;
	rx->running = true;
	rx->starved = false;
	tcp_read_sock(qp->llp->sk, &desc, rx_actor);
	if (rx->asm_buf && (!rx->asm_len || rx->swallow))
		drop_asm(rx);
	qp->stats.v[SWP_STAT_RX_OOO] = swp_llp_out_of_order(qp->llp);
	rx->running = false;
	if (rx->posted) {
		rx->posted = false;
		swp_tx_run(qp);
	}
	/* without memory the retry continues */
	return !desc.count && !rx->starved;
}

void swp_rx_near(struct swp_qp *qp, const struct bio_vec *bv, u32 num, u32 len)
{
	struct swp_rx *rx = &qp->rx;
	struct swp_cur c, at;
	u32 ulpdu, fpdu;
	u8 l[2];

	swp_qp_assert_owned(qp);
	rx->running = true;
	swp_cur_parts(&c, bv, num);
	while (len && !rx->swallow) {
		at = c;
		swp_cur_copy(&at, l, sizeof(l));
		ulpdu = l[0] << 8 | l[1];
		fpdu = swp_fpdu_len(ulpdu);
		if (WARN_ON_ONCE(fpdu > len))
			break;
		swp_qp_stat_inc(qp, RX_FPDU);
		swp_qp_stat_add(qp, RX_BYTES, ulpdu);
		if (swp_rx_ulpdu(qp, c, ulpdu) < 0)
			break;
		swp_cur_skip(&c, fpdu);
		len -= fpdu;
	}
	rx->running = false;
}

void swp_rx_run(struct swp_qp *qp)
{
	swp_rx_some(qp, SIZE_MAX);
}
