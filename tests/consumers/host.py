# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What the cases of scripts/consumers share: commands on both hosts, waiting, fio, hashes, the device's counters.

This host is the initiator or client, with sw0; the target or server is the other guest, with sw1, and does what
Target.run() says.  Runs in the guest, so it imports nothing of the harness.
"""

import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

OUT = pathlib.Path(os.environ.get("SOFTWARP_OUT", "."))
OURS4, OURS6, TARGET4, TARGET6 = "10.77.0.1", "fd77::1", "10.77.0.2", "fd77::2"
AGENT_PORT = 7077
MIB = 1 << 20
# An emulated processor is slow; nothing here depends on how long something took, only on that it ended.
PATIENCE = 120
SHORT = "--short" in sys.argv
# MiB that fio writes and reads unless told otherwise
SIZE = 12 if SHORT else 24


# Is the target this host, too?  One machine with both ends of the link, see one_namespace().
ALONE = os.environ.get("SOFTWARP_NET") == "veth"


class Broken(Exception):
    """A case failed; the text says how."""


def sh(command: str, timeout: float = PATIENCE, check: bool = True) -> str:
    """Output of a shell command on this host, which must succeed."""
    try:
        done = subprocess.run(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        raise Broken(f"hangs: {command}: nothing after {timeout} s\n{(late.stdout or b'').decode()}") from late
    if check and done.returncode:
        raise Broken(f"{command}: code {done.returncode}\n{done.stdout}")
    return done.stdout


def write(path, text) -> None:
    """Write to a file of sysfs or configfs, once: a buffered stream tries again when it is closed."""
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise Broken(f"{path} does not take {text}: {error}") from error


def wait(what: str, condition, timeout: float = PATIENCE):
    """Wait until the condition is true; returns what it returned."""
    limit = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > limit:
            raise Broken(f"not after {timeout} s: {what}")
        time.sleep(0.1)


class Target:
    """The other host."""

    _pool = concurrent.futures.ThreadPoolExecutor()

    def run(self, command: str, timeout: float = PATIENCE, check: bool = True) -> str:
        """Output of a shell command there, which must succeed.  Survives a link that is down for a while."""
        if ALONE:
            return sh(command, timeout, check)
        request = json.dumps({"command": command, "timeout": timeout}).encode() + b"\n"
        with socket.create_connection((TARGET4, AGENT_PORT), timeout + 60) as link:
            link.sendall(request)
            text = link.makefile("r", encoding="utf-8").readline()
        if not text:
            raise Broken(f"the target gave no answer to: {command}")
        answer = json.loads(text)
        if answer["code"] == -1:
            raise Broken(f"hangs on the target: {command}: nothing after {timeout} s\n{answer['output']}")
        if check and answer["code"]:
            raise Broken(f"on the target, {command}: code {answer['code']}\n{answer['output']}")
        return answer["output"]

    def start(self, command: str, timeout: float = PATIENCE) -> concurrent.futures.Future:
        """The same in the background; result() gives the output."""
        return self._pool.submit(self.run, command, timeout)

    def cut(self, seconds: float, meanwhile: str = "true") -> concurrent.futures.Future:
        """Take the link down for a while, and run something there before it comes up again."""
        return self.start(f"set -e; ip link set net1 down; sleep {seconds}; {{ {meanwhile}; }} || code=$?; "
                          "ip link set net1 up; ip address replace fd77::2/64 dev net1 nodad; exit ${code:-0}")


target = Target()


def counter(name: str, device: str = "sw0") -> int:
    """A counter of our device, 0 when there is no device."""
    path = pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}")
    try:
        return int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0


def moved() -> int:
    """Octets that sw0 has sent and received so far."""
    # The core keeps a reading for some milliseconds.
    time.sleep(0.02)
    return counter("tx_bytes") + counter("rx_bytes")


class Carried:
    """What happens in the with-block has to move at least this many octets through sw0."""

    def __init__(self, octets: int):
        self.octets = octets

    def __enter__(self):
        self.before = moved()
        return self

    def __exit__(self, kind, *_):
        if kind is None and moved() - self.before < self.octets:
            raise Broken(f"sw0 moved {moved() - self.before} octets where {self.octets} were due")


def fio_command(where: str, *more: str, size: str = f"{SIZE}m") -> list[str]:
    """Writes a device, or a file in a directory, in blocks of several sizes, then reads and verifies it."""
    place = f"--directory={where}" if os.path.isdir(where) else f"--filename={where}"
    return ["fio", "--name=verify", place, f"--size={size}", "--ioengine=libaio", "--direct=1", "--iodepth=16",
            "--rw=randwrite", "--bsrange=4k-256k", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randseed=7",
            "--thread", *more]


def fio(where: str, *more: str, size: str = f"{SIZE}m", timeout: float = 3 * PATIENCE) -> None:
    """fio to its end, everything verified."""
    Fio(where, *more, size=size).finish(timeout)


class Fio:
    """fio in the background."""

    def __init__(self, where: str, *more: str, size: str = f"{SIZE}m"):
        self.log = open(OUT / "fio.log", "w+", encoding="utf-8")
        self.before = moved()
        self.process = subprocess.Popen(fio_command(where, *more, size=size), stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, text=True)

    def text(self) -> str:
        """What it has printed."""
        self.log.seek(0)
        return self.log.read()

    def alive(self) -> None:
        """It must still have something to do, or what happens now is not in its middle."""
        if self.process.poll() is not None:
            raise Broken(f"fio has ended already, code {self.process.returncode}\n{self.text()}")

    def under_way(self, octets: int = 2 * MIB) -> None:
        """Wait until it has moved something, and has not ended."""
        before = moved()
        wait("fio moves data", lambda: self.process.poll() is not None or moved() - before > octets)
        self.alive()

    def finish(self, timeout: float = 3 * PATIENCE) -> None:
        """Wait for its end, which has to be good."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            sh("echo w > /proc/sysrq-trigger", check=False)
            raise Broken(f"fio hangs\n{self.text()}") from late
        text = self.text()
        self.log.close()
        if self.process.returncode or "err= 0" not in text:
            raise Broken(f"fio: code {self.process.returncode}\n{text}")


