// SPDX-License-Identifier: GPL-2.0
/*
 * The family and the protocol, see family.h.
 */
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <net/protocol.h>
#include <net/sock.h>

#include "compat.h"
#include "family.h"
#include "sock.h"
#include "uapi/softwarp_sdp.h"

unsigned int sdp_family = AF_INET_SDP;

/*
 * TCP's tables, and ours, which replace them; one each for IPv4 and IPv6.  A
 * socket that is TCP's has TCP's calls in the table fell_ops, but for those that
 * concern both.
 */
enum { V4, V6, FAMILIES };

static struct proto *tcp_prots[FAMILIES];
static const struct proto_ops *tcp_ops[FAMILIES];
/* TCP's struct proto with a reference to this module, see sdp_family_leave() */
static struct proto *left_prots[FAMILIES];
static struct proto prots[FAMILIES];
static struct proto_ops sock_ops[FAMILIES];
static struct proto_ops fell_ops[FAMILIES];
static bool have_v6;
/* callbacks of TCP sockets */
static void (*default_state_change)(struct sock *sk);
static void (*default_data_ready)(struct sock *sk);
static void (*default_error_report)(struct sock *sk);

static int index_of(const struct sock *sk)
{
	return sk->sk_family == AF_INET6 ? V6 : V4;
}

struct proto *sdp_tcp_prot(const struct sock *sk)
{
	return tcp_prots[index_of(sk)];
}

const struct proto_ops *sdp_tcp_ops(const struct sock *sk)
{
	return tcp_ops[index_of(sk)];
}

/*
 * With TCP's struct proto the sock no longer pins this module after close(), in
 * TIME_WAIT for instance.  Until then sock->ops has a reference for the caller.
 */
void sdp_family_forget(struct sock *sk)
{
	int i = index_of(sk);

	sock_owned_by_me(sk);
	if (sk->sk_prot != &prots[i])
		return;
	WRITE_ONCE(sk->sk_prot, tcp_prots[i]);
	sk->sk_prot_creator = tcp_prots[i];
	module_put(THIS_MODULE);
}

void sdp_family_retake(struct sock *sk)
{
	int i = index_of(sk);

	sock_owned_by_me(sk);
	if (sk->sk_prot != tcp_prots[i])
		return;
	__module_get(THIS_MODULE);
	WRITE_ONCE(sk->sk_prot, &prots[i]);
	sk->sk_prot_creator = &prots[i];
}

/*
 * A call may have read sock->ops before, and run afterwards.  Our calls pass on to
 * TCP what is TCP's; TCP's calls find a closed socket where it is not TCP's any
 * more, and may reset sock->state, which therefore proves nothing to our connect().
 * Both tables have the same owner.
 */
void sdp_family_ops(struct sock *sk, bool tcp)
{
	struct socket *sock = sk->sk_socket;
	int i = index_of(sk);

	sock_owned_by_me(sk);
	if (sock && (sock->ops == &sock_ops[i] || sock->ops == &fell_ops[i]))
		WRITE_ONCE(sock->ops, tcp ? &fell_ops[i] : &sock_ops[i]);
}

void sdp_family_child(struct sock *sk, struct socket *sock)
{
	int i = index_of(sk);

	sock_owned_by_me(sk);
	if (sk->sk_prot == &prots[i]) {
		write_lock_bh(&sk->sk_callback_lock);
		sdp_carrier_callbacks(sk);
		write_unlock_bh(&sk->sk_callback_lock);
		sk->sk_kern_sock = 0;
		sdp_family_forget(sk);
	}
	WRITE_ONCE(sock->ops, &fell_ops[i]);
}

/*
 * Another table than ours does not put our reference when the socket is
 * released, and calls may still be in our functions.  So the sock takes the
 * reference over, and keeps it as long as it exists, in TIME_WAIT as well.  By
 * a copy of TCP's struct proto: a sockmap gives children the creator's calls.
 */
void sdp_family_leave(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;
	int i = index_of(sk);

	sock_owned_by_me(sk);
	if (sock->ops != &sock_ops[i] && sock->ops != &fell_ops[i])
		return;
	sk->sk_prot_creator = left_prots[i];
	__module_get(tcp_ops[i]->owner);
	WRITE_ONCE(sock->ops, tcp_ops[i]);
}

/* Carriers ------------------------------------------------------------------------------- */

void sdp_carrier_callbacks(struct sock *sk)
{
	sk->sk_state_change = default_state_change;
	sk->sk_data_ready = default_data_ready;
}

void sdp_carrier_data_ready(struct sock *sk)
{
	default_data_ready(sk);
}

bool sdp_is_unhooked(const struct sock *sk)
{
	return READ_ONCE(sk->sk_data_ready) == default_data_ready;
}

