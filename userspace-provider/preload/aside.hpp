// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// For what the library does besides the program's own call: errno stays as it was, and
// the thread is not cancelled meanwhile, which would unwind through noexcept functions.
#ifndef SOFTWARP_PRELOAD_ASIDE_HPP
#define SOFTWARP_PRELOAD_ASIDE_HPP

#include <pthread.h>

#include <cerrno>

namespace softwarp::preload {

class Aside {
  public:
    Aside() noexcept : errno_{errno} { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;
    ~Aside() {
        pthread_setcancelstate(state_, nullptr);
        errno = errno_;
    }

    // errno as the program has it.
    [[nodiscard]] int error() const noexcept { return errno_; }

  private:
    int errno_;
    int state_ = PTHREAD_CANCEL_ENABLE;
};

} // namespace softwarp::preload

#endif // SOFTWARP_PRELOAD_ASIDE_HPP
