#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The kernel's switch, sdp_switch and sdp_run --kernel: main.py SDP_MODULE PLAIN.  Runs in a guest.

    this namespace              namespace "peer"
    net0 10.77.0.1 ============ net1 10.77.0.2      devices sw0, sw1

PLAIN is a static program, see plain.cpp.  A kernel without the hook is tests/e2e/install.sh's.
A line "ok" or "FAILED" for each case, with the reason; the last line counts them.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
sys.path.insert(0, str(ROOT / "tests/preload"))
import results  # noqa: E402
from hosts import PATIENCE, PEER, PEER4, RUN, case, counters, run, want  # noqa: E402

SWITCH = str(ROOT / "build/preload/sdp_switch")
MODULE, PLAIN = sys.argv[1], sys.argv[2]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
GROUPS = pathlib.Path("/sys/fs/cgroup")
BPF = pathlib.Path("/sys/fs/bpf")
PINS = BPF / "softwarp"
# What PLAIN says of its sockets
SWITCHED = ("inet: protocol 6, SDP, policy 1\ninet tcp: protocol 6, SDP, policy 1\ninet6: protocol 6, SDP, policy 1\n"
            "udp: protocol 17\nmptcp: protocol 262\nsdp: protocol 6, SDP, policy 0\nunix: protocol 0\n"
            "wrong: Invalid argument\n")
UNTOUCHED = SWITCHED.replace(", SDP, policy 1", "")


