/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lower layer protocol: one TCP connection (RFC 5044 calls it the LLP).
 *
 * llp.c is the only file that touches struct socket and TCP's internals.  An LLP has one owner at a
 * time - first the connection manager (MPA start-up), then a QP (FPDUs) - whose
 * callbacks run with the socket lock held: in softirq context, or in a process
 * that is releasing the lock.  They must not sleep and must not take the socket
 * lock.  swp_llp_set_owner() switches owners under that lock, so no callback of
 * the old owner runs after it returned.
 *
 * Lifetime: the connection manager's endpoint and the QP hold one reference
 * each; the socket is released with the last one, in process context.
 */
#ifndef SWP_LLP_H
#define SWP_LLP_H

#include <linux/kref.h>
#include <linux/net.h>
#include <linux/workqueue.h>
#include <net/sock.h>

struct swp_llp;

struct swp_llp_ops {
	void (*data_ready)(struct swp_llp *llp);
	void (*write_space)(struct swp_llp *llp);
	/* TCP state changed or the socket has an error (sk->sk_err) */
	void (*state_change)(struct swp_llp *llp);
};

/*
 * Sockets hold their network namespace, as those of user space do: TCP goes on
 * with retransmission and FIN after the last reference is gone, and the
 * namespace goes when the last connection in it has ended.
 */
