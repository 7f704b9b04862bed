# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The kernels that tests and benchmarks run on: Debian's own, unpacked, and those built from its sources."""

import dataclasses
import re
import shutil
from pathlib import Path

import arches
import chroot
import packages
from common import ROOT, Failure, cache_root, cached, digest, jobs, output, run

CONFIGS = ROOT / "tests/qemu/config"
NAMES = ("stock-6.12", "stock-6.1", "stock-7", "debug", "kcsan", "uml", "uml-clang", "uml-kasan", "arm64-6.12", "s390x-6.12",
         "arm64-kunit", "s390x-kunit")
# Kernels built here: source series, architecture, fragments in the order in which they are merged.
RECIPES = {
    "debug": ("6.12", "x86_64", ("base", "x86", "debug")),
    "kcsan": ("6.12", "x86_64", ("base", "x86", "kcsan")),
    "uml": ("7", "um", ("base", "um", "storage")),
    "uml-clang": ("7", "um", ("base", "um")),
    "uml-kasan": ("7", "um", ("base", "um", "um-kasan")),
    # Debian's kernels have no KUnit.
    "arm64-kunit": ("6.12", "arm64", ("base", "arm64", "kunit")),
    "s390x-kunit": ("6.12", "s390", ("base", "s390x", "kunit")),
}
# Those that clang builds, and with them their modules: the suffix of LLVM's programs.
LLVM = {"uml-clang": "-19"}
# Debian's kernels whose headers come with programs of a later release than the oldest that this tree is built on: a module
# for them is built in a chroot of that release, by its compiler.
SUITES = {"stock-7": "trixie"}
# What make builds for each architecture, and where it lies
IMAGES = {"um": ("linux", "linux"), "x86_64": ("bzImage", "arch/x86/boot/bzImage"), "arm64": ("Image", "arch/arm64/boot/Image"),
          "s390": ("bzImage", "arch/s390/boot/bzImage")}


# How much more time than at the machine's own speed things may take: emulated processors are slower by an order of
# magnitude, the checkers by another.
SCALE = {"uml": 1, "uml-clang": 1, "uml-kasan": 3, "stock-6.12": 4, "stock-6.1": 4, "stock-7": 4, "debug": 12, "kcsan": 8,
         "arm64-6.12": 8, "s390x-6.12": 8, "arm64-kunit": 8, "s390x-kunit": 8}


def pace(name: str, quick: bool) -> dict[str, str]:
    """What test programs are told by their environment: how patient to be, and whether to take the smaller numbers."""
    return {"SOFTWARP_E2E_SCALE": str(SCALE[name]), **({"SOFTWARP_E2E_QUICK": "1"} if quick else {})}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel, ready to boot and to build modules for."""

    name: str
    series: str  # of the Debian source package: "6.1", "6.12" or "7"
    arch: str  # to make: "x86_64", "arm64" and so on (QEMU), or "um"
    release: str  # as uname -r prints it
    image: Path
    kdir: Path  # what external modules build against
    modules: Path | None  # lib/modules/<release>, None if all that we need is built in
    cpu: str = "amd64"  # of arches.ARCHES

    @property
    def uml(self) -> bool:
        return self.arch == "um"

    @property
    def make(self) -> list[str]:
        """make against this kernel's build tree."""
        tools = [f"CROSS_COMPILE={self.processor.tools}"] if self.processor.foreign else []
        if self.name in LLVM:
            tools.append(f"LLVM={LLVM[self.name]}")
        host = []
        if self.name in SUITES:
            layers = chroot.layers(SUITES[self.name], "modules", ["pahole", "libelf1t64", "libssl3t64", "zlib1g"])
            host = chroot.within(layers, [ROOT, cache_root()])
        return [*host, "make", "-C", str(self.kdir), f"ARCH={self.arch}", *tools]

    @property
    def processor(self) -> arches.Arch:
        """What it runs on."""
        return arches.ARCHES[self.cpu]


