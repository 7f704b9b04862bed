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


def count_line(verdicts: list[bool]) -> str:
    """The last line of every script that has results."""
    return f"{sum(verdicts)} passed, {len(verdicts) - sum(verdicts)} failed"


class Outcome:
    """Single results as (case, passed, reason), to be shown later, and lines worth showing again."""

    def __init__(self):
        self.results = []
        self.summary = []

    def add(self, case: str, passed: bool, text: str = "") -> None:
        """Note one case; of one that passed the text is dropped."""
        self.results.append((case, passed, "" if passed else text))

    def take(self, other: "Outcome") -> None:
        """Those of a part."""
        self.results += other.results
        self.summary += other.summary

    @property
    def passed(self) -> list[bool]:
        """The verdicts."""
        return [passed for _, passed, _ in self.results]

    def finish(self) -> int:
        """The last line; returns the exit code."""
        print(count_line(self.passed))
        return 0 if all(self.passed) else 1


class Cases(Outcome):
    """The cases of a script, printed as they come; in a guest they are left in a file, too, for the script outside."""

    def __init__(self, log: Path | None = None):
        super().__init__()
        self.log = log

    def add(self, case: str, passed: bool, text: str = "", **more) -> None:
        """Note and print one case; with a failure goes its reason.  more: is left in the file."""
        super().add(case, passed, text)
        print(f"{'ok    ' if passed else 'FAILED'} {case}\n{'' if passed else indented(text)}", end="", flush=True)
        if self.log:
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"case": case, "passed": passed, "text": text, **more}) + "\n")

    def take_log(self, path: Path) -> bool:
        """Count the cases that a guest has printed and left in a file; were there any?"""
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.results += [(case["case"], case["passed"], case["text"]) for case in found]
        return bool(found)


def cases(text: str) -> tuple[list[tuple[str, bool, str]], bool]:
    """(case, passed, reason) of what Cases has printed, and whether it came to its last line."""
    found = [(case, verdict != "FAILED", reason)
             for verdict, case, reason in re.findall(r"^(ok    |FAILED) (.*)\n((?:    .*\n)*)", text, re.MULTILINE)]
    return found, bool(found) and f"\n{count_line([passed for _, passed, _ in found])}\n" in text


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
