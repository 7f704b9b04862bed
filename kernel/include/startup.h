/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MPA start-up on a TCP connection that is there already, for consumers in the
 * kernel: immediate start-up, or delayed start-up after streaming data (RFC 5044
 * section 7.1.2).  Which end initiates is the consumer's choice and has nothing
 * to do with which end connected; the end that sends the last streaming octet
 * may become the initiator, its peer the responder.
 *
 *     s = api->start(&param);             the socket is softwarp's now
 *         ops->request()                  responder: the Request is there
 *     api->accept(s, ...)                 or api->reject()
 *         ops->done()                     0: the QP is in RTS; else it is over
 *         ops->disconnect()               the peer has closed its direction
 *         ops->closed()                   the stream has ended; the last call
 *     api->put(s)                         gives back the handle
 *
 * A rejection, sent or received, leaves the stream to the consumers (RFC 5044
 * section 7.1.4.2): rejected() gives the socket back.
 *
 * disconnect() and closed() come after done(0) only.  A connection is closed by
 * ib_modify_qp() to SQD or ERR; destroying the QP ends a start-up as well, with
 * done(-ECONNABORTED).  Policy of the device (its mpa/ directory) applies.
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
	SWP_STARTUP_P2P_POLICY,		/* as the device's policy has it */
	SWP_STARTUP_P2P_ON,		/* either end may speak first */
	SWP_STARTUP_P2P_OFF,		/* the initiator's ULP speaks first */
};

/* What the peer's frame said */
struct swp_startup_peer {
	const void *private_data;	/* until the call returns */
	u16 private_data_len;		/* octets, up to 512 */
	bool enhanced;			/* the two below are known */
	u16 ird;			/* as sent: 14 bits, 0x3fff not negotiated */
	u16 ord;
};

/*
 * request(), rejected() and done() are called in process context and may sleep, but not
 * destroy the QP.  disconnect() and closed() must not sleep.
 */
struct swp_startup_ops {
	void (*request)(void *ctx, const struct swp_startup_peer *peer);
	/*
	 * Start-up ended with a rejection, ours or the peer's; done() follows.
	 * @sock is the consumer's again, connected, in streaming mode behind the
	 * Reply.  What came meanwhile waits in it; its callbacks are those it had,
	 * TCP_NODELAY is on.  Without this op the socket is closed (FIN).
	 */
	void (*rejected)(void *ctx, struct socket *sock);
	/*
	 * @peer: its Reply or Request, or NULL when there was none
	 * @status: 0, or why it failed: -ECONNREFUSED rejected, -EPROTO the peer
	 *	broke a rule, -ETIMEDOUT, -ECONNRESET, ...
	 */
	void (*done)(void *ctx, int status,
		     const struct swp_startup_peer *peer);
	void (*disconnect)(void *ctx);
	/* @error: 0 after a graceful close, else negative errno */
	void (*closed)(void *ctx, int error);
};

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
	 * Responder: octets that were read from the socket and follow the last
	 * one of the streaming data: the beginning of the Request.
	 */
	const void *octets;
	size_t octets_len;
	const struct swp_startup_ops *ops;
	void *ctx;
};

/* What a device can do for start-up, by its policy and limits of now */
struct swp_startup_caps {
	u8 revision;			/* highest MPA revision that is offered */
	u16 private_data;		/* octets that a Request of it may carry */
	u16 ird, ord;			/* most reads, inbound and outbound */
	bool extensions;		/* RFC 7306, if the peer has it */
	const struct net_device *netdev;	/* below it; to compare with */
};

/*
 * The entries, to be taken at run time, so that a module which can do without
 * loads without softwarp.ko:
 *
 *     api = symbol_get(swp_startup_api);	keeps softwarp.ko loaded
 *     if (api && api->version == SWP_STARTUP_VERSION && !api->query(dev, &caps))
 *         s = api->start(&param);
 *     symbol_put(swp_startup_api);
 */
#define SWP_STARTUP_VERSION	3

struct swp_startup_api {
	u32 version;			/* SWP_STARTUP_VERSION */

	/* -EINVAL: the device is not softwarp's.  Any context. */
	int (*query)(struct ib_device *dev, struct swp_startup_caps *caps);

	/*
	 * start - begin start-up on a socket.  Process context.
	 *
	 * Takes over param->sock; when it fails the socket stays the caller's, as
	 * it was but for TCP_NODELAY.  The first call of an op may come before
	 * this one returns.  Returns a handle with a reference, or an ERR_PTR:
	 * -EINVAL for parameters that make no sense, -ENOTCONN, -EISCONN when the
	 * QP has a stream or another start-up, -ENODEV when the device is going
	 * away, -ENOMEM.
	 */
	struct swp_startup *(*start)(const struct swp_startup_param *param);

	/*
	 * accept, reject - answer a Request, once; from request() or later.
	 * Process context.  Return 0, -ENOTCONN when there is nothing to be
	 * answered (any more), -EINVAL when the private data are too long: they
	 * may then be answered again.  The outcome of an acceptance is told by
	 * done(), and after a rejection done() comes with -ECONNREFUSED, from
	 * within.
	 */
	int (*accept)(struct swp_startup *s, const void *private_data, u16 len);
	int (*reject)(struct swp_startup *s, const void *private_data, u16 len);

	/*
	 * put - give back the handle; process context, not from an op.  When
	 * this returns no op is running any more that had begun: after
	 * done(error) or closed() the consumer may go.  The device waits for it
	 * when it is removed.
	 */
	void (*put)(struct swp_startup *s);

	/*
	 * owned_by - a QP that was made on behalf of a user counts as that user's,
	 * with the limits for users of the device, as long as it is there
	 * Once for each QP; process context.  Returns 0, -ENOMEM at a limit, and
	 * then the QP is to be destroyed, -EINVAL for a QP that is a user's already
	 * or not softwarp's.
	 */
	int (*owned_by)(struct ib_qp *qp, kuid_t uid);

	/*
	 * prompt - the consumer posts to this QP, and polls its queues, with
	 * interrupts on, and takes their events wherever they are raised:
	 * with softirqs off, possibly from within ib_post_send()
	 * The queues are not of ib_alloc_cq(), and only such QPs have them.
	 * Before anything is posted.  -EINVAL: not softwarp's, or not such a QP
	 */
	int (*prompt)(struct ib_qp *qp);
};

extern const struct swp_startup_api swp_startup_api;

#endif /* SWP_STARTUP_H */
