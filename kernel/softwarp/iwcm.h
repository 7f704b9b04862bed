/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device's calls for iw_cm, and what becomes of connections when devices and
 * QPs go.
 */
#ifndef SWP_IWCM_H
#define SWP_IWCM_H

#include <rdma/iw_cm.h>

struct swp_device;
struct swp_qp;

int swp_cm_connect(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int swp_cm_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int swp_cm_reject(struct iw_cm_id *id, const void *pdata, u8 len);
int swp_cm_listen(struct iw_cm_id *id, int backlog);
int swp_cm_destroy_listen(struct iw_cm_id *id);
void swp_cm_device_init(struct swp_device *dev);
/*
 * No new endpoints; pending ones fail, connections are aborted, listening
 * sockets close.  Does not wait; may be called early and more than once.
 */
void swp_cm_device_stop(struct swp_device *dev);
/*
 * swp_cm_device_stop(), then waits for the last endpoint.  Only once no client
 * of ib_core is left (dealloc_driver): no cm id may refer to an endpoint.
 */
void swp_cm_device_gone(struct swp_device *dev);
/*
 * The QP is being destroyed or moved to ERROR: a start-up that has a claim on it
 * fails now.  Process context, no locks.
 */
void swp_cm_qp_gone(struct swp_qp *qp);
int swp_cm_init(void);
void swp_cm_exit(void);

#endif /* SWP_IWCM_H */
