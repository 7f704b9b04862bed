/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The loops of crc_fold.h, which see.  Arguments are in %rdi (rest), %esi (crc), %rdx
 * (src), %rcx (len), %r8 (factors) and %r9 (dst).
 *
 * Registers 0 to 3 are what the message has become, 4 to 7 the next octets, 8 to 11
 * products, and 12 the factors.
 */
#ifdef __KERNEL__
#include <linux/linkage.h>
#else
#define SYM_FUNC_START(name)	.globl name; .type name, @function; name:
#define SYM_FUNC_END(name)	.size name, . - name
#endif

/* User-Mode Linux and user space have no return thunks. */
#ifndef RET
#define RET			ret
#endif

/* The next octets to a register, and to the copy */
.macro take nth, to, copy
	vmovdqu	32*\nth(%rdx), %ymm\to
	.if \copy
	vmovdqu	%ymm\to, 32*\nth(%r9)
	.endif
.endm

.macro taken registers, copy
	add	$32*\registers, %rdx
	.if \copy
	add	$32*\registers, %r9
	.endif
	sub	$32*\registers, %rcx
.endm

/* Multiply \from by the factors, add \next and leave it in \to; spoils \from and \t. */
.macro fold from, next, to, t
	vpclmulqdq $0x00, %ymm12, %ymm\from, %ymm\t
	vpclmulqdq $0x11, %ymm12, %ymm\from, %ymm\from
	vpxor	%ymm\from, %ymm\next, %ymm\to
	vpxor	%ymm\t, %ymm\to, %ymm\to
.endm

.macro body copy
	take	0, 0, \copy
	take	1, 1, \copy
	take	2, 2, \copy
	take	3, 3, \copy
	taken	4, \copy
	/* the CRC so far is added to the first octets */
	vmovd	%esi, %xmm4
	vpxor	%ymm4, %ymm0, %ymm0
	vbroadcasti128 (%r8), %ymm12
	cmp	$4*32, %rcx
	jb	2f
1:	take	0, 4, \copy
	take	1, 5, \copy
	take	2, 6, \copy
	take	3, 7, \copy
	taken	4, \copy
	fold	0, 4, 0, 8
	fold	1, 5, 1, 9
	fold	2, 6, 2, 10
	fold	3, 7, 3, 11
	cmp	$4*32, %rcx
	jae	1b
2:	vbroadcasti128 16(%r8), %ymm12
	fold	0, 1, 1, 8
	fold	1, 2, 2, 8
	fold	2, 3, 3, 8
	cmp	$32, %rcx
	jb	4f
3:	take	0, 4, \copy
	taken	1, \copy
	fold	3, 4, 3, 8
	cmp	$32, %rcx
	jae	3b
4:	vmovdqu	%ymm3, (%rdi)
	vzeroupper
	RET
.endm

.text

SYM_FUNC_START(swp_fold)
	body	0
SYM_FUNC_END(swp_fold)

SYM_FUNC_START(swp_fold_copy)
	body	1
SYM_FUNC_END(swp_fold_copy)

#ifndef __KERNEL__
.section .note.GNU-stack, "", @progbits
#endif
