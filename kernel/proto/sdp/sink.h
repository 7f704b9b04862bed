/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The receiving half-connection: its mode, and the peer's SrcAvails from their
 * arrival to the answer; draft-pinkerton-iwarp-sdp-01 sections 9.2, 9.5.2,
 * 9.5.4, 11 and 12.
 *
 *   SrcAvail in -> octets are read by RDMA Read, in order -> RdmaRdCompl
 *               `-> or refused: SendSm; the rest comes by Data
 *   SrcAvailCancel in: running Reads finish and are reported, the rest is
 *               dropped; one SendSm if anything was dropped
 *
 * Only the oldest SrcAvail is processed at a time.  This end sends no
 * SinkAvail.
 */
#ifndef SDP_PROTO_SINK_H
#define SDP_PROTO_SINK_H

#include "wire.h"

/* Room for SrcAvails; MaxAdverts of our Hello is at most that */
#define SDP_ADVERTS	4

struct sdp_advert {
	__u32 stag;
	__u64 va;
	__u32 len;		/* all octets, including the four below */
	__u32 inlined;		/* octets that came with the SrcAvail */
	__u32 told;		/* octets reported by RdmaRdCompl */
	__u32 ready;		/* octets read but not reported yet */
	__u32 reading;		/* octets of running Reads */
};

struct sdp_sink {
	__u8 mode;		/* enum sdp_mode */
	__u8 count;		/* of @adverts, the oldest first */
	__u8 most;		/* MaxAdverts */
	bool refused;		/* SendSm is due for the oldest */
	bool cancelling;	/* a SrcAvailCancel is in progress */
	bool dropped;		/* it cancelled something, so SendSm is due */
	bool stopped;		/* do not start Reads any more */
	__u32 owed;		/* octets to come by Data after a SendSm */
	struct sdp_advert adverts[SDP_ADVERTS];
};

enum sdp_sink_fault {
	SDP_SINK_OK,
	SDP_SINK_MODE,		/* not allowed in this mode, or from it */
	SDP_SINK_ADVERTS,	/* above MaxAdverts, or too many for the mode */
	SDP_SINK_PAYLOAD,	/* payload is not allowed now, or is missing */
	SDP_SINK_UNFINISHED,	/* promised octets have not arrived */
};

void sdp_sink_init(struct sdp_sink *s, __u8 most);

/* A Data message with @payload octets has arrived. */
enum sdp_sink_fault sdp_sink_data(struct sdp_sink *s, __u32 payload);

/* A SrcAvail has arrived; its payload is part of the stream. */
enum sdp_sink_fault sdp_sink_avail(struct sdp_sink *s, const struct sdp_msg *msg);

/*
 * A SrcAvailCancel has arrived.  True: Reads are running, and the message must
 * not be acknowledged until sdp_sink_read() was called for the last of them.
 */
bool sdp_sink_cancel(struct sdp_sink *s);

/* A ModeChange for this half has arrived. */
enum sdp_sink_fault sdp_sink_mode(struct sdp_sink *s, __u8 mode);

/* DisConn has arrived: is anything unfinished? */
enum sdp_sink_fault sdp_sink_end(const struct sdp_sink *s);

/*
 * sdp_sink_want - octets to be read from the oldest SrcAvail now
 * @most: limit for the result
 * @stag, @va: where the octets are
 * Returns how many, 0 for none.  The caller must read them: they count as being
 * read from now on.
 */
__u32 sdp_sink_want(struct sdp_sink *s, __u32 most, __u32 *stag, __u64 *va);

/* The oldest Read has ended; its octets are the next ones of the stream. */
void sdp_sink_read(struct sdp_sink *s, __u32 octets);

/* Do not read (the rest of) the oldest SrcAvail; ask for it by Data. */
void sdp_sink_refuse(struct sdp_sink *s);

/* Do not start Reads any more; for SuspComm. */
void sdp_sink_stop(struct sdp_sink *s);

/* Are Reads running? */
bool sdp_sink_busy(const struct sdp_sink *s);

/* Is there an outcome that the peer knows only by an answer? */
bool sdp_sink_owes(const struct sdp_sink *s);

/*
 * sdp_sink_answer - build the answer that is due; false if none is
 * @msg: MID and extended header are filled in
 * @stag: the STag to invalidate with it, if *@invalidate
 */
bool sdp_sink_answer(struct sdp_sink *s, struct sdp_msg *msg, __u32 *stag,
		     bool *invalidate);

/* Is an answer due? */
bool sdp_sink_due(const struct sdp_sink *s);

#endif /* SDP_PROTO_SINK_H */
