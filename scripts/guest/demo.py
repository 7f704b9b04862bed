#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/demo that runs in the guest: perftest and rping over softwarp, and programs under sdp_run beside plain
TCP, as tables: demo.py SDP_MODULE."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / "tests" / name) for name in ("apps", "preload"))]
import apps  # noqa: E402
import hosts  # noqa: E402
import measure  # noqa: E402

SECONDS = 2
ROUND_TRIPS = 200


def rows():
    """(program, what it did, function giving the figure, its unit), in the order of the table."""
    for op in ("write", "read", "send"):
        yield (f"ib_{op}_bw", "64 KiB messages", lambda op=op: measure.perftest_bw(op, 65536, 1, SECONDS) * 0.065536,
               "MB/s")
    for op in ("write", "read", "send"):
        yield f"ib_{op}_lat", "64 B messages", lambda op=op: measure.perftest_lat(op, 64, 1000), "us"
    yield "rping", f"IPv4 to {measure.PEER4}", lambda: measure.rping(measure.PEER4, ROUND_TRIPS), "round trips/s"
    yield "rping", f"IPv6 to {measure.PEER6}", lambda: measure.rping(measure.PEER6, ROUND_TRIPS), "round trips/s"
    yield "rping", "loopback 127.0.0.1", lambda: measure.rping("127.0.0.1", ROUND_TRIPS, peer=False), "round trips/s"


def sockets(kind: type[apps.App], what: dict[str, str]) -> None:
    """An application by plain TCP and under sdp_run: a row for each of its numbers, with what it did."""
    app = kind(True)
    numbers = {}
    for by in ((), app.sdp):
        gained = hosts.Counted()
        with app.serve(by, ""):
            numbers[bool(by)] = app.talk(by, "")
        hosts.want("octets by SDP under sdp_run, and there alone", (gained.octets() > app.least) == bool(by))
    for name, (value, unit) in numbers[True].items():
        print(f"{app.name:<17}{what[name]:<21}{numbers[False][name][0]:>12.1f}{value:>12.1f}  {unit.strip()}", flush=True)


def main() -> int:
    failures = []
    print(f"{'program':<14}{'over softwarp':<24}{'result':>12}  unit")
    for program, what, figure, unit in rows():
        try:
            print(f"{program:<14}{what:<24}{figure():>12.1f}  {unit}", flush=True)
        except measure.Broken as broken:
            failures.append(broken)
            print(f"{program:<14}{what:<24}{'failed':>12}", flush=True)

    hosts.run("insmod", sys.argv[1])
    print(f"\n{'unchanged program':<38}{'plain TCP':>12}{'sdp_run':>12}  unit")
    for kind, what in ((apps.Iperf, {"": "one stream"}), (apps.Redis, {"SET": "SET, 50 clients", "GET": "GET, 50 clients"})):
        try:
            sockets(kind, what)
        except hosts.Broken as broken:
            failures.append(broken)
            print(f"{kind.name:<17}{'':<21}{'':>12}{'failed':>12}", flush=True)
    for broken in failures:
        print(f"softwarp: {broken}", file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
