# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The applications: how each is started as a server, what a client does with it, and how the data are verified.

`by` is what a command is run by: nothing, or sdp_run.  Servers are in the other host.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import measure
from hosts import DIRECTORY, MIB, OURS4, PEER, PEER4, PYTHON, RUN, run, server, want

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = os.environ.get("SOFTWARP_PROGRAMS", "")  # what has to be compiled
PATIENCE = 300


class App:
    """One application; the subclasses say what is special."""

    name = ""
    ports: tuple[int, ...] = ()
    least = MIB  # octets that have to go by SDP, or it was not tested
    kernel = "uml"  # that it runs on
    sdp = (RUN,)  # what puts it on SDP

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


def certificate(directory: pathlib.Path) -> pathlib.Path:
    """Of the host "peer", made when it is first asked for; its key is in the file "key"."""
    path = directory / "certificate"
    if not path.exists():
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=peer",
            "-addext", "subjectAltName=DNS:peer", "-days", 2, "-keyout", directory / "key", "-out", path)
    return path


# iperf3 ----------------------------------------------------------------------------------


class Iperf(App):
    """iperf3 counts octets and does not look at them."""

    name, ports, args = "iperf3", (5201,), ()
    BLOCK = 128 << 10

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
            # from 3.16 on a thread may write one more block while another one takes the sender's count
            most = sent + self.BLOCK * len(report["streams"])
            want("octets arrive, and no more than were sent", 0 < received <= most, report)
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


class IperfFar(Iperf):
    """The other host is far away."""

    name, ports, args = "iperf3 5 ms away", (5205,), ()

    @contextlib.contextmanager
    def serve(self, by, mode):
        with measure.worse_link("delay"), super().serve(by, mode) as serving:
            yield serving


# nginx with curl and wrk -------------------------------------------------------------------


