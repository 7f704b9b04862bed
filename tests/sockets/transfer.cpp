// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * All ways to hand octets over and to get them, and whose memory they are in
 */
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>

#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "kinds.hpp"

#ifndef SO_PEEK_OFF
#define SO_PEEK_OFF 42
#endif

namespace softwarp::sockets {

SUITE(Transfer);

using Octets = std::vector<uint8_t>;

static bool arrived(const Fd &fd, int octets) {
    return eventually([&] {
        int n = 0;
        return ::ioctl(fd.get(), FIONREAD, &n) == 0 && n == octets;
    });
}

static Octets part(const Octets &all, size_t from, size_t size) {
    return {all.begin() + static_cast<long>(from), all.begin() + static_cast<long>(from + size)};
}

/* Pages, and none behind them */
class Pages {
  public:
    explicit Pages(size_t count) : size_(count * 4096) {
        void *all = ::mmap(nullptr, size_ + 4096, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(all, MAP_FAILED);
        at_ = static_cast<uint8_t *>(all);
        EXPECT_EQ(::munmap(at_ + size_, 4096), 0);
    }
    ~Pages() { ::munmap(at_, size_); }
    uint8_t *end() const { return at_ + size_; }

  private:
    uint8_t *at_;
    size_t size_;
};

/* Vectors ------------------------------------------------------------------------------ */

/* Pieces of all sizes, some of them empty */
static std::vector<iovec> pieces(Octets &octets, size_t count) {
    std::vector<iovec> found;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = i % 5 == 3 ? 0 : i + 1 == count ? octets.size() - at : (i * 7) % 61;
        size = std::min(size, octets.size() - at);
        found.push_back({octets.data() + at, size});
        at += size;
    }
    return found;
}

TEST_P(Transfer, VectorsOfAllLengths) {
    Pair p = connected();
    for (size_t count : {1U, 2U, 3U, 5U, 8U, 16U, 100U, 1023U, 1024U}) {
        Octets out = pattern(30 * count + 40, static_cast<uint8_t>(count)), in(out.size());
        std::vector<iovec> from = pieces(out, count), to = pieces(in, count);
        size_t size = 0;
        for (const iovec &v : from)
            size += v.iov_len;
        ASSERT_EQ(::writev(p.here.get(), from.data(), static_cast<int>(count)),
                  static_cast<ssize_t>(size));
        msghdr msg{};
        msg.msg_iov = to.data();
        msg.msg_iovlen = count;
        ASSERT_EQ(::recvmsg(p.there.get(), &msg, MSG_WAITALL), static_cast<ssize_t>(size));
        EXPECT_EQ(part(in, 0, size), part(out, 0, size)) << count;
    }
}

TEST_P(Transfer, VectorsThatAreRefused) {
    Pair p = connected();
    Octets octets(10);
    std::vector<iovec> many(IOV_MAX + 1, iovec{octets.data(), 1});
    EXPECT_EQ(ERRNO_OF(::writev(p.here.get(), many.data(), IOV_MAX + 1)), EINVAL);
    msghdr msg{};
    msg.msg_iov = many.data();
    msg.msg_iovlen = IOV_MAX + 1;
    EXPECT_EQ(ERRNO_OF(::sendmsg(p.here.get(), &msg, 0)), EMSGSIZE);
    EXPECT_EQ(ERRNO_OF(::recvmsg(p.here.get(), &msg, MSG_DONTWAIT)), EMSGSIZE);
    iovec negative{octets.data(), static_cast<size_t>(-1)};
    EXPECT_EQ(ERRNO_OF(::writev(p.here.get(), &negative, 1)), EINVAL);
    EXPECT_EQ(::writev(p.here.get(), many.data(), 0), 0);
    EXPECT_EQ(events(p.there, POLLIN, 50), 0);
}

TEST_P(Transfer, ManyMessagesInOneCall) {
    Pair p = connected();
    Octets out = pattern(1000), in(1000);
    mmsghdr msgs[10] = {};
    iovec v[10];
    for (size_t i = 0; i < 10; i++) {
        v[i] = {out.data() + i * 100, 100};
        msgs[i].msg_hdr.msg_iov = &v[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    EXPECT_EQ(::sendmmsg(p.here.get(), msgs, 10, 0), 10);
    for (const mmsghdr &msg : msgs)
        EXPECT_EQ(msg.msg_len, 100U);
    ASSERT_TRUE(arrived(p.there, 1000));
    for (size_t i = 0; i < 10; i++)
        v[i].iov_base = in.data() + i * 100;
    timespec time{10, 0};
    EXPECT_EQ(::recvmmsg(p.there.get(), msgs, 10, 0, &time), 10);
    EXPECT_EQ(in, out);
    EXPECT_EQ(ERRNO_OF(::recvmmsg(p.there.get(), msgs, 10, MSG_DONTWAIT, nullptr)), EAGAIN);
    ASSERT_TRUE(send_all(p.here, part(out, 0, 150)));
    ASSERT_TRUE(arrived(p.there, 150));
    EXPECT_EQ(::recvmmsg(p.there.get(), msgs, 10, MSG_WAITFORONE, nullptr), 2);
    EXPECT_EQ(msgs[1].msg_len, 50U);
}

TEST_P(Transfer, MessagesUntilItIsFull) {
    Pair p = connected();
    fill(p.here);
    Octets out = pattern(100);
    mmsghdr msgs[2] = {};
    iovec v{out.data(), out.size()};
    for (mmsghdr &msg : msgs) {
        msg.msg_hdr.msg_iov = &v;
        msg.msg_hdr.msg_iovlen = 1;
    }
    EXPECT_EQ(ERRNO_OF(::sendmmsg(p.here.get(), msgs, 2, MSG_DONTWAIT)), EAGAIN);
}

/* No address and nothing else comes with octets of a stream. */
TEST_P(Transfer, NothingComesWithThem) {
    Pair p = connected();
    Address to = loopback(9);
    /* where to is not looked at */
    EXPECT_EQ(::sendto(p.here.get(), "abc", 3, 0, to.get(), to.len), 3);
    Address from;
    from.len = sizeof(from.storage);
    char room[64], control[64];
    EXPECT_EQ(::recvfrom(p.there.get(), room, 3, 0, from.get(), &from.len), 3);
    EXPECT_EQ(from.len, 0U);
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    iovec v{room, sizeof(room)};
    msghdr msg{};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    msg.msg_name = &from.storage;
    msg.msg_namelen = sizeof(from.storage);
    EXPECT_EQ(::recvmsg(p.there.get(), &msg, 0), 10);
    EXPECT_EQ(msg.msg_controllen, 0U);
    EXPECT_EQ(msg.msg_namelen, 0U);
    EXPECT_EQ(msg.msg_flags, 0);
}

TEST_P(Transfer, FlagsThatChangeNothing) {
    Pair p = connected();
    for (int flags : {0, int{MSG_EOR}, int{MSG_CONFIRM}, int{MSG_DONTROUTE}, int{MSG_NOSIGNAL}})
        EXPECT_EQ(::send(p.here.get(), "x", 1, flags), 1) << flags;
    char room[5];
    EXPECT_EQ(::recv(p.there.get(), room, 5, MSG_WAITALL), 5);
}

TEST_P(Transfer, WhatIsNoFile) {
    Pair p = connected();
    char c = 0;
    EXPECT_EQ(ERRNO_OF(::lseek(p.here.get(), 0, SEEK_SET)), ESPIPE);
    EXPECT_EQ(ERRNO_OF(::pread(p.here.get(), &c, 1, 0)), ESPIPE);
    EXPECT_EQ(ERRNO_OF(::pwrite(p.here.get(), &c, 1, 5)), ESPIPE);
    EXPECT_EQ(ERRNO_OF(::ftruncate(p.here.get(), 0)), EINVAL);
    EXPECT_EQ(ERRNO_OF(::fsync(p.here.get())), EINVAL);
    struct stat st = {};
    ASSERT_EQ(::fstat(p.here.get(), &st), 0);
    EXPECT_TRUE(S_ISSOCK(st.st_mode));
    EXPECT_EQ(::write(p.here.get(), &c, 0), 0);
    EXPECT_EQ(::read(p.here.get(), &c, 0), 0);
    EXPECT_EQ(::write(p.here.get(), "ab", 2), 2);
    char two[2];
    EXPECT_EQ(::read(p.there.get(), two, 2), 2);
}

/* MSG_PEEK ------------------------------------------------------------------------------- */

TEST_P(Transfer, PeekAgainAndAgain) {
    Pair p = connected();
    Octets octets = pattern(9000), got(10000);
    ASSERT_TRUE(send_all(p.here, octets));
    ASSERT_TRUE(arrived(p.there, 9000));
    for (size_t size : {1U, 100U, 4096U, 8999U, 9000U, 10000U}) {
        ssize_t ret = ::recv(p.there.get(), got.data(), size, MSG_PEEK);
        ASSERT_EQ(ret, static_cast<ssize_t>(std::min<size_t>(size, 9000)));
        EXPECT_EQ(part(got, 0, static_cast<size_t>(ret)),
                  part(octets, 0, static_cast<size_t>(ret)));
    }
    EXPECT_TRUE(arrived(p.there, 9000));
    EXPECT_EQ(receive(p.there, 9000), octets);
}

TEST_P(Transfer, PeekAndRead) {
    Pair p = connected();
    Octets octets = pattern(30000), got(30000);
    Call sends([&] {
        for (size_t i = 0; i < 30000; i += 1000)
            EXPECT_TRUE(send_all(p.here, part(octets, i, 1000)));
        return 0;
    });
    size_t at = 0;
    for (size_t step = 1; at < 30000; step = step % 700 + 37) {
        size_t size = std::min(step, 30000 - at);
        Octets seen(2 * size);
        ssize_t ret = ::recv(p.there.get(), seen.data(), 2 * size, MSG_PEEK);
        ASSERT_GT(ret, 0);
        seen.resize(static_cast<size_t>(ret));
        ASSERT_EQ(seen, part(octets, at, seen.size()));
        ASSERT_EQ(receive(p.there, size), part(octets, at, size));
        at += size;
    }
}

TEST_P(Transfer, PeekForAllWithoutWaiting) {
    Pair p = connected();
    Octets got(200);
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_TRUE(arrived(p.there, 100));
    EXPECT_EQ(::recv(p.there.get(), got.data(), 200, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT), 100);
    EXPECT_EQ(::recv(p.there.get(), got.data(), 200, MSG_WAITALL | MSG_DONTWAIT), 100);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), got.data(), 200, MSG_WAITALL | MSG_DONTWAIT)), EAGAIN);
}

