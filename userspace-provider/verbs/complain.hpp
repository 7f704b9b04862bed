// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The provider's voice.  The library drops its own log in release builds, so
// what the user has to act on goes to stderr, one line each.
#ifndef SOFTWARP_VERBS_COMPLAIN_HPP
#define SOFTWARP_VERBS_COMPLAIN_HPP

#include <cstdio>

namespace softwarp {

template<class... Args>
void complain(const char *format, Args... args) noexcept {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): stdio keeps the plug-in free of libraries
    std::fprintf(stderr, format, args...);
}

} // namespace softwarp

#endif // SOFTWARP_VERBS_COMPLAIN_HPP
