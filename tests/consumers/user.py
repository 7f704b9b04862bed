#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs in a guest: the cases of tests/consumers/user, programs that use RDMA, between sw0 here and sw1 in "peer".

A line per case; appends {"case", "passed", "text"} to $SOFTWARP_OUT/results.jsonl.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
import results  # noqa: E402

CASES = pathlib.Path(__file__).resolve().parent / "user"
# For all that one case does, seconds.
PATIENCE = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this in it")
    parser.add_argument("--list", action="store_true", help="print their names")
    options = parser.parse_args()
    cases = [path for path in sorted(CASES.iterdir())
             if path.is_file() and os.access(path, os.X_OK) and options.only in path.name]
    if options.list:
        print("\n".join(path.name for path in cases))
        return 0
    out = pathlib.Path(os.environ["SOFTWARP_OUT"])
    found = results.Cases(out / "results.jsonl")
    for path in cases:
        begin = time.monotonic()
        try:
            done = subprocess.run([path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=PATIENCE * float(os.environ.get("SOFTWARP_E2E_SCALE", "1")), check=False,
                                  env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
            text, code = done.stdout.decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired as late:
            text, code = (late.stdout or b"").decode(errors="replace") + "\nit hangs", 1
        found.add(path.name, code == 0, text, seconds=time.monotonic() - begin)
    (out / "done").touch()
    return int(not cases or not all(found.passed))


sys.exit(main())
