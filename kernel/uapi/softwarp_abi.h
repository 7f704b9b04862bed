/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * The ABI between softwarp.ko and its libibverbs provider.
 *
 * Everything here is in host byte order and has fixed width and explicit
 * padding, so that 32- and 64-bit programs see the same layout.  Structures
 * only grow at their end; a change that an old partner cannot ignore raises
 * SWP_ABI_VERSION.
 *
 * Queues are rings in memory shared with user space.  A ring begins with a
 * struct swp_ring_ctrl; its elements follow at SWP_RING_DATA_OFF.  Indices are
 * free running 32-bit counters; index i is in slot i & (entries - 1), and
 * entries is a power of two.  The kernel does not trust the contents of a ring:
 * it reads each word once and checks its copy.
 */
#ifndef SOFTWARP_ABI_H
#define SOFTWARP_ABI_H

#include <linux/types.h>

/* 'SWRP': far above enum rdma_driver_id, so that new values do not collide. */
#define SWP_DRIVER_ID		0x53575250U

/* ib_device_ops.uverbs_abi_ver; libibverbs compares it when matching. */
#define SWP_ABI_VERSION		3

#define SWP_MAX_SGE		32
#define SWP_MAX_INLINE		512

#define SWP_RING_DATA_OFF	256

/* Request and response tails of the uverbs commands ----------------------- */

struct swp_uctx_req {
	__u32 abi_version;	/* SWP_ABI_VERSION the provider was built with */
	__u32 reserved;		/* 0 */
};

struct swp_uctx_resp {
	__u32 abi_version;	/* SWP_ABI_VERSION of the kernel module */
	__u32 max_inline;	/* largest max_inline_data of a QP, bytes */
	__u32 max_sge;		/* largest number of SGEs of a send or receive */
	__u32 spin_bytes;	/* mmap length of the page below; 0: there is none */
	__aligned_u64 spin_key;	/* mmap offset of a struct swp_spin_page */
};

/*
 * Of a context.  A program that finds a CQ empty and ask set stores 0 there; if it
 * finds work set, it calls POLL_CQ for any CQ of the context, for no completion.
 */
struct swp_spin_page {
	__u32 ask;		/* set by the kernel, cleared by the program */
	__u32 work;		/* written by the kernel */
};

struct swp_create_cq_resp {
	__aligned_u64 ring_key;	/* mmap offset of the ring */
	__u32 ring_bytes;	/* mmap length, a multiple of the page size */
	__u32 entries;		/* power of two, >= cqe */
	__u32 cq_id;
	__u32 reserved;
};

/*
 * The new ring has the unconsumed CQEs from index 0 on, and its cons is 0.  The
 * kernel writes nothing to the old ring any more.  The program must neither
 * poll nor arm until the command returns.
 */
struct swp_resize_cq_resp {
	__aligned_u64 ring_key;
	__u32 ring_bytes;
	__u32 entries;
};

/*
 * Both rings are in one mapping, that of the SQ at its beginning, if there is one.  A
 * queue with no entries has no ring; with none of them, key and bytes are 0.
 */
struct swp_create_qp_resp {
	__aligned_u64 ring_key;	/* mmap offset of the rings */
	__u32 ring_bytes;	/* mmap length, a multiple of the page size */
	__u32 rq_offset;	/* of the RQ's ring there, bytes, multiple of 64 */
	__u32 sq_entries;
	__u32 rq_entries;
	__u32 sq_stride;	/* bytes from one SQE to the next, multiple of 64 */
	__u32 rq_stride;	/* bytes from one RQE to the next, multiple of 16 */
	__u32 qp_id;
	__u32 max_inline;	/* granted, bytes */
};

struct swp_create_srq_resp {
	__aligned_u64 ring_key;
	__u32 ring_bytes;
	__u32 entries;
	__u32 stride;		/* bytes from one RQE to the next, multiple of 16 */
	__u32 reserved;
};

/*
 * modify_srq that sets max_wr.  The command has no response, so this has the
 * address where the kernel writes one.  The new ring has the pending RQEs under
 * their old indices, and prod and cons of the old ring, which the kernel does
 * not read any more.  The program must not post until the command returns.
 */
struct swp_modify_srq_req {
	__aligned_u64 resp_addr; /* of a struct swp_modify_srq_resp */
};

/* Written before anything changes: valid only if the command succeeds. */
struct swp_modify_srq_resp {
	__aligned_u64 ring_key;	/* mmap offset of the new ring */
	__u32 ring_bytes;	/* mmap length, a multiple of the page size */
	__u32 entries;		/* power of two, >= max_wr; stride stays */
};

