// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * BPF programs of a cgroup see each call once, as with TCP, and what they change
 * counts; sockets in maps.  By bpf() itself: the programs are a few instructions.
 */
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <linux/bpf.h>

#include "kinds.hpp"

namespace softwarp::sockets {

namespace {

using Code = std::vector<bpf_insn>;

bpf_insn insn(int code, int dst, int src, int off, int imm) {
    bpf_insn i{};
    i.code = static_cast<uint8_t>(code);
    i.dst_reg = dst & 15;
    i.src_reg = src & 15;
    i.off = static_cast<int16_t>(off);
    i.imm = imm;
    return i;
}

Code operator+(Code a, const Code &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/* return value */
Code verdict(int value) {
    return {insn(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, value),
            insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
}

/* (*map)[slot]++ */
Code count(int map, int slot) {
    return {insn(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, slot),
            insn(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, map),
            insn(0, 0, 0, 0, 0),
            insn(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
            insn(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
            insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
            insn(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0),
            insn(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1),
            insn(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_ADD)};
}

/* An address with that port gets the other one, and the program ends. */
Code redirect(uint16_t from, uint16_t to) {
    constexpr int kPort = offsetof(bpf_sock_addr, user_port);
    return Code{insn(BPF_LDX | BPF_MEM | BPF_W, 2, 1, kPort, 0),
                insn(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 4, htons(from)),
                insn(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, htons(to)),
                insn(BPF_STX | BPF_MEM | BPF_W, 1, 3, kPort, 0)} +
           verdict(1);
}

int call(int command, bpf_attr &attr) {
    return static_cast<int>(::syscall(SYS_bpf, command, &attr, sizeof(attr)));
}

/* Kernels without programs for cgroups have nothing to see. */
bool have_programs() {
    bpf_attr attr{};
    errno = 0;
    return call(BPF_PROG_DETACH, attr) == 0 || errno != ENOSYS;
}

/* A cgroup with this process in it */
class Cgroup {
  public:
    Cgroup() {
        char name[] = "/tmp/cgroupXXXXXX";
        EXPECT_NE(::mkdtemp(name), nullptr);
        top_ = name;
        EXPECT_EQ(::mount("none", name, "cgroup2", 0, nullptr), 0) << std::strerror(errno);
        own_ = top_ + "/sockets";
        EXPECT_EQ(::mkdir(own_.c_str(), 0700), 0) << std::strerror(errno);
        fd_ = Fd(::open(own_.c_str(), O_RDONLY | O_DIRECTORY));
        move_to(own_);
    }
    Cgroup(const Cgroup &) = delete;
    Cgroup &operator=(const Cgroup &) = delete;
    ~Cgroup() {
        for (auto &[type, program] : programs_) {
            bpf_attr attr{};
            attr.target_fd = static_cast<uint32_t>(fd_.get());
            attr.attach_bpf_fd = static_cast<uint32_t>(program.get());
            attr.attach_type = type;
            EXPECT_EQ(call(BPF_PROG_DETACH, attr), 0) << std::strerror(errno);
        }
        move_to(top_);
        fd_.reset();
        EXPECT_EQ(::rmdir(own_.c_str()), 0) << std::strerror(errno);
        EXPECT_EQ(::umount2(top_.c_str(), MNT_DETACH), 0);
        ::rmdir(top_.c_str());
    }
    void attach(uint32_t program_type, uint32_t attach_type, const Code &code) {
        static char log[8192];
        bpf_attr attr{};
        attr.prog_type = program_type;
        attr.expected_attach_type = attach_type;
        attr.insns = reinterpret_cast<uintptr_t>(code.data());
        attr.insn_cnt = static_cast<uint32_t>(code.size());
        attr.license = reinterpret_cast<uintptr_t>("GPL");
        attr.log_buf = reinterpret_cast<uintptr_t>(log);
        attr.log_size = sizeof(log);
        attr.log_level = 1;
        Fd program(call(BPF_PROG_LOAD, attr));
        ASSERT_TRUE(program) << std::strerror(errno) << ": " << log;
        attr = {};
        attr.target_fd = static_cast<uint32_t>(fd_.get());
        attr.attach_bpf_fd = static_cast<uint32_t>(program.get());
        attr.attach_type = attach_type;
        ASSERT_EQ(call(BPF_PROG_ATTACH, attr), 0) << std::strerror(errno);
        programs_.emplace(attach_type, std::move(program));
    }
    /* Programs for the addresses of this call: those of IPv4, and of IPv6 */
    void attach_both(uint32_t v4, uint32_t v6, const Code &code) {
        attach(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, v4, code);
        attach(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, v6, code);
    }

  private:
    static void move_to(const std::string &cgroup) {
        std::ofstream file(cgroup + "/cgroup.procs");
        file << ::getpid() << std::endl;
        EXPECT_TRUE(file) << cgroup;
    }

    std::string top_, own_;
    Fd fd_;
    std::map<uint32_t, Fd> programs_;
};

class Counts {
  public:
    enum Slot { kCreate, kRelease, kBind, kBound, kConnect, kName, kPeer, kSlots };

    Counts() {
        bpf_attr attr{};
        attr.map_type = BPF_MAP_TYPE_ARRAY;
        attr.key_size = sizeof(uint32_t);
        attr.value_size = sizeof(uint64_t);
        attr.max_entries = kSlots;
        map_ = Fd(call(BPF_MAP_CREATE, attr));
        EXPECT_TRUE(map_) << std::strerror(errno);
    }
    Code code(Slot slot) const { return count(map_.get(), slot) + verdict(1); }
    std::array<uint64_t, kSlots> values() const {
        std::array<uint64_t, kSlots> found{};
        for (uint32_t i = 0; i < kSlots; i++) {
            bpf_attr attr{};
            attr.map_fd = static_cast<uint32_t>(map_.get());
            attr.key = reinterpret_cast<uintptr_t>(&i);
            attr.value = reinterpret_cast<uintptr_t>(&found[i]);
            EXPECT_EQ(call(BPF_MAP_LOOKUP_ELEM, attr), 0) << std::strerror(errno);
        }
        return found;
    }

  private:
    Fd map_;
};

} // namespace

class Cgroups : public Sockets {
  protected:
    /* Of a listener that was made before the programs were there */
    bool is_heard(const Fd &listener, const Fd &here) const {
        if (events(listener, POLLIN, 5000) != POLLIN)
            return false;
        Fd there(::accept(listener.get(), nullptr, nullptr));
        return send_all(here, pattern(100)) && receive(there, 100) == pattern(100);
    }
};
INSTANTIATE_TEST_SUITE_P(All, Cgroups, testing::ValuesIn(local_kinds()), name_of_kind);

/* All that a server and a client do, each once; accept() is none of it. */
TEST_P(Cgroups, EachCallOnce) {
    if (!have_programs())
        return;
    Cgroup cgroup;
    Counts counts;
    cgroup.attach(BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE,
                  counts.code(Counts::kCreate));
    cgroup.attach(BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_RELEASE,
                  counts.code(Counts::kRelease));
    for (uint32_t type : {BPF_CGROUP_INET4_POST_BIND, BPF_CGROUP_INET6_POST_BIND})
        cgroup.attach(BPF_PROG_TYPE_CGROUP_SOCK, type, counts.code(Counts::kBound));
    cgroup.attach_both(BPF_CGROUP_INET4_BIND, BPF_CGROUP_INET6_BIND, counts.code(Counts::kBind));
    cgroup.attach_both(BPF_CGROUP_INET4_CONNECT, BPF_CGROUP_INET6_CONNECT,
                       counts.code(Counts::kConnect));
    cgroup.attach_both(BPF_CGROUP_INET4_GETSOCKNAME, BPF_CGROUP_INET6_GETSOCKNAME,
                       counts.code(Counts::kName));
    cgroup.attach_both(BPF_CGROUP_INET4_GETPEERNAME, BPF_CGROUP_INET6_GETPEERNAME,
                       counts.code(Counts::kPeer));
    using Expected = std::array<uint64_t, Counts::kSlots>;
    Fd l = listener(), here = make();
    /* some kernels ask for the name in listen() */
    uint64_t names = counts.values()[Counts::kName];
    EXPECT_EQ(counts.values(), (Expected{2, 0, 1, 1, 0, names, 0}));
    Address a = name_of(l);
    EXPECT_EQ(connect_to(here, a), 0);
    Fd there(::accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(there) << std::strerror(errno);
    EXPECT_EQ(counts.values(), (Expected{2, 0, 1, 1, 1, names + 1, 0}));
    EXPECT_TRUE(name_of(here) == peer_of(there));
    EXPECT_EQ(counts.values(), (Expected{2, 0, 1, 1, 1, names + 2, 1}));
    ASSERT_TRUE(send_all(here, pattern(1000)));
    EXPECT_EQ(receive(there, 1000), pattern(1000));
    here.reset();
    there.reset();
    l.reset();
    EXPECT_EQ(counts.values(), (Expected{2, 3, 1, 1, 1, names + 2, 1}));
}

/* Nobody may make sockets any more, but connections that come are accepted. */
TEST_P(Cgroups, AcceptMakesNoSocket) {
    if (!have_programs())
        return;
    Cgroup cgroup;
    Fd l = listener(), here = make();
    cgroup.attach(BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, verdict(0));
    EXPECT_EQ(ERRNO_OF(::socket(GetParam().family, SOCK_STREAM, GetParam().protocol)), EPERM);
    ASSERT_EQ(connect_to(here, name_of(l)), 0);
    EXPECT_TRUE(is_heard(l, here));
}

/* To the second one from the first, and not on to the third */
TEST_P(Cgroups, RedirectedOnce) {
    if (!have_programs())
        return;
    Cgroup cgroup;
    Fd second = listener(), third = listener(), here = make();
    uint16_t first = name_of(Fd(listener())).port();
    cgroup.attach_both(BPF_CGROUP_INET4_CONNECT, BPF_CGROUP_INET6_CONNECT,
                       redirect(first, name_of(second).port()) +
                           redirect(name_of(second).port(), name_of(third).port()) + verdict(1));
    ASSERT_EQ(connect_to(here, loopback(first)), 0);
    EXPECT_TRUE(is_heard(second, here));
    EXPECT_EQ(events(third, POLLIN), 0);
}

TEST_P(Cgroups, Refused) {
    if (!have_programs())
        return;
    Cgroup cgroup;
    Fd l = make(), here = make(), other = make();
    ASSERT_EQ(bind_to(l, loopback()), 0);
    cgroup.attach_both(BPF_CGROUP_INET4_CONNECT, BPF_CGROUP_INET6_CONNECT, verdict(0));
    cgroup.attach_both(BPF_CGROUP_INET4_BIND, BPF_CGROUP_INET6_BIND, verdict(0));
    EXPECT_EQ(bind_to(other, loopback()), EPERM);
    /* a socket that was bound before has all that it needs */
    EXPECT_EQ(::listen(l.get(), 8), 0);
    EXPECT_EQ(connect_to(here, name_of(l)), EPERM);
    EXPECT_EQ(events(l, POLLIN), 0);
}

class Sockmap : public Sockets {};
INSTANTIATE_TEST_SUITE_P(All, Sockmap, testing::ValuesIn(local_kinds()), name_of_kind);

/* A map takes a socket, and then its stream goes on, or it says no. */
TEST_P(Sockmap, TakesOrRefuses) {
    if (!have_programs())
        return;
    bpf_attr attr{};
    attr.map_type = BPF_MAP_TYPE_SOCKMAP;
    attr.key_size = attr.value_size = sizeof(uint32_t);
    attr.max_entries = 2;
    Fd map(call(BPF_MAP_CREATE, attr));
    ASSERT_TRUE(map) << std::strerror(errno);
    Code pass = verdict(1); // SK_PASS
    attr = {};
    attr.prog_type = BPF_PROG_TYPE_SK_SKB;
    attr.expected_attach_type = BPF_SK_SKB_VERDICT;
    attr.insns = reinterpret_cast<uintptr_t>(pass.data());
    attr.insn_cnt = static_cast<uint32_t>(pass.size());
    attr.license = reinterpret_cast<uintptr_t>("GPL");
    Fd program(call(BPF_PROG_LOAD, attr));
    ASSERT_TRUE(program) << std::strerror(errno);
    attr = {};
    attr.target_fd = static_cast<uint32_t>(map.get());
    attr.attach_bpf_fd = static_cast<uint32_t>(program.get());
    attr.attach_type = BPF_SK_SKB_VERDICT;
    ASSERT_EQ(call(BPF_PROG_ATTACH, attr), 0) << std::strerror(errno);

    Pair p = connected();
    std::string kind = GetParam().name;
    bool tcp = kind.starts_with("tcp"), fell = GetParam().policy == Kind::kFellBack;
    uint32_t slot = 0;
    for (const Fd *fd : {&p.there, &p.here}) {
        uint32_t value = static_cast<uint32_t>(fd->get());
        attr = {};
        attr.map_fd = static_cast<uint32_t>(map.get());
        attr.key = reinterpret_cast<uintptr_t>(&slot);
        attr.value = reinterpret_cast<uintptr_t>(&value);
        int error = ERRNO_OF(call(BPF_MAP_UPDATE_ELEM, attr));
        /* the pointer that a map needs is in use in a socket that has connected */
        if (tcp || (fell && fd == &p.there)) {
            EXPECT_EQ(error, 0) << std::strerror(error);
        } else {
            EXPECT_EQ(error, fell ? EBUSY : EOPNOTSUPP) << std::strerror(error);
        }
        slot++;
    }
    ASSERT_TRUE(send_all(p.here, pattern(5000)));
    EXPECT_EQ(receive(p.there, 5000), pattern(5000));
    ASSERT_TRUE(send_all(p.there, pattern(5000)));
    EXPECT_EQ(receive(p.here, 5000), pattern(5000));
}

} // namespace softwarp::sockets
