// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Programs as the kernel and the dynamic loader see them: which file a name means, and
// whether the loader will preload a library into it.
#ifndef SOFTWARP_TOOLS_PROGRAM_HPP
#define SOFTWARP_TOOLS_PROGRAM_HPP

#include <optional>
#include <string>

namespace softwarp::tools {

// The file that execvp() would start; empty, with an errno, if it would not.
struct Program {
    std::string path;
    int error = 0;
};

[[nodiscard]] Program find_program(const std::string &name, const char *search_path);

// A sentence why the loader does not preload into a file; nothing if it does, or if
// that cannot be known.  Of a script the interpreter counts.
[[nodiscard]] std::optional<std::string> why_not_preloaded(const std::string &path);

} // namespace softwarp::tools

#endif // SOFTWARP_TOOLS_PROGRAM_HPP
