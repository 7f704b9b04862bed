/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CRC32c, register form: seed ~0, invert at the end.  Any context.
 */
#ifndef SWP_CRC_H
#define SWP_CRC_H

#include <linux/types.h>

u32 swp_crc32c(u32 crc, const void *p, size_t len);
/* The same with a copy; the CRC is that of the octets stored in @dst. */
u32 swp_crc32c_copy(u32 crc, void *dst, const void *src, size_t len);
/* Chooses the fastest way; call it before the others. */
void swp_crc_init(void);

#endif /* SWP_CRC_H */
