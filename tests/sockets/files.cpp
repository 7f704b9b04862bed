// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Octets that never see the program: sendfile(), splice() and their kin
 */
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "kinds.hpp"

namespace softwarp::sockets {

SUITE(Files);

using Octets = std::vector<uint8_t>;

struct Pipe {
    Pipe() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::pipe(ends), 0);
        out = Fd(ends[0]);
        in = Fd(ends[1]);
    }
    Fd out, in;
};

static Fd file_of(const Octets &octets, const char *dir = "/tmp") {
    std::string path = std::string(dir) + "/softwarp-sockets-XXXXXX";
    Fd file(::mkstemp(path.data()));
    EXPECT_TRUE(file) << path;
    ::unlink(path.c_str());
    EXPECT_EQ(::write(file.get(), octets.data(), octets.size()),
              static_cast<ssize_t>(octets.size()));
    return file;
}

static Fd memory_of(const Octets &octets) {
    Fd file(::memfd_create("softwarp-sockets", 0));
    EXPECT_EQ(::write(file.get(), octets.data(), octets.size()),
              static_cast<ssize_t>(octets.size()));
    return file;
}

static Octets part(const Octets &all, size_t from, size_t size) {
    return {all.begin() + static_cast<long>(from), all.begin() + static_cast<long>(from + size)};
}

/* All of it through splice(), or minus the errno */
static long splice_all(const Fd &from, const Fd &to, size_t size, unsigned flags = 0) {
    size_t done = 0;
    while (done < size) {
        ssize_t ret = ::splice(from.get(), nullptr, to.get(), nullptr, size - done, flags);
        if (ret < 0)
            return -errno;
        if (ret == 0)
            break;
        done += static_cast<size_t>(ret);
    }
    return static_cast<long>(done);
}

static int splice_error(const Fd &from, const Fd &to, unsigned flags = 0) {
    return ERRNO_OF(::splice(from.get(), nullptr, to.get(), nullptr, 1000, flags));
}

/* sendfile() --------------------------------------------------------------------------- */

TEST_P(Files, PartOfAFile) {
    Pair p = connected();
    Octets octets = pattern(50000);
    for (bool memory : {false, true}) {
        Fd file = memory ? memory_of(octets) : file_of(octets);
        off_t off = 12345;
        ASSERT_EQ(::sendfile(p.here.get(), file.get(), &off, 10001), 10001);
        EXPECT_EQ(off, 22346);
        EXPECT_EQ(receive(p.there, 10001), part(octets, 12345, 10001));
        /* the file's own place is another */
        EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), 50000);
        ASSERT_EQ(::lseek(file.get(), 100, SEEK_SET), 100);
        ASSERT_EQ(::sendfile(p.here.get(), file.get(), nullptr, 5000), 5000);
        EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), 5100);
        EXPECT_EQ(receive(p.there, 5000), part(octets, 100, 5000));
    }
}

TEST_P(Files, MoreThanTheFileHas) {
    Pair p = connected();
    Octets octets = pattern(70000);
    Fd file = file_of(octets);
    off_t off = 0;
    ASSERT_EQ(::sendfile(p.here.get(), file.get(), &off, 1 << 30), 70000);
    EXPECT_EQ(receive(p.there, 70000), octets);
    EXPECT_EQ(::sendfile(p.here.get(), file.get(), &off, 1 << 30), 0);
    off = -1;
    EXPECT_EQ(ERRNO_OF(::sendfile(p.here.get(), file.get(), &off, 10)), EINVAL);
    EXPECT_EQ(events(p.there, POLLIN, 50), 0);
}

/* The end of the file is a reason not to wait for more of it. */
TEST_P(Files, SmallFileAtOnce) {
    Pair p = connected();
    Octets octets = pattern(100);
    Fd file = file_of(octets);
    long best = 1000000;
    for (int i = 0; i < 6; i++) {
        off_t off = 0;
        Stopwatch watch;
        ASSERT_EQ(::sendfile(p.here.get(), file.get(), &off, 1 << 20), 100);
        EXPECT_EQ(receive(p.there, 100), octets);
        best = std::min(best, watch.ms());
    }
    /* 200 ms is for how long octets are held back for more */
    EXPECT_LT(best, 150);
}

TEST_P(Files, LargeFile) {
    Pair p = connected();
    Octets octets = pattern(5000000), got;
    Fd file = memory_of(octets);
    Call reads([&] {
        got = receive(p.there, octets.size());
        return 0;
    });
    off_t off = 0;
    while (off < 5000000)
        ASSERT_GT(::sendfile(p.here.get(), file.get(), &off, static_cast<size_t>(5000000 - off)),
                  0);
    reads.ret();
    EXPECT_TRUE(got == octets);
}

