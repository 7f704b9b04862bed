// SPDX-License-Identifier: GPL-2.0
/*
 * MPA start-up: Request and Reply frames octet by octet, what must be refused
 * and when, and what two ends agree upon.  Names of cases carry the numbers of
 * the requirements of RFC 5044 (MPA-nn) and RFC 6581 (MPA2-nn) they check.
 */
#include <kunit/test.h>

#include "proto/mpa.h"

#define REQ_KEY	"MPA ID Req Frame"
#define REP_KEY	"MPA ID Rep Frame"

enum { N = SWP_MPA_DEPTH_NONE };

/* Valid frames: octets and meaning ----------------------------------------- */

struct frame_case {
	const char *name;
	enum swp_mpa_kind kind;
	u8 octets[33];
	size_t len;
	struct swp_mpa_frame f;		/* pd is not compared by pointer */
	const char *pd;
	bool one_way;			/* reserved bits: not what we would send */
};

static const struct frame_case frame_cases[] = {
	{
		.name = "MPA-24 MPA-25 revision 1, no private data",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x00\x01\x00\x00",
		.len = 20,
		.f = { .rev = 1 },
	}, {
		.name = "MPA-07 revision 1, CRC, private data",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x40\x01\x00\x03\x61\x62\x63",
		.len = 23,
		.f = { .rev = 1, .crc = true, .pd_len = 3 },
		.pd = "abc",
	}, {
		.name = "MPA-26 markers",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\xc0\x01\x00\x00",
		.len = 20,
		.f = { .rev = 1, .crc = true, .markers = true },
	}, {
		.name = "MPA-27 R is not looked at in a Request",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x20\x01\x00\x00",
		.len = 20,
		.f = { .rev = 1 },
		.one_way = true,
	}, {
		.name = "MPA-27 R in a Reply",
		.kind = SWP_MPA_REPLY,
		.octets = REP_KEY "\x60\x01\x00\x02\x6e\x6f",
		.len = 22,
		.f = { .rev = 1, .crc = true, .reject = true, .pd_len = 2 },
		.pd = "no",
	}, {
		.name = "MPA-28 MPA2-05 reserved bits",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x0f\x02\x00\x00",
		.len = 20,
		.f = { .rev = 2 },
		.one_way = true,
	}, {
		.name = "S is a reserved bit in revision 1",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x10\x01\x00\x02\x68\x69",
		.len = 22,
		.f = { .rev = 1, .pd_len = 2 },
		.pd = "hi",
		.one_way = true,
	}, {
		.name = "revision 2 without enhanced data",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x40\x02\x00\x04\x01\x02\x03\x04",
		.len = 24,
		.f = { .rev = 2, .crc = true, .pd_len = 4 },
		.pd = "\1\2\3\4",
	}, {
		.name = "MPA2-01 MPA2-06 MPA2-08 enhanced, client-server",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x50\x02\x00\x06\x00\x10\x01\x02\x78\x79",
		.len = 26,
		.f = { .rev = 2, .crc = true, .enhanced = true,
		       .ird = 0x10, .ord = 0x102, .pd_len = 2 },
		.pd = "xy",
	}, {
		.name = "MPA2-08 MPA2-24 all of A, B, C, D",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x10\x02\x00\x04\xc0\x01\xc0\x02",
		.len = 24,
		.f = { .rev = 2, .enhanced = true, .p2p = true,
		       .rtr = SWP_RTR_SEND | SWP_RTR_WRITE | SWP_RTR_READ,
		       .ird = 1, .ord = 2 },
	}, {
		.name = "MPA2-25 A and C",
		.kind = SWP_MPA_REPLY,
		.octets = REP_KEY "\x10\x02\x00\x04\x80\x05\x80\x06",
		.len = 24,
		.f = { .rev = 2, .enhanced = true, .p2p = true,
		       .rtr = SWP_RTR_WRITE, .ird = 5, .ord = 6 },
	}, {
		.name = "MPA2-25 A and D",
		.kind = SWP_MPA_REPLY,
		.octets = REP_KEY "\x10\x02\x00\x04\x80\x05\x40\x06",
		.len = 24,
		.f = { .rev = 2, .enhanced = true, .p2p = true,
		       .rtr = SWP_RTR_READ, .ird = 5, .ord = 6 },
	}, {
		.name = "MPA2-19 depths of 0x3FFF",
		.kind = SWP_MPA_REPLY,
		.octets = REP_KEY "\x10\x02\x00\x04\x3f\xff\x3f\xff",
		.len = 24,
		.f = { .rev = 2, .enhanced = true, .ird = N, .ord = N },
	}, {
		.name = "MPA2-35 B, C and D without A",
		.kind = SWP_MPA_REQUEST,
		.octets = REQ_KEY "\x10\x02\x00\x04\x40\x01\xc0\x02",
		.len = 24,
		.f = { .rev = 2, .enhanced = true, .ird = 1, .ord = 2 },
		.one_way = true,
	},
};

