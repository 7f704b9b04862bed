#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Unmodified applications between two hosts, on SDP and on TCP: main.py SDP_MODULE.  Runs in a guest.

    client: this namespace         server: namespace "peer"
    net0 10.77.0.1 =============== net1 10.77.0.2             devices sw0, sw1

Each application runs with plain TCP, with both ends under sdp_run, and with either end alone under it, which must then use
TCP and work.  The data are verified each time.  A line "ok" or "FAILED" for each number and for each end alone; they are
appended to $SOFTWARP_OUT/results.jsonl, too.
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "preload"), str(HERE.parents[1] / "scripts/guest")]
import apps  # noqa: E402
from hosts import Broken, DIRECTORY, PEER, counters, end, run, want  # noqa: E402
sys.path.insert(0, str(HERE.parents[1] / "scripts/lib"))
import results  # noqa: E402

# Whether the server and the client are put on SDP
ENDS = {"TCP": (False, False), "SDP": (True, True), "client alone": (False, True), "server alone": (True, False)}
ALONE = ("client alone", "server alone")


@contextlib.contextmanager
def watched(ports):
    """Gives a function that says how many octets plain TCP has carried from and to ports since.  What uses SDP goes by a
    port of its own, as RDMA."""
    command = ["tcpdump", "-i", "net0", "-nql", "-s", "96", "--immediate-mode", "-B", "16384",
               " or ".join(f"tcp port {port}" for port in ports)]
    path = DIRECTORY / "tcpdump"
    with open(path, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True)

    def octets() -> int:
        end(process, signal.SIGINT)
        text = path.read_text(errors="replace")
        # A packet that was not seen may have had as much as this.
        lost = re.search(r"^(\d+) packets? dropped by kernel", text, re.MULTILINE)
        want("tcpdump says what it has lost", lost, text)
        return sum(int(size) for size in re.findall(r": tcp (\d+)$", text, re.MULTILINE)) + (int(lost[1]) << 16)

    try:
        limit = time.monotonic() + 20
        while "listening on" not in path.read_text(errors="replace"):
            want("tcpdump starts", process.poll() is None and time.monotonic() < limit, path.read_text(errors="replace"))
            time.sleep(0.05)
        yield octets
    finally:
        end(process, signal.SIGINT)


class Both:
    """What the counters of both hosts have gained since."""

    def __init__(self):
        self.before = [counters(prefix) for prefix in ((), PEER)]

    def gained(self) -> list[dict[str, int]]:
        """Of this host and of the other."""
        return [{name: value - before[name] for name, value in counters(prefix).items()}
                for prefix, before in zip(((), PEER), self.before)]


def once(app: apps.App, mode: str) -> tuple[dict, list[dict[str, int]]]:
    """One run: numbers, each a value and its unit, and what the counters have gained."""
    print(f"       {app.name}: {mode}", flush=True)
    at_server, at_client = (app.sdp if sdp else () for sdp in ENDS[mode])
    both = Both()
    with app.serve(at_server, mode):
        listening = re.search(rf"(?m)^.*:{app.port} .*\blisten\b", run(*PEER, "cat", "/proc/net/softwarp_sdp"), re.IGNORECASE)
        want("the server's socket is SDP's if sdp_run has started it", bool(listening) == bool(at_server), listening)
        return app.talk(at_client, mode), both.gained()


def octets(gained: dict[str, int]) -> int:
    """Those of streams by SDP, both ways."""
    return gained["octets_sent"] + gained["octets_received"]


def by_rdma(app: apps.App, mode: str = "SDP") -> tuple[dict, float]:
    """A run with both ends under sdp_run: numbers, and the share of octets that went over RDMA."""
    with watched(app.ports) as by_tcp:
        numbers, gained = once(app, mode)
        tcp = by_tcp()
    sdp = octets(gained[0])
    want("octets went by SDP", sdp >= app.least and octets(gained[1]) >= app.least, gained)
    return numbers, sdp / (sdp + tcp)


def shown(number: tuple[float, str]) -> str:
    """A value with its unit, in as many digits as mean something."""
    value, unit = number
    return f"{value:.0f}{unit}" if value >= 100 else f"{value:.3g}{unit}"