def nginx(directory: pathlib.Path, port: int, by, prefix=None):
    """An nginx that serves a directory and says its port in a header."""
    here = DIRECTORY / f"nginx-{port}"
    here.mkdir(exist_ok=True)
    temporary = " ".join(f"{kind}_temp_path {here}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (here / "conf").write_text(f"""
daemon off; user root; worker_processes 1; pid {here}/pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; {temporary}
    server {{ listen {port}; root {directory}; add_header X-Server {port}; }}
}}
""")
    return server(port, *by, "nginx", "-c", here / "conf", prefix=prefix, stop=signal.SIGTERM)


def curl(by, url: str, source: pathlib.Path, *args) -> float:
    """Fetches a file and compares it; MB/s."""
    got = source.with_suffix(".got")
    speed = run(*by, "curl", "-sS", "-f", "-o", got, "-w", "%{speed_download}", *args, url, timeout=PATIENCE)
    same(source, got)
    got.unlink()
    return float(speed) / 1e6


def wrk(by, url: str, seconds: int) -> float:
    """Requests per second, all of them answered."""
    text = run(*by, "wrk", "-t", 1, "-c", 16, "-d", seconds, "--timeout", 10, url, timeout=PATIENCE)
    want("every request is answered", "Non-2xx" not in text and "Socket errors" not in text, text)
    found = re.search(r"^Requests/sec:\s+([\d.]+)$", text, re.MULTILINE)
    want("wrk counts", found and float(found[1]) > 0, text)
    return float(found[1])


class Nginx(App):
    """sendfile, keep-alive."""

    name, ports = "nginx", (5210,)

    def serve(self, by, mode):
        self.file()
        (self.directory / "small").write_bytes(os.urandom(1000))
        return nginx(self.directory, self.port, by)

    def talk(self, by, mode):
        url = f"http://{PEER4}:{self.port}"
        return {"curl": (curl(by, f"{url}/file", self.file()), " MB/s"),
                "wrk": (wrk(by, f"{url}/small", self.seconds), "/s")}


# Data bases ------------------------------------------------------------------------------


class Redis(App):
    """A value of a megabyte there and back, and redis-benchmark."""

    name, ports = "redis-benchmark", (5220,)

    def serve(self, by, mode):
        return server(self.port, *by, "redis-server", "--port", self.port, "--bind", "0.0.0.0", "--protected-mode", "no",
                      "--save", "", "--appendonly", "no", "--dir", self.directory, stop=signal.SIGTERM)

    def talk(self, by, mode):
        at = ("-h", PEER4, "-p", self.port)
        value = os.urandom(MIB // 2).hex()
        (self.directory / "value").write_text(value)
        with open(self.directory / "value", encoding="ascii") as source:
            want("stored", run(*by, "redis-cli", *at, "-x", "set", "value", stdin=source).strip() == "OK")
        want("a megabyte comes back", run(*by, "redis-cli", *at, "get", "value").strip() == value)
        requests = 10000 * self.seconds
        text = run(*by, "redis-benchmark", *at, "-t", "set,get", "-c", 50, "-n", requests, "--csv", timeout=PATIENCE)
        rates = dict(re.findall(r'^"(SET|GET)","([\d.]+)"', text, re.MULTILINE))
        want("both were measured", len(rates) == 2, text)
        return {name: (float(rate), "/s") for name, rate in rates.items()}


class Postgres(App):
    """pgbench: the sums of all accounts, tellers, branches and of the history must be the same at the end."""

    name, ports = "pgbench", (5230,)
    ROLE = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")

    def __init__(self, quick):
        super().__init__(quick)
        self.programs = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), default=pathlib.Path("/usr/bin"))

    def serve(self, by, mode):
        data = self.directory / "data"
        if not data.exists():
            data.mkdir()
            shutil.chown(data, "postgres")
            data.chmod(0o700)
            run(*self.ROLE, self.programs / "initdb", "-D", data, "-A", "trust", "-N", timeout=PATIENCE)
            with open(data / "pg_hba.conf", "a", encoding="ascii") as rules:
                rules.write("host all all 10.77.0.0/24 trust\n")
        settings = {"listen_addresses": "*", "unix_socket_directories": "", "fsync": "off", "shared_buffers": "64MB",
                    "dynamic_shared_memory_type": "mmap", "logging_collector": "off"}
        return server(self.port, *self.ROLE, *by, self.programs / "postgres", "-D", data, "-p", self.port,
                      *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")), stop=signal.SIGINT)

    def talk(self, by, mode):
        at = ("-h", PEER4, "-p", self.port, "-U", "postgres")
        # It listens before it is ready.
        limit = time.monotonic() + 60
        ready = [*PEER, self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            want("the data base is ready", time.monotonic() < limit)
            time.sleep(0.1)

        def bench(*args) -> float:
            text = run(*by, self.programs / "pgbench", *at, *args, "postgres", timeout=PATIENCE)
            want("no transaction failed", "number of failed transactions: 0 " in text, text)
            found = re.search(r"^tps = ([\d.]+)", text, re.MULTILINE)
            want("pgbench counts", found, text)
            return float(found[1])

        run(*by, self.programs / "pgbench", *at, "-i", "-q", "-s", 1, "postgres", timeout=PATIENCE)
        load = ("-n", "-c", 4, "-T", self.seconds)
        numbers = {"": (bench(*load), " tps"), "-S": (bench("-S", *load), " tps")}
        sums = ", ".join(f"(select sum({column}) from pgbench_{table})" for column, table in
                         (("abalance", "accounts"), ("tbalance", "tellers"), ("bbalance", "branches"), ("delta", "history")))
        text = run(*by, self.programs / "psql", *at, "-X", "-A", "-t", "-F", " ", "-c", f"select {sums}", "postgres")
        want("all sums are the same", len(text.split()) == 4 and len(set(text.split())) == 1, text)
        return numbers


class Memcached(App):
    """A file there and back, and memcslap."""

    name, ports = "memcslap", (5240,)

    def serve(self, by, mode):
        return server(self.port, *by, "memcached", "-u", "root", "-U", 0, "-l", "0.0.0.0", "-p", self.port, "-m", 128, "-I",
                      "2m", stop=signal.SIGTERM)

    def counter(self, name: str) -> int:
        """One of the server's."""
        text = run(*PEER, "memcstat", f"--servers=127.0.0.1:{self.port}")
        found = re.search(rf"\b{name}: (\d+)", text)
        want(f"memcached counts {name}", found, text)
        return int(found[1])

    def talk(self, by, mode):
        at = f"--servers={PEER4}:{self.port}"
        source = self.file("value", MIB)
        run(*by, "memccp", at, source)
        got = self.directory / "got"
        run(*by, "memccat", at, f"--file={got}", "value")
        same(source, got)
        numbers, count = {}, 8 * 400 * self.seconds
        for test, counter in (("set", "cmd_set"), ("get", "get_hits")):
            before = self.counter(counter)
            text = run(*by, "memcslap", at, f"--test={test}", "--concurrency=8", f"--execute-number={count // 8}",
                       timeout=PATIENCE)
            found = re.search(r"by +8 threads: +([\d.]+) seconds", text)
            want("memcslap counts", found, text)
            want("the server has found each", self.counter(counter) - before == count, text)
            numbers[test] = (count / float(found[1]), "/s")
        return numbers


