/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * Stream sockets over RDMA, by the Sockets Direct Protocol.
 *
 *     socket(AF_INET_SDP, SOCK_STREAM, 0)		IPv4
 *     socket(AF_INET, SOCK_STREAM, IPPROTO_SDP)	the same
 *     socket(AF_INET6, SOCK_STREAM, IPPROTO_SDP)	IPv6, and IPv4 by mapped addresses
 *
 * Addresses are those of TCP, struct sockaddr_in and struct sockaddr_in6.
 */
#ifndef SOFTWARP_SDP_H
#define SOFTWARP_SDP_H

#include <linux/types.h>

/* Number of the socket family; a parameter of the module changes it. */
#define AF_INET_SDP	27

/* Protocol of AF_INET and AF_INET6 */
#define IPPROTO_SDP	257

/*
 * Options of a level of its own.  The kernel gives its levels numbers one by one,
 * from 256, and is below 300; the number of IPPROTO_SDP is SOL_AX25's.  Earlier SDP
 * sockets for Linux had this level, and none of its options has a number of these.
 */
#define SOL_SDP		1025

/* int, enum sdp_info_layout: of what connect() will say.  Later: of the connection */
#define SDP_LAYOUT	1
/* struct sdp_info, to be read at any time */
#define SDP_INFO	2
/* int, enum sdp_info_policy: before connect() or listen() */
#define SDP_POLICY	3

/*
 * How headers are laid out: by the figures of draft-pinkerton-iwarp-sdp-01, read
 * literally, or as InfiniBand has the same headers.  A listener takes both.
 */
enum sdp_info_layout {
	SDP_INFO_LAYOUT_DRAFT = 0,
	SDP_INFO_LAYOUT_IB = 1,
};

enum sdp_info_state {
	SDP_INFO_IDLE = 0,		/* neither listening nor connected */
	SDP_INFO_LISTEN = 1,
	/* set-up */
	SDP_INFO_TCP = 2,
	SDP_INFO_HELLO = 3,
	SDP_INFO_MPA = 4,
	SDP_INFO_HELLO_ACK = 5,
	/* of a connection; section 8.2 of the draft */
	SDP_INFO_OPEN = 6,
	SDP_INFO_CLOSING = 7,		/* no more is sent; what waits goes out */
	SDP_INFO_HALF = 8,		/* our DisConn is out */
	SDP_INFO_PEER_HALF = 9,		/* the peer's is in */
	SDP_INFO_PEER_CLOSING = 10,	/* as CLOSING, behind the peer's DisConn */
	SDP_INFO_LAST = 11,		/* both; ours came second */
	SDP_INFO_WAIT = 12,		/* both; the peer closes TCP */
	SDP_INFO_FINISH = 13,		/* both; we have closed it */
	SDP_INFO_ABORTING = 14,
	SDP_INFO_CLOSED = 15,
	SDP_INFO_DOWN = 16,		/* nothing of it is left */
	SDP_INFO_MOVING = 17,		/* goes on by another carrier soon */
};

/* Of one direction */
enum sdp_info_mode {
	SDP_INFO_MODE_BUFFERED = 0,
	SDP_INFO_MODE_COMBINED = 1,
	SDP_INFO_MODE_PIPELINED = 2,
	SDP_INFO_MODE_NONE = 255,	/* there is no connection */
};

/* What a peer did that it must not */
enum sdp_info_fault {
	SDP_INFO_FAULT_NONE = 0,
	SDP_INFO_FAULT_MALFORMED = 1,
	SDP_INFO_FAULT_MSEQ = 2,
	SDP_INFO_FAULT_ACK = 3,
	SDP_INFO_FAULT_OVERRUN = 4,
	SDP_INFO_FAULT_SIZE = 5,
	SDP_INFO_FAULT_UNEXPECTED = 6,
	SDP_INFO_FAULT_MODE = 7,
	SDP_INFO_FAULT_ADVERTS = 8,
	SDP_INFO_FAULT_PAYLOAD = 9,
	SDP_INFO_FAULT_UNFINISHED = 10,
	SDP_INFO_FAULT_RESIZE = 11,
	SDP_INFO_FAULT_INVALIDATE = 12,
};

/* What the octets travel by */
enum sdp_info_transport {
	SDP_INFO_TRANSPORT_NONE = 0,	/* not decided yet */
	SDP_INFO_TRANSPORT_SDP = 1,
	SDP_INFO_TRANSPORT_TCP = 2,
};

/* What a socket may use */
enum sdp_info_policy {
	SDP_INFO_POLICY_SDP = 0,	/* SDP, or there is no connection */
	SDP_INFO_POLICY_AUTO = 1,	/* TCP where there is no SDP; listeners have both */
	SDP_INFO_POLICY_TCP = 2,
};

/* Why TCP is used */
enum sdp_info_reason {
	SDP_INFO_REASON_NONE = 0,	/* it is not */
	SDP_INFO_REASON_POLICY = 1,	/* nothing else is allowed */
	SDP_INFO_REASON_NO_DEVICE = 2,	/* no RDMA device on the way */
	SDP_INFO_REASON_NO_ANSWER = 3,	/* no port mapper answers at the peer */
	SDP_INFO_REASON_DENIED = 4,	/* the peer's port mapper knows of no SDP */
	SDP_INFO_REASON_REFUSED = 5,	/* nobody listens at the port it gave */
	SDP_INFO_REASON_SETUP = 6,	/* it was answered, and set-up failed */
	SDP_INFO_REASON_PEER = 7,	/* the peer has connected by TCP */
};

/*
 * SDP_INFO: as many octets are written as there is room for, and what a kernel has
 * is how many those are.  New members come at the end.
 */
struct sdp_info {
	__u8	state;		/* enum sdp_info_state */
	__u8	layout;		/* enum sdp_info_layout */
	__u8	tx_mode;	/* enum sdp_info_mode */
	__u8	rx_mode;
	__u8	transport;	/* enum sdp_info_transport */
	__u8	policy;		/* enum sdp_info_policy */
	__u8	reason;		/* enum sdp_info_reason */
	__u8	fault;		/* enum sdp_info_fault, that ended it */
	__u32	error;		/* errno, that it ended with */
	__u32	own_credits;	/* buffers that are there for the peer's messages */
	__u32	peer_credits;	/* messages that the peer has buffers for */
	__u32	own_bufs;	/* receive buffers, full or not */
	__u32	own_size;	/* octets of each */
	__u32	peer_size;	/* of the peer's */
	__u32	rx_queue;	/* octets that the program has not read */
	__u32	tx_queue;	/* octets that have not left */
	/* octets of the stream so far, by copying, by RDMA Read, by RDMA Write */
	__u64	rx_bcopy;
	__u64	rx_read;
	__u64	rx_write;
	__u64	tx_bcopy;
	__u64	tx_read;
	__u64	tx_write;
	char	device[64];	/* the RDMA device, and zeros */
};

#endif /* SOFTWARP_SDP_H */
