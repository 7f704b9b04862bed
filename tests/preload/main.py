#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Unmodified programs under sdp_run, between two hosts: main.py SDP_MODULE.  Runs in a guest.

    this namespace              namespace "peer"
    net0 10.77.0.1, fd77::1 === net1 10.77.0.2, fd77::2       devices sw0, sw1; swlo on lo

A line "ok" or "FAILED" for each case, with the reason; the last line counts them.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
import results  # noqa: E402
from hosts import (Counted, DIRECTORY, MIB, OURS4, PATIENCE, PEER, PEER4, PEER6, PYTHON, RUN, case, run, server,  # noqa: E402
                   want)

STAT = str(ROOT / "build/preload/sdp_stat")
LIBRARY = str(ROOT / "build/preload/libsoftwarp_sdp.so")
HERE = str(pathlib.Path(__file__).resolve().parent)
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def client(*args) -> list[str]:
    """The words of a little program, see peer.py."""
    return [PYTHON, "-B", f"{HERE}/peer.py", *(str(arg) for arg in args)]


def rules(text: str) -> str:
    """A file of rules."""
    path = DIRECTORY / "rules"
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


# Without the module ----------------------------------------------------------------------


def no_module() -> None:
    """Plain TCP, and it is said."""
    with server(5100, RUN, *client("echo", 5100)) as out:
        text = run(RUN, "-v", *client("talk", PEER4, 5100))
        want("the client's sdp_run says it", "sdp_run: softwarp_sdp is not loaded (modprobe softwarp_sdp loads it); python3 uses TCP" in text, text)
        want("so does the library", "the kernel module softwarp_sdp is not loaded: using TCP" in text, text)
        want("the server's sdp_run says it", "not loaded" in out.read_text(), out.read_text())
    text = run(RUN, "--policy", "sdp", "true", code=125)
    want("a program that must not use TCP is not started", "allows nothing else" in text, text)
    want("--check says it", "result:  TCP" in run(RUN, "--check", f"{PEER4}:80", code=1))
    text = run(STAT, code=3)
    want("sdp_stat says it", "softwarp_sdp is not loaded" in text and "modprobe softwarp_sdp" in text, text)
    text = run(STAT, "why", f"{PEER4}:80", "--json", code=1)
    want("and answers", json.loads(text)["reason"] == "not_loaded", text)
    want("a program that is to use TCP needs no module", not run(RUN, "--policy", "tcp", "true"))


# Both ends, one end ----------------------------------------------------------------------


def iperf(*args, port: int, at_server=True, at_client=True):
    """iperf3 between the hosts, under sdp_run or not.  Returns what the counters gained, how many octets of each that
    arrived were SDP's, and what the library said."""
    with server(port, *([RUN] if at_server else []), "iperf3", "-s", "-1", "-p", port):
        gained = Counted()
        text = run(*([RUN, "-v"] if at_client else []), "iperf3", "-J", "-c", PEER4, "-p", port, "-n", 64 * MIB, *args)
        said, brace, report = text.partition("{")
        arrived = json.loads(brace + report)["end"]["sum_received"]
        share = gained.octets() / arrived["bytes"]
        print(f"       iperf3 {' '.join(args)}: {arrived['bits_per_second'] / 8e6:.0f} MB/s, "
              f"{100 * min(share, 1):.0f} % of the octets by SDP")
        return gained, share, said


def iperf_both() -> None:
    """All octets by SDP."""
    gained, share, said = iperf(port=5201)
    want(f"share {share}", share >= 1, said)
    want("control connection and stream", gained["connected"] == 2, said)
    want("it is said", f"connected with {PEER4}:5201: SDP over sw0" in said, said)


def iperf_reverse() -> None:
    """Backwards."""
    _, share, said = iperf("-R", port=5202)
    want(f"share {share}", share >= 1, said)


def iperf_streams() -> None:
    """Eight streams."""
    gained, share, said = iperf("-P", "8", port=5203)
    want(f"share {share}", share >= 1, said)
    want("nine connections", gained["connected"] == 9, said)


