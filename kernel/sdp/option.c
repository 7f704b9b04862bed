// SPDX-License-Identifier: GPL-2.0
/*
 * Socket options of our own, see option.h.
 */
#include <linux/build_bug.h>
#include <linux/uaccess.h>
#include <net/tcp.h>

#include "link.h"
#include "option.h"
#include "sock.h"
#include "uapi/softwarp_sdp.h"

/* Internal numbers that programs see unchanged */
#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs))

SAME(SDP_LAYOUT_DRAFT, SDP_INFO_LAYOUT_DRAFT);
SAME(SDP_LAYOUT_IB, SDP_INFO_LAYOUT_IB);
SAME(SDP_MODE_BUFFERED, SDP_INFO_MODE_BUFFERED);
SAME(SDP_MODE_COMBINED, SDP_INFO_MODE_COMBINED);
SAME(SDP_MODE_PIPELINED, SDP_INFO_MODE_PIPELINED);
SAME(SDP_FAULT_NONE, SDP_INFO_FAULT_NONE);
SAME(SDP_FAULT_MALFORMED, SDP_INFO_FAULT_MALFORMED);
SAME(SDP_FAULT_MSEQ, SDP_INFO_FAULT_MSEQ);
SAME(SDP_FAULT_ACK, SDP_INFO_FAULT_ACK);
SAME(SDP_FAULT_OVERRUN, SDP_INFO_FAULT_OVERRUN);
SAME(SDP_FAULT_SIZE, SDP_INFO_FAULT_SIZE);
SAME(SDP_FAULT_UNEXPECTED, SDP_INFO_FAULT_UNEXPECTED);
SAME(SDP_FAULT_MODE, SDP_INFO_FAULT_MODE);
SAME(SDP_FAULT_ADVERTS, SDP_INFO_FAULT_ADVERTS);
SAME(SDP_FAULT_PAYLOAD, SDP_INFO_FAULT_PAYLOAD);
SAME(SDP_FAULT_UNFINISHED, SDP_INFO_FAULT_UNFINISHED);
SAME(SDP_FAULT_RESIZE, SDP_INFO_FAULT_RESIZE);
SAME(SDP_FAULT_INVALIDATE, SDP_INFO_FAULT_INVALIDATE);
SAME(SDP_FAULTS, SDP_INFO_FAULT_INVALIDATE + 1);
SAME(IB_DEVICE_NAME_MAX, sizeof_field(struct sdp_info, device));

/* SDP_INFO ---------------------------------------------------------------------- */

/* Of a connection that is or was UP */
static void tell_conn(const struct sdp_link *link, struct sdp_info *info)
{
	const struct sdp_conn *c = &link->conn;

	lockdep_assert_held(&link->lock);
	info->tx_mode = c->source.mode;
	info->rx_mode = c->sink.mode;
	info->fault = c->fault;
	info->own_credits = c->credits.posted - c->credits.received;
	info->peer_credits = sdp_credits_left(&c->credits);
	info->own_size = c->resize.own;
	info->peer_size = c->resize.peer;
	info->tx_bcopy = c->source.sent;
}

static void tell_link(struct sock *sk, struct sdp_link *link,
		      struct sdp_info *info)
{
	int queued;

	spin_lock_bh(&link->lock);
	info->state = sdp_link_state(link);
	info->layout = link->layout;
	info->transport = SDP_INFO_TRANSPORT_SDP;
	/* the peer's buffer size is set when link->conn is initialised */
	if (link->conn.resize.peer)
		tell_conn(link, info);
	info->error = link->error;
	info->own_bufs = link->rx_count;
	info->rx_queue = link->rx_octets;
	info->rx_bcopy = link->rx_total;
	queued = sk->sk_wmem_queued - atomic_read(&link->tx_done);
	info->tx_queue = max(queued, 0);
	strscpy(info->device, link->seen.device, sizeof(info->device));
	spin_unlock_bh(&link->lock);
}

/* Without struct sdp_sock, TCP has accepted a socket for an auto listener. */
static u8 policy_of(const struct sock *sk)
{
	const struct sdp_sock *ss = sdp_sk(sk);

	return ss ? ss->policy : SDP_INFO_POLICY_AUTO;
}

static u8 layout_of(const struct sock *sk, const struct sdp_link *link)
{
	const struct sdp_sock *ss = sdp_sk(sk);

	if (link)
		return link->layout;
	return ss ? ss->layout : SDP_LAYOUT_DRAFT;
}

