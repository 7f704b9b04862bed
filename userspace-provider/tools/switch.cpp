// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "switch.hpp"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <sdp_switch.skel.h>
#include <softwarp_sdp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "bpf/sdp_switch.h"
#include "common/fd.hpp"
#include "errors.hpp"

namespace softwarp::tools {
namespace {

constexpr const char *bpf_fs = "/sys/fs/bpf";
constexpr const char *directory = "/sys/fs/bpf/softwarp";
// In the order in which they are made.  While "protocol" is there the switch is on.
constexpr const char *pin_hold = "/sys/fs/bpf/softwarp/hold";
constexpr const char *pin_cgroups = "/sys/fs/bpf/softwarp/cgroups";
constexpr const char *pin_removal = "/sys/fs/bpf/softwarp/removal";
constexpr const char *pin_protocol = "/sys/fs/bpf/softwarp/protocol";
constexpr const char *hook = "update_socket_protocol";
// The kernel lets go of a program soon after its pin is removed.
constexpr int looks_most = 500;
constexpr std::chrono::milliseconds pause{10};

struct DeleteBtf {
    void operator()(btf *types) const { btf__free(types); }
};
struct DeleteSkeleton {
    void operator()(sdp_switch_bpf *skeleton) const { sdp_switch_bpf::destroy(skeleton); }
};
using Btf = std::unique_ptr<btf, DeleteBtf>;
using Skeleton = std::unique_ptr<sdp_switch_bpf, DeleteSkeleton>;

// What libbpf says, for the sentence if it fails
std::string &said() {
    static std::string text;
    return text;
}

__attribute__((format(printf, 2, 0))) int note(libbpf_print_level level, const char *format,
                                               va_list arguments) {
    constexpr std::size_t most = 4096;
    std::string line(most, '\0');
    if (level != LIBBPF_WARN)
        return 0;
    const int length = std::vsnprintf(line.data(), line.size(), format, arguments);
    if (length > 0 && said().size() < most)
        said() += line.substr(0, std::min(static_cast<std::size_t>(length), most - 1));
    return length;
}

std::string kernel_release() {
    utsname names{};
    return uname(&names) == 0 ? &names.release[0] : "?";
}

// The directory of the pins, which nobody but root may change, locked.
class Pins {
  public:
    Pins() {
        struct statfs about = {};
        if (statfs(bpf_fs, &about) != 0 || static_cast<unsigned long>(about.f_type) != BPF_FS_MAGIC)
            throw std::runtime_error{
                fmt::format("{0} is no BPF file system; mount it: mount -t bpf bpf {0}", bpf_fs)};
        if (mkdir(directory, 0700) != 0 && errno != EEXIST)
            throw failure(directory, errno);
        fd_ = Fd{open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        struct stat status = {};
        if (!fd_ || fstat(fd_.get(), &status) != 0)
            throw failure(directory, errno);
        if (status.st_uid != 0 || (status.st_mode & 077) != 0)
            throw std::runtime_error{fmt::format(
                "{} is open to others than root; look who has made it, and remove it", directory)};
        if (flock(fd_.get(), LOCK_EX) != 0)
            throw failure(directory, errno);
    }

  private:
    Fd fd_;
};

Fd open_pin(const char *path) {
    const int fd = bpf_obj_get(path);
    if (fd < 0 && errno != ENOENT)
        throw failure(path, errno);
    return fd < 0 ? Fd{} : Fd{fd};
}

bool is_program(std::uint32_t id) {
    return Fd{bpf_prog_get_fd_by_id(id)}.operator bool();
}

// Removes the pin of a link, and waits until the kernel has let go of its program.
void drop_link(const char *path) {
    std::uint32_t program = 0;
    {
        const Fd link = open_pin(path);
        if (!link)
            return;
        bpf_link_info info{};
        std::uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(link.get(), &info, &size) == 0)
            program = info.prog_id;
    }
    if (unlink(path) != 0)
        throw failure(path, errno);
    for (int i = 0; program != 0 && is_program(program); ++i) {
        if (i == looks_most)
            throw std::runtime_error{fmt::format(
                "{} is removed, but another process still holds its program; see bpftool link",
                path)};
        std::this_thread::sleep_for(pause);
    }
}

// First the program that makes sockets, last the one that holds the module.
void drop_all() {
    drop_link(pin_protocol);
    drop_link(pin_removal);
    if (unlink(pin_cgroups) != 0 && errno != ENOENT)
        throw failure(pin_cgroups, errno);
    drop_link(pin_hold);
}

class Map {
  public:
    explicit Map(Fd fd) : fd_{std::move(fd)} {
        bpf_map_info info{};
        std::uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(fd_.get(), &info, &size) != 0)
            throw failure(pin_cgroups, errno);
        if (info.key_size != sizeof(std::uint64_t) || info.value_size != sizeof(sdp_switch_entry))
            throw std::runtime_error{"another version of sdp_switch has turned the switch on; "
                                     "first turn it off: sdp_switch off"};
    }

