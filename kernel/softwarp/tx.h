/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The transmit engine.  The socket lock protects all of it.
 */
#ifndef SWP_TX_H
#define SWP_TX_H

#include <linux/bvec.h>
#include <linux/uio.h>

#include "proto/rdmap.h"
#include "proto/turn.h"
#include "uapi/softwarp_abi.h"

struct swp_mr;
struct swp_qp;

/* Kind of the current message */
enum swp_tx_kind {
	SWP_TX_NONE,
	SWP_TX_SQE,
	SWP_TX_RRESP,
	SWP_TX_CTRL,		/* RTR or Terminate: header only */
};

/* Octets that the engine gives to TCP before it yields */
#define SWP_TX_BURST	(512 * 1024)
/* The same for both ends together past TCP, where softirqs are off */
#define SWP_NEAR_BURST	(512 * 1024)
/* Bursts of a process before a worker takes over */
#define SWP_TX_LOOPS	16
/* Parts of a batch: one for each of its pages, and some more */
#define SWP_TX_BVECS	44
/*
 * Most pages of a batch: 64 KiB of payload in four unaligned parts, and the
 * engine's own pages around them.  A batch with just one FPDU can need so many.
 */
#define SWP_TX_HOLD	40
/* Most regions of a batch past TCP: those of one FPDU at least, SWP_ZCOPY_SGE */
#define SWP_NEAR_REGIONS	4
/* Most page fragments of one with more FPDUs; each may be of another page */
#define SWP_TX_PIECES	min_t(u32, MAX_SKB_FRAGS, SWP_TX_HOLD - 4)

/*
 * What a batch consists of.  A QP has one of these while its engine runs, and as
 * long as TCP has not taken all of a batch: thousands of idle ones need none.
 */
struct swp_tx_batch {
	struct iov_iter it;	/* what TCP has not taken */
	struct bio_vec bv[SWP_TX_BVECS];
	struct page *hold[SWP_TX_HOLD];
	/* past TCP: regions to whose pages it refers */
	struct swp_mr *regions[SWP_NEAR_REGIONS];
};

struct swp_tx {
	/*
	 * The copy of the current send request, with all that its stride has room
	 * for.  Constant; the rest is cleared when the QP goes back to RESET.
	 */
	struct swp_sqe *sqe;
	bool running;
	bool fenced;		/* responder: wait for the first FPDU */
	u8 rtr;			/* initiator: enum swp_mpa_rtr still to send */
	bool term_pending;
	bool term_sent;
	bool fin_wanted;	/* FIN once everything queued is sent */
	bool shut;		/* FIN requested from the socket */
	u8 stalls;		/* closing: checks without progress, in a row */
	u32 moved;		/* closing: swp_llp_moved() at the last check */
	u8 resp_turn;
	bool token;		/* ours is sent, see near.h */
	bool near;		/* the batch goes past TCP */
	bool with_crc;		/* it has CRCs */
	u32 streak;		/* small doorbells since the last receive */

	/* which context looks next, see proto/turn.h */
	u8 turn;		/* enum swp_turn */
	bool kick;		/* last value stored in the ring's kick */
	bool poller;		/* poll_work runs and will take the lock */
	bool leaving;		/* the holder does not take the lock again */
	bool by_hand;		/* the holder has both ends' spinlocks */
	bool shared;		/* so has that of the other end, and comes back */
	int left;		/* budget of the holder, octets */
	/*
	 * The process that owns the socket in order to send.  Only compared: a
	 * process finds itself here if and only if it is in run_tx().
	 */
	struct task_struct *holder;
	bool held;		/* the next request waits for the peer */
	bool local;		/* the last request sent nothing */

	/* the current message */
	enum swp_tx_kind kind;
	u8 opcode;		/* enum swp_rdmap_opcode */
	u8 hdr_len;
	bool inlined;
	bool imm_next;		/* Immediate Data follows the Write */
	bool by_ref;		/* its pages are sent by reference */
	bool refs;		/* those of the FPDU being built are */
	u32 len;
	u32 off;
	u32 stag;
	u64 to;
	u32 msn;
	u16 sge_i;
	u32 sge_off;
	u32 num_sge;
	u8 ctrl[SWP_UNTAGGED_LEN + SWP_TERM_MAX];
	u32 ctrl_len;

	u32 send_msn;
	u32 rreq_msn;
	u32 atomic_msn;		/* of responses */

	/* with markers: positions in the stream, see proto/fpdu.h */
	u32 stream;		/* of the next octet to be built */
	u32 head;		/* of ULPDU_Length of the FPDU being built */

	/* batch: given to TCP in one call, at most one skb */
	bool no_mem;		/* the next request waits for memory */
	struct swp_tx_batch *batch;
	u32 nbv;
	u32 nhold;
	u32 nregions;
	u32 bytes;
	u32 pieces;		/* page fragments it needs in the skb */
	u32 mss;
	u32 unit;		/* of swp_fpdu_unit() */
	u32 pos;		/* octets in the current one */
	u32 room;		/* octets that still fit into the skb */
	u32 max_pieces;
	bool eor;
	bool pending;		/* built, but not yet all given to TCP */
	bool has_term;
	u32 batch_tx;		/* qp->sq_tx when it was built */
	u32 fpdus;
	u32 crc;
	struct page_frag frag;	/* of this CPU, while the engine runs */
};

void swp_tx_run(struct swp_qp *qp);
void swp_tx_set_turn(struct swp_qp *qp, enum swp_turn turn);
/* Are responses the next that tx_work has to send?  Socket lock held. */
bool swp_tx_owes(const struct swp_qp *qp);
void swp_tx_news(struct swp_qp *qp, enum swp_news news);
/*
 * After the engine of @qp has run with both ends' sockets locked: have both ends
 * answer what has arrived past TCP.
 */
void swp_tx_settle(struct swp_qp *qp);
void swp_tx_acked(struct swp_qp *qp);
void swp_tx_release(struct swp_qp *qp);
void swp_tx_cut(struct swp_qp *qp);
/* Free what is kept per CPU.  No QP is left. */
void swp_tx_exit(void);

#endif /* SWP_TX_H */
