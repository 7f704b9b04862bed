// SPDX-License-Identifier: GPL-2.0
/*
 * Network namespaces, see netns.h.
 */
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/netns/generic.h>
#include <net/sock.h>

#include "netns.h"
#include "stats.h"

static unsigned int netns_id;

struct sdp_net *sdp_net(const struct net *net)
{
	return net_generic(net, netns_id);
}

/* The list ----------------------------------------------------------------- */

int sdp_seen_reserve(struct sdp_seen *s, enum sdp_seen_kind kind,
		     const struct sock *sk)
{
	struct sdp_net *sn = sdp_net(sock_net(sk));
	int ret;

	ret = xa_alloc_cyclic_bh(&sn->seen, &s->id, NULL, XA_LIMIT(1, INT_MAX),
				 &sn->next, GFP_KERNEL);
	if (ret < 0)
		return ret;
	s->kind = kind;
	s->uid = READ_ONCE(sk->sk_uid);
	/* the sock's reference may go before this one */
	s->net = get_net(sock_net(sk));
	return 0;
}

void sdp_seen_show(struct sdp_seen *s, const struct sock *sk)
{
	if (sk) {
		sdp_end_of(&s->local, sk, false);
		sdp_end_of(&s->remote, sk, true);
	}
	/* the index is reserved, so this needs no memory */
	xa_store_bh(&sdp_net(s->net)->seen, s->id, s, GFP_ATOMIC);
}

void sdp_seen_hide(struct sdp_seen *s)
{
	u32 id = s->id;

	/* first, so that another entry of the socket is shown by then */
	WRITE_ONCE(s->id, 0);
	if (id)
		xa_erase_bh(&sdp_net(s->net)->seen, id);
}

void sdp_seen_release(struct sdp_seen *s)
{
	sdp_seen_hide(s);
	put_net(s->net);
}

void sdp_end_of(union sdp_end *end, const struct sock *sk, bool peer)
{
	__be16 port = peer ? inet_sk(sk)->inet_dport :
			     htons(inet_sk(sk)->inet_num);

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		end->in6 = (struct sockaddr_in6){
			.sin6_family = AF_INET6,
			.sin6_port = port,
			.sin6_addr = peer ? sk->sk_v6_daddr :
					    sk->sk_v6_rcv_saddr,
		};
		end->in6.sin6_scope_id =
			ipv6_iface_scope_id(&end->in6.sin6_addr,
					    sk->sk_bound_dev_if);
		return;
	}
#endif
	end->in = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = port,
		.sin_addr.s_addr = peer ? inet_sk(sk)->inet_daddr :
					  inet_sk(sk)->inet_rcv_saddr,
	};
}

void sdp_end_unmap(union sdp_end *end)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (end->any.sa_family != AF_INET6 ||
	    !ipv6_addr_v4mapped(&end->in6.sin6_addr))
		return;
	in.sin_port = end->in6.sin6_port;
	in.sin_addr.s_addr = end->in6.sin6_addr.s6_addr32[3];
	end->in = in;
#endif
}

/* Namespaces -------------------------------------------------------------------- */

static int __net_init init_net_of(struct net *net)
{
	int ret;

	xa_init_flags(&sdp_net(net)->seen, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_BH);
	sdp_pm_init(&sdp_net(net)->pm, net);
	ret = sdp_stats_init(net);
	if (ret)
		return ret;
	ret = sdp_proc_init(net);
	if (ret)
		goto err_stats;
	ret = sdp_pm_proc_init(net);
	if (ret)
		goto err_proc;
	ret = sdp_sysctl_init(net);
	if (ret)
		goto err_pm_proc;
	return 0;

err_pm_proc:
	sdp_pm_proc_exit(net);
err_proc:
	sdp_proc_exit(net);
err_stats:
	sdp_stats_exit(net);
	return ret;
}

/* The list is empty: each entry has a reference to the namespace. */
static void __net_exit exit_net_of(struct net *net)
{
	sdp_sysctl_exit(net);
	sdp_pm_proc_exit(net);
	sdp_proc_exit(net);
	sdp_stats_exit(net);
	sdp_pm_exit(&sdp_net(net)->pm);
	WARN_ON_ONCE(!xa_empty(&sdp_net(net)->seen));
	xa_destroy(&sdp_net(net)->seen);
}

static struct pernet_operations netns_ops = {
	.init = init_net_of,
	.exit = exit_net_of,
	.id = &netns_id,
	.size = sizeof(struct sdp_net),
};

int sdp_netns_init(void)
{
	return register_pernet_subsys(&netns_ops);
}

void sdp_netns_exit(void)
{
	unregister_pernet_subsys(&netns_ops);
}
