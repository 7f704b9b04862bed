// SPDX-License-Identifier: GPL-2.0
/*
 * Set-up, credits, half-connections, sizes and the close of SDP, by the sections
 * of draft-pinkerton-iwarp-sdp-01.  Case descriptions carry requirement ids.
 */
#include <kunit/test.h>

#include "proto/sdp/conn.h"
#include "proto/sdp/flow.h"
#include "proto/sdp/spin.h"

static const struct sdp_offer offer = {
	.posted = 10, .rcv_size = 1000, .max_adverts = 2, .ird = 8, .ord = 4,
};

static const struct sdp_msg good_hello = {
	.mid = SDP_MID_HELLO, .bufs = 8,
	.hello = { .max_adverts = 3, .major = 1, .minor = 1, .rcv_size = 500,
		   .des_rem_rcv_size = 9000, .ird = 2, .ord = 6 },
};

/* What is wrong with one field of it */
static const struct {
	const char *desc;
	size_t offset;
	u32 size, value;
	enum sdp_refusal why;
} hellos[] = {
	{ "SDP-24 another major version", offsetof(struct sdp_msg, hello.major),
	  1, 2, SDP_NO_VERSION },
	{ "SDP-26, SDP-223 minor version 0",
	  offsetof(struct sdp_msg, hello.minor), 1, 0, SDP_ACCEPTABLE },
	{ "SDP-26, SDP-223 minor version 7",
	  offsetof(struct sdp_msg, hello.minor), 1, 7, SDP_ACCEPTABLE },
	{ "SDP-27, SDP-36, SDP-69, SDP-76 MaxAdverts 0",
	  offsetof(struct sdp_msg, hello.max_adverts), 2, 0, SDP_NO_ADVERTS },
	{ "SDP-69, SDP-76 LocIRD 0", offsetof(struct sdp_msg, hello.ird), 2, 0,
	  SDP_NO_DEPTH },
	{ "SDP-69, SDP-76 LocORD 0", offsetof(struct sdp_msg, hello.ord), 2, 0,
	  SDP_NO_DEPTH },
	{ "SDP-70, SDP-161 Bufs 2", offsetof(struct sdp_msg, bufs), 2, 2,
	  SDP_NO_BUFS },
	{ "SDP-161 Bufs 3", offsetof(struct sdp_msg, bufs), 2, 3,
	  SDP_ACCEPTABLE },
	{ "SDP-158 buffers of 36 octets",
	  offsetof(struct sdp_msg, hello.rcv_size), 4, 36, SDP_NO_SIZE },
	{ "SDP-158 buffers of 37 octets",
	  offsetof(struct sdp_msg, hello.rcv_size), 4, 37, SDP_ACCEPTABLE },
	{ "SDP-29 buffers of 2^31 octets",
	  offsetof(struct sdp_msg, hello.rcv_size), 4, 0x80000000,
	  SDP_ACCEPTABLE },
	{ "SDP-29 buffers of 2^31 + 1 octets",
	  offsetof(struct sdp_msg, hello.rcv_size), 4, 0x80000001, SDP_NO_SIZE },
	{ "SDP-23, SDP-33 MSeq is not looked at",
	  offsetof(struct sdp_msg, mseq), 4, 77, SDP_ACCEPTABLE },
	{ "SDP-23, SDP-33 MSeqAck is not looked at",
	  offsetof(struct sdp_msg, mseq_ack), 4, 77, SDP_ACCEPTABLE },
	{ "SDP-70 another message", offsetof(struct sdp_msg, mid), 1,
	  SDP_MID_DATA, SDP_NO_HELLO },
};

/* Sets a field of 1, 2 or 4 octets. */
static void set_field(struct sdp_msg *msg, size_t offset, u32 size, u32 value)
{
	u8 *field = (u8 *)msg + offset;

	if (size == 1)
		*field = value;
	else if (size == 2)
		*(u16 *)field = value;
	else
		*(u32 *)field = value;
}

static void hello(struct kunit *test)
{
	struct sdp_terms terms;
	int i, ack;

	for (i = 0; i < ARRAY_SIZE(hellos) * 2; i++) {
		struct sdp_msg msg = good_hello;

		ack = i % 2;
		if (ack)
			msg.mid = SDP_MID_HELLO_ACK;
		set_field(&msg, hellos[i / 2].offset, hellos[i / 2].size,
			  hellos[i / 2].value);
		KUNIT_EXPECT_EQ_MSG(test, hellos[i / 2].why, ack ?
				    sdp_hello_ack_check(&offer, &msg, &terms) :
				    sdp_hello_check(&offer, &msg, &terms),
				    "%s", hellos[i / 2].desc);
		/* SDP-222: the lower one */
		if (hellos[i / 2].why == SDP_ACCEPTABLE)
			KUNIT_EXPECT_EQ(test, msg.hello.minor ? 1 : 0,
					(int)terms.minor);
	}

	KUNIT_ASSERT_EQ(test, SDP_ACCEPTABLE,
			sdp_hello_check(&offer, &good_hello, &terms));
	/* SDP-72, SDP-73, SDP-77, SDP-78: what the other end cannot use is cut */
	KUNIT_EXPECT_EQ(test, 6, (int)terms.ird);
	KUNIT_EXPECT_EQ(test, 2, (int)terms.ord);
	KUNIT_EXPECT_EQ(test, 8, (int)terms.bufs);
	KUNIT_EXPECT_EQ(test, 3, (int)terms.max_adverts);
	KUNIT_EXPECT_EQ(test, 500, (int)terms.rcv_size);
	KUNIT_EXPECT_EQ(test, 9000, (int)terms.want_size);
	KUNIT_EXPECT_EQ(test, 1, (int)terms.minor);
}

/* SDP-22, SDP-25, SDP-30, SDP-32, SDP-35, SDP-37, SDP-38 */
static void hello_made(struct kunit *test)
{
	struct sdp_offer own = offer;
	struct sdp_msg msg;

	own.want_size = 4096;
	sdp_hello_make(&own, &msg);
	KUNIT_EXPECT_EQ(test, SDP_MID_HELLO, (int)msg.mid);
	/* two buffers more than are told of */
	KUNIT_EXPECT_EQ(test, 8, (int)msg.bufs);
	KUNIT_EXPECT_EQ(test, 0U, msg.mseq + msg.mseq_ack + msg.flags);
	KUNIT_EXPECT_EQ(test, 1, (int)msg.hello.major);
	KUNIT_EXPECT_EQ(test, 1, (int)msg.hello.minor);
	KUNIT_EXPECT_EQ(test, 2, (int)msg.hello.max_adverts);
	KUNIT_EXPECT_EQ(test, 1000U, msg.hello.rcv_size);
	KUNIT_EXPECT_EQ(test, 4096U, msg.hello.des_rem_rcv_size);
	KUNIT_EXPECT_EQ(test, 8, (int)msg.hello.ird);
	KUNIT_EXPECT_EQ(test, 4, (int)msg.hello.ord);
	sdp_hello_ack_make(&own, &msg);
	KUNIT_EXPECT_EQ(test, SDP_MID_HELLO_ACK, (int)msg.mid);
	KUNIT_EXPECT_EQ(test, 0U, msg.hello.des_rem_rcv_size);
	/* SDP-17: no more than 65,535 are told of */
	own.posted = 100000;
	sdp_hello_make(&own, &msg);
	KUNIT_EXPECT_EQ(test, 65535, (int)msg.bufs);
}

/* The peer's next message, as it would number it */
static struct sdp_msg from_peer(const struct sdp_conn *c, u8 mid)
{
	const struct sdp_credits *cr = &c->credits;

	return (struct sdp_msg){
		.mid = mid, .bufs = 100,
		.mseq = (u32)(cr->received - cr->extra),
		.mseq_ack = cr->sent ? (u32)cr->sent - 1 : 0,
	};
}

static void connect(struct sdp_conn *c, bool connector)
{
	struct sdp_terms terms = { .bufs = 100, .max_adverts = 1,
				   .rcv_size = 500, .ird = 1, .ord = 1 };

	sdp_conn_init(c, connector, &offer, &terms);
}

static u32 take(struct sdp_conn *c, u8 mid)
{
	struct sdp_msg msg = from_peer(c, mid);

	return sdp_conn_take(c, &msg, false);
}

