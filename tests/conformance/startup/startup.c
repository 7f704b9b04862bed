// SPDX-License-Identifier: GPL-2.0
/*
 * Two consumers in the kernel that start MPA on TCP connections of their own,
 * after streaming data, through kernel/include/startup.h:
 *
 *     insmod startup.ko netdev=lo test=delayed
 *
 * Each test makes a TCP connection within 127.0.0.1, one QP for either end, and
 * fails the loading when something is not as it has to be; the log says what.
 * The end that connected is `a`, the one that accepted is `b`.
 */
#include <linux/completion.h>
#include <linux/in.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <net/sock.h>
#include <rdma/ib_verbs.h>

#include "softwarp/device.h"
#include "softwarp/qp.h"
#include "include/startup.h"

#define LINE		"HELLO: the last streaming octet is the newline\n"
#define BUF		4096
#define PATIENCE	(20 * HZ)

static char *netdev = "lo";
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "below the device");

static char *test = "";
module_param(test, charp, 0444);
MODULE_PARM_DESC(test, "name of the test");

#define MUST(cond)							\
	do {								\
		if (!(cond)) {						\
			pr_err("startup: %s: line %d: %s\n", test,	\
			       __LINE__, #cond);			\
			return -EBADMSG;				\
		}							\
	} while (0)

/* The driver's, looked up when it is there: this module links to nothing. */
static const struct swp_startup_api *api;

struct end {
	const char *name;
	struct socket *sock;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct swp_startup *s;
	u8 *buf;
	u64 dma;
	/* of the handler of completions, which polls and answers where it is called */
	atomic_t events;
	int rounds;			/* answers to be given */
	int bad;			/* of its calls, and completions */
	const struct task_struct *posts;
	bool nested;			/* it was called from within a post */
	struct completion over;
	/* what was told */
	struct completion asked, done, gone, closed;
	int status;
	int error;
	bool has_peer;
	struct swp_startup_peer peer;
	u8 pd_octets[512];
};

static void keep_peer(struct end *e, const struct swp_startup_peer *peer)
{
	e->has_peer = peer;
	if (!peer)
		return;
	e->peer = *peer;
	memcpy(e->pd_octets, peer->private_data, peer->private_data_len);
}

static void on_request(void *ctx, const struct swp_startup_peer *peer)
{
	struct end *e = ctx;

	keep_peer(e, peer);
	complete(&e->asked);
}

static void on_rejected(void *ctx, struct socket *sock)
{
	struct end *e = ctx;

	e->sock = sock;
}

static void on_done(void *ctx, int status, const struct swp_startup_peer *peer)
{
	struct end *e = ctx;

	e->status = status;
	keep_peer(e, peer);
	complete(&e->done);
}

static void on_disconnect(void *ctx)
{
	struct end *e = ctx;

	complete(&e->gone);
}

static void on_closed(void *ctx, int error)
{
	struct end *e = ctx;

	e->error = error;
	complete(&e->closed);
}

static const struct swp_startup_ops ops = {
	.request = on_request,
	.rejected = on_rejected,
	.done = on_done,
	.disconnect = on_disconnect,
	.closed = on_closed,
};

static bool came(struct completion *c)
{
	return wait_for_completion_timeout(c, PATIENCE);
}

/* TCP ---------------------------------------------------------------------- */

static int tcp_pair(struct end *a, struct end *b)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct net *net = current->nsproxy->net_ns;
	struct socket *lis;
	int ret;

	ret = sock_create_kern(net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &lis);
	if (ret)
		return ret;
	ret = sock_create_kern(net, AF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &a->sock);
	if (ret)
		goto out;
	ret = kernel_bind(lis, swp_sockaddr_arg(&in), sizeof(in));
	if (!ret)
		ret = kernel_listen(lis, 1);
	if (!ret)
		ret = min(kernel_getsockname(lis, (struct sockaddr *)&in), 0);
	if (!ret)
		ret = kernel_connect(a->sock, swp_sockaddr_arg(&in),
				     sizeof(in), 0);
	if (!ret)
		ret = kernel_accept(lis, &b->sock, 0);
out:
	sock_release(lis);
	return ret;
}

static int say(struct end *e, const void *octets, size_t len)
{
	struct kvec iov = { .iov_base = (void *)octets, .iov_len = len };
	struct msghdr msg = { .msg_flags = MSG_NOSIGNAL };

	return kernel_sendmsg(e->sock, &msg, &iov, 1, len) == len ? 0 : -EPIPE;
}

