# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""One measurement at a time inside a guest: perftest, rping, iperf3 and qperf between this host and `peer`.

Runs in the guest, so it imports nothing of the harness.  Every figure comes from a client that ended well; anything
else raises, and is never a zero.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time

PEER4, PEER6, OWN4, OWN6 = "10.77.0.2", "fd77::2", "10.77.0.1", "fd77::1"
IN_PEER = ["ip", "netns", "exec", "peer"]
# Each end gets a processor of its own: two spinning programs that the scheduler puts on one processor take turns by its
# tick, and the figure is the tick's.  The same goes for all that is measured here, TCP included.
CLIENT_CPU, SERVER_CPU = ["taskset", "-c", "0"], ["taskset", "-c", "1"]
MIB = 1 << 20
_port = 18000


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the two ends of a measurement are."""

    device: str
    server_device: str
    address: str
    peer: bool  # the server is in the other namespace


HOSTS = Place("sw0", "sw1", PEER4, True)
ONE_HOST = Place("swlo", "swlo", "127.0.0.1", False)


class Broken(Exception):
    """A tool failed; the text has its output."""


def sh(*args: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"{' '.join(args)}: code {done.returncode}\n{done.stdout}{done.stderr}")


def next_port() -> int:
    """A port that no earlier measurement used."""
    global _port
    _port += 1
    return _port


def _listening(port: int, peer: bool) -> bool:
    tables = subprocess.run([*(IN_PEER if peer else []), "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                            capture_output=True, text=True, check=False).stdout
    return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
               for row in tables.splitlines() if ":" in row and row.split()[0] != "sl")


class Server:
    """A server on the other host (or on this one), up when the with-block begins and gone when it ends."""

    def __init__(self, args, port: int, peer: bool = True):
        self.args, self.port, self.peer = args, port, peer

    def __enter__(self):
        command = [*(IN_PEER if self.peer else []), *SERVER_CPU, *self.args]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True, text=True)
        limit = time.monotonic() + 30
        while not _listening(self.port, self.peer):
            if self.process.poll() is not None:
                raise Broken(f"{' '.join(self.args)} ended at once\n{self.process.stdout.read()}")
            if time.monotonic() > limit:
                self.__exit__()
                raise Broken(f"{' '.join(self.args)} does not listen on port {self.port}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        try:
            self.text = self.process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.text = self.process.communicate()[0]


def ended_well(args, code: int | None, text: str) -> bool:
    """Of a client, or of a server whose client succeeded.

    rping ends while its own thread for events may still look at the channel that was closed: code 255, after all is done.
    """
    closed = "DISCONNECT EVENT" in text and text.rstrip().endswith("rdma_get_cm_event: Bad file descriptor")
    return not code or ("rping" in args and code == 255 and closed)


def client(args, timeout: float) -> str:
    """Output of a client that must succeed."""
    try:
        done = subprocess.run([*CLIENT_CPU, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        raise Broken(f"{' '.join(args)}: nothing after {timeout} s\n{(late.stdout or b'').decode()}") from late
    if not ended_well(args, done.returncode, done.stdout + done.stderr):
        raise Broken(f"{' '.join(args)}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _row(text: str, columns: int) -> list[str]:
    """perftest's line of results."""
    rows = [line.split() for line in text.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.infa-]+ ", line)]
    if not rows or len(rows[-1]) < columns:
        raise Broken(f"perftest printed no results\n{text}")
    return rows[-1]


def perftest_bw(op: str, size: int, qps: int, seconds: int, place: Place = HOSTS) -> float:
    """Messages per second of ib_<op>_bw, counted over a fixed time.

    perftest's own figures need the frequency of the time-stamp counter, and it prints zeros when a busy machine spoils
    its calibration; iterations over wall time do not depend on that.
    """
    port = next_port()
    args = [f"ib_{op}_bw", "-R", "-F", "-p", str(port), "-s", str(size), "-q", str(qps), "-D", str(seconds)]
    with Server([*args, "-d", place.server_device], port, place.peer):
        text = client([*args, "-d", place.device, place.address], seconds + 30)
    count = int(_row(text, 5)[1])
    if count == 0:
        raise Broken(f"{' '.join(args)} moved nothing\n{text}")
    return count / seconds


def perftest_lat(op: str, size: int, count: int, place: Place = HOSTS) -> float:
    """Typical (median) latency of ib_<op>_lat in microseconds."""
    text = ""
    for _ in range(3):
        port = next_port()
        args = [f"ib_{op}_lat", "-R", "-F", "-p", str(port), "-s", str(size), "-n", str(count)]
        with Server([*args, "-d", place.server_device], port, place.peer):
            text = client([*args, "-d", place.device, place.address], 60)
        value = float(_row(text, 6)[4])
        # Zero or infinity: the calibration that perftest_bw() speaks of failed.
        if 0 < value < 1e9:
            return value
    raise Broken(f"{' '.join(args)} gave no latency three times\n{text}")


def rping(address: str, count: int, size: int = 64, peer: bool = True) -> float:
    """Round trips per second of rping with verified data."""
    port = next_port()
    args = ["rping", "-p", str(port), "-a", address, "-C", str(count), "-S", str(size), "-V"]
    with Server([*args, "-s"], port, peer):
        begin = time.monotonic()
        client([*args, "-c"], 60)
        return count / (time.monotonic() - begin)