static u32 take_data(struct sdp_conn *c, u32 payload, u8 flags)
{
	struct sdp_msg msg = from_peer(c, SDP_MID_DATA);

	msg.payload = payload;
	msg.flags = flags;
	sdp_credits_post(&c->credits, 1);
	return sdp_conn_take(c, &msg, false);
}

static u32 take_avail(struct sdp_conn *c, u32 len, u32 payload)
{
	struct sdp_msg msg = from_peer(c, SDP_MID_SRC_AVAIL);

	msg.payload = payload;
	msg.avail = (struct sdp_avail){ .len = len, .stag = 0x77, .va = 0x1003 };
	return sdp_conn_take(c, &msg, false);
}

static u32 take_mode(struct sdp_conn *c, u8 mode, bool send)
{
	struct sdp_msg msg = from_peer(c, SDP_MID_MODE_CHANGE);

	msg.mode.mode = mode;
	msg.mode.send = send;
	return sdp_conn_take(c, &msg, false);
}

static u32 take_size(struct sdp_conn *c, u8 mid, u32 size)
{
	struct sdp_msg msg = from_peer(c, mid);

	msg.size = size;
	return sdp_conn_take(c, &msg, false);
}

/* The next message with so much to be sent; MID, or -1 for none */
static int next(struct sdp_conn *c, u64 octets, struct sdp_out *out)
{
	struct sdp_queue queue = { .octets = octets, .partial = true };

	return sdp_conn_next(c, &queue, out) ? out->msg.mid : -1;
}

/* SDP-164, SDP-165, SDP-166: what may be sent with so many credits */
static void credits(struct kunit *test)
{
	static const struct {
		int left;
		bool gives, empty, payload;
	} cases[] = {
		{ 0, false, false, false }, { 0, true, false, false },
		{ 1, false, false, false }, { 1, true, true, false },
		{ 2, false, true, false }, { 2, true, true, false },
		{ 3, false, true, true }, { 3, true, true, true },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sdp_credits c;

		sdp_credits_init(&c, true, 10, 8);
		c.sent = 8 - cases[i].left;
		c.clear = true;
		/* HelloAck's buffer is posted again, or it is not */
		c.posted += cases[i].gives;
		KUNIT_EXPECT_EQ_MSG(test, cases[i].gives,
				    sdp_credits_gives(&c), "case %d", i);
		KUNIT_EXPECT_EQ_MSG(test, cases[i].empty,
				    sdp_credits_allow(&c, false), "case %d", i);
		KUNIT_EXPECT_EQ_MSG(test, cases[i].payload,
				    sdp_credits_allow(&c, true), "case %d", i);
	}
}

/*
 * SDP-166: the last credit is not for what gives the peer nothing: one that takes
 * MSeqAck 0 for "nothing yet" sees the buffer of message 0 used, and no more.
 */
static void credit_of_message_0(struct kunit *test)
{
	struct sdp_msg msg = { .bufs = 8 };
	struct sdp_credits c;

	sdp_credits_init(&c, false, 5, 8);
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	sdp_credits_post(&c, 1);
	KUNIT_EXPECT_FALSE(test, sdp_credits_gives(&c));
	sdp_credits_post(&c, 1);
	KUNIT_EXPECT_TRUE(test, sdp_credits_gives(&c));

	sdp_credits_init(&c, false, 5, 8);
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	msg.mseq = 1;
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	sdp_credits_post(&c, 1);
	KUNIT_EXPECT_TRUE(test, sdp_credits_gives(&c));
}

/* SDP-16, SDP-19, SDP-20, SDP-160: the numbers of messages, both ways */
static void numbers(struct kunit *test)
{
	struct sdp_credits c;
	struct sdp_msg msg = {};

	/* the connector: HelloAck has used a buffer and has no number */
	sdp_credits_init(&c, true, 10, 8);
	KUNIT_EXPECT_EQ(test, 8ULL, sdp_credits_left(&c));
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 0U, msg.mseq);
	KUNIT_EXPECT_EQ(test, 0U, msg.mseq_ack);
	KUNIT_EXPECT_EQ(test, 7, (int)msg.bufs);
	KUNIT_EXPECT_EQ(test, 7ULL, sdp_credits_left(&c));

	/* the acceptor: its HelloAck has used a credit */
	sdp_credits_init(&c, false, 10, 8);
	KUNIT_EXPECT_EQ(test, 7ULL, sdp_credits_left(&c));

	/* MSeqAck 0 may mean "nothing yet": message 0 counts as not received */
	sdp_credits_stamp(&c, &msg);
	msg = (struct sdp_msg){ .bufs = 9 };
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	KUNIT_EXPECT_EQ(test, 8ULL, sdp_credits_left(&c));
	KUNIT_EXPECT_TRUE(test, sdp_credits_unclear(&c));
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 1U, msg.mseq);
	KUNIT_EXPECT_EQ(test, 0U, msg.mseq_ack);
	msg = (struct sdp_msg){ .mseq = 1, .mseq_ack = 1, .bufs = 8 };
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	KUNIT_EXPECT_EQ(test, 8ULL, sdp_credits_left(&c));
	KUNIT_EXPECT_FALSE(test, sdp_credits_unclear(&c));
	KUNIT_EXPECT_EQ(test, 2ULL, c.spare);
	/* message 2: what was kept back is told of now */
	msg = (struct sdp_msg){ .mseq = 2, .mseq_ack = 0, .bufs = 8 };
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_ACK, sdp_credits_take(&c, &msg));
	msg.mseq_ack = 2;
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_ACK, sdp_credits_take(&c, &msg));
	msg.mseq_ack = 1;
	msg.mseq = 3;
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_MSEQ, sdp_credits_take(&c, &msg));
	msg.mseq = 2;
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 7, (int)msg.bufs);
	KUNIT_EXPECT_EQ(test, 2U, msg.mseq_ack);

	/* SDP-160: messages under way count, and no credit is below none */
	msg = (struct sdp_msg){ .mseq = 3, .mseq_ack = 1, .bufs = 0 };
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	KUNIT_EXPECT_EQ(test, 0ULL, sdp_credits_left(&c));
}

/* SDP-17: there is no more to be posted than Bufs can say. */
static void most_buffers(struct kunit *test)
{
	struct sdp_credits c;
	struct sdp_msg msg = {};

	sdp_credits_init(&c, false, 10, 8);
	KUNIT_EXPECT_EQ(test, 65525U, sdp_credits_room(&c));
	sdp_credits_post(&c, 65525);
	KUNIT_EXPECT_EQ(test, 0U, sdp_credits_room(&c));
	c.spare = 0;
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 65535, (int)msg.bufs);
	/* nor is more said where more was posted */
	sdp_credits_post(&c, 10);
	KUNIT_EXPECT_EQ(test, 0U, sdp_credits_room(&c));
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 65535, (int)msg.bufs);
}

/* SDP-19: numbers wrap, totals do not. */
static void numbers_wrap(struct kunit *test)
{
	struct sdp_credits c;
	struct sdp_msg msg = {};

	sdp_credits_init(&c, false, 10, 8);
	c.sent = 0xffffffffULL;
	c.acked = 0xffffffffULL;
	c.limit = c.sent + 8;
	c.received = 0xffffffffULL;
	c.posted = c.received + 10;
	c.told = c.posted;
	c.spare = 0;
	c.clear = true;
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 0xffffffffU, msg.mseq);
	KUNIT_EXPECT_EQ(test, 0xfffffffeU, msg.mseq_ack);
	msg = (struct sdp_msg){ .mseq = 0xffffffff, .mseq_ack = 0xffffffff,
				.bufs = 5 };
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	KUNIT_EXPECT_EQ(test, 5ULL, sdp_credits_left(&c));
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 0U, msg.mseq);
	KUNIT_EXPECT_EQ(test, 0xffffffffU, msg.mseq_ack);
	msg = (struct sdp_msg){ .mseq = 0, .mseq_ack = 0, .bufs = 5 };
	KUNIT_EXPECT_EQ(test, SDP_CREDIT_OK, sdp_credits_take(&c, &msg));
	KUNIT_EXPECT_EQ(test, 5ULL, sdp_credits_left(&c));
	sdp_credits_stamp(&c, &msg);
	KUNIT_EXPECT_EQ(test, 1U, msg.mseq);
	KUNIT_EXPECT_EQ(test, 0U, msg.mseq_ack);
}

