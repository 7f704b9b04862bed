/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The transmit engine.  All of it under the socket lock.
 */
#ifndef SWP_TX_H
#define SWP_TX_H

#include <linux/bvec.h>
#include <linux/uio.h>

#include "proto/rdmap.h"
#include "proto/turn.h"
#include "uapi/softwarp_abi.h"

struct swp_qp;

/* What the transmitter is working on */
enum swp_tx_kind {
	SWP_TX_NONE,
	SWP_TX_SQE,
	SWP_TX_RRESP,
	SWP_TX_CTRL,		/* RTR or Terminate: header only */
};

/* Octets handed to TCP before the engine yields */
#define SWP_TX_BURST	(512 * 1024)
/* Bursts that a process sends in a row before a worker takes over */
#define SWP_TX_LOOPS	16
#define SWP_TX_BVECS	64
/*
 * Pages of a batch: of 64 KiB payload in four parts that begin anywhere, and of
 * the engine around them.  By itself a batch may have one FPDU of this size.
 */
#define SWP_TX_HOLD	40

struct swp_tx {
	bool running;
	bool fenced;		/* responder: nothing before the first FPDU came */
	u8 rtr;			/* initiator: enum swp_mpa_rtr still to send */
	bool term_pending;
	bool term_sent;
	bool fin_wanted;	/* FIN once everything queued is sent */
	bool shut;		/* FIN requested from the socket */
	u8 stalls;		/* closing: looks that found no progress */
	u32 moved;		/* closing: octets at the last look */
	u8 resp_turn;
	u32 streak;		/* small doorbells with nothing received between */
	u32 last_bytes;		/* of the last batch */

	/* whose duty the next look is, see proto/turn.h */
	u8 turn;		/* enum swp_turn */
	bool kick;		/* copy of kick in the ring, which is never read back */
	bool poller;		/* poll_work looks, with the lock, before it ends */
	bool leaving;		/* the holder does not come back */
	int left;		/* budget of the holder, octets */
	/*
	 * The process that has the lock in order to send.  Compared only; its
	 * own name a process finds here if and only if it is in run_tx().
	 */
	struct task_struct *holder;
	bool held;		/* the next request waits for the peer */
	bool local;		/* the last one sent nothing */

	/* message being sent */
	enum swp_tx_kind kind;
	u8 opcode;		/* enum swp_rdmap_opcode */
	u8 hdr_len;
	bool inlined;
	bool imm_next;		/* Immediate Data follows the Write */
	bool by_ref;		/* pages of the message go by reference */
	u32 len;
	u32 off;
	u32 stag;
	u64 to;
	u32 msn;
	u16 sge_i;
	u32 sge_off;
	u32 num_sge;
	union {
		struct swp_sqe sqe;
		u8 sqe_raw[sizeof(struct swp_sqe) + SWP_MAX_INLINE];
	};
	u8 ctrl[SWP_UNTAGGED_LEN + SWP_TERM_MAX];
	u32 ctrl_len;

	u32 send_msn;
	u32 rreq_msn;
	u32 atomic_msn;		/* of responses */

	/* with markers: positions in the stream, see proto/fpdu.h */
	u32 stream;		/* of the next octet to be built */
	u32 head;		/* of ULPDU_Length of the FPDU being built */

	/* batch: what goes to TCP in one call, at most one skb */
	bool no_mem;		/* the next request waits for memory */
	struct bio_vec bv[SWP_TX_BVECS];
	struct iov_iter it;
	u32 nbv;
	u32 bytes;
	u32 pieces;		/* page fragments it takes in the skb */
	u32 mss;
	u32 pos;		/* octets in the TCP segment being filled */
	u32 room;		/* octets the skb still takes */
	u32 max_pieces;
	bool eor;
	bool pending;		/* built, not yet taken by TCP */
	bool has_term;
	u32 batch_tx;		/* sq.tx when it was built */
	u32 fpdus;
	u32 crc;
	struct page_frag frag;	/* the processor's, while the engine runs */
	struct page *hold[SWP_TX_HOLD];
	u32 nhold;
};

void swp_tx_run(struct swp_qp *qp);
void swp_tx_set_turn(struct swp_qp *qp, enum swp_turn turn);
void swp_tx_news(struct swp_qp *qp, enum swp_news news);
void swp_tx_acked(struct swp_qp *qp);
void swp_tx_release(struct swp_qp *qp);
void swp_tx_cut(struct swp_qp *qp);
/* What the processors keep; no QP is left. */
void swp_tx_exit(void);

#endif /* SWP_TX_H */
