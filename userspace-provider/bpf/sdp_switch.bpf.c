// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs in the kernel that make SDP sockets of the TCP sockets of cgroups:
 * sdp_switch loads and pins them.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "sdp_switch.h"
#include "softwarp_sdp.h"

/* The same on all architectures that BPF has trampolines for */
enum {
	AF_INET = 2,
	AF_INET6 = 10,
	SOCK_STREAM = 1,
	SOCK_TYPE_MASK = 0xf,
	IPPROTO_IP = 0,
	IPPROTO_TCP = 6,
};

/* Of the kernel's structures what is looked at; libbpf finds the places. */
struct kernfs_node {
	__u64 id;
} __attribute__((preserve_access_index));

struct cgroup_root {
	int hierarchy_id;
} __attribute__((preserve_access_index));

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SDP_SWITCH_CGROUPS);
	__type(key, __u64);
	__type(value, struct sdp_switch_entry);
} cgroups SEC(".maps");

/* Whether softwarp_sdp serves IPv6, too; set before loading. */
const volatile __u8 with_ipv6 = 1;

static int is_tcp(int family, int type, int protocol)
{
	if (family != AF_INET && !(with_ipv6 && family == AF_INET6))
		return 0;
	if ((type & SOCK_TYPE_MASK) != SOCK_STREAM)
		return 0;
	return protocol == IPPROTO_IP || protocol == IPPROTO_TCP;
}

/* The entry of the nearest cgroup above the caller that has one */
static struct sdp_switch_entry *find(void)
{
	struct sdp_switch_entry *found = NULL;
	struct sdp_switch_entry *entry;
	__u64 id;
	int level;

	for (level = 0; level < SDP_SWITCH_LEVELS; level++) {
		id = bpf_get_current_ancestor_cgroup_id(level);
		if (!id)
			break;
		entry = bpf_map_lookup_elem(&cgroups, &id);
		if (entry)
			found = entry;
	}
	return found;
}

/* In socket(2), before everything else; sockets of the kernel do not come here. */
SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(protocol, int family, int type, int wanted)
{
	struct sdp_switch_entry *entry;

	if (!is_tcp(family, type, wanted))
		return wanted;
	entry = find();
	if (!entry)
		return wanted;
	__sync_fetch_and_add(&entry->sockets, 1);
	return IPPROTO_SDP_AUTO;
}

/*
 * A cgroup goes, and its entry with it.  Hierarchies of version 1 have ids of
 * their own, which may be the same.
 */
SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(removal, struct cgroup *cgroup, const char *path)
{
	__u64 id = cgroup->kn->id;

	if (cgroup->root->hierarchy_id == 0)
		bpf_map_delete_elem(&cgroups, &id);
	return 0;
}

/*
 * Does nothing.  As long as it is attached to a tracepoint of softwarp_sdp, the
 * module cannot be unloaded, and socket() finds the protocol.  The tracepoint is
 * the one that is passed least often.
 */
SEC("raw_tp/sdp_fault")
int hold(void *context)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
