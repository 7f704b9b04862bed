/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lower layer protocol: one TCP connection (RFC 5044 calls it the LLP).
 *
 * llp.c is the only file that touches struct socket and TCP's internals.  An
 * LLP has one owner at a time: first the connection manager (MPA start-up),
 * then a QP (FPDUs).  The owner's callbacks run with the socket lock held: in
 * softirq context, or in a process that is releasing the lock.  They must not
 * sleep and must not take the socket lock.  swp_llp_set_owner() changes the
 * owner under that lock, so no callback of the old owner runs after it has
 * returned.
 *
 * Lifetime: the connection manager's endpoint and the QP hold one reference
 * each.  The last put releases the socket, in process context.
 */
#ifndef SWP_LLP_H
#define SWP_LLP_H

#include <linux/kref.h>
#include <linux/net.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "near.h"

struct swp_llp;

struct swp_llp_ops {
	void (*data_ready)(struct swp_llp *llp);
	void (*write_space)(struct swp_llp *llp);
	/* TCP state changed or the socket has an error (sk->sk_err) */
	void (*state_change)(struct swp_llp *llp);
};

/*
 * A socket holds its network namespace, as one of user space does: TCP still
 * retransmits and sends FIN after the last reference is gone, and the namespace
 * is freed after its last connection has ended.
 */
struct swp_llp {
	struct kref ref;
	struct socket *sock;
	struct sock *sk;		/* sock->sk; constant */
	const struct swp_llp_ops *ops;	/* under the socket lock */
	void *owner;			/* under the socket lock */
	/* of the socket before we hooked it, restored at release */
	void (*saved_data_ready)(struct sock *sk);
	void (*saved_write_space)(struct sock *sk);
	void (*saved_state_change)(struct sock *sk);
	void (*saved_error_report)(struct sock *sk);
	gfp_t saved_allocation;
	bool saved_task_frag;
	bool saved_urginline;
	struct swp_near near;
	struct work_struct free_work;
	struct rcu_head rcu;
};

/*
 * Wrap a TCP socket (connected, connecting or just accepted) and hook its
 * callbacks.  Takes over @sock unless it fails.  Process context.
 * Sets what every softwarp stream needs: TCP_NODELAY, atomic allocation, no
 * task frag.  Returns an LLP with one reference or an ERR_PTR.
 */
struct swp_llp *swp_llp_create(struct socket *sock);
/*
 * May swp_llp_create() wrap this socket of a consumer?  Returns 0; -EINVAL: it
 * is not TCP, or another module has hooked it; -ENOTCONN.  Process context.
 */
int swp_llp_may_take(struct socket *sock);

/*
 * Unwrap the socket and return it in its old state, except for TCP_NODELAY.
 * The caller has the only reference to the LLP; this drops it.  Process
 * context.
 */
struct socket *swp_llp_give_back(struct swp_llp *llp);

void swp_llp_get(struct swp_llp *llp);
/* Any context; a work item releases the socket. */
void swp_llp_put(struct swp_llp *llp);

/*
 * Give the stream to a new owner, or take it from any (ops = NULL).  Process
 * context, takes the socket lock.  Before it drops the lock, it calls the new
 * owner's data_ready and state_change once, so that no earlier event is lost.
 */
void swp_llp_set_owner(struct swp_llp *llp, const struct swp_llp_ops *ops,
		       void *owner);

/*
 * The same, if @take agrees, which is called with the socket lock held.  If it
 * returns an error, swp_llp_give() returns this error and changes nothing.
 */
int swp_llp_give(struct swp_llp *llp, const struct swp_llp_ops *ops,
		 void *owner, int (*take)(void *arg), void *arg);

/*
 * Are there unread octets, the end of the stream, or an error?  Never while TCP
 * is connecting.  For callbacks of an owner.
 */
bool swp_llp_has_news(const struct swp_llp *llp);
/* Is our SYN still unanswered?  For callbacks of an owner. */
bool swp_llp_is_connecting(const struct swp_llp *llp);

/*
 * Send FIN after everything queued (graceful), or RST if there is no memory for
 * FIN.  Process context.
 */
void swp_llp_shutdown(struct swp_llp *llp);
/* Send RST, at most once, and drop queued data.  Process context. */
void swp_llp_abort(struct swp_llp *llp);

/* TCP's state for the administrator, see restrack.c */
struct swp_llp_info {
	u32 state;		/* the kernel's enum, TCP_ESTABLISHED is 1 */
	u32 mss;		/* octets */
	u32 srtt_us;
	u32 cwnd;		/* segments */
	u32 retrans;		/* segments, since the connection began */
	u32 unacked;		/* octets given to TCP, not acknowledged */
	u32 unread;		/* octets received, not yet read by us */
};

/* Any context, without locks: the values may not fit together exactly. */
void swp_llp_info(const struct swp_llp *llp, struct swp_llp_info *info);

/*
 * Has @to received what @from sent, judged by TCP's sequence numbers?  Two ends of one
 * stream always say so, others by a rare accident.  Any context, without locks.
 */
bool swp_llp_may_hear(const struct swp_llp *from, const struct swp_llp *to);

/* Does what we send go by the loopback device of the namespace?  Any context. */
bool swp_llp_is_by_loopback(const struct swp_llp *llp);

/*
 * The engines: socket lock held in all of these.
 */

/* The skb to which TCP would add the next octet */
struct swp_llp_tail {
	u32 mss;		/* octets; multiple of 4 */
	u32 len;		/* octets in it; 0: TCP begins a new one */
	u32 room;		/* octets that still fit into it */
	u32 pieces;		/* page fragments that still fit into it */
};

