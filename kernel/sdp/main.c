// SPDX-License-Identifier: GPL-2.0
/*
 * The module: stream sockets over RDMA devices, by the Sockets Direct Protocol
 * (draft-pinkerton-iwarp-sdp-01).
 */
#include <linux/module.h>

#include "bytcp.h"
#include "cma.h"
#include "device.h"
#include "family.h"
#include "link.h"
#include "netns.h"
#include "stream.h"
#include "uapi/softwarp_sdp.h"
#include "version.h"

module_param_named(family, sdp_family, uint, 0444);
MODULE_PARM_DESC(family, "number of the protocol family AF_INET_SDP (27)");

static int __init sdp_init(void)
{
	int ret;

	ret = sdp_netns_init();
	if (ret)
		return ret;
	ret = sdp_by_tcp_init();
	if (ret)
		goto err_netns;
	ret = sdp_link_init();
	if (ret)
		goto err_by_tcp;
	ret = sdp_cma_init();
	if (ret)
		goto err_link;
	ret = sdp_device_init();
	if (ret)
		goto err_cma;
	ret = sdp_family_init();
	if (ret)
		goto err_device;
	return 0;

err_device:
	sdp_device_exit();
err_cma:
	sdp_cma_exit();
err_link:
	sdp_link_exit();
err_by_tcp:
	sdp_by_tcp_exit();
err_netns:
	sdp_netns_exit();
	return ret;
}

static void __exit sdp_exit(void)
{
	sdp_family_exit();
	sdp_device_exit();
	sdp_cma_exit();
	/* links refer to namespaces */
	sdp_link_exit();
	sdp_stream_exit();
	sdp_by_tcp_exit();
	sdp_netns_exit();
}

module_init(sdp_init);
module_exit(sdp_exit);

MODULE_DESCRIPTION("Sockets Direct Protocol over iWARP");
MODULE_AUTHOR("softwarp maintainers");
MODULE_VERSION(SOFTWARP_VERSION);
MODULE_LICENSE("GPL");
MODULE_ALIAS_NETPROTO(27);
MODULE_ALIAS_NET_PF_PROTO_TYPE(2, 257, 1);
MODULE_ALIAS_NET_PF_PROTO_TYPE(10, 257, 1);
MODULE_ALIAS_NET_PF_PROTO_TYPE(2, 258, 1);
MODULE_ALIAS_NET_PF_PROTO_TYPE(10, 258, 1);