/* SDP-163, SDP-167: an update when the peer is down to one, and not for nothing */
static void updates(struct kunit *test)
{
	struct sdp_queue flows = { .partial = true, .flows = true };
	struct sdp_conn c;
	struct sdp_out out;
	int i;

	connect(&c, false);
	c.credits.spare = 0;
	c.credits.told = 10;
	c.credits.received = 3;
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	/* nine of ten used, and none is posted anew */
	c.credits.received = 9;
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	sdp_credits_post(&c.credits, 1);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.payload);
	KUNIT_EXPECT_EQ(test, 2, (int)out.msg.bufs);
	KUNIT_EXPECT_FALSE(test, out.solicited);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	/* half of the ring, long before the peer runs out */
	sdp_credits_post(&c.credits, 20);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 22, (int)out.msg.bufs);
	for (i = 0; i < 10; i++) {
		KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
		take_data(&c, 1, 0);
	}
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	take_data(&c, 1, 0);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 0, &out));
	/* payload that is on its way tells of them; down to one is down to one */
	sdp_credits_post(&c.credits, 22);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 0, &out));
	for (i = out.msg.bufs; i > 1; i--) {
		KUNIT_EXPECT_FALSE(test, sdp_conn_next(&c, &flows, &out));
		take_data(&c, 1, 0);
		sdp_credits_post(&c.credits, 1);
	}
	KUNIT_EXPECT_TRUE(test, sdp_conn_next(&c, &flows, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.payload);
}

/* Without credit for payload the peer is asked once, and again by a timer. */
static void starved(struct kunit *test)
{
	struct sdp_queue queue = { .octets = 5, .partial = true };
	struct sdp_conn c;
	struct sdp_out out;

	connect(&c, true);
	c.credits.clear = true;
	c.credits.limit = 3;
	KUNIT_EXPECT_FALSE(test, sdp_conn_starved(&c, &queue));
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 5, &out));
	KUNIT_EXPECT_EQ(test, 5U, out.msg.payload);
	KUNIT_EXPECT_TRUE(test, sdp_conn_starved(&c, &queue));
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 5, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.payload);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 5, &out));
	/* an answer that gives no more than that used */
	c.credits.limit = 4;
	KUNIT_EXPECT_EQ(test, -1, next(&c, 5, &out));
	sdp_conn_probe(&c);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 5, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.payload);
	sdp_conn_probe(&c);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 5, &out));
	c.credits.limit = 6;
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 5, &out));
	KUNIT_EXPECT_EQ(test, 5U, out.msg.payload);

	/* buffers to tell of, and credit in the eyes of the peer alone */
	queue.octets = 0;
	connect(&c, false);
	KUNIT_EXPECT_FALSE(test, sdp_conn_starved(&c, &queue));
	take_data(&c, 0, 0);
	c.credits.sent = 3;
	c.credits.limit = 3;
	sdp_credits_post(&c.credits, 20);
	KUNIT_EXPECT_TRUE(test, sdp_conn_starved(&c, &queue));
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	sdp_conn_probe(&c);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 0, &out));
	sdp_conn_probe(&c);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));

	/* SDP-165: the peer has said nothing, so its Bufs is all that counts */
	connect(&c, false);
	c.credits.limit = 2;
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 5, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.payload);
	sdp_conn_probe(&c);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 5, &out));
}

/* SDP-103, SDP-157: large data in pieces, small data together */
static void pieces(struct kunit *test)
{
	struct sdp_queue queue = { .octets = 483 };
	struct sdp_conn c;
	struct sdp_out out;

	connect(&c, true);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 100000, &out));
	KUNIT_EXPECT_EQ(test, 500U - 16, out.msg.payload);
	KUNIT_EXPECT_FALSE(test, sdp_conn_next(&c, &queue, &out));
	queue.octets++;
	KUNIT_EXPECT_TRUE(test, sdp_conn_next(&c, &queue, &out));
	/* a close waits for nothing more */
	queue.octets = 3;
	KUNIT_EXPECT_FALSE(test, sdp_conn_next(&c, &queue, &out));
	sdp_conn_input(&c, SDP_IN_CLOSE);
	KUNIT_EXPECT_TRUE(test, sdp_conn_next(&c, &queue, &out));
	KUNIT_EXPECT_EQ(test, 3U, out.msg.payload);
	KUNIT_EXPECT_EQ(test, SDP_MID_DISCONN, next(&c, 0, &out));
}

/* SDP-09, SDP-11, SDP-138 to SDP-142, SDP-216, SDP-226: octets out of band */
static void urgent(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;

	connect(&c, true);
	/* 70,000 octets ahead: too far to tell of it, and cut so that it can be */
	sdp_conn_oob(&c, 70000);
	c.resize.peer = 0x80000000;
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 80000, &out));
	KUNIT_EXPECT_EQ(test, 70000U - 65535, out.msg.payload);
	KUNIT_EXPECT_EQ(test, 0, (int)out.msg.flags);
	KUNIT_EXPECT_FALSE(test, out.solicited);
	/* told of, and cut behind it */
	c.resize.peer = 1016;
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 80000 - 4465, &out));
	KUNIT_EXPECT_EQ(test, 1000U, out.msg.payload);
	KUNIT_EXPECT_EQ(test, SDP_FLAG_OOB_PEND, (int)out.msg.flags);
	KUNIT_EXPECT_TRUE(test, out.solicited);
	c.resize.peer = 0x80000000;
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 80000 - 5465, &out));
	KUNIT_EXPECT_EQ(test, 70000U - 5465, out.msg.payload);
	KUNIT_EXPECT_EQ(test, SDP_FLAG_OOB_PRES, (int)out.msg.flags);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 10000, &out));
	KUNIT_EXPECT_EQ(test, 0, (int)out.msg.flags);

	/* one octet alone, and a second one that takes its place */
	sdp_conn_oob(&c, 1);
	sdp_conn_oob(&c, 2);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 2, &out));
	KUNIT_EXPECT_EQ(test, 2U, out.msg.payload);
	KUNIT_EXPECT_EQ(test, SDP_FLAG_OOB_PEND | SDP_FLAG_OOB_PRES,
			(int)out.msg.flags);

	/* SDP-141: no credit for payload, so the news goes alone */
	c.credits.clear = true;
	c.credits.limit = c.credits.sent + 2;
	c.asked = true;
	sdp_conn_oob(&c, 9);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 9, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.payload);
	KUNIT_EXPECT_EQ(test, SDP_FLAG_OOB_PEND, (int)out.msg.flags);
	c.credits.limit += 5;
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 9, &out));
	KUNIT_EXPECT_EQ(test, SDP_FLAG_OOB_PRES, (int)out.msg.flags);

	/* and at the other end */
	connect(&c, false);
	KUNIT_EXPECT_EQ(test, SDP_DO_URGENT, (int)take_data(&c, 0, 2));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER | SDP_DO_OOB,
			(int)take_data(&c, 5, 1));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER | SDP_DO_OOB | SDP_DO_URGENT,
			(int)take_data(&c, 1, 3));
	/* SDP-13: hints are none in Data */
	KUNIT_EXPECT_EQ(test, 0, (int)take_data(&c, 0, 4));
}