def iperf3(size: int, streams: int, seconds: int, place: Place = HOSTS) -> float:
    """Bytes per second that iperf3 received."""
    port = str(next_port())
    with Server(["iperf3", "-s", "-1", "-p", port], int(port), place.peer):
        text = client(["iperf3", "-c", place.address, "-p", port, "-t", str(seconds), "-l", str(size), "-P", str(streams),
                       "-J"], seconds + 30)
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8


_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "sec": 1e6, "bytes/sec": 1, "KB/sec": 1e3, "MB/sec": 1e6, "GB/sec": 1e9}


def qperf(test: str, size: int, seconds: int, field: str, place: Place = HOSTS) -> float:
    """One field of qperf: a latency in microseconds or a bandwidth in bytes per second."""
    port = str(next_port())
    with Server(["qperf", "-lp", port], int(port), place.peer):
        text = client(["qperf", "-lp", port, "-m", str(size), "-t", str(seconds), place.address, test], seconds + 30)
    match = re.search(rf"{field} += +([\d.,]+) (\S+)", text)
    if not match:
        raise Broken(f"qperf printed no {field}\n{text}")
    return float(match[1].replace(",", "")) * _UNITS[match[2]]


def busy_seconds() -> float:
    """Processor time spent on anything but idling, since boot, over all processors."""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def iperf3_cost(size: int, seconds: int) -> float:
    """Nanoseconds of processor time per KiB that iperf3 moves in one stream, both ends together."""
    before = busy_seconds()
    rate = iperf3(size, 1, seconds)
    return (busy_seconds() - before) * 1e9 / (rate * seconds / 1024)


def rdma_cost(program: str, op: str, size: int, seconds: int) -> float:
    """The same for an RDMA transfer whose ends sleep until completions come."""
    port = str(next_port())
    with Server([program, "--server", PEER4, "--port", port], int(port)):
        text = client([program, "--op", op, "--size", str(size), "--seconds", str(seconds), "--connect", PEER4,
                       "--port", port], seconds + 30)
    result = json.loads(text)
    if not result["bytes"]:
        raise Broken(f"{program} moved nothing\n{text}")
    return result["cpu_seconds"] * 1e9 / (result["bytes"] / 1024)


def sockets(program: str, sdp: bool, test: str, size: int, connections: int, seconds: int) -> float:
    """One figure of stream sockets, SDP's or TCP's: MB/s, us of a round trip, connections per second, or ns per KiB."""
    port = str(next_port())
    kind = ["--sdp"] if sdp else []
    name, *flags = test.replace("_cost", "").split("_")
    with Server([program, "--server", PEER4, "--port", port, *kind], int(port)):
        text = client([program, "--connect", PEER4, "--port", port, *kind, "--test", name, "--size", str(size),
                       "--connections", str(connections), "--seconds", str(seconds), *(f"--{one}" for one in flags)],
                      seconds + 30)
    result = json.loads(text)
    if not result["count"]:
        raise Broken(f"{program} moved nothing\n{text}")
    if test == "stream_cost":
        return result["cpu_seconds"] * 1e9 / (result["count"] / 1024)
    if name == "echo":
        return result["seconds"] * 1e6 * connections / result["count"]
    return result["count"] / result["seconds"] / (1e6 if name == "stream" else 1)


def many(program: str, tcp: bool, test: str, count: int) -> float:
    """Connections per second until so many are up (test setup), or the KiB of memory of each end of one (memory)."""
    port = str(next_port())
    args = [program, "--port", port, "--count", str(count), *(["--tcp"] if tcp else [])]
    limit = "net.ipv4.tcp_max_tw_buckets"
    before = pathlib.Path("/proc/sys/net/ipv4/tcp_max_tw_buckets").read_text(encoding="ascii").strip()
    # Ports in TIME-WAIT would not suffice for the next measurement.
    for host in ([], IN_PEER):
        sh(*host, "sysctl", "-q", "-w", f"{limit}=0")
    try:
        with Server([*args, "--server", PEER4], int(port)):
            result = json.loads(client([*args, "--connect", PEER4], 120))
    finally:
        for host in ([], IN_PEER):
            sh(*host, "sysctl", "-q", "-w", f"{limit}={before}")
    return result["count"] / result["seconds"] if test == "setup" else result["bytes_per_end"] / 1024


LINKS = {"loss": ["loss", "1%"], "delay": ["delay", "5ms", "limit", "100000"]}


@contextlib.contextmanager
def worse_link(how: str):
    """A link that loses packets, or takes longer, in both directions."""
    ends = [(["tc", "qdisc"], "net0"), ([*IN_PEER, "tc", "qdisc"], "net1")]
    for tc, netdev in ends:
        sh(*tc, "replace", "dev", netdev, "root", "netem", *LINKS[how])
    try:
        yield
    finally:
        for tc, netdev in ends:
            sh(*tc, "delete", "dev", netdev, "root")


def use(driver: str) -> None:
    """Let sw0, sw1, and of softwarp swlo, be devices of this driver."""
    for device in ("swlo", "sw0", "sw1"):
        if os.path.exists(f"/sys/class/infiniband/{device}"):
            sh("rdma", "link", "delete", device)
    sh("rdma", "link", "add", "sw0", "type", driver, "netdev", "net0")
    sh(*IN_PEER, "rdma", "link", "add", "sw1", "type", driver, "netdev", "net1")
    if driver == "softwarp":
        sh("rdma", "link", "add", "swlo", "type", driver, "netdev", "lo")
