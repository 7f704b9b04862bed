# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Everything is built under build/; `make help` says what there is.  kbuild reads Kbuild, not this file.

# Headers of the kernel to build modules for, such as /lib/modules/$(uname -r)/build; without it Debian's 6.12, unpacked
# into a cache, serves.
KDIR ?=
DESTDIR ?=
BUILD_TYPE ?= RelWithDebInfo
# Private ABIs of libibverbs to build the provider for: "all", or numbers with semicolons between them; without it that of
# the installed library.
ABIS ?=
# One job per processor; cmake on its own would start them all at once.
JOBS ?= $(shell nproc)

native := build/kernel/native

.PHONY: all
all: modules provider ## the modules, the provider, the preload library and its tools

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## install the Debian packages needed
	scripts/setup

.PHONY: setup-consumers
setup-consumers: ## the same, and NVMe, NFS, iSCSI, MPI and other users of RDMA, without starting services
	scripts/setup --consumers

.PHONY: setup-apps
setup-apps: ## the same as setup, and servers and clients for sdp-apps, without starting services
	scripts/setup --apps

.PHONY: setup-packages
setup-packages: ## the same as setup, and what makes and tests packages
	scripts/setup --packages

.PHONY: setup-reach
setup-reach: ## the same as setup, and compilers for and emulators of other processors
	scripts/setup --reach

.PHONY: modules
modules: ## softwarp.ko and softwarp_sdp.ko, for the kernel of KDIR=
	scripts/module $(if $(KDIR),--kdir $(KDIR))

.PHONY: provider
provider: ## the libibverbs provider, in build/provider; the preload library, sdp_run and sdp_switch, in build/preload
	cmake -S userspace-provider -B build/cmake -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) '-DSOFTWARP_PRIVATE_ABIS=$(ABIS)'
	cmake --build build/cmake --parallel $(JOBS)

.PHONY: e2e-programs
e2e-programs:
	cmake -S tests/e2e -B build/cmake-e2e -DCMAKE_BUILD_TYPE=$(BUILD_TYPE)
	cmake --build build/cmake-e2e --parallel $(JOBS)

.PHONY: sockets-programs
sockets-programs:
	cmake -S tests/sockets -B build/cmake-sockets -DCMAKE_BUILD_TYPE=$(BUILD_TYPE)
	cmake --build build/cmake-sockets --parallel $(JOBS)

.PHONY: conformance-programs
conformance-programs:
	cmake -S tests/conformance -B build/cmake-conformance -DCMAKE_BUILD_TYPE=$(BUILD_TYPE)
	cmake --build build/cmake-conformance --parallel $(JOBS)

.PHONY: check
check: setup-consumers ## every test; ends with "N passed, N failed"; MINUTES=N leaves out what would not end by then
	@scripts/check $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: lint builds unit kunit e2e preload switch
lint: ## style and static checks
	@scripts/check lint
builds: ## the modules build for every kernel
	@scripts/check builds
unit: ## unit tests of the provider, the preload library and sdp_run
	@scripts/check unit
kunit: ## KUnit suites on the debug kernel
	@scripts/check kunit
e2e: ## end-to-end tests on stock-6.12, debug and uml
	@scripts/check e2e
preload: ## programs under sdp_run between two hosts: iperf3, curl, Python
	@scripts/check preload
switch: ## programs that cannot be preloaded, by the kernel's hook
	@scripts/check switch

.PHONY: conformance
conformance: setup ## every requirement of MPA, DDP, RDMAP, RFC 5042 and SDP, with the test that shows it
	@scripts/conformance

.PHONY: fuzz
fuzz: setup ## a million mutated frames, hostile peers, a million calls of hostile users, libFuzzer over the pure code
	@scripts/fuzz

.PHONY: interop dissect
interop: setup ## in-tree siw as the peer, on Debian's 6.12; ends with "N passed, N failed"
	@scripts/interop
dissect: setup ## tshark reads every packet of runs with all operations
	@scripts/dissect

.PHONY: verbs
verbs: setup ## the tables of Documentation/verbs.md, from what softwarp, siw and rxe answer
	@scripts/verbs

.PHONY: consumers
consumers: setup-consumers ## users of RDMA: NVMe-oF, NFS, iSER, SRP, SMC of the kernel, and programs; ends with "N passed, N failed"
	@scripts/consumers

.PHONY: sdp-apps
sdp-apps: setup-apps ## servers and clients of all kinds under sdp_run, beside plain TCP; ends with "N passed, N failed"
	@scripts/apps

.PHONY: demo
demo: setup ## perftest and rping over softwarp, programs under sdp_run, in a virtual machine
	@scripts/demo

.PHONY: bench
bench: setup ## softwarp, in-tree siw and TCP side by side, in build/bench
	@scripts/bench

.PHONY: deb rpm packages
deb: setup-packages ## Debian packages, built in a clean Debian 12, in build/deb; scripts/deb --help has other places
	@scripts/deb
rpm: setup-packages ## RPM packages, built in a chroot of Debian, in build/rpm: readable, but not tried on Fedora
	@scripts/rpm
packages: deb ## what deb has built: installed on a clean Debian, used in a virtual machine, purged; "N passed, N failed"
	@scripts/packages

.PHONY: reach
reach: setup-reach ## a table of kernels, processors, rdma-core and compilers: builds, loads, works; ends with "N passed, N failed"
	@scripts/reach

.PHONY: soak
soak: setup ## SDP sockets with gigabytes, 2,000 connections, 20,000 sockets; ends with "N passed, N failed"
	@scripts/soak

.PHONY: install
install: ## modules (needs KDIR=), provider, preload library and its tools, man pages, below DESTDIR
	$(if $(KDIR),,$(error name the kernel: make install KDIR=/lib/modules/$$(uname -r)/build))
	scripts/module --kdir $(KDIR)
	@# Headers packages have no key, with which signing would seem to work, and no System.map, without which depmod is left
	@# out.  Sign with a key that your machine trusts.
	$(MAKE) -C $(KDIR) M=$(CURDIR)/$(native)/src $(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR)) INSTALL_MOD_STRIP=1 \
		CONFIG_MODULE_SIG_ALL= modules_install
	@# For Debian's 6.1.0-56-amd64 `make kernelrelease` prints 6.1.192.
	$(if $(DESTDIR),,depmod -a $$(modinfo -F vermagic $(native)/softwarp.ko | cut -d ' ' -f 1))
	$(MAKE) provider
	DESTDIR=$(DESTDIR) cmake --install build/cmake

.PHONY: clean
clean: ## remove build/; the cache of kernels stays
	rm -rf build
