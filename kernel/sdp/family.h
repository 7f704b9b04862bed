/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The protocol family AF_INET_SDP and the protocol IPPROTO_SDP of AF_INET and
 * AF_INET6.  A socket of ours is TCP's, made from TCP's memory, with copies of
 * TCP's two tables that have our calls in front.  TCP is reached by its tables
 * alone: its functions are not exported by every kernel.
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

/* A locked socket has TCP's own calls beneath ours from now on, and again ours. */
void sdp_family_forget(struct sock *sk);
void sdp_family_retake(struct sock *sk);

/*
 * A carrier that TCP has made for a listener: give the sock, locked, its TCP back,
 * and its socket TCP's calls.
 */
void sdp_carrier_forget(struct sock *sk, struct socket *sock);
/* The callbacks that any TCP socket has; under sk_callback_lock */
void sdp_carrier_callbacks(struct sock *sk);
void sdp_carrier_data_ready(struct sock *sk);

#endif /* SDP_FAMILY_H */