TEST_P(Files, FileUntilItIsFull) {
    Pair p = connected();
    Octets octets = repeated(14 << 20);
    Fd file = memory_of(octets);
    set_nonblocking(p.here);
    off_t off = 0;
    ssize_t ret;
    while ((ret = ::sendfile(p.here.get(), file.get(), &off, octets.size())) > 0)
        ASSERT_LT(static_cast<size_t>(off), octets.size());
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_GT(off, 0);
    p.here.reset();
    octets.resize(static_cast<size_t>(off));
    EXPECT_TRUE(receive(p.there, octets.size() + 1) == octets);
}

TEST_P(Files, HeaderThenFile) {
    Pair p = connected();
    Octets octets = pattern(20000);
    Fd file = file_of(octets);
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 1), 0);
    ASSERT_TRUE(send_all(p.here, pattern(50, 7)));
    off_t off = 0;
    ASSERT_EQ(::sendfile(p.here.get(), file.get(), &off, 20000), 20000);
    ASSERT_TRUE(send_all(p.here, pattern(20, 9)));
    ASSERT_EQ(set(p.here, IPPROTO_TCP, TCP_CORK, 0), 0);
    EXPECT_EQ(receive(p.there, 50), pattern(50, 7));
    EXPECT_EQ(receive(p.there, 20000), octets);
    EXPECT_EQ(receive(p.there, 20), pattern(20, 9));
}

TEST_P(Files, WhatSendfileRefuses) {
    Pair p = connected();
    Pipe pipe;
    Fd fd = make(), file = file_of(pattern(10)), fresh = file_of({});
    EXPECT_EQ(ERRNO_OF(::sendfile(p.here.get(), p.there.get(), nullptr, 10)), EINVAL);
    off_t off = 0;
    EXPECT_EQ(ERRNO_OF(::sendfile(fd.get(), file.get(), &off, 10)), EPIPE);
    EXPECT_EQ(::sendfile(p.here.get(), fresh.get(), &off, 10), 0);
    EXPECT_EQ(ERRNO_OF(::copy_file_range(file.get(), nullptr, p.here.get(), nullptr, 10, 0)),
              EINVAL);
    EXPECT_EQ(ERRNO_OF(::copy_file_range(p.here.get(), nullptr, file.get(), nullptr, 10, 0)),
              EINVAL);
    EXPECT_EQ(events(p.there, POLLIN, 50), 0);
}

TEST_P(Files, FileForOneThatIsGone) {
    Pair p = connected();
    Fd file = file_of(pattern(10));
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    off_t off = 0;
    EXPECT_EQ(ERRNO_OF(::sendfile(p.here.get(), file.get(), &off, 10)), EPIPE);
    EXPECT_EQ(off, 0);
    EXPECT_EQ(in_child([&] {
                  std::signal(SIGPIPE, SIG_DFL);
                  ::sendfile(p.here.get(), file.get(), &off, 10);
                  return 0;
              }),
              -SIGPIPE);
}

/* splice() -------------------------------------------------------------------------------- */

TEST_P(Files, PipeToSocket) {
    Pair p = connected();
    Pipe pipe;
    Octets octets = pattern(200000), got;
    Call writes([&] { return ::write(pipe.in.get(), octets.data(), 200000) == 200000 ? 0 : -1; });
    Call reads([&] {
        got = receive(p.there, 200000);
        return 0;
    });
    EXPECT_EQ(splice_all(pipe.out, p.here, 200000), 200000);
    reads.ret();
    EXPECT_EQ(got, octets);
}

TEST_P(Files, PipeToSocketInPieces) {
    Pair p = connected();
    Pipe pipe;
    Octets octets = pattern(30000);
    for (size_t i = 0; i < 30000; i += 1500) {
        ASSERT_EQ(::write(pipe.in.get(), octets.data() + i, 1500), 1500);
        ASSERT_EQ(splice_all(pipe.out, p.here, 1500, i < 28500 ? SPLICE_F_MORE : 0), 1500);
    }
    EXPECT_EQ(receive(p.there, 30000), octets);
}

TEST_P(Files, SocketToPipe) {
    Pair p = connected();
    Pipe pipe;
    Octets octets = pattern(200000), got(200000);
    Call sends([&] { return send_all(p.here, octets) ? 0 : -1; });
    Call moves([&] { return splice_all(p.there, pipe.in, 200000); });
    size_t done = 0;
    while (done < 200000) {
        ssize_t ret = ::read(pipe.out.get(), got.data() + done, 200000 - done);
        ASSERT_GT(ret, 0);
        done += static_cast<size_t>(ret);
    }
    EXPECT_EQ(moves.ret(), 200000);
    EXPECT_EQ(got, octets);
}