/* No request or response tails: alloc_pd, reg_mr, dereg_mr, other modify, query. */

/* Rings ------------------------------------------------------------------- */

/*
 * The beginning of a ring.  Each side writes its own cache lines only, except
 * for arm, which one side sets and the other clears.
 *
 * SQ: user space fills SQEs, then stores prod (release), executes a full
 * barrier and loads kick.  If kick is non-zero the transmitter sleeps (or the
 * QP is in the error state) and user space rings the doorbell: an empty
 * POST_SEND command.  Otherwise the running transmitter finds the SQEs.
 *
 * RQ: user space fills RQEs and stores prod (release), then executes a full
 * barrier and loads kick, which is non-zero only in the error state, where the
 * same doorbell makes the kernel flush the posted RQEs.
 *
 * A shared receive queue works in the same way; its kick stays 0.
 *
 * A slot may be reused once cons has passed it.
 *
 * CQ: see struct swp_cqe.  cons is the number of CQEs that user space has
 * consumed; the kernel only compares it with its own count to find overflow.
 *
 * What processors that reorder accesses need, with both sides of each pair;
 * in braces, what must not happen.  User space has C++'s fences in verbs/ring.hpp,
 * the kernel those of Linux; either is one instruction of the same kind.
 *
 * Entries, message passing:
 *   poster, WorkRing::publish()	engine, sq_posted(), swp_rqe_fetch(),
 *					flush_sq(), flush_rq()
 *	entry = new			r1 = prod, acquire
 *	prod = 1, release		r2 = entry
 *	{ r1 == 1 and r2 is not new }
 *
 * Slots that are used again, load before store:
 *   engine, swp_sq_complete(),	poster, WorkRing::full()
 *   take_rqe()
 *	r1 = entry			r2 = cons, acquire
 *	cons = 1, release		entry = next
 *	{ r2 == 1 and r1 is next }
 *   Likewise a poller, CompletionRing::release(), and swp_cq_push().
 *
 * Who looks next, store buffering:
 *   poster, WorkRing::publish()	engine, swp_tx_run(), flush_sq(), flush_rq()
 *	prod = 1			kick = 1
 *	full barrier			full barrier
 *	r1 = kick			r2 = prod
 *	{ r1 == 0 and r2 == 0 }: nobody would send it
 *
 * Events, store buffering:
 *   program, CompletionRing::arm()	swp_cq_push()
 *	arm = SWP_ARM_NEXT		gen = new
 *	full barrier			full barrier
 *	r1 = gen			r2 = arm
 *	{ r1 is not new and r2 == SWP_ARM_NONE }: it would sleep for ever
 *
 * Completions, message passing:
 *   swp_cq_push()			poller, CompletionRing::valid()
 *	data of the message, then CQE	r1 = gen, acquire
 *	gen = new, release		r2 = CQE, r3 = data
 *	{ r1 is new, and r2 or r3 is not }
 */
struct swp_ring_ctrl {
	/* written by the producer: user space for SQ and RQ; CQ: unused */
	__u32 prod;
	__u32 reserved0[15];
	/* written by the consumer: kernel for SQ and RQ, user space for CQ */
	__u32 cons;
	__u32 reserved1[15];
	/* written by the kernel: SQ and RQ, 1 = ring the doorbell after posting */
	__u32 kick;
	__u32 reserved2[15];
	/* CQ: enum swp_arm, set by user space, cleared by the kernel */
	__u32 arm;
	__u32 reserved3[15];
};

enum swp_arm {
	SWP_ARM_NONE		= 0,
	SWP_ARM_SOLICITED	= 1,	/* event on a solicited or failed CQE */
	SWP_ARM_NEXT		= 2,	/* event on the next CQE */
};

struct swp_sge {
	__aligned_u64 addr;
	__u32 lkey;
	__u32 length;
};

