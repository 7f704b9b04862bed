// SPDX-License-Identifier: GPL-2.0
/*
 * CRC32c of the data path.  RFC 5044 uses it on every connection by default, so
 * this code is hot.  The fastest way to compute it varies: the crc32
 * instruction of x86 works on general registers, in any context; newer CPUs are
 * three times as fast with carry-less multiplications, but these need vector
 * registers, which have to be asked for.  An emulated CPU executes either bit by
 * bit; then shifts are many times as fast, and so they are where there are no such
 * instructions.  So measure all ways once, when the module is loaded, as the RAID
 * code of the kernel does.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cache.h>
#include <linux/crc32c.h>
#include <linux/instrumented.h>
#include <linux/jump_label.h>
#include <linux/ktime.h>
#include <linux/preempt.h>
#include <linux/slab.h>

#ifdef CONFIG_X86_64
#include <asm/fpu/api.h>
#endif

#include "compat.h"
#include "crc.h"
#include "crc_fold.h"

/* The polynomial of CRC32c, bits reflected (RFC 5044 section 4.4) */
#define SWP_CRC_POLY	0x82f63b78U

/* Octets of a measurement, and the number of measurements */
#define SWP_CRC_PROBE	16384
#define SWP_CRC_TRIES	5

enum swp_crc_way {
	SWP_CRC_KERNEL,		/* the kernel's crc32c() */
	SWP_CRC_SHIFTS,
	SWP_CRC_INSN,
	SWP_CRC_FOLD,
	SWP_CRC_WAYS
};

static const char * const way_names[] = {
	[SWP_CRC_KERNEL] = "the kernel's library",
	[SWP_CRC_SHIFTS] = "shifts",
	[SWP_CRC_INSN] = "the crc32 instruction",
	[SWP_CRC_FOLD] = "carry-less multiplications",
};

/* Octets for which it pays to ask for the vector registers */
#define SWP_CRC_FOLD_MIN	512

static DEFINE_STATIC_KEY_FALSE(use_fold);	/* only with use_insn */
static DEFINE_STATIC_KEY_FALSE(use_insn);
static DEFINE_STATIC_KEY_FALSE(use_shifts);

/* tab[k][b]: contribution of octet b to the CRC if k more octets follow it */
static u32 tab[8][256] __ro_after_init;

static void __init make_tables(void)
{
	u32 b, k, c;

	for (b = 0; b < 256; b++) {
		c = b;
		for (k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? SWP_CRC_POLY : 0);
		tab[0][b] = c;
	}
	for (b = 0; b < 256; b++)
		for (k = 1; k < 8; k++)
			tab[k][b] = tab[k - 1][b] >> 8 ^
				    tab[0][tab[k - 1][b] & 0xff];
}

/* Octets of the parts computed in parallel: of a page, and a segment's rest */
static const size_t parts[] = { 256, 64 };
/* after[i][k][b]: a CRC with octet k of value b, after parts[i] zeros */
static u32 after[ARRAY_SIZE(parts)][4][256] __ro_after_init;

static u32 __init zeros(u32 crc, size_t count)
{
	while (count--)
		crc = crc >> 8 ^ tab[0][crc & 0xff];
	return crc;
}

/* A CRC is linear: the CRC of a sum of bits is the sum of their CRCs. */
static void __init make_after(void)
{
	u32 bit, i, k, b;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		for (k = 0; k < 4; k++) {
			for (bit = 0; bit < 8; bit++)
				after[i][k][1 << bit] =
					zeros(1U << (8 * k + bit), parts[i]);
			for (b = 1; b < 256; b++)
				after[i][k][b] =
					after[i][k][b & (b - 1)] ^
					after[i][k][b & -b];
		}
	}
}