# Files -----------------------------------------------------------------------------------


class Rsync(App):
    """A daemon; one large file and many small ones."""

    name, ports = "rsync", (5250,)

    def serve(self, by, mode):
        data = self.directory / "data"
        if not data.exists():
            data.mkdir()
            self.file().rename(data / "file")
            for number in range(200):
                (data / f"small-{number}").write_bytes(os.urandom(number * 100))
        pid = self.directory / "pid"
        pid.unlink(missing_ok=True)
        (self.directory / "conf").write_text(f"use chroot = no\nuid = root\ngid = root\npid file = {pid}\n"
                                             f"[data]\npath = {data}\nread only = yes\n")
        return server(self.port, *by, "rsync", "--daemon", "--no-detach", "--port", self.port, "--config",
                      self.directory / "conf", stop=signal.SIGTERM)

    def talk(self, by, mode):
        data, got = self.directory / "data", self.directory / "got"
        seconds, _ = timed(run, *by, "rsync", "-a", f"rsync://{PEER4}:{self.port}/data/", got, timeout=PATIENCE)
        want("as many files", len(list(got.iterdir())) == len(list(data.iterdir())) == 201)
        for path in data.iterdir():
            same(path, got / path.name)
        size = sum(path.stat().st_size for path in data.iterdir())
        shutil.rmtree(got)
        return {"": (size / seconds / 1e6, " MB/s")}


class Socat(App):
    """A file in one direction."""

    name, ports = "socat", (5260,)

    def listen(self) -> tuple:
        """The words of the server, which writes what it gets into the file "got"."""
        return ("socat", "-u", f"TCP4-LISTEN:{self.port},reuseaddr", f"CREATE:{self.directory}/got")

    def send(self) -> tuple:
        """The words of the client, which gets the file at its standard input."""
        return ("socat", "-u", "STDIN", f"TCP4:{PEER4}:{self.port}")

    def serve(self, by, mode):
        self.file()
        return server(self.port, *by, *self.listen())

    def talk(self, by, mode):
        source, got = self.file(), self.directory / "got"

        def send() -> None:
            with open(source, "rb") as data:
                run(*by, *self.send(), timeout=PATIENCE, stdin=data)
            limit = time.monotonic() + 30
            while got.stat().st_size < source.stat().st_size:
                want("all octets arrive", time.monotonic() < limit, f"{got.stat().st_size} of {source.stat().st_size}")
                time.sleep(0.01)

        seconds, _ = timed(send)
        same(source, got)
        got.unlink()
        return {"": (source.stat().st_size / seconds / 1e6, " MB/s")}


class Netcat(Socat):
    """The same; openbsd's."""

    name, ports = "netcat", (5270,)

    def listen(self):
        return ("sh", "-c", f"exec nc.openbsd -l {self.port} > {self.directory}/got")

    def send(self):
        return ("nc.openbsd", "-N", PEER4, self.port)


