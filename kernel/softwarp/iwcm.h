/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device's ops for iw_cm, and the end of connections when a device or a QP
 * is removed.
 */
#ifndef SWP_IWCM_H
#define SWP_IWCM_H

#include <rdma/iw_cm.h>

struct swp_device;
struct swp_ep;
struct swp_qp;

int swp_cm_connect(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int swp_cm_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int swp_cm_reject(struct iw_cm_id *id, const void *pdata, u8 len);
int swp_cm_listen(struct iw_cm_id *id, int backlog);
int swp_cm_destroy_listen(struct iw_cm_id *id);
void swp_cm_device_init(struct swp_device *dev);
/*
 * Prevents new endpoints, fails pending ones, aborts connections, and closes
 * listening sockets.  Does not wait; may be called early and more than once.
 */
void swp_cm_device_stop(struct swp_device *dev);
/*
 * Calls swp_cm_device_stop(), then waits for the last endpoint and listener.
 * Only after the last client of ib_core (dealloc_driver), so that no cm id
 * refers to an endpoint.
 */
void swp_cm_device_gone(struct swp_device *dev);
/* The start-up that has a claim on the QP, with a reference, or NULL. */
struct swp_ep *swp_cm_claimer(struct swp_qp *qp);
/*
 * The QP is being reset, destroyed or moved to ERROR: fail the start-up that has a
 * claim on it.  Process context, no locks.
 */
void swp_cm_qp_gone(struct swp_qp *qp);
int swp_cm_init(void);
void swp_cm_exit(void);

#endif /* SWP_IWCM_H */
