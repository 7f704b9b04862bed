// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * To preload: servers that listen on the wildcard address listen on the address
 * in SOFTWARP_BIND instead.  perftest has no option for that, and rdma_cm listens
 * on all devices then, for which in-tree siw wants the port that another driver
 * has already.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>

#include <rdma/rdma_cma.h>

extern "C" int rdma_bind_addr(rdma_cm_id *id, sockaddr *address) {
    using Bind = int (*)(rdma_cm_id *, sockaddr *);
    static const auto next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "rdma_bind_addr"));
    const char *here = std::getenv("SOFTWARP_BIND");
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    /* The library itself tries whether it may bind to AF_IB, with a lock held. */
    bool ip = address->sa_family == AF_INET || address->sa_family == AF_INET6;
    if (!ip || here == nullptr || inet_pton(AF_INET, here, &v4.sin_addr) != 1)
        return next(id, address);
    /* Both families keep the port in the same place. */
    sockaddr_in6 given{};
    std::memcpy(&given, address,
                address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    v4.sin_port = given.sin6_port;
    return next(id, reinterpret_cast<sockaddr *>(&v4));
}
