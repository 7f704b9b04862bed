# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Build modules out of tree, for several kernels side by side, under build/kernel/<kernel>/."""

import os
import re
import shlex
import shutil
from pathlib import Path

import arches
import kernels
import packages
from common import BUILD, ROOT, Failure, jobs, locked, run

# What a module build may need of this tree; everything else there is not linked.
SOURCES = ("Kbuild", "kernel", "tests/conformance/preset", "tests/conformance/startup", "tests/kunit", "tests/qemu/provoke")
SUFFIXES = (".c", ".h", ".S", ".mk")
PRODUCTS = ("softwarp.ko", "softwarp_sdp.ko")


def mirror(farm: Path) -> None:
    """Make `farm` a tree of links to the sources, so that objects of different kernels stay apart."""
    wanted = {}
    for name in SOURCES:
        top = ROOT / name
        paths = [top] if top.is_file() else (path for path in top.rglob("*") if path.is_file())
        for path in paths:
            if (path.suffix in SUFFIXES and not path.name.endswith(".mod.c")) or path.name in ("Kbuild", "Makefile"):
                wanted[farm / path.relative_to(ROOT)] = path
    for link in [path for path in farm.rglob("*") if path.is_symlink()]:
        if link not in wanted:
            link.unlink()
    for link, path in wanted.items():
        if not link.is_symlink() or os.readlink(link) != str(path):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(path)


def _make(kernel: kernels.Kernel, directory: Path, what: str, extra=()) -> None:
    log = BUILD / "kernel" / kernel.name / f"{what}.log"
    log.unlink(missing_ok=True)
    try:
        run([*kernel.make, f"M={directory}", f"-j{jobs()}", *extra, "modules"], log=log, what=f"{what} for {kernel.name}")
    except Failure as failure:
        # compat.mk says in one sentence what a kernel lacks.
        lacks = re.search(r"\*\*\* (softwarp: .*?)\.  Stop", log.read_text(errors="replace"))
        raise Failure(f"{kernel.name}: {lacks[1].removeprefix('softwarp: ')}" if lacks else str(failure)) from failure


def products(kernel: kernels.Kernel, extra=()) -> list[Path]:
    """softwarp.ko and softwarp_sdp.ko for a kernel, brought up to date."""
    if not (ROOT / "Kbuild").exists():
        raise Failure("there is no Kbuild in this tree to build modules from")
    base = BUILD / "kernel" / kernel.name
    with locked(base / "lock", f"modules for {kernel.name}"):
        farm = base / "src"
        mirror(farm)
        _make(kernel, farm, "softwarp", extra)
        for name in PRODUCTS:
            built = farm / name
            if not built.exists():
                raise Failure(f"the build for {kernel.name} left no {name}")
            target = base / name
            # A guest may have the old file open: replace it, do not overwrite it.
            if not target.exists() or target.stat().st_mtime < built.stat().st_mtime:
                shutil.copy2(built, target.with_suffix(".new"))
                target.with_suffix(".new").rename(target)
    return [base / name for name in PRODUCTS]


def softwarp(kernel: kernels.Kernel, extra=()) -> Path:
    """softwarp.ko for a kernel, brought up to date."""
    return products(kernel, extra)[0]


def sdp(kernel: kernels.Kernel) -> Path:
    """softwarp_sdp.ko for a kernel, brought up to date."""
    return products(kernel)[1]


def analyse(kernel: kernels.Kernel) -> str:
    """What sparse and W=1 have to say about our files; empty is good."""
    if not (ROOT / "Kbuild").exists():
        raise Failure("there is no Kbuild in this tree")
    base = BUILD / "kernel" / kernel.name
    with locked(base / "lint.lock", "static checks"):
        farm = base / "lint"
        shutil.rmtree(farm, ignore_errors=True)
        mirror(farm)
        broken = ""
        try:
            _make(kernel, farm, "lint", ["-k", "C=2", "W=1"])
        except Failure as failure:
            broken = f"{failure}\n"
        # The kernel's own headers draw warnings, too, and those are not ours to mend.
        lines = (base / "lint.log").read_text(errors="replace").splitlines()
        found = "".join(f"{line}\n" for line in lines if re.search(r"\b(warning|error|Warning): |: note: ", line)
                        and (str(farm) in line or line.startswith(("kernel/", "./kernel/"))))
        return found or broken


