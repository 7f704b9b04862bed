// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The finished library, preloaded into this program on a host that may have no SDP:
// calls have to do what they do without it.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <netinet/in.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

std::vector<std::string> exported_symbols(const char *path) {
    std::ifstream file{path, std::ios::binary};
    const std::vector<char> image{std::istreambuf_iterator<char>{file}, {}};
    const auto *ehdr = reinterpret_cast<const ElfW(Ehdr) *>(image.data());
    const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(image.data() + ehdr->e_shoff);
    std::vector<std::string> names;
    for (int s = 0; s < ehdr->e_shnum; ++s) {
        const ElfW(Shdr) &dynsym = sections[s];
        if (dynsym.sh_type != SHT_DYNSYM)
            continue;
        const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(image.data() + dynsym.sh_offset);
        const char *strings = image.data() + sections[dynsym.sh_link].sh_offset;
        for (std::size_t i = 0; i < dynsym.sh_size / sizeof(ElfW(Sym)); ++i) {
            // Some linkers leave sections there, which have no names.
            if (symbols[i].st_shndx != SHN_UNDEF &&
                ELF64_ST_TYPE(symbols[i].st_info) != STT_SECTION)
                names.emplace_back(strings + symbols[i].st_name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

// A listener at a free port of 127.0.0.1, and its address.
struct Listener {
    explicit Listener(int backlog) : fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(bind(fd, get(), length), 0);
        EXPECT_EQ(listen(fd, backlog), 0);
        EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length), 0);
    }
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;
    ~Listener() { close(fd); }
    [[nodiscard]] const sockaddr *get() const {
        return reinterpret_cast<const sockaddr *>(&address);
    }

    int fd;
    sockaddr_in address{};
    socklen_t length = sizeof(address);
};

// What a child returns, or 128 and its signal; 255 if it hangs.
int result_of(pid_t child) {
    for (int i = 0; i < 1000; ++i) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return 255;
}

} // namespace

// syscall() is written in assembly, for one processor.
#ifdef __x86_64__
const std::vector<std::string> taken_over{"bind",   "connect", "getsockopt",
                                          "listen", "socket",  "syscall"};
#else
const std::vector<std::string> taken_over{"bind", "connect", "getsockopt", "listen", "socket"};
#endif

TEST(Preload, ExportsWhatItTakesOver) {
    EXPECT_EQ(exported_symbols(LIBRARY), taken_over);
}

TEST(Preload, IsInThisProgram) {
    for (const std::string &name : taken_over) {
        Dl_info info{};
        ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, name.c_str()), &info), 0);
        EXPECT_NE(std::string{info.dli_fname}.find("libsoftwarp_sdp.so"), std::string::npos)
            << name;
    }
}

TEST(Preload, SocketsWork) {
    const Listener listener{5};
    const int here = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    EXPECT_NE(fcntl(here, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(fcntl(here, F_GETFD) & FD_CLOEXEC, 0);
    fcntl(here, F_SETFL, 0);
    ASSERT_EQ(connect(here, listener.get(), listener.length), 0);
    const int there = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    ASSERT_GE(there, 0);
    char octet = 'x';
    EXPECT_EQ(write(here, &octet, 1), 1);
    octet = 0;
    EXPECT_EQ(read(there, &octet, 1), 1);
    EXPECT_EQ(octet, 'x');
    close(here);
    close(there);
}

TEST(Preload, ErrorsAreTheKernels) {
    EXPECT_EQ(socket(AF_INET, 99, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(listen(-1, 1), -1);
    EXPECT_EQ(errno, EBADF);
    const sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    EXPECT_EQ(connect(-1, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(bind(-1, nullptr, 0), -1);
    EXPECT_EQ(errno, EBADF);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto *nowhere = reinterpret_cast<const sockaddr *>(8);
    EXPECT_EQ(connect(fd, nowhere, sizeof(address)), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(bind(fd, nowhere, sizeof(address)), -1);
    EXPECT_EQ(errno, EFAULT);
    close(fd);
    int value = 0;
    socklen_t length = sizeof(value);
    EXPECT_EQ(getsockopt(-1, SOL_SOCKET, SO_ERROR, &value, &length), -1);
    EXPECT_EQ(errno, EBADF);
}

TEST(Preload, ErrnoIsLeftAlone) {
    errno = 4711;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(errno, 4711);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd, 5), 0);
    EXPECT_EQ(errno, 4711);
    close(fd);
}

TEST(Preload, SyscallWithAnyNumberOfArguments) {
    EXPECT_EQ(syscall(SYS_getpid), getpid());
    const long page = sysconf(_SC_PAGESIZE);
    const long address = syscall(SYS_mmap, nullptr, page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(address, -1);
    EXPECT_EQ(syscall(SYS_munmap, address, page), 0);
    EXPECT_EQ(syscall(SYS_close, -1), -1);
    EXPECT_EQ(errno, EBADF);
}

TEST(Preload, SocketsBySyscall) {
    const Listener listener{5};
    const long fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(syscall(SYS_connect, fd, listener.get(), listener.length), 0);
    EXPECT_EQ(syscall(SYS_connect, fd, listener.get(), listener.length), -1);
    EXPECT_EQ(errno, EISCONN);
    close(static_cast<int>(fd));
    EXPECT_EQ(syscall(SYS_socket, AF_INET, 99, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(syscall(SYS_listen, -1, 0), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(syscall(SYS_bind, -1, nullptr, 0), -1);
    EXPECT_EQ(errno, EBADF);
}

// The stack is unwound through the library while its connect() waits.
TEST(Preload, ConnectCanBeCancelled) {
    const Listener listener{0};
    // Fills the backlog; further ones wait for an answer to their SYN.
    std::vector<int> fill;
    for (int i = 0; i < 4; ++i) {
        fill.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        connect(fill.back(), listener.get(), listener.length);
    }
    static std::atomic<bool> unwound;
    unwound = false;
    pthread_t thread{};
    const auto body = [](void *argument) -> void * {
        struct Unwound {
            ~Unwound() { unwound = true; }
        } const note;
        const auto *at = static_cast<const Listener *>(argument);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        connect(fd, at->get(), at->length);
        pthread_testcancel();
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, nullptr, body, const_cast<Listener *>(&listener)), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    ASSERT_EQ(pthread_cancel(thread), 0);
    void *result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    EXPECT_TRUE(unwound);
    for (const int fd : fill)
        close(fd);
}

TEST(Preload, ChildOfVfork) {
    const Listener listener{5};
    const pid_t child = vfork();
    if (child == 0) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const int result = connect(fd, listener.get(), listener.length);
        close(fd);
        _exit(result == 0 ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    EXPECT_EQ(result_of(child), 0);
}

// A lock that another thread holds at fork() stays locked in the child.
TEST(Preload, ForksWhileThreadsMakeSockets) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&stop] {
            while (!stop)
                close(socket(AF_INET, SOCK_STREAM, 0));
        });
    }
    for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            const Listener listener{5};
            const int fd = socket(AF_INET, SOCK_STREAM, 0);
            _exit(connect(fd, listener.get(), listener.length) == 0 ? 0 : 1);
        }
        ASSERT_GT(child, 0);
        ASSERT_EQ(result_of(child), 0);
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Preload, AfterAllDescriptorsAreClosed) {
    const pid_t child = fork();
    if (child == 0) {
        close_range(0, ~0U, 0);
        const Listener listener{5};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        _exit(connect(fd, listener.get(), listener.length) == 0 ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    EXPECT_EQ(result_of(child), 0);
}
