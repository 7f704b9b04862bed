// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// libibverbs' private provider interface: the structures and functions
// this provider relies on, and no more, for the private ABI that the macro
// SOFTWARP_PRIVATE_ABI names:
//
//   ABI  rdma-core  what is new
//   34   34 to 56   (the slots are those since 36; two layouts: see VerbsQp)
//   57   57, 58     one more parameter of get_context
//   59   59 to 63   3 slots, a larger VerbsContext, a parameter of create_cq_ex
//   64   64         4 slots, a larger VerbsContext
//   65   65         10 slots
//
// What is not in all of them stands between lines that name the ABI since which
// it is there.  Members this provider has no use for are only there to keep
// their room.  Every number relied on is asserted here; those of public
// structures are asserted too, so that a changed <infiniband/verbs.h> stops the
// build.  The numbers are those of 64-bit programs on x86; mutexes are larger on
// some processors.  In 32-bit programs only tables of pointers are checked, and
// the rest follows from the declarations, as it does in the library.
#ifndef SOFTWARP_VERBS_ABI_HPP
#define SOFTWARP_VERBS_ABI_HPP

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>

#ifndef SOFTWARP_PRIVATE_ABI
#error "SOFTWARP_PRIVATE_ABI names the private ABI of libibverbs to build for"
#endif
#if SOFTWARP_PRIVATE_ABI != 34 && SOFTWARP_PRIVATE_ABI != 57 && SOFTWARP_PRIVATE_ABI != 59 &&      \
    SOFTWARP_PRIVATE_ABI != 64 && SOFTWARP_PRIVATE_ABI != 65
#error "SOFTWARP_PRIVATE_ABI must be 34, 57, 59, 64 or 65"
#endif

// The number as text, and as the end of a name.
#define SOFTWARP_ABI_TEXT_OF(abi) #abi
#define SOFTWARP_ABI_TEXT(abi) SOFTWARP_ABI_TEXT_OF(abi)
#define SOFTWARP_ABI_NAME_OF(name, abi) name##abi
#define SOFTWARP_ABI_NAME(name, abi) SOFTWARP_ABI_NAME_OF(name, abi)
// The registration function and the plug-in's file have the number in their names.
#define SOFTWARP_REGISTER_DRIVER SOFTWARP_ABI_NAME(verbs_register_driver_, SOFTWARP_PRIVATE_ABI)
#define SOFTWARP_PLUGIN_FILE "libsoftwarp-rdmav" SOFTWARP_ABI_TEXT(SOFTWARP_PRIVATE_ABI) ".so"

