// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of InfiniBand performance management, see pma.h.
 */
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>

#include "device.h"
#include "pma.h"
#include "stats.h"

/* Offset in ib_mad.data of the contents of a message of this class */
#define CONTENTS	40

static __be32 clipped(u64 value)
{
	return cpu_to_be32(min_t(u64, value, U32_MAX));
}

static __be16 clipped16(u64 value)
{
	return cpu_to_be16(min_t(u64, value, U16_MAX));
}

/* The unit of data counters is a word of four octets. */
static u64 words(u64 octets)
{
	return octets / 4;
}

static void port_counters(const u64 *v, struct ib_pma_portcounters *p)
{
	p->port_rcv_errors = clipped16(v[SWP_STAT_RX_CRC_ERR] +
				       v[SWP_STAT_RX_MARKER_ERR] +
				       v[SWP_STAT_RX_PROTO_ERR]);
	p->port_xmit_data = clipped(words(v[SWP_STAT_TX_BYTES]));
	p->port_rcv_data = clipped(words(v[SWP_STAT_RX_BYTES]));
	p->port_xmit_packets = clipped(v[SWP_STAT_TX_FPDU]);
	p->port_rcv_packets = clipped(v[SWP_STAT_RX_FPDU]);
	p->port_xmit_wait = clipped(v[SWP_STAT_TX_STALLS]);
}

static void port_counters_ext(const u64 *v, struct ib_pma_portcounters_ext *p)
{
	p->port_xmit_data = cpu_to_be64(words(v[SWP_STAT_TX_BYTES]));
	p->port_rcv_data = cpu_to_be64(words(v[SWP_STAT_RX_BYTES]));
	p->port_xmit_packets = cpu_to_be64(v[SWP_STAT_TX_FPDU]);
	p->port_rcv_packets = cpu_to_be64(v[SWP_STAT_RX_FPDU]);
	p->port_unicast_xmit_packets = p->port_xmit_packets;
	p->port_unicast_rcv_packets = p->port_rcv_packets;
}

int swp_process_mad(struct ib_device *ibdev, int flags, u32 port,
		    const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out,
		    size_t *out_size, u16 *out_pkey_index)
{
	struct ib_class_port_info *info = (void *)&out->data[CONTENTS];
	void *contents = &out->data[CONTENTS];
	u64 v[SWP_STAT_COUNT];

	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT ||
	    in->mad_hdr.method != IB_MGMT_METHOD_GET)
		return IB_MAD_RESULT_FAILURE;
	*out = (struct ib_mad){ .mad_hdr = in->mad_hdr };
	out->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	switch (in->mad_hdr.attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		info->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH;
		break;
	case IB_PMA_PORT_COUNTERS:
		swp_port_sums(to_swp_dev(ibdev), v);
		port_counters(v, contents);
		break;
	case IB_PMA_PORT_COUNTERS_EXT:
		swp_port_sums(to_swp_dev(ibdev), v);
		port_counters_ext(v, contents);
		break;
	default:
		return IB_MAD_RESULT_FAILURE;
	}
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}
