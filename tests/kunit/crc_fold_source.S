/* SPDX-License-Identifier: GPL-2.0 */
#include "../../kernel/softwarp/crc_fold.S"
