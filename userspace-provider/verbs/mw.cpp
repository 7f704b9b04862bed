// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Memory windows: a key for a part of a region, which work requests change; see
// SendQueue for those.
#include <cerrno>
#include <memory>
#include <new>

#include "command.hpp"
#include "provider.hpp"

namespace softwarp {

ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type) noexcept {
    std::unique_ptr<ibv_mw> mw{new (std::nothrow) ibv_mw{}};
    if (!mw) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_alloc_mw> request;
    Response<ib_uverbs_alloc_mw_resp> response;
    const int error = abi::ibv_cmd_alloc_mw(pd, type, mw.get(), request.data(), request.size(),
                                            response.data(), response.size());
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return mw.release();
}

int dealloc_mw(ibv_mw *mw) noexcept {
    const int error = abi::ibv_cmd_dealloc_mw(mw);
    if (error == 0)
        delete mw;
    return error;
}

} // namespace softwarp
