// SPDX-License-Identifier: GPL-2.0
/*
 * DDP and RDMAP headers against octets written down from RFC 5040 section 4 and
 * RFC 5041 section 4.  Case names carry the requirement ids.
 */
#include <kunit/test.h>

#include "proto/rdmap.h"

struct bad_case {
	const char *desc;
	u8 bytes[SWP_UNTAGGED_LEN];
	u32 ulpdu;
	struct swp_term want;
};

static const struct bad_case bad_cases[] = {
	{ "empty ULPDU", { 0 }, 0, { 1, 0, 0 } },
	{ "one octet", { 0xc1 }, 1, { 1, 0, 0 } },
	{ "tagged, 13 octets", { 0xc1, 0x40 }, 13, { 1, 0, 0 } },
	{ "untagged, 17 octets", { 0x41, 0x43 }, 17, { 1, 0, 0 } },
	{ "DDP-02 tagged, version 0", { 0xc0, 0x40 }, 14, { 1, 1, 4 } },
	{ "DDP-02 tagged, version 2", { 0xc2, 0x40 }, 14, { 1, 1, 4 } },
	{ "DDP-02 untagged, version 3", { 0x43, 0x43 }, 18, { 1, 2, 6 } },
	{ "DDP-26 queue 3",
	  { 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1 }, 18, { 1, 2, 1 } },
	{ "DDP-26 queue 2^31",
	  { 0x41, 0x43, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 1 }, 18,
	  { 1, 2, 1 } },
	{ "RDMAP-03 version 00", { 0x41, 0x03 }, 18, { 0, 2, 5 } },
	{ "RDMAP-03 version 10", { 0x41, 0x83 }, 18, { 0, 2, 5 } },
	{ "RDMAP-03 version 11", { 0xc1, 0xc0 }, 14, { 0, 2, 5 } },
	{ "DDP before RDMAP: both versions bad", { 0xc0, 0x00 }, 14,
	  { 1, 1, 4 } },
	{ "RDMAP-77 before RDMAP-78: opcode and version bad", { 0x41, 0x88 }, 18,
	  { 0, 2, 6 } },
	{ "RDMAP-07 before RDMAP-78: Send with T, version 2", { 0xc1, 0x83 }, 14,
	  { 0, 2, 6 } },
	{ "RDMAP-10 opcode 8", { 0x41, 0x48 }, 18, { 0, 2, 6 } },
	{ "RDMAP-10 opcode 15", { 0x41, 0x4f }, 18, { 0, 2, 6 } },
	{ "RDMAP-07 Send with T", { 0xc1, 0x43 }, 14, { 0, 2, 6 } },
	{ "RDMAP-07 Write without T", { 0x41, 0x40 }, 18, { 0, 2, 6 } },
	{ "RDMAP-07 Read Response without T", { 0x41, 0x42 }, 18, { 0, 2, 6 } },
	{ "RDMAP-08 Send on queue 1",
	  { 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1 }, 18, { 0, 2, 6 } },
	{ "RDMAP-08 Read Request on queue 0", { 0x41, 0x41 }, 46, { 0, 2, 6 } },
	{ "RDMAP-08 Terminate on queue 1",
	  { 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 1 }, 22, { 0, 2, 6 } },
};

static void bad_headers(struct kunit *test)
{
	struct swp_seg seg;
	struct swp_term t;
	int i;

	for (i = 0; i < ARRAY_SIZE(bad_cases); i++) {
		const struct bad_case *c = &bad_cases[i];

		memset(&t, 0xee, sizeof(t));
		KUNIT_EXPECT_EQ_MSG(test, -EPROTO,
				    swp_seg_decode(c->bytes, c->ulpdu, false,
						   &seg, &t),
				    "%s", c->desc);
		KUNIT_EXPECT_EQ_MSG(test, c->want.layer, t.layer, "%s", c->desc);
		KUNIT_EXPECT_EQ_MSG(test, c->want.etype, t.etype, "%s", c->desc);
		KUNIT_EXPECT_EQ_MSG(test, c->want.code, t.code, "%s", c->desc);
	}
}

/* DDP-05, RDMAP-02: a Write, not last */
static void tagged_header(struct kunit *test)
{
	static const u8 want[SWP_TAGGED_LEN] = {
		0x81, 0x40, 0x12, 0x34, 0x56, 0x78,
		0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
	};
	u8 buf[SWP_TAGGED_LEN];
	struct swp_seg seg;
	struct swp_term t;

	swp_tagged_encode(buf, SWP_RDMAP_WRITE, false, 0x12345678,
			  0x0102030405060708ULL);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	KUNIT_ASSERT_EQ(test, 0, swp_seg_decode(want, 14 + 100, false, &seg, &t));
	KUNIT_EXPECT_TRUE(test, seg.tagged);
	KUNIT_EXPECT_FALSE(test, seg.last);
	KUNIT_EXPECT_EQ(test, 0x12345678U, seg.stag);
	KUNIT_EXPECT_EQ(test, 0x0102030405060708ULL, seg.to);
	KUNIT_EXPECT_EQ(test, 100U, seg.payload);
	KUNIT_EXPECT_EQ(test, SWP_TAGGED_LEN, (int)seg.hdr_len);
}

