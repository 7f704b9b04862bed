/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two QPs that ibv_modify_qp() connects: what they tell each other in the
 * private data of MPA start-up, and what each decides from that.  Pure code.
 *
 * The consumers have exchanged GIDs, QP numbers and PSNs.  The smaller end
 * connects by TCP to the larger one, which accepts only the end that it expects
 * (Documentation/wire-formats.md).
 */
#ifndef SWP_PROTO_PAIR_H
#define SWP_PROTO_PAIR_H

#include "base.h"

#define SWP_PAIR_LEN		56	/* octets of a message */
#define SWP_PAIR_VERSION	1
#define SWP_PAIR_GID_LEN	16
#define SWP_PAIR_24_BITS	0xffffffU

/* A PSN for requests that the consumer has not set yet: it is still in RTR */
#define SWP_PAIR_PSN_NONE	0xffffffffU

enum swp_pair_kind {
	SWP_PAIR_REQUEST = 1,
	SWP_PAIR_REPLY,
	SWP_PAIR_REFUSAL,
};

/* Why the larger end refuses */
enum swp_pair_reason {
	SWP_PAIR_NO_REASON,	/* not a refusal */
	SWP_PAIR_NOT_HERE,	/* no QP waits for this end; there may be later */
	SWP_PAIR_WRONG_PSN,	/* it waits, but for another PSN */
	SWP_PAIR_CANNOT,	/* it waited, but cannot take the stream */
	SWP_PAIR_REASONS
};

struct swp_pair_end {
	__u8 gid[SWP_PAIR_GID_LEN];
	__u32 qpn;
};

/* What one end knows from its consumer */
struct swp_pair_view {
	struct swp_pair_end self;
	struct swp_pair_end peer;
	__u32 recv_psn;		/* of the peer's first request */
	__u32 send_psn;		/* of our first request, or NONE */
};

struct swp_pair_msg {
	enum swp_pair_kind kind;
	enum swp_pair_reason reason;
	struct swp_pair_view view;	/* the sender's; zeros in a refusal */
};

void swp_pair_encode(const struct swp_pair_msg *m, __u8 buf[SWP_PAIR_LEN]);

/*
 * swp_pair_decode - decode the private data of a frame
 * Returns 0; -EBADMSG: the peer does not speak this protocol; or
 * -EPROTONOSUPPORT: it speaks another version of it; or -EPROTO: a value is out
 * of range, or a reserved octet is not 0.
 */
int swp_pair_decode(const __u8 *buf, size_t len, struct swp_pair_msg *m);

enum swp_pair_verdict {
	SWP_PAIR_FITS,
	SWP_PAIR_STRANGER,	/* other GIDs or QP numbers */
	SWP_PAIR_PSN_DIFFERS,
	SWP_PAIR_TOO_EARLY,	/* no PSN can be compared yet */
};

/*
 * swp_pair_compare - does the peer's view agree with ours?  A PSN that is not
 * set yet is not compared; but one of the two must be.
 */
enum swp_pair_verdict swp_pair_compare(const struct swp_pair_view *ours,
				       const struct swp_pair_view *theirs);

/*
 * swp_pair_order - which end connects?  < 0: @a, the smaller one; > 0: @b;
 * 0: both are the same QP.
 */
int swp_pair_order(const struct swp_pair_end *a, const struct swp_pair_end *b);

/* Milliseconds to wait after the attempt with this number, from 0 on */
#define SWP_PAIR_PAUSE_MIN	5
#define SWP_PAIR_PAUSE_MAX	1000
__u32 swp_pair_pause(__u32 attempt);

/*
 * swp_pair_patience - milliseconds that a posted request waits for the stream:
 * as long as an InfiniBand QP tries again, which is 4.096 us * 2^timeout for
 * each try, but at least @least, and at most @most.  @timeout 0 is no limit.
 */
__u32 swp_pair_patience(__u8 timeout, __u8 retries, __u32 least, __u32 most);

/* How to reach the owner of a GID */
enum swp_gid_kind {
	SWP_GID_NOBODY,		/* unspecified, broadcast or multicast */
	SWP_GID_IPV4,		/* IPv4-mapped: the last four octets */
	SWP_GID_IPV6,
	SWP_GID_LINK_LOCAL,	/* IPv6, on the link of the device */
	SWP_GID_MAC,		/* a hardware address and zeros */
};

enum swp_gid_kind swp_gid_kind(const __u8 gid[SWP_PAIR_GID_LEN]);

/* The link-local address that belongs to a GID of the kind MAC */
void swp_gid_from_mac(const __u8 gid[SWP_PAIR_GID_LEN],
		      __u8 addr[SWP_PAIR_GID_LEN]);

#endif /* SWP_PROTO_PAIR_H */
