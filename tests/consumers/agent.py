#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs on the target host of scripts/consumers: shell commands come in over plain TCP, one per connection.

A request is a line of JSON {"command", "timeout"}; the answer is {"code", "output", "seconds"}.  A code of -1 says that the
command was still running when its time was up; it is left alone, as what hangs in the kernel cannot be ended.
"""

import json
import os
import socketserver
import subprocess
import sys
import time


class Handler(socketserver.StreamRequestHandler):
    """One command."""

    def handle(self):
        request = json.loads(self.rfile.readline())
        log = os.memfd_create("output")
        begin = time.monotonic()
        process = subprocess.Popen(["/bin/bash", "-c", request["command"]], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True)
        try:
            code = process.wait(request["timeout"])
        except subprocess.TimeoutExpired:
            code = -1
        answer = {"code": code, "output": os.pread(log, 1 << 20, 0).decode(errors="replace"),
                  "seconds": time.monotonic() - begin}
        os.close(log)
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    """A thread per command, so that one that hangs holds up no other."""

    allow_reuse_address = True
    daemon_threads = True


Server(("", int(sys.argv[1])), Handler).serve_forever()
