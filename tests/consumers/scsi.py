# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What the two SCSI transports share: a RAM disk as a backstore of the kernel's target, and finding it on this host."""

import pathlib

from host import Broken, target, wait

TARGET = "/sys/kernel/config/target"
BACKSTORE = f"{TARGET}/core/iblock_0/softwarp"
# The target's caches are asked to hold nothing back, so that the RAM disk has what was acknowledged.
MAKE = (f"mkdir -p {BACKSTORE} && echo udev_path={{disk}} > {BACKSTORE}/control && echo 1 > {BACKSTORE}/enable")


def make_backstore(disk: str) -> None:
    target.run("mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config")
    target.run(MAKE.format(disk=disk))


def drop_backstore() -> str:
    """Commands that remove it."""
    return f"rmdir {BACKSTORE} {TARGET}/core/iblock_0"


def disks() -> list[str]:
    """The SCSI disks of this host; it has none but those of a case."""
    return sorted(path.name for path in pathlib.Path("/sys/block").glob("sd*"))


def disk() -> str:
    """The one disk, once it can be opened and is as large as it has to be."""
    def found():
        names = disks()
        if len(names) != 1 or not pathlib.Path(f"/dev/{names[0]}").exists():
            return None
        size = int(pathlib.Path(f"/sys/block/{names[0]}/size").read_text(encoding="ascii"))
        return names if size else None
    names = wait("the disk appears", found)
    return f"/dev/{names[0]}"


def no_disk() -> None:
    """All of them have to go."""
    wait("the disk is gone", lambda: not disks())


def scsi_hosts(kind: str) -> list[pathlib.Path]:
    """Directories in /sys/class/<kind>."""
    path = pathlib.Path(f"/sys/class/{kind}")
    if not path.is_dir():
        raise Broken(f"there is no {path}")
    return sorted(path.iterdir())
