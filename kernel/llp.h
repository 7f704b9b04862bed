/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lower layer protocol: one TCP connection (RFC 5044 calls it the LLP).
 *
 * This is the only place that touches struct socket.  An LLP has one owner at a
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

struct swp_llp {
	struct kref ref;
	struct socket *sock;
	const struct swp_llp_ops *ops;	/* under the socket lock */
	void *owner;			/* under the socket lock */
	/* what the socket called before us, put back at release */
	void (*saved_data_ready)(struct sock *sk);
	void (*saved_write_space)(struct sock *sk);
	void (*saved_state_change)(struct sock *sk);
	void (*saved_error_report)(struct sock *sk);
	struct work_struct free_work;
	struct rcu_head rcu;
};

/*
 * Wrap a TCP socket (connected, connecting or just accepted) and hook its
 * callbacks.  Takes over @sock, also on failure.  Process context.
 * Sets what every softwarp stream needs: TCP_NODELAY, atomic allocation, no
 * task frag.  Returns an LLP with one reference or an ERR_PTR.
 */
struct swp_llp *swp_llp_create(struct socket *sock);

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

/* FIN after everything queued (graceful).  Process context. */
void swp_llp_shutdown(struct swp_llp *llp);
/* RST; queued data are dropped.  Process context. */
void swp_llp_abort(struct swp_llp *llp);

#endif /* SWP_LLP_H */
