/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * Stream sockets over RDMA with the Sockets Direct Protocol.
 *
 *     socket(AF_INET_SDP, SOCK_STREAM, 0)		IPv4
 *     socket(AF_INET, SOCK_STREAM, IPPROTO_SDP)	the same
 *     socket(AF_INET6, SOCK_STREAM, IPPROTO_SDP)	IPv6; IPv4 as mapped
 *     addresses
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
 * The same for programs that have asked for TCP and know nothing of SDP: the
 * policy is SDP_INFO_POLICY_AUTO at first, whatever the default is, and a listen()
 * that lacks something for SDP alone uses TCP.
 */
#define IPPROTO_SDP_AUTO	258

/*
 * Level of the socket options.  Linux numbers its levels from 256 upwards and
 * is still below 300; the value of IPPROTO_SDP itself is taken by SOL_AX25.
 * Earlier SDP sockets for Linux used this level too, but with other option
 * numbers.
 */
#define SOL_SDP		1025

/*
 * int, enum sdp_info_layout: the layout that connect() will use.  May be set
 * before connect() or listen(); once connected it is that of the connection.
 */
#define SDP_LAYOUT	1
/* struct sdp_info; read only, at any time */
#define SDP_INFO	2
/* int, enum sdp_info_policy; may be set before connect() or listen() */
#define SDP_POLICY	3
/*
 * int, enum sdp_info_initiator: which end will initiate MPA when connect() is
 * called.  May be set before connect() or listen().
 */
#define SDP_INITIATOR	4

/*
 * The layout of headers: the figures of draft-pinkerton-iwarp-sdp-01, read
 * literally, or the layout that InfiniBand uses.  A listener accepts both.
 */
enum sdp_info_layout {
	SDP_INFO_LAYOUT_DRAFT = 0,
	SDP_INFO_LAYOUT_IB = 1,
};

/*
 * Which end initiates MPA once the Hello is sent.  A listener accepts both.  With
 * the connecting end, MPA's ready-to-receive indication precedes HelloAck (RFC
 * 6581 section 5), which the draft does not provide for in its section 8.1.1.
 */
enum sdp_info_initiator {
	SDP_INFO_INITIATOR_ACCEPTOR = 0,
	SDP_INFO_INITIATOR_CONNECTOR = 1,
};

enum sdp_info_state {
	SDP_INFO_IDLE = 0,		/* neither listening nor connected */
	SDP_INFO_LISTEN = 1,
	/* set-up */
	SDP_INFO_TCP = 2,
	SDP_INFO_HELLO = 3,
	SDP_INFO_MPA = 4,
	SDP_INFO_HELLO_ACK = 5,
	/* connected; section 8.2 of the draft */
	SDP_INFO_OPEN = 6,
	SDP_INFO_CLOSING = 7,		/* closed here; queued octets go out */
	SDP_INFO_HALF = 8,		/* our DisConn is sent */
	SDP_INFO_PEER_HALF = 9,		/* the peer's DisConn has arrived */
	SDP_INFO_PEER_CLOSING = 10,	/* CLOSING after the peer's DisConn */
	SDP_INFO_LAST = 11,		/* both DisConns; ours came second */
	SDP_INFO_WAIT = 12,		/* both; the peer closes TCP */
	SDP_INFO_FINISH = 13,		/* both; we have closed TCP */
	SDP_INFO_ABORTING = 14,
	SDP_INFO_CLOSED = 15,
	SDP_INFO_DOWN = 16,		/* the connection is released */
	SDP_INFO_MOVING = 17,		/* moves to another carrier */
};

/* The mode of one direction */
enum sdp_info_mode {
	SDP_INFO_MODE_BUFFERED = 0,
	SDP_INFO_MODE_COMBINED = 1,
	SDP_INFO_MODE_PIPELINED = 2,
	SDP_INFO_MODE_NONE = 255,	/* there is no connection */
};

/* How the peer broke the protocol */
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

/* The protocol that carries the octets */
enum sdp_info_transport {
	SDP_INFO_TRANSPORT_NONE = 0,	/* not decided yet */
	SDP_INFO_TRANSPORT_SDP = 1,
	SDP_INFO_TRANSPORT_TCP = 2,
};

/* The protocols that a socket may use; a listener of AUTO accepts both */
enum sdp_info_policy {
	SDP_INFO_POLICY_SDP = 0,	/* SDP only */
	SDP_INFO_POLICY_AUTO = 1,	/* TCP where there is no SDP */
	SDP_INFO_POLICY_TCP = 2,	/* TCP only */
};

/* Why TCP is used */
enum sdp_info_reason {
	SDP_INFO_REASON_NONE = 0,	/* TCP is not used */
	SDP_INFO_REASON_POLICY = 1,	/* the policy allows nothing else */
	SDP_INFO_REASON_NO_DEVICE = 2,	/* no RDMA device on the route */
	SDP_INFO_REASON_NO_ANSWER = 3,	/* no port mapper answers at the peer */
	SDP_INFO_REASON_DENIED = 4,	/* the peer's port mapper has none */
	SDP_INFO_REASON_REFUSED = 5,	/* nobody listens at the port it gave */
	SDP_INFO_REASON_SETUP = 6,	/* it was answered, but set-up failed */
	SDP_INFO_REASON_PEER = 7,	/* the peer has connected by TCP */
};

/*
 * The value of SDP_INFO.  getsockopt() writes as much of it as the buffer has
 * room for, and returns how much that is: an older kernel has fewer members.
 * New members come at the end.
 */
struct sdp_info {
	__u8	state;		/* enum sdp_info_state */
	__u8	layout;		/* enum sdp_info_layout */
	__u8	tx_mode;	/* enum sdp_info_mode */
	__u8	rx_mode;
	__u8	transport;	/* enum sdp_info_transport */
	__u8	policy;		/* enum sdp_info_policy */
	__u8	reason;		/* enum sdp_info_reason */
	__u8	fault;		/* enum sdp_info_fault, if one ended it */
	__u32	error;		/* errno of its end */
	__u32	own_credits;	/* buffers posted for the peer's messages */
	__u32	peer_credits;	/* messages that the peer has buffers for */
	__u32	own_bufs;	/* receive buffers, full or not */
	__u32	own_size;	/* octets of each of them */
	__u32	peer_size;	/* octets of each buffer of the peer */
	__u32	rx_queue;	/* octets that the program has not read */
	__u32	tx_queue;	/* octets that have not been sent */
	/*
	 * Octets of the stream so far, by copying, by RDMA Read, by RDMA Write;
	 * at present all are copied.
	 */
	__u64	rx_bcopy;
	__u64	rx_read;
	__u64	rx_write;
	__u64	tx_bcopy;
	__u64	tx_read;
	__u64	tx_write;
	char	device[64];	/* name of the RDMA device, padded with zeros */
	__u8	initiator;	/* enum sdp_info_initiator; 0 over rdma_cm */
	__u8	reserved[7];	/* 0 */
};

#endif /* SOFTWARP_SDP_H */
