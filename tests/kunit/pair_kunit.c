// SPDX-License-Identifier: GPL-2.0
/*
 * The messages of queue pairs that ibv_modify_qp() connects, and what the two
 * ends decide.  Octets are those of Documentation/wire-formats.md.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "proto/pair.h"

#define GID_1	{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1 }
#define GID_2	{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2 }

static const struct swp_pair_msg request = {
	.kind = SWP_PAIR_REQUEST,
	.view = {
		.self = { GID_1, 0x010203 },
		.peer = { GID_2, 0xa0b0c0 },
		.recv_psn = 0x111213,
		.send_psn = 0xfefdfc,
	},
};

static const u8 octets[SWP_PAIR_LEN] = {
	's', 'w', 'Q', 'P', 1, 1, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2,
	0, 1, 2, 3, 0, 0xa0, 0xb0, 0xc0,
	0, 0x11, 0x12, 0x13, 0, 0xfe, 0xfd, 0xfc,
};

static void layout(struct kunit *test)
{
	struct swp_pair_msg m;
	u8 buf[SWP_PAIR_LEN];

	swp_pair_encode(&request, buf);
	KUNIT_EXPECT_MEMEQ(test, buf, octets, sizeof(buf));
	KUNIT_ASSERT_EQ(test, 0, swp_pair_decode(octets, sizeof(octets), &m));
	KUNIT_EXPECT_EQ(test, request.kind, m.kind);
	KUNIT_EXPECT_MEMEQ(test, &m.view, &request.view, sizeof(m.view));
}

static void refusal(struct kunit *test)
{
	const struct swp_pair_msg no = {
		.kind = SWP_PAIR_REFUSAL,
		.reason = SWP_PAIR_WRONG_PSN,
		/* must not be told to a peer that may be a stranger */
		.view = request.view,
	};
	struct swp_pair_msg m;
	u8 buf[SWP_PAIR_LEN];

	swp_pair_encode(&no, buf);
	KUNIT_EXPECT_EQ(test, 3, (int)buf[5]);
	KUNIT_EXPECT_EQ(test, 2, (int)buf[6]);
	KUNIT_EXPECT_PTR_EQ(test, NULL,
			    memchr_inv(buf + 7, 0, sizeof(buf) - 7));
	KUNIT_ASSERT_EQ(test, 0, swp_pair_decode(buf, sizeof(buf), &m));
	KUNIT_EXPECT_EQ(test, SWP_PAIR_WRONG_PSN, m.reason);
}

static const struct {
	const char *desc;
	u8 at;
	u8 value;
	int result;
} broken[] = {
	{ "magic", 0, 'S', -EBADMSG },
	{ "magic, last octet", 3, 0, -EBADMSG },
	{ "version 0", 4, 0, -EPROTONOSUPPORT },
	{ "version 2", 4, 2, -EPROTONOSUPPORT },
	{ "kind 0", 5, 0, -EPROTO },
	{ "kind 4", 5, 4, -EPROTO },
	{ "a refusal without reason", 5, 3, -EPROTO },
	{ "a request with a reason", 6, 1, -EPROTO },
	{ "an unknown reason", 6, 4, -EPROTO },
	{ "the reserved octet", 7, 1, -EPROTO },
	{ "25 bits of QPN", 40, 1, -EPROTO },
	{ "25 bits of the peer's QPN", 44, 1, -EPROTO },
	{ "25 bits of PSN", 48, 1, -EPROTO },
	{ "25 bits of the other PSN", 52, 1, -EPROTO },
	/* 0xff...: NONE has all bits */
	{ "nearly no PSN", 52, 0xff, -EPROTO },
};

