/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The receive engine.  The socket lock protects all of it.
 */
#ifndef SWP_RX_H
#define SWP_RX_H

#include <linux/bvec.h>

#include "proto/fpdu.h"
#include "proto/rdmap.h"
#include "proto/receiver.h"
#include "uapi/softwarp_abi.h"

struct swp_qp;

struct swp_rx {
	/*
	 * The copy of those of the Send being received, as many as a receive
	 * request can have.  Constant; the rest is cleared when the QP goes back
	 * to RESET.
	 */
	struct swp_sge *sge;
	bool running;
	bool swallow;		/* the stream is dead: discard what arrives */
	bool starved;		/* no memory; tx_work will retry */
	bool reader_late;	/* it did not come ... */
	bool posted;		/* a handler posted: run the transmit engine */
	bool serving;		/* swp_qp_serve() has the socket, and reads */
	u8 big_reads;		/* Read Requests to be left to a program that spins */
	enum swp_rx_by by;	/* who receives ... */
	unsigned long by_since;	/* ... since then, jiffies */
	unsigned long late_since;	/* ... when the reader was asked before this */
	u32 read_try;		/* none is left to it before that, jiffies */
	u32 unanswered;		/* octets since an answer, up to SWP_RX_SPIN */
	int notifies;		/* CPU that runs a completion handler, or -1 */
	int cpu;		/* last receive posted here, or -1; no lock */
	u32 msn[SWP_QN_COUNT];	/* expected next, per QN */
	bool in_write;		/* a Write has begun and not ended */
	bool after_write;	/* the last message was a Write */
	u32 write_len;		/* octets of that Write so far */
	/* Send being received */
	bool in_msg;
	u8 opcode;
	u32 mo;
	u32 space;		/* octets that fit into its buffer */
	u64 wr_id;
	u16 sge_i;
	u32 sge_off;
	u32 num_sge;
	/* side buffer: an FPDU that spans skbs is assembled here */
	u8 *asm_buf;
	u32 asm_size;
	u32 asm_len;
	/* with markers: all FPDUs are; positions as in proto/fpdu.h */
	u32 stream;		/* of the next octet to arrive */
	u32 head;		/* of ULPDU_Length of the FPDU in asm_buf */
	u32 end;		/* behind the last complete FPDU */
	u32 crc;		/* of its octets so far, markers included */
	u8 marker[SWP_MARKER_LEN];
	bool marker_bad;	/* a marker in the FPDU is wrong */
};

/*
 * rx_stream.c.  swp_rx_run() receives all octets that TCP has.  swp_rx_some()
 * stops after @octets, at the end of an skb, and returns true if there may be
 * more.  swp_rx_feed() receives all and takes over @buf as side buffer.
 */
void swp_rx_run(struct swp_qp *qp);
bool swp_rx_some(struct swp_qp *qp, size_t octets);
void swp_rx_feed(struct swp_qp *qp, u8 *buf, u32 size);

struct swp_cur;

/*
 * rx_stream.c: takes FPDUs that did not come by TCP.  They have a place for a CRC,
 * and none in it.
 */
void swp_rx_near(struct swp_qp *qp, const struct bio_vec *bv, u32 num, u32 len);

/*
 * rx.c: one FPDU; and one whose CRC and markers are checked.  The cursor is at
 * ULPDU_Length.  Both return < 0 when the stream has failed.
 */
int swp_rx_fpdu(struct swp_qp *qp, struct swp_cur c, u32 ulpdu);
int swp_rx_ulpdu(struct swp_qp *qp, struct swp_cur c, u32 ulpdu);
/* rx.c: a CRC or a marker is wrong: MPA passes nothing more up. */
int swp_rx_mpa_error(struct swp_qp *qp, enum swp_fault fault);

/* Has a part of an FPDU arrived? */
static inline bool swp_rx_unfinished(const struct swp_rx *rx)
{
	return rx->asm_len || rx->stream != rx->end;
}

#endif /* SWP_RX_H */
