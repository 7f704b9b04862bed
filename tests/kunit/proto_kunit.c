// SPDX-License-Identifier: GPL-2.0
/* The module that the suites of the pure code are in. */
#include <linux/module.h>

MODULE_DESCRIPTION("KUnit suites of softwarp's protocol code");
MODULE_LICENSE("GPL");
