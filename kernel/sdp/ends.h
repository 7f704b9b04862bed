/* SPDX-License-Identifier: GPL-2.0 */
/* An address with a port. */
#ifndef SDP_ENDS_H
#define SDP_ENDS_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/socket.h>

struct sock;

union sdp_end {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

void sdp_end_of(union sdp_end *end, const struct sock *sk, bool peer);
/* Turn an IPv4-mapped IPv6 address into IPv4. */
void sdp_end_unmap(union sdp_end *end);

static inline u16 sdp_end_port(const union sdp_end *end)
{
	return ntohs(end->any.sa_family == AF_INET6 ? end->in6.sin6_port :
						      end->in.sin_port);
}

static inline void sdp_end_set_port(union sdp_end *end, u16 port)
{
	if (end->any.sa_family == AF_INET6)
		end->in6.sin6_port = htons(port);
	else
		end->in.sin_port = htons(port);
}

static inline int sdp_end_len(const union sdp_end *end)
{
	return end->any.sa_family == AF_INET6 ? sizeof(end->in6) :
						sizeof(end->in);
}

#endif /* SDP_ENDS_H */
