/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A cursor over received octets: an skb's linear part, its fragments and its
 * fragment list, one flat buffer, or the parts of a batch.  A copy of the struct
 * saves a position, so that octets can be read twice: first to check their CRC,
 * then to place them.
 */
#ifndef SWP_SKBCUR_H
#define SWP_SKBCUR_H

#include <linux/bvec.h>
#include <linux/skbuff.h>

#include "copy.h"

struct swp_cur {
	const u8 *p;		/* next octet */
	u32 avail;		/* contiguous octets at p */
	const struct sk_buff *skb;	/* or NULL */
	union {
		struct sk_buff *list;	/* next of the fragment list */
		const struct bio_vec *bv;	/* without skb: next part */
	};
	int frag;		/* next fragment of skb; without skb: parts left */
};

static inline void swp_cur_next(struct swp_cur *c)
{
	while (!c->avail && !c->skb && c->frag) {
		c->p = page_address(c->bv->bv_page) + c->bv->bv_offset;
		c->avail = c->bv->bv_len;
		c->bv++;
		c->frag--;
	}
	while (!c->avail && c->skb) {
		const struct skb_shared_info *si = skb_shinfo(c->skb);

		if (c->frag < si->nr_frags) {
			const skb_frag_t *f = &si->frags[c->frag++];

			c->p = skb_frag_address(f);
			c->avail = skb_frag_size(f);
		} else if (c->list) {
			c->skb = c->list;
			c->list = c->skb->next;
			c->frag = 0;
			c->p = c->skb->data;
			c->avail = skb_headlen(c->skb);
		} else {
			c->skb = NULL;
			c->frag = 0;
		}
	}
}

/* The caller knows that there are @n octets. */
static inline void swp_cur_skip(struct swp_cur *c, u32 n)
{
	while (n) {
		u32 k;

		if (!c->avail)
			swp_cur_next(c);
		if (WARN_ON_ONCE(!c->avail))
			return;
		k = min(n, c->avail);
		c->p += k;
		c->avail -= k;
		n -= k;
	}
}

static inline void swp_cur_skb(struct swp_cur *c, const struct sk_buff *skb,
			       u32 off)
{
	c->skb = skb;
	c->list = skb_shinfo(skb)->frag_list;
	c->frag = 0;
	c->p = skb->data;
	c->avail = skb_headlen(skb);
	swp_cur_skip(c, off);
}

static inline void swp_cur_flat(struct swp_cur *c, const u8 *p, u32 len)
{
	c->skb = NULL;
	c->list = NULL;
	c->frag = 0;
	c->p = p;
	c->avail = len;
}

static inline void swp_cur_parts(struct swp_cur *c, const struct bio_vec *bv,
				 u32 num)
{
	c->skb = NULL;
	c->bv = bv;
	c->frag = num;
	c->p = NULL;
	c->avail = 0;
}

/* The next contiguous octets; *@n: how many, at least one, at most @max */
static inline const u8 *swp_cur_peek(struct swp_cur *c, u32 max, u32 *n)
{
	if (!c->avail)
		swp_cur_next(c);
	*n = min(max, c->avail);
	return c->p;
}

static inline void swp_cur_copy(struct swp_cur *c, void *dst, u32 len)
{
	while (len) {
		u32 n;
		const u8 *p = swp_cur_peek(c, len, &n);

		if (WARN_ON_ONCE(!n))
			return;
		swp_copy(dst, p, n);
		swp_cur_skip(c, n);
		dst += n;
		len -= n;
	}
}

#endif /* SWP_SKBCUR_H */
