// SPDX-License-Identifier: GPL-2.0
/*
 * A connection after its set-up, see conn.h.
 */
#include "conn.h"

void sdp_conn_init(struct sdp_conn *c, bool connector,
		   const struct sdp_offer *own, const struct sdp_terms *terms)
{
	*c = (struct sdp_conn){
		.connector = connector,
		.source = { .mode = SDP_MODE_COMBINED },
		.state = SDP_OPEN,
	};
	sdp_credits_init(&c->credits, connector, own->posted, terms->bufs);
	sdp_resize_init(&c->resize, connector, terms->rcv_size, own->rcv_size);
	sdp_sink_init(&c->sink, own->max_adverts < SDP_ADVERTS ?
		      (__u8)own->max_adverts : SDP_ADVERTS);
}

void sdp_conn_resume(struct sdp_conn *c, const struct sdp_offer *own,
		     const struct sdp_terms *terms)
{
	struct sdp_source source = c->source;
	__u8 state = c->state;

	sdp_conn_init(c, true, own, terms);
	c->state = state;
	c->disconn_seen = state == SDP_HALF;
	c->source = source;
	c->source.mode = SDP_MODE_COMBINED;
	c->source.payloads = 0;
}

bool sdp_conn_sends(const struct sdp_conn *c)
{
	return c->state == SDP_OPEN || c->state == SDP_PEER_HALF;
}

bool sdp_conn_receives(const struct sdp_conn *c)
{
	return c->state == SDP_OPEN || c->state == SDP_CLOSING ||
	       c->state == SDP_HALF;
}

__u32 sdp_conn_input(struct sdp_conn *c, enum sdp_input input)
{
	struct sdp_next next = sdp_close_next(c->state, input);
	__u32 actions = next.actions;

	if (next.state == SDP_STATE_NO)
		return 0;
	c->state = next.state;
	if (!(actions & SDP_DO_ABORTCONN))
		return actions;
	actions &= ~(__u32)SDP_DO_ABORTCONN;
	c->abort_due = sdp_credits_allow(&c->credits, false) && !c->suspended;
	if (!c->abort_due) {
		c->state = SDP_CLOSED;
		actions |= SDP_DO_RESET;
	}
	return actions;
}

__u32 sdp_conn_fault(struct sdp_conn *c, enum sdp_fault fault)
{
	if (c->state == SDP_CLOSED || c->state == SDP_ABORTING)
		return 0;
	c->fault = fault;
	return sdp_conn_input(c, SDP_IN_ABORT) | SDP_DO_FAIL;
}

/* The three below translate faults of the parts to faults of the connection. */
static enum sdp_fault of_credit(enum sdp_credit_fault fault)
{
	switch (fault) {
	case SDP_CREDIT_OK:
		return SDP_FAULT_NONE;
	case SDP_CREDIT_MSEQ:
		return SDP_FAULT_MSEQ;
	case SDP_CREDIT_ACK:
		return SDP_FAULT_ACK;
	case SDP_CREDIT_OVERRUN:
		break;
	}
	return SDP_FAULT_OVERRUN;
}

static enum sdp_fault of_sink(enum sdp_sink_fault fault)
{
	switch (fault) {
	case SDP_SINK_OK:
		return SDP_FAULT_NONE;
	case SDP_SINK_MODE:
		return SDP_FAULT_MODE;
	case SDP_SINK_ADVERTS:
		return SDP_FAULT_ADVERTS;
	case SDP_SINK_PAYLOAD:
		return SDP_FAULT_PAYLOAD;
	case SDP_SINK_UNFINISHED:
		break;
	}
	return SDP_FAULT_UNFINISHED;
}

static enum sdp_fault of_resize(enum sdp_resize_fault fault)
{
	switch (fault) {
	case SDP_RESIZE_OK:
		return SDP_FAULT_NONE;
	case SDP_RESIZE_NEVER:
		return SDP_FAULT_UNEXPECTED;
	case SDP_RESIZE_TWICE:
	case SDP_RESIZE_SIZE:
		break;
	}
	return SDP_FAULT_RESIZE;
}