namespace softwarp::abi {

inline constexpr std::size_t word = sizeof(void *);
static_assert(word == sizeof(long) && (word == 8 || word == 4));

// Whether a size or an offset is what it is in 64-bit programs on x86.
consteval bool is(std::size_t number, std::size_t expected) {
    return word != 8 || number == expected;
}

// The same, with a mutex of the library before it.
consteval bool is_behind_mutex(std::size_t number, std::size_t expected) {
    return word != 8 || number + 40 == expected + sizeof(pthread_mutex_t);
}

// A number of octets in pointers, given for 64-bit programs.
consteval std::size_t pointers(std::size_t expected) {
    return expected / 8 * word;
}

// Public structures -----------------------------------------------------------

static_assert(is(sizeof(ibv_device), 664));
static_assert(is_behind_mutex(sizeof(ibv_context), 328));
static_assert(offsetof(ibv_context, device) == 0);
static_assert(is(offsetof(ibv_context, ops), 8));
static_assert(is(offsetof(ibv_context, cmd_fd), 264));
static_assert(is(offsetof(ibv_context, async_fd), 268));
static_assert(is(offsetof(ibv_context, num_comp_vectors), 272));
static_assert(is(sizeof(ibv_pd), 16));
static_assert(is(offsetof(ibv_pd, handle), 8));
static_assert(is(sizeof(ibv_td), 8));
static_assert(is(sizeof(ibv_td_init_attr), 4));
static_assert(is(sizeof(ibv_parent_domain_init_attr), 48));
static_assert(is(offsetof(ibv_parent_domain_init_attr, comp_mask), 16));
static_assert(is(sizeof(ibv_mr), 48));
static_assert(is_behind_mutex(sizeof(ibv_cq), 128));
static_assert(offsetof(ibv_cq, context) == 0);
static_assert(is(offsetof(ibv_cq, cqe), 28));
static_assert(is(offsetof(ibv_cq, handle), 24));
static_assert(is_behind_mutex(sizeof(ibv_cq_ex), 288));
static_assert(is(offsetof(ibv_cq_ex, cqe), 28));
static_assert(is_behind_mutex(offsetof(ibv_cq_ex, comp_mask), 128));
static_assert(is_behind_mutex(offsetof(ibv_cq_ex, status), 132));
static_assert(is_behind_mutex(offsetof(ibv_cq_ex, wr_id), 136));
static_assert(is_behind_mutex(offsetof(ibv_cq_ex, start_poll), 144));
static_assert(is_behind_mutex(offsetof(ibv_cq_ex, read_opcode), 168));
static_assert(is_behind_mutex(offsetof(ibv_cq_ex, read_completion_ts), 248));
static_assert(is(sizeof(ibv_modify_cq_attr), 8));
static_assert(is(sizeof(ibv_cq_init_attr_ex), 56));
static_assert(is(offsetof(ibv_cq_init_attr_ex, wc_flags), 32));
static_assert(is(offsetof(ibv_cq_init_attr_ex, flags), 44));
static_assert(is(offsetof(ibv_cq_init_attr_ex, parent_domain), 48));
static_assert(is_behind_mutex(sizeof(ibv_qp), 160));
static_assert(offsetof(ibv_qp, context) == 0);
static_assert(is(offsetof(ibv_qp, send_cq), 24));
static_assert(is(offsetof(ibv_qp, recv_cq), 32));
static_assert(is(offsetof(ibv_qp, handle), 48));
static_assert(is(offsetof(ibv_qp, qp_num), 52));
static_assert(is(offsetof(ibv_qp, state), 56));
// 352 with rdma-core 44, 360 from 45 on; see VerbsQp.
static_assert(is_behind_mutex(sizeof(ibv_qp_ex), 352) || is_behind_mutex(sizeof(ibv_qp_ex), 360));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_id), 168));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_flags), 176));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_atomic_cmp_swp), 184));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_send), 240));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_set_sge), 304));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_abort), 336));
static_assert(is_behind_mutex(offsetof(ibv_qp_ex, wr_atomic_write), 344));
static_assert(is_behind_mutex(sizeof(ibv_srq), 128));
static_assert(offsetof(ibv_srq, context) == 0);
static_assert(is(offsetof(ibv_srq, handle), 24));
static_assert(is(sizeof(ibv_srq_init_attr), 24));
static_assert(is(offsetof(ibv_srq_init_attr, attr), 8));
static_assert(is(sizeof(ibv_mw), 32));
static_assert(is(offsetof(ibv_mw, pd), 8));
static_assert(is(offsetof(ibv_mw, rkey), 16));
static_assert(is(offsetof(ibv_mw, type), 24));
static_assert(is(sizeof(ibv_sge), 16));
static_assert(is(sizeof(ibv_recv_wr), 32));
static_assert(is(sizeof(ibv_send_wr), 128));
static_assert(is(offsetof(ibv_send_wr, imm_data), 36));
static_assert(is(offsetof(ibv_send_wr, wr), 40));
static_assert(is(offsetof(ibv_send_wr, bind_mw), 80));
static_assert(is(sizeof(ibv_wc), 48));
static_assert(is(sizeof(ibv_qp_init_attr), 64));
static_assert(is(offsetof(ibv_qp_init_attr, cap), 32));
static_assert(is(sizeof(ibv_qp_init_attr_ex), 136));
static_assert(is(offsetof(ibv_qp_init_attr_ex, cap), 32));
static_assert(is(offsetof(ibv_qp_init_attr_ex, comp_mask), 60));
static_assert(is(offsetof(ibv_qp_init_attr_ex, pd), 64));
static_assert(is(offsetof(ibv_qp_init_attr_ex, create_flags), 80));
static_assert(is(offsetof(ibv_qp_init_attr_ex, send_ops_flags), 128));
static_assert(is(sizeof(ibv_device_attr), 232));

// Discovery ---------------------------------------------------------------------

using Unused = void (*)();

struct ListNode {
    ListNode *next;
    ListNode *prev;
};

enum class MatchKind : std::uint8_t { end = 0, pci = 1, modalias = 2, driver_id = 3 };

