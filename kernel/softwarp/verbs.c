// SPDX-License-Identifier: GPL-2.0
/*
 * The ib_device_ops: argument checks, and glue between ib_core and the objects.
 */
#include <linux/inetdevice.h>
#include <linux/sched/task.h>
#include <linux/memcontrol.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/restrack.h>

#include "counter.h"
#include "device.h"
#include "iwcm.h"
#include "pma.h"
#include "qp.h"
#include "restrack.h"
#include "verbs.h"

/* Device and port --------------------------------------------------------- */

static int query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			struct ib_udata *udata)
{
	struct swp_device *dev = to_swp_dev(ibdev);

	if (udata && (udata->inlen || udata->outlen))
		return -EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = SWP_ABI_VERSION;
	attr->vendor_id = SWP_VENDOR_ID;
	attr->vendor_part_id = 1;
	attr->sys_image_guid = ibdev->node_guid;
	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = PAGE_SIZE;
	attr->max_qp = swp_params.max_qp;
	attr->max_qp_wr = swp_params.max_qp_wr;
	attr->max_send_sge = SWP_MAX_SGE;
	attr->max_recv_sge = SWP_MAX_SGE;
	attr->max_sge_rd = SWP_MAX_SGE;
	attr->max_cq = swp_params.max_cq;
	attr->max_cqe = swp_params.max_cqe;
	attr->cq_caps.max_cq_moderation_count = U16_MAX;
	attr->cq_caps.max_cq_moderation_period = U16_MAX;
	attr->max_srq = swp_params.max_srq;
	attr->max_srq_wr = swp_params.max_srq_wr;
	attr->max_srq_sge = SWP_MAX_SGE;
	attr->max_mr = swp_params.max_mr;
	attr->max_pd = swp_params.max_pd;
	attr->max_qp_rd_atom = swp_params.max_ird;
	attr->max_qp_init_rd_atom = SWP_MAX_ORD;
	attr->max_res_rd_atom = min_t(u64, INT_MAX, (u64)swp_params.max_ird *
						    swp_params.max_qp);
	attr->atomic_cap = swp_atomic_cap(dev);
	attr->max_pkeys = 1;
	attr->device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS |
				 IB_DEVICE_MEM_WINDOW |
				 IB_DEVICE_MEM_WINDOW_TYPE_2B |
				 IB_DEVICE_SRQ_RESIZE;
	attr->max_mw = swp_params.max_mr;
	/* timestamps of completions are in nanoseconds */
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = 1000000;
	attr->max_fast_reg_page_list_len = SWP_MAX_FAST_BLOCKS;
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG;
	return 0;
}

static int query_port(struct ib_device *ibdev, u32 port,
		      struct ib_port_attr *attr)
{
	/* the core has set mtu and state from the netdev */
	attr->gid_tbl_len = SWP_GIDS;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = SWP_MAX_MSG;
	attr->port_cap_flags = IB_PORT_CM_SUP | IB_PORT_DEVICE_MGMT_SUP;
	if (ib_get_eth_speed(ibdev, port, &attr->active_speed,
			     &attr->active_width)) {
		attr->active_speed = IB_SPEED_SDR;
		attr->active_width = IB_WIDTH_1X;
	}
	return 0;
}

static int get_port_immutable(struct ib_device *ibdev, u32 port,
			      struct ib_port_immutable *imm)
{
	imm->gid_tbl_len = SWP_GIDS;
	/* rdma_cm needs a P_Key to bind to a loopback address */
	imm->pkey_tbl_len = 1;
	imm->core_cap_flags = RDMA_CORE_PORT_IWARP;
	imm->max_mad_size = 0;
	return 0;
}

static int query_gid(struct ib_device *ibdev, u32 port, int index,
		     union ib_gid *gid)
{
	return swp_gid_query(to_swp_dev(ibdev), index, gid);
}