static int hear(struct end *e, void *octets, size_t len)
{
	struct kvec iov = { .iov_base = octets, .iov_len = len };
	struct msghdr msg = {};

	return kernel_recvmsg(e->sock, &msg, &iov, 1, len, MSG_WAITALL) == len ?
	       0 : -ECONNRESET;
}

/* A line each way, so that both have streamed before MPA begins. */
static int stream(struct end *a, struct end *b)
{
	char line[sizeof(LINE) - 1];

	MUST(!say(a, LINE, sizeof(line)));
	MUST(!hear(b, line, sizeof(line)));
	MUST(!memcmp(line, LINE, sizeof(line)));
	MUST(!say(b, LINE, sizeof(line)));
	MUST(!hear(a, line, sizeof(line)));
	return 0;
}

/* Verbs -------------------------------------------------------------------- */

static int post_recv(struct end *e)
{
	struct ib_sge sge = {
		.addr = e->dma, .length = BUF,
		.lkey = e->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(e->qp, &wr, NULL);
}

static int post_send(struct end *e, u32 len)
{
	struct ib_sge sge = {
		.addr = e->dma, .length = len,
		.lkey = e->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};
	int ret;

	WRITE_ONCE(e->posts, current);
	ret = ib_post_send(e->qp, &wr, NULL);
	WRITE_ONCE(e->posts, NULL);
	return ret;
}

static void completed(struct end *e, const struct ib_wc *wc)
{
	if (wc->status || !softirq_count())
		e->bad++;
	if (wc->status || wc->opcode != IB_WC_RECV)
		return;
	if (!e->rounds) {
		complete(&e->over);
		return;
	}
	e->rounds--;
	if (post_recv(e) || post_send(e, 64))
		e->bad++;
}

/* One context at a time, in their order */
static void on_completion(struct ib_cq *cq, void *ctx)
{
	struct end *e = ctx;
	struct ib_wc wc;
	int events;

	if (READ_ONCE(e->posts) == current)
		e->nested = true;
	if (atomic_inc_return(&e->events) > 1)
		return;
	do {
		events = atomic_read(&e->events);
		do {
			while (ib_poll_cq(cq, 1, &wc) > 0)
				completed(e, &wc);
		} while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
					      IB_CQ_REPORT_MISSED_EVENTS) > 0);
	} while (atomic_sub_return(events, &e->events));
}

static int make_end(struct end *e, struct ib_device *dev, const char *name)
{
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_cq_init_attr cq_attr = { .cqe = 32 };

	e->name = name;
	init_completion(&e->asked);
	init_completion(&e->done);
	init_completion(&e->gone);
	init_completion(&e->closed);
	init_completion(&e->over);
	e->pd = ib_alloc_pd(dev, 0);
	MUST(!IS_ERR(e->pd));
	e->cq = ib_create_cq(dev, on_completion, NULL, e, &cq_attr);
	MUST(!IS_ERR(e->cq));
	attr.send_cq = e->cq;
	attr.recv_cq = e->cq;
	e->qp = ib_create_qp(e->pd, &attr);
	MUST(!IS_ERR(e->qp));
	e->buf = kzalloc(BUF, GFP_KERNEL);
	MUST(e->buf);
	e->dma = ib_dma_map_single(dev, e->buf, BUF, DMA_BIDIRECTIONAL);
	return 0;
}

static void drop_qp(struct end *e)
{
	if (!IS_ERR_OR_NULL(e->qp))
		ib_destroy_qp(e->qp);
	e->qp = NULL;
}

static void drop_end(struct end *e)
{
	if (e->sock)
		sock_release(e->sock);
	drop_qp(e);
	/* after done() or closed(), which the end of the QP has brought */
	if (e->s)
		api->put(e->s);
	if (e->buf)
		ib_dma_unmap_single(e->pd->device, e->dma, BUF,
				    DMA_BIDIRECTIONAL);
	kfree(e->buf);
	if (!IS_ERR_OR_NULL(e->cq))
		ib_destroy_cq(e->cq);
	if (!IS_ERR_OR_NULL(e->pd))
		ib_dealloc_pd(e->pd);
}

static int wait_wc(struct end *e, struct ib_wc *wc)
{
	unsigned long end = jiffies + PATIENCE;
	int n;

	while (!(n = ib_poll_cq(e->cq, 1, wc)) && time_before(jiffies, end))
		usleep_range(100, 1000);
	return n == 1 ? 0 : -ETIMEDOUT;
}

