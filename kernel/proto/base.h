/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the pure protocol code needs from its surroundings.  These files hold no
 * socket, lock, allocation, log or clock, so that the module, KUnit, fuzzers and
 * user space compile the same source.
 */
#ifndef SWP_PROTO_BASE_H
#define SWP_PROTO_BASE_H

#include <linux/types.h>
#include <linux/errno.h>

#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/string.h>
#include <asm/byteorder.h>
#else
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <asm/byteorder.h>
#define be16_to_cpu(x) __be16_to_cpu(x)
#define be32_to_cpu(x) __be32_to_cpu(x)
#define be64_to_cpu(x) __be64_to_cpu(x)
#define cpu_to_be16(x) __cpu_to_be16(x)
#define cpu_to_be32(x) __cpu_to_be32(x)
#define cpu_to_be64(x) __cpu_to_be64(x)
#endif

#endif /* SWP_PROTO_BASE_H */