struct VerbsMatchEnt {
    void *driver_data;
    union {
        const char *modalias;
        std::uint64_t driver_id;
    } u;
    std::uint16_t vendor;
    std::uint16_t device;
    MatchKind kind;
};
static_assert(is(sizeof(VerbsMatchEnt), 24) && is(alignof(VerbsMatchEnt), 8));
static_assert(is(offsetof(VerbsMatchEnt, u), 8));
static_assert(is(offsetof(VerbsMatchEnt, vendor), 16));
static_assert(is(offsetof(VerbsMatchEnt, device), 18));
static_assert(is(offsetof(VerbsMatchEnt, kind), 20));

struct VerbsSysfsDev {
    ListNode entry;
    void *provider_data;
    const VerbsMatchEnt *match;
    unsigned int flags;
    std::array<char, 64> sysfs_name;
    dev_t sysfs_cdev;
    std::array<char, 64> ibdev_name;
    std::array<char, 256> ibdev_path;
    std::array<char, 512> modalias;
    std::uint64_t node_guid;
    std::uint32_t driver_id;
    int node_type;
    int ibdev_idx;
    std::uint32_t num_ports;
    std::uint32_t abi_ver;
    timespec time_created;
};
static_assert(is(sizeof(VerbsSysfsDev), 992) && is(alignof(VerbsSysfsDev), 8));
static_assert(is(offsetof(VerbsSysfsDev, provider_data), 16));
static_assert(is(offsetof(VerbsSysfsDev, match), 24));
static_assert(is(offsetof(VerbsSysfsDev, flags), 32));
static_assert(is(offsetof(VerbsSysfsDev, sysfs_name), 36));
static_assert(is(offsetof(VerbsSysfsDev, sysfs_cdev), 104));
static_assert(is(offsetof(VerbsSysfsDev, ibdev_name), 112));
static_assert(is(offsetof(VerbsSysfsDev, ibdev_path), 176));
static_assert(is(offsetof(VerbsSysfsDev, modalias), 432));
static_assert(is(offsetof(VerbsSysfsDev, node_guid), 944));
static_assert(is(offsetof(VerbsSysfsDev, driver_id), 952));
static_assert(is(offsetof(VerbsSysfsDev, node_type), 956));
static_assert(is(offsetof(VerbsSysfsDev, ibdev_idx), 960));
static_assert(is(offsetof(VerbsSysfsDev, num_ports), 964));
static_assert(is(offsetof(VerbsSysfsDev, abi_ver), 968));
static_assert(is(offsetof(VerbsSysfsDev, time_created), 976));

struct VerbsDeviceOps;

// Filled in by the library, except what follows it in our own structure.
struct VerbsDevice {
    ibv_device device;
    const VerbsDeviceOps *ops;
    std::uint32_t refcount;
    ListNode entry;
    VerbsSysfsDev *sysfs;
    std::uint64_t core_support;
};
static_assert(is(sizeof(VerbsDevice), 712) && is(alignof(VerbsDevice), 8));
static_assert(offsetof(VerbsDevice, device) == 0);
static_assert(is(offsetof(VerbsDevice, ops), 664));
static_assert(is(offsetof(VerbsDevice, refcount), 672));
static_assert(is(offsetof(VerbsDevice, entry), 680));
static_assert(is(offsetof(VerbsDevice, sysfs), 696));
static_assert(is(offsetof(VerbsDevice, core_support), 704));

// The number that holds in this ABI, of those that hold in each.
consteval std::size_t by_abi(std::size_t abi34, std::size_t abi57, std::size_t abi59,
                             std::size_t abi64, std::size_t abi65) {
    switch (SOFTWARP_PRIVATE_ABI) {
    case 34: return abi34;
    case 57: return abi57;
    case 59: return abi59;
    case 64: return abi64;
    default: return abi65;
    }
}

// An ibv_context with private members before it, where the library adds more: pointers, but one
// that has 64 bits in 32-bit programs, too.
struct VerbsContext {
    alignas(void *)
        std::array<std::byte, pointers(by_abi(320, 320, 344, 368, 368) - 8) + 8> library_private;
    ibv_context context;
};
static_assert(is_behind_mutex(sizeof(VerbsContext), by_abi(648, 648, 672, 696, 696)));
static_assert(is(offsetof(VerbsContext, context), by_abi(320, 320, 344, 368, 368)));
static_assert(is(alignof(VerbsContext), 8));