/* A message of @from arrives at @to, unharmed. */
static int message(struct end *from, struct end *to, u32 len, u8 seed)
{
	struct ib_wc wc;
	u32 i;

	memset(to->buf, 0, BUF);
	for (i = 0; i < len; i++)
		from->buf[i] = seed + i * 7;
	MUST(!post_recv(to));
	MUST(!post_send(from, len));
	MUST(!wait_wc(to, &wc));
	MUST(wc.status == IB_WC_SUCCESS && wc.opcode == IB_WC_RECV);
	MUST(wc.byte_len == len);
	MUST(!memcmp(from->buf, to->buf, len));
	MUST(!wait_wc(from, &wc));
	MUST(wc.status == IB_WC_SUCCESS && wc.opcode == IB_WC_SEND);
	return 0;
}

/* Start-up ----------------------------------------------------------------- */

static int start(struct end *e, struct swp_startup_param *p)
{
	struct swp_startup *s;

	p->qp = e->qp;
	p->sock = e->sock;
	p->ops = &ops;
	p->ctx = e;
	e->sock = NULL;
	s = api->start(p);
	if (IS_ERR(s)) {
		e->sock = p->sock;
		return PTR_ERR(s);
	}
	e->s = s;
	return 0;
}

static int start_initiator(struct end *e, const void *pd, u16 len)
{
	struct swp_startup_param p = {
		.role = SWP_STARTUP_INITIATOR, .p2p = SWP_STARTUP_P2P_ON,
		.ird = 5, .ord = 3,
		.private_data = pd, .private_data_len = len,
	};

	return start(e, &p);
}

static int start_responder(struct end *e, const void *octets, size_t len)
{
	struct swp_startup_param p = {
		.role = SWP_STARTUP_RESPONDER, .ird = 4, .ord = 4,
		.octets = octets, .octets_len = len,
	};

	return start(e, &p);
}

static u8 request_pd[508], reply_pd[508];

/*
 * @i initiates, @r responds, having read the first @read octets of the Request.
 * Both are in RTS in the end; then the responder speaks first.
 */
static int run(struct end *i, struct end *r, size_t read)
{
	static u8 octets[532];
	struct ib_qp_attr err = { .qp_state = IB_QPS_SQD };

	MUST(!stream(i, r));
	MUST(!start_initiator(i, request_pd, sizeof(request_pd)));
	MUST(!hear(r, octets, read));
	MUST(!start_responder(r, octets, read));
	MUST(came(&r->asked));
	MUST(r->peer.private_data_len == sizeof(request_pd));
	MUST(!memcmp(r->pd_octets, request_pd, sizeof(request_pd)));
	MUST(r->peer.enhanced && r->peer.ird == 5 && r->peer.ord == 3);
	MUST(!try_wait_for_completion(&i->done));
	MUST(api->accept(r->s, reply_pd, 509) == -EINVAL);
	MUST(!api->accept(r->s, reply_pd, sizeof(reply_pd)));
	MUST(api->accept(r->s, NULL, 0) == -ENOTCONN);
	MUST(came(&r->done) && !r->status);
	MUST(came(&i->done) && !i->status);
	MUST(i->has_peer && i->peer.private_data_len == sizeof(reply_pd));
	MUST(!memcmp(i->pd_octets, reply_pd, sizeof(reply_pd)));
	/* IRD at least our ORD, ORD at most our IRD */
	MUST(i->peer.ird == 4 && i->peer.ord == 4);
	MUST(!message(r, i, 1000, 1));
	MUST(!message(i, r, 4096, 2));
	MUST(!ib_modify_qp(i->qp, &err, IB_QP_STATE));
	MUST(came(&r->gone) && came(&r->closed) && !r->error);
	MUST(came(&i->closed) && !i->error);
	return 0;
}

/* MPA-39: both have streamed; the end that connected initiates. */
static int delayed(struct end *a, struct end *b)
{
	return run(a, b, 0);
}

/* MPA-32: the end that accepted the TCP connection initiates. */
static int reversed(struct end *a, struct end *b)
{
	return run(b, a, 0);
}

/* MPA-40: octets of the Request were read together with streaming data. */
static int overread_some(struct end *a, struct end *b)
{
	return run(a, b, 17);
}

static int overread_all(struct end *a, struct end *b)
{
	return run(b, a, 532);
}

