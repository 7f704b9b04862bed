#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/interop that runs in the guest: ours is sw0 in this namespace, siw is sw1 in `peer`.

Appends a JSON object per case to $SOFTWARP_OUT/results.jsonl, and leaves a capture of small packets per phase.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import measure  # noqa: E402
import results  # noqa: E402

OUT = pathlib.Path(os.environ["SOFTWARP_OUT"])
PLAN = json.loads((OUT / "plan.json").read_text())
POLICY = pathlib.Path("/sys/class/infiniband/sw0/mpa")
KNOBS = pathlib.Path("/sys/module/siw_knobs/parameters")
CASES = results.Cases(OUT / "results.jsonl")
# Seconds for perftest, whose server gives up after 120 without a message; and when to look what a client hangs in
PERFTEST, LOOK = 300, 60
OURS, SIW = (measure.OWN4, measure.OWN6), (measure.PEER4, measure.PEER6)


def set_all(where: pathlib.Path, values: dict) -> None:
    """Write policy or parameters; values that the driver refuses end the phase."""
    for name, value in values.items():
        try:
            (where / name).write_text(f"{value}\n")
        except OSError as error:
            raise measure.Broken(f"{where / name} does not take {value}: {error}") from error


class Capture:
    """Packets of up to 700 octets, MPA's frames among them, in a file; on disk when the with-block ends."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __enter__(self):
        self.process = subprocess.Popen(["tcpdump", "-Z", "root", "-i", "net0", "-s", "700", "-B", "8192", "-U", "-w",
                                         self.path, "tcp and less 700"], stderr=subprocess.PIPE, text=True)
        while "listening on" not in (line := self.process.stderr.readline()):
            if not line:
                raise measure.Broken("tcpdump did not start")
        return self

    def __exit__(self, *_):
        # tcpdump does not write what it has not yet seen when it is told to end.
        size, still = -1, 0
        while still < 5:
            time.sleep(0.2)
            still = still + 1 if self.path.stat().st_size == size else 0
            size = self.path.stat().st_size
        self.process.terminate()
        self.process.communicate()


def traffic(phase: dict) -> None:
    """One phase: set both devices up, run the tests of its filter."""
    name = phase["name"]
    for device in ("sw0", "sw1"):
        if os.path.exists(f"/sys/class/infiniband/{device}"):
            measure.sh("rdma", "link", "delete", device)
    measure.sh("rdma", "link", "add", "sw0", "type", "softwarp", "netdev", "net0")
    if phase["knobs"] is not None:
        set_all(KNOBS, {"mpa_crc_required": "N", "mpa_crc_strict": "N", "peer_to_peer": "N", "mpa_version": 2,
                        "rtr_type": 0x00c0} | phase["knobs"])
    measure.sh(*measure.IN_PEER, "rdma", "link", "add", "sw1", "type", "siw" if phase["knobs"] is None else "siw_knobs",
               "netdev", "net1")
    set_all(POLICY, phase["policy"])
    env = {**os.environ, "SOFTWARP_E2E_SCALE": PLAN["scale"], "SOFTWARP_E2E_QUICK": "1" if PLAN["quick"] else "0"}
    with Capture(OUT / f"{phase['file']}.pcap"):
        try:
            done = subprocess.run([PLAN["program"], f"--gtest_filter={phase['filter']}"], capture_output=True, text=True,
                                  env=env, timeout=PLAN["patience"], check=False)
            text, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            text, code = (late.stdout or b"").decode(errors="replace"), -1
    planned = re.search(r"Running (\d+) tests? from", text)
    found = re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] Interop/(\w+)\.(\w+)/(\w+)\d?[^\n]*\(\d+ ms\)$", text, re.MULTILINE)
    for verdict, suite, test, way in found:
        side, family = ("ours connects" if way[:-1] == "Client" else "siw connects"), f"IPv{way[-1]}"
        lines = re.search(rf"\[ RUN +\] Interop/{suite}\.{test}/{way}\n(.*?)^\[ +(?:FAILED|SKIPPED) ", text,
                          re.MULTILINE | re.DOTALL)
        words = re.sub(r"(?<=[a-z])([A-Z])", r" \1", test if suite == "Traffic" else f"{suite}, {test}").lower()
        CASES.add(f"{name}: {words}, {side}, {family}", verdict == "OK",
             lines[1] if lines and verdict != "OK" else "")
    missing = (int(planned[1]) if planned else 1) - len(found)
    if missing or (code and all(result[0] == "OK" for result in found)):
        CASES.add(f"{name}: {missing} tests that did not end, exit code {code}", False, text)


class Stuck(measure.Broken):
    """A client that took long and failed; the identifiers of rdma_cm meanwhile, or nothing."""

    def __init__(self, text: str, cm_ids: str):
        super().__init__(f"{text}\nmeanwhile:\n{cm_ids}")
        self.cm_ids = cm_ids


class Meanwhile:
    """What `rdma resource show cm_id` prints a while after this began; "" if it ended before."""

    def __init__(self, seconds: float):
        self.text = ""
        self.timer = threading.Timer(seconds, self.look)

    def look(self) -> None:
        self.text = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True, check=False).stdout

    def __enter__(self):
        self.timer.start()
        return self

    def __exit__(self, *_):
        self.timer.cancel()
        self.timer.join()


def is_in_another_order(cm_ids: str) -> bool:
    """Whether the two ends have made their queue pairs for the same connections in different orders."""
    ports = {}
    for device, end in (("sw0", "src"), ("sw1", "dst")):
        pairs = re.findall(rf"^link {device}/.* lqpn (\d+) .* {end}-addr \S+:(\d+)", cm_ids, re.MULTILINE)
        ports[device] = [port for _, port in sorted((int(number), port) for number, port in pairs)]
    return len(ports["sw0"]) > 1 and ports["sw0"] != ports["sw1"] and sorted(ports["sw0"]) == sorted(ports["sw1"])


def served(server, port: int, ours_connects: bool, client, patience=float("inf")) -> str:
    """What a client printed who succeeded; its server has to end well, too, and by itself."""
    running = measure.Server(server, port, peer=ours_connects)
    meanwhile = Meanwhile(LOOK)
    try:
        with running, meanwhile:
            text = measure.client([*([] if ours_connects else measure.IN_PEER), *client],
                                  min(PLAN["patience"], patience))
            code = running.process.wait(timeout=60)
    except measure.Broken as broken:
        raise Stuck(f"{broken}\nthe server:\n{getattr(running, 'text', '')}", meanwhile.text) from broken
    except subprocess.TimeoutExpired as late:
        raise measure.Broken(f"the server did not end: {' '.join(server)}\n{running.text}") from late
    if not measure.ended_well(server, code, running.text):
        raise measure.Broken(f"{' '.join(server)} ended with code {code}\n{running.text}")
    return text


def run_rping(ours_connects: bool, six: bool) -> None:
    """rping with verified data."""
    address = (SIW if ours_connects else OURS)[six]
    port = measure.next_port()
    args = ["rping", "-p", str(port), "-a", address, "-C", "100", "-S", "4000", "-V"]
    served([*args, "-s"], port, ours_connects, [*args, "-c"])


def run_perftest(tool: str, qps: int, ours_connects: bool) -> None:
    """A perftest program, made by rdma_cm; it has to end well on both sides and to have moved something."""
    address = (SIW if ours_connects else OURS)[0]
    for left in (2, 1, 0):
        port = measure.next_port()
        args = [tool, "-R", "-F", "-p", str(port), "-n", str(PLAN["iterations"])]
        args += ["-s", "65536" if tool.endswith("_bw") else "64", *(["-q", str(qps)] if qps > 1 else [])]
        server = ["env", f"SOFTWARP_BIND={address}", f"LD_PRELOAD={PLAN['bind_here']}", *args,
                  "-d", "sw1" if ours_connects else "sw0"]
        try:
            text = served(server, port, ours_connects, [*args, "-d", "sw0" if ours_connects else "sw1", address], PERFTEST)
            break
        except Stuck as broken:
            # perftest connects twice, and its server listens anew in between: a client that is faster is refused.
            if "Failed to connect RDMA CM events" in str(broken) and left:
                print(f"softwarp: interop: {tool}: refused before its server listened again, once more", file=sys.stderr)
                continue
            # The server of ib_send_bw gives its credits by the order of connections, and siw may report them in another one:
            # then a queue pair gets those of another, more than it has sent, and never sends.
            if tool == "ib_send_bw" and is_in_another_order(broken.cm_ids) and left:
                print(f"softwarp: interop: {tool}: the server took its connections in another order, once more", file=sys.stderr)
                continue
            raise
    rows = [line.split() for line in text.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.infa-]+ ", line)]
    if not rows or any(int(row[1]) < PLAN["iterations"] * qps for row in rows):
        raise measure.Broken(f"{tool} did not do {PLAN['iterations']} iterations on {qps} QPs\n{text}")


def attempt(case: str, function, *args) -> None:
    """A program that has to succeed."""
    try:
        function(*args)
    except measure.Broken as broken:
        CASES.add(case, False, str(broken))
    else:
        CASES.add(case, True)


def programs(phase: str, which: str) -> None:
    """rping and perftest; "first" are those whose server speaks first, with siw as client."""
    for ours in (True, False) if which == "all" else (False,):
        side = "ours connects" if ours else "siw connects"
        for six in (False, True) if which == "all" else ():
            attempt(f"{phase}: rping, {side}, IPv{6 if six else 4}", run_rping, ours, six)
        for tool in PLAN["perftest"]:
            # Of perftest, ib_write_lat's server alone writes first: not before siw's client sent something, an RTR at least.
            if (tool == "ib_write_lat" and not ours) != (which == "first"):
                continue
            for qps in (1, 8) if tool.endswith("_bw") else (1,):
                attempt(f"{phase}: {tool}, {qps} QP{'s' if qps > 1 else ''}, {side}", run_perftest, tool, qps, ours)


def main() -> int:
    measure.sh("rdma", "link", "delete", "swlo")
    measure.sh("insmod", PLAN["siw"]) if PLAN["siw"] else measure.sh("modprobe", "siw")
    measure.sh("insmod", PLAN["siw_knobs"])
    begin = time.monotonic()
    for phase in PLAN["phases"]:
        print(f"softwarp: interop: {phase['name']}, {time.monotonic() - begin:.0f} s so far", file=sys.stderr, flush=True)
        try:
            traffic(phase)
        except measure.Broken as broken:
            CASES.add(f"{phase['name']}: set-up", False, str(broken))
        if phase["programs"]:
            with Capture(OUT / f"{phase['file']}-programs.pcap"):
                programs(phase["name"], phase["programs"])
    (OUT / "done").touch()
    return 0


sys.exit(main())
