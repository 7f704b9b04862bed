// SPDX-License-Identifier: GPL-2.0
/*
 * net.softwarp_sdp, see sysctl.h.
 *
 * A namespace may belong to a user without other rights on the host, so no
 * value within its bounds may do harm.  A value that lets memory be held at the
 * expense of others is also bounded by the value of the first namespace.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <net/net_namespace.h>
#include <net/tcp.h>

#include "compat.h"
#include "link.h"
#include "listen.h"
#include "netns.h"
#include "sysctl.h"
#include "uapi/softwarp_sdp.h"

static const struct kind {
	const char *name;
	int least, most, at_first;
	bool shared;		/* bounded by the first namespace */
} kinds[SDP_TUNABLES] = {
	[SDP_SETUP_TIMEOUT] = { "setup_timeout_ms", 100, 300000, 10000 },
	[SDP_GRACE] = { "grace_ms", 10, 300000, 10000 },
	[SDP_ORPHAN_TIMEOUT] = { "orphan_timeout_ms", 100, 600000,
				 TCP_FIN_TIMEOUT / HZ * MSEC_PER_SEC, true },
	[SDP_PLACE_TIME] = { "place_time_ms", 10, 300000, 2000 },
	[SDP_SILENT_MAX] = { "silent_max", 1, 65536, 256, true },
	[SDP_ORPHANS_MAX] = { "orphans_max", 0, 1 << 20, 4096, true },
	[SDP_RX_SIZE_MAX] = { "rx_size_max", SDP_RX_FIRST_SIZE, SDP_RX_SIZE,
			      SDP_RX_SIZE, true },
	[SDP_LAYOUT_DEFAULT] = { "layout", SDP_LAYOUT_DRAFT, SDP_LAYOUT_IB,
				 SDP_LAYOUT_DRAFT },
	[SDP_INITIATOR_DEFAULT] = { "initiator", SDP_INFO_INITIATOR_ACCEPTOR,
				    SDP_INFO_INITIATOR_CONNECTOR,
				    SDP_INFO_INITIATOR_ACCEPTOR },
	[SDP_SPIN] = { "spin_us", 0, 10000, 1000, true },
	[SDP_POLICY_DEFAULT] = { "policy", SDP_INFO_POLICY_SDP,
				 SDP_INFO_POLICY_TCP, SDP_INFO_POLICY_SDP },
	[SDP_PM_UDP_PORT] = { "pm_port", 1, 65535, SDP_PM_PORT },
	[SDP_PM_TIME] = { "pm_time", 0, SDP_PM_FOR_EVER - 1, 120 },
	[SDP_PM_WAIT] = { "pm_wait_ms", 3, 60000, 200 },
	[SDP_PM_SILENT_TIME] = { "pm_silent_ms", 1, 3600000, 60000 },
	[SDP_PM_DENIED_TIME] = { "pm_denied_ms", 1, 3600000, 5000 },
	[SDP_PM_CACHE] = { "pm_cache", 64, 65536, 1024, true },
	[SDP_PM_SOURCE_RATE] = { "pm_source_rate", 1, 100000, 64, true },
	[SDP_PM_RATE] = { "pm_rate", 1, 100000, 4096, true },
};

int sdp_tunable(const struct net *net, enum sdp_tunable which)
{
	int value = READ_ONCE(sdp_net(net)->tunable[which]);

	/* the first namespace's may have been lowered since */
	if (kinds[which].shared)
		value = min(value,
			    READ_ONCE(sdp_net(&init_net)->tunable[which]));
	return value;
}

unsigned long sdp_tunable_jiffies(const struct net *net, enum sdp_tunable which)
{
	/* a part of the first one is over */
	return msecs_to_jiffies(sdp_tunable(net, which)) + 1;
}

/* One more entry than used: kernels before 6.6 look for a terminator. */
static struct ctl_table *make_table(struct net *net)
{
	struct ctl_table *table = kcalloc(SDP_TUNABLES + 1, sizeof(*table),
					  GFP_KERNEL);
	int i;

	for (i = 0; table && i < SDP_TUNABLES; i++) {
		const struct kind *kind = &kinds[i];
		const int *most = &kind->most;

		if (kind->shared && !net_eq(net, &init_net))
			most = &sdp_net(&init_net)->tunable[i];
		table[i] = (struct ctl_table){
			.procname = kind->name,
			.data = &sdp_net(net)->tunable[i],
			.maxlen = sizeof(int),
			.mode = 0644,
			.proc_handler = proc_dointvec_minmax,
			.extra1 = (void *)&kind->least,
			.extra2 = (void *)most,
		};
	}
	return table;
}

int sdp_sysctl_init(struct net *net)
{
	struct sdp_net *sn = sdp_net(net);
	int i;

	for (i = 0; i < SDP_TUNABLES; i++)
		sn->tunable[i] = net_eq(net, &init_net) ?
				 kinds[i].at_first : sdp_tunable(&init_net, i);
	if (!IS_ENABLED(CONFIG_SYSCTL))
		return 0;
	sn->table = make_table(net);
	if (!sn->table)
		return -ENOMEM;
	sn->sysctl = swp_register_net_sysctl(net, "net/softwarp_sdp", sn->table,
					     SDP_TUNABLES);
	if (sn->sysctl)
		return 0;
	kfree(sn->table);
	return -ENOMEM;
}

void sdp_sysctl_exit(struct net *net)
{
	struct sdp_net *sn = sdp_net(net);

	if (sn->sysctl)
		unregister_net_sysctl_table(sn->sysctl);
	kfree(sn->table);
}