static int query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static void get_fw_str(struct ib_device *ibdev, char *str)
{
	snprintf(str, IB_FW_VERSION_NAME_MAX, "softwarp-abi%u",
		 SWP_ABI_VERSION);
}

/* Contexts and protection domains ----------------------------------------- */

static int init_ucontext(struct ib_ucontext *ctx, struct ib_udata *udata)
{
	struct swp_ucontext *uctx = container_of(ctx, struct swp_ucontext, base);
	struct swp_device *dev = to_swp_dev(ctx->device);
	struct swp_uctx_resp resp = {
		.abi_version = SWP_ABI_VERSION,
		.max_inline = SWP_MAX_INLINE,
		.max_sge = SWP_MAX_SGE,
	};
	struct swp_uctx_req req = {};
	int ret;

	/* older libraries do not know what is behind that */
	if (udata->inlen < sizeof(req) ||
	    udata->outlen < offsetof(struct swp_uctx_resp, spin_key)) {
		ibdev_warn_ratelimited(&dev->base,
				       "a program's provider library knows nothing of softwarp's ABI; install the provider that belongs to this module\n");
		return -EINVAL;
	}
	ret = ib_copy_from_udata(&req, udata, sizeof(req));
	if (ret)
		return ret;
	if (req.abi_version != SWP_ABI_VERSION || req.reserved) {
		ibdev_warn_ratelimited(&dev->base,
				       "provider library has ABI %u, the module %u; install both from one release\n",
				       req.abi_version, SWP_ABI_VERSION);
		return -EPROTONOSUPPORT;
	}
	ret = swp_count(dev, SWP_LIMIT_UCONTEXT, true, &uctx->owner);
	if (ret)
		return ret;
	uctx->dev = dev;
	swp_spinner_init(uctx, udata->outlen >= sizeof(resp));
	resp.spin_key = swp_ring_key(&uctx->spinner.page);
	resp.spin_bytes = uctx->spinner.page.bytes;
	ret = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (ret) {
		swp_spinner_exit(&uctx->spinner);
		swp_uncount(dev, SWP_LIMIT_UCONTEXT, uctx->owner);
	}
	return ret;
}

/*
 * If this op fails, the core frees the context, but does not put the task that
 * it has stored there (UVERBS_METHOD_GET_CONTEXT of 6.12 and 7.3): each failure
 * would leak a task_struct.  Core code that puts the task checks for NULL.
 */
static int alloc_ucontext(struct ib_ucontext *ctx, struct ib_udata *udata)
{
	int ret = init_ucontext(ctx, udata);

	if (ret && ctx->res.task) {
		put_task_struct(ctx->res.task);
		ctx->res.task = NULL;
	}
	return ret;
}

static void dealloc_ucontext(struct ib_ucontext *ctx)
{
	struct swp_ucontext *uctx = container_of(ctx, struct swp_ucontext, base);

	swp_spinner_exit(&uctx->spinner);
	swp_uncount(uctx->dev, SWP_LIMIT_UCONTEXT, uctx->owner);
}

/*
 * Nothing to do: rings keep their pages while they are mapped, and ib_core
 * destroys the objects.  But with this op the core can remove a device while
 * programs have it open.
 */
static void disassociate_ucontext(struct ib_ucontext *ctx)
{
}

static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return swp_count(to_swp_dev(pd->device), SWP_LIMIT_PD, udata,
			 &container_of(pd, struct swp_pd, base)->owner);
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	swp_uncount(to_swp_dev(pd->device), SWP_LIMIT_PD,
		    container_of(pd, struct swp_pd, base)->owner);
	return 0;
}

/* Queue pairs --------------------------------------------------------------*/

static int check_qp_attr(const struct ib_qp_init_attr *attr)
{
	const struct ib_qp_cap *cap = &attr->cap;

	if (attr->create_flags || attr->qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq)
		return -EINVAL;
	if (cap->max_send_wr > swp_params.max_qp_wr ||
	    cap->max_recv_wr > swp_params.max_qp_wr ||
	    cap->max_send_sge > SWP_MAX_SGE ||
	    cap->max_recv_sge > SWP_MAX_SGE ||
	    cap->max_inline_data > SWP_MAX_INLINE)
		return -EINVAL;
	return 0;
}

