// SPDX-License-Identifier: GPL-2.0
/*
 * DDP and RDMAP headers against octets written down from RFC 5040 section 4,
 * RFC 5041 section 4 and RFC 7306 sections 4 to 6.  Case names carry the
 * requirement ids.
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

		t = swp_fault_term(swp_seg_decode(c->bytes, c->ulpdu, 0, &seg));
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

	swp_tagged_encode(buf, SWP_RDMAP_WRITE, false, 0x12345678,
			  0x0102030405060708ULL);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	KUNIT_ASSERT_EQ(test, SWP_FAULT_NONE,
			swp_seg_decode(want, 14 + 100, 0, &seg));
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

	swp_untagged_encode(buf, SWP_RDMAP_SEND_INV, true, 0xcafebabe, 0,
			    0xfffffffe, 1440);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	KUNIT_ASSERT_EQ(test, SWP_FAULT_NONE,
			swp_seg_decode(want, 18, 0, &seg));
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

	KUNIT_ASSERT_EQ(test, SWP_FAULT_NONE,
			swp_seg_decode(in, 20, 0, &seg));
	KUNIT_EXPECT_EQ(test, SWP_RDMAP_SEND, (int)seg.opcode);
	KUNIT_EXPECT_TRUE(test, seg.last);
}

/* RDMAP-03, DDP-02: version 00b, or 01b, and none but that of the stream */
static void rdmac_version(struct kunit *test)
{
	static const u8 dv[] = { 0x40, 0x41, 0x42, 0x43 };
	static const u8 rv[] = { 0x03, 0x43, 0x83, 0xc3 };
	u8 in[SWP_UNTAGGED_LEN] = { [13] = 1 };
	struct swp_seg seg;
	int i, j;

	for (i = 0; i < ARRAY_SIZE(dv); i++) {
		for (j = 0; j < ARRAY_SIZE(rv); j++) {
			in[0] = dv[i];
			in[1] = rv[j];
			KUNIT_EXPECT_EQ(test, !i && !j,
					!swp_seg_decode(in, 18, SWP_ACCEPT_RDMAC,
							&seg));
			KUNIT_EXPECT_EQ(test, i == 1 && j == 1,
					!swp_seg_decode(in, 18, 0, &seg));
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

/* RFC 5040 Figure 4 and RFC 7306 section 4.1: opcode, T bit, queue; -1: tagged */
static const s8 queue_of[16] = {
	-1, 1, -1, 0, 0, 0, 0, 2, 0, 0, 1, 3,
	/* nobody's */
	-2, -2, -2, -2,
};

/*
 * RDMAPX-01, RDMAPX-02: every opcode on every queue, tagged and not, with and
 * without the extensions.
 */
static void opcode_table(struct kunit *test)
{
	u8 in[SWP_UNTAGGED_LEN] = { [13] = 1 };
	struct swp_seg seg;
	struct swp_term t;
	u8 op, qn, ext;

	for (op = 0; op < 16; op++) {
		for (qn = 0; qn < 6; qn++) {
			for (ext = 0; ext < 2; ext++) {
				bool known = op < (ext ? 12 : 8);
				bool queue = qn <= (ext ? 3 : 2);
				bool fits = known && queue_of[op] == qn;
				enum swp_fault ret;

				in[0] = 0x41;
				in[1] = 0x40 | op;
				in[9] = qn;
				ret = swp_seg_decode(in, 26,
						     ext ? SWP_ACCEPT_EXT : 0,
						     &seg);
				KUNIT_EXPECT_EQ_MSG(test, fits, !ret,
						    "op %u qn %u ext %u",
						    op, qn, ext);
				KUNIT_EXPECT_EQ(test, op, seg.opcode);
				KUNIT_EXPECT_EQ(test, (u32)qn, seg.qn);
				KUNIT_EXPECT_EQ(test, 8U, seg.payload);
				if (fits)
					continue;
				t = swp_fault_term(ret);
				/* a queue that is none is DDP's business */
				KUNIT_EXPECT_EQ(test, queue ? 0 : 1, (int)t.layer);
				KUNIT_EXPECT_EQ(test, 2, (int)t.etype);
				KUNIT_EXPECT_EQ(test, queue ? 6 : 1, (int)t.code);
			}
		}
		for (ext = 0; ext < 2; ext++) {
			in[0] = 0xc1;
			KUNIT_EXPECT_EQ_MSG(test, queue_of[op] == -1,
					    !swp_seg_decode(in, 26,
						ext ? SWP_ACCEPT_EXT : 0, &seg),
					    "op %u tagged ext %u", op, ext);
		}
	}
}

/* Both things a receiver may take besides, at once */
static void accept_both(struct kunit *test)
{
	u8 in[SWP_UNTAGGED_LEN] = { 0x40, 0x08, [13] = 1 };
	struct swp_seg seg;
	struct swp_term t;

	KUNIT_EXPECT_EQ(test, SWP_FAULT_NONE,
			swp_seg_decode(in, 26, SWP_ACCEPT_RDMAC | SWP_ACCEPT_EXT,
				       &seg));
	t = swp_fault_term(swp_seg_decode(in, 26, SWP_ACCEPT_EXT, &seg));
	KUNIT_EXPECT_EQ(test, 1, (int)t.layer);
	KUNIT_EXPECT_EQ(test, 6, (int)t.code);
	t = swp_fault_term(swp_seg_decode(in, 26, SWP_ACCEPT_RDMAC, &seg));
	KUNIT_EXPECT_EQ(test, 0, (int)t.layer);
	KUNIT_EXPECT_EQ(test, 6, (int)t.code);
}

/* RDMAPX-03, RDMAPX-05: 52 octets, here of a CmpSwap */
static void atomic_request(struct kunit *test)
{
	static const u8 want[SWP_ATOMIC_REQ_LEN] = {
		0x00, 0x00, 0x00, 0x02, 0x11, 0x12, 0x13, 0x14,
		0x21, 0x22, 0x23, 0x24,
		0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
		0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
		0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58,
		0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
		0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78,
	};
	const struct swp_atomic in = {
		.op = SWP_ATOMIC_CMP_SWAP,
		.id = 0x11121314,
		.stag = 0x21222324,
		.to = 0x3132333435363738ULL,
		.data = 0x4142434445464748ULL,
		.mask = 0x5152535455565758ULL,
		.compare = 0x6162636465666768ULL,
		.compare_mask = 0x7172737475767778ULL,
	};
	u8 buf[SWP_ATOMIC_REQ_LEN];
	struct swp_atomic out;

	swp_atomic_encode(buf, &in);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	KUNIT_ASSERT_EQ(test, 0, swp_atomic_decode(want, &out));
	KUNIT_EXPECT_EQ(test, in.op, out.op);
	KUNIT_EXPECT_EQ(test, in.id, out.id);
	KUNIT_EXPECT_EQ(test, in.stag, out.stag);
	KUNIT_EXPECT_EQ(test, in.to, out.to);
	KUNIT_EXPECT_EQ(test, in.data, out.data);
	KUNIT_EXPECT_EQ(test, in.mask, out.mask);
	KUNIT_EXPECT_EQ(test, in.compare, out.compare);
	KUNIT_EXPECT_EQ(test, in.compare_mask, out.compare_mask);
}

/* RDMAPX-08: a FetchAdd compares nothing, and says so */
static void fetch_add_request(struct kunit *test)
{
	const struct swp_atomic in = {
		.op = SWP_ATOMIC_FETCH_ADD,
		.data = 1,
		.compare = 0x6162636465666768ULL,
		.compare_mask = 0x7172737475767778ULL,
	};
	u8 buf[SWP_ATOMIC_REQ_LEN], zeros[8] = {}, ones[8];

	memset(ones, 0xff, sizeof(ones));
	swp_atomic_encode(buf, &in);
	KUNIT_EXPECT_EQ(test, 0, (int)buf[3]);
	KUNIT_EXPECT_EQ(test, 1, (int)buf[27]);
	KUNIT_EXPECT_MEMEQ(test, buf + 28, zeros, sizeof(zeros));
	KUNIT_EXPECT_MEMEQ(test, buf + 36, zeros, sizeof(zeros));
	KUNIT_EXPECT_MEMEQ(test, buf + 44, ones, sizeof(ones));
}

/* RDMAPX-05: two operations, and 28 bits in front that mean nothing */
static void atomic_opcodes(struct kunit *test)
{
	u8 buf[SWP_ATOMIC_REQ_LEN] = { 0xab, 0xcd, 0xef };
	struct swp_atomic out;
	u8 op;

	for (op = 0; op < 16; op++) {
		buf[3] = 0xf0 | op;
		KUNIT_EXPECT_EQ_MSG(test, op == 0 || op == 2 ? 0 : -EPROTO,
				    swp_atomic_decode(buf, &out), "AOpCode %u",
				    op);
		KUNIT_EXPECT_EQ(test, op, out.op);
	}
}

/* RDMAPX-04 */
static void atomic_response(struct kunit *test)
{
	static const u8 want[SWP_ATOMIC_RESP_LEN] = {
		0xa1, 0xa2, 0xa3, 0xa4,
		0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8,
	};
	u8 buf[SWP_ATOMIC_RESP_LEN];
	u64 value;
	u32 id;

	swp_atomic_resp_encode(buf, 0xa1a2a3a4, 0xb1b2b3b4b5b6b7b8ULL);
	KUNIT_EXPECT_MEMEQ(test, buf, want, sizeof(want));
	swp_atomic_resp_decode(want, &id, &value);
	KUNIT_EXPECT_EQ(test, 0xa1a2a3a4U, id);
	KUNIT_EXPECT_EQ(test, 0xb1b2b3b4b5b6b7b8ULL, value);
}

struct add_case {
	const char *desc;
	u64 old, add, mask, want;
};

#define TOPS	0x8000000080000000ULL	/* two adders of 32 bits */
#define BYTES	0x8080808080808080ULL	/* eight of 8 bits */

static const struct add_case add_cases[] = {
	{ "nothing", 7, 0, 0, 7 },
	{ "plain", 40, 2, 0, 42 },
	{ "carry through all bits", ~0ULL, 1, 0, 0 },
	{ "minus one", 5, ~0ULL, 0, 4 },
	{ "carry leaves the low half", 0xffffffff, 1, 0, 0x100000000ULL },
	{ "carry stays in the low half", 0xffffffff, 1, TOPS, 0 },
	{ "sum of top bits is kept, its carry lost", 0x80000000, 0x80000000,
	  TOPS, 0 },
	{ "carry into a top bit stays", 0x7fffffff, 1, TOPS, 0x80000000 },
	{ "halves by themselves", 0xffffffffffffffffULL,
	  0x0000000100000002ULL, TOPS, 0x0000000000000001ULL },
	{ "the end of the last part changes nothing", ~0ULL, 1, 1ULL << 63, 0 },
	{ "bytes", 0x00ff7f8001fe10f0ULL, 0x0101018101020f10ULL, BYTES,
	  0x0100800102001f00ULL },
	{ "parts of one bit: exclusive or", 0xf0f0f0f0f0f0f0f0ULL,
	  0xffff0000ffff0000ULL, ~0ULL, 0x0f0ff0f00f0ff0f0ULL },
};

/* The definition of RFC 7306 section 5.1.1, bit by bit */
static u64 add_slowly(u64 old, u64 add, u64 mask)
{
	unsigned int i, sum, carry = 0;
	u64 result = 0;

	for (i = 0; i < 64; i++) {
		sum = ((old >> i) & 1) + ((add >> i) & 1) + carry;
		result |= (u64)(sum & 1) << i;
		carry = (mask >> i) & 1 ? 0 : sum >> 1;
	}
	return result;
}

/* RDMAPX-06 */
static void fetch_add(struct kunit *test)
{
	struct swp_atomic a = { .op = SWP_ATOMIC_FETCH_ADD };
	u64 x = 0x9e3779b97f4a7c15ULL, old;
	int i;

	for (i = 0; i < ARRAY_SIZE(add_cases); i++) {
		const struct add_case *c = &add_cases[i];

		a.data = c->add;
		a.mask = c->mask;
		KUNIT_EXPECT_EQ_MSG(test, c->want, swp_atomic_result(&a, c->old),
				    "%s", c->desc);
		KUNIT_EXPECT_EQ_MSG(test, c->want,
				    add_slowly(c->old, c->add, c->mask),
				    "%s", c->desc);
	}
	/* RDMAPX-08: what is there to compare is not looked at */
	a.compare = 1;
	a.compare_mask = 1;
	for (i = 0; i < 1000; i++) {
		/* any numbers, the same in each run */
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		old = x ^ x >> 29;
		a.data = rol64(x, 17) ^ x >> 7;
		a.mask = i & 1 ? rol64(x, 41) & rol64(x, 5) : x;
		KUNIT_EXPECT_EQ(test, add_slowly(old, a.data, a.mask),
				swp_atomic_result(&a, old));
	}
}

struct swap_case {
	const char *desc;
	u64 old, compare, compare_mask, swap, mask, want;
};

static const struct swap_case swap_cases[] = {
	{ "equal", 5, 5, ~0ULL, 9, ~0ULL, 9 },
	{ "not equal", 5, 4, ~0ULL, 9, ~0ULL, 5 },
	{ "one bit differs, at the top", 1ULL << 63, 0, ~0ULL, 9, ~0ULL,
	  1ULL << 63 },
	{ "differs where nobody compares", 0x1234, 0x1299, 0xff00, 0x5678, ~0ULL,
	  0x5678 },
	{ "differs where somebody compares", 0x1234, 0x9934, 0xff00, 0x5678,
	  ~0ULL, 0x1234 },
	{ "nothing is compared: swap", 0x1234, 0x9999, 0, 0x5678, ~0ULL, 0x5678 },
	{ "some bits are stored", 0xaaaaaaaaaaaaaaaaULL, 0xaaaaaaaaaaaaaaaaULL,
	  ~0ULL, 0x5555555555555555ULL, 0x00000000ffff0000ULL,
	  0xaaaaaaaa5555aaaaULL },
	{ "no bit is stored", 7, 7, ~0ULL, 9, 0, 7 },
	{ "masks that do not meet", 0x00000000cafe0000ULL, 0xffffffffcafeffffULL,
	  0x00000000ffff0000ULL, 0x1111111111111111ULL, 0xffffffff00000000ULL,
	  0x11111111cafe0000ULL },
};

/* RDMAPX-07 */
static void cmp_swap(struct kunit *test)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(swap_cases); i++) {
		const struct swap_case *c = &swap_cases[i];
		const struct swp_atomic a = {
			.op = SWP_ATOMIC_CMP_SWAP,
			.data = c->swap,
			.mask = c->mask,
			.compare = c->compare,
			.compare_mask = c->compare_mask,
		};

		KUNIT_EXPECT_EQ_MSG(test, c->want, swp_atomic_result(&a, c->old),
				    "%s", c->desc);
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
	KUNIT_CASE(opcode_table),
	KUNIT_CASE(accept_both),
	KUNIT_CASE(atomic_request),
	KUNIT_CASE(fetch_add_request),
	KUNIT_CASE(atomic_opcodes),
	KUNIT_CASE(atomic_response),
	KUNIT_CASE(fetch_add),
	KUNIT_CASE(cmp_swap),
	{}
};

static struct kunit_suite rdmap_suite = {
	.name = "softwarp_rdmap",
	.test_cases = rdmap_cases,
};

kunit_test_suite(rdmap_suite);