struct VerbsDeviceOps {
    const char *name;
    std::uint32_t match_min_abi_version;
    std::uint32_t match_max_abi_version;
    const VerbsMatchEnt *match_table;
    const VerbsDeviceOps **static_providers;
    bool (*match_device)(VerbsSysfsDev *);
    VerbsContext *(*alloc_context)(ibv_device *, int cmd_fd, void *private_data);
    VerbsContext *(*import_context)(ibv_device *, int cmd_fd);
    VerbsDevice *(*alloc_device)(VerbsSysfsDev *);
    void (*uninit_device)(VerbsDevice *);
};
static_assert(is(sizeof(VerbsDeviceOps), 72) && is(alignof(VerbsDeviceOps), 8));
static_assert(is(offsetof(VerbsDeviceOps, match_min_abi_version), 8));
static_assert(is(offsetof(VerbsDeviceOps, match_max_abi_version), 12));
static_assert(is(offsetof(VerbsDeviceOps, match_table), 16));
static_assert(is(offsetof(VerbsDeviceOps, static_providers), 24));
static_assert(is(offsetof(VerbsDeviceOps, match_device), 32));
static_assert(is(offsetof(VerbsDeviceOps, alloc_context), 40));
static_assert(is(offsetof(VerbsDeviceOps, import_context), 48));
static_assert(is(offsetof(VerbsDeviceOps, alloc_device), 56));
static_assert(is(offsetof(VerbsDeviceOps, uninit_device), 64));

// Objects -----------------------------------------------------------------------

struct VerbsMr {
    ibv_mr mr;
    int mr_type;
    int access;
};
static_assert(is(sizeof(VerbsMr), 56) && is(alignof(VerbsMr), 8));
static_assert(is(offsetof(VerbsMr, mr_type), 48));
static_assert(is(offsetof(VerbsMr, access), 52));

union VerbsCq {
    ibv_cq cq;
    ibv_cq_ex cq_ex; // begins with the members of ibv_cq
};
static_assert(is_behind_mutex(sizeof(VerbsCq), 288) && is(alignof(VerbsCq), 8));

// The library looks for flags behind the ibv_qp_ex of every QP, and for a
// pointer behind them that it has no use for here.  ABI 34 has two layouts: to
// rdma-core 44 the flags are at 352, in a structure of 368 bytes, and the
// pointer is at 360; to later ones the flags are at 360, in a structure of 376
// bytes, and at 352 is a function of ibv_qp_ex (wr_flush) that no QP of ours
// offers.  One plug-in serves both: it has room for either and sets the flag in
// both places.  These are the numbers of x86; a larger mutex moves all of it.
union VerbsQp {
    ibv_qp qp;
    ibv_qp_ex qp_ex; // begins with qp
    std::array<std::byte, 384> bytes;
};
static_assert(is(alignof(VerbsQp), 8));
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

inline constexpr std::size_t wr_flush_at = offsetof(ibv_qp_ex, wr_atomic_write) + word;
#if SOFTWARP_PRIVATE_ABI >= 57
inline constexpr std::array<std::size_t, 1> verbs_qp_flags_at{wr_flush_at + word};
#else
inline constexpr std::array<std::size_t, 2> verbs_qp_flags_at{wr_flush_at, wr_flush_at + word};
#endif
// flags, padding, pointer
static_assert(sizeof(VerbsQp) >= verbs_qp_flags_at.back() + 2 * word);
inline constexpr std::uint32_t verbs_qp_extended = 1U << 1;

// Slots -------------------------------------------------------------------------