/* SDP-142, and what a peer may do with the flags of section 9.5.3 */
static void urgent_comes(struct kunit *test)
{
	const u64 none = ~0ULL;
	struct sdp_urgent u = {};
	const u8 a = 'a', b = 'b';

	/* told, and there: one signal */
	KUNIT_EXPECT_EQ(test, none, sdp_urgent_left(&u, 0));
	KUNIT_EXPECT_TRUE(test, sdp_urgent_pend(&u, 10, 0));
	KUNIT_EXPECT_EQ(test, SDP_URGENT_TOLD, (int)u.state);
	KUNIT_EXPECT_EQ(test, none, sdp_urgent_left(&u, 0));
	KUNIT_EXPECT_FALSE(test, sdp_urgent_take(&u, 20, NULL, 0));
	KUNIT_EXPECT_FALSE(test, sdp_urgent_take(&u, 30, &a, 0));
	KUNIT_EXPECT_EQ(test, SDP_URGENT_THERE, (int)u.state);
	KUNIT_EXPECT_EQ(test, 'a', (int)u.octet);
	KUNIT_EXPECT_EQ(test, 29ULL, sdp_urgent_left(&u, 0));
	KUNIT_EXPECT_EQ(test, 0ULL, sdp_urgent_left(&u, 29));
	sdp_urgent_read(&u, 29);
	KUNIT_EXPECT_EQ(test, SDP_URGENT_THERE, (int)u.state);
	KUNIT_EXPECT_EQ(test, none, sdp_urgent_left(&u, 30));
	sdp_urgent_read(&u, 30);
	KUNIT_EXPECT_EQ(test, SDP_URGENT_NONE, (int)u.state);

	/* the next one makes it an ordinary octet, before the mark ... */
	KUNIT_EXPECT_TRUE(test, sdp_urgent_take(&u, 40, &a, 30));
	KUNIT_EXPECT_TRUE(test, sdp_urgent_take(&u, 50, &b, 30));
	KUNIT_EXPECT_EQ(test, 0ULL, u.gone);
	KUNIT_EXPECT_EQ(test, 19ULL, sdp_urgent_left(&u, 30));
	/* ... and none at the mark, taken or not; one after the other */
	KUNIT_EXPECT_TRUE(test, sdp_urgent_pend(&u, 50, 49));
	KUNIT_EXPECT_EQ(test, 50ULL, u.gone);
	KUNIT_EXPECT_FALSE(test, sdp_urgent_take(&u, 51, &a, 49));
	u.state = SDP_URGENT_READ;
	KUNIT_EXPECT_TRUE(test, sdp_urgent_take(&u, 52, &b, 49));
	KUNIT_EXPECT_EQ(test, 51ULL, u.gone);
	sdp_urgent_read(&u, 52);

	/* told again and again: one signal, and no end is reached */
	KUNIT_EXPECT_TRUE(test, sdp_urgent_pend(&u, 100, 60));
	KUNIT_EXPECT_FALSE(test, sdp_urgent_pend(&u, 200, 60));
	KUNIT_EXPECT_FALSE(test, sdp_urgent_take(&u, 200 + SDP_OOB_AHEAD, NULL, 60));
	KUNIT_EXPECT_EQ(test, SDP_URGENT_TOLD, (int)u.state);
	KUNIT_EXPECT_FALSE(test, sdp_urgent_take(&u, 201 + SDP_OOB_AHEAD, NULL, 60));
	KUNIT_EXPECT_EQ(test, SDP_URGENT_NONE, (int)u.state);
	KUNIT_EXPECT_TRUE(test, sdp_urgent_take(&u, 90000, &a, 60));
}

/* SDP-43 to SDP-47, SDP-55, SDP-107 to SDP-111, SDP-115: read in pieces */
static void advert_read(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;
	u32 stag;
	u64 va;

	connect(&c, false);
	KUNIT_EXPECT_EQ(test, SDP_DO_ADVERT | SDP_DO_DELIVER,
			(int)take_avail(&c, 1000, 10));
	KUNIT_EXPECT_EQ(test, 600U, sdp_sink_want(&c.sink, 600, &stag, &va));
	KUNIT_EXPECT_EQ(test, 0x77U, stag);
	KUNIT_EXPECT_EQ(test, 0x1003ULL + 10, va);
	KUNIT_EXPECT_EQ(test, 390U, sdp_sink_want(&c.sink, 600, &stag, &va));
	KUNIT_EXPECT_EQ(test, 0x1003ULL + 610, va);
	KUNIT_EXPECT_EQ(test, 0U, sdp_sink_want(&c.sink, 600, &stag, &va));
	sdp_sink_read(&c.sink, 600);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	sdp_sink_read(&c.sink, 390);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 990U, out.msg.size);
	KUNIT_EXPECT_EQ(test, 0, (int)out.msg.flags);
	KUNIT_EXPECT_TRUE(test, out.solicited);
	KUNIT_EXPECT_TRUE(test, out.invalidate);
	KUNIT_EXPECT_EQ(test, 0x77U, out.stag);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));

	/* SDP-111, SDP-116: a part is reported without taking the STag away */
	take_avail(&c, 100, 1);
	sdp_sink_want(&c.sink, 9, &stag, &va);
	sdp_sink_read(&c.sink, 9);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 9U, out.msg.size);
	KUNIT_EXPECT_FALSE(test, out.invalidate);
	KUNIT_EXPECT_EQ(test, 90U, sdp_sink_want(&c.sink, 999, &stag, &va));
	KUNIT_EXPECT_EQ(test, 0x1003ULL + 10, va);
	sdp_sink_read(&c.sink, 90);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_TRUE(test, out.invalidate);
}

/* SDP-52, SDP-112, SDP-119, SDP-120, SDP-225: the rest by Data */
static void advert_refused(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;
	u32 stag;
	u64 va;

	connect(&c, false);
	take_mode(&c, SDP_MODE_PIPELINED, false);
	KUNIT_EXPECT_EQ(test, SDP_DO_ADVERT, (int)take_avail(&c, 100, 0));
	KUNIT_EXPECT_EQ(test, SDP_DO_ADVERT, (int)take_avail(&c, 50, 0));
	sdp_sink_want(&c.sink, 30, &stag, &va);
	sdp_sink_refuse(&c.sink);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	sdp_sink_read(&c.sink, 30);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	KUNIT_EXPECT_TRUE(test, out.solicited);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	/* the second one waits for what is owed */
	KUNIT_EXPECT_EQ(test, 0U, sdp_sink_want(&c.sink, 50, &stag, &va));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 69, 0));
	KUNIT_EXPECT_EQ(test, 0U, sdp_sink_want(&c.sink, 50, &stag, &va));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 1, 0));
	KUNIT_EXPECT_EQ(test, 50U, sdp_sink_want(&c.sink, 50, &stag, &va));
	/* SDP-188: nothing else passes it */
	take_data(&c, 1, 0);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_PAYLOAD, (int)c.fault);

	/* two of them: the second SendSm waits for what the first one asks for */
	connect(&c, false);
	take_mode(&c, SDP_MODE_PIPELINED, false);
	take_avail(&c, 0x80000000, 0);
	take_avail(&c, 0x80000000, 0);
	sdp_sink_refuse(&c.sink);
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	sdp_sink_refuse(&c.sink);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 0x80000000U, c.sink.owed);
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 0x7fffffff, 0));
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 1, 0));
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));

	/* all of it came with the SrcAvail: there is nothing to read */
	connect(&c, false);
	take_avail(&c, 5, 5);
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 0U, c.sink.owed);
}

/*
 * SDP-136, SDP-202: back to Combined Mode; no SinkAvail of ours crosses it, so what
 * is advertised stays, and from then on it is one at a time, with payload
 */
static void advert_of_before(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;
	u32 stag;
	u64 va;
	int i;

	connect(&c, false);
	take_mode(&c, SDP_MODE_PIPELINED, false);
	take_avail(&c, 100, 0);
	take_avail(&c, 100, 0);
	take_mode(&c, SDP_MODE_COMBINED, false);
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, 100U,
				sdp_sink_want(&c.sink, 100, &stag, &va));
		KUNIT_EXPECT_EQ(test, 0x1003ULL, va);
		sdp_sink_read(&c.sink, 100);
		KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	}
	KUNIT_EXPECT_EQ(test, SDP_DO_ADVERT | SDP_DO_DELIVER,
			(int)take_avail(&c, 100, 1));
	KUNIT_EXPECT_EQ(test, SDP_FAULT_NONE, (int)c.fault);
	take_avail(&c, 100, 1);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_ADVERTS, (int)c.fault);
}