TEST_P(Transfer, PeekForAllToTheEnd) {
    Pair p = connected();
    Octets got(200);
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    p.here.reset();
    for (int i = 0; i < 2; i++)
        EXPECT_EQ(::recv(p.there.get(), got.data(), 200, MSG_PEEK | MSG_WAITALL), 100);
    EXPECT_EQ(::recv(p.there.get(), got.data(), 200, 0), 100);
    EXPECT_EQ(::recv(p.there.get(), got.data(), 200, MSG_PEEK), 0);
}

TEST_P(Transfer, PeekAndForget) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_TRUE(arrived(p.there, 100));
    /* counted, but not taken */
    EXPECT_EQ(::recv(p.there.get(), nullptr, 60, MSG_PEEK | MSG_TRUNC), 60);
    EXPECT_TRUE(arrived(p.there, 100));
    EXPECT_EQ(::recv(p.there.get(), nullptr, 60, MSG_TRUNC), 60);
    EXPECT_EQ(::recv(p.there.get(), nullptr, 60, MSG_TRUNC), 40);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), nullptr, 60, MSG_TRUNC | MSG_DONTWAIT)), EAGAIN);
}

TEST_P(Transfer, PeekFurtherOn) {
    Pair p = connected();
    Octets octets = pattern(6000), got(6000);
    Fd plain(::socket(AF_INET, SOCK_STREAM, 0));
    int err = set(plain, SOL_SOCKET, SO_PEEK_OFF, 100);
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_PEEK_OFF, 100), err);
    /* of TCP's before 6.9 */
    if (err != 0) {
        EXPECT_EQ(err, EOPNOTSUPP);
        return;
    }
    ASSERT_TRUE(send_all(p.here, octets));
    ASSERT_TRUE(arrived(p.there, 6000));
    auto peek = [&](size_t size) {
        ssize_t ret = ::recv(p.there.get(), got.data(), size, MSG_PEEK);
        return ret > 0 ? part(got, 0, static_cast<size_t>(ret)) : Octets{};
    };
    EXPECT_EQ(peek(50), part(octets, 100, 50));
    EXPECT_EQ(peek(5000), part(octets, 150, 5000));
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_PEEK_OFF), 5150);
    /* what is read is before it no more */
    EXPECT_EQ(receive(p.there, 5000), part(octets, 0, 5000));
    EXPECT_EQ(option(p.there, SOL_SOCKET, SO_PEEK_OFF), 150);
    EXPECT_EQ(peek(10), part(octets, 5150, 10));
    ASSERT_EQ(set(p.there, SOL_SOCKET, SO_PEEK_OFF, -1), 0);
    EXPECT_EQ(peek(10), part(octets, 5000, 10));
    EXPECT_EQ(peek(10), part(octets, 5000, 10));
}

