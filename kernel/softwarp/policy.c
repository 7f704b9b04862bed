// SPDX-License-Identifier: GPL-2.0
/*
 * The policy of a device for MPA start-up, which an administrator can set in
 * /sys/class/infiniband/DEVICE/mpa/.  Module parameters are the defaults of
 * devices added later.  Start-up copies the policy when it begins, so a later
 * change has no effect on a handshake or on established streams.
 */
#include <linux/string.h>
#include <linux/sysfs.h>

#include "device.h"
#include "near.h"
#include "proto/mpa.h"

/* An attribute whose value is a word of a list; stores first plus its index */
struct policy_attr {
	struct device_attribute attr;
	size_t off;			/* of a u8 in struct swp_policy */
	u8 first;
	u8 num;
	const char * const *words;
};

static u8 *policy_field(struct device *dev, const struct policy_attr *a)
{
	struct swp_device *sdev =
		rdma_device_to_drv_device(dev, struct swp_device, base);

	return (u8 *)&sdev->policy + a->off;
}

static ssize_t word_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	const struct policy_attr *a = container_of(attr, struct policy_attr,
						   attr);

	return sysfs_emit(buf, "%s\n",
			  a->words[READ_ONCE(*policy_field(dev, a)) -
				   a->first]);
}

static ssize_t word_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t len)
{
	const struct policy_attr *a = container_of(attr, struct policy_attr,
						   attr);
	int i = __sysfs_match_string(a->words, a->num, buf);

	if (i < 0)
		return -EINVAL;
	WRITE_ONCE(*policy_field(dev, a), a->first + i);
	return len;
}

/* The core shows programs its copy of atomic_cap: update that, too. */
static ssize_t extensions_store(struct device *dev,
				struct device_attribute *attr,
				const char *buf, size_t len)
{
	struct swp_device *sdev =
		rdma_device_to_drv_device(dev, struct swp_device, base);
	ssize_t ret = word_store(dev, attr, buf, len);

	WRITE_ONCE(sdev->base.attrs.atomic_cap, swp_atomic_cap(sdev));
	return ret;
}

static const char * const off_on[] = { "off", "on" };
static const char * const crc_words[] = {
	[SWP_CRC_OFF]		= "off",
	[SWP_CRC_PREFER]	= "prefer",
	[SWP_CRC_REQUIRE]	= "require",
};

static const char * const same_host_words[] = {
	[SWP_SAME_HOST_OFF]	= "off",
	[SWP_SAME_HOST_NETNS]	= "namespace",
	[SWP_SAME_HOST_ALL]	= "all",
};

static const char * const revisions[] = { "1", "2" };

static struct policy_attr word_attrs[] = {
	{
		.attr = __ATTR(crc, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, crc),
		.num = ARRAY_SIZE(crc_words),
		.words = crc_words,
	}, {
		.attr = __ATTR(markers, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, markers),
		.num = ARRAY_SIZE(off_on),
		.words = off_on,
	}, {
		.attr = __ATTR(revision, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, revision),
		.first = SWP_MPA_REV_MIN,
		.num = ARRAY_SIZE(revisions),
		.words = revisions,
	}, {
		.attr = __ATTR(fallback, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, fallback),
		.num = ARRAY_SIZE(off_on),
		.words = off_on,
	}, {
		.attr = __ATTR(p2p, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, p2p),
		.num = ARRAY_SIZE(off_on),
		.words = off_on,
	}, {
		.attr = __ATTR(rdmac, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, rdmac),
		.num = ARRAY_SIZE(off_on),
		.words = off_on,
	}, {
		.attr = __ATTR(extensions, 0644, word_show, extensions_store),
		.off = offsetof(struct swp_policy, extensions),
		.num = ARRAY_SIZE(off_on),
		.words = off_on,
	}, {
		.attr = __ATTR(same_host, 0644, word_show, word_store),
		.off = offsetof(struct swp_policy, same_host),
		.num = ARRAY_SIZE(same_host_words),
		.words = same_host_words,
	},
};

/* RTR kinds: the value is several words */

