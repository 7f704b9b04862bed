// SPDX-License-Identifier: GPL-2.0
/*
 * SDP messages and those of the port mapper against octets written down from
 * draft-pinkerton-iwarp-sdp-01 sections 6 and 7.  Case names carry requirement ids.
 */
#include <kunit/test.h>

#include "proto/sdp/portmap.h"
#include "proto/sdp/wire.h"

/* One message in both layouts */
struct vector {
	const char *desc;
	struct sdp_msg msg;
	u32 len;
	u8 draft[SDP_HDR_MAX];
	u8 ib[SDP_HDR_MAX];
};

static const struct vector vectors[] = {
	{ "SDP-22, SDP-23 Hello",
	  { .mid = 0x00, .bufs = 0x0102,
	    .hello = { .max_adverts = 0x1112, .major = 1, .minor = 1,
		       .des_rem_rcv_size = 0x21222324, .rcv_size = 0x31323334,
		       .ird = 0x4142, .ord = 0x5152 } }, 32,
	  { 0x01, 0x02, 0, 0x00, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x11, 0x12, 0, 0x11, 0x21, 0x22, 0x23, 0x24,
	    0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x51, 0x52 },
	  { 0x00, 0, 0x01, 0x02, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x11, 0, 0x11, 0x12, 0x21, 0x22, 0x23, 0x24,
	    0x31, 0x32, 0x33, 0x34, 0x51, 0x52, 0x41, 0x42 } },
	{ "SDP-32, SDP-33 HelloAck",
	  { .mid = 0x01, .bufs = 3,
	    .hello = { .max_adverts = 7, .major = 1, .minor = 2,
		       .rcv_size = 0x80000000, .ird = 5, .ord = 6 } }, 28,
	  { 0, 3, 0, 0x01, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0,
	    0, 7, 0, 0x21, 0x80, 0, 0, 0, 0, 5, 0, 6 },
	  { 0x01, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x12, 0, 0, 7, 0x80, 0, 0, 0, 0, 6, 0, 5 } },
	{ "SDP-39 DisConn, SDP-19, SDP-20 sequence numbers",
	  { .mid = 0x02, .bufs = 0xfffe, .flags = 0x02, .mseq = 0xfffffffe,
	    .mseq_ack = 0x01020304 }, 16,
	  { 0xff, 0xfe, 0x02, 0x02, 0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfe,
	    1, 2, 3, 4 },
	  { 0x02, 0x02, 0xff, 0xfe, 0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfe,
	    1, 2, 3, 4 } },
	{ "SDP-40 AbortConn", { .mid = 0x03 }, 16,
	  { 0, 0, 0, 0x03, 0, 0, 0, 16 }, { 0x03, 0, 0, 0, 0, 0, 0, 16 } },
	{ "SDP-52 SendSm", { .mid = 0x04 }, 16,
	  { 0, 0, 0, 0x04, 0, 0, 0, 16 }, { 0x04, 0, 0, 0, 0, 0, 0, 16 } },
	{ "SDP-53, SDP-54 RdmaWrCompl",
	  { .mid = 0x05, .flags = 0x04, .size = 0x61626364 }, 20,
	  { 0, 0, 0x04, 0x05, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x61, 0x62, 0x63, 0x64 },
	  { 0x05, 0x04, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x61, 0x62, 0x63, 0x64 } },
	{ "SDP-55 RdmaRdCompl", { .mid = 0x06, .size = 1 }, 20,
	  { 0, 0, 0, 0x06, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
	  { 0x06, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 } },
	{ "SDP-57 ModeChange, Combined, the receiver sends",
	  { .mid = 0x07, .mode = { .mode = 1, .send = true } }, 20,
	  { 0, 0, 0, 0x07, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03 },
	  { 0x07, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0x90 } },
	{ "SDP-57 ModeChange, Pipelined, the receiver receives",
	  { .mid = 0x07, .mode = { .mode = 2 } }, 20,
	  { 0, 0, 0, 0x07, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x04 },
	  { 0x07, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0x20 } },
	{ "SDP-59 SrcAvailCancel", { .mid = 0x08 }, 16,
	  { 0, 0, 0, 0x08, 0, 0, 0, 16 }, { 0x08, 0, 0, 0, 0, 0, 0, 16 } },
	{ "SDP-59 SinkAvailCancel", { .mid = 0x09 }, 16,
	  { 0, 0, 0, 0x09, 0, 0, 0, 16 }, { 0x09, 0, 0, 0, 0, 0, 0, 16 } },
	{ "SDP-59 SinkCancelAck", { .mid = 0x0a }, 16,
	  { 0, 0, 0, 0x0a, 0, 0, 0, 16 }, { 0x0a, 0, 0, 0, 0, 0, 0, 16 } },
	{ "SDP-61 ChRcvBuf", { .mid = 0x0b, .size = 0x10000 }, 20,
	  { 0, 0, 0, 0x0b, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 },
	  { 0x0b, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 } },
	{ "SDP-62 ChRcvBufAck", { .mid = 0x0c, .size = 37 }, 20,
	  { 0, 0, 0, 0x0c, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 37 },
	  { 0x0c, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 37 } },
	{ "SDP-63 SuspComm", { .mid = 0x0d, .port = 0x1a2b }, 24,
	  { 0, 0, 0, 0x0d, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x1a, 0x2b, 0, 1 },
	  { 0x0d, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	    0, 1, 0x1a, 0x2b } },
	{ "SDP-64 SuspCommAck", { .mid = 0x0e }, 16,
	  { 0, 0, 0, 0x0e, 0, 0, 0, 16 }, { 0x0e, 0, 0, 0, 0, 0, 0, 16 } },
	{ "SDP-48 SinkAvail with data",
	  { .mid = 0xfd, .payload = 100,
	    .avail = { .len = 0x80000000, .stag = 0x71727374,
		       .va = 0x8182838485868788ULL,
		       .non_discards = 0x91929394 } }, 36,
	  { 0, 0, 0, 0xfd, 0, 0, 0, 136, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x80, 0, 0, 0, 0x71, 0x72, 0x73, 0x74, 0x81, 0x82, 0x83, 0x84,
	    0x85, 0x86, 0x87, 0x88, 0x91, 0x92, 0x93, 0x94 },
	  { 0xfd, 0, 0, 0, 0, 0, 0, 136, 0, 0, 0, 0, 0, 0, 0, 0,
	    0x80, 0, 0, 0, 0x71, 0x72, 0x73, 0x74, 0x81, 0x82, 0x83, 0x84,
	    0x85, 0x86, 0x87, 0x88, 0x91, 0x92, 0x93, 0x94 } },
	{ "SDP-43 SrcAvail",
	  { .mid = 0xfe, .avail = { .len = 1, .stag = 2, .va = 3 } }, 32,
	  { 0, 0, 0, 0xfe, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0,
	    0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3 },
	  { 0xfe, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0,
	    0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3 } },
	{ "SDP-42 Data, empty", { .mid = 0xff, .bufs = 9 }, 16,
	  { 0, 9, 0, 0xff, 0, 0, 0, 16 }, { 0xff, 0, 0, 9, 0, 0, 0, 16 } },
	{ "SDP-09 Data, with an urgent octet",
	  { .mid = 0xff, .flags = 0x01, .payload = 0x10000 }, 16,
	  { 0, 0, 0x01, 0xff, 0, 1, 0, 16 }, { 0xff, 0x01, 0, 0, 0, 1, 0, 16 } },
};

static void encodes_and_decodes(struct kunit *test)
{
	enum sdp_layout layout;
	int i;

	for (i = 0; i < ARRAY_SIZE(vectors) * 2; i++) {
		const struct vector *v = &vectors[i / 2];
		const u8 *want = i % 2 ? v->ib : v->draft;
		u8 buf[SDP_HDR_MAX + 1];
		struct sdp_msg msg;

		layout = i % 2 ? SDP_LAYOUT_IB : SDP_LAYOUT_DRAFT;
		memset(buf, 0xee, sizeof(buf));
		KUNIT_EXPECT_EQ_MSG(test, v->len,
				    sdp_encode(layout, &v->msg, buf), "%s",
				    v->desc);
		KUNIT_EXPECT_MEMEQ_MSG(test, want, buf, v->len, "%s, layout %d",
				       v->desc, layout);
		KUNIT_EXPECT_EQ_MSG(test, 0xee, (int)buf[v->len], "%s", v->desc);
		KUNIT_EXPECT_EQ_MSG(test, SDP_OK,
				    sdp_decode(layout, want,
					       v->len + v->msg.payload, &msg),
				    "%s, layout %d", v->desc, layout);
		/* unused members of the union are zero in both */
		KUNIT_EXPECT_EQ(test, v->msg.mid, msg.mid);
		KUNIT_EXPECT_EQ(test, v->msg.flags, msg.flags);
		KUNIT_EXPECT_EQ(test, v->msg.bufs, msg.bufs);
		KUNIT_EXPECT_EQ(test, v->msg.mseq, msg.mseq);
		KUNIT_EXPECT_EQ(test, v->msg.mseq_ack, msg.mseq_ack);
		KUNIT_EXPECT_EQ(test, v->msg.payload, msg.payload);
		KUNIT_EXPECT_EQ(test, v->msg.avail.len, msg.avail.len);
		KUNIT_EXPECT_EQ(test, v->msg.avail.stag, msg.avail.stag);
		KUNIT_EXPECT_EQ(test, v->msg.avail.va, msg.avail.va);
		KUNIT_EXPECT_EQ(test, v->msg.avail.non_discards,
				msg.avail.non_discards);
	}
}

/* SDP-05, SDP-06, SDP-07, SDP-18: every MID with every length up to 40 */
static void lengths(struct kunit *test)
{
	static const u8 headers[] = { 32, 28, 16, 16, 16, 20, 20, 20, 16, 16, 16,
				      20, 20, 24, 16 };
	u32 mid, len;

	for (mid = 0; mid < 256; mid++) {
		u32 header = mid < ARRAY_SIZE(headers) ? headers[mid] :
			     mid == 0xfd ? 36 : mid == 0xfe ? 32 :
			     mid == 0xff ? 16 : 0;
		bool payload = mid >= 0xfd;

		for (len = 0; len <= 40; len++) {
			u8 buf[SDP_HDR_MAX] = { 0, 3, 0, mid, 0, 0, 0, len };
			enum sdp_violation want = SDP_OK, got;
			struct sdp_msg msg;

			/* what the extended headers of some must have */
			if (mid == 0xfd || mid == 0xfe)
				buf[19] = 1;
			if (mid == SDP_MID_SUSP_COMM)
				buf[23] = 1;
			if (len < 16)
				want = SDP_BAD_LENGTH;
			else if (!header)
				want = SDP_BAD_MID;
			else if (len < header)
				want = SDP_BAD_LENGTH;
			else if (len > header && !payload)
				want = SDP_BAD_PAYLOAD;
			got = sdp_decode(SDP_LAYOUT_DRAFT, buf, len, &msg);
			KUNIT_EXPECT_EQ_MSG(test, want, got, "mid %u, %u octets",
					    mid, len);
			if (len >= 16) {
				buf[7]++;
				got = sdp_decode(SDP_LAYOUT_DRAFT, buf, len,
						 &msg);
				KUNIT_EXPECT_EQ(test, SDP_BAD_LENGTH, got);
			}
		}
	}
}

static void fields(struct kunit *test)
{
	static const struct {
		const char *desc;
		u8 buf[SDP_HDR_MAX];
		u32 len;
		enum sdp_violation want;
	} cases[] = {
		{ "SDP-08 reserved flags",
		  { 0, 0, 0xf8, 0xff, 0, 0, 0, 16 }, 16, SDP_OK },
		{ "SDP-09 OOB_PRES without an octet",
		  { 0, 0, 0x01, 0xff, 0, 0, 0, 16 }, 16, SDP_BAD_OOB },
		{ "SDP-44 SrcAH.Len 0",
		  { 0, 0, 0, 0xfe, 0, 0, 0, 32 }, 32, SDP_BAD_SIZE },
		{ "SDP-44 SrcAH.Len 2^31 + 1",
		  { 0, 0, 0, 0xfe, 0, 0, 0, 32, [16] = 0x80, [19] = 1 }, 32,
		  SDP_BAD_SIZE },
		{ "SDP-49 SinkAH.Len 2^31",
		  { 0, 0, 0, 0xfd, 0, 0, 0, 36, [16] = 0x80 }, 36, SDP_OK },
		{ "SDP-49 SinkAH.Len 0",
		  { 0, 0, 0, 0xfd, 0, 0, 0, 36 }, 36, SDP_BAD_SIZE },
		{ "SDP-49 SinkAH.Len 2^31 + 1",
		  { 0, 0, 0, 0xfd, 0, 0, 0, 36, [16] = 0x80, [19] = 1 }, 36,
		  SDP_BAD_SIZE },
		{ "SDP-31 Rsvd of a Hello",
		  { 0, 3, 0, 0x00, 0, 0, 0, 32, [18] = 0xff }, 32, SDP_OK },
		{ "SDP-31 Rsvd of a HelloAck",
		  { 0, 3, 0, 0x01, 0, 0, 0, 28, [18] = 0xff }, 28, SDP_OK },
		{ "SDP-57 reserved bits of MCH",
		  { 0, 0, 0, 0x07, 0, 0, 0, 20, [16] = 0xff, [17] = 0xff,
		    [18] = 0xff, [19] = 0xf1 }, 20, SDP_OK },
		{ "SDP-57 mode 3",
		  { 0, 0, 0, 0x07, 0, 0, 0, 20, [19] = 6 }, 20, SDP_BAD_MODE },
		{ "SDP-57 mode 7",
		  { 0, 0, 0, 0x07, 0, 0, 0, 20, [19] = 14 }, 20, SDP_BAD_MODE },
		{ "SDP-63 SuspComm, Constant1",
		  { 0, 0, 0, 0x0d, 0, 0, 0, 24, [19] = 1, [23] = 1 }, 24,
		  SDP_BAD_CONSTANT },
		{ "SDP-63 SuspComm, Constant2",
		  { 0, 0, 0, 0x0d, 0, 0, 0, 24, [23] = 2 }, 24,
		  SDP_BAD_CONSTANT },
		{ "Len of 2^32 - 1",
		  { 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff }, 0xffffffff, SDP_OK },
	};
	struct sdp_msg msg;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test, cases[i].want,
				    sdp_decode(SDP_LAYOUT_DRAFT, cases[i].buf,
					       cases[i].len, &msg),
				    "%s", cases[i].desc);
}