bool sdp_has_own_error_report(const struct sock *sk)
{
	return READ_ONCE(sk->sk_error_report) != default_error_report;
}

void sdp_carrier_forget(struct sock *sk, struct socket *sock)
{
	int i = index_of(sk);

	sock_owned_by_me(sk);
	/* the listener's callback would take sk_user_data for a listener */
	sdp_carrier_callbacks(sk);
	sdp_family_forget(sk);
	sock->ops = tcp_ops[i];
	__module_get(tcp_ops[i]->owner);
}

/* Tables ----------------------------------------------------------------------------------- */

/* A copy of TCP's table with our calls */
static void make_prot(struct proto *p, const struct proto *tcp, const char *name)
{
	*p = *tcp;
	p->owner = THIS_MODULE;
	strscpy(p->name, name, sizeof(p->name));
	p->init = sdp_sock_prot.init;
	p->destroy = sdp_sock_prot.destroy;
	p->close = sdp_sock_prot.close;
	p->release_cb = sdp_sock_prot.release_cb;
	p->keepalive = sdp_sock_prot.keepalive;
	if (sdp_sock_prot.ioctl)
		p->ioctl = sdp_sock_prot.ioctl;
	/* TCP's function looks at its own write queue, not at ours */
	p->stream_memory_free = NULL;
#ifdef CONFIG_BPF_SYSCALL
	p->psock_update_sk_prot = sdp_sock_prot.psock_update_sk_prot;
#endif
}

static void make_ops(struct proto_ops *o, const struct proto_ops *tcp)
{
	*o = *tcp;
	o->owner = THIS_MODULE;
	o->release = sdp_sock_ops.release;
	o->bind = sdp_sock_ops.bind;
	o->connect = sdp_sock_ops.connect;
	o->accept = sdp_sock_ops.accept;
	o->getname = sdp_sock_ops.getname;
	o->poll = sdp_sock_ops.poll;
	o->ioctl = sdp_sock_ops.ioctl;
	o->listen = sdp_sock_ops.listen;
	o->shutdown = sdp_sock_ops.shutdown;
	o->setsockopt = sdp_sock_ops.setsockopt;
	o->getsockopt = sdp_sock_ops.getsockopt;
	o->sendmsg = sdp_sock_ops.sendmsg;
	o->recvmsg = sdp_sock_ops.recvmsg;
	o->splice_eof = sdp_sock_ops.splice_eof;
	o->splice_read = sdp_sock_ops.splice_read;
	/* these would access TCP's queues */
	o->mmap = sock_no_mmap;
	o->read_sock = NULL;
	o->read_skb = NULL;
	o->sendmsg_locked = NULL;
	o->peek_len = NULL;
	o->set_rcvlowat = NULL;
	swp_no_sendpage(o);
}

static void make_fell_ops(struct proto_ops *o, const struct proto_ops *tcp)
{
	*o = *tcp;
	o->owner = THIS_MODULE;
	o->release = sdp_sock_ops.release;
	/* these may leave TCP again */
	o->connect = sdp_sock_ops.connect;
	o->listen = sdp_sock_ops.listen;
	/* see sdp_family_child() */
	o->accept = sdp_sock_ops.accept;
	/* SOL_SDP, and sdp_family_leave() */
	o->setsockopt = sdp_sock_ops.setsockopt;
	o->getsockopt = sdp_sock_ops.getsockopt;
}

/* Get the tables and callbacks of TCP from a socket of it. */
static int learn(int i, int family)
{
	struct socket *sock;
	int ret;

	ret = sock_create_kern(&init_net, family, SOCK_STREAM, IPPROTO_TCP,
			       &sock);
	if (ret)
		return ret;
	left_prots[i] = kmemdup(sock->sk->sk_prot, sizeof(struct proto),
				GFP_KERNEL);
	if (!left_prots[i]) {
		sock_release(sock);
		return -ENOMEM;
	}
	left_prots[i]->owner = THIS_MODULE;
	/* children may use it after this module, so it is never freed */
	kmemleak_not_leak(left_prots[i]);
	tcp_prots[i] = sock->sk->sk_prot;
	tcp_ops[i] = sock->ops;
	default_state_change = sock->sk->sk_state_change;
	default_data_ready = sock->sk->sk_data_ready;
	default_error_report = sock->sk->sk_error_report;
	sock_release(sock);
	make_prot(&prots[i], tcp_prots[i], i == V6 ? "SDPv6" : "SDP");
	make_ops(&sock_ops[i], tcp_ops[i]);
	make_fell_ops(&fell_ops[i], tcp_ops[i]);
	return 0;
}