def iperf_client_alone() -> None:
    """The server knows nothing of SDP."""
    gained, share, said = iperf(port=5204, at_server=False)
    want(f"share {share}", share == 0, said)
    # The second connection finds the answer to the first in the cache.
    want("counted", gained["tcp_no_answer"] + gained["tcp_denied"] == 2 and gained["tcp_no_answer"], said)
    want("and the reason is said", "TCP, because the peer's port mapper does not answer" in said, said)


def iperf_server_alone() -> None:
    """The client knows nothing of SDP."""
    gained, share, said = iperf(port=5205, at_client=False)
    want(f"share {share}", share == 0, said)
    want("nothing is SDP's", gained["connected"] == 0, said)


def no_device() -> None:
    """Where there is no RDMA device on the route, TCP at once."""
    run("rdma", "link", "delete", "sw0")
    try:
        gained, share, said = iperf(port=5206)
        want(f"share {share}", share == 0, said)
        want("counted", gained["tcp_no_device"] == 2, said)
        want("said", "TCP, because there is no RDMA device on the route" in said, said)
        text = run(RUN, "--check", f"{PEER4}:5206", code=1)
        want("--check says it", "device:  none over net0; make one as root: rdma link add sw0 type softwarp netdev net0"
             in text, text)
    finally:
        run("rdma", "link", "add", "sw0", "type", "softwarp", "netdev", "net0")


# Programs --------------------------------------------------------------------------------


def http() -> None:
    """Python's server, curl, 8 MiB over IPv4 and IPv6."""
    content = os.urandom(8 * MIB)
    directory = DIRECTORY / "www"
    directory.mkdir(exist_ok=True)
    (directory / "file").write_bytes(content)
    for port, bind, host in ((5300, "0.0.0.0", PEER4), (5301, "::", f"[{PEER6}]"), (5302, "::", PEER4)):
        with server(port, RUN, PYTHON, "-m", "http.server", "--bind", bind, "--directory", directory, port):
            for program in (["curl", "-sS", "-o", DIRECTORY / "got"],
                            [PYTHON, "-c", "import sys, urllib.request as r; r.urlretrieve(sys.argv[2], sys.argv[1])",
                             DIRECTORY / "got"]):
                gained = Counted()
                text = run(RUN, "-v", *program, f"http://{host}:{port}/file")
                got = (DIRECTORY / "got").read_bytes()
                want(f"{host} by {program[0]}: all octets", hashlib.sha256(got).digest() == hashlib.sha256(content).digest(),
                     text)
                want(f"{host} by {program[0]}: by SDP", gained["octets_received"] >= len(content), text)
                # curl does not wait in connect(), and asks SO_ERROR
                want(f"{host} by {program[0]}: it is said", "SDP over sw0" in text, text)


def little(kind: str, port: int, *talk, host=PEER4, by_sdp=True, env=None) -> str:
    """A little server and a little client of peer.py under sdp_run."""
    with server(port, RUN, *client(kind, port)) as out:
        gained = Counted()
        text = run(RUN, "-v", *client(*(talk or ("talk", host, port))), env=env) + out.read_text()
        want("verified", "all octets are right" in text, text)
        want("by SDP" if by_sdp else "by TCP", (gained["connected"] > 0) == by_sdp, text)
        return text


def forking() -> None:
    """A child of fork() for each connection, and clients in children."""
    little("forking", 5310, "talk-in-children", PEER4, 5310)


def executing() -> None:
    """A program for each connection, which gets it as stdin and stdout, as from inetd."""
    little("executing", 5311)


def spawning() -> None:
    """Clients by posix_spawn() and by vfork()."""
    little("echo", 5312, "talk-by-spawn", PEER4, 5312)


def threads() -> None:
    """Clients in threads, all at once."""
    little("threads", 5313, "talk-in-threads", PEER4, 5313)


def asyncio() -> None:
    """Both ends by asyncio."""
    little("asyncio", 5314, "asyncio-talk", PEER4, 5314)


def dual_stack() -> None:
    """One listener for both families, as from getaddrinfo()."""
    little("dual", 5315, host=PEER4)
    little("dual", 5316, host=PEER6)


def closes_all() -> None:
    """A program that closes all descriptors first, the library's or not, and whose descriptor 2 is then something else."""
    text = little("echo", 5317, "close-and-talk", PEER4, 5317, DIRECTORY / "database")
    want("nothing of ours is in its file", (DIRECTORY / "database").read_text() == "precious", text)


