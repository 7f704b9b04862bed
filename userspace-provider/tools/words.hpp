// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// What the tools say of errors.
#ifndef SOFTWARP_TOOLS_WORDS_HPP
#define SOFTWARP_TOOLS_WORDS_HPP

#include <cstring>

namespace softwarp::tools {

// Of an errno; the language is the tools' own, whatever the locale.
[[nodiscard]] inline const char *describe(int error) noexcept {
    const char *text = strerrordesc_np(error);
    return text != nullptr ? text : "unknown error";
}

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_WORDS_HPP
