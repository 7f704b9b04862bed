// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Octets, there and back
 */
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <linux/sockios.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Stream);

/* Octets that are held back for more are sent after 200 ms all the same. */
static void stays_back(const Fd &fd) {
    auto begin = std::chrono::steady_clock::now();
    usleep(50000);
    short came = events(fd, POLLIN);
    if (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(150)) {
        EXPECT_EQ(came, 0);
    }
}

TEST_P(Stream, Octet) {
    Pair p = connected();
    EXPECT_EQ(::send(p.here.get(), "x", 1, 0), 1);
    char c = 0;
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 1);
    EXPECT_EQ(c, 'x');
    EXPECT_EQ(::send(p.there.get(), "y", 1, 0), 1);
    EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 1);
    EXPECT_EQ(c, 'y');
}

TEST_P(Stream, Nothing) {
    Pair p = connected();
    char c;
    EXPECT_EQ(::send(p.here.get(), &c, 0, 0), 0);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 0, MSG_DONTWAIT)), EAGAIN);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, MSG_DONTWAIT)), EAGAIN);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    EXPECT_EQ(::recv(p.there.get(), &c, 0, MSG_DONTWAIT), 0);
}

TEST_P(Stream, Lengths) {
    Pair p = connected();
    for (size_t size :
         {1U, 15U, 16U, 17U, 1000U, 4095U, 4096U, 4097U, 32751U, 32752U, 32753U, 65536U, 100000U}) {
        std::vector<uint8_t> octets = pattern(size, static_cast<uint8_t>(size));
        std::vector<uint8_t> got;
        std::thread reads([&] { got = receive(p.there, size); });
        EXPECT_TRUE(send_all(p.here, octets));
        reads.join();
        EXPECT_EQ(got, octets) << size;
    }
}

TEST_P(Stream, BothWays) {
    Pair p = connected();
    std::vector<uint8_t> a = pattern(3000000, 1), b = pattern(3000000, 2);
    std::vector<uint8_t> got_a, got_b;
    std::thread t1([&] { EXPECT_TRUE(send_all(p.here, a)); });
    std::thread t2([&] { EXPECT_TRUE(send_all(p.there, b)); });
    std::thread t3([&] { got_a = receive(p.there, a.size()); });
    got_b = receive(p.here, b.size());
    t1.join();
    t2.join();
    t3.join();
    EXPECT_EQ(got_a, a);
    EXPECT_EQ(got_b, b);
}

TEST_P(Stream, ManySmall) {
    Pair p = connected();
    std::vector<uint8_t> all = pattern(20000);
    std::thread sends([&] {
        for (size_t i = 0; i < all.size(); i += 10)
            EXPECT_EQ(::send(p.here.get(), all.data() + i, 10, 0), 10);
    });
    EXPECT_EQ(receive(p.there, all.size()), all);
    sends.join();
}

TEST_P(Stream, FullAndDrained) {
    Pair p = connected();
    set_nonblocking(p.here);
    std::vector<uint8_t> block = pattern(10000);
    size_t sent = 0;
    for (;;) {
        ssize_t ret = ::send(p.here.get(), block.data() + sent % 10000, 10000 - sent % 10000, 0);
        if (ret < 0) {
            ASSERT_EQ(errno, EAGAIN);
            /* what TCP moves to the receiver meanwhile makes room once more */
            usleep(20000);
            if ((events(p.here, POLLOUT) & POLLOUT) == 0)
                break;
            continue;
        }
        sent += static_cast<size_t>(ret);
        ASSERT_LT(sent, 100U << 20);
    }
    EXPECT_GT(sent, 10000U);
    size_t got = 0;
    while (got < sent) {
        std::vector<uint8_t> part = receive(p.there, std::min<size_t>(10000, sent - got));
        ASSERT_FALSE(part.empty());
        ASSERT_TRUE(std::equal(part.begin(), part.end(), block.begin()));
        got += part.size();
    }
    EXPECT_TRUE(eventually([&] { return (events(p.here, POLLOUT) & POLLOUT) != 0; }));
}

