// SPDX-License-Identifier: GPL-2.0
/*
 * The verbs as consumers in the kernel use them, between two ends of one
 * connection of this host, made by rdma_cm: fast registration, invalidation by
 * either side, shared receive queues, atomics, draining, posting and polling in
 * whatever context.  `a` connects, `b` accepts.
 *
 * Needs a device that has the address `addr`; scripts/vm makes one.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/in.h>
#include <linux/inet.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/tcp.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "softwarp/qp.h"

static char *addr = "10.77.0.1";
module_param(addr, charp, 0444);
MODULE_PARM_DESC(addr, "IPv4 address of the device under test (10.77.0.1)");

#define PATIENCE	(60 * HZ)
#define DEPTH		64
#define PAGES		9
/* bytes that a registration begins behind the start of its first page */
#define SKEW		1234
#define REGION		(PAGES * PAGE_SIZE - 2 * SKEW)

struct end {
	struct kunit *test;
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_srq *srq;
	struct ib_qp *qp;
	struct completion step;		/* address, route or request */
	struct completion up;
	struct completion down;
	int status;
	atomic_t limits;		/* SRQ_LIMIT_REACHED */
	bool drained;
	const struct task_struct *posts;	/* it is in ib_post_send() */
	atomic_t nested;		/* events that were raised there */
};

struct pair {
	struct kunit *test;
	struct rdma_cm_id *lis;
	struct sockaddr_in at;
	struct end a, b;
};

/* What a test wants its ends to be */
struct kind {
	enum ib_poll_context poll;
	bool srq;
	bool own;			/* the CQ is ib_create_cq()'s */
};

/* A request and what became of it */
struct req {
	struct ib_cqe cqe;
	struct completion done;
	struct ib_wc wc;
};

static void req_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct req *r = container_of(wc->wr_cqe, struct req, cqe);

	r->wc = *wc;
	complete(&r->done);
}

static struct ib_cqe *req_cqe(struct req *r)
{
	memset(r, 0, sizeof(*r));
	init_completion(&r->done);
	r->cqe.done = req_done;
	return &r->cqe;
}

/* Status of a request, or -1 when it does not complete. */
static int req_wait(struct end *e, struct req *r)
{
	unsigned long limit = jiffies + PATIENCE;

	if (e->cq->poll_ctx != IB_POLL_DIRECT) {
		if (!wait_for_completion_timeout(&r->done, PATIENCE))
			return -1;
		return r->wc.status;
	}
	while (!try_wait_for_completion(&r->done)) {
		if (time_after(jiffies, limit))
			return -1;
		ib_process_cq_direct(e->cq, -1);
		usleep_range(100, 1000);
	}
	return r->wc.status;
}

/* A macro, so that a failure names the line of the case. */
#define EXPECT_STATUS(e, r, wanted)					\
	do {								\
		struct end *_e = (e);					\
									\
		KUNIT_EXPECT_EQ(_e->test, req_wait(_e, r), (int)(wanted)); \
	} while (0)

/* Connections ------------------------------------------------------------- */

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *ev)
{
	struct end *e = id->context;

	switch (ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		complete(&e->step);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		e->status = ev->status;
		complete(&e->up);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		complete(&e->down);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		e->status = ev->status ? ev->status : -ECONNREFUSED;
		complete(&e->step);
		complete(&e->up);
		break;
	default:
		break;
	}
	return 0;
}

