// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Stands for libibverbs and the kernel module behind it: answers commands from
// what a test sets here, and notes what came.  The device file is a memfd that
// holds the rings one after the other.
#ifndef SOFTWARP_TESTS_UNIT_FAKE_VERBS_HPP
#define SOFTWARP_TESTS_UNIT_FAKE_VERBS_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "abi.hpp"
#include "softwarp_abi.h"

struct FakeKernel {
    // Answers
    std::uint32_t abi_version = SWP_ABI_VERSION;
    int next_error = 0; // returned by the next command, once
    std::uint32_t cq_entries = 8;
    std::uint32_t cq_bytes = 4096 + 4096;
    std::uint64_t cq_key = 0;
    swp_resize_cq_resp resized{};
    swp_create_srq_resp srq{};
    swp_modify_srq_resp resized_srq{};
    swp_create_qp_resp qp{};
    std::uint32_t qp_num = 100;
    std::uint64_t fw_ver = 0;
    std::vector<int> write_errors; // errno of the next write() calls, 0 = success

    // Notes
    swp_uctx_req uctx_req{};
    std::uint32_t driver_id = 0;
    ibv_moderate_cq moderation{};
    int contexts = 0; // open ones
    int pds = 0;
    int mrs = 0;
    int mws = 0;
    int cqs = 0;
    int srqs = 0;
    int qps = 0;
    std::vector<std::string> doorbells; // bytes written
    int ioctl_doorbells = 0;
    softwarp::abi::VerbsContextOps ops{};
    std::function<void()> in_destroy_qp; // runs once the kernel has forgotten the QP
    std::function<void()> in_resize_cq;  // runs before the kernel answers
    std::function<void()> in_resize_srq; // likewise
    std::uint32_t qp_comp_mask = 0;      // of an extended creation
};

extern FakeKernel kernel;
extern const softwarp::abi::VerbsDeviceOps *registered;

#endif // SOFTWARP_TESTS_UNIT_FAKE_VERBS_HPP