TEST_P(Stream, Peek) {
    Pair p = connected();
    std::vector<uint8_t> octets = pattern(40000);
    std::thread sends([&] { EXPECT_TRUE(send_all(p.here, octets)); });
    std::vector<uint8_t> seen(40000);
    EXPECT_EQ(::recv(p.there.get(), seen.data(), seen.size(), MSG_PEEK | MSG_WAITALL), 40000);
    sends.join();
    EXPECT_EQ(seen, octets);
    EXPECT_EQ(receive(p.there, 40000), octets);
}

TEST_P(Stream, PeekAtNothing) {
    Pair p = connected();
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, MSG_PEEK | MSG_DONTWAIT)), EAGAIN);
}

TEST_P(Stream, Truncated) {
    Pair p = connected();
    std::vector<uint8_t> octets = pattern(100);
    ASSERT_TRUE(send_all(p.here, octets));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    /* octets that are thrown away */
    EXPECT_EQ(::recv(p.there.get(), nullptr, 30, MSG_TRUNC), 30);
    EXPECT_EQ(receive(p.there, 70), std::vector<uint8_t>(octets.begin() + 30, octets.end()));
}

TEST_P(Stream, WaitAll) {
    Pair p = connected();
    std::vector<uint8_t> octets = pattern(50000);
    std::thread sends([&] {
        for (size_t i = 0; i < octets.size(); i += 12500) {
            EXPECT_EQ(::send(p.here.get(), octets.data() + i, 12500, 0), 12500);
            usleep(10000);
        }
    });
    std::vector<uint8_t> got(50000);
    EXPECT_EQ(::recv(p.there.get(), got.data(), got.size(), MSG_WAITALL), 50000);
    sends.join();
    EXPECT_EQ(got, octets);
}

TEST_P(Stream, WaitAllToTheEnd) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    p.here.reset();
    std::vector<uint8_t> got(200);
    EXPECT_EQ(::recv(p.there.get(), got.data(), got.size(), MSG_WAITALL), 100);
    EXPECT_EQ(::recv(p.there.get(), got.data(), got.size(), MSG_WAITALL), 0);
}

TEST_P(Stream, Vectors) {
    Pair p = connected();
    std::vector<uint8_t> octets = pattern(6000);
    iovec out[3] = {{octets.data(), 1}, {octets.data() + 1, 4999}, {octets.data() + 5000, 1000}};
    EXPECT_EQ(::writev(p.here.get(), out, 3), 6000);
    std::vector<uint8_t> got(6000);
    iovec in[3] = {{got.data(), 3000}, {got.data() + 3000, 10}, {got.data() + 3010, 2990}};
    msghdr msg{};
    msg.msg_iov = in;
    msg.msg_iovlen = 3;
    EXPECT_EQ(::recvmsg(p.there.get(), &msg, MSG_WAITALL), 6000);
    EXPECT_EQ(got, octets);
    EXPECT_EQ(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
}

TEST_P(Stream, BadMemory) {
    Pair p = connected();
    void *nowhere = reinterpret_cast<void *>(8);
    EXPECT_EQ(ERRNO_OF(::send(p.here.get(), nowhere, 10, 0)), EFAULT);
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), nowhere, 10, 0)), EFAULT);
    /* nothing is lost by that */
    EXPECT_EQ(receive(p.there, 10), pattern(10));
}

TEST_P(Stream, ReceiveTimesOut) {
    Pair p = connected();
    timeval tv{0, 50000};
    ASSERT_EQ(::setsockopt(p.there.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, 0)), EAGAIN);
}

TEST_P(Stream, LowWater) {
    Pair p = connected();
    int low = 10;
    ASSERT_EQ(::setsockopt(p.there.get(), SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)), 0);
    int on = 1;
    ASSERT_EQ(::setsockopt(p.here.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    ASSERT_TRUE(send_all(p.here, pattern(9)));
    usleep(50000);
    EXPECT_EQ(events(p.there, POLLIN), 0);
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    std::vector<uint8_t> got(100);
    EXPECT_EQ(::recv(p.there.get(), got.data(), got.size(), 0), 10);
}

TEST_P(Stream, Queues) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(1234)));
    int n = -1;
    EXPECT_TRUE(eventually([&] { return ::ioctl(p.there.get(), SIOCINQ, &n) == 0 && n == 1234; }))
        << n;
    EXPECT_TRUE(eventually([&] { return ::ioctl(p.here.get(), SIOCOUTQ, &n) == 0 && n == 0; }))
        << n;
    EXPECT_EQ(receive(p.there, 1000).size(), 1000U);
    ASSERT_EQ(::ioctl(p.there.get(), FIONREAD, &n), 0);
    EXPECT_EQ(n, 234);
}

