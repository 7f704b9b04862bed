// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib/memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "lib/system.hpp"

namespace softwarp::fuzz {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = 64;
constexpr std::string_view kSecret = "secret of a host";

/*
 * Regions start and end inside of pages, so that what is beyond them in the
 * pages that the device has pinned is seen, too.
 */
constexpr size_t kLocalAt = kPage + 96;
constexpr size_t kLocalSize = Memory::kReceives * (kGuard + Memory::kReceiveSize) + kGuard;
constexpr size_t kSinkAt = 12 * kPage + 32;
constexpr size_t kSinkAll = Memory::kSinks * (kGuard + Memory::kSinkSize) + kGuard;
constexpr size_t kOpenAt = 24 * kPage + 100;
constexpr size_t kOpenSize = 40001;
constexpr size_t kReadonlyAt = 36 * kPage + 7;
constexpr size_t kReadonlySize = 16391;
constexpr size_t kSourceAt = 42 * kPage + 12;
constexpr size_t kForeignAt = 46 * kPage + 64;
constexpr size_t kForeignSize = 8192;
constexpr size_t kStaleAt = 50 * kPage;
constexpr size_t kStaleSize = 4096;
constexpr size_t kWordsAt = 52 * kPage + 40;
constexpr size_t kWordsSize = 8 * Memory::kWords;
constexpr size_t kAll = 54 * kPage;

static_assert(kLocalAt + kLocalSize + kGuard <= kSinkAt);
static_assert(kSinkAt + kSinkAll + kGuard <= kOpenAt);
static_assert(kOpenAt + kOpenSize + kGuard <= kReadonlyAt);
static_assert(kReadonlyAt + kReadonlySize + kGuard <= kSourceAt);
static_assert(kSourceAt + Memory::kSourceSize + kGuard <= kForeignAt);
static_assert(kForeignAt + kForeignSize + kGuard <= kStaleAt);
static_assert(kStaleAt + kStaleSize + kGuard <= kWordsAt);

size_t receive_at(unsigned index) {
    return kLocalAt + kGuard + index * (kGuard + Memory::kReceiveSize);
}

size_t sink_at(unsigned index) {
    return kSinkAt + kGuard + index * (kGuard + Memory::kSinkSize);
}

} // namespace

Memory::Memory(ibv_context *context) {
    void *got = mmap(nullptr, kAll, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    e2e::require(got != MAP_FAILED, "mmap");
    base_ = static_cast<uint8_t *>(got);
    for (size_t i = 0; i < kAll; i++)
        base_[i] = static_cast<uint8_t>(kSecret[i % kSecret.size()]);
    /* What peers may read is no secret. */
    auto open_to_all = [&](size_t at, size_t size) {
        for (size_t i = 0; i < size; i++)
            base_[at + i] = static_cast<uint8_t>(i * 7 + (i >> 8));
    };
    open_to_all(kOpenAt, kOpenSize);
    open_to_all(kReadonlyAt, kReadonlySize);
    open_to_all(kSourceAt, kSourceSize);
    open_to_all(kWordsAt, kWordsSize);

    pd_.reset(ibv_alloc_pd(context));
    other_pd_.reset(ibv_alloc_pd(context));
    e2e::require(pd_ && other_pd_, "ibv_alloc_pd");
    constexpr int kRemoteAll =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    local_ = add(pd_.get(), kLocalAt, kLocalSize, IBV_ACCESS_LOCAL_WRITE);
    sink_ = add(pd_.get(), kSinkAt, kSinkAll, IBV_ACCESS_LOCAL_WRITE);
    open_ = add(pd_.get(), kOpenAt, kOpenSize, kRemoteAll);
    readonly_ = add(pd_.get(), kReadonlyAt, kReadonlySize, IBV_ACCESS_REMOTE_READ);
    source_ = add(pd_.get(), kSourceAt, kSourceSize, 0);
    foreign_ = add(other_pd_.get(), kForeignAt, kForeignSize, kRemoteAll);
    Mr stale = add(pd_.get(), kStaleAt, kStaleSize, kRemoteAll);
    words_ =
        add(pd_.get(), kWordsAt, kWordsSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    target_ = {span(open_),    span(readonly_), span(local_), span(sink_),
               span(foreign_), span(stale),     span(words_)};
    stale.reset();

    size_t from = 0;
    auto gap = [&](const char *name, size_t at, size_t size) {
        keep(name, from, at - from);
        from = at + size;
    };
    for (unsigned i = 0; i < kReceives; i++)
        gap("beside receive buffers", receive_at(i), kReceiveSize);
    for (unsigned i = 0; i < kSinks; i++)
        gap("beside sinks of reads", sink_at(i), kSinkSize);
    gap("in front of the open region", kOpenAt, kOpenSize);
    gap("in front of the words", kWordsAt, kWordsSize);
    gap("all but buffers, the open region and the words", kAll, 0);
    copy_.assign(base_, base_ + kAll);
}

Memory::~Memory() {
    open_.reset();
    readonly_.reset();
    local_.reset();
    sink_.reset();
    source_.reset();
    foreign_.reset();
    words_.reset();
    munmap(base_, kAll);
}

Memory::Mr Memory::add(ibv_pd *pd, size_t at, size_t size, int access) {
    Mr mr(ibv_reg_mr(pd, base_ + at, size, access));
    e2e::require(mr != nullptr, "ibv_reg_mr");
    return mr;
}

Span Memory::span(const Mr &mr) const {
    return {reinterpret_cast<uintptr_t>(mr->addr), static_cast<uint32_t>(mr->length), mr->rkey};
}

void Memory::keep(const char *name, size_t at, size_t size) {
    if (size != 0)
        still_.push_back({name, at, size});
}

ibv_sge Memory::receive(unsigned index) const {
    return {reinterpret_cast<uintptr_t>(base_ + receive_at(index)), kReceiveSize, local_->lkey};
}

ibv_sge Memory::sink(unsigned index, uint32_t size) const {
    return {reinterpret_cast<uintptr_t>(base_ + sink_at(index)), size, sink_->lkey};
}

ibv_sge Memory::source(uint32_t offset, uint32_t size) const {
    return {reinterpret_cast<uintptr_t>(base_ + kSourceAt + offset), size, source_->lkey};
}

std::string Memory::damage() const {
    for (const Still &still : still_) {
        const uint8_t *now = base_ + still.at;
        const uint8_t *then = copy_.data() + still.at;
        if (std::memcmp(now, then, still.size) == 0)
            continue;
        size_t first = 0;
        while (now[first] == then[first])
            first++;
        return fmt::format("memory was written {}: offset {:#x} of {:#x} octets", still.name,
                           still.at + first, still.size);
    }
    return {};
}

bool Memory::leaked(wire::View heard) {
    /* 31 octets of it hold a whole copy, wherever they start */
    return memmem(heard.data(), heard.size(), kSecret.data(), kSecret.size()) != nullptr;
}

} // namespace softwarp::fuzz
