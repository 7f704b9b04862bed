// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Where the library meets the provider: it opens the plug-in, whose constructor
// registers this table.
#include <array>
#include <limits>

#include "provider.hpp"
#include "softwarp_abi.h"

namespace softwarp {

namespace {

constexpr std::array<abi::VerbsMatchEnt, 2> match_table{{
    {.driver_data = nullptr,
     .u = {.driver_id = SWP_DRIVER_ID},
     .vendor = 0,
     .device = 0,
     .kind = abi::MatchKind::driver_id},
    {.driver_data = nullptr,
     .u = {.driver_id = 0},
     .vendor = 0,
     .device = 0,
     .kind = abi::MatchKind::end},
}};

// Every ABI version matches: a device that cannot be opened, with a sentence
// saying why, helps more than one that is missing from the list.
constexpr abi::VerbsDeviceOps device_ops{
    .name = "softwarp",
    .match_min_abi_version = 0,
    .match_max_abi_version = std::numeric_limits<std::int32_t>::max(),
    .match_table = match_table.data(),
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = alloc_context,
    .import_context = nullptr,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

[[gnu::constructor]] void register_driver() noexcept {
    abi::SOFTWARP_REGISTER_DRIVER(&device_ops);
}

} // namespace

} // namespace softwarp
