// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Buffers of the uverbs commands: header, the kernel's own structure, and our
// tail, without padding between them.  They are byte buffers because the
// kernel's structures end in flexible arrays, behind which C++ allows no
// member.
#ifndef SOFTWARP_VERBS_COMMAND_HPP
#define SOFTWARP_VERBS_COMMAND_HPP

#include <rdma/ib_user_verbs.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace softwarp {

struct NoTail {};

template<class T>
inline constexpr std::size_t tail_bytes = std::is_same_v<T, NoTail> ? 0 : sizeof(T);

// What precedes the core: extended commands have a second header.
struct PlainHeader {
    ib_uverbs_cmd_hdr first;
};
struct ExtendedHeader {
    ib_uverbs_cmd_hdr first;
    ib_uverbs_ex_cmd_hdr second;
};
static_assert(sizeof(PlainHeader) == 8 && sizeof(ExtendedHeader) == 24);

// The library fills in header and core; we only fill in the tail.
template<class Core, class Tail = NoTail, class Header = PlainHeader>
class Request {
  public:
    Request() = default;
    explicit Request(const Tail &tail) noexcept {
        std::memcpy(bytes_.data() + core_end, &tail, sizeof(tail));
    }

    [[nodiscard]] void *data() noexcept { return bytes_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

  private:
    static constexpr std::size_t core_end = sizeof(Header) + sizeof(Core);
    static constexpr std::size_t total = core_end + tail_bytes<Tail>;
    static_assert(total % 4 == 0, "commands are counted in words");

    alignas(8) std::array<std::byte, total> bytes_{};
};

template<class Core, class Tail = NoTail>
class Response {
  public:
    [[nodiscard]] void *data() noexcept { return bytes_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

    [[nodiscard]] Tail tail() const noexcept {
        Tail tail;
        std::memcpy(&tail, bytes_.data() + sizeof(Core), sizeof(tail));
        return tail;
    }

  private:
    static constexpr std::size_t total = sizeof(Core) + tail_bytes<Tail>;
    static_assert(total % 4 == 0, "commands are counted in words");

    alignas(8) std::array<std::byte, total> bytes_{};
};

} // namespace softwarp

#endif // SOFTWARP_VERBS_COMMAND_HPP