static void frame_desc(const struct frame_case *c, char *desc)
{
	strscpy(desc, c->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(frame, frame_cases, frame_desc);

static void expect_frame(struct kunit *test, const struct swp_mpa_frame *want,
			 const struct swp_mpa_frame *got)
{
	KUNIT_EXPECT_EQ(test, want->rev, got->rev);
	KUNIT_EXPECT_EQ(test, want->markers, got->markers);
	KUNIT_EXPECT_EQ(test, want->crc, got->crc);
	KUNIT_EXPECT_EQ(test, want->reject, got->reject);
	KUNIT_EXPECT_EQ(test, want->enhanced, got->enhanced);
	KUNIT_EXPECT_EQ(test, want->p2p, got->p2p);
	KUNIT_EXPECT_EQ(test, want->rtr, got->rtr);
	KUNIT_EXPECT_EQ(test, want->ird, got->ird);
	KUNIT_EXPECT_EQ(test, want->ord, got->ord);
	KUNIT_EXPECT_EQ(test, want->pd_len, got->pd_len);
}

/*
 * MPA-35, MPA-40: any segmentation, and never a wish for more than the frame:
 * the header first, then exactly what PD_Length says.
 */
static void decode_every_length(struct kunit *test)
{
	const struct frame_case *c = test->param_value;
	struct swp_mpa_frame f;
	size_t len, need;
	u8 *buf;

	for (len = 0; len < c->len; len++) {
		/* of that size, so that KASAN sees a read too far */
		buf = kunit_kmalloc(test, max_t(size_t, len, 1), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, buf);
		memcpy(buf, c->octets, len);
		need = 0;
		KUNIT_EXPECT_EQ_MSG(test, -EAGAIN,
				    swp_mpa_decode(c->kind, SWP_MPA_REV_MIN, 2,
						   buf, len, &f, &need),
				    "%zu octets", len);
		KUNIT_EXPECT_EQ_MSG(test, len < 20 ? 20 : c->len, need,
				    "%zu octets", len);
		kunit_kfree(test, buf);
	}

	buf = kunit_kmalloc(test, c->len, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	memcpy(buf, c->octets, c->len);
	KUNIT_ASSERT_EQ(test, 0,
			swp_mpa_decode(c->kind, SWP_MPA_REV_MIN, 2, buf, c->len,
				       &f, &need));
	KUNIT_EXPECT_EQ(test, c->len, need);
	expect_frame(test, &c->f, &f);
	/* MPA-43: unchanged, and behind the enhanced data */
	KUNIT_EXPECT_PTR_EQ(test, (const u8 *)buf + c->len - f.pd_len, f.pd);
	if (c->pd)
		KUNIT_EXPECT_MEMEQ(test, c->pd, f.pd, c->f.pd_len);
}

static void encode(struct kunit *test)
{
	const struct frame_case *c = test->param_value;
	struct swp_mpa_frame f = c->f;
	u8 *buf;
	int ret;

	if (c->one_way) {
		/* what is read leniently is never sent: see the other cases */
		KUNIT_EXPECT_FALSE(test, f.reject);
		return;
	}
	buf = kunit_kmalloc(test, SWP_MPA_FRAME_MAX, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	memset(buf, 0xee, SWP_MPA_FRAME_MAX);
	f.pd = (const u8 *)c->pd;
	ret = swp_mpa_encode(c->kind, &f, buf);
	KUNIT_ASSERT_EQ(test, (int)c->len, ret);
	KUNIT_EXPECT_MEMEQ(test, c->octets, buf, c->len);
	KUNIT_EXPECT_EQ(test, 0xee, buf[c->len]);
}

/* Invalid frames ----------------------------------------------------------- */

struct bad_case {
	const char *name;
	enum swp_mpa_kind kind;
	u8 max_rev;
	u8 octets[33];
	size_t len;
	int want;
};

static const struct bad_case bad_cases[] = {
	{ "MPA-24 garbage from the first octet", SWP_MPA_REQUEST, 2,
	  { 'G', 'E', 'T', ' ', '/' }, 1, -EBADMSG },
	{ "MPA-24 garbage in the fifth octet", SWP_MPA_REQUEST, 2,
	  { 'M', 'P', 'A', ' ', 'X' }, 5, -EBADMSG },
	{ "MPA-24 last octet of the key", SWP_MPA_REQUEST, 2,
	  { 0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52,
	    0x65, 0x71, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x45 }, 16, -EBADMSG },
	{ "MPA-36 Request for a Reply", SWP_MPA_REPLY, 2,
	  REQ_KEY "\x00\x01\x00\x00", 20, -EBADMSG },
	{ "MPA-36 Reply for a Request", SWP_MPA_REQUEST, 2,
	  REP_KEY "\x00\x01\x00\x00", 20, -EBADMSG },
	{ "MPA-29 revision 0", SWP_MPA_REQUEST, 2,
	  REQ_KEY "\x00\x00\x00\x00", 20, -EPROTONOSUPPORT },
	{ "MPA-29 revision 3", SWP_MPA_REQUEST, 2,
	  REQ_KEY "\x00\x03\x00\x00", 20, -EPROTONOSUPPORT },
	{ "MPA-29 revision 255", SWP_MPA_REPLY, 2,
	  REP_KEY "\x00\xff\x00\x00", 20, -EPROTONOSUPPORT },
	{ "MPA2-44 revision 2 where only 1 is taken", SWP_MPA_REQUEST, 1,
	  REQ_KEY "\x10\x02\x00\x04", 20, -EPROTONOSUPPORT },
	{ "Reply of revision 2 to a Request of 1", SWP_MPA_REPLY, 1,
	  REP_KEY "\x00\x02\x00\x00", 20, -EPROTONOSUPPORT },
	{ "MPA-30 PD_Length 513", SWP_MPA_REQUEST, 2,
	  REQ_KEY "\x00\x01\x02\x01", 20, -EMSGSIZE },
	{ "MPA-30 PD_Length 65535", SWP_MPA_REQUEST, 2,
	  REQ_KEY "\x00\x01\xff\xff", 20, -EMSGSIZE },
	{ "MPA-30 PD_Length 513, enhanced Reply", SWP_MPA_REPLY, 2,
	  REP_KEY "\x10\x02\x02\x01", 20, -EMSGSIZE },
	{ "MPA2-07 enhanced, PD_Length 0", SWP_MPA_REQUEST, 2,
	  REQ_KEY "\x10\x02\x00\x00", 20, -EPROTO },
	{ "MPA2-07 enhanced, PD_Length 3", SWP_MPA_REQUEST, 2,
	  REQ_KEY "\x10\x02\x00\x03\x01\x02\x03", 23, -EPROTO },
	{ "MPA2-07 enhanced, PD_Length 3, known by the header", SWP_MPA_REPLY,
	  2, REP_KEY "\x10\x02\x00\x03", 20, -EPROTO },
};

static void bad_desc(const struct bad_case *c, char *desc)
{
	strscpy(desc, c->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(bad, bad_cases, bad_desc);

static void refuse_bad(struct kunit *test)
{
	const struct bad_case *c = test->param_value;
	struct swp_mpa_frame f;
	size_t need;

	KUNIT_EXPECT_EQ(test, c->want,
			swp_mpa_decode(c->kind, SWP_MPA_REV_MIN, c->max_rev,
				       c->octets, c->len, &f, &need));
}

/* What may stand in octet 16 of a frame of revision 0, where that is taken */
static void consortium_flags(struct kunit *test)
{
	static const u8 both = SWP_MPA_F_MARKERS | SWP_MPA_F_CRC;
	u8 req[] = REQ_KEY "\x00\x00\x00";
	u8 rep[] = REP_KEY "\x00\x00\x00";
	struct swp_mpa_frame f;
	size_t need;
	int flags;

	for (flags = 0; flags < 256; flags++) {
		bool good = (flags & both) == both;

		req[SWP_MPA_KEY_LEN] = flags;
		rep[SWP_MPA_KEY_LEN] = flags;
		KUNIT_EXPECT_EQ(test, -EPROTONOSUPPORT,
				swp_mpa_decode(SWP_MPA_REQUEST, SWP_MPA_REV_MIN,
					       2, req, sizeof(req), &f,
					       &need));
		KUNIT_EXPECT_EQ(test, -EPROTONOSUPPORT,
				swp_mpa_decode(SWP_MPA_REPLY, SWP_MPA_REV_MIN,
					       2, rep, sizeof(rep), &f,
					       &need));
		KUNIT_EXPECT_EQ_MSG(test, good ? 0 : -EPROTO,
				    swp_mpa_decode(SWP_MPA_REQUEST,
						   SWP_MPA_REV_RDMAC, 2, req,
						   sizeof(req), &f, &need),
				    "flags 0x%02x", flags);
		KUNIT_EXPECT_EQ_MSG(test, good || flags & SWP_MPA_F_REJECT ?
					  0 : -EPROTO,
				    swp_mpa_decode(SWP_MPA_REPLY,
						   SWP_MPA_REV_RDMAC, 2, rep,
						   sizeof(rep), &f, &need),
				    "flags 0x%02x", flags);
	}
}

/* RFC 5044 figure 16: markers and CRC both ways, whatever we want ourselves */
static void consortium(struct kunit *test)
{
	const struct swp_mpa_frame theirs = {
		.rev = SWP_MPA_REV_RDMAC, .markers = true, .crc = true,
	};
	struct swp_mpa_frame mine, rep;
	struct swp_mpa_result res;
	int wish;

	for (wish = 0; wish < 4; wish++) {
		const struct swp_mpa_local l = {
			.max_ird = 4,
			.rtr = SWP_RTR_WRITE,
			.crc = wish & 1,
			.markers = wish & 2,
		};

		swp_mpa_respond(&l, &theirs, &rep, &res);
		KUNIT_EXPECT_EQ(test, 0, (int)rep.rev);
		KUNIT_EXPECT_TRUE(test, rep.crc && rep.markers);
		KUNIT_EXPECT_FALSE(test, rep.enhanced || rep.reject);
		KUNIT_EXPECT_TRUE(test, res.crc);
		KUNIT_EXPECT_TRUE(test, res.tx_markers && res.rx_markers);

		swp_mpa_request(&l, 2, &mine);
		KUNIT_EXPECT_EQ(test, 1, (int)mine.rev);
		KUNIT_EXPECT_EQ(test, SWP_MPA_AGREED,
				(int)swp_mpa_conclude(&l, &mine, &theirs,
						      &res));
		KUNIT_EXPECT_TRUE(test, res.crc);
		KUNIT_EXPECT_TRUE(test, res.tx_markers && res.rx_markers);

		swp_mpa_refuse(&l, &theirs, &rep);
		KUNIT_EXPECT_EQ(test, 0, (int)rep.rev);
		KUNIT_EXPECT_TRUE(test, rep.crc && rep.markers && rep.reject);
	}

	/* what asked for the enhanced format needs it */
	mine = (struct swp_mpa_frame){ .rev = 2, .enhanced = true };
	KUNIT_EXPECT_EQ(test, SWP_MPA_INVALID,
			(int)swp_mpa_conclude(&(struct swp_mpa_local){
						.rtr = SWP_RTR_WRITE },
					      &mine, &theirs, &res));
}

/* MPA-24: every single wrong octet of the key is found */
static void every_key_octet(struct kunit *test)
{
	static const u8 good[20] = {
		0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52,
		0x65, 0x71, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65, 0, 1, 0, 0
	};
	struct swp_mpa_frame f;
	size_t need;
	u8 buf[20];
	int i;

	KUNIT_ASSERT_EQ(test, 0,
			swp_mpa_decode(SWP_MPA_REQUEST, SWP_MPA_REV_MIN, 2,
				       good, sizeof(good), &f, &need));
	for (i = 0; i < SWP_MPA_KEY_LEN; i++) {
		memcpy(buf, good, sizeof(buf));
		buf[i] ^= 0x20;
		KUNIT_EXPECT_EQ_MSG(test, -EBADMSG,
				    swp_mpa_decode(SWP_MPA_REQUEST,
						   SWP_MPA_REV_MIN, 2, buf,
						   sizeof(buf), &f, &need),
				    "octet %d", i);
		/* and as soon as it is there */
		KUNIT_EXPECT_EQ_MSG(test, -EBADMSG,
				    swp_mpa_decode(SWP_MPA_REQUEST,
						   SWP_MPA_REV_MIN, 2, buf,
						   i + 1, &f, &need),
				    "octet %d alone", i);
	}
}

/* MPA-31, MPA2-09: 512 octets of private data, 508 in an enhanced frame */
static void largest_private_data(struct kunit *test)
{
	static const struct { bool enhanced; u16 pd_len; int want; } c[] = {
		{ false, 512, 532 }, { false, 513, -EMSGSIZE },
		{ true, 508, 532 }, { true, 509, -EMSGSIZE },
		{ false, 65535, -EMSGSIZE }, { true, 65535, -EMSGSIZE },
	};
	struct swp_mpa_frame f, back;
	u8 *pd, *buf;
	size_t need;
	int i, j;

	pd = kunit_kmalloc(test, 513, GFP_KERNEL);
	buf = kunit_kmalloc(test, SWP_MPA_FRAME_MAX, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pd);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	for (j = 0; j < 513; j++)
		pd[j] = j * 7 + 1;
	for (i = 0; i < ARRAY_SIZE(c); i++) {
		f = (struct swp_mpa_frame) {
			.rev = 2, .enhanced = c[i].enhanced,
			.pd = pd, .pd_len = c[i].pd_len,
		};
		KUNIT_EXPECT_EQ(test, c[i].want,
				swp_mpa_encode(SWP_MPA_REPLY, &f, buf));
		if (c[i].want < 0)
			continue;
		KUNIT_ASSERT_EQ(test, 0,
				swp_mpa_decode(SWP_MPA_REPLY, SWP_MPA_REV_MIN,
					       2, buf, c[i].want, &back,
					       &need));
		KUNIT_EXPECT_EQ(test, c[i].pd_len, back.pd_len);
		KUNIT_EXPECT_MEMEQ(test, pd, back.pd, c[i].pd_len);
	}
}

/* The responder ------------------------------------------------------------ */

struct respond_case {
	const char *name;
	struct swp_mpa_local l;
	struct swp_mpa_frame req;
	struct swp_mpa_frame rep;
	u16 ird, ord;			/* set locally */
	bool crc;
};

#define CD	(SWP_RTR_WRITE | SWP_RTR_READ)

static const struct respond_case respond_cases[] = {
	{
		.name = "MPA2-04 MPA2-42 revision 1 gets revision 1",
		.l = { .ird = 4, .ord = 5, .max_ird = 16, .rtr = CD },
		.req = { .rev = 1 },
		.rep = { .rev = 1 },
		.ird = 16, .ord = 5,
	}, {
		.name = "MPA2-42 revision 2, plain",
		.l = { .ird = 4, .ord = 5, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2 },
		.rep = { .rev = 2 },
		.ird = 16, .ord = 5,
	}, {
		.name = "MPA-08 C: neither",
		.l = { .max_ird = 16, .rtr = CD },
		.req = { .rev = 1 },
		.rep = { .rev = 1 },
		.ird = 16,
	}, {
		.name = "MPA-08 C: initiator",
		.l = { .max_ird = 16, .rtr = CD },
		.req = { .rev = 1, .crc = true },
		.rep = { .rev = 1, .crc = true },
		.ird = 16, .crc = true,
	}, {
		.name = "MPA-08 C: responder",
		.l = { .max_ird = 16, .rtr = CD, .crc = true },
		.req = { .rev = 1 },
		.rep = { .rev = 1, .crc = true },
		.ird = 16, .crc = true,
	}, {
		.name = "MPA-08 C: both",
		.l = { .max_ird = 16, .rtr = CD, .crc = true },
		.req = { .rev = 1, .crc = true },
		.rep = { .rev = 1, .crc = true },
		.ird = 16, .crc = true,
	}, {
		.name = "MPA-10 MPA-26 M: initiator",
		.l = { .max_ird = 16, .rtr = CD },
		.req = { .rev = 1, .markers = true },
		.rep = { .rev = 1 },
		.ird = 16,
	}, {
		.name = "MPA-11 MPA-26 M: responder",
		.l = { .max_ird = 16, .rtr = CD, .markers = true },
		.req = { .rev = 1 },
		.rep = { .rev = 1, .markers = true },
		.ird = 16,
	}, {
		.name = "MPA-26 M: both",
		.l = { .max_ird = 16, .rtr = CD, .markers = true },
		.req = { .rev = 1, .markers = true },
		.rep = { .rev = 1, .markers = true },
		.ird = 16,
	}, {
		.name = "MPA2-10 MPA2-41 IRD rises to the initiator's ORD",
		.l = { .ird = 1, .ord = 1, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ird = 8, .ord = 8 },
		.rep = { .rev = 2, .enhanced = true, .ird = 8, .ord = 1 },
		.ird = 8, .ord = 1,
	}, {
		.name = "MPA2-12 IRD asked for is kept",
		.l = { .ird = 12, .ord = 1, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ird = 8, .ord = 8 },
		.rep = { .rev = 2, .enhanced = true, .ird = 12, .ord = 1 },
		.ird = 12, .ord = 1,
	}, {
		.name = "MPA2-46 IRD stops at the limit",
		.l = { .ird = 99, .ord = 1, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ird = 8,
			 .ord = 0x3ffe },
		.rep = { .rev = 2, .enhanced = true, .ird = 16, .ord = 1 },
		.ird = 16, .ord = 1,
	}, {
		.name = "MPA2-11 ORD at most the initiator's IRD",
		.l = { .ird = 1, .ord = 8, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ird = 4, .ord = 1 },
		.rep = { .rev = 2, .enhanced = true, .ird = 1, .ord = 4 },
		.ird = 1, .ord = 4,
	}, {
		.name = "MPA2-20 ORD 0x3FFF",
		.l = { .ird = 7, .ord = 8, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ird = 4, .ord = N },
		.rep = { .rev = 2, .enhanced = true, .ird = N, .ord = 4 },
		.ird = 7, .ord = 4,
	}, {
		.name = "MPA2-22 IRD 0x3FFF",
		.l = { .ird = 7, .ord = 8, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ird = N, .ord = 9 },
		.rep = { .rev = 2, .enhanced = true, .ird = 9, .ord = N },
		.ird = 9, .ord = 8,
	}, {
		.name = "MPA2-13 ORD 0 with a Read RTR",
		.l = { .ird = 0, .ord = 0, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_READ },
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_READ, .ird = 1 },
		.ird = 1,
	}, {
		.name = "MPA2-13 ORD 0x3FFF with a Read RTR",
		.l = { .ird = 0, .ord = 0, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .p2p = true, .ord = N,
			 .rtr = SWP_RTR_READ },
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_READ, .ird = N },
		.ird = 1,
	}, {
		.name = "ORD 0 with a Write RTR",
		.l = { .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_WRITE },
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_WRITE },
	}, {
		.name = "MPA2-27 MPA2-28 all common RTR kinds",
		.l = { .ird = 1, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .p2p = true, .ord = 1,
			 .rtr = CD | SWP_RTR_SEND },
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 1 },
		.ird = 1,
	}, {
		.name = "MPA2-30 no common RTR kind: our own",
		.l = { .ird = 1, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .p2p = true, .ord = 1,
			 .rtr = SWP_RTR_SEND },
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 1 },
		.ird = 1,
	}, {
		.name = "MPA2-26 none offered: our own",
		.l = { .ird = 1, .max_ird = 16, .rtr = SWP_RTR_WRITE },
		.req = { .rev = 2, .enhanced = true, .p2p = true, .ord = 1 },
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_WRITE, .ird = 1 },
		.ird = 1,
	}, {
		.name = "MPA2-27 MPA2-34 client-server",
		.l = { .ird = 1, .max_ird = 16, .rtr = CD },
		.req = { .rev = 2, .enhanced = true, .ord = 1 },
		.rep = { .rev = 2, .enhanced = true, .ird = 1 },
		.ird = 1,
	},
};