// Sorted by name.  A null slot keeps the library's stub (EOPNOTSUPP).
struct VerbsContextOps {
    Unused advise_mr;
#if SOFTWARP_PRIVATE_ABI >= 64
    Unused alloc_buf;
#endif
    Unused alloc_dm;
#if SOFTWARP_PRIVATE_ABI >= 59
    Unused alloc_dmah;
#endif
    ibv_mw *(*alloc_mw)(ibv_pd *, ibv_mw_type);
    Unused alloc_null_mr;
    ibv_pd *(*alloc_parent_domain)(ibv_context *, ibv_parent_domain_init_attr *);
    ibv_pd *(*alloc_pd)(ibv_context *);
    ibv_td *(*alloc_td)(ibv_context *, ibv_td_init_attr *);
    void (*async_event)(ibv_context *, ibv_async_event *);
    Unused attach_counters_point_flow;
    Unused attach_mcast;
    int (*bind_mw)(ibv_qp *, ibv_mw *, ibv_mw_bind *);
    Unused close_xrcd;
    Unused cq_event;
    Unused create_ah;
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused create_comp_cntr;
#endif
    Unused create_counters;
    ibv_cq *(*create_cq)(ibv_context *, int cqe, ibv_comp_channel *, int comp_vector);
    ibv_cq_ex *(*create_cq_ex)(ibv_context *, ibv_cq_init_attr_ex *);
    Unused create_flow;
    Unused create_flow_action_esp;
    ibv_qp *(*create_qp)(ibv_pd *, ibv_qp_init_attr *);
    ibv_qp *(*create_qp_ex)(ibv_context *, ibv_qp_init_attr_ex *);
    Unused create_rwq_ind_table;
    ibv_srq *(*create_srq)(ibv_pd *, ibv_srq_init_attr *);
    Unused create_srq_ex;
    Unused create_wq;
#if SOFTWARP_PRIVATE_ABI >= 59
    Unused dealloc_dmah;
#endif
    int (*dealloc_mw)(ibv_mw *);
    int (*dealloc_pd)(ibv_pd *);
    int (*dealloc_td)(ibv_td *);
    int (*dereg_mr)(VerbsMr *);
    Unused destroy_ah;
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused destroy_comp_cntr;
#endif
    Unused destroy_counters;
    int (*destroy_cq)(ibv_cq *);
    Unused destroy_flow;
    Unused destroy_flow_action;
    int (*destroy_qp)(ibv_qp *);
    Unused destroy_rwq_ind_table;
    int (*destroy_srq)(ibv_srq *);
    Unused destroy_wq;
    Unused detach_mcast;
#if SOFTWARP_PRIVATE_ABI >= 64
    Unused dm_export_dmabuf_fd;
    Unused free_buf;
#endif
    void (*free_context)(ibv_context *);
    Unused free_dm;
    Unused get_srq_num;
    Unused import_dm;
    Unused import_mr;
    Unused import_pd;
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused inc_comp_cntr;
    Unused inc_err_comp_cntr;
#endif
    int (*modify_cq)(ibv_cq *, ibv_modify_cq_attr *);
    Unused modify_flow_action_esp;
    int (*modify_qp)(ibv_qp *, ibv_qp_attr *, int attr_mask);
    Unused modify_qp_rate_limit;
    int (*modify_srq)(ibv_srq *, ibv_srq_attr *, int attr_mask);
    Unused modify_wq;
    Unused open_qp;
    Unused open_xrcd;
    int (*poll_cq)(ibv_cq *, int, ibv_wc *);
    int (*post_recv)(ibv_qp *, ibv_recv_wr *, ibv_recv_wr **);
    int (*post_send)(ibv_qp *, ibv_send_wr *, ibv_send_wr **);
    Unused post_srq_ops;
    int (*post_srq_recv)(ibv_srq *, ibv_recv_wr *, ibv_recv_wr **);
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused qp_attach_comp_cntr;
    Unused query_comp_cntr_caps;
#endif
    int (*query_device_ex)(ibv_context *, const ibv_query_device_ex_input *, ibv_device_attr_ex *,
                           std::size_t);
    Unused query_ece;
    int (*query_port)(ibv_context *, std::uint8_t, ibv_port_attr *);
#if SOFTWARP_PRIVATE_ABI >= 64
    Unused query_port_speed;
#endif
    int (*query_qp)(ibv_qp *, ibv_qp_attr *, int attr_mask, ibv_qp_init_attr *);
    Unused query_qp_data_in_order;
    int (*query_rt_values)(ibv_context *, ibv_values_ex *);
    int (*query_srq)(ibv_srq *, ibv_srq_attr *);
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused read_comp_cntr;
#endif
    Unused read_counters;
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused read_err_comp_cntr;
#endif
    Unused reg_dm_mr;
    Unused reg_dmabuf_mr;
    ibv_mr *(*reg_mr)(ibv_pd *, void *, std::size_t, std::uint64_t hca_va, int access);
#if SOFTWARP_PRIVATE_ABI >= 59
    Unused reg_mr_ex;
#endif
    int (*req_notify_cq)(ibv_cq *, int solicited_only);
    int (*rereg_mr)(VerbsMr *, int flags, ibv_pd *, void *, std::size_t, int access);
    int (*resize_cq)(ibv_cq *, int cqe);
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused set_comp_cntr;
#endif
    Unused set_ece;
#if SOFTWARP_PRIVATE_ABI >= 65
    Unused set_err_comp_cntr;
#endif
    Unused unimport_dm;
    Unused unimport_mr;
    Unused unimport_pd;
};
static_assert(sizeof(VerbsContextOps) == pointers(by_abi(608, 608, 632, 664, 744)));
static_assert(offsetof(VerbsContextOps, alloc_mw) == pointers(by_abi(16, 16, 24, 32, 32)));
static_assert(offsetof(VerbsContextOps, alloc_parent_domain) ==
              pointers(by_abi(32, 32, 40, 48, 48)));