def fragment_lines(names) -> list[str]:
    """Lines of the merged fragments, comments and blanks left out; a later line replaces an earlier one."""
    options = {}
    for name in names:
        for line in (CONFIGS / f"{name}.config").read_text().splitlines():
            match = re.fullmatch(r"(CONFIG_\w+)=.+|# (CONFIG_\w+) is not set", line)
            if match:
                options[match[1] or match[2]] = line
            elif line and not line.startswith("#"):
                raise Failure(f"{name}.config: not a line of a configuration: {line}")
    return list(options.values())


def check_config(config: Path, wanted: list[str]) -> None:
    """Fail unless every wanted line holds: olddefconfig drops silently what it cannot satisfy."""
    lines = set(config.read_text().splitlines())
    lost = [line for line in wanted
            if line not in lines and not (line.endswith(" is not set") and not any(
                have.startswith(line.split()[1] + "=") for have in lines))]
    if lost:
        raise Failure("the kernel configuration lost these lines:\n  " + "\n  ".join(lost))


def built(name: str) -> Kernel:
    """A kernel built from a Debian source package with our fragments, from the cache if possible."""
    series, arch, fragments = RECIPES[name]
    tree = packages.source(series)
    wanted = fragment_lines(fragments)
    cpu = next((cpu for cpu in arches.ARCHES.values() if cpu.machine and cpu.kernel == arch), arches.ARCHES["amd64"])
    tools = [f"CROSS_COMPILE={cpu.tools}"] if cpu.foreign else []
    program = f"{cpu.tools}gcc"
    if name in LLVM:
        tools.append(f"LLVM={LLVM[name]}")
        program = f"clang{LLVM[name]}"
        if not shutil.which(program):
            raise Failure(f"{name} needs {program}; scripts/setup --reach installs it")
    compiler = output([program, "--version"]).splitlines()[0]
    key = digest("recipe 1", tree.parent.name, arch, *wanted, compiler)
    target, image = IMAGES[arch]

    def build(entry: Path) -> None:
        log = entry / "build.log"
        make = ["make", "-C", tree, f"ARCH={arch}", f"O={entry}", *tools]
        run([*make, "tinyconfig"], log=log, what=f"configuration of {name}")
        # The last assignment to a symbol wins, so appending is merging.
        config = entry / ".config"
        config.write_text(config.read_text() + "\n".join(wanted) + "\n")
        run([*make, "olddefconfig"], log=log, what=f"configuration of {name}")
        check_config(config, wanted)
        run([*make, f"-j{jobs()}", target, "modules"], log=log, what=f"kernel {name}")
        run([*make, f"INSTALL_MOD_PATH={entry / 'root'}", "modules_install"], log=log, what=f"modules of {name}")

    entry = cached(f"kernel-{name}-{key}", build, f"kernel {name}")
    release = (entry / "include/config/kernel.release").read_text().strip()
    return Kernel(name, series, arch, release, entry / image, entry, entry / "root/lib/modules" / release, cpu.name)


def processor(name: str) -> arches.Arch:
    """What the kernel of that name runs on, without preparing it."""
    return arches.ARCHES.get(name.split("-")[0], arches.ARCHES["amd64"])


def stock(name: str) -> Kernel:
    """A kernel of Debian, unpacked."""
    cpu, series = processor(name).name, name.split("-")[1]
    root = packages.stock(series, cpu)
    modules = next((root / "usr/lib/modules").iterdir())
    image = next(path for path in (root / "boot" / f"vmlinuz-{modules.name}", modules / "vmlinuz") if path.exists())
    return Kernel(name, series, arches.ARCHES[cpu].kernel, modules.name, image,
                  root / "usr/src" / f"linux-headers-{modules.name}", modules, cpu)


def native(kdir: Path) -> Kernel:
    """Any kernel by its build directory, to build modules for but not to boot."""
    header = kdir / "include/generated/utsrelease.h"
    if not (kdir / "Makefile").exists() or not header.exists():
        raise Failure(f"{kdir} is no kernel's build directory")
    release = header.read_text().split('"')[1]
    return Kernel("native", release, "x86_64", release, kdir, kdir.resolve(), None)


def kernel(name: str) -> Kernel:
    """The kernel of that name, prepared if need be."""
    if name not in NAMES:
        raise Failure(f"unknown kernel {name}; choose one of {', '.join(NAMES)}")
    return built(name) if name in RECIPES else stock(name)