static __always_inline u32 behind(const u32 (*table)[256], u32 crc)
{
	return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^
	       table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

/* @v: the first octet in memory is the lowest one */
static __always_inline u32 step8_tables(u32 crc, u64 v)
{
	v ^= crc;
	return tab[7][v & 0xff] ^ tab[6][v >> 8 & 0xff] ^
	       tab[5][v >> 16 & 0xff] ^ tab[4][v >> 24 & 0xff] ^
	       tab[3][v >> 32 & 0xff] ^ tab[2][v >> 40 & 0xff] ^
	       tab[1][v >> 48 & 0xff] ^ tab[0][v >> 56];
}

static __always_inline u32 step1_tables(u32 crc, u8 v)
{
	return crc >> 8 ^ tab[0][(crc ^ v) & 0xff];
}

#ifdef CONFIG_X86_64

static __always_inline u32 step8_insn(u32 crc, u64 v)
{
	u64 c = crc;

	asm("crc32q %1, %0" : "+r"(c) : "rm"(v));
	return c;
}

static __always_inline u32 step1_insn(u32 crc, u8 v)
{
	asm("crc32b %1, %0" : "+r"(crc) : "rm"(v));
	return crc;
}

/* Use CPUID itself: User-Mode Linux has no feature words of its host. */
static bool __init has_insn(void)
{
	u32 a = 1, b, c = 0, d;

	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c & BIT(20);
}

#else

#define step8_insn	step8_tables
#define step1_insn	step1_tables

static bool __init has_insn(void)
{
	return false;
}

#endif

/*
 * Reads octets once, so that the CRC is that of the copy, even if the owner of the
 * source changes them meanwhile.
 */
static __always_inline u64 take8(const u8 *src)
{
	u64 v = get_unaligned_le64(src);

	OPTIMIZER_HIDE_VAR(v);
	return v;
}

/*
 * One loop for all: @insn and @copy are constants where it is inlined.  The
 * copy costs almost nothing, because the octets are in a register anyway.
 */
static __always_inline u32 run(u32 crc, u8 *dst, const u8 *src, size_t len,
			       bool insn, bool copy)
{
	for (; len >= 8; len -= 8, src += 8) {
		u64 v = take8(src);

		crc = insn ? step8_insn(crc, v) : step8_tables(crc, v);
		if (copy) {
			put_unaligned_le64(v, dst);
			dst += 8;
		}
	}
	for (; len; len--, src++) {
		u8 v = READ_ONCE(*src);

		crc = insn ? step1_insn(crc, v) : step1_tables(crc, v);
		if (copy)
			*dst++ = v;
	}
	return crc;
}

/*
 * The instruction has a latency of three cycles, but one can start in each
 * cycle.  So compute the CRCs of three parts of a block in parallel.  To
 * combine them, continue the CRC of a part as if zeros followed it, and add
 * that of the next.
 */
static __always_inline u32 run3(u32 crc, u8 *dst, const u8 *src, size_t part,
				const u32 (*zeros)[256], bool copy)
{
	u32 a = crc, b = 0, c = 0;
	size_t i;

	for (i = 0; i < part; i += 8) {
		u64 u = take8(src + i);
		u64 v = take8(src + part + i);
		u64 w = take8(src + 2 * part + i);

		a = step8_insn(a, u);
		b = step8_insn(b, v);
		c = step8_insn(c, w);
		if (copy) {
			put_unaligned_le64(u, dst + i);
			put_unaligned_le64(v, dst + part + i);
			put_unaligned_le64(w, dst + 2 * part + i);
		}
	}
	return behind(zeros, behind(zeros, a) ^ b) ^ c;
}

static __always_inline u32 run_insn(u32 crc, u8 *dst, const u8 *src, size_t len,
				    bool copy)
{
	size_t i, part;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		part = parts[i];
		for (; len >= 3 * part; len -= 3 * part) {
			crc = run3(crc, dst, src, part, after[i], copy);
			src += 3 * part;
			if (copy)
				dst += 3 * part;
		}
	}
	return run(crc, dst, src, len, true, copy);
}