    void add(const Cgroup &cgroup) const {
        const sdp_switch_entry entry{};
        if (bpf_map_update_elem(fd_.get(), &cgroup.id, &entry, BPF_NOEXIST) != 0) {
            if (errno == E2BIG)
                throw std::runtime_error{fmt::format(
                    "the switch is on for {} control groups already, which are the most",
                    SDP_SWITCH_CGROUPS)};
            if (errno != EEXIST)
                throw failure(cgroup.path, errno);
        }
        // The entry of one that went meanwhile would stay.
        if (path_of_cgroup(cgroup.id).empty()) {
            static_cast<void>(remove(cgroup));
            throw std::runtime_error{cgroup.path + " has been removed"};
        }
    }
    [[nodiscard]] bool remove(const Cgroup &cgroup) const {
        return bpf_map_delete_elem(fd_.get(), &cgroup.id) == 0;
    }
    [[nodiscard]] std::vector<SwitchedCgroup> all() const {
        std::vector<SwitchedCgroup> found;
        std::uint64_t id = 0;
        const std::uint64_t *before = nullptr;
        // Entries come and go; the map is no larger than this.
        for (int i = 0; i < SDP_SWITCH_CGROUPS; ++i) {
            if (bpf_map_get_next_key(fd_.get(), before, &id) != 0)
                break;
            before = &id;
            sdp_switch_entry entry{};
            if (bpf_map_lookup_elem(fd_.get(), &id, &entry) == 0)
                found.push_back({{path_of_cgroup(id), id}, entry.sockets});
        }
        return found;
    }

  private:
    Fd fd_;
};

std::optional<Map> pinned_map() {
    // Without "protocol" it was not made to the end, or not removed.
    const Fd link = open_pin(pin_protocol);
    Fd map = link ? open_pin(pin_cgroups) : Fd{};
    return map ? std::optional<Map>{std::move(map)} : std::nullopt;
}

// 0, or the errno with which socket() refuses; the module is loaded by its alias.
int try_socket(int family, int protocol) {
    const Fd fd{socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol)};
    return fd ? 0 : errno;
}

Skeleton load(bool with_ipv6) {
    libbpf_set_print(note);
    Skeleton skeleton{sdp_switch_bpf::open()};
    if (!skeleton)
        throw failure("opening the kernel's programs", errno);
    skeleton->rodata->with_ipv6 = with_ipv6;
    if (const int error = sdp_switch_bpf::load(skeleton.get()); error != 0) {
        if (error == -EPERM || error == -EACCES)
            throw failure("loading programs into the kernel", -error);
        throw std::runtime_error{fmt::format(
            "the kernel, {}, does not take the programs, for which it needs CONFIG_MPTCP, "
            "CONFIG_BPF_EVENTS and CONFIG_BPF_JIT: {}\n{}",
            kernel_release(), describe(-error), said())};
    }
    return skeleton;
}

void attach(bpf_program *program, bpf_link *&link, const char *path, const char *what) {
    link = bpf_program__attach(program);
    if (link == nullptr)
        throw failure(what, errno);
    if (const int error = bpf_link__pin(link, path); error != 0)
        throw failure(path, -error);
}

// Everything, with one cgroup
void begin(const Cgroup &cgroup) {
    // The module is loaded by the alias of the protocol.
    if (const int error = try_socket(AF_INET, IPPROTO_SDP_AUTO); error != 0)
        throw std::runtime_error{
            error == EPROTONOSUPPORT
                ? "softwarp_sdp is not loaded, or is older than this program (modprobe "
                  "softwarp_sdp loads it); without it socket() would fail"
                : fmt::format("the kernel makes no SDP sockets: {}", describe(error))};
    const bool with_ipv6 = try_socket(AF_INET6, IPPROTO_SDP_AUTO) == 0;
    const Skeleton skeleton = load(with_ipv6);
    attach(skeleton->progs.hold, skeleton->links.hold, pin_hold,
           "attaching to a tracepoint of softwarp_sdp");
    // It may have gone before it was held.
    if (const int error = try_socket(AF_INET, IPPROTO_SDP_AUTO); error != 0)
        throw std::runtime_error{
            fmt::format("the kernel makes no SDP sockets: {}", describe(error))};
    if (const int error = bpf_map__pin(skeleton->maps.cgroups, pin_cgroups); error != 0)
        throw failure(pin_cgroups, -error);
    attach(skeleton->progs.removal, skeleton->links.removal, pin_removal,
           "attaching to the removal of control groups");
    Map{open_pin(pin_cgroups)}.add(cgroup);
    attach(skeleton->progs.protocol, skeleton->links.protocol, pin_protocol,
           "attaching to the hook for the protocols of sockets");
}

} // namespace

void need_hook() {
    const Btf types{btf__load_vmlinux_btf()};
    if (!types)
        throw std::runtime_error{fmt::format(
            "this kernel, {}, does not describe its types (/sys/kernel/btf/vmlinux); the switch "
            "needs a kernel with CONFIG_DEBUG_INFO_BTF",
            kernel_release())};
    if (btf__find_by_name_kind(types.get(), hook, BTF_KIND_FUNC) < 0)
        throw std::runtime_error{fmt::format(
            "this kernel, {}, has no hook for the protocols of sockets ({}); Linux has it since "
            "6.6.  sdp_run without --kernel needs none",
            kernel_release(), hook)};
}

void switch_on(const Cgroup &cgroup) {
    const Pins pins;
    if (const std::optional<Map> map = pinned_map()) {
        map->add(cgroup);
        return;
    }
    drop_all();
    try {
        begin(cgroup);
    } catch (const std::exception &) {
        drop_all();
        throw;
    }
}

bool switch_off(const Cgroup &cgroup) {
    const Pins pins;
    const std::optional<Map> map = pinned_map();
    if (!map)
        return false;
    const bool found = map->remove(cgroup);
    if (map->all().empty())
        drop_all();
    return found;
}

void switch_off() {
    const Pins pins;
    drop_all();
}

SwitchState switch_state() {
    const Pins pins;
    const std::optional<Map> map = pinned_map();
    return map ? SwitchState{true, map->all()} : SwitchState{};
}

} // namespace softwarp::tools
