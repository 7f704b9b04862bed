/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The counters of InfiniBand performance management for a port, which sysfs
 * shows as ports/1/counters, for network monitoring.
 */
#ifndef SWP_PMA_H
#define SWP_PMA_H

#include <linux/types.h>

struct ib_device;
struct ib_grh;
struct ib_mad;
struct ib_wc;

/* Verbs: answers queries of the core; iWARP carries no others. */
int swp_process_mad(struct ib_device *ibdev, int flags, u32 port,
		    const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out,
		    size_t *out_size, u16 *out_pkey_index);

#endif /* SWP_PMA_H */