static_assert(offsetof(VerbsContextOps, alloc_pd) == pointers(by_abi(40, 40, 48, 56, 56)));
static_assert(offsetof(VerbsContextOps, alloc_td) == pointers(by_abi(48, 48, 56, 64, 64)));
static_assert(offsetof(VerbsContextOps, async_event) == pointers(by_abi(56, 56, 64, 72, 72)));
static_assert(offsetof(VerbsContextOps, bind_mw) == pointers(by_abi(80, 80, 88, 96, 96)));
static_assert(offsetof(VerbsContextOps, create_cq) == pointers(by_abi(120, 120, 128, 136, 144)));
static_assert(offsetof(VerbsContextOps, create_cq_ex) == pointers(by_abi(128, 128, 136, 144, 152)));
static_assert(offsetof(VerbsContextOps, create_qp) == pointers(by_abi(152, 152, 160, 168, 176)));
static_assert(offsetof(VerbsContextOps, create_qp_ex) == pointers(by_abi(160, 160, 168, 176, 184)));
static_assert(offsetof(VerbsContextOps, create_srq) == pointers(by_abi(176, 176, 184, 192, 200)));
static_assert(offsetof(VerbsContextOps, dealloc_mw) == pointers(by_abi(200, 200, 216, 224, 232)));
static_assert(offsetof(VerbsContextOps, dealloc_pd) == pointers(by_abi(208, 208, 224, 232, 240)));
static_assert(offsetof(VerbsContextOps, dealloc_td) == pointers(by_abi(216, 216, 232, 240, 248)));
static_assert(offsetof(VerbsContextOps, dereg_mr) == pointers(by_abi(224, 224, 240, 248, 256)));
static_assert(offsetof(VerbsContextOps, destroy_cq) == pointers(by_abi(248, 248, 264, 272, 288)));
static_assert(offsetof(VerbsContextOps, destroy_qp) == pointers(by_abi(272, 272, 288, 296, 312)));
static_assert(offsetof(VerbsContextOps, destroy_srq) == pointers(by_abi(288, 288, 304, 312, 328)));
static_assert(offsetof(VerbsContextOps, free_context) == pointers(by_abi(312, 312, 328, 352, 368)));
static_assert(offsetof(VerbsContextOps, modify_cq) == pointers(by_abi(360, 360, 376, 400, 432)));
static_assert(offsetof(VerbsContextOps, modify_qp) == pointers(by_abi(376, 376, 392, 416, 448)));
static_assert(offsetof(VerbsContextOps, modify_srq) == pointers(by_abi(392, 392, 408, 432, 464)));
static_assert(offsetof(VerbsContextOps, poll_cq) == pointers(by_abi(424, 424, 440, 464, 496)));
static_assert(offsetof(VerbsContextOps, post_recv) == pointers(by_abi(432, 432, 448, 472, 504)));
static_assert(offsetof(VerbsContextOps, post_send) == pointers(by_abi(440, 440, 456, 480, 512)));
static_assert(offsetof(VerbsContextOps, post_srq_recv) ==
              pointers(by_abi(456, 456, 472, 496, 528)));
static_assert(offsetof(VerbsContextOps, query_device_ex) ==
              pointers(by_abi(464, 464, 480, 504, 552)));
static_assert(offsetof(VerbsContextOps, query_port) == pointers(by_abi(480, 480, 496, 520, 568)));
static_assert(offsetof(VerbsContextOps, query_qp) == pointers(by_abi(488, 488, 504, 536, 584)));
static_assert(offsetof(VerbsContextOps, query_rt_values) ==
              pointers(by_abi(504, 504, 520, 552, 600)));
static_assert(offsetof(VerbsContextOps, query_srq) == pointers(by_abi(512, 512, 528, 560, 608)));
static_assert(offsetof(VerbsContextOps, reg_mr) == pointers(by_abi(544, 544, 560, 592, 656)));
static_assert(offsetof(VerbsContextOps, req_notify_cq) ==
              pointers(by_abi(552, 552, 576, 608, 672)));
static_assert(offsetof(VerbsContextOps, rereg_mr) == pointers(by_abi(560, 560, 584, 616, 680)));
static_assert(offsetof(VerbsContextOps, resize_cq) == pointers(by_abi(568, 568, 592, 624, 688)));
static_assert(offsetof(VerbsContextOps, unimport_pd) == pointers(by_abi(600, 600, 624, 656, 736)));