class OpenSsl(App):
    """A file from s_server by s_client, in TLS."""

    name, ports = "openssl", (5280,)

    def serve(self, by, mode):
        self.file()
        return server(self.port, "env", "-C", self.directory, *by, "openssl", "s_server", "-accept", self.port, "-cert",
                      certificate(self.directory), "-key", self.directory / "key", "-WWW", "-quiet")

    def talk(self, by, mode):
        request, got = self.directory / "request", self.directory / "got"
        request.write_text("GET /file HTTP/1.0\r\n\r\n")
        script = f"exec {' '.join(by)} openssl s_client -quiet -verify_return_error -CAfile {self.directory}/certificate " \
                 f"-connect {PEER4}:{self.port} < {request} > {got}"
        seconds, _ = timed(run, "sh", "-c", script, timeout=PATIENCE)
        answer = got.read_bytes()
        head, _, body = answer.partition(b"\r\n\r\n")
        want("an answer of HTTP", head.startswith(b"HTTP/1.0 200"), head[:200])
        got.write_bytes(body)
        same(self.file(), got)
        got.unlink()
        return {"": (len(body) / seconds / 1e6, " MB/s")}


class Scp(App):
    """A file by scp, which is SFTP in sshd."""

    name, ports = "scp", (5290,)

    def __init__(self, quick):
        super().__init__(quick)
        self.size *= 2

    def serve(self, by, mode):
        self.file()
        for name in ("host", "user"):
            if not (self.directory / name).exists():
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / name)
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        config = self.directory / "config"
        config.write_text(f"Port {self.port}\nHostKey {self.directory}/host\nAuthorizedKeysFile {self.directory}/user.pub\n"
                          f"StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\n"
                          f"Subsystem sftp internal-sftp\n")
        return server(self.port, *by, "/usr/sbin/sshd", "-D", "-e", "-f", config, stop=signal.SIGTERM)

    def talk(self, by, mode):
        got = self.directory / "got"
        seconds, _ = timed(run, *by, "scp", "-q", "-P", self.port, "-i", self.directory / "user", "-o", "BatchMode=yes", "-o",
                           f"UserKnownHostsFile={self.directory}/known", "-o", "StrictHostKeyChecking=accept-new",
                           f"root@{PEER4}:{self.file()}", got, timeout=PATIENCE)
        same(self.file(), got)
        got.unlink()
        return {"": (self.size / seconds / 1e6, " MB/s")}


# Two hops, round trips, run times ------------------------------------------------------------


class Haproxy(App):
    """haproxy at the other host, in front of two nginx at this one, so that both hops cross the link."""

    name, ports = "haproxy", (5300, 5301, 5302)

    @contextlib.contextmanager
    def serve(self, by, mode):
        self.file()
        (self.directory / "small").write_bytes(os.urandom(1000))
        backends = "\n".join(f"    server s{port} {OURS4}:{port}" for port in self.ports[1:])
        (self.directory / "conf").write_text(f"""
global
    maxconn 200
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
listen front
    bind 0.0.0.0:{self.port}
    balance roundrobin
{backends}
""")
        # One end alone is haproxy, so that it falls back on both sides.
        behind = by if mode == "SDP" else ()
        with nginx(self.directory, self.ports[1], behind, prefix=[]), nginx(self.directory, self.ports[2], behind, prefix=[]), \
                server(self.port, *by, "haproxy", "-db", "-f", self.directory / "conf"):
            yield

    def talk(self, by, mode):
        url = f"http://{PEER4}:{self.port}"
        heads = "".join(run(*by, "curl", "-sS", "-f", "-o", "/dev/null", "-D", "-", f"{url}/small") for _ in range(4))
        want("both were asked", set(re.findall(r"(?i)^x-server: (\d+)", heads, re.MULTILINE)) == {"5301", "5302"}, heads)
        return {"curl": (curl(by, f"{url}/file", self.file()), " MB/s"),
                "wrk": (wrk(by, f"{url}/small", self.seconds), "/s")}


