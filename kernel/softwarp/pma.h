/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The counters that InfiniBand's performance management has for each port, which
 * sysfs shows as ports/1/counters and monitoring of networks reads.
 */
#ifndef SWP_PMA_H
#define SWP_PMA_H

#include <linux/types.h>

struct ib_device;
struct ib_grh;
struct ib_mad;
struct ib_wc;

/* Verbs: answers the core's own questions; nobody else reaches it over iWARP. */
int swp_process_mad(struct ib_device *ibdev, int flags, u32 port,
		    const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out,
		    size_t *out_size, u16 *out_pkey_index);

#endif /* SWP_PMA_H */