static u8 initiator_of(const struct sock *sk, const struct sdp_link *link)
{
	const struct sdp_sock *ss = sdp_sk(sk);

	if (link)
		return READ_ONCE(link->initiator);
	return ss ? ss->initiator : SDP_INFO_INITIATOR_ACCEPTOR;
}

static void tell(struct sock *sk, struct sdp_link *link, struct sdp_info *info)
{
	struct sdp_sock *ss = sdp_sk(sk);

	memset(info, 0, sizeof(*info));
	info->layout = layout_of(sk, link);
	info->initiator = initiator_of(sk, link);
	info->tx_mode = SDP_INFO_MODE_NONE;
	info->rx_mode = SDP_INFO_MODE_NONE;
	info->policy = policy_of(sk);
	if (link)
		tell_link(sk, link, info);
	else if (sk->sk_state == TCP_LISTEN)
		info->state = SDP_INFO_LISTEN;
	/* connect() has not chosen SDP or TCP yet */
	if (ss && ss->undecided)
		info->transport = SDP_INFO_TRANSPORT_NONE;
	if (ss && (!ss->tcp || rcu_access_pointer(ss->listener)))
		return;
	info->transport = SDP_INFO_TRANSPORT_TCP;
	info->reason = ss ? ss->reason : SDP_INFO_REASON_PEER;
}

/* Calls -------------------------------------------------------------------------- */

bool sdp_option_is_idle(const struct sock *sk)
{
	const struct sdp_sock *ss = sdp_sk(sk);

	return ss && !rcu_access_pointer(ss->link) &&
	       !rcu_access_pointer(ss->listener) && !ss->undecided &&
	       sk->sk_state == TCP_CLOSE;
}

static int set_layout(struct sdp_sock *ss, int value)
{
	if (value != SDP_LAYOUT_DRAFT && value != SDP_LAYOUT_IB)
		return -EINVAL;
	ss->layout = value;
	return 0;
}

static int set_initiator(struct sdp_sock *ss, int value)
{
	if (value != SDP_INFO_INITIATOR_ACCEPTOR &&
	    value != SDP_INFO_INITIATOR_CONNECTOR)
		return -EINVAL;
	ss->initiator = value;
	return 0;
}

static int set_policy(struct sdp_sock *ss, int value)
{
	if (value < SDP_INFO_POLICY_SDP || value > SDP_INFO_POLICY_TCP)
		return -EINVAL;
	WRITE_ONCE(ss->policy, value);
	return 0;
}

int sdp_option_set(struct sock *sk, struct sdp_link *link, int name,
		   sockptr_t val, unsigned int len)
{
	int value;

	sock_owned_by_me(sk);
	if (name != SDP_LAYOUT && name != SDP_POLICY && name != SDP_INITIATOR)
		return -ENOPROTOOPT;
	if (len < sizeof(value))
		return -EINVAL;
	if (copy_from_sockptr(&value, val, sizeof(value)))
		return -EFAULT;
	if (!sdp_option_is_idle(sk))
		return -EINVAL;
	switch (name) {
	case SDP_LAYOUT:
		return set_layout(sdp_sk(sk), value);
	case SDP_INITIATOR:
		return set_initiator(sdp_sk(sk), value);
	default:
		return set_policy(sdp_sk(sk), value);
	}
}

/* Copy as much of a value as the program has room for. */
static int give(const void *found, int size, char __user *val, int __user *len)
{
	int room;

	if (get_user(room, len))
		return -EFAULT;
	if (room < 0)
		return -EINVAL;
	room = min(room, size);
	if (put_user(room, len) || copy_to_user(val, found, room))
		return -EFAULT;
	return 0;
}

int sdp_option_get(struct sock *sk, struct sdp_link *link, int name,
		   char __user *val, int __user *len)
{
	struct sdp_info info;
	int value;

	sock_owned_by_me(sk);
	switch (name) {
	case SDP_LAYOUT:
		value = layout_of(sk, link);
		return give(&value, sizeof(value), val, len);
	case SDP_INITIATOR:
		value = initiator_of(sk, link);
		return give(&value, sizeof(value), val, len);
	case SDP_POLICY:
		value = policy_of(sk);
		return give(&value, sizeof(value), val, len);
	case SDP_INFO:
		tell(sk, link, &info);
		return give(&info, sizeof(info), val, len);
	}
	return -ENOPROTOOPT;
}
