/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages of the port mapper: a client asks for the TCP port where a service
 * is reached by SDP.  draft-pinkerton-iwarp-sdp-01 section 7: UDP, 48 octets;
 * iwpmd has the same layout.
 */
#ifndef SDP_PROTO_PORTMAP_H
#define SDP_PROTO_PORTMAP_H

#include "../base.h"

#define SDP_PM_PORT	3935
#define SDP_PM_LEN	48

enum sdp_pm_type {
	SDP_PM_REQ	= 0,	/* client: which port? */
	SDP_PM_ACCEPT	= 1,	/* server: this one */
	SDP_PM_ACK	= 2,	/* client: received */
	SDP_PM_DENY	= 3,	/* server: none */
};

/* PmTime of a PMAccept: how long the client may keep it */
enum sdp_pm_time {
	SDP_PM_ONCE	= 0,
	SDP_PM_FOR_EVER	= 255,
};

/* A message; host byte order, addresses as on the wire */
struct sdp_pm_msg {
	__u8 type;		/* enum sdp_pm_type */
	__u8 version;		/* of IP: 4 or 6 */
	__u8 time;		/* PmTime */
	__u16 ap_port;
	__u16 cp_port;
	__u64 handle;		/* AssocHandle, opaque */
	__u8 cp_addr[16];	/* IPv4: the first four octets, the rest is zero */
	__u8 ap_addr[16];
};

/* SDP_PM_LEN octets */
void sdp_pm_encode(const struct sdp_pm_msg *msg, __u8 *buf);

/*
 * sdp_pm_decode - decode a datagram
 * Ignores the reserved field, and octets after the message: iwpmd's requests
 * have some.  Returns 0, or -EPROTO: too short, or a version or IP version that
 * does not exist.
 */
int sdp_pm_decode(const __u8 *buf, __u32 len, struct sdp_pm_msg *msg);

/* PmTime in milliseconds; U64_MAX: for ever, 0: for one use */
__u64 sdp_pm_time_ms(__u8 time);

#endif /* SDP_PROTO_PORTMAP_H */
