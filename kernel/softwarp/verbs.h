/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ops of the device.
 */
#ifndef SWP_VERBS_H
#define SWP_VERBS_H

#include <rdma/ib_verbs.h>

extern const struct ib_device_ops swp_dev_ops;

/* Sets the ops whose parameters depend on the kernel version. */
void swp_set_version_ops(struct ib_device *ibdev);

#endif /* SWP_VERBS_H */
