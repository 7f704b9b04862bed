// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * io_uring, by the system calls themselves: what is asked for is done when it can be
 */
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <linux/io_uring.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Uring);

using Octets = std::vector<uint8_t>;

class Ring {
  public:
    Ring() {
        io_uring_params p{};
        fd_ = Fd(static_cast<int>(::syscall(SYS_io_uring_setup, 32, &p)));
        EXPECT_TRUE(fd_) << std::strerror(errno);
        EXPECT_NE(p.features & IORING_FEAT_SINGLE_MMAP, 0U);
        size_ = std::max<size_t>(p.sq_off.array + p.sq_entries * sizeof(uint32_t),
                                 p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe));
        ring_ = map(size_, IORING_OFF_SQ_RING);
        sqes_size_ = p.sq_entries * sizeof(io_uring_sqe);
        sqes_ = reinterpret_cast<io_uring_sqe *>(map(sqes_size_, IORING_OFF_SQES));
        sq_tail_ = word(p.sq_off.tail);
        sq_mask_ = *word(p.sq_off.ring_mask);
        sq_array_ = word(p.sq_off.array);
        cq_head_ = word(p.cq_off.head);
        cq_tail_ = word(p.cq_off.tail);
        cq_mask_ = *word(p.cq_off.ring_mask);
        cqes_ = reinterpret_cast<io_uring_cqe *>(ring_ + p.cq_off.cqes);
    }
    ~Ring() {
        ::munmap(ring_, size_);
        ::munmap(sqes_, sqes_size_);
    }

    /* An entry to be filled in; submit() hands it over. */
    io_uring_sqe &ask(uint8_t opcode, int fd, uint64_t name) {
        uint32_t tail = *sq_tail_ + asked_++;
        io_uring_sqe &sqe = sqes_[tail & sq_mask_];
        std::memset(&sqe, 0, sizeof(sqe));
        sqe.opcode = opcode;
        sqe.fd = fd;
        sqe.user_data = name;
        sq_array_[tail & sq_mask_] = tail & sq_mask_;
        return sqe;
    }
    io_uring_sqe &ask(uint8_t opcode, const Fd &fd, uint64_t name, void *at, size_t size) {
        io_uring_sqe &sqe = ask(opcode, fd.get(), name);
        sqe.addr = reinterpret_cast<uintptr_t>(at);
        sqe.len = static_cast<uint32_t>(size);
        return sqe;
    }
    void submit() {
        __atomic_store_n(sq_tail_, *sq_tail_ + asked_, __ATOMIC_RELEASE);
        EXPECT_EQ(::syscall(SYS_io_uring_enter, fd_.get(), asked_, 0, 0, nullptr, 0),
                  static_cast<long>(asked_));
        asked_ = 0;
    }
    /* Something is done, at once or within that time. */
    bool next(int ms, io_uring_cqe &cqe) {
        Stopwatch watch;
        while (__atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE) == *cq_head_) {
            long left = ms - watch.ms();
            if (left < 0)
                return false;
            __kernel_timespec ts{left / 1000, left % 1000 * 1000000};
            io_uring_getevents_arg arg{};
            arg.ts = reinterpret_cast<uintptr_t>(&ts);
            ::syscall(SYS_io_uring_enter, fd_.get(), 0, 1,
                      IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));
        }
        cqe = cqes_[*cq_head_ & cq_mask_];
        __atomic_store_n(cq_head_, *cq_head_ + 1, __ATOMIC_RELEASE);
        return true;
    }
    /* The result of what has that name; others are kept. */
    int result(uint64_t name, int ms = 20000, uint32_t *flags = nullptr) {
        io_uring_cqe cqe{};
        while (done_.count(name) == 0) {
            if (!next(ms, cqe))
                return INT32_MIN;
            done_.insert({cqe.user_data, {cqe.res, cqe.flags}});
        }
        auto found = done_.find(name);
        int res = found->second.first;
        if (flags)
            *flags = found->second.second;
        done_.erase(found);
        return res;
    }
    bool idle(int ms = 30) {
        io_uring_cqe cqe{};
        return !next(ms, cqe);
    }

  private:
    char *map(size_t size, off_t off) {
        void *at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                          fd_.get(), off);
        EXPECT_NE(at, MAP_FAILED);
        return static_cast<char *>(at);
    }
    uint32_t *word(uint32_t off) { return reinterpret_cast<uint32_t *>(ring_ + off); }

    Fd fd_;
    char *ring_ = nullptr;
    size_t size_ = 0, sqes_size_ = 0;
    io_uring_sqe *sqes_ = nullptr;
    io_uring_cqe *cqes_ = nullptr;
    uint32_t *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
    uint32_t sq_mask_ = 0, cq_mask_ = 0, asked_ = 0;
    std::multimap<uint64_t, std::pair<int, uint32_t>> done_;
};