def by_syscall() -> None:
    """socket() and connect() through syscall()."""
    little("echo", 5318, "syscall-talk", PEER4, 5318)


def passed_on() -> None:
    """A connected socket goes to another process by SCM_RIGHTS; dup()."""
    little("echo", 5319, "pass-and-talk", PEER4, 5319)


def sockets_look_like_tcp() -> None:
    """What a program asks a socket: families, protocol, flags, names."""
    little("echo", 5320, "looks", PEER4, 5320)


def activated() -> None:
    """A listener that the parent has made, without the library: TCP, and it works."""
    with server(5321, *client("activate", 5321, RUN)) as out:
        text = run(RUN, "-v", *client("talk", PEER4, 5321)) + out.read_text()
        want("verified", "all octets are right" in text, text)
        want("by TCP", "TCP, because" in text, text)


def unprivileged() -> None:
    """A user without rights, with a file of its own for the log."""
    log = DIRECTORY / "log.65534"
    log.touch()
    os.chown(log, 65534, 65534)
    log.chmod(0o600)
    with server(5322, *NOBODY, RUN, *client("echo", 5322)):
        gained = Counted()
        text = run(*NOBODY, RUN, "--log", f"min-level 7 destination file {DIRECTORY}/log", *client("talk", PEER4, 5322))
        want("verified", "all octets are right" in text, text)
        want("by SDP", gained["connected"] > 0, text)
        want("logged", f"connected with {PEER4}:5322: SDP over sw0" in log.read_text(), log.read_text())


def loopback() -> None:
    """Within one host."""
    with server(5323, RUN, *client("dual", 5323), prefix=[]):
        for host in ("127.0.0.1", "::1", OURS4):
            gained = Counted()
            text = run(RUN, "-v", *client("talk", host, 5323))
            want(f"{host}: verified", "all octets are right" in text, text)
            want(f"{host}: by SDP", gained["connected"] > 0, text)


# Rules -----------------------------------------------------------------------------------


def rule_for_client() -> None:
    """A rule keeps a port on TCP, and others by SDP."""
    path = rules("# administration stays as it is\nuse tcp client * *:5400\n")
    for port, by_sdp in ((5400, False), (5401, True)):
        text = little("echo", port, by_sdp=by_sdp, env={"LIBSDP_CONFIG_FILE": path})
        if not by_sdp:
            want("said", f"connected with {PEER4}:5400: TCP, because the policy allows nothing else" in text, text)


def rule_for_server() -> None:
    """The same for listeners; the peer is told that there is no SDP."""
    path = rules("use tcp server * *:5402\n")
    with server(5402, RUN, "-v", "--rules", path, *client("echo", 5402)) as out:
        text = run(RUN, "-v", *client("talk", PEER4, 5402))
        want("verified", "all octets are right" in text, text)
        want("by TCP", "TCP, because" in text, text)
        want("said", "listen on 0.0.0.0:5402: TCP only" in out.read_text(), out.read_text())


def rule_for_program() -> None:
    """A rule for another program does not hold, one for this does."""
    for pattern, by_sdp in (("curl*", True), ("python?*", False)):
        little("echo", 5403, by_sdp=by_sdp, env={"SDP_RULES": f"use tcp client {pattern} *:*"})


def rule_sdp_only() -> None:
    """Nothing but SDP: a TCP server cannot be reached, an SDP server can."""
    with server(5404, *client("echo", 5404)):
        text = run(RUN, "-v", "--policy", "sdp", *client("talk", PEER4, 5404), code=1)
        want("no TCP", "all octets" not in text, text)
    with server(5405, RUN, "-v", "--policy", "sdp", *client("echo", 5405)) as out:
        text = run(RUN, "-v", "--policy", "sdp", *client("talk", PEER4, 5405))
        want("verified", "all octets are right" in text, text)
        want("said", "listen on 0.0.0.0:5405: SDP only" in out.read_text(), out.read_text())


