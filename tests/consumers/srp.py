# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""SRP through RDMA/CM: ib_srpt with a RAM disk behind it, ib_srp.

Not here: a target with shared receive queues.  ib_srpt of 6.12.117 then warns whenever a channel ends, see
Documentation/consumers.md.
"""

import pathlib

import scsi
from host import TARGET4, TARGET6, Broken, modules, sh, target, target_modules, wait, write

TITLE = "SRP"
PORT = 5555
EXTENSION = 1
initiator = ""
guid = ""
wwn = ""


def port_gid(device: str) -> str:
    """A command that prints a device's GID as 32 hexadecimal digits."""
    return f"tr -d : < /sys/class/infiniband/{device}/ports/1/gids/0"


def set_up() -> None:
    global initiator, guid, wwn
    target_modules("configfs", "target_core_mod", "target_core_iblock", "ib_srpt")
    scsi.make_backstore()
    wwn = f"{scsi.TARGET}/srpt/0x{target.run(port_gid('sw1')).strip()}"
    # the initiator port: its extension, and the second half of its device's GID
    initiator = f"0x{EXTENSION:016x}{sh(port_gid('sw0')).strip()[16:]}"
    target.run(f"mkdir {scsi.TARGET}/srpt && mkdir -p {wwn}/port && mkdir {wwn}/port/lun/lun_0 && "
               f"ln -s {scsi.BACKSTORE} {wwn}/port/lun/lun_0/disk && mkdir {wwn}/port/acls/{initiator} && "
               f"mkdir {wwn}/port/acls/{initiator}/lun_0 && "
               f"ln -s {wwn}/port/lun/lun_0 {wwn}/port/acls/{initiator}/lun_0/disk")
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


def target_disabled() -> None:
    scsi.in_the_middle(LoggedIn, lambda: target.run(
        f"echo 0 > {wwn}/port/enable && sleep 1 && echo 1 > {wwn}/port/enable"))


def tear_down() -> None:
    sh("modprobe -r ib_srp")
    listen(0)
    target.run(f"echo 0 > {wwn}/port/enable && rm {wwn}/port/acls/{initiator}/lun_0/disk && "
               f"rmdir {wwn}/port/acls/{initiator}/lun_0 {wwn}/port/acls/{initiator} && "
               f"rm {wwn}/port/lun/lun_0/disk && rmdir {wwn}/port/lun/lun_0 {wwn}/port {wwn} {scsi.TARGET}/srpt && "
               f"{scsi.drop_backstore()} && modprobe -r ib_srpt")
    target.run("timeout 60 rmmod softwarp")
    sh("timeout 60 rmmod softwarp")


CASES = [
    ("log in over IPv4, write and verify, compare with the target's disk", lambda: scsi.write_and_verify(LoggedIn)),
    ("log out and in, data still there", lambda: scsi.data_survives_logout(LoggedIn)),
    ("target disabled and enabled in the middle of fio", target_disabled),
    ("over IPv6", lambda: scsi.at_address(LoggedIn, f"[{TARGET6}]")),
]
