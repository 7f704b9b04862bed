# SPDX-License-Identifier: GPL-2.0
# Flags for every module of this tree: the include path, and features of the
# target kernel.  Stable kernels have backports, so this greps the headers and
# does not compare versions.  Only compat.h uses the results.

swp-here := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
swp-inc := $(srctree)/include
swp-has = $(if $(shell grep -sE '$(1)' $(swp-inc)/$(2)),-D$(3))

# What there is nothing in place of.  A kernel without it gets one sentence, not a page of errors.
swp-need = $(if $(shell grep -sqE '$(1)' $(swp-inc)/$(2) && echo y),,$(error softwarp: \
	     this kernel has no $(1) in include/$(2), without which softwarp cannot be built))

$(call swp-need,rdma_user_mmap_entry_insert,rdma/ib_verbs.h)
$(call swp-need,struct rdma_link_ops,rdma/rdma_netlink.h)
$(call swp-need,struct iw_cm_event,rdma/iw_cm.h)
$(call swp-need,ib_umem_get,rdma/ib_umem.h)
$(call swp-need,tcp_read_sock,net/tcp.h)
# Not set when modules are installed or removed
ifdef CONFIG_MODULES
ifndef CONFIG_INFINIBAND_ADDR_TRANS
$(error softwarp: this kernel is configured without CONFIG_INFINIBAND_ADDR_TRANS, without which softwarp cannot be built)
endif
endif

ccflags-y += -I$(swp-here)
ccflags-y += $(call swp-has,skb_splice_from_iter,linux/skbuff.h,SWP_HAVE_SPLICE_PAGES)
ccflags-y += $(call swp-has,static inline void vm_flags_set,linux/mm.h,SWP_HAVE_VM_FLAGS_SET)
ccflags-y += $(call swp-has,struct sockaddr_unsized,linux/socket.h,SWP_HAVE_SOCKADDR_UNSIZED)
ccflags-y += $(call swp-has,struct proto_accept_arg \*,linux/net.h,SWP_HAVE_ACCEPT_ARG)
ccflags-y += $(call swp-has,register_net_sysctl_sz,net/net_namespace.h,SWP_HAVE_NET_SYSCTL_SZ)
ccflags-y += $(call swp-has,RUN_SA_PROG.sk. uaddr. uaddrlen,linux/bpf-cgroup.h,SWP_HAVE_BPF_SOCK_ADDR_LEN)
ccflags-y += $(call swp-has,copy_splice_read,linux/fs.h,SWP_HAVE_COPY_SPLICE_READ)
ccflags-y += $(call swp-has,int sk_ioctl,net/sock.h,SWP_HAVE_SK_IOCTL)
ccflags-y += $(call swp-has,TCP_ACK_DEFERRED,linux/tcp.h,SWP_HAVE_ACK_DEFERRED)
ccflags-y += $(call swp-has,sk_use_task_frag,net/sock.h,SWP_HAVE_SK_USE_TASK_FRAG)
ccflags-y += $(call swp-has,sk_net_refcnt_upgrade,net/sock.h,SWP_HAVE_SK_NET_REFCNT_UPGRADE)
ccflags-y += $(call swp-has,get_unaligned,linux/unaligned.h,SWP_HAVE_LINUX_UNALIGNED)
ccflags-y += $(call swp-has,WQ_PERCPU,linux/workqueue.h,SWP_HAVE_WQ_PERCPU)
ccflags-y += $(call swp-has,void hrtimer_setup.struct hrtimer,linux/hrtimer.h,SWP_HAVE_HRTIMER_SETUP)
ccflags-y += $(call swp-has,struct ib_dmah \*dmah,rdma/ib_verbs.h,SWP_HAVE_REG_MR_DMAH)
ccflags-y += $(call swp-has,ib_umem_get_va,rdma/ib_umem.h,SWP_HAVE_UMEM_GET_VA)
ccflags-y += $(call swp-has,ib_mark_name_assigned_by_user,rdma/ib_verbs.h,SWP_HAVE_MARK_NAMED)
ccflags-y += $(call swp-has,report_port_event,rdma/ib_verbs.h,SWP_HAVE_REPORT_PORT_EVENT)
ccflags-y += $(call swp-has,\(\*resize_user_cq\),rdma/ib_verbs.h,SWP_HAVE_RESIZE_USER_CQ)
ccflags-y += $(call swp-has,\(\*counter_unbind_qp\)\(.*port\),rdma/ib_verbs.h,SWP_HAVE_COUNTER_PORT)
ccflags-y += $(call swp-has,\(\*counter_init\),rdma/ib_verbs.h,SWP_HAVE_COUNTER_INIT)
ccflags-y += $(if $(shell grep -sE -A1 'int \(\*create_cq\)' $(swp-inc)/rdma/ib_verbs.h | grep uverbs_attr_bundle),-DSWP_HAVE_CREATE_CQ_ATTRS)
ccflags-y += $(call swp-has,skb_frags_readable,linux/skbuff.h,SWP_HAVE_UNREADABLE)
ccflags-y += $(call swp-has,sk_under_memory_pressure,net/proto_memory.h,SWP_HAVE_PROTO_MEMORY)
# This one cannot be found in a header.
ccflags-y += $(if $(shell [ $(VERSION) -eq 6 ] && [ $(PATCHLEVEL) -lt 6 ] && echo y),-DSWP_BEFORE_6_6)
