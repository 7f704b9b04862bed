# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The processors that programs are built for and guests have, by Debian's names."""

import dataclasses

from common import BUILD


@dataclasses.dataclass(frozen=True)
class Arch:
    """One processor: how its compilers, its virtual machine and its emulator of programs are called."""

    name: str
    kernel: str  # to make, as ARCH=
    libraries: str  # Debian's directory of libraries
    tools: str  # prefix of compilers
    processor: str  # to CMake, and of emulators
    machine: tuple[str, ...] = ()  # of QEMU; empty: no kernel of ours is for it
    console: str = ""
    bus: str = "pci"

    @property
    def foreign(self) -> bool:
        """Whether programs for it are built apart from those of this machine."""
        return self.name != "amd64"

    @property
    def build(self):
        """Where its programs are built: a directory with provider/, preload/ and so on."""
        return BUILD / self.name if self.foreign else BUILD

    @property
    def root(self) -> str:
        """Its root, by the name of packages.root(); that of amd64 is this machine's."""
        return f"debian-12-{self.name}" if self.foreign else ""


ARCHES = {arch.name: arch for arch in (
    Arch("amd64", "x86_64", "x86_64-linux-gnu", "", "x86_64",
         ("q35", "-cpu", "max,la57=off"), "ttyS0"),
    # Without 64-bit registers, but kernels of amd64 run its programs
    Arch("i386", "x86_64", "i386-linux-gnu", "i686-linux-gnu-", "i386"),
    Arch("arm64", "arm64", "aarch64-linux-gnu", "aarch64-linux-gnu-", "aarch64",
         ("virt", "-cpu", "cortex-a72"), "ttyAMA0"),
    # Big-endian
    Arch("s390x", "s390", "s390x-linux-gnu", "s390x-linux-gnu-", "s390x",
         ("s390-ccw-virtio", "-cpu", "max"), "ttysclp0", "ccw"),
)}