void swp_llp_tail(struct swp_llp *llp, struct swp_llp_tail *t);
/* Have TCP put the next octet into a new skb.  The tail skb must be unsent. */
void swp_llp_end_tail(struct swp_llp *llp);
/* Does TCP accept more octets? */
bool swp_llp_has_space(const struct swp_llp *llp);
/* Octets that TCP was given and the peer's has not acknowledged */
u32 swp_llp_unacked(const struct swp_llp *llp);
/* The shortest round-trip time of the last minutes in microseconds; U32_MAX: unknown */
u32 swp_llp_min_rtt_us(const struct swp_llp *llp);
/* Have TCP call write_space() on the next ACK. */
void swp_llp_want_space(struct swp_llp *llp);
/*
 * Will TCP call write_space() even if we give it nothing more?
 * @unsent: count octets that TCP has not sent yet, but will send by itself
 */
bool swp_llp_calls(const struct swp_llp *llp, bool unsent);
/* Sequence number behind the last octet given to TCP */
u32 swp_llp_end_seq(const struct swp_llp *llp);
/* Has the peer's TCP acknowledged everything before @seq? */
bool swp_llp_is_acked(const struct swp_llp *llp, u32 seq);
/* Changes with each octet that the peer acknowledges or that we read */
u32 swp_llp_moved(const struct swp_llp *llp);
/* Segments received out of order */
u32 swp_llp_out_of_order(const struct swp_llp *llp);
/*
 * Release the socket, which this process owns.  If octets were read while it did, from
 * packets that had waited for it, tell the peer of the room that they have left.
 */
void swp_llp_release(struct swp_llp *llp);
/* Octets received that we have not read */
u32 swp_llp_unread(const struct swp_llp *llp);
/* Does a process own the socket, as opposed to softirq? */
bool swp_llp_is_locked(const struct swp_llp *llp);
/*
 * Take the socket's spinlock as softirq does; any context.  False: another
 * context has it, a process owns the socket, or hard interrupts are off.  Do
 * not wait for a handler of the consumer meanwhile: the consumer may hold a
 * lock that this handler takes.
 */
bool swp_llp_trylock(struct swp_llp *llp);
void swp_llp_unlock(struct swp_llp *llp);
/*
 * Take the spinlocks of two sockets, waiting for a short time, in which softirqs may
 * run; for a process that holds no lock and owns neither.  False: others had one of
 * them for too long, or were late before, or want this CPU.
 */
bool swp_llp_trylock_both(struct swp_llp *a, struct swp_llp *b);
void swp_llp_unlock_both(struct swp_llp *a, struct swp_llp *b);
/*
 * Is the stream up, and has the owner of @to read every octet that the one of @from
 * has given to TCP?  Both sockets are locked.
 */
bool swp_llp_all_read(const struct swp_llp *from, const struct swp_llp *to);

/*
 * MPA start-up: small frames, no waiting.  All of these are for process
 * context, and for the owner set by swp_llp_set_owner(), or before there is an
 * owner.
 */

/*
 * A socket in @net that connects from @local (port 0: TCP chooses) to @remote,
 * or an error.  If the port of @local is in use, TCP chooses another: rdma_cm
 * assigns ports of its own space to connecting ids, and does not know those of
 * TCP.  @tos: -1 or IP TOS.
 */
struct swp_llp *swp_llp_connect(struct net *net,
				const struct sockaddr_storage *local,
				const struct sockaddr_storage *remote, int tos);
/* 0: connected; -EINPROGRESS; or the error with which connecting failed. */
int swp_llp_connect_result(struct swp_llp *llp);

/*
 * Queue @len octets except the first *@sent; *@sent grows by those that TCP
 * took.  Returns 0 if TCP took all, -EAGAIN if there was no memory for the
 * rest, or an error: then abort the stream.
 */
int swp_llp_send(struct swp_llp *llp, const void *buf, size_t len,
		 size_t *sent);
/* Returns octets read, 0: end of stream, -EAGAIN, or the socket's error. */
int swp_llp_recv(struct swp_llp *llp, void *buf, size_t len);
/* As swp_llp_recv() of one octet, but leaves it in the socket. */
int swp_llp_peek(struct swp_llp *llp);

/*
 * Addresses of a connected socket; IPv4-mapped ones are returned as IPv4.
 * @ifindex: set to the interface to which the socket is bound (link-local
 * addresses), or 0; may be NULL.
 */
int swp_llp_names(struct swp_llp *llp, struct sockaddr_storage *local,
		  struct sockaddr_storage *remote, int *ifindex);

/*
 * A listening TCP socket.  @ready is called when there may be a connection to
 * accept; in any context, possibly on several CPUs at the same time.
 */
struct swp_lls {
	struct socket *sock;
	void (*ready)(void *arg);
	void *arg;
	void (*saved_data_ready)(struct sock *sk);
};

int swp_lls_open(struct swp_lls *lls, struct net *net,
		 const struct sockaddr_storage *local, bool v6only, int tos,
		 int backlog, void (*ready)(void *arg), void *arg);
/* No @ready runs after this has returned. */
void swp_lls_quiesce(struct swp_lls *lls);
/* After swp_lls_quiesce(). */
void swp_lls_close(struct swp_lls *lls);
/* The next connection, ERR_PTR(-EAGAIN) if there is none, or another error. */
struct swp_llp *swp_lls_accept(struct swp_lls *lls);

int swp_llp_init(void);
/* Waits until all sockets are released. */
void swp_llp_exit(void);

#endif /* SWP_LLP_H */
