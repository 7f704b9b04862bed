// SPDX-License-Identifier: GPL-2.0
/* The driver's own file, compiled into the suite. */
#include "softwarp/reads.c"