/* SDP-143 to SDP-149, SDP-232: SrcAvailCancel */
static void advert_cancelled(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;
	u32 stag;
	u64 va;

	/* of none: not answered */
	connect(&c, false);
	KUNIT_EXPECT_EQ(test, 0, (int)take(&c, SDP_MID_SRC_AVAIL_CANCEL));
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));

	/* of one that nobody has begun with: one SendSm, which acknowledges it */
	take_avail(&c, 100, 1);
	take(&c, SDP_MID_SRC_AVAIL_CANCEL);
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 2U, out.msg.mseq_ack);
	KUNIT_EXPECT_EQ(test, 0U, c.sink.owed);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));

	/* of one that is being read: not acknowledged, no other Read */
	take_avail(&c, 100, 1);
	sdp_sink_want(&c.sink, 50, &stag, &va);
	take(&c, SDP_MID_SRC_AVAIL_CANCEL);
	KUNIT_EXPECT_EQ(test, 0U, sdp_sink_want(&c.sink, 50, &stag, &va));
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 1, &out));
	KUNIT_EXPECT_EQ(test, 3U, out.msg.mseq_ack);
	sdp_sink_read(&c.sink, 50);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 50U, out.msg.size);
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 4U, out.msg.mseq_ack);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));

	/* what was read is all there was: nothing is cancelled */
	take_avail(&c, 100, 1);
	sdp_sink_want(&c.sink, 99, &stag, &va);
	take(&c, SDP_MID_SRC_AVAIL_CANCEL);
	sdp_sink_read(&c.sink, 99);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_TRUE(test, out.invalidate);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 1, 0));

	/* SDP-148: no SrcAvail before the answer */
	take_avail(&c, 100, 1);
	take(&c, SDP_MID_SRC_AVAIL_CANCEL);
	take_avail(&c, 100, 1);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_ADVERTS, (int)c.fault);

	/* twice: what the first one has dropped is still answered, once */
	connect(&c, false);
	take_mode(&c, SDP_MODE_PIPELINED, false);
	take_avail(&c, 100, 0);
	take_avail(&c, 100, 0);
	sdp_sink_want(&c.sink, 100, &stag, &va);
	take(&c, SDP_MID_SRC_AVAIL_CANCEL);
	take(&c, SDP_MID_SRC_AVAIL_CANCEL);
	sdp_sink_read(&c.sink, 100);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
}

/* SDP-104, SDP-182 to SDP-199: what the peer may do in which mode */
static void modes(struct kunit *test)
{
	static const struct {
		const char *desc;
		u8 mode;	/* of the half, to begin with */
		u8 to;
		bool send, open, good;
	} changes[] = {
		{ "SDP-199", SDP_MODE_COMBINED, SDP_MODE_BUFFERED, false, false,
		  true },
		{ "SDP-199 before the SrcAvail is done", SDP_MODE_COMBINED,
		  SDP_MODE_BUFFERED, false, true, false },
		{ "SDP-196 the same mode", SDP_MODE_COMBINED, SDP_MODE_COMBINED,
		  false, false, false },
		{ "SDP-201", SDP_MODE_COMBINED, SDP_MODE_PIPELINED, false, false,
		  true },
		{ "SDP-201 with an open SrcAvail", SDP_MODE_COMBINED,
		  SDP_MODE_PIPELINED, false, true, true },
		{ "SDP-195 by the slave", SDP_MODE_BUFFERED, SDP_MODE_COMBINED,
		  false, false, false },
		{ "SDP-194", SDP_MODE_BUFFERED, SDP_MODE_PIPELINED, false, false,
		  false },
		{ "SDP-202", SDP_MODE_PIPELINED, SDP_MODE_COMBINED, false, false,
		  true },
		{ "SDP-194", SDP_MODE_PIPELINED, SDP_MODE_BUFFERED, false, false,
		  false },
		{ "SDP-195 our half is not Buffered", SDP_MODE_COMBINED,
		  SDP_MODE_COMBINED, true, false, false },
	};
	struct sdp_conn c;
	int i;

	for (i = 0; i < ARRAY_SIZE(changes); i++) {
		connect(&c, false);
		KUNIT_EXPECT_EQ(test, SDP_MODE_COMBINED, (int)c.sink.mode);
		KUNIT_EXPECT_EQ(test, SDP_MODE_COMBINED, (int)c.source.mode);
		if (changes[i].open)
			take_avail(&c, 100, 1);
		c.sink.mode = changes[i].mode;
		take_mode(&c, changes[i].to, changes[i].send);
		KUNIT_EXPECT_EQ_MSG(test,
				    changes[i].good ? SDP_FAULT_NONE :
						      SDP_FAULT_MODE,
				    (int)c.fault, "%s", changes[i].desc);
		KUNIT_EXPECT_EQ_MSG(test, changes[i].good ? changes[i].to :
							    changes[i].mode,
				    c.sink.mode, "%s", changes[i].desc);
		/* SDP-181 */
		KUNIT_EXPECT_EQ(test, SDP_MODE_COMBINED, (int)c.source.mode);
	}

	/* SDP-182: our half is Combined, so no SinkAvail, whatever the peer's is */
	for (i = SDP_MODE_BUFFERED; i <= SDP_MODE_PIPELINED; i++) {
		connect(&c, false);
		c.sink.mode = i;
		take(&c, SDP_MID_SINK_AVAIL);
		KUNIT_EXPECT_EQ(test, SDP_FAULT_MODE, (int)c.fault);
	}
	/* Buffered: no SrcAvail */
	connect(&c, false);
	take_mode(&c, SDP_MODE_BUFFERED, false);
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 1, 0));
	take_avail(&c, 100, 1);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_MODE, (int)c.fault);
	/* Combined: with payload, and one at a time */
	connect(&c, false);
	take_avail(&c, 100, 0);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_PAYLOAD, (int)c.fault);
	connect(&c, false);
	take_avail(&c, 100, 101);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_PAYLOAD, (int)c.fault);
	connect(&c, false);
	take_avail(&c, 100, 1);
	take_avail(&c, 100, 1);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_ADVERTS, (int)c.fault);
	/* SDP-185 */
	connect(&c, false);
	take_avail(&c, 100, 1);
	take_data(&c, 1, 0);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_PAYLOAD, (int)c.fault);
	/* Pipelined: without, and as many as we have said */
	connect(&c, false);
	take_mode(&c, SDP_MODE_PIPELINED, false);
	take_avail(&c, 100, 0);
	take_avail(&c, 100, 0);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_NONE, (int)c.fault);
	take_avail(&c, 100, 0);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_ADVERTS, (int)c.fault);
	connect(&c, false);
	take_mode(&c, SDP_MODE_PIPELINED, false);
	take_avail(&c, 100, 1);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_PAYLOAD, (int)c.fault);
}

/* SDP-168 to SDP-178, SDP-234: sizes of buffers */
static void resizes(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;

	/* less holds at once, more when it is granted */
	connect(&c, true);
	KUNIT_EXPECT_FALSE(test, sdp_resize_ask(&c.resize, 36));
	KUNIT_EXPECT_FALSE(test, sdp_resize_ask(&c.resize, 500));
	KUNIT_EXPECT_TRUE(test, sdp_resize_ask(&c.resize, 400));
	KUNIT_EXPECT_EQ(test, SDP_MID_CH_RCV_BUF, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 400U, out.msg.size);
	KUNIT_EXPECT_FALSE(test, out.solicited);
	KUNIT_EXPECT_EQ(test, 400U, c.resize.peer);
	/* SDP-177 */
	KUNIT_EXPECT_FALSE(test, sdp_resize_ask(&c.resize, 300));
	KUNIT_EXPECT_EQ(test, 0, (int)take_size(&c, SDP_MID_CH_RCV_BUF_ACK, 450));
	KUNIT_EXPECT_EQ(test, 450U, c.resize.peer);
	KUNIT_EXPECT_TRUE(test, sdp_resize_ask(&c.resize, 9000));
	next(&c, 0, &out);
	KUNIT_EXPECT_EQ(test, 450U, c.resize.peer);
	/* SDP-176: unchanged, so never again this way, but the other way */
	take_size(&c, SDP_MID_CH_RCV_BUF_ACK, 450);
	KUNIT_EXPECT_FALSE(test, sdp_resize_ask(&c.resize, 5000));
	KUNIT_EXPECT_TRUE(test, sdp_resize_ask(&c.resize, 100));
	/* SDP-172: an answer that goes the wrong way */
	next(&c, 0, &out);
	take_size(&c, SDP_MID_CH_RCV_BUF_ACK, 99);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_RESIZE, (int)c.fault);
	connect(&c, true);
	take_size(&c, SDP_MID_CH_RCV_BUF_ACK, 500);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_UNEXPECTED, (int)c.fault);

	/* SDP-173: less is answered at once, more when the small ones are used */
	connect(&c, false);
	KUNIT_EXPECT_EQ(test, SDP_DO_RESIZE,
			(int)take_size(&c, SDP_MID_CH_RCV_BUF, 16));
	KUNIT_EXPECT_EQ(test, 37U, c.resize.wish);
	KUNIT_EXPECT_EQ(test, 600U, sdp_resize_answer(&c.resize, 600, 10));
	KUNIT_EXPECT_EQ(test, SDP_MID_CH_RCV_BUF_ACK, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 600U, out.msg.size);
	take_size(&c, SDP_MID_CH_RCV_BUF, 5000);
	KUNIT_EXPECT_EQ(test, 5000U, sdp_resize_answer(&c.resize, 5000, 4));
	KUNIT_EXPECT_EQ(test, 600U, c.resize.own);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	take_data(&c, 0, 0);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	take_data(&c, 0, 0);
	KUNIT_EXPECT_EQ(test, SDP_MID_CH_RCV_BUF_ACK, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, 5000U, out.msg.size);
	/* SDP-174: it cannot be done */
	take_size(&c, SDP_MID_CH_RCV_BUF, 90000);
	KUNIT_EXPECT_EQ(test, 5000U, sdp_resize_answer(&c.resize, 100, 4));
	take_size(&c, SDP_MID_CH_RCV_BUF, 90000);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_RESIZE, (int)c.fault);

	/* SDP-178: crossing; the acceptor's request stands */
	connect(&c, false);
	sdp_resize_ask(&c.resize, 9000);
	next(&c, 0, &out);
	KUNIT_EXPECT_EQ(test, 0, (int)take_size(&c, SDP_MID_CH_RCV_BUF, 3000));
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	take_size(&c, SDP_MID_CH_RCV_BUF_ACK, 9000);
	KUNIT_EXPECT_EQ(test, 9000U, c.resize.peer);
	connect(&c, true);
	sdp_resize_ask(&c.resize, 9000);
	next(&c, 0, &out);
	KUNIT_EXPECT_EQ(test, SDP_DO_RESIZE,
			(int)take_size(&c, SDP_MID_CH_RCV_BUF, 3000));
	sdp_resize_answer(&c.resize, 3000, 0);
	KUNIT_EXPECT_EQ(test, SDP_MID_CH_RCV_BUF_ACK, next(&c, 0, &out));
	KUNIT_EXPECT_TRUE(test, sdp_resize_ask(&c.resize, 9000));
}