/* The least stride has room for requests whose data no capability limits. */
#define SWP_SQE_ALIGN	64
static_assert(sizeof(struct swp_sqe) + sizeof(struct swp_bind) <= SWP_SQE_ALIGN);
static_assert(sizeof(struct swp_sqe) + sizeof(struct swp_sge) +
	      sizeof(struct swp_operands) <= SWP_SQE_ALIGN);

/* Room for what the engines copy out of the rings, and slots beside the send ring */
static int alloc_beside(struct swp_qp *qp, u32 sqe, gfp_t gfp)
{
	u32 max_sge = qp->srq ? qp->srq->max_sge : qp->max_recv_sge;

	qp->tx.sqe = kzalloc(sqe + max_sge * sizeof(*qp->rx.sge), gfp);
	if (!qp->tx.sqe)
		return -ENOMEM;
	qp->rx.sge = (void *)qp->tx.sqe + sqe;
	if (!qp->sq.entries)
		return 0;
	qp->slots = kvcalloc(qp->sq.entries, sizeof(*qp->slots), gfp);
	if (qp->slots)
		return 0;
	kfree(qp->tx.sqe);
	return -ENOMEM;
}

static int alloc_queues(struct swp_qp *qp, struct ib_qp_init_attr *attr,
			struct swp_ucontext *uctx)
{
	u32 data, sqe, stride;
	int ret;

	data = max_t(u32, max(attr->cap.max_send_sge, 1U) *
			  sizeof(struct swp_sge),
		     attr->cap.max_inline_data);
	sqe = ALIGN(sizeof(struct swp_sqe) + data, SWP_SQE_ALIGN);
	swp_ring_size(&qp->sq, attr->cap.max_send_wr, sqe);
	/* grant all the room of the stride */
	qp->max_inline = min_t(u32, sqe - sizeof(struct swp_sqe),
			       SWP_MAX_INLINE);
	qp->max_send_sge = max(attr->cap.max_send_sge, 1U);
	qp->max_recv_sge = max(attr->cap.max_recv_sge, 1U);
	if (!attr->cap.max_send_wr)
		qp->max_inline = 0;

	stride = sizeof(struct swp_rqe) +
		 qp->max_recv_sge * sizeof(struct swp_sge);
	swp_ring_size(&qp->rq, qp->srq ? 0 : attr->cap.max_recv_wr, stride);
	ret = swp_ring_alloc_two(&qp->sq, &qp->rq, sizeof(*qp->slots), uctx);
	if (ret)
		return ret;
	ret = alloc_beside(qp, sqe, uctx ? GFP_KERNEL_ACCOUNT : GFP_KERNEL);
	if (ret) {
		swp_ring_free(&qp->sq);
		return ret;
	}
	attr->cap.max_send_wr = qp->sq.entries;
	attr->cap.max_recv_wr = qp->rq.entries;
	attr->cap.max_send_sge = qp->max_send_sge;
	attr->cap.max_recv_sge = qp->max_recv_sge;
	attr->cap.max_inline_data = qp->max_inline;
	return 0;
}

static void free_queues(struct swp_qp *qp)
{
	kvfree(qp->slots);
	kfree(qp->tx.sqe);
	/* with rq */
	swp_ring_free(&qp->sq);
}