TEST_P(Uring, SendAndReceive) {
    Pair p = connected();
    Ring ring;
    Octets out = pattern(5000), in(5000);
    ring.ask(IORING_OP_SEND, p.here, 1, out.data(), 5000);
    ring.ask(IORING_OP_RECV, p.there, 2, in.data(), 5000).msg_flags = MSG_WAITALL;
    ring.submit();
    EXPECT_EQ(ring.result(1), 5000);
    EXPECT_EQ(ring.result(2), 5000);
    EXPECT_EQ(in, out);
}

TEST_P(Uring, ReceiveWaits) {
    Pair p = connected();
    Ring ring;
    Octets in(100);
    ring.ask(IORING_OP_RECV, p.there, 1, in.data(), 100);
    ring.submit();
    EXPECT_TRUE(ring.idle());
    ASSERT_TRUE(send_all(p.here, pattern(60)));
    EXPECT_EQ(ring.result(1), 60);
    in.resize(60);
    EXPECT_EQ(in, pattern(60));
}

TEST_P(Uring, ReadAndWrite) {
    Pair p = connected();
    Ring ring;
    Octets out = pattern(3000), in(3000);
    iovec from[2] = {{out.data(), 1000}, {out.data() + 1000, 2000}};
    iovec to[2] = {{in.data(), 2500}, {in.data() + 2500, 500}};
    ring.ask(IORING_OP_WRITEV, p.here, 1, from, 2);
    ring.submit();
    EXPECT_EQ(ring.result(1), 3000);
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    ring.ask(IORING_OP_READV, p.there, 2, to, 2);
    ring.submit();
    EXPECT_EQ(ring.result(2), 3000);
    EXPECT_EQ(in, out);
    ring.ask(IORING_OP_WRITE, p.here, 3, out.data(), 10);
    ring.ask(IORING_OP_READ, p.there, 4, in.data(), 10);
    ring.submit();
    EXPECT_EQ(ring.result(3), 10);
    EXPECT_EQ(ring.result(4), 10);
}

TEST_P(Uring, Messages) {
    Pair p = connected();
    Ring ring;
    Octets out = pattern(3000), in(3000);
    iovec from{out.data(), 3000}, to{in.data(), 3000};
    msghdr sent{}, got{};
    sent.msg_iov = &from;
    got.msg_iov = &to;
    sent.msg_iovlen = got.msg_iovlen = 1;
    ring.ask(IORING_OP_RECVMSG, p.there, 1, &got, 1).msg_flags = MSG_WAITALL;
    ring.ask(IORING_OP_SENDMSG, p.here, 2, &sent, 1);
    ring.submit();
    EXPECT_EQ(ring.result(2), 3000);
    EXPECT_EQ(ring.result(1), 3000);
    EXPECT_EQ(in, out);
}

TEST_P(Uring, SendWaitsForRoom) {
    Pair p = connected();
    Ring ring;
    size_t full = fill(p.here);
    set_nonblocking(p.here, false);
    Octets all = repeated(full + 300000);
    ring.ask(IORING_OP_SEND, p.here, 1, all.data() + full, 300000).msg_flags = MSG_WAITALL;
    ring.submit();
    EXPECT_TRUE(ring.idle());
    Octets got;
    Call reads([&] {
        got = receive(p.there, all.size());
        return 0;
    });
    EXPECT_EQ(ring.result(1), 300000);
    reads.ret();
    EXPECT_TRUE(got == all);
}

