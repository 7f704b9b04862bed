# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Hostile input: libFuzzer over the pure code here, mutated sessions, hostile peers and hostile users in a guest."""

import re
import shutil
import subprocess
import sys

import guest
import kernels
import modules
import results
from common import BUILD, ROOT, Failure, jobs, locked, run, say

OUT = BUILD / "fuzz-out"
PROGRAMS = BUILD / "fuzz"
# And for how many inputs of the others one of theirs stands: one of sdpconn's is a whole conversation, as is one of sdppm's.
TARGETS = {"mpa": 1, "negotiation": 1, "pair": 1, "rdmap": 1, "fpdu": 1, "sdp": 1, "sdpconn": 20, "sdppm": 5, "rules": 1}


def build_targets() -> None:
    """The libFuzzer targets, which need clang."""
    if not shutil.which("clang"):
        raise Failure("libFuzzer needs clang; scripts/setup installs it")
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "build-targets.log"
    log.unlink(missing_ok=True)
    tree = BUILD / "cmake-fuzz-pure"
    run(["cmake", "-S", ROOT / "tests/fuzz/pure", "-B", tree, "-DCMAKE_C_COMPILER=clang",
         "-DCMAKE_CXX_COMPILER=clang++"], log=log, what="libFuzzer targets")
    run(["cmake", "--build", tree, "--parallel", jobs()], log=log, what="libFuzzer targets")