/* How many more there are, told with those that are read */
TEST_P(Transfer, HowManyMore) {
    Pair p = connected();
    ASSERT_EQ(set(p.there, IPPROTO_TCP, TCP_INQ, 1), 0);
    ASSERT_TRUE(send_all(p.here, pattern(1000)));
    ASSERT_TRUE(arrived(p.there, 1000));
    char room[400], control[64];
    for (int left : {600, 200, 0}) {
        iovec v{room, sizeof(room)};
        msghdr msg{};
        msg.msg_iov = &v;
        msg.msg_iovlen = 1;
        msg.msg_control = control;
        msg.msg_controllen = sizeof(control);
        ASSERT_GT(::recvmsg(p.there.get(), &msg, 0), 0);
        cmsghdr *c = CMSG_FIRSTHDR(&msg);
        ASSERT_NE(c, nullptr);
        EXPECT_EQ(c->cmsg_level, SOL_TCP);
        EXPECT_EQ(c->cmsg_type, TCP_CM_INQ);
        int n = -1;
        std::memcpy(&n, CMSG_DATA(c), sizeof(n));
        EXPECT_EQ(n, left);
    }
}

/* MSG_WAITALL, MSG_TRUNC ---------------------------------------------------------------------- */

TEST_P(Transfer, AllOfMoreThanBuffersHold) {
    Pair p = connected();
    Octets octets = pattern(6 << 20), got(octets.size());
    Call sends([&] { return send_all(p.here, octets) ? 0 : -1; });
    EXPECT_EQ(::recv(p.there.get(), got.data(), got.size(), MSG_WAITALL),
              static_cast<ssize_t>(got.size()));
    EXPECT_TRUE(got == octets);
}

