// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// Stands for a libibverbs that is not installed when the provider is linked: the
// functions that abi.hpp declares, by name, without parameters and contents.
// The linker refuses a plug-in that needs one that is not here.
#define STUB(name)                                                                                 \
    extern "C" [[gnu::visibility("default")]] void name();                                         \
    void name() {}

STUB(SOFTWARP_REGISTER_DRIVER) // the number of the ABI is in its name: given by the build
STUB(_verbs_init_and_alloc_context)
STUB(ibv_cmd_alloc_mw)
STUB(ibv_cmd_alloc_pd)
STUB(ibv_cmd_create_cq)
STUB(ibv_cmd_create_cq_ex)
STUB(ibv_cmd_create_qp)
STUB(ibv_cmd_create_qp_ex)
STUB(ibv_cmd_create_srq)
STUB(ibv_cmd_dealloc_mw)
STUB(ibv_cmd_dealloc_pd)
STUB(ibv_cmd_dereg_mr)
STUB(ibv_cmd_destroy_cq)
STUB(ibv_cmd_destroy_qp)
STUB(ibv_cmd_destroy_srq)
STUB(ibv_cmd_get_context)
STUB(ibv_cmd_modify_cq)
STUB(ibv_cmd_modify_qp)
STUB(ibv_cmd_modify_srq)
STUB(ibv_cmd_post_send)
STUB(ibv_cmd_query_device_any)
STUB(ibv_cmd_query_port)
STUB(ibv_cmd_query_qp)
STUB(ibv_cmd_query_srq)
STUB(ibv_cmd_reg_mr)
STUB(ibv_cmd_rereg_mr)
STUB(ibv_cmd_resize_cq)
STUB(verbs_set_ops)
STUB(verbs_uninit_context)