static int on_listener(struct rdma_cm_id *id, struct rdma_cm_event *ev)
{
	struct pair *p = id->context;

	if (ev->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return 0;
	id->context = &p->b;
	id->event_handler = on_event;
	p->b.id = id;
	complete(&p->b.step);
	return 0;
}

/* A consumer's own handler, which polls where it is called */
static void on_completion(struct ib_cq *cq, void *context)
{
	struct end *e = context;
	struct ib_wc wc;

	if (READ_ONCE(e->posts) == current && !in_serving_softirq())
		atomic_inc(&e->nested);
	do {
		while (ib_poll_cq(cq, 1, &wc) > 0)
			wc.wr_cqe->done(cq, &wc);
	} while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				      IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

static struct ib_cq *own_cq(struct end *e)
{
	struct ib_cq_init_attr attr = { .cqe = 4 * DEPTH };
	struct ib_cq *cq = ib_create_cq(e->id->device, on_completion, NULL, e,
					&attr);

	if (!IS_ERR(cq))
		ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	return cq;
}

static void on_srq(struct ib_event *ev, void *context)
{
	struct end *e = context;

	if (ev->event == IB_EVENT_SRQ_LIMIT_REACHED)
		atomic_inc(&e->limits);
}

static void end_init(struct end *e, struct kunit *test)
{
	e->test = test;
	init_completion(&e->step);
	init_completion(&e->up);
	init_completion(&e->down);
}

static int end_make(struct end *e, const struct kind *kind)
{
	struct ib_device *dev = e->id->device;
	struct ib_qp_init_attr attr = {
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 4,
			.max_recv_sge = 4,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_srq_init_attr srq = {
		.event_handler = on_srq,
		.srq_context = e,
		.attr = { .max_wr = DEPTH, .max_sge = 4 },
		.srq_type = IB_SRQT_BASIC,
	};
	int ret;

	e->pd = ib_alloc_pd(dev, 0);
	if (IS_ERR(e->pd))
		return PTR_ERR(e->pd);
	e->cq = kind->own ? own_cq(e) :
			    ib_alloc_cq(dev, e, 4 * DEPTH, 0, kind->poll);
	if (IS_ERR(e->cq))
		return PTR_ERR(e->cq);
	if (kind->srq) {
		e->srq = ib_create_srq(e->pd, &srq);
		if (IS_ERR(e->srq))
			return PTR_ERR(e->srq);
	}
	attr.send_cq = e->cq;
	attr.recv_cq = e->cq;
	attr.srq = e->srq;
	if (e->srq)
		attr.cap.max_recv_wr = 0;
	ret = rdma_create_qp(e->id, e->pd, &attr);
	if (!ret)
		e->qp = e->id->qp;
	return ret;
}

/* Once: the core waits in vain for a second event of the last WQE of an SRQ. */
static void end_drain(struct end *e)
{
	if (!e->drained)
		ib_drain_qp(e->qp);
	e->drained = true;
}

static void end_drop(struct end *e)
{
	if (e->qp) {
		end_drain(e);
		rdma_destroy_qp(e->id);
	}
	if (e->id)
		rdma_destroy_id(e->id);
	if (!IS_ERR_OR_NULL(e->srq))
		ib_destroy_srq(e->srq);
	if (!IS_ERR_OR_NULL(e->cq) && e->cq->wc)
		ib_free_cq(e->cq);
	else if (!IS_ERR_OR_NULL(e->cq))
		ib_destroy_cq(e->cq);
	if (!IS_ERR_OR_NULL(e->pd))
		ib_dealloc_pd(e->pd);
}

static bool came(struct completion *c)
{
	return wait_for_completion_timeout(c, PATIENCE);
}

static bool failed(const struct kunit *test)
{
	return READ_ONCE(test->status) == KUNIT_FAILURE;
}

static void must(struct kunit *test, int ret, const char *what)
{
	if (ret)
		KUNIT_FAIL(test, "%s: %d", what, ret);
}

/* One try; what was made is for pair_drop(). */
static int pair_connect(struct pair *p, const struct kind *kind)
{
	struct rdma_conn_param param = {
		.responder_resources = 8,
		.initiator_depth = 8,
	};
	int ret;

	p->lis = rdma_create_id(&init_net, on_listener, p, RDMA_PS_TCP,
				IB_QPT_RC);
	if (IS_ERR(p->lis))
		return PTR_ERR(p->lis);
	p->at.sin_family = AF_INET;
	p->at.sin_addr.s_addr = in_aton(addr);
	ret = rdma_bind_addr(p->lis, (struct sockaddr *)&p->at);
	if (!ret)
		ret = rdma_listen(p->lis, 4);
	if (ret)
		return ret;
	p->at = *(struct sockaddr_in *)&p->lis->route.addr.src_addr;

	p->a.id = rdma_create_id(&init_net, on_event, &p->a, RDMA_PS_TCP,
				 IB_QPT_RC);
	if (IS_ERR(p->a.id)) {
		ret = PTR_ERR(p->a.id);
		p->a.id = NULL;
		return ret;
	}
	ret = rdma_resolve_addr(p->a.id, NULL, (struct sockaddr *)&p->at, 5000);
	if (!ret)
		ret = came(&p->a.step) ? p->a.status : -ETIMEDOUT;
	if (!ret)
		ret = rdma_resolve_route(p->a.id, 5000);
	if (!ret)
		ret = came(&p->a.step) ? p->a.status : -ETIMEDOUT;
	if (!ret)
		ret = end_make(&p->a, kind);
	if (!ret)
		ret = rdma_connect(p->a.id, &param);
	if (!ret)
		ret = came(&p->b.step) ? 0 : -ETIMEDOUT;
	if (!ret)
		ret = end_make(&p->b, kind);
	if (ret)
		return ret;
	rdma_lock_handler(p->b.id);
	ret = rdma_accept(p->b.id, &param);
	rdma_unlock_handler(p->b.id);
	if (!ret)
		ret = came(&p->a.up) && came(&p->b.up) ? p->a.status :
							 -ETIMEDOUT;
	return ret;
}

static void pair_drop(struct pair *p)
{
	if (p->a.qp)
		rdma_disconnect(p->a.id);
	end_drop(&p->a);
	end_drop(&p->b);
	if (!IS_ERR_OR_NULL(p->lis))
		rdma_destroy_id(p->lis);
	kfree(p);
}

static struct pair *pair_make(struct kunit *test, struct kind kind)
{
	struct pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int ret;

	KUNIT_ASSERT_NOT_NULL(test, p);
	p->test = test;
	end_init(&p->a, test);
	end_init(&p->b, test);
	ret = pair_connect(p, &kind);
	if (ret) {
		pair_drop(p);
		KUNIT_FAIL_AND_ABORT(test, "no connection: %d", ret);
	}
	return p;
}

/* Memory ------------------------------------------------------------------ */

/* Pages that do not lie side by side, and a fast registration for them */
struct mem {
	struct end *e;
	void *page[PAGES];
	struct scatterlist sg[PAGES];
	struct ib_mr *mr;
};

static u8 *mem_at(struct mem *m, u32 off)
{
	off += SKEW;
	return (u8 *)m->page[off / PAGE_SIZE] + off % PAGE_SIZE;
}

static void mem_fill(struct mem *m, u8 seed)
{
	u32 i;

	for (i = 0; i < REGION; i++)
		*mem_at(m, i) = (u8)(seed + i * 7 + (i >> 8));
}

static bool mem_same(struct mem *x, struct mem *y)
{
	u32 i;

	for (i = 0; i < REGION; i++)
		if (*mem_at(x, i) != *mem_at(y, i))
			return false;
	return true;
}

static int mem_paged(struct mem *m)
{
	return ib_map_mr_sg(m->mr, m->sg, PAGES, NULL, PAGE_SIZE);
}

static void mem_free(struct mem *m)
{
	int i;

	if (!IS_ERR_OR_NULL(m->mr))
		ib_dereg_mr(m->mr);
	for (i = 0; i < PAGES; i++)
		free_page((unsigned long)m->page[i]);
	kfree(m);
}

static struct mem *mem_make(struct end *e)
{
	struct mem *m = kzalloc(sizeof(*m), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(e->test, m);
	m->e = e;
	sg_init_table(m->sg, PAGES);
	for (i = 0; i < PAGES; i++) {
		u32 off = i ? 0 : SKEW;
		u32 len = PAGE_SIZE - off - (i == PAGES - 1 ? SKEW : 0);

		m->page[i] = (void *)get_zeroed_page(GFP_KERNEL);
		if (!m->page[i])
			goto err;
		sg_set_buf(&m->sg[i], m->page[i] + off, len);
	}
	if (ib_dma_map_sg(e->id->device, m->sg, PAGES, DMA_BIDIRECTIONAL) !=
	    PAGES)
		goto err;
	m->mr = ib_alloc_mr(e->pd, IB_MR_TYPE_MEM_REG, PAGES);
	if (IS_ERR(m->mr) || mem_paged(m) != PAGES)
		goto err;
	return m;
err:
	mem_free(m);
	KUNIT_FAIL_AND_ABORT(e->test, "no memory region");
	return NULL;
}

static struct ib_reg_wr reg_wr_of(struct mem *m, int access, struct req *r)
{
	ib_update_fast_reg_key(m->mr, ib_inc_rkey(m->mr->rkey) & 0xff);
	return (struct ib_reg_wr){
		.wr.opcode = IB_WR_REG_MR,
		.wr.wr_cqe = req_cqe(r),
		.wr.send_flags = IB_SEND_SIGNALED,
		.mr = m->mr,
		.key = m->mr->rkey,
		.access = access,
	};
}

/* Posts a registration and waits for it. */
static void mem_reg(struct mem *m, int access)
{
	struct req r;
	struct ib_reg_wr wr = reg_wr_of(m, access, &r);

	must(m->e->test, ib_post_send(m->e->qp, &wr.wr, NULL), "REG_MR");
	EXPECT_STATUS(m->e, &r, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(m->e->test, (int)r.wc.opcode, (int)IB_WC_REG_MR);
}

static struct ib_sge sge_of(struct mem *m)
{
	return (struct ib_sge){
		.addr = m->mr->iova,
		.length = m->mr->length,
		.lkey = m->mr->lkey,
	};
}

static void post_write(struct mem *from, u64 remote, u32 rkey, struct req *r)
{
	struct ib_sge sge = sge_of(from);
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = req_cqe(r),
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_RDMA_WRITE,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = remote,
		.rkey = rkey,
	};

	must(from->e->test, ib_post_send(from->e->qp, &wr.wr, NULL), "Write");
}

/* A small buffer in the linear map, by the PD's own key */
static struct ib_sge flat(struct end *e, void *buf, u32 len)
{
	return (struct ib_sge){
		.addr = ib_dma_map_single(e->id->device, buf, len,
					  DMA_BIDIRECTIONAL),
		.length = len,
		.lkey = e->pd->local_dma_lkey,
	};
}

static int post_recv(struct end *e, struct ib_sge *sge, struct req *r)
{
	struct ib_recv_wr wr = {
		.wr_cqe = req_cqe(r),
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
	};

	return e->srq ? ib_post_srq_recv(e->srq, &wr, NULL) :
			ib_post_recv(e->qp, &wr, NULL);
}

static int post_send(struct end *e, struct ib_sge *sge, u32 inv, int flags,
		     struct req *r)
{
	struct ib_send_wr wr = {
		.wr_cqe = req_cqe(r),
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
		.opcode = inv ? IB_WR_SEND_WITH_INV : IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED | flags,
		.ex.invalidate_rkey = inv,
	};

	int ret;

	WRITE_ONCE(e->posts, current);
	ret = ib_post_send(e->qp, &wr, NULL);
	WRITE_ONCE(e->posts, NULL);
	return ret;
}

static int local_inv(struct mem *m, u32 key)
{
	struct req r;
	struct ib_send_wr wr = {
		.wr_cqe = req_cqe(&r),
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key,
	};

	must(m->e->test, ib_post_send(m->e->qp, &wr, NULL), "LOCAL_INV");
	return req_wait(m->e, &r);
}

/* Cases ------------------------------------------------------------------- */

/* The peer writes into a registration and takes it back, as storage does. */
static void write_and_remote_invalidate(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct mem *to = mem_make(&p->a), *from = mem_make(&p->b);
	struct req recv, send, wr;
	int round;

	for (round = 0; round < 20; round++) {
		mem_fill(from, round);
		KUNIT_EXPECT_EQ(test, mem_paged(to), PAGES);
		mem_reg(to, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
		KUNIT_EXPECT_EQ(test, mem_paged(from), PAGES);
		mem_reg(from, IB_ACCESS_LOCAL_WRITE);
		must(test, post_recv(&p->a, NULL, &recv), "receive");
		post_write(from, to->mr->iova, to->mr->rkey, &wr);
		must(test, post_send(&p->b, NULL, to->mr->rkey, 0, &send),
		     "send");
		EXPECT_STATUS(&p->b, &wr, IB_WC_SUCCESS);
		EXPECT_STATUS(&p->b, &send, IB_WC_SUCCESS);
		EXPECT_STATUS(&p->a, &recv, IB_WC_SUCCESS);
		KUNIT_EXPECT_TRUE(test, recv.wc.wc_flags &
					IB_WC_WITH_INVALIDATE);
		KUNIT_EXPECT_EQ(test, recv.wc.ex.invalidate_rkey,
				to->mr->rkey);
		KUNIT_EXPECT_TRUE(test, mem_same(from, to));
		KUNIT_EXPECT_EQ(test, local_inv(from, from->mr->rkey),
				(int)IB_WC_SUCCESS);
		if (failed(test))
			break;
	}
	/* the old key is of no use to the peer any more */
	mem_reg(from, IB_ACCESS_LOCAL_WRITE);
	memset(to->page[0], 0x55, PAGE_SIZE);
	post_write(from, to->mr->iova, to->mr->rkey, &wr);
	KUNIT_EXPECT_TRUE(test, came(&p->a.down));
	KUNIT_EXPECT_TRUE(test, came(&p->b.down));
	KUNIT_EXPECT_EQ(test, ((u8 *)to->page[0])[SKEW], 0x55);
	must(test, post_send(&p->b, NULL, 0, 0, &send), "send");
	KUNIT_EXPECT_EQ(test, req_wait(&p->b, &send),
			(int)IB_WC_WR_FLUSH_ERR);
	end_drain(&p->a);
	end_drain(&p->b);
	mem_free(to);
	mem_free(from);
	pair_drop(p);
}

/* A read into a registration that ends with it; posted as one list. */
static void read_with_invalidate(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_WORKQUEUE });
	struct mem *to = mem_make(&p->a), *from = mem_make(&p->b);
	struct req reg, rd, send;
	int round;

	mem_reg(from, IB_ACCESS_REMOTE_READ);
	for (round = 0; round < 20; round++) {
		struct ib_reg_wr first;
		struct ib_sge sge;
		struct ib_rdma_wr second = {
			.wr = {
				.wr_cqe = req_cqe(&rd),
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IB_WR_RDMA_READ_WITH_INV,
				.send_flags = IB_SEND_SIGNALED,
			},
			.remote_addr = from->mr->iova,
			.rkey = from->mr->rkey,
		};

		mem_fill(from, round + 100);
		KUNIT_EXPECT_EQ(test, mem_paged(to), PAGES);
		first = reg_wr_of(to, IB_ACCESS_LOCAL_WRITE |
				      IB_ACCESS_REMOTE_WRITE, &reg);
		first.wr.send_flags = 0;
		first.wr.next = &second.wr;
		sge = sge_of(to);
		/* as the core leaves it: what counts is the sink's key */
		second.wr.ex.invalidate_rkey = to->mr->rkey - 1;
		must(test, ib_post_send(p->a.qp, &first.wr, NULL), "list");
		EXPECT_STATUS(&p->a, &rd, IB_WC_SUCCESS);
		KUNIT_EXPECT_EQ(test, (int)rd.wc.opcode,
				(int)IB_WC_RDMA_READ);
		KUNIT_EXPECT_TRUE(test, mem_same(from, to));
		if (failed(test))
			break;
	}
	/* it is invalid now, also for ourselves */
	{
		struct ib_sge sge = sge_of(to);

		must(test, post_send(&p->a, &sge, 0, 0, &send), "send");
	}
	EXPECT_STATUS(&p->a, &send, IB_WC_LOC_PROT_ERR);
	mem_free(to);
	end_drain(&p->b);
	mem_free(from);
	pair_drop(p);
}

/* Local Invalidate of another key than the current one fails the QP. */
static void wrong_key(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct mem *m = mem_make(&p->a);

	mem_reg(m, IB_ACCESS_REMOTE_READ);
	KUNIT_EXPECT_EQ(test, local_inv(m, m->mr->rkey),
			(int)IB_WC_SUCCESS);
	mem_reg(m, IB_ACCESS_REMOTE_READ);
	KUNIT_EXPECT_EQ(test, local_inv(m, m->mr->rkey ^ 1),
			(int)IB_WC_LOC_QP_OP_ERR);
	KUNIT_EXPECT_TRUE(test, came(&p->b.down));
	mem_free(m);
	pair_drop(p);
}

/* A registration that is valid already is not done again. */
static void register_twice(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct mem *m = mem_make(&p->a);
	struct ib_reg_wr wr;
	struct req r;

	mem_reg(m, IB_ACCESS_REMOTE_READ);
	wr = reg_wr_of(m, IB_ACCESS_REMOTE_READ, &r);
	must(test, ib_post_send(p->a.qp, &wr.wr, NULL), "REG_MR");
	EXPECT_STATUS(&p->a, &r, IB_WC_MW_BIND_ERR);
	mem_free(m);
	pair_drop(p);
}

static void bad_posts(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct pair *q = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct mem *other = mem_make(&q->a);
	const struct ib_send_wr *bad = NULL;
	const struct ib_recv_wr *bad_recv = NULL;
	struct ib_sge sge[5] = {};
	struct req r, s;
	struct ib_reg_wr reg = reg_wr_of(other, 0, &r);
	struct ib_send_wr second = {
		.wr_cqe = req_cqe(&s),
		.sg_list = sge,
		.num_sge = 5,
		.opcode = IB_WR_SEND,
	};
	struct ib_send_wr first = {
		.next = &second,
		.wr_cqe = req_cqe(&r),
		.opcode = IB_WR_RDMA_WRITE,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_rdma_wr write = { .wr = first };
	struct ib_recv_wr recv = {
		.wr_cqe = req_cqe(&s),
		.sg_list = sge,
		.num_sge = 5,
	};
	int i;

	/* what stands before the bad one is done */
	KUNIT_EXPECT_EQ(test, ib_post_send(p->a.qp, &write.wr, &bad), -EINVAL);
	KUNIT_EXPECT_PTR_EQ(test, bad, (const struct ib_send_wr *)&second);
	EXPECT_STATUS(&p->a, &r, IB_WC_SUCCESS);

	second.num_sge = 0;
	second.opcode = IB_WR_LSO;
	KUNIT_EXPECT_LT(test, ib_post_send(p->a.qp, &second, &bad), 0);
	reg.wr.wr_cqe = &s.cqe;
	KUNIT_EXPECT_EQ(test, ib_post_send(p->a.qp, &reg.wr, &bad), -EINVAL);
	KUNIT_EXPECT_EQ(test, ib_post_recv(p->a.qp, &recv, &bad_recv),
			-EINVAL);
	KUNIT_EXPECT_PTR_EQ(test, bad_recv, (const struct ib_recv_wr *)&recv);

	/* and a full queue says so */
	recv.num_sge = 0;
	for (i = 0; i < 4 * DEPTH; i++)
		if (ib_post_recv(p->b.qp, &recv, &bad_recv))
			break;
	KUNIT_EXPECT_GE(test, i, DEPTH);
	KUNIT_EXPECT_LT(test, i, 4 * DEPTH);
	mem_free(other);
	pair_drop(q);
	pair_drop(p);
}

/* Sends of many sizes, inline ones among them, in order. */
static void sends(struct kunit *test, struct kind kind)
{
	struct pair *p = pair_make(test, kind);
	static const u32 sizes[] = { 0, 1, 17, 256, 1460, 4096, 16384 };
	u8 *from = kmalloc(16384, GFP_KERNEL), *to = kmalloc(16384, GFP_KERNEL);
	struct req s, r;
	int i, n;

	KUNIT_ASSERT_NOT_NULL(test, from);
	KUNIT_ASSERT_NOT_NULL(test, to);
	for (n = 0; n < 3 * DEPTH && !failed(test); n++) {
		u32 len = sizes[n % ARRAY_SIZE(sizes)];
		struct ib_sge out = flat(&p->a, from, len);
		struct ib_sge in = flat(&p->b, to, 16384);

		get_random_bytes(from, 16384);
		memset(to, 0, 16384);
		must(test, post_recv(&p->b, &in, &r), "receive");
		must(test, post_send(&p->a, &out, 0, 0, &s), "send");
		EXPECT_STATUS(&p->a, &s, IB_WC_SUCCESS);
		EXPECT_STATUS(&p->b, &r, IB_WC_SUCCESS);
		KUNIT_EXPECT_EQ(test, r.wc.byte_len, len);
		KUNIT_EXPECT_PTR_EQ(test, r.wc.qp, p->b.qp);
		KUNIT_EXPECT_EQ(test, memcmp(from, to, len), 0);
		for (i = len; i < 16384; i++)
			if (to[i])
				break;
		KUNIT_EXPECT_EQ(test, i, 16384);
	}
	/* it may hold the lock that its handler takes: core_locking.rst */
	KUNIT_EXPECT_EQ(test, atomic_read(&p->a.nested), 0);
	pair_drop(p);
	kfree(from);
	kfree(to);
}

static void sends_softirq(struct kunit *test)
{
	sends(test, (struct kind){ IB_POLL_SOFTIRQ });
}

static void sends_workqueue(struct kunit *test)
{
	sends(test, (struct kind){ IB_POLL_WORKQUEUE });
}

static void sends_direct(struct kunit *test)
{
	sends(test, (struct kind){ IB_POLL_DIRECT });
}

static void sends_shared(struct kunit *test)
{
	sends(test, (struct kind){ IB_POLL_SOFTIRQ, .srq = true });
}

static void sends_own(struct kunit *test)
{
	sends(test, (struct kind){ .own = true });
}

/* Events come late and for several completions at once, but they come. */
static void moderated(struct kunit *test)
{
	static const enum ib_poll_context polls[] = {
		IB_POLL_SOFTIRQ, IB_POLL_WORKQUEUE,
	};
	struct req r[8], s[8];
	int i, j;

	for (i = 0; i < 2 * ARRAY_SIZE(polls) && !failed(test); i++) {
		struct pair *p = pair_make(test, (struct kind){ polls[i / 2] });
		/* the count, or the period, is what does it */
		u16 count = i & 1 ? ARRAY_SIZE(r) : 1000;

		must(test, rdma_set_cq_moderation(p->a.cq, count, 5000), "a");
		must(test, rdma_set_cq_moderation(p->b.cq, count, 5000), "b");
		for (j = 0; j < ARRAY_SIZE(r); j++) {
			must(test, post_recv(&p->b, NULL, &r[j]), "receive");
			must(test, post_send(&p->a, NULL, 0, 0, &s[j]), "send");
		}
		for (j = 0; j < ARRAY_SIZE(r); j++) {
			EXPECT_STATUS(&p->a, &s[j], IB_WC_SUCCESS);
			EXPECT_STATUS(&p->b, &r[j], IB_WC_SUCCESS);
		}
		/* held back when all of it goes: draining waits for it */
		must(test, rdma_set_cq_moderation(p->a.cq, 1000, U16_MAX), "a");
		must(test, rdma_set_cq_moderation(p->b.cq, 1000, U16_MAX), "b");
		must(test, post_recv(&p->b, NULL, &r[0]), "receive");
		must(test, post_send(&p->a, NULL, 0, 0, &s[0]), "send");
		pair_drop(p);
	}
}

static void shared_limit(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ, true });
	struct ib_srq_attr attr = { .srq_limit = 3 };
	struct req r[5], s;
	int i;

	for (i = 0; i < 5; i++)
		must(test, post_recv(&p->b, NULL, &r[i]), "receive");
	must(test, ib_modify_srq(p->b.srq, &attr, IB_SRQ_LIMIT), "limit");
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, atomic_read(&p->b.limits), 0);
		must(test, post_send(&p->a, NULL, 0, 0, &s), "send");
		EXPECT_STATUS(&p->a, &s, IB_WC_SUCCESS);
		EXPECT_STATUS(&p->b, &r[i], IB_WC_SUCCESS);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&p->b.limits), 1);
	must(test, ib_query_srq(p->b.srq, &attr), "query");
	KUNIT_EXPECT_EQ(test, attr.srq_limit, 0);
	/* what nobody took is dropped with the queue */
	pair_drop(p);
}

