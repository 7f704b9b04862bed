# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""NVMe over Fabrics: nvmet-rdma with a RAM disk behind it, nvme-rdma by nvme-cli."""

import pathlib
import re
import subprocess
import time

from host import (ALONE, MIB, PATIENCE, SHORT, SIZE, SLOW, TARGET4, TARGET6, Broken, Carried, Fio, counter, fio, make_device,
                  modules, ram_disk, remake_device, same, sh, target, target_modules, wait, write)

TITLE = "NVMe-oF"
NQN = "nqn.2026-01.org.example:softwarp"
NVMET = "/sys/kernel/config/nvmet"
SUBSYSTEM = f"{NVMET}/subsystems/{NQN}"
DISK_MIB = 64
KEEP_ALIVE = 5  # seconds
PORTS = {"rdma": 4420, "tcp": 4421}
disk = ""


# The target ------------------------------------------------------------------


def make_port(number: int = 1, address: str = TARGET4, family: str = "ipv4", transport: str = "rdma") -> str:
    """Commands that make a port and let the subsystem be reached by it."""
    port = f"{NVMET}/ports/{number}"
    return (f"mkdir {port} && cd {port} && echo {transport} > addr_trtype && echo {family} > addr_adrfam && "
            f"echo {address} > addr_traddr && echo {PORTS[transport]} > addr_trsvcid && ln -s {SUBSYSTEM} subsystems/{NQN}")


def drop_port(number: int = 1) -> str:
    """Commands that remove it, connected controllers or not."""
    return f"rm {NVMET}/ports/{number}/subsystems/{NQN} && rmdir {NVMET}/ports/{number}"


def set_up() -> None:
    global disk
    target_modules("configfs", "nvmet", "nvmet-rdma")
    disk = ram_disk(DISK_MIB)
    target.run("mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config")
    target.run(f"mkdir {SUBSYSTEM} && cd {SUBSYSTEM} && echo 1 > attr_allow_any_host && mkdir namespaces/1 && "
               f"echo {disk} > namespaces/1/device_path && echo 1 > namespaces/1/enable")
    target.run(make_port())
    modules("nvme-rdma")


# The initiator ---------------------------------------------------------------


def controllers() -> list[pathlib.Path]:
    return sorted(pathlib.Path("/sys/class/nvme").glob("nvme*"))


def connect(address: str = TARGET4, transport: str = "rdma") -> None:
    sh(f"nvme connect -t {transport} -a {address} -s {PORTS[transport]} -n {NQN} --keep-alive-tmo={KEEP_ALIVE} "
       "--reconnect-delay=1 --ctrl-loss-tmo=300 --nr-io-queues=2")


def block_device() -> str:
    """The one namespace, once it is there."""
    def found():
        # nvme0c0n1 is one path to it
        names = [path.name for path in pathlib.Path("/sys/block").iterdir() if re.fullmatch(r"nvme\d+n1", path.name)]
        return names if len(names) == 1 and pathlib.Path(f"/dev/{names[0]}").exists() else None
    return "/dev/" + wait("the namespace appears", found)[0]


def state() -> str:
    """Of the one controller; nothing if there is none any more."""
    try:
        return (controllers()[0] / "state").read_text(encoding="ascii").strip()
    except (OSError, IndexError):
        return ""


def live() -> bool:
    """Is there one controller, in full operation?"""
    names = controllers()
    return len(names) == 1 and (names[0] / "state").read_text(encoding="ascii").strip() == "live"


def disconnect() -> None:
    sh(f"nvme disconnect -n {NQN}")
    wait("the controller is gone", lambda: not controllers())


class Connected:
    """A controller for the with-block."""

    def __init__(self, address: str = TARGET4, transport: str = "rdma"):
        self.address, self.transport = address, transport

    def __enter__(self) -> str:
        if controllers():
            # left behind by a case that failed
            disconnect()
        connect(self.address, self.transport)
        return block_device()

    def __exit__(self, kind, *_):
        if kind is None or controllers():
            disconnect()


def reconnected(before: int) -> None:
    """The controller is live again, by new connections."""
    wait("the controller is live again", lambda: live() and counter("connect_active") > before)


# Cases -----------------------------------------------------------------------


