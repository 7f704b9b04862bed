// SPDX-License-Identifier: GPL-2.0
/* The driver's own file, compiled into the suite. */
#include "softwarp/llp.c"

/* No end here looks for its other one. */
void swp_near_del(struct swp_llp *llp)
{
}