def build_programs() -> None:
    """softwarp-fuzz, softwarp-hostile and softwarp-local."""
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "build-programs.log"
    with locked(BUILD / "fuzz.lock", "the fuzzer"):
        log.unlink(missing_ok=True)
        run(["cmake", "-S", ROOT / "tests/fuzz", "-B", BUILD / "cmake-fuzz", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"], log=log,
            what="the fuzzer")
        run(["cmake", "--build", BUILD / "cmake-fuzz", "--parallel", jobs()], log=log, what="the fuzzer")


def targets(runs: int, seed: int) -> results.Outcome:
    """So many inputs for each target, from the committed corpus on; the same ones every time."""
    outcome = results.Outcome()
    for name, weight in TARGETS.items():
        # The first directory is where libFuzzer keeps what it finds, and the corpus is not to grow by itself.
        found = OUT / "found" / name
        found.mkdir(parents=True, exist_ok=True)
        corpus = ROOT / "tests/fuzz/pure/corpus" / name
        scratch = OUT / "scratch" / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        done = subprocess.run([PROGRAMS / f"{name}_fuzz", f"-runs={runs // weight}", f"-seed={seed}", "-max_len=1024",
                               f"-artifact_prefix={found}/", scratch, corpus], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        (OUT / f"{name}.log").write_text(done.stdout)
        match = re.search(r"^Done (\d+) runs in (\d+) second", done.stdout, re.MULTILINE)
        outcome.add(f"libFuzzer: {name}", done.returncode == 0 and match is not None, done.stdout[-4000:])
        if match:
            outcome.summary.append(f"libFuzzer {name}: {match[1]} inputs in {match[2]} s")
            say(outcome.summary[-1])
    return outcome


def boot(kernel_name: str, command: str, out: str, timeout: int, quick: bool, show: bool) -> tuple[str, results.Outcome]:
    """Run a command in a guest; a report of the kernel is a result of its own."""
    kernel = kernels.kernel(kernel_name)
    modules.provider()
    # Thousands of refused peers have nothing new to say on the console; errors and reports are still shown there.
    job = guest.Job(f"dmesg -n 4; {command}", kernel_name, module=modules.softwarp(kernel), timeout=timeout,
                    env=kernels.pace(kernel_name, quick), out=OUT / out)
    result = guest.run_job(job, sys.stdout.buffer if show else None, sys.stderr.buffer if show else None)
    text = result.printed
    outcome = results.Outcome()
    outcome.add(f"{kernel_name} reports nothing ({out})", not result.reports, "\n\n".join(result.reports))
    if result.why or (result.code and not result.reports):
        outcome.add(f"{out} on {kernel_name} ends well", False, result.why or f"exit code {result.code}\n{text[-4000:]}")
    return text, outcome


def mutation_command(seed: int, frames: int, seconds: int, workers: int) -> str:
    amount = f"--seconds {seconds}" if seconds else f"--frames {frames}"
    return f"{PROGRAMS}/softwarp-fuzz {amount} --seed {seed} --workers {workers}"


def judge_mutation(text: str, outcome: results.Outcome, frames: int, seconds: int) -> None:
    (OUT / "mutation.log").write_text(text)
    legal = re.search(r"^(\d+) legal sessions, (\d+) frames, (\d+) failed$", text, re.MULTILINE)
    outcome.add("legal sessions work as they are", bool(legal) and legal[3] == "0" and legal[1] != "0", text[-4000:])
    played = re.search(r"^seed \d+: \d+ frames, (\d+) of them mutated; .* at least (\d+) mutated ones$", text, re.MULTILINE)
    count = int(played[1]) if played else 0
    wanted = 1 if seconds else frames
    outcome.add(f"at least {wanted} mutated frames played", count >= wanted, text[-4000:])
    outcome.add("the device stands them", bool(re.search(r"^0 failures$", text, re.MULTILINE)), text[-4000:])
    if played:
        outcome.summary += re.findall(r"^(?:seed \d+: .*|\d+ connections, .*|slab memory: .*)$", text, re.MULTILINE)


def mutation(kernel: str, seed: int, frames: int = 0, seconds: int = 0, workers: int = 6, show: bool = True) -> results.Outcome:
    """Mutated sessions: so many frames, or for so long."""
    # At a tenth of the rate that was measured it is a hang.
    timeout = (seconds or frames // 200) + 600 * (2 if kernels.SCALE[kernel] > 4 else 1)
    text, outcome = boot(kernel, mutation_command(seed, frames, seconds, workers), "mutation", timeout, False, show)
    judge_mutation(text, outcome, frames, seconds)
    return outcome


def judge_hostile(text: str, outcome: results.Outcome) -> None:
    (OUT / "hostile.log").write_text(text)
    planned, found = results.googletest(text)
    for test, passed, lines in found:
        outcome.add(test, passed, lines)
    for _ in range(max(planned - len(found), 0) if planned else 1):
        outcome.add("a scenario that did not end", False, text[-4000:])


def hostile(kernel: str, quick: bool, pattern: str = "", show: bool = True) -> results.Outcome:
    """The scenarios, each a test."""
    command = f"{PROGRAMS}/softwarp-hostile" + (f" --gtest_filter='{pattern}'" if pattern else "")
    text, outcome = boot(kernel, command, "hostile", 300 + 150 * kernels.SCALE[kernel], quick, show)
    judge_hostile(text, outcome)
    return outcome


def sockets(kernel: str, seed: int, sessions: int, show: bool = True) -> results.Outcome:
    """So many hostile peers of SDP sockets in each role, and questions to the port mapper in proportion."""
    with locked(BUILD / "sockets.lock", "the tests of sockets"):
        run(["make", "-C", ROOT, "--no-print-directory", "sockets-programs"], log=OUT / "build-sockets.log",
            what="the tests of sockets")
    command = (f"insmod {modules.sdp(kernels.kernel(kernel))}; export SOCKETS_SEED={seed} SOCKETS_SESSIONS={sessions} SOCKETS_TEST_LIMIT=0; "
               f"{BUILD}/sockets/softwarp-sockets --gtest_filter='*/Hostile.*/sdp4'; code=$?; "
               "for try in $(seq 20); do rmmod softwarp_sdp 2> /dev/null && echo 'softwarp_sdp: gone' && break; sleep 1; done; exit $code")
    # At a tenth of the rate that was measured on uml, 20 a second in all, it is a hang.
    text, outcome = boot(kernel, command, "sockets", 600 + sessions * kernels.SCALE[kernel], False, show)
    (OUT / "sockets.log").write_text(text)
    planned, found = results.googletest(text)
    for test, passed, lines in found:
        outcome.add(test, passed, lines)
    for _ in range(max(planned - len(found), 0) if planned else 1):
        outcome.add("hostile peers of sockets that did not end", False, text[-4000:])
    outcome.add("softwarp_sdp.ko can be unloaded then", "softwarp_sdp: gone" in text, text[-4000:])
    return outcome


MARK = "the scenarios follow"


def peers_command(seed: int, seconds: int, workers: int) -> str:
    """Mutated sessions for so long and the scenarios, in a guest."""
    return (f"(code=0; dmesg -n 4; {mutation_command(seed, 0, seconds, workers)} || code=1; echo '{MARK}'; "
            f"{PROGRAMS}/softwarp-hostile || code=1; exit $code)")


def judge_peers(text: str, outcome: results.Outcome, seconds: int) -> None:
    first, _, second = text.partition(MARK)
    judge_mutation(first, outcome, 0, seconds)
    judge_hostile(second, outcome)


def local(kernel: str, seed: int, calls: int, actors: int = 6, show: bool = True, corpus: bool = True) -> results.Outcome:
    """Programs of unprivileged users that abuse the devices, so many calls of them, beside an honest pair."""
    command = f"{PROGRAMS}/softwarp-local --calls {calls} --seed {seed} --actors {actors}"
    if corpus:
        command += f" --corpus {ROOT}/tests/fuzz/local/corpus"
    # With the corpus 226 calls/s were measured on debug, 443 on kcsan, 6,000 on uml-kasan; at a fifth it is a hang.
    timeout = calls * kernels.SCALE[kernel] // 500 + 600 * (2 if kernels.SCALE[kernel] > 4 else 1)
    text, outcome = boot(kernel, command, "local", timeout, False, show)
    (OUT / "local.log").write_text(text)
    made = re.search(r"^seed \d+: (\d+) calls in .*$", text, re.MULTILINE)
    outcome.add(f"at least {calls} calls made", bool(made) and int(made[1]) >= calls, text[-4000:])
    failed = re.findall(r"^FAILED (.*)$", text, re.MULTILINE)
    outcome.add("users can be killed, the honest go on, nothing is left", bool(re.search(r"^0 failures$", text, re.MULTILINE)),
                "\n".join([*failed, text[-4000:]]))
    outcome.summary += re.findall(r"^(?:seed \d+: .* calls .*|honest pair: .*|memory .*: .*)$", text, re.MULTILINE)
    return outcome
