/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The receive engine.  All of it under the socket lock.
 */
#ifndef SWP_RX_H
#define SWP_RX_H

#include "proto/fpdu.h"
#include "proto/rdmap.h"
#include "uapi/softwarp_abi.h"

struct swp_qp;

struct swp_rx {
	bool running;
	bool swallow;		/* stream is dead: eat what comes */
	bool starved;		/* no memory for the side buffer; work will retry */
	bool moved;		/* rx_work has the next look, and takes what comes ... */
	unsigned long moved_at;	/* ... since then, jiffies; not for long */
	bool posted;		/* a completion handler did; the engine is due */
	int notifies;		/* the processor on which one runs, or -1; its own */
	int cpu;		/* where a process posted the last receive, or -1; no lock */
	u32 msn[SWP_QN_COUNT];	/* expected next, per QN */
	bool in_write;		/* a Write has begun and not ended */
	bool after_write;	/* the last message was a Write */
	u32 write_len;		/* of that one, octets so far */
	/* Send being received */
	bool in_msg;
	u8 opcode;
	u32 mo;
	u32 space;		/* octets its buffer takes */
	u64 wr_id;
	u16 sge_i;
	u32 sge_off;
	u32 num_sge;
	struct swp_sge sge[SWP_MAX_SGE];
	/* FPDU that spans skbs, put together here */
	u8 *asm_buf;
	u32 asm_size;
	u32 asm_len;
	/* with markers all FPDUs are, without them; positions as above */
	u32 stream;		/* of the next octet to come */
	u32 head;		/* of ULPDU_Length of the FPDU in asm_buf */
	u32 end;		/* behind the last FPDU that was whole */
	u32 crc;		/* of what came of it, markers included */
	u8 marker[SWP_MARKER_LEN];
	bool marker_bad;	/* one in it disagrees */
};

/*
 * rx_stream.c: what has come; so many octets of it, and then some of the same
 * buffer of TCP's: true if there may be more; all, with a buffer of @size octets
 * for it
 */
void swp_rx_run(struct swp_qp *qp);
bool swp_rx_some(struct swp_qp *qp, size_t octets);
void swp_rx_feed(struct swp_qp *qp, u8 *buf, u32 size);

struct swp_cur;

/*
 * rx.c: one FPDU, and one that MPA has found good; the cursor is at ULPDU_Length.
 * Return < 0 when the stream has failed.
 */
int swp_rx_fpdu(struct swp_qp *qp, struct swp_cur c, u32 ulpdu);
int swp_rx_ulpdu(struct swp_qp *qp, struct swp_cur c, u32 ulpdu);
/* rx.c: MPA itself is at its end: nothing behind this is passed up. */
int swp_rx_mpa_error(struct swp_qp *qp, enum swp_fault fault);

/* Has an FPDU begun to come that is not whole? */
static inline bool swp_rx_unfinished(const struct swp_rx *rx)
{
	return rx->asm_len || rx->stream != rx->end;
}

#endif /* SWP_RX_H */
