// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Owner of a file descriptor.
#ifndef SOFTWARP_COMMON_FD_HPP
#define SOFTWARP_COMMON_FD_HPP

#include <unistd.h>

#include <utility>

namespace softwarp {

class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) noexcept : fd_{fd} {}
    Fd(Fd &&other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Fd &operator=(Fd &&other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd() {
        if (fd_ >= 0)
            close(fd_);
    }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

  private:
    int fd_ = -1;
};

} // namespace softwarp

#endif // SOFTWARP_COMMON_FD_HPP
