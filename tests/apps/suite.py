# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs test modules of CPython and leaves the names of those that passed in a file: suite.py FILE MODULE..."""

import json
import pathlib
import sys
import unittest


class Result(unittest.TextTestResult):
    """Notes what passed, which unittest does not."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test.id())


RESULT = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:]))
pathlib.Path(sys.argv[1]).write_text(json.dumps({"passed": RESULT.passed, "ran": RESULT.testsRun}), encoding="utf-8")