def kunit(kernel: kernels.Kernel) -> list[Path]:
    """The KUnit modules for a kernel that has KUnit, brought up to date."""
    base = BUILD / "kernel" / kernel.name
    with locked(base / "lock", f"modules for {kernel.name}"):
        farm = base / "src"
        mirror(farm)
        directory = farm / "tests/kunit"
        if not directory.is_dir():
            raise Failure("there are no KUnit suites in tests/kunit")
        _make(kernel, directory, "kunit")
        # not those that an earlier tree has left there
        found = sorted(directory / f"{Path(line).stem}.ko" for line in (directory / "modules.order").read_text().split())
    if not found:
        raise Failure("tests/kunit built no module")
    return found


def kunit_script(kernel: kernels.Kernel) -> str:
    """What loads the KUnit modules in a guest, and prints their results."""
    script = "".join(f"insmod {shlex.quote(str(path))} || echo 'not loaded: {path.name}'; " for path in kunit(kernel))
    return script + "cat /sys/kernel/debug/kunit/*/results"


def provoke(kernel: kernels.Kernel) -> Path:
    """The module that makes mistakes on purpose."""
    base = BUILD / "kernel" / kernel.name
    with locked(base / "lock", f"modules for {kernel.name}"):
        farm = base / "src"
        mirror(farm)
        _make(kernel, farm / "tests/qemu/provoke", "provoke")
        return farm / "tests/qemu/provoke/provoke.ko"


def conformance(kernel: kernels.Kernel) -> dict[str, Path]:
    """The modules that the conformance tests load beside the driver, by the variable that names each to them."""
    base = BUILD / "kernel" / kernel.name
    found = {}
    with locked(base / "lock", f"modules for {kernel.name}"):
        farm = base / "src"
        mirror(farm)
        for name in ("preset", "startup"):
            _make(kernel, farm / "tests/conformance" / name, name)
            found[f"SOFTWARP_{name.upper()}"] = farm / "tests/conformance" / name / f"{name}.ko"
    return found


def siw(kernel: kernels.Kernel) -> Path | None:
    """In-tree siw as a file to load; None where the kernel was built with it."""
    if kernel.name in kernels.RECIPES:
        return None
    base = BUILD / "kernel" / kernel.name
    directory = base / "siw"
    with locked(base / "lock", f"modules for {kernel.name}"):
        if not (directory / "siw.ko").exists():
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(packages.source(kernel.series) / "drivers/infiniband/sw/siw", directory)
            _make(kernel, directory, "siw", ["CONFIG_RDMA_SIW=m"])
    return directory / "siw.ko"


# What siw 6.12 and 7.x compile in, and the same as module parameters.
SIW_KNOBS = (
    ("siw_main.c", r"^const bool (mpa_crc_required|mpa_crc_strict|peer_to_peer);$",
     r"bool \1;\nmodule_param(\1, bool, 0644);", 3),
    ("siw.h", r"^extern const bool (mpa_crc_required|mpa_crc_strict|peer_to_peer);$", r"extern bool \1;", 3),
    ("siw_main.c", r"^(u_char mpa_version = MPA_REVISION_2;)$", r"\1\nmodule_param(mpa_version, byte, 0644);", 1),
    ("siw_cm.c", r"^(static __be16 rtr_type = .*;)$", r"\1\nmodule_param(rtr_type, ushort, 0644);", 1),
    # A device whose ports iwpmd maps
    ("siw_main.c", r"^(MODULE_LICENSE\(.*\);)$",
     r"\1\nstatic bool port_map;\nmodule_param(port_map, bool, 0644);", 1),
    ("siw_main.c", r"^(\tbase_dev->iw_driver_flags = )IW_F_NO_PORT_MAP;$", r"\1port_map ? 0 : IW_F_NO_PORT_MAP;", 1),
    # A name of its own, so that it can be loaded beside the unchanged one.
    ("siw_main.c", r'^(\t\.type = )"siw",$', r'\1"siw_knobs",', 1),
    ("siw_main.c", r'^MODULE_ALIAS_RDMA_LINK\("siw"\);$', r'MODULE_ALIAS_RDMA_LINK("siw_knobs");', 1),
    ("Makefile", r"\bsiw\.o\b", "siw_knobs.o", 1),
    ("Makefile", r"\bsiw-y\b", "siw_knobs-y", 1),
)