def rule_with_error() -> None:
    """sdp_run does not start a program with such a file; the library by itself uses TCP and says where the error is."""
    path = rules("use both client * *:*\nuse sdp client 10.0.0/8:*\n")
    place = f'{path}:2:16: "10.0.0" is not an address'
    text = run(RUN, "--rules", path, "true", code=125)
    want("place and sentence", place in text, text)
    with server(5406, RUN, *client("echo", 5406)):
        gained = Counted()
        text = run(*client("talk", PEER4, 5406), env={"LD_PRELOAD": LIBRARY, "LIBSDP_CONFIG_FILE": path})
        want("verified", "all octets are right" in text, text)
        want("by TCP", gained["connected"] == 0, text)
        want("place and sentence", place in text, text)


def files_of_host_and_user() -> None:
    """/etc/softwarp/sdp.conf, libsdp's file where that is missing, and the user's before both."""
    home = DIRECTORY / "home"
    host, old, user = (pathlib.Path("/etc/softwarp/sdp.conf"), pathlib.Path("/etc/libsdp.conf"),
                       home / ".config/softwarp/sdp.conf")
    try:
        old.write_text("use tcp client * *:*\n")
        little("echo", 5407, by_sdp=False)
        host.parent.mkdir(exist_ok=True)
        host.write_text("use both client * *:*\n")
        little("echo", 5407, by_sdp=True)
        user.parent.mkdir(parents=True)
        user.write_text("use tcp client * *:5407\n")
        little("echo", 5407, by_sdp=False, env={"HOME": str(home)})
        text = run(RUN, "--check", f"{PEER4}:5408", env={"HOME": str(home)})
        want("--check names the files", f"rules:   {user}, {host}" in text, text)
        want("--check names the rule", f'connect: policy auto, rule {host}:1, "use both client * *:*"' in text, text)
    finally:
        old.unlink(missing_ok=True)
        shutil.rmtree(host.parent, ignore_errors=True)


# What cannot be preloaded, and --check -----------------------------------------------------


def setuid_program() -> None:
    """The loader ignores the library; it is said, and the program works."""
    path = DIRECTORY / "setuid-curl"
    shutil.copy("/usr/bin/curl", path)
    path.chmod(0o4755)
    with server(5500, RUN, PYTHON, "-m", "http.server", "--directory", DIRECTORY / "www", 5500):
        gained = Counted()
        text = run(*NOBODY, RUN, path, "-sS", "-o", "/dev/null", f"http://{PEER4}:5500/file")
        want("said", f"{path} is a setuid program, and the loader ignores LD_PRELOAD" in text, text)
        want("by TCP", gained["connected"] == 0, text)


def static_program() -> None:
    """The same of a static one; its children have the library."""
    with server(5501, RUN, PYTHON, "-m", "http.server", "--directory", DIRECTORY / "www", 5501):
        gained = Counted()
        text = run(RUN, "busybox", "wget", "-q", "-O", "/dev/null", f"http://{PEER4}:5501/file")
        want("said", "/bin/busybox is a static program, which has no loader; busybox uses TCP" in text, text)
        want("by TCP", gained["connected"] == 0, text)
        run(RUN, "busybox", "sh", "-c", f"curl -sS -o /dev/null http://{PEER4}:5501/file")
        want("children by SDP", gained["connected"] == 1, text)


def checked() -> None:
    """sdp_run --check explains, and --connect tries."""
    text = run(RUN, "--check", f"{PEER4}:5502", "curl")
    for line in ("rules:   no file, for curl", "connect: policy auto, no rule takes it", "module:  softwarp_sdp is loaded",
                 "route:   by net0", "device:  sw0", "program: /usr/bin/curl can be preloaded",
                 "result:  SDP if the peer has it (--connect tries), else TCP"):
        want(line, f"{line}\n" in text, text)
    text = run(RUN, "--check", f"[{PEER6}]:5502")
    want("IPv6", "route:   by net0\ndevice:  sw0\n" in text, text)
    for host, device in (("127.0.0.1", "swlo"), ("[::1]", "swlo"), (OURS4, "swlo")):
        text = run(RUN, "--check", f"{host}:5502")
        want(host, re.search(rf"route:   within this host, by \S+\ndevice:  {device}\n", text), text)
    text = run(RUN, "--check", f"{PEER4}:5502", "--connect", code=1)
    want("refused", "peer:    connecting failed: Connection refused" in text, text)
    with server(5503, RUN, *client("threads", 5503)):
        text = run(RUN, "--check", f"{PEER4}:5503", "--connect")
        want("by SDP", "peer:    connected by SDP\nresult:  SDP\n" in text, text)
        text = run(RUN, "--check", f"{PEER4}:5503", "--connect", "--policy", "tcp", code=1)
        want("by TCP", "peer:    connected by TCP, because the policy allows nothing else" in text, text)
    with server(5504, *client("threads", 5504)):
        text = run(RUN, "--check", f"{PEER4}:5504", "--connect", code=1)
        want("TCP alone", "peer:    connected by TCP, because" in text, text)
    text = run(RUN, "--check", "198.51.100.1:80", code=1)
    want("no route", "route:   none: Network is unreachable" in text, text)


