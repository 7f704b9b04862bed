/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MPA start-up on an existing TCP connection, for consumers in the kernel:
 * immediate start-up, or delayed start-up after streaming data (RFC 5044
 * section 7.1.2).  The consumers choose which end initiates, no matter which
 * end has connected; the end that sends the last streaming octet may become the
 * initiator, its peer the responder.
 *
 *     s = api->start(&param);             the socket is softwarp's now
 *         ops->request()                  responder: the Request has arrived
 *     api->accept(s, ...)                 or api->reject()
 *         ops->done()                     0: the QP is in RTS; else it failed
 *         ops->disconnect()               the peer has closed its direction
 *         ops->closed()                   the stream has ended; the last call
 *     api->put(s)                         gives back the handle
 *
 * A rejection, sent or received, leaves the stream to the consumers (RFC 5044
 * section 7.1.4.2): rejected() gives the socket back.
 *
 * softwarp calls disconnect() and closed() only after done(0).  A consumer
 * closes a connection by ib_modify_qp() to SQD or ERR.  Destroying the QP ends
 * a start-up as well, with done(-ECONNABORTED).  The policy of the device (its
 * mpa/ directory) applies.
 */
#ifndef SWP_STARTUP_H
#define SWP_STARTUP_H

#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/uidgid.h>
#include <rdma/ib_verbs.h>

struct swp_startup;

enum swp_startup_role {
	SWP_STARTUP_INITIATOR,		/* sends the Request */
	SWP_STARTUP_RESPONDER,		/* waits for it */
};

/* RFC 6581 section 5: is the initiator to send an explicit RTR? */
enum swp_startup_p2p {
	SWP_STARTUP_P2P_POLICY,		/* as in the device's policy */
	SWP_STARTUP_P2P_ON,		/* either end may speak first */
	SWP_STARTUP_P2P_OFF,		/* the initiator's ULP speaks first */
	/* as ON, with a Write or Read, and never a Send, which a ULP could see */
	SWP_STARTUP_P2P_UNSEEN,
};

/* The contents of the peer's frame */
struct swp_startup_peer {
	const void *private_data;	/* valid until the call returns */
	u16 private_data_len;		/* octets, up to 512 */
	bool enhanced;			/* ird and ord are known */
	u16 ird;			/* as sent: 14 bits, 0x3fff not negotiated */
	u16 ord;
};

/*
 * request(), rejected() and done() are called in process context; they may
 * sleep but must not destroy or reset the QP.  disconnect() and closed() must
 * not sleep.
 */
struct swp_startup_ops {
	void (*request)(void *ctx, const struct swp_startup_peer *peer);
	/*
	 * Start-up ended with a rejection, ours or the peer's; done() follows.
	 * @sock is the consumer's again, connected, in streaming mode after the
	 * Reply, with the octets received since.  Its callbacks are restored;
	 * TCP_NODELAY stays on.  Without this op softwarp closes the socket
	 * (FIN).
	 */
	void (*rejected)(void *ctx, struct socket *sock);
	/*
	 * @status: 0, or the error: -ECONNREFUSED rejected, -EPROTO the peer
	 *	broke a rule, -ETIMEDOUT, -ECONNRESET, ...
	 * @peer: its Reply or Request, or NULL if there was none
	 */
	void (*done)(void *ctx, int status,
		     const struct swp_startup_peer *peer);
	void (*disconnect)(void *ctx);
	/* @error: 0 after a graceful close, else negative errno */
	void (*closed)(void *ctx, int error);
};

/* Most streaming octets that a Request can follow in one segment */
#define SWP_STARTUP_LEAD	64

struct swp_startup_param {
	struct ib_qp *qp;		/* of a softwarp device, without stream */
	struct socket *sock;		/* TCP, connected */
	enum swp_startup_role role;
	enum swp_startup_p2p p2p;	/* initiator */
	u32 ird;			/* inbound reads wanted */
	u32 ord;			/* outbound reads wanted */
	/*
	 * Initiator: private data of the Request, at most 512 octets, 508 if it
	 * is enhanced.
	 */
	const void *private_data;
	u16 private_data_len;
	/*
	 * Responder: the beginning of the Request, if the consumer has read it
	 * from the socket together with the streaming data.
	 * Initiator: the last streaming data, at most SWP_STARTUP_LEAD octets.
	 * They are sent in one segment with the Request, from which the peer
	 * learns that it is the responder.
	 */
	const void *octets;
	size_t octets_len;
	const struct swp_startup_ops *ops;
	void *ctx;
};