static const char letters[] = "OCHPQLWFAX-";

/* Where each input leads from each state, in the order of close.h */
static const struct {
	const char *desc;
	enum sdp_input input;
	const char *to;
} cells[] = {
	{ "SDP-82 close", SDP_IN_CLOSE, "C--Q------" },
	{ "SDP-93, SDP-94 abort", SDP_IN_ABORT, "XXAXXAAX--" },
	{ "SDP-85 DisConn is out", SDP_IN_SAID, "-H--L-----" },
	{ "SDP-92 and has completed", SDP_IN_SAID_DONE, "--H--FWFA-" },
	{ "SDP-224 or failed", SDP_IN_SAID_FAILED, "--X--XXXX-" },
	{ "SDP-98 AbortConn has completed", SDP_IN_ABORT_DONE, "--------X-" },
	{ "SDP-90 DisConn", SDP_IN_DISCONN, "PQW-----A-" },
	{ "SDP-92 DisConn, crossing ours", SDP_IN_DISCONN_CROSSED,
	  "--F-----A-" },
	{ "SDP-41, SDP-95 AbortConn", SDP_IN_ABORTCONN, "---XXXXXA-" },
	{ "SDP-88 TCP is down", SDP_IN_LLP_DOWN, "XXXXXXXXX-" },
	{ "the time of grace is over", SDP_IN_GRACE, "------F---" },
};

static void every_close(struct kunit *test)
{
	int i, from;

	KUNIT_EXPECT_EQ(test, SDP_INPUTS, (int)ARRAY_SIZE(cells));
	for (i = 0; i < ARRAY_SIZE(cells); i++) {
		KUNIT_EXPECT_EQ(test, i, (int)cells[i].input);
		for (from = 0; from < SDP_STATES; from++)
			KUNIT_EXPECT_EQ_MSG(test, cells[i].to[from],
					    letters[sdp_close_next(from, i).state],
					    "%s, from %c", cells[i].desc,
					    letters[from]);
	}
}

/* What holds whatever the table says */
static void close_rules(struct kunit *test)
{
	int from, input;

	for (from = 0; from < SDP_STATES; from++) {
		for (input = 0; input < SDP_INPUTS; input++) {
			struct sdp_next n = sdp_close_next(from, input);

			if (n.state == SDP_STATE_NO)
				KUNIT_EXPECT_EQ(test, 0, (int)n.actions);
			/* nothing comes back from the end */
			if (from == SDP_CLOSED)
				KUNIT_EXPECT_EQ(test, SDP_STATE_NO, (int)n.state);
			/* SDP-94: AbortConn only behind our DisConn */
			if (n.actions & SDP_DO_ABORTCONN)
				KUNIT_EXPECT_TRUE(test, from == SDP_HALF ||
						  from == SDP_LAST ||
						  from == SDP_WAIT);
			/* SDP-88: TCP's end is an error before the peer's DisConn */
			if (input == SDP_IN_LLP_DOWN && from <= SDP_HALF)
				KUNIT_EXPECT_TRUE(test, n.actions & SDP_DO_FAIL);
			if (input == SDP_IN_LLP_DOWN && from == SDP_WAIT)
				KUNIT_EXPECT_EQ(test, 0, (int)n.actions);
			/* TCP ends in one of three ways */
			if (n.state == SDP_CLOSED && from != SDP_FINISH &&
			    input != SDP_IN_LLP_DOWN)
				KUNIT_EXPECT_TRUE(test, n.actions &
						  (SDP_DO_RESET | SDP_DO_FIN));
		}
	}
}

/* SDP-81 to SDP-98: both ends close, one after the other */
static void closes(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;

	connect(&c, true);
	KUNIT_EXPECT_TRUE(test, sdp_conn_sends(&c));
	sdp_conn_input(&c, SDP_IN_CLOSE);
	KUNIT_EXPECT_FALSE(test, sdp_conn_sends(&c));
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 7, &out));
	KUNIT_EXPECT_EQ(test, SDP_MID_DISCONN, next(&c, 0, &out));
	KUNIT_EXPECT_FALSE(test, out.solicited);
	KUNIT_EXPECT_EQ(test, SDP_HALF, (int)c.state);
	/* SDP-83, SDP-86 */
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER | SDP_DO_ADVERT,
			(int)take_avail(&c, 100, 1));
	sdp_sink_refuse(&c.sink);
	KUNIT_EXPECT_EQ(test, SDP_MID_SEND_SM, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 99, 0));
	KUNIT_EXPECT_EQ(test, SDP_DO_EOF | SDP_DO_GRACE,
			(int)take(&c, SDP_MID_DISCONN));
	KUNIT_EXPECT_EQ(test, 0, (int)sdp_conn_input(&c, SDP_IN_LLP_DOWN));
	KUNIT_EXPECT_EQ(test, SDP_CLOSED, (int)c.state);

	/* the second one; its close of TCP waits for the DisConn */
	connect(&c, false);
	KUNIT_EXPECT_EQ(test, SDP_DO_EOF, (int)take(&c, SDP_MID_DISCONN));
	KUNIT_EXPECT_FALSE(test, sdp_conn_receives(&c));
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 7, &out));
	sdp_conn_input(&c, SDP_IN_CLOSE);
	KUNIT_EXPECT_EQ(test, SDP_MID_DISCONN, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_DO_FIN,
			(int)sdp_conn_input(&c, SDP_IN_SAID_DONE));

	/* SDP-85: data behind a DisConn */
	connect(&c, false);
	take(&c, SDP_MID_DISCONN);
	KUNIT_EXPECT_EQ(test, SDP_DO_RESET | SDP_DO_FAIL,
			(int)take_data(&c, 1, 0));
	KUNIT_EXPECT_EQ(test, SDP_FAULT_PAYLOAD, (int)c.fault);
	/* SDP-84: a DisConn before what was advertised is done */
	connect(&c, false);
	take_avail(&c, 100, 1);
	take(&c, SDP_MID_DISCONN);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_UNFINISHED, (int)c.fault);
	/* SDP-41: AbortConn without DisConn */
	connect(&c, false);
	take(&c, SDP_MID_ABORT_CONN);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_UNEXPECTED, (int)c.fault);
	/* SDP-95 */
	connect(&c, false);
	take(&c, SDP_MID_DISCONN);
	KUNIT_EXPECT_EQ(test, SDP_DO_FIN | SDP_DO_FAIL,
			(int)take(&c, SDP_MID_ABORT_CONN));

	/* SDP-93: an abort behind our DisConn, with and without credit */
	connect(&c, true);
	sdp_conn_input(&c, SDP_IN_CLOSE);
	next(&c, 0, &out);
	KUNIT_EXPECT_EQ(test, 0, (int)sdp_conn_input(&c, SDP_IN_ABORT));
	KUNIT_EXPECT_EQ(test, SDP_MID_ABORT_CONN, next(&c, 0, &out));
	KUNIT_EXPECT_TRUE(test, out.solicited);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
	KUNIT_EXPECT_EQ(test, SDP_DO_FIN,
			(int)sdp_conn_input(&c, SDP_IN_ABORT_DONE));
	connect(&c, true);
	sdp_conn_input(&c, SDP_IN_CLOSE);
	next(&c, 0, &out);
	c.credits.limit = c.credits.sent;
	KUNIT_EXPECT_EQ(test, SDP_DO_RESET,
			(int)sdp_conn_input(&c, SDP_IN_ABORT));
	KUNIT_EXPECT_EQ(test, -1, next(&c, 0, &out));
}