/* Both layouts of a Hello are told apart, and what is neither is refused. */
static void layouts(struct kunit *test)
{
	enum sdp_layout layout;
	u8 buf[SDP_HELLO_LEN] = {};
	struct sdp_msg hello = { .hello = { .max_adverts = 1, .major = 1,
					    .minor = 1, .rcv_size = 37,
					    .ird = 1, .ord = 1 } };
	u32 bufs;
	int i;

	for (bufs = 3; bufs < 0x10000; bufs += bufs < 0x300 ? 1 : 251) {
		for (i = 0; i < 2; i++) {
			hello.bufs = bufs;
			sdp_encode(i, &hello, buf);
			KUNIT_EXPECT_TRUE(test, sdp_hello_layout(buf, &layout));
			KUNIT_EXPECT_EQ_MSG(test, i, (int)layout, "%u", bufs);
		}
	}
	buf[7]--;
	KUNIT_EXPECT_FALSE(test, sdp_hello_layout(buf, &layout));
	memset(buf, 0, 4);
	buf[7] = 32;
	KUNIT_EXPECT_FALSE(test, sdp_hello_layout(buf, &layout));
	memset(buf, 'G', sizeof(buf));
	KUNIT_EXPECT_FALSE(test, sdp_hello_layout(buf, &layout));
}

