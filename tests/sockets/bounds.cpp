// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Nothing is written beyond what a program has given room for, and nothing
 * behind what a call returns.
 */
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <linux/sockios.h>

#include "kinds.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

SUITE(Bounds);

constexpr size_t kPage = 4096;
constexpr uint8_t kFilling = 0xa5;

/*
 * Memory that the kernel may write to, between slack that it could write to by
 * mistake, which is checked, and behind that pages where a write would fail.
 */
class Guarded {
  public:
    /* At an address that is @offset from a multiple of the page size */
    explicit Guarded(size_t size, size_t offset = 0)
        : size_(size), whole_((offset + size + kPage - 1) / kPage * kPage + 4 * kPage) {
        void *at = ::mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(at, MAP_FAILED);
        map_ = static_cast<uint8_t *>(at);
        EXPECT_EQ(::mprotect(map_ + kPage, whole_ - 2 * kPage, PROT_READ | PROT_WRITE), 0);
        std::fill(map_ + kPage, map_ + whole_ - kPage, kFilling);
        data_ = map_ + 2 * kPage + offset;
    }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;
    ~Guarded() { ::munmap(map_, whole_); }

    uint8_t *data() const { return data_; }
    size_t size() const { return size_; }
    template<typename T>
    T *as() const {
        return reinterpret_cast<T *>(data_);
    }
    void refill() { std::fill(data_, data_ + size_, kFilling); }
    /* Only the first so many octets may have been written to. */
    bool only(size_t used) const {
        auto untouched = [](const uint8_t *from, const uint8_t *to) {
            /* each octet is the same as the next one */
            return from == to ||
                   (*from == kFilling &&
                    std::memcmp(from, from + 1, static_cast<size_t>(to - from) - 1) == 0);
        };
        return used <= size_ && untouched(map_ + kPage, data_) &&
               untouched(data_ + used, map_ + whole_ - kPage);
    }

  private:
    size_t size_, whole_;
    uint8_t *map_ = nullptr, *data_ = nullptr;
};

/* A value that is a length, in memory of its own */
class Length {
  public:
    explicit Length(socklen_t value) : memory_(sizeof(value), kPage - sizeof(value)) { set(value); }
    void set(socklen_t value) { std::memcpy(memory_.data(), &value, sizeof(value)); }
    socklen_t *get() const { return memory_.as<socklen_t>(); }
    socklen_t value() const { return *memory_.as<socklen_t>(); }
    bool alone() const { return memory_.only(sizeof(socklen_t)); }

  private:
    Guarded memory_;
};

/* Options ------------------------------------------------------------------------- */

/* getsockopt() with room for so many octets: its errno, after a look at the memory */
static int ask(const Fd &fd, int level, int name, socklen_t room) {
    constexpr socklen_t kMost = 1024;
    static Guarded value(kMost);
    static Length len(0);
    value.refill();
    len.set(room);
    int error = ERRNO_OF(::getsockopt(fd.get(), level, name, value.data(), len.get()));
    bool within = room <= kMost && value.only(room) && len.alone();
    EXPECT_TRUE(within) << "level " << level << " option " << name << " room " << room;
    return error;
}

/* Those that there are, whatever they need */
static std::vector<std::pair<int, int>> options_of(const Fd &fd) {
    std::vector<std::pair<int, int>> found;
    for (int level : {SOL_SOCKET, static_cast<int>(IPPROTO_TCP), static_cast<int>(IPPROTO_IP),
                      static_cast<int>(IPPROTO_IPV6), 255, 282, 284, SOL_SDP}) {
        for (int name = 0; name < 140; name++) {
            bool known = false;
            for (socklen_t room : {4U, 300U}) {
                int error = ask(fd, level, name, room);
                known |= error != ENOPROTOOPT && error != EOPNOTSUPP;
            }
            if (known)
                found.emplace_back(level, name);
        }
    }
    return found;
}

