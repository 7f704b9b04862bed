/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device, its limits and counters, and its settings.
 */
#ifndef SWP_DEVICE_H
#define SWP_DEVICE_H

#include <linux/netdevice.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "compat.h"
#include "spinner.h"
#include "stats.h"
#include "uapi/softwarp_abi.h"

struct swp_ep;
struct swp_listener;

/* Limits; the administrator's copies are module parameters (main.c). */
#define SWP_MAX_ORD		128	/* also the largest IRD */
#define SWP_MAX_MSG		0x80000000U /* bytes of one message, 2 GiB */
#define SWP_MAX_QPN		0xffffffU
#define SWP_MAX_MR		0xffffffU /* STags have 24 bits of index */

/* A locally administered OUI (local bit set), because 0 means no vendor */
#define SWP_VENDOR_ID		0x025750

/* To whom FPDUs go that are longer than RFC 5044 section 4.5 has it */
enum swp_large {
	SWP_LARGE_NEVER,
	SWP_LARGE_NEAR,		/* to a peer in this kernel, see near.h */
	SWP_LARGE_ALWAYS,
};

struct swp_params {
	uint max_qp;		/* QPs per device */
	uint max_cq;		/* CQs per device */
	uint max_mr;		/* memory regions per device */
	uint max_pd;		/* protection domains per device */
	uint max_ucontext;	/* user contexts per device */
	uint max_srq;		/* shared receive queues per device */
	uint max_qp_wr;		/* entries of one SQ or RQ */
	uint max_srq_wr;	/* entries of one shared receive queue */
	uint max_cqe;		/* entries of one CQ */
	uint user_share;	/* percent of max_* for an ordinary user */
	uint reserved_share;	/* percent not for ordinary users */
	uint max_pending;	/* MPA handshakes in progress per listener */
	/* those of one source, when half of max_pending are taken */
	uint max_pending_source;
	uint handshake_ms;	/* time for TCP connect, or an MPA Request */
	uint reply_ms;		/* time for an MPA Reply, milliseconds */
	/* struct swp_policy of devices added later */
	uint qp_port;		/* TCP port of QPs that wait for a peer; 0: none */
	uint qp_setup_ms;	/* time for the peer to come */
	uint mpa_rev;
	uint mpa_crc;
	uint mpa_markers;
	uint mpa_fallback;
	uint mpa_p2p;
	uint mpa_rtr;
	uint mpa_rdmac;
	uint mpa_extensions;
	uint same_host;		/* enum swp_same_host */
	uint max_ird;		/* inbound reads per QP */
	uint spin_wait_us;	/* time softirq waits for a program that spins */
	uint tx_poll_us;	/* time a worker polls an empty send queue */
	uint zcopy_min;		/* least bytes to send by reference; 0: never */
	uint large_fpdus;	/* enum swp_large */
};

extern struct swp_params swp_params;

/* limits.c: objects that are counted --------------------------------------- */

enum swp_limit {
	SWP_LIMIT_QP,
	SWP_LIMIT_CQ,
	SWP_LIMIT_SRQ,
	SWP_LIMIT_MR,		/* regions and windows */
	SWP_LIMIT_PD,
	SWP_LIMIT_UCONTEXT,
	SWP_LIMIT_COUNT
};

/* The objects of an ordinary user on a device; freed with the last one */
struct swp_owner {
	u32 uid;		/* in the initial user namespace */
	u32 num[SWP_LIMIT_COUNT];
	u32 total;
};

/* Device ------------------------------------------------------------------- */

enum swp_crc_policy {
	SWP_CRC_OFF,		/* C=0: use it only if the peer asks */
	SWP_CRC_PREFER,		/* C=1: use it */
	SWP_CRC_REQUIRE,	/* C=1, and refuse a peer with C=0 */
};

/* What start-up offers and accepts; policy.c relies on the members being u8 */
struct swp_policy {
	u8 crc;			/* enum swp_crc_policy */
	u8 markers;		/* bool: M=1, we want to receive markers */
	u8 revision;		/* highest MPA revision offered and accepted */
	u8 fallback;		/* bool: try 1 again if a peer closes on 2 */
	u8 p2p;			/* bool: A=1, our initiator sends an RTR */
	u8 rtr;			/* enum swp_mpa_rtr: offered and accepted */
	u8 rdmac;		/* bool: MPA revision 0 is accepted, too */
	u8 extensions;		/* bool: RFC 7306 is sent and accepted */
	u8 same_host;		/* enum swp_same_host: streams past TCP */
};

/*
 * The addresses of the netdev that follow the first GID.  An address keeps its
 * place as long as the netdev has it; a place without one is all zeros.
 */