def siw_knobs(kernel: kernels.Kernel) -> Path:
    """In-tree siw whose compiled-in choices of MPA start-up are module parameters; its link type is siw_knobs."""
    base = BUILD / "kernel" / kernel.name
    directory = base / "siw_knobs"
    built = directory / "siw_knobs.ko"
    stamp, knobs = directory / "knobs", repr(SIW_KNOBS)
    with locked(base / "lock", f"modules for {kernel.name}"):
        if not built.exists() or not stamp.exists() or stamp.read_text() != knobs:
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(packages.source(kernel.series) / "drivers/infiniband/sw/siw", directory)
            for name, pattern, replacement, count in SIW_KNOBS:
                path = directory / name
                text, done = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
                if done != count:
                    raise Failure(f"siw's {name} is not what it was: {pattern} occurs {done} times, not {count}")
                path.write_text(text)
            _make(kernel, directory, "siw_knobs", ["CONFIG_RDMA_SIW=m"])
            stamp.write_text(knobs)
    return built


def driver(name: str, kernel: kernels.Kernel) -> Path | None:
    """The file that provides a driver, built if need be; None where the kernel has it or none is wanted."""
    return {"softwarp": softwarp, "siw": siw, "none": lambda _: None}[name](kernel)


def cross(arch: arches.Arch, source: str, name: str, target: str = "all", options=()) -> None:
    """A CMake project of this tree, built for another processor into build/<processor>/."""
    root = packages.root(arch.root)
    log = arch.build / f"{name}-build.log"
    place = arch.build / f"cmake-{name}"
    pairs = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": arch.processor, "SYSROOT": root,
             "CXX_COMPILER": f"{arch.tools}g++", "LIBRARY_ARCHITECTURE": arch.libraries,
             "CROSSCOMPILING_EMULATOR": f"qemu-{arch.processor}-static;-L;{root}", "BUILD_TYPE": "RelWithDebInfo",
             "FIND_ROOT_PATH_MODE_PROGRAM": "NEVER",
             **{f"FIND_ROOT_PATH_MODE_{what}": "ONLY" for what in ("LIBRARY", "INCLUDE", "PACKAGE")}}
    env = {"PKG_CONFIG_SYSROOT_DIR": str(root),
           "PKG_CONFIG_LIBDIR": f"{root}/usr/lib/{arch.libraries}/pkgconfig:{root}/usr/share/pkgconfig"}
    with locked(arch.build / f"{name}.lock", f"{name} for {arch.name}"):
        log.unlink(missing_ok=True)
        for args in (["-S", ROOT / source, "-B", place, f"-DSOFTWARP_OUTPUT={arch.build}",
                      *(f"-DCMAKE_{key}={value}" for key, value in pairs.items()), *options],
                     ["--build", place, "--parallel", jobs(), "--target", target]):
            run(["cmake", *args], log=log, what=f"{name} for {arch.name}", env=env)


def provider(arch: arches.Arch = arches.ARCHES["amd64"]) -> None:
    """The libibverbs provider for every private ABI, and the preload library with its tools, brought up to date; for
    another processor, the provider for the ABI of its root, and the rest but for 32-bit programs."""
    if arch.name == "i386":
        cross(arch, "userspace-provider", "provider", "plugins", ["-DSOFTWARP_TESTS=OFF"])
        return
    if arch.foreign:
        cross(arch, "userspace-provider", "provider")
        return
    with locked(BUILD / "provider.lock", "the provider"):
        (BUILD / "provider.log").unlink(missing_ok=True)
        run(["make", "-C", ROOT, "--no-print-directory", "provider", "ABIS=all"], log=BUILD / "provider.log", what="the provider")


def interop() -> None:
    """The programs of scripts/interop and scripts/dissect, brought up to date."""
    with locked(BUILD / "interop.lock", "the interoperation programs"):
        (BUILD / "interop-build.log").unlink(missing_ok=True)
        for args in (["-S", ROOT / "tests/interop", "-B", BUILD / "cmake-interop"],
                     ["--build", BUILD / "cmake-interop", "--parallel", jobs()]):
            run(["cmake", *args], log=BUILD / "interop-build.log", what="the interoperation programs")
