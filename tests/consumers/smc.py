# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""SMC: AF_SMC sockets, which take no iWARP device for SMC-R and go on over TCP; and that the kernel says so."""

import ctypes
import hashlib
import os
import socket
import struct
import threading

from host import MIB, PATIENCE, TARGET4, Broken, counter, modules, sh, target, target_modules, wait

TITLE = "SMC"
AF_SMC, NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 43, 4, 20
PORT = 18500
# SMC_DIAG_MODE_FALLBACK_TCP; SMC_DIAG_FALLBACK as an extension; SMC_CLC_DECL_NOSMCDEV and ..._NOSMCRDEV
FALLBACK_TCP, EXT_FALLBACK, NO_DEVICE = 1, 5, (0x03030000, 0x03030002)
SERVER = f"{os.path.dirname(__file__)}/smc_echo.py"


def smc_socket() -> socket.socket:
    """An SMC socket; its addresses are those of IPv4, which Python has to be told."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.socket(AF_SMC, socket.SOCK_STREAM, 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "AF_SMC socket")
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=handle)


def set_up() -> None:
    modules("smc", "smc_diag")
    target_modules("smc", "smc_diag")


def sockets() -> list[tuple[int, int, int]]:
    """Mode, reason of a fallback and the remote port of each SMC socket here, as the kernel's diagnosis tells them."""
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as link:
        body = struct.pack("=BxxB48x", AF_SMC, 1 << (EXT_FALLBACK - 1))
        link.send(struct.pack("=IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, 0x301, 1, 0) + body)
        while True:
            data = link.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == 3:
                    return found
                if kind != SOCK_DIAG_BY_FAMILY:
                    raise Broken(f"netlink answers with a message of type {kind}: {data[:length].hex()}")
                message, data = data[16:length], data[(length + 3) & ~3:]
                mode, (port,) = message[2], struct.unpack_from(">H", message, 6)
                attributes, reason = message[64:], 0
                while attributes:
                    size, number = struct.unpack_from("=HH", attributes)
                    if number == EXT_FALLBACK:
                        (reason,) = struct.unpack_from("=I", attributes, 4)
                    attributes = attributes[(size + 3) & ~3:]
                found.append((mode, reason, port))


def exchange(octets: int) -> None:
    """A connection: data there and back, compared; the kernel's word on what carried them."""
    data = os.urandom(octets)
    with smc_socket() as link:
        link.settimeout(PATIENCE)
        link.connect((TARGET4, PORT))
        modes = [entry[:2] for entry in sockets() if entry[2] == PORT]
        if len(modes) != 1 or modes[0][0] != FALLBACK_TCP or modes[0][1] not in NO_DEVICE:
            raise Broken(f"mode and reason are {[(mode, hex(reason)) for mode, reason in modes]}, "
                         "not a fallback to TCP for want of a device")
        sender = threading.Thread(target=lambda: (link.sendall(data), link.shutdown(socket.SHUT_WR)))
        sender.start()
        back = hashlib.sha256()
        count = 0
        while piece := link.recv(1 << 16):
            back.update(piece)
            count += len(piece)
        sender.join()
    if count != octets or back.digest() != hashlib.sha256(data).digest():
        raise Broken(f"{count} octets came back of {octets}, or others")


def refused() -> None:
    """The device is none that SMC-R uses; sockets fall back to TCP, twice, and their data are right."""
    server = target.start(f"timeout {PATIENCE} python3 -B {SERVER} {PORT} 2", PATIENCE + 10)
    before = counter("connect_active")
    wait("the server listens", lambda: f":{PORT}" in target.run("ss -ltn"))
    for _ in range(2):
        exchange(4 * MIB + 1)
    server.result()
    if counter("connect_active") != before:
        raise Broken("SMC made an RDMA connection; this case has to be written anew")


def tear_down() -> None:
    sh("modprobe -r smc_diag smc")
    target.run("modprobe -r smc_diag smc")
    target.run("timeout 60 rmmod softwarp")
    sh("timeout 60 rmmod softwarp")


CASES = [
    ("refused by the kernel (smc_ib.c, smc_ib_add_dev: not for RNICs); sockets fall back to TCP, data compared", refused),
]