TEST_P(Transfer, AllOfVectors) {
    Pair p = connected();
    Octets octets = pattern(100000), got(100000);
    Call sends([&] {
        for (size_t i = 0; i < 100000; i += 10000) {
            EXPECT_TRUE(send_all(p.here, part(octets, i, 10000)));
            usleep(1000);
        }
        return 0;
    });
    iovec v[3] = {{got.data(), 1}, {got.data() + 1, 0}, {got.data() + 1, 99999}};
    msghdr msg{};
    msg.msg_iov = v;
    msg.msg_iovlen = 3;
    EXPECT_EQ(::recvmsg(p.there.get(), &msg, MSG_WAITALL), 100000);
    EXPECT_EQ(got, octets);
}

TEST_P(Transfer, AllUntilAReset) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_TRUE(arrived(p.there, 100));
    Octets got(200);
    Call call([&] { return ::recv(p.there.get(), got.data(), 200, MSG_WAITALL); });
    ASSERT_TRUE(call.sleeps());
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_EQ(call.ret(), 100);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), got.data(), 200, MSG_WAITALL)), ECONNRESET);
}

TEST_P(Transfer, ForgetMoreThanBuffersHold) {
    Pair p = connected();
    Octets octets = pattern(2000000);
    Call sends([&] { return send_all(p.here, octets) ? 0 : -1; });
    size_t gone = 0;
    while (gone < 1999990) {
        ssize_t ret = ::recv(p.there.get(), nullptr, 1999990 - gone, MSG_TRUNC);
        ASSERT_GT(ret, 0);
        gone += static_cast<size_t>(ret);
    }
    EXPECT_EQ(receive(p.there, 10), part(octets, 1999990, 10));
}

