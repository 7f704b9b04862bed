# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What tests of programs under sdp_run share, in a guest with two hosts: this namespace and "peer"."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = str(ROOT / "build/preload/sdp_run")
PYTHON = "/usr/bin/python3"
PEER = ["ip", "netns", "exec", "peer"]
OURS4, PEER4, PEER6 = "10.77.0.1", "10.77.0.2", "fd77::2"
MIB = 1 << 20
PATIENCE = 60
DIRECTORY = pathlib.Path(tempfile.mkdtemp())


class Broken(Exception):
    """A case failed; the text says how."""


def run(*command, code=0, env=None, timeout=PATIENCE, stdin=subprocess.DEVNULL, **kwargs) -> str:
    """Output of a command, with its errors, which must end with the code."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=timeout, check=False, env={**os.environ, **(env or {})}, **kwargs)
    except subprocess.TimeoutExpired as late:
        raise Broken(f"hangs: {' '.join(words)}\n{(late.stdout or b'').decode(errors='replace')}") from late
    if done.returncode != code:
        raise Broken(f"{' '.join(words)}: code {done.returncode}\n{done.stdout}")
    return done.stdout


def want(what: str, condition, text="") -> None:
    """Fail unless the condition is true."""
    if not condition:
        raise Broken(f"{what}\n{text}")


def end(process, stop=signal.SIGKILL) -> None:
    """End a process by a signal, and what is then left of its group."""
    if process.poll() is None:
        process.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def server(port: int, *command, env=None, prefix=None, outside=(), stop=signal.SIGKILL):
    """A server that listens at a port of the other host; gives the file of what it prints.  What is outside is run in this
    host, with the server as its command.  At the end it is sent the signal, and what is then left of it is killed."""
    prefix = PEER if prefix is None else prefix
    path = DIRECTORY / f"server-{port}"
    with open(path, "wb") as out:
        process = subprocess.Popen([*outside, *prefix, *(str(word) for word in command)], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})})
        try:
            limit = time.monotonic() + PATIENCE
            while not run(*prefix, "ss", "-Hltn", f"sport = :{port}").strip():
                want("the server ends", process.poll() is None, path.read_text())
                want("the server does not listen", time.monotonic() < limit, path.read_text())
                time.sleep(0.05)
            yield path
        finally:
            end(process, stop)


def counters(prefix=()) -> dict[str, int]:
    """Those of softwarp_sdp in a namespace."""
    text = run(*prefix, "cat", "/proc/net/softwarp_sdp_stat")
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


class Counted:
    """What the counters of this host have gained since."""

    def __init__(self, prefix=()):
        self.prefix = prefix
        self.before = counters(prefix)

    def __getitem__(self, name: str) -> int:
        return counters(self.prefix)[name] - self.before[name]

    def octets(self) -> int:
        """Octets of streams by SDP, both ways."""
        return self["octets_sent"] + self["octets_received"]


def case(cases, name: str, function) -> None:
    """One case; whatever it raises fails it."""
    text = ""
    try:
        function()
    except Broken as broken:
        text = str(broken)
    except Exception as error:  # pylint: disable=broad-except
        text = repr(error)
    cases.add(name, not text, text)