/*
 * A message has the same CRC when a multiple of the polynomial is added to it.
 * This multiple has few terms:
 *
 *	x^297 + x^196 + x^192 + x^78 + x^42 + 1
 *
 * so adding the right multiple of it removes 64 bits from the front of a message
 * by changing bits 101, 105, 219, 255 and 297 behind each of them: all of these
 * are in the next five words.
 *
 * @w: what is added to the next word and, behind it, to @a to @d
 */
static __always_inline void fold(u8 *dst, const u8 *src, u64 *w, u64 *a, u64 *b,
				 u64 *c, u64 *d, bool copy)
{
	u64 v = take8(src), l, r;

	if (copy)
		put_unaligned_le64(v, dst);
	v ^= *w;
	l = v << 41;
	r = v >> 23;
	*a ^= v << 37 ^ l;
	*b ^= v >> 27 ^ r;
	*c ^= v << 27 ^ v << 63;
	*d ^= v >> 37 ^ v >> 1 ^ l;
	*w = r;			/* of the word behind @d */
}

/* Adds the last words of what was folded. */
static __always_inline u32 unfold(u32 crc, u8 *dst, const u8 *src, u64 w,
				  bool copy)
{
	u64 v = take8(src);

	if (copy)
		put_unaligned_le64(v, dst);
	return step8_tables(crc, v ^ w);
}

static __always_inline u32 run_shifts(u32 crc, u8 *dst, const u8 *src,
				      size_t len, bool copy)
{
	const size_t block = 5 * sizeof(u64);
	u64 v = crc, w = 0, x = 0, y = 0, z = 0;

	/* the end of this costs as much as some blocks */
	if (len < 4 * block)
		return run(crc, dst, src, len, false, copy);
	for (; len >= 2 * block; len -= block) {
		fold(dst, src, &v, &w, &x, &y, &z, copy);
		fold(dst + 8, src + 8, &w, &x, &y, &z, &v, copy);
		fold(dst + 16, src + 16, &x, &y, &z, &v, &w, copy);
		fold(dst + 24, src + 24, &y, &z, &v, &w, &x, copy);
		fold(dst + 32, src + 32, &z, &v, &w, &x, &y, copy);
		dst += block;
		src += block;
	}
	crc = unfold(0, dst, src, v, copy);
	crc = unfold(crc, dst + 8, src + 8, w, copy);
	crc = unfold(crc, dst + 16, src + 16, x, copy);
	crc = unfold(crc, dst + 24, src + 24, y, copy);
	crc = unfold(crc, dst + 32, src + 32, z, copy);
	return run(crc, dst + block, src + block, len - block, false, copy);
}

#ifdef CONFIG_X86_64

static struct swp_fold_factors factors __ro_after_init;

/* It needs the instruction for what is left in the end. */
static bool __init has_fold(void)
{
	return has_insn() && swp_fold_there();
}

/* Not while what this CPU does has interrupted another user of the registers. */
static __always_inline bool may_fold(size_t len)
{
	return len >= SWP_CRC_FOLD_MIN && irq_fpu_usable();
}

static __always_inline u32 run_fold(u32 crc, u8 *dst, const u8 *src, size_t len,
				    bool copy)
{
	size_t whole = round_down(len, SWP_FOLD_WIDTH);
	u8 rest[SWP_FOLD_WIDTH];

	/* sanitisers know nothing of what assembler does */
	instrument_read(src, whole);
	if (copy)
		instrument_write(dst, whole);
	kernel_fpu_begin();
	if (copy)
		swp_fold_copy(rest, crc, src, whole, &factors, dst);
	else
		swp_fold(rest, crc, src, whole, &factors);
	kernel_fpu_end();
	crc = run(0, NULL, rest, sizeof(rest), true, false);
	return run(crc, copy ? dst + whole : NULL, src + whole, len - whole,
		   true, copy);
}

static void __init prepare_fold(void)
{
	swp_fold_prepare(&factors);
}

#else

static bool __init has_fold(void)
{
	return false;
}

