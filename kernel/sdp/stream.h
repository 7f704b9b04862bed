/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The octets of a connected socket: sending, receiving, what poll and ioctl say.
 * The socket is locked in all of these but sdp_stream_poll(); they return what
 * the system call does.
 */
#ifndef SDP_STREAM_H
#define SDP_STREAM_H

#include <linux/net.h>
#include <linux/poll.h>
#include <net/sock.h>

#include "link.h"

int sdp_stream_send(struct sock *sk, struct sdp_link *link, struct msghdr *msg,
		    size_t len);
int sdp_stream_recv(struct sock *sk, struct sdp_link *link, struct msghdr *msg,
		    size_t len, int flags);
/* Under RCU */
__poll_t sdp_stream_poll(struct socket *sock, struct sdp_link *link);
/* -ENOIOCTLCMD: TCP's */
int sdp_stream_ioctl(struct sock *sk, struct sdp_link *link, unsigned int cmd,
		     int __user *arg);
/* TCP_NODELAY or TCP_CORK has changed. */
void sdp_stream_options(struct sock *sk, struct sdp_link *link);
/* SO_LINGER: until the peer has all of it, or it is over */
void sdp_stream_wait_close(struct sock *sk, struct sdp_link *link, long timeo);

#endif /* SDP_STREAM_H */