static int create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		     struct ib_udata *udata)
{
	struct swp_device *dev = to_swp_dev(ibqp->device);
	struct swp_qp *qp = to_swp_qp(ibqp);
	struct swp_create_qp_resp resp = {};
	struct swp_ucontext *uctx = NULL;
	int ret;

	ret = check_qp_attr(attr);
	if (ret)
		return ret;
	if (udata) {
		if (udata->outlen < sizeof(resp))
			return -EINVAL;
		uctx = rdma_udata_to_drv_context(udata, struct swp_ucontext,
						 base);
	}
	ret = swp_count(dev, SWP_LIMIT_QP, udata, &qp->owner);
	if (ret)
		return ret;
	swp_pd_add_qp(ibqp->pd);
	qp->dev = dev;
	qp->scq = to_swp_cq(attr->send_cq);
	qp->rcq = to_swp_cq(attr->recv_cq);
	qp->srq = attr->srq ? to_swp_srq(attr->srq) : NULL;
	qp->sig_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->user = !!udata;
	qp->spinner = uctx ? &uctx->spinner : NULL;
	INIT_LIST_HEAD(&qp->news);
	qp->memcg = udata ? get_mem_cgroup_from_mm(current->mm) : NULL;
	if (qp->user)
		swp_qp_set_maker(qp);
	qp->access = IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ;
	ret = alloc_queues(qp, attr, uctx);
	if (ret)
		goto err_count;
	ret = swp_qp_init_obj(qp);
	if (ret)
		goto err_queues;
	ibqp->qp_num = qp->qpn;
	/* iWARP does not set a QP's port, but the core's counters need it */
	ibqp->port = 1;
	if (udata) {
		resp.ring_key = swp_ring_key(&qp->sq);
		resp.ring_bytes = qp->sq.bytes;
		if (qp->rq.entries)
			resp.rq_offset = qp->rq.mem - qp->sq.mem;
		resp.sq_entries = qp->sq.entries;
		resp.rq_entries = qp->rq.entries;
		resp.sq_stride = qp->sq.stride;
		resp.rq_stride = qp->rq.stride;
		resp.qp_id = qp->qpn;
		resp.max_inline = qp->max_inline;
		ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
		if (ret)
			goto err_obj;
	}
	return 0;

err_obj:
	swp_qp_destroy_obj(qp);
err_queues:
	free_queues(qp);
err_count:
	swp_qp_drop_maker(qp);
	mem_cgroup_put(qp->memcg);
	swp_uncount(dev, SWP_LIMIT_QP, qp->owner);
	swp_pd_del_qp(ibqp->pd);
	return ret;
}

static int destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct swp_qp *qp = to_swp_qp(ibqp);

	swp_qp_destroy_obj(qp);
	swp_cq_settle(qp->scq);
	swp_cq_settle(qp->rcq);
	free_queues(qp);
	mem_cgroup_put(qp->memcg);
	swp_uncount(qp->dev, SWP_LIMIT_QP, qp->owner);
	swp_pd_del_qp(ibqp->pd);
	swp_qp_drop_maker(qp);
	return 0;
}

/* Attributes that belong to a QP which ibv_modify_qp() connects */
#define PAIR_ATTRS	(IB_QP_AV | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_SQ_PSN)

static int modify_state(struct swp_qp *qp, const struct ib_qp_attr *attr,
			int mask)
{
	if (!(mask & IB_QP_STATE))
		return mask & PAIR_ATTRS ? -EINVAL : 0;
	if (attr->qp_state == IB_QPS_RTR && (mask & PAIR_ATTRS))
		return swp_pair_rtr(qp, attr, mask);
	if (attr->qp_state == IB_QPS_RTS && qp->paired)
		return swp_pair_rts(qp, attr, mask);
	/* do not let a program believe that it has connected the QP */
	if (mask & PAIR_ATTRS)
		return -EINVAL;
	return swp_qp_modify_state(qp, attr->qp_state);
}

static int modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_udata *udata)
{
	struct swp_qp *qp = to_swp_qp(ibqp);
	int ret;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	mutex_lock(&qp->modify);
	if (mask & IB_QP_ACCESS_FLAGS)
		WRITE_ONCE(qp->access, attr->qp_access_flags);
	ret = modify_state(qp, attr, mask);
	/* after the change of state, which prevents new start-ups */
	if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_ERR) {
		swp_cm_qp_gone(qp);
		swp_pair_look(qp);
	}
	mutex_unlock(&qp->modify);
	return ret;
}