static void malformed(struct kunit *test)
{
	struct swp_pair_msg m;
	u8 buf[SWP_PAIR_LEN];
	int i;

	for (i = 0; i < ARRAY_SIZE(broken); i++) {
		memcpy(buf, octets, sizeof(buf));
		buf[broken[i].at] = broken[i].value;
		KUNIT_EXPECT_EQ_MSG(test, broken[i].result,
				    swp_pair_decode(buf, sizeof(buf), &m),
				    "%s", broken[i].desc);
	}
	for (i = 0; i < SWP_PAIR_LEN; i++)
		KUNIT_EXPECT_NE(test, 0, swp_pair_decode(octets, i, &m));
	KUNIT_EXPECT_EQ(test, -EPROTO,
			swp_pair_decode(octets, SWP_PAIR_LEN + 1, &m));
	/* a refusal has nothing behind its reason */
	memcpy(buf, octets, sizeof(buf));
	buf[5] = SWP_PAIR_REFUSAL;
	buf[6] = SWP_PAIR_NOT_HERE;
	KUNIT_EXPECT_EQ(test, -EPROTO, swp_pair_decode(buf, sizeof(buf), &m));
}

/* The view of the other end, if both consumers said the same */
static struct swp_pair_view other(const struct swp_pair_view *v)
{
	return (struct swp_pair_view) {
		.self = v->peer, .peer = v->self,
		.recv_psn = v->send_psn, .send_psn = v->recv_psn,
	};
}

/* Both ends come to the same result. */
static void expect(struct kunit *test, const struct swp_pair_view *ours,
		   const struct swp_pair_view *theirs,
		   enum swp_pair_verdict verdict)
{
	KUNIT_EXPECT_EQ(test, swp_pair_compare(ours, theirs), verdict);
	KUNIT_EXPECT_EQ(test, swp_pair_compare(theirs, ours), verdict);
}

static void comparing(struct kunit *test)
{
	struct swp_pair_view a = request.view, b = other(&a);

	expect(test, &a, &b, SWP_PAIR_FITS);
	b.self.gid[15] ^= 1;
	expect(test, &a, &b, SWP_PAIR_STRANGER);
	b = other(&a);
	b.peer.gid[0] ^= 1;
	expect(test, &a, &b, SWP_PAIR_STRANGER);
	b = other(&a);
	b.self.qpn++;
	expect(test, &a, &b, SWP_PAIR_STRANGER);
	b = other(&a);
	b.peer.qpn++;
	expect(test, &a, &b, SWP_PAIR_STRANGER);
	/* the wrong PSN of a stranger is still a stranger's */
	b.send_psn++;
	expect(test, &a, &b, SWP_PAIR_STRANGER);
	b = other(&a);
	b.send_psn++;
	expect(test, &a, &b, SWP_PAIR_PSN_DIFFERS);
	b = other(&a);
	b.recv_psn++;
	expect(test, &a, &b, SWP_PAIR_PSN_DIFFERS);
}

static void comparing_early(struct kunit *test)
{
	struct swp_pair_view a = request.view, b = other(&a);

	/* one end is in RTR, and the other can be compared */
	b.send_psn = SWP_PAIR_PSN_NONE;
	expect(test, &a, &b, SWP_PAIR_FITS);
	b.recv_psn++;
	expect(test, &a, &b, SWP_PAIR_PSN_DIFFERS);
	/* both are */
	a.send_psn = SWP_PAIR_PSN_NONE;
	expect(test, &a, &b, SWP_PAIR_TOO_EARLY);
}

static void order(struct kunit *test)
{
	struct swp_pair_end a = { GID_1, 7 }, b = { GID_2, 3 };

	KUNIT_EXPECT_LT(test, swp_pair_order(&a, &b), 0);
	KUNIT_EXPECT_GT(test, swp_pair_order(&b, &a), 0);
	/* on one device */
	memcpy(b.gid, a.gid, sizeof(b.gid));
	KUNIT_EXPECT_GT(test, swp_pair_order(&a, &b), 0);
	KUNIT_EXPECT_LT(test, swp_pair_order(&b, &a), 0);
	b.qpn = a.qpn;
	KUNIT_EXPECT_EQ(test, swp_pair_order(&a, &b), 0);
}

