// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's own sockets, see own.h.
 */
#include <linux/cgroup.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/transp_v6.h>

#include "compat.h"
#include "own.h"

/* Set the local address as bind() does. */
static void set_address(struct sock *sk, const union sdp_end *at)
{
	__be32 v4 = at->in.sin_addr.s_addr;
	bool any = !v4;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		const struct in6_addr *v6 = &at->in6.sin6_addr;

		any = ipv6_addr_any(v6);
		v4 = 0;
		if (ipv6_addr_v4mapped(v6)) {
			v4 = v6->s6_addr32[3];
		} else if (!any) {
			/* no IPv4 address is the same */
			v4 = LOOPBACK4_IPV6;
			sk->sk_ipv6only = 1;
		}
		sk->sk_v6_rcv_saddr = *v6;
		inet6_sk(sk)->saddr = *v6;
	}
#endif
	inet_sk(sk)->inet_rcv_saddr = v4;
	inet_sk(sk)->inet_saddr = v4;
	if (!any)
		sk->sk_userlocks |= SOCK_BINDADDR_LOCK;
}

int sdp_own_bind(struct socket *sock, const union sdp_end *at)
{
	struct sock *sk = sock->sk;
	u16 port = sdp_end_port(at);
	int ret;

	lock_sock(sk);
	set_address(sk, at);
	ret = sk->sk_prot->get_port(sk, port);
	if (!ret) {
		inet_sk(sk)->inet_sport = htons(inet_sk(sk)->inet_num);
		if (port)
			sk->sk_userlocks |= SOCK_BINDPORT_LOCK;
		sk_dst_reset(sk);
	}
	release_sock(sk);
	return ret ? -EADDRINUSE : 0;
}

int sdp_own_connect(struct socket *sock, const union sdp_end *to, int len)
{
	struct sock *sk = sock->sk;
	union sdp_end at = *to;
	int ret;

	/* UDP's function takes the lock itself */
	if (sk->sk_type == SOCK_DGRAM)
		return sk->sk_prot->connect(sk, swp_sockaddr_arg(&at), len);
	lock_sock(sk);
	ret = sk->sk_prot->connect(sk, swp_sockaddr_arg(&at), len);
	if (!ret)
		sock->state = SS_CONNECTING;
	release_sock(sk);
	return ret;
}

void sdp_own_name(const struct sock *sk, union sdp_end *own)
{
	sdp_end_of(own, sk, false);
	/* inet_num is 0 again after a reset */
	sdp_end_set_port(own, ntohs(inet_sk(sk)->inet_sport));
}

void sdp_own_cgroup(struct sock *to, const struct sock *from)
{
#ifdef CONFIG_SOCK_CGROUP_DATA
	struct sock_cgroup_data data = from->sk_cgrp_data;
	struct cgroup *before = sock_cgroup_ptr(&to->sk_cgrp_data);
	struct cgroup *cgroup = sock_cgroup_ptr(&data);

	/* as cgroup_sk_clone(): the cgroup may have been removed meanwhile */
	cgroup_get(cgroup);
	cgroup_bpf_get(cgroup);
	to->sk_cgrp_data = data;
	cgroup_bpf_put(before);
	cgroup_put(before);
#endif
}