TEST_P(Uring, MuchAtOnce) {
    Pair p = connected();
    Ring ring;
    Octets out = pattern(2000000), in(2000000);
    ring.ask(IORING_OP_SEND, p.here, 1, out.data(), out.size()).msg_flags = MSG_WAITALL;
    ring.ask(IORING_OP_RECV, p.there, 2, in.data(), in.size()).msg_flags = MSG_WAITALL;
    ring.submit();
    EXPECT_EQ(ring.result(2), 2000000);
    EXPECT_EQ(ring.result(1), 2000000);
    EXPECT_TRUE(in == out);
}

TEST_P(Uring, EndAndReset) {
    Ring ring;
    for (bool reset : {false, true}) {
        Pair p = connected();
        char c;
        ring.ask(IORING_OP_RECV, p.there, 1, &c, 1);
        ring.submit();
        EXPECT_TRUE(ring.idle());
        if (reset)
            set_linger(p.here, 0);
        p.here.reset();
        EXPECT_EQ(ring.result(1), reset ? -ECONNRESET : 0);
        ring.ask(IORING_OP_SEND, p.there, 2, &c, 1).msg_flags = MSG_NOSIGNAL;
        ring.submit();
        EXPECT_EQ(ring.result(2), reset ? -EPIPE : 1);
    }
}