struct flood {
	struct ib_cqe cqe;
	atomic_t good;
	atomic_t flushed;
	atomic_t other;
};

static void flood_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct flood *f = container_of(wc->wr_cqe, struct flood, cqe);

	if (wc->status == IB_WC_SUCCESS)
		atomic_inc(&f->good);
	else if (wc->status == IB_WC_WR_FLUSH_ERR)
		atomic_inc(&f->flushed);
	else
		atomic_inc(&f->other);
}

static int resize(struct end *e, u32 max_wr)
{
	struct ib_srq_attr attr = { .max_wr = max_wr };

	return ib_modify_srq(e->srq, &attr, IB_SRQ_MAX_WR);
}

/* What waits in a shared receive queue goes along into one of another size. */
static void shared_resize(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ, true });
	struct ib_srq_attr attr;
	struct req *r, s;
	int i, got = 0, posted;

	KUNIT_EXPECT_TRUE(test, p->b.id->device->attrs.device_cap_flags &
				IB_DEVICE_SRQ_RESIZE);
	r = kvcalloc(4 * DEPTH, sizeof(*r), GFP_KERNEL);
	if (!r) {
		pair_drop(p);
		KUNIT_FAIL_AND_ABORT(test, "no memory");
	}
	for (posted = 0; posted < DEPTH; posted++)
		must(test, post_recv(&p->b, NULL, &r[posted]), "receive");
	KUNIT_EXPECT_EQ(test, post_recv(&p->b, NULL, &r[posted]), -ENOMEM);
	KUNIT_EXPECT_EQ(test, resize(&p->b, DEPTH / 2), -EINVAL);
	KUNIT_EXPECT_EQ(test, resize(&p->b, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, resize(&p->b, U32_MAX), -EINVAL);
	KUNIT_EXPECT_EQ(test, post_recv(&p->b, NULL, &r[posted]), -ENOMEM);

	must(test, resize(&p->b, 4 * DEPTH), "resize");
	must(test, ib_query_srq(p->b.srq, &attr), "query");
	KUNIT_EXPECT_EQ(test, attr.max_wr, 4 * DEPTH);
	for (; posted < 4 * DEPTH; posted++)
		must(test, post_recv(&p->b, NULL, &r[posted]), "receive");
	KUNIT_EXPECT_EQ(test, post_recv(&p->b, NULL, &s), -ENOMEM);

	/* each in its turn, to the last, while the queue shrinks */
	for (i = DEPTH; i >= 1; i /= 2) {
		for (; posted - got > i && !failed(test); got++) {
			must(test, post_send(&p->a, NULL, 0, 0, &s), "send");
			EXPECT_STATUS(&p->a, &s, IB_WC_SUCCESS);
			EXPECT_STATUS(&p->b, &r[got], IB_WC_SUCCESS);
		}
		if (failed(test))
			break;
		if (i > 1)
			KUNIT_EXPECT_EQ(test, resize(&p->b, i / 2), -EINVAL);
		must(test, resize(&p->b, i), "resize");
	}
	pair_drop(p);
	kvfree(r);
}

