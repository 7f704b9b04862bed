# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs rdma-core's own tests, unpacked in the working directory, on sw0 at the address given.

Prints {test: [outcome, why]} as JSON, the last line of its output.
"""

import json
import sys
import unittest

ADDRESS = sys.argv[1]
sys.argv[1:] = ["--dev", "sw0"]
sys.path[:0] = [".", ".."]
from args_parser import parser  # noqa: E402

parser.parse_args()
import tests  # noqa: E402
from tests import base  # noqa: E402

OUTCOMES = {}


class Result(unittest.TestResult):
    """Notes how each test ended."""

    def addSuccess(self, test):
        OUTCOMES[test.id()] = ("ok", "")

    def addSkip(self, test, reason):
        OUTCOMES[test.id()] = ("skipped", reason)

    def addError(self, test, err):
        OUTCOMES[test.id()] = ("failed", self._exc_info_to_string(err, test))

    addFailure = addError


# Theirs finds an address by the netdev of the device's PCI device, and a veth is on none.
base.RDMATestCase._get_ip_mac = lambda self, dev, port, index: self.args.append([dev, port, index, ADDRESS, None])
unittest.defaultTestLoader.loadTestsFromModule(tests).run(Result())
print(f"\n{json.dumps(OUTCOMES)}")
