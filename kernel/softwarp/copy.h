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

/* memcpy(), in no order.  Any context. */
static inline void swp_copy(void *dst, const void *src, size_t len)
{
	if (static_branch_unlikely(&swp_copy_by_string) &&
	    len >= SWP_COPY_STRING)
		swp_copy_string(dst, src, len);
	else
		memcpy(dst, src, len);
}

/* Chooses the fastest way; until then it is memcpy(). */
void swp_copy_init(void);

#endif /* SWP_COPY_H */
