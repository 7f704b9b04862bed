# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Little servers and clients, in the ways that programs do it: peer.py KIND PORT, peer.py KIND HOST PORT.

A server sends back what it gets; a client sends a pattern, verifies what comes back and says so.  They know nothing of SDP.
"""

import array
import asyncio
import ctypes
import os
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading

PATTERN = bytes(range(251)) * 2000
RIGHT = "all octets are right"


def talk(link: socket.socket) -> None:
    """Send the pattern, and take it back."""
    sender = threading.Thread(target=lambda: (link.sendall(PATTERN), link.shutdown(socket.SHUT_WR)))
    sender.start()
    got = b"".join(iter(lambda: link.recv(65536), b""))
    sender.join()
    link.close()
    if got != PATTERN:
        sys.exit(f"{len(got)} octets of {len(PATTERN)}, or wrong ones")


def echo(link: socket.socket) -> None:
    """Send back all that comes."""
    while data := link.recv(65536):
        link.sendall(data)
    link.close()


def connect(host: str, port: int) -> socket.socket:
    link = socket.create_connection((host, port), 30)
    link.settimeout(None)
    return link


def serve(listener: socket.socket) -> None:
    """One connection after the other."""
    while True:
        echo(listener.accept()[0])


def serve_executing(port: int) -> None:
    """cat for each connection."""
    listener = socket.create_server(("", port))
    while True:
        link, _ = listener.accept()
        subprocess.run(["cat"], stdin=link, stdout=link, check=False)
        link.close()


class Handler(socketserver.BaseRequestHandler):
    """A connection of socketserver."""

    def handle(self) -> None:
        echo(self.request)


def serve_by(kind, port: int) -> None:
    kind.allow_reuse_address = True
    kind(("", port), Handler).serve_forever()


async def serve_asyncio(port: int) -> None:
    async def handle(reader, writer) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "", port) as server:
        await server.serve_forever()


async def talk_asyncio(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(PATTERN)
    writer.write_eof()
    if await reader.read() != PATTERN:
        sys.exit("wrong octets")
    writer.close()


def activate(port: int, *runner: str) -> None:
    """Listen without the library, and hand the listener to a program that has it, as systemd does."""
    listener = socket.create_server(("", port))
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    os.execv(runner[0], [*runner, sys.executable, "-B", __file__, "activated"])


def talk_in_children(host: str, port: int) -> None:
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            talk(connect(host, port))
            os._exit(0)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit("a child failed")


def talk_by_spawn(host: str, port: int) -> None:
    words = [sys.executable, "-B", __file__, "talk", host, str(port)]
    if os.waitpid(os.posix_spawn(words[0], words, os.environ), 0)[1]:
        sys.exit("the child of posix_spawn() failed")
    subprocess.run(words, check=True)  # by vfork()


def talk_in_threads(host: str, port: int) -> None:
    threads = [threading.Thread(target=lambda: talk(connect(host, port))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def close_and_talk(host: str, port: int, path: str) -> None:
    """Descriptor 2 becomes a file of the program's."""
    out = os.dup(1)
    os.closerange(0, out)
    os.closerange(out + 1, 1024)
    while (fd := os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) != 2:
        pass
    os.write(fd, b"precious")
    talk(connect(host, port))
    os.dup2(out, 1)


def syscall_talk(host: str, port: int) -> None:
    """The calls of socket(2) and connect(2) by number; and another call that has nothing to do with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    fd = libc.syscall(41, socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0)
    name = struct.pack("=H2s4s8x", socket.AF_INET, port.to_bytes(2, "big"), socket.inet_aton(host))
    if fd < 0 or libc.syscall(42, fd, name, len(name)):
        sys.exit(f"errno {ctypes.get_errno()}")
    if libc.syscall(42, 9999, name, len(name)) != -1 or ctypes.get_errno() != 9:
        sys.exit(f"not EBADF but {ctypes.get_errno()}")
    if libc.syscall(39) != os.getpid():
        sys.exit("another call is wrong")
    talk(socket.socket(fileno=fd))


def pass_and_talk(host: str, port: int) -> None:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        data, ancillary, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
        fds = array.array("i", ancillary[0][2])
        talk(socket.socket(fileno=os.dup(fds[0])))
        os.close(fds[0])
        theirs.send(data)
        os._exit(0)
    link = connect(host, port)
    socket.send_fds(ours, [b"x"], [link.fileno()])
    link.close()
    if ours.recv(1) != b"x":
        sys.exit("the other process failed")


def looks(host: str, port: int) -> None:
    """As of any TCP socket."""
    import fcntl  # pylint: disable=import-outside-toplevel

    for family in (socket.AF_INET, socket.AF_INET6):
        link = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        fresh = socket.socket(fileno=os.dup(link.fileno()))
        assert (fresh.family, fresh.type, fresh.proto) == (family, socket.SOCK_STREAM, socket.IPPROTO_TCP), fresh
        assert fcntl.fcntl(link, fcntl.F_GETFL) & os.O_NONBLOCK
        assert fcntl.fcntl(link, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        fresh.close()
        link.close()
    link = connect(host, port)
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    assert link.getpeername() == (host, port), link.getpeername()
    assert link.getsockname()[0] == "10.77.0.1", link.getsockname()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    talk(link)
    # an address that nobody listens at, and errno
    try:
        connect(host, 1)
        sys.exit("connected with nobody")
    except ConnectionRefusedError:
        pass


def hold(host: str, port: int, more: str = "") -> None:
    """A connection that stays until stdin ends, with as much sent as the peer takes or with nothing."""
    link = connect(host, port)
    print("connected", link.fileno(), flush=True)
    if more:
        threading.Thread(target=lambda: [link.sendall(PATTERN) for _ in iter(int, 1)], daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def serve_deaf(port: int) -> None:
    """Accept, and read nothing."""
    listener = socket.create_server(("", port))
    links = []
    while True:
        links.append(listener.accept())


def main() -> None:
    signal.alarm(50)
    kind, *args = sys.argv[1:]
    servers = {"echo": lambda port: serve(socket.create_server(("", port))),
               "dual": lambda port: serve(socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)),
               "executing": serve_executing,
               "forking": lambda port: serve_by(socketserver.ForkingTCPServer, port),
               "threads": lambda port: serve_by(socketserver.ThreadingTCPServer, port),
               "asyncio": lambda port: asyncio.run(serve_asyncio(port)), "deaf": serve_deaf}
    clients = {"talk": lambda host, port: talk(connect(host, port)), "talk-in-children": talk_in_children,
               "talk-by-spawn": talk_by_spawn, "talk-in-threads": talk_in_threads, "syscall-talk": syscall_talk,
               "asyncio-talk": lambda host, port: asyncio.run(talk_asyncio(host, port)), "pass-and-talk": pass_and_talk,
               "looks": looks, "close-and-talk": close_and_talk, "hold": hold}
    if kind in servers:
        servers[kind](int(args[0]))
    elif kind == "activate":
        activate(int(args[0]), *args[1:])
    elif kind == "activated":
        serve(socket.socket(fileno=3))
    else:
        clients[kind](args[0], int(args[1]), *args[2:])
        print(RIGHT)


main()
