/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Socket options of the level SOL_SDP.  The socket is locked; @link is NULL if
 * it has none.  The functions return what the system call returns.
 */
#ifndef SDP_OPTION_H
#define SDP_OPTION_H

#include <linux/sockptr.h>
#include <net/sock.h>

struct sdp_link;

int sdp_option_set(struct sock *sk, struct sdp_link *link, int name,
		   sockptr_t val, unsigned int len);
int sdp_option_get(struct sock *sk, struct sdp_link *link, int name,
		   char __user *val, int __user *len);
/* Neither connected nor listening, nor about to be; the socket is locked. */
bool sdp_option_is_idle(const struct sock *sk);

#endif /* SDP_OPTION_H */
