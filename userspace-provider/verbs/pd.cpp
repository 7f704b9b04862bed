// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Domains.  A protection domain is wholly the kernel's, there is only a handle
// here; a parent domain is a second handle of one, with a thread domain.
//
// That objects of a thread domain are used by one thread at a time changes
// nothing: their locks are kept.  A free one costs two nanoseconds, and a program
// that breaks its promise loses nothing.
#include <cerrno>
#include <memory>
#include <new>

#include "command.hpp"
#include "objects.hpp"
#include "provider.hpp"

namespace softwarp {

ibv_pd *alloc_pd(ibv_context *context) noexcept {
    std::unique_ptr<Pd> pd{new (std::nothrow) Pd};
    if (!pd) {
        errno = ENOMEM;
        return nullptr;
    }
    Request<ib_uverbs_alloc_pd> request;
    Response<ib_uverbs_alloc_pd_resp> response;
    const int error = abi::ibv_cmd_alloc_pd(context, &pd->base, request.data(), request.size(),
                                            response.data(), response.size());
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    return &pd.release()->base;
}

// The memory that others allocate for queues, by functions of the program's, is
// here the kernel's.
ibv_pd *alloc_parent_domain(ibv_context *context, ibv_parent_domain_init_attr *attr) noexcept {
    if ((attr->comp_mask & ~std::uint32_t{IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT}) != 0) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    if (attr->pd == nullptr || attr->pd->context != context ||
        (attr->td != nullptr && attr->td->context != context)) {
        errno = EINVAL;
        return nullptr;
    }
    Pd *pd = new (std::nothrow) Pd;
    if (pd == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    pd->base = *attr->pd;
    pd->of = to_pd(attr->pd);
    ++pd->of->users;
    if (attr->td != nullptr) {
        pd->td = to_td(attr->td);
        ++pd->td->users;
    }
    return &pd->base;
}

int dealloc_pd(ibv_pd *ibpd) noexcept {
    Pd *pd = to_pd(ibpd);
    if (pd->users != 0)
        return EBUSY;
    if (pd->of != nullptr) {
        --pd->of->users;
        if (pd->td != nullptr)
            --pd->td->users;
    } else {
        const int error = abi::ibv_cmd_dealloc_pd(ibpd);
        if (error != 0)
            return error;
    }
    delete pd;
    return 0;
}

ibv_td *alloc_td(ibv_context *context, ibv_td_init_attr *attr) noexcept {
    if (attr->comp_mask != 0) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    Td *td = new (std::nothrow) Td;
    if (td == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    td->base.context = context;
    return &td->base;
}

int dealloc_td(ibv_td *ibtd) noexcept {
    Td *td = to_td(ibtd);
    if (td->users != 0)
        return EBUSY;
    delete td;
    return 0;
}

} // namespace softwarp
