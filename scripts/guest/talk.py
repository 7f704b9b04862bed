#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""SDP sockets for scripts/dissect: "talk.py serve" on one host, "talk.py connect" on the other.

A connection for each family and wire layout, one that the port mapper accepts, and a request that it denies.
"""

import pathlib
import socket
import sys
import time

IPPROTO_SDP, IPPROTO_SDP_AUTO = 257, 258
ADDRESSES = {socket.AF_INET: "10.77.0.2", socket.AF_INET6: "fd77::2"}
# Family, protocol, layout on the wire, and whether somebody listens
CASES = [(family, protocol, layout, True) for family in ADDRESSES for protocol, layout in
         ((IPPROTO_SDP, 0), (IPPROTO_SDP, 1), (IPPROTO_SDP_AUTO, 0))]
# While others do, so that there is a port mapper to ask
CASES.insert(0, (socket.AF_INET, IPPROTO_SDP_AUTO, 0, False))
PORT = 4100  # no port of those that connections before may have left in TIME_WAIT
SIZES = (1, 100, 5000, 300000)


def serve() -> None:
    """Listen on all ports at once, then talk on one after the other."""
    listeners = []
    for number, (family, protocol, _, listens) in enumerate(CASES):
        if listens:
            listeners.append(socket.socket(family, socket.SOCK_STREAM, protocol))
            listeners[-1].bind((ADDRESSES[family], PORT + number))
            listeners[-1].listen()
    print("ready", flush=True)
    for listener in listeners:
        with listener.accept()[0] as there:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
            while there.recv(65536):
                pass
            there.sendall(bytes(200000))


def talk(here: socket.socket) -> None:
    """Octets in many sizes, one out of band, and both ends in order."""
    for size in SIZES:
        here.sendall(bytes(size))
        time.sleep(0.02)
    here.send(b"!", socket.MSG_OOB)
    here.shutdown(socket.SHUT_WR)
    got = 0
    while part := here.recv(65536):
        got += len(part)
    if got != 200000:
        sys.exit(f"{got} octets came instead of 200000")


def connect() -> None:
    """All of CASES."""
    for number, (family, protocol, layout, listens) in enumerate(CASES):
        pathlib.Path("/proc/sys/net/softwarp_sdp/layout").write_text(str(layout), encoding="ascii")
        with socket.socket(family, socket.SOCK_STREAM, protocol) as here:
            try:
                here.connect((ADDRESSES[family], PORT + number))
            except ConnectionRefusedError:
                if listens:
                    raise
                continue
            if not listens:
                sys.exit(f"somebody listens at port {PORT + number}")
            talk(here)


if sys.argv[1:] == ["serve"]:
    serve()
elif sys.argv[1:] == ["connect"]:
    connect()
else:
    sys.exit(__doc__)
