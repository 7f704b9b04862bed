# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""How fast NVMe-oF and NFS are over RDMA and over TCP, by turns in one boot.  There is no limit to pass: a case fails only if
something goes wrong, or if the octets did not go where they should.

Appends to $SOFTWARP_OUT/speed.jsonl an object for each row: what, unit, and all samples of "rdma" and "tcp"."""

import json
import statistics

import nfs
import nvmeof
from host import OUT, SHORT, Broken, modules, moved, sh, target, target_modules

TITLE = "Speed"
ROUNDS = 1 if SHORT else 3
SECONDS = 3
# What fio does: reads or writes, KiB at a time, requests at a time, unit
LOADS = {"read, 128 KiB, 8 at a time": ("read", 128, 8, "MB/s"), "write, 128 KiB, 8 at a time": ("write", 128, 8, "MB/s"),
         "read, 4 KiB, 1 at a time": ("randread", 4, 1, "/s"), "read, 4 KiB, 32 at a time": ("randread", 4, 32, "/s"),
         "write, 4 KiB, 1 at a time": ("randwrite", 4, 1, "/s"), "write, 4 KiB, 32 at a time": ("randwrite", 4, 32, "/s")}
FILE_MIB = 48


def load(place: str, kind: str, kib: int, depth: int, unit: str) -> tuple[float, int]:
    """fio on a device, or a file; its figure, and how many octets it has moved."""
    text = sh(f"fio --name=speed --filename={place} --size={FILE_MIB}m --ioengine=libaio --direct=1 --thread --rw={kind} "
              f"--bs={kib}k --iodepth={depth} --time_based --runtime={SECONDS} --ramp_time=1 --output-format=json")
    report = json.loads(text[text.index("{"):])["jobs"][0]["write" if "write" in kind else "read"]
    if not report["total_ios"]:
        raise Broken(text)
    return report["bw_bytes"] / 1e6 if unit == "MB/s" else report["iops"], report["io_bytes"]


def by_turns(title: str, loads: dict, attached) -> None:
    """All loads, over RDMA and over TCP in turn.  attached(transport): a context with the place for fio."""
    samples = {what: {"rdma": [], "tcp": []} for what in loads}
    for number in range(2 * ROUNDS):
        # who is first changes, too
        transport = ("rdma", "tcp", "tcp", "rdma")[number % 4]
        with attached(transport) as place:
            for what, kind in loads.items():
                before = moved()
                figure, octets = load(place, *kind)
                if (moved() - before >= octets) != (transport == "rdma"):
                    raise Broken(f"{what} by {transport}: sw0 moved {moved() - before} of {octets} octets")
                samples[what][transport].append(figure)
    for what, kinds in samples.items():
        row = {"what": f"{title}: {what}", "unit": loads[what][3], **kinds}
        with open(OUT / "speed.jsonl", "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        ours, tcp = (f"{statistics.median(kinds[by]):.4g} ({min(kinds[by]):.4g}-{max(kinds[by]):.4g})"
                     for by in ("rdma", "tcp"))
        ratio = statistics.median(kinds["rdma"]) / statistics.median(kinds["tcp"])
        print(f"{row['what']:<42}{ours:>26}{tcp:>26}{ratio:>7.2f}  {row['unit']}", flush=True)


class Mounted:
    """A file of the export for the with-block."""

    def __init__(self, transport: str):
        self.mounted = nfs.Mounted(transport=transport)

    def __enter__(self) -> str:
        self.mounted.__enter__()
        return f"{nfs.MOUNT}/file"

    def __exit__(self, *error):
        self.mounted.__exit__(*error)


def set_up() -> None:
    nvmeof.set_up()
    target_modules("nvmet-tcp")
    target.run(nvmeof.make_port(2, transport="tcp"))
    modules("nvme-tcp")
    nfs.set_up()
    print(f"{'':<42}{'RDMA':>26}{'TCP':>26}{'RDMA/TCP':>9}", flush=True)


def nvme() -> None:
    with nvmeof.Connected() as device:
        # a device that was never written has no pages to read from
        sh(f"dd if=/dev/urandom of={device} bs=1M count={FILE_MIB} oflag=direct status=none")
    by_turns("NVMe-oF", LOADS, lambda transport: nvmeof.Connected(transport=transport))


def files() -> None:
    with Mounted("rdma") as file:
        sh(f"dd if=/dev/urandom of={file} bs=1M count={FILE_MIB} status=none")
    by_turns("NFS", LOADS, Mounted)
    nfs.clean()


def tear_down() -> None:
    target.run(nvmeof.drop_port(2))
    sh("modprobe -r nvme-tcp")
    target.run("modprobe -r nvmet-tcp")
    if nfs.mounted():
        sh(f"umount -f {nfs.MOUNT}")
    target.run(f"{nfs.STOP} && exportfs -ua && pkill rpc.mountd; pkill rpcbind; sleep 1; umount /proc/fs/nfsd {nfs.EXPORT}")
    sh("modprobe -r rpcrdma", check=False)
    nvmeof.tear_down()


CASES = [("NVMe-oF, RDMA and TCP in turn", nvme, "short"), ("NFS, RDMA and TCP in turn", files, "short")]