/* PM-01, PM-07, PM-21, PM-25, PM-26: an exchange, octet by octet */
static void port_mapper(struct kunit *test)
{
	static const u8 accept[SDP_PM_LEN] = {
		0x14, 0xff, 0, 0, 0x1b, 0x58, 0xc0, 0x01,
		1, 2, 3, 4, 5, 6, 7, 8,
		10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		10, 0, 0, 2,
	};
	struct sdp_pm_msg msg;
	u8 out[SDP_PM_LEN], in[SDP_PM_LEN + 16];
	int kind;

	KUNIT_ASSERT_EQ(test, 0, sdp_pm_decode(accept, sizeof(accept), &msg));
	KUNIT_EXPECT_EQ(test, SDP_PM_ACCEPT, (int)msg.type);
	KUNIT_EXPECT_EQ(test, 4, (int)msg.version);
	KUNIT_EXPECT_EQ(test, SDP_PM_FOR_EVER, (int)msg.time);
	KUNIT_EXPECT_EQ(test, 7000, (int)msg.ap_port);
	KUNIT_EXPECT_EQ(test, 49153, (int)msg.cp_port);
	KUNIT_EXPECT_EQ(test, 0x0102030405060708ULL, msg.handle);
	KUNIT_EXPECT_EQ(test, 1, (int)msg.cp_addr[3]);
	KUNIT_EXPECT_EQ(test, 2, (int)msg.ap_addr[3]);
	sdp_pm_encode(&msg, out);
	KUNIT_EXPECT_MEMEQ(test, accept, out, sizeof(out));

	/* a request of iwpmd's is longer, and has something in Reserved */
	memset(in, 0xaa, sizeof(in));
	memcpy(in, accept, sizeof(accept));
	in[0] = 0x06;
	in[2] = 0x12;
	KUNIT_EXPECT_EQ(test, 0, sdp_pm_decode(in, sizeof(in), &msg));
	KUNIT_EXPECT_EQ(test, SDP_PM_REQ, (int)msg.type);
	KUNIT_EXPECT_EQ(test, 6, (int)msg.version);
	KUNIT_EXPECT_EQ(test, -EPROTO, sdp_pm_decode(in, SDP_PM_LEN - 1, &msg));

	/* PM-05: junk behind an IPv4 address is not looked at, and not said */
	memcpy(in, accept, sizeof(accept));
	memset(in + 20, 0xaa, 12);
	memset(in + 36, 0xaa, 12);
	KUNIT_EXPECT_EQ(test, 0, sdp_pm_decode(in, sizeof(in), &msg));
	sdp_pm_encode(&msg, out);
	KUNIT_EXPECT_MEMEQ(test, accept, out, sizeof(out));
	msg.cp_addr[4] = 1;
	msg.ap_addr[15] = 1;
	sdp_pm_encode(&msg, out);
	KUNIT_EXPECT_MEMEQ(test, accept, out, sizeof(out));
	/* PM-06: of an IPv6 address there is no such thing */
	in[0] = 0x16;
	KUNIT_EXPECT_EQ(test, 0, sdp_pm_decode(in, sizeof(in), &msg));
	sdp_pm_encode(&msg, out);
	KUNIT_EXPECT_MEMEQ(test, in, out, sizeof(out));

	/* PM-02 to PM-04, PM-21: version 0, four types, IPv4 and IPv6 */
	for (kind = 0; kind < 256; kind++) {
		bool good = kind < 0x40 && ((kind & 15) == 4 || (kind & 15) == 6);

		in[0] = kind;
		KUNIT_EXPECT_EQ_MSG(test, good ? 0 : -EPROTO,
				    sdp_pm_decode(in, SDP_PM_LEN, &msg),
				    "0x%02x", kind);
	}
}

/* PM-10 */
static void port_mapper_times(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 0ULL, sdp_pm_time_ms(0));
	KUNIT_EXPECT_EQ(test, 250ULL, sdp_pm_time_ms(1));
	KUNIT_EXPECT_EQ(test, 31750ULL, sdp_pm_time_ms(127));
	KUNIT_EXPECT_EQ(test, 128000ULL, sdp_pm_time_ms(128));
	KUNIT_EXPECT_EQ(test, 254000ULL, sdp_pm_time_ms(254));
	KUNIT_EXPECT_EQ(test, ~0ULL, sdp_pm_time_ms(255));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(encodes_and_decodes),
	KUNIT_CASE(lengths),
	KUNIT_CASE(fields),
	KUNIT_CASE(layouts),
	KUNIT_CASE(port_mapper),
	KUNIT_CASE(port_mapper_times),
	{}
};

static struct kunit_suite suite = {
	.name = "sdp_wire",
	.test_cases = cases,
};

kunit_test_suite(suite);