static int query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	static const u8 state[] = {
		[SWP_QP_RESET]		= IB_QPS_RESET,
		[SWP_QP_INIT]		= IB_QPS_INIT,
		[SWP_QP_RTR]		= IB_QPS_RTR,
		[SWP_QP_WAIT]		= IB_QPS_RTS,
		[SWP_QP_LEFT]		= IB_QPS_RTS,
		[SWP_QP_RTR_UP]		= IB_QPS_RTR,
		[SWP_QP_PARTING]	= IB_QPS_RTS,
		[SWP_QP_RTS]		= IB_QPS_RTS,
		[SWP_QP_CLOSING]	= IB_QPS_SQD,
		[SWP_QP_TERMINATE]	= IB_QPS_ERR,
		[SWP_QP_ERROR]		= IB_QPS_ERR,
	};
	struct swp_qp *qp = to_swp_qp(ibqp);

	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	attr->qp_state = state[READ_ONCE(qp->state)];
	attr->cur_qp_state = attr->qp_state;
	attr->qp_access_flags = qp->access;
	attr->path_mtu = ib_mtu_int_to_enum(qp->dev->netdev->mtu);
	attr->cap.max_send_wr = qp->sq.entries;
	attr->cap.max_recv_wr = qp->rq.entries;
	attr->cap.max_send_sge = qp->max_send_sge;
	attr->cap.max_recv_sge = qp->max_recv_sge;
	attr->cap.max_inline_data = qp->max_inline;
	attr->max_rd_atomic = qp->sp.ord;
	attr->max_dest_rd_atomic = qp->sp.ird;
	attr->port_num = 1;
	if (READ_ONCE(qp->paired))
		/* anybody may see a queue pair with `rdma resource show`, mask 0 */
		swp_pair_query(qp, attr, mask);
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = attr->cap;
	init->qp_type = IB_QPT_RC;
	init->sq_sig_type = qp->sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	init->port_num = 1;
	return 0;
}

/* Posting by kernel consumers ----------------------------------------------*/

static int copy_inline(struct swp_sqe *e, void *dst, u32 max,
		       const struct ib_send_wr *wr)
{
	u32 i, len = 0;

	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > max - len)
			return -EINVAL;
		memcpy(dst + len, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		len += wr->sg_list[i].length;
	}
	e->inline_len = len;
	return 0;
}

static int fill_atomic(struct swp_qp *qp, struct swp_sqe *e,
		       const struct ib_send_wr *wr)
{
	const struct ib_atomic_wr *a = atomic_wr(wr);
	struct swp_sge *sge = (struct swp_sge *)(e + 1);
	struct swp_operands *ops = (struct swp_operands *)(sge + 1);
	bool cas = wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP;

	if (wr->num_sge != 1 || (wr->send_flags & IB_SEND_INLINE))
		return -EINVAL;
	e->opcode = cas ? SWP_OP_CMP_SWAP : SWP_OP_FETCH_ADD;
	e->remote_addr = a->remote_addr;
	e->rkey = a->rkey;
	e->num_sge = 1;
	swp_copy_sges(sge, wr->sg_list, 1);
	ops->data = cas ? a->swap : a->compare_add;
	ops->compare = cas ? a->compare_add : 0;
	return 0;
}

