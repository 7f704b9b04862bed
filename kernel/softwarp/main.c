// SPDX-License-Identifier: GPL-2.0
/*
 * softwarp - RDMA over plain TCP in software (iWARP: RFC 5040, 5041, 5044,
 * 6581).  Module parameters, and init and exit of the layers, in reverse order.
 */
#include <linux/module.h>
#include <rdma/rdma_netlink.h>

#include "copy.h"
#include "crc.h"
#include "device.h"
#include "iwcm.h"
#include "qp.h"
#include "stats.h"
#include "version.h"

#ifdef CONFIG_HIGHMEM
#error "softwarp reaches every page by its kernel address: not for kernels with CONFIG_HIGHMEM"
#endif

struct swp_params swp_params = {
	.max_qp = 65536,
	.max_cq = 65536,
	.max_mr = 1 << 20,
	.max_pd = 65536,
	.max_ucontext = 16384,
	.max_srq = 65536,
	.max_qp_wr = 32768,
	.max_srq_wr = 32768,
	.max_cqe = 1 << 20,
	.user_share = 25,
	.reserved_share = 10,
	.max_pending = 4096,
	.max_pending_source = 512,
	.handshake_ms = 10000,
	.reply_ms = 60000,
	.qp_port = 4794,
	.qp_setup_ms = 60000,
	.mpa_rev = 2,
	.mpa_crc = SWP_CRC_PREFER,
	.mpa_markers = 0,
	.mpa_fallback = 1,
	.mpa_p2p = 1,
	.mpa_rtr = 7,
	.mpa_rdmac = 0,
	.mpa_extensions = 1,
	.same_host = SWP_SAME_HOST_NETNS,
	.max_ird = SWP_MAX_ORD,
	.spin_wait_us = 2,
	.tx_poll_us = 50,
	.zcopy_min = 0,
	.large_fpdus = SWP_LARGE_NEAR,
};

/*
 * Refuse a number that is too large, when it is set: a clipped or wrapped value
 * would not be what the administrator meant.
 */
struct bounded {
	uint *value;
	uint most;
};

static int set_bounded(const char *text, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;
	uint value;
	int ret;

	ret = kstrtouint(text, 0, &value);
	if (ret)
		return ret;
	if (value > b->most) {
		pr_warn("softwarp: %s is at most %u\n", kp->name, b->most);
		return -EINVAL;
	}
	WRITE_ONCE(*b->value, value);
	return 0;
}

