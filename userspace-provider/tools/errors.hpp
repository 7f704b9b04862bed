// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Sentences about errors of the system.
#ifndef SOFTWARP_TOOLS_ERRORS_HPP
#define SOFTWARP_TOOLS_ERRORS_HPP

#include <cerrno>
#include <stdexcept>
#include <string>

#include "words.hpp"

namespace softwarp::tools {

// What failed, and why; who may do it if that was the reason.
[[nodiscard]] inline std::runtime_error failure(const std::string &what, int error) {
    std::string text = what + ": " + describe(error);
    if (error == EPERM || error == EACCES)
        text += "; this needs root, with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN";
    return std::runtime_error{text};
}

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_ERRORS_HPP
