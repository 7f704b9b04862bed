#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/dissect that runs in the guest: for each run set both devices up, capture all packets, count.

Leaves NAME.pcap and NAME.json (the devices' own counters and what the programs said) in $SOFTWARP_OUT per run.  The run
"sdp" has SDP sockets instead, and their counters.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import measure  # noqa: E402

OUT = pathlib.Path(os.environ["SOFTWARP_OUT"])
PLAN = json.loads((OUT / "plan.json").read_text())


def counters(device: str) -> dict:
    """What the device counted since it was made."""
    # The core keeps values for ten milliseconds.
    time.sleep(0.05)
    text = subprocess.run(["rdma", "statistic", "show", "link", f"{device}/1"], capture_output=True, text=True,
                          check=True).stdout
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", text)}


def offloads(on: bool) -> None:
    """Segments as they are on a wire, or as a stack with segmentation offload passes them on."""
    state = "on" if on else "off"
    for prefix, netdev in (([], "net0"), (measure.IN_PEER, "net1")):
        measure.sh(*prefix, "ethtool", "-K", netdev, "tso", state, "gso", state, "gro", "off")


@contextlib.contextmanager
def packets(path: pathlib.Path, which: str):
    """All packets of the with-block in a file."""
    with subprocess.Popen(["tcpdump", "-Z", "root", "-i", "net0", "-s", "0", "-B", "65536", "-U", "-w", path, which],
                          stderr=subprocess.PIPE, text=True) as tcpdump:
        while "listening on" not in (line := tcpdump.stderr.readline()):
            if not line:
                raise measure.Broken("tcpdump did not start")
        try:
            yield
            # tcpdump does not write what it has not yet seen when it is told to end.
            size, still = -1, 0
            while still < 5:
                time.sleep(0.2)
                still = still + 1 if path.stat().st_size == size else 0
                size = path.stat().st_size
        finally:
            tcpdump.terminate()
        text = tcpdump.stderr.read()
    lost = re.search(r"(\d+) packets? dropped by kernel", text)
    if not lost or int(lost[1]):
        raise measure.Broken(f"packets were lost on their way to the file\n{text}")


def devices(one: dict) -> None:
    """Both devices, new."""
    for device in ("sw0", "sw1", "swlo"):
        if os.path.exists(f"/sys/class/infiniband/{device}"):
            measure.sh("rdma", "link", "delete", device)
    offloads(one["offload"])
    measure.sh("rdma", "link", "add", "sw0", "type", "softwarp", "netdev", "net0")
    measure.sh(*measure.IN_PEER, "rdma", "link", "add", "sw1", "type", "softwarp", "netdev", "net1")
    for device, policy in (("sw0", one["ours"]), ("sw1", one["peer"])):
        for key, value in policy.items():
            pathlib.Path(f"/sys/class/infiniband/{device}/mpa/{key}").write_text(f"{value}\n")


def run(name: str, one: dict) -> dict:
    """A run of verbs."""
    devices(one)
    with packets(OUT / f"{name}.pcap", "tcp"):
        env = {**os.environ, "SOFTWARP_INTEROP_PEER": "softwarp", "SOFTWARP_E2E_QUICK": "1",
               "SOFTWARP_E2E_SCALE": PLAN["scale"]}
        done = subprocess.run([PLAN["program"], f"--gtest_filter={one['filter']}"], capture_output=True, text=True, env=env,
                              timeout=PLAN["patience"], check=False)
    return {"sw0": counters("sw0"), "sw1": counters("sw1"), "code": done.returncode, "text": done.stdout + done.stderr}


def sdp_counters(*prefix: str) -> dict:
    """What SDP has counted in a namespace."""
    text = subprocess.run([*prefix, "cat", "/proc/net/softwarp_sdp_stat"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}


def run_sdp(name: str, one: dict) -> dict:
    """SDP sockets between both hosts."""
    devices(one)
    measure.sh("insmod", PLAN["sdp"])
    talk = [sys.executable, "-B", str(pathlib.Path(__file__).resolve().parent / "talk.py")]
    with packets(OUT / f"{name}.pcap", "tcp or udp port 3935"):
        with subprocess.Popen([*measure.IN_PEER, *talk, "serve"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as server:
            if (line := server.stdout.readline()) != "ready\n":
                raise measure.Broken(f"the server did not start\n{line}{server.stdout.read()}")
            done = subprocess.run([*talk, "connect"], capture_output=True, text=True, timeout=PLAN["patience"], check=False)
            if done.returncode:
                server.kill()
            said, _ = server.communicate(timeout=PLAN["patience"])
        # the ends of the last connection
        time.sleep(1)
    return {"here": sdp_counters(), "there": sdp_counters(*measure.IN_PEER), "code": done.returncode or server.returncode,
            "text": done.stdout + done.stderr + said}


def main() -> int:
    for name, one in PLAN["runs"].items():
        print(f"softwarp: dissect: {name}", file=sys.stderr, flush=True)
        try:
            result = (run if one.get("filter") else run_sdp)(name, one)
        except (measure.Broken, OSError, subprocess.TimeoutExpired) as broken:
            result = {"code": -1, "text": str(broken)}
        (OUT / f"{name}.json").write_text(json.dumps(result))
    return 0


sys.exit(main())
