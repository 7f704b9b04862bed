// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/net/softwarp_sdp_pm: the answers that the port mapper's client
 * remembers, a line for each.
 *
 * Only root of the namespace may read it: it says which services the users of
 * the namespace have connected to, also when no socket is left.
 *
 * An entry is copied with the port mapper's lock held and printed without it.
 * Between two entries the cache may change, and also its size.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>

#include "netns.h"
#include "pm.h"

#define NAME	"softwarp_sdp_pm"

struct position {
	struct seq_net_private net;
	struct sdp_pm_entry entry;	/* the one to show */
	u64 now;			/* when it was copied, ms */
};

/* Longest text of an address with its port */
#define END_TEXT	sizeof("[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535")

static const char *answer_of(const struct sdp_pm_entry *e)
{
	if (e->sdp)
		return "sdp";
	/* without a port it applies to all services of the host */
	return e->ap_port ? "denied" : "silent";
}

static void text_of(char *text, u8 version, const u8 *addr, u16 port)
{
	union sdp_end end;

	sdp_pm_end(&end, version, addr, port);
	/* through a string: with a width %pIS would exceed its own buffer */
	snprintf(text, END_TEXT, "%pISpc", &end.any);
}

static int show(struct seq_file *m, void *v)
{
	const struct position *p = m->private;
	const struct sdp_pm_entry *e = &p->entry;
	char service[END_TEXT], local[END_TEXT], sdp[END_TEXT] = "-";

	if (v == SEQ_START_TOKEN) {
		seq_printf(m, "%-47s %-47s %-6s %-47s %10s\n", "service",
			   "local", "answer", "sdp", "expires_ms");
		return 0;
	}
	text_of(service, e->version, e->ap_addr, e->ap_port);
	text_of(local, e->version, e->cp_addr, 0);
	if (e->sdp)
		text_of(sdp, e->version, e->addr, e->port);
	seq_printf(m, "%-47s %-47s %-6s %-47s %10llu\n", service, local,
		   answer_of(e), sdp, e->until - p->now);
	return 0;
}

/* Positions count from 1, the first one after the header. */
static void *find(struct seq_file *m, loff_t from, loff_t *pos)
{
	struct position *p = m->private;
	u32 at = from - 1;

	if (!sdp_pm_next(&sdp_net(seq_file_net(m))->pm, &at, &p->entry,
			 &p->now)) {
		/* after the last entry: an index that never exists */
		*pos = (loff_t)U32_MAX + 1;
		return NULL;
	}
	*pos = (loff_t)at + 1;
	return p;
}

static void *start(struct seq_file *m, loff_t *pos)
{
	if (!*pos)
		return SEQ_START_TOKEN;
	return *pos > U32_MAX ? NULL : find(m, *pos, pos);
}

static void *next(struct seq_file *m, void *v, loff_t *pos)
{
	return find(m, *pos + 1, pos);
}

static void stop(struct seq_file *m, void *v)
{
}

static const struct seq_operations seq_ops = {
	.start = start,
	.next = next,
	.stop = stop,
	.show = show,
};

int sdp_pm_proc_init(struct net *net)
{
	if (!proc_create_net(NAME, 0400, net->proc_net, &seq_ops,
			     sizeof(struct position)))
		return -ENOMEM;
	return 0;
}

void sdp_pm_proc_exit(struct net *net)
{
	remove_proc_entry(NAME, net->proc_net);
}