def eventually(what: str, condition) -> None:
    """Fail unless the condition becomes true."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        want(what, time.monotonic() < limit, show())
        time.sleep(0.05)


def show() -> str:
    """What the switch says of itself."""
    return subprocess.run([SWITCH, "show"], capture_output=True, text=True, check=False).stdout


def inside(group: pathlib.Path, *command) -> list[str]:
    """The words that run a command in a cgroup."""
    return ["sh", "-c", f'echo 0 > {group}/cgroup.procs && exec "$@"', "sh", *(str(word) for word in command)]


@contextlib.contextmanager
def group(name: str, on=True):
    """A cgroup, switched or not."""
    path = GROUPS / name
    path.mkdir()
    try:
        if on:
            run(SWITCH, "on", "--cgroup", path)
        yield path
    finally:
        if path.exists():
            path.rmdir()
        run(SWITCH, "off")


@contextlib.contextmanager
def server(port: int, prefix):
    """PLAIN serves at a port of the other host; the prefix switches it, or does not."""
    process = subprocess.Popen([*prefix, *PEER, PLAIN, "serve", str(port)], stdin=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + PATIENCE
        while not run(*PEER, "ss", "-Hltn", f"sport = :{port}").strip():
            want("the server listens", process.poll() is None and time.monotonic() < limit)
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def talk(port: int, *prefix, by_sdp=True) -> str:
    """PLAIN talks to the server, by SDP or not."""
    before = counters()["connected"]
    text = run(*prefix, PLAIN, "talk", PEER4, port)
    want("verified", "all octets are right" in text, text)
    want("by SDP" if by_sdp else "by TCP", (counters()["connected"] > before) == by_sdp, text)
    return text


def what_is_missing() -> None:
    """Each thing that is missing is named, and the switch stays off."""
    GROUPS.is_mount() and run("umount", GROUPS)
    want("cgroups", "mount -t cgroup2 none /sys/fs/cgroup" in run(SWITCH, "on", code=125))
    run("mount", "-t", "cgroup2", "none", GROUPS)
    BPF.is_mount() and run("umount", BPF)
    want("bpf", "mount -t bpf bpf /sys/fs/bpf" in run(SWITCH, "on", code=125))
    run("mount", "-t", "bpf", "bpf", BPF)
    for command in ([SWITCH, "on"], [RUN, "--kernel", PLAIN, "look"]):
        text = run(*command, code=125)
        want("the module", "softwarp_sdp is not loaded" in text, text)
    want("off", run(SWITCH, "show", code=1) == "off\n")
    want("plain sockets", run(PLAIN, "look") == UNTOUCHED.replace("sdp: protocol 6, SDP, policy 0", "sdp: Protocol not supported"))
    want("no cgroup is left", not list(GROUPS.glob("**/sdp_run-*")))


def static_program() -> None:
    """In the cgroup and in those below, not beside."""
    with group("one") as one:
        (one / "below").mkdir()
        want("inside", (text := run(*inside(one, PLAIN, "look"))) == SWITCHED, text)
        want("below", (text := run(*inside(one / "below", PLAIN, "look"))) == SWITCHED, text)
        want("outside", (text := run(PLAIN, "look")) == UNTOUCHED, text)
        with server(5600, inside(one)):
            talk(5600, *inside(one))
            talk(5600, by_sdp=False)
        with server(5601, []):
            talk(5601, *inside(one), by_sdp=False)
        (one / "below").rmdir()
    want("afterwards", run(PLAIN, "look") == UNTOUCHED)


def setuid_program() -> None:
    """With the rights of another user it is switched all the same."""
    with tempfile.TemporaryDirectory() as directory, group("one") as one, server(5602, inside(one)):
        os.chmod(directory, 0o755)
        path = shutil.copy(PLAIN, directory)
        os.chmod(path, 0o4755)
        before = counters()["connected"]
        text = run(*inside(one, *NOBODY, path, "talk", PEER4, 5602))
        want("as root", "all octets are right, user 0" in text, text)
        want("by SDP", counters()["connected"] > before, text)


def several() -> None:
    """Each counts its own, and goes by itself."""
    with group("one") as one, group("two") as two:
        run(SWITCH, "on", "--cgroup", "/two")  # again, by its other name
        for path in (one, two, two):
            run(*inside(path, PLAIN, "look"))
        text = run(SWITCH, "show")
        # with the call that fails for another reason
        want("counts", text == f"   sockets  cgroup\n         4  {one}\n         8  {two}\n", text)
        want("one", str(two) not in run(SWITCH, "show", "--cgroup", one))
        run(SWITCH, "off", "--cgroup", one)
        want("one is off", run(*inside(one, PLAIN, "look")) == UNTOUCHED)
        want("and says so", run(SWITCH, "show", "--cgroup", one, code=1) == "off\n")
        want("two is on", run(*inside(two, PLAIN, "look")) == SWITCHED)
        want("what is off is off", "it was not on" in run(SWITCH, "off", "--cgroup", one))
        run(SWITCH, "off", "--cgroup", two)
        want("with the last one all is off", not list(PINS.iterdir()) and run(SWITCH, "show", code=1) == "off\n")
        want("a wrong path", "is no control group" in run(SWITCH, "on", "--cgroup", "/tmp", code=125))


def removed() -> None:
    """A cgroup that goes takes its entry with it."""
    with group("one") as one, group("two") as two:
        two.rmdir()
        text = run(SWITCH, "show")
        want("gone", text.count("\n") == 2 and str(one) in text and "removed" not in text, text)
        one.rmdir()
        text = run(SWITCH, "show", code=1)
        want("none is left", text == "on, but all its control groups are gone\n", text)
        one.mkdir()
        want("a new one of the name is another", run(*inside(one, PLAIN, "look")) == UNTOUCHED)
        run(SWITCH, "on", "--cgroup", one)
        want("and can be switched", run(*inside(one, PLAIN, "look")) == SWITCHED)


def whole_host() -> None:
    """Without a cgroup all processes are meant."""
    run(SWITCH, "on")
    try:
        want("switched", run(PLAIN, "look") == SWITCHED)
        want("shown", f"  {GROUPS}\n" in run(SWITCH, "show"))
    finally:
        run(SWITCH, "off")
    want("afterwards", run(PLAIN, "look") == UNTOUCHED)


def module_is_held() -> None:
    """It cannot go while the switch is on, and can at once when it is off; then socket() gives TCP."""
    for cycle in range(2):
        with group("one") as one:
            want("held", "in use" in run("rmmod", "softwarp_sdp", code=1), f"cycle {cycle}")
            want("and used", run(*inside(one, PLAIN, "look")) == SWITCHED)
            run(SWITCH, "off")
            eventually("it goes", lambda: subprocess.run(["rmmod", "softwarp_sdp"], capture_output=True,
                                                         check=False).returncode == 0)
            want("TCP", "inet: protocol 6\n" in run(*inside(one, PLAIN, "look")))
            want("refused", "softwarp_sdp is not loaded" in run(SWITCH, "on", "--cgroup", one, code=125))
            want("nothing is left", not list(PINS.iterdir()))
        run("insmod", MODULE)


def unprivileged() -> None:
    """A user without rights changes nothing, and is told who can."""
    with group("one") as one:
        for command in ([SWITCH, "on"], [SWITCH, "off"], [SWITCH, "show"], [SWITCH, "on", "--cgroup", one],
                        [RUN, "--kernel", PLAIN, "look"]):
            text = run(*NOBODY, *command, code=125)
            want("said", "needs root" in text, text)
        want("still on", run(*inside(one, PLAIN, "look")) == SWITCHED)
    shutil.rmtree(PINS)
    run(*NOBODY, "mkdir", PINS)  # anybody may, in a BPF file system with the usual mode
    try:
        text = run(SWITCH, "on", code=125)
        want("a directory of somebody else", "is open to others than root" in text, text)
    finally:
        PINS.rmdir()


def interrupted() -> None:
    """What a killed sdp_switch has left is no switch, and is cleared away."""
    with group("one") as one:
        (PINS / "protocol").unlink()
        eventually("off", lambda: run(*inside(one, PLAIN, "look")) == UNTOUCHED)
        want("shown", run(SWITCH, "show", code=1) == "off\n")
        run(SWITCH, "on", "--cgroup", one)
        want("on again", run(*inside(one, PLAIN, "look")) == SWITCHED)


def nothing_is_left() -> bool:
    """Of sdp_run --kernel."""
    return show() == "off\n" and not list(GROUPS.glob("**/sdp_run-*"))


def run_by_kernel() -> None:
    """sdp_run --kernel, and what it leaves: nothing."""
    with server(5603, [RUN, "--kernel"]):
        text = talk(5603, RUN, "--kernel")
        want("shown while it runs", "/sdp_run-" in show(), text)
    eventually("nothing is left", nothing_is_left)
    want("exit code", not run(RUN, "--kernel", "sh", "-c", "exit 7", code=7))
    run(RUN, "--kernel", "/there/is/none", code=127)
    run(RUN, "--kernel", "/etc/passwd", code=126)
    want("words", run(RUN, "--kernel", "--", "echo", "-v", "--", "x") == "-v -- x\n")
    want("rules", "goes with no other option" in run(RUN, "--kernel", "--policy", "sdp", "true", code=125))
    eventually("nothing is left", nothing_is_left)


def leaves_children() -> None:
    """What the program leaves running stays switched; whoever waits for the program's output does not wait for more."""
    text = run(RUN, "--kernel", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!")
    want("its cgroup is there", "/sdp_run-" in show(), show())
    os.kill(int(text), 9)
    eventually("nothing is left", nothing_is_left)


CASES = (("a static program", static_program), ("a setuid program", setuid_program),
         ("several control groups", several), ("control groups that are removed", removed), ("the whole host", whole_host),
         ("the module is held", module_is_held), ("a user without rights", unprivileged), ("an interrupted start", interrupted),
         ("sdp_run --kernel", run_by_kernel), ("sdp_run --kernel leaves children", leaves_children))


def main() -> int:
    cases = results.Cases()
    case(cases, "what is missing is said", what_is_missing)
    run("insmod", MODULE)
    for name, function in CASES:
        case(cases, name, function)
    return cases.finish()


sys.exit(main())
