// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What of a program's memory the device's driver reads as well, for programs
 * that write there what the provider never would.
 */
#pragma once

#include <set>

#include <softwarp_abi.h>

#include "lib/connection.hpp"

namespace softwarp::e2e {

struct Mapping {
    uint8_t *start;
    size_t size;
    bool operator<(const Mapping &other) const { return start < other.start; }
};

/* What of this process's memory is shared with the device's driver. */
std::set<Mapping> device_mappings();

/*
 * Makes the driver look at the send queue, as the library does: an empty
 * POST_SEND command.  It may be refused when the queue is garbage.
 */
void ring_doorbell(ibv_qp *qp);

/*
 * The send ring of a QP to which nothing was posted yet.  To find it, two empty
 * Writes are posted.
 */
class SendRing {
  public:
    explicit SendRing(const Endpoint &end);

    uint32_t entries() const { return entries_; }
    swp_ring_ctrl *ctrl() const { return ctrl_; }
    /* The same request in every slot whose number has this remainder. */
    void fill(const swp_sqe &sqe, const void *tail = nullptr, size_t length = 0,
              uint32_t modulus = 1, uint32_t remainder = 0) const;
    /* As if the whole ring had just been posted; returns how many slots were free for it. */
    uint32_t post_all() const;

  private:
    swp_ring_ctrl *ctrl_ = nullptr;
    uint8_t *data_ = nullptr;
    uint32_t stride_ = 0;
    uint32_t entries_;
};

} // namespace softwarp::e2e