static __always_inline bool may_fold(size_t len)
{
	return false;
}

static __always_inline u32 run_fold(u32 crc, u8 *dst, const u8 *src, size_t len,
				    bool copy)
{
	return run_insn(crc, dst, src, len, copy);
}

static void __init prepare_fold(void)
{
}

#endif

u32 swp_crc32c(u32 crc, const void *p, size_t len)
{
	if (static_branch_likely(&use_fold) && may_fold(len))
		return run_fold(crc, NULL, p, len, false);
	if (static_branch_likely(&use_insn))
		return run_insn(crc, NULL, p, len, false);
	if (static_branch_unlikely(&use_shifts))
		return run_shifts(crc, NULL, p, len, false);
	return crc32c(crc, p, len);
}

u32 swp_crc32c_copy(u32 crc, void *dst, const void *src, size_t len)
{
	if (static_branch_likely(&use_fold) && may_fold(len))
		return run_fold(crc, dst, src, len, true);
	if (static_branch_likely(&use_insn))
		return run_insn(crc, dst, src, len, true);
	if (static_branch_unlikely(&use_shifts))
		return run_shifts(crc, dst, src, len, true);
	memcpy(dst, src, len);
	return crc32c(crc, dst, len);
}

static u32 __init probe_once(enum swp_crc_way way, const void *p)
{
	switch (way) {
	case SWP_CRC_FOLD:
		return run_fold(~0, NULL, p, SWP_CRC_PROBE, false);
	case SWP_CRC_INSN:
		return run_insn(~0, NULL, p, SWP_CRC_PROBE, false);
	case SWP_CRC_SHIFTS:
		return run_shifts(~0, NULL, p, SWP_CRC_PROBE, false);
	default:
		return crc32c(~0, p, SWP_CRC_PROBE);
	}
}

/* The shortest of several times in nanoseconds: disturbances only add time. */
static u64 __init probe(enum swp_crc_way way, const void *p, u32 *crc)
{
	u64 begin, took, best = U64_MAX;
	int i;

	for (i = 0; i < SWP_CRC_TRIES; i++) {
		preempt_disable();
		begin = ktime_get_ns();
		*crc = probe_once(way, p);
		took = ktime_get_ns() - begin;
		preempt_enable();
		best = min(best, took);
	}
	return max_t(u64, best, 1);
}

/* Never fails: without memory to measure, it uses the kernel's library. */
void __init swp_crc_init(void)
{
	enum swp_crc_way way, best = SWP_CRC_KERNEL;
	u64 took, least;
	u32 want, crc;
	u8 *p;
	int i;

	make_tables();
	make_after();
	prepare_fold();
	p = kmalloc(SWP_CRC_PROBE, GFP_KERNEL);
	if (!p)
		return;
	for (i = 0; i < SWP_CRC_PROBE; i++)
		p[i] = i * 7 + (i >> 8);

	least = probe(SWP_CRC_KERNEL, p, &want);
	for (way = SWP_CRC_SHIFTS; way < SWP_CRC_WAYS; way++) {
		if ((way == SWP_CRC_INSN && !has_insn()) ||
		    (way == SWP_CRC_FOLD && !has_fold()))
			continue;
		took = probe(way, p, &crc);
		if (WARN_ON_ONCE(crc != want))
			continue;
		/* if about equal, prefer the way that copies, too */
		if (took <= least + least / 8) {
			least = min(took, least);
			best = way;
		}
	}
	kfree(p);

	pr_info("CRC32c by %s, %llu MB/s\n", way_names[best],
		div64_u64(SWP_CRC_PROBE * 1000ULL, least));
	if (best == SWP_CRC_INSN || best == SWP_CRC_FOLD)
		static_branch_enable(&use_insn);
	if (best == SWP_CRC_FOLD)
		static_branch_enable(&use_fold);
	else if (best == SWP_CRC_SHIFTS)
		static_branch_enable(&use_shifts);
}