TEST_P(Uring, Accept) {
    Fd l = listener();
    Ring ring;
    Address from;
    from.len = sizeof(from.storage);
    io_uring_sqe &sqe = ring.ask(IORING_OP_ACCEPT, l, 1, from.get(), 0);
    sqe.addr2 = reinterpret_cast<uintptr_t>(&from.len);
    sqe.accept_flags = SOCK_CLOEXEC;
    ring.submit();
    EXPECT_TRUE(ring.idle());
    Fd here = dial(name_of(l));
    Fd there(ring.result(1));
    ASSERT_TRUE(there);
    EXPECT_EQ(from, name_of(here));
    EXPECT_EQ(::fcntl(there.get(), F_GETFD), FD_CLOEXEC);
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

TEST_P(Uring, AcceptAgainAndAgain) {
    Fd l = listener();
    Ring ring;
    ring.ask(IORING_OP_ACCEPT, l.get(), 1).ioprio = IORING_ACCEPT_MULTISHOT;
    ring.submit();
    std::vector<Fd> here, there;
    for (int i = 0; i < 10; i++) {
        here.push_back(dial(name_of(l)));
        if (i % 3 == 2)
            continue;
        uint32_t flags = 0;
        int fd = ring.result(1, 20000, &flags);
        ASSERT_GE(fd, 0);
        EXPECT_NE(flags & IORING_CQE_F_MORE, 0U);
        there.emplace_back(fd);
    }
    while (there.size() < here.size()) {
        int fd = ring.result(1);
        ASSERT_GE(fd, 0);
        there.emplace_back(fd);
    }
    EXPECT_TRUE(ring.idle());
    for (const Fd &fd : here)
        ASSERT_TRUE(send_all(fd, pattern(5)));
    for (const Fd &fd : there)
        EXPECT_EQ(receive(fd, 5), pattern(5));
}

TEST_P(Uring, AcceptOfNone) {
    Fd l = listener();
    Ring ring;
    ring.ask(IORING_OP_ACCEPT, l.get(), 1);
    ring.submit();
    EXPECT_TRUE(ring.idle());
    ASSERT_EQ(::shutdown(l.get(), SHUT_RD), 0);
    EXPECT_EQ(ring.result(1), -EINVAL);
}

TEST_P(Uring, Connect) {
    Fd l = listener(), here = make();
    Ring ring;
    Address a = name_of(l);
    io_uring_sqe &sqe = ring.ask(IORING_OP_CONNECT, here, 1, a.get(), 0);
    sqe.off = a.len;
    ring.submit();
    EXPECT_EQ(ring.result(1), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
    EXPECT_EQ(connect_to(here, a), EISCONN);
}

TEST_P(Uring, ConnectIsRefused) {
    Fd l = listener(), here = make();
    Ring ring;
    Address a = loopback(1);
    ring.ask(IORING_OP_CONNECT, here, 1, a.get(), 0).off = a.len;
    ring.submit();
    EXPECT_EQ(ring.result(1), -ECONNREFUSED);
    a = name_of(l);
    ring.ask(IORING_OP_CONNECT, here, 2, a.get(), 0).off = a.len;
    ring.submit();
    EXPECT_EQ(ring.result(2), 0);
}

/* A whole conversation that is asked for at once */
TEST_P(Uring, Chain) {
    Fd l = listener(), here = make();
    Ring ring;
    Address a = name_of(l);
    Octets out = pattern(100), in(100);
    io_uring_sqe &connect = ring.ask(IORING_OP_CONNECT, here, 1, a.get(), 0);
    connect.off = a.len;
    connect.flags = IOSQE_IO_LINK;
    ring.ask(IORING_OP_SEND, here, 2, out.data(), 100).flags = IOSQE_IO_LINK;
    io_uring_sqe &recv = ring.ask(IORING_OP_RECV, here, 3, in.data(), 100);
    recv.msg_flags = MSG_WAITALL;
    recv.flags = IOSQE_IO_LINK;
    ring.ask(IORING_OP_SHUTDOWN, here.get(), 4).len = SHUT_WR;
    ring.submit();
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(receive(there, 100), out);
    ASSERT_TRUE(send_all(there, pattern(100, 5)));
    EXPECT_EQ(ring.result(1), 0);
    EXPECT_EQ(ring.result(2), 100);
    EXPECT_EQ(ring.result(3), 100);
    EXPECT_EQ(ring.result(4), 0);
    EXPECT_EQ(in, pattern(100, 5));
    char c;
    EXPECT_EQ(::recv(there.get(), &c, 1, 0), 0);
}

TEST_P(Uring, Poll) {
    Pair p = connected();
    Ring ring;
    ring.ask(IORING_OP_POLL_ADD, p.there.get(), 1).poll32_events = POLLIN;
    ring.ask(IORING_OP_POLL_ADD, p.there.get(), 2).poll32_events = POLLOUT;
    ring.submit();
    EXPECT_EQ(ring.result(2), POLLOUT);
    EXPECT_TRUE(ring.idle());
    ASSERT_TRUE(send_all(p.here, pattern(1)));
    EXPECT_EQ(ring.result(1), POLLIN);
}

TEST_P(Uring, PollAgainAndAgain) {
    Pair p = connected();
    Ring ring;
    io_uring_sqe &sqe = ring.ask(IORING_OP_POLL_ADD, p.there.get(), 1);
    sqe.poll32_events = POLLIN | POLLRDHUP;
    sqe.len = IORING_POLL_ADD_MULTI;
    ring.submit();
    for (int i = 0; i < 3; i++) {
        ASSERT_TRUE(send_all(p.here, pattern(1)));
        uint32_t flags = 0;
        EXPECT_EQ(ring.result(1, 20000, &flags), POLLIN);
        EXPECT_NE(flags & IORING_CQE_F_MORE, 0U);
        receive(p.there, 1);
    }
    p.here.reset();
    EXPECT_EQ(ring.result(1), POLLIN | POLLRDHUP);
}

/* A stream, read as a ring reports that there is something */
TEST_P(Uring, PollOfMuch) {
    constexpr size_t kSize = 16 << 20;
    Pair p = connected();
    Call reader([&]() -> long {
        Ring ring;
        Octets got(kSize);
        for (size_t done = 0; done < kSize;) {
            ring.ask(IORING_OP_POLL_ADD, p.there.get(), 1).poll32_events = POLLIN;
            ring.submit();
            if (ring.result(1) != POLLIN)
                return -1;
            ssize_t n = ::recv(p.there.get(), &got[done], kSize - done, MSG_DONTWAIT);
            if (n <= 0)
                return -1;
            done += n;
        }
        return got == pattern(kSize) ? 0 : -1;
    });
    EXPECT_TRUE(send_all(p.here, pattern(kSize)));
    EXPECT_EQ(reader.ret(), 0) << std::strerror(reader.error());
}

TEST_P(Uring, ReceiveAgainAndAgain) {
    Pair p = connected();
    Ring ring;
    Octets room(8 * 1000);
    io_uring_sqe &give = ring.ask(IORING_OP_PROVIDE_BUFFERS, 8, 1);
    give.addr = reinterpret_cast<uintptr_t>(room.data());
    give.len = 1000;
    give.buf_group = 7;
    ring.submit();
    ASSERT_GE(ring.result(1), 0);
    io_uring_sqe &recv = ring.ask(IORING_OP_RECV, p.there.get(), 2);
    recv.ioprio = IORING_RECV_MULTISHOT;
    recv.flags = IOSQE_BUFFER_SELECT;
    recv.buf_group = 7;
    ring.submit();
    for (uint8_t i = 0; i < 6; i++) {
        Octets octets = pattern(900, i);
        ASSERT_TRUE(send_all(p.here, octets));
        uint32_t flags = 0;
        ASSERT_EQ(ring.result(2, 20000, &flags), 900);
        ASSERT_NE(flags & IORING_CQE_F_BUFFER, 0U);
        EXPECT_NE(flags & IORING_CQE_F_MORE, 0U);
        auto at = room.begin() + (flags >> IORING_CQE_BUFFER_SHIFT) * 1000;
        EXPECT_EQ(Octets(at, at + 900), octets);
    }
    p.here.reset();
    EXPECT_EQ(ring.result(2), 0);
}

/* SOCKET_URING_OP_SIOCINQ and SOCKET_URING_OP_SIOCOUTQ, which headers may not have yet */
TEST_P(Uring, QueueLengths) {
    constexpr uint32_t kInq = 0, kOutq = 1;
    Pair p = connected();
    Ring ring;
    auto length = [&](const Fd &fd, uint32_t which) {
        ring.ask(IORING_OP_URING_CMD, fd.get(), 1).off = which;
        ring.submit();
        return ring.result(1);
    };
    auto by_ioctl = [](const Fd &fd, unsigned long request) {
        int octets = -1;
        EXPECT_EQ(::ioctl(fd.get(), request, &octets), 0);
        return octets;
    };
    if (length(p.here, kInq) == -EOPNOTSUPP)
        return; // before 6.7 sockets have no such commands
    EXPECT_EQ(length(p.there, kInq), 0);
    ASSERT_TRUE(send_all(p.here, pattern(3000)));
    ASSERT_TRUE(eventually([&] { return by_ioctl(p.there, FIONREAD) == 3000; }));
    EXPECT_EQ(length(p.there, kInq), 3000);
    EXPECT_TRUE(eventually([&] { return length(p.here, kOutq) == 0; }));
    fill(p.here);
    EXPECT_TRUE(eventually([&] {
        int octets = by_ioctl(p.here, TIOCOUTQ);
        return octets > 0 && length(p.here, kOutq) == octets;
    }));
    Fd l = listener();
    EXPECT_EQ(length(l, kInq), -EINVAL);
}

TEST_P(Uring, ShutdownAndClose) {
    Pair p = connected();
    Ring ring;
    ring.ask(IORING_OP_SHUTDOWN, p.here.get(), 1).len = SHUT_WR;
    ring.submit();
    EXPECT_EQ(ring.result(1), 0);
    EXPECT_EQ(events(p.there, POLLRDHUP, 10000), POLLRDHUP);
    Pair q = connected();
    ring.ask(IORING_OP_CLOSE, q.here.get(), 2);
    ring.submit();
    EXPECT_EQ(ring.result(2), 0);
    EXPECT_EQ(events(q.there, POLLRDHUP, 10000), POLLRDHUP);
    EXPECT_EQ(ERRNO_OF(::fcntl(q.here.get(), F_GETFD)), EBADF);
    q.here.release();
}

TEST_P(Uring, Splice) {
    Pair p = connected();
    Ring ring;
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    Fd out(ends[0]), in(ends[1]);
    Octets octets = pattern(4000), got(4000);
    ASSERT_EQ(::write(in.get(), octets.data(), 4000), 4000);
    auto splice = [&](const Fd &from, const Fd &to, uint64_t name) {
        io_uring_sqe &sqe = ring.ask(IORING_OP_SPLICE, to.get(), name);
        sqe.splice_fd_in = from.get();
        sqe.splice_off_in = sqe.off = static_cast<uint64_t>(-1);
        sqe.len = 4000;
        ring.submit();
    };
    splice(out, p.here, 1);
    EXPECT_EQ(ring.result(1), 4000);
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    splice(p.there, in, 2);
    int moved = ring.result(2);
    ASSERT_GT(moved, 0);
    EXPECT_EQ(::read(out.get(), got.data(), 4000), moved);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + moved, octets.begin()));
}