def compare(app: apps.App, rounds: int, cases: results.Cases) -> None:
    """Both protocols by turns, so that what the machine does beside hits both; medians."""
    samples = {"TCP": [], "SDP": []}
    numbers, share = by_rdma(app)
    if rounds == 1:
        samples["SDP"].append(numbers)
    # A run that is watched costs a little more, so it counts only where it is the only one.
    for turn in range(rounds):
        for mode in ("TCP", "SDP") if turn % 2 == 0 else ("SDP", "TCP"):
            if rounds > 1 or mode == "TCP":
                samples[mode].append(once(app, mode)[0])
    for name in numbers:
        values = {mode: [sample[name][0] for sample in found] for mode, found in samples.items()}
        median = {mode: (statistics.median(found), numbers[name][1]) for mode, found in values.items()}
        title = f"{app.name} {name}".strip()
        text = f"SDP {shown(median['SDP'])}, TCP {shown(median['TCP'])}, {100 * share:.4g} % over RDMA"
        cases.add(f"{title}: {text}", share == 1, "plain TCP has carried some of it, see above", name=title,
                  sdp=median["SDP"][0], tcp=median["TCP"][0], unit=numbers[name][1].strip(), share=share,
                  samples=values)


def alone(app: apps.App, mode: str, cases: results.Cases) -> None:
    """One end under sdp_run: it must use TCP, say why, and work."""
    # This also shows that octets by TCP are seen at all.
    with watched(app.ports) as by_tcp:
        _, gained = once(app, mode)
        tcp = by_tcp()
    want("no octet by SDP", not octets(gained[0]) and not octets(gained[1]), gained)
    want("octets went by TCP", tcp >= app.least, f"{tcp} octets")
    reasons = " ".join(f"{name.removeprefix('tcp_')}:{value}" for name, value in gained[0].items()
                       if name.startswith("tcp_") and value)
    want("the client has asked", reasons or mode == "server alone", gained[0])
    cases.add(f"{app.name}, {mode} under sdp_run: falls back to TCP and works{f' ({reasons})' if reasons else ''}", True)


def suite(app: apps.Suite, cases: results.Cases) -> None:
    """CPython's tests by both; it is no matter what this machine cannot do by either."""
    print(f"       {app.name}: TCP", flush=True)
    tcp, _ = app.passed(())
    want("some pass on TCP", tcp)
    both = Both()
    print(f"       {app.name}: SDP", flush=True)
    sdp, ran = app.passed(app.sdp)
    gained = both.gained()[0]
    want("octets went by SDP", gained["connected"] and octets(gained), gained)
    lost = sorted(tcp - sdp)
    cases.add(f"{app.name}: {len(sdp)} of {ran} pass on SDP, {len(tcp)} on TCP; {gained['connected']} connections by SDP",
              not lost, "pass on TCP and not on SDP:\n" + "\n".join(lost))


def attempt(cases: results.Cases, title: str, function, *args) -> None:
    """What a function adds to the cases; what it raises is a failure."""
    try:
        function(*args, cases)
    except Broken as broken:
        cases.add(title, False, str(broken))
    except Exception as error:  # pylint: disable=broad-except
        cases.add(title, False, repr(error))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", help="softwarp_sdp.ko")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="an application; repeatable")
    parser.add_argument("--list", action="store_true", help="print their names")
    parser.add_argument("--quick", action="store_true", help="short runs")
    parser.add_argument("--short", action="store_true", help="few of them, in short runs")
    parser.add_argument("--kernel", help="those for this kernel alone")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of each protocol")
    options = parser.parse_args()
    chosen = apps.chosen(options.only, options.quick, options.short, options.kernel)
    if options.list:
        print("\n".join(f"{app.kernel} {app.name}" for app in chosen))
        return 0
    out = pathlib.Path(os.environ["SOFTWARP_OUT"])
    DIRECTORY.chmod(0o755)
    run("insmod", options.module)
    cases = results.Cases(out / "results.jsonl")
    for app in chosen:
        if isinstance(app, apps.Suite):
            attempt(cases, app.name, suite, app)
            app.clean()
            continue
        attempt(cases, f"{app.name}, both ends under sdp_run", compare, app, options.rounds)
        for mode in ALONE if not options.short else ALONE[:isinstance(app, apps.SHORT_ALONE)]:
            attempt(cases, f"{app.name}, {mode} under sdp_run", alone, app, mode)
        app.clean()
    (out / "done").touch()
    return int(not cases.passed or not all(cases.passed))


sys.exit(main())