/* A receive that posts itself again, in whatever context it completes */
struct again {
	struct ib_cqe cqe;
	struct end *e;
	atomic_t *left;
	atomic_t *bad;
};

static void again_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct again *r = container_of(wc->wr_cqe, struct again, cqe);
	struct ib_recv_wr wr = { .wr_cqe = &r->cqe };

	if (wc->status != IB_WC_SUCCESS || ib_post_srq_recv(r->e->srq, &wr, NULL))
		atomic_inc(r->bad);
	atomic_dec(r->left);
}

/* Resized by one while others post and take. */
static void shared_resize_in_use(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ, true });
	atomic_t left = ATOMIC_INIT(1500), bad = ATOMIC_INIT(0);
	unsigned long limit = jiffies + PATIENCE;
	struct again r[DEPTH / 2] = {};
	struct flood sent = { .cqe.done = flood_done };
	struct ib_send_wr wr = {
		.wr_cqe = &sent.cqe,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	int i, n, posted = 0, to_send = 1500;

	for (i = 0; i < DEPTH / 2; i++) {
		struct ib_recv_wr recv = { .wr_cqe = &r[i].cqe };

		r[i] = (struct again){ { again_done }, &p->b, &left, &bad };
		must(test, ib_post_srq_recv(p->b.srq, &recv, NULL), "receive");
	}
	for (i = 0; atomic_read(&left) && time_before(jiffies, limit); i++) {
		static const u32 sizes[] = { DEPTH, DEPTH / 2, 1000 };

		must(test, resize(&p->b, sizes[i % 3]), "resize");
		/*
		 * No more on their way than there are receives; and not all at
		 * once where each is received before the next one is posted.
		 */
		for (n = 0; n < DEPTH / 2 && posted < to_send &&
		     posted - atomic_read(&sent.good) < DEPTH / 2 &&
		     posted - (to_send - atomic_read(&left)) < DEPTH / 2; n++) {
			must(test, ib_post_send(p->a.qp, &wr, NULL), "send");
			posted++;
		}
		if (failed(test) || atomic_read(&bad))
			break;
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&left), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&bad), 0);
	KUNIT_EXPECT_GT(test, i, 3);
	end_drain(&p->a);
	KUNIT_EXPECT_EQ(test, atomic_read(&sent.good), to_send);
	pair_drop(p);
}

