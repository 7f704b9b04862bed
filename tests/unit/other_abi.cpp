// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// A library that looks like a libibverbs with private ABI 4711.
extern "C" __attribute__((visibility("default"))) void verbs_register_driver_4711(const void *) {}