/* All are the same sockets; init() finds the number in sk_protocol. */
static const u16 numbers[] = { IPPROTO_SDP, IPPROTO_SDP_AUTO };
static struct inet_protosw entries[FAMILIES][ARRAY_SIZE(numbers)];

static void make_entries(int i)
{
	int n;

	for (n = 0; n < ARRAY_SIZE(numbers); n++) {
		entries[i][n].type = SOCK_STREAM;
		entries[i][n].protocol = numbers[n];
		entries[i][n].prot = &prots[i];
		entries[i][n].ops = &sock_ops[i];
		entries[i][n].flags = INET_PROTOSW_ICSK;
	}
}

/* socket(AF_INET_SDP): make a socket of AF_INET and graft it. */
static int create(struct net *net, struct socket *sock, int protocol, int kern)
{
	struct socket *made;
	struct sock *sk;
	int ret;

	if (sock->type != SOCK_STREAM)
		return -ESOCKTNOSUPPORT;
	if (protocol && protocol != IPPROTO_TCP && protocol != IPPROTO_SDP)
		return -EPROTONOSUPPORT;
	ret = __sock_create(net, AF_INET, SOCK_STREAM, IPPROTO_SDP, &made, kern);
	if (ret)
		return ret;
	sk = made->sk;
	sock_orphan(sk);
	sock_reset_flag(sk, SOCK_DEAD);
	made->sk = NULL;
	sock->state = SS_UNCONNECTED;
	sock->ops = &sock_ops[V4];
	sock_graft(sk, sock);
	sock_release(made);
	return 0;
}

static struct net_proto_family family_ops = {
	.owner = THIS_MODULE,
	.create = create,
};

static bool is_ours(const struct inet_protosw *p)
{
	return p->prot == &prots[V4];
}

/*
 * Check that no other module has a number of ours: its entry would be on the list
 * of ours.  A socket made to find out would have this module loaded by its alias,
 * and modprobe would wait for itself.  The list's head is no entry; it has a
 * pointer where the type would be, which is even.
 */
static int look_for_others(void)
{
	const struct inet_protosw *p;
	int found = 0;
	int n;

	rcu_read_lock();
	list_for_each_entry_rcu(p, &entries[V4][0].list, list)
		for (n = 0; n < ARRAY_SIZE(numbers); n++)
			if (p->type == SOCK_STREAM &&
			    p->protocol == numbers[n] && !is_ours(p))
				found = numbers[n];
	rcu_read_unlock();
	if (!found)
		return 0;
	pr_err("softwarp_sdp: protocol %d of AF_INET is another module's\n",
	       found);
	return -EEXIST;
}

static void unregister(int i, int count)
{
	while (count--) {
		if (i == V4)
			inet_unregister_protosw(&entries[i][count]);
#if IS_ENABLED(CONFIG_IPV6)
		else
			inet6_unregister_protosw(&entries[i][count]);
#endif
	}
}

static void register_v4(void)
{
	int n;

	make_entries(V4);
	for (n = 0; n < ARRAY_SIZE(numbers); n++)
		inet_register_protosw(&entries[V4][n]);
}

static int register_v6(void)
{
#if IS_ENABLED(CONFIG_IPV6)
	int ret;
	int n;

	make_entries(V6);
	for (n = 0; n < ARRAY_SIZE(numbers); n++) {
		ret = inet6_register_protosw(&entries[V6][n]);
		if (ret) {
			unregister(V6, n);
			return ret;
		}
	}
#endif
	return 0;
}

int sdp_family_init(void)
{
	int ret;

	ret = learn(V4, AF_INET);
	if (ret)
		return ret;
	/* with ipv6.disable=1 there is no IPv6 */
	have_v6 = IS_ENABLED(CONFIG_IPV6) && !learn(V6, AF_INET6);
	register_v4();
	ret = look_for_others();
	if (ret)
		goto err_v4;
	if (have_v6) {
		ret = register_v6();
		if (ret)
			goto err_v4;
	}
	family_ops.family = sdp_family;
	ret = sock_register(&family_ops);
	if (ret) {
		pr_err("softwarp_sdp: protocol family %u cannot be had: %d; choose another by the parameter family\n",
		       sdp_family, ret);
		goto err_v6;
	}
	return 0;

err_v6:
	if (have_v6)
		unregister(V6, ARRAY_SIZE(numbers));
err_v4:
	unregister(V4, ARRAY_SIZE(numbers));
	return ret;
}

void sdp_family_exit(void)
{
	int i;

	for (i = 0; i < FAMILIES; i++)
		if (left_prots[i])
			left_prots[i]->owner = tcp_prots[i]->owner;
	sock_unregister(sdp_family);
	if (have_v6)
		unregister(V6, ARRAY_SIZE(numbers));
	unregister(V4, ARRAY_SIZE(numbers));
}