TEST_P(Files, NothingToSplice) {
    Pair p = connected();
    Pipe pipe;
    set_nonblocking(p.there);
    EXPECT_EQ(splice_error(p.there, pipe.in), EAGAIN);
    /* the pipe is full */
    ASSERT_TRUE(send_all(p.here, pattern(1000)));
    ASSERT_EQ(events(p.there, POLLIN, 10000), POLLIN);
    Octets block(4096);
    set_nonblocking(pipe.in);
    while (::write(pipe.in.get(), block.data(), block.size()) > 0)
        ;
    EXPECT_EQ(splice_error(p.there, pipe.in, SPLICE_F_NONBLOCK), EAGAIN);
    EXPECT_EQ(receive(p.there, 1000), pattern(1000));
    off_t off = 0;
    EXPECT_EQ(ERRNO_OF(::splice(p.there.get(), &off, pipe.in.get(), nullptr, 10, 0)), EINVAL);
}

TEST_P(Files, NoRoomForASplice) {
    Pair p = connected();
    Pipe pipe;
    size_t full = fill(p.here);
    Octets octets = pattern(1000);
    ASSERT_EQ(::write(pipe.in.get(), octets.data(), 1000), 1000);
    EXPECT_EQ(splice_error(pipe.out, p.here), EAGAIN);
    set_nonblocking(p.here, false);
    /* what was not taken is still in the pipe */
    EXPECT_EQ(receive(p.there, full), repeated(full));
    EXPECT_EQ(splice_all(pipe.out, p.here, 1000), 1000);
    EXPECT_EQ(receive(p.there, 1000), octets);
}

TEST_P(Files, SpliceToTheEnd) {
    Pair p = connected();
    Pipe pipe;
    ASSERT_TRUE(send_all(p.here, pattern(3000)));
    p.here.reset();
    EXPECT_EQ(splice_all(p.there, pipe.in, 10000), 3000);
    Octets got(3000);
    EXPECT_EQ(::read(pipe.out.get(), got.data(), 3000), 3000);
    EXPECT_EQ(got, pattern(3000));
}

TEST_P(Files, SpliceOfAReset) {
    Pair p = connected();
    Pipe pipe;
    set_linger(p.here, 0);
    p.here.reset();
    EXPECT_TRUE(eventually([&] { return (events(p.there, 0) & POLLERR) != 0; }));
    EXPECT_EQ(splice_error(p.there, pipe.in), ECONNRESET);
    ASSERT_EQ(::write(pipe.in.get(), "abc", 3), 3);
    EXPECT_EQ(splice_error(pipe.out, p.there), EPIPE);
    int n = 0;
    ASSERT_EQ(::ioctl(pipe.out.get(), FIONREAD, &n), 0);
    EXPECT_EQ(n, 3);
}

TEST_P(Files, SpliceWaits) {
    Pair p = connected();
    Pipe pipe;
    Call moves([&] { return splice_all(p.there, pipe.in, 10); });
    ASSERT_TRUE(moves.sleeps());
    ASSERT_TRUE(send_all(p.here, pattern(10)));
    EXPECT_EQ(moves.ret(), 10);
}

TEST_P(Files, WhatIsNotConnected) {
    Pipe pipe;
    Fd fd = make(), l = listener();
    EXPECT_EQ(splice_error(fd, pipe.in), ENOTCONN);
    EXPECT_EQ(splice_error(l, pipe.in), ENOTCONN);
    ASSERT_EQ(::write(pipe.in.get(), "abc", 3), 3);
    EXPECT_EQ(splice_error(pipe.out, fd), EPIPE);
}

