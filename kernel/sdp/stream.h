/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Send, receive, poll and ioctl of a connected socket.  The socket is locked in
 * all of these but sdp_stream_poll().  They return what the system call
 * returns.
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
/* -ENOIOCTLCMD: it is left to TCP */
int sdp_stream_ioctl(struct sock *sk, struct sdp_link *link, unsigned int cmd,
		     int *value);
/* Apply a change of TCP_NODELAY or TCP_CORK. */
void sdp_stream_options(struct sock *sk, struct sdp_link *link);
/* SO_LINGER: wait until the peer has everything, or the link is down */
void sdp_stream_wait_close(struct sock *sk, struct sdp_link *link, long timeo);
/* Once there is no socket any more */
void sdp_stream_exit(void);

#endif /* SDP_STREAM_H */
