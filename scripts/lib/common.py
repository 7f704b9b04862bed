# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What every script of the harness shares: paths, the cache outside the tree, and running steps.

The cache ($SOFTWARP_CACHE, else ~/.cache/softwarp) holds what is expensive and depends on nothing in the working
tree but its inputs: packages, kernel sources, kernels.  An entry is a directory named after the hash of its inputs;
it counts only once its stamp exists, and one lock per entry makes two builders of the same key safe.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
STAMP = ".complete"


class Failure(Exception):
    """A step failed; the text is all the user needs to read."""


def cache_root() -> Path:
    """The directory of the cache, made on first use."""
    path = Path(os.environ.get("SOFTWARP_CACHE") or Path.home() / ".cache" / "softwarp").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def say(text: str) -> None:
    """One line of progress on stderr; stdout belongs to results."""
    print(f"softwarp: {text}", file=sys.stderr, flush=True)


def digest(*parts: object) -> str:
    """A short hash over strings and the contents of files (Path)."""
    state = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:16]


@contextlib.contextmanager
def locked(path: Path, what: str):
    """Hold an exclusive lock on a file, saying so when someone else has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that prepares {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cached(name: str, build, what: str) -> Path:
    """The cache entry `name`, made by build(directory) if it is not there yet."""
    entry = cache_root() / name
    if (entry / STAMP).exists():
        return entry
    with locked(cache_root() / f"{name}.lock", what):
        if (entry / STAMP).exists():
            return entry
        if entry.exists():
            shutil.rmtree(entry)
        entry.mkdir(parents=True)
        begin = time.monotonic()
        say(f"preparing {what}")
        build(entry)
        (entry / STAMP).touch()
        say(f"{what}: ready after {time.monotonic() - begin:.0f} s")
    return entry


def run(args, log: Path | None = None, what: str = "", cwd: Path | None = None, env: dict | None = None) -> None:
    """Run a step to the end; with a log, its output goes there and the tail is shown on failure.

    A line of progress follows every half minute, so that a long build does not look like a hang.
    """
    args = [str(arg) for arg in args]
    what = what or args[0]
    environ = {**os.environ, **(env or {})}
    if log is None:
        done = subprocess.run(args, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            tail = (done.stdout + done.stderr).decode(errors="replace").splitlines()[-30:]
            raise Failure(f"{what} failed with code {done.returncode}\n" + "\n".join(tail))
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with open(log, "ab") as out:
        out.write(f"+ {' '.join(args)}\n".encode())
        out.flush()
        with subprocess.Popen(args, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
            while True:
                try:
                    code = process.wait(timeout=30)
                    break
                except subprocess.TimeoutExpired:
                    say(f"{what}: {time.monotonic() - begin:.0f} s so far")
                except BaseException:
                    process.kill()
                    raise
    if code:
        tail = log.read_text(errors="replace").splitlines()[-40:]
        raise Failure(f"{what} failed with code {code}; end of {log}:\n" + "\n".join(tail))


def output(args, **kwargs) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run([str(arg) for arg in args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **kwargs)
    if done.returncode:
        raise Failure(f"{' '.join(str(arg) for arg in args)} failed with code {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


def jobs() -> int:
    """How many jobs a build may run: JOBS, else one per processor."""
    return int(os.environ.get("JOBS") or os.cpu_count() or 1)


def main_wrapper(function) -> None:
    """Run a script's main(); a Failure becomes one message and exit code 1."""
    try:
        sys.exit(function())
    except Failure as failure:
        print(f"softwarp: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
