#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""An AF_SMC server that sends back what it is sent: smc_echo.py PORT CONNECTIONS."""

import sys

import smc

with smc.smc_socket() as listener:
    listener.bind(("", int(sys.argv[1])))
    listener.listen(4)
    for _ in range(int(sys.argv[2])):
        link, _ = listener.accept()
        with link:
            data = b""
            while piece := link.recv(1 << 16):
                data += piece
            link.sendall(data)
