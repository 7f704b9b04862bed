// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What sdp_run looks at before it starts a program: files and netlink.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/cgroup.hpp"
#include "tools/network.hpp"
#include "tools/program.hpp"

namespace {

using namespace softwarp::tools;
using softwarp::preload::endpoint_of;

class ProgramTest : public ::testing::Test {
  protected:
    void SetUp() override {
        directory_ =
            std::filesystem::temp_directory_path() / ("softwarp-tools-" + std::to_string(getpid()));
        std::filesystem::create_directories(directory_);
    }
    void TearDown() override { std::filesystem::remove_all(directory_); }

    std::string write(const std::string &name, const std::string &text, mode_t mode = 0755) {
        const std::filesystem::path path = directory_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream{path, std::ios::binary} << text;
        chmod(path.c_str(), mode);
        return path.string();
    }
    // An ELF file with one segment: that of the loader, or another one.
    std::string elf(const std::string &name, const std::string &loader,
                    unsigned char bits = ELFCLASS64, std::uint16_t machine = EM_X86_64) {
        Elf64_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = bits;
        header.e_machine = machine;
        header.e_phoff = sizeof(header);
        header.e_phentsize = sizeof(Elf64_Phdr);
        header.e_phnum = 1;
        Elf64_Phdr segment{};
        segment.p_type = loader.empty() ? PT_LOAD : PT_INTERP;
        segment.p_offset = sizeof(header) + sizeof(segment);
        segment.p_filesz = loader.size() + 1;
        std::string text;
        text.append(reinterpret_cast<const char *>(&header), sizeof(header));
        text.append(reinterpret_cast<const char *>(&segment), sizeof(segment));
        return write(name, text + loader + '\0');
    }
    static std::string why(const std::string &path) { return why_not_preloaded(path).value_or(""); }

    std::filesystem::path directory_;
};

constexpr const char *glibc = "/lib64/ld-linux-x86-64.so.2";

} // namespace

TEST_F(ProgramTest, IsFoundAsByExecvp) {
    const std::string one = write("one/program", "x");
    const std::string two = write("two/program", "x");
    write("zero/program", "x", 0644);
    const std::string path = directory_.string();
    EXPECT_EQ(find_program("program", (path + "/one:" + path + "/two").c_str()).path, one);
    EXPECT_EQ(find_program("program", (path + "/none:" + path + "/two").c_str()).path, two);
    // One that may not be started does not end the search, and is what is said at its end.
    EXPECT_EQ(find_program("program", (path + "/zero:" + path + "/two").c_str()).path, two);
    EXPECT_EQ(find_program("program", (path + "/zero").c_str()).error, EACCES);
    EXPECT_EQ(find_program("program", (path + "/none").c_str()).error, ENOENT);
    EXPECT_EQ(find_program("", path.c_str()).error, ENOENT);
    EXPECT_EQ(find_program("sh", nullptr).path, "/bin/sh");
}

TEST_F(ProgramTest, WithASlashIsNotSearchedFor) {
    const std::string path = write("program", "x");
    EXPECT_EQ(find_program(path, "/none").path, path);
    EXPECT_EQ(find_program(path + "x", "/none").error, ENOENT);
    EXPECT_EQ(find_program(path + "/x", "/none").error, ENOTDIR);
    EXPECT_EQ(find_program(directory_.string() + "/", "/none").error, EACCES);
}

TEST_F(ProgramTest, DynamicProgramsArePreloaded) {
    EXPECT_EQ(why(elf("a", glibc)), "");
    EXPECT_EQ(why("/bin/sh"), "");
    EXPECT_EQ(why("/proc/self/exe"), "");
}

TEST_F(ProgramTest, OthersAreNot) {
    const std::string fixed = elf("static", "");
    EXPECT_EQ(why(fixed), fixed + " is a static program, which has no loader");
    EXPECT_NE(why(elf("musl", "/lib/ld-musl-x86_64.so.1")).find("musl"), std::string::npos);
    EXPECT_NE(why(elf("old", glibc, ELFCLASS32)).find("32-bit"), std::string::npos);
    EXPECT_NE(why(elf("arm", glibc, ELFCLASS64, EM_AARCH64)).find("architecture"),
              std::string::npos);
}

