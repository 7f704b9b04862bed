// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/slab.h>

#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>
#endif

#include "compat.h"
#include "copy.h"

/* Octets of a measurement: in all, and for each copy; and measurements of each way */
#define SWP_COPY_PROBE	(64 * 1024)
#define SWP_COPY_PIECE	4096
#define SWP_COPY_TRIES	5

DEFINE_STATIC_KEY_FALSE(swp_copy_by_string);

void swp_copy_words(void *dst, const void *src, size_t len)
{
	u64 v[4];
	u32 i;

	for (; len >= sizeof(v); len -= sizeof(v)) {
		for (i = 0; i < ARRAY_SIZE(v); i++) {
			v[i] = get_unaligned((const u64 *)src + i);
			/* or the compiler makes a memcpy() of it */
			OPTIMIZER_HIDE_VAR(v[i]);
		}
		for (i = 0; i < ARRAY_SIZE(v); i++)
			put_unaligned(v[i], (u64 *)dst + i);
		src += sizeof(v);
		dst += sizeof(v);
	}
	memcpy(dst, src, len);
}

/* KMSAN is not told what the instructions write. */
static bool __init has_string(void)
{
#if defined(CONFIG_X86_64) && !defined(CONFIG_KMSAN)
	return boot_cpu_has(X86_FEATURE_ERMS);
#else
	return false;
#endif
}

/* The shortest of several times in nanoseconds: disturbances only add time. */
static u64 __init probe(bool string, u8 *dst, const u8 *src)
{
	u64 begin, took, best = U64_MAX;
	u32 i, at;

	for (i = 0; i < SWP_COPY_TRIES; i++) {
		preempt_disable();
		begin = ktime_get_ns();
		for (at = 0; at < SWP_COPY_PROBE; at += SWP_COPY_PIECE)
			if (string)
				swp_copy_string(dst + at, src + at, SWP_COPY_PIECE);
			else
				memcpy(dst + at, src + at, SWP_COPY_PIECE);
		took = ktime_get_ns() - begin;
		preempt_enable();
		best = min(best, took);
	}
	return best;
}

/* Never fails: without memory to measure, it is memcpy(). */
void __init swp_copy_init(void)
{
	u64 plain, string;
	u8 *p;

	if (!has_string())
		return;
	p = kvzalloc(2 * SWP_COPY_PROBE, GFP_KERNEL);
	if (!p)
		return;
	plain = probe(false, p + SWP_COPY_PROBE, p);
	string = probe(true, p + SWP_COPY_PROBE, p);
	kvfree(p);
	/* an emulated processor has them, too, and does them octet by octet */
	if (string < plain - plain / 8)
		static_branch_enable(&swp_copy_by_string);
	pr_info("copies by %s\n", static_key_enabled(&swp_copy_by_string) ?
		"string instructions" : "memcpy()");
}