static void ask_all(const Fd &fd, const char *state) {
    SCOPED_TRACE(state);
    std::vector<std::pair<int, int>> options = options_of(fd);
    EXPECT_GT(options.size(), 50U);
    for (auto [level, name] : options)
        for (socklen_t room : {0U, 1U, 2U, 3U, 5U, 7U, 8U, 12U, 16U, 64U, 104U, 232U, 1000U})
            ask(fd, level, name, room);
}

TEST_P(Bounds, Options) {
    ask_all(make(), "new");
    Fd l = listener();
    ask_all(l, "listening");
    Pair p = connected();
    ASSERT_TRUE(send_all(p.here, pattern(1000)));
    ask_all(p.here, "connected");
    ask_all(p.there, "accepted");
    ASSERT_EQ(::shutdown(p.here.get(), SHUT_WR), 0);
    EXPECT_EQ(receive(p.there, 2000).size(), 1000U);
    ask_all(p.there, "half closed");
    p.here.reset();
    ASSERT_NE(events(p.there, POLLIN, 10000) & POLLIN, 0);
    ask_all(p.there, "closed by the peer");
}

/* Names --------------------------------------------------------------------------- */

TEST_P(Bounds, Names) {
    Pair p = connected();
    Fd l = listener();
    Address a = name_of(l);
    for (socklen_t room : {0U, 1U, 2U, 7U, 8U, 15U, 16U, 17U, 27U, 28U, 29U, 127U, 128U, 200U}) {
        Fd here = dial(a);
        auto check = [&](const char *call, int ret, const Guarded &name, const Length &len) {
            bool within = name.only(std::min<size_t>(room, a.len)) && len.alone();
            EXPECT_TRUE(within) << call << " with room for " << room;
            EXPECT_GE(ret, 0) << call;
            EXPECT_EQ(len.value(), a.len) << call;
        };
        using Call = int (*)(int, sockaddr *, socklen_t *);
        for (Call call : {Call{::getsockname}, Call{::getpeername}}) {
            const char *text = call == Call{::getsockname} ? "getsockname" : "getpeername";
            Guarded name(room, kPage - room % kPage);
            Length len(room);
            int ret = call(p.here.get(), name.as<sockaddr>(), len.get());
            check(text, ret, name, len);
        }
        Guarded name(room, kPage - room % kPage);
        Length len(room);
        Fd there(::accept4(l.get(), name.as<sockaddr>(), len.get(), 0));
        check("accept4", there.get(), name, len);
    }
}

TEST_P(Bounds, Requests) {
    Pair p = connected();
    Fd l = listener();
    ASSERT_TRUE(send_all(p.there, pattern(100)));
    ASSERT_NE(events(p.here, POLLIN, 10000) & POLLIN, 0);
    for (const Fd *fd : {&p.here, &p.there, &l}) {
        for (unsigned long request :
             {static_cast<unsigned long>(SIOCINQ), static_cast<unsigned long>(SIOCOUTQ),
              static_cast<unsigned long>(SIOCOUTQNSD), static_cast<unsigned long>(SIOCATMARK)}) {
            Guarded value(sizeof(int), kPage - sizeof(int));
            int ret = ::ioctl(fd->get(), request, value.data());
            EXPECT_TRUE(value.only(ret == 0 ? sizeof(int) : 0)) << request;
        }
    }
}

/* Messages ------------------------------------------------------------------------ */