TEST_F(ProgramTest, OfAScriptTheInterpreterCounts) {
    const std::string fixed = elf("static", "");
    EXPECT_EQ(why(write("a", "#!/bin/sh -e\n")), "");
    EXPECT_EQ(why(write("b", "#! \t" + fixed + " -e\n")),
              fixed + " is a static program, which has no loader");
    EXPECT_EQ(why(write("c", "#!" + (directory_ / "b").string() + "\n")),
              fixed + " is a static program, which has no loader");
    const std::string loop = (directory_ / "loop").string();
    EXPECT_EQ(why(write("loop", "#!" + loop + "\n")), "");
    EXPECT_EQ(why(write("d", "#!")), "");
    EXPECT_EQ(why(write("e", "")), "");
}

TEST_F(ProgramTest, WhatIsDamagedIsLeftToTheKernel) {
    EXPECT_EQ(why(write("short", std::string{ELFMAG} + "\2\1")), "");
    std::string text = std::string{ELFMAG} + std::string(60, '\xff');
    EXPECT_NE(why(write("odd", text)), ""); // another class
    text[EI_CLASS] = ELFCLASS64;
    why(write("odd", text)); // ends
}

TEST_F(ProgramTest, SetuidOfOneself) {
    const std::string path = elf("program", glibc);
    chmod(path.c_str(), 06755);
    EXPECT_EQ(why(path), "");
}

TEST_F(ProgramTest, SetuidOfAnother) {
    const std::string path = elf("program", glibc);
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0) << "this test is for root";
    chmod(path.c_str(), 04755);
    EXPECT_NE(why(path).find("is a setuid program"), std::string::npos);
    chmod(path.c_str(), 02755);
    EXPECT_NE(why(path).find("is a setgid program"), std::string::npos);
    // without the right to execute this bit once meant mandatory locks
    chmod(path.c_str(), 02745);
    EXPECT_EQ(why(path), "");
}

TEST(NetworkTest, RouteWithinTheHost) {
    for (const char *address : {"127.0.0.1:80", "[::1]:80"}) {
        const Route route = route_to(endpoint_of(address).value());
        EXPECT_EQ(route.error, 0) << address;
        EXPECT_TRUE(route.loopback) << address;
        EXPECT_EQ(route.netdev, "lo") << address;
    }
    EXPECT_EQ(netdev_with(endpoint_of("127.0.0.1:80").value()), "lo");
    EXPECT_EQ(netdev_with(endpoint_of("192.0.2.99:80").value()), "");
}

TEST(CgroupTest, MountPoint) {
    const std::string v1 = "30 25 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n";
    EXPECT_EQ(cgroup_mount_in(v1 + "31 25 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 "
                                   "master:1 - cgroup2 none rw\n"),
              "/sys/fs/cgroup/unified");
    // without optional fields; blanks are written as octal numbers
    EXPECT_EQ(cgroup_mount_in("31 25 0:27 / /a\\040b\\134c rw - cgroup2 none rw"), "/a b\\c");
    EXPECT_EQ(cgroup_mount_in("31 25 0:27 / /a\\04 rw - cgroup2 none rw"), "/a\\04");
    EXPECT_EQ(cgroup_mount_in("31 25 0:27 / /a\\999 rw - cgroup2 none rw"), "/a\\999");
    for (const char *none : {"", "\n", "- cgroup2\n", "31 25 - cgroup2", "31 25 0:27 / /a rw -",
                             "31 25 0:27 / /cgroup2 rw - tmpfs cgroup2 rw"})
        EXPECT_EQ(cgroup_mount_in(none), "") << none;
    EXPECT_EQ(cgroup_mount_in(v1), "");
}

TEST(CgroupTest, OwnPath) {
    EXPECT_EQ(cgroup_path_in("0::/\n"), "/");
    EXPECT_EQ(cgroup_path_in("9:cpu:/x\n0::/user.slice/a b\n"), "/user.slice/a b");
    for (const char *none : {"", "9:cpu:/x\n", "0::/../..\n", "0::/a/../b"})
        EXPECT_EQ(cgroup_path_in(none), "") << none;
}
