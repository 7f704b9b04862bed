#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/bench that runs in the guest: alternate the drivers and TCP, round by round.

Reads $SOFTWARP_OUT/plan.json and appends one JSON object per sample to $SOFTWARP_OUT/samples.jsonl, so that what was
measured before a failure is not lost.
"""

import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import measure  # noqa: E402

OUT = pathlib.Path(os.environ["SOFTWARP_OUT"])


def sample(test: str, op: str, size: int, qps: int, plan: dict, driver: str) -> float:
    """One figure, in the unit of the test."""
    seconds = plan["seconds"]
    if op == "socket":
        return measure.sockets(plan["socket_program"], driver != "tcp", test, size, qps, seconds)
    for link in measure.LINKS:
        if test.startswith(f"{link}_"):
            with measure.worse_link(link):
                return sample(test.removeprefix(f"{link}_"), op, size, qps, plan, driver)
    if op == "many":
        return measure.many(plan["many_program"], driver == "tcp", test, qps)
    place = measure.ONE_HOST if test.startswith("host_") else measure.HOSTS
    test = test.removeprefix("host_")
    if driver == "tcp":
        if test == "bandwidth":
            return measure.iperf3(size, qps, seconds, place) / 1e6
        if test == "latency":
            return measure.qperf("tcp_lat", size, seconds, "latency", place)
        if test == "rate":
            return measure.qperf("tcp_bw", size, seconds, "bw") / size / 1e3
        return measure.iperf3_cost(size, seconds)
    if test == "bandwidth":
        return measure.perftest_bw(op, size, qps, seconds, place) * size / 1e6
    if test == "latency":
        return measure.perftest_lat(op, size, plan["latency_count"], place)
    if test == "rate":
        return measure.perftest_bw(op, size, qps, seconds) / 1e3
    return measure.rdma_cost(plan["cost_program"], op, size, seconds)


def taken(row: dict, plan: dict, driver: str) -> None:
    """One sample, into its row, or what failed."""
    what = f"{row['op']}_{row['test']} size {row['size']} qps {row['qps']} on {driver}"
    for left in (2, 1, 0):
        try:
            if driver != "tcp":
                measure.use(driver)
            row["value"] = sample(row["test"], row["op"], row["size"], row["qps"], plan, driver)
            return
        except measure.Broken as broken:
            # see parts(): of siw this says nothing, of us it would
            more = left and driver == "siw" and "rdma_connect failed" in str(broken)
            print(f"softwarp: bench: {what} failed{', once more' if more else ''}: {broken}", file=sys.stderr, flush=True)
            if not more:
                row["error"] = str(broken)
                return


def parts(plan: dict):
    """The measurements of each round.  Those of sockets come last: they leave thousands of ports in TIME-WAIT, and siw cannot
    connect from such a port, which rdma_cm may choose.  Other programs of TCP's leave some, too."""
    for sockets in (False, True):
        tests = [one for one in plan["tests"] if (one[1] == "socket") == sockets]
        if tests:
            yield from ((tests, number) for number in range(plan["rounds"]))


def main() -> int:
    plan = json.loads((OUT / "plan.json").read_text())
    if plan["siw_module"]:
        measure.sh("insmod", plan["siw_module"])
    if plan["sdp_module"]:
        measure.sh("insmod", plan["sdp_module"])
    failures = 0
    begin = time.monotonic()
    with open(OUT / "samples.jsonl", "a", encoding="ascii") as out:
        for tests, number in parts(plan):
            print(f"softwarp: bench: round {number + 1} of {plan['rounds']}, {time.monotonic() - begin:.0f} s so far",
                  file=sys.stderr, flush=True)
            tcp_done = set()
            for test, op, size, qps in tests:
                for column, driver in plan["columns"]:
                    # what sockets are measured on is softwarp; rdma_cm finds no siw on lo
                    if driver == "siw" and (op in ("socket", "many") or test.startswith(("host_", "loss_", "delay_"))):
                        continue
                    # TCP knows no write, read or send: one sample per shape and round serves all three.
                    if driver == "tcp" and (test, size, qps) in tcp_done:
                        continue
                    row = {"round": number, "test": test, "op": op, "size": size, "qps": qps, "column": column}
                    taken(row, plan, driver)
                    failures += "error" in row
                    if driver == "tcp":
                        tcp_done.add((test, size, qps))
                    out.write(json.dumps(row) + "\n")
                    out.flush()
    return 1 if failures else 0


sys.exit(main())
