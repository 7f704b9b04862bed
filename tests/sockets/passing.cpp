// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sockets that go from process to process, and what bounds them
 */
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "kinds.hpp"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace softwarp::sockets {

SUITE(Passing);
SUITE(Limits);

static bool pass(const Fd &way, const Fd &what) {
    char c = 'f', control[CMSG_SPACE(sizeof(int))] = {};
    iovec v{&c, 1};
    msghdr msg{};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    cmsghdr *head = CMSG_FIRSTHDR(&msg);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    int fd = what.get();
    std::memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    return ::sendmsg(way.get(), &msg, 0) == 1;
}

static Fd take(const Fd &way) {
    char c, control[CMSG_SPACE(sizeof(int))] = {};
    iovec v{&c, 1};
    msghdr msg{};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    if (::recvmsg(way.get(), &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
        return Fd();
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
    return Fd(fd);
}

static Pair unix_pair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    return {Fd(fds[0]), Fd(fds[1])};
}

TEST_P(Passing, AConnection) {
    Pair p = connected(), way = unix_pair();
    pid_t child = ::fork();
    if (child == 0) {
        p.here.reset();
        p.there.reset();
        Fd fd = take(way.there);
        bool good = send_all(fd, pattern(1000)) && receive(fd, 500) == pattern(500, 3);
        ::_exit(good ? 0 : 1);
    }
    ASSERT_TRUE(pass(way.here, p.here));
    p.here.reset();
    EXPECT_EQ(receive(p.there, 1000), pattern(1000));
    ASSERT_TRUE(send_all(p.there, pattern(500, 3)));
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    char c;
    EXPECT_EQ(::recv(p.there.get(), &c, 1, 0), 0);
}

TEST_P(Passing, AListener) {
    Fd l = listener();
    Pair way = unix_pair();
    Address a = name_of(l);
    pid_t child = ::fork();
    if (child == 0) {
        l.reset();
        Fd passed = take(way.there);
        Fd there(::accept(passed.get(), nullptr, nullptr));
        ::_exit(send_all(there, pattern(100)) ? 0 : 1);
    }
    ASSERT_TRUE(pass(way.here, l));
    l.reset();
    Fd here = dial(a);
    ASSERT_EQ(errno, 0);
    EXPECT_EQ(receive(here, 101), pattern(100));
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

/* Nobody has it, but a message in a queue: it lives as long as that. */
TEST_P(Passing, OnlyOnItsWay) {
    for (bool taken : {true, false}) {
        Pair p = connected(), way = unix_pair();
        ASSERT_TRUE(pass(way.here, p.here));
        p.here.reset();
        ASSERT_TRUE(send_all(p.there, pattern(10)));
        EXPECT_EQ(events(p.there, POLLIN | POLLRDHUP, 30), 0);
        Fd fd;
        if (taken) {
            fd = take(way.there);
            EXPECT_EQ(receive(fd, 10), pattern(10));
            continue;
        }
        way.there.reset();
        way.here.reset();
        char c;
        EXPECT_EQ(ERRNO_OF(::recv(p.there.get(), &c, 1, 0)), ECONNRESET);
    }
}

TEST_P(Passing, WhileItConnects) {
    Fd l = listener();
    Pair way = unix_pair();
    Fd here = dial(name_of(l), SOCK_NONBLOCK);
    ASSERT_TRUE(pass(way.here, here));
    here.reset();
    here = take(way.there);
    EXPECT_EQ(events(here, POLLOUT, 10000), POLLOUT);
    EXPECT_EQ(option(here, SOL_SOCKET, SO_ERROR), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(receive(there, 10), pattern(10));
}

/* As inetd starts programs: the connection is their input and output */
TEST_P(Passing, AProgramsInput) {
    Pair p = connected();
    pid_t child = ::fork();
    if (child == 0) {
        ::dup2(p.there.get(), 0);
        ::dup2(p.there.get(), 1);
        p.here.reset();
        p.there.reset();
        ::execl("/bin/cat", "cat", nullptr);
        ::_exit(1);
    }
    p.there.reset();
    for (uint8_t i = 0; i < 3; i++) {
        ASSERT_TRUE(send_all(p.here, pattern(3000, i)));
        EXPECT_EQ(receive(p.here, 3000), pattern(3000, i));
    }
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    char c;
    EXPECT_EQ(::recv(p.here.get(), &c, 1, 0), 0);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_P(Passing, ClosedOnExec) {
    for (bool closes : {true, false}) {
        Pair p = connected();
        ASSERT_EQ(::fcntl(p.here.get(), F_SETFD, closes ? FD_CLOEXEC : 0), 0);
        pid_t child = ::fork();
        if (child == 0) {
            ::close(p.there.get());
            ::execl("/bin/sleep", "sleep", "100", nullptr);
            ::_exit(1);
        }
        p.here.reset();
        EXPECT_EQ(events(p.there, POLLRDHUP, closes ? 20000 : 100), closes ? POLLRDHUP : 0);
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        EXPECT_EQ(events(p.there, POLLRDHUP, 20000), POLLRDHUP);
    }
}

TEST_P(Passing, TakenFromAProcess) {
    Pair p = connected();
    int fd = p.here.get();
    pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    p.here.reset();
    Fd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    ASSERT_TRUE(process);
    Fd taken(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
    ASSERT_TRUE(taken);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(send_all(taken, pattern(10)));
    EXPECT_EQ(receive(p.there, 10), pattern(10));
    ASSERT_TRUE(send_all(p.there, pattern(10)));
    EXPECT_EQ(receive(taken, 10), pattern(10));
}

TEST_P(Passing, NotByItsName) {
    Pair p = connected();
    std::string path = "/proc/self/fd/" + std::to_string(p.here.get());
    EXPECT_EQ(ERRNO_OF(::open(path.c_str(), O_RDWR)), ENXIO);
    char target[64] = "";
    ASSERT_GT(::readlink(path.c_str(), target, sizeof(target) - 1), 0);
    EXPECT_EQ(std::string(target).rfind("socket:[", 0), 0U);
}

/* Nobody is told who is at the other end: there may be another machine. */
TEST_P(Passing, NoCredentials) {
    Pair p = connected();
    ucred cred{1, 1, 1};
    socklen_t len = sizeof(cred);
    ASSERT_EQ(::getsockopt(p.here.get(), SOL_SOCKET, SO_PEERCRED, &cred, &len), 0);
    EXPECT_EQ(cred.pid, 0);
    EXPECT_EQ(cred.uid, static_cast<uid_t>(-1));
    EXPECT_EQ(cred.gid, static_cast<gid_t>(-1));
    gid_t groups[4];
    len = sizeof(groups);
    EXPECT_EQ(ERRNO_OF(::getsockopt(p.here.get(), SOL_SOCKET, SO_PEERGROUPS, groups, &len)),
              ENODATA);
}

TEST_P(Passing, NoPairOfThem) {
    const Kind &kind = GetParam();
    int fds[2];
    EXPECT_EQ(ERRNO_OF(::socketpair(kind.family, SOCK_STREAM, kind.protocol, fds)), EOPNOTSUPP);
}

TEST_P(Passing, UsedByNobody) {
    Fd l = listener();
    Address a = name_of(l);
    EXPECT_EQ(in_child([&] {
                  if (::setgid(65534) != 0 || ::setuid(65534) != 0)
                      return 1;
                  Fd own = listener();
                  Fd here = dial(a), more = dial(name_of(own));
                  Fd there(::accept(own.get(), nullptr, nullptr));
                  if (!there || !send_all(more, pattern(5000)))
                      return 2;
                  if (receive(there, 5000) != pattern(5000))
                      return 3;
                  return send_all(here, pattern(100)) ? 0 : 4;
              }),
              0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(receive(there, 101), pattern(100));
}

/* Limits ------------------------------------------------------------------------------------ */

TEST_P(Limits, SizesOfBuffers) {
    Fd fd = make();
    for (int name : {SO_SNDBUF, SO_RCVBUF}) {
        ASSERT_EQ(set(fd, SOL_SOCKET, name, 20000), 0);
        EXPECT_EQ(option(fd, SOL_SOCKET, name), 40000);
        /* a least and a most */
        ASSERT_EQ(set(fd, SOL_SOCKET, name, 1), 0);
        EXPECT_GE(option(fd, SOL_SOCKET, name), 2000);
        EXPECT_LE(option(fd, SOL_SOCKET, name), 5000);
        std::ifstream file(name == SO_SNDBUF ? "/proc/sys/net/core/wmem_max"
                                             : "/proc/sys/net/core/rmem_max");
        int most = 0;
        file >> most;
        ASSERT_EQ(set(fd, SOL_SOCKET, name, 1 << 30), 0);
        EXPECT_EQ(option(fd, SOL_SOCKET, name), 2 * most);
    }
}

/* What nobody reads is bound by what both sides have asked for. */
TEST_P(Limits, BuffersAreBound) {
    Fd l = make(), here = make();
    for (const Fd *fd : {&l, &here}) {
        ASSERT_EQ(set(*fd, SOL_SOCKET, SO_SNDBUF, 16384), 0);
        ASSERT_EQ(set(*fd, SOL_SOCKET, SO_RCVBUF, 16384), 0);
    }
    ASSERT_EQ(bind_to(l, loopback()), 0);
    ASSERT_EQ(::listen(l.get(), 1), 0);
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    size_t one = fill(here), two = fill(there);
    EXPECT_GT(one, 8000U);
    EXPECT_GT(two, 8000U);
    EXPECT_LT(one, 200000U);
    EXPECT_LT(two, 200000U);
    set_nonblocking(here, false);
    set_nonblocking(there, false);
    EXPECT_TRUE(receive(there, one) == repeated(one));
    EXPECT_TRUE(receive(here, two) == repeated(two));
}

TEST_P(Limits, LargerBuffersTakeMore) {
    size_t took[2];
    for (int large : {0, 1}) {
        Fd l = listener(), here = make();
        ASSERT_EQ(set(here, SOL_SOCKET, SO_SNDBUF, large ? 200000 : 5000), 0);
        ASSERT_EQ(connect_to(here, name_of(l)), 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_EQ(set(there, SOL_SOCKET, SO_RCVBUF, 5000), 0);
        took[large] = fill(here);
    }
    EXPECT_GT(took[1], took[0] + 100000);
}

TEST_P(Limits, SendBufferGrowsLater) {
    Pair p = connected();
    ASSERT_EQ(set(p.here, SOL_SOCKET, SO_SNDBUF, 5000), 0);
    size_t one = fill(p.here);
    ASSERT_EQ(set(p.here, SOL_SOCKET, SO_SNDBUF, 200000), 0);
    EXPECT_NE(events(p.here, POLLOUT, 1000) & POLLOUT, 0);
    size_t two = 0;
    std::vector<uint8_t> all = repeated(one + 400000);
    ssize_t ret = ::send(p.here.get(), all.data() + one, 400000, 0);
    ASSERT_GT(ret, 0);
    two = static_cast<size_t>(ret);
    all.resize(one + two);
    EXPECT_TRUE(receive(p.there, all.size()) == all);
}

/* As many descriptors as are open, and so many more */
static int with_files(int more, const std::function<int()> &function) {
    return in_child([&] {
        int next = ::dup(0);
        ::close(next);
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(next + more);
        return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? function() : 255;
    });
}

TEST_P(Limits, NoDescriptorForASocket) {
    const Kind &kind = GetParam();
    EXPECT_EQ(with_files(1,
                         [&] {
                             Fd one(::socket(kind.family, SOCK_STREAM, kind.protocol));
                             int err = ERRNO_OF(::socket(kind.family, SOCK_STREAM, kind.protocol));
                             one.reset();
                             Fd two(::socket(kind.family, SOCK_STREAM, kind.protocol));
                             return one || !two ? 255 : err;
                         }),
              EMFILE);
}

/* Who waits is not lost by that. */
TEST_P(Limits, NoDescriptorToAccept) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    ASSERT_TRUE(send_all(here, pattern(10)));
    EXPECT_EQ(with_files(0, [&] { return ERRNO_OF(::accept(l.get(), nullptr, nullptr)); }), EMFILE);
    EXPECT_EQ(events(l, POLLIN), POLLIN);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there);
    EXPECT_EQ(receive(there, 10), pattern(10));
}

TEST_P(Limits, BadPlaceForAName) {
    Fd l = listener();
    Fd here = dial(name_of(l));
    socklen_t len = sizeof(sockaddr_storage);
    EXPECT_EQ(ERRNO_OF(::accept(l.get(), reinterpret_cast<sockaddr *>(8), &len)), EFAULT);
    len = static_cast<socklen_t>(-1);
    Fd more = dial(name_of(l));
    Address a;
    EXPECT_EQ(ERRNO_OF(::accept(l.get(), a.get(), &len)), EINVAL);
    /* both are gone */
    char c;
    for (const Fd *fd : {&here, &more})
        EXPECT_LE(::recv(fd->get(), &c, 1, 0), 0);
}

TEST_P(Limits, BacklogOfNothing) {
    Fd l = listener(0);
    Fd one = dial(name_of(l));
    EXPECT_EQ(errno, 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    EXPECT_TRUE(there);
    Fd negative = listener(-1);
    dial(name_of(negative));
    EXPECT_EQ(errno, 0);
}

/* More than there is room for wait, and all of them come through. */
TEST_P(Limits, MoreThanTheBacklog) {
    Fd l = listener(1);
    std::vector<Fd> here, there;
    for (int i = 0; i < 4; i++) {
        here.push_back(dial(name_of(l), SOCK_NONBLOCK));
        ASSERT_TRUE(errno == EINPROGRESS || errno == 0);
    }
    usleep(50000);
    EXPECT_TRUE(std::any_of(here.begin(), here.end(),
                            [](const Fd &fd) { return events(fd, POLLOUT) == 0; }));
    /* a SYN cookie needs octets to become a connection */
    Call accepting([&] {
        while (there.size() < here.size())
            there.emplace_back(::accept(l.get(), nullptr, nullptr));
        return 0;
    });
    for (size_t i = 0; i < here.size(); i++) {
        EXPECT_EQ(events(here[i], POLLOUT, 20000), POLLOUT);
        ASSERT_TRUE(send_all(here[i], pattern(1)));
    }
    EXPECT_EQ(accepting.ret(), 0);
    for (const Fd &fd : there)
        EXPECT_EQ(receive(fd, 1), pattern(1));
}

TEST_P(Limits, BacklogGrows) {
    Fd l = listener(0);
    std::vector<Fd> here;
    auto through = [&] {
        return std::count_if(here.begin(), here.end(),
                             [](const Fd &fd) { return (events(fd, POLLOUT) & POLLOUT) != 0; });
    };
    for (int i = 0; i < 4; i++)
        here.push_back(dial(name_of(l), SOCK_NONBLOCK));
    usleep(50000);
    EXPECT_LT(through(), 4);
    ASSERT_EQ(::listen(l.get(), 16), 0);
    EXPECT_TRUE(eventually([&] { return through() == 4; })) << through();
}

/* What is used up is there again. */
TEST_P(Limits, ManyAtOnce) {
    Fd l = listener(256);
    for (int round = 0; round < 2; round++) {
        std::vector<Fd> here, there;
        for (int i = 0; i < 100; i++) {
            here.push_back(dial(name_of(l)));
            ASSERT_EQ(errno, 0) << i;
            there.emplace_back(::accept(l.get(), nullptr, nullptr));
            ASSERT_TRUE(there.back());
        }
        for (int i = 0; i < 100; i++)
            ASSERT_TRUE(send_all(here[i], pattern(300, static_cast<uint8_t>(i))));
        for (int i = 0; i < 100; i++)
            ASSERT_EQ(receive(there[i], 300), pattern(300, static_cast<uint8_t>(i)));
    }
}

} // namespace softwarp::sockets
