// SPDX-License-Identifier: GPL-2.0
/*
 * Details of `rdma resource show ... -dd` in addition to the core's columns.
 */
#include <linux/inet.h>
#include <rdma/restrack.h>
#include <rdma/rdma_netlink.h>

#include "qp.h"
#include "restrack.h"

static int put_ring(struct sk_buff *msg, const char *prod_name,
		    const char *kick_name, const struct swp_ring *r)
{
	struct swp_ring_ctrl *ctrl;

	if (!r->entries)
		return 0;
	ctrl = swp_ring_ctrl(r);
	return rdma_nl_put_driver_u32(msg, prod_name, READ_ONCE(ctrl->prod)) ||
	       rdma_nl_put_driver_u32(msg, kick_name, READ_ONCE(ctrl->kick));
}

/* Both ends of the connection, as text.  Process context. */
static int put_names(struct sk_buff *msg, struct swp_llp *llp)
{
	struct sockaddr_storage local, remote;
	char text[INET6_ADDRSTRLEN + 8];

	if (swp_llp_names(llp, &local, &remote, NULL))
		return 0;	/* the connection is ending */
	snprintf(text, sizeof(text), "%pISpc", &local);
	if (rdma_nl_put_driver_string(msg, "local", text))
		return -EMSGSIZE;
	snprintf(text, sizeof(text), "%pISpc", &remote);
	return rdma_nl_put_driver_string(msg, "peer", text);
}

static int put_tcp(struct sk_buff *msg, const struct swp_llp *llp)
{
	struct swp_llp_info i;

	swp_llp_info(llp, &i);
	return rdma_nl_put_driver_u32(msg, "tcp_state", i.state) ||
	       rdma_nl_put_driver_u32(msg, "mss", i.mss) ||
	       rdma_nl_put_driver_u32(msg, "srtt_us", i.srtt_us) ||
	       rdma_nl_put_driver_u32(msg, "cwnd", i.cwnd) ||
	       rdma_nl_put_driver_u32(msg, "retrans", i.retrans) ||
	       rdma_nl_put_driver_u32(msg, "unacked", i.unacked) ||
	       rdma_nl_put_driver_u32(msg, "unread", i.unread);
}