# Slow enough that something can happen in the middle; the figure holds for reads and writes each.
SLOW = ("--rate=3m", )


def digest_command(path: str, mib: int) -> str:
    """A command that prints the hash of the first MiBs of a file or device, read from the medium."""
    return f"blockdev --flushbufs {path} 2>/dev/null; dd if={path} bs=1M count={mib} status=none | sha256sum"


def same(ours: str, theirs: str, mib: int) -> None:
    """The first MiBs of a file or device of this host and of one of the target are the same, and not all zeros."""
    sh("sync")
    target.run("sync")
    here, there = sh(digest_command(ours, mib)).split()[0], target.run(digest_command(theirs, mib)).split()[0]
    if here != there:
        raise Broken(f"{ours} here and {theirs} on the target differ")
    if here == sh(f"head -c {mib}M /dev/zero | sha256sum").split()[0]:
        raise Broken(f"{ours} is all zeros")


def modules(*names: str) -> None:
    """Load modules of this kernel on this host."""
    sh(f"modprobe -a {' '.join(names)}")


def target_modules(*names: str) -> None:
    """Load modules of this kernel on the target."""
    target.run(f"modprobe -a {' '.join(names)}")


def ram_disk(mib: int) -> str:
    """A block device in the target's memory."""
    target.run(f"modprobe brd rd_nr=1 rd_size={mib * 1024}")
    return "/dev/ram0"


def make_device(here: bool) -> None:
    """Make the RDMA device of this host or of the target; loads the driver."""
    (sh if here else target.run)("rdma link add " + ("sw0 type softwarp netdev net0" if here else
                                                     "sw1 type softwarp netdev net1"))


def one_namespace() -> None:
    """Have both ends of the link in this namespace, where the kernel's RDMA users look for devices.

    What goes from one to the other goes through the link all the same: the local table, which would keep it here, is asked
    only for packets that come from there.
    """
    sh("""set -e
ip netns exec peer rdma link delete sw1
ip netns exec peer ip link set net1 netns 1
ip link set net1 up
ip address add 10.77.0.2/24 dev net1
ip rule add pref 1 iif net0 lookup local
ip rule add pref 2 iif net1 lookup local
ip rule add pref 3 to 127.0.0.0/8 lookup local
ip rule del pref 0
ip route add 10.77.0.2 dev net0 src 10.77.0.1
ip route add 10.77.0.1 dev net1 src 10.77.0.2
sysctl -qw net.ipv4.conf.net0.accept_local=1 net.ipv4.conf.net1.accept_local=1
""")
    make_device(here=False)


def remake_device(here: bool) -> None:
    """Remove the RDMA device of this host or of the target from under its users, and make it again."""
    (sh if here else target.run)(f"timeout 60 rdma link delete {'sw0' if here else 'sw1'}")
    make_device(here)
