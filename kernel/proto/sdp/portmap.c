// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of the port mapper, see portmap.h.
 */
#include "portmap.h"

/* wire layout: no holes, no alignment; the pragma works in every build */
#pragma pack(push, 1)

struct pm_wire {
	__u8 kind;		/* version, type, IP version: 2, 2 and 4 bits */
	__u8 time;
	__be16 reserved;
	__be16 ap_port;
	__be16 cp_port;
	__be64 handle;
	__u8 cp_addr[16];
	__u8 ap_addr[16];
};

#pragma pack(pop)

static_assert(sizeof(struct pm_wire) == SDP_PM_LEN, "section 7.3, 48 octets");

/* IPv4 uses 4 of the 16 octets; the others are sent as zero, else ignored. */
static void copy_addr(__u8 *to, const __u8 *from, __u8 version)
{
	memset(to, 0, 16);
	memcpy(to, from, version == 4 ? 4 : 16);
}

void sdp_pm_encode(const struct sdp_pm_msg *msg, __u8 *buf)
{
	struct pm_wire w = {
		.kind = (__u8)(msg->type << 4 | msg->version),
		.time = msg->time,
		.ap_port = cpu_to_be16(msg->ap_port),
		.cp_port = cpu_to_be16(msg->cp_port),
		.handle = cpu_to_be64(msg->handle),
	};

	copy_addr(w.cp_addr, msg->cp_addr, msg->version);
	copy_addr(w.ap_addr, msg->ap_addr, msg->version);
	memcpy(buf, &w, sizeof(w));
}

int sdp_pm_decode(const __u8 *buf, __u32 len, struct sdp_pm_msg *msg)
{
	struct pm_wire w;

	if (len < sizeof(w))
		return -EPROTO;
	memcpy(&w, buf, sizeof(w));
	msg->type = w.kind >> 4 & 3;
	msg->version = w.kind & 0xf;
	msg->time = w.time;
	msg->ap_port = be16_to_cpu(w.ap_port);
	msg->cp_port = be16_to_cpu(w.cp_port);
	msg->handle = be64_to_cpu(w.handle);
	copy_addr(msg->cp_addr, w.cp_addr, msg->version);
	copy_addr(msg->ap_addr, w.ap_addr, msg->version);
	if (w.kind >> 6 || (msg->version != 4 && msg->version != 6))
		return -EPROTO;
	return 0;
}

__u64 sdp_pm_time_ms(__u8 time)
{
	if (time == SDP_PM_FOR_EVER)
		return ~0ULL;
	return time < 128 ? time * 250ULL : time * 1000ULL;
}