/* MPA-27, MPA-43: rejected, with private data. */
static int rejected(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_responder(b, NULL, 0));
	MUST(api->reject(b->s, NULL, 0) == -ENOTCONN);
	MUST(!start_initiator(a, "please", 6));
	MUST(came(&b->asked));
	MUST(!api->reject(b->s, reply_pd, sizeof(reply_pd)));
	MUST(came(&b->done) && b->status == -ECONNREFUSED);
	MUST(came(&a->done) && a->status == -ECONNREFUSED);
	MUST(a->has_peer && a->peer.private_data_len == sizeof(reply_pd));
	MUST(!memcmp(a->pd_octets, reply_pd, sizeof(reply_pd)));
	MUST(api->accept(b->s, NULL, 0) == -ENOTCONN);
	/* MPA-51: the consumers have their stream back, and may try again */
	MUST(a->sock && b->sock);
	MUST(!stream(a, b));
	api->put(a->s);
	api->put(b->s);
	a->s = NULL;
	b->s = NULL;
	reinit_completion(&a->done);
	reinit_completion(&b->asked);
	reinit_completion(&b->done);
	MUST(!start_responder(b, NULL, 0));
	MUST(!start_initiator(a, NULL, 0));
	MUST(came(&b->asked) && !api->accept(b->s, NULL, 0));
	MUST(came(&a->done) && !a->status && came(&b->done) && !b->status);
	MUST(!message(a, b, 1000, 3));
	return 0;
}

/* What is no Request, in octets that were read and in those that were not. */
static int garbage(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_responder(b, "MPA ID Rep Frame", 16));
	MUST(came(&b->done) && b->status == -EPROTO);
	return 0;
}

static int still_streaming(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_responder(b, NULL, 0));
	MUST(!say(a, LINE, sizeof(LINE)));
	MUST(came(&b->done) && b->status == -EPROTO);
	return 0;
}

/* MPA-42: octets behind the Request. */
static int extra(struct end *a, struct end *b)
{
	static const u8 octets[] = "MPA ID Req Frame\x40\x01\x00\x00MORE";

	MUST(!stream(a, b));
	MUST(!start_responder(b, octets, 24));
	MUST(came(&b->done) && b->status == -EPROTO);
	return 0;
}

/* MPA-36: both want to initiate. */
static int both_initiate(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_initiator(a, NULL, 0));
	MUST(!start_initiator(b, NULL, 0));
	MUST(came(&a->done) && a->status < 0);
	MUST(came(&b->done) && b->status < 0);
	/* who saw the other's Request says so; the reset may reach the other */
	MUST(a->status == -EPROTO || b->status == -EPROTO);
	return 0;
}

/* The peer goes away, and the QP. */
static int peer_gone(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_initiator(a, NULL, 0));
	sock_release(b->sock);
	b->sock = NULL;
	MUST(came(&a->done) && a->status == -ECONNRESET);
	return 0;
}

static int qp_gone(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_initiator(a, NULL, 0));
	MUST(!start_responder(b, NULL, 0));
	MUST(came(&b->asked));
	drop_qp(b);
	MUST(came(&b->done) && b->status == -ECONNABORTED);
	MUST(api->accept(b->s, NULL, 0) == -ENOTCONN);
	MUST(came(&a->done) && a->status < 0);
	return 0;
}

static int silence(struct end *a, struct end *b)
{
	MUST(!stream(a, b));
	MUST(!start_responder(b, NULL, 0));
	MUST(came(&b->done) && b->status == -ETIMEDOUT);
	return 0;
}

static int nonsense(struct end *a, struct end *b)
{
	struct swp_startup_param p = {
		.role = SWP_STARTUP_INITIATOR,
		.private_data = request_pd, .private_data_len = 513,
	};
	struct net *net = current->nsproxy->net_ns;

	MUST(start(a, &p) == -EINVAL);
	p.private_data_len = 509;
	MUST(start(a, &p) == -EINVAL);
	/* the socket is still the caller's */
	MUST(!stream(a, b));
	sock_release(a->sock);
	MUST(!sock_create_kern(net, AF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &a->sock));
	p.private_data_len = 0;
	MUST(start(a, &p) == -ENOTCONN);
	sock_release(a->sock);
	MUST(!sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP,
			       &a->sock));
	MUST(start(a, &p) == -EINVAL);
	return 0;
}

/* Whose device it is, and what it can do */
static int capabilities(struct end *a, struct end *b)
{
	struct swp_startup_caps caps = {};
	struct ib_device *other;

	MUST(!api->query(a->qp->device, &caps));
	MUST(caps.revision == 2 && caps.private_data == sizeof(request_pd));
	MUST(caps.ird > 0 && caps.ord > 0 && caps.extensions);
	/* another driver's: nothing in it is ours to look at */
	other = kzalloc(sizeof(*other), GFP_KERNEL);
	MUST(other);
	caps.revision = 0;
	MUST(api->query(other, &caps) == -EINVAL && !caps.revision);
	kfree(other);
	return 0;
}

