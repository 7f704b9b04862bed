/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copying of payload.
 *
 * memcpy() has string instructions only where they are fast for a few octets, too
 * (FSRM, from about 2019 on).  Those that are fast for many (ERMS, from about 2012
 * on) copy_to_user() has, with which a reader of TCP copies; so have we.
 */
#ifndef SWP_COPY_H
#define SWP_COPY_H

#include <linux/instrumented.h>
#include <linux/jump_label.h>
#include <linux/sizes.h>
#include <linux/string.h>

DECLARE_STATIC_KEY_FALSE(swp_copy_by_string);

/* From so many octets on, string instructions are worth their start. */
#define SWP_COPY_STRING	2048

#ifdef CONFIG_X86_64
static inline void swp_copy_string(void *dst, const void *src, size_t len)
{
	/* sanitisers know nothing of what assembler does */
	instrument_read(src, len);
	instrument_write(dst, len);
	asm volatile("rep movsb"
		     : "+D" (dst), "+S" (src), "+c" (len) : : "memory");
}
#else
static inline void swp_copy_string(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}
#endif

/*
 * Does @dst lie a few octets behind @src, but for whole pages?  Some CPUs (Zen 4) then
 * take each octet that string instructions load for one that they have just stored,
 * and are fifteen times as slow.
 */
static inline bool swp_copy_clashes(const void *dst, const void *src)
{
	/* and KMSAN would not see what the words hold */
	return IS_ENABLED(CONFIG_X86_64) && !IS_ENABLED(CONFIG_KMSAN) &&
	       (((unsigned long)dst - (unsigned long)src) & (SZ_4K - 1)) - 1 < 15;
}

/* memcpy() in words; half as fast as string instructions at their best */
void swp_copy_words(void *dst, const void *src, size_t len);

/* memcpy(), in no order.  Any context. */
static inline void swp_copy(void *dst, const void *src, size_t len)
{
	if (len >= SWP_COPY_STRING && unlikely(swp_copy_clashes(dst, src)))
		swp_copy_words(dst, src, len);	/* memcpy() may be such a one, too */
	else if (static_branch_unlikely(&swp_copy_by_string) &&
		 len >= SWP_COPY_STRING)
		swp_copy_string(dst, src, len);
	else
		memcpy(dst, src, len);
}

/* Chooses the fastest way; until then it is memcpy(). */
void swp_copy_init(void);

#endif /* SWP_COPY_H */
