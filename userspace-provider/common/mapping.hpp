// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Owner of a shared mapping of a file descriptor.
#ifndef SOFTWARP_COMMON_MAPPING_HPP
#define SOFTWARP_COMMON_MAPPING_HPP

#include <sys/mman.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace softwarp {

class Mapping {
  public:
    Mapping() = default;
    Mapping(Mapping &&other) noexcept
        : addr_{std::exchange(other.addr_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
    Mapping &operator=(Mapping &&other) noexcept {
        std::swap(addr_, other.addr_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    ~Mapping() {
        if (addr_ != nullptr)
            munmap(addr_, bytes_);
    }

    // Maps @bytes of @fd at @offset for reading and writing.  Returns 0 or a
    // positive errno; on failure the object stays as it was.
    [[nodiscard]] int map(int fd, std::uint64_t offset, std::size_t bytes) noexcept {
        void *addr = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                          static_cast<off_t>(offset));
        if (addr == MAP_FAILED)
            return errno;
        Mapping fresh;
        fresh.addr_ = addr;
        fresh.bytes_ = bytes;
        *this = std::move(fresh);
        return 0;
    }

    [[nodiscard]] void *data() const noexcept { return addr_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

  private:
    void *addr_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace softwarp

#endif // SOFTWARP_COMMON_MAPPING_HPP