/* A snapshot without locks: the values may not fit together exactly. */
int swp_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp)
{
	static const char * const states[] = {
		[SWP_QP_RESET] = "reset", [SWP_QP_INIT] = "init",
		[SWP_QP_RTR] = "rtr", [SWP_QP_WAIT] = "wait",
		[SWP_QP_LEFT] = "left", [SWP_QP_RTR_UP] = "rtr_up",
		[SWP_QP_RTS] = "rts", [SWP_QP_PARTING] = "parting",
		[SWP_QP_CLOSING] = "closing",
		[SWP_QP_TERMINATE] = "terminate", [SWP_QP_ERROR] = "error",
	};
	struct swp_qp *qp = to_swp_qp(ibqp);
	struct swp_llp *llp;
	struct nlattr *table;
	int ret = 0;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	if (rdma_nl_put_driver_string(msg, "stream", states[READ_ONCE(qp->state)]) ||
	    rdma_nl_put_driver_u32(msg, "mpa_rev", qp->sp.mpa_rev) ||
	    rdma_nl_put_driver_u32(msg, "crc", qp->sp.crc) ||
	    rdma_nl_put_driver_u32(msg, "tx_markers", qp->sp.tx_markers) ||
	    rdma_nl_put_driver_u32(msg, "rx_markers", qp->sp.rx_markers) ||
	    rdma_nl_put_driver_u32(msg, "extensions",
				   !!(qp->sp.accept & SWP_ACCEPT_EXT)) ||
	    rdma_nl_put_driver_u32(msg, "ird", qp->sp.ird) ||
	    rdma_nl_put_driver_u32(msg, "ord", qp->sp.ord) ||
	    rdma_nl_put_driver_u32(msg, "fenced", READ_ONCE(qp->tx.fenced)) ||
	    put_ring(msg, "sq_posted", "sq_kick", &qp->sq) ||
	    rdma_nl_put_driver_u32(msg, "sq_taken", READ_ONCE(qp->sq_tx)) ||
	    rdma_nl_put_driver_u32(msg, "sq_done", READ_ONCE(qp->sq_done)) ||
	    put_ring(msg, "rq_posted", "rq_kick", &qp->rq) ||
	    rdma_nl_put_driver_u32(msg, "rq_taken", READ_ONCE(qp->rq_cons)) ||
	    rdma_nl_put_driver_u32(msg, "reads_in",
				   READ_ONCE(qp->iread_prod) -
				   READ_ONCE(qp->iread_cons)) ||
	    rdma_nl_put_driver_u32(msg, "reads_out",
				   READ_ONCE(qp->oread_prod) -
				   READ_ONCE(qp->oread_cons)) ||
	    rdma_nl_put_driver_u32(msg, "ack_waiting",
				   READ_ONCE(qp->ack_waiting)) ||
	    rdma_nl_put_driver_u32(msg, "tx_pending",
				   READ_ONCE(qp->tx.pending)) ||
	    (qp->vendor_err &&
	     rdma_nl_put_driver_u32_hex(msg, "vendor_err", qp->vendor_err)))
		ret = -EMSGSIZE;

	llp = swp_qp_llp(qp);
	if (llp) {
		if (!ret && (put_names(msg, llp) ||
			     put_tcp(msg, llp) ||
			     rdma_nl_put_driver_u32(msg, "peer_here",
						    READ_ONCE(llp->near.here)) ||
			     rdma_nl_put_driver_u32(msg, "past_tcp",
						    swp_near_has_peer(&llp->near) &&
						    READ_ONCE(llp->near.heard))))
			ret = -EMSGSIZE;
		swp_llp_put(llp);
	}
	if (ret) {
		nla_nest_cancel(msg, table);
		return ret;
	}
	nla_nest_end(msg, table);
	return 0;
}

int swp_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct swp_cq *cq = to_swp_cq(ibcq);
	u32 entries, prod, cons, arm, overflow;
	struct swp_ring_ctrl *ctrl;
	struct nlattr *table;
	unsigned long flags;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	/* the lock keeps a resize from replacing the ring */
	spin_lock_irqsave(&cq->lock, flags);
	ctrl = swp_ring_ctrl(&cq->ring);
	entries = cq->ring.entries;
	prod = cq->prod;
	cons = cq->ring.entry ? READ_ONCE(ctrl->cons) : cq->cons;
	arm = cq->ring.entry ? READ_ONCE(ctrl->arm) : cq->arm;
	overflow = cq->overflow;
	spin_unlock_irqrestore(&cq->lock, flags);
	if (rdma_nl_put_driver_u32(msg, "entries", entries) ||
	    rdma_nl_put_driver_u32(msg, "pushed", prod) ||
	    rdma_nl_put_driver_u32(msg, "polled", cons) ||
	    rdma_nl_put_driver_u32(msg, "armed", arm) ||
	    rdma_nl_put_driver_u32(msg, "overflow", overflow)) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}

/*
 * Any user may read this.  Addresses and keys are only for CAP_NET_ADMIN, and
 * only the core can check the requesting socket for it, so it shows the keys.
 */
int swp_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	static const char * const kinds[] = {
		[SWP_MR_USER] = "user", [SWP_MR_DMA] = "dma",
		[SWP_MR_FAST] = "fast",
	};
	const struct swp_mr *mr = to_swp_mr(ibmr);
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);

	if (!table)
		return -EMSGSIZE;
	if (rdma_nl_put_driver_string(msg, "kind", kinds[mr->kind]) ||
	    rdma_nl_put_driver_u32(msg, "valid",
				   !test_bit(SWP_MRF_INVALID, &mr->flags)) ||
	    rdma_nl_put_driver_u32_hex(msg, "access", mr->access) ||
	    rdma_nl_put_driver_u32(msg, "windows", READ_ONCE(mr->windows))) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}