static enum sdp_fault take_data(struct sdp_conn *c, const struct sdp_msg *msg,
				__u32 *actions)
{
	if (!msg->payload)
		return SDP_FAULT_NONE;
	if (!sdp_conn_receives(c))
		return SDP_FAULT_PAYLOAD;
	*actions |= SDP_DO_DELIVER;
	if (msg->flags & SDP_FLAG_OOB_PRES)
		*actions |= SDP_DO_OOB;
	return of_sink(sdp_sink_data(&c->sink, msg->payload));
}

static enum sdp_fault take_avail(struct sdp_conn *c, const struct sdp_msg *msg,
				 __u32 *actions)
{
	if (!sdp_conn_receives(c))
		return SDP_FAULT_ADVERTS;
	*actions |= SDP_DO_ADVERT;
	if (msg->payload)
		*actions |= SDP_DO_DELIVER;
	return of_sink(sdp_sink_avail(&c->sink, msg));
}

static enum sdp_fault take_mode(struct sdp_conn *c, const struct sdp_msg *msg)
{
	/*
	 * The peer is the master of our sending half in Buffered Mode only
	 * (Figure 27), and we never enter that.
	 */
	if (msg->mode.send)
		return SDP_FAULT_MODE;
	return of_sink(sdp_sink_mode(&c->sink, msg->mode.mode));
}

static enum sdp_fault take_disconn(struct sdp_conn *c, __u32 *actions)
{
	enum sdp_fault fault = of_sink(sdp_sink_end(&c->sink));
	enum sdp_input input = SDP_IN_DISCONN;
	enum sdp_state before = c->state;

	if (fault)
		return fault;
	/*
	 * If it is unclear, assume that the two have crossed: it does no harm
	 * if both ends close TCP, but if neither does, both wait for the grace
	 * time.
	 */
	if (c->state == SDP_HALF && c->connector && !c->disconn_seen &&
	    c->credits.acked <= c->disconn)
		input = SDP_IN_DISCONN_CROSSED;
	*actions |= sdp_conn_input(c, input);
	return c->state == before ? SDP_FAULT_UNEXPECTED : SDP_FAULT_NONE;
}

static enum sdp_fault take_abortconn(struct sdp_conn *c, __u32 *actions)
{
	enum sdp_state before = c->state;

	/* AbortConn is legal only after a DisConn (section 6.2.4). */
	*actions |= sdp_conn_input(c, SDP_IN_ABORTCONN);
	return c->state == before ? SDP_FAULT_UNEXPECTED : SDP_FAULT_NONE;
}

static enum sdp_fault take_suspend(struct sdp_conn *c, const struct sdp_msg *msg,
				   __u32 *actions)
{
	if (c->suspend_due || c->state > SDP_PEER_CLOSING)
		return SDP_FAULT_UNEXPECTED;
	if (!msg->port)
		return SDP_FAULT_MALFORMED;
	c->suspend_due = true;
	c->suspend_port = msg->port;
	sdp_sink_stop(&c->sink);
	*actions |= SDP_DO_SUSPEND;
	return SDP_FAULT_NONE;
}

static enum sdp_fault dispatch(struct sdp_conn *c, const struct sdp_msg *msg,
			       __u32 *actions)
{
	enum sdp_fault fault;
	bool act;

	switch ((enum sdp_mid)msg->mid) {
	case SDP_MID_DATA:
		return take_data(c, msg, actions);
	case SDP_MID_SRC_AVAIL:
		return take_avail(c, msg, actions);
	case SDP_MID_SRC_AVAIL_CANCEL:
		if (sdp_sink_cancel(&c->sink))
			sdp_credits_hold(&c->credits);
		return SDP_FAULT_NONE;
	case SDP_MID_MODE_CHANGE:
		return take_mode(c, msg);
	case SDP_MID_CH_RCV_BUF:
		fault = of_resize(sdp_resize_take(&c->resize, msg->size, &act));
		if (act)
			*actions |= SDP_DO_RESIZE;
		return fault;
	case SDP_MID_CH_RCV_BUF_ACK:
		return of_resize(sdp_resize_take_ack(&c->resize, msg->size));
	case SDP_MID_DISCONN:
		return take_disconn(c, actions);
	case SDP_MID_ABORT_CONN:
		return take_abortconn(c, actions);
	case SDP_MID_SUSP_COMM:
		return take_suspend(c, msg, actions);
	case SDP_MID_SINK_AVAIL_CANCEL:
		/* we keep no SinkAvail, so there is none to cancel */
		return SDP_FAULT_NONE;
	case SDP_MID_SINK_AVAIL:
		/* Our sending half is never in Pipelined Mode (section 11). */
		return SDP_FAULT_MODE;
	case SDP_MID_HELLO:
	case SDP_MID_HELLO_ACK:
	case SDP_MID_SEND_SM:
	case SDP_MID_RDMA_WR_COMPL:
	case SDP_MID_RDMA_RD_COMPL:
	case SDP_MID_SINK_CANCEL_ACK:
	case SDP_MID_SUSP_COMM_ACK:
		/* answers to messages that we never send */
		break;
	}
	return SDP_FAULT_UNEXPECTED;
}