static int fill_sqe(struct swp_qp *qp, struct swp_sqe *e,
		    const struct ib_send_wr *wr)
{
	struct swp_sge *sge = (struct swp_sge *)(e + 1);

	memset(e, 0, sizeof(*e));
	e->wr_id = wr->wr_id;
	if ((wr->send_flags & IB_SEND_SIGNALED) || qp->sig_all)
		e->flags |= SWP_WQE_SIGNALED;
	if (wr->send_flags & IB_SEND_SOLICITED)
		e->flags |= SWP_WQE_SOLICITED;
	if (wr->send_flags & IB_SEND_FENCE)
		e->flags |= SWP_WQE_FENCE;
	switch (wr->opcode) {
	case IB_WR_SEND:
		e->opcode = SWP_OP_SEND;
		break;
	case IB_WR_SEND_WITH_INV:
		e->opcode = SWP_OP_SEND_INV;
		e->imm_inv = wr->ex.invalidate_rkey;
		break;
	case IB_WR_RDMA_WRITE:
		e->opcode = SWP_OP_WRITE;
		e->remote_addr = rdma_wr(wr)->remote_addr;
		e->rkey = rdma_wr(wr)->rkey;
		break;
	case IB_WR_RDMA_READ:
		e->opcode = SWP_OP_READ;
		e->remote_addr = rdma_wr(wr)->remote_addr;
		e->rkey = rdma_wr(wr)->rkey;
		break;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		e->opcode = SWP_OP_WRITE_IMM;
		e->remote_addr = rdma_wr(wr)->remote_addr;
		e->rkey = rdma_wr(wr)->rkey;
		e->imm_inv = (__force u32)wr->ex.imm_data;
		break;
	case IB_WR_SEND_WITH_IMM:
		e->opcode = SWP_OP_SEND_IMM;
		e->imm_inv = (__force u32)wr->ex.imm_data;
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return fill_atomic(qp, e, wr);
	case IB_WR_RDMA_READ_WITH_INV:
		/*
		 * The STag to invalidate is that of the sink.  The core's
		 * rdma_rw changes the key after it has set invalidate_rkey.
		 */
		if (wr->num_sge != 1)
			return -EINVAL;
		e->opcode = SWP_OP_READ_INV;
		e->remote_addr = rdma_wr(wr)->remote_addr;
		e->rkey = rdma_wr(wr)->rkey;
		e->imm_inv = wr->sg_list[0].lkey;
		break;
	case IB_WR_REG_MR:
		/* the engine finds the region by its key, as elsewhere */
		e->opcode = SWP_OP_REG_MR;
		e->rkey = reg_wr(wr)->key;
		e->remote_addr = reg_wr(wr)->access;
		return reg_wr(wr)->mr->pd == qp->base.pd ? 0 : -EINVAL;
	case IB_WR_LOCAL_INV:
		e->opcode = SWP_OP_LOCAL_INV;
		e->imm_inv = wr->ex.invalidate_rkey;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
	if (wr->num_sge < 0 || wr->num_sge > qp->max_send_sge)
		return -EINVAL;
	if (wr->send_flags & IB_SEND_INLINE) {
		e->flags |= SWP_WQE_INLINE;
		return copy_inline(e, sge, qp->max_inline, wr);
	}
	e->num_sge = wr->num_sge;
	swp_copy_sges(sge, wr->sg_list, wr->num_sge);
	return 0;
}

/* Octets that a request sends */
static u64 octets_of(const struct ib_send_wr *wr)
{
	u64 octets = 0;
	int i;

	if (wr->opcode == IB_WR_RDMA_READ ||
	    wr->opcode == IB_WR_RDMA_READ_WITH_INV ||
	    wr->opcode == IB_WR_REG_MR || wr->opcode == IB_WR_LOCAL_INV)
		return 0;
	for (i = 0; i < wr->num_sge; i++)
		octets += wr->sg_list[i].length;
	return octets;
}

static unsigned long post_lock(const struct swp_qp *qp, spinlock_t *lock)
	__acquires(lock)
{
	unsigned long flags = 0;

	if (qp->prompt)
		spin_lock_bh(lock);
	else
		spin_lock_irqsave(lock, flags);
	return flags;
}

static void post_unlock(const struct swp_qp *qp, spinlock_t *lock,
			unsigned long flags) __releases(lock)
{
	if (qp->prompt)
		spin_unlock_bh(lock);
	else
		spin_unlock_irqrestore(lock, flags);
}

/* A user QP: an empty list is the doorbell.  Kernel consumers: any context. */
static int post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		     const struct ib_send_wr **bad)
{
	struct swp_qp *qp = to_swp_qp(ibqp);
	struct swp_ring_ctrl *ctrl;
	unsigned long flags;
	u64 octets = 0;
	int ret = 0;
	u32 prod;

	if (qp->user) {
		if (wr) {
			*bad = wr;
			return -EINVAL;
		}
		swp_qp_doorbell(qp);
		return 0;
	}
	if (!qp->sq.entries) {
		*bad = wr;
		return -EINVAL;
	}
	ctrl = swp_ring_ctrl(&qp->sq);
	flags = post_lock(qp, &qp->sq_post_lock);
	prod = ctrl->prod;
	for (; wr; wr = wr->next) {
		/* pairs with the engine's release of cons */
		if (prod - smp_load_acquire(&ctrl->cons) >= qp->sq.entries) {
			ret = -ENOMEM;
			break;
		}
		ret = fill_sqe(qp, swp_ring_slot(&qp->sq, prod), wr);
		if (ret)
			break;
		octets += octets_of(wr);
		prod++;
	}
	/* pairs with the engine's acquire load of prod */
	smp_store_release(&ctrl->prod, prod);
	post_unlock(qp, &qp->sq_post_lock, flags);
	if (ret)
		*bad = wr;
	/* pairs with the engine's barrier between kick and prod */
	smp_mb();
	if (READ_ONCE(ctrl->kick))
		swp_qp_posted(qp, octets);
	return ret;
}