static void respond_desc(const struct respond_case *c, char *desc)
{
	strscpy(desc, c->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(respond, respond_cases, respond_desc);

static void respond(struct kunit *test)
{
	const struct respond_case *c = test->param_value;
	struct swp_mpa_result res;
	struct swp_mpa_frame rep;

	memset(&rep, 0xee, sizeof(rep));
	memset(&res, 0xee, sizeof(res));
	swp_mpa_respond(&c->l, &c->req, &rep, &res);
	expect_frame(test, &c->rep, &rep);
	KUNIT_EXPECT_EQ(test, c->ird, res.ird);
	KUNIT_EXPECT_EQ(test, c->ord, res.ord);
	KUNIT_EXPECT_EQ(test, c->crc, res.crc);
	KUNIT_EXPECT_EQ(test, c->rep.rtr, res.rtr);
	KUNIT_EXPECT_EQ(test, c->req.markers, res.tx_markers);
	KUNIT_EXPECT_EQ(test, c->rep.markers, res.rx_markers);
}

/* MPA2-15, MPA2-41: a rejection is a Reply with R, enhanced for enhanced */
static void refuse(struct kunit *test)
{
	static const u8 want[25] = REP_KEY "\x70\x02\x00\x04\x80\x05\x40\x02";
	const struct swp_mpa_local l = {
		.ird = 3, .ord = 9, .max_ird = 16, .rtr = CD
	};
	const struct swp_mpa_frame enhanced = {
		.rev = 2, .crc = true, .enhanced = true, .p2p = true,
		.rtr = SWP_RTR_READ | SWP_RTR_SEND, .ird = 2, .ord = 5
	};
	const struct swp_mpa_frame plain = { .rev = 1, .crc = true };
	struct swp_mpa_frame rep;
	u8 buf[SWP_MPA_FRAME_MAX];

	swp_mpa_refuse(&l, &enhanced, &rep);
	KUNIT_ASSERT_EQ(test, 24, swp_mpa_encode(SWP_MPA_REPLY, &rep, buf));
	KUNIT_EXPECT_MEMEQ(test, want, buf, 24);

	swp_mpa_refuse(&l, &plain, &rep);
	KUNIT_ASSERT_EQ(test, 20, swp_mpa_encode(SWP_MPA_REPLY, &rep, buf));
	KUNIT_EXPECT_EQ(test, 0x60, buf[16]);
	KUNIT_EXPECT_EQ(test, 1, buf[17]);
}

/* The initiator ------------------------------------------------------------ */

/* MPA2-03, MPA2-10, MPA2-25: what is asked for */
static void request(struct kunit *test)
{
	static const u8 rev2[25] = REQ_KEY "\x50\x02\x00\x04\x80\x10\xc0\x08";
	static const u8 rev1[21] = REQ_KEY "\x40\x01\x00\x00";
	const struct swp_mpa_local l = {
		.ird = 99, .ord = 8, .max_ird = 16, .rtr = CD, .p2p = true,
		.crc = true
	};
	struct swp_mpa_frame req;
	u8 buf[SWP_MPA_FRAME_MAX];

	swp_mpa_request(&l, 2, &req);
	KUNIT_ASSERT_EQ(test, 24, swp_mpa_encode(SWP_MPA_REQUEST, &req, buf));
	KUNIT_EXPECT_MEMEQ(test, rev2, buf, 24);

	swp_mpa_request(&l, 1, &req);
	KUNIT_ASSERT_EQ(test, 20, swp_mpa_encode(SWP_MPA_REQUEST, &req, buf));
	KUNIT_EXPECT_MEMEQ(test, rev1, buf, 20);
}

/* MPA2-34, MPA2-43: client-server, and nothing that revision 1 has not */
static void request_client_server(struct kunit *test)
{
	static const u8 depths[25] = REQ_KEY "\x10\x02\x00\x04\x00\x00\x00\x08";
	static const u8 plain[21] = REQ_KEY "\x00\x01\x00\x00";
	struct swp_mpa_local l = { .ord = 8, .max_ird = 16, .rtr = CD };
	struct swp_mpa_frame req;
	u8 buf[SWP_MPA_FRAME_MAX];

	swp_mpa_request(&l, 2, &req);
	KUNIT_ASSERT_EQ(test, 24, swp_mpa_encode(SWP_MPA_REQUEST, &req, buf));
	KUNIT_EXPECT_MEMEQ(test, depths, buf, 24);

	l.ord = 0;
	swp_mpa_request(&l, 2, &req);
	KUNIT_ASSERT_EQ(test, 20, swp_mpa_encode(SWP_MPA_REQUEST, &req, buf));
	KUNIT_EXPECT_MEMEQ(test, plain, buf, 20);
}

struct conclude_case {
	const char *name;
	u8 rev;				/* of our Request */
	bool no_crc;			/* in our Request */
	bool markers;			/* in our Request */
	bool client_server;		/* our Request has A=0 */
	u8 offer;			/* RTR kinds we can send; 0: both */
	struct swp_mpa_frame rep;
	enum swp_mpa_verdict want;
	struct swp_mpa_result res;
};

/* The Request of all these: IRD 4 (limit 16), ORD 8, C and D. */
static const struct conclude_case conclude_cases[] = {
	{
		.name = "revision 1",
		.rev = 1,
		.rep = { .rev = 1 },
		.res = { .crc = true, .ird = 16, .ord = 8 },
	}, {
		.name = "MPA-08 C: neither",
		.rev = 1, .no_crc = true,
		.rep = { .rev = 1 },
		.res = { .ird = 16, .ord = 8 },
	}, {
		.name = "MPA-08 C: responder",
		.rev = 1, .no_crc = true,
		.rep = { .rev = 1, .crc = true },
		.res = { .crc = true, .ird = 16, .ord = 8 },
	}, {
		.name = "MPA-08 C: both",
		.rev = 1,
		.rep = { .rev = 1, .crc = true },
		.res = { .crc = true, .ird = 16, .ord = 8 },
	}, {
		.name = "MPA-27 rejected",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .reject = true },
		.want = SWP_MPA_REJECTED,
	}, {
		.name = "rejected by a plain Reply",
		.rev = 2,
		.rep = { .rev = 1, .reject = true },
		.want = SWP_MPA_REJECTED,
	}, {
		.name = "rejected, markers do not matter",
		.rev = 2,
		.rep = { .rev = 1, .reject = true, .markers = true },
		.want = SWP_MPA_REJECTED,
	}, {
		.name = "MPA2-41 plain Reply to an enhanced Request",
		.rev = 2,
		.rep = { .rev = 2 },
		.want = SWP_MPA_INVALID,
	}, {
		.name = "MPA-26 M: responder",
		.rev = 1,
		.rep = { .rev = 1, .markers = true },
		.res = { .crc = true, .ird = 16, .ord = 8,
			 .tx_markers = true },
	}, {
		.name = "MPA-26 M: initiator",
		.rev = 1, .markers = true,
		.rep = { .rev = 1 },
		.res = { .crc = true, .ird = 16, .ord = 8,
			 .rx_markers = true },
	}, {
		.name = "MPA2-17 enough for us",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 8, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-17 ORD falls to the responder's IRD",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 3, .ord = 2 },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 4, .ord = 3 },
	}, {
		.name = "more IRD than asked for",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 0x3ffe, .ord = 2 },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-17 IRD rises to the responder's ORD",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 8, .ord = 16 },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 16, .ord = 8 },
	}, {
		.name = "MPA2-18 IRD cannot rise that far",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 8, .ord = 17 },
		.want = SWP_MPA_NO_IRD,
	}, {
		.name = "MPA2-21 IRD 0x3FFF",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = N, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-23 ORD 0x3FFF",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true, .rtr = CD,
			 .ird = 2, .ord = N },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 4, .ord = 2 },
	}, {
		.name = "MPA2-32 Write RTR",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_WRITE | SWP_RTR_SEND,
			 .ird = 8, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_WRITE,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-32 Read RTR",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_READ | SWP_RTR_SEND,
			 .ird = 8, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_READ,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "Read RTR has a place whatever was agreed",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_READ, .ird = 0, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_READ,
			 .ird = 4, .ord = 1 },
	}, {
		.name = "MPA2-32 Send RTR where we can",
		.rev = 2, .offer = SWP_RTR_SEND,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = CD | SWP_RTR_SEND, .ird = 8, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_SEND,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-31 MPA2-33 only what we cannot send",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_SEND, .ird = 8, .ord = 4 },
		.want = SWP_MPA_NO_RTR,
	}, {
		.name = "MPA2-33 none",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .ird = 8, .ord = 4 },
		.want = SWP_MPA_NO_RTR,
	}, {
		.name = "MPA2-35 A=0 both ways, B, C and D do not count",
		.rev = 2, .client_server = true,
		.rep = { .rev = 2, .enhanced = true, .rtr = CD,
			 .ird = 8, .ord = 4 },
		.res = { .crc = true, .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-32 A=1 for A=0 gets its RTR",
		.rev = 2, .client_server = true,
		.rep = { .rev = 2, .enhanced = true, .p2p = true,
			 .rtr = SWP_RTR_READ, .ird = 8, .ord = 4 },
		.res = { .crc = true, .rtr = SWP_RTR_READ,
			 .ird = 4, .ord = 8 },
	}, {
		.name = "MPA2-27 A not returned",
		.rev = 2,
		.rep = { .rev = 2, .enhanced = true, .ird = 8, .ord = 4 },
		.want = SWP_MPA_NO_RTR,
	},
};