/* TCP_CORK and MSG_MORE --------------------------------------------------------------------------
 */

TEST_P(Transfer, ManyUnderOneCork) {
    Pair p = connected();
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 1), 0);
    Octets octets = pattern(100);
    for (size_t i = 0; i < 100; i++)
        ASSERT_TRUE(send_all(p.here, part(octets, i, 1)));
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 0), 0);
    /* together: who reads once has them all */
    ASSERT_TRUE(arrived(p.there, 100));
    EXPECT_EQ(receive(p.there, 100), octets);
    EXPECT_EQ(option(p.here, IPPROTO_TCP, TCP_CORK), 0);
}

/* A large part does not wait for the cork to be pulled. */
TEST_P(Transfer, CorkHoldsBackLittle) {
    Pair p = connected();
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 1), 0);
    Octets octets = pattern(1 << 20), got;
    Call reads([&] {
        got = receive(p.there, octets.size());
        return 0;
    });
    ASSERT_TRUE(send_all(p.here, octets));
    EXPECT_EQ(reads.ret(), 0);
    EXPECT_TRUE(got == octets);
}

TEST_P(Transfer, HeaderAndBody) {
    Pair p = connected();
    Octets octets = pattern(20100);
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ(::send(p.here.get(), octets.data(), 100, MSG_MORE), 100);
        ASSERT_TRUE(send_all(p.here, part(octets, 100, 20000)));
        ASSERT_EQ(receive(p.there, 20100), octets);
    }
}

TEST_P(Transfer, NodelayPullsNoCork) {
    Pair p = connected();
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 1), 0);
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    EXPECT_EQ(option(p.here, IPPROTO_TCP, TCP_CORK), 1);
    EXPECT_EQ(option(p.here, IPPROTO_TCP, TCP_NODELAY), 1);
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 0), 0);
    EXPECT_EQ(receive(p.there, 10), pattern(10));
}

/* Memory that is not there --------------------------------------------------------------------- */

/* The first half of what is sent can be read. What call says was sent comes, and no more. */
TEST_P(Transfer, HalfOfItCanBeRead) {
    for (size_t good : {1U, 100U, 4096U, 40000U}) {
        Pair p = connected();
        Pages pages(16);
        Octets octets = pattern(good);
        std::memcpy(pages.end() - good, octets.data(), good);
        ssize_t ret = ::send(p.here.get(), pages.end() - good, good + 5000, 0);
        if (ret < 0) {
            EXPECT_EQ(errno, EFAULT);
            ret = 0;
        }
        ASSERT_LE(static_cast<size_t>(ret), good);
        ASSERT_TRUE(send_all(p.here, pattern(10, 99)));
        octets.resize(static_cast<size_t>(ret));
        for (uint8_t octet : pattern(10, 99))
            octets.push_back(octet);
        p.here.reset();
        EXPECT_EQ(receive(p.there, good + 100), octets) << good;
    }
}

/* Half of the room is there.  What call says was read is read, and the rest comes next. */
TEST_P(Transfer, HalfOfItCanBeWritten) {
    for (size_t good : {1U, 100U, 4096U, 9000U}) {
        Pair p = connected();
        Pages pages(4);
        Octets octets = pattern(12000);
        ASSERT_TRUE(send_all(p.here, octets));
        ASSERT_TRUE(arrived(p.there, 12000));
        ssize_t ret = ::recv(p.there.get(), pages.end() - good, 12000, 0);
        if (ret < 0) {
            EXPECT_EQ(errno, EFAULT);
            ret = 0;
        }
        ASSERT_LE(static_cast<size_t>(ret), good);
        size_t done = static_cast<size_t>(ret);
        EXPECT_EQ(Octets(pages.end() - good, pages.end() - good + ret), part(octets, 0, done));
        EXPECT_EQ(receive(p.there, 12000 - done), part(octets, done, 12000 - done)) << good;
    }
}

TEST_P(Transfer, PeekIntoNowhere) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_TRUE(arrived(p.there, 100));
    void *nowhere = reinterpret_cast<void *>(8);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), nowhere, 50, MSG_PEEK)), EFAULT);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), nowhere, 50, MSG_WAITALL)), EFAULT);
    EXPECT_EQ(receive(p.there, 100), pattern(100));
}