static void times(struct kunit *test)
{
	u32 i;

	for (i = 0; i < 40; i++) {
		KUNIT_EXPECT_GE(test, swp_pair_pause(i), SWP_PAIR_PAUSE_MIN);
		KUNIT_EXPECT_LE(test, swp_pair_pause(i), SWP_PAIR_PAUSE_MAX);
		KUNIT_EXPECT_GE(test, swp_pair_pause(i + 1), swp_pair_pause(i));
	}
	KUNIT_EXPECT_EQ(test, swp_pair_pause(U32_MAX), SWP_PAIR_PAUSE_MAX);
	/* 4.096 us * 2^20 is 4.3 s, 8 times */
	KUNIT_EXPECT_EQ(test, swp_pair_patience(20, 7, 0, 60000), 32768);
	KUNIT_EXPECT_EQ(test, swp_pair_patience(14, 7, 5000, 60000), 5000);
	KUNIT_EXPECT_EQ(test, swp_pair_patience(31, 7, 5000, 60000), 60000);
	KUNIT_EXPECT_EQ(test, swp_pair_patience(0, 7, 5000, 60000), 60000);
	KUNIT_EXPECT_EQ(test, swp_pair_patience(1, 0, 5000, 1000), 1000);
	KUNIT_EXPECT_EQ(test, swp_pair_patience(255, 255, 0, U32_MAX), 67108864);
}

static const struct {
	const char *desc;
	u8 gid[SWP_PAIR_GID_LEN];
	enum swp_gid_kind kind;
} gids[] = {
	{ "zero", {}, SWP_GID_NOBODY },
	{ "10.77.0.1", GID_1, SWP_GID_IPV4 },
	{ "127.0.0.1", { [10] = 255, 255, 127, 0, 0, 1 }, SWP_GID_IPV4 },
	{ "0.0.0.0", { [10] = 255, 255, 0, 0, 0, 0 }, SWP_GID_NOBODY },
	{ "224.0.0.1", { [10] = 255, 255, 224, 0, 0, 1 }, SWP_GID_NOBODY },
	{ "255.255.255.255", { [10] = 255, 255, 255, 255, 255, 255 },
	  SWP_GID_NOBODY },
	{ "::1", { [15] = 1 }, SWP_GID_IPV6 },
	{ "fd77::1", { 0xfd, 0x77, [15] = 1 }, SWP_GID_IPV6 },
	{ "fe80::1", { 0xfe, 0x80, [15] = 1 }, SWP_GID_LINK_LOCAL },
	{ "febf::1", { 0xfe, 0xbf, [15] = 1 }, SWP_GID_LINK_LOCAL },
	{ "fec0::1", { 0xfe, 0xc0, [15] = 1 }, SWP_GID_IPV6 },
	{ "ff02::1", { 0xff, 0x02, [15] = 1 }, SWP_GID_NOBODY },
	{ "02:00:00:00:00:01", { 2, 0, 0, 0, 0, 1 }, SWP_GID_MAC },
};

static void kinds(struct kunit *test)
{
	static const u8 mac[SWP_PAIR_GID_LEN] = { 0x52, 0x54, 0, 0x12, 0x34,
						  0x56 };
	/* RFC 4291 appendix A */
	static const u8 address[SWP_PAIR_GID_LEN] = {
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x12,
		0x34, 0x56
	};
	u8 addr[SWP_PAIR_GID_LEN];
	int i;

	for (i = 0; i < ARRAY_SIZE(gids); i++)
		KUNIT_EXPECT_EQ_MSG(test, gids[i].kind,
				    swp_gid_kind(gids[i].gid), "%s",
				    gids[i].desc);
	swp_gid_from_mac(mac, addr);
	KUNIT_EXPECT_MEMEQ(test, addr, address, sizeof(addr));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(layout),
	KUNIT_CASE(refusal),
	KUNIT_CASE(malformed),
	KUNIT_CASE(comparing),
	KUNIT_CASE(comparing_early),
	KUNIT_CASE(order),
	KUNIT_CASE(times),
	KUNIT_CASE(kinds),
	{}
};

static struct kunit_suite suite = {
	.name = "softwarp_pair",
	.test_cases = cases,
};

kunit_test_suite(suite);
