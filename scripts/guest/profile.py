#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/profile that runs in the guest: one measurement, while the host samples, or perf(1) does here.

Reads $SOFTWARP_OUT/plan.json; leaves kallsyms, go (when it is about to begin, and waits for the host's "sampling"), result.json
and perf.txt there, the last one only if it is to sample itself.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import measure  # noqa: E402

OUT = pathlib.Path(os.environ["SOFTWARP_OUT"])


def sample(seconds: int, frequency: int, over: threading.Event, problem: list) -> None:
    """Of all processors, by a timer, since an emulated one counts no cycles.  @over: the measurement has ended."""
    data = "/run/perf.data"
    try:
        # the beginning is not typical: buffers and windows grow
        time.sleep(1)
        measure.sh("perf", "record", "-q", "-a", "-F", str(frequency), "-e", "cpu-clock", "-o", data, "--", "sleep",
                   str(seconds))
        if over.is_set():
            problem.append("perf began so late that it saw the end of the measurement: is the machine busy?")
        with open(OUT / "perf.txt", "wb") as text:
            subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym,dso"], stdout=text, check=True)
    except (measure.Broken, subprocess.CalledProcessError) as broken:
        problem.append(str(broken))


def begun(sign: pathlib.Path) -> bool:
    """Wait for the sign that the host samples."""
    limit = time.monotonic() + 60
    while not sign.exists():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


def main() -> int:
    plan = json.loads((OUT / "plan.json").read_text())
    test, size, streams, seconds = (plan[name] for name in ("test", "size", "streams", "seconds"))
    measure.sh("insmod", plan["sdp_module"])
    (OUT / "kallsyms").write_text(pathlib.Path("/proc/kallsyms").read_text(encoding="ascii"), encoding="ascii")
    kind, _, how = test.partition("-")
    count = 0
    if how == "latency" and kind not in ("sdp", "tcp"):
        # a read is both ways, what perftest says of the others is half of that
        count = int(seconds * 1e6 / measure.perftest_lat(kind, size, 5000) / (1 if kind == "read" else 2))
    (OUT / "go").touch()
    problem: list[str] = []
    over = threading.Event()
    sampler = threading.Thread(target=sample, args=(plan["sample"], plan["frequency"], over, problem))
    if plan["here"]:
        sampler.start()
    elif not begun(OUT / "sampling"):
        problem.append("perf did not begin")
    if how == "connect":
        rate = measure.sockets(plan["socket_program"], kind == "sdp", "connect", 1, streams, seconds)
        what = f"{kind.upper()}, connections one after the other, {streams} at a time"
    elif how == "latency" and kind in ("sdp", "tcp"):
        rate = 2e6 / measure.sockets(plan["socket_program"], kind == "sdp", "echo", size, 1, seconds)
        what = f"{kind.upper()}, {size} octets there and back"
    elif how == "latency":
        rate = 1e6 / measure.perftest_lat(kind, size, count)
        what = f"latency of a {kind} of {size} octets, {1e6 / rate:.1f} us"
    elif kind in ("sdp", "tcp"):
        rate = measure.sockets(plan["socket_program"], kind == "sdp", "stream", size, streams, seconds)
        what = f"{kind.upper()}, {streams} connections, blocks of {size} octets"
    else:
        rate = measure.perftest_bw(test, size, streams, seconds) * size / 1e6
        what = f"{test}, {streams} queue pairs, messages of {size} octets"
    over.set()
    each = {"connect": "connection", "latency": "message"}.get(how, "")
    (OUT / "result.json").write_text(json.dumps({"what": what, "rate": rate, "size": size, "each": each}))
    if plan["here"]:
        sampler.join()
    for text in problem:
        print(text, file=sys.stderr)
    return 1 if problem else 0


sys.exit(main())