/* Into memory that cannot be written, as part of the program */
TEST_P(Transfer, ReadOnlyMemory) {
    Pair p = connected();
    void *page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    EXPECT_EQ(::send(p.here.get(), page, 4096, 0), 4096);
    EXPECT_EQ(receive(p.there, 4096), Octets(4096));
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    ASSERT_TRUE(arrived(p.there, 100));
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), page, 100, 0)), EFAULT);
    EXPECT_EQ(receive(p.there, 100), pattern(100));
    ::munmap(page, 4096);
}

/* What was sent is what it was then. */
TEST_P(Transfer, ChangedAfterwards) {
    Pair p = connected();
    Octets octets = pattern(60000), copy = octets;
    set_nonblocking(p.here);
    ssize_t ret = ::send(p.here.get(), copy.data(), copy.size(), 0);
    ASSERT_GT(ret, 0);
    std::fill(copy.begin(), copy.end(), uint8_t{0xee});
    size_t size = static_cast<size_t>(ret);
    EXPECT_EQ(receive(p.there, size), part(octets, 0, size));
}

/* Lengths ------------------------------------------------------------------------------------- */

TEST_P(Transfer, AroundTheSizesOfBuffers) {
    Pair p = connected();
    for (size_t around : {4096U, 32768U, 65536U}) {
        for (int off : {-17, -16, -15, -1, 0, 1, 15, 16, 17}) {
            size_t size = around + static_cast<size_t>(static_cast<long>(off));
            Octets octets = pattern(size, static_cast<uint8_t>(off)), got(size);
            Call sends([&] { return send_all(p.here, octets) ? 0 : -1; });
            ASSERT_EQ(::recv(p.there.get(), got.data(), size, MSG_WAITALL),
                      static_cast<ssize_t>(size));
            ASSERT_EQ(got, octets) << size;
        }
    }
    EXPECT_EQ(events(p.there, POLLIN), 0);
}

/* Written in pieces of one size and read in pieces of another */
TEST_P(Transfer, PiecesOfOtherSizes) {
    static const size_t sizes[][2] = {{4079, 4113}, {4113, 4079}, {32785, 1000}, {7, 65553},
                                      {65519, 13},  {1, 4096},    {4096, 1}};
    for (auto &row : sizes) {
        Pair p = connected();
        Octets octets = pattern(80000), got;
        size_t total = row[0] == 1 || row[1] == 1 ? 1000 : row[0] == 7 ? 6000 : 80000;
        octets.resize(total);
        Call sends([&] {
            for (size_t i = 0; i < total; i += row[0])
                EXPECT_TRUE(send_all(p.here, part(octets, i, std::min(row[0], total - i))));
            return 0;
        });
        while (got.size() < total) {
            Octets more(row[1]);
            ssize_t ret = ::recv(p.there.get(), more.data(), more.size(), 0);
            ASSERT_GT(ret, 0);
            got.insert(got.end(), more.begin(), more.begin() + ret);
        }
        EXPECT_TRUE(got == octets) << row[0] << " " << row[1];
    }
}

TEST_P(Transfer, OctetByOctet) {
    Pair p = connected();
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    Octets octets = pattern(600);
    Call sends([&] {
        for (size_t i = 0; i < 600; i++)
            if (::send(p.here.get(), &octets[i], 1, 0) != 1)
                return -1;
        return 0;
    });
    for (size_t i = 0; i < 600; i++) {
        uint8_t c = 0;
        ASSERT_EQ(::recv(p.there.get(), &c, 1, 0), 1);
        ASSERT_EQ(c, octets[i]) << i;
    }
}

TEST_P(Transfer, QuestionAndAnswer) {
    Pair p = connected();
    Call answers([&] {
        for (size_t i = 1; i < 60; i++) {
            Octets got = receive(p.there, i * 67);
            if (got != pattern(i * 67, static_cast<uint8_t>(i)) || !send_all(p.there, got))
                return -1;
        }
        return 0;
    });
    for (size_t i = 1; i < 60; i++) {
        Octets octets = pattern(i * 67, static_cast<uint8_t>(i));
        ASSERT_TRUE(send_all(p.here, octets));
        ASSERT_EQ(receive(p.here, i * 67), octets);
    }
    EXPECT_EQ(answers.ret(), 0);
}

