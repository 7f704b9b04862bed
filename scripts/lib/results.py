# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Results of tests: read from what programs print, and printed by the scripts."""

import json
import re
import xml.etree.ElementTree
from pathlib import Path

# Of a reason: what it is comes first in it, and how it ended last.
HEAD = TAIL = 40


def indented(text: str) -> str:
    """A reason as it is shown below the line of its case, without its middle if it is long."""
    lines = text.splitlines()
    if len(lines) > HEAD + TAIL:
        lines = [*lines[:HEAD], f"... {len(lines) - HEAD - TAIL} lines ...", *lines[-TAIL:]]
    return "".join(f"    {line}\n" for line in lines)


class Cases:
    """The cases of a script, printed as they come; the last line counts them."""

    def __init__(self):
        self.passed = []

    def add(self, case: str, passed: bool, text: str = "") -> None:
        """Note and print one case; with a failure goes its reason."""
        self.passed.append(passed)
        print(f"{'ok    ' if passed else 'FAILED'} {case}\n{'' if passed else indented(text)}", end="", flush=True)

    def take(self, path: Path) -> bool:
        """Count the cases that a guest has printed and left in a file; were there any?"""
        lines = path.read_text().splitlines() if path.exists() else []
        self.passed += [json.loads(line)["passed"] for line in lines]
        return bool(lines)

    def finish(self) -> int:
        """The last line; returns the exit code."""
        print(f"{sum(self.passed)} passed, {len(self.passed) - sum(self.passed)} failed")
        return 0 if all(self.passed) else 1


def cases(text: str) -> list[tuple[str, bool, str]]:
    """(case, passed, reason) of what Cases has printed."""
    return [(case, verdict != "FAILED", reason)
            for verdict, case, reason in re.findall(r"^(ok    |FAILED) (.*)\n((?:    .*\n)*)", text, re.MULTILINE)]


def googletest(text: str) -> tuple[int, list[tuple[str, bool, str]]]:
    """How many tests a GoogleTest program set out to run, and (test, passed, what it printed) of those that ended."""
    match = re.search(r"Running (\d+) tests? from", text)
    found = []
    for verdict, test in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?),? (?:.*)\(\d+ ms\)$", text, re.MULTILINE):
        lines = re.search(rf"\[ RUN +\] {re.escape(test)}\n(.*?)^\[ +(?:FAILED|SKIPPED) +\] {re.escape(test)}", text,
                          re.MULTILINE | re.DOTALL)
        found.append((test, verdict == "OK", lines[1] if lines else ""))
    return int(match[1]) if match else 0, found


def googletest_xml(path: Path) -> dict[str, tuple[bool, list[str], str]]:
    """(passed, requirements, failure) by test, from the XML of a GoogleTest program."""
    results = {}
    if not path.exists():
        return results
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") != "run":
            continue
        failures = [node.get("message") or "" for node in case.iter("failure")]
        ids = [node.get("value") for node in case.iter("property") if node.get("name") == "requirements"]
        passed = case.get("result") == "completed" and not failures
        results[f"{case.get('classname')}.{case.get('name')}"] = (passed, " ".join(ids).split(), "\n".join(failures))
    return results


def ctest(path: Path) -> dict[str, tuple[bool, str]]:
    """(passed, what it printed) by test, from the XML of ctest."""
    if not path.exists():
        return {}
    return {case.get("name"): (case.get("status") == "run", case.findtext("system-out") or "")
            for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase")}


def kunit(text: str) -> tuple[int, dict[str, bool]]:
    """How many cases KUnit had planned, and passed by suite.case."""
    planned, found, suite = 0, {}, "?"
    for line in text.splitlines():
        # Four blanks: cases of a suite; deeper are the parameters of one case.
        if match := re.match(r"    # Subtest: (\S+)", line):
            suite = match[1]
        elif match := re.match(r"    1\.\.(\d+)", line):
            planned += int(match[1])
        elif match := re.match(r"    (ok|not ok) \d+ (\S+)(.*)", line):
            found[f"{suite}.{match[2]}"] = match[1] == "ok" and "# SKIP" not in match[3]
    return planned, found
