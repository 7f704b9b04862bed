// SPDX-License-Identifier: GPL-2.0
/*
 * CRC32c of the data path.  RFC 5044 wants it on every connection by default, so
 * it is hot.  On x86-64 the crc32 instruction works on general registers and
 * needs no FPU section, whatever the context; elsewhere, and where the processor
 * lacks it, the kernel's own crc32c() does the work.
 */
#include <linux/cache.h>
#include <linux/crc32c.h>
#include <linux/jump_label.h>

#include "qp.h"

#ifdef CONFIG_X86_64

static DEFINE_STATIC_KEY_FALSE(swp_crc_insn);

static u32 crc32c_insn(u32 crc, const u8 *p, size_t len)
{
	u64 c = crc;

	for (; len >= 32; len -= 32, p += 32) {
		asm("crc32q %1, %0" : "+r"(c) : "rm"(get_unaligned((u64 *)p)));
		asm("crc32q %1, %0" : "+r"(c) : "rm"(get_unaligned((u64 *)(p + 8))));
		asm("crc32q %1, %0" : "+r"(c) : "rm"(get_unaligned((u64 *)(p + 16))));
		asm("crc32q %1, %0" : "+r"(c) : "rm"(get_unaligned((u64 *)(p + 24))));
	}
	for (; len >= 8; len -= 8, p += 8)
		asm("crc32q %1, %0" : "+r"(c) : "rm"(get_unaligned((u64 *)p)));
	for (; len; len--, p++)
		asm("crc32b %1, %k0" : "+r"(c) : "rm"(*p));
	return c;
}

/* CPUID itself, because User-Mode Linux keeps no feature words of its host */
static bool has_crc_insn(void)
{
	u32 a = 1, b, c = 0, d;

	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c & BIT(20);
}

u32 swp_crc32c(u32 crc, const void *p, size_t len)
{
	if (static_branch_likely(&swp_crc_insn))
		return crc32c_insn(crc, p, len);
	return crc32c(crc, p, len);
}

void swp_crc_init(void)
{
	if (has_crc_insn())
		static_branch_enable(&swp_crc_insn);
}

#else

u32 swp_crc32c(u32 crc, const void *p, size_t len)
{
	return crc32c(crc, p, len);
}

void swp_crc_init(void)
{
}

#endif
