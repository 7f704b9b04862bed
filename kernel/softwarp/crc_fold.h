/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CRC32c by carry-less multiplications of x86-64 (VPCLMULQDQ), some times as fast as
 * the crc32 instruction.  Pure: the unit tests run it in user space.
 *
 * A message keeps its CRC when a part is taken away from its front and the same part
 * times x^n, modulo the polynomial, is added n bits behind it.  So four registers hold
 * what the message has become so far; each is multiplied, and the next octets are
 * added.  In the end one register is left.
 *
 * Registers of 256 bits: those of 512 bits are hardly faster for segments of Ethernet,
 * slower where octets are copied, and some CPUs lower their clock for them.
 */
#ifndef SWP_CRC_FOLD_H
#define SWP_CRC_FOLD_H

#include "../proto/base.h"

/* Octets of a register, and the least that can be folded */
#define SWP_FOLD_WIDTH		32
#define SWP_FOLD_LEAST		(4 * SWP_FOLD_WIDTH)

/*
 * What each half of 128 bits is multiplied by, to be added four registers behind it,
 * and one.  crc_fold.S knows the layout.
 */
struct swp_fold_factors {
	__u64 far[2];
	__u64 near[2];
};

/*
 * A register holds the first octet in its lowest bits, which are those of the highest
 * powers: so a product of 64 by 64 bits is one power off, and a factor of 32 bits is
 * in the upper half.
 */
static inline __u64 swp_fold_factor(unsigned int power)
{
	__u32 c = 1U << 31;

	while (--power)
		c = c >> 1 ^ (c & 1 ? 0x82f63b78U : 0);
	return (__u64)c << 32;
}

static inline void swp_fold_prepare(struct swp_fold_factors *f)
{
	unsigned int near = 8 * SWP_FOLD_WIDTH, far = 8 * SWP_FOLD_LEAST;

	f->far[0] = swp_fold_factor(far + 64);
	f->far[1] = swp_fold_factor(far);
	f->near[0] = swp_fold_factor(near + 64);
	f->near[1] = swp_fold_factor(near);
}

#ifdef __x86_64__

/* Of CPUID and XCR0 */
#define SWP_FOLD_OSXSAVE	0x08000000	/* leaf 1, ecx */
#define SWP_FOLD_AVX2		0x00000020	/* leaf 7, ebx */
#define SWP_FOLD_VPCLMULQDQ	0x00000400	/* leaf 7, ecx */
#define SWP_FOLD_YMM		0x00000006	/* XCR0: SSE and AVX */

/*
 * Whether this CPU has what swp_fold() needs.  Asks the CPU and not the kernel's feature
 * words: User-Mode Linux has none of its host.  XCR0 says what the kernel saves, so
 * also what its command line has taken away.
 */
static inline bool swp_fold_there(void)
{
	__u32 a = 0, b, c = 0, d;

	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (a < 7)
		return false;
	a = 1;
	c = 0;
	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (!(c & SWP_FOLD_OSXSAVE))
		return false;
	asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	if ((a & SWP_FOLD_YMM) != SWP_FOLD_YMM)
		return false;
	a = 7;
	c = 0;
	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return (b & SWP_FOLD_AVX2) && (c & SWP_FOLD_VPCLMULQDQ);
}

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Fold @len octets, that is as many whole registers as they are, into @rest, one
 * register: its CRC, beginning with 0, is that of these octets, beginning with @crc.
 * The second one also copies them.  @len: at least SWP_FOLD_LEAST.  Octets are read
 * once.  The caller owns the registers: kernel_fpu_begin().
 */
void swp_fold(void *rest, __u32 crc, const void *src, size_t len,
	      const struct swp_fold_factors *f);
void swp_fold_copy(void *rest, __u32 crc, const void *src, size_t len,
		   const struct swp_fold_factors *f, void *dst);

#ifdef __cplusplus
}
#endif

#endif /* __x86_64__ */

#endif /* SWP_CRC_FOLD_H */
