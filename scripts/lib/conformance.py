# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Requirements and the tests that show them: tables, results, and the matrix that joins the two.

Tables are files of tab-separated columns with a header line, in tests/conformance:
  requirements/*.tsv  id, section, level, requirement, basis
  elsewhere.tsv       id, kind, test: tests outside tests/conformance that show a requirement.  kind is kunit
                      (suite.case), e2e or unit (Suite.Test), sockets (Suite.Test, on each kind of socket that the step
                      of SOCKETS has), or step (STEP: TEST, a result of scripts/check)
  explained.tsv       id, reason: why a SHOULD or MAY has no test
  absent.tsv          id, files, reason: the row is about a part that we do not have; files is the pattern of a name
                      that would be below kernel/ or userspace-provider/ if we had it, or, as "PATTERN: TEXT", of files
                      from the top of the tree, and of a text that one of them would then have

Tests in tests/conformance name their requirements themselves, with REQ().
"""

import dataclasses
import json
import re
import shlex
import subprocess
from pathlib import Path

import common
import guest
import kernels
import modules
import results
from common import BUILD, ROOT, Failure

TABLES = ROOT / "tests/conformance"
OUT = BUILD / "conformance"
DOCUMENT = ROOT / "Documentation/conformance.md"
PROTOCOLS = {"rdmap": "RDMAP, RFC 5040", "rdmapx": "RDMAP extensions, RFC 7306", "ddp": "DDP, RFC 5041",
             "mpa": "MPA, RFC 5044", "mpa2": "MPA, RFC 6581", "sec": "Security, RFC 5042",
             "sdp": "SDP, draft-pinkerton-iwarp-sdp-01",
             "pm": "SDP's port mapper, draft-pinkerton-iwarp-sdp-01"}
COLUMNS = {"requirements": ("id", "section", "level", "requirement", "basis"), "elsewhere": ("id", "kind", "test"),
           "explained": ("id", "reason"), "absent": ("id", "files", "reason")}
KINDS = ("kunit", "e2e", "unit", "sockets", "step")
# The step whose results those of kind sockets are
SOCKETS = "sockets-uml"
# How citations call what is no RFC
DRAFT = "sdp"
# "-" is no requirement of a text: a profile of ours, or a note of what is not promised.
LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "-")
STRICT = ("MUST", "MUST NOT")
PARTS = ("kernel", "userspace-provider")
# Seconds from power-on to power-off
LIMITS = {"uml": 300, "uml-kasan": 600, "stock-6.12": 900, "stock-6.1": 900, "debug": 1500}


@dataclasses.dataclass
class Row:
    """A requirement, and what came of it."""

    protocol: str
    id: str
    section: str
    level: str
    requirement: str
    basis: str
    tests: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)  # of these tests, failed or not run
    reason: str = ""
    absent: bool = False  # about a part that we do not have

    @property
    def result(self) -> str:
        """passed, failed, explained, absent, or untested, which is a failure too."""
        if self.tests:
            return "failed" if self.failed else "passed"
        if self.absent:
            return "absent"
        return "explained" if self.reason and self.level not in STRICT else "untested"


def table(path: Path, kind: str) -> list[dict]:
    """The rows of a table; anything that is not one is a Failure."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or tuple(lines[0].split("\t")) != COLUMNS[kind]:
        raise Failure(f"{path}: the first line has to be {' TAB '.join(COLUMNS[kind])}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if not line.strip() or line.startswith("#"):
            continue
        if len(cells) != len(COLUMNS[kind]) or not all(cell.strip() for cell in cells):
            raise Failure(f"{path}:{number}: {len(COLUMNS[kind])} columns wanted, and none of them empty")
        rows.append(dict(zip(COLUMNS[kind], cells)))
    return rows


def requirements() -> dict[str, Row]:
    """All rows by id, in the order of the tables."""
    rows = {}
    for protocol in PROTOCOLS:
        path = TABLES / f"requirements/{protocol}.tsv"
        found = table(path, "requirements")
        if not found:
            raise Failure(f"{path}: no requirements")
        for row in found:
            if row["id"] in rows:
                raise Failure(f"{path}: {row['id']} is there twice")
            if row["level"] not in LEVELS:
                raise Failure(f"{path}: {row['id']} has level {row['level']}, not one of {', '.join(LEVELS)}")
            rows[row["id"]] = Row(protocol, **row)
    return rows


def elsewhere() -> list[dict]:
    """Tests outside tests/conformance, by requirement."""
    rows = table(TABLES / "elsewhere.tsv", "elsewhere")
    for row in rows:
        if row["kind"] not in KINDS:
            raise Failure(f"elsewhere.tsv: {row['id']} has kind {row['kind']}, not one of {', '.join(KINDS)}")
    return rows


@dataclasses.dataclass
class Outcome:
    """What the conformance program said in one guest."""

    tests: dict  # name: (passed, [ids], text of a failure)
    e2e: dict  # name: passed
    problems: list[str]


def run_guest(kernel_name: str, quick: bool, test_filter: str = "", e2e=(), repeat: int = 1) -> Outcome:
    """The conformance program, and end-to-end tests by name, in one guest."""
    kernel = kernels.kernel(kernel_name)
    module = modules.softwarp(kernel)
    modules.provider()
    OUT.mkdir(parents=True, exist_ok=True)
    targets = ["conformance-programs"] + (["e2e-programs"] if e2e else [])
    common.run(["make", "-C", ROOT, "--no-print-directory", *targets], log=OUT / "build.log",
               what="the conformance tests")
    env = {**kernels.pace(kernel_name, quick), **{name: str(path) for name, path in modules.conformance(kernel).items()}}
    args = [str(BUILD / "conformance/softwarp-conformance")]
    if test_filter:
        args.append(f"--gtest_filter={test_filter}")
    if repeat > 1:
        args.append(f"--gtest_repeat={repeat}")
    command = shlex.join(args) + " --gtest_output=xml:$SOFTWARP_OUT/conformance.xml; code=$?; "
    if e2e:
        names = ":".join(sorted(e2e))
        command += (f"{BUILD}/e2e/softwarp-e2e --gtest_filter={shlex.quote(names)} "
                    "--gtest_output=xml:$SOFTWARP_OUT/e2e.xml; ")
    out = OUT / kernel_name
    for name in ("conformance.xml", "e2e.xml"):
        (out / name).unlink(missing_ok=True)
    result = guest.run_job(guest.Job(f"{command}exit $code", kernel_name, module=module, out=out, env=env,
                                     timeout=LIMITS[kernel_name] * repeat))
    text = result.printed
    (OUT / f"{kernel_name}.log").write_text(text)
    problems = list(result.reports)
    tests = results.googletest_xml(out / "conformance.xml")
    if result.why:
        problems.append(result.why)
    if not tests:
        tail = "\n".join(text.splitlines()[-20:])
        problems.append(f"softwarp-conformance left no results; the end of {OUT}/{kernel_name}.log:\n{tail}")
    elif result.code not in (0, guest.CODE_REPORT) and all(passed for passed, _, _ in tests.values()):
        problems.append(f"softwarp-conformance ended with {result.code}; see {OUT}/{kernel_name}.log")
    return Outcome(tests, {name: passed for name, (passed, _, _) in results.googletest_xml(out / "e2e.xml").items()}, problems)


def run_kunit(kernel_name: str) -> dict:
    """All KUnit suites; they take a few seconds, starting the guest is what takes time."""
    kernel = kernels.kernel(kernel_name)
    result = guest.run_job(guest.Job(modules.kunit_script(kernel), kernel_name, module=modules.softwarp(kernel),
                                     out=OUT / "kunit", timeout=300))
    (OUT / "kunit.log").write_text(result.printed)
    return results.kunit(result.printed)[1]


def run_unit(names) -> dict:
    """Unit tests of the provider, by name."""
    modules.provider()
    junit = OUT / "unit.xml"
    junit.unlink(missing_ok=True)
    pattern = "^(" + "|".join(re.escape(name) for name in sorted(names)) + ")$"
    subprocess.run(["ctest", "--test-dir", BUILD / "cmake", "-R", pattern, "--output-junit", junit],
                   stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return {name: passed for name, (passed, _) in results.ctest(junit).items()}


def run_steps(names) -> dict:
    """Results of scripts/check, as "STEP: TEST", from running the steps that these tests are part of."""
    steps = sorted({name.split(":")[0] for name in names})
    common.say(f"conformance: scripts/check {' '.join(steps)}")
    path = BUILD / "check/results.json"
    path.unlink(missing_ok=True)
    subprocess.run([ROOT / "scripts/check", *steps], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not path.exists():
        return {}
    return {f"{row['step']}: {row['test']}": row["passed"] for row in json.loads(path.read_text())}


def on_sockets(steps: dict[str, bool]) -> dict[str, bool]:
    """Tests of sockets by Suite.Test, from results of steps: passed on all kinds of sockets, or not."""
    found = {}
    ended = steps.get(f"{SOCKETS}: a test that did not end", True)
    for name, passed in steps.items():
        if match := re.fullmatch(rf"{SOCKETS}: \w+/(\w+\.\w+)/\w+", name):
            found[match[1]] = found.get(match[1], ended) and passed
    return found


def part(pattern: str) -> Path | None:
    """A file or directory of ours with such a name, or with such a text in it, if there is one."""
    pattern, _, text = pattern.partition(": ")
    if text:
        return next((path for path in sorted(ROOT.glob(pattern)) if re.search(text, path.read_text(encoding="utf-8"))),
                    None)
    return next((path for top in PARTS for path in sorted((ROOT / top).rglob(pattern))), None)


def join_absent(rows: dict[str, Row]) -> list[str]:
    """Fill in what is about parts that we do not have; returns what is wrong with that table."""
    wrong = []
    for absent in table(TABLES / "absent.tsv", "absent"):
        row = rows.get(absent["id"])
        if row is None:
            wrong.append(f"absent.tsv names {absent['id']}, which is in no table")
        elif found := part(absent["files"]):
            wrong.append(f"absent.tsv has {row.id}, but there is {found.relative_to(ROOT)}")
        elif row.tests:
            wrong.append(f"absent.tsv has {row.id}, which has a test")
        else:
            row.absent = True
            row.reason = absent["reason"]
    return wrong


def join(rows: dict[str, Row], tests: dict, others: list[dict], other_results: dict) -> list[str]:
    """Fill in tests and results; returns what is wrong with the tables themselves.

    other_results: {(kind, test): passed} of the tests of elsewhere.tsv; one that is missing did not run.
    """
    wrong = []
    for name, (passed, ids, _) in tests.items():
        for number in ids:
            if number not in rows:
                wrong.append(f"test {name} names {number}, which is in no table")
                continue
            rows[number].tests.append(name)
            if not passed:
                rows[number].failed.append(name)
    for other in others:
        if other["id"] not in rows:
            wrong.append(f"elsewhere.tsv names {other['id']}, which is in no table")
            continue
        name = f"{other['kind']} {other['test']}"
        rows[other["id"]].tests.append(name)
        if not other_results.get((other["kind"], other["test"])):
            rows[other["id"]].failed.append(name)
    for explained in table(TABLES / "explained.tsv", "explained"):
        row = rows.get(explained["id"])
        if row is None:
            wrong.append(f"explained.tsv names {explained['id']}, which is in no table")
        elif row.level in STRICT:
            wrong.append(f"explained.tsv explains {row.id}, a {row.level}: that needs a test")
        elif row.tests:
            wrong.append(f"explained.tsv explains {row.id}, which has a test")
        else:
            row.reason = explained["reason"]
    wrong += join_absent(rows)
    for row in rows.values():
        row.tests = sorted(set(row.tests))
        row.failed = sorted(set(row.failed))
    return wrong


def write_json(rows: dict[str, Row], path: Path) -> None:
    """The matrix for programs."""
    data = [{"id": row.id, "protocol": row.protocol, "section": row.section, "level": row.level,
             "requirement": row.requirement, "tests": row.tests, "result": row.result,
             **({"reason": row.reason} if row.reason else {})} for row in rows.values()]
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def cell(text: str) -> str:
    """Text that a table of Markdown shows as it is."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def families(tests: list[str]) -> list[str]:
    """Tests without what differs between instances of one, with their number: Suite.Test (12)."""
    count = {}
    for test in tests:
        kind, _, name = test.rpartition(" ")
        match = re.fullmatch(r"(?:\w+/)?(\w+\.\w+)(/.*)?", name) if kind in ("", "e2e") else None
        family = f"{kind} {match[1]}".strip() if match else test
        count[family] = count.get(family, 0) + 1
    return [f"{family} ({number})" if number > 1 else family for family, number in sorted(count.items())]


def homes() -> dict[str, str]:
    """The file of each test of GoogleTest's, "Suite.Test", below tests/."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.cpp")):
        for match in re.finditer(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[f"{match[1]}.{match[2]}"] = str(path.relative_to(ROOT / "tests"))
    for path in sorted((ROOT / "tests/kunit").glob("*_kunit.c")):
        text = path.read_text(encoding="utf-8")
        suite = re.search(r'\.name = "(\w+)",\s*\.(?:test_cases|init|suite_init)', text)
        if suite:
            for case in re.findall(r"KUNIT_CASE\w*\((\w+)", text):
                found[f"{suite[1]}.{case}"] = str(path.relative_to(ROOT / "tests"))
    return found


def sections(places: str) -> set[str]:
    """Numbers of sections in a citation such as "6, 8.1 and 10.1 to 10.5"."""
    found = set(re.findall(r"[A-C\d][\d.]*", places))
    for first, last in re.findall(r"(\d[\d.]*) to (\d[\d.]*)", places):
        top, _, begin = first.rpartition(".")
        end = last.rstrip(".").rpartition(".")[2]
        found |= {f"{top}.{number}".lstrip(".") for number in range(int(begin), int(end))}
    return {section.rstrip(".") for section in found}


def citations() -> dict[tuple[str, str], set[str]]:
    """Which files of the kernel cite which (RFC, section); of SDP's, sections without an RFC are the draft's."""
    found = {}
    for path in sorted((ROOT / "kernel").rglob("*.[ch]")):
        # a citation may go on in the next line of a comment
        text = re.sub(r"\s+\*?\s*", " ", path.read_text(encoding="utf-8"))
        for rfc, places in re.findall(r"RFC (\d{4}),? (?:sections?|s\.|appendix) ((?:[A-C\d][\d.]*(?:, | and )?)+)", text):
            for section in re.findall(r"[A-C\d][\d.]*", places):
                found.setdefault((rfc, section.rstrip(".")), set()).add(str(path.relative_to(ROOT / "kernel")))
        if path.parent.name == "sdp":
            for places in re.findall(r"(?<!RFC \d{4} )(?<!RFC \d{4}, )[Ss]ections? ((?:\d[\d.]*(?:, | and | to )?)+)",
                                     text):
                for section in sections(places):
                    found.setdefault((DRAFT, section), set()).add(str(path.relative_to(ROOT / "kernel")))
    return found


def cited(row: Row, found: dict[tuple[str, str], set[str]]) -> list[str]:
    """Files of the kernel that cite a section that the row is about, or a part of it."""
    title = re.search(r"RFC (\d+)", PROTOCOLS[row.protocol])
    rfc = title[1] if title else DRAFT
    files = set()
    for part_of in row.section.split(";"):
        if named := re.match(r"\s*RFC (\d{4})", part_of):
            rfc = named[1]
        for section in re.findall(r"(?<![\d(.-])[A-C\d][\d.]*", re.sub(r"RFC \d{4}|\(.*?\)|Fig \S+", "", part_of)):
            for (other, place), names in found.items():
                if other == rfc and (place == section or place.startswith(f"{section}.")):
                    files |= names
    return sorted(files)


def document(rows: dict[str, Row]) -> str:
    """The matrix for people; the same results make the same text."""
    count = {result: sum(1 for row in rows.values() if row.result == result)
             for result in ("passed", "explained", "absent", "failed", "untested")}
    lines = ["# Conformance", "",
             "Written by `make conformance`; do not edit.  Requirements are our own wording, from `tests/conformance/requirements/`;",
             "the basis says what each rests on.  A test that has instances is named once, with their number; its file is below",
             "`tests/`.  Code: files below `kernel/` that cite the section.  See testing.md for how a test shows a requirement.", "",
             "| result | rows |", "| --- | --- |"]
    lines += [f"| {result} | {number} |" for result, number in count.items() if number or result == "passed"]
    where, found = homes(), citations()
    for protocol, title in PROTOCOLS.items():
        lines += ["", f"## {title}", "", "| id | section | level | requirement | basis | tests | in | code | result |",
                  "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
        for row in rows.values():
            if row.protocol != protocol:
                continue
            names = families(row.tests)
            files = sorted({where[name] for name in re.findall(r"\w+\.\w+", " ".join(names)) if name in where})
            tests = "<br>".join(cell(name) for name in names) or cell(row.reason) or "none"
            lines.append(f"| {row.id} | {cell(row.section)} | {row.level} | {cell(row.requirement)} | {cell(row.basis)} | {tests} | "
                         f"{'<br>'.join(files)} | {'<br>'.join(cited(row, found))} | {row.result} |")
    explained = [row for row in rows.values() if row.result == "explained"]
    if explained:
        lines += ["", "## Explained", "", "What is not tested, and why.", ""]
        lines += [f"- {row.id} ({row.level}): {cell(row.requirement)}\n  {cell(row.reason)}" for row in explained]
    absent = [row for row in rows.values() if row.result == "absent"]
    if absent:
        lines += ["", "## Absent", "", "Requirements of a part that we do not have.  They fail as soon as we have it.", ""]
        lines += [f"- {row.id} ({row.level}): {cell(row.requirement)}\n  {cell(row.reason)}" for row in absent]
    return "\n".join(lines) + "\n"


def show(rows: dict[str, Row], only_bad: bool = False) -> None:
    """The matrix on the terminal."""
    for row in rows.values():
        if only_bad and row.result in ("passed", "explained", "absent"):
            continue
        tests = ", ".join(row.tests) if row.tests else row.reason or "no test"
        print(f"{row.id:<9} {row.level:<10} {row.result:<9} {row.requirement[:70]:<70}  {tests}")


def evaluate(kernel: str, kunit_kernel: str, quick: bool = False, test_filter: str = "", repeat: int = 1,
             known: dict | None = None) -> tuple[dict[str, Row], Outcome, list[str]]:
    """Run what is needed and join it with the tables: the rows, what the program said, and what else is wrong.

    known: {(kind, test): passed} of tests that the caller has run already, which are not run again.
    """
    rows = requirements()
    others = [] if test_filter else elsewhere()
    have_run = dict(known or {})
    have = {kind for kind, _ in have_run}
    named = {kind: {row["test"] for row in others if row["kind"] == kind and kind not in have} for kind in KINDS}
    outcome = run_guest(kernel, quick, test_filter, named["e2e"], repeat)
    have_run |= {("e2e", name): passed for name, passed in outcome.e2e.items()}
    if named["unit"]:
        have_run |= {("unit", name): passed for name, passed in run_unit(named["unit"]).items()}
    if named["kunit"]:
        common.say(f"conformance: KUnit, on {kunit_kernel}")
        have_run |= {("kunit", name): passed for name, passed in run_kunit(kunit_kernel).items()}
    steps = {name: passed for (kind, name), passed in have_run.items() if kind == "step"}
    to_run = named["step"] | ({f"{SOCKETS}: "} if named["sockets"] and not on_sockets(steps) else set())
    if to_run:
        steps |= run_steps(to_run)
    have_run |= {("step", name): passed for name, passed in steps.items()}
    have_run |= {("sockets", name): passed for name, passed in on_sockets(steps).items()}
    wrong = join(rows, outcome.tests, others, have_run) + outcome.problems
    wrong += [f"test {name} failed (it names no requirement)\n{text}"
              for name, (passed, ids, text) in outcome.tests.items() if not ids and not passed]
    return rows, outcome, wrong


def why(row: Row, outcome: Outcome) -> str:
    """What a row that did not hold has to say."""
    if row.result == "untested":
        return "no test" if row.level in STRICT else "no test and no reason"
    return "\n".join(f"{name}\n{outcome.tests[name][2] if name in outcome.tests else ''}".strip()
                     for name in row.failed)


def write(rows: dict[str, Row]) -> None:
    """The matrix, for programs and as documentation; a file whose text is the same stays as it is."""
    OUT.mkdir(parents=True, exist_ok=True)
    write_json(rows, OUT / "matrix.json")
    text = document(rows)
    if not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != text:
        DOCUMENT.write_text(text, encoding="utf-8")