static int with_core_cq(struct end *e)
{
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC,
	};
	struct ib_cq *cq = ib_alloc_cq(e->qp->device, e, 16, 0, IB_POLL_SOFTIRQ);
	struct ib_qp *qp;
	int ret;

	if (IS_ERR(cq))
		return PTR_ERR(cq);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = ib_create_qp(e->pd, &attr);
	ret = IS_ERR(qp) ? PTR_ERR(qp) : api->prompt(qp, NULL, NULL);
	if (!IS_ERR(qp))
		ib_destroy_qp(qp);
	ib_free_cq(cq);
	return ret;
}

/* Sends complete within their posts, and handlers answer where they are called. */
static int prompt(struct end *a, struct end *b)
{
	int i;

	MUST(with_core_cq(a) == -EINVAL);
	MUST(!api->prompt(a->qp, NULL, NULL) &&
	     !api->prompt(b->qp, NULL, NULL));
	MUST(!stream(a, b));
	MUST(!start_initiator(a, NULL, 0));
	MUST(!start_responder(b, NULL, 0));
	MUST(came(&b->asked));
	MUST(!api->accept(b->s, NULL, 0));
	MUST(came(&b->done) && !b->status && came(&a->done) && !a->status);
	MUST(!ib_req_notify_cq(a->cq, IB_CQ_NEXT_COMP));
	MUST(!ib_req_notify_cq(b->cq, IB_CQ_NEXT_COMP));
	/* but for those that find the socket in use */
	for (i = 0; i < 100 && !a->nested; i++) {
		b->rounds = 0;
		MUST(!post_recv(b) && !post_send(a, 64));
		MUST(came(&b->over));
	}
	MUST(a->nested);
	a->rounds = 5000;
	b->rounds = 5001;
	MUST(!post_recv(a) && !post_recv(b));
	MUST(!post_send(a, 64));
	MUST(came(&a->over));
	MUST(!a->bad && !b->bad && !b->rounds);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct end *a, struct end *b);
} tests[] = {
	{ "delayed", delayed },
	{ "reversed", reversed },
	{ "overread_some", overread_some },
	{ "overread_all", overread_all },
	{ "rejected", rejected },
	{ "garbage", garbage },
	{ "still_streaming", still_streaming },
	{ "extra", extra },
	{ "both_initiate", both_initiate },
	{ "peer_gone", peer_gone },
	{ "qp_gone", qp_gone },
	{ "silence", silence },
	{ "nonsense", nonsense },
	{ "capabilities", capabilities },
	{ "prompt", prompt },
};

static int run_test(struct ib_device *dev)
{
	struct end *a = kzalloc(sizeof(*a), GFP_KERNEL);
	struct end *b = kzalloc(sizeof(*b), GFP_KERNEL);
	int ret = -ENOENT, i;

	if (!a || !b) {
		ret = -ENOMEM;
		goto out;
	}
	for (i = 0; i < sizeof(request_pd); i++) {
		request_pd[i] = i * 3;
		reply_pd[i] = i * 5 + 1;
	}
	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		if (strcmp(test, tests[i].name))
			continue;
		ret = make_end(a, dev, "a");
		if (!ret)
			ret = make_end(b, dev, "b");
		if (!ret)
			ret = tcp_pair(a, b);
		if (!ret)
			ret = tests[i].run(a, b);
		drop_end(a);
		drop_end(b);
		break;
	}
out:
	kfree(a);
	kfree(b);
	return ret;
}

static int __init startup_init(void)
{
	struct net_device *ndev;
	struct ib_device *ibdev;
	int ret = -ENOENT;

	ndev = dev_get_by_name(current->nsproxy->net_ns, netdev);
	if (!ndev)
		return -ENODEV;
	ibdev = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);
	dev_put(ndev);
	if (!ibdev)
		return -ENODEV;
	api = symbol_get(swp_startup_api);
	if (api) {
		ret = api->version == SWP_STARTUP_VERSION ? run_test(ibdev) :
							    -EPROTO;
		symbol_put(swp_startup_api);
	}
	ib_device_put(ibdev);
	return ret;
}

static void __exit startup_exit(void)
{
}

module_init(startup_init);
module_exit(startup_exit);

MODULE_DESCRIPTION("MPA start-up by consumers in the kernel");
MODULE_LICENSE("GPL");