// Command buffers ---------------------------------------------------------------

static_assert(sizeof(ib_uverbs_cmd_hdr) == 8);
static_assert(sizeof(ib_uverbs_ex_cmd_hdr) == 16);
static_assert(sizeof(ib_uverbs_get_context) == 8);
static_assert(sizeof(ib_uverbs_get_context_resp) == 8);
static_assert(sizeof(ib_uverbs_alloc_pd) == 8);
static_assert(sizeof(ib_uverbs_alloc_pd_resp) == 4);
static_assert(sizeof(ib_uverbs_reg_mr) == 40);
static_assert(sizeof(ib_uverbs_reg_mr_resp) == 12);
static_assert(sizeof(ib_uverbs_rereg_mr) == 48);
static_assert(sizeof(ib_uverbs_rereg_mr_resp) == 8);
static_assert(sizeof(ib_uverbs_alloc_mw) == 16);
static_assert(sizeof(ib_uverbs_alloc_mw_resp) == 8);
static_assert(sizeof(ib_uverbs_create_cq) == 32);
static_assert(sizeof(ib_uverbs_create_cq_resp) == 8);
static_assert(sizeof(ib_uverbs_ex_create_cq) == 32);
static_assert(sizeof(ib_uverbs_ex_create_cq_resp) == 16);
static_assert(sizeof(ib_uverbs_resize_cq) == 16);
static_assert(sizeof(ib_uverbs_resize_cq_resp) == 8);
static_assert(sizeof(ib_uverbs_ex_modify_cq) == 16);
static_assert(sizeof(ib_uverbs_create_srq) == 32);
static_assert(sizeof(ib_uverbs_create_srq_resp) == 16);
static_assert(sizeof(ib_uverbs_modify_srq) == 16);
static_assert(sizeof(ib_uverbs_query_srq) == 16);
static_assert(sizeof(ib_uverbs_create_qp) == 56);
static_assert(sizeof(ib_uverbs_create_qp_resp) == 32);
static_assert(sizeof(ib_uverbs_modify_qp) == 112);
static_assert(sizeof(ib_uverbs_query_qp) == 16);
static_assert(sizeof(ib_uverbs_query_port) == 16);
static_assert(sizeof(ib_uverbs_ex_query_device_resp) == 304);
static_assert(sizeof(ib_uverbs_post_send) == 24);
static_assert(sizeof(ib_uverbs_post_send_resp) == 4);

// Functions ---------------------------------------------------------------------
//
// Version node IBVERBS_PRIVATE_<ABI>.  Those returning int return 0 or a positive
// errno.  Command buffers are declared as void pointers: command.hpp builds
// them, and their sizes are passed beside.

// Parameters that some have since.  This provider has no use for them.
struct FdArray;  // file descriptors for the kernel to take over
struct CqMemory; // that the provider brings

extern "C" {
void SOFTWARP_REGISTER_DRIVER(const VerbsDeviceOps *ops);
void *_verbs_init_and_alloc_context(ibv_device *device, int cmd_fd, std::size_t alloc_size,
                                    VerbsContext *context_offset, std::uint32_t driver_id);
void verbs_uninit_context(VerbsContext *context);
void verbs_set_ops(VerbsContext *context, const VerbsContextOps *ops);

#if SOFTWARP_PRIVATE_ABI >= 57
int ibv_cmd_get_context(VerbsContext *context, void *cmd, std::size_t cmd_size, FdArray *fds,
                        void *resp, std::size_t resp_size);
#else
int ibv_cmd_get_context(VerbsContext *context, void *cmd, std::size_t cmd_size, void *resp,
                        std::size_t resp_size);
#endif
int ibv_cmd_query_device_any(ibv_context *context, const ibv_query_device_ex_input *input,
                             ibv_device_attr_ex *attr, std::size_t attr_size,
                             ib_uverbs_ex_query_device_resp *resp, std::size_t *resp_size);
int ibv_cmd_query_port(ibv_context *context, std::uint8_t port_num, ibv_port_attr *attr, void *cmd,
                       std::size_t cmd_size);
int ibv_cmd_alloc_pd(ibv_context *context, ibv_pd *pd, void *cmd, std::size_t cmd_size, void *resp,
                     std::size_t resp_size);
int ibv_cmd_dealloc_pd(ibv_pd *pd);
int ibv_cmd_reg_mr(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t hca_va, int access,
                   VerbsMr *mr, void *cmd, std::size_t cmd_size, void *resp, std::size_t resp_size);
int ibv_cmd_dereg_mr(VerbsMr *mr);
int ibv_cmd_rereg_mr(VerbsMr *mr, std::uint32_t flags, void *addr, std::size_t length,
                     std::uint64_t hca_va, int access, ibv_pd *pd, void *cmd, std::size_t cmd_size,
                     void *resp, std::size_t resp_size);
int ibv_cmd_alloc_mw(ibv_pd *pd, ibv_mw_type type, ibv_mw *mw, void *cmd, std::size_t cmd_size,
                     void *resp, std::size_t resp_size);
int ibv_cmd_dealloc_mw(ibv_mw *mw);
int ibv_cmd_create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel, int comp_vector,
                      ibv_cq *cq, void *cmd, std::size_t cmd_size, void *resp,
                      std::size_t resp_size);