static const struct {
	const char *word;
	u8 kind;
} rtr_kinds[] = {
	{ "send", SWP_RTR_SEND },
	{ "write", SWP_RTR_WRITE },
	{ "read", SWP_RTR_READ },
};

static ssize_t rtr_show(struct device *dev, struct device_attribute *attr,
			char *buf)
{
	struct swp_device *sdev =
		rdma_device_to_drv_device(dev, struct swp_device, base);
	u8 rtr = READ_ONCE(sdev->policy.rtr);
	int i, n = 0;

	for (i = 0; i < ARRAY_SIZE(rtr_kinds); i++)
		if (rtr & rtr_kinds[i].kind)
			n += sysfs_emit_at(buf, n, "%s%s", n ? " " : "",
					   rtr_kinds[i].word);
	return n + sysfs_emit_at(buf, n, "\n");
}

static ssize_t rtr_store(struct device *dev, struct device_attribute *attr,
			 const char *buf, size_t len)
{
	struct swp_device *sdev =
		rdma_device_to_drv_device(dev, struct swp_device, base);
	const char *p = buf;
	size_t n;
	u8 rtr = 0;
	int i;

	for (p += strspn(p, " ,\n"); *p; p += n, p += strspn(p, " ,\n")) {
		n = strcspn(p, " ,\n");
		for (i = 0; i < ARRAY_SIZE(rtr_kinds); i++)
			if (n == strlen(rtr_kinds[i].word) &&
			    !strncmp(p, rtr_kinds[i].word, n))
				break;
		if (i == ARRAY_SIZE(rtr_kinds))
			return -EINVAL;
		rtr |= rtr_kinds[i].kind;
	}
	/* RFC 6581 section 9.2: a responder supports at least one */
	if (!rtr)
		return -EINVAL;
	WRITE_ONCE(sdev->policy.rtr, rtr);
	return len;
}

static DEVICE_ATTR_RW(rtr);

static struct attribute *policy_attrs[] = {
	&word_attrs[0].attr.attr,
	&word_attrs[1].attr.attr,
	&word_attrs[2].attr.attr,
	&word_attrs[3].attr.attr,
	&word_attrs[4].attr.attr,
	&word_attrs[5].attr.attr,
	&word_attrs[6].attr.attr,
	&word_attrs[7].attr.attr,
	&dev_attr_rtr.attr,
	NULL
};

static_assert(ARRAY_SIZE(word_attrs) + 2 == ARRAY_SIZE(policy_attrs));

const struct attribute_group swp_policy_group = {
	.name = "mpa",
	.attrs = policy_attrs,
};

void swp_policy_init(struct swp_device *dev)
{
	const u8 all = SWP_RTR_SEND | SWP_RTR_WRITE | SWP_RTR_READ;
	const struct swp_params *d = &swp_params;
	u8 rtr = d->mpa_rtr & all;

	dev->policy = (struct swp_policy) {
		.crc = min_t(uint, d->mpa_crc, SWP_CRC_REQUIRE),
		.markers = !!d->mpa_markers,
		.revision = d->mpa_rev >= SWP_MPA_REV_MAX ? SWP_MPA_REV_MAX :
							    SWP_MPA_REV_MIN,
		.fallback = !!d->mpa_fallback,
		.p2p = !!d->mpa_p2p,
		.rtr = rtr ? rtr : all,
		.rdmac = !!d->mpa_rdmac,
		.extensions = !!d->mpa_extensions,
		.same_host = min_t(uint, d->same_host, SWP_SAME_HOST_ALL),
	};
}

void swp_policy_read(const struct swp_device *dev, struct swp_policy *p)
{
	const struct swp_policy *from = &dev->policy;

	*p = (struct swp_policy) {
		.crc = READ_ONCE(from->crc),
		.markers = READ_ONCE(from->markers),
		.revision = READ_ONCE(from->revision),
		.fallback = READ_ONCE(from->fallback),
		.p2p = READ_ONCE(from->p2p),
		.rtr = READ_ONCE(from->rtr),
		.rdmac = READ_ONCE(from->rdmac),
		.extensions = READ_ONCE(from->extensions),
		.same_host = READ_ONCE(from->same_host),
	};
}