TEST_P(Uring, Cancel) {
    Pair p = connected();
    Fd l = listener();
    Ring ring;
    Octets in(10), much(14 << 20);
    ring.ask(IORING_OP_RECV, p.there, 1, in.data(), 10);
    ring.ask(IORING_OP_ACCEPT, l.get(), 2);
    ring.ask(IORING_OP_SEND, p.there, 3, much.data(), much.size()).msg_flags = MSG_WAITALL;
    ring.submit();
    EXPECT_TRUE(ring.idle());
    for (uint64_t name : {1, 2}) {
        ring.ask(IORING_OP_ASYNC_CANCEL, -1, name + 10).addr = name;
        ring.submit();
        EXPECT_EQ(ring.result(name + 10), 0);
        EXPECT_EQ(ring.result(name), -ECANCELED);
    }
    ring.ask(IORING_OP_ASYNC_CANCEL, -1, 13).addr = 3;
    ring.submit();
    ring.result(13);
    /* how much of it has left */
    int sent = ring.result(3);
    EXPECT_TRUE(sent > 0 || sent == -ECANCELED) << sent;
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(receive(p.there, 10), pattern(10));
    dial(name_of(l));
    EXPECT_TRUE(Fd(::accept(l.get(), nullptr, nullptr)));
}

TEST_P(Uring, TimeIsUp) {
    Pair p = connected();
    Ring ring;
    Octets in(10);
    __kernel_timespec ts{0, 60000000};
    ring.ask(IORING_OP_RECV, p.there, 1, in.data(), 10).flags = IOSQE_IO_LINK;
    io_uring_sqe &sqe = ring.ask(IORING_OP_LINK_TIMEOUT, -1, 2);
    sqe.addr = reinterpret_cast<uintptr_t>(&ts);
    sqe.len = 1;
    ring.submit();
    EXPECT_EQ(ring.result(2), -ETIME);
    EXPECT_EQ(ring.result(1), -ECANCELED);
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(receive(p.there, 10), pattern(10));
}

/* The ring goes, and what it waits for with it. */
TEST_P(Uring, RingGoes) {
    Pair p = connected();
    Octets in(10);
    {
        Ring ring;
        ring.ask(IORING_OP_RECV, p.there, 1, in.data(), 10);
        ring.submit();
        EXPECT_TRUE(ring.idle());
    }
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    usleep(20000);
    EXPECT_EQ(receive(p.there, 10), pattern(10));
}

/* Its descriptor is closed, but what was asked for is still to be done. */
TEST_P(Uring, ClosedMeanwhile) {
    Pair p = connected();
    Ring ring;
    Octets in(10);
    ring.ask(IORING_OP_RECV, p.there, 1, in.data(), 10);
    ring.submit();
    EXPECT_TRUE(ring.idle());
    p.there.reset();
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(ring.result(1), 10);
    EXPECT_EQ(in, pattern(10));
    EXPECT_EQ(events(p.here, POLLRDHUP, 10000), POLLRDHUP);
}

} // namespace softwarp::sockets
