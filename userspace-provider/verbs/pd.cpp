// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Protection domains: wholly the kernel's, there is only a handle here.
#include <cerrno>
#include <memory>
#include <new>

#include "command.hpp"
#include "provider.hpp"

namespace softwarp {

ibv_pd *alloc_pd(ibv_context *context) noexcept {
    std::unique_ptr<ibv_pd> pd{new (std::nothrow) ibv_pd{}};
    if (!pd) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_alloc_pd> request;
    Response<ib_uverbs_alloc_pd_resp> response;
    const int error = abi34::ibv_cmd_alloc_pd(context, pd.get(), request.data(), request.size(),
                                              response.data(), response.size());
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return pd.release();
}

int dealloc_pd(ibv_pd *pd) noexcept {
    const int error = abi34::ibv_cmd_dealloc_pd(pd);
    if (error == 0)
        delete pd;
    return error;
}

} // namespace softwarp
