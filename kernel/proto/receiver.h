/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which context receives what has arrived in a stream, or in large amounts.
 *
 * Copies and checksums of it are best made by the process that reads.  softirq
 * asks the consumer whether one comes.  One that sleeps is woken; one that runs
 * finds the mark that the consumer has set when it next looks for something to
 * read.  Nobody can be sure that it does, so a timer passes the duty on: to a
 * work item, and from a work item that gets no processor to softirq.
 *
 * Pure; the model checker runs it in all interleavings (tests/model/receiver.pml).
 */
#ifndef SWP_PROTO_RECEIVER_H
#define SWP_PROTO_RECEIVER_H

#include "base.h"

enum swp_rx_by {
	SWP_RX_SOFTIRQ,		/* whichever context TCP calls */
	SWP_RX_READER,		/* the process that reads: swp_qp_receive() */
	SWP_RX_WORK,		/* qp->rx_work */
};

/*
 * swp_rx_next - which context is next to receive
 * @by: the one that would, or that had the duty and is late
 * @reader: the consumer says that a process comes; only if @by is softirq
 */
static inline enum swp_rx_by swp_rx_next(enum swp_rx_by by, bool reader)
{
	switch (by) {
	case SWP_RX_SOFTIRQ:
		return reader ? SWP_RX_READER : SWP_RX_WORK;
	case SWP_RX_READER:
		return SWP_RX_WORK;
	case SWP_RX_WORK:
		break;
	}
	return SWP_RX_SOFTIRQ;
}

#endif /* SWP_PROTO_RECEIVER_H */