enum swp_opcode {
	SWP_OP_WRITE		= 0,
	SWP_OP_READ		= 1,
	SWP_OP_SEND		= 2,
	SWP_OP_SEND_INV		= 3,
	SWP_OP_LOCAL_INV	= 4,	/* imm_inv: local STag to invalidate */
	SWP_OP_BIND_MW		= 5,	/* see struct swp_bind */
	SWP_OP_FETCH_ADD	= 6,	/* see struct swp_operands */
	SWP_OP_CMP_SWAP		= 7,
	SWP_OP_WRITE_IMM	= 8,	/* imm_inv: the immediate data */
	SWP_OP_SEND_IMM		= 9,	/* the same, without other data */
	/* user space may post only the above */
	SWP_OP_USER_MAX		= SWP_OP_SEND_IMM,
	SWP_OP_RECV		= 16,	/* in CQEs */
	SWP_OP_RECV_IMM		= 17,	/* in CQEs: after a WRITE_IMM */
	SWP_OP_REG_MR		= 32,	/* kernel consumers */
	SWP_OP_READ_INV		= 33,	/* imm_inv: as LOCAL_INV, afterwards */
};

enum swp_wqe_flags {
	SWP_WQE_SIGNALED	= 1 << 0,
	SWP_WQE_SOLICITED	= 1 << 1,
	SWP_WQE_INLINE		= 1 << 2, /* data, not SGEs, follow the header */
	SWP_WQE_FENCE		= 1 << 3,
};

/* Followed by num_sge struct swp_sge, or by inline_len bytes of data. */
struct swp_sqe {
	__aligned_u64 wr_id;
	__u8 opcode;		/* enum swp_opcode */
	__u8 flags;		/* enum swp_wqe_flags; others 0 */
	__u16 num_sge;		/* 0..max_sge of the QP; inline: 0 */
	__u32 inline_len;	/* bytes; 0 without SWP_WQE_INLINE */
	__aligned_u64 remote_addr; /* WRITE, READ, ...: tagged offset at the peer */
	__u32 rkey;		/* WRITE, READ, ...: the peer's STag */
	/*
	 * SEND_INV: STag to invalidate at the peer.  *_IMM: the immediate data,
	 * four octets in wire order.
	 */
	__u32 imm_inv;
};

/*
 * FETCH_ADD and CMP_SWAP have one SGE, of eight octets, for the value before
 * the operation, and then this structure.  Each host stores the value in its
 * own byte order.
 */
struct swp_operands {
	__aligned_u64 data;	/* FETCH_ADD: to add; CMP_SWAP: to store */
	__aligned_u64 compare;	/* CMP_SWAP */
};

/*
 * BIND_MW has no SGEs; it has this in their place.  The index part of rkey
 * names the window, and rkey becomes its new STag; the key part may have any
 * value.
 */
struct swp_bind {
	__aligned_u64 addr;	/* in the region */
	__aligned_u64 length;	/* bytes; 0 unbinds */
	__u32 lkey;		/* of the region */
	__u32 access;		/* enum ib_access_flags (enum ibv_access_flags) */
};

/* Followed by num_sge struct swp_sge. */
struct swp_rqe {
	__aligned_u64 wr_id;
	__u32 num_sge;		/* 0..max_sge of the QP */
	__u32 reserved;		/* 0 */
};

enum swp_cqe_flags {
	SWP_CQE_SOLICITED	= 1 << 0,
	SWP_CQE_WITH_INV	= 1 << 1, /* imm_inv holds an invalidated STag */
	SWP_CQE_WITH_IMM	= 1 << 2,
};

/*
 * The CQE with index i (counted from 0 for the life of the ring) is valid when
 * gen equals (__u16)(i / entries + 1); the kernel stores gen last, with release
 * semantics.  So a poller reads only the cache line of the CQE that it waits
 * for.  status is a value of enum ib_wc_status (enum ibv_wc_status).
 */
struct swp_cqe {
	__aligned_u64 wr_id;
	__u32 byte_len;
	__u32 imm_inv;
	__u32 qp_num;
	__u32 vendor_err;	/* see SWP_VENDOR_ERR */
	__u8 opcode;		/* enum swp_opcode */
	__u8 status;
	__u8 flags;		/* enum swp_cqe_flags */
	__u8 reserved0;
	__u16 reserved1;
	__u16 gen;
	__aligned_u64 timestamp; /* ns, CLOCK_MONOTONIC; 0 = not taken */
	__aligned_u64 reserved2[3];
};

/*
 * vendor_err of a failed completion: the error as a Terminate would carry it
 * (RFC 5040 section 4.8), with bit 31 set, and bit 30 if the peer reported it.
 */
#define SWP_VENDOR_ERR(layer, etype, code) \
	(0x80000000U | ((layer) & 0xfU) << 12 | ((etype) & 0xfU) << 8 | \
	 ((code) & 0xffU))
#define SWP_VENDOR_ERR_REMOTE	0x40000000U

#endif /* SOFTWARP_ABI_H */