__u32 sdp_conn_take(struct sdp_conn *c, const struct sdp_msg *msg,
		    bool invalidated)
{
	enum sdp_fault fault;
	__u32 actions = 0;

	if (c->state == SDP_CLOSED)
		return 0;
	fault = of_credit(sdp_credits_take(&c->credits, msg));
	if (c->state == SDP_ABORTING)
		return 0;
	if (!fault && invalidated)
		fault = SDP_FAULT_INVALIDATE;
	/* The peer must send nothing after SuspComm (section 13.1.1). */
	if (!fault && c->suspend_due)
		fault = SDP_FAULT_UNEXPECTED;
	if (!fault)
		fault = dispatch(c, msg, &actions);
	if (fault)
		return sdp_conn_fault(c, fault);
	if (msg->flags & SDP_FLAG_OOB_PEND)
		actions |= SDP_DO_URGENT;
	return actions;
}

void sdp_conn_oob(struct sdp_conn *c, __u64 octets)
{
	c->source.oob = true;
	c->source.oob_end = c->source.sent + octets;
}

/* May OOB_PEND go with a message that is sent now? */
static bool may_tell(const struct sdp_source *s)
{
	return s->oob && !s->oob_told && s->oob_end - s->sent <= SDP_OOB_AHEAD;
}

/*
 * Octets that the next message may have, so that it ends with the octet out of
 * band, or where OOB_PEND may be sent.  *@due: send that message at once.
 */
static __u64 up_to_oob(const struct sdp_source *s, bool *due)
{
	*due = false;
	if (s->oob_told || may_tell(s)) {
		*due = true;
		return (s->oob_told ? s->oob_told_end : s->oob_end) - s->sent;
	}
	if (s->oob)
		return s->oob_end - s->sent - SDP_OOB_AHEAD;
	return SDP_SIZE_MAX;
}

static void stamp(struct sdp_conn *c, struct sdp_out *out)
{
	struct sdp_msg *msg = &out->msg;
	struct sdp_source *s = &c->source;

	if (may_tell(s)) {
		s->oob = false;
		s->oob_told = true;
		s->oob_told_end = s->oob_end;
		msg->flags |= SDP_FLAG_OOB_PEND;
	}
	if (msg->payload) {
		s->sent += msg->payload;
		s->payloads++;
		if (s->oob_told && s->sent == s->oob_told_end) {
			s->oob_told = false;
			msg->flags |= SDP_FLAG_OOB_PRES;
		}
	}
	out->solicited = sdp_kind_of(msg->mid).solicited;
	if (msg->mid == SDP_MID_DATA)
		out->solicited = msg->flags;
	sdp_credits_stamp(&c->credits, msg);
}

/* A message without payload that is due, independent of the queue */
static bool next_control(struct sdp_conn *c, struct sdp_out *out)
{
	struct sdp_msg *msg = &out->msg;

	if (c->abort_due) {
		c->abort_due = false;
		msg->mid = SDP_MID_ABORT_CONN;
		return true;
	}
	if (c->state == SDP_ABORTING)
		return false;
	if (c->suspend_due) {
		if (sdp_sink_busy(&c->sink))
			return false;
		/* report what was read, or the peer sends it again */
		if (sdp_sink_owes(&c->sink))
			return sdp_sink_answer(&c->sink, msg, &out->stag,
					       &out->invalidate);
		c->suspended = true;
		msg->mid = SDP_MID_SUSP_COMM_ACK;
		return true;
	}
	if (sdp_sink_answer(&c->sink, msg, &out->stag, &out->invalidate))
		return true;
	if (sdp_resize_ack_due(&c->resize, c->credits.received)) {
		msg->mid = SDP_MID_CH_RCV_BUF_ACK;
		msg->size = sdp_resize_acked(&c->resize);
		return true;
	}
	if (c->resize.due) {
		msg->mid = SDP_MID_CH_RCV_BUF;
		msg->size = sdp_resize_asked(&c->resize);
		return true;
	}
	return false;
}