TEST_P(Stream, Corked) {
    Pair p = connected();
    int on = 1, off = 0;
    ASSERT_EQ(::setsockopt(p.here.get(), IPPROTO_TCP, TCP_CORK, &on, sizeof(on)), 0);
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    stays_back(p.there);
    ASSERT_EQ(::setsockopt(p.here.get(), IPPROTO_TCP, TCP_CORK, &off, sizeof(off)), 0);
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    EXPECT_EQ(receive(p.there, 100), pattern(100));
}

TEST_P(Stream, CorkedForAWhile) {
    Pair p = connected();
    int on = 1;
    ASSERT_EQ(::setsockopt(p.here.get(), IPPROTO_TCP, TCP_CORK, &on, sizeof(on)), 0);
    ASSERT_TRUE(send_all(p.here, pattern(100)));
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
}

TEST_P(Stream, More) {
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(10), MSG_MORE));
    stays_back(p.there);
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    EXPECT_EQ(receive(p.there, 20).size(), 20U);
}

TEST_P(Stream, Sendfile) {
    Pair p = connected();
    char path[] = "/tmp/softwarp-sockets-XXXXXX";
    Fd file(::mkstemp(path));
    ASSERT_TRUE(file);
    ::unlink(path);
    std::vector<uint8_t> octets = pattern(200000);
    ASSERT_EQ(::write(file.get(), octets.data(), octets.size()), 200000);
    std::vector<uint8_t> got;
    std::thread reads([&] { got = receive(p.there, octets.size()); });
    off_t off = 0;
    while (off < 200000)
        ASSERT_GT(::sendfile(p.here.get(), file.get(), &off, static_cast<size_t>(200000 - off)), 0);
    reads.join();
    EXPECT_EQ(got, octets);
}

TEST_P(Stream, SpliceOut) {
    Pair p = connected();
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    Fd out(ends[0]), in(ends[1]);
    ASSERT_TRUE(send_all(p.here, pattern(3000)));
    size_t done = 0;
    while (done < 3000) {
        ssize_t ret = ::splice(p.there.get(), nullptr, in.get(), nullptr, 3000 - done, 0);
        ASSERT_GT(ret, 0) << errno;
        done += static_cast<size_t>(ret);
    }
    std::vector<uint8_t> got(3000);
    EXPECT_EQ(::read(out.get(), got.data(), got.size()), 3000);
    EXPECT_EQ(got, pattern(3000));
}

/* SEC-31: completion queues that connections share have room for all that each of them has posted.
 */
TEST_P(Stream, ManyFull) {
    std::vector<Pair> pairs;
    std::vector<uint8_t> block = pattern(4000);
    std::vector<size_t> sent(40);
    for (size_t i = 0; i < sent.size(); i++) {
        pairs.push_back(connected());
        set_nonblocking(pairs[i].here);
    }
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sent.size(); i++) {
            ssize_t ret;
            while ((ret = ::send(pairs[i].here.get(), block.data() + sent[i] % 4000,
                                 4000 - sent[i] % 4000, 0)) > 0)
                sent[i] += static_cast<size_t>(ret);
            ASSERT_EQ(errno, EAGAIN);
        }
        usleep(10000);
    }
    for (size_t i = 0; i < sent.size(); i++) {
        ASSERT_GT(sent[i], 4000U);
        pairs[i].here.reset();
        std::vector<uint8_t> got = receive(pairs[i].there, sent[i] + 1);
        ASSERT_EQ(got.size(), sent[i]);
        for (size_t k = 0; k < got.size(); k += 4000)
            ASSERT_TRUE(std::equal(got.begin() + static_cast<long>(k),
                                   got.begin() + static_cast<long>(std::min(k + 4000, got.size())),
                                   block.begin()));
    }
}

} // namespace softwarp::sockets