/* What a proxy does, both ways */
TEST_P(Files, Relay) {
    Pair left = connected(), right = connected();
    auto relay = [](const Fd &from, const Fd &to) {
        Pipe pipe;
        for (;;) {
            ssize_t got = ::splice(from.get(), nullptr, pipe.in.get(), nullptr, 65536,
                                   SPLICE_F_MOVE | SPLICE_F_MORE);
            if (got <= 0)
                return ::shutdown(to.get(), SHUT_WR) + got;
            if (splice_all(pipe.out, to, static_cast<size_t>(got)) != got)
                return ssize_t{-1};
        }
    };
    Octets a = pattern(1500000, 1), b = pattern(1500000, 2), got_a, got_b;
    Call r1([&] { return relay(left.there, right.here); });
    Call r2([&] { return relay(right.here, left.there); });
    auto say = [](const Fd &fd, const Octets &octets) {
        return send_all(fd, octets) ? ::shutdown(fd.get(), SHUT_WR) : -1;
    };
    Call s1([&] { return say(left.here, a); });
    Call s2([&] { return say(right.there, b); });
    Call reads([&] {
        got_a = receive(right.there, a.size() + 1);
        return 0;
    });
    got_b = receive(left.here, b.size() + 1);
    reads.ret();
    EXPECT_TRUE(got_a == a);
    EXPECT_TRUE(got_b == b);
    EXPECT_EQ(r1.ret(), 0);
    EXPECT_EQ(r2.ret(), 0);
}

TEST_P(Files, Tee) {
    Pair p = connected(), q = connected();
    Pipe one, two;
    Octets octets = pattern(20000);
    ASSERT_EQ(::write(one.in.get(), octets.data(), 20000), 20000);
    ASSERT_EQ(::tee(one.out.get(), two.in.get(), 20000, 0), 20000);
    EXPECT_EQ(splice_all(one.out, p.here, 20000), 20000);
    EXPECT_EQ(splice_all(two.out, q.here, 20000), 20000);
    EXPECT_EQ(receive(p.there, 20000), octets);
    EXPECT_EQ(receive(q.there, 20000), octets);
}

/* From a socket to two others */
TEST_P(Files, TeeOfAStream) {
    Pair from = connected(), p = connected(), q = connected();
    Pipe one, two;
    Octets octets = pattern(9000);
    ASSERT_TRUE(send_all(from.here, octets));
    ASSERT_EQ(splice_all(from.there, one.in, 9000), 9000);
    ASSERT_EQ(::tee(one.out.get(), two.in.get(), 9000, 0), 9000);
    EXPECT_EQ(splice_all(one.out, p.here, 9000), 9000);
    EXPECT_EQ(splice_all(two.out, q.here, 9000), 9000);
    EXPECT_EQ(receive(p.there, 9000), octets);
    EXPECT_EQ(receive(q.there, 9000), octets);
}

TEST_P(Files, PagesOfTheProgram) {
    Pair p = connected();
    Pipe pipe;
    Octets octets = pattern(40000);
    void *pages =
        ::mmap(nullptr, 40960, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    std::copy(octets.begin(), octets.end(), static_cast<uint8_t *>(pages));
    for (unsigned flags : {0U, static_cast<unsigned>(SPLICE_F_GIFT)}) {
        iovec v{static_cast<uint8_t *>(pages) + 100, 39000};
        ASSERT_EQ(::vmsplice(pipe.in.get(), &v, 1, flags), 39000);
        EXPECT_EQ(splice_all(pipe.out, p.here, 39000), 39000);
        EXPECT_EQ(receive(p.there, 39000), part(octets, 100, 39000));
    }
    ::munmap(pages, 40960);
}

/* Octets of a socket, in a pipe, are no memory that the socket uses again. */
TEST_P(Files, PipeKeepsWhatItHas) {
    Pair p = connected();
    Pipe pipe;
    Octets octets = pattern(8000);
    ASSERT_TRUE(send_all(p.here, octets));
    ASSERT_EQ(splice_all(p.there, pipe.in, 8000), 8000);
    for (uint8_t i = 1; i < 40; i++) {
        ASSERT_TRUE(send_all(p.here, pattern(8000, i)));
        ASSERT_EQ(receive(p.there, 8000), pattern(8000, i));
    }
    p.there.reset();
    p.here.reset();
    Octets got(8000);
    EXPECT_EQ(::read(pipe.out.get(), got.data(), 8000), 8000);
    EXPECT_EQ(got, octets);
}

TEST_P(Files, SocketToFile) {
    Pair p = connected();
    Pipe pipe;
    Octets octets = pattern(60000), got(60000);
    Fd file = file_of({});
    Call sends([&] { return send_all(p.here, octets) ? 0 : -1; });
    size_t done = 0;
    while (done < 60000) {
        ssize_t ret = ::splice(p.there.get(), nullptr, pipe.in.get(), nullptr, 60000 - done, 0);
        ASSERT_GT(ret, 0);
        ASSERT_EQ(splice_all(pipe.out, file, static_cast<size_t>(ret)), ret);
        done += static_cast<size_t>(ret);
    }
    EXPECT_EQ(::pread(file.get(), got.data(), 60000, 0), 60000);
    EXPECT_EQ(got, octets);
}

} // namespace softwarp::sockets
