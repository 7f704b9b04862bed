// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The memory of a consumer whose peers are hostile: buffers and regions of every
 * kind with guards between them, and a way to see that nothing was touched or
 * read that must not be.
 */
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "wire/codec.hpp"

namespace softwarp::fuzz {

struct Span {
    uint64_t addr = 0;
    uint32_t size = 0;
    uint32_t stag = 0;
};

/* What a peer knows of a consumer's memory: more than it would be told. */
struct Target {
    Span open;     // remote write and read
    Span readonly; // remote read
    Span local;    // receive buffers: no remote rights
    Span sink;     // of our reads: no remote rights
    Span foreign;  // remote write and read, in another protection domain
    Span stale;    // registered once
    Span words;    // remote atomics
};

struct PdDeleter {
    void operator()(ibv_pd *pd) const { ibv_dealloc_pd(pd); }
};
struct MrDeleter {
    void operator()(ibv_mr *mr) const { ibv_dereg_mr(mr); }
};

class Memory {
  public:
    static constexpr unsigned kReceives = 16;
    static constexpr uint32_t kReceiveSize = 2048;
    static constexpr unsigned kSinks = 8;
    static constexpr uint32_t kSinkSize = 4096;
    static constexpr uint32_t kSourceSize = 8192;
    static constexpr uint32_t kWords = 32; // of eight octets

    explicit Memory(ibv_context *context);
    ~Memory();
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    ibv_pd *pd() const { return pd_.get(); }
    const Target &target() const { return target_; }
    ibv_sge receive(unsigned index) const;
    ibv_sge sink(unsigned index, uint32_t size) const;
    ibv_sge source(uint32_t offset, uint32_t size) const;

    /* Empty, or which octets have changed that nobody may write. */
    std::string damage() const;
    /* True if octets that no peer may read are among these. */
    static bool leaked(wire::View heard);

  private:
    using Mr = std::unique_ptr<ibv_mr, MrDeleter>;
    struct Still {
        const char *name;
        size_t at;
        size_t size;
    };

    Mr add(ibv_pd *pd, size_t at, size_t size, int access);
    Span span(const Mr &mr) const;
    void keep(const char *name, size_t at, size_t size);

    uint8_t *base_ = nullptr;
    std::vector<uint8_t> copy_;
    std::vector<Still> still_;
    std::unique_ptr<ibv_pd, PdDeleter> pd_;
    std::unique_ptr<ibv_pd, PdDeleter> other_pd_;
    Mr open_, readonly_, local_, sink_, source_, foreign_, words_;
    Target target_;
};

} // namespace softwarp::fuzz