/* Payload of a Data message sent now; 0: send none */
static __u32 next_payload(const struct sdp_conn *c, const struct sdp_queue *queue)
{
	__u32 full = c->resize.peer - SDP_BSDH_LEN;
	__u64 octets = queue->octets;
	bool due;
	__u64 most = up_to_oob(&c->source, &due);

	if (octets > full)
		octets = full;
	if (octets > most)
		octets = most;
	/* wait for a full message, unless the out-of-band octet limits it */
	if (octets < full && octets < most && !queue->partial && !due &&
	    sdp_conn_sends(c))
		return 0;
	return (__u32)octets;
}

/* The program may send, or has closed and its queue is still being sent. */
static bool still_sends(const struct sdp_conn *c)
{
	return sdp_conn_sends(c) || c->state == SDP_CLOSING ||
	       c->state == SDP_PEER_CLOSING;
}

/* Is there a message to send, be it only to advertise buffers? */
static bool wants(const struct sdp_conn *c, const struct sdp_queue *queue,
		  bool sends, __u32 payload)
{
	if (c->state == SDP_ABORTING)
		return c->abort_due;
	if (c->suspend_due)
		return true;
	if (payload || (sends && may_tell(&c->source)))
		return true;
	if (sends && !sdp_conn_sends(c) && !queue->octets)
		return true;
	return c->resize.due || sdp_sink_due(&c->sink) ||
	       sdp_resize_ack_due(&c->resize, c->credits.received) ||
	       sdp_credits_due(&c->credits, queue->flows);
}

bool sdp_conn_next(struct sdp_conn *c, const struct sdp_queue *queue,
		   struct sdp_out *out)
{
	bool sends = still_sends(c);
	__u32 payload = sends && !c->suspend_due ? next_payload(c, queue) : 0;

	*out = (struct sdp_out){};
	if (c->suspended || c->state == SDP_FINISH || c->state == SDP_CLOSED)
		return false;
	if (!sdp_sink_busy(&c->sink))
		sdp_credits_release(&c->credits);
	if (!sdp_credits_allow(&c->credits, false)) {
		if (!c->probe || !sdp_credits_ask(&c->credits, true) ||
		    !wants(c, queue, sends, payload))
			return false;
		c->probe = false;
		out->msg.mid = SDP_MID_DATA;
		stamp(c, out);
		return true;
	}
	if (next_control(c, out)) {
		stamp(c, out);
		return true;
	}
	if (c->suspend_due || c->state == SDP_ABORTING)
		return false;
	out->msg.mid = SDP_MID_DATA;
	if (payload && sdp_credits_allow(&c->credits, true)) {
		out->msg.payload = payload;
		c->asked = false;
		c->probe = false;
		stamp(c, out);
		return true;
	}
	if (sends && !sdp_conn_sends(c) && !queue->octets) {
		out->msg.mid = SDP_MID_DISCONN;
		c->disconn = c->credits.sent;
		stamp(c, out);
		c->state = sdp_close_next(c->state, SDP_IN_SAID).state;
		return true;
	}
	/* an empty one: its header gives or asks for credit, or has OOB_PEND */
	if (payload && sdp_credits_ask(&c->credits, false) &&
	    (!c->asked || sdp_credits_unclear(&c->credits)))
		c->asked = true;
	else if (!sdp_credits_due(&c->credits, queue->flows) &&
		 !(sends && may_tell(&c->source)))
		return false;
	stamp(c, out);
	return true;
}

bool sdp_conn_starved(const struct sdp_conn *c, const struct sdp_queue *queue)
{
	bool sends = still_sends(c);
	__u32 payload = sends && !c->suspend_due ? next_payload(c, queue) : 0;

	if (c->suspended || c->state == SDP_FINISH || c->state == SDP_CLOSED)
		return false;
	return (payload && !sdp_credits_allow(&c->credits, true)) ||
	       (!sdp_credits_allow(&c->credits, false) &&
		wants(c, queue, sends, payload));
}

void sdp_conn_probe(struct sdp_conn *c)
{
	c->asked = false;
	c->probe = true;
}
