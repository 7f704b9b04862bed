/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels 6.1, 6.12 and 7.x, and nothing else.  Stable
 * kernels have backports, so test for features, not for versions: compat.mk
 * greps the headers of the target kernel and defines SWP_HAVE_*.
 */
#ifndef SWP_COMPAT_H
#define SWP_COMPAT_H

#ifdef SWP_HAVE_LINUX_UNALIGNED
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif
#include <linux/bpf-cgroup.h>
#include <linux/hrtimer.h>
#include <linux/local_lock.h>
#include <linux/mm.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <net/sock.h>
#include <net/tcp.h>

#ifndef SWP_HAVE_WQ_PERCPU
#define WQ_PERCPU 0
#endif

#ifndef timer_container_of
#define timer_container_of(var, callback_timer, timer_fieldname) \
	from_timer(var, callback_timer, timer_fieldname)
#endif

/* Set up a timer on the monotonic clock whose function runs in softirq. */
static inline void
swp_hrtimer_setup_soft(struct hrtimer *t,
		       enum hrtimer_restart (*function)(struct hrtimer *))
{
#ifdef SWP_HAVE_HRTIMER_SETUP
	hrtimer_setup(t, function, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
#else
	hrtimer_init(t, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	t->function = function;
#endif
}

/* Before 6.3 the flags of a mapping are changed in place.  In mmap() alone. */
static inline void swp_vm_flags_set(struct vm_area_struct *vma,
				    unsigned long flags)
{
#ifdef SWP_HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

/* 6.19 replaced struct sockaddr by struct sockaddr_unsized. */
#ifdef SWP_HAVE_SOCKADDR_UNSIZED
#define swp_sockaddr sockaddr_unsized
#else
#define swp_sockaddr sockaddr
#endif
#define swp_sockaddr_arg(p) ((struct swp_sockaddr *)(p))

/* Protocol memory accounting has its own header since 6.10. */
#ifdef SWP_HAVE_PROTO_MEMORY
#include <net/proto_memory.h>
#endif

/* Since 6.12, the octets of an skb may be in a device's memory (devmem TCP). */
static inline bool swp_skb_is_readable(const struct sk_buff *skb)
{
#ifdef SWP_HAVE_UNREADABLE
	return skb_frags_readable(skb);
#else
	return true;
#endif
}

/* Before 6.5, sendfile() used ops of its own. */
static inline void swp_no_sendpage(struct proto_ops *ops)
{
#ifndef SWP_HAVE_SPLICE_PAGES
	ops->sendpage = sock_no_sendpage;
	ops->sendpage_locked = NULL;
#endif
}

/*
 * Since 6.5 ioctl() of a protocol takes a kernel pointer, and io_uring calls it
 * without that of the socket.
 */
#ifdef SWP_HAVE_SK_IOCTL
#define SWP_PROT_IOCTL(fn) (fn)
#else
#define SWP_PROT_IOCTL(fn) (true ? NULL : (void *)(fn))
#endif

static inline int swp_prot_ioctl(const struct proto *p, struct sock *sk,
				 int cmd, int *arg)
{
#ifdef SWP_HAVE_SK_IOCTL
	return p->ioctl(sk, cmd, arg);
#else
	return -ENOIOCTLCMD;
#endif
}

/* Read from a socket into a pipe by its recvmsg(). */
#ifdef SWP_HAVE_COPY_SPLICE_READ
#define swp_copy_splice_read copy_splice_read
#else
#define swp_copy_splice_read generic_file_splice_read
#endif

/* TCP-AO is there since 6.7. */
#ifndef TCP_AO_ADD_KEY
#define TCP_AO_ADD_KEY	38
#define TCP_AO_DEL_KEY	39
#define TCP_AO_INFO	40
#endif

/* Since 6.6 a table is registered with its size, before with an end marker. */
static inline struct ctl_table_header *
swp_register_net_sysctl(struct net *net, const char *path,
			struct ctl_table *table, size_t count)
{
#ifdef SWP_HAVE_NET_SYSCTL_SZ
	return register_net_sysctl_sz(net, path, table, count);
#else
	return register_net_sysctl(net, path, table);
#endif
}

/* Since 6.7 BPF programs may change the length of an address, too. */
#ifdef SWP_HAVE_BPF_SOCK_ADDR_LEN
#define SWP_RUN_SA_PROG(sk, addr, len, type) \
	BPF_CGROUP_RUN_SA_PROG(sk, swp_sockaddr_arg(addr), len, type)
#else
#define SWP_RUN_SA_PROG(sk, addr, len, type) \
	do { (void)(len); BPF_CGROUP_RUN_SA_PROG(sk, addr, type); } while (0)
#endif

/* The BPF programs for getsockname() and getpeername(); the socket is locked. */
static inline void swp_bpf_getname(struct sock *sk, struct sockaddr *addr,
				   bool peer)
{
	int __maybe_unused len = addr->sa_family == AF_INET6 ?
				 sizeof(struct sockaddr_in6) :
				 sizeof(struct sockaddr_in);

	if (addr->sa_family == AF_INET6 && peer)
		SWP_RUN_SA_PROG(sk, addr, &len, CGROUP_INET6_GETPEERNAME);
	else if (addr->sa_family == AF_INET6)
		SWP_RUN_SA_PROG(sk, addr, &len, CGROUP_INET6_GETSOCKNAME);
	else if (peer)
		SWP_RUN_SA_PROG(sk, addr, &len, CGROUP_INET4_GETPEERNAME);
	else
		SWP_RUN_SA_PROG(sk, addr, &len, CGROUP_INET4_GETSOCKNAME);
}

/* Since 6.10 the arguments of accept() are in one structure. */
#ifdef SWP_HAVE_ACCEPT_ARG
#define SWP_OP_ACCEPT(op, fn)						\
	static int op(struct socket *sock, struct socket *newsock,	\
		      struct proto_accept_arg *arg)			\
	{								\
		return fn(sock, newsock, arg->flags);			\
	}
#else
#define SWP_OP_ACCEPT(op, fn)						\
	static int op(struct socket *sock, struct socket *newsock,	\
		      int flags, bool kern)				\
	{								\
		return fn(sock, newsock, flags);			\
	}
#endif

static inline int swp_ops_accept(const struct proto_ops *ops,
				 struct socket *sock, struct socket *newsock,
				 int flags)
{
#ifdef SWP_HAVE_ACCEPT_ARG
	struct proto_accept_arg arg = { .flags = flags };

	return ops->accept(sock, newsock, &arg);
#else
	return ops->accept(sock, newsock, flags, false);
#endif
}

/* The next connection of a TCP listener, or NULL if none is ready */
static inline struct sock *swp_prot_accept(struct sock *sk)
{
#ifdef SWP_HAVE_ACCEPT_ARG
	struct proto_accept_arg arg = { .flags = O_NONBLOCK, .kern = true };

	return sk->sk_prot->accept(sk, &arg);
#else
	int err;

	return sk->sk_prot->accept(sk, O_NONBLOCK, &err, true);
#endif
}

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_counter.h>
#include <rdma/uverbs_ioctl.h>

static inline struct ib_umem *swp_umem_get(struct ib_device *dev, u64 addr,
					   u64 len, int access)
{
#ifdef SWP_HAVE_UMEM_GET_VA
	return ib_umem_get_va(dev, addr, len, access);
#else
	return ib_umem_get(dev, addr, len, access);
#endif
}

/*
 * Before 6.6 rdma_cm finds an iWARP device by its GID, which must then be the
 * hardware address and zeros.
 */
#ifdef SWP_BEFORE_6_6
#define SWP_GID_IS_MAC true
#else
#define SWP_GID_IS_MAC false
#endif

/* Keep udev from renaming a device that an administrator has named. */
static inline void swp_mark_named_by_user(struct ib_device *dev)
{
#ifdef SWP_HAVE_MARK_NAMED
	ib_mark_name_assigned_by_user(dev);
#endif
}

/* Copy the options that let a socket use addresses that are not local. */
static inline void swp_inet_inherit(struct sock *to, const struct sock *from)
{
#ifdef inet_assign_bit
	inet_assign_bit(FREEBIND, to, inet_test_bit(FREEBIND, from));
	inet_assign_bit(TRANSPARENT, to, inet_test_bit(TRANSPARENT, from));
#else
	inet_sk(to)->freebind = inet_sk(from)->freebind;
	inet_sk(to)->transparent = inet_sk(from)->transparent;
#endif
}

/* Make a kernel socket hold its network namespace. */
#ifdef SWP_HAVE_SK_NET_REFCNT_UPGRADE
#define swp_sk_hold_net(sk) sk_net_refcnt_upgrade(sk)
#else
static inline void swp_sk_hold_net(struct sock *sk)
{
	struct net *net = sock_net(sk);

	sk->sk_net_refcnt = 1;
	get_net_track(net, &sk->ns_tracker, GFP_KERNEL);
	sock_inuse_add(net, 1);
}
#endif

/*
 * For memory of a CPU that is used with softirqs off.  Before 6.11 that excluded
 * all others on PREEMPT_RT, too.
 */
#ifndef local_lock_nested_bh
#define local_lock_nested_bh(lock)	((void)(lock))
#define local_unlock_nested_bh(lock)	((void)(lock))
#endif

/*
 * Have release_sock() send the ACK that is due, after it has processed the packets
 * that wait.  TCP does so for ACKs since 6.7, and before for the timer's.  The caller
 * owns the socket.
 */
static inline void swp_sk_ack_on_release(struct sock *sk)
{
#ifdef SWP_HAVE_ACK_DEFERRED
	set_bit(TCP_ACK_DEFERRED, &sk->sk_tsq_flags);
#else
	inet_csk_reset_xmit_timer(sk, ICSK_TIME_DACK, 0, TCP_RTO_MAX);
	if (!test_and_set_bit(TCP_DELACK_TIMER_DEFERRED, &sk->sk_tsq_flags))
		sock_hold(sk);
#endif
}

/*
 * A socket that sends in softirq must not use the page fragment of the current
 * task.  Since 6.2 a flag says so; before, it depended on sk_allocation.
 */
static inline bool swp_sk_set_task_frag(struct sock *sk, bool use)
{
	bool before = true;

#ifdef SWP_HAVE_SK_USE_TASK_FRAG
	before = sk->sk_use_task_frag;
	sk->sk_use_task_frag = use;
#endif
	return before;
}

/*
 * Give the pages of @it to TCP by reference; @eor ends the record there.  Never
 * sleeps.  Returns the octets taken, by which @it has advanced, or an error.
 * Socket lock held.
 */
#ifdef SWP_HAVE_SPLICE_PAGES
static inline int swp_tcp_push(struct sock *sk, struct iov_iter *it, bool eor)
{
	struct msghdr msg = {
		.msg_flags = MSG_SPLICE_PAGES | MSG_DONTWAIT | MSG_NOSIGNAL |
			     (eor ? MSG_EOR : 0),
		.msg_iter = *it,
	};
	int ret = tcp_sendmsg_locked(sk, &msg, iov_iter_count(it));

	if (ret > 0)
		iov_iter_advance(it, ret);
	return ret;
}
#else
/* Before 6.5 TCP takes pages one by one. */
static inline int swp_tcp_push(struct sock *sk, struct iov_iter *it, bool eor)
{
	int ret = 0, sent = 0;

	while (iov_iter_count(it)) {
		struct bio_vec bv = bvec_iter_bvec(it->bvec,
			((struct bvec_iter){ .bi_size = iov_iter_count(it),
					     .bi_bvec_done = it->iov_offset }));
		bool more = bv.bv_len < iov_iter_count(it);

		ret = do_tcp_sendpages(sk, bv.bv_page, bv.bv_offset, bv.bv_len,
				       MSG_DONTWAIT | MSG_NOSIGNAL |
				       (more ? MSG_MORE | MSG_SENDPAGE_NOTLAST :
					eor ? MSG_EOR : 0));
		if (ret <= 0)
			break;
		iov_iter_advance(it, ret);
		sent += ret;
	}
	return sent ? sent : ret;
}
#endif

/* Does the core itself report that the port goes up with its netdev? */
#ifdef SWP_HAVE_REPORT_PORT_EVENT
#define SWP_CORE_REPORTS_PORTS true
#else
#define SWP_CORE_REPORTS_PORTS false
#endif

/*
 * Ops whose parameters differ.  SWP_OP_x(op, fn) defines @op as the core calls
 * it, on top of @fn, whose parameters are the same everywhere.
 */

#ifdef SWP_HAVE_CREATE_CQ_ATTRS
#define SWP_OP_CREATE_CQ(op, fn) \
static int op(struct ib_cq *cq, const struct ib_cq_init_attr *attr, \
	      struct uverbs_attr_bundle *attrs) \
{ \
	return fn(cq, attr, attrs ? &attrs->driver_udata : NULL); \
}
#else
#define SWP_OP_CREATE_CQ(op, fn) \
static int op(struct ib_cq *cq, const struct ib_cq_init_attr *attr, \
	      struct ib_udata *udata) \
{ \
	return fn(cq, attr, udata); \
}
#endif

#ifdef SWP_HAVE_RESIZE_USER_CQ
#define SWP_SET_RESIZE_CQ(op)	.resize_user_cq = (op)
#define SWP_OP_RESIZE_CQ(op, fn) \
static int op(struct ib_cq *cq, unsigned int cqe, struct ib_udata *udata) \
{ \
	return fn(cq, cqe, udata); \
}
#else
#define SWP_SET_RESIZE_CQ(op)	.resize_cq = (op)
#define SWP_OP_RESIZE_CQ(op, fn) \
static int op(struct ib_cq *cq, int cqe, struct ib_udata *udata) \
{ \
	return cqe < 0 ? -EINVAL : fn(cq, cqe, udata); \
}
#endif

#ifdef SWP_HAVE_REG_MR_DMAH
#define SWP_OP_REG_USER_MR(op, fn) \
static struct ib_mr *op(struct ib_pd *pd, u64 start, u64 length, u64 iova, \
			int access, struct ib_dmah *dmah, \
			struct ib_udata *udata) \
{ \
	return dmah ? ERR_PTR(-EOPNOTSUPP) : \
		      fn(pd, start, length, iova, access); \
}
#else
#define SWP_OP_REG_USER_MR(op, fn) \
static struct ib_mr *op(struct ib_pd *pd, u64 start, u64 length, u64 iova, \
			int access, struct ib_udata *udata) \
{ \
	return fn(pd, start, length, iova, access); \
}
#endif

#ifdef SWP_HAVE_COUNTER_PORT
#define SWP_OP_COUNTER_BIND(op, fn) \
static int op(struct rdma_counter *counter, struct ib_qp *qp, u32 port) \
{ \
	return fn(counter, qp); \
}
#define SWP_OP_COUNTER_UNBIND(op, fn) \
static int op(struct ib_qp *qp, u32 port) \
{ \
	return fn(qp); \
}
#else
#define SWP_OP_COUNTER_BIND(op, fn) \
static int op(struct rdma_counter *counter, struct ib_qp *qp) \
{ \
	return fn(counter, qp); \
}
#define SWP_OP_COUNTER_UNBIND(op, fn) \
static int op(struct ib_qp *qp) \
{ \
	return fn(qp); \
}
#endif

/* Some cores allocate counters of the driver's size; ours are found by ID. */
#ifdef SWP_HAVE_COUNTER_INIT
struct swp_core_counter {
	struct rdma_counter base;
};

static inline void swp_op_counter_init(struct rdma_counter *counter)
{
}

#define SWP_SET_COUNTER_INIT \
	.counter_init = swp_op_counter_init, \
	INIT_RDMA_OBJ_SIZE(rdma_counter, swp_core_counter, base),
#else
#define SWP_SET_COUNTER_INIT
#endif

#endif /* SWP_COMPAT_H */
