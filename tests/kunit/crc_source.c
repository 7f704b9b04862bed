// SPDX-License-Identifier: GPL-2.0
/*
 * The CRCs of the device, and each of the ways that it may choose: what is for the
 * time of loading alone is called by tests.
 */
#include <linux/init.h>

#undef __init
#define __init

#include "softwarp/crc.c"

#include "crc_source.h"

bool crc_way_there(unsigned int way)
{
	return (way != SWP_CRC_INSN || has_insn()) &&
	       (way != SWP_CRC_FOLD || has_fold());
}

u32 crc_by(unsigned int way, u32 crc, u8 *dst, const u8 *src, size_t len)
{
	/* its threshold belongs to it */
	if (way == SWP_CRC_FOLD && may_fold(len))
		return dst ? run_fold(crc, dst, src, len, true) :
			     run_fold(crc, NULL, src, len, false);
	if (way != SWP_CRC_SHIFTS)
		return dst ? run_insn(crc, dst, src, len, true) :
			     run_insn(crc, NULL, src, len, false);
	return dst ? run_shifts(crc, dst, src, len, true) :
		     run_shifts(crc, NULL, src, len, false);
}