static int post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad)
{
	struct swp_qp *qp = to_swp_qp(ibqp);
	unsigned long flags;
	int ret;

	if (qp->user || !qp->rq.entries) {
		*bad = wr;
		return -EINVAL;
	}
	swp_qp_consumer_is_here(qp);
	flags = post_lock(qp, &qp->rq_post_lock);
	ret = swp_rqe_post(&qp->rq, qp->max_recv_sge, wr, bad);
	/* pairs with flush_rq()'s barrier: it sees the request or we kick */
	smp_mb();
	if (READ_ONCE(swp_ring_ctrl(&qp->rq)->kick))
		swp_qp_kick(qp);
	post_unlock(qp, &qp->rq_post_lock, flags);
	return ret;
}

/* iw_cm -------------------------------------------------------------------- */

/*
 * iw_cm finds a QP and takes its reference in two calls; in between the QP may
 * be destroyed.  So the first call takes the reference: one iw_add_ref()
 * follows each iw_get_qp() that finds a QP, and nothing else calls either, in
 * 6.12 and in 7.3.
 */
static void iw_add_ref(struct ib_qp *ibqp)
{
}

static void iw_rem_ref(struct ib_qp *ibqp)
{
	swp_qp_put(to_swp_qp(ibqp));
}

/*
 * Called with interrupts off and without the id.  So only swp_cm_connect() and
 * swp_cm_accept() can check whether a kernel QP is that of the id.
 */
static struct ib_qp *iw_get_qp(struct ib_device *ibdev, int qpn)
{
	struct xarray *qps = &to_swp_dev(ibdev)->qps;
	struct swp_qp *qp;

	/* no xa_lock_bh() as elsewhere: interrupts are off already */
	xa_lock(qps);
	qp = xa_load(qps, qpn);
	if (qp && !refcount_inc_not_zero(&qp->ref))
		qp = NULL;
	xa_unlock(qps);
	if (!qp)
		return NULL;
	/* do not delay the destruction of another user's QP */
	if (qp->user && !swp_qp_may_connect(qp)) {
		swp_qp_put(qp);
		return NULL;
	}
	return &qp->base;
}