@contextlib.contextmanager
def holding(port: int, *args, runner=(RUN,)):
    """A client, under sdp_run or not, that keeps a connection with the other host open; gives its process id and descriptor."""
    words = [*runner, *client("hold", PEER4, port, *args)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline().split()
            want("the client is connected", len(said) == 2 and said[0] == "connected", said)
            yield process.pid, int(said[1])
        finally:
            process.stdin.close()
            process.wait(PATIENCE)


@contextlib.contextmanager
def denials_last():
    """Denials are remembered for longer than a case takes."""
    name = "net.softwarp_sdp.pm_denied_ms"
    before = run("sysctl", "-n", name).strip()
    run("sysctl", "-qw", f"{name}=600000")
    try:
        yield
    finally:
        run("sysctl", "-qw", f"{name}={before}")


def stat_tables() -> None:
    """sdp_stat shows sockets, reasons and the cache; root alone sees the cache."""
    with denials_last(), server(5600, RUN, *client("threads", 5600)), server(5601, *client("threads", 5601)):
        before = json.loads(run(STAT, "reasons", "--json"))["reasons"]
        with holding(5600), holding(5601):
            text = run(STAT)
            want("by SDP", re.search(rf"{OURS4}:\d+ +{PEER4}:\d+ +open +combined .* sw0 +auto +{PEER4}:5600 +-\n", text), text)
            want("by TCP", re.search(rf"{OURS4}:\d+ +{PEER4}:5601 +by-tcp .* denied\n", text), text)
            want("why", re.search(r"  denied +\d+  the peer has no SDP port for this service\n", text), text)
            want("cached SDP", re.search(rf"  {PEER4}:5600 +{OURS4}:0 +sdp +{PEER4}:\d+ +\d+\n", text), text)
            want("cached denial", re.search(rf"  {PEER4}:5601 +{OURS4}:0 +denied +- +\d+\n", text), text)
            found = json.loads(run(STAT, "--json"))
            want("all sections", list(found) == ["sockets", "reasons", "faults", "cache", "counters", "settings"], found)
            kinds = sorted((one["kind"], one["why"]) for one in found["sockets"])
            want("kinds", kinds == [("sdp", None), ("tcp", "denied")], kinds)
            want("counted", found["reasons"]["denied"] > before["denied"], found["reasons"])
            want("settings", found["settings"]["pm_port"] == 3935, found["settings"])
            text = run(*NOBODY, STAT)
            want("the cache is not for others", "answers of port mappers: only root of this network namespace" in text and
                 f"{PEER4}:5601" in text, text)
            want("nor in JSON", json.loads(run(*NOBODY, STAT, "cache", "--json")) == {"cache": None})
    want("the peer's namespace has other sockets", f"{OURS4}:" not in run(*PEER, STAT, "sockets"))


def stat_why() -> None:
    """sdp_stat why: a peer, a descriptor, what there is not, and what holds a connection up."""
    with server(5610, RUN, *client("threads", 5610)), holding(5610) as (pid, number):
        text = run(STAT, "why", f"{PEER4}:5610")
        # its port is the one that the port mapper gave
        want("SDP", re.search(rf" - {PEER4}:\d+: SDP over sw0, open\.\nNothing waits at this end", text), text)
        want("and the next", "A new connection uses SDP over sw0 on the route by net0." in text, text)
        text = run(STAT, "why", "--pid", pid, "--fd", number, "--interval", "0.2")
        want("its descriptor", f"{PEER4}:5610: SDP over sw0, open." in text, text)
        found = json.loads(run(STAT, "why", "--pid", pid, "--fd", number, "--json", "-i", "0.2"))
        want("JSON", found["transport"] == "sdp" and found["reason"] is None and len(found["sockets"]) == 1, found)
        for words, said in ((("--pid", pid, "--fd", 999), "has no descriptor 999"), (("--pid", pid, "--fd", 0), "not a socket"),
                            (("--pid", 4000000, "--fd", 0), "there is no process 4000000"), (("--pid", pid), "go together"),
                            (("host:80",), "host:80 is not an address"), ((), "why takes an address")):
            text = run(STAT, "why", *words, code=2)
            want(said, said in text, text)
        text = run(*NOBODY, STAT, "why", f"{PEER4}:5610")
        want("who does not see the cache", "may be with this service" not in text and "SDP over sw0, open." in text, text)
        text = run(*NOBODY, STAT, "why", f"{PEER4}:5619")
        want("not another service of that host", f"No SDP socket is connected with {PEER4}:5619." in text, text)
        text = run(*NOBODY, STAT, "why", "--pid", pid, "--fd", number, code=2)
        want("not for another user", "not for this user to see" in text, text)
        text = run(*PEER, STAT, "why", "--pid", pid, "--fd", number, code=2)
        want("another namespace", "belongs to another network namespace" in text, text)
    with denials_last(), server(5611, *client("threads", 5611)), holding(5611) as (pid, number):
        for words in ((f"{PEER4}:5611",), ("--pid", pid, "--fd", number)):
            text = run(STAT, "why", *words, code=1)
            want("TCP", f"{PEER4}:5611: TCP, because the peer" in text and "start th" in text, text)
            want("until when", "This host remembers for " in text, text)
    with server(5612, *client("threads", 5612)), holding(5612, runner=()) as (pid, number):
        text = run(STAT, "why", "--pid", pid, "--fd", number, code=1)
        want("plain", "The socket is plain TCP" in text, text)
    text = run(STAT, "why", f"[{PEER6}]:5613")
    want("nobody", f"No SDP socket is connected with [{PEER6}]:5613." in text and
         f"A new connection asks [{PEER6}]:5613 whether" in text, text)
    text = run(STAT, "why", "198.51.100.1", code=1)
    want("no route", "There is no route to 198.51.100.1" in text, text)
    text = run(STAT, "why", "127.0.0.1:5613", code=1, env={"SDP_RULES": "use tcp client * *:*"})
    want("a rule", '"use tcp client * *:*", sets the policy tcp' in text, text)


def stat_slow() -> None:
    """A server that does not read, and the client that has more for it: each end says who."""
    with server(5613, RUN, *client("deaf", 5613)), holding(5613, "more") as (pid, number):
        limit = time.monotonic() + PATIENCE
        while True:
            text = run(STAT, "why", "--pid", pid, "--fd", number)
            if "The program at the peer does not read" in text:
                break
            want("it is said", time.monotonic() < limit, text)
        text = run(*PEER, STAT, "why", OURS4)
        want("and there", "The program here has read nothing for" in text and "the peer cannot send until the program reads" in text, text)


def stat_watch() -> None:
    """Rates of what changes; and no change."""
    with server(5614, RUN, *client("threads", 5614)), holding(5614):
        with subprocess.Popen([STAT, "--watch", "0.5", "--count", "6", "--json"], stdout=subprocess.PIPE, text=True) as process:
            time.sleep(0.7)
            run(RUN, *client("talk", PEER4, 5614))
            lines = [json.loads(line) for line in process.stdout]
        want("ended by itself", process.returncode == 0 and len(lines) == 6, lines)
        want("a connection was counted", any(line["counters_per_second"].get("connected", 0) > 0 for line in lines), lines)
        text = run(STAT, "sockets", "--watch=0.2", "-n", "1")
        want("nothing", re.fullmatch(r"in 0\.\d s: no change\n", text), text)


def codes() -> None:
    """Exit codes as those of env(1)."""
    for code, command in ((125, ["--nonsense", "true"]), (125, []), (125, ["--policy", "udp", "true"]),
                          (126, ["/etc/passwd"]), (126, ["/"]), (127, ["/there/is/none"]), (127, ["there-is-none"]),
                          (7, ["sh", "-c", "exit 7"]), (0, ["--", "true"]), (0, ["--help"])):
        run(RUN, *command, code=code)
    want("arguments of the program are the program's", run(RUN, "echo", "-v", "--", "--policy") == "-v -- --policy\n")


def installed() -> None:
    """As make install leaves it: sdp_run finds the library, and so does the loader by its name."""
    run("cmake", "--install", ROOT / "build/cmake")
    for port, words, env in ((5505, ["sdp_run"], {}), (5506, [], {"LD_PRELOAD": "libsoftwarp_sdp.so"})):
        with server(port, RUN, *client("echo", port)):
            gained = Counted()
            text = run(*words, *client("talk", PEER4, port), env=env)
            want("verified", "all octets are right" in text, text)
            want("by SDP", gained["connected"] > 0, text)
    want("sdp_stat", json.loads(run("sdp_stat", "--json", "sockets"))["sockets"] is not None)
    complete = ". /usr/share/bash-completion/bash_completion; _completion_loader {0}; COMP_WORDS=({0} {1}); COMP_CWORD={2}; " \
               "COMP_LINE='{0} {1}'; COMP_POINT=${{#COMP_LINE}}; _{0} 2> /dev/null; echo ${{COMPREPLY[@]}}"
    for words, wanted in ((("sdp_stat", "coun", 1), "counters"), (("sdp_run", "--policy s", 2), "sdp"), (("sdp_stat", "why --p", 2), "--pid")):
        text = run("bash", "-c", complete.format(*words)).strip()
        want(f"bash completes {words[1]}", text == wanted, text)
    want("no other library", "/build/" not in run("sdp_run", "sh", "-c", "echo $LD_PRELOAD"))


def module_goes() -> None:
    """No socket is left behind."""
    limit = time.monotonic() + PATIENCE
    while subprocess.run(["rmmod", "softwarp_sdp"], capture_output=True, check=False).returncode:
        want("the module goes", time.monotonic() < limit, run("cat", "/proc/net/softwarp_sdp"))
        time.sleep(0.5)


CASES = (("iperf3, both ends", iperf_both), ("iperf3 -R", iperf_reverse), ("iperf3, eight streams", iperf_streams),
         ("iperf3, the client alone", iperf_client_alone), ("iperf3, the server alone", iperf_server_alone),
         ("no RDMA device on the route", no_device), ("http.server with curl and urllib, IPv4 and IPv6", http),
         ("servers and clients that fork", forking), ("a program for each connection", executing),
         ("clients by posix_spawn() and vfork()", spawning), ("threads", threads), ("asyncio", asyncio),
         ("a dual-stack server", dual_stack), ("a program that closes all descriptors", closes_all),
         ("sockets by syscall()", by_syscall), ("descriptors passed on and duplicated", passed_on),
         ("sockets look like TCP's", sockets_look_like_tcp), ("socket activation", activated),
         ("a user without rights, a log of its own", unprivileged), ("within one host", loopback),
         ("a rule keeps a client's port on TCP", rule_for_client), ("a rule keeps a server's port on TCP", rule_for_server),
         ("rules for programs", rule_for_program), ("nothing but SDP", rule_sdp_only), ("a rule with an error", rule_with_error),
         ("files of the host and the user", files_of_host_and_user), ("a setuid program", setuid_program),
         ("a static program", static_program), ("--check", checked), ("sdp_stat: tables", stat_tables), ("sdp_stat why", stat_why),
         ("sdp_stat why of a slow connection", stat_slow), ("sdp_stat --watch", stat_watch), ("exit codes", codes), ("as installed", installed),
         ("the module goes", module_goes))


def main() -> int:
    module, only = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    DIRECTORY.chmod(0o755)
    cases = results.Cases()
    if not only:
        case(cases, "without the module TCP, and it is said", no_module)
    run("insmod", module)
    for name, function in CASES:
        if only in name:
            case(cases, name, function)
    return cases.finish()


sys.exit(main())