#define SWP_GIDS	32	/* with the first one */

struct swp_gids {
	spinlock_t lock;	/* protects the addresses; bh safe */
	union ib_gid addr[SWP_GIDS - 1];
	bool first_is_addr;	/* the first GID is the link-local address */
	struct work_struct work;	/* queued: a reference on the device */
};

struct swp_device {
	struct ib_device base;		/* first: ib_core allocates it */
	struct net_device *netdev;	/* held from newlink to dealloc */
	netdevice_tracker netdev_tracker;
	union ib_gid gid;		/* the first of the table */
	struct swp_gids gids;
	struct swp_policy policy;	/* swp_policy_read() */

	struct xarray qps;		/* QP number -> struct swp_qp */
	u32 qp_next;
	struct xarray mrs;		/* STag index -> struct swp_mr, RCU */
	spinlock_t mw_lock;		/* bindings of windows; bh safe */

	struct mutex limit_mutex;	/* protects the next three; innermost */
	u32 num[SWP_LIMIT_COUNT];	/* of all users and the kernel */
	u32 ordinary[SWP_LIMIT_COUNT];	/* of all ordinary users */
	struct xarray owners;		/* uid -> struct swp_owner */
	atomic_t next_cq_id;

	struct swp_stats __percpu *stats;
	struct xarray counters;		/* id -> struct swp_counter */
	/* counted by QPs while bound: the core adds these.  Lock of qps. */
	struct swp_qp_stats apart;

	/* endpoints and listeners, see ep.h */
	spinlock_t cm_lock;		/* protects the lists below */
	struct list_head eps;		/* struct swp_ep */
	struct list_head listeners;	/* struct swp_listener */
	u32 num_listeners;		/* not yet freed, listed or not */
	struct swp_listener *shared;	/* of waiting QPs, see listen.c */
	bool cm_dead;			/* being removed: no new endpoints */
};

static inline struct swp_device *to_swp_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct swp_device, base);
}

/*
 * swp_count - count an object; the current process's own if @user
 * @owner: set to its owner, for swp_uncount(); NULL: only the device's limit
 * Returns 0, or -ENOMEM at a limit.  Process context.
 */
int swp_count(struct swp_device *dev, enum swp_limit what, bool user,
	      struct swp_owner **owner);
/*
 * swp_count_for - charge an object of a kernel consumer to a user
 * @owner: must be NULL; set to the user, except for root
 * Returns 0, or -ENOMEM at a limit of that user.  Process context.
 */
int swp_count_for(struct swp_device *dev, enum swp_limit what, kuid_t uid,
		  struct swp_owner **owner);
void swp_uncount(struct swp_device *dev, enum swp_limit what,
		 struct swp_owner *owner);
void swp_limits_init(struct swp_device *dev);
void swp_limits_exit(struct swp_device *dev);

static inline enum ib_atomic_cap swp_atomic_cap(const struct swp_device *dev)
{
	return READ_ONCE(dev->policy.extensions) ? IB_ATOMIC_GLOB :
						   IB_ATOMIC_NONE;
}

struct swp_ucontext {
	struct ib_ucontext base;
	struct swp_device *dev;
	struct swp_owner *owner;
	struct swp_spinner spinner;
};

struct swp_pd {
	struct ib_pd base;
	struct swp_owner *owner;
	u32 qps;		/* number of its QPs; dev->mw_lock */
	struct swp_mr *dma;	/* the core's region of all memory, or NULL */
};

#define to_swp_pd(x)	container_of(x, struct swp_pd, base)

/* device.c: begin and end of the layer, and the end of a device */
int swp_device_register(void);
void swp_device_unregister(void);
void swp_dealloc_driver(struct ib_device *ibdev);

/* gid.c */
void swp_gids_init(struct swp_device *dev);
/* The table may have to change.  Any context; the caller holds the device. */
void swp_gids_look(struct swp_device *dev);
/* Any context.  An empty place is all zeros.  -EINVAL: behind the table. */
int swp_gid_query(struct swp_device *dev, u32 index, union ib_gid *gid);
/*
 * The address of a GID, ours or a peer's, with port 0.  Any context.
 * -EADDRNOTAVAIL: it is the first GID, or another one, that no IP address
 * belongs to.
 */
int swp_gid_address(struct swp_device *dev, const u8 *gid,
		    struct sockaddr_storage *addr);
int swp_gids_register(void);
void swp_gids_unregister(void);

/* policy.c: any context */
void swp_policy_init(struct swp_device *dev);
void swp_policy_read(const struct swp_device *dev, struct swp_policy *p);

extern const struct attribute_group swp_policy_group;

#endif /* SWP_DEVICE_H */
