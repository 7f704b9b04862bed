# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""iSER: the kernel's iSCSI target with ib_isert, open-iscsi with ib_iser."""

import os
import pathlib

import scsi
from host import TARGET4, TARGET6, modules, sh, target, target_modules

TITLE = "iSER"
IQN = "iqn.2026-01.org.example:softwarp"
TPG = f"{scsi.TARGET}/iscsi/{IQN}/tpgt_1"


def make_portal(address: str = TARGET4) -> str:
    """Commands that make a portal that speaks iSER.

    The target opens a TCP socket for each portal and listens for iSER beside it, on the same port, which InfiniBand and
    hardware with a port mapper have twice.  iWARP is TCP, so the plain socket is made in a namespace where it is in nobody's
    way; listeners of iSER are in the initial one, whoever makes them.
    """
    return (f"nsenter --net=/run/netns/aside mkdir '{TPG}/np/{address}:3260' && "
            f"echo 1 > '{TPG}/np/{address}:3260/iser'")


def set_up() -> None:
    target_modules("configfs", "target_core_mod", "target_core_iblock", "iscsi_target_mod", "ib_isert")
    scsi.make_backstore()
    target.run(f"mkdir {scsi.TARGET}/iscsi && mkdir -p {TPG} && mkdir {TPG}/lun/lun_0 && "
               f"ln -s {scsi.BACKSTORE} {TPG}/lun/lun_0/disk && cd {TPG}/attrib && echo 0 > authentication && "
               "echo 1 > generate_node_acls && echo 1 > cache_dynamic_acls && echo 0 > demo_mode_write_protect")
    target.run("ip netns add aside && ip -n aside link set lo up && ip -n aside address add "
               f"{TARGET4}/32 dev lo && ip -n aside address add {TARGET6}/128 dev lo nodad")
    target.run(f"{make_portal()} && echo 1 > {TPG}/enable")
    modules("sd_mod", "scsi_transport_iscsi", "ib_iser")
    os.makedirs("/etc/iscsi", exist_ok=True)
    pathlib.Path("/etc/iscsi/initiatorname.iscsi").write_text("InitiatorName=iqn.2026-01.org.example:host\n",
                                                               encoding="ascii")
    os.makedirs("/run/lock/iscsi", exist_ok=True)
    sh("iscsid")


def node(address: str = TARGET4) -> str:
    """iscsiadm for the one node."""
    return f"iscsiadm -m node -T {IQN} -p '{address}:3260' -I iser"


# Seconds: pings of the initiator, its patience with an answer, and for how long commands wait for another session.
TIMERS = {"node.conn[0].timeo.noop_out_interval": 2, "node.conn[0].timeo.noop_out_timeout": 3,
          "node.session.timeo.replacement_timeout": 240, "node.session.initial_login_retry_max": 2}


class LoggedIn:
    """A session for the with-block."""

    def __init__(self, address: str = TARGET4):
        self.address = address

    def __enter__(self) -> str:
        if scsi.scsi_hosts("iscsi_session"):
            # left behind by a case that failed
            sh("iscsiadm -m node -u", check=False)
        sh(f"{node(self.address)} -o new")
        for name, value in TIMERS.items():
            sh(f"{node(self.address)} -o update -n '{name}' -v {value}")
        sh(f"{node(self.address)} --login")
        return scsi.disk()

    def __exit__(self, kind, *_):
        sh(f"{node(self.address)} --logout", check=kind is None)
        if kind is None:
            scsi.no_disk()
        sh(f"{node(self.address)} -o delete", check=kind is None)


def link_lost() -> None:
    scsi.in_the_middle(LoggedIn, lambda: target.cut(15).result())


def portal_removed() -> None:
    portal = f"{TPG}/np/{TARGET4}:3260"
    scsi.in_the_middle(LoggedIn, lambda: target.run(
        f"echo 0 > {TPG}/enable && echo 0 > {portal}/iser && rmdir {portal} && sleep 1 && {make_portal()} && "
        f"echo 1 > {TPG}/enable"))


def over_ipv6() -> None:
    address = f"[{TARGET6}]"
    target.run(make_portal(address))
    try:
        scsi.at_address(LoggedIn, address)
    finally:
        target.run(f"echo 0 > '{TPG}/np/{address}:3260/iser' && rmdir '{TPG}/np/{address}:3260'")


def tear_down() -> None:
    sh("pkill iscsid; modprobe -r ib_iser")
    target.run(f"echo 0 > {TPG}/enable && rmdir {TPG}/np/* && rm {TPG}/lun/lun_0/disk && rmdir {TPG}/lun/lun_0 {TPG} "
               f"{scsi.TARGET}/iscsi/{IQN} {scsi.TARGET}/iscsi && {scsi.drop_backstore()}")
    target.run("modprobe -r ib_isert")
    target.run("timeout 60 rmmod softwarp")
    sh("timeout 60 rmmod softwarp")


CASES = [
    ("log in, write and verify, compare with the target's disk", lambda: scsi.write_and_verify(LoggedIn)),
    ("log out and in, data still there", lambda: scsi.data_survives_logout(LoggedIn)),
    ("link lost in the middle of fio", link_lost),
    ("portal removed and made again in the middle of fio", portal_removed),
    ("over IPv6", over_ipv6),
]