struct swp_llp {
	struct kref ref;
	struct socket *sock;
	struct sock *sk;		/* of the socket; constant */
	const struct swp_llp_ops *ops;	/* under the socket lock */
	void *owner;			/* under the socket lock */
	/* what the socket called before us, put back at release */
	void (*saved_data_ready)(struct sock *sk);
	void (*saved_write_space)(struct sock *sk);
	void (*saved_state_change)(struct sock *sk);
	void (*saved_error_report)(struct sock *sk);
	gfp_t saved_allocation;
	bool saved_task_frag;
	bool saved_urginline;
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
 * May a socket that a consumer hands over be wrapped?  -EINVAL: it is not TCP, or
 * another module has hooked it; -ENOTCONN.  Process context.
 */
int swp_llp_may_take(struct socket *sock);

/*
 * The socket as it was, but for TCP_NODELAY, from an LLP to which nobody else
 * has a reference; that reference is gone, too.  Process context.
 */
struct socket *swp_llp_give_back(struct swp_llp *llp);

void swp_llp_get(struct swp_llp *llp);
/* Any context; the socket itself is released from a work item. */
void swp_llp_put(struct swp_llp *llp);

/*
 * Hand the stream to a new owner (or to nobody: ops = NULL).  Process context,
 * takes the socket lock.  The new owner's data_ready and state_change are called
 * once before the lock is dropped, so nothing that came earlier is missed.
 */
void swp_llp_set_owner(struct swp_llp *llp, const struct swp_llp_ops *ops,
		       void *owner);

/*
 * The same for an owner that may have changed its mind: @take is called with the
 * socket lock held; unless it returns 0, its result is returned and nothing has
 * changed.
 */
int swp_llp_give(struct swp_llp *llp, const struct swp_llp_ops *ops,
		 void *owner, int (*take)(void *arg), void *arg);

/*
 * Octets, the end of the stream or an error, that were not looked at.  For
 * callbacks of an owner; a connection that is still being made has nothing.
 */
bool swp_llp_has_news(const struct swp_llp *llp);
/* Is our SYN still unanswered?  For callbacks of an owner. */
bool swp_llp_is_connecting(const struct swp_llp *llp);

/* FIN after everything queued (graceful); RST without memory for it.  Process context. */
void swp_llp_shutdown(struct swp_llp *llp);
/* RST, which TCP sends once if at all; queued data are dropped.  Process context. */
void swp_llp_abort(struct swp_llp *llp);

/* For people to look at */
struct swp_llp_info {
	u32 state;		/* enum of the kernel's, TCP_ESTABLISHED is 1 */
	u32 mss;		/* octets */
	u32 srtt_us;
	u32 cwnd;		/* segments */
	u32 retrans;		/* segments, since it is connected */
	u32 unacked;		/* octets given to TCP and not confirmed */
	u32 unread;		/* octets that wait for us */
};

/* Any context, without locks: each word is read once and may be a moment old. */
void swp_llp_info(const struct swp_llp *llp, struct swp_llp_info *info);

/*
 * The engines: socket lock held in all of these.
 */

/* What TCP would add the next octet to */
struct swp_llp_tail {
	u32 mss;		/* octets; multiple of 4 */
	u32 pos;		/* octets in the segment being filled */
	u32 room;		/* octets the skb still takes */
	u32 pieces;		/* page fragments it still takes */
};

void swp_llp_tail(struct swp_llp *llp, struct swp_llp_tail *t);
/* What comes next goes into a new skb.  There is one that is not sent. */
void swp_llp_end_tail(struct swp_llp *llp);
/* Does TCP take more? */
bool swp_llp_has_space(const struct swp_llp *llp);
/* write_space() is called by the next ACK. */
void swp_llp_want_space(struct swp_llp *llp);
/*
 * Will TCP call write_space() without anything that is new to it?
 * @unsent: also for what it has not sent yet, and will send itself
 */
bool swp_llp_calls(const struct swp_llp *llp, bool unsent);
/* Sequence number behind what TCP has been given */
u32 swp_llp_end_seq(const struct swp_llp *llp);
/* Has the peer's TCP confirmed everything before @seq? */
bool swp_llp_is_acked(const struct swp_llp *llp, u32 seq);
/* Changes whenever octets were acknowledged or taken */
u32 swp_llp_moved(const struct swp_llp *llp);
/* Segments that came out of order */
u32 swp_llp_out_of_order(const struct swp_llp *llp);
/* Octets that wait for us */
u32 swp_llp_unread(const struct swp_llp *llp);
/* By a process, as opposed to softirq? */
bool swp_llp_is_locked(const struct swp_llp *llp);
/*
 * The socket's spinlock as softirq has it, in any context: false if somebody has
 * it or the socket, or where hard interrupts are off.  No callback of the caller's
 * may be waited for meanwhile: the caller may hold locks of its own.
 */
bool swp_llp_trylock(struct swp_llp *llp);
void swp_llp_unlock(struct swp_llp *llp);

/*
 * MPA start-up: small frames, no waiting.  All of these are for process context
 * and for the owner that swp_llp_set_owner() named, or before there is one.
 */

/*
 * A socket in @net, bound to @local (port 0: TCP chooses).  When the port of
 * @local is taken, TCP chooses another: rdma_cm hands out ports of its own
 * space to connecting ids without knowing TCP's.  @tos: -1 or IP TOS.
 */
struct swp_llp *swp_llp_open(struct net *net,
			     const struct sockaddr_storage *local, int tos);
/* Start connecting: 0, -EINPROGRESS, or an error. */
int swp_llp_connect(struct swp_llp *llp, const struct sockaddr_storage *remote);
/* 0 connected, -EINPROGRESS, or why connecting failed. */
int swp_llp_connect_result(struct swp_llp *llp);

/*
 * Queue @len octets, without the *@sent first ones; *@sent grows by what TCP took.
 * 0 when that is all, -EAGAIN when there was no memory for the rest, or an error
 * (then abort the stream).
 */
int swp_llp_send(struct swp_llp *llp, const void *buf, size_t len,
		 size_t *sent);
/* Octets read, at most @len; 0 end of stream, -EAGAIN, or the socket's error. */
int swp_llp_recv(struct swp_llp *llp, void *buf, size_t len);
/* As swp_llp_recv() of one octet that stays in the socket. */
int swp_llp_peek(struct swp_llp *llp);

/*
 * Addresses of a connected socket; IPv4 in IPv6 is shown as IPv4.  @ifindex:
 * interface the socket is bound to (link-local addresses), or 0; may be NULL.
 */
int swp_llp_names(struct swp_llp *llp, struct sockaddr_storage *local,
		  struct sockaddr_storage *remote, int *ifindex);

/*
 * A listening TCP socket.  @ready is called in any context, possibly several
 * times at once, when there may be something to accept.
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
/* No @ready runs after it returned. */
void swp_lls_quiesce(struct swp_lls *lls);
/* After swp_lls_quiesce(). */
void swp_lls_close(struct swp_lls *lls);
/* The next connection, or ERR_PTR(-EAGAIN) when there is none. */
struct swp_llp *swp_lls_accept(struct swp_lls *lls);

int swp_llp_init(void);
/* Waits until every socket is released. */
void swp_llp_exit(void);

#endif /* SWP_LLP_H */
