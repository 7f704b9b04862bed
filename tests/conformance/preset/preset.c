// SPDX-License-Identifier: GPL-2.0
/*
 * Sets the message sequence numbers of a connected QP, and the counts of its
 * reads, so that a test sees them wrap without 2^32 messages:
 * insmod preset.ko netdev=net1 qpn=17 msn=0xfffffffe reads=0xfffffffe
 * The netdev is that of the loader's namespace; the loader keeps the QP alive
 * and its stream idle.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>

#include "softwarp/qp.h"

static char *netdev = "";
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "below the device");

static uint qpn;
module_param(qpn, uint, 0444);
MODULE_PARM_DESC(qpn, "number of the QP");

static uint msn = 1;
module_param(msn, uint, 0444);
MODULE_PARM_DESC(msn, "of the next Send and the next Read Request both ways");

static uint reads;
module_param(reads, uint, 0444);
MODULE_PARM_DESC(reads, "that there have been so far both ways; 0: leave it");

static int preset(struct ib_device *ibdev)
{
	struct swp_qp *qp = xa_load(&to_swp_dev(ibdev)->qps, qpn);
	struct sock *sk;

	if (!qp || !qp->llp)
		return -ENOTCONN;
	sk = qp->llp->sock->sk;
	lock_sock(sk);
	qp->tx.send_msn = msn;
	qp->tx.rreq_msn = msn;
	qp->rx.msn[SWP_QN_SEND] = msn;
	qp->rx.msn[SWP_QN_READ_REQ] = msn;
	if (reads) {
		qp->iread_prod = reads;
		qp->iread_cons = reads;
		qp->oread_prod = reads;
		qp->oread_cons = reads;
	}
	release_sock(sk);
	return 0;
}

static int __init preset_init(void)
{
	struct net_device *ndev;
	struct ib_device *ibdev;
	int ret;

	ndev = dev_get_by_name(current->nsproxy->net_ns, netdev);
	if (!ndev)
		return -ENODEV;
	ibdev = ib_device_get_by_netdev(ndev, SWP_DRIVER_ID);
	dev_put(ndev);
	if (!ibdev)
		return -ENODEV;
	ret = preset(ibdev);
	ib_device_put(ibdev);
	return ret;
}

static void __exit preset_exit(void)
{
}

module_init(preset_init);
module_exit(preset_exit);

MODULE_DESCRIPTION("Message sequence numbers of a softwarp QP, for a test");
MODULE_LICENSE("GPL");
