/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The protocol family AF_INET_SDP and the protocol IPPROTO_SDP of AF_INET and
 * AF_INET6.  Our socket is a TCP socket, from TCP's slab cache, with copies of
 * TCP's struct proto and struct proto_ops in which our calls replace some of
 * TCP's.  We call TCP through its tables only: not every kernel exports its
 * functions.
 */
#ifndef SDP_FAMILY_H
#define SDP_FAMILY_H

#include <net/sock.h>

/* Number of the protocol family, a parameter of the module */
extern unsigned int sdp_family;

int sdp_family_init(void);
void sdp_family_exit(void);

/* TCP's own tables for a sock of this address family */
struct proto *sdp_tcp_prot(const struct sock *sk);
const struct proto_ops *sdp_tcp_ops(const struct sock *sk);

/*
 * sdp_family_forget - give a locked socket TCP's struct proto, in place of ours
 * sdp_family_retake - the reverse
 */
void sdp_family_forget(struct sock *sk);
void sdp_family_retake(struct sock *sk);

/*
 * For locked sockets:
 * sdp_family_ops - give it the struct proto_ops of one that is TCP's, or back
 * sdp_family_child - make a socket that TCP has accepted TCP's in all its calls;
 *		      a carrier, too: the listener may have become SDP's
 * sdp_family_leave - give a socket that is TCP's to TCP for good
 */
void sdp_family_ops(struct sock *sk, bool tcp);
void sdp_family_child(struct sock *sk, struct socket *sock);
void sdp_family_leave(struct sock *sk);

/*
 * Give a locked carrier that TCP has made for a listener TCP's struct proto and
 * callbacks, and its socket TCP's struct proto_ops.
 */
void sdp_carrier_forget(struct sock *sk, struct socket *sock);
/*
 * sdp_carrier_callbacks - restore TCP's callbacks; under sk_callback_lock
 * sdp_carrier_data_ready - call TCP's sk_data_ready()
 * sdp_is_unhooked - whether a socket has TCP's own sk_data_ready()
 * sdp_has_own_error_report - whether a user in the kernel has set sk_error_report()
 */
void sdp_carrier_callbacks(struct sock *sk);
void sdp_carrier_data_ready(struct sock *sk);
bool sdp_is_unhooked(const struct sock *sk);
bool sdp_has_own_error_report(const struct sock *sk);

#endif /* SDP_FAMILY_H */