/* Names and control messages of recvmsg(), with less room than they need, and with more */
TEST_P(Bounds, MessageHeaders) {
    Pair p = connected();
    ASSERT_EQ(set(p.there, IPPROTO_TCP, TCP_INQ, 1), 0);
    size_t inqs = 0;
    for (socklen_t room = 0; room < 50; room++) {
        ASSERT_TRUE(send_all(p.here, pattern(3)));
        ASSERT_NE(events(p.there, POLLIN, 10000) & POLLIN, 0);
        Guarded header(sizeof(msghdr), kPage - sizeof(msghdr)), vector(sizeof(iovec));
        Guarded control(room, kPage - room % kPage), name(room), octets(3, kPage - 1);
        *vector.as<iovec>() = {octets.data(), octets.size()};
        *header.as<msghdr>() = {name.data(), room, vector.as<iovec>(), 1, control.data(), room, 0};
        EXPECT_EQ(::recvmsg(p.there.get(), header.as<msghdr>(), MSG_WAITALL), 3);
        const msghdr &msg = *header.as<msghdr>();
        EXPECT_TRUE(header.only(sizeof(msghdr)) && vector.only(sizeof(iovec))) << room;
        EXPECT_TRUE(name.only(0) && octets.only(3)) << room;
        ASSERT_LE(msg.msg_controllen, room);
        EXPECT_TRUE(control.only(msg.msg_controllen)) << room;
        EXPECT_EQ(msg.msg_namelen, 0U);
        bool fits = room >= CMSG_LEN(sizeof(int));
        EXPECT_EQ(msg.msg_flags & MSG_CTRUNC, fits ? 0 : MSG_CTRUNC) << room;
        inqs += fits;
        EXPECT_EQ(std::vector<uint8_t>(octets.data(), octets.data() + 3), pattern(3));
    }
    EXPECT_GT(inqs, 0U);
}

/* A writer of blocks of random sizes, over and over the same octets */
class Writer {
  public:
    Writer(const Fd &fd, uint32_t seed) : thread_([this, &fd, seed] { run(fd, seed); }) {}
    ~Writer() {
        stop_ = true;
        thread_.join();
    }
    static uint8_t octet(uint64_t place) { return static_cast<uint8_t>(place % kCycle); }

  private:
    static constexpr uint64_t kCycle = 251;
    static constexpr size_t kMost = 20000;

    void run(const Fd &fd, uint32_t seed) {
        std::minstd_rand random(seed);
        std::vector<uint8_t> block(kMost + kCycle);
        for (size_t i = 0; i < block.size(); i++)
            block[i] = octet(i);
        uint64_t place = 0;
        while (!stop_) {
            size_t size = random() % 4 ? random() % 300 + 1 : random() % kMost + 1;
            ssize_t ret = ::send(fd.get(), block.data() + place % kCycle, size, 0);
            if (ret > 0)
                place += static_cast<uint64_t>(ret);
            else if (errno != EINTR && errno != EAGAIN)
                return;
        }
    }

    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

/* The octets that come next are in these vectors, and nothing else is. */
static bool holds(const std::vector<std::unique_ptr<Guarded>> &parts, uint64_t place, size_t size) {
    for (const auto &part : parts) {
        size_t here = std::min(size, part->size());
        for (size_t i = 0; i < here; i++)
            if (part->data()[i] != Writer::octet(place + i))
                return false;
        if (!part->only(here))
            return false;
        place += here;
        size -= here;
    }
    return size == 0;
}

static std::string text_of(const std::vector<std::unique_ptr<Guarded>> &parts, int flags,
                           ssize_t ret) {
    std::string text =
        "flags " + std::to_string(flags) + " returned " + std::to_string(ret) + " in";
    for (const auto &part : parts)
        text += " " + std::to_string(part->size());
    return text;
}

/* One read in a random way; false: it went wrong. @place counts octets of the stream. */
static bool read_somehow(const Fd &fd, std::minstd_rand &random, uint64_t &place) {
    /* not MSG_PEEK with MSG_WAITALL, which may wait for more than there is room for */
    constexpr std::array<int, 8> kFlags = {0,
                                           MSG_DONTWAIT,
                                           MSG_PEEK,
                                           MSG_WAITALL,
                                           MSG_PEEK | MSG_DONTWAIT,
                                           MSG_TRUNC,
                                           MSG_TRUNC | MSG_PEEK,
                                           MSG_WAITALL | MSG_TRUNC};
    int flags = kFlags[random() % kFlags.size()];
    std::vector<std::unique_ptr<Guarded>> parts;
    std::vector<iovec> vectors;
    size_t count = random() % 2 ? 1 : random() % 6 + 1;
    size_t room = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = random() % 3 ? random() % 100 : random() % 9000;
        /* at the end of a page, at its begin, or anywhere */
        size_t offset = std::array{kPage - size % kPage, size_t{0}, random() % kPage}[random() % 3];
        parts.push_back(std::make_unique<Guarded>(size, offset));
        vectors.push_back({parts.back()->data(), size});
        room += size;
    }
    mmsghdr msg{};
    msg.msg_hdr.msg_iov = vectors.data();
    msg.msg_hdr.msg_iovlen = vectors.size();
    ssize_t ret = 0;
    if (count > 1 && random() % 3 == 0) {
        int got = ::recvmmsg(fd.get(), &msg, 1, flags, nullptr);
        ret = got == 1 ? static_cast<ssize_t>(msg.msg_len) : got;
    } else if (count > 1) {
        ret = ::recvmsg(fd.get(), &msg.msg_hdr, flags);
    } else {
        ret = ::recv(fd.get(), vectors[0].iov_base, vectors[0].iov_len, flags);
    }
    int error = errno;
    if (ret < 0) {
        EXPECT_TRUE(error == EAGAIN || error == EINTR) << std::strerror(error);
        EXPECT_TRUE(holds(parts, place, 0)) << text_of(parts, flags, ret);
        return error == EAGAIN || error == EINTR;
    }
    /* with TCP, MSG_TRUNC leaves the memory as it is */
    bool thrown = flags & MSG_TRUNC;
    bool good = static_cast<size_t>(ret) <= room &&
                holds(parts, place, thrown ? 0 : static_cast<size_t>(ret));
    EXPECT_TRUE(good) << text_of(parts, flags, ret) << " at " << place;
    if (!(flags & MSG_PEEK))
        place += static_cast<uint64_t>(ret);
    return good;
}