/* DDP-06, RDMAP-05: Send with Invalidate, last */
static void untagged_header(struct kunit *test)
{
	static const u8 want[SWP_UNTAGGED_LEN] = {
		0x41, 0x44, 0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 0,
		0xff, 0xff, 0xff, 0xfe, 0x00, 0x00, 0x05, 0xa0,
	};
	u8 buf[SWP_UNTAGGED_LEN];
	struct swp_seg seg;
	struct swp_term t;

	swp_untagged_encode(buf, SWP_RDMAP_SEND_INV, true, 0xcafebabe, 0,
			    0xfffffffe, 1440);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	KUNIT_ASSERT_EQ(test, 0, swp_seg_decode(want, 18, false, &seg, &t));
	KUNIT_EXPECT_FALSE(test, seg.tagged);
	KUNIT_EXPECT_TRUE(test, seg.last);
	KUNIT_EXPECT_EQ(test, 0xcafebabeU, seg.stag);
	KUNIT_EXPECT_EQ(test, 0xfffffffeU, seg.msn);
	KUNIT_EXPECT_EQ(test, 1440U, seg.mo);
	KUNIT_EXPECT_EQ(test, 0U, seg.payload);
}

/* DDP-03, RDMAP-04: reserved bits are ignored */
static void reserved_bits(struct kunit *test)
{
	static const u8 in[SWP_UNTAGGED_LEN] = {
		0x7d, 0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
	};
	struct swp_seg seg;
	struct swp_term t;

	KUNIT_ASSERT_EQ(test, 0, swp_seg_decode(in, 20, false, &seg, &t));
	KUNIT_EXPECT_EQ(test, SWP_RDMAP_SEND, (int)seg.opcode);
	KUNIT_EXPECT_TRUE(test, seg.last);
}

/* RDMAP-03: version 00b where the policy allows it, others never */
static void rdmac_version(struct kunit *test)
{
	static const u8 dv[] = { 0x40, 0x41, 0x42, 0x43 };
	static const u8 rv[] = { 0x03, 0x43, 0x83, 0xc3 };
	u8 in[SWP_UNTAGGED_LEN] = { [13] = 1 };
	struct swp_seg seg;
	struct swp_term t;
	int i, j, ret;

	for (i = 0; i < ARRAY_SIZE(dv); i++) {
		for (j = 0; j < ARRAY_SIZE(rv); j++) {
			in[0] = dv[i];
			in[1] = rv[j];
			ret = swp_seg_decode(in, 18, true, &seg, &t);
			KUNIT_EXPECT_EQ(test, i < 2 && j < 2 ? 0 : -EPROTO, ret);
			ret = swp_seg_decode(in, 18, false, &seg, &t);
			KUNIT_EXPECT_EQ(test, i == 1 && j == 1 ? 0 : -EPROTO,
					ret);
			/* for the Terminate, whatever is wrong */
			KUNIT_EXPECT_EQ(test, SWP_UNTAGGED_LEN,
					(int)seg.hdr_len);
			KUNIT_EXPECT_EQ(test, 1U, seg.msn);
		}
	}
}

/* RDMAP-12 */
static void read_request(struct kunit *test)
{
	static const u8 want[SWP_READ_REQ_LEN] = {
		0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
		0x25, 0x26, 0x27, 0x28, 0x00, 0x01, 0x00, 0x00,
		0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44,
		0x45, 0x46, 0x47, 0x48,
	};
	const struct swp_rreq in = {
		.sink_stag = 0x11121314, .sink_to = 0x2122232425262728ULL,
		.size = 65536,
		.src_stag = 0x31323334, .src_to = 0x4142434445464748ULL,
	};
	struct swp_rreq out;
	u8 buf[SWP_READ_REQ_LEN];

	swp_rreq_encode(buf, &in);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	swp_rreq_decode(want, &out);
	KUNIT_EXPECT_EQ(test, in.sink_stag, out.sink_stag);
	KUNIT_EXPECT_EQ(test, in.sink_to, out.sink_to);
	KUNIT_EXPECT_EQ(test, in.size, out.size);
	KUNIT_EXPECT_EQ(test, in.src_stag, out.src_stag);
	KUNIT_EXPECT_EQ(test, in.src_to, out.src_to);
}

