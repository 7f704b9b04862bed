/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CRC_SOURCE_H
#define CRC_SOURCE_H

#include <linux/types.h>

/* Shifts, the instruction, and multiplications; as in crc.c */
#define CRC_WAY_FIRST	1
#define CRC_WAY_LAST	3

bool crc_way_there(unsigned int way);
/* @dst: NULL, or where it is copied to */
u32 crc_by(unsigned int way, u32 crc, u8 *dst, const u8 *src, size_t len);

#endif /* CRC_SOURCE_H */