def write_and_verify() -> None:
    with Connected() as device, Carried(2 * SIZE * MIB):
        fio(device)
        # the largest that goes in one request, and single sectors inside a Send
        if not SHORT:
            fio(device, "--bsrange=512-1024k", "--iodepth=8", "--randseed=9", size="12m")
        same(device, disk, DISK_MIB)


def reset_in_the_middle() -> None:
    with Connected() as device:
        job = Fio(device, *SLOW)
        for _ in range(2):
            job.under_way()
            before = counter("connect_active")
            write(controllers()[0] / "reset_controller", 1)
            reconnected(before)
            job.alive()
        job.finish()
        same(device, disk, DISK_MIB)


def data_survives_disconnect() -> None:
    with Connected() as device:
        fio(device, "--randseed=11")
    with Connected() as device:
        same(device, disk, DISK_MIB)
        fio(device, "--randseed=11", "--verify_only")


def link_lost() -> None:
    with Connected() as device:
        job = Fio(device, *SLOW)
        job.under_way()
        before = counter("connect_active")
        target.cut(3 * KEEP_ALIVE).result()
        reconnected(before)
        job.alive()
        job.finish()
        same(device, disk, DISK_MIB)


def port_removed() -> None:
    with Connected() as device:
        job = Fio(device, *SLOW)
        job.under_way()
        before = counter("connect_active")
        target.run(drop_port(), 60)
        wait("the controller misses its port", lambda: not live())
        target.run(make_port())
        reconnected(before)
        job.alive()
        job.finish()
        same(device, disk, DISK_MIB)


def port_removed_after_keep_alive_loss() -> None:
    with Connected() as device:
        job = Fio(device, *SLOW)
        job.under_way()
        before = counter("connect_active")
        # both hosts give up while the link is down, and the port goes before anybody can say so to the other
        target.cut(4 * KEEP_ALIVE, f"timeout 60 sh -c '{drop_port()}'").result()
        target.run(make_port())
        reconnected(before)
        job.alive()
        job.finish()
        same(device, disk, DISK_MIB)


def over_ipv6() -> None:
    target.run(make_port(6, TARGET6, "ipv6"))
    try:
        with Connected(TARGET6) as device, Carried(2 * 12 * MIB):
            fio(device, size="12m")
            same(device, disk, DISK_MIB)
    finally:
        target.run(drop_port(6), 60)


def shared_receive_queues() -> None:
    target.run(f"{drop_port()} && modprobe -r nvmet-rdma && modprobe nvmet-rdma use_srq=1 && {make_port()}")
    try:
        with Connected() as device, Carried(2 * SIZE * MIB):
            srqs = target.run("rdma resource show srq dev sw1", check=False)
            if "srqn" not in srqs:
                raise Broken(f"the target has no shared receive queue\n{srqs}")
            job = Fio(device, *SLOW)
            job.under_way()
            before = counter("connect_active")
            write(controllers()[0] / "reset_controller", 1)
            reconnected(before)
            job.finish()
            same(device, disk, DISK_MIB)
    finally:
        target.run(f"{drop_port()} && modprobe -r nvmet-rdma && modprobe nvmet-rdma && {make_port()}")


def target_device_removed() -> None:
    with Connected() as device:
        job = Fio(device, *SLOW)
        job.under_way()
        before = counter("connect_active")
        remake_device(here=False)
        # the port's listener went with the device
        target.run(f"{drop_port()} && {make_port()}")
        reconnected(before)
        job.alive()
        job.finish()
        same(device, disk, DISK_MIB)


def our_device_removed() -> None:
    with Connected() as device:
        fio(device, size="8m")
        job = Fio(device, *SLOW)
        job.under_way()
        remake_device(here=True)
        # a host that loses its device deletes the controller; nothing may hang, fio included
        wait("fio ends", lambda: job.process.poll() is not None)
        wait("the controller is gone", lambda: not controllers())
        connect()
        same(block_device(), disk, DISK_MIB)