static void conclude_desc(const struct conclude_case *c, char *desc)
{
	strscpy(desc, c->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(conclude, conclude_cases, conclude_desc);

static void conclude(struct kunit *test)
{
	const struct conclude_case *c = test->param_value;
	const struct swp_mpa_local l = {
		.ird = 4, .ord = 8, .max_ird = 16, .crc = !c->no_crc,
		.p2p = !c->client_server, .markers = c->markers,
		.rtr = c->offer ? c->offer : CD,
	};
	struct swp_mpa_result res;
	struct swp_mpa_frame req;

	swp_mpa_request(&l, c->rev, &req);
	memset(&res, 0xee, sizeof(res));
	KUNIT_ASSERT_EQ(test, c->want,
			swp_mpa_conclude(&l, &req, &c->rep, &res));
	if (c->want != SWP_MPA_AGREED)
		return;
	KUNIT_EXPECT_EQ(test, c->res.crc, res.crc);
	KUNIT_EXPECT_EQ(test, c->res.rtr, res.rtr);
	KUNIT_EXPECT_EQ(test, c->res.ird, res.ird);
	KUNIT_EXPECT_EQ(test, c->res.ord, res.ord);
	KUNIT_EXPECT_EQ(test, c->res.tx_markers, res.tx_markers);
	KUNIT_EXPECT_EQ(test, c->res.rx_markers, res.rx_markers);
}

/*
 * Two ends of ours with every mixture of small wishes: the rules of RFC 6581
 * section 9.1 hold for what each of them ends up with.
 */
static void both_ends(struct kunit *test)
{
	struct swp_mpa_frame req, rep;
	struct swp_mpa_result ires, rres;
	int n;

	for (n = 0; n < 6 * 6 * 6 * 6; n++) {
		const struct swp_mpa_local i = {
			.ird = n % 6, .ord = n / 6 % 6, .max_ird = 4, .rtr = CD,
			.p2p = true
		};
		const struct swp_mpa_local r = {
			.ird = n / 36 % 6, .ord = n / 216, .max_ird = 4,
			.rtr = CD
		};

		swp_mpa_request(&i, 2, &req);
		swp_mpa_respond(&r, &req, &rep, &rres);
		KUNIT_ASSERT_EQ(test, SWP_MPA_AGREED,
				swp_mpa_conclude(&i, &req, &rep, &ires));
		KUNIT_EXPECT_LE(test, ires.ord, rres.ird);
		KUNIT_EXPECT_LE(test, rres.ord, ires.ird);
		KUNIT_EXPECT_LE(test, ires.ord, i.ord);
		KUNIT_EXPECT_LE(test, rres.ord, r.ord);
		KUNIT_EXPECT_LE(test, ires.ird, 4);
		KUNIT_EXPECT_LE(test, rres.ird, 4);
		KUNIT_EXPECT_EQ(test, ires.crc, rres.crc);
		KUNIT_EXPECT_EQ(test, SWP_RTR_WRITE, ires.rtr);
	}
}

static struct kunit_case mpa_cases[] = {
	KUNIT_CASE_PARAM(decode_every_length, frame_gen_params),
	KUNIT_CASE_PARAM(encode, frame_gen_params),
	KUNIT_CASE_PARAM(refuse_bad, bad_gen_params),
	KUNIT_CASE(consortium_flags),
	KUNIT_CASE(consortium),
	KUNIT_CASE(every_key_octet),
	KUNIT_CASE(largest_private_data),
	KUNIT_CASE_PARAM(respond, respond_gen_params),
	KUNIT_CASE(refuse),
	KUNIT_CASE(request),
	KUNIT_CASE(request_client_server),
	KUNIT_CASE_PARAM(conclude, conclude_gen_params),
	KUNIT_CASE(both_ends),
	{}
};

static struct kunit_suite mpa_suite = {
	.name = "softwarp_mpa",
	.test_cases = mpa_cases,
};

kunit_test_suite(mpa_suite);
