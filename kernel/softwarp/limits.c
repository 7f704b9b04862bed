// SPDX-License-Identifier: GPL-2.0
/*
 * Limits on the number of objects of a kind: on a device, of one user, and of
 * all ordinary users together, so that programs cannot take those that storage
 * and file systems need.  For root and for CAP_NET_ADMIN in the initial user
 * namespace only the limit of the device applies, as for kernel consumers.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "device.h"

static uint limit_of(enum swp_limit what)
{
	switch (what) {
	case SWP_LIMIT_QP:
		return READ_ONCE(swp_params.max_qp);
	case SWP_LIMIT_CQ:
		return READ_ONCE(swp_params.max_cq);
	case SWP_LIMIT_SRQ:
		return READ_ONCE(swp_params.max_srq);
	case SWP_LIMIT_MR:
		return READ_ONCE(swp_params.max_mr);
	case SWP_LIMIT_PD:
		return READ_ONCE(swp_params.max_pd);
	default:
		return READ_ONCE(swp_params.max_ucontext);
	}
}

/* Is the current user an ordinary one? */
static bool is_ordinary(void)
{
	return !uid_eq(current_uid(), GLOBAL_ROOT_UID) &&
	       !ns_capable_noaudit(&init_user_ns, CAP_NET_ADMIN);
}

/* Finds or allocates the record of a user; or NULL.  limit_mutex held. */
static struct swp_owner *owner_of(struct swp_device *dev, kuid_t kuid)
{
	u32 uid = from_kuid(&init_user_ns, kuid);
	struct swp_owner *o = xa_load(&dev->owners, uid);

	if (o)
		return o;
	o = kzalloc(sizeof(*o), GFP_KERNEL_ACCOUNT);
	if (!o)
		return NULL;
	o->uid = uid;
	if (xa_err(xa_store(&dev->owners, uid, o, GFP_KERNEL_ACCOUNT))) {
		kfree(o);
		return NULL;
	}
	return o;
}

static void drop_unused(struct swp_device *dev, struct swp_owner *o)
{
	if (o && !o->total) {
		xa_erase(&dev->owners, o->uid);
		kfree(o);
	}
}

static uint percent(uint limit, uint share)
{
	return div_u64((u64)limit * min(share, 100U), 100);
}

/* May an ordinary user have one more? */
static bool within_share(struct swp_device *dev, enum swp_limit what,
			 const struct swp_owner *o)
{
	uint limit = limit_of(what);
	uint share = percent(limit, READ_ONCE(swp_params.user_share));
	uint kept = percent(limit, READ_ONCE(swp_params.reserved_share));

	/* allow at least one object of each kind */
	return o->num[what] < max(share, 1U) &&
	       dev->ordinary[what] < max(limit - kept, 1U);
}

static bool within(struct swp_device *dev, enum swp_limit what,
		   const struct swp_owner *o)
{
	return dev->num[what] < limit_of(what) &&
	       (!o || within_share(dev, what, o));
}

static void add_to(struct swp_device *dev, enum swp_limit what,
		   struct swp_owner *o)
{
	dev->ordinary[what]++;
	o->num[what]++;
	o->total++;
}

int swp_count(struct swp_device *dev, enum swp_limit what, bool user,
	      struct swp_owner **owner)
{
	struct swp_owner *o = NULL;
	unsigned int noio;
	int ret = -ENOMEM;

	/* reclaim that writes back through us could wait for the mutex */
	noio = memalloc_noio_save();
	mutex_lock(&dev->limit_mutex);
	if (user && is_ordinary()) {
		o = owner_of(dev, current_uid());
		if (!o)
			goto out;
	}
	if (!within(dev, what, o)) {
		swp_stat_inc(dev, LIMIT_HIT);
		goto out;
	}
	dev->num[what]++;
	if (o)
		add_to(dev, what, o);
	*owner = o;
	ret = 0;
out:
	drop_unused(dev, o);
	mutex_unlock(&dev->limit_mutex);
	memalloc_noio_restore(noio);
	return ret;
}

int swp_count_for(struct swp_device *dev, enum swp_limit what, kuid_t uid,
		  struct swp_owner **owner)
{
	struct swp_owner *o;
	unsigned int noio;
	int ret = -ENOMEM;

	if (uid_eq(uid, GLOBAL_ROOT_UID))
		return 0;
	noio = memalloc_noio_save();
	mutex_lock(&dev->limit_mutex);
	o = *owner ? NULL : owner_of(dev, uid);
	if (o && within_share(dev, what, o)) {
		add_to(dev, what, o);
		*owner = o;
		ret = 0;
	} else {
		swp_stat_inc(dev, LIMIT_HIT);
	}
	drop_unused(dev, o);
	mutex_unlock(&dev->limit_mutex);
	memalloc_noio_restore(noio);
	return ret;
}

void swp_uncount(struct swp_device *dev, enum swp_limit what,
		 struct swp_owner *o)
{
	mutex_lock(&dev->limit_mutex);
	dev->num[what]--;
	if (o) {
		dev->ordinary[what]--;
		o->num[what]--;
		o->total--;
		drop_unused(dev, o);
	}
	mutex_unlock(&dev->limit_mutex);
}

void swp_limits_init(struct swp_device *dev)
{
	mutex_init(&dev->limit_mutex);
	xa_init(&dev->owners);
}

/* No object is left. */
void swp_limits_exit(struct swp_device *dev)
{
	xa_destroy(&dev->owners);
}
