#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/consumers that runs in the first guest: main.py GROUP... [--short] [--only TEXT].

--list, which runs anywhere, prints their names.

Each group is a file beside this one: TITLE, CASES (pairs of a name and a function, or triples with "short" if it belongs to
the short run), set_up(), tear_down().  Appends a JSON object per case to $SOFTWARP_OUT/results.jsonl.
"""

import argparse
import importlib
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
import host  # noqa: E402
import results  # noqa: E402


CASES = results.Cases(host.OUT / "results.jsonl")


def run(case: str, function) -> bool:
    """Run one case; whatever it raises fails it."""
    host.sh(f"echo 'consumers: {case}' > /dev/kmsg", check=False)
    begin = time.monotonic()
    text = ""
    try:
        function()
    except host.Broken as broken:
        text = str(broken) or "no reason given"
    except Exception:  # pylint: disable=broad-except
        text = traceback.format_exc()
    seconds = time.monotonic() - begin
    if text:
        text += "\nkernel here:\n" + host.sh("dmesg | tail -n 12", check=False)
        try:
            text += "kernel of the target:\n" + host.target.run("dmesg | tail -n 12", 20, check=False)
        except (OSError, host.Broken) as error:
            text += f"no word of the target: {error}\n"
    CASES.add(case, not text, text, seconds=seconds)
    return not text


def run_group(group, cases) -> bool:
    """One group, from its set-up to its end."""
    begin = time.monotonic()
    try:
        group.set_up()
    except (host.Broken, OSError) as error:
        CASES.add(f"{group.TITLE}: set-up", False, str(error), seconds=time.monotonic() - begin)
        return False
    good = [run(*case) for case in cases]
    return run(f"{group.TITLE}: everything comes down, modules included", group.tear_down) and all(good)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("group", nargs="+")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if host.ALONE and not options.list:
        host.one_namespace()
    good = True
    for number, name in enumerate(options.group):
        group = importlib.import_module(name)
        cases = [(f"{group.TITLE}: {case[0]}", case[1]) for case in group.CASES if not options.short or "short" in case[2:]]
        cases = [case for case in cases if options.only in case[0]]
        if options.list:
            print("".join(f"{case}\n" for case, _ in cases), end="")
            continue
        if not cases:
            continue
        if number:
            # a group leaves neither device nor driver behind
            host.make_device(here=True)
            host.make_device(here=False)
        if not run_group(group, cases):
            good = False
            break
    if not options.list:
        (host.OUT / "done").touch()
    return 0 if good else 1


sys.exit(main())