/* What a device supports for start-up, by its present policy and limits */
struct swp_startup_caps {
	u8 revision;			/* highest MPA revision offered */
	u16 private_data;		/* octets that its Request may carry */
	u16 ird, ord;			/* most reads, inbound and outbound */
	bool extensions;		/* RFC 7306, if the peer has it */
	const struct net_device *netdev;	/* below it; only to compare */
};

/*
 * The entries.  Look them up at run time, so that a module that can do without
 * softwarp.ko also loads without it:
 *
 *     api = symbol_get(swp_startup_api);	keeps softwarp.ko loaded
 *     if (api && api->version == SWP_STARTUP_VERSION && !api->query(dev,
 *         &caps)) s = api->start(&param);
 *     symbol_put(swp_startup_api);
 */
#define SWP_STARTUP_VERSION	6

struct swp_startup_api {
	u32 version;			/* SWP_STARTUP_VERSION */

	/* query - any context.  Returns -EINVAL if @dev is not softwarp's. */
	int (*query)(struct ib_device *dev, struct swp_startup_caps *caps);

	/*
	 * start - begin start-up on a socket.  Process context.
	 *
	 * Takes over param->sock; on failure the socket stays the caller's,
	 * unchanged except for TCP_NODELAY.  The first op may be called before
	 * this returns.  Returns a handle with a reference, or an ERR_PTR:
	 * -EINVAL for invalid parameters, -ENOTCONN, -EISCONN if the QP has a
	 * stream or another start-up, -ENODEV if the device is being removed,
	 * -EOPNOTSUPP if its policy does not allow the RTR that is asked for,
	 * -ENOMEM.
	 */
	struct swp_startup *(*start)(const struct swp_startup_param *param);

	/*
	 * accept, reject - answer a Request, once; from request() or later.
	 * Process context.  Return 0, -ENOTCONN if there is no Request to
	 * answer (any more), or -EINVAL if the private data are too long; then
	 * the caller may try again.  done() reports the result of accept;
	 * reject itself calls done(-ECONNREFUSED).
	 */
	int (*accept)(struct swp_startup *s, const void *private_data, u16 len);
	int (*reject)(struct swp_startup *s, const void *private_data, u16 len);

	/*
	 * put - give back the handle; process context, not from an op.  Waits
	 * for ops that are running: after done(error) or closed(), and then
	 * put(), the consumer may free what they use.  The removal of the
	 * device waits for this call.
	 */
	void (*put)(struct swp_startup *s);

	/*
	 * owned_by - charge a QP to the user on whose behalf it was created: it
	 * counts against the device's limits for users until it is destroyed.
	 * Call it once per QP; process context.  Returns 0, -ENOMEM at a limit
	 * (the caller must then destroy the QP), or -EINVAL if the QP is a
	 * program's or is not softwarp's.
	 */
	int (*owned_by)(struct ib_qp *qp, kuid_t uid);

	/*
	 * prompt - the consumer serves a program, so that work for this QP gets
	 * no priority over programs.  It promises: it posts to this QP, and
	 * polls its CQs, only with interrupts enabled; and it handles CQ events
	 * wherever they are raised, that is with softirqs off, possibly from
	 * within ib_post_send().  The CQs must not be of ib_alloc_cq(), and all
	 * QPs on them must be prompt.  Call it before anything is posted.
	 * Returns -EINVAL if the QP is not softwarp's, or not of this kind.
	 * @arrived: or NULL.  Octets have arrived, on another CPU than the one
	 *	on which the consumer receives: is a process of it going to call
	 *	receive()?  It should wake those that sleep for something from
	 *	the peer, but say no to @few octets, for which that does not
	 *	pay, unless a process is awake and looks for them.  If it
	 *	returns false, or if no receive() follows within some
	 *	milliseconds, the device processes the octets itself.  It is
	 *	called with softirqs off and the stream locked, as events are;
	 *	it must not sleep, post, or destroy the QP.
	 */
	int (*prompt)(struct ib_qp *qp, bool (*arrived)(void *ctx, bool few),
		      void *ctx);

	/*
	 * receive - process what has arrived at a prompt QP, about @octets of
	 * it: receives complete from within this call.  Process context,
	 * softirqs on; it may sleep until the stream is free.  Returns true if
	 * there may be more, for the consumer's processes to receive, too.  The
	 * QP must not be destroyed meanwhile.
	 */
	bool (*receive)(struct ib_qp *qp, size_t octets);

	/*
	 * abort - end the stream of a QP at once, with a RST, as if the peer
	 * had sent one: the QP moves to ERROR, and its requests are flushed.
	 * To destroy the QP does the same later.  Without a stream it does
	 * nothing.  Process context; the QP must not be destroyed meanwhile.
	 */
	void (*abort)(struct ib_qp *qp);
};

extern const struct swp_startup_api swp_startup_api;

#endif /* SWP_STARTUP_H */
