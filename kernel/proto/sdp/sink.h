/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The receiving half-connection: its mode, and the peer's SrcAvails from their
 * arrival to the answer; draft-pinkerton-iwarp-sdp-01 sections 9.2, 9.5.2, 9.5.4,
 * 11 and 12.
 *
 *   SrcAvail in -> octets are read by RDMA Read, in order -> RdmaRdCompl
 *               `-> or refused: SendSm; the rest comes by Data
 *   SrcAvailCancel in: running Reads finish and are told, the rest is dropped;
 *               one SendSm if anything was
 *
 * The oldest SrcAvail is dealt with first, and no other meanwhile.  This end sends
 * no SinkAvail.
 */
#ifndef SDP_PROTO_SINK_H
#define SDP_PROTO_SINK_H

#include "wire.h"

/* SrcAvails that are kept; MaxAdverts of our Hello is at most that */
#define SDP_ADVERTS	4

struct sdp_advert {
	__u32 stag;
	__u64 va;
	__u32 len;		/* all of it */
	__u32 inlined;		/* octets that came with the SrcAvail */
	__u32 told;		/* octets reported by RdmaRdCompl */
	__u32 ready;		/* read, and to be reported */
	__u32 reading;		/* octets of running Reads */
};

struct sdp_sink {
	__u8 mode;		/* enum sdp_mode */
	__u8 count;		/* of @adverts, the oldest first */
	__u8 most;		/* MaxAdverts */
	bool refused;		/* SendSm is due for the oldest */
	bool cancelling;	/* a SrcAvailCancel is being worked on */
	bool dropped;		/* and something was cancelled, so SendSm is due */
	bool stopped;		/* no Read is started any more */
	__u32 owed;		/* octets that come by Data after a SendSm */
	struct sdp_advert adverts[SDP_ADVERTS];
};

enum sdp_sink_fault {
	SDP_SINK_OK,
	SDP_SINK_MODE,		/* not in this mode, or no such change of mode */
	SDP_SINK_ADVERTS,	/* more than MaxAdverts, or than the mode has */
	SDP_SINK_PAYLOAD,	/* in a message that must not have it now, or none */
	SDP_SINK_UNFINISHED,	/* octets were promised that have not come */
};

void sdp_sink_init(struct sdp_sink *s, __u8 most);

/* Payload of Data came in. */
enum sdp_sink_fault sdp_sink_data(struct sdp_sink *s, __u32 payload);

/* A SrcAvail came in; its payload is part of the stream. */
enum sdp_sink_fault sdp_sink_avail(struct sdp_sink *s, const struct sdp_msg *msg);

/*
 * A SrcAvailCancel came in.  True: Reads are running, and until sdp_sink_read()
 * has been told of the last one the message must not be acknowledged.
 */
bool sdp_sink_cancel(struct sdp_sink *s);

/* A ModeChange about this half came in. */
enum sdp_sink_fault sdp_sink_mode(struct sdp_sink *s, __u8 mode);

/* DisConn or SuspComm came in: was all of it said? */
enum sdp_sink_fault sdp_sink_end(const struct sdp_sink *s);

/*
 * sdp_sink_want - octets to be read from the oldest SrcAvail now
 * @most: of them
 * @stag, @va: where they are
 * Returns how many, 0 for none.  They are taken as being read.
 */
__u32 sdp_sink_want(struct sdp_sink *s, __u32 most, __u32 *stag, __u64 *va);

/* The oldest Read has ended; its octets follow in the stream. */
void sdp_sink_read(struct sdp_sink *s, __u32 octets);

/* The oldest SrcAvail is not to be read (further): the rest shall come by Data. */
void sdp_sink_refuse(struct sdp_sink *s);

/* No Read is started any more, for SuspComm. */
void sdp_sink_stop(struct sdp_sink *s);

/* Are Reads running? */
bool sdp_sink_busy(const struct sdp_sink *s);

/* Is there something that the peer cannot know without an answer? */
bool sdp_sink_owes(const struct sdp_sink *s);

/*
 * sdp_sink_answer - the message that is due, if there is one
 * @msg: MID and extended header are filled in
 * @stag: to be invalidated with it, if *@invalidate
 */
bool sdp_sink_answer(struct sdp_sink *s, struct sdp_msg *msg, __u32 *stag,
		     bool *invalidate);

/* Is one due? */
bool sdp_sink_due(const struct sdp_sink *s);

#endif /* SDP_PROTO_SINK_H */
