/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What sdp_switch and its programs in the kernel share.
 */
#ifndef SOFTWARP_BPF_SDP_SWITCH_H
#define SOFTWARP_BPF_SDP_SWITCH_H

#include <linux/types.h>

/* Cgroups below this level are not found; the root's level is 0. */
#define SDP_SWITCH_LEVELS	64
#define SDP_SWITCH_CGROUPS	1024

/* Of a cgroup, whose id is the key */
struct sdp_switch_entry {
	__u64 sockets;	/* switched so far */
};

#endif /* SOFTWARP_BPF_SDP_SWITCH_H */