const struct ib_device_ops swp_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = SWP_DRIVER_ID,
	.uverbs_abi_ver = SWP_ABI_VERSION,

	.alloc_mr = swp_alloc_mr,
	.alloc_mw = swp_alloc_mw,
	.alloc_hw_port_stats = swp_alloc_port_stats,
	.alloc_pd = alloc_pd,
	.alloc_ucontext = alloc_ucontext,
	.counter_alloc_stats = swp_counter_alloc_stats,
	.counter_dealloc = swp_counter_dealloc,
	.counter_update_stats = swp_counter_update_stats,
	.create_qp = create_qp,
	.create_srq = swp_create_srq,
	.dealloc_mw = swp_dealloc_mw,
	.dealloc_driver = swp_dealloc_driver,
	.dealloc_pd = dealloc_pd,
	.dealloc_ucontext = dealloc_ucontext,
	.dereg_mr = swp_dereg_mr,
	.destroy_cq = swp_destroy_cq,
	.destroy_qp = destroy_qp,
	.destroy_srq = swp_destroy_srq,
	.device_group = &swp_policy_group,
	.disassociate_ucontext = disassociate_ucontext,
	.fill_res_cq_entry = swp_fill_res_cq,
	.fill_res_mr_entry = swp_fill_res_mr,
	.fill_res_qp_entry = swp_fill_res_qp,
	.get_dev_fw_str = get_fw_str,
	.get_dma_mr = swp_get_dma_mr,
	.get_hw_stats = swp_get_port_stats,
	.get_port_immutable = get_port_immutable,
	.iw_accept = swp_cm_accept,
	.iw_add_ref = iw_add_ref,
	.iw_connect = swp_cm_connect,
	.iw_create_listen = swp_cm_listen,
	.iw_destroy_listen = swp_cm_destroy_listen,
	.iw_get_qp = iw_get_qp,
	.iw_reject = swp_cm_reject,
	.iw_rem_ref = iw_rem_ref,
	.map_mr_sg = swp_map_mr_sg,
	.mmap = swp_mmap,
	.mmap_free = swp_mmap_free,
	.modify_cq = swp_modify_cq,
	.modify_qp = modify_qp,
	.modify_srq = swp_modify_srq,
	.poll_cq = swp_poll_cq,
	.post_recv = post_recv,
	.post_send = post_send,
	.post_srq_recv = swp_post_srq_recv,
	.process_mad = swp_process_mad,
	.query_device = query_device,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.query_port = query_port,
	.query_qp = query_qp,
	.query_srq = swp_query_srq,
	.req_notify_cq = swp_req_notify_cq,
	.rereg_user_mr = swp_rereg_user_mr,

	INIT_RDMA_OBJ_SIZE(ib_cq, swp_cq, base),
	INIT_RDMA_OBJ_SIZE(ib_mw, swp_mw, base),
	INIT_RDMA_OBJ_SIZE(ib_pd, swp_pd, base),
	INIT_RDMA_OBJ_SIZE(ib_qp, swp_qp, base),
	INIT_RDMA_OBJ_SIZE(ib_srq, swp_srq, base),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, swp_ucontext, base),
};

SWP_OP_COUNTER_BIND(counter_bind, swp_counter_bind)
SWP_OP_COUNTER_UNBIND(counter_unbind, swp_counter_unbind)
SWP_OP_CREATE_CQ(create_cq, swp_create_cq)
SWP_OP_REG_USER_MR(reg_user_mr, swp_reg_user_mr)
SWP_OP_RESIZE_CQ(resize_cq, swp_resize_cq)

void swp_set_version_ops(struct ib_device *ibdev)
{
	static const struct ib_device_ops ops = {
		.counter_bind_qp = counter_bind,
		.counter_unbind_qp = counter_unbind,
		.create_cq = create_cq,
		.reg_user_mr = reg_user_mr,
		SWP_SET_RESIZE_CQ(resize_cq),
		SWP_SET_COUNTER_INIT
	};

	ib_set_device_ops(ibdev, &ops);
}
