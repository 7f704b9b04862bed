// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The finished plug-in: every symbol it needs is in the installed libibverbs,
// or in the stub where that has another private ABI;
// it registers itself, and it exports nothing that could clash.  The test
// program stands before libibverbs in the search order and so catches the
// registration.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

struct DeviceOpsHead {
    const char *name;
    std::uint32_t min_abi;
    std::uint32_t max_abi;
    const unsigned char *match_table; // entries of 24 bytes: id at 8, kind at 20
};

const DeviceOpsHead *registered = nullptr;

std::vector<std::string> exported_symbols(const char *path) {
    std::ifstream file{path, std::ios::binary};
    const std::vector<char> image{std::istreambuf_iterator<char>{file}, {}};
    const auto *ehdr = reinterpret_cast<const ElfW(Ehdr) *>(image.data());
    const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(image.data() + ehdr->e_shoff);
    std::vector<std::string> names;
    for (int s = 0; s < ehdr->e_shnum; ++s) {
        const ElfW(Shdr) &dynsym = sections[s];
        if (dynsym.sh_type != SHT_DYNSYM)
            continue;
        const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(image.data() + dynsym.sh_offset);
        const char *strings = image.data() + sections[dynsym.sh_link].sh_offset;
        for (std::size_t i = 0; i < dynsym.sh_size / sizeof(ElfW(Sym)); ++i) {
            // Some linkers leave sections there, which have no names.
            if (symbols[i].st_shndx != SHN_UNDEF &&
                ELF64_ST_TYPE(symbols[i].st_info) != STT_SECTION)
                names.emplace_back(strings + symbols[i].st_name);
        }
    }
    return names;
}

} // namespace

extern "C" __attribute__((visibility("default"))) void REGISTER_DRIVER(const DeviceOpsHead *ops) {
    registered = ops;
}

TEST(Plugin, LoadsAndRegisters) {
    void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(plugin, nullptr) << dlerror(); // NOLINT(concurrency-mt-unsafe)
    ASSERT_NE(registered, nullptr);
    EXPECT_STREQ(registered->name, "softwarp");
    EXPECT_LE(registered->min_abi, 1U);
    EXPECT_GE(registered->max_abi, 1U);

    std::uint64_t id = 0;
    std::memcpy(&id, registered->match_table + 8, sizeof(id));
    EXPECT_EQ(id, 0x53575250U);
    EXPECT_EQ(registered->match_table[20], 3) << "first entry: driver id";
    EXPECT_EQ(registered->match_table[24 + 20], 0) << "second entry: end";
}

TEST(Plugin, ExportsNothing) {
    EXPECT_EQ(exported_symbols(PLUGIN), std::vector<std::string>{});
}

TEST(Plugin, IsFoundByItsFileName) {
    const std::string path{PLUGIN};
    EXPECT_EQ(path.substr(path.rfind('/') + 1), "libsoftwarp-rdmav" PRIVATE_ABI ".so");
}