static void atomics(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct mem *there = mem_make(&p->b);
	u64 *word = (u64 *)PTR_ALIGN(mem_at(there, 0), 8);
	u64 *old = kzalloc(sizeof(*old), GFP_KERNEL);
	struct ib_sge sge = flat(&p->a, old, sizeof(*old));
	struct req r;
	struct ib_atomic_wr wr = {
		.wr = {
			.wr_cqe = req_cqe(&r),
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = there->mr->iova + ((u8 *)word - mem_at(there, 0)),
		.compare_add = 5,
	};

	*word = 37;
	mem_reg(there, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_ATOMIC);
	wr.rkey = there->mr->rkey;
	must(test, ib_post_send(p->a.qp, &wr.wr, NULL), "FetchAdd");
	EXPECT_STATUS(&p->a, &r, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, (int)r.wc.opcode, (int)IB_WC_FETCH_ADD);
	KUNIT_EXPECT_EQ(test, *old, 37);
	KUNIT_EXPECT_EQ(test, *word, 42);

	wr.wr.opcode = IB_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.wr_cqe = req_cqe(&r);
	wr.compare_add = 42;
	wr.swap = 7;
	must(test, ib_post_send(p->a.qp, &wr.wr, NULL), "CmpSwap");
	EXPECT_STATUS(&p->a, &r, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, (int)r.wc.opcode, (int)IB_WC_COMP_SWAP);
	KUNIT_EXPECT_EQ(test, *old, 42);
	KUNIT_EXPECT_EQ(test, *word, 7);
	end_drain(&p->a);
	mem_free(there);
	pair_drop(p);
	kfree(old);
}

static void write_with_immediate(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct mem *to = mem_make(&p->b), *from = mem_make(&p->a);
	struct req r, s;
	struct ib_sge sge;
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = req_cqe(&s),
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_RDMA_WRITE_WITH_IMM,
			.send_flags = IB_SEND_SIGNALED,
			.ex.imm_data = cpu_to_be32(0x12345678),
		},
	};

	mem_fill(from, 9);
	mem_reg(from, IB_ACCESS_LOCAL_WRITE);
	mem_reg(to, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
	sge = sge_of(from);
	wr.remote_addr = to->mr->iova;
	wr.rkey = to->mr->rkey;
	must(test, post_recv(&p->b, NULL, &r), "receive");
	must(test, ib_post_send(p->a.qp, &wr.wr, NULL), "write");
	EXPECT_STATUS(&p->a, &s, IB_WC_SUCCESS);
	EXPECT_STATUS(&p->b, &r, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, (int)r.wc.opcode,
			(int)IB_WC_RECV_RDMA_WITH_IMM);
	KUNIT_EXPECT_TRUE(test, r.wc.wc_flags & IB_WC_WITH_IMM);
	KUNIT_EXPECT_EQ(test, be32_to_cpu(r.wc.ex.imm_data), 0x12345678);
	KUNIT_EXPECT_EQ(test, r.wc.byte_len, (u32)REGION);
	KUNIT_EXPECT_TRUE(test, mem_same(from, to));
	end_drain(&p->a);
	end_drain(&p->b);
	mem_free(to);
	mem_free(from);
	pair_drop(p);
}