/* SDP-206, SDP-209: SuspComm; what was read is known before all is silent */
static void suspends(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;
	struct sdp_msg msg;
	u32 stag;
	u64 va;

	connect(&c, true);
	take_avail(&c, 100, 1);
	sdp_sink_want(&c.sink, 50, &stag, &va);
	msg = from_peer(&c, SDP_MID_SUSP_COMM);
	msg.port = 4711;
	KUNIT_EXPECT_EQ(test, SDP_DO_SUSPEND, (int)sdp_conn_take(&c, &msg, false));
	KUNIT_EXPECT_EQ(test, 4711, (int)c.suspend_port);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 9, &out));
	KUNIT_EXPECT_EQ(test, 0U, sdp_sink_want(&c.sink, 50, &stag, &va));
	sdp_sink_read(&c.sink, 50);
	KUNIT_EXPECT_EQ(test, SDP_MID_RDMA_RD_COMPL, next(&c, 9, &out));
	KUNIT_EXPECT_EQ(test, SDP_MID_SUSP_COMM_ACK, next(&c, 9, &out));
	KUNIT_EXPECT_TRUE(test, out.solicited);
	KUNIT_EXPECT_EQ(test, -1, next(&c, 9, &out));
	/* SDP-208: nor does the peer say anything */
	connect(&c, true);
	msg = from_peer(&c, SDP_MID_SUSP_COMM);
	msg.port = 4711;
	sdp_conn_take(&c, &msg, false);
	take_data(&c, 0, 0);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_UNEXPECTED, (int)c.fault);
	/* to no port nobody can connect */
	connect(&c, true);
	take(&c, SDP_MID_SUSP_COMM);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_MALFORMED, (int)c.fault);
}

static void move(struct sdp_conn *c)
{
	struct sdp_terms terms = { .bufs = 5, .max_adverts = 1,
				   .rcv_size = 700, .ird = 1, .ord = 1 };
	struct sdp_msg msg = from_peer(c, SDP_MID_SUSP_COMM);
	struct sdp_out out;

	msg.port = 4711;
	sdp_conn_take(c, &msg, false);
	while (next(c, 0, &out) != -1)
		;
	sdp_conn_resume(c, &offer, &terms);
}

/* SDP-212, SDP-235: numbers begin again, and what was said of the stream holds */
static void resumes(struct kunit *test)
{
	struct sdp_conn c;
	struct sdp_out out;

	connect(&c, false);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 30, &out));
	take_data(&c, 10, 0);
	take_avail(&c, 100, 1);
	sdp_sink_refuse(&c.sink);
	sdp_conn_oob(&c, 9);
	move(&c);
	KUNIT_EXPECT_TRUE(test, c.connector);
	KUNIT_EXPECT_EQ(test, SDP_OPEN, (int)c.state);
	KUNIT_EXPECT_EQ(test, 30ULL, c.source.sent);
	KUNIT_EXPECT_EQ(test, SDP_MODE_COMBINED, (int)c.sink.mode);
	KUNIT_EXPECT_EQ(test, 0U, c.sink.owed + c.sink.count);
	KUNIT_EXPECT_EQ(test, 700U, c.resize.peer);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 9, &out));
	KUNIT_EXPECT_EQ(test, 0U, out.msg.mseq + out.msg.mseq_ack);
	/* the ninth octet is still to go out of band */
	KUNIT_EXPECT_TRUE(test, out.msg.flags & SDP_FLAG_OOB_PRES);
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 10, 0));

	/* what waits goes first, and then the DisConn that is due */
	connect(&c, false);
	sdp_conn_input(&c, SDP_IN_CLOSE);
	c.credits.limit = c.credits.sent + 1;
	move(&c);
	KUNIT_EXPECT_EQ(test, SDP_MID_DATA, next(&c, 9, &out));
	KUNIT_EXPECT_EQ(test, SDP_MID_DISCONN, next(&c, 0, &out));

	/* the peer has had ours, though this carrier has not: nothing crosses */
	connect(&c, false);
	sdp_conn_input(&c, SDP_IN_CLOSE);
	KUNIT_EXPECT_EQ(test, SDP_MID_DISCONN, next(&c, 0, &out));
	move(&c);
	KUNIT_EXPECT_EQ(test, SDP_HALF, (int)c.state);
	KUNIT_EXPECT_EQ(test, SDP_DO_DELIVER, (int)take_data(&c, 10, 0));
	take(&c, SDP_MID_DISCONN);
	KUNIT_EXPECT_EQ(test, SDP_WAIT, (int)c.state);
}

/* Answers to what was not said, and what else ends a connection */
static void faults(struct kunit *test)
{
	static const u8 unexpected[] = {
		SDP_MID_HELLO, SDP_MID_HELLO_ACK, SDP_MID_SEND_SM,
		SDP_MID_RDMA_WR_COMPL, SDP_MID_RDMA_RD_COMPL,
		SDP_MID_SINK_CANCEL_ACK, SDP_MID_SUSP_COMM_ACK,
	};
	struct sdp_conn c;
	struct sdp_msg msg;
	int i;

	for (i = 0; i < ARRAY_SIZE(unexpected); i++) {
		connect(&c, false);
		KUNIT_EXPECT_EQ_MSG(test, SDP_DO_RESET | SDP_DO_FAIL,
				    (int)take(&c, unexpected[i]), "MID %u",
				    unexpected[i]);
		KUNIT_EXPECT_EQ(test, SDP_FAULT_UNEXPECTED, (int)c.fault);
		KUNIT_EXPECT_EQ(test, SDP_CLOSED, (int)c.state);
		/* and nothing more is said or heard */
		KUNIT_EXPECT_EQ(test, 0, (int)take_data(&c, 1, 0));
	}
	/* SDP-150: a cancel may cross what it cancels */
	connect(&c, false);
	KUNIT_EXPECT_EQ(test, 0, (int)take(&c, SDP_MID_SINK_AVAIL_CANCEL));
	take(&c, SDP_MID_SINK_AVAIL);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_MODE, (int)c.fault);
	/* SDP-159 */
	connect(&c, false);
	msg = from_peer(&c, SDP_MID_DATA);
	msg.mseq++;
	sdp_conn_take(&c, &msg, false);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_MSEQ, (int)c.fault);
	connect(&c, false);
	msg = from_peer(&c, SDP_MID_DATA);
	msg.mseq_ack = 1;
	sdp_conn_take(&c, &msg, false);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_ACK, (int)c.fault);
	/* SDP-117, SDP-125: nothing of ours is advertised */
	connect(&c, false);
	msg = from_peer(&c, SDP_MID_DATA);
	sdp_conn_take(&c, &msg, true);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_INVALIDATE, (int)c.fault);
	/* more messages than buffers */
	connect(&c, false);
	for (i = 0; i < 10; i++)
		take(&c, SDP_MID_DATA);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_NONE, (int)c.fault);
	take(&c, SDP_MID_DATA);
	KUNIT_EXPECT_EQ(test, SDP_FAULT_OVERRUN, (int)c.fault);
}

