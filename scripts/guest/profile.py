#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The part of scripts/profile that runs in the guest: one measurement, while the host samples.

Reads $SOFTWARP_OUT/plan.json; leaves kallsyms, go (when it begins) and result.json there.
"""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import measure  # noqa: E402

OUT = pathlib.Path(os.environ["SOFTWARP_OUT"])


def main() -> int:
    plan = json.loads((OUT / "plan.json").read_text())
    test, size, streams, seconds = (plan[name] for name in ("test", "size", "streams", "seconds"))
    measure.sh("insmod", plan["sdp_module"])
    (OUT / "kallsyms").write_text(pathlib.Path("/proc/kallsyms").read_text(encoding="ascii"), encoding="ascii")
    (OUT / "go").touch()
    if test in ("sdp", "tcp"):
        rate = measure.sockets(plan["socket_program"], test == "sdp", "stream", size, streams, seconds)
        what = f"{test.upper()}, {streams} connections, blocks of {size} octets"
    else:
        rate = measure.perftest_bw(test, size, streams, seconds) * size / 1e6
        what = f"{test}, {streams} queue pairs, messages of {size} octets"
    (OUT / "result.json").write_text(json.dumps({"what": what, "rate": rate, "size": size}))
    return 0


sys.exit(main())
