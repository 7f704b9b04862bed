# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""NFS over RDMA: the kernel's server with a tmpfs exported, the kernel's client."""

import hashlib
import os
import pathlib

from host import (MIB, SIZE, SLOW, TARGET4, TARGET6, Broken, Carried, Fio, counter, fio, modules, remake_device, sh, target,
                  target_modules, wait)

TITLE = "NFS"
EXPORT = "/srv/softwarp-export"
MOUNT = pathlib.Path("/mnt/softwarp-nfs")
# Seconds; the least that the server takes.  Reclaiming after a restart holds up who has no state for so long.
LEASE = 10
PORTS = {"rdma": 20049, "tcp": 2049}
START = f"rpc.nfsd --rdma={PORTS['rdma']} 8"
STOP = "rpc.nfsd 0"


def set_up() -> None:
    target_modules("nfsd", "rpcrdma")
    target.run(f"mkdir -p {EXPORT} /var/lib/nfs/v4recovery /run/rpcbind && mount -t tmpfs -o size=256m tmpfs {EXPORT} && "
               "chmod 777 " + EXPORT)
    target.run("mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd")
    target.run(f"rpcbind && exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 '*:{EXPORT}'")
    target.run(f"echo {LEASE} > /proc/fs/nfsd/nfsv4leasetime && echo {LEASE} > /proc/fs/nfsd/nfsv4gracetime")
    target.run(f"rpc.mountd && {START}")
    modules("nfs", "nfsv4", "nfsv3", "rpcrdma")
    MOUNT.mkdir(parents=True, exist_ok=True)


def mounted() -> bool:
    return os.path.ismount(MOUNT)


class Mounted:
    """The export for the with-block."""

    def __init__(self, address: str = TARGET4, options: str = "vers=4.2", path: str = "/", transport: str = "rdma"):
        self.proto = transport + ("6" if address.startswith("[") else "")
        self.command = (f"mount -t nfs -o {options},proto={self.proto},port={PORTS[transport]},sec=sys "
                        f"'{address}:{path}' {MOUNT}")

    def __enter__(self):
        if mounted():
            # left behind by a case that failed
            sh(f"umount -f -l {MOUNT}", check=False)
        sh(self.command)
        text = sh(f"grep ' {MOUNT} ' /proc/mounts")
        if f"proto={self.proto}," not in text:
            raise Broken(f"mounted otherwise: {text}")

    def __exit__(self, kind, *_):
        if kind is None or mounted():
            sh(f"umount {MOUNT}")


def clean() -> None:
    target.run(f"rm -rf {EXPORT}/*")


def write_and_compare() -> None:
    """Files of many sizes, written here, hashed there, read back here past the cache."""
    hashes = {}
    with Mounted(), Carried(2 * 20 * MIB):
        for size in (0, 1, 511, 4096, 4097, 65535, MIB - 1, MIB, MIB + 1, 17 * MIB + 3):
            data = os.urandom(size)
            (MOUNT / f"file-{size}").write_bytes(data)
            hashes[f"file-{size}"] = hashlib.sha256(data).hexdigest()
        many = MOUNT / "many"
        many.mkdir()
        for number in range(64):
            (many / f"{number}").write_bytes(b"%d" % number * number)
        sh("sync")
        there = dict(reversed(line.split()) for line in target.run(f"cd {EXPORT} && sha256sum file-*").splitlines())
        if there != hashes:
            raise Broken(f"written here: {hashes}\nfound there: {there}")
        sh("echo 3 > /proc/sys/vm/drop_caches")
        for name, value in hashes.items():
            if hashlib.sha256((MOUNT / name).read_bytes()).hexdigest() != value:
                raise Broken(f"{name} is not read as it was written")
        if sorted(os.listdir(many)) != sorted(str(number) for number in range(64)):
            raise Broken("the directory is not listed as it is")
    with Mounted():
        for name, value in hashes.items():
            if hashlib.sha256((MOUNT / name).read_bytes()).hexdigest() != value:
                raise Broken(f"{name} is not the same after another mount")
    clean()


def verify_file(options: str = "vers=4.2", address: str = TARGET4, path: str = "/") -> None:
    with Mounted(address, options, path), Carried(2 * SIZE * MIB):
        fio(str(MOUNT))
    clean()


def in_the_middle(what) -> None:
    """fio goes on, and ends well, though its connection is lost."""
    with Mounted():
        job = Fio(str(MOUNT), *SLOW)
        job.under_way()
        before = counter("connect_active")
        what()
        wait("the client has connected again", lambda: counter("connect_active") > before)
        job.under_way(MIB)
        job.finish()
    clean()


def server_restart() -> None:
    in_the_middle(lambda: target.run(f"{STOP} && sleep 2 && {START}"))


def link_lost() -> None:
    # TCP outlives a link that is down for seconds; the client's RPC timer has to give up first
    in_the_middle(lambda: (target.cut(5).result(), target.run(f"{STOP} && {START}")))


def our_device_removed() -> None:
    with Mounted():
        job = Fio(str(MOUNT), *SLOW)
        job.under_way()
        # a new device counts from zero
        remake_device(here=True)
        wait("the client has connected again", lambda: counter("connect_active") > 0)
        job.under_way(MIB)
        job.finish()
    clean()


def server_device_removed() -> None:
    # the server's listener went with the device
    in_the_middle(lambda: (remake_device(here=False), target.run(f"{STOP} && {START}")))


def tear_down() -> None:
    if mounted():
        sh(f"umount -f {MOUNT}")
    target.run(f"{STOP} && exportfs -ua && pkill rpc.mountd; pkill rpcbind; sleep 1; umount /proc/fs/nfsd {EXPORT}")
    sh("modprobe -r rpcrdma", check=False)
    target.run("timeout 60 rmmod softwarp")
    sh("timeout 60 rmmod softwarp")


CASES = [
    ("version 4.2, files of many sizes compared on both hosts, mounted twice", write_and_compare, "short"),
    ("version 4.2, fio", verify_file),
    ("version 3, fio", lambda: verify_file("vers=3,nolock,mountproto=tcp", path=EXPORT)),
    ("version 4.1 over IPv6, fio", lambda: verify_file("vers=4.1", f"[{TARGET6}]")),
    ("server restarted in the middle of fio", server_restart, "short"),
    ("link down, then the server restarted, in the middle of fio", link_lost),
    ("the server's device removed and made again in the middle of fio", server_device_removed),
    ("our device removed and made again in the middle of fio", our_device_removed),
]
