# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The applications: how each is started as a server, what a client does with it, and how the data are verified.

`by` is what a command is run by: nothing, or sdp_run.  Servers are in the other host.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import time

from hosts import DIRECTORY, MIB, PEER, PEER4, run, server, want

PATIENCE = 300


class App:
    """One application; the subclasses say what is special."""

    name = ""
    ports: tuple[int, ...] = ()
    least = MIB  # octets that have to go by SDP, or it was not tested
    share = 1.0  # of all octets at the ports, the part that has to

    def __init__(self, quick: bool):
        self.seconds = 2 if quick else 5
        self.size = (20 if quick else 100) * MIB

    def serve(self, by, mode: str):
        """A context in which the server listens."""
        raise NotImplementedError

    def talk(self, by, mode: str) -> dict[str, tuple[float, str]]:
        """Use it and verify the data; gives numbers by name, each with its unit."""
        raise NotImplementedError

    def clean(self) -> None:
        """What it has left."""
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def directory(self) -> pathlib.Path:
        """For its files."""
        path = DIRECTORY / f"app-{self.port}"
        path.mkdir(exist_ok=True)
        return path

    def file(self, name="file", size=0) -> pathlib.Path:
        """A file of random octets."""
        path = self.directory / name
        if not path.exists():
            with open(path, "wb") as out:
                for _ in range((size or self.size) // MIB):
                    out.write(os.urandom(MIB))
        return path


def same(one: pathlib.Path, other: pathlib.Path) -> None:
    """Two files with the same octets?"""
    def digest(path: pathlib.Path) -> str:
        with open(path, "rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else \
                hashlib.sha256(source.read()).hexdigest()
    want(f"{other.name}: all octets are right", one.stat().st_size == other.stat().st_size and digest(one) == digest(other),
         f"{one.stat().st_size} and {other.stat().st_size} octets")


def timed(function, *args, **kwargs) -> tuple[float, object]:
    """Seconds that it took, and what it returned."""
    begin = time.monotonic()
    result = function(*args, **kwargs)
    return time.monotonic() - begin, result


# iperf3 ----------------------------------------------------------------------------------


class Iperf(App):
    """iperf3 counts octets and does not look at them."""

    name, ports, args = "iperf3", (5201,), ()

    def serve(self, by, mode):
        return server(self.port, *by, "iperf3", "-s", "-1", "-p", self.port)

    def talk(self, by, mode):
        report = json.loads(run(*by, "iperf3", "-J", "-c", PEER4, "-p", self.port, "-t", self.seconds, *self.args,
                                timeout=PATIENCE))["end"]
        numbers = {}
        for kind, name in (("", ""), ("_bidir_reverse", "back")):
            if f"sum_received{kind}" not in report:
                continue
            sent, received = report[f"sum_sent{kind}"]["bytes"], report[f"sum_received{kind}"]["bytes"]
            want("octets arrive, and no more than were sent", 0 < received <= sent, report)
            numbers[name] = (report[f"sum_received{kind}"]["bits_per_second"] / 8e6, " MB/s")
        want("as many numbers as directions", len(numbers) == (2 if "--bidir" in self.args else 1), report)
        return numbers


class IperfStreams(Iperf):
    """Eight streams."""

    name, ports, args = "iperf3 -P 8", (5202,), ("-P", "8")


class IperfReverse(Iperf):
    """The server sends."""

    name, ports, args = "iperf3 -R", (5203,), ("-R",)


class IperfBoth(Iperf):
    """Both send."""

    name, ports, args = "iperf3 --bidir", (5204,), ("--bidir",)


ALL = (Iperf, IperfStreams, IperfReverse, IperfBoth)


def chosen(names: list[str], quick: bool) -> list[App]:
    """Those whose name begins with one of the names; all without any."""
    return [kind(quick) for kind in ALL if not names or any(kind.name.startswith(name) for name in names)]
