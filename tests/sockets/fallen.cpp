// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What only TCP has.  A socket that uses TCP in the end, and one that TCP has
 * accepted for an auto listener, have it as well; one that uses SDP says no at once.
 */
#include <cerrno>
#include <cstring>

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>

#include <linux/tls.h>

#include "kinds.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

class Fallen : public Sockets {
  protected:
    static bool by_sdp(const Fd &fd) {
        sdp_info info{};
        socklen_t len = sizeof(info);
        return ::getsockopt(fd.get(), SOL_SDP, SDP_INFO, &info, &len) == 0 &&
               info.transport != SDP_INFO_TRANSPORT_TCP;
    }
    static int use_tls(const Fd &fd) {
        return ERRNO_OF(::setsockopt(fd.get(), SOL_TCP, TCP_ULP, "tls", sizeof("tls")));
    }
    static void set_key(const Fd &fd, int direction, uint8_t seed) {
        tls12_crypto_info_aes_gcm_128 info{};
        info.info.version = TLS_1_2_VERSION;
        info.info.cipher_type = TLS_CIPHER_AES_GCM_128;
        std::memset(info.key, seed, sizeof(info.key));
        EXPECT_EQ(::setsockopt(fd.get(), SOL_TLS, direction, &info, sizeof(info)), 0)
            << std::strerror(errno);
    }
    static void expect_stream(const Fd &from, const Fd &to, size_t size) {
        Call sends([&] { return send_all(from, pattern(size)) ? 0 : -1; });
        EXPECT_EQ(receive(to, size), pattern(size));
        EXPECT_EQ(sends.ret(), 0);
    }
};
INSTANTIATE_TEST_SUITE_P(All, Fallen, testing::ValuesIn(all_kinds()), name_of_kind);

TEST_P(Fallen, Tls) {
    Fd fresh = make();
    EXPECT_NE(use_tls(fresh), 0);
    Pair p = connected();
    if (by_sdp(p.here)) {
        EXPECT_EQ(use_tls(p.here), EOPNOTSUPP);
        EXPECT_EQ(use_tls(p.there), EOPNOTSUPP);
        expect_stream(p.here, p.there, 1000);
        return;
    }
    int error = use_tls(p.here);
    if (error == ENOENT)
        return; // a kernel without it
    ASSERT_EQ(error, 0) << std::strerror(error);
    ASSERT_EQ(use_tls(p.there), 0);
    set_key(p.here, TLS_TX, 1);
    set_key(p.there, TLS_RX, 1);
    set_key(p.there, TLS_TX, 2);
    set_key(p.here, TLS_RX, 2);
    expect_stream(p.here, p.there, 100000);
    expect_stream(p.there, p.here, 100000);
    EXPECT_EQ(use_tls(p.here), EEXIST);
    EXPECT_EQ(events(p.there, POLLIN | POLLOUT), POLLOUT);
    /* without TIME-WAIT, in which it would keep the module */
    set_linger(p.here, 0);
}

/* A call that sleeps meanwhile goes on as one of TCP's. */
TEST_P(Fallen, TlsWhileACallSleeps) {
    Pair p = connected();
    if (by_sdp(p.here))
        return;
    Call sleeps([&] {
        char c;
        return ::recv(p.there.get(), &c, 1, 0);
    });
    EXPECT_TRUE(sleeps.sleeps());
    int error = use_tls(p.there);
    EXPECT_TRUE(error == 0 || error == ENOENT) << error;
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(sleeps.ret(), 1);
    set_linger(p.here, 0);
}

/* TCP_ZEROCOPY_RECEIVE, and the memory for it */
TEST_P(Fallen, ZeroCopyReceive) {
    struct {
        uint64_t address;
        uint32_t length, left;
    } zc{};
    constexpr int kOption = 35;
    constexpr size_t kSize = 65536;
    Pair p = connected();
    void *at = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, p.there.get(), 0);
    socklen_t len = sizeof(zc);
    if (by_sdp(p.there)) {
        EXPECT_EQ(at, MAP_FAILED);
        EXPECT_EQ(errno, ENODEV);
        EXPECT_EQ(ERRNO_OF(::getsockopt(p.there.get(), SOL_TCP, kOption, &zc, &len)), EOPNOTSUPP);
        return;
    }
    ASSERT_NE(at, MAP_FAILED) << std::strerror(errno);
    ASSERT_TRUE(send_all(p.here, pattern(20000)));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    zc.address = reinterpret_cast<uintptr_t>(at);
    zc.length = kSize;
    ASSERT_EQ(::getsockopt(p.there.get(), SOL_TCP, kOption, &zc, &len), 0) << std::strerror(errno);
    EXPECT_GT(zc.length + zc.left, 0U);
    EXPECT_EQ(receive(p.there, 20000 - zc.length).size(), 20000 - zc.length);
    ::munmap(at, kSize);
}

/* With IPv4 behind it, a socket of AF_INET6 can become one of AF_INET. */
TEST_P(Fallen, AddressForm) {
    constexpr int kAddrForm = 1; // IPV6_ADDRFORM
    if (GetParam().address != AF_INET6 || GetParam().host)
        return;
    Fd l = listener_at(address("::"));
    Fd here = dial(address("::ffff:127.0.0.1", name_of(l).port()));
    ASSERT_EQ(errno, 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    for (const Fd *fd : {&here, &there}) {
        if (by_sdp(*fd)) {
            EXPECT_EQ(set(*fd, SOL_IPV6, kAddrForm, AF_INET), EOPNOTSUPP);
            continue;
        }
        EXPECT_EQ(set(*fd, SOL_IPV6, kAddrForm, AF_INET), 0);
        EXPECT_EQ(option(*fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
        EXPECT_EQ(name_of(*fd).storage.ss_family, AF_INET);
    }
    expect_stream(here, there, 1000);
    expect_stream(there, here, 1000);
    set_linger(here, 0);
}

/* A socket that has been TCP's and is to be so again, or not */
TEST_P(Fallen, AgainAndAgain) {
    Fd l = listener(), here = make();
    Address nobody = name_of(Fd(listener()));
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(connect_to(here, nobody), ECONNREFUSED);
        ASSERT_EQ(connect_to(here, name_of(l)), 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
        expect_stream(here, there, 1000);
        expect_stream(there, here, 1000);
        ASSERT_EQ(::connect(here.get(), &none, sizeof(none)), 0);
        option(here, SOL_SOCKET, SO_ERROR);
        EXPECT_EQ(events(here, POLLIN | POLLOUT), POLLOUT | POLLHUP);
        EXPECT_EQ(ERRNO_OF(::recv(here.get(), &none, 1, MSG_DONTWAIT)), ENOTCONN);
    }
    /* and then the other way round */
    ASSERT_EQ(bind_to(here, loopback()), 0);
    ASSERT_EQ(::listen(here.get(), 3), 0);
    Fd other = dial(name_of(here));
    EXPECT_EQ(errno, 0);
    Fd there(::accept(here.get(), nullptr, nullptr));
    expect_stream(other, there, 1000);
}

} // namespace softwarp::sockets