#if SOFTWARP_PRIVATE_ABI >= 59
int ibv_cmd_create_cq_ex(ibv_context *context, const ibv_cq_init_attr_ex *attr, CqMemory *memory,
                         VerbsCq *cq, void *cmd, std::size_t cmd_size, void *resp,
                         std::size_t resp_size, std::uint32_t cmd_flags);
#else
int ibv_cmd_create_cq_ex(ibv_context *context, const ibv_cq_init_attr_ex *attr, VerbsCq *cq,
                         void *cmd, std::size_t cmd_size, void *resp, std::size_t resp_size,
                         std::uint32_t cmd_flags);
#endif
int ibv_cmd_resize_cq(ibv_cq *cq, int cqe, void *cmd, std::size_t cmd_size, void *resp,
                      std::size_t resp_size);
int ibv_cmd_modify_cq(ibv_cq *cq, ibv_modify_cq_attr *attr, void *cmd, std::size_t cmd_size);
int ibv_cmd_destroy_cq(ibv_cq *cq);
int ibv_cmd_create_srq(ibv_pd *pd, ibv_srq *srq, ibv_srq_init_attr *attr, void *cmd,
                       std::size_t cmd_size, void *resp, std::size_t resp_size);
int ibv_cmd_modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int attr_mask, void *cmd,
                       std::size_t cmd_size);
int ibv_cmd_query_srq(ibv_srq *srq, ibv_srq_attr *attr, void *cmd, std::size_t cmd_size);
int ibv_cmd_destroy_srq(ibv_srq *srq);
int ibv_cmd_create_qp(ibv_pd *pd, ibv_qp *qp, ibv_qp_init_attr *attr, void *cmd,
                      std::size_t cmd_size, void *resp, std::size_t resp_size);
int ibv_cmd_create_qp_ex(ibv_context *context, VerbsQp *qp, ibv_qp_init_attr_ex *attr, void *cmd,
                         std::size_t cmd_size, void *resp, std::size_t resp_size);
int ibv_cmd_query_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, ibv_qp_init_attr *init_attr,
                     void *cmd, std::size_t cmd_size);
int ibv_cmd_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, void *cmd,
                      std::size_t cmd_size);
int ibv_cmd_destroy_qp(ibv_qp *qp);
int ibv_cmd_post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr);
}

// The same for every ABI.
inline int get_context(VerbsContext *context, void *cmd, std::size_t cmd_size, void *resp,
                       std::size_t resp_size) noexcept {
#if SOFTWARP_PRIVATE_ABI >= 57
    return ibv_cmd_get_context(context, cmd, cmd_size, nullptr, resp, resp_size);
#else
    return ibv_cmd_get_context(context, cmd, cmd_size, resp, resp_size);
#endif
}

inline int create_cq_ex(ibv_context *context, const ibv_cq_init_attr_ex *attr, VerbsCq *cq,
                        void *cmd, std::size_t cmd_size, void *resp, std::size_t resp_size,
                        std::uint32_t cmd_flags) noexcept {
#if SOFTWARP_PRIVATE_ABI >= 59
    return ibv_cmd_create_cq_ex(context, attr, nullptr, cq, cmd, cmd_size, resp, resp_size,
                                cmd_flags);
#else
    return ibv_cmd_create_cq_ex(context, attr, cq, cmd, cmd_size, resp, resp_size, cmd_flags);
#endif
}

} // namespace softwarp::abi

#endif // SOFTWARP_VERBS_ABI_HPP
