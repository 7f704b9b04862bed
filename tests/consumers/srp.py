# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""SRP through RDMA/CM: ib_srpt with a RAM disk behind it, ib_srp.

Not here: a target with shared receive queues.  ib_srpt of 6.12.117 then warns whenever a channel ends, see
Documentation/consumers.md.
"""

import pathlib

import scsi
from host import (MIB, SIZE, SLOW, TARGET4, TARGET6, Broken, Carried, Fio, counter, fio, modules, ram_disk, same, sh, target,
                  target_modules, wait, write)

TITLE = "SRP"
PORT = 5555
# The initiator port: its extension, and the second half of its device's GID, which is zero as the target's is
EXTENSION = 1
INITIATOR = f"0x{EXTENSION:016x}{0:016x}"
DISK_MIB = 64
backing = ""
guid = ""
wwn = ""


def set_up() -> None:
    global backing, guid, wwn
    target_modules("configfs", "target_core_mod", "target_core_iblock", "ib_srpt")
    backing = ram_disk(DISK_MIB)
    scsi.make_backstore(backing)
    # the whole GID names the port: its second half, which SRP calls the GUID, is zero on an Ethernet-like device
    gid = target.run("cat /sys/class/infiniband/sw1/ports/1/gids/0").strip().replace(":", "")
    wwn = f"{scsi.TARGET}/srpt/0x{gid}"
    target.run(f"mkdir {scsi.TARGET}/srpt && mkdir -p {wwn}/port && mkdir {wwn}/port/lun/lun_0 && "
               f"ln -s {scsi.BACKSTORE} {wwn}/port/lun/lun_0/disk && mkdir {wwn}/port/acls/{INITIATOR} && "
               f"mkdir {wwn}/port/acls/{INITIATOR}/lun_0 && "
               f"ln -s {wwn}/port/lun/lun_0 {wwn}/port/acls/{INITIATOR}/lun_0/disk")
    listen(PORT)
    target.run(f"echo 1 > {wwn}/port/enable")
    guid = target.run("cat /sys/module/ib_srpt/parameters/srpt_service_guid").strip().removeprefix("0x")
    modules("sd_mod", "scsi_transport_srp", "ib_srp")


def listen(port: int) -> None:
    """Let the target listen on a TCP port of all addresses; 0 for none."""
    target.run(f"echo {port} > {scsi.TARGET}/srpt/discovery_auth/rdma_cm_port")


def rports() -> list[pathlib.Path]:
    return scsi.scsi_hosts("srp_remote_ports")


class LoggedIn:
    """A target port for the with-block."""

    def __init__(self, address: str = TARGET4):
        self.address = address

    def __enter__(self) -> str:
        self.leave()
        wait("the port is logged in to", self.enter)
        self.rport = wait("the remote port appears", rports)[0]
        write(self.rport / "fast_io_fail_tmo", "off")
        write(self.rport / "dev_loss_tmo", "off")
        write(self.rport / "reconnect_delay", 2)
        return scsi.disk()

    def enter(self) -> bool:
        """Log in; false while the initiator is not yet done with the last login."""
        try:
            write("/sys/class/infiniband_srp/srp-sw0-1/add_target",
                  f"id_ext={guid},ioc_guid={guid},initiator_ext={EXTENSION:x},dest={self.address}:{PORT}")
        except Broken as error:
            if "File exists" in str(error):
                return False
            raise
        return True

    def leave(self) -> None:
        """Log out, also from what a case that failed has left."""
        for path in rports():
            write(path / "delete", 1)
        wait("the remote port is gone", lambda: not rports())
        scsi.no_disk()

    def __exit__(self, kind, *_):
        self.leave()


def write_and_verify() -> None:
    with LoggedIn() as device, Carried(2 * SIZE * MIB):
        fio(device)
        # beyond what a request takes at once, and single sectors, some of them inside a Send
        fio(device, "--bsrange=512-1024k", "--iodepth=8", "--randseed=9", size="12m")
        same(device, backing, DISK_MIB)


def data_survives_logout() -> None:
    with LoggedIn() as device:
        fio(device, "--randseed=11")
    with LoggedIn() as device:
        same(device, backing, DISK_MIB)


def in_the_middle(what) -> None:
    """fio goes on, and ends well, though its channels are lost."""
    with LoggedIn() as device:
        job = Fio(device, *SLOW)
        job.under_way()
        before = counter("connect_active")
        what()
        wait("the initiator has connected again", lambda: counter("connect_active") > before)
        job.under_way(MIB)
        job.finish()
        same(device, backing, DISK_MIB)


def target_disabled() -> None:
    in_the_middle(lambda: target.run(f"echo 0 > {wwn}/port/enable && sleep 1 && echo 1 > {wwn}/port/enable"))


def over_ipv6() -> None:
    with LoggedIn(f"[{TARGET6}]") as device, Carried(2 * 12 * MIB):
        fio(device, size="12m")
        same(device, backing, DISK_MIB)


def tear_down() -> None:
    sh("modprobe -r ib_srp")
    listen(0)
    target.run(f"echo 0 > {wwn}/port/enable && rm {wwn}/port/acls/{INITIATOR}/lun_0/disk && "
               f"rmdir {wwn}/port/acls/{INITIATOR}/lun_0 {wwn}/port/acls/{INITIATOR} && "
               f"rm {wwn}/port/lun/lun_0/disk && rmdir {wwn}/port/lun/lun_0 {wwn}/port {wwn} {scsi.TARGET}/srpt && "
               f"{scsi.drop_backstore()} && modprobe -r ib_srpt")
    target.run("timeout 60 rmmod softwarp")
    sh("timeout 60 rmmod softwarp")


CASES = [
    ("log in over IPv4, write and verify, compare with the target's disk", write_and_verify),
    ("log out and in, data still there", data_survives_logout),
    ("target disabled and enabled in the middle of fio", target_disabled),
    ("over IPv6", over_ipv6),
]