/* Signals that interrupt whatever this thread does, while it lives */
class Interrupts {
  public:
    Interrupts()
        : thread_([this, reader = ::pthread_self()] {
              while (!stop_) {
                  ::pthread_kill(reader, SIGUSR1);
                  usleep(700);
              }
          }) {}
    ~Interrupts() {
        stop_ = true;
        thread_.join();
    }

  private:
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

static void read_for(Pair p, int ms, uint32_t seed, uint64_t &place) {
    std::minstd_rand random(seed);
    Stopwatch watch;
    {
        Writer writer(p.here, seed + 1);
        while (watch.ms() < ms && read_somehow(p.there, random, place))
            ;
        /* a writer that waits for room gets an error */
        p.there.reset();
    }
}

TEST_P(Bounds, Reads) {
    uint64_t place = 0;
    read_for(connected(), 800, 1, place);
    EXPECT_GT(place, 10000U);
}

TEST_P(Bounds, ReadsInterrupted) {
    take_signal(SIGUSR1);
    uint64_t place = 0;
    Pair p = connected();
    Interrupts interrupts;
    read_for(std::move(p), 800, 2, place);
    EXPECT_GT(place, 10000U);
}

/* Octets out of band: one octet, and only where there is room for one */
TEST_P(Bounds, OutOfBand) {
    for (size_t room : {0U, 1U, 2U, 100U}) {
        for (int flags : std::array<int, 4>{MSG_PEEK, MSG_TRUNC | MSG_PEEK, MSG_TRUNC, 0}) {
            Pair p = connected();
            ASSERT_EQ(::send(p.here.get(), "abc", 3, MSG_OOB), 3);
            ASSERT_NE(events(p.there, POLLPRI, 10000) & POLLPRI, 0);
            Guarded octets(room, kPage - room % kPage);
            ssize_t ret = ::recv(p.there.get(), octets.data(), room, MSG_OOB | flags);
            EXPECT_EQ(ret, room ? 1 : 0);
            bool written = room && !(flags & MSG_TRUNC);
            EXPECT_TRUE(octets.only(written)) << room << " flags " << flags;
            EXPECT_EQ(room ? octets.data()[0] : kFilling, written ? 'c' : kFilling);
        }
    }
}

} // namespace softwarp::sockets
