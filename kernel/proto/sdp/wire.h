/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SDP messages: encode, decode, check.  draft-pinkerton-iwarp-sdp-01 section 6.
 *
 * The draft's figures can be read in two ways, and both are in use: literally,
 * or as InfiniBand defines the same headers.  They differ in the order of
 * fields within a 32-bit word; fields larger than an octet are big-endian in
 * both.
 */
#ifndef SDP_PROTO_WIRE_H
#define SDP_PROTO_WIRE_H

#include "../base.h"

enum sdp_layout {
	SDP_LAYOUT_DRAFT,	/* Bufs, Flags, MID: the figures, literally */
	SDP_LAYOUT_IB,		/* MID, Flags, Bufs: as in InfiniBand */
};

/* Figure 3 */
enum sdp_mid {
	SDP_MID_HELLO			= 0x00,
	SDP_MID_HELLO_ACK		= 0x01,
	SDP_MID_DISCONN			= 0x02,
	SDP_MID_ABORT_CONN		= 0x03,
	SDP_MID_SEND_SM			= 0x04,
	SDP_MID_RDMA_WR_COMPL		= 0x05,
	SDP_MID_RDMA_RD_COMPL		= 0x06,
	SDP_MID_MODE_CHANGE		= 0x07,
	SDP_MID_SRC_AVAIL_CANCEL	= 0x08,
	SDP_MID_SINK_AVAIL_CANCEL	= 0x09,
	SDP_MID_SINK_CANCEL_ACK		= 0x0a,
	SDP_MID_CH_RCV_BUF		= 0x0b,
	SDP_MID_CH_RCV_BUF_ACK		= 0x0c,
	SDP_MID_SUSP_COMM		= 0x0d,
	SDP_MID_SUSP_COMM_ACK		= 0x0e,
	SDP_MID_SINK_AVAIL		= 0xfd,
	SDP_MID_SRC_AVAIL		= 0xfe,
	SDP_MID_DATA			= 0xff,
};

/* Section 6.1.2; we send the other bits as zero and ignore received ones */
enum sdp_flag {
	SDP_FLAG_OOB_PRES	= 0x01,	/* the last octet of Data is out of band */
	SDP_FLAG_OOB_PEND	= 0x02,	/* an octet out of band will follow */
	SDP_FLAG_REQ_PIPE	= 0x04,	/* RdmaRdCompl, RdmaWrCompl: Pipelined */
};

/* Section 6.3.8 */
enum sdp_mode {
	SDP_MODE_BUFFERED	= 0,
	SDP_MODE_COMBINED	= 1,
	SDP_MODE_PIPELINED	= 2,
};

#define SDP_BSDH_LEN		16
#define SDP_HELLO_LEN		32	/* BSDH included */
#define SDP_HELLO_ACK_LEN	28
#define SDP_HDR_MAX		36	/* of SinkAvail */
/* The smallest private buffer has room for the largest header and an octet */
#define SDP_RCV_SIZE_MIN	37
#define SDP_SIZE_MAX		0x80000000U
#define SDP_VERSION		1	/* major and minor */

/* HH and HAH, sections 6.2.1 and 6.2.2 */
struct sdp_hello {
	__u16 max_adverts;
	__u8 major;
	__u8 minor;
	__u32 des_rem_rcv_size;	/* Hello only, a hint */
	__u32 rcv_size;		/* LocalRcvSz, or ActRcvSz in HelloAck */
	__u16 ird;
	__u16 ord;
};

/* SrcAH and SinkAH, sections 6.3.2 and 6.3.3 */
struct sdp_avail {
	__u32 len;		/* 1 to 2^31 octets */
	__u32 stag;
	__u64 va;
	__u32 non_discards;	/* SinkAvail only */
};

/* MCH, section 6.3.8 */
struct sdp_mode_change {
	__u8 mode;		/* enum sdp_mode */
	bool send;		/* S: the receiver's sending half-connection */
};

/* A message; host byte order */
struct sdp_msg {
	__u8 mid;		/* enum sdp_mid */
	__u8 flags;		/* enum sdp_flag */
	__u16 bufs;		/* buffers posted minus messages received */
	__u32 mseq;
	__u32 mseq_ack;
	__u32 payload;		/* octets of the ULP after the headers */
	union {
		struct sdp_hello hello;		/* Hello, HelloAck */
		struct sdp_avail avail;		/* SrcAvail, SinkAvail */
		struct sdp_mode_change mode;	/* ModeChange */
		__u32 size;	/* Len, DesSz or ActSz: Rdma*Compl, ChRcvBuf* */
		__u16 port;	/* SuspComm */
	};
};

/* How a message breaks the rules; causes an abortive close, section 8.2.2 */
enum sdp_violation {
	SDP_OK,
	SDP_BAD_LENGTH,		/* Len is not that of the Send, or too short */
	SDP_BAD_MID,
	SDP_BAD_PAYLOAD,	/* in a message that may have none */
	SDP_BAD_OOB,		/* OOB_PRES in Data without payload */
	SDP_BAD_SIZE,		/* an advertised length of 0, or above 2^31 */
	SDP_BAD_MODE,
	SDP_BAD_CONSTANT,	/* of SuspComm */
};

/* How a message is sent, Figure 3 and section 6.4 */
struct sdp_kind {
	__u8 header;		/* octets of all headers; 0: no such MID */
	bool payload;		/* may have payload */
	bool solicited;		/* Send with Solicited Event */
	bool invalidates;	/* may invalidate the STag that it is about */
};

struct sdp_kind sdp_kind_of(__u8 mid);

/*
 * sdp_encode - write the headers of a message
 * @buf: room for SDP_HDR_MAX octets
 * Returns octets written; Len includes msg->payload.
 */
__u32 sdp_encode(enum sdp_layout layout, const struct sdp_msg *msg, __u8 *buf);

/*
 * sdp_decode - decode the headers of a message
 * @buf: the first octets of it, min(@len, SDP_HDR_MAX) of them readable
 * @len: octets of the RDMAP Send
 * @msg: valid if SDP_OK is returned
 *
 * The caller checks the fields that depend on what an end supports: version,
 * depths, buffer sizes.
 */
enum sdp_violation sdp_decode(enum sdp_layout layout, const __u8 *buf, __u32 len,
			      struct sdp_msg *msg);

/*
 * sdp_hello_layout - find the layout of a Hello
 * @buf: SDP_HELLO_LEN octets
 * False: neither layout, so it is not a Hello.  The layout is recognised by
 * Bufs, which is at least 3, and by MID and flags, which are 0 (section 6.2.1).
 */
bool sdp_hello_layout(const __u8 *buf, enum sdp_layout *layout);

#endif /* SDP_PROTO_WIRE_H */
