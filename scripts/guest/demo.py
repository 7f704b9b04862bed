#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/demo that runs in the guest: perftest and rping over softwarp, as a table."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
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


def main() -> int:
    failures = []
    print(f"{'program':<14}{'over softwarp':<24}{'result':>12}  unit")
    for program, what, figure, unit in rows():
        try:
            print(f"{program:<14}{what:<24}{figure():>12.1f}  {unit}", flush=True)
        except measure.Broken as broken:
            failures.append(broken)
            print(f"{program:<14}{what:<24}{'failed':>12}", flush=True)
    for broken in failures:
        print(f"softwarp: {broken}", file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