def netdev_removed() -> None:
    """A netdev goes: first under a controller in full operation, then under one that is being removed."""
    for leaving in (False, True):
        sh("ip link add link net0 name net5 type macvlan mode bridge && ip address add 10.77.5.1/24 dev net5 && "
           "ip link set net5 up && rdma link add sw5 type softwarp netdev net5")
        target.run("ip address add 10.77.5.2/24 dev net1 && " + make_port(5, "10.77.5.2"))
        removing = None
        try:
            connect("10.77.5.2")
            device = block_device()
            fio(device, size="4m")
            if counter("connect_active", "sw5") < 2:
                raise Broken("the connections are not those of sw5")
            if leaving:
                # what is not written yet takes its time
                sh(f"dd if=/dev/urandom of={device} bs=1M count=24 status=none")
                removing = subprocess.Popen(["nvme", "disconnect", "-n", NQN], stdout=subprocess.DEVNULL)
                wait("it is being removed", lambda: state().startswith("deleting"))
            begin = time.monotonic()
            sh("ip link delete net5")
            wait("the controller is gone", lambda: not controllers())
            wait("the device is gone", lambda: not pathlib.Path("/sys/class/infiniband/sw5").exists())
            seconds = time.monotonic() - begin
            # the one figure that tells: a command that cannot be sent waits for a minute
            if seconds > 45:
                raise Broken(f"it took {seconds:.0f} s")
        finally:
            if removing:
                removing.wait(PATIENCE)
            target.run(f"{drop_port(5)}; ip address delete 10.77.5.2/24 dev net1", 60)


def many_at_once() -> None:
    """Sixteen hosts, a queue each for administration and for data; they lose the port and connect again all at once."""
    count = 16

    def states() -> list[str]:
        return [(path / "state").read_text(encoding="ascii").strip() for path in controllers()]

    # nvme-cli takes another host for this one
    for number in range(1, count + 1):
        write("/dev/nvme-fabrics", f"transport=rdma,traddr={TARGET4},trsvcid=4420,nqn={NQN},hostnqn={NQN}:{number},"
              f"hostid=00000000-0000-0000-0000-{number:012d},nr_io_queues=1,reconnect_delay=1,ctrl_loss_tmo=300")
    try:
        wait("all are live", lambda: states() == ["live"] * count)
        before = counter("connect_active")
        target.run(drop_port(), 60)
        wait("none is live", lambda: len(states()) == count and "live" not in states())
        target.run(make_port())
        wait("all are live again", lambda: states() == ["live"] * count)
        if counter("connect_active") - before < 2 * count:
            raise Broken(f"{counter('connect_active') - before} connections")
    finally:
        sh(f"nvme disconnect -n {NQN}", 2 * PATIENCE)
    wait("the controllers are gone", lambda: not controllers())


def module_removed() -> None:
    """The driver goes while a controller is connected, at either end."""
    with Connected() as device:
        fio(device, size="4m")
        sh("timeout 60 rmmod softwarp")
        wait("the controller is gone", lambda: not controllers())
    make_device(here=True)
    with Connected() as device:
        target.run("timeout 60 rmmod softwarp", 80)
        make_device(here=False)
        target.run(f"{drop_port()} && {make_port()}")
        wait("the controller is live again", live)
        same(device, disk, DISK_MIB)


def tear_down() -> None:
    if controllers():
        disconnect()
    sh("modprobe -r nvme-rdma nvme-fabrics")
    target.run(f"{drop_port()} && echo 0 > {SUBSYSTEM}/namespaces/1/enable && rmdir {SUBSYSTEM}/namespaces/1 {SUBSYSTEM} && "
               "modprobe -r nvmet-rdma nvmet brd")
    target.run("timeout 60 rmmod softwarp")
    if not ALONE:
        sh("timeout 60 rmmod softwarp")


CASES = [
    ("connect, write and verify, compare with the target's disk", write_and_verify, "short"),
    ("controller reset twice in the middle of fio", reset_in_the_middle),
    ("disconnect and connect, data still there", data_survives_disconnect),
    ("link lost beyond keep-alive in the middle of fio", link_lost),
    ("port removed and made again in the middle of fio", port_removed, "short"),
    ("port removed after a keep-alive loss", port_removed_after_keep_alive_loss),
    ("over IPv6", over_ipv6),
    ("target with shared receive queues", shared_receive_queues),
    ("sixteen hosts lose their port and connect again at once", many_at_once),
    ("the target's device removed and made again in the middle of fio", target_device_removed),
    ("our device removed and made again in the middle of fio", our_device_removed),
    ("our netdev removed, a controller connected, a controller on its way out", netdev_removed),
    ("the driver removed and loaded again at either end", module_removed),
]