static int get_bounded(char *buffer, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;

	return sysfs_emit(buffer, "%u\n", READ_ONCE(*b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = set_bounded,
	.get = get_bounded,
};

#define SWP_BOUNDED(name, bound) \
	((void *)&(const struct bounded){ &swp_params.name, (bound) })

module_param_cb(max_qp, &bounded_ops, SWP_BOUNDED(max_qp, SWP_MAX_QPN - 1),
		0644);
MODULE_PARM_DESC(max_qp, "QPs per device (65536)");
module_param_cb(max_cq, &bounded_ops, SWP_BOUNDED(max_cq, INT_MAX),
		0644);
MODULE_PARM_DESC(max_cq, "CQs per device (65536)");
module_param_cb(max_mr, &bounded_ops, SWP_BOUNDED(max_mr, SWP_MAX_MR),
		0644);
MODULE_PARM_DESC(max_mr, "memory regions and windows per device (1048576)");
module_param_cb(max_pd, &bounded_ops, SWP_BOUNDED(max_pd, INT_MAX),
		0644);
MODULE_PARM_DESC(max_pd, "protection domains per device (65536)");
module_param_cb(max_ucontext, &bounded_ops, SWP_BOUNDED(max_ucontext, INT_MAX),
		0644);
MODULE_PARM_DESC(max_ucontext, "open user contexts per device (16384)");
module_param_cb(max_srq, &bounded_ops, SWP_BOUNDED(max_srq, INT_MAX),
		0644);
MODULE_PARM_DESC(max_srq, "shared receive queues per device (65536)");
module_param_cb(max_qp_wr, &bounded_ops, SWP_BOUNDED(max_qp_wr, 1 << 20),
		0644);
MODULE_PARM_DESC(max_qp_wr, "entries of one send or receive queue (32768)");
module_param_cb(max_srq_wr, &bounded_ops, SWP_BOUNDED(max_srq_wr, 1 << 20),
		0644);
MODULE_PARM_DESC(max_srq_wr, "entries of one shared receive queue (32768)");
module_param_cb(max_cqe, &bounded_ops, SWP_BOUNDED(max_cqe, 1 << 25),
		0644);
MODULE_PARM_DESC(max_cqe, "entries of one completion queue (1048576)");
module_param_cb(user_share, &bounded_ops, SWP_BOUNDED(user_share, 100),
		0644);
MODULE_PARM_DESC(user_share, "percent of each of max_qp, max_cq, max_srq, max_mr, max_pd and max_ucontext that one ordinary user may have (25)");
module_param_cb(reserved_share, &bounded_ops, SWP_BOUNDED(reserved_share, 100),
		0644);
MODULE_PARM_DESC(reserved_share, "percent of the same that all ordinary users leave to the kernel and CAP_NET_ADMIN (10)");
module_param_cb(max_pending, &bounded_ops, SWP_BOUNDED(max_pending, INT_MAX),
		0644);
MODULE_PARM_DESC(max_pending, "MPA handshakes in progress per listener (4096)");
module_param_cb(max_pending_source, &bounded_ops,
		SWP_BOUNDED(max_pending_source, INT_MAX), 0644);
MODULE_PARM_DESC(max_pending_source, "MPA handshakes of one address, or IPv6 /64, per listener once half of max_pending are taken (512)");
module_param_cb(handshake_ms, &bounded_ops, SWP_BOUNDED(handshake_ms, INT_MAX),
		0644);
MODULE_PARM_DESC(handshake_ms, "milliseconds for a TCP connect, and for a peer to send its MPA Request (10000)");
module_param_cb(reply_ms, &bounded_ops, SWP_BOUNDED(reply_ms, INT_MAX),
		0644);
MODULE_PARM_DESC(reply_ms, "milliseconds for a peer to accept or reject a connection (60000)");
module_param_cb(qp_port, &bounded_ops, SWP_BOUNDED(qp_port, U16_MAX),
		0644);
MODULE_PARM_DESC(qp_port, "TCP port for queue pairs that ibv_modify_qp() connects, the same on all hosts, 0 refuses them (4794)");
module_param_cb(qp_setup_ms, &bounded_ops, SWP_BOUNDED(qp_setup_ms, INT_MAX),
		0644);
MODULE_PARM_DESC(qp_setup_ms, "milliseconds for the peer of such a queue pair to come (60000)");
module_param_named(mpa_rev, swp_params.mpa_rev, uint, 0644);
MODULE_PARM_DESC(mpa_rev, "mpa/revision of devices made from now on: 1 or 2 (2)");
module_param_named(mpa_crc, swp_params.mpa_crc, uint, 0644);
MODULE_PARM_DESC(mpa_crc, "mpa/crc of devices made from now on: 0 off, 1 prefer, 2 require (1)");
module_param_named(mpa_markers, swp_params.mpa_markers, uint, 0644);
MODULE_PARM_DESC(mpa_markers, "mpa/markers of devices made from now on: 0 off, 1 on (0)");
module_param_named(mpa_fallback, swp_params.mpa_fallback, uint, 0644);
MODULE_PARM_DESC(mpa_fallback, "mpa/fallback of devices made from now on: 0 off, 1 on (1)");
module_param_named(mpa_p2p, swp_params.mpa_p2p, uint, 0644);
MODULE_PARM_DESC(mpa_p2p, "mpa/p2p of devices made from now on: 0 off, 1 on (1)");
module_param_named(mpa_rtr, swp_params.mpa_rtr, uint, 0644);
MODULE_PARM_DESC(mpa_rtr, "mpa/rtr of devices made from now on: sum of 1 send, 2 write, 4 read (7)");
module_param_named(mpa_rdmac, swp_params.mpa_rdmac, uint, 0644);
MODULE_PARM_DESC(mpa_rdmac, "mpa/rdmac of devices made from now on: 0 off, 1 on (0)");
module_param_named(mpa_extensions, swp_params.mpa_extensions, uint, 0644);
MODULE_PARM_DESC(mpa_extensions, "mpa/extensions of devices made from now on: 0 off, 1 on (1)");
module_param_cb(same_host, &bounded_ops,
		SWP_BOUNDED(same_host, SWP_SAME_HOST_ALL), 0644);
MODULE_PARM_DESC(same_host, "mpa/same_host of devices made from now on: 0 off, 1 within a network namespace, 2 all (1)");
module_param_cb(max_ird, &bounded_ops, SWP_BOUNDED(max_ird, SWP_MAX_ORD),
		0644);
MODULE_PARM_DESC(max_ird, "inbound reads per QP, at most 128 (128)");
module_param_cb(spin_wait_us, &bounded_ops, SWP_BOUNDED(spin_wait_us, 1000),
		0644);
MODULE_PARM_DESC(spin_wait_us, "microseconds that softirq waits for the answer of a program that looks for completions without end, 0: it does not ask (2)");
module_param_cb(tx_poll_us, &bounded_ops, SWP_BOUNDED(tx_poll_us, 1000000),
		0644);
MODULE_PARM_DESC(tx_poll_us, "microseconds a worker watches the queue of a stream of requests, 0 never (50)");
module_param_named(zcopy_min, swp_params.zcopy_min, uint, 0644);
MODULE_PARM_DESC(zcopy_min, "bytes from which pages go to TCP by reference, 0 never (0)");
module_param_cb(large_fpdus, &bounded_ops,
		SWP_BOUNDED(large_fpdus, SWP_LARGE_ALWAYS), 0644);
MODULE_PARM_DESC(large_fpdus, "FPDUs longer than a TCP segment: 0 never, 1 to a peer in this kernel, 2 to all (1)");

static int __init swp_init(void)
{
	int ret;

	swp_crc_init();
	swp_copy_init();
	swp_stats_init();
	/*
	 * Senders may sleep for the socket lock, and memory reclaim may depend
	 * on storage that uses us.  Whose work has priority: qp_wq().
	 */
	swp_wq = alloc_workqueue("softwarp", WQ_UNBOUND | WQ_MEM_RECLAIM |
				 WQ_HIGHPRI, 0);
	if (!swp_wq)
		return -ENOMEM;
	swp_user_wq = alloc_workqueue("softwarp_user", WQ_UNBOUND |
				      WQ_MEM_RECLAIM, 0);
	ret = -ENOMEM;
	if (!swp_user_wq)
		goto err_wq;
	/*
	 * Pollers use at most half of the CPUs, as long as a program keeps its
	 * queue busy.  High priority: while a poller waits for its CPU, its
	 * stream stalls, because no other context looks at the queue.
	 */
	swp_poll_wq = alloc_workqueue("softwarp_poll", WQ_HIGHPRI | WQ_PERCPU |
				      WQ_CPU_INTENSIVE, 0);
	if (!swp_poll_wq)
		goto err_user_wq;
	ret = -ENOMEM;
	swp_rx_wq = alloc_workqueue("softwarp_rx", WQ_HIGHPRI | WQ_PERCPU |
				    WQ_MEM_RECLAIM, 0);
	if (!swp_rx_wq)
		goto err_poll_wq;
	swp_rx_user_wq = alloc_workqueue("softwarp_rx_user", WQ_PERCPU |
					 WQ_MEM_RECLAIM, 0);
	if (!swp_rx_user_wq)
		goto err_rx_wq;
	ret = swp_cm_init();
	if (ret)
		goto err_rx_user_wq;
	ret = swp_device_register();
	if (ret)
		goto err_cm;
	return 0;

err_cm:
	swp_cm_exit();
err_rx_user_wq:
	destroy_workqueue(swp_rx_user_wq);
err_rx_wq:
	destroy_workqueue(swp_rx_wq);
err_poll_wq:
	destroy_workqueue(swp_poll_wq);
err_user_wq:
	destroy_workqueue(swp_user_wq);
err_wq:
	destroy_workqueue(swp_wq);
	return ret;
}

static void __exit swp_exit(void)
{
	swp_device_unregister();
	swp_cm_exit();
	destroy_workqueue(swp_rx_user_wq);
	destroy_workqueue(swp_rx_wq);
	destroy_workqueue(swp_poll_wq);
	destroy_workqueue(swp_user_wq);
	destroy_workqueue(swp_wq);
	swp_tx_exit();
	/* wait for regions, which are freed after a grace period */
	rcu_barrier();
}

module_init(swp_init);
module_exit(swp_exit);

MODULE_ALIAS_RDMA_LINK("softwarp");
MODULE_DESCRIPTION("RDMA over plain TCP (iWARP) in software");
MODULE_AUTHOR("softwarp maintainers");
MODULE_VERSION(SOFTWARP_VERSION);
MODULE_LICENSE("GPL");
