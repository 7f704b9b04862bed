// SPDX-License-Identifier: GPL-2.0
/*
 * An octet out of band, see urgent.h.
 */
#include "urgent.h"

static bool marks(const struct sdp_urgent *u)
{
	return u->state == SDP_URGENT_THERE || u->state == SDP_URGENT_READ;
}

/*
 * A new octet out of band replaces the old one, which becomes an ordinary octet
 * of the stream.  But if the program is at the old mark, drop the old octet:
 * the program has been signalled for it, and may never read past it.
 */
static void replace(struct sdp_urgent *u, __u64 read)
{
	if (read < u->gone)
		read = u->gone;
	if (marks(u) && u->mark == read)
		u->gone = u->mark + 1;
}

bool sdp_urgent_pend(struct sdp_urgent *u, __u64 received, __u64 read)
{
	bool tell = u->state != SDP_URGENT_TOLD;

	replace(u, read);
	u->state = SDP_URGENT_TOLD;
	u->told = received;
	return tell;
}

bool sdp_urgent_take(struct sdp_urgent *u, __u64 received, const __u8 *last,
		     __u64 read)
{
	bool tell = u->state != SDP_URGENT_TOLD;

	if (!last) {
		if (!tell && received - u->told > SDP_OOB_AHEAD)
			u->state = SDP_URGENT_NONE;
		return false;
	}
	replace(u, read);
	u->state = SDP_URGENT_THERE;
	u->mark = received - 1;
	u->octet = *last;
	return tell;
}

void sdp_urgent_read(struct sdp_urgent *u, __u64 read)
{
	if (marks(u) && read > u->mark)
		u->state = SDP_URGENT_NONE;
}

__u64 sdp_urgent_left(const struct sdp_urgent *u, __u64 read)
{
	return marks(u) && u->mark >= read ? u->mark - read : ~(__u64)0;
}