class Qperf(App):
    """qperf counts messages and does not look at them."""

    name, ports = "qperf", (5310, 5311)

    def serve(self, by, mode):
        return server(self.port, *by, "qperf", "-lp", self.port)

    def talk(self, by, mode):
        text = run(*by, "qperf", PEER4, "-lp", self.port, "-ip", self.ports[1], "-t", self.seconds, "-uu", "tcp_bw", "tcp_lat",
                   timeout=PATIENCE)
        bandwidth, latency = re.search(r"bw += +([\d,.]+)", text), re.search(r"latency += +([\d,.]+)", text)
        want("both were measured", bandwidth and latency, text)
        return {"tcp_bw": (float(bandwidth[1].replace(",", "")) / 1e6, " MB/s"),
                "tcp_lat": (float(latency[1].replace(",", "")) / 1e3, " us")}


class Stunnel(App):
    """stunnel in front of an nginx on its own host, which is asked by plain TCP."""

    name, ports = "stunnel", (5360,)
    BEHIND = 5361

    @contextlib.contextmanager
    def serve(self, by, mode):
        self.file()
        (self.directory / "conf").write_text(f"foreground = yes\npid =\n[web]\naccept = {self.port}\n"
                                             f"connect = 127.0.0.1:{self.BEHIND}\ncert = {certificate(self.directory)}\n"
                                             f"key = {self.directory}/key\n")
        with nginx(self.directory, self.BEHIND, ()), server(self.port, *by, "stunnel4", self.directory / "conf"):
            yield

    def talk(self, by, mode):
        return {"curl": (curl(by, f"https://peer:{self.port}/file", self.file(), "--cacert", certificate(self.directory),
                              "--resolve", f"peer:{self.port}:{PEER4}"), " MB/s")}


class Program(App):
    """A program of ours in some language: a file or a stream, verified, and requests on connections that stay."""

    words: tuple[str, ...] = ()

    def serve(self, by, mode):
        return server(self.port, *by, *self.words, "serve", self.port, self.file())

    def ask(self, by) -> str:
        """What the client prints."""
        return run(*by, *self.words, "ask", PEER4, self.port, self.file(), self.seconds, timeout=PATIENCE)

    def talk(self, by, mode):
        report = json.loads(self.ask(by))
        return {"stream": (report["speed"] / 1e6, " MB/s"), "requests": (report["rate"], "/s")}


class Node(Program):
    """Node.js: http."""

    name, ports, words = "node", (5320,), ("node", f"{HERE}/node.mjs")


class Java(Program):
    """OpenJDK: channels, a selector, transferTo()."""

    name, ports, words = "java nio", (5321,), ("java", f"{HERE}/Nio.java")


class Streams(Program):
    """asyncio's streams, which echo."""

    name, ports, words = "asyncio", (5322,), (PYTHON, "-B", f"{HERE}/streams.py")

    def serve(self, by, mode):
        return server(self.port, *by, *self.words, "serve", self.port)

    def ask(self, by):
        return run(*by, *self.words, "ask", PEER4, self.port, self.size // MIB, self.seconds, timeout=PATIENCE)


class Uring(Streams):
    """io_uring for every call but socket(), which echoes, too."""

    name, ports, words = "io_uring", (5324,), (f"{PROGRAMS}/uring",)


class Go(Program):
    """net/http in a static program: by the kernel's hook, not by the preload library."""

    name, ports, words = "go", (5323,), (f"{PROGRAMS}/web",)
    kernel, sdp = "stock-6.12", (RUN, "--kernel")

    def serve(self, by, mode):
        # `ip netns exec` hides the mounts that the switch needs, so that it is set outside.
        for place, kind in (("/sys/fs/cgroup", "cgroup2"), ("/sys/fs/bpf", "bpf")):
            if not os.path.ismount(place):
                run("mount", "-t", kind, kind, place)
        return server(self.port, *self.words, "serve", self.port, self.file(), outside=by)


class Python(App):
    """http.server, a file by urllib."""

    name, ports = "http.server", (5330,)
    program: tuple[str, ...] = ()

    def serve(self, by, mode):
        self.file()
        return server(self.port, *self.program, *by, PYTHON, "-m", "http.server", "--directory", self.directory, self.port)

    def talk(self, by, mode):
        got = self.directory / "got"
        program = "import sys, urllib.request as r; r.urlretrieve(sys.argv[1], sys.argv[2])"
        seconds, _ = timed(run, *self.program, *by, PYTHON, "-c", program, f"http://{PEER4}:{self.port}/file", got, timeout=PATIENCE)
        same(self.file(), got)
        got.unlink()
        return {"": (self.size / seconds / 1e6, " MB/s")}


class Container(Python):
    """The same, each end in namespaces of its own for users, processes, mounts and names; sdp_run is inside."""

    name, ports, kernel = "unshare", (5331,), "stock-6.12"
    program = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "--ipc",
               "--uts", "--cgroup")