/* Short waits make a process watch; each that watches in vain needs more of them. */
static void spins(struct kunit *test)
{
	struct sdp_spin s = {};
	int need, i, round;

	for (round = 0; round < 9; round++) {
		need = min(1 << round, SDP_SPIN_NEED_MAX);
		for (i = 0; i < need; i++) {
			KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
			sdp_spin_slept(&s, false, true);
		}
		/* more of them change nothing */
		for (i = 0; i < 300; i++)
			sdp_spin_slept(&s, false, true);
		KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
		sdp_spin_slept(&s, true, false);
	}
	/* one long wait, and they are counted again */
	for (i = 0; i < SDP_SPIN_NEED_MAX - 1; i++)
		sdp_spin_slept(&s, false, true);
	sdp_spin_slept(&s, false, false);
	for (i = 0; i < SDP_SPIN_NEED_MAX; i++) {
		KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
		sdp_spin_slept(&s, false, true);
	}
	KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
	/* a success leaves it as it is, and some make up for a failure */
	for (round = 6; round; round--) {
		KUNIT_EXPECT_EQ(test, s.doubled, round);
		for (i = 0; i < SDP_SPIN_PRICE; i++) {
			KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
			sdp_spin_hit(&s);
		}
	}
	KUNIT_EXPECT_EQ(test, s.doubled, 0);
	sdp_spin_slept(&s, true, false);
	KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
	sdp_spin_slept(&s, false, true);
	sdp_spin_slept(&s, false, true);
	KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
	/* successes that a failure interrupts do not */
	for (round = 0; round < 3; round++) {
		for (i = 0; i < SDP_SPIN_PRICE - 1; i++)
			sdp_spin_hit(&s);
		sdp_spin_slept(&s, true, false);
	}
	KUNIT_EXPECT_EQ(test, s.doubled, 4);
}

/* Octets per round trip, counted from one time that the peer asks to the next */
static void flows(struct kunit *test)
{
	struct sdp_flow f = {};
	u64 total = 0, us = 77;

	/* nothing to compare it with */
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1 << 20, us, 1000, 1));
	/* 1000 octets in 5 ms, of which a round trip takes one */
	KUNIT_EXPECT_TRUE(test, sdp_flow_asked(&f, total += 1000, us += 5000, 1000, 200));
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1000, us += 5000, 1000, 201));
	/* asked again at once, with nothing in between */
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total, us, 1000, 0));
	/* within a microsecond */
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1000, us, 20, 1 << 19));
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1000, us, 0, 1));
	/* a peer nearby, and one of which that is not known */
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1 << 20, us += 1000, 20, 1 << 19));
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1 << 20, us += 1000, 0, 1));
	/* the largest numbers that are compared, and those that are not */
	KUNIT_EXPECT_TRUE(test, sdp_flow_asked(&f, total += U32_MAX, us += U32_MAX, U32_MAX,
					       U32_MAX));
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += U32_MAX, us += U32_MAX, U32_MAX - 1,
						U32_MAX));
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1ULL << 32, us += 1, U32_MAX, 1));
	KUNIT_EXPECT_FALSE(test, sdp_flow_asked(&f, total += 1000, us += 1ULL << 32, U32_MAX, 1));
}

/* A new connection asks for two short waits, and after successes for one. */
static void spins_on_a_new_one(struct kunit *test)
{
	struct sdp_spin s;
	int i;

	sdp_spin_init(&s);
	sdp_spin_slept(&s, false, true);
	KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
	sdp_spin_slept(&s, false, true);
	KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
	for (i = 0; i < SDP_SPIN_PRICE; i++)
		sdp_spin_hit(&s);
	sdp_spin_slept(&s, false, false);
	KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
	sdp_spin_slept(&s, false, true);
	KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
}

/* However well it goes, it sleeps now and then, and then goes on. */
static void spins_and_measures(struct kunit *test)
{
	struct sdp_spin s = {};
	int i;

	sdp_spin_slept(&s, false, true);
	for (i = 0; i < SDP_SPIN_RUN; i++) {
		KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
		sdp_spin_hit(&s);
	}
	KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
	sdp_spin_slept(&s, false, true);
	KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
	for (i = 0; i < SDP_SPIN_RUN + 300; i++)
		sdp_spin_hit(&s);
	KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
	/* it finds that waits have become long */
	sdp_spin_slept(&s, false, false);
	KUNIT_EXPECT_FALSE(test, sdp_spin_due(&s));
	sdp_spin_slept(&s, false, true);
	KUNIT_EXPECT_TRUE(test, sdp_spin_due(&s));
}

/* What brings no octets does not prolong a watch. */
static void watch_ends(struct kunit *test)
{
	struct sdp_watch w = {};

	sdp_watch(&w, 1000, 500);
	KUNIT_EXPECT_EQ(test, w.until, 1500ULL);
	sdp_watch(&w, 1499, 500);
	KUNIT_EXPECT_EQ(test, w.until, 1500ULL);
	w.until = 0;
	sdp_watch(&w, 1600, 500);
	KUNIT_EXPECT_EQ(test, w.until, 2100ULL);
}

/* What a short wait is follows from the wake-ups, within the user's limit. */
static void spins_as_long_as_it_pays(struct kunit *test)
{
	struct sdp_spin s = {};
	int i;

	KUNIT_EXPECT_EQ(test, sdp_spin_limit(&s, 500000), 0U);
	sdp_spin_woken(&s, 5000, 500000);
	KUNIT_EXPECT_EQ(test, sdp_spin_limit(&s, 500000), 120000U);
	KUNIT_EXPECT_EQ(test, sdp_spin_limit(&s, 20000), 20000U);
	KUNIT_EXPECT_EQ(test, sdp_spin_limit(&s, 0), 0U);
	/* one that took a second counts as one at the limit, and little */
	sdp_spin_woken(&s, NSEC_PER_SEC, 500000);
	KUNIT_EXPECT_EQ(test, s.wake, 5000U + (500000 / 24 - 5000) / 16);
	/* but many do */
	for (i = 0; i < 200; i++)
		sdp_spin_woken(&s, U64_MAX, 500000);
	KUNIT_EXPECT_GT(test, sdp_spin_limit(&s, 500000), 490000U);
	KUNIT_EXPECT_LE(test, sdp_spin_limit(&s, 500000), 500000U);
	/* fewer that are short show what it takes */
	for (i = 0; i < 40; i++)
		sdp_spin_woken(&s, 5000, 500000);
	KUNIT_EXPECT_GE(test, sdp_spin_limit(&s, 500000), 120000U);
	KUNIT_EXPECT_LE(test, sdp_spin_limit(&s, 500000), 120100U);
	/* no limit that the user may set is too large for 32 bits */
	sdp_spin_woken(&s, U64_MAX, NSEC_PER_SEC);
	KUNIT_EXPECT_LE(test, sdp_spin_limit(&s, NSEC_PER_SEC), 1U * NSEC_PER_SEC);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(hello),
	KUNIT_CASE(hello_made),
	KUNIT_CASE(credits),
	KUNIT_CASE(credit_of_message_0),
	KUNIT_CASE(numbers),
	KUNIT_CASE(most_buffers),
	KUNIT_CASE(numbers_wrap),
	KUNIT_CASE(updates),
	KUNIT_CASE(starved),
	KUNIT_CASE(pieces),
	KUNIT_CASE(urgent),
	KUNIT_CASE(urgent_comes),
	KUNIT_CASE(advert_read),
	KUNIT_CASE(advert_refused),
	KUNIT_CASE(advert_of_before),
	KUNIT_CASE(advert_cancelled),
	KUNIT_CASE(modes),
	KUNIT_CASE(resizes),
	KUNIT_CASE(every_close),
	KUNIT_CASE(close_rules),
	KUNIT_CASE(closes),
	KUNIT_CASE(suspends),
	KUNIT_CASE(resumes),
	KUNIT_CASE(faults),
	KUNIT_CASE(spins),
	KUNIT_CASE(flows),
	KUNIT_CASE(spins_as_long_as_it_pays),
	KUNIT_CASE(spins_on_a_new_one),
	KUNIT_CASE(spins_and_measures),
	KUNIT_CASE(watch_ends),
	{}
};

static struct kunit_suite suite = {
	.name = "sdp_conn",
	.test_cases = cases,
};

kunit_test_suite(suite);