/* With interrupts off, as a block driver's completion may be. */
static void post_in_atomic(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct req s, r;
	unsigned long flags;
	int ret[2], i;

	for (i = 0; i < 2 * DEPTH && !failed(test); i++) {
		local_irq_save(flags);
		ret[0] = post_recv(&p->b, NULL, &r);
		ret[1] = post_send(&p->a, NULL, 0, IB_SEND_SOLICITED, &s);
		local_irq_restore(flags);
		must(test, ret[0], "receive");
		must(test, ret[1], "send");
		EXPECT_STATUS(&p->a, &s, IB_WC_SUCCESS);
		EXPECT_STATUS(&p->b, &r, IB_WC_SUCCESS);
	}
	pair_drop(p);
}

/*
 * Queues full of everything are drained at once: each request completes, once,
 * before ib_drain_qp() returns.
 */
static void drain_flood(struct kunit *test, bool srq)
{
	int round, i, ret, posted;

	for (round = 0; round < 12 && !failed(test); round++) {
		struct pair *p = pair_make(test, (struct kind){
			round & 1 ? IB_POLL_WORKQUEUE : IB_POLL_SOFTIRQ, srq });
		struct mem *to = mem_make(&p->b), *from = mem_make(&p->a);
		struct flood sent = { .cqe.done = flood_done };
		struct flood got = { .cqe.done = flood_done };
		struct ib_sge sge;
		struct ib_rdma_wr wr = {
			.wr = {
				.wr_cqe = &sent.cqe,
				.sg_list = &sge,
				.num_sge = 1,
				.send_flags = IB_SEND_SIGNALED,
			},
		};
		struct ib_recv_wr recv = { .wr_cqe = &got.cqe };

		mem_reg(from, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
		mem_reg(to, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			    IB_ACCESS_REMOTE_READ);
		sge = sge_of(from);
		wr.remote_addr = to->mr->iova;
		wr.rkey = to->mr->rkey;
		for (i = 0; i < DEPTH - 1; i++)
			must(test, srq ? ib_post_srq_recv(p->b.srq, &recv, NULL) :
					 ib_post_recv(p->b.qp, &recv, NULL),
			     "receive");
		for (posted = 0; posted < DEPTH - 1; posted++) {
			static const enum ib_wr_opcode ops[] = {
				IB_WR_RDMA_WRITE, IB_WR_RDMA_READ, IB_WR_SEND,
			};

			wr.wr.opcode = ops[posted % 3];
			wr.wr.num_sge = wr.wr.opcode != IB_WR_SEND;
			ret = ib_post_send(p->a.qp, &wr.wr, NULL);
			must(test, ret, "request");
			if (ret)
				break;
		}
		/* by either end, at once or after a while, with and without FIN */
		if (round & 2)
			usleep_range(100, 20000);
		if (round & 4)
			rdma_disconnect(round & 1 ? p->a.id : p->b.id);
		end_drain(round & 1 ? &p->b : &p->a);
		end_drain(round & 1 ? &p->a : &p->b);
		KUNIT_EXPECT_EQ(test, atomic_read(&sent.good) +
				      atomic_read(&sent.flushed) +
				      atomic_read(&sent.other), posted);
		if (!srq)
			KUNIT_EXPECT_EQ(test, atomic_read(&got.good) +
					      atomic_read(&got.flushed),
					DEPTH - 1);
		KUNIT_EXPECT_EQ(test, atomic_read(&got.other), 0);
		mem_free(to);
		mem_free(from);
		pair_drop(p);
	}
}

static void drain(struct kunit *test)
{
	drain_flood(test, false);
}

static void drain_shared(struct kunit *test)
{
	drain_flood(test, true);
}

/* Regions go while the peer is still writing into them. */
static void deregister_in_use(struct kunit *test)
{
	int round, i;

	for (round = 0; round < 8 && !failed(test); round++) {
		struct pair *p = pair_make(test,
					   (struct kind){ IB_POLL_SOFTIRQ });
		struct mem *to = mem_make(&p->b), *from = mem_make(&p->a);
		struct flood sent = { .cqe.done = flood_done };
		struct ib_sge sge;
		struct ib_rdma_wr wr = {
			.wr = {
				.wr_cqe = &sent.cqe,
				.sg_list = &sge,
				.num_sge = 1,
				.send_flags = IB_SEND_SIGNALED,
				.opcode = round & 1 ? IB_WR_RDMA_READ :
						      IB_WR_RDMA_WRITE,
			},
		};

		mem_reg(from, IB_ACCESS_LOCAL_WRITE);
		mem_reg(to, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			    IB_ACCESS_REMOTE_READ);
		sge = sge_of(from);
		wr.remote_addr = to->mr->iova;
		wr.rkey = to->mr->rkey;
		for (i = 0; i < DEPTH - 1; i++)
			must(test, ib_post_send(p->a.qp, &wr.wr, NULL), "post");
		if (round & 2)
			usleep_range(100, 5000);
		mem_free(to);
		end_drain(&p->a);
		mem_free(from);
		pair_drop(p);
	}
}

/* What siw refuses: a QP without send or without receive queue. */
static void queues_of_no_length(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct ib_qp_init_attr attr = {
		.send_cq = p->a.cq,
		.recv_cq = p->a.cq,
		.cap = { .max_recv_wr = 4, .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC,
	};
	struct ib_qp *qp;

	qp = ib_create_qp(p->a.pd, &attr);
	KUNIT_EXPECT_FALSE(test, IS_ERR(qp));
	if (!IS_ERR(qp))
		ib_destroy_qp(qp);
	attr.cap = (struct ib_qp_cap){ .max_send_wr = 4, .max_send_sge = 1 };
	qp = ib_create_qp(p->a.pd, &attr);
	KUNIT_EXPECT_FALSE(test, IS_ERR(qp));
	if (!IS_ERR(qp))
		ib_destroy_qp(qp);
	pair_drop(p);
}

/* An STag that stands for all of memory is for nobody else. */
static void all_of_memory(struct kunit *test)
{
	static const int remote[] = {
		IB_ACCESS_REMOTE_READ, IB_ACCESS_REMOTE_WRITE,
		IB_ACCESS_REMOTE_ATOMIC,
	};
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	const struct ib_device_ops *ops = &p->a.pd->device->ops;
	struct ib_mr *mr;
	int i;

	for (i = 0; i < ARRAY_SIZE(remote); i++) {
		mr = ops->get_dma_mr(p->a.pd, IB_ACCESS_LOCAL_WRITE | remote[i]);
		KUNIT_EXPECT_TRUE(test, IS_ERR(mr));
		if (!IS_ERR(mr))
			ops->dereg_mr(mr, NULL);
	}
	mr = ops->get_dma_mr(p->a.pd, IB_ACCESS_LOCAL_WRITE);
	KUNIT_EXPECT_FALSE(test, IS_ERR(mr));
	if (!IS_ERR(mr))
		ops->dereg_mr(mr, NULL);
	pair_drop(p);
}

#ifdef SWP_HAVE_UNREADABLE
/*
 * Octets that no processor can read end the stream: nobody looks at them.  They
 * are marked so while they wait for the owner of the socket.
 */
static void unreadable(struct kunit *test)
{
	struct pair *p = pair_make(test, (struct kind){ IB_POLL_SOFTIRQ });
	struct swp_qp *qp = to_swp_qp(p->b.qp);
	struct sock *sk = qp->llp->sk;
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };
	struct sk_buff *skb;
	struct req r;
	int i;

	wr.wr_cqe = req_cqe(&r);
	lock_sock(sk);
	must(test, ib_post_send(p->a.qp, &wr, NULL), "SEND");
	for (i = 0; i < 1000 && !READ_ONCE(sk->sk_backlog.tail); i++)
		msleep(20);
	spin_lock_bh(&sk->sk_lock.slock);
	for (skb = sk->sk_backlog.head; skb; skb = skb->next)
		skb->unreadable = 1;
	spin_unlock_bh(&sk->sk_lock.slock);
	release_sock(sk);
	KUNIT_EXPECT_EQ(test, (int)qp->fault, (int)SWP_FAULT_MPA_LOCAL);
	KUNIT_EXPECT_TRUE(test, came(&p->a.down));
	pair_drop(p);
}
#endif

static struct kunit_case cases[] = {
	KUNIT_CASE(sends_softirq),
	KUNIT_CASE(sends_workqueue),
	KUNIT_CASE(sends_direct),
	KUNIT_CASE(sends_shared),
	KUNIT_CASE(sends_own),
	KUNIT_CASE(moderated),
	KUNIT_CASE(shared_limit),
	KUNIT_CASE(shared_resize),
	KUNIT_CASE(shared_resize_in_use),
	KUNIT_CASE(write_and_remote_invalidate),
	KUNIT_CASE(read_with_invalidate),
	KUNIT_CASE(wrong_key),
	KUNIT_CASE(register_twice),
	KUNIT_CASE(bad_posts),
	KUNIT_CASE(atomics),
	KUNIT_CASE(write_with_immediate),
	KUNIT_CASE(post_in_atomic),
	KUNIT_CASE(drain),
	KUNIT_CASE(drain_shared),
	KUNIT_CASE(deregister_in_use),
	KUNIT_CASE(queues_of_no_length),
	KUNIT_CASE(all_of_memory),
#ifdef SWP_HAVE_UNREADABLE
	KUNIT_CASE(unreadable),
#endif
	{}
};

static struct kunit_suite suite = {
	.name = "kverbs",
	.test_cases = cases,
};

kunit_test_suite(suite);

MODULE_DESCRIPTION("Tests of softwarp's verbs for consumers in the kernel");
MODULE_LICENSE("GPL");
