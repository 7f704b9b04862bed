/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own sockets: carriers, and those of the port mapper.  For the
 * BPF programs of a cgroup and for security modules the calls of a program are
 * those on its own socket.  What we do for it with another one must not run
 * them a second time: a program may change the address of each call.
 */
#ifndef SDP_OWN_H
#define SDP_OWN_H

#include <net/sock.h>

#include "ends.h"

/*
 * sdp_own_bind - bind to an address and a port, or with port 0 to any port
 * Without the checks of bind(): the address is one that was bound before, or
 * that has a route.  0 or -EADDRINUSE.
 *
 * sdp_own_connect - begin to connect
 * 0: in progress or done, else a negative errno.
 *
 * sdp_own_name - the local address of a connection, also of one that was reset
 * Not kernel_getsockname(), which runs BPF programs, too.
 *
 * The socket is not locked.
 */
int sdp_own_bind(struct socket *sock, const union sdp_end *at);
int sdp_own_connect(struct socket *sock, const union sdp_end *to, int len);
void sdp_own_name(const struct sock *sk, union sdp_end *own);

/*
 * Move a new socket to the cgroup of a program's: a work item may have made it,
 * and the programs for packets are those of the cgroup.
 */
void sdp_own_cgroup(struct sock *to, const struct sock *from);

#endif /* SDP_OWN_H */