/* RDMAP-16, RDMAP-22, RDMAP-23: the four lengths of wire-formats section 3.5 */
static void terminate(struct kunit *test)
{
	static const u8 tagged[SWP_TAGGED_LEN] = { 0xc1, 0x40 };
	static const u8 untagged[SWP_UNTAGGED_LEN] = {
		0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x12, 0x34,
	};
	static const u8 rreq_bytes[SWP_READ_REQ_LEN] = { 0xab };
	const struct swp_term crc = { 2, 0, 2 }, stag = { 1, 1, 0 },
			      prot = { 0, 1, 2 };
	struct swp_term out;
	struct swp_seg seg;
	const u8 *rreq;
	u32 msn;
	u8 buf[SWP_TERM_MAX];

	KUNIT_EXPECT_EQ(test, 4U, swp_term_encode(buf, &crc, NULL, 0, 0, NULL));
	KUNIT_EXPECT_EQ(test, 0x20, (int)buf[0]);
	KUNIT_EXPECT_EQ(test, 0x02, (int)buf[1]);
	KUNIT_EXPECT_EQ(test, 0x00, (int)buf[2]);

	KUNIT_EXPECT_EQ(test, 20U, swp_term_encode(buf, &stag, tagged, 14, 1000,
						   NULL));
	KUNIT_EXPECT_EQ(test, 0x11, (int)buf[0]);
	KUNIT_EXPECT_EQ(test, 0xc0, (int)buf[2]);
	KUNIT_EXPECT_EQ(test, 0x03, (int)buf[4]);
	KUNIT_EXPECT_EQ(test, 0xe8, (int)buf[5]);
	KUNIT_ASSERT_EQ(test, 0, swp_term_decode(buf, 20, &out, &msn, &rreq));
	KUNIT_EXPECT_NULL(test, rreq);
	KUNIT_EXPECT_EQ(test, 0U, msn);
	KUNIT_EXPECT_TRUE(test, swp_term_culprit(buf, 20, &seg));
	KUNIT_EXPECT_TRUE(test, seg.tagged);
	KUNIT_EXPECT_EQ(test, SWP_RDMAP_WRITE, (int)seg.opcode);
	KUNIT_EXPECT_FALSE(test, swp_term_culprit(buf, 19, &seg));

	KUNIT_EXPECT_EQ(test, 24U, swp_term_encode(buf, &stag, untagged, 18, 18,
						   NULL));
	KUNIT_EXPECT_EQ(test, 52U, swp_term_encode(buf, &prot, untagged, 18, 46,
						   rreq_bytes));
	KUNIT_EXPECT_EQ(test, 0xe0, (int)buf[2]);
	KUNIT_ASSERT_EQ(test, 0, swp_term_decode(buf, 52, &out, &msn, &rreq));
	KUNIT_ASSERT_NOT_NULL(test, rreq);
	KUNIT_EXPECT_PTR_EQ(test, (const u8 *)buf + 24, rreq);
	KUNIT_EXPECT_EQ(test, 0x1234U, msn);
	KUNIT_EXPECT_TRUE(test, swp_term_culprit(buf, 52, &seg));
	KUNIT_EXPECT_EQ(test, SWP_RDMAP_READ_REQ, (int)seg.opcode);
	KUNIT_EXPECT_EQ(test, 0x1234U, seg.msn);
	buf[2] = 0x80;
	KUNIT_EXPECT_FALSE(test, swp_term_culprit(buf, 52, &seg));
	KUNIT_EXPECT_EQ(test, 1, (int)out.etype);
	KUNIT_EXPECT_EQ(test, 2, (int)out.code);
}

/* A Terminate cut anywhere is read as far as it goes, never past its end. */
static void terminate_truncated(struct kunit *test)
{
	static const u8 untagged[SWP_UNTAGGED_LEN] = {
		0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x12, 0x34,
	};
	static const u8 rreq_bytes[SWP_READ_REQ_LEN] = { 0xab };
	const struct swp_term prot = { 0, 1, 2 };
	struct swp_term out;
	const u8 *rreq;
	u8 full[SWP_TERM_MAX], *cut;
	u32 len, msn;

	swp_term_encode(full, &prot, untagged, 18, 46, rreq_bytes);
	for (len = 0; len <= SWP_TERM_MAX; len++) {
		/* an allocation of its own, so that KASAN sees any overrun */
		cut = kunit_kmalloc(test, max(len, 1U), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, cut);
		memcpy(cut, full, len);
		KUNIT_EXPECT_EQ(test, len < 4 ? -EPROTO : 0,
				swp_term_decode(cut, len, &out, &msn,
						&rreq));
		KUNIT_EXPECT_EQ(test, len == SWP_TERM_MAX, !!rreq);
		KUNIT_EXPECT_EQ(test, len < 24 ? 0U : 0x1234U, msn);
	}
}

static struct kunit_case rdmap_cases[] = {
	KUNIT_CASE(bad_headers),
	KUNIT_CASE(tagged_header),
	KUNIT_CASE(untagged_header),
	KUNIT_CASE(reserved_bits),
	KUNIT_CASE(rdmac_version),
	KUNIT_CASE(read_request),
	KUNIT_CASE(terminate),
	KUNIT_CASE(terminate_truncated),
	{}
};

static struct kunit_suite rdmap_suite = {
	.name = "softwarp_rdmap",
	.test_cases = rdmap_cases,
};

kunit_test_suite(rdmap_suite);

MODULE_DESCRIPTION("KUnit suite of softwarp's DDP and RDMAP headers");
MODULE_LICENSE("GPL");
