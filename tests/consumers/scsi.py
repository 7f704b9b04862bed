# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What the two SCSI transports share: a RAM disk as a backstore of the kernel's target, finding it on this host, and cases.

"session" in these is what gives a new session with the target for a with-block; at an address, or at the first one.
"""

import pathlib

from host import MIB, SIZE, SLOW, Broken, Carried, Fio, counter, fio, ram_disk, same, target, wait

TARGET = "/sys/kernel/config/target"
BACKSTORE = f"{TARGET}/core/iblock_0/softwarp"
DISK_MIB = 64
# The target's caches are asked to hold nothing back, so that the RAM disk has what was acknowledged.
MAKE = (f"mkdir -p {BACKSTORE} && echo udev_path={{disk}} > {BACKSTORE}/control && echo 1 > {BACKSTORE}/enable")

backing = ""


def make_backstore() -> None:
    global backing
    backing = ram_disk(DISK_MIB)
    target.run("mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config")
    target.run(MAKE.format(disk=backing))


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


def write_and_verify(session) -> None:
    with session() as device, Carried(2 * SIZE * MIB):
        fio(device)
        # beyond what a request takes at once, and single sectors, some of them inside a Send
        fio(device, "--bsrange=512-1024k", "--iodepth=8", "--randseed=9", size="12m")
        same(device, backing, DISK_MIB)


def data_survives_logout(session) -> None:
    with session() as device:
        fio(device, "--randseed=11")
    with session() as device:
        same(device, backing, DISK_MIB)


def in_the_middle(session, what) -> None:
    """fio goes on, and ends well, though its connections are lost."""
    with session() as device:
        job = Fio(device, *SLOW)
        job.under_way()
        before = counter("connect_active")
        what()
        wait("the initiator has connected again", lambda: counter("connect_active") > before)
        job.under_way(MIB)
        job.finish()
        same(device, backing, DISK_MIB)


def at_address(session, address: str) -> None:
    with session(address) as device, Carried(2 * 12 * MIB):
        fio(device, size="12m")
        same(device, backing, DISK_MIB)