class Sockperf(App):
    """sockperf's ping-pong; its server counts and looks at numbers of messages."""

    name, ports = "sockperf", (5340,)
    least = 10000

    def serve(self, by, mode):
        return server(self.port, *by, "sockperf", "server", "--tcp", "-i", "0.0.0.0", "-p", self.port)

    def talk(self, by, mode):
        text = run(*by, "sockperf", "ping-pong", "--tcp", "-i", PEER4, "-p", self.port, "-t", self.seconds, "-m", 64,
                   timeout=PATIENCE)
        want("no message is lost, doubled or late",
             re.search(r"# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0", text), text)
        found = re.search(r"Latency is ([\d.]+) usec", text)
        want("sockperf measures", found, text)
        return {"": (float(found[1]), " us")}


# CPython's own tests ---------------------------------------------------------------------


class Suite(App):
    """Test modules of CPython, within this host: what passes on TCP has to pass on SDP."""

    PROGRAM = str(HERE / "suite.py")
    modules: tuple[str, ...] = ()

    def passed(self, by) -> tuple[set[str], int]:
        """The names of those that pass, and how many there are."""
        report = self.directory / "report"
        report.unlink(missing_ok=True)
        run(*by, PYTHON, "-B", self.PROGRAM, report, *(f"test.{name}" for name in self.modules), timeout=2 * PATIENCE,
            cwd=self.directory)
        found = json.loads(report.read_text())
        return set(found["passed"]), found["ran"]


class Sockets(Suite):
    """The module socket."""

    name, ports, modules = "CPython test_socket", (5400,), ("test_socket",)


class Protocols(Suite):
    """Servers and clients of protocols."""

    name, ports = "CPython test_ftplib, httplib, poplib, smtplib, socketserver", (5401,)
    modules = ("test_ftplib", "test_httplib", "test_poplib", "test_smtplib", "test_socketserver")


class Asyncio(Suite):
    """asyncio's streams and sockets, and selectors."""

    name, ports = "CPython test_asyncio, test_selectors", (5402,)
    modules = ("test_asyncio.test_streams", "test_asyncio.test_sock_lowlevel", "test_asyncio.test_server",
               "test_asyncio.test_sendfile", "test_asyncio.test_buffered_proto", "test_selectors")


class Tls(Suite):
    """TLS, by sockets that block, that do not, and of asyncio."""

    name, ports = "CPython test_ssl", (5403,)
    modules = ("test_ssl", "test_asyncio.test_ssl", "test_asyncio.test_sslproto")


ALL = (Iperf, IperfStreams, IperfReverse, IperfBoth, IperfFar, Nginx, Redis, Postgres, Memcached, Rsync, Socat, Netcat, OpenSsl,
       Stunnel, Haproxy, Qperf, Node, Java, Streams, Uring, Scp, Python, Sockperf, Sockets, Protocols, Asyncio, Tls,
       Container, Go)
# Those that `make check` has the time for; the one that falls back, too
SHORT, SHORT_ALONE = (Iperf, Nginx, Redis, Postgres), (Nginx,)


def chosen(names: list[str], quick: bool, short: bool, kernel: str | None) -> list[App]:
    """Those whose name begins with one of the names, or all without any; those for a kernel only, if one is named."""
    return [kind(quick or short) for kind in (SHORT if short else ALL)
            if (not names or any(kind.name.startswith(name) for name in names)) and kernel in (None, kind.kernel)]
