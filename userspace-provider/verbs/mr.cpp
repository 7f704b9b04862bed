// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Memory regions: pinned and described by the kernel, there are only the keys
// here.
#include <cerrno>
#include <memory>
#include <new>

#include "command.hpp"
#include "provider.hpp"

namespace softwarp {

ibv_mr *reg_mr(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t hca_va,
               int access) noexcept {
    std::unique_ptr<abi::VerbsMr> mr{new (std::nothrow) abi::VerbsMr{}};
    if (!mr) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_reg_mr> request;
    Response<ib_uverbs_reg_mr_resp> response;
    const int error =
        abi::ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr.get(), request.data(),
                            request.size(), response.data(), response.size());
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return &mr.release()->mr;
}

// The library keeps address, length and PD; errno is how it hears what failed.
int rereg_mr(abi::VerbsMr *mr, int flags, ibv_pd *pd, void *addr, std::size_t length,
             int access) noexcept {
    const auto command = [&]() noexcept {
        Request<ib_uverbs_rereg_mr> request;
        Response<ib_uverbs_rereg_mr_resp> response;
        return abi::ibv_cmd_rereg_mr(mr, static_cast<std::uint32_t>(flags), addr, length,
                                     reinterpret_cast<std::uintptr_t>(addr), access, pd,
                                     request.data(), request.size(), response.data(),
                                     response.size());
    };
    int error = command();
    // It may have new keys that the kernel could not tell: then it gets others.
    if (error == EFAULT)
        error = command();
    if (error != 0)
        errno = error;
    return error;
}

int dereg_mr(abi::VerbsMr *mr) noexcept {
    const int error = abi::ibv_cmd_dereg_mr(mr);
    if (error == 0)
        delete mr;
    return error;
}

} // namespace softwarp
