# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What the cases in this directory share: a server in the namespace "peer", a client here, and what they said when it failed.

A case is an executable.  It runs as root in a guest with the two hosts that scripts/vm makes (sw0 at 10.77.0.1 here, sw1 at
10.77.0.2 there), prints nothing but reasons, and ends with 0 if there were none.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts/guest"))
from measure import IN_PEER, OWN4, PEER4, PEER6, Broken, Server, client, ended_well, next_port  # noqa: E402

__all__ = ["Broken", "IN_PEER", "OWN4", "PEER4", "PEER6", "Server", "attempts", "carried", "client", "counter", "next_port",
           "pair", "perftest", "refused"]

# For one program; what hangs is ended then.
PATIENCE = 60 * float(os.environ.get("SOFTWARP_E2E_SCALE", "1"))
QUICK = os.environ.get("SOFTWARP_E2E_QUICK") == "1"


def counter(name: str, device: str = "sw0") -> int:
    """A counter of our device."""
    # The core keeps a reading for ten milliseconds.
    time.sleep(0.02)
    return int(pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}").read_text(encoding="ascii"))


def carried(octets: int, function, *args):
    """Calls the function, during which at least this many octets have to go through sw0; returns what it returned."""
    before = counter("tx_bytes") + counter("rx_bytes")
    result = function(*args)
    moved = counter("tx_bytes") + counter("rx_bytes") - before
    if moved < octets:
        raise Broken(f"sw0 moved {moved} octets where {octets} were due")
    return result


def pair(server, caller, port: int, ends: bool = True, timeout: float = PATIENCE) -> str:
    """What a client printed who succeeded.  The server has to end well, by itself unless it serves for ever."""
    running = Server(server, port)
    try:
        with running:
            text = client(caller, timeout)
            code = running.process.wait(timeout=30) if ends else running.process.poll()
    except Broken as broken:
        raise Broken(f"{broken}\nthe server:\n{getattr(running, 'text', '')}") from broken
    except subprocess.TimeoutExpired as late:
        raise Broken(f"the server did not end: {' '.join(server)}\n{running.text}") from late
    if not ended_well(server, code, running.text):
        raise Broken(f"{' '.join(server)} ended with code {code}\n{running.text}")
    return text


def refused(counter_name: str, text: str, function, *args) -> None:
    """Either it works, or it fails for the reason in this text, and the device counted that."""
    before = counter(counter_name) + counter(counter_name, "sw1")
    try:
        function(*args)
    except Broken as broken:
        if text not in str(broken) or counter(counter_name) + counter(counter_name, "sw1") == before:
            raise


def perftest(tool: str, *more: str, qps: int = 1, count: int | None = 1000) -> None:
    """A program of perftest by rdma_cm; both ends end well, and it did what it was told to."""
    options = ["-R", "-F", *(["-q", str(qps)] if qps > 1 else []), *(["-n", str(count)] if count else []), *more]
    for left in (2, 1, 0):
        port = next_port()
        args = [tool, "-p", str(port), *options]
        try:
            text = pair([*args, "-d", "sw1"], [*args, "-d", "sw0", PEER4], port)
            break
        except Broken as broken:
            # It connects twice, and its server listens anew in between: a client that is faster is refused.
            if "Failed to connect RDMA CM events" not in str(broken) or not left:
                raise
    rows = [line.split() for line in text.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.infa-]+ ", line)]
    if not rows or any(int(row[1]) < (count * qps if count else 1) for row in rows):
        raise Broken(f"{' '.join(args)} did not do what it was told to\n{text}")


def attempts(*functions) -> int:
    """Calls all of (name, function, arguments...); an exit code.  Each one that fails is printed with its reason."""
    failed = 0
    for name, function, *args in functions:
        try:
            function(*args)
        except Broken as broken:
            failed = 1
            print(f"{name}: {broken}", flush=True)
    return failed