/* More than fits in an int: as much as calls take at most, or as there is */
TEST_P(Transfer, MoreThan2GiB) {
    Pair p = connected();
    size_t size = (size_t{3} << 30) + 5;
    void *all = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(all, MAP_FAILED);
    Octets octets = repeated(20000);
    std::memcpy(all, octets.data(), octets.size());
    set_nonblocking(p.here);
    ssize_t sent = ::send(p.here.get(), all, size, 0);
    EXPECT_GT(sent, 20000);
    EXPECT_EQ(receive(p.there, 20000), octets);
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    ssize_t ret, got = 0;
    while ((ret = ::recv(p.there.get(), all, size, 0)) > 0)
        got += ret;
    EXPECT_EQ(ret, 0);
    EXPECT_EQ(got, sent - 20000);
    ASSERT_TRUE(send_all(p.there, octets));
    ASSERT_EQ(::shutdown(p.there.get(), SHUT_WR), 0);
    set_nonblocking(p.here, false);
    EXPECT_EQ(::recv(p.here.get(), all, size, MSG_WAITALL), 20000);
    EXPECT_EQ(std::memcmp(all, octets.data(), 20000), 0);
    ::munmap(all, size);
}

/* Both ends talk and listen at once, each in pieces of any size. */
TEST_P(Transfer, AnySizeBothWays) {
    Pair p = connected();
    auto say = [](const Fd &fd, const Octets &octets, unsigned seed) {
        std::minstd_rand rand(seed);
        for (size_t at = 0; at < octets.size();) {
            size_t size =
                std::min<size_t>(1 + rand() % (rand() % 8 == 0 ? 90000 : 900), octets.size() - at);
            if (!send_all(fd, part(octets, at, size), rand() % 4 == 0 ? MSG_MORE : 0))
                return -1;
            at += size;
        }
        return 0;
    };
    Octets a = pattern(2000000, 1), b = pattern(2000000, 2), got_a, got_b;
    Call t1([&] { return say(p.here, a, 1); });
    Call t2([&] { return say(p.there, b, 2); });
    Call t3([&] {
        got_a = receive(p.there, a.size());
        return 0;
    });
    got_b = receive(p.here, b.size());
    EXPECT_EQ(t1.ret(), 0);
    EXPECT_EQ(t2.ret(), 0);
    EXPECT_EQ(t3.ret(), 0);
    EXPECT_TRUE(got_a == a);
    EXPECT_TRUE(got_b == b);
}

/* One thread for all: it must never wait for itself. */
TEST_P(Transfer, OneThreadBothWays) {
    Pair p = connected();
    Octets octets = pattern(1500000), room(100000);
    size_t said[2] = {}, heard[2] = {};
    Fd *fds[2] = {&p.here, &p.there};
    set_nonblocking(p.here);
    set_nonblocking(p.there);
    while (heard[0] < octets.size() || heard[1] < octets.size()) {
        pollfd polls[2];
        for (int i = 0; i < 2; i++)
            polls[i] = {fds[i]->get(),
                        static_cast<short>(POLLIN | (said[i] < octets.size() ? POLLOUT : 0)), 0};
        ASSERT_GT(::poll(polls, 2, 20000), 0);
        for (int i = 0; i < 2; i++) {
            if ((polls[i].revents & POLLOUT) != 0) {
                ssize_t ret =
                    ::send(fds[i]->get(), octets.data() + said[i], octets.size() - said[i], 0);
                if (ret > 0)
                    said[i] += static_cast<size_t>(ret);
            }
            if ((polls[i].revents & POLLIN) != 0) {
                ssize_t ret = ::recv(fds[i]->get(), room.data(), room.size(), 0);
                ASSERT_GT(ret, 0);
                ASSERT_TRUE(std::equal(room.begin(), room.begin() + ret,
                                       octets.begin() + static_cast<long>(heard[i])));
                heard[i] += static_cast<size_t>(ret);
            }
        }
    }
}

} // namespace softwarp::sockets
